//! Pieces of HTML: text escaped, addresses encoded, tables, bars.
//!
//! ```text
//!   "a<b" ─► a&lt;b      rows ─► <table>      figures ─► <svg>, a bar each
//! ```
//!
//! Not here: what is on the page (page.rs), its look (the style of all our pages, `evidence/view/src/page/page.css`).

use std::fmt::Write as _;

/// Escapes text for HTML, attributes included.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(one),
        }
    }
    out
}

/// Encodes a value for the query of an address.
pub fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Decodes a value of the query of an address. What is no UTF-8 becomes what no name has.
pub fn decode(text: &str) -> String {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let pair = (bytes.get(at + 1), bytes.get(at + 2));
        let coded = match pair {
            (Some(&high), Some(&low)) if byte == b'%' => hex(high).zip(hex(low)),
            _ => None,
        };
        match (coded, byte) {
            (Some((high, low)), _) => out.push(high << 4 | low),
            (None, b'+') => out.push(b' '),
            (None, _) => out.push(byte),
        }
        at += if coded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A column: its name, and whether it has numbers.
pub type Column = (&'static str, bool);

/// Writes a table; cells are text.
pub fn table(out: &mut String, columns: &[Column], rows: &[Vec<String>]) {
    let class = |numbers: bool| {
        if numbers {
            " class=\"n\""
        } else {
            " class=\"name\""
        }
    };
    out.push_str("<div class=\"scroll\"><table><thead><tr>");
    for (name, numbers) in columns {
        let _ = write!(
            out,
            "<th{} scope=\"col\">{}</th>",
            class(*numbers),
            escape(name)
        );
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows {
        out.push_str("<tr>");
        for (cell, (_, numbers)) in row.iter().zip(columns) {
            let _ = write!(out, "<td{}>{}</td>", class(*numbers), escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

/// Writes bars from 0 up: each with its height and what is said of it.
pub fn bars(out: &mut String, about: &str, bars: &[(f64, String)]) {
    let most = bars.iter().map(|(height, _)| *height).fold(0.0, f64::max);
    let _ = write!(
        out,
        "<svg class=\"bars\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        bars.len().max(1),
        escape(about)
    );
    for (at, (height, said)) in bars.iter().enumerate() {
        let height = if most > 0.0 {
            height / most * 100.0
        } else {
            0.0
        };
        let _ = write!(
            out,
            "<rect x=\"{:.2}\" y=\"{:.1}\" width=\".9\" height=\"{height:.1}\"><title>{}</title></rect>",
            at as f64 + 0.05,
            100.0 - height,
            escape(said)
        );
    }
    out.push_str("</svg>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_breaks_out() {
        for text in ["", "web", "a b&c=d", "100 % <ü>", "%41", "+"] {
            let encoded = encode(text);
            assert_eq!(decode(&encoded), text);
            assert!(!encoded.contains(['&', '=', '<', ' ', '"']), "{encoded}");
        }
        assert_eq!(decode("a+b%zz%4"), "a b%zz%4");
        assert_eq!(
            escape("<a href=\"'&'\">"),
            "&lt;a href=&quot;&#39;&amp;&#39;&quot;&gt;"
        );
    }

    #[test]
    fn a_bar_is_as_high_as_its_part_of_the_highest() {
        let mut out = String::new();
        bars(
            &mut out,
            "<x>",
            &[(5.0, "five".into()), (10.0, "ten".into())],
        );
        assert!(
            out.contains("y=\"50.0\" width=\".9\" height=\"50.0\"><title>five"),
            "{out}"
        );
        assert!(
            out.contains("y=\"0.0\" width=\".9\" height=\"100.0\"><title>ten"),
            "{out}"
        );
        assert!(out.contains("aria-label=\"&lt;x&gt;\""), "{out}");
    }
}
