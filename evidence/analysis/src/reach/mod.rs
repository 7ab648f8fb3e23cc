//! Reachability: what points to each live block at a look, what nothing points to, what only a cycle keeps.
//!
//! ```text
//!   look's words ─► in a live block? ───────────► edge: block → block (graph.rs)
//!                └► in a root (roots.rs)? ─────► root → block
//!                └► in the allocator's memory ──► nothing
//!   roots ─► mark: first along pointers to a block's begin, then along all ─► reached, certainly or likely
//!   the rest ─► strongly connected components ─► leaders: no edge comes in from outside (leaders.rs)
//!            ─► rows by stack: "nothing points to", "only a cycle keeps", each with all that it holds (rows.rs)
//! ```
//!
//! Q1  The analysis is conservative: a word that looks like a pointer is one. A block that is called unreached has no
//!     word in any root or reached block that points into its requested bytes or to their end, with whatever tag in
//!     the upper 16 bits; if it lies below 4 GiB, no aligned half of a word either.
//! Q2  Every unreached block is counted in exactly one row: with the leader whose graph claimed it first, oldest first.
//! Q3  A word counts once, by where it lies: in a live block's requested bytes it belongs to that block; else to a
//!     root; a word in free memory, slop or tables of the allocator counts for nothing.
//! Q4  A look that does not show everything has no verdict: nothing is called unreached.
//! Q5  Nothing recurses, and memory is bounded by live blocks and the words between them: 32 bytes per block, 8 per
//!     word.
//!
//! What it cannot see: pointers that are stored changed (XOR lists; distances of 32 bits from a base that only the
//! program knows), at addresses that are no multiple of 8, in files or other processes. Such blocks are called
//! unreached. And a stale word that happens to lie in a live frame hides a leak.
//!
//! Not here: reading the process (collect `look`), names (symbols), text (view).

mod find;
mod graph;
mod leaders;
mod live;
mod reached;
mod roots;
mod rows;

pub use find::find;
pub use graph::{Graph, Quality, Words};
pub use live::Live;
pub use reached::{Leader, Reach, Reached, Step};
pub use roots::{Maker, Roots, WordAt, region_of};
pub use rows::ReachPass;

#[cfg(test)]
mod tests;
