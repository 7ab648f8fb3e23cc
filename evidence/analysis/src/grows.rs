//! Stacks that only grow, found without any marks: their blocks that live at the end were born all along.
//!
//! ```text
//!   acquisitions of the process   |--1--|--2--|--3--|--4--|--5--|--6--|--7--|--8--|
//!   live at the end, a leak         5     6     5     5     6     5     5     5
//!                    a cache        0     0     0     0     0     0    20    22     the old ones are gone
//!                    start-up      42     0     0     0     0     0     0     0     nothing came after
//! ```
//!
//! O1  Births are counted along the acquisitions of the process, not along time: a program that waits is not
//!     a program that keeps.
//! O2  Every slice has at least half and at most twice its share. A program that only fills a table looks the same:
//!     so the finding names the stacks that grow, and promises no saving.
//! O3  What marks have shown about a stack is more exact, and stays alone.
//! O4  Blocks are those of the report's moment, if at most half a slice of acquisitions comes after it: a program
//!     that clears up before it ends has none at its end. Otherwise they are those of the end; so they are, too, if
//!     the program rests after that moment when more than half of a stack's blocks may have gone: what is released
//!     before a rest did not only grow.
//! O6  If most blocks of a stack were released until the end, the finding says so, and is one to look at: tables that
//!     are loaded all along and cleared up in the end are born as a leak is.
//! O7  A moment may lie long before the end: if a quarter of the run's time or more comes after it, the finding says
//!     that the growth had ended by then, and when. If as much comes after it as before, and a second at least, what grew may have been the
//!     program's start, and the finding is one to look at.
//! O8  Start-up is what was acquired in the first eighth of the time. It may be most of all acquisitions, and of the same
//!     stack; so may the blocks in use at a moment be, all young. What was born after start-up is therefore also cut
//!     into eighths of its own: the middle ones are as many, from half to twice their mean, and none of the others is
//!     under half of that. What a cache or a queue holds is missing in the first ones.
//! O5  They were also born along the time: a quarter in its second half, and some in its last quarter. What a program
//!     acquires in one burst, to work on it until the end, is all that it acquires. The run ends when the process does,
//!     not at its last heap event.
//! O9  A load is no leak: what a program reads in to work on is born as evenly, and so is all that lives. What only grows
//!     grows beside work that is done again and again, which shows by its blocks: of those born in each eighth, half as
//!     many at least have been released as the stack kept. Otherwise the finding says that a load looks the same, and is
//!     one to look at.
//!
//! Not here: growth between marks (`findings.rs`), rounds (`passes/phases.rs`).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::block::INHERITED;
use crate::ledger::Ledger;
use crate::model::{
    Confidence, Finding, FindingKind, GREW_ONCE, GREW_UNBROKEN, RELEASED_IN_THE_END, Report, Site,
};
use crate::passes::wording::{bytes, count, duration, thousands};

/// The number of slices of the run.
const SLICES: usize = 8;
/// The fewest blocks of a stack: with fewer, a slice has a handful by chance.
const MIN_BLOCKS: u64 = 64;
/// The fewest acquisitions of a run that can be cut into slices.
const MIN_ALLOCATIONS: u64 = 1024;
/// A stack must hold one part in this many of the bytes that live at the end, and at least `WORTH_BYTES`.
const PART: u64 = 100;
const WORTH_BYTES: u64 = 64 << 10;

/// The shortest time after growth that tells something: a process takes some hundredths of a second to end.
const LASTING_US: u64 = 1_000_000;

const GROWS: &str = "Only grows, from the beginning of the run to its end";
const GROWS_LATER: &str = "Only grows, from start-up to the end of the run";
/// The first of these in a recording that did not begin with the process; its own start-up is not known.
const GROWS_SINCE: &str = "Only grows, from the beginning of the recording to its end";
const GREW: &str = "Only grew, until acquisitions ended";

/// When the blocks that live at a moment were born.
pub(crate) struct Births {
    /// The number of acquisitions until the moment, of these in start-up, and its time in microseconds; what lives
    /// then follows.
    allocations: u64,
    start_up: u64,
    time_us: u64,
    usable_bytes: u64,
    /// Births by site.
    sites: Vec<Born>,
}

/// The live blocks of one site.
#[derive(Clone, Copy, Default)]
struct Born {
    all: Part,
    /// Those of them that were born after start-up.
    later: Part,
}

/// Some of the live blocks of a site.
#[derive(Clone, Copy, Default)]
struct Part {
    usable_bytes: u64,
    by_serial: [u64; SLICES],
    by_time: [u64; SLICES],
}

impl Part {
    fn add(&mut self, usable_bytes: u64, serial: usize, time: usize) {
        self.usable_bytes += usable_bytes;
        self.by_serial[serial] += 1;
        self.by_time[time] += 1;
    }

    fn blocks(&self) -> u64 {
        self.by_serial.iter().sum()
    }

    /// Returns the bytes of so many of the blocks.
    fn bytes_of(&self, blocks: u64) -> u64 {
        let all = u128::from(self.usable_bytes) * u128::from(blocks);
        (all / u128::from(self.blocks().max(1))) as u64
    }
}

/// A stack that only grows: which of its blocks show it, and how many of these are no more than grew.
#[derive(Clone, Copy)]
struct Grown<'a> {
    part: &'a Part,
    blocks: u64,
    after_start_up: bool,
    /// Whether other work was done again and again meanwhile (O9).
    beside_work: bool,
}

/// The blocks born in each slice, and released by the moment.
#[derive(Clone, Copy)]
struct Released {
    all: [u64; SLICES],
    later: [u64; SLICES],
}

impl Released {
    fn of(births: &Births) -> Released {
        let less = |made: u64, of: fn(&Born) -> &Part| {
            let mut released = [made / SLICES as u64; SLICES];
            for part in births.sites.iter().map(of) {
                let slices = released.iter_mut().zip(&part.by_serial);
                slices.for_each(|(left, live)| *left = left.saturating_sub(*live));
            }
            released
        };
        Released {
            all: less(births.allocations, |born| &born.all),
            later: less(births.allocations.saturating_sub(births.start_up), |born| {
                &born.later
            }),
        }
    }
}

/// Reports whether work was done all along beside what a stack kept (O9).
fn is_beside_work(kept: &[u64; SLICES], released: &[u64; SLICES]) -> bool {
    let mut slices = kept.iter().zip(released);
    slices.all(|(kept, released)| released * 2 >= *kept)
}

impl Births {
    /// Counts the births of the blocks that live now.
    pub(crate) fn now(ledger: &Ledger) -> Births {
        let now_ns = ledger.now_ns();
        let start_up = ledger.curve.allocations_until(now_ns / SLICES as u64);
        Births::at(ledger, now_ns / 1000, start_up)
    }

    /// Counts the births of the blocks that live now, along the time until `now_us`, with so many acquisitions in
    /// start-up.
    fn at(ledger: &Ledger, now_us: u64, start_up: u64) -> Births {
        let allocations = ledger.counts().allocations;
        let cells = ledger.cells();
        let mut sites = vec![Born::default(); cells.sites().len()];
        let slice = |at: u64, of: u64| {
            let slice = u128::from(at) * SLICES as u128 / u128::from(of.max(1));
            (slice as usize).min(SLICES - 1)
        };
        // A block that the process inherited has no birth here.
        for block in ledger.live_blocks().filter(|one| !one.is_inherited()) {
            let born = &mut sites[cells.site_of(block.cell)];
            let usable = cells.keys()[block.cell.0 as usize].usable;
            let (serial, time) = (block.serial.into(), slice(block.born_us(), now_us));
            born.all.add(usable, slice(serial, allocations), time);
            if let Some(serial) = serial.checked_sub(start_up) {
                let serial = slice(serial, allocations.saturating_sub(start_up));
                born.later.add(usable, serial, time);
            }
        }
        Births {
            allocations,
            start_up,
            time_us: now_us,
            usable_bytes: ledger.live().usable_bytes,
            sites,
        }
    }
}

/// Finds the stacks that `told` does not have yet. `at` is the report's moment, and the most that has gone where the
/// program rests afterwards; `end_ns` is when the process ended, as far as it is known.
pub(crate) fn only_grow(
    report: &Report,
    ledger: &Ledger,
    (at, gone_bytes): (Option<&Births>, u64),
    end_ns: Option<u64>,
    told: &FxHashSet<u32>,
) -> Vec<Finding> {
    let allocations = ledger.counts().allocations;
    if !(MIN_ALLOCATIONS..=u64::from(u32::MAX)).contains(&allocations) {
        return Vec::new();
    }
    // The report's moment, if little comes after it (O4).
    let later = |one: &&Births| allocations.saturating_sub(one.allocations);
    let at = at.filter(|one| later(one) <= allocations / (2 * SLICES as u64));
    let label = report.instants.get(report.at).map(|one| &one.label);
    let end_ns = end_ns.unwrap_or(0).max(ledger.now_ns());
    let start_up = report.timeline.allocations_until(end_ns / SLICES as u64);
    let end = Births::at(ledger, end_ns / 1000, start_up);
    let of_end = even(ledger, &end);
    let (of_moment, when) = match (at, label) {
        (Some(at), Some(label)) => (even(ledger, at), format!("at '{label}'")),
        _ => Default::default(),
    };
    let began_late = ledger.covered().is_some();
    let still = |grown: &&Grown<'_>| gone_bytes <= grown.part.usable_bytes / 2;
    let rows = report.sites.iter();
    let rows = rows.filter(|row| row.node != INHERITED.0 && !told.contains(&row.node));
    rows.filter_map(|row| {
        let moment = of_moment.get(&row.node).filter(still);
        match moment {
            Some(grown) => {
                let found = finding(row, grown, &when, began_late);
                Some(at_the_moment(found, at, end.time_us))
            }
            None => {
                let grown = of_end.get(&row.node)?;
                Some(finding(row, grown, "at the end", began_late))
            }
        }
    })
    .collect()
}

/// Returns stacks whose blocks were born all along (O2, O5), or all along after start-up (O8).
fn even<'a>(ledger: &Ledger, births: &'a Births) -> FxHashMap<u32, Grown<'a>> {
    let least = (births.usable_bytes / PART).max(WORTH_BYTES);
    let released = Released::of(births);
    let grown = |born: &'a Born| {
        let of = |part: &'a Part, blocks, after_start_up, released| Grown {
            part,
            blocks,
            after_start_up,
            beside_work: is_beside_work(&part.by_serial, released),
        };
        let (all, later) = (&born.all, &born.later);
        let whole = (is_even(&all.by_serial) && goes_on(&all.by_time))
            .then(|| of(all, all.blocks(), false, &released.all));
        if whole.is_some_and(|grown| grown.beside_work) {
            return whole;
        }
        // A load at the start hides what grows beside work afterwards.
        let steady = steady(&later.by_serial).filter(|_| goes_on(&later.by_time));
        let after = steady.map(|blocks| of(later, blocks, true, &released.later));
        match whole {
            Some(_) => after.filter(|grown| grown.beside_work).or(whole),
            None => after,
        }
    };
    let sites = ledger.cells().sites().iter().zip(&births.sites);
    let even = sites.filter_map(|(site, born)| Some((site.node.0, grown(born)?)));
    even.filter(|(_, grown)| grown.part.bytes_of(grown.blocks) >= least)
        .collect()
}

/// Reports whether births are even along the acquisitions (O2).
fn is_even(births: &[u64; SLICES]) -> bool {
    let blocks: u64 = births.iter().sum();
    let share = |one: &u64| *one * SLICES as u64;
    blocks >= MIN_BLOCKS
        && births
            .iter()
            .all(|one| share(one) * 2 >= blocks && share(one) <= blocks * 2)
}

/// Returns how many blocks of a stack came steadily after start-up, if any did (O8): the rest of start-up, and what is
/// in use at the moment, are not among them.
fn steady(births: &[u64; SLICES]) -> Option<u64> {
    let (middle, many) = (&births[2..SLICES - 2], SLICES as u64 - 4);
    let of_middle: u64 = middle.iter().sum();
    let grown = of_middle * SLICES as u64 / many;
    let share = |one: &u64| *one * many;
    let lasting = births.iter().all(|one| share(one) * 2 >= of_middle);
    let even = middle.iter().all(|one| share(one) <= of_middle * 2);
    // What is replaced by chance becomes less with age, and what is never released does not.
    let pair = |at: usize| births[at] + births[at + 1];
    let level = pair(0) * 4 >= pair(4) * 3 && pair(2) * 5 >= pair(4) * 4;
    (grown >= MIN_BLOCKS && lasting && even && level).then_some(grown.min(births.iter().sum()))
}

/// Reports whether births go on along the time (O5).
fn goes_on(times: &[u64; SLICES]) -> bool {
    let of = |slices: &[u64]| slices.iter().sum::<u64>();
    of(&times[SLICES / 2..]) * 4 >= of(times) && of(&times[SLICES * 3 / 4..]) > 0
}

/// Formats a list: `56, 57 and 54`.
fn listed(slices: &[String]) -> String {
    match slices {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => slices.concat(),
    }
}

fn finding(row: &Site, grown: &Grown<'_>, when: &str, began_late: bool) -> Finding {
    let (part, blocks) = (grown.part, grown.part.blocks());
    let slices: Vec<String> = part.by_serial.iter().map(u64::to_string).collect();
    let (title, made, run) = match (grown.after_start_up, began_late) {
        (false, false) => (GROWS, "", "the run"),
        (false, true) => (GROWS_SINCE, "", "the recording"),
        (true, _) => (
            GROWS_LATER,
            " made after start-up",
            "what was acquired then",
        ),
    };
    let mut found = Finding {
        kind: FindingKind::Leak,
        // The title has no count: findings of one function and title are merged.
        title: title.to_owned(),
        what: format!(
            "{} of this stack{made} live {when} ({}), of {} made, and they were born all along: {} of them in one eighth of {run} after the other (by acquisitions). A cache or a queue would have young blocks only, and what is set up once has old ones only.",
            count(blocks, "block"),
            bytes(part.usable_bytes),
            count(row.allocations, "block"),
            listed(&slices),
        ),
        change: "Find what keeps these blocks. If they are what the program is there to collect, nothing; else \
                 release them, or give what holds them a limit in bytes."
            .to_owned(),
        now_bytes: row.live_usable_bytes.min(part.bytes_of(grown.blocks)),
        blocks: grown.blocks,
        confidence: Confidence::Likely,
        node: Some(row.node),
        ..Finding::default()
    };
    if grown.after_start_up && grown.blocks < blocks {
        found.what += &format!(
            " About {} of them are what grew; the others may be in use, or of start-up.",
            thousands(grown.blocks)
        );
    }
    if !grown.beside_work {
        found.title = GREW_UNBROKEN.to_owned();
        found.what += " Other work, whose blocks come and go, did not go on beside it all the time: a program that loads what it works on looks the same.";
        found.change = "Nothing, if the program loads them to work on them. If they come one by one with its work: find what \
                        keeps them, or give what holds them a limit in bytes."
            .to_owned();
        found.confidence = Confidence::Possible;
    }
    // Most of the stack's blocks were released until the end (O6).
    if row.end_blocks < blocks / 2 {
        found.title = RELEASED_IN_THE_END.to_owned();
        found.what += &format!(
            " Of all its blocks {} at the very end: the program released most of them before it ended.",
            match row.end_blocks {
                1 => "1 lives".to_owned(),
                many => format!("{many} live"),
            }
        );
        found.change = "Nothing, if the program needs all of them until then, or the run does nothing else than make \
                        them. In a program that runs for longer: see whether what holds them has a limit."
            .to_owned();
        found.confidence = Confidence::Possible;
    }
    found
}

/// Says of blocks of a moment long before the end that no more came (O7).
fn at_the_moment(mut found: Finding, at: Option<&Births>, end_us: u64) -> Finding {
    let Some(at) = at else { return found };
    let after_us = end_us.saturating_sub(at.time_us);
    if after_us >= end_us / 4 && [GROWS, GROWS_LATER, GROWS_SINCE].contains(&found.title.as_str()) {
        found.title = GREW.to_owned();
        found.what += &format!(
            " That was {} after the start; next to nothing was acquired in the {} that the run went on.",
            duration(at.time_us * 1000),
            duration(after_us * 1000)
        );
        if after_us >= at.time_us.max(LASTING_US) {
            found.change = "Nothing, if that was the program's start, or a load that it works on. If it was work: find \
                            what keeps these blocks, or give what holds them a limit in bytes."
                .to_owned();
            found.title = GREW_ONCE.to_owned();
            found.confidence = Confidence::Possible;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_in_the_second_half_goes_on_and_the_last_quarter_too() {
        assert!(goes_on(&[75, 0, 0, 0, 24, 0, 0, 1]));
        assert!(!goes_on(&[76, 0, 0, 0, 23, 0, 0, 1]));
        assert!(!goes_on(&[50, 0, 0, 0, 25, 25, 0, 0]), "it ended");
    }

    #[test]
    fn growth_that_ended_long_before_the_run_is_said_so() {
        let births = |time_us| Births {
            allocations: 0,
            start_up: 0,
            time_us,
            usable_bytes: 0,
            sites: Vec::new(),
        };
        let said = |title: &str, at_us: u64, end_us: u64| {
            let found = Finding {
                title: title.into(),
                ..Finding::default()
            };
            let found = at_the_moment(found, Some(&births(at_us)), end_us);
            (found.title, found.what)
        };
        for title in [GROWS, GROWS_SINCE] {
            assert_eq!(said(title, 751, 1000), (title.into(), String::new()));
            assert_eq!(said(title, 750, 1000).0, GREW);
            assert_eq!(said(title, 1_001_000, 2_000_000).0, GREW);
            assert_eq!(said(title, 1_000_000, 2_000_000).0, GREW_ONCE);
        }
        let sure = |at_us: u64, end_us: u64| {
            let found = Finding {
                title: GROWS.into(),
                confidence: Confidence::Likely,
                ..Finding::default()
            };
            at_the_moment(found, Some(&births(at_us)), end_us).confidence
        };
        const S: u64 = 1_000_000;
        assert_eq!(sure(S + 1, 2 * S), Confidence::Likely);
        assert_eq!(sure(S, 2 * S), Confidence::Possible);
        // The end of a process takes its time.
        assert_eq!(sure(S / 20, S), Confidence::Likely);
        let (title, what) = said(GROWS, 7_500_000, 10_000_000);
        assert_eq!(title, GREW);
        assert!(
            what.contains("7.5 s after the start") && what.contains("in the 2.5 s"),
            "{what}"
        );
        assert_eq!(said(RELEASED_IN_THE_END, 1, 1000).0, RELEASED_IN_THE_END);
    }

    #[test]
    fn each_eighth_has_from_half_to_twice_its_share() {
        assert!(is_even(&[50, 100, 100, 100, 100, 100, 100, 150]));
        assert!(is_even(&[200, 100, 100, 100, 100, 100, 50, 50]));
        assert!(!is_even(&[49, 100, 100, 100, 100, 100, 100, 151]));
        assert!(!is_even(&[201, 100, 100, 100, 99, 100, 50, 50]));
    }

    #[test]
    fn what_comes_steadily_after_start_up_is_counted_without_what_is_in_use() {
        assert_eq!(steady(&[100; 8]), Some(800));
        // The rest of start-up, and a working set.
        assert_eq!(
            steady(&[900, 300, 100, 100, 100, 100, 400, 5000]),
            Some(800)
        );
        assert_eq!(steady(&[75, 75, 100, 100, 100, 100, 50, 50]), Some(650));
        assert_eq!(
            steady(&[100, 100, 100, 100, 100, 100, 49, 100]),
            None,
            "it ended"
        );
        assert_eq!(
            steady(&[49, 100, 100, 100, 100, 100, 100, 100]),
            None,
            "old ones are gone"
        );
        assert_eq!(
            steady(&[74, 75, 100, 100, 100, 100, 100, 100]),
            None,
            "they become fewer"
        );
        assert_eq!(steady(&[100, 100, 49, 117, 117, 117, 100, 100]), None);
        assert_eq!(
            steady(&[100, 100, 100, 100, 126, 125, 100, 100]),
            None,
            "younger, and more"
        );
        assert_eq!(steady(&[100, 100, 100, 100, 125, 125, 100, 100]), Some(850));
        assert_eq!(steady(&[0, 0, 0, 0, 0, 0, 0, 5000]), None);
        assert_eq!((steady(&[8; 8]), steady(&[7; 8])), (Some(64), None));
    }

    #[test]
    fn slices_are_listed_in_words() {
        let said =
            |slices: &[&str]| listed(&slices.iter().map(|one| (*one).into()).collect::<Vec<_>>());
        assert_eq!(said(&["56", "57", "54"]), "56, 57 and 54");
        assert_eq!(said(&["56"]), "56");
        assert_eq!(said(&[]), "");
    }
}
