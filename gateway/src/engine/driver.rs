//! The task that owns the model: it feeds arrivals and departures in, sleeps until the model's next event, and
//! tells each answer how far it has come.
//!
//! Decides nothing itself; the model does. An answer learns its progress through a cell that holds the latest
//! state, so a client that reads slowly holds up nobody and costs no memory.

use std::collections::HashMap;

use tidegate_shared::time::Instant;
use tidegate_sim::engine::{Engine, Event, Finish, Id, Refusal, Request, Settings, Totals};
use tokio::sync::{mpsc, oneshot, watch};

use super::clock::Clock;
use super::page::Histogram;

/// How far an answer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Tokens of output.
    pub(super) tokens: u32,
    /// Prompt tokens found in the prefix cache.
    pub(super) cached_tokens: u32,
    /// Why it ended, once it has.
    pub(super) finish: Option<Finish>,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Why.
    pub(super) finish: Finish,
    /// Prompt tokens found in the prefix cache.
    pub(super) cached_tokens: u32,
}

/// What the metrics page shows.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) running: u32,
    pub(super) waiting: u32,
    /// KV tokens held or reserved by running requests.
    pub(super) kv_held: u32,
    pub(super) settings: Settings,
    pub(super) totals: Totals,
    pub(super) first_token: Histogram,
    /// Requests that ended, by [`Finish`]: complete, cut by a bound, left by the client.
    pub(super) ended: [u64; 3],
}

#[derive(Debug)]
enum Command {
    Submit { request: Box<Request>, reply: oneshot::Sender<Result<Ticket, Refusal>> },
    Cancel(Id),
    Look(oneshot::Sender<Snapshot>),
    Forget,
}

/// A request in the engine. Dropping it takes the request out at once, wherever it is.
#[derive(Debug)]
pub(super) struct Ticket {
    id: Id,
    progress: watch::Receiver<Progress>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Ticket {
    /// Names the request; unique in this process.
    pub(super) const fn id(&self) -> Id {
        self.id
    }

    /// Waits until there is more than `tokens` tokens, or the end. `None` when the engine has stopped.
    pub(super) async fn beyond(&mut self, tokens: u32) -> Option<Progress> {
        self.progress.wait_for(|p| p.tokens > tokens || p.finish.is_some()).await.ok().map(|p| *p)
    }

    /// Waits for the end. `None` when the engine has stopped.
    pub(super) async fn end(&mut self) -> Option<End> {
        let last = self.progress.wait_for(|p| p.finish.is_some()).await.ok()?;
        last.finish.map(|finish| End { finish, cached_tokens: last.cached_tokens })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A request that has ended is unknown to the engine, and a stopped engine has none: both are fine.
        let _ = self.commands.send(Command::Cancel(self.id));
    }
}

/// The way to the task. Its line of commands holds at most one submission and one cancellation for each request
/// that a connection carries, so it is bounded by what the server admits.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    commands: mpsc::UnboundedSender<Command>,
    clock: Clock,
    ready_at: Instant,
}

impl Handle {
    /// Hands a request in; its id is set here. `None` when the engine has stopped.
    pub(super) async fn submit(&self, request: Request) -> Option<Result<Ticket, Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Submit { request: Box::new(request), reply }).ok()?;
        answer.await.ok()
    }

    /// The state now. `None` when the engine has stopped.
    pub(super) async fn look(&self) -> Option<Snapshot> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(Command::Look(reply)).ok()?;
        answer.await.ok()
    }

    /// What is cached and not in use is forgotten.
    pub(super) fn forget(&self) {
        // A stopped engine has forgotten all.
        let _ = self.commands.send(Command::Forget);
    }

    /// Whether the model is loaded.
    pub(super) fn is_ready(&self) -> bool {
        self.clock.now() >= self.ready_at
    }
}

/// One engine and its bookkeeping. Run it with [`Driver::run`].
#[derive(Debug)]
pub(super) struct Driver {
    engine: Engine,
    clock: Clock,
    commands: mpsc::UnboundedReceiver<Command>,
    sender: mpsc::WeakUnboundedSender<Command>,
    live: HashMap<Id, Live>,
    next_id: Id,
    first_token: Histogram,
    ended: [u64; 3],
}

#[derive(Debug)]
struct Live {
    arrived: Instant,
    progress: watch::Sender<Progress>,
}

impl Driver {
    /// An engine that begins to load now, and the way to it.
    pub(super) fn start(settings: Settings) -> (Self, Handle) {
        let clock = Clock::start();
        let (sender, commands) = mpsc::unbounded_channel();
        let ready_at = clock.now() + settings.load_time;
        let driver = Self {
            engine: Engine::new(settings, clock.now()),
            clock,
            commands,
            sender: sender.downgrade(),
            live: HashMap::new(),
            next_id: 0,
            first_token: Histogram::default(),
            ended: [0; 3],
        };
        (driver, Handle { commands: sender, clock, ready_at })
    }

    /// Runs until every handle and ticket is gone.
    pub(super) async fn run(mut self) {
        loop {
            let next = self.engine.next_event();
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                () = self.clock.reach(next) => {}
            }
            // Whatever came meanwhile belongs to the same step.
            for _ in 0..self.commands.len() {
                if let Ok(command) = self.commands.try_recv() {
                    self.obey(command);
                }
            }
            for event in self.engine.advance(self.clock.now()) {
                self.tell(event);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit { request, reply } => self.submit(*request, reply),
            Command::Cancel(id) => {
                self.engine.cancel(self.clock.now(), id);
                if self.live.remove(&id).is_some() {
                    self.count(2);
                }
            }
            Command::Forget => self.engine.forget(),
            Command::Look(reply) => {
                // Whoever asked may have left.
                let _ = reply.send(Snapshot {
                    running: self.engine.running(),
                    waiting: self.engine.waiting(),
                    kv_held: self.engine.kv_held(),
                    settings: self.engine.settings().clone(),
                    totals: self.engine.totals(),
                    first_token: self.first_token.clone(),
                    ended: self.ended,
                });
            }
        }
    }

    fn submit(&mut self, request: Request, reply: oneshot::Sender<Result<Ticket, Refusal>>) {
        let Some(commands) = self.sender.upgrade() else { return };
        let (id, arrived) = (self.next_id, self.clock.now());
        self.next_id += 1;
        let answer = self.engine.arrive(arrived, Request { id, ..request }).map(|()| {
            let (progress, receiver) = watch::channel(Progress::default());
            self.live.insert(id, Live { arrived, progress });
            Ticket { id, progress: receiver, commands }
        });
        // If the client has left meanwhile, the ticket drops here and cancels itself.
        let _ = reply.send(answer);
    }

    fn tell(&mut self, event: Event) {
        let Some(live) = self.live.get(&event.id()) else { return };
        match event {
            Event::Started { cached_tokens, .. } => {
                live.progress.send_modify(|progress| progress.cached_tokens = cached_tokens);
            }
            Event::Token { at, n, .. } => {
                if n == 1 {
                    self.first_token.observe(at.since(live.arrived));
                }
                live.progress.send_modify(|progress| progress.tokens = n);
            }
            Event::Finished { id, reason, .. } => {
                live.progress.send_modify(|progress| progress.finish = Some(reason));
                self.live.remove(&id);
                self.count(if reason == Finish::Stop { 0 } else { 1 });
            }
        }
    }

    fn count(&mut self, kind: usize) {
        if let Some(count) = self.ended.get_mut(kind) {
            *count += 1;
        }
    }
}
