//! Names of code that a program made itself, from the map that its runtime writes for perf.
//!
//! ```text
//!   START SIZE NAME     hex, hex, the rest of the line        node --perf-basic-prof, python -X perf, java agents
//! ```
//!
//! J1  If several lines cover an address, the last one holds: memory of dropped code is used again.
//! J2  An invalid line is left out; a map of any content is read in bounded time and memory.
//! J3  Python's trampolines are named `py::FUNCTION:FILE`: they become frames of the module `[python]`, with their
//!     file, among those of the interpreter.
//!
//! Not here: which process a map belongs to (the caller is responsible for that), modules (module.rs).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use crate::demangle;
use crate::frame::Frame;

/// The most bytes of maps that are read: a server that makes code for months writes a large map.
const MAP_BYTES: u64 = 512 << 20;
/// The number of lines searched before the nearest start: longer overlaps are not found.
const BACK: usize = 256;

struct Entry {
    start: u64,
    end: u64,
    /// The position in the files: later ones hold (J1).
    order: u32,
    name: Box<str>,
}

/// The maps of one process.
#[derive(Default)]
pub(crate) struct PerfMap {
    /// The entries, by start.
    entries: Vec<Entry>,
}

impl PerfMap {
    /// Reads maps; one that cannot be read gives no names.
    pub(crate) fn read(paths: &[PathBuf]) -> PerfMap {
        let mut map = PerfMap::default();
        for path in paths {
            if let Ok(file) = File::open(path) {
                map.add(BufReader::new(file.take(MAP_BYTES)));
            }
        }
        map.entries.sort_by_key(|entry| (entry.start, entry.order));
        map
    }

    fn add(&mut self, mut from: impl BufRead) {
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            if let Some(entry) = parse(&String::from_utf8_lossy(&line), self.entries.len() as u32) {
                self.entries.push(entry);
            }
            line.clear();
        }
    }

    /// Returns the frame of an address.
    pub(crate) fn frame(&self, pc: u64) -> Option<Frame> {
        let behind = self.entries.partition_point(|entry| entry.start <= pc);
        let near = &self.entries[behind.saturating_sub(BACK)..behind];
        let covering = near.iter().filter(|entry| pc < entry.end);
        let entry = covering.max_by_key(|entry| entry.order)?;
        Some(named(&entry.name))
    }
}

fn parse(line: &str, order: u32) -> Option<Entry> {
    let (start, rest) = line.trim_end().split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (start, size) = (hex(start)?, hex(size)?);
    let name = name.trim();
    (size > 0 && !name.is_empty()).then(|| Entry {
        start,
        end: start.saturating_add(size),
        order,
        name: name.into(),
    })
}

fn named(name: &str) -> Frame {
    // J3: a file's name may contain colons, a function's may not.
    if let Some((function, file)) = name
        .strip_prefix("py::")
        .and_then(|rest| rest.split_once(':'))
    {
        return Frame {
            function: function.to_owned(),
            module: "[python]".into(),
            file: Some(file.to_owned()).filter(|file| !file.is_empty()),
            ..Frame::default()
        };
    }
    Frame {
        function: demangle(name),
        module: "[jit]".into(),
        ..Frame::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> PerfMap {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-1.map");
        std::fs::write(&path, text).expect("written");
        PerfMap::read(&[path])
    }

    fn name(map: &PerfMap, pc: u64) -> Option<String> {
        map.frame(pc).map(|frame| frame.function)
    }

    #[test]
    fn the_last_line_that_covers_an_address_holds() {
        let map = map("1000 100 old\n3000 10 other\n1080 20 new\n1000 40 newest name\n");
        assert_eq!(name(&map, 0x0fff), None);
        assert_eq!(name(&map, 0x1000).as_deref(), Some("newest name"));
        assert_eq!(name(&map, 0x1040).as_deref(), Some("old"));
        assert_eq!(name(&map, 0x109f).as_deref(), Some("new"));
        assert_eq!(name(&map, 0x10a0).as_deref(), Some("old"));
        assert_eq!(name(&map, 0x1100), None);
        assert_eq!(name(&map, 0x300f).as_deref(), Some("other"));
    }

    #[test]
    fn python_frames_have_their_file() {
        let map = map("7f0000001000 b py::Server.run:/srv/a:b.py\n");
        let frame = map.frame(0x7f00_0000_100a).expect("covered");
        assert_eq!(
            (frame.function.as_str(), frame.module.as_str()),
            ("Server.run", "[python]")
        );
        assert_eq!(frame.file.as_deref(), Some("/srv/a:b.py"));
    }

    #[test]
    fn lines_that_are_none_are_left_out() {
        let text = "\n\n1000\n1000 zz x\nffffffffffffffff ffffffffffffffff end\n2000 0 none\n2000 8 \n\u{0}\u{1}\n 1 2 3\n2000 8 good";
        let map = map(text);
        assert_eq!(name(&map, 0x2000).as_deref(), Some("good"));
        assert_eq!(name(&map, u64::MAX - 1), None);
        assert_eq!(map.entries.len(), 2);
    }
}
