//! The short rolling window (B1): one sample a second, 30 s of them, so that every second counts in the mean of exactly
//! one check and one spike never decides alone. It never says what is needed.
//!
//! Samples belong to a replica's id, not to its address: what a replica held goes with it (C-104). What draining replicas
//! serve is load as well: it would come back elsewhere. A sample in which some figures of those are missing counts for nothing, neither as load nor as the absence of it (C4).

use std::collections::VecDeque;

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Phase, ReplicaFacts};
use tidegate_shared::time::Duration;

use super::Mean;

/// How far back the window reaches: as long as the time between two checks.
pub const SPAN: Duration = Duration::from_secs(30);
/// The least time between two samples.
pub const EVERY: Duration = Duration::from_secs(1);

/// What is known of one replica that serves, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Tokens held by requests in progress.
    pub tokens: u64,
    /// Requests accepted by the engine and not begun.
    pub waiting: u32,
}

/// What a replica that serves holds, if it is known: as its engine says; nothing where it has no request and its engine is
/// silent. Zero traffic is a zero (C-051), a missing figure is not. What is held of an unknown size is not known either.
pub fn held(replica: &ReplicaFacts) -> Option<Held> {
    let idle = replica.in_flight == 0;
    if replica.memory.is_none() && !idle {
        return None;
    }
    let tokens = replica.load.map(|load| load.0).or(idle.then_some(0))?;
    let waiting = replica.waiting.or((idle && tokens == 0).then_some(0))?;
    Some(Held { tokens, waiting })
}

/// Whether requests are in progress there, or may be: it is ready or drains.
pub fn serves(replica: &ReplicaFacts) -> bool {
    matches!(replica.phase, Phase::Ready | Phase::Draining)
}

#[derive(Clone, Debug)]
struct Sample {
    /// In watched time.
    at: Duration,
    jobs: u32,
    /// What each replica that serves held, in order of id; `None` where it is not known of all of them.
    held: Option<Vec<(ReplicaId, u64)>>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    taken: VecDeque<Sample>,
    known: u32,
    jobs: u128,
    /// Tokens over all known samples, for each replica that served in one of them.
    sums: Vec<(ReplicaId, u128)>,
}

impl Samples {
    /// Takes a sample, unless the last one is younger than [`EVERY`]. `at` is watched time, so that a leap of the clock
    /// empties nothing (C4).
    pub fn see(&mut self, seen: &Observation, at: Duration) {
        if self.taken.back().is_some_and(|last| at.saturating_sub(last.at) < EVERY) {
            return;
        }
        while self.taken.front().is_some_and(|oldest| at.saturating_sub(oldest.at) >= SPAN) {
            self.drop_oldest();
        }
        let serving = seen.replicas.iter().filter(|replica| serves(replica));
        let held: Option<Vec<_>> =
            serving.map(|replica| held(replica).map(|held| (replica.id, held.tokens))).collect();
        self.add(Sample { at, jobs: seen.demand(), held });
    }

    /// The mean number of requests in flight, queued ones included; `None` before the first sample.
    pub fn jobs(&self) -> Option<Mean> {
        let count = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        (count > 0).then_some(Mean { sum: self.jobs, count })
    }

    /// The mean number of tokens that the replicas that serve in `seen` held, all together; `None` where fewer than half of
    /// the samples are known.
    pub fn tokens(&self, seen: &Observation) -> Option<Mean> {
        let all = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        let serving = |id| seen.replicas.iter().any(|replica| replica.id == id && serves(replica));
        let sum = self.sums.iter().filter(|(id, _)| serving(*id)).map(|(_, sum)| sum).sum();
        (self.known > 0 && self.known.saturating_mul(2) >= all).then_some(Mean { sum, count: self.known })
    }

    fn add(&mut self, sample: Sample) {
        self.jobs += u128::from(sample.jobs);
        self.known += u32::from(sample.held.is_some());
        for &(id, tokens) in sample.held.iter().flatten() {
            match self.sums.iter_mut().find(|(known, _)| *known == id) {
                Some((_, sum)) => *sum += u128::from(tokens),
                None => self.sums.push((id, u128::from(tokens))),
            }
        }
        self.taken.push_back(sample);
    }

    fn drop_oldest(&mut self) {
        let Some(sample) = self.taken.pop_front() else { return };
        self.jobs = self.jobs.saturating_sub(u128::from(sample.jobs));
        self.known -= u32::from(sample.held.is_some());
        for &(id, tokens) in sample.held.iter().flatten() {
            if let Some((_, sum)) = self.sums.iter_mut().find(|(known, _)| *known == id) {
                *sum = sum.saturating_sub(u128::from(tokens));
            }
        }
        let named =
            |id| self.taken.iter().any(|sample| sample.held.iter().flatten().any(|(known, _)| *known == id));
        if self.sums.iter().any(|(_, sum)| *sum == 0) {
            let gone: Vec<_> =
                self.sums.iter().filter(|(id, sum)| *sum == 0 && !named(*id)).map(|(id, _)| *id).collect();
            self.sums.retain(|(id, _)| !gone.contains(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_shared::replica::Capacity;
    use tidegate_shared::request::Tokens;
    use tidegate_shared::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn replica(id: u32, load: Option<u64>) -> ReplicaFacts {
        let bare = ReplicaFacts::new(ReplicaId(id), Phase::Ready, Instant::ZERO, Capacity::ONE);
        let memory = Some(Tokens(1000));
        ReplicaFacts { in_flight: 1, load: load.map(Tokens), waiting: load.map(|_| 0), memory, ..bare }
    }

    fn seen(replicas: Vec<ReplicaFacts>) -> Observation {
        Observation { in_flight: 1, replicas, ..Observation::default() }
    }

    #[test]
    fn b1_the_mean_is_over_30_s_and_exact() {
        let mut samples = Samples::default();
        for second in 0..100u32 {
            samples.see(&seen(vec![replica(1, Some(second.into()))]), SECOND * second);
        }
        let last_30: u128 = (70..100).sum();
        assert_eq!(samples.tokens(&seen(vec![replica(1, None)])), Some(Mean { sum: last_30, count: 30 }));
        assert_eq!(samples.jobs(), Some(Mean { sum: 30, count: 30 }));
    }

    #[test]
    fn b1_looking_more_often_weighs_nothing_more() {
        let mut samples = Samples::default();
        for tick in 0..100 {
            samples.see(&seen(vec![replica(1, Some(tick))]), SECOND / 10 * u32::try_from(tick).unwrap());
        }
        assert_eq!(samples.jobs().unwrap().count, 10);
    }

    #[test]
    fn c_104_what_a_replica_held_goes_with_it_and_its_successor_has_no_history() {
        let mut samples = Samples::default();
        for second in 0..30 {
            let all = (1..=3).map(|id| replica(id, Some(100))).collect();
            samples.see(&seen(all), SECOND * second);
        }
        let left = seen(vec![replica(2, Some(100)), replica(4, Some(5))]);
        assert_eq!(samples.tokens(&left), Some(Mean { sum: 3000, count: 30 }));
        for second in 30..61 {
            samples.see(&left, SECOND * second);
        }
        assert_eq!(samples.tokens(&left), Some(Mean { sum: 105 * 30, count: 30 }));
        assert_eq!(samples.sums.len(), 2, "nothing is kept of those that are gone");
    }

    #[test]
    fn c_051_a_missing_figure_is_not_zero_and_zero_traffic_is() {
        let mut samples = Samples::default();
        for second in 0..20 {
            samples.see(&seen(vec![replica(1, Some(900)), replica(2, Some(900))]), SECOND * second);
        }
        for second in 20..30 {
            samples.see(&seen(vec![replica(1, Some(900)), replica(2, None)]), SECOND * second);
        }
        let both = seen(vec![replica(1, None), replica(2, None)]);
        assert_eq!(samples.tokens(&both), Some(Mean { sum: 1800 * 20, count: 20 }));
        for second in 30..36 {
            samples.see(&both, SECOND * second);
        }
        assert_eq!(samples.tokens(&both), None, "fewer than half are known");
        let idle = ReplicaFacts { in_flight: 0, ..replica(1, None) };
        assert_eq!(held(&idle), Some(Held { tokens: 0, waiting: 0 }));
        assert_eq!(held(&replica(1, None)), None);
    }
}
