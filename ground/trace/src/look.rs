//! Looks: the words of a stopped process that may be pointers, at one moment.
//!
//! ```text
//!   pointers 0 · pointers 0 · look 0 · …        the look comes last, and has the number of words
//!   word = (where it lies, what it holds)       by address; only words that may point into anonymous memory
//! ```
//!
//! V1  A look without all of its words is not used: a missing word might be the one that held a block.
//! V2  Words come by ascending address, from one block of pointers to the next.
//!
//! Not here: which word is a root, and what that means (analysis `reach`); stopping and reading (collect `look`).

use serde::{Deserialize, Serialize};

use crate::meta::{self, put_record};
use skinflint_framing::varint::{Cursor, Malformed, put, put_bytes, put_signed};

type Read<T> = Result<T, Malformed>;

/// A look at the pointers of a stopped process.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Look {
    /// Its number, dense from 0.
    pub number: u32,
    /// When all threads had stopped, nanoseconds since the trace began.
    pub time_ns: u64,
    /// No event with a ticket above this one had been published then.
    pub ticket: u64,
    /// Why it was taken.
    pub cause: LookCause,
    /// How long the threads were stopped, nanoseconds.
    pub stopped_ns: u64,
    /// Threads that were stopped.
    pub threads: u32,
    /// Bytes that were read.
    pub scanned_bytes: u64,
    /// Words in its blocks of pointers.
    pub words: u64,
    /// What the look does not show, and why; empty if it shows everything.
    pub missing: String,
    /// The memory that was read, by address; a stack begins where its thread's stack pointer was.
    pub regions: Vec<LookRegion>,
    /// Registers that may be pointers.
    pub registers: Vec<LookRegister>,
}

/// Why a look was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LookCause {
    /// The end: of the program, before its last destructors, or of the recording.
    #[default]
    End,
    /// A mark, by index.
    Mark(u32),
}

/// Memory that a look has read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LookRegion {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// What it is.
    pub kind: RegionKind,
    /// Kernel id of the thread whose stack or thread-local storage it is; 0 for others.
    pub tid: u32,
    /// Path of the module, or name of the mapping.
    pub name: String,
}

/// The kind of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionKind {
    /// Anonymous memory, mapped by the program or by its allocator.
    #[default]
    Anon,
    /// The data of a module, zeroed data included.
    Data,
    /// The data segment that `brk` moves.
    Heap,
    /// The stack of a thread, from its stack pointer on.
    Stack,
    /// Thread-local storage that does not lie in a stack; it lies within a region of another kind.
    Tls,
    /// Shared memory.
    Shared,
}

/// A register of a stopped thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LookRegister {
    /// Kernel id of the thread.
    pub tid: u32,
    /// Its number, as in [`REGISTERS`].
    pub number: u32,
    /// What it holds.
    pub value: u64,
}

/// Names of the registers by number.
pub const REGISTERS: [&str; 48] = [
    "rax",
    "rbx",
    "rcx",
    "rdx",
    "rsi",
    "rdi",
    "rbp",
    "rsp",
    "r8",
    "r9",
    "r10",
    "r11",
    "r12",
    "r13",
    "r14",
    "r15",
    // Not a register: the address at which the kernel puts the frames of signal handlers.
    "sigaltstack",
    // Of aarch64.
    "x0",
    "x1",
    "x2",
    "x3",
    "x4",
    "x5",
    "x6",
    "x7",
    "x8",
    "x9",
    "x10",
    "x11",
    "x12",
    "x13",
    "x14",
    "x15",
    "x16",
    "x17",
    "x18",
    "x19",
    "x20",
    "x21",
    "x22",
    "x23",
    "x24",
    "x25",
    "x26",
    "x27",
    "x28",
    "x29",
    "x30",
];

/// The raw bytes after which a block of pointers is full.
const BLOCK_BYTES: usize = 16 << 20;

/// A block of pointers, to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pointers {
    /// The look that it belongs to.
    pub look: u32,
    /// Words in it.
    pub words: u32,
    pub(crate) raw: Vec<u8>,
}

/// Puts words into blocks.
#[derive(Debug, Default)]
pub struct PointerEncoder {
    look: u32,
    full: Vec<Pointers>,
    raw: Vec<u8>,
    words: u32,
    last: (u64, u64),
    bytes: usize,
}

impl PointerEncoder {
    /// Creates an encoder for the look with this number.
    pub fn new(look: u32) -> PointerEncoder {
        PointerEncoder {
            look,
            ..PointerEncoder::default()
        }
    }

    /// Adds a word: its address, a multiple of 8 and not below any address before it (V2), and what it holds.
    #[inline]
    pub fn push(&mut self, address: u64, value: u64) {
        put(&mut self.raw, (address - self.last.0) / 8);
        put_signed(&mut self.raw, value.wrapping_sub(self.last.1) as i64);
        self.last = (address, value);
        self.words += 1;
        if self.raw.len() >= BLOCK_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let raw = std::mem::take(&mut self.raw);
        self.bytes += raw.len();
        self.full.push(Pointers {
            look: self.look,
            words: self.words,
            raw,
        });
        self.words = 0;
        self.last = (0, 0);
    }

    /// Returns the bytes so far.
    pub fn bytes(&self) -> usize {
        self.bytes + self.raw.len()
    }

    /// Returns the blocks.
    pub fn finish(mut self) -> Vec<Pointers> {
        if self.words > 0 {
            self.cut();
        }
        self.full
    }
}

/// Passes the words of a block of pointers to `each`.
pub(crate) fn each_pointer(raw: &[u8], each: &mut dyn FnMut(u64, u64)) -> Read<u64> {
    let mut from = Cursor::new(raw);
    let (mut address, mut value, mut words) = (0u64, 0u64, 0);
    while !from.is_empty() {
        address = address.wrapping_add(from.get()?.wrapping_mul(8));
        value = value.wrapping_add(from.get_signed()? as u64);
        words += 1;
        each(address, value);
    }
    Ok(words)
}

fn kind_number(kind: RegionKind) -> u64 {
    match kind {
        RegionKind::Anon => 0,
        RegionKind::Data => 1,
        RegionKind::Heap => 2,
        RegionKind::Stack => 3,
        RegionKind::Tls => 4,
        RegionKind::Shared => 5,
    }
}

fn kind_of(number: u64) -> RegionKind {
    match number {
        1 => RegionKind::Data,
        2 => RegionKind::Heap,
        3 => RegionKind::Stack,
        4 => RegionKind::Tls,
        5 => RegionKind::Shared,
        _ => RegionKind::Anon,
    }
}

fn get_text(from: &mut Cursor<'_>) -> Read<String> {
    Ok(String::from_utf8_lossy(from.get_bytes()?).into_owned())
}

pub(crate) fn put_look(out: &mut Vec<u8>, look: &Look) {
    put_record(out, |out| {
        put(out, u64::from(look.number));
        put(out, look.time_ns);
        put(out, look.ticket);
        match look.cause {
            LookCause::End => put(out, 0),
            LookCause::Mark(mark) => {
                put(out, 1);
                put(out, u64::from(mark));
            }
        }
        put(out, look.stopped_ns);
        put(out, u64::from(look.threads));
        put(out, look.scanned_bytes);
        put(out, look.words);
        put_bytes(out, look.missing.as_bytes());
    });
    put(out, look.regions.len() as u64);
    for region in &look.regions {
        put_record(out, |out| {
            put(out, region.start);
            put(out, region.end.wrapping_sub(region.start));
            put(out, kind_number(region.kind));
            put(out, u64::from(region.tid));
            put_bytes(out, region.name.as_bytes());
        });
    }
    put(out, look.registers.len() as u64);
    for register in &look.registers {
        put_record(out, |out| {
            put(out, u64::from(register.tid));
            put(out, u64::from(register.number));
            put(out, register.value);
        });
    }
}

pub(crate) fn get_look(from: &mut Cursor<'_>) -> Read<Look> {
    let mut record = Cursor::new(from.get_bytes()?);
    let mut look = Look {
        number: record.get_u32()?,
        time_ns: meta::get_time(&mut record)?,
        ticket: record.get()?,
        cause: match record.get()? {
            1 => LookCause::Mark(record.get_u32()?),
            _ => LookCause::End,
        },
        stopped_ns: meta::get_time(&mut record)?,
        threads: record.get_u32()?,
        scanned_bytes: meta::get_amount(&mut record)?,
        words: record.get()?,
        missing: get_text(&mut record)?,
        ..Look::default()
    };
    for _ in 0..from.get_count(1)? {
        let mut record = Cursor::new(from.get_bytes()?);
        let start = record.get()?;
        look.regions.push(LookRegion {
            start,
            end: meta::end_of(start, record.get()?)?,
            kind: kind_of(record.get()?),
            tid: record.get_u32()?,
            name: get_text(&mut record)?,
        });
    }
    for _ in 0..from.get_count(1)? {
        let mut record = Cursor::new(from.get_bytes()?);
        look.registers.push(LookRegister {
            tid: record.get_u32()?,
            number: record.get_u32()?,
            value: record.get()?,
        });
    }
    Ok(look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_from_one_block_or_many() {
        let words: Vec<(u64, u64)> = (0..3_000_000u64)
            .map(|n| {
                (
                    0x7f00_0000_0000 + n * n % 64 + n * 72,
                    n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                )
            })
            .map(|(at, value)| (at & !7, value))
            .collect();
        let mut encoder = PointerEncoder::new(3);
        words
            .iter()
            .for_each(|&(at, value)| encoder.push(at, value));
        let bytes = encoder.bytes();
        let blocks = encoder.finish();
        assert!(blocks.len() > 1, "{} blocks", blocks.len());
        assert_eq!(
            bytes,
            blocks.iter().map(|block| block.raw.len()).sum::<usize>()
        );
        let mut back = Vec::new();
        for block in &blocks {
            let read = each_pointer(&block.raw, &mut |at, value| back.push((at, value)));
            assert_eq!((block.look, read), (3, Ok(u64::from(block.words))));
        }
        assert!(back == words);
    }

    #[test]
    fn a_look_comes_back() {
        let look = Look {
            number: 2,
            time_ns: 7,
            ticket: 9,
            cause: LookCause::Mark(4),
            stopped_ns: 11,
            threads: 3,
            scanned_bytes: 1 << 40,
            words: 5,
            missing: "x".into(),
            regions: vec![LookRegion {
                start: 0x7fff_0000,
                end: 0x7fff_1000,
                kind: RegionKind::Stack,
                tid: 77,
                name: "[stack]".into(),
            }],
            registers: vec![LookRegister {
                tid: 77,
                number: 15,
                value: u64::MAX,
            }],
        };
        let mut raw = Vec::new();
        put_look(&mut raw, &look);
        assert_eq!(get_look(&mut Cursor::new(&raw)), Ok(look));
    }
}
