//! The file of Firefox's about:memory, written and read line by line.
//!
//! ```text
//!   {"version":1,"hasMozMallocUsableSize":true,"reports":[
//!     {"process":"viewer (pid 42)","path":"explicit/a","kind":1,"units":0,"amount":5,"description":"…"
//!      [,"_presence":1][,"blocks":["0x55…", …]][,"ranges":[["0x7f…", bytes], …]]}, …]}
//!                                               gzip is recognised; a crash dump wraps it: {"memory_report":{…}}
//! ```
//!
//! F1  Reading takes memory for one line, however long the file is. The caller decides what to keep.
//! F2  What Firefox refuses is refused: a missing field, an unknown kind or unit, a line below `explicit/` that
//!     is not in bytes or is neither heap nor nonheap, another version.
//! F3  An error names the byte of the JSON (unpacked) at which it was noticed, and the number of the line in
//!     `reports`, if it lies in one.
//! F4  A file is replaced only when all of the new one is written: a full disk leaves the old one. The new one has the
//!     old one's mode, and links to a file are followed. What is not a file (a pipe, a device) is written into and
//!     stays what it is.
//! F5  A path that is both a leaf and a branch, which Firefox cannot read, is written as `PATH/(own)`.
//! F6  `blocks` and `ranges` are ours: the addresses that a line has measured (docs/export.md). Readers that do not
//!     know them pass over them, as Firefox does; so does [`read`]. They are written if a measurement has them.
//!
//! The format: nsIMemoryInfoDumper.idl, nsIMemoryReporter.idl and aboutMemory.js of Firefox ESR.
//! Not here: trees, differences.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::entry::{Entry, Kind, Units, is_explicit};
use crate::named::Note;
use crate::tree::{OWN, Presence};

/// The only version that exists.
const VERSION: u64 = 1;
/// The most bytes of JSON that are read: gzip can unpack to a thousand times its size.
const LARGEST: u64 = 8 << 30;

/// Writes a file, line by line.
pub struct Writer<W: Write> {
    out: W,
    begun: bool,
}

impl<W: Write> Writer<W> {
    /// Creates a writer, and writes the head.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W) -> io::Result<Writer<W>> {
        out.write_all(b"{\"version\":1,\"hasMozMallocUsableSize\":true,\"reports\":[")?;
        Ok(Writer { out, begun: false })
    }

    /// Writes a line, which must have the name of its process.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn line(&mut self, entry: &Entry<'_>, presence: Presence) -> io::Result<()> {
        self.line_with_blocks(entry, presence, &[])
    }

    /// Writes a line and the addresses that it has measured (F6). Hidden addresses are left out.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn line_with_blocks(
        &mut self,
        entry: &Entry<'_>,
        presence: Presence,
        blocks: &[Note],
    ) -> io::Result<()> {
        let comma: &[u8] = if self.begun { b",\n" } else { b"\n" };
        self.begun = true;
        let out = &mut self.out;
        out.write_all(comma)?;
        out.write_all(b"{\"process\":")?;
        serde_json::to_writer(&mut *out, entry.process)?;
        out.write_all(b",\"path\":")?;
        serde_json::to_writer(&mut *out, entry.path)?;
        write!(
            out,
            ",\"kind\":{},\"units\":{},\"amount\":{},\"description\":",
            entry.kind as u8, entry.units as u8, entry.amount
        )?;
        serde_json::to_writer(&mut *out, entry.description)?;
        if let Some(number) = presence.number() {
            write!(out, ",\"_presence\":{number}")?;
        }
        let known = blocks.iter().filter(|note| note.addr().is_some());
        let mut comma = "\"blocks\":[";
        for note in known.clone().filter(|note| note.is_block()) {
            let separator = if comma == "," { "" } else { "," };
            write!(out, "{separator}{comma}\"{:#x}\"", note.addr().unwrap_or(0))?;
            comma = ",";
        }
        if comma == "," {
            out.write_all(b"]")?;
        }
        comma = "\"ranges\":[";
        for note in known.filter(|note| !note.is_block()) {
            let separator = if comma == "," { "" } else { "," };
            let (addr, bytes) = (note.addr().unwrap_or(0), note.bytes());
            write!(out, "{separator}{comma}[\"{addr:#x}\",{bytes}]")?;
            comma = ",";
        }
        if comma == "," {
            out.write_all(b"]")?;
        }
        out.write_all(b"}")
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Writes lines to `out`; lines without a process get the name `process` (F5).
///
/// # Errors
/// Those of `out`.
pub fn write<'a, W: Write>(
    out: W,
    process: &str,
    lines: impl Iterator<Item = (Entry<'a>, Presence)> + Clone,
) -> io::Result<W> {
    let none: &[Note] = &[];
    write_with_blocks(
        out,
        process,
        lines.map(|(entry, presence)| (entry, presence, none)),
    )
}

/// Writes lines to `out` as [`write()`] does, with the addresses that each line has measured (F6).
///
/// # Errors
/// Those of `out`.
pub fn write_with_blocks<'a, W: Write>(
    out: W,
    process: &str,
    lines: impl Iterator<Item = (Entry<'a>, Presence, &'a [Note])> + Clone,
) -> io::Result<W> {
    let mut branches: HashSet<(&str, &str)> = HashSet::new();
    for (entry, ..) in lines.clone() {
        for (at, _) in entry.path.match_indices('/') {
            branches.insert((entry.process, &entry.path[..at]));
        }
    }
    let mut writer = Writer::new(out)?;
    for (mut entry, presence, blocks) in lines {
        let own;
        if branches.contains(&(entry.process, entry.path)) {
            own = format!("{}/{OWN}", entry.path);
            entry.path = &own;
        }
        if entry.process.is_empty() {
            entry.process = process;
        }
        writer.line_with_blocks(&entry, presence, blocks)?;
    }
    writer.finish()
}

/// Writes a file, gzipped if its name ends so (F4).
///
/// # Errors
/// If it cannot be written.
pub fn save<'a>(
    path: &Path,
    process: &str,
    lines: impl Iterator<Item = (Entry<'a>, Presence)> + Clone,
) -> io::Result<()> {
    let none: &[Note] = &[];
    save_with_blocks(
        path,
        process,
        lines.map(|(entry, presence)| (entry, presence, none)),
    )
}

/// Writes a file as [`save`] does, with the addresses that each line has measured (F6).
///
/// # Errors
/// If it cannot be written.
pub fn save_with_blocks<'a>(
    path: &Path,
    process: &str,
    lines: impl Iterator<Item = (Entry<'a>, Presence, &'a [Note])> + Clone,
) -> io::Result<()> {
    let is_packed = path.extension().is_some_and(|ending| ending == "gz");
    let (real, old) = match std::fs::metadata(path) {
        Ok(found) if found.is_file() => (std::fs::canonicalize(path)?, Some(found)),
        // The system refuses a folder, in its own words.
        Ok(_) => return written(into(path, false)?, is_packed, process, lines),
        // A link to a file that is not there yet.
        Err(_) if path.is_symlink() => {
            return written(into(path, true)?, is_packed, process, lines);
        }
        Err(_) => (path.to_owned(), None),
    };
    let (fresh, file) = beside(&real, old.as_ref())?;
    let done =
        written(file, is_packed, process, lines).and_then(|()| std::fs::rename(&fresh, &real));
    if done.is_err() {
        // The new file may not exist.
        let _ = std::fs::remove_file(&fresh);
    }
    done
}

/// Writes lines into a file that is open.
///
/// # Errors
/// If it cannot be written.
pub fn save_into<'a>(
    file: File,
    process: &str,
    lines: impl Iterator<Item = (Entry<'a>, Presence, &'a [Note])> + Clone,
) -> io::Result<()> {
    written(file, false, process, lines)
}

fn into(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(create)
        .truncate(create)
        .open(path)
}

/// Creates a new file in the folder of another one, with the mode and owner of the old file (F4).
fn beside(real: &Path, old: Option<&Metadata>) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed: only unlike others of this process
    let fresh = real.with_file_name(format!(".skinflint.{}.{number}", std::process::id()));
    let mode = old.map_or(0o666, |_| 0o600);
    // A killed process with this id may have left one; the new file must be ours, and not a link.
    let _ = std::fs::remove_file(&fresh);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&fresh)?;
    if let Some(old) = old {
        // Only root can do this; for other users the file is their own, as a new one would be.
        let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o7777))?;
    }
    Ok((fresh, file))
}

fn written<'a>(
    file: File,
    is_packed: bool,
    process: &str,
    lines: impl Iterator<Item = (Entry<'a>, Presence, &'a [Note])> + Clone,
) -> io::Result<()> {
    let file = BufWriter::new(file);
    if !is_packed {
        return write_with_blocks(file, process, lines).map(drop);
    }
    let packed = GzEncoder::new(file, Compression::default());
    let packed = write_with_blocks(packed, process, lines)?;
    packed.finish()?.flush()
}

/// Why a file cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadError {
    /// What is wrong.
    pub what: String,
    /// The byte of the unpacked JSON at which it was noticed.
    pub offset: u64,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (at byte {} of the JSON); a memory report of about:memory, version 1, is wanted",
            self.what, self.offset
        )
    }
}

impl std::error::Error for ReadError {}

/// Reads a file, packed or not, and passes each line to `each`. Returns the number of lines (F1).
///
/// # Errors
/// F2, F3.
pub fn read(
    input: impl Read,
    mut each: impl FnMut(&Entry<'_>, Presence),
) -> Result<u64, ReadError> {
    read_any::<IgnoredAny, IgnoredAny>(input, &mut |entry, presence, _, _| each(entry, presence))
}

/// Reads a file as [`read`] does; `each` also gets the addresses that the line has measured (F6), which take memory
/// for one line at a time.
///
/// # Errors
/// F2, F3; and a value in `blocks` or `ranges` that is not an address.
pub fn read_with_blocks(
    input: impl Read,
    mut each: impl FnMut(&Entry<'_>, Presence, &[Note]),
) -> Result<u64, ReadError> {
    type Ranges = Vec<(Address, u64)>;
    let mut notes = Vec::new();
    read_any::<Vec<Address>, Ranges>(input, &mut |entry, presence, blocks, ranges| {
        notes.clear();
        notes.extend(blocks.iter().map(|block| Note::block(block.0, 0)));
        notes.extend(ranges.iter().map(|range| Note::range(range.0.0, range.1)));
        each(entry, presence, &notes);
    })
}

/// An address: `"0x7f…"`, or a number.
struct Address(u64);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        deserializer.deserialize_any(Addresses)
    }
}

struct Addresses;

impl Visitor<'_> for Addresses {
    type Value = Address;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address, in hexadecimal: \"0x7f0012345670\"")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Address, E> {
        Ok(Address(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Address, E> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        // `from_str_radix` would accept a sign.
        let number = match digits.starts_with('+') {
            true => None,
            false => u64::from_str_radix(digits, 16).ok(),
        };
        number.map(Address).ok_or_else(|| {
            let shown: String = text.escape_debug().take(60).collect();
            E::custom(format!(
                "\"{shown}\" is no address; addresses are hexadecimal texts: \"0x7f0012345670\""
            ))
        })
    }
}

fn read_any<B, R>(input: impl Read, each: Each<'_, B, R>) -> Result<u64, ReadError>
where
    B: for<'de> Deserialize<'de> + Default,
    R: for<'de> Deserialize<'de> + Default,
{
    let offset = Rc::new(Cell::new(0));
    let failed = |what: String| ReadError {
        what,
        offset: offset.get(),
    };
    let mut input = BufReader::with_capacity(64 << 10, input);
    let packed = input
        .fill_buf()
        .map_err(|error| failed(error.to_string()))?
        .starts_with(&[0x1f, 0x8b]);
    let unpacked: Box<dyn Read + '_> = match packed {
        true => Box::new(BufReader::with_capacity(
            64 << 10,
            MultiGzDecoder::new(input),
        )),
        false => Box::new(input),
    };
    let counting = Counting {
        inner: unpacked,
        buffer: Box::new([0; 32 << 10]),
        begin: 0,
        end: 0,
        offset: Rc::clone(&offset),
    };
    let mut found = Found {
        version: None,
        lines: None,
    };
    let mut json = serde_json::Deserializer::from_reader(counting);
    let done = Whole {
        each,
        found: &mut found,
        depth: 0,
    }
    .deserialize(&mut json)
    .and_then(|()| json.end());
    done.map_err(|error| failed(said(&error, packed)))?;
    match (found.version, found.lines) {
        (Some(_), Some(lines)) => Ok(lines),
        (None, _) => Err(failed("there is no \"version\"".into())),
        (_, None) => Err(failed("there are no \"reports\"".into())),
    }
}

/// Returns the library's error without its line and column, which mean little in a file of one line.
fn said(error: &serde_json::Error, packed: bool) -> String {
    let text = error.to_string();
    let what = text
        .find(" at line ")
        .map_or(text.as_str(), |at| &text[..at]);
    match error.classify() {
        serde_json::error::Category::Eof => format!("cut off: {what}"),
        serde_json::error::Category::Io if packed => format!("the gzip data are damaged: {what}"),
        serde_json::error::Category::Syntax => format!("not JSON: {what}"),
        _ => what.to_owned(),
    }
}

/// Counts the bytes that the parser has taken, one at a time.
struct Counting<R> {
    inner: R,
    buffer: Box<[u8; 32 << 10]>,
    begin: usize,
    end: usize,
    offset: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.begin == self.end {
            self.end = self.inner.read(&mut self.buffer[..])?;
            self.begin = 0;
            if self.offset.get() > LARGEST {
                return Err(io::Error::other(format!(
                    "more than {LARGEST} bytes of JSON"
                )));
            }
        }
        let bytes = into.len().min(self.end - self.begin);
        into[..bytes].copy_from_slice(&self.buffer[self.begin..self.begin + bytes]);
        self.begin += bytes;
        self.offset.set(self.offset.get() + bytes as u64);
        Ok(bytes)
    }
}

struct Found {
    version: Option<u64>,
    lines: Option<u64>,
}

/// A function that gets a line, its blocks and its ranges; the reader decides what these are read as.
type Each<'a, B, R> = &'a mut dyn FnMut(&Entry<'_>, Presence, &B, &R);

/// The outermost object, and the one in `memory_report`.
struct Whole<'a, 'b, B, R> {
    each: Each<'a, B, R>,
    found: &'b mut Found,
    depth: u32,
}

impl<'de, B: Deserialize<'de> + Default, R: Deserialize<'de> + Default> DeserializeSeed<'de>
    for Whole<'_, '_, B, R>
{
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, B: Deserialize<'de> + Default, R: Deserialize<'de> + Default> Visitor<'de>
    for Whole<'_, '_, B, R>
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with \"version\" and \"reports\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        use de::Error;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "version" => {
                    let version = map.next_value::<u64>()?;
                    if version != VERSION {
                        let what = format!("\"version\" is {version}, and only 1 is known");
                        return Err(A::Error::custom(what));
                    }
                    self.found.version = Some(version);
                }
                "reports" => {
                    let lines = map.next_value_seed(Lines { each: self.each })?;
                    let sum = self.found.lines.unwrap_or(0) + lines;
                    self.found.lines = Some(sum);
                }
                "memory_report" if self.depth == 0 => map.next_value_seed(Whole {
                    each: self.each,
                    found: self.found,
                    depth: 1,
                })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Lines<'a, B, R> {
    each: Each<'a, B, R>,
}

impl<'de, B: Deserialize<'de> + Default, R: Deserialize<'de> + Default> DeserializeSeed<'de>
    for Lines<'_, B, R>
{
    type Value = u64;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

#[derive(Deserialize)]
struct Raw<B: Default, R: Default> {
    process: String,
    path: String,
    kind: u64,
    units: u64,
    amount: i64,
    description: String,
    #[serde(rename = "_presence", default)]
    presence: u64,
    #[serde(default)]
    blocks: B,
    #[serde(default)]
    ranges: R,
}

impl<'de, B: Deserialize<'de> + Default, R: Deserialize<'de> + Default> Visitor<'de>
    for Lines<'_, B, R>
{
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of lines")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        use de::Error;
        let mut lines = 0u64;
        loop {
            let raw = match list.next_element::<Raw<B, R>>() {
                Ok(Some(raw)) => raw,
                Ok(None) => return Ok(lines),
                // The number of the line is put in front; an end of file stays what it is.
                Err(error) => {
                    let text = error.to_string();
                    let cut = text.starts_with("EOF")
                        || text.contains("gzip")
                        || text.contains("deflate");
                    return Err(match cut {
                        true => error,
                        false => A::Error::custom(format!("\"reports\"[{lines}]: {text}")),
                    });
                }
            };
            let entry = raw
                .entry()
                .map_err(|what| A::Error::custom(format!("\"reports\"[{lines}]: {what}")))?;
            (self.each)(&entry.0, entry.1, &raw.blocks, &raw.ranges);
            lines += 1;
        }
    }
}

impl<B: Default, R: Default> Raw<B, R> {
    /// Checks F2, and returns the line.
    fn entry(&self) -> Result<(Entry<'_>, Presence), String> {
        let shown = || -> String { self.path.chars().take(200).collect() };
        let bad = |what: &str, value: u64| format!("{what} {value} is none ({})", shown());
        let kind = Kind::from_number(self.kind).ok_or_else(|| bad("\"kind\"", self.kind))?;
        let units = Units::from_number(self.units).ok_or_else(|| bad("\"units\"", self.units))?;
        let presence = Presence::from_number(self.presence)
            .ok_or_else(|| bad("\"_presence\"", self.presence))?;
        if self.path.is_empty() || self.process.is_empty() {
            return Err("an empty \"path\" or \"process\"".into());
        }
        if is_explicit(&self.path) && (units != Units::Bytes || kind == Kind::Other) {
            return Err(format!(
                "below explicit/ lines must be bytes of heap or nonheap ({})",
                shown()
            ));
        }
        let entry = Entry {
            process: &self.process,
            path: &self.path,
            kind,
            units,
            amount: self.amount,
            description: &self.description,
        };
        Ok((entry, presence))
    }
}
