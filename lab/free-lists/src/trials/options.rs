//! Options of trials: what is tried, and how.
//!
//! Not here: which traces (`source`).

use anyhow::{Result, bail};

use crate::replay::Plan;
use crate::space::{Compaction, Settings, SweepOrder};
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
    /// The order in which pages are swept.
    pub sweep_order: SweepOrder,
    /// Bytes of a nursery before the trace; `None`: the trace as it is.
    pub nursery_bytes: Option<u64>,
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

    /// Describes what decides the figures, besides the trace: results compare where this is the same.
    pub(crate) fn words(&self) -> String {
        let mut words = format!(
            "growth {}, compact {}",
            self.growth,
            word(self.compaction())
        );
        words += match self.purge {
            true => ", purged",
            false => "",
        };
        words += match self.sweep_order {
            SweepOrder::Emptiest => "",
            SweepOrder::Address => ", swept by address",
        };
        if let Some(bytes) = self.nursery_bytes {
            words += &format!(", nursery of {bytes} bytes");
        }
        words
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan {
            growth: self.growth,
            check: self.check,
            settings: Settings {
                compaction: self.compaction(),
                purge: self.purge,
                sweep_order: self.sweep_order,
                limit_bytes: self.limit_bytes,
                ..Settings::default()
            },
            ..Plan::default()
        }
    }
}

/// Returns the word that the command line has for it.
pub(crate) fn word(compaction: Compaction) -> &'static str {
    match compaction {
        Compaction::Never => "never",
        Compaction::Sparse => "sparse",
        Compaction::Always => "always",
    }
}

/// Returns the policies of a list of names; `studied` and `all` are several. The reference comes first, whether it is in
/// the list or not.
///
/// # Errors
/// A name is none; the error has all there are.
pub fn policies(names: &[String], reference: Option<&str>) -> Result<Vec<Strategy>> {
    let mut chosen: Vec<Strategy> = Vec::new();
    let mut add = |strategy: Strategy| {
        if chosen.iter().all(|known| known.name != strategy.name) {
            chosen.push(strategy);
        }
    };
    // traces.G1.
    if let Some(name) = reference {
        let Some(strategy) = Strategy::by_name(name) else {
            let known: Vec<&str> = Strategy::all().iter().map(|s| s.name).collect();
            bail!(
                "--ref {name}: there is no such policy; there are {}",
                known.join(", ")
            );
        };
        add(strategy);
    }
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
                        "--with: there is no `{name}`; there are studied, all, {}",
                        known.join(", ")
                    );
                }
            },
        }
    }
    Ok(chosen)
}
