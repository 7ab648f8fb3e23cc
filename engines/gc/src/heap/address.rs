//! Addresses of chunks and arenas, found from those of objects.
//!
//! ```text
//!   pointer ─► & !(1 MiB - 1) ─► chunk      pointer >> 12 & 255 ─► number of the arena within it
//! ```
//!
//! C1  An [`Arena`] is made for a chunk that is taken, and not used after it is given back.
//! C4  An object's address has the provenance of its chunk, so heads are reached from it.
//!
//! Not here: what lies at these addresses (`layout`).

use core::ptr::NonNull;

/// Bytes of a chunk, and its alignment.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of an arena.
pub const ARENA_BYTES: usize = 4096;

/// Bytes of the largest object that shares an arena.
pub const MAX_CELL_BYTES: usize = 2048;

/// Bytes of the smallest cell.
pub const MIN_CELL_BYTES: usize = 16;

/// Cells are multiples of this many bytes.
pub const CELL_STEP: usize = 8;

pub(crate) const ARENAS: usize = CHUNK_BYTES / ARENA_BYTES;

/// A chunk: the address of its first byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) struct Chunk(pub(crate) NonNull<u8>);

/// An arena: the address of its first byte (C1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub(crate) struct Arena(pub(crate) NonNull<u8>);

// SAFETY: layout.C2: the thread that has an arena for sweeping is the only one to use its head and cells.
unsafe impl Send for Arena {}

// SAFETY: empty chunks wait in the source, which is shared between threads behind a lock.
unsafe impl Send for Chunk {}

impl Chunk {
    /// Returns the chunk of an object or arena.
    #[inline]
    pub(crate) fn of(object: NonNull<u8>) -> Chunk {
        let chunk = object.as_ptr().map_addr(|addr| addr & !(CHUNK_BYTES - 1));
        // SAFETY: C4: chunks do not begin at address 0.
        Chunk(unsafe { NonNull::new_unchecked(chunk) })
    }

    #[inline]
    pub(crate) fn arena(self, index: usize) -> Arena {
        // SAFETY: an index below ARENAS is within the chunk.
        Arena(unsafe { self.0.add(index * ARENA_BYTES) })
    }
}

impl Arena {
    /// Returns the arena of an object; for a run, the object is its first byte.
    #[inline]
    pub(crate) fn of(object: NonNull<u8>) -> Arena {
        let arena = object.as_ptr().map_addr(|addr| addr & !(ARENA_BYTES - 1));
        // SAFETY: C4, as for chunks.
        Arena(unsafe { NonNull::new_unchecked(arena) })
    }

    #[inline]
    pub(crate) fn chunk(self) -> Chunk {
        Chunk::of(self.0)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0.as_ptr().addr() / ARENA_BYTES % ARENAS
    }
}
