//! Tracing: the edges that types report to the collector, and what is to be done before they end.
//!
//! ```text
//!   T: Trace ── trace(tracer)      each `Gc` in it: tracer.tell(object)
//!            ── trace_non_roots()  each `Gc` in it: count an edge at its object
//!            ── run_finalizer()    finalize() of itself and of what it contains
//! ```
//!
//! A1  The three functions visit the same parts. A part that is left out keeps alive whatever it leads to; nothing is
//!     lost.
//! A2  A part that is being written (a borrowed cell) is left out by all three.
//! A3  `run_finalizer` changes no counts: handles count down when they are dropped (`ending`).
//!
//! Not here: implementations for types of the standard library (`std_types`).

use crate::object::Erased;

/// Collects the edges that are reported.
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub struct Tracer {
    pub(crate) stack: Vec<Erased>,
}

impl Tracer {
    /// Creates a tracer without edges.
    pub(crate) fn new() -> Tracer {
        Tracer { stack: Vec::new() }
    }

    /// Reports an edge to `object`.
    #[inline]
    pub(crate) fn tell(&mut self, object: Erased) {
        self.stack.push(object);
    }
}

/// The work to be done before a collected value ends, in place of `Drop`: the value and what it leads to are still
/// whole.
pub trait Finalize {
    /// Does nothing, unless a type says otherwise.
    fn finalize(&self) {}
}

/// The edges of a type.
///
/// # Safety
/// Each of the three functions must visit every part at most once (A1). Only the collector may call the two that are
/// unsafe.
pub unsafe trait Trace: Finalize {
    /// Reports each `Gc` in it to the tracer.
    ///
    /// # Safety
    /// Only the collector may call it.
    unsafe fn trace(&self, tracer: &mut Tracer);

    /// Counts each `Gc` in it at the object that it leads to.
    ///
    /// # Safety
    /// Only the collector may call it.
    unsafe fn trace_non_roots(&self);

    /// Runs the finalizers of the value and of all its parts.
    fn run_finalizer(&self);
}

/// The three functions of [`Trace`] for a type without edges.
#[macro_export]
macro_rules! empty_trace {
    () => {
        #[inline]
        unsafe fn trace(&self, _: &mut $crate::Tracer) {}

        #[inline]
        unsafe fn trace_non_roots(&self) {}

        #[inline]
        fn run_finalizer(&self) {
            $crate::Finalize::finalize(self);
        }
    };
}

/// The three functions of [`Trace`] from one body that calls `mark` with each part.
///
/// ```
/// use boa_gc::{Finalize, Gc, Trace, custom_trace};
///
/// struct Both { left: Gc<u8>, right: Option<Gc<u8>> }
/// impl Finalize for Both {}
/// // SAFETY: each part is visited once.
/// unsafe impl Trace for Both {
///     custom_trace!(this, mark, {
///         mark(&this.left);
///         mark(&this.right);
///     });
/// }
/// let both = Gc::new(Both { left: Gc::new(1), right: Some(Gc::new(2)) });
/// boa_gc::force_collect();
/// assert_eq!(*both.left + **both.right.as_ref().unwrap(), 3);
/// ```
#[macro_export]
macro_rules! custom_trace {
    ($this:ident, $mark:ident, $visit:expr) => {
        #[inline]
        unsafe fn trace(&self, tracer: &mut $crate::Tracer) {
            let mut $mark = |part: &dyn $crate::Trace| {
                // SAFETY: the implementor of the trait promises that the parts are reported as they should be.
                unsafe { $crate::Trace::trace(part, tracer) }
            };
            let $this = self;
            $visit
        }

        #[inline]
        unsafe fn trace_non_roots(&self) {
            fn $mark<Part: $crate::Trace + ?Sized>(part: &Part) {
                // SAFETY: as above.
                unsafe { $crate::Trace::trace_non_roots(part) };
            }
            let $this = self;
            $visit
        }

        #[inline]
        fn run_finalizer(&self) {
            fn $mark<Part: $crate::Trace + ?Sized>(part: &Part) {
                $crate::Trace::run_finalizer(part);
            }
            $crate::Finalize::finalize(self);
            let $this = self;
            $visit
        }
    };
}
