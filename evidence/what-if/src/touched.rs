//! The touched parts of a program's large blocks, by the snapshots of the recording.
//!
//! ```text
//!   first pass:  acts ─► large live blocks ◄─ at each snapshot ─ resident pages of each
//!   second pass: block ─► bytes that were seen resident │ the share that its stack's blocks had │ all
//! ```
//!
//! T1  Blocks below [`LARGE_BYTES`] count as touched whole: a program writes nearly all that it requests.
//! T2  A large block that a snapshot saw counts with the most resident bytes that any snapshot saw of it; one that
//!     none saw counts with the share that the seen blocks of its stack had; if none was seen, whole.
//! T3  A block that has just come, and a mapping whose resident pages are not known (or that was swapped), are no
//!     evidence. What nothing tells of is counted (`Level::untold_bytes`), so that a range can be said.
//! T4  Memory: large live blocks, and the data of at most [`KNOWN_MAX`] blocks; further ones count whole.
//!
//! Where the touched bytes lie in the block is not kept: they count from its start. Not here: when during its life a
//! block was touched; it counts as touched at once.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::pass::{Act, Block};
use skinflint_trace::{Event, Mapping, Snapshot};

use crate::pages::PAGE;

/// The size from which a block is looked at: where allocators begin to map, and programs to leave parts unused.
pub const LARGE_BYTES: u64 = 64 << 10;
/// A younger block may be about to be written: what a snapshot sees of it is no evidence. Time stamps are some 10 ms
/// apart, so a block may be younger than it looks.
const YOUNG_NS: u64 = 20_000_000;
/// The most blocks whose touched bytes are kept.
const KNOWN_MAX: usize = 1 << 20;

/// A large live block.
#[derive(Clone, Copy)]
struct Large {
    serial: u32,
    node: u32,
    size: u64,
    born_ns: u64,
}

/// The knowledge of touched bytes. By default there is none: all blocks are touched whole.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// The most resident bytes by the serial of the acquisition, and the size as a check.
    known: FxHashMap<u32, (u64, u64)>,
    /// Resident bytes and sizes of all seen blocks of a stack.
    shares: FxHashMap<u32, (u64, u64)>,
}

impl Touched {
    /// Returns the bytes of a block that count as touched: at least 1, at most `size`, which is at least 1.
    pub(crate) fn bytes(&self, block: &Block, node: u32, size: u64) -> u64 {
        if size < LARGE_BYTES {
            return size;
        }
        let bytes = match (self.known.get(&block.serial), self.shares.get(&node)) {
            (Some((bytes, of)), _) if *of == size => *bytes,
            (_, Some((bytes, sizes))) => {
                (u128::from(size) * u128::from(*bytes) / u128::from((*sizes).max(1))) as u64
            }
            _ => size,
        };
        bytes.clamp(1, size)
    }

    /// Reports whether nothing tells how much of a block was touched: it then counts whole, and perhaps none of it was.
    pub(crate) fn is_untold(&self, block: &Block, node: u32, size: u64) -> bool {
        let known = self.known.get(&block.serial);
        let is_known = known.is_some_and(|(_, of)| *of == size);
        size >= LARGE_BYTES && !is_known && !self.shares.contains_key(&node)
    }

    /// Returns the bytes that the tables hold.
    pub(crate) fn table_bytes(&self) -> usize {
        self.known.capacity() * 24 + self.shares.capacity() * 24
    }
}

/// The state of the first pass.
pub struct Survey<'a> {
    snapshots: &'a [Snapshot],
    next: usize,
    ledger: Ledger,
    live: BTreeMap<u64, Large>,
    touched: Touched,
}

impl<'a> Survey<'a> {
    /// Reports whether a first pass can tell anything: without resident pages it cannot.
    pub fn is_worthwhile(snapshots: &[Snapshot]) -> bool {
        let known = |mapping: &Mapping| mapping.runs_known;
        snapshots.iter().any(|one| one.mappings.iter().any(known))
    }

    /// Creates a survey that knows nothing yet. Snapshots must be in the order of their tickets, as a trace has them.
    pub fn new(snapshots: &'a [Snapshot]) -> Survey<'a> {
        Survey {
            snapshots,
            next: 0,
            ledger: Ledger::new(16),
            live: BTreeMap::new(),
            touched: Touched::default(),
        }
    }

    /// Takes an event, in ticket order.
    pub fn event(&mut self, event: &Event) {
        self.look_up_to(event.ticket);
        let live = &mut self.live;
        self.ledger.apply(event, &mut |context, act| {
            let mut came = |block: &Block| {
                if context.key.size >= LARGE_BYTES {
                    let large = Large {
                        serial: block.serial,
                        node: context.key.node.0,
                        size: context.key.size,
                        born_ns: context.time_ns,
                    };
                    live.insert(block.addr, large);
                }
            };
            match act {
                Act::Acquire { block, .. } => came(block),
                Act::Release { block, .. } => went(live, block),
                Act::Regrow { old, new } => {
                    // Its address may belong to another block by now; a large one at the same address is the old one.
                    came(new);
                    if old.addr != new.addr || context.key.size < LARGE_BYTES {
                        went(live, old);
                    }
                }
                Act::Mark { .. } => {}
            }
        });
    }

    /// Ends the pass, and returns what is known.
    pub fn finish(mut self) -> Touched {
        self.look_up_to(u64::MAX);
        self.touched
    }

    /// Looks at the snapshots that were made before the event of this ticket.
    fn look_up_to(&mut self, ticket: u64) {
        while let Some(snapshot) = self.snapshots.get(self.next)
            && snapshot.ticket < ticket
        {
            self.next += 1;
            self.look(snapshot);
        }
    }

    fn look(&mut self, snapshot: &Snapshot) {
        let old = snapshot.time_ns.saturating_sub(YOUNG_NS);
        for (addr, large) in self.live.iter().filter(|one| one.1.born_ns <= old) {
            let Some(bytes) = resident(snapshot, *addr, large.size) else {
                continue;
            };
            let known = self.touched.known.len();
            let before = match self.touched.known.get_mut(&large.serial) {
                Some(before) => before,
                None if known < KNOWN_MAX => self.touched.known.entry(large.serial).or_default(),
                None => continue,
            };
            let share = self.touched.shares.entry(large.node).or_default();
            share.1 += if before.1 == 0 { large.size } else { 0 };
            share.0 += bytes.saturating_sub(before.0);
            *before = (before.0.max(bytes), large.size);
        }
    }
}

fn went(live: &mut BTreeMap<u64, Large>, block: &Block) {
    if live
        .get(&block.addr)
        .is_some_and(|one| one.serial == block.serial)
    {
        live.remove(&block.addr);
    }
}

/// Returns the resident bytes of a block; `None` if the snapshot cannot tell (T3).
fn resident(snapshot: &Snapshot, addr: u64, size: u64) -> Option<u64> {
    let (mut bytes, mut from, end) = (0, addr, addr.checked_add(size)?);
    let mappings = &snapshot.mappings;
    let first = mappings.partition_point(|mapping| mapping.end <= addr);
    for mapping in &mappings[first..] {
        if from >= end {
            break;
        }
        if mapping.start > from || !mapping.runs_known || mapping.swap_bytes > 0 {
            return None;
        }
        let to = end.min(mapping.end);
        let at = mapping
            .runs
            .partition_point(|run| run.0.saturating_add(run.1) <= from);
        for run in mapping.runs[at..].iter().take_while(|run| run.0 < to) {
            bytes += to.min(run.0.saturating_add(run.1)) - from.max(run.0);
        }
        from = to;
    }
    // A page at the block's edge may be its neighbour's, and is at most that.
    (from >= end).then(|| if bytes + PAGE > size { size } else { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_trace::{AllocFn, EventKind, FreeFn, NodeId, SnapshotCause, ThreadId};

    const BASE: u64 = 0x7000_0000_0000;
    const MIB: u64 = 1 << 20;

    fn snapshot(ticket: u64, runs: &[(u64, u64)]) -> Snapshot {
        Snapshot {
            time_ns: 1_000_000_000,
            cause: SnapshotCause::Periodic,
            took_ns: 0,
            counted_bytes: None,
            tops: None,
            ticket,
            mappings: vec![Mapping {
                start: BASE,
                end: BASE + 64 * MIB,
                runs: runs.iter().map(|run| (BASE + run.0, run.1)).collect(),
                runs_known: true,
                ..Mapping::default()
            }],
        }
    }

    fn event(ticket: u64, kind: EventKind) -> Event {
        Event {
            ticket,
            time_ns: if ticket < 4 { 0 } else { 990_000_000 },
            thread: ThreadId(0),
            kind,
        }
    }

    fn get(ticket: u64, node: u32, at: u64, size: u64) -> Event {
        let kind = EventKind::Alloc {
            func: AllocFn::Malloc,
            node: NodeId(node),
            addr: BASE + at,
            size,
            usable: size,
        };
        event(ticket, kind)
    }

    fn block(serial: u32) -> Block {
        Block::new(
            0,
            skinflint_analysis::pass::CellId(0),
            ThreadId(0),
            0,
            serial,
        )
    }

    #[test]
    fn the_most_that_was_seen_counts_and_stacks_lend_their_share() {
        // Serial 0: 8 MiB of stack 1, seen with 2 MiB and then with 3. Serial 1: 1 MiB of stack 2, all resident.
        // Serial 2: freed before any snapshot, of stack 1. Serial 3: young when it is seen.
        let snapshots = [
            snapshot(3, &[(0, 2 * MIB), (8 * MIB, MIB)]),
            snapshot(4, &[(0, MIB), (2 * MIB, 2 * MIB)]),
        ];
        let free = EventKind::Free {
            func: FreeFn::Free,
            addr: BASE + 16 * MIB,
        };
        let mut survey = Survey::new(&snapshots);
        for one in [
            get(0, 1, 0, 8 * MIB),
            get(1, 2, 8 * MIB, MIB),
            get(2, 1, 16 * MIB, 16 * MIB),
            event(3, free),
            get(4, 3, 32 * MIB, MIB),
            get(5, 1, 40 * MIB, 100),
        ] {
            survey.event(&one);
        }
        let touched = survey.finish();
        assert_eq!(touched.bytes(&block(0), 1, 8 * MIB), 3 * MIB);
        assert_eq!(touched.bytes(&block(1), 2, MIB), MIB);
        assert_eq!(touched.bytes(&block(2), 1, 16 * MIB), 6 * MIB);
        assert_eq!(touched.bytes(&block(4), 1, 100), 100);
        // Serial 3 came 10 ms before the second snapshot, which saw nothing of it resident: too young.
        assert_eq!(touched.bytes(&block(3), 3, MIB), MIB);
        assert_eq!(touched.bytes(&block(9), 9, 5 * MIB), 5 * MIB);
        let untold = |serial, node, size| touched.is_untold(&block(serial), node, size);
        assert!(untold(3, 3, MIB) && untold(9, 9, LARGE_BYTES));
        assert!(
            !untold(0, 1, 8 * MIB) && !untold(2, 1, 16 * MIB) && !untold(9, 9, LARGE_BYTES - 1)
        );
    }

    #[test]
    fn what_cannot_be_told_is_no_evidence() {
        let mut unknown = snapshot(1, &[]);
        unknown.mappings[0].runs_known = false;
        assert_eq!(resident(&unknown, BASE, MIB), None);
        let mut swapped = snapshot(1, &[(0, MIB)]);
        swapped.mappings[0].swap_bytes = 4096;
        assert_eq!(resident(&swapped, BASE, MIB), None);
        let good = snapshot(1, &[(4096, 8192), (MIB, MIB)]);
        assert_eq!(resident(&good, BASE, MIB), Some(8192));
        assert_eq!(resident(&good, BASE + 4112, 65_536), Some(8176));
        // All but the page that it shares.
        assert_eq!(resident(&good, BASE + MIB - 16, MIB), Some(MIB));
        // Beyond the mapping, and below it.
        assert_eq!(resident(&good, BASE + 63 * MIB, 2 * MIB), None);
        assert_eq!(resident(&good, BASE - 4096, MIB), None);
        assert_eq!(resident(&good, u64::MAX - 10, MIB), None);
        assert!(!Survey::is_worthwhile(&[unknown]));
        assert!(Survey::is_worthwhile(&[good]));
    }

    #[test]
    fn large_blocks_are_looked_at_and_smaller_ones_count_whole() {
        // Two pages of each are there; the second is a byte too small to be looked at.
        let snapshots = [snapshot(3, &[(0, 8192), (MIB, 8192)])];
        let mut survey = Survey::new(&snapshots);
        survey.event(&get(0, 1, 0, LARGE_BYTES));
        survey.event(&get(1, 2, MIB, LARGE_BYTES - 1));
        let touched = survey.finish();
        assert_eq!(touched.bytes(&block(0), 1, LARGE_BYTES), 8192);
        assert_eq!(
            touched.bytes(&block(1), 2, LARGE_BYTES - 1),
            LARGE_BYTES - 1
        );
    }

    #[test]
    fn a_block_that_moved_is_where_it_is_now() {
        // Serial 0 moved from the first mebibyte, which is still resident, and of serial 1 two pages are.
        let snapshots = [snapshot(3, &[(0, MIB), (32 * MIB, 8192)])];
        let mut survey = Survey::new(&snapshots);
        let to = EventKind::ReallocAcquire {
            node: NodeId(1),
            addr: BASE + 32 * MIB,
            size: MIB,
            usable: MIB,
        };
        survey.event(&get(0, 1, 0, MIB));
        survey.event(&event(1, EventKind::ReallocRelease { addr: BASE }));
        survey.event(&event(2, to));
        let touched = survey.finish();
        assert_eq!(touched.bytes(&block(1), 1, MIB), 8192);
        // The share of the stack, for a block that no snapshot saw.
        assert_eq!(touched.bytes(&block(9), 1, MIB), 8192);
    }
}
