//! Answers of slurmrestd in the shapes of several versions. Those of 38 were recorded from slurmrestd 22.05 and cut down
//! to a few fields; the others were written after the documents of the later versions.

use serde_json::json;

use super::*;
use crate::provider::slurm::room;
use crate::provider::slurm::seen::{Seen, look};
use crate::provider::slurm::spec::SlurmOffer;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::Capacity;

fn reply(text: &str) -> Reply {
    serde_json::from_str(text).unwrap()
}

#[test]
fn jobs_mean_the_same_in_both_shapes() {
    let old = reply(include_str!("samples/jobs-38.json"));
    let new = reply(include_str!("samples/jobs-40.json"));
    let seen = |reply: &Reply, at: usize| {
        let job = &reply.jobs[at];
        look(job, u32::try_from(job.restart_cnt.unwrap()).unwrap())
    };
    for (reply, node) in [(&old, "node1"), (&new, "gpu07")] {
        assert_eq!(seen(reply, 0), Seen::Listens { node: node.to_owned(), port: 20_001 });
        assert_eq!(seen(reply, 1), Seen::Over("its job failed (FAILED, exit code 3)".to_owned()));
        assert_eq!(seen(reply, 3), Seen::Queued("no capacity: Slurm says Resources".to_owned()));
        assert_eq!(reply.jobs[3].exit_code, Exit::default());
        assert!(reply.jobs.iter().all(|job| job.job_id.is_some() && job.user_id.is_some()));
        assert_eq!(reply.trouble(), None);
    }
    let killed = "its job failed (FAILED, signal 9, JobLaunchFailure)";
    assert_eq!(seen(&old, 2), Seen::Over(killed.to_owned()));
    assert_eq!(seen(&new, 2), Seen::Over("its job failed (FAILED, signal 9)".to_owned()));
    let held = "Slurm does not start its job: PartitionTimeLimit";
    assert!(matches!(seen(&old, 4), Seen::Held { why, .. } if why == held));
    assert_eq!((seen(&old, 5), seen(&new, 4)), (Seen::Ending, Seen::Ending));
}

#[test]
fn nodes_tell_their_room_in_both_shapes() {
    let offer = SlurmOffer {
        name: "gpu".to_owned(),
        partition: None,
        gres: Some("gpu:1".to_owned()),
        capacity: Capacity::ONE,
        price: Price::FREE,
        memory: None,
        cached: false,
    };
    let old = reply(include_str!("samples/nodes-38.json")).nodes;
    assert_eq!((old[0].name.as_str(), old[0].address.as_str()), ("node1", "127.0.0.1"));
    assert_eq!(old[0].partitions, ["main", "short"]);
    assert_eq!(room::free(&offer, &old), Some(1));
    let new = reply(include_str!("samples/nodes-40.json")).nodes;
    assert_eq!(new[0].address, "10.0.0.7");
    assert_eq!(room::free(&offer, &new), Some(3), "the second one is drained");
}

#[test]
fn a_submission_is_taken_or_refused() {
    assert_eq!(reply(include_str!("samples/submitted-38.json")).submitted(), Some(1));
    assert_eq!(reply(include_str!("samples/submitted-39.json")).submitted(), Some(77));
    for text in [include_str!("samples/refused-38.json"), include_str!("samples/refused-40.json")] {
        let reply = reply(text);
        assert_eq!((reply.submitted(), reply.refused()), (None, true));
        assert!(reply.trouble().unwrap().contains("Invalid partition name specified"));
    }
    let taken = reply(include_str!("samples/remark-38.json"));
    assert!(taken.submitted().is_some(), "taken, although it cannot start yet");
    let remark = "Requested partition configuration not available now";
    assert_eq!(taken.trouble().as_deref(), Some(remark));
    assert!(reply(include_str!("samples/nojob-38.json")).has(INVALID_JOB));
}

#[test]
fn c005_only_a_plain_refusal_says_that_nothing_was_done() {
    let says = |number: u64| {
        let error = json!({"error": "x", "error_number": number});
        reply(&json!({ "errors": [error] }).to_string()).refused()
    };
    for number in [1800, 2000, 2066, 9001] {
        assert!(says(number), "{number}");
    }
    for number in [1802, 5004, 0] {
        assert!(!says(number), "{number}: the controller may have taken it all the same");
    }
    assert!(!reply(r#"{"errors": [{"error": "Unspecified error", "error_number": -1}]}"#).refused());
}

#[test]
fn the_versions_are_those_of_the_controller() {
    let listing = |text: &str| versions(&serde_json::from_str(text).unwrap());
    assert_eq!(listing(include_str!("samples/openapi-38.json")), [38]);
    assert_eq!(listing(include_str!("samples/openapi-41.json")), [39, 40, 41]);
    assert_eq!(listing("[]"), Vec::<u32>::new());
}

#[test]
fn a_controller_is_up_in_both_shapes() {
    assert!(reply(r#"{"pings": [{"hostname": "a", "ping": "UP", "status": 0, "mode": "primary"}]}"#).is_up());
    assert!(reply(r#"{"pings": [{"pinged": "DOWN"}, {"pinged": "UP", "latency": 7}]}"#).is_up());
    assert!(!reply(r#"{"pings": [{"pinged": "DOWN"}]}"#).is_up());
}

#[test]
fn a_strange_job_spoils_no_list() {
    let text = json!({"jobs": [
        {"job_id": {"set": false}, "job_state": 7, "comment": null, "user_id": -1, "exit_code": [], "nodes": {}},
        {"job_id": "12", "job_state": "RUNNING", "comment": "(null)", "unknown": {"deep": []}},
    ]});
    let jobs = reply(&text.to_string()).jobs;
    assert_eq!(jobs[0], Job::default());
    assert_eq!((jobs[1].job_id, jobs[1].comment.as_str()), (Some(12), ""));
}
