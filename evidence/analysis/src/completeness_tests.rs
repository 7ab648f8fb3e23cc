//! The verdict from each kind of evidence, and what explains it away.

use skinflint_trace::{Ending, ProcessInfo};

use super::*;
use crate::missing::tests::known;

const MIB: u64 = 1 << 20;

/// The verdict on a recording of ten events with this evidence.
fn judged(change: impl FnOnce(&mut Ending, &mut Seen)) -> Vec<Missing> {
    let process = ProcessInfo {
        allocator: "glibc 2.36".into(),
        ..ProcessInfo::default()
    };
    let counts = Counts {
        events: 10,
        allocations: 5,
        frees: 5,
        ..Counts::default()
    };
    let mut ending = Ending {
        events: 10,
        ..Ending::default()
    };
    let mut seen = Seen {
        counts,
        threads: 1,
        ..Seen::default()
    };
    change(&mut ending, &mut seen);
    judge(&known(&process, Some(&ending), 10), &seen).missing
}

#[test]
fn much_heap_without_a_block_is_missing_and_a_little_is_not() {
    let of = |bytes, resident_bytes| {
        judged(|_, seen| {
            seen.unexplained = Unexplained {
                bytes,
                resident_bytes,
            };
        })
    };
    assert_eq!(of(0, 0), []);
    let bound = MIB;
    assert_eq!(of(bound, 20 * MIB), []);
    let heap = [Missing::Heap {
        resident_bytes: bound + 1,
    }];
    assert_eq!(of(bound + 1, 20 * MIB), heap);
    assert!(heap[0].hides_live_blocks());
    assert_eq!(of(30 * MIB, 2000 * MIB), [], "a part of a large process");
    assert_eq!(of(90 * MIB, 2000 * MIB).len(), 1);
    // The page map of tcmalloc, and what each further thread keeps ahead.
    let allowed = [("glibc", 1), ("tcmalloc", 1), ("glibc", 9), ("glibc", 9000)];
    let allowed = allowed.map(|(allocator, threads)| allowance(allocator, threads, 0) * 2 / MIB);
    assert_eq!(allowed, [2, 6, 3, 34]);
}

#[test]
fn pages_accuse_only_a_recording_that_is_whole_otherwise_and_from_birth() {
    let far = Unexplained {
        bytes: 20 * MIB,
        resident_bytes: 30 * MIB,
    };
    let lost = judged(|ending, seen| {
        ending.lost_events = 3;
        seen.unexplained = far;
    });
    assert_eq!(lost, [Missing::Lost { events: 3 }]);
    let attached = judged(|ending, seen| {
        ending.notes.push("recorded from … (attached): …".into());
        seen.unexplained = far;
    });
    assert_eq!(attached, []);
    // The same cause, seen twice: both are said.
    let freed = judged(|_, seen| {
        seen.counts.unknown_frees = 200;
        seen.unexplained = far;
    });
    assert!(matches!(
        freed[..],
        [Missing::Heap { .. }, Missing::Acquisitions { .. }]
    ));
}

#[test]
fn events_beyond_those_that_were_recorded_and_tickets_without_an_event_are_said() {
    let surplus = judged(|ending, _| ending.events = 7);
    assert_eq!(surplus, [Missing::Surplus { events: 10, of: 7 }]);
    let gaps = judged(|_, seen| seen.missing_tickets = 4);
    assert_eq!(gaps, [Missing::Tickets { events: 4 }]);
    let lost = judged(|ending, seen| {
        ending.lost_events = 9;
        seen.missing_tickets = 4;
    });
    assert_eq!(lost, [Missing::Lost { events: 9 }]);
}

#[test]
fn a_ticket_without_its_event_is_missed() {
    let missing = |all: &[u64]| {
        let mut tickets = Tickets::default();
        all.iter().for_each(|ticket| tickets.see(*ticket));
        tickets.missing()
    };
    assert_eq!(missing(&[1, 2, 2, 3]), 0, "a mark from outside");
    assert_eq!(missing(&[2, 3, 7]), 4, "1, and 4 to 6");
    // A second thread: 2^20 are left out once, and only once.
    let multi = 3 + TICKET_GAP;
    assert_eq!(missing(&[1, 2, multi, multi + 1]), 0);
    assert_eq!(missing(&[1, 2, multi, multi + 2]), 1);
}
