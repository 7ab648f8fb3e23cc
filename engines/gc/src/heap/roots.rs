//! Roots that have names: handles, and edges from other heaps.
//!
//! ```text
//!   entry 0 │ object │ from the host, "handle"      ──► always a root
//!   entry 1 │ object │ from heap 7                  ──► a root unless heap 7 is collected too: then heap 7 tells it
//!   entry 2 │ nothing │ from heap 7             ──► both ended together; the edge's own end removes it
//!   entry 3 │ free
//! ```
//!
//! O1  An entry stays until it is removed; its number is not used again before.
//! O2  An entry that comes from a heap stands for one edge in an object there, which tells that edge itself when both
//!     heaps are collected together. So a cycle through two heaps ends when both are collected.
//! O3  Such an edge ends when its object is swept, which may be long after the object that it leads to has gone: a
//!     collection of several heaps empties the entries of objects that it did not reach ([`RootTable::empty`]), so
//!     that none is a root of a later collection of one of them.
//!
//! Not here: roots that are found on stacks (`conservative`).

use core::ptr::NonNull;

/// The origin of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The host program: a handle, with a word that says what it is for.
    Host(&'static str),
    /// An object of another heap, by its number.
    Heap(u32),
}

/// A root's number in its heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RootId(u32);

/// The object that an entry leads to, until that has ended (O3), and the entry's origin.
type Entry = (Option<NonNull<u8>>, From);

#[derive(Default)]
pub(crate) struct RootTable {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    emptied: usize,
}

fn leads((object, from): Entry) -> Option<(NonNull<u8>, From)> {
    object.map(|object| (object, from))
}

impl RootTable {
    pub(crate) fn add(&mut self, object: NonNull<u8>, from: From) -> RootId {
        let entry = Some((Some(object), from));
        if let Some(id) = self.free.pop()
            && let Some(slot) = self.entries.get_mut(id as usize)
        {
            *slot = entry;
            return RootId(id);
        }
        self.entries.push(entry);
        RootId((self.entries.len() - 1) as u32)
    }

    /// Removes an entry; returns the object that it led to. `None`: that has ended (O3), or there was no entry (O1),
    /// which is a fault of the caller.
    pub(crate) fn remove(&mut self, id: RootId) -> Option<NonNull<u8>> {
        let (object, _) = self.entries.get_mut(id.0 as usize)?.take()?;
        self.free.push(id.0);
        self.emptied -= usize::from(object.is_none());
        object
    }

    /// Empties the entries for whose objects `ended` returns true (O3).
    pub(crate) fn empty(&mut self, ended: impl Fn(NonNull<u8>) -> bool) {
        for (object, _) in self.entries.iter_mut().flatten() {
            if object.is_some_and(&ended) {
                *object = None;
                self.emptied += 1;
            }
        }
    }

    pub(crate) fn get(&self, id: RootId) -> Option<NonNull<u8>> {
        self.nth(id.0 as usize).map(|(object, _)| object)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (NonNull<u8>, From)> {
        self.entries.iter().flatten().copied().filter_map(leads)
    }

    pub(crate) fn with_ids(&self) -> impl Iterator<Item = (RootId, NonNull<u8>, From)> {
        let numbered = (0..).map(RootId).zip(&self.entries);
        numbered.filter_map(|(id, entry)| {
            let (object, from) = leads((*entry)?)?;
            Some((id, object, from))
        })
    }

    /// Returns the entry of a number below [`RootTable::end`], if it leads to an object.
    pub(crate) fn nth(&self, number: usize) -> Option<(NonNull<u8>, From)> {
        self.entries.get(number).copied().flatten().and_then(leads)
    }

    /// Returns one more than the highest number ever given.
    pub(crate) fn end(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len() - self.emptied
    }
}
