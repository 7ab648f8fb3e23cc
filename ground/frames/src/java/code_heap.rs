//! The code heaps: which piece of code an address is in, and how its frame lies.
//!
//! ```text
//!   heap ─► segments of one size: │0│1│2│3│0│1│…      a byte each: how far back, at least; 0: a block begins
//!           block: head │ piece of code (nmethod, stub, the interpreter)
//! ```
//!
//! Not here: what runs in a frame (walk.rs, scopes.rs).

use super::machine::{Java, byte, half};
use super::tables::Begin;
use crate::memory::{Asked, Memory, Plain};

/// The most code heaps, and the most steps back in a map of segments.
const MOST_HEAPS: u64 = 8;
const MOST_STEPS: usize = 1 << 14;
/// The most words of a frame.
const MOST_WORDS: u32 = 1 << 16;

/// How a frame of generated code lies on the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// It has so many bytes, the return address is above them, and the caller's `rbp` below that.
    Sized(u64),
    /// `rbp` points at the caller's `rbp`, the return address is above that.
    Pointed,
    /// As `Pointed`; and below the caller's `rbp` is what the caller's stack pointer was, before its callee took room for its
    /// own variables there.
    Interpreted,
}

/// A piece of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub at: u64,
    /// Whether it is compiled code, or calls a native method.
    pub is_method: bool,
    frame_words: u32,
}

impl Piece {
    /// Returns the bytes of its frames.
    pub(crate) fn frame_bytes(&self) -> u64 {
        u64::from(self.frame_words) * 8
    }
}

impl Java {
    /// Returns the bounds of what is generated.
    #[inline(always)]
    pub(crate) fn bounds<M: Memory>(&self, memory: &M) -> Option<(u64, u64)> {
        Some((
            memory.word(self.layout.low)?,
            memory.word(self.layout.high)?,
        ))
    }

    /// Returns whether an address is in the interpreter's code.
    pub(crate) fn is_interpreter<M: Memory>(&self, memory: &M, pc: u64) -> Option<bool> {
        let code = memory.word(self.layout.interpreter)?;
        if code == 0 {
            return Some(false);
        }
        let start = memory.word(code + self.layout.buffer)?;
        let bytes = half(memory, code + self.layout.buffer_bytes)?;
        Some(pc.wrapping_sub(start) < u64::from(bytes))
    }

    /// Returns the piece of code at an address; `None` if there is none.
    pub(crate) fn piece<M: Memory>(&self, memory: &M, pc: u64) -> Option<Piece> {
        let layout = &self.layout;
        let heaps = memory.word(layout.heaps).filter(|heaps| *heaps != 0)?;
        let count = u64::from(half(memory, heaps + layout.array_len)?).min(MOST_HEAPS);
        let data = memory.word(heaps + layout.array_data)?;
        for index in 0..count {
            let heap = memory.word(data + index * 8)?;
            let low = memory.word(heap + layout.memory[0])?;
            let high = memory.word(heap + layout.memory[1])?;
            if low <= pc && pc < high {
                return self.piece_of(memory, heap, low, pc);
            }
        }
        None
    }

    fn piece_of<M: Memory>(&self, memory: &M, heap: u64, low: u64, pc: u64) -> Option<Piece> {
        const NO_BLOCK: u8 = 0xff;
        let layout = &self.layout;
        let log = half(memory, heap + layout.segment_log).filter(|log| *log < 32)?;
        let segments = memory.word(heap + layout.segments[0])?;
        let end = memory.word(heap + layout.segments[1])?;
        let mut index = (pc - low) >> log;
        for _ in 0..MOST_STEPS {
            let at = segments.checked_add(index).filter(|at| *at < end)?;
            match byte(memory, at)? {
                NO_BLOCK => return None,
                0 => {
                    let block = low + (index << log);
                    return match byte(memory, block + layout.block_used)? {
                        0 => None,
                        _ => self.read_piece(memory, block + layout.block_bytes, pc),
                    };
                }
                back => index = index.checked_sub(u64::from(back))?,
            }
        }
        None
    }

    fn read_piece<M: Memory>(&self, memory: &M, at: u64, pc: u64) -> Option<Piece> {
        let layout = &self.layout;
        let bytes = u64::from(half(memory, at + layout.bytes)?);
        let frame_words = half(memory, at + layout.frame_words)?;
        if pc.wrapping_sub(at) >= bytes {
            return None;
        }
        let name = eight_bytes(memory, memory.word(at + layout.name)?)?;
        let names = [*b"nmethod\0", *b"native n"].map(u64::from_le_bytes);
        Some(Piece {
            at,
            is_method: names.contains(&name),
            frame_words: if frame_words > MOST_WORDS {
                0
            } else {
                frame_words
            },
        })
    }

    /// Returns how the frame lies that an address, a byte before where it is returned to, is of; `None` if that is not known.
    /// `proved`: the layout was proved.
    ///
    /// # Safety
    /// The machine is loaded.
    pub unsafe fn frame_at(&self, pc: u64, proved: bool) -> Option<Frame> {
        match proved {
            true => self.frame(&Plain, pc),
            false => self.frame(&Asked, pc),
        }
    }

    /// Does what `frame_at` does.
    pub(crate) fn frame<M: Memory>(&self, memory: &M, pc: u64) -> Option<Frame> {
        let (low, high) = self.bounds(memory)?;
        if pc < low || pc >= high {
            return None;
        }
        if self.is_interpreter(memory, pc)? {
            return Some(Frame::Interpreted);
        }
        if memory.word(self.layout.call_stub)? == pc + 1 {
            return Some(Frame::Pointed);
        }
        match self.piece(memory, pc)?.frame_bytes() {
            // Neither a place for rbp nor for a return address.
            0..16 => None,
            bytes => Some(Frame::Sized(bytes)),
        }
    }

    /// Returns where a piece's instructions begin.
    pub(crate) fn begin<M: Memory>(&self, memory: &M, piece: u64) -> Option<u64> {
        match self.layout.begin {
            Begin::At(at) => memory.word(piece + at),
            Begin::By(by) => Some(piece + u64::from(half(memory, piece + by)?)),
        }
    }
}

/// Returns eight bytes of a text of so many at least, which may begin anywhere.
fn eight_bytes<M: Memory>(memory: &M, at: u64) -> Option<u64> {
    let shift = (at & 7) * 8;
    let first = memory.word(at & !7)? >> shift;
    match shift {
        0 => Some(first),
        _ => Some(first | memory.word((at & !7) + 8)? << (64 - shift)),
    }
}
