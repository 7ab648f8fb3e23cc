//! A set of heaps that are collected together: may they be, and what are their roots?
//!
//! Not here: the collection (`collect`, `incremental`).

use std::rc::Rc;

use crate::heap::roots::From;
use crate::heap::state::{Heap, Shared};
use crate::heap::tracer::Tracer;

/// The roots that the client knows.
pub trait Roots {
    /// Tells each root; may be called several times in a collection, and tells the same each time.
    fn trace(&mut self, tracer: &mut Tracer);

    /// Runs when everything that is reached is marked. The client may look ([`Tracer::is_reached`]), run finalizers of
    /// its own, and tell more edges; `true` asks for more marking and another call.
    fn reached(&mut self, _tracer: &mut Tracer) -> bool {
        false
    }
}

/// No roots except those in tables.
impl Roots for () {
    fn trace(&mut self, _tracer: &mut Tracer) {}
}

/// Why nothing was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// A closure that may have pointers into a heap has not ended.
    Entered,
    /// A finalizer or trace function of a heap asked for the collection.
    Collecting,
    /// The heaps are of different worlds.
    Strangers,
}

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Busy::Entered => {
                "a closure with pointers into the heap has not ended; collect after it"
            }
            Busy::Collecting => "a finalizer or trace function may not collect its own heap",
            Busy::Strangers => "heaps of different worlds cannot be collected together",
        })
    }
}

impl std::error::Error for Busy {}

/// Aborts the process when a trace function unwinds: marking is incomplete, and live objects that are not marked would
/// be freed.
pub(crate) struct NoUnwind;

impl Drop for NoUnwind {
    fn drop(&mut self) {
        if std::thread::panicking() {
            skinflint_base::sys::stderr(
                b"skinflint-gc: a trace function panicked; the heap cannot be kept\n",
            );
            std::process::abort();
        }
    }
}

/// Undoes the refusal of collections when a walk panics, which has changed nothing. (A fault that is found after
/// marking leaves marks, and the heaps are not collected again.)
pub(crate) struct Refused<'a>(pub(crate) &'a [&'a Heap]);

impl Drop for Refused<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|heap| heap.collecting.set(false));
    }
}

/// Checks whether the collection must be refused (collect.L4).
pub(crate) fn refuse(set: &[&Heap]) -> Result<(), Busy> {
    for heap in set {
        if !set.iter().all(|h| Rc::ptr_eq(&h.world, &heap.world)) {
            return Err(Busy::Strangers);
        }
        if heap.entered.get() > 0 {
            return Err(Busy::Entered);
        }
        if heap.collecting.get() || heap.is_finalizing() {
            return Err(Busy::Collecting);
        }
    }
    Ok(())
}

/// Sweeps everything that is pending in the heaps of a set, and then takes back all spans: the bits show objects. The
/// heaps must be `collecting`: a finalizer may allocate in any of them, but not collect one, after which something
/// would be pending in it again.
pub(crate) fn settle(set: &[&Heap]) {
    debug_assert!(set.iter().all(|heap| heap.collecting.get()));
    // A finalizer of one heap may take a span in another that was settled before it.
    set.iter().for_each(|heap| heap.finish_sweep());
    set.iter().for_each(|heap| heap.retire());
}

/// Reports whether one of the heaps is collected only with all others of its world, and the set lacks some of these
/// (collect.L7). `collected`: the set, by number.
pub(crate) fn lacks_heaps(set: &[&Heap], collected: &[bool]) -> bool {
    let Some(heap) = set.iter().find(|heap| heap.only_with_others.get()) else {
        return false;
    };
    let is_in_set = |heap: &Rc<Heap>| collected.get(heap.id as usize) == Some(&true);
    !heap.world.heaps().iter().all(is_in_set)
}

/// Times that heaps which finalizers make are swept in turn, before a collection is refused.
pub(crate) const ROUNDS: usize = 8;

/// Sweeps what is pending in all heaps of a world, also in those that finalizers make meanwhile, and returns the heaps.
/// No finalizer can have anything left to be swept in them, since it cannot collect one.
///
/// # Errors
/// As of a collection of all of them; or finalizers make heaps without end.
pub(crate) fn swept_world(world: &Shared) -> Result<Vec<Rc<Heap>>, Busy> {
    for _ in 0..ROUNDS {
        let heaps = world.heaps();
        let set: Vec<&Heap> = heaps.iter().map(Rc::as_ref).collect();
        refuse(&set)?;
        let collecting = Collecting::new(&set);
        set.iter().for_each(|heap| heap.finish_sweep());
        drop(collecting);
        // None has ended: they are held here.
        if world.heaps().len() == heaps.len() {
            return Ok(heaps);
        }
    }
    Err(Busy::Collecting)
}

/// Tells the roots (collect.L2).
pub(crate) fn tell_roots(
    set: &[&Heap],
    collected: &[bool],
    roots: &mut dyn Roots,
    tracer: &mut Tracer,
) {
    for heap in set {
        for (object, from) in heap.roots.borrow().all() {
            let is_in_set = |id: u32| {
                heap.world.counted.get() == Some(id)
                    || collected.get(id as usize).copied().unwrap_or(false)
            };
            if !matches!(from, From::Heap(id) if is_in_set(id)) {
                tracer.edge(object);
            }
        }
    }
    roots.trace(tracer);
}

/// Lives while heaps are looked at, so that nothing that is called collects one of them (marking.K3).
pub(crate) struct Collecting<'a>(&'a [&'a Heap]);

impl<'a> Collecting<'a> {
    pub(crate) fn new(heaps: &'a [&'a Heap]) -> Collecting<'a> {
        heaps.iter().for_each(|heap| heap.collecting.set(true));
        Collecting(heaps)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|heap| heap.collecting.set(false));
    }
}
