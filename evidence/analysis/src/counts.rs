//! The concordance of sizes: which requests are made, what they are given, and what that wastes.
//!
//! ```text
//!   ( 1 ) 205920 (22.7%, 22.7%): small:     24 ->     32 (     8 )
//!    rank  count   share, so far  kind   asked    given    slop each
//! ```
//!
//! N1  Counts of the lines, and of the line of others, add up to the total of the head.
//! N2  If weighted by slop, the count of a line is its slop in bytes, and sizes without slop have no line.
//! N3  Order: by count, then by requested size. Two runs print the same.
//! N4  The figures of a line's stacks add up to the line.
//!
//! Source: the form is after Nicholas Nethercote's `counts` and his post on clownshoes.
//! Not here: which blocks to count (the ledger's cells at an instant, or over the run).

use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use skinflint_sizes::{ClassKind, Scheme};
use skinflint_trace::NodeId;

use crate::facts::{Facts, Symbolizer};
use crate::frames;
use crate::model::{Frame, Report, Site};
use crate::pass::CellKey;
use crate::plumbing::{is_plumbing_in, only_passes_on};

/// Options of the concordance.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountsOptions<'a> {
    /// `None` means the usable sizes as recorded; otherwise what this scheme gives for the same requests.
    pub scheme: Option<&'static Scheme>,
    /// The recorded allocator: it names the recorded sizes, and decides what is small, large and huge.
    pub allocator: &'a str,
    /// The blocks that were counted, for the head: `live at peak`, `acquired over the run`.
    pub label: &'a str,
    /// Whether to count bytes of slop instead of blocks (N2).
    pub by_slop: bool,
    /// The most lines to print; the rest is one line of others. `None` prints all.
    pub limit: Option<usize>,
}

/// A line of the concordance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountsRow {
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes.
    pub usable: u64,
    /// Number of blocks.
    pub count: u64,
}

impl CountsRow {
    /// Returns the bytes of slop in one block.
    pub fn slop(&self) -> u64 {
        self.usable.saturating_sub(self.size)
    }

    fn weight(&self, by_slop: bool) -> u64 {
        if by_slop {
            self.count.saturating_mul(self.slop())
        } else {
            self.count
        }
    }
}

/// Returns the rows of a concordance, in the order in which they are printed (N3). `cells` are
/// blocks by cell; stacks are merged.
pub fn rows(
    cells: impl IntoIterator<Item = (CellKey, u64)>,
    options: &CountsOptions<'_>,
) -> Vec<CountsRow> {
    let mut counts: FxHashMap<(u64, u64), u64> = FxHashMap::default();
    for (key, count) in cells {
        let usable = options
            .scheme
            .map_or(key.usable, |scheme| scheme.usable(key.size));
        *counts.entry((key.size, usable)).or_default() += count;
    }
    let row = |((size, usable), count)| CountsRow {
        size,
        usable,
        count,
    };
    let mut rows: Vec<CountsRow> = counts
        .into_iter()
        .map(row)
        .filter(|row| row.weight(options.by_slop) > 0)
        .collect();
    rows.sort_unstable_by_key(|row| {
        (
            std::cmp::Reverse(row.weight(options.by_slop)),
            row.size,
            row.usable,
        )
    });
    rows
}

/// Prints the concordance: two lines of totals, then one line for each size.
pub fn concordance(
    cells: impl IntoIterator<Item = (CellKey, u64)>,
    options: &CountsOptions<'_>,
) -> String {
    // The head totals all blocks, including those that a count by slop leaves out.
    let unweighted = rows(
        cells,
        &CountsOptions {
            by_slop: false,
            ..*options
        },
    );
    let kinds = options
        .scheme
        .or_else(|| Scheme::for_allocator(options.allocator));
    let mut out = String::new();
    head(&mut out, &unweighted, kinds, options);
    let mut rows = unweighted;
    rows.retain(|row| row.weight(options.by_slop) > 0);
    rows.sort_unstable_by_key(|row| {
        (
            std::cmp::Reverse(row.weight(options.by_slop)),
            row.size,
            row.usable,
        )
    });

    let total: u64 = rows
        .iter()
        .map(|row| row.weight(options.by_slop))
        .fold(0, u64::saturating_add);
    let width = rows
        .first()
        .map_or(1, |row| row.weight(options.by_slop).to_string().len());
    let shown = options.limit.unwrap_or(rows.len()).min(rows.len());
    let mut so_far = 0;
    for (i, row) in rows[..shown].iter().enumerate() {
        let weight = row.weight(options.by_slop);
        so_far += weight;
        let _ = writeln!(
            out,
            "({:>2} ) {weight:>width$} ({:>4.1}%, {:>4.1}%): {}: {:>6} -> {:>6} ({:>6} )",
            i + 1,
            share(weight, total),
            share(so_far, total),
            kind(kinds, row.usable),
            row.size,
            row.usable,
            row.slop(),
        );
    }
    if shown < rows.len() {
        let rest = total - so_far;
        let _ = writeln!(
            out,
            "others {rest:>width$} ({:>4.1}%, 100.0%): {} further sizes",
            share(rest, total),
            rows.len() - shown
        );
    }
    out
}

/// Returns the stacks of a line, most first: what each has of the line's count. They add up to it.
pub fn stacks(
    cells: impl IntoIterator<Item = (CellKey, u64)>,
    options: &CountsOptions<'_>,
    line: &CountsRow,
) -> Vec<(NodeId, u64)> {
    let mut by_node: FxHashMap<NodeId, u64> = FxHashMap::default();
    for (key, count) in cells {
        let usable = options
            .scheme
            .map_or(key.usable, |scheme| scheme.usable(key.size));
        if (key.size, usable) == (line.size, line.usable) && count > 0 {
            *by_node.entry(key.node).or_default() += count;
        }
    }
    let each = if options.by_slop { line.slop() } else { 1 };
    let weighed = by_node.into_iter();
    let mut stacks: Vec<(NodeId, u64)> = weighed
        .map(|(node, count)| (node, count.saturating_mul(each)))
        .collect();
    stacks.sort_unstable_by_key(|&(node, count)| (std::cmp::Reverse(count), node));
    stacks
}

/// Returns a report that has these stacks as its sites, in this order, with names, and nothing else.
pub fn named(stacks: &[(NodeId, u64)], facts: &Facts, symbolizer: &mut dyn Symbolizer) -> Report {
    let site = |(node, count): &(NodeId, u64)| Site {
        node: node.0,
        allocations: *count,
        ..Site::default()
    };
    let mut report = Report {
        sites: stacks.iter().map(site).collect(),
        ..Report::default()
    };
    let stacks = frames::Stacks {
        nodes: &facts.nodes,
        ancestors: &facts.ancestors,
    };
    frames::compact(&mut report, stacks, symbolizer);
    let plumbing =
        |frame: &Frame| is_plumbing_in(&frame.function, &frame.module) || only_passes_on(frame);
    let frames = (0..).zip(&report.frames);
    report.plumbing = frames
        .filter(|(_, frame)| plumbing(frame))
        .map(|(index, _)| index)
        .collect();
    report
}

fn head(out: &mut String, rows: &[CountsRow], kinds: Option<&Scheme>, options: &CountsOptions<'_>) {
    let sum = |of: fn(&CountsRow) -> u64| {
        rows.iter()
            .map(|row| of(row).saturating_mul(row.count))
            .fold(0, u64::saturating_add)
    };
    let (blocks, requested, usable) = (sum(|_| 1), sum(|row| row.size), sum(|row| row.usable));
    let slop = sum(CountsRow::slop);
    let who = match options.scheme {
        Some(scheme) => format!("as {} would give", scheme.name),
        None if options.allocator.is_empty() => "as recorded".to_owned(),
        None => format!("as recorded with {}", options.allocator),
    };
    let _ = writeln!(
        out,
        "{blocks} blocks {}: {requested} bytes requested, {usable} usable {who}, {slop} slop ({:.1}% of usable)",
        options.label,
        share(slop, usable),
    );
    for of in [ClassKind::Small, ClassKind::Large, ClassKind::Huge] {
        let mine = || rows.iter().filter(|row| kind(kinds, row.usable) == of);
        let count: u64 = mine().map(|row| row.count).sum();
        let slop = mine()
            .map(|row| row.count.saturating_mul(row.slop()))
            .fold(0, u64::saturating_add);
        let _ = write!(
            out,
            "{}{of}: {count} blocks, {slop} slop",
            if of == ClassKind::Small { "" } else { "; " }
        );
    }
    let unit = if options.by_slop {
        "; lines count bytes of slop"
    } else {
        ""
    };
    let _ = writeln!(out, "{unit}");
}

/// Returns what is small, large and huge if the allocator is not known: below a kernel page, below 1 MiB.
fn kind(scheme: Option<&Scheme>, usable: u64) -> ClassKind {
    match scheme {
        Some(scheme) => scheme.kind(usable),
        None if usable < 4096 => ClassKind::Small,
        None if usable < 1 << 20 => ClassKind::Large,
        None => ClassKind::Huge,
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    fn cell(node: u32, size: u64, usable: u64, count: u64) -> (CellKey, u64) {
        (
            CellKey {
                node: NodeId(node),
                size,
                usable,
            },
            count,
        )
    }

    fn options(name: &str) -> CountsOptions<'static> {
        CountsOptions {
            scheme: Some(Scheme::by_name(name).expect("known")),
            label: "live at peak",
            ..CountsOptions::default()
        }
    }

    #[test]
    fn the_line_of_the_post() {
        // 205,920 of 907,137 are 22.7 %. Two stacks that ask for 24 are one line.
        let cells = [
            cell(1, 24, 24, 205_000),
            cell(2, 24, 24, 920),
            cell(1, 1, 24, 701_217),
        ];
        let mut rest = options("mozjemalloc-2011");
        let text = concordance(cells, &rest);
        assert!(
            text.contains("\n( 2 ) 205920 (22.7%, 100.0%): small:     24 ->     32 (     8 )\n"),
            "{text}"
        );
        rest.limit = Some(1);
        let cells = [
            cell(1, 24, 24, 205_920),
            cell(1, 16, 24, 5),
            cell(1, 4097, 5000, 1),
        ];
        let text = concordance(cells, &rest);
        assert!(
            text.contains("\n( 1 ) 205920 (100.0%, 100.0%): small:     24 ->     32 (     8 )\n"),
            "{text}"
        );
        assert!(
            text.ends_with("others      6 ( 0.0%, 100.0%): 2 further sizes\n"),
            "{text}"
        );
    }

    #[test]
    fn the_first_line_is_exact() {
        // 205,920 of 907,137; the rest spread so that each other size is rarer: 11 sizes, 63,747 each.
        let mut cells = vec![cell(1, 24, 24, 205_920)];
        cells.extend((0..11).map(|i| cell(1, 100 + 16 * i, 0, 63_747)));
        let text = concordance(cells, &options("mozjemalloc-2011"));
        let line = text.lines().nth(2).expect("a first line");
        assert_eq!(
            line,
            "( 1 ) 205920 (22.7%, 22.7%): small:     24 ->     32 (     8 )"
        );
        assert_eq!(text.lines().count(), 2 + 12);
        assert!(
            text.lines()
                .nth(3)
                .expect("second")
                .starts_with("( 2 )  63747 ( 7.0%, 29.7%): small:    100 ->    112 (")
        );
    }

    #[test]
    fn whole_text_by_hand_weighted_by_slop() {
        let cells = [
            cell(1, 1025, 1032, 3),
            cell(2, 4097, 4104, 2),
            cell(3, 16, 24, 9),
            cell(4, 32, 40, 0),
        ];
        let mut options = options("mozjemalloc-2011");
        options.by_slop = true;
        // 1025 -> 2048: 3·1,023 = 3,069; 4097 -> 8192: 2·4,095 = 8,190; 16 -> 16: none. Sum 11,259.
        // Requested 3,075 + 8,194 + 144 = 11,413; usable 6,144 + 16,384 + 144 = 22,672.
        let expected = "\
14 blocks live at peak: 11413 bytes requested, 22672 usable as mozjemalloc-2011 would give, 11259 slop (49.7% of usable)
small: 12 blocks, 3069 slop; large: 2 blocks, 8190 slop; huge: 0 blocks, 0 slop; lines count bytes of slop
( 1 ) 8190 (72.7%, 72.7%): large:   4097 ->   8192 (  4095 )
( 2 ) 3069 (27.3%, 100.0%): small:   1025 ->   2048 (  1023 )
";
        assert_eq!(concordance(cells, &options), expected);
    }

    #[test]
    fn recorded_sizes_are_used_as_they_are_and_nothing_is_no_panic() {
        let options = CountsOptions {
            allocator: "glibc 2.36",
            label: "live at end",
            ..Default::default()
        };
        let cells = [cell(1, 24, 24, 2), cell(1, 24, 40, 3)];
        let text = concordance(cells, &options);
        // Two answers to one size are two lines.
        assert!(
            text.contains("( 1 ) 3 (60.0%, 60.0%): small:     24 ->     40 (    16 )"),
            "{text}"
        );
        assert!(
            text.contains("( 2 ) 2 (40.0%, 100.0%): small:     24 ->     24 (     0 )"),
            "{text}"
        );
        let none = concordance([], &options);
        assert_eq!(none.lines().count(), 2);
        assert!(
            none.starts_with("0 blocks live at end: 0 bytes requested"),
            "{none}"
        );
    }

    #[test]
    fn a_line_leads_to_its_stacks() {
        let cells = [
            cell(1, 24, 32, 10),
            cell(2, 24, 32, 30),
            cell(1, 24, 40, 5),
            cell(3, 100, 112, 7),
            cell(4, 24, 32, 0),
        ];
        let plain = CountsOptions::default();
        let lines = rows(cells, &plain);
        assert_eq!(
            (lines[0].size, lines[0].usable, lines[0].count),
            (24, 32, 40)
        );
        let of = |line: usize, options: &CountsOptions<'_>| -> Vec<(u32, u64)> {
            let found = stacks(cells, options, &rows(cells, options)[line]);
            found
                .into_iter()
                .map(|(node, count)| (node.0, count))
                .collect()
        };
        assert_eq!(of(0, &plain), [(2, 30), (1, 10)]);
        let slop = CountsOptions {
            by_slop: true,
            ..plain
        };
        // 40 blocks of 8 bytes of slop each; then 7 of 12, 5 of 16.
        assert_eq!(of(0, &slop), [(2, 240), (1, 80)]);
        assert_eq!(of(1, &slop), [(3, 84)]);
        assert_eq!(of(2, &slop), [(1, 80)]);
        for options in [plain, slop] {
            for line in rows(cells, &options) {
                let sum: u64 = stacks(cells, &options, &line).iter().map(|one| one.1).sum();
                assert_eq!(sum, line.weight(options.by_slop));
            }
        }
    }

    #[test]
    fn lines_add_up_to_the_head() {
        let mut random = Random::new(0x9e37_79b9_7f4a_7c15u64);
        let mut next = || random.bits();
        let cells: Vec<_> = (0..500)
            .map(|_| {
                let size = next() % 100_000;
                cell(
                    (next() % 20) as u32,
                    size,
                    size + next() % 50,
                    next() % 1000,
                )
            })
            .collect();
        let total: u64 = cells.iter().map(|(_, count)| count).sum();
        let plain = CountsOptions::default();
        assert_eq!(
            rows(cells.iter().copied(), &plain)
                .iter()
                .map(|row| row.count)
                .sum::<u64>(),
            total
        );
        let slop: u64 = cells
            .iter()
            .map(|(key, count)| (key.usable - key.size) * count)
            .sum();
        let weighted = CountsOptions {
            by_slop: true,
            ..plain
        };
        let sum: u64 = rows(cells.iter().copied(), &weighted)
            .iter()
            .map(|row| row.count * row.slop())
            .sum();
        assert_eq!(sum, slop, "seed 0x9e3779b97f4a7c15");
    }
}
