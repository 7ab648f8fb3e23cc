//! Bytes as the allocator that runs counts them.
//!
//! ```text
//!   value ──► HeapBytes ──► its blocks ──► usable(block) ──► malloc_usable_size of who runs, or measure_by(…)
//! ```
//!
//! U1  A block counts what may be used of it and not what was asked for: `len * size_of` misses a tenth or more,
//!     and just where it hurts.
//! U2  The answer comes from the allocator that gave the block. The default asks the C library's name
//!     `malloc_usable_size`, which a preloaded allocator answers; a program with a `#[global_allocator]` of
//!     its own says so once, at its start, by [`measure_by`].
//! U3  Blocks reached twice (two `Arc`s of one value) are counted twice: whoever counts knows what is shared.
//!
//! Not here: which row of a report a block goes to.

use core::mem::{align_of, size_of};
use std::sync::Arc;

use skinflint_base::sync::{AtomicUsize, Ordering};

/// Bytes that may be used of a live block; 0 for null.
pub type Usable = unsafe fn(*const u8) -> usize;

static USABLE: AtomicUsize = AtomicUsize::new(0);

/// Says how blocks of the program's `#[global_allocator]` are measured (U2). To be called before anything of this
/// crate is used; for ours: `measure_by(skinflint_alloc::usable_size)`.
pub fn measure_by(usable: Usable) {
    // ORDER: a function's address and nothing behind it.
    USABLE.store(usable as usize, Ordering::Relaxed);
}

/// Usable bytes of a block; 0 for null.
///
/// # Safety
/// `block` is null or a live block of the global allocator.
#[inline]
pub unsafe fn usable(block: *const u8) -> usize {
    // ORDER: as in `measure_by`.
    match USABLE.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises; by U2 the C library's allocator is the one that runs.
        0 => unsafe { libc::malloc_usable_size(block.cast_mut().cast()) },
        function => {
            // SAFETY: only `measure_by` writes there, and it wrote a function of this type.
            let function: Usable = unsafe { core::mem::transmute(function) };
            // SAFETY: as the caller promises.
            unsafe { function(block) }
        }
    }
}

/// Bytes of the heap that a value owns, its own `size_of` not included (whoever holds it counts that).
pub trait HeapBytes {
    /// Usable bytes of all blocks that go when the value is dropped.
    fn heap_bytes(&self) -> usize;
}

macro_rules! without_blocks {
    ($($type:ty),*) => {$(
        impl HeapBytes for $type {
            fn heap_bytes(&self) -> usize {
                0
            }
        }
    )*};
}

without_blocks!(
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
    &'static str
);

/// Usable bytes behind a collection's pointer; a dangling one, of a collection without a block, is never asked about.
fn block<T>(pointer: *const T, capacity: usize) -> usize {
    if capacity == 0 || size_of::<T>() == 0 {
        return 0;
    }
    // SAFETY: a collection with room has a live block of the global allocator there.
    unsafe { usable(pointer.cast()) }
}

impl<T: HeapBytes> HeapBytes for Vec<T> {
    fn heap_bytes(&self) -> usize {
        block(self.as_ptr(), self.capacity())
            + self.iter().map(HeapBytes::heap_bytes).sum::<usize>()
    }
}

impl<T: HeapBytes> HeapBytes for Box<[T]> {
    fn heap_bytes(&self) -> usize {
        block(self.as_ptr(), self.len()) + self.iter().map(HeapBytes::heap_bytes).sum::<usize>()
    }
}

impl<T: HeapBytes> HeapBytes for Box<T> {
    fn heap_bytes(&self) -> usize {
        block::<T>(&raw const **self, 1) + (**self).heap_bytes()
    }
}

impl HeapBytes for String {
    fn heap_bytes(&self) -> usize {
        block(self.as_ptr(), self.capacity())
    }
}

impl HeapBytes for Box<str> {
    fn heap_bytes(&self) -> usize {
        block(self.as_ptr(), self.len())
    }
}

/// The block of an `Arc` begins two counts before the value, rounded up to the value's alignment. The standard
/// library does not promise that; `an_arc_is_counted_with_its_counts` fails where it is not so.
fn counted(value: *const u8, align: usize) -> usize {
    let before = (2 * size_of::<usize>()).next_multiple_of(align);
    // SAFETY: the start of the live block of an `Arc`, as said above.
    unsafe { usable(value.wrapping_sub(before)) }
}

impl<T: HeapBytes> HeapBytes for Arc<T> {
    fn heap_bytes(&self) -> usize {
        counted(Arc::as_ptr(self).cast(), align_of::<T>()) + (**self).heap_bytes()
    }
}

impl<T: HeapBytes> HeapBytes for Arc<[T]> {
    fn heap_bytes(&self) -> usize {
        counted(self.as_ptr().cast(), align_of::<T>())
            + self.iter().map(HeapBytes::heap_bytes).sum::<usize>()
    }
}

impl HeapBytes for Arc<str> {
    fn heap_bytes(&self) -> usize {
        counted(self.as_ptr(), 1)
    }
}

impl<T: HeapBytes> HeapBytes for Option<T> {
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, HeapBytes::heap_bytes)
    }
}

impl<A: HeapBytes, B: HeapBytes> HeapBytes for (A, B) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes()
    }
}

impl<A: HeapBytes, B: HeapBytes, C: HeapBytes> HeapBytes for (A, B, C) {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes() + self.1.heap_bytes() + self.2.heap_bytes()
    }
}

impl<T: HeapBytes, const N: usize> HeapBytes for [T; N] {
    fn heap_bytes(&self) -> usize {
        self.iter().map(HeapBytes::heap_bytes).sum()
    }
}
