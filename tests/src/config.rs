//! Writes the configuration file of a gateway under test.
//!
//! Sets only what a test cares about: everything else is the gateway's default, so that the suites prove the defaults.

use std::path::Path;

use toml::{Table, Value};

use crate::front::{Front, Trust};
use crate::gateway;
use crate::stub::Stub;

/// A configuration in the making.
#[derive(Clone, Debug, Default)]
pub struct Config {
    top: Table,
    deployments: Vec<Deployment>,
    /// Whom clients trust, where they speak TLS.
    pub(crate) trust: Option<&'static Trust>,
}

impl Config {
    /// One deployment.
    pub fn of(deployment: Deployment) -> Self {
        Self::default().and(deployment)
    }

    /// One deployment more.
    pub fn and(mut self, deployment: Deployment) -> Self {
        self.deployments.push(deployment);
        self
    }

    /// Sets a key of the top level by its path: `limits.body`.
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        put(&mut self.top, path, value.into());
        self
    }

    /// Clients speak TLS, and are shown this.
    pub fn secured(self, front: &Front) -> Self {
        let secured = self.set("tls.cert", front.path("cert.pem")).set("tls.key", front.path("key.pem"));
        Self { trust: Some(front.trust), ..secured }
    }

    /// Whether clients speak TLS.
    pub fn is_secured(&self) -> bool {
        self.trust.is_some()
    }

    /// Replicas of static fleets; a test usually waits for all of them.
    pub fn static_replicas(&self) -> usize {
        self.deployments.iter().map(|deployment| deployment.replicas).sum()
    }

    /// The file's text for a gateway that listens on these ports and keeps its state in `dir`.
    pub fn render(&self, dir: &Path, listen: u16, admin: u16) -> String {
        let mut top = self.top.clone();
        put(&mut top, "listen", format!("127.0.0.1:{listen}").into());
        put(&mut top, "admin", format!("127.0.0.1:{admin}").into());
        put(&mut top, "state_dir", dir.join("state").display().to_string().into());
        let deployments = self.deployments.iter().map(|deployment| Value::Table(deployment.table.clone()));
        put(&mut top, "deployment", Value::Array(deployments.collect()));
        toml::to_string(&top).expect("a table is TOML")
    }
}

/// One deployment in the making.
#[derive(Clone, Debug)]
pub struct Deployment {
    table: Table,
    replicas: usize,
}

impl Deployment {
    /// A deployment of that name, without replicas yet.
    pub fn named(name: &str) -> Self {
        Self { table: Table::from_iter([("name".to_owned(), name.into())]), replicas: 0 }
    }

    /// The deployment `chat` over these stubs, each of one unit.
    pub fn chat<'a>(stubs: impl IntoIterator<Item = &'a Stub>) -> Self {
        stubs.into_iter().fold(Self::named("chat"), |deployment, stub| deployment.replica(&stub.url(), 1))
    }

    /// One static replica more.
    pub fn replica(mut self, url: &str, capacity: u32) -> Self {
        let replica = Table::from_iter([
            ("url".to_owned(), url.into()),
            ("capacity".to_owned(), i64::from(capacity).into()),
        ]);
        let list = self.table.entry("replica").or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().expect("a list of replicas").push(Value::Table(replica));
        self.replicas += 1;
        self
    }

    /// Replicas are processes: the built-in stand-in engine with these arguments more.
    pub fn engine(self, arguments: &[&str]) -> Self {
        let binary = gateway::binary().display().to_string();
        let command =
            [binary.as_str(), "engine", "--port", "{port}"].into_iter().chain(arguments.iter().copied());
        let command: Vec<&str> = command.collect();
        self.process(&command)
    }

    /// Replicas are processes of this command line.
    pub fn process(self, command: &[&str]) -> Self {
        self.set("process.command", command.iter().map(|word| Value::from(*word)).collect::<Vec<_>>())
    }

    /// Sets a key of the deployment by its path: `queue.headroom`.
    pub fn set(mut self, path: &str, value: impl Into<Value>) -> Self {
        put(&mut self.table, path, value.into());
        self
    }

    /// Takes `key` out of the table at `table`.
    pub fn without(mut self, table: &str, key: &str) -> Self {
        self.table.get_mut(table).and_then(Value::as_table_mut).and_then(|table| table.remove(key));
        self
    }
}

/// Puts a value at a dotted path, making the tables on the way.
fn put(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
            put(inner.as_table_mut().expect("a table on the way"), rest, value);
        }
    }
}
