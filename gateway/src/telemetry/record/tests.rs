//! Which status and outcome are logged for what may happen to a request.

use super::*;

/// The status that is logged for a request that `story` happened to.
fn logged(story: impl FnOnce(Record)) -> u64 {
    line(false, story)["status"].as_u64().expect("a status")
}

/// The line that is logged for it; the gateway cuts what runs, or does not.
fn line(cuts: bool, story: impl FnOnce(Record)) -> serde_json::Value {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let access = AccessLog::file(file.path()).expect("a log");
    let nowhere = DeploymentMeter::new("");
    let sink = Arc::new(Sink {
        clock: Clock::start(),
        access: Arc::clone(&access),
        nowhere,
        cuts: AtomicBool::new(cuts),
    });
    let record = Record::new(&sink, None, &Method::POST, "/v1/chat/completions", "req-1".into());
    // A story may end in a panic.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story(record)));
    access.flush();
    serde_json::from_slice(&std::fs::read(file.path()).expect("the log")).expect("one line of JSON")
}

#[test]
fn h4_the_status_is_the_clients_and_499_only_where_it_left() {
    let replica = || HeaderValue::from_static("chat-1");
    assert_eq!(logged(drop), 499, "no answer was made");
    assert_eq!(
        logged(|mut record| {
            record.sent(replica(), Route::Any);
            record.status(504);
        }),
        504,
        "the gateway answers for a replica"
    );
    let relayed = |mut record: Record, outcome: Option<Outcome>| {
        record.sent(replica(), Route::Any);
        record.status(200);
        record.relaying();
        outcome.into_iter().for_each(|outcome| record.ended(outcome));
    };
    assert_eq!(logged(|record| relayed(record, None)), 499, "it left in the middle of the answer");
    assert_eq!(logged(|record| relayed(record, Some(Outcome::Complete))), 200);
    assert_eq!(
        logged(|record| {
            let _held = record;
            panic!("a bug");
        }),
        500
    );
}
#[test]
fn h4_what_the_gateway_cuts_itself_is_not_put_down_to_the_client() {
    let told = |story: fn(Record)| {
        let line = line(true, story);
        (line["status"].as_u64(), line["outcome"].as_str().map(str::to_owned))
    };
    let stopped = Some("gateway_stopped".to_owned());
    fn relayed(mut record: Record, status: u16) {
        record.status(status);
        record.relaying();
    }
    assert_eq!(told(drop), (Some(503), stopped.clone()), "it had no answer yet");
    assert_eq!(told(|record| relayed(record, 200)), (Some(200), stopped), "in the middle");
    assert_eq!(told(|record| relayed(record, 499)), (Some(499), None), "given up before");
    assert_eq!(told(|mut record| record.own(404, 2)), (Some(404), None));
}
