//! Reads the table `exec`: replicas that the operator's own commands start, stop and list.
//!
//! Runs none of them.

use std::path::Path;

use tidegate_scaler::provider::exec::{ExecSpec, LIST_EVERY, TIME_LIMIT};
use tidegate_shared::id::DeploymentName;
use tidegate_shared::time::Duration;

use super::deployment::{SECOND, capacity, environment, price, start_limit};
use super::reader::Table;
use super::value;

const HOUR: Duration = Duration::from_secs(60 * 60);
/// The commands, and what is filled in there.
pub(crate) const COMMANDS: [(&str, &[&str]); 3] = [
    ("start", &["deployment", "owner", "id", "name", "offer"]),
    ("stop", &["deployment", "owner", "id", "name"]),
    ("list", &["deployment", "owner"]),
];
/// Shortest time between two lists.
const SHORTEST: Duration = Duration::from_millis(100);

/// The table `exec` of deployment `name`; `None` only where a fault has been recorded.
pub(super) fn read(mut table: Table<'_, '_>, base: &Path, name: &str) -> Option<Box<ExecSpec>> {
    let [start, stop, list] = COMMANDS.map(|(key, known)| command(&mut table, key, known));
    let env = environment(&mut table);
    let dir = table.read("dir", value::path).map(|found| base.join(found.value));
    let time_limit = table.or("time_limit", TIME_LIMIT, value::duration(SECOND..=HOUR));
    let list_every = table.or("list_every", LIST_EVERY, value::duration(SHORTEST..=HOUR));
    let (capacity, price) = (capacity(&mut table), price(&mut table));
    let start_limit = start_limit(&mut table);
    table.finish();
    Some(Box::new(ExecSpec {
        deployment: DeploymentName::new(name),
        start: start?,
        stop: stop?,
        list: list?,
        env,
        dir: dir.unwrap_or_else(|| base.to_owned()),
        time_limit,
        list_every,
        capacity,
        price,
        start_limit,
    }))
}

fn command(table: &mut Table<'_, '_>, key: &'static str, known: &[&str]) -> Option<Vec<String>> {
    let found = table.required_command(key, known)?;
    Some(found.value.into_iter().map(|word| word.value).collect())
}
