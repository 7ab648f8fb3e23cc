//! The runs as CSV: one line for each run of each allocator under each program, and one for each column without runs.
//!
//! ```text
//!   program,kind,allocator,version,verdict,round,position,cpu_ns,…,peak_bytes,…,samples,worst_gap_ms
//! ```
//!
//! V1  RFC 4180: fields with commas, quotes or line ends are quoted, lines end with CR LF.
//! V2  A figure that was not measured is an empty field.
//!
//! Not here: medians and ratios (they are in the JSON).

use std::fmt::Write as _;

use crate::model::{Column, Comparison, Measure, Program, Run};
use crate::words;

/// All figures that a run may have, in this order.
const MEASURES: [Measure; 16] = [
    Measure::CpuNs,
    Measure::UserNs,
    Measure::SystemNs,
    Measure::ElapsedNs,
    Measure::OpNs,
    Measure::PeakBytes,
    Measure::MeanBytes,
    Measure::AfterFreeBytes,
    Measure::FinalBytes,
    Measure::ReadBytes,
    Measure::WrittenBytes,
    Measure::MinorFaults,
    Measure::LiveBytes,
    Measure::FloorPeakBytes,
    Measure::FloorAfterFreeBytes,
    Measure::FloorFinalBytes,
];

/// Renders the whole file.
pub fn render(comparison: &Comparison) -> String {
    let mut out = String::from("program,kind,allocator,version,verdict,round,position");
    for measure in MEASURES {
        let _ = write!(out, ",{}", measure.column());
    }
    out.push_str(",samples,worst_gap_ms\r\n");
    for program in &comparison.programs {
        for (at, column) in program.columns.iter().enumerate() {
            let allocator = comparison.allocators.get(at);
            let version = allocator.map_or("", |allocator| allocator.version.as_str());
            if column.runs.is_empty() {
                line(&mut out, program, column, version, None);
            }
            for run in &column.runs {
                line(&mut out, program, column, version, Some(run));
            }
        }
    }
    out
}

fn line(out: &mut String, program: &Program, column: &Column, version: &str, run: Option<&Run>) {
    let kind = if program.replayed { "trace" } else { "program" };
    let verdict = words::verdict(column).unwrap_or_else(|| "measured".into());
    let fields = [&program.name, kind, &column.allocator, version, &verdict];
    let fields: Vec<String> = fields.map(field).to_vec();
    out.push_str(&fields.join(","));
    match run {
        Some(run) => {
            let _ = write!(out, ",{},{}", run.round, run.position);
        }
        None => out.push_str(",,"),
    }
    for measure in MEASURES {
        out.push(',');
        if let Some(value) = run.and_then(|run| run.figures.get(&measure)) {
            // Time per call has a fraction of a nanosecond in its last digits; the rest are whole.
            let decimals = if measure == Measure::OpNs { 3 } else { 0 };
            let _ = write!(out, "{value:.decimals$}");
        }
    }
    match run {
        Some(run) => {
            let _ = write!(out, ",{},{:.1}\r\n", run.samples, run.worst_gap_ms);
        }
        None => out.push_str(",,\r\n"),
    }
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Verdict;
    use crate::testing;

    #[test]
    fn a_line_for_each_run_and_each_failure() {
        let mut program = testing::program("a,\"b\"", &[("glibc", 7.0), ("lean", 9.0)]);
        program.columns[1].runs.clear();
        program.columns[1].verdict = Verdict::OtherOutput { round: 0 };
        let text = render(&testing::comparison(vec![program]));
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines.len(), 1 + 5 + 1 + 1, "{text}");
        let fields = lines[0].split(',').count();
        assert_eq!(fields, 7 + 16 + 2);
        assert!(
            lines[1].starts_with(
                "\"a,\"\"b\"\"\",program,glibc,1.2,measured,1,0,,,,,,7,,,,,,,,,,,100,0.0"
            ),
            "{}",
            lines[1]
        );
        assert!(
            lines[6].contains("lean,1.2,output differs from the reference's in the check round,,,")
        );
    }
}
