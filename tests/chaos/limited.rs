//! A gateway that the shell starts with a limit of descriptors.

use tidegate_tests::config::{Config, Deployment};
use tidegate_tests::deadline::within;
use tidegate_tests::gateway::binary;
use tidegate_tests::stub::Stub;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// See the module. Dropped, it is killed.
pub(crate) struct Limited {
    pub(crate) child: Child,
    log: Lines<BufReader<ChildStderr>>,
    _dir: tempfile::TempDir,
}

impl Limited {
    /// In front of `stub`; `limit` are the arguments of `ulimit`.
    pub(crate) async fn start(stub: &Stub, limit: &str) -> Self {
        let dir = tempfile::TempDir::with_prefix("tidegate-test-").expect("a folder");
        let text = Config::of(Deployment::chat([stub])).render(dir.path(), 0, 0);
        std::fs::write(dir.path().join("tidegate.toml"), text).expect("write the configuration");
        let program = tokio::task::spawn_blocking(binary).await.expect("the binary");
        let mut command = Command::new("/bin/sh");
        let script = format!("ulimit {limit} && exec \"$0\" serve");
        command.args(["-c", &script]).arg(program).current_dir(dir.path());
        command.kill_on_drop(true).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("start it");
        let log = BufReader::new(child.stderr.take().expect("stderr")).lines();
        Self { child, log, _dir: dir }
    }

    /// The next line of its log that holds `wanted`.
    pub(crate) async fn until(&mut self, wanted: &str) -> String {
        loop {
            let line = within(wanted, self.log.next_line()).await.expect("a line").expect("it runs");
            if line.contains(wanted) {
                return line;
            }
        }
    }
}
