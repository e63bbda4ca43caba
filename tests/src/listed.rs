//! Scripted replicas in a fleet that is sized: commands of one's own (`exec`) list the stubs that the test puts there.
//!
//! A start takes the next spare stub; a stop takes the replica off the list and touches no stub.

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use crate::config::Deployment;
use crate::stub::Stub;

/// Prints every replica of the folder.
const LIST: &str = r#"set -- "$FOLDER"/*.json; printf '{"version":1,"replicas":['; between=
for one; do [ -e "$one" ] || continue; printf %s "$between"; cat "$one"; between=,; done; printf ']}'"#;
/// Takes the first spare address, and is the replica there.
const START: &str = r#"set -- "$FOLDER"/spare-*; [ -e "$1" ] || { echo 'no spare replica' >&2; exit 1; }
url=$(cat "$1"); rm "$1"; one="{\"id\":$TIDEGATE_ID,\"state\":\"up\",\"url\":\"$url\"}"
printf %s "$one" >"$FOLDER/new"; mv "$FOLDER/new" "$FOLDER/$TIDEGATE_ID.json"
printf '{"version":1,"replica":%s}' "$one""#;
/// Takes it off the list.
const STOP: &str = r#"rm -f "$FOLDER/$TIDEGATE_ID.json""#;

/// What the commands list. Dropped, it is gone.
#[derive(Debug)]
pub struct Listed {
    folder: TempDir,
}

impl Listed {
    /// These stubs are there, as replicas 1 and on.
    pub fn of<'a>(stubs: impl IntoIterator<Item = &'a Stub>) -> Self {
        let listed = Self { folder: tempfile::tempdir().expect("a folder") };
        (1..).zip(stubs).for_each(|(id, stub)| listed.up(id, stub));
        listed
    }

    /// The deployment `chat` of what is listed.
    pub fn deployment(&self) -> Deployment {
        let command = |script: &str| ["sh", "-c", script].map(toml::Value::from).to_vec();
        Deployment::named("chat")
            .set("exec.start", command(START))
            .set("exec.stop", command(STOP))
            .set("exec.list", command(LIST))
            .set("exec.list_every", "500ms")
            .set("exec.env.FOLDER", self.folder.path().display().to_string())
    }

    /// Replica `id` is up, and it is this stub.
    pub fn up(&self, id: u32, stub: &Stub) {
        self.put(&format!("{id}.json"), &json!({"id": id, "state": "up", "url": stub.url()}).to_string());
    }

    /// Replica `id` is about to end.
    pub fn ending(&self, id: u32) {
        let one = json!({"id": id, "state": "ending", "why": "its machine is taken back"});
        self.put(&format!("{id}.json"), &one.to_string());
    }

    /// Replica `id` is gone.
    pub fn gone(&self, id: u32) {
        std::fs::remove_file(self.path(&format!("{id}.json"))).expect("it was there");
    }

    /// Somebody may start this one.
    pub fn spare(&self, stub: &Stub) {
        self.put(&format!("spare-{}", stub.address().port()), &stub.url());
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::join(self.folder.path(), name)
    }

    fn put(&self, name: &str, text: &str) {
        let new = self.path("put");
        std::fs::write(&new, text).expect("write");
        std::fs::rename(new, self.path(name)).expect("rename");
    }
}
