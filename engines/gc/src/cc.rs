//! `Cc<T>`: counted values whose cycles are found, alone and together with garbage-collected heaps.
//!
//! ```text
//!   Cycles ──cc(value)──► Cc<T> ──► box │ strong, weak, flags, index │ value │
//!     │                                   │ the count falls, and not to 0
//!     │ candidates ◄──────────────────────┘
//!     ▼ in slices (`cycles`)
//!   build: what candidates lead to, a node for each ─► scan: whose count is more than nodes hold is alive, and what
//!     it leads to ─► destroy: drop the values of the rest
//!
//!   GC object ── Counted<'gc, T> ──► box ── Anchor<F> ──► GC object      cycles through both
//! ```
//!
//! Z1  A box is freed when its value was dropped, and `strong` and `weak` are 0. Its value is dropped once: when
//!     `strong` falls to 0, or when it is destroyed with a cycle. A [`Weak`] gives no pointer from then on.
//! Z2  Drops do not recurse: values whose counts fall to 0 while a value is dropped wait in a list. A list of ten
//!     million boxes is dropped one by one.
//! Z3  A value is [`Trace`](crate::typed::Trace), so it tells each counted pointer that it holds, once; pointers change
//!     only in [`Field`]s and [`Locked`](crate::typed::Locked)s, which report it while a collection is in progress
//!     (`moved`). A pointer that is hidden from the trace (in a [`Opaque`](crate::typed::Opaque), a `RefCell`) counts
//!     as held from outside: its value may leak, and nothing worse.
//! Z4  A destructor that panics is contained and reported ([`CycleCounts::faults`]); its box is freed.
//!
//! Source of the idea: Bacon and Rajan, "Concurrent cycle collection in reference counted systems" (2001); the separate
//! graph, which makes slices possible, is Firefox's. Rejected: counts and colours in the boxes themselves, which have
//! to be restored before the program may run on.
//!
//! ```
//! use skinflint_gc::{cc::{Cc, Cycles, Field}, counted};
//!
//! counted! { struct Node { next: Field<Option<Cc<Node>>>, name: String } }
//!
//! let cycles = Cycles::new();
//! let a = cycles.cc(Node { next: Field::new(None), name: "a".into() });
//! let b = cycles.cc(Node { next: Field::new(Some(a.clone())), name: "b".into() });
//! *a.next.borrow_mut() = Some(b.clone());
//! drop((a, b));
//! assert_eq!(cycles.counts().boxes, 2);
//! cycles.collect();
//! assert_eq!(cycles.counts().boxes, 0);
//! ```
//!
//! A pointer on another thread does not compile, nor does a destructor that could look at what has ended:
//!
//! ```compile_fail,E0277
//! let cycles = skinflint_gc::cc::Cycles::new();
//! let one = cycles.cc(1u64);
//! std::thread::scope(|scope| { scope.spawn(move || *one); });
//! ```
//!
//! ```compile_fail,E0119
//! # use skinflint_gc::{cc::{Cc, Field}, counted};
//! counted! { struct Node { next: Field<Option<Cc<Node>>> } }
//! impl Drop for Node { fn drop(&mut self) { self.next.borrow(); } }
//! ```
//!
//! Nor does a value that hides its pointers in a cell without a barrier, or one with a pointer into a tenant's heap:
//!
//! ```compile_fail,E0277
//! # use skinflint_gc::cc::{Cc, Cycles};
//! let cycles = Cycles::new();
//! let one = cycles.cc(1u64);
//! cycles.cc(std::cell::Cell::new(Some(one)));
//! ```
//!
//! ```compile_fail,E0521
//! # use skinflint_gc::{cc::Cycles, typed::Runtime};
//! let runtime = Runtime::default();
//! let cycles = runtime.cycles();
//! runtime.tenant("a", usize::MAX).enter(|cx| { cycles.cc(cx.alloc(1u64).unwrap()); });
//! ```
//!
//! Not here: counts that several threads share.

pub use crate::counted::{Cc, CycleCounts, Cycles, Field, FieldMut, Weak};
pub use crate::typed::together::{Anchor, Counted};
