//! The analysis passes: each one type behind [`Pass`], constructed here.
//!
//! ```text
//!   all(facts, options) ──► [ slop, clownshoes, growth, churn, leaks … ]
//! ```
//!
//! R1  The order here is the order in which passes see an act, and in which their findings are
//!     added before the report sorts them.
//!
//! Not here: the ledger's own findings (`findings.rs`).

use crate::facts::{Facts, Options};
use crate::pass::Pass;

/// Every pass, ready to see its first act.
pub fn all(_facts: &Facts, _options: &Options) -> Vec<Box<dyn Pass>> {
    Vec::new()
}
