//! Boa's collector, interface for interface, on the heap of `skinflint-gc`.
//!
//! ```text
//!   boa_engine ─► Gc, GcRefCell, WeakGc, Ephemeron, WeakMap, Trace …       the interface of boa_gc 0.22
//!                   │ handles are counted
//!                   ▼
//!                 local ── queue: objects whose last handle went ──► ended in slices, within allocations
//!                   │   └─ cycles ──► marked in slices, what is left is examined in one short pause
//!                   ▼
//!                 tenant ─► skinflint_gc::Heap: chunks, arenas, cells           one for each tab, request, isolate
//! ```
//!
//! With `[patch.crates-io] boa_gc = { path = "…/shims/boa_gc" }` a program that uses Boa uses this crate instead. The
//! functions beside Boa's interface are in [`skinflint`]: tenants, reasons, pauses, limits.
//!
//! Z1  Nothing ends except within an allocation, a [`force_collect`] or a call of [`skinflint`]: exactly the moments
//!     at which boa_gc may collect.
//! Z2  All objects of a cycle have run their finalizers before the first of them is dropped, and are dropped before a
//!     cell of theirs is used again.
//! Z3  Nothing recurses with the depth of a structure, and nothing in a pause grows with what is alive in other
//!     tenants.
//! Z4  Everything here belongs to one thread; threads have heaps of their own.
//!
//! Files: `object` the head · `gc`, `weak`, `weak_map`, `cell` handles · `trace`, `std_types` edges · `local` the
//! thread's state · `tenant` cells and accounts · `placed` objects under a free-list
//! policy instead · `ending` the queue and doomed cycles · `examine` what is garbage ·
//! `marking`, `collect` when · `verify` the judge · `skinflint` the further interface.
//!
//! Not here: moving objects, other threads' heaps.

extern crate self as boa_gc;

#[macro_use]
mod trace;
mod cell;
mod collect;
mod ending;
mod examine;
mod gc;
mod local;
mod marking;
mod object;
mod outside;
mod placed;
pub mod skinflint;
mod std_types;
mod tenant;
mod verify;
mod weak;
mod weak_map;

pub use boa_macros::{Finalize, Trace};
pub use cell::{GcRef, GcRefCell, GcRefMut};
pub use gc::{Gc, GcErased};
pub use local::{finalizer_safe, has_weak_maps};
pub use object::GcBox;
pub use trace::{Finalize, Trace, Tracer};
pub use weak::{Ephemeron, WeakGc};
pub use weak_map::WeakMap;

/// Ends everything that nothing leads to, in all heaps of this thread, at once.
pub fn force_collect() {
    local::get().force_collect();
}
