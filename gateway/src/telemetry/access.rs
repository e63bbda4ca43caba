//! The access log: one JSON object a line, written beside the requests, never by them.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How long a line waits at most before it is written.
const DELAY: Duration = Duration::from_millis(50);
/// Bytes that may wait. Beyond, lines are dropped and counted: a full disk must not fill the memory.
const MAX: usize = 16 << 20;

/// Memory that is kept between two flushes, at most.
const KEPT: usize = 1 << 20;

/// Where lines go.
struct Out {
    writer: Box<dyn Write + Send>,
    /// Empty, with the memory of the lines before last.
    spare: Vec<u8>,
}

thread_local! {
    /// The line that this thread is writing.
    static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// See the module.
pub struct AccessLog {
    lines: Mutex<Vec<u8>>,
    waiting: Notify,
    out: Option<Mutex<Out>>,
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
        let out = out.map(|writer| Mutex::new(Out { writer, spare: Vec::new() }));
        let lines = Mutex::new(Vec::new());
        Arc::new(Self { lines, waiting: Notify::new(), out, dropped: AtomicU64::new(0) })
    }

    /// Adds a line, which `line` writes without its end.
    pub fn write(&self, line: impl FnOnce(&mut Vec<u8>)) {
        if self.out.is_none() {
            return;
        }
        // Made before the lock, which all cores share.
        let first = LINE.with_borrow_mut(|text| {
            text.clear();
            line(text);
            text.push(b'\n');
            self.append(text)
        });
        if first {
            self.waiting.notify_one();
        }
    }

    /// Whether it is the first of those that wait.
    fn append(&self, text: &[u8]) -> bool {
        let mut lines = self.lines.lock();
        if lines.len() >= MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let first = lines.is_empty();
        lines.extend_from_slice(text);
        first
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
        let Out { writer, spare } = &mut *out.lock();
        std::mem::swap(&mut *self.lines.lock(), spare);
        if let Err(error) = writer.write_all(spare).and_then(|()| writer.flush()) {
            tracing::warn!("{} bytes of access log were not written: {error}", spare.len());
        }
        spare.clear();
        spare.shrink_to(KEPT);
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!("{dropped} lines of access log were dropped: they cannot be written fast enough");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_157_lines_of_many_threads_are_whole_and_each_is_written_once() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let log = AccessLog::file(file.path()).expect("a log");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for line in 0..500 {
                        log.write(|into| into.extend(format!("[{thread},{line}]").bytes()));
                        if line % 100 == thread {
                            log.flush();
                        }
                    }
                });
            }
        });
        log.flush();
        log.flush();
        let text = std::fs::read_to_string(file.path()).expect("the log");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2000);
        assert!(lines.iter().all(|line| line.starts_with('[') && line.ends_with(']')), "each is whole");
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), 2000, "none twice");
    }
}
