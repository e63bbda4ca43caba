//! What is written, held in memory too: what an open file that somebody overwrites in place is compared with, and made anew
//! from, since nothing of it can be read any more then. Of past decisions it holds the last ones only.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::schema;

/// Decisions held of each deployment: as many as a control loop shows.
pub(super) const LAST: u32 = 256;
/// What is held whole.
const WHOLE: [&str; 6] = ["run", "setting", "account", "credit", "tuned", "drained"];

/// See the module.
#[derive(Debug)]
pub(super) struct Mirror(Connection);

impl Mirror {
    /// Of the database at `path`, as it is.
    pub(super) fn of(path: &Path) -> rusqlite::Result<Self> {
        // No file is made where none is.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut memory = Connection::open_in_memory_with_flags(flags)?;
        schema::migrate(&mut memory, 0)?;
        let mirror = Self(memory);
        mirror.with(path, |memory| {
            for table in WHOLE {
                memory.execute_batch(&format!("INSERT INTO main.{table} SELECT * FROM disk.{table}"))?;
            }
            memory.execute(
                "INSERT INTO main.decision SELECT id, deployment, body, run, at FROM (SELECT *, row_number() OVER \
                 (PARTITION BY deployment ORDER BY id DESC) AS age FROM disk.decision) WHERE age <= ?",
                [LAST],
            )?;
            Ok(())
        })?;
        Ok(mirror)
    }

    /// To write the same into it as was written to the disk.
    pub(super) fn db(&mut self) -> &mut Connection {
        &mut self.0
    }

    /// Writes all of it into a new file.
    pub(super) fn write(&self, into: &str) -> rusqlite::Result<()> {
        self.0.execute("VACUUM INTO ?", [into]).map(drop)
    }

    /// Whether all that was written is in the file at `path`, read anew, and the file is whole.
    pub(super) fn is_like(&self, path: &Path) -> rusqlite::Result<bool> {
        self.with(path, |memory| {
            let verdict: String = memory.query_row("PRAGMA disk.quick_check", [], |row| row.get(0))?;
            let all = "deployment, body, run, at FROM";
            let decisions = format!("SELECT {all} main.decision EXCEPT SELECT {all} disk.decision");
            let tables =
                WHOLE.map(|table| format!("SELECT * FROM main.{table} EXCEPT SELECT * FROM disk.{table}"));
            let mut lack = false;
            for query in tables.iter().chain([&decisions]) {
                lack |= memory.prepare(query)?.exists([])?;
            }
            Ok(verdict == "ok" && !lack)
        })
    }

    /// Whether run `run` of `boot` is in the file at `path`, read anew.
    pub(super) fn is_ours(&self, path: &Path, run: i64) -> rusqlite::Result<bool> {
        self.with(path, |memory| {
            let same = "SELECT 1 FROM main.run AS own JOIN disk.run AS there USING (id, boot, monotonic, wall) WHERE id = ?";
            memory.prepare(same)?.exists([run])
        })
    }

    fn with<T>(
        &self,
        path: &Path,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.0.execute("ATTACH ? AS disk", [path.to_string_lossy()])?;
        let result = work(&self.0);
        let detached = self.0.execute_batch("DETACH disk");
        let result = result?;
        detached.map(|()| result)
    }
}
