//! The stack tree: each stack that was seen is in it once.
//!
//! ```text
//!   root 0 ── main ── parse ── malloc'd here = node 3       (parent, return address) ► id
//! ```
//!
//! R1  Ids are dense, a parent's is below its child's; 0 is the root.
//! R2  `table` holds (return address, parent, id) with open addressing, at most 3/4 full.
//! R3  After code was unloaded, addresses in its range get new nodes: an id never changes its
//!     meaning.

use crate::codes::Codes;
use crate::kinds::Kinds;

const FIRST_SLOTS: usize = 1 << 12;

#[derive(Clone, Copy, Default)]
struct Entry {
    pc: u64,
    parent: u32,
    id: u32,
}

/// The tree of one process.
pub struct Tree {
    table: Vec<Entry>,
    used: usize,
    next_id: u32,
    /// The nodes that are not yet sent to the writer, in order of id.
    fresh: Vec<(u32, u64)>,
    /// All nodes that were sent, if they are sent again.
    sent: Option<Vec<(u32, u64)>>,
    /// The codes that nodes of an interpreter's frames name.
    pub codes: Codes,
    /// What stacks of a script make.
    pub kinds: Kinds,
}

impl Tree {
    /// Creates a tree with the root alone.
    pub fn new() -> Tree {
        Tree {
            table: vec![Entry::default(); FIRST_SLOTS],
            used: 0,
            next_id: 1,
            fresh: Vec::new(),
            sent: None,
            codes: Codes::default(),
            kinds: Kinds::default(),
        }
    }

    /// Returns the id that the next new node will get.
    pub fn next_id(&self) -> u32 {
        self.next_id
    }

    fn place(&self, parent: u32, pc: u64) -> usize {
        let mixed =
            (pc ^ u64::from(parent) << 32 ^ u64::from(parent)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.table.len() - 1)
    }

    /// Returns the node of a frame, and whether it is new. Cost: about 10 ns, or a cache miss.
    #[inline]
    pub fn child(&mut self, parent: u32, pc: u64) -> (u32, bool) {
        let mut at = self.place(parent, pc);
        loop {
            let entry = self.table[at];
            if entry.id == 0 {
                return (self.insert(at, parent, pc), true);
            }
            if entry.pc == pc && entry.parent == parent {
                return (entry.id, false);
            }
            at = (at + 1) & (self.table.len() - 1);
        }
    }

    #[cold]
    fn insert(&mut self, at: usize, parent: u32, pc: u64) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.fresh.push((parent, pc));
        self.kinds.node(id, parent, self.codes.is_python(pc));
        self.table[at] = Entry { pc, parent, id };
        self.used += 1;
        if self.used * 4 > self.table.len() * 3 {
            let slots = self.table.len() * 2;
            self.rebuild(slots, |_| true);
        }
        id
    }

    fn rebuild(&mut self, slots: usize, keep: impl Fn(&Entry) -> bool) {
        let old = std::mem::replace(&mut self.table, vec![Entry::default(); slots]);
        self.used = 0;
        for entry in old.into_iter().filter(|entry| entry.id != 0 && keep(entry)) {
            let mut at = self.place(entry.parent, entry.pc);
            while self.table[at].id != 0 {
                at = (at + 1) & (self.table.len() - 1);
            }
            self.table[at] = entry;
            self.used += 1;
        }
    }

    /// Forgets nodes whose code is in `start..end` (R3).
    pub fn forget_code(&mut self, start: u64, end: u64) {
        self.rebuild(self.table.len(), |entry| !(start..end).contains(&entry.pc));
    }

    /// Keeps what is sent from now on: before the first node.
    pub fn keep_sent(&mut self) {
        self.sent = Some(Vec::new());
        self.kinds.keep_sent();
    }

    /// Returns all nodes that were sent, from id 1 on.
    pub fn sent(&self) -> &[(u32, u64)] {
        self.sent.as_deref().unwrap_or_default()
    }

    /// Returns the nodes that are new since the last call, and the id of the first.
    pub fn take_fresh(&mut self) -> Option<(u32, Vec<(u32, u64)>)> {
        if self.fresh.is_empty() {
            return None;
        }
        let nodes = std::mem::take(&mut self.fresh);
        if let Some(sent) = &mut self.sent {
            sent.extend_from_slice(&nodes);
        }
        Some((self.next_id - nodes.len() as u32, nodes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;
    use std::collections::HashMap;

    #[test]
    fn the_same_as_a_plain_map() {
        let mut tree = Tree::new();
        let mut model: HashMap<(u32, u64), u32> = HashMap::new();
        let mut random = Random::new(0x1234_5678_9abc_def0);
        for _ in 0..200_000 {
            let seed = random.bits();
            let parent = (seed >> 40) as u32 % tree.next_id();
            let pc = 0x7f00_0000_0000 + (seed & 0xff) * 16;
            let (id, new) = tree.child(parent, pc);
            let expected = model.len() as u32 + 1;
            match model.entry((parent, pc)) {
                std::collections::hash_map::Entry::Occupied(known) => {
                    assert_eq!((id, new), (*known.get(), false));
                }
                std::collections::hash_map::Entry::Vacant(space) => {
                    assert_eq!((id, new), (expected, true));
                    space.insert(id);
                }
            }
        }
        let (first, nodes) = tree.take_fresh().expect("nodes");
        assert_eq!((first, nodes.len()), (1, model.len()));
        assert!(
            nodes
                .iter()
                .zip(first..)
                .all(|(&(parent, pc), id)| model[&(parent, pc)] == id)
        );
        assert!(tree.take_fresh().is_none());
    }

    #[test]
    fn unloaded_code_gets_new_nodes() {
        let mut tree = Tree::new();
        let (main, _) = tree.child(0, 0x1000);
        let (plugin, _) = tree.child(main, 0x5000);
        tree.forget_code(0x5000, 0x6000);
        assert_eq!(tree.child(0, 0x1000), (main, false));
        let (again, new) = tree.child(main, 0x5000);
        assert!(new && again != plugin);
    }
}
