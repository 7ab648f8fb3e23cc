//! Folded stacks: one line for each stack, for flame graphs (flamegraph.pl, inferno, speedscope and others).
//!
//! ```text
//!   main;parse;read_header 4096
//! ```
//!
//! F1  Frames go from the outermost to the innermost; the figure is one [`Value`].
//! F2  The sum of the figures is that value's total: stacks with the same text are one line.
//! F3  `;` and line ends inside names would break a line; they become `:` and a blank.
//!
//! Not here: colours, widths.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::source::{NO_STACK, Source, Value, name};

/// Returns a stack on one line, outermost first (F1, F3).
pub fn line(source: Source<'_>, node: u32) -> String {
    let mut path = source.path(node);
    path.reverse();
    if path.is_empty() {
        return NO_STACK.into();
    }
    let mut text = String::new();
    for frame in path {
        if !text.is_empty() {
            text.push(';');
        }
        text.extend(name(source.frame(frame)).chars().map(|c| match c {
            ';' => ':',
            c if c.is_control() => ' ',
            c => c,
        }));
    }
    text
}

/// Writes the lines, in the order of their text. Memory: that of all lines.
///
/// # Errors
/// Those of `out`.
pub fn write(source: Source<'_>, value: Value, out: &mut dyn Write) -> io::Result<()> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for site in &source.report.sites {
        let value = value.of(site);
        if value > 0 {
            let sum = lines.entry(line(source, site.node)).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    for (line, value) in lines {
        writeln!(out, "{line} {value}")?;
    }
    out.flush()
}
