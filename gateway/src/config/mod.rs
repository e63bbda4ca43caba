//! What the operator wants, read from one TOML file and checked as a whole.
//!
//! A [`Config`] that exists is good: every number is within its bounds and the parts fit together. Reading tells all
//! faults at once, each with its path, value, rule and line; it never panics, never guesses and never warns only.
//! Paths in the file are relative to the folder of the file.

mod deployment;
mod docker;
mod error;
pub(crate) mod exec;
mod front;
mod nearest;
pub(crate) mod placeholder;
mod reader;
mod resize;
mod server;
mod slurm;
mod tls;
mod url;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use http::HeaderName;
use tidegate_gateway_core::config::Limits;
use tidegate_scaler::provider::docker::DockerSpec;
use tidegate_scaler::provider::exec::ExecSpec;
use tidegate_scaler::provider::slurm::SlurmSpec;
use tidegate_scaler_core::budget::Bounds;
use tidegate_scaler_core::config::{Sizing, Task};
use tidegate_shared::id::DeploymentName;
use tidegate_shared::offer::Price;
use tidegate_shared::problem::Problem;
use tidegate_shared::replica::Capacity;
use tidegate_shared::time::Duration;
use toml::de::DeTable;

use crate::server::certificate::Front;
use crate::upstream::tls::Tls;

pub use error::ConfigError;
pub use resize::RESIZABLE;
use resize::Written;
pub use server::{Access, Level, Log, ServerLimits};
pub use url::BaseUrl;
pub use value::amount;
pub(crate) use value::show_size;

/// Largest configuration file, in bytes.
const LARGEST: u64 = 4 << 20;

/// Everything that the operator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where requests are taken; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Where `/status` and `/metrics` are served: a loopback address, never the port of `listen`.
    pub admin: SocketAddr,
    /// What clients are shown; `None` where `listen` speaks in the clear (H6).
    pub tls: Option<Front>,
    /// Folder for what must survive a restart: records of replicas, their logs.
    pub state_dir: PathBuf,
    /// Limits of the server as a whole (H4, H6, Q1).
    pub limits: ServerLimits,
    /// What is logged, and where.
    pub log: Log,
    /// What all deployments share: replicas of the gateway as a whole, credit (A6, M3). Static replicas count in neither.
    pub budget: Bounds,
    /// The deployments in the order of the file, at least one; names and aliases are unique over all.
    pub deployments: Vec<Deployment>,
    /// What was read, for [`Config::resized`].
    written: Written,
}

/// One model and the fleet that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The name that clients send as `model`: 1 to 128 of `[A-Za-z0-9._:/-]`.
    pub name: DeploymentName,
    /// Other names for it.
    pub aliases: Vec<DeploymentName>,
    /// The name that the engine knows; `name` unless set. Where it differs from what the client sent, it is written
    /// into the body (H3).
    pub model: String,
    /// What it does (A1).
    pub task: Task,
    /// How its fleet is sized (A1–A6, B1–B5, C1, C5, M1). A static fleet has `min` and `max` equal to its number of replicas
    /// and `autoscale` off.
    pub sizing: Sizing,
    /// What each warm replica costs beside its price; nothing in flex mode (M3).
    pub base_fee: Price,
    /// Admission, queue and conversations (Q1–Q3, R4, R7).
    pub limits: Limits,
    /// Headers that name a conversation, the first present wins; at most 16, may be empty (R1).
    pub conversation_headers: Vec<HeaderName>,
    /// Whether `http://` replicas speak HTTP/2, and only that; with `https://` ones it is negotiated.
    pub http2: bool,
    /// How `https://` replicas are connected to; there whenever a replica has such a URL.
    pub tls: Option<Tls>,
    /// Where its replicas come from.
    pub source: Source,
}

/// Where replicas come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Local engines that Tidegate starts and stops.
    Process(Process),
    /// Containers.
    Docker(Box<DockerSpec>),
    /// Whatever the operator's own commands start and stop.
    Exec(Box<ExecSpec>),
    /// Jobs of a cluster.
    Slurm(Box<SlurmSpec>),
    /// Engines that run anyway, 1 to 32 with different URLs.
    Static(Vec<StaticReplica>),
}

impl Source {
    /// The word used in status and logs.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
            Self::Docker(_) => "docker",
            Self::Exec(_) => "exec",
            Self::Slurm(_) => "slurm",
            Self::Static(_) => "static",
        }
    }

    /// Whether replicas can be started.
    pub const fn can_start(&self) -> bool {
        !matches!(self, Self::Static(_))
    }
}

/// How a local engine is started. `Debug` leaves out the values of `env`: they may be secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Process {
    /// Program and arguments, at least the program. `{port}` stands for the port to listen on, here or in `env`.
    pub command: Vec<String>,
    /// Set in addition to the gateway's own environment.
    pub env: BTreeMap<String, String>,
    /// Working folder; the folder of the configuration file unless set.
    pub dir: PathBuf,
    /// The size of each replica beside those of other offers, 1 to 1,000,000 units (R3).
    pub capacity: Capacity,
    /// What each replica costs, up to $1,000,000 an hour; free unless set (M1).
    pub price: Price,
    /// How long a start may take until the model is loaded, 1 s to 24 h; then it counts as failed (C1).
    pub start_limit: Duration,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("command", &self.command)
            .field("env", &self.env.keys())
            .field("dir", &self.dir)
            .field("capacity", &self.capacity)
            .field("price", &self.price)
            .field("start_limit", &self.start_limit)
            .finish()
    }
}

/// One engine of a static fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticReplica {
    /// Its base URL.
    pub url: BaseUrl,
    /// Its size beside its siblings, 1 to 1,000,000 units (R3).
    pub capacity: Capacity,
}

impl Config {
    /// Where the admin port is unless set.
    pub const USUAL_ADMIN: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), server::ADMIN);

    /// The shipped example: every setting with its default, explained.
    pub const EXAMPLE: &str = include_str!("../../../docker/tidegate.toml");

    /// Reads and checks the file at `path`, up to 4 MiB.
    ///
    /// # Errors
    ///
    /// Every fault of the file; one if it cannot be read, is not UTF-8 text or not TOML.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&text_of(path)?, path)
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        self.written.path()
    }

    /// Where the admin port is by the file at `path`. Looks at nothing else of it: a fault elsewhere is none of those who
    /// only ask a running gateway.
    ///
    /// # Errors
    ///
    /// As for [`Config::load`], where that setting or the whole file is at fault.
    pub fn admin_of(path: &Path) -> Result<SocketAddr, ConfigError> {
        let text = text_of(path)?;
        whole(&text, path, |mut root| Some(server::admin(&mut root))).map_err(|(error, _)| error)
    }

    /// Checks `text`, which came from `path`: it names the file in errors, and relative paths start at its folder.
    /// Reads the certificates and keys that it names and no other file, and looks whether the access log can be written; the default of `state_dir` comes from the
    /// environment.
    ///
    /// # Errors
    ///
    /// Every fault of the text; one if it is not TOML.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let read = whole(text, path, |root| server::read(root, &base_of(path)));
        let config = read.map_err(|(error, rest)| error.beside(rest))?;
        Ok(Self { written: Written::new(text, path), ..config })
    }
}

/// The text of the file at `path`.
fn text_of(path: &Path) -> Result<String, ConfigError> {
    let whole = |rule: String, line| {
        let problem = Problem { path: path.display().to_string(), value: String::new(), rule, line };
        ConfigError::new(path, String::new(), vec![problem])
    };
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    let size = read.map_err(|error| whole(format!("cannot be read: {error}"), 0))?;
    if size as u64 > LARGEST {
        return Err(whole(format!("must not be larger than {}", value::show_size(LARGEST)), 0));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        let line = good.filter(|&&byte| byte == b'\n').count() + 1;
        whole("must be UTF-8 text, and this line holds other bytes".to_owned(), line)
    })?;
    Ok(text)
}

/// What `read` makes of the table of the whole `text`; beside the faults what it makes of it nevertheless.
fn whole<T>(
    text: &str,
    path: &Path,
    read: impl FnOnce(reader::Table<'_, '_>) -> Option<T>,
) -> Result<T, (ConfigError, Option<T>)> {
    let failed = |problems| ConfigError::new(path, text.to_owned(), problems);
    let faults = reader::Faults::new(text);
    let root = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(0, |span| faults.line(span.start));
        let rule = format!("not TOML: {}", error.message());
        (failed(vec![Problem { path: path.display().to_string(), value: String::new(), rule, line }]), None)
    })?;
    let made = read(reader::Table::root(&faults, root.get_ref()));
    let deployments = root.get_ref().get("deployment").and_then(|found| found.get_ref().as_array());
    let lines: Vec<usize> =
        deployments.into_iter().flatten().map(|one| faults.line(one.span().start)).collect();
    match (made, faults.into_problems()) {
        (Some(made), problems) if problems.is_empty() => Ok(made),
        (made, mut problems) => {
            problems.iter_mut().for_each(|problem| name_deployment(problem, root.get_ref(), &lines));
            Err((failed(problems), made))
        }
    }
}

/// Calls the deployment of a fault by its name, `deployment chat: max`, where that is known and good; else by its number,
/// from 1, and the line of `lines` where it begins.
fn name_deployment(problem: &mut Problem, root: &DeTable<'_>, lines: &[usize]) {
    let Some((number, rest)) = problem.path.strip_prefix("deployment[").and_then(|rest| rest.split_once(']'))
    else {
        return;
    };
    let Ok(number) = number.parse::<usize>() else { return };
    let one = || root.get("deployment")?.get_ref().get(number)?.get_ref().get("name");
    let name = one().and_then(|name| value::model_name(name.get_ref()).ok());
    let name = name.unwrap_or_else(|| match lines.get(number) {
        Some(line) if *line != problem.line => format!("{} (line {line})", number + 1),
        _ => (number + 1).to_string(),
    });
    let key = rest.strip_prefix('.').map(|key| format!(": {key}")).unwrap_or_default();
    problem.path = format!("deployment {name}{key}");
}

/// The folder that relative paths in the file at `path` start from.
fn base_of(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.parent().unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod example_tests;
#[cfg(test)]
mod tests;
