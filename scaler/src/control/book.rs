//! The control loop's book of its replicas: what was announced of each, which provider call is running, and what has
//! to end. It turns what a provider lists into announcements. It calls nobody and decides no sizes.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_shared::demand::Observation;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Price;
use tidegate_shared::replica::{Capacity, Phase, ReplicaFacts};
use tidegate_shared::time::{Duration, Instant};

use super::helm::Drained;
use crate::fleet::Change;
use crate::provider::{Instance, InstanceState};
pub(super) use parked::Way;
pub(super) use start::Purpose;
pub(super) use words::explain;
use words::quote;

/// An announcement to make.
pub(super) type News = (ReplicaId, Change);

/// A replica that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newcomer {
    pub(super) id: ReplicaId,
    pub(super) how: Came,
    /// Since it entered the book, or was to be woken.
    pub(super) after: Duration,
}

/// How a replica came to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// This loop ordered it.
    Ordered,
    /// This loop woke it.
    Woken,
    /// It was there already.
    Found,
}

/// Every replica of one deployment that exists or is about to.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    members: BTreeMap<ReplicaId, Member>,
    /// Those that were stopped and that no list has left out yet, and when a stop may be called again.
    stopped: BTreeMap<ReplicaId, Instant>,
    /// Of these, those that were listed since and not told.
    lingering: Vec<ReplicaId>,
    /// Whom an earlier run had told to stop.
    told_before: BTreeSet<ReplicaId>,
}

#[derive(Clone, Debug)]
struct Member {
    capacity: Capacity,
    price: Price,
    /// When it entered the book, or was last to be woken.
    since: Instant,
    /// When the last step of its sleep began: to fall asleep, to wake up, or to become ready.
    turned: Instant,
    /// From when on its start counts: not before its provider has room for it.
    began: Instant,
    stage: Stage,
    /// Ordered by this loop, not adopted.
    ordered_here: bool,
    /// Its start asks whether there is room by now: it is no replica before it is taken.
    tried: bool,
    /// An earlier run had told it to stop.
    told_before: bool,
    /// Its provider has no room for it yet.
    queued: bool,
    /// Why its provider does not start it, while it does not.
    held: Option<String>,
    /// It has no machine yet, and costs nothing.
    in_line: bool,
    /// A provider call for it is running; there is never a second one.
    busy: bool,
    /// An operator takes it out, or its provider ends it.
    let_go: bool,
    /// Its provider ends it, which is not undone.
    ending: bool,
    /// Set once it has to go.
    end: Option<End>,
    /// No provider call before this moment.
    not_before: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Ordered,
    Up,
    /// Was seen Ready.
    Served,
    /// It sleeps, or is about to.
    Parked(Way),
    Waking(Way),
}

impl Stage {
    /// It was ordered or adopted, and was never seen Ready.
    fn starts(self) -> bool {
        matches!(self, Self::Ordered | Self::Up)
    }
}

#[derive(Clone, Debug)]
struct End {
    why: String,
    /// Already announced as gone or failed.
    told: bool,
}

impl Member {
    fn new(capacity: Capacity, price: Price, since: Instant, stage: Stage) -> Self {
        let (ordered_here, tried, queued, in_line, busy) = (false, false, false, false, false);
        let (told_before, let_go, ending) = (false, false, false);
        let (held, end, not_before) = (None, None, Instant::ZERO);
        let (turned, began) = (since, since);
        Self {
            capacity,
            price,
            since,
            turned,
            began,
            stage,
            ordered_here,
            tried,
            told_before,
            queued,
            held,
            in_line,
            busy,
            let_go,
            ending,
            end,
            not_before,
        }
    }
}

impl Book {
    /// An empty one, after an earlier run that had told these to stop.
    pub(super) fn after(told: impl IntoIterator<Item = ReplicaId>) -> Self {
        Self { told_before: told.into_iter().collect(), ..Self::default() }
    }

    /// Compares with what the provider lists (in order of id), and tells what to announce.
    pub(super) fn take_in(&mut self, listed: &[Instance], now: Instant) -> Vec<News> {
        let mut news = Vec::new();
        self.stopped.retain(|id, _| listed.iter().any(|one| one.id == *id));
        for one in listed {
            news.extend(self.take_in_one(one, now).into_iter().map(|change| (one.id, change)));
        }
        self.members.retain(|id, member| {
            if member.busy || listed.iter().any(|one| one.id == *id) {
                return true;
            }
            match member.end.take() {
                Some(End { told: true, .. }) => {}
                Some(End { why, told: false }) => news.push((*id, Change::Gone { why })),
                None if member.ending => {
                    news.push((*id, Change::Gone { why: "its provider has ended it".to_owned() }));
                }
                None => news.push((*id, member.ended("it vanished from its provider".to_owned()))),
            }
            false
        });
        news
    }

    /// Those that their provider still names though it has stopped them, each told once for each stop.
    pub(super) fn lingering(&mut self) -> Vec<ReplicaId> {
        std::mem::take(&mut self.lingering)
    }

    fn take_in_one(&mut self, listed: &Instance, now: Instant) -> Vec<Change> {
        if let Some(again) = self.stopped.remove(&listed.id) {
            // What was stopped is no replica to adopt: it holds its place until it is gone, and is stopped again.
            let end = Some(End { why: "its provider still lists it".to_owned(), told: true });
            let new = Member::new(listed.capacity, listed.price, now, Stage::Served);
            self.members.insert(listed.id, Member { end, not_before: again, ..new });
            self.lingering.push(listed.id);
        }
        // What is tried is there as soon as its provider says more than that its start goes on.
        let tried = self.is_taken(listed);
        let known = self.members.contains_key(&listed.id) && !tried;
        let member = self
            .members
            .entry(listed.id)
            .or_insert_with(|| Member::new(listed.capacity, listed.price, now, Stage::Ordered));
        member.told_before = self.told_before.contains(&listed.id);
        member.in_line = !listed.costs;
        if member.end.is_some() {
            return Vec::new();
        }
        let capacity = listed.capacity;
        member.price = listed.price;
        member.queued = matches!(listed.state, InstanceState::Queued { .. });
        member.held = listed.state.held().map(str::to_owned);
        if member.queued {
            member.began = now;
        }
        match &listed.state {
            InstanceState::Pending { .. } | InstanceState::Queued { .. } | InstanceState::Held { .. } => {
                if known {
                    Vec::new()
                } else {
                    vec![Change::Ordered { capacity }]
                }
            }
            InstanceState::Up { url } | InstanceState::Parked { url } if member.stage == Stage::Ordered => {
                member.capacity = capacity;
                let mut news = vec![Change::Up { url: url.clone(), capacity }];
                let parked = matches!(listed.state, InstanceState::Parked { .. });
                member.stage = if parked { Stage::Parked(Way::Provider) } else { Stage::Up };
                news.extend(parked.then_some(Change::Parked));
                news
            }
            // One that serves and was stopped by somebody else is for its probe to notice.
            InstanceState::Up { .. } | InstanceState::Parked { .. } => Vec::new(),
            // Who serves there is drained like one that an operator takes out.
            InstanceState::Ending { .. } => {
                member.ending = true;
                Vec::new()
            }
            InstanceState::Exited { how, output } => {
                let why = quote(how, output);
                member.end = Some(End { why: why.clone(), told: true });
                known.then(|| member.ended(why)).into_iter().collect()
            }
        }
    }

    /// The stop call has ended; after an error it is called again, not before `again`, and so is one that did nothing.
    pub(super) fn stop_ended(&mut self, id: ReplicaId, stopped: bool, again: Instant) -> Option<News> {
        if !stopped {
            let member = self.members.get_mut(&id)?;
            (member.busy, member.not_before) = (false, again);
            return None;
        }
        self.stopped.insert(id, again);
        let End { why, told } = self.members.remove(&id)?.end?;
        (!told).then_some((id, Change::Gone { why }))
    }

    /// It has to go. One that failed before it ever served is announced as a failed start.
    pub(super) fn end(&mut self, id: ReplicaId, why: &str, failed: bool) -> Option<News> {
        let member = self.members.get_mut(&id).filter(|member| member.end.is_none())?;
        let told = failed && member.stage.starts();
        member.end = Some(End { why: why.to_owned(), told });
        told.then(|| (id, Change::StartFailed { why: why.to_owned() }))
    }

    /// Exactly these are taken out, and those that their provider ends, of those that have not to go anyway; tells what to
    /// announce.
    pub(super) fn let_go(&mut self, out: &BTreeMap<ReplicaId, Drained>) -> Vec<News> {
        let living = self.members.iter_mut().filter(|(_, member)| member.end.is_none());
        let news = living.filter_map(|(id, member)| {
            let goes = member.ending || out.contains_key(id);
            let went = std::mem::replace(&mut member.let_go, goes);
            (goes != went).then_some((*id, if goes { Change::Drain } else { Change::Undrain }))
        });
        news.collect()
    }

    /// Whether it is taken out, and has not to go yet.
    pub(super) fn is_let_go(&self, id: ReplicaId) -> bool {
        self.members.get(&id).is_some_and(|member| member.let_go && member.end.is_none())
    }

    /// Everything has to go.
    pub(super) fn end_all(&mut self, why: &str) {
        for member in self.members.values_mut().filter(|member| member.end.is_none()) {
            member.end = Some(End { why: why.to_owned(), told: false });
        }
    }

    /// Those whose stop may be called now; it counts as running from here on.
    pub(super) fn stops_due(&mut self, now: Instant) -> Vec<ReplicaId> {
        let due = |one: &Member| one.end.is_some() && !one.busy && now >= one.not_before;
        let due = self.members.iter_mut().filter(|(_, member)| due(member));
        due.map(|(id, member)| {
            member.busy = true;
            *id
        })
        .collect()
    }

    /// Notes who became ready since the last observation.
    pub(super) fn became_ready(&mut self, seen: &Observation) -> Vec<Newcomer> {
        let mut new = Vec::new();
        for facts in seen.replicas.iter().filter(|facts| facts.phase == Phase::Ready) {
            if let Some(member) = self.members.get_mut(&facts.id)
                && member.stage != Stage::Served
                && member.end.is_none()
            {
                let how = match std::mem::replace(&mut member.stage, Stage::Served) {
                    Stage::Waking(_) => Came::Woken,
                    Stage::Ordered | Stage::Up if member.ordered_here => Came::Ordered,
                    Stage::Ordered | Stage::Up | Stage::Parked(_) | Stage::Served => Came::Found,
                };
                new.push(Newcomer { id: facts.id, how, after: seen.at.since(member.since) });
            }
        }
        new
    }

    /// The observation as the planner needs it: exactly the replicas of this book, those that have to go, or that an
    /// operator takes out, as Gone; without what is only tried.
    pub(super) fn refine(&self, mut seen: Observation) -> Observation {
        let mut observed = std::mem::take(&mut seen.replicas);
        let members = self.members.iter().filter(|(_, member)| !member.tried);
        seen.replicas = members
            .map(|(&id, member)| {
                let found =
                    observed.iter().position(|facts| facts.id == id).map(|at| observed.swap_remove(at));
                let mut facts = found.unwrap_or_else(|| member.facts(id));
                (facts.price, facts.in_line) = (member.price, member.in_line);
                if member.end.is_some() || member.let_go {
                    facts.phase = Phase::Gone;
                }
                facts
            })
            .collect();
        seen
    }

    /// Whether this loop ordered it; else it was there already.
    pub(super) fn ordered(&self, id: ReplicaId) -> bool {
        self.members.get(&id).is_some_and(|member| member.ordered_here)
    }

    /// Those that wait for room at their provider, in order of id.
    pub(super) fn waiting(&self) -> Vec<ReplicaId> {
        let waits = |member: &Member| member.queued && member.end.is_none() && !member.let_go;
        self.members.iter().filter(|(_, member)| waits(member)).map(|(id, _)| *id).collect()
    }

    /// How many their provider does not start as they are.
    pub(super) fn held(&self) -> u32 {
        let held = |member: &&Member| member.held.is_some() && member.end.is_none() && !member.let_go;
        u32::try_from(self.members.values().filter(held).count()).unwrap_or(u32::MAX)
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Every id, in order.
    pub(super) fn ids(&self) -> Vec<ReplicaId> {
        self.members.keys().copied().collect()
    }
}

impl Member {
    /// What is known of a replica that the gateway does not list.
    fn facts(&self, id: ReplicaId) -> ReplicaFacts {
        let phase = match self.stage {
            Stage::Ordered => Phase::Provisioning,
            Stage::Up | Stage::Served => Phase::Starting,
            Stage::Parked(_) => Phase::Parked,
            Stage::Waking(_) => Phase::Waking,
        };
        ReplicaFacts { price: self.price, ..ReplicaFacts::new(id, phase, self.since, self.capacity) }
    }
}

mod loss;
mod overdue;
mod parked;
mod start;
#[cfg(test)]
mod tests;
mod words;
