//! Writing a trace: blocks in, bytes out, whole blocks only.
//!
//! ```text
//!   events(RawBlock) ─┐
//!   nodes, modules …  ├─► compress ─► [header | payload] in one buffer ─► write_all ─► end += len
//!   ending           ─┘                                         error ─► truncate to `end`, full
//! ```
//!
//! W1  After every call, successful or not, the file ends after a whole block, as far as the sink can
//!     be truncated; `end` is that length.
//! W2  After the first block that could not be written, only the ending is written: what is in
//!     the file stays a prefix of the recording, with every stack that its events name.
//! W3  Events that are not in the file are counted, and the ending says how many and why. To make
//!     room for it, blocks are given back from the end.
//! W4  Memory is bounded: one buffer, the starts of the last `GIVE_BACK` blocks, and thread records
//!     up to `THREADS_BYTES`.
//!
//! Not here: the caller (the collector), SIGXFSZ (the process must ignore it, or a limit on file size
//! ends the collector before an error is seen).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use crate::block::{self, BLOCK_HEADER_BYTES, Header, MAX_EVENTS_RAW, MAX_META_RAW, kind};
use crate::codes::{CODES_PER_BLOCK, Code, put_codes};
use crate::encode::RawBlock;
use crate::event::ThreadId;
use crate::info::*;
use crate::kinds::{Kind, PAIRS_PER_BLOCK, put_kinds};
use crate::look::{Look, Pointers, put_look};
use crate::meta;
use crate::nodes::{NODES_PER_BLOCK, put_nodes};
use skinflint_framing::payload::{self, Packer};

/// The most blocks that can be given back to make room for the ending.
const GIVE_BACK: usize = 64;
/// Thread records are gathered up to this many bytes, or until the next events.
const THREADS_BYTES: usize = 16 << 10;
/// The zstd level that [`Writer::create`] uses. Level 3 saves about 5 % of the file (g++ compiling <regex>,
/// 3.4 million events: 1.17 to 1.11 bytes per event) for 4 ns more per event; measured 2026-11-21 on
/// a shared two-core EPYC.
pub const DEFAULT_LEVEL: i32 = 1;

/// The destination of a trace: something that can be appended to and cut.
pub trait Sink: Write {
    /// Cuts the content to `len` bytes, and continues there.
    ///
    /// # Errors
    /// Those of the medium.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

impl Sink for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(SeekFrom::Start(len)).map(|_| ())
    }
}

/// Why and where writing stopped.
#[derive(Debug)]
struct Full {
    at: u64,
    why: String,
    lost_blocks: u64,
}

/// Writes one trace. Not thread-safe: it belongs to the thread that writes.
///
/// Every method but [`create`](Self::create) and [`ending`](Self::ending) returns the first error
/// once and then quietly counts what it has to drop: the program that is recorded goes on.
pub struct Writer<S: Sink = File> {
    sink: S,
    packer: Packer,
    /// The header and payload of the block that is being written.
    buffer: Vec<u8>,
    raw: Vec<u8>,
    threads: Vec<u8>,
    repeats: bool,
    end: u64,
    sequence: u32,
    events: u64,
    lost_events: u64,
    /// The start and the number of events of each of the last blocks.
    recent: VecDeque<(u64, u32)>,
    full: Option<Full>,
}

impl Writer<File> {
    /// Creates the file. If it exists, it is emptied: no program must be reading it.
    ///
    /// # Errors
    /// If the file cannot be created, or the first block cannot be written: no file is left then. The error names the
    /// path.
    pub fn create(path: &Path, process: &ProcessInfo) -> io::Result<Self> {
        Self::create_with(path, process, DEFAULT_LEVEL)
    }

    /// Does what [`create`](Self::create) does, with a zstd level (1 fast … 19 small; others are cut to the range).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(path: &Path, process: &ProcessInfo, level: i32) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("cannot write the trace {}: {error}", path.display()),
            )
        };
        let file = File::create(path).map_err(named)?;
        Self::new(file, process, level)
            .inspect_err(|_| {
                // A file without its first block says nothing, and looks like a trace. A device is left alone.
                if path.symlink_metadata().is_ok_and(|about| about.is_file()) {
                    let _ = std::fs::remove_file(path);
                }
            })
            .map_err(named)
    }
}

impl<S: Sink> Writer<S> {
    /// Begins a trace in an empty sink.
    ///
    /// # Errors
    /// If the sink does not take the header and the process's block.
    pub fn new(sink: S, process: &ProcessInfo, level: i32) -> io::Result<Self> {
        let mut writer = Writer {
            sink,
            packer: Packer::new(level.clamp(1, 19))?,
            buffer: Vec::new(),
            raw: Vec::new(),
            threads: Vec::new(),
            repeats: false,
            end: 0,
            sequence: 0,
            events: 0,
            lost_events: 0,
            recent: VecDeque::with_capacity(GIVE_BACK),
            full: None,
        };
        writer.sink.write_all(&block::file_header())?;
        writer.end = block::FILE_HEADER_BYTES as u64;
        writer.meta(kind::PROCESS, |out| meta::put_process(out, process))?;
        // The process's block is never given back: a trace without it says nothing.
        writer.recent.clear();
        Ok(writer)
    }

    /// Returns the bytes in the file, which are whole blocks.
    pub fn bytes_written(&self) -> u64 {
        self.end
    }

    /// Returns the number of events in the file.
    pub fn events_written(&self) -> u64 {
        self.events
    }

    /// Returns the number of events that were given to [`events`](Self::events) and are not in the file.
    pub fn events_lost(&self) -> u64 {
        self.lost_events
    }

    /// Returns whether the medium refused a block, after which only the ending is written.
    pub fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Appends a block of events. The stacks that they name must have been written before.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time; the events are counted as lost.
    pub fn events(&mut self, block: RawBlock) -> io::Result<()> {
        let flushed = self.flush_threads();
        if block.raw.len() > MAX_EVENTS_RAW as usize {
            self.lost_events += u64::from(block.events);
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "a block of {} bytes of events: at most {MAX_EVENTS_RAW}",
                    block.raw.len()
                ),
            ));
        }
        let header = Header {
            kind: kind::EVENTS,
            stream: block.thread.0,
            events: block.events,
            first_ticket: block.first_ticket,
            last_ticket: block.last_ticket,
            first_time_ns: block.first_time_ns,
            ..Header::default()
        };
        self.append(header, &block.raw).and(flushed)
    }

    /// Appends nodes `first_id …` of the stack tree, each as (parent, return address); every node
    /// exactly once and in order, before the first event that names it. Node 0 needs no writing.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn nodes(&mut self, first_id: u32, nodes: &[(u32, u64)]) -> io::Result<()> {
        let mut id = first_id;
        for part in nodes.chunks(NODES_PER_BLOCK) {
            self.meta(kind::NODES, |out| put_nodes(out, id, part))?;
            id = id.wrapping_add(part.len() as u32);
        }
        Ok(())
    }

    /// Appends codes of an interpreter, `first_id …`; ids are dense from 1. Before the first node that names one.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn codes(&mut self, first_id: u32, codes: &[Code]) -> io::Result<()> {
        let mut id = first_id;
        for part in codes.chunks(CODES_PER_BLOCK) {
            self.meta(kind::CODES, |out| put_codes(out, id, part))?;
            id = id.wrapping_add(part.len() as u32);
        }
        Ok(())
    }

    /// Appends types of what stacks make; after the nodes that they name.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn kinds(&mut self, kinds: &[Kind]) -> io::Result<()> {
        for part in kinds.chunks(PAIRS_PER_BLOCK) {
            self.meta(kind::KINDS, |out| put_kinds(out, part))?;
        }
        Ok(())
    }

    /// Appends modules: those that are new since the last call.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn modules(&mut self, modules: &[Module]) -> io::Result<()> {
        if modules.is_empty() {
            return Ok(());
        }
        self.meta(kind::MODULES, |out| meta::put_modules(out, modules))
    }

    /// Adds what is known about a thread; the latest record of an id counts. Written with the next events.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn thread(&mut self, id: ThreadId, thread: &Thread) -> io::Result<()> {
        meta::put_thread(&mut self.threads, id, thread);
        if self.threads.len() >= THREADS_BYTES {
            self.flush_threads()
        } else {
            Ok(())
        }
    }

    /// Notes that what comes next repeats (or no longer repeats) what an earlier segment has: it is skipped by a reader
    /// that has that one, too.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn repeats(&mut self, repeats: bool) -> io::Result<()> {
        let flushed = self.flush_threads();
        self.repeats = repeats;
        flushed
    }

    /// Appends a mark. Indices are dense from 0.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn mark(&mut self, index: u32, mark: &Mark) -> io::Result<()> {
        self.meta(kind::MARK, |out| meta::put_mark(out, index, mark))
    }

    /// Appends samples, oldest first.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn rss(&mut self, samples: &[RssSample]) -> io::Result<()> {
        if samples.is_empty() {
            return Ok(());
        }
        self.meta(kind::RSS, |out| meta::put_rss(out, samples))
    }

    /// Appends a snapshot. Resident runs are left out if they exceed what a block may hold.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        // At most ten bytes per number; the check in `meta` counts the names.
        let runs: usize = snapshot
            .mappings
            .iter()
            .map(|mapping| mapping.runs.len())
            .sum();
        let with_runs = runs < MAX_META_RAW as usize / 40;
        self.meta(kind::SNAPSHOT, |out| {
            meta::put_snapshot(out, snapshot, with_runs)
        })
    }

    /// Appends processes that came out of this one and have no trace; each once.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn lost(&mut self, lost: &[LostProcess]) -> io::Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        self.meta(kind::LOST, |out| {
            for process in lost {
                meta::put_lost(out, process);
            }
        })
    }

    /// Appends a piece of what a look has read; before the look itself.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn pointers(&mut self, pointers: &Pointers) -> io::Result<()> {
        let header = Header {
            kind: kind::POINTERS,
            stream: pointers.look,
            ..Header::default()
        };
        self.append(header, &pointers.raw)
    }

    /// Appends a look, after all of its pointers. Numbers are dense from 0.
    ///
    /// # Errors
    /// If the medium refuses a block for the first time.
    pub fn look(&mut self, look: &Look) -> io::Result<()> {
        self.meta(kind::LOOK, |out| put_look(out, look))
    }

    /// Appends the end mark; nothing may be written after it. What the writer lost is added to
    /// `ending.lost_events` and explained in its notes; if there is no room, blocks before it are given
    /// back, and their events are counted too.
    ///
    /// # Errors
    /// If even that does not make room; the file then is a cut trace, which can be read.
    pub fn ending(&mut self, ending: &Ending) -> io::Result<()> {
        // A failure here shows again below.
        let _ = self.flush_threads();
        loop {
            let mut ending = ending.clone();
            ending.lost_events += self.lost_events;
            ending.events = ending.events.saturating_sub(self.lost_events);
            if let Some(full) = &self.full {
                ending.notes.push(format!(
                    "writing stopped after {} bytes ({}): {} events in {} parts of the trace are missing",
                    full.at, full.why, self.lost_events, full.lost_blocks
                ));
            }
            self.raw.clear();
            meta::put_ending(&mut self.raw, &ending);
            let raw = std::mem::take(&mut self.raw);
            let written = self.write(
                Header {
                    kind: kind::ENDING,
                    ..Header::default()
                },
                &raw,
            );
            self.raw = raw;
            let Err(error) = written else {
                return self.sink.flush();
            };
            let Some((start, events)) = self.recent.pop_back() else {
                return Err(error);
            };
            let at = self.end;
            let full = self.full.get_or_insert_with(|| Full {
                at,
                why: error.to_string(),
                lost_blocks: 0,
            });
            full.lost_blocks += 1;
            self.events -= u64::from(events);
            self.lost_events += u64::from(events);
            self.sink.cut(start)?;
            self.sequence = self.sequence.wrapping_sub(1);
            self.end = start;
        }
    }

    fn flush_threads(&mut self) -> io::Result<()> {
        if self.threads.is_empty() {
            return Ok(());
        }
        let mut threads = std::mem::take(&mut self.threads);
        let result = self.append(
            Header {
                kind: kind::THREADS,
                ..Header::default()
            },
            &threads,
        );
        threads.clear();
        self.threads = threads;
        result
    }

    fn meta(&mut self, kind: u8, put: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        put(&mut raw);
        let result = if raw.len() > MAX_META_RAW as usize {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a block of {} bytes: at most {MAX_META_RAW}", raw.len()),
            ))
        } else {
            self.append(
                Header {
                    kind,
                    ..Header::default()
                },
                &raw,
            )
        };
        self.raw = raw;
        result
    }

    /// Writes a block, or counts it (W2).
    fn append(&mut self, mut header: Header, raw: &[u8]) -> io::Result<()> {
        header.repeats = self.repeats;
        if let Some(full) = &mut self.full {
            full.lost_blocks += 1;
            self.lost_events += u64::from(header.events);
            return Ok(());
        }
        let start = self.end;
        match self.write(header, raw) {
            Ok(()) => {
                self.events += u64::from(header.events);
                if self.recent.len() == GIVE_BACK {
                    self.recent.pop_front();
                }
                self.recent.push_back((start, header.events));
                Ok(())
            }
            Err(error) => {
                self.full = Some(Full {
                    at: start,
                    why: error.to_string(),
                    lost_blocks: 1,
                });
                self.lost_events += u64::from(header.events);
                Err(error)
            }
        }
    }

    /// Compresses, writes, and on an error cuts back to the last whole block (W1).
    fn write(&mut self, mut header: Header, raw: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.resize(BLOCK_HEADER_BYTES, 0);
        header.codec = self.packer.pack(raw, &mut self.buffer)?;
        header.payload_len = (self.buffer.len() - BLOCK_HEADER_BYTES) as u32;
        header.raw_len = raw.len() as u32;
        header.sequence = self.sequence;
        header.payload_crc = payload::crc(&self.buffer[BLOCK_HEADER_BYTES..]);
        self.buffer[..BLOCK_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        if let Err(error) = self.sink.write_all(&self.buffer) {
            // If the cut fails too, the file ends in a cut block, which a reader expects.
            let _ = self.sink.cut(self.end);
            return Err(error);
        }
        self.end += self.buffer.len() as u64;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }
}
