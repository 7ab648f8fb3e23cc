//! The terminal screen: predicted text, widths, hostile names, empty reports.

mod moments;
#[path = "../../examples/sample/synthetic.rs"]
mod synthetic;
mod verdict;

use skinflint_analysis::model::*;
use skinflint_view::text::{Style, render};

const MIB: u64 = 1 << 20;

/// Builds a report with four rows of 100 MiB in all, one finding, one holder; every printed figure is worked out by
/// hand.
fn small() -> Report {
    let row = |label: &str, mib: u64| BookRow {
        label: label.into(),
        bytes: mib * MIB,
        ..BookRow::default()
    };
    let frame = |function: &str, line: Option<u32>| Frame {
        function: function.into(),
        module: "app".into(),
        file: line.map(|_| "/b/src/a.c".into()),
        line,
        inlined: false,
    };
    Report {
        program: Program {
            name: "app".into(),
            pid: 7,
            duration_ns: 1_500_000_000,
            ended: "exit 0".into(),
            recorder_bytes: 2 * MIB,
            trace_bytes: 1500,
            ..Program::default()
        },
        completeness: Completeness {
            complete: true,
            events: 1000,
            ..Completeness::default()
        },
        totals: Totals {
            allocations: 600,
            frees: 400,
            requested_bytes: 60 * MIB,
            usable_bytes: 64 * MIB,
            ..Totals::default()
        },
        instants: vec![Instant {
            label: "peak".into(),
            kind: InstantKind::Peak,
            time_ns: 1_000_000_000,
            live_blocks: 200,
            live_requested_bytes: 48 * MIB,
            live_usable_bytes: 50 * MIB,
            books: Some(Books {
                resident_bytes: 100 * MIB,
                rows: vec![
                    row("Live", 48),
                    row("Slop", 2),
                    row("Free", 25),
                    row("None", 0),
                    row("Files", 25),
                ],
                ..Books::default()
            }),
            ..Instant::default()
        }],
        findings: vec![
            Finding {
                title: "buffer grows by 8 bytes".into(),
                change: "Double it.".into(),
                saved_bytes: 12 * MIB,
                confidence: Confidence::Likely,
                node: Some(4),
                ..Finding::default()
            },
            Finding {
                title: "one stack holds half".into(),
                now_bytes: 50 * MIB,
                confidence: Confidence::Certain,
                kind: FindingKind::Holder,
                ..Finding::default()
            },
        ],
        frames: vec![
            frame("_start", None),
            frame("main", Some(9)),
            frame("grow(char*)", Some(33)),
            frame("realloc", None),
        ],
        nodes: vec![
            Node::default(),
            Node {
                parent: 0,
                frame: 0,
            },
            Node {
                parent: 1,
                frame: 1,
            },
            Node {
                parent: 2,
                frame: 2,
            },
            Node {
                parent: 3,
                frame: 3,
            },
        ],
        ..Report::default()
    }
}

#[test]
fn a_small_report_reads_as_predicted() {
    let style = Style {
        width: 60,
        trace: Some("app.sft".into()),
        ..Style::default()
    };
    // Width 60 leaves 60 − 10 (label) − 26 = 24 columns to bars: 48% is 11.52, i.e. 11 and 4 eighths.
    let expected = "\
app  pid 7 · 1.50 s · ended: exit 0
complete: 1,000 events, none lost

100 MiB at its peak: 48.0 MiB Live, 25.0 MiB Free, 25.0 MiB
Files. 12.0 MiB can go back.

Resident memory at its peak (1.00 s after the start)
  Live         48.0 MiB   48.0%  ███████████▌
  Slop         2.00 MiB    2.0%  ▌
  Free         25.0 MiB   25.0%  ██████
  Files        25.0 MiB   25.0%  ██████
  = resident    100 MiB  100.0%
  live heap then: 200 blocks, 48.0 MiB asked for, 50.0 MiB
  given (slop 2.00 MiB)

What would give memory back
    12.0 MiB  buffer grows by 8 bytes (likely)
              → Double it.
              at grow  src/a.c:33
                 main  src/a.c:9

Who holds it (not waste by itself)
    50.0 MiB  one stack holds half

Over the run: 600 allocations of 60.0 MiB (64.0 MiB given),
400 frees, 0 reallocs, 0 temporaries.
The recorder itself held 2.00 MiB inside the program; the
trace is 1.46 KiB (1.50 bytes an event).
trace  app.sft
";
    let got = render(&small(), &style);
    assert_eq!(got, expected, "{got}");
}

/// Builds a report with 10 MiB of free memory on 2,600 pages, most of it `grow`'s.
fn pinned() -> Report {
    let mut report = small();
    let row = |free_bytes, blocks, sole_pages, freed_pages, joint_pages| Pins {
        node: Some(4),
        free_bytes,
        blocks,
        sole_pages,
        freed_pages,
        joint_pages,
        age: Some(PinAge {
            median_ns: 12_300_000_000,
            ..PinAge::default()
        }),
        ..Pins::default()
    };
    report.instants[0].fragments = Some(Fragments {
        resident_bytes: 20 * MIB,
        pinned_bytes: 10 * MIB,
        nobodys_bytes: 2 * MIB,
        pages: 5120,
        pinned_pages: 4608,
        partial_pages: 2600,
        packed_pages: 2048,
        functions: vec![
            row(9 * MIB, 3100, 2300, 2200, 12),
            row(MIB / 2, 7, 0, 0, 130),
        ],
        ..Fragments::default()
    });
    report
}

#[test]
fn what_blocks_pin_is_a_table_that_adds_up() {
    let wide = render(&pinned(), &Style::default());
    // 10 MiB less 9.5 belong to others; 2,200 pages are 8.59 MiB; 5,120 less 4,608 pages are nobody's.
    let expected = "
  free in the heap's pages: 10.0 MiB on 2,600 pages that live blocks pin, 2.00 MiB on 512 pages
  without a live byte; side by side the live blocks would fill 2,048 instead of 4,608 pages
       share      blocks  own pages  would free     shared  median age
    9.00 MiB       3,100      2,300    8.59 MiB         12      12.3 s  grow
     512 KiB           7          0         0 B        130      12.3 s  grow
     512 KiB  others
";
    assert!(wide.contains(expected), "{wide}");
    let style = Style {
        width: 60,
        ..Style::default()
    };
    let narrow = render(&pinned(), &style);
    let expected = "
       share      blocks  own pages  would free
    9.00 MiB       3,100      2,300    8.59 MiB  grow
";
    assert!(narrow.contains(expected), "{narrow}");
}

#[test]
fn little_that_is_pinned_is_said_only_where_all_is_asked_for() {
    let mut report = pinned();
    let all = report.instants[0].fragments.as_mut().expect("made so");
    // A fiftieth of 20 MiB is 419,430 bytes.
    all.pinned_bytes = 419_429;
    all.functions.clear();
    let section = "live blocks pin";
    assert!(!render(&report, &Style::default()).contains(section));
    let full = Style {
        full_stacks: true,
        ..Style::default()
    };
    assert!(render(&report, &full).contains(section));
}

#[test]
fn full_stacks_show_every_frame() {
    let text = render(
        &small(),
        &Style {
            full_stacks: true,
            ..Style::default()
        },
    );
    for frame in [
        "at realloc  app",
        "grow(char*)  src/a.c:33",
        "main  src/a.c:9",
        "_start  app",
    ] {
        assert!(text.contains(frame), "missing {frame:?} in\n{text}");
    }
}

#[test]
fn completeness_comes_before_any_figure() {
    let mut report = small();
    report.completeness = Completeness {
        complete: false,
        events: 1000,
        lost_events: 31,
        notes: vec!["disk full after 12 MB".into()],
        ..Completeness::default()
    };
    let text = render(&report, &Style::default());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[1],
        "INCOMPLETE: 1,000 events read, 31 lost: every figure below may be too small"
    );
    assert_eq!(lines[2], "  disk full after 12 MB");
}

#[test]
fn books_that_do_not_add_up_are_called_a_fault() {
    let mut report = small();
    report.instants[0].books.as_mut().expect("has books").rows[0].bytes += 1;
    let text = render(&report, &Style::default());
    assert!(
        text.contains("The rows add up to 104857601 bytes, not 104857600"),
        "{text}"
    );
    assert!(!render(&small(), &Style::default()).contains("add up to"));
}

#[test]
fn an_empty_report_says_that_nothing_was_recorded() {
    let text = render(&Report::default(), &Style::default());
    assert!(
        text.contains("Nothing was recorded") && text.contains("statically linked"),
        "{text}"
    );
    assert!(
        !text.contains("leak") && !text.contains("resident"),
        "{text}"
    );
}

#[test]
fn an_instant_without_books_says_so() {
    let mut report = small();
    report.instants[0].books = None;
    let text = render(&report, &Style::default());
    assert!(
        text.contains("no snapshot of the mappings belongs to this instant"),
        "{text}"
    );
    assert!(text.contains("live heap then: 200 blocks"), "{text}");
    report.instants.clear();
    assert!(render(&report, &Style::default()).contains("no instant"));
    report.at = 99;
    render(&report, &Style::default());
}

/// Builds a report with names that try to leave their place, and a template name of 10 KiB.
fn hostile() -> Report {
    let mut report = synthetic::report(3, 60);
    let long = format!(
        "std::map<{}>::insert",
        "Foo<int, std::vector<Bar>>, ".repeat(400)
    );
    let bad = [
        "\x1b[2J\x1b]0;x\x07",
        "</script><img src=x onerror=alert(1)>",
        "日本語\u{202e}名前",
        "",
        &long,
    ];
    for (index, frame) in report.frames.iter_mut().enumerate() {
        frame.function = bad[index % bad.len()].to_owned();
        frame.file = Some(bad[(index + 1) % bad.len()].to_owned());
    }
    report.program.name = long.clone();
    report.findings[0].title = long.clone();
    report.findings[1].change = format!("\x1b[31m{long}\nnext");
    report.completeness.notes = vec![long.clone()];
    report.instants[0].books.as_mut().expect("has books").rows[0].label = bad[1].repeat(9);
    report
}

#[test]
fn no_line_is_wider_than_the_width_and_the_screen_is_short() {
    let columns = |line: &str| {
        line.chars()
            .map(|c| {
                if ('\u{2e80}'..'\u{a4d0}').contains(&c) {
                    2
                } else {
                    1
                }
            })
            .sum::<usize>()
    };
    for report in [
        small(),
        synthetic::report(1, 400),
        hostile(),
        Report::default(),
    ] {
        for width in (60..=200).step_by(7).chain([61, 99, 101, 199]) {
            let text = render(
                &report,
                &Style {
                    width,
                    html: Some("/very/long".repeat(40)),
                    ..Style::default()
                },
            );
            for line in text.lines() {
                assert!(
                    columns(line) <= width,
                    "{} > {width}: {line}",
                    columns(line)
                );
                assert!(
                    !line.chars().any(char::is_control),
                    "control character in {line:?}"
                );
            }
        }
        let text = render(&report, &Style::default());
        let lines = text.lines().count();
        assert!(lines <= 53, "{lines} lines:\n{text}");
    }
}

#[test]
fn advice_is_wrapped_and_never_cut() {
    let mut report = small();
    let words: Vec<String> = (1..=80).map(|n| format!("word{n:02}")).collect();
    let advice = words.join(" ");
    report.findings[0].change = format!("{advice}.");
    report.findings[0].title = "grows by eight bytes at each of its very many calls ".repeat(2);
    for width in [60, 80, 100, 160] {
        let style = Style {
            width,
            ..Style::default()
        };
        let text = render(&report, &style);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("→ {advice}.")), "{width}: {text}");
        assert_eq!(
            text.matches("very many calls").count(),
            2,
            "{width}: {text}"
        );
    }
}

#[test]
fn colour_is_only_there_when_asked_for() {
    let style = Style {
        color: true,
        ..Style::default()
    };
    let report = synthetic::report(1, 50);
    assert!(!render(&report, &Style::default()).contains('\x1b'));
    let colored = render(&report, &style);
    assert!(colored.contains("\x1b[32m"));
    let mut plain = colored;
    for ink in [
        "\x1b[0m",
        "\x1b[1m",
        "\x1b[2m",
        "\x1b[32m",
        "\x1b[1;33m",
        "\x1b[36m",
    ] {
        plain = plain.replace(ink, "");
    }
    let trimmed: String = plain
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    assert_eq!(trimmed, render(&report, &Style::default()));
}

/// Calls from inside the allocator are in no event: the headline does not claim that nothing was lost.
#[test]
fn calls_that_passed_unrecorded_are_in_the_headline() {
    let mut report = small();
    report.completeness.unrecorded_calls = 4568;
    let text = render(&report, &Style::default());
    let headline = text.lines().nth(1).unwrap();
    assert_eq!(
        headline,
        "complete: 1,000 events, and 4,568 calls passed unrecorded"
    );
}

/// However low the screen, the largest finding has its change; and a sum of the rest counts findings, not stacks.
#[test]
fn the_largest_finding_has_its_advice_on_any_screen() {
    let mut report = small();
    report.findings.push(Finding {
        title: "26 smaller findings of slop, from 42,378 stacks".into(),
        saved_bytes: MIB,
        stacks: 42_378,
        more_nodes: vec![3],
        ..Finding::default()
    });
    let style = Style {
        height: 5,
        ..Style::default()
    };
    let text = render(&report, &style);
    assert!(text.contains("→ Double it."), "{text}");
    assert!(text.contains("… and 26 smaller, 1.00 MiB in all"), "{text}");
}

#[test]
fn shortened_lists_say_what_is_left_out() {
    let mut report = small();
    let one = Finding {
        title: "same".into(),
        saved_bytes: MIB,
        ..Finding::default()
    };
    report.findings = vec![one; 11];
    let text = render(&report, &Style::default());
    assert!(
        text.contains("… and 5 smaller, 5.00 MiB in all (--full-stacks)"),
        "{text}"
    );
}

fn lines_of(report: &Report, full_stacks: bool) -> Vec<String> {
    let style = Style {
        full_stacks,
        ..Style::default()
    };
    let text = render(report, &style);
    text.lines()
        .map(|line| line.trim_end().to_owned())
        .collect()
}

#[track_caller]
fn has(lines: &[String], wanted: &str) {
    assert!(
        lines.iter().any(|line| line == wanted),
        "no {wanted:?} in\n{}",
        lines.join("\n")
    );
}

fn site(node: u32, given_mib: u64, resident_mib: u64) -> Site {
    Site {
        node,
        live_blocks: 10,
        live_usable_bytes: given_mib * MIB,
        live_resident_bytes: Some(resident_mib * MIB),
        ..Site::default()
    }
}

#[test]
fn findings_without_a_saving_are_listed_by_what_they_are_about() {
    let mut report = small();
    let one = |kind, title: &str, node, now_mib: u64| Finding {
        kind,
        title: title.into(),
        node: Some(node),
        now_bytes: now_mib * MIB,
        confidence: Confidence::Certain,
        ..Finding::default()
    };
    report.sites = vec![site(2, 40, 4), site(4, 50, 50)];
    report.findings.extend([
        one(FindingKind::Untouched, "untouched", 2, 4),
        one(FindingKind::Zombie, "zombies", 3, 20),
        Finding {
            saved_allocations: 7,
            ..one(FindingKind::Growth, "room to grow", 4, 24)
        },
        one(FindingKind::Slop, "the fourth", 1, 1),
        Finding {
            confidence: Confidence::Possible,
            ..one(FindingKind::Leak, "live at exit", 3, 9)
        },
    ]);
    let lines = lines_of(&report, false);
    has(
        &lines,
        "Worth a look (how much it would save, the recording cannot tell)",
    );
    // 40 MiB of which 4 are resident.
    for title in [
        "    36.0 MiB  untouched",
        "    24.0 MiB  room to grow",
        "    20.0 MiB  zombies",
    ] {
        let found = lines.iter().any(|line| line.starts_with(title));
        assert!(found, "no {title:?} in\n{}", lines.join("\n"));
    }
    has(&lines, "  … and 1 smaller, 1.00 MiB in all (--full-stacks)");
    let all = lines_of(&report, true).join("\n");
    assert!(
        all.contains("the fourth") && all.contains("live at exit"),
        "{all}"
    );
}

#[test]
fn what_only_grows_has_a_heading_and_comes_first_where_it_weighs_more() {
    let heading = "What only grows (a leak, unless the program is there to collect it)";
    let place = |resident_mib| {
        let mut report = small();
        report.sites = vec![site(3, 42, resident_mib)];
        report.findings.push(Finding {
            kind: FindingKind::Leak,
            title: "Only grows".into(),
            node: Some(3),
            now_bytes: 42 * MIB,
            stacks: 1,
            confidence: Confidence::Likely,
            ..Finding::default()
        });
        let lines = lines_of(&report, false);
        let figure = format!("    {resident_mib}.0 MiB  Only grows (likely)");
        has(&lines, &figure);
        let at = |wanted: &str| lines.iter().position(|line| line == wanted);
        at(heading) < at("What would give memory back")
    };
    // Beside 12 MiB that would be given back.
    assert_eq!([place(20), place(10)], [true, false]);
}

/// How sure a finding is, is said behind the sentence, not in the middle of it.
#[test]
fn how_sure_it_is_stands_at_the_end_of_a_sentence_of_two_lines() {
    let mut report = small();
    let title = "372,199 blocks of 7 functions together, those of the store of retained messages among \
                 them, keep 54.9 MiB of free memory resident";
    report.findings[0].title = title.into();
    let lines = lines_of(&report, false);
    let at = lines
        .iter()
        .position(|line| line.starts_with("    12.0 MiB"));
    let at = at.unwrap_or_else(|| panic!("{lines:#?}"));
    let end = lines[at..].iter().position(|line| line.contains('→'));
    let said = &lines[at..at + end.expect("a change")];
    let words: Vec<&str> = said.iter().map(|line| line.trim()).collect();
    assert!(words.len() > 1, "it fits one line: {said:#?}");
    assert_eq!(words.join(" "), format!("12.0 MiB  {title} (likely)"));
}

#[test]
fn much_free_memory_and_no_advice_is_explained() {
    let mut report = small();
    let advised = report.clone();
    report.findings.clear();
    let says = |report: &Report, words: &str| lines_of(report, false).join(" ").contains(words);
    assert!(says(&report, "No pass found anything to change."));
    let books = report.instants[0].books.as_mut().expect("books");
    books.rows[2].id = "allocator-free".into();
    let words =
        "No change is advised, though 25.0 MiB of resident memory (25.0%) are free at this moment";
    assert!(
        says(&report, words),
        "{}",
        render(&report, &Style::default())
    );
    // Beside findings that advise nothing as well, and beside none that does.
    report.findings = advised.findings;
    assert!(!says(&report, words));
    report
        .findings
        .iter_mut()
        .for_each(|finding| finding.saved_bytes = 0);
    assert!(says(&report, words));
}

#[test]
fn a_recording_without_some_of_its_processes_is_incomplete() {
    let mut report = small();
    let headline = |report: &Report| lines_of(report, false)[1].clone();
    assert!(
        headline(&report).starts_with("complete: "),
        "{}",
        headline(&report)
    );
    report.completeness.lost_children = 2;
    let got = headline(&report);
    let wanted = "INCOMPLETE: 2 processes that it started were not recorded; of this one ";
    assert!(got.starts_with(wanted), "{got}");
    assert!(got.ends_with("none lost"), "{got}");
}

#[test]
fn what_is_not_resident_is_named_only_by_a_function_that_has_most_of_it() {
    let mut report = small();
    let books = report.instants[0].books.as_mut().expect("books");
    books.live_not_resident_bytes = 10 * MIB;
    let at = |report: &Report| lines_of(report, false).join("\n").contains("(most: ");
    report.sites.push(Site {
        node: 4,
        live_usable_bytes: 20 * MIB,
        live_resident_bytes: Some(15 * MIB),
        ..Site::default()
    });
    assert!(!at(&report), "it has half");
    report.sites[0].live_resident_bytes = Some(14 * MIB);
    assert!(at(&report), "{}", lines_of(&report, false).join("\n"));
}

#[test]
fn a_reading_long_before_the_end_is_not_called_the_end() {
    let mut report = small();
    report.instants.push(Instant {
        label: "end".into(),
        kind: InstantKind::End,
        books: Some(Books {
            resident_bytes: 30 * MIB,
            skew_ns: 696_000_000,
            ..Books::default()
        }),
        ..Instant::default()
    });
    has(
        &lines_of(&report, false),
        "  elsewhere: 30.0 MiB resident 696 ms before the end",
    );
}

#[test]
fn pages_of_another_moment_are_said_with_their_distance() {
    for (skew_bytes, said) in [
        (-3 << 20, "when 3.00 MiB less lived"),
        (5 << 10, "when 5.00 KiB more lived"),
    ] {
        let mut report = small();
        let at = report.at;
        let books = report.instants[at].books.as_mut().expect("books");
        books.skew_bytes = skew_bytes;
        let lines = lines_of(&report, false).join("\n");
        let lines = lines.split_whitespace().collect::<Vec<_>>().join(" ");
        let said = format!("before or after, {said}");
        assert!(lines.contains(&said), "{lines}");
    }
}

#[test]
fn memory_that_is_free_at_another_moment_leaves_the_peak_as_it_is() {
    let says_so = |label: &str, mib: u64| {
        let mut report = small();
        report.instants.push(Instant {
            label: "most-kept".into(),
            kind: InstantKind::MostKept,
            books: Some(Books {
                resident_bytes: mib * MIB,
                ..Books::default()
            }),
            ..Instant::default()
        });
        report.findings[0].kind = FindingKind::Retained;
        report.findings[0].what =
            format!("At {label} (1.433 s) the allocator (glibc) holds 12 MiB");
        let lines = lines_of(&report, false).join("\n");
        let moment = format!("At {label} (1.433 s)");
        assert!(lines.contains(&moment), "{lines}");
        lines.contains(&format!("{moment}: the peak stays as it is"))
    };
    assert!(says_so("most-kept", 30));
    // Within two per cent it is the same fullness.
    assert!(!says_so("most-kept", 99));
    assert!(!says_so("peak", 30));
}

#[test]
fn heaps_of_its_own_swap_and_functions_with_all_that_they_call() {
    let mut report = small();
    report.own_heaps = vec![OwnHeap {
        allocator: true,
        what: "The program brings an allocator of its own.".into(),
        change: "Record it without.".into(),
        ..OwnHeap::default()
    }];
    let books = report.instants[0].books.as_mut().expect("books");
    books.beside = vec![BookRow {
        id: "swapped".into(),
        label: "swapped out".into(),
        bytes: 3 * MIB,
        ..BookRow::default()
    }];
    report.sites = vec![Site {
        node: 4,
        live_blocks: 200,
        live_usable_bytes: 50 * MIB,
        ..Site::default()
    }];
    report.mappers = vec![Mapper {
        node: 3,
        resident_bytes: Some(50 * MIB),
        ..Mapper::default()
    }];
    let row = |node, mib: u64, own: u64, passes_on| Through {
        node,
        bytes: mib * MIB,
        own_bytes: own * MIB,
        stacks: mib / 25,
        passes_on,
        ..Through::default()
    };
    report.through = vec![
        row(1, 100, 0, true),
        row(2, 100, 0, false),
        row(3, 50, 30, false),
    ];
    let text = render(&report, &Style::default());
    let has = |line: &str| {
        assert!(
            text.lines().any(|one| one == line),
            "no {line:?} in\n{text}"
        )
    };
    has("  The program brings an allocator of its own.");
    has("  → Record it without.");
    has("  swapped out   3.00 MiB    3.0%");
    has(
        "  in huge pages: not known (the trace does not say); what they alone make resident looks free",
    );
    has("Through whom (with all that each calls: these overlap)");
    has("     100 MiB  100 %  main  src/a.c:9 · 4 stacks");
    has("    50.0 MiB   50 %  grow  src/a.c:33 · 2 stacks");
    assert!(!text.contains("_start"), "passes on:\n{text}");
    // A function that holds it all itself is a holder, and no line here.
    report.through[2].own_bytes = 45 * MIB;
    let text = render(&report, &Style::default());
    assert!(!text.contains("50 %  grow"), "the holder's:\n{text}");
}
