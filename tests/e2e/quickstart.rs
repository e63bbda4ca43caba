//! `tidegate quickstart` as a person has it: what it prints is what works.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tidegate::quickstart::Engine;
use tidegate_tests::deadline::{patiently, within};
use tidegate_tests::gateway::binary;
use tidegate_tests::leftovers::{MARK, none_left, sweep};
use tidegate_tests::{model, sdk};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running quickstart, in a folder of its own.
struct Quickstart {
    child: Child,
    dir: TempDir,
    /// Lines of standard output up to the last of those to paste.
    printed: Vec<String>,
}

impl Drop for Quickstart {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        sweep(self.dir.path());
    }
}

/// Starts it where nothing can be fetched and no Python can be found, and reads what it prints.
async fn start(engine: &Engine) -> Quickstart {
    let dir = TempDir::with_prefix("tidegate-test-").expect("a folder");
    let nowhere = "http://127.0.0.1:9";
    let mut command = Command::new(tokio::task::spawn_blocking(binary).await.expect("the binary"));
    command
        .args(["quickstart", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .env(MARK, dir.path())
        .env("XDG_STATE_HOME", dir.path())
        .env("PATH", search_path(engine, dir.path()))
        .envs(["PIP_INDEX_URL", "HTTP_PROXY", "HTTPS_PROXY"].map(|name| (name, nowhere)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().expect("start quickstart");
    let mut this = Quickstart { child, dir, printed: Vec::new() };
    let mut lines = BufReader::new(this.child.stdout.take().expect("stdout")).lines();
    while !this.printed.last().is_some_and(|line| line.starts_with("http://")) {
        let line = patiently("quickstart prints its lines", lines.next_line()).await.expect("text");
        let Some(line) = line else {
            let said = this.said().await;
            panic!("it ended after {:#?}\n{said}", this.printed)
        };
        this.printed.push(line);
    }
    this
}

/// Nothing but a folder that is empty; and, where the user's own llama.cpp is used, its folder.
fn search_path(engine: &Engine, empty: &Path) -> OsString {
    let program = engine.command.first().map(PathBuf::from).filter(|path| path.ends_with("llama-server"));
    let folders = [Some(empty.to_owned()), program.and_then(|path| path.parent().map(Path::to_owned))];
    std::env::join_paths(folders.into_iter().flatten()).expect("a search path")
}

impl Quickstart {
    /// The last printed line that begins like this.
    fn line(&self, beginning: &str) -> &str {
        let found = self.printed.iter().rfind(|line| line.starts_with(beginning));
        found.unwrap_or_else(|| panic!("no line begins with {beginning:?}: {:#?}", self.printed))
    }

    /// Everything that it says on standard error, until it ends.
    async fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            within("it ends", stderr.read_to_string(&mut said)).await.expect("text");
        }
        said
    }
}

/// Runs a printed line in a shell, as a person does who has set up the SDK.
async fn paste(line: &str, python: &Path) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [python.to_owned()].into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).expect("a search path");
    let output = sdk::run(line, Command::new("sh").args(["-c", line]).env("PATH", path)).await;
    String::from_utf8(output.stdout).expect("text")
}

/// Must show 1: a real answer and three lines that work as printed. A second start fetches nothing and runs no Python
/// to find that out: there is no Python on its path, and no package index behind its network.
#[tokio::test]
async fn quickstart_answers_by_itself_and_prints_three_lines_that_work() {
    let Some(engine) = model::engine().await else { return };
    let Some(python) = sdk::python_folder() else { return };
    let mut quickstart = start(engine).await;

    let asked =
        quickstart.printed.iter().position(|line| line.trim_start().starts_with("> ")).expect("a question");
    assert!(quickstart.printed[asked + 1].trim().len() > 20, "an answer: {:#?}", quickstart.printed);
    assert!(quickstart.line("  (replica").contains("smollm2-1, route placed"));

    let page = quickstart.line("http://");
    let html = paste(&format!("curl -s {page}"), &python).await;
    assert!(html.contains("<!doctype html>") || html.contains("<!DOCTYPE html>"), "the status page: {html}");
    let answer: Value =
        serde_json::from_str(&paste(&format!("curl -s {page}status"), &python).await).unwrap_or_default();
    assert!(answer["deployments"][0]["name"] == engine.model, "the status: {answer}");
    assert_eq!(answer["deployments"][0]["replicas"][0]["phase"], "ready", "{answer}");
    let chat = quickstart.printed.iter().find(|line| line.contains("/v1/chat/completions")).expect("a chat");
    let answer: Value = serde_json::from_str(&paste(chat, &python).await).unwrap_or_default();
    assert!(
        answer["choices"][0]["message"]["content"].as_str().is_some_and(|text| text.len() > 20),
        "{answer}"
    );
    let said = paste(quickstart.line("python3 -c"), &python).await;
    assert!(said.trim().len() > 20, "{said}");

    // Ctrl-C stops everything.
    let id = quickstart.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    kill_process(id.expect("it runs"), Signal::INT).expect("signal");
    let said = quickstart.said().await;
    assert!(
        said.lines().all(|line| line.contains("stopping") || line.contains("stopped")),
        "nothing was fetched, nothing went wrong: {said}"
    );
    let status = within("quickstart ends", quickstart.child.wait()).await.expect("wait");
    assert!(status.success(), "{status}");
    none_left(quickstart.dir.path()).await;
}
