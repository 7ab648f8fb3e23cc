//! Opening a trace: headers are scanned, everything but the events is loaded, and the events are indexed.
//!
//! ```text
//!   header ─► block ─► block ─► (no block here) ─ search ─► block ─► … ─► ending, or the cut
//!              │index  │loaded        │Damage
//! ```
//!
//! R1  The scan goes forward at each step, so it ends; it reads each byte at most a few times.
//! R2  Nothing is allocated for what a header claims beyond what the file holds (a payload is there
//!     in full before it is read) and the limits of block.rs.
//! R3  Memory: everything that is not events, and 32 bytes for each block of events.
//! R4  There are only positioned reads, no mapping: a file that is cut while it is read gives a short read,
//!     never a SIGBUS.
//!
//! Not here: events (merge.rs).

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::block::{
    BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FILE_MAGIC, Header, MAJOR, Unpacker, kind,
    read_file_header,
};
use crate::codes::{Code, get_codes};
use crate::event::NodeId;
use crate::info::*;
use crate::kinds::{Kind, get_kinds};
use crate::look::{Look, each_pointer, get_look};
use crate::merge::Events;
use crate::meta;
use crate::nodes::NodeTable;
use crate::search::Window;
use crate::source::{Damage, Entry, Source, add_damage, load};
use skinflint_framing::varint::{Cursor, Malformed};

/// Why a file cannot be read as a trace. Each message says what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused to read it.
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is a pipe, a socket or a device.
    NotAFile {
        /// Its name.
        path: PathBuf,
    },
    /// It has no bytes.
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It ends within the header of the file.
    Cut {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// It is something else.
    NotATrace {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        looks_like: &'static str,
    },
    /// It was written by a later major version.
    Newer {
        /// The file.
        path: PathBuf,
        /// Its major version.
        major: u16,
    },
    /// It has samples of the acquisitions, and the reader needs all of them; [`Trace::open`] does not say so.
    Sampled {
        /// The file.
        path: PathBuf,
        /// The mean distance of samples, bytes.
        sample_bytes: u64,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Read { path, source } => write!(
                f,
                "cannot read {}: {source}; check the name and that you may read it",
                path.display()
            ),
            OpenError::NotAFile { path } => write!(
                f,
                "{} is a pipe, a socket or a device: a trace is read from several places of it at a time; \
                 write it into a file first",
                path.display()
            ),
            OpenError::Empty { path } => write!(
                f,
                "{} is empty: nothing was recorded, not even who ran; the recorder was stopped \
                 before it began, or the disk was full; record again",
                path.display()
            ),
            OpenError::Cut { path, bytes } => write!(
                f,
                "{} ends after {bytes} bytes, within the header of a trace ({FILE_HEADER_BYTES} \
                 bytes): nothing can be read; copy it again if it was copied, or else record again",
                path.display()
            ),
            OpenError::NotATrace { path, looks_like } => write!(
                f,
                "{} is not a Skinflint trace: it looks like {looks_like}; traces are written by \
                 `skinflint record` and end in .sft",
                path.display()
            ),
            OpenError::Newer { path, major } => write!(
                f,
                "{} has format version {major}, this Skinflint reads up to version {MAJOR}: read it \
                 with the Skinflint that recorded it, or a later one",
                path.display()
            ),
            OpenError::Sampled { path, sample_bytes } => write!(
                f,
                "{} is a sampled recording (one block every {sample_bytes} bytes), and this needs every event: \
                 `skinflint report` shows what samples tell; for more, record again without --sample",
                path.display()
            ),
        }
    }
}

/// Has no source: the message holds it already, and code that prints the chain would print it twice.
impl std::error::Error for OpenError {}

/// A block of pointers in the file.
#[derive(Clone, Copy, Debug)]
struct PointerEntry {
    offset: u64,
    payload_len: u32,
    look: u32,
}

/// An opened trace. The fields hold what was read; see [`Trace::damage`] for what was not.
pub struct Trace {
    /// The recorded process.
    pub process: ProcessInfo,
    /// The threads, by [`crate::ThreadId`]; long enough for every thread that has events.
    pub threads: Vec<Thread>,
    /// The modules, in the order in which they were written.
    pub modules: Vec<Module>,
    /// The codes of an interpreter that nodes name, by id less one; what is missing is empty.
    pub codes: Vec<Code>,
    /// The types of the objects in blocks that were looked at.
    pub kinds: Vec<Kind>,
    /// The marks, by index.
    pub marks: Vec<Mark>,
    /// In the order in which they were taken.
    pub rss: Vec<RssSample>,
    /// In the order in which they were taken.
    pub snapshots: Vec<Snapshot>,
    /// The processes that came out of this one and have no trace, in the order in which they were missed.
    pub lost: Vec<LostProcess>,
    /// The looks at the program's pointers, in the order in which they were taken.
    pub looks: Vec<Look>,
    /// How the recording ended; `None` if it was cut, as a crash leaves it.
    pub ending: Option<Ending>,
    /// What could not be read, found when opening. Damage inside event blocks shows when they are
    /// read: [`Events::damage`].
    pub damage: Vec<Damage>,
    /// Format version of the file: major, minor.
    pub version: (u16, u16),
    nodes: NodeTable,
    pointers: Vec<PointerEntry>,
    index: Arc<Vec<Entry>>,
    source: Arc<Source>,
    events: u64,
    last_ticket: Option<u64>,
    bytes: u64,
}

impl Trace {
    /// Opens the file and reads its header. Returns the scan, and the offset at which it begins.
    pub(crate) fn begin(path: &Path) -> Result<(Scan, u64), OpenError> {
        let refused = |source| OpenError::Read {
            path: path.to_owned(),
            source,
        };
        // Checked before it is opened: opening a pipe waits for a writer.
        let about = std::fs::metadata(path).map_err(refused)?;
        if about.is_dir() {
            return Err(refused(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        if !about.is_file() {
            return Err(OpenError::NotAFile {
                path: path.to_owned(),
            });
        }
        let file = File::open(path).map_err(refused)?;
        let about = file.metadata().map_err(refused)?;
        Self::read(Source::File(file), about.len(), path)
    }

    /// Opens a trace in memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn from_bytes(bytes: Vec<u8>, path: impl AsRef<Path>) -> Result<Trace, OpenError> {
        let len = bytes.len() as u64;
        let (mut scan, start) = Self::read(Source::Bytes(bytes), len, path.as_ref())?;
        scan.run(start);
        Ok(scan.finish())
    }

    /// Returns the present length of the file.
    pub(crate) fn source_bytes(&self) -> io::Result<u64> {
        match &*self.source {
            Source::File(file) => Ok(file.metadata()?.len()),
            Source::Bytes(bytes) => Ok(bytes.len() as u64),
            Source::Files(_) => Ok(self.bytes),
        }
    }

    /// Returns the events of some blocks, which are sorted by first ticket.
    pub(crate) fn events_of(&self, index: Arc<Vec<Entry>>) -> Events {
        Events::new(Arc::clone(&self.source), index)
    }

    pub(crate) fn read(source: Source, bytes: u64, path: &Path) -> Result<(Scan, u64), OpenError> {
        let mut first = [0; FILE_HEADER_BYTES];
        let got = source
            .read_at(&mut first, 0)
            .map_err(|source| OpenError::Read {
                path: path.to_owned(),
                source,
            })?;
        check_magic(&first, got, path)?;
        let header = read_file_header(&first);
        let mut damage = Vec::new();
        let mut start = FILE_HEADER_BYTES as u64;
        if !header.whole {
            damage.push(Damage {
                offset: 0,
                bytes: FILE_HEADER_BYTES as u64,
                events: 0,
                what: "the header of the file is damaged".into(),
            });
        } else if header.major != MAJOR {
            return Err(OpenError::Newer {
                path: path.to_owned(),
                major: header.major,
            });
        } else {
            start = u64::from(header.len).max(start);
        }
        let scan = Scan {
            is_growing: false,
            bytes,
            expected_sequence: 0,
            last_tickets: FxHashMap::default(),
            index: Vec::new(),
            threads: Vec::new(),
            unpacker: Unpacker::default(),
            raw: Vec::new(),
            window: Window::default(),
            has_process: false,
            is_next: false,
            next: None,
            repeated: 0,
            trace: Trace {
                process: ProcessInfo::default(),
                threads: Vec::new(),
                modules: Vec::new(),
                codes: Vec::new(),
                kinds: Vec::new(),
                marks: Vec::new(),
                rss: Vec::new(),
                snapshots: Vec::new(),
                lost: Vec::new(),
                looks: Vec::new(),
                ending: None,
                damage,
                version: (header.major, header.minor),
                nodes: NodeTable::new(),
                pointers: Vec::new(),
                index: Arc::new(Vec::new()),
                source: Arc::new(source),
                events: 0,
                last_ticket: None,
                bytes,
            },
        };
        Ok((scan, start))
    }

    /// Returns a node of the stack tree: its caller's node and its return address. `None` if it is not in
    /// the trace. Node 0 is the empty stack.
    #[inline]
    pub fn node(&self, id: NodeId) -> Option<(NodeId, u64)> {
        self.nodes
            .get(id.0)
            .map(|(parent, pc)| (NodeId(parent), pc))
    }

    /// Returns the number of nodes in the tree, the root included: ids are below this.
    pub fn node_count(&self) -> u32 {
        self.nodes.len()
    }

    /// Returns the number of events in the file, by the headers.
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Returns the largest ticket of an event in the file, by the headers; `None` if there are no events.
    pub fn last_ticket(&self) -> Option<u64> {
        self.last_ticket
    }

    /// Returns the length of the file when it was opened.
    pub fn file_bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of blocks of events in the file.
    pub fn event_blocks(&self) -> usize {
        self.index.len()
    }

    /// Passes the words of a look to `each`, by ascending address: where a word lies, and what it holds. Memory: one
    /// block. Returns whether these were all of its words (look.V1).
    pub fn pointers(&self, look: &Look, each: &mut dyn FnMut(u64, u64)) -> bool {
        let (mut unpacker, mut raw, mut words) = (Unpacker::default(), Vec::new(), 0);
        for entry in self.pointers.iter().filter(|one| one.look == look.number) {
            let loaded = load(
                &self.source,
                entry.offset,
                entry.payload_len,
                &mut unpacker,
                &mut raw,
            );
            match loaded.and_then(|_| each_pointer(&raw, each)) {
                Ok(read) => words += read,
                Err(_) => return false,
            }
        }
        words == look.words
    }

    /// Returns all events, in the order of tickets. Memory: one block for each thread that is in the middle
    /// of one. Each call starts from the beginning.
    pub fn events(&self) -> Events {
        Events::new(Arc::clone(&self.source), Arc::clone(&self.index))
    }
}

fn check_magic(first: &[u8; FILE_HEADER_BYTES], got: usize, path: &Path) -> Result<(), OpenError> {
    let path = || path.to_owned();
    if got == 0 {
        return Err(OpenError::Empty { path: path() });
    }
    let first = &first[..got];
    if got >= FILE_MAGIC.len() && first.starts_with(&FILE_MAGIC) {
        if got < FILE_HEADER_BYTES {
            return Err(OpenError::Cut {
                path: path(),
                bytes: got as u64,
            });
        }
        return Ok(());
    }
    if FILE_MAGIC.starts_with(first) {
        return Err(OpenError::Cut {
            path: path(),
            bytes: got as u64,
        });
    }
    let looks_like = if first.starts_with(&FILE_MAGIC[..4]) || first.starts_with(b"\x09SFT") {
        "a trace whose line ends were converted by a transfer in text mode (copy it as binary)"
    } else if first.starts_with(&[0x1f, 0x8b]) {
        "gzip-compressed data (unpack it first)"
    } else if first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        "zstd-compressed data (unpack it first)"
    } else if first.starts_with(b"\x7fELF") {
        "a program or library (ELF); give the trace, not the program"
    } else if first.starts_with(b"{") || first.starts_with(b"[") {
        "JSON"
    } else if first.starts_with(b"<") {
        "HTML or XML"
    } else if first.iter().all(|&byte| byte == 0) {
        "noughts, as a crash of the machine may leave"
    } else if first
        .iter()
        .all(|&byte| byte >= 0x20 || matches!(byte, b'\t' | b'\r' | b'\n'))
    {
        "text"
    } else {
        "binary data of another kind"
    };
    Err(OpenError::NotATrace {
        path: path(),
        looks_like,
    })
}

/// The name of marks that were made before what is kept.
const BEFORE: &str = "(before what is kept)";

/// Leaves out what was read of a moment before what is kept, and written after: which blocks lived then is not known.
fn leave_out_before(trace: &mut Trace) {
    let Some(segment) = &trace.process.segment else {
        return;
    };
    let is_of_it = |time_ns, ticket| time_ns >= segment.since_ns && ticket >= segment.ticket;
    trace.rss.retain(|one| is_of_it(one.time_ns, one.ticket));
    trace
        .snapshots
        .retain(|one| is_of_it(one.time_ns, one.ticket));
}

/// The most marks of dropped segments for which a place is kept.
const MARKS_BEFORE: u32 = 1 << 16;

/// The scan of a file, from block to block.
pub(crate) struct Scan {
    /// Whether to stop before an incomplete block, instead of calling it damage.
    pub(crate) is_growing: bool,
    pub(crate) bytes: u64,
    pub(crate) expected_sequence: u32,
    /// The last ticket of the latest block of events, by thread.
    last_tickets: FxHashMap<u32, u64>,
    pub(crate) index: Vec<Entry>,
    threads: Vec<(u32, Thread)>,
    unpacker: Unpacker,
    raw: Vec<u8>,
    window: Window,
    has_process: bool,
    /// Whether the file follows another segment, so that what it repeats is skipped.
    pub(crate) is_next: bool,
    /// The number of the newest segment that follows another one, and whether it follows that.
    pub(crate) next: Option<(u64, bool)>,
    /// The events that it repeats.
    pub(crate) repeated: u64,
    pub(crate) trace: Trace,
}

impl Scan {
    /// Scans from the offset `start` on. Returns the offset at which it stopped.
    pub(crate) fn run(&mut self, start: u64) -> u64 {
        let mut at = start;
        while at < self.bytes {
            let mut head = [0; BLOCK_HEADER_BYTES];
            let got = self.read_at(&mut head, at);
            if self.is_growing && got < BLOCK_HEADER_BYTES {
                return at;
            }
            let header = Header::from_bytes(&head[..got]);
            let Some(header) = header.filter(|header| header.check_lengths().is_ok()) else {
                at = self.search(at, got);
                continue;
            };
            let end = at + BLOCK_HEADER_BYTES as u64 + u64::from(header.payload_len);
            let events = if header.kind == kind::EVENTS {
                u64::from(header.events)
            } else {
                0
            };
            if end > self.bytes && self.is_growing {
                return at;
            }
            if end > self.bytes {
                let what = format!("the file is cut within a block of {} bytes", end - at);
                self.damaged(at, self.bytes - at, events, what);
                return self.bytes;
            }
            self.check_sequence(at, header.sequence);
            if self.is_next && header.repeats {
                at = end;
                continue;
            }
            if header.kind == kind::EVENTS {
                self.check_order(at, &header);
                self.trace.events += events;
                self.trace.last_ticket = self.trace.last_ticket.max(Some(header.last_ticket));
                self.index.push(Entry {
                    offset: at,
                    first_ticket: header.first_ticket,
                    payload_len: header.payload_len,
                    events: header.events,
                    thread: header.stream,
                });
            } else if header.kind == kind::POINTERS {
                self.trace.pointers.push(PointerEntry {
                    offset: at,
                    payload_len: header.payload_len,
                    look: header.stream,
                });
            } else if let Err(Malformed(what)) = self.meta_block(at, &header) {
                self.damaged(
                    at,
                    end - at,
                    0,
                    format!("{} block: {what}", kind_name(header.kind)),
                );
            }
            at = end;
            if self.trace.ending.is_some() && at < self.bytes {
                self.damaged(at, self.bytes - at, 0, "bytes after the end mark".into());
                return self.bytes;
            }
        }
        at
    }

    fn damaged(&mut self, offset: u64, bytes: u64, events: u64, what: String) {
        add_damage(
            &mut self.trace.damage,
            Damage {
                offset,
                bytes,
                events,
                what,
            },
        );
    }

    /// Finds the next whole header after `at`, and notes what is skipped. Returns the offset at which to go on.
    fn search(&mut self, at: u64, got: usize) -> u64 {
        let found = self.window.next_header(&self.trace.source, at + 1);
        let next = found.unwrap_or(self.bytes);
        let what = if found.is_some() {
            "bytes that are no block"
        } else if got < BLOCK_HEADER_BYTES {
            "the file is cut within the header of a block"
        } else {
            "bytes that are no block, up to the end"
        };
        self.damaged(at, next - at, 0, what.into());
        next
    }

    fn check_sequence(&mut self, at: u64, sequence: u32) {
        let missing = sequence.wrapping_sub(self.expected_sequence);
        self.expected_sequence = sequence.wrapping_add(1);
        if missing == 0 {
            return;
        }
        let what = if missing < u32::MAX / 2 {
            format!("{missing} blocks before this one are missing")
        } else {
            "a block that belongs before this place".into()
        };
        match self.trace.damage.last_mut() {
            // The gap was seen already; now the number of missing blocks is known.
            Some(last) if last.offset + last.bytes == at => {
                last.what = format!("{} ({what})", last.what);
            }
            _ => self.damaged(at, 0, 0, what),
        }
    }

    /// Checks that tickets rise within a thread. Marks from outside share one ticket if the program does nothing
    /// between them (event.E1), and a block may end between two of those. A block of another trace is found here,
    /// if its checksums and its sequence are right.
    fn check_order(&mut self, at: u64, header: &Header) {
        let last = self.last_tickets.insert(header.stream, header.last_ticket);
        if last.is_some_and(|last| header.first_ticket < last) {
            let what = format!(
                "events of thread {} that do not come after those before them; figures from there on may be wrong",
                header.stream
            );
            self.damaged(at, 0, 0, what);
        }
    }

    fn meta_block(&mut self, at: u64, header: &Header) -> Result<(), Malformed> {
        if !(kind::PROCESS..=kind::KINDS).contains(&header.kind) {
            return Ok(());
        }
        load(
            &self.trace.source,
            at,
            header.payload_len,
            &mut self.unpacker,
            &mut self.raw,
        )?;
        let raw = std::mem::take(&mut self.raw);
        let result = self.meta_content(header.kind, &mut Cursor::new(&raw));
        self.raw = raw;
        result
    }

    fn meta_content(&mut self, kind: u8, from: &mut Cursor<'_>) -> Result<(), Malformed> {
        let trace = &mut self.trace;
        match kind {
            kind::PROCESS => {
                let process = meta::get_process(from)?;
                self.has_process = true;
                match self.is_next {
                    true => self.follows(&process),
                    false => trace.process = process,
                }
            }
            kind::NODES => {
                let lost: u64 = trace.damage.iter().map(|damage| damage.bytes).sum();
                let missing = trace.nodes.append(from, lost.saturating_mul(16))?;
                if missing > 0 {
                    let what = format!("{missing} stacks are missing");
                    add_damage(
                        &mut trace.damage,
                        Damage {
                            offset: 0,
                            bytes: 0,
                            events: 0,
                            what,
                        },
                    );
                }
            }
            kind::MODULES => trace.modules.extend(meta::get_modules(from)?),
            kind::THREADS => {
                while !from.is_empty() {
                    let (id, thread) = meta::get_thread(from)?;
                    self.threads.push((id.0, thread));
                }
            }
            kind::MARK => {
                let (index, mark) = meta::get_mark(from)?;
                let lost: u64 = trace.damage.iter().map(|damage| damage.bytes / 64).sum();
                let before = trace.process.segment.as_ref().map_or(0, |one| one.marks);
                let lost = lost + u64::from(before.min(MARKS_BEFORE));
                let len = trace.marks.len();
                if u64::from(index) > len as u64 + lost {
                    return Err(Malformed("a mark far beyond the marks before it"));
                }
                if index as usize >= len {
                    let name = match before {
                        0 => "",
                        _ => BEFORE,
                    };
                    let gap = Mark {
                        name: name.into(),
                        time_ns: 0,
                        ticket: 0,
                        thread: None,
                    };
                    trace.marks.resize(index as usize + 1, gap);
                }
                trace.marks[index as usize] = mark;
            }
            kind::RSS => trace.rss.extend(meta::get_rss(from)?),
            kind::SNAPSHOT => trace.snapshots.push(meta::get_snapshot(from)?),
            kind::ENDING => trace.ending = Some(meta::get_ending(from)?),
            kind::LOST => {
                while !from.is_empty() {
                    trace.lost.push(meta::get_lost(from)?);
                }
            }
            kind::LOOK => trace.looks.push(get_look(from)?),
            kind::CODES => {
                let lost: u64 = trace.damage.iter().map(|damage| damage.bytes).sum();
                get_codes(from, &mut trace.codes, lost)?;
            }
            kind::KINDS => get_kinds(from, &mut trace.kinds)?,
            _ => {}
        }
        Ok(())
    }

    /// Notes who was recorded into a segment that follows another one.
    fn follows(&mut self, process: &ProcessInfo) {
        let of_it = |one: &&Segment| one.follows && process.uid == self.trace.process.uid;
        let segment = process.segment.as_ref();
        self.next = segment.map(|one| (one.number, of_it(&one)));
        self.repeated = segment.map_or(0, |one| one.events);
    }

    /// Reads bytes of the file; fewer only at its end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        self.trace.source.read_at(buffer, offset).unwrap_or(0)
    }

    pub(crate) fn finish(mut self) -> Trace {
        if !self.has_process {
            let what = "who was recorded is not known: that block is missing".into();
            self.damaged(0, 0, 0, what);
        }
        // Ids are dense, so an id far above the number of records is damage, not a thread.
        let plausible = 65_536 + 4 * (self.threads.len() + self.index.len()) as u64;
        let mut trace = self.trace;
        let mut count = 0;
        for id in self
            .threads
            .iter()
            .map(|(id, _)| *id)
            .chain(self.index.iter().map(|e| e.thread))
        {
            if u64::from(id) < plausible {
                count = count.max(id as usize + 1);
            }
        }
        trace.threads.resize_with(count, Thread::default);
        for (id, thread) in self.threads {
            if let Some(slot) = trace.threads.get_mut(id as usize) {
                *slot = thread;
            }
        }
        self.index.retain(|entry| {
            let known = (entry.thread as usize) < count;
            if !known {
                trace.events -= u64::from(entry.events);
                let what = format!("events of thread {}, which cannot be", entry.thread);
                let bytes = u64::from(entry.payload_len) + BLOCK_HEADER_BYTES as u64;
                let events = u64::from(entry.events);
                add_damage(
                    &mut trace.damage,
                    Damage {
                        offset: entry.offset,
                        bytes,
                        events,
                        what,
                    },
                );
            }
            known
        });
        // The order that a merge needs; the sort is stable, so that a thread's blocks stay in order.
        self.index.sort_by_key(|entry| entry.first_ticket);
        self.index.shrink_to_fit();
        leave_out_before(&mut trace);
        trace.index = Arc::new(self.index);
        trace
    }
}

fn kind_name(number: u8) -> &'static str {
    match number {
        kind::PROCESS => "process",
        kind::NODES => "nodes",
        kind::EVENTS => "events",
        kind::MODULES => "modules",
        kind::THREADS => "threads",
        kind::MARK => "mark",
        kind::RSS => "rss",
        kind::SNAPSHOT => "snapshot",
        kind::ENDING => "ending",
        kind::LOST => "lost",
        kind::POINTERS => "pointers",
        kind::LOOK => "look",
        kind::CODES => "codes",
        kind::KINDS => "kinds",
        _ => "unknown",
    }
}
