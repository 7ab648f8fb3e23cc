//! The shared memory, on the collector's side.
//!
//! Y1  A region is mapped while its `Region` lives; references into it do not outlive it.
//! Y2  Only atomics and [`skinflint_base::ring::Text`] are read in place. Words of a ring are copied
//!     out before anything looks at them: the program may change them at any time.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use skinflint_base::plan::{Hook, MOST_HOOKS};
pub use skinflint_base::ring::Nonsense;
use skinflint_base::ring::{
    self, FIRST_CAPACITY, NOTIFIER_BYTES, NotifierPage, PLAN_OFFSET, ProcessHeader, REGION_BYTES,
    RING_WORDS, SESSION_BYTES, SLOTS, SLOTS_OFFSET, SessionPage, SlotHeader, ring_offset,
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

/// The seals of all shared memory: its size cannot change.
const SIZE_SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

impl Shared {
    fn create(name: &std::ffi::CStr, bytes: usize) -> io::Result<Shared> {
        // SAFETY: a C string; the result is checked.
        let fd = unsafe {
            libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that has no other owner.
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
        let shared = Shared {
            start: start.cast(),
            bytes,
            fd,
        };
        shared.seal(SIZE_SEALS)?;
        Ok(shared)
    }

    /// Takes rights from every process that has the descriptor, ourselves included.
    fn seal(&self, seals: i32) -> io::Result<()> {
        // SAFETY: no memory is involved.
        match unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the descriptor that is sent to the program.
    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: Y1: nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

/// The page that all processes of a session share.
pub struct SessionMemory(Shared);

impl SessionMemory {
    /// Creates the memory, zeroed, sealed and mapped.
    pub fn create() -> io::Result<SessionMemory> {
        let shared = Shared::create(c"skinflint-session", SESSION_BYTES)?;
        // Our mapping stays writable. From Linux 5.1 on; before that, programs are only asked to map it for reading.
        let _ = shared.seal(libc::F_SEAL_FUTURE_WRITE);
        shared.seal(libc::F_SEAL_SEAL)?;
        Ok(SessionMemory(shared))
    }

    /// Returns its contents.
    pub fn page(&self) -> &SessionPage {
        // SAFETY: Y1; a zeroed page is a valid SessionPage, all of whose fields are atomics.
        unsafe { &*self.0.start.cast() }
    }

    /// Returns the descriptor that is sent to the program.
    pub fn fd(&self) -> i32 {
        self.0.fd()
    }
}

/// The notifier, which all processes of a session write.
pub struct NotifierMemory(Shared);

impl NotifierMemory {
    /// Creates the memory, zeroed, sealed and mapped.
    pub fn create() -> io::Result<NotifierMemory> {
        let shared = Shared::create(c"skinflint-notifier", NOTIFIER_BYTES)?;
        shared.seal(libc::F_SEAL_SEAL)?;
        Ok(NotifierMemory(shared))
    }

    /// Returns its contents.
    pub fn page(&self) -> &NotifierPage {
        // SAFETY: Y1; zeroed memory is a valid NotifierPage, all of whose fields are atomics.
        unsafe { &*self.0.start.cast() }
    }

    /// Returns the descriptor that is sent to the program.
    pub fn fd(&self) -> i32 {
        self.0.fd()
    }

    /// Returns its inode, which shows in the mappings of every process that has it; 0 if it is not known.
    pub fn inode(&self) -> u64 {
        // SAFETY: all-zero is valid; the call fills it.
        unsafe {
            let mut about: libc::stat = std::mem::zeroed();
            match libc::fstat(self.fd(), &mut about) {
                0 => about.st_ino,
                _ => 0,
            }
        }
    }
}

/// Rings for some threads of one process.
pub struct Region(Shared);

impl Region {
    /// Creates the memory, zeroed, sealed and mapped.
    pub fn create() -> io::Result<Region> {
        let shared = Shared::create(c"skinflint-region", REGION_BYTES)?;
        shared.seal(libc::F_SEAL_SEAL)?;
        Ok(Region(shared))
    }

    /// Returns the descriptor that is sent to the program.
    pub fn fd(&self) -> i32 {
        self.0.fd()
    }

    /// Returns the header of the process, in its first region.
    pub fn header(&self) -> &ProcessHeader {
        // SAFETY: Y1; zeroed memory is valid, all fields are atomics or `Text`.
        unsafe { &*self.0.start.cast() }
    }

    /// Returns the header of slot `index`, which is below [`SLOTS`].
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

    /// Writes the plan for the process, before it gets the region. A plan that does not fit is none.
    pub fn write_plan(&self, hooks: &[Hook]) {
        if hooks.len() > MOST_HOOKS {
            return;
        }
        let words = hooks.iter().flat_map(Hook::encode);
        // SAFETY: Y1; `MOST_HOOKS` hooks and a word fit behind the rings (base::plan), where no other process looks yet.
        unsafe {
            let plan = self.0.start.add(PLAN_OFFSET).cast::<u64>();
            plan.write(hooks.len() as u64);
            for (index, word) in words.enumerate() {
                plan.add(1 + index).write(word);
            }
        }
    }

    /// Appends what is unread in ring `index` to `buffer`, up to the end of the lap, and gives its room
    /// back. Returns whether anything was copied, or `Err` if the positions make no sense.
    pub fn take(&self, index: usize, buffer: &mut Vec<u64>) -> Result<bool, Nonsense> {
        let slot = self.slot(index);
        let Some(unread) = ring::unread(slot, FIRST_CAPACITY, RING_WORDS as u64)? else {
            return Ok(false);
        };
        buffer.reserve(unread.count);
        // SAFETY: `at + count <= RING_WORDS` (base::reader.D1), so inside the ring; `buffer` has the room. The
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

    /// Returns a descriptor's seals, by `fcntl`.
    fn seals(fd: i32) -> i32 {
        // SAFETY: no memory is involved.
        unsafe { libc::fcntl(fd, libc::F_GET_SEALS) }
    }

    #[test]
    fn whoever_gets_a_descriptor_can_neither_cut_nor_grow_nor_seal_it() {
        let (session, notifier) = (SessionMemory::create(), NotifierMemory::create());
        let (session, notifier) = (session.expect("memfd"), notifier.expect("memfd"));
        let region = Region::create().expect("memfd");
        for fd in [session.fd(), notifier.fd(), region.fd()] {
            assert_eq!(seals(fd) & SIZE_SEALS, SIZE_SEALS);
            assert_ne!(seals(fd) & libc::F_SEAL_SEAL, 0);
            for bytes in [0, 4095, 1 << 30] {
                // SAFETY: no memory is involved.
                assert_eq!(unsafe { libc::ftruncate(fd, bytes) }, -1);
            }
            // SAFETY: as above.
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, 0) }, -1);
        }
    }

    #[test]
    fn the_session_page_can_only_be_read() {
        let session = SessionMemory::create().expect("memfd");
        // ORDER: Relaxed; one thread.
        session.page().tick.store(7, Ordering::Relaxed);
        let mut byte = 0u8;
        // SAFETY: one byte of ours.
        let written = unsafe { libc::pwrite(session.fd(), (&raw mut byte).cast(), 1, 0) };
        assert_eq!(written, -1);
        let writable = skinflint_base::sys::map_shared(session.fd(), SESSION_BYTES);
        assert!(writable.is_null());
        let readable = skinflint_base::sys::map_to_read(session.fd(), SESSION_BYTES);
        assert!(!readable.is_null());
        // SAFETY: a mapping of the page, which stays.
        let seen = unsafe { &*readable.cast::<SessionPage>() };
        // ORDER: Relaxed; one thread.
        assert_eq!(seen.tick.load(Ordering::Relaxed), 7);
    }

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
