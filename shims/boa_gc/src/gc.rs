//! Handles: `Gc<T>`, and `GcErased`, without the type.
//!
//! ```text
//!   Gc<T> ──► │ handles, state │ vtable │ value │        clone: +1      drop: −1, and at 0: queued (`local`)
//! ```
//!
//! P1  A handle leads to an object whose cell is not free (object.H1), and whose value has not ended unless the handle lies
//!     in garbage.
//! P2  Dropping a handle ends nothing at once: an object that loses its last handle ends within a later allocation.
//!     So a list of ten million nodes drops without recursion.
//!
//! Not here: how objects end (`ending`).

use core::any::TypeId;
use core::cmp::Ordering;
use core::fmt::{self, Debug, Display};
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use std::rc::Rc;

use crate::local;
use crate::object::{Erased, GcBox, Head, Of, VTable};
use crate::trace::{Finalize, Trace, Tracer};
use crate::weak::{Ephemeron, WeakGc};

/// A counted pointer to a collected value, which can be changed only through cells.
pub struct Gc<T: Trace + ?Sized + 'static> {
    object: NonNull<GcBox<T>>,
    /// Keeps the handle from being sent to other threads.
    marker: PhantomData<Rc<T>>,
}

impl<T: Trace> Gc<T> {
    /// Creates an object in the heap of the tenant that is entered. May collect a little, and end what nothing refers
    /// to.
    ///
    /// # Panics
    /// With [`OutOfMemory`](crate::skinflint::OutOfMemory) as the payload if there is no memory within the tenant's
    /// limit, even after a collection.
    #[must_use]
    #[inline]
    pub fn new(value: T) -> Self {
        Self::of_vtable(value, Of::<T>::PLAIN)
    }

    /// Creates an object of a type that has more functions.
    #[inline]
    pub(crate) fn of_vtable(value: T, vtable: &'static VTable) -> Self {
        let (object, state) = local::allocate(vtable);
        let object = object.cast::<GcBox<T>>();
        let boxed = GcBox {
            head: Head::new(vtable, state),
            value,
        };
        // SAFETY: the cell is new, and large enough: its size was asked of the vtable.
        unsafe { object.write(boxed) };
        local::allocated(object.cast());
        // SAFETY: the head counts this handle.
        unsafe { Self::from_raw(object) }
    }

    /// Creates an object that has a weak reference to itself. Within `make` that reference cannot be upgraded yet.
    #[must_use]
    pub fn new_cyclic<F>(make: F) -> Self
    where
        F: FnOnce(&WeakGc<T>) -> T,
    {
        let weak = WeakGc::empty();
        let gc = Self::new(make(&weak));
        weak.fill(&gc);
        gc
    }
}

impl<T: Trace + ?Sized> Gc<T> {
    /// Returns the address of the object's box, which keeps its count of this handle.
    #[must_use]
    pub fn into_raw(this: Self) -> NonNull<GcBox<T>> {
        let object = this.object;
        core::mem::forget(this);
        object
    }

    /// Makes a handle from an address.
    ///
    /// # Safety
    /// The address must come from [`Gc::into_raw`], once for each call of it, with the same type or one that `T` can
    /// be read as.
    #[must_use]
    pub const unsafe fn from_raw(object: NonNull<GcBox<T>>) -> Self {
        Self {
            object,
            marker: PhantomData,
        }
    }

    /// Reports whether two handles lead to the same object.
    #[must_use]
    pub fn ptr_eq<U: Trace + ?Sized>(this: &Self, other: &Gc<U>) -> bool {
        core::ptr::addr_eq(this.object.as_ptr(), other.object.as_ptr())
    }

    /// Returns the type that the object was made as.
    #[must_use]
    pub fn type_id(this: &Self) -> TypeId {
        this.head().vtable.type_id
    }

    /// Reports whether the object was made as a `U`.
    #[must_use]
    pub fn is<U: Trace + 'static>(this: &Self) -> bool {
        Gc::type_id(this) == TypeId::of::<U>()
    }

    /// Returns the same handle as a `Gc<U>`, if the object was made as one.
    #[must_use]
    pub fn downcast<U: Trace + 'static>(this: Self) -> Option<Gc<U>> {
        if !Gc::is::<U>(&this) {
            return None;
        }
        // SAFETY: it was made as a `U`.
        Some(unsafe { Gc::cast_unchecked(this) })
    }

    /// Returns the same handle as a `Gc<U>`.
    ///
    /// # Safety
    /// The object must be readable as a `U` whenever the result is used as one.
    #[must_use]
    pub unsafe fn cast_unchecked<U: Trace + 'static>(this: Self) -> Gc<U> {
        let object = Gc::into_raw(this).cast::<GcBox<U>>();
        // SAFETY: the handle is passed on; the caller promises the rest.
        unsafe { Gc::from_raw(object) }
    }

    /// Returns a reference to the same handle as a `Gc<U>`.
    ///
    /// # Safety
    /// The object must be readable as a `U` whenever the result is used as one.
    #[must_use]
    pub unsafe fn cast_ref_unchecked<U: Trace + 'static>(this: &Self) -> &Gc<U> {
        // SAFETY: handles of sized types are a pointer each; a wide one begins with it.
        unsafe { &*(&raw const *this).cast::<Gc<U>>() }
    }

    #[inline]
    pub(crate) fn boxed(&self) -> NonNull<GcBox<T>> {
        self.object
    }

    #[inline]
    pub(crate) fn erased(&self) -> Erased {
        self.object.cast()
    }

    #[inline]
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: P1.
        unsafe { &(*self.object.as_ptr()).head }
    }
}

/// Makes another handle to an object that is known by its address.
///
/// # Safety
/// The object's value must not have ended.
pub(crate) unsafe fn handle_to<T: Trace + ?Sized>(object: NonNull<GcBox<T>>) -> Gc<T> {
    // SAFETY: as the caller promises; the handle is counted first.
    unsafe {
        (*object.as_ptr()).head.take_handle();
        Gc::from_raw(object)
    }
}

impl<T: Trace + ?Sized> Deref for Gc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        debug_assert!(
            local::finalizer_safe(),
            "a value that ends must not look at others: they may have ended"
        );
        // SAFETY: P1.
        unsafe { &(*self.object.as_ptr()).value }
    }
}

impl<T: Trace + ?Sized> Clone for Gc<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.head().take_handle();
        // SAFETY: the new handle is counted.
        unsafe { Self::from_raw(self.object) }
    }
}

impl<T: Trace + ?Sized> Drop for Gc<T> {
    #[inline]
    fn drop(&mut self) {
        if self.head().drop_handle() {
            local::unreferenced(self.erased());
        }
    }
}

impl<T: Trace + ?Sized> Finalize for Gc<T> {}

// SAFETY: a handle is one edge; finalizers stop at it (trace.A3).
unsafe impl<T: Trace + ?Sized> Trace for Gc<T> {
    #[inline]
    unsafe fn trace(&self, tracer: &mut Tracer) {
        tracer.tell(self.erased());
    }

    #[inline]
    unsafe fn trace_non_roots(&self) {
        self.head().count_edge();
    }

    #[inline]
    fn run_finalizer(&self) {}
}

impl<T: Trace + Default> Default for Gc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Trace + ?Sized + PartialEq> PartialEq for Gc<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Trace + ?Sized + Eq> Eq for Gc<T> {}

impl<T: Trace + ?Sized + PartialOrd> PartialOrd for Gc<T> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (**self).partial_cmp(&**other)
    }
}

impl<T: Trace + ?Sized + Ord> Ord for Gc<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<T: Trace + ?Sized + Hash> Hash for Gc<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<T: Trace + ?Sized + Display> Display for Gc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&**self, f)
    }
}

impl<T: Trace + ?Sized + Debug> Debug for Gc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&**self, f)
    }
}

impl<T: Trace + ?Sized> fmt::Pointer for Gc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.object, f)
    }
}

impl<T: Trace + ?Sized> core::borrow::Borrow<T> for Gc<T> {
    fn borrow(&self) -> &T {
        self
    }
}

impl<T: Trace + ?Sized> AsRef<T> for Gc<T> {
    fn as_ref(&self) -> &T {
        self
    }
}

/// Stands for the type in a `GcErased`; no value of it exists, and none is read.
pub(crate) struct Unknown(());

impl Finalize for Unknown {}
// SAFETY: it has no parts. (The collector goes by the object's vtable, object.H3.)
unsafe impl Trace for Unknown {
    empty_trace!();
}

/// A `Gc` without its type.
#[repr(transparent)]
pub struct GcErased(Gc<Unknown>);

impl GcErased {
    /// Forgets the type of a handle.
    #[must_use]
    pub fn new<T: Trace>(gc: Gc<T>) -> Self {
        // SAFETY: nothing reads the object as an `Unknown`: this type does not dereference.
        Self(unsafe { Gc::cast_unchecked(gc) })
    }

    /// Reports whether two handles lead to the same object.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        Gc::ptr_eq(&this.0, &other.0)
    }

    /// Returns the type that the object was made as.
    #[must_use]
    pub fn type_id(&self) -> TypeId {
        Gc::type_id(&self.0)
    }

    /// Reports whether the object was made as a `T`.
    #[must_use]
    pub fn is<T: Trace + 'static>(&self) -> bool {
        Gc::is::<T>(&self.0)
    }

    /// Returns the handle with its type, if the object was made as a `T`.
    #[must_use]
    pub fn downcast<T: Trace + 'static>(self) -> Option<Gc<T>> {
        Gc::downcast(self.0)
    }

    /// Returns the handle with a type.
    ///
    /// # Safety
    /// The object must be readable as a `T`.
    #[must_use]
    pub unsafe fn downcast_unchecked<T: Trace + 'static>(self) -> Gc<T> {
        // SAFETY: as the caller promises.
        unsafe { Gc::cast_unchecked(self.0) }
    }

    /// Returns a reference to the handle with a type.
    ///
    /// # Safety
    /// The object must be readable as a `T`.
    #[must_use]
    pub unsafe fn downcast_ref_unchecked<T: Trace + 'static>(&self) -> &Gc<T> {
        // SAFETY: as the caller promises.
        unsafe { Gc::cast_ref_unchecked(&self.0) }
    }
}

impl Clone for GcErased {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Debug for GcErased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GcErased").field(&self.0.object).finish()
    }
}

impl Finalize for GcErased {}
// SAFETY: it is one handle.
unsafe impl Trace for GcErased {
    custom_trace!(this, mark, {
        mark(&this.0);
    });
}

/// Implements the comparison of [`Ephemeron`], which is a handle.
impl<K: Trace + ?Sized, V: Trace> Ephemeron<K, V> {
    /// Reports whether both are the same ephemeron.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        Gc::ptr_eq(this.pair(), other.pair())
    }
}
