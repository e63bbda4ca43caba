//! What a decision about a request costs: in time, and in instructions counted by callgrind, which do not move with the
//! machine. For each policy and for fleets of 8, 128 and 4,096 replicas.
//!
//! `cargo bench -p tidegate-benches --bench decide` measures time; with `--once` its program runs each
//! workload a thousand times, for valgrind to count.
//! Words after `--` that are neither choose policies by name and sizes by number.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic, clippy::cast_precision_loss)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use tidegate_gateway_core::config::Limits;
use tidegate_gateway_core::dispatch::{Change, Dispatcher, Lease, Spent, Verdict};
use tidegate_gateway_core::route::PolicyName;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Capacity;
use tidegate_shared::request::{ConversationKey, Identity, RequestFacts};
use tidegate_shared::time::Instant;

const SIZES: [u32; 3] = [8, 128, 4096];
const ROUNDS: u32 = 5;
const ROUND: Duration = Duration::from_millis(20);
/// Times that each workload is run to count its instructions.
const COUNTED: u64 = 1000;
/// Places of a replica.
const PLACES: u32 = 10;

/// One kind of decision: what it does once, before that, and after all.
struct Workload {
    name: &'static str,
    /// Brings the fleet from its usual state to where the decision is made.
    begin: fn(&mut Fleet),
    run: fn(&mut Fleet),
}

const WORKLOADS: [Workload; 7] = [
    Workload { name: "any", begin: |_| (), run: any_and_end },
    Workload { name: "home", begin: Fleet::settle, run: home_and_end },
    Workload { name: "place", begin: |_| (), run: place_and_end },
    Workload { name: "detour", begin: Fleet::crowd_home, run: detour_and_end },
    Workload { name: "busy", begin: Fleet::fill_to_the_limit, run: any_and_end },
    Workload { name: "refuse", begin: Fleet::fill_all, run: refuse },
    Workload { name: "wake", begin: Fleet::fill_and_wait, run: wake },
];

/// A dispatcher and what its driver would hold.
struct Fleet {
    dispatcher: Dispatcher,
    size: u32,
    now: Instant,
    /// Requests made so far.
    made: u64,
    held: Vec<Lease>,
}

impl Fleet {
    fn new(size: u32, policy: PolicyName) -> Self {
        let limits = Limits {
            concurrency: PLACES,
            queue_requests: 1,
            conversations: 10_000,
            headroom: Duration::from_secs(3600),
            ..Limits::default()
        };
        let now = Instant::ZERO;
        let mut dispatcher = Dispatcher::new(limits, false, now).with_policy(policy, 1);
        let ids = || (1..=size).map(ReplicaId);
        ids().for_each(|id| dispatcher.change(now, id, Change::Starting(Capacity::ONE)));
        ids().for_each(|id| dispatcher.change(now, id, Change::Ready));
        Self { dispatcher, size, now, made: 0, held: Vec::new() }
    }

    /// As before any workload: each replica has about one request, all of different sizes.
    fn usual(&mut self) {
        self.held.drain(..).for_each(|lease| self.dispatcher.end(self.now, lease, &Spent::default()));
        self.held.extend(self.dispatcher.take_woken().into_iter().filter_map(|(_, end)| end.ok()));
        self.held.drain(..).for_each(|lease| self.dispatcher.end(self.now, lease, &Spent::default()));
        self.hold(u64::from(self.size));
    }

    fn facts(&mut self, identity: Identity) -> Arc<RequestFacts> {
        self.made += 1;
        self.now = self.now + Duration::from_micros(10);
        let text_bytes = 400 + self.made * 7919 % 4000;
        Arc::new(RequestFacts {
            identity,
            body_bytes: text_bytes,
            text_bytes,
            output_limit: Some(100),
            choices: 1,
            fingerprint: self.made,
            ..RequestFacts::default()
        })
    }

    fn arrive(&mut self, identity: Identity) -> Verdict {
        let facts = self.facts(identity);
        self.dispatcher.arrive(self.now, &facts)
    }

    fn end(&mut self, verdict: Verdict) {
        let Verdict::Forward(lease) = verdict else { panic!("not forwarded: {verdict:?}") };
        self.dispatcher.end(self.now, black_box(lease), &Spent::default());
    }

    fn hold(&mut self, count: u64) {
        for _ in 0..count {
            if let Verdict::Forward(lease) = self.arrive(Identity::None) {
                self.held.push(lease);
            }
        }
    }

    fn settle(&mut self) {
        (0..100).for_each(|n| {
            let verdict = self.arrive(settled(n));
            self.end(verdict);
        });
    }

    fn crowd_home(&mut self) {
        for _ in 0..PLACES {
            if let Verdict::Forward(lease) = self.arrive(settled(0)) {
                self.held.push(lease);
            }
        }
    }

    /// Every replica at its load limit, with one place left.
    fn fill_to_the_limit(&mut self) {
        self.hold(u64::from(self.size) * u64::from(PLACES - 2));
    }

    fn fill_all(&mut self) {
        while let Verdict::Forward(lease) = self.arrive(Identity::None) {
            self.held.push(lease);
        }
    }

    fn fill_and_wait(&mut self) {
        self.fill_all();
    }
}

/// The conversation `n` of those that are known.
fn settled(n: u64) -> Identity {
    Identity::Named(ConversationKey((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

#[inline(never)]
fn any_and_end(fleet: &mut Fleet) {
    let verdict = fleet.arrive(Identity::None);
    fleet.end(verdict);
}

#[inline(never)]
fn home_and_end(fleet: &mut Fleet) {
    let verdict = fleet.arrive(settled(fleet.made % 100));
    fleet.end(verdict);
}

/// A new conversation that shares its beginning with others.
#[inline(never)]
fn place_and_end(fleet: &mut Fleet) {
    let own = fleet.made.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let chain = [fleet.made % 64, own, own ^ 1].map(ConversationKey).to_vec();
    let verdict = fleet.arrive(Identity::Prefix { chain, follows_up: false });
    fleet.end(verdict);
}

#[inline(never)]
fn detour_and_end(fleet: &mut Fleet) {
    let verdict = fleet.arrive(settled(0));
    fleet.end(verdict);
}

#[inline(never)]
fn refuse(fleet: &mut Fleet) {
    let verdict = fleet.arrive(Identity::None);
    assert!(matches!(black_box(verdict), Verdict::Reject(_)));
}

/// A request ends, who waits takes its place, and the next one waits.
#[inline(never)]
fn wake(fleet: &mut Fleet) {
    let at = usize::try_from(fleet.made).unwrap_or(0) % fleet.held.len();
    let lease = fleet.held.swap_remove(at);
    fleet.dispatcher.end(fleet.now, lease, &Spent::default());
    let woken = fleet.dispatcher.take_woken();
    assert_eq!(woken.len(), 1);
    fleet.held.extend(woken.into_iter().filter_map(|(_, end)| end.ok()));
    let verdict = fleet.arrive(Identity::None);
    assert!(matches!(verdict, Verdict::Wait(_)));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    let policies: Vec<_> = PolicyName::ALL.into_iter().filter(|policy| has(policy.as_str())).collect();
    let policies = if policies.is_empty() { PolicyName::ALL.to_vec() } else { policies };
    let sizes: Vec<_> = SIZES.into_iter().filter(|size| has(&size.to_string())).collect();
    let sizes = if sizes.is_empty() { SIZES.to_vec() } else { sizes };
    if has("--once") {
        return policies.iter().for_each(|policy| sizes.iter().for_each(|size| once(*size, *policy)));
    }
    print!("{:<12} {:>8}", "ns", "replicas");
    WORKLOADS.iter().for_each(|workload| print!(" {:>8}", workload.name));
    println!();
    for policy in policies {
        for &size in &sizes {
            let figures = times(size, policy);
            print!("{:<12} {size:>8}", policy.as_str());
            figures.iter().for_each(|figure| print!(" {figure:>8.0}"));
            println!();
        }
    }
}

/// Nanoseconds of each workload, best of [`ROUNDS`].
fn times(size: u32, policy: PolicyName) -> Vec<f64> {
    let mut fleet = Fleet::new(size, policy);
    let time = |workload: &Workload| {
        fleet.usual();
        (workload.begin)(&mut fleet);
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let (start, mut runs) = (Clock::now(), 0_u32);
            while start.elapsed() < ROUND {
                (0..64).for_each(|_| (workload.run)(&mut fleet));
                runs += 64;
            }
            best = best.min(start.elapsed().as_secs_f64() / f64::from(runs));
        }
        best * 1e9
    };
    WORKLOADS.iter().map(time).collect()
}

/// Each workload [`COUNTED`] times, for callgrind to count.
fn once(size: u32, policy: PolicyName) {
    let mut fleet = Fleet::new(size, policy);
    for workload in &WORKLOADS {
        fleet.usual();
        (workload.begin)(&mut fleet);
        counted(workload, &mut fleet);
        println!("{}", workload.name);
    }
}

#[inline(never)]
fn counted(workload: &Workload, fleet: &mut Fleet) {
    (0..COUNTED).for_each(|_| (workload.run)(fleet));
}
