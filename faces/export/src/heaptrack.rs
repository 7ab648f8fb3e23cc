//! heaptrack's text, version 3, as `heaptrack_interpret` writes it: for its GUI and `heaptrack_print`.
//!
//! ```text
//!   v X I   s (strings)   i (frames)   t (stacks)   a (size, stack)   then   c R + - in order of events
//! ```
//!
//! H1  Stack `k` of the file is node `k` of the report; the one after the last is [`NO_STACK`].
//! H2  There is a `+` for each acquisition, a `-` for each release; a realloc is both. So heaptrack's counts of
//!     calls, its peak and what it calls leaked are the report's, in requested bytes.
//! H3  The events are read once more and not kept: the memory is that of the ledger.
//! H4  Blocks that a fork gave to the process are not in the file: they have no acquisition.
//!
//! Numbers are hexadecimal except where the format has decimal ones. The only document of the format is its reader
//! (accumulatedtracedata.cpp of heaptrack). Not here: compression.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::model::Frame;
use skinflint_analysis::pass::{Act, CellId, Context};
use skinflint_trace::{Event, RssSample};

use crate::source::{NO_STACK, Source, name};

/// The version of heaptrack that has this format.
const WRITTEN_AS: u32 = 0x10400;
/// The interval between time stamps, as in heaptrack itself.
const STAMP_MS: u64 = 10;

/// Strings, by number from 1; 0 stands for none.
struct Strings<'o> {
    out: &'o mut dyn Write,
    known: FxHashMap<String, usize>,
}

impl Strings<'_> {
    fn number(&mut self, text: &str) -> io::Result<usize> {
        if text.is_empty() {
            return Ok(0);
        }
        if let Some(&number) = self.known.get(text) {
            return Ok(number);
        }
        let number = self.known.len() + 1;
        self.known.insert(text.into(), number);
        let line: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        writeln!(self.out, "s {:x} {line}", line.len())?;
        Ok(number)
    }

    fn frame(&mut self, index: usize, frame: &Frame) -> io::Result<()> {
        let module = self.number(&frame.module)?;
        let function = self.number(name(frame))?;
        let file = self.number(frame.file.as_deref().unwrap_or_default())?;
        let line = frame.line.unwrap_or(0);
        // The address only distinguishes frames.
        writeln!(
            self.out,
            "i {:x} {module:x} {function:x} {file:x} {line:x}",
            index + 1
        )
    }
}

/// A file being written.
struct Stream<'o> {
    out: &'o mut dyn Write,
    /// The number of the `a` line, by cell.
    infos: Vec<u32>,
    stamped_ms: u64,
    error: Option<io::Error>,
}

impl Stream<'_> {
    fn line(&mut self, letter: char, number: u64) {
        if self.error.is_none() {
            self.error = writeln!(self.out, "{letter} {number:x}").err();
        }
    }

    fn cell(&mut self, letter: char, cell: CellId) {
        match self.infos.get(cell.0 as usize).copied() {
            Some(info) => self.line(letter, u64::from(info)),
            None => self.error = Some(io::Error::other("the events changed between two readings")),
        }
    }

    fn stamp(&mut self, time_ns: u64) {
        let ms = time_ns / 1_000_000;
        if ms >= self.stamped_ms + STAMP_MS {
            self.stamped_ms = ms;
            self.line('c', ms);
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Acquire { block, .. } => self.cell('+', block.cell),
            Act::Release { block, .. } => self.cell('-', block.cell),
            Act::Regrow { old, new } => {
                self.cell('-', old.cell);
                self.cell('+', new.cell);
            }
            Act::Mark { .. } => {}
        }
    }
}

/// The data that only the trace has, not the report.
pub struct Recorded<'a> {
    /// Samples of resident memory, by time.
    pub rss: &'a [RssSample],
    /// The size of the kernel's pages in bytes; 0 is taken as 4096.
    pub os_page_bytes: u64,
}

/// Writes the file. `each` is called twice and passes all events, in order, to its argument, after having the ledger
/// inherit what a fork left. Cost: two readings of the trace.
///
/// # Errors
/// Those of `out`; and if the events are not the same both times.
pub fn write(
    source: Source<'_>,
    recorded: &Recorded<'_>,
    mut each: impl FnMut(&mut Ledger, &mut dyn FnMut(&mut Ledger, &Event)),
    out: &mut dyn Write,
) -> io::Result<()> {
    let page = recorded.os_page_bytes.max(1);
    let page = if recorded.os_page_bytes == 0 {
        4096
    } else {
        page
    };
    let program = &source.report.program;
    let command: Vec<String> = program
        .argv
        .iter()
        .map(|text| text.replace('\n', " "))
        .collect();
    writeln!(out, "v {WRITTEN_AS:x} 3")?;
    writeln!(out, "X {}", command.join(" "))?;
    writeln!(out, "I {page:x} 0")?;
    writeln!(out, "# {}", source.headline())?;
    stacks(source, out)?;
    let mut first = Ledger::new(16);
    each(&mut first, &mut |ledger, event| {
        ledger.apply(event, &mut |_, _| {})
    });
    let infos = infos(source, &first, out)?;
    drop(first);
    let mut stream = Stream {
        out,
        infos,
        stamped_ms: 0,
        error: None,
    };
    let mut samples = recorded.rss.iter().peekable();
    let mut ledger = Ledger::new(16);
    each(&mut ledger, &mut |ledger, event| {
        while let Some(sample) = samples.next_if(|sample| sample.time_ns <= event.time_ns) {
            stream.stamp(sample.time_ns);
            stream.line('R', sample.rss_bytes / page);
        }
        stream.stamp(event.time_ns);
        ledger.apply(event, &mut |_: &Context<'_>, act: &Act| stream.act(act));
    });
    for sample in samples {
        stream.stamp(sample.time_ns);
        stream.line('R', sample.rss_bytes / page);
    }
    stream.stamp(program.duration_ns);
    match stream.error {
        Some(error) => Err(error),
        None => stream.out.flush(),
    }
}

/// Writes strings, frames and stacks (H1).
fn stacks(source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let frames = &source.report.frames;
    let mut strings = Strings {
        out,
        known: FxHashMap::default(),
    };
    for (index, frame) in frames.iter().enumerate() {
        strings.frame(index, frame)?;
    }
    let none = Frame {
        function: NO_STACK.into(),
        ..Frame::default()
    };
    strings.frame(frames.len(), &none)?;
    for (index, node) in source.report.nodes.iter().enumerate().skip(1) {
        let parent = if (node.parent as usize) < index {
            node.parent
        } else {
            0
        };
        let frame = (node.frame as usize).min(frames.len()) + 1;
        writeln!(strings.out, "t {frame:x} {parent:x}")?;
    }
    writeln!(strings.out, "t {:x} 0", frames.len() + 1)
}

/// Writes one line for each size of each stack; returns which line belongs to which cell.
fn infos(source: Source<'_>, ledger: &Ledger, out: &mut dyn Write) -> io::Result<Vec<u32>> {
    let report_nodes = source.lives.report_nodes(source.report);
    let no_stack = source.report.nodes.len().max(1) as u32;
    let mut known: FxHashMap<(u64, u32), u32> = FxHashMap::default();
    let mut infos = Vec::with_capacity(ledger.cells().keys().len());
    for key in ledger.cells().keys() {
        let stack = match report_nodes.get(&key.node) {
            None | Some(0) => no_stack,
            Some(&node) => node,
        };
        let next = known.len() as u32;
        let info = *known.entry((key.size, stack)).or_insert(next);
        if info == next {
            writeln!(out, "a {:x} {stack:x}", key.size)?;
        }
        infos.push(info);
    }
    Ok(infos)
}
