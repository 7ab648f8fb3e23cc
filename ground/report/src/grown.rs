//! Bytes in a mapping of their own that grows, so that what is written to it takes nothing from the allocator.
//!
//! ```text
//!   push ─► [ bytes | bytes | … ]  full ─► mremap: twice as large, perhaps elsewhere
//! ```
//!
//! G1  `used <= capacity`, and what is below `used` has been written. Growing moves the pages without a copy.
//! G2  If the system refuses memory, the caller is told, and everything stays as it was.
//!
//! Not here: what the bytes mean (`store`, `named`).

use skinflint_base::sys;

/// The bytes of a first mapping.
const FIRST: usize = 64 << 10;

/// The largest mapping in bytes: offsets are 32 bits.
const LARGEST: usize = u32::MAX as usize;

/// A mapping of bytes that grows (G1).
pub(crate) struct Pages {
    start: *mut u8,
    pub(crate) capacity: usize,
    pub(crate) used: usize,
}

// SAFETY: G1; the mapping belongs to the value alone.
unsafe impl Send for Pages {}

// SAFETY: as above; it is written through `&mut` only.
unsafe impl Sync for Pages {}

impl Pages {
    pub(crate) const fn new() -> Pages {
        Pages {
            start: std::ptr::null_mut(),
            capacity: 0,
            used: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.used == 0 {
            return &[];
        }
        // SAFETY: G1.
        unsafe { std::slice::from_raw_parts(self.start, self.used) }
    }

    /// Appends bytes; returns their offset, or `None` (G2).
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<u32> {
        let at = self.used;
        let end = at.checked_add(bytes.len())?;
        if end > self.capacity {
            self.grow(end)?;
        }
        // SAFETY: G1: `end <= capacity`, and no other value knows the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
        self.used = end;
        Some(at as u32)
    }

    /// Returns the bytes as words.
    ///
    /// # Panics
    /// If anything but whole words was pushed.
    pub(crate) fn words(&mut self) -> &mut [u64] {
        assert!(self.used.is_multiple_of(8), "words alone");
        match self.used {
            0 => &mut [],
            // SAFETY: G1; a mapping begins at a page, and any eight bytes are a word.
            used => unsafe { std::slice::from_raw_parts_mut(self.start.cast(), used / 8) },
        }
    }

    /// Forgets the bytes from `used` on.
    pub(crate) fn cut(&mut self, used: usize) {
        self.used = self.used.min(used);
    }

    #[cold]
    fn grow(&mut self, wanted: usize) -> Option<()> {
        let capacity = wanted.checked_next_power_of_two()?.max(FIRST);
        if capacity > LARGEST {
            return None;
        }
        let start = match self.capacity {
            0 => sys::map_private(capacity),
            old => {
                let args = [
                    self.start as u64,
                    old as u64,
                    capacity as u64,
                    libc::MREMAP_MAYMOVE as u64,
                    0,
                    0,
                ];
                // SAFETY: the mapping is ours (G1); after a move the old address is not kept.
                let result = unsafe { sys::syscall(libc::SYS_mremap, args) };
                match sys::is_error(result) {
                    true => std::ptr::null_mut(),
                    false => result as *mut u8,
                }
            }
        };
        if start.is_null() {
            return None;
        }
        self.start = start;
        self.capacity = capacity;
        Some(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: ours, and going (G1).
            unsafe { sys::unmap(self.start, self.capacity) };
        }
    }
}
