//! Tests that what snapshots saw of large blocks becomes what is touched.

use skinflint_replay::script::Op;
use skinflint_trace::*;

use crate::machine::Read;
use crate::made::Made;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const HEAP: u64 = 0x7000_0000_0000;

fn snapshot(ticket: u64, runs: &[(u64, u64)], runs_known: bool) -> Snapshot {
    let mapping = Mapping {
        start: HEAP,
        end: HEAP + 64 * MIB,
        perms: "rw-p".into(),
        kind: MappingKind::Anon,
        runs: runs.to_vec(),
        runs_known,
        ..Mapping::default()
    };
    Snapshot {
        time_ns: 0,
        ticket,
        cause: SnapshotCause::Periodic,
        took_ns: 0,
        counted_bytes: None,
        tops: None,
        mappings: vec![mapping],
    }
}

fn ops(made: &Made) -> Vec<Op> {
    Read::of(&made.compiled().0)
        .ops()
        .map(|(_, op)| op)
        .collect()
}

/// Fills the trace with small blocks up to this ticket.
fn until(made: &mut Made, ticket: u64) {
    while (made.events.len() as u64) < ticket {
        made.malloc(0, 0x1000, 8).free(0, 0x1000);
    }
}

fn of_slot_0(ops: Vec<Op>) -> Vec<Op> {
    let others = |op: &Op| matches!(op, Op::Malloc { slot: 1.., .. } | Op::Free { slot: 1.. });
    ops.into_iter().filter(|op| !others(op)).collect()
}

#[test]
fn a_block_grows_into_its_pages() {
    let mut made = Made::new();
    made.malloc(0, HEAP, 8 * MIB);
    until(&mut made, 100);
    made.free(0, HEAP);
    made.snapshots = vec![
        snapshot(10, &[(HEAP, 3 * PAGE)], true),
        snapshot(20, &[(HEAP, 3 * PAGE)], true),
        snapshot(
            50,
            &[
                (HEAP, 100 * PAGE),
                (HEAP + MIB, 28 * PAGE),
                (HEAP + 32 * MIB, PAGE),
            ],
            true,
        ),
    ];
    let wanted = [
        Op::TouchNext { pages: 3 },
        Op::Malloc {
            slot: 0,
            size: 8 * MIB,
        },
        Op::Touch {
            slot: 0,
            pages: 128,
        },
        Op::Free { slot: 0 },
    ];
    assert_eq!(of_slot_0(ops(&made)), wanted);
    assert_eq!(made.compiled().1.partly_touched, 1);
}

#[test]
fn a_block_that_was_seen_whole_is_touched_at_once() {
    let mut made = Made::new();
    made.malloc(0, HEAP + 16, MIB);
    until(&mut made, 30);
    made.snapshots = vec![
        snapshot(10, &[(HEAP, 2 * MIB)], true),
        snapshot(20, &[], true),
    ];
    assert_eq!(of_slot_0(ops(&made)), [Op::Malloc { slot: 0, size: MIB }]);
}

#[test]
fn blocks_that_nobody_saw_are_touched_as_their_stack_s_others() {
    let mut made = Made::new();
    // A quarter of the first was touched; the second of the same stack comes and goes between snapshots.
    made.by(0, AllocFn::Calloc, HEAP, 4 * MIB);
    until(&mut made, 20);
    made.by(0, AllocFn::Calloc, HEAP + 8 * MIB, MIB);
    made.snapshots = vec![snapshot(10, &[(HEAP, MIB)], true)];
    let wanted = [
        Op::TouchNext { pages: 256 },
        Op::Calloc {
            slot: 0,
            size: 4 * MIB,
        },
        Op::TouchNext { pages: 64 },
        Op::Calloc { slot: 1, size: MIB },
    ];
    let found: Vec<Op> = ops(&made)
        .into_iter()
        .filter(|op| matches!(op, Op::Calloc { .. } | Op::TouchNext { .. }))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn without_evidence_all_is_touched() {
    let mut made = Made::new();
    made.malloc(0, HEAP, 4 * MIB);
    until(&mut made, 20);
    made.snapshots = vec![snapshot(10, &[], false)];
    assert_eq!(
        of_slot_0(ops(&made)),
        [Op::Malloc {
            slot: 0,
            size: 4 * MIB
        }]
    );
    // Small blocks are touched whole, whatever was seen.
    let mut small = Made::new();
    small.malloc(0, HEAP, 10_000);
    until(&mut small, 20);
    small.snapshots = vec![snapshot(10, &[], true)];
    assert_eq!(
        of_slot_0(ops(&small)),
        [Op::Malloc {
            slot: 0,
            size: 10_000
        }]
    );
}
