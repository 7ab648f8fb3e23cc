//! What the findings would give back, if each was followed in every process that has it.
//!
//! ```text
//!   findings of a scope ─► by service, kind, stack: saved, now, processes, machines     books ─► kept free by allocators
//! ```
//!
//! W1  In one process no two findings promise the same byte (the analysis sees to that), so the sum is a promise, too. Of
//!     findings that are only `possible` it is an upper bound.
//! W2  A finding that saves nothing (a holder, a growth that may be meant) is no answer to this question.
//!
//! Not here: simulating other layouts; that needs the events (`skinflint what-if`).

use anyhow::Result;
use serde_json::{Value as Json, json};

use super::{Period, Scope};
use crate::engine::Engine;
use crate::names::Names;

/// A row of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The service.
    pub service: String,
    /// The kind of the finding.
    pub kind: String,
    /// The stack; 0 for the process as a whole.
    pub stack: i64,
    /// Its name.
    pub name: String,
    /// What is wrong, of one of the findings.
    pub title: String,
    /// What to change, of one of the findings.
    pub change: String,
    /// Bytes that would go back, summed over the minutes.
    pub saved_byte_min: i64,
    /// Bytes that it is about, summed over the minutes.
    pub now_byte_min: i64,
    /// Processes.
    pub processes: i64,
    /// Machines.
    pub hosts: i64,
}

/// Returns the SQL of the question.
pub fn sql(scope: &Scope, rows: usize) -> String {
    format!(
        "SELECT service, kind, stack, min(title) AS title, min(change) AS change, sum(saved_byte_min) AS saved, \
         sum(now_byte_min) AS now, count(DISTINCT process) AS processes, count(DISTINCT host) AS hosts FROM findings \
         WHERE {} GROUP BY service, kind, stack HAVING sum(saved_byte_min) > 0 ORDER BY saved DESC, service, kind, stack LIMIT {rows}",
        scope.sql()
    )
}

/// Returns the SQL of what all findings would give back.
pub fn sum_sql(scope: &Scope) -> String {
    format!(
        "SELECT sum(saved_byte_min) AS saved FROM findings WHERE {}",
        scope.sql()
    )
}

/// Returns the SQL of what allocators keep free.
pub fn kept_sql(scope: &Scope) -> String {
    format!(
        "SELECT sum(byte_min) AS kept FROM books WHERE part = 'allocator-free' AND {}",
        scope.sql()
    )
}

/// Asks.
///
/// # Errors
/// Those of the engine.
pub fn ask(engine: &dyn Engine, sql: &str) -> Result<Vec<Change>> {
    let mut rows = Vec::new();
    for row in engine.answer(sql)?.each() {
        rows.push(Change {
            service: row.text("service")?,
            kind: row.text("kind")?,
            stack: row.int("stack")?,
            name: String::new(),
            title: row.text("title")?,
            change: row.text("change")?,
            saved_byte_min: row.int("saved")?,
            now_byte_min: row.int("now")?,
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

impl Change {
    /// Returns the row as JSON.
    pub fn json(&self, period: &Period) -> Json {
        json!({
            "service": self.service,
            "kind": self.kind,
            "stack": self.stack,
            "name": self.name,
            "title": self.title,
            "change": self.change,
            "saved_bytes": period.mean(self.saved_byte_min),
            "saved_byte_min": self.saved_byte_min,
            "now_byte_min": self.now_byte_min,
            "processes": self.processes,
            "hosts": self.hosts,
        })
    }
}
