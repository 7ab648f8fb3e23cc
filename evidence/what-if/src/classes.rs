//! Size classes and span lengths of a simulated heap.
//!
//! ```text
//!   size ──table──► class ──length──► pages of its next span
//!            └── earned: a multiple of 16 whose live slop passes WORTH_BYTES gets a class of its own
//! ```
//!
//! C1  `class_of(n)` is at least n; an entry changes only to a smaller class. Classes are never removed, so
//!     the class of a span stays what it was.
//! C2  A span has 1 to [`SPAN_PAGES_MAX`] pages and room for at least one block.
//!
//! Not here: which span a block gets (`spans.rs`).

use skinflint_sizes::Scheme;
use skinflint_sizes::spans::{
    PAGE_BYTES, SLOTS_MAX, SMALL_MAX, SPAN_PAGES_MAX, WORTH_BYTES, pages_for, saved_by_earning,
};

use crate::policy::{Classes, Length};

/// The most classes: those of the largest scheme, and as many earned ones as the allocator may have.
const CLASSES_MAX: usize = 2048;
const STEP: u64 = 16;

/// The state of a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub size: u32,
    earned: bool,
    /// The pages in its spans, and the bytes of its live blocks.
    pub span_pages: u64,
    pub live_bytes: u64,
}

/// The table of a policy.
pub(crate) struct Table {
    classes: Vec<Class>,
    /// The class by size.
    of: Vec<u16>,
    /// Live blocks by multiple of 16; empty if none can be earned.
    live: Vec<u32>,
    /// Multiples of 16 that were found not worth a class.
    refused: Vec<bool>,
    scheme: &'static Scheme,
    small_max: u64,
    length: Length,
}

impl Table {
    pub(crate) fn new(classes: &Classes, length: Length) -> Table {
        let scheme = classes.scheme();
        let exact = matches!(classes, Classes::Exact16);
        let small = |size: u64| {
            exact || scheme.kind(scheme.usable(size)) == skinflint_sizes::ClassKind::Small
        };
        let usable = |size: u64| match exact {
            true => size.next_multiple_of(STEP),
            false => scheme.usable(size),
        };
        let (mut table, mut of) = (Vec::<Class>::new(), vec![0u16]);
        let mut small_max = 0;
        for size in 1..=u64::from(SMALL_MAX) {
            let given = usable(size);
            if !small(size) || given > u64::from(SMALL_MAX) {
                break;
            }
            if table.last().is_none_or(|last| u64::from(last.size) < given) {
                table.push(Class::new(given as u32, false));
            }
            of.push((table.len() - 1) as u16);
            small_max = size;
        }
        let steps = match classes {
            Classes::Earned(_) => (small_max / STEP + 1) as usize,
            _ => 0,
        };
        Table {
            classes: table,
            of,
            live: vec![0; steps],
            refused: vec![false; steps],
            scheme,
            small_max,
            length,
        }
    }

    /// Returns the class of a small size; `None` for a large one.
    pub(crate) fn class_of(&self, size: u64) -> Option<u32> {
        (size <= self.small_max).then(|| u32::from(self.of[size as usize]))
    }

    pub(crate) fn get(&self, class: u32) -> Class {
        self.classes[class as usize]
    }

    /// Returns what a large request is given: whole pages.
    pub(crate) fn large(&self, size: u64) -> u64 {
        self.scheme.usable(size)
    }

    /// Notes that a small block of `size` came into `class`.
    pub(crate) fn came(&mut self, size: u64, class: u32) {
        self.classes[class as usize].live_bytes += u64::from(self.classes[class as usize].size);
        let step = size.div_ceil(STEP) as usize;
        if let Some(live) = self.live.get_mut(step) {
            *live += 1;
            let own = step as u64 * STEP;
            // This is what the size would be given now; older spans may be of larger classes.
            let given = u64::from(self.classes[usize::from(self.of[size as usize])].size);
            if given.saturating_sub(own) * u64::from(*live) > WORTH_BYTES && !self.refused[step] {
                self.refused[step] = !self.earn(own as u32, given as u32);
            }
        }
    }

    /// Notes that a small block of `size` left `class`.
    pub(crate) fn went(&mut self, size: u64, class: u32) {
        self.classes[class as usize].live_bytes -= u64::from(self.classes[class as usize].size);
        if let Some(live) = self.live.get_mut(size.div_ceil(STEP) as usize) {
            *live -= 1;
        }
    }

    /// Earns a class as the allocator does (engines/alloc/src/mechanism/class.rs, `earn`): not if the tails of odd spans eat
    /// half of what the class saves. Returns whether there is one now.
    #[cold]
    fn earn(&mut self, own: u32, given: u32) -> bool {
        let saved = saved_by_earning(own, 1024) / 1024;
        if self.classes.len() >= CLASSES_MAX || saved * 2 < u64::from(given - own) {
            return false;
        }
        let class = self.classes.len() as u16;
        self.classes.push(Class::new(own, true));
        for size in (1..=own as usize).rev() {
            if self.classes[usize::from(self.of[size])].size <= own {
                break;
            }
            self.of[size] = class;
        }
        true
    }

    /// Returns the pages of the next span of a class (C2). `span_pages` counts those it has.
    pub(crate) fn pages(&mut self, class: u32) -> u32 {
        let one = self.classes[class as usize];
        let pages = match self.length {
            Length::Fixed(pages) => pages.max(one.size.div_ceil(PAGE_BYTES)),
            Length::Tiers => tiers(one.size, one.span_pages),
            Length::Share => pages_for(one.size, one.live_bytes, one.earned),
            Length::NoTail => no_tail(one.size),
        };
        let pages = pages.clamp(1, SPAN_PAGES_MAX);
        self.classes[class as usize].span_pages += u64::from(pages);
        pages
    }

    pub(crate) fn span_went(&mut self, class: u32, pages: u32) {
        self.classes[class as usize].span_pages -= u64::from(pages);
    }

    pub(crate) fn table_bytes(&self) -> usize {
        self.classes.capacity() * size_of::<Class>() + self.of.capacity() * 2 + self.live.len() * 5
    }
}

impl Class {
    fn new(size: u32, earned: bool) -> Class {
        Class {
            size,
            earned,
            span_pages: 0,
            live_bytes: 0,
        }
    }
}

/// Returns the pages by the allocator's own rule. It is written a second time because the analysis may not depend on
/// an allocator: `pages_for` and `span_pages` in engines/alloc/src/mechanism/class.rs are the first.
fn tiers(size: u32, population: u64) -> u32 {
    let target = match population {
        0..=15 if size <= 512 => 1,
        0..=15 => 2,
        16..=63 => 4,
        64..=255 => 8,
        _ => 16,
    };
    let least = size.div_ceil(PAGE_BYTES);
    let fits = |pages: &u32| pages * PAGE_BYTES / size <= SLOTS_MAX;
    let waste = |pages: &u32| {
        let bytes = pages * PAGE_BYTES;
        bytes % size * 1024 / bytes
    };
    let from = target.max(least);
    let candidates = || (from..=SPAN_PAGES_MAX).filter(fits);
    candidates()
        .find(|pages| waste(pages) <= 32)
        .or_else(|| candidates().min_by_key(waste))
        .unwrap_or_else(|| (SLOTS_MAX * size / PAGE_BYTES).max(1))
}

/// Returns the shortest span with the least tail, as a share of itself.
fn no_tail(size: u32) -> u32 {
    let least = size.div_ceil(PAGE_BYTES);
    let tail = |pages: &u32| u64::from(pages * PAGE_BYTES % size) * 720_720 / u64::from(*pages);
    (least..=SPAN_PAGES_MAX).min_by_key(tail).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skinflint() -> &'static Scheme {
        Scheme::by_name("skinflint").expect("known")
    }

    #[test]
    fn lengths_by_hand() {
        // 1 page of 112 has a tail of 64 (1.6 %); 2 pages of 3,584 leave 1,024 (12.5 %), 7 leave none.
        assert_eq!(tiers(112, 0), 1);
        assert_eq!(tiers(3584, 0), 7);
        // 16 bytes fill 1,024 slots at 4 pages, however many there are.
        assert_eq!([tiers(16, 15), tiers(16, 16), tiers(16, 1000)], [1, 4, 4]);
        assert_eq!([tiers(64, 63), tiers(64, 64), tiers(64, 256)], [4, 8, 16]);
        // 80 = 5 pages without a tail; 14,336 = 3.5 pages, so 7; 4,368: 16 pages leave 16 bytes.
        assert_eq!([no_tail(80), no_tail(14_336), no_tail(4368)], [5, 7, 16]);
        assert_eq!([no_tail(16), no_tail(32_768)], [1, 8]);
        // 2 pages leave 4,080 bytes, a half; 16 leave 3,856, a seventeenth.
        assert_eq!(no_tail(4112), 16);
    }

    #[test]
    fn tables_agree_with_their_schemes() {
        for scheme in Scheme::all() {
            let table = Table::new(&Classes::Scheme(scheme), Length::Tiers);
            assert!(table.small_max >= 1000, "{}", scheme.name);
            for size in 1..=table.small_max {
                let class = table.class_of(size).expect("small");
                assert_eq!(u64::from(table.get(class).size), scheme.usable(size));
            }
            assert_eq!(table.class_of(table.small_max + 1), None);
        }
    }

    #[test]
    fn a_class_is_earned_by_live_slop() {
        let mut table = Table::new(&Classes::Earned(skinflint()), Length::Tiers);
        // 4,368 is given 4,608: 240 bytes of slop each; 137 of them are 32,880, above 32,768.
        let class = table.class_of(4368).expect("small");
        for _ in 0..136 {
            table.came(4368, class);
        }
        assert_eq!(table.get(table.class_of(4368).expect("small")).size, 4608);
        table.came(4368, class);
        assert_eq!(table.get(table.class_of(4368).expect("small")).size, 4368);
        // Smaller ones that had 4,608 use it, too; 4,096 keeps its own class.
        assert_eq!(table.get(table.class_of(4097).expect("small")).size, 4368);
        assert_eq!(table.get(table.class_of(4096).expect("small")).size, 4096);
        assert_eq!(table.get(table.class_of(4369).expect("small")).size, 4608);
    }

    #[test]
    fn tails_that_eat_the_gain_earn_nothing() {
        let mut table = Table::new(&Classes::Earned(skinflint()), Length::Tiers);
        let class = table.class_of(30_000).expect("small");
        for _ in 0..1000 {
            table.came(30_000, class);
        }
        assert_eq!(
            table.get(table.class_of(30_000).expect("small")).size,
            30_720
        );
    }

    #[test]
    fn spans_that_went_count_no_more() {
        let mut table = Table::new(&Classes::Scheme(skinflint()), Length::Tiers);
        let class = table.class_of(64).expect("small");
        let next = |table: &mut Table| table.pages(class);
        // Sixteen spans of a page, then one of four: 20 pages. With 16 to 63 pages a span has four.
        for _ in 0..16 {
            assert_eq!(next(&mut table), 1);
        }
        assert_eq!(next(&mut table), 4);
        (0..4).for_each(|_| table.span_went(class, 1));
        assert_eq!(next(&mut table), 4, "16 pages");
        table.span_went(class, 4);
        table.span_went(class, 1);
        assert_eq!(next(&mut table), 1, "15 pages");
    }

    #[test]
    fn what_went_earns_no_class() {
        let mut table = Table::new(&Classes::Earned(skinflint()), Length::Tiers);
        let class = table.class_of(4368).expect("small");
        for _ in 0..3 {
            (0..136).for_each(|_| table.came(4368, class));
            (0..136).for_each(|_| table.went(4368, class));
        }
        assert_eq!(table.get(table.class_of(4368).expect("small")).size, 4608);
    }
}
