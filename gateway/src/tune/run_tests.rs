//! When a measuring ends that is not done. Measures nothing: its engine never answers.

use tokio::sync::mpsc::channel;
use tokio::time::timeout;

use super::*;
use crate::pool::Needed;

#[tokio::test(start_paused = true)]
async fn a1_the_limit_holds_for_who_reads_nothing_and_for_an_engine_that_says_nothing() {
    // It takes connections, and answers none.
    let engine = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", engine.local_addr().expect("an address"));
    for reads in [false, true] {
        let clock = Clock::start();
        let (pool, holding) = Holding::of_one(&url, clock);
        let job = Job {
            holding,
            deployment: "chat".to_owned(),
            model: "chat".to_owned(),
            clock,
            workload: Workload { prompt_tokens: 16, output_tokens: 16 },
            from: [Source::Asked; 2],
            goals: Goals::default(),
            only: None,
            limit: Duration::from_secs(10),
            seed: 1,
        };
        let (out, events) = channel(1);
        if !reads {
            out.try_send(Event::Waiting { in_flight: 1 }).expect("there is room for one");
        }
        let ended = timeout(Duration::from_secs(3600), run(job, &out)).await.expect("it ends");
        let up = "nothing could be measured within 10 s; give more with --limit".to_owned();
        assert_eq!(ended, Err(Stop::Nothing(up)), "reads: {reads}");
        assert_eq!(events.len(), 1);
        assert_eq!(pool.observe().replicas[0].hold, None, "it is let go");
    }
}

#[test]
fn what_ends_it_is_told_with_the_replica() {
    let silent = Stop::Silent { replica: "chat-1".to_owned() };
    assert_eq!(silent.to_string(), "chat-1 has sent nothing for 60 s");
    let needed = tell::needed("chat-1", Needed::Waiting(3));
    assert!(needed.starts_with("3 requests wait"), "{needed}");
}
