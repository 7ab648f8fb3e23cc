//! Figures by cell for any window of the run, in bounded memory.
//!
//! ```text
//!   start   edge    edge  peak        mark          edge   end      edges: instants, and what activity wants
//!     │ bucket │ bucket │bucket│  bucket  │  bucket   │ ... │        bucket: (cell, acquired, released)*
//!     └────────┴────────┴──────┴──────────┴───────────┴─────┘
//!   too many ──► neighbours merge, cheapest first, never across an instant
//!            ──► the sizes of a stack, smallest first, are counted together
//!            ──► fewer edges still, and at last the smallest stacks are counted together
//! ```
//!
//! W1  An edge is a place in the order of events; the content of a bucket is exact, whatever was merged.
//! W2  An instant is an edge and stays one. The heap peak is known only at the end: its bucket is cut
//!     in two by the counts that cells saved (cells.C2).
//! W3  There are at most `WindowLimits::edges` edges (instants among them are never merged), and
//!     `WindowLimits::changes` changes, unless three for each edge are more. Between two compactions there is at most
//!     one bucket more, so memory is bounded by cells and limits, never by events.
//! W4  All cells together equal the ledger at each edge: in blocks, requested bytes and usable bytes.
//! W5  Neighbours merge by what they span: share of the time plus share of the events. So a burst
//!     keeps its edges beside hours of idling, and idling takes none.
//! W6  What is counted together is three cells of one site (or of none): one counts blocks, one requested bytes, one
//!     usable bytes. So a change is two numbers, whatever it belongs to.
//!
//! Not here: when an instant has come (`analyzer.rs`), how the page packs this (`view`).

use rustc_hash::FxHashMap;

use crate::cells::{Cells, Noted};
use crate::facts::WindowLimits;
use crate::ledger::{HeapPeak, Ledger};
use crate::model::{Site, WindowCell, WindowEdge, Windows};
use crate::pass::CellId;

/// The share of time plus events in one bucket beyond which sizes are counted together rather than edges merged.
const COARSE: f64 = 1.0 / 128.0;
/// The share beyond which stacks are counted together: at least some sixty edges stay.
const COARSEST: f64 = 1.0 / 16.0;
/// Edges are made this many times as fine as they are kept, so that merging has a choice.
const FINER: f64 = 4.0;
/// The first step: shorter than the distance between time stamps of events.
const FIRST_STEP_NS: u64 = 1 << 14;
/// Numbers of cells from here on stand for sums (W6): three for each site of the ledger.
const SUMS: u32 = 1 << 31;
/// The site of stacks that are counted together.
const NO_SITE: u32 = (SUMS - 4) / 3;

/// The change of one cell within a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Change {
    cell: u32,
    acquired: u64,
    released: u64,
}

/// The changes from an edge to the next.
#[derive(Clone, Debug, Default)]
struct Bucket {
    end: WindowEdge,
    /// The changes by cell.
    changes: Vec<Change>,
}

/// The buckets, while events go by.
#[derive(Debug)]
pub(crate) struct Recorder {
    limits: WindowLimits,
    start: WindowEdge,
    buckets: Vec<Bucket>,
    /// The number of changes in all buckets.
    changes: usize,
    /// Live blocks at the start, by cell.
    start_blocks: Vec<u32>,
    /// Which cells are counted together, and whether new cells are, too.
    folded: Vec<bool>,
    fold_new: bool,
    /// Which sites of the ledger are counted together.
    folded_sites: Vec<bool>,
    /// The most that a merged bucket may span, as a share of the time plus a share of the events (W5).
    span: f64,
    /// The time after which the first event wants an edge before it.
    pub next_ns: u64,
    noted: Vec<Noted>,
}

impl Recorder {
    /// Begins before the first event of our own: what lives now was inherited.
    pub(crate) fn begin(limits: WindowLimits, ledger: &mut Ledger) -> Recorder {
        let mut recorder = Recorder {
            limits,
            start: WindowEdge::default(),
            buckets: Vec::new(),
            changes: 0,
            start_blocks: ledger.cells.counts().map(|count| count.live).collect(),
            folded: Vec::new(),
            fold_new: false,
            folded_sites: Vec::new(),
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

    /// Makes an edge before the next event, at `time_ns` and later than `next_ns`, if anything changed.
    pub(crate) fn step(&mut self, time_ns: u64, ledger: &mut Ledger) {
        let now_ns = ledger.now_ns();
        if ledger.cells.noted_len() > 0 && now_ns > self.last_edge().time_ns {
            self.close(now_ns, None, ledger);
        }
        let step_ns = (time_ns as f64 * self.span / FINER) as u64;
        self.next_ns = time_ns.saturating_add(step_ns.max(FIRST_STEP_NS));
    }

    /// Makes an edge for an instant (W2).
    pub(crate) fn instant(&mut self, instant: usize, time_ns: u64, ledger: &mut Ledger) {
        let time_ns = time_ns.max(self.last_edge().time_ns);
        if ledger.cells.noted_len() == 0 && self.last_edge().time_ns == time_ns {
            self.last_edge().instants.push(instant as u32);
        } else {
            self.close(time_ns, Some(instant as u32), ledger);
        }
    }

    /// Forgets an instant that is not there after all: its edge stays, as one of activity. Cost: the edges.
    pub(crate) fn forget(&mut self, instant: usize) {
        self.place(instant, None);
    }

    /// Gives the instant another number, or none. Cost: the edges.
    pub(crate) fn place(&mut self, instant: usize, number: Option<usize>) {
        let edges = self.buckets.iter_mut().map(|bucket| &mut bucket.end);
        for edge in edges.chain([&mut self.start]) {
            let before = edge.instants.len();
            edge.instants.retain(|one| *one as usize != instant);
            if before > edge.instants.len() {
                edge.instants.extend(number.map(|number| number as u32));
            }
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
            self.put(&mut bucket.changes, change, &ledger.cells);
        }
        settle(&mut bucket.changes);
        self.noted = noted;
        self.changes += bucket.changes.len();
        self.buckets.push(bucket);
        if self.buckets.len() >= self.limits.edges || self.changes > self.limits.changes {
            self.compact(&ledger.cells);
        }
    }

    fn is_folded(&self, cell: usize) -> bool {
        self.folded.get(cell).copied().unwrap_or(self.fold_new)
    }

    /// Returns the first of the three cells that a cell's blocks are counted in (W6).
    fn sums_of(&self, cell: usize, cells: &Cells) -> u32 {
        let site = cells.site_of(CellId(cell as u32));
        match self.folded_sites.get(site) {
            Some(true) => SUMS + 3 * NO_SITE,
            _ => SUMS + 3 * site as u32,
        }
    }

    /// Adds a change of a cell of the ledger, as what it is counted as; `settle` must still be called.
    fn put(&self, changes: &mut Vec<Change>, change: Change, cells: &Cells) {
        if change.acquired == 0 && change.released == 0 {
            return;
        }
        if !self.is_folded(change.cell as usize) {
            changes.push(change);
            return;
        }
        let key = &cells.keys()[change.cell as usize];
        let sums = self.sums_of(change.cell as usize, cells);
        for (cell, unit) in (sums..).zip([1, key.size, key.usable]) {
            // The sums wrap as the ledger's own totals do: a damaged trace may name any size.
            changes.push(Change {
                cell,
                acquired: change.acquired.wrapping_mul(unit),
                released: change.released.wrapping_mul(unit),
            });
        }
    }

    /// Brings the buckets well below the limits again (W3).
    fn compact(&mut self, cells: &Cells) {
        let (edges, changes) = (self.limits.edges / 4 * 3, self.limits.changes / 4 * 3);
        loop {
            self.merge();
            let crowded = self.buckets.len() >= edges && self.span < 2.0;
            let full = self.changes > changes;
            if crowded || (full && self.span < COARSE) {
                self.span *= 1.25;
            } else if full && self.fold_sizes(cells) {
                continue;
            } else if full && self.span < COARSEST {
                self.span *= 1.25;
            } else if !(full && self.fold_sites(cells)) {
                break;
            }
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

    /// Returns how many changes each separate cell has; `None` if there is none.
    fn places(&self, cells: &Cells) -> Option<Vec<usize>> {
        let mut places = vec![0usize; cells.keys().len()];
        let mut any = false;
        for change in self.buckets.iter().flat_map(|bucket| &bucket.changes) {
            if change.cell < SUMS {
                places[change.cell as usize] += 1;
                any = true;
            }
        }
        any.then_some(places)
    }

    /// Counts the smallest cells of a stack together, by usable bytes over the run, until a quarter of the changes is
    /// of separate cells. New cells count as small. Returns false if nothing is left.
    fn fold_sizes(&mut self, cells: &Cells) -> bool {
        let Some(places) = self.places(cells) else {
            return false;
        };
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
        self.folded.resize(cells.keys().len(), self.fold_new);
        self.fold_new = true;
        let mut apart: usize = places.iter().sum();
        let enough = apart / 4;
        for (_, cell) in smallest {
            if apart <= enough {
                break;
            }
            self.folded[cell] = true;
            apart -= places[cell];
        }
        self.recount(cells);
        true
    }

    /// Counts the stacks whose cells are all counted together as one: half of them, by usable bytes.
    fn fold_sites(&mut self, cells: &Cells) -> bool {
        self.folded_sites.resize(cells.sites().len(), false);
        let mut bytes = vec![0u64; cells.sites().len()];
        for (key, count) in cells.keys().iter().zip(cells.counts()) {
            let of_site = &mut bytes[count.site as usize];
            *of_site = of_site.saturating_add(key.usable.saturating_mul(count.ever));
        }
        let mut smallest: Vec<(u64, usize)> = bytes
            .into_iter()
            .zip(0..)
            .filter(|(_, site)| !self.folded_sites[*site])
            .collect();
        smallest.sort_unstable();
        for (_, site) in &smallest[..smallest.len().div_ceil(2)] {
            self.folded_sites[*site] = true;
        }
        self.recount(cells);
        !smallest.is_empty()
    }

    /// Counts what is now folded in its new place.
    fn recount(&mut self, cells: &Cells) {
        let mut buckets = std::mem::take(&mut self.buckets);
        for bucket in &mut buckets {
            for change in std::mem::take(&mut bucket.changes) {
                let site = change.cell.wrapping_sub(SUMS) / 3;
                if change.cell < SUMS {
                    self.put(&mut bucket.changes, change, cells);
                } else if self.folded_sites.get(site as usize) == Some(&true) {
                    let cell = change.cell - 3 * site + 3 * NO_SITE;
                    bucket.changes.push(Change { cell, ..change });
                } else {
                    bucket.changes.push(change);
                }
            }
            settle(&mut bucket.changes);
        }
        self.changes = buckets.iter().map(|bucket| bucket.changes.len()).sum();
        self.buckets = buckets;
    }

    /// Returns the cells that a cell of the ledger is counted as: number, and units for each block.
    fn counted_as(&self, cell: usize, cells: &Cells) -> impl Iterator<Item = (u32, u64)> + use<> {
        let key = &cells.keys()[cell];
        let folded = self.is_folded(cell);
        let (first, count) = match folded {
            true => (self.sums_of(cell, cells), 3),
            false => (cell as u32, 1),
        };
        (first..).zip([1, key.size, key.usable]).take(count)
    }

    /// Ends the recording, with the end as an edge: adds the heap peak, and writes everything down.
    pub(crate) fn finish(mut self, peak: usize, ledger: &Ledger, sites: &[Site]) -> Windows {
        self.cut_at_heap_peak(peak as u32, ledger);
        let cells = ledger.cells();
        let mut windows = Windows::default();
        let mut used: FxHashMap<u32, u64> = FxHashMap::default();
        for change in self.buckets.iter().flat_map(|bucket| &bucket.changes) {
            used.entry(change.cell).or_default();
        }
        for cell in 0..cells.keys().len() {
            windows.folded_cells += u64::from(self.is_folded(cell));
            let start = u64::from(self.start_blocks.get(cell).copied().unwrap_or(0));
            if start > 0 {
                for (cell, unit) in self.counted_as(cell, cells) {
                    let units = used.entry(cell).or_default();
                    *units = units.wrapping_add(start.wrapping_mul(unit));
                }
            }
        }
        let by_node: FxHashMap<u32, u32> = sites.iter().map(|site| site.node).zip(0..).collect();
        let site_of = |site: usize| {
            let known = cells.sites().get(site);
            known.and_then(|known| by_node.get(&known.node.0)).copied()
        };
        let mut order: Vec<(WindowCell, u32)> = used
            .into_iter()
            .map(|(cell, start)| (window_cell(cell, start, cells, &site_of), cell))
            .collect();
        order.sort_unstable();
        let new_ids: FxHashMap<u32, u32> = order.iter().map(|(_, cell)| *cell).zip(0..).collect();
        windows.cells = order.into_iter().map(|(row, _)| row).collect();
        windows.edges.push(self.start);
        for mut bucket in self.buckets {
            for change in &mut bucket.changes {
                change.cell = new_ids[&change.cell];
            }
            bucket.changes.sort_unstable_by_key(|change| change.cell);
            for change in &bucket.changes {
                windows.changed_cell.push(change.cell);
                windows.acquired.push(change.acquired);
                windows.released.push(change.released);
            }
            windows.bucket_ends.push(windows.changed_cell.len() as u64);
            windows.edges.push(bucket.end);
        }
        windows
    }

    /// Cuts the bucket of the heap peak in two (W2).
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
        for change in &first.changes {
            // Both are ordered by cell, and the first part has no cell that the whole does not have.
            if let Ok(same) = rest
                .changes
                .binary_search_by_key(&change.cell, |one| one.cell)
            {
                let whole = &mut rest.changes[same];
                whole.acquired = whole.acquired.wrapping_sub(change.acquired);
                whole.released = whole.released.wrapping_sub(change.released);
            }
        }
        rest.changes
            .retain(|change| change.acquired > 0 || change.released > 0);
        self.buckets.insert(at, first);
    }

    /// Returns the part of bucket `at` up to the heap peak: what cells saved then, minus all buckets before.
    fn up_to_heap_peak(&self, at: usize, peak: &HeapPeak, instant: u32, ledger: &Ledger) -> Bucket {
        let cells = ledger.cells();
        let changes = self.buckets[at].changes.iter();
        let mut then: FxHashMap<u32, (u64, u64)> =
            changes.map(|change| (change.cell, (0, 0))).collect();
        for cell in 0..cells.keys().len() {
            let start = u64::from(self.start_blocks.get(cell).copied().unwrap_or(0));
            let ever = cells.ever_at_heap_peak(cell);
            let gone = start + ever - u64::from(cells.live_at_heap_peak(cell));
            for (cell, unit) in self.counted_as(cell, cells) {
                if let Some(sums) = then.get_mut(&cell) {
                    sums.0 = sums.0.wrapping_add(ever.wrapping_mul(unit));
                    sums.1 = sums.1.wrapping_add(gone.wrapping_mul(unit));
                }
            }
        }
        for change in self.buckets[..at].iter().flat_map(|one| &one.changes) {
            if let Some(sums) = then.get_mut(&change.cell) {
                sums.0 = sums.0.wrapping_sub(change.acquired);
                sums.1 = sums.1.wrapping_sub(change.released);
            }
        }
        let mut changes: Vec<Change> = then
            .into_iter()
            .map(|(cell, (acquired, released))| Change {
                cell,
                acquired,
                released,
            })
            .collect();
        settle(&mut changes);
        let from_ns = match at.checked_sub(1) {
            Some(last) => self.buckets[last].end.time_ns,
            None => self.start.time_ns,
        };
        let to_ns = self.buckets[at].end.time_ns;
        let end = WindowEdge {
            time_ns: peak.time_ns.clamp(from_ns, to_ns),
            events: peak.events,
            instants: vec![instant],
        };
        Bucket { end, changes }
    }
}

/// Returns a cell as it is written down (W6).
fn window_cell(
    cell: u32,
    start: u64,
    cells: &Cells,
    site_of: &impl Fn(usize) -> Option<u32>,
) -> WindowCell {
    if cell < SUMS {
        let key = cells.key(CellId(cell));
        return WindowCell {
            site: site_of(cells.site_of(CellId(cell))),
            blocks: 1,
            size: key.size,
            usable: key.usable,
            start,
        };
    }
    let unit = |kind| u64::from((cell - SUMS) % 3 == kind);
    WindowCell {
        site: site_of(((cell - SUMS) / 3) as usize),
        blocks: unit(0),
        size: unit(1),
        usable: unit(2),
        start,
    }
}

/// Sums changes by cell: each cell once, and none without a change.
fn settle(changes: &mut Vec<Change>) {
    changes.sort_unstable_by_key(|change| change.cell);
    changes.dedup_by(|next, kept| {
        let same = next.cell == kept.cell;
        if same {
            kept.acquired = kept.acquired.wrapping_add(next.acquired);
            kept.released = kept.released.wrapping_add(next.released);
        }
        same
    });
    changes.retain(|change| change.acquired > 0 || change.released > 0);
    // Counting cells together leaves a vector several times as long as its content.
    changes.shrink_to_fit();
}

/// Adds a bucket to the one before it.
fn join(before: &mut Bucket, after: Bucket) {
    before.end = after.end;
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
                acquired: a.acquired.wrapping_add(b.acquired),
                released: a.released.wrapping_add(b.released),
            },
        });
    }
    both.extend(old.chain(new));
    both.shrink_to_fit();
}
