//! System calls by hand.
//!
//! The libc wrappers set `errno`, and `free` must not change it; some of them are cancellation
//! points, and the recorder must not be one.
//!
//! S1  A result in -4095..0 is an error number, negated, as the kernel returns it.

pub use crate::arch::syscall;
use crate::page;

/// Returns whether a result is an error (S1).
#[inline]
pub fn is_error(result: i64) -> bool {
    (-4095..0).contains(&result)
}

/// Maps private anonymous memory, zeroed, with no swap reserved; null if the kernel refuses. The
/// kernel rounds `bytes` up to pages.
pub fn map_private(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing.
    let result = unsafe {
        syscall(
            libc::SYS_mmap,
            [0, bytes as u64, prot as u64, flags as u64, u64::MAX, 0],
        )
    };
    if is_error(result) {
        core::ptr::null_mut()
    } else {
        result as *mut u8
    }
}

/// Maps a file shared, to be read and written; null if the kernel refuses.
pub fn map_shared(fd: i32, bytes: usize) -> *mut u8 {
    map_with(fd, bytes, libc::PROT_READ | libc::PROT_WRITE)
}

/// Maps a file shared, to be read only; null if the kernel refuses.
pub fn map_to_read(fd: i32, bytes: usize) -> *mut u8 {
    map_with(fd, bytes, libc::PROT_READ)
}

fn map_with(fd: i32, bytes: usize, prot: i32) -> *mut u8 {
    // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing.
    let result = unsafe {
        syscall(
            libc::SYS_mmap,
            [
                0,
                bytes as u64,
                prot as u64,
                libc::MAP_SHARED as u64,
                fd as u64,
                0,
            ],
        )
    };
    if is_error(result) {
        core::ptr::null_mut()
    } else {
        result as *mut u8
    }
}

/// Calls `madvise`. Returns whether the kernel agreed. Contents are given up only of whole pages of the kernel's (page.P2):
/// any other range is refused here.
///
/// # Safety
/// The range must be the caller's own, and the advice must not discard what another thread still reads.
#[unsafe(link_section = ".text.skinflint_first")]
pub unsafe fn advise(addr: *mut u8, bytes: usize, advice: i32) -> bool {
    let is_given_up = matches!(
        advice,
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE
    );
    if is_given_up && !page::is_whole(addr as usize, bytes) {
        return false;
    }
    // SAFETY: as the caller promises.
    unsafe {
        syscall(
            libc::SYS_madvise,
            [addr as u64, bytes as u64, advice as u64, 0, 0, 0],
        ) == 0
    }
}

/// Asks which pages of ours are resident (`mincore`), from the one at `addr` on, one for each byte of `into`: its lowest bit
/// is set if the page is. Returns whether the kernel told: it does not where a page is not mapped.
pub fn resident(addr: usize, into: &mut [u8]) -> bool {
    if page::is_larger() {
        return resident_larger(addr, into);
    }
    let bytes = into.len() * page::LEAST;
    // SAFETY: the kernel writes a byte for each page to a place of the caller's, and changes nothing else.
    let result = unsafe {
        let place = into.as_mut_ptr() as u64;
        syscall(
            libc::SYS_mincore,
            [addr as u64, bytes as u64, place, 0, 0, 0],
        )
    };
    result == 0
}

/// Does what [`resident`] does where a page of the kernel's is several of ours: each has the answer of the one that it is
/// in.
#[cold]
fn resident_larger(addr: usize, into: &mut [u8]) -> bool {
    let each = page::kernel();
    let (mut first, mut answer) = (usize::MAX, 0u8);
    for (index, told) in into.iter_mut().enumerate() {
        let here = (addr + index * page::LEAST) & !(each - 1);
        if here != first {
            first = here;
            // As many as 4 KiB are in the largest page: the kernel's may be smaller in truth (`page::pretend`).
            let mut all = [0u8; 16];
            let args = [here as u64, each as u64, all.as_mut_ptr() as u64, 0, 0, 0];
            // SAFETY: the kernel writes a byte for each of its pages to a place of ours, and changes nothing else.
            if unsafe { syscall(libc::SYS_mincore, args) } != 0 {
                return false;
            }
            answer = all.iter().fold(0, |any, one| any | one);
        }
        *told = answer;
    }
    true
}

/// Unmaps a range (`munmap`).
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn unmap(addr: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { syscall(libc::SYS_munmap, [addr as u64, bytes as u64, 0, 0, 0, 0]) };
}

/// Closes a file descriptor.
pub fn close(fd: i32) {
    // SAFETY: no memory is involved.
    unsafe { syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
}

/// Opens a file for reading. Does not wait if the file is a pipe without a writer; the descriptor is
/// not inherited over `exec`. Returns the descriptor, or an error (S1).
pub fn open_to_read(path: &core::ffi::CStr) -> i64 {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the path ends with a zero byte and is only read.
    unsafe {
        syscall(
            libc::SYS_openat,
            [
                libc::AT_FDCWD as i64 as u64,
                path.as_ptr() as u64,
                flags as u64,
                0,
                0,
                0,
            ],
        )
    }
}

/// Reads what is available, up to the buffer's length. Returns the bytes read, 0 at the end, or an error (S1).
pub fn read(fd: i32, into: &mut [u8]) -> i64 {
    // SAFETY: the kernel writes into the buffer and not beyond it.
    unsafe {
        syscall(
            libc::SYS_read,
            [
                fd as u64,
                into.as_mut_ptr() as u64,
                into.len() as u64,
                0,
                0,
                0,
            ],
        )
    }
}

/// Reads the target of a symbolic link. Returns its bytes, at most the buffer's length, or an error (S1).
pub fn read_link(path: &core::ffi::CStr, into: &mut [u8]) -> i64 {
    // SAFETY: the path ends with a zero byte; the kernel writes into the buffer and not beyond it.
    unsafe {
        syscall(
            libc::SYS_readlinkat,
            [
                libc::AT_FDCWD as i64 as u64,
                path.as_ptr() as u64,
                into.as_mut_ptr() as u64,
                into.len() as u64,
                0,
                0,
            ],
        )
    }
}

/// Returns the kernel's id of the calling thread.
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) as u32 }
}

/// Returns the kernel's id of the process.
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as u32 }
}

/// Returns whether a thread of the process exists.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is never delivered.
    let result = unsafe {
        syscall(
            libc::SYS_tgkill,
            [u64::from(pid), u64::from(tid), 0, 0, 0, 0],
        )
    };
    result != -i64::from(libc::ESRCH)
}

/// Returns whether a process exists, as far as we may know; one that has ended and was not waited for does.
pub fn process_exists(pid: u32) -> bool {
    // SAFETY: signal 0 is never delivered.
    let result = unsafe { syscall(libc::SYS_kill, [u64::from(pid), 0, 0, 0, 0, 0]) };
    result != -i64::from(libc::ESRCH)
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds. Cost: about 25 ns, through the vdso.
#[inline]
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours; this wrapper goes to the vdso and cannot fail for this clock, so it
    // leaves errno alone (base.B2).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the processor time of the calling thread in nanoseconds. Cost: a system call.
pub fn thread_cpu_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours.
    unsafe {
        syscall(
            libc::SYS_clock_gettime,
            [
                libc::CLOCK_THREAD_CPUTIME_ID as u64,
                &raw mut now as u64,
                0,
                0,
                0,
                0,
            ],
        )
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Waits while `*word == expected`, until a wake, a signal, or the time-out. Works across processes.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, timeout_ns: u64) {
    let timeout = libc::timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as i64,
        tv_nsec: (timeout_ns % 1_000_000_000) as i64,
    };
    // SAFETY: the word outlives the call; the kernel only reads it and the time-out.
    unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as u64,
                libc::FUTEX_WAIT as u64,
                u64::from(expected),
                &raw const timeout as u64,
                0,
                0,
            ],
        );
    }
}

/// Wakes all threads that wait on the word.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: the kernel uses the address only as a key.
    unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr() as u64,
                libc::FUTEX_WAKE as u64,
                i32::MAX as u64,
                0,
                0,
                0,
            ],
        );
    }
}

/// Writes a message to stderr, as far as one write goes; errors are ignored.
pub fn stderr(message: &[u8]) {
    // SAFETY: the slice is valid for reading.
    unsafe {
        syscall(
            libc::SYS_write,
            [2, message.as_ptr() as u64, message.len() as u64, 0, 0, 0],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_seen_and_errno_is_left_alone() {
        // SAFETY: reads and writes this thread's errno.
        unsafe { *libc::__errno_location() = 77 };
        // SAFETY: closing a descriptor that cannot exist.
        let result = unsafe { syscall(libc::SYS_close, [u64::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(result, -i64::from(libc::EBADF));
        assert!(is_error(result));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
    }

    #[test]
    fn files_are_read_and_links_followed() {
        let fd = open_to_read(c"/proc/self/stat");
        assert!(!is_error(fd), "{fd}");
        let mut text = [0; 8];
        let got = read(fd as i32, &mut text);
        close(fd as i32);
        assert!(got > 1, "{got}");
        let pid = getpid().to_string();
        assert!(
            text.starts_with(&pid.as_bytes()[..pid.len().min(8)]),
            "{text:?}"
        );
        assert_eq!(read(fd as i32, &mut text), -i64::from(libc::EBADF));
        assert_eq!(open_to_read(c"/no/such/file"), -i64::from(libc::ENOENT));
        let mut path = [0; 4096];
        let len = read_link(c"/proc/self/exe", &mut path);
        let own = std::env::current_exe().expect("a path");
        assert_eq!(&path[..len as usize], own.as_os_str().as_encoded_bytes());
        assert!(is_error(read_link(c"/no/such/link", &mut path)));
    }

    #[test]
    fn this_thread_exists_and_a_wrong_one_does_not() {
        assert!(thread_exists(getpid(), gettid()));
        assert!(!thread_exists(getpid(), 0x3fff_fff0));
        assert!(process_exists(getpid()) && !process_exists(0x3fff_fff0));
    }

    #[test]
    fn a_wait_on_a_changed_word_returns() {
        let word = core::sync::atomic::AtomicU32::new(2);
        futex_wait(&word, 1, 1_000_000_000);
        futex_wait(&word, 2, 1_000_000);
        futex_wake(&word);
    }
}
