//! Who is more urgent goes first (Q1), who is gone does not go at all, and everybody is told the truth (Q2).

use super::*;

fn urgent(n: u64, priority: Priority) -> Arc<RequestFacts> {
    Arc::new(RequestFacts { priority, ..RequestFacts::clone(&ask(n)) })
}

fn within(n: u64, millis: u64) -> Arc<RequestFacts> {
    let start_within = Some(Duration::from_millis(millis));
    Arc::new(RequestFacts { start_within, ..RequestFacts::clone(&ask(n)) })
}

/// One place that has been measured: a second for each request. The last of them runs, since 5 s.
fn measured(limits: Limits) -> (Dispatcher, Lease) {
    let mut dispatcher = fleet(Limits { concurrency: 1, ..limits }, &[1]);
    let mut running = forward(dispatcher.arrive(ms(0), &ask(0)));
    for n in 1..=5 {
        dispatcher.end(ms(n * 1000), running, &Spent::default());
        running = forward(dispatcher.arrive(ms(n * 1000), &ask(n)));
    }
    (dispatcher, running)
}

/// Ends what runs, again and again, and gives the order in which waiters are served.
fn served(dispatcher: &mut Dispatcher, now: Instant, mut running: Lease) -> Vec<TicketId> {
    let mut order = Vec::new();
    loop {
        dispatcher.end(now, running, &Spent::default());
        let Some((ticket, lease)) = dispatcher.take_woken().pop() else { return order };
        order.push(ticket);
        running = lease.expect("a lease");
    }
}

#[test]
fn q1_the_more_urgent_go_first_and_equals_in_order_of_arrival() {
    use Priority::{High, Low, Normal};
    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1]);
    let running = forward(dispatcher.arrive(ms(0), &ask(0)));
    let came = [Low, Normal, High, Low, High, Normal];
    let tickets: Vec<_> =
        (1..).zip(came).map(|(n, priority)| ticket(dispatcher.arrive(ms(n), &urgent(n, priority)))).collect();
    let order = served(&mut dispatcher, ms(10), running);
    let expected: Vec<_> = [2, 4, 1, 5, 0, 3].map(|at: usize| tickets[at]).into();
    assert_eq!(order, expected);
}

#[test]
fn q1_in_a_full_line_the_last_of_the_least_urgent_makes_room_and_is_told_when_to_come_back() {
    use Priority::{High, Low, Normal};
    let limits = Limits { queue_requests: 4, headroom: Duration::from_secs(60), ..Limits::default() };
    let (mut dispatcher, running) = measured(limits);
    let now = ms(5000);
    let low: Vec<_> = (10..12).map(|n| ticket(dispatcher.arrive(now, &urgent(n, Low)))).collect();
    let normal: Vec<_> = (12..14).map(|n| ticket(dispatcher.arrive(now, &ask(n)))).collect();
    assert_eq!(
        rejected(dispatcher.arrive(now, &urgent(20, Low))).reason,
        Refusal::QueueFull,
        "its equals stay"
    );
    let told = rejected(dispatcher.arrive(now, &urgent(20, Low))).retry_after;
    assert!(told >= Duration::from_secs(5), "four are ahead, and it takes a second: {told:?}");

    let first = ticket(dispatcher.arrive(now, &urgent(21, High)));
    let (out, end) = dispatcher.take_woken().pop().expect("somebody made room");
    let end = end.expect_err("no lease");
    assert_eq!((out, end.reason), (low[1], Refusal::PushedOut));
    assert!(end.retry_after >= Duration::from_secs(5), "behind three and the newcomer: {end:?}");
    ticket(dispatcher.arrive(now, &ask(22)));
    assert_eq!(dispatcher.take_woken().pop().expect("the other").0, low[0]);
    assert_eq!(rejected(dispatcher.arrive(now, &ask(23))).reason, Refusal::QueueFull);
    ticket(dispatcher.arrive(now, &urgent(24, High)));
    assert_eq!(dispatcher.take_woken().pop().expect("a normal one").0.priority(), Normal);
    assert_eq!(dispatcher.observe(now).queued, 4);

    let back = now + end.retry_after;
    let order = served(&mut dispatcher, back, running);
    assert_eq!((order[0], order[2]), (first, normal[0]));
    let again = forward(dispatcher.arrive(back, &urgent(11, Low)));
    dispatcher.end(back, again, &Spent::default());
}

#[test]
fn q1_whoever_came_back_when_told_is_not_pushed_out_again() {
    let limits = Limits { queue_requests: 1, headroom: Duration::from_secs(60), ..Limits::default() };
    let (mut dispatcher, running) = measured(limits);
    let low = |n| urgent(n, Priority::Low);
    ticket(dispatcher.arrive(ms(5000), &low(10)));
    ticket(dispatcher.arrive(ms(5000), &ask(11)));
    let (_, end) = dispatcher.take_woken().pop().expect("pushed out");
    let back = ms(5000) + end.expect_err("no lease").retry_after;
    let order = served(&mut dispatcher, back, running);
    assert_eq!(order.len(), 1);
    let running = forward(dispatcher.arrive(back, &ask(12)));
    let again = ticket(dispatcher.arrive(back, &low(10)));
    let refused = rejected(dispatcher.arrive(back, &urgent(13, Priority::High)));
    assert_eq!(refused.reason, Refusal::QueueFull, "what was promised is kept");
    assert_eq!(served(&mut dispatcher, back, running), [again]);
}

#[test]
fn q1_in_bytes_nobody_is_pushed_out_in_vain() {
    let limits = Limits { queue_bytes: 3500, headroom: Duration::from_secs(60), ..Limits::default() };
    let (mut dispatcher, _running) = measured(limits);
    let now = ms(5000);
    ticket(dispatcher.arrive(now, &ask(10)));
    let _low = [11, 12].map(|n| ticket(dispatcher.arrive(now, &urgent(n, Priority::Low))));
    let large = |bytes| {
        Arc::new(RequestFacts { body_bytes: bytes, ..RequestFacts::clone(&urgent(20, Priority::Normal)) })
    };
    assert_eq!(rejected(dispatcher.arrive(now, &large(2501))).reason, Refusal::QueueBytes);
    assert!(dispatcher.take_woken().is_empty(), "it would not fit");
    ticket(dispatcher.arrive(now, &large(2500)));
    assert_eq!(dispatcher.take_woken().len(), 2);
    assert_eq!(dispatcher.queued_bytes(), 3500);
}

#[test]
fn q2_a_crowd_that_can_wait_delays_nobody_else() {
    let (mut dispatcher, _running) = measured(Limits::default());
    let now = ms(5000);
    let mut told = Vec::new();
    for n in 10..30 {
        if let Verdict::Reject(rejection) = dispatcher.arrive(now, &urgent(n, Priority::Low)) {
            told.push(rejection.retry_after);
        }
    }
    assert!(told.len() >= 18 && told.is_sorted(), "{told:?}");
    ticket(dispatcher.arrive(now, &ask(40)));
    ticket(dispatcher.arrive(now, &urgent(41, Priority::High)));
    let next = rejected(dispatcher.arrive(now, &ask(42)));
    assert!(next.retry_after <= Duration::from_secs(4), "behind two, not behind twenty: {next:?}");
}

#[test]
fn q2_nobody_is_sent_to_a_replica_after_his_deadline() {
    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1]);
    let running = forward(dispatcher.arrive(ms(0), &ask(0)));
    let short = ticket(dispatcher.arrive(ms(0), &within(1, 500)));
    let long = ticket(dispatcher.arrive(ms(0), &within(2, 60_000)));
    assert_eq!(dispatcher.deadline(), ms(500));
    // The place is free at that very moment, before anybody looked at the clock.
    dispatcher.end(ms(500), running, &Spent::default());
    let woken = dispatcher.take_woken();
    assert_eq!(woken[0].0, short);
    assert_eq!(woken[0].1.as_ref().expect_err("late").reason, Refusal::MissedDeadline);
    assert_eq!(woken[1].0, long);
    let running = dispatcher.take_woken().pop();
    assert!(running.is_none());

    let mut dispatcher = fleet(Limits { concurrency: 1, ..Limits::default() }, &[1]);
    let _running = forward(dispatcher.arrive(ms(0), &ask(0)));
    let long = ticket(dispatcher.arrive(ms(0), &within(2, 60_000)));
    assert_eq!(dispatcher.deadline(), ms(2000), "a long deadline does not lengthen the headroom");
    dispatcher.on_deadline(ms(2000));
    let (id, end) = dispatcher.take_woken().pop().expect("a verdict");
    assert_eq!((id, end.expect_err("late").reason), (long, Refusal::WaitedTooLong));
}

#[test]
fn q2_a_retry_has_the_deadline_of_its_first_try() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let facts = within(1, 500);
    let lease = forward(dispatcher.arrive(ms(0), &facts));
    let tried = [lease.replica];
    dispatcher.end(ms(400), lease, &Spent::default());
    let lease = forward(dispatcher.retry(ms(499), &facts, &tried, ms(0)));
    dispatcher.end(ms(500), lease, &Spent::default());
    assert_eq!(rejected(dispatcher.retry(ms(500), &facts, &tried, ms(0))).reason, Refusal::MissedDeadline);
}

#[test]
fn q2_who_cannot_start_before_his_deadline_is_told_at_once_and_served_when_he_comes_back() {
    let (mut dispatcher, running) = measured(Limits::default());
    let now = ms(5000);
    let refused = rejected(dispatcher.arrive(now, &within(10, 900)));
    assert_eq!(refused.reason, Refusal::WouldMissDeadline, "a place is free in a second");
    ticket(dispatcher.arrive(now, &within(11, 60_000)));
    let back = now + refused.retry_after;
    assert_eq!(served(&mut dispatcher, back, running).len(), 1);
    let lease = forward(dispatcher.arrive(back, &within(10, 900)));
    dispatcher.end(back, lease, &Spent::default());
}

#[test]
fn q3_a_deadline_before_the_model_is_loaded() {
    // The first start took ten seconds; nothing is ready now.
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    dispatcher.change(ms(0), ReplicaId(1), Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(10_000), ReplicaId(1), Change::Ready);
    for n in 0..3 {
        let lease = forward(dispatcher.arrive(ms(10_000), &ask(n)));
        dispatcher.end(ms(10_100), lease, &Spent::default());
    }
    dispatcher.change(ms(20_000), ReplicaId(1), Change::Gone);
    let waits = ticket(dispatcher.arrive(ms(20_000), &within(1, 5_000)));
    assert!(dispatcher.take_pressed(), "it asks for a replica, though it will not see it");
    dispatcher.change(ms(20_100), ReplicaId(2), Change::Ordered(Capacity::ONE));
    let refused = rejected(dispatcher.arrive(ms(20_100), &within(2, 5_000)));
    assert_eq!(refused.reason, Refusal::WouldMissDeadline);
    assert_eq!(refused.retry_after, Duration::from_secs(10), "when the start is over");
    let patient = ticket(dispatcher.arrive(ms(20_100), &within(3, 15_000)));
    dispatcher.on_deadline(ms(25_000));
    assert_eq!(dispatcher.take_woken().pop().expect("late").0, waits);
    dispatcher.change(ms(30_100), ReplicaId(2), Change::Ready);
    let (id, lease) = dispatcher.take_woken().pop().expect("served");
    assert_eq!(id, patient);
    dispatcher.end(ms(30_200), lease.expect("a lease"), &Spent::default());
    let back = forward(dispatcher.arrive(ms(30_100), &within(2, 5_000)));
    dispatcher.end(ms(30_200), back, &Spent::default());
}
