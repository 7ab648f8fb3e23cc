//! Which stacks, functions, services, builds or machines hold most.
//!
//! ```text
//!   profile_days of a scope ─► by key: byte-minutes in use, variance, pinned, slop, flow ─► mean ± half of an interval
//! ```
//!
//! T1  By function, a stack counts once for each function that is on it, however often: figures of functions do not add
//!     up, all others do.
//!
//! T2  With a condition, rows are those of `profiles` only if it names a column that a whole day has not; else its sums.
//!
//! Not here: whose fault it is.

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value as Json, json};
use skinflint_fleet_tables::rows::Profile;
use skinflint_fleet_tables::schema::Row;

use super::{Period, Scope};
use crate::engine::Engine;
use crate::names::Names;

/// What rows are added up by.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Stacks of a service.
    Stack,
    /// Functions, with all that they call.
    Function,
    /// Services.
    Service,
    /// Builds of a service.
    Build,
    /// Machines.
    Host,
}

/// A row of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// The service, where rows are of one.
    pub service: String,
    /// The stack or frame, where rows are of one.
    pub id: i64,
    /// The name.
    pub name: String,
    /// Bytes in use, summed over the minutes.
    pub live_byte_min: i64,
    /// Its variance, KiB², summed over the minutes.
    pub live_var_min: i64,
    /// Pinned free bytes, summed over the minutes.
    pub pinned_byte_min: i64,
    /// Slop, summed over the minutes.
    pub slop_byte_min: i64,
    /// Bytes given in all.
    pub alloc_bytes: i64,
    /// Samples.
    pub samples: i64,
    /// Processes.
    pub processes: i64,
}

/// Columns of `profiles` of which a row of `profile_days` has one value; day and service are folders of both.
const OF_A_DAY: [&str; 4] = ["host", "process", "build", "stack"];

impl By {
    /// Columns of the key, and the one by which equal rows are put in order.
    fn key(self) -> (&'static str, &'static str) {
        match self {
            By::Stack => ("p.service AS service, p.stack AS id", "p.service, p.stack"),
            By::Function => ("f.frame AS id", "f.frame"),
            By::Service => ("p.service AS service", "p.service"),
            By::Build => (
                "p.service AS service, p.build AS name",
                "p.service, p.build",
            ),
            By::Host => ("p.host AS name", "p.host"),
        }
    }
}

/// Returns the SQL of the question.
pub fn sql(scope: &Scope, by: By, rows: usize, condition: Option<&str>) -> String {
    let (columns, group) = by.key();
    let join = match by {
        By::Function => {
            " JOIN (SELECT DISTINCT stack, frame FROM (SELECT stack, unnest(frames) AS frame FROM stacks) u) f ON \
             f.stack = p.stack"
        }
        _ => "",
    };
    let table = if condition.is_some_and(is_of_minutes) {
        "profiles"
    } else {
        "profile_days"
    };
    let condition = condition.map_or(String::new(), |condition| format!(" AND ({condition})"));
    format!(
        "SELECT {columns}, sum(p.live_byte_min) AS live, sum(p.live_var_min) AS variance, sum(p.pinned_byte_min) AS \
         pinned, sum(p.slop_byte_min) AS slop, sum(p.alloc_bytes) AS alloc, sum(p.samples) AS samples, \
         count(DISTINCT p.process) AS processes FROM (SELECT * FROM {table} WHERE {}{condition}) p{join} GROUP BY \
         {group} ORDER BY live DESC, {group} LIMIT {rows}",
        scope.sql()
    )
}

/// Whether a condition is about what only the rows of minutes have: a column of `profiles` that is not of a whole day. A
/// word of that name anywhere outside of a text counts.
fn is_of_minutes(condition: &str) -> bool {
    let outside = condition.split('\'').step_by(2);
    let mut words =
        outside.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let columns = Profile::TABLE.columns;
    words.any(|word| {
        let is = |name: &&str| word.eq_ignore_ascii_case(name);
        let mut names = columns.iter().map(|column| column.name);
        names.any(|name| is(&name) && !OF_A_DAY.contains(&name))
    })
}

/// Asks.
///
/// # Errors
/// Those of the engine.
pub fn ask(engine: &dyn Engine, sql: &str, by: By) -> Result<Vec<Top>> {
    let answer = engine.answer(sql)?;
    let mut rows = Vec::new();
    for row in answer.each() {
        let (has_service, has_id, has_name) = match by {
            By::Stack => (true, true, false),
            By::Function => (false, true, false),
            By::Service => (true, false, false),
            By::Build => (true, false, true),
            By::Host => (false, false, true),
        };
        let text = |has: bool, name: &str| {
            if has {
                row.text(name)
            } else {
                Ok(String::new())
            }
        };
        rows.push(Top {
            service: text(has_service, "service")?,
            id: if has_id { row.int("id")? } else { 0 },
            name: text(has_name, "name")?,
            live_byte_min: row.int("live")?,
            live_var_min: row.int("variance")?,
            pinned_byte_min: row.int("pinned")?,
            slop_byte_min: row.int("slop")?,
            alloc_bytes: row.int("alloc")?,
            samples: row.int("samples")?,
            processes: row.int("processes")?,
        });
    }
    name(engine, by, &mut rows)?;
    Ok(rows)
}

fn name(engine: &dyn Engine, by: By, rows: &mut [Top]) -> Result<()> {
    let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
    match by {
        By::Stack => {
            let names = Names::of_stacks(engine, &ids)?;
            rows.iter_mut()
                .for_each(|row| row.name = names.short(row.id));
        }
        By::Function => {
            let names = Names::of_frames(engine, &ids)?;
            rows.iter_mut()
                .for_each(|row| row.name = names.function(row.id));
        }
        By::Service => rows
            .iter_mut()
            .for_each(|row| row.name.clone_from(&row.service)),
        By::Build | By::Host => {}
    }
    Ok(())
}

impl Top {
    /// Returns the row as JSON.
    pub fn json(&self, period: &Period) -> Json {
        json!({
            "service": self.service,
            "id": self.id,
            "name": self.name,
            "live_bytes": period.mean(self.live_byte_min),
            "half_bytes": period.half(self.live_var_min),
            "live_byte_min": self.live_byte_min,
            "live_var_min": self.live_var_min,
            "pinned_byte_min": self.pinned_byte_min,
            "slop_byte_min": self.slop_byte_min,
            "alloc_bytes": self.alloc_bytes,
            "samples": self.samples,
            "processes": self.processes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_reads_minutes_only_if_it_is_about_them() {
        for (condition, is) in [
            ("build = '42' AND host > 'm1' AND service = 't'", false),
            (
                "process % 2 = 0 OR day = '2026-01-01' AND stack <> -5",
                false,
            ),
            ("t >= 1767225600", true),
            ("p.T < 5", true),
            ("\"live_bytes\">0", true),
            ("build = 'it''s t' AND host = 'minutes'", false),
            ("build = 'it''s' AND minutes=60", true),
        ] {
            assert_eq!(is_of_minutes(condition), is, "{condition}");
        }
        for column in Profile::TABLE.columns {
            let is = !OF_A_DAY.contains(&column.name);
            assert_eq!(is_of_minutes(column.name), is, "{}", column.name);
        }
    }
}
