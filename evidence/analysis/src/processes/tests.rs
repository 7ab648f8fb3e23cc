//! Trees of processes by hand: every sum is worked out in the comments.
//!
//! T1  No figure here was copied from a report.

use skinflint_trace::{Exit, Origin, OriginKind};

use super::*;
use crate::missing::Missing;

const SECOND: u64 = 1_000_000_000;

fn member(uid: &str, pid: u32, began_s: u64, origin: Option<(OriginKind, &str, u32)>) -> Member {
    Member {
        trace: format!("{uid}.sft"),
        process: ProcessInfo {
            uid: uid.into(),
            pid,
            name: uid.into(),
            started_unix_ns: began_s * SECOND,
            origin: origin.map(|(how, uid, pid)| Origin {
                how,
                uid: uid.into(),
                pid,
                fork_ticket: 0,
            }),
            ..ProcessInfo::default()
        },
        ending: Some(Ending {
            exit: Exit::Exited(0),
            time_ns: 10 * SECOND,
            ..Ending::default()
        }),
        ..Member::default()
    }
}

fn read(member: &mut Member, at_s: u64, pss: u64, rss: u64) {
    member.rss.push(RssSample {
        time_ns: at_s * SECOND,
        rss_bytes: rss,
        pss_bytes: Some(pss),
        ..RssSample::default()
    });
}

/// make (0 s to 10 s) starts sh (2 s to 12 s), which becomes cc (4 s to 14 s); make forks a child.
fn build() -> Vec<Member> {
    let mut make = member("make", 1, 100, None);
    let mut sh = member("sh", 2, 102, Some((OriginKind::Spawn, "make", 1)));
    let mut cc = member("cc", 2, 104, Some((OriginKind::Exec, "sh", 2)));
    let child = member("child", 3, 103, Some((OriginKind::Fork, "make", 1)));
    sh.ending = Some(Ending {
        exit: Exit::Exec,
        time_ns: 2 * SECOND,
        ..Ending::default()
    });
    // At 103 s: 100 + 40. At 105 s: 90 + 300 (sh is gone). At 111 s make is gone: 310 alone.
    read(&mut make, 3, 100, 1000);
    read(&mut sh, 1, 40, 400);
    read(&mut make, 5, 90, 1000);
    read(&mut cc, 1, 300, 3000);
    read(&mut cc, 7, 310, 3000);
    vec![cc, child, make, sh]
}

#[test]
fn shared_pages_count_once_and_rows_add_up() {
    let members = build();
    let together = together(&members);
    assert_eq!(together.peak_unix_ns, Some(105 * SECOND));
    let counted = vec![Counted::default(); 4];
    let report = report(&members, &counted, together);
    let peak = report.peak.expect("read");
    assert_eq!((peak.pss_bytes, peak.rss_bytes), (390, 4000));
    assert_eq!((peak.processes, peak.skew_ns), (2, 0));
    assert_eq!(peak.time_ns, 5 * SECOND);
    let sum: u64 = report.processes.iter().map(|p| p.pss_at_peak_bytes).sum();
    assert_eq!(sum, peak.pss_bytes);
    let sum: u64 = report.programs.iter().map(|p| p.pss_at_peak_bytes).sum();
    assert_eq!(sum, peak.pss_bytes);
    let points: Vec<_> = report.timeline.iter().map(|p| p.pss_bytes).collect();
    assert_eq!(points, [140, 390, 310]);
    assert_eq!(report.duration_ns, 14 * SECOND);
}

#[test]
fn a_process_that_became_another_is_one_row() {
    let members = build();
    let mut counted = vec![Counted::default(); 4];
    counted[0].events = 7;
    counted[3].events = 5;
    (counted[0].blocks, counted[2].blocks) = (3, 4);
    let report = report(&members, &counted, together(&members));
    let names: Vec<_> = report.processes.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["make", "cc", "child"]);
    let cc = &report.processes[1];
    let images: Vec<_> = cc.images.iter().map(|image| image.name.as_str()).collect();
    assert_eq!(images, ["sh", "cc"]);
    assert_eq!((cc.name.as_str(), cc.largest.as_str()), ("cc", "cc"));
    // A program that held much and became a small one at its end: what it held is not the small one's.
    let mut shrunk = build();
    let last = shrunk.iter_mut().find(|one| one.process.name == "cc");
    last.expect("cc")
        .rss
        .iter_mut()
        .for_each(|sample| sample.rss_bytes = 1);
    let shrunk = self::report(&shrunk, &vec![Counted::default(); 4], together(&shrunk));
    let of_cc = &shrunk.processes[1];
    assert_eq!((of_cc.name.as_str(), of_cc.largest.as_str()), ("cc", "sh"));
    assert!(shrunk.programs.iter().any(|one| one.name == "sh"));
    assert!(!shrunk.programs.iter().any(|one| one.name == "cc"));
    assert_eq!(
        (cc.pid, cc.parent, cc.depth, cc.events),
        (2, Some(0), 1, 12)
    );
    assert_eq!(
        (cc.made_by.as_str(), cc.ended.as_str()),
        ("spawn", "exit 0")
    );
    assert_eq!((cc.began_ns, cc.ended_ns), (2 * SECOND, 14 * SECOND));
    assert_eq!(report.processes[2].made_by, "fork");
    assert_eq!((report.totals.processes, report.totals.traces), (3, 4));
    assert_eq!((report.totals.blocks, cc.blocks), (7, 3));
    // What cc had resident is more than all had together when they were read.
    let alone = "cc (2) alone had up to 3,000 bytes resident";
    assert!(report.notes.iter().any(|note| note.starts_with(alone)));
}

#[test]
fn what_is_missing_is_said() {
    let mut members = build();
    let counted = vec![Counted::default(); 4];
    let whole = report(&members, &counted, together(&members));
    assert!(whole.missing.is_empty(), "{:?}", whole.missing);
    // The child of fork ended before its memory was read.
    assert!(whole.notes[0].starts_with("1 of 3 processes was never read"));
    let mut counted = counted;
    members[1].ending = None;
    counted[1].verdict.missing.push(Missing::End);
    members[2].ending.as_mut().expect("has one").lost_events = 3;
    let lost = Missing::Lost { events: 3 };
    counted[2].verdict.missing.push(lost);
    let cut = report(&members, &counted, together(&members));
    assert_eq!(cut.missing.len(), 2, "{:?}", cut.missing);
    assert_eq!(cut.totals.lost_events, 3);
    assert_eq!(cut.processes[2].ended, "cut");
    // Two children without a trace, and one that is there.
    counted[2].children = vec![3, 98, 99];
    let silent = report(&members, &counted, together(&members));
    assert!(
        silent
            .notes
            .iter()
            .any(|n| n.starts_with("2 children of fork"))
    );
}

#[test]
fn what_a_member_misses_is_what_its_own_verdict_says() {
    let mut members = build();
    let mut counted = vec![Counted::default(); 4];
    let lines = [Missing::Threads(2), Missing::Acquisitions { releases: 5 }];
    counted[2].verdict.missing = lines.to_vec();
    let notes = &mut members[2].ending.as_mut().expect("has one").notes;
    notes.push("7 calls came from inside the allocator and were not recorded".into());
    let told = report(&members, &counted, together(&members));
    let own = lines.map(|line| format!("make.sft: {line}"));
    assert_eq!(told.missing, own);
    assert_eq!(told.totals.unrecorded_calls, 7);
}

#[test]
fn origins_in_a_circle_lose_nobody() {
    let a = member("a", 1, 100, Some((OriginKind::Spawn, "b", 2)));
    let b = member("b", 2, 100, Some((OriginKind::Spawn, "a", 1)));
    let c = member("c", 3, 100, Some((OriginKind::Exec, "c", 3)));
    let counted = vec![Counted::default(); 3];
    let members = [a, b, c];
    let report = report(&members, &counted, together(&members));
    let mut pids: Vec<_> = report.processes.iter().map(|row| row.pid).collect();
    pids.sort_unstable();
    assert_eq!(pids, [1, 2, 3]);
}

#[test]
fn many_points_keep_the_highest() {
    let mut one = member("one", 1, 0, None);
    one.ending.as_mut().expect("has one").time_ns = 10_000 * SECOND;
    for second in 0..5_000 {
        read(&mut one, second, if second == 3_333 { 999 } else { 10 }, 0);
    }
    let together = together(&[one]);
    assert!(
        together.points.len() <= POINTS + 1,
        "{}",
        together.points.len()
    );
    assert_eq!(together.points.iter().map(|p| p.pss_bytes).max(), Some(999));
}

#[test]
fn who_does_not_answer_a_roll_call_holds_nothing() {
    let mut members = build();
    // At 105 s make and cc are read, the child is not: its reading of 104 s is not added.
    read(&mut members[1], 1, 5_000, 5_000);
    let alone = member("other session", 9, 100, None);
    members.push(alone);
    // Another session has roll calls of its own: its reading of 102 s counts at 105 s.
    read(&mut members[4], 2, 7, 70);
    let together = together(&members);
    let points: Vec<_> = together
        .points
        .iter()
        .map(|p| (p.pss_bytes, p.processes))
        .collect();
    // 102 s; 103 s: 140 + 7; 104 s: the child alone; 105 s: 390; 111 s: 310, and the other has ended at 110 s.
    assert_eq!(points, [(7, 1), (147, 3), (5_007, 2), (397, 3), (310, 1)]);
}
