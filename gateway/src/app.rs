//! Puts the parts together and runs them: listeners, cores, deployments with their control loops, the admin side,
//! signals, and the end.
//!
//! Decides only the order of things. Everything that can fail because of the machine (a port, a folder) is tried
//! before anything is started.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidegate_scaler::control::{Control, ControlStatus, Shutdown, Terms};
use tidegate_scaler::provider::state::StateDir;
use tidegate_scaler::store::{Store, StoreView};
use tidegate_shared::id::{DeploymentName, replica_name};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;

pub use self::error::AppError;
use crate::admin::{self, Admin, Watched};
use crate::clock::{self, Clock};
use crate::config::{Access, Config, Deployment as Settings, Source};
use crate::deployment::{Deployment, Directory};
use crate::layer::read::Budget;
use crate::layer::relay::STALL;
use crate::pool::{Pool, PoolFleet};
use crate::probe::Prober;
use crate::provide::{self, Records};
use crate::server::certificate::{Front, Shown};
use crate::server::http2::heads;
use crate::server::{self, Ended, Gateway, Stage};
use crate::signals::Signals;
use crate::sizing::{Resizer, startable};
use crate::telemetry::access::AccessLog;
use crate::telemetry::meter::{self, DeploymentMeter};
use crate::telemetry::record::Sink;
use crate::upstream::dial::Dialer;

mod error;

/// How long the replicas of all deployments may take to stop at the end.
const STOP: Duration = Duration::from_secs(20);
/// How long the rest of the records, and of the access log, may take to be written at the end.
const FLUSH: Duration = Duration::from_secs(2);

fn system(what: &'static str) -> impl FnOnce(io::Error) -> AppError {
    move |error| AppError::System { what, error: error.to_string() }
}

/// Where a running gateway listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Requests.
    pub listen: SocketAddr,
    /// Status and metrics.
    pub admin: SocketAddr,
}

/// Runs the gateway until it is asked to stop by SIGTERM, SIGINT or SIGHUP: then it takes no new request, finishes the
/// running ones and stops the replicas that it started. A second signal cuts the requests that still run, so that the
/// replicas are asked to stop at once; a third ends the gateway where it stands, and what still runs of the replicas is
/// found by the next start. `started` is called once requests are served.
///
/// # Errors
/// See [`AppError`]; nothing is left running then, replicas that do not stop excepted. All but [`AppError::Unsaved`] are
/// told before anything is served.
pub fn run(config: Config, started: impl FnOnce(Addresses) + Send + 'static) -> Result<(), AppError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(system("cannot make a runtime"))?;
    let result = runtime.block_on(async move {
        let signals = Signals::new().map_err(system("cannot listen for signals"))?;
        let (stage, seen) = watch::channel(Stage::Serving);
        let app = App::start(config, seen).await?;
        started(app.addresses);
        app.until_stopped(signals, stage).await
    });
    // A write to a log that nobody reads may never return.
    runtime.shutdown_background();
    result
}

struct App {
    addresses: Addresses,
    cores: FuturesUnordered<Ended>,
    controls: JoinSet<()>,
    /// Told when the control loops shall end; each holds a receiver.
    finish: watch::Sender<bool>,
    access: Arc<AccessLog>,
    store: Option<Store>,
}

impl App {
    async fn start(config: Config, stage: watch::Receiver<Stage>) -> Result<Self, AppError> {
        let config = Arc::new(config);
        let room = server::raise_descriptor_limit();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let listeners = listen(config.listen, "listen", cores)?;
        let admin = listen(config.admin, "admin", 1)?;
        let clock = Clock::start();
        let access = access_log(&config.log.access)?;
        let render =
            meter::install().map_err(|error| AppError::System { what: "cannot start the metrics", error })?;
        let addresses = Addresses { listen: local(&listeners)?, admin: local(&admin)? };

        let (mut deployments, mut watched, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        let state = provide::state_dir(&config).await?;
        let records = provide::records(&config, state.as_ref(), clock)?;
        let jobs = provide::named(&config, |source| matches!(source, Source::Slurm(_)));
        for settings in &config.deployments {
            let (deployment, seen, control) =
                deploy(settings, &config, clock, state.as_ref(), &jobs, &records).await?;
            tokio::spawn(Arc::clone(&deployment.pool).keep_deadlines());
            deployments.push(deployment);
            watched.push(seen);
            loops.push((settings.name.clone(), control));
        }
        provide::tell_credit(&records, clock.now());

        let (nowhere, cuts) = (DeploymentMeter::new(""), AtomicBool::new(false));
        let sink = Sink { clock, access: Arc::clone(&access), nowhere, cuts };
        let created = clock::wall().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let gateway = Arc::new(Gateway {
            clock,
            directory: Directory::new(deployments),
            budget: Budget::new(config.limits.buffered),
            heads: heads::budget(config.limits.buffered),
            limits: config.limits.clone(),
            sink: Arc::new(sink),
            created,
            clients: Arc::new(Semaphore::new(room.clients)),
            tls: config.tls.clone().map(show),
            stage,
            stall: STALL,
        });
        tokio::spawn(Arc::clone(&access).keep_writing());
        tokio::spawn(meter::keep_up(render.clone(), meter::UPKEEP));
        let admin_side = Admin::new(Arc::clone(&gateway), watched, &records, render);
        for listener in admin {
            tokio::spawn(admin::serve(listener, Arc::clone(&admin_side), room.operators));
        }
        let cores = spawn_cores(&gateway, listeners)?;
        // Last: whatever could fail has not, and from here on engines are started.
        let (finish, finishing) = watch::channel(false);
        let mut controls = JoinSet::new();
        for (name, control) in loops {
            controls.spawn(keep(name, control, finishing.clone()));
        }
        Ok(Self { addresses, cores, controls, finish, access, store: records.store })
    }

    async fn until_stopped(
        mut self,
        mut signals: Signals,
        stage: watch::Sender<Stage>,
    ) -> Result<(), AppError> {
        let mut result = Ok(());
        tokio::select! {
            () = signals.next() => {}
            // Its share of the port would be dead, and nobody would know.
            _ = self.cores.next() => {
                result = Err(AppError::System { what: "a core ended", error: "this is a bug".to_owned() });
            }
        }
        tracing::info!("stopping: running requests are finished first; a second signal cuts them");
        stage.send_replace(Stage::Finishing);
        tokio::select! {
            () = ended(&mut self.cores) => {}
            () = signals.next() => {
                tracing::warn!("running requests are cut, replicas are stopped; a third signal leaves at once");
                stage.send_replace(Stage::Cutting);
            }
        }
        self.finish.send_replace(true);
        let rest = async {
            while self.controls.join_next().await.is_some() {}
            ended(&mut self.cores).await;
        };
        tokio::select! {
            () = rest => {}
            () = signals.next() => tracing::warn!("leaving at once"),
        }
        let flushed = self.flush().await;
        tracing::info!("stopped");
        result.and(flushed)
    }

    /// Writes the rest of the records and of the access log, on threads that are left behind if they are stuck.
    ///
    /// # Errors
    /// What of the records is lost. A part of the access log is not worth an error.
    async fn flush(&self) -> Result<(), AppError> {
        let mut kept = Ok(());
        if let Some(store) = &self.store {
            let written = tokio::time::timeout(FLUSH, store.close()).await;
            let StoreView { path, trouble, waiting: lost, .. } = store.view();
            if written.is_err() || !lost.is_empty() || trouble.is_some() {
                let why = trouble.unwrap_or_else(|| format!("the disk does not answer within {FLUSH:?}"));
                kept = Err(AppError::Unsaved { path, why, lost });
            }
        }
        let access = Arc::clone(&self.access);
        let (done, flushed) = oneshot::channel();
        let thread = std::thread::Builder::new().spawn(move || {
            access.close();
            let _ = done.send(());
        });
        if thread.is_ok() && tokio::time::timeout(FLUSH, flushed).await.is_err() {
            tracing::warn!("the end of the access log is not written: nobody takes it");
        }
        kept
    }
}

/// Waits until all cores have ended.
async fn ended(cores: &mut FuturesUnordered<Ended>) {
    while cores.next().await.is_some() {}
}

async fn keep(name: DeploymentName, control: Control, mut finishing: watch::Receiver<bool>) {
    let finish = async move {
        let _ = finishing.wait_for(|finishing| *finishing).await;
        Shutdown::Stop { within: STOP }
    };
    for left in control.run(finish).await {
        tracing::error!("{} could not be stopped and is left running", replica_name(&name, left));
    }
}

fn listen(address: SocketAddr, key: &'static str, count: usize) -> Result<Vec<TcpListener>, AppError> {
    server::bind(address, count).map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "; another process has that port, perhaps another tidegate",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
            _ => "",
        };
        AppError::Listen { address, key, error, hint }
    })
}

fn local(listeners: &[TcpListener]) -> Result<SocketAddr, AppError> {
    let first = listeners.first().ok_or_else(|| io::Error::other("no listener"));
    first.and_then(TcpListener::local_addr).map_err(system("cannot listen"))
}

/// What clients are shown, from now on kept as fresh as its files.
fn show(front: Front) -> Arc<Shown> {
    let shown = Shown::new(front);
    if let Some(doubt) = shown.trouble() {
        tracing::warn!("{doubt}");
    }
    tokio::spawn(Arc::clone(&shown).keep_fresh());
    shown
}

fn access_log(access: &Access) -> Result<Arc<AccessLog>, AppError> {
    match access {
        Access::Off => Ok(AccessLog::off()),
        Access::Stdout => Ok(AccessLog::stdout()),
        Access::File(path) => AccessLog::file(path)
            .map_err(|error| AppError::AccessLog { path: path.display().to_string(), error }),
    }
}

async fn deploy(
    written: &Settings,
    config: &Arc<Config>,
    clock: Clock,
    state: Option<&Arc<StateDir>>,
    jobs: &[DeploymentName],
    records: &Records,
) -> Result<(Arc<Deployment>, Watched, Control), AppError> {
    let resizer = Arc::new(Resizer::new(config, written, records));
    let settings = &resizer.settings();
    let pool = Pool::new(settings.name.clone(), settings.limits.clone(), startable(settings), clock);
    let prober = Prober::new(clock, &settings.model);
    let dialer =
        Dialer { clock, limit: config.limits.connect, tls: settings.tls.clone(), http2: settings.http2 };
    let fleet = Arc::new(PoolFleet::new(Arc::clone(&pool), prober, dialer));
    let (provider, start_limit) = provide::provider(settings, state, jobs).await?;
    let name = settings.name.clone();
    let control = match start_limit {
        Some(start_limit) => {
            let (sizing, base_fee) = (settings.sizing.clone(), settings.base_fee);
            let terms = Terms { sizing, base_fee, start_limit };
            Control::new(name, fleet, provider, records.house.clone(), terms)
        }
        None => Control::fixed(name, fleet, provider),
    };
    let helm = control.helm();
    provide::take_out(settings, records, &helm, clock.now());
    resizer.connect(helm.clone(), Arc::clone(&pool));
    let meter = DeploymentMeter::new(settings.name.as_str());
    let status: ControlStatus = control.status();
    let deployment = Arc::new(Deployment {
        name: settings.name.clone(),
        aliases: settings.aliases.clone(),
        model: settings.model.clone(),
        conversation_headers: settings.conversation_headers.clone(),
        pool: Arc::clone(&pool),
        meter: Arc::clone(&meter),
    });
    let provider = settings.source.kind();
    let watched = Watched { pool, meter, control: status, provider, resizer, helm };
    Ok((deployment, watched, control))
}

fn spawn_cores(
    gateway: &Arc<Gateway>,
    listeners: Vec<TcpListener>,
) -> Result<FuturesUnordered<Ended>, AppError> {
    let spawn = |(core, listener)| server::spawn(Arc::clone(gateway), core, listener);
    listeners
        .into_iter()
        .enumerate()
        .map(spawn)
        .collect::<io::Result<_>>()
        .map_err(system("cannot start a core"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_core_that_ends_by_itself_stops_the_gateway_with_an_error() {
        let (end, ended) = oneshot::channel();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (finish, finishing) = watch::channel(false);
        let mut controls = JoinSet::new();
        let mut waits = finishing.clone();
        controls.spawn(async move { drop(waits.wait_for(|finishing| *finishing).await) });
        let app = App {
            addresses: Addresses { listen: any, admin: any },
            cores: FuturesUnordered::from_iter([ended]),
            controls,
            finish,
            access: AccessLog::off(),
            store: None,
        };
        let (stage, seen) = watch::channel(Stage::Serving);
        let running = tokio::spawn(app.until_stopped(Signals::new().expect("signals"), stage));
        drop::<oneshot::Sender<()>>(end);
        let result = running.await.expect("it ends");
        assert!(result.is_err_and(|error| error.to_string().contains("a core ended")));
        assert_eq!((*seen.borrow(), *finishing.borrow()), (Stage::Finishing, true), "and in order");
    }
}
