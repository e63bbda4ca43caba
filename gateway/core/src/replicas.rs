//! The replicas of one deployment as requests see them: phase, size, what is in progress there, and who may be
//! considered for a request.
//!
//! Decides nothing about a particular request; that is `dispatch`.

use smallvec::SmallVec;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::replica::{Capacity, Phase};
use tidegate_shared::request::Tokens;
use tidegate_shared::time::Instant;

/// One replica.
#[derive(Clone, Debug)]
pub struct Replica<T> {
    /// Which one.
    pub id: ReplicaId,
    /// Its phase.
    pub phase: Phase,
    /// Since when it is in that phase.
    pub since: Instant,
    /// When it was ordered or first seen.
    pub ordered: Instant,
    /// Its size.
    pub capacity: Capacity,
    /// Requests in progress.
    pub in_flight: u32,
    /// Tokens of the requests in progress, answers that may still grow included.
    pub load: Tokens,
    /// A request could not even connect: it takes none until somebody has looked.
    pub suspect: bool,
    /// Its turn among equals.
    pub turn: T,
}

impl<T> Replica<T> {
    /// Whether it takes requests.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Ready && !self.suspect
    }

    /// Whether it was ordered and is not ready yet.
    pub fn is_on_its_way(&self) -> bool {
        matches!(self.phase, Phase::Provisioning | Phase::Starting)
    }
}

/// All replicas that are not gone, in order of id.
#[derive(Clone, Debug)]
pub struct Replicas<T> {
    list: Vec<Replica<T>>,
    ready: u32,
    ready_units: u64,
}

impl<T> Default for Replicas<T> {
    fn default() -> Self {
        Self { list: Vec::new(), ready: 0, ready_units: 0 }
    }
}

impl<T: Copy> Replicas<T> {
    /// The replica `id`.
    pub fn get(&self, id: ReplicaId) -> Option<&Replica<T>> {
        self.position(id).ok().and_then(|at| self.list.get(at))
    }

    /// The replica `id`, to account requests on it. Phase and capacity change only through [`Replicas::update`].
    pub fn get_mut(&mut self, id: ReplicaId) -> Option<&mut Replica<T>> {
        let at = self.position(id).ok()?;
        self.list.get_mut(at)
    }

    /// Adds a replica, or does nothing when it is known.
    pub fn insert(&mut self, replica: Replica<T>) {
        if let Err(at) = self.position(replica.id) {
            self.list.insert(at, replica);
            self.recount();
        }
    }

    /// Changes a replica; nothing happens when it is not known.
    pub fn update(&mut self, id: ReplicaId, change: impl FnOnce(&mut Replica<T>)) {
        if let Some(replica) = self.get_mut(id) {
            change(replica);
            self.recount();
        }
    }

    /// Forgets a replica and gives what is left of it.
    pub fn remove(&mut self, id: ReplicaId) -> Option<Replica<T>> {
        let at = self.position(id).ok()?;
        let gone = self.list.remove(at);
        self.recount();
        Some(gone)
    }

    /// All of them, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = &Replica<T>> {
        self.list.iter()
    }

    /// How many take requests.
    pub fn ready(&self) -> u32 {
        self.ready
    }

    /// How many were ordered and are not ready yet.
    pub fn on_their_way(&self) -> u32 {
        u32::try_from(self.iter().filter(|replica| replica.is_on_its_way()).count()).unwrap_or(u32::MAX)
    }

    /// The concurrency limit of one replica (Q1), when the mean is `mean`: its share by capacity, rounded up, at
    /// least 1.
    pub fn limit(&self, replica: &Replica<T>, mean: u32) -> u32 {
        if self.ready_units == 0 {
            return mean.max(1);
        }
        let share = u64::from(mean) * u64::from(self.ready) * u64::from(replica.capacity.units());
        u32::try_from(share.div_ceil(self.ready_units)).unwrap_or(u32::MAX).max(1)
    }

    /// Ready replicas with a free place that are not in `tried`. When every ready replica is in `tried`, they get
    /// another chance.
    pub fn with_room(&self, mean: u32, tried: &[ReplicaId]) -> SmallVec<[&Replica<T>; 16]> {
        let ready = || self.list.iter().filter(|replica| replica.is_open());
        let all_tried = !tried.is_empty() && ready().all(|replica| tried.contains(&replica.id));
        ready()
            .filter(|replica| replica.in_flight < self.limit(replica, mean))
            .filter(|replica| all_tried || !tried.contains(&replica.id))
            .collect()
    }

    fn position(&self, id: ReplicaId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&id, |replica| replica.id)
    }

    fn recount(&mut self) {
        let ready = || self.list.iter().filter(|replica| replica.is_open());
        (self.ready, self.ready_units) =
            ready().fold((0, 0), |(n, units), replica| (n + 1, units + u64::from(replica.capacity.units())));
    }
}
