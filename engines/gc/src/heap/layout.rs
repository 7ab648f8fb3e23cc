//! Chunks and arenas: the layout of a megabyte.
//!
//! ```text
//!   chunk, 1 MiB, aligned
//!   │ 0 … 5: heads                                   │ 6        │ 7        │ …  │ 255      │  arenas of 4 KiB
//!   │ ChunkHead │ ArenaHead 6 │ ArenaHead 7 │ … 255  │ cell cell cell … tail │    │ a run …  │
//!                 marks, kind, cells, allocated
//!
//!   pointer ─► & !(1 MiB - 1) ─► chunk      pointer >> 12 & 255 ─► arena ─► its head ─► × 1/size ─► cell
//! ```
//!
//! The heads of arenas 0 to 5 would describe the heads themselves, so the chunk's own head lies there. Marks and
//! allocation bits are apart from the objects, by number of cell: a page in which nothing is left can be given back,
//! and sweeping an arena of 39 cells looks at one word.
//!
//! C2  A head is written by its heap's thread, or by the sweeper between a claim and the give of that arena
//!     (`handover`), never by both at once.
//! C3  `off × recip >> 24` is `off / size` for every offset in an arena and every size of cell (tested for all).
//!     A run of arenas (one large object) has `recip` 0: each offset is in cell 0.
//! C5  A head is valid exactly for the arenas that are not in `free`.
//!
//! address.C1 and address.C4 are those of `address`.
//!
//! Not here: where chunks come from (`source`), the owners of arenas (`chunks`, `space`).

use core::cell::Cell;
use core::ptr::NonNull;

use crate::heap::address::{ARENAS, Arena, Chunk};
use crate::heap::bits::Bits;
use crate::heap::kind::Kind;

pub use crate::heap::address::{
    ARENA_BYTES, CELL_STEP, CHUNK_BYTES, MAX_CELL_BYTES, MIN_CELL_BYTES,
};

/// Number of arenas that the heads take.
pub(crate) const HEADS: usize = ARENAS * size_of::<ArenaHead>() / ARENA_BYTES;
/// Number of arenas of a chunk that hold objects.
pub(crate) const USABLE: usize = ARENAS - HEADS;
const SHIFT: u32 = 24;

const _: () = assert!(size_of::<ArenaHead>() == 96 && HEADS == 6);
const _: () = assert!(size_of::<ChunkHead>() <= HEADS * size_of::<ArenaHead>());
const _: () = assert!(ARENA_BYTES / MIN_CELL_BYTES <= crate::heap::bits::BITS);

/// The head of a chunk.
#[repr(C)]
pub(crate) struct ChunkHead {
    /// Number of the heap that it belongs to.
    pub(crate) heap: Cell<u32>,
    /// Megabytes: more than one for a huge object, which has the chunk for itself.
    pub(crate) slots: Cell<u32>,
    /// Number of arenas in use.
    pub(crate) used: Cell<u32>,
    /// Its index in its heap's list.
    pub(crate) index: Cell<u32>,
    pub(crate) origin: Cell<u8>,
    /// Whether it waits on the list of chunks with delayed arenas.
    pub(crate) waiting: Cell<bool>,
    /// Arenas that are not in use.
    pub(crate) free: Bits,
    /// Free arenas that may be resident.
    pub(crate) dirty: Bits,
    /// Arenas with marked objects whose edges were not told yet (mark.M3).
    pub(crate) delayed: Bits,
}

/// The head of an arena.
#[repr(C)]
pub(crate) struct ArenaHead {
    /// Cells reached in the present collection, or in the last one if the arena is not swept yet.
    pub(crate) marks: Bits,
    /// The kind of its objects.
    pub(crate) kind: Cell<&'static Kind>,
    pub(crate) recip: Cell<u32>,
    /// Arenas of a run; 1 for cells; 0 for the later arenas of a run.
    pub(crate) pages: Cell<u32>,
    /// Bytes of a cell; 0 for runs.
    pub(crate) size: Cell<u16>,
    pub(crate) cells: Cell<u16>,
    /// Number of its space within the heap.
    pub(crate) space: Cell<u16>,
    /// The cell from which the next gap is searched.
    pub(crate) scan: Cell<u16>,
    /// Number of cells that are allocated; right after a sweep, and while no spans are taken from it.
    pub(crate) live: Cell<u16>,
    /// In a later arena of a run: how many arenas before it the run begins (at most 255: the rest of a huge object lies
    /// in slots without heads).
    pub(crate) back: Cell<u16>,
    /// Whether nothing is left in it and its pages were given back: the sweeper tells this to the heap's thread.
    pub(crate) clean: Cell<bool>,
    /// Cells that hold an object, or that the mutator may be filling (the current span).
    pub(crate) allocated: Bits,
}

impl Chunk {
    #[inline]
    pub(crate) fn head(&self) -> &ChunkHead {
        // SAFETY: address.C1: taken chunks begin with a head, all of whose fields are valid for any bytes that `source`
        // hands out (zero or written by `init`).
        unsafe { self.0.cast::<ChunkHead>().as_ref() }
    }

    /// Writes the head of a chunk that was just taken. `zero`: its pages are not resident.
    pub(crate) fn init(self, heap: u32, slots: u32, origin: u8, zero: bool) {
        let head: *mut ChunkHead = self.0.cast().as_ptr();
        // SAFETY: address.C1: the chunk is ours, aligned, and large enough; all-zero is a valid head.
        unsafe { head.write_bytes(0, 1) };
        let head = self.head();
        head.heap.set(heap);
        head.slots.set(slots);
        head.origin.set(origin);
        head.free.add_range(HEADS, ARENAS);
        if !zero {
            head.dirty.add_range(HEADS, ARENAS);
        }
    }

    /// Returns the arenas in use that begin cells or a run (C5).
    pub(crate) fn arenas(self) -> impl Iterator<Item = Arena> {
        (HEADS..ARENAS)
            .filter(move |&index| !self.head().free.has(index))
            .map(move |index| self.arena(index))
            .filter(|arena| arena.head().pages.get() != 0)
    }
}

/// Returns the bytes of a cell for objects of this layout; `None`: they do not share an arena.
pub(crate) const fn cell_bytes(bytes: usize, align: usize) -> Option<usize> {
    let step = if align > CELL_STEP { align } else { CELL_STEP };
    let bytes = if bytes < MIN_CELL_BYTES {
        MIN_CELL_BYTES
    } else {
        bytes
    };
    if bytes > MAX_CELL_BYTES {
        return None;
    }
    let cell = bytes.next_multiple_of(step);
    if cell > MAX_CELL_BYTES {
        return None;
    }
    Some(cell)
}

/// Returns 2^24 / size, rounded up (C3).
pub(crate) const fn reciprocal(size: usize) -> u32 {
    ((1usize << SHIFT).div_ceil(size)) as u32
}

impl Arena {
    /// Returns the address of its head.
    #[inline]
    pub(crate) fn head_address(self) -> *const u8 {
        let offset = self.index() * size_of::<ArenaHead>();
        self.chunk().0.as_ptr().wrapping_add(offset)
    }

    #[inline]
    pub(crate) fn head(&self) -> &ArenaHead {
        let offset = self.index() * size_of::<ArenaHead>();
        // SAFETY: address.C1, address.C4: the head lies in the same chunk; C5: it was written by `init`.
        unsafe { self.chunk().0.add(offset).cast::<ArenaHead>().as_ref() }
    }

    /// Writes the head of an arena that was just taken from its chunk. `cells` 0 means a later arena of a run.
    pub(crate) fn init(self, kind: &'static Kind, space: u16, shape: Shape) {
        let offset = self.index() * size_of::<ArenaHead>();
        let zeros = || Bits::from_zero();
        let head = ArenaHead {
            marks: zeros(),
            kind: Cell::new(kind),
            recip: Cell::new(shape.recip),
            pages: Cell::new(shape.pages),
            size: Cell::new(shape.size),
            cells: Cell::new(shape.cells),
            space: Cell::new(space),
            scan: Cell::new(0),
            live: Cell::new(0),
            back: Cell::new(shape.back),
            clean: Cell::new(false),
            allocated: zeros(),
        };
        // SAFETY: address.C1, C2: the arena is this thread's alone; the head is aligned, since a chunk is, and the alignment
        // divides 96.
        unsafe { self.chunk().0.add(offset).cast::<ArenaHead>().write(head) };
    }

    /// Returns the cell that an address in this arena lies in.
    #[inline]
    pub(crate) fn cell_of(self, addr: usize) -> usize {
        let offset = addr % ARENA_BYTES;
        ((offset as u64 * u64::from(self.head().recip.get())) >> SHIFT) as usize
    }

    /// Returns the address of a cell.
    #[inline]
    pub(crate) fn cell(self, index: usize) -> NonNull<u8> {
        // SAFETY: cells lie in the arena; index 0 of a run is its first byte.
        unsafe { self.0.add(index * self.head().size.get() as usize) }
    }

    /// Returns the bytes of a cell, or of the run.
    #[inline]
    pub(crate) fn object_bytes(self) -> usize {
        let head = self.head();
        match head.size.get() {
            0 => head.pages.get() as usize * ARENA_BYTES,
            size => size as usize,
        }
    }
}

/// The division of an arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) recip: u32,
    pub(crate) pages: u32,
    pub(crate) size: u16,
    pub(crate) cells: u16,
    pub(crate) back: u16,
}

impl Shape {
    /// Returns the shape of an arena of cells of this size.
    pub(crate) fn cells(size: usize) -> Shape {
        Shape {
            recip: reciprocal(size),
            pages: 1,
            size: size as u16,
            cells: (ARENA_BYTES / size) as u16,
            back: 0,
        }
    }

    /// Returns the shape of the first arena of a run.
    pub(crate) fn run(pages: u32) -> Shape {
        Shape {
            recip: 0,
            pages,
            size: 0,
            cells: 1,
            back: 0,
        }
    }

    /// Returns the shape of a later arena of a run.
    pub(crate) fn later(back: u16) -> Shape {
        Shape {
            recip: 0,
            pages: 0,
            size: 0,
            cells: 0,
            back,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_multiplication_is_exact_for_every_size_and_offset() {
        for size in (MIN_CELL_BYTES..=MAX_CELL_BYTES).step_by(CELL_STEP) {
            let recip = u64::from(reciprocal(size));
            let step = if cfg!(miri) { 97 } else { 1 };
            for offset in (0..ARENA_BYTES).step_by(step) {
                let quotient = (offset as u64 * recip) >> SHIFT;
                assert_eq!(quotient as usize, offset / size, "{offset} / {size}");
            }
        }
    }

    #[test]
    fn cells_hold_what_they_are_for() {
        for align in [1, 2, 4, 8, 16, 64, 1024, 4096] {
            for bytes in 0..=MAX_CELL_BYTES + 1 {
                match cell_bytes(bytes, align) {
                    Some(cell) => {
                        assert!(cell >= bytes && (MIN_CELL_BYTES..=MAX_CELL_BYTES).contains(&cell));
                        assert_eq!(cell % align.max(CELL_STEP), 0, "{bytes} at {align}");
                    }
                    None => assert!(bytes.max(align) > MAX_CELL_BYTES, "{bytes} at {align}"),
                }
            }
        }
    }
}
