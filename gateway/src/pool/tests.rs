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
            prompt: Tokens(1),
            output: Tokens(1),
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
