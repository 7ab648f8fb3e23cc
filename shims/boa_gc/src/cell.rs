//! A cell whose contents may change while its object is shared; the collector skips one that is being written.
//!
//! ```text
//!   GcRefCell │ flag │ value │     flag: 0 unused · n read n times · MAX being written
//! ```
//!
//! B1  There is either one [`GcRefMut`], or any number of [`GcRef`]s, or none: the flag counts them.
//! B2  A cell that is being written reports no edges: its handles then count as coming from outside, so nothing that
//!     they lead to ends.
//!
//! Not here: a barrier. None is needed, since handles are counted (`examine`).

use core::cell::{Cell, UnsafeCell};
use core::cmp::Ordering;
use core::fmt::{self, Debug, Display};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

use crate::trace::{Finalize, Trace, Tracer};

const WRITTEN: usize = usize::MAX;

/// A cell for values in collected objects, borrowed as a `RefCell` is.
pub struct GcRefCell<T: ?Sized + 'static> {
    flag: Cell<usize>,
    value: UnsafeCell<T>,
}

/// The error of a cell that is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BorrowError;

/// The error of a cell that is being read or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BorrowMutError;

impl Display for BorrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cell is being written under an earlier borrow")
    }
}

impl Display for BorrowMutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cell is in use under an earlier borrow")
    }
}

impl std::error::Error for BorrowError {}
impl std::error::Error for BorrowMutError {}

impl<T> GcRefCell<T> {
    /// Creates a cell with a value in it.
    pub const fn new(value: T) -> Self {
        Self {
            flag: Cell::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> GcRefCell<T> {
    /// Borrows the value for reading.
    ///
    /// # Panics
    /// If the cell is being written.
    #[track_caller]
    pub fn borrow(&self) -> GcRef<'_, T> {
        match self.try_borrow() {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }

    /// Borrows the value for writing.
    ///
    /// # Panics
    /// If the cell is being read or written.
    #[track_caller]
    pub fn borrow_mut(&self) -> GcRefMut<'_, T> {
        match self.try_borrow_mut() {
            Ok(value) => value,
            Err(error) => panic!("{error}"),
        }
    }

    /// Borrows the value for reading, if it is not being written.
    ///
    /// # Errors
    /// If the cell is being written.
    #[inline]
    pub fn try_borrow(&self) -> Result<GcRef<'_, T>, BorrowError> {
        if self.flag.get() == WRITTEN {
            return Err(BorrowError);
        }
        let hold = ReadHold::new(&self.flag);
        // SAFETY: the address of a field.
        let value = unsafe { NonNull::new_unchecked(self.value.get()) };
        Ok(GcRef { value, hold })
    }

    /// Borrows the value for writing, if it is not in use.
    ///
    /// # Errors
    /// If the cell is being read or written.
    #[inline]
    pub fn try_borrow_mut(&self) -> Result<GcRefMut<'_, T>, BorrowMutError> {
        if self.flag.get() != 0 {
            return Err(BorrowMutError);
        }
        self.flag.set(WRITTEN);
        Ok(GcRefMut {
            // SAFETY: the address of a field.
            value: unsafe { NonNull::new_unchecked(self.value.get()) },
            hold: WriteHold { flag: &self.flag },
            marker: PhantomData,
        })
    }

    /// Returns the value for the collector, unless it is being written (B2).
    #[inline]
    fn visible(&self) -> Option<&T> {
        // SAFETY: B1: no borrow for writing exists, and while the collector looks nothing else runs.
        (self.flag.get() != WRITTEN).then(|| unsafe { &*self.value.get() })
    }
}

impl<T: Trace + ?Sized> Finalize for GcRefCell<T> {}

// SAFETY: the value is visited by all three or by none (B2): no borrow begins or ends while the collector looks.
unsafe impl<T: Trace + ?Sized> Trace for GcRefCell<T> {
    #[inline]
    unsafe fn trace(&self, tracer: &mut Tracer) {
        if let Some(value) = self.visible() {
            // SAFETY: as the caller promises.
            unsafe { value.trace(tracer) };
        }
    }

    #[inline]
    unsafe fn trace_non_roots(&self) {
        if let Some(value) = self.visible() {
            // SAFETY: as the caller promises.
            unsafe { value.trace_non_roots() };
        }
    }

    #[inline]
    fn run_finalizer(&self) {
        self.finalize();
        if let Some(value) = self.visible() {
            value.run_finalizer();
        }
    }
}

// SAFETY: as for `RefCell`: the owner of the cell has the value, and no other thread looks at the flag.
unsafe impl<T: ?Sized + Send> Send for GcRefCell<T> {}

struct ReadHold<'a> {
    flag: &'a Cell<usize>,
}

impl<'a> ReadHold<'a> {
    #[inline]
    fn new(flag: &'a Cell<usize>) -> Self {
        let readers = flag.get() + 1;
        // Leaked readers add up; one more would look like a writer.
        assert!(readers != WRITTEN, "a cell has too many readers to count");
        flag.set(readers);
        Self { flag }
    }
}

impl Drop for ReadHold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.flag.set(self.flag.get() - 1);
    }
}

struct WriteHold<'a> {
    flag: &'a Cell<usize>,
}

impl Drop for WriteHold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.flag.set(0);
    }
}

/// A value that is being read.
pub struct GcRef<'a, T: ?Sized + 'static> {
    value: NonNull<T>,
    hold: ReadHold<'a>,
}

impl<'a, T: ?Sized> GcRef<'a, T> {
    /// Treats the value as another type.
    ///
    /// # Safety
    /// The value must be one of that type.
    #[must_use]
    pub unsafe fn cast<U>(orig: Self) -> GcRef<'a, U> {
        GcRef {
            value: orig.value.cast(),
            hold: orig.hold,
        }
    }

    /// Adds another reader of the same part.
    #[allow(clippy::should_implement_trait)]
    #[must_use]
    pub fn clone(orig: &GcRef<'a, T>) -> GcRef<'a, T> {
        GcRef {
            value: orig.value,
            hold: ReadHold::new(orig.hold.flag),
        }
    }

    /// Borrows a part of it for reading, if there is one.
    pub fn try_map<U, F>(orig: Self, part: F) -> Option<GcRef<'a, U>>
    where
        U: ?Sized,
        F: FnOnce(&T) -> Option<&U>,
    {
        Some(GcRef {
            value: NonNull::from(part(&orig)?),
            hold: orig.hold,
        })
    }

    /// Borrows a part of it for reading.
    pub fn map<U, F>(orig: Self, part: F) -> GcRef<'a, U>
    where
        U: ?Sized,
        F: FnOnce(&T) -> &U,
    {
        GcRef {
            value: NonNull::from(part(&orig)),
            hold: orig.hold,
        }
    }

    /// Borrows two parts of it for reading.
    pub fn map_split<U, V, F>(orig: Self, parts: F) -> (GcRef<'a, U>, GcRef<'a, V>)
    where
        U: ?Sized,
        V: ?Sized,
        F: FnOnce(&T) -> (&U, &V),
    {
        let (left, right) = parts(&orig);
        let (left, right) = (NonNull::from(left), NonNull::from(right));
        let other = ReadHold::new(orig.hold.flag);
        (
            GcRef {
                value: left,
                hold: other,
            },
            GcRef {
                value: right,
                hold: orig.hold,
            },
        )
    }
}

impl<T: ?Sized> Deref for GcRef<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: B1: it is being read, and the cell outlives the hold.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized + Debug> Debug for GcRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + Display> Display for GcRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&**self, f)
    }
}

/// A value that is being written.
pub struct GcRefMut<'a, T: ?Sized> {
    /// It is not a reference, which as an argument would claim to be the only one for longer than it is.
    value: NonNull<T>,
    hold: WriteHold<'a>,
    marker: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> GcRefMut<'a, T> {
    /// Treats the value as another type.
    ///
    /// # Safety
    /// The value must be one of that type.
    #[must_use]
    pub unsafe fn cast<V>(orig: Self) -> GcRefMut<'a, V> {
        GcRefMut {
            value: orig.value.cast(),
            hold: orig.hold,
            marker: PhantomData,
        }
    }

    /// Borrows a part of it for writing, if there is one.
    pub fn try_map<V, F>(mut orig: GcRefMut<'a, T>, part: F) -> Option<GcRefMut<'a, V>>
    where
        V: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut V>,
    {
        Some(GcRefMut {
            value: NonNull::from(part(&mut orig)?),
            hold: orig.hold,
            marker: PhantomData,
        })
    }

    /// Borrows a part of it for writing.
    pub fn map<V, F>(mut orig: Self, part: F) -> GcRefMut<'a, V>
    where
        V: ?Sized,
        F: FnOnce(&mut T) -> &mut V,
    {
        GcRefMut {
            value: NonNull::from(part(&mut orig)),
            hold: orig.hold,
            marker: PhantomData,
        }
    }
}

impl<T: ?Sized> Deref for GcRefMut<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: B1: this borrow is the only one.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for GcRefMut<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: B1: this borrow is the only one.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized + Debug> Debug for GcRefMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + Display> Display for GcRefMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&**self, f)
    }
}

impl<T: Trace + Clone> Clone for GcRefCell<T> {
    fn clone(&self) -> Self {
        Self::new(self.borrow().clone())
    }
}

impl<T: Default> Default for GcRefCell<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + PartialEq> PartialEq for GcRefCell<T> {
    fn eq(&self, other: &Self) -> bool {
        *self.borrow() == *other.borrow()
    }
}

impl<T: ?Sized + Eq> Eq for GcRefCell<T> {}

impl<T: ?Sized + PartialOrd> PartialOrd for GcRefCell<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (*self.borrow()).partial_cmp(&*other.borrow())
    }
}

impl<T: ?Sized + Ord> Ord for GcRefCell<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (*self.borrow()).cmp(&*other.borrow())
    }
}

impl<T: ?Sized + Debug> Debug for GcRefCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("GcRefCell");
        match self.try_borrow() {
            Ok(value) => shown.field("value", &&*value),
            Err(_) => shown.field("value", &format_args!("being written")),
        };
        shown.finish()
    }
}
