//! The `static` provider: replicas that somebody else runs, at addresses that the configuration gives. It never starts
//! or stops anything.

use futures_util::future::{self, BoxFuture};
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::{Offer, Price};
use tidegate_shared::replica::Capacity;

use super::{Instance, InstanceState, Provider, ProviderError};

const KIND: &str = "static";

/// Replicas at given addresses; ids count from 1 in the order of the configuration.
#[derive(Clone, Debug)]
pub struct Fixed {
    instances: Vec<Instance>,
}

impl Fixed {
    /// A fleet of one replica for each base URL, with its size. A trailing slash does not matter.
    pub fn new(replicas: impl IntoIterator<Item = (String, Capacity)>) -> Self {
        let instances = (1..).zip(replicas).map(|(id, (url, capacity))| {
            let url = url.trim_end_matches('/').to_owned();
            Instance {
                id: ReplicaId(id),
                capacity,
                price: Price::FREE,
                state: InstanceState::Up { url },
                costs: true,
            }
        });
        Self { instances: instances.collect() }
    }
}

impl Provider for Fixed {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, ProviderError>> {
        Box::pin(future::ready(Ok(self.instances.clone())))
    }

    fn offers(&self) -> Vec<Offer> {
        Vec::new()
    }

    fn start(&self, _: ReplicaId, _: Offer) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(future::ready(Err(ProviderError::Fixed { kind: KIND })))
    }

    fn stop(&self, _: ReplicaId) -> BoxFuture<'_, Result<(), ProviderError>> {
        Box::pin(future::ready(Err(ProviderError::Fixed { kind: KIND })))
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(future::pending())
    }

    fn next_id(&self) -> ReplicaId {
        let last = self.instances.last().map_or(0, |instance| instance.id.0);
        ReplicaId(last.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lists_what_it_was_given_and_refuses_the_rest() {
        let given = [
            ("http://127.0.0.1:9101/".to_owned(), Capacity::ONE),
            ("http://b:80".to_owned(), Capacity::new(8)),
        ];
        let fixed = Fixed::new(given);
        let up = |id, url: &str, capacity| Instance {
            id: ReplicaId(id),
            capacity,
            price: Price::FREE,
            state: InstanceState::Up { url: url.to_owned() },
            costs: true,
        };
        let listed = fixed.list().await.unwrap();
        assert_eq!(
            listed,
            [up(1, "http://127.0.0.1:9101", Capacity::ONE), up(2, "http://b:80", Capacity::new(8))]
        );
        assert_eq!(fixed.next_id(), ReplicaId(3));
        let refused = Err(ProviderError::Fixed { kind: "static" });
        assert_eq!(fixed.offers(), []);
        let offer = Offer::new("any", Capacity::ONE, Price::FREE);
        assert_eq!(fixed.start(ReplicaId(3), offer).await, refused);
        assert_eq!(fixed.stop(ReplicaId(1)).await, refused);
    }
}
