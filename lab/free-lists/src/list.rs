//! The interface of every list of free blocks, whatever its strategy.
//!
//! ```text
//!   space ─► FreeList: free(block) … take(bytes) ─► block
//! ```
//!
//! free_lists.F1 and free_lists.F2 of the crate hold for each.
//!
//! Not here: the strategies.

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
