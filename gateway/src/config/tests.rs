//! What a configuration may and may not say, and how the faults read.

use super::*;
use proptest::prelude::*;

mod routing;
mod scaling;
mod sources;

const PROCESS: &str = "[deployment.process]\ncommand = [\"engine\", \"{port}\"]\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("/etc/tidegate/tidegate.toml"))
}

/// A deployment with `settings`, started as a process.
fn started(settings: &str) -> Deployment {
    let text = format!("[[deployment]]\nname = \"m\"\n{settings}\n{PROCESS}");
    let mut config = parse(&text).expect("good configuration");
    config.deployments.remove(0)
}

/// The faults of a whole text, one line each.
fn faults(text: &str) -> Vec<String> {
    let error = parse(text).expect_err("faulty configuration");
    error.problems().iter().map(ToString::to_string).collect()
}

/// The faults of a deployment with `settings`, started as a process; line 3 is the first of `settings`.
fn faults_of(settings: &str) -> Vec<String> {
    faults(&format!("[[deployment]]\nname = \"m\"\n{settings}\n{PROCESS}"))
}

#[test]
fn a_file_with_ten_faults_gives_ten_lines() {
    let text = r#"listen = "127.0.0.1:8081"
colour = "blue"
[limits]
body = "64 megabytes"
conect = "1s"

[[deployment]]
name = "chat model"
max = 99
window = 30
[deployment.process]
command = ["llama-server", "--port", "8000"]

[[deployment]]
name = "embed"
[[deployment.replica]]
url = "ftp://10.0.0.1:9101"
[[deployment.replica]]
capacity = 0.5
url = "http://10.0.0.2:9101"
"#;
    let expected = r#"10 faults in /etc/tidegate/tidegate.toml
  line 1: listen = "127.0.0.1:8081": must have another port than admin, which is 127.0.0.1:8081
  line 2: colour: is not a setting; there are listen, admin, tls, state_dir, limits, log, budget, deployment
  line 4: limits.body = "64 megabytes": must be a size from 1 to 1TiB: a whole number of bytes, or in quotes with KiB, MiB, GiB, TiB, MB, GB or TB, such as "64MiB"
  line 5: limits.conect: is not a setting; did you mean connect?
  line 8: deployment 1 (line 7): name = "chat model": must be 1 to 128 characters in quotes, each a letter, a digit or one of . _ : / -
  line 9: deployment 1 (line 7): max = 99: must be a whole number from 0 to 32
  line 10: deployment 1 (line 7): window = 30: must be a time from 1s to 1day in quotes, such as "30s" or "1h 30m"
  line 12: deployment 1 (line 7): process.command: must hold {port}, here or in env: Tidegate chooses the port that the engine listens on
  line 17: deployment embed: replica[0].url = "ftp://10.0.0.1:9101": must be http://host or https://host, with a port and a path prefix if needed, such as http://127.0.0.1:9101
  line 19: deployment embed: replica[1].capacity = 0.5: must be a whole number from 1 to 1000000"#;
    let error = parse(text).expect_err("ten faults");
    assert_eq!(error.problems().len(), 10);
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.source_line(9), Some("max = 99"));
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parse(&format!("[[deployment]]\nname = \"m\"\n{PROCESS}")).expect("good configuration");
    assert_eq!(config.listen, "127.0.0.1:8080".parse().expect("address"));
    assert_eq!(config.admin, "127.0.0.1:8081".parse().expect("address"));
    assert_eq!((config.limits, config.log), (ServerLimits::default(), Log::default()));
    let deployment = &config.deployments[0];
    assert_eq!(deployment.model, "m");
    assert_eq!(deployment.limits, Limits::default());
    assert_eq!(deployment.sizing, Sizing { max: 4, limit: 40, rule: Task::Chat.rule(), ..Sizing::default() });
    let Source::Process(process) = &deployment.source else { panic!("{deployment:?}") };
    assert_eq!(process.dir, Path::new("/etc/tidegate"));
    assert_eq!((process.capacity, process.start_limit), (Capacity::ONE, Duration::from_secs(1800)));
}

#[test]
fn a1_q1_the_target_follows_the_task_and_the_limit_follows_the_target() {
    for (settings, target, limit) in [
        ("", 32, 40),
        ("task = \"embeddings\"", 256, 320),
        ("task = \"image\"", 4, 5),
        ("task = \"video\"", 2, 3),
        ("task = \"image\"\nrule = \"concurrency\"", 2, 3),
        ("task = \"video\"\nrule = \"concurrency\"", 1, 2),
        ("task = \"video\"\nrule = \"jobs\"", 2, 3),
        ("task = \"video\"\ntarget_concurrency = 8", 8, 10),
        ("target_concurrency = 3", 3, 4),
        ("target_concurrency = 3\nconcurrency_limit = 3", 3, 3),
    ] {
        let deployment = started(settings);
        let got = (deployment.sizing.target_concurrency, deployment.limits.concurrency);
        assert_eq!(got, (target, limit), "{settings}");
    }
}

#[test]
fn a4_a5_window_and_floor_follow_the_mode() {
    let got = |settings: &str| {
        let sizing = started(settings).sizing;
        (sizing.min, sizing.max, sizing.window.as_secs())
    };
    assert_eq!(got(""), (0, 4, 30));
    assert_eq!(got("mode = \"active\""), (1, 4, 120));
    assert_eq!(got("mode = \"active\"\nmin = 2\nmax = 2\nwindow = \"5s\""), (2, 2, 5));
    assert_eq!(got("mode = \"flex\"\nmin = 1\nmax = 32"), (1, 32, 30));
}

#[test]
fn a3_the_queue_threshold_is_half_of_the_headroom() {
    let got = |settings: &str| started(settings).sizing.queue_threshold.as_millis();
    assert_eq!(got(""), 1000);
    assert_eq!(got("queue = { headroom = \"5s\" }"), 2500);
    assert_eq!(got("queue_threshold = \"2s\""), 2000);
    assert_eq!(
        faults_of("queue_threshold = \"3s\""),
        [
            "line 3: deployment m: queue_threshold = \"3s\": must not be more than queue.headroom, which is 2s: refusals would begin first"
        ]
    );
}

#[test]
fn a5_a6_c1_floor_and_ceiling_must_fit() {
    for (settings, fault) in [
        ("min = 3\nmax = 2", "line 3: deployment m: min = 3: must not be more than max, which is 2"),
        ("min = 5", "line 3: deployment m: min = 5: must not be more than max, which is 4 unless given"),
        (
            "min = 0\nmode = \"active\"",
            "line 3: deployment m: min = 0: must be at least 1 in active mode; flex mode goes to zero",
        ),
        (
            "max = 0\nmode = \"active\"",
            "line 3: deployment m: max = 0: must not be less than min, which is 1 in active mode",
        ),
        ("max = 33", "line 3: deployment m: max = 33: must be a whole number from 0 to 32"),
    ] {
        assert_eq!(faults_of(settings), [fault]);
    }
}

#[test]
fn the_port_may_stand_in_the_command_or_in_the_environment() {
    let text = |process: &str| format!("[[deployment]]\nname = \"m\"\n[deployment.process]\n{process}\n");
    for good in
        ["command = [\"e\", \"--bind=127.0.0.1:{port}\"]", "command = [\"e\"]\nenv = { PORT = \"{port}\" }"]
    {
        parse(&text(good)).expect(good);
    }
    let head = "line 4: deployment m: process.command:";
    let port = "must hold {port}, here or in env: Tidegate chooses the port that the engine listens on";
    for (bad, rules) in [
        ("command = [\"e\"]", vec![format!("{head} {port}")]),
        ("command = [\"\", \"{port}\"]", vec![format!("{head} must begin with the program to start")]),
        ("capacity = 1", vec!["line 3: deployment m: process.command: is missing".to_owned()]),
    ] {
        assert_eq!(faults(&text(bad)), rules);
    }
}

#[test]
fn c_129_a_size_of_nothing_is_no_size() {
    let text = |capacity: &str| {
        format!(
            "[[deployment]]\nname = \"m\"\n[[deployment.replica]]\nurl = \"http://a:1\"\ncapacity = {capacity}\n"
        )
    };
    parse(&text("1")).expect("the least");
    for nothing in ["0", "-1"] {
        let fault = format!(
            "line 5: deployment m: replica[0].capacity = {nothing}: must be a whole number from 1 to 1000000"
        );
        assert_eq!(faults(&text(nothing)), [fault], "who is to get nothing new is said by `tidegate drain`");
    }
}

#[test]
fn names_are_unique_over_all_deployments() {
    let text = format!(
        "[[deployment]]\nname = \"a\"\naliases = [\"b\", \"b\"]\n{PROCESS}[[deployment]]\nname = \"b\"\naliases = [\"a\"]\n{PROCESS}"
    );
    let rule = |line| format!("must be a name or alias that no other deployment has; line {line} has it");
    assert_eq!(
        faults(&text),
        [
            "line 3: deployment a: aliases[1] = \"b\": must not be named twice; line 3 has it for this deployment already".to_owned(),
            format!("line 7: deployment b: name = \"b\": {}", rule(3)),
            format!("line 8: deployment b: aliases[0] = \"a\": {}", rule(2)),
        ]
    );
}

#[test]
fn the_admin_port_is_loopback_and_its_own() {
    let with = |head: &str| format!("{head}\n[[deployment]]\nname = \"m\"\n{PROCESS}");
    assert!(parse(&with("listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"")).is_ok());
    assert!(parse(&with("listen = \"0.0.0.0:80\"\nadmin = \"[::1]:81\"")).is_ok());
    assert_eq!(
        faults(&with("admin = \"0.0.0.0:9000\"")),
        [
            "line 1: admin = \"0.0.0.0:9000\": must be a loopback address: from elsewhere it would need a token, which is not supported yet"
        ]
    );
    assert_eq!(
        faults(&with("admin = \"127.0.0.1:9000\"\nlisten = \"0.0.0.0:9000\"")),
        ["line 1: admin = \"127.0.0.1:9000\": must have another port than listen, which is 0.0.0.0:9000"]
    );
}

#[test]
fn a_body_must_fit_into_what_is_buffered() {
    let with = |limits: &str| format!("[[deployment]]\nname = \"m\"\n{PROCESS}[limits]\n{limits}");
    let config = parse(&with("buffered = \"1MiB\"")).expect("good configuration");
    assert_eq!(config.limits.body, 1 << 20);
    assert_eq!(
        faults(&with("body = \"2GiB\"")),
        ["line 6: limits.body = \"2GiB\": must not be more than limits.buffered, which is 1GiB"]
    );
}

#[test]
fn wrong_shapes_are_told_apart() {
    for (text, fault) in [
        (
            "limits = 1\ndeployment = [{ name = \"m\", replica = [{ url = \"http://h\" }] }]",
            "line 1: limits = 1: must be a table, under [limits] or in braces",
        ),
        (
            "[deployment]\nname = \"m\"",
            "line 1: deployment: must be a list of tables, each under [[deployment]]",
        ),
        (
            "limits = \"secret\"\ndeployment = [{ name = \"m\", replica = [{ url = \"http://h\" }] }]",
            "line 1: limits: must be a table, under [limits] or in braces",
        ),
        ("deployment = [1]", "line 1: deployment 1 = 1: must be a table, under [deployment] or in braces"),
    ] {
        assert_eq!(faults(text), [fault]);
    }
    assert_eq!(
        faults_of("\"odd key\" = 1\nMAX = 1"),
        [
            "line 3: deployment m: \"odd key\": is not a setting; there are name, aliases, model, task, \
             process, docker, exec, slurm, replica, rule, target_concurrency, queue, conversations, concurrency_limit, load_limit, policy, \
             http2, tls, mode, min, max, window, parked, queue_threshold, autoscale, drain_limit, price_cap, gpu_memory, \
             base_fee",
            "line 4: deployment m: MAX: is not a setting; did you mean max?",
        ]
    );
}

#[test]
fn secrets_are_never_repeated() {
    let text = "api_key = \"CANARY\"\n[[deployment]]\nname = \"m\"\ncommand = \"CANARY\"\n\
        [deployment.process]\ncommand = \"engine --key CANARY\"\n\
        env = { TOKEN = [\"CANARY\"], \"A=B\" = \"CANARY\" }\n\
        [[deployment]]\nname = \"n\"\n[[deployment.replica]]\nurl = \"http://me:CANARY@engine\"\n";
    let error = parse(text).expect_err("faulty configuration");
    assert_eq!(error.problems().len(), 6, "{error}");
    assert!(!format!("{error}{error:?}").contains("CANARY"), "{error}");
    let good = started("").source;
    let Source::Process(mut process) = good else { panic!("{good:?}") };
    process.env.insert("TOKEN".to_owned(), "CANARY".to_owned());
    assert!(!format!("{process:?}").contains("CANARY"));
}

#[test]
fn text_that_is_not_toml_gives_one_fault() {
    let got = faults("listen = \"127.0.0.1:1\"\nadmin = = 3\nlog = [\n");
    assert_eq!(got.len(), 1, "{got:?}");
    assert!(got[0].starts_with("line 2: /etc/tidegate/tidegate.toml: not TOML: "), "{got:?}");
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().expect("folder");
    let load = |path: &Path| Config::load(path).expect_err("fault").problems()[0].to_string();
    let missing = folder.path().join("missing.toml");
    assert!(load(&missing).ends_with("missing.toml: cannot be read: No such file or directory (os error 2)"));
    assert!(load(folder.path()).contains("cannot be read: "));
    let bytes = folder.path().join("bytes.toml");
    std::fs::write(&bytes, b"listen = 1\nadmin = \"\xff\"\n").expect("write");
    assert!(load(&bytes).starts_with("line 2: "), "{}", load(&bytes));
    assert!(load(Path::new("/dev/zero")).ends_with("/dev/zero: must not be larger than 4MiB"));
}

#[test]
fn paths_start_at_the_folder_of_the_file() {
    let text = "state_dir = \"state\"\nlog = { access = \"access.log\" }\n[[deployment]]\nname = \"m\"\n\
        [deployment.process]\ncommand = [\"e\", \"{port}\"]\ndir = \"/srv\"\n";
    let folder = tempfile::tempdir().expect("a folder");
    let config = Config::parse(text, &folder.path().join("tidegate.toml")).expect("good configuration");
    assert_eq!(config.state_dir, folder.path().join("state"));
    assert_eq!(config.log.access, Access::File(folder.path().join("access.log")));
    let Source::Process(process) = &config.deployments[0].source else { panic!("{config:?}") };
    assert_eq!(process.dir, Path::new("/srv"));
}

const EXAMPLE: &str = include_str!("../../../docker/tidegate.toml");

proptest! {
    /// No text panics it, and what is refused has a reason.
    #[test]
    fn mutated_text_never_panics(cuts in prop::collection::vec((0usize..6000, 0usize..40, "[\\x00-\\x7fé\\n\"\\[\\]{}=.]{0,6}"), 1..6)) {
        let mut chars: Vec<char> = EXAMPLE.chars().collect();
        for (at, length, text) in cuts {
            let at = at % (chars.len() + 1);
            let end = (at + length).min(chars.len());
            chars.splice(at..end, text.chars());
        }
        let text: String = chars.into_iter().collect();
        if let Err(error) = parse(&text) {
            prop_assert!(!error.problems().is_empty());
            prop_assert!(error.problems().iter().all(|p| p.line <= text.lines().count() + 1 && !p.rule.is_empty()));
        }
    }

    /// The same for words of the language in any order.
    #[test]
    fn shuffled_lines_never_panic(order in prop::collection::vec(0usize..80, 0..60)) {
        let lines: Vec<&str> = EXAMPLE.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")).collect();
        let text: String = order.iter().map(|i| format!("{}\n", lines[i % lines.len()].trim_start_matches('#'))).collect();
        if let Err(error) = parse(&text) {
            prop_assert!(!error.problems().is_empty());
        }
    }
}
