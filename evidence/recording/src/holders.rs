//! The holders of a block, in words: the path from a root, or why there is none.
//!
//! ```text
//!   address, or part of a function's name ─► blocks ─► path of each ─► root, +offset → block, … in lines
//! ```
//!
//! H1  The output is bounded: [`EXAMPLES`] blocks of one stack, [`ENDS`] steps at each end of a path.
//!
//! Not here: finding what points where (reach.rs).

use std::collections::BTreeMap;
use std::fmt::Write;

use skinflint_analysis::reach::{self, Reach, Reached, WordAt};
use skinflint_symbols::Symbols;
use skinflint_trace::{NodeId, REGISTERS, RegionKind};
use skinflint_view::stack::{is_plumbing, is_startup, short_name};
use skinflint_view::units::{bytes, plural};

use crate::error::Error;
use crate::reach::Found;

/// The number of blocks of one stack whose paths are printed.
const EXAMPLES: usize = 3;
/// The number of steps of a path that are printed at each end; those between are counted.
const ENDS: usize = 8;
/// The number of functions of a stack that are printed.
const FUNCTIONS: usize = 4;

impl Found<'_> {
    /// Describes what holds the blocks that `whom` means: an address, or part of a function's name in their stacks.
    ///
    /// # Errors
    /// If there is no verdict, or no such block.
    pub fn who_holds(&self, whom: &str, symbols: &mut Symbols) -> Result<String, Error> {
        let reach = match &self.result {
            Ok(reach) => reach,
            Err(why) => {
                return Err(Error::Asked(format!(
                    "--who-holds {whom}: what points where is not known: {why}"
                )));
            }
        };
        let hex = whom.strip_prefix("0x");
        let address = hex.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let mut out = String::new();
        if let Some(address) = address {
            let Some(block) = reach.block_at(address) else {
                return Err(Error::Asked(format!(
                    "--who-holds {whom}: no live block is there at {:?}; `skinflint report --json` has addresses of \
                     unreached blocks (reach.rows[].example)",
                    self.label
                )));
            };
            self.tell(reach, block, symbols, &mut out);
            return Ok(out);
        }
        let mut nodes: BTreeMap<u32, bool> = BTreeMap::new();
        let mut found: Vec<u32> = Vec::new();
        for (number, block) in reach.blocks.iter().enumerate() {
            let matches = *nodes.entry(block.node.0).or_insert_with(|| {
                let functions = self.functions(block.node, symbols);
                functions.iter().any(|function| function.contains(whom))
            });
            if matches {
                found.push(number as u32);
            }
        }
        if found.is_empty() {
            return Err(Error::Asked(format!(
                "--who-holds {whom}: no live block at {:?} has a function of that name in its stack",
                self.label
            )));
        }
        let lost = found
            .iter()
            .filter(|&&one| reach.reached[one as usize] == Reached::Not);
        let _ = writeln!(
            out,
            "{} with {whom} in their stacks at {}; no root leads to {} of them",
            plural(found.len() as u64, "live block"),
            self.label,
            lost.count(),
        );
        // One block for each way to be held, the largest first.
        found.sort_by_key(|&one| {
            let block = &reach.blocks[one as usize];
            (std::cmp::Reverse(block.usable), block.addr)
        });
        let mut shown: Vec<(u32, Reached, usize)> = Vec::new();
        for one in found {
            let way = reach.path(one).len();
            let (node, how) = (
                reach.blocks[one as usize].node.0,
                reach.reached[one as usize],
            );
            if shown.len() < EXAMPLES && !shown.contains(&(node, how, way)) {
                shown.push((node, how, way));
                self.tell(reach, one, symbols, &mut out);
            }
        }
        Ok(out)
    }

    fn tell(&self, reach: &Reach, block: u32, symbols: &mut Symbols, out: &mut String) {
        let live = &reach.blocks[block as usize];
        let _ = writeln!(out, "\n{}", self.block(reach, block, symbols));
        let path = reach.path(block);
        let how = match reach.reached[block as usize] {
            Reached::Certainly => "held, by pointers to begins of blocks, from",
            Reached::Likely => "held, by a pointer into a block or one with a tag, from",
            Reached::Not => "no root leads to it",
        };
        let _ = writeln!(out, "  {how}");
        if reach.reached[block as usize] == Reached::Not {
            let leader = &reach.leaders[reach.leader_of[block as usize] as usize];
            let what = match (
                leader.cycle,
                leader.blocks.len(),
                leader.blocks.contains(&block),
            ) {
                (false, _, true) => "nothing points to it".to_owned(),
                (false, _, false) => format!(
                    "it is held by what nothing points to:\n    {}",
                    self.block(reach, leader.blocks[0], symbols)
                ),
                (true, blocks, own) => format!(
                    "{} of {}, the oldest:\n    {}",
                    if own {
                        "it is in a cycle"
                    } else {
                        "it is held by a cycle"
                    },
                    plural(blocks as u64, "block"),
                    self.block(reach, leader.blocks[0], symbols)
                ),
            };
            let _ = writeln!(out, "  {what}");
        } else if let Some(first) = path.first() {
            let _ = writeln!(out, "    {}", self.root(first.place, symbols));
        }
        for (number, step) in path.iter().enumerate() {
            if number == ENDS && path.len() > 2 * ENDS {
                let _ = writeln!(out, "    … {} more blocks", path.len() - 2 * ENDS);
            }
            if number >= ENDS && number + ENDS < path.len() {
                continue;
            }
            let from = match (step.place, number.checked_sub(1)) {
                (WordAt::Memory(at), Some(before)) => {
                    at.checked_sub(reach.blocks[path[before].block as usize].addr)
                }
                _ => None,
            };
            let from = from.map_or(String::new(), |offset| format!("+{offset:#x} "));
            let _ = writeln!(
                out,
                "    {from}→ {}",
                self.block(reach, step.block, symbols)
            );
        }
        debug_assert!(
            path.last()
                .is_none_or(|last| reach.blocks[last.block as usize] == *live)
        );
    }

    /// Describes a block in a line: address, size, stack.
    fn block(&self, reach: &Reach, block: u32, symbols: &mut Symbols) -> String {
        let live = &reach.blocks[block as usize];
        let functions = self.functions(live.node, symbols);
        let telling = functions
            .iter()
            .filter(|one| !is_plumbing(one) && !is_startup(one));
        let mut names: Vec<String> = telling.map(|one| short_name(one)).collect();
        names.truncate(FUNCTIONS);
        let stack = match names.is_empty() {
            true => "(no stack)".to_owned(),
            false => names.join(" ← "),
        };
        format!("{:#x} {} by {stack}", live.addr, bytes(live.size))
    }

    /// Returns the functions of a stack, innermost first.
    fn functions(&self, node: NodeId, symbols: &mut Symbols) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = node;
        // The loop is bounded: a parent has a lower number.
        while let Some((parent, pc)) = self.trace.node(at).filter(|_| at.0 != 0) {
            let frames = symbols.frames(pc, at.0, true);
            names.extend(frames.into_iter().map(|frame| frame.function));
            if parent.0 >= at.0 {
                break;
            }
            at = parent;
        }
        names
    }

    fn thread(&self, tid: u32) -> String {
        let thread = self.trace.threads.iter().find(|thread| thread.tid == tid);
        match thread.filter(|thread| !thread.name.is_empty()) {
            Some(thread) => format!("thread {tid} ({})", thread.name),
            None => format!("thread {tid}"),
        }
    }

    /// Describes a root in words.
    fn root(&self, place: WordAt, symbols: &mut Symbols) -> String {
        let at = match place {
            WordAt::Register(number) => {
                let Some(register) = self.look.registers.get(number as usize) else {
                    return "a register".into();
                };
                let name = REGISTERS.get(register.number as usize).unwrap_or(&"?");
                return format!("register {name} of {}", self.thread(register.tid));
            }
            WordAt::Memory(at) => at,
        };
        let Some(region) = reach::region_of(self.look, at) else {
            return format!("{at:#x}");
        };
        match region.kind {
            RegionKind::Stack => format!(
                "stack of {}, {:#x} above its stack pointer",
                self.thread(region.tid),
                at - region.start
            ),
            RegionKind::Tls => format!("thread-local storage of {}", self.thread(region.tid)),
            RegionKind::Data => {
                let module = region.name.rsplit('/').next().unwrap_or_default();
                match symbols.variable(at) {
                    Some((name, 0)) => format!("global {name} of {module}"),
                    Some((name, offset)) => format!("global {name}+{offset:#x} of {module}"),
                    None => format!("data of {module} at {at:#x}"),
                }
            }
            _ => {
                let owner = self.ledger.intervals().owner(at);
                let functions = owner.map(|owner| self.functions(owner.node, symbols));
                let function = functions.and_then(|all| {
                    let telling = |one: &&String| !is_plumbing(one) && one.as_str() != "mmap";
                    all.iter().find(telling).map(|one| short_name(one))
                });
                let by = function.map_or(String::new(), |name| format!(", mapped by {name}"));
                format!("mapping {:#x}, at {at:#x}{by}", region.start)
            }
        }
    }
}
