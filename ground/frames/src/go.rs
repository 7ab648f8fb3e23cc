//! Frames of a Go program below a call of C: on the stack of the goroutine, which is not the thread's.
//!
//! ```text
//!   thread's stack     malloc ◄ C ◄ … ◄ runtime.asmcgocall          saved there: the goroutine g, how deep its stack was
//!                                             │
//!   g ─► [ low | high ] ─ high less depth ────▼
//!   goroutine's stack  [bp | ra] ◄ runtime.cgocall ◄ main._Cfunc_f ◄ main.f ◄ … ◄ runtime.goexit
//! ```
//!
//! E1  Where it begins is not guessed: the frame that the native walk ended in is of the one function that passes from Go's stacks
//!     to C's, and that function has put `g` where the collector has seen it put it, in its instructions.
//! E2  A goroutine's stack neither moves nor shrinks while its thread is in C. It may have moved since the frames further in were
//!     made, if C called Go in between: so places are counted from its high end, and no frame pointer of before is believed.
//! E3  Each frame begins above the one before, within `[low, high)`, and returns into Go's code; the walk ends at what does not. Go
//!     functions that call have a frame pointer each.
//! E4  C that Go calls from a thread's stack has no goroutine there: the saved word is 0.
//! E5  A walk that ends at a call from C into Go (`cgocallback`) or anywhere else before `goexit` is not whole: the frames that it
//!     has are the innermost ones, and right.
//!
//! x86-64 alone. Not here: which function it is (the collector), names of frames (they are of the program's code, as any).

use crate::memory::{Asked, Memory, Plain, is_address};

/// The most frames of a goroutine that are read.
pub const MAX_GO: usize = 256;
/// The largest stack that Go makes, bytes.
const LARGEST_STACK: u64 = 1 << 30;
/// The largest frame of the function that calls the crossing, if the crossing has none itself.
const LARGEST_CALLER: u64 = 4096;

/// Where a Go program passes to C, as addresses of the process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Crossing {
    /// The function (`runtime.asmcgocall`).
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// Go's code.
    pub text: (u64, u64),
    /// What a goroutine's first function returns into (`runtime.goexit`): some bytes of it follow.
    pub exit: u64,
    /// How far above the stack pointer the function keeps the goroutine, bytes.
    pub goroutine_at: u32,
    /// How far above it, how deep the goroutine's stack was.
    pub depth_at: u32,
    /// Whether it has a frame pointer of its own, where that depth ends.
    pub has_frame: bool,
}

/// The bytes of `goexit` that a return address can be in.
const EXIT_BYTES: u64 = 16;

impl Crossing {
    /// Returns the words of a header.
    pub fn encode(&self) -> [u64; 6] {
        let small = u64::from(self.goroutine_at)
            | u64::from(self.depth_at) << 16
            | u64::from(self.has_frame) << 32;
        [
            self.start,
            self.end,
            self.text.0,
            self.text.1,
            self.exit,
            small,
        ]
    }

    /// Returns what the words say; `None` if they are of no program of Go, or are none.
    pub fn decode(words: [u64; 6]) -> Option<Crossing> {
        let [start, end, low, high, exit, small] = words;
        let crossing = Crossing {
            start,
            end,
            text: (low, high),
            exit,
            goroutine_at: (small & 0xffff) as u32,
            depth_at: (small >> 16 & 0xffff) as u32,
            has_frame: small >> 32 & 1 != 0,
        };
        let is_in_order = 0 < low && low <= start && start < end && end <= high;
        let are_words = (crossing.goroutine_at | crossing.depth_at) & 7 == 0;
        (is_in_order && are_words).then_some(crossing)
    }

    /// Returns whether a return address is of a call that the function made.
    #[inline(always)]
    pub fn has_called(&self, ra: u64) -> bool {
        self.start < ra && ra <= self.end
    }

    /// Puts the return addresses of the goroutine's frames into `out`, innermost first. `sp` and `bp` are what the crossing had,
    /// on the thread's own stack. Returns how many, and whether the last one's caller is none.
    ///
    /// # Safety
    /// [`Crossing::has_called`] is true of the frame's return address, on the stack of the running thread.
    pub unsafe fn walk(
        &self,
        proved: bool,
        sp: u64,
        bp: u64,
        out: &mut [u64; MAX_GO],
    ) -> (usize, bool) {
        match proved {
            true => self.walk_by(&Plain, sp, bp, out),
            false => self.walk_by(&Asked, sp, bp, out),
        }
    }

    fn is_code(&self, ra: u64) -> bool {
        self.text.0 < ra && ra <= self.text.1
    }

    #[inline(always)]
    fn walk_by(
        &self,
        memory: &impl Memory,
        sp: u64,
        bp: u64,
        out: &mut [u64; MAX_GO],
    ) -> (usize, bool) {
        let mut count = 0;
        let is_whole = self.walk_into(memory, sp, bp, |ra| {
            let to = out.get_mut(count)?;
            *to = ra;
            count += 1;
            Some(())
        });
        (count, is_whole.unwrap_or(false))
    }

    /// Gives frames to `put`. `None`: it ended before the outermost.
    #[inline(always)]
    fn walk_into(
        &self,
        memory: &impl Memory,
        sp: u64,
        bp: u64,
        mut put: impl FnMut(u64) -> Option<()>,
    ) -> Option<bool> {
        let goroutine = memory.word(sp.checked_add(u64::from(self.goroutine_at))?)?;
        let depth = memory.word(sp.checked_add(u64::from(self.depth_at))?)?;
        // E4.
        if !is_address(goroutine) {
            return None;
        }
        let (low, high) = (memory.word(goroutine)?, memory.word(goroutine + 8)?);
        let is_stack =
            low < high && high - low <= LARGEST_STACK && is_address(low) && high & 7 == 0;
        let own = high
            .checked_sub(depth)
            .filter(|own| is_stack && *own >= low && own & 7 == 0)?;
        let mut at = own;
        if !self.has_frame {
            let ra = memory.word(own).filter(|ra| self.is_code(*ra))?;
            put(ra)?;
            // E2: of the stack as it is now, and as near as the caller's frame is.
            let is_near = own < bp && bp - own <= LARGEST_CALLER && bp < high;
            at = Some(bp).filter(|_| is_near)?;
        }
        loop {
            if at < own || at & 7 != 0 || at.checked_add(16)? > high {
                return None;
            }
            let (next, ra) = (memory.word(at)?, memory.word(at + 8)?);
            if self.exit <= ra && ra < self.exit + EXIT_BYTES {
                return Some(true);
            }
            if !self.is_code(ra) {
                return None;
            }
            put(ra)?;
            // E3.
            if next <= at {
                return Some(false);
            }
            at = next;
        }
    }
}

#[cfg(test)]
#[path = "go_tests.rs"]
mod tests;
