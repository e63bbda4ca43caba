//! Where replicas come from: one source, and a fleet that is fixed.

use super::*;

#[test]
fn a_static_fleet_is_fixed() {
    let text = "[[deployment]]\nname = \"m\"\ntarget_concurrency = 8\n\
        [[deployment.replica]]\nurl = \"http://127.0.0.1:9101/\"\n\
        [[deployment.replica]]\nurl = \"http://127.0.0.1:9102\"\ncapacity = 2\n";
    let deployment = parse(text).expect("good configuration").deployments.remove(0);
    let sizing = &deployment.sizing;
    assert_eq!((sizing.min, sizing.max, sizing.autoscale), (2, 2, false));
    assert_eq!((sizing.target_concurrency, deployment.limits.concurrency), (8, 10));
    let Source::Static(replicas) = &deployment.source else { panic!("{deployment:?}") };
    let seen: Vec<_> = replicas.iter().map(|r| (r.url.to_string(), r.capacity.units())).collect();
    assert_eq!(seen, [("http://127.0.0.1:9101".to_owned(), 1), ("http://127.0.0.1:9102".to_owned(), 2)]);

    for key in [
        "rule = \"jobs\"",
        "price_cap = 1",
        "mode = \"flex\"",
        "min = 1",
        "max = 1",
        "window = \"1m\"",
        "autoscale = true",
        "drain_limit = \"1m\"",
    ] {
        let text = text.replace("target_concurrency = 8", key);
        let fault =
            format!("line 3: deployment m: {key}: must not be given with replicas: their number is fixed");
        assert_eq!(faults(&text), [fault]);
    }
    let twice = text.replace("9102", "9101");
    let fault = "line 7: deployment m: replica[1].url = \"http://127.0.0.1:9101\": must not be given twice in one deployment";
    assert_eq!(faults(&twice), [fault]);
    let many: String = (1..=33).map(|i| format!("[[deployment.replica]]\nurl = \"http://h{i}\"\n")).collect();
    assert_eq!(
        faults(&format!("[[deployment]]\nname = \"m\"\n{many}")),
        ["line 1: deployment m: replica: must be 1 to 32 replicas, not 33"]
    );
}

#[test]
fn replicas_come_from_exactly_one_source() {
    assert_eq!(
        faults("[[deployment]]\nname = \"m\"\n"),
        [
            "line 1: deployment m: must have a process (a command to start), docker (an image), exec (commands of your own), slurm (jobs of a cluster) or replica (its URL)"
        ]
    );
    assert_eq!(
        faults_of("replica = [{ url = \"http://127.0.0.1:1\" }]"),
        [
            "line 1: deployment m: must have one of process, docker, exec, slurm and replica, not process and replica"
        ]
    );
    assert_eq!(
        faults("[[deployment]]\nname = \"m\"\nreplica = []\n"),
        ["line 1: deployment m: replica: must be 1 to 32 replicas, not 0"]
    );
    let none =
        "deployment: at least one is needed: a table [[deployment]] with a name and a process or replicas";
    assert_eq!(faults(""), [none]);
    assert_eq!(faults("deployment = []"), [none]);
    let one = ["line 1: deployments: is not a setting; did you mean deployment?"];
    assert_eq!(faults("[[deployments]]\nname = \"m\"\n"), one, "one slip is one fault");
}

#[test]
fn h4_a_misspelled_placeholder_of_a_command_is_told_at_its_word() {
    let text = "exec = { start = [\"f\", \"{nam}\"], stop = [\"f\", \"{port}\"], list = [\"f\", \"{id}\"] }";
    let rule = "holds {nam}, which nothing stands for; did you mean {name}?";
    assert_eq!(
        faults(&format!("[[deployment]]\nname = \"m\"\n{text}\n")),
        [format!("line 3: deployment m: exec.start[1]: {rule}")]
    );
}
