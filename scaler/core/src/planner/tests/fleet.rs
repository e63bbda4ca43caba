//! A fleet of engines that tell what they hold, and a clock that the test turns: it obeys the planner's actions, and
//! spreads the load by size.

use tidegate_shared::decision::Rule;
use tidegate_shared::offer::Price;
use tidegate_shared::request::Tokens;

use super::*;
use crate::config::RuleChoice;
use crate::reconcile::{Action, reconcile};

/// Tokens that a replica of one unit can hold.
pub(crate) const UNIT: u64 = 1_000;

/// See the module.
pub(crate) struct Engines {
    pub(crate) planner: Planner,
    pub(crate) supply: Supply,
    pub(crate) now: Instant,
    pub(crate) replicas: Vec<ReplicaFacts>,
    /// Tokens held over the whole fleet.
    pub(crate) tokens: u64,
    /// How long a replica that drains keeps what it has; nothing unless set.
    pub(crate) lingers: Duration,
    /// Requests in flight, not counting `queued`.
    pub(crate) in_flight: u32,
    /// Requests in the gateway's queue, and for how long the oldest of them has waited.
    pub(crate) queued: u32,
    pub(crate) oldest_wait: Duration,
    /// Requests that a replica takes at most, whatever the planner knows of it; what finds no place is queued.
    pub(crate) places: u32,
    /// For how long somebody has found none.
    pub(crate) crowded: Duration,
    /// Requests that wait inside the first ready engine.
    pub(crate) waiting: u32,
    /// What each unit of an engine runs at a time; others wait inside it.
    pub(crate) slots: u32,
    /// How long a start takes.
    pub(crate) load: Duration,
    /// What every step did, oldest first.
    pub(crate) actions: Vec<Action>,
    pub(crate) last_id: u32,
}

impl Engines {
    pub(crate) fn new(sizing: Sizing, ready: u32) -> Self {
        let now = Instant::from_micros(3_600_000_000);
        let offers = vec![Offer::new("gpu", Capacity::ONE, Price::FREE)];
        let mut this = Self {
            planner: Planner::new(sizing, now),
            supply: Supply { offers, ..Supply::default() },
            now,
            replicas: Vec::new(),
            tokens: 0,
            lingers: Duration::ZERO,
            in_flight: 0,
            queued: 0,
            oldest_wait: Duration::ZERO,
            places: u32::MAX,
            crowded: Duration::ZERO,
            waiting: 0,
            slots: u32::MAX,
            load: Duration::from_secs(60),
            actions: Vec::new(),
            last_id: 0,
        };
        (0..ready).for_each(|_| this.add(Phase::Ready, 1));
        this
    }

    /// By token load, with these bounds.
    pub(crate) fn by_tokens(min: u32, max: u32, ready: u32) -> Self {
        let rule = RuleChoice::Fixed(Rule::TokenLoad);
        Self::new(Sizing { rule, min, max, ..Sizing::default() }, ready)
    }

    pub(crate) fn add(&mut self, phase: Phase, units: u32) {
        self.last_id += 1;
        let bare = ReplicaFacts::new(ReplicaId(self.last_id), phase, self.now, Capacity::new(units));
        self.replicas.push(bare);
    }

    /// What is there now, with the load spread by size over those that are ready, but for what lingers on draining ones.
    pub(crate) fn observe(&mut self) -> Observation {
        let units = |replica: &ReplicaFacts| u64::from(replica.capacity.units());
        let ready = || self.replicas.iter().filter(|replica| replica.is_ready());
        let (all, count) = (ready().map(units).sum::<u64>().max(1), u32::try_from(ready().count()).unwrap());
        let mut waiting = Some(self.waiting);
        let draining = || self.replicas.iter().filter(|replica| replica.phase == Phase::Draining);
        let kept: u64 = draining().filter_map(|replica| replica.load).map(|load| load.0).sum();
        let busy: u32 = draining().map(|replica| replica.in_flight).sum();
        let arrived = self.in_flight.saturating_sub(busy);
        let in_flight = arrived.min(self.places.saturating_mul(count));
        let outside = arrived - in_flight;
        // Each request holds the same.
        let inside = u64::from(self.in_flight - outside);
        let held = (self.tokens * inside).checked_div(u64::from(self.in_flight)).unwrap_or(self.tokens);
        let tokens = held.saturating_sub(kept);
        let mut left = (tokens, in_flight);
        for replica in self.replicas.iter_mut().filter(|replica| replica.is_ready()) {
            let share = (tokens * units(replica)).div_ceil(all).min(left.0);
            let requests = in_flight.div_ceil(count).min(left.1);
            left = (left.0 - share, left.1 - requests);
            replica.load = Some(Tokens(share));
            replica.memory = Some(Tokens(UNIT * units(replica)));
            let places = replica.capacity.units().saturating_mul(self.slots);
            replica.waiting = Some(waiting.take().unwrap_or(0) + requests.saturating_sub(places));
            replica.in_flight = requests;
        }
        Observation {
            at: self.now,
            in_flight: if count == 0 { 0 } else { self.in_flight - outside },
            queued: self.queued + if count == 0 { self.in_flight } else { outside },
            oldest_wait: if outside > 0 { self.crowded } else { self.oldest_wait },
            promised: 0,
            replicas: self.replicas.clone(),
        }
    }

    /// One evaluation, and what comes of it.
    pub(crate) fn evaluate(&mut self, seen: &Observation) -> Plan {
        let plan = self.planner.tick(seen, &self.supply);
        let actions = reconcile(&plan.goal(), &seen.replicas, self.now, self.planner.sizing());
        for action in &actions {
            match action {
                Action::Start(offer) => self.add(Phase::Provisioning, offer.capacity.units()),
                Action::Drain(id) => self.set(*id, Phase::Draining),
                Action::Undrain(id) => self.set(*id, Phase::Ready),
                Action::Park(id) => self.set(*id, Phase::Parked),
                Action::Wake(id) => self.set(*id, Phase::Waking),
                Action::Stop(id) => self.replicas.retain(|replica| replica.id != *id),
            }
        }
        self.actions.extend(actions);
        plan
    }

    /// A second passes; starts that are done are ready; what drains is idle and goes.
    pub(crate) fn second(&mut self) -> Plan {
        self.pass_by(TICK)
    }

    pub(crate) fn pass_by(&mut self, step: Duration) -> Plan {
        self.now = self.now + step;
        self.finish_starts();
        let (now, lingers) = (self.now, self.lingers);
        let over = |replica: &&mut ReplicaFacts| {
            replica.phase == Phase::Draining && now.since(replica.since) >= lingers
        };
        for replica in self.replicas.iter_mut().filter(over) {
            (replica.in_flight, replica.load) = (0, None);
        }
        let mut seen = self.observe();
        self.crowded = if seen.queued > self.queued { self.crowded + step } else { Duration::ZERO };
        seen.oldest_wait = seen.oldest_wait.max(self.crowded);
        self.evaluate(&seen)
    }

    pub(crate) fn finish_starts(&mut self) {
        let (now, load) = (self.now, self.load);
        let done = |replica: &ReplicaFacts| replica.is_on_its_way() && now.since(replica.since) >= load;
        let done: Vec<ReplicaId> = self.replicas.iter().filter(|one| done(one)).map(|one| one.id).collect();
        for id in done {
            self.set(id, Phase::Ready);
            self.planner.became_ready();
        }
    }

    pub(crate) fn set(&mut self, id: ReplicaId, phase: Phase) {
        for replica in self.replicas.iter_mut().filter(|replica| replica.id == id) {
            (replica.phase, replica.since) = (phase, self.now);
        }
    }

    /// Seconds pass.
    pub(crate) fn pass(&mut self, seconds: u32) -> Plan {
        (0..seconds).map(|_| self.second()).last().unwrap()
    }

    /// Seconds that pass until something is done, and the evaluation that did it; at most an hour.
    pub(crate) fn until_action(&mut self) -> (u32, Plan) {
        let before = self.actions.len();
        for second in 1..=3600 {
            let plan = self.second();
            if self.actions.len() > before {
                return (second, plan);
            }
        }
        panic!("nothing is done within an hour; last: {}", self.second().why);
    }

    /// Ready or on their way.
    pub(crate) fn count(&self) -> u32 {
        Census::of(&self.replicas).current()
    }
}
