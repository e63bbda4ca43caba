//! What every provider must do, as one suite: a provider's tests hand it a [`Rig`] and run [`check`].
//!
//! Knows nothing of processes, containers or jobs. It is here for tests only: of this crate, and with the feature
//! `contract` of those that bring a daemon along.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code: a broken expectation must end the test"
)]

use std::time::Duration;

use futures_util::future::BoxFuture;
use tidegate_shared::id::ReplicaId;
use tidegate_shared::offer::Offer;

use super::{Instance, InstanceState, Provider, ProviderError};

/// How often what is there is looked at where nothing tells of a change.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How long anything may take before the suite gives up; no measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the replicas of a provider do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// They listen, and serve until they are stopped.
    Serves,
    /// They print `boom` and end by themselves.
    Dies,
    /// They cannot be started at all.
    Missing,
}

/// Makes providers that share one set of records, as one run of the gateway after the other would.
pub trait Rig {
    /// What is tested.
    type Provider: Provider;

    /// The provider of the deployment `name` as a fresh run of the gateway has it. Earlier ones for it were dropped.
    fn open<'a>(&'a mut self, name: &'a str, engine: Engine) -> BoxFuture<'a, Self::Provider>;

    /// The same, of a provider that has no room, and says that there is `none`; `None` for one that cannot tell.
    fn full<'a>(&'a mut self, _name: &'a str) -> Option<BoxFuture<'a, Self::Provider>> {
        None
    }

    /// Ends the engine of a replica from outside, by force.
    fn crash<'a>(&'a mut self, name: &'a str, id: ReplicaId) -> BoxFuture<'a, ()>;

    /// The replicas of the deployment `name` of which anything is left, running or not, as seen from outside and not
    /// through a provider; one that is there twice is named twice.
    fn there<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Vec<ReplicaId>>;

    /// Puts something there that resembles a replica as closely as can be, and is not this gateway's.
    fn put_stranger(&mut self) -> BoxFuture<'_, ()>;

    /// Whether the stranger is still there, as it was.
    fn stranger_lives(&mut self) -> BoxFuture<'_, bool>;
}

/// Waits until `wanted` holds for the list, woken by nothing but [`Provider::changed`].
pub async fn until(provider: &impl Provider, mut wanted: impl FnMut(&[Instance]) -> bool) -> Vec<Instance> {
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
pub fn offer(provider: &impl Provider) -> Offer {
    provider.offers().into_iter().next().expect("something to start a replica on")
}

/// Starts the next replica on the first offer and returns its id.
pub async fn start(provider: &impl Provider) -> ReplicaId {
    let id = provider.next_id();
    provider.start(id, offer(provider)).await.unwrap();
    id
}

/// Whether all of `instances` are up, and that many.
pub fn up(instances: &[Instance], number: usize) -> bool {
    instances.len() == number && instances.iter().all(|one| matches!(one.state, InstanceState::Up { .. }))
}

/// Runs the whole suite.
pub async fn check(mut rig: impl Rig) {
    rig.put_stranger().await;
    lives_and_stops(&rig.open("lives", Engine::Serves).await).await;
    survives_restarts(&mut rig).await;
    shows_an_exit(&rig.open("dies", Engine::Dies).await).await;
    refuses_what_cannot_start(&rig.open("missing", Engine::Missing).await).await;
    if let Some(full) = rig.full("full") {
        says_that_it_has_no_room(&full.await).await;
    }
    notices_a_crash(&mut rig).await;
    survives_starts_that_are_cut_off(&mut rig).await;
    for name in ["lives", "restarts", "dies", "missing", "full", "crash", "cut"] {
        assert_eq!(rig.there(name).await, [], "nothing of {name} is left");
    }
    assert!(rig.stranger_lives().await, "nothing foreign is touched (C-005)");
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

/// No room is no failed start, and whether the offer has some by now only another start can tell (M1).
async fn says_that_it_has_no_room(provider: &impl Provider) {
    let (id, wanted) = (provider.next_id(), offer(provider));
    assert_ne!(wanted.free, Some(0), "nobody knows it yet");
    let error = provider.start(id, wanted.clone()).await.unwrap_err();
    assert!(
        matches!(&error, ProviderError::NoRoom { id: of, why } if *of == id && why.contains("none")),
        "{error}"
    );
    assert_eq!(offer(provider), wanted);
    assert_eq!(provider.list().await.unwrap(), [], "nothing is left behind");
}

async fn notices_a_crash(rig: &mut impl Rig) {
    let provider = rig.open("crash", Engine::Serves).await;
    let (one, two) = (start(&provider).await, start(&provider).await);
    let both = until(&provider, |list| up(list, 2)).await;
    rig.crash("crash", one).await;
    let ended = |one: &Instance| matches!(one.state, InstanceState::Exited { .. });
    let list = until(&provider, |list| list.iter().any(ended)).await;
    assert_eq!(list.iter().map(|one| (one.id, ended(one))).collect::<Vec<_>>(), [(one, true), (two, false)]);
    assert_eq!(list[1], both[1], "its sibling is as it was");
    for id in [one, two] {
        provider.stop(id).await.unwrap();
    }
}

/// As a gateway that is killed in the middle of a start: sooner or later, everything that is there is on the list, and
/// everything on the list is there once (C-005).
async fn survives_starts_that_are_cut_off(rig: &mut impl Rig) {
    for patience in [0, 1, 4, 16, 64, 256, 1024] {
        let provider = rig.open("cut", Engine::Serves).await;
        // A gateway starts nothing before its provider has listed what there is.
        provider.list().await.unwrap();
        let cut = async {
            for _ in 0..patience {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            started = provider.start(provider.next_id(), offer(&provider)) => started.unwrap(),
            () = cut => {}
        }
    }
    let provider = rig.open("cut", Engine::Serves).await;
    let mut seen = (Vec::new(), Vec::new());
    let settled = async {
        loop {
            seen = (provider.list().await.unwrap(), rig.there("cut").await);
            let ids: Vec<ReplicaId> = seen.0.iter().map(|one| one.id).collect();
            if up(&seen.0, ids.len()) && seen.1 == ids {
                return ids;
            }
            // What is there has no event of its own: a start that was cut off may end after the last change of the list.
            let _ = tokio::time::timeout(LOOK_AGAIN, provider.changed()).await;
        }
    };
    let ids = tokio::time::timeout(PATIENCE, settled).await;
    let ids = ids.unwrap_or_else(|_| panic!("the list and what is there never agree: {seen:?}"));
    for id in ids {
        provider.stop(id).await.unwrap();
    }
}
