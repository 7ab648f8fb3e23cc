//! Reading an object trace, one block at a time.
//!
//! ```text
//!   file header ─► info ─► [block ─► checks ─► raw ─► event, event, …] ─► ending, or the damage
//! ```
//!
//! R1  Each event is checked against what the header said: ids, numbers, lengths. A fault ends the reading, with its
//!     offset ([`Reader::damage`]); it never panics.
//! R2  A file that ends between blocks, or within one, is cut: all events of the whole blocks before are returned.
//!
//! Not here: what an event means to a heap.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::block::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FILE_MAGIC, Header, MAJOR, kind};
use crate::write::tag;
use crate::{Event, Info, KindId, Origin, Totals};
use skinflint_framing::header::is_sealed;
use skinflint_framing::payload::{self, Unpacker};
use skinflint_framing::varint::{self, Malformed};

/// Why a file cannot be read as an object trace. Each message says what to do next.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The system refused to read it.
    Read(PathBuf, io::Error),
    /// It is something else, or ends within its header.
    NotATrace(PathBuf),
    /// It was written by a later major version.
    Newer(PathBuf, u16),
    /// Its first block, which says where the trace comes from, is damaged.
    Damaged(PathBuf, Damage),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Read(path, error) => write!(
                f,
                "cannot read {}: {error}; check the name and that you may read it",
                path.display()
            ),
            OpenError::NotATrace(path) => write!(
                f,
                "{} is not an object trace: it does not begin as one; they end in .sfo and are written by a heap \
                 that records, or by `skinflint gc --write`",
                path.display()
            ),
            OpenError::Newer(path, major) => write!(
                f,
                "{} has format version {major}, this Skinflint reads version {MAJOR}: read it with the Skinflint \
                 that wrote it, or a later one",
                path.display()
            ),
            OpenError::Damaged(path, damage) => {
                write!(
                    f,
                    "{}: {damage}; copy it again, or record again",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// Where and why reading ended before the ending.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The bytes from the start of the file to the block that cannot be read.
    pub offset: u64,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

const CUT: &str = "the file ends within a block";

/// Reads a trace: an iterator of its events.
pub struct Reader<R: Read = BufReader<File>> {
    from: R,
    info: Info,
    kinds: Vec<String>,
    unpacker: Unpacker,
    stored: Vec<u8>,
    raw: Vec<u8>,
    at: usize,
    /// The events of the block in `raw` that are not read yet.
    left: u32,
    next_id: u64,
    sequence: u32,
    /// The offsets in the file of the next block, and of the block in `raw`.
    offset: u64,
    block_offset: u64,
    ending: Option<Totals>,
    damage: Option<Damage>,
}

impl Reader {
    /// Opens a trace.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a trace.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, OpenError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| OpenError::Read(path.to_owned(), error))?;
        Reader::new(BufReader::new(file), path)
    }
}

impl<R: Read> Reader<R> {
    /// Opens a trace that comes from any reader; `name` is for errors.
    ///
    /// # Errors
    /// If it cannot be read, or is not a trace.
    pub fn new(mut from: R, name: &Path) -> Result<Reader<R>, OpenError> {
        let mut head = [0; FILE_HEADER_BYTES];
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => OpenError::NotATrace(name.to_owned()),
            _ => OpenError::Read(name.to_owned(), error),
        };
        from.read_exact(&mut head).map_err(failed)?;
        if head[..8] != FILE_MAGIC || !is_sealed(&head) {
            return Err(OpenError::NotATrace(name.to_owned()));
        }
        let major = u16::from_le_bytes([head[8], head[9]]);
        if major != MAJOR {
            return Err(OpenError::Newer(name.to_owned(), major));
        }
        let mut reader = Reader {
            from,
            info: Info::default(),
            kinds: Vec::new(),
            unpacker: Unpacker::default(),
            stored: Vec::new(),
            raw: Vec::new(),
            at: 0,
            left: 0,
            next_id: 0,
            sequence: 0,
            offset: FILE_HEADER_BYTES as u64,
            block_offset: 0,
            ending: None,
            damage: None,
        };
        match reader.first_block() {
            Ok(info) => reader.info = info,
            Err(what) => {
                let offset = FILE_HEADER_BYTES as u64;
                return Err(OpenError::Damaged(name.to_owned(), Damage { offset, what }));
            }
        }
        Ok(reader)
    }

    fn first_block(&mut self) -> Result<Info, &'static str> {
        match self.block()? {
            Some(header) if header.kind == kind::INFO => {}
            _ => return Err("the first block does not say where the trace comes from"),
        }
        let mut names = self.names(2)?;
        let source = names.pop().unwrap_or_default();
        let program = names.pop().unwrap_or_default();
        Ok(Info { program, source })
    }

    /// Returns where the trace comes from.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the name of a kind that an event named. It is known as soon as the event was returned.
    pub fn kind(&self, id: KindId) -> &str {
        self.kinds.get(id.0 as usize).map_or("?", String::as_str)
    }

    /// Returns what the writer counted; `None` before the end, and if the trace has no ending (it is cut).
    pub fn ending(&self) -> Option<Totals> {
        self.ending
    }

    /// Returns where reading ended too early; `None` as long as nothing is wrong. A trace that was cut between two
    /// blocks has neither damage nor ending.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Reads the next block into `raw`. `None`: the file ends here.
    fn block(&mut self) -> Result<Option<Header>, &'static str> {
        self.block_offset = self.offset;
        let mut head = [0; BLOCK_HEADER_BYTES];
        match read_full(&mut self.from, &mut head)? {
            0 => return Ok(None),
            BLOCK_HEADER_BYTES => {}
            _ => return Err(CUT),
        }
        let header = Header::from_bytes(&head)?;
        if header.sequence != self.sequence {
            return Err("a block is missing before this one");
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.stored.resize(header.payload_len as usize, 0);
        if read_full(&mut self.from, &mut self.stored)? != self.stored.len() {
            return Err(CUT);
        }
        if payload::crc(&self.stored) != header.payload_crc {
            return Err("the checksum of a block is wrong");
        }
        self.offset += BLOCK_HEADER_BYTES as u64 + u64::from(header.payload_len);
        let raw_len = header.raw_len as usize;
        let unpacked = self
            .unpacker
            .unpack(header.codec, &self.stored, raw_len, &mut self.raw);
        unpacked.map_err(|Malformed(what)| what)?;
        self.at = 0;
        Ok(Some(header))
    }

    fn names(&mut self, count: u32) -> Result<Vec<String>, &'static str> {
        let mut names = Vec::new();
        for _ in 0..count {
            let name = get(&self.raw, &mut self.at)
                .and_then(|length| usize::try_from(length).ok())
                .and_then(|length| self.raw.get(self.at..self.at.checked_add(length)?))
                .ok_or("a name is longer than its block")?;
            self.at += name.len();
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(names)
    }

    /// Moves to the next block of events. Returns false if there is none.
    fn advance(&mut self) -> Result<bool, &'static str> {
        loop {
            if self.ending.is_some() {
                return Ok(false);
            }
            let Some(header) = self.block()? else {
                return Ok(false);
            };
            match header.kind {
                kind::KINDS => {
                    let names = self.names(header.events)?;
                    self.kinds.extend(names);
                }
                kind::EVENTS if header.first_id != self.next_id => {
                    return Err("a block begins with another object than the last one ended with");
                }
                kind::EVENTS => {
                    self.left = header.events;
                    return Ok(true);
                }
                kind::ENDING => self.ending = Some(self.totals()?),
                // A block of a later minor version.
                _ => {}
            }
        }
    }

    fn totals(&mut self) -> Result<Totals, &'static str> {
        let mut next = || get(&self.raw, &mut self.at).ok_or("the ending is cut short");
        Ok(Totals {
            allocations: next()?,
            deaths: next()?,
            collections: next()?,
            lost: next()?,
            unknown_deaths: next()?,
            replaced: next()?,
        })
    }

    fn event(&mut self) -> Result<Event, &'static str> {
        let number = get(&self.raw, &mut self.at).ok_or("an event is cut short")?;
        let rest = number >> tag::BITS;
        match number & ((1 << tag::BITS) - 1) {
            tag::DEATH if rest < self.next_id => Ok(Event::Death {
                id: self.next_id - 1 - rest,
            }),
            tag::DEATH => Err("a death of an object that never lived"),
            tag::COLLECTION => Ok(Event::Collection),
            origin => {
                let origin = *Origin::ALL
                    .get(origin as usize)
                    .ok_or("an event of an unknown sort")?;
                let kind = get(&self.raw, &mut self.at)
                    .and_then(|kind| u32::try_from(kind).ok())
                    .filter(|kind| (*kind as usize) < self.kinds.len())
                    .ok_or("an object of a kind that was not named")?;
                let id = self.next_id;
                self.next_id += 1;
                Ok(Event::Alloc {
                    id,
                    bytes: rest,
                    kind: KindId(kind),
                    origin,
                })
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.damage.is_some() {
            return None;
        }
        let step = loop {
            if self.left > 0 {
                self.left -= 1;
                break self.event().map(Some);
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => break Ok(None),
                Err(what) => break Err(what),
            }
        };
        step.unwrap_or_else(|what| {
            let offset = self.block_offset;
            self.damage = Some(Damage { offset, what });
            None
        })
    }
}

/// Reads until the buffer is full or the file ends. Returns the bytes read.
fn read_full(from: &mut impl Read, buffer: &mut [u8]) -> Result<usize, &'static str> {
    let mut done = 0;
    while done < buffer.len() {
        match from.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err("the system refuses to read on"),
        }
    }
    Ok(done)
}

/// Reads the number at `at`, if there is one.
fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    varint::get(bytes, at).ok()
}
