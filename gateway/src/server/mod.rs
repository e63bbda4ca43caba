//! Accepts connections and serves HTTP/1.1 and HTTP/2 on them, in the clear or inside TLS: one thread, one runtime, one
//! listener and one set of upstream connections per core, so that a request never changes cores.

pub mod certificate;
mod client;
mod handle;
mod handshake;
mod http1;
pub mod http2;
pub mod link;
mod listen;
mod reply;
mod secure;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use certificate::Shown;
use link::Link;
pub use listen::{Listeners, Room, bind, raise_descriptor_limit};

use crate::clock::{self, Clock, Seldom};
use crate::config::ServerLimits;
use crate::deployment::Directory;
use crate::http1::fill::poll_fill;
use crate::layer::read::Budget;
use crate::layer::relay::Relays;
use crate::layer::space;
use crate::telemetry::meter::{self, GaveUp};
use crate::telemetry::record::Sink;
use crate::telemetry::request_id::RequestIds;
use crate::upstream::Upstream;

/// How long a full table of file descriptors is waited out before the next accept.
const NO_DESCRIPTOR: Duration = Duration::from_millis(50);

/// Turns of tasks after which a core looks for new events at the latest. With tokio's 61 it did so in the middle of what
/// it was told at once, and what it sends left in smaller bursts (see [`crate::http1::turn`]).
const TURNS: u32 = 256;

/// What all cores share.
#[derive(Debug)]
pub struct Gateway {
    /// The clock.
    pub clock: Clock,
    /// Who serves which model.
    pub directory: Directory,
    /// The limits of the configuration.
    pub limits: ServerLimits,
    /// The memory that bodies may take.
    pub budget: Arc<Budget>,
    /// The memory that heads over HTTP/2 may take: [`http2::heads::budget`].
    pub heads: Arc<Budget>,
    /// Where records of requests go.
    pub sink: Arc<Sink>,
    /// When the gateway started, in seconds of Unix time.
    pub created: u64,
    /// Room for clients: each connection takes one.
    pub clients: Arc<Semaphore>,
    /// What clients are shown, where TLS is spoken to them.
    pub tls: Option<Arc<Shown>>,
    /// How far the gateway is on its way to its end.
    pub stage: watch::Receiver<Stage>,
    /// How long a client may take nothing of an answer: [`crate::layer::relay::STALL`], except in tests.
    pub stall: Duration,
}

/// How far the gateway is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It serves.
    Serving,
    /// It takes no new connection and finishes what runs.
    Finishing,
    /// It cuts what still runs.
    Cutting,
}

/// What the requests of one core share.
#[derive(Debug)]
pub struct Core {
    /// What all cores share.
    pub gateway: Arc<Gateway>,
    /// The connections to replicas.
    pub upstream: Rc<Upstream>,
    /// The answers on their way.
    pub relays: Rc<Relays>,
    ids: RequestIds,
    closing: Closing,
    handshakes: handshake::Handshakes,
    /// That clients wait for room.
    full: Seldom,
    /// That none can be accepted.
    stuck: Seldom,
}

/// Whether connections take no further request.
#[derive(Debug, Default)]
struct Closing {
    begun: Cell<bool>,
    told: Notify,
}

impl Closing {
    fn begin(&self) {
        self.begun.set(true);
        self.told.notify_waiters();
    }

    /// What [`Self::poll_begun`] waits with: each who waits has one, pinned.
    fn told(&self) -> Notified<'_> {
        self.told.notified()
    }

    /// Ready once it has begun, as often as it is asked; else the task of `told` is woken then.
    fn poll_begun(&self, told: Pin<&mut Notified<'_>>, cx: &mut Context<'_>) -> Poll<()> {
        if self.begun.get() { Poll::Ready(()) } else { told.poll(cx) }
    }
}

impl Core {
    fn note_full(&self) {
        if self.full.is_due(self.gateway.clock.now()) {
            tracing::warn!("new clients wait: as many are connected as the limit of open files allows");
        }
    }
}

/// Held by what is open: nothing is ever sent, and its other side ends when nobody holds it.
type Open = mpsc::Sender<Infallible>;

/// Starts one core on a thread of its own. It serves until the gateway is asked to stop and every request has ended,
/// is cut, or the limit for that is reached. Resolves when it has ended: with an error if something went wrong.
///
/// # Errors
/// The operating system's, when no thread or runtime can be made or the listener is of no use.
pub fn spawn(gateway: Arc<Gateway>, core: usize, listener: std::net::TcpListener) -> io::Result<Ended> {
    let (report, reported) = std::sync::mpsc::sync_channel(1);
    // Dropped without a word if the thread panics.
    let (end, ended) = oneshot::channel();
    std::thread::Builder::new().name(format!("core-{core}")).spawn(move || {
        let runtime = match prepare(listener) {
            Ok((runtime, listener)) => {
                let _ = report.send(Ok(()));
                runtime.block_on(serve(gateway, listener));
                runtime
            }
            Err(error) => return drop(report.send(Err(error))),
        };
        // A lookup of a name may still be under way.
        runtime.shutdown_background();
        let _ = end.send(());
    })?;
    reported.recv().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))?;
    Ok(ended)
}

/// Resolves when a core has ended.
pub type Ended = oneshot::Receiver<()>;

fn prepare(listener: std::net::TcpListener) -> io::Result<(LocalRuntime, TcpListener)> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.event_interval(TURNS).enable_all().build_local(LocalOptions::default())?;
    let entered = runtime.enter();
    let listener = TcpListener::from_std(listener)?;
    drop(entered);
    Ok((runtime, listener))
}

async fn serve(gateway: Arc<Gateway>, listener: TcpListener) {
    let upstream = Upstream::new(gateway.clock);
    tokio::task::spawn_local(Rc::clone(&upstream).sweep());
    let relays = Relays::new(gateway.clock, gateway.stall);
    tokio::task::spawn_local(Rc::clone(&relays).sweep());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::task::spawn_local(space::sweep(gateway.limits.buffered, cores));
    let (shutdown, mut stage) = (gateway.limits.shutdown, gateway.stage.clone());
    let (closing, handshakes) = (Closing::default(), handshake::Handshakes::default());
    let (ids, full, stuck) = (RequestIds::default(), Seldom::default(), Seldom::default());
    let core = Rc::new(Core { gateway, upstream, relays, ids, closing, handshakes, full, stuck });
    let (open, mut connections) = mpsc::channel(1);
    accept(&core, listener, open).await;
    core.closing.begin();
    tokio::select! {
        // Ends with the last of them.
        _ = connections.recv() => return,
        _ = stage.wait_for(|stage| *stage == Stage::Cutting) => {}
        () = tokio::time::sleep(shutdown) => tracing::warn!("requests that ran for {} after the signal are cut", tidegate_shared::span::whole(shutdown)),
    }
    // What is cut from here on did not leave by itself.
    core.gateway.sink.cuts.store(true, Ordering::Relaxed);
}

/// Accepts connections while the gateway serves. Each holds `open` as long as it lasts.
async fn accept(core: &Rc<Core>, listener: TcpListener, open: Open) {
    let mut stage = core.gateway.stage.clone();
    loop {
        let accepted = tokio::select! {
            accepted = next(core, &listener) => accepted,
            _ = stage.wait_for(|stage| *stage != Stage::Serving) => return,
        };
        match accepted {
            Ok((stream, client, room)) => {
                let connection = connection(Rc::clone(core), stream, client, room, open.clone());
                tokio::task::spawn_local(connection);
            }
            Err(error) => {
                if core.stuck.is_due(core.gateway.clock.now()) {
                    tracing::warn!("cannot accept a connection: {error}");
                }
                tokio::time::sleep(NO_DESCRIPTOR).await;
            }
        }
    }
}

/// The next client, once there is room for it; until then it waits, as those behind it do in the kernel.
async fn next(
    core: &Core,
    listener: &TcpListener,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let (stream, client) = listener.accept().await?;
    let clients = &core.gateway.clients;
    let room = match Arc::clone(clients).try_acquire_owned() {
        Ok(room) => room,
        Err(_) => {
            core.note_full();
            Arc::clone(clients).acquire_owned().await.map_err(io::Error::other)?
        }
    };
    Ok((stream, client, room))
}

/// One connection, from its first byte to its end. Holds its `_room` until then, and the end of its core.
async fn connection(
    core: Rc<Core>,
    stream: TcpStream,
    client: SocketAddr,
    _room: OwnedSemaphorePermit,
    _open: Open,
) {
    if listen::tune(&stream).is_err() {
        return;
    }
    let stream = match &core.gateway.tls {
        None => client::ClientStream::new(stream),
        Some(shown) => {
            // Once for each connection, and large.
            let shaken = Box::pin(handshake::shake(&core, shown.config(), stream, client.ip())).await;
            let Some(stream) = shaken else { return };
            stream
        }
    };
    match opening(&core.closing, stream, core.gateway.limits.header_read).await {
        Opening::Http1(link) => {
            let mut served = pin!(http1::serve(&core, Rc::new(RefCell::new(link)), client.ip()));
            poll_fn(|cx| clock::turn(|| served.as_mut().poll(cx))).await;
        }
        // Rare and large: kept out of what each connection takes.
        Opening::Http2(stream) => Box::pin(http2::serve(core, stream, client.ip())).await,
        Opening::Slow(link) => http1::too_slow(&core, link, client.ip()).await,
        Opening::Silent => {}
    }
}

/// What a client's first bytes say.
enum Opening {
    Http1(Link),
    Http2(client::Reread),
    /// The first of them came, and no more in time.
    Slow(Link),
    /// They do not come, or nothing has come when the gateway stops.
    Silent,
}

/// Reads until it is known which protocol a client speaks, at most for `limit`. What was agreed on inside TLS holds.
async fn opening(closing: &Closing, mut stream: client::ClientStream, limit: Duration) -> Opening {
    let mut ahead = BytesMut::new();
    let agreed = stream.is_http2();
    if agreed == Some(false) {
        return Opening::Http1(Link::new(stream, ahead));
    }
    let mut told = pin!(closing.told());
    let known = async {
        loop {
            match http2::PREFACE.get(..ahead.len()) {
                Some(start) if *start == *ahead => {}
                // Longer than the preface, or another beginning.
                _ => return Some(ahead.starts_with(http2::PREFACE)),
            }
            if ahead.len() == http2::PREFACE.len() {
                return Some(true);
            }
            let read = poll_fn(|cx| {
                let read = poll_fill(&mut stream, cx, &mut ahead);
                let stops = closing.poll_begun(told.as_mut(), cx).is_ready();
                if read.is_pending() && stops && ahead.is_empty() { Poll::Ready(Ok(0)) } else { read }
            });
            match read.await {
                Ok(1..) => {}
                Ok(_) | Err(_) => return None,
            }
        }
    };
    let known = tokio::time::timeout(limit, known).await;
    match known {
        Ok(Some(true)) => return Opening::Http2(client::Reread::new(ahead, stream)),
        Ok(Some(false)) if agreed.is_none() => return Opening::Http1(Link::new(stream, ahead)),
        Ok(_) => {}
        Err(_) if ahead.is_empty() => meter::gave_up(GaveUp::Idle),
        Err(_) if agreed.is_none() => return Opening::Slow(Link::new(stream, ahead)),
        Err(_) => meter::gave_up(GaveUp::Head),
    }
    // Rare, and with a limit of its own.
    Box::pin(stream.goodbye()).await;
    Opening::Silent
}

#[cfg(test)]
mod tests;
