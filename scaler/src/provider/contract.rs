//! What every provider must do, as one suite: a provider's tests hand it a [`Rig`] and run [`check`].
//!
//! Knows nothing of processes, containers or jobs.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;

use super::{Instance, InstanceState, Provider, ProviderError};

/// How long anything may take before the suite gives up; no measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the replicas of a provider do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// They listen, and serve until they are stopped.
    Serves,
    /// They print `boom` and end by themselves.
    Dies,
    /// They cannot be started at all.
    Missing,
}

/// Makes providers that share one set of records, as one run of the gateway after the other would.
pub(crate) trait Rig {
    /// What is tested.
    type Provider: Provider;

    /// The provider of the deployment `name` as a fresh run of the gateway has it. Earlier ones for it were dropped.
    fn open<'a>(&'a mut self, name: &'a str, engine: Engine) -> BoxFuture<'a, Self::Provider>;
}

/// Waits until `wanted` holds for the list, woken by nothing but [`Provider::changed`].
pub(crate) async fn until(provider: &impl Provider, wanted: impl Fn(&[Instance]) -> bool) -> Vec<Instance> {
    let mut last = Vec::new();
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            last = provider.list().await.unwrap();
            if wanted(&last) {
                return;
            }
            provider.changed().await;
        }
    });
    assert!(waited.await.is_ok(), "the list never came to be as wanted; it is {last:?}");
    last
}

/// The first offer.
pub(crate) fn offer(provider: &impl Provider) -> Offer {
    provider.offers().into_iter().next().expect("something to start a replica on")
}

/// Starts the next replica on the first offer and returns its id.
pub(crate) async fn start(provider: &impl Provider) -> ReplicaId {
    let id = provider.next_id();
    provider.start(id, offer(provider)).await.unwrap();
    id
}

/// Whether all of `instances` are up, and that many.
pub(crate) fn up(instances: &[Instance], number: usize) -> bool {
    instances.len() == number && instances.iter().all(|one| matches!(one.state, InstanceState::Up { .. }))
}

/// Runs the whole suite.
pub(crate) async fn check(mut rig: impl Rig) {
    lives_and_stops(&rig.open("lives", Engine::Serves).await).await;
    survives_restarts(&mut rig).await;
    shows_an_exit(&rig.open("dies", Engine::Dies).await).await;
    refuses_what_cannot_start(&rig.open("missing", Engine::Missing).await).await;
}

async fn lives_and_stops(provider: &impl Provider) {
    assert_eq!(provider.list().await.unwrap(), []);
    let first = start(provider).await;
    assert!(first >= ReplicaId(1));
    let second = start(provider).await;
    assert!(second > first, "ids grow");
    let ids: Vec<ReplicaId> = provider.list().await.unwrap().iter().map(|one| one.id).collect();
    assert_eq!(ids, [first, second], "a start is listed at once, in order of id");
    let both = until(provider, |list| up(list, 2)).await;
    assert_ne!(both[0].state, both[1].state, "two replicas, two addresses");
    let offer = offer(provider);
    assert!(both.iter().all(|one| (one.capacity, one.price) == (offer.capacity, offer.price)));
    let again = provider.start(first, offer).await.unwrap_err();
    assert!(matches!(again, ProviderError::Start { id, .. } if id == first), "{again}");
    assert_eq!(provider.list().await.unwrap(), both, "a refused start changes nothing");
    provider.stop(first).await.unwrap();
    assert_eq!(provider.list().await.unwrap(), both[1..], "only the one that was meant is gone");
    provider.stop(first).await.unwrap();
    provider.stop(ReplicaId(4_000_000)).await.unwrap();
    assert!(provider.next_id() > second, "the id of a stopped replica is not used again");
    provider.stop(second).await.unwrap();
    assert_eq!(provider.list().await.unwrap(), []);
}

async fn survives_restarts(rig: &mut impl Rig) {
    let provider = rig.open("restarts", Engine::Serves).await;
    start(&provider).await;
    let doomed = start(&provider).await;
    start(&provider).await;
    until(&provider, |list| up(list, 3)).await;
    provider.stop(doomed).await.unwrap();
    let before = until(&provider, |list| up(list, 2)).await;
    let next = provider.next_id();
    drop(provider);
    let provider = rig.open("restarts", Engine::Serves).await;
    assert_eq!(until(&provider, |list| up(list, 2)).await, before, "same ids, same addresses (C3)");
    assert!(provider.next_id() >= next, "an id of an earlier run is not used again");
    for one in before {
        provider.stop(one.id).await.unwrap();
    }
    drop(provider);
    assert_eq!(rig.open("restarts", Engine::Serves).await.list().await.unwrap(), [], "nothing comes back");
}

async fn shows_an_exit(provider: &impl Provider) {
    let id = start(provider).await;
    let ended = |list: &[Instance]| list.iter().any(|one| matches!(one.state, InstanceState::Exited { .. }));
    let list = until(provider, ended).await;
    let InstanceState::Exited { how, output } = &list[0].state else { panic!("{list:?}") };
    assert!(!how.is_empty());
    assert!(output.iter().any(|line| line.contains("boom")), "{output:?}");
    assert_eq!(provider.list().await.unwrap(), list, "listed until it is stopped");
    provider.stop(id).await.unwrap();
    assert_eq!(provider.list().await.unwrap(), []);
}

async fn refuses_what_cannot_start(provider: &impl Provider) {
    let id = provider.next_id();
    let error = provider.start(id, offer(provider)).await.unwrap_err();
    assert!(
        matches!(&error, ProviderError::Start { id: of, why } if *of == id && !why.is_empty()),
        "{error}"
    );
    assert_eq!(provider.list().await.unwrap(), [], "nothing is left behind");
}
