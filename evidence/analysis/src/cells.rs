//! Cells: one stack asking for one size and being given one usable size; and their counts.
//!
//! ```text
//!   (node, size, usable) ──table──► CellId ──► key    (what it stands for)
//!                                          └─► count  (live now, ever, live at the heap peak) ─► site
//! ```
//!
//! C1  Bytes are never stored: they are blocks × the key's sizes.
//! C2  `saved` is the live count at the last heap peak if `epoch` equals the peak's epoch; otherwise the cell has not
//!     changed since, and `live` is that count. A cell saves its count before its first change after a new peak: one
//!     comparison per change, nothing per peak.
//! C3  Every cell has a site (its stack); a site's last serial is that of its latest acquisition.
//! C4  While buckets are kept (`windows.rs`), a cell's counts are noted before its first change in a
//!     bucket: one comparison per change, on a line that the change needs anyway.
//!
//! Not here: totals over the process (`ledger.rs`).

use rustc_hash::FxHashMap;
use skinflint_base::hints;
use skinflint_trace::NodeId;

use crate::pass::{CellId, CellKey};

/// A block that is released has lived briefly if the process, with any stack, made fewer acquisitions than this
/// meanwhile.
pub(crate) const BRIEF: u32 = 256;

/// The counts of a cell, in blocks (C1).
#[derive(Clone, Copy, Debug, Default)]
pub struct CellCount {
    /// Blocks acquired over the run.
    pub ever: u64,
    /// The epoch in which `saved` was saved (C2).
    epoch: u64,
    /// Live blocks.
    pub live: u32,
    /// Live blocks at the heap peak of `epoch` (C2).
    saved: u32,
    /// The value of `ever` at that heap peak.
    saved_ever: u64,
    /// Index of the site (C3).
    pub site: u32,
    /// The bucket in which it was last noted (C4); 0 is none.
    bucket: u32,
}

/// A cell as it was before its first change in a bucket (C4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    pub cell: CellId,
    pub live: u32,
    pub ever: u64,
}

/// A cell on one cache line: finding it, counting it and knowing its sizes is one miss, not two.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Cell {
    key: CellKey,
    count: CellCount,
}

/// The counts of a stack that acquired anything.
#[derive(Clone, Copy, Debug)]
pub struct SiteCount {
    /// The stack.
    pub node: NodeId,
    /// Serial of its latest acquisition (C3).
    pub last_serial: u32,
    /// Blocks released before the stack acquired again.
    pub temporaries: u64,
    /// Temporaries, and blocks released within [`BRIEF`] acquisitions of the process: at most that many blocks of the
    /// stack lived at a time.
    pub brief: u64,
    /// First acquisition, nanoseconds since the start; `u64::MAX` if none.
    pub first_ns: u64,
    /// Latest acquisition, nanoseconds since the start.
    pub last_ns: u64,
}

/// All cells and sites.
#[derive(Clone, Debug)]
pub struct Cells {
    /// The keys once more, for [`crate::pass::Context`]; events do not read them.
    keys: Vec<CellKey>,
    cells: Vec<Cell>,
    sites: Vec<SiteCount>,
    site_of: FxHashMap<NodeId, u32>,
    /// Open addressing, a power of two wide, at most half full: (tag, id + 1), 0 is empty.
    table: Vec<(u32, u32)>,
    /// Number of heap peaks so far (C2).
    epoch: u64,
    /// Number of the open bucket; 0 while none are kept (C4).
    bucket: u32,
    /// The cells that changed in the open bucket, in order of their first change.
    noted: Vec<Noted>,
}

const _: () = assert!(size_of::<Cell>() == 64, "a cell is one cache line");

impl Default for Cells {
    fn default() -> Cells {
        Cells {
            keys: Vec::new(),
            cells: Vec::new(),
            sites: Vec::new(),
            site_of: FxHashMap::default(),
            table: vec![(0, 0); 1024],
            epoch: 0,
            bucket: 0,
            noted: Vec::new(),
        }
    }
}

#[inline]
fn hash(key: &CellKey) -> u64 {
    let mixed = u64::from(key.node.0).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ key.size.wrapping_mul(0xD6E8_FEB8_6659_FD93)
        ^ key
            .usable
            .rotate_left(32)
            .wrapping_mul(0xA076_1D64_78BD_642F);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xE703_7ED1_A0B4_28DB)
}

impl Cells {
    /// Returns the cell of a key, a new one if it is not known. Cost if it is known: one probe and one key compared.
    #[inline]
    pub fn intern(&mut self, key: CellKey) -> CellId {
        let hash = hash(&key);
        let tag = hash as u32;
        let mask = self.table.len() - 1;
        let mut slot = (hash >> 32) as usize & mask;
        loop {
            let (there, id) = self.table[slot];
            if id == 0 {
                return self.intern_slow(key, hash);
            }
            if there == tag && self.cells[id as usize - 1].key == key {
                return CellId(id - 1);
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Returns the cell of a key that may be that of cell `hint`.
    #[inline]
    pub(crate) fn intern_at(&mut self, hint: u32, key: CellKey) -> CellId {
        match self.cells.get(hint as usize) {
            Some(cell) if cell.key == key => CellId(hint),
            _ => self.intern(key),
        }
    }

    /// Returns the bytes that events read.
    pub(crate) fn hot_bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>() + self.table.len() * size_of::<(u32, u32)>()
    }

    /// Returns the cell that a key seems to have, without a look at the cell itself: two keys of one hash are taken
    /// for each other.
    #[inline]
    pub(crate) fn guess(&self, key: &CellKey) -> Option<CellId> {
        let hash = hash(key);
        let mask = self.table.len() - 1;
        let mut slot = (hash >> 32) as usize & mask;
        loop {
            let (there, id) = self.table[slot];
            if id == 0 {
                return None;
            }
            if there == hash as u32 {
                return Some(CellId(id - 1));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Has the processor fetch where the number of a key's cell would be: see `ahead.rs`.
    #[inline]
    pub(crate) fn fetch(&self, key: &CellKey) {
        let slot = (hash(key) >> 32) as usize & (self.table.len() - 1);
        hints::prefetch(&self.table[slot]);
    }

    /// Has the processor fetch a cell.
    #[inline]
    pub(crate) fn fetch_cell(&self, cell: CellId) {
        hints::prefetch(&self.cells[cell.0 as usize]);
    }

    /// Has the processor fetch the site of a cell, and waits for the cell.
    #[inline]
    pub(crate) fn fetch_site(&self, cell: CellId) {
        let site = self.cells[cell.0 as usize].count.site;
        hints::prefetch(&self.sites[site as usize]);
    }

    /// Returns the bytes of the sites.
    pub(crate) fn site_bytes(&self) -> usize {
        self.sites.len() * size_of::<SiteCount>()
    }

    #[cold]
    #[inline(never)]
    fn intern_slow(&mut self, key: CellKey, hash: u64) -> CellId {
        if (self.keys.len() + 1) * 2 > self.table.len() {
            self.widen();
        }
        if self.cells.len() == self.cells.capacity() {
            self.grow_cells();
        }
        let site = *self.site_of.entry(key.node).or_insert_with(|| {
            self.sites.push(SiteCount {
                node: key.node,
                last_serial: 0,
                temporaries: 0,
                brief: 0,
                first_ns: u64::MAX,
                last_ns: 0,
            });
            self.sites.len() as u32 - 1
        });
        self.keys.push(key);
        self.cells.push(Cell {
            key,
            count: CellCount {
                site,
                ..CellCount::default()
            },
        });
        self.place(hash, self.keys.len() as u32);
        CellId(self.keys.len() as u32 - 1)
    }

    /// Doubles the room of the cells. They are copied: a vector that grows by itself is moved with the small pages
    /// that it has.
    fn grow_cells(&mut self) {
        let room = (self.cells.capacity() * 2).max(64);
        let mut wider = Vec::with_capacity(room);
        hints::prefer_huge_pages(wider.as_ptr(), room * size_of::<Cell>());
        wider.append(&mut self.cells);
        self.cells = wider;
    }

    /// Doubles the table.
    fn widen(&mut self) {
        let slots = self.table.len() * 2;
        self.table = Vec::with_capacity(slots);
        hints::prefer_huge_pages(self.table.as_ptr(), slots * size_of::<(u32, u32)>());
        self.table.resize(slots, (0, 0));
        for index in 0..self.keys.len() {
            let hash = hash(&self.keys[index]);
            self.place(hash, index as u32 + 1);
        }
    }

    fn place(&mut self, hash: u64, id: u32) {
        let mask = self.table.len() - 1;
        let mut slot = (hash >> 32) as usize & mask;
        while self.table[slot].1 != 0 {
            slot = (slot + 1) & mask;
        }
        self.table[slot] = (hash as u32, id);
    }

    /// Notes that a block of the cell was acquired.
    #[inline(always)]
    pub fn acquire(&mut self, cell: CellId, serial: u32, time_ns: u64) {
        let count = &mut self.cells[cell.0 as usize].count;
        save(count, self.epoch);
        note(count, self.bucket, &mut self.noted, cell);
        count.live += 1;
        count.ever += 1;
        let site = &mut self.sites[count.site as usize];
        site.last_serial = serial;
        // Time may step back by a stamp interval between threads (trace::event.E3); first and last must not.
        site.first_ns = site.first_ns.min(time_ns);
        site.last_ns = site.last_ns.max(time_ns);
    }

    /// Notes that a block of the cell was released for good, and counts whether it was a temporary or lived briefly;
    /// `next` is the serial of the next acquisition.
    #[inline(always)]
    pub fn release(&mut self, cell: CellId, serial: u32, next: u32) {
        let count = &mut self.cells[cell.0 as usize].count;
        save(count, self.epoch);
        note(count, self.bucket, &mut self.noted, cell);
        count.live -= 1;
        let site = &mut self.sites[count.site as usize];
        let temporary = site.last_serial == serial;
        site.temporaries += u64::from(temporary);
        site.brief += u64::from(temporary | (next.wrapping_sub(serial) <= BRIEF));
    }

    /// Notes that a block of the cell became another one.
    #[inline]
    pub fn regrown(&mut self, cell: CellId) {
        let count = &mut self.cells[cell.0 as usize].count;
        save(count, self.epoch);
        note(count, self.bucket, &mut self.noted, cell);
        count.live -= 1;
    }

    /// Notes a live block that this process did not acquire.
    pub fn inherit(&mut self, cell: CellId) {
        self.cells[cell.0 as usize].count.live += 1;
    }

    /// Notes that the live heap is at a new maximum.
    #[inline]
    pub fn new_peak(&mut self) {
        self.epoch += 1;
    }

    /// Returns the live blocks of a cell at the largest live heap (C2).
    pub fn live_at_heap_peak(&self, cell: usize) -> u32 {
        let count = &self.cells[cell].count;
        if count.epoch == self.epoch {
            count.saved
        } else {
            count.live
        }
    }

    /// Returns the blocks of a cell acquired up to the largest live heap (C2).
    pub(crate) fn ever_at_heap_peak(&self, cell: usize) -> u64 {
        let count = &self.cells[cell].count;
        if count.epoch == self.epoch {
            count.saved_ever
        } else {
            count.ever
        }
    }

    /// Closes the open bucket, if there is one, and opens the next: from here on changes are noted (C4). What was
    /// noted in the closed one is moved to `into`, which must be empty.
    pub(crate) fn next_bucket(&mut self, into: &mut Vec<Noted>) {
        std::mem::swap(&mut self.noted, into);
        // A bucket takes microseconds at the least: the number does not wrap within a month.
        self.bucket = self.bucket.checked_add(1).unwrap_or(1);
    }

    /// Returns the live blocks of a cell, and those that it ever acquired.
    pub(crate) fn live_and_ever(&self, cell: CellId) -> (u32, u64) {
        let count = &self.cells[cell.0 as usize].count;
        (count.live, count.ever)
    }

    /// Returns how many cells changed in the open bucket.
    pub(crate) fn noted_len(&self) -> usize {
        self.noted.len()
    }

    /// Returns the keys, by [`CellId`].
    pub fn keys(&self) -> &[CellKey] {
        &self.keys
    }

    /// Returns the counts, by [`CellId`].
    pub fn counts(&self) -> impl ExactSizeIterator<Item = &CellCount> {
        self.cells.iter().map(|cell| &cell.count)
    }

    /// Returns what a cell stands for.
    #[inline]
    pub fn key(&self, cell: CellId) -> CellKey {
        self.cells[cell.0 as usize].key
    }

    /// Returns the index of a cell's site.
    #[inline]
    pub fn site_of(&self, cell: CellId) -> usize {
        self.cells[cell.0 as usize].count.site as usize
    }

    /// Returns the sites.
    pub fn sites(&self) -> &[SiteCount] {
        &self.sites
    }
}

#[inline]
fn save(count: &mut CellCount, epoch: u64) {
    if count.epoch != epoch {
        count.epoch = epoch;
        count.saved = count.live;
        count.saved_ever = count.ever;
    }
}

/// Notes a cell before its first change in a bucket (C4).
#[inline]
fn note(count: &mut CellCount, bucket: u32, noted: &mut Vec<Noted>, cell: CellId) {
    if count.bucket != bucket {
        count.bucket = bucket;
        noted.push(Noted {
            cell,
            live: count.live,
            ever: count.ever,
        });
    }
}
