//! The result in the report: sums, rows by stack, findings.
//!
//! ```text
//!   Reach ─► ReachPass ─ finish ─► Report::reach (rows) and findings of kind leak
//! ```
//!
//! W1  The rows add up to what is unreached, blocks and bytes; what is beyond [`ROWS`] is in `others`.
//! W2  A finding's bytes are those of blocks that lived at the report's instant: an unreached block lives from its
//!     acquisition on.

use rustc_hash::FxHashMap;
use skinflint_trace::{Look, LookCause};

use super::live::Live;
use super::reached::{Reach, Reached};
use crate::model::Claim;
use crate::model::{
    Confidence, Finding, FindingKind, InstantKind, ReachSum, Reachability, Report, UnreachedRow,
};
use crate::pass::{Act, CellKey, Context, Pass};
use crate::passes::wording::{bytes as size, count};

/// The number of rows listed.
const ROWS: usize = 200;
/// The number of findings; all leaks are in the rows.
const FINDINGS: usize = 8;
/// The bytes below which a row makes no finding.
const WORTH_BYTES: u64 = 1024;

/// The pass that adds what was found at a look to the report.
pub struct ReachPass {
    result: Reachability,
    /// The unreached blocks.
    blocks: Vec<Lost>,
}

/// An unreached block.
#[derive(Clone, Copy)]
struct Lost {
    row: usize,
    born_us: u64,
    key: CellKey,
}

impl ReachPass {
    /// Creates the pass for a look at the moment of this label.
    pub fn new(look: &Look, label: &str, found: &Result<Reach, String>) -> ReachPass {
        let mut result = Reachability {
            label: label.to_owned(),
            at_end: look.cause == LookCause::End,
            time_ns: look.time_ns,
            ticket: look.ticket,
            stopped_ns: look.stopped_ns,
            threads: look.threads,
            scanned_bytes: look.scanned_bytes,
            words: look.words,
            ..Reachability::default()
        };
        let mut blocks = Vec::new();
        match found {
            Ok(reach) => blocks = tell(reach, &mut result),
            Err(why) => result.missing = why.clone(),
        }
        ReachPass { result, blocks }
    }
}

fn add(sum: &mut ReachSum, block: &Live) {
    sum.blocks += 1;
    sum.requested_bytes = sum.requested_bytes.saturating_add(block.size);
    sum.usable_bytes = sum.usable_bytes.saturating_add(block.usable);
}

fn tell(reach: &Reach, result: &mut Reachability) -> Vec<Lost> {
    let mut rows: Vec<UnreachedRow> = Vec::new();
    let mut known: FxHashMap<(u32, bool), usize> = FxHashMap::default();
    let mut row_of: Vec<usize> = Vec::with_capacity(reach.leaders.len());
    for leader in &reach.leaders {
        let first = &reach.blocks[leader.blocks[0] as usize];
        let number = *known
            .entry((first.node.0, leader.cycle))
            .or_insert_with(|| {
                rows.push(UnreachedRow {
                    node: Some(first.node.0),
                    cycle: leader.cycle,
                    example: first.addr,
                    ..UnreachedRow::default()
                });
                rows.len() - 1
            });
        rows[number].graphs += 1;
        row_of.push(number);
        for &block in &leader.blocks {
            add(&mut rows[number].own, &reach.blocks[block as usize]);
        }
    }
    let mut told = Vec::new();
    for (number, block) in reach.blocks.iter().enumerate() {
        match reach.reached[number] {
            Reached::Certainly => add(&mut result.certain, block),
            Reached::Likely => add(&mut result.likely, block),
            Reached::Not => {
                add(&mut result.unreached, block);
                let row = row_of[reach.leader_of[number] as usize];
                add(&mut rows[row].all, block);
                told.push(Lost {
                    row,
                    born_us: block.born_us,
                    key: CellKey {
                        node: block.node,
                        size: block.size,
                        usable: block.usable,
                    },
                });
            }
        }
    }
    result.rows = rows;
    told
}

impl Pass for ReachPass {
    fn sees_acts(&self) -> bool {
        false
    }

    fn act(&mut self, _: &Context<'_>, _: &Act) {}

    fn finish(self: Box<Self>, _: &Context<'_>, report: &mut Report) {
        let mut result = self.result;
        let instant = report.instants.get(report.at);
        let end = instant.is_none_or(|one| one.kind == InstantKind::End);
        let until_us = instant.map_or(u64::MAX, |one| one.time_ns / 1000);
        let mut at_instant: Vec<FxHashMap<CellKey, u64>> =
            vec![FxHashMap::default(); result.rows.len()];
        for block in self.blocks {
            // A block acquired within the same microsecond counts as before: the instant is behind some event.
            if end || block.born_us <= until_us {
                *at_instant[block.row].entry(block.key).or_default() += 1;
            }
        }
        let mut order: Vec<usize> = (0..result.rows.len()).collect();
        order.sort_by_key(|&row| {
            let one = &result.rows[row];
            (std::cmp::Reverse(one.all.usable_bytes), one.node, one.cycle)
        });
        for &row in order.iter().take(FINDINGS) {
            let claims: Vec<Claim> = at_instant[row].iter().map(claim).collect();
            let bytes = claims
                .iter()
                .fold(0, |sum: u64, one| sum.saturating_add(one.bytes));
            if bytes >= WORTH_BYTES {
                let found = finding(&result, &result.rows[row], claims, bytes);
                report.findings.push(found);
            }
        }
        let mut rows = Vec::new();
        for row in order {
            let row = std::mem::take(&mut result.rows[row]);
            if rows.len() < ROWS {
                rows.push(row);
            } else {
                result.other_rows += 1;
                let (all, others) = (row.all, &mut result.others);
                others.blocks += all.blocks;
                others.requested_bytes = others.requested_bytes.saturating_add(all.requested_bytes);
                others.usable_bytes = others.usable_bytes.saturating_add(all.usable_bytes);
            }
        }
        result.rows = rows;
        report.reach = Some(result);
    }
}

fn claim((key, blocks): (&CellKey, &u64)) -> Claim {
    Claim {
        key: *key,
        blocks: *blocks,
        bytes: blocks.saturating_mul(key.usable),
    }
}

fn finding(result: &Reachability, row: &UnreachedRow, claims: Vec<Claim>, bytes: u64) -> Finding {
    let held = row.all.blocks - row.own.blocks;
    let mut what = format!(
        "At {} no root of the program (data, stacks, registers, thread-local storage, its own mappings) led to {}",
        result.label,
        count(row.all.blocks, "block"),
    );
    what += &match (row.cycle, held) {
        (false, 0) => format!(" of {}.", size(row.all.usable_bytes)),
        (false, _) => format!(
            " of {}: {} that nothing points to, and {held} that only these hold.",
            size(row.all.usable_bytes),
            count(row.own.blocks, "block"),
        ),
        (true, 0) => format!(
            " of {} that only point to each other, in {}.",
            size(row.all.usable_bytes),
            count(row.graphs, "cycle"),
        ),
        (true, _) => format!(
            " of {}: {} that point to each other, in {}, and {held} that only these hold.",
            size(row.all.usable_bytes),
            count(row.own.blocks, "block"),
            count(row.graphs, "cycle"),
        ),
    };
    let change = match row.cycle {
        false => {
            "Release the block where its last pointer is overwritten or goes out of scope. If the program keeps \
                  it by a pointer that it stores changed (XOR, 32 bits), it is no leak."
        }
        true => {
            "Break the cycle: make one of its pointers weak (std::weak_ptr, rc::Weak), or clear one when the last \
                 owner from outside goes."
        }
    };
    let title = match row.cycle {
        false => "Nothing points to these blocks any more",
        true => "Only a cycle of pointers keeps these blocks",
    };
    Finding {
        kind: FindingKind::Leak,
        title: title.into(),
        what,
        change: change.into(),
        now_bytes: bytes,
        saved_bytes: bytes,
        blocks: claims.iter().map(|one| one.blocks).sum(),
        confidence: Confidence::Likely,
        node: row.node,
        claims,
        ..Finding::default()
    }
}
