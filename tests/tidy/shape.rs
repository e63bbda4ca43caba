//! The shape of files: how long, how they begin, what they must not hold.

use super::tree::{CRATES, assert_none, read, root, sources};

/// Lines of a file before its trailing tests.
const MAX_LINES: usize = 400;

/// Lines of a function, signature and braces included.
const MAX_FUNCTION: usize = 60;

#[test]
fn files_are_short() {
    let sources = sources();
    let long = sources.iter().filter(|source| source.tests_at > MAX_LINES);
    let complain =
        long.map(|source| format!("{}: {} lines, at most {MAX_LINES}", source.path, source.tests_at));
    assert_none(&complain.collect::<Vec<_>>());
}

#[test]
fn functions_are_short() {
    let mut complaints = Vec::new();
    for source in sources() {
        let long = source.functions().into_iter().filter(|function| function.length > MAX_FUNCTION);
        complaints.extend(long.map(|function| {
            let (path, line, name, length) = (&source.path, function.line, function.name, function.length);
            format!("{path}:{line}: fn {name} has {length} lines, at most {MAX_FUNCTION}")
        }));
    }
    assert_none(&complaints);
}

#[test]
fn files_say_what_they_do() {
    let sources = sources();
    let mute = sources.iter().filter(|source| !source.text.starts_with("//! "));
    let complain = mute.map(|source| format!("{}: the first line must be a `//!` sentence", source.path));
    assert_none(&complain.collect::<Vec<_>>());
}

#[test]
fn files_have_telling_names() {
    let vague = ["utils", "util", "common", "helpers", "helper", "manager", "misc"];
    let sources = sources();
    let named = sources.iter().filter(|source| {
        source.path.split('/').any(|part| vague.contains(&part.strip_suffix(".rs").unwrap_or(part)))
    });
    assert_none(&named.map(|source| format!("{}: the name says nothing", source.path)).collect::<Vec<_>>());
}

#[test]
fn tests_wait_for_events() {
    // The one bounded wait, through which all others go; and stories whose time is virtual.
    let exceptions = [
        "tests/src/deadline.rs",
        "scaler/src/control/tests.rs",
        "scaler/src/control/tests/world.rs",
        "gateway/src/layer/keepalive/tests.rs",
        "gateway/src/layer/read.rs",
        "gateway/src/server/certificate/tests.rs",
        "gateway/src/server/http2/tests.rs",
        "gateway/src/server/http2/tests/heads.rs",
        "gateway/src/server/tests/secured.rs",
        "gateway/src/server/tests/trickle.rs",
    ];
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|source| !exceptions.contains(&source.path.as_str())) {
        let first = if source.is_test() { 0 } else { source.tests_at };
        let lines = source.code.lines().enumerate().skip(first);
        complaints.extend(
            lines
                .filter(|(_, line)| line.contains("sleep("))
                .map(|(at, _)| format!("{}:{}: a test sleeps; await an event", source.path, at + 1)),
        );
    }
    assert_none(&complaints);
}

#[test]
fn no_path_of_one_machine() {
    // Written in two parts, so that this file does not complain about itself.
    let places = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut complaints = Vec::new();
    let manifests = CRATES.iter().map(|(folder, _)| format!("{folder}/Cargo.toml"));
    let texts = manifests.map(|path| (read(&path), path));
    let texts = texts.chain(sources().into_iter().map(|source| (source.text, source.path)));
    for (text, path) in texts {
        let lines = text.lines().enumerate();
        let found = lines.filter(|(_, line)| places.iter().any(|place| line.contains(place)));
        complaints.extend(found.map(|(at, line)| format!("{path}:{}: {line}", at + 1)));
    }
    assert_none(&complaints);
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    let manifests = CRATES.iter().map(|(folder, _)| format!("{folder}/Cargo.toml"));
    let without = manifests.filter(|path| !read(path).contains("[lints]\nworkspace = true"));
    assert_none(&without.map(|path| format!("{path}: no `[lints] workspace = true`")).collect::<Vec<_>>());
    let listed: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let members = listed["workspace"]["members"].as_array().expect("members");
    assert_eq!(members.len(), CRATES.len(), "a crate of the workspace is missing in `tests/tidy/tree.rs`");
}

#[test]
fn ci_runs_what_the_readme_says() {
    let (Ok(readme), Ok(ci)) =
        (std::fs::read_to_string(root().join("README.md")), std::fs::read_to_string(root().join(".ci/run")))
    else {
        // Both come with the integration; one without the other is a fault.
        let exist = ["README.md", ".ci/run"].map(|path| root().join(path).exists());
        assert_eq!(exist, [false, false], "README.md and .ci/run go together");
        return;
    };
    let commands = ci.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with('#') && !line.starts_with("set ") && !line.starts_with("cd ")
    });
    let missing = commands.filter(|command| !readme.contains(command.trim_start_matches("exec ")));
    assert_none(
        &missing.map(|command| format!(".ci/run: `{command}` is not in README.md")).collect::<Vec<_>>(),
    );
}
