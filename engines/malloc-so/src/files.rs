//! Files that the library writes at the program's end, and lines on stderr about them.
//!
//! ```text
//!   environment ─► Name ─► path_of ─► open_for ─► Out ─► the kernel        failed ─► say(… reason)
//! ```
//!
//! L1  Nothing here allocates, nor uses the C library's streams, which the program may have closed.
//! L2  `%p` in a name is the id of the process.
//!
//! Not here: what is written (`accounts`, `profile`).

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};

use skinflint_base::sys;

/// Bytes for the name of a file.
const NAME: usize = 1024;
/// Bytes for a text on its way out, which is written when they are full.
const OUT: usize = 4096;

/// A file's name from the environment, which the program may change meanwhile.
pub struct Name(UnsafeCell<[u8; NAME]>);
// SAFETY: written by `remember`, before there are threads, and read at the end.
unsafe impl Sync for Name {}

impl Name {
    /// Creates an empty name.
    pub const fn new() -> Name {
        Name(UnsafeCell::new([0; NAME]))
    }

    /// Notes a variable's value: a C string or null.
    ///
    /// # Safety
    /// To be called once, before there are threads.
    pub unsafe fn remember(&self, value: *const c_char) {
        if value.is_null() {
            return;
        }
        // SAFETY: as the caller promises; a C string ends with zero.
        unsafe {
            let name = &mut *self.0.get();
            for (at, to) in name.iter_mut().enumerate().take(NAME - 1) {
                *to = *value.add(at) as u8;
                if *to == 0 {
                    break;
                }
            }
        }
    }

    /// Returns the name; empty if there is none.
    pub fn get(&self) -> &[u8] {
        // SAFETY: written before there were threads.
        let name = unsafe { &*self.0.get() };
        let length = name.iter().position(|&b| b == 0).unwrap_or(0);
        name.get(..length).unwrap_or(&[])
    }
}

/// Bytes on their way to a file.
pub struct Out {
    file: i32,
    room: [u8; OUT],
    used: usize,
    /// The kernel's number of the first failure; 0: all was written.
    pub failure: i32,
}

impl Out {
    /// Creates an empty text for this descriptor.
    pub fn to(file: i32) -> Out {
        Out {
            file,
            room: [0; OUT],
            used: 0,
            failure: 0,
        }
    }

    /// Adds bytes; what cannot be written is lost.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.used == OUT {
                self.flush();
            }
            if let Some(to) = self.room.get_mut(self.used) {
                *to = byte;
                self.used += 1;
            }
        }
    }

    /// Writes the bytes that are there.
    pub fn flush(&mut self) {
        let mut rest = self.room.get(..self.used).unwrap_or(&[]);
        // After a failure nothing is tried: what came behind a gap would be taken for the whole.
        while !rest.is_empty() && self.failure == 0 {
            // SAFETY: the slice is valid for reading.
            let done = unsafe {
                let args = [
                    self.file as u64,
                    rest.as_ptr() as u64,
                    rest.len() as u64,
                    0,
                    0,
                    0,
                ];
                sys::syscall(libc::SYS_write, args)
            };
            if done == -i64::from(libc::EINTR) {
                continue;
            }
            if done <= 0 {
                if self.failure == 0 {
                    self.failure = (-done) as i32;
                }
                break;
            }
            rest = rest.get(done as usize..).unwrap_or(&[]);
        }
        self.used = 0;
    }
}

/// A file's name, closed by a zero.
pub type Path = [u8; NAME + 32];

/// Returns a file's name with the process's id for `%p`, and an ending.
pub fn path_of(name: &[u8], ending: &[u8]) -> Path {
    let mut path = [0u8; NAME + 32];
    let mut used = 0;
    let mut put = |bytes: &[u8]| {
        for &byte in bytes {
            // The last byte stays zero.
            if used < NAME + 31
                && let Some(to) = path.get_mut(used)
            {
                *to = byte;
                used += 1;
            }
        }
    };
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first == b'%' && after.first() == Some(&b'p') {
            let mut digits = [0u8; 10];
            let mut number = sys::getpid();
            let mut begin = digits.len();
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
                begin -= 1;
                if number == 0 {
                    break;
                }
            }
            put(digits.get(begin..).unwrap_or(&[]));
            rest = after.get(1..).unwrap_or(&[]);
        } else {
            put(&[first]);
        }
    }
    put(ending);
    path
}

/// Opens a file for writing, which is made if it is not there.
///
/// # Errors
/// The kernel's number.
pub fn open_for(path: &Path, how: c_int) -> Result<i32, i32> {
    let flags = libc::O_WRONLY | libc::O_CREAT | how | libc::O_CLOEXEC;
    // SAFETY: the path is closed by a zero.
    let file = unsafe {
        let args = [
            libc::AT_FDCWD as u64,
            path.as_ptr() as u64,
            flags as u64,
            0o644,
            0,
            0,
        ];
        sys::syscall(libc::SYS_openat, args)
    };
    if sys::is_error(file) {
        Err(-file as i32)
    } else {
        Ok(file as i32)
    }
}

/// Returns the text for the kernel's number, of the numbers that a file may have.
pub fn reason(error: i32) -> &'static [u8] {
    match error {
        libc::ENOSPC => b": no space is left",
        libc::EDQUOT => b": the quota is used up",
        libc::EACCES | libc::EPERM => b": permission denied",
        libc::ENOENT => b": there is no such folder",
        libc::EROFS => b": the file system is read-only",
        libc::EFBIG => b": the file is larger than allowed",
        libc::EIO => b": input/output error",
        _ => b"",
    }
}

/// Writes one line to stderr.
pub fn say(parts: &[&[u8]]) {
    let mut out = Out::to(2);
    out.add(b"skinflint: ");
    for part in parts {
        out.add(part);
    }
    out.add(b"\n");
    out.flush();
}
