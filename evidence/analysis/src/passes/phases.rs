//! Phases: what is born between `X begin` and `X end` and still lives at the end, and after it.
//!
//! ```text
//!   mark "tab begin" ─┬─ a b c d ─┬─ mark "tab end"      zombies of "tab": b, d
//!                     serial 100  serial 104             of those, live at the end of the run: d
//!   "request 1", "request 2" … are rounds of one family, "request #"
//! ```
//!
//! F1  `X begin` or `X start` opens, `X end` or `X stop` closes. Phases of different names may nest and overlap; a
//!     block belongs to every family that had an open phase when it was born.
//! F2  A block that is regrown keeps its birth: a buffer from before a phase does not belong to the phase.
//! F3  Phases of one family (names that differ only in their numbers) are added up; if two are open together, a block
//!     belongs to the one that began last. A begin while the same name is open, and an end while it is not, are
//!     ignored and noted; a phase that never ends is noted and has no zombies.
//! F4  Memory: live blocks that were regrown, cells born into in each open phase, (family, cell) pairs
//!     with zombies, marks. At most [`MAX_NAMES`] families, the rest is one more; at most [`MAX_OPEN`] open
//!     phases, more are noted.
//! F5  A release of a block costs one load unless its cell ever had zombies or was regrown; then a
//!     binary search per family.
//! F6  Beside the families there is the family of all phases, if there are several: a block that several phases left
//!     behind is in it once. A stack has one finding, by what it left behind in all.
//!
//! F7  What an exit releases was also left behind: findings look at what lived before it (phases_exit.rs), rows at
//!     the end.
//!
//! A phase is of the whole process: what another thread acquired meanwhile is counted with it. Serials are compared
//! as 32-bit numbers: right for runs of up to 4.29 thousand million acquisitions. Not here: what a family keeps
//! (phases_family.rs), what is a leak (phases_rounds.rs), live memory at the marks (the ledger's rows).

use rustc_hash::FxHashMap;
use skinflint_trace::Mark;

use crate::model::{FindingKind, Report};
use crate::pass::{Act, Block, CellId, Context, Pass};
use crate::passes::cells::slot;
use crate::passes::phases_exit::Tail;
use crate::passes::phases_family::Name;
use crate::passes::phases_rounds::{self, Rounds, Sum};
use crate::passes::ranking::push_ranked;

/// The most families of phases that are kept (F4).
pub const MAX_NAMES: usize = 64;
/// The most phases open at one time that are kept (F4).
pub const MAX_OPEN: usize = 64;

/// The effect of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edge {
    begins: bool,
    /// The whole name: what ends is what began.
    raw: u32,
    family: u32,
}

/// The pass over phases; see the head of the file.
pub struct Phases {
    /// The effect of each mark, by index.
    edges: Vec<Option<Edge>>,
    names: Vec<Name>,
    /// The family of all phases, if there are others (F6): the last of `names`.
    all: Option<u32>,
    /// Raw names, by number, for notes.
    raws: Vec<String>,
    /// The families that have an open phase.
    active: Vec<u32>,
    next_serial: u32,
    /// Birth serials of live blocks that were regrown (F2).
    births: FxHashMap<u32, u32>,
    /// Cells whose blocks may have a birth elsewhere, or be zombies.
    flags: Vec<u8>,
    live_usable: u64,
    tail: Tail,
    notes: Vec<String>,
    frozen: bool,
}

const REGROWN: u8 = 1;
const HAS_ZOMBIES: u8 = 2;

/// Returns a name without its numbers: `request 17` and `request 18` are rounds of one thing.
fn family(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(letter),
        }
    }
    out
}

impl Phases {
    /// Creates the pass. `marks` are the trace's, in order: acts name them by index.
    pub fn new(marks: &[Mark]) -> Self {
        let mut pass = Self {
            edges: Vec::with_capacity(marks.len()),
            names: Vec::new(),
            all: None,
            raws: Vec::new(),
            active: Vec::new(),
            next_serial: 0,
            births: FxHashMap::default(),
            flags: Vec::new(),
            live_usable: 0,
            tail: Tail::default(),
            notes: Vec::new(),
            frozen: false,
        };
        let mut raws: FxHashMap<&str, (u32, u32)> = FxHashMap::default();
        let mut families: FxHashMap<String, u32> = FxHashMap::default();
        for mark in marks {
            let edge = parse(&mark.name).map(|(name, begins)| {
                let fresh = raws.len() as u32;
                let known = raws.get(name).copied();
                let (raw, family) = known.unwrap_or_else(|| {
                    let family = pass.family_of(&mut families, name);
                    (fresh, family)
                });
                if known.is_none() {
                    raws.insert(name, (raw, family));
                    pass.raws.push(name.to_owned());
                }
                if !begins {
                    pass.names[family as usize].rounds.plan();
                }
                Edge {
                    begins,
                    raw,
                    family,
                }
            });
            pass.edges.push(edge);
        }
        if pass.names.len() > 1 {
            pass.all = Some(pass.names.len() as u32);
            let planned = pass.names.iter().map(|name| name.rounds.planned());
            let rounds = Rounds::of(planned.sum());
            pass.names.push(Name::new(String::new(), rounds));
        }
        pass
    }

    /// Returns the family of a name that was not seen before.
    fn family_of(&mut self, families: &mut FxHashMap<String, u32>, name: &str) -> u32 {
        let mut key = family(name);
        if families.len() >= MAX_NAMES && !families.contains_key(&key) {
            note(
                &mut self.notes,
                format!(
                    "More than {MAX_NAMES} names of phases: '{name}' and what follows are taken together."
                ),
            );
            key = String::new();
        }
        let fresh = self.names.len() as u32;
        let number = *families.entry(key.clone()).or_insert(fresh);
        if number == fresh {
            let name = match key.is_empty() {
                true => "other phases".to_owned(),
                false => name.to_owned(),
            };
            self.names.push(Name::new(name, Rounds::default()));
        } else if !key.is_empty() {
            // This is a second name: the family's name is what they have in common.
            self.names[number as usize].name = key;
        }
        number
    }

    #[inline]
    fn born(&mut self, cell: CellId, birth: u32) {
        for name in &self.active {
            if let Some(open) = self.names[*name as usize].open_of(birth) {
                *open.born.entry(cell).or_default() += 1;
            }
        }
        if *slot(&mut self.flags, cell) & HAS_ZOMBIES != 0 {
            self.count_zombie(cell, birth, true);
        }
    }

    #[inline]
    fn died(&mut self, cell: CellId, birth: u32) {
        for name in &self.active {
            if let Some(open) = self.names[*name as usize].open_of(birth)
                && let Some(live) = open.born.get_mut(&cell)
            {
                *live = live.saturating_sub(1);
            }
        }
        if *slot(&mut self.flags, cell) & HAS_ZOMBIES != 0 {
            self.count_zombie(cell, birth, false);
        }
    }

    /// Counts a zombie of an ended phase that goes, or (regrown) comes back as another cell.
    fn count_zombie(&mut self, cell: CellId, birth: u32, alive: bool) {
        for name in &mut self.names {
            name.count_zombie(cell, birth, alive, self.tail.stretch());
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
            for name in &mut self.names {
                if name.regrow(birth, old.cell, new.cell) {
                    *slot(&mut self.flags, new.cell) |= HAS_ZOMBIES;
                }
            }
        }
        self.born(new.cell, birth);
    }

    fn mark(&mut self, context: &Context<'_>, mark: u32) {
        let Some(edge) = self.edges.get(mark as usize).copied().flatten() else {
            return;
        };
        match edge.begins {
            true => self.begin(edge),
            false => self.end(context, edge),
        }
    }

    fn begin(&mut self, edge: Edge) {
        let open = &self.names[edge.family as usize].open;
        let text = &self.raws[edge.raw as usize];
        if open.iter().any(|open| open.raw == edge.raw) {
            note(
                &mut self.notes,
                format!(
                    "Phase '{text}' began again before it had ended: the second begin is ignored."
                ),
            );
            return;
        }
        let most = self.names.iter().map(|name| name.open.len()).max();
        if most.unwrap_or(0) >= MAX_OPEN {
            note(
                &mut self.notes,
                format!("More than {MAX_OPEN} phases open at once: '{text}' is not followed."),
            );
            return;
        }
        for family in [Some(edge.family), self.all].into_iter().flatten() {
            let name = &mut self.names[family as usize];
            name.begin(edge.raw, self.next_serial);
        }
        self.see_active();
    }

    fn end(&mut self, context: &Context<'_>, edge: Edge) {
        let open = &self.names[edge.family as usize].open;
        if !open.iter().any(|open| open.raw == edge.raw) {
            let text = &self.raws[edge.raw as usize];
            note(
                &mut self.notes,
                format!("Phase '{text}' ended without a begin: ignored."),
            );
            return;
        }
        for family in [Some(edge.family), self.all].into_iter().flatten() {
            let name = &mut self.names[family as usize];
            let (next, live) = (self.next_serial, self.live_usable);
            let ended = name.end(context, edge.raw, next, live, self.tail.stretch());
            for cell in ended {
                *slot(&mut self.flags, cell) |= HAS_ZOMBIES;
            }
        }
        self.see_active();
    }

    fn see_active(&mut self) {
        let open = (0..).zip(&self.names);
        let open = open.filter(|(_, name)| !name.open.is_empty());
        self.active = open.map(|(number, _)| number).collect();
    }
}

/// Parses a mark: `tab begin` is ("tab", true). A mark that is only `begin` is no phase.
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

/// Adds a note; a repeated fault is one note, so notes stay few.
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
        self.tail.act(context.time_ns);
        match act {
            Act::Acquire { block, .. } => {
                self.live_usable += context.key.usable;
                self.tail.asked(context.key.size, self.live_usable);
                self.next_serial = block.serial.wrapping_add(1);
                self.born(block.cell, block.serial);
            }
            Act::Release { block, .. } => {
                self.live_usable = self.live_usable.saturating_sub(context.key.usable);
                let birth = self.birth_of(block);
                self.died(block.cell, birth);
            }
            Act::Regrow { old, new } => {
                let (from, to) = (context.cell(old.cell).usable, context.key.usable);
                self.live_usable = (self.live_usable + to).saturating_sub(from);
                self.tail.asked(context.key.size, self.live_usable);
                self.next_serial = new.serial.wrapping_add(1);
                self.regrown(old, new);
            }
            Act::Mark { mark } => {
                self.mark(context, *mark);
                self.tail.mark();
            }
        }
    }

    fn at_instant(&mut self, _context: &Context<'_>) {
        for name in &mut self.names {
            name.freeze();
        }
        // A tomb that is dug later held nothing at the instant, and keeps its 0.
        self.frozen = true;
    }

    fn finish(mut self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        if !self.frozen {
            self.at_instant(context);
        }
        for (number, name) in (0..).zip(&self.names) {
            for open in name.open.iter().filter(|_| Some(number) != self.all) {
                let text = &self.raws[open.raw as usize];
                note(
                    &mut self.notes,
                    format!("Phase '{text}' never ended: it has no zombies."),
                );
            }
        }
        report.completeness.notes.append(&mut self.notes);
        let mut stacks: FxHashMap<u32, Vec<(u32, Sum)>> = FxHashMap::default();
        for (number, name) in (0..).zip(&self.names) {
            for (node, sum) in name.by_stack(context, self.tail.stretch()) {
                stacks.entry(node).or_default().push((number, sum));
                if Some(number) != self.all {
                    report.zombies.push(sum.row(&name.name, node));
                }
            }
        }
        report.zombies.sort_by(|a, b| {
            b.usable_bytes
                .cmp(&a.usable_bytes)
                .then_with(|| (&a.phase, a.node).cmp(&(&b.phase, b.node)))
        });
        let mut claims = self
            .names
            .last()
            .map_or_else(FxHashMap::default, |all| all.claims(context));
        let at = report.instants.get(report.at);
        let at = at.map_or("the report's moment", |one| one.label.as_str());
        let end_ns = report.program.duration_ns.max(context.time_ns);
        let findings = stacks.iter().filter_map(|(node, sums)| {
            let of = |number: &u32| {
                let name = &self.names[*number as usize];
                let text = (Some(*number) != self.all).then_some(name.name.as_str());
                (text, &name.rounds)
            };
            let sums: Vec<_> = sums
                .iter()
                .map(|(number, sum)| (of(number), *sum))
                .collect();
            let mut found = phases_rounds::finding(*node, &sums, (at, end_ns))?;
            if found.saved_bytes > 0 {
                found.claims = claims.remove(node).unwrap_or_default();
            }
            if let Some(leaving) = &mut found.leaving {
                leaving.count_sizes(&found.claims);
            }
            Some(found)
        });
        let (leaks, zombies): (Vec<_>, Vec<_>) =
            findings.partition(|finding| finding.kind == FindingKind::Leak);
        push_ranked(report, leaks);
        push_ranked(report, zombies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Confidence;
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
        assert_eq!(
            leaks[0].title,
            "Leaves 1 block a round, in 10 rounds of 'req'"
        );
        assert!(
            leaks[0].what.starts_with("About 1,000 bytes each time."),
            "{}",
            leaks[0].what
        );
    }

    #[test]
    fn the_title_counts_the_rounds_that_left_its_bytes() {
        let names = ["mail begin", "mail end", "news begin", "news end"];
        let mut d = driver(&(0..10).flat_map(|_| names).collect::<Vec<_>>());
        for i in 0..20 {
            d.mark(2 * i);
            d.keep(1, 1000);
            d.mark(2 * i + 1);
        }
        let title = "Leaves 1 block a round, in 20 phases of different names";
        assert_eq!(leaks(&d.finish()), [(1, title)]);
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

    fn leaks(report: &Report) -> Vec<(u32, &str)> {
        let all = report.findings.iter();
        let leaks = all.filter(|one| one.kind == FindingKind::Leak);
        leaks
            .map(|one| (one.node.unwrap_or(0), one.title.as_str()))
            .collect()
    }

    /// Ten rounds keep 1,000 bytes each, of which the last mark is the report's instant; then all of it is released.
    fn cleared(then: impl FnOnce(&mut Driver, &mut Vec<Block>)) -> Report {
        let mut names: Vec<&str> = (0..10).flat_map(|_| ["req begin", "req end"]).collect();
        names.extend(["served", "closed"]);
        let mut d = driver(&names);
        let mut kept = vec![d.alloc(9, 1_000_000)];
        for i in 0..10 {
            d.mark(2 * i);
            kept.push(d.alloc(1, 1000));
            d.mark(2 * i + 1);
        }
        d.mark(20);
        d.instant();
        then(&mut d, &mut kept);
        d.finish()
    }

    #[test]
    fn what_an_exit_releases_was_left_behind() {
        let exits = |d: &mut Driver, kept: &mut Vec<Block>| {
            let words = d.alloc(8, 4096);
            kept.drain(..).for_each(|block| d.free(block));
            d.free(words);
        };
        let report = cleared(exits);
        assert_eq!(zombies(&report), [("req".to_owned(), 1, 10, 0)]);
        let title = "Leaves 1 block a round, in 10 rounds of 'req'";
        assert_eq!(leaks(&report), [(1, title)]);
        assert_eq!(report.findings[0].saved_bytes, 10 * 1000);
        assert!(
            report.findings[0].what.contains("exit"),
            "{}",
            report.findings[0].what
        );
    }

    #[test]
    fn what_is_released_before_the_exit_was_not_left_behind() {
        let goes_on = cleared(|d, kept| {
            kept.drain(1..).for_each(|block| d.free(block));
            for _ in 0..6 {
                let work = d.alloc(8, 8000);
                d.free(work);
            }
        });
        let marked = cleared(|d, kept| {
            kept.drain(1..).for_each(|block| d.free(block));
            d.mark(21);
        });
        let paused = cleared(|d, kept| {
            kept.drain(1..).for_each(|block| d.free(block));
            d.time_ns += 2_000_000_000;
            d.free(kept[0]);
        });
        for report in [goes_on, marked, paused] {
            assert!(report.findings.is_empty(), "{:#?}", report.findings);
        }
    }

    #[test]
    fn rounds_are_judged_by_stack_whatever_the_sizes() {
        let names: Vec<&str> = (0..50).flat_map(|_| ["req begin", "req end"]).collect();
        let mut d = driver(&names);
        for i in 0..50u32 {
            d.mark(2 * i);
            (0..4).for_each(|one| d.keep(1, 300 + u64::from(i * 4 + one) * 37 % 1500));
            d.mark(2 * i + 1);
        }
        let report = d.finish();
        let title = "Leaves 4 blocks a round, in 50 rounds of 'req'";
        assert_eq!(leaks(&report), [(1, title)]);
        assert_eq!(report.findings.len(), 1, "no zombie of the same blocks");
        assert!(report.findings[0].saved_bytes > 0);
    }

    #[test]
    fn a_part_of_the_rounds_leaks_if_it_is_spread_over_all_of_them() {
        let names: Vec<&str> = (0..300).flat_map(|_| ["req begin", "req end"]).collect();
        let mut d = driver(&names);
        for i in 0..300 {
            d.mark(2 * i);
            let temporary = d.alloc(4, 5000);
            if i % 3 == 0 {
                d.keep(1, 1000);
            }
            // As many, in two places; and a table that is made anew when it is full.
            if (50..100).contains(&i) || (200..250).contains(&i) {
                d.keep(2, 1000);
            }
            if i.is_power_of_two() {
                d.keep(3, 5000);
            }
            d.free(temporary);
            d.mark(2 * i + 1);
        }
        let report = d.finish();
        let title = "Leaves 0.3 blocks a round, in 300 rounds of 'req'";
        assert_eq!(leaks(&report), [(1, title)]);
    }

    #[test]
    fn a_zombie_says_what_lives_at_the_moment() {
        let mut d = driver(&["import begin", "import end", "serving"]);
        d.mark(0);
        let kept: Vec<_> = (0..120).map(|_| d.alloc(1, 131_072)).collect();
        d.mark(1);
        d.mark(2);
        d.instant();
        kept.into_iter().for_each(|block| d.free(block));
        let report = d.finish();
        let found = &report.findings;
        assert_eq!(found.len(), 1, "{found:#?}");
        let bytes = 120 * glibc(131_072);
        assert_eq!((found[0].kind, found[0].blocks), (FindingKind::Zombie, 120));
        // What a phase loads is as a rule meant to stay.
        assert_eq!((found[0].now_bytes, found[0].saved_bytes), (bytes, 0));
        let words = "120 blocks of 'import' still live at 'the report's moment'";
        assert!(found[0].what.starts_with(words), "{}", found[0].what);
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
        let letter = |n: u32| char::from_u32(0x61 + n % 26).expect("a letter");
        let names: Vec<String> = (0..200)
            .map(|i| format!("{}{} begin", letter(i), letter(i / 26)))
            .collect();
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
