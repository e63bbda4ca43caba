//! What is announced of replicas as their provider lists them.

use tidegate_shared::offer::{Offer, Price};

use super::overdue::QUEUE_LIMIT;
use super::words::QUOTED_LINES;
use super::*;
use crate::provider::NoStart;

const NOW: Instant = Instant::from_micros(1_000_000);

fn instance(id: u32, state: InstanceState) -> Instance {
    Instance { id: ReplicaId(id), capacity: Capacity::ONE, price: Price::FREE, state, costs: true }
}

fn any() -> Offer {
    Offer::new("any", Capacity::ONE, Price::FREE)
}

fn pending(id: u32) -> Instance {
    instance(id, InstanceState::Pending { why: "a queue".to_owned() })
}

fn up(id: u32) -> Instance {
    instance(id, InstanceState::Up { url: format!("http://replica-{id}") })
}

fn exited(id: u32, output: &[&str]) -> Instance {
    let output = output.iter().map(|&line| line.to_owned()).collect();
    instance(id, InstanceState::Exited { how: "exit code 1".to_owned(), output })
}

fn ready(id: u32) -> Observation {
    let bare = ReplicaFacts::new(ReplicaId(id), Phase::Ready, NOW, Capacity::ONE);
    let replica = ReplicaFacts { in_flight: 2, ..bare };
    Observation { replicas: vec![replica], ..Observation::default() }
}

fn ups(id: u32) -> News {
    (ReplicaId(id), Change::Up { url: format!("http://replica-{id}"), capacity: Capacity::ONE })
}

#[test]
fn c3_what_an_earlier_run_started_is_announced_once() {
    let mut book = Book::default();
    let ordered = (ReplicaId(2), Change::Ordered { capacity: Capacity::ONE });
    assert_eq!(book.take_in(&[up(1), pending(2), exited(3, &[])], NOW), [ups(1), ordered]);
    assert_eq!(book.take_in(&[up(1), up(2), exited(3, &[])], NOW), [ups(2)]);
    assert_eq!(book.take_in(&[up(1), up(2), exited(3, &[])], NOW), []);
    assert_eq!(book.stops_due(NOW), [ReplicaId(3)], "what has exited is cleared away");
    assert_eq!(book.stops_due(NOW), [], "one call at a time");
}

#[test]
fn c_058_who_is_being_ended_is_drained_for_good_and_not_stopped_and_no_failure() {
    let ending = |id| instance(id, InstanceState::Ending { why: "its node goes".to_owned() });
    let mut book = Book::default();
    book.take_in(&[up(1), up(2)], NOW);
    book.became_ready(&ready(1));
    assert_eq!(book.take_in(&[ending(1), up(2), ending(3)], NOW), []);
    let nobody = BTreeMap::new();
    let drains = |id| (ReplicaId(id), Change::Drain);
    assert_eq!(book.let_go(&nobody), [drains(1), drains(3)], "also one that was never seen otherwise");
    assert_eq!(book.let_go(&nobody), [], "once");
    assert_eq!(book.take_in(&[up(1), up(2), ending(3)], NOW), []);
    assert_eq!(book.let_go(&nobody), [], "it does not come back");
    let phases: Vec<_> = book.refine(ready(1)).replicas.iter().map(|one| one.phase).collect();
    assert_eq!(phases, [Phase::Gone, Phase::Starting, Phase::Gone]);
    assert_eq!(book.stops_due(NOW), []);
    let why = "its provider has ended it".to_owned();
    let gone = |id| (ReplicaId(id), Change::Gone { why: why.clone() });
    assert_eq!(book.take_in(&[up(2)], NOW), [gone(1), gone(3)]);
}

#[test]
fn c_058_one_that_was_being_ended_and_has_exited_is_cleared_away() {
    let mut book = Book::default();
    book.take_in(&[up(1)], NOW);
    book.became_ready(&ready(1));
    book.take_in(&[instance(1, InstanceState::Ending { why: "its node goes".to_owned() })], NOW);
    let news = book.take_in(&[exited(1, &[])], NOW);
    assert!(matches!(news.as_slice(), [(ReplicaId(1), Change::Gone { .. })]), "{news:?}");
    assert_eq!(book.stops_due(NOW), [ReplicaId(1)]);
}

#[test]
fn c2_who_waits_for_room_is_counted_until_it_has_room_or_has_to_go() {
    let queued = |id| instance(id, InstanceState::Queued { why: "no GPU".to_owned() });
    let (why, advice) = ("held".to_owned(), "let it go".to_owned());
    let held = instance(4, InstanceState::Held { why, advice });
    let mut book = Book::default();
    let ordered = |id| (ReplicaId(id), Change::Ordered { capacity: Capacity::ONE });
    let list = [pending(1), queued(2), queued(3)];
    assert_eq!(book.take_in(&list, NOW), [ordered(1), ordered(2), ordered(3)]);
    assert_eq!(book.waiting().len(), 2);
    assert_eq!(book.take_in(&[pending(1), pending(2), queued(3)], NOW), []);
    assert_eq!(book.waiting().len(), 1);
    book.end(ReplicaId(3), "not needed", false);
    assert_eq!(book.waiting().len(), 0);
    book.take_in(&[queued(1), held], NOW);
    assert_eq!((book.waiting().len(), book.held()), (1, 1), "that waiting does not help is another matter");
    book.end(ReplicaId(4), "not needed", false);
    assert_eq!(book.held(), 0);
}

#[test]
fn a_start_that_ends_before_it_served_failed_with_the_engines_last_words() {
    let mut book = Book::default();
    book.order(ReplicaId(1), &any(), Purpose::Order, NOW);
    assert_eq!(book.take_in(&[], NOW), [], "its start is still being called");
    assert_eq!(book.start_ended(ReplicaId(1), Ok(())), None);
    let news = book.take_in(&[exited(1, &["loading", "out of memory"])], NOW);
    let why = "the engine ended (exit code 1); its last lines:\nloading\nout of memory".to_owned();
    assert_eq!(news, [(ReplicaId(1), Change::StartFailed { why })]);
    assert_eq!(book.stops_due(NOW), [ReplicaId(1)]);
    assert_eq!(book.stop_ended(ReplicaId(1), true, NOW), None, "already told");
    assert!(book.is_empty());
}

#[test]
fn output_is_quoted_from_its_end_and_bounded() {
    let lines: Vec<_> = (0..100).map(|line| line.to_string()).collect();
    let quoted = quote("signal 9", &lines);
    assert_eq!(quoted.lines().count(), QUOTED_LINES + 1);
    assert!(quoted.ends_with("\n98\n99"));
    assert_eq!(quote("signal 9", &[]), "the engine ended (signal 9) and printed nothing");
}

#[test]
fn one_that_served_and_died_is_gone() {
    let mut book = Book::default();
    book.take_in(&[up(1)], NOW);
    let new = book.became_ready(&ready(1));
    assert_eq!(new.iter().map(|new| (new.id, new.how)).collect::<Vec<_>>(), [(ReplicaId(1), Came::Found)]);
    assert_eq!(book.became_ready(&ready(1)), []);
    let news = book.take_in(&[exited(1, &[])], NOW);
    assert!(matches!(news.as_slice(), [(ReplicaId(1), Change::Gone { .. })]), "{news:?}");
}

#[test]
fn one_that_vanishes_is_announced_and_forgotten() {
    let mut book = Book::default();
    book.take_in(&[up(1)], NOW);
    book.became_ready(&ready(1));
    book.order(ReplicaId(2), &any(), Purpose::Order, NOW);
    book.start_ended(ReplicaId(2), Ok(()));
    let news = book.take_in(&[], NOW);
    assert!(
        matches!(news.as_slice(), [(_, Change::Gone { .. }), (_, Change::StartFailed { .. })]),
        "{news:?}"
    );
    assert!(book.is_empty());
}

#[test]
fn c_005_what_an_earlier_run_told_to_stop_is_no_failed_start_and_no_loss() {
    let mut book = Book::after([2, 3, 4].map(ReplicaId));
    book.take_in(&[up(1), up(2), pending(3), exited(4, &[])], NOW);
    book.became_ready(&ready(1));
    assert_eq!(book.no_loss(), [2, 3, 4].map(ReplicaId), "the first was seen ready");
    let news = book.take_in(&[up(1), exited(2, &["bye"])], NOW);
    let gone = |news: &[News]| {
        news.iter().map(|(id, change)| (id.0, matches!(change, Change::Gone { .. }))).collect::<Vec<_>>()
    };
    assert_eq!(gone(&news), [(2, true), (3, true)], "{news:?}");
    book.take_in(&[up(1), up(5)], NOW);
    let late = book.end_overdue(NOW + QUEUE_LIMIT / 2, Duration::from_secs(60), |_| String::new());
    assert!(matches!(late.as_slice(), [(ReplicaId(5), Change::StartFailed { .. })]), "{late:?}");
}

#[test]
fn c1_what_an_earlier_run_started_and_ends_by_itself_before_it_is_ready_is_a_failed_start() {
    let mut book = Book::after([ReplicaId(9)]);
    book.take_in(&[up(1), pending(2)], NOW);
    let news = book.take_in(&[exited(1, &["out of memory"])], NOW);
    let why = |news: &News| match &news.1 {
        Change::StartFailed { why } => format!("{}: {why}", news.0),
        other => panic!("{other:?}"),
    };
    let told: Vec<_> = news.iter().map(why).collect();
    let crashed = "1: the engine ended (exit code 1); its last lines:\nout of memory";
    assert_eq!(told, [crashed, "2: it vanished from its provider"]);
}

#[test]
fn a_failed_start_call_leaves_nothing_behind() {
    let mut book = Book::default();
    book.order(ReplicaId(1), &any(), Purpose::Order, NOW);
    let news = book.start_ended(ReplicaId(1), Err(NoStart::Failed("no such file".to_owned())));
    assert_eq!(news, Some((ReplicaId(1), Change::StartFailed { why: "no such file".to_owned() })));
    assert!(book.is_empty());
}

#[test]
fn a_stop_waits_for_the_start_call_and_a_failed_stop_for_its_pause() {
    let mut book = Book::default();
    book.order(ReplicaId(1), &any(), Purpose::Order, NOW);
    assert_eq!(book.end(ReplicaId(1), "not needed", false), None);
    assert_eq!(book.end(ReplicaId(1), "not needed", false), None, "asked twice, ended once");
    assert_eq!(book.stops_due(NOW), []);
    book.start_ended(ReplicaId(1), Ok(()));
    assert_eq!(book.stops_due(NOW), [ReplicaId(1)]);
    let again = NOW + Duration::from_secs(5);
    assert_eq!(book.stop_ended(ReplicaId(1), false, again), None);
    assert_eq!(book.stops_due(NOW), []);
    assert_eq!(book.stops_due(again), [ReplicaId(1)]);
    let gone = Change::Gone { why: "not needed".to_owned() };
    assert_eq!(book.stop_ended(ReplicaId(1), true, again), Some((ReplicaId(1), gone)));
}

#[test]
fn the_planner_sees_exactly_the_book() {
    let mut book = Book::default();
    book.take_in(&[up(1), pending(2), up(4)], NOW);
    book.end(ReplicaId(4), "not needed", false);
    let mut seen = ready(1);
    seen.replicas.push(ReplicaFacts { id: ReplicaId(9), ..seen.replicas[0].clone() });
    let phases: Vec<_> = book.refine(seen).replicas.iter().map(|facts| (facts.id.0, facts.phase)).collect();
    assert_eq!(phases, [(1, Phase::Ready), (2, Phase::Provisioning), (4, Phase::Gone)]);
}

#[test]
fn c018_only_the_start_limit_ends_a_start() {
    let mut book = Book::default();
    let limit = Duration::from_secs(1800);
    book.take_in(&[up(1), up(2)], NOW);
    book.became_ready(&ready(1));
    let said = |_| explain(Some("/health answers 503".to_owned()), &["loading".to_owned()]);
    assert_eq!(book.end_overdue(NOW + Duration::from_secs(1799), limit, said), []);
    let why =
        "not ready within the start limit of 1800s: /health answers 503; its last lines:\nloading".to_owned();
    assert_eq!(book.end_overdue(NOW + limit, limit, said), [(ReplicaId(2), Change::StartFailed { why })]);
    assert_eq!(book.end_overdue(NOW + limit, limit, said), []);
}

#[test]
fn c018_c2_the_time_in_a_providers_line_is_no_part_of_a_start() {
    let mut book = Book::default();
    let limit = Duration::from_secs(1800);
    let waits = |why: &str| Instance { state: InstanceState::Queued { why: why.to_owned() }, ..pending(1) };
    let at = |seconds: u64| NOW + Duration::from_secs(seconds);
    book.order(ReplicaId(1), &any(), Purpose::Order, NOW);
    book.start_ended(ReplicaId(1), Ok(()));
    for seconds in [0, 1800, 90_000] {
        book.take_in(&[waits("no room")], at(seconds));
        assert_eq!(book.end_overdue(at(seconds), limit, |_| String::new()), [], "it is in line");
    }
    book.take_in(&[pending(1)], at(90_010));
    assert_eq!(book.end_overdue(at(90_000 + 1799), limit, |_| String::new()), []);
    let late = book.end_overdue(at(90_000 + 1800), limit, |_| String::new());
    assert!(matches!(late.as_slice(), [(ReplicaId(1), Change::StartFailed { .. })]), "{late:?}");
}

#[test]
fn c018_c2_who_never_ran_by_the_start_limit_is_told_with_what_held_it_and_no_output() {
    let mut book = Book::default();
    let limit = Duration::from_secs(6);
    let (why, advice) = ("Slurm does not start its job: JobHeldUser".to_owned(), String::new());
    let held = Instance { state: InstanceState::Held { why, advice }, ..pending(1) };
    book.order(ReplicaId(1), &any(), Purpose::Order, NOW);
    book.start_ended(ReplicaId(1), Ok(()));
    book.take_in(&[held], NOW);
    let said = |_| explain(None, &["a line".to_owned()]);
    let why =
        "it never ran within the start limit of 6s: Slurm does not start its job: JobHeldUser".to_owned();
    assert_eq!(book.end_overdue(NOW + limit, limit, said), [(ReplicaId(1), Change::StartFailed { why })]);
}

#[test]
fn c2_who_stands_in_a_providers_line_for_a_week_gives_up_and_has_not_failed() {
    let mut book = Book::default();
    let week = NOW + QUEUE_LIMIT;
    let waits = Instance { state: InstanceState::Queued { why: "no room".to_owned() }, ..pending(1) };
    book.order(ReplicaId(1), &any(), Purpose::Order, NOW);
    book.start_ended(ReplicaId(1), Ok(()));
    book.take_in(&[waits], week);
    assert_eq!(book.end_overdue(week, Duration::from_secs(1800), |_| String::new()), [], "no failed start");
    assert_eq!(book.stops_due(week), [ReplicaId(1)]);
    let gone = book.stop_ended(ReplicaId(1), true, week);
    assert!(matches!(&gone, Some((_, Change::Gone { why })) if why.contains("waited for room")), "{gone:?}");
}

#[test]
fn m2_what_a_provider_with_a_line_has_no_machine_for_costs_nothing() {
    let in_line = |book: &Book| book.refine(Observation::default()).replicas[0].in_line;
    let waits = Instance { costs: false, ..pending(1) };
    let mut book = Book::default();
    book.order(ReplicaId(1), &Offer { queues: true, ..any() }, Purpose::Order, NOW);
    assert!(in_line(&book), "nobody knows yet whether there is a machine");
    for (listed, costs) in [(&waits, false), (&pending(1), true), (&waits, false), (&up(1), true)] {
        book.take_in(std::slice::from_ref(listed), NOW);
        assert_eq!(in_line(&book), !costs, "{listed:?}");
    }
    let mut book = Book::default();
    book.order(ReplicaId(1), &any(), Purpose::Order, NOW);
    assert!(!in_line(&book), "what is ordered elsewhere costs from its order");
}

#[test]
fn c1_what_is_still_listed_after_its_stop_is_not_adopted_and_stopped_again_after_a_pause() {
    let (one, again) = (ReplicaId(1), NOW + Duration::from_secs(5));
    let mut book = Book::default();
    book.take_in(&[up(1)], NOW);
    book.end(one, "it was drained", false);
    for from in [NOW, again] {
        assert_eq!(book.stops_due(from), [one]);
        assert_eq!(
            book.stop_ended(one, true, from + Duration::from_secs(5)).is_some(),
            from == NOW,
            "told once"
        );
        for _ in 0..50 {
            assert_eq!(book.take_in(&[up(1)], from), [], "no news of it");
            assert_eq!(book.stops_due(from), [], "not at once");
        }
        assert_eq!(book.lingering(), [one]);
        let facts = book.refine(Observation::default()).replicas;
        assert_eq!(
            facts.iter().map(|one| one.phase).collect::<Vec<_>>(),
            [Phase::Gone],
            "it holds its place"
        );
    }
    book.take_in(&[], again);
    assert!(book.is_empty());
    assert_eq!(book.take_in(&[up(1)], again).len(), 1, "what is there later is another matter");
}

#[test]
fn m1_a_try_is_no_replica_before_it_is_taken_and_then_it_is_one_like_any_other() {
    let (id, ordered) = (ReplicaId(1), (ReplicaId(1), Change::Ordered { capacity: Capacity::ONE }));
    let tried = || {
        let mut book = Book::default();
        book.order(id, &any(), Purpose::Try, NOW);
        assert_eq!(book.take_in(&[pending(1)], NOW), [], "its start goes on");
        assert_eq!(book.refine(Observation::default()).replicas, []);
        assert_eq!((book.trying(), book.with_tries(&Observation::default()).len()), (1, 1));
        book
    };
    let counts = |book: &Book| (book.trying(), book.refine(Observation::default()).replicas.len());

    let mut book = tried();
    assert_eq!((book.start_ended(id, Ok(())), counts(&book)), (Some(ordered), (0, 1)));

    // Its provider tells of it before the call has ended.
    let mut book = tried();
    assert_eq!((book.take_in(&[up(1)], NOW), counts(&book)), (vec![ups(1)], (0, 1)));
    assert_eq!(book.start_ended(id, Ok(())), None);

    let mut book = tried();
    let full = Err(NoStart::NoRoom("none is free".to_owned()));
    assert_eq!((book.start_ended(id, full), counts(&book)), (None, (0, 0)));

    let mut book = tried();
    let failed = (id, Change::StartFailed { why: "no such file".to_owned() });
    let ended = book.start_ended(id, Err(NoStart::Failed("no such file".to_owned())));
    assert_eq!((ended, counts(&book)), (Some(failed), (0, 0)));

    // The fleet is stopped meanwhile.
    let mut book = tried();
    book.end_all("the gateway shuts down");
    assert_eq!((book.start_ended(id, Ok(())), book.stops_due(NOW)), (None, vec![id]));
}
