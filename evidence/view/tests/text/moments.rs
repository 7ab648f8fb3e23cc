//! Moments on the screen: what the heading calls the peak, and which other moments are named.
//!
//! Not here: what is said of a moment that is asked for, and of the end (`main.rs`).

use super::*;

#[test]
fn a_peak_that_no_look_fell_on_is_not_called_the_peak() {
    let mut report = small();
    report.program.max_rss_bytes = Some(102 * MIB);
    has(
        &lines_of(&report, false),
        "Resident memory at its peak (1.00 s after the start)",
    );
    report.program.max_rss_bytes = Some(103 * MIB);
    let lines = lines_of(&report, false);
    has(
        &lines,
        "Resident memory at one of the largest readings (1.00 s after the start: of those the one with most",
    );
    has(
        &lines,
        "live and resident bytes together; the kernel saw 103 MiB)",
    );
}

#[test]
fn a_peak_that_another_reading_passes_is_not_called_the_peak_either() {
    let mut report = small();
    let peak = report.instants[0].books.clone().expect("books");
    report.instants.push(Instant {
        label: "end".into(),
        kind: InstantKind::End,
        books: Some(Books {
            resident_bytes: peak.resident_bytes + MIB,
            ..Books::default()
        }),
        ..Instant::default()
    });
    let lines = lines_of(&report, false);
    has(
        &lines,
        "Resident memory near its peak (1.00 s after the start: of the largest readings the one with most",
    );
    // Less than is printed is no difference.
    let last = report
        .instants
        .last_mut()
        .and_then(|one| one.books.as_mut());
    last.expect("books").resident_bytes = peak.resident_bytes + 1;
    has(
        &lines_of(&report, false),
        "Resident memory at its peak (1.00 s after the start)",
    );
}

/// Moments: two lines of them, and how to see what has no room there.
#[test]
fn other_moments_are_named_or_it_is_said_where_they_are() {
    let mut report = small();
    let mark = |name: &str| Instant {
        label: name.into(),
        kind: InstantKind::Mark,
        books: report.instants[0].books.clone(),
        ..Instant::default()
    };
    let marks: Vec<Instant> = ["loaded", "indexed", "served", "compacted"]
        .map(mark)
        .into();
    report.instants.extend(marks);
    let lines = lines_of(&report, false);
    let text = lines.join("\n");
    for name in ["loaded", "indexed", "served", "compacted"] {
        assert!(text.contains(&format!("{name} 100 MiB resident")), "{text}");
    }
    assert!(!text.contains("more (--json"), "{text}");
    for n in 0..9 {
        let more = Instant {
            label: format!("turn {n}"),
            ..report.instants[0].clone()
        };
        report.instants.push(Instant {
            kind: InstantKind::Mark,
            ..more
        });
    }
    let text = lines_of(&report, false).join("\n");
    assert!(text.contains(" more (--json: instants)"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn the_moment_at_which_most_was_kept_is_named_in_words() {
    let mut report = small();
    let kept = |kib: u64| Instant {
        label: "most-kept".into(),
        kind: InstantKind::MostKept,
        time_ns: 1_433_000_000,
        books: Some(Books {
            resident_bytes: 30 * MIB,
            rows: vec![BookRow {
                id: "allocator-free".into(),
                bytes: kib << 10,
                ..BookRow::default()
            }],
            ..Books::default()
        }),
        ..Instant::default()
    };
    report.instants.push(kept(12 << 10));
    has(
        &lines_of(&report, false),
        "  elsewhere: the allocator kept most, 12.0 MiB free, 1.43 s after the start",
    );
    report.completeness.began_late = true;
    has(
        &lines_of(&report, false),
        "  elsewhere: most, 12.0 MiB free, or not recorded, 1.43 s after the start",
    );
    report.completeness.began_late = false;
    // What the pages do not confirm is not named.
    let last = report.instants.len() - 1;
    report.instants[last] = kept(4);
    let lines = lines_of(&report, false);
    assert!(
        !lines.iter().any(|line| line.contains("kept")),
        "{lines:#?}"
    );
}
