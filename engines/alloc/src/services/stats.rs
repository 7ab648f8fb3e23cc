//! The figures: what the allocator holds, row by row, and the sums that must agree.
//!
//! ```text
//!   mapped   = small + large + in_spans + holes + reserve + dirty + clean + others
//!   resident = the same rows by the kernel's count (mincore), page by page, + metadata
//! ```
//!
//! B1  A snapshot is taken while all slow paths stand still: the purger's lock, every heap's, and the pool's are held.
//!     So no page changes its row meanwhile. Threads may go on to take and free blocks in their current spans; each
//!     word of bits is read once, and what it says is counted.
//! B2  Every page of HEAP is visited once, by the page map, and counts in one row. The rows add up to the mapped bytes,
//!     exactly, and agree with the counters kept along the way; `balanced` reports it. A snapshot that is not balanced
//!     is a fault of ours.
//! B3  Blocks and usable bytes are exact while no thread allocates or frees. So are requested bytes over all time
//!     (sample.Q3). Slop is exact for large blocks, and estimated for small ones, with its standard error; tenants'
//!     small blocks are in neither.
//! B4  A row's resident part is measured and not inferred: purged pages count as gone only if they are.
//! B5  Nothing here allocates. A snapshot takes some 5 KiB, on the caller's stack or wherever the caller keeps it.
//!
//! Cost: two loads for each 64 blocks, one for each run; with `residency` 10 ns for each page. While it
//! lasts, slow paths wait.
//!
//! Not here: figures as text (`stats_text`), the samples (`sample`).

use skinflint_base::sync::{AtomicU64, Ordering};
use skinflint_base::sys;
use skinflint_pages::{Free, PAGE, Pool};

use super::batch::PURGE_LOCK;
use super::sample::{self, Estimate};
use super::{cgroup, holes, idle, mesh, purger, reserve};
use crate::heaps::large::Large;
use crate::heaps::pool::{HEAPS, heaps, heaps_from, with_pool};
use crate::heaps::thread::who_named;
use crate::heaps::{clean, requests, runs, slow};
use crate::mechanism::class::{self, MAX_CLASSES};
use crate::mechanism::heap::{Heap, owner_of, usage};
use crate::mechanism::lock::{ASKER, Who};
use crate::mechanism::map::descriptor;
use crate::mechanism::publish;
use crate::mechanism::range::base;
use crate::mechanism::span::{KIND_CACHED, KIND_LARGE, KIND_SAMPLED, KIND_SMALL, Span, state};

/// Pages asked about in one call of mincore.
const AT_ONCE: usize = 1_024;

/// The figures of a size class.
#[derive(Clone, Copy, Default, Debug)]
pub struct ClassRow {
    /// Bytes of a block.
    pub size: u32,
    /// Spans.
    pub spans: u32,
    /// Pages of the spans.
    pub pages: u32,
    /// Pages in the spans that were purged.
    pub hole_pages: u32,
    /// Live blocks.
    pub blocks: u64,
}

/// Bytes by their use.
#[derive(Clone, Copy, Default, Debug)]
pub struct Rows {
    /// Usable bytes of live small blocks.
    pub small: usize,
    /// Usable bytes of live large blocks.
    pub large: usize,
    /// Bytes in spans that are in no live block and not purged: free slots and tails.
    pub in_spans: usize,
    /// Pages in spans that were purged and not used since.
    pub holes: usize,
    /// The reserve (`reserve`).
    pub reserve: usize,
    /// Free runs that may be resident.
    pub dirty: usize,
    /// Free runs that are not resident.
    pub clean: usize,
    /// Mappings of other code within the range.
    pub others: usize,
}

impl Rows {
    /// Returns the sum of all rows.
    pub fn sum(&self) -> usize {
        self.small
            + self.large
            + self.in_spans
            + self.holes
            + self.reserve
            + self.dirty
            + self.clean
            + self.others
    }
}

/// Events since the start.
#[derive(Clone, Copy, Default, Debug)]
pub struct Events {
    /// Pages given back to the OS.
    pub purged_pages: u64,
    /// Pages given back to the OS inside spans; part of `purged_pages`.
    pub purged_hole_pages: u64,
    /// Pages inside spans that held nothing and were not resident, and that blocks were taken from: again, or first.
    pub taken_hole_pages: u64,
    /// Pages of free runs used again while they were resident.
    pub reused_pages: u64,
    /// Blocks taken out of the magazines of threads (`idle`).
    pub taken_blocks: u64,
    /// Passes of the purger.
    pub purger_passes: u64,
    /// Number of pages that were made equal to others when the program last idled.
    pub meshed_pages: u64,
    /// Number of the different ones among them.
    pub meshed_groups: u64,
    /// CPU time of the purger.
    pub purger_cpu_ns: u64,
    /// Number of times that HEAP grew.
    pub grown: u64,
    /// Number of times that the OS refused and something was tried.
    pub refusals: u64,
    /// Number of times that the reserve was released.
    pub reserve_releases: u64,
    /// Number of times that a listener was called.
    pub listener_calls: u64,
    /// Number of calls that failed for want of memory.
    pub failures: u64,
}

/// The allocator's figures at a moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Bytes mapped for HEAP.
    pub mapped_bytes: usize,
    /// The mapped bytes by use; their sum is `mapped_bytes`.
    pub mapped: Rows,
    /// The resident part of each row, if it was asked for.
    pub resident: Rows,
    /// Bytes mapped for descriptors and the page map.
    pub metadata_bytes: usize,
    /// Resident bytes of the metadata.
    pub metadata_resident: usize,
    /// Whether `resident` was measured.
    pub measured: bool,
    /// Resident memory of the process by `/proc/self/smaps_rollup`, if `resident` was measured.
    pub process_resident: usize,
    /// The same, where a page that is mapped n times counts as one n-th at each address.
    pub process_proportional: usize,
    /// The part of `process_resident` at addresses whose page the kernel merged with others (KSM). RSS counts each address, PSS
    /// and control groups the page. `None`: the kernel does not say (before Linux 6.6), or it was not asked.
    pub merged_bytes: Option<usize>,
    /// Live small blocks.
    pub small_blocks: u64,
    /// Live large blocks.
    pub large_blocks: u64,
    /// The most large blocks that were live at once. What another thread freed and kept for itself since the purger last looked
    /// counts as live.
    pub large_blocks_max: u64,
    /// The most bytes in live large blocks at once; as for [`Snapshot::large_blocks_max`].
    pub large_bytes_max: usize,
    /// Requested bytes of live large blocks.
    pub large_requested: usize,
    /// Free bytes in threads' magazines: their caches.
    pub magazine_bytes: usize,
    /// Free bytes in the spans that threads allocate from, magazines included.
    pub current_bytes: usize,
    /// Bytes of spans that hold no block and wait for use.
    pub empty_bytes: usize,
    /// Bytes in pages without a live byte that may be resident: what a trim would give back.
    pub trimmable_bytes: usize,
    /// Runs of free pages.
    pub free_runs: usize,
    /// Bytes requested by all calls so far, failed ones included.
    pub requested_total: u64,
    /// Slop of live small blocks of threads, estimated by samples.
    pub slop: Estimate,
    /// Whether `slop` means anything: not while every call goes the slow way.
    pub sampled: bool,
    /// Number of live tenants, whose blocks are in the rows above, too.
    pub tenants: u64,
    /// Number of tenants' live blocks.
    pub tenant_blocks: u64,
    /// Usable bytes of tenants' live small blocks.
    pub tenant_small_bytes: usize,
    /// Usable bytes of tenants' live large blocks.
    pub tenant_large_bytes: usize,
    /// Number of heaps.
    pub heaps: u64,
    /// Number of heaps that a thread has.
    pub thread_heaps: u64,
    /// Events since the start.
    pub events: Events,
    /// Whether all sums hold (B2).
    pub balanced: bool,
    /// Number of classes.
    pub classes: usize,
    /// One row for each class.
    pub class: [ClassRow; MAX_CLASSES],
}

impl Default for Snapshot {
    fn default() -> Self {
        Snapshot::new()
    }
}

impl Snapshot {
    /// Creates a snapshot with nothing in it, which is balanced.
    pub const fn new() -> Snapshot {
        const ROWS: Rows = Rows {
            small: 0,
            large: 0,
            in_spans: 0,
            holes: 0,
            reserve: 0,
            dirty: 0,
            clean: 0,
            others: 0,
        };
        Snapshot {
            mapped_bytes: 0,
            mapped: ROWS,
            resident: ROWS,
            metadata_bytes: 0,
            metadata_resident: 0,
            measured: false,
            process_resident: 0,
            process_proportional: 0,
            merged_bytes: None,
            small_blocks: 0,
            large_blocks: 0,
            large_blocks_max: 0,
            large_bytes_max: 0,
            large_requested: 0,
            magazine_bytes: 0,
            current_bytes: 0,
            empty_bytes: 0,
            trimmable_bytes: 0,
            free_runs: 0,
            requested_total: 0,
            slop: Estimate {
                samples: 0,
                interval_bytes: 0,
                slop_bytes: 0,
                error_bytes: 0,
            },
            sampled: true,
            tenants: 0,
            tenant_blocks: 0,
            tenant_small_bytes: 0,
            tenant_large_bytes: 0,
            heaps: 0,
            thread_heaps: 0,
            events: Events {
                purged_pages: 0,
                purged_hole_pages: 0,
                taken_hole_pages: 0,
                reused_pages: 0,
                taken_blocks: 0,
                purger_passes: 0,
                meshed_pages: 0,
                meshed_groups: 0,
                purger_cpu_ns: 0,
                grown: 0,
                refusals: 0,
                reserve_releases: 0,
                listener_calls: 0,
                failures: 0,
            },
            balanced: true,
            classes: 0,
            class: [ClassRow {
                size: 0,
                spans: 0,
                pages: 0,
                hole_pages: 0,
                blocks: 0,
            }; MAX_CLASSES],
        }
    }

    /// Returns the usable bytes of live blocks.
    pub fn usable_bytes(&self) -> usize {
        self.mapped.small + self.mapped.large
    }

    /// Returns the requested bytes of live blocks, and the standard error. Tenants' small blocks count with their
    /// usable bytes.
    pub fn live_requested(&self) -> (usize, usize) {
        let slop = self.slop.slop_bytes as usize;
        (
            self.mapped.small.saturating_sub(slop) + self.large_requested,
            self.slop.error_bytes as usize,
        )
    }

    /// Returns the resident bytes in which no live block lies, without metadata.
    pub fn retained_bytes(&self) -> usize {
        let rows = &self.resident;
        rows.in_spans + rows.holes + rows.dirty + rows.clean + rows.reserve
    }

    /// Returns the resident bytes of HEAP, of the descriptors and of the page map.
    pub fn resident_bytes(&self) -> usize {
        self.resident.sum() + self.metadata_resident
    }
}

/// Runs `work` while all slow paths stand still (B1). `None`: this thread is in the middle of one (a signal handler).
pub(super) fn standing_still<R>(who: Who, work: impl FnOnce(&mut Pool) -> R) -> Option<R> {
    if !PURGE_LOCK.lock(who) {
        return None;
    }
    let mut work = Some(work);
    let mut result = None;
    // A second turn is needed only for a heap that was made meanwhile.
    while let Some(todo) = work.take() {
        let newest = publish::first(&HEAPS);
        let mut taken = 0;
        let all = heaps_from(newest).all(|heap| {
            let got = heap.lock.lock(who);
            taken += usize::from(got);
            got
        });
        let done = with_pool(who, |pool| {
            // ORDER: the pool's lock is held, so no heap is made now.
            if HEAPS.load(Ordering::Relaxed) == newest {
                Ok(all.then(|| todo(pool)))
            } else {
                Err(todo)
            }
        });
        for heap in heaps_from(newest).take(taken) {
            heap.lock.unlock();
        }
        match done {
            Some(Ok(value)) => result = value,
            Some(Err(todo)) if all => work = Some(todo),
            _ => {}
        }
    }
    PURGE_LOCK.unlock();
    result
}

/// Fills a snapshot. `residency`: also measures what is resident. `false`: there is none, since this thread is in the
/// middle of a call of ours (a signal handler), or there is no memory to begin with.
pub fn snapshot(into: &mut Snapshot, residency: bool) -> bool {
    // From then on there is something to look at.
    snapshot_as(who_named(), into, residency)
}

/// Does what [`snapshot`] does, for a thread that has no thread-local storage. `false`: nothing has been allocated yet.
pub fn snapshot_hidden(into: &mut Snapshot, residency: bool) -> bool {
    snapshot_as(ASKER, into, residency)
}

fn snapshot_as(who: Who, into: &mut Snapshot, residency: bool) -> bool {
    *into = Snapshot::new();
    if base() == 0 {
        return false;
    }
    let done = standing_still(who, |pool| {
        into.measured = residency;
        into.mapped_bytes = pool.region.heap_bytes();
        into.classes = class::count();
        let kept = walk(into, pool);
        count_heaps(into);
        count_events(into, pool);
        // SAFETY: every heap's lock is held, also that of the samples.
        into.slop = unsafe { sample::estimate() };
        if into.slop.samples == 0 {
            // Nothing is known: slop is seldom more than an eighth.
            into.slop.error_bytes = (into.mapped.small - into.tenant_small_bytes) as u64 / 8;
        }
        let agrees = agree(into, pool, kept);
        into.balanced = agrees;
        for (start, bytes) in pool.region.metadata() {
            into.metadata_bytes += bytes;
            if residency {
                into.metadata_resident +=
                    Core::new(start, bytes / PAGE).count(0, bytes / PAGE) * PAGE;
            }
        }
    });
    into.sampled = slow::hardening().is_none();
    if residency {
        let mut text = [0u8; 1_024];
        let text = cgroup::read(b"/proc/self/smaps_rollup\0", &mut text).unwrap_or(&[]);
        into.process_resident = bytes_of(text, b"\nRss:").unwrap_or(0);
        into.process_proportional = bytes_of(text, b"\nPss:").unwrap_or(0);
        into.merged_bytes = bytes_of(text, b"\nKSM:");
    }
    done.is_some()
}

/// The pages of a range that are resident, by the kernel's count.
struct Core {
    start: usize,
    pages: usize,
    /// The first of the pages that `bits` describes.
    first: usize,
    count: usize,
    bits: [u8; AT_ONCE],
}

impl Core {
    fn new(start: usize, pages: usize) -> Core {
        Core {
            start,
            pages,
            first: 0,
            count: 0,
            bits: [0; AT_ONCE],
        }
    }

    fn ask(&mut self, first: usize, count: usize) -> bool {
        self.first = first;
        self.count = count;
        sys::resident(self.start + first * PAGE, &mut self.bits[..count])
    }

    fn is(&mut self, page: usize) -> bool {
        if !(self.first..self.first + self.count).contains(&page)
            && !self.ask(page, AT_ONCE.min(self.pages.saturating_sub(page)).max(1))
            // Other code has unmapped a mapping of its own in this range.
            && !self.ask(page, 1)
        {
            self.count = 0;
            return false;
        }
        self.bits
            .get(page - self.first)
            .is_some_and(|bit| bit & 1 != 0)
    }

    fn count(&mut self, first: usize, pages: usize) -> usize {
        (first..first + pages).filter(|&page| self.is(page)).count()
    }
}

/// Assigns every page of HEAP to its row (B2); returns the bytes of the runs that heaps keep, which are among the dirty
/// ones.
fn walk(into: &mut Snapshot, pool: &Pool) -> usize {
    let mut kept = 0;
    let pages = pool.pages();
    let mut core = Core::new(base(), pages as usize);
    let measured = into.measured;
    let mut page = 0u32;
    while page < pages {
        let mut resident = |from: u32, count: u32| match measured {
            true => core.count(from as usize, count as usize) * PAGE,
            false => 0,
        };
        if let Some((kind, count)) = pool.free_run(page) {
            let is = resident(page, count);
            let (all, here) = match kind {
                Free::Clean => (&mut into.mapped.clean, &mut into.resident.clean),
                _ => (&mut into.mapped.dirty, &mut into.resident.dirty),
            };
            *all += count as usize * PAGE;
            *here += is;
            into.free_runs += 1;
            page += count;
            continue;
        }
        // SAFETY: below the limit; MAP leads to descriptors.
        let span = unsafe { &*descriptor(page as usize * PAGE) };
        // ORDER: the pool's lock is held.
        match span.kind.load(Ordering::Relaxed) {
            KIND_SMALL | KIND_SAMPLED => {
                let count = span.pages();
                small_span(into, span, &mut |at| resident(page + at, 1) != 0);
                page += count;
            }
            KIND_LARGE => {
                // SAFETY: the kind says what it is.
                let large = unsafe { &*core::ptr::from_ref(span).cast::<Large>() };
                let is = resident(page, large.pages);
                large_run(into, large, is);
                page += large.pages;
            }
            // Free, and perhaps resident, as a dirty run of the pool's (cache.C1).
            KIND_CACHED => {
                // SAFETY: as above.
                let large = unsafe { &*core::ptr::from_ref(span).cast::<Large>() };
                into.mapped.dirty += large.pages as usize * PAGE;
                into.resident.dirty += resident(page, large.pages);
                into.free_runs += 1;
                kept += large.pages as usize * PAGE;
                page += large.pages;
            }
            _ => {
                into.mapped.others += PAGE;
                page += 1;
            }
        }
    }
    // What the region has mapped and the pool has not looked at yet.
    into.mapped.clean += into.mapped_bytes - pages as usize * PAGE;
    kept
}

fn small_span(into: &mut Snapshot, span: &Span, is_resident: &mut dyn FnMut(u32) -> bool) {
    let size = span.size();
    let pages = span.pages() as usize;
    let mut used = 0;
    let mut cached = 0;
    for i in 0..span.words() {
        let (live, in_magazine) = span.live_and_cached(i);
        used += live.count_ones() as usize;
        cached += in_magazine.count_ones() as usize;
    }
    into.magazine_bytes += cached * size;
    // ORDER: the locks are held (span.S3).
    let clean = span.clean.load(Ordering::Relaxed);
    let holes = clean.count_ones() as usize;
    let free = (pages - holes) * PAGE - used * size;
    into.small_blocks += used as u64;
    into.mapped.small += used * size;
    into.mapped.holes += holes * PAGE;
    into.mapped.in_spans += free;
    if let Some(row) = into.class.get_mut(span.class()) {
        row.size = size as u32;
        row.spans += 1;
        row.pages += pages as u32;
        row.hole_pages += holes as u32;
        row.blocks += used as u64;
    }
    // ORDER: as above.
    match span.state.load(Ordering::Relaxed) {
        state::CURRENT => into.current_bytes += free,
        state::EMPTY => into.empty_bytes += pages * PAGE,
        _ => {}
    }
    into.trimmable_bytes += (span.free_pages() & !clean).count_ones() as usize * PAGE;
    // ORDER: as above.
    if owner_of(span).usage.load(Ordering::Relaxed) == usage::TENANT {
        into.tenant_blocks += used as u64;
        into.tenant_small_bytes += used * size;
    }
    if into.measured {
        resident_of_span(into, span, clean, used, is_resident);
    }
}

/// Counts the resident pages of a span: the bytes in live blocks, and the others.
fn resident_of_span(
    into: &mut Snapshot,
    span: &Span,
    clean: u16,
    used: usize,
    is_resident: &mut dyn FnMut(u32) -> bool,
) {
    let size = span.size();
    let mut here = 0u16;
    for page in 0..span.pages() {
        here |= u16::from(is_resident(page)) << page;
    }
    let not_purged = here & !clean;
    into.resident.holes += (here & clean).count_ones() as usize * PAGE;
    let bytes = not_purged.count_ones() as usize * PAGE;
    let all = ((1u32 << span.pages()) - 1) as u16 & !clean;
    let live = if not_purged == all {
        used * size
    } else {
        live_on(span, not_purged)
    };
    // A block that was taken meanwhile may lie in no page that was looked at.
    let live = live.min(bytes);
    into.resident.small += live;
    into.resident.in_spans += bytes - live;
}

/// Returns the bytes of live blocks on some pages of a span.
fn live_on(span: &Span, pages: u16) -> usize {
    let size = span.size();
    let mut bytes = 0;
    for i in 0..span.words() {
        let (mut bits, _) = span.live_and_cached(i);
        while bits != 0 {
            let start = (i * 64 + bits.trailing_zeros() as usize) * size;
            bits &= bits - 1;
            for page in start / PAGE..=(start + size - 1) / PAGE {
                if pages >> page & 1 != 0 {
                    bytes += (start + size).min((page + 1) * PAGE) - start.max(page * PAGE);
                }
            }
        }
    }
    bytes
}

fn large_run(into: &mut Snapshot, large: &Large, resident: usize) {
    let bytes = large.pages as usize * PAGE;
    if reserve::holds(large.start) {
        into.mapped.reserve += bytes;
        into.resident.reserve += resident;
        return;
    }
    into.large_blocks += 1;
    // ORDER: a statistic: a thread that takes a kept run writes it without a lock (cache.C1).
    into.large_requested += large.requested.load(Ordering::Relaxed).min(bytes);
    into.mapped.large += bytes;
    into.resident.large += resident;
    if large.tenant != 0 {
        into.tenant_blocks += 1;
        into.tenant_large_bytes += bytes;
    }
}

fn count_heaps(into: &mut Snapshot) {
    into.requested_total = requests::requested_elsewhere();
    for heap in heaps() {
        into.heaps += 1;
        into.requested_total = into
            .requested_total
            .wrapping_add(requests::requested_from(heap));
        // ORDER: the heap's lock is held.
        match heap.usage.load(Ordering::Relaxed) {
            usage::THREAD => into.thread_heaps += 1,
            usage::TENANT => into.tenants += 1,
            _ => {}
        }
    }
}

fn count_events(into: &mut Snapshot, pool: &Pool) {
    // ORDER: statistics.
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let reserve = reserve::counts();
    // ORDER: as above.
    into.large_blocks_max = u64::from(runs::MOST_BLOCKS.load(Ordering::Relaxed));
    into.large_bytes_max = runs::MOST_PAGES.load(Ordering::Relaxed) as usize * PAGE; // ORDER: as above
    into.trimmable_bytes += into.mapped.dirty;
    let hole_pages = of(&holes::PURGED);
    let meshed = mesh::totals();
    into.events = Events {
        purged_pages: pool.purged_total + hole_pages,
        purged_hole_pages: hole_pages,
        taken_hole_pages: of(&clean::TAKEN),
        reused_pages: pool.reused_dirty_total,
        taken_blocks: of(&idle::TAKEN_BLOCKS),
        // ORDER: as above.
        purger_passes: u64::from(purger::PASSES.load(Ordering::Relaxed)),
        meshed_pages: meshed.0,
        meshed_groups: meshed.1,
        purger_cpu_ns: of(&purger::CPU_NS),
        grown: pool.grown,
        refusals: reserve.refusals,
        reserve_releases: reserve.releases,
        listener_calls: reserve.calls,
        failures: reserve.failures,
    };
}

/// Reports whether the rows add up, and agree with what was counted along the way (B2); `kept` is in use to the pool.
fn agree(into: &Snapshot, pool: &Pool, kept: usize) -> bool {
    let rows = &into.mapped;
    let in_use = rows.small + rows.large + rows.in_spans + rows.holes + rows.reserve;
    // ORDER: changed under the heaps' locks, which are held.
    let holes = crate::heaps::pool::HOLES.load(Ordering::Relaxed) as usize;
    let heap_pages: usize = heaps()
        .map(|heap: &Heap| heap.pages.load(Ordering::Relaxed) as usize) // ORDER: as above
        .sum();
    let span_bytes = rows.small + rows.in_spans + rows.holes;
    rows.sum() == into.mapped_bytes
        && in_use + kept == pool.used_pages as usize * PAGE
        && rows.dirty == (pool.dirty_pages + pool.claimed_pages) as usize * PAGE + kept
        && rows.holes == holes * PAGE
        && span_bytes == heap_pages * PAGE
        && rows.others == (pool.hole_pages + pool.lost_pages) as usize * PAGE
}

/// Returns the bytes that a line of the kernel's text says, `KSM:     12 kB`, if there is one.
fn bytes_of(text: &[u8], line: &[u8]) -> Option<usize> {
    let at = text.windows(line.len()).position(|part| part == line)?;
    let rest = text.get(at + line.len()..)?;
    let digits = rest
        .iter()
        .skip_while(|&&b| b == b' ')
        .take_while(|b| b.is_ascii_digit());
    Some(digits.fold(0, |sum: usize, b| sum * 10 + usize::from(b - b'0')) * 1_024)
}
