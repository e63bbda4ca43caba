//! How long a request would wait, who may wait at all, for how long, and what the others are told (Q1–Q3).

use tidegate_shared::decision::Refusal;
use tidegate_shared::replica::{Phase, Starts};
use tidegate_shared::request::{Priority, RequestFacts};
use tidegate_shared::time::{Duration, Instant};

use super::replica::Replica;
use super::{Dispatcher, Entry, Rejection, TicketId};

/// Failed starts in a row from which waiters are told instead of held.
const START_FAILURES_TOLD: u32 = 2;
/// What a refused client is told at least and at most (Q2).
pub(super) const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// What is told where nothing can be started, and nobody knows when that changes: as long as OpenAI's SDKs obey. Sooner
/// would be a promise.
pub const NOTHING_STARTS: Duration = Duration::from_secs(60);

/// Rounded up, so that clients that read `Retry-After` and clients that read `retry-after-ms` are told the same, and
/// come when they are expected.
fn whole_seconds(wait: Duration) -> Duration {
    Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
}

impl Dispatcher {
    /// Why the line is closed to this request, if it is.
    pub(super) fn closed(&self, now: Instant, facts: &RequestFacts, entry: Entry) -> Option<Refusal> {
        let told = self.born + self.limits.headroom <= now;
        if told && !self.startable {
            let since = self.cold_since + self.limits.headroom;
            match self.none_ready() {
                Refusal::CannotStart => return Some(Refusal::CannotStart),
                Refusal::Drained if since <= now => return Some(Refusal::Drained),
                _ => {}
            }
        }
        if self.replicas.ready() == 0
            && let Some((since, reason)) = self.nobody_fits()
            && since + self.limits.headroom <= now
        {
            return Some(reason);
        }
        let room = self.queue.yielding_to(facts.priority);
        if self.queue.len() - room.requests >= self.limits.queue_requests {
            return Some(Refusal::QueueFull);
        }
        if (self.queue.bytes() - room.bytes).saturating_add(facts.body_bytes) > self.limits.queue_bytes {
            return Some(Refusal::QueueBytes);
        }
        if entry.promised {
            return None;
        }
        let before = self.queue.ahead_of(facts.priority);
        let wait = self.measured_wait(now, facts.priority, before, entry.told)?;
        if self.replicas.ready() > 0 && wait > self.limits.headroom {
            return Some(Refusal::WouldWaitTooLong);
        }
        (now + wait > entry.start_by).then_some(Refusal::WouldMissDeadline)
    }

    /// Makes the line short enough for one more request, which it is not closed to: the last of those that are less
    /// urgent leave it (Q1). Each is told when to come back, and is not pushed out again when it does.
    pub(super) fn make_room(&mut self, now: Instant, facts: &RequestFacts) {
        while self.queue.len() >= self.limits.queue_requests
            || self.queue.bytes().saturating_add(facts.body_bytes) > self.limits.queue_bytes
        {
            let Some(ticket) = self.queue.first_to_yield(facts.priority) else { break };
            // It counts itself, in the place of the newcomer who goes before it.
            let before = self.queue.ahead_of(ticket.priority());
            self.turn_away(now, ticket, before, Refusal::PushedOut);
        }
    }

    /// Somebody leaves the line with a refusal.
    pub(super) fn turn_away(&mut self, now: Instant, ticket: TicketId, before: u32, reason: Refusal) {
        if let Some(waiter) = self.queue.leave(ticket) {
            let told = self.promises.expected_before(ticket.priority());
            let retry_after = self.retry_after(now, reason, ticket.priority(), (before, told));
            let rejection = Rejection { reason, retry_after };
            self.promise(now, &waiter.facts, ticket.arrived(), rejection);
            self.woken.push((ticket, Err(rejection)));
        }
    }

    /// Turns away whose client is gone by now, so that nobody is sent to a replica after its deadline.
    pub(super) fn turn_away_late(&mut self, now: Instant) {
        while let Some((_, ticket)) = self.queue.first_deadline().filter(|(due, _)| *due <= now) {
            let before = self.queue.before(ticket);
            self.turn_away(now, ticket, before, Refusal::MissedDeadline);
        }
    }

    /// How long until a request can start that stands behind `before` others of the line and `told` who were told to
    /// come back, by the measured drain; `None` while too little was measured.
    pub(super) fn measured_wait(
        &self,
        now: Instant,
        priority: Priority,
        before: u32,
        told: u32,
    ) -> Option<Duration> {
        self.wait_behind(now, priority, before, told, |count, places| self.drain.time_for(now, count, places))
    }

    /// What a client is told that is refused for `reason`, behind `before` others of the line and `told` who were told to
    /// come back.
    pub(super) fn retry_after(
        &self,
        now: Instant,
        reason: Refusal,
        priority: Priority,
        (before, told): (u32, u32),
    ) -> Duration {
        if matches!(reason, Refusal::CannotStart | Refusal::Drained) {
            return NOTHING_STARTS;
        }
        let drained = |count, places| {
            let measured = self.drain.time_for(now, count, places);
            measured.or_else(|| self.drain.guess_for(now, count, places))
        };
        let wait = self.wait_behind(now, priority, before, told, drained);
        let wait = wait.unwrap_or_else(|| self.cold_wait(now, priority, before, told, drained));
        whole_seconds(wait).clamp(RETRY_AFTER.0, RETRY_AFTER.1)
    }

    /// When the next replica can be ordered, as of an evaluation: nobody is told to come back sooner for it (Q2), and
    /// nobody is held for one that cannot be (C2). Where that does not pass by itself and nothing runs, whoever waits is
    /// told at once: each asked for the evaluation by coming.
    pub fn hold_starts(&mut self, now: Instant, starts: Starts) {
        match starts {
            Starts::From(from) => (self.starts_from, self.startless) = (from, None),
            Starts::Stalled | Starts::Blocked => drop(self.startless.get_or_insert(now)),
        }
        while starts == Starts::Blocked
            && self.is_bare()
            && let Some((_, ticket)) = self.queue.least_patient()
        {
            let before = self.queue.before(ticket);
            self.turn_away(now, ticket, before, Refusal::CannotStart);
        }
    }

    /// Whether nothing serves, or could without a start.
    fn is_bare(&self) -> bool {
        let leaves = |replica: &Replica| matches!(replica.phase, Phase::Draining | Phase::Failed);
        self.replicas.iter().all(leaves)
    }

    /// What is told where nothing can be measured against: nothing is ready, and when something is, is not known or not
    /// said. Who has a place on the first replica is told the soonest moment; the others stand behind, as in the line:
    /// at the pace that was measured once, or as if each request took the headroom.
    fn cold_wait(
        &self,
        now: Instant,
        priority: Priority,
        before: u32,
        told: u32,
        drained: impl Fn(u64, u64) -> Option<Duration>,
    ) -> Duration {
        let soonest = self.expected_ready(now).first().copied().unwrap_or_else(|| self.next_ready(now));
        let soonest = soonest.max(self.limits.headroom);
        if self.replicas.ready() > 0 || !self.startable {
            return soonest;
        }
        let places = u64::from(self.limits.concurrency.max(1));
        let behind = (u64::from(before) + u64::from(told) + 1).saturating_sub(places);
        let guess = || {
            let micros = self.limits.headroom.max(RETRY_AFTER.0).as_micros() * u128::from(behind);
            Duration::from_micros(u64::try_from(micros / u128::from(places)).unwrap_or(u64::MAX))
        };
        let behind = drained(behind, places).unwrap_or_else(guess);
        soonest.saturating_add(self.inflow.above(now, priority).stretch(behind, places))
    }

    /// How long until a replica that is yet to be ordered can be ready, as far as that is known; zero where one is on
    /// its way.
    fn next_ready(&self, now: Instant) -> Duration {
        if self.replicas.on_their_way() > 0 || !self.startable {
            return Duration::ZERO;
        }
        if self.replicas.iter().any(|replica| replica.phase == Phase::Parked) {
            return self.wake_took().unwrap_or_default();
        }
        self.starts_from.since(now).saturating_add(self.start_took.unwrap_or_default())
    }

    /// How long a parked replica takes to be ready: as the last one, or at worst as a start.
    fn wake_took(&self) -> Option<Duration> {
        self.wake_took.or(self.start_took)
    }

    /// A refusal is a promise to whoever first came at `arrived`.
    pub(super) fn promise(
        &mut self,
        now: Instant,
        facts: &RequestFacts,
        arrived: Instant,
        rejection: Rejection,
    ) {
        self.promises.make(facts.fingerprint, facts.priority, arrived, now + rejection.retry_after);
    }

    /// Until when somebody whose limit counts from `since` may wait, and what he is told then.
    pub(super) fn patience(&self, since: Instant) -> (Instant, Refusal) {
        let cold = since.max(self.cold_since);
        if self.replicas.ready() > 0 {
            (since.max(self.warm_since) + self.limits.headroom, Refusal::WaitedTooLong)
        } else if let Some((unfit_since, reason)) = self.nobody_fits() {
            // One moment for all: who comes later knows it at once, and nobody waits longer than he would have.
            let own = if self.startable { self.limits.cold_start } else { self.limits.headroom };
            ((unfit_since + self.limits.headroom).min(cold + own), reason)
        } else if !self.startable {
            (cold + self.limits.headroom, self.none_ready())
        } else if let Some(startless) = self.startless.filter(|_| self.replicas.on_their_way() == 0) {
            (since.max(startless) + self.limits.headroom, Refusal::CannotStart)
        } else if self.start_failures >= START_FAILURES_TOLD && self.replicas.on_their_way() == 0 {
            (since + self.limits.headroom, Refusal::StartFailed)
        } else {
            (cold + self.limits.cold_start, Refusal::ColdStartTooLong)
        }
    }

    /// The first replica is ready: who waited for it and finds no place waits for those behind it too, as far as it is known
    /// when they come, and not for the headroom alone (Q3, C6).
    pub(super) fn hold_for_the_next(&mut self, now: Instant) {
        if let Some(last) = self.expected_ready(now).last() {
            self.queue.hold(now + *last, self.limits.cold_start);
        }
    }

    /// One that was on its way is not any more: nobody is held for longer than until the last of the others is expected.
    pub(super) fn hold_no_longer(&mut self, now: Instant) {
        let last = self.expected_ready(now).last().copied().unwrap_or_default();
        self.queue.hold_no_longer(now + last);
    }

    /// What is told where nothing is ready and nothing is started: those that drain do not come back by themselves.
    fn none_ready(&self) -> Refusal {
        let mut leaves = self.replicas.iter().map(|replica| replica.phase == Phase::Draining);
        match leaves.next() {
            None => Refusal::CannotStart,
            Some(true) if leaves.all(|leaves| leaves) => Refusal::Drained,
            Some(_) => Refusal::NoReplica,
        }
    }

    /// How long until a request can start that stands behind `before` others of the line, `told` who were told to come
    /// back, and the more urgent ones that come meanwhile, as many as of late; `None` while that cannot be known.
    /// `drained` tells how long until so many requests have ended on so many places.
    fn wait_behind(
        &self,
        now: Instant,
        priority: Priority,
        before: u32,
        told: u32,
        drained: impl Fn(u64, u64) -> Option<Duration>,
    ) -> Option<Duration> {
        let places = u64::from(self.limits.concurrency);
        let above = self.inflow.above(now, priority);
        let drained = |count, places| Some(above.stretch(drained(count, places)?, places));
        let mut left = u64::from(before) + u64::from(told) + 1;
        let mut open = self.replicas.places();
        let mut passed = Duration::ZERO;
        for ready_in in self.expected_ready(now) {
            let until_then = ready_in - passed;
            if let Some(all) = drained(left, open) {
                if all <= until_then {
                    return Some(passed + all);
                }
                // What ends until then, in proportion; `all` is longer, so it is not zero.
                let ended = u128::from(left) * until_then.as_micros() / all.as_micros().max(1);
                left = left.saturating_sub(u64::try_from(ended).unwrap_or(u64::MAX));
            }
            passed = ready_in;
            if left <= places {
                return Some(passed);
            }
            left -= places;
            open += places;
        }
        Some(passed + drained(left, open)?)
    }

    /// When the replicas on their way can be expected to be ready, from now on, soonest first: they take as long as the
    /// last one of their kind took. One that is overdue is as far from being ready as it is overdue.
    fn expected_ready(&self, now: Instant) -> Vec<Duration> {
        let took = |replica: &Replica| match replica.phase {
            Phase::Waking => self.wake_took(),
            _ => self.start_took,
        };
        let mut expected: Vec<_> = self
            .replicas
            .coming()
            .filter_map(|replica| Some(replica.ordered + took(replica)?))
            .map(|ready| ready.since(now).max(now.since(ready)))
            .collect();
        expected.sort_unstable();
        expected
    }
}
