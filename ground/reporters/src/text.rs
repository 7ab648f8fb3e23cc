//! Trees as text, in the shape of about:memory.
//!
//! ```text
//!   12.50 MiB (100.0%) -- explicit
//!   ├───8.00 MiB (64.00%) ── caches/images [2]
//!   └───4.50 MiB (36.00%) ++ (3 tiny)
//! ```
//!
//! W1  Percentages are of the tree's root, which is named in its first line and is 100 %.
//! W2  Rows below the threshold become one row, `(N tiny)`, with their sum: rows still add up.
//! W3  A difference has no percentages, since what grew and what shrank are not parts of one whole; tiny there is
//!     measured against the sum of all changes, whatever their sign.
//! W4  Nothing that is shown can drive a terminal: all text of a file, a process or an answer goes through [`plain`].
//! W5  Figures are exact on demand; otherwise in MiB, which about:memory writes as MB: everywhere here MB are 1,000,000 bytes.
//!
//! Not here: sums (`tree`).

use std::fmt::Write as _;

use crate::entry::{EXPLICIT, NOT_EXPLAINED, Units};
use crate::tree::{Node, Presence, Process};

/// How trees are shown.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Rows below this part of their tree, in percent, become one row; 0 shows all.
    pub threshold_percent: f64,
    /// Whether amounts are in bytes instead of MiB.
    pub exact: bool,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            threshold_percent: 1.0,
            exact: false,
        }
    }
}

/// Renders the trees of all processes.
pub fn render(processes: &[Process], style: Style) -> String {
    let mut out = String::new();
    for (number, process) in processes.iter().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        one(process, style, &mut out);
    }
    out
}

fn one(process: &Process, style: Style, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}", plain(&process.name));
    if process.overclaimed > 0 {
        let _ = writeln!(
            out,
            "Warning: reporters claim {} bytes more than heap-allocated: something is counted twice.",
            number(i128::from(process.overclaimed))
        );
    }
    let (explicit, others): (Vec<&Node>, Vec<&Node>) =
        process.trees.iter().partition(|tree| tree.name == EXPLICIT);
    let is_difference = process.is_difference;
    for tree in &explicit {
        let _ = writeln!(out, "\nExplicit Allocations\n");
        draw(tree, is_difference, style, out);
    }
    if others.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nOther Measurements");
    for tree in others.iter().filter(|tree| !tree.kids.is_empty()) {
        out.push('\n');
        draw(tree, is_difference, style, out);
    }
    let single: Vec<&&Node> = others.iter().filter(|tree| tree.kids.is_empty()).collect();
    if single.is_empty() {
        return;
    }
    out.push('\n');
    let figures: Vec<String> = single
        .iter()
        .map(|node| figure(node.units, node.amount, style.exact))
        .collect();
    let width = figures.iter().map(|text| text.len()).max().unwrap_or(0);
    for (node, figure) in single.iter().zip(figures) {
        let _ = writeln!(out, "{figure:>width$} ── {}", label(node));
    }
}

fn draw(tree: &Node, is_difference: bool, style: Style, out: &mut String) {
    let (node, name) = chain(tree);
    let (whole, percent) = match is_difference {
        true => (Whole::Changes(changes(tree)), ""),
        false => (Whole::Root(tree.amount), " (100.0%)"),
    };
    let figure = figure(tree.units, tree.amount, style.exact);
    let _ = writeln!(out, "{figure}{percent} -- {name}");
    below(node, whole, "", style, out);
}

/// The whole that percentages are of (W1, W3).
#[derive(Clone, Copy)]
enum Whole {
    /// The tree's amount.
    Root(i128),
    /// The sum of all changes of a tree.
    Changes(i128),
}

impl Whole {
    /// Returns a node's part of the whole, in percent.
    fn part(self, node: &Node) -> f64 {
        match self {
            Whole::Root(root) => percent(node.amount, root),
            Whole::Changes(whole) => percent(changes(node), whole),
        }
    }
}

/// Returns the sum of all changes below a node, whatever their sign.
fn changes(node: &Node) -> i128 {
    match node.kids.as_slice() {
        [] => node.amount.abs(),
        kids => kids.iter().map(changes).sum(),
    }
}

/// Follows branches with one kid, and joins their names.
fn chain(node: &Node) -> (&Node, String) {
    let (mut node, mut name) = (node, label(node));
    while let [kid] = node.kids.as_slice() {
        name = format!("{name}/{}", label(kid));
        node = kid;
    }
    (node, name)
}

fn label(node: &Node) -> String {
    let many = match node.lines {
        0 | 1 => String::new(),
        lines => format!(" [{lines}]"),
    };
    let mark = match node.presence {
        Presence::Both => "",
        Presence::First => " [-]",
        Presence::Second => " [+]",
        Presence::Balance => " [!]",
    };
    // Backslashes in a component stand for slashes.
    let name = plain(&node.name).replace('\\', "/");
    format!("{name}{many}{mark}")
}

/// Returns a text in which characters that drive a terminal, or change the direction of writing, are escaped.
pub fn plain(text: &str) -> String {
    let is_hostile =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| if is_hostile(c) { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

fn below(node: &Node, whole: Whole, indent: &str, style: Style, out: &mut String) {
    // What is left over is always shown, however little it is: by it the reader judges the others.
    let is_tiny =
        |kid: &Node| whole.part(kid).abs() < style.threshold_percent && kid.name != NOT_EXPLAINED;
    let (tiny, shown): (Vec<&Node>, Vec<&Node>) = node.kids.iter().partition(|kid| is_tiny(kid));
    let mut rows: Vec<(i128, String, Option<&Node>)> = shown
        .iter()
        .map(|kid| {
            let (end, name) = chain(kid);
            let is_leaf = end.kids.is_empty();
            let dashes = if is_leaf { "──" } else { "--" };
            (kid.amount, format!("{dashes} {name}"), Some(end))
        })
        .collect();
    match tiny.as_slice() {
        [] => {}
        // A single tiny row is shorter with its name.
        [one] => {
            let (end, name) = chain(one);
            let dashes = if end.kids.is_empty() { "──" } else { "++" };
            rows.push((one.amount, format!("{dashes} {name}"), None));
        }
        many => {
            let sum = many.iter().map(|kid| kid.amount).sum();
            rows.push((sum, format!("++ ({} tiny)", many.len()), None));
        }
    }
    let figures: Vec<String> = rows
        .iter()
        .map(|(amount, ..)| figure(node.units, *amount, style.exact))
        .collect();
    let width = figures.iter().map(|text| text.len()).max().unwrap_or(0);
    let last = rows.len();
    for (number, ((amount, name, next), figure)) in rows.into_iter().zip(figures).enumerate() {
        let (branch, bar) = match number + 1 == last {
            true => ("└──", "    "),
            false => ("├──", "│   "),
        };
        let fill = "─".repeat(width - figure.len());
        let part = match whole {
            Whole::Root(root) => format!(" ({:05.2}%)", percent(amount, root)),
            Whole::Changes(_) => String::new(),
        };
        let _ = writeln!(out, "{indent}{branch}{fill}{figure}{part} {name}");
        if let Some(next) = next {
            below(next, whole, &format!("{indent}{bar}"), style, out);
        }
    }
}

/// Returns a part of a whole in percent; 100 if the whole is 0, as in about:memory.
fn percent(part: i128, whole: i128) -> f64 {
    match whole {
        0 => 100.0,
        whole => 100.0 * part as f64 / whole as f64,
    }
}

/// Returns an amount as text.
pub fn figure(units: Units, amount: i128, exact: bool) -> String {
    match units {
        Units::Bytes if exact => format!("{} B", number(amount)),
        Units::Bytes => {
            // Rounded half away from zero, in hundredths of a MiB.
            let hundredths = (amount.unsigned_abs() * 100 + (1 << 19)) >> 20;
            let sign = if amount < 0 { "-" } else { "" };
            let whole = number((hundredths / 100) as i128);
            format!("{sign}{whole}.{:02} MiB", hundredths % 100)
        }
        Units::Count | Units::Cumulative => number(amount),
        Units::Percent => {
            let sign = if amount < 0 { "-" } else { "" };
            let hundredths = amount.unsigned_abs();
            format!("{sign}{}.{:02}%", hundredths / 100, hundredths % 100)
        }
    }
}

/// Returns a number with commas between thousands.
fn number(number: i128) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::new();
    if number < 0 {
        out.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Entry, Kind};
    use crate::tree::trees;

    fn line(path: &str, kind: Kind, units: Units, amount: i64) -> Entry<'_> {
        Entry {
            process: "viewer (pid 42)",
            path,
            kind,
            units,
            amount,
            description: "",
        }
    }

    #[test]
    fn figures() {
        for (units, amount, exact, wanted) in [
            (Units::Bytes, 1_048_576, false, "1.00 MiB"),
            (Units::Bytes, 1_536_000_000, false, "1,464.84 MiB"),
            (Units::Bytes, -1_572_864, false, "-1.50 MiB"),
            (Units::Bytes, 5242, false, "0.00 MiB"),
            (Units::Bytes, 5243, false, "0.01 MiB"),
            (Units::Bytes, -1_234_567, true, "-1,234,567 B"),
            (Units::Count, 999, false, "999"),
            (Units::Cumulative, 1000, false, "1,000"),
            (Units::Percent, 1234, false, "12.34%"),
            (Units::Percent, -5, false, "-0.05%"),
        ] {
            assert_eq!(figure(units, amount, exact), wanted);
        }
    }

    #[test]
    fn a_page_by_hand() {
        use Kind::{Heap, Other};
        use Units::{Bytes, Count};
        let lines = [
            line("explicit/caches/images/decoded", Heap, Bytes, 6000),
            line("explicit/caches/images/decoded", Heap, Bytes, 1000),
            line("explicit/caches/text", Heap, Bytes, 1000),
            line("explicit/a", Heap, Bytes, 30),
            line("explicit/b", Heap, Bytes, 20),
            line("heap-allocated", Other, Bytes, 10_000),
            line("documents/open", Other, Count, 3),
            line("documents/closed", Other, Count, 1),
        ];
        let style = Style {
            exact: true,
            ..Style::default()
        };
        let text = render(&trees(lines.into_iter()), style);
        let wanted = "\
viewer (pid 42)

Explicit Allocations

10,000 B (100.0%) -- explicit
├──8,000 B (80.00%) -- caches
│   ├──7,000 B (70.00%) ── images/decoded [2]
│   └──1,000 B (10.00%) ── text
├──1,950 B (19.50%) ── heap-unclassified
└─────50 B (00.50%) ++ (2 tiny)

Other Measurements

4 (100.0%) -- documents
├──3 (75.00%) ── open
└──1 (25.00%) ── closed

10,000 B ── heap-allocated
";
        assert_eq!(text, wanted);
    }

    #[test]
    fn a_difference_has_no_whole() {
        let changed = |path, amount| Entry {
            process: "viewer (pid NNN)",
            ..line(path, Kind::Heap, Units::Bytes, amount)
        };
        let lines = [
            changed("explicit/grew", 9000),
            changed("explicit/shrank/a", -8900),
            changed("explicit/shrank/b", -99),
            // These cancel, but are large changes all the same.
            changed("explicit/moved/from", -500),
            changed("explicit/moved/to", 500),
            Entry {
                kind: Kind::Other,
                ..changed("heap-allocated", -2000)
            },
        ];
        let style = Style {
            exact: true,
            ..Style::default()
        };
        let wanted = "\
viewer (pid NNN)

Explicit Allocations

-2,000 B -- explicit
├───9,000 B ── grew
├──-8,999 B -- shrank
│   ├──-8,900 B ── a
│   └─────-99 B ── b
├──-2,001 B ── heap-unclassified
└───────0 B -- moved
    ├──-500 B ── from
    └───500 B ── to

Other Measurements

-2,000 B ── heap-allocated
";
        let all = trees(lines.into_iter());
        assert_eq!(all[0].overclaimed, 0);
        // A single tiny row is shown by its name.
        assert_eq!(render(&all, style), wanted);
    }

    #[test]
    fn names_cannot_drive_a_terminal() {
        let lines = [line("explicit/\u{1b}[2J\\x", Kind::Heap, Units::Bytes, 1)];
        let text = render(&trees(lines.into_iter()), Style::default());
        assert!(
            !text.contains('\u{1b}') && text.contains("\u{fffd}[2J/x"),
            "{text}"
        );
        let lines = [Entry {
            process: "a\u{1b}]0;b\u{9b}\u{202e}c",
            ..line("explicit/x", Kind::Heap, Units::Bytes, 1)
        }];
        let text = render(&trees(lines.into_iter()), Style::default());
        assert!(
            text.starts_with("a\u{fffd}]0;b\u{fffd}\u{fffd}c\n"),
            "{text}"
        );
    }
}
