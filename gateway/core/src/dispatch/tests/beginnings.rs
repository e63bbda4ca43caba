//! A crowd that shares a long beginning overloads nobody, whenever engines tell what (R6): the dispatcher against small
//! models of engines, whose pages tell the truth of the moment at which they are made, and come when they come.

use tidegate_shared::replica::EngineReport;
use tidegate_shared::rng::Rng;

use super::*;

const USERS: u64 = 500;
/// The beginning that all share, and what each adds to it.
const SHARED: u64 = 4000;
const OWN: usize = 15;

/// How a crowd comes and how engines tell of themselves.
#[derive(Clone, Copy, Debug)]
struct Manner {
    seed: u64,
    sizes: [u32; 8],
    /// Users at a time.
    width: usize,
    /// Pause between two questions to the same engine, and the longest way there and back, in milliseconds.
    every: usize,
    way: usize,
    /// From when on engines are asked, in milliseconds.
    from: usize,
    /// What the first answer of a replica, which has to prefill it all, takes at most, and what every other does.
    cold: usize,
    warm: usize,
}

fn id(at: usize) -> ReplicaId {
    ReplicaId(u32::try_from(at).unwrap() + 1)
}

#[derive(Debug)]
enum Event {
    Arrive,
    End(u64),
    Ask(usize),
    Page(usize),
    Told(usize, Tokens),
}

struct World {
    manner: Manner,
    rng: Rng,
    dispatcher: Dispatcher,
    events: BTreeMap<(Instant, u64), Event>,
    serial: u64,
    /// Who runs, what the engine holds for it, and whether it prefills it all.
    running: BTreeMap<u64, (Lease, u64, bool)>,
    counts: [u64; 8],
    /// What each would have by its size, in parts of 2^32 of a request; one that is busy with its first prefill has no
    /// share meanwhile.
    shares: [u64; 8],
    prefills: [bool; 8],
    arrived: u64,
}

impl World {
    fn new(manner: Manner) -> Self {
        let dispatcher = fleet(Limits::default(), &manner.sizes);
        let (events, running) = (BTreeMap::new(), BTreeMap::new());
        let rng = Rng::new(manner.seed);
        let mut world = Self {
            manner,
            rng,
            dispatcher,
            events,
            serial: 0,
            running,
            counts: [0; 8],
            shares: [0; 8],
            prefills: [false; 8],
            arrived: 0,
        };
        for at in 0..8 {
            let first = ms(manner.from as u64) + world.millis(manner.every);
            world.at(first, Event::Ask(at));
        }
        (0..manner.width).for_each(|_| world.at(ms(0), Event::Arrive));
        world
    }

    /// Up to so many milliseconds.
    fn millis(&mut self, most: usize) -> Duration {
        Duration::from_micros(self.rng.below(most * 1000 + 1) as u64)
    }

    fn at(&mut self, when: Instant, event: Event) {
        self.serial += 1;
        self.events.insert((when, self.serial), event);
    }

    fn arrive(&mut self, now: Instant) {
        let user = self.arrived;
        if user == USERS {
            return;
        }
        self.arrived += 1;
        let chain = vec![ConversationKey(1), ConversationKey(1000 + user)];
        let facts = RequestFacts {
            identity: Identity::Prefix { chain, follows_up: false },
            text_bytes: (SHARED + OWN as u64) * 4,
            output_limit: Some(16),
            choices: 1,
            fingerprint: user,
            ..RequestFacts::default()
        };
        self.share_out();
        let lease = forward(self.dispatcher.arrive(now, &Arc::new(facts)));
        let at = lease.replica.0 as usize - 1;
        let cold = self.counts[at] == 0;
        self.prefills[at] |= cold;
        let takes = if cold { self.manner.cold } else { self.manner.warm };
        self.counts[at] += 1;
        // What the engine holds is not quite what was expected.
        let holds = SHARED + self.rng.below(2 * OWN + 16) as u64;
        let end = now + Duration::from_micros(500) + self.millis(takes);
        self.running.insert(user, (lease, holds, cold));
        self.at(end, Event::End(user));
    }

    fn step(&mut self, now: Instant, event: Event) {
        let way = self.manner.way;
        match event {
            Event::Arrive => self.arrive(now),
            Event::End(user) => {
                let (lease, _, cold) = self.running.remove(&user).expect("it runs");
                self.prefills[lease.replica.0 as usize - 1] &= !cold;
                let spent = Spent { prompt: Some(SHARED + OWN as u64), output: Some(16), ..Spent::default() };
                self.dispatcher.end(now, lease, &spent);
                self.at(now + Duration::from_micros(100), Event::Arrive);
            }
            Event::Ask(at) => {
                self.dispatcher.ask(now, id(at));
                let there = now + self.millis(way);
                self.at(there, Event::Page(at));
            }
            Event::Page(at) => {
                let here = self.running.values().filter(|(lease, ..)| lease.replica.0 as usize == at + 1);
                let used = Tokens(here.map(|(_, holds, _)| holds).sum());
                let back = now + self.millis(way);
                self.at(back, Event::Told(at, used));
            }
            Event::Told(at, used) => {
                let kv_capacity = Some(Tokens(400_000 * u64::from(self.manner.sizes[at])));
                let report = EngineReport { kv_used: Some(used), kv_capacity, ..EngineReport::default() };
                self.dispatcher.report(now, id(at), report);
                self.at(now + Duration::from_millis(self.manner.every as u64), Event::Ask(at));
            }
        }
    }

    /// All are answered.
    fn run(mut self) -> Self {
        while self.arrived < USERS || !self.running.is_empty() {
            let ((now, _), event) = self.events.pop_first().expect("something is to come");
            self.step(now, event);
        }
        self
    }

    /// One more is about to be placed.
    fn share_out(&mut self) {
        let all_prefill = self.prefills.iter().all(|prefills| *prefills);
        let sizes: Vec<u64> = (self.manner.sizes.iter().zip(self.prefills))
            .map(|(size, prefills)| if prefills && !all_prefill { 0 } else { u64::from(*size) })
            .collect();
        let all: u64 = sizes.iter().sum();
        self.shares.iter_mut().zip(sizes).for_each(|(share, size)| *share += (size << 32) / all);
    }

    /// Nobody has more than 1.25 times its share, give or take one: that of its size, or what came to it while others were
    /// busy with their first prefill.
    #[track_caller]
    fn assert_balanced(&self) {
        let Self { counts, shares, manner, .. } = self;
        let all: u64 = manner.sizes.iter().map(|size| u64::from(*size)).sum();
        for ((count, came), size) in counts.iter().zip(shares).zip(manner.sizes) {
            let share = (*came).max((USERS << 32) * u64::from(size) / all);
            let balanced = (count.saturating_sub(1) << 32) * 100 <= share * 125;
            assert!(balanced, "{counts:?}: {count} where {} is the share; {manner:?}", share >> 32);
        }
    }
}

fn manner(seed: u64) -> Manner {
    let mut rng = Rng::new(seed);
    let mut one_of = |values: &[usize]| values[rng.below(values.len())];
    let warm = one_of(&[0, 2, 10]);
    Manner {
        seed,
        sizes: if one_of(&[0, 0, 1]) == 0 { [1; 8] } else { [1, 1, 1, 1, 1, 1, 2, 2] },
        width: one_of(&[1, 1, 4, 32, 40]),
        every: one_of(&[20, 200, 1000]),
        way: one_of(&[1, 5, 20, 100]),
        from: one_of(&[0, 0, 100, 500, 1_000_000]),
        cold: one_of(&[warm, 40, 400]),
        warm,
    }
}

#[test]
fn r6_nobody_is_beyond_the_balance_whenever_engines_tell_what() {
    for seed in 0..300 {
        let manner = manner(seed);
        World::new(manner).run().assert_balanced();
    }
}

/// Seeds with which one replica took most of the crowd: little was left of its load in the last report and nothing of
/// anybody else's, or much of one and nothing of the others'.
#[test]
fn r6_what_is_left_of_a_report_makes_no_replica_the_favourite() {
    for seed in [2, 196, 204, 1024, 1941] {
        World::new(Manner { width: 1, ..manner(seed) }).run().assert_balanced();
    }
}
