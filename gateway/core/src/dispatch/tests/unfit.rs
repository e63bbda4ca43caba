//! Replicas that are there and cannot serve: another model, no connection (Q2, R5, C-028, C-078).

use super::*;

const ONE: ReplicaId = ReplicaId(1);
const TWO: ReplicaId = ReplicaId(2);
const OTHER: Change = Change::Looked(Some(Unfit::OtherModel));
const AWAY: Change = Change::Looked(Some(Unfit::Unreachable));

fn at(second: u64) -> Instant {
    ms(second * 1000)
}

/// A fleet with a headroom of 2 s whose replicas are there and not ready.
fn starting(startable: bool, replicas: &[ReplicaId]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(Limits::default(), startable, at(0));
    replicas.iter().for_each(|id| dispatcher.change(at(0), *id, Change::Starting(Capacity::ONE)));
    dispatcher
}

fn told(dispatcher: &mut Dispatcher) -> Vec<Refusal> {
    let woken = dispatcher.take_woken();
    woken.into_iter().map(|(_, end)| end.expect_err("a refusal").reason).collect()
}

#[test]
fn c_028_q2_nobody_waits_for_engines_that_list_another_model() {
    let mut dispatcher = starting(true, &[ONE]);
    ticket(dispatcher.arrive(at(1), &ask(1)));
    assert_eq!(dispatcher.deadline(), at(601), "it may have to load for long");
    dispatcher.change(at(9), ONE, OTHER);
    ticket(dispatcher.arrive(at(10), &ask(2)));
    assert_eq!((told(&mut dispatcher), dispatcher.deadline()), (vec![], at(11)), "it may yet list its own");
    dispatcher.change(at(10), ONE, OTHER);
    dispatcher.on_deadline(at(11));
    assert_eq!(told(&mut dispatcher), [Refusal::OtherModel; 2]);
    assert_eq!(rejected(dispatcher.arrive(at(12), &ask(3))).reason, Refusal::OtherModel, "at once");
    assert_eq!(dispatcher.unfit(ONE), Some((Unfit::OtherModel, at(9))), "since it was first seen");
    // It lists the right one after all.
    dispatcher.change(at(20), ONE, Change::Ready);
    assert_eq!(forward(dispatcher.arrive(at(20), &ask(4))).replica, ONE);
    assert_eq!(dispatcher.unfit(ONE), None);
}

#[test]
fn c_028_replicas_that_serve_the_model_go_on_and_one_that_may_yet_is_waited_for() {
    let mut dispatcher = starting(true, &[ONE, TWO]);
    dispatcher.change(at(0), ONE, OTHER);
    ticket(dispatcher.arrive(at(5), &ask(1)));
    assert_eq!(dispatcher.deadline(), at(605), "the other one may serve it");
    dispatcher.change(at(6), TWO, Change::Ready);
    let lease = dispatcher.take_woken().pop().expect("woken").1.expect("a lease");
    assert_eq!(lease.replica, TWO);
    assert_eq!(forward(dispatcher.arrive(at(7), &ask(2))).replica, TWO);
    // It leaves: nobody else can serve, and a start would not help.
    dispatcher.change(at(8), TWO, Change::Draining);
    assert_eq!(rejected(dispatcher.arrive(at(9), &ask(3))).reason, Refusal::OtherModel);
    dispatcher.change(at(10), ReplicaId(3), Change::Ordered(Capacity::ONE));
    ticket(dispatcher.arrive(at(11), &ask(4)));
}

#[test]
fn r5_q2_a_static_fleet_that_cannot_be_reached_says_so_and_comes_back_by_itself() {
    let mut dispatcher = starting(false, &[ONE, TWO]);
    dispatcher.change(at(0), ONE, AWAY);
    dispatcher.change(at(1), TWO, AWAY);
    ticket(dispatcher.arrive(at(2), &ask(1)));
    assert_eq!(dispatcher.deadline(), at(3), "the headroom is for the fleet, once, and not for each");
    dispatcher.on_deadline(at(3));
    assert_eq!(told(&mut dispatcher), [Refusal::Unreachable]);
    let rejection = rejected(dispatcher.arrive(at(60), &ask(2)));
    assert_eq!((rejection.reason, rejection.retry_after), (Refusal::Unreachable, Duration::from_secs(2)));
    // It answers, and is not ready yet: that is worth the headroom, and no more.
    dispatcher.change(at(61), ONE, Change::Looked(None));
    ticket(dispatcher.arrive(at(61), &ask(3)));
    dispatcher.on_deadline(at(63));
    assert_eq!(told(&mut dispatcher), [Refusal::NoReplica]);
    dispatcher.change(at(64), ONE, OTHER);
    assert_eq!(rejected(dispatcher.arrive(at(70), &ask(4))).reason, Refusal::OtherModel, "the graver one");
    dispatcher.change(at(71), TWO, Change::Ready);
    assert_eq!(forward(dispatcher.arrive(at(71), &ask(5))).replica, TWO);
}

#[test]
fn q3_what_does_not_listen_yet_is_what_a_start_looks_like() {
    let mut dispatcher = starting(true, &[ONE]);
    dispatcher.change(at(0), ONE, AWAY);
    ticket(dispatcher.arrive(at(30), &ask(1)));
    assert_eq!((dispatcher.unfit(ONE), dispatcher.deadline()), (None, at(630)));
}

#[test]
fn what_a_probe_saw_before_a_replica_was_ready_says_nothing_about_it_later() {
    let mut dispatcher = starting(true, &[ONE]);
    dispatcher.change(at(0), ONE, Change::Ready);
    dispatcher.change(at(0), ONE, OTHER);
    assert_eq!(dispatcher.unfit(ONE), None);
}
