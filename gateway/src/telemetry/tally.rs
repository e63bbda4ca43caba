//! Counters of single replicas: replicas come and go for as long as the gateway runs, so the counts of those that are gone
//! go too, oldest first (C-104).
//!
//! Decides which counts are kept. Apart from the other metrics, which are never forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_shared::id::DeploymentName;
use tidegate_shared::names::metric;

/// Counts of a deployment that are kept; of more replicas, those of replicas that are there. Twice as many as a deployment may
/// have, so that what one counted that died is seen by the next scrapes.
const KEPT: usize = 64;

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// Tallies of one metric and deployment, by the names of replicas, oldest first.
type OfReplicas = VecDeque<(String, Arc<Tally>)>;

/// See the module.
#[derive(Debug)]
pub(super) struct Tallies(Mutex<BTreeMap<(&'static str, String), OfReplicas>>);

/// Those of the process.
pub(super) static TALLIES: Tallies = Tallies::new();

impl Tallies {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The count of a replica, which is kept at least for as long as somebody holds it.
    pub(super) fn of(&self, metric: &'static str, deployment: &DeploymentName, replica: &str) -> Arc<Tally> {
        let mut all = self.0.lock();
        let replicas = all.entry((metric, deployment.to_string())).or_default();
        if let Some((_, tally)) = replicas.iter().find(|(name, _)| name == replica) {
            return Arc::clone(tally);
        }
        let is_gone = |(_, tally): &(String, Arc<Tally>)| Arc::strong_count(tally) == 1;
        while replicas.len() >= KEPT
            && let Some(oldest) = replicas.iter().position(is_gone)
        {
            replicas.remove(oldest);
        }
        let tally = Arc::new(Tally::default());
        replicas.push_back((replica.to_owned(), Arc::clone(&tally)));
        tally
    }

    /// Appends them to a page in Prometheus' text format. Names of deployments and replicas need no escaping.
    pub(super) fn render(&self, page: &mut String) {
        let mut before = "";
        for ((name, deployment), replicas) in &*self.0.lock() {
            if *name != before {
                let help =
                    metric::ALL.iter().find(|metric| metric.name == *name).map_or("", |found| found.help);
                // A string takes whatever is written.
                let _ = write!(page, "\n# HELP {name} {help}\n# TYPE {name} counter\n");
                before = name;
            }
            for (replica, tally) in replicas {
                let count = tally.0.load(Ordering::Relaxed);
                let _ = writeln!(page, "{name}{{deployment=\"{deployment}\",replica=\"{replica}\"}} {count}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(tallies: &Tallies) -> String {
        let mut page = String::new();
        tallies.render(&mut page);
        page
    }

    #[test]
    fn c_104_counts_of_replicas_that_are_gone_are_bounded_and_those_of_others_stay() {
        let tallies = Tallies::new();
        let chat = DeploymentName::new("chat");
        let of = |name: &str| tallies.of(metric::UPSTREAM_ERRORS, &chat, name);
        let first = of("chat-1");
        first.add(7);
        of("chat-2").add(1);
        assert!(page(&tallies).contains("replica=\"chat-2\"} 1\n"), "gone, and still told");
        (3..10_000).for_each(|number| of(&format!("chat-{number}")).add(2));
        let text = page(&tallies);
        let told = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
        assert_eq!(told, KEPT);
        assert!(!text.contains("\"chat-2\"") && text.contains("replica=\"chat-9999\"} 2\n"), "{text}");
        assert!(text.contains("tidegate_upstream_errors_total{deployment=\"chat\",replica=\"chat-1\"} 7\n"));
        assert!(Arc::ptr_eq(&first, &of("chat-1")), "one count each");
    }

    #[test]
    fn c_104_replicas_that_are_there_are_counted_however_many_they_are() {
        let tallies = Tallies::new();
        let chat = DeploymentName::new("chat");
        let held: Vec<_> = (0..2 * KEPT)
            .map(|number| tallies.of(metric::SIGNAL_ERRORS, &chat, &format!("chat-{number}")))
            .collect();
        assert_eq!(page(&tallies).matches("replica=").count(), held.len());
        assert_eq!(page(&tallies).matches("# TYPE").count(), 1);
    }
}
