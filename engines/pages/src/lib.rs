//! Runs of OS pages, which the allocator's memory is taken from and given back to.
//!
//! ```text
//!   BASE - 1.5 GiB         BASE - 512 MiB        BASE                            BASE + 512 GiB
//!   | META ───────────►    | MAP ───────────►    | HEAP ───────────────────────────────────► |
//!   | descriptors,         | a u32 for each      | pages of 4 KiB, grown at the end           |
//!   | thread heaps         | page of HEAP        |                                            |
//!
//!   HEAP   │ used │ dirty free run  │ used │ clean │ dirty │ used … │ grown later …
//!   MAP    │ d  d │ a   0   0   a   │ e  0 │ b   b │ c   c │ f  f   │ 0
//!            ▲      ▲           ▲     ▲
//!            │      └───────────┴─ boundary tags: what lies beside a run is one load away
//!            └─ the caller's own descriptors: every page of a small span, the first of a large run
//! ```
//!
//! A page's entry in MAP is the offset from META of the descriptor of what the page belongs to, so
//! `free` finds it with one load, and a run that is given back finds its neighbours with two. Split
//! and coalesce take constant time whatever the heap holds. The idea is jemalloc's, whose runs were
//! kept in red-black trees until a map of pages took their place; Jason Evans told why in 2008. What
//! the trees would cost here is measured by `cargo bench -p skinflint-pages` (`benches/runs`): the
//! same requests of real programs, answered by this pool, by a red-black tree and by a treap.
//!
//! P1  Every page of HEAP below [`Region::heap_bytes`] has its entry in mapped memory, and META is mapped at offset 0,
//!     so any address below the limit can be looked up. At offset 0 of META lie 64 zero bytes: a descriptor of kind
//!     [`KIND_NONE`] without an owner.
//! P2  Descriptors are never unmapped and never move; one that is free reads as kind [`KIND_NONE`]
//!     and owner 0. Its first 64 bytes begin with a [`Header`], whatever it describes.
//! P3  A page is used, dirty, clean, claimed, or a hole that is not ours. A free run's descriptor
//!     stands at the entries of its first and its last page, and entries between them are 0.
//! P4  No two neighbouring runs of a node are both dirty or both clean.
//! P5  A clean page reads as zero.
//! P6  The holder of the `Pool` holds its lock: no other code writes entries of MAP, except those of a run in use,
//!     which are its owner's.
//! P7  There is a descriptor for everything that is given back, whole or in parts: none is requested from the kernel at
//!     that moment, which may be the moment when the kernel has nothing. (`units` keeps them. In a heap of more than
//!     512 MiB the kernel would have to refuse tens of thousands of times in a row before a run that joins no other
//!     were lost, and counted.)
//! P8  A refusal of the kernel leaves everything as it was.
//!
//! Files: [`region`] addresses · `units` descriptors · `index` where runs are found · `buckets` runs by length · [`pool`] take, give and extend ·
//! `claim` what is purged and when · `check` the invariants by brute force · [`purge`] the system call that gives pages
//! back · [`cold`] pages in use that are not needed soon · `populate` the one that makes pages resident · `nodes`,
//! `by_node` memory nodes apart · `walk` runs listed one by one · [`os`] mapping, and its refusals in tests.
//!
//! Not here: blocks within pages, threads, locks, and when to purge (`alloc`).
#![cfg_attr(not(test), no_std)]

#[cfg(not(feature = "bench-trees"))]
mod buckets;
mod by_node;
mod check;
mod claim;
pub mod cold;
mod index;
mod nodes;
pub mod os;
pub mod pool;
pub mod populate;
pub mod purge;
pub mod region;
#[cfg(test)]
mod tests;
mod units;
mod walk;

use core::sync::atomic::{AtomicU8, AtomicU32};

pub use nodes::NODES_MAX;
pub use pool::{Pool, Run};
pub use region::{Options, Region};
pub use walk::Free;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// log2 of [`PAGE`].
pub const PAGE_SHIFT: u32 = 12;
/// Address space set aside for META.
pub const META_SPAN: usize = 1 << 30;
/// Address space set aside for MAP.
pub const MAP_SPAN: usize = 512 << 20;
/// The most pages that HEAP may have.
pub const MAX_PAGES: u32 = 1 << 27;
/// Bytes of a unit, in which descriptors are measured.
pub const UNIT: usize = 64;

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

const _: () = assert!(MAX_PAGES as usize * size_of::<AtomicU32>() == MAP_SPAN);

/// The kind of a descriptor that describes nothing.
pub const KIND_NONE: u8 = 0;
/// The kind of a free run's descriptor. All other kinds are the caller's.
pub const KIND_FREE: u8 = 1;

/// The owner of a free run's descriptor: neither a heap nor "no heap" (0), so that a pointer into it is no thread's
/// block, not even that of a thread without a heap.
pub const OWNER_NONE: u32 = 1;

/// The part of any descriptor that may be read before its kind is known (P2).
#[repr(C, align(64))]
pub struct Header {
    /// Address of the first page.
    pub start: usize,
    /// Fields of the kind.
    pub own: [u32; 2],
    /// The thread heap that a small span belongs to; [`OWNER_NONE`] in a free run.
    pub owner: AtomicU32,
    /// [`KIND_NONE`], [`KIND_FREE`], or one of the caller's kinds.
    pub kind: AtomicU8,
    /// A field of the kind.
    pub state: u8,
    /// Fields of the kind.
    pub rest: [u8; 42],
}

const _: () = assert!(size_of::<Header>() == UNIT);
const _: () = assert!(core::mem::offset_of!(Header, owner) == 16);
const _: () = assert!(core::mem::offset_of!(Header, kind) == 20);
