//! What the gateway's own queue asks for under the rules that otherwise look every 30 s (Q3, A3): who waits here waits
//! because every replica is full, and that needs no confirmation. It never looks at load.

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::demand::Observation;

use super::Need;
use crate::config::Sizing;

/// What those who wait, here or because they were told to come back, ask for while `ready` replicas serve and `on_the_way`
/// more are ordered or loading.
///
/// With nothing ready, one replica for each target's worth of them, up to `most` (Q3, B4). With some ready, a waiter as old as
/// the queue threshold asks for one more than there are (A3), or for as many as those who wait would fill to the limit, up to
/// `most`; so does who was refused, as long as not all of those would find a place. While those are on their way they ask
/// for no other.
pub fn need(seen: &Observation, ready: u32, on_the_way: u32, most: u32, sizing: &Sizing) -> Option<Need> {
    let waiting = seen.queued.saturating_add(seen.promised);
    if waiting == 0 {
        return None;
    }
    if ready == 0 {
        let replicas = waiting.div_ceil(sizing.target());
        return Some(Need { replicas: replicas.min(most), cause: ScaleReason::FromZero });
    }
    let limit = sizing.limit.max(1);
    let short = seen.demand().saturating_sub(ready.saturating_mul(limit));
    let without = match seen.queued > 0 && seen.oldest_wait >= sizing.queue_threshold {
        true => waiting,
        false if seen.promised > 0 => short.min(waiting),
        false => 0,
    };
    let filled = without.div_ceil(limit).min(most).max(if without > 0 { on_the_way } else { 0 });
    (filled > 0).then(|| Need { replicas: ready.saturating_add(filled), cause: ScaleReason::QueueWait })
}

#[cfg(test)]
mod tests {
    use tidegate_shared::time::Duration;

    use super::*;

    fn asks(queued: u32, wait_ms: u64, ready: u32, on_the_way: u32) -> Option<u32> {
        let oldest_wait = Duration::from_millis(wait_ms);
        let seen = Observation { queued, oldest_wait, ..Observation::default() };
        let sizing = Sizing { limit: 40, ..Sizing::default() };
        need(&seen, ready, on_the_way, 2, &sizing).map(|need| need.replicas)
    }

    #[test]
    fn q3_from_zero_at_once_and_a3_one_more_after_the_threshold() {
        assert_eq!(asks(0, 0, 0, 0), None);
        assert_eq!(asks(1, 0, 0, 0), Some(1));
        assert_eq!(asks(33, 0, 0, 1), Some(2));
        assert_eq!(asks(330, 0, 0, 1), Some(2));
        assert_eq!(asks(1, 999, 2, 0), None);
        assert_eq!(asks(1, 1000, 2, 0), Some(3));
        assert_eq!(asks(9, 60_000, 2, 1), Some(3), "the one that is on its way for it");
        assert_eq!(asks(40, 60_000, 2, 0), Some(3), "which has a place for each");
        assert_eq!(asks(41, 60_000, 2, 0), Some(4));
        assert_eq!(asks(41, 60_000, 2, 1), Some(4));
        assert_eq!(asks(400, 60_000, 2, 2), Some(4), "as many as are added at a time are on their way");
    }

    #[test]
    fn q2_who_was_told_to_come_back_asks_as_who_waits_while_he_would_find_no_place() {
        let sizing = Sizing { limit: 10, target_concurrency: 8, ..Sizing::default() };
        let asks = |in_flight, promised, ready, on_the_way| {
            let seen = Observation { in_flight, promised, ..Observation::default() };
            need(&seen, ready, on_the_way, 2, &sizing).map(|need| need.replicas)
        };
        assert_eq!(asks(0, 1, 0, 0), Some(1), "from zero");
        assert_eq!(asks(0, 9, 0, 1), Some(2));
        assert_eq!(asks(10, 1, 1, 0), Some(2), "the one there is full");
        assert_eq!(asks(10, 1, 1, 1), Some(2), "one is on its way for him");
        assert_eq!(asks(10, 1, 2, 0), None, "he will find a place");
        assert_eq!(asks(10, 11, 1, 0), Some(3));
        assert_eq!(asks(18, 2, 2, 0), None);
        assert_eq!(asks(18, 3, 2, 0), Some(3));
    }
}
