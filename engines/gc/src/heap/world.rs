//! A world, which its heaps share: a source of chunks, the sweeper, and a registry of heaps.
//!
//! ```text
//!   World ─┬─ source ── chunks for all         heap 0: system objects, shared by all tenants
//!          ├─ sweeper ─ one thread             heap 1, 2, …: one for each tenant
//!          └─ registry: number ─► heap
//! ```
//!
//! N1  A heap's number is its own as long as anything of it is left, and is used again afterwards. (Numbers are the
//!     process's (source.S5), so the registry has gaps where those of other worlds are.)
//! N2  A world and its heaps belong to one thread. (Several worlds may share a source.)
//!
//! Not here: tenants as safe code sees them (`typed::tenant`).

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};

use core::ptr::NonNull;

use crate::heap::address::ARENA_BYTES;
use crate::heap::config::Config;
use crate::heap::layout::HEADS;
use crate::heap::pace::Pace;
use crate::heap::source::{Source, give_number, take_number};
use crate::heap::state::{Heap, Shared};
use crate::heap::sweeper::Sweeper;

impl Shared {
    pub(crate) fn sweeper(&self) -> Option<&Sweeper> {
        if !self.config.background {
            return None;
        }
        self.sweeper.get_or_init(Sweeper::start).as_ref()
    }

    /// Returns the existing heaps, by number.
    pub(crate) fn heaps(&self) -> Vec<Rc<Heap>> {
        let heaps = self.heaps.borrow();
        heaps.iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Removes a heap that has nothing left (N1).
    pub(crate) fn forget(&self, id: u32) {
        if let Some(slot) = self.heaps.borrow_mut().get_mut(id as usize) {
            *slot = None;
        }
        give_number(id);
    }

    /// Reports whether a heap of this number is one of this world.
    pub(crate) fn has(&self, id: u32) -> bool {
        let heaps = self.heaps.borrow();
        heaps.get(id as usize).is_some_and(Option::is_some)
    }

    /// Returns the heap of a number, if it is one of this world.
    pub(crate) fn heap(&self, id: u32) -> Option<Rc<Heap>> {
        let heaps = self.heaps.borrow();
        heaps.get(id as usize)?.as_ref()?.upgrade()
    }

    /// Returns the number of the heap of this world in whose chunks an address lies.
    pub(crate) fn owner_of(&self, addr: usize) -> Option<u32> {
        let (_, owner) = self.source.find(addr)?;
        self.has(owner).then_some(owner)
    }

    /// Returns the object that an address lies in. The sweeper must have nothing of its heap. The cells of spans that
    /// are not retired count as objects.
    pub(crate) fn object_at(&self, addr: usize) -> Option<NonNull<u8>> {
        let (chunk, owner) = self.source.find(addr)?;
        // Another world's chunk may be another thread's: not even its head is looked at.
        if !self.has(owner) {
            return None;
        }
        let head = chunk.head();
        let offset = addr - chunk.0.as_ptr().addr();
        let index = offset / ARENA_BYTES;
        if head.slots.get() > 1 {
            // One object, from the first arena on.
            let arena = chunk.arena(HEADS);
            let end = HEADS + arena.head().pages.get() as usize;
            return (HEADS..end).contains(&index).then_some(arena.0);
        }
        if index < HEADS || head.free.has(index) {
            return None;
        }
        let back = usize::from(chunk.arena(index).head().back.get());
        let arena = chunk.arena(index - back);
        let first = arena.0.as_ptr().addr();
        let cell = arena.cell_of(if back > 0 { first } else { addr });
        let head = arena.head();
        let holds = cell < usize::from(head.cells.get()) && head.allocated.has(cell);
        holds.then(|| arena.cell(cell))
    }

    /// Returns the end of the range of numbers.
    pub(crate) fn numbers(&self) -> usize {
        self.heaps.borrow().len()
    }
}

/// Heaps that may have edges to each other. Clones are the same world.
#[derive(Clone)]
pub struct World(pub(crate) Rc<Shared>);

impl World {
    /// Creates a world with a source of its own.
    pub fn new(config: Config) -> World {
        World::on(Source::new(), config)
    }

    /// Creates a world whose chunks come from a source that other worlds use, too.
    pub fn on(source: Source, config: Config) -> World {
        let pace = Pace::new(config.clock.clone());
        World(Rc::new(Shared {
            source,
            config,
            sweeper: OnceCell::new(),
            markings: Cell::new(0),
            next_marked: Cell::new(core::ptr::null()),
            pace,
            counted: Cell::new(None),
            heaps: RefCell::default(),
        }))
    }

    /// Creates a heap. `limit_bytes`: the most that it may hold, heads and free cells included.
    pub fn heap(&self, name: &str, limit_bytes: usize) -> Rc<Heap> {
        let id = take_number();
        let heap =
            Rc::new_cyclic(|this| Heap::new(this.clone(), self.0.clone(), id, name, limit_bytes));
        let mut heaps = self.0.heaps.borrow_mut();
        let numbers = heaps.len().max(id as usize + 1);
        heaps.resize_with(numbers, || None);
        if let Some(slot) = heaps.get_mut(id as usize) {
            *slot = Some(Rc::downgrade(&heap));
        }
        heap
    }

    /// Returns its source of chunks.
    pub fn source(&self) -> &Source {
        &self.0.source
    }

    /// Returns all existing heaps.
    pub fn heaps(&self) -> Vec<Rc<Heap>> {
        self.0.heaps()
    }
}
