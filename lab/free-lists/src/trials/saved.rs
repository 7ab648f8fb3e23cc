//! Results in a file, and the same trials compared with it later: what a change of a policy did.
//!
//! ```text
//!   figures ─► save ─► FILE          FILE, figures ─► differences: a line for each trace, policy and figure that moved
//! ```
//!
//! V1  Only figures of the same trace (name, objects, bytes) under the same settings and policy are compared; what has no
//!     partner is said.
//! V2  Memory and counts are exact, so any difference is told. Times differ by themselves: from a tenth on.
//!
//! Not here: how figures come about.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::figures::{Figures, Row};

/// Writes figures.
///
/// # Errors
/// If the file cannot be written.
pub fn save(all: &[Figures], path: &Path) -> Result<()> {
    let mut text = serde_json::to_string_pretty(all)?;
    text.push('\n');
    std::fs::write(path, text)
        .with_context(|| format!("--save {}: cannot be written", path.display()))
}

/// Reads figures that [`save`] wrote, or `skinflint gc --json`.
///
/// # Errors
/// If the file cannot be read, or has something else.
pub fn load(path: &Path) -> Result<Vec<Figures>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--baseline {}: cannot be read", path.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "--baseline {}: these are no figures of `skinflint gc`; write them with --save",
            path.display()
        )
    })
}

type Figure = fn(&Row) -> f64;

/// Name, figure, and the share from which on a difference is told (V2).
const TOLD: &[(&str, Figure, f64)] = &[
    ("pages, mean", |row| row.committed_mean, 0.0),
    ("pages, peak", |row| row.committed_peak, 0.0),
    ("pages and descriptors", |row| row.with_tables_mean, 0.0),
    ("resident", |row| row.resident_mean, 0.0),
    ("wasted", |row| row.wasted_mean, 0.0),
    ("refills", |row| row.refills as f64, 0.0),
    ("moved bytes", |row| row.moved_bytes as f64, 0.0),
    ("collections", |row| row.collections as f64, 0.0),
    (
        "instructions",
        |row| row.instructions.map_or(f64::NAN, |count| count as f64),
        0.000_1,
    ),
    ("mutator ms", |row| row.mutator_ms, 0.1),
    ("all ms", |row| row.total_ms, 0.1),
    ("longest end of cycle, ms", |row| row.latency_max_ms, 0.1),
];

/// Describes how figures differ from earlier ones.
///
/// # Errors
/// If nothing can be compared.
pub fn differences(before: &[Figures], now: &[Figures]) -> Result<String> {
    let mut out = String::new();
    let mut compared = 0;
    for figures in now {
        let same = |old: &&Figures| {
            (&old.trace, old.objects, old.bytes) == (&figures.trace, figures.objects, figures.bytes)
                && old.settings == figures.settings
        };
        let Some(old) = before.iter().find(same) else {
            let _ = writeln!(
                out,
                "{} ({}): no earlier figures of these objects under these settings",
                figures.trace, figures.settings
            );
            continue;
        };
        let _ = writeln!(out, "{} ({})", figures.trace, figures.settings);
        for row in &figures.rows {
            match old.rows.iter().find(|earlier| earlier.policy == row.policy) {
                Some(earlier) => {
                    compared += 1;
                    policy(&mut out, earlier, row);
                }
                None => {
                    let _ = writeln!(out, "  {:22}not among the earlier ones", row.policy);
                }
            }
        }
    }
    ensure!(
        compared > 0,
        "--baseline: nothing in it is of these traces, settings and policies"
    );
    Ok(out)
}

fn policy(out: &mut String, earlier: &Row, row: &Row) {
    let mut name = row.policy.as_str();
    for (what, figure, least) in TOLD {
        let (was, is) = (figure(earlier), figure(row));
        let moved = (is - was).abs() > was.abs() * least;
        if was.is_nan() || is.is_nan() || !moved {
            continue;
        }
        let share = match was {
            0.0 => String::new(),
            _ => format!("  ({:.4})", is / was),
        };
        let _ = writeln!(out, "  {name:22}{what:26}{was:>16.1} → {is:.1}{share}");
        name = "";
    }
    if !name.is_empty() {
        let _ = writeln!(out, "  {name:22}the same");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(objects: u64, refills: u64, mutator_ms: f64) -> Figures {
        Figures {
            trace: "a.sfo".into(),
            source: String::new(),
            settings: "growth 2, compact sparse".into(),
            live: false,
            objects,
            bytes: 96,
            peak_live_bytes: 64,
            large_objects: 0,
            missing: Vec::new(),
            rows: vec![Row {
                policy: "tight".into(),
                refills,
                mutator_ms,
                committed_mean: 1000.0,
                ..Row::default()
            }],
        }
    }

    #[test]
    fn what_moved_is_told_and_what_cannot_be_compared_is_said() {
        let folder = std::env::temp_dir().join(format!("skinflint-saved-{}", std::process::id()));
        save(&[figures(3, 10, 5.0)], &folder).unwrap();
        let before = load(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        let same = differences(&before, &[figures(3, 10, 5.4)]).unwrap();
        assert!(same.contains("tight                 the same"), "{same}");
        let more = differences(&before, &[figures(3, 12, 5.6)]).unwrap();
        assert!(
            more.contains("refills") && more.contains("10.0 → 12.0  (1.2000)"),
            "{more}"
        );
        assert!(more.contains("mutator ms"), "{more}");
        assert!(!more.contains("pages"), "{more}");
        let other = differences(&before, &[figures(4, 10, 5.0)]).unwrap_err();
        assert!(other.to_string().contains("nothing in it"), "{other}");
    }
}
