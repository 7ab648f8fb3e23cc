//! Files of `/proc`, read whole.
//!
//! ```text
//!   small file ─► one read into the stack ─ not full ─► parsed
//!                                         └ full (a user of 600 groups) ─► the rest, on the heap ─► parsed
//! ```
//!
//! The size that the kernel gives is 0 for all of these: asking for it, as `std::fs::read` does, costs two system
//! calls, and then a first read of 32 bytes.
//!
//! Not here: what the files say.

use std::fmt::{self, Write};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;

/// A size into which `stat`, `status` and `smaps_rollup` nearly always fit.
const SMALL: usize = 4096;

/// A path below `/proc`, on the stack. The longest has two numbers and a name.
struct Path {
    bytes: [u8; 64],
    used: usize,
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.used + text.len();
        let to = self.bytes.get_mut(self.used..end).ok_or(fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}

/// Opens a file. Cost: one system call, no allocation.
pub(crate) fn open(path: fmt::Arguments<'_>) -> io::Result<File> {
    let mut on_stack = Path {
        bytes: [0; 64],
        used: 0,
    };
    let written = on_stack.write_fmt(path).ok();
    let path = written.and_then(|()| std::str::from_utf8(&on_stack.bytes[..on_stack.used]).ok());
    File::open(path.ok_or(ErrorKind::InvalidFilename)?)
}

/// Opens and parses a small file.
pub(crate) fn parse<T>(
    path: fmt::Arguments<'_>,
    parser: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<T> {
    parse_open(&open(path).ok()?, parser)
}

/// Parses a small file from its beginning. Cost: one system call, no allocation.
pub(crate) fn parse_open<T>(file: &File, parser: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let mut on_stack = [0; SMALL];
    let len = read_at(file, &mut on_stack, 0)?;
    if len < SMALL {
        return parser(&on_stack[..len]);
    }
    parser(&rest_of(file, on_stack.to_vec())?)
}

#[cold]
fn rest_of(file: &File, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    loop {
        let known = bytes.len();
        bytes.resize(known + 16 * SMALL, 0);
        let len = read_at(file, &mut bytes[known..], known as u64)?;
        bytes.truncate(known + len);
        if len == 0 {
            return Some(bytes);
        }
    }
}

fn read_at(file: &File, to: &mut [u8], offset: u64) -> Option<usize> {
    loop {
        match file.read_at(to, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done.ok(),
        }
    }
}

/// Reads a file of any length.
pub(crate) fn whole(path: fmt::Arguments<'_>) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(16 * SMALL);
    // Of a bare `File` the size would be asked for.
    let mut file = open(path).ok()?.take(u64::MAX);
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Reads a text of any length; bytes that are no UTF-8 are replaced (procfs.N2).
pub(crate) fn whole_text(path: fmt::Arguments<'_>) -> Option<String> {
    let text = String::from_utf8(whole(path)?);
    Some(text.unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned()))
}

/// Returns the lines `key: value`, whose values are trimmed. A line that is no UTF-8 is none.
pub(crate) fn fields(text: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    text.split(|byte| *byte == b'\n').filter_map(|line| {
        let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        Some((key, value.trim()))
    })
}

/// Returns the bytes of a value that counts KiB.
pub(crate) fn bytes(value: &str) -> Option<u64> {
    let kib: u64 = value.strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_their_bytes() {
        let text = b"Name:\ta: b\nBad\xff:\t1\nno field\nVmHWM:\t   20 kB\n";
        let all: Vec<_> = fields(text).collect();
        assert_eq!(all, [("Name", "a: b"), ("VmHWM", "20 kB")]);
        assert_eq!(bytes("20 kB"), Some(20 << 10));
        for wrong in ["", "kB", "20", "x kB", "-1 kB", "18446744073709551615 kB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_is_read_whole_however_long() {
        let path = std::env::temp_dir().join(format!("procfs-{}", std::process::id()));
        for len in [0, 1, SMALL - 1, SMALL, SMALL + 1, 40 * SMALL] {
            let written: Vec<u8> = (0..len).map(|at| at as u8).collect();
            std::fs::write(&path, &written).expect("a temporary file");
            let file = File::open(&path).expect("just written");
            let read = parse_open(&file, |bytes| Some(bytes.to_vec()));
            assert_eq!(read, Some(written), "{len}");
        }
        std::fs::remove_file(&path).expect("just written");
    }

    #[test]
    fn what_is_not_there_is_none() {
        assert!(whole(format_args!("/proc/0/stat")).is_none());
        assert!(parse(format_args!("/proc/0/stat"), |_| Some(())).is_none());
        let long = "x".repeat(100);
        assert!(open(format_args!("/proc/{long}")).is_err());
    }
}
