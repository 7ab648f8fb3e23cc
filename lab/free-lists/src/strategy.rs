//! All strategies, by name.
//!
//! ```text
//!   name ─► Strategy { about, make } ─► make(memory) ─► Box<dyn FreeList>
//! ```
//!
//! Not here: what each of them does (`strategies`, `others`, `segregated`, `tight`).

use super::list::FreeList;
use super::lists::{Cached, Heavy, Light, Narrow, Plain};
use super::memory::Memory;
use super::others::{FullPages, MapSpace, Tuned};
use super::segregated::{ONE, SIX, Segregated, TWO};
use super::strategies::{
    FastAlloc, HalfMany, HalfManyFast, Legacy, Listed, Many, ManyFast, ManyLean, ManyOrigin,
    More1k, More2k, More2kFast, MoreSmalls, SingleList, TightFit,
};
use super::tight::Tight;

pub(crate) type Make = fn(&Memory) -> Box<dyn FreeList>;

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
        ALL
    }

    /// Returns the strategy with this name.
    pub fn by_name(name: &str) -> Option<Strategy> {
        Strategy::all()
            .iter()
            .copied()
            .find(|strategy| strategy.name == name)
    }
}

macro_rules! strategies {
    ($($name:literal $studied:literal $policy:ty, $store:ty, $index:ty, $about:literal;)*) => {
        &[
            $(Strategy {
                name: $name,
                about: $about,
                studied: $studied,
                make: |memory| Box::new(Listed::<$policy, $store, $index>::new($name, memory)),
            },)*
            Strategy {
                name: "full-pages",
                about: "fresh pages only; what is swept is waste: the bound of speed and of memory",
                studied: true,
                make: |_| Box::new(FullPages::new()),
            },
            Strategy {
                name: "map-space",
                about: "one list for objects of one size, the fullest page first",
                studied: false,
                make: |memory| Box::new(MapSpace::new(memory)),
            },
            Strategy {
                name: "tuned",
                about: "many-fast for all while waste is low, many while it is high, decided at each collection",
                studied: false,
                make: |memory| Box::new(Tuned::new(memory)),
            },
            Strategy {
                name: "segregated",
                about: "pages by six groups of sizes, best fit within",
                studied: false,
                make: |memory| Box::new(Segregated::<Many>::new("segregated", memory, &SIX)),
            },
            Strategy {
                name: "segregated-legacy",
                about: "pages by six groups of sizes, legacy within",
                studied: false,
                make: |memory| Box::new(Segregated::<Legacy>::new("segregated-legacy", memory, &SIX)),
            },
            Strategy {
                name: "segregated-fast",
                about: "pages by six groups of sizes, many-fast within",
                studied: false,
                make: |memory| Box::new(Segregated::<ManyFast>::new("segregated-fast", memory, &SIX)),
            },
            Strategy {
                name: "tight",
                about: "ours: best fit from 16 bytes, pages of their own from 2 KB, all swept before a page is added",
                studied: false,
                make: |memory| Box::new(Tight::new(memory)),
            },
            Strategy {
                name: "tight-paged",
                about: "tight as it was first: pages linked by class, 100 classes",
                studied: false,
                make: |memory| Box::new(Segregated::<TightFit>::new("tight-paged", memory, &TWO)),
            },
            Strategy {
                name: "tight-mixed",
                about: "tight without pages of their own",
                studied: false,
                make: |memory| Box::new(Segregated::<TightFit>::new("tight-mixed", memory, &ONE)),
            },
        ]
    };
}

static ALL: &[Strategy] = strategies! {
    "legacy" true Legacy, Heavy, Plain, "V8 until 2019: six classes, surplus first";
    "legacy-more-smalls" true MoreSmalls, Heavy, Plain, "Legacy with a class for each size up to 248";
    "fast-alloc" true FastAlloc, Heavy, Plain, "three classes, the largest first; below 2040 bytes all is waste";
    "many" true Many, Heavy, Plain, "46 classes, best fit";
    "many-fast" true ManyFast, Heavy, Plain, "46 classes, 2 KB of surplus first";
    "half-many" true HalfMany, Heavy, Plain, "24 classes, best fit";
    "half-many-fast" true HalfManyFast, Heavy, Plain, "24 classes, 2 KB of surplus first";
    "more-1k" true More1k, Heavy, Plain, "99 classes, best fit";
    "more-2k" true More2k, Heavy, Plain, "100 classes, best fit";
    "more-2k-fast" true More2kFast, Heavy, Plain, "100 classes, 2 KB of surplus first";
    "many-origin" true ManyOrigin, Heavy, Plain, "the collector as many, all others as many-fast: what V8 shipped";
    "many-cached" false Many, Heavy, Cached, "many, empty classes skipped by a table";
    "many-fast-cached" false ManyFast, Heavy, Cached, "many-fast, cached";
    "half-many-cached" false HalfMany, Heavy, Cached, "half-many, cached";
    "half-many-fast-cached" false HalfManyFast, Heavy, Cached, "half-many-fast, cached";
    "more-1k-cached" false More1k, Heavy, Cached, "more-1k, cached";
    "more-2k-cached" false More2k, Heavy, Cached, "more-2k, cached";
    "more-2k-fast-cached" false More2kFast, Heavy, Cached, "more-2k-fast, cached";
    "many-origin-cached" false ManyOrigin, Heavy, Cached, "many-origin, cached";
    "many-mask" false Many, Heavy, Narrow, "many, empty classes skipped by a bit mask";
    "many-origin-mask" false ManyOrigin, Heavy, Narrow, "many-origin, by a bit mask";
    "many-light" false Many, Light, Narrow, "many, by a bit mask, with descriptors of 4 bytes";
    "many-origin-light" false ManyOrigin, Light, Narrow, "many-origin, by a bit mask, with descriptors of 4 bytes";
    "many-origin-lean" false ManyLean, Heavy, Narrow, "many-origin, but small requests of the mutator leave holes below 256 bytes to the collector";
    "single-list" false SingleList, Heavy, Plain, "one list, first fit";
};
