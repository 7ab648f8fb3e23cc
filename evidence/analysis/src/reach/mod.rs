//! Reachability: what points to each live block at a look, what nothing points to, what only a cycle keeps.
//!
//! ```text
//!   look's words ─► in a live block? ───────────► edge: block → block (graph.rs)
//!                └► in a root (places.rs)? ─────► root → block
//!                └► in the allocator's memory ──► nothing
//!   roots ─► mark: first along pointers to a block's begin, then along all ─► reached, certainly or likely
//!   the rest ─► strongly connected components ─► leaders: no edge comes in from outside (leaders.rs)
//!            ─► rows by stack: "nothing points to", "only a cycle keeps", each with all that it holds (rows.rs)
//! ```
//!
//! Q1  The analysis is conservative: a word that looks like a pointer is one. A block that is called unreached has no
//!     word in any root or reached block that points into its requested bytes, with whatever tag in the upper 16
//!     bits.
//! Q2  Every unreached block is counted in exactly one row: with the leader whose graph claimed it first, oldest first.
//! Q3  A word counts once, by where it lies: in a live block's requested bytes it belongs to that block; else to a
//!     root; a word in free memory, slop or tables of the allocator counts for nothing.
//! Q4  A look that does not show everything has no verdict: nothing is called unreached.
//! Q5  Nothing recurses, and memory is bounded by live blocks and the words between them: 32 bytes per block, 8 per
//!     word.
//!
//! What it cannot see: pointers that are stored changed (XOR lists, compressed ones of 32 bits), at addresses that
//! are no multiple of 8, in files or other processes. Such blocks are called unreached. And a stale word that happens
//! to lie in a live frame hides a leak. A pointer to one past a block's end does not point to the block.
//!
//! Not here: reading the process (collect `look`), names (symbols), text (view).

mod graph;
mod leaders;
mod places;
mod rows;

use skinflint_trace::{Look, NodeId};

pub use graph::{Graph, Quality};
pub use places::{Maker, Place, Places, region_of};
pub use rows::ReachPass;

/// A live block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    /// The address of its begin.
    pub addr: u64,
    /// Requested bytes.
    pub size: u64,
    /// Usable bytes.
    pub usable: u64,
    /// The stack that acquired it.
    pub node: NodeId,
    /// The time of its acquisition, microseconds since the start.
    pub born_us: u64,
}

/// How a block was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reached {
    /// It was not reached.
    #[default]
    Not,
    /// Along words that point to begins of blocks.
    Certainly,
    /// Along a word that points into a block, or has a tag.
    Likely,
}

/// A step of a path: the word, and the block that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The place of the word, or the register.
    pub place: Place,
    /// The block's index.
    pub block: u32,
}

/// The result for a look.
pub struct Reach {
    /// Live blocks, by address.
    pub blocks: Vec<Live>,
    /// How each was reached.
    pub reached: Vec<Reached>,
    /// The word by which each was first met; for an unreached block, on the way from its leader.
    via: Vec<Option<Place>>,
    /// Unreached graphs, oldest leader first.
    pub leaders: Vec<Leader>,
    /// The leader of each unreached block, else `u32::MAX`.
    pub leader_of: Vec<u32>,
}

/// A block, or a cycle of blocks, that nothing outside of it points to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// Its blocks, the oldest first; several if they are a cycle.
    pub blocks: Vec<u32>,
    /// Whether its blocks point to each other, or the only one to its own begin.
    pub cycle: bool,
}

/// Hands on a look's words, address and value, by ascending address; returns whether all were there.
pub type Words<'a> = dyn FnMut(&mut dyn FnMut(u64, u64)) -> bool + 'a;

/// Finds what is reached. `words` hands on the look's words by ascending address, and returns whether all were there.
///
/// # Errors
/// Why there is no verdict, in a sentence without its full stop (Q4).
pub fn find(
    look: &Look,
    mut blocks: Vec<Live>,
    places: &Places,
    words: &mut Words<'_>,
) -> Result<Reach, String> {
    if !look.missing.is_empty() {
        return Err(look.missing.clone());
    }
    blocks.sort_by_key(|block| block.addr);
    let graph = Graph::of(&blocks, look, places, words)
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

impl Reach {
    fn mark(&mut self, graph: &Graph) {
        let mut queue = std::collections::VecDeque::new();
        for &(place, to, quality) in &graph.roots {
            if quality == Quality::Begin && self.meet(to, place, Reached::Certainly) {
                queue.push_back(to);
            }
        }
        while let Some(from) = queue.pop_front() {
            for edge in graph
                .edges(from)
                .filter(|edge| edge.quality == Quality::Begin)
            {
                if self.meet(edge.to, edge.place, Reached::Certainly) {
                    queue.push_back(edge.to);
                }
            }
        }
        for &(place, to, _) in &graph.roots {
            if self.meet(to, place, Reached::Likely) {
                queue.push_back(to);
            }
        }
        let certain = (0..self.blocks.len() as u32)
            .filter(|&block| self.reached[block as usize] == Reached::Certainly);
        for from in certain.collect::<Vec<_>>() {
            for edge in graph.edges(from) {
                if self.meet(edge.to, edge.place, Reached::Likely) {
                    queue.push_back(edge.to);
                }
            }
        }
        while let Some(from) = queue.pop_front() {
            for edge in graph.edges(from) {
                if self.meet(edge.to, edge.place, Reached::Likely) {
                    queue.push_back(edge.to);
                }
            }
        }
    }

    /// Notes that a block was met; returns whether this was the first time.
    fn meet(&mut self, block: u32, place: Place, how: Reached) -> bool {
        let reached = &mut self.reached[block as usize];
        if *reached != Reached::Not {
            return false;
        }
        *reached = how;
        self.via[block as usize] = Some(place);
        true
    }

    /// Returns the block in whose usable bytes an address lies.
    pub fn block_at(&self, addr: u64) -> Option<u32> {
        let next = self.blocks.partition_point(|block| block.addr <= addr);
        let block = self.blocks.get(next.checked_sub(1)?)?;
        (addr - block.addr < block.usable.max(1)).then_some(next as u32 - 1)
    }

    /// Returns the way to a block: from a root, or, for an unreached block, from its leader, which then has no step
    /// of its own. Its length is bounded by the number of blocks.
    pub fn path(&self, block: u32) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut at = block;
        while let Some(place) = self.via[at as usize] {
            steps.push(Step { place, block: at });
            let Place::Memory(addr) = place else { break };
            // A word that lies in no block is in a root.
            match self.requested_at(addr) {
                Some(from) if steps.len() <= self.blocks.len() => at = from,
                _ => break,
            }
        }
        steps.reverse();
        steps
    }

    /// Returns the block in whose requested bytes an address lies.
    fn requested_at(&self, addr: u64) -> Option<u32> {
        let block = self.block_at(addr)?;
        let live = &self.blocks[block as usize];
        (addr - live.addr < live.size).then_some(block)
    }
}

#[cfg(test)]
mod tests;
