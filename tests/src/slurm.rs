//! A real Slurm of one node: `slurm/cluster.py` beside this folder as a child. Dropped, or when the test ends however it
//! ends, all its jobs and daemons end.
//!
//! Names nothing of its crate, so that tests of other crates may include it. Never shared between tests.

use std::io::{BufRead, BufReader, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// The exit code by which the script says that the machine lacks something.
const LACKS: i32 = 77;

/// A running Slurm.
#[derive(Debug)]
pub struct Cluster {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    dir: TempDir,
    told: serde_json::Value,
}

impl Cluster {
    /// Starts one, within half a minute. `None` where the machine does not allow it, which is said by name; with
    /// `CI=true` that fails.
    pub fn start() -> Option<Self> {
        let dir = TempDir::with_prefix("tidegate-slurm-").expect("a folder");
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|up| up.join("tests/slurm/cluster.py"));
        let script = script.into_iter().find(|path| path.exists()).expect("the script");
        let mut command = Command::new("python3");
        command
            .arg(script)
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return not_tested(&format!("python3: {error}")),
        };
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("what it says");
        if line.is_empty() {
            let ended = child.wait_with_output().expect("its end");
            let why = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(LACKS), "Slurm does not start:\n{why}");
            return not_tested(why.trim());
        }
        let told = serde_json::from_str(&line).expect("JSON");
        Some(Self { child, input, output, dir, told })
    }

    /// Its folder, which every user may look into.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn told(&self, key: &str) -> &str {
        self.told[key].as_str().expect(key)
    }

    /// The socket of slurmrestd.
    pub fn socket(&self) -> PathBuf {
        self.told("socket").into()
    }

    /// The URL of the slurmrestd that wants a token.
    pub fn http(&self) -> &str {
        self.told("http")
    }

    /// Ports for its jobs: with several clusters on one machine, each has its own.
    pub fn ports(&self) -> RangeInclusive<u16> {
        let http = self.http().rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
        let low = 10_000 + http % 200 * 100;
        low..=low + 99
    }

    /// The file with a token, valid for an hour unless changed.
    pub fn token(&self) -> PathBuf {
        self.told("token").into()
    }

    /// A folder that jobs may write to.
    pub fn logs(&self) -> PathBuf {
        self.told("logs").into()
    }

    /// Tells the script something, such as `stop slurmctld`, and waits until it is done.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it runs");
        writeln!(input, "{line}").expect("it listens");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("its answer");
        assert_eq!(answer.trim(), "done", "{line}");
    }

    /// Runs one of Slurm's commands, as root; what it prints.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        let ended = command.args(arguments).env("SLURM_CONF", self.told("conf")).output().expect(program);
        assert!(
            ended.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&ended.stderr)
        );
        String::from_utf8_lossy(&ended.stdout).into_owned()
    }

    /// The names of the jobs that are not over, with their states, in the order of their numbers.
    pub fn jobs(&self) -> Vec<String> {
        let told = self.run("squeue", &["-h", "-S", "i", "-o", "%j %T"]);
        told.lines().map(str::to_owned).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.input.take());
        // Ends by itself, in bounded time.
        let _ = self.child.wait();
    }
}

fn not_tested(why: &str) -> Option<Cluster> {
    let text = format!("NOT TESTED: a real Slurm: {why}");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{text}");
    eprintln!("{text}");
    None
}
