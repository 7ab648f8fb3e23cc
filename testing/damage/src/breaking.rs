//! Damages a trace as disks, crashes and copying do, from a seed.
//!
//! ```text
//!   blocks of the file ─► one to three blows ─► half of the time: checksums put right again
//! ```
//!
//! K1  Only the layout of headers is known here (FORMAT.md), nothing of what is in a payload.
//! K2  With its checksums repaired, damage is no longer found by them: it reaches the decoders.
//!
//! Not here: what must hold afterwards (reading.rs).

use skinflint_base::random::Random;

const FILE_HEADER: usize = 24;
const BLOCK_HEADER: usize = 64;
const MAGIC: [u8; 4] = [0xab, b'S', b'F', 0xba];
const ZSTD: u8 = 1;
/// The most bytes of a trace's payload that is unpacked here.
const MOST_UNPACKED: usize = 64 << 20;

fn number(bytes: &[u8], at: usize) -> usize {
    let four = bytes[at..at + 4].try_into().unwrap_or_default();
    u32::from_le_bytes(four) as usize
}

/// Returns the range of each whole block, as far as they follow each other.
pub fn blocks(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = FILE_HEADER;
    while at + BLOCK_HEADER <= bytes.len() && bytes[at..at + 4] == MAGIC {
        let end = at + BLOCK_HEADER + number(bytes, at + 12);
        if end > bytes.len() {
            break;
        }
        found.push(at..end);
        at = end;
    }
    found
}

/// Repairs every checksum that can be reached, so that the other damage is seen.
pub fn repair(bytes: &mut [u8]) {
    if bytes.len() >= FILE_HEADER {
        let crc = crc32fast::hash(&bytes[..20]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    }
    for block in blocks(bytes) {
        let (start, payload) = (block.start, block.start + BLOCK_HEADER);
        let crc = crc32fast::hash(&bytes[payload..block.end]);
        bytes[start + 56..start + 60].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[start..start + 60]);
        bytes[start + 60..start + 64].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Returns the same trace with nothing compressed: a flipped bit is then a wrong number, and not a broken frame.
pub fn unpack(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes[..FILE_HEADER.min(bytes.len())].to_vec();
    for block in blocks(bytes) {
        let (header, payload) = bytes[block].split_at(BLOCK_HEADER);
        let plain = match header[5] {
            ZSTD => zstd::bulk::decompress(payload, MOST_UNPACKED).unwrap_or_default(),
            _ => payload.to_vec(),
        };
        let start = out.len();
        out.extend_from_slice(header);
        out[start + 5] = 0;
        out[start + 12..start + 16].copy_from_slice(&(plain.len() as u32).to_le_bytes());
        out[start + 16..start + 20].copy_from_slice(&(plain.len() as u32).to_le_bytes());
        out.extend_from_slice(&plain);
    }
    repair(&mut out);
    out
}

/// Returns a damaged copy, and what was done to it.
pub fn damaged(whole: &[u8], other: &[u8], seed: u64) -> (Vec<u8>, String) {
    let mut rng = Random::new(seed);
    let mut bytes = if rng.index(2) == 0 {
        unpack(whole)
    } else {
        whole.to_vec()
    };
    let mut done = Vec::new();
    for _ in 0..1 + rng.index(3) {
        done.push(blow(&mut bytes, other, &mut rng));
    }
    if rng.index(2) == 0 {
        repair(&mut bytes);
        done.push("checksums put right");
    }
    (bytes, done.join(", "))
}

fn blow(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Random) -> &'static str {
    if bytes.is_empty() {
        return "nothing left to break";
    }
    let at = rng.index(bytes.len());
    let len = 1 + rng.index(bytes.len() - at).min(rng.index(4096));
    match rng.index(9) {
        0 => {
            bytes.truncate(at);
            "cut"
        }
        1 => {
            bytes[at] ^= 1 << rng.index(8);
            "one bit flipped"
        }
        2 => {
            for _ in 0..1 + rng.index(64) {
                let at = rng.index(bytes.len());
                bytes[at] = rng.bits() as u8;
            }
            "bytes overwritten"
        }
        3 => {
            bytes[at..at + len].fill(0);
            "a hole of zeros"
        }
        4 => {
            bytes.drain(at..at + len);
            "a piece gone"
        }
        5 => {
            let copy = bytes[at..at + len].to_vec();
            let to = rng.index(bytes.len());
            bytes.splice(to..to, copy);
            "a piece twice"
        }
        6 => splice_block(bytes, other, rng),
        7 => exchange_blocks(bytes, rng),
        _ => {
            extreme_number(bytes, rng);
            "a number made extreme"
        }
    }
}

/// Puts a block of another trace into the middle of this one, or in place of one of its own.
fn splice_block(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Random) -> &'static str {
    let (own, theirs) = (blocks(bytes), blocks(other));
    if own.is_empty() || theirs.is_empty() {
        return "no block to splice";
    }
    let block = other[theirs[rng.index(theirs.len())].clone()].to_vec();
    let place = own[rng.index(own.len())].clone();
    if rng.index(2) == 0 {
        bytes.splice(place.start..place.start, block);
        "a block of another trace put in"
    } else {
        bytes.splice(place, block);
        "a block replaced by another trace's"
    }
}

fn exchange_blocks(bytes: &mut Vec<u8>, rng: &mut Random) -> &'static str {
    let own = blocks(bytes);
    if own.len() < 2 {
        return "no blocks to exchange";
    }
    let (a, b) = (rng.index(own.len()), rng.index(own.len()));
    let (first, second) = (own[a.min(b)].clone(), own[a.max(b)].clone());
    let (one, two) = (
        bytes[first.clone()].to_vec(),
        bytes[second.clone()].to_vec(),
    );
    bytes.splice(second, one);
    bytes.splice(first, two);
    "two blocks exchanged"
}

/// Replaces some of the bytes of a payload by a number as large, or as negative, as can be written.
fn extreme_number(bytes: &mut [u8], rng: &mut Random) {
    let own = blocks(bytes);
    let range = match own.len() {
        0 => 0..bytes.len(),
        many => {
            let block = own[rng.index(many)].clone();
            // The other kinds of damage hit lengths in headers; this one hits payloads.
            (block.start + BLOCK_HEADER).min(block.end)..block.end
        }
    };
    if range.is_empty() {
        return;
    }
    let at = range.start + rng.index(range.len());
    let end = (at + 1 + rng.index(10)).min(range.end);
    bytes[at..end].fill(0xff);
    if rng.index(2) == 0 {
        bytes[end - 1] = 0x01;
    }
}
