//! The blocks that lived at a report's instant, and those that came and went until another one.
//!
//! ```text
//!   events ─► ledger up to the instant ─► live blocks, by site ─► events up to the other one ─► came, went
//! ```
//!
//! L1  The live blocks are the report's: their number and bytes are compared.
//!
//! Not here: which of them a program's reporters name (`dark.rs`).

use std::collections::{HashMap, HashSet};

use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::model::Report;
use skinflint_analysis::pass::{Act, Block};
use skinflint_export::Lives;
use skinflint_recording::Recording;

use crate::dark::{LiveBlock, Living};

/// Returns what lived at the report's instant, and what came and went until another one (L1).
///
/// # Errors
/// If the two moments are in the wrong order, or the trace changed since the report; a sentence.
pub fn living(
    recording: &Recording,
    report: &Report,
    lives: &Lives,
    until: Option<u64>,
) -> Result<Living, String> {
    let instant = report
        .instants
        .get(report.at)
        .ok_or("the report has no moment")?;
    if let Some(until) = until.filter(|until| *until < instant.ticket) {
        return Err(format!(
            "--until: the measurement ended (event {until}) before the moment of --at (event {}); exchange them, or \
             name a mark that was made later",
            instant.ticket
        ));
    }
    let places = lives.sites.iter().enumerate();
    let site_of: HashMap<u32, u32> = places
        .map(|(site, lives)| (lives.trace_node, site as u32))
        .collect();
    let mut at: Option<Vec<(LiveBlock, u32)>> = None;
    let (mut came, mut went) = (Vec::new(), HashSet::new());
    let mut ledger = Ledger::new(16);
    recording.events_again(&mut ledger, &mut |ledger, event| {
        if event.ticket <= instant.ticket {
            return ledger.apply(event, &mut |_, _| {});
        }
        if until.is_none_or(|until| event.ticket > until) {
            return;
        }
        at.get_or_insert_with(|| blocks_of(ledger, &site_of));
        ledger.apply(event, &mut |context, act| {
            let mut gone = |block: &Block| went.insert((block.addr, block.serial));
            match act {
                Act::Acquire { block, .. } => came.push((block.addr, context.key.usable)),
                Act::Release { block, .. } => {
                    gone(block);
                }
                Act::Regrow { old, new } => {
                    gone(old);
                    came.push((new.addr, context.key.usable));
                }
                Act::Mark { .. } => {}
            }
        });
    });
    let at = at.unwrap_or_else(|| blocks_of(&ledger, &site_of));
    let mark = |(block, serial): (LiveBlock, u32)| LiveBlock {
        went: went.contains(&(block.addr, serial)),
        ..block
    };
    let blocks: Vec<LiveBlock> = at.into_iter().map(mark).collect();
    let bytes = blocks
        .iter()
        .map(|block| block.usable_bytes)
        .fold(0, u64::saturating_add);
    if (blocks.len() as u64, bytes) != (instant.live_blocks, instant.live_usable_bytes) {
        return Err(format!(
            "the live blocks at {} were {} with {} bytes at the first reading and {} with {bytes} at the second: \
             did the trace change meanwhile?",
            instant.label,
            instant.live_blocks,
            instant.live_usable_bytes,
            blocks.len()
        ));
    }
    Ok(Living { blocks, came })
}

/// Returns all blocks that live now, with their serial numbers.
fn blocks_of(ledger: &Ledger, site_of: &HashMap<u32, u32>) -> Vec<(LiveBlock, u32)> {
    let block = |block: &Block| {
        let key = ledger.cells().key(block.cell);
        let live = LiveBlock {
            addr: block.addr,
            usable_bytes: key.usable,
            site: *site_of.get(&key.node.0)?,
            went: false,
        };
        Some((live, block.serial))
    };
    ledger.live_blocks().filter_map(block).collect()
}
