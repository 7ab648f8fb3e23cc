//! The verdict above the books: each sentence predicted by hand.

use skinflint_analysis::model::*;
use skinflint_view::text::{Style, render};

use super::{MIB, small};

/// Returns what stands between the headline and the books, on one line.
fn verdict(report: &Report) -> String {
    let style = Style {
        width: 200,
        ..Style::default()
    };
    let text = render(report, &style);
    let mut parts = text.split("\n\n");
    parts.nth(1).expect("a part behind the headline").to_owned()
}

/// Returns a holder of so many mebibytes at the stack of `grow`.
fn holder(mib: u64) -> Finding {
    Finding {
        kind: FindingKind::Holder,
        now_bytes: mib * MIB,
        node: Some(4),
        ..Finding::default()
    }
}

fn saving(mib: u64) -> Finding {
    Finding {
        saved_bytes: mib * MIB,
        node: Some(4),
        ..Finding::default()
    }
}

fn with(findings: Vec<Finding>) -> Report {
    Report {
        findings,
        ..small()
    }
}

const ROWS: &str = "100 MiB at its peak: 48.0 MiB Live, 25.0 MiB Free, 25.0 MiB Files.";

#[test]
fn what_can_go_back_and_what_holds_most_are_named() {
    let found = verdict(&with(vec![saving(12), holder(50), holder(30)]));
    let wanted = format!("{ROWS} 12.0 MiB can go back; the largest holder is grow (50.0 MiB).");
    assert_eq!(found, wanted);
}

/// A list comprehension has the name of every other one.
#[test]
fn a_function_without_a_name_of_its_own_is_told_by_its_line() {
    let told = |function: &str, file: Option<&str>| {
        let mut report = with(vec![holder(50)]);
        for frame in &mut report.frames {
            function.clone_into(&mut frame.function);
            frame.file = file.map(str::to_owned);
            frame.line = Some(3);
        }
        let text = verdict(&report);
        let (_, holder) = text.split_once("holder is ").expect("a holder");
        holder.to_owned()
    };
    assert_eq!(
        told("<listcomp>", Some("/a/b/rows.py")),
        "<listcomp> at rows.py:3 (50.0 MiB)."
    );
    assert_eq!(
        told("(anonymous)", Some("s.js")),
        "(anonymous) at s.js:3 (50.0 MiB)."
    );
    assert_eq!(
        told("<T as Into<U>>::into", None),
        "<T as Into<U>>::into (50.0 MiB)."
    );
    assert_eq!(told("load", Some("/a/b/rows.py")), "load (50.0 MiB).");
}

/// Which function made it grow is chance.
#[test]
fn a_known_heap_of_the_program_has_its_name() {
    let mut report = with(vec![holder(50)]);
    report.own_heaps.push(OwnHeap {
        name: "GCC's own heap (ggc)".into(),
        node: Some(4),
        ..OwnHeap::default()
    });
    assert!(verdict(&report).ends_with("holder is GCC's own heap (ggc) (50.0 MiB)."));
    report.own_heaps[0].name.clear();
    assert!(verdict(&report).ends_with("holder is grow (50.0 MiB)."));
}

#[test]
fn of_several_changes_the_largest_is_told_and_none_added() {
    let found = verdict(&with(vec![saving(3), saving(12), saving(5)]));
    let wanted = format!("{ROWS} The largest of 3 changes gives back 12.0 MiB.");
    assert_eq!(found, wanted);
}

#[test]
fn what_is_too_small_is_no_change_and_no_holder() {
    let mut little = saving(0);
    // A five-hundredth of 100 MiB is 209,715 bytes.
    little.saved_bytes = 209_714;
    let found = verdict(&with(vec![little, holder(9)]));
    let wanted = format!("{ROWS} No change that gives memory back is advised.");
    assert_eq!(found, wanted);
}

#[test]
fn a_saving_below_the_peak_is_one_of_another_moment() {
    let mut report = with(vec![Finding {
        kind: FindingKind::Retained,
        what: "At late (1.200 s) the allocator (glibc) keeps it.".into(),
        ..saving(20)
    }]);
    let mut late = report.instants[0].clone();
    late.label = "late".into();
    late.kind = InstantKind::Mark;
    late.books.as_mut().expect("books").resident_bytes = 60 * MIB;
    report.instants.push(late);
    let wanted = format!("{ROWS} At another moment 20.0 MiB can go back.");
    assert_eq!(verdict(&report), wanted);
}

#[test]
fn rows_have_names_without_commas_and_small_ones_and_the_recorders_none() {
    let mut report = with(Vec::new());
    let books = report.instants[0].books.as_mut().expect("books");
    books.rows[2].id = "allocator-free".into();
    books.rows[2].label = "free, kept by the allocator".into();
    books.rows[4].id = "recorder".into();
    let found = verdict(&report);
    assert!(
        found.contains("Live, 25.0 MiB free in the allocator. "),
        "{found}"
    );
    assert!(!found.contains("Files"), "{found}");
    // The 2 MiB of slop are a fiftieth, and no more.
    assert!(!found.contains("Slop"), "{found}");
}

#[test]
fn without_books_there_is_no_verdict() {
    let mut report = with(vec![saving(12)]);
    report.instants[0].books = None;
    let found = verdict(&report);
    assert!(found.starts_with("Resident memory at its peak"), "{found}");
}

#[test]
fn a_reading_near_the_peak_is_not_called_the_peak() {
    let mut report = with(Vec::new());
    report.program.max_rss_bytes = Some(130 * MIB);
    let found = verdict(&report);
    assert!(found.starts_with("100 MiB near its peak: "), "{found}");
}

#[test]
fn made_up_names_do_not_fill_the_screen() {
    let mut report = with(vec![holder(50)]);
    report.frames[2].function = "f".repeat(4000);
    for row in &mut report.instants[0].books.as_mut().expect("books").rows {
        row.label = "l".repeat(4000);
    }
    let text = render(&report, &Style::default());
    let verdict = text.split("\n\n").nth(1).expect("a verdict");
    assert!(verdict.lines().count() <= 3, "{verdict}");
}
