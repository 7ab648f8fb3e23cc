//! A garbage-collected heap for authors of language runtimes: tenants, off-thread sweeping, memory that goes back.
//!
//! ```text
//!   safe code      typed: Tenant, Cx<'gc>, Gc<'gc, T>, Handle, CrossEdge, object!     a runtime of its own, or a shim
//!        │                                                                              │ unsafe
//!        ▼                                                                              ▼
//!   core           World ─► Heap ─► Space (kind) ─► span ─► object          collect(set, reason, roots)
//!                             │                                                │ mark: edges by kind.trace
//!                             │ chunks: 1 MiB, arenas of 4 KiB, bits aside     │ then sweep: lazily, or beside
//!                             ▼                                                ▼
//!   below          Source ─► pages::Pool ─► the OS                  Handover ◄──► the thread "skinflint-gc"
//! ```
//!
//! ```
//! use skinflint_gc::{OutOfMemory, object, typed::{Gc, Handle, Runtime, Slot}};
//!
//! object! { pub struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>>, name: String } }
//!
//! let runtime = Runtime::default();
//! let tab = runtime.tenant("tab 1", 256 << 20);
//! let kept = tab.enter(|cx| -> Result<Handle<Node<'static>>, OutOfMemory> {
//!     let root = cx.alloc(Node { next: Slot::new(None), name: "root".into() })?;
//!     root.next.set(cx, Some(cx.alloc(Node { next: Slot::new(Some(root)), name: "child".into() })?));
//!     Ok(cx.keep(root, "document"))
//! })?;
//! tab.collect()?;
//! assert_eq!(tab.enter(|cx| kept.open(cx).unwrap().next.get().unwrap().name.clone()), "child");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! G1  An object stays where it is from its allocation to its end, and ends once, after a collection that did not
//!     reach it, on a thread that its kind allows.
//! G2  A heap is one tenant's: its own chunks, collected alone, ended whole. A chunk never holds objects of two
//!     heaps, nor system and user objects together.
//! G3  Collections happen where the client asks, never inside an allocation of safe code. So no pointer of safe code
//!     dangles: it cannot outlive the closure in which it may be used (`typed`).
//! G4  A collection of one heap must know which edges lead into it from outside: they have entries (`roots`). Edges
//!     into the shared heap have none, since that one is collected only together with all others.
//! G5  Nothing recurses with the size of a heap, and every list that a collection makes has a bound.
//! G6  Free memory goes back: chunks when they are empty, arenas beyond what the next collection will need, all of it
//!     on request (source.S1 and source.S2; chunks.U4).
//! G7  A shortage is the error of one allocation of one tenant (alloc.P5); a panic of a finalizer is contained
//!     and reported (sweep.W3), in programs that unwind.
//!
//! Sources: the layout and the order of arenas are SpiderMonkey's (js/src/gc); bits apart from objects and lazy
//! sweeping go back to Boehm and Weiser (1988) and Go; the branded pointers are those of gc-arena by kyren and of
//! "GhostCell" (Yanovski et al., 2021).
//!
//! Folders, each of which names those before it in this list and none after it: `heap` the core · `snapshot` heap
//! [snapshots](snapshot), retaining paths ([`Retainers`]), [sums by kind](census) · `trace` values that tell their
//! edges · `counted` counted values and their cycles · `typed` the safe side · `report` lines of a memory report (a
//! feature). Inside a folder, too, files name each other in one direction. [`cc`] and [`typed`] have the names for safe
//! code.
//!
//! Seams: a variable-size space (`space`).
//!
//! Not here: moving objects, threads that share a heap.
#![cfg(not(loom))]

pub mod cc;
mod counted;
mod heap;
#[cfg(feature = "report")]
mod report;
pub mod snapshot;
mod trace;
pub mod typed;

pub use heap::clock::Clock;
pub use heap::collect::collect;
pub use heap::config::Config;
#[cfg(all(not(miri), target_arch = "x86_64"))]
pub use heap::conservative;
pub use heap::incremental::{Budget, Incremental, PART_EDGES, Progress, begin_marking};
pub use heap::kind::{Finalize, FinalizeFn, Kind, Origin, TraceFn, TracePartFn};
pub use heap::roots::{From, RootId};
pub use heap::set::{Busy, Roots};
pub use heap::shortage::{OutOfMemory, Shortage};
pub use heap::source::{Source, SourceCounts};
pub use heap::state::Heap;
pub use heap::sweep::Fault;
pub use heap::timer::{Asker, Pressure, Relief};
pub use heap::tracer::Tracer;
pub use heap::trigger::{Collection, Growth, Reason};
pub use heap::weak::{Pair, WeakCell};
pub use heap::world::World;
pub use heap::{Holds, Share, SweepCounts, heap_number, is_marked, mark, unmark};
pub use heap::{layout, timer, trigger};
pub use snapshot::retain::{Path, Retainers, Step, Wanted};
pub use snapshot::{census, chunks};

/// Compiles and runs the guide's code.
#[cfg(doctest)]
#[doc = include_str!("../GUIDE")]
mod guide {}
