//! Which stacks' blocks keep free memory resident.
//!
//! ```text
//!   profile_days with pinned bytes ─► by service, stack: pinned, in use, processes, machines
//! ```
//!
//! Not here: how a process knows (a report's fragments, a profile's pinned pages).

use anyhow::Result;
use serde_json::{Value as Json, json};

use super::{Period, Scope};
use crate::engine::Engine;
use crate::names::Names;

/// A row of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Pinned {
    /// The service.
    pub service: String,
    /// The stack.
    pub stack: i64,
    /// Its name.
    pub name: String,
    /// Free bytes that its blocks keep resident, summed over the minutes.
    pub pinned_byte_min: i64,
    /// Its bytes in use, summed over the minutes.
    pub live_byte_min: i64,
    /// Processes in which it pins.
    pub processes: i64,
    /// Machines on which it pins.
    pub hosts: i64,
}

/// Returns the SQL of the question.
pub fn sql(scope: &Scope, rows: usize) -> String {
    format!(
        "SELECT service, stack, sum(pinned_byte_min) AS pinned, sum(live_byte_min) AS live, count(DISTINCT CASE WHEN \
         pinned_byte_min > 0 THEN process END) AS processes, count(DISTINCT CASE WHEN pinned_byte_min > 0 THEN host END) \
         AS hosts FROM profile_days WHERE {} GROUP BY service, stack HAVING sum(pinned_byte_min) > 0 \
         ORDER BY pinned DESC, service, stack LIMIT {rows}",
        scope.sql()
    )
}

/// Asks.
///
/// # Errors
/// Those of the engine.
pub fn ask(engine: &dyn Engine, sql: &str) -> Result<Vec<Pinned>> {
    let mut rows = Vec::new();
    for row in engine.answer(sql)?.each() {
        rows.push(Pinned {
            service: row.text("service")?,
            stack: row.int("stack")?,
            name: String::new(),
            pinned_byte_min: row.int("pinned")?,
            live_byte_min: row.int("live")?,
            processes: row.int("processes")?,
            hosts: row.int("hosts")?,
        });
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.stack).collect();
    let names = Names::of_stacks(engine, &ids)?;
    rows.iter_mut()
        .for_each(|row| row.name = names.short(row.stack));
    Ok(rows)
}

impl Pinned {
    /// Returns the row as JSON.
    pub fn json(&self, period: &Period) -> Json {
        json!({
            "service": self.service,
            "stack": self.stack,
            "name": self.name,
            "pinned_bytes": period.mean(self.pinned_byte_min),
            "pinned_byte_min": self.pinned_byte_min,
            "live_byte_min": self.live_byte_min,
            "processes": self.processes,
            "hosts": self.hosts,
        })
    }
}
