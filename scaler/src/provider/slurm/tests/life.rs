//! The life of jobs: they wait for room, are put back, resist, belong to others, or to nobody any more.

use super::*;

/// A replica on one of the two GPUs.
fn on_gpu(cluster: &Cluster, name: &str, command: Vec<String>) -> SlurmSpec {
    let mut spec = spec(cluster, by_socket(cluster), name, command);
    spec.offers[0].gres = Some("gpu:1".to_owned());
    spec
}

async fn stop_all(provider: &SlurmProvider) {
    for one in provider.list().await.unwrap() {
        provider.stop(one.id).await.unwrap();
    }
}

fn why(instances: &[Instance], id: ReplicaId) -> String {
    match instances.iter().find(|one| one.id == id).map(|one| &one.state) {
        Some(
            InstanceState::Pending { why } | InstanceState::Queued { why } | InstanceState::Held { why, .. },
        ) => why.clone(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn c2_who_finds_no_room_waits_and_says_for_what() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let provider = open(state.path(), on_gpu(&cluster, "chat", serving()));
    let offer = provider.core.spec.offers[0].clone();
    until(&provider, |_| provider.core.free(&offer) == Some(2)).await;
    let (first, second) = (start(&provider).await, start(&provider).await);
    let mut told = Vec::new();
    let both_up = |list: &[Instance]| {
        told.extend([why(list, first), why(list, second)]);
        up(list, 2)
    };
    until(&provider, both_up).await;
    assert!(!told.iter().any(|why| why.contains("no capacity")), "there was room: {told:?}");
    let third = start(&provider).await;
    let mut told = Vec::new();
    let waits = |list: &[Instance]| {
        told.push(why(list, third));
        told.last().is_some_and(|why| why == "no capacity: Slurm says Resources")
    };
    until(&provider, waits).await;
    assert!(!told.iter().any(|why| why.starts_with("Slurm ")), "at the first look at its job: {told:?}");
    assert_eq!(provider.core.free(&offer), Some(0));
    provider.stop(first).await.unwrap();
    until(&provider, |list| up(list, 2)).await;
    stop_all(&provider).await;
    assert_eq!(cluster.jobs(), Vec::<String>::new());
}

#[tokio::test]
async fn c2_a_job_that_can_never_start_says_why() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let mut spec = on_gpu(&cluster, "chat", serving());
    (spec.offers[0].partition, spec.time_limit) = (Some("short".to_owned()), Some(600));
    let provider = open(state.path(), spec);
    let id = start(&provider).await;
    let told = "Slurm does not start its job: PartitionTimeLimit (Requested partition configuration not";
    until(&provider, |list| why(list, id).starts_with(told)).await;
    assert_eq!(provider.output(id), Vec::<String>::new(), "it never ran");
    let JobOf::Known(job) = provider.core.job(id) else { panic!() };
    cluster.run("scancel", &[&job.to_string()]);
    let list = until(&provider, |list| matches!(list[0].state, InstanceState::Exited { .. })).await;
    let InstanceState::Exited { output, .. } = &list[0].state else { panic!("{list:?}") };
    assert_eq!(*output, Vec::<String>::new(), "nor was it ended on a node");
    stop_all(&provider).await;
    assert_eq!(cluster.jobs(), Vec::<String>::new());
}

#[tokio::test]
async fn c005_an_engine_that_cannot_be_run_or_is_killed_is_told_with_its_last_words() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let provider = open(state.path(), on_gpu(&cluster, "chat", vec!["no-such-engine-4711".to_owned()]));
    start(&provider).await;
    let ended = |list: &[Instance]| matches!(list[0].state, InstanceState::Exited { .. });
    let list = until(&provider, ended).await;
    let InstanceState::Exited { how, output } = &list[0].state else { panic!("{list:?}") };
    assert_eq!(how, "its job failed (FAILED, exit code 127)");
    assert!(output.iter().any(|line| line.contains("no-such-engine-4711: not found")), "{output:?}");
    stop_all(&provider).await;
    drop(provider);

    let provider = open(state.path(), on_gpu(&cluster, "chat", shell("kill -9 $$")));
    start(&provider).await;
    let list = until(&provider, ended).await;
    let InstanceState::Exited { how, .. } = &list[0].state else { panic!("{list:?}") };
    assert_eq!(how, "its job failed (FAILED, exit code 137)");
    stop_all(&provider).await;
}

#[tokio::test]
async fn c005_a_job_that_slurm_starts_anew_is_another_engine() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let provider = open(state.path(), on_gpu(&cluster, "chat", serving()));
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let JobOf::Known(job) = provider.core.job(id) else { panic!() };
    cluster.run("scontrol", &["requeue", &job.to_string()]);
    let back = |list: &[Instance]| matches!(&list[0].state, InstanceState::Exited { how, .. } if how.contains("back into"));
    until(&provider, back).await;
    provider.stop(id).await.unwrap();
    assert_eq!(cluster.jobs(), Vec::<String>::new());
}

#[tokio::test]
async fn c005_an_engine_that_does_not_want_to_end_is_ended() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let mut command = serving();
    command[4] = format!("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SERVE}");
    let provider = open(state.path(), on_gpu(&cluster, "chat", command));
    let id = start(&provider).await;
    let list = until(&provider, |list| up(list, 1)).await;
    provider.stop(id).await.unwrap();
    let InstanceState::Up { url } = &list[0].state else { panic!("{list:?}") };
    let address = url.trim_start_matches("http://");
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens there");
    assert_eq!(cluster.jobs(), Vec::<String>::new());
}

#[tokio::test]
async fn c005_jobs_of_others_are_not_touched_whatever_their_comment_says() {
    let Some(cluster) = Cluster::start() else { return };
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let provider = open(ours.path(), on_gpu(&cluster, "chat", serving()));
    let id = start(&provider).await;
    until(&provider, |list| up(list, 1)).await;
    let comment = provider.core.mark(id, &provider.core.spec.offers[0]).to_string();
    drop(provider);

    // Another user who copies the comment, with a port of his own, and another gateway with the same deployment.
    let copied = comment.replace("replica=1", "replica=2") + " run=0 port=22";
    let foreign =
        ["--parsable", "--comment", &copied, "--job-name", "copy", "-o", "/dev/null", "--wrap", "sleep 600"];
    cluster.run("sbatch", &foreign);
    let other = open(theirs.path(), on_gpu(&cluster, "chat", serving()));
    start(&other).await;
    until(&other, |list| up(list, 1)).await;

    let provider = open(ours.path(), on_gpu(&cluster, "chat", serving()));
    let list = until(&provider, |list| up(list, 1)).await;
    assert_eq!(list[0].id, id, "only our own");
    stop_all(&provider).await;
    assert_eq!(cluster.jobs(), ["copy RUNNING", "tidegate:chat-1 RUNNING"]);
    assert!(up(&other.list().await.unwrap(), 1));
    stop_all(&other).await;
}

#[tokio::test]
async fn c005_jobs_that_nobody_wants_any_more_are_cancelled() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    for name in ["gone", "chat"] {
        let provider = open(state.path(), on_gpu(&cluster, name, serving()));
        start(&provider).await;
        until(&provider, |list| up(list, 1)).await;
    }
    // `gone` is no longer in the configuration, and `chat` has another command.
    let mut command = serving();
    command.push("--changed".to_owned());
    let provider = open(state.path(), on_gpu(&cluster, "chat", command));
    assert_eq!(provider.list().await.unwrap(), [], "adopted none");
    assert_eq!(provider.next_id(), ReplicaId(2), "and no id is used again");
    cluster_is_empty(&cluster).await;
}

#[tokio::test]
async fn m2_c005_the_record_names_every_job_until_it_is_gone_and_its_command_finds_them_all() {
    let Some(cluster) = Cluster::start() else { return };
    let state = tempfile::tempdir().unwrap();
    let provider = open(state.path(), on_gpu(&cluster, "gone", serving()));
    for _ in 0..3 {
        start(&provider).await;
    }
    let two_up = |list: &[Instance]| {
        list.iter().filter(|one| matches!(one.state, InstanceState::Up { .. })).count() == 2
    };
    until(&provider, two_up).await;
    drop(provider);
    let records = || super::super::left::all(&state.path().join("gone"));
    let (_, left) = records().pop().unwrap();
    assert_eq!((left.cluster.clone(), left.replicas.len()), (by_socket(&cluster).site.to_string(), 3));
    let settle = left.settle(&DeploymentName::new("gone")).replace("xargs -r scancel", "wc -l");
    assert_eq!(cluster.run("sh", &["-c", &settle]).trim(), "3", "{settle}");
    // Another deployment there ends them, and then nothing is left to tell.
    let _other = open(state.path(), on_gpu(&cluster, "chat", serving()));
    cluster_is_empty(&cluster).await;
    let settled = async {
        while !records().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), settled).await.expect("settled");
}

/// Waits until no job is left.
async fn cluster_is_empty(cluster: &Cluster) {
    let empty = async {
        while !cluster.jobs().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), empty).await.expect("no job is left");
}
