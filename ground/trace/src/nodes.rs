//! The stack tree of a trace, to bytes and back.
//!
//! ```text
//!   block = first id, count, count × (id − parent), count × pc
//!   pc    = 0 and the signed difference from the last new pc │ k: the k-th new pc of this block
//! ```
//!
//! K1  `parent < id` for every node but 0, which is its own parent; a block that breaks this is refused.
//! K2  The table grows by what was read, never by what an id claims (`append` refuses far ids).
//!
//! Not here: what an address is called (crate `symbols`).

use rustc_hash::FxHashMap;

use skinflint_framing::varint::{Cursor, Malformed, put, put_signed};

/// The most nodes in one block; more are split into several blocks.
pub(crate) const NODES_PER_BLOCK: usize = 1 << 16;

/// Codes nodes `first_id …`; at most [`NODES_PER_BLOCK`].
pub(crate) fn put_nodes(out: &mut Vec<u8>, first_id: u32, nodes: &[(u32, u64)]) {
    put(out, u64::from(first_id));
    put(out, nodes.len() as u64);
    for (id, &(parent, _)) in (first_id..).zip(nodes) {
        put(out, u64::from(id.wrapping_sub(parent)));
    }
    let mut known: FxHashMap<u64, u64> = FxHashMap::default();
    let mut last = 0u64;
    for &(_, pc) in nodes {
        let next = known.len() as u64 + 1;
        let index = *known.entry(pc).or_insert(next);
        if index == next {
            put(out, 0);
            put_signed(out, pc.wrapping_sub(last) as i64);
            last = pc;
        } else {
            put(out, index);
        }
    }
}

/// The table from node id to (parent, pc). Node 0, the empty stack, is always there.
pub(crate) struct NodeTable {
    parents: Vec<u32>,
    pcs: Vec<u64>,
}

impl NodeTable {
    pub(crate) fn new() -> Self {
        NodeTable {
            parents: vec![0],
            pcs: vec![0],
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.parents.len() as u32
    }

    pub(crate) fn get(&self, id: u32) -> Option<(u32, u64)> {
        let index = id as usize;
        Some((*self.parents.get(index)?, *self.pcs.get(index)?))
    }

    /// Reads a block of nodes. `may_skip`: the number of nodes that may be missing before it because blocks
    /// were lost; they become children of the root at address 0. Returns the number missing.
    pub(crate) fn append(
        &mut self,
        from: &mut Cursor<'_>,
        may_skip: u64,
    ) -> Result<u64, Malformed> {
        let first = from.get_u32()?;
        let count = from.get_count(2)?;
        let len = u64::from(self.len());
        let end = u64::from(first) + count as u64;
        if u64::from(first) > len + may_skip || end > u64::from(u32::MAX) {
            return Err(Malformed("a stack far beyond the stacks before it"));
        }
        let mut parents = Vec::with_capacity(count);
        for id in first..end as u32 {
            let up = from.get()?;
            // Node 0 is its own parent; every other node has a parent before it (K1).
            if up > u64::from(id) || (up == 0 && id != 0) {
                return Err(Malformed("a stack whose caller is not before it"));
            }
            parents.push(id - up as u32);
        }
        let mut known: Vec<u64> = Vec::new();
        let mut pcs = Vec::with_capacity(count);
        let mut last = 0u64;
        for _ in 0..count {
            let index = from.get()?;
            if index == 0 {
                last = last.wrapping_add(from.get_signed()? as u64);
                known.push(last);
                pcs.push(last);
            } else {
                let pc = usize::try_from(index - 1)
                    .ok()
                    .and_then(|index| known.get(index));
                pcs.push(*pc.ok_or(Malformed("an address that is not in its block"))?);
            }
        }
        let missing = u64::from(first).saturating_sub(len);
        let start = first as usize;
        if start > self.parents.len() {
            self.parents.resize(start, 0);
            self.pcs.resize(start, 0);
        }
        let overlap = (self.parents.len() - start).min(count);
        self.parents[start..start + overlap].copy_from_slice(&parents[..overlap]);
        self.pcs[start..start + overlap].copy_from_slice(&pcs[..overlap]);
        self.parents.extend_from_slice(&parents[overlap..]);
        self.pcs.extend_from_slice(&pcs[overlap..]);
        Ok(missing)
    }
}
