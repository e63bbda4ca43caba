//! Replicas that are kept asleep (C6): nobody is sent there, and who waits is held for one that is woken.

use super::*;

fn parked(dispatcher: &mut Dispatcher, now: Instant, id: ReplicaId) {
    dispatcher.change(now, id, Change::Draining);
    dispatcher.change(now, id, Change::Parked);
}

fn phase(dispatcher: &Dispatcher, id: u32) -> Option<Phase> {
    dispatcher.observe(ms(0)).replicas.iter().find(|one| one.id == ReplicaId(id)).map(|one| one.phase)
}

#[test]
fn c6_nobody_is_sent_to_a_sleeper_until_it_is_ready_and_who_waits_is_held() {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    let id = ReplicaId(1);
    parked(&mut dispatcher, ms(10), id);
    let waits = ticket(dispatcher.arrive(ms(20), &ask(0)));
    assert!(dispatcher.take_pressed(), "the scaler looks at once");
    for (change, expected) in [
        (Change::Draining, Phase::Parked),
        (Change::Undrain, Phase::Parked),
        (Change::Failed, Phase::Parked),
        (Change::Waking, Phase::Waking),
        (Change::Asleep, Phase::Waking),
    ] {
        dispatcher.change(ms(30), id, change);
        assert_eq!(phase(&dispatcher, 1), Some(expected), "{change:?}");
    }
    dispatcher.on_deadline(ms(500_000));
    assert!(dispatcher.take_woken().is_empty(), "held as for a start");
    dispatcher.change(ms(500_000), id, Change::Ready);
    let woken = dispatcher.take_woken();
    assert!(matches!(&woken[..], [(ticket, Ok(_))] if *ticket == waits), "{woken:?}");
}

#[test]
fn c6_r6_an_engine_that_has_slept_holds_no_beginnings_and_one_that_was_paused_does() {
    for slept in [true, false] {
        let mut dispatcher = fleet(Limits::default(), &[1, 1]);
        let shared = |n: u64| {
            let chain = [7, 8, 1000 + n].map(ConversationKey).to_vec();
            Arc::new(RequestFacts {
                identity: Identity::Prefix { chain, follows_up: false },
                ..(*ask(n)).clone()
            })
        };
        let lease = forward(dispatcher.arrive(ms(0), &shared(0)));
        let id = lease.replica;
        dispatcher.end(ms(1), lease, &Spent::default());
        assert_eq!(dispatcher.explain(ms(2), &shared(1)).holders, [id]);
        dispatcher.change(ms(2), id, Change::Draining);
        if slept {
            dispatcher.change(ms(3), id, Change::CacheLost);
        }
        dispatcher.change(ms(4), id, Change::Parked);
        dispatcher.change(ms(5), id, Change::Waking);
        dispatcher.change(ms(6), id, Change::Ready);
        let holders = dispatcher.explain(ms(7), &shared(2)).holders;
        assert_eq!(holders.contains(&id), !slept, "slept: {slept}");
    }
}

#[test]
fn c6_a_drain_of_one_that_is_being_woken_is_undone_to_what_it_was() {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    let id = ReplicaId(1);
    parked(&mut dispatcher, ms(10), id);
    dispatcher.change(ms(20), id, Change::Waking);
    dispatcher.change(ms(30), id, Change::Draining);
    dispatcher.change(ms(40), id, Change::Undrain);
    assert_eq!(phase(&dispatcher, 1), Some(Phase::Starting), "it was ready before it slept, and is not now");
    ticket(dispatcher.arrive(ms(50), &ask(0)));
}

#[test]
fn c5_c6_a_sleeper_that_was_taken_out_drains_however_it_wakes_until_that_is_undone() {
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    let id = ReplicaId(1);
    dispatcher.change(ms(0), id, Change::Starting(Capacity::ONE));
    dispatcher.change(ms(10), id, Change::Asleep);
    dispatcher.change(ms(20), id, Change::Draining);
    let waits = ticket(dispatcher.arrive(ms(30), &ask(0)));
    for at in [40, 50] {
        dispatcher.change(ms(at), id, Change::Ready);
        assert_eq!(phase(&dispatcher, 1), Some(Phase::Draining), "somebody else woke it");
        assert!(dispatcher.take_woken().is_empty(), "and it takes nobody");
    }
    dispatcher.change(ms(60), id, Change::Undrain);
    assert_eq!(phase(&dispatcher, 1), Some(Phase::Ready));
    let woken = dispatcher.take_woken();
    assert!(matches!(&woken[..], [(ticket, Ok(_))] if *ticket == waits), "{woken:?}");

    dispatcher.change(ms(70), id, Change::Draining);
    dispatcher.change(ms(80), id, Change::Parked);
    dispatcher.change(ms(90), id, Change::Waking);
    dispatcher.change(ms(100), id, Change::Ready);
    assert_eq!(phase(&dispatcher, 1), Some(Phase::Ready), "a drain that ended in sleep is over");
}

#[test]
fn c5_c6_one_that_was_found_asleep_while_it_drained_is_parked_when_that_is_undone_and_it_sleeps_still() {
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    let id = ReplicaId(1);
    dispatcher.change(ms(0), id, Change::Starting(Capacity::ONE));
    for (change, expected) in [
        (Change::Draining, Phase::Draining),
        (Change::Asleep, Phase::Draining),
        (Change::Undrain, Phase::Starting),
        (Change::Asleep, Phase::Parked),
        (Change::Asleep, Phase::Parked),
    ] {
        dispatcher.change(ms(10), id, change);
        assert_eq!(phase(&dispatcher, 1), Some(expected), "{change:?}");
    }
}

#[test]
fn c6_one_that_is_found_asleep_is_parked_and_one_that_somebody_woke_serves() {
    let mut dispatcher = Dispatcher::new(Limits::default(), true, ms(0));
    let id = ReplicaId(1);
    dispatcher.change(ms(0), id, Change::Starting(Capacity::ONE));
    dispatcher.change(ms(10), id, Change::Asleep);
    assert_eq!(phase(&dispatcher, 1), Some(Phase::Parked));
    assert!(dispatcher.take_pressed());
    dispatcher.change(ms(15), id, Change::Asleep);
    assert!(!dispatcher.take_pressed(), "that is known");
    ticket(dispatcher.arrive(ms(20), &ask(0)));
    dispatcher.change(ms(30), id, Change::Ready);
    assert_eq!(dispatcher.take_woken().len(), 1);
    dispatcher.change(ms(40), id, Change::Asleep);
    assert_eq!(phase(&dispatcher, 1), Some(Phase::Ready), "of one that serves, its health check tells");
}

#[test]
fn c6_q3_a_fast_wake_leaves_who_waits_for_the_start_behind_it_his_place_in_line() {
    let limits = Limits { concurrency: 1, ..Limits::default() };
    let mut dispatcher = Dispatcher::new(limits, true, ms(0));
    let (sleeper, started) = (ReplicaId(1), ReplicaId(2));
    dispatcher.change(ms(0), sleeper, Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(60_000), sleeper, Change::Ready);
    parked(&mut dispatcher, ms(70_000), sleeper);
    let waiting: Vec<_> = (0..3).map(|n| ticket(dispatcher.arrive(ms(100_000), &ask(n)))).collect();
    dispatcher.change(ms(100_000), sleeper, Change::Waking);
    dispatcher.change(ms(100_000), started, Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(101_000), sleeper, Change::Ready);
    assert_eq!(dispatcher.take_woken()[0].0, waiting[0]);
    let late = ticket(dispatcher.arrive(ms(102_000), &ask(9)));
    assert_eq!(dispatcher.deadline(), ms(104_000));
    dispatcher.on_deadline(ms(104_000));
    let told: Vec<_> = dispatcher.take_woken().into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(told, [late], "who came to a ready replica has the headroom");
    dispatcher.on_deadline(ms(159_999));
    assert!(dispatcher.take_woken().is_empty());
    dispatcher.change(ms(160_000), started, Change::Ready);
    let woken = dispatcher.take_woken();
    assert!(matches!(&woken[..], [(ticket, Ok(_))] if *ticket == waiting[1]), "{woken:?}");
    assert_eq!(dispatcher.deadline(), ms(162_000), "the last has its headroom from then on");
    dispatcher.on_deadline(ms(162_000));
    assert_eq!(dispatcher.take_woken()[0].1.as_ref().unwrap_err().reason, Refusal::WaitedTooLong);
}

#[test]
fn q3_nobody_waits_longer_than_the_cold_start_limit_for_what_comes_behind_the_first() {
    let limits = Limits { concurrency: 1, cold_start: Duration::from_secs(30), ..Limits::default() };
    let mut dispatcher = Dispatcher::new(limits, true, ms(0));
    dispatcher.change(ms(0), ReplicaId(1), Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(60_000), ReplicaId(1), Change::Ready);
    parked(&mut dispatcher, ms(70_000), ReplicaId(1));
    (0..2).for_each(|n| {
        ticket(dispatcher.arrive(ms(100_000), &ask(n)));
    });
    dispatcher.change(ms(100_000), ReplicaId(1), Change::Waking);
    dispatcher.change(ms(100_000), ReplicaId(2), Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(101_000), ReplicaId(1), Change::Ready);
    assert_eq!(dispatcher.deadline(), ms(132_000), "30 s and the headroom");
}

#[test]
fn c6_q2_a_wake_is_expected_to_take_as_long_as_the_last_one_and_a_start_as_the_last_start() {
    let limits = Limits { queue_requests: 0, ..Limits::default() };
    let mut dispatcher = Dispatcher::new(limits, true, ms(0));
    let id = ReplicaId(1);
    dispatcher.change(ms(0), id, Change::Ordered(Capacity::ONE));
    dispatcher.change(ms(120_000), id, Change::Ready);
    parked(&mut dispatcher, ms(130_000), id);
    let told = |dispatcher: &mut Dispatcher, now: u64| {
        rejected(dispatcher.arrive(ms(now), &ask(now))).retry_after.as_secs()
    };
    assert_eq!(told(&mut dispatcher, 140_000), 120, "no wake was seen yet");
    dispatcher.change(ms(150_000), id, Change::Waking);
    dispatcher.change(ms(155_000), id, Change::Ready);
    assert_eq!(dispatcher.start_took(), Some(Duration::from_secs(120)), "no start");
    parked(&mut dispatcher, ms(160_000), id);
    assert_eq!(told(&mut dispatcher, 170_000), 5);
    dispatcher.change(ms(180_000), id, Change::Waking);
    assert_eq!(told(&mut dispatcher, 181_000), 4);
    dispatcher.change(ms(182_000), id, Change::Gone);
    assert_eq!(told(&mut dispatcher, 183_000), 120);
}
