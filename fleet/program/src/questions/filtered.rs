//! What stacks hold in the rows for which a condition is true: a table, or a flame graph's lines.
//!
//! ```text
//!   "service = 'web' AND build = '42'" ─► top.rs with the condition ─► main;serve;parse_row 1234567
//! ```
//!
//! V1  Lines of a flame graph add up to all bytes of the rows: each stack is one line, as a mean in whole bytes.
//!
//! Not here: the picture; every tool for flame graphs reads these lines.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use super::Period;
use super::top::Top;
use crate::engine::Engine;
use crate::names::Names;

/// The most stacks of a flame graph.
pub const STACKS: usize = 1_000_000;

/// Writes the lines of a flame graph.
///
/// # Errors
/// Those of the engine and of `out`.
pub fn flame(
    engine: &dyn Engine,
    rows: &[Top],
    period: &Period,
    out: &mut dyn Write,
) -> Result<()> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    let names = Names::of_stacks(engine, &ids)?;
    let mut lines: BTreeMap<String, i64> = BTreeMap::new();
    for row in rows {
        let whole: Vec<String> = names
            .whole(row.id)
            .iter()
            .map(|name| name.replace([';', '\n'], ":"))
            .collect();
        *lines.entry(whole.join(";")).or_default() += row.live_byte_min;
    }
    for (stack, byte_min) in lines {
        let bytes = period.mean(byte_min).round();
        if bytes > 0.0 {
            writeln!(out, "{stack} {bytes:.0}")?;
        }
    }
    Ok(())
}
