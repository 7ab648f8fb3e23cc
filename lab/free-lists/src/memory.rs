//! The pages of a variable-size space: real memory, cut into words.
//!
//! ```text
//!   reservation │ page 0, 256 KiB │ page 1 │ …            word = 8 bytes; a block is known by its first word's number
//!   free block:  │ words │ next ││ page links (light) │       two numbers of 32 bits in each of its first two words
//! ```
//!
//! M1  A word that is read or written here lies in a page that is taken, and in a free block of at least two words, or
//!     in an object: lists get blocks only from the space, and give up each block before it is used.
//! M2  Page 0 is never handed out, so that word 0 is in no block: it means "none".
//! M3  A page that is given back is not resident; taken again it reads as zero.
//!
//! Not here: the free blocks (`lists`), the live objects (`space`).

use core::ptr::NonNull;
use std::sync::Arc;

use super::table::PAGE_BYTES;

/// Bytes of a word.
pub(crate) const WORD: u32 = 8;
/// Words of a page.
pub(crate) const PAGE_WORDS: u32 = PAGE_BYTES / WORD;
/// Bytes of the kernel's pages.
const OS_PAGE: usize = 4096;

/// No block, no page.
pub(crate) const NONE: u32 = 0;

#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `reserve` and has no other owner; no user of its words is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

// SAFETY: the mapping itself is only an address and a length; what lies in it belongs to one space (M1).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The address space of the pages. Clones are the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    pages: u32,
    _mapping: Arc<Mapping>,
}

impl Memory {
    /// Reserves room for `pages` pages; none of it is resident. `None`: the kernel refused, or it is Miri, which has no
    /// reservations: there the crate is what `boa_gc` is compiled with, and no more.
    pub(crate) fn reserve(pages: u32) -> Option<Memory> {
        if cfg!(miri) {
            return None;
        }
        let bytes = (pages as usize + 1).checked_mul(PAGE_BYTES as usize)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no other memory.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        let base = NonNull::new(base.cast::<u8>())?;
        let mapping = Arc::new(Mapping { base, bytes });
        // A huge page would make a page resident by its first word; a refusal only costs precision.
        // SAFETY: the range is ours.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Some(Memory {
            base,
            pages,
            _mapping: mapping,
        })
    }

    /// Returns the number of pages that can be taken: 1 to this.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns the address of a word.
    #[inline]
    pub(crate) fn at(&self, word: u32) -> NonNull<u8> {
        debug_assert!(word / PAGE_WORDS <= self.pages, "M1");
        // SAFETY: M1: within the reservation.
        unsafe { self.base.add(word as usize * WORD as usize) }
    }

    #[inline]
    fn half(&self, word: u32, index: usize) -> NonNull<u32> {
        // SAFETY: M1: the block has two words, that is four halves.
        unsafe { self.at(word).cast::<u32>().add(index) }
    }

    /// Returns one of the four numbers at the start of a block.
    #[inline]
    pub(crate) fn get(&self, word: u32, index: usize) -> u32 {
        // SAFETY: M1; a mapping of the kernel is initialised.
        unsafe { self.half(word, index).read() }
    }

    /// Sets one of the four numbers.
    #[inline]
    pub(crate) fn set(&self, word: u32, index: usize, value: u32) {
        // SAFETY: M1: the block is the list's.
        unsafe { self.half(word, index).write(value) }
    }

    /// Returns the first two numbers, by one load.
    #[inline]
    pub(crate) fn pair(&self, word: u32) -> (u32, u32) {
        // SAFETY: M1, and a word is aligned; a mapping of the kernel is initialised.
        let both = unsafe { self.at(word).cast::<u64>().read() };
        (both as u32, (both >> 32) as u32)
    }

    /// Sets the first two numbers, by one store.
    #[inline]
    pub(crate) fn set_pair(&self, word: u32, pair: (u32, u32)) {
        // SAFETY: M1: the block is the list's, and a word is aligned.
        unsafe {
            let both = u64::from(pair.0) | u64::from(pair.1) << 32;
            self.at(word).cast::<u64>().write(both);
        }
    }

    /// Gives back the kernel's pages that lie wholly within `[word, word + words)`. Returns their bytes.
    pub(crate) fn purge(&self, word: u32, words: u32) -> usize {
        let start = (word as usize * WORD as usize).next_multiple_of(OS_PAGE);
        let end = (word as usize + words as usize) * WORD as usize / OS_PAGE * OS_PAGE;
        if end <= start {
            return 0;
        }
        // SAFETY: M1: the words are free, so they may read as zero.
        let done = unsafe {
            let at = self.base.as_ptr().add(start);
            libc::madvise(at.cast(), end - start, libc::MADV_DONTNEED)
        };
        if done == 0 { end - start } else { 0 }
    }
}

/// Returns the page that a word lies in.
#[inline]
pub(crate) fn page_of(word: u32) -> u32 {
    word / PAGE_WORDS
}
