//! The frame of an object trace: a file header, then blocks with headers of their own, each with its own checksum.
//!
//! ```text
//!   [file header 16] [block header 40 | payload] [block header 40 | payload] … [ending]
//! ```
//!
//! B1  All numbers are little-endian. Both headers end in a CRC-32 of the header's bytes before it, and a block
//!     header holds the CRC-32 of its payload as stored.
//! B2  A header with a right checksum is still not trusted with memory: a block longer than `MAX_RAW` is refused.
//!
//! Not here: what payloads hold (`write`, `read`), checksums and compression (`framing`).

use skinflint_framing::header::{is_sealed, seal, u32_at, u64_at};

/// The first bytes of an object trace; each of the usual mistakes of a transfer as text changes them.
pub(crate) const FILE_MAGIC: [u8; 8] = *b"\x89SFO\r\n\x1a\n";
pub(crate) const BLOCK_MAGIC: [u8; 4] = *b"\xabSO\xba";
/// The major version of the format. A reader of another major version cannot read this one.
pub const MAJOR: u16 = 1;
/// The minor version of the format. A reader of a lower minor version reads what it knows.
pub const MINOR: u16 = 0;
pub(crate) const FILE_HEADER_BYTES: usize = 16;
pub(crate) const BLOCK_HEADER_BYTES: usize = 40;
/// The most bytes that a block may have, unpacked.
pub(crate) const MAX_RAW: u32 = 1 << 20;

pub(crate) mod kind {
    pub(crate) const INFO: u8 = 1;
    pub(crate) const KINDS: u8 = 2;
    pub(crate) const EVENTS: u8 = 3;
    pub(crate) const ENDING: u8 = 4;
}

/// The header of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) codec: u8,
    pub(crate) payload_len: u32,
    pub(crate) raw_len: u32,
    pub(crate) events: u32,
    pub(crate) sequence: u32,
    /// The id of the next allocation, before the block's first event.
    pub(crate) first_id: u64,
    pub(crate) payload_crc: u32,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut out = [0; BLOCK_HEADER_BYTES];
        out[0..4].copy_from_slice(&BLOCK_MAGIC);
        out[4] = self.kind;
        out[5] = self.codec;
        out[8..12].copy_from_slice(&self.payload_len.to_le_bytes());
        out[12..16].copy_from_slice(&self.raw_len.to_le_bytes());
        out[16..20].copy_from_slice(&self.events.to_le_bytes());
        out[20..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.first_id.to_le_bytes());
        out[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Reads a header; the error says why the bytes are not one.
    pub(crate) fn from_bytes(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Result<Header, &'static str> {
        if bytes[0..4] != BLOCK_MAGIC {
            return Err("no block begins here");
        }
        if !is_sealed(bytes) {
            return Err("the checksum of a block's header is wrong");
        }
        let header = Header {
            kind: bytes[4],
            codec: bytes[5],
            payload_len: u32_at(bytes, 8),
            raw_len: u32_at(bytes, 12),
            events: u32_at(bytes, 16),
            sequence: u32_at(bytes, 20),
            first_id: u64_at(bytes, 24),
            payload_crc: u32_at(bytes, 32),
        };
        // A payload is never stored larger than it is raw; each event takes at least a byte.
        let sane = header.raw_len <= MAX_RAW
            && header.payload_len <= header.raw_len
            && header.events <= header.raw_len;
        if sane {
            Ok(header)
        } else {
            Err("a block claims lengths that none may have")
        }
    }
}

/// Returns the header of the file, as this version writes it.
pub(crate) fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut out = [0; FILE_HEADER_BYTES];
    out[0..8].copy_from_slice(&FILE_MAGIC);
    out[8..10].copy_from_slice(&MAJOR.to_le_bytes());
    out[10..12].copy_from_slice(&MINOR.to_le_bytes());
    seal(&mut out);
    out
}
