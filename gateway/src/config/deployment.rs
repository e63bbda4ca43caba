//! Reads one deployment and checks that its settings fit together.
//!
//! Defaults that hang on other settings are worked out here and nowhere else: the target from the task and the rule, the
//! window from the mode and the rule, the floor from the mode, the queue threshold from the headroom, the concurrency limit from the target.

use std::collections::BTreeMap;
use std::path::Path;

use http::HeaderName;
use tidegate_gateway_core::config::{Limits, usual_concurrency};
use tidegate_scaler::control;
use tidegate_scaler_core::config::{COOL, MAX_REPLICAS, MAX_TARGET, Mode, RuleChoice, Sizing, Task};
use tidegate_shared::decision::Rule;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::names::header;
use tidegate_shared::offer::Price;
use tidegate_shared::policy::PolicyName;
use tidegate_shared::replica::Capacity;
use tidegate_shared::time::Duration;

use super::reader::{Faults, Found, Table};
use super::server::Names;
use super::{Deployment, Process, Source, StaticReplica, docker, exec, slurm, tls, value};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const TEBI: u64 = 1 << 40;

/// Largest ceiling of a fleet unless set: a laptop survives it.
const USUAL_MAX: u32 = 4;
/// Largest number of units that a replica may count.
const MOST_UNITS: u32 = 1_000_000;
/// Most headers that may name a conversation (R1): each is looked up for each request.
const MOST_HEADERS: usize = 16;

const TASKS: [(&str, Task); 4] =
    [("chat", Task::Chat), ("embeddings", Task::Embeddings), ("image", Task::Image), ("video", Task::Video)];
const POLICIES: [(&str, PolicyName); 5] = {
    let [least, two, prefix, round, random] = PolicyName::ALL;
    [
        (least.as_str(), least),
        (two.as_str(), two),
        (prefix.as_str(), prefix),
        (round.as_str(), round),
        (random.as_str(), random),
    ]
};
const RULES: [(&str, RuleChoice); 4] = [
    ("auto", RuleChoice::Auto),
    ("concurrency", RuleChoice::Fixed(Rule::Concurrency)),
    ("token-load", RuleChoice::Fixed(Rule::TokenLoad)),
    ("jobs", RuleChoice::Fixed(Rule::Jobs)),
];
const MODES: [(&str, Mode); 2] = [("flex", Mode::Flex), ("active", Mode::Active)];

/// Where replicas may come from: the last of these is a fixed fleet.
const KINDS: [&str; 5] = ["process", "docker", "exec", "slurm", "replica"];

/// The settings that make no sense where the fleet is fixed.
const SIZING_KEYS: [&str; 12] = [
    "rule",
    "mode",
    "min",
    "max",
    "parked",
    "window",
    "queue_threshold",
    "autoscale",
    "drain_limit",
    "price_cap",
    "gpu_memory",
    "base_fee",
];

/// One deployment; `None` only where a fault has been recorded.
pub(super) fn read(mut table: Table<'_, '_>, base: &Path, names: &mut Names<'_, '_>) -> Option<Deployment> {
    let name = table.required("name", value::model_name);
    let aliases = table.list("aliases", value::model_name).map_or_else(Vec::new, |found| found.value);
    names.take(name.iter().chain(&aliases));
    let model = table.read("model", value::text).map(|found| found.value);
    let task = table.or("task", Task::default(), value::choice(&TASKS));
    let given: Vec<&str> = KINDS.into_iter().filter(|kind| table.given(kind).is_some()).collect();
    let fixed_fleet = given == ["replica"];
    let rule = if fixed_fleet { task.rule() } else { table.or("rule", task.rule(), value::choice(&RULES)) };
    let usual = task.target_concurrency(rule);
    let target = table.or("target_concurrency", usual, value::integer(1..=MAX_TARGET));
    let (limits, conversation_headers) = limits(&mut table, target);
    let source = source(&mut table, &given, base, name.as_ref().map_or("", |name| &name.value));
    let (http2, tls) = tls::read(&mut table, base, source.as_ref());
    let sizing = match &source {
        Some(Source::Static(replicas)) => fixed(&mut table, replicas.len(), target),
        Some(_) | None => {
            let basis = Sizing { rule, task, target_concurrency: target, ..Sizing::default() };
            sizing(&mut table, basis, limits.headroom)
        }
    };
    let sizing = Sizing { limit: limits.concurrency, ..sizing };
    if let Some(Source::Docker(spec)) = &source {
        docker::enough_gpus(&mut table, &spec.gpus, sizing.max);
    }
    fits(&mut table, &sizing, source.as_ref());
    let base_fee = money(&mut table, &sizing, source.as_ref());
    table.finish();
    let name = name?.value;
    Some(Deployment {
        aliases: aliases.iter().map(|alias| DeploymentName::new(&alias.value)).collect(),
        model: model.unwrap_or_else(|| name.clone()),
        name: DeploymentName::new(&name),
        task,
        sizing,
        base_fee,
        limits,
        conversation_headers,
        http2,
        tls,
        source: source?,
    })
}

/// The limits of the dispatcher, and the headers that name a conversation.
fn limits(table: &mut Table<'_, '_>, target: u32) -> (Limits, Vec<HeaderName>) {
    let usual = Limits { concurrency: usual_concurrency(target), ..Limits::default() };
    let mut queue = table.section("queue");
    let mut conversations = table.section("conversations");
    let headers = conversation_headers(&mut conversations);
    let limits = Limits {
        concurrency: table.or("concurrency_limit", usual.concurrency, value::integer(1..=1_000_000)),
        load_percent: table.or("load_limit", usual.load_percent, value::integer(1..=100)),
        policy: table.or("policy", usual.policy, value::choice(&POLICIES)),
        queue_requests: queue.or("requests", usual.queue_requests, value::integer(0..=1_000_000)),
        queue_bytes: queue.or("bytes", usual.queue_bytes, value::size(0..=TEBI)),
        headroom: queue.or("headroom", usual.headroom, value::duration(Duration::ZERO..=DAY)),
        cold_start: queue.or("cold_start", usual.cold_start, value::duration(Duration::ZERO..=DAY)),
        conversations: conversations.or("max", usual.conversations, value::integer(1..=10_000_000)),
        conversation_idle: conversations.or(
            "idle",
            usual.conversation_idle,
            value::duration(SECOND..=DAY * 30),
        ),
    };
    queue.finish();
    conversations.finish();
    (limits, headers)
}

fn conversation_headers(table: &mut Table<'_, '_>) -> Vec<HeaderName> {
    let Some(list) = table.list("headers", value::header_name) else {
        return header::CONVERSATION.map(HeaderName::from_static).to_vec();
    };
    if list.value.len() > MOST_HEADERS {
        table.faults().add(&list.place, format!("must not name more than {MOST_HEADERS} headers"));
    }
    let mut names: Vec<HeaderName> = Vec::new();
    for found in list.value {
        if names.contains(&found.value) {
            table.faults().add(&found.place, "must not be named twice");
        } else if found.value == header::REQUEST_ID {
            table.faults().add(&found.place, "must not be the id of a request: it differs from turn to turn");
        }
        names.push(found.value);
    }
    names
}

/// How a fleet that can change is sized; `usual` has its rule, task and target.
fn sizing(table: &mut Table<'_, '_>, usual: Sizing, headroom: Duration) -> Sizing {
    let mode = table.or("mode", usual.mode, value::choice(&MODES));
    let min = table.read("min", value::integer(0..=MAX_REPLICAS));
    let max = table.read("max", value::integer(0..=MAX_REPLICAS));
    let window = table.read("window", value::duration(SECOND..=DAY)).map(|found| found.value);
    let parked = table.or("parked", usual.parked, value::integer(0..=MAX_REPLICAS));
    let threshold = table.read("queue_threshold", value::duration(Duration::ZERO..=DAY));
    let (min, max) = bounds(table.faults(), mode, min, max);
    if let Some(found) = threshold.as_ref().filter(|found| found.value > headroom) {
        let headroom = humantime::format_duration(headroom);
        let rule =
            format!("must not be more than queue.headroom, which is {headroom}: refusals would begin first");
        table.faults().add(&found.place, rule);
    }
    Sizing {
        mode,
        min,
        max,
        parked,
        window: window.unwrap_or(mode.window()),
        cool: window.unwrap_or(COOL),
        queue_threshold: threshold.map_or(headroom / 2, |found| found.value),
        autoscale: table.or("autoscale", usual.autoscale, value::boolean),
        drain_limit: table.or("drain_limit", usual.drain_limit, value::duration(Duration::ZERO..=DAY)),
        price_cap: table.read("price_cap", value::dollars).map(|found| Price(found.value)),
        memory: table.read("gpu_memory", value::size(1..=1024 * TEBI)).map(|found| found.value),
        ..usual
    }
}

/// Whether anything that is offered has the memory that the model needs (M1): only offers of Slurm tell theirs.
fn fits(table: &mut Table<'_, '_>, sizing: &Sizing, source: Option<&Source>) {
    let (Some(need), Some(place)) = (sizing.memory, table.written("gpu_memory")) else { return };
    let rule = match source {
        Some(Source::Slurm(spec)) => match spec.offers.iter().filter_map(|offer| offer.memory).max() {
            Some(most) if most >= need => return,
            Some(most) => format!(
                "must not be more than the memory of every offer of slurm, which is {} at most: nothing could start",
                value::show_size(most)
            ),
            None => {
                "must not be given while no offer of slurm tells its memory: nothing could start".to_owned()
            }
        },
        Some(_) => "must not be given here: only offers of slurm tell their memory".to_owned(),
        None => return,
    };
    table.faults().add(&place, rule);
}

/// The base fee; and whether the prices that are known now leave anything to start (M1, M3).
fn money(table: &mut Table<'_, '_>, sizing: &Sizing, source: Option<&Source>) -> Price {
    let fee = table.read("base_fee", value::dollars);
    if let Some(fee) = fee.as_ref().filter(|fee| fee.value > 0 && sizing.mode == Mode::Flex) {
        table
            .faults()
            .add(&fee.place, "must not be given in flex mode: it is for the warm replicas of active mode");
    }
    let price = match source {
        Some(Source::Process(process)) => Some(("process.price", process.price)),
        Some(Source::Docker(spec)) => Some(("docker.price", spec.price)),
        Some(Source::Exec(spec)) => Some(("exec.price", spec.price)),
        Some(Source::Slurm(spec)) => spec
            .offers
            .iter()
            .map(|offer| offer.price)
            .min()
            .map(|price| ("the cheapest price in slurm", price)),
        Some(Source::Static(_)) | None => None,
    };
    if let (Some(cap), Some((what, price))) = (sizing.price_cap, price)
        && price > cap
        && !table.faults().is_running()
        && let Some(place) = table.written("price_cap")
    {
        let rule = format!("must not be less than {what}, which is {price}: nothing could start");
        table.faults().add(&place, rule);
    }
    fee.map_or(Price::FREE, |fee| Price(fee.value))
}

/// The floor and the ceiling of a fleet (A5, A6, C1).
fn bounds(faults: &Faults<'_>, mode: Mode, min: Option<Found<u32>>, max: Option<Found<u32>>) -> (u32, u32) {
    let low = min.as_ref().map_or(mode.min(), |found| found.value);
    let high = max.as_ref().map_or(USUAL_MAX, |found| found.value);
    match (&min, &max) {
        (Some(min), _) if mode == Mode::Active && low == 0 => {
            faults.add(&min.place, "must be at least 1 in active mode; flex mode goes to zero");
        }
        (Some(min), Some(_)) if low > high => {
            faults.add(&min.place, format!("must not be more than max, which is {high}"));
        }
        (Some(min), None) if low > high => {
            faults.add(&min.place, format!("must not be more than max, which is {high} unless given"));
        }
        (None, Some(max)) if low > high => {
            faults.add(&max.place, format!("must not be less than min, which is {low} in active mode"));
        }
        _ => {}
    }
    (low, high)
}

/// The size of a static fleet: what it is.
fn fixed(table: &mut Table<'_, '_>, replicas: usize, target: u32) -> Sizing {
    for key in SIZING_KEYS {
        if let Some(place) = table.written(key) {
            table.faults().add(&place, "must not be given with replicas: their number is fixed");
        }
    }
    let count = u32::try_from(replicas).unwrap_or(MAX_REPLICAS);
    let usual = Sizing { mode: Mode::Active, window: Mode::Active.window(), ..Sizing::default() };
    Sizing { min: count, max: count, target_concurrency: target, autoscale: false, ..usual }
}

/// Where the replicas of deployment `name` come from, `given` being the kinds that are there; `None` only where a fault
/// has been recorded.
fn source(table: &mut Table<'_, '_>, given: &[&str], base: &Path, name: &str) -> Option<Source> {
    let sources = [
        table.table("process").and_then(|inner| process(inner, base)).map(Source::Process),
        table.table("docker").and_then(|inner| docker::read(inner, base, name)).map(Source::Docker),
        table.table("exec").and_then(|inner| exec::read(inner, base, name)).map(Source::Exec),
        table.table("slurm").and_then(|inner| slurm::read(inner, base, name)).map(Source::Slurm),
        replicas(table).map(Source::Static),
    ];
    match given {
        [_] => sources.into_iter().flatten().next(),
        [] => {
            let rule = "must have a process (a command to start), docker (an image), exec (commands of your own), \
                        slurm (jobs of a cluster) or replica (its URL)";
            table.faults().add(table.place(), rule);
            None
        }
        [..] => {
            let (last, others) = KINDS.split_last().unwrap_or((&"", &[]));
            let rule =
                format!("must have one of {} and {last}, not {}", others.join(", "), given.join(" and "));
            table.faults().add(table.place(), rule);
            None
        }
    }
}

fn process(mut table: Table<'_, '_>, base: &Path) -> Option<Process> {
    let command = table.required_command("command", &["port"]);
    let env = environment(&mut table);
    let dir = table.read("dir", value::path).map(|found| base.join(found.value));
    let capacity = capacity(&mut table);
    let (price, start_limit) = (price(&mut table), start_limit(&mut table));
    let faults = table.faults();
    table.finish();
    let command = command?;
    let place = command.place.without_value();
    let command: Vec<String> = command.value.into_iter().map(|found| found.value).collect();
    if !command.iter().chain(env.values()).any(|text| text.contains("{port}")) {
        let rule = "must hold {port}, here or in env: Tidegate chooses the port that the engine listens on";
        faults.add(&place, rule);
    }
    let dir = dir.unwrap_or_else(|| base.to_owned());
    Some(Process { command, env, dir, capacity, price, start_limit })
}

/// Variables of the environment.
pub(super) fn environment(table: &mut Table<'_, '_>) -> BTreeMap<String, String> {
    table.section("env").into_secrets(variable, value::any_text).into_iter().collect()
}

/// What a replica costs (M1).
pub(super) fn price(table: &mut Table<'_, '_>) -> Price {
    Price(table.or("price", 0, value::dollars))
}

/// How long a start may take until the model is loaded.
pub(super) fn start_limit(table: &mut Table<'_, '_>) -> Duration {
    table.or("start_limit", control::START_LIMIT, value::duration(SECOND..=DAY))
}

/// Whether `name` can be a variable of the environment.
fn variable(name: &str) -> Result<(), &'static str> {
    let good = !name.is_empty() && !name.contains(['=', '\0']);
    good.then_some(()).ok_or("must have a name that is not empty and holds no =")
}

/// The replicas of a static fleet; `None` where there are none or too many.
fn replicas(table: &mut Table<'_, '_>) -> Option<Vec<StaticReplica>> {
    let place = table.place().missing("replica");
    let faults = table.faults();
    let tables = table.tables("replica")?;
    let count = u32::try_from(tables.len()).unwrap_or(u32::MAX);
    if !(1..=MAX_REPLICAS).contains(&count) {
        faults.add(&place, format!("must be 1 to {MAX_REPLICAS} replicas, not {count}"));
    }
    let mut urls = Vec::new();
    let mut replicas = Vec::new();
    for mut inner in tables.into_iter().flatten() {
        let url = inner.required("url", value::url);
        let capacity = capacity(&mut inner);
        inner.finish();
        let Some(Found { value: url, place }) = url else { continue };
        if urls.contains(&url) {
            faults.add(&place, "must not be given twice in one deployment");
        }
        urls.push(url.clone());
        replicas.push(StaticReplica { url, capacity });
    }
    Some(replicas)
}

/// The size of a replica beside others.
pub(super) fn capacity(table: &mut Table<'_, '_>) -> Capacity {
    Capacity::new(table.or("capacity", Capacity::ONE.units(), value::integer(1..=MOST_UNITS)))
}
