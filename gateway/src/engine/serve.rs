//! The engine's HTTP side: listens, routes, answers. Decides only which handler a path has.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use serde_json::json;
use tidegate_shared::time::Duration;
use tidegate_sim::engine::{Refusal, Request as Job};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::args::{EngineArgs, EngineError};
use super::clock::Clock;
use super::driver::{Driver, Handle, Ticket};
use super::faults::{Health, Misdeed, SLOW_HEALTH, Switchboard};
use super::openai::{self, Ask, Embedding, Endpoint, Generation, Profile};
use super::reply::{self, Body, Cut, Failure};
use super::sleep::{Asked, Bed};
use super::{page, relay, text};

/// Largest body, in bytes (that of the gateway).
const BODY_LIMIT: usize = 64 << 20;

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A stand-in engine that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    driver: Driver,
    engine: Arc<Shared>,
}

/// What the handlers of all connections share.
#[derive(Debug)]
struct Shared {
    profile: Profile,
    handle: Handle,
    faults: Switchboard,
    /// `None`: it knows no sleep.
    bed: Option<Bed>,
    exit: Notify,
    created: u64,
}

/// An answer, or what stands in its way: a failure to be told inside, a cut connection outside.
type Answer = Result<Result<Response<Body>, Failure>, Cut>;

impl Server {
    /// Listens, and begins to load.
    ///
    /// # Errors
    /// [`EngineError::Listen`] when the address cannot be listened on.
    pub async fn bind(args: &EngineArgs) -> Result<Self, EngineError> {
        let address = args.address();
        let listen_error = |source| EngineError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let settings = args.settings();
        let max_length = settings.max_length.min(settings.blocks() * tidegate_sim::engine::BLOCK_TOKENS);
        let profile = Profile { model: args.model.clone(), max_length, answer_tokens: args.answer_tokens };
        let (driver, handle) = Driver::start(settings);
        let (faults, exit, created) = (Switchboard::default(), Notify::new(), Clock::unix_seconds());
        let bed = Bed::new(args.wake_time.into(), args.sleepless);
        Ok(Self {
            listener,
            address,
            driver,
            engine: Arc::new(Shared { profile, handle, faults, bed, exit, created }),
        })
    }

    /// Where it listens; the port is the real one.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is dropped, which cuts every connection, or told to end.
    ///
    /// # Errors
    /// [`EngineError::Exit`] after the fault `exit`.
    pub async fn serve(self) -> Result<(), EngineError> {
        let mut tasks = JoinSet::new();
        tasks.spawn(self.driver.run());
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        tasks.spawn(connection(stream, Arc::clone(&self.engine)));
                    }
                    // Out of descriptors, perhaps: those who are served go on, and free some.
                    Err(error) => {
                        tracing::warn!("cannot accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
                () = self.engine.exit.notified() => return Err(EngineError::Exit),
            }
        }
    }
}

async fn connection(stream: TcpStream, engine: Arc<Shared>) {
    // A socket that cannot be set up is a client that has left.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let engine = Arc::clone(&engine);
        async move { engine.answer(request).await }
    });
    let mut server = auto::Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    server.http2().timer(TokioTimer::new());
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(error, "connection ended");
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
        let path = request.uri().path().to_owned();
        let answer = match path.strip_prefix("/v1").filter(|rest| rest.starts_with('/')).unwrap_or(&path) {
            "/health" => self.health(request.method()).await,
            "/metrics" => self.metrics(request.method()).await,
            "/faults" => self.set_faults(request).await,
            "/models" => self.models(request.method(), None),
            "/chat/completions" => self.ask(Endpoint::Chat, request).await?,
            "/completions" => self.ask(Endpoint::Completions, request).await?,
            "/embeddings" => self.ask(Endpoint::Embeddings, request).await?,
            other => match (other.strip_prefix("/models/"), &self.bed) {
                (Some(id), _) => self.models(request.method(), Some(id)),
                (None, Some(bed)) if let Some(asked) = Asked::by(other) => {
                    self.rest(bed, asked, request.method()).await
                }
                (None, _) => Err(Failure::unknown_path(&path)),
            },
        };
        Ok(answer.unwrap_or_else(|failure| failure.response()))
    }

    async fn health(&self, method: &Method) -> Result<Response<Body>, Failure> {
        only(method, &Method::GET)?;
        tokio::select! {
            () = self.faults.prompt_health() => {}
            () = tokio::time::sleep(SLOW_HEALTH) => {}
        }
        if self.faults.show().health == Health::Fail {
            return Err(Failure::broken("Failed by the fault \"health\""));
        }
        self.loaded()?;
        Ok(reply::json(&json!({"status": "ok"})))
    }

    /// Sleeps, wakes up, or tells whether it sleeps.
    async fn rest(&self, bed: &Bed, asked: Asked, method: &Method) -> Result<Response<Body>, Failure> {
        if asked == Asked::State {
            only(method, &Method::GET)?;
            return Ok(reply::json(&json!({"is_sleeping": bed.is_asleep()})));
        }
        only(method, &Method::POST)?;
        self.loaded()?;
        if asked == Asked::Sleep {
            bed.sleep();
            self.handle.forget();
        } else {
            bed.wake().await;
        }
        Ok(reply::json(&json!(null)))
    }

    async fn metrics(&self, method: &Method) -> Result<Response<Body>, Failure> {
        only(method, &Method::GET)?;
        let now = self.handle.look().await.ok_or_else(|| Failure::broken("The engine has stopped"))?;
        let text = page::render(&self.profile.model, &now);
        Ok(reply::respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
    }

    async fn set_faults(&self, request: Request<Incoming>) -> Result<Response<Body>, Failure> {
        if request.method() != Method::GET {
            only(request.method(), &Method::POST)?;
            let body = read(request).await?;
            let faults = self.faults.set(&body).map_err(|text| Failure::invalid(text, None, None))?;
            if faults.exit {
                self.exit.notify_one();
            }
        }
        Ok(reply::json(&json!(self.faults.show())))
    }

    fn models(&self, method: &Method, id: Option<&str>) -> Result<Response<Body>, Failure> {
        only(method, &Method::GET)?;
        self.loaded()?;
        let Profile { model, max_length, .. } = &self.profile;
        let this = reply::model(model, self.created, *max_length);
        match id {
            None => Ok(reply::json(&json!({"object": "list", "data": [this]}))),
            Some(id) if id == model => Ok(reply::json(&this)),
            Some(id) => Err(Failure::unknown_model(id, model)),
        }
    }

    fn loaded(&self) -> Result<(), Failure> {
        if self.handle.is_ready() { Ok(()) } else { Err(Failure::loading()) }
    }

    async fn ask(&self, endpoint: Endpoint, request: Request<Incoming>) -> Answer {
        let (ask, faults) = match self.accept(endpoint, request).await {
            Ok(accepted) => accepted,
            Err(failure) => return Ok(Err(failure)),
        };
        match ask {
            Ask::Generation(ask) => self.generate(ask, faults).await,
            Ask::Embedding(ask) => self.embed(&ask, faults).await,
        }
    }

    async fn accept(
        &self,
        endpoint: Endpoint,
        request: Request<Incoming>,
    ) -> Result<(Ask, Option<(u32, Misdeed)>), Failure> {
        only(request.method(), &Method::POST)?;
        self.loaded()?;
        if self.bed.as_ref().is_some_and(Bed::is_asleep) {
            return Err(Failure::broken("The engine sleeps; POST /wake_up wakes it"));
        }
        let body = read(request).await?;
        let ask = openai::read(endpoint, &body, &self.profile)?;
        let faults = self.faults.take();
        match faults.refuse {
            Some(status) => Err(Failure::refused(status)),
            None => Ok((ask, faults.misdeed())),
        }
    }

    async fn submit(&self, job: Job) -> Result<Ticket, Failure> {
        match self.handle.submit(job).await {
            Some(Ok(ticket)) => Ok(ticket),
            Some(Err(Refusal::TooLong { tokens, allowed })) => Err(Failure::too_long(tokens, allowed)),
            Some(Err(Refusal::QueueFull { waiting })) => Err(Failure::queue_full(waiting)),
            None => Err(Failure::broken("The engine has stopped")),
        }
    }

    async fn generate(&self, ask: Box<Generation>, misdeed: Option<(u32, Misdeed)>) -> Answer {
        let ticket = match self.submit(ask.request.clone()).await {
            Ok(ticket) => ticket,
            Err(failure) => return Ok(Err(failure)),
        };
        let model = &self.profile.model;
        if ask.stream {
            return relay::streamed(ask, model, ticket, misdeed).await;
        }
        let id = ticket.id();
        let end = match relay::whole(ticket, misdeed).await? {
            Ok(end) => end,
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(Ok(reply::json(&reply::completion(&ask, id, model, &end))))
    }

    /// Inputs are computed side by side, each a request of its own to the model.
    async fn embed(&self, ask: &Embedding, misdeed: Option<(u32, Misdeed)>) -> Answer {
        let mut tickets = Vec::with_capacity(ask.inputs.len());
        for input in &ask.inputs {
            match self.submit(Job { prompt_tokens: text::tokens(input.len()), ..Job::default() }).await {
                Ok(ticket) => tickets.push(ticket),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        for ticket in tickets {
            if let Err(failure) = relay::whole(ticket, misdeed).await? {
                return Ok(Err(failure));
            }
        }
        Ok(Ok(reply::json(&reply::embeddings(ask, &self.profile.model))))
    }
}

/// # Errors
/// 405 for any other method.
fn only(method: &Method, allowed: &Method) -> Result<(), Failure> {
    if method == allowed { Ok(()) } else { Err(Failure::method(method, allowed.as_str())) }
}

async fn read(request: Request<Incoming>) -> Result<Bytes, Failure> {
    match Limited::new(request.into_body(), BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Failure::body_too_large(BODY_LIMIT)),
        Err(error) => Err(Failure::invalid(format!("The body cannot be read: {error}"), None, None)),
    }
}
