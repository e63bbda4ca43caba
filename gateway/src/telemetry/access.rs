//! The access log: one JSON object a line, written beside the requests, never by them.
//!
//! Where it cannot be written (a full disk), lines wait and are tried again from the byte where they stopped (E4).

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::file::LogFile;

/// How long a line waits at most before it is written.
const DELAY: Duration = Duration::from_millis(50);
/// How long after a failure lines are tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Bytes that may wait. Beyond, lines are dropped and counted: a full disk must not fill the memory.
const MAX: usize = 16 << 20;

/// Memory that is kept between two flushes, at most.
const KEPT: usize = 1 << 20;

/// Where lines go.
enum To {
    Stdout,
    File(LogFile),
    #[cfg(test)]
    Test(Box<dyn io::Write + Send>),
}

impl To {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // Not by way of the buffer that the standard library has there: what fails must be here.
            Self::Stdout => Ok(rustix::io::write(io::stdout(), bytes)?),
            Self::File(file) => file.write(bytes),
            #[cfg(test)]
            Self::Test(to) => to.write(bytes),
        }
    }
}

/// Lines on their way out.
struct Out {
    to: To,
    text: Vec<u8>,
    /// Bytes of `text` that were written.
    written: usize,
    /// The last attempt failed, and that was told.
    failing: bool,
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
        Self::new(Some(To::Stdout))
    }

    /// To the end of a file, which is made if it is not there, and made anew when it was moved away.
    ///
    /// # Errors
    /// The operating system's, when the file cannot be opened.
    pub fn file(path: &Path) -> io::Result<Arc<Self>> {
        Ok(Self::new(Some(To::File(LogFile::open(path)?))))
    }

    fn new(to: Option<To>) -> Arc<Self> {
        let out = to.map(|to| Mutex::new(Out { to, text: Vec::new(), written: 0, failing: false }));
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
            let mut pause = DELAY;
            loop {
                tokio::time::sleep(pause).await;
                let log = Arc::clone(&self);
                // The disk may be slow, and standard output may be a pipe that nobody reads.
                match tokio::task::spawn_blocking(move || log.flush()).await {
                    Ok(false) => pause = AGAIN,
                    Ok(true) | Err(_) => break,
                }
            }
        }
    }

    /// Writes what waits; whether nothing does any more.
    pub fn flush(&self) -> bool {
        let Some(out) = &self.out else { return true };
        let out = &mut *out.lock();
        loop {
            if let Err(error) = out.write() {
                if !std::mem::replace(&mut out.failing, true) {
                    tracing::warn!("the access log cannot be written, and is tried again: {error}");
                }
                if error.kind() == io::ErrorKind::BrokenPipe {
                    // Whoever took it is gone for good.
                    self.take(out);
                    out.text.clear();
                    return true;
                }
                return false;
            }
            if !out.text.is_empty() && std::mem::take(&mut out.failing) {
                tracing::info!("the access log is written again");
            }
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(
                    "{dropped} lines of access log were dropped: they cannot be written fast enough"
                );
            }
            if !self.take(out) {
                return true;
            }
        }
    }

    /// Moves what waits to where it is written from; whether there is anything.
    fn take(&self, out: &mut Out) -> bool {
        out.text.clear();
        out.text.shrink_to(KEPT);
        out.written = 0;
        std::mem::swap(&mut *self.lines.lock(), &mut out.text);
        !out.text.is_empty()
    }

    /// The last flush: tells what could not be written.
    pub fn close(&self) {
        if self.flush() {
            return;
        }
        let count = |text: &[u8]| memchr::memchr_iter(b'\n', text).count() as u64;
        let waiting = count(&self.lines.lock()) + self.dropped.load(Ordering::Relaxed);
        let out = self.out.as_ref().map_or(0, |out| {
            let out = out.lock();
            count(out.text.get(out.written..).unwrap_or_default())
        });
        tracing::warn!("{} lines of access log are lost", waiting + out);
    }
}

impl Out {
    fn write(&mut self) -> io::Result<()> {
        if self.text.len() == self.written {
            return Ok(());
        }
        if let To::File(file) = &mut self.to
            && file.follow()
        {
            // The end of a line whose beginning is in another file is none.
            let is_whole = self.written == 0 || self.text.get(self.written - 1) == Some(&b'\n');
            if !is_whole {
                let rest = self.text.get(self.written..).unwrap_or_default();
                self.written += memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            }
        }
        while let Some(rest) = self.text.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.to.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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

    /// A disk with room for so many bytes, and what is on it.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (room, text) = &mut *self.0.lock();
            let size = bytes.len().min(*room);
            if size == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= size;
            text.extend_from_slice(&bytes[..size]);
            Ok(size)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn e4_lines_wait_for_room_on_a_full_disk_and_are_whole_and_in_order_then() {
        let disk = Disk(Arc::default());
        disk.0.lock().0 = 10;
        let log = AccessLog::new(Some(To::Test(Box::new(disk.clone()))));
        let line = |number: usize| log.write(|into| into.extend(format!("[{number}]").bytes()));
        (0..5).for_each(line);
        assert!(!log.flush(), "two lines and a half");
        assert!(!log.flush());
        (5..8).for_each(line);
        disk.0.lock().0 = 3;
        assert!(!log.flush(), "the rest of one line, and a byte");
        disk.0.lock().0 = usize::MAX;
        assert!(log.flush() && log.flush());
        (8..10).for_each(line);
        assert!(log.flush());
        let wanted: String = (0..10).map(|number| format!("[{number}]\n")).collect();
        assert_eq!(String::from_utf8_lossy(&disk.0.lock().1), wanted);
    }

    #[test]
    fn e4_nothing_waits_for_a_reader_that_is_gone() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let log = AccessLog::new(Some(To::Test(Box::new(writer))));
        log.write(|into| into.extend_from_slice(b"read"));
        assert!(log.flush());
        drop(reader);
        for _ in 0..3 {
            log.write(|into| into.extend_from_slice(b"lost"));
            assert!(log.flush());
            let out = log.out.as_ref().expect("it is on").lock();
            assert_eq!((log.lines.lock().len(), out.text.len()), (0, 0));
            assert!(out.failing, "told once, and not that it is over");
        }
    }

    #[test]
    fn e4_what_waits_for_a_full_disk_is_bounded() {
        let disk = Disk(Arc::default());
        let log = AccessLog::new(Some(To::Test(Box::new(disk.clone()))));
        let text = vec![b'x'; 1 << 20];
        for _ in 0..50 {
            log.write(|into| into.extend_from_slice(&text));
            log.flush();
        }
        let held = log.lines.lock().len() + log.out.as_ref().map_or(0, |out| out.lock().text.len());
        assert!(held <= 2 * MAX + text.len(), "{held}");
        assert!(log.dropped.load(Ordering::Relaxed) > 0, "the others are counted");
    }
}
