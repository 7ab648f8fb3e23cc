//! The mappings of a process that events told of.
//!
//! D1  Ranges do not overlap; a later mapping takes its range from those before it.

use std::collections::BTreeMap;

use skinflint_trace::{EventKind, NodeId};

/// The kernel's pages that ranges are rounded to.
const PAGE: u64 = 4096;

/// The thread and the call that mapped a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Owner {
    thread: u32,
    node: u32,
    prot: u32,
    flags: u32,
    by_allocator: bool,
}

/// The mappings, by address.
#[derive(Default)]
pub struct Mapped {
    by_start: BTreeMap<u64, (u64, Owner)>,
}

fn end_of(addr: u64, len: u64) -> u64 {
    addr.saturating_add(len.saturating_add(PAGE - 1) & !(PAGE - 1))
}

impl Mapped {
    /// Takes an event of a thread; one that is of no mapping changes nothing.
    pub fn apply(&mut self, thread: u32, kind: &EventKind) {
        match *kind {
            EventKind::Map {
                node,
                addr,
                len,
                prot,
                flags,
                by_allocator,
            } => {
                let owner = Owner {
                    thread,
                    node: node.0,
                    prot,
                    flags,
                    by_allocator,
                };
                self.map(addr, len, owner);
            }
            EventKind::Unmap { addr, len, .. } => self.cut(addr, end_of(addr, len)),
            EventKind::Remap {
                node,
                old_addr,
                old_len,
                new_addr,
                new_len,
            } => {
                let before = self.owner(old_addr);
                self.cut(old_addr, end_of(old_addr, old_len));
                let own = Owner {
                    thread,
                    node: node.0,
                    ..Owner::default()
                };
                self.map(new_addr, new_len, before.unwrap_or(own));
            }
            _ => {}
        }
    }

    fn owner(&self, addr: u64) -> Option<Owner> {
        let (_, &(end, owner)) = self.by_start.range(..=addr).next_back()?;
        (addr < end).then_some(owner)
    }

    fn map(&mut self, addr: u64, len: u64, owner: Owner) {
        let end = end_of(addr, len);
        if end > addr {
            self.cut(addr, end);
            self.by_start.insert(addr, (end, owner));
        }
    }

    fn cut(&mut self, start: u64, end: u64) {
        let before = self.by_start.range(..start).next_back();
        let before = before.map(|(first, &(last, owner))| (*first, last, owner));
        if let Some((first, last, owner)) = before.filter(|(_, last, _)| *last > start) {
            self.by_start.insert(first, (start, owner));
            if last > end {
                self.by_start.insert(end, (last, owner));
            }
        }
        while let Some((&first, &(last, owner))) = self.by_start.range(start..end).next() {
            self.by_start.remove(&first);
            if last > end {
                self.by_start.insert(end, (last, owner));
            }
        }
    }

    /// Returns the mappings as events, each with its thread.
    pub fn events(&self) -> Vec<(u32, EventKind)> {
        let event = |(&start, &(end, owner)): (&u64, &(u64, Owner))| {
            let kind = EventKind::Map {
                node: NodeId(owner.node),
                addr: start,
                len: end - start,
                prot: owner.prot,
                flags: owner.flags,
                by_allocator: owner.by_allocator,
            };
            (owner.thread, kind)
        };
        self.by_start.iter().map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::random::Random;

    fn map(addr: u64, len: u64, flags: u32) -> EventKind {
        EventKind::Map {
            node: NodeId(flags),
            addr,
            len,
            prot: 3,
            flags,
            by_allocator: flags % 2 == 1,
        }
    }

    /// A page of the model: who mapped it.
    fn pages(mapped: &Mapped) -> BTreeMap<u64, (u32, u32)> {
        let mut all = BTreeMap::new();
        for (thread, kind) in mapped.events() {
            let EventKind::Map {
                addr, len, flags, ..
            } = kind
            else {
                panic!("{kind:?} is no mapping");
            };
            for page in 0..len / PAGE {
                let twice = all.insert(addr / PAGE + page, (thread, flags));
                assert_eq!(twice, None, "D1");
            }
        }
        all
    }

    #[test]
    fn the_same_as_a_list_of_pages() {
        let (mut mapped, mut model) = (Mapped::default(), BTreeMap::new());
        let mut random = Random::new(0x5eed_0002);
        for turn in 0..20_000u32 {
            let bits = random.bits();
            let (first, len) = (bits & 0x7f, 1 + (bits >> 8 & 0xf));
            let (addr, bytes) = (first * PAGE, len * PAGE - (bits >> 16 & 1));
            let range = first..first + len;
            match bits >> 20 & 3 {
                0 | 1 => {
                    mapped.apply(turn % 3, &map(addr, bytes, turn));
                    model.extend(range.map(|page| (page, (turn % 3, turn))));
                }
                2 => {
                    let len = bytes;
                    let by_allocator = false;
                    let kind = EventKind::Unmap {
                        addr,
                        len,
                        by_allocator,
                    };
                    mapped.apply(0, &kind);
                    model.retain(|page, _| !range.contains(page));
                }
                _ => {
                    let to = bits >> 24 & 0x7f;
                    let owner = model.get(&first).copied();
                    model.retain(|page, _| !range.contains(page));
                    let new_len = 1 + (bits >> 32 & 0xf);
                    let owner = owner.unwrap_or((1, 0));
                    model.extend((to..to + new_len).map(|page| (page, owner)));
                    let kind = EventKind::Remap {
                        node: NodeId(9),
                        old_addr: addr,
                        old_len: bytes,
                        new_addr: to * PAGE,
                        new_len: new_len * PAGE,
                    };
                    mapped.apply(1, &kind);
                }
            }
            if turn % 64 == 0 {
                assert_eq!(pages(&mapped), model);
            }
        }
        assert!(!model.is_empty());
    }
}
