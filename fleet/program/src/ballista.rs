//! Ballista: a scheduler and executors on other machines answer, by the same statements.
//!
//! ```text
//!   Root ─► session: plans ─► scheduler at HOST:PORT ─► executors, each its part of the files ─► rows
//! ```
//!
//! B1  The tables are where this process, the scheduler and the executors see them under the same path.
//! B2  An executor that is lost in mid-query costs its part: the scheduler gives that to another one. If rows of an answer
//!     are lost with it, the question is asked again, [`ASKS`] times in all; to ask changes nothing.
//!
//! Not here: the scheduler and the executors (fleet/cluster).

use anyhow::{Context, Result, bail};
use ballista::prelude::{SessionConfigExt, SessionContextExt};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use skinflint_fleet_tables::files::Root;
use tokio::runtime::Builder;

use crate::engine::Engine;
use crate::rows::Answer;
use crate::session::Session;

/// How often one question is asked before its error is shown (B2).
const ASKS: usize = 3;

/// Stack of a thread: plans are walked by recursion.
const STACK_BYTES: usize = 16 * 1024 * 1024;

/// Ballista, elsewhere.
pub struct Ballista {
    session: Session,
    address: String,
}

impl Ballista {
    /// Makes the tables known for questions to the scheduler at `address`, HOST:PORT. It is not yet asked anything.
    ///
    /// # Errors
    /// If that is no address, or a table cannot be made known.
    pub fn open(root: &Root, address: &str) -> Result<Self> {
        let port = address
            .rsplit_once(':')
            .filter(|(host, _)| !host.is_empty());
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            bail!("`ballista://{address}`: wanted is ballista://HOST:PORT");
        }
        let config = SessionConfig::new_with_ballista().with_information_schema(true);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .build();
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()?;
        let scheduler = format!("df://{address}");
        let context = SessionContext::remote_with_state(&scheduler, state);
        let context = runtime.block_on(context)?;
        Ok(Ballista {
            session: Session::open(runtime, context, root)?,
            address: address.to_owned(),
        })
    }
}

impl Engine for Ballista {
    fn answer(&self, sql: &str) -> Result<Answer> {
        let frame = self.session.plan(sql)?;
        let mut answer = self.session.collect(frame.clone());
        for _ in 1..ASKS {
            if answer.is_ok() {
                break;
            }
            answer = self.session.collect(frame.clone());
        }
        answer.with_context(|| format!("Ballista at {}", self.address))
    }
}
