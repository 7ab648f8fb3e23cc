//! Shared memory, from the collector's side.
//!
//! Y1  A region is mapped as long as its `Region` lives; references into it do not outlive it.
//! Y2  Only atomics and [`skinflint_base::ring::Text`] are read in place. Words of a ring are copied
//!     out before anything looks at them: the program may change them at any time.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub use skinflint_base::ring::Nonsense;
use skinflint_base::ring::{
    self, FIRST_CAPACITY, ProcessHeader, REGION_BYTES, RING_WORDS, SESSION_BYTES, SLOTS,
    SLOTS_OFFSET, SessionPage, SlotHeader, ring_offset,
};

/// A shared mapping of a memfd of ours.
pub struct Shared {
    start: *mut u8,
    bytes: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping is reached only through atomics and copies (Y2).
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn create(name: &std::ffi::CStr, bytes: usize) -> io::Result<Shared> {
        // SAFETY: a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = File::from(fd.try_clone()?);
        file.set_len(bytes as u64)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                prot,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Shared {
            start: start.cast(),
            bytes,
            fd,
        })
    }

    /// The descriptor that is sent to the program.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: Y1: nobody refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// The page that all processes of a session share.
pub struct SessionMemory(Shared);

impl SessionMemory {
    /// Makes one.
    pub fn create() -> io::Result<SessionMemory> {
        Shared::create(c"skinflint-session", SESSION_BYTES).map(SessionMemory)
    }

    /// Its contents.
    pub fn page(&self) -> &SessionPage {
        // SAFETY: Y1; a zeroed page is a valid SessionPage, all of whose fields are atomics.
        unsafe { &*self.0.start.cast() }
    }

    /// The descriptor that is sent to the program.
    pub fn fd(&self) -> i32 {
        self.0.fd()
    }
}

/// Rings for some threads of one process.
pub struct Region(Shared);

impl Region {
    /// Makes one.
    pub fn create() -> io::Result<Region> {
        Shared::create(c"skinflint-region", REGION_BYTES).map(Region)
    }

    /// The descriptor that is sent to the program.
    pub fn fd(&self) -> i32 {
        self.0.fd()
    }

    /// The header of the process, in its first region.
    pub fn header(&self) -> &ProcessHeader {
        // SAFETY: Y1; zeroed memory is valid, all fields are atomics or `Text`.
        unsafe { &*self.0.start.cast() }
    }

    /// The header of slot `index`, below [`SLOTS`].
    pub fn slot(&self, index: usize) -> &SlotHeader {
        assert!(index < SLOTS);
        // SAFETY: Y1; inside the region by the layout, fields as above.
        unsafe {
            &*self
                .0
                .start
                .add(SLOTS_OFFSET)
                .cast::<SlotHeader>()
                .add(index)
        }
    }

    /// Copies what is unread in ring `index` behind `buffer`, up to the end of the lap, and gives
    /// its room back. Returns whether anything was copied, or `Err` if the positions make no sense.
    pub fn take(&self, index: usize, buffer: &mut Vec<u64>) -> Result<bool, Nonsense> {
        let slot = self.slot(index);
        let Some(unread) = ring::unread(slot, FIRST_CAPACITY, RING_WORDS as u64)? else {
            return Ok(false);
        };
        buffer.reserve(unread.count);
        // SAFETY: `at + count <= RING_WORDS` (D1), so inside the ring; `buffer` has the room. The
        // words were published, and a recorder that writes them again breaks only its own trace.
        unsafe {
            let ring = self.0.start.add(ring_offset(index)).cast::<u64>();
            let to = buffer.as_mut_ptr().add(buffer.len());
            std::ptr::copy_nonoverlapping(ring.add(unread.at), to, unread.count);
            buffer.set_len(buffer.len() + unread.count);
        }
        if unread.give_back(slot) {
            skinflint_base::sys::futex_wake(&slot.head.drained);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn positions_that_make_no_sense_are_refused() {
        let region = Region::create().expect("memfd");
        let mut buffer = Vec::new();
        assert_eq!(region.take(0, &mut buffer), Ok(false));
        // ORDER: Relaxed; one thread.
        region.slot(0).tail.store(5, Ordering::Relaxed);
        assert_eq!(region.take(0, &mut buffer), Err(Nonsense), "no capacity");
        region
            .slot(0)
            .capacity
            .store(FIRST_CAPACITY, Ordering::Relaxed);
        assert_eq!(region.take(0, &mut buffer), Ok(true));
        assert_eq!(buffer.len(), 5);
        // ORDER: Relaxed; one thread.
        region
            .slot(0)
            .tail
            .store(6 + FIRST_CAPACITY, Ordering::Relaxed);
        assert_eq!(region.take(0, &mut buffer), Err(Nonsense), "more than fits");
        // ORDER: Relaxed; one thread.
        region.slot(0).tail.store(4, Ordering::Relaxed);
        assert_eq!(region.take(0, &mut buffer), Err(Nonsense), "backwards");
    }
}
