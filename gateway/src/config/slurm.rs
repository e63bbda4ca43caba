//! Reads the table `slurm`: replicas that are jobs of a cluster.
//!
//! Checks all that can be told without a cluster; whether it has the partition, the account or the resources is for the
//! first job to say.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate_scaler::provider::rest::Site;
use tidegate_scaler::provider::slurm::{SlurmAccess, SlurmOffer, SlurmSpec};
use tidegate_shared::id::DeploymentName;
use tidegate_shared::offer::Price;
use toml::de::DeValue;

use super::deployment::{DAY, SECOND, TEBI, capacity, price, start_limit};
use super::reader::{Found, Table};
use super::value::{self, Parsed};

/// Ports of engines unless set: below those that the kernel hands out by itself.
const USUAL_PORTS: RangeInclusive<u16> = 20_000..=29_999;
/// Where jobs run unless set: a folder that every node has.
const USUAL_DIR: &str = "/tmp";
/// What the offer is called where there is but one and it names no partition.
const USUAL_OFFER: &str = "default";
/// Most offers of a deployment.
const MOST_OFFERS: usize = 32;

/// Fields of a job that have settings of their own, or that Tidegate needs for itself.
const OWN_FIELDS: [&str; 14] = [
    "account",
    "argv",
    "array",
    "comment",
    "current_working_directory",
    "environment",
    "gres",
    "name",
    "partition",
    "qos",
    "requeue",
    "script",
    "standard_output",
    "time_limit",
];

/// The table `slurm` of deployment `name`; `None` only where a fault has been recorded.
pub(super) fn read(mut table: Table<'_, '_>, base: &Path, name: &str) -> Option<Box<SlurmSpec>> {
    let access = access(&mut table, base);
    let command = table.required_command("command", &["port"]);
    let env: BTreeMap<String, String> =
        table.section("env").into_secrets(variable, value::any_text).into_iter().collect();
    let dir = table.or("dir", PathBuf::from(USUAL_DIR), absolute);
    let logs = table.or("logs", dir.clone(), absolute);
    let options = table.section("options").into_free(field, scalar).into_iter().collect();
    let ports = table.or("ports", USUAL_PORTS, ports);
    let minutes = table.read("time_limit", value::duration(SECOND * 60..=DAY * 365));
    let minutes = minutes.and_then(|found| u32::try_from(found.value.as_secs().div_ceil(60)).ok());
    let (account, qos) = (text(&mut table, "account"), text(&mut table, "qos"));
    let offers = offers(&mut table);
    let start_limit = start_limit(&mut table);
    let faults = table.faults();
    table.finish();
    let command = command?;
    let place = command.place.without_value();
    let command: Vec<String> = command.value.into_iter().map(|found| found.value).collect();
    if !command.iter().chain(env.values()).any(|text| text.contains("{port}")) {
        let rule = "must hold {port}, here or in env: the job chooses the port that the engine listens on";
        faults.add(&place, rule);
    }
    let deployment = DeploymentName::new(name);
    let access = access?;
    Some(Box::new(SlurmSpec {
        deployment,
        command,
        env,
        dir,
        logs,
        ports,
        account,
        qos,
        time_limit: minutes,
        options,
        offers,
        access,
        start_limit,
    }))
}

/// How slurmrestd is reached.
fn access(table: &mut Table<'_, '_>, base: &Path) -> Option<SlurmAccess> {
    let site = table.required("url", site);
    let token = table.read("token", value::path).map(|found| base.join(found.value));
    let user = text(table, "user");
    let api = table.read("api", version).map(|found| found.value);
    let Found { value: site, place } = site?;
    if token.is_none() && matches!(site, Site::Tcp { .. }) {
        table
            .faults()
            .add(&place, "must come with token, a file with a JWT: over HTTP nothing else tells who asks");
    }
    Some(SlurmAccess { site, token, user, api })
}

fn text(table: &mut Table<'_, '_>, key: &'static str) -> Option<String> {
    table.read(key, value::text).map(|found| found.value)
}

/// What a replica can be started on: the tables `offer`, each with the table's own settings where it has none; else one
/// of these alone.
fn offers(table: &mut Table<'_, '_>) -> Vec<SlurmOffer> {
    let usual = SlurmOffer {
        name: USUAL_OFFER.to_owned(),
        partition: text(table, "partition"),
        gres: text(table, "gres"),
        capacity: capacity(table),
        price: price(table),
        memory: table.read("memory", value::size(1..=1024 * TEBI)).map(|found| found.value),
        cached: table.or("cached", false, value::boolean),
    };
    let place = table.place().missing("offer");
    let faults = table.faults();
    let Some(tables) = table.tables("offer") else { return vec![usual] };
    if !(1..=MOST_OFFERS).contains(&tables.len()) {
        faults.add(&place, format!("must be 1 to {MOST_OFFERS} offers, not {}", tables.len()));
    }
    let mut offers: Vec<SlurmOffer> = Vec::new();
    for mut inner in tables.into_iter().flatten() {
        let name = inner.required("name", value::model_name);
        let given = inner.given("capacity").is_some();
        let own = capacity(&mut inner);
        let offer = SlurmOffer {
            name: name.as_ref().map(|found| found.value.clone()).unwrap_or_default(),
            partition: text(&mut inner, "partition").or_else(|| usual.partition.clone()),
            gres: text(&mut inner, "gres").or_else(|| usual.gres.clone()),
            capacity: if given { own } else { usual.capacity },
            price: inner.read("price", value::dollars).map_or(usual.price, |found| Price(found.value)),
            memory: inner
                .read("memory", value::size(1..=1024 * TEBI))
                .map(|found| found.value)
                .or(usual.memory),
            cached: inner.read("cached", value::boolean).map_or(usual.cached, |found| found.value),
        };
        inner.finish();
        let Some(name) = name else { continue };
        if offers.iter().any(|one| one.name == offer.name) {
            faults.add(&name.place, "must not be the name of two offers");
        }
        offers.push(offer);
    }
    offers
}

fn site(value: &DeValue<'_>) -> Parsed<Site> {
    let rule = || {
        "must be \"unix:\" and the path of slurmrestd's socket, or \"http://\", a host and a port, such as \
         \"http://127.0.0.1:6820\""
            .to_owned()
    };
    let text = value.as_str().ok_or_else(rule)?;
    if let Some(path) =
        text.strip_prefix("unix:").filter(|path| path.starts_with('/') && !path.contains('\0'))
    {
        return Ok(Site::Unix(PathBuf::from(path)));
    }
    let address = text.strip_prefix("http://").ok_or_else(rule)?;
    let (host, port) = address.trim_end_matches('/').rsplit_once(':').ok_or_else(rule)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(rule)?;
    let good = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c));
    good.then(|| Site::Tcp { host: host.to_owned(), port }).ok_or_else(rule)
}

/// `"v0.0.38"` as 38.
fn version(value: &DeValue<'_>) -> Parsed<u32> {
    let number = value.as_str().and_then(|text| text.strip_prefix("v0.0.")?.parse().ok());
    let number = number.filter(|number| (36..=999).contains(number));
    number.ok_or_else(|| "must be a version of slurmrestd's API from \"v0.0.36\" on".to_owned())
}

/// `"20000-29999"`.
fn ports(value: &DeValue<'_>) -> Parsed<RangeInclusive<u16>> {
    let bounds = value.as_str().and_then(|text| text.split_once('-'));
    let bounds = bounds.and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
    let good = bounds.filter(|(low, high)| (1024..=*high).contains(low));
    good.map(|(low, high)| low..=high)
        .ok_or_else(|| "must be two ports from 1024 to 65535, such as \"20000-29999\"".to_owned())
}

/// A path on the nodes: what it is relative to would be anybody's guess.
fn absolute(value: &DeValue<'_>) -> Parsed<PathBuf> {
    let path =
        value::path(value).ok().filter(|path| path.is_absolute() && !path.to_string_lossy().contains('%'));
    path.ok_or_else(|| "must be an absolute path on the nodes, in quotes and without %".to_owned())
}

/// Whether `name` can be a variable that a shell sets.
fn variable(name: &str) -> Result<(), &'static str> {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let good = begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    good.then_some(()).ok_or("must have a name of letters, digits and _, and not begin with a digit")
}

/// Whether `name` is a field of a job that the operator may set.
fn field(name: &str) -> Result<(), &'static str> {
    let good = !OWN_FIELDS.contains(&name) && !name.is_empty();
    good.then_some(())
        .ok_or("must not be given here: it has a setting of its own, or Tidegate needs it for itself")
}

/// A text, a whole number, or true or false.
fn scalar(value: &DeValue<'_>) -> Parsed<Value> {
    let number = || {
        let integer = value.as_integer()?;
        i64::from_str_radix(integer.as_str(), integer.radix()).ok().map(Value::from)
    };
    let found = value.as_str().map(Value::from).or_else(|| value.as_bool().map(Value::from)).or_else(number);
    found.ok_or_else(|| "must be a text in quotes, a whole number, true or false".to_owned())
}

#[cfg(test)]
mod tests;
