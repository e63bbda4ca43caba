//! Keeps the output of an engine: one file per replica, bounded, and its last lines made fit to be shown.
//!
//! The engine writes to the file itself, so that it never notices when the gateway goes. Never interprets what it says.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Size in bytes from which a log is cut back.
pub(super) const LIMIT: u64 = 1024 * 1024;
/// Bytes that a cut leaves, from the end.
pub(super) const KEPT: u64 = 64 * 1024;
/// Most lines that are shown.
pub(super) const LINES: usize = 40;
/// Most bytes that are shown.
pub(super) const BYTES: usize = 8 * 1024;
/// Most bytes of each end of a line that are shown, where it is longer than both.
const END: usize = 400;

/// A new, empty log to which an engine may write; only the user may read it.
pub(super) fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// Whether a log has outgrown [`LIMIT`]. One system call.
pub(super) fn is_long(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.len() > LIMIT)
}

/// Cuts a log that has outgrown [`LIMIT`] back to whole lines of its last [`KEPT`] bytes. What the engine writes at
/// that very moment may be lost. The engine appends, so it goes on at the new end.
pub(super) fn trim(path: &Path) -> io::Result<()> {
    if !is_long(path) {
        return Ok(());
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let tail = read_tail(&file, KEPT)?;
    file.write_all_at(&tail, 0)?;
    file.set_len(tail.len().try_into().unwrap_or(KEPT))
}

/// The last lines of a log, oldest first, at most [`LINES`] and [`BYTES`]; control characters are escaped. A line that
/// redrew itself with carriage returns shows as it stood last. A log that cannot be read has no lines.
pub(super) fn last_lines(path: &Path) -> Vec<String> {
    let bytes = u64::try_from(BYTES).unwrap_or(u64::MAX);
    File::open(path).and_then(|file| read_tail(&file, bytes)).map(|tail| shown(&tail)).unwrap_or_default()
}

/// At most the last `limit` bytes of `file`, from the start of a line if one starts there.
fn read_tail(file: &File, limit: u64) -> io::Result<Vec<u8>> {
    let start = file.metadata()?.len().saturating_sub(limit);
    let mut tail = Vec::new();
    let mut reader = file;
    // One byte more, to see whether a line starts right at the limit.
    reader.seek(SeekFrom::Start(start.saturating_sub(1)))?;
    reader.take(limit + 1).read_to_end(&mut tail)?;
    if start > 0 {
        let end_of_first = tail.iter().position(|byte| *byte == b'\n').filter(|at| at + 1 < tail.len());
        tail.drain(..end_of_first.unwrap_or(0) + 1);
    }
    Ok(tail)
}

/// The last lines of `tail`, as [`last_lines`] shows them.
pub(super) fn shown(tail: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(tail);
    let mut room = BYTES;
    let mut lines = Vec::new();
    for line in text.trim_end().lines().rev().take(LINES) {
        let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
        let mut line = shortened(escaped(line));
        if line.len() > room {
            let cut = (line.len() - room..=line.len()).find(|at| line.is_char_boundary(*at));
            line.drain(..cut.unwrap_or(line.len()));
        }
        room -= line.len();
        lines.push(line);
        if room == 0 {
            break;
        }
    }
    lines.reverse();
    lines
}

/// The beginning and the end of a line that is too long to be read.
fn shortened(line: String) -> String {
    if line.len() <= 2 * END {
        return line;
    }
    let head = (0..=END).rev().find_map(|at| line.get(..at)).unwrap_or_default();
    let tail = (line.len() - END..=line.len()).find_map(|at| line.get(at..)).unwrap_or_default();
    format!("{head} … {tail}")
}

fn escaped(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for letter in line.chars() {
        if letter.is_control() { out.extend(letter.escape_default()) } else { out.push(letter) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.log");
        fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn a_long_log_is_cut_to_whole_lines_of_its_end() {
        let line = format!("{}\n", "x".repeat(99));
        let (_dir, path) = file_with(line.repeat(20_000).as_bytes());
        trim(&path).unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len() % 100, 0);
        assert!(content.len() <= 64 * 1024 && content.len() > 63 * 1024, "{}", content.len());
    }

    #[test]
    fn a_short_log_is_left_alone() {
        let (_dir, path) = file_with(b"loading\n");
        trim(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"loading\n");
    }

    #[test]
    fn shows_few_lines_without_control_characters() {
        let (_dir, path) = file_with(b"\x1b[31mred\x07\xff\r\n10 %\r90 %\n\n");
        assert_eq!(last_lines(&path), ["\\u{1b}[31mred\\u{7}\u{fffd}", "90 %"]);
        let many: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let (_dir, path) = file_with(many.as_bytes());
        let lines = last_lines(&path);
        assert_eq!((lines.len(), lines[0].as_str(), lines[39].as_str()), (40, "line 60", "line 99"));
    }

    #[test]
    fn a_line_too_long_to_be_read_shows_its_two_ends() {
        for content in [vec![b'x'; 100_000], vec![0x1b; 100_000], "ä".repeat(50_000).into_bytes()] {
            let (_dir, path) = file_with(&content);
            let lines = last_lines(&path);
            assert_eq!(lines.len(), 1);
            let length = lines[0].len();
            assert!(length <= 2 * END + 5 && length > 2 * END && lines[0].contains(" … "), "{length}");
        }
        let (_dir, path) = file_with("x".repeat(2 * END).as_bytes());
        assert_eq!(last_lines(&path), ["x".repeat(2 * END)]);
        let (_dir, path) = file_with(format!("{}\n", "x".repeat(800)).repeat(40).as_bytes());
        let lines = last_lines(&path);
        assert_eq!(lines.iter().map(String::len).sum::<usize>(), BYTES / 801 * 800, "whole lines of the end");
    }

    #[test]
    fn no_log_no_lines() {
        assert_eq!(last_lines(Path::new("/nowhere/1.log")), Vec::<String>::new());
    }
}
