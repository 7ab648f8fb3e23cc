//! A simulation as text: a table for each moment, a line for each policy.
//!
//! ```text
//!   After the biggest free: 5,000 blocks of 1.20 MiB live …
//!     policy     slop   floor   never   spans   4 KiB   held by survivors   meshing saves
//!     glibc      …
//! ```
//!
//! T1  All columns of a moment are of that moment; [`EXPLAINED`] explains their names, once below all tables.
//! T2  Ratios are of the live bytes in the heading.
//! T3  What is not known is a dash, and names are data (view.V4).
//! T4  What is promised of an allocator is an interval: with what it needs itself, and without what large blocks perhaps had
//!     not touched. Where the intervals of two overlap, none of them is called less.
//!
//! Not here: figures (what-if), JSON (serde).

use skinflint_what_if::WhatIf;
use skinflint_what_if::outcome::{Figures, Level, Outcome};

use crate::screen::{columns, left, right};
use crate::units::{bytes, duration, percent, plural};

/// The gap between columns.
const GAP: &str = "  ";
const NAME_COLUMNS: usize = 32;

/// An explanation of the columns, below the last table.
pub const EXPLAINED: &str = "\
slop: usable bytes beyond those asked for. floor: 4 KiB pages that hold a live block. never, spans, 4 KiB:
resident if nothing, whole spans and runs, or every page without a live block is given back (glibc: nothing,
the top of the heap, what malloc_trim gives back). held: what spans with survivors hold beyond the floor.
meshing: what pairs of spans with no slot in common could share beyond that. Not in the tables: metadata, caches
of threads, glibc's arenas of threads (with several a program holds more under it), huge pages, alignment.
Blocks count as touched whole, large ones as far as snapshots saw them; where a range is said, the tables are of its
high end. At the heap's peak most bytes live, as asked for; the peak of a report is of resident memory, and may be another
moment.
";

/// Renders the tables of one trace. `label` says what was simulated, such as the name of the trace.
pub fn render(what_if: &WhatIf, label: &str) -> String {
    let mut out = format!(
        "{}: {} in {}, {} acquired{}\n",
        crate::screen::clean(label),
        plural(what_if.events, "event"),
        duration(what_if.duration_ns),
        plural(what_if.acquisitions, "block"),
        match what_if.delay_ms {
            0 => String::new(),
            delay_ms => format!("; unused pages wait {delay_ms} ms before they are given back"),
        }
    );
    if what_if.unknown_releases + what_if.faults > 0 {
        out += &format!(
            "not simulated: {} of blocks that the trace does not have, {} that cannot be\n",
            plural(what_if.unknown_releases, "release"),
            plural(what_if.faults, "event"),
        );
    }
    let policies = &what_if.policies;
    moment(
        &mut out,
        "At the heap's peak",
        &what_if.at_peak,
        policies,
        |one| Some(one.at_peak),
    );
    if let Some(low) = &what_if.after_free {
        moment(&mut out, "After the biggest free", low, policies, |one| {
            one.after_free
        });
    }
    if what_if
        .after_free
        .is_none_or(|low| low.ticket != what_if.at_end.ticket)
    {
        moment(&mut out, "At the end", &what_if.at_end, policies, |one| {
            Some(one.at_end)
        });
    }
    run(&mut out, what_if);
    out
}

fn moment(
    out: &mut String,
    heading: &str,
    level: &Level,
    policies: &[Outcome],
    of: impl Fn(&Outcome) -> Option<Figures>,
) {
    let live = level.requested_bytes;
    *out += &format!(
        "\n{heading} ({}): {} of {} live{}\n",
        duration(level.time_ns),
        plural(level.blocks, "block"),
        bytes(live),
        match level.touched_bytes < live {
            _ if level.untold_bytes > 0 => format!(
                ", {} to {} of it touched (no reading tells of {} in large blocks)",
                bytes(level.touched_bytes.saturating_sub(level.untold_bytes)),
                bytes(level.touched_bytes),
                bytes(level.untold_bytes)
            ),
            true => format!(", {} of it touched", bytes(level.touched_bytes)),
            false => String::new(),
        }
    );
    let mut rows = vec![words(&[
        "policy", "slop", "floor", "never", "spans", "4 KiB", "held", "meshing",
    ])];
    for policy in policies {
        let Some(figures) = of(policy) else { continue };
        let all = figures.resident;
        rows.push(vec![
            policy.policy.clone(),
            format!(
                "{} {}",
                bytes(figures.slop_bytes),
                percent(figures.slop_bytes, live)
            ),
            bytes(figures.floor_bytes),
            times(all.never, live),
            times(all.spans, live),
            times(all.holes, live),
            bytes(figures.held_bytes),
            figures
                .mesh
                .map_or_else(|| "–".into(), |mesh| bytes(mesh.saved_bytes)),
        ]);
    }
    table(out, &rows);
}

fn run(out: &mut String, what_if: &WhatIf) {
    let average = what_if.average_requested_bytes;
    *out += "\nOver the run";
    if let Some(live) = average {
        *out += &format!(": {} live on average", bytes(live));
    }
    out.push('\n');
    let mut rows = vec![words(&[
        "policy",
        "most: never",
        "spans",
        "4 KiB",
        "average: slop",
        "floor",
        "spans",
        "4 KiB",
    ])];
    for policy in &what_if.policies {
        let most = policy.most_resident;
        let mut row = vec![
            policy.policy.clone(),
            bytes(most.never),
            bytes(most.spans),
            bytes(most.holes),
        ];
        match (policy.average, average) {
            (Some(mean), Some(live)) => row.extend([
                format!(
                    "{} {}",
                    bytes(mean.slop_bytes),
                    percent(mean.slop_bytes, live)
                ),
                bytes(mean.floor_bytes),
                bytes(mean.resident.spans),
                bytes(mean.resident.holes),
            ]),
            _ => row.extend(words(&["–", "–", "–", "–"])),
        }
        rows.push(row);
    }
    table(out, &rows);
    promise(out, what_if);
}

/// Says what the first policy and each other one of whose own memory something is known would hold at their most (T4).
fn promise(out: &mut String, what_if: &WhatIf) {
    let mut known = what_if
        .policies
        .iter()
        .filter_map(|one| Some((one, one.most_held?)));
    let Some((first, there)) = known.next() else {
        return;
    };
    let range = |low: u64, high: u64| match bytes(low) == bytes(high) {
        true => bytes(low),
        false => format!("{} to {}", bytes(low), bytes(high)),
    };
    for (one, held) in known {
        // Signed: what is saved at least, and at most.
        let least = there.low_bytes as i64 - held.high_bytes as i64;
        let most = there.high_bytes as i64 - held.low_bytes as i64;
        let said = match (least >= 0, most >= 0) {
            (true, _) => format!("{} less", range(least as u64, most as u64)),
            (_, false) => format!("{} more", range(-most as u64, -least as u64)),
            _ => format!(
                "from {} less to {} more",
                bytes(most as u64),
                bytes(-least as u64)
            ),
        };
        *out += &format!(
            "With what it needs itself, at its most {} would hold {}, {} {}: {said}{}\n",
            first.policy,
            range(there.low_bytes, there.high_bytes),
            one.policy,
            range(held.low_bytes, held.high_bytes),
            match what_if.heaps > 1 && first.policy == "glibc" {
                true => ", and less beside what glibc has for threads",
                false => "",
            }
        );
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// Formats bytes, and how many times the live bytes they are (T2).
fn times(resident: u64, live: u64) -> String {
    match live {
        0 => bytes(resident),
        live => format!("{} {:.2}×", bytes(resident), resident as f64 / live as f64),
    }
}

/// Writes a table with names to the left and figures to the right.
fn table(out: &mut String, rows: &[Vec<String>]) {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| columns(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            *out += GAP;
            *out += &match column {
                0 => left(cell, widths[0].min(NAME_COLUMNS)),
                _ => right(cell, widths[column]),
            };
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_what_if::mesh::Mesh;
    use skinflint_what_if::outcome::Held;
    use skinflint_what_if::pages::Residents;

    fn sample() -> WhatIf {
        let level = Level {
            time_ns: 1_500_000_000,
            ticket: 9,
            blocks: 2,
            requested_bytes: 4096,
            touched_bytes: 4096,
            untold_bytes: 0,
        };
        let figures = Figures {
            slop_bytes: 512,
            floor_bytes: 8192,
            resident: Residents {
                never: 16_384,
                spans: 12_288,
                holes: 8192,
            },
            held_bytes: 4096,
            spans: 3,
            mesh: Some(Mesh {
                candidates: 2,
                pairs: 1,
                saved_bytes: 4096,
            }),
            mesh_ticket: Some(8),
        };
        WhatIf {
            events: 20,
            acquisitions: 1,
            at_peak: level,
            after_free: Some(level),
            at_end: Level::default(),
            policies: vec![
                Outcome {
                    policy: "a\u{1b}[31mb".into(),
                    at_peak: figures,
                    after_free: Some(figures),
                    ..Outcome::default()
                },
                Outcome {
                    policy: "longer-name".into(),
                    ..Outcome::default()
                },
            ],
            ..WhatIf::default()
        }
    }

    #[test]
    fn tables_say_each_figure_once_and_in_line() {
        let text = render(&sample(), "app.sft");
        assert!(
            text.starts_with("app.sft: 20 events in 0 ns, 1 block acquired\n"),
            "{text}"
        );
        let figures = "512 B 12.5%  8.00 KiB  16.0 KiB 4.00×  12.0 KiB 3.00×  8.00 KiB 2.00×  4.00 KiB  4.00 KiB\n";
        assert!(
            text.contains(&format!("\n  a�[31mb      {figures}")),
            "{text}"
        );
        assert!(text.contains(&format!("\n  a�[31mb  {figures}")), "{text}");
        assert!(text.contains("\nAfter the biggest free (1.50 s): 2 blocks of 4.00 KiB live\n"));
        // No low is known of the second policy: it is not in that table. Nothing lives at the end.
        assert_eq!(text.matches("longer-name").count(), 3, "{text}");
        assert!(
            text.contains("\nAt the end (0 ns): 0 blocks of 0 B live\n"),
            "{text}"
        );
        assert!(!text.contains("not simulated: "), "{text}");
    }

    #[test]
    fn what_no_reading_tells_of_is_a_range() {
        let mut what_if = sample();
        (what_if.at_peak.touched_bytes, what_if.at_peak.untold_bytes) = (4000, 3000);
        let text = render(&what_if, "app.sft");
        let said =
            ", 1000 B to 3.91 KiB of it touched (no reading tells of 2.93 KiB in large blocks)\n";
        assert!(text.contains(said), "{text}");
    }

    #[test]
    fn what_an_allocator_would_hold_is_an_interval() {
        let mut what_if = sample();
        let held = |low_bytes, high_bytes| {
            Some(Held {
                low_bytes,
                high_bytes,
            })
        };
        what_if.policies[0].most_held = held(10 << 20, 10 << 20);
        what_if.policies[1].most_held = held(7 << 20, 8 << 20);
        let text = render(&what_if, "app.sft");
        let said = "at its most a�[31mb would hold 10.0 MiB, longer-name 7.00 MiB to 8.00 MiB: 2.00 MiB to 3.00 MiB less\n";
        assert!(text.replace("\u{1b}", "�").contains(said), "{text}");
        what_if.policies[1].most_held = held(12 << 20, 13 << 20);
        assert!(render(&what_if, "app.sft").contains(": 2.00 MiB to 3.00 MiB more\n"));
        what_if.policies[1].most_held = held(9 << 20, 13 << 20);
        let text = render(&what_if, "app.sft");
        assert!(
            text.contains(": from 1.00 MiB less to 3.00 MiB more\n"),
            "{text}"
        );
        // Of one policy alone nothing is said.
        what_if.policies[1].most_held = None;
        assert!(!render(&what_if, "app.sft").contains("at its most"));
    }

    #[test]
    fn what_is_missing_comes_before_the_figures() {
        let mut what_if = sample();
        (what_if.unknown_releases, what_if.faults, what_if.delay_ms) = (3, 1, 500);
        let text = render(&what_if, "app.sft");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("; unused pages wait 500 ms before they are given back"));
        assert_eq!(
            lines[1],
            "not simulated: 3 releases of blocks that the trace does not have, 1 event that cannot be"
        );
    }
}
