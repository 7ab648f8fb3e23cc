//! Ephemerons: values that a key keeps alive, for weak maps.
//!
//! ```text
//!   holder ─► Ephemeron ─ ─ ─► key        keeps nothing alive
//!                  └─ if the key is alive ─► value
//! ```
//!
//! W1  The value is alive if holder and key are, whatever the value itself leads to (even its key). When a collection
//!     finds that the key is not, both become empty.
//! W2  Key and value are set when it is created and changed by collections only, so it has no barrier of its own: the
//!     object that it is put into has one (typed.F5).
//!
//! Not here: following pairs (`mark`, `incremental`); maps, which are the client's, as below.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::pointer::{Brand, Gc};
use crate::heap::kind::Finalize;
use crate::heap::tracer::Tracer;
use crate::heap::weak::{Pair, WeakCell};
use crate::trace::Trace;

/// A value that is alive as long as its key. Cost: each round of marking looks at all pairs whose keys are not reached
/// yet, so a chain of n of them takes n rounds at worst.
///
/// A weak map, by the addresses of its keys (an object stays where it is):
///
/// ```
/// use skinflint_gc::{object, typed::{Cx, Ephemeron, Gc, Handle, Locked, Runtime}};
/// use std::collections::HashMap;
///
/// object! { struct WeakMap<'gc> { map: Locked<HashMap<usize, Ephemeron<'gc, String, u64>>> } }
///
/// fn set<'gc>(cx: Cx<'gc>, map: Gc<'gc, WeakMap<'gc>>, key: Gc<'gc, String>, value: Gc<'gc, u64>) {
///     let mut map = map.map.borrow_mut(cx);
///     map.retain(|_, pair| pair.key().is_some()); // Or each time that it has doubled.
///     map.insert(key.address(), Ephemeron::new(key, value));
/// }
///
/// fn get<'gc>(map: Gc<'gc, WeakMap<'gc>>, key: Gc<'gc, String>) -> Option<Gc<'gc, u64>> {
///     map.map.borrow().get(&key.address())?.value() // Empty, if the address was another object's.
/// }
///
/// let tab = Runtime::default().tenant("tab 1", usize::MAX);
/// let (map, key): (Handle<WeakMap<'static>>, Handle<String>) = tab.enter(|cx| {
///     let map = cx.alloc(WeakMap { map: Locked::default() }).unwrap();
///     let (key, other) = (cx.alloc("a".to_owned()).unwrap(), cx.alloc("b".to_owned()).unwrap());
///     set(cx, map, key, cx.alloc(1).unwrap());
///     set(cx, map, other, cx.alloc(2).unwrap());
///     (cx.keep(map, "the map"), cx.keep(key, "a key"))
/// });
/// tab.collect().unwrap();
/// tab.enter(|cx| {
///     let map = map.open(cx).unwrap();
///     assert_eq!(*get(map, key.open(cx).unwrap()).unwrap(), 1);
///     assert_eq!(map.map.borrow().values().filter(|pair| pair.key().is_some()).count(), 1);
/// });
/// ```
pub struct Ephemeron<'gc, K, V> {
    pair: Pair,
    brand: Brand<'gc>,
    to: PhantomData<(NonNull<K>, NonNull<V>)>,
}

impl<'gc, K, V> Ephemeron<'gc, K, V> {
    /// Creates a pair of a key and the value that it keeps alive.
    pub fn new(key: Gc<'gc, K>, value: Gc<'gc, V>) -> Ephemeron<'gc, K, V> {
        Ephemeron {
            pair: Pair {
                key: WeakCell::new(Some(key.raw())),
                value: WeakCell::new(Some(value.raw())),
            },
            brand: PhantomData,
            to: PhantomData,
        }
    }

    /// Returns the key, if no collection has found that nothing leads to it.
    pub fn key(&self) -> Option<Gc<'gc, K>> {
        // pointer.Q1: emptied by the collection that does not reach it (W1), and none runs before the closure ends.
        self.pair.key.get().map(|object| Gc::made(object.cast()))
    }

    /// Returns the value, if the key is there.
    pub fn value(&self) -> Option<Gc<'gc, V>> {
        // pointer.Q1: as above; the value is reached where the key is.
        self.pair.value.get().map(|object| Gc::made(object.cast()))
    }
}

// SAFETY: values.J1: its edges are told as those of a pair, and emptied before the key ends; W2.
unsafe impl<K, V> Trace for Ephemeron<'_, K, V> {
    const EDGES: bool = true;
    const FINALIZE: Finalize = Finalize::Nothing;
    const WEAK: bool = true;
    fn trace(&self, tracer: &mut Tracer) {
        tracer.pair(&self.pair);
    }
}
