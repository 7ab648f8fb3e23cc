//! The spans that the purger is to look at: where a span's bits lie, and who sets them.
//!
//! ```text
//!   page ─► group of 4,096 pages (16 MiB): GROUPS, a bit each ─► words in META, made with the group's first span
//! ```
//!
//! J1  A span's bit is that of its first page. The words of its group are there before the span is.
//! J2  A span that is neither noted nor waits has no free page that is resident, or its countdown is 1: its next free is
//!     an event, which notes it (`events`). The purger sets the countdown as it looks (round.O4); all that sets it to
//!     another number notes the span.
//! J3  What other threads free is told through the notified stack, which owner and purger drain: both note the span.
//! J4  A third bit for each page says that the span which begins there has meshed pages (`mesh`): it is used last. It is
//!     a hint, set under the heap's lock, and cleared when blocks are taken from the span.
//!
//! Not here: the bits themselves (`changed`), the purger's rounds (`holes`).

use skinflint_base::sync::{AtomicU32, AtomicU64, Ordering};
use skinflint_pages::{MAX_PAGES, Pool};

use crate::mechanism::changed::{self, Changed, GROUP_WORDS, WORD_PAGES};
use crate::mechanism::range::at;
use crate::mechanism::span::Span;

/// Pages of a group.
pub const GROUP_PAGES: u32 = GROUP_WORDS * WORD_PAGES;
const GROUPS_MAX: usize = (MAX_PAGES / GROUP_PAGES) as usize;

/// Offsets in META of each group's words; 0: it has none.
static WORDS: [AtomicU32; GROUPS_MAX] = [const { AtomicU32::new(0) }; GROUPS_MAX];
/// Groups in which a bit may be set: a bit each.
static GROUPS: [AtomicU64; GROUPS_MAX / 64] = [const { AtomicU64::new(0) }; GROUPS_MAX / 64];

/// The bits of a group's pages.
#[repr(C)]
struct Words {
    changed: [Changed; GROUP_WORDS as usize],
    meshed: [AtomicU64; GROUP_WORDS as usize],
}

fn words(group: u32) -> Option<&'static Words> {
    // ORDER: Acquire meets the Release of `cover`; who has a page of the group got it after that. [reason: handed]
    let offset = WORDS.get(group as usize)?.load(Ordering::Acquire);
    // SAFETY: words of META, which stay, made by `cover`.
    (offset != 0).then(|| unsafe { &*at(offset) })
}

fn place(group: u32) -> (&'static AtomicU64, u64) {
    (&GROUPS[group as usize / 64], 1 << (group % 64))
}

/// Makes sure that spans that begin on a page can be noted (J1). `false`: the OS refuses. The pool's lock is held.
pub fn cover(pool: &mut Pool, page: u32) -> bool {
    let word = &WORDS[(page / GROUP_PAGES) as usize];
    // ORDER: the pool's lock is held.
    if word.load(Ordering::Relaxed) != 0 {
        return true;
    }
    let bytes = size_of::<Words>();
    let Some(offset) = pool.region.meta_alloc(bytes, 64) else {
        return false;
    };
    word.store(offset, Ordering::Release); // ORDER: see `words`. [reason: handed]
    true
}

/// Notes that a span may have free pages that it had not. Its heap's lock is held.
#[inline]
pub fn note(span: &Span) {
    note_page(span.page());
}

/// Does what [`note`] does, for the span that begins on a page.
pub fn note_page(page: u32) {
    if let Some((words, i, bit)) = bit_of(page) {
        let (groups, group) = place(page / GROUP_PAGES);
        words.changed[i].note(bit, groups, group);
    }
}

/// Notes whether pages of a span are meshed (J4). The heap's lock is held. Cost if that was so: two loads.
#[inline]
pub fn set_meshed(span: &Span, meshed: bool) {
    if let Some((words, i, bit)) = bit_of(span.page()) {
        let word = &words.meshed[i];
        // ORDER: a hint; the heap's lock orders what is said of one span.
        if (word.load(Ordering::Relaxed) & bit != 0) == meshed {
            return;
        }
        match meshed {
            true => word.fetch_or(bit, Ordering::Relaxed), // ORDER: as above
            false => word.fetch_and(!bit, Ordering::Relaxed), // ORDER: as above
        };
    }
}

/// Reports whether pages of a span are meshed (J4). The heap's lock is held.
#[inline]
pub fn is_meshed(span: &Span) -> bool {
    // ORDER: as above.
    bit_of(span.page())
        .is_some_and(|(words, i, bit)| words.meshed[i].load(Ordering::Relaxed) & bit != 0)
}

/// Has the span that begins on a page, which was taken, wait for the next round. The purge lock is held (changed.Q3).
pub fn wait_on(page: u32) {
    if let Some((words, i, bit)) = bit_of(page) {
        let (groups, group) = place(page / GROUP_PAGES);
        words.changed[i].wait(bit, groups, group);
    }
}

/// Returns a page's words, and which of them, and its bit there.
fn bit_of(page: u32) -> Option<(&'static Words, usize, u64)> {
    let words = words(page / GROUP_PAGES)?;
    let i = (page % GROUP_PAGES / WORD_PAGES) as usize;
    Some((words, i, 1 << (page % WORD_PAGES)))
}

/// Reports whether the span that begins on a page is noted, or waits.
pub fn is_noted(page: u32) -> bool {
    bit_of(page).is_some_and(|(words, i, bit)| words.changed[i].either() & bit != 0)
}

/// Takes the bits of the first group from `group` on that has any, and calls `found` for each, with the page, and with
/// whether its span waited and has not changed since. Returns the group behind it, `None` if there was none below `end`.
///
/// The purge lock is held (changed.Q3).
pub fn take_group(group: u32, end: u32, mut found: impl FnMut(u32, bool)) -> Option<u32> {
    let group = next_group(group, end)?;
    let (groups, bit) = place(group);
    if let Some(words) = words(group)
        && changed::begin(groups, bit)
    {
        for (word, first) in words
            .changed
            .iter()
            .zip((0..).map(|i| group * GROUP_PAGES + i * WORD_PAGES))
        {
            let (new, waiting) = word.take();
            let mut left = new | waiting;
            while left != 0 {
                let i = left.trailing_zeros();
                found(first + i, (waiting & !new) >> i & 1 != 0);
                left &= left - 1;
            }
        }
    }
    Some(group + 1)
}

/// Returns the first group from `group` on, below `end`, in which a bit may be set.
fn next_group(mut group: u32, end: u32) -> Option<u32> {
    while group < end {
        // ORDER: a look; a bit that comes later is found by the next round.
        let bits = GROUPS[group as usize / 64].load(Ordering::Relaxed) >> (group % 64);
        if bits != 0 {
            return Some(group + bits.trailing_zeros()).filter(|&found| found < end);
        }
        group = (group / 64 + 1) * 64;
    }
    None
}
