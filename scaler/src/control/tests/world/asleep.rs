//! What the scripted world does with replicas that sleep, and whether it was told that none can be started.

use super::*;

impl World {
    pub(super) fn keep(&self, id: ReplicaId, parked: bool) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(async move {
            let Script { keeps, stuck, .. } = self.script().clone();
            if !keeps {
                return Err(ProviderError::NoParking { id, kind: "scripted" });
            }
            self.note(format!("{} {id}", if parked { "park" } else { "unpark" }));
            if stuck {
                std::future::pending::<()>().await;
            }
            self.lists(id.0, parked);
            Ok(())
        })
    }

    /// Replica `id` is listed as parked by the provider, or as up.
    pub(in super::super) fn lists(&self, id: u32, parked: bool) {
        let url = format!("http://replica-{id}");
        let state = if parked { InstanceState::Parked { url } } else { InstanceState::Up { url } };
        let mut known = self.state();
        known.last_id = known.last_id.max(id);
        known.instances.insert(ReplicaId(id), state);
    }

    /// The probe of replica `id` finds that its engine sleeps.
    pub(in super::super) fn found_sleeping(&self, id: u32) {
        self.state().replicas.get_mut(&ReplicaId(id)).unwrap().phase = Phase::Parked;
        self.pressed.notify_one();
    }

    /// Whether it was told last that none can be started.
    pub(in super::super) fn startless(&self) -> bool {
        self.state().starts_from.is_none()
    }
}
