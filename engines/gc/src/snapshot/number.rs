//! Numbers for objects without a table of them: sums of bits up to each arena, and the arena's own bits.
//!
//! ```text
//!   heap, chunk ─► [u32; 256]: objects before arena 6, 7, …      object ─► its arena's entry + set bits before its cell
//! ```
//!
//! Four bytes for each arena of 4 KiB, a thousandth of the heap.
//!
//! U1  Between [`Numbering::of`] and the last question nothing is allocated, freed, swept or given back in the heaps:
//!     the caller holds a [`Still`], and the stream that a snapshot goes to may call everything meanwhile.
//! U2  Numbers follow the order in which [`each_arena`] goes.
//!
//! Not here: numbers of nodes that are no objects (`write`).

use core::ptr::NonNull;

use crate::heap::address::{ARENAS, Arena, Chunk};
use crate::heap::set::{Busy, Collecting, settle};
use crate::heap::state::Heap;

/// Heaps that are settled and stay as they are while this lives: no collection, no sweep, no span taken.
pub(crate) struct Still<'a> {
    heaps: &'a [&'a Heap],
    _collecting: Collecting<'a>,
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.heaps.iter().for_each(|heap| heap.still.set(false));
    }
}

impl<'a> Still<'a> {
    /// Sweeps everything, and takes back all spans.
    pub(crate) fn new(heaps: &'a [&'a Heap]) -> Result<Still<'a>, Busy> {
        for heap in heaps {
            if heap.entered.get() > 0 {
                return Err(Busy::Entered);
            }
            if heap.collecting.get() || heap.is_finalizing() {
                return Err(Busy::Collecting);
            }
        }
        Ok(Still::settled(heaps))
    }

    /// Does what [`Still::new`] does even while closures of safe code run, whose objects may have parts that are being
    /// written: such a part tells no edges.
    ///
    /// # Panics
    /// A finalizer or a trace function of these heaps calls it.
    pub(crate) fn even_entered(heaps: &'a [&'a Heap]) -> Still<'a> {
        Still::settled(heaps)
    }

    fn settled(heaps: &'a [&'a Heap]) -> Still<'a> {
        let busy = |heap: &&Heap| heap.collecting.get() || heap.is_finalizing();
        assert!(
            !heaps.iter().any(busy),
            "a finalizer or tracer may not look at all of its heap"
        );
        let still = Still {
            heaps,
            _collecting: Collecting::new(heaps),
        };
        settle(heaps);
        // Not before: finalizers allocate.
        heaps.iter().for_each(|heap| heap.still.set(true));
        still
    }
}

/// Passes each arena that has objects to a function, in the order of numbers (U2), until a call fails.
pub(crate) fn each_arena<E>(
    heap: &Heap,
    mut visit: impl FnMut(Arena) -> Result<(), E>,
) -> Result<(), E> {
    // The list is not borrowed while a client's function runs.
    let chunks: Vec<Chunk> = heap.chunks.borrow().all().collect();
    for chunk in chunks {
        for arena in chunk.arenas() {
            visit(arena)?;
        }
    }
    Ok(())
}

/// The number of objects before each arena of a chunk.
type Firsts = Box<[u32; ARENAS]>;

/// The numbers of a heap's objects, by origin and place of the chunk.
#[derive(Default)]
struct OfHeap {
    known: bool,
    chunks: [Vec<Option<Firsts>>; 2],
}

/// A number for each object of some heaps.
pub(crate) struct Numbering {
    heaps: Vec<OfHeap>,
    objects: u32,
}

/// There are more objects than numbers.
pub(crate) struct TooMany;

impl Numbering {
    pub(crate) fn of(heaps: &[&Heap]) -> Result<Numbering, TooMany> {
        let mut numbering = Numbering {
            heaps: Vec::new(),
            objects: 0,
        };
        for heap in heaps {
            let id = heap.id() as usize;
            let numbers = numbering.heaps.len().max(id + 1);
            numbering.heaps.resize_with(numbers, OfHeap::default);
            numbering.heaps[id].known = true;
            each_arena(heap, |arena| numbering.add(arena))?;
        }
        Ok(numbering)
    }

    fn add(&mut self, arena: Arena) -> Result<(), TooMany> {
        let chunk = arena.chunk();
        let head = chunk.head();
        let heap = &mut self.heaps[head.heap.get() as usize];
        let chunks = &mut heap.chunks[usize::from(head.origin.get()) % 2];
        let place = head.index.get() as usize;
        if chunks.len() <= place {
            chunks.resize_with(place + 1, || None);
        }
        let firsts = chunks[place].get_or_insert_with(|| Box::new([0; ARENAS]));
        firsts[arena.index()] = self.objects;
        let count = arena.head().allocated.count() as u32;
        self.objects = self.objects.checked_add(count).ok_or(TooMany)?;
        Ok(())
    }

    /// Returns the number of objects.
    pub(crate) fn objects(&self) -> u32 {
        self.objects
    }

    /// Returns the number of the first object of an arena.
    pub(crate) fn first(&self, arena: Arena) -> u32 {
        let chunk = arena.chunk();
        let head = chunk.head();
        let heap = self.heaps.get(head.heap.get() as usize);
        let chunks = heap.map(|heap| &heap.chunks[usize::from(head.origin.get()) % 2]);
        let firsts = chunks.and_then(|chunks| chunks.get(head.index.get() as usize)?.as_ref());
        firsts.map_or(0, |firsts| firsts[arena.index()])
    }

    /// Reports whether a heap is one of these.
    pub(crate) fn has(&self, heap: u32) -> bool {
        self.heaps.get(heap as usize).is_some_and(|h| h.known)
    }

    /// Returns the number of the heap that an object is in, as an error if it is none of these.
    pub(crate) fn heap_of(&self, object: NonNull<u8>) -> Result<u32, u32> {
        let heap = Chunk::of(object).head().heap.get();
        if self.has(heap) { Ok(heap) } else { Err(heap) }
    }

    /// Returns an object's number; the error is the number of its heap if that is none of these.
    pub(crate) fn number(&self, object: NonNull<u8>) -> Result<u32, u32> {
        self.heap_of(object)?;
        let arena = Arena::of(object);
        let cell = arena.cell_of(object.as_ptr().addr());
        let words = arena.head().allocated.words();
        let (word, bit) = (cell / 64, cell % 64);
        let before: u32 = words[..word].iter().map(|word| word.count_ones()).sum();
        let here = (words[word] & ((1 << bit) - 1)).count_ones();
        Ok(self.first(arena) + before + here)
    }
}
