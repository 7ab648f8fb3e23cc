//! Phases: what is born between `X begin` and `X end` and still lives at the end, and after it.
//!
//! ```text
//!   mark "tab begin" ─┬─ a b c d ─┬─ mark "tab end"      zombies of "tab": b, d
//!                     serial 100  serial 104             of those, live at the end of the run: d
//! ```
//!
//! F1  `X begin` or `X start` opens, `X end` or `X stop` closes. Phases of different names may nest
//!     and overlap; a block belongs to every phase that was open when it was born.
//! F2  A block that is regrown keeps its birth: a buffer from before a phase is not of the phase.
//! F3  Phases of one name are added up. A begin while the name is open, and an end while it is not,
//!     are ignored and noted; a phase that never ends is noted and has no zombies.
//! F4  Memory: live blocks that were regrown, cells born into in each open phase, (name, cell) pairs
//!     with zombies, marks. At most [`MAX_NAMES`] names and [`MAX_OPEN`] open phases; more are noted.
//! F5  A release of a block costs one load unless its cell ever had zombies or was regrown; then a
//!     binary search per name.
//!
//! A phase is of the whole process: what another thread acquired meanwhile is counted with it. Serials
//! are compared as 32-bit numbers: right for runs of up to 4.29 thousand million acquisitions.
//! Not here: live memory at the marks (the ledger's rows).

use rustc_hash::FxHashMap;
use skinflint_trace::Mark;

use crate::model::{Confidence, Finding, FindingKind, Report, Zombie};
use crate::pass::{Act, Block, CellId, Context, Pass};
use crate::passes::cells::slot;
use crate::passes::ranking::push_ranked;
use crate::passes::wording::{bytes, count};

/// Names of phases that are kept (F4).
pub const MAX_NAMES: usize = 64;
/// Phases open at one time that are kept (F4).
pub const MAX_OPEN: usize = 8;
/// A finding needs this much: less than a kernel page gives nothing back.
const MIN_BYTES: u64 = 4096;
/// Repetitions from which growth can be called steady.
const MIN_REPEATS: u64 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Edge {
    Begin(u32),
    End(u32),
}

/// See the head of the file.
pub struct Phases {
    /// What each mark is, by index.
    edges: Vec<Option<Edge>>,
    names: Vec<Name>,
    open: Vec<Open>,
    next_serial: u32,
    /// Birth serials of live blocks that were regrown (F2).
    births: FxHashMap<u32, u32>,
    /// Cells whose blocks may have a birth elsewhere, or be zombies.
    flags: Vec<u8>,
    live_usable: u64,
    notes: Vec<String>,
    frozen: bool,
}

const REGROWN: u8 = 1;
const HAS_ZOMBIES: u8 = 2;

/// All phases of one name.
#[derive(Default)]
struct Name {
    name: String,
    instances: u64,
    /// Births of the ended phases: [first, past the last), rising, apart.
    spans: Vec<(u32, u32)>,
    zombies: FxHashMap<CellId, Tomb>,
    /// Live bytes given at the first end mark, and at the last.
    first_end: u64,
    last_end: u64,
    rises: u64,
}

/// Zombies of one name and cell.
#[derive(Clone, Copy, Default)]
struct Tomb {
    blocks: u64,
    live: u64,
    at_instant: u64,
    instances: u64,
}

struct Open {
    name: u32,
    first: u32,
    /// Blocks of each cell that were born in it and live.
    born: FxHashMap<CellId, u64>,
}

impl Phases {
    /// `marks` are the trace's, in order: acts name them by index.
    pub fn new(marks: &[Mark]) -> Self {
        let mut pass = Self {
            edges: Vec::with_capacity(marks.len()),
            names: Vec::new(),
            open: Vec::new(),
            next_serial: 0,
            births: FxHashMap::default(),
            flags: Vec::new(),
            live_usable: 0,
            notes: Vec::new(),
            frozen: false,
        };
        let mut index: FxHashMap<&str, u32> = FxHashMap::default();
        for mark in marks {
            let edge = parse(&mark.name).and_then(|(name, begins)| {
                let known = index.len() as u32;
                if index.len() >= MAX_NAMES && !index.contains_key(name) {
                    return None;
                }
                let number = *index.entry(name).or_insert(known);
                if number == known {
                    pass.names.push(Name {
                        name: name.to_owned(),
                        ..Name::default()
                    });
                }
                Some(if begins {
                    Edge::Begin(number)
                } else {
                    Edge::End(number)
                })
            });
            if edge.is_none() && parse(&mark.name).is_some() {
                note(
                    &mut pass.notes,
                    format!(
                        "More than {MAX_NAMES} names of phases: '{}' and what follows is not followed.",
                        mark.name
                    ),
                );
            }
            pass.edges.push(edge);
        }
        pass
    }

    #[inline]
    fn born(&mut self, cell: CellId, birth: u32) {
        for open in &mut self.open {
            if birth >= open.first {
                *open.born.entry(cell).or_default() += 1;
            }
        }
        if *slot(&mut self.flags, cell) & HAS_ZOMBIES != 0 {
            self.count_zombie(cell, birth, true);
        }
    }

    #[inline]
    fn died(&mut self, cell: CellId, birth: u32) {
        for open in &mut self.open {
            if birth >= open.first
                && let Some(live) = open.born.get_mut(&cell)
            {
                *live = live.saturating_sub(1);
            }
        }
        if *slot(&mut self.flags, cell) & HAS_ZOMBIES != 0 {
            self.count_zombie(cell, birth, false);
        }
    }

    /// A zombie of an ended phase goes, or (regrown) comes back as another cell.
    fn count_zombie(&mut self, cell: CellId, birth: u32, alive: bool) {
        for name in &mut self.names {
            if !name.holds(birth) {
                continue;
            }
            if let Some(tomb) = name.zombies.get_mut(&cell) {
                tomb.live = if alive {
                    tomb.live + 1
                } else {
                    tomb.live.saturating_sub(1)
                };
            }
        }
    }

    fn birth_of(&mut self, block: &Block) -> u32 {
        if *slot(&mut self.flags, block.cell) & REGROWN != 0 {
            self.births.remove(&block.serial).unwrap_or(block.serial)
        } else {
            block.serial
        }
    }

    fn regrown(&mut self, old: &Block, new: &Block) {
        let birth = self.birth_of(old);
        *slot(&mut self.flags, new.cell) |= REGROWN;
        self.births.insert(new.serial, birth);
        self.died(old.cell, birth);
        // A zombie that is regrown stays one: its new cell needs a tomb to be counted in.
        if *slot(&mut self.flags, old.cell) & HAS_ZOMBIES != 0 && old.cell != new.cell {
            for name in self.names.iter_mut().filter(|name| name.holds(birth)) {
                if name.zombies.contains_key(&old.cell) {
                    name.zombies.entry(new.cell).or_default();
                    *slot(&mut self.flags, new.cell) |= HAS_ZOMBIES;
                }
            }
        }
        self.born(new.cell, birth);
    }

    fn mark(&mut self, mark: u32) {
        match self.edges.get(mark as usize).copied().flatten() {
            Some(Edge::Begin(name)) => self.begin(name),
            Some(Edge::End(name)) => self.end(name),
            None => {}
        }
    }

    fn begin(&mut self, name: u32) {
        let text = &self.names[name as usize].name;
        if self.open.iter().any(|open| open.name == name) {
            note(
                &mut self.notes,
                format!(
                    "Phase '{text}' began again before it had ended: the second begin is ignored."
                ),
            );
        } else if self.open.len() >= MAX_OPEN {
            note(
                &mut self.notes,
                format!("More than {MAX_OPEN} phases open at once: '{text}' is not followed."),
            );
        } else {
            self.open.push(Open {
                name,
                first: self.next_serial,
                born: FxHashMap::default(),
            });
        }
    }

    fn end(&mut self, number: u32) {
        let Some(at) = self.open.iter().position(|open| open.name == number) else {
            let text = &self.names[number as usize].name;
            note(
                &mut self.notes,
                format!("Phase '{text}' ended without a begin: ignored."),
            );
            return;
        };
        let open = self.open.swap_remove(at);
        let name = &mut self.names[number as usize];
        if name.instances == 0 {
            name.first_end = self.live_usable;
        } else {
            name.rises += u64::from(self.live_usable > name.last_end);
        }
        name.last_end = self.live_usable;
        name.instances += 1;
        if open.first != self.next_serial {
            name.spans.push((open.first, self.next_serial));
        }
        for (cell, blocks) in open.born.into_iter().filter(|(_, blocks)| *blocks > 0) {
            let tomb = name.zombies.entry(cell).or_default();
            tomb.blocks += blocks;
            tomb.live += blocks;
            tomb.instances += 1;
            *slot(&mut self.flags, cell) |= HAS_ZOMBIES;
        }
    }
}

impl Name {
    /// Whether a block of this birth was born in an ended phase of the name.
    fn holds(&self, birth: u32) -> bool {
        let after = self.spans.partition_point(|(first, _)| *first <= birth);
        after > 0 && birth < self.spans[after - 1].1
    }
}

/// `tab begin` is ("tab", true). A mark that only says `begin` is no phase.
fn parse(mark: &str) -> Option<(&str, bool)> {
    let (name, word) = mark.trim().rsplit_once(char::is_whitespace)?;
    let begins = match word {
        "begin" | "start" => true,
        "end" | "stop" => false,
        _ => return None,
    };
    let name = name.trim();
    (!name.is_empty()).then_some((name, begins))
}

/// Keeps notes few: a repeated fault is one note.
fn note(notes: &mut Vec<String>, text: String) {
    const MAX_NOTES: usize = 20;
    if notes.len() < MAX_NOTES && !notes.contains(&text) {
        notes.push(text);
    }
}

impl Pass for Phases {
    fn sees_acts(&self) -> bool {
        !self.names.is_empty()
    }

    #[inline]
    fn act(&mut self, context: &Context<'_>, act: &Act) {
        match act {
            Act::Acquire { block, .. } => {
                self.live_usable += context.cell(block.cell).usable;
                self.next_serial = block.serial.wrapping_add(1);
                self.born(block.cell, block.serial);
            }
            Act::Release { block, .. } => {
                self.live_usable = self
                    .live_usable
                    .saturating_sub(context.cell(block.cell).usable);
                let birth = self.birth_of(block);
                self.died(block.cell, birth);
            }
            Act::Regrow { old, new } => {
                let (from, to) = (context.cell(old.cell).usable, context.cell(new.cell).usable);
                self.live_usable = (self.live_usable + to).saturating_sub(from);
                self.next_serial = new.serial.wrapping_add(1);
                self.regrown(old, new);
            }
            Act::Mark { mark } => self.mark(*mark),
        }
    }

    fn at_instant(&mut self, _context: &Context<'_>) {
        for name in &mut self.names {
            for tomb in name.zombies.values_mut() {
                tomb.at_instant = tomb.live;
            }
        }
        // A tomb that is dug later held nothing at the instant, and keeps its 0.
        self.frozen = true;
    }

    fn finish(mut self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        if !self.frozen {
            self.at_instant(context);
        }
        for open in std::mem::take(&mut self.open) {
            let text = &self.names[open.name as usize].name;
            note(
                &mut self.notes,
                format!("Phase '{text}' never ended: it has no zombies."),
            );
        }
        report.completeness.notes.append(&mut self.notes);
        let (mut zombies, mut leaks) = (Vec::new(), Vec::new());
        for name in &self.names {
            for (node, sum) in name.by_stack(context) {
                report.zombies.push(sum.row(&name.name, node));
                if sum.end_usable < MIN_BYTES {
                    continue;
                }
                let steady = sum.is_steady(name);
                let finding = if steady {
                    leak(name, node, &sum)
                } else {
                    zombie(name, node, &sum)
                };
                if steady {
                    leaks.push(finding)
                } else {
                    zombies.push(finding)
                }
            }
        }
        report.zombies.sort_by(|a, b| {
            b.usable_bytes
                .cmp(&a.usable_bytes)
                .then_with(|| (&a.phase, a.node).cmp(&(&b.phase, b.node)))
        });
        push_ranked(report, leaks);
        push_ranked(report, zombies);
    }
}

/// Zombies of one name and stack.
#[derive(Clone, Copy, Default)]
struct Sum {
    blocks: u64,
    requested: u64,
    usable: u64,
    end_blocks: u64,
    end_usable: u64,
    now_blocks: u64,
    now_usable: u64,
    /// Most phases of the name that any one cell of the stack left something of.
    instances: u64,
}

impl Name {
    fn by_stack(&self, context: &Context<'_>) -> Vec<(u32, Sum)> {
        let mut sums: FxHashMap<u32, Sum> = FxHashMap::default();
        for (cell, tomb) in &self.zombies {
            let key = context.cell(*cell);
            let sum = sums.entry(key.node.0).or_default();
            sum.blocks += tomb.blocks;
            sum.requested += tomb.blocks * key.size;
            sum.usable += tomb.blocks * key.usable;
            sum.end_blocks += tomb.live;
            sum.end_usable += tomb.live * key.usable;
            sum.now_blocks += tomb.at_instant;
            sum.now_usable += tomb.at_instant * key.usable;
            sum.instances = sum.instances.max(tomb.instances);
        }
        let mut sums: Vec<_> = sums
            .into_iter()
            .filter(|(_, sum)| sum.blocks > 0 || sum.end_blocks > 0)
            .collect();
        sums.sort_unstable_by_key(|(node, _)| *node);
        sums
    }
}

impl Sum {
    fn row(&self, phase: &str, node: u32) -> Zombie {
        Zombie {
            phase: phase.to_owned(),
            node,
            blocks: self.blocks,
            requested_bytes: self.requested,
            usable_bytes: self.usable,
            end_blocks: self.end_blocks,
            end_usable_bytes: self.end_usable,
        }
    }

    /// Nearly every repetition leaves something, most of it for good, and live memory rose from end
    /// mark to end mark. The first repetition may fill caches: it alone proves nothing.
    fn is_steady(&self, name: &Name) -> bool {
        name.instances >= MIN_REPEATS
            && self.instances * 4 >= name.instances * 3
            && self.end_blocks * 4 >= self.blocks * 3
            && name.rises * 4 >= (name.instances - 1) * 3
    }
}

fn leak(name: &Name, node: u32, sum: &Sum) -> Finding {
    let each = sum.end_usable / name.instances.max(1);
    Finding {
        kind: FindingKind::Leak,
        title: format!("Every '{}' leaves more behind", name.name),
        what: format!(
            "About {} each time. {} of this stack were born in {} of '{}' and outlived their end mark; {} are live at the end of the run. Live memory at the end marks went from {} to {}.",
            bytes(each),
            count(sum.blocks, "block"),
            count(name.instances, "repetition"),
            name.name,
            count(sum.end_blocks, "block"),
            bytes(name.first_end),
            bytes(name.last_end),
        ),
        change: format!(
            "Release these blocks when '{}' ends, or drop what still refers to them.",
            name.name
        ),
        now_bytes: sum.now_usable,
        saved_bytes: sum.now_usable,
        blocks: sum.now_blocks,
        confidence: Confidence::Likely,
        node: Some(node),
        ..Finding::default()
    }
}

fn zombie(name: &Name, node: u32, sum: &Sum) -> Finding {
    Finding {
        kind: FindingKind::Zombie,
        title: format!("Allocated in '{}', outlives it", name.name),
        what: format!(
            "{} ({}) of this stack were born in '{}' and lived at its end mark; {} ({}) of them are live at the end of the run.",
            count(sum.blocks, "block"),
            bytes(sum.usable),
            name.name,
            count(sum.end_blocks, "block"),
            bytes(sum.end_usable),
        ),
        change: format!(
            "Release it when '{}' ends, or if it is a cache, bound it in bytes.",
            name.name
        ),
        now_bytes: sum.now_usable,
        saved_bytes: sum.now_usable,
        blocks: sum.now_blocks,
        confidence: Confidence::Possible,
        node: Some(node),
        ..Finding::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::driver::{Driver, glibc, marks};

    fn driver(names: &[&str]) -> Driver {
        Driver::new(Phases::new(&marks(names)), glibc)
    }

    fn zombies(report: &Report) -> Vec<(String, u32, u64, u64)> {
        report
            .zombies
            .iter()
            .map(|z| (z.phase.clone(), z.node, z.blocks, z.end_blocks))
            .collect()
    }

    #[test]
    fn born_inside_and_live_at_the_end_mark() {
        let mut d = driver(&["tab begin", "tab end"]);
        let before = d.alloc(1, 1000);
        d.mark(0);
        let a = d.alloc(1, 1000);
        let b = d.alloc(1, 1000);
        let c = d.alloc(2, 8000);
        d.alloc(1, 500);
        d.free(a);
        d.mark(1);
        d.alloc(1, 1000);
        d.free(b);
        d.free(before);
        let _ = c;
        let report = d.finish();
        // Stack 1: b and the 500; b goes afterwards. Stack 2: c stays.
        assert_eq!(
            zombies(&report),
            [("tab".to_owned(), 2, 1, 1), ("tab".to_owned(), 1, 2, 1)]
        );
        assert_eq!(report.zombies[1].requested_bytes, 1500);
        assert_eq!(
            report.zombies[1].usable_bytes,
            1000 + 504,
            "1000 -> 1000, 500 -> 504"
        );
        assert_eq!(report.zombies[1].end_usable_bytes, 504);
        assert_eq!(report.findings.len(), 1, "504 bytes are no finding");
        assert_eq!(
            (report.findings[0].kind, report.findings[0].now_bytes),
            (FindingKind::Zombie, 8008)
        );
    }

    #[test]
    fn phases_nest_and_overlap() {
        // a: [1 2 3 4], b: [2 3], c: [4 5] (overlaps a's end).
        let mut d = driver(&["a start", "b begin", "b stop", "c begin", "a end", "c end"]);
        d.mark(0);
        d.alloc(1, 10);
        d.mark(1);
        d.alloc(2, 10);
        let three = d.alloc(3, 10);
        d.mark(2);
        d.mark(3);
        d.alloc(4, 10);
        d.mark(4);
        d.alloc(5, 10);
        d.mark(5);
        d.free(three);
        let mut found = zombies(&d.finish());
        found.sort();
        let row = |phase: &str, node, blocks, end| (phase.to_owned(), node, blocks, end);
        assert_eq!(
            found,
            [
                row("a", 1, 1, 1),
                row("a", 2, 1, 1),
                row("a", 3, 1, 0),
                row("a", 4, 1, 1),
                row("b", 2, 1, 1),
                row("b", 3, 1, 0),
                row("c", 4, 1, 1),
                row("c", 5, 1, 1)
            ]
        );
    }

    #[test]
    fn a_buffer_from_before_is_not_of_the_phase_however_it_grows() {
        let mut d = driver(&["x begin", "x end"]);
        let old = d.alloc(1, 100);
        d.mark(0);
        let old = d.regrow(old, 1, 5000);
        let own = d.alloc(2, 100);
        let own = d.regrow(own, 2, 5000);
        d.mark(1);
        let old = d.regrow(old, 1, 9000);
        let own = d.regrow(own, 2, 9000);
        let _ = old;
        let kept = d.alloc(2, 9000);
        let _ = kept;
        let report = d.finish();
        // Own was 5,000 at the end mark, and is live with 9,000 at the end (glibc gives both exactly).
        assert_eq!(zombies(&report), [("x".to_owned(), 2, 1, 1)]);
        assert_eq!(
            (
                report.zombies[0].usable_bytes,
                report.zombies[0].end_usable_bytes
            ),
            (5000, 9000)
        );
        let _ = own;
    }

    #[test]
    fn a_repeated_phase_that_leaks_is_a_leak_and_one_that_does_not_is_nothing() {
        let names: Vec<&str> = (0..10).flat_map(|_| ["req begin", "req end"]).collect();
        let mut d = driver(&names);
        let mut kept = None;
        for i in 0..10 {
            d.mark(2 * i);
            d.alloc(1, 1000);
            let temporary = d.alloc(2, 50_000);
            // One block that each repetition replaces: always one zombie, never more.
            let next = d.alloc(3, 5000);
            if let Some(last) = kept.replace(next) {
                d.free(last);
            }
            d.free(temporary);
            d.mark(2 * i + 1);
        }
        let report = d.finish();
        assert_eq!(
            zombies(&report),
            [("req".to_owned(), 3, 10, 1), ("req".to_owned(), 1, 10, 10)]
        );
        let leaks: Vec<_> = report
            .findings
            .iter()
            .filter(|f| f.kind == FindingKind::Leak)
            .collect();
        assert_eq!(leaks.len(), 1, "{:#?}", report.findings);
        assert_eq!(
            (leaks[0].node, leaks[0].now_bytes, leaks[0].confidence),
            (Some(1), 10_000, Confidence::Likely)
        );
        assert_eq!(leaks[0].title, "Every 'req' leaves more behind");
        assert!(
            leaks[0].what.starts_with("About 1,000 bytes each time."),
            "{}",
            leaks[0].what
        );
    }

    #[test]
    fn what_stays_while_live_memory_falls_is_no_leak() {
        let names: Vec<&str> = (0..10).flat_map(|_| ["req begin", "req end"]).collect();
        let mut d = driver(&names);
        let mut stock: Vec<_> = (0..10).map(|_| d.alloc(9, 100_000)).collect();
        for i in 0..10 {
            d.mark(2 * i);
            d.keep(1, 1000);
            // Made from what there was before: less is live at each end mark than at the last.
            let used = stock.pop().expect("ten");
            d.free(used);
            d.mark(2 * i + 1);
        }
        let report = d.finish();
        assert_eq!(zombies(&report), [("req".to_owned(), 1, 10, 10)]);
        assert_eq!(report.findings.len(), 1);
        assert_eq!(report.findings[0].kind, FindingKind::Zombie);
    }

    #[test]
    fn unmatched_marks_are_noted() {
        let mut d = driver(&["a end", "b begin", "b begin", "begin", "plain", "c begin"]);
        (0..6).for_each(|mark| d.mark(mark));
        d.mark(99);
        d.keep(1, 10);
        let report = d.finish();
        assert!(report.zombies.is_empty());
        let notes = report.completeness.notes.join("\n");
        for part in [
            "'a' ended without a begin",
            "'b' began again",
            "'b' never ended",
            "'c' never ended",
        ] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        assert_eq!(report.completeness.notes.len(), 4);
    }

    #[test]
    fn the_instant_is_kept_apart_from_the_end() {
        let mut d = driver(&["x begin", "x end"]);
        d.mark(0);
        let a = d.alloc(1, 8000);
        d.alloc(1, 8000);
        d.mark(1);
        d.instant();
        d.free(a);
        let report = d.finish();
        assert_eq!(report.findings[0].now_bytes, 2 * 8008);
        assert_eq!(report.zombies[0].end_usable_bytes, 8008);
    }

    #[test]
    fn names_and_open_phases_are_bounded() {
        let names: Vec<String> = (0..200).map(|i| format!("p{i} begin")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut d = driver(&names);
        (0..200).for_each(|mark| d.mark(mark));
        let notes = d.finish().completeness.notes;
        assert!(notes.len() <= 20);
        assert!(
            notes.iter().any(|note| note.contains("More than 64 names")),
            "{notes:?}"
        );
    }
}
