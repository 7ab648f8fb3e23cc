//! Size classes: a table that grows while the program runs.
//!
//! ```text
//!   request n ──(n-1)>>4──► TABLE ──► class ──► INFO[class]: size, reciprocal, span lengths
//!      16..256 by 16 │ 8 per doubling to 32 KiB │ earned: 16-byte sizes whose slop passed a threshold
//!   request n <= 1024 ──n──► BYTES ──► the same
//! ```
//!
//! C1  `INFO[TABLE[i]].size >= 16 * (i + 1)`, always: an entry changes only to a class that fits better.
//! C2  Base classes are sorted by size and never change; earned ones are appended and never removed.
//! C3  `mul = ceil(2^32 / size)`: for offsets below 64 KiB, `offset * mul >> 32` is the slot, and the
//!     low half is below `mul` exactly if the offset is a multiple of the size (walked in the tests).
//! C4  `BYTES[n]` is `TABLE[(n - 1) >> 4]`, and `BYTES[0]` is `TABLE[0]`.
//!
//! Not here: the spans of a class (`spans`).

use skinflint_base::sync::{AtomicU16, AtomicU32, Ordering};
use skinflint_pages::PAGE;

use super::guarded::Guarded;
use super::publish;

/// Largest small size; above it blocks are page runs.
pub const SMALL_MAX: usize = 32 * 1024;
/// Number of entries of the table: one for each 16 bytes.
pub const SLICES: usize = SMALL_MAX / 16;
/// The most classes that there may be.
pub const MAX_CLASSES: usize = 192;
/// Number of classes at the start.
pub const BASE_CLASSES: usize = 72;
/// Pages of the longest span.
pub const SPAN_PAGES_MAX: usize = 16;
/// Most blocks in a span: 16 words of bits.
pub const SLOTS_MAX: usize = 1024;
/// Slop at which a 16-byte size gets a class of its own: half the bytes of the longest span. Not tuned since.
const EARN_BYTES: u32 = 32 * 1024;
/// Percent of the slop that a class would have if all of its slots were for one size: the size must have earned that
/// much of it, too. Where a class has many sizes and none stands out, the pages that stay half empty after the class is
/// divided cost more than the slop.
const EARN_PERCENT: u64 = 40;

/// The data of a class. It has sixteen bytes, so that it is found by a shift (`realloc` of a small block looks).
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Info {
    /// Bytes of a block.
    pub size: u32,
    /// `ceil(2^32 / size)` (C3).
    pub mul: u32,
    /// Pages of a span, for small, medium, large and very large populations.
    pub pages: [u8; 4],
}

/// Returns the size of a base class.
pub const fn base_size(class: usize) -> usize {
    if class < 16 {
        (class + 1) * 16
    } else {
        let doubling = (class - 16) / 8;
        let step = 32 << doubling;
        (256 << doubling) + ((class - 16) % 8 + 1) * step
    }
}

/// Returns the base class of a size from 1 to [`SMALL_MAX`].
pub const fn base_class(size: usize) -> usize {
    if size <= 256 {
        return (size - 1) / 16;
    }
    let doubling = (size - 1).ilog2() as usize - 8;
    let step = 32 << doubling;
    16 + doubling * 8 + (size - 1 - (256 << doubling)) / step
}

/// Returns the pages of a span that aims at `target` pages: the first length from there on that wastes at most a 32nd
/// of itself at its end, else the least wasteful one.
pub const fn span_pages(size: usize, target: usize) -> u8 {
    let least = size.div_ceil(PAGE);
    let mut pages = if target > least { target } else { least };
    let mut best = pages;
    let mut best_waste = usize::MAX;
    while pages <= SPAN_PAGES_MAX {
        let bytes = pages * PAGE;
        if bytes / size > SLOTS_MAX {
            break;
        }
        // In 1/1024 of the span.
        let waste = (bytes % size) * 1024 / bytes;
        if waste <= 32 {
            return pages as u8;
        }
        if waste < best_waste {
            best_waste = waste;
            best = pages;
        }
        pages += 1;
    }
    while best * PAGE / size > SLOTS_MAX {
        best -= 1;
    }
    best as u8
}

/// Returns the entry of a class. Spans begin small, so that a class with few blocks does not hold many pages, and that
/// one survivor pins little.
const fn info(size: usize) -> Info {
    let first = if size <= 512 { 1 } else { 2 };
    Info {
        size: size as u32,
        mul: (1u64 << 32).div_ceil(size as u64) as u32,
        pages: [
            span_pages(size, first),
            span_pages(size, 4),
            span_pages(size, 8),
            span_pages(size, 16),
        ],
    }
}

/// Written under the pool's lock: an entry before its number is published in TABLE (C2), by which readers come.
static INFO: Guarded<[Info; MAX_CLASSES]> = Guarded::new(base_infos());
// By name and hidden, for the reason given at `range::RANGE`.
#[unsafe(export_name = "skinflint_class_table")]
static TABLE: [AtomicU16; SLICES] = base_table();
core::arch::global_asm!(".hidden skinflint_class_table");
/// Largest request that BYTES has an entry for.
pub const BYTES_MAX: usize = 1024;
/// TABLE for small requests, by the byte: two instructions less, for two KiB of which a program touches a line or two for
/// each size that it uses (C4).
#[unsafe(export_name = "skinflint_byte_table")]
static BYTES: [AtomicU16; BYTES_MAX + 1] = base_bytes();
core::arch::global_asm!(".hidden skinflint_byte_table");
static COUNT: AtomicU32 = AtomicU32::new(BASE_CLASSES as u32);
/// Pages in spans of each class, over all heaps: the population.
static PAGES: [AtomicU32; MAX_CLASSES] = [const { AtomicU32::new(0) }; MAX_CLASSES];
/// The sum of [`PAGES`].
static ALL_PAGES: AtomicU32 = AtomicU32::new(0);
/// The most pages that each class has had.
static MOST_PAGES: [AtomicU32; MAX_CLASSES] = [const { AtomicU32::new(0) }; MAX_CLASSES];
/// Slop in spans made for each 16-byte size; `u32::MAX`: it has its own class, or cannot get one.
static SLOP: [AtomicU32; SLICES] = [const { AtomicU32::new(0) }; SLICES];

const fn base_infos() -> [Info; MAX_CLASSES] {
    let mut all = [Info {
        size: 0,
        mul: 0,
        pages: [0; 4],
    }; MAX_CLASSES];
    let mut class = 0;
    while class < BASE_CLASSES {
        all[class] = info(base_size(class));
        class += 1;
    }
    all
}

/// TABLE holds `class << MAGAZINE_SHIFT`: where the class's magazine is in a heap, which begins with them.
pub const MAGAZINE_SHIFT: u32 = 5;

const fn base_table() -> [AtomicU16; SLICES] {
    let mut table = [const { AtomicU16::new(0) }; SLICES];
    let mut slice = 0;
    while slice < SLICES {
        table[slice] = AtomicU16::new(magazine_of(base_class((slice + 1) * 16)));
        slice += 1;
    }
    table
}

const fn base_bytes() -> [AtomicU16; BYTES_MAX + 1] {
    let mut bytes = [const { AtomicU16::new(0) }; BYTES_MAX + 1];
    let mut n = 1;
    while n <= BYTES_MAX {
        bytes[n] = AtomicU16::new(magazine_of(base_class(n)));
        n += 1;
    }
    // The first is that of one byte: class 0.
    bytes
}

/// Returns where in a heap a class's magazine is, in bytes.
pub const fn magazine_of(class: usize) -> u16 {
    (class << MAGAZINE_SHIFT) as u16
}

/// Returns the class whose magazine is at this offset.
#[inline(always)]
pub const fn of_magazine(offset: u16) -> usize {
    (offset >> MAGAZINE_SHIFT) as usize
}

/// Returns the class of a slice, `(n - 1) >> 4`. Cost: one load.
#[inline(always)]
pub fn of_slice(slice: usize) -> usize {
    magazine_of_slice(slice) >> MAGAZINE_SHIFT
}

/// Returns the offset in a heap of the magazine for a slice. Cost: one load.
#[inline(always)]
pub fn magazine_of_slice(slice: usize) -> usize {
    debug_assert!(slice < SLICES);
    // ORDER: as below.
    #[cfg(not(target_arch = "x86_64"))]
    return TABLE[slice].load(Ordering::Relaxed).into();
    #[cfg(target_arch = "x86_64")]
    // In assembly, since the compiler extends what it loads from an atomic once more than necessary.
    // SAFETY: the caller compared the slice with SLICES.
    // ORDER: as Relaxed: a number that only ever changes to a better class (C1); its INFO is found through the
    // span, which the heap's lock publishes.
    unsafe {
        let offset: usize;
        core::arch::asm!(
            "lea {offset}, [rip + skinflint_class_table]",
            "movzx {offset:e}, word ptr [{offset} + 2*{slice}]",
            offset = out(reg) offset,
            slice = in(reg) slice,
            options(pure, readonly, nostack, preserves_flags),
        );
        offset
    }
}

/// Returns a class's entry.
#[inline]
pub fn get(class: usize) -> Info {
    // SAFETY: C2: entries below the count are never written again; `class` came from TABLE or a span.
    unsafe { (*INFO.get())[class] }
}

/// Returns the bytes of a block of the class whose magazine is at this offset ([`magazine_of`]). Cost: two loads.
///
/// # Safety
/// The offset is that of an existing class.
#[inline(always)]
pub unsafe fn size_at(offset: u16) -> usize {
    // SAFETY: as in `get`; as the caller promises.
    unsafe {
        let info = INFO.get().cast::<Info>().add(of_magazine(offset));
        (*info).size as usize
    }
}

/// Returns the present number of classes.
pub fn count() -> usize {
    publish::raised(&COUNT) as usize
}

/// Returns the pages that a new span of the class should have in a heap of `heap_pages` pages, by the pages that the
/// heap has of the class (estimated by its share of all heaps' pages): between a 4th and a 16th of these, since
/// untouched parts of a span cost nothing. By the number of all heaps together, the spans of many threads would be too
/// long for each. `turns`: spans of the class that the heap went through since it was last idle. Where blocks come and go
/// in great numbers, few at a time, the population stays small, and spans of a page would be changed after every few
/// blocks; each change costs as much as a hundred pairs.
pub fn pages_for(class: usize, heap_pages: u32, turns: u8) -> u32 {
    // ORDER: hints.
    let population = u64::from(PAGES[class].load(Ordering::Relaxed));
    let all = u64::from(ALL_PAGES.load(Ordering::Relaxed)).max(1); // ORDER: as above
    let tier = match population * u64::from(heap_pages) / all {
        0..=15 => 0,
        16..=63 => 1,
        64..=255 => 2,
        _ => 3,
    };
    let busy = match turns {
        0..TURNS_MIDDLING => 0,
        TURNS_MIDDLING..TURNS_MANY => 1,
        _ => 2,
    };
    u32::from(get(class).pages[tier.max(busy)])
}

/// Spans of a class after which a heap takes longer ones, and still longer ones.
const TURNS_MIDDLING: u8 = 32;
/// See [`TURNS_MIDDLING`].
const TURNS_MANY: u8 = 128;

/// Counts a span of the class that came (`pages > 0`) or went.
pub fn population(class: usize, pages: i32) {
    // ORDER: a statistic.
    PAGES[class].fetch_add(pages as u32, Ordering::Relaxed);
    ALL_PAGES.fetch_add(pages as u32, Ordering::Relaxed); // ORDER: as above
}

/// Counts a span of `pages` pages of one class that became one of another.
pub fn repopulate(from: usize, to: usize, pages: u32) {
    // ORDER: statistics.
    PAGES[from].fetch_sub(pages, Ordering::Relaxed);
    PAGES[to].fetch_add(pages, Ordering::Relaxed); // ORDER: as above
}

/// Returns the pages in spans of the class, over all heaps.
pub fn population_of(class: usize) -> u32 {
    // ORDER: a statistic.
    PAGES[class].load(Ordering::Relaxed)
}

/// Notes that a class has grown by a span of `slots` slots for a request of this slice; reports whether the size has
/// now earned a class of its own.
///
/// Only growth beyond the most pages that the class ever had counts, and it is charged to the size that was asked for:
/// over a class's spans that is the slop that lives in them. Blocks that come and go earn nothing, for a class of their
/// own would only leave the pages of the old one half empty.
pub fn grown(slice: usize, class: usize, slots: u32) -> bool {
    let own = (slice as u32 + 1) * 16;
    let size = get(class).size;
    let now = population_of(class);
    // ORDER: statistics, throughout; threads may lose each other's additions.
    if size <= own || now <= MOST_PAGES[class].load(Ordering::Relaxed) {
        return false;
    }
    MOST_PAGES[class].store(now, Ordering::Relaxed); // ORDER: as above
    let before = SLOP[slice].load(Ordering::Relaxed); // ORDER: as above
    if before == u32::MAX {
        return false;
    }
    let now = before
        .saturating_add((size - own) * slots)
        .min(u32::MAX - 1);
    SLOP[slice].store(now, Ordering::Relaxed); // ORDER: as above
    // The slop if all slots were for this size.
    let all = u64::from(MOST_PAGES[class].load(Ordering::Relaxed)) * PAGE as u64 // ORDER: as above
        / u64::from(size)
        * u64::from(size - own);
    now >= EARN_BYTES && u64::from(now) * 100 >= all * EARN_PERCENT
}

/// Gives the slice a class of its own. To be called under the pool's lock (C2). Nothing happens when there is no room.
pub fn earn(slice: usize) {
    // ORDER: the caller holds the lock under which this is written.
    let class = COUNT.load(Ordering::Relaxed) as usize;
    // ORDER: a statistic.
    SLOP[slice].store(u32::MAX, Ordering::Relaxed);
    let size = (slice + 1) * 16;
    let slop = u64::from(get(of_slice(slice)).size).saturating_sub(size as u64);
    // The tails of odd spans may cost what the class saves.
    let saved = skinflint_sizes::spans::saved_by_earning(size as u32, 1024) / 1024;
    if class >= MAX_CLASSES || slop == 0 || saved * 2 < slop {
        return;
    }
    // SAFETY: C2: this entry is above the count, so no thread reads it yet.
    unsafe { (*INFO.get())[class] = info(size) };
    publish::raise(&COUNT, class as u32 + 1);
    // Smaller sizes that used a larger class fit this one better, too (C1).
    for slice in (0..=slice).rev() {
        if get(of_slice(slice)).size as usize <= size {
            break;
        }
        lead(slice, class);
    }
}

/// Has the requests of a slice served by a class (C4).
fn lead(slice: usize, class: usize) {
    let magazine = magazine_of(class);
    // ORDER: Release: a thread that finds the class finds its entry; on x86 every load is an Acquire, and the data
    // dependency through the class holds it elsewhere. [reason: dependency]
    TABLE[slice].store(magazine, Ordering::Release);
    let first = if slice == 0 { 0 } else { slice * 16 + 1 };
    for entry in BYTES.iter().take(slice * 16 + 17).skip(first) {
        entry.store(magazine, Ordering::Release); // ORDER: as above. [reason: dependency]
    }
}

/// Takes a fit profile's classes, and its span lengths for the classes that exist then. To be called under the pool's
/// lock, while the process has one thread: lengths of base classes are written in place.
pub fn take_profile(classes: &[u16], pages_of: impl Fn(u16) -> Option<u8>) {
    for size in classes {
        let slice = usize::from(*size).div_ceil(16).wrapping_sub(1);
        if slice >= SLICES {
            continue;
        }
        earn(slice);
    }
    for class in 0..count() {
        if let Some(pages) = pages_of(get(class).size as u16) {
            // SAFETY: no other thread exists that could read it meanwhile, as the caller promises.
            unsafe { (*INFO.get())[class].pages = [pages; 4] };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_table_is_the_scheme_that_the_analyser_knows() {
        let scheme = skinflint_sizes::Scheme::by_name("skinflint").expect("known");
        for size in 1..=SMALL_MAX {
            let class = base_class(size);
            assert_eq!(
                base_size(class) as u64,
                scheme.usable(size as u64),
                "{size}"
            );
        }
        assert_eq!(base_class(SMALL_MAX), BASE_CLASSES - 1);
        for (n, entry) in base_bytes().iter().enumerate() {
            // ORDER: the test's own.
            let class = of_magazine(entry.load(Ordering::Relaxed));
            assert_eq!(class, base_class(n.max(1)), "{n} (C4)");
        }
    }

    #[test]
    fn the_reciprocal_divides_exactly_and_knows_multiples() {
        for size in (16..=SMALL_MAX).step_by(16) {
            let info = info(size);
            for offset in (0..16 * PAGE).step_by(8) {
                let product = offset as u64 * u64::from(info.mul);
                assert_eq!((product >> 32) as usize, offset / size, "{offset} / {size}");
                assert_eq!(
                    (product as u32) < info.mul,
                    offset % size == 0,
                    "{offset} % {size}"
                );
            }
        }
    }

    /// Classes are the process's, and what is earned stays: so a process of its own.
    fn alone(name: &str, act: impl FnOnce()) {
        if let Some((status, said)) =
            crate::test_engine::in_child(&format!("mechanism::class::tests::{name}"), act)
        {
            assert!(status.success(), "{said}");
        }
    }

    fn slice_of(size: usize) -> usize {
        (size - 1) >> 4
    }

    fn size_for(size: usize) -> u32 {
        get(of_slice(slice_of(size))).size
    }

    #[test]
    fn spans_grow_with_the_pages_that_a_heap_has_of_the_class() {
        alone(
            "spans_grow_with_the_pages_that_a_heap_has_of_the_class",
            || {
                let class = base_class(64);
                let [small, middling, large, most] = get(class).pages.map(u32::from);
                assert_eq!([small, middling, large, most], [1, 4, 8, 16]);
                assert_eq!(pages_for(class, 1_000, 0), small, "there is none yet");
                population(class, 300);
                for (heap_pages, pages) in [
                    (0, small),
                    (15, small),
                    (16, middling),
                    (63, middling),
                    (64, large),
                    (255, large),
                    (256, most),
                    (1_000_000, most),
                ] {
                    assert_eq!(pages_for(class, heap_pages, 0), pages, "{heap_pages}");
                }
                // A class that a heap goes through fast has longer ones, though few, but never the longest by that.
                population(class, -300);
                for (turns, pages) in [
                    (0, small),
                    (TURNS_MIDDLING - 1, small),
                    (TURNS_MIDDLING, middling),
                    (TURNS_MANY - 1, middling),
                    (TURNS_MANY, large),
                    (u8::MAX, large),
                ] {
                    assert_eq!(pages_for(class, 1_000, turns), pages, "{turns} turns");
                }
                population(class, 300);
                assert_eq!(pages_for(class, 256, u8::MAX), most);
                // Of three quarters of all pages another class has, this one has a quarter.
                population(base_class(4_096), 900);
                assert_eq!(pages_for(class, 63, 0), small);
                assert_eq!(pages_for(class, 64, 0), middling);
                repopulate(base_class(4_096), class, 300);
                assert_eq!(
                    (population_of(class), pages_for(class, 32, 0)),
                    (600, middling)
                );
                population(class, -600);
                assert_eq!(
                    (population_of(class), pages_for(class, 1_000, 0)),
                    (0, small)
                );
            },
        );
    }

    #[test]
    fn a_size_with_much_slop_that_stays_earns_a_class() {
        alone("a_size_with_much_slop_that_stays_earns_a_class", || {
            // 192 bytes of slop in each of 28 slots of sixteen pages: the seventh span passes the threshold.
            let (slice, class) = (slice_of(2_100), base_class(2_100));
            assert_eq!(get(class).size, 2_304);
            let grows = |slice| {
                population(class, 16);
                grown(slice, class, 28)
            };
            for span in 1..7 {
                assert!(!grows(slice), "{span}");
            }
            population(class, -16);
            population(class, 16);
            assert!(
                !grown(slice, class, 10_000),
                "no more pages than there were"
            );
            assert!(grows(slice));
            assert!(!grown(slice_of(2_304), class, 10_000), "no slop");

            assert_eq!(count(), BASE_CLASSES);
            earn(slice);
            assert_eq!(count(), BASE_CLASSES + 1);
            assert_eq!(of_slice(slice), BASE_CLASSES);
            let sizes = [2_048, 2_049, 2_100, 2_112, 2_113, 2_304].map(size_for);
            assert_eq!(sizes, [2_048, 2_112, 2_112, 2_112, 2_304, 2_304]);
            assert!(!grows(slice), "it has one");
            earn(slice);
            assert_eq!(count(), BASE_CLASSES + 1, "once");
        });
    }

    #[test]
    fn a_size_among_many_of_its_class_earns_nothing() {
        alone("a_size_among_many_of_its_class_earns_nothing", || {
            let class = base_class(2_100);
            // Three sizes in turns: none has two fifths of what the slop would be if all were its own.
            for span in 0..300 {
                population(class, 16);
                let slice = slice_of([2_064, 2_080, 2_096][span % 3]);
                assert!(!grown(slice, class, 28), "{span}");
            }
        });
    }

    #[test]
    fn however_many_are_earned_each_size_fits_its_class() {
        alone("however_many_are_earned_each_size_fits_its_class", || {
            for slice in (0..SLICES).step_by(3).chain(0..SLICES) {
                earn(slice);
                let size = (slice + 1) * 16;
                assert!(
                    size_for(size) as usize >= size
                        && size_for(size) as usize <= base_size(base_class(size))
                );
            }
            assert_eq!(count(), MAX_CLASSES, "and no more");
            let mut sizes: Vec<u32> = (0..count()).map(|class| get(class).size).collect();
            for slice in 0..SLICES {
                let (size, class) = ((slice + 1) * 16, of_slice(slice));
                let best = sizes.iter().filter(|&&s| s as usize >= size).min();
                assert_eq!(best, Some(&get(class).size), "{size} (C1)");
                // SAFETY: the magazine of a class that there is.
                let known = unsafe { size_at(magazine_of(class)) };
                assert_eq!(known, get(class).size as usize);
            }
            for (n, entry) in BYTES.iter().enumerate() {
                // ORDER: one thread.
                let class = of_magazine(entry.load(Ordering::Relaxed));
                assert_eq!(class, of_slice(slice_of(n.max(1))), "{n} (C4)");
            }
            sizes.sort_unstable();
            sizes.dedup();
            assert_eq!(sizes.len(), MAX_CLASSES, "each size once");
        });
    }

    #[test]
    fn a_profile_gives_classes_and_lengths() {
        alone("a_profile_gives_classes_and_lengths", || {
            let lengths = |size| match size {
                64 => Some(2),
                4_368 => Some(15),
                _ => None,
            };
            let before = get(base_class(80)).pages;
            take_profile(&[304, 4_368], lengths);
            assert_eq!((size_for(304), size_for(4_368)), (304, 4_368));
            assert_eq!(count(), BASE_CLASSES + 2);
            assert_eq!(get(base_class(64)).pages, [2; 4]);
            assert_eq!(get(of_slice(slice_of(4_368))).pages, [15; 4]);
            assert_eq!(get(base_class(80)).pages, before, "nothing is known of it");
        });
    }

    #[test]
    fn every_span_holds_a_block_and_not_too_many() {
        for size in (16..=SMALL_MAX).step_by(16) {
            for pages in info(size).pages {
                let slots = pages as usize * PAGE / size;
                assert!((1..=SLOTS_MAX).contains(&slots), "{size}: {pages} pages");
                assert!(pages as usize <= SPAN_PAGES_MAX);
            }
        }
    }
}
