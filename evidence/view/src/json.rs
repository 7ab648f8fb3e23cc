//! The report as JSON, for tools and for the page.
//!
//! J1  It is the `Report` as serde writes it: field names are those of `analysis::model`.
//! J2  Every field is described in SCHEMA.md; a test walks a full report and fails on one that is not.
//! J3  [`embedded`] yields JSON that means the same and cannot end a script element.
//!
//! Not here: versions (`schema` is set by analysis).

use std::io::{self, Write as _};

use skinflint_analysis::model::Report;

/// The size of the pieces that [`write`] collects: a pipe's worth, and small beside the second-level cache.
const PIECE_BYTES: usize = 64 << 10;

/// Renders the report as JSON, on one line or indented by two blanks, without a final line end.
///
/// # Errors
/// None is known: a report has no maps with keys other than text, and serde_json writes a number
/// that is not finite as `null`.
pub fn render(report: &Report, pretty: bool) -> Result<String, serde_json::Error> {
    if pretty {
        serde_json::to_string_pretty(report)
    } else {
        serde_json::to_string(report)
    }
}

/// Writes what [`render`] gives, piece by piece: the report of a program with 70,000 stacks has 55 MB of
/// JSON, and a text of that size costs more in fresh pages than in writing.
///
/// # Errors
/// Those of `out`.
pub fn write(report: &Report, pretty: bool, out: &mut dyn io::Write) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(PIECE_BYTES, out);
    if pretty {
        serde_json::to_writer_pretty(&mut out, report)?;
    } else {
        serde_json::to_writer(&mut out, report)?;
    }
    out.flush()
}

/// Renders the report as JSON that may stand inside a `<script>` element: `<`, `>`, `&` and the
/// line separators that old script grammars choke on are escaped. They occur only in strings, so
/// the escape is valid wherever they stand.
///
/// # Errors
/// Those of [`render`].
pub fn embedded(report: &Report) -> Result<String, serde_json::Error> {
    let plain = render(report, false)?;
    let mut out = String::with_capacity(plain.len() + plain.len() / 64);
    for c in plain.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_is_what_is_rendered() {
        let mut report = Report::default();
        // This is longer than a piece.
        report.completeness.notes = vec!["\u{e9}\n".repeat(50); 1000];
        for pretty in [false, true] {
            let mut out = Vec::new();
            write(&report, pretty, &mut out).expect("writes");
            assert!(out.len() > PIECE_BYTES);
            assert_eq!(out, render(&report, pretty).expect("renders").into_bytes());
        }
    }

    #[test]
    fn embedded_json_cannot_end_its_element_and_means_the_same() {
        let mut report = Report::default();
        report.program.name = "</script><!--\u{2028}&amp;".to_owned();
        let text = embedded(&report).expect("writes");
        assert!(!text.contains(['<', '>', '&', '\u{2028}']));
        let back: Report = serde_json::from_str(&text).expect("reads");
        assert_eq!(back.program.name, report.program.name);
    }
}
