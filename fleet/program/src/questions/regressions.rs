//! What a build changed: for each stack, the mean of its processes under one build and under the other.
//!
//! ```text
//!   profile_days ─► per process: mean in use, mean pinned ─► per build: count, sum, sum of squares ─► Welch ─► interval
//!   processes ─► how many there are, those without the stack included ─┘
//! ```
//!
//! Z1  The interval comes from the spread between processes, which has the error of sampling in it.
//! Z2  A process without a row of a stack holds nothing there: it counts as 0.
//! Z3  Many stacks are compared. A row is listed if its difference is beyond 0 by an interval that holds for all
//!     comparisons of the question together, 19 times of 20 (Bonferroni's); the interval that is shown is the row's own.
//! Z4  Rows are in the order of the least that the difference can be, in bytes, by the wide interval.
//!
//! Not here: whether load was the same: the two builds' processes are to be alike in all else.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Value as Json, json};

use super::{Scope, quoted};
use crate::certainty::{Difference, Group};
use crate::engine::Engine;
use crate::names::Names;
use crate::show::bytes;

/// The fewest processes of a build that can be compared.
pub const FEWEST: f64 = 5.0;
/// The chance with which an interval misses.
const MISS: f64 = 0.05;

/// What a row of the answer is shown as: the name of each cell, and whether it is a number.
pub const COLUMNS: [(&str, bool); 8] = [
    ("more", true),
    ("±", true),
    ("from", true),
    ("to", true),
    ("grows an hour", true),
    ("what", false),
    ("service", false),
    ("stack", false),
];

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Figure {
    /// Bytes in use.
    Live,
    /// Free bytes that are kept resident.
    Pinned,
}

/// A row of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Regression {
    /// The service.
    pub service: String,
    /// The stack.
    pub stack: i64,
    /// Its name.
    pub name: String,
    /// What grew.
    pub figure: Figure,
    /// Bytes of a process under both builds, and the error of their difference.
    pub difference: Difference,
    /// Half of the difference's own interval, bytes.
    pub half: f64,
    /// The least that the difference can be, by the wide interval (Z4), bytes.
    pub least: f64,
    /// Growth of a process under the newer build, bytes an hour: born less died.
    pub growth: f64,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Regressions {
    /// The rows.
    pub rows: Vec<Regression>,
    /// Comparisons that were made.
    pub comparisons: usize,
    /// Services with too few processes of a build.
    pub left_out: Vec<String>,
}

/// Returns the SQL of how many processes each build of each service has.
pub fn count_sql(scope: &Scope, from: &str, to: &str) -> String {
    format!(
        "SELECT service, build, count(*) AS processes FROM (SELECT DISTINCT service, build, process FROM processes WHERE \
         {} AND build IN ({}, {})) d GROUP BY service, build ORDER BY service, build",
        scope.sql(),
        quoted(from),
        quoted(to)
    )
}

/// Returns the SQL of sums and sums of squares over the processes of a build.
pub fn sql(scope: &Scope, from: &str, to: &str) -> String {
    let scope = scope.sql();
    let builds = format!("build IN ({}, {})", quoted(from), quoted(to));
    format!(
        "SELECT x.service AS service, x.stack AS stack, x.build AS build, sum(x.live / m.minutes) AS live, \
         sum((x.live / m.minutes) * (x.live / m.minutes)) AS live2, sum(x.pinned / m.minutes) AS pinned, \
         sum((x.pinned / m.minutes) * (x.pinned / m.minutes)) AS pinned2, sum(x.grown * 60.0 / m.minutes) AS grown \
         FROM (SELECT service, stack, build, process, CAST(sum(live_byte_min) AS DOUBLE) AS live, \
         CAST(sum(pinned_byte_min) AS DOUBLE) AS pinned, CAST(sum(born_bytes - died_bytes) AS DOUBLE) AS grown FROM \
         profile_days WHERE {scope} AND {builds} GROUP BY service, stack, build, process) x JOIN (SELECT service, process, \
         CAST(sum(minutes) AS DOUBLE) AS minutes FROM processes WHERE {scope} AND {builds} GROUP BY service, process) m \
         ON m.service = x.service AND m.process = x.process GROUP BY x.service, x.stack, x.build \
         ORDER BY service, stack, build"
    )
}

/// Sums of one build of a stack.
#[derive(Clone, Copy, Default)]
struct Sums {
    live: (f64, f64),
    pinned: (f64, f64),
    grown: f64,
}

/// Asks.
///
/// # Errors
/// If no service has processes of both builds, and those of the engine.
pub fn ask(
    engine: &dyn Engine,
    scope: &Scope,
    from: &str,
    to: &str,
    rows: usize,
) -> Result<Regressions> {
    let mut counts: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for row in engine.answer(&count_sql(scope, from, to))?.each() {
        let which = usize::from(row.text("build")? == to);
        counts.entry(row.text("service")?).or_default()[which] = row.int("processes")? as f64;
    }
    if !counts
        .values()
        .any(|counts| counts.iter().all(|count| *count > 0.0))
    {
        bail!(
            "no service has processes of both `{from}` and `{to}` on {}",
            scope.words()
        );
    }
    let mut sums: BTreeMap<(String, i64), [Sums; 2]> = BTreeMap::new();
    for row in engine.answer(&sql(scope, from, to))?.each() {
        let which = usize::from(row.text("build")? == to);
        sums.entry((row.text("service")?, row.int("stack")?))
            .or_default()[which] = Sums {
            live: (row.real("live")?, row.real("live2")?),
            pinned: (row.real("pinned")?, row.real("pinned2")?),
            grown: row.real("grown")?,
        };
    }
    let enough = |service: &String| counts[service].iter().all(|count| *count >= FEWEST);
    let left_out = counts
        .keys()
        .filter(|service| !enough(service))
        .cloned()
        .collect();
    sums.retain(|(service, _), _| counts.contains_key(service) && enough(service));
    let mut found = judge(&sums, &counts);
    found.truncate(rows);
    let ids: Vec<i64> = found.iter().map(|row| row.stack).collect();
    let names = Names::of_stacks(engine, &ids)?;
    found
        .iter_mut()
        .for_each(|row| row.name = names.short(row.stack));
    Ok(Regressions {
        rows: found,
        comparisons: sums.len() * 2,
        left_out,
    })
}

/// Lists what grew for certain (Z3), in order (Z4).
fn judge(
    sums: &BTreeMap<(String, i64), [Sums; 2]>,
    counts: &BTreeMap<String, [f64; 2]>,
) -> Vec<Regression> {
    let wide = MISS / (sums.len() * 2).max(1) as f64;
    let mut found = Vec::new();
    for ((service, stack), of_builds) in sums {
        for figure in [Figure::Live, Figure::Pinned] {
            let group = |which: usize| {
                let (sum, squares) = match figure {
                    Figure::Live => of_builds[which].live,
                    Figure::Pinned => of_builds[which].pinned,
                };
                Group {
                    count: counts[service][which],
                    sum,
                    squares,
                }
            };
            let difference = Difference::of(group(0), group(1));
            let least = difference.change() - difference.half(wide);
            // Below a byte, it is what rounding left.
            if least >= 1.0 {
                found.push(Regression {
                    service: service.clone(),
                    stack: *stack,
                    name: String::new(),
                    figure,
                    half: difference.half(MISS),
                    difference,
                    least,
                    growth: of_builds[1].grown / counts[service][1],
                });
            }
        }
    }
    found.sort_by(|a, b| {
        let names = || (&a.service, a.stack, a.figure).cmp(&(&b.service, b.stack, b.figure));
        b.least.total_cmp(&a.least).then_with(names)
    });
    found
}

impl Regression {
    /// Returns the row's cells below [`COLUMNS`].
    pub fn cells(&self) -> Vec<String> {
        vec![
            bytes(self.difference.change()),
            bytes(self.half),
            bytes(self.difference.from),
            bytes(self.difference.to),
            bytes(self.growth),
            self.figure.word().to_owned(),
            self.service.clone(),
            self.name.clone(),
        ]
    }

    /// Returns the row as JSON.
    pub fn json(&self) -> Json {
        json!({
            "service": self.service,
            "stack": self.stack,
            "name": self.name,
            "figure": self.figure.word(),
            "from_bytes": self.difference.from,
            "to_bytes": self.difference.to,
            "change_bytes": self.difference.change(),
            "half_bytes": self.half,
            "least_bytes": self.least,
            "growth_bytes_per_hour": self.growth,
        })
    }
}

impl Figure {
    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            Figure::Live => "in use",
            Figure::Pinned => "pinned",
        }
    }
}
