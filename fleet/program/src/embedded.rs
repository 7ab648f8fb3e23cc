//! DataFusion in this process.
//!
//! ```text
//!   Root ─► tables ─► session, its memory bounded ─► answers
//! ```
//!
//! M1  Memory is bounded: what does not fit is spilled to disk, or the question fails with a line that says so.
//!
//! Not here: what a session is (session.rs).

use anyhow::Result;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use skinflint_fleet_tables::files::Root;
use tokio::runtime::Builder;

use crate::engine::Engine;
use crate::rows::Answer;
use crate::session::Session;

/// DataFusion, in this process.
pub struct Embedded(Session);

impl Embedded {
    /// Opens the tables. `memory`: bytes that a question may hold (M1).
    ///
    /// # Errors
    /// If a table cannot be made known.
    pub fn open(root: &Root, memory: usize) -> Result<Self> {
        let environment = RuntimeEnvBuilder::new()
            .with_memory_limit(memory, 1.0)
            .build_arc()?;
        let config = SessionConfig::new().with_information_schema(true);
        let context = SessionContext::new_with_config_rt(config, environment);
        let runtime = Builder::new_multi_thread().build()?;
        Ok(Embedded(Session::open(runtime, context, root)?))
    }
}

impl Engine for Embedded {
    fn answer(&self, sql: &str) -> Result<Answer> {
        self.0.collect(self.0.plan(sql)?)
    }
}
