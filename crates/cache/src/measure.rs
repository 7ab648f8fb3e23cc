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
//! U4  A block that is measured while a memory report asks for blocks is noted with its address
//!     (`skinflint_report::named`); elsewhere that costs a load and a branch.
//!
//! Not here: which row of a report a block goes to.

use core::mem::{align_of, size_of};
use std::sync::Arc;

use skinflint_base::sync::{AtomicUsize, Ordering};
use skinflint_report::named;

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
    let bytes = match USABLE.load(Ordering::Relaxed) {
        // SAFETY: as the caller promises; by U2 the C library's allocator is the one that runs.
        0 => unsafe { libc::malloc_usable_size(block.cast_mut().cast()) },
        function => {
            // SAFETY: only `measure_by` writes there, and it wrote a function of this type.
            let function: Usable = unsafe { core::mem::transmute(function) };
            // SAFETY: as the caller promises.
            unsafe { function(block) }
        }
    };
    if !block.is_null() {
        named::block(block, bytes);
    }
    bytes
}

/// Bytes of the heap that a value owns, its own `size_of` not included (whoever holds it counts that).
pub trait HeapBytes {
    /// Whether a value may own blocks. `false` spares a walk over a million pixels that own none.
    const OWNS: bool = true;

    /// Usable bytes of all blocks that go when the value is dropped.
    fn heap_bytes(&self) -> usize;
}

/// Sum of what items own.
pub(crate) fn owned<'a, T: HeapBytes + 'a>(items: impl IntoIterator<Item = &'a T>) -> usize {
    match T::OWNS {
        true => items.into_iter().map(HeapBytes::heap_bytes).sum(),
        false => 0,
    }
}

macro_rules! without_blocks {
    ($($type:ty),*) => {$(
        impl HeapBytes for $type {
            const OWNS: bool = false;

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
        block(self.as_ptr(), self.capacity()) + owned(self.iter())
    }
}

impl<T: HeapBytes> HeapBytes for Box<[T]> {
    fn heap_bytes(&self) -> usize {
        block(self.as_ptr(), self.len()) + owned(self.iter())
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

/// Usable bytes of an `Arc`'s own block, without what the value owns: for who counts the parts of a value apart.
pub fn arc_bytes<T>(value: &Arc<T>) -> usize {
    counted(Arc::as_ptr(value).cast(), align_of::<T>())
}

impl<T: HeapBytes> HeapBytes for Arc<T> {
    fn heap_bytes(&self) -> usize {
        arc_bytes(self) + (**self).heap_bytes()
    }
}

impl<T: HeapBytes> HeapBytes for Arc<[T]> {
    fn heap_bytes(&self) -> usize {
        counted(self.as_ptr().cast(), align_of::<T>()) + owned(self.iter())
    }
}

impl HeapBytes for Arc<str> {
    fn heap_bytes(&self) -> usize {
        counted(self.as_ptr(), 1)
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

impl<T: HeapBytes, const N: usize> HeapBytes for [T; N] {
    const OWNS: bool = T::OWNS;

    fn heap_bytes(&self) -> usize {
        owned(self.iter())
    }
}
