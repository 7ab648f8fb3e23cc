//! The safe side: pointers that cannot dangle, because they cannot leave the closure in which they may be used.
//!
//! ```text
//!   runtime.tenant("tab 1") ─► tenant.enter(|cx| { … })            no collection while a closure runs
//!                                      │  cx.alloc(value) ─► Gc<'gc, T> ─► &T      'gc: this closure, and no other
//!                                      │  cx.keep(gc, "why") ─► Handle            for use after the closure
//!                                      ▼
//!                                   the closure ends ─► what is due is collected
//! ```
//!
//! F1  `'gc` is a lifetime that each call of `enter` makes anew, and pointers are invariant in it: they cannot be
//!     returned, kept, or put into an object of another closure's brand (`compile_fail` below).
//! F2  While a closure of a tenant runs, neither its heap nor the shared one is collected: `entered` counts.
//! F3  A value in a heap is [`Trace`], which tells all its edges; types with edges have no `Drop` of their own, since
//!     the objects that they lead to may have ended before them.
//! F4  Objects of the shared heap have no edges to a tenant's ([`System`]), so tenants are collected without it.
//! F5  Edges change only through [`Slot`] and [`Locked`], which require a [`Cx`] and have the write barrier.
//! F6  Two things are joined only where they are of one runtime: by the brand, where both have one; otherwise the call
//!     compares the worlds, and refuses ([`Foreign`]). Numbers of heaps are the process's (source.S5).
//! F7  Safe code gets no heap, only a look at one ([`HeapView`]).
//! F8  What is opened by the name of a [`Family`] is invariant in that name ([`Handle`], [`CrossEdge`],
//!     [`Anchor`](crate::cc::Anchor)): a subtype of the name is another name, and may stand for another type.
//!
//! The following does not compile. A pointer that leaves its closure:
//!
//! ```compile_fail,E0521
//! # use skinflint_gc::typed::{Gc, Runtime};
//! let runtime = Runtime::default();
//! let tenant = runtime.tenant("a", usize::MAX);
//! let mut kept: Option<Gc<'_, u64>> = None;
//! tenant.enter(|cx| kept = cx.alloc(7u64).ok());
//! ```
//!
//! A pointer that is returned from it:
//!
//! ```compile_fail
//! # use skinflint_gc::typed::Runtime;
//! let runtime = Runtime::default();
//! let tenant = runtime.tenant("a", usize::MAX);
//! let gc = tenant.enter(|cx| cx.alloc(7u64).unwrap());
//! ```
//!
//! while its value, or a handle, may be returned:
//!
//! ```
//! # use skinflint_gc::typed::{Handle, Runtime};
//! let runtime = Runtime::default();
//! let tenant = runtime.tenant("a", usize::MAX);
//! let value = tenant.enter(|cx| *cx.alloc(7u64).unwrap());
//! let handle: Handle<u64> = tenant.enter(|cx| cx.keep(cx.alloc(value).unwrap(), "an example"));
//! tenant.collect().unwrap();
//! assert_eq!(tenant.enter(|cx| *handle.open(cx).unwrap()), 7);
//! ```
//!
//! A pointer of one tenant in an object of another:
//!
//! ```compile_fail
//! # use skinflint_gc::{object, typed::{Gc, Runtime, Slot}};
//! object! { struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>> } }
//! let runtime = Runtime::default();
//! let (a, b) = (runtime.tenant("a", usize::MAX), runtime.tenant("b", usize::MAX));
//! a.enter(|in_a| b.enter(|in_b| {
//!     let one = in_a.alloc(Node { next: Slot::new(None) }).unwrap();
//!     let other = in_b.alloc(Node { next: Slot::new(None) }).unwrap();
//!     other.next.set(in_b, Some(one));
//! }));
//! ```
//!
//! (With `other.next.set(in_b, Some(other))` instead it compiles.)
//!
//! ```
//! # use skinflint_gc::{object, typed::{Gc, Runtime, Slot}};
//! object! { struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>> } }
//! let runtime = Runtime::default();
//! let (a, b) = (runtime.tenant("a", usize::MAX), runtime.tenant("b", usize::MAX));
//! a.enter(|in_a| b.enter(|in_b| {
//!     let one = in_a.alloc(Node { next: Slot::new(None) }).unwrap();
//!     let other = in_b.alloc(Node { next: Slot::new(None) }).unwrap();
//!     other.next.set(in_b, Some(other));
//! }));
//! ```
//!
//! An object of one tenant that would be made of another's pointers. (No object of that type could be kept, but a
//! barrier would have the marking follow it.)
//!
//! ```compile_fail
//! # use skinflint_gc::typed::{Gc, Runtime, Slot};
//! let (one, other) = (Runtime::default(), Runtime::default());
//! let (a, z) = (one.tenant("a", usize::MAX), other.tenant("z", usize::MAX));
//! a.enter(|in_a| z.enter(|in_z| {
//!     let text = in_a.alloc(String::new()).unwrap();
//!     in_z.alloc(Slot::new(Some(text))).unwrap();
//! }));
//! ```
//!
//! (With `in_a.alloc(Slot::new(Some(text)))` instead it compiles.)
//!
//! ```
//! # use skinflint_gc::typed::{Gc, Runtime, Slot};
//! let (one, other) = (Runtime::default(), Runtime::default());
//! let (a, z) = (one.tenant("a", usize::MAX), other.tenant("z", usize::MAX));
//! a.enter(|in_a| z.enter(|in_z| {
//!     let text = in_a.alloc(String::new()).unwrap();
//!     in_a.alloc(Slot::new(Some(text))).unwrap();
//! }));
//! ```
//!
//! The core's heap, with its marks and barriers, in safe code:
//!
//! ```compile_fail,E0599
//! # use skinflint_gc::typed::Runtime;
//! let tenant = Runtime::default().tenant("a", usize::MAX);
//! tenant.heap().take_unmarked(|_| {});
//! ```
//!
//! ```compile_fail,E0133
//! # use skinflint_gc::{World, Config};
//! let heap = World::new(Config::default()).heap("a", usize::MAX);
//! heap.barrier(std::ptr::NonNull::dangling());
//! ```
//!
//! ```compile_fail,E0133
//! # use skinflint_gc::typed::Runtime;
//! let tenant = Runtime::default().tenant("a", usize::MAX);
//! tenant.raw_heap();
//! ```
//!
//! ```
//! # use skinflint_gc::typed::Runtime;
//! let tenant = Runtime::default().tenant("a", usize::MAX);
//! assert!(!tenant.heap().is_marking());
//! ```
//!
//! A user's object in a system object:
//!
//! ```compile_fail,E0277
//! # use skinflint_gc::typed::{Gc, Runtime, Slot};
//! let runtime = Runtime::default();
//! runtime.tenant("a", usize::MAX).enter(|cx| {
//!     let user = cx.alloc(7u64).unwrap();
//!     cx.alloc_shared(Slot::new(Some(user))).unwrap();
//! });
//! ```
//!
//! ```
//! # use skinflint_gc::typed::{Gc, Runtime, Slot};
//! let runtime = Runtime::default();
//! runtime.tenant("a", usize::MAX).enter(|cx| {
//!     let system = cx.alloc_shared(7u64).unwrap();
//!     cx.alloc_shared(Slot::new(Some(system))).unwrap();
//! });
//! ```
//!
//! A destructor that could look at objects that have ended:
//!
//! ```compile_fail,E0119
//! # use skinflint_gc::{object, typed::{Gc, Slot}};
//! object! { struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>> } }
//! impl Drop for Node<'_> { fn drop(&mut self) { self.next.get(); } }
//! ```
//!
//! A value that hides its edges:
//!
//! ```compile_fail,E0277
//! # use skinflint_gc::typed::{Gc, Runtime};
//! # use std::cell::Cell;
//! Runtime::default().tenant("a", usize::MAX).enter(|cx| {
//!     let one = cx.alloc(1u64).unwrap();
//!     cx.alloc(Cell::new(one)).unwrap();
//! });
//! ```
//!
//! A write without the barrier: a pointer changes only where the tenant's `Cx` is passed, and not behind a shared
//! reference to an object.
//!
//! ```compile_fail,E0061
//! # use skinflint_gc::{object, typed::{Gc, Runtime, Slot}};
//! object! { struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>> } }
//! Runtime::default().tenant("a", usize::MAX).enter(|cx| {
//!     let one = cx.alloc(Node { next: Slot::new(None) }).unwrap();
//!     one.next.set(Some(one));
//! });
//! ```
//!
//! ```compile_fail,E0594
//! # use skinflint_gc::{object, typed::{Gc, Runtime}};
//! object! { struct Node<'gc> { next: Option<Gc<'gc, Node<'gc>>> } }
//! Runtime::default().tenant("a", usize::MAX).enter(|cx| {
//!     let one = cx.alloc(Node { next: None }).unwrap();
//!     one.next = Some(one);
//! });
//! ```
//!
//! A pointer on another thread:
//!
//! ```compile_fail,E0277
//! # use skinflint_gc::typed::Runtime;
//! Runtime::default().tenant("a", usize::MAX).enter(|cx| {
//!     let one = cx.alloc(1u64).unwrap();
//!     std::thread::scope(|scope| { scope.spawn(move || *one); });
//! });
//! ```
//!
//! A handle of one family as that of another. (A subtype of a family's name is another name, which safe code gives a
//! type of its own: an object would be read as what it is not.)
//!
//! ```compile_fail,E0308
//! # #![allow(coherence_leak_check)]
//! # use skinflint_gc::typed::{Family, Handle};
//! # struct Tag<F>(std::marker::PhantomData<F>);
//! type Any = for<'a> fn(&'a ());
//! type Static = fn(&'static ());
//! impl Family for Tag<Any> { type At<'gc> = (usize, usize); }
//! impl Family for Tag<Static> { type At<'gc> = &'static str; }
//! fn other(handle: Handle<Tag<Any>>) -> Handle<Tag<Static>> { handle }
//! ```
//!
//! ```compile_fail,E0308
//! # #![allow(coherence_leak_check)]
//! # use skinflint_gc::{cc::Anchor, typed::Family};
//! # struct Tag<F>(std::marker::PhantomData<F>);
//! # type Any = for<'a> fn(&'a ());
//! # type Static = fn(&'static ());
//! # impl Family for Tag<Any> { type At<'gc> = (usize, usize); }
//! # impl Family for Tag<Static> { type At<'gc> = &'static str; }
//! fn other(anchor: Anchor<Tag<Any>>) -> Anchor<Tag<Static>> { anchor }
//! ```
//!
//! ```compile_fail,E0308
//! # #![allow(coherence_leak_check)]
//! # use skinflint_gc::typed::{CrossEdge, Family};
//! # struct Tag<F>(std::marker::PhantomData<F>);
//! # type Any = for<'a> fn(&'a ());
//! # type Static = fn(&'static ());
//! # impl Family for Tag<Any> { type At<'gc> = (usize, usize); }
//! # impl Family for Tag<Static> { type At<'gc> = &'static str; }
//! fn other(edge: CrossEdge<'_, Tag<Any>>) -> CrossEdge<'_, Tag<Static>> { edge }
//! ```
//!
//! ```
//! # #![allow(coherence_leak_check)]
//! # use skinflint_gc::{cc::Anchor, typed::{CrossEdge, Family, Handle}};
//! # struct Tag<F>(std::marker::PhantomData<F>);
//! # type Any = for<'a> fn(&'a ());
//! # type Static = fn(&'static ());
//! # impl Family for Tag<Any> { type At<'gc> = (usize, usize); }
//! # impl Family for Tag<Static> { type At<'gc> = &'static str; }
//! fn handle(same: Handle<Tag<Any>>) -> Handle<Tag<Any>> { same }
//! fn anchor(same: Anchor<Tag<Any>>) -> Anchor<Tag<Any>> { same }
//! fn edge(same: CrossEdge<'_, Tag<Any>>) -> CrossEdge<'_, Tag<Any>> { same }
//! ```
//!
//! A handle on another thread, whatever its family:
//!
//! ```compile_fail,E0277
//! # use skinflint_gc::typed::Handle;
//! fn moves<T: Send>(_: T) {}
//! fn moved(handle: Handle<u64>) { moves(handle) }
//! ```
//!
//! Not here: clients that must collect at any time (they use the core: `collect`, `conservative`).

mod cx;
mod ephemeron;
mod handle;
mod look;
mod pointer;
mod slot;
mod tenant;
pub(crate) mod together;
mod view;

pub use crate::trace::{Edge, Family, FieldParts, Opaque, OpaqueSend, Pointer, System, Trace};
pub use cx::{Cx, Foreign};
pub use ephemeron::Ephemeron;
pub use handle::{CrossEdge, Handle};
pub use pointer::{Gc, Sys, Weak};
pub use slot::{Locked, LockedMut, Slot};
pub use tenant::{Ended, Row, Runtime, Survivors, Tenant};
pub use view::HeapView;
