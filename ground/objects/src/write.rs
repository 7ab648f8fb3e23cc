//! Writing an object trace.
//!
//! ```text
//!   alloc, death, collection ─► raw (up to BLOCK_RAW) ─► zstd ─► [header | payload] ─► sink
//!   kind(name) ─► names not yet written ─► a block of their own before the next events
//! ```
//!
//! W1  The sink gets whole blocks only. The file of a killed program can be read up to its last whole block.
//! W2  After the first error of the sink, nothing more is written; events that are not in the file are counted, and
//!     [`Writer::finish`] returns the error. So hooks need no error path.
//!
//! Not here: addresses (`record`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use rustc_hash::FxHashMap;

use crate::block::{self, Header, kind};
use crate::{Info, KindId, Origin};
use skinflint_framing::payload::{self, Packer};
use skinflint_framing::varint::put;

/// The raw bytes of a block of events: about 20,000 events, which is the most that a killed recording loses.
const BLOCK_RAW: usize = 64 << 10;
/// zstd's fast level: an event takes about 3 bytes raw and half of that packed; higher levels save a tenth.
const LEVEL: i32 = 1;
/// The most bytes of a name; a longer one is cut.
const NAME_BYTES: usize = 1024;

/// Tags of events, the low three bits of their first number.
pub(crate) mod tag {
    /// 0, 1, 2: an allocation with this origin; the rest of the number is its bytes, the kind follows.
    pub(crate) const DEATH: u64 = 3;
    pub(crate) const COLLECTION: u64 = 4;
    pub(crate) const BITS: u32 = 3;
}

/// The most bytes that an object may have: the largest number that fits beside a tag.
pub(crate) const MAX_BYTES: u64 = u64::MAX >> tag::BITS;

/// The totals of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Allocations in the file.
    pub allocations: u64,
    /// Deaths in the file.
    pub deaths: u64,
    /// Collections in the file.
    pub collections: u64,
    /// Events that happened but are not in the file.
    pub lost: u64,
    /// Deaths at addresses where no known object lived (objects from before the recording), or of ids never given.
    pub unknown_deaths: u64,
    /// Allocations where an object still lived: its death was missed, and was written before the allocation.
    pub replaced: u64,
}

/// Writes a trace of objects given by their ids. Single-threaded; [`crate::Shared`] is for several threads.
pub struct Writer<W: Write = BufWriter<File>> {
    sink: W,
    packer: Packer,
    raw: Vec<u8>,
    packed: Vec<u8>,
    /// The allocations, deaths and collections in `raw`, which `totals` does not count yet.
    pending: Totals,
    pending_events: u32,
    block_first: u64,
    next_id: u64,
    sequence: u32,
    pub(crate) totals: Totals,
    kinds: FxHashMap<String, KindId>,
    fresh_kinds: Vec<String>,
    error: Option<io::Error>,
}

impl Writer {
    /// Begins a trace in a file, which is emptied.
    ///
    /// # Errors
    /// If it cannot be created or written; the error names the path.
    pub fn create(path: &Path, info: &Info) -> io::Result<Writer> {
        let named = |error: io::Error| {
            let what = format!("cannot write the object trace {}: {error}", path.display());
            io::Error::new(error.kind(), what)
        };
        let file = File::create(path).map_err(named)?;
        Writer::new(BufWriter::new(file), info).map_err(named)
    }
}

impl<W: Write> Writer<W> {
    /// Begins a trace in an empty sink.
    ///
    /// # Errors
    /// If the sink does not take the header.
    pub fn new(sink: W, info: &Info) -> io::Result<Writer<W>> {
        let mut writer = Writer {
            sink,
            packer: Packer::new(LEVEL)?,
            raw: Vec::with_capacity(BLOCK_RAW + 64),
            packed: Vec::new(),
            pending: Totals::default(),
            pending_events: 0,
            block_first: 0,
            next_id: 0,
            sequence: 0,
            totals: Totals::default(),
            kinds: FxHashMap::default(),
            fresh_kinds: Vec::new(),
            error: None,
        };
        writer.sink.write_all(&block::file_header())?;
        let mut raw = Vec::new();
        for text in [&info.program, &info.source] {
            put_name(&mut raw, text);
        }
        writer.append(kind::INFO, &raw, 0)?;
        Ok(writer)
    }

    /// Returns the number of the kind with this name; the same name has the same number.
    pub fn kind(&mut self, name: &str) -> KindId {
        if let Some(known) = self.kinds.get(name) {
            return *known;
        }
        let id = KindId(self.kinds.len() as u32);
        self.kinds.insert(name.to_owned(), id);
        self.fresh_kinds.push(name.to_owned());
        id
    }

    /// Records that an object was allocated, and returns its id. Cost: some bytes into a buffer; about every 20,000
    /// events a block is packed.
    pub fn alloc(&mut self, bytes: u64, kind: KindId, origin: Origin) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.pending.allocations += 1;
        put(
            &mut self.raw,
            bytes.min(MAX_BYTES) << tag::BITS | origin as u64,
        );
        put(&mut self.raw, u64::from(kind.0));
        self.event();
        id
    }

    /// Records that an object is dead. An id that was never given is counted, and is no event.
    pub fn death(&mut self, id: u64) {
        if id >= self.next_id {
            self.totals.unknown_deaths += 1;
            return;
        }
        self.pending.deaths += 1;
        let age = self.next_id - 1 - id;
        put(&mut self.raw, age.min(MAX_BYTES) << tag::BITS | tag::DEATH);
        self.event();
    }

    /// Records that a collection ended.
    pub fn collection(&mut self) {
        self.pending.collections += 1;
        put(&mut self.raw, tag::COLLECTION);
        self.event();
    }

    fn event(&mut self) {
        self.pending_events += 1;
        if self.raw.len() >= BLOCK_RAW {
            self.flush_events();
        }
    }

    fn flush_kinds(&mut self) -> io::Result<()> {
        let names = std::mem::take(&mut self.fresh_kinds);
        // Few enough names that a block stays within its bound (block.B2).
        for part in names.chunks(512) {
            let mut raw = Vec::new();
            for name in part {
                put_name(&mut raw, name);
            }
            self.append(kind::KINDS, &raw, part.len() as u32)?;
        }
        Ok(())
    }

    /// Writes the events gathered so far to the sink. Errors show in [`Writer::finish`].
    pub fn flush_events(&mut self) {
        if self.pending_events == 0 {
            return;
        }
        let raw = std::mem::take(&mut self.raw);
        let events = std::mem::take(&mut self.pending_events);
        let pending = std::mem::take(&mut self.pending);
        let done = match self.error {
            Some(_) => Err(None),
            None => self
                .flush_kinds()
                .and_then(|()| self.append(kind::EVENTS, &raw, events))
                .map_err(Some),
        };
        match done {
            Ok(()) => {
                self.totals.allocations += pending.allocations;
                self.totals.deaths += pending.deaths;
                self.totals.collections += pending.collections;
            }
            Err(error) => {
                self.totals.lost += u64::from(events);
                self.error = self.error.take().or(error);
            }
        }
        self.block_first = self.next_id;
        self.raw = raw;
        self.raw.clear();
    }

    fn append(&mut self, kind: u8, raw: &[u8], events: u32) -> io::Result<()> {
        self.packed.clear();
        let codec = self.packer.pack(raw, &mut self.packed)?;
        let payload = &self.packed;
        let header = Header {
            kind,
            codec,
            payload_len: payload.len() as u32,
            raw_len: raw.len() as u32,
            events,
            sequence: self.sequence,
            first_id: self.block_first,
            payload_crc: payload::crc(payload),
        };
        self.sequence = self.sequence.wrapping_add(1);
        self.sink.write_all(&header.to_bytes())?;
        self.sink.write_all(payload)
    }

    /// Writes the rest and the ending. Returns the sink, and what the trace holds.
    ///
    /// # Errors
    /// Returns the first error of the sink. What was written until then can be read.
    pub fn finish(mut self) -> io::Result<(W, Totals)> {
        self.flush_events();
        if let Some(error) = self.error {
            return Err(error);
        }
        self.flush_kinds()?;
        let totals = self.totals;
        let mut raw = Vec::new();
        for figure in [
            totals.allocations,
            totals.deaths,
            totals.collections,
            totals.lost,
            totals.unknown_deaths,
            totals.replaced,
        ] {
            put(&mut raw, figure);
        }
        self.append(kind::ENDING, &raw, 0)?;
        self.sink.flush()?;
        Ok((self.sink, totals))
    }
}

fn put_name(raw: &mut Vec<u8>, name: &str) {
    let mut end = name.len().min(NAME_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    put(raw, end as u64);
    raw.extend_from_slice(&name.as_bytes()[..end]);
}
