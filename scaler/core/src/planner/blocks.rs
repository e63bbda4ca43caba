//! What is ordered of the replicas that are missing, and everything that keeps some of them from it (C1, C2): a start that
//! failed just now, the credit, the offers, the gateway's cap, `max`. It never says how many are missing.

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::offer::Offer;
use tidegate_shared::time::Instant;

use super::asked::{Asked, Figures};
use super::line::InLine;
use super::{Census, Counted, Planner, Supply};
use crate::budget::{Grant, Room};
use crate::offer::{Blocked, choose, over_cap};

/// Of the replicas that there should be beyond those that count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    /// Parked ones that are woken for it.
    pub(super) woken: u32,
    /// Those that must be started.
    pub(super) starts: u32,
    /// Of these, those that stand for one that ran and has died: no growth (M3).
    pub(super) lost: u32,
    /// Those that leave, and those that take long to fall asleep, where they hold places that some of `starts` would take
    /// (A6).
    holders: Holders,
    /// How many may be started before those are gone.
    pub(super) places: u32,
    /// Whether the one after all of these would have to be started too.
    beyond: bool,
}

/// Who has a place under `max`, and can serve nobody soon.
#[derive(Clone, Copy, Debug, Default)]
struct Holders {
    leaving: u32,
    falling: u32,
}

impl Holders {
    fn are_some(self) -> bool {
        self.leaving > 0 || self.falling > 0
    }
}

/// Whether the gateway's cap, and nothing else, keeps what is missing from being started. What is over `max` as well is not
/// missing.
pub(super) fn only_the_cap((reason, also): &(ScaleReason, Vec<ScaleReason>)) -> bool {
    let mut blocks = std::iter::once(reason).chain(also).filter(|block| **block != ScaleReason::AtMax);
    let cap = |block: &ScaleReason| matches!(block, ScaleReason::GatewayCap { .. });
    blocks.next().is_some_and(cap) && blocks.next().is_none()
}

/// Whether more are wanted for who waits, whatever the load needs.
pub(super) fn is_urgent(reason: &ScaleReason) -> bool {
    matches!(reason, ScaleReason::QueueWait | ScaleReason::FromZero | ScaleReason::Burst { .. })
}

impl Planner {
    /// What is missing up to `target`, from what is parked first, as far as it can be woken.
    pub(super) fn missing(&self, target: u32, fleet: &Census, supply: &Supply) -> Missing {
        let there = fleet.current().saturating_add(fleet.draining);
        let missing = target.saturating_sub(there);
        let late = u32::try_from(supply.falling.late.len()).unwrap_or(u32::MAX).min(fleet.parked);
        let asleep = fleet.parked - late;
        let woken = missing.min(asleep);
        let starts = missing - woken;
        let lost = self.lost(there.saturating_add(woken)).min(starts);
        let places = fleet.places(self.sizing.ceiling());
        let all = Holders { leaving: fleet.leaving, falling: late };
        let holders = if starts > places { all } else { Holders::default() };
        Missing { woken, starts, lost, holders, places, beyond: woken == asleep }
    }

    /// Why more are wanted than there are, where something blocks growth.
    pub(super) fn wanted(&self, reason: &ScaleReason, counted: Counted) -> ScaleReason {
        let Counted { needed, target, current, .. } = counted;
        let by_min = needed < target
            && target == self.sizing.floor()
            && (current < target || matches!(reason, ScaleReason::OnTheirWay { .. }));
        match reason {
            ScaleReason::AutoscaleOff => reason.clone(),
            // What was lost is as much as is missing: nothing else asks for one.
            ScaleReason::Replacing if self.replacing.is_some_and(|level| level >= target) => reason.clone(),
            _ if by_min => ScaleReason::BelowMin,
            _ => reason.clone(),
        }
    }

    /// What those that are missing are started on now.
    pub(super) fn orders(&self, missing: Missing, supply: &Supply, now: Instant) -> Vec<Offer> {
        let count = self.startable(missing, supply, now);
        self.affordable(&supply.offers, &supply.grant, count, missing.lost.min(count))
    }

    /// How many of those that are missing may be started now, wherever there is room: each try under way stands for one.
    pub(super) fn startable(&self, missing: Missing, supply: &Supply, now: Instant) -> u32 {
        if self.pause.left(now).is_some() {
            return 0;
        }
        let starts = missing.starts.min(missing.places).saturating_sub(supply.trying);
        supply.grant.room.map_or(starts, |room| room.left.min(starts))
    }

    /// What `count` replicas are started on as far as the credit goes.
    pub(super) fn affordable(&self, offers: &[Offer], grant: &Grant, count: u32, lost: u32) -> Vec<Offer> {
        match grant.is_spent() {
            true => self.unpaid(offers, grant, count, lost),
            false => self.some(offers, count),
        }
    }

    /// What `count` replicas are started on where the credit is used up: on what costs nothing, or up to `lost` of them on
    /// what comes first (M3).
    fn unpaid(&self, offers: &[Offer], grant: &Grant, count: u32, lost: u32) -> Vec<Offer> {
        let free: Vec<Offer> = offers.iter().filter(|offer| !grant.costs(offer.price)).cloned().collect();
        let (free, again) = (self.some(&free, count), self.some(offers, lost));
        if free.len() > again.len() { free } else { again }
    }

    fn some(&self, offers: &[Offer], count: u32) -> Vec<Offer> {
        choose(offers, &self.sizing, usize::try_from(count).unwrap_or(usize::MAX)).0
    }

    /// Whether the credit keeps some of `starts` replicas from being started, whatever else does; `lost` of them are none
    /// that are new.
    pub(super) fn is_broke(&self, starts: u32, lost: u32, supply: &Supply) -> bool {
        supply.grant.is_spent() && starts > lost && self.is_paid(starts, supply)
    }

    /// Whether some of `starts` new replicas need credit.
    fn is_paid(&self, starts: u32, supply: &Supply) -> bool {
        let Supply { offers, grant, .. } = supply;
        let most = usize::try_from(starts).unwrap_or(usize::MAX);
        let costs = || offers.is_empty() || offers.iter().any(|offer| grant.costs(offer.price));
        self.unpaid(offers, grant, starts, 0).len() < most && costs()
    }

    /// Whether one new replica more needs credit, whatever is left of that (M3).
    pub fn needs_credit(&self, supply: &Supply) -> bool {
        self.is_paid(1, supply)
    }

    /// All that keeps some of `starts` replicas from being started now, the nearest first. Each holds whatever the others do.
    fn refusals(&self, starts: u32, lost: u32, supply: &Supply, now: Instant) -> Vec<ScaleReason> {
        if starts == 0 {
            return Vec::new();
        }
        let credit = self.is_broke(starts, lost, supply).then_some(ScaleReason::NoCredit);
        // What is tried holds room under the cap, and blocks nobody that it stands for.
        let with = |tries: u32| move |room: Room| Room { left: room.left.saturating_add(tries), ..room };
        let short = |room: &Room| room.left < starts;
        let room = supply.grant.room.map(with(supply.trying)).filter(short);
        // Where the gateway has no room at all, whether an offer would do is asked for one.
        let count = room.map_or(starts, |room| room.left.max(1));
        let offer = choose(&supply.offers, &self.sizing, usize::try_from(count).unwrap_or(usize::MAX)).1;
        let over = self.sizing.price_cap.zip(over_cap(&supply.offers, &self.sizing));
        let over = over.filter(|_| offer == Some(Blocked::NoCapacity));
        let dearer = over.map(|(cap, dearer)| ScaleReason::RoomOverCap { cap, cheapest: dearer.price });
        // Nor does what others try, where there would be no room for it either.
        let capped = match offer {
            Some(Blocked::NoCapacity) => supply.grant.room.map(|room| with(room.tried)(room)).filter(short),
            _ => room,
        };
        let cap = capped.map(|room| ScaleReason::GatewayCap { cap: room.cap });
        let offer = offer.map(ScaleReason::from);
        let full = room.is_some_and(|room| room.left == 0);
        let last = if full { [cap, offer, dearer] } else { [offer, dearer, cap] };
        [self.pausing(now), credit].into_iter().chain(last).flatten().collect()
    }

    /// That a start has failed, and the next one waits.
    pub(super) fn pausing(&self, now: Instant) -> Option<ScaleReason> {
        let failures = self.pause.failures();
        self.pause.left(now).map(|retry_in| ScaleReason::BackingOff { failures, retry_in })
    }

    /// The reason of a decision that has `reason` to want so many, and what else keeps the fleet from growing. `over`:
    /// `max` keeps one from the load, or from who waits.
    pub(super) fn reasons(
        &self,
        reason: ScaleReason,
        over: bool,
        missing: Missing,
        line: &InLine,
        (supply, now): (&Supply, Instant),
    ) -> (ScaleReason, Vec<ScaleReason>) {
        let at_provider = || line.blocks.iter();
        if missing.starts > 0 {
            let mut blocks = self.refusals(missing.starts, missing.lost, supply, now);
            // Some of those that were ordered before are still there.
            if !blocks.is_empty() {
                let others: Vec<_> = at_provider().filter(|block| !blocks.contains(block)).cloned().collect();
                blocks.extend(others);
            }
            blocks.extend(
                self.at_max(over, missing).filter(|_| missing.holders.are_some() || !blocks.is_empty()),
            );
            if blocks.is_empty() {
                return (reason, blocks);
            }
            return (blocks.remove(0), blocks);
        }
        match reason {
            ScaleReason::OnTheirWay { .. } => {
                let mut blocks = at_provider().cloned();
                (blocks.next().unwrap_or(reason), blocks.collect())
            }
            // What would block the next one, were max no bound. Those up to max come first.
            ScaleReason::AtMax if over && missing.woken == 0 => {
                let mut blocks = self.refusals(u32::from(missing.beyond), 0, supply, now);
                blocks.insert(0, ScaleReason::AtMax);
                blocks.retain(|block| !line.blocks.contains(block));
                blocks.splice(0..0, at_provider().cloned());
                (blocks.remove(0), blocks)
            }
            reason => (reason, Vec::new()),
        }
    }

    /// What keeps the fleet from growing beside a provider that does not answer. Whether its offers have room nobody knows.
    pub(super) fn silent(
        &self,
        target: u32,
        over: bool,
        fleet: &Census,
        (supply, now): (&Supply, Instant),
    ) -> Vec<ScaleReason> {
        let missing = self.missing(target, fleet, supply);
        let next = if over && missing.woken == 0 { u32::from(missing.beyond) } else { 0 };
        let mut blocks = self.refusals(missing.starts.max(next), missing.lost, supply, now);
        blocks.retain(|block| !matches!(block, ScaleReason::NoCapacity | ScaleReason::RoomOverCap { .. }));
        blocks.extend(self.at_max(over, missing));
        blocks
    }

    /// Whether `max` keeps some from being started: `over` of what is needed, or those that hold places.
    fn at_max(&self, over: bool, Missing { holders, .. }: Missing) -> Option<ScaleReason> {
        let Holders { leaving, falling } = holders;
        let max = self.sizing.ceiling();
        match holders.are_some() {
            false => over.then_some(ScaleReason::AtMax),
            true => Some(ScaleReason::AtMaxWithLeaving { leaving, falling, max }),
        }
    }

    /// More are needed than `max` allows; under the rules that look every 30 s, once a check has said so, or somebody waits.
    pub(super) fn is_over(&self, asked: &Asked) -> bool {
        let ceiling = self.sizing.ceiling();
        let line = |figures: &Figures| figures.line.as_ref().map(|need| need.replicas);
        let lasts = |figures| self.checks.wants().max(line(figures)).is_some_and(|level| level > ceiling);
        self.sizing.autoscale && asked.need.replicas > ceiling && asked.figures.as_ref().is_none_or(lasts)
    }
}
