//! Figures by cell for any window of the run, in bounded memory.
//!
//! ```text
//!   start   edge    edge  peak        mark          edge   end      edges: instants, and what activity wants
//!     │ bucket │ bucket │bucket│  bucket  │  bucket   │ ... │        bucket: (cell, acquired, released)*
//!     └────────┴────────┴──────┴──────────┴───────────┴─────┘
//!   too many ──► neighbours merge, cheapest first, never across an instant ──► then the smallest cells
//!                are counted together
//! ```
//!
//! W1  An edge is a place in the order of events; what a bucket holds is exact, whatever was merged.
//! W2  An instant is an edge and stays one. The heap peak is known only at the end: its bucket is cut
//!     in two by the counts that cells saved (C2 of `cells.rs`).
//! W3  At most `WindowLimits::edges` edges (of which instants are never merged) and
//!     `WindowLimits::changes` changes after each compaction; between two compactions at most one
//!     bucket more, so memory is bounded by cells and limits, never by events.
//! W4  Cells that are told apart and the others add up to the ledger, at each edge.
//! W5  Neighbours merge by what they span: share of the time plus share of the events. So a burst
//!     keeps its edges beside hours of idling, and idling takes none.
//!
//! Not here: when an instant has come (`analyzer.rs`), how the page packs this (`view`).

use rustc_hash::FxHashMap;

use crate::cells::{Cells, Noted};
use crate::facts::WindowLimits;
use crate::ledger::{HeapPeak, Ledger};
use crate::model::{Site, WindowCell, WindowEdge, WindowSum, Windows};
use crate::pass::CellKey;

/// Beyond this share of time plus events in one bucket, cells are put together rather than edges:
/// at least some sixty edges stay.
const COARSEST: f64 = 1.0 / 16.0;
/// Edges are made eight times as fine as they are kept, so that merging has a choice.
const FINER: f64 = 8.0;
/// The first step: shorter than the time stamps of events are apart.
const FIRST_STEP_NS: u64 = 1 << 14;

/// What one cell did within a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Change {
    cell: u32,
    acquired: u64,
    released: u64,
}

/// From an edge to the next.
#[derive(Clone, Debug, Default)]
struct Bucket {
    end: WindowEdge,
    /// By cell.
    changes: Vec<Change>,
    others_acquired: WindowSum,
    others_released: WindowSum,
}

/// The buckets while events go by.
#[derive(Debug)]
pub(crate) struct Recorder {
    limits: WindowLimits,
    start: WindowEdge,
    buckets: Vec<Bucket>,
    /// Changes in all buckets.
    changes: usize,
    /// Live blocks at the start, by cell.
    start_blocks: Vec<u32>,
    /// Cells that are counted together.
    folded: Vec<bool>,
    /// Most that a merged bucket may span, as a share of the time plus a share of the events (W5).
    span: f64,
    /// The first event later than this wants an edge before it.
    pub next_ns: u64,
    noted: Vec<Noted>,
}

impl WindowSum {
    fn add(&mut self, key: &CellKey, blocks: u64) {
        self.blocks = self.blocks.wrapping_add(blocks);
        let bytes = |size: u64| size.wrapping_mul(blocks);
        self.requested_bytes = self.requested_bytes.wrapping_add(bytes(key.size));
        self.usable_bytes = self.usable_bytes.wrapping_add(bytes(key.usable));
    }

    /// Wrapping as the ledger's own totals do: a damaged trace may name any size.
    fn plus(self, other: WindowSum) -> WindowSum {
        WindowSum {
            blocks: self.blocks.wrapping_add(other.blocks),
            requested_bytes: self.requested_bytes.wrapping_add(other.requested_bytes),
            usable_bytes: self.usable_bytes.wrapping_add(other.usable_bytes),
        }
    }

    fn minus(self, other: WindowSum) -> WindowSum {
        WindowSum {
            blocks: self.blocks.wrapping_sub(other.blocks),
            requested_bytes: self.requested_bytes.wrapping_sub(other.requested_bytes),
            usable_bytes: self.usable_bytes.wrapping_sub(other.usable_bytes),
        }
    }
}

impl Recorder {
    /// Before the first event of our own: what lives now was inherited.
    pub(crate) fn begin(limits: WindowLimits, ledger: &mut Ledger) -> Recorder {
        let mut recorder = Recorder {
            limits,
            start: WindowEdge::default(),
            buckets: Vec::new(),
            changes: 0,
            start_blocks: ledger.cells.counts().map(|count| count.live).collect(),
            folded: Vec::new(),
            span: (4.0 / limits.edges.max(4) as f64).min(2.0),
            next_ns: FIRST_STEP_NS,
            noted: Vec::new(),
        };
        ledger.cells.next_bucket(&mut recorder.noted);
        recorder
    }

    fn last_edge(&mut self) -> &mut WindowEdge {
        match self.buckets.last_mut() {
            Some(bucket) => &mut bucket.end,
            None => &mut self.start,
        }
    }

    /// An event at `time_ns` is next, later than `next_ns`: an edge before it, if anything changed.
    pub(crate) fn step(&mut self, time_ns: u64, ledger: &mut Ledger) {
        let now_ns = ledger.now_ns();
        if ledger.cells.noted_len() > 0 && now_ns > self.last_edge().time_ns {
            self.close(now_ns, None, ledger);
        }
        let step_ns = (time_ns as f64 * self.span / FINER) as u64;
        self.next_ns = time_ns.saturating_add(step_ns.max(FIRST_STEP_NS));
    }

    /// An instant is here (W2).
    pub(crate) fn instant(&mut self, instant: usize, time_ns: u64, ledger: &mut Ledger) {
        let time_ns = time_ns.max(self.last_edge().time_ns);
        if ledger.cells.noted_len() == 0 && self.last_edge().time_ns == time_ns {
            self.last_edge().instants.push(instant as u32);
        } else {
            self.close(time_ns, Some(instant as u32), ledger);
        }
    }

    fn close(&mut self, time_ns: u64, instant: Option<u32>, ledger: &mut Ledger) {
        let mut noted = std::mem::take(&mut self.noted);
        noted.clear();
        ledger.cells.next_bucket(&mut noted);
        noted.sort_unstable_by_key(|one| one.cell);
        let mut bucket = Bucket {
            end: WindowEdge {
                time_ns,
                events: ledger.counts().events,
                instants: instant.into_iter().collect(),
            },
            ..Bucket::default()
        };
        for before in &noted {
            let (live, ever) = ledger.cells.live_and_ever(before.cell);
            let acquired = ever - before.ever;
            let change = Change {
                cell: before.cell.0,
                acquired,
                released: acquired + u64::from(before.live) - u64::from(live),
            };
            self.put(&mut bucket, change, &ledger.cells);
        }
        self.noted = noted;
        self.changes += bucket.changes.len();
        self.buckets.push(bucket);
        if self.buckets.len() >= self.limits.edges || self.changes > self.limits.changes {
            self.compact(&ledger.cells);
        }
    }

    fn put(&self, bucket: &mut Bucket, change: Change, cells: &Cells) {
        if self.folded.get(change.cell as usize) == Some(&true) {
            let key = &cells.keys()[change.cell as usize];
            bucket.others_acquired.add(key, change.acquired);
            bucket.others_released.add(key, change.released);
        } else if change.acquired > 0 || change.released > 0 {
            bucket.changes.push(change);
        }
    }

    /// Back to three quarters of the limits (W3).
    fn compact(&mut self, cells: &Cells) {
        let (edges, changes) = (self.limits.edges / 4 * 3, self.limits.changes / 4 * 3);
        loop {
            self.merge();
            let crowded = self.buckets.len() >= edges && self.span < 2.0;
            let full = self.changes > changes && self.span < COARSEST;
            if !crowded && !full {
                break;
            }
            self.span *= 1.25;
        }
        if self.changes > changes {
            self.fold(cells);
        }
    }

    /// Merges neighbours up to the span (W5).
    fn merge(&mut self) {
        let end = self.last_edge().clone();
        let (whole_ns, whole) = (end.time_ns.max(1) as f64, end.events.max(1) as f64);
        let mut merged: Vec<Bucket> = Vec::with_capacity(self.buckets.len());
        let (mut from_ns, mut from) = (self.start.time_ns, self.start.events);
        for bucket in std::mem::take(&mut self.buckets) {
            let span = (bucket.end.time_ns - from_ns) as f64 / whole_ns
                + (bucket.end.events - from) as f64 / whole;
            match merged.last_mut() {
                Some(before) if before.end.instants.is_empty() && span <= self.span => {
                    join(before, bucket);
                }
                before => {
                    let before = before.map_or(&self.start, |before| &before.end);
                    (from_ns, from) = (before.time_ns, before.events);
                    merged.push(bucket);
                }
            }
        }
        self.changes = merged.iter().map(|bucket| bucket.changes.len()).sum();
        self.buckets = merged;
    }

    /// Counts the smallest cells together, by bytes given over the run, until half the changes are left.
    fn fold(&mut self, cells: &Cells) {
        let mut places = vec![0usize; cells.keys().len()];
        for change in self.buckets.iter().flat_map(|bucket| &bucket.changes) {
            places[change.cell as usize] += 1;
        }
        let bytes = cells
            .keys()
            .iter()
            .zip(cells.counts())
            .map(|(key, count)| key.usable.saturating_mul(count.ever));
        let mut smallest: Vec<(u64, usize)> = bytes
            .zip(0..)
            .filter(|(_, cell)| places[*cell] > 0)
            .collect();
        smallest.sort_unstable();
        self.folded.resize(cells.keys().len(), false);
        for (_, cell) in smallest {
            if self.changes <= self.limits.changes / 2 {
                break;
            }
            self.folded[cell] = true;
            self.changes -= places[cell];
        }
        let mut buckets = std::mem::take(&mut self.buckets);
        for bucket in &mut buckets {
            for change in std::mem::take(&mut bucket.changes) {
                self.put(bucket, change, cells);
            }
        }
        self.buckets = buckets;
    }

    /// Everything has been seen, and the end is an edge: adds the heap peak, and writes it all down.
    pub(crate) fn finish(mut self, peak: usize, ledger: &Ledger, sites: &[Site]) -> Windows {
        self.cut_at_heap_peak(peak as u32, ledger);
        let cells = ledger.cells();
        let by_node: FxHashMap<u32, u32> = sites.iter().map(|site| site.node).zip(0..).collect();
        let start = |cell: usize| u64::from(self.start_blocks.get(cell).copied().unwrap_or(0));
        let mut listed: Vec<bool> = (0..cells.keys().len())
            .map(|cell| start(cell) > 0)
            .collect();
        for change in self.buckets.iter().flat_map(|bucket| &bucket.changes) {
            listed[change.cell as usize] = true;
        }
        let mut windows = Windows::default();
        let mut order: Vec<(WindowCell, u32)> = Vec::new();
        for (cell, key) in cells.keys().iter().enumerate() {
            if self.folded.get(cell) == Some(&true) {
                windows.others_cells += 1;
                windows.others_start.add(key, start(cell));
            } else if listed[cell] {
                let row = WindowCell {
                    site: by_node.get(&key.node.0).copied().unwrap_or(0),
                    size: key.size,
                    usable: key.usable,
                    start_blocks: start(cell),
                };
                order.push((row, cell as u32));
            }
        }
        order.sort_unstable();
        let mut new_ids = vec![u32::MAX; cells.keys().len()];
        for ((_, cell), id) in order.iter().zip(0..) {
            new_ids[*cell as usize] = id;
        }
        windows.cells = order.into_iter().map(|(row, _)| row).collect();
        windows.edges.push(self.start);
        for mut bucket in self.buckets {
            for change in &mut bucket.changes {
                change.cell = new_ids[change.cell as usize];
            }
            bucket.changes.sort_unstable_by_key(|change| change.cell);
            for change in &bucket.changes {
                windows.changed_cell.push(change.cell);
                windows.acquired_blocks.push(change.acquired);
                windows.released_blocks.push(change.released);
            }
            windows.bucket_ends.push(windows.changed_cell.len() as u64);
            windows.edges.push(bucket.end);
            if windows.others_cells > 0 {
                windows.others_acquired.push(bucket.others_acquired);
                windows.others_released.push(bucket.others_released);
            }
        }
        windows
    }

    /// W2.
    fn cut_at_heap_peak(&mut self, instant: u32, ledger: &Ledger) {
        let peak = ledger.heap_peak();
        if peak.events == 0 {
            return self.start.instants.push(instant);
        }
        let at = self
            .buckets
            .partition_point(|bucket| bucket.end.events < peak.events);
        if at == self.buckets.len() {
            return;
        }
        if self.buckets[at].end.events == peak.events {
            return self.buckets[at].end.instants.push(instant);
        }
        let first = self.up_to_heap_peak(at, &peak, instant, ledger);
        let rest = &mut self.buckets[at];
        rest.others_acquired = rest.others_acquired.minus(first.others_acquired);
        rest.others_released = rest.others_released.minus(first.others_released);
        for change in &first.changes {
            // Both are by cell, and the first part has no cell that the whole has not.
            if let Ok(same) = rest
                .changes
                .binary_search_by_key(&change.cell, |one| one.cell)
            {
                rest.changes[same].acquired -= change.acquired;
                rest.changes[same].released -= change.released;
            }
        }
        rest.changes
            .retain(|change| change.acquired > 0 || change.released > 0);
        self.buckets.insert(at, first);
    }

    /// The part of bucket `at` up to the heap peak: what cells saved then, minus all buckets before.
    fn up_to_heap_peak(&self, at: usize, peak: &HeapPeak, instant: u32, ledger: &Ledger) -> Bucket {
        let cells = ledger.cells();
        let mut before = vec![(0u64, 0u64); cells.keys().len()];
        let mut bucket = Bucket::default();
        for earlier in &self.buckets[..at] {
            for change in &earlier.changes {
                let sums = &mut before[change.cell as usize];
                sums.0 += change.acquired;
                sums.1 += change.released;
            }
            bucket.others_acquired = bucket.others_acquired.plus(earlier.others_acquired);
            bucket.others_released = bucket.others_released.plus(earlier.others_released);
        }
        let then = |cell: usize| {
            let start = u64::from(self.start_blocks.get(cell).copied().unwrap_or(0));
            let (ever, live) = (cells.ever_at_heap_peak(cell), cells.live_at_heap_peak(cell));
            (ever, start + ever - u64::from(live))
        };
        for change in &self.buckets[at].changes {
            let cell = change.cell as usize;
            let (acquired, released) = then(cell);
            let part = Change {
                cell: change.cell,
                acquired: acquired - before[cell].0,
                released: released - before[cell].1,
            };
            if part.acquired > 0 || part.released > 0 {
                bucket.changes.push(part);
            }
        }
        let (mut acquired, mut released) = (WindowSum::default(), WindowSum::default());
        for (cell, key) in cells.keys().iter().enumerate() {
            if self.folded.get(cell) == Some(&true) {
                let (ever, gone) = then(cell);
                acquired.add(key, ever);
                released.add(key, gone);
            }
        }
        bucket.others_acquired = acquired.minus(bucket.others_acquired);
        bucket.others_released = released.minus(bucket.others_released);
        let from_ns = match at.checked_sub(1) {
            Some(last) => self.buckets[last].end.time_ns,
            None => self.start.time_ns,
        };
        let to_ns = self.buckets[at].end.time_ns;
        bucket.end = WindowEdge {
            time_ns: peak.time_ns.clamp(from_ns, to_ns),
            events: peak.events,
            instants: vec![instant],
        };
        bucket
    }
}

/// Adds a bucket to the one before it.
fn join(before: &mut Bucket, after: Bucket) {
    before.end = after.end;
    before.others_acquired = before.others_acquired.plus(after.others_acquired);
    before.others_released = before.others_released.plus(after.others_released);
    let mut old = std::mem::take(&mut before.changes).into_iter().peekable();
    let mut new = after.changes.into_iter().peekable();
    let both = &mut before.changes;
    both.reserve_exact(old.len().max(new.len()));
    while let (Some(a), Some(b)) = (old.peek().copied(), new.peek().copied()) {
        if a.cell <= b.cell {
            old.next();
        }
        if b.cell <= a.cell {
            new.next();
        }
        both.push(match a.cell.cmp(&b.cell) {
            std::cmp::Ordering::Less => a,
            std::cmp::Ordering::Greater => b,
            std::cmp::Ordering::Equal => Change {
                cell: a.cell,
                acquired: a.acquired + b.acquired,
                released: a.released + b.released,
            },
        });
    }
    both.extend(old.chain(new));
}
