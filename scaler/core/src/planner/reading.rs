//! What one moment says under the rules that look every 30 s: how many are needed, how full the fleet is, and whether one
//! fewer would do. It remembers nothing and decides nothing.

use tidegate_shared::decision::{Rule, ScaleReason};
use tidegate_shared::demand::Observation;
use tidegate_shared::replica::Capacity;

use super::Census;
use crate::config::Sizing;
use crate::guard::cool::Spare;
use crate::reconcile::{Falling, Leaving, leaving, returning};
use crate::rule::samples::{Samples, held, serves};
use crate::rule::token_load::{Filled, LOW, SURVIVORS, Scale};
use crate::rule::{Mean, jobs};

/// The rules that look every 30 s (B1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampled {
    Tokens,
    Jobs,
}

impl Sampled {
    /// The same, of all rules; `None` for one that looks at each evaluation.
    pub(super) fn of(rule: Rule) -> Option<Self> {
        match rule {
            Rule::Concurrency => None,
            Rule::TokenLoad => Some(Self::Tokens),
            Rule::Jobs => Some(Self::Jobs),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Replicas that the load asks for; `None` where it is not known.
    pub(super) needed: Option<u32>,
    /// Somebody is served or waits at this very moment, as far as is known: a mean knows those who have left.
    pub(super) there: bool,
    /// How full the ready replicas would be with all that is served, draining ones included, in percent.
    pub(super) load: Option<u32>,
    /// Whether one fewer would do, by the window.
    pub(super) spare: Spare,
    /// And whether it would by the figures of this very moment: what a replica held that has just left is in no mean of
    /// those that took it over.
    pub(super) fits: bool,
    /// How full the others would be without it, in percent, where that alone forbids it.
    pub(super) survivors: Option<u32>,
    /// What else alone forbids it: the others would have too many requests.
    pub(super) crowded: Option<ScaleReason>,
}

/// What would come if more were needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coming<'a> {
    /// Parked replicas that are still falling asleep.
    pub(super) falling: &'a Falling,
    /// Of those that are started, in order, the last for all further ones; empty where nobody knows.
    pub(super) started: &'a [Capacity],
}

impl Coming<'_> {
    /// Units of those that come, in order: who is on the way, who drains, who is parked, and then what is started; where
    /// nobody knows how large that is, as large as those that are there are on average.
    pub(super) fn units(self, seen: &Observation) -> Vec<u32> {
        let on_the_way = seen.replicas.iter().filter(|replica| replica.is_on_its_way());
        let back = returning(self.falling, &seen.replicas);
        let mut units: Vec<u32> = on_the_way.chain(back).map(|replica| replica.capacity.units()).collect();
        units.extend(self.started.iter().map(|size| size.units()));
        if self.started.is_empty() {
            let ready = seen.replicas.iter().filter(|replica| replica.is_ready());
            let (all, count) = ready.fold((0u32, 0u32), |(all, count), replica| {
                (all.saturating_add(replica.capacity.units()), count + 1)
            });
            units.push(all.checked_div(count).unwrap_or(1).max(1));
        }
        units
    }

    /// In order: who drains, who is parked, and then what is started; where nobody knows how large that is, as large as
    /// those that are there are on average.
    fn sizes(self, scale: Scale, seen: &Observation, there: &[u128]) -> Vec<u128> {
        let back = returning(self.falling, &seen.replicas);
        let mut sizes: Vec<u128> = back.iter().map(|replica| scale.size(replica)).collect();
        sizes.extend(self.started.iter().map(|size| scale.units(size.units())));
        if self.started.is_empty() {
            let all = there.iter().copied().fold(0, u128::saturating_add);
            let count = u128::try_from(there.len()).unwrap_or(u128::MAX);
            sizes.push(all.checked_div(count).unwrap_or_else(|| scale.units(Capacity::ONE.units())));
        }
        sizes
    }
}

impl Reading {
    /// What `seen` and the samples before it say by `rule`.
    pub(super) fn of(
        rule: Sampled,
        samples: &Samples,
        seen: &Observation,
        sizing: &Sizing,
        coming: Coming<'_>,
    ) -> Self {
        match rule {
            Sampled::Jobs => Self::jobs(samples, seen, sizing),
            Sampled::Tokens => Self::tokens(samples, seen, coming),
        }
    }

    /// Fully idle: no job runs, none waits, nobody was told to come back.
    fn jobs(samples: &Samples, seen: &Observation, sizing: &Sizing) -> Self {
        let idle = seen.demand() == 0;
        // The mean of the last seconds does not know yet what has come just now.
        let least = u32::from(seen.in_flight > 0 || seen.queued > 0);
        let needed = samples.jobs().map(|jobs| jobs::need(jobs, sizing.target()).max(least));
        let spare = if idle { Spare::Yes } else { Spare::No };
        Self { needed, there: !idle, load: None, spare, fits: true, survivors: None, crowded: None }
    }

    /// The same, unless one fewer would be too few for the requests in flight: the others must take over those as well,
    /// and not memory alone (B5).
    pub(super) fn unless(self, crowded: Option<ScaleReason>) -> Self {
        match (&crowded, self.spare) {
            (Some(_), Spare::Yes) => Self { spare: Spare::No, survivors: None, crowded, ..self },
            _ => self,
        }
    }

    fn tokens(samples: &Samples, seen: &Observation, coming: Coming<'_>) -> Self {
        let ready = || seen.replicas.iter().filter(|replica| replica.is_ready());
        let serving = || seen.replicas.iter().filter(|replica| serves(replica));
        let known = serving().all(|replica| held(replica).is_some());
        let here = seen.queued > 0 || seen.promised > 0;
        let queued = here || serving().any(|replica| replica.waiting.is_some_and(|waiting| waiting > 0));
        // Who waits is known to wait, whatever else is not known.
        let quiet = match (queued, known) {
            (true, _) => Spare::No,
            (false, false) => Spare::Unknown,
            (false, true) => Spare::Yes,
        };
        let blind_spare = if queued { Spare::No } else { Spare::Unknown };
        let blind = Self {
            needed: None,
            there: true,
            load: None,
            spare: blind_spare,
            fits: false,
            survivors: None,
            crowded: None,
        };
        let Some(load) = samples.tokens(seen) else { return blind };
        let now = serving().filter_map(held).map(|held| u128::from(held.tokens)).sum();
        let there = queued || now > 0 || seen.demand() > 0;
        let fleet = Census::of(&seen.replicas);
        if load.sum == 0 {
            let last = fleet.current() <= 1 && seen.demand() > 0;
            let spare = if last { Spare::No } else { quiet };
            return Self {
                needed: Some(0),
                there,
                load: Some(0),
                spare,
                fits: now == 0,
                survivors: None,
                crowded: None,
            };
        }
        let told = ready().all(|replica| replica.memory.is_some());
        let Some(scale) = Scale::of(&seen.replicas).filter(|_| told) else { return blind };
        let filled = Filled::new(scale, load);

        let order = leaving(Leaving::LeastWarm, &seen.replicas);
        let sizes: Vec<u128> = order.iter().map(|replica| scale.size(replica)).collect();
        let size: u128 = ready().map(|replica| scale.size(replica)).sum();
        let gone = order.first().filter(|first| first.is_ready()).map_or(0, |first| scale.size(first));
        let rest = size.saturating_sub(gone);
        let (spare, survivors) = spare(filled, size, rest, quiet);
        let fits = Filled::new(scale, Mean { sum: now, count: 1 }).is_below(SURVIVORS, rest);
        let needed = Some(filled.needed(&sizes, &coming.sizes(scale, seen, &sizes)));
        Self { needed, there, load: Some(filled.percent(size)), spare, fits, survivors, crowded: None }
    }
}

/// Whether replicas of `size` could do with `rest` (B5), and how full they would be if that alone forbids it.
fn spare(filled: Filled, size: u128, rest: u128, quiet: Spare) -> (Spare, Option<u32>) {
    if quiet != Spare::Yes || !filled.is_below(LOW, size) {
        return (if quiet == Spare::Yes { Spare::No } else { quiet }, None);
    }
    if filled.is_below(SURVIVORS, rest) {
        return (Spare::Yes, None);
    }
    let alone = (rest > 0).then(|| filled.percent(rest));
    (Spare::No, alone)
}
