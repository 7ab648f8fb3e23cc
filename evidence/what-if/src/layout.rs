//! The interface of a layout: where a policy puts blocks, and nothing else.
//!
//! ```text
//!   Model ──acquire, in_place, release──► dyn Layout: SpanLayout (spans.rs) │ ChunkLayout (chunks.rs) │ yours
//!     └───────────── block, unblock, resize ──► Pages ◄── run_taken, run_freed ──┘
//! ```
//!
//! Y1  A layout decides addresses in a space of its own that begins at 0. It never touches pages by itself: the model
//!     does that for the bytes that a block requested.
//! Y2  Live blocks never overlap, and each lies in runs that the layout has taken (`Pages::run_taken`) and not freed.
//!     A run is freed only when no live block lies in it.
//! Y3  The model calls `Pages::unblock` before `release`, so that Y2 can be kept there.
//! Y4  The memory of a layout is bounded by its live blocks and spans, never by calls.
//!
//! A free-list policy of another heap (first fit, a linear allocation area, size-segregated lists …) is
//! compared with these on the same trace by implementing [`Layout`] and handing it to
//! [`Simulation::add`](crate::Simulation::add). Not here: counting pages (`pages.rs`).

use crate::mesh::Mesh;
use crate::pages::Pages;

/// The address of a block in the layout's own space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(pub u64);

impl Place {
    /// A mapping of its own: it shares no page with other blocks, and goes back to the OS when it is freed.
    pub const DIRECT: Place = Place(u64::MAX);

    /// Reports whether it is a mapping of its own.
    pub fn is_direct(self) -> bool {
        self == Place::DIRECT
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Requested bytes; at least 1, since a block of 0 bytes needs an address too.
    pub size: u64,
    /// The heap of the thread that asks: dense, and taken over by a new thread when its thread has ended. Always 0 if
    /// the policy has one heap for all.
    pub heap: u32,
}

/// Decides where blocks lie.
pub trait Layout {
    /// Finds a place for a block.
    fn acquire(&mut self, ask: Ask, pages: &mut Pages) -> Place;

    /// Takes back a block whose pages have already been left (Y3). `size` is what it last requested.
    fn release(&mut self, place: Place, size: u64, pages: &mut Pages);

    /// Returns whether the block can go on living at its place with another size; if so, the change is made. A direct
    /// mapping is resized by `mremap`, if the layout returns true.
    fn in_place(&mut self, place: Place, old: u64, new: u64, pages: &mut Pages) -> bool;

    /// Reports whether a block that has to move takes its pages along (`mremap`), so that old and new are never
    /// resident together.
    fn moves_pages(&self, _old: u64, _new: u64) -> bool {
        false
    }

    /// Returns the bytes that the block may use.
    fn usable(&self, place: Place, size: u64) -> u64;

    /// Returns the spans that hold at least one live block; 0 for a layout without spans.
    fn spans(&self) -> u64 {
        0
    }

    /// Returns the bytes that the allocator would describe its spans and pages with, where that is known
    /// ([`Own`](crate::policy::Own)).
    fn descriptor_bytes(&self) -> u64 {
        0
    }

    /// Returns what meshing could save now; `None` for a layout whose blocks have no fixed slots.
    fn mesh(&self, _pages: &Pages) -> Option<Mesh> {
        None
    }

    /// Returns the work of the next [`Layout::mesh`], in looks at a pair of spans: bounded by 32 for each span.
    fn mesh_work(&self) -> u64 {
        0
    }

    /// Returns the bytes that the layout's own tables hold.
    fn table_bytes(&self) -> usize;
}
