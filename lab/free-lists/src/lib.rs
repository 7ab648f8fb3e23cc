//! Free-list policies, which choose the hole of a heap that the next objects go into.
//!
//! ```text
//!   alloc ─► area [top, limit) ── used up ──► FreeList::take(bytes, origin) ─► a whole block is the next area
//!                                                │ none: sweep a page, again; a fresh page
//!   collection ─► reset ─► sweep, page by page ─► FreeList::free(hole)
//!
//!   lists: classes × pages     strategies: which class is asked when     space: pages, area, sweeping, moving
//! ```
//!
//! The setting is V8's old space: pages of 256 KiB, objects of any size up to half a page side by side, and a bump
//! pointer that gets whole free blocks. The choice of the block decides both how often the slow path runs and how much
//! of the pages is of use. The strategies are those of Mercadier's study of V8's lists (2019, with Payer and Lippautz),
//! implemented from its description and from what shipped, not taken from its code. `tight` is ours.
//!
//! F1  A block is free memory of one page; blocks of a list do not overlap, and `take` unlinks what it returns.
//! F2  A list reports what it does not keep: words given to `free` are either in the list or counted as wasted, so that
//!     for every page wasted + free + allocated = its size (asserted by [`VarSpace::check`]).
//! F3  Variants that differ only in how empty classes are skipped (plain, cached, mask) take the same blocks.
//! F4  A space and its list belong to one thread.
//!
//! Files: `table` classes · `memory` words · `list` what every list can do · `lists` the two-level list · `strategies`
//! the search orders · `others` strategies without classes · `segregated` pages by size · `tight` ours · `strategy` all
//! of them by name · `space` · `sweep` · `replay` a trace on it · `nursery` a young
//! generation before it · `live` a program on it · `samples` · `trials` all
//! policies on traces and programs, in tables.
//!
//! Not here: marking (the client marks), objects above half a page.

mod list;
mod lists;
pub mod live;
mod memory;
pub mod nursery;
mod others;
pub mod replay;
mod samples;
mod segregated;
mod space;
mod strategies;
mod strategy;
mod sweep;
pub mod table;
mod tight;
#[cfg(feature = "trials")]
pub mod trials;

#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod model;

pub use list::{Block, FreeList, Freed, Origin};
pub use space::{Compaction, Figures, Settings, SweepOrder, VarSpace};
pub use strategy::Strategy;
