//! The load of one replica in tokens (R8): what its engine last reported, plus what was sent since, minus what ended
//! since; and without a fresh report, what is in progress by the gateway's own account.
//!
//! Nobody knows at which moment between question and answer an engine looked. A request that was sent between them counts on
//! top while it runs, so that the load is rather over- than underestimated; once it has ended it must be in neither, or
//! a replica that does nothing looks busy until the next report, and others get its share. For the same reason what is
//! left of a report when all is over that can be in it counts for nothing where it is within the error of an estimate, or
//! where the engine told of no more requests than this gateway had there.
//!
//! Every charge is released exactly. Knows one replica and no policy.

use tidegate_shared::replica::EngineReport;
use tidegate_shared::request::Tokens;
use tidegate_shared::time::{Duration, Instant};

/// A report older than this says nothing about now (G2).
const STALE: Duration = Duration::from_secs(5);
/// One part in so many of what has ended is within the error of its estimate.
const ERROR: u64 = 16;

/// What one request holds on a replica. Given back to [`Ledger::release`] exactly once.
#[derive(Debug, PartialEq, Eq)]
pub struct Charge {
    tokens: u64,
    at: Instant,
}

impl Charge {
    /// Tokens held.
    pub fn tokens(&self) -> Tokens {
        Tokens(self.tokens)
    }
}

/// What happened since an engine was asked: of the requests in progress, tokens of those sent after that; and tokens of
/// those that have ended, sent before it, or between question and answer.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    at: Instant,
    /// When it answered; [`Instant::NEVER`] until then.
    told: Instant,
    sent: u64,
    ended: u64,
    ended_between: u64,
    /// Requests in progress when it answered.
    seen: u32,
}

impl Since {
    fn begin(at: Instant) -> Self {
        Self { at, told: Instant::NEVER, sent: 0, ended: 0, ended_between: 0, seen: 0 }
    }

    /// Whether the engine tells of no more requests than this gateway had there.
    fn is_all(&self, report: &EngineReport) -> bool {
        report.running.is_some_and(|running| running.saturating_add(report.waiting.unwrap_or(0)) <= self.seen)
    }

    fn add(&mut self, charge_at: Instant, tokens: u64) {
        if charge_at >= self.at {
            self.sent += tokens;
        }
    }

    fn release(&mut self, charge: &Charge) {
        if charge.at >= self.at {
            self.sent = self.sent.saturating_sub(charge.tokens);
            if charge.at <= self.told {
                self.ended_between += charge.tokens;
            }
        } else {
            self.ended += charge.tokens;
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    in_flight: u32,
    /// Requests that were ever sent.
    sent: u64,
    /// Tokens of the requests in progress.
    own: u64,
    report: Option<EngineReport>,
    since: Since,
    /// Since the engine was asked for the report that has not come yet.
    asked: Option<Since>,
}

impl Ledger {
    /// A request of `tokens` is sent.
    pub fn charge(&mut self, now: Instant, tokens: Tokens) -> Charge {
        self.in_flight += 1;
        self.sent += 1;
        let charge = Charge { tokens: tokens.0, at: now };
        self.add(now, tokens.0);
        charge
    }

    /// A request in progress turns out to take `more` tokens than it was charged for.
    pub fn grow(&mut self, charge: &mut Charge, more: Tokens) {
        charge.tokens += more.0;
        self.add(charge.at, more.0);
    }

    /// A request ended.
    pub fn release(&mut self, charge: &Charge) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.own = self.own.saturating_sub(charge.tokens);
        self.since.release(charge);
        if let Some(asked) = &mut self.asked {
            asked.release(charge);
        }
    }

    /// The engine is asked for a report now.
    pub fn ask(&mut self, now: Instant) {
        self.asked = Some(Since::begin(now));
    }

    /// It answered. An answer to a question that is not known, or was forgotten meanwhile, is dropped: nobody kept what
    /// was sent since, and what it tells may be of an engine that is no more. The next question is soon asked.
    pub fn report(&mut self, now: Instant, mut report: EngineReport) {
        let Some(mut since) = self.asked.take() else { return };
        (since.told, since.seen) = (now, self.in_flight);
        report.asked = since.at;
        self.since = since;
        self.report = Some(report);
    }

    /// The engine is not what it was: nothing that it said counts any more.
    pub fn forget(&mut self) {
        (self.report, self.asked) = (None, None);
    }

    /// Requests in progress, by the gateway's own account.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Requests that were ever sent, those that have ended included.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// The load.
    pub fn load(&self, now: Instant) -> Tokens {
        match self.fresh(now).and_then(|report| Some((report, report.kv_used?))) {
            Some((report, used)) => Tokens(self.left_of(report, used.0) + self.since.sent),
            None => Tokens(self.own),
        }
    }

    /// What is left of a report's load. Those sent between question and answer may not have been in it; then their ends
    /// take nothing from what still runs of those before.
    fn left_of(&self, report: &EngineReport, used: u64) -> u64 {
        let Since { sent, ended, ended_between, .. } = self.since;
        let running = self.own.saturating_sub(sent);
        let left = used.saturating_sub(ended);
        let sure = left.saturating_sub(ended_between).max(left.min(running));
        let error = (ended + ended_between) / ERROR;
        let over = running == 0 && (sure <= error || self.since.is_all(report));
        if over { 0 } else { sure }
    }

    /// What the replica can hold, if its engine ever told; that does not age.
    pub fn capacity(&self) -> Option<Tokens> {
        self.report.and_then(|report| report.kv_capacity).filter(|capacity| capacity.0 > 0)
    }

    /// The last report, unless it is stale or there was none.
    pub fn fresh(&self, now: Instant) -> Option<&EngineReport> {
        self.report.as_ref().filter(|report| now.since(report.asked) <= STALE)
    }

    /// From when the last report's load is too old to count; `None` where it counts no more, or never did.
    pub fn stale_from(&self, now: Instant) -> Option<Instant> {
        let told = self.fresh(now).filter(|report| report.kv_used.is_some())?;
        Some(told.asked + STALE + Duration::from_micros(1))
    }

    fn add(&mut self, charge_at: Instant, tokens: u64) {
        self.own += tokens;
        self.since.add(charge_at, tokens);
        if let Some(asked) = &mut self.asked {
            asked.add(charge_at, tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    fn used(tokens: u64) -> EngineReport {
        EngineReport {
            kv_used: Some(Tokens(tokens)),
            kv_capacity: Some(Tokens(10_000)),
            ..EngineReport::default()
        }
    }

    #[test]
    fn r8_what_was_sent_counts_at_once_and_what_ended_no_more() {
        let mut ledger = Ledger::default();
        let early = ledger.charge(ms(0), Tokens(100));
        assert_eq!(ledger.load(ms(1)), Tokens(100), "no report: the gateway's own account");
        ledger.ask(ms(10));
        let between = ledger.charge(ms(11), Tokens(50));
        ledger.report(ms(12), used(700));
        assert_eq!(ledger.load(ms(12)), Tokens(750), "somebody else uses the engine too");
        ledger.release(&early);
        assert_eq!(ledger.load(ms(13)), Tokens(650));
        ledger.release(&between);
        assert_eq!(
            (ledger.load(ms(14)), ledger.in_flight()),
            (Tokens(550), 0),
            "it was in the report, or not"
        );
    }

    #[test]
    fn r8_a_request_that_was_larger_than_estimated_leaves_nothing_behind_where_it_was_alone() {
        for (running, left) in [(Some(1), 0), (Some(2), 250), (None, 250)] {
            let mut ledger = Ledger::default();
            let only = ledger.charge(ms(0), Tokens(50));
            ledger.ask(ms(1));
            ledger.report(ms(2), EngineReport { running, ..used(300) });
            assert_eq!(ledger.load(ms(2)), Tokens(300));
            ledger.release(&only);
            assert_eq!(ledger.load(ms(3)), Tokens(left), "{running:?} were running");
        }
    }

    #[test]
    fn r8_what_another_gateway_has_there_stays_though_our_own_ended_while_the_engine_was_asked() {
        let mut ledger = Ledger::default();
        let ours = ledger.charge(ms(0), Tokens(50));
        ledger.ask(ms(1));
        ledger.release(&ours);
        ledger.report(ms(3), EngineReport { running: Some(1), ..used(300) });
        assert!(ledger.load(ms(3)) >= Tokens(250), "{:?}", ledger.load(ms(3)));
    }

    #[test]
    fn r8_what_came_and_went_while_the_engine_was_asked_leaves_nothing_behind() {
        for (seen, ends) in [(206, 5), (206, 15), (0, 5), (0, 15)] {
            let mut ledger = Ledger::default();
            ledger.ask(ms(0));
            let charge = ledger.charge(ms(1), Tokens(200));
            let mut report = Some(used(seen));
            if ends > 10 {
                report.take().into_iter().for_each(|report| ledger.report(ms(10), report));
                assert_eq!(ledger.load(ms(11)), Tokens(200 + seen), "rather too much while it runs");
            }
            ledger.release(&charge);
            report.into_iter().for_each(|report| ledger.report(ms(10), report));
            assert_eq!(ledger.load(ms(20)), Tokens(0), "{seen} seen, ended after {ends} ms");
            let later = ledger.charge(ms(21), Tokens(300));
            assert_eq!(ledger.load(ms(22)), Tokens(300));
            ledger.release(&later);
            assert_eq!(ledger.load(ms(23)), Tokens(0));
        }
    }

    #[test]
    fn r8_its_end_takes_nothing_from_those_that_still_run() {
        let mut ledger = Ledger::default();
        let long = ledger.charge(ms(0), Tokens(400));
        ledger.ask(ms(10));
        let short = ledger.charge(ms(11), Tokens(300));
        ledger.release(&short);
        ledger.report(ms(20), used(400));
        assert_eq!(ledger.load(ms(21)), Tokens(400));
        ledger.release(&long);
        assert_eq!(ledger.load(ms(22)), Tokens(0));
    }

    #[test]
    fn g2_a_stale_report_is_no_report_and_a_missing_figure_is_not_zero() {
        let mut ledger = Ledger::default();
        let charge = ledger.charge(ms(0), Tokens(100));
        ledger.ask(ms(1));
        ledger.report(ms(2), used(700));
        assert_eq!(ledger.load(ms(5001)), Tokens(700));
        assert_eq!(ledger.load(ms(5002)), Tokens(100));
        ledger.ask(ms(7000));
        ledger.report(ms(7001), EngineReport::default());
        assert_eq!(ledger.load(ms(7001)), Tokens(100));
        ledger.release(&charge);
        assert_eq!(ledger.load(ms(7002)), Tokens(0));
    }

    #[test]
    fn r8_an_answer_that_comes_after_its_question_was_forgotten_hides_nothing_that_was_sent() {
        let mut ledger = Ledger::default();
        ledger.ask(ms(0));
        ledger.report(ms(1), used(700));
        ledger.ask(ms(10));
        let charge = ledger.charge(ms(11), Tokens(100));
        ledger.forget();
        ledger.report(ms(12), EngineReport { asked: ms(10), ..used(0) });
        assert_eq!((ledger.load(ms(13)), ledger.capacity()), (Tokens(100), None));
        ledger.ask(ms(1010));
        ledger.report(ms(1011), used(120));
        assert_eq!((ledger.load(ms(1012)), ledger.capacity()), (Tokens(120), Some(Tokens(10_000))));
        ledger.release(&charge);
        assert_eq!(ledger.load(ms(1013)), Tokens(20), "somebody else's");
    }

    #[test]
    fn r8_a_growing_answer_counts_and_is_released_whole() {
        let mut ledger = Ledger::default();
        let mut charge = ledger.charge(ms(0), Tokens(100));
        ledger.grow(&mut charge, Tokens(64));
        assert_eq!(ledger.load(ms(1)), Tokens(164));
        ledger.release(&charge);
        assert_eq!(ledger.load(ms(1)), Tokens(0));
    }

    proptest! {
        /// Whatever is sent, grown, reported and ended, in whatever order: when nothing is in progress, the own account
        /// is zero, and what is on top of the report is never negative.
        #[test]
        fn q5_the_account_is_exact(ops in prop::collection::vec((0u8..5, 1u32..500), 1..200)) {
            let mut ledger = Ledger::default();
            let mut charges = Vec::new();
            for (step, (op, n)) in ops.into_iter().enumerate() {
                let (at, n) = (n as usize, u64::from(n));
                let now = ms(step as u64 * 100);
                match op {
                    0 => charges.push(ledger.charge(now, Tokens(n))),
                    1 if !charges.is_empty() => {
                        let at = at % charges.len();
                        ledger.grow(&mut charges[at], Tokens(n));
                    }
                    2 if !charges.is_empty() => ledger.release(&charges.swap_remove(at % charges.len())),
                    3 => ledger.ask(now),
                    4 => ledger.report(now, used(n)),
                    _ => {}
                }
                let own: u64 = charges.iter().map(|charge| charge.tokens().0).sum();
                prop_assert_eq!(ledger.own, own);
                prop_assert_eq!(ledger.in_flight() as usize, charges.len());
                prop_assert!(ledger.since.sent <= own);
            }
            charges.drain(..).for_each(|charge| ledger.release(&charge));
            prop_assert_eq!((ledger.own, ledger.since.sent, ledger.in_flight()), (0, 0, 0));
        }
    }
}
