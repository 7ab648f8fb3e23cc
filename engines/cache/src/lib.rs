//! Memory that a long-running program holds only to be faster, and how it gives that back when memory is short.
//!
//! ```text
//!   kernel: PSI, cgroup ─┐
//!   allocator: refusals ─┼─► Bus (one thread) ─► listeners, cheapest to rebuild first ─► trim ─► log: what came back
//!   button, API ─────────┘          │
//!                                   ├─► Cache        bytes, idle time, a budget shared with others
//!                                   ├─► Discards     decoded forms; the compressed source stays
//!                                   └─► Mailbox      what may only be asked on its own thread (a GC heap)
//!
//!   Buf, Arena ─► fill: blocks whose requested size is the size class of the allocator that runs
//! ```
//!
//! K1  Bytes are what the running allocator says that it gave ([`measure`]), our own tables included. No limit is in
//!     entries.
//! K2  Nothing is evicted inside an allocation: a refusal is posted to the bus's thread, and the thread that was
//!     refused waits for a bounded time ([`bus`], notifier.H4).
//! K3  What a listener gave back is measured from outside (resident memory before and after), beside what it
//!     says that it dropped.
//! K4  Values are dropped while none of our locks is held, so they may use the cache that they were in.
//!
//! Sources: expiry by idle time and decoded images that go after a while are Firefox 3's (Pavlov, 2008, "Firefox 3
//! Memory Usage"); chunks and buffers that fill their size class are Nethercote's (2011, "Clownshoes").
//!
//! Not here: the allocator (`alloc`), how figures are shown (`report`).

#![cfg(not(loom))]
/// Compiles and runs the program of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../GUIDE")]
mod documentation {}

pub mod arena;
pub mod buf;
pub mod bus;
pub mod discard;
mod fill;
pub mod measure;
#[cfg(feature = "images")]
pub mod pictures;
mod pin;
#[cfg(test)]
mod pin_tests;
pub mod reporters;
pub mod store;
mod sync;

pub use arena::Arena;
pub use buf::Buf;
pub use bus::{Bus, Level, Listener, Mailbox, Rebuild};
pub use discard::{Discardable, Discards};
pub use measure::HeapBytes;
pub use store::{Budget, Cache, Verdict, Why};
