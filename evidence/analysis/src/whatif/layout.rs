//! The seam: where a policy puts blocks, and nothing else.
//!
//! ```text
//!   Model ──acquire, in_place, release──► dyn Layout: SpanLayout (spans.rs) │ ChunkLayout (chunks.rs) │ yours
//!     └───────────── block, unblock, resize ──► Pages ◄── run_taken, run_freed ──┘
//! ```
//!
//! Y1  A layout decides addresses in a space of its own that begins at 0. It never touches pages by
//!     itself: the model does that for the bytes a block asked for.
//! Y2  Live blocks never overlap, and each lies in runs that the layout has taken (`Pages::run_taken`)
//!     and not freed. A run is freed only when no live block lies in it.
//! Y3  The model calls `Pages::unblock` before `release`, so that Y2 can be kept there.
//! Y4  Memory of a layout is bounded by its live blocks and spans, never by calls.
//!
//! A free-list policy of another heap (first fit, a linear allocation area, size-segregated lists …) is
//! compared with these on the same trace by implementing [`Layout`] and handing it to
//! [`Simulation::add`](super::Simulation::add). Not here: counting pages (`pages.rs`).

use super::mesh::Mesh;
use super::pages::Pages;

/// Address of a block in the layout's own space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(pub u64);

impl Place {
    /// A mapping of its own: it shares no page with anything, and goes back to the OS when it is freed.
    pub const DIRECT: Place = Place(u64::MAX);

    /// Whether it is a mapping of its own.
    pub fn is_direct(self) -> bool {
        self == Place::DIRECT
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Bytes; at least 1, since a block of 0 bytes needs an address too.
    pub size: u64,
    /// Heap of the thread that asks: dense, and taken over by a new thread when its thread has ended.
    /// Always 0 where the policy has one heap for all.
    pub heap: u32,
}

/// Where blocks lie.
pub trait Layout {
    /// Finds a place for a block.
    fn acquire(&mut self, ask: Ask, pages: &mut Pages) -> Place;

    /// Takes a block back, whose pages have been left already (Y3). `size` is what it asked for last.
    fn release(&mut self, place: Place, size: u64, pages: &mut Pages);

    /// Whether the block can go on living at its place with another size; if so it is settled. A direct
    /// mapping is resized by `mremap`, if the layout says yes.
    fn in_place(&mut self, place: Place, old: u64, new: u64, pages: &mut Pages) -> bool;

    /// Whether a block that has to move takes its pages along (`mremap`), so that old and new are never
    /// resident together.
    fn moves_pages(&self, _old: u64, _new: u64) -> bool {
        false
    }

    /// Bytes that the block may use.
    fn usable(&self, place: Place, size: u64) -> u64;

    /// Spans that hold at least one live block; 0 for a layout without spans.
    fn spans(&self) -> u64 {
        0
    }

    /// What meshing could save now; `None` for a layout whose blocks have no fixed slots.
    fn mesh(&self, _pages: &Pages) -> Option<Mesh> {
        None
    }

    /// Work of the next [`Layout::mesh`], in looks at a pair of spans: bounded by 32 for each span.
    fn mesh_work(&self) -> u64 {
        0
    }

    /// Bytes that the layout's own tables hold.
    fn table_bytes(&self) -> usize;
}
