//! A deployment with other sizes than its file gives: what an operator sets while the gateway runs is checked by the very
//! reader of the file, as if it stood there. Changes no file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_shared::id::DeploymentName;
use tidegate_shared::problem::Problem;
use toml::de::{DeTable, DeValue};

use super::{Config, Deployment, base_of, reader, server};
use crate::upstream::tls::Tls;

/// The settings that can be changed while the gateway runs (A1, A5, A6, C1, M1).
pub const RESIZABLE: [&str; 6] = ["min", "max", "mode", "target_concurrency", "autoscale", "price_cap"];

/// Where they stand while they are read. No file has this table: it would be an unknown key.
const ASIDE: &str = "set-while-running";

/// A file as it was read. Two that say the same in other words are equal, and none is shown: it may hold secrets.
#[derive(Clone, Default, Eq)]
pub(super) struct Written {
    text: Arc<str>,
    path: PathBuf,
}

impl Written {
    pub(super) fn new(text: &str, path: &Path) -> Self {
        Self { text: text.into(), path: path.to_owned() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl PartialEq for Written {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

impl Config {
    /// Deployment `name` with `set` in place of what the file gives: keys of [`RESIZABLE`], values as TOML writes them. What
    /// hangs on them follows, such as the window on the mode and the concurrency limit on the target.
    ///
    /// # Errors
    /// Every fault, as the check of a file would tell it; its path is the key alone.
    pub fn resized(
        &self,
        name: &DeploymentName,
        set: &BTreeMap<&'static str, String>,
    ) -> Result<Deployment, Vec<Problem>> {
        let lines: String = set.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let text = format!("{}\n[{ASIDE}]\n{lines}", self.written.text);
        let fault =
            |rule: String| vec![Problem { path: name.to_string(), value: String::new(), rule, line: 0 }];
        let faults = reader::Faults::while_running(&text);
        let root = DeTable::parse(&text).map_err(|error| fault(format!("not TOML: {}", error.message())))?;
        let mut root = root.into_inner();
        // What clients are shown is no deployment's, and its files may be in the middle of a change.
        root.remove(server::TLS);
        let aside = root.remove(ASIDE).map(|found| found.into_inner());
        let Some(DeValue::Table(aside)) = aside else { return Err(fault("cannot be read".to_owned())) };
        if let Some(table) = table_of(&mut root, name) {
            table.extend(aside);
        }
        let config = server::read(reader::Table::root(&faults, &root), &base_of(&self.written.path));
        let mut problems = faults.into_problems();
        for problem in &mut problems {
            problem.path = problem.path.rsplit('.').next().unwrap_or_default().to_owned();
        }
        let mut found = config.into_iter().flat_map(|config| config.deployments);
        match found.find(|deployment| deployment.name == *name) {
            // What was loaded of its files stays in use: on the disk, they may be in the middle of a change.
            Some(deployment) if problems.is_empty() => {
                Ok(Deployment { tls: self.tls_of(name), ..deployment })
            }
            _ if problems.is_empty() => Err(fault("is not configured".to_owned())),
            _ => Err(problems),
        }
    }

    /// How the replicas of deployment `name` are connected to, as it was loaded.
    fn tls_of(&self, name: &DeploymentName) -> Option<Tls> {
        self.deployments.iter().find(|known| known.name == *name)?.tls.clone()
    }

    /// Which of [`RESIZABLE`] the file gives for deployment `name`; the others have their defaults.
    pub fn given(&self, name: &DeploymentName) -> BTreeSet<&'static str> {
        let root = DeTable::parse(&self.written.text).map(|root| root.into_inner());
        let mut root = root.unwrap_or_default();
        let table = table_of(&mut root, name);
        RESIZABLE
            .into_iter()
            .filter(|key| table.as_ref().is_some_and(|table| table.contains_key(*key)))
            .collect()
    }
}

/// The table of deployment `name`.
fn table_of<'a, 'i>(root: &'a mut DeTable<'i>, name: &DeploymentName) -> Option<&'a mut DeTable<'i>> {
    let DeValue::Array(list) = root.get_mut("deployment")?.get_mut() else { return None };
    list.iter_mut().find_map(|found| match found.get_mut() {
        DeValue::Table(table) => {
            let own = table.get("name").and_then(|name| name.get_ref().as_str()) == Some(name.as_str());
            own.then_some(table)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_scaler_core::config::Mode;
    use tidegate_shared::time::Duration;

    use super::*;

    const FILE: &str = "state_dir = \"s\"\n[[deployment]]\nname = \"a\"\nmin = 1\n\
        process.command = [\"engine\", \"{port}\"]\n[[deployment]]\nname = \"b\"\nmode = \"active\"\nbase_fee = 1.5\n\
        docker = { image = \"i\", command = [\"{port}\"], gpus = [\"0\", \"1\", \"2\", \"3\"] }\n";

    fn resized(name: &str, set: &[(&'static str, &str)]) -> Result<Deployment, Vec<String>> {
        let config = Config::parse(FILE, Path::new("t.toml")).expect("a good file");
        let set = set.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        config.resized(&DeploymentName::new(name), &set).map_err(|problems| {
            problems
                .iter()
                .map(|problem| format!("{} {} {}", problem.path, problem.value, problem.rule))
                .collect()
        })
    }

    #[test]
    fn what_is_set_wins_and_what_hangs_on_it_follows() {
        let same = resized("a", &[]).expect("nothing is set");
        assert_eq!((same.sizing.min, same.sizing.max, same.limits.concurrency), (1, 4, 40));
        let other = resized("a", &[("target_concurrency", "8"), ("mode", "\"active\""), ("max", "9")]);
        let other = other.expect("good");
        assert_eq!((other.sizing.min, other.sizing.max, other.limits.concurrency), (1, 9, 10));
        assert_eq!((other.sizing.mode, other.sizing.window), (Mode::Active, Duration::from_secs(120)));
        let config = Config::parse(FILE, Path::new("t.toml")).expect("a good file");
        assert_eq!(config.given(&DeploymentName::new("a")), BTreeSet::from(["min"]));
        assert_eq!(config.given(&DeploymentName::new("b")), BTreeSet::from(["mode"]));
    }

    #[test]
    fn h6_files_that_broke_meanwhile_are_no_fault_of_a_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = folder.path().join("ca.pem");
        let issuer = rcgen::CertificateParams::new(Vec::new()).expect("a name");
        let issuer = issuer.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate");
        std::fs::write(&ca, issuer.pem()).expect("write");
        let secured = |name: &str| {
            format!(
                "[[deployment]]\nname = \"{name}\"\nreplica = [{{ url = \"https://h:1\" }}]\ntls.ca = \"{}\"\n",
                ca.display()
            )
        };
        let file = format!("{FILE}{}{}", secured("c"), secured("d"));
        let config = Config::parse(&file, Path::new("t.toml")).expect("a good file");
        for broken in ["no certificate", ""] {
            std::fs::write(&ca, broken).expect("write");
            let faults =
                Config::parse(&file, Path::new("t.toml")).expect_err("the files are broken").to_string();
            assert!(faults.contains("ca.pem"), "{faults}");
            let set = BTreeMap::from([("max", "3".to_owned())]);
            let other = config.resized(&DeploymentName::new("a"), &set).expect("it has no such files");
            assert_eq!(other.sizing.max, 3);
            let own =
                config.resized(&DeploymentName::new("c"), &BTreeMap::new()).expect("its files are loaded");
            assert!(own.tls.is_some() && own.tls == config.tls_of(&own.name), "what was loaded is in use");
        }
    }

    #[test]
    fn m1_a_cap_that_lets_nothing_start_is_no_fault_while_it_runs_and_one_in_a_file() {
        let file = FILE.replace("min = 1\n", "min = 1\nprice_cap = 0.5\nprocess.price = 2\n");
        let faults = Config::parse(&file, Path::new("t.toml")).expect_err("nothing could start");
        assert!(faults.to_string().contains("must not be less than process.price"), "{faults}");
        let file = file.replace("0.5", "2.5");
        let config = Config::parse(&file, Path::new("t.toml")).expect("a good file");
        let set = |cap: &str| {
            config.resized(&DeploymentName::new("a"), &BTreeMap::from([("price_cap", cap.to_owned())]))
        };
        let capped = set("0.5").expect("an operator may stop growth").sizing.price_cap;
        assert_eq!(capped.map(|cap| cap.0), Some(500_000));
        assert_eq!(set("-1").expect_err("no price").len(), 1);
    }

    #[test]
    fn all_faults_are_told_in_the_words_of_the_file() {
        let faults =
            resized("a", &[("min", "33"), ("mode", "\"warm\""), ("autoscale", "1")]).expect_err("bad");
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults.contains(&"min 33 must be a whole number from 0 to 32".to_owned()), "{faults:?}");
        let faults = resized("a", &[("min", "9")]).expect_err("bad");
        assert_eq!(faults, ["min 9 must not be more than max, which is 4 unless given"]);
        let faults = resized("b", &[("max", "5")]).expect_err("too few GPUs");
        assert_eq!(faults, ["max  must not be more than 4: docker.gpus do for so many replicas"]);
        let faults = resized("b", &[("mode", "\"flex\"")]).expect_err("a fee");
        assert!(faults[0].starts_with("base_fee 1.5 must not be given in flex mode"), "{faults:?}");
    }
}
