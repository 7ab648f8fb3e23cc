//! The heap size of a data structure, by what the allocator gave for it.
//!
//! ```text
//!   documents.heap_bytes() ─► each block ─► usable ─► sum
//!                          └ a block whose address is hidden ─► what a block of that request is given
//! ```
//!
//! Z1  The allocator is asked for a size, which is never computed from lengths: `len * size_of` misses spare capacity
//!     and what the allocator adds (Firefox: 10 to 20 % of the heap was dark for that reason).
//! Z2  `heap_bytes` is what a value owns, without the value itself, which lies in its owner's block or on a stack. So
//!     nothing is counted twice along a tree of owners.
//! Z3  A value with several owners is counted by each of them: an `Arc` counts its block and what is behind it. Code
//!     that measures several owners of one value decides which of them counts it ([`Seen`]). `Rc` has no
//!     implementation for that reason.
//! Z4  A table of std's `HashMap` hides its address: its block is computed from its capacity, which std documents to
//!     be a lower bound, and then measured by a trial. `BTreeMap` hides its nodes altogether and has no
//!     implementation.
//! Z5  One trait for reporters and caches: a cache is bounded by the same figure that is reported for it.
//!
//! ```
//! use skinflint_reporters::{measure_heap, size::HeapBytes};
//! struct Document { title: String, pages: Vec<Vec<u8>>, number: u32 }
//! measure_heap!(Document { title, pages, number });
//! let document = Document { title: "x".repeat(100), pages: vec![vec![0; 1000]], number: 7 };
//! assert!(document.heap_bytes() >= 1100 + 24);
//! ```
//!
//! Cost: that of `usable` for each block. Thread rules: those of reading the value.
//! Not here: which allocator is asked (`usable`), reporting it (`registry`).

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

pub use crate::usable::{
    Usable, measure_as_asked, measure_by, request, request_at, usable, usable_of_malloc,
};

/// A value that may own memory of the heap.
pub trait HeapBytes {
    /// Whether a value may own blocks. `false` spares a walk over a million pixels that own none.
    const OWNS: bool = true;

    /// Returns the usable bytes of all blocks that are released when the value is dropped, without the value (Z2).
    fn heap_bytes(&self) -> usize;
}

/// Returns the sum of what the items own.
pub fn owned<'a, T: HeapBytes + 'a>(items: impl IntoIterator<Item = &'a T>) -> usize {
    match T::OWNS {
        true => items.into_iter().map(HeapBytes::heap_bytes).sum(),
        false => 0,
    }
}

/// Implements [`HeapBytes`] for a structure, as the sum of the named fields. A field left out is not counted.
#[macro_export]
macro_rules! measure_heap {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::size::HeapBytes for $name {
            fn heap_bytes(&self) -> usize {
                0 $(+ $crate::size::HeapBytes::heap_bytes(&self.$field))*
            }
        }
    };
}

macro_rules! nothing_behind {
    ($($name:ty),*) => {
        $(impl HeapBytes for $name {
            const OWNS: bool = false;

            fn heap_bytes(&self) -> usize {
                0
            }
        })*
    };
}

nothing_behind!(
    (),
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    i128,
    isize,
    f32,
    f64,
    str,
    &'static str,
    std::time::Duration,
    std::time::Instant,
    std::time::SystemTime
);

/// Returns the usable bytes of a block of `count` elements at an address; 0 if there is no block.
fn block<T>(start: *const T, count: usize) -> usize {
    match count * size_of::<T>() {
        0 => 0,
        // SAFETY: the callers' containers have a block at this address if it is not of zero bytes.
        asked => unsafe { usable(start.cast(), asked) },
    }
}

impl<T: HeapBytes> HeapBytes for [T] {
    const OWNS: bool = T::OWNS;

    fn heap_bytes(&self) -> usize {
        owned(self)
    }
}

impl<T: HeapBytes, const N: usize> HeapBytes for [T; N] {
    const OWNS: bool = T::OWNS;

    fn heap_bytes(&self) -> usize {
        self.as_slice().heap_bytes()
    }
}

impl<T: HeapBytes> HeapBytes for Vec<T> {
    fn heap_bytes(&self) -> usize {
        block(self.as_ptr(), self.capacity()) + self.as_slice().heap_bytes()
    }
}

impl HeapBytes for String {
    fn heap_bytes(&self) -> usize {
        block(self.as_ptr(), self.capacity())
    }
}

impl<T: HeapBytes + ?Sized> HeapBytes for Box<T> {
    fn heap_bytes(&self) -> usize {
        let start = std::ptr::from_ref::<T>(self).cast::<u8>();
        block(start, size_of_val::<T>(self)) + (**self).heap_bytes()
    }
}

/// Returns the usable bytes of the block of an `Arc`, which begins two counts before the value, rounded up to the
/// value's alignment. The standard library does not promise that; `an_arc_is_counted_with_its_counts` fails if it is
/// not so.
fn counted(value: *const u8, bytes: usize, align: usize) -> usize {
    let counts = 2 * size_of::<usize>();
    let before = counts.next_multiple_of(align);
    let asked = (before + bytes).next_multiple_of(align.max(size_of::<usize>()));
    // SAFETY: the start of the live block of an `Arc`, as said above.
    unsafe { usable(value.wrapping_sub(before), asked) }
}

/// Returns the usable bytes of an `Arc`'s own block, without what the value owns: for code that counts those apart.
pub fn arc_bytes<T>(value: &Arc<T>) -> usize {
    counted(Arc::as_ptr(value).cast(), size_of::<T>(), align_of::<T>())
}

impl<T: HeapBytes> HeapBytes for Arc<T> {
    fn heap_bytes(&self) -> usize {
        arc_bytes(self) + (**self).heap_bytes()
    }
}

impl<T: HeapBytes> HeapBytes for Arc<[T]> {
    fn heap_bytes(&self) -> usize {
        let own = counted(
            self.as_ptr().cast(),
            size_of_val::<[T]>(self),
            align_of::<T>(),
        );
        own + owned(self.iter())
    }
}

impl HeapBytes for Arc<str> {
    fn heap_bytes(&self) -> usize {
        counted(self.as_ptr(), self.len(), 1)
    }
}

impl<T: HeapBytes> HeapBytes for Option<T> {
    const OWNS: bool = T::OWNS;

    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, HeapBytes::heap_bytes)
    }
}

impl<A: HeapBytes, B: HeapBytes> HeapBytes for (A, B) {
    const OWNS: bool = A::OWNS || B::OWNS;

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes()
    }
}

impl<A: HeapBytes, B: HeapBytes, C: HeapBytes> HeapBytes for (A, B, C) {
    const OWNS: bool = A::OWNS || B::OWNS || C::OWNS;

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes() + self.2.heap_bytes()
    }
}

impl<T: HeapBytes + Copy> HeapBytes for Cell<T> {
    fn heap_bytes(&self) -> usize {
        self.get().heap_bytes()
    }
}

impl<T: HeapBytes> HeapBytes for RefCell<T> {
    fn heap_bytes(&self) -> usize {
        // A value that is being changed at this moment is not counted.
        self.try_borrow().map_or(0, |one| one.heap_bytes())
    }
}

impl<T: HeapBytes> HeapBytes for VecDeque<T> {
    fn heap_bytes(&self) -> usize {
        // The first element may lie anywhere in the block; without elements there is no address in it.
        let inside = match size_of::<T>() {
            0 => std::ptr::null(),
            _ => first(self.iter()),
        };
        let own = request_at(inside, self.capacity() * size_of::<T>());
        own + owned(self.iter())
    }
}

/// Returns an address in the block that holds these elements; null if there are none.
fn first<'a, T: 'a>(mut these: impl Iterator<Item = &'a T>) -> *const u8 {
    these
        .next()
        .map_or(std::ptr::null(), |one| std::ptr::from_ref(one).cast())
}

/// Returns the bytes of a hashbrown table with this capacity and entry size (Z4): buckets, a control byte for each,
/// and a group of 16 at the end.
fn table_bytes(capacity: usize, entry: usize) -> usize {
    let buckets = match capacity {
        0 => return 0,
        1..=3 => 4,
        4..=7 => 8,
        8..=14 => 16,
        more => (more * 8).div_ceil(7).next_power_of_two(),
    };
    (buckets * entry).next_multiple_of(16) + buckets + 16
}

impl<K: HeapBytes, V: HeapBytes, S> HeapBytes for HashMap<K, V, S> {
    fn heap_bytes(&self) -> usize {
        let inside = match size_of::<(K, V)>() {
            0 => std::ptr::null(),
            _ => first(self.keys()),
        };
        let own = request_at(inside, table_bytes(self.capacity(), size_of::<(K, V)>()));
        own + owned(self.keys()) + owned(self.values())
    }
}

impl<K: HeapBytes, S> HeapBytes for HashSet<K, S> {
    fn heap_bytes(&self) -> usize {
        let inside = match size_of::<K>() {
            0 => std::ptr::null(),
            _ => first(self.iter()),
        };
        let own = request_at(inside, table_bytes(self.capacity(), size_of::<K>()));
        own + owned(self.iter())
    }
}

/// The values that have been counted already, for values with several owners (Z3).
#[derive(Default)]
pub struct Seen(HashSet<*const u8>);

impl Seen {
    /// Returns whether this address comes for the first time: then the caller counts it.
    pub fn first<T: ?Sized>(&mut self, value: *const T) -> bool {
        self.0.insert(value.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Document {
        title: String,
        pages: Vec<Vec<u8>>,
        number: u32,
    }
    measure_heap!(Document {
        title,
        pages,
        number
    });

    /// Checks what glibc gave for some blocks: 16-byte steps, 24 at least; 8 of a block's bytes are the next one's
    /// header. A block is 16 bytes longer where what is left of a free chunk could be none of its own: the threads of
    /// the other tests leave such chunks.
    #[track_caller]
    fn gave(bytes: usize, blocks: usize, least: usize) {
        let longest = least + 16 * blocks;
        assert!((least..=longest).contains(&bytes), "{bytes}, {least}");
        assert_eq!((bytes - least) % 16, 0, "{bytes}, {least}");
    }

    #[test]
    fn blocks_are_what_the_allocator_gave() {
        gave(request(1), 1, 24);
        gave(request(100), 1, 104);
        assert_eq!(request(0), 0);
        let mut spare: Vec<u64> = Vec::with_capacity(100);
        spare.push(1);
        gave(spare.heap_bytes(), 1, 808);
        assert_eq!(Vec::<u64>::new().heap_bytes(), 0);
        assert_eq!(Vec::<()>::from([(), ()]).heap_bytes(), 0);
        gave(String::from("abc").heap_bytes(), 1, 24);
        gave(Box::new([0u8; 100]).heap_bytes(), 1, 104);
        let boxed: Box<str> = "x".repeat(1000).into();
        gave(boxed.heap_bytes(), 1, 1000);
        let document = Document {
            title: "x".repeat(100),
            pages: vec![vec![0; 1000], Vec::new()],
            number: 7,
        };
        // 2 × 24 bytes of vectors in one block of 56.
        gave(document.heap_bytes(), 3, 104 + 56 + 1000);
        gave(Some(Box::new(5u64)).heap_bytes(), 1, 24);
        gave((1u8, String::from("a")).heap_bytes(), 1, 24);
    }

    #[test]
    fn shared_values_are_counted_once() {
        let shared = std::rc::Rc::new(String::from("shared"));
        let owners = [shared.clone(), shared];
        let mut seen = Seen::default();
        let counted = owners
            .iter()
            .filter(|one| seen.first(std::rc::Rc::as_ptr(one)));
        assert_eq!(counted.count(), 1);
    }
}
