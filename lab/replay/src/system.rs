//! The few calls of the kernel.
//!
//! Y1  Nothing here allocates; pointers passed on live as long as the call.
//!
//! Not here: memory (memory.rs).

use core::ffi::{CStr, c_int};
use core::sync::atomic::AtomicU32;

/// Ends the process at once: no destructor, no `atexit`.
pub fn exit_now(status: c_int) -> ! {
    // SAFETY: `_exit` does not return.
    unsafe { libc::_exit(status) }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the result is written to a local (Y1).
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the nanoseconds of the monotonic clock.
pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Returns the CPU time of the calling thread, nanoseconds. Cost: a system call.
pub fn thread_cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the cost of two looks at [`thread_cpu_ns`] with nothing between them: the least of several.
pub fn clock_cost_ns() -> u64 {
    (0..64)
        .map(|_| {
            let begun = thread_cpu_ns();
            thread_cpu_ns() - begun
        })
        .min()
        .unwrap_or(0)
}

/// Returns the user and system time of the process, nanoseconds.
pub fn process_cpu_ns() -> (u64, u64) {
    // SAFETY: a structure of integers, for which zeros are values.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the result is written to a local (Y1).
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// Sleeps until this time of the monotonic clock.
pub fn sleep_until(ns: u64) {
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    loop {
        // SAFETY: a local is read, nothing is written (Y1).
        let result = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &time,
                core::ptr::null_mut(),
            )
        };
        if result != libc::EINTR {
            return;
        }
    }
}

/// Sleeps while `word` is `value`, at most for the limit; may return early.
pub fn futex_wait(word: &AtomicU32, value: u32, limit_ns: u64) {
    let limit = libc::timespec {
        tv_sec: (limit_ns / 1_000_000_000) as i64,
        tv_nsec: (limit_ns % 1_000_000_000) as i64,
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the limit outlive the call (Y1).
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &limit) };
}

/// Wakes all threads that sleep on `word`.
pub fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call (Y1).
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}

/// Opens a file; returns a negative number if that fails.
pub fn open(path: &CStr, flags: c_int) -> c_int {
    // SAFETY: a C string, not kept (Y1).
    unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o644) }
}

/// Closes a descriptor.
pub fn close(fd: c_int) {
    // SAFETY: no memory is passed (Y1).
    unsafe { libc::close(fd) };
}

/// Returns the error of the last call that failed.
pub fn error() -> c_int {
    // SAFETY: the C library's own thread-local word (Y1).
    unsafe { *libc::__errno_location() }
}

/// Returns the text of an error number, in the C locale.
pub fn error_text(number: c_int, text: &mut [u8; 128]) -> &[u8] {
    // SAFETY: at most `len` bytes of the local buffer are written, with a nought (Y1).
    unsafe { libc::strerror_r(number, text.as_mut_ptr().cast(), text.len()) };
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(0);
    &text[..end]
}

/// Reads until the buffer is full or the file ends.
///
/// # Errors
/// The error number of the read.
pub fn read_full(fd: c_int, buffer: &mut [u8]) -> Result<usize, c_int> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        // SAFETY: at most the rest of the buffer is written (Y1).
        let got = unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) };
        match got {
            0 => break,
            got if got > 0 => done += got as usize,
            _ if error() == libc::EINTR => {}
            _ => return Err(error()),
        }
    }
    Ok(done)
}

/// Writes all bytes; returns `false` if that fails.
pub fn write_all(fd: c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: the bytes are read, not kept (Y1).
        let done = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match done {
            done if done > 0 => bytes = &bytes[done as usize..],
            _ if error() == libc::EINTR => {}
            _ => return false,
        }
    }
    true
}
