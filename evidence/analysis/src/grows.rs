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
//!     that the growth had ended by then, and when.
//! O5  They were also born along the time: a quarter in its second half, and some in its last quarter. What a program
//!     acquires in one burst, to work on it until the end, is all that it acquires. The run ends when the process does,
//!     not at its last heap event.
//!
//! Not here: growth between marks (`findings.rs`), rounds (`passes/phases.rs`).

use rustc_hash::{FxHashMap, FxHashSet};

use crate::block::INHERITED;
use crate::ledger::Ledger;
use crate::model::{Confidence, Finding, FindingKind, RELEASED_IN_THE_END, Report, Site};
use crate::passes::wording::{bytes, count, duration};

/// The number of slices of the run.
const SLICES: usize = 8;
/// The fewest blocks of a stack: with fewer, a slice has a handful by chance.
const MIN_BLOCKS: u64 = 64;
/// The fewest acquisitions of a run that can be cut into slices.
const MIN_ALLOCATIONS: u64 = 1024;
/// A stack must hold one part in this many of the bytes that live at the end, and at least `WORTH_BYTES`.
const PART: u64 = 100;
const WORTH_BYTES: u64 = 64 << 10;

const GROWS: &str = "Only grows, from the beginning of the run to its end";
/// The same in a recording that did not begin with the process.
const GROWS_SINCE: &str = "Only grows, from the beginning of the recording to its end";
const GREW: &str = "Only grew, until acquisitions ended";

/// When the blocks that live at a moment were born.
pub(crate) struct Births {
    /// The number of acquisitions until the moment, and its time in microseconds; what lives then follows.
    allocations: u64,
    time_us: u64,
    usable_bytes: u64,
    /// Births by site.
    sites: Vec<Born>,
}

/// The live blocks of one site.
#[derive(Clone, Copy, Default)]
struct Born {
    usable_bytes: u64,
    by_serial: [u64; SLICES],
    by_time: [u64; SLICES],
}

impl Births {
    /// Counts the births of the blocks that live now.
    pub(crate) fn now(ledger: &Ledger) -> Births {
        Births::at(ledger, ledger.now_ns() / 1000)
    }

    /// Counts the births of the blocks that live now, along the time until `now_us`.
    fn at(ledger: &Ledger, now_us: u64) -> Births {
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
            born.usable_bytes += cells.keys()[block.cell.0 as usize].usable;
            born.by_serial[slice(block.serial.into(), allocations)] += 1;
            born.by_time[slice(block.born_us(), now_us)] += 1;
        }
        Births {
            allocations,
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
    let end = Births::at(ledger, end_ns / 1000);
    let of_end = even(ledger, &end);
    let (of_moment, when) = match (at, label) {
        (Some(at), Some(label)) => (even(ledger, at), format!("at '{label}'")),
        _ => Default::default(),
    };
    let began_late = ledger.covered().is_some();
    let still = |born: &&&Born| gone_bytes <= born.usable_bytes / 2;
    let rows = report.sites.iter();
    let rows = rows.filter(|row| row.node != INHERITED.0 && !told.contains(&row.node));
    rows.filter_map(|row| {
        let moment = of_moment.get(&row.node).filter(still);
        match moment {
            Some(born) => {
                let found = finding(row, born, &when, began_late);
                Some(at_the_moment(found, at, end.time_us))
            }
            None => {
                let born = of_end.get(&row.node)?;
                Some(finding(row, born, "at the end", began_late))
            }
        }
    })
    .collect()
}

/// Returns stacks whose blocks were born all along (O2, O5).
fn even<'a>(ledger: &Ledger, births: &'a Births) -> FxHashMap<u32, &'a Born> {
    let least = (births.usable_bytes / PART).max(WORTH_BYTES);
    let sites = ledger.cells().sites().iter().zip(&births.sites);
    let even = sites.filter(|(_, born)| {
        born.usable_bytes >= least && is_even(&born.by_serial) && goes_on(&born.by_time)
    });
    even.map(|(site, born)| (site.node.0, born)).collect()
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

fn finding(row: &Site, born: &Born, when: &str, began_late: bool) -> Finding {
    let (title, run) = match began_late {
        true => (GROWS_SINCE, "recording"),
        false => (GROWS, "run"),
    };
    let blocks: u64 = born.by_serial.iter().sum();
    let slices: Vec<String> = born.by_serial.iter().map(u64::to_string).collect();
    let mut found = Finding {
        kind: FindingKind::Leak,
        // The title has no count: findings of one function and title are merged.
        title: title.to_owned(),
        what: format!(
            "{} of this stack live {when} ({}), of {} made, and they were born all along: {} of them in one eighth of the {run} after the other (by acquisitions). A cache or a queue would have young blocks only, and what is set up once has old ones only.",
            count(blocks, "block"),
            bytes(born.usable_bytes),
            count(row.allocations, "block"),
            listed(&slices),
        ),
        change: "Find what keeps these blocks. If they are what the program is there to collect, nothing; else \
                 release them, or give what holds them a limit in bytes."
            .to_owned(),
        now_bytes: row.live_usable_bytes.min(born.usable_bytes),
        blocks,
        confidence: Confidence::Likely,
        node: Some(row.node),
        ..Finding::default()
    };
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
    if after_us >= end_us / 4 && [GROWS, GROWS_SINCE].contains(&found.title.as_str()) {
        found.title = GREW.to_owned();
        found.what += &format!(
            " That was {} after the start; next to nothing was acquired in the {} that the run went on.",
            duration(at.time_us * 1000),
            duration(after_us * 1000)
        );
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
        }
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
    fn slices_are_listed_in_words() {
        let said =
            |slices: &[&str]| listed(&slices.iter().map(|one| (*one).into()).collect::<Vec<_>>());
        assert_eq!(said(&["56", "57", "54"]), "56, 57 and 54");
        assert_eq!(said(&["56"]), "56");
        assert_eq!(said(&[]), "");
    }
}
