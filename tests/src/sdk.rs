//! OpenAI's own SDKs as clients: scripts in `clients/`, run by the interpreters that `tests/setup.sh` has set up.
//!
//! A script gets the gateway's base URL as its first argument and prints one JSON value, which the test judges. It
//! judges nothing itself: an exception that it does not expect ends it, and the test with it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::process::Command;

use crate::deadline::patiently;

/// Where `tests/setup.sh` puts the clients.
fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target").join("test-env")
}

/// The folder of the Python that has the SDK; `None`, said aloud, when it was not set up.
pub fn python_folder() -> Option<PathBuf> {
    let folder = home().join("python").join("bin");
    present(&folder.join("python"), "OpenAI's SDK for Python").then_some(folder)
}

/// Runs a script of `clients/` with OpenAI's SDK for Python; `None`, said aloud, when there is none.
pub async fn python(script: &str, arguments: &[&str]) -> Option<Value> {
    let mut command = Command::new(python_folder()?.join("python"));
    command.arg("-I").arg(source(script));
    Some(printed(script, command.args(arguments)).await)
}

/// The same with OpenAI's SDK for Node.
pub async fn node(script: &str, arguments: &[&str]) -> Option<Value> {
    let folder = home().join("node");
    if !present(&folder.join("node_modules").join("openai"), "OpenAI's SDK for Node") {
        return None;
    }
    // Node looks for packages beside the script.
    let copy = folder.join(script);
    std::fs::copy(source(script), &copy).expect("copy the script");
    let mut command = Command::new("node");
    Some(printed(script, command.arg(copy).args(arguments)).await)
}

fn source(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script)
}

fn present(path: &Path, what: &str) -> bool {
    path.exists() || missing(&format!("{what} (tests/setup.sh sets it up)"))
}

/// Says aloud that a test is skipped for want of something; with `CI=true` that is an error. Always false.
pub fn missing(what: &str) -> bool {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let skipped = format!("NOT TESTED: {name}: missing: {what}\n");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{skipped}");
    // Not `eprintln`, whose words the test harness keeps to itself.
    std::io::stderr().write_all(skipped.as_bytes()).expect("standard error");
    false
}

/// Runs a program to its end and shows what it said if it fails.
pub async fn run(what: &str, command: &mut Command) -> Output {
    let command = command.stdin(Stdio::null()).kill_on_drop(true);
    let output = patiently(what, command.output()).await.expect(what);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    output
}

async fn printed(what: &str, command: &mut Command) -> Value {
    let output = run(what, command).await;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{what} printed no JSON: {error}: {text}"))
}
