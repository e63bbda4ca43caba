//! The planner on the numbers of the specification, one story a test.

use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::ReplicaFacts;

use super::*;
use crate::config::Mode;

mod blocks;
mod cases;
pub(super) mod fleet;
mod held;
mod jobs;
mod queues;
mod room;
mod tokens;
mod unasked;

/// A planner, a fleet that does at once what it is told, and a clock that the test turns.
struct Story {
    planner: Planner,
    now: Instant,
    ready: u32,
    starting: u32,
    draining: u32,
}

impl Story {
    fn new(sizing: Sizing, ready: u32) -> Self {
        let now = Instant::from_micros(3_600_000_000);
        Self { planner: Planner::new(sizing, now), now, ready, starting: 0, draining: 0 }
    }

    fn observation(&self, in_flight: u32, queued: u32, oldest_wait: Duration) -> Observation {
        let phases =
            [(Phase::Ready, self.ready), (Phase::Starting, self.starting), (Phase::Draining, self.draining)];
        let phases = phases.iter().flat_map(|&(phase, count)| (0..count).map(move |_| phase));
        let replicas = (1..)
            .zip(phases)
            .map(|(id, phase)| ReplicaFacts::new(ReplicaId(id), phase, Instant::ZERO, Capacity::ONE));
        Observation {
            at: self.now,
            in_flight,
            queued,
            oldest_wait,
            replicas: replicas.collect(),
            ..Observation::default()
        }
    }

    fn tick(&mut self, in_flight: u32, queued: u32) -> Plan {
        self.tick_waiting(in_flight, queued, Duration::ZERO)
    }

    fn tick_waiting(&mut self, in_flight: u32, queued: u32, oldest_wait: Duration) -> Plan {
        self.planner.tick(&self.observation(in_flight, queued, oldest_wait), &plenty())
    }

    /// Ticks `seconds` times, a second before each, and follows the plans with ready replicas. The load falls when
    /// the first tick shows it, so a window is whole one tick after its length.
    fn pass(&mut self, seconds: u64, in_flight: u32) -> Plan {
        let mut last = None;
        for _ in 0..seconds {
            self.now = self.now + TICK;
            let plan = self.tick(in_flight, 0);
            self.ready = plan.target;
            last = Some(plan);
        }
        last.expect("at least one second")
    }
}

/// As many as anybody wants, for nothing.
fn plenty() -> Supply {
    Supply { offers: vec![Offer::new("any", Capacity::ONE, Price::FREE)], ..Supply::default() }
}

fn sizing(min: u32, max: u32) -> Sizing {
    Sizing { min, max, ..Sizing::default() }
}

#[test]
fn a2_97_in_flight_at_32_want_4_replicas_at_once() {
    let plan = Story::new(sizing(0, 8), 1).tick(97, 0);
    assert_eq!((plan.target, plan.why.needed, plan.why.current), (4, 4, 1));
    assert_eq!(plan.why.reason, ScaleReason::Demand);
    assert_eq!(plan.orders.len(), 3);
}

#[test]
fn a2_evaluated_each_second() {
    let mut story = Story::new(sizing(0, 8), 1);
    assert_eq!(story.tick(1, 0).next, story.now + Duration::from_secs(1));
}

#[test]
fn a6_max_and_the_house_limit_bound_the_target() {
    let plan = Story::new(sizing(0, 3), 1).tick(97, 0);
    assert_eq!((plan.target, plan.why.needed, plan.why.reason), (3, 4, ScaleReason::AtMax));
    let plan = Story::new(sizing(0, 1000), 1).tick(1_000_000, 0);
    assert_eq!((plan.target, plan.why.reason), (32, ScaleReason::AtMax));
}

#[test]
fn a6_a_fleet_over_its_max_is_brought_back() {
    let plan = Story::new(sizing(0, 2), 4).tick(97, 0);
    assert_eq!((plan.target, plan.why.reason), (2, ScaleReason::AtMax));
}

#[test]
fn q3_one_waiter_starts_a_fleet_from_zero() {
    let mut story = Story::new(sizing(0, 4), 0);
    assert_eq!(story.tick(0, 0).why.reason, ScaleReason::Steady);
    let plan = story.tick(0, 1);
    assert_eq!((plan.target, plan.why.reason), (1, ScaleReason::FromZero));
    story.starting = 1;
    let plan = story.tick_waiting(0, 1, Duration::from_secs(100));
    assert_eq!((plan.target, plan.why.reason), (1, ScaleReason::OnTheirWay { count: 1 }));
}

#[test]
fn a3_a_long_wait_orders_one_more_and_only_one() {
    let mut story = Story::new(sizing(0, 8), 1);
    let plan = story.tick_waiting(10, 1, Duration::from_millis(1000));
    assert_eq!((plan.target, plan.why.reason), (2, ScaleReason::QueueWait));
    story.starting = 1;
    for wait in 2..120 {
        story.now = story.now + TICK;
        assert_eq!(story.tick_waiting(10, 1, Duration::from_secs(wait)).target, 2);
    }
}

#[test]
fn a4_down_after_the_whole_window_to_its_largest_need() {
    let mut story = Story::new(sizing(0, 8), 4);
    story.pass(60, 97);
    story.pass(10, 70);
    let plan = story.pass(20, 10);
    assert_eq!(plan.target, 4);
    let window = Duration::from_secs(30);
    assert_eq!(plan.why.reason, ScaleReason::Cooling { low_for: window - TICK, window, to: 3 });
    let plan = story.pass(1, 10);
    assert_eq!((plan.target, plan.why.reason), (3, ScaleReason::LowDemand));
    assert_eq!(story.pass(9, 10).target, 3);
    assert_eq!([story.pass(1, 10).target, story.pass(1, 10).target], [2, 1], "one at each evaluation");
    assert_eq!(story.pass(300, 10).why.reason, ScaleReason::Steady);
}

#[test]
fn a4_nothing_goes_while_anybody_waits_and_for_a_window_after() {
    let mut story = Story::new(sizing(0, 8), 3);
    story.pass(60, 10);
    story.ready = 3;
    for _ in 0..100 {
        story.now = story.now + TICK;
        assert_eq!(story.tick_waiting(10, 1, Duration::from_millis(10)).target, 3);
    }
    assert_eq!(story.pass(30, 10).target, 3);
    assert_eq!(story.pass(1, 10).target, 2);
    story.now = story.now + TICK;
    assert_eq!(story.tick(10, 1).target, 2, "what comes of one removal keeps the next");
}

#[test]
fn a4_who_queued_below_the_target_is_not_left_to_fewer_again_and_is_told() {
    let mut story = Story::new(sizing(0, 8), 1);
    story.pass(60, 5);
    assert_eq!(story.tick_waiting(5, 4, Duration::from_secs(1)).target, 2);
    story.ready = 3;
    let plan = story.pass(600, 9);
    let reason = ScaleReason::QueuedBefore { replicas: 1, in_flight: 5, ago: TICK * 600, most: 8 };
    assert_eq!((plan.target, plan.why.needed, plan.why.reason), (3, 1, reason));
    assert_eq!(story.pass(40, 8).target, 2, "four fifths of what was carried");
    assert_eq!(story.pass(3600, 4).target, 1);
}

#[test]
fn a4_a_constant_load_is_tried_after_two_hours_one_at_a_time_and_the_day_has_few_tries() {
    let mut story = Story::new(sizing(0, 8), 3);
    let (mut changes, mut before) = (Vec::new(), 3);
    for second in 0..86_400u32 {
        story.now = story.now + TICK;
        // A replica carries 5.
        let queued = 13u32.saturating_sub(story.ready * 5);
        let wait = if queued > 0 { TICK } else { Duration::ZERO };
        story.ready = story.tick_waiting(13 - queued, queued, wait).target;
        if story.ready != before {
            changes.push((second, before, story.ready));
            before = story.ready;
        }
    }
    let hours: Vec<_> = changes.iter().map(|(second, from, to)| (second / 3600, *from, *to)).collect();
    let tries = [0, 2, 6, 14].map(|hour| [(hour, 3, 2), (hour, 2, 3)]);
    assert_eq!(hours[..], tries.concat(), "{changes:?}");
}

#[test]
fn a4_29_s_low_then_a_touch_then_low_begins_the_window_again() {
    let mut story = Story::new(sizing(0, 8), 2);
    story.pass(60, 33);
    story.pass(29, 1);
    assert_eq!(story.pass(1, 33).why.reason, ScaleReason::Steady);
    assert_eq!(story.pass(30, 1).target, 2);
    assert_eq!(story.pass(1, 1).target, 1);
}

#[test]
fn a5_flex_goes_to_zero_and_active_never_does() {
    let mut flex = Story::new(sizing(0, 4), 2);
    flex.pass(40, 40);
    assert_eq!(flex.pass(31, 0).target, 1);
    let plan = flex.pass(1, 0);
    assert_eq!((plan.target, plan.why.reason), (0, ScaleReason::Idle));

    let active = Sizing { mode: Mode::Active, window: Mode::Active.window(), ..sizing(0, 4) };
    let mut active = Story::new(active, 2);
    active.pass(130, 40);
    assert_eq!(active.pass(120, 0).target, 2);
    assert_eq!(active.pass(1, 0).target, 1);
    assert_eq!(active.pass(600, 0).why.reason, ScaleReason::AtMin);
}

#[test]
fn c1_min_is_a_floor_and_autoscale_off_holds_it() {
    let plan = Story::new(sizing(2, 4), 0).tick(0, 0);
    assert_eq!((plan.target, plan.why.reason), (2, ScaleReason::BelowMin));

    let off = Sizing { autoscale: false, ..sizing(2, 4) };
    for (ready, in_flight) in [(0, 0), (1, 500), (2, 500), (4, 0)] {
        let plan = Story::new(off.clone(), ready).tick(in_flight, 0);
        assert_eq!((plan.target, plan.why.reason), (2, ScaleReason::AutoscaleOff));
    }
}

#[test]
fn c1_a_dead_replica_is_replaced_and_the_reason_says_so() {
    let mut story = Story::new(sizing(2, 4), 2);
    assert_eq!(story.tick(1, 0).why.reason, ScaleReason::AtMin);
    story.ready = 1;
    for _ in 0..3 {
        let plan = story.tick(1, 0);
        assert_eq!((plan.target, plan.why.reason), (2, ScaleReason::Replacing));
    }
    story.starting = 1;
    assert_eq!(story.tick(1, 0).why.reason, ScaleReason::OnTheirWay { count: 1 });
    (story.ready, story.starting) = (2, 0);
    assert_eq!(story.tick(97, 0).why.reason, ScaleReason::Demand);
}

#[test]
fn c1_one_that_dies_during_cooling_is_replaced_and_a_shrink_comes_after_its_window() {
    let mut story = Story::new(sizing(0, 4), 3);
    story.tick(96, 0);
    assert!(matches!(story.tick(1, 0).why.reason, ScaleReason::Cooling { .. }));
    // Two at once, as with a machine.
    story.ready = 1;
    let plan = story.tick(1, 0);
    assert_eq!((plan.target, plan.orders.len(), plan.why.reason), (3, 2, ScaleReason::Replacing));
    (story.ready, story.starting) = (1, 2);
    let plan = story.tick(1, 0);
    assert_eq!((plan.target, plan.why.reason), (3, ScaleReason::OnTheirWay { count: 2 }));
    let plan = story.tick(1, 0);
    assert_eq!(plan.target, 3);
    assert!(matches!(plan.why.reason, ScaleReason::Cooling { .. }), "{:?}", plan.why.reason);
    (story.ready, story.starting) = (3, 0);
    assert_eq!(story.pass(60, 1).target, 1, "it shrinks by its own rule");
}

#[test]
fn c1_failed_starts_pause_growth_until_one_is_ready() {
    let mut story = Story::new(sizing(0, 4), 0);
    story.planner.start_failed(story.now);
    let plan = story.tick(0, 1);
    assert_eq!((plan.target, plan.orders.len()), (1, 0));
    assert_eq!(plan.why.reason, ScaleReason::BackingOff { failures: 1, retry_in: TICK });
    story.now = plan.next;
    assert_eq!(story.tick(0, 1).orders.len(), 1);

    story.planner.start_failed(story.now);
    let plan = story.tick(0, 1);
    assert_eq!(plan.why.reason, ScaleReason::BackingOff { failures: 2, retry_in: TICK * 2 });
    story.now = story.now + Duration::from_millis(1500);
    assert_eq!(story.tick(0, 1).next, story.now + Duration::from_millis(500));
    story.planner.became_ready();
    assert_eq!(story.tick(0, 1).orders.len(), 1);
}

#[test]
fn c5_a_pause_is_no_reason_while_draining_replicas_can_come_back() {
    let mut story = Story::new(sizing(0, 4), 1);
    story.draining = 1;
    story.planner.start_failed(story.now);
    assert_eq!(story.tick(40, 0).why.reason, ScaleReason::Demand);
    assert!(matches!(story.tick(70, 0).why.reason, ScaleReason::BackingOff { .. }));
}

#[test]
fn c3_an_adopted_fleet_is_not_shrunk_before_one_window() {
    let mut story = Story::new(sizing(0, 4), 3);
    assert_eq!(story.pass(29, 0).target, 3);
    assert_eq!(story.pass(1, 0).target, 2);
}

#[test]
fn c018_a_replica_that_loads_longer_than_the_window_is_kept_while_a_request_waits_and_a_window_after() {
    let mut story = Story::new(sizing(0, 1), 0);
    assert_eq!(story.tick(0, 1).target, 1);
    story.starting = 1;
    for waited in 1..120 {
        story.now = story.now + TICK;
        assert_eq!(story.tick_waiting(0, 1, Duration::from_secs(waited)).target, 1);
    }
    (story.ready, story.starting) = (1, 0);
    story.planner.became_ready();
    assert_eq!(story.pass(30, 0).target, 1);
    assert_eq!(story.pass(1, 0).target, 0);
}

#[test]
fn c018_a_client_that_leaves_lets_the_start_be_cancelled_after_one_window_only() {
    let mut story = Story::new(sizing(0, 1), 0);
    assert_eq!(story.tick(0, 1).target, 1);
    story.starting = 1;
    let mut targets = Vec::new();
    for _ in 0..32 {
        story.now = story.now + TICK;
        targets.push(story.tick(0, 0).target);
    }
    assert_eq!(targets, [[1; 30].as_slice(), &[0; 2]].concat());
}

#[test]
fn c018_the_idle_window_begins_at_readiness() {
    let mut story = Story::new(sizing(0, 1), 0);
    story.tick(0, 1);
    story.starting = 1;
    for _ in 0..20 {
        story.now = story.now + TICK;
        assert_eq!(story.tick(0, 0).target, 1);
    }
    (story.ready, story.starting) = (1, 0);
    story.planner.became_ready();
    assert_eq!(story.pass(29, 0).target, 1);
    assert_eq!(story.pass(1, 0).target, 0);
}

#[test]
fn e1_growth_after_a_wanted_shrink_is_demand_and_no_replacement() {
    let mut story = Story::new(sizing(0, 8), 4);
    story.pass(60, 97);
    assert_eq!(story.pass(33, 1).target, 1);
    assert_eq!(story.tick(97, 0).why.reason, ScaleReason::Demand);
}

#[test]
fn c4_a_missed_hour_or_a_standing_clock_shrinks_nothing() {
    let mut story = Story::new(sizing(0, 4), 3);
    story.pass(60, 80);
    story.pass(20, 0);
    story.now = story.now + Duration::from_secs(3600);
    assert_eq!(story.tick(0, 0).target, 3);
    for _ in 0..1000 {
        assert_eq!(story.tick(0, 0).target, 3);
    }
}

#[test]
fn c051_an_hour_without_traffic_reaches_min() {
    let mut story = Story::new(sizing(1, 4), 3);
    assert_eq!(story.pass(3600, 0).target, 1);
}

#[test]
fn c2_a_silent_provider_holds_the_fleet_and_teaches_nothing() {
    let mut story = Story::new(sizing(0, 4), 3);
    story.pass(60, 80);
    for _ in 0..60 {
        story.now = story.now + TICK;
        let why = story.planner.hold(&story.observation(0, 0, Duration::ZERO), &plenty());
        assert_eq!((why.target, why.needed, why.reason), (3, 0, ScaleReason::ProviderError));
    }
    assert_eq!(story.tick(0, 0).target, 3);
}

#[test]
fn new_settings_hold_from_the_next_evaluation_on() {
    let mut story = Story::new(sizing(0, 4), 3);
    story.pass(60, 80);
    story.planner.resize(sizing(4, 6));
    assert_eq!(story.tick(80, 0).target, 4);
    assert_eq!(story.planner.sizing(), &sizing(4, 6));
}
