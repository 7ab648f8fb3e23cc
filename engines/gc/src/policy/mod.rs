//! Free-list policies, which choose the hole of a heap that the next objects go into.
//!
//! ```text
//!   alloc ─► area [top, limit) ── used up ──► FreeList::take(bytes, origin) ─► a whole block is the next area
//!                                                │ none: sweep a page, again; a fresh page
//!   collection ─► reset ─► sweep, the emptiest page first ─► FreeList::free(hole)
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
//! Files: `table` classes · `memory` words · `lists`, `light` the two-level list · `strategies` the search orders ·
//! `others` strategies without classes · `segregated` pages by size · `tight` ours · `space` · `sweep` · `replay` a
//! trace on it · `live` a program on it · `samples`.
//!
//! Not here: marking (the client marks), objects above half a page.

mod lists;
pub mod live;
mod memory;
mod others;
pub mod replay;
mod samples;
mod segregated;
mod space;
mod strategies;
mod sweep;
pub mod table;
mod tight;

#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod model;

pub use space::{Compaction, Figures, Settings, VarSpace};

use memory::Memory;

/// The part of the runtime that requests room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Origin {
    /// Compiled code of the program.
    GeneratedCode = 0,
    /// The runtime.
    #[default]
    Runtime = 1,
    /// The collector, for what it promotes or moves.
    Gc = 2,
}

impl Origin {
    /// All origins.
    pub const ALL: [Origin; 3] = [Origin::GeneratedCode, Origin::Runtime, Origin::Gc];
}

/// A run of free words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Block {
    /// Number of its first word in the space's memory.
    pub word: u32,
    /// The number of its words.
    pub words: u32,
}

/// Why words become free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// A page was just taken.
    Page,
    /// It is the rest of an area that is given up.
    Rest,
    /// Nothing in it was marked.
    Sweep,
}

/// A strategy at work: the free blocks of one space.
pub trait FreeList {
    /// Returns the name of strategy and variant, as on the command line.
    fn name(&self) -> &'static str;

    /// Adds a page to the space. None of it is free yet.
    fn add_page(&mut self, page: u32);

    /// Removes a page, and forgets its blocks.
    fn remove_page(&mut self, page: u32);

    /// Forgets all blocks, since a collection begins.
    fn reset(&mut self);

    /// Takes a free block. Returns what is not kept: this block, or another one that it replaces. Those words are
    /// wasted until the next collection.
    fn free(&mut self, block: Block, why: Freed) -> Option<Block>;

    /// Returns a block of at least `bytes`, taken out of the list.
    fn take(&mut self, bytes: u32, origin: Origin) -> Option<Block>;

    /// Returns the largest request that is certain to succeed after the largest block freed in a page had `bytes`. 0:
    /// none is.
    fn guaranteed(&self, bytes: u32) -> u32;

    /// Returns a page that has a block which may hold `bytes` (by class; it is not looked at).
    fn page_for(&self, bytes: u32) -> Option<u32>;

    /// Returns all blocks, for checks. Cost: a look at each.
    fn blocks(&self) -> Vec<Block>;

    /// Returns the bytes of descriptors for each page.
    fn table_bytes(&self) -> usize;

    /// Returns the sizes in bytes at which groups of objects begin that have areas of their own, so that the blocks of
    /// one do not get the objects of another. None: all objects share the areas.
    fn limits(&self) -> &'static [u32] {
        &[]
    }

    /// Notes that all pages are swept; `live_bytes` of each.
    fn all_swept(&mut self, live_bytes: &dyn Fn(u32) -> u32) {
        let _ = live_bytes;
    }

    /// Reports whether a fresh page is taken only when no page is left to sweep (the study's slow path sweeps one).
    fn sweeps_all(&self) -> bool {
        false
    }
}

type Make = fn(&Memory) -> Box<dyn FreeList>;

/// A strategy that can be chosen by name.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// Its name on the command line.
    pub name: &'static str,
    /// A line that says what it does.
    pub about: &'static str,
    /// Whether it is one of the twelve strategies that the study compared.
    pub studied: bool,
    pub(crate) make: Make,
}

impl core::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}

impl Strategy {
    /// Returns all strategies, the study's first.
    pub fn all() -> &'static [Strategy] {
        strategies::ALL
    }

    /// Returns the strategy with this name.
    pub fn by_name(name: &str) -> Option<Strategy> {
        Strategy::all()
            .iter()
            .copied()
            .find(|strategy| strategy.name == name)
    }
}
