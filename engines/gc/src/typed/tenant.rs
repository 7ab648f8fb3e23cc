//! Tenants, which have a heap each, are entered by closures, collected alone and ended whole.
//!
//! ```text
//!   Runtime ─┬─ shared heap            system objects and strings of all tenants
//!            ├─ Tenant "tab 1" ─ heap ◄── Handle (the host's) ─┐
//!            └─ Tenant "tab 2" ─ heap ◄── CrossEdge (an object of tab 1's) keeps one object alive
//! ```
//!
//! X2  The shared heap is collected only together with all others, so edges into it need no entries. While all are
//!     marked in slices a new tenant joins them, and one that a finalizer makes before that is of them (collect.L7).
//! X3  A tenant that has ended and of which something is still held from outside is a zombie: [`Ended`] says by what,
//!     and its memory goes with the last object that is held, or with [`Runtime::collect_all`].
//! X4  Collections happen when the outermost closure of a tenant ends (of the shared heap: when no other closure runs),
//!     and on request; those that cannot happen are refused, with the reason, and stay due.
//!
//! handle.X1 is that of `handle`.
//!
//! Not here: how heaps are collected (`collect`).

use core::marker::PhantomData;
use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::cx::Cx;
use super::view::HeapView;
use crate::heap::collect::{collect, try_collect};
use crate::heap::config::Config;
use crate::heap::counts::Holds;
use crate::heap::incremental::{Budget, Incremental, Progress, begin_marking};
use crate::heap::kind::Origin;
use crate::heap::set::{Busy, ROUNDS};
use crate::heap::source::Source;
use crate::heap::state::Heap;
use crate::heap::timer::{Pressure, Relief, collect_due};
use crate::heap::trigger::{Growth, Reason};
use crate::heap::world::World;
use crate::snapshot::retain::{Path, Retainers, Wanted};

/// Tenants and the heap that they share.
pub struct Runtime {
    world: World,
    shared: Rc<Heap>,
}

impl Default for Runtime {
    fn default() -> Runtime {
        Runtime::new(Config::default())
    }
}

impl Runtime {
    /// Creates a runtime without tenants.
    pub fn new(config: Config) -> Runtime {
        let world = World::new(config);
        let shared = world.heap("shared", usize::MAX);
        // X2.
        shared.only_with_others.set(true);
        // SAFETY: as in `tenant`.
        unsafe { shared.set_slices_at_alloc(true) };
        Runtime { world, shared }
    }

    /// Creates a tenant. `limit_bytes`: the most that its heap may hold.
    pub fn tenant(&self, name: &str, limit_bytes: usize) -> Tenant {
        let heap = self.world.heap(name, limit_bytes);
        // SAFETY: objects are written at once, exclusive references into them are those of `Locked`, which tracing
        // handles, and edges are written with barriers (typed.F5).
        unsafe { heap.set_slices_at_alloc(true) };
        // X2: it also joins a marking that is on.
        self.shared.is_joined_by(&heap);
        Tenant {
            heap,
            shared: self.shared.clone(),
        }
    }

    /// Returns a look at the heap of system objects: its log, rows, what is due.
    pub fn shared(&self) -> HeapView<'_> {
        HeapView::of(&self.shared)
    }

    /// Returns the heap of system objects itself.
    ///
    /// # Safety
    /// As [`Tenant::raw_heap`].
    pub unsafe fn raw_shared(&self) -> &Heap {
        &self.shared
    }

    /// Sets another table of thresholds for the heap of system objects, as [`Tenant::set_growth`].
    pub fn set_shared_growth(&self, growth: Growth) {
        self.shared.set_growth(growth);
    }

    /// Sets another limit for the heap of system objects, as [`Tenant::set_limit`].
    pub fn set_shared_limit(&self, bytes: usize) {
        self.shared.set_limit(bytes);
    }

    pub(super) fn shared_heap(&self) -> &Rc<Heap> {
        &self.shared
    }

    /// Returns the world.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn heaps(&self) -> Vec<Rc<Heap>> {
        self.world.heaps()
    }

    /// Returns the source of its chunks.
    pub fn source(&self) -> &Source {
        self.world.source()
    }

    /// Collects all heaps together: the shared one, zombies, and cycles through several.
    ///
    /// # Errors
    /// A closure of a tenant is running, or a finalizer asked; or each of several rounds of finalizers made a tenant.
    pub fn collect_all(&self, reason: Reason) -> Result<(), Busy> {
        collect_world(&self.shared, reason)
    }

    /// Begins to collect all heaps together in slices, which are done by allocations and at the ends of closures where
    /// the heaps are marked so ([`Config::incremental`]), and by [`Runtime::mark_step`]. `false`: not all is swept yet,
    /// and a part of that was done instead; the caller asks again. Growth of the shared heap begins such a collection
    /// by itself. A tenant that is collected alone meanwhile, or ends, gives the marking up.
    ///
    /// # Errors
    /// A finalizer asked for it.
    pub fn begin_all(&self, reason: Reason) -> Result<bool, Busy> {
        begin_world(&self.shared, reason)
    }

    /// Does a slice of the marking, and ends it if nothing is left and no closure of any tenant runs.
    pub fn mark_step(&self, budget: Budget) -> Progress {
        // SAFETY: as in `begin_world`.
        let progress = unsafe { self.shared.mark_step(budget) };
        if progress == Progress::Ready {
            // Refused within a closure: it is done at the closure's end.
            // SAFETY: as in `collect_world`.
            let _ = unsafe { self.shared.finish_marking(&mut ()) };
        }
        self.shared.progress()
    }

    /// Takes over what was swept, and gives back what will not be needed; for an event loop. Returns whether all heaps
    /// are swept.
    pub fn poll(&self) -> bool {
        let heaps = self.world.heaps();
        let unswept = heaps.iter().filter(|heap| !heap.poll()).count();
        unswept == 0
    }

    /// Collects what is due in idle heaps, and gives back what they keep; for the loop of a host, once in some
    /// seconds. `now_ns` is from any clock that does not go back. Heaps in which closures run are left as they are.
    pub fn tick(&self, now_ns: u64) -> Relief {
        let before = self.world.resident_bytes();
        let due = self.world.tick(now_ns);
        let mut relief = self.collect_all_due(&due);
        for heap in due
            .iter()
            .filter(|heap| relief.collected.contains(&heap.name().to_owned()))
        {
            // A heap that was collected for another reason may soon need its memory again.
            if heap
                .log()
                .last()
                .is_some_and(|last| last.reason == Reason::Idle)
            {
                heap.give_back();
            }
        }
        relief.returned_bytes = before.saturating_sub(self.world.resident_bytes());
        relief
    }

    /// Gives back what is free in all heaps because memory is short; if it is critical, collects them all before that.
    pub fn pressure(&self, level: Pressure) -> Relief {
        let before = self.world.resident_bytes();
        let mut relief = Relief::default();
        if level == Pressure::Critical {
            match self.collect_all(Reason::Pressure) {
                Ok(()) => {
                    relief.collected = self.heaps().iter().map(|h| h.name().to_owned()).collect()
                }
                Err(busy) => {
                    // Each heap that can be collected is, by itself; the others follow when their closures end.
                    self.heaps().iter().for_each(|heap| heap.pressure());
                    relief = self.collect_all_due(&self.heaps());
                    relief.refused = Some(busy);
                }
            }
        }
        self.world.pressure(Pressure::Moderate);
        relief.returned_bytes = before.saturating_sub(self.world.resident_bytes());
        relief
    }

    fn collect_all_due(&self, heaps: &[Rc<Heap>]) -> Relief {
        let mut relief = Relief::default();
        for heap in heaps {
            let shared = Rc::ptr_eq(heap, &self.shared);
            collect_due(heap, &mut relief, |reason| {
                if shared {
                    return self.collect_all(reason);
                }
                // SAFETY: as in `Tenant::collect_for`.
                unsafe { collect(&[heap], reason, &mut ()) }
            });
        }
        relief
    }

    /// Gives back everything that is free, in all heaps. For pressure, and for hosts that go to sleep.
    pub fn shrink(&self) {
        for heap in self.world.heaps() {
            heap.shrink();
        }
        self.world.source().shrink();
    }

    /// Returns a row for each heap, zombies included.
    ///
    /// # Panics
    /// A finalizer calls it.
    pub fn rows(&self) -> Vec<Row> {
        let row = |heap: &Rc<Heap>| Row {
            name: heap.name().to_owned(),
            holds: heap.holds(),
            collections: heap.collections(),
            roots: heap.root_count(),
        };
        self.world.heaps().iter().map(row).collect()
    }
}

/// Collects all heaps of the shared heap's world, also those that finalizers make when the others are swept first.
fn collect_world(shared: &Heap, reason: Reason) -> Result<(), Busy> {
    for _ in 0..ROUNDS {
        let heaps = shared.world.heaps();
        let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        // SAFETY: no closure runs (it is refused otherwise), so all objects that can be used later are reached from
        // handles; all edges are told (typed.F3, values.J1), and none comes from outside of the set (collect.L7). The
        // world is a runtime's own: no other roots exist.
        if unsafe { try_collect(&set, reason, &mut ()) }? {
            return Ok(());
        }
    }
    Err(Busy::Collecting)
}

/// Begins to mark all heaps of the shared heap's world, which are then collected together.
fn begin_world(shared: &Heap, reason: Reason) -> Result<bool, Busy> {
    let heaps = shared.world.heaps();
    let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
    // SAFETY: objects are written at once, and edges with barriers (typed.F5); heaps that are made meanwhile join (X2).
    unsafe { begin_marking(&set, reason, &mut ()) }
}

/// Does what is due for the shared heap, with all heaps together (X2): in slices where it is marked so.
fn advance_world(shared: &Heap) -> Result<(), Busy> {
    if let Some(reason) = shared.due() {
        // SAFETY: as in `collect_world`, for what is marked together with it, which is all.
        if let Ok(true) = unsafe { shared.advance_overdue(reason, &mut ()) } {
            return Ok(());
        }
        return collect_world(shared, reason);
    }
    if let Some(reason) = shared.begin_due() {
        return begin_world(shared, reason).map(drop);
    }
    if !shared.is_marking() {
        return Ok(());
    }
    // SAFETY: as above.
    unsafe { shared.advance_marking(&mut ()) }
}

/// The figures of a heap.
#[derive(Clone, Debug)]
pub struct Row {
    /// The name of the tenant, or "shared".
    pub name: String,
    /// What it holds, in bytes.
    pub holds: Holds,
    /// Number of collections so far.
    pub collections: u64,
    /// Number of handles, and of edges from other heaps.
    pub roots: usize,
}

/// A client of the runtime that has a heap of its own.
pub struct Tenant {
    heap: Rc<Heap>,
    shared: Rc<Heap>,
}

/// Counts a closure that runs (typed.F2), while it lives.
struct Entered<'a>(&'a Heap);

impl<'a> Entered<'a> {
    fn new(heap: &'a Heap) -> Entered<'a> {
        heap.entered.set(heap.entered.get() + 1);
        Entered(heap)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.entered.set(self.0.entered.get() - 1);
    }
}

impl Tenant {
    /// Runs a closure that may have pointers into the heap (typed.F1), and then collects, if that is due.
    pub fn enter<R>(&self, act: impl for<'gc> FnOnce(Cx<'gc>) -> R) -> R {
        let result = {
            let _own = Entered::new(&self.heap);
            let _shared = Entered::new(&self.shared);
            act(Cx {
                heap: &self.heap,
                shared: &self.shared,
                brand: PhantomData,
            })
        };
        // Refused within another closure of this tenant, or within a finalizer: it stays due (X4).
        // SAFETY: as in `collect_for`; edges are written with barriers (typed.F5).
        let _ = unsafe { self.heap.advance(&mut ()) };
        // The same for the shared heap; its end needs every tenant to be idle.
        let _ = advance_world(&self.shared);
        result
    }

    fn collect_for(&self, reason: Reason) -> Result<(), Busy> {
        // SAFETY: no closure of this tenant runs (it is refused otherwise), so all objects that can be used later are
        // reached from handles; edges from other tenants have entries (handle.X1), and the shared heap has none to it (typed.F4).
        unsafe { collect(&[&self.heap], reason, &mut ()) }
    }

    /// Collects this tenant alone.
    ///
    /// # Errors
    /// A closure of it is running, or a finalizer asked.
    pub fn collect(&self) -> Result<(), Busy> {
        self.collect_for(Reason::Asked)
    }

    /// Does a slice of marking, if marking is on, and ends it if nothing is left and no closure runs. For a host with
    /// time to spare; slices that are due are done by allocations and at the ends of closures.
    pub fn mark_step(&self, budget: Budget) -> Progress {
        // SAFETY: as in `enter`.
        let progress = unsafe { self.heap.mark_step(budget) };
        if progress == Progress::Ready {
            // Refused within a closure: it is done at the closure's end.
            // SAFETY: as in `collect_for`.
            let _ = unsafe { self.heap.finish_marking(&mut ()) };
        }
        self.heap.progress()
    }

    /// Collects the heap if it is due, also because it was idle for as long as the table says, and gives free memory
    /// back then; for a timer. Returns the reason, if there was one.
    pub fn tick(&self, now_ns: u64) -> Option<Reason> {
        let reason = self.heap.tick(now_ns)?;
        self.collect_for(reason).ok()?;
        if reason == Reason::Idle {
            self.heap.give_back();
        }
        Some(reason)
    }

    /// Returns a look at its heap: the log, rows, what is due.
    pub fn heap(&self) -> HeapView<'_> {
        HeapView::of(&self.heap)
    }

    /// Returns its heap itself, for unsafe code that marks or collects it by the functions of the core.
    ///
    /// # Safety
    /// Nothing is done with it that the safe side does not allow for: its objects are neither ended nor marked one by
    /// one, and unsafe functions of the core are given roots and edges as the safe side has them (typed.F1 to typed.F5).
    pub unsafe fn raw_heap(&self) -> &Heap {
        &self.heap
    }

    pub(super) fn own_heap(&self) -> &Heap {
        &self.heap
    }

    /// Sets another table of thresholds; it holds from the next collection on, its floor at once.
    pub fn set_growth(&self, growth: Growth) {
        self.heap.set_growth(growth);
    }

    /// Sets another limit. What is held beyond it is kept; nothing more is taken.
    pub fn set_limit(&self, bytes: usize) {
        self.heap.set_limit(bytes);
    }

    /// Sets how its heap is marked from now on. A marking that is on is given up.
    pub fn set_incremental(&self, table: Option<Incremental>) {
        self.heap.set_incremental(table);
    }

    /// Counts bytes that its objects hold outside of its heap, as [`Cx::client_bytes`].
    pub fn client_bytes(&self, change: isize) -> bool {
        self.heap.client_bytes(change)
    }

    /// Makes a collection due, whatever the thresholds say, because memory is short.
    pub fn pressure(&self) {
        self.heap.pressure();
    }

    /// Does waiting work for an event loop that has nothing better to do, as [`Heap::poll`]. Returns whether all is
    /// swept.
    pub fn poll(&self) -> bool {
        self.heap.poll()
    }

    /// Gives back the free pages that will not be needed before the next collection. Returns their bytes.
    pub fn trim(&self) -> usize {
        self.heap.trim()
    }

    /// Sweeps everything and gives back everything that is free. Returns the bytes of pages.
    pub fn shrink(&self) -> usize {
        self.heap.shrink()
    }

    /// Ends the tenant: everything that is not held from outside ends now, and its memory goes back. Cost where
    /// something is left: that of marking all heaps of the runtime, to say what holds it.
    ///
    /// # Errors
    /// A closure of it is running; the tenant is unchanged and is given back.
    pub fn end(self) -> Result<Ended, (Tenant, Busy)> {
        if let Err(busy) = self.collect_for(Reason::End) {
            return Err((self, busy));
        }
        let mut kinds: BTreeMap<&'static str, (usize, usize)> = BTreeMap::new();
        self.heap.each_object(|object, kind| {
            let sum = kinds.entry((kind.name)()).or_default();
            sum.0 += 1;
            sum.1 += crate::heap::address::Arena::of(object).object_bytes();
        });
        if kinds.is_empty() {
            return Ok(Ended::Clean);
        }
        let names: Vec<&'static str> = kinds.keys().copied().collect();
        let paths = self.who_holds(&names);
        let paths = paths.into_iter().chain(std::iter::repeat(None));
        let survivors = kinds
            .into_iter()
            .zip(paths)
            .map(|((kind, (objects, bytes)), path)| Survivors {
                kind,
                objects,
                bytes,
                path,
            })
            .collect();
        Ok(Ended::Zombie(survivors))
    }

    /// Returns, for the nearest object of each kind, the path from a root of any heap. Where a closure of another
    /// tenant runs, or nothing alive leads to it (its holder is garbage that was not collected yet), the path begins at
    /// the edge into this heap.
    fn who_holds(&self, kinds: &[&str]) -> Vec<Option<Path>> {
        let wanted: Vec<Wanted<'_>> = kinds.iter().map(|kind| Wanted::Nearest(kind)).collect();
        // Refused to finalizers, which cannot end a tenant.
        let near = Retainers::of(&[&self.heap]).paths(&wanted);
        let mut near = near.unwrap_or_default();
        let nearest = |path: &Option<Path>| {
            let last = path.as_ref()?.steps.last()?;
            self.heap.world.object_at(last.address)
        };
        let objects: Vec<Option<NonNull<u8>>> = near.iter().map(nearest).collect();
        let wanted: Vec<Wanted<'_>> = objects
            .iter()
            .flatten()
            .map(|o| Wanted::Object(*o))
            .collect();
        let heaps = self.heap.world.heaps();
        let all: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        let whole = Retainers::of(&all).paths(&wanted).unwrap_or_default();
        let known = near
            .iter_mut()
            .zip(&objects)
            .filter(|(_, object)| object.is_some());
        for ((path, _), whole) in known.zip(whole) {
            if whole.is_some() {
                *path = whole;
            }
        }
        near
    }
}

/// The state of a tenant after its end.
#[derive(Debug)]
pub enum Ended {
    /// Nothing is left.
    Clean,
    /// Objects that are held from outside (X3).
    Zombie(Vec<Survivors>),
}

/// Objects of one kind that outlive their tenant.
#[derive(Debug)]
pub struct Survivors {
    /// The name of the kind.
    pub kind: &'static str,
    /// Number of these objects.
    pub objects: usize,
    /// Bytes of their cells.
    pub bytes: usize,
    /// The path to one of them.
    pub path: Option<Path>,
}

const _: () = assert!(Origin::ALL.len() == 2);
