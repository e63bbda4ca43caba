//! Processes that a test has left behind: found by a variable that the gateway under test and all that it starts inherit.
//!
//! Never touches a process without the mark of the folder that is asked for.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::deadline::eventually;

/// The variable; its value is the folder of the test.
pub const MARK: &str = "TIDEGATE_TEST_FOLDER";

/// Every process that carries the mark of `folder`: its pid and its command line.
fn marked(folder: &Path) -> Vec<(i32, String)> {
    let wanted = format!("{MARK}={}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        // One that has ended meanwhile, or that is a zombie, has no environment.
        if read("environ").split(|byte| *byte == 0).any(|pair| pair == wanted.as_bytes()) {
            found.push((pid, String::from_utf8_lossy(&read("cmdline")).replace('\0', " ")));
        }
    }
    found
}

/// Waits until no process with the mark of `folder` is left (C-005).
pub async fn none_left(folder: &Path) {
    eventually("every process of the test has ended", async || match &marked(folder)[..] {
        [] => Ok(()),
        left => Err(format!("{left:?}")),
    })
    .await;
}

/// Kills what is left, after a test that failed.
pub fn sweep(folder: &Path) {
    for (pid, _) in marked(folder) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
