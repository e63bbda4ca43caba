//! What a line costs that nobody may leave (Q4): the fleet is looked at so many times, however long the line is.

use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_shared::replica::EngineReport;

use super::*;
use crate::route::Field;

/// Requests that wait.
const WAITING: u64 = 1000;
/// Questions to the policy that one event may cost, where nobody can go.
const LOOKS: usize = 64;
const REPLICAS: u32 = 8;

/// The default policy, and how often it was asked.
#[derive(Clone, Debug, Default)]
struct Counted(Arc<AtomicUsize>);

impl Policy for Counted {
    fn name(&self) -> PolicyName {
        PolicyName::LeastLoad
    }

    fn twin(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn choose(&mut self, field: &Field<'_>) -> Option<ReplicaId> {
        self.0.fetch_add(1, Ordering::Relaxed);
        LeastLoad.choose(field)
    }
}

fn of_size(n: u64, tokens: u64) -> Arc<RequestFacts> {
    Arc::new(RequestFacts { text_bytes: (tokens - 100) * 4, ..RequestFacts::clone(&ask(n)) })
}

fn tell(dispatcher: &mut Dispatcher, at: Instant, id: u32, used: u64) {
    let (kv_used, kv_capacity) = (Some(Tokens(used)), Some(Tokens(10_000)));
    dispatcher.ask(at, ReplicaId(id));
    dispatcher.report(at, ReplicaId(id), EngineReport { kv_used, kv_capacity, ..EngineReport::default() });
}

/// Small requests, two on each replica, of which each then says that it is at 85 % of what it holds.
fn nearly_full() -> (Dispatcher, Vec<Lease>, Counted) {
    let limits = Limits { concurrency: 100, queue_requests: 2000, ..Limits::default() };
    let mut dispatcher = fleet(limits, &[1; REPLICAS as usize]);
    let running: Vec<_> =
        (0..u64::from(2 * REPLICAS)).map(|n| forward(dispatcher.arrive(ms(1), &of_size(n, 200)))).collect();
    (1..=REPLICAS).for_each(|id| tell(&mut dispatcher, ms(2), id, 8500));
    let counted = Counted::default();
    dispatcher.policy = Box::new(counted.clone());
    (dispatcher, running, counted)
}

/// Each kind of event, none of which lets anybody go.
fn in_vain(
    dispatcher: &mut Dispatcher,
    running: &mut Vec<Lease>,
    counted: &Counted,
    arrive: impl Fn(&mut Dispatcher) -> Verdict,
) {
    let id = running.last().expect("one runs").replica;
    let mut newcomer = None;
    let cost = |what: &str, dispatcher: &mut Dispatcher, event: &mut dyn FnMut(&mut Dispatcher)| {
        counted.0.store(0, Ordering::Relaxed);
        event(dispatcher);
        let looks = counted.0.load(Ordering::Relaxed);
        assert!(looks <= LOOKS, "{what}: {looks} looks");
        assert!(dispatcher.take_woken().is_empty(), "{what}: somebody goes");
    };
    cost("an arrival", dispatcher, &mut |it| newcomer = Some(ticket(arrive(it))));
    cost("an end", dispatcher, &mut |it| it.end(ms(4), running.pop().expect("one runs"), &Spent::default()));
    cost("a report", dispatcher, &mut |it| tell(it, ms(5), id.0, 8500));
    cost("one who leaves", dispatcher, &mut |it| it.abandon(ms(6), newcomer.expect("he waits")));
    assert_eq!(u64::from(dispatcher.observe(ms(6)).queued), WAITING);
    fair::fair(dispatcher, ms(6));
}

#[test]
fn q4_a_long_line_that_nobody_may_leave_costs_no_look_for_each_that_waits() {
    let (mut dispatcher, mut running, counted) = nearly_full();
    // They would fit into all that an engine holds, and not within the load limit.
    for n in 100..100 + WAITING {
        ticket(dispatcher.arrive(ms(3), &of_size(n, 1000)));
    }
    in_vain(&mut dispatcher, &mut running, &counted, |it| it.arrive(ms(3), &of_size(99, 1000)));
    // Who does fit is found in it.
    tell(&mut dispatcher, ms(7), 1, 7000);
    assert_eq!(dispatcher.take_woken().len(), 2, "8,000 and 9,000 of 9,000");
}

#[test]
fn q4_r5_an_idle_replica_that_failed_all_who_wait_costs_no_look_for_each() {
    let (mut dispatcher, running, counted) = nearly_full();
    let idle = ReplicaId(1);
    let (ends, mut running): (Vec<_>, Vec<_>) = running.into_iter().partition(|lease| lease.replica == idle);
    ends.into_iter().for_each(|lease| dispatcher.end(ms(2), lease, &Spent::default()));
    for n in 100..100 + WAITING {
        ticket(dispatcher.retry(ms(3), &of_size(n, 1000), &[idle], ms(3)));
    }
    let again = |it: &mut Dispatcher| it.retry(ms(3), &of_size(99, 1000), &[idle], ms(3));
    in_vain(&mut dispatcher, &mut running, &counted, again);
}

#[test]
fn q4_r4_who_is_at_home_where_only_his_own_have_room_leaves_a_line_of_others() {
    let (mut dispatcher, running, counted) = nearly_full();
    let at_home = of_size(0, 1000);
    let home = running.iter().find(|lease| lease.facts.fingerprint == 0).expect("it runs").replica;
    tell(&mut dispatcher, ms(3), home.0, 9500);
    for n in 100..100 + WAITING {
        ticket(dispatcher.arrive(ms(3), &of_size(n, 1000)));
    }
    // The first of them claim those of which less has to end.
    let waits = ticket(dispatcher.arrive(ms(3), &at_home));
    counted.0.store(0, Ordering::Relaxed);
    tell(&mut dispatcher, ms(4), home.0, 9000);
    let (id, lease) = dispatcher.take_woken().pop().expect("he goes");
    assert_eq!((id, lease.expect("a lease").replica), (waits, home));
    assert!(counted.0.load(Ordering::Relaxed) <= LOOKS);
}
