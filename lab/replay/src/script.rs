//! The bytes of a script: header, epochs, chunks, operations.
//!
//! ```text
//!   header 128 │ epoch 64 │ chunk 16 │ words … │ chunk 16 │ words … │ epoch 64 │ …  │ last epoch 64
//!              └ flags: points to take before it         └ one thread's operations of the epoch
//! ```
//!
//! F1  An epoch is played only when all epochs up to the second before it are done ([`LEAD`]). So an operation needs
//!     a `Wait` for another thread's operation only if that lies in the same epoch or the one before.
//! F2  Every operation on a slot (acquire, regrow, release) raises its count by one; `Wait` names the count that the
//!     next operation expects.
//! F3  All lengths are checked before they are used; a fault gives the byte of the file.
//! F4  Header, epochs and payloads have checks of 32 bits: damage is found before it is replayed.
//!
//! Not here: reading files, replaying (main.rs and its modules).

/// The first bytes of a script: those of a trace, with `SFP` for `SFT`.
pub const MAGIC: [u8; 8] = [0x89, b'S', b'F', b'P', 0x0d, 0x0a, 0x1a, 0x0a];
/// The first bytes of an epoch.
pub const EPOCH_MAGIC: u32 = u32::from_le_bytes([0xab, b'S', b'F', 0xbb]);
/// The version of the format; another major version is refused.
pub const MAJOR: u16 = 1;
/// Later minor versions only use fields that are 0 in this one.
pub const MINOR: u16 = 0;
/// The size of the file's header.
pub const HEADER_BYTES: usize = 128;
/// The size of an epoch's header.
pub const EPOCH_BYTES: usize = 64;
/// The size of a chunk's header.
pub const CHUNK_BYTES: usize = 16;
/// The most bytes of an epoch's chunks.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// The most events of an epoch.
pub const EPOCH_EVENTS: u32 = 4096;
/// An epoch begins when all but the last `LEAD - 1` before it are done (F1).
pub const LEAD: u32 = 2;
/// The most threads of a script.
pub const MAX_THREADS: u32 = 1 << 20;
/// The bits of the count of operations on a slot (F2), which wraps.
pub const COUNT_BITS: u32 = 23;
/// The most words of an operation.
pub const OP_WORDS: usize = 3;

/// The meaning of the low four bits of an operation's first word. The other 28 are the low bits of the slot (or the
/// thread).
pub mod op {
    /// malloc: size.
    pub const MALLOC: u32 = 1;
    /// calloc(1, size): size.
    pub const CALLOC: u32 = 2;
    /// aligned_alloc: size, binary logarithm of the alignment.
    pub const MEMALIGN: u32 = 3;
    /// realloc of the slot's block: new size.
    pub const REALLOC: u32 = 4;
    /// free.
    pub const FREE: u32 = 5;
    /// Wait until the slot's count is this (F2).
    pub const WAIT: u32 = 6;
    /// The next acquisition touches this many pages from its start, no more.
    pub const TOUCH_NEXT: u32 = 7;
    /// The block's pages up to this number are touched now.
    pub const TOUCH: u32 = 8;
    /// High bits for the next operation: the slot's above 28; the size's above 32.
    pub const HIGH: u32 = 9;
    /// Start this thread.
    pub const START: u32 = 10;
    /// The thread ends.
    pub const END: u32 = 11;
    /// Time has passed in the recording: this many microseconds.
    pub const TIME: u32 = 12;

    /// Words of an operation by its low four bits; 0 where there is none.
    pub const WORDS: [u8; 16] = [0, 2, 2, 3, 2, 1, 2, 2, 2, 2, 1, 1, 2, 0, 0, 0];
}

/// The points that are taken before an epoch, when everything before it is done: bits of its flags.
pub mod point {
    /// A point of progress, every some operations: resident memory.
    pub const PROGRESS: u32 = 1;
    /// The most bytes are live.
    pub const PEAK: u32 = 2;
    /// The fewest bytes after the peak are live.
    pub const AFTER_FREE: u32 = 4;
    /// A mark of the recording.
    pub const MARK: u32 = 8;
    /// The end; the epoch has no chunks and is the last.
    pub const END: u32 = 16;
}

/// A fault of a script, and its byte in the input of the function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Bytes from the beginning of the part.
    pub at: usize,
    /// The fault.
    pub what: &'static str,
}

/// The file's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Number of threads.
    pub threads: u32,
    /// The thread that is played by the process's first; its allocators treat it specially.
    pub main: u32,
    /// Number of operations on blocks; for progress only.
    pub ops: u64,
    /// The most requested bytes live at one time in the recording.
    pub peak_live_bytes: u64,
    /// The time from the trace's beginning to its end, nanoseconds.
    pub recorded_ns: u64,
    /// The trace's uid, 16 hex digits.
    pub uid: [u8; 16],
}

/// An epoch's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Epoch {
    /// Its number, from 0, wrapping.
    pub index: u32,
    /// Bits of [`point`].
    pub flags: u32,
    /// Number of chunks: threads that do something in it.
    pub chunks: u32,
    /// Bytes of its chunks.
    pub payload_bytes: u32,
    /// The number of the mark, if [`point::MARK`].
    pub mark: u32,
    /// Operations on blocks before it.
    pub first_op: u64,
    /// The time of its beginning in the recording, nanoseconds.
    pub time_ns: u64,
    /// Requested bytes that live before it.
    pub live_bytes: u64,
    /// Blocks that live before it.
    pub live_blocks: u32,
    /// Number of slots used up to its end: all of its slots are below.
    pub slots: u32,
    /// Check of the payload.
    pub payload_check: u32,
}

/// A chunk's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Chunk {
    /// The thread of the operations.
    pub thread: u32,
    /// Words of operations; filled up to an even number with zeros, which are not counted.
    pub words: u32,
    /// The time of its first operation in the recording, nanoseconds.
    pub time_ns: u64,
}

/// Computes a check of 32 bits over bytes: eight at a time, mixed by a multiplication, which is its cost. It finds
/// damage, not malice.
pub fn check(bytes: &[u8]) -> u32 {
    let mut sum = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes.len() as u64;
    let mut words = bytes.chunks_exact(8);
    let mut mix = |word: u64| {
        sum = (sum ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        sum ^= sum >> 32;
    };
    for word in &mut words {
        mix(u64_at(word, 0));
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(u64::from_le_bytes(last));
    (sum ^ (sum >> 29)) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

impl Header {
    /// Returns the header's bytes.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &MAJOR.to_le_bytes());
        put(&mut bytes, 10, &MINOR.to_le_bytes());
        put(&mut bytes, 12, &(HEADER_BYTES as u32).to_le_bytes());
        put(&mut bytes, 16, &self.threads.to_le_bytes());
        put(&mut bytes, 20, &self.main.to_le_bytes());
        put(&mut bytes, 24, &self.ops.to_le_bytes());
        put(&mut bytes, 32, &self.peak_live_bytes.to_le_bytes());
        put(&mut bytes, 40, &self.recorded_ns.to_le_bytes());
        put(&mut bytes, 48, &self.uid);
        let sum = check(&bytes[..HEADER_BYTES - 4]);
        put(&mut bytes, HEADER_BYTES - 4, &sum.to_le_bytes());
        bytes
    }

    /// Reads the header.
    ///
    /// # Errors
    /// If it is no header, of another major version, damaged, or names a thread that does not exist.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Fault> {
        let fault = |at, what| Err(Fault { at, what });
        if bytes[..8] != MAGIC {
            return match &bytes[..8] {
                [0x89, b'S', b'F', b'T', ..] => {
                    fault(0, "this is a trace, not a script: compile it first")
                }
                _ => fault(0, "not a script: other first bytes"),
            };
        }
        if u32_at(bytes, HEADER_BYTES - 4) != check(&bytes[..HEADER_BYTES - 4]) {
            return fault(
                HEADER_BYTES - 4,
                "the header is damaged: its check is wrong",
            );
        }
        if bytes[8..10] != MAJOR.to_le_bytes() {
            return fault(8, "a script of another version: compile the trace again");
        }
        let header = Header {
            threads: u32_at(bytes, 16),
            main: u32_at(bytes, 20),
            ops: u64_at(bytes, 24),
            peak_live_bytes: u64_at(bytes, 32),
            recorded_ns: u64_at(bytes, 40),
            uid: {
                let mut uid = [0; 16];
                uid.copy_from_slice(&bytes[48..64]);
                uid
            },
        };
        if u32_at(bytes, 12) as usize != HEADER_BYTES {
            return fault(12, "the first epoch is not where this version has it");
        }
        if header.threads == 0 || header.threads > MAX_THREADS {
            return fault(16, "no threads, or more than a script can have");
        }
        if header.main >= header.threads {
            return fault(20, "the main thread is none of the threads");
        }
        Ok(header)
    }
}

impl Epoch {
    /// Returns the header's bytes, for this payload.
    pub fn to_bytes(&self, payload: &[u8]) -> [u8; EPOCH_BYTES] {
        let mut bytes = [0; EPOCH_BYTES];
        put(&mut bytes, 0, &EPOCH_MAGIC.to_le_bytes());
        put(&mut bytes, 4, &self.index.to_le_bytes());
        put(&mut bytes, 8, &self.flags.to_le_bytes());
        put(&mut bytes, 12, &self.chunks.to_le_bytes());
        put(&mut bytes, 16, &(payload.len() as u32).to_le_bytes());
        put(&mut bytes, 20, &self.mark.to_le_bytes());
        put(&mut bytes, 24, &self.first_op.to_le_bytes());
        put(&mut bytes, 32, &self.time_ns.to_le_bytes());
        put(&mut bytes, 40, &self.live_bytes.to_le_bytes());
        put(&mut bytes, 48, &self.live_blocks.to_le_bytes());
        put(&mut bytes, 52, &self.slots.to_le_bytes());
        put(&mut bytes, 56, &check(payload).to_le_bytes());
        let sum = check(&bytes[..EPOCH_BYTES - 4]);
        put(&mut bytes, EPOCH_BYTES - 4, &sum.to_le_bytes());
        bytes
    }

    /// Reads the header of the epoch that must be number `index`.
    ///
    /// # Errors
    /// If it is no header, damaged, another epoch's, or too long.
    pub fn from_bytes(bytes: &[u8; EPOCH_BYTES], index: u32) -> Result<Epoch, Fault> {
        let fault = |at, what| Err(Fault { at, what });
        if u32_at(bytes, 0) != EPOCH_MAGIC {
            return fault(0, "no epoch begins here");
        }
        if u32_at(bytes, EPOCH_BYTES - 4) != check(&bytes[..EPOCH_BYTES - 4]) {
            return fault(
                EPOCH_BYTES - 4,
                "an epoch's header is damaged: its check is wrong",
            );
        }
        let epoch = Epoch {
            index: u32_at(bytes, 4),
            flags: u32_at(bytes, 8),
            chunks: u32_at(bytes, 12),
            payload_bytes: u32_at(bytes, 16),
            mark: u32_at(bytes, 20),
            first_op: u64_at(bytes, 24),
            time_ns: u64_at(bytes, 32),
            live_bytes: u64_at(bytes, 40),
            live_blocks: u32_at(bytes, 48),
            slots: u32_at(bytes, 52),
            payload_check: u32_at(bytes, 56),
        };
        if epoch.index != index {
            return fault(4, "an epoch is missing or out of its place");
        }
        if epoch.payload_bytes as usize > MAX_PAYLOAD_BYTES {
            return fault(16, "an epoch longer than a script can have");
        }
        if epoch.flags & point::END != 0 && epoch.chunks != 0 {
            return fault(12, "the last epoch has chunks");
        }
        Ok(epoch)
    }
}

impl Chunk {
    /// Returns the header's bytes.
    pub fn to_bytes(&self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        put(&mut bytes, 0, &self.thread.to_le_bytes());
        put(&mut bytes, 4, &self.words.to_le_bytes());
        put(&mut bytes, 8, &self.time_ns.to_le_bytes());
        bytes
    }

    /// Returns the bytes of the chunk with its header.
    pub fn bytes(&self) -> usize {
        CHUNK_BYTES + (self.words as usize).next_multiple_of(2) * 4
    }

    /// Reads the chunk at `at` in a payload of a script with this many threads.
    ///
    /// # Errors
    /// If it does not fit, or its thread does not exist.
    pub fn from_payload(payload: &[u8], at: usize, threads: u32) -> Result<Chunk, Fault> {
        let Some(bytes) = payload.get(at..at + CHUNK_BYTES) else {
            let what = "an epoch ends within the header of a chunk";
            return Err(Fault { at, what });
        };
        let chunk = Chunk {
            thread: u32_at(bytes, 0),
            words: u32_at(bytes, 4),
            time_ns: u64_at(bytes, 8),
        };
        if chunk.thread >= threads {
            let what = "a chunk of a thread that there is not";
            return Err(Fault { at, what });
        }
        if chunk.words as usize > payload.len() / 4 || chunk.bytes() > payload.len() - at {
            let what = "a chunk reaches beyond its epoch";
            return Err(Fault { at, what });
        }
        Ok(chunk)
    }
}

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is described at its number in `op`")]
pub enum Op {
    Malloc { slot: u32, size: u64 },
    Calloc { slot: u32, size: u64 },
    Memalign { slot: u32, size: u64, log2: u32 },
    Realloc { slot: u32, size: u64 },
    Free { slot: u32 },
    Wait { slot: u32, count: u32 },
    TouchNext { pages: u64 },
    Touch { slot: u32, pages: u64 },
    Start { thread: u32 },
    End,
    Time { micros: u32 },
}

/// The words of one operation, with the prefix that large numbers need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Words {
    words: [u32; OP_WORDS + 2],
    len: usize,
}

impl Words {
    /// Returns the words.
    pub fn as_slice(&self) -> &[u32] {
        &self.words[..self.len]
    }

    fn push(&mut self, word: u32) {
        self.words[self.len] = word;
        self.len += 1;
    }
}

const SLOT_BITS: u32 = 28;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

impl Op {
    /// Returns its words.
    pub fn words(&self) -> Words {
        let (kind, slot, value, extra) = match *self {
            Op::Malloc { slot, size } => (op::MALLOC, slot, Some(size), None),
            Op::Calloc { slot, size } => (op::CALLOC, slot, Some(size), None),
            Op::Memalign { slot, size, log2 } => (op::MEMALIGN, slot, Some(size), Some(log2)),
            Op::Realloc { slot, size } => (op::REALLOC, slot, Some(size), None),
            Op::Free { slot } => (op::FREE, slot, None, None),
            Op::Wait { slot, count } => (op::WAIT, slot, Some(u64::from(count)), None),
            Op::TouchNext { pages } => (op::TOUCH_NEXT, 0, Some(pages), None),
            Op::Touch { slot, pages } => (op::TOUCH, slot, Some(pages), None),
            Op::Start { thread } => (op::START, thread, None, None),
            Op::End => (op::END, 0, None, None),
            Op::Time { micros } => (op::TIME, 0, Some(u64::from(micros)), None),
        };
        let mut words = Words::default();
        let (slot_high, value_high) = (slot >> SLOT_BITS, (value.unwrap_or(0) >> 32) as u32);
        if slot_high | value_high != 0 {
            words.push(op::HIGH | slot_high << 4);
            words.push(value_high);
        }
        words.push(kind | (slot & SLOT_MASK) << 4);
        if let Some(value) = value {
            words.push(value as u32);
        }
        if let Some(extra) = extra {
            words.push(extra);
        }
        words
    }

    /// Returns the first operation of some words, and how many of them it takes.
    ///
    /// # Errors
    /// If there is no operation of that number, or it is cut.
    pub fn first(words: &[u32]) -> Result<(Op, usize), &'static str> {
        let (mut slot_high, mut value_high, mut at) = (0, 0, 0);
        loop {
            let word = *words.get(at).ok_or("an operation is cut")?;
            let len = op::WORDS[(word & 15) as usize] as usize;
            if len == 0 {
                return Err("no operation has this number");
            }
            if words.len() < at + len {
                return Err("an operation is cut");
            }
            let slot = word >> 4 | slot_high << SLOT_BITS;
            let value = |nth: usize| words[at + nth];
            let size = || u64::from(value(1)) | u64::from(value_high) << 32;
            let found = match word & 15 {
                op::HIGH => {
                    (slot_high, value_high) = (word >> 4, value(1));
                    at += len;
                    continue;
                }
                op::MALLOC => Op::Malloc { slot, size: size() },
                op::CALLOC => Op::Calloc { slot, size: size() },
                op::MEMALIGN => Op::Memalign {
                    slot,
                    size: size(),
                    log2: value(2),
                },
                op::REALLOC => Op::Realloc { slot, size: size() },
                op::FREE => Op::Free { slot },
                op::WAIT => Op::Wait {
                    slot,
                    count: value(1),
                },
                op::TOUCH_NEXT => Op::TouchNext { pages: size() },
                op::TOUCH => Op::Touch {
                    slot,
                    pages: size(),
                },
                op::START => Op::Start { thread: slot },
                op::END => Op::End,
                _ => Op::Time { micros: value(1) },
            };
            return Ok((found, at + len));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: &[Op] = &[
        Op::Malloc { slot: 0, size: 0 },
        Op::Malloc {
            slot: SLOT_MASK,
            size: u32::MAX as u64,
        },
        Op::Malloc {
            slot: SLOT_MASK + 1,
            size: 24,
        },
        Op::Calloc {
            slot: u32::MAX,
            size: 1 << 46,
        },
        Op::Memalign {
            slot: 7,
            size: 1 << 33,
            log2: 21,
        },
        Op::Realloc {
            slot: 1 << 29,
            size: 5,
        },
        Op::Free { slot: u32::MAX },
        Op::Free { slot: 3 },
        Op::Wait {
            slot: 9,
            count: (1 << COUNT_BITS) - 1,
        },
        Op::TouchNext { pages: 1 << 34 },
        Op::Touch { slot: 2, pages: 1 },
        Op::Start {
            thread: MAX_THREADS - 1,
        },
        Op::End,
        Op::Time { micros: u32::MAX },
    ];

    #[test]
    fn what_is_written_is_what_is_read() {
        for op in OPS {
            let words = op.words();
            assert_eq!(
                Op::first(words.as_slice()),
                Ok((*op, words.as_slice().len()))
            );
        }
    }

    #[test]
    fn a_cut_operation_is_an_error_at_every_length() {
        for op in OPS {
            let words = op.words();
            for len in 0..words.as_slice().len() {
                assert_eq!(
                    Op::first(&words.as_slice()[..len]),
                    Err("an operation is cut")
                );
            }
        }
        for nothing in [0, 13, 14, 15] {
            assert!(Op::first(&[nothing, 0, 0]).is_err());
        }
    }

    #[test]
    fn every_damaged_bit_of_a_header_is_found() {
        let header = Header {
            threads: 3,
            main: 2,
            ops: 17,
            ..Header::default()
        };
        let good = header.to_bytes();
        assert_eq!(Header::from_bytes(&good), Ok(header));
        let epoch = Epoch {
            index: 4,
            chunks: 1,
            payload_bytes: 3,
            payload_check: check(b"abc"),
            ..Epoch::default()
        };
        let good_epoch = epoch.to_bytes(b"abc");
        assert_eq!(Epoch::from_bytes(&good_epoch, 4), Ok(epoch));
        assert!(Epoch::from_bytes(&good_epoch, 5).is_err());
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::from_bytes(&bad).is_err(), "bit {bit}");
        }
        for bit in 0..EPOCH_BYTES * 8 {
            let mut bad = good_epoch;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Epoch::from_bytes(&bad, 4).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_check_knows_length_order_and_each_bit() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
        let good = check(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check(&bad), good);
        }
        assert_ne!(check(&bytes[..16]), good);
        assert_ne!(check(&[0; 8]), check(&[0; 16]));
    }

    #[test]
    fn a_chunk_stays_within_its_epoch() {
        let chunk = Chunk {
            thread: 1,
            words: 3,
            time_ns: 5,
        };
        let mut payload = [0; 32];
        payload[..16].copy_from_slice(&chunk.to_bytes());
        assert_eq!(Chunk::from_payload(&payload, 0, 2), Ok(chunk));
        assert_eq!(chunk.bytes(), 32);
        assert!(Chunk::from_payload(&payload, 0, 1).is_err());
        assert!(Chunk::from_payload(&payload[..31], 0, 2).is_err());
        assert!(Chunk::from_payload(&payload[..15], 0, 2).is_err());
        payload[4..8].fill(255);
        assert!(Chunk::from_payload(&payload, 0, 2).is_err());
    }
}
