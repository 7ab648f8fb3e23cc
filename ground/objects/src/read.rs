//! Reading an object trace, one block at a time.
//!
//! ```text
//!   file header ─► info ─► [block ─► checks ─► raw ─► event, event, …] ─► ending
//!                             └─ a fault: the damage is noted, the next whole block is searched for
//! ```
//!
//! R1  Each event is checked against what the header said: ids, numbers, lengths. A fault ends the reading of its
//!     block, with its offset ([`Reader::damage`]); it never panics.
//! R2  A file that ends between blocks, or within one, is cut: all events of the whole blocks before are returned.
//! R3  A block that is damaged or missing is passed over, and all whole blocks behind it are read: each says with which
//!     id it begins. What is lost is counted, in objects. Deaths of lost objects may be returned; deaths that are lost
//!     are of objects that seem to live on.
//! R4  Kinds are numbered in the order of their names, so a name is believed only as long as no block is missing that
//!     might have had names. A kind without a name is `?`.
//!
//! Not here: what an event means to a heap, the search (`input`).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::block::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FILE_MAGIC, Header, MAJOR, kind};
use crate::input::{Input, head};
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
    /// No whole block is in it.
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
                 that records, or by `skinflint gc --output`",
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

/// A part of the file that could not be read, and what was in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The bytes from the start of the file to the block that cannot be read.
    pub offset: u64,
    /// What is wrong with it.
    pub what: &'static str,
    /// The bytes that were passed over; 0: the block is not there at all, or its checksum holds.
    pub bytes: u64,
    /// The allocations that were lost, as far as a later block tells.
    pub objects: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

const CUT: &str = "the file ends within a block";
const MISSING: &str = "a block is missing before this one";
const OTHER_OBJECT: &str = "a block begins with another object than the last one ended with";
/// What a kind is called whose name was lost (R4).
const NO_NAME: &str = "?";

/// Reads a trace: an iterator of its events.
pub struct Reader<R: Read = File> {
    input: Input<R>,
    info: Info,
    kinds: Vec<String>,
    /// Whether names may be missing, so that later ones have other numbers (R4).
    kinds_unsure: bool,
    unpacker: Unpacker,
    raw: Vec<u8>,
    at: usize,
    /// The events of the block in `raw` that are not read yet.
    left: u32,
    next_id: u64,
    sequence: u32,
    /// The offset in the file of the block in `raw`.
    block_offset: u64,
    ending: Option<Totals>,
    damage: Vec<Damage>,
    /// Whether the last damage is behind the last whole block: what the next one skips was lost in it.
    in_gap: bool,
}

impl Reader {
    /// Opens a trace.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a trace.
    pub fn open(path: impl AsRef<Path>) -> Result<Reader, OpenError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| OpenError::Read(path.to_owned(), error))?;
        Reader::new(file, path)
    }
}

impl<R: Read> Reader<R> {
    /// Opens a trace that comes from any reader, which need not be buffered; `name` is for errors.
    ///
    /// # Errors
    /// If it cannot be read, or is not a trace.
    pub fn new(from: R, name: &Path) -> Result<Reader<R>, OpenError> {
        let mut reader = Reader {
            input: Input::new(from),
            info: Info::default(),
            kinds: Vec::new(),
            kinds_unsure: false,
            unpacker: Unpacker::default(),
            raw: Vec::new(),
            at: 0,
            left: 0,
            next_id: 0,
            sequence: 0,
            block_offset: 0,
            ending: None,
            damage: Vec::new(),
            in_gap: false,
        };
        reader.file_header(name)?;
        reader.first_block(name)?;
        Ok(reader)
    }

    /// Reads the file's header. One that is damaged is passed over where the first block follows it.
    fn file_header(&mut self, name: &Path) -> Result<(), OpenError> {
        let head = head::<FILE_HEADER_BYTES>(&mut self.input)
            .map_err(|error| OpenError::Read(name.to_owned(), error))?
            .ok_or_else(|| OpenError::NotATrace(name.to_owned()))?;
        if head[..8] == FILE_MAGIC && is_sealed(&head) {
            let major = u16::from_le_bytes([head[8], head[9]]);
            if major != MAJOR {
                return Err(OpenError::Newer(name.to_owned(), major));
            }
        } else {
            let both = self.input.ahead(FILE_HEADER_BYTES + BLOCK_HEADER_BYTES);
            let first = both[FILE_HEADER_BYTES..].first_chunk();
            let first = first.and_then(|bytes| Header::from_bytes(bytes).ok());
            if first.is_none_or(|header| header.kind != kind::INFO || header.sequence != 0) {
                return Err(OpenError::NotATrace(name.to_owned()));
            }
            self.note(
                "the header of the file is damaged",
                FILE_HEADER_BYTES as u64,
            );
        }
        self.input.take(FILE_HEADER_BYTES);
        Ok(())
    }

    /// Reads where the trace comes from. Where that is damaged it stays unsaid.
    fn first_block(&mut self, name: &Path) -> Result<(), OpenError> {
        let offset = self.input.offset();
        let what = match self.block() {
            Ok(Some(header)) if header.kind == kind::INFO => match self.names(2) {
                Ok(names) => {
                    let [program, source] = <[String; 2]>::try_from(names).unwrap_or_default();
                    self.info = Info { program, source };
                    return Ok(());
                }
                Err(what) => what,
            },
            Ok(Some(_)) => "the first block does not say where the trace comes from",
            Ok(None) => CUT,
            Err(what) => what,
        };
        self.info = Info {
            program: NO_NAME.into(),
            source: "what made it is lost".into(),
        };
        self.pass_over(what);
        // The block that is lost had no names of kinds.
        self.sequence = self.sequence.max(1);
        if self.input.ahead(1).is_empty() {
            let damage = Damage {
                offset,
                what,
                bytes: self.input.offset() - offset,
                objects: 0,
            };
            return Err(OpenError::Damaged(name.to_owned(), damage));
        }
        Ok(())
    }

    /// Returns where the trace comes from.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the name of a kind that an event named. It is known as soon as the event was returned.
    pub fn kind(&self, id: KindId) -> &str {
        self.kinds
            .get(id.0 as usize)
            .map_or(NO_NAME, String::as_str)
    }

    /// Returns what the writer counted; `None` before the end, and if the trace has no ending (it is cut).
    pub fn ending(&self) -> Option<Totals> {
        self.ending
    }

    /// Returns what could not be read so far, from the start of the file on. A trace that was cut between two blocks
    /// has neither damage nor ending.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Notes damage at the next byte.
    fn note(&mut self, what: &'static str, bytes: u64) {
        self.in_gap = true;
        self.damage.push(Damage {
            offset: self.input.offset(),
            what,
            bytes,
            objects: 0,
        });
    }

    /// Notes damage at the next byte, and goes on to the next whole header (R3).
    fn pass_over(&mut self, what: &'static str) {
        let at = self.damage.len();
        self.note(what, 0);
        self.damage[at].bytes = self.input.next_header();
    }

    /// Notes that objects were lost in the last damage.
    fn lost(&mut self, objects: u64) {
        if let Some(last) = self.damage.last_mut() {
            last.objects += objects;
        }
    }

    /// Reads the next block into `raw`. `None`: the file ends here. After an error the input is still at its start.
    fn block(&mut self) -> Result<Option<Header>, &'static str> {
        self.block_offset = self.input.offset();
        let head = self.input.ahead(BLOCK_HEADER_BYTES);
        let Some(&head) = head.first_chunk::<BLOCK_HEADER_BYTES>() else {
            return match head.is_empty() {
                _ if self.input.is_refused() => Err("the system refuses to read on"),
                true => Ok(None),
                false => Err(CUT),
            };
        };
        let header = Header::from_bytes(&head)?;
        if header.sequence < self.sequence {
            return Err("a block is there a second time");
        }
        let missing = header.sequence - self.sequence;
        self.kinds_unsure |= missing > 0;
        if missing > 0 && !self.in_gap {
            self.note(MISSING, 0);
        }
        self.sequence = header.sequence.wrapping_add(1);
        let whole = self.payload(&header);
        if whole.is_err() && header.kind == kind::KINDS {
            // Their number is known (the header's checksum holds), so that later names keep theirs.
            let names = self.kinds.len() + header.events as usize;
            self.kinds.resize(names, NO_NAME.into());
        }
        whole?;
        self.input
            .take(BLOCK_HEADER_BYTES + header.payload_len as usize);
        self.at = 0;
        Ok(Some(header))
    }

    /// Unpacks the payload behind a header.
    fn payload(&mut self, header: &Header) -> Result<(), &'static str> {
        let whole = BLOCK_HEADER_BYTES + header.payload_len as usize;
        let bytes = self.input.ahead(whole);
        if bytes.len() != whole {
            return Err(CUT);
        }
        let stored = &bytes[BLOCK_HEADER_BYTES..];
        if payload::crc(stored) != header.payload_crc {
            return Err("the checksum of a block is wrong");
        }
        let unpacked =
            self.unpacker
                .unpack(header.codec, stored, header.raw_len as usize, &mut self.raw);
        unpacked.map_err(|Malformed(what)| what)
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
    fn advance(&mut self) -> bool {
        while self.ending.is_none() {
            let header = match self.block() {
                Ok(Some(header)) => header,
                Ok(None) => return false,
                Err(what) => {
                    self.pass_over(what);
                    continue;
                }
            };
            let read = match header.kind {
                kind::KINDS => self.kinds(header.events),
                kind::EVENTS if self.follows(header.first_id) => {
                    self.left = header.events;
                    return true;
                }
                kind::ENDING => self.totals().map(|totals| {
                    if self.in_gap {
                        self.lost(totals.allocations.saturating_sub(self.next_id));
                    }
                    self.ending = Some(totals);
                }),
                // A block of a later minor version; or of objects that there were already, which `follows` noted.
                _ => Ok(()),
            };
            if let Err(what) = read {
                self.note_block(what);
            }
        }
        false
    }

    /// Notes that the content of the block in `raw` is not what its checksum promises: a fault of its writer.
    fn note_block(&mut self, what: &'static str) {
        self.note(what, 0);
        if let Some(last) = self.damage.last_mut() {
            last.offset = self.block_offset;
        }
    }

    /// Takes the names of kinds, if their numbers are known (R4).
    fn kinds(&mut self, count: u32) -> Result<(), &'static str> {
        if !self.kinds_unsure {
            let names = self.names(count);
            self.kinds_unsure |= names.is_err();
            self.kinds.extend(names?);
        }
        Ok(())
    }

    /// Reports whether a block of events that begins with this id may come now, and notes what is lost before it.
    fn follows(&mut self, first_id: u64) -> bool {
        let in_gap = std::mem::replace(&mut self.in_gap, false);
        if first_id != self.next_id && (!in_gap || first_id < self.next_id) {
            self.note_block(OTHER_OBJECT);
            self.in_gap = false;
        }
        if first_id < self.next_id {
            return false;
        }
        self.lost(first_id - self.next_id);
        self.next_id = first_id;
        true
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
                    .filter(|kind| self.kinds_unsure || (*kind as usize) < self.kinds.len())
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
        loop {
            if self.left == 0 && !self.advance() {
                return None;
            }
            if self.left == 0 {
                continue;
            }
            self.left -= 1;
            match self.event() {
                Ok(event) => return Some(event),
                Err(what) => {
                    self.left = 0;
                    self.note_block(what);
                }
            }
        }
    }
}

/// Reads the number at `at`, if there is one.
fn get(bytes: &[u8], at: &mut usize) -> Option<u64> {
    varint::get(bytes, at).ok()
}
