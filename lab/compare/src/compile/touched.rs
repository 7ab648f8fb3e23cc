//! Finds which pages of large blocks the program touched, from the snapshots of the recording.
//!
//! ```text
//!   snapshot: resident runs ─► each large live block: resident pages of all its pages
//!        full ─► all are touched at once        part, then more ─► touched as they were seen
//!        never seen (lived between snapshots) ─► the part that blocks of the same stack had
//! ```
//!
//! D1  Small blocks (below [`LARGE_BYTES`]) are touched whole: a program writes nearly all that it requests.
//! D2  A large block is touched no further than a snapshot saw it resident, from its first page on. What later
//!     snapshots saw is touched at their time.
//! D3  A large block that no snapshot saw is touched by the share that seen blocks of its stack had; if none was
//!     seen, a calloc'ed one by the share of all seen calloc'ed ones, any other whole.
//! D4  Memory: large live blocks, one entry for each block that a snapshot saw, and one for each time that a partly
//!     touched one was seen to have grown.
//!
//! Not here: runs that are not known (mappings without a page map) are no evidence: their blocks are touched whole.

use rustc_hash::FxHashMap;
use skinflint_trace::{AllocFn, NodeId, Snapshot, Trace};

/// Blocks from this size on are looked for in snapshots.
pub const LARGE_BYTES: u64 = 16 << 10;
const PAGE: u64 = 4096;
/// The most entries that are kept of what was seen; further ones are left out, and their blocks are touched whole.
const MOST_SEEN: usize = 4 << 20;

/// A live large block.
#[derive(Clone, Copy)]
struct Watched {
    addr: u64,
    size: u64,
    serial: u64,
    node: NodeId,
    func: AllocFn,
    /// Resident pages when last seen.
    pages: Option<u64>,
}

/// A sight of a block with its resident pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The serial of its acquisition.
    pub serial: u64,
    /// The block's address.
    pub addr: u64,
    /// Events up to this one had happened.
    pub ticket: u64,
    /// Resident pages.
    pub pages: u64,
}

/// The pages of several blocks, and how many of them were resident.
#[derive(Clone, Copy, Default)]
struct Share {
    pages: u64,
    resident: u64,
}

impl Share {
    fn of(self, pages: u64) -> Option<u64> {
        (self.pages > 0).then(|| {
            (u128::from(pages) * u128::from(self.resident)).div_ceil(u128::from(self.pages)) as u64
        })
    }
}

/// The touched parts of large blocks, as snapshots saw them.
pub struct Touched {
    snapshots: Vec<Snapshot>,
    next: usize,
    watched: FxHashMap<u32, Watched>,
    /// First sights of partly touched blocks, by serial.
    first: FxHashMap<u64, u64>,
    /// Later sights, by ticket.
    later: Vec<Seen>,
    stacks: FxHashMap<NodeId, Share>,
    callocs: Share,
    /// Serials of blocks that were seen whole at first sight; they are touched whole.
    whole: FxHashMap<u64, ()>,
}

fn pages_of(addr: u64, size: u64) -> u64 {
    if size == 0 {
        0
    } else {
        (addr + size - 1) / PAGE - addr / PAGE + 1
    }
}

/// Resident runs of a snapshot, by address; and mappings whose runs are not known.
struct Runs {
    runs: Vec<(u64, u64)>,
    unknown: Vec<(u64, u64)>,
}

impl Runs {
    fn of(snapshot: &Snapshot) -> Runs {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut unknown = Vec::new();
        for mapping in &snapshot.mappings {
            match mapping.runs_known {
                true => runs.extend(
                    mapping
                        .runs
                        .iter()
                        .map(|&(start, bytes)| (start, start.saturating_add(bytes))),
                ),
                false => unknown.push((mapping.start, mapping.end)),
            }
        }
        runs.sort_unstable();
        Runs { runs, unknown }
    }

    /// Returns the resident pages among those that hold the block; `None` if they are not known.
    fn resident(&self, addr: u64, size: u64) -> Option<u64> {
        let (start, end) = (addr / PAGE * PAGE, (addr + size).next_multiple_of(PAGE));
        if self
            .unknown
            .iter()
            .any(|&(from, to)| from < end && start < to)
        {
            return None;
        }
        let first = self.runs.partition_point(|&(_, to)| to <= start);
        let over = self.runs[first..]
            .iter()
            .take_while(|&&(from, _)| from < end);
        Some(
            over.map(|&(from, to)| (to.min(end) - from.max(start)) / PAGE)
                .sum(),
        )
    }
}

impl Touched {
    /// Creates the table before anything was seen.
    pub fn new(trace: &Trace) -> Touched {
        let mut snapshots = trace.snapshots.clone();
        snapshots.sort_by_key(|snapshot| snapshot.ticket);
        Touched {
            snapshots,
            next: 0,
            watched: FxHashMap::default(),
            first: FxHashMap::default(),
            later: Vec::new(),
            stacks: FxHashMap::default(),
            callocs: Share::default(),
            whole: FxHashMap::default(),
        }
    }

    /// Notes that a block came to be, or changed.
    pub fn acquired(
        &mut self,
        slot: u32,
        func: AllocFn,
        node: NodeId,
        addr: u64,
        size: u64,
        serial: u64,
    ) {
        if size >= LARGE_BYTES {
            let watched = Watched {
                addr,
                size,
                serial,
                node,
                func,
                pages: None,
            };
            self.watched.insert(slot, watched);
        } else if !self.watched.is_empty() {
            self.watched.remove(&slot);
        }
    }

    /// Notes that a block is gone.
    pub fn released(&mut self, slot: u32) {
        if !self.watched.is_empty() {
            self.watched.remove(&slot);
        }
    }

    /// Looks at the snapshots that were taken before this event.
    #[inline]
    pub fn snapshots_before(&mut self, ticket: u64) {
        while self
            .snapshots
            .get(self.next)
            .is_some_and(|snapshot| snapshot.ticket < ticket)
        {
            self.look();
            self.next += 1;
        }
    }

    #[cold]
    fn look(&mut self) {
        let snapshot = &self.snapshots[self.next];
        let (runs, ticket) = (Runs::of(snapshot), snapshot.ticket);
        let mut whole = Vec::new();
        for (&slot, block) in &mut self.watched {
            let pages = pages_of(block.addr, block.size);
            let Some(resident) = runs
                .resident(block.addr, block.size)
                .map(|resident| resident.min(pages))
            else {
                continue;
            };
            if self.later.len() + self.first.len() >= MOST_SEEN {
                break;
            }
            let before = block.pages.unwrap_or(0);
            let more = resident.saturating_sub(before);
            let share = self.stacks.entry(block.node).or_default();
            let add = |share: &mut Share| {
                share.resident += more;
                share.pages += if block.pages.is_none() { pages } else { 0 };
            };
            add(share);
            if block.func == AllocFn::Calloc {
                add(&mut self.callocs);
            }
            match block.pages {
                None if resident == pages => _ = self.whole.insert(block.serial, ()),
                None => _ = self.first.insert(block.serial, resident),
                Some(_) if more > 0 => {
                    self.later.push(Seen {
                        serial: block.serial,
                        addr: block.addr,
                        ticket,
                        pages: resident,
                    });
                }
                Some(_) => {}
            }
            block.pages = Some(before.max(resident));
            if resident == pages {
                whole.push(slot);
            }
        }
        for slot in whole {
            self.watched.remove(&slot);
        }
        // The snapshot's mappings are not needed any more.
        self.snapshots[self.next].mappings = Vec::new();
    }

    /// Notes that all snapshots were looked at.
    pub fn finish(&mut self) {
        self.later
            .sort_unstable_by_key(|seen| (seen.ticket, seen.serial));
        self.watched = FxHashMap::default();
    }

    /// Returns the number of blocks that were seen partly touched.
    pub fn partly(&self) -> u64 {
        self.first.len() as u64
    }

    /// Returns the pages that this acquisition touches at once; `None` for all.
    pub fn first_pages(&self, serial: u64, func: AllocFn, node: NodeId, size: u64) -> Option<u64> {
        if size < LARGE_BYTES || self.whole.contains_key(&serial) {
            return None;
        }
        if let Some(&pages) = self.first.get(&serial) {
            return Some(pages);
        }
        let pages = size.div_ceil(PAGE);
        let share = self.stacks.get(&node).and_then(|share| share.of(pages));
        let calloc = || {
            if func == AllocFn::Calloc {
                self.callocs.of(pages)
            } else {
                None
            }
        };
        share.or_else(calloc).filter(|&touched| touched < pages)
    }

    /// Returns the `nth` later sight, if it is due after this event.
    pub fn due(&self, nth: usize, ticket: u64) -> Option<Seen> {
        self.later
            .get(nth)
            .copied()
            .filter(|seen| seen.ticket <= ticket)
    }
}
