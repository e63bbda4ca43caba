//! A scripted replica: it answers what the test says, at the level of bytes, and keeps a log of all that it saw.
//!
//! It runs as tasks of the test's own runtime, on a port of 127.0.0.1 that the kernel chose. It never decides by
//! itself and never checks what it receives.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::deadline::within;
use crate::openai;
use crate::script::{Script, Step};
use crate::wire::{Framing, Head, Wire};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// The connection that carried it, counted from 0.
    pub connection: usize,
    /// Its head.
    pub head: Head,
    /// Its body, unchunked.
    pub body: Bytes,
}

impl Request {
    /// Its path, without the query.
    pub fn path(&self) -> &str {
        let target = self.head.target();
        target.split_once('?').map_or(target, |(path, _)| path)
    }

    /// Its body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether it is a question about the replica itself, not work: these are logged apart.
    fn is_probe(&self) -> bool {
        self.head.method() == "GET"
    }
}

/// How a request ended, as the stub saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its script still runs.
    Running,
    /// All of its answer was written.
    Answered,
    /// The peer closed or reset the connection first.
    PeerLeft,
    /// The stub closed or reset the connection, or was killed.
    Cut,
}

/// A request and how it ended.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// What was asked.
    pub request: Request,
    /// How it ended.
    pub end: End,
}

/// All that a stub saw.
#[derive(Debug, Default)]
pub struct Log {
    /// Connections accepted so far.
    pub connections: usize,
    /// Those that are open now.
    pub open: usize,
    /// Whole requests for work, in order of arrival.
    pub work: Vec<Exchange>,
    /// Whole probes, in order of arrival.
    pub probes: Vec<Request>,
    /// Bodies that were cut before their end.
    pub incomplete: Vec<Bytes>,
    /// The most requests for work that ever ran at one time.
    pub most: usize,
}

impl Log {
    /// Requests for work that run now.
    pub fn running(&self) -> usize {
        self.work.iter().filter(|exchange| exchange.end == End::Running).count()
    }
}

type Handler = Arc<dyn Fn(&Request) -> Script + Send + Sync>;

struct Inner {
    log: Mutex<Log>,
    changed: watch::Sender<()>,
    /// Told to take no new connections.
    deaf: Notify,
    work: Mutex<Handler>,
    probes: Mutex<Handler>,
}

impl Inner {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("log")
    }

    fn record<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let output = change(&mut self.log());
        self.changed.send_replace(());
        output
    }
}

/// A scripted replica. Dropped, it is killed.
pub struct Stub {
    address: SocketAddr,
    inner: Arc<Inner>,
    life: Mutex<Option<JoinHandle<()>>>,
    /// Bound and never listening: holds the port while the stub is dead, so that it can come back there.
    _port: TcpSocket,
}

impl Stub {
    /// A stub that is healthy, lists the model `chat` and answers every request like a small engine.
    pub async fn start() -> Self {
        Self::with(openai::reply).await
    }

    /// A healthy stub that answers requests for work as `work` says.
    pub async fn with(work: impl Fn(&Request) -> Script + Send + Sync + 'static) -> Self {
        let port = socket((Ipv4Addr::LOCALHOST, 0).into());
        let inner = Inner {
            log: Mutex::default(),
            changed: watch::Sender::new(()),
            deaf: Notify::new(),
            work: Mutex::new(Arc::new(work)),
            probes: Mutex::new(Arc::new(healthy)),
        };
        let address = port.local_addr().expect("address");
        let stub = Self { address, inner: Arc::new(inner), life: Mutex::default(), _port: port };
        stub.revive();
        stub
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base URL, without a trailing slash.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Answers requests for work in another way from now on.
    pub fn on_work(&self, work: impl Fn(&Request) -> Script + Send + Sync + 'static) {
        *self.inner.work.lock().expect("handler") = Arc::new(work);
    }

    /// Answers every GET (`/health`, `/v1/models`, `/metrics`, …) in another way from now on; see [`healthy`].
    pub fn on_probe(&self, probes: impl Fn(&Request) -> Script + Send + Sync + 'static) {
        *self.inner.probes.lock().expect("handler") = Arc::new(probes);
    }

    /// Closes the port and every connection, as the death of a process does.
    pub async fn kill(&self) {
        let life = self.life.lock().expect("life").take();
        if let Some(life) = life {
            life.abort();
            let _ = life.await;
        }
    }

    /// Closes the port and goes on with the connections that there are, as servers do that were asked to stop.
    pub fn deafen(&self) {
        self.inner.deaf.notify_one();
    }

    /// Listens again, on the same port.
    pub fn revive(&self) {
        let listener = socket(self.address).listen(1024).expect("listen");
        let life = tokio::spawn(accept(listener, Arc::clone(&self.inner)));
        *self.life.lock().expect("life") = Some(life);
    }

    /// Looks at the log.
    pub fn see<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.inner.log())
    }

    /// Requests for work so far.
    pub fn count(&self) -> usize {
        self.see(|log| log.work.len())
    }

    /// Requests for work that run now.
    pub fn running(&self) -> usize {
        self.see(Log::running)
    }

    /// The same for a handler of this stub's probes: an engine tells of what it runs.
    pub fn counter(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let inner = Arc::downgrade(&self.inner);
        move || inner.upgrade().map_or(0, |inner| inner.log().running())
    }

    /// Waits until `look` finds what it wants in the log.
    #[track_caller]
    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&Log) -> Option<T>) -> impl Future<Output = T> {
        let mut changes = self.inner.changed.subscribe();
        within(what, async move {
            loop {
                changes.mark_unchanged();
                if let Some(found) = self.see(&mut look) {
                    return found;
                }
                changes.changed().await.expect("the stub lives");
            }
        })
    }

    /// Waits for request `index` (from 0) to arrive.
    #[track_caller]
    pub fn request(&self, index: usize) -> impl Future<Output = Request> {
        self.until("a request arrives at the stub", move |log| {
            log.work.get(index).map(|exchange| exchange.request.clone())
        })
    }

    /// Waits for request `index` (from 0) to arrive and to end.
    #[track_caller]
    pub fn ended(&self, index: usize) -> impl Future<Output = End> {
        self.until("a request ends at the stub", move |log| {
            log.work.get(index).map(|exchange| exchange.end).filter(|end| *end != End::Running)
        })
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        if let Some(life) = self.life.get_mut().ok().and_then(Option::take) {
            life.abort();
        }
    }
}

/// Answers probes as a loaded engine without a metrics page does: 200 on `/health`, the model `chat` on `/v1/models`,
/// 404 elsewhere.
pub fn healthy(request: &Request) -> Script {
    match request.path() {
        "/health" => Script::json(200, &json!({"status": "ok"})),
        "/v1/models" => {
            Script::json(200, &json!({"object": "list", "data": [{"id": "chat", "object": "model"}]}))
        }
        _ => Script::json(404, &json!({"error": "not scripted"})),
    }
}

fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.set_reuseaddr(true).expect("reuse");
    socket.bind(address).expect("bind");
    socket
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(serve(Wire::new(stream), Open::new(Arc::clone(&inner))));
            }
            Some(_) = connections.join_next() => {}
            () = inner.deaf.notified() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// An open connection in the log; dropped, it is closed.
struct Open {
    inner: Arc<Inner>,
    connection: usize,
}

impl Open {
    fn new(inner: Arc<Inner>) -> Self {
        let connection = inner.record(|log| {
            log.connections += 1;
            log.open += 1;
            log.connections - 1
        });
        Self { inner, connection }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.inner.record(|log| log.open -= 1);
    }
}

/// A running request in the log; dropped, it has ended as `end` says.
struct Running {
    inner: Arc<Inner>,
    index: usize,
    end: End,
}

impl Running {
    fn new(inner: &Arc<Inner>, request: &Request) -> Self {
        let index = inner.record(|log| {
            log.work.push(Exchange { request: request.clone(), end: End::Running });
            log.most = log.most.max(log.running());
            log.work.len() - 1
        });
        Self { inner: Arc::clone(inner), index, end: End::Cut }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.inner.record(|log| log.work[self.index].end = self.end);
    }
}

/// Takes the requests of one connection, one after the other.
async fn serve(mut wire: Wire, open: Open) {
    while let Ok(Some(head)) = wire.head().await {
        let (body, end) = wire.body(head.framing(Framing::Length(0))).await;
        if end.is_err() {
            open.inner.record(|log| log.incomplete.push(body));
            return;
        }
        let request = Request { connection: open.connection, head, body };
        let (handler, mut running) = if request.is_probe() {
            open.inner.record(|log| log.probes.push(request.clone()));
            (&open.inner.probes, None)
        } else {
            (&open.inner.work, Some(Running::new(&open.inner, &request)))
        };
        let handler = Arc::clone(&handler.lock().expect("handler"));
        let (end, kept) = play(wire, &handler(&request)).await;
        if let Some(running) = &mut running {
            running.end = end;
        }
        match kept {
            Some(kept) => wire = kept,
            None => return,
        }
    }
}

/// Plays a script; returns how it ended, and the connection if that goes on.
async fn play(mut wire: Wire, script: &Script) -> (End, Option<Wire>) {
    for step in script.steps() {
        let here = match step {
            Step::Send(bytes) => wire.send_unless_gone(bytes).await,
            Step::Wait(gate) => wire.unless_gone(gate.passed()).await.is_some(),
            Step::Stall => wire.unless_gone(std::future::pending::<()>()).await.is_some(),
            Step::Close => return (End::Cut, None),
            Step::Reset => {
                wire.reset();
                return (End::Cut, None);
            }
        };
        if !here {
            return (End::PeerLeft, None);
        }
    }
    (End::Answered, Some(wire))
}
