//! Reads the settings of the server as a whole, then each deployment; checks what must hold between deployments.
//!
//! Reads no file but certificates and keys, makes none, and never opens a port: a port that is taken shows when it is bound.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::fs::Access as Permission;
use tidegate_scaler_core::budget::Bounds;
use tidegate_shared::offer::Money;
use tidegate_shared::time::Duration;

use super::reader::{Faults, Found, Place, Table};
use super::resize::Written;
use super::{Config, Deployment, deployment, front, value};

/// Limits of the server as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Largest body of one request in bytes, 1 to 1 TiB, at most `buffered`; beyond: 413 (H4).
    pub body: u64,
    /// Bytes of request bodies held at one time over all deployments, 1 to 1 TiB (Q1); heads over HTTP/2 may take a quarter
    /// beside, and 16 MiB in any case (C-072).
    pub buffered: u64,
    /// How long the connection to a replica may take, 1 ms to 1 h.
    pub connect: Duration,
    /// How long a replica may take to send the first byte of its answer, 1 ms to 24 h; beyond: 504 (H4).
    pub first_byte: Duration,
    /// How long a replica may be silent in the middle of an answer, 1 ms to 24 h.
    pub between_bytes: Duration,
    /// How long a client may take to begin its next request, so that an idle connection is closed; and, from its first
    /// byte on, to send the whole head of it; beyond that: 408, or over HTTP/2, where such a head belongs to no request
    /// yet, the end of the connection (H6).
    pub header_read: Duration,
    /// How long running requests may go on after SIGTERM, up to 24 h; zero cuts them at once.
    pub shutdown: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            buffered: 1 << 30,
            connect: Duration::from_secs(1),
            first_byte: Duration::from_secs(10 * 60),
            between_bytes: Duration::from_secs(5 * 60),
            header_read: Duration::from_secs(60),
            shutdown: Duration::from_secs(30 * 60),
        }
    }
}

/// What is logged, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The least important kind of message that is still written, to stderr.
    pub level: Level,
    /// Where the access log goes: one JSON object a line and request.
    pub access: Access,
}

/// Kinds of log messages, gravest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed and needs a person.
    Error,
    /// Something is odd; Tidegate goes on.
    Warn,
    /// What an operator wants to have read later.
    #[default]
    Info,
    /// For finding out why.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// The word used in the configuration, also understood as a filter by the logging library.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Where the access log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// To standard output.
    #[default]
    Stdout,
    /// Nowhere.
    Off,
    /// To the end of this file.
    File(PathBuf),
}

const MILLI: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TEBI: u64 = 1 << 40;
/// The table of what clients are shown.
pub(super) const TLS: &str = "tls";
/// The ports unless set.
const LISTEN: u16 = 8080;
/// The admin port unless set.
pub(super) const ADMIN: u16 = 8081;
/// Most replicas over all deployments that can be asked for.
const MOST_REPLICAS: u32 = 100_000;

const LEVELS: [(&str, Level); 5] = [
    ("error", Level::Error),
    ("warn", Level::Warn),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];

/// The whole configuration; `None`, or without the deployments that are not good, only where a fault has been recorded.
pub(super) fn read(mut root: Table<'_, '_>, base: &Path) -> Option<Config> {
    let (listen, admin) = addresses(&mut root);
    let tls = root.table(TLS).and_then(|table| front::read(table, base));
    let state_dir = state_dir(&mut root, base);
    let limits = server_limits(root.section("limits"));
    let log = log(root.section("log"), base);
    let budget = budget(root.section("budget"));
    let given = root.given("deployment").is_some();
    let tables = root.tables("deployment");
    let none = tables.as_ref().map_or(!given, Vec::is_empty);
    // One that is misspelled is told below.
    if none && !root.is_misspelled("deployment") {
        let rule = "at least one is needed: a table [[deployment]] with a name and a process or replicas";
        root.faults().add(&Place::default().missing("deployment"), rule);
    }
    let mut names = Names { faults: root.faults(), seen: BTreeMap::new(), taken: 0 };
    let mut deployments: Vec<Deployment> = Vec::new();
    let tables = tables.unwrap_or_default().into_iter().flatten();
    deployments.extend(tables.filter_map(|table| deployment::read(table, base, &mut names)));
    root.finish();
    let written = Written::default();
    Some(Config { listen, admin, tls, state_dir: state_dir?, limits, log, budget, deployments, written })
}

/// The names that clients may send, over all deployments.
pub(super) struct Names<'f, 'i> {
    faults: &'f Faults<'i>,
    /// Where each was taken, and by which deployment.
    seen: BTreeMap<String, (usize, usize)>,
    taken: usize,
}

impl Names<'_, '_> {
    /// Takes the name and the aliases of one more deployment; a second use of one is a fault.
    pub(super) fn take<'a>(&mut self, names: impl Iterator<Item = &'a Found<String>>) {
        self.taken += 1;
        for name in names {
            let rule = match self.seen.get(&name.value) {
                Some((line, by)) if *by == self.taken => {
                    format!("must not be named twice; line {line} has it for this deployment already")
                }
                Some((line, _)) => {
                    format!("must be a name or alias that no other deployment has; line {line} has it")
                }
                None => {
                    self.seen.insert(name.value.clone(), (name.place.line(), self.taken));
                    continue;
                }
            };
            self.faults.add(&name.place, rule);
        }
    }
}

/// A port of this machine alone.
fn usual(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Where the admin port is.
pub(super) fn admin(root: &mut Table<'_, '_>) -> SocketAddr {
    root.or("admin", usual(ADMIN), value::address)
}

fn addresses(root: &mut Table<'_, '_>) -> (SocketAddr, SocketAddr) {
    let listen = root.read("listen", value::address);
    let admin = root.read("admin", value::address);
    let pair = (
        listen.as_ref().map_or(usual(LISTEN), |found| found.value),
        admin.as_ref().map_or(usual(ADMIN), |found| found.value),
    );
    if let Some(admin) = &admin
        && !admin.value.ip().is_loopback()
    {
        let rule =
            "must be a loopback address: from elsewhere it would need a token, which is not supported yet";
        root.faults().add(&admin.place, rule);
    } else if collide(pair.0, pair.1) {
        let written = admin.as_ref().map(|f| (f, "listen", pair.0));
        let written = written.or(listen.as_ref().map(|f| (f, "admin", pair.1)));
        if let Some((found, other, address)) = written {
            root.faults()
                .add(&found.place, format!("must have another port than {other}, which is {address}"));
        }
    }
    pair
}

/// Whether two listeners would want the same port of the same interface.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let all = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && (all || a.ip() == b.ip())
}

fn state_dir(root: &mut Table<'_, '_>, base: &Path) -> Option<PathBuf> {
    if let Some(found) = root.read("state_dir", value::path) {
        return Some(base.join(found.value));
    }
    let usual = usual_state_dir(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
    if usual.is_none() {
        let rule = "must be given, as neither XDG_STATE_HOME nor HOME is an absolute path";
        root.faults().add(&Place::default().missing("state_dir"), rule);
    }
    usual
}

fn usual_state_dir(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |dir: Option<OsString>| dir.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let state = absolute(xdg).or_else(|| absolute(home).map(|home| home.join(".local/state")))?;
    Some(state.join("tidegate"))
}

fn server_limits(mut table: Table<'_, '_>) -> ServerLimits {
    let usual = ServerLimits::default();
    let body = table.read("body", value::size(1..=TEBI));
    let buffered = table.or("buffered", usual.buffered, value::size(1..=TEBI));
    if let Some(body) = &body
        && body.value > buffered
    {
        let rule = format!("must not be more than limits.buffered, which is {}", value::show_size(buffered));
        table.faults().add(&body.place, rule);
    }
    let limits = ServerLimits {
        body: body.map_or(usual.body.min(buffered), |found| found.value),
        buffered,
        connect: table.or("connect", usual.connect, value::duration(MILLI..=HOUR)),
        first_byte: table.or("first_byte", usual.first_byte, value::duration(MILLI..=DAY)),
        between_bytes: table.or("between_bytes", usual.between_bytes, value::duration(MILLI..=DAY)),
        header_read: table.or("header_read", usual.header_read, value::duration(MILLI..=HOUR)),
        shutdown: table.or("shutdown", usual.shutdown, value::duration(Duration::ZERO..=DAY)),
    };
    table.finish();
    limits
}

/// What all deployments share (A6, M3).
fn budget(mut table: Table<'_, '_>) -> Bounds {
    let replicas = table.read("replicas", value::integer(0..=MOST_REPLICAS)).map(|found| found.value);
    let credit = table.read("credit", value::dollars).map(|found| Money(found.value.into()));
    table.finish();
    Bounds { replicas, credit }
}

fn log(mut table: Table<'_, '_>, base: &Path) -> Log {
    let level = table.or("level", Level::default(), value::choice(&LEVELS));
    let access = table.read("access", |found| match found.as_str() {
        Some("stdout") => Ok(Access::Stdout),
        Some("off") => Ok(Access::Off),
        _ => match value::path(found) {
            Ok(path) => Ok(Access::File(base.join(path))),
            Err(_) => Err("must be \"stdout\", \"off\" or the path of a file".to_owned()),
        },
    });
    if let Some(Found { value: Access::File(path), place }) = &access
        && !table.faults().is_running()
        && let Err(error) = writable(path)
    {
        table.faults().add(place, format!("cannot be written: {error}"));
    }
    table.finish();
    Log { level, access: access.map(|found| found.value).unwrap_or_default() }
}

/// Whether lines can be added to the file at `path`, or it can be made; nothing is made.
fn writable(path: &Path) -> io::Result<()> {
    match path.metadata() {
        // To open a pipe waits for its reader.
        Ok(there) if there.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| folder.is_dir()).ok_or(error)?;
            Ok(rustix::fs::access(folder, Permission::WRITE_OK | Permission::EXEC_OK)?)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_state_dir_follows_the_xdg_rules() {
        let dir = |xdg: Option<&str>, home: Option<&str>| {
            usual_state_dir(xdg.map(Into::into), home.map(Into::into))
        };
        assert_eq!(dir(Some("/s"), Some("/h")), Some("/s/tidegate".into()));
        assert_eq!(dir(None, Some("/h")), Some("/h/.local/state/tidegate".into()));
        assert_eq!(dir(Some("relative"), Some("/h")), Some("/h/.local/state/tidegate".into()));
        assert_eq!(dir(Some(""), Some("")), None);
        assert_eq!(dir(None, None), None);
    }

    #[test]
    fn two_listeners_collide_only_on_one_port_of_one_interface() {
        let both = |a: &str, b: &str| collide(a.parse().expect(a), b.parse().expect(b));
        assert!(both("127.0.0.1:80", "127.0.0.1:80"));
        assert!(both("0.0.0.0:80", "127.0.0.1:80"));
        assert!(both("[::]:80", "127.0.0.1:80"));
        assert!(!both("127.0.0.1:0", "127.0.0.1:0"));
        assert!(!both("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!both("127.0.0.1:80", "127.0.0.1:81"));
    }
}
