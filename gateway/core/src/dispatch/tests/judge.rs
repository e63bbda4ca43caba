//! Replicas that fail, are busy, are slow or are new: who is taken out, who never, and who gets how much (R5, C-006,
//! C-032, C-036, C-040, C-078). Who joins a fleet at work is in `joining`.

use tidegate_shared::explained::Standing;

use super::*;
use crate::health::PAUSE;

const BAD: Sign = Sign::Fault(Fault::Status);

fn end(dispatcher: &mut Dispatcher, now: Instant, mut lease: Lease, sign: Sign) {
    lease.sign = sign;
    dispatcher.end(now, lease, &Spent::default());
}

/// A whole fleet that answers every request at once as `sign` says of its replica, over so many new requests from one a
/// millisecond; gives how many each replica got.
fn run(
    dispatcher: &mut Dispatcher,
    from: Instant,
    count: u64,
    sign: impl Fn(u32) -> Sign,
) -> BTreeMap<u32, u32> {
    let mut got = BTreeMap::new();
    for n in 0..count {
        let now = from + Duration::from_millis(n);
        dispatcher.on_deadline(now);
        let lease = forward(dispatcher.arrive(now, &ask(from.as_micros() + n)));
        *got.entry(lease.replica.0).or_default() += 1;
        let sign = sign(lease.replica.0);
        end(dispatcher, now, lease, sign);
    }
    got
}

fn out(dispatcher: &Dispatcher) -> Vec<u32> {
    (1..10).filter(|id| dispatcher.trust(ReplicaId(*id)) != Trust::Whole).collect()
}

#[test]
fn r5_a_replica_that_fails_is_taken_out_and_tried_by_one_request() {
    let mut dispatcher = fleet(Limits::default(), &[1; 4]);
    let second_fails = |id| if id == 2 { BAD } else { Sign::Well };
    assert_eq!(run(&mut dispatcher, ms(0), 400, second_fails)[&2], 5);
    let news = dispatcher.take_ejections();
    assert_eq!((news.len(), news[0].replica, news[0].pause), (1, ReplicaId(2), PAUSE.0));
    assert_eq!(news[0].why, Cause { fault: Fault::Status, faults: 5, of: 5 });
    let back = dispatcher.deadline();
    assert!(matches!(dispatcher.trust(ReplicaId(2)), Trust::Out { until, .. } if until == back));
    // A flood at the end of the pause: one of it is tried there, however long that takes.
    dispatcher.on_deadline(back);
    let flood: Vec<_> = (0..100).map(|n| forward(dispatcher.arrive(back, &ask(1_000_000 + n)))).collect();
    let (trial, others): (Vec<_>, Vec<_>) =
        flood.into_iter().partition(|lease| lease.replica == ReplicaId(2));
    assert_eq!((trial.len(), out(&dispatcher)), (1, vec![2]));
    others.into_iter().for_each(|lease| end(&mut dispatcher, back, lease, Sign::Well));
    // Its answer begins well, which is enough: the next ones follow.
    let mut trial = trial;
    trial.iter_mut().for_each(|lease| dispatcher.proved(back, lease));
    assert_eq!(out(&dispatcher), []);
    trial.into_iter().for_each(|lease| end(&mut dispatcher, back, lease, Sign::Well));
    let share = run(&mut dispatcher, back, 400, |_| Sign::Well)[&2];
    assert!((99..=101).contains(&share), "a quarter: {share}");
    assert_eq!(dispatcher.ejections(), &BTreeMap::from([(Fault::Status, 1)]));
}

#[test]
fn r5_a_trial_that_fails_doubles_the_pause() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let second_fails = |id| if id == 2 { BAD } else { Sign::Well };
    let mut now = ms(0);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        run(&mut dispatcher, now, 30, second_fails);
        pauses.extend(dispatcher.take_ejections().iter().map(|news| news.pause.as_secs()));
        now = dispatcher.deadline();
    }
    assert_eq!(pauses, [5, 10, 20, 40]);
}

#[test]
fn r5_one_that_can_be_connected_to_at_times_is_taken_out_too() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    for n in 0..20 {
        let now = ms(n * 10);
        let lease = forward(dispatcher.arrive(now, &ask(n)));
        if lease.replica == ReplicaId(2) {
            // It is suspected, and its probe finds nothing wrong.
            dispatcher.change(now, ReplicaId(2), Change::Suspect);
            end(&mut dispatcher, now, lease, Sign::Fault(Fault::Connect));
            dispatcher.change(now, ReplicaId(2), Change::Ready);
        } else {
            end(&mut dispatcher, now, lease, Sign::Well);
        }
    }
    assert_eq!(out(&dispatcher), [2]);
}

#[test]
fn c_058_c_006_who_says_that_it_is_ending_gets_nothing_new_and_half_stay() {
    let mut dispatcher = fleet(Limits::default(), &[1; 4]);
    let running = forward(dispatcher.arrive(ms(0), &ask(0)));
    let leaves = running.replica;
    assert!(dispatcher.not_now(ms(1), leaves));
    let got = run(&mut dispatcher, ms(2), 200, |_| Sign::Well);
    assert!(got.len() == 3 && !got.contains_key(&leaves.0), "{got:?}");
    end(&mut dispatcher, ms(300), running, Sign::Well);
    let others: Vec<_> = (1..=4).map(ReplicaId).filter(|id| *id != leaves).collect();
    assert!(dispatcher.not_now(ms(301), others[0]));
    assert!(!dispatcher.not_now(ms(302), others[1]), "half of them stay, whatever they say");
    dispatcher.change(ms(303), others[1], Change::Gone);
    dispatcher.change(ms(303), others[2], Change::Gone);
    assert!(!dispatcher.not_now(ms(304), leaves), "and comes back when too few are left");
    assert_eq!(forward(dispatcher.arrive(ms(305), &ask(1))).replica, leaves);
}

#[test]
fn c_006_at_most_half_are_out_and_the_last_never_is() {
    for (size, most) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (8, 4)] {
        let mut dispatcher = fleet(Limits::default(), &vec![1; size]);
        run(&mut dispatcher, ms(0), 200, |_| BAD);
        assert_eq!(out(&dispatcher).len(), most, "of {size}");
    }
    // The others die one by one: those that are out are pardoned before nobody is left.
    let mut dispatcher = fleet(Limits::default(), &[1; 4]);
    run(&mut dispatcher, ms(0), 200, |_| BAD);
    let (bad, good): (Vec<u32>, Vec<u32>) = (1..5).partition(|id| out(&dispatcher).contains(id));
    for (id, left) in good.into_iter().zip([1, 1]) {
        dispatcher.change(ms(300), ReplicaId(id), Change::Refused);
        assert_eq!(out(&dispatcher).len(), left);
    }
    dispatcher.change(ms(300), ReplicaId(bad[0]), Change::Refused);
    assert_eq!(out(&dispatcher), [], "the last one serves, whatever it did");
    assert!(matches!(dispatcher.arrive(ms(301), &ask(1)), Verdict::Forward(_)));
}

#[test]
fn c_006_slowness_alone_fails_at_most_half_and_never_the_last() {
    for (size, most) in [(1, 0), (2, 1), (3, 1), (4, 2), (7, 3)] {
        let mut dispatcher = fleet(Limits::default(), &vec![1; size]);
        let ids = (1..).map(ReplicaId).take(size);
        assert_eq!(ids.clone().filter(|id| dispatcher.too_slow(ms(1), *id)).count(), most, "of {size}");
        assert_eq!(ids.filter(|id| dispatcher.too_slow(ms(2), *id)).count(), most, "asked again, no more");
    }
    let mut dispatcher = fleet(Limits::default(), &[1; 4]);
    run(&mut dispatcher, ms(0), 200, |_| BAD);
    let good: Vec<_> = (1..5).filter(|id| !out(&dispatcher).contains(id)).collect();
    assert!(!dispatcher.too_slow(ms(300), ReplicaId(good[0])), "two are out already");
}

#[test]
fn r5_a_conversation_waits_a_while_for_its_home_and_then_moves() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    let first = forward(dispatcher.arrive(ms(0), &ask(1)));
    let home = first.replica;
    end(&mut dispatcher, ms(0), first, Sign::Well);
    let fails = |id| if id == home.0 { BAD } else { Sign::Well };
    let mut now = ms(1);
    let mut routes = Vec::new();
    for _ in 0..4 {
        run(&mut dispatcher, now, 30, fails);
        let turn = forward(dispatcher.arrive(now + Duration::from_millis(40), &ask(1)));
        routes.push(turn.route);
        end(&mut dispatcher, now + Duration::from_millis(50), turn, Sign::Well);
        now = dispatcher.deadline();
    }
    assert_eq!(routes, [Route::Detour, Route::Detour, Route::Detour, Route::Rehomed], "5, 10, 20, 40 s");
}

#[test]
fn c_032_a_busy_replica_is_passed_over_while_others_have_room_and_only_then() {
    let mut dispatcher = fleet(Limits { concurrency: 2, ..Limits::default() }, &[1, 1]);
    let busy = Sign::Busy(Some(Duration::from_secs(3)));
    let lease = forward(dispatcher.arrive(ms(0), &ask(0)));
    let full = lease.replica;
    end(&mut dispatcher, ms(0), lease, busy);
    assert_eq!(out(&dispatcher), [], "busy is no fault");
    let both: Vec<_> = (1..3).map(|n| forward(dispatcher.arrive(ms(1), &ask(n)))).collect();
    assert!(both.iter().all(|lease| lease.replica != full));
    // The other one has no place left: nobody waits beside a place that may be free (Q4).
    let last = forward(dispatcher.arrive(ms(2), &ask(3)));
    assert_eq!(last.replica, full);
    end(&mut dispatcher, ms(3), last, busy);
    both.into_iter().for_each(|lease| end(&mut dispatcher, ms(4), lease, Sign::Well));
    let home = forward(dispatcher.arrive(ms(5), &ask(3)));
    assert_eq!((home.route, home.replica == full), (Route::Detour, false), "home is full for a moment");
    end(&mut dispatcher, ms(6), home, Sign::Well);
    let home = forward(dispatcher.arrive(ms(3003), &ask(3)));
    assert_eq!((home.route, home.replica), (Route::Home, full));
    end(&mut dispatcher, ms(3004), home, Sign::Well);
}

#[test]
fn c_032_what_a_busy_replica_refuses_goes_elsewhere_where_there_is_room_within_the_budget() {
    let mut dispatcher = fleet(Limits { concurrency: 200, ..Limits::default() }, &[1, 1, 1]);
    let facts = ask(1);
    let second = |dispatcher: &mut Dispatcher, tried: &[u32]| {
        let tried: Vec<_> = tried.iter().map(|id| ReplicaId(*id)).collect();
        dispatcher.elsewhere(ms(1), &facts, &tried)
    };
    assert_eq!(second(&mut dispatcher, &[1, 2, 3]), Elsewhere::Nobody, "all of them were tried");
    let Elsewhere::Forward(lease) = second(&mut dispatcher, &[1, 2]) else { panic!("there is room") };
    assert_eq!(lease.replica, ReplicaId(3));
    end(&mut dispatcher, ms(1), lease, Sign::Busy(None));
    assert_eq!(second(&mut dispatcher, &[1, 2]), Elsewhere::Nobody, "that one is full too");
    for _ in 0..99 {
        let Elsewhere::Forward(lease) = second(&mut dispatcher, &[1, 3]) else { panic!("there is room") };
        end(&mut dispatcher, ms(1), lease, Sign::Well);
    }
    assert_eq!(second(&mut dispatcher, &[1, 3]), Elsewhere::Spent, "a hundred in ten seconds");
    assert_eq!((dispatcher.retries_refused(), dispatcher.may_retry(ms(1))), (1, false));
}

#[test]
fn c_040_a_new_replica_gets_its_share_and_no_flood() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1]);
    for n in 0..1000 {
        let lease = forward(dispatcher.arrive(ms(n), &ask(n)));
        dispatcher.end(ms(n), lease, &Spent::default());
    }
    dispatcher.change(ms(1000), ReplicaId(3), Change::Starting(Capacity::ONE));
    dispatcher.change(ms(1000), ReplicaId(3), Change::Ready);
    let mut third = 0;
    for n in 1000..1030 {
        let lease = forward(dispatcher.arrive(ms(n), &ask(n)));
        third += u32::from(lease.replica == ReplicaId(3));
        dispatcher.end(ms(n), lease, &Spent::default());
    }
    assert_eq!(third, 10);
}

#[test]
fn c_040_nobody_waits_beside_a_newcomer_that_has_room() {
    let mut dispatcher = fleet(Limits { concurrency: 10, ..Limits::default() }, &[1]);
    let busy: Vec<_> = (0..10).map(|n| forward(dispatcher.arrive(ms(0), &ask(n)))).collect();
    let line: Vec<_> = (10..25).map(|n| ticket(dispatcher.arrive(ms(0), &ask(n)))).collect();
    dispatcher.change(ms(1), ReplicaId(2), Change::Starting(Capacity::ONE));
    dispatcher.change(ms(2), ReplicaId(2), Change::Ready);
    let woken: Vec<_> = dispatcher.take_woken().into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(woken, line[..10], "as many as it has places, at once");
    assert_eq!((busy.len(), dispatcher.in_flight(ReplicaId(2))), (10, 10));
}

#[test]
fn e3_who_is_out_on_trial_busy_or_warming_up_is_told() {
    let mut dispatcher = fleet(Limits::default(), &[1, 1, 1]);
    let standings = |dispatcher: &Dispatcher, now| {
        let told = dispatcher.explain(now, &ask(1)).candidates;
        told.iter().map(|candidate| candidate.standing).collect::<Vec<_>>()
    };
    run(&mut dispatcher, ms(0), 50, |id| if id == 2 { BAD } else { Sign::Well });
    assert_eq!(standings(&dispatcher, ms(50)), [Standing::Free, Standing::Ejected, Standing::Free]);
    let held: Vec<_> = (100..120).map(|n| forward(dispatcher.arrive(ms(50), &ask(n)))).collect();
    let back = dispatcher.deadline();
    dispatcher.on_deadline(back);
    let mut leases = vec![forward(dispatcher.arrive(back, &ask(200)))];
    assert_eq!(standings(&dispatcher, back), [Standing::Free, Standing::OnTrial, Standing::Free]);
    leases.iter_mut().for_each(|lease| dispatcher.proved(back, lease));
    leases.extend((201..203).map(|n| forward(dispatcher.arrive(back, &ask(n)))));
    assert!(leases.iter().all(|lease| lease.replica == ReplicaId(2)), "the emptiest");
    assert_eq!(standings(&dispatcher, back)[1], Standing::WarmingUp, "two of two are more than 2/3");
    for lease in held.into_iter().filter(|lease| lease.replica == ReplicaId(1)) {
        end(&mut dispatcher, back, lease, Sign::Busy(None));
    }
    assert_eq!(standings(&dispatcher, back)[0], Standing::Busy);
}
