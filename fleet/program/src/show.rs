//! Tables of text, and bytes as people read them.
//!
//! ```text
//!   [["12.3 MiB", "web0"], …] ─► columns, numbers to the right          1048576.0 ─► "1.0 MiB"
//! ```
//!
//! Not here: what is shown.

use std::io::{self, Write};

/// Which side a column's values are on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

/// Writes rows below a head.
///
/// # Errors
/// Those of `out`.
pub fn table(out: &mut dyn Write, head: &[(&str, Side)], rows: &[Vec<String>]) -> io::Result<()> {
    let width = |at: usize| {
        let of_rows = rows
            .iter()
            .filter_map(|row| row.get(at))
            .map(|cell| cell.chars().count());
        of_rows.max().unwrap_or(0).max(head[at].0.chars().count())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let names = head.iter().map(|(name, _)| (*name).to_owned()).collect();
    for row in std::iter::once(&names).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, side)) in row.iter().zip(&widths).zip(head) {
            match side {
                Side::Left => line.push_str(&format!("{cell:<width$}  ")),
                Side::Right => line.push_str(&format!("{cell:>width$}  ")),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns bytes as people read them.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value.abs() >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// Returns a share in percent.
pub fn share(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.1} %", part * 100.0 / whole),
        false => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut out = Vec::new();
        let rows = [
            vec!["1".to_owned(), "ab".to_owned()],
            vec!["1000".to_owned(), "c".to_owned()],
        ];
        table(&mut out, &[("n", Side::Right), ("name", Side::Left)], &rows).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "   n  name\n   1  ab\n1000  c\n"
        );
    }

    #[test]
    fn bytes_change_their_unit_before_they_have_four_digits() {
        for (number, text) in [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1024.0, "1.0 KiB"),
            (1_048_520.0, "1023.9 KiB"),
            (1_048_570.0, "1.0 MiB"),
            (-2048.0, "-2.0 KiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(
            (share(1.0, 8.0), share(1.0, 0.0)),
            ("12.5 %".to_owned(), "?".to_owned())
        );
    }
}
