//! A heap's chunks: arenas and runs of arenas, taken and freed.
//!
//! ```text
//!   user     chunk │hhhhhh│ab·a··ccc·│   chunk │hhhhhh│·········│ ──► all free: back to the source
//!   system   chunk │hhhhhh│sss·······│
//! ```
//!
//! U1  A chunk has arenas of one origin: objects that the runtime keeps for itself do not keep chunks of a tab's
//!     objects.
//! U2  An arena is taken from the fullest chunk that has one, among those of U6, so that the emptiest can become empty.
//!     (The choice is made when the last chunk is used up, not each time.)
//! U3  `used` of a chunk is the number of its arenas that are not in `free`. A chunk with none in use is given back,
//!     unless the heap would then have less free memory than it will need before the next collection (`reserve`):
//!     giving memory back to take it again costs a purge and 256 faults, half a millisecond.
//! U4  Free arenas in used chunks are given back by [`Chunks::trim`], except as many as will be needed before the next
//!     collection.
//! U5  `held_pages` is the heads and the arenas in use. No arena is taken that would make them, and the client's bytes
//!     outside, more than the limit.
//! U6  No page is touched for cells while a free one of the same origin is resident. (Where the last chunk had only
//!     begun, its rest was filled first: the peak was half a megabyte higher in the mean.)
//!
//! Not here: the contents of an arena (`space`), empty chunks (`source`).

use core::cell::Cell;

use crate::heap::address::{ARENA_BYTES, ARENAS, Arena, CHUNK_BYTES, Chunk};
use crate::heap::bits::each;
use crate::heap::kind::{Kind, Origin};
use crate::heap::layout::{HEADS, Shape, USABLE};
use crate::heap::shortage::Shortage;
use crate::heap::source::Source;

pub(crate) struct Chunks {
    source: Source,
    heap: u32,
    lists: [Vec<Chunk>; 2],
    current: [Option<Chunk>; 2],
    /// Pages held (U5).
    held_pages: usize,
    limit_bytes: usize,
    /// Bytes that objects hold outside, as the client says.
    client_bytes: Cell<usize>,
    /// Number of free arenas that may be resident, of each origin.
    dirty: [usize; 2],
    /// Number of arenas to keep (U3).
    reserve: usize,
}

impl Chunks {
    pub(crate) fn new(source: Source, heap: u32, limit_bytes: usize) -> Chunks {
        Chunks {
            source,
            heap,
            lists: [Vec::new(), Vec::new()],
            current: [None, None],
            held_pages: 0,
            limit_bytes,
            client_bytes: Cell::new(0),
            dirty: [0; 2],
            reserve: 0,
        }
    }

    /// Sets the bytes that will be needed before the next collection.
    pub(crate) fn set_reserve(&mut self, bytes: usize) {
        self.reserve = bytes.div_ceil(ARENA_BYTES);
    }

    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit_bytes = bytes;
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub(crate) fn set_client(&self, bytes: usize) {
        self.client_bytes.set(bytes);
    }

    /// Returns the bytes that count towards the limit.
    pub(crate) fn all_bytes(&self) -> usize {
        self.held_bytes().saturating_add(self.client_bytes.get())
    }

    /// Reports whether the client's bytes make the sum more than the limit. (A heap whose limit was lowered keeps what
    /// it holds.)
    pub(crate) fn is_over(&self) -> bool {
        self.client_bytes.get() > 0 && self.all_bytes() > self.limit_bytes
    }

    /// Reports whether an object of `bytes` bytes is refused even by an empty heap.
    pub(crate) fn is_beyond(&self, bytes: usize) -> bool {
        let pages = bytes.div_ceil(ARENA_BYTES) + HEADS;
        pages.saturating_mul(ARENA_BYTES) > self.limit_bytes
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_pages * ARENA_BYTES
    }

    /// Returns the bytes of free arenas that may be resident.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty() * ARENA_BYTES
    }

    fn dirty(&self) -> usize {
        self.dirty.iter().sum()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Chunk> {
        self.lists.iter().flatten().copied()
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    fn within_limit(&self, pages: usize) -> Result<(), Shortage> {
        let more = pages.saturating_mul(ARENA_BYTES);
        if self.all_bytes().saturating_add(more) > self.limit_bytes {
            return Err(Shortage::Limit);
        }
        Ok(())
    }

    /// Takes an arena for cells.
    pub(crate) fn take_arena(
        &mut self,
        kind: &'static Kind,
        space: u16,
        shape: Shape,
    ) -> Result<Arena, Shortage> {
        self.within_limit(1)?;
        let chunk = self.chunk_with_room(kind.origin)?;
        let head = chunk.head();
        // Free arenas alone are dirty. Prefers one that is already resident.
        let Some(index) = head.dirty.next(0).or_else(|| head.free.next(0)) else {
            debug_assert!(false, "U2: no room in the chunk");
            return Err(Shortage::System);
        };
        self.use_arenas(chunk, index, 1);
        let arena = chunk.arena(index);
        arena.init(kind, space, shape);
        Ok(arena)
    }

    /// Takes a run of arenas for one object of `pages` pages.
    pub(crate) fn take_run(
        &mut self,
        kind: &'static Kind,
        space: u16,
        pages: usize,
    ) -> Result<Arena, Shortage> {
        self.within_limit(pages)?;
        let run = u32::try_from(pages).map_err(|_| Shortage::Size)?;
        let list = &self.lists[kind.origin.index()];
        let found = list
            .iter()
            .find_map(|chunk| Some((*chunk, chunk.head().free.run(pages)?)))
            .filter(|_| pages <= USABLE);
        let (chunk, index) = match found {
            Some(found) => found,
            None => {
                let slots = ((HEADS + pages) * ARENA_BYTES).div_ceil(CHUNK_BYTES);
                let slots = u32::try_from(slots).map_err(|_| Shortage::Size)?;
                (self.new_chunk(kind.origin, slots, pages)?, HEADS)
            }
        };
        let here = pages.min(ARENAS - index);
        self.use_arenas(chunk, index, here);
        self.held_pages += pages - here;
        let arena = chunk.arena(index);
        arena.init(kind, space, Shape::run(run));
        for later in 1..here {
            let shape = Shape::later(later as u16);
            chunk.arena(index + later).init(kind, space, shape);
        }
        Ok(arena)
    }

    fn use_arenas(&mut self, chunk: Chunk, index: usize, count: usize) {
        let head = chunk.head();
        for at in index..index + count {
            if head.dirty.has(at) {
                self.dirty[usize::from(head.origin.get())] -= 1;
            }
        }
        head.free.remove_range(index, index + count);
        head.dirty.remove_range(index, index + count);
        head.used.set(head.used.get() + count as u32);
        self.held_pages += count;
    }

    fn chunk_with_room(&mut self, origin: Origin) -> Result<Chunk, Shortage> {
        let dirty = self.dirty[origin.index()] > 0;
        // U6: a chunk of which a free arena is resident, if there is one.
        let has_room = |chunk: &Chunk| {
            let head = chunk.head();
            let room = (head.used.get() as usize) < USABLE;
            room && (!dirty || head.dirty.next(0).is_some())
        };
        if let Some(chunk) = self.current[origin.index()].filter(has_room) {
            return Ok(chunk);
        }
        let with_room = self.lists[origin.index()].iter().filter(|c| has_room(c));
        let fullest = with_room
            .max_by_key(|chunk| chunk.head().used.get())
            .copied();
        let chunk = match fullest {
            Some(chunk) => chunk,
            None => self.new_chunk(origin, 1, 1)?,
        };
        self.current[origin.index()] = Some(chunk);
        Ok(chunk)
    }

    /// Takes a chunk for at least `pages` pages, which the caller takes next.
    fn new_chunk(&mut self, origin: Origin, slots: u32, pages: usize) -> Result<Chunk, Shortage> {
        self.within_limit(HEADS + pages)?;
        let (chunk, zero) = self.source.take(slots, self.heap).ok_or(Shortage::System)?;
        chunk.init(self.heap, slots, origin as u8, zero);
        let list = &mut self.lists[origin.index()];
        chunk.head().index.set(list.len() as u32);
        list.push(chunk);
        self.held_pages += HEADS;
        if !zero {
            self.dirty[origin.index()] += USABLE;
        }
        Ok(chunk)
    }

    /// Frees an arena or run that is no longer used.
    pub(crate) fn free(&mut self, arena: Arena) {
        let chunk = arena.chunk();
        let head = chunk.head();
        let pages = arena.head().pages.get() as usize;
        let index = arena.index();
        let here = pages.min(ARENAS - index);
        head.free.add_range(index, index + here);
        head.used.set(head.used.get() - here as u32);
        if !arena.head().clean.get() {
            head.dirty.add_range(index, index + here);
            self.dirty[usize::from(head.origin.get())] += here;
        }
        self.held_pages -= pages;
        if head.used.get() == 0 && self.is_spare(chunk, self.reserve) {
            self.give(chunk);
        }
    }

    /// Reports whether an empty chunk is not worth keeping (U3): enough is left beside it, or only its head is
    /// resident. A huge object's chunk is of no use to others.
    fn is_spare(&self, chunk: Chunk, reserve: usize) -> bool {
        let dirty = chunk.head().dirty.count();
        dirty == 0 || self.dirty() >= reserve + dirty || chunk.head().slots.get() > 1
    }

    fn give(&mut self, chunk: Chunk) {
        let head = chunk.head();
        let origin = usize::from(head.origin.get());
        let (index, slots) = (head.index.get() as usize, head.slots.get());
        self.dirty[origin] -= head.dirty.count();
        self.held_pages -= HEADS;
        let list = &mut self.lists[origin];
        list.swap_remove(index);
        if let Some(moved) = list.get(index) {
            moved.head().index.set(index as u32);
        }
        if self.current[origin] == Some(chunk) {
            self.current[origin] = None;
        }
        self.source.give(chunk, slots);
    }

    /// Gives free resident memory back, empty chunks first and then the arenas of the emptiest chunks, until at most
    /// `keep_bytes` are left. Returns the bytes given back. Cost: a system call for every 512 ranges, and 0.6 µs for a
    /// page.
    pub(crate) fn trim(&mut self, keep_bytes: usize) -> usize {
        let keep = keep_bytes / ARENA_BYTES;
        let before = self.dirty();
        let empty: Vec<Chunk> = self.all().filter(|c| c.head().used.get() == 0).collect();
        for chunk in empty {
            if keep == 0 || self.is_spare(chunk, keep) {
                self.give(chunk);
            }
        }
        if self.dirty() > keep {
            self.trim_arenas(keep);
        }
        (before - self.dirty()) * ARENA_BYTES
    }

    fn trim_arenas(&mut self, keep: usize) {
        let mut chunks: Vec<Chunk> = self
            .all()
            .filter(|c| c.head().dirty.next(0).is_some())
            .collect();
        chunks.sort_by_key(|chunk| chunk.head().used.get());
        let mut left = self.dirty() - keep;
        let mut purged = Vec::new();
        for chunk in chunks {
            for index in each(chunk.head().dirty.words()).take(left) {
                chunk.head().dirty.remove(index);
                self.dirty[usize::from(chunk.head().origin.get())] -= 1;
                purged.push((chunk.arena(index).0, ARENA_BYTES));
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        self.source.purge(purged.into_iter());
    }

    /// Gives everything back, including what is in use.
    pub(crate) fn release(&mut self) {
        self.reserve = usize::MAX / 2;
        let all: Vec<Chunk> = self.all().collect();
        for chunk in all {
            let arenas: Vec<Arena> = chunk.arenas().collect();
            for arena in arenas {
                self.free(arena);
            }
        }
        // Chunks that were kept (U3).
        self.trim(0);
        debug_assert_eq!((self.held_pages, self.dirty()), (0, 0));
    }
}
