//! Which pages go together: those in which no unit is live twice, and first of all those that are together already.
//!
//! ```text
//!   pages ─► by their bytes: equal ones ─► of one key: the first group that fits ─► groups of different keys ─► groups
//! ```
//!
//! R1  A page is known by which of its units of 16 bytes are live (mesh.M4), and is in one group; so no unit is live twice in a
//!     group, whatever it is that the hashes say.
//! R2  Equal pages come first: what was merged in an earlier pass stays so, if its live units still allow it.
//! R3  Pages of one key come before others: their slots lie alike, and so they have a common unit seldom.
//!
//! Not here: where pages and masks come from, and what becomes of groups (`mesh`).

use core::ops::Range;

use skinflint_pages::PAGE;

/// Groups that a page is tried against, the latest first. Of Redis with four fifths deleted (`bench/alloc/mesh.py`) 51 MiB are
/// saved with 1,024, in 130 ms of processor time, and 61 with 4,096, in 200 (2026-11-26).
const TRIED: usize = 4_096;
/// The most pages of a group.
pub const MEMBERS: usize = 64;
/// Bytes of a unit, and words of a page's mask: a bit for each unit.
pub const UNIT: usize = 16;
pub const WORDS: usize = PAGE / UNIT / 64;

/// Which units of a page are live, or those of several.
pub type Mask = [u64; WORDS];

/// A page with live and free slots.
#[derive(Clone, Copy)]
pub struct Candidate {
    pub mask: Mask,
    /// By which pages that are equal are found; nothing else rests on it.
    pub hash: u64,
    pub page: u32,
    /// Pages of one key have their slots alike, so that two of them are likelier to have no live unit in common.
    pub key: u32,
    /// The next member of its group, by one more than its place; 0: none.
    pub next: u32,
    /// Whether it is in a group.
    pub placed: bool,
}

#[derive(Clone, Copy)]
pub struct Group {
    pub mask: Mask,
    pub first: u32,
    pub members: u32,
    pub key: u32,
}

/// Sets the bits of units.
pub fn set(mask: &mut Mask, units: Range<usize>) {
    for (i, word) in mask.iter_mut().enumerate() {
        let within = |at: usize| at.clamp(i * 64, (i + 1) * 64) - i * 64;
        let (from, to) = (within(units.start), within(units.end));
        if from < to {
            *word |= u64::MAX >> (64 - (to - from)) << from;
        }
    }
}

/// Calls `each` with the bytes of every run of units whose bit is set.
pub fn runs(mask: &Mask, mut each: impl FnMut(Range<usize>)) {
    // The first unit from one on whose bit is as wanted.
    let next = |from: usize, wanted: bool| {
        let mut at = from;
        while let Some(word) = mask.get(at / 64) {
            let word = if wanted { *word } else { !*word } >> (at % 64);
            if word != 0 {
                return at + word.trailing_zeros() as usize;
            }
            at = (at / 64 + 1) * 64;
        }
        WORDS * 64
    };
    let mut from = next(0, true);
    while from < WORDS * 64 {
        let to = next(from, false);
        each(from * UNIT..to * UNIT);
        from = next(to, true);
    }
}

pub fn not(mask: &Mask) -> Mask {
    mask.map(|word| !word)
}

pub fn overlap(a: &Mask, b: &Mask) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

/// Puts pages into groups in which no unit is live twice. Returns the number of groups.
///
/// First those that are equal already; then each of the rest into the first group that fits among the latest of its key, the
/// fullest pages first; at last groups of different keys.
pub fn group(pages: &mut [Candidate], groups: &mut [Group], order: &mut [u16]) -> usize {
    pages.sort_unstable_by_key(|page| page.hash);
    let order = &mut order[..pages.len()];
    for (i, place) in order.iter_mut().enumerate() {
        *place = i as u16;
    }
    order.sort_unstable_by_key(|&i| {
        let page = &pages[i as usize];
        let free: u32 = page.mask.iter().map(|word| word.count_zeros()).sum();
        (page.key, free)
    });
    let mut grouping = Grouping {
        pages,
        groups,
        count: 0,
    };
    grouping.equal();
    let equal = grouping.count;
    grouping.groups[..equal].sort_unstable_by_key(|group| group.key);
    let (mut from, mut begun) = (0..0, equal);
    let mut key = None;
    for &i in order.iter() {
        let i = i as usize;
        let this = grouping.pages[i].key;
        if key != Some(this) {
            key = Some(this);
            begun = grouping.count;
            let known = &grouping.groups[..equal];
            from = known.partition_point(|group| group.key < this)
                ..known.partition_point(|group| group.key <= this);
        }
        if !grouping.pages[i].placed {
            grouping.first_fit(i, begun, from.clone());
        }
    }
    grouping.together()
}

struct Grouping<'a> {
    pages: &'a mut [Candidate],
    groups: &'a mut [Group],
    count: usize,
}

impl Grouping<'_> {
    fn fits(&self, i: usize, at: usize) -> bool {
        let group = &self.groups[at];
        group.members < MEMBERS as u32 && !overlap(&group.mask, &self.pages[i].mask)
    }

    fn join(&mut self, i: usize, at: usize) {
        let (page, into) = (&mut self.pages[i], &mut self.groups[at]);
        into.mask
            .iter_mut()
            .zip(page.mask)
            .for_each(|(a, b)| *a |= b);
        page.next = core::mem::replace(&mut into.first, i as u32 + 1);
        page.placed = true;
        into.members += 1;
    }

    fn begin(&mut self, i: usize) -> usize {
        let at = self.count;
        self.groups[at] = Group {
            mask: [0; WORDS],
            first: 0,
            members: 0,
            key: self.pages[i].key,
        };
        self.count += 1;
        self.join(i, at);
        at
    }

    /// Puts pages that are equal, which follow each other, into groups (mesh.M3).
    fn equal(&mut self) {
        let mut last = None;
        for i in 1..self.pages.len() {
            if self.pages[i].hash != self.pages[i - 1].hash {
                last = None;
                continue;
            }
            let at = match last {
                Some(at) => at,
                None => self.begin(i - 1),
            };
            last = Some(at);
            if self.fits(i, at) {
                self.join(i, at);
            }
        }
    }

    /// Puts a page into the first group that fits, of those since `begun` and of these; or begins one.
    fn first_fit(&mut self, i: usize, begun: usize, these: Range<usize>) {
        let latest = (begun..self.count).rev().chain(these.rev());
        match latest.take(TRIED).find(|&at| self.fits(i, at)) {
            Some(at) => self.join(i, at),
            None => _ = self.begin(i),
        }
    }

    /// Puts groups together in which no unit is live twice; returns how many there are then.
    fn together(&mut self) -> usize {
        let free = |group: &Group| {
            group
                .mask
                .iter()
                .map(|word| word.count_zeros())
                .sum::<u32>()
        };
        self.groups[..self.count].sort_unstable_by_key(free);
        let mut kept = 0usize;
        for at in 0..self.count {
            let group = self.groups[at];
            let mut latest = (kept.saturating_sub(TRIED)..kept).rev();
            let fits = latest.find(|&other| {
                let other = &self.groups[other];
                other.members + group.members <= MEMBERS as u32
                    && !overlap(&other.mask, &group.mask)
            });
            let Some(other) = fits else {
                self.groups[kept] = group;
                kept += 1;
                continue;
            };
            let into = &mut self.groups[other];
            into.mask
                .iter_mut()
                .zip(group.mask)
                .for_each(|(a, b)| *a |= b);
            into.members += group.members;
            let rest = core::mem::replace(&mut into.first, group.first);
            let mut last = group.first as usize - 1;
            while self.pages[last].next != 0 {
                last = self.pages[last].next as usize - 1;
            }
            self.pages[last].next = rest;
        }
        kept
    }
}
