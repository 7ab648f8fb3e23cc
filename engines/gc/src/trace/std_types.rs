//! Types of the standard library in a heap.
//!
//! ```text
//!   numbers, Cell of them   no edges          Option, arrays, tuples   as their parts
//!   String, Box<str>        dropped anywhere  Vec, Box, maps           their parts', and dropped anywhere at least
//! ```
//!
//! I1  Types that own memory of `malloc` may give it back on any thread: so all of these are [`Finalize::Any`] at
//!     least.
//!
//! Not here: types with interior mutability over edges, which have no barrier (`Slot`, `Locked` instead).

use core::cell::{Cell, RefCell};
use core::hash::BuildHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::values::{Family, System, Trace};
use crate::heap::incremental::PART_EDGES;
use crate::heap::kind::Finalize;
use crate::heap::tracer::Tracer;

macro_rules! leaves {
    ($finalize:expr => $($name:ty),* $(,)?) => {$(
        // SAFETY: values.J2.
        unsafe impl Trace for $name {
            const EDGES: bool = false;
            const FINALIZE: Finalize = $finalize;
            fn trace(&self, _: &mut Tracer) {}
        }

        // SAFETY: values.J2.
        unsafe impl System for $name {}

        impl Family for $name {
            type At<'gc> = $name;
        }
    )*};
}

leaves!(Finalize::Nothing => (), bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);
leaves!(Finalize::Nothing => Cell<bool>, Cell<char>, Cell<u8>, Cell<u16>, Cell<u32>, Cell<u64>, Cell<usize>);
leaves!(Finalize::Nothing => Cell<i8>, Cell<i16>, Cell<i32>, Cell<i64>, Cell<isize>, Cell<f32>, Cell<f64>);
leaves!(Finalize::Nothing => &'static str);
leaves!(Finalize::Any => String, Box<str>);

// SAFETY: values.J2: what is 'static holds no edges.
unsafe impl<T: 'static + Trace> Trace for RefCell<T> {
    const EDGES: bool = false;
    const FINALIZE: Finalize = T::FINALIZE;
    fn trace(&self, _: &mut Tracer) {}
}

// SAFETY: values.J2.
unsafe impl<T: 'static + Trace> System for RefCell<T> {}

// SAFETY: values.J1: its part is told.
unsafe impl<T: Trace> Trace for Option<T> {
    const EDGES: bool = T::EDGES;
    const FINALIZE: Finalize = T::FINALIZE;
    const WEAK: bool = T::WEAK;
    #[inline]
    fn trace(&self, tracer: &mut Tracer) {
        T::trace_if(self.as_ref(), tracer);
    }
    fn name_edges(&self, tracer: &mut Tracer) {
        if let Some(part) = self {
            part.name_edges(tracer);
        }
    }
}

/// Tells the parts of a list, by number.
fn number_each<'a, T: Trace + 'a>(parts: impl IntoIterator<Item = &'a T>, tracer: &mut Tracer) {
    for (index, part) in parts.into_iter().enumerate() {
        tracer.numbered(index, |tracer| part.name_edges(tracer));
    }
}

/// Tells the parts of a map, by number, key and value.
fn number_pairs<'a, K: Trace + 'a, V: Trace + 'a>(
    pairs: impl IntoIterator<Item = (&'a K, &'a V)>,
    tracer: &mut Tracer,
) {
    for (index, (key, value)) in pairs.into_iter().enumerate() {
        tracer.numbered(index, |tracer| {
            tracer.named("key", |tracer| key.name_edges(tracer));
            tracer.named("value", |tracer| value.name_edges(tracer));
        });
    }
}

macro_rules! wholes {
    ($($finalize:expr, [$($parts:tt)*] $name:ty, $first:ident $(, $more:ident)* => $tell:expr $(, $names:expr)?;)*) => {$(
        // SAFETY: values.J1: every part is told; I1.
        unsafe impl<$($parts)*> Trace for $name {
            const EDGES: bool = $first::EDGES $(|| $more::EDGES)*;
            const WEAK: bool = $first::WEAK $(|| $more::WEAK)*;
            const FINALIZE: Finalize = $finalize.and($first::FINALIZE)$(.and($more::FINALIZE))*;
            fn trace(&self, tracer: &mut Tracer) {
                // A part without edges, such as a byte, is not visited.
                if Self::EDGES {
                    let tell: fn(&Self, &mut Tracer) = $tell;
                    tell(self, tracer);
                }
            }
            $(fn name_edges(&self, tracer: &mut Tracer) {
                if Self::EDGES {
                    let tell: fn(&Self, &mut Tracer) = $names;
                    tell(self, tracer);
                }
            })?
        }
    )*};
}

use Finalize::{Any, Nothing};

wholes! {
    Nothing, [T: Trace, E: Trace] Result<T, E>, T, E => |whole, t| match whole {
        Ok(part) => part.trace(t),
        Err(part) => part.trace(t),
    }, |whole, t| match whole {
        Ok(part) => part.name_edges(t),
        Err(part) => part.name_edges(t),
    };
    Nothing, [T: Trace, const N: usize] [T; N], T => |whole, t| whole.iter().for_each(|part| part.trace(t)), |whole, t| number_each(whole, t);
    Any, [T: Trace] BTreeSet<T>, T => |whole, t| whole.iter().for_each(|part| part.trace(t)), |whole, t| number_each(whole, t);
    Any, [K: Trace, V: Trace] BTreeMap<K, V>, K, V => |whole, t| whole.iter().for_each(|(key, value)| {
        key.trace(t);
        value.trace(t);
    }), |whole, t| number_pairs(whole, t);
    Any, [T: Trace, S: BuildHasher + Send + 'static] HashSet<T, S>, T => |whole, t| whole.iter().for_each(|part| part.trace(t)), |whole, t| number_each(whole, t);
    Any, [K: Trace, V: Trace, S: BuildHasher + Send + 'static] HashMap<K, V, S>, K, V => |whole, t| whole.iter().for_each(|(key, value)| {
        key.trace(t);
        value.trace(t);
    }), |whole, t| number_pairs(whole, t);
    Nothing, [A: Trace, B: Trace] (A, B), A, B => |whole, t| {
        whole.0.trace(t);
        whole.1.trace(t);
    }, |whole, t| {
        t.named("0", |t| whole.0.name_edges(t));
        t.named("1", |t| whole.1.name_edges(t));
    };
    Nothing, [A: Trace, B: Trace, C: Trace] (A, B, C), A, B, C => |whole, t| {
        whole.0.trace(t);
        whole.1.trace(t);
        whole.2.trace(t);
    }, |whole, t| {
        t.named("0", |t| whole.0.name_edges(t));
        t.named("1", |t| whole.1.name_edges(t));
        t.named("2", |t| whole.2.name_edges(t));
    };
}

macro_rules! lists {
    ($($name:ty;)*) => {$(
        // SAFETY: values.J1: every part is told; I1.
        unsafe impl<T: Trace> Trace for $name {
            const EDGES: bool = T::EDGES;
            const FINALIZE: Finalize = Any.and(T::FINALIZE);
            const PARTS: bool = T::EDGES;
            const WEAK: bool = T::WEAK;
            fn trace(&self, tracer: &mut Tracer) {
                if Self::EDGES {
                    self.iter().for_each(|part| part.trace(tracer));
                }
            }
            fn trace_part(&self, from: usize, tracer: &mut Tracer) -> Option<usize> {
                if !Self::EDGES {
                    return None;
                }
                // Skipping costs the same however many parts there are.
                let parts = self.iter().skip(from).take(PART_EDGES);
                parts.for_each(|part| part.trace(tracer));
                let next = from.saturating_add(PART_EDGES);
                (next < self.len()).then_some(next)
            }
            fn name_edges(&self, tracer: &mut Tracer) {
                if Self::EDGES {
                    number_each(self, tracer);
                }
            }
        }
    )*};
}

lists! {
    Vec<T>;
    VecDeque<T>;
    Box<[T]>;
}

// SAFETY: values.J1: what it holds is told; I1.
unsafe impl<T: Trace> Trace for Box<T> {
    const EDGES: bool = T::EDGES;
    const FINALIZE: Finalize = Any.and(T::FINALIZE);
    const PARTS: bool = T::PARTS;
    const WEAK: bool = T::WEAK;
    fn trace(&self, tracer: &mut Tracer) {
        if Self::EDGES {
            (**self).trace(tracer);
        }
    }
    fn trace_part(&self, from: usize, tracer: &mut Tracer) -> Option<usize> {
        (**self).trace_part(from, tracer)
    }
    fn name_edges(&self, tracer: &mut Tracer) {
        if Self::EDGES {
            (**self).name_edges(tracer);
        }
    }
}

macro_rules! system_wholes {
    ($([$($parts:tt)*] $name:ty;)*) => {$(
        // SAFETY: its parts have no edges to a tenant's objects.
        unsafe impl<$($parts)*> System for $name {}
    )*};
}

system_wholes! {
    [T: System] Option<T>;
    [T: System, const N: usize] [T; N];
    [T: System] Vec<T>;
    [T: System] VecDeque<T>;
    [T: System] Box<T>;
    [T: System] Box<[T]>;
    [T: System] BTreeSet<T>;
    [K: System, V: System] BTreeMap<K, V>;
    [A: System, B: System] (A, B);
}

impl<F: Family> Family for Vec<F> {
    type At<'gc> = Vec<F::At<'gc>>;
}

impl<F: Family> Family for Option<F> {
    type At<'gc> = Option<F::At<'gc>>;
}

impl<F: Family, const N: usize> Family for [F; N] {
    type At<'gc> = [F::At<'gc>; N];
}
