//! Follows the daemon: its events, the ports of engines on the machine's network, and what starting engines print.
//!
//! Only tells that there is something to look at, and keeps what it read; the list decides what it means.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tidegate_shared::id::ReplicaId;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::debug;

use super::super::process::port::{self, Owner};
use super::super::process::table::Table;
use super::Inner;
use super::spec::Network;

/// The pause before a daemon that went is asked for its events again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often the ports of starting engines are looked at, on the machine's network.
const LOOK: Duration = Duration::from_millis(100);
/// How many looks in a row must find a stranger at the port: an engine that just replaces its own process may for an
/// instant not be recognised.
const STRANGE_LOOKS: u32 = 3;
/// How often the last lines of starting engines are read.
const READ: Duration = Duration::from_secs(2);

/// Begins to follow the daemon. What is returned ends with the provider.
pub(super) fn follow(inner: &Arc<Inner>) -> JoinSet<()> {
    let mut followers = JoinSet::new();
    followers.spawn(events(Arc::clone(inner)));
    followers.spawn(read(Arc::clone(inner)));
    if inner.spec.network == Network::Host {
        followers.spawn(look(Arc::clone(inner)));
    }
    followers
}

/// Tells of each event, and of what may have been missed while the daemon was gone.
async fn events(inner: Arc<Inner>) {
    loop {
        if let Ok(stream) = inner.daemon.events(&inner.owner, &inner.spec.deployment).await {
            let mut stream = std::pin::pin!(stream);
            inner.news.tell();
            while let Some(Ok(event)) = stream.next().await {
                debug!("{}: {:?}", inner.spec.deployment, event.action);
                if event.action.as_deref() == Some("die")
                    && let Some(container) = event.actor.and_then(|actor| actor.id)
                {
                    inner.fleet().died(&container);
                }
                inner.news.tell();
            }
            inner.news.tell();
        }
        sleep(AGAIN).await;
    }
}

/// Keeps the last lines of engines that may yet fail to start.
async fn read(inner: Arc<Inner>) {
    let mut tick = interval(READ);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let since = Instant::now().checked_sub(inner.spec.start_limit + 2 * READ);
        let young = inner.fleet().younger_than(since);
        for (id, container) in young {
            let tail = inner.daemon.tail(&container).await;
            inner.fleet().keep_tail(id, tail);
        }
    }
}

/// Proves the ports of engines on the machine's network.
async fn look(inner: Arc<Inner>) {
    let mut tick = interval(LOOK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut strange: BTreeMap<ReplicaId, u32> = BTreeMap::new();
    loop {
        tick.tick().await;
        let unproven = inner.fleet().unproven();
        strange.retain(|id, _| unproven.iter().any(|(one, _)| one == id));
        for (id, port) in unproven {
            match prove(&inner, id, port).await {
                Ok(Owner::Nobody) => {
                    strange.remove(&id);
                }
                // Hidden: the container's processes are another user's, as they mostly are for who is not root. An
                // engine that cannot have its port ends by itself.
                Ok(Owner::Replica | Owner::Hidden(_)) => {
                    inner.fleet().set_up(id, format!("http://127.0.0.1:{port}"));
                    inner.news.tell();
                }
                Ok(Owner::Other(who)) => {
                    let looks = strange.entry(id).or_default();
                    *looks += 1;
                    if *looks < STRANGE_LOOKS {
                        continue;
                    }
                    inner.fleet().set_robbed(id, format!("port {port} was taken by {who}"));
                    inner.news.tell();
                }
                Err(error) => debug!("{}: cannot tell who listens at its port: {error}", inner.name(id)),
            }
        }
    }
}

async fn prove(inner: &Inner, id: ReplicaId, number: u16) -> io::Result<Owner> {
    let marks = inner.marks.clone();
    let members = move || Ok(Table::read()?.members(&marks, id, &[]));
    tokio::task::spawn_blocking(move || port::owner(number, members)).await.map_err(io::Error::other)?
}
