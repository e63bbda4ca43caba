//! Reads the table `docker`: replicas that are containers.
//!
//! Checks all that can be told without a daemon; whether the image, the network and the GPUs are there is for the
//! first start to say.

use std::net::IpAddr;
use std::path::Path;

use tidegate_scaler::provider::docker::{DockerHost, DockerSpec, Gpus, Network, Pull};
use tidegate_scaler::provider::process::PORT;
use tidegate_shared::id::DeploymentName;
use toml::de::DeValue;

use super::deployment::{TEBI, capacity, environment, price, start_limit};
use super::reader::{Found, Table};
use super::value::{self, Parsed};

/// The port in the container unless set: that of vLLM and most others.
const USUAL_PORT: u16 = 8000;
/// The network unless set: the one that Docker always has.
const USUAL_NETWORK: &str = "bridge";

const PULLS: [(&str, Pull); 2] = [("never", Pull::Never), ("missing", Pull::Missing)];

/// The table `docker` of deployment `name`; `None` only where a fault has been recorded.
pub(super) fn read(mut table: Table<'_, '_>, base: &Path, name: &str) -> Option<Box<DockerSpec>> {
    let image = table.required("image", value::text);
    let command = table.command("command", &["port"]);
    let env = environment(&mut table);
    let volumes = volumes(&mut table, base);
    let host = host(&mut table);
    let speaks_of_port = |text: &String| text.contains(PORT);
    let command: Vec<String> =
        command.map_or_else(Vec::new, |found| found.value.into_iter().map(|word| word.value).collect());
    let told = command.iter().chain(env.values()).any(speaks_of_port);
    let network = network(&mut table, host.as_ref(), told);
    let gpus = gpus(&mut table);
    let spec = DockerSpec {
        deployment: DeploymentName::new(name),
        host: host?,
        image: image.map(|found| found.value).unwrap_or_default(),
        command,
        env,
        volumes,
        network,
        gpus,
        // Docker's own floor for the memory of a container.
        memory: table.read("memory", value::size(6 << 20..=1024 * TEBI)).map(|found| found.value),
        millicpus: table.read("cpus", value::thousandths(10..=1_024_000)).map(|found| found.value),
        shm_size: table.read("shm_size", value::size(1..=TEBI)).map(|found| found.value),
        pull: table.or("pull", Pull::default(), value::choice(&PULLS)),
        capacity: capacity(&mut table),
        price: price(&mut table),
        start_limit: start_limit(&mut table),
    };
    table.finish();
    (!spec.image.is_empty()).then(|| Box::new(spec))
}

/// Where the daemon listens: as set, else `DOCKER_HOST`, else its usual socket.
fn host(table: &mut Table<'_, '_>) -> Option<DockerHost> {
    let place = table.place().missing("host");
    let given = table.given("host").is_some();
    if given {
        return table.read("host", docker_host).map(|found| found.value);
    }
    let text = std::env::var("DOCKER_HOST").ok().filter(|text| !text.is_empty());
    let host = DockerHost::parse(text.as_deref().unwrap_or(DockerHost::USUAL));
    host.map_err(|rule| table.faults().add(&place, format!("is not given, and DOCKER_HOST {rule}"))).ok()
}

fn docker_host(value: &DeValue<'_>) -> Parsed<DockerHost> {
    DockerHost::parse(value.as_str().unwrap_or_default()).map_err(str::to_owned)
}

/// How engines are reached; `told` says whether command or environment name the port.
fn network(table: &mut Table<'_, '_>, host: Option<&DockerHost>, told: bool) -> Network {
    let network = table.read("network", network_name);
    let (port, publish) = (table.read("port", value::integer(1..=65_535)), table.read("publish", address));
    let faults = table.faults();
    let name = network.as_ref().map_or(USUAL_NETWORK, |found| &found.value);
    if let Some(found) = network.as_ref().filter(|_| name == "host") {
        if !told {
            let rule =
                "must not be \"host\" without {port} in command or env: Tidegate chooses the port there";
            faults.add(&found.place, rule);
        }
        if host.is_some_and(|host| !host.is_local()) {
            faults.add(
                &found.place,
                "must not be \"host\" with a daemon at tcp://: only a port of this machine is proven",
            );
        }
        let given = port.as_ref().map(|found| &found.place).into_iter();
        for place in given.chain(publish.as_ref().map(|found| &found.place)) {
            faults.add(place, "must not be given with network \"host\": the engine listens on a port of 127.0.0.1 that Tidegate chooses");
        }
        return Network::Host;
    }
    let remote = |host: &DockerHost| match host {
        DockerHost::Unix(_) => false,
        DockerHost::Tcp(address) => {
            !["127.", "localhost:", "[::1]:"].iter().any(|near| address.starts_with(near))
        }
    };
    let address = publish.as_ref().map_or(IpAddr::from([127, 0, 0, 1]), |found| found.value);
    if host.is_some_and(remote) && address.is_loopback() {
        let place =
            publish.as_ref().map_or_else(|| table.place().missing("publish"), |found| found.place.clone());
        faults.add(&place, "must be an address of the machine of that daemon: requests go there");
    }
    let port = port.and_then(|found| u16::try_from(found.value).ok()).unwrap_or(USUAL_PORT);
    Network::Docker { name: name.to_owned(), port, publish: address }
}

fn network_name(value: &DeValue<'_>) -> Parsed<String> {
    let good = |name: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        !name.is_empty() && name.chars().all(plain) && *name != "none"
    };
    let name = value.as_str().filter(good).map(str::to_owned);
    name.ok_or_else(|| {
        "must be \"bridge\", \"host\" or the name of a network of Docker's, in quotes".to_owned()
    })
}

fn address(value: &DeValue<'_>) -> Parsed<IpAddr> {
    let address = value
        .as_str()
        .and_then(|text| text.parse().ok())
        .filter(|address: &IpAddr| !address.is_unspecified());
    address.ok_or_else(|| {
        "must be one IP address in quotes, such as \"127.0.0.1\": requests go there".to_owned()
    })
}

fn gpus(table: &mut Table<'_, '_>) -> Gpus {
    let each = table.read("gpus_per_replica", value::integer(1..=64));
    let gpus = table.read("gpus", gpu_list);
    let faults = table.faults();
    match (gpus, each) {
        (Some(Found { value: Some(ids), place }), each) => {
            let count = each.map_or(1, |found| found.value);
            if ids.len() < count as usize {
                faults.add(&place, format!("must hold at least {count} ids, as gpus_per_replica says"));
            }
            Gpus::Of { ids, each: count }
        }
        (all, Some(each)) => {
            faults.add(
                &each.place,
                "must stand beside gpus with a list of ids, of which each replica gets so many",
            );
            all.map_or(Gpus::None, |_| Gpus::All)
        }
        (Some(_), None) => Gpus::All,
        (None, None) => Gpus::None,
    }
}

/// `"all"` is `None`, a list is its ids.
fn gpu_list(value: &DeValue<'_>) -> Parsed<Option<Vec<String>>> {
    const RULE: &str = "must be \"all\" or a list of ids such as [\"0\", \"1\"]; a mere number would give every replica the \
                        same first GPUs";
    if value.as_str() == Some("all") {
        return Ok(None);
    }
    let good = |id: &&str| !id.is_empty() && !id.contains([',', '\0', '"']);
    let ids: Option<Vec<String>> = value.as_array().and_then(|list| {
        list.iter().map(|id| id.get_ref().as_str().filter(good).map(str::to_owned)).collect()
    });
    let ids = ids.filter(|ids| !ids.is_empty()).ok_or(RULE)?;
    if ids.iter().enumerate().any(|(at, id)| ids.iter().take(at).any(|before| before == id)) {
        return Err("must not name a GPU twice".to_owned());
    }
    Ok(Some(ids))
}

/// The GPUs must do for `max` replicas: each has its own.
pub(super) fn enough_gpus(table: &mut Table<'_, '_>, gpus: &Gpus, max: u32) {
    let Gpus::Of { ids, each } = gpus else { return };
    let enough = u32::try_from(ids.len()).unwrap_or(u32::MAX) / each;
    // Fewer than one replica needs is a fault of its own.
    if enough > 0 && enough < max {
        let place = table.given("max").unwrap_or_else(|| table.place().missing("max"));
        table
            .faults()
            .add(&place, format!("must not be more than {enough}: docker.gpus do for so many replicas"));
    }
}

/// What is mounted. A source that begins with a dot is relative to the configuration file, as in a compose file.
fn volumes(table: &mut Table<'_, '_>, base: &Path) -> Vec<String> {
    let list = table.list("volumes", volume).map_or_else(Vec::new, |found| found.value);
    let absolute = |text: String| match text.split_once(':') {
        Some((source, rest)) if source.starts_with('.') => format!("{}:{rest}", base.join(source).display()),
        _ => text,
    };
    list.into_iter().map(|found| absolute(found.value)).collect()
}

fn volume(value: &DeValue<'_>) -> Parsed<String> {
    let good = |text: &&str| {
        let mut parts = text.split(':');
        let (source, target, rest) = (parts.next(), parts.next(), parts.count());
        source.is_some_and(|source| !source.is_empty())
            && target.is_some_and(|target| target.starts_with('/'))
            && rest <= 1
    };
    let text = value.as_str().filter(good).map(str::to_owned);
    text.ok_or_else(|| {
        "must be SOURCE:/TARGET or SOURCE:/TARGET:OPTIONS in quotes, such as \"/models:/models:ro\""
            .to_owned()
    })
}

#[cfg(test)]
mod tests;
