//! What the resident memory of the processes is: the rows of their books, and its level over time.
//!
//! ```text
//!   books of a scope ─► by part: byte-minutes          processes of a scope ─► by hour (or day): byte-minutes
//! ```
//!
//! K1  The parts add up to the resident memory of the scope: each process's books are closed.
//! K2  A bar of [`sql_over_time`] is as long as the longest row in it, at least: what was merged to days has no hours.
//!
//! Not here: what a part is (the report's chapter on books).

use anyhow::Result;

use super::Scope;
use crate::engine::Engine;

/// A row of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name: `live`, `slop`, `allocator-free`, `mapped-files` and the others of a report's books.
    pub name: String,
    /// Resident bytes, summed over the minutes.
    pub byte_min: i64,
}

/// Resident memory in an hour or a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its first second.
    pub t: i64,
    /// Resident bytes of all processes, summed over the minutes.
    pub byte_min: i64,
}

/// An hour and a day, in minutes.
const WIDTHS: [i64; 2] = [60, 24 * 60];

/// Returns the SQL of the parts.
pub fn sql(scope: &Scope) -> String {
    format!(
        "SELECT part, sum(byte_min) AS held FROM books WHERE {} GROUP BY part ORDER BY held DESC, part",
        scope.sql()
    )
}

/// Returns the SQL of bars of some minutes each.
pub fn sql_over_time(scope: &Scope, minutes: i64) -> String {
    let seconds = minutes * 60;
    format!(
        "SELECT t - t % {seconds} AS begin, sum(resident_byte_min) AS held, max(minutes) AS longest FROM processes \
         WHERE {} GROUP BY t - t % {seconds} ORDER BY begin",
        scope.sql()
    )
}

/// Asks for the parts, the largest first.
///
/// # Errors
/// Those of the engine.
pub fn ask(engine: &dyn Engine, scope: &Scope) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for row in engine.answer(&sql(scope))?.each() {
        parts.push(Part {
            name: row.text("part")?,
            byte_min: row.int("held")?,
        });
    }
    Ok(parts)
}

/// Asks for the level over time: the minutes of a bar, and the bars. Hours, if they are at most `most` and no row is longer
/// (K2); else days.
///
/// # Errors
/// Those of the engine.
pub fn over_time(engine: &dyn Engine, scope: &Scope, most: usize) -> Result<(i64, Vec<Bar>)> {
    let mut bars = Vec::new();
    for minutes in WIDTHS {
        bars.clear();
        let mut longest = 0;
        for row in engine.answer(&sql_over_time(scope, minutes))?.each() {
            longest = longest.max(row.int("longest")?);
            bars.push(Bar {
                t: row.int("begin")?,
                byte_min: row.int("held")?,
            });
        }
        if longest <= minutes && bars.len() <= most {
            return Ok((minutes, bars));
        }
    }
    Ok((WIDTHS[1], bars))
}
