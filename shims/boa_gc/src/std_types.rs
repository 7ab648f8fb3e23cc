//! Edges of types that are not ours: those of the standard library, and of crates that Boa uses.
//!
//! ```text
//!   leaves!      no edges            each!   what an iterator gives       functions!   pointers to code, tuples
//! ```
//!
//! Each list is the interface of boa_gc 0.22; the rules are those of `trace` (trace.A1 to trace.A3).
//!
//! Not here: `Gc`, weak references and cells, which have rules of their own.

use core::any::TypeId;
use core::cell::{Cell, OnceCell};
use core::hash::{BuildHasher, Hash};
use core::marker::PhantomData;
use core::num;
use std::borrow::{Cow, ToOwned};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic;
use std::time::{Instant, SystemTime};

use crate::trace::{Finalize, Trace, Tracer};

/// Types without edges.
macro_rules! leaves {
    ($($leaf:ty),* $(,)?) => {$(
        impl Finalize for $leaf {}
        // SAFETY: there is no `Gc` in it.
        unsafe impl Trace for $leaf {
            empty_trace!();
        }
    )*};
}

leaves!(
    (),
    bool,
    char,
    str,
    String,
    Rc<str>,
    Path,
    PathBuf,
    TypeId,
    Instant,
    SystemTime,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    f32,
    f64,
    num::NonZeroI8,
    num::NonZeroI16,
    num::NonZeroI32,
    num::NonZeroI64,
    num::NonZeroI128,
    num::NonZeroIsize,
    num::NonZeroU8,
    num::NonZeroU16,
    num::NonZeroU32,
    num::NonZeroU64,
    num::NonZeroU128,
    num::NonZeroUsize,
    atomic::AtomicBool,
    atomic::AtomicI8,
    atomic::AtomicI16,
    atomic::AtomicI32,
    atomic::AtomicI64,
    atomic::AtomicIsize,
    atomic::AtomicU8,
    atomic::AtomicU16,
    atomic::AtomicU32,
    atomic::AtomicU64,
    atomic::AtomicUsize,
    std::fs::File,
    std::fs::FileType,
    std::net::TcpStream,
    std::net::UdpSocket,
);

impl<T: ?Sized> Finalize for &'static T {}
// SAFETY: what a static reference leads to is in no heap, or leaked and so kept by its count.
unsafe impl<T: ?Sized> Trace for &'static T {
    empty_trace!();
}

impl<T> Finalize for PhantomData<T> {}
// SAFETY: there is nothing in it.
unsafe impl<T> Trace for PhantomData<T> {
    empty_trace!();
}

/// Types whose edges are those of the items of an iteration over a reference.
macro_rules! each {
    ($([$($generics:tt)*] $whole:ty, $item:pat => $($part:ident),+;)*) => {$(
        impl<$($generics)*> Finalize for $whole {}
        // SAFETY: each item is visited, once.
        unsafe impl<$($generics)*> Trace for $whole {
            custom_trace!(this, mark, {
                #[allow(clippy::explicit_iter_loop)]
                for $item in this.iter() {
                    $(mark($part);)+
                }
            });
        }
    )*};
}

each!(
    [T: Trace, const N: usize] [T; N], item => item;
    [T: Trace] Box<[T]>, item => item;
    [T: Trace] Vec<T>, item => item;
    [T: Trace] VecDeque<T>, item => item;
    [T: Trace] Option<T>, item => item;
    [T: Eq + Hash + Trace] LinkedList<T>, item => item;
    [T: Ord + Trace] BinaryHeap<T>, item => item;
    [T: Trace] BTreeSet<T>, item => item;
    [K: Trace, V: Trace] BTreeMap<K, V>, (key, value) => key, value;
    [T: Eq + Hash + Trace, S: BuildHasher] HashSet<T, S>, item => item;
    [K: Eq + Hash + Trace, V: Trace, S: BuildHasher] HashMap<K, V, S>, (key, value) => key, value;
    [K: Eq + Hash + Trace, V: Trace, S: BuildHasher] hashbrown::HashMap<K, V, S>, (key, value) => key, value;
);

#[cfg(feature = "thin-vec")]
each!([T: Trace] thin_vec::ThinVec<T>, item => item;);
#[cfg(feature = "arrayvec")]
each!([T: Trace, const N: usize] arrayvec::ArrayVec<T, N>, item => item;);
#[cfg(feature = "boa_string")]
leaves!(boa_string::JsString);
#[cfg(feature = "icu")]
leaves!(icu_locale_core::LanguageIdentifier, icu_locale_core::Locale);

#[cfg(feature = "either")]
impl<L: Trace, R: Trace> Finalize for either::Either<L, R> {}
#[cfg(feature = "either")]
// SAFETY: the side that is there is visited.
unsafe impl<L: Trace, R: Trace> Trace for either::Either<L, R> {
    custom_trace!(this, mark, {
        match this {
            either::Either::Left(left) => mark(left),
            either::Either::Right(right) => mark(right),
        }
    });
}

impl<T: Trace, E: Trace> Finalize for Result<T, E> {}
// SAFETY: the side that is there is visited.
unsafe impl<T: Trace, E: Trace> Trace for Result<T, E> {
    custom_trace!(this, mark, {
        match this {
            Ok(value) => mark(value),
            Err(error) => mark(error),
        }
    });
}

impl<T: Trace + ?Sized> Finalize for Box<T> {}
// SAFETY: what is in the box is visited; written out, since it may have no size.
unsafe impl<T: Trace + ?Sized> Trace for Box<T> {
    #[inline]
    unsafe fn trace(&self, tracer: &mut Tracer) {
        // SAFETY: as the caller promises.
        unsafe { (**self).trace(tracer) };
    }

    #[inline]
    unsafe fn trace_non_roots(&self) {
        // SAFETY: as the caller promises.
        unsafe { (**self).trace_non_roots() };
    }

    #[inline]
    fn run_finalizer(&self) {
        self.finalize();
        (**self).run_finalizer();
    }
}

impl<T: ToOwned + Trace + ?Sized> Finalize for Cow<'static, T> {}
// SAFETY: what is borrowed is static, what is owned is visited.
unsafe impl<T: ToOwned + Trace + ?Sized> Trace for Cow<'static, T>
where
    T::Owned: Trace,
{
    custom_trace!(this, mark, {
        if let Cow::Owned(owned) = this {
            mark(owned);
        }
    });
}

impl<T: Trace + Default> Finalize for Cell<T> {}
// SAFETY: the value is visited while a default one is in its place, and put back.
unsafe impl<T: Trace + Default> Trace for Cell<T> {
    custom_trace!(this, mark, {
        let value = this.take();
        mark(&value);
        this.set(value);
    });
}

impl<T: Trace> Finalize for OnceCell<T> {}
// SAFETY: the value is visited if there is one.
unsafe impl<T: Trace> Trace for OnceCell<T> {
    custom_trace!(this, mark, {
        if let Some(value) = this.get() {
            mark(value);
        }
    });
}

/// Pointers to functions with this many arguments, and tuples of this many parts.
macro_rules! functions {
    ($($part:ident)*) => {
        functions!(@one $($part)*; extern "Rust" fn($($part),*) -> Ret);
        functions!(@one $($part)*; extern "C" fn($($part),*) -> Ret);
        functions!(@one $($part)*; unsafe extern "Rust" fn($($part),*) -> Ret);
        functions!(@one $($part)*; unsafe extern "C" fn($($part),*) -> Ret);
        functions!(@more $($part)*);
    };
    (@one $($part:ident)*; $function:ty) => {
        impl<Ret $(, $part)*> Finalize for $function {}
        // SAFETY: code contains no `Gc`.
        unsafe impl<Ret $(, $part)*> Trace for $function {
            empty_trace!();
        }
    };
    (@more) => {};
    (@more $($part:ident)+) => {
        functions!(@one $($part)+; extern "C" fn($($part),+, ...) -> Ret);
        functions!(@one $($part)+; unsafe extern "C" fn($($part),+, ...) -> Ret);

        impl<$($part),+> Finalize for ($($part,)+) {}
        // SAFETY: each part is visited, once.
        #[allow(non_snake_case)]
        unsafe impl<$($part: Trace),+> Trace for ($($part,)+) {
            custom_trace!(this, mark, {
                let ($($part,)+) = this;
                $(mark($part);)+
            });
        }
    };
}

functions!();
functions!(A);
functions!(A B);
functions!(A B C);
functions!(A B C D);
functions!(A B C D E);
functions!(A B C D E F);
functions!(A B C D E F G);
functions!(A B C D E F G H);
functions!(A B C D E F G H I);
functions!(A B C D E F G H I J);
functions!(A B C D E F G H I J K);
functions!(A B C D E F G H I J K L);
