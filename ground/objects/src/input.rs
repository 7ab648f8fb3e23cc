//! The bytes of a file that is read forwards, and the search for the next block behind damage.
//!
//! ```text
//!   file ─► [ passed │ ahead: a block, looked at before it is taken │ … ]
//!                     └─ take: past it        next_header: to the next whole header, however far
//! ```
//!
//! N1  Memory: a block and a window. Each byte of a gap is looked at once.
//! N2  A header counts as found if its checksum is right and its lengths may be: any four bytes may look like a magic.
//!
//! Not here: what a block means, what is said about a gap (`read`).

use std::io::{self, Read};

use crate::block::{BLOCK_HEADER_BYTES, BLOCK_MAGIC, Header};

/// The bytes that are read at a time.
const WINDOW_BYTES: usize = 64 << 10;

/// A file, and the part of it that was read and not taken yet.
pub(crate) struct Input<R> {
    from: R,
    bytes: Vec<u8>,
    /// Where in `bytes` the part begins that is not taken.
    at: usize,
    /// The place in the file of that byte.
    offset: u64,
    refused: bool,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(from: R) -> Input<R> {
        Input {
            from,
            bytes: Vec::new(),
            at: 0,
            offset: 0,
            refused: false,
        }
    }

    /// Returns the place in the file of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reports whether the system refused to read on.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns the next `count` bytes without taking them; fewer where the file ends.
    pub(crate) fn ahead(&mut self, count: usize) -> &[u8] {
        if self.bytes.len() - self.at < count {
            self.bytes.drain(..self.at);
            self.at = 0;
            let wanted = count.max(WINDOW_BYTES) - self.bytes.len();
            let mut part = self.from.by_ref().take(wanted as u64);
            // What was read before an error is there all the same.
            self.refused |= part.read_to_end(&mut self.bytes).is_err();
        }
        let end = self.bytes.len().min(self.at + count);
        &self.bytes[self.at..end]
    }

    /// Takes `count` bytes, which were ahead.
    pub(crate) fn take(&mut self, count: usize) {
        debug_assert!(self.at + count <= self.bytes.len());
        self.at += count;
        self.offset += count as u64;
    }

    /// Goes on to the next whole header behind the next byte (N2), or to the end of the file. Returns the bytes passed.
    pub(crate) fn next_header(&mut self) -> u64 {
        let start = self.offset;
        let one = self.ahead(1).len();
        self.take(one);
        loop {
            let window = self.ahead(WINDOW_BYTES);
            let Some(last) = window.len().checked_sub(BLOCK_HEADER_BYTES) else {
                let rest = window.len();
                self.take(rest);
                return self.offset - start;
            };
            let hit = (0..=last).find(|&at| header_at(&window[at..]).is_some());
            self.take(hit.unwrap_or(last + 1));
            if hit.is_some() {
                return self.offset - start;
            }
        }
    }
}

/// Returns the header that begins here, if one does.
fn header_at(bytes: &[u8]) -> Option<Header> {
    if bytes[0] != BLOCK_MAGIC[0] {
        return None;
    }
    let head = bytes.first_chunk::<BLOCK_HEADER_BYTES>()?;
    Header::from_bytes(head).ok()
}

/// Reads a file's first bytes into an array; `None`: it ends before.
pub(crate) fn head<const N: usize>(from: &mut Input<impl Read>) -> io::Result<Option<[u8; N]>> {
    let head = from.ahead(N).first_chunk::<N>().copied();
    match head {
        None if from.is_refused() => Err(io::Error::other("the system refuses to read it")),
        head => Ok(head),
    }
}
