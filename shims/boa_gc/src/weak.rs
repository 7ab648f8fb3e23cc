//! Weak references and ephemerons.
//!
//! ```text
//!   Ephemeron<K, V> ──► │ head │ Pair: key, value │       the key's address is no handle, the value's edges are
//!                                        └─► lost when the key is found to be garbage; then the value goes, too
//! ```
//!
//! W1  A key that is in a pair has not ended and is not doomed: both happen only after its pairs have lost it. So a
//!     handle to it can be made at any time.
//! W2  An ephemeron keeps its value alive by counted handles, as any object does. The collector sees to it that the
//!     value does not keep the key alive: edges of a value count for the suspects, and are followed only if the key
//!     was reached (`examine`).
//! W3  The tenant of the key knows all ephemerons on its objects, wherever they lie (`tenant`).
//!
//! Not here: when a key is found to be garbage.

use core::cell::{Cell, UnsafeCell};
use core::fmt::{self, Debug};
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use core::ptr::NonNull;

use crate::gc::{Gc, handle_to};
use crate::local;
use crate::object::{Erased, GcBox, Of, PairFns, VTable};
use crate::trace::{Finalize, Trace, Tracer};

/// The contents of an ephemeron's object.
pub(crate) struct Pair<K: Trace + ?Sized + 'static, V: Trace + 'static> {
    /// The key; lost when it was found to be garbage. The value follows in a later slice.
    key: Cell<Option<NonNull<GcBox<K>>>>,
    value: UnsafeCell<Option<V>>,
}

impl<K: Trace + ?Sized, V: Trace> Pair<K, V> {
    fn held(&self) -> Option<&V> {
        // SAFETY: it is written when it is filled, before any code has looked (`fill`), and when it is dropped, some
        // time after the key was lost: references to the value hold the key, so no code looks then (W1).
        unsafe { &*self.value.get() }.as_ref()
    }

    /// # Safety
    /// The object must be of this type and must not have ended.
    unsafe fn of<'a>(object: Erased) -> &'a Self {
        // SAFETY: as the caller promises.
        unsafe { &(*object.cast::<GcBox<Self>>().as_ptr()).value }
    }

    /// # Safety
    /// Those of [`Pair::of`].
    unsafe fn key(object: Erased) -> Option<Erased> {
        // SAFETY: as the caller promises.
        unsafe { Self::of(object) }.key.get().map(NonNull::cast)
    }

    /// # Safety
    /// Those of [`Pair::of`].
    unsafe fn lose_key(object: Erased) {
        // SAFETY: as the caller promises.
        unsafe { Self::of(object) }.key.set(None);
    }

    /// # Safety
    /// Those of [`Pair::of`].
    unsafe fn trace_value(object: Erased, tracer: &mut Tracer) {
        // SAFETY: as the caller promises.
        if let Some(value) = unsafe { Self::of(object) }.held() {
            // SAFETY: the collector asks.
            unsafe { value.trace(tracer) };
        }
    }

    /// # Safety
    /// Those of [`Pair::of`]; the key must be lost, and no reference to the value may exist.
    unsafe fn drop_value(object: Erased) {
        // SAFETY: as the caller promises. What was in it is dropped after the cell is written.
        let value = unsafe { (*Self::of(object).value.get()).take() };
        drop(value);
    }

    const FNS: &'static PairFns = &PairFns {
        key: Self::key,
        trace_value: Self::trace_value,
        lose_key: Self::lose_key,
        drop_value: Self::drop_value,
    };
    const VTABLE: &'static VTable = &Of::<Self>::vtable(Some(Self::FNS));
}

impl<K: Trace + ?Sized, V: Trace> Finalize for Pair<K, V> {}

// SAFETY: the value's edges are counted; they are distinguished from the others (W2).
unsafe impl<K: Trace + ?Sized, V: Trace> Trace for Pair<K, V> {
    unsafe fn trace(&self, _: &mut Tracer) {}

    unsafe fn trace_non_roots(&self) {
        if let Some(value) = self.held() {
            // SAFETY: the collector asks.
            unsafe { value.trace_non_roots() };
        }
    }

    fn run_finalizer(&self) {
        if let Some(value) = self.held() {
            value.run_finalizer();
        }
    }
}

/// A value that lives as long as a key, and does not keep the key alive.
pub struct Ephemeron<K: Trace + ?Sized + 'static, V: Trace + 'static> {
    pair: Gc<Pair<K, V>>,
}

/// A reference to the value of an [`Ephemeron`], whose key it keeps alive.
#[derive(Debug)]
pub struct EphemeronValueRef<'a, K: Trace + ?Sized + 'static, V> {
    _key: Gc<K>,
    value: &'a V,
}

impl<K: Trace + ?Sized, V> Deref for EphemeronValueRef<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.value
    }
}

impl<K: Trace + ?Sized, V: Trace> Ephemeron<K, V> {
    /// Creates an ephemeron on `key`.
    #[must_use]
    pub fn new(key: &Gc<K>, value: V) -> Self {
        let this = Self::empty();
        this.fill(key, value);
        this
    }

    fn empty() -> Self {
        let pair = Pair {
            key: Cell::new(None),
            value: UnsafeCell::new(None),
        };
        Self {
            pair: Gc::of_vtable(pair, Pair::<K, V>::VTABLE),
        }
    }

    fn fill(&self, key: &Gc<K>, value: V) {
        // SAFETY: it is empty, and no reference to a missing value exists.
        unsafe { *self.pair.value.get() = Some(value) };
        self.pair.key.set(Some(key.boxed()));
        local::refer_weakly(key.erased(), self.pair.erased());
    }

    /// Returns the key, if it was not collected.
    #[must_use]
    pub fn key(&self) -> Option<Gc<K>> {
        // SAFETY: W1.
        self.pair.key.get().map(|key| unsafe { handle_to(key) })
    }

    /// Returns the value, if the key was not collected.
    #[must_use]
    pub fn value(&self) -> Option<EphemeronValueRef<'_, K, V>> {
        let _key = self.key()?;
        let value = self.pair.held()?;
        Some(EphemeronValueRef { _key, value })
    }

    /// Reports whether the key was not collected.
    #[must_use]
    pub fn has_value(&self) -> bool {
        self.pair.key.get().is_some()
    }

    pub(crate) fn pair(&self) -> &Gc<Pair<K, V>> {
        &self.pair
    }

    /// Returns the address of the key, for comparisons and hashes.
    pub(crate) fn key_address(&self) -> Option<usize> {
        self.pair.key.get().map(|key| key.cast::<u8>().addr().get())
    }
}

impl<K: Trace + ?Sized, V: Trace> Clone for Ephemeron<K, V> {
    fn clone(&self) -> Self {
        Self {
            pair: self.pair.clone(),
        }
    }
}

impl<K: Trace + ?Sized, V: Trace + Debug> Debug for Ephemeron<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ephemeron")
            .field("key", &self.key_address().map(|at| at as *const ()))
            .field("value", &self.value().as_deref())
            .finish()
    }
}

impl<K: Trace + ?Sized, V: Trace> Finalize for Ephemeron<K, V> {}
// SAFETY: it is one handle.
unsafe impl<K: Trace + ?Sized, V: Trace> Trace for Ephemeron<K, V> {
    custom_trace!(this, mark, {
        mark(&this.pair);
    });
}

/// A reference that does not keep its object alive.
#[repr(transparent)]
pub struct WeakGc<T: Trace + ?Sized + 'static> {
    ephemeron: Ephemeron<T, ()>,
}

impl<T: Trace + ?Sized> WeakGc<T> {
    /// Creates a weak reference to what `value` leads to.
    #[must_use]
    pub fn new(value: &Gc<T>) -> Self {
        Self {
            ephemeron: Ephemeron::new(value, ()),
        }
    }

    /// Creates a weak reference that leads nowhere yet.
    pub(crate) fn empty() -> Self {
        Self {
            ephemeron: Ephemeron::empty(),
        }
    }

    /// Makes it lead to `value` from now on; it must come from [`WeakGc::empty`].
    pub(crate) fn fill(&self, value: &Gc<T>) {
        self.ephemeron.fill(value, ());
    }

    /// Returns a handle, if the object was not collected.
    #[must_use]
    pub fn upgrade(&self) -> Option<Gc<T>> {
        self.ephemeron.key()
    }

    /// Reports whether [`WeakGc::upgrade`] would return a handle.
    #[must_use]
    pub fn is_upgradable(&self) -> bool {
        self.ephemeron.has_value()
    }
}

impl<T: Trace + ?Sized> Clone for WeakGc<T> {
    fn clone(&self) -> Self {
        Self {
            ephemeron: self.ephemeron.clone(),
        }
    }
}

impl<T: Trace + ?Sized> From<Ephemeron<T, ()>> for WeakGc<T> {
    fn from(ephemeron: Ephemeron<T, ()>) -> Self {
        Self { ephemeron }
    }
}

impl<T: Trace + ?Sized> Debug for WeakGc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakGc").field(&self.ephemeron).finish()
    }
}

impl<T: Trace + ?Sized> Finalize for WeakGc<T> {}
// SAFETY: it is one handle.
unsafe impl<T: Trace + ?Sized> Trace for WeakGc<T> {
    custom_trace!(this, mark, {
        mark(&this.ephemeron);
    });
}

impl<T: Trace> PartialEq for WeakGc<T> {
    /// Reports whether both lead to the same object that was not collected.
    fn eq(&self, other: &Self) -> bool {
        match (self.ephemeron.key_address(), other.ephemeron.key_address()) {
            (Some(one), Some(two)) => one == two,
            _ => false,
        }
    }
}

impl<T: Trace> Eq for WeakGc<T> {}

impl<T: Trace> Hash for WeakGc<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A reference that leads nowhere has its own address.
        let own = || (&raw const *self).addr();
        self.ephemeron.key_address().unwrap_or_else(own).hash(state);
    }
}
