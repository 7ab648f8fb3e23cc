//! The frame around everything in a trace: a file header, then blocks with headers of their own, each
//! with its own checksum.
//!
//! ```text
//!   [file header 24] [block header 64 | payload] [block header 64 | payload] … [ending]
//! ```
//!
//! B1  All numbers are little-endian. Both headers end in a CRC-32 of the header's bytes before it, and
//!     a block header holds the CRC-32 of its payload.
//! B2  A header with a right checksum is still not trusted with memory: lengths above the limits below
//!     are refused before anything is allocated.
//! B3  A block starts with four bytes that are not text, so a reader finds the next block after damage.
//!
//! Not here: what is in the payloads (encode.rs, meta.rs), checksums and compression (`framing`).

use skinflint_framing::header::{is_sealed, seal, u32_at, u64_at};
use skinflint_framing::payload;
use skinflint_framing::varint::Malformed;

/// The first bytes of a trace. As in PNG: a byte above 127, the name, CR LF, Ctrl-Z, LF, so that each of
/// the usual mistakes of a transfer in text mode changes them.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"\x89SFT\r\n\x1a\n";
/// The first bytes of a block.
pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"\xabSF\xba";
/// The major version of the format. A reader of another major version cannot read this one.
pub const MAJOR: u16 = 1;
/// The minor version of the format. A reader of a lower minor version reads what it knows.
pub const MINOR: u16 = 9;
pub(crate) const FILE_HEADER_BYTES: usize = 24;
pub(crate) const BLOCK_HEADER_BYTES: usize = 64;
/// The largest raw length of an event block, in bytes.
pub(crate) const MAX_EVENTS_RAW: u32 = 16 << 20;
/// The largest raw length of any other block, in bytes.
pub(crate) const MAX_META_RAW: u32 = 64 << 20;

/// The kinds of blocks. Blocks of unknown kinds are skipped.
pub(crate) mod kind {
    pub(crate) const PROCESS: u8 = 1;
    pub(crate) const NODES: u8 = 2;
    pub(crate) const EVENTS: u8 = 3;
    pub(crate) const MODULES: u8 = 4;
    pub(crate) const THREADS: u8 = 5;
    pub(crate) const MARK: u8 = 6;
    pub(crate) const RSS: u8 = 7;
    pub(crate) const SNAPSHOT: u8 = 8;
    pub(crate) const ENDING: u8 = 9;
    pub(crate) const LOST: u8 = 10;
    pub(crate) const POINTERS: u8 = 11;
    pub(crate) const LOOK: u8 = 12;
    pub(crate) const CODES: u8 = 13;
    pub(crate) const KINDS: u8 = 14;
}

/// The header of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) codec: u8,
    /// Whether it repeats what an earlier segment of the recording has (segments.rs).
    pub(crate) repeats: bool,
    pub(crate) stream: u32,
    pub(crate) payload_len: u32,
    pub(crate) raw_len: u32,
    pub(crate) events: u32,
    pub(crate) sequence: u32,
    pub(crate) first_ticket: u64,
    pub(crate) last_ticket: u64,
    pub(crate) first_time_ns: u64,
    pub(crate) payload_crc: u32,
}

impl Header {
    /// Returns the 64 bytes of FORMAT.md.
    pub(crate) fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[0..4].copy_from_slice(&BLOCK_MAGIC);
        out[4] = self.kind;
        out[5] = self.codec;
        out[6] = u8::from(self.repeats);
        out[8..12].copy_from_slice(&self.stream.to_le_bytes());
        out[12..16].copy_from_slice(&self.payload_len.to_le_bytes());
        out[16..20].copy_from_slice(&self.raw_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.events.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_ticket.to_le_bytes());
        out[32..40].copy_from_slice(&self.last_ticket.to_le_bytes());
        out[40..48].copy_from_slice(&self.first_time_ns.to_le_bytes());
        out[48..52].copy_from_slice(&self.sequence.to_le_bytes());
        out[56..60].copy_from_slice(&self.payload_crc.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Reads a header; `None` if the bytes are not a header, or a damaged one.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Header> {
        if bytes.len() < BLOCK_HEADER_BYTES || bytes[0..4] != BLOCK_MAGIC {
            return None;
        }
        if !is_sealed(&bytes[..BLOCK_HEADER_BYTES]) {
            return None;
        }
        Some(Header {
            kind: bytes[4],
            codec: bytes[5],
            repeats: bytes[6] & 1 != 0,
            stream: u32_at(bytes, 8),
            payload_len: u32_at(bytes, 12),
            raw_len: u32_at(bytes, 16),
            events: u32_at(bytes, 20),
            first_ticket: u64_at(bytes, 24),
            last_ticket: u64_at(bytes, 32),
            first_time_ns: u64_at(bytes, 40),
            sequence: u32_at(bytes, 48),
            payload_crc: u32_at(bytes, 56),
        })
    }

    /// Checks that the lengths are within the limits (B2).
    pub(crate) fn check_lengths(&self) -> Result<(), Malformed> {
        let limit = if self.kind == kind::EVENTS {
            MAX_EVENTS_RAW
        } else {
            MAX_META_RAW
        };
        if self.raw_len > limit {
            return Err(Malformed(
                "a block that claims to be larger than any may be",
            ));
        }
        // A payload is never stored larger than it is raw.
        if self.payload_len > self.raw_len {
            return Err(Malformed(
                "a block whose stored length exceeds its own length",
            ));
        }
        // Each event takes a tag of at least one byte.
        if self.kind == kind::EVENTS && self.events > self.raw_len {
            return Err(Malformed(
                "a block that claims more events than it has bytes",
            ));
        }
        Ok(())
    }
}

/// Returns the header of the file, as this version writes it.
pub(crate) fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0; FILE_HEADER_BYTES];
    out[0..8].copy_from_slice(&FILE_MAGIC);
    out[8..10].copy_from_slice(&MAJOR.to_le_bytes());
    out[10..12].copy_from_slice(&MINOR.to_le_bytes());
    out[12..16].copy_from_slice(&(FILE_HEADER_BYTES as u32).to_le_bytes());
    seal(&mut out);
    out
}

/// The header of a file, as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileHeader {
    pub(crate) major: u16,
    pub(crate) minor: u16,
    /// Where the first block is.
    pub(crate) len: u32,
    /// Whether the checksum is right.
    pub(crate) whole: bool,
}

/// Reads the header of a file; `bytes` begins with [`FILE_MAGIC`].
pub(crate) fn read_file_header(bytes: &[u8; FILE_HEADER_BYTES]) -> FileHeader {
    FileHeader {
        major: u16::from_le_bytes([bytes[8], bytes[9]]),
        minor: u16::from_le_bytes([bytes[10], bytes[11]]),
        len: u32_at(bytes, 12),
        whole: is_sealed(bytes),
    }
}

/// Buffers and state for reading blocks, kept from block to block.
#[derive(Default)]
pub(crate) struct Unpacker {
    zstd: payload::Unpacker,
    /// A block as stored, header and payload.
    pub(crate) stored: Vec<u8>,
}

/// Checks and unpacks the payload in `unpacker.stored` into `raw`, whose old content is dropped.
pub(crate) fn unpack(
    header: &Header,
    unpacker: &mut Unpacker,
    raw: &mut Vec<u8>,
) -> Result<(), Malformed> {
    let payload = &unpacker.stored[BLOCK_HEADER_BYTES..];
    if payload::crc(payload) != header.payload_crc {
        return Err(Malformed("the checksum of a block is wrong"));
    }
    header.check_lengths()?;
    unpacker
        .zstd
        .unpack(header.codec, payload, header.raw_len as usize, raw)
}
