//! What holds of the line whatever happens (Q1, Q4), said without the code that makes it so; and the cases by hand.

use std::collections::BTreeSet;

use tidegate_shared::replica::EngineReport;

use super::super::place::Ask;
use super::super::replica::Replica;
use super::*;

/// What a waiter asks for, with no regard to who stands before him.
fn alone<'a>(dispatcher: &'a Dispatcher, now: Instant, waiter: &'a Waiter) -> Ask<'a> {
    let first = dispatcher.queue.place(Priority::High, Instant::ZERO);
    Ask { claims: &[], ..dispatcher.ask_for(now, &waiter.facts, &waiter.tried, first) }
}

fn takes(replica: &Replica, ask: &Ask<'_>) -> bool {
    replica.is_open() && replica.health.admits() && ask.may_try(replica.id)
}

fn waiters(dispatcher: &Dispatcher) -> Vec<(TicketId, Waiter)> {
    let next = |last: Option<TicketId>| dispatcher.queue.next(last).map(|(id, waiter)| (id, waiter.clone()));
    std::iter::successors(next(None), |(last, _)| next(Some(*last))).collect()
}

/// Whether somebody before `ticket` waits for the room there.
fn is_kept(dispatcher: &Dispatcher, ticket: TicketId, replica: ReplicaId) -> bool {
    dispatcher.claims.before(ticket).iter().any(|claim| claim.replica == replica)
}

/// Nobody waits while he fits where nobody before him wants the room; and what is wanted is wanted for a reason.
pub(super) fn fair(dispatcher: &Dispatcher, now: Instant) {
    let line = waiters(dispatcher);
    for (ticket, waiter) in &line {
        let ask = alone(dispatcher, now, waiter);
        let home = dispatcher.origin(now, &waiter.facts).own().map(|found| found.home);
        for replica in dispatcher.replicas.iter() {
            if replica.own_only && home != Some(replica.id) {
                continue;
            }
            let fits = ask.may_try(replica.id) && dispatcher.bounds().fits(replica, &ask);
            assert!(
                !fits || is_kept(dispatcher, *ticket, replica.id),
                "Q4: {ticket:?} fits {:?}",
                replica.id
            );
        }
        let policy = &mut *dispatcher.policy.twin();
        let goes = dispatcher.place(now, &waiter.facts, &waiter.tried, *ticket, policy);
        assert!(goes.is_none(), "Q4: {ticket:?} may go to {goes:?}");
    }
    let claims = dispatcher.claims.before(dispatcher.queue.place(Priority::Low, Instant::NEVER));
    let open = dispatcher.replicas.ready() as usize;
    assert!(claims.len() <= (open / 2).max(1), "Q4: {claims:?} of {open} replicas");
    assert!(claims.is_sorted_by(|a, b| a.ticket < b.ticket), "{claims:?}");
    let replicas: BTreeSet<_> = claims.iter().map(|claim| claim.replica).collect();
    assert_eq!(replicas.len(), claims.len(), "one each: {claims:?}");
    assert!(claims.iter().all(|claim| dispatcher.queue.contains(claim.ticket)), "of nobody: {claims:?}");
}

/// The first in line, and the replicas on which nobody passed him since he was.
#[derive(Debug, Default)]
pub(super) struct First {
    ticket: Option<TicketId>,
    open: BTreeSet<ReplicaId>,
    left_alone: BTreeSet<ReplicaId>,
}

impl First {
    /// These were sent, in this order, and nothing else happened since.
    pub(super) fn went(&mut self, dispatcher: &Dispatcher, now: Instant, sent: &[(TicketId, &Lease)]) {
        let line = waiters(dispatcher);
        for (at, (stood, lease)) in sent.iter().enumerate() {
            if self.ticket.is_some_and(|first| first < *stood && dispatcher.queue.contains(first)) {
                self.left_alone.remove(&lease.replica);
            }
            let Some(replica) = dispatcher.replicas.get(lease.replica) else { continue };
            let later = sent[at..].iter().filter(|(_, other)| other.replica == lease.replica);
            let (count, tokens) =
                later.fold((0, 0), |(count, sum), (_, other)| (count + 1, sum + other.charge.tokens().0));
            let load = replica.ledger.load(now).0.saturating_sub(tokens);
            for (ticket, waiter) in line.iter().take_while(|(ticket, _)| ticket < stood) {
                let ask = alone(dispatcher, now, waiter);
                let holds = replica.ledger.capacity().is_none_or(|capacity| {
                    replica.ledger.in_flight() == count || (load + ask.cost.0) * 10 <= capacity.0 * 9
                });
                let could = takes(replica, &ask) && holds && !is_kept(dispatcher, *ticket, lease.replica);
                assert!(!could, "Q1: {stood:?} went to {:?} before {ticket:?}", lease.replica);
            }
        }
    }

    /// All has been done for now: whoever is first and waits has a replica that is left alone, as long as the fleet is
    /// the same.
    pub(super) fn look(&mut self, dispatcher: &Dispatcher) {
        let Some((ticket, waiter)) = dispatcher.queue.next(None) else { return *self = Self::default() };
        let ask = alone(dispatcher, Instant::ZERO, waiter);
        let takes = dispatcher.replicas.iter().filter(|replica| takes(replica, &ask));
        let open: BTreeSet<_> = takes.map(|replica| replica.id).collect();
        if self.ticket != Some(ticket) || self.open != open {
            *self = Self { ticket: Some(ticket), left_alone: open.clone(), open };
        }
        assert!(self.open.is_empty() || !self.left_alone.is_empty(), "Q1: {ticket:?} is passed everywhere");
    }
}

/// A fleet of engines that hold so many tokens each.
fn holding(capacity: u64, replicas: usize) -> Dispatcher {
    let mut dispatcher = fleet(Limits { concurrency: 100, ..Limits::default() }, &vec![1; replicas]);
    for id in (1..).map(ReplicaId).take(replicas) {
        dispatcher.ask(ms(0), id);
        let kv_capacity = Some(Tokens(capacity));
        dispatcher.report(ms(0), id, EngineReport { kv_capacity, ..EngineReport::default() });
    }
    dispatcher
}

/// A request that takes so many tokens, 100 of them for its answer.
fn of_size(n: u64, tokens: u64) -> Arc<RequestFacts> {
    Arc::new(RequestFacts { text_bytes: (tokens - 100) * 4, ..RequestFacts::clone(&ask(n)) })
}

#[test]
fn q1_a_large_one_is_served_when_what_ran_before_it_has_ended_however_many_small_ones_come() {
    for replicas in [1, 2, 4] {
        let mut dispatcher = holding(10_000, replicas);
        let mut running: Vec<_> =
            (0..8 * replicas as u64).map(|n| forward(dispatcher.arrive(ms(1), &of_size(n, 1000)))).collect();
        let large = ticket(dispatcher.arrive(ms(2), &of_size(100, 5000)));
        let fair = |dispatcher: &Dispatcher| fair(dispatcher, ms(2));
        let mut waiting = Vec::new();
        let mut served = None;
        for ended in 0..running.len() {
            // Small ones keep coming, more than end.
            for n in 0..2 {
                match dispatcher.arrive(ms(2), &of_size(1000 + ended as u64 * 2 + n, 500)) {
                    Verdict::Forward(lease) => running.push(lease),
                    Verdict::Wait(ticket) => waiting.push(ticket),
                    Verdict::Reject(no) => panic!("{no:?}"),
                }
            }
            fair(&dispatcher);
            let lease = running.remove(0);
            dispatcher.end(ms(2), lease, &Spent::default());
            let woken = dispatcher.take_woken();
            served = served.or(woken.iter().any(|(ticket, _)| *ticket == large).then_some(ended + 1));
            running.extend(woken.into_iter().filter_map(|(_, end)| end.ok()));
        }
        let served = served.expect("it is served");
        // 8,000 of 9,000 ran: 4,000 must end, and others end by turns.
        assert!(served <= 4 * replicas, "after {served} ends on {replicas}");
        running.into_iter().for_each(|lease| dispatcher.end(ms(3), lease, &Spent::default()));
        for ticket in waiting {
            dispatcher.abandon(ms(3), ticket);
        }
        let left = dispatcher.take_woken().into_iter().filter_map(|(_, end)| end.ok());
        left.for_each(|lease| dispatcher.end(ms(3), lease, &Spent::default()));
        assert_eq!((dispatcher.observe(ms(3)).in_flight, dispatcher.observe(ms(3)).queued), (0, 0));
    }
}

#[test]
fn q4_small_ones_have_the_rest_of_the_fleet_and_one_that_left_keeps_nothing() {
    let mut dispatcher = holding(10_000, 2);
    let first = [0, 1].map(|n| forward(dispatcher.arrive(ms(1), &of_size(n, 7000))));
    let large = ticket(dispatcher.arrive(ms(2), &of_size(2, 6000)));
    let other = ticket(dispatcher.arrive(ms(2), &of_size(3, 6000)));
    let small = forward(dispatcher.arrive(ms(3), &of_size(4, 1000)));
    let kept = ticket(dispatcher.arrive(ms(3), &of_size(5, 1500)));
    let explained = dispatcher.explain(ms(3), &of_size(6, 1000));
    let standing =
        |id: ReplicaId| explained.candidates.iter().find(|seen| seen.id == id).map(|seen| seen.standing);
    let waits_at = first.iter().find(|lease| lease.replica != small.replica).expect("the other").replica;
    assert_eq!(standing(waits_at), Some(tidegate_shared::explained::Standing::Claimed));
    assert!(dispatcher.take_woken().is_empty());
    // More urgent ones heed no claim.
    let urgent =
        Arc::new(RequestFacts { priority: Priority::High, ..RequestFacts::clone(&of_size(7, 1900)) });
    let urgent = forward(dispatcher.arrive(ms(3), &urgent));
    assert_eq!(urgent.replica, waits_at);
    dispatcher.end(ms(3), urgent, &Spent::default());
    dispatcher.abandon(ms(4), large);
    assert!(dispatcher.take_woken().is_empty(), "the next large one claims it");
    dispatcher.abandon(ms(4), other);
    let woken = dispatcher.take_woken();
    assert_eq!(woken.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [kept]);
    let woken = woken.into_iter().filter_map(|(_, end)| end.ok());
    woken.chain(first).chain([small]).for_each(|lease| dispatcher.end(ms(5), lease, &Spent::default()));
}

#[test]
fn g2_q4_when_a_report_says_no_more_whoever_fits_then_goes() {
    let mut dispatcher = fleet(Limits { headroom: Duration::from_secs(60), ..Limits::default() }, &[1]);
    let running = forward(dispatcher.arrive(ms(0), &of_size(0, 1000)));
    dispatcher.ask(ms(10), ReplicaId(1));
    let (kv_used, kv_capacity) = (Some(Tokens(9000)), Some(Tokens(10_000)));
    dispatcher.report(ms(11), ReplicaId(1), EngineReport { kv_used, kv_capacity, ..EngineReport::default() });
    let waits = ticket(dispatcher.arrive(ms(12), &of_size(1, 500)));
    let due = dispatcher.deadline();
    assert_eq!(due, ms(5010) + Duration::from_micros(1));
    dispatcher.on_deadline(due);
    let (id, lease) = dispatcher.take_woken().pop().expect("it goes");
    assert_eq!(id, waits);
    [lease.expect("a lease"), running]
        .into_iter()
        .for_each(|lease| dispatcher.end(due, lease, &Spent::default()));
}
