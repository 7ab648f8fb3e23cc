//! The differences between two runs, or two moments of one run, by stack.
//!
//! ```text
//!   sites of A ─► key: module and function of every frame ─┐
//!   sites of B ─► key                                      ┴─► same key ─► one row {before, after}
//!   what has no partner ─► key without inlined frames ─► key of the named frames only ─► one row, or alone
//! ```
//!
//! C1  Every site of either side is in exactly one row, so columns of rows add up to both totals
//!     ([`Diff::adds_up`]).
//! C2  A key holds no address, line, build or version: `libfoo.so.1.2` and `libfoo.so.1.3` are one module, the
//!     executable is one module whatever its name, and what compilers and linkers add to names (`.constprop.0`,
//!     `@@GLIBC_2.34`, a hash) is left out.
//! C3  A weaker key joins only rows that one side lacks, and only if it gives them what they lack. A match found in
//!     this way is marked ([`Matched`]).
//! C4  Nothing depends on the order of a hash map.
//!
//! C5  What blocks pin is compared only if the resident pages are known at both moments ([`Side::pins_known`]);
//!     otherwise it is 0 everywhere.
//!
//! C6  Blocks that a fork left are matched by the stacks that acquired them, in the parent: that a fork left them is no
//!     frame, unless it is all that is known of them.
//!
//! Not here: text.

use rustc_hash::FxHashMap;
use serde::Serialize;
use skinflint_analysis::model::{Fragments, Frame, Instant, Pins, Report, Site};
use skinflint_view::stack::{is_inherited, is_plumbing, is_unnamed};

use crate::source::path;

/// The figures of a stack at a moment, and what it acquired over the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Measure {
    /// Live blocks.
    pub blocks: u64,
    /// Requested bytes of the live blocks.
    pub requested_bytes: u64,
    /// Usable bytes of the live blocks.
    pub usable_bytes: u64,
    /// Blocks acquired over the whole run, whatever the moment.
    pub allocations: u64,
    /// Requested bytes of the blocks acquired.
    pub allocated_bytes: u64,
    /// Free bytes on resident pages that its live blocks pin: its share of these bytes (C5).
    pub pinned_bytes: u64,
    /// Resident pages that hold live blocks of one stack only; of each of the row's stacks by itself.
    pub sole_pages: u64,
}

impl Measure {
    fn of(site: &Site, pins: Option<&Pins>) -> Measure {
        Measure {
            pinned_bytes: pins.map_or(0, |pins| pins.free_bytes),
            sole_pages: pins.map_or(0, |pins| pins.sole_pages),
            blocks: site.live_blocks,
            requested_bytes: site.live_requested_bytes,
            usable_bytes: site.live_usable_bytes,
            allocations: site.allocations,
            allocated_bytes: site.requested_bytes,
        }
    }

    fn add(&mut self, other: &Measure) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.requested_bytes = self.requested_bytes.saturating_add(other.requested_bytes);
        self.usable_bytes = self.usable_bytes.saturating_add(other.usable_bytes);
        self.allocations = self.allocations.saturating_add(other.allocations);
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.pinned_bytes = self.pinned_bytes.saturating_add(other.pinned_bytes);
        self.sole_pages = self.sole_pages.saturating_add(other.sole_pages);
    }

    /// Returns the usable bytes beyond those requested.
    pub fn slop_bytes(&self) -> u64 {
        self.usable_bytes.saturating_sub(self.requested_bytes)
    }
}

/// The order of rows: by the size of the difference in this figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    /// Live usable bytes.
    #[default]
    Bytes,
    /// Live blocks.
    Blocks,
    /// Live slop.
    Slop,
    /// Free bytes that live blocks pin.
    Pinned,
    /// Blocks acquired over the run.
    Allocations,
}

impl By {
    /// Returns the figure of a measure.
    pub fn of(self, measure: &Measure) -> u64 {
        match self {
            By::Bytes => measure.usable_bytes,
            By::Blocks => measure.blocks,
            By::Slop => measure.slop_bytes(),
            By::Pinned => measure.pinned_bytes,
            By::Allocations => measure.allocations,
        }
    }
}

/// The rule by which the two sides of a row were matched (C3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Matched {
    /// Module and function of every frame; also if there is only one side.
    #[default]
    Frames,
    /// Every frame that is not inlined.
    NotInlined,
    /// Every frame that has a name and is the program's own.
    Named,
}

/// How a stack changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It has more usable bytes than before.
    Grew,
    /// It has fewer usable bytes than before.
    Shrank,
    /// It had no live block before.
    Appeared,
    /// It has no live block any more.
    Vanished,
    /// It has the same bytes.
    Same,
}

/// A stack, with its figures on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// How it changed.
    pub change: Change,
    /// How it was matched.
    pub matched: Matched,
    /// Its figures before.
    pub before: Measure,
    /// Its figures after.
    pub after: Measure,
    /// Nodes of the earlier report: of the stacks that are this row.
    pub nodes_before: Vec<u32>,
    /// Nodes of the later report.
    pub nodes_after: Vec<u32>,
    /// The frames, innermost first, of the largest stack after, or before if there is none after: function, then
    /// module in parentheses.
    pub frames: Vec<String>,
}

impl Row {
    fn change(&self) -> Change {
        let (before, after) = (&self.before, &self.after);
        match (before.blocks, after.blocks) {
            (0, 0) => Change::Same,
            (0, _) => Change::Appeared,
            (_, 0) => Change::Vanished,
            _ if after.usable_bytes > before.usable_bytes => Change::Grew,
            _ if after.usable_bytes < before.usable_bytes => Change::Shrank,
            _ => Change::Same,
        }
    }

    /// Returns the size of the difference in a figure.
    pub fn size(&self, by: By) -> u64 {
        by.of(&self.before).abs_diff(by.of(&self.after))
    }
}

/// A side of the difference.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// Name of the trace.
    pub trace: String,
    /// Name of the program.
    pub program: String,
    /// Process id.
    pub pid: u32,
    /// The moment.
    pub at: String,
    /// The time of the moment, nanoseconds since the start.
    pub time_ns: u64,
    /// Whether nothing is missing from the trace.
    pub complete: bool,
    /// Whether the resident pages are known at both moments, and so what blocks pin (C5).
    pub pins_known: bool,
    /// The total as the analysis counted it at the moment, not the sum over stacks.
    pub total: Measure,
}

/// The difference between two reports.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// Version of these fields.
    pub schema: u32,
    /// The side before.
    pub before: Side,
    /// The side after.
    pub after: Side,
    /// Why the comparison may mean little, one sentence each.
    pub doubts: Vec<String>,
    /// Rows, largest difference first.
    pub rows: Vec<Row>,
}

impl Diff {
    /// Compares two reports; each is as of its own moment. `traces` are their names.
    pub fn new(before: (&Report, &str), after: (&Report, &str), by: By) -> Diff {
        let pins_known = pages(before.0).is_some() && pages(after.0).is_some();
        let mut rows = matched([before.0, after.0], pins_known);
        for row in &mut rows {
            row.change = row.change();
        }
        rows.sort_by(|a, b| {
            let size = |row: &Row| (row.size(by), by.of(&row.after), by.of(&row.before));
            size(b).cmp(&size(a)).then_with(|| a.frames.cmp(&b.frames))
        });
        let mut diff = Diff {
            schema: 1,
            before: side(before.0, before.1, pins_known),
            after: side(after.0, after.1, pins_known),
            doubts: Vec::new(),
            rows,
        };
        diff.doubts = doubts(&diff, before.0, after.0);
        diff
    }

    /// Returns the sums over the rows: before, after.
    pub fn sums(&self) -> (Measure, Measure) {
        let mut sums = (Measure::default(), Measure::default());
        for row in &self.rows {
            sums.0.add(&row.before);
            sums.1.add(&row.after);
        }
        sums
    }

    /// Checks that the rows add up to the totals (C1).
    ///
    /// # Errors
    /// Which total is not the sum of its rows.
    pub fn adds_up(&self) -> Result<(), String> {
        let (before, after) = self.sums();
        for (side, sum) in [(&self.before, before), (&self.after, after)] {
            if side.total != sum {
                return Err(format!(
                    "the rows do not add up to {} at {}: {sum:?}, not {:?}; this is a fault of skinflint",
                    side.trace, side.at, side.total
                ));
            }
        }
        Ok(())
    }
}

/// Returns what pins the pages at the moment of a report; `None` if they are not known.
fn pages(report: &Report) -> Option<&Fragments> {
    report.instants.get(report.at)?.fragments.as_ref()
}

/// Returns the stacks that pin pages, by node.
fn pins(report: &Report) -> FxHashMap<u32, &Pins> {
    let listed = pages(report).map_or(&[][..], |all| &all.pins);
    listed
        .iter()
        .filter_map(|one| Some((one.node?, one)))
        .collect()
}

fn side(report: &Report, trace: &str, pins_known: bool) -> Side {
    let none = Instant::default();
    let at = report.instants.get(report.at).unwrap_or(&none);
    let fragments = pages(report).filter(|_| pins_known);
    // These sums are of the listed stacks: the report may name only the largest.
    let listed = |figure: fn(&Pins) -> u64| {
        fragments.map_or(0, |all| {
            all.pins.iter().map(figure).fold(0, u64::saturating_add)
        })
    };
    Side {
        trace: trace.to_owned(),
        program: report.program.name.clone(),
        pid: report.program.pid,
        at: at.label.clone(),
        time_ns: at.time_ns,
        complete: report.completeness.complete,
        pins_known,
        total: Measure {
            pinned_bytes: fragments.map_or(0, |all| {
                all.pinned_bytes.saturating_sub(all.others.free_bytes)
            }),
            sole_pages: listed(|one| one.sole_pages),
            blocks: at.live_blocks,
            requested_bytes: at.live_requested_bytes,
            usable_bytes: at.live_usable_bytes,
            allocations: report.totals.allocations,
            allocated_bytes: report.totals.requested_bytes,
        },
    }
}

/// Returns a module without its version (C2): `libfoo.so.1.2.3` is `libfoo.so`, the executable is `[program]`.
fn module_key<'a>(report: &Report, module: &'a str) -> &'a str {
    let exe = report.program.exe.rsplit('/').next().unwrap_or_default();
    if !module.is_empty() && module == exe {
        return "[program]";
    }
    match module.find(".so.") {
        Some(at) => &module[..at + 3],
        None => module,
    }
}

/// Returns a function's name without what belongs to one build only (C2).
fn function_key(function: &str) -> &str {
    if function.starts_with("[jit]") {
        return "[jit]";
    }
    let mut name = function.split('@').next().unwrap_or(function);
    if let Some(at) = name.rfind("::h")
        && name.len() - at == 19
        && name[at + 3..].bytes().all(|b| b.is_ascii_hexdigit())
    {
        name = &name[..at];
    }
    const CLONES: [&str; 7] = [
        ".constprop",
        ".isra",
        ".part",
        ".cold",
        ".llvm",
        ".lto_priv",
        ".localalias",
    ];
    let first = CLONES.iter().filter_map(|clone| name.find(clone)).min();
    match first {
        Some(at) if at > 0 => &name[..at],
        _ if name.is_empty() => function,
        _ => name,
    }
}

/// Returns the frames of a stack, innermost first, without what says that a fork left it (C6).
fn own_path(report: &Report, node: u32) -> Vec<u32> {
    let mut all = path(report, node);
    if is_inherited(report, node) {
        all.pop();
    }
    all
}

/// Returns the key of a stack, by one of the three rules; empty if the rule leaves nothing.
fn key(report: &Report, node: u32, rule: Matched) -> String {
    let mut text = String::new();
    let mut push = |frame: &Frame| {
        text.push_str(module_key(report, &frame.module));
        text.push('\u{1}');
        text.push_str(function_key(&frame.function));
        text.push('\u{2}');
    };
    for index in own_path(report, node) {
        let Some(frame) = report.frames.get(index as usize) else {
            continue;
        };
        let wanted = match rule {
            Matched::Frames => true,
            Matched::NotInlined => !frame.inlined,
            Matched::Named => {
                !frame.inlined && !is_unnamed(&frame.function) && !is_plumbing(&frame.function)
            }
        };
        if wanted {
            push(frame);
        }
    }
    text
}

/// Returns the rows, matched by all three rules (C1, C3).
fn matched(reports: [&Report; 2], pins_known: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut known: FxHashMap<String, usize> = FxHashMap::default();
    for (side, report) in reports.into_iter().enumerate() {
        let pins = match pins_known {
            true => pins(report),
            false => FxHashMap::default(),
        };
        for site in &report.sites {
            let measure = Measure::of(site, pins.get(&site.node).copied());
            let next = rows.len();
            let at = *known
                .entry(key(report, site.node, Matched::Frames))
                .or_insert(next);
            if at == next {
                rows.push(empty_row());
            }
            put(&mut rows[at], side, report, site.node, &measure);
        }
    }
    for rule in [Matched::NotInlined, Matched::Named] {
        rows = join(rows, reports, rule);
    }
    rows
}

fn empty_row() -> Row {
    Row {
        change: Change::Same,
        matched: Matched::Frames,
        before: Measure::default(),
        after: Measure::default(),
        nodes_before: Vec::new(),
        nodes_after: Vec::new(),
        frames: Vec::new(),
    }
}

fn put(row: &mut Row, side: usize, report: &Report, node: u32, more: &Measure) {
    let (measure, nodes) = match side {
        0 => (&mut row.before, &mut row.nodes_before),
        _ => (&mut row.after, &mut row.nodes_after),
    };
    // Sites come largest first; the largest one after gives the row its frames, or the largest one before if there is
    // none.
    let first_of_side = nodes.is_empty();
    measure.add(more);
    nodes.push(node);
    if first_of_side {
        row.frames = shown(report, node);
    }
}

fn shown(report: &Report, node: u32) -> Vec<String> {
    let frames = own_path(report, node).into_iter();
    let frames = frames.filter_map(|index| report.frames.get(index as usize));
    frames
        .map(|frame| match frame.module.as_str() {
            "" => frame.function.clone(),
            module => format!("{} ({module})", frame.function),
        })
        .collect()
}

/// Returns which sides a row has: 1 before, 2 after, 3 both.
fn sides(row: &Row) -> u8 {
    u8::from(!row.nodes_before.is_empty()) | u8::from(!row.nodes_after.is_empty()) << 1
}

/// Joins rows of one side whose weaker keys are the same as those of a row that has the other (C3).
fn join(rows: Vec<Row>, reports: [&Report; 2], rule: Matched) -> Vec<Row> {
    let weak = |row: &Row| match (row.nodes_after.first(), row.nodes_before.first()) {
        (Some(&node), _) => key(reports[1], node, rule),
        (None, Some(&node)) => key(reports[0], node, rule),
        (None, None) => String::new(),
    };
    let keys: Vec<String> = rows.iter().map(weak).collect();
    // For each key, which sides exist in all.
    let mut seen: FxHashMap<&str, u8> = FxHashMap::default();
    for (row, key) in rows.iter().zip(&keys) {
        *seen.entry(key).or_default() |= sides(row);
    }
    let mut target: FxHashMap<&str, usize> = FxHashMap::default();
    let mut kept: Vec<Row> = Vec::new();
    // Whole rows come first, so that a row that lacks a side finds one that has it.
    for whole in [true, false] {
        for (row, key) in rows.iter().zip(&keys) {
            if (sides(row) == 3) != whole {
                continue;
            }
            let joins = !whole && !key.is_empty() && seen.get(key.as_str()) == Some(&3);
            let at = target.get(key.as_str()).copied().filter(|_| joins);
            match at {
                Some(at) => merge(&mut kept[at], row, rule),
                None => {
                    target.entry(key).or_insert(kept.len());
                    kept.push(row.clone());
                }
            }
        }
    }
    kept
}

fn merge(into: &mut Row, row: &Row, rule: Matched) {
    if into.nodes_after.is_empty() && !row.nodes_after.is_empty() {
        into.frames.clone_from(&row.frames);
    }
    into.before.add(&row.before);
    into.after.add(&row.after);
    into.nodes_before.extend(&row.nodes_before);
    into.nodes_after.extend(&row.nodes_after);
    into.matched = into.matched.max(rule);
}

/// Returns the reasons why the comparison may mean little.
fn doubts(diff: &Diff, before: &Report, after: &Report) -> Vec<String> {
    let mut doubts = Vec::new();
    let whole = |bytes: fn(&Measure) -> u64| {
        let all: u64 = diff
            .rows
            .iter()
            .map(|row| bytes(&row.before).saturating_add(bytes(&row.after)))
            .fold(0, u64::saturating_add);
        let shared = diff.rows.iter().filter(|row| sides(row) == 3);
        let shared: u64 = shared
            .map(|row| bytes(&row.before).saturating_add(bytes(&row.after)))
            .fold(0, u64::saturating_add);
        (shared, all)
    };
    let (shared, all) = whole(|measure| measure.allocated_bytes);
    if all > 0 && shared < all / 2 {
        doubts.push(format!(
            "only {}% of all bytes allocated belong to stacks that both have: these may be different \
             programs, or one of them lacks names of functions",
            (u128::from(shared) * 100 / u128::from(all)) as u64
        ));
    }
    if diff.before.program != diff.after.program {
        doubts.push(format!(
            "the programs have different names: {} and {}",
            diff.before.program, diff.after.program
        ));
    }
    if before.program.allocator != after.program.allocator {
        doubts.push(format!(
            "the allocators differ ({} and {}), so bytes given and slop differ for that reason too",
            before.program.allocator, after.program.allocator
        ));
    }
    for side in [&diff.before, &diff.after] {
        if !side.complete {
            doubts.push(format!(
                "{} is not complete; `skinflint report` says what is missing",
                side.trace
            ));
        }
    }
    doubts.dedup();
    doubts
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
