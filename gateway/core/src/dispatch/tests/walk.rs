//! A random walk over arrivals of all sizes, ends with and without usage, failures, changes, holds, other limits, engines'
//! figures and time, which holds the invariants at every step (Q1, Q4, Q5). What it says of the line is in `fair`.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::{EngineReport, Hold};

use super::explain::{any_kind, arrive_as_explained};
use super::fair::{First, fair};
use super::*;

#[derive(Clone, Debug)]
enum Op {
    Arrive(u64, Priority, Option<u64>, u64),
    Ask(u32),
    Report(u32, Option<u64>, u64),
    Grow(usize, u64),
    End(usize, Sign, Spent),
    Hold(Option<u32>),
    Release,
    Resize(u32, bool),
    Prove(usize),
    Abandon(usize),
    Fail(usize),
    Change(u32, usize),
    Slow(u32),
    Elsewhere(u64, u32),
    Pass(u64),
}

/// Mostly faults, so that replicas are taken out.
fn sign() -> impl Strategy<Value = Sign> {
    prop_oneof![
        1 => Just(Sign::Neutral),
        2 => Just(Sign::Well),
        1 => Just(Sign::Busy(None)),
        6 => Just(Sign::Fault(Fault::Status)),
    ]
}

/// What an engine says of a request: mostly what is likely, now and then nothing, or what cannot be.
fn spent() -> impl Strategy<Value = Spent> {
    let told = prop_oneof![4 => 1u64..2_000, 1 => Just(0), 1 => Just(u64::MAX)];
    let figure = || prop::option::of(told.clone());
    let took = prop::option::of((0u64..5_000).prop_map(Duration::from_millis));
    (figure(), figure(), figure(), took).prop_map(|(prompt, cached, output, first_byte)| Spent {
        prompt,
        cached,
        output,
        first_byte,
    })
}

/// Bytes of text, four to a token: most of them short, some as much as a replica holds.
fn text() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(400u64), 2 => 400u64..8_000, 1 => 8_000u64..40_000]
}

const CHANGES: [Change; 19] = [
    Change::Ordered(Capacity::ONE),
    Change::Starting(Capacity::ONE),
    Change::Ready,
    Change::Draining,
    Change::Undrain,
    Change::Parked,
    Change::Asleep,
    Change::Waking,
    Change::Failed,
    Change::Looked(Some(Unfit::OtherModel)),
    Change::Looked(Some(Unfit::Unreachable)),
    Change::Looked(None),
    Change::Suspect,
    Change::Refused,
    Change::StartFailed,
    Change::Gone,
    Change::Capacity(Capacity::ONE),
    Change::OwnOnly,
    Change::OwnOnly,
];

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0u64..100, 0..Priority::ALL.len(), prop::option::of(0u64..4000), text())
            .prop_map(|(n, priority, within, text)| Op::Arrive(n, Priority::ALL[priority], within, text)),
        1 => (1u32..5).prop_map(Op::Ask),
        3 => (1u32..5, prop::option::of(0u64..9_000), prop::sample::select(vec![3_000u64, 10_000]))
            .prop_map(|(id, used, holds)| Op::Report(id, used, holds)),
        1 => (any::<usize>(), 1u64..2_000).prop_map(|(at, more)| Op::Grow(at, more)),
        4 => (any::<usize>(), sign(), spent()).prop_map(|(at, sign, spent)| Op::End(at, sign, spent)),
        1 => prop::option::of(1u32..5).prop_map(Op::Hold),
        1 => Just(Op::Release),
        1 => (1u32..8, any::<bool>()).prop_map(|(concurrency, startable)| Op::Resize(concurrency, startable)),
        1 => any::<usize>().prop_map(Op::Prove),
        1 => (1u32..5).prop_map(Op::Slow),
        1 => (0u64..30, 1u32..5).prop_map(|(n, tried)| Op::Elsewhere(n, tried)),
        1 => any::<usize>().prop_map(Op::Abandon),
        1 => any::<usize>().prop_map(Op::Fail),
        2 => (1u32..5, 0..CHANGES.len()).prop_map(|(id, change)| Op::Change(id, change)),
        2 => (0u64..3000).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 1..300)
}

/// Requests that may wait.
const LINE: u32 = 8;

/// The dispatcher and what its driver would hold.
struct Walk {
    dispatcher: Dispatcher,
    now: Instant,
    leases: Vec<(Arc<RequestFacts>, Lease)>,
    waiting: BTreeMap<TicketId, (Arc<RequestFacts>, Waiting)>,
    /// Engines that were asked and have not answered.
    asked: BTreeSet<ReplicaId>,
    first: First,
}

/// A waiter, as its driver knows it.
#[derive(Clone, Copy)]
struct Waiting {
    /// A replica failed it.
    again: bool,
    start_by: Instant,
}

impl Walk {
    fn step(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Arrive(n, priority, within, text_bytes) => self.arrive(n, priority, within, text_bytes),
            Op::End(at, sign, ref spent) if !self.leases.is_empty() => {
                let (_, mut lease) = self.leases.swap_remove(at % self.leases.len());
                lease.sign = sign;
                self.dispatcher.end(now, lease, spent);
            }
            Op::Hold(wanted) => self.hold(wanted.map(ReplicaId)),
            Op::Release => self.release(),
            Op::Resize(concurrency, startable) => self.dispatcher.resize(now, concurrency, startable),
            Op::Fail(at) if !self.leases.is_empty() => self.fail(at),
            Op::Prove(at) if !self.leases.is_empty() => {
                let at = at % self.leases.len();
                self.dispatcher.proved(now, &mut self.leases[at].1);
            }
            Op::Ask(id) => self.ask(ReplicaId(id)),
            Op::Report(id, used, holds) => {
                self.report(ReplicaId(id), used.map(Tokens), Tokens(holds));
            }
            Op::Grow(at, more) if !self.leases.is_empty() => {
                let at = at % self.leases.len();
                self.dispatcher.grow(now, &mut self.leases[at].1, Tokens(more));
            }
            Op::Slow(id) => {
                self.dispatcher.too_slow(now, ReplicaId(id));
            }
            Op::Elsewhere(n, tried) => {
                if let Elsewhere::Forward(lease) =
                    self.dispatcher.elsewhere(now, &ask(n), &[ReplicaId(tried)])
                {
                    assert_ne!(lease.replica, ReplicaId(tried));
                    self.leases.push((ask(n), lease));
                }
            }
            Op::Abandon(at) if !self.waiting.is_empty() => {
                let ticket = *self.waiting.keys().nth(at % self.waiting.len()).unwrap();
                self.waiting.remove(&ticket);
                self.dispatcher.abandon(now, ticket);
            }
            Op::Change(id, change) => {
                // A number is never given twice, so a replica that is gone does not come back with leases out.
                let known = self.dispatcher.observe(now).replicas.iter().any(|replica| replica.id.0 == id);
                if known || !self.leases.iter().any(|(_, lease)| lease.replica.0 == id) {
                    self.dispatcher.change(now, ReplicaId(id), CHANGES[change]);
                }
            }
            Op::Pass(passed) => {
                self.now = now + Duration::from_millis(passed);
                self.dispatcher.on_deadline(self.now);
            }
            Op::End(..) | Op::Prove(_) | Op::Fail(_) | Op::Abandon(_) | Op::Grow(..) => {}
        }
    }

    fn report(&mut self, id: ReplicaId, kv_used: Option<Tokens>, holds: Tokens) {
        let now = self.now;
        // Nobody answers who was not asked.
        if !self.asked.remove(&id) {
            self.dispatcher.ask(now, id);
        }
        let kv_capacity = Some(holds);
        let report = EngineReport { asked: now, kv_used, kv_capacity, ..EngineReport::default() };
        self.dispatcher.report(now, id, report);
    }

    fn ask(&mut self, id: ReplicaId) {
        self.dispatcher.ask(self.now, id);
        self.asked.insert(id);
    }

    /// The replica that is held.
    fn held(&self) -> Option<ReplicaId> {
        let seen = self.dispatcher.observe(self.now);
        let held: Vec<_> = seen.replicas.iter().filter(|facts| facts.hold.is_some()).collect();
        assert!(held.len() <= 1, "one at a time: {held:?}");
        held.first().map(|facts| facts.id)
    }

    fn release(&mut self) {
        if let Some(held) = self.held() {
            self.dispatcher.change(self.now, held, Change::Release);
            assert!(!self.dispatcher.may_measure(held), "it is held no more");
        }
    }

    fn hold(&mut self, wanted: Option<ReplicaId>) {
        let (held, ready) = (self.held(), self.dispatcher.replicas.ready());
        match self.dispatcher.hold(self.now, wanted) {
            Ok((id, hold)) => {
                assert_eq!((held, self.held()), (None, Some(id)));
                assert!(wanted.is_none_or(|wanted| wanted == id));
                // Somebody goes on serving.
                assert_eq!(hold, if ready > 1 { Hold::Aside } else { Hold::Serving });
                assert!(self.dispatcher.replicas.ready() > 0);
            }
            Err(NoHold::Held(id)) => assert_eq!(held, Some(id)),
            Err(NoHold::Unknown | NoHold::NotReady) => assert_eq!(held, None),
        }
    }

    fn arrive(&mut self, n: u64, priority: Priority, within: Option<u64>, text_bytes: u64) {
        let now = self.now;
        let start_within = within.map(Duration::from_millis);
        let known = RequestFacts::clone(&any_kind(n));
        let facts = RequestFacts { priority, start_within, text_bytes, ..known };
        let facts = Arc::new(facts);
        let coming = self.dispatcher.promises.foresee(now, facts.fingerprint, priority, facts.retry);
        let arrived = coming.kept.map_or(now, |kept| kept.arrived);
        let stands = self.dispatcher.queue.place(priority, arrived);
        let verdict = arrive_as_explained(&mut self.dispatcher, now, &facts);
        self.take(facts, verdict, stands, false);
    }

    /// A replica fails one that it was given.
    fn fail(&mut self, at: usize) {
        let now = self.now;
        let (facts, lease) = self.leases.swap_remove(at % self.leases.len());
        let tried = [lease.replica];
        self.dispatcher.end(now, lease, &Spent::default());
        self.deliver();
        let stands = self.dispatcher.queue.place(facts.priority, now);
        let verdict = self.dispatcher.retry(now, &facts, &tried, now);
        self.take(facts, verdict, stands, true);
    }

    fn take(&mut self, facts: Arc<RequestFacts>, verdict: Verdict, stands: TicketId, again: bool) {
        let start_by = start_by(&facts, self.now);
        match verdict {
            Verdict::Forward(lease) => {
                assert!(start_by > self.now, "sent after its deadline");
                self.allowed(&facts, &lease);
                self.first.went(&self.dispatcher, self.now, &[(stands, &lease)]);
                self.leases.push((facts, lease));
            }
            Verdict::Wait(ticket) => {
                let waiting = (facts, Waiting { again, start_by });
                assert!(self.waiting.insert(ticket, waiting).is_none(), "a ticket given twice");
            }
            Verdict::Reject(rejection) => {
                assert!(rejection.retry_after >= wait::RETRY_AFTER.0);
                let full = rejection.reason == Refusal::QueueFull;
                let room = self.dispatcher.queue.first_to_yield(facts.priority);
                assert!(!full || room.is_none(), "Q1: refused though {room:?} is less urgent");
            }
        }
    }

    /// The replica that a request was sent to just now takes it, and has not more than it may.
    fn allowed(&self, facts: &RequestFacts, lease: &Lease) {
        let Some(replica) = self.dispatcher.replicas.get(lease.replica) else { return };
        assert_ne!(replica.hold, Some(Hold::Aside), "it is measured");
        assert!(!replica.own_only || lease.route == Route::Home, "C-129: {facts:?} by {:?}", lease.route);
        let (used, limit) = (self.dispatcher.in_flight(replica.id), self.dispatcher.limit(replica.id));
        assert!(used <= limit || lease.trial, "Q1: {used} of {limit}");
    }

    fn deliver(&mut self) {
        let woken = self.dispatcher.take_woken();
        let sent: Vec<_> =
            woken.iter().filter_map(|(ticket, end)| Some((*ticket, end.as_ref().ok()?))).collect();
        self.first.went(&self.dispatcher, self.now, &sent);
        for (ticket, end) in woken {
            let (facts, waiting) = self.waiting.remove(&ticket).expect("a verdict for nobody");
            match end {
                Ok(lease) => {
                    assert!(waiting.start_by > self.now, "sent after its deadline");
                    self.allowed(&facts, &lease);
                    self.leases.push((facts, lease));
                }
                Err(Rejection { reason: Refusal::PushedOut, .. }) => {
                    assert!(!waiting.again, "pushed out though it was under way");
                    assert!(self.waiting.keys().any(|left| left.priority() < facts.priority));
                }
                Err(_) => {}
            }
        }
    }

    fn check(&mut self) {
        let seen = self.dispatcher.observe(self.now);
        let known = |id: ReplicaId| seen.replicas.iter().any(|replica| replica.id == id);
        let held = self.leases.iter().filter(|(_, lease)| known(lease.replica)).count();
        assert_eq!(seen.in_flight as usize, held);
        assert_eq!(seen.queued as usize, self.waiting.len());
        assert_eq!(self.dispatcher.queued_bytes(), self.waiting.len() as u64 * 1000);
        assert!(seen.queued <= LINE);
        for priority in Priority::ALL {
            let ahead = self.waiting.keys().filter(|ticket| ticket.priority() <= priority).count();
            assert_eq!(self.dispatcher.queue.ahead_of(priority) as usize, ahead);
        }
        fair(&self.dispatcher, self.now);
        self.first.look(&self.dispatcher);
        assert!(self.dispatcher.deadline() > self.now || seen.queued == 0);
        let present = self.dispatcher.replicas.iter().filter(|known| known.is_present());
        let (present, out): (Vec<_>, Vec<_>) = present.partition(|known| !known.health.is_out());
        assert!(out.len() <= present.len(), "more than half are out");
    }

    /// Everybody leaves.
    fn end(mut self) {
        self.leases.drain(..).for_each(|(_, lease)| self.dispatcher.end(self.now, lease, &Spent::default()));
        self.waiting.into_keys().for_each(|ticket| self.dispatcher.abandon(self.now, ticket));
        for (_, end) in self.dispatcher.take_woken() {
            end.into_iter().for_each(|lease| self.dispatcher.end(self.now, lease, &Spent::default()));
        }
        let seen = self.dispatcher.observe(self.now);
        assert_eq!((seen.in_flight, seen.queued, self.dispatcher.queued_bytes()), (0, 0, 0));
        assert_eq!(
            self.dispatcher.claims.before(self.dispatcher.queue.place(Priority::Low, Instant::NEVER)),
            []
        );
        // What engines said may name what others sent; it is forgotten by now.
        self.now = self.now + Duration::from_secs(6);
        assert!(seen.replicas.iter().all(|replica| self.dispatcher.load(self.now, replica.id) == Tokens(0)));
    }
}

proptest! {
    /// Counts are exact whatever happens, every ticket ends exactly once, nobody waits while he fits where nobody before
    /// him wants the room, the first in line is not passed where he waits, nobody goes when his client is gone, and what
    /// becomes of each arrival is what was told of it just before.
    #[test]
    fn q5_e3_counts_are_exact_and_fates_as_told_whatever_happens(
        ops in ops(),
        policy in prop::sample::select(PolicyName::ALL.to_vec()),
        concurrency in prop::sample::select(vec![2u32, 6]),
        sizes in prop::sample::select(vec![vec![1u32, 2], vec![1; 4]]),
    ) {
        let limits = Limits { concurrency, queue_requests: LINE, ..Limits::default() };
        let dispatcher = fleet(limits, &sizes).with_policy(policy, 1);
        let (waiting, asked) = (BTreeMap::new(), BTreeSet::new());
        let mut walk = Walk { dispatcher, now: ms(0), leases: Vec::new(), waiting, asked, first: First::default() };
        for op in &ops {
            walk.step(op);
            walk.deliver();
            walk.check();
        }
        walk.end();
    }
}

#[test]
fn late_ends_on_a_replica_that_is_gone_are_harmless() {
    let mut dispatcher = fleet(Limits::default(), &[1]);
    let lease = forward(dispatcher.arrive(ms(0), &ask(0)));
    dispatcher.change(ms(1), ReplicaId(1), Change::Gone);
    dispatcher.end(ms(2), lease, &Spent::default());
    assert_eq!(dispatcher.observe(ms(2)), Observation { at: ms(2), ..Observation::default() });
}
