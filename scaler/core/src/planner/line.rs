//! Those that the provider has taken and has no machine for yet: who may not have one any more, who is ordered anew on an
//! offer that has room, and what keeps the others from running (C2, M1, M3). It never says how many there should be.

use tidegate_shared::decision::ScaleReason;
use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;
use tidegate_shared::replica::ReplicaFacts;

use super::{Census, Planner, Supply};
use crate::config::Sizing;
use crate::offer::room;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct InLine {
    /// They may not have one any more.
    pub(super) withdrawn: Vec<ReplicaId>,
    /// They are ordered anew elsewhere.
    pub(super) moved: Vec<ReplicaId>,
    /// What keeps from running those that stay, what waiting does not mend first. Each other offer with room that could take
    /// one of them is barred by what is told here.
    pub(super) blocks: Vec<ScaleReason>,
}

impl Planner {
    /// The line as of `seen`, where so many `orders` are placed beside it.
    pub(super) fn line(&self, seen: &Observation, fleet: &Census, orders: usize, supply: &Supply) -> InLine {
        let withdrawn = self.withdrawn(seen, fleet, supply);
        let moved = self.moved(seen, orders, &withdrawn, supply);
        let held = (supply.held > 0).then_some(ScaleReason::ProviderHolds { count: supply.held });
        let mut blocks: Vec<_> = held.into_iter().collect();
        if !supply.waiting.is_empty() {
            blocks.push(ScaleReason::NoCapacity);
            let gone = [withdrawn.as_slice(), &moved].concat();
            blocks.extend(self.barred(seen, orders, &gone, supply));
        }
        InLine { withdrawn, moved, blocks }
    }

    /// Those that wait for a machine and would get one that they may not have any more: they cost more than the cap, or
    /// anything while the credit is used up. Those that stand for one that ran stay, the first that were ordered.
    fn withdrawn(&self, seen: &Observation, fleet: &Census, supply: &Supply) -> Vec<ReplicaId> {
        let grant = &supply.grant;
        let lost = self.lost(fleet.current().saturating_sub(fleet.in_line));
        let mut lost = usize::try_from(lost).unwrap_or(usize::MAX);
        let dear = |price| self.sizing.price_cap.is_some_and(|cap| price > cap);
        let paid = |price| grant.is_spent() && grant.costs(price);
        let in_line = seen.replicas.iter().filter(|one| one.in_line && one.is_on_its_way());
        let may_not = in_line.filter(|one| {
            let stays = !dear(one.price) && (!paid(one.price) || lost > 0);
            lost = lost.saturating_sub(usize::from(stays));
            !stays
        });
        may_not.map(|one| one.id).collect()
    }

    /// Those that wait on an offer without room though a dearer one has some beside that for `orders`: it could not be taken
    /// when they were ordered (M1, M3). `gone` are going anyway.
    fn moved(
        &self,
        seen: &Observation,
        orders: usize,
        gone: &[ReplicaId],
        supply: &Supply,
    ) -> Vec<ReplicaId> {
        let Supply { offers, grant, waiting, .. } = supply;
        if self.pause.left(seen.at).is_some() {
            return Vec::new();
        }
        let may = |offer: &&Offer| !grant.is_spent() || !grant.costs(offer.price);
        let may: Vec<Offer> = offers.iter().filter(may).cloned().collect();
        let waits: Vec<_> = waits(seen, waiting).filter(|one| !gone.contains(&one.id)).collect();
        elsewhere(&waits, &may, &self.sizing, orders).map(|(id, _)| id).collect()
    }

    /// What keeps those that wait, but for who is `gone`, from the offers that they would be ordered on if every one might be
    /// taken: each cause goes on doing so whatever the others do (C2).
    fn barred(
        &self,
        seen: &Observation,
        orders: usize,
        gone: &[ReplicaId],
        supply: &Supply,
    ) -> Vec<ScaleReason> {
        let Supply { offers, grant, waiting, .. } = supply;
        let any = Sizing { price_cap: None, ..self.sizing.clone() };
        let waits: Vec<_> = waits(seen, waiting).collect();
        let there = elsewhere(&waits, offers, &any, orders);
        let there: Vec<&Offer> = there.filter(|(id, _)| !gone.contains(id)).map(|(_, offer)| offer).collect();
        let dear = self.sizing.price_cap.and_then(|cap| {
            let over = there.iter().find(|offer| offer.price > cap)?;
            Some(ScaleReason::RoomOverCap { cap, cheapest: over.price })
        });
        let paid = grant.is_spent() && there.iter().any(|offer| grant.costs(offer.price));
        let paid = paid.then_some(ScaleReason::NoCredit);
        let pause = self.pausing(seen.at).filter(|_| !there.is_empty());
        [pause, dear, paid].into_iter().flatten().collect()
    }
}

/// Those of `waiting` that are still on their way, the first that were ordered first.
fn waits<'a>(seen: &'a Observation, waiting: &[ReplicaId]) -> impl Iterator<Item = &'a ReplicaFacts> {
    let all = seen.replicas.iter();
    all.filter(move |one| one.is_on_its_way() && waiting.contains(&one.id))
}

/// Which of those that wait find room beside that for `orders`, one each, on an offer that costs more than what they wait on:
/// never on a cheaper one, so that none goes to and fro.
fn elsewhere<'a>(
    waits: &[&ReplicaFacts],
    offers: &'a [Offer],
    sizing: &Sizing,
    orders: usize,
) -> impl Iterator<Item = (ReplicaId, &'a Offer)> {
    let room = room(offers, sizing, orders.saturating_add(waits.len())).into_iter().skip(orders);
    let dearer =
        |(one, offer): (&&ReplicaFacts, &'a Offer)| (offer.price > one.price).then_some((one.id, offer));
    waits.iter().zip(room).filter_map(dearer)
}
