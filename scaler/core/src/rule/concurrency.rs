//! The concurrency rule (A1–A3): so many replicas that each has its target of requests in flight. In whole numbers
//! throughout, so that no rounding ever decides. It never looks at tokens, prices or the past.

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::Hold;

use super::Need;
use crate::config::Sizing;

/// What `seen` asks for while `ready` replicas serve and `on_the_way` more are ordered or loading.
///
/// The plain need is `ceil((in flight + queued) / target)` (A2), so anything queued asks for at least one replica
/// (Q3). A waiter as old as the queue threshold asks for one replica more than there are (A3). That replica is
/// ordered once: while it loads, the same waiter asks only for keeping it, else a slow start would order a new
/// replica each second until `max`.
///
/// A replica that is set aside to be measured (A1) is there beside those that are needed, and one that is measured where
/// it serves is needed for that.
pub fn need(seen: &Observation, ready: u32, on_the_way: u32, sizing: &Sizing) -> Need {
    let (aside, serving) = (held(seen, Hold::Aside), held(seen, Hold::Serving));
    let need = need_of(seen, ready.saturating_sub(aside), on_the_way, sizing);
    Need { replicas: need.replicas.max(serving).saturating_add(aside), ..need }
}

/// Replicas that are set aside.
pub fn aside(seen: &Observation) -> u32 {
    held(seen, Hold::Aside)
}

fn held(seen: &Observation, kind: Hold) -> u32 {
    let held = seen.replicas.iter().filter(|replica| replica.hold == Some(kind));
    u32::try_from(held.count()).unwrap_or(u32::MAX)
}

/// The same without those that are held.
fn need_of(seen: &Observation, ready: u32, on_the_way: u32, sizing: &Sizing) -> Need {
    let plain = seen.demand().div_ceil(sizing.target());
    if ready == 0 && seen.queued > 0 {
        return Need { replicas: plain, cause: ScaleReason::FromZero };
    }
    let waited_too_long = seen.queued > 0 && seen.oldest_wait >= sizing.queue_threshold;
    let asked = match (waited_too_long, on_the_way) {
        (false, _) => 0,
        (true, 0) => ready.saturating_add(1),
        (true, _) => ready.saturating_add(on_the_way),
    };
    if asked > plain {
        Need { replicas: asked, cause: ScaleReason::QueueWait }
    } else {
        Need { replicas: plain, cause: ScaleReason::Demand }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::time::Duration;

    use super::*;

    fn seen(in_flight: u32, queued: u32, oldest_wait_ms: u64) -> Observation {
        let oldest_wait = Duration::from_millis(oldest_wait_ms);
        Observation { in_flight, queued, oldest_wait, ..Observation::default() }
    }

    #[track_caller]
    fn asks(seen: &Observation, ready: u32, on_the_way: u32, replicas: u32, cause: ScaleReason) {
        assert_eq!(need(seen, ready, on_the_way, &Sizing::default()), Need { replicas, cause });
    }

    #[test]
    fn a2_need_is_the_exact_ceiling_of_in_flight_over_target() {
        for (in_flight, replicas) in [(0, 0), (1, 1), (32, 1), (33, 2), (64, 2), (96, 3), (97, 4), (128, 4)] {
            asks(&seen(in_flight, 0, 0), 1, 0, replicas, ScaleReason::Demand);
        }
        asks(&seen(u32::MAX, u32::MAX, 0), 1, 0, 134_217_728, ScaleReason::Demand);
    }

    #[test]
    fn a1_each_task_has_its_own_target() {
        use crate::config::{RuleChoice, Task};
        use tidegate_shared::decision::Rule;
        for (task, replicas) in
            [(Task::Chat, 17), (Task::Embeddings, 3), (Task::Image, 257), (Task::Video, 513)]
        {
            let rule = RuleChoice::Fixed(Rule::Concurrency);
            let target_concurrency = task.target_concurrency(rule);
            let sizing = Sizing { target_concurrency, ..Sizing::default() };
            assert_eq!(need(&seen(513, 0, 0), 1, 0, &sizing).replicas, replicas, "{task:?}");
        }
    }

    #[test]
    fn a2_the_queue_is_part_of_the_demand() {
        asks(&seen(32, 1, 0), 1, 0, 2, ScaleReason::Demand);
    }

    #[test]
    fn a2_q1_a_target_above_what_a_replica_is_given_counts_as_that() {
        let sizing = Sizing { target_concurrency: 8, limit: 3, ..Sizing::default() };
        for (in_flight, replicas) in [(3, 1), (4, 2), (6, 2), (7, 3)] {
            assert_eq!(need(&seen(in_flight, 0, 0), 2, 0, &sizing).replicas, replicas, "{in_flight}");
        }
    }

    #[test]
    fn a3_a_waiter_at_the_threshold_asks_for_one_more() {
        asks(&seen(5, 1, 999), 1, 0, 1, ScaleReason::Demand);
        asks(&seen(5, 1, 1000), 1, 0, 2, ScaleReason::QueueWait);
        asks(&seen(200, 1, 1000), 2, 0, 7, ScaleReason::Demand);
    }

    #[test]
    fn a3_the_same_waiter_does_not_ask_again_while_that_replica_loads() {
        asks(&seen(5, 1, 60_000), 1, 1, 2, ScaleReason::QueueWait);
    }

    #[test]
    fn q3_a_waiter_with_nothing_ready_asks_for_what_the_queue_needs() {
        asks(&seen(0, 1, 0), 0, 0, 1, ScaleReason::FromZero);
        asks(&seen(0, 1, 60_000), 0, 1, 1, ScaleReason::FromZero);
        asks(&seen(0, 40, 0), 0, 0, 2, ScaleReason::FromZero);
    }

    #[test]
    fn c4_a_target_of_zero_divides_nothing() {
        let sizing = Sizing { target_concurrency: 0, ..Sizing::default() };
        assert_eq!(need(&seen(3, 0, 0), 1, 0, &sizing).replicas, 3);
    }
}
