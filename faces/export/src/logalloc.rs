//! Mozilla's logalloc text (raw, or munged for its replayer) as a trace.
//!
//! ```text
//!   18545 18545 realloc(0x7f90495120e0,64)=0x7f9049536680     raw: addresses
//!   1 1 realloc(#1,64)=#1                                     munged: slots
//!        │  └ thread        a line is an event; a realloc is two (E2 of the trace)
//!        └ process: one of them is read
//! ```
//!
//! A1  One line of the log is one microsecond: the log has no times. It has no stacks and no usable sizes either: all
//!     blocks are of the empty stack, and the usable size is the requested one. The trace says so.
//! A2  A slot `#n` is not an address: its blocks get addresses from a bump pointer, reused by size, so that
//!     no two live blocks overlap. Raw addresses stay what they are.
//! A3  An allocation that failed (null) is no event, as in every trace.
//! A4  An error names the line and the column, both counted from 1, and nothing is guessed. A last line without a
//!     line end is a cut log: an address in it may lack digits. It is left out, and the trace says so.
//! A5  Memory: the live blocks, and an encoder for each thread.
//!
//! The format: memory/replace/logalloc/README in Firefox's sources. A line is written after the call, so two threads
//! may appear to hold one address for a moment; the analysis counts that. Not here: replaying.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead};

use crate::logalloc_line::{ADDRESS_LIMIT, BlockRef, Call, parse};
use rustc_hash::FxHashMap;
use skinflint_trace::{
    AllocFn, Ending, Event, EventEncoder, EventKind, Exit, FreeFn, Mark, NodeId, Sink, Thread,
    ThreadId, Writer,
};

/// The address at which blocks of slots begin (A2).
const SLOTS_BEGIN: u64 = 1 << 32;
/// The longest line that we accept; a file with a longer one is no log.
const LONGEST_LINE: usize = 4096;
/// The most threads that are distinguished.
const MAX_THREADS: usize = 1 << 16;

/// The reason why a log cannot be read.
#[derive(Debug)]
pub enum LogError {
    /// The file cannot be read.
    Read(io::Error),
    /// The trace cannot be written.
    Write(io::Error),
    /// A line does not follow the format.
    Malformed {
        /// Its number, from 1.
        line: u64,
        /// The column, from 1, in bytes.
        column: usize,
        /// What was expected there, and what is there.
        what: String,
    },
    /// The log has no event.
    Empty,
    /// There are several processes, and none was named: process id and number of events.
    Several(Vec<(u64, u64)>),
    /// The process that was named has no line.
    NoSuchProcess {
        /// The process id that was asked for.
        pid: u64,
        /// The processes that there are: process id and number of events.
        there: Vec<(u64, u64)>,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |there: &[(u64, u64)]| {
            let shown = there
                .iter()
                .take(20)
                .map(|(pid, lines)| format!("{pid} ({lines} lines)"));
            let shown: Vec<String> = shown.collect();
            let more = if there.len() > 20 { ", \u{2026}" } else { "" };
            format!("{}{more}", shown.join(", "))
        };
        match self {
            LogError::Read(error) => write!(
                f,
                "cannot be read: {error}; check the name and that you may read it"
            ),
            LogError::Write(error) => write!(
                f,
                "the trace cannot be written: {error}; name another file with --output"
            ),
            LogError::Malformed { line, column, what } => {
                write!(f, "line {line}, column {column}: {what}")
            }
            LogError::Empty => write!(
                f,
                "there is no whole line of a logalloc log in it; was MALLOC_LOG set?"
            ),
            LogError::Several(there) => write!(
                f,
                "several processes in one log; choose one with --pid: {}",
                list(there)
            ),
            LogError::NoSuchProcess { pid, there } => {
                write!(
                    f,
                    "--pid {pid}: no line of this process; there are: {}",
                    list(there)
                )
            }
        }
    }
}

impl std::error::Error for LogError {}

/// Assigns addresses to slots (A2).
#[derive(Default)]
struct Slots {
    next: u64,
    /// Address and room, by slot.
    live: FxHashMap<u64, (u64, u64)>,
    /// Free addresses, by room and alignment.
    free: FxHashMap<(u64, u64), Vec<u64>>,
    /// The alignment of a live slot.
    align: FxHashMap<u64, u64>,
}

impl Slots {
    /// Returns an address for a slot's block; `None` if the address space is used up.
    fn take(&mut self, slot: u64, size: u64, align: u64) -> Option<u64> {
        let room = size.max(1).checked_next_multiple_of(align)?;
        if let Some(&(at, _)) = self.live.get(&slot) {
            // Its release is missing from the log: the analysis finds that by the address.
            return Some(at);
        }
        let at = match self.free.get_mut(&(room, align)).and_then(Vec::pop) {
            Some(at) => at,
            None => {
                let at = self.next.max(SLOTS_BEGIN).checked_next_multiple_of(align)?;
                self.next = at.checked_add(room)?;
                at
            }
        };
        if self.next >= ADDRESS_LIMIT {
            return None;
        }
        self.live.insert(slot, (at, room));
        self.align.insert(slot, align);
        Some(at)
    }

    /// Frees the address of a slot's block and returns it; for an unknown slot, returns an address that no block has.
    fn give(&mut self, slot: u64) -> u64 {
        let align = self.align.remove(&slot).unwrap_or(16);
        match self.live.remove(&slot) {
            Some((at, room)) => {
                self.free.entry((room, align)).or_default().push(at);
                at
            }
            None => (SLOTS_BEGIN >> 1) + (slot % (SLOTS_BEGIN >> 6)) * 16,
        }
    }
}

/// The counts of what was read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// The process, as the log numbers it.
    pub pid: u64,
    /// The number of its lines.
    pub lines: u64,
    /// The number of events written: a realloc is two.
    pub events: u64,
    /// The number of its threads.
    pub threads: u64,
    /// Whether the last line was cut.
    pub cut: bool,
}

/// Events on their way to the trace.
struct Output<S: Sink> {
    writer: Writer<S>,
    threads: FxHashMap<u64, usize>,
    encoders: Vec<EventEncoder>,
    slots: Slots,
    ticket: u64,
    lines: u64,
    stats: u32,
}

impl<S: Sink> Output<S> {
    fn thread(&mut self, tid: u64) -> Result<usize, String> {
        if let Some(&index) = self.threads.get(&tid) {
            return Ok(index);
        }
        let index = self.encoders.len();
        if index >= MAX_THREADS {
            return Err(format!("more than {MAX_THREADS} threads"));
        }
        self.threads.insert(tid, index);
        let id = ThreadId(index as u32);
        self.encoders.push(EventEncoder::new(id));
        let thread = Thread {
            // glibc's thread ids are addresses: the lowest bits that differ distinguish them.
            tid: u32::try_from(tid).unwrap_or((tid >> 8) as u32),
            name: format!("thread {tid}"),
            started_ns: self.lines * 1000,
            ended_ns: None,
        };
        self.writer
            .thread(id, &thread)
            .map_err(|error| error.to_string())?;
        Ok(index)
    }

    fn push(&mut self, thread: usize, kind: EventKind) -> io::Result<()> {
        self.ticket += 1;
        let encoder = &mut self.encoders[thread];
        encoder.push(&Event {
            ticket: self.ticket,
            time_ns: self.lines * 1000,
            thread: ThreadId(thread as u32),
            kind,
        });
        if encoder.is_full()
            && let Some(block) = encoder.take()
        {
            self.writer.events(block)?;
        }
        Ok(())
    }

    fn acquired(&mut self, place: BlockRef, size: u64, align: u64) -> Result<u64, String> {
        match place {
            BlockRef::Address(address) => Ok(address),
            BlockRef::Slot(slot) => self
                .slots
                .take(slot, size, align)
                .ok_or_else(|| "blocks of more than 2^47 bytes in all".into()),
            BlockRef::Null => Err("no block".into()),
        }
    }

    fn released(&mut self, place: BlockRef) -> u64 {
        match place {
            BlockRef::Address(address) => address,
            BlockRef::Slot(slot) => self.slots.give(slot),
            BlockRef::Null => 0,
        }
    }

    fn call(&mut self, tid: u64, call: Call) -> Result<(), Failed> {
        let thread = self.thread(tid).map_err(Failed::Line)?;
        let node = NodeId(0);
        match call {
            Call::Alloc {
                result: BlockRef::Null,
                ..
            }
            | Call::Free(BlockRef::Null) => {}
            Call::Alloc {
                func,
                size,
                align,
                result,
            } => {
                let addr = self.acquired(result, size, align).map_err(Failed::Line)?;
                self.push(
                    thread,
                    EventKind::Alloc {
                        func,
                        node,
                        addr,
                        size,
                        usable: size,
                    },
                )?;
            }
            // The realloc failed, or it was asked for 0 bytes and released the block: the log distinguishes these
            // only by the size.
            Call::Realloc {
                old,
                size,
                result: BlockRef::Null,
            } => {
                if size == 0 && old != BlockRef::Null {
                    let addr = self.released(old);
                    self.push(
                        thread,
                        EventKind::Free {
                            func: FreeFn::Realloc,
                            addr,
                        },
                    )?;
                }
            }
            Call::Realloc { size, .. } if size >= ADDRESS_LIMIT => {
                return Err(Failed::Line(
                    "a realloc of more than 2^47 bytes succeeded".into(),
                ));
            }
            Call::Realloc {
                old: BlockRef::Null,
                size,
                result,
            } => {
                let addr = self.acquired(result, size, 16).map_err(Failed::Line)?;
                let func = AllocFn::Realloc;
                self.push(
                    thread,
                    EventKind::Alloc {
                        func,
                        node,
                        addr,
                        size,
                        usable: size,
                    },
                )?;
            }
            Call::Realloc { old, size, result } => {
                let addr = self.released(old);
                self.push(thread, EventKind::ReallocRelease { addr })?;
                let addr = self.acquired(result, size, 16).map_err(Failed::Line)?;
                self.push(
                    thread,
                    EventKind::ReallocAcquire {
                        node,
                        addr,
                        size,
                        usable: size,
                    },
                )?;
            }
            Call::Free(old) => {
                let addr = self.released(old);
                self.push(
                    thread,
                    EventKind::Free {
                        func: FreeFn::Free,
                        addr,
                    },
                )?;
            }
            Call::Stats => self.mark(thread)?,
        }
        Ok(())
    }

    /// Records `jemalloc_stats()`: the program read the figures at that moment.
    fn mark(&mut self, thread: usize) -> io::Result<()> {
        let mark = self.stats;
        self.stats += 1;
        self.push(thread, EventKind::Mark { mark })?;
        let known = Mark {
            name: format!("jemalloc_stats {}", mark + 1),
            time_ns: self.lines * 1000,
            ticket: self.ticket,
            thread: Some(ThreadId(thread as u32)),
        };
        self.writer.mark(mark, &known)
    }
}

/// The reason why a call was not accepted.
enum Failed {
    Line(String),
    Write(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Write(error)
    }
}

/// Reads lines, each without its end; returns whether the last one had an end. Stops at the first error.
fn each_line(
    input: &mut dyn BufRead,
    mut each: impl FnMut(u64, &[u8], bool) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = io::Read::take(&mut *input, LONGEST_LINE as u64 + 1);
        let read = limited
            .read_until(b'\n', &mut line)
            .map_err(LogError::Read)?;
        if read == 0 {
            break;
        }
        let ended = line.last() == Some(&b'\n');
        if !ended && read > LONGEST_LINE {
            let what =
                format!("a line of more than {LONGEST_LINE} bytes: this is not a log of logalloc");
            return Err(LogError::Malformed {
                line: number,
                column: 1,
                what,
            });
        }
        if ended {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        each(number, &line, ended)?;
    }
    Ok(())
}

/// Returns the processes of a log: id and number of lines, in order of appearance. Reads the whole log.
///
/// # Errors
/// The first line that cannot be read.
pub fn processes(input: &mut dyn BufRead) -> Result<Vec<(u64, u64)>, LogError> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    each_line(input, |number, line, ended| {
        if line.is_empty() {
            return Ok(());
        }
        match parse(line) {
            Ok((pid, ..)) if ended => match found.iter_mut().find(|(known, _)| *known == pid) {
                Some((_, lines)) => *lines += 1,
                None => found.push((pid, 1)),
            },
            Err((at, what)) if ended || found.is_empty() => {
                return Err(LogError::Malformed {
                    line: number,
                    column: at + 1,
                    what,
                });
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

/// Chooses the process to import.
///
/// # Errors
/// If there is none, or several and none was named.
pub fn choose(there: &[(u64, u64)], wanted: Option<u64>) -> Result<u64, LogError> {
    match (wanted, there) {
        (_, []) => Err(LogError::Empty),
        (Some(pid), there) if there.iter().any(|one| one.0 == pid) => Ok(pid),
        (Some(pid), there) => Err(LogError::NoSuchProcess {
            pid,
            there: there.to_vec(),
        }),
        (None, [one]) => Ok(one.0),
        (None, there) => Err(LogError::Several(there.to_vec())),
    }
}

/// Reads the lines of one process into a trace that has just been begun.
///
/// # Errors
/// The first line that cannot be read (A4), or an error of the trace's medium.
pub fn import<S: Sink>(
    input: &mut dyn BufRead,
    pid: u64,
    writer: Writer<S>,
) -> Result<Imported, LogError> {
    let mut done = Imported {
        pid,
        ..Imported::default()
    };
    let mut output = Output {
        writer,
        threads: FxHashMap::default(),
        encoders: Vec::new(),
        slots: Slots::default(),
        ticket: 0,
        lines: 0,
        stats: 0,
    };
    each_line(input, |number, line, ended| {
        if line.is_empty() {
            return Ok(());
        }
        if !ended {
            done.cut = true;
            return Ok(());
        }
        let (of, tid, call) = parse(line).map_err(|(at, what)| LogError::Malformed {
            line: number,
            column: at + 1,
            what,
        })?;
        if of != pid {
            return Ok(());
        }
        output.lines += 1;
        done.lines += 1;
        output.call(tid, call).map_err(|failed| match failed {
            Failed::Line(what) => LogError::Malformed {
                line: number,
                column: 1,
                what,
            },
            Failed::Write(error) => LogError::Write(error),
        })
    })?;
    done.events = output.ticket;
    done.threads = output.encoders.len() as u64;
    finish(output, &done).map_err(LogError::Write)?;
    Ok(done)
}

fn finish<S: Sink>(mut output: Output<S>, done: &Imported) -> io::Result<()> {
    for encoder in &mut output.encoders {
        if let Some(block) = encoder.take() {
            output.writer.events(block)?;
        }
    }
    let mut notes = vec![
        "Imported from a log of logalloc, which has no stacks, no usable sizes and no times: every block is \
         of one stack, nothing is slop, and a line is a microsecond."
            .to_owned(),
    ];
    if done.cut {
        notes.push("The log was cut within its last line; what precedes it is here.".into());
    }
    output.writer.ending(&Ending {
        exit: Exit::Unknown,
        time_ns: done.lines * 1000,
        events: done.events,
        notes,
        ..Ending::default()
    })
}

/// The writer of a trace file for a log.
pub type FileWriter = Writer<File>;

#[cfg(test)]
#[path = "logalloc_tests.rs"]
mod tests;
