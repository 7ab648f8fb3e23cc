//! Payloads: stored by zstd, or as they are where that is no larger.
//!
//! ```text
//!   raw ─► Packer ─► codec, stored bytes, their CRC-32          stored ─► check ─► Unpacker ─► raw
//! ```
//!
//! P1  What is stored is never longer than it is raw.
//! P2  Unpacking gives as many bytes as the header says, or an error; no more are allocated than that.
//!
//! Not here: bounds on what a header may say (its reader's).

use std::io;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx};

use crate::varint::Malformed;

/// How a payload is stored.
pub mod codec {
    /// The codec of bytes that are stored unchanged.
    pub const RAW: u8 = 0;
    /// Compressed by zstd.
    pub const ZSTD: u8 = 1;
}

/// More than a context for unpacking takes (96 KB in zstd 1.5).
const CONTEXT_BYTES: usize = 160 << 10;

/// Returns the checksum of stored bytes.
#[inline]
pub fn crc(stored: &[u8]) -> u32 {
    crc32fast::hash(stored)
}

/// Compresses payloads; kept from block to block.
pub struct Packer(CCtx<'static>);

impl Packer {
    /// Creates a packer of this zstd level.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(level: i32) -> io::Result<Packer> {
        let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        let level = CParameter::CompressionLevel(level);
        context.set_parameter(level).map_err(failed)?;
        Ok(Packer(context))
    }

    /// Appends what is stored for `raw` to `out`, and returns how it is stored (P1).
    ///
    /// # Errors
    /// If zstd fails.
    pub fn pack(&mut self, raw: &[u8], out: &mut Vec<u8>) -> io::Result<u8> {
        let at = out.len();
        out.resize(at + zstd_safe::compress_bound(raw.len()), 0);
        let packed = self.0.compress2(&mut out[at..], raw).map_err(failed)?;
        if packed < raw.len() {
            out.truncate(at + packed);
            return Ok(codec::ZSTD);
        }
        out.truncate(at);
        out.extend_from_slice(raw);
        Ok(codec::RAW)
    }
}

fn failed(code: usize) -> io::Error {
    io::Error::other(zstd_safe::get_error_name(code))
}

/// Unpacks payloads; kept from block to block.
#[derive(Default)]
pub struct Unpacker(Option<DCtx<'static>>);

/// Returns a context; `None` if there is no memory for one. What it takes is asked for by the program's own allocator first, which
/// may have its own way to say that there is none: zstd's crate would panic.
fn context() -> Option<DCtx<'static>> {
    // Another thread may take what was there just now.
    const TRIES: usize = 8;
    (0..TRIES).find_map(|_| {
        let room: Vec<u8> = Vec::with_capacity(CONTEXT_BYTES);
        drop(std::hint::black_box(room));
        DCtx::try_create()
    })
}

impl Unpacker {
    /// Unpacks stored bytes into `raw`, whose old content is dropped (P2).
    ///
    /// # Errors
    /// If they were not packed so, or do not have this length.
    pub fn unpack(
        &mut self,
        codec: u8,
        stored: &[u8],
        raw_len: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        raw.clear();
        match codec {
            codec::RAW => raw.extend_from_slice(stored),
            codec::ZSTD => {
                raw.reserve_exact(raw_len);
                let zstd = match &mut self.0 {
                    Some(zstd) => zstd,
                    none => {
                        none.insert(context().ok_or(Malformed("no memory to decompress a block"))?)
                    }
                };
                zstd.decompress(raw, stored)
                    .map_err(|_| Malformed("a block does not decompress"))?;
            }
            _ => return Err(Malformed("a block is stored in an unknown way")),
        }
        if raw.len() != raw_len {
            return Err(Malformed("a block is not as long as it says"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_never_longer() {
        let mut packer = Packer::new(1).unwrap();
        let mut unpacker = Unpacker::default();
        let even = vec![7u8; 10_000];
        let odd: Vec<u8> = (0..200u32).map(|n| ((n * n * 31) >> 3) as u8).collect();
        for (raw, codec) in [
            (&even, codec::ZSTD),
            (&odd, codec::RAW),
            (&Vec::new(), codec::RAW),
        ] {
            let mut out = b"head".to_vec();
            assert_eq!(packer.pack(raw, &mut out).unwrap(), codec);
            let stored = &out[4..];
            assert!(out.starts_with(b"head") && stored.len() <= raw.len());
            let mut back = vec![1; 3];
            assert_eq!(unpacker.unpack(codec, stored, raw.len(), &mut back), Ok(()));
            assert_eq!(back, *raw);
            assert!(
                unpacker
                    .unpack(codec, stored, raw.len() + 1, &mut back)
                    .is_err()
            );
        }
        assert!(unpacker.unpack(9, b"", 0, &mut Vec::new()).is_err());
        assert!(
            unpacker
                .unpack(codec::ZSTD, b"no zstd", 7, &mut Vec::new())
                .is_err()
        );
    }
}
