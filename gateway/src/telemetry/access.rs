//! The access log: one JSON object a line, written beside the requests, never by them.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;

/// How long a line waits at most before it is written.
const DELAY: Duration = Duration::from_millis(50);
/// Bytes that may wait. Beyond, lines are dropped and counted: a full disk must not fill the memory.
const MAX: usize = 16 << 20;

/// See the module.
pub struct AccessLog {
    lines: Mutex<Vec<u8>>,
    waiting: Notify,
    out: Option<Mutex<Box<dyn Write + Send>>>,
    dropped: AtomicU64,
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessLog").field("on", &self.out.is_some()).finish_non_exhaustive()
    }
}

impl AccessLog {
    /// No log.
    pub fn off() -> Arc<Self> {
        Self::new(None)
    }

    /// To standard output.
    pub fn stdout() -> Arc<Self> {
        Self::new(Some(Box::new(std::io::stdout())))
    }

    /// To the end of a file, which is made if it is not there.
    ///
    /// # Errors
    /// The operating system's, when the file cannot be opened.
    pub fn file(path: &Path) -> std::io::Result<Arc<Self>> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::new(Some(Box::new(file))))
    }

    fn new(out: Option<Box<dyn Write + Send>>) -> Arc<Self> {
        let lines = Mutex::new(Vec::new());
        Arc::new(Self { lines, waiting: Notify::new(), out: out.map(Mutex::new), dropped: AtomicU64::new(0) })
    }

    /// Adds a line. Control characters are escaped by JSON (C-157).
    pub fn write(&self, line: &impl Serialize) {
        if self.out.is_none() {
            return;
        }
        let mut lines = self.lines.lock();
        if lines.len() >= MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let first = lines.is_empty();
        if serde_json::to_writer(&mut *lines, line).is_ok() {
            lines.push(b'\n');
        }
        drop(lines);
        if first {
            self.waiting.notify_one();
        }
    }

    /// Writes lines as they come; for ever.
    pub async fn keep_writing(self: Arc<Self>) {
        loop {
            self.waiting.notified().await;
            tokio::time::sleep(DELAY).await;
            let log = Arc::clone(&self);
            // The disk may be slow, and standard output may be a pipe that nobody reads.
            let _ = tokio::task::spawn_blocking(move || log.flush()).await;
        }
    }

    /// Writes what waits.
    pub fn flush(&self) {
        let Some(out) = &self.out else { return };
        let lines = std::mem::take(&mut *self.lines.lock());
        let mut out = out.lock();
        if let Err(error) = out.write_all(&lines).and_then(|()| out.flush()) {
            tracing::warn!("{} bytes of access log were not written: {error}", lines.len());
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!("{dropped} lines of access log were dropped: they cannot be written fast enough");
        }
    }
}
