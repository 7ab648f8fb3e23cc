//! The bytes of a trace and its blocks, read where they lie, and what of them cannot be read.
//!
//! ```text
//!   file, or bytes ─► read_at ─► header, checked ─► block, unpacked
//!                                    └─ not as it was ─► Malformed ─► Damage: where, how much, why
//! ```
//!
//! O1  A block is checked each time that it is loaded: a file that changes meanwhile is damage, not nonsense.
//! O2  The list of damages has a bound; what goes beyond is added up in its last entry.
//!
//! Not here: which blocks there are (read.rs), where the next one begins (search.rs).

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::block::{BLOCK_HEADER_BYTES, Header, Unpacker, unpack};
use skinflint_framing::varint::Malformed;

/// The most damages that are listed one by one; the rest are added up in the last.
const MAX_DAMAGES: usize = 1000;

/// A part of a trace that could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Where it begins, bytes from the start of the file.
    pub offset: u64,
    /// Bytes that were skipped.
    pub bytes: u64,
    /// Events known to have been in them (a damaged header cannot tell: then 0).
    pub events: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at byte {}: {}; {} bytes skipped",
            self.offset, self.what, self.bytes
        )?;
        if self.events > 0 {
            write!(f, ", {} events lost", self.events)?;
        }
        Ok(())
    }
}

/// Adds a damage to the list, whose length is bounded.
pub(crate) fn add_damage(list: &mut Vec<Damage>, damage: Damage) {
    if list.len() < MAX_DAMAGES {
        list.push(damage);
    } else if let Some(last) = list.last_mut() {
        last.bytes += damage.bytes;
        last.events += damage.events;
        last.what = "this and further damage, added up".into();
    }
}

/// The source of the bytes.
pub(crate) enum Source {
    File(File),
    /// Files one after the other, each with the number of bytes before it.
    Files(Vec<(u64, File)>),
    Bytes(Vec<u8>),
}

impl Source {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Source::Bytes(bytes) => {
                let start = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                let len = buffer.len().min(bytes.len() - start);
                buffer[..len].copy_from_slice(&bytes[start..start + len]);
                Ok(len)
            }
            Source::File(file) => read_file(file, buffer, offset),
            // A block lies in one file (write.W1), so nothing is read across their borders.
            Source::Files(files) => {
                let at = files.partition_point(|(before, _)| *before <= offset);
                let Some((before, file)) = at.checked_sub(1).and_then(|at| files.get(at)) else {
                    return Ok(0);
                };
                read_file(file, buffer, offset - before)
            }
        }
    }
}

fn read_file(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A block of events in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) offset: u64,
    pub(crate) first_ticket: u64,
    pub(crate) payload_len: u32,
    pub(crate) events: u32,
    pub(crate) thread: u32,
}

/// Reads a block whose header was seen by the scan, checks it again, and unpacks it into `raw`.
pub(crate) fn load(
    source: &Source,
    offset: u64,
    payload_len: u32,
    unpacker: &mut Unpacker,
    raw: &mut Vec<u8>,
) -> Result<Header, Malformed> {
    let stored = &mut unpacker.stored;
    // What it holds of the block before is overwritten, or the block is cut short.
    stored.resize(BLOCK_HEADER_BYTES + payload_len as usize, 0);
    let got = source
        .read_at(stored, offset)
        .map_err(|_| Malformed("a block cannot be read"))?;
    let header = Header::from_bytes(&stored[..got])
        .filter(|header| header.payload_len == payload_len)
        .ok_or(Malformed("a block has changed since the trace was opened"))?;
    if got < stored.len() {
        return Err(Malformed("a block is cut short"));
    }
    unpack(&header, unpacker, raw)?;
    Ok(header)
}
