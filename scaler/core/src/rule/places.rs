//! The places of the engines, as their queues show them (B3): whether all are taken, and how many there are. It never looks
//! at memory or at the past.

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::ReplicaFacts;

use super::Mean;
use super::token_load::Queues;

/// Requests that run at a time on so many units of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Requests.
    pub running: u32,
    /// Units, at least 1.
    pub units: u32,
}

impl Places {
    fn of(replica: &ReplicaFacts) -> Self {
        let running = replica.in_flight.saturating_sub(replica.waiting.unwrap_or(0));
        Self { running, units: replica.capacity.units() }
    }

    /// Whether a unit has as many as one of `other` at least.
    fn reaches(self, other: Self) -> bool {
        u64::from(self.running) * u64::from(other.units) >= u64::from(other.running) * u64::from(self.units)
    }

    /// The more of both for each unit.
    pub fn more(self, other: Self) -> Self {
        if self.reaches(other) { self } else { other }
    }

    /// How many of `jobs` would find no place on so many units; `None` where all do.
    pub fn short(self, jobs: Mean, units: u32) -> Option<u32> {
        let (count, all) = (u128::from(jobs.count.max(1)), u128::from(self.units.max(1)));
        let there = u128::from(self.running) * u128::from(units) * count;
        let over = jobs.sum.saturating_mul(all).saturating_sub(there).div_ceil(all * count);
        u32::try_from(over).ok().filter(|over| *over > 0)
    }

    /// How many replicas of so many units, in order, the last as often as it takes, have a place for each of `requests`; one
    /// where nobody knows.
    pub fn replicas(self, requests: u32, units: &[u32]) -> u32 {
        let Some((last, first)) = units.split_last().filter(|_| self.running > 0) else { return 1 };
        let on = |units: u32| u64::from(units) * u64::from(self.running);
        let (mut left, mut replicas) = (u64::from(requests) * u64::from(self.units.max(1)), 0);
        for units in first {
            if left == 0 {
                return replicas;
            }
            left = left.saturating_sub(on(*units));
            replicas += 1;
        }
        let more = left.div_ceil(on(*last).max(1));
        replicas.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
    }
}

/// A fleet in which nothing is free, though somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Requests that wait inside the engines.
    pub waiting: u32,
    /// Requests that run there.
    pub running: u32,
}

fn ready(seen: &Observation) -> impl Iterator<Item = &ReplicaFacts> {
    seen.replicas.iter().filter(|replica| replica.is_ready())
}

/// Those that wait inside the engines while nothing is free, and those that run: each ready replica has a queue that has
/// lasted, or as many requests for its size as run where one has. `lasted` are the queues; one that is not known says nothing of the fleet, and
/// neither does a fleet of which one is measured. Those that are `fresh` had no time to fill: the others decide.
pub fn full(seen: &Observation, lasted: &Queues, fresh: &[ReplicaId]) -> Option<Full> {
    let most = most_at_queues(seen, lasted)?;
    let filled = || ready(seen).filter(|replica| !fresh.contains(&replica.id));
    let known = filled().all(|replica| replica.hold.is_none() && lasted.of_replica(replica.id).is_some());
    let waits = |replica: &ReplicaFacts| lasted.of_replica(replica.id) > Some(0);
    let taken = |replica: &ReplicaFacts| most.running > 0 && Places::of(replica).reaches(most);
    (known && filled().all(|replica| waits(replica) || taken(replica))).then(|| Full {
        waiting: lasted.waiting(),
        running: ready(seen).map(|replica| Places::of(replica).running).fold(0, u32::saturating_add),
    })
}

/// What runs where a queue has lasted; the most of it, as some may be stuck.
pub fn most_at_queues(seen: &Observation, lasted: &Queues) -> Option<Places> {
    let waits = |replica: &&ReplicaFacts| replica.hold.is_none() && lasted.of_replica(replica.id) > Some(0);
    ready(seen).filter(waits).map(Places::of).reduce(Places::more)
}

/// The most that runs where nobody waits.
pub fn most_elsewhere(seen: &Observation, lasted: &Queues) -> Option<Places> {
    let free = ready(seen).filter(|replica| lasted.of_replica(replica.id) == Some(0));
    free.map(Places::of).reduce(Places::more)
}

#[cfg(test)]
mod tests {
    use tidegate_shared::replica::{Capacity, Hold, Phase};
    use tidegate_shared::request::Tokens;
    use tidegate_shared::time::Instant;

    use super::*;

    fn replica(id: u32, units: u32, in_flight: u32, waiting: u32) -> ReplicaFacts {
        let bare = ReplicaFacts::new(ReplicaId(id), Phase::Ready, Instant::ZERO, Capacity::new(units));
        let (load, memory) = (Some(Tokens(1)), Some(Tokens(1000)));
        ReplicaFacts { in_flight, waiting: Some(waiting), load, memory, ..bare }
    }

    fn found(replicas: Vec<ReplicaFacts>) -> Option<u32> {
        let seen = Observation { replicas, ..Observation::default() };
        full(&seen, &Queues::of(&seen), &[]).map(|full| full.waiting)
    }

    #[test]
    fn b3_nothing_is_free_where_all_wait_or_run_as_many_for_their_size() {
        assert_eq!(found(vec![replica(1, 1, 9, 5)]), Some(5));
        assert_eq!(found(vec![replica(1, 1, 4, 0)]), None, "nobody waits");
        assert_eq!(found(vec![replica(1, 1, 5, 1), replica(2, 2, 8, 0)]), Some(1), "4 a unit");
        assert_eq!(found(vec![replica(1, 1, 5, 1), replica(2, 2, 7, 0)]), None, "one place is free");
        assert_eq!(found(vec![replica(1, 1, 1, 60), replica(2, 1, 1, 0)]), None, "whose are those 60?");
    }

    #[test]
    fn b5_what_engines_run_at_a_time_is_the_most_that_runs_where_a_queue_is() {
        let places = |replicas| {
            let seen = Observation { replicas, ..Observation::default() };
            let lasted = Queues::of(&seen);
            let told = |most: Option<Places>| most.map(|most| (most.running, most.units));
            (told(most_at_queues(&seen, &lasted)), told(most_elsewhere(&seen, &lasted)))
        };
        let stuck = replica(3, 1, 7, 6);
        assert_eq!(
            places(vec![replica(1, 2, 10, 2), replica(2, 1, 3, 0), stuck]),
            (Some((8, 2)), Some((3, 1)))
        );
    }

    #[test]
    fn b3_c4_who_is_not_known_or_measured_says_nothing_of_the_fleet() {
        let silent = ReplicaFacts { waiting: None, ..replica(2, 1, 3, 0) };
        assert_eq!(found(vec![replica(1, 1, 9, 5), silent]), None);
        let held = ReplicaFacts { hold: Some(Hold::Aside), ..replica(2, 1, 9, 5) };
        assert_eq!(found(vec![replica(1, 1, 9, 5), held]), None);
        assert_eq!(found(vec![]), None);
    }

    #[test]
    fn b3_those_that_wait_need_as_many_replicas_as_have_places_for_them() {
        let places = Places { running: 8, units: 2 };
        for (requests, units, replicas) in [
            (1, &[1][..], 1),
            (8, &[1], 2),
            (9, &[1], 3),
            (9, &[2], 2),
            (9, &[2, 1], 2),
            (8, &[2, 1], 1),
            (17, &[2, 1], 4),
            (u32::MAX, &[1], 1 << 30),
            (9, &[], 1),
        ] {
            assert_eq!(places.replicas(requests, units), replicas, "{requests} on {units:?}");
        }
        assert_eq!(Places { running: 0, units: 2 }.replicas(9, &[1]), 1, "nobody knows what they run");
    }

    #[test]
    fn b5_who_would_wait_is_counted_exactly_on_the_units_that_are_left() {
        let places = Places { running: 8, units: 2 };
        let jobs = |sum, count| Mean { sum, count };
        assert_eq!(places.short(jobs(12, 1), 3), None);
        assert_eq!(places.short(jobs(12, 1), 2), Some(4));
        assert_eq!(places.short(jobs(8 * 30, 30), 2), None);
        assert_eq!(places.short(jobs(8 * 30 + 1, 30), 2), Some(1), "a little more on average");
    }
}
