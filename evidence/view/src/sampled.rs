//! The report of a sampled recording, as text.
//!
//! ```text
//!   Sampled ─► what it is, what is missing ─► books ─► stacks that hold, that grow ─► what acquired most
//!   38.0 MiB ± 2.1        5.00 MiB (3.10 MiB to 8.20 MiB)        2.00 MiB (2 samples)        8.00 MiB
//! ```
//!
//! A1  Every figure that is an estimate has its error beside it, and one without is exact.
//! A2  What is listed and the row for the others add up to the figure above them, but for rounding.
//!
//! Not here: the estimates (`analysis::sampled`), frames of stacks (concordance.rs).

use std::fmt::Write as _;

use skinflint_analysis::model::Report;
use skinflint_analysis::sampled::{Figure, Sampled, Stack};

use crate::concordance::frames;
use crate::units::{bytes, duration, percent, plural, with_error};

/// Stacks of a list.
const SHOWN: usize = 20;
/// Stacks of the list of what acquired most.
const ACQUIRED: usize = 8;

/// Returns an estimate with its error (A1).
pub fn figure(of: &Figure) -> String {
    match (of.low, of.high) {
        (Some(low), Some(high)) if low == high => bytes(of.bytes),
        (Some(low), Some(high)) => {
            let (down, up) = (of.bytes.saturating_sub(low), high.saturating_sub(of.bytes));
            match down.abs_diff(up) > (down + up) / 20 {
                true => format!("{} ({} to {})", bytes(of.bytes), bytes(low), bytes(high)),
                false => with_error(of.bytes, up),
            }
        }
        _ => format!("{} ({})", bytes(of.bytes), plural(of.samples, "sample")),
    }
}

/// Returns the report as text.
pub fn render(of: &Sampled) -> String {
    let mut text = String::new();
    // Stacks are shown as those of any report.
    let names = Report {
        nodes: of.nodes.clone(),
        frames: of.frames.clone(),
        plumbing: of.plumbing.clone(),
        ..Report::default()
    };
    let _ = writeln!(
        text,
        "{} ({}), {}: one block every {} that it asked for, {}.\nFigures are estimates; ± and (to) are \
         intervals of 95 %. What has none is exact, or is said to have too few samples.",
        of.process.name,
        of.process.pid,
        match of.process.allocator.starts_with("Go's heap") {
            true => "read from outside, by the samples that Go takes itself",
            false
                if of
                    .process
                    .allocator
                    .starts_with("the profile that it serves") =>
                "by the heap profile that it serves",
            false => "a sampled recording",
        },
        bytes(of.sample_bytes),
        plural(of.live.samples, "live sample"),
    );
    for missing in &of.missing {
        let _ = writeln!(text, "Incomplete: {missing}");
    }
    books(&mut text, of);
    holders(&mut text, of, &names);
    growing(&mut text, of, &names);
    acquirers(&mut text, of, &names);
    text
}

fn books(text: &mut String, of: &Sampled) {
    // Between two readings resident memory may have been larger.
    let moment = match of.at.as_str() {
        "peak" => "the largest reading",
        other => other,
    };
    let at = format!("{moment} ({})", duration(of.time_ns));
    if of.rows.is_empty() {
        let _ = writeln!(text, "\nAt {at}: resident memory was not read then.");
    } else {
        let resident = of.resident_bytes;
        let _ = writeln!(text, "\nAt {at}: {} resident", bytes(resident));
        let shown = of.rows.iter().filter(|row| row.bytes != 0);
        for row in shown {
            let (size, share) = (row.bytes.unsigned_abs(), row.bytes.max(0) as u64);
            let sign = if row.bytes < 0 { "−" } else { "" };
            let figure = match row.error_bytes {
                Some(0) => bytes(size),
                Some(half) => with_error(size, half),
                None => format!("{} (too few samples)", bytes(size)),
            };
            let share = percent(share, resident);
            let figure = format!("{sign}{figure}");
            let _ = writeln!(text, "  {share:>6}  {figure:<20}  {}", row.label);
        }
    }
    let _ = writeln!(text, "\nLive, resident or not: {}", figure(&of.live));
    if let Some(exact) = of.in_use_bytes {
        let _ = writeln!(
            text,
            "The allocator itself counts {} in use at the end.",
            bytes(exact)
        );
    }
}

fn line(text: &mut String, names: &Report, stack: &Stack, figure: &str, more: &str) {
    let _ = writeln!(text, "  {figure:<24}  {}{more}", frames(names, stack.node));
}

fn holders(text: &mut String, of: &Sampled, names: &Report) {
    let held: Vec<&Stack> = of
        .stacks
        .iter()
        .filter(|stack| stack.live.bytes > 0)
        .collect();
    if held.is_empty() {
        let _ = writeln!(
            text,
            "\nNo live block is a sample: what stacks hold is not known."
        );
        return;
    }
    let _ = writeln!(text, "\nStacks that hold most");
    for stack in held.iter().take(SHOWN) {
        let certain = if stack.holds {
            "   [a tenth or more, for certain]"
        } else {
            ""
        };
        line(text, names, stack, &figure(&stack.live), certain);
    }
    if let Some(rest) = held.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        let sum: u64 = rest.iter().map(|stack| stack.live.bytes).sum();
        let _ = writeln!(
            text,
            "  {:<24}  {}",
            bytes(sum),
            plural(rest.len() as u64, "further stack")
        );
    }
}

fn growing(text: &mut String, of: &Sampled, names: &Report) {
    let mut grown: Vec<_> = of
        .stacks
        .iter()
        .filter_map(|one| Some((one, one.growth?)))
        .collect();
    grown.sort_by_key(|(one, growth)| (std::cmp::Reverse(growth.bytes), one.node));
    let from = duration(of.middle_ns);
    if grown.is_empty() {
        let _ = writeln!(text, "\nNo stack has certainly grown since {from}.");
        return;
    }
    let _ = writeln!(text, "\nStacks that have grown since {from}, for certain");
    for (stack, growth) in grown.iter().take(SHOWN) {
        let half = growth.high.saturating_sub(growth.bytes);
        line(text, names, stack, &with_error(growth.bytes, half), "");
    }
    if grown.len() > SHOWN {
        let _ = writeln!(
            text,
            "  … and {}",
            plural((grown.len() - SHOWN) as u64, "further stack")
        );
    }
}

fn acquirers(text: &mut String, of: &Sampled, names: &Report) {
    if of.acquired.bytes == 0 {
        return;
    }
    let _ = writeln!(
        text,
        "\nAcquired up to then: {}; most of it by",
        figure(&of.acquired)
    );
    let mut all: Vec<&Stack> = of.stacks.iter().collect();
    all.sort_by_key(|one| (std::cmp::Reverse(one.acquired.bytes), one.node));
    for stack in all
        .iter()
        .take(ACQUIRED)
        .filter(|one| one.acquired.bytes > 0)
    {
        line(text, names, stack, &figure(&stack.acquired), "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn estimate(bytes: u64, low: u64, high: u64, samples: u64) -> Figure {
        Figure {
            bytes,
            low: Some(low),
            high: Some(high),
            blocks: 1,
            samples,
        }
    }

    #[test]
    fn an_estimate_says_its_error_and_an_exact_figure_has_none() {
        assert_eq!(
            figure(&estimate(38 * MIB, 36 * MIB, 40 * MIB, 76)),
            "38.0 MiB ± 2.0"
        );
        assert_eq!(figure(&estimate(8 * MIB, 8 * MIB, 8 * MIB, 0)), "8.00 MiB");
        assert_eq!(
            figure(&estimate(5 * MIB, 2 * MIB, 9 * MIB, 8)),
            "5.00 MiB (2.00 MiB to 9.00 MiB)"
        );
        let few = Figure {
            bytes: MIB,
            samples: 2,
            ..Figure::default()
        };
        assert_eq!(figure(&few), "1.00 MiB (2 samples)");
    }

    #[test]
    fn rows_that_are_exact_have_no_error() {
        let row = |id: &str, bytes, error_bytes| skinflint_analysis::sampled::Row {
            label: id.into(),
            bytes,
            error_bytes,
            ..skinflint_analysis::sampled::Row::default()
        };
        let mib = MIB as i64;
        let of = Sampled {
            at: "peak".into(),
            resident_bytes: 10 * MIB,
            rows: vec![
                row("live blocks", 7 * mib, Some(MIB)),
                row("difference", -mib, Some(MIB)),
                row("files", 4 * mib, Some(0)),
            ],
            ..Sampled::default()
        };
        let text = render(&of);
        assert!(
            text.contains(" 70.0%  7.00 MiB ± 1.0        live blocks\n"),
            "{text}"
        );
        assert!(
            text.contains("  0.0%  −1.00 MiB ± 1.0       difference\n"),
            "{text}"
        );
        assert!(
            text.contains(" 40.0%  4.00 MiB              files\n"),
            "{text}"
        );
        assert!(text.contains("No stack has certainly grown"), "{text}");
        // Headings without a line below them would say nothing.
        assert!(text.contains("No live block is a sample"), "{text}");
        assert!(!text.contains("most of it by"), "{text}");
    }
}
