//! From a look to what is reached: the graph, the marking, the leaders of the rest.
//!
//! ```text
//!   look, blocks, roots, words ─► Graph ─► Reach::mark ─► leaders ─► Reach, or why there is no verdict
//! ```
//!
//! Not here: the steps themselves.

use skinflint_trace::Look;

use super::graph::{Graph, Words};
use super::leaders;
use super::live::Live;
use super::reached::{Reach, Reached};
use super::roots::Roots;

/// Finds what is reached. `words` hands on the look's words by ascending address, and returns whether all were there.
///
/// # Errors
/// Why there is no verdict, in a sentence without its full stop (reach.Q4).
pub fn find(
    look: &Look,
    mut blocks: Vec<Live>,
    roots: &Roots,
    words: &mut Words<'_>,
) -> Result<Reach, String> {
    if !look.missing.is_empty() {
        return Err(look.missing.clone());
    }
    blocks.sort_by_key(|block| block.addr);
    let graph = Graph::of(&blocks, look, roots, words)
        .ok_or("some of the words that were read are missing from the trace")?;
    let mut reach = Reach {
        reached: vec![Reached::Not; blocks.len()],
        via: vec![None; blocks.len()],
        leaders: Vec::new(),
        leader_of: vec![u32::MAX; blocks.len()],
        blocks,
    };
    reach.mark(&graph);
    leaders::find(&graph, &mut reach);
    Ok(reach)
}
