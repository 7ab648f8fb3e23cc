//! The list of all passes.
//!
//! ```text
//!   all ──► Rounding · Growth · Churn · Placebo · Phases ──► Analyzer
//! ```
//!
//! A1  A new pass is added here, and named nowhere else.
//! A2  They finish in this order: churn reads the rows of growth.
//!
//! Not here: what a pass looks for (the head of its file).

use crate::facts::{Facts, Options};
use crate::pass::Pass;
use crate::passes::churn::Churn;
use crate::passes::growth::GrowthPass;
use crate::passes::phases::Phases;
use crate::passes::placebo::Placebo;
use crate::passes::rounding::Rounding;

/// Returns every pass, ready to see its first act.
pub fn all(facts: &Facts, _options: &Options) -> Vec<Box<dyn Pass>> {
    let (allocator, marks) = (&facts.process.allocator, &facts.marks);
    vec![
        Box::new(Rounding::new(allocator)),
        Box::new(GrowthPass::new(allocator)),
        Box::new(Churn::new(marks)),
        Box::new(Placebo::new()),
        Box::new(Phases::new(marks)),
    ]
}
