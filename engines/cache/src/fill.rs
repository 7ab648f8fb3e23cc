//! Blocks whose requested size is all that the allocator gives for it.
//!
//! ```text
//!   take(100) ─► expected 100 → 112? ─► alloc(112) ─► usable 112 == 112: done         one call, as usual
//!                     │ not known
//!                     └─► alloc(100) ─► usable 112 ─► realloc to 112 (in place) ─► learn 100 → 112
//!   begin, grow: the same without the realloc: what is left over is learned for the next call
//! ```
//!
//! F1  Which sizes are classes is asked of the running allocator and written down nowhere: classes differ by allocator
//!     and version, and ours earns new ones while it runs. An allocator that can say it beforehand is asked (`nallocx`,
//!     `mi_good_size`); else an answer is learned, and unlearned when it turns out to be wrong: the block itself is
//!     asked at each use.
//! F2  The layout of a [`Block`] is the size that was last asked for, so that it may be used to its end by the rules
//!     of Rust's allocation API, and is given back with the layout it was taken with.
//! F3  Slop is usable less requested. For [`Block::take`] it is 0 below [`LARGE`], since asking for a usable size gives
//!     just that. From there on up to a page and 16 bytes are left over, 3 % at most: blocks that glibc maps have such
//!     rests, and asking for the rest brings another page with another rest.
//! F4  Only the answer to a plain request is learned, and none for large blocks: with an allocator that gives a growing
//!     block some room to grow, learned sizes would grow with each use.
//! F5  A growing block is one call for each step, as `Vec`'s is: a second call for the rest costs as much as the step
//!     that it may save. What is left over is no more than `Vec` leaves, and only where classes are not known yet, or
//!     the allocator gave a hole that it had.
//!
//! Not here: what a block is used for (`buf`, `arena`).

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc;

use skinflint_base::sync::{AtomicU64, AtomicUsize, Ordering};

use crate::measure;

/// Number of answers that are remembered. A program's buffers have few sizes; a forgotten one costs a realloc in place.
const LEARNED: usize = 256;
/// In each word: the bytes given beyond the request (high half), how often that was seen, the bytes requested; 0:
/// nothing.
static TABLE: [AtomicU64; LEARNED] = [const { AtomicU64::new(0) }; LEARNED];

const MORE: u64 = !0 << 32;
/// An answer seen this often is believed: a few times may be chance, holes that were a little too small to be divided.
const SURE: u64 = 7 << 29;
const ONCE: u64 = 1 << 29;
const SIZE: u64 = ONCE - 1;

/// From this size on glibc maps blocks by the page, and other allocators give runs of pages.
pub const LARGE: usize = 128 << 10;
/// The most bytes of a large block that are left over (F3).
const LEFT_OVER: usize = 4_096 + 16;

/// A live block that may be used to its end (F2).
#[derive(Debug)]
pub struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is memory, and goes wherever its owner goes.
unsafe impl Send for Block {}
// SAFETY: as above; a shared reference gives no more than its address.
unsafe impl Sync for Block {}

/// The error when the allocator has no memory, or the size is not valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The bytes that were wanted.
    pub bytes: usize,
}

impl core::fmt::Display for Refused {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "no memory for a block of {} bytes", self.bytes)
    }
}

impl std::error::Error for Refused {}

fn answer_for(bytes: usize) -> &'static AtomicU64 {
    // Sizes come in steps of 8 or 16, and in powers of two: a multiplication mixes both.
    &TABLE[(bytes as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 56]
}

/// The function that says what will be given, looked up once: 0 not yet, 1 none, 2 and more a function and its kind.
static SAYS: AtomicUsize = AtomicUsize::new(0);

/// The type of jemalloc's `nallocx`, which takes size and flags (tcmalloc has it, too).
type Nallocx = unsafe extern "C" fn(usize, i32) -> usize;
/// The type of mimalloc's `mi_good_size`.
type GoodSize = unsafe extern "C" fn(usize) -> usize;

/// Returns what the allocator says beforehand (F1); `None`: it does not say.
fn said(bytes: usize) -> Option<usize> {
    // ORDER: a function's address and nothing behind it; a second lookup finds the same.
    let says = match SAYS.load(Ordering::Relaxed) {
        0 => {
            let of = |name: &core::ffi::CStr| {
                // SAFETY: a name closed by a zero; nothing is called.
                unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr()
            };
            // A function's address is even on every machine that Linux runs on, except with Thumb; the low bit is the
            // kind.
            let found = match (of(c"nallocx"), of(c"mi_good_size")) {
                (0, 0) => 1,
                (0, mimalloc) => mimalloc | 1,
                (jemalloc, _) => jemalloc,
            };
            SAYS.store(found, Ordering::Relaxed); // ORDER: as above
            found
        }
        known => known,
    };
    let given = match says {
        1 => return None,
        // SAFETY: an address that was found by this function's name, less the kind.
        mimalloc if mimalloc & 1 == 1 => unsafe {
            core::mem::transmute::<usize, GoodSize>(mimalloc & !1)(bytes)
        },
        // SAFETY: as above.
        jemalloc => unsafe { core::mem::transmute::<usize, Nallocx>(jemalloc)(bytes, 0) },
    };
    // The function may be of another allocator than the running one: a size that is too large would be waste.
    Some(match (bytes..=bytes + bytes / 3 + 64).contains(&given) {
        true => given,
        false => bytes,
    })
}

/// Returns the bytes that are expected to be given for a request.
fn expected(bytes: usize) -> usize {
    if let Some(given) = said(bytes) {
        return given;
    }
    // ORDER: one word, and a hint (F1).
    let word = answer_for(bytes).load(Ordering::Relaxed);
    if word & !MORE == SURE | bytes as u64 {
        bytes + (word >> 32) as usize
    } else {
        bytes
    }
}

/// Notes what was given for a request, below [`LARGE`]: of several answers the least is the class's.
fn learn(bytes: usize, given: usize, is_sure: bool) {
    let (place, more) = (answer_for(bytes), ((given - bytes) as u64) << 32);
    // ORDER: as above.
    let word = place.load(Ordering::Relaxed);
    let known = word & SIZE == bytes as u64 && word & MORE <= more;
    let times = if known { word & SURE } else { 0 };
    let more = if known { word & MORE } else { more };
    let times = if is_sure {
        SURE
    } else {
        (times + ONCE).min(SURE)
    };
    place.store(more | times | bytes as u64, Ordering::Relaxed); // ORDER: as above
}

fn forget(bytes: usize) {
    answer_for(bytes).store(0, Ordering::Relaxed); // ORDER: as above
}

/// Returns what is expected, rounded down to whole items.
fn of_items(bytes: usize, item: usize) -> usize {
    let expected = expected(bytes.max(1));
    (expected - expected % item.max(1)).max(bytes).max(1)
}

impl Block {
    /// Takes a block of at least `bytes` bytes (1 at least), and of all that its class has beyond.
    ///
    /// # Errors
    /// The allocator has no memory.
    pub fn take(bytes: usize, align: usize) -> Result<Block, Refused> {
        let refused = Refused { bytes };
        let layout = Layout::from_size_align(expected(bytes.max(1)), align).map_err(|_| refused)?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(refused)?;
        Ok(Block { start, layout }.filled(bytes.max(1)))
    }

    /// Takes a block for items of `item` bytes whose number will grow: one call, whatever is left over (F5), and no
    /// larger than whole items need.
    ///
    /// # Errors
    /// The allocator has no memory.
    pub fn begin(bytes: usize, item: usize, align: usize) -> Result<Block, Refused> {
        let refused = Refused { bytes };
        let layout = Layout::from_size_align(of_items(bytes, item), align).map_err(|_| refused)?;
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or(refused)?;
        let block = Block { start, layout };
        block.note(bytes);
        Ok(block)
    }

    /// Makes the block larger and keeps its contents. One call (F5).
    ///
    /// # Errors
    /// The allocator has no memory; the block is as it was.
    pub fn grow(&mut self, bytes: usize, item: usize) -> Result<(), Refused> {
        self.resize(of_items(bytes, item))
            .map_err(|_| Refused { bytes })?;
        self.note(bytes);
        Ok(())
    }

    /// Learns from what was given, or unlearns (F1, F4).
    fn note(&self, asked: usize) {
        let (given, size) = (self.usable(), self.layout.size());
        if given >= LARGE {
            return;
        }
        if size == asked && given > size && given - size <= asked / 4 {
            learn(asked, given, false);
        } else if size > asked && given > expected(asked) {
            // More was given than the supposed end of the class: it is not the end.
            forget(asked);
        }
    }

    /// Makes the block smaller, to the class of `bytes` bytes; its contents up to there are kept.
    pub fn shrink(&mut self, bytes: usize) {
        if expected(bytes.max(1)) < self.layout.size()
            && self.resize(expected(bytes.max(1))).is_ok()
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
        if rest == 0 || large && rest <= LEFT_OVER || self.resize(given).is_err() {
            return;
        }
        if plain && !large {
            learn(asked, given, true);
        }
    }

    /// Returns the address at which the block begins.
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the bytes that were asked for, and may be used.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Returns the bytes of the block by the allocator's count.
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

#[cfg(test)]
#[path = "fill_tests.rs"]
mod tests;
