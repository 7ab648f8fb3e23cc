//! A difference as one HTML file: how much each side holds, a flame graph of what grew and shrank, and the table.
//!
//! ```text
//!   rows ─► tree from `main` inwards, a width of max(before, after) each ─► boxes: name, +1.00 MiB  (red grew, blue shrank)
//! ```
//!
//! D1  The file makes no request and runs nothing: boxes are HTML, tooltips are the browser's own.
//! D2  All text is escaped. Colour never carries meaning alone: a box says its difference.
//! D3  A box is as wide as the larger side, so what vanished has a place; what one function calls alone is one box with it.
//! D4  A box below a part in [`SMALLEST`] of the whole is left out, and its place stays empty.
//!
//! Not here: what a row is (`diff.rs`), the look (`view`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use skinflint_view::html::{begin, escape};
use skinflint_view::units;

use crate::diff::{By, Diff};
use crate::diff_text::{Style, render as text, signed};

/// The smallest box, as a part of the whole: a pixel and a half of a wide page.
const SMALLEST: u64 = 800;
/// The most boxes above each other.
const DEEPEST: usize = 120;

const STYLE: &str = "
.f { display: inline-block; vertical-align: top; min-width: 0; overflow: hidden; } .flame { white-space: nowrap; line-height: 0; font-size: 0; }
.f > b { display: block; height: 19px; margin: 0 1px 1px 0; padding: 0 4px; font: 12px/19px var(--mono); overflow: hidden; text-overflow: ellipsis;
  color: var(--flame-ink); background: hsl(210 6% var(--flame-light)); border-radius: 2px; print-color-adjust: exact; }
.f > b:hover { outline: 2px solid var(--accent); outline-offset: -2px; }
.f > b.g1, .key b.g1 { background: hsl(14 40% var(--flame-light)); } .f > b.g2, .key b.g2 { background: hsl(10 75% var(--flame-light)); }
.f > b.s1, .key b.s1 { background: hsl(214 40% var(--flame-light)); } .f > b.s2, .key b.s2 { background: hsl(214 75% var(--flame-light)); }
.key { font-size: 12.5px; line-height: 1.9; } .key b { padding: 1px 6px; margin-right: 6px; color: var(--flame-ink); background: hsl(210 6% var(--flame-light)); font-weight: 400; print-color-adjust: exact; }
pre { overflow-x: auto; } @media print { pre { white-space: pre-wrap; font-size: 9px; } }
";

#[derive(Default)]
struct Node {
    before: u64,
    after: u64,
    width: u64,
    below: BTreeMap<String, Node>,
}

/// Renders the file.
pub fn render(diff: &Diff, style: &Style) -> String {
    let by = style.by;
    let say = match by {
        By::Bytes | By::Slop | By::Pinned => units::bytes,
        By::Blocks | By::Allocations => units::count,
    };
    let mut root = Node::default();
    for row in &diff.rows {
        let (before, after) = (by.of(&row.before), by.of(&row.after));
        let mut node = &mut root;
        node.add(before, after);
        for frame in row.frames.iter().rev().take(DEEPEST) {
            node = node.below.entry(frame.clone()).or_default();
            node.add(before, after);
        }
    }
    let (a, b) = (&diff.before, &diff.after);
    let mut out = begin(&format!("{} → {}", a.trace, b.trace), &[STYLE]);
    let _ = writeln!(
        out,
        "<div class=\"verdict\"><p>{}: {} at {} of {}, {} at {} of {}.</p></div>",
        signed(root.before, root.after, say),
        say(root.before),
        escape(&a.at),
        escape(&a.trace),
        say(root.after),
        escape(&b.at),
        escape(&b.trace)
    );
    for doubt in &diff.doubts {
        let _ = writeln!(out, "<p class=\"warn\">{}</p>", escape(doubt));
    }
    out.push_str(
        "</header>\n<main>\n<section><h2>What grew and shrank</h2>\n<p class=\"key\"><b class=\"g2\">grew by half or more</b>\
         <b class=\"g1\">grew</b><b>as before</b><b class=\"s1\">shrank</b><b class=\"s2\">shrank by half or more</b>A box is as wide as its \
         larger side; functions call what is below them.</p>\n<div class=\"flame\">\n",
    );
    let whole = root.width.max(1);
    boxes(&mut out, &root, whole, say);
    let _ = writeln!(
        out,
        "</div></section>\n<section><h2>By stack</h2>\n<pre class=\"mono\">{}</pre></section>\n</main>\n</body>\n</html>",
        escape(&text(diff, style))
    );
    out
}

impl Node {
    fn add(&mut self, before: u64, after: u64) {
        self.before = self.before.saturating_add(before);
        self.after = self.after.saturating_add(after);
        self.width = self.width.saturating_add(before.max(after));
    }

    fn class(&self) -> &'static str {
        let much = self.before.max(self.after) / 2;
        match self.after.cmp(&self.before) {
            std::cmp::Ordering::Greater if self.after - self.before >= much => " class=\"g2\"",
            std::cmp::Ordering::Greater => " class=\"g1\"",
            std::cmp::Ordering::Less if self.before - self.after >= much => " class=\"s2\"",
            std::cmp::Ordering::Less => " class=\"s1\"",
            std::cmp::Ordering::Equal => "",
        }
    }
}

/// Writes what is below a node; a chain of single calls is one box (D3).
fn boxes(out: &mut String, node: &Node, whole: u64, say: fn(u64) -> String) {
    let mut below: Vec<(&String, &Node)> = node.below.iter().collect();
    below.sort_by_key(|(_, node)| std::cmp::Reverse(node.width));
    for (name, mut here) in below {
        if here.width.saturating_mul(SMALLEST) < whole {
            continue;
        }
        let part = here.width as f64 / node.width.max(1) as f64 * 100.0;
        let mut names = name.clone();
        while let Some((next, only)) = here.below.first_key_value()
            && here.below.len() == 1
            && (only.before, only.after) == (here.before, here.after)
        {
            names = format!("{names} › {next}");
            here = only;
        }
        let change = signed(here.before, here.after, say);
        let (before, after) = (say(here.before), say(here.after));
        let shown = escape(&names);
        let _ = write!(
            out,
            "<div class=\"f\" style=\"width:{part:.3}%\"><b{} title=\"{shown}&#10;{before} → {after} ({change})\">{change} {shown}</b>",
            here.class()
        );
        boxes(out, here, whole, say);
        out.push_str("</div>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{Change, Matched, Measure, Row, Side};

    fn side(trace: &str) -> Side {
        Side {
            trace: trace.into(),
            program: "app".into(),
            pid: 1,
            at: "peak".into(),
            time_ns: 0,
            complete: true,
            pins_known: false,
            total: Measure::default(),
        }
    }

    fn row(before: u64, after: u64, frames: &[&str]) -> Row {
        let measure = |bytes| Measure {
            blocks: 1,
            usable_bytes: bytes,
            ..Measure::default()
        };
        Row {
            change: Change::Grew,
            matched: Matched::Frames,
            before: measure(before),
            after: measure(after),
            nodes_before: Vec::new(),
            nodes_after: Vec::new(),
            frames: frames.iter().map(|&frame| frame.to_owned()).collect(),
        }
    }

    #[test]
    fn boxes_are_as_wide_as_the_larger_side_and_say_what_changed() {
        let diff = Diff {
            schema: 1,
            before: side("a<b>.sft"),
            after: side("b.sft"),
            doubts: vec!["other \"builds\"".into()],
            rows: vec![
                row(1 << 20, 3 << 20, &["grow", "load", "main"]),
                row(1 << 20, 0, &["vec<&>", "main"]),
                row(1 << 10, 1 << 10, &["small", "main"]),
            ],
        };
        let style = Style {
            rows: 30,
            frames: 4,
            by: By::Bytes,
        };
        let page = render(&diff, &style);
        // Main holds 3 + 1 MiB and 1 KiB of larger sides; `load › grow` is one box, 3 of 4 parts.
        assert!(
            page.contains("style=\"width:100.000%\"><b class=\"g1\""),
            "{page}"
        );
        assert!(
            page.contains("style=\"width:74.982%\"><b class=\"g2\""),
            "{page}"
        );
        assert!(page.contains("+2.00 MiB load › grow</b>"), "{page}");
        assert!(
            page.contains("style=\"width:24.994%\"><b class=\"s2\""),
            "{page}"
        );
        assert!(
            page.contains("\u{2212}1.00 MiB vec&lt;&amp;&gt;</b>"),
            "{page}"
        );
        assert!(
            !page.contains("small</b>"),
            "below the smallest box: {page}"
        );
        assert!(
            page.contains("a&lt;b&gt;.sft") && page.contains("other &quot;builds&quot;"),
            "{page}"
        );
        assert!(
            !page.contains("<script") && !page.contains("http:") && !page.contains("src="),
            "{page}"
        );
    }
}
