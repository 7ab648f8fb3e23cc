//! The search orders: which class is searched for a block, and when.
//!
//! ```text
//!   Legacy      surplus class … large ► walk huge ► exact                 (small holes are the last resort)
//!   Many        exact … ► walk last                                       (best fit by class)
//!   ManyFast    2 KB of surplus … last ► (tiny: 256 … 2 KB) ► walk last ► exact …
//!   ManyOrigin  the collector as Many, other origins as ManyFast
//! ```
//!
//! S1  A strategy takes the first block that its order finds, and only sizes, lists and the origin decide.
//! S2  `page_for` is the worst fit of the Legacy family (largest class downwards) and the best fit of the Many family
//!     (the next class upwards; the class itself last, whose head may be too small).
//! S3  With one class, or where the last class is walked, a block that is large enough in the last class is found.
//!
//! Not here: lists (`lists`), strategies without classes (`others`), names (`strategy`).

use core::marker::PhantomData;

use super::list::{Block, FreeList, Freed, Origin};
use super::lists::{Index, Lists, Search, Store};
use super::memory::Memory;
use super::table::{
    FAST, HALF_MANY, LEGACY, MANY, MORE_1K, MORE_2K, MORE_SMALLS, SINGLE, TIGHT, Table,
};

/// A search order over a table.
pub(crate) trait FreeListPolicy {
    const TABLE: &'static Table;
    fn find<L: Search>(lists: &mut L, bytes: u32, origin: Origin) -> Option<Block>;

    /// Returns a page with a block for `bytes` (S2), in the way of the Many family.
    fn page_for<L: Search>(lists: &L, bytes: u32) -> Option<u32> {
        let class = (Self::TABLE.class)(bytes);
        let above = (class + 1..Self::TABLE.len()).find_map(|class| lists.head(class));
        above.or_else(|| lists.head(class))
    }

    /// Returns the largest request that a block of `bytes` is certain to serve.
    fn guaranteed(bytes: u32) -> u32 {
        let table = Self::TABLE;
        let class = (table.class)(bytes);
        match class {
            _ if bytes < table.min[0] => 0,
            // The last class is walked.
            class if class == table.last() => bytes,
            class => table.min[class],
        }
    }
}

/// Returns the worst fit, in the way of the Legacy family (S2).
fn worst_fit<L: Search>(lists: &L, table: &Table, bytes: u32) -> Option<u32> {
    let class = (table.class)(bytes);
    (class..table.len())
        .rev()
        .find_map(|class| lists.head(class))
}

pub(crate) struct Legacy;

impl FreeListPolicy for Legacy {
    const TABLE: &'static Table = &LEGACY;

    fn find<L: Search>(lists: &mut L, bytes: u32, _: Origin) -> Option<Block> {
        const HUGE: usize = 5;
        // A class above the request's own: the rest of the block will serve the next requests.
        let fast = match bytes {
            0..=248 => 2,
            249..=2040 => 3,
            2041..=16_376 => 4,
            _ => HUGE,
        };
        let surplus = lists.upwards(fast, HUGE, bytes);
        if let Some(block) = surplus.or_else(|| lists.walk(HUGE, bytes)) {
            return Some(block);
        }
        if fast == HUGE {
            return None;
        }
        let class = (LEGACY.class)(bytes);
        if class == 0
            && let Some(block) = lists.try_top(1, bytes)
        {
            return Some(block);
        }
        lists.try_top(class, bytes)
    }

    fn page_for<L: Search>(lists: &L, bytes: u32) -> Option<u32> {
        worst_fit(lists, Self::TABLE, bytes)
    }

    /// Returns the largest request whose fast class is at most the block's; the tiniest classes guarantee nothing.
    fn guaranteed(bytes: u32) -> u32 {
        match (LEGACY.class)(bytes) {
            _ if bytes < 24 => 0,
            0 => 0,
            1 => 80,
            2 => 248,
            3 => 2040,
            4 => 16_376,
            _ => bytes,
        }
    }
}

pub(crate) struct MoreSmalls;

impl FreeListPolicy for MoreSmalls {
    const TABLE: &'static Table = &MORE_SMALLS;

    fn find<L: Search>(lists: &mut L, bytes: u32, _: Origin) -> Option<Block> {
        const LAST: usize = 32;
        let fast = match bytes {
            0..=248 => 29,
            249..=2048 => 30,
            2049..=16_376 => 31,
            _ => LAST,
        };
        lists
            .upwards(fast, LAST, bytes)
            .or_else(|| lists.walk(LAST, bytes))
            .or_else(|| lists.upwards((MORE_SMALLS.class)(bytes), fast, bytes))
    }
}

pub(crate) struct FastAlloc;

impl FreeListPolicy for FastAlloc {
    const TABLE: &'static Table = &FAST;

    fn find<L: Search>(lists: &mut L, bytes: u32, _: Origin) -> Option<Block> {
        let class = (FAST.class)(bytes);
        (class..FAST.len())
            .rev()
            .find_map(|class| lists.try_top(class, bytes))
    }

    fn page_for<L: Search>(lists: &L, bytes: u32) -> Option<u32> {
        worst_fit(lists, Self::TABLE, bytes)
    }

    fn guaranteed(bytes: u32) -> u32 {
        match bytes {
            0..2040 => 0,
            // The last class is not walked: only its lower bound is certain.
            bytes => FAST.min[(FAST.class)(bytes)],
        }
    }
}

/// Takes the best fit by class.
pub(crate) fn best_fit<L: Search>(lists: &mut L, table: &Table, bytes: u32) -> Option<Block> {
    let last = table.last();
    lists
        .upwards((table.class)(bytes), last, bytes)
        .or_else(|| lists.walk(last, bytes))
}

/// The part of its table that a fast order needs.
struct Fast {
    table: &'static Table,
    /// The classes of 256 and 2048 bytes.
    of_256: usize,
    of_2048: usize,
    /// The class to begin with for more than 128 bytes.
    first: fn(u32) -> usize,
}

/// Searches in four steps A, B, C, D: with surplus; for tiny requests with a smaller one; the last class; exactly.
fn fast_fit<L: Search>(lists: &mut L, fast: &Fast, bytes: u32) -> Option<Block> {
    let last = fast.table.last();
    let tiny = bytes <= 128;
    let first = if tiny {
        fast.of_2048
    } else {
        (fast.first)(bytes)
    };
    // A: only the top of the last class.
    if let Some(block) = lists.upwards(first, last + 1, bytes) {
        return Some(block);
    }
    // B.
    if tiny && let Some(block) = lists.upwards(fast.of_256, fast.of_2048, bytes) {
        return Some(block);
    }
    // C.
    if let Some(block) = lists.walk(last, bytes) {
        return Some(block);
    }
    // D: the classes that A and B have not looked at.
    let until = if tiny { fast.of_256 } else { first };
    lists.upwards((fast.table.class)(bytes), until, bytes)
}

/// Searches in the steps A, B, C, and D for requests above 128 bytes only.
fn lean_fit<L: Search>(lists: &mut L, fast: &Fast, bytes: u32) -> Option<Block> {
    if bytes > 128 {
        return fast_fit(lists, fast, bytes);
    }
    let last = fast.table.last();
    lists
        .upwards(fast.of_2048, last + 1, bytes)
        .or_else(|| lists.upwards(fast.of_256, fast.of_2048, bytes))
        .or_else(|| lists.walk(last, bytes))
}

/// The surplus that a request above 128 bytes asks for: 2048 - 128.
const SURPLUS: u32 = 1920;

/// Returns the first class from that of 2 KB on which is certain to leave the surplus.
fn with_surplus(table: &'static Table, of_2048: usize, bytes: u32) -> usize {
    let last = table.last();
    if bytes >= table.min[last] {
        return last;
    }
    let enough = |class: &usize| table.min[*class] >= bytes + SURPLUS;
    (of_2048..last).find(enough).unwrap_or(last)
}

static FAST_MANY: Fast = Fast {
    table: &MANY,
    of_256: 29,
    of_2048: 35,
    first: |bytes| with_surplus(&MANY, 35, bytes),
};

static FAST_HALF: Fast = Fast {
    table: &HALF_MANY,
    of_256: 15,
    of_2048: 18,
    first: |bytes| with_surplus(&HALF_MANY, 18, bytes),
};

static FAST_2K: Fast = Fast {
    table: &MORE_2K,
    of_256: 29,
    of_2048: 36,
    first: |bytes| ((MORE_2K.class)(bytes + 2048) + 1).min(99),
};

macro_rules! best_fits {
    ($($name:ident: $table:expr;)*) => {$(
        pub(crate) struct $name;

        impl FreeListPolicy for $name {
            const TABLE: &'static Table = $table;

            fn find<L: Search>(lists: &mut L, bytes: u32, _: Origin) -> Option<Block> {
                best_fit(lists, $table, bytes)
            }
        }
    )*};
}

best_fits! {
    Many: &MANY;
    HalfMany: &HALF_MANY;
    More1k: &MORE_1K;
    More2k: &MORE_2K;
    TightFit: &TIGHT;
    // The one class is the last: it is walked.
    SingleList: &SINGLE;
}

macro_rules! fast_fits {
    ($($name:ident: $fast:expr;)*) => {$(
        pub(crate) struct $name;

        impl FreeListPolicy for $name {
            const TABLE: &'static Table = $fast.table;

            fn find<L: Search>(lists: &mut L, bytes: u32, _: Origin) -> Option<Block> {
                fast_fit(lists, &$fast, bytes)
            }
        }
    )*};
}

fast_fits! {
    ManyFast: FAST_MANY;
    HalfManyFast: FAST_HALF;
    More2kFast: FAST_2K;
}

pub(crate) struct ManyOrigin;

impl FreeListPolicy for ManyOrigin {
    const TABLE: &'static Table = &MANY;

    fn find<L: Search>(lists: &mut L, bytes: u32, origin: Origin) -> Option<Block> {
        match origin {
            Origin::Gc => best_fit(lists, &MANY, bytes),
            Origin::GeneratedCode | Origin::Runtime => fast_fit(lists, &FAST_MANY, bytes),
        }
    }
}

/// As `ManyOrigin`, but small requests of others than the collector leave exact holes alone: the collector will fill them.
pub(crate) struct ManyLean;

impl FreeListPolicy for ManyLean {
    const TABLE: &'static Table = &MANY;

    fn find<L: Search>(lists: &mut L, bytes: u32, origin: Origin) -> Option<Block> {
        match origin {
            Origin::Gc => best_fit(lists, &MANY, bytes),
            Origin::GeneratedCode | Origin::Runtime => lean_fit(lists, &FAST_MANY, bytes),
        }
    }
}

/// Lists with a search order.
pub(crate) struct Listed<P, S, I> {
    name: &'static str,
    pub(crate) lists: Lists<S, I>,
    order: PhantomData<P>,
}

impl<P: FreeListPolicy, S: Store, I: Index> Listed<P, S, I> {
    pub(crate) fn new(name: &'static str, memory: &Memory) -> Self {
        Listed {
            name,
            lists: Lists::new(memory, P::TABLE),
            order: PhantomData,
        }
    }
}

impl<P: FreeListPolicy, S: Store, I: Index> FreeList for Listed<P, S, I> {
    fn name(&self) -> &'static str {
        self.name
    }
    fn add_page(&mut self, page: u32) {
        self.lists.add_page(page);
    }
    fn remove_page(&mut self, page: u32) {
        self.lists.remove_page(page);
    }
    fn reset(&mut self) {
        self.lists.reset();
    }
    fn free(&mut self, block: Block, _: Freed) -> Option<Block> {
        self.lists.free(block)
    }
    fn take(&mut self, bytes: u32, origin: Origin) -> Option<Block> {
        P::find(&mut self.lists, bytes, origin)
    }
    fn guaranteed(&self, bytes: u32) -> u32 {
        P::guaranteed(bytes)
    }
    fn page_for(&self, bytes: u32) -> Option<u32> {
        P::page_for(&self.lists, bytes)
    }
    fn blocks(&self) -> Vec<Block> {
        self.lists.blocks()
    }
    fn table_bytes(&self) -> usize {
        self.lists.table_bytes()
    }
}
