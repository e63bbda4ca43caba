//! Requests that come, last, leave or lose their replica, in the scripted world.

use super::*;

impl State {
    /// Gives each waiter to the ready replica with the fewest requests.
    pub(super) fn dispatch(&mut self) {
        while self.queued > 0 {
            let ready = self.replicas.values_mut().filter(|facts| facts.phase == Phase::Ready);
            let Some(least) = ready.min_by_key(|facts| facts.in_flight) else { return };
            least.in_flight += 1;
            self.begun.push(least.id);
            self.queued -= 1;
        }
    }
}

impl World {
    /// `count` requests come.
    pub(in super::super) fn arrive(&self, count: u32) {
        let mut state = self.state();
        if state.queued == 0 {
            state.queued_since = self.at();
        }
        state.queued += count;
        state.dispatch();
        if state.queued > 0 {
            self.pressed.notify_one();
        }
        drop(state);
        self.run_out();
    }

    /// Every request of replica `id` ends.
    pub(in super::super) fn finish(&self, id: u32) {
        if let Some(facts) = self.state().replicas.get_mut(&ReplicaId(id)) {
            facts.in_flight = 0;
        }
        self.pressed.notify_one();
    }

    /// Replica `id` ends by itself.
    pub(in super::super) fn kill(&self, id: u32) {
        let state = InstanceState::Exited { how: "signal 9".to_owned(), output: Vec::new() };
        self.state().instances.insert(ReplicaId(id), state);
        self.changed.notify_one();
    }

    /// From now on each request takes so long from the moment that a replica has it, and counts as served then.
    pub(in super::super) fn lasting(&self, takes: Duration) {
        self.state().lasts = Some(takes);
    }

    /// Ends those that have begun, each after its time.
    pub(super) fn run_out(&self) {
        let mut state = self.state();
        let begun = std::mem::take(&mut state.begun);
        let Some(takes) = state.lasts else { return };
        drop(state);
        for id in begun {
            self.later(takes, move |world| {
                let mut state = world.state();
                if let Some(facts) = state.replicas.get_mut(&id) {
                    facts.in_flight -= 1;
                    state.served += 1;
                }
                drop(state);
                world.pressed.notify_one();
            });
        }
    }

    /// Replica `id` is stopped, and whatever runs there with it.
    pub(super) fn cut_at(&self, id: ReplicaId) {
        let mut state = self.state();
        state.cut += state.replicas.get(&id).map_or(0, |facts| facts.in_flight);
    }

    /// How many were served, and how many lost their replica before their end.
    pub(in super::super) fn served_and_cut(&self) -> (u32, u32) {
        let state = self.state();
        (state.served, state.cut)
    }

    /// Whoever waits leaves.
    pub(in super::super) fn leave(&self) {
        self.state().queued = 0;
        self.pressed.notify_one();
    }

    /// The provider has replica `id` no more.
    pub(in super::super) fn vanish(&self, id: u32) {
        self.state().instances.remove(&ReplicaId(id));
        self.changed.notify_one();
    }
}
