//! The guards against what should not happen.

use tidegate_shared::decision::Refusal;
use tidegate_shared::replica::Capacity;
use tidegate_shared::request::Identity;

use super::*;

#[tokio::test]
async fn q4_nobody_is_forgotten_in_the_line_behind_a_lease_without_an_address() {
    let limits = Limits { concurrency: 1, ..Limits::default() };
    let pool = Pool::new(DeploymentName::new("chat"), limits, true, Clock::start());
    let waits = |fingerprint| {
        let facts = RequestFacts {
            identity: Identity::None,
            body_bytes: 10,
            text_bytes: 4,
            token_ids: 0,
            images: 0,
            output_limit: Some(1),
            choices: 1,
            fingerprint,
            retry: None,
        };
        match pool.arrive(&Arc::new(facts)) {
            Admission::Later(waiting) => waiting,
            other => panic!("nothing is ready: {other:?}"),
        }
    };
    let line = [1, 2, 3].map(waits);
    // Ready at no address: each lease is ended, which makes room for the next in line.
    pool.change(ReplicaId(1), Change::Starting(Capacity::new(1)));
    pool.change(ReplicaId(1), Change::Ready);
    for waiting in line {
        let verdict = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await;
        assert!(verdict.expect("an answer").is_err_and(|no| no.reason == Refusal::NoReplica));
    }
}

#[test]
fn c_104_a_late_report_does_not_count_for_whoever_took_the_place() {
    let name = DeploymentName::new("chat");
    let pool = Pool::new(name.clone(), Limits::default(), true, Clock::start());
    let endpoint = || Arc::new(Endpoint::new(&name, ReplicaId(1), "http://127.0.0.1:9").unwrap());
    let (old, new) = (endpoint(), endpoint());
    pool.state.lock().endpoints.insert(old.id(), Arc::clone(&old));
    let asked = pool.ask(&old);
    let report = EngineReport { asked, running: Some(3), ..EngineReport::default() };
    pool.report(&old, report);
    assert_eq!(old.report(), Some(report));
    // The same id and the same address, and yet another engine.
    pool.state.lock().endpoints.insert(new.id(), Arc::clone(&new));
    pool.report(&old, EngineReport { running: Some(4), ..report });
    assert_eq!((old.report(), new.report()), (Some(report), None));
}
