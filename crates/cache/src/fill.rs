//! Blocks whose requested size is all that the allocator gives for it.
//!
//! ```text
//!   take(100) ─► learned 100 → 112? ─► alloc(112) ─► usable 112 == 112: done          one call, as ever
//!                     │ no
//!                     └─► alloc(100) ─► usable 112 ─► realloc to 112 (in place) ─► learn 100 → 112
//! ```
//!
//! F1  Which sizes are classes is asked of the allocator that runs and written down nowhere: classes differ by
//!     allocator and version, and ours earns new ones while it runs. An answer that was learned is checked at each
//!     use, since the block itself is asked.
//! F2  The layout of a [`Block`] is the size that was last asked for, so that it may be used to its end by the rules
//!     of Rust's allocation API, and is given back with the layout it was taken with.
//! F3  Slop is usable less requested. It is 0 below [`LARGE`], since asking for a usable size gives just that. From there
//!     on up to a page and 16 bytes are left, 3 % at most: what glibc maps has such rests, and a page more comes with
//!     each of them that is asked for.
//! F4  Only the answer to a plain request is learned, and none of large blocks: an allocator that gives a growing block
//!     some room to grow would have the answers grow with each use.
//!
//! Not here: what the block is used for (`buf`, `arena`).

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc;

use skinflint_base::sync::{AtomicU64, Ordering};

use crate::measure;

/// Answers that are remembered. A program's buffers have few sizes; a forgotten one costs a realloc in place.
const LEARNED: usize = 256;
/// Asked for in the low half, given beyond that in the high half; 0: none.
static TABLE: [AtomicU64; LEARNED] = [const { AtomicU64::new(0) }; LEARNED];

/// From here on glibc maps blocks by the page, and others give runs of pages.
pub const LARGE: usize = 128 << 10;
/// Of a large block, a rest that is left (F3).
const REST: usize = 4_096 + 16;

/// A live block with all of its usable bytes (F2).
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is memory, and goes wherever its owner goes.
unsafe impl Send for Block {}
// SAFETY: the same; sharing it gives nobody more than its address.
unsafe impl Sync for Block {}

/// The allocator has no memory, or the size is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// What was wanted.
    pub bytes: usize,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "no memory for a block of {} bytes", self.bytes)
    }
}

impl std::error::Error for Refused {}

fn place(bytes: usize) -> &'static AtomicU64 {
    // Sizes come in steps of 8 or 16, and in powers of two: a multiplication mixes both.
    &TABLE[(bytes as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 56]
}

/// What is expected to be given for so many bytes.
fn learned(bytes: usize) -> usize {
    // ORDER: one word, and a hint (F1).
    let word = place(bytes).load(Ordering::Relaxed);
    if word as u32 as usize == bytes {
        bytes + (word >> 32) as usize
    } else {
        bytes
    }
}

fn learn(bytes: usize, given: usize) {
    if let (Ok(asked), Ok(more)) = (u32::try_from(bytes), u32::try_from(given - bytes)) {
        // ORDER: as above.
        place(bytes).store(u64::from(more) << 32 | u64::from(asked), Ordering::Relaxed);
    }
}

impl Block {
    /// A block of at least so many bytes (1 at least), and of all that its class has beyond.
    ///
    /// # Errors
    /// There is no memory.
    pub fn take(bytes: usize, align: usize) -> Result<Block, Refused> {
        let refused = Refused { bytes };
        let layout = Layout::from_size_align(learned(bytes.max(1)), align).map_err(|_| refused)?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(refused)?;
        Ok(Block { start, layout }.filled(bytes.max(1)))
    }

    /// Makes it larger, its contents kept.
    ///
    /// # Errors
    /// There is no memory; the block is as it was.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Refused> {
        let to = learned(bytes.max(1));
        self.resize(to).map_err(|_| Refused { bytes })?;
        self.fill(bytes.max(1));
        Ok(())
    }

    /// Makes it smaller, to the class of so many bytes; its contents up to there are kept.
    pub fn shrink(&mut self, bytes: usize) {
        if learned(bytes.max(1)) < self.layout.size() && self.resize(learned(bytes.max(1))).is_ok()
        {
            self.fill(bytes.max(1));
        }
    }

    fn resize(&mut self, bytes: usize) -> Result<(), Refused> {
        let refused = Refused { bytes };
        let layout = Layout::from_size_align(bytes, self.layout.align()).map_err(|_| refused)?;
        // SAFETY: the block is live and has this layout (F2); the new size is valid and not 0.
        let start = unsafe { alloc::realloc(self.start.as_ptr(), self.layout, bytes) };
        self.start = NonNull::new(start).ok_or(refused)?;
        self.layout = layout;
        Ok(())
    }

    fn filled(mut self, asked: usize) -> Block {
        self.fill(asked);
        self
    }

    /// Asks for the rest of what was given.
    fn fill(&mut self, asked: usize) {
        let (given, plain) = (self.usable(), self.layout.size() == asked);
        let rest = given - self.layout.size();
        let large = given >= LARGE;
        if rest == 0 || large && rest <= REST || self.resize(given).is_err() {
            return;
        }
        if plain && !large {
            learn(asked, given);
        }
    }

    /// Where it begins.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes that were asked for, and may be used.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Bytes by the allocator's count.
    pub fn usable(&self) -> usize {
        let asked = self.layout.size();
        // SAFETY: a live block of this layout (F2).
        unsafe { measure::usable(self.start.as_ptr(), asked) }.max(asked)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: live, and this is its layout (F2).
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}
