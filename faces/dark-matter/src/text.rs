//! Dark matter as text: how it was found, the sum, the stacks, and what is claimed twice.
//!
//! ```text
//!   exact:   unreported   live   blocks  stack                 totals:   at least   live   blocks  stack
//! ```
//!
//! B1  The mode is printed before any figure. Rows that are not shown are one line, so that columns add up.
//!
//! Not here: what a row is (`dark.rs`).

use std::fmt::Write as _;

use skinflint_analysis::model::Report;
use skinflint_export::source::{NO_STACK, name};
use skinflint_view::stack::telling;
use skinflint_view::units;

use crate::dark::{Dark, Mode, Row};

fn stack(report: &Report, node: u32, frames: usize) -> String {
    let all = telling(report, node);
    let names: Vec<&str> = all.iter().take(frames).map(|frame| name(frame)).collect();
    match names.is_empty() {
        true => NO_STACK.into(),
        false => names.join(" \u{2190} "),
    }
}

/// Renders the text, with at most `rows` lines in each table and `frames` frames of each stack.
pub fn render(dark: &Dark, report: &Report, rows: usize, frames: usize) -> String {
    let mut text = format!("{} at {}\n", dark.process, dark.at);
    text += match dark.mode {
        Mode::Exact => {
            "mode: exact. Reporters gave addresses; each byte of each live block was looked up.\n"
        }
        Mode::Totals => {
            "mode: totals only. The reporters gave no addresses, so how much is dark is known, and which \
             stacks it is can only be guessed from sizes.\n"
        }
    };
    for doubt in &dark.doubts {
        let _ = writeln!(text, "doubt: {doubt}");
    }
    let said = match dark.said_allocated_bytes {
        Some(said) => format!(" (the memory report says {})", units::bytes(said)),
        None => String::new(),
    };
    let _ = writeln!(
        text,
        "\nlive heap        {} in {}{said}\nclaimed          {} by {}\nunreported       {} ({} of the live heap)",
        units::bytes(dark.live_bytes),
        units::plural(dark.live_blocks, "block"),
        units::bytes(dark.claimed_bytes),
        units::plural(dark.claims.len() as u64, "claim"),
        units::bytes(dark.dark_bytes),
        units::percent(dark.dark_bytes, dark.live_bytes),
    );
    if dark.overclaimed_bytes > 0 {
        let _ = writeln!(
            text,
            "overclaimed      {}: claimed twice, or not of this heap",
            units::bytes(dark.overclaimed_bytes)
        );
    }
    if dark.went_bytes > 0 {
        let _ = writeln!(
            text,
            "went             {} while it was measured: not judged",
            units::bytes(dark.went_bytes)
        );
    }
    match dark.mode {
        Mode::Exact => exact(&mut text, dark, report, rows, frames),
        Mode::Totals => totals(&mut text, dark, report, rows, frames),
    }
    text
}

/// Writes lines for the first rows that are wanted, and one line for the others.
fn table(
    text: &mut String,
    dark: &Dark,
    limit: usize,
    wanted: impl Fn(&Row) -> bool,
    figures: impl Fn(&Row) -> [u64; 3],
    say: impl Fn(&Row) -> String,
) {
    let (mut others, mut left_out) = ([0u64; 3], 0);
    let line = |figures: [u64; 3], stack: &str| {
        let [first, live, blocks] = figures;
        let (first, live) = (units::bytes(first), units::bytes(live));
        format!(
            "{first:>12}{live:>12}{:>12}  {stack}\n",
            units::count(blocks)
        )
    };
    for (shown, row) in dark.rows.iter().filter(|row| wanted(row)).enumerate() {
        if shown < limit {
            *text += &line(figures(row), &say(row));
        } else {
            let more = figures(row);
            others = [0, 1, 2].map(|at| others[at] + more[at]);
            left_out += 1;
        }
    }
    if left_out > 0 {
        *text += &line(
            others,
            &format!("others: {}", units::plural(left_out, "stack")),
        );
    }
}

/// Writes the account from heap-unclassified to what is unreported (dark.D4), if they differ.
fn account(text: &mut String, dark: &Dark) {
    let Some(account) = dark.account else { return };
    let signed = |bytes: i64| {
        let sign = if bytes < 0 { "-" } else { "" };
        format!("{sign}{}", units::bytes(bytes.unsigned_abs()))
    };
    let differing = [
        (
            account.recorded_more_bytes,
            "recorded beyond heap-allocated (another moment, headers, other heaps)",
        ),
        (account.claimed_twice_bytes, "claimed by two"),
        (account.without_addresses_bytes, "claimed without addresses"),
        (
            account.claimed_beyond_bytes,
            "claimed beyond what the addresses cover",
        ),
        (account.went_bytes, "went while it was measured"),
    ];
    let first = signed(account.heap_unclassified_bytes);
    if differing.iter().all(|(bytes, _)| *bytes == 0) {
        let _ = writeln!(
            text,
            "\nThat is heap-unclassified of the memory report, to the byte."
        );
        return;
    }
    let _ = writeln!(
        text,
        "\nFrom heap-unclassified to unreported\n{first:>12}  heap-allocated less all claims"
    );
    for (bytes, what) in differing.into_iter().filter(|(bytes, _)| *bytes != 0) {
        let _ = writeln!(text, "{:>12}  {what}", signed(bytes));
    }
    let _ = writeln!(text, "{:>12}  unreported", signed(account.sum()));
}

fn exact(text: &mut String, dark: &Dark, report: &Report, rows: usize, frames: usize) {
    account(text, dark);
    text.push_str("\nUnreported, by stack\n  unreported        live      blocks  stack\n");
    let wanted = |row: &Row| row.unreported_bytes > 0;
    let figures = |row: &Row| [row.unreported_bytes, row.live_bytes, row.live_blocks];
    table(text, dark, rows, wanted, figures, |row| {
        stack(report, row.node, frames)
    });
    if !dark.twice.is_empty() {
        text.push_str("\nClaimed twice, by stack\n       twice        live      blocks  stack\n");
        let figures = |row: &Row| [row.twice_bytes, row.live_bytes, row.twice_blocks];
        table(
            text,
            dark,
            rows,
            |row| row.twice_bytes > 0,
            figures,
            |row| stack(report, row.node, frames),
        );
        text.push_str("\n… and by whom\n");
        for pair in dark.twice.iter().take(rows) {
            let who = match pair.first == pair.second {
                true => format!("{} (two times)", pair.first),
                false => format!("{} and {}", pair.first, pair.second),
            };
            let blocks = units::plural(pair.blocks, "block");
            let _ = writeln!(text, "{:>12} in {blocks}: {who}", units::bytes(pair.bytes));
        }
    }
    claims(text, dark, rows);
}

/// Writes the claims that do not state what they cover.
fn claims(text: &mut String, dark: &Dark, rows: usize) {
    let odd = dark.claims.iter().filter(|claim| claim.has_addresses);
    let odd = odd.filter(|claim| {
        let changed = claim.stray_blocks + claim.stray_bytes + claim.changed_bytes > 0;
        claim.amount_bytes != claim.covered_bytes || changed
    });
    let odd: Vec<_> = odd.collect();
    if odd.is_empty() {
        return;
    }
    text.push_str("\nClaims that are not what they cover\n        says      covers  path\n");
    for claim in odd.iter().take(rows) {
        let (says, covers) = (
            units::bytes(claim.amount_bytes),
            units::bytes(claim.covered_bytes),
        );
        let mut stray = String::new();
        if claim.changed_bytes > 0 {
            let changed = units::bytes(claim.changed_bytes);
            let _ = write!(stray, "; {changed} came or went meanwhile");
        }
        if claim.stray_blocks > 0 {
            let _ = write!(
                stray,
                "; {} not live",
                units::plural(claim.stray_blocks, "block")
            );
        }
        if claim.stray_bytes > 0 {
            let _ = write!(
                stray,
                "; {} in no live block",
                units::bytes(claim.stray_bytes)
            );
        }
        let _ = writeln!(text, "{says:>12}{covers:>12}  {}{stray}", claim.path);
    }
    if odd.len() > rows {
        let _ = writeln!(text, "\u{2026} and {} more", odd.len() - rows);
    }
}

fn totals(text: &mut String, dark: &Dark, report: &Report, rows: usize, frames: usize) {
    text.push_str("\nPossible, by stack (no claim has this many bytes)\n    at least        live      blocks  stack\n");
    let figures = |row: &Row| [row.surely_dark_bytes, row.live_bytes, row.live_blocks];
    let wanted = |row: &Row| row.explained_by.is_none();
    table(text, dark, rows, wanted, figures, |row| {
        stack(report, row.node, frames)
    });
    if dark.rows.iter().any(|row| row.explained_by.is_some()) {
        text.push_str("\nExplained by a claim of the same size\n    at least        live      blocks  stack\n");
        table(
            text,
            dark,
            rows,
            |row| row.explained_by.is_some(),
            figures,
            |row| {
                let claim = row.explained_by.as_deref().unwrap_or_default();
                format!("{}  [{claim}]", stack(report, row.node, frames))
            },
        );
    }
}
