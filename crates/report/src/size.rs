//! How much of the heap a data structure takes, by what the allocator gave it.
//!
//! ```text
//!   documents.heap_bytes(&ruler) ─► each block ─► malloc_usable_size ─► sum
//!                                 └ a block whose address is hidden ─► what a block of that request is given
//! ```
//!
//! Z1  A size is asked of the allocator and never computed from lengths: `len * size_of` misses spare capacity and
//!     what the allocator adds (Firefox: 10 to 20 % of the heap was dark for that reason).
//! Z2  `heap_bytes` is what lies behind a value, without the value itself: that lies in its owner's block, or on a
//!     stack. So nothing is counted twice along a tree of owners.
//! Z3  What several own (`Rc`, `Arc`) has no implementation: whoever measures decides who counts it ([`Seen`]).
//! Z4  A table of std's `HashMap` hides its address: its block is computed from its capacity, which std documents to
//!     be a lower bound, and then asked for by a trial. `BTreeMap` hides nodes altogether and has none.
//!
//! ```
//! use skinflint_report::{measure_heap, size::{MeasureHeap, Ruler}};
//! struct Document { title: String, pages: Vec<Vec<u8>>, number: u32 }
//! measure_heap!(Document { title, pages, number });
//! let document = Document { title: "x".repeat(100), pages: vec![vec![0; 1000]], number: 7 };
//! assert!(document.heap_bytes(&Ruler::malloc()) >= 1100 + 24);
//! ```
//!
//! Z5  A block that is measured while a measurement asks for blocks is noted with its address (`named`).
//!
//! Cost: 5 to 20 ns a block. Thread rules: those of reading the value.
//! Not here: reporting it (`registry`).

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};

use crate::named;

/// Asks the allocator that made the blocks.
#[derive(Clone, Copy)]
pub struct Ruler {
    /// Usable bytes of a block.
    usable: unsafe fn(*const u8) -> usize,
    /// Usable bytes that a request of so many would get.
    given: fn(usize) -> usize,
}

unsafe fn usable_of_malloc(block: *const u8) -> usize {
    // SAFETY: the caller's block comes from malloc.
    unsafe { libc::malloc_usable_size(block.cast_mut().cast()) }
}

/// Largest request that is tried: freeing a large block changes glibc's threshold for mappings, and so the program.
const LARGEST_TRIAL: usize = 64 << 10;

/// By a trial, given back at once: no table of somebody's size classes is kept here (Z1). Large ones are whole pages,
/// nearly.
fn given_by_malloc(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    if bytes > LARGEST_TRIAL {
        return bytes.next_multiple_of(4096);
    }
    // SAFETY: what is allocated is asked about and freed; null is neither.
    unsafe {
        let block = libc::malloc(bytes);
        if block.is_null() {
            return bytes;
        }
        let usable = libc::malloc_usable_size(block);
        libc::free(block);
        usable
    }
}

impl Ruler {
    /// For programs whose Rust code allocates by `malloc`, which is so unless they have a `#[global_allocator]`.
    /// Whatever stands in for `malloc` is asked.
    pub fn malloc() -> Ruler {
        Ruler {
            usable: usable_of_malloc,
            given: given_by_malloc,
        }
    }

    /// For another global allocator.
    ///
    /// # Safety
    /// `usable` answers for every block of that allocator's; `given` for every size.
    pub unsafe fn new(usable: unsafe fn(*const u8) -> usize, given: fn(usize) -> usize) -> Ruler {
        Ruler { usable, given }
    }

    /// Usable bytes of a block.
    ///
    /// # Safety
    /// A live block of the allocator's.
    pub unsafe fn block(&self, block: *const u8) -> usize {
        // SAFETY: as the caller promises.
        let bytes = unsafe { (self.usable)(block) };
        named::block(block, bytes);
        bytes
    }

    /// Usable bytes that a request is given, of a block whose address is hidden.
    pub fn request(&self, bytes: usize) -> usize {
        let given = (self.given)(bytes);
        named::hidden(given);
        given
    }

    /// The same of a block in which this address lies; null is a hidden one.
    pub fn request_at(&self, inside: *const u8, bytes: usize) -> usize {
        if inside.is_null() {
            return self.request(bytes);
        }
        let given = (self.given)(bytes);
        named::block(inside, given);
        given
    }
}

/// Something that owns memory of the heap.
pub trait MeasureHeap {
    /// Bytes of all blocks behind it, without itself (Z2).
    fn heap_bytes(&self, ruler: &Ruler) -> usize;
}

/// Implements [`MeasureHeap`] for a structure, as the sum of the named fields. A field left out is not counted.
#[macro_export]
macro_rules! measure_heap {
    ($name:ty { $($field:ident),* $(,)? }) => {
        impl $crate::size::MeasureHeap for $name {
            fn heap_bytes(&self, ruler: &$crate::size::Ruler) -> usize {
                0 $(+ $crate::size::MeasureHeap::heap_bytes(&self.$field, ruler))*
            }
        }
    };
}

macro_rules! nothing_behind {
    ($($name:ty),*) => {
        $(impl MeasureHeap for $name {
            fn heap_bytes(&self, _: &Ruler) -> usize {
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
    std::time::Duration,
    std::time::Instant,
    std::time::SystemTime
);

/// A block of `count` elements at an address, if there is one.
fn block<T>(ruler: &Ruler, start: *const T, count: usize) -> usize {
    match count * size_of::<T>() {
        0 => 0,
        // SAFETY: the callers' containers have a block at this address if it is not of zero bytes.
        _ => unsafe { ruler.block(start.cast()) },
    }
}

impl<T: MeasureHeap> MeasureHeap for [T] {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        self.iter().map(|one| one.heap_bytes(ruler)).sum()
    }
}

impl<T: MeasureHeap, const N: usize> MeasureHeap for [T; N] {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        self.as_slice().heap_bytes(ruler)
    }
}

impl<T: MeasureHeap> MeasureHeap for Vec<T> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        block(ruler, self.as_ptr(), self.capacity()) + self.as_slice().heap_bytes(ruler)
    }
}

impl MeasureHeap for String {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        block(ruler, self.as_ptr(), self.capacity())
    }
}

impl<T: MeasureHeap + ?Sized> MeasureHeap for Box<T> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        let start = std::ptr::from_ref::<T>(self).cast::<u8>();
        block(ruler, start, size_of_val::<T>(self)) + (**self).heap_bytes(ruler)
    }
}

impl<T: MeasureHeap> MeasureHeap for Option<T> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        self.as_ref().map_or(0, |one| one.heap_bytes(ruler))
    }
}

impl<A: MeasureHeap, B: MeasureHeap> MeasureHeap for (A, B) {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        self.0.heap_bytes(ruler) + self.1.heap_bytes(ruler)
    }
}

impl<T: MeasureHeap + Copy> MeasureHeap for Cell<T> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        self.get().heap_bytes(ruler)
    }
}

impl<T: MeasureHeap> MeasureHeap for RefCell<T> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        // What is being changed at this moment is not looked at.
        self.try_borrow().map_or(0, |one| one.heap_bytes(ruler))
    }
}

impl<T: MeasureHeap> MeasureHeap for VecDeque<T> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        // Its first element may lie anywhere in its block; without elements there is no address of it.
        let inside = match size_of::<T>() {
            0 => std::ptr::null(),
            _ => first(self.iter()),
        };
        let own = ruler.request_at(inside, self.capacity() * size_of::<T>());
        own + self.iter().map(|one| one.heap_bytes(ruler)).sum::<usize>()
    }
}

/// An address in the block that holds these; null if there are none.
fn first<'a, T: 'a>(mut these: impl Iterator<Item = &'a T>) -> *const u8 {
    these
        .next()
        .map_or(std::ptr::null(), |one| std::ptr::from_ref(one).cast())
}

/// Bytes of a table of hashbrown's for so many entries of a size (Z4): buckets, a byte of control for each, and a
/// group of 16 at the end.
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

impl<K: MeasureHeap, V: MeasureHeap, S> MeasureHeap for HashMap<K, V, S> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        let inside = match size_of::<(K, V)>() {
            0 => std::ptr::null(),
            _ => first(self.keys()),
        };
        let own = ruler.request_at(inside, table_bytes(self.capacity(), size_of::<(K, V)>()));
        let each = |(key, value): (&K, &V)| key.heap_bytes(ruler) + value.heap_bytes(ruler);
        own + self.iter().map(each).sum::<usize>()
    }
}

impl<K: MeasureHeap, S> MeasureHeap for HashSet<K, S> {
    fn heap_bytes(&self, ruler: &Ruler) -> usize {
        let inside = match size_of::<K>() {
            0 => std::ptr::null(),
            _ => first(self.iter()),
        };
        let own = ruler.request_at(inside, table_bytes(self.capacity(), size_of::<K>()));
        own + self.iter().map(|key| key.heap_bytes(ruler)).sum::<usize>()
    }
}

/// What has been counted already, for values that several own (Z3).
#[derive(Default)]
pub struct Seen(HashSet<*const u8>);

impl Seen {
    /// Whether this address comes for the first time: then whoever asks counts it.
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

    #[test]
    fn blocks_are_what_the_allocator_gave() {
        let ruler = Ruler::malloc();
        // glibc: 16-byte steps, 24 at least; 8 of a block's bytes are the next one's header.
        assert_eq!(ruler.request(1), 24);
        assert_eq!(ruler.request(100), 104);
        assert_eq!(ruler.request(0), 0);
        let mut spare: Vec<u64> = Vec::with_capacity(100);
        spare.push(1);
        assert_eq!(spare.heap_bytes(&ruler), 808);
        assert_eq!(Vec::<u64>::new().heap_bytes(&ruler), 0);
        assert_eq!(Vec::<()>::from([(), ()]).heap_bytes(&ruler), 0);
        assert_eq!(String::from("abc").heap_bytes(&ruler), 24);
        assert_eq!(Box::new([0u8; 100]).heap_bytes(&ruler), 104);
        let boxed: Box<str> = "x".repeat(1000).into();
        assert_eq!(boxed.heap_bytes(&ruler), 1000);
        let document = Document {
            title: "x".repeat(100),
            pages: vec![vec![0; 1000], Vec::new()],
            number: 7,
        };
        // 2 × 24 bytes of vectors in one block of 56.
        assert_eq!(document.heap_bytes(&ruler), 104 + 56 + 1000);
        assert_eq!(Some(Box::new(5u64)).heap_bytes(&ruler), 24);
        assert_eq!((1u8, String::from("a")).heap_bytes(&ruler), 24);
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
