//! What there is to be asked about: days, services, builds.
//!
//! ```text
//!   processes ─► days, services of a day          builds ─► the newest first
//! ```
//!
//! Not here: figures.

use anyhow::Result;

use super::{Scope, quoted};
use crate::engine::Engine;

fn texts(engine: &dyn Engine, sql: &str, column: &str) -> Result<Vec<String>> {
    let answer = engine.answer(sql)?;
    answer.each().map(|row| row.text(column)).collect()
}

/// Returns the days, the last first, at most `most`.
///
/// # Errors
/// Those of the engine.
pub fn days(engine: &dyn Engine, most: usize) -> Result<Vec<String>> {
    let sql = format!("SELECT day FROM processes GROUP BY day ORDER BY day DESC LIMIT {most}");
    texts(engine, &sql, "day")
}

/// Returns the services of a scope's days, at most `most`.
///
/// # Errors
/// Those of the engine.
pub fn services(engine: &dyn Engine, scope: &Scope, most: usize) -> Result<Vec<String>> {
    let all = Scope {
        service: None,
        ..scope.clone()
    };
    let sql = format!(
        "SELECT service FROM processes WHERE {} GROUP BY service ORDER BY service LIMIT {most}",
        all.sql()
    );
    texts(engine, &sql, "service")
}

/// Returns the builds of a service, or of all, the newest first, at most `most`.
///
/// # Errors
/// Those of the engine.
pub fn builds(engine: &dyn Engine, service: Option<&str>, most: usize) -> Result<Vec<String>> {
    let condition = match service {
        Some(service) => format!("service = {}", quoted(service)),
        None => "1 = 1".to_owned(),
    };
    let sql = format!(
        "SELECT build, min(first_t) AS first FROM builds WHERE {condition} GROUP BY build ORDER BY first DESC, build DESC \
         LIMIT {most}"
    );
    texts(engine, &sql, "build")
}
