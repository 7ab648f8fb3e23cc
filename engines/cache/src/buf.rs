//! A growable buffer whose capacity is all that its size class has.
//!
//! ```text
//!   push ─► room? ─► write                  capacity × size_of(T) == block.bytes() − less than one T
//!             │ no                          growth: twice what was planned, and then what its class has beyond
//!             ▼
//!           Block::grow(max(needed, 2 × planned))
//! ```
//!
//! V1  `items[..len]` are initialised; `len <= capacity`; the block has room for `capacity` items.
//! V2  Growth is exponential: n pushes move at most 2 n items. The same holds for `reserve`, called again and again.
//! V3  No memory is an error of `try_` functions; the others end the program as `Vec` does, by `handle_alloc_error`.
//! V4  The planned sizes are `Vec`'s capacities for the same calls; what a class has beyond the plan is used and does
//!     not change it. So step k is of the class that `Vec` is given for its step k, and comes no earlier: there are no
//!     more steps than with `Vec`, and the allocator gives no more bytes in all of them together, whatever the lengths.
//!
//! The difference from `Vec`: `Vec` asks for 4, 8, 16 … items, and where item sizes are not powers of two, or a
//! capacity was given, what its class has beyond that is lost (the nsTArray lesson). A `Vec` that grows by
//! `reserve_exact` grows just-enough, with one copy for each call; there is no such call here. Rejected: twice the
//! capacity, which is simpler. Each step is then larger than `Vec`'s by the rests of all earlier steps (1.6 times its
//! bytes for items of 24 bytes beneath our allocator, where a second call for the rest of each step came on top).
//!
//! Not here: sizes (`fill`); insertion in the middle and drains, for which `as_mut_slice` and `Vec` exist.

use core::alloc::Layout;
use core::mem::{self, MaybeUninit, size_of};
use core::ops::{Deref, DerefMut};
use core::{fmt, ptr, slice};
use std::io;
use std::marker::PhantomData;

use crate::fill::Block;
pub use crate::fill::Refused;
use crate::measure::{HeapBytes, owned};

/// Returns the least number of items of a first block, the same as `Vec`'s.
const fn few<T>() -> usize {
    match size_of::<T>() {
        1 => 8,
        2..=1_024 => 4,
        _ => 1,
    }
}

/// A growable buffer of items, like `Vec`. Threads: as `Vec<T>`.
///
/// ```
/// use skinflint_cache::Buf;
///
/// let mut buf = Buf::new();
/// buf.extend_from_slice(b"as long as ");
/// buf.extend_from_slice(b"a piece of string");
/// assert_eq!(buf.as_slice(), b"as long as a piece of string");
/// // As many steps as `Vec` at most, and what the class has beyond them.
/// assert!(buf.capacity() >= 27);
/// // Said beforehand, the block is used to the end of its class.
/// assert_eq!(Buf::<u8>::with_capacity(27).slop_bytes(), 0);
/// ```
pub struct Buf<T> {
    block: Option<Block>,
    len: usize,
    /// The bytes that were planned, without what the class has beyond them (V4).
    planned: usize,
    items: PhantomData<T>,
}

impl<T> Buf<T> {
    /// Creates a buffer without a block.
    pub const fn new() -> Buf<T> {
        Buf {
            block: None,
            len: 0,
            planned: 0,
            items: PhantomData,
        }
    }

    /// Creates a buffer with room for `items` items, and for what else their size class has.
    ///
    /// # Errors
    /// The allocator has no memory.
    pub fn try_with_capacity(items: usize) -> Result<Buf<T>, Refused> {
        let mut buf = Buf::new();
        if items > 0 && size_of::<T>() > 0 {
            buf.planned = bytes_of::<T>(items)?;
            buf.block = Some(Block::take(buf.planned, align_of::<T>())?);
        }
        Ok(buf)
    }

    /// Does what [`Buf::try_with_capacity`] does; without memory the program ends (V3).
    pub fn with_capacity(items: usize) -> Buf<T> {
        or_end(Buf::try_with_capacity(items))
    }

    /// Returns the number of items that there is room for.
    #[inline]
    pub fn capacity(&self) -> usize {
        if size_of::<T>() == 0 {
            return usize::MAX;
        }
        self.block
            .as_ref()
            .map_or(0, |b| b.bytes() / size_of::<T>())
    }

    #[inline]
    fn start(&self) -> *mut T {
        match &self.block {
            Some(block) => block.start().as_ptr().cast(),
            None => ptr::dangling_mut(),
        }
    }

    /// Adds an item. Cost: a comparison and a write; now and then a block (V2).
    #[inline]
    pub fn push(&mut self, item: T) {
        if self.len == self.capacity() {
            or_end(self.grow(1));
        }
        // SAFETY: there is room for one more (V1).
        unsafe { self.start().add(self.len).write(item) };
        self.len += 1;
    }

    /// Removes and returns the last item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: it was initialised, and no longer counts (V1).
        Some(unsafe { self.start().add(self.len).read() })
    }

    /// Makes room for `more` items beyond the length; the planned size at least doubles if there was too little (V4).
    ///
    /// # Errors
    /// The allocator has no memory.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), Refused> {
        if self.capacity() - self.len < more {
            self.grow(more)?;
        }
        Ok(())
    }

    /// Does what [`Buf::try_reserve`] does; without memory the program ends (V3).
    pub fn reserve(&mut self, more: usize) {
        or_end(self.try_reserve(more));
    }

    /// Makes room for `more` items beyond the length, without doubling.
    pub(crate) fn reserve_few(&mut self, more: usize) {
        if self.capacity() - self.len >= more {
            return;
        }
        let bytes = (self.len + more) * size_of::<T>();
        match &mut self.block {
            Some(block) => or_end(block.grow(bytes, size_of::<T>())),
            none => *none = Some(or_end(Block::begin(bytes, size_of::<T>(), align_of::<T>()))),
        }
        self.planned = bytes;
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) -> Result<(), Refused> {
        let needed = self
            .len
            .checked_add(more)
            .ok_or(Refused { bytes: usize::MAX })?;
        let needed = bytes_of::<T>(needed)?;
        match &mut self.block {
            Some(block) => {
                let bytes = needed.max(self.planned.saturating_mul(2));
                // Where twice the size cannot be had, the needed size may be.
                self.planned = match block.grow(bytes, size_of::<T>()) {
                    Ok(()) => bytes,
                    Err(_) => block.grow(needed, size_of::<T>()).map(|()| needed)?,
                };
            }
            none => {
                self.planned = needed.max(few::<T>() * size_of::<T>());
                *none = Some(Block::begin(self.planned, size_of::<T>(), align_of::<T>())?);
            }
        }
        Ok(())
    }

    /// Gives back what is not used, except what the size class of the rest has.
    pub fn shrink_to_fit(&mut self) {
        if self.len == 0 {
            (self.block, self.planned) = (None, 0);
        } else if let (Some(block), Ok(bytes)) = (&mut self.block, bytes_of::<T>(self.len)) {
            block.shrink(bytes);
            self.planned = bytes;
        }
    }

    /// Keeps the first `len` items.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            let rest =
                ptr::slice_from_raw_parts_mut(self.start().wrapping_add(len), self.len - len);
            self.len = len;
            // SAFETY: initialised, and no longer counted: a panic in a drop leaks, and drops nothing twice.
            unsafe { ptr::drop_in_place(rest) };
        }
    }

    /// Drops all items; keeps the block.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Returns the items.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: V1.
        unsafe { slice::from_raw_parts(self.start(), self.len) }
    }

    /// Returns the items.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: V1.
        unsafe { slice::from_raw_parts_mut(self.start(), self.len) }
    }

    /// Returns the room behind the items.
    pub fn spare(&mut self) -> &mut [MaybeUninit<T>] {
        let room = self.capacity() - self.len;
        // SAFETY: V1; what is behind the items may hold anything.
        unsafe { slice::from_raw_parts_mut(self.start().add(self.len).cast(), room) }
    }

    /// Sets the number of items.
    ///
    /// # Safety
    /// The first `len` items are initialised, and there is room for them.
    pub unsafe fn set_len(&mut self, len: usize) {
        debug_assert!(len <= self.capacity());
        self.len = len;
    }

    /// Returns the bytes of the block by the allocator's count.
    pub fn usable_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, Block::usable)
    }

    /// Returns the bytes that the allocator gave and that no item can have.
    pub fn slop_bytes(&self) -> usize {
        match &self.block {
            Some(block) => block.usable() - self.capacity() * size_of::<T>(),
            None => 0,
        }
    }
}

impl<T: Copy> Buf<T> {
    /// Appends copies of items.
    pub fn extend_from_slice(&mut self, items: &[T]) {
        self.reserve(items.len());
        // SAFETY: there is room (V1), and a borrow of a slice is not of our block.
        unsafe {
            ptr::copy_nonoverlapping(items.as_ptr(), self.start().add(self.len), items.len());
        }
        self.len += items.len();
    }

    /// Sets the length to `len`; new items are copies of `item`.
    pub fn resize(&mut self, len: usize, item: T) {
        self.truncate(len);
        self.reserve(len - self.len);
        let more = len - self.len;
        for room in &mut self.spare()[..more] {
            room.write(item);
        }
        self.len = len;
    }
}

/// Returns the bytes of `items` items.
fn bytes_of<T>(items: usize) -> Result<usize, Refused> {
    items
        .checked_mul(size_of::<T>())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or(Refused { bytes: usize::MAX })
}

fn or_end<R>(result: Result<R, Refused>) -> R {
    result.unwrap_or_else(|refused| {
        let layout = Layout::from_size_align(refused.bytes, 1).unwrap_or(Layout::new::<u8>());
        std::alloc::handle_alloc_error(layout)
    })
}

impl<T> Drop for Buf<T> {
    fn drop(&mut self) {
        if mem::needs_drop::<T>() {
            self.clear();
        }
    }
}

impl<T> Default for Buf<T> {
    fn default() -> Self {
        Buf::new()
    }
}

impl<T> Deref for Buf<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T> DerefMut for Buf<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

impl<T: fmt::Debug> fmt::Debug for Buf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Clone> Clone for Buf<T> {
    fn clone(&self) -> Self {
        let mut copy = Buf::with_capacity(self.len);
        copy.extend(self.iter().cloned());
        copy
    }
}

impl<T> Extend<T> for Buf<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        let items = items.into_iter();
        self.reserve(items.size_hint().0);
        for item in items {
            self.push(item);
        }
    }
}

impl<T> FromIterator<T> for Buf<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut buf = Buf::new();
        buf.extend(items);
        buf
    }
}

impl<T: HeapBytes> HeapBytes for Buf<T> {
    fn heap_bytes(&self) -> usize {
        self.usable_bytes() + owned(self.iter())
    }
}

impl io::Write for Buf<u8> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_reserve(bytes.len())
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
