//! The graph of a look: its words as edges between blocks.
//!
//! ```text
//!   words, by address ──┐ one sweep     first[i]..first[i + 1]: the edges out of block i
//!   blocks, by address ─┘               roots: words that lie in no block
//! ```
//!
//! G1  Words come by address, none below the one before (two halves of a word are at the same), so edges come by
//!     source; a word that is out of order (a damaged trace) makes the whole look unusable.
//! G2  A word that points to its own block is no edge, unless it points to the block's begin.
//! G4  A word that points right behind a block (its end, as iterators and growing buffers keep it) leads to the block,
//!     like one into it, unless another block begins there.
//! G3  glibc's tables in its own data point to chunks, 16 bytes before blocks: the last 8 usable bytes of the block
//!     before. Such a word is no pointer to that block.
//!
//! Not here: following edges.

use skinflint_trace::Look;

use super::live::Live;
use super::roots::{Roots, Standing, WordAt};

/// How a word points to the block that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Quality {
    /// The word is the address of the block's begin.
    Begin,
    /// The word points inside the block or right behind it, or has a tag.
    Inside,
}

/// A word in one block that leads to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The place of the word.
    pub place: WordAt,
    /// The block that it leads to.
    pub to: u32,
    /// How it points there.
    pub quality: Quality,
}

/// Hands on a look's words, address and value, by ascending address; returns whether all were there.
pub type Words<'a> = dyn FnMut(&mut dyn FnMut(u64, u64)) -> bool + 'a;

/// Edges and roots.
pub struct Graph {
    /// The words in roots: their places, the blocks they lead to, and how.
    pub roots: Vec<(WordAt, u32, Quality)>,
    first: Vec<usize>,
    /// (block and quality, offset of the word in its block in words)
    edges: Vec<(u32, u32)>,
    starts: Vec<u64>,
}

const INSIDE: u32 = 1 << 31;
const ADDRESS_BITS: u64 = (1 << 48) - 1;

impl Graph {
    /// Builds the graph of these blocks, by address; `None` if words are missing or out of order.
    pub fn of(blocks: &[Live], look: &Look, roots: &Roots, words: &mut Words<'_>) -> Option<Graph> {
        let mut graph = Graph {
            roots: Vec::new(),
            first: vec![0; blocks.len() + 1],
            edges: Vec::new(),
            starts: blocks.iter().map(|block| block.addr).collect(),
        };
        let index = Index::of(blocks);
        let (mut at, mut last, mut ordered) = (0, 0, true);
        let mut standing = roots.sweep();
        let whole = words(&mut |address, value| {
            ordered &= address >= last;
            last = address;
            let Some((to, quality, offset)) = index.target(blocks, value) else {
                return;
            };
            while at < blocks.len() && blocks[at].addr.saturating_add(blocks[at].size) <= address {
                at += 1;
                graph.first[at] = graph.edges.len();
            }
            let own = blocks.get(at).filter(|block| block.addr <= address);
            if let Some(own) = own {
                // A word that points to its own block is an edge only at the block's begin (G2).
                if to as usize != at || quality == Quality::Begin {
                    let flag = if quality == Quality::Inside {
                        INSIDE
                    } else {
                        0
                    };
                    graph
                        .edges
                        .push((to | flag, ((address - own.addr) / 8) as u32));
                }
                return;
            }
            let target = &blocks[to as usize];
            let counts = match standing.at(address) {
                Standing::Root => true,
                // A word of glibc's tables points to a chunk (G3).
                Standing::GlibcData => offset == 0 || offset + 8 != target.usable,
                Standing::Allocator => false,
            };
            if counts {
                graph.roots.push((WordAt::Memory(address), to, quality));
            }
        });
        while at < blocks.len() {
            at += 1;
            graph.first[at] = graph.edges.len();
        }
        for (number, register) in look.registers.iter().enumerate() {
            if let Some((to, quality, _)) = index.target(blocks, register.value) {
                graph
                    .roots
                    .push((WordAt::Register(number as u32), to, quality));
            }
        }
        (whole && ordered).then_some(graph)
    }

    /// Returns the edges out of a block.
    pub fn edges(&self, from: u32) -> impl Iterator<Item = Edge> + '_ {
        let from = from as usize;
        let start = self.starts[from];
        let edges = &self.edges[self.first[from]..self.first[from + 1]];
        edges.iter().map(move |&(to, word)| Edge {
            place: WordAt::Memory(start + u64::from(word) * 8),
            to: to & !INSIDE,
            quality: if to & INSIDE == 0 {
                Quality::Begin
            } else {
                Quality::Inside
            },
        })
    }

    /// Returns the edge out of a block by its number there; `None` behind the last. For a walk that continues where
    /// it stopped.
    pub(super) fn edge(&self, from: u32, number: usize) -> Option<u32> {
        let (first, end) = (self.first[from as usize], self.first[from as usize + 1]);
        let edge = self.edges[first..end].get(number)?;
        Some(edge.0 & !INSIDE)
    }
}

/// Finds the block that a word points to. Cost: a hash lookup and a search among the blocks of 64 KiB.
struct Index {
    /// The first block that begins in a granule or later, for granules in which a block begins.
    granules: rustc_hash::FxHashMap<u64, (u32, u32)>,
}

const GRANULE: u32 = 16;

impl Index {
    fn of(blocks: &[Live]) -> Index {
        let mut granules = rustc_hash::FxHashMap::default();
        for (number, block) in blocks.iter().enumerate() {
            let number = number as u32;
            let entry = granules
                .entry(block.addr >> GRANULE)
                .or_insert((number, number));
            entry.1 = number + 1;
        }
        Index { granules }
    }

    /// Returns the block, how the value points to it, and the offset in it.
    fn target(&self, blocks: &[Live], value: u64) -> Option<(u32, Quality, u64)> {
        let address = value & ADDRESS_BITS;
        let number = self.begins_before(blocks, address)?;
        let block = &blocks[number as usize];
        let offset = address - block.addr;
        // The end counts (G4); a block of 0 bytes has its begin there.
        if offset > block.size {
            return None;
        }
        let begin = offset == 0 && value == address;
        let quality = if begin {
            Quality::Begin
        } else {
            Quality::Inside
        };
        Some((number, quality, offset))
    }

    /// Returns the last block that begins at or before an address, if it may reach it.
    fn begins_before(&self, blocks: &[Live], address: u64) -> Option<u32> {
        if let Some(&(first, end)) = self.granules.get(&(address >> GRANULE)) {
            let here = &blocks[first as usize..end as usize];
            let next = here.partition_point(|block| block.addr <= address);
            if next > 0 {
                return Some(first + next as u32 - 1);
            }
            return first.checked_sub(1);
        }
        // No block begins in its granule: one that begins before reaches into it, or ends where it begins.
        let next = blocks.partition_point(|block| block.addr <= address);
        next.checked_sub(1).map(|number| number as u32)
    }
}
