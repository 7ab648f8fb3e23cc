//! Marking from the roots: which blocks were reached, along which words.
//!
//! ```text
//!   roots ─► mark: first along pointers to a block's begin, then along all ─► reached, certainly or likely
//!   block ─► path: back along the word by which each was first met, to a root or to the leader
//! ```
//!
//! H1  A block is met once: by the first word that leads to it in a walk by breadth, so that paths are short.
//! H2  The certain walk ends before the likely one begins.
//!
//! Not here: the edges (graph.rs), which blocks lead those that were not reached (leaders.rs).

use super::graph::{Graph, Quality};
use super::live::Live;
use super::roots::WordAt;

/// How a block was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reached {
    /// It was not reached.
    #[default]
    Not,
    /// Along words that point to begins of blocks.
    Certainly,
    /// Along a word that points into a block or to its end, has a tag, or is the half of one.
    Likely,
}

/// A step of a path: the word, and the block that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The place of the word, or the register.
    pub place: WordAt,
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
    pub(super) via: Vec<Option<WordAt>>,
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

impl Reach {
    pub(super) fn mark(&mut self, graph: &Graph) {
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
    pub(super) fn meet(&mut self, block: u32, place: WordAt, how: Reached) -> bool {
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
            let WordAt::Memory(addr) = place else { break };
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
