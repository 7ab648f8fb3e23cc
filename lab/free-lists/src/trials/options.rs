//! Options of trials: what is tried, and how.
//!
//! Not here: which traces (`source`).

use anyhow::{Result, bail};

use crate::replay::Plan;
use crate::space::{Compaction, Settings};
use crate::strategy::Strategy;

/// How policies are tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// A collection comes each time the objects have grown to this many times what lived after the last one.
    pub growth: f64,
    /// Most bytes of pages.
    pub limit_bytes: usize,
    /// Which pages are evacuated; `None`: not said, which is V8's way on a trace.
    pub compaction: Option<Compaction>,
    /// Whether kernel pages within free blocks are given back.
    pub purge: bool,
    /// Number of rounds; times are their medians.
    pub rounds: u32,
    /// Objects of a trace that are run, at most; `None`: not said.
    pub max_objects: Option<u64>,
    /// Whether instructions are counted, too.
    pub instructions: bool,
    /// Whether every invariant is asserted after each collection.
    pub check: bool,
}

impl Options {
    pub(crate) fn compaction(&self) -> Compaction {
        self.compaction.unwrap_or(Compaction::Sparse)
    }

    pub(crate) fn max_objects(&self) -> u64 {
        self.max_objects.unwrap_or(20_000_000)
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan {
            growth: self.growth,
            check: self.check,
            settings: Settings {
                compaction: self.compaction(),
                purge: self.purge,
                limit_bytes: self.limit_bytes,
                ..Settings::default()
            },
            ..Plan::default()
        }
    }
}

/// Returns the policies of a list of names; `studied` and `all` are several. Legacy comes first, whether it was named
/// or not, unless `alone` is set.
///
/// # Errors
/// A name is none; the error has all there are.
pub fn policies(names: &[String], alone: bool) -> Result<Vec<Strategy>> {
    let mut chosen: Vec<Strategy> = Vec::new();
    let mut add = |strategy: Strategy| {
        if chosen.iter().all(|known| known.name != strategy.name) {
            chosen.push(strategy);
        }
    };
    // traces.G1.
    Strategy::by_name("legacy")
        .filter(|_| !alone)
        .into_iter()
        .for_each(&mut add);
    for name in names {
        match name.trim() {
            // The map space is only for objects of one size.
            "all" => Strategy::all()
                .iter()
                .filter(|s| s.name != "map-space")
                .copied()
                .for_each(&mut add),
            "studied" => {
                Strategy::all()
                    .iter()
                    .filter(|s| s.studied)
                    .copied()
                    .for_each(&mut add);
                Strategy::by_name("tight").into_iter().for_each(&mut add);
            }
            name => match Strategy::by_name(name) {
                Some(strategy) => add(strategy),
                None => {
                    let known: Vec<&str> = Strategy::all().iter().map(|s| s.name).collect();
                    bail!(
                        "--policies: there is no `{name}`; there are studied, all, {}",
                        known.join(", ")
                    );
                }
            },
        }
    }
    Ok(chosen)
}
