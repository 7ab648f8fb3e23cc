//! A tenant's heap: cells by size, those that were just freed first, and accounts.
//!
//! ```text
//!   take(bytes) ─► free[class]: cells whose objects just ended, the last one first ─► core: span, arena, chunk
//!   give(cell)  ─► free[class] ── too much of it ──► give_back(): to the core, arenas and chunks that are empty go
//! ```
//!
//! N1  A cell in `free` has a head with [`ENDED`] and no handles, so a walk over all cells skips it. Its second word
//!     leads to the next one.
//! N2  `pairs` has every ephemeron whose key lies here, until it is emptied or found to have ended; those have
//!     [`LISTED`] set, and their cells are freed by the code that takes them off the list.
//! N3  System objects and user objects lie in cells of different kinds, hence in different chunks.
//! N4  A cell that the core counts as taken holds an object, or is in `free`: a walk over all cells meets no other
//!     (checked by [`Tenant::check_cells`] if examinations are verified).
//!
//! Not here: which objects end.

use core::cell::{Cell, RefCell};
use core::ptr::{NonNull, null_mut};
use std::rc::Rc;

use skinflint_gc::trigger::Interval;
use skinflint_gc::{Finalize, Growth, Heap, Kind, Origin, OutOfMemory};

use crate::marking::Marking;
use crate::object::{DOOMED, ENDED, Erased, Head, LISTED, PLACED, QUEUED, SYSTEM, VTable, head};
use crate::placed::Objects;

/// The step by which cell sizes grow.
const STEP: usize = 8;
/// The largest object that shares an arena.
const MOST: usize = skinflint_gc::layout::MAX_CELL_BYTES;
const CLASSES: usize = MOST / STEP + 1;

const fn kind(origin: Origin, bytes: usize) -> Kind {
    Kind {
        name: || "an object of Boa",
        bytes,
        align: STEP,
        trace: None,
        trace_part: None,
        finalize: None,
        finalize_on: Finalize::Mutator,
        origin,
    }
}

const fn kinds(origin: Origin) -> [Kind; CLASSES] {
    let mut kinds = [const { kind(Origin::User, 0) }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        kinds[class] = kind(origin, class * STEP);
        class += 1;
    }
    kinds
}

/// The kinds by origin and size; class 0 is for objects that have pages of their own.
static KINDS: [[Kind; CLASSES]; 2] = [kinds(Origin::User), kinds(Origin::System)];

/// Returns the bytes of the cell for an object, and its class.
#[inline]
pub(crate) const fn class_of(vtable: &VTable) -> (usize, usize) {
    let step = if vtable.align > STEP {
        vtable.align
    } else {
        STEP
    };
    let bytes = vtable.bytes.next_multiple_of(step);
    if bytes <= MOST {
        (bytes / STEP, bytes)
    } else {
        (0, bytes.next_multiple_of(skinflint_gc::layout::ARENA_BYTES))
    }
}

/// Returns the name of the type of the object in a cell; `None`: the cell is free, or the object has ended.
pub(crate) fn name_of(cell: NonNull<u8>) -> Option<String> {
    let object: Erased = cell.cast();
    // SAFETY: N1: the core passes cells that are taken, which have heads.
    let head = unsafe { head(object) };
    (!head.has(ENDED)).then(|| (head.vtable.name)().to_owned())
}

/// A heap of its own, with a name.
pub(crate) struct Tenant {
    pub(crate) name: Rc<str>,
    pub(crate) heap: Rc<Heap>,
    free: [[Cell<*mut Head>; CLASSES]; 2],
    pub(crate) free_bytes: Cell<usize>,
    /// The limit of its objects and what they hold outside (`outside`).
    pub(crate) limit_bytes: usize,
    /// Bytes outside, while they are counted.
    pub(crate) outside: Cell<isize>,
    /// Number of collections in a row that made little room.
    pub(crate) ineffective: Cell<u32>,
    /// Bytes of objects by origin: user, system.
    pub(crate) bytes: [Cell<usize>; 2],
    pub(crate) made: Cell<u64>,
    pub(crate) freed: Cell<u64>,
    /// The bytes at which it is collected next.
    pub(crate) threshold: Cell<usize>,
    pub(crate) collected_ns: Cell<u64>,
    pub(crate) collections: Cell<u64>,
    /// Ephemerons on its objects (N2).
    pub(crate) pairs: RefCell<Vec<Erased>>,
    pub(crate) pairs_most: Cell<usize>,
    /// Whether it will never be entered again.
    pub(crate) closed: Cell<bool>,
    /// For the idle timer: what `made` was at the last look, and the time of that look.
    pub(crate) looked: Cell<(u64, u64)>,
    pub(crate) collected_made: Cell<u64>,
    /// For the same timer: how long the tenant has not been collected.
    pub(crate) interval: Cell<Interval>,
    /// The marking cycle that is under way (`marking`).
    pub(crate) marking: RefCell<Option<Box<Marking>>>,
    pub(crate) is_marking: Cell<bool>,
    /// The bytes that the last collection left.
    pub(crate) survived: Cell<usize>,
    /// Bytes of objects that are doomed and whose cells are not free yet.
    pub(crate) doomed_bytes: Cell<usize>,
    /// Whether doomed objects are not all ended yet; after that what is free is given back.
    pub(crate) settling: Cell<bool>,
    /// The place where the next cells to be given back are looked for.
    flushed: Cell<usize>,
    /// The pages in which a policy places what it can; the heap has the rest.
    pub(crate) placed: Option<Box<Objects>>,
}

impl Tenant {
    pub(crate) fn new(
        name: &str,
        heap: Rc<Heap>,
        limit_bytes: usize,
        growth: &Growth,
        placed: Option<Box<Objects>>,
    ) -> Tenant {
        Tenant {
            name: Rc::from(name),
            heap,
            free: [const { [const { Cell::new(null_mut()) }; CLASSES] }; 2],
            free_bytes: Cell::new(0),
            limit_bytes,
            outside: Cell::new(0),
            ineffective: Cell::new(0),
            bytes: [Cell::new(0), Cell::new(0)],
            made: Cell::new(0),
            freed: Cell::new(0),
            threshold: Cell::new(growth.floor_bytes),
            collected_ns: Cell::new(0),
            collections: Cell::new(0),
            pairs: RefCell::default(),
            pairs_most: Cell::new(1024),
            closed: Cell::new(false),
            looked: Cell::new((0, 0)),
            collected_made: Cell::new(0),
            interval: Cell::default(),
            marking: RefCell::default(),
            is_marking: Cell::new(false),
            survived: Cell::new(0),
            doomed_bytes: Cell::new(0),
            settling: Cell::new(false),
            flushed: Cell::new(0),
            placed,
        }
    }

    /// Returns the bytes of objects.
    pub(crate) fn live_bytes(&self) -> usize {
        self.bytes[0].get() + self.bytes[1].get()
    }

    /// Returns the bytes of objects that are not known to be garbage.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.live_bytes() - self.doomed_bytes.get()
    }

    /// Notes that an object that was doomed is free, or is doomed no more.
    pub(crate) fn not_doomed(&self, vtable: &VTable) {
        let (_, bytes) = class_of(vtable);
        self.doomed_bytes.set(self.doomed_bytes.get() - bytes);
    }

    /// Returns the number of objects.
    pub(crate) fn objects(&self) -> u64 {
        self.made.get() - self.freed.get()
    }

    /// Takes a cell for an object, and returns what its state says about where it lies. Cost, if one was just freed:
    /// three loads and five stores.
    #[inline]
    pub(crate) fn take(
        &self,
        vtable: &VTable,
        system: bool,
    ) -> Result<(NonNull<u8>, u32), OutOfMemory> {
        let (class, bytes) = class_of(vtable);
        let origin = usize::from(system);
        if let Some(placed) = &self.placed {
            if Objects::places(vtable) {
                let object = placed.take(vtable, &self.name)?;
                self.account(bytes, origin);
                return Ok((object, PLACED));
            }
            placed.count_outside(bytes);
        }
        let slot = &self.free[origin][class];
        let cell = match NonNull::new(slot.get()) {
            // Objects with pages of their own wait in the list of class 0 to be given back; they have many sizes.
            Some(free) if class > 0 => {
                // SAFETY: N1.
                slot.set(unsafe { free.cast::<[*mut Head; 2]>().as_ref()[1] });
                self.free_bytes.set(self.free_bytes.get() - bytes);
                free.cast()
            }
            _ => self.take_fresh(class, bytes, origin)?,
        };
        self.account(bytes, origin);
        Ok((cell, 0))
    }

    #[inline]
    fn account(&self, bytes: usize, origin: usize) {
        let account = &self.bytes[origin];
        account.set(account.get() + bytes);
        self.made.set(self.made.get() + 1);
    }

    #[inline]
    fn take_fresh(
        &self,
        class: usize,
        bytes: usize,
        origin: usize,
    ) -> Result<NonNull<u8>, OutOfMemory> {
        let kind = &KINDS[origin][class];
        if class == 0 {
            // SAFETY: the object is written before anything else is asked of the heap (`gc`).
            return unsafe { self.heap.alloc_bytes(kind, bytes) };
        }
        // SAFETY: the same.
        unsafe { self.heap.alloc(kind) }
    }

    /// Takes back the cell of an object whose value has ended, or was never written.
    ///
    /// # Safety
    /// The object must lie here, no handle to it may exist, and it must be on no list.
    pub(crate) unsafe fn give(&self, object: Erased) {
        // SAFETY: the cell is not free yet.
        let (system, vtable) = unsafe { (head(object).has(SYSTEM), head(object).vtable) };
        // SAFETY: the same.
        if unsafe { head(object) }.has(DOOMED) {
            self.not_doomed(vtable);
        }
        let (class, bytes) = class_of(vtable);
        let origin = usize::from(system);
        let account = &self.bytes[origin];
        account.set(account.get() - bytes);
        self.freed.set(self.freed.get() + 1);
        // SAFETY: the cell is not free yet.
        if unsafe { head(object) }.has(PLACED) {
            // SAFETY: it is ours, and free from now on; its head stays, for code that may still have its address
            //        (placed.X2).
            unsafe {
                object.cast::<[u32; 2]>().write([0, ENDED | PLACED]);
                self.of_policy().free(object);
            }
            return;
        }
        self.free_bytes.set(self.free_bytes.get() + bytes);
        if self.is_marking.get() {
            // SAFETY: the cell is ours; a mark would be the next object's.
            unsafe { skinflint_gc::unmark(object.cast()) };
        }
        let slot = &self.free[origin][class];
        // SAFETY: the cell is ours, and has at least two words (N1).
        unsafe {
            object.cast::<[u32; 2]>().write([0, ENDED]);
            (*object.cast::<[*mut Head; 2]>().as_ptr())[1] = slot.replace(object.as_ptr());
        }
    }

    /// Reports whether so much is free that the core should have it.
    #[inline]
    pub(crate) fn is_flush(&self) -> bool {
        let free = self.free_bytes.get();
        free > (512 << 10) && free > self.live_bytes() / 4
    }

    /// Gives freed cells to the core, at most `most`; returns whether none is left. It must not run while the tenant
    /// is being marked (marking.M3).
    pub(crate) fn flush(&self, most: usize) -> bool {
        debug_assert!(!self.is_marking.get());
        let mut left = most;
        for at in 0..2 * CLASSES {
            // It continues from where the last time ended: no size has precedence.
            let slot = (self.flushed.get() + at) % (2 * CLASSES);
            let (origin, class) = (slot / CLASSES, slot % CLASSES);
            let slot = &self.free[origin][class];
            while let Some(cell) = NonNull::new(slot.get()) {
                if left == 0 {
                    self.flushed.set(origin * CLASSES + class);
                    return false;
                }
                left -= 1;
                // SAFETY: N1; the cell lies in this heap and no object uses it.
                unsafe {
                    slot.set(cell.cast::<[*mut Head; 2]>().as_ref()[1]);
                    self.heap.free(cell.cast());
                }
            }
        }
        self.free_bytes.set(0);
        true
    }

    /// Gives all freed cells to the core, and empty arenas to their chunks; of the empty chunks, what is beyond
    /// `keep_bytes` goes.
    pub(crate) fn give_back(&self, keep_bytes: usize) {
        if self.is_marking.get() {
            return;
        }
        self.flush(usize::MAX);
        self.settling.set(false);
        crate::local::get().forget_foreign(self);
        self.heap.settle_freed();
        self.heap.trim_to(keep_bytes);
    }

    /// Continues giving back; a bounded number of cells, and at the end the arenas.
    pub(crate) fn give_back_some(&self, most: usize) {
        if self.flush(most) {
            self.settling.set(false);
            let keep = self.threshold.get().saturating_sub(self.live_bytes()) / 2;
            crate::local::get().forget_foreign(self);
            self.heap.settle_freed();
            self.heap.trim_to(keep);
        }
    }

    /// Visits all objects, except those that have ended.
    pub(crate) fn each(&self, mut visit: impl FnMut(Erased)) {
        self.heap.each_object(|cell, _| {
            let object: Erased = cell.cast();
            // SAFETY: cells that the core says are taken have a head (N1).
            if !unsafe { head(object) }.has(ENDED) {
                visit(object);
            }
        });
        if let Some(placed) = &self.placed {
            placed.each(|object| {
                // SAFETY: what was not freed has a head.
                if !unsafe { head(object) }.has(ENDED) {
                    visit(object);
                }
            });
        }
    }

    /// Returns the megabytes of a policy's pages.
    pub(crate) fn placed_chunks(&self) -> usize {
        self.placed
            .as_ref()
            .map_or(0, |placed| placed.committed_bytes().div_ceil(1 << 20))
    }

    fn of_policy(&self) -> &Objects {
        let placed = self.placed.as_deref();
        placed.expect("an object that a policy placed is of a tenant with a policy")
    }

    /// Marks an object; returns whether it was not marked before.
    ///
    /// # Safety
    /// The object must be a cell of this tenant that has a head.
    pub(crate) unsafe fn mark(&self, object: Erased) -> bool {
        // SAFETY: as the caller promises; the heap is used by single cells.
        unsafe {
            match head(object).has(PLACED) {
                true => self.of_policy().mark(object),
                false => skinflint_gc::mark(object.cast()),
            }
        }
    }

    /// Reports whether an object is marked.
    ///
    /// # Safety
    /// Those of [`Tenant::mark`].
    pub(crate) unsafe fn is_marked(&self, object: Erased) -> bool {
        // SAFETY: as the caller promises.
        unsafe {
            match head(object).has(PLACED) {
                true => self.of_policy().is_marked(object),
                false => skinflint_gc::is_marked(object.cast()),
            }
        }
    }

    /// Visits every cell with a head that is not marked, and removes all marks. `visit` may not allocate here.
    pub(crate) fn take_unmarked(&self, mut visit: impl FnMut(Erased)) {
        self.heap.take_unmarked(|cell| visit(cell.cast()));
        if let Some(placed) = &self.placed {
            placed.each_unmarked(&mut visit);
            placed.clear_marks();
        }
    }

    /// Visits every cell with a head that is not marked, and leaves the marks.
    pub(crate) fn each_unmarked(&self, mut visit: impl FnMut(Erased)) {
        self.heap.each_unmarked(|cell| visit(cell.cast()));
        if let Some(placed) = &self.placed {
            placed.each_unmarked(&mut visit);
        }
    }

    /// Checks N4, by counting. Cost: a look at every free cell, and at the head of each arena.
    ///
    /// # Panics
    /// If there are cells that are neither taken by an object nor in `free`.
    pub(crate) fn check_cells(&self) {
        let mut taken = 0;
        self.heap.each_object(|_, _| taken += 1);
        if let Some(placed) = &self.placed {
            placed.each(|_| taken += 1);
        }
        let mut free = 0;
        for slot in self.free.iter().flatten() {
            let mut next = slot.get();
            while let Some(cell) = NonNull::new(next) {
                free += 1;
                // SAFETY: N1.
                next = unsafe { cell.cast::<[*mut Head; 2]>().as_ref()[1] };
            }
        }
        let (name, objects) = (&self.name, self.objects());
        assert_eq!(
            taken,
            objects + free,
            "tenant \"{name}\": cells taken, and {objects} objects with {free} free cells"
        );
    }

    /// Adds an ephemeron on one of its objects (N2).
    pub(crate) fn add_pair(&self, pair: Erased) {
        let full = self.pairs.borrow().len() >= self.pairs_most.get();
        if full {
            self.purge_pairs();
            let left = self.pairs.borrow().len();
            self.pairs_most.set((left * 2).max(1024));
        }
        // SAFETY: it was just made.
        unsafe { head(pair) }.set(LISTED);
        self.pairs.borrow_mut().push(pair);
    }

    /// Takes ephemerons that have ended off the list, and frees their cells (N2).
    pub(crate) fn purge_pairs(&self) {
        let mut ended = Vec::new();
        self.pairs.borrow_mut().retain(|&pair| {
            // SAFETY: N2: the cells of those on the list are not free.
            let head = unsafe { head(pair) };
            let gone = head.has(ENDED) && head.handles() == 0 && !head.has(QUEUED);
            if gone {
                ended.push(pair);
            }
            !gone
        });
        for pair in ended {
            // SAFETY: it is on no list any more, and has ended without handles.
            crate::local::get().free(unsafe { unlist(pair) });
        }
    }
}

/// Clears the flag of a list.
///
/// # Safety
/// The cell must not be free.
pub(crate) unsafe fn unlist(pair: Erased) -> Erased {
    // SAFETY: as the caller promises.
    unsafe { head(pair) }.clear(LISTED);
    pair
}
