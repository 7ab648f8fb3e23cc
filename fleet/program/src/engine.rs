//! What answers SQL over the tables, whatever it is.
//!
//! ```text
//!   questions ─► Engine::answer(sql) ─► Answer        DataFusion in this process (embedded.rs), Ballista (ballista.rs)
//! ```
//!
//! E1  Questions know an engine by [`Engine`] alone: SQL in, rows out.
//! E2  SQL that is asked may only read: no statement makes, fills or drops anything.
//!
//! Not here: which engine is taken (engines.rs), what is asked (questions/).

use anyhow::Result;

use crate::rows::Answer;

/// What answers SQL over the tables (E1).
pub trait Engine {
    /// Answers one statement.
    ///
    /// # Errors
    /// If it is no SQL, names what is not there, or does more than read (E2).
    fn answer(&self, sql: &str) -> Result<Answer>;
}
