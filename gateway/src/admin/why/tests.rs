//! Each question with its numbers at none, one and many, and what comes first.

use tidegate_scaler::control::{ControlView, Outlook, Spending};
use tidegate_scaler_core::config::{Mode, Sizing};
use tidegate_shared::decision::{Rule, ScaleDecision, ScaleReason};
use tidegate_shared::demand::Observation;
use tidegate_shared::id::{DeploymentName, ReplicaId};
use tidegate_shared::offer::{Money, Offer, Price};
use tidegate_shared::replica::{Capacity, Phase, ReplicaFacts};
use tidegate_shared::time::{Duration, Instant};

use super::facts::Known;
use super::*;
use crate::pool::Recent;

const SECOND: Duration = Duration::from_secs(1);
const DOLLAR: u64 = 1_000_000;
fn now() -> Instant {
    Instant::ZERO + SECOND * 1000
}

/// A deployment that a test makes as it needs it.
struct Case {
    sizing: Sizing,
    sized: bool,
    seen: Observation,
    known: Vec<Known>,
    view: ControlView,
    spending: Spending,
    burn: Price,
    recent: Recent,
    start_took: Option<Duration>,
    drift: Option<String>,
    front: Option<(String, bool)>,
}

impl Case {
    /// So many ready replicas for 10 s, between 1 and 4; decided by `reason`: so many in progress need `needed`.
    fn new(ready: u32, demand: u32, needed: u32, reason: ScaleReason) -> Self {
        let seen = Observation { at: now(), in_flight: demand, ..Observation::default() };
        let decision = ScaleDecision {
            at: now(),
            rule: Rule::Concurrency,
            demand,
            queued: 0,
            promised: 0,
            oldest_wait: Duration::ZERO,
            load: None,
            engine_queue: 0,
            waiters: 0,
            current: ready,
            needed,
            target: ready,
            woken: 0,
            wanted: None,
            reason,
            also: Vec::new(),
        };
        let outlook = Outlook {
            check: Some(now() + SECOND * 12),
            offers: vec![offer("l40s", 1_350_000)],
            paid: true,
            ..Outlook::default()
        };
        let (newest, listed) = (Some(decision), Some(now()));
        let view = ControlView { newest, listed, outlook: Some(outlook), ..ControlView::default() };
        let mut this = Self {
            sizing: Sizing { min: 1, max: 4, ..Sizing::default() },
            sized: true,
            seen,
            known: Vec::new(),
            view,
            spending: Spending::default(),
            burn: Price::FREE,
            recent: Recent::default(),
            start_took: None,
            drift: None,
            front: None,
        };
        (0..ready).for_each(|_| this.add(Phase::Ready, 10));
        this
    }

    fn add(&mut self, phase: Phase, since_s: u32) {
        let id = ReplicaId(u32::try_from(self.seen.replicas.len()).unwrap() + 1);
        let since = now() - SECOND * since_s;
        self.seen.replicas.push(ReplicaFacts::new(id, phase, since, Capacity::ONE));
        self.known.push(Known::default());
    }

    /// So many percent of the memory are held, under the rule that goes by it.
    fn by_tokens(mut self, load: u32) -> Self {
        self.decide(|decision| (decision.rule, decision.load) = (Rule::TokenLoad, Some(load)));
        self
    }

    /// So much credit is left, which is more than nothing or keeps one more from being started.
    fn credit(&mut self, left: i128) {
        self.spending.credit = Some(Money(left));
        self.view.outlook.iter_mut().for_each(|outlook| outlook.broke = left <= 0);
    }

    fn decide(&mut self, change: impl FnOnce(&mut ScaleDecision)) {
        change(self.view.newest.as_mut().unwrap());
    }

    fn queue(mut self, queued: u32, oldest: Duration) -> Self {
        (self.seen.queued, self.seen.oldest_wait) = (queued, oldest);
        self.decide(|decision| (decision.queued, decision.oldest_wait) = (queued, oldest));
        self
    }

    fn answer(&self) -> WhyAnswer {
        answer(&Facts {
            name: &DeploymentName::new("chat"),
            sizing: &self.sizing,
            sized: self.sized,
            seen: &self.seen,
            replicas: &self.known,
            view: &self.view,
            spending: self.spending,
            burn: self.burn,
            listed: self.view.listed(now()),
            recent: &self.recent,
            start_took: self.start_took,
            drift: self.drift.clone(),
            front: self.front.clone(),
        })
    }

    fn finding(&self, line: Line) -> Finding {
        let found = self.answer().findings.into_iter().find(|finding| finding.line == line);
        found.unwrap_or_else(|| panic!("{line:?} is not among {:#?}", self.answer().findings))
    }

    #[track_caller]
    fn says(&self, line: Line, standing: Standing, text: &str) {
        let found = self.finding(line);
        assert_eq!((found.standing, found.text.as_str()), (standing, text));
    }
}

fn offer(name: &str, price: u64) -> Offer {
    Offer::new(name, Capacity::ONE, Price(price))
}

#[test]
fn e2_not_grown_yet_tells_the_checks_that_agree_and_the_time_of_the_next() {
    let case = |seen, of| Case::new(3, 40, 4, ScaleReason::Confirming { seen, of }).by_tokens(80);
    let needs = "the replicas' memory is 80 % full, which needs 4 replicas, and 3 are there or on the way";
    let (line, so) = (Line::NoNewReplica, Standing::Now);
    case(1, 2).says(
        line,
        so,
        &format!(
            "{needs}; confirmed by 1 of 2 checks: the next check, in 12 s, adds replicas if it finds the same"
        ),
    );
    case(0, 2).says(
        line,
        so,
        &format!("{needs}; confirmed by 0 of 2 checks: it takes 2 checks, the next in 12 s, then every 30 s"),
    );
    let burst = case(1, 2).finding(line).advice.unwrap();
    assert!(burst.ends_with("a request that waits 1.0 s here at once"), "{burst}");
    let mut jobs = Case::new(1, 5, 2, ScaleReason::Confirming { seen: 0, of: 1 });
    jobs.decide(|decision| decision.rule = Rule::Jobs);
    jobs.says(
        line,
        so,
        "5 jobs now, and the mean of the last 30 s needs 2 replicas, and 1 is there or on the way; the next check, in 12 s, adds replicas if it finds the same",
    );
    Case::new(1, 1, 1, ScaleReason::Steady).queue(1, SECOND / 2).says(
        line,
        so,
        "1 request waits, for 0.5 s so far; one that waits 1.0 s asks for one more at once",
    );
    let mut ordered = Case::new(1, 40, 2, ScaleReason::Demand);
    ordered.decide(|decision| decision.target = 2);
    ordered.says(line, so, "40 in progress need 2 replicas: 1 more is ordered now");
    Case::new(1, 3, 1, ScaleReason::Steady).says(
        line,
        Standing::No,
        "3 in progress need 1 replica, and 1 is there or on the way",
    );
}

#[test]
fn e2_at_max_tells_max_load_queue_and_need() {
    let mut case = Case::new(2, 109, 4, ScaleReason::AtMax).queue(12, SECOND * 3 / 2);
    case.sizing.max = 2;
    let line = Line::AtMax;
    case.says(
        line,
        Standing::Now,
        "max is 2 and 2 are there, while 109 in progress (12 of them queued) need 4 replicas; 12 requests wait, the oldest for 1.5 s",
    );
    assert_eq!(case.finding(line).advice.as_deref(), Some("raise max"));
    case.sizing.price_cap = Some(Price(DOLLAR));
    assert_eq!(case.finding(line).advice.as_deref(), Some("raise max; each one more may cost up to $1.00/h"));
    case.sizing.max = 4;
    case.says(line, Standing::No, "max is 4 and 2 are there, 2 may be added");
    let mut served = Case::new(2, 97, 4, ScaleReason::AtMax);
    (served.sizing.max, served.seen.in_flight) = (2, 0);
    served.says(
        line,
        Standing::Ahead,
        "max is 2 and 2 are there, while 97 in progress need 4 replicas; nobody waits",
    );
    assert_eq!(served.finding(line).question, "Stuck at max while more is needed");
    let mut sent_away = Case::new(2, 42, 21, ScaleReason::AtMax);
    (sent_away.sizing.max, sent_away.seen.in_flight, sent_away.seen.promised) = (2, 9, 33);
    sent_away.decide(|decision| decision.promised = 33);
    sent_away.says(
        line,
        Standing::Now,
        "max is 2 and 2 are there, while 42 in progress (33 told to come back) need 21 replicas; nobody waits here, but 33 were refused and told to come back",
    );
    assert_eq!(sent_away.finding(line).question, "Stuck at max while clients are told to come back");
    let now = sent_away.answer().now;
    assert!(now.ends_with("; 9 in flight, 0 queued, 33 told to come back"), "{now}");
    let both = sent_away.queue(1, SECOND);
    assert_eq!(both.finding(line).question, "Stuck at max while queues grow");
    let told = both.finding(line).text;
    assert!(told.contains("(1 of them queued, 33 told to come back) need 21"), "{told}");
    assert!(told.ends_with("; 1 request waits, for 1.0 s so far, and 33 were refused and told to come back"));
    let mut one = Case::new(1, 2, 1, ScaleReason::Steady).queue(1, SECOND);
    one.sizing.max = 1;
    one.says(
        line,
        Standing::Now,
        "max is 1 and 1 is there, and it is full; 1 request waits, for 1.0 s so far",
    );
    let mut calm = Case::new(1, 2, 1, ScaleReason::Steady);
    calm.sizing.max = 1;
    calm.says(line, Standing::No, "max is 1 and 1 is there, which is enough: 2 in progress need 1 replica");
    let mut fixed = Case::new(1, 2, 1, ScaleReason::Steady).queue(2, SECOND);
    (fixed.sized, fixed.view) = (false, ControlView::default());
    fixed.says(
        line,
        Standing::Now,
        "1 of 1 replica of a fixed fleet is ready; 2 requests wait, the oldest for 1.0 s",
    );
}

#[test]
fn e2_a_fleet_that_stays_tells_its_floor_its_time_of_quiet_or_its_survivors() {
    let (line, so) = (Line::WontDrop, Standing::Normal);
    let mut case = Case::new(2, 0, 0, ScaleReason::AtMin);
    case.sizing.min = 2;
    case.says(line, so, "min is 2: nothing is in progress, so fewer would do");
    (case.sizing.min, case.sizing.mode) = (0, Mode::Active);
    case.says(line, so, "mode is active, which keeps 1: nothing is in progress, so fewer would do");
    let survivors = Case::new(2, 9, 2, ScaleReason::Survivors { percent: 80 }).by_tokens(40);
    survivors.says(
        line,
        so,
        "the replicas' memory is 40 % full, which needs 2 replicas, and 2 are there: without one, the others would be 80 % full, and they must stay under 55 %",
    );
    let cooling = |window, to| ScaleReason::Cooling { low_for: SECOND * 40, window: SECOND * window, to };
    Case::new(2, 1, 1, cooling(150, 1)).by_tokens(20).says(
        line,
        so,
        "the replicas' memory is 20 % full, which needs 1 replica, and 2 are there: it shrinks to 1 in 1 m 50 s if it stays so",
    );
    Case::new(3, 1, 1, cooling(41, 2)).says(
        line,
        so,
        "1 in progress needs 1 replica, and 3 are there: it shrinks to 2 in 1 s if it stays so",
    );
    let mut busy = Case::new(3, 9, 2, ScaleReason::Steady).by_tokens(35);
    busy.seen.replicas[1].waiting = Some(1);
    busy.says(
        line,
        so,
        "the replicas' memory is 35 % full, which needs 2 replicas, and 3 are there: 1 request waits here or inside the engines, and one is let go only while nothing waits",
    );
    let mut all = Case::new(2, 33, 2, ScaleReason::Steady);
    all.says(
        line,
        Standing::No,
        "33 in progress need 2 replicas, and 2 are there or on the way: none is to spare",
    );
    all.add(Phase::Draining, 5);
    all.seen.replicas[2].in_flight = 1;
    assert_eq!(all.finding(line).details, ["chat-3 drains since 5.0 s: 1 request to finish, at most 30 m"]);
    Case::new(0, 0, 0, ScaleReason::Steady).says(line, Standing::No, "there is none");
    Case::new(1, 0, 0, ScaleReason::AutoscaleOff).says(line, so, "scaling is switched off, and min is 1");
}

#[test]
fn e2_fewer_than_expected_tells_who_is_on_the_way_and_the_step() {
    let mut case = Case::new(1, 97, 4, ScaleReason::OnTheirWay { count: 1 });
    case.add(Phase::Starting, 12);
    let line = Line::FewerAdded;
    case.says(
        line,
        Standing::Now,
        "1 is on its way (chat-2 since 12 s) and counts towards the 4 that are wanted",
    );
    assert_eq!(case.finding(line).question, "Fewer replicas added than expected");
    case.add(Phase::Provisioning, 3);
    case.start_took = Some(SECOND * 34);
    case.known[1].trouble = Some("the model loads".to_owned());
    let mut stepped = case;
    stepped.decide(|decision| (decision.rule, decision.load) = (Rule::TokenLoad, Some(99)));
    stepped.says(
        line,
        Standing::Now,
        "2 are on their way (chat-2 since 12 s and chat-3 since 3.0 s) and count towards the 4 that are wanted; at most 2 are added at a check, the next in 12 s",
    );
    let found = stepped.finding(line);
    assert_eq!(found.advice.as_deref(), Some("wait until they are ready; the last start took 34 s"));
    assert_eq!(found.details, ["chat-2: the model loads"]);
    let mut cold = Case::new(0, 14, 1, ScaleReason::OnTheirWay { count: 1 });
    cold.add(Phase::Starting, 2);
    assert_eq!(cold.finding(line).question, "Replicas are starting");
    let none = Case::new(1, 1, 1, ScaleReason::Steady);
    none.says(line, Standing::No, "none is on its way");
    none.by_tokens(10).says(line, Standing::No, "none is on its way, and at most 2 are added at a check");
}

mod blocked;
mod idle;
mod line;
mod order;
mod trouble;
