//! What a script's stacks make: the types of the objects in some of their blocks, read from the running program.
//!
//! ```text
//!   1st, 8th, 64th … block of a stack below a script ─► pending ─ its words ─► a type? its name ─ next pass: still there ─► Kind
//!                                                          └ released meanwhile: forgotten
//!   block:  [prefix of the collector 2 words] [of attributes 2]  references, TYPE ─► references, a type's TYPE, size, name, …
//! ```
//!
//! C1  Nothing that is read is trusted: a type is what has a type of types, is ready, has a size that fits in the block, and
//!     has a name of printable characters. Only Python's objects have that shape.
//! C2  A block that is still there when all rings were read once more after its words were read had its object then: its
//!     release is published before the block is used again. Blocks that end sooner are not counted: what lives matters.
//! C3  The program is not stopped, and runs nothing for it. At most so many blocks wait, and so many are read in a pass.
//! C4  A block in which there is no object after three looks has none: a dictionary's table, a list's items.
//!
//! Not here: which nodes are of scripts (`tree.rs`), what is said of it (analysis).

use std::collections::HashSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use skinflint_trace::Kind;

use crate::remote::{Remote, words};

/// The most blocks that wait for a look.
const MOST_PENDING: usize = 4096;
/// The most blocks that are read in one pass.
const MOST_READ: usize = 256;
/// The looks after which a block has no object.
const LOOKS: u8 = 3;
/// The words of a block that are read: an object's type is the second word behind one of its prefixes.
const WORDS: usize = 6;
/// Where the type may be: without a prefix, behind the collector's, behind that of attributes as well.
const PLACES: [usize; 3] = [1, 3, 5];
/// The words of a type that are read.
const TYPE_WORDS: usize = 22;
/// Their places: its own type, its name, the size of its objects, its flags (the same since 3.5).
const OF_TYPE: (usize, usize, usize, usize) = (1, 3, 4, 21);
/// The flags of a type that is ready, and of one whose objects are types.
const IS_READY: u64 = 1 << 12;
const IS_OF_TYPES: u64 = 1 << 31;
/// The longest name, bytes.
const NAME_BYTES: usize = 128;

/// A block that was chosen.
struct Pending {
    node: u32,
    usable: u64,
    looks: u8,
    seen: Option<Arc<str>>,
}

/// What is known of the blocks of a process.
#[derive(Default)]
pub struct Kinds {
    /// By node: 0 if no frame of a script is among its callers or itself, else one more than its blocks so far. Empty as
    /// long as there is no script.
    counts: Vec<u32>,
    pending: FxHashMap<u64, Pending>,
    /// A bit for each address that is pending, and for some that are not.
    maybe: u64,
    types: FxHashMap<u64, Arc<str>>,
    names: HashSet<Arc<str>>,
    fresh: Vec<Kind>,
    /// All that were sent, if they are sent again.
    sent: Option<Vec<Kind>>,
}

/// Returns the bit of an address.
fn bit(addr: u64) -> u64 {
    1 << (addr.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

impl Kinds {
    /// Keeps what is sent from now on.
    pub fn keep_sent(&mut self) {
        self.sent = Some(Vec::new());
    }

    /// Returns all that was sent.
    pub fn sent(&self) -> Vec<Kind> {
        self.sent.clone().unwrap_or_default()
    }

    /// Notes a new node, and whether it is a frame of a script itself.
    #[inline]
    pub fn node(&mut self, id: u32, parent: u32, is_script: bool) {
        if !is_script && self.counts.is_empty() {
            return;
        }
        let is_below = is_script || self.counts.get(parent as usize).is_some_and(|at| *at != 0);
        let id = id as usize;
        if self.counts.len() <= id {
            self.counts.resize(id + 1, 0);
        }
        self.counts[id] = u32::from(is_below);
    }

    /// Notes an acquisition. Cost: one load without a script.
    #[inline]
    pub fn acquired(&mut self, node: u32, addr: u64, usable: u64) {
        let Some(count) = self.counts.get_mut(node as usize) else {
            return;
        };
        let so_far = *count;
        if so_far == 0 {
            return;
        }
        *count = so_far.saturating_add(1);
        let is_chosen = so_far.is_power_of_two() && so_far.trailing_zeros() % 3 == 0;
        if is_chosen && self.pending.len() < MOST_PENDING {
            self.maybe |= bit(addr);
            let pending = Pending {
                node,
                usable,
                looks: 0,
                seen: None,
            };
            self.pending.insert(addr, pending);
        }
    }

    /// Notes a release. Cost: one load if nothing is pending.
    #[inline]
    pub fn released(&mut self, addr: u64) {
        if self.maybe & bit(addr) != 0 {
            self.pending.remove(&addr);
        }
    }

    /// Looks at what is pending, after all rings were read once (C2).
    pub fn look(&mut self, pid: u32) {
        if self.pending.is_empty() {
            self.maybe = 0;
            return;
        }
        let remote = Remote { pid };
        let mut pending = std::mem::take(&mut self.pending);
        let mut read = 0;
        pending.retain(|&addr, one| {
            if let Some(name) = one.seen.take() {
                self.found(one.node, name);
                return false;
            }
            if read == MOST_READ {
                return true;
            }
            read += 1;
            one.looks += 1;
            let Some(found) = self.object(remote, addr, one.usable) else {
                return false;
            };
            one.seen = match (found, one.looks) {
                (Some(name), _) => Some(name),
                (None, LOOKS..) => Some(self.name("")),
                (None, _) => None,
            };
            true
        });
        self.maybe = pending.keys().fold(0, |all, addr| all | bit(*addr));
        self.pending = pending;
    }

    /// Returns what is new since the last call. Types are asked anew from then on: their memory may be used again.
    pub fn take_fresh(&mut self) -> Vec<Kind> {
        self.types.clear();
        let fresh = std::mem::take(&mut self.fresh);
        if let Some(sent) = &mut self.sent {
            sent.extend_from_slice(&fresh);
        }
        fresh
    }

    fn found(&mut self, node: u32, name: Arc<str>) {
        self.fresh.push(Kind { node, name });
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let name: Arc<str> = name.into();
        self.names.insert(name.clone());
        name
    }

    /// Returns the type of the object in a block, if there is one; `None` if the block cannot be read.
    fn object(&mut self, remote: Remote, addr: u64, usable: u64) -> Option<Option<Arc<str>>> {
        let bytes = (usable.min(WORDS as u64 * 8) & !7) as usize;
        let mut block = [0; WORDS * 8];
        if !remote.read(addr, &mut block[..bytes]) {
            return None;
        }
        let block = words(&block[..bytes]);
        Some(PLACES.into_iter().find_map(|at| {
            let (&references, &of) = (block.get(at - 1)?, block.get(at)?);
            // Flags may be in its upper half, but no address is so low.
            let is_count = references as u32 != 0 && references >> 44 == 0;
            let room = usable - (at as u64 - 1) * 8;
            (is_count && of % 8 == 0 && of >> 12 != 0)
                .then(|| self.named(remote, of, room))
                .flatten()
        }))
    }

    /// Returns the name of a type whose objects fit into so many bytes (C1).
    fn named(&mut self, remote: Remote, at: u64, room: u64) -> Option<Arc<str>> {
        if let Some(known) = self.types.get(&at) {
            return Some(known.clone());
        }
        let type_words = remote.words(at, TYPE_WORDS)?;
        let (own, name, size, flags) = OF_TYPE;
        let is_type = type_words[flags] & IS_READY != 0 && (16..=room).contains(&type_words[size]);
        let its_flags = type_words[own].checked_add(flags as u64 * 8)?;
        if !is_type || remote.word(its_flags)? & IS_OF_TYPES == 0 {
            return None;
        }
        let name = text(remote, type_words[name])?;
        let name = self.name(&name);
        self.types.insert(at, name.clone());
        Some(name)
    }
}

/// Returns a C string of printable characters.
fn text(remote: Remote, at: u64) -> Option<String> {
    /// No page ends within so many bytes of a place that they divide.
    const PIECE: u64 = 32;
    let mut bytes = Vec::new();
    let mut at = at;
    while bytes.len() < NAME_BYTES {
        let mut piece = [0; PIECE as usize];
        let len = (PIECE - at % PIECE) as usize;
        if !remote.read(at, &mut piece[..len]) {
            return None;
        }
        if let Some(end) = piece[..len].iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&piece[..end]);
            let name = String::from_utf8(bytes).ok()?;
            let is_name = !name.is_empty() && !name.chars().any(|one| one.is_control());
            return is_name.then_some(name);
        }
        bytes.extend_from_slice(&piece[..len]);
        at = at.checked_add(len as u64)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types and objects in this process, as Python has them.
    struct Fake {
        name: [u8; 8],
        metatype: [u64; TYPE_WORDS],
        of_floats: [u64; TYPE_WORDS],
    }

    fn fake() -> Box<Fake> {
        let mut fake = Box::new(Fake {
            name: *b"float\0\0\0",
            metatype: [0; TYPE_WORDS],
            of_floats: [0; TYPE_WORDS],
        });
        let metatype = fake.metatype.as_ptr() as u64;
        let name = fake.name.as_ptr() as u64;
        fake.metatype[1] = metatype;
        fake.metatype[21] = IS_READY | IS_OF_TYPES;
        fake.of_floats[1] = metatype;
        fake.of_floats[3] = name;
        fake.of_floats[4] = 24;
        fake.of_floats[21] = IS_READY;
        fake
    }

    fn kinds() -> Kinds {
        let mut kinds = Kinds::default();
        kinds.node(1, 0, false);
        assert!(kinds.counts.is_empty(), "no script, nothing is kept");
        kinds.node(2, 0, true);
        kinds.node(3, 2, false);
        kinds.node(4, 1, false);
        kinds
    }

    fn fresh(kinds: &mut Kinds) -> Vec<(u32, String)> {
        let fresh = kinds.take_fresh();
        fresh
            .iter()
            .map(|one| (one.node, one.name.to_string()))
            .collect()
    }

    #[test]
    fn an_object_is_known_by_its_type_behind_each_prefix() {
        let fake = fake();
        let of = fake.of_floats.as_ptr() as u64;
        let pid = std::process::id();
        for prefix in [0, 2, 4] {
            let mut kinds = kinds();
            let mut block = vec![0u64; prefix];
            block.extend([1, of, 0]);
            let at = block.as_ptr() as u64;
            kinds.acquired(3, at, block.len() as u64 * 8);
            kinds.look(pid);
            assert_eq!(
                fresh(&mut kinds),
                [],
                "not before all rings were read again (C2)"
            );
            kinds.look(pid);
            assert_eq!(fresh(&mut kinds), [(3, "float".into())], "prefix {prefix}");
        }
    }

    #[test]
    fn what_is_no_object_is_said_to_be_none_after_three_looks() {
        let fake = fake();
        let of = fake.of_floats.as_ptr() as u64;
        let float = [1u64, of, 0];
        let here = float.as_ptr() as u64;
        // Items of a list are objects, and no types; a count is no address; an object that does not fit; a type that is none.
        let blocks: [[u64; 4]; 4] = [
            [here, here, here, here],
            [here, of, here, of],
            [1, of + 8, 0, 0],
            [1, here, 1, 16],
        ];
        for block in &blocks {
            let mut kinds = kinds();
            kinds.acquired(3, block.as_ptr() as u64, 32);
            for _ in 0..LOOKS {
                kinds.look(std::process::id());
            }
            assert_eq!(fresh(&mut kinds), []);
            kinds.look(std::process::id());
            assert_eq!(fresh(&mut kinds), [(3, String::new())], "{block:x?}");
        }
        let mut kinds = kinds();
        let small = [1u64, of];
        kinds.acquired(3, small.as_ptr() as u64, 16);
        (0..=LOOKS).for_each(|_| kinds.look(std::process::id()));
        assert_eq!(fresh(&mut kinds), [(3, String::new())], "24 bytes in 16");
    }

    #[test]
    fn a_block_that_is_released_or_cannot_be_read_is_not_counted() {
        let fake = fake();
        let float = [1u64, fake.of_floats.as_ptr() as u64, 0];
        let at = float.as_ptr() as u64;
        let mut kinds = kinds();
        kinds.acquired(3, at, 24);
        kinds.look(std::process::id());
        kinds.released(at);
        kinds.look(std::process::id());
        kinds.acquired(2, 16, 24);
        (0..=LOOKS).for_each(|_| kinds.look(std::process::id()));
        assert_eq!(fresh(&mut kinds), []);
        assert!(kinds.pending.is_empty() && kinds.maybe == 0);
    }

    #[test]
    fn the_first_the_eighth_and_the_sixty_fourth_are_looked_at() {
        let mut kinds = kinds();
        let mut chosen = Vec::new();
        for block in 1..=600u64 {
            kinds.acquired(3, block << 12, 24);
            kinds.acquired(4, block << 12 | 8, 24);
            if kinds.pending.remove(&(block << 12)).is_some() {
                chosen.push(block);
            }
        }
        assert_eq!(chosen, [1, 8, 64, 512]);
        assert!(kinds.pending.is_empty(), "no stack without a script");
    }
}
