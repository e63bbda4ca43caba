//! What a detour is worth (R4), in virtual time: the dispatcher that serves and the model of an engine that the
//! stand-in runs, with a clock that jumps from event to event. So times can be compared, which no test may do on a busy
//! machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_gateway_core::config::Limits;
use tidegate_gateway_core::dispatch::{Change, Dispatcher, Lease, Spent, TicketId, Verdict};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::Capacity;
use tidegate_shared::request::{ConversationKey, Identity, RequestFacts, Route, Tokens};
use tidegate_shared::time::{Duration, Instant};
use tidegate_sim::engine::{BLOCK_TOKENS, Engine, Event, Request, Settings};

/// Sequences of one engine at a time, and requests that the gateway gives it.
const PLACES: u32 = 32;
/// Conversations that live on the first replica, and their length in tokens.
const CONVERSATIONS: u64 = 60;
const HISTORY: u32 = 2000;
const ANSWER: u32 = 200;

/// One request on its way.
struct Exchange {
    who: u64,
    arrived: Instant,
    lease: Option<Lease>,
    sent: Instant,
    first: Option<Instant>,
    cached: u32,
}

/// How a turn went: by which route, and how long its client waited for the first token.
#[derive(Clone, Copy, Debug)]
struct Turn {
    route: Route,
    first_token: Duration,
}

/// Engines behind a dispatcher.
struct World {
    now: Instant,
    dispatcher: Dispatcher,
    engines: Vec<Engine>,
    running: BTreeMap<u64, Exchange>,
    waiting: BTreeMap<TicketId, u64>,
    next: u64,
    turns: BTreeMap<u64, Turn>,
}

fn facts(who: u64) -> Arc<RequestFacts> {
    Arc::new(RequestFacts {
        identity: Identity::Named(ConversationKey(who)),
        text_bytes: u64::from(HISTORY) * 4,
        output_limit: Some(u64::from(ANSWER)),
        choices: 1,
        fingerprint: who,
        ..RequestFacts::default()
    })
}

impl World {
    /// So many engines, of which the first is ready, and the others were and have failed.
    fn new(engines: u32) -> Self {
        let now = Instant::from_micros(0);
        let limits = Limits { concurrency: PLACES, headroom: Duration::from_secs(600), ..Limits::default() };
        let settings = Settings { slots: PLACES, load_time: Duration::ZERO, ..Settings::default() };
        let mut dispatcher = Dispatcher::new(limits, true, now);
        (1..=engines).for_each(|id| dispatcher.change(now, ReplicaId(id), Change::Starting(Capacity::ONE)));
        (1..=engines).for_each(|id| dispatcher.change(now, ReplicaId(id), Change::Ready));
        (2..=engines).for_each(|id| dispatcher.change(now, ReplicaId(id), Change::Failed));
        let engines = (0..engines).map(|_| Engine::new(settings.clone(), now)).collect();
        let (running, waiting, turns) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { now, dispatcher, engines, running, waiting, next: 0, turns }
    }

    /// A turn of a conversation arrives now.
    fn arrive(&mut self, who: u64) {
        let id = self.next;
        self.next += 1;
        let (arrived, sent) = (self.now, self.now);
        self.running.insert(id, Exchange { who, arrived, lease: None, sent, first: None, cached: 0 });
        match self.dispatcher.arrive(self.now, &facts(who)) {
            Verdict::Forward(lease) => self.send(id, lease),
            Verdict::Wait(ticket) => drop(self.waiting.insert(ticket, id)),
            Verdict::Reject(rejection) => panic!("{who} is refused: {rejection:?}"),
        }
        self.hand_out();
    }

    /// Gives a request to the engine of its lease.
    fn send(&mut self, id: u64, lease: Lease) {
        let exchange = self.running.get_mut(&id).expect("it is known");
        let blocks = u64::from((HISTORY + ANSWER) / BLOCK_TOKENS);
        let request = Request {
            id,
            prompt_tokens: HISTORY,
            chain: (0..blocks).map(|block| exchange.who * 10_000 + block).collect(),
            answer_tokens: ANSWER,
            max_tokens: ANSWER,
        };
        let engine = lease.replica.0 as usize - 1;
        (exchange.lease, exchange.sent) = (Some(lease), self.now);
        self.engines[engine].arrive(self.now, request).expect("it fits");
    }

    fn hand_out(&mut self) {
        for (ticket, verdict) in self.dispatcher.take_woken() {
            let id = self.waiting.remove(&ticket).expect("it waits");
            self.send(id, verdict.expect("nobody is refused"));
        }
    }

    /// Lets time pass until everything is answered.
    fn run(&mut self) {
        while !self.running.is_empty() {
            self.now = self.engines.iter().map(Engine::next_event).min().expect("an engine").max(self.now);
            assert_ne!(self.now, Instant::NEVER, "{} wait for ever", self.running.len());
            for index in 0..self.engines.len() {
                for event in self.engines[index].advance(self.now) {
                    self.see(event);
                }
            }
        }
    }

    fn see(&mut self, event: Event) {
        let exchange = self.running.get_mut(&event.id()).expect("it runs");
        match event {
            Event::Started { cached_tokens, .. } => exchange.cached = cached_tokens,
            Event::Token { at, .. } => _ = exchange.first.get_or_insert(at),
            Event::Finished { id, .. } => {
                let done = self.running.remove(&id).expect("it ran");
                let (lease, first) = (done.lease.expect("it was sent"), done.first.expect("a first token"));
                let turn = Turn { route: lease.route, first_token: first.since(done.arrived) };
                self.turns.insert(done.who, turn);
                let spent = Spent {
                    prompt: Some(u64::from(HISTORY)),
                    cached: Some(u64::from(done.cached)),
                    output: Some(u64::from(ANSWER)),
                    first_byte: Some(first.since(done.sent)),
                };
                self.dispatcher.end(self.now, lease, &spent);
                self.hand_out();
            }
        }
    }

    /// Every conversation takes a turn, all at once; how each went.
    fn rush(&mut self) -> BTreeMap<u64, Turn> {
        (0..CONVERSATIONS).for_each(|who| self.arrive(who));
        self.run();
        std::mem::take(&mut self.turns)
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// All conversations live on the first of `engines` replicas; then the others are well again, which is no growth that
/// conversations follow, and have warmed up; and all take a turn at once: twice as much as one replica may have.
fn rush_at_one_home(engines: u32) -> (World, BTreeMap<u64, Turn>) {
    let mut world = World::new(engines);
    let first = world.rush();
    assert!(first.values().all(|turn| turn.route == Route::Placed));
    for id in 2..=engines {
        world.dispatcher.change(world.now, ReplicaId(id), Change::Ready);
    }
    world.now = world.now + Duration::from_secs(60);
    let rush = world.rush();
    (world, rush)
}

#[test]
fn r4_a_detour_beats_the_wait_at_home_and_lasts_for_one_turn() {
    let (mut world, rush) = rush_at_one_home(4);
    let away: Vec<u64> =
        rush.iter().filter(|(_, turn)| turn.route == Route::Detour).map(|(who, _)| *who).collect();
    assert!(away.len() >= 25, "{} detours", away.len());
    assert!(rush.values().all(|turn| matches!(turn.route, Route::Home | Route::Detour)));
    // The same rush where there is nowhere else to go: the same conversations wait at home.
    let (_, waited) = rush_at_one_home(1);
    let of = |turns: &BTreeMap<u64, Turn>| median(away.iter().map(|who| turns[who].first_token).collect());
    let (detour, wait) = (of(&rush), of(&waited));
    eprintln!("median time to the first token: {detour:?} on a detour, {wait:?} waiting at home");
    assert!(detour < wait, "{detour:?} on a detour, {wait:?} at home");

    // One after the other, all are at home again.
    for who in 0..CONVERSATIONS {
        world.arrive(who);
        world.run();
    }
    assert!(world.turns.values().all(|turn| turn.route == Route::Home));
    assert_eq!(world.dispatcher.load(world.now, ReplicaId(1)), Tokens(0));
}
