//! Edges that keep nothing alive: weak cells, and pairs of key and value.
//!
//! Not here: when they are emptied (`mark`).

use core::cell::Cell;
use core::ptr::NonNull;

/// An edge that keeps nothing alive: it is emptied at the end of the marking that does not reach its object.
#[derive(Default)]
pub struct WeakCell(Cell<Option<NonNull<u8>>>);

impl WeakCell {
    /// Creates a weak cell that leads to `object`.
    pub fn new(object: Option<NonNull<u8>>) -> WeakCell {
        WeakCell(Cell::new(object))
    }

    /// Returns the object that it leads to.
    #[inline]
    pub fn get(&self) -> Option<NonNull<u8>> {
        self.0.get()
    }

    /// Makes it lead to another object.
    pub fn set(&self, object: Option<NonNull<u8>>) {
        self.0.set(object);
    }
}

/// An ephemeron: the value is alive if both the key and the holder of the pair are. It is emptied when the key is not
/// reached.
#[derive(Default)]
pub struct Pair {
    /// The key, which is not kept alive.
    pub key: WeakCell,
    /// The value, which the key keeps alive.
    pub value: WeakCell,
}

/// Key and value of a pair.
pub(crate) type PairTargets = (Option<NonNull<u8>>, Option<NonNull<u8>>);
