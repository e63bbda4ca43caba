//! The size of one deployment while it runs: what an operator sets wins over the configuration, which wins over the
//! default; it is kept in the store and comes back with the next start. Checks by the configuration's own rules, and
//! hands the outcome to the control loop and to the dispatcher.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_scaler::control::Helm;
use tidegate_scaler::store::{Epoch, KeptSetting, Store};
use tidegate_scaler_core::config::{Mode, Sizing};
use tidegate_shared::id::DeploymentName;
use tidegate_shared::problem::Problem;
use tidegate_shared::time::{Duration, Instant};

use crate::config::{Config, Deployment, RESIZABLE};
use crate::pool::Pool;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An operator set it, so long ago.
    Set(Duration),
    /// The file gives it.
    Configuration,
    /// Nobody gave it.
    Default,
}

/// One value that was set.
#[derive(Clone, Debug, PartialEq)]
struct Chosen {
    value: Value,
    /// How long before the start of this run it was set; zero for one of this run.
    before: Duration,
    at: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Resizer {
    name: DeploymentName,
    config: Arc<Config>,
    given: BTreeSet<&'static str>,
    store: Option<Store>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    set: BTreeMap<&'static str, Chosen>,
    now: Deployment,
    /// What was set before and does not fit the configuration any more.
    misfit: Option<String>,
    /// Who is told; there once the deployment runs.
    told: Option<(Helm, Arc<Pool>)>,
}

impl Resizer {
    /// The size of `settings`, with what was `kept`. What does not fit the file any more is left out, and told.
    pub fn new(
        config: &Arc<Config>,
        settings: &Deployment,
        store: Option<Store>,
        kept: &[KeptSetting],
        epoch: &Epoch,
    ) -> Self {
        let name = settings.name.clone();
        let mut set = BTreeMap::new();
        for kept in kept.iter().filter(|kept| kept.deployment == name && settings.source.can_start()) {
            let key = RESIZABLE.into_iter().find(|key| *key == kept.key);
            if let (Some(key), Ok(value)) = (key, serde_json::from_str(&kept.value)) {
                let before = epoch.since(&kept.at, Instant::ZERO);
                set.insert(key, Chosen { value, before, at: Instant::ZERO });
            }
        }
        let (now, misfit) = match config.resized(&name, &written(&set)) {
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
        let state = State { set, now, misfit, told: None };
        Self { given: config.given(&name), config: Arc::clone(config), name, store, state: Mutex::new(state) }
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
        let set = merged(&self.state.lock().set, changes, now);
        self.config.resized(&self.name, &written(&set)).map(drop)
    }

    /// Sets `changes` at `now`, all or none; `None` unsets. The store has it soon after.
    ///
    /// # Errors
    /// Every fault, as the check of a configuration would tell it.
    pub fn set(
        &self,
        changes: BTreeMap<&'static str, Option<Value>>,
        now: Instant,
    ) -> Result<(), Vec<Problem>> {
        let mut state = self.state.lock();
        let set = merged(&state.set, &changes, now);
        let settings = self.config.resized(&self.name, &written(&set))?;
        for (key, value) in changes {
            if let Some(store) = &self.store {
                store.set(&self.name, key, value.map(|value| value.to_string()), now);
            }
        }
        if let Some((helm, pool)) = &state.told {
            helm.resize(settings.sizing.clone(), settings.base_fee);
            pool.resize(settings.limits.concurrency, startable(&settings));
        }
        (state.set, state.now, state.misfit) = (set, settings, None);
        Ok(())
    }

    /// Each setting as it is in force at `now`, and where it comes from.
    pub fn origins(&self, now: Instant) -> Vec<(&'static str, Value, Origin)> {
        let state = self.state.lock();
        let Sizing { min, max, mode, target_concurrency, autoscale, .. } = state.now.sizing;
        let value = |key| match key {
            "min" => Value::from(min),
            "max" => Value::from(max),
            "mode" => Value::from(if mode == Mode::Flex { "flex" } else { "active" }),
            "target_concurrency" => Value::from(target_concurrency),
            _ => Value::from(autoscale),
        };
        let origin = |key| match state.set.get(key).filter(|_| state.misfit.is_none()) {
            Some(chosen) => Origin::Set(chosen.before.saturating_add(now.since(chosen.at))),
            None if self.given.contains(key) => Origin::Configuration,
            None => Origin::Default,
        };
        RESIZABLE.into_iter().map(|key| (key, value(key), origin(key))).collect()
    }
}

/// Whether requests may wait for a replica to be started.
pub fn startable(settings: &Deployment) -> bool {
    let sizing = &settings.sizing;
    let grows = sizing.floor() > 0 || (sizing.autoscale && sizing.ceiling() > 0);
    settings.source.can_start() && grows
}

/// What is set once `changes` are made.
fn merged(
    set: &BTreeMap<&'static str, Chosen>,
    changes: &BTreeMap<&'static str, Option<Value>>,
    now: Instant,
) -> BTreeMap<&'static str, Chosen> {
    let mut set = set.clone();
    for (key, value) in changes {
        match value {
            Some(value) => {
                set.insert(*key, Chosen { value: value.clone(), before: Duration::ZERO, at: now });
            }
            None => drop(set.remove(key)),
        }
    }
    set
}

/// Values as TOML writes them. What TOML has no word for is quoted as text, which no setting takes.
fn written(set: &BTreeMap<&'static str, Chosen>) -> BTreeMap<&'static str, String> {
    let toml = |value: &Value| match value {
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        other => toml::Value::String(other.to_string()).to_string(),
    };
    set.iter().map(|(key, chosen)| (*key, toml(&chosen.value))).collect()
}

/// All faults in one line.
pub fn sentence(problems: &[Problem]) -> String {
    let told = problems.iter().map(|Problem { path, value, rule, .. }| match value.is_empty() {
        true => format!("{path} {rule}"),
        false => format!("{path} is {value}, but {rule}"),
    });
    told.collect::<Vec<_>>().join("; ")
}
