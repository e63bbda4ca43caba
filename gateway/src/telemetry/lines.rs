//! Lines to a descriptor that may be a pipe that nobody reads, a terminal that was stopped or a file on a full disk: each is
//! written at once or not at all, so that no log holds up a request (E4).
//!
//! Decides which lines are lost, and says so with the next one that is not. Never waits, never fails, and never makes
//! the descriptor non-blocking: others may share it.

use std::io::{self, Write};
use std::os::fd::AsFd;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::fmt::MakeWriter;

use crate::clock;

/// Bytes that a pipe with any room takes without waiting: a page, and POSIX's `PIPE_BUF` on Linux.
const PIECE: usize = 4096;

/// Lines that were lost, and how the last one ended.
#[derive(Debug, Default)]
struct State {
    lost: u64,
    /// A part of the last line was written, and its end was not.
    torn: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Lines<F> {
    to: F,
    state: Mutex<State>,
}

impl<F: AsFd> Lines<F> {
    /// Lines to `to`.
    pub(super) fn new(to: F) -> Self {
        Self { to, state: Mutex::default() }
    }

    /// Writes a line, which ends with a line end; or loses it.
    fn put(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.torn {
            state.torn = self.write(b"\n") == 0;
        }
        if !state.torn && state.lost > 0 {
            let note = missing(state.lost);
            match self.write(note.as_bytes()) {
                0 => {}
                written => (state.lost, state.torn) = (0, written < note.len()),
            }
        }
        if state.torn || state.lost > 0 {
            state.lost += 1;
            return;
        }
        let written = self.write(line);
        if written < line.len() {
            (state.lost, state.torn) = (1, written > 0);
        }
    }

    /// How much of `text` was written: what could be without waiting.
    fn write(&self, text: &[u8]) -> usize {
        let mut written = 0;
        while let Some(rest) = text.get(written..).filter(|rest| !rest.is_empty()) {
            if !self.has_room() {
                break;
            }
            let piece = rest.get(..PIECE).unwrap_or(rest);
            match rustix::io::retry_on_intr(|| rustix::io::write(&self.to, piece)) {
                Ok(more @ 1..) => written += more,
                Ok(_) | Err(_) => break,
            }
        }
        written
    }

    fn has_room(&self) -> bool {
        let mut asked = [PollFd::new(&self.to, PollFlags::OUT)];
        let ready = rustix::io::retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())));
        ready.is_ok_and(|ready| ready > 0)
    }
}

fn missing(lines: u64) -> String {
    let time = humantime::format_rfc3339_millis(clock::wall());
    format!("{time}  WARN {lines} lines of this log are missing here: they could not be written at once\n")
}

/// Each call brings a whole line.
impl<F: AsFd> Write for &Lines<F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a, F: AsFd + 'a> MakeWriter<'a> for Lines<F> {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::io::ioctl_fionread;

    use super::*;

    /// All that waits in a pipe.
    fn taken(reader: &mut std::io::PipeReader) -> String {
        let waits = usize::try_from(ioctl_fionread(&*reader).expect("a pipe")).expect("a length");
        let mut text = vec![0; waits];
        reader.read_exact(&mut text).expect("what waits");
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn e4_a_log_that_nobody_reads_holds_up_nobody_and_says_what_it_lost() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let lines = Lines::new(writer);
        let line = |number: usize| format!("{number} {}\n", "x".repeat(995)).into_bytes();
        (0..1000).for_each(|number| lines.put(&line(number)));
        let first = taken(&mut reader);
        let kept = first.matches('\n').count();
        assert!((1..1000).contains(&kept), "a pipe is finite: {kept}");

        lines.put(b"after\n");
        let then = taken(&mut reader);
        let text = format!("{first}{then}");
        let whole = text.lines().filter(|line| line.len() >= 997).count();
        let note = text.lines().rev().nth(1).expect("a line before the last");
        let lost = format!("WARN {} lines of this log are missing here", 1000 - whole);
        assert!(note.contains(&lost), "{note}: {whole} are whole");
        assert_eq!(text.lines().last(), Some("after"));
        lines.put(b"again\n");
        assert_eq!(taken(&mut reader), "again\n", "told once");
    }

    #[test]
    fn e4_a_torn_line_is_ended_before_the_next_one() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let lines = Lines::new(writer);
        let long = format!("{}\n", "y".repeat(8 << 20)).into_bytes();
        lines.put(&long);
        let mut text = taken(&mut reader);
        assert!(!text.is_empty() && !text.contains('\n'), "a part of it");
        lines.put(b"after\n");
        text += &taken(&mut reader);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            matches!(lines[..], [_, note, "after"] if note.contains("WARN 1 lines")),
            "{:?}",
            &lines[1..]
        );
    }

    #[test]
    fn e4_a_full_disk_and_a_closed_pipe_are_no_error() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it");
        let lines = Lines::new(full);
        (&lines).write_all(b"lost\n").expect("never an error");
        assert_eq!(lines.state.lock().lost, 1);

        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let lines = Lines::new(writer);
        (&lines).write_all(b"lost\n").expect("never an error");
        (&lines).write_all(b"lost\n").expect("never an error");
        assert_eq!(lines.state.lock().lost, 2);
    }
}
