//! Names of code that a program made itself, from the map that its runtime writes for perf.
//!
//! ```text
//!   START SIZE NAME     hex, hex, the rest of the line   node --perf-basic-prof, python -X perf, agents of Java, LuaJIT
//!              ├─ py::Server.run:/srv/app.py          Server.run      [python]       /srv/app.py
//!              ├─ JS:^load /srv/app.js:12:21          load            [javascript]   /srv/app.js:12
//!              ├─ TRACE_7::app.lua:3                  TRACE_7         [lua]          app.lua:3
//!              └─ any other, demangled                as it is        [jit]
//! ```
//!
//! J1  If several lines cover an address, the last one holds: memory of dropped code is used again.
//! J2  An invalid line is left out; a map of any content is read in bounded time and memory.
//! J3  Python's trampolines are named `py::FUNCTION:FILE`: they become frames of the module `[python]`, with their
//!     file, among those of the interpreter.
//! J4  V8 names a function of a script with its file, line and column, behind how its code was made: it becomes a frame of
//!     the module `[javascript]`, and the line is where the function begins. Names of code that V8 made for itself stay.
//! J5  LuaJIT names a trace with the file and line that it begins at.
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

/// The module of code that is no function of a script, as far as is known.
const JIT: &str = "[jit]";

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

    /// Returns whether nothing is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether an address is in a function of a script.
    pub(crate) fn is_script(&self, pc: u64) -> bool {
        self.frame(pc).is_some_and(|frame| frame.module != JIT)
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
    of_script(name)
        .or_else(|| of_lua(name))
        .unwrap_or_else(|| Frame {
            function: demangle(name),
            module: JIT.into(),
            ..Frame::default()
        })
}

/// How V8 begins the names of functions of scripts, by version.
const SCRIPTS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
/// How V8 marks the way in which code was made.
const WAYS: [char; 5] = ['*', '~', '^', '+', '\''];
/// What the name of a script's file begins with, behind the function's, which may have spaces.
const FILES: [&str; 6] = [" /", " file:", " node:", " [", " evalmachine.", " http"];
/// The name of a function without one, as V8's own tools have it.
const NAMELESS: &str = "(anonymous)";

/// Returns the frame of a function of a script (J4).
fn of_script(name: &str) -> Option<Frame> {
    let rest = SCRIPTS.iter().find_map(|start| name.strip_prefix(start))?;
    let rest = rest.trim_start_matches(WAYS);
    let at = FILES.iter().filter_map(|start| rest.find(start)).min();
    let (function, place) = rest.split_at(at.or_else(|| rest.rfind(' '))?);
    let (file, line) = place_of(place.trim_start());
    Some(Frame {
        function: match function {
            "" => NAMELESS.into(),
            _ => function.to_owned(),
        },
        module: "[javascript]".into(),
        file: Some(file.strip_prefix("file://").unwrap_or(file).to_owned()),
        line,
        ..Frame::default()
    })
}

/// Divides `FILE:LINE:COLUMN`, or `FILE:LINE`.
fn place_of(place: &str) -> (&str, Option<u32>) {
    let number = |text: &str| text.parse::<u32>().ok();
    let Some((before, last)) = place.rsplit_once(':') else {
        return (place, None);
    };
    let Some(last) = number(last) else {
        return (place, None);
    };
    match before.rsplit_once(':') {
        Some((file, line)) if number(line).is_some() => (file, number(line)),
        _ => (before, Some(last)),
    }
}

/// Returns the frame of a trace of LuaJIT (J5).
fn of_lua(name: &str) -> Option<Frame> {
    let (trace, place) = name.split_once("::")?;
    let number = trace.strip_prefix("TRACE_")?;
    number.parse::<u32>().ok()?;
    let (file, line) = place_of(place);
    Some(Frame {
        function: trace.to_owned(),
        module: "[lua]".into(),
        file: Some(file.to_owned()),
        line,
        ..Frame::default()
    })
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
    fn functions_of_scripts_have_their_file_and_line() {
        let known = [
            (
                "JS:^load /srv/app.js:12:21",
                "load",
                "/srv/app.js",
                Some(12),
            ),
            (
                "JS:*'get size /srv/a b.js:9:1",
                "get size",
                "/srv/a b.js",
                Some(9),
            ),
            (
                "LazyCompile:~ /srv/app.js:1:1",
                "(anonymous)",
                "/srv/app.js",
                Some(1),
            ),
            (
                "JS:+main file:///srv/app.mjs:3:4",
                "main",
                "/srv/app.mjs",
                Some(3),
            ),
            (
                "Function:~alloc node:buffer:391:30",
                "alloc",
                "node:buffer",
                Some(391),
            ),
            (
                "Script:~ evalmachine.<anonymous>:1:1",
                "(anonymous)",
                "evalmachine.<anonymous>",
                Some(1),
            ),
            ("Eval:~f [eval]:7", "f", "[eval]", Some(7)),
            ("JS:~f native array.js", "f native", "array.js", None),
        ];
        for (name, function, file, line) in known {
            let frame = named(name);
            assert_eq!(
                (frame.function.as_str(), frame.line),
                (function, line),
                "{name}"
            );
            assert_eq!(frame.file.as_deref(), Some(file), "{name}");
            assert_eq!(frame.module, "[javascript]", "{name}");
        }
        for own in [
            "Builtin:CallFunction",
            "BytecodeHandler:LdaSmi",
            "JS:nothing",
            "RegExp:(a b)",
        ] {
            let frame = named(own);
            assert_eq!(
                (frame.function.as_str(), frame.module.as_str()),
                (own, "[jit]")
            );
        }
        let lua = named("TRACE_7::app.lua:3");
        assert_eq!(
            (lua.function.as_str(), lua.file.as_deref(), lua.line),
            ("TRACE_7", Some("app.lua"), Some(3))
        );
        let java = named("Lcom/acme/Server;::handle");
        assert_eq!(
            (java.function.as_str(), java.module.as_str()),
            ("Lcom/acme/Server;::handle", "[jit]")
        );
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
