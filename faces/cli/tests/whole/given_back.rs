//! What a report says that `malloc_trim(0)` gives back, and leaves, beside what it gives back and leaves.
//!
//! ```text
//!   tops.c (its head) ─ mark "before" ─► report: free pages that go, ends of arenas that stay
//!                     ─ malloc_trim(0)
//!                     ─ mark "after" ──► report: resident memory fell by what goes; the ends still stay
//!   ebb.c, without marks ─────► report: what it freed before it rested goes
//! ```
//!
//! V1  The judge is the kernel's count of resident memory at the two marks, at which the program waits.
//! V2  Off by a twentieth or [`LEEWAY`] at most: pages of blocks in threads' caches, and what the program's own code touches.
//!
//! Not here: where the topmost chunks are found (collect `tops.rs`), the division by itself (analysis `giveback.rs`).

use crate::programs::recorded;
use crate::report::{number, text};
use crate::tool::{Bench, program};

const MIB: u64 = 1 << 20;
const LEEWAY: u64 = MIB;

/// The figures of a mark.
struct Told {
    resident_bytes: u64,
    goes_bytes: u64,
    stays_bytes: u64,
}

#[track_caller]
fn told(bench: &Bench, mark: &str) -> Told {
    let report = bench.report_at("main.sft", mark);
    let at = &report.list("instants")[report.number("at") as usize];
    assert_eq!(text(at, "label"), mark);
    let sum = |title: &str| {
        let findings = report.list("findings").iter();
        let of = findings.filter(|one| text(one, "title").starts_with(title));
        of.map(|one| number(one, "now_bytes")).sum()
    };
    assert_eq!(sum("Free memory behind the last blocks"), 0, "not divided");
    Told {
        resident_bytes: number(at, "books.resident_bytes"),
        goes_bytes: sum("Free pages that the allocator keeps"),
        stays_bytes: sum("Free memory at the ends of threads' arenas"),
    }
}

/// Reports whether two figures are one (V2).
fn are_one(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= LEEWAY.max(one.max(other) / 20)
}

/// Records tops.c with some of its threads, and checks what is told beside what its head says, in MiB.
#[track_caller]
fn divided(kinds: &str, goes: u64, stays: u64) {
    divided_with(&[kinds], goes, stays);
}

#[track_caller]
fn divided_with(words: &[&str], goes: u64, stays: u64) {
    let (bench, kinds) = (Bench::new(), words[0]);
    let tops = program("tops");
    let command = [&[tops.to_str().expect("a path")], words].concat();
    let done = bench.record(command);
    assert_eq!(done.stdout, format!("tops: {kinds}\n"), "{}", done.stderr);
    let (before, after) = (told(&bench, "before"), told(&bench, "after"));
    let given = before.resident_bytes.saturating_sub(after.resident_bytes);
    let said = format!(
        "{kinds}: {} told to go and {given} gone, {} told to stay and {} afterwards",
        before.goes_bytes, before.stays_bytes, after.stays_bytes
    );
    println!("{said}");
    assert!(are_one(given, goes * MIB), "the program: {said}");
    assert!(are_one(before.goes_bytes, given), "{said}");
    assert!(are_one(before.stays_bytes, stays * MIB), "{said}");
    assert!(are_one(before.stays_bytes, after.stays_bytes), "{said}");
    assert!(after.goes_bytes <= LEEWAY, "{said}, {}", after.goes_bytes);
}

#[test]
fn what_lies_below_a_cached_block_goes_and_a_topmost_chunk_stays() {
    divided("a", 8, 0);
    divided("b", 0, 8);
    divided("f", 4, 4);
}

#[test]
fn what_lies_in_fast_bins_goes_or_becomes_a_topmost_chunk() {
    divided("c", 8, 0);
    divided("d", 0, 8);
}

/// The program waits at a mark as long as it takes, though the collector is late: without that it is in `malloc_trim` by
/// the time that it is read.
#[test]
fn a_late_snapshot_is_of_its_mark() {
    divided_with(&["d", "late"], 0, 8);
    divided_with(&["a", "late"], 8, 0);
}

#[test]
fn the_heap_before_an_arenas_last_goes_to_its_end() {
    divided("e", 72, 0);
}

#[test]
fn the_end_of_the_data_segment_goes() {
    divided("m", 8, 0);
}

#[test]
fn all_of_them_add_up() {
    let bench = Bench::new();
    recorded(&bench, "tops");
    divided("abcdefm", 8 + 8 + 72 + 4 + 8, 8 + 8 + 4);
}

/// No mark names the moment, and the rest is shorter than the collector's period: it reads pages since live memory fell.
#[test]
fn what_is_freed_before_a_short_rest_is_seen() {
    let bench = Bench::new();
    recorded(&bench, "ebb");
    let report = bench.report_at("main.sft", "peak");
    let findings = report.list("findings").iter();
    let kept = findings.filter(|one| text(one, "kind") == "retained");
    let saved = kept.map(|one| number(one, "saved_bytes")).sum();
    assert!(are_one(saved, 8 * MIB), "{saved} of 8 MiB");
}
