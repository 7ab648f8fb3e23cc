//! A map that does not keep its keys alive.
//!
//! ```text
//!   WeakMap ──► Gc<cell<table>> ──► Ephemeron(key, value) …      hashed by the key's address, which stays
//!                   ▲ weak
//!   every map of the thread, by a list: entries whose keys were collected are taken out after the collection
//! ```
//!
//! X1  An entry is found by its key's address. Emptied entries keep their place until they are removed, and no search
//!     finds them: no live object compares equal to them.
//!
//! Not here: when a key is found to be garbage (`examine`).

use core::fmt::{self, Debug};
use core::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};

use crate::cell::{GcRef, GcRefCell};
use crate::gc::Gc;
use crate::local;
use crate::trace::{Finalize, Trace};
use crate::weak::{Ephemeron, WeakGc};

/// A map from collected keys, by identity, to values that live as long as their keys.
pub struct WeakMap<K: Trace + ?Sized + 'static, V: Trace + 'static> {
    table: Gc<GcRefCell<Table<K, V>>>,
}

pub(crate) struct Table<K: Trace + ?Sized + 'static, V: Trace + 'static> {
    hasher: DefaultHashBuilder,
    /// The entries, each with its hash.
    entries: HashTable<(u64, Ephemeron<K, V>)>,
}

impl<K: Trace + ?Sized, V: Trace> Finalize for Table<K, V> {}
// SAFETY: each entry is visited, once.
unsafe impl<K: Trace + ?Sized, V: Trace> Trace for Table<K, V> {
    custom_trace!(this, mark, {
        for (_, ephemeron) in &this.entries {
            mark(ephemeron);
        }
    });
}

impl<K: Trace + ?Sized, V: Trace> Table<K, V> {
    fn hash(&self, key: &Gc<K>) -> u64 {
        self.hasher.hash_one(key.boxed().cast::<u8>().addr())
    }

    fn is(key: &Gc<K>) -> impl Fn(&(u64, Ephemeron<K, V>)) -> bool + use<K, V> {
        let address = key.boxed().cast::<u8>().addr().get();
        move |(_, ephemeron)| ephemeron.key_address() == Some(address)
    }
}

impl<K: Trace + ?Sized, V: Trace> WeakMap<K, V> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> Self {
        let table = Gc::new(GcRefCell::new(Table {
            hasher: DefaultHashBuilder::default(),
            entries: HashTable::new(),
        }));
        local::add_weak_map(Box::new(WeakGc::new(&table)));
        Self { table }
    }

    /// Sets the value of `key`.
    pub fn insert(&mut self, key: &Gc<K>, value: V) {
        let ephemeron = Ephemeron::new(key, value);
        let mut table = self.table.borrow_mut();
        let hash = table.hash(key);
        let old = match table.entries.entry(hash, Table::is(key), |(hash, _)| *hash) {
            Entry::Occupied(mut entry) => {
                Some(core::mem::replace(entry.get_mut(), (hash, ephemeron)))
            }
            Entry::Vacant(entry) => {
                entry.insert((hash, ephemeron));
                None
            }
        };
        drop(table);
        drop(old);
    }

    /// Removes the value of `key`; returns whether there was one.
    pub fn remove(&mut self, key: &Gc<K>) -> bool {
        let mut table = self.table.borrow_mut();
        let hash = table.hash(key);
        let found = table.entries.find_entry(hash, Table::is(key)).ok();
        let removed = found.map(|entry| entry.remove().0);
        drop(table);
        removed.is_some()
    }

    /// Reports whether `key` has a value.
    #[must_use]
    pub fn contains_key(&self, key: &Gc<K>) -> bool {
        self.get(key).is_some()
    }

    /// Returns the value of `key`, within its ephemeron.
    #[must_use]
    pub fn get<'a>(&'a self, key: &Gc<K>) -> Option<GcRef<'a, Ephemeron<K, V>>> {
        GcRef::try_map(self.table.borrow(), |table| {
            let entry = table.entries.find(table.hash(key), Table::is(key))?;
            Some(&entry.1)
        })
    }
}

/// A map in the thread's list, of any types.
pub(crate) trait AnyWeakMap {
    /// Removes entries that have lost their key; returns false if the map itself was collected.
    fn tidy(&self) -> bool;
}

impl<K: Trace + ?Sized, V: Trace> AnyWeakMap for WeakGc<GcRefCell<Table<K, V>>> {
    fn tidy(&self) -> bool {
        let Some(table) = self.upgrade() else {
            return false;
        };
        // A map that is in use is tidied next time.
        if let Ok(mut table) = table.try_borrow_mut() {
            table.entries.retain(|(_, ephemeron)| ephemeron.has_value());
            let (len, room) = (table.entries.len(), table.entries.capacity());
            if room > 64 && len < room / 4 {
                table.entries.shrink_to(len, |(hash, _)| *hash);
            }
        }
        true
    }
}

impl<K: Trace + ?Sized, V: Trace> Clone for WeakMap<K, V> {
    fn clone(&self) -> Self {
        Self {
            table: self.table.clone(),
        }
    }
}

impl<K: Trace + ?Sized, V: Trace> Default for WeakMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Trace + ?Sized, V: Trace> Debug for WeakMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.table.borrow();
        let entries = table.entries.iter();
        f.debug_list()
            .entries(
                entries.map(|(_, ephemeron)| ephemeron.key_address().map(|at| at as *const ())),
            )
            .finish()
    }
}

impl<K: Trace + ?Sized, V: Trace> Finalize for WeakMap<K, V> {}
// SAFETY: it is one handle.
unsafe impl<K: Trace + ?Sized, V: Trace> Trace for WeakMap<K, V> {
    custom_trace!(this, mark, {
        mark(&this.table);
    });
}
