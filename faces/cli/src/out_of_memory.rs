//! Memory that the system refuses: one line that says what to do, and exit 1, where the runtime would abort.
//!
//! ```text
//!   allocation ─► malloc ─┬─► memory
//!                         └─► null ─► "skinflint: out of memory …; raise …" ─► exit 1
//! ```
//!
//! E1  Nothing on the way to the exit allocates: the line is put together on the stack, and written at once.
//! E2  No destructor runs: a trace that is being written stays as it is, and can be read up to there. A recorded program
//!     goes on, as when the recording is killed.
//!
//! Not here: shared memory for rings, whose refusal is said by the recording (`recorded.rs`); the kernel's own choice to
//! end a process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write as _};

/// The system's allocator, which says so when it has nothing.
pub struct Speaking;

// SAFETY: E1 and E2 are about what does not return; all else is the system's.
unsafe impl GlobalAlloc for Speaking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Returns a block that there is. Cost: one branch.
#[inline]
fn given(block: *mut u8, bytes: usize) -> *mut u8 {
    if block.is_null() {
        refused(bytes);
    }
    block
}

#[cold]
fn refused(bytes: usize) -> ! {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    let mut line = Text {
        bytes: [0; 256],
        len: 0,
    };
    // SAFETY: E1; the struct and the text live.
    unsafe {
        libc::getrlimit(libc::RLIMIT_AS, &mut limit);
        let _ = said(&mut line, bytes, limit.rlim_cur);
        libc::write(2, line.bytes.as_ptr().cast(), line.len);
        libc::_exit(1)
    }
}

/// Says what was refused, and what to do next.
fn said(line: &mut Text, bytes: usize, limit_bytes: u64) -> fmt::Result {
    write!(
        line,
        "skinflint: out of memory ({bytes} bytes were refused); "
    )?;
    match limit_bytes {
        libc::RLIM_INFINITY => {
            line.write_str("free some, or read the trace on a machine with more\n")
        }
        limit => writeln!(
            line,
            "raise the limit of address space, which is {} KiB (ulimit -v unlimited)",
            limit >> 10
        ),
    }
}

/// A text of bounded length.
struct Text {
    bytes: [u8; 256],
    len: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len());
        room.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_and_names_the_limit_only_where_there_is_one() {
        let text = |limit_bytes| {
            let mut line = Text {
                bytes: [0; 256],
                len: 0,
            };
            said(&mut line, usize::MAX, limit_bytes).expect("room for the line");
            String::from_utf8(line.bytes[..line.len].to_vec()).expect("text")
        };
        let limited = text(libc::RLIM_INFINITY - 1);
        assert!(limited.ends_with("(ulimit -v unlimited)\n"), "{limited}");
        assert!(!text(libc::RLIM_INFINITY).contains("ulimit"));
    }
}
