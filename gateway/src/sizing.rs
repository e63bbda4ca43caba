//! The size of one deployment while it runs: what an operator sets, or what was tuned, wins over the configuration, which
//! wins over the default; it is kept in the store and comes back with the next start. Checks by the configuration's own
//! rules, and hands the outcome to the control loop and to the dispatcher. Measures nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_scaler::control::Helm;
use tidegate_scaler::store::{Store, Tuned};
use tidegate_scaler_core::config::{Mode, Sizing};
use tidegate_shared::id::DeploymentName;
use tidegate_shared::problem::Problem;
use tidegate_shared::time::{Duration, Instant};

use crate::admin::dollars;
use crate::config::{Config, Deployment, RESIZABLE};
use crate::pool::Pool;
use crate::provide::Records;

/// The setting that can be tuned.
pub(crate) const TARGET: &str = "target_concurrency";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An operator set it, so long ago.
    Set(Duration),
    /// It was found by tuning, so long ago, on this kind of replica.
    Tuned(Duration, String),
    /// The file gives it.
    Configuration,
    /// Nobody gave it.
    Default,
}

/// One setting at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, one of [`RESIZABLE`].
    pub key: &'static str,
    /// What is in force; null for no price cap.
    pub value: Value,
    /// What it is where nobody sets or tunes it: by the file, or by default.
    pub of_file: Value,
    /// Where `value` comes from.
    pub origin: Origin,
}

/// One value that was set.
#[derive(Clone, Debug, PartialEq)]
struct Chosen {
    value: Value,
    /// How long before the start of this run it was set; zero for one of this run.
    before: Duration,
    at: Instant,
}

/// What tuning found, and whether it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunedView {
    /// What.
    pub tuned: Tuned,
    /// How long ago.
    pub age: Duration,
    /// It is the target in force: nobody has set another one since, and it was measured with the model that is served.
    pub in_force: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    tuned: Tuned,
    before: Duration,
    at: Instant,
}

impl Found {
    fn age(&self, now: Instant) -> Duration {
        self.before.saturating_add(now.since(self.at))
    }
}

/// See the module.
#[derive(Debug)]
pub struct Resizer {
    name: DeploymentName,
    config: Arc<Config>,
    given: BTreeSet<&'static str>,
    /// By the file alone.
    file: Sizing,
    store: Option<Store>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    set: BTreeMap<&'static str, Chosen>,
    tuned: Option<Found>,
    now: Deployment,
    /// What was set before and does not fit the configuration any more.
    misfit: Option<String>,
    /// Who is told; there once the deployment runs.
    told: Option<(Helm, Arc<Pool>)>,
}

impl Resizer {
    /// The size of `settings`, with what the `records` kept. What does not fit the file any more is left out, and told.
    pub(crate) fn new(config: &Arc<Config>, settings: &Deployment, records: &Records) -> Self {
        let name = settings.name.clone();
        let (store, epoch, sized) = (records.store.clone(), &records.epoch, settings.source.can_start());
        let mut set = BTreeMap::new();
        for kept in records.settings.iter().filter(|kept| kept.deployment == name && sized) {
            let known = RESIZABLE.into_iter().find(|key| *key == kept.key);
            let read = known
                .ok_or_else(|| format!("there is no such setting; there are {}", RESIZABLE.join(", ")))
                .and_then(|key| match serde_json::from_str(&kept.value) {
                    Ok(value) => Ok((key, value)),
                    Err(error) => Err(error.to_string()),
                });
            match read {
                Ok((key, value)) => {
                    let before = epoch.since(&kept.at, Instant::ZERO);
                    set.insert(key, Chosen { value, before, at: Instant::ZERO });
                }
                Err(why) => {
                    store.iter().for_each(|store| store.unreadable("setting", &name, &kept.key, why.clone()));
                }
            }
        }
        let tuned = records.tuned.iter().find(|kept| kept.deployment == name && sized).map(|kept| Found {
            tuned: kept.tuned.clone(),
            before: epoch.since(&kept.at, Instant::ZERO),
            at: Instant::ZERO,
        });
        let (now, misfit) = match config.resized(&name, &written(&set, tuned.as_ref(), &settings.model)) {
            Ok(now) => (now, None),
            Err(problems) => {
                let why = format!(
                    "what was set while it ran does not fit the configuration, which holds instead: {}",
                    sentence(&problems)
                );
                tracing::warn!("{name}: {why}");
                (settings.clone(), Some(why))
            }
        };
        let state = Mutex::new(State { set, tuned, now, misfit, told: None });
        let (given, file) = (config.given(&name), settings.sizing.clone());
        let this = Self { given, file, config: Arc::clone(config), name, store, state };
        if let Some(taken) = this.taken_up(Instant::ZERO) {
            tracing::info!("{}: {taken}", this.name);
        }
        this
    }

    /// What of an earlier run is in force, as a sentence; `None` where that is nothing.
    fn taken_up(&self, now: Instant) -> Option<String> {
        let told = self.origins(now).into_iter().filter_map(|Setting { key, value, of_file, origin }| {
            let how = match origin {
                Origin::Set(_) => "set by hand",
                Origin::Tuned(..) => "tuned",
                Origin::Configuration | Origin::Default => return None,
            };
            let file = match of_file {
                Value::Null => "none".to_owned(),
                value => value.to_string(),
            };
            let whose = if self.gives(key) { "the configuration" } else { "default" };
            Some(format!("{key} is {value}, {how} ({file} by {whose})"))
        });
        let told: Vec<_> = told.collect();
        (!told.is_empty()).then(|| {
            format!(
                "taken up from an earlier run: {}; `tidegate scale` shows it and takes it back",
                told.join("; ")
            )
        })
    }

    /// Whether the file gives `key`; else it has a default.
    pub fn gives(&self, key: &str) -> bool {
        self.given.contains(key)
    }

    /// The settings in force.
    pub fn settings(&self) -> Deployment {
        self.state.lock().now.clone()
    }

    /// The sizing in force.
    pub fn sizing(&self) -> Sizing {
        self.state.lock().now.sizing.clone()
    }

    /// From now on, changes go there.
    pub fn connect(&self, helm: Helm, pool: Arc<Pool>) {
        self.state.lock().told = Some((helm, pool));
    }

    /// Why what was set before is not in force, where that is so.
    pub fn misfit(&self) -> Option<String> {
        self.state.lock().misfit.clone()
    }

    /// Whether [`Resizer::set`] would do it.
    ///
    /// # Errors
    /// As there.
    pub fn check(
        &self,
        changes: &BTreeMap<&'static str, Option<Value>>,
        now: Instant,
    ) -> Result<(), Vec<Problem>> {
        let state = self.state.lock();
        let (set, tuned) = merged(&state, changes, now);
        self.config.resized(&self.name, &written(&set, tuned.as_ref(), &state.now.model)).map(drop)
    }

    /// Sets `changes` at `now`, all or none; `None` leaves it to the configuration again, a target that was tuned
    /// included. The store has it soon after.
    ///
    /// # Errors
    /// Every fault, as the check of a configuration would tell it.
    pub fn set(
        &self,
        changes: BTreeMap<&'static str, Option<Value>>,
        now: Instant,
    ) -> Result<(), Vec<Problem>> {
        let mut state = self.state.lock();
        let (set, tuned) = merged(&state, &changes, now);
        let settings = self.config.resized(&self.name, &written(&set, tuned.as_ref(), &state.now.model))?;
        if let Some(store) = &self.store {
            if tuned.is_none() && state.tuned.is_some() {
                store.tuned(&self.name, None, now);
            }
            for (key, value) in changes {
                store.set(&self.name, key, value.map(|value| value.to_string()), now);
            }
        }
        state.tuned = tuned;
        state.enter(set, settings);
        Ok(())
    }

    /// What tuning found becomes the target at `now`, in place of one that was set by hand. The store has it soon after.
    ///
    /// # Errors
    /// A target that is none, or another model than the one that is served.
    pub fn tune(&self, tuned: Tuned, now: Instant) -> Result<(), Vec<Problem>> {
        let mut state = self.state.lock();
        let model = &state.now.model;
        if tuned.model != *model {
            let (path, value) = ("model".to_owned(), tuned.model);
            let rule = format!("must be the model that is served, which is {model}");
            return Err(vec![Problem { path, value, rule, line: 0 }]);
        }
        let mut set = state.set.clone();
        let by_hand = set.remove(TARGET).is_some();
        let found = Found { tuned, before: Duration::ZERO, at: now };
        let settings = self.config.resized(&self.name, &written(&set, Some(&found), model))?;
        if let Some(store) = &self.store {
            if by_hand {
                store.set(&self.name, TARGET, None, now);
            }
            store.tuned(&self.name, Some(found.tuned.clone()), now);
        }
        state.tuned = Some(found);
        state.enter(set, settings);
        Ok(())
    }

    /// What tuning found last, as of `now`.
    pub fn tuned(&self, now: Instant) -> Option<TunedView> {
        let state = self.state.lock();
        let found = state.tuned.as_ref()?;
        let in_force = state.misfit.is_none() && !state.set.contains_key(TARGET) && state.is_of(found);
        Some(TunedView { tuned: found.tuned.clone(), age: found.age(now), in_force })
    }

    /// Each setting as it is in force at `now`, and where it comes from.
    pub fn origins(&self, now: Instant) -> Vec<Setting> {
        let state = self.state.lock();
        let fits = state.misfit.is_none();
        let tuned = state.tuned.as_ref().filter(|found| fits && state.is_of(found));
        let origin = |key| match (state.set.get(key).filter(|_| fits), tuned) {
            (Some(chosen), _) => Origin::Set(chosen.before.saturating_add(now.since(chosen.at))),
            (None, Some(found)) if key == TARGET => Origin::Tuned(found.age(now), found.tuned.kind.clone()),
            _ if self.given.contains(key) => Origin::Configuration,
            _ => Origin::Default,
        };
        let both = values(&state.now.sizing).into_iter().zip(values(&self.file));
        let setting = |((key, value), (_, of_file))| Setting { key, value, of_file, origin: origin(key) };
        both.map(setting).collect()
    }
}

impl State {
    /// Puts this in force, and tells it.
    fn enter(&mut self, set: BTreeMap<&'static str, Chosen>, settings: Deployment) {
        if let Some((helm, pool)) = &self.told {
            helm.resize(settings.sizing.clone(), settings.base_fee);
            pool.resize(settings.limits.concurrency, startable(&settings));
        }
        (self.set, self.now, self.misfit) = (set, settings, None);
    }

    /// Whether that was found with the model that is served.
    fn is_of(&self, found: &Found) -> bool {
        found.tuned.model == self.now.model
    }
}

/// The value of each of [`RESIZABLE`] in `sizing`, as JSON, in its order.
fn values(sizing: &Sizing) -> [(&'static str, Value); RESIZABLE.len()] {
    let Sizing { min, max, autoscale, .. } = *sizing;
    let mode = if sizing.mode == Mode::Flex { "flex" } else { "active" };
    let price_cap = sizing.price_cap.map_or(Value::Null, |cap| dollars::number(cap.0));
    [
        ("min", min.into()),
        ("max", max.into()),
        ("mode", mode.into()),
        (TARGET, sizing.target_concurrency.into()),
        ("autoscale", autoscale.into()),
        ("price_cap", price_cap),
    ]
}

/// Whether requests may wait for a replica to be started.
pub fn startable(settings: &Deployment) -> bool {
    let sizing = &settings.sizing;
    let grows = sizing.floor() > 0 || (sizing.autoscale && sizing.ceiling() > 0);
    settings.source.can_start() && grows
}

/// What is set, and what of tuning is left, once `changes` are made.
fn merged(
    state: &State,
    changes: &BTreeMap<&'static str, Option<Value>>,
    now: Instant,
) -> (BTreeMap<&'static str, Chosen>, Option<Found>) {
    let mut set = state.set.clone();
    for (key, value) in changes {
        match value {
            Some(value) => {
                set.insert(*key, Chosen { value: value.clone(), before: Duration::ZERO, at: now });
            }
            None => drop(set.remove(key)),
        }
    }
    let forgotten = changes.get(TARGET) == Some(&None);
    (set, state.tuned.clone().filter(|_| !forgotten))
}

/// Values as TOML writes them, the tuned target among them unless another one is set or `model` is another one than was
/// measured. What TOML has no word for is quoted as text, which no setting takes.
fn written(
    set: &BTreeMap<&'static str, Chosen>,
    tuned: Option<&Found>,
    model: &str,
) -> BTreeMap<&'static str, String> {
    let toml = |value: &Value| match value {
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        other => toml::Value::String(other.to_string()).to_string(),
    };
    let tuned = tuned.filter(|found| found.tuned.model == model);
    let tuned = tuned.map(|found| (TARGET, found.tuned.target.to_string()));
    tuned.into_iter().chain(set.iter().map(|(key, chosen)| (*key, toml(&chosen.value)))).collect()
}

/// All faults in one line.
pub fn sentence(problems: &[Problem]) -> String {
    let told = problems.iter().map(|Problem { path, value, rule, .. }| match value.is_empty() {
        true => format!("{path} {rule}"),
        false => format!("{path} is {value}, but {rule}"),
    });
    told.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
