//! Blocks that end together, in chunks that are exactly a size class, header included.
//!
//! ```text
//!   chunk = one block of the allocator, all of its usable bytes
//!   [ Head | value | value | gap | value | …free… ]          free: at .. end
//!      └─► the chunk before
//! ```
//!
//! R1  A chunk's size is what the allocator gave (`fill`), so `chunk_bytes == usable bytes` and slop is 0. PLArena
//!     asked for 4,096 bytes and a header of 24 or so, and got 8,192 (Mozilla bug 676457 and its kin).
//! R2  `at <= end`, both within the first chunk of the list, or both null when there is none.
//! R3  A value that is larger than a quarter of the next chunk gets a chunk of its own, behind the first in the list:
//!     the room that is left in the first one is not thrown away.
//! R4  Values never run their `Drop`: types that have one are refused when the program is compiled.
//!
//! Threads: `Send`, not `Sync`. Not here: freeing one value.

use core::alloc::Layout;
use core::cell::Cell;
use core::mem::{self, size_of};
use core::ptr::{self, NonNull};

use crate::fill::{Block, Refused};

/// Bytes of the first chunk, and the most that a chunk grows to. Below 128 KiB glibc maps nothing (fill.F3), and a
/// page or two of unused tail in 64 KiB is 6 %.
const FIRST: usize = 1_024;
const LARGEST: usize = 64 * 1_024;
const ALIGN: usize = 16;

/// The head of a chunk. The block that it describes contains the head itself, which is moved out before the block goes
/// back.
struct Head {
    block: Block,
    before: Option<NonNull<Head>>,
}

/// An arena: room for values that end together.
///
/// ```
/// let arena = skinflint_cache::Arena::new();
/// let word = arena.copy_str("heap");
/// let list = arena.copy_slice(&[1u32, 2, 3]);
/// list[0] = 7;
/// assert_eq!((&*word, &*list), ("heap", &[7, 2, 3][..]));
/// assert_eq!(arena.slop_bytes(), 0);
/// ```
///
/// ```compile_fail
/// skinflint_cache::Arena::new().alloc(String::from("has a Drop"));
/// ```
#[derive(Default)]
pub struct Arena {
    chunks: Cell<Option<NonNull<Head>>>,
    at: Cell<usize>,
    end: Cell<usize>,
    next_bytes: Cell<usize>,
    /// The address at which the first chunk's values begin, and the bytes handed out in the other chunks.
    begin: Cell<usize>,
    elsewhere: Cell<usize>,
}

// SAFETY: the chunks are the arena's own; values in it are borrowed from it, and go nowhere without it. Values that are
// not Send can be put in, but no thread can reach them once the arena, unborrowed, is on another thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Creates an arena without a chunk.
    pub fn new() -> Arena {
        Arena::default()
    }

    /// Returns room for a layout. Cost: an addition, a mask, a comparison; now and then a chunk.
    ///
    /// # Errors
    /// The allocator has no memory.
    #[inline]
    pub fn try_alloc_layout(&self, layout: Layout) -> Result<NonNull<u8>, Refused> {
        // An alignment is a power of two; `at` is below 2^47.
        let start = (self.at.get() + (layout.align() - 1)) & !(layout.align() - 1);
        // Compared so that nothing can overflow: an arena without a chunk has at == end == 0.
        if start <= self.end.get() && layout.size() <= self.end.get() - start && start != 0 {
            self.at.set(start + layout.size());
            if let Some(head) = self.chunks.get() {
                let address = head.as_ptr().cast::<u8>().with_addr(start);
                // SAFETY: within the chunk (R2), so not null.
                return Ok(unsafe { NonNull::new_unchecked(address) });
            }
        }
        self.alloc_slow(layout)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, layout: Layout) -> Result<NonNull<u8>, Refused> {
        let refused = Refused {
            bytes: layout.size(),
        };
        let needed = size_of::<Head>()
            .checked_add(layout.size())
            .and_then(|bytes| bytes.checked_add(layout.align().saturating_sub(ALIGN)))
            .ok_or(refused)?;
        let next = self.next_bytes.get().clamp(FIRST, LARGEST);
        let alone = self.chunks.get().is_some() && needed > next / 4;
        let bytes = if alone { needed } else { needed.max(next) };
        let head = Head::make(Block::take(bytes, ALIGN)?);
        // SAFETY: a chunk of ours.
        let end = head.as_ptr().addr() + unsafe { head.as_ref() }.block.bytes();
        let start = (head.as_ptr().addr() + size_of::<Head>()).next_multiple_of(layout.align());
        match self.chunks.get() {
            Some(mut first) if alone => {
                self.elsewhere.set(self.elsewhere.get() + layout.size());
                // SAFETY: chunks of ours, to which no reference is held.
                unsafe {
                    (*head.as_ptr()).before = first.as_ref().before;
                    first.as_mut().before = Some(head);
                }
            }
            first => {
                // SAFETY: as above.
                unsafe { (*head.as_ptr()).before = first };
                self.chunks.set(Some(head));
                self.elsewhere.set(self.used_bytes());
                self.begin.set(start);
                self.at.set(start + layout.size());
                self.end.set(end);
                self.next_bytes.set((next * 2).min(LARGEST));
            }
        }
        // SAFETY: within the chunk, so not null.
        Ok(unsafe { NonNull::new_unchecked(head.as_ptr().cast::<u8>().with_addr(start)) })
    }

    fn room(&self, layout: Layout) -> NonNull<u8> {
        self.try_alloc_layout(layout)
            .unwrap_or_else(|_| std::alloc::handle_alloc_error(layout))
    }

    /// Puts a value in, which stays as long as the arena.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "each call gives another place")]
    pub fn alloc<T>(&self, value: T) -> &mut T {
        const { assert!(!mem::needs_drop::<T>(), "an arena runs no Drop (R4)") };
        let room = self.room(Layout::new::<T>()).cast::<T>();
        // SAFETY: room for one value, aligned, that nothing else uses.
        unsafe {
            room.write(value);
            &mut *room.as_ptr()
        }
    }

    /// Copies a slice into the arena.
    #[inline]
    #[allow(clippy::mut_from_ref, reason = "each call gives another place")]
    pub fn copy_slice<T: Copy>(&self, items: &[T]) -> &mut [T] {
        let room = self.room(Layout::for_value(items)).cast::<T>();
        // SAFETY: room for that many items, aligned, that nothing else uses.
        unsafe {
            ptr::copy_nonoverlapping(items.as_ptr(), room.as_ptr(), items.len());
            core::slice::from_raw_parts_mut(room.as_ptr(), items.len())
        }
    }

    /// Copies a text into the arena.
    pub fn copy_str(&self, text: &str) -> &str {
        let bytes = self.copy_slice(text.as_bytes());
        // SAFETY: a copy of a text.
        unsafe { core::str::from_utf8_unchecked(bytes) }
    }

    /// Ends all values. The largest chunk stays for the next values; the others go back to the allocator.
    pub fn reset(&mut self) {
        let mut kept: Option<Block> = None;
        self.each_taken(|block| {
            if kept.as_ref().is_none_or(|k| k.bytes() < block.bytes()) {
                kept = Some(block);
            }
        });
        if let Some(block) = kept {
            let bytes = block.bytes();
            let head = Head::make(block);
            self.chunks.set(Some(head));
            self.begin.set(head.as_ptr().addr() + size_of::<Head>());
            self.at.set(self.begin.get());
            self.end.set(head.as_ptr().addr() + bytes);
        }
    }

    /// Empties the list of chunks, and passes each chunk's block to `with`.
    fn each_taken(&mut self, mut with: impl FnMut(Block)) {
        let mut next = self.chunks.take();
        self.at.set(0);
        self.end.set(0);
        self.begin.set(0);
        self.elsewhere.set(0);
        while let Some(head) = next {
            // SAFETY: a chunk of ours, in no list any more; its head is moved out of it.
            let head = unsafe { head.read() };
            next = head.before;
            with(head.block);
        }
    }

    fn sum(&self, of: impl Fn(&Block) -> usize) -> usize {
        let mut sum = 0;
        let mut next = self.chunks.get();
        while let Some(head) = next {
            // SAFETY: a chunk of ours.
            let head = unsafe { head.as_ref() };
            sum += of(&head.block);
            next = head.before;
        }
        sum
    }

    /// Returns the bytes of all chunks by the allocator's count.
    pub fn usable_bytes(&self) -> usize {
        self.sum(Block::usable)
    }

    /// Returns the bytes handed out, gaps for alignment included.
    pub fn used_bytes(&self) -> usize {
        self.elsewhere.get() + (self.at.get() - self.begin.get())
    }

    /// Returns the bytes that the allocator gave and that no value can have: 0 (R1).
    pub fn slop_bytes(&self) -> usize {
        self.sum(|block| block.usable() - block.bytes())
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> usize {
        self.sum(|_| 1)
    }
}

impl Head {
    /// Writes the head of a chunk into the chunk.
    fn make(block: Block) -> NonNull<Head> {
        let place = block.start().cast::<Head>();
        debug_assert!(block.bytes() >= size_of::<Head>());
        // SAFETY: a block of ours that is large enough, aligned to 16.
        unsafe {
            place.write(Head {
                block,
                before: None,
            })
        };
        place
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.each_taken(drop);
    }
}
