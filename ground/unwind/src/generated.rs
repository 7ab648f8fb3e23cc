//! Code outside every module that is known by its bytes: the trampolines of CPython's `-X perf`.
//!
//! ```text
//!   sub $8, %rsp · call *%rcx │ add $8, %rsp · ret        3.12      CFA = rsp + 16
//!   push %rbp · mov %rsp, %rbp · call *%rcx │ pop %rbp · ret        later: rbp at CFA - 16 as well
//!                             └ the return address
//! ```
//!
//! G1  Bytes are read only after the kernel has shown that they can be: `rt_sigprocmask` with a set at that address
//!     and a `how` that does not exist returns `EFAULT` or `EINVAL`, and changes nothing. Every sandbox lets it
//!     through, since the C library needs it.
//! G2  Bytes are read only at a return address that exact rules led to, never at one that was guessed: code that a
//!     frame returns to stays mapped, so nothing can change between asking and reading.
//! G3  All of the instructions must be there, before the call and after it: other code that a runtime makes has no
//!     rule.
//!
//! The idea of asking the kernel in this way: Abseil's `AddressIsReadable`.
//! Not here: forgetting the rules when the code goes (rule.rs).

use crate::arch::{SYS_RT_SIGPROCMASK, syscall};
use crate::cfi::{Cfa, Row, Saved};
use crate::expr::Base;
use crate::find::LOWEST_CODE;

/// A `how` that is not a way to change a mask.
const NO_SUCH_WAY: u64 = 0x7fff_ffff;

/// The bytes before the return address, the bytes from there on, and the offset of the caller's `rbp` from the CFA.
#[cfg(target_arch = "x86_64")]
type Known = ([u8; 6], &'static [u8], Option<i64>);
#[cfg(target_arch = "x86_64")]
const KNOWN: [Known; 2] = [
    (
        [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1],
        &[0x48, 0x83, 0xc4, 0x08, 0xc3],
        None,
    ),
    (
        [0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1],
        &[0x5d, 0xc3],
        Some(-16),
    ),
];

/// Returns the row of the code at the return address `ra`, which exact rules led to (G2): where a signal handler of
/// aarch64 returns to, if that is outside of every module. (qemu's emulation of a process puts it there.)
#[cfg(target_arch = "aarch64")]
pub(crate) fn row_of(ra: u64) -> Option<Row> {
    use crate::arch::SIGRETURN;
    if ra < LOWEST_CODE || !is_readable(ra) {
        return None;
    }
    // SAFETY: G1 and G2: the word can be read, and the code stays where it is.
    let code = unsafe { (ra as *const [u8; 8]).read_unaligned() };
    (code == SIGRETURN).then_some(Row {
        cfa: Cfa::Reg(Base::Sp, 0),
        bp: Saved::Same,
        ra: Saved::Same,
        signal: true,
    })
}

/// Returns the row of the code around the return address `ra`, which exact rules led to (G2).
#[cfg(target_arch = "x86_64")]
pub(crate) fn row_of(ra: u64) -> Option<Row> {
    // No further back: the first trampoline begins where its mapping does.
    let before = ra.checked_sub(6).filter(|at| *at >= LOWEST_CODE)?;
    if !is_readable(before) || !is_readable(ra) {
        return None;
    }
    // SAFETY: G1 and G2: both words can be read, and the code stays where it is.
    let code = unsafe { (before as *const [u8; 14]).read_unaligned() };
    let (head, tail) = code.split_at(6);
    let known = KNOWN
        .iter()
        .find(|known| *head == known.0 && tail.starts_with(known.1))?;
    Some(Row {
        cfa: Cfa::Reg(Base::Sp, 16),
        bp: known.2.map_or(Saved::Same, |at| Saved::At(Base::Cfa, at)),
        ra: Saved::At(Base::Cfa, -8),
        signal: false,
    })
}

/// Returns whether the word at `at` can be read (G1). `errno` stays as it is.
fn is_readable(at: u64) -> bool {
    // SAFETY: G1: the kernel copies eight bytes from `at` if it can, finds no such way, and does nothing.
    let result = unsafe { syscall([SYS_RT_SIGPROCMASK, NO_SUCH_WAY, at, 0, 8, 0, 0]) };
    result == -i64::from(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps a page, and one after it that cannot be read.
    fn page() -> *mut u8 {
        // SAFETY: a fresh mapping of two pages, of which the second is closed.
        unsafe {
            let page = libc::mmap(core::ptr::null_mut(), 8192, 3, 0x22, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(page.add(4096), 4096, 0), 0);
            page.cast()
        }
    }

    fn write(at: *mut u8, bytes: &[u8]) {
        // SAFETY: the callers' page is that large.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The code that a handler returns to, wherever it lies on its page, and nothing that differs in a byte.
    #[cfg(target_arch = "aarch64")]
    #[test]
    fn where_a_handler_returns_to() {
        let page = page();
        for place in [0, 32, 4096 - 8] {
            let at = page.wrapping_add(place);
            write(at, &crate::arch::SIGRETURN);
            assert!(row_of(at as u64).is_some_and(|row| row.signal));
            for index in 0..8 {
                let byte = at.wrapping_add(index);
                // SAFETY: within the page.
                unsafe { *byte ^= 1 };
                assert!(row_of(at as u64).is_none(), "byte {index}");
                // SAFETY: within the page.
                unsafe { *byte ^= 1 };
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn both_trampolines_and_nothing_else() {
        let page = page();
        // At the beginning of its mapping, within, and so near its end that the word at the return address ends there.
        let places = [0, 32, 4096 - 14];
        for ((head, tail, bp), place) in KNOWN.iter().flat_map(|one| places.map(|at| (*one, at))) {
            write(page, &[0x90; 4096]);
            let at = page.wrapping_add(place);
            write(at, &head);
            write(at.wrapping_add(6), tail);
            let ra = at as u64 + 6;
            let row = row_of(ra).expect("known");
            assert_eq!(row.cfa, Cfa::Reg(Base::Sp, 16));
            assert_eq!(row.bp == Saved::Same, bp.is_none());
            assert!(row_of(ra + 1).is_none() && row_of(ra - 1).is_none());
            // Each byte counts (G3).
            for index in 0..6 + tail.len() {
                let byte = at.wrapping_add(index);
                // SAFETY: within the page.
                unsafe { *byte ^= 1 };
                assert!(row_of(ra).is_none(), "byte {index}");
                // SAFETY: within the page.
                unsafe { *byte ^= 1 };
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_read() {
        let page = page();
        let end = page as u64 + 4096;
        // SAFETY: reads errno.
        unsafe { *libc::__errno_location() = 77 };
        assert!(is_readable(end - 8));
        for at in [
            end - 7,
            end,
            end + 100,
            0,
            8,
            u64::MAX,
            u64::MAX - 7,
            1 << 47,
        ] {
            assert!(!is_readable(at), "{at:#x}");
            assert!(row_of(at).is_none(), "{at:#x}");
        }
        // SAFETY: reads errno.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
    }

    #[test]
    fn asking_leaves_the_mask_of_signals_as_it_is() {
        // SAFETY: plain calls on local sets.
        unsafe {
            let mut all: libc::sigset_t = core::mem::zeroed();
            let (mut before, mut after) = (all, all);
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), &mut before);
            assert!(is_readable(&raw const all as u64));
            libc::pthread_sigmask(libc::SIG_SETMASK, core::ptr::null(), &mut after);
            let bits = |set: &libc::sigset_t| {
                (1..64)
                    .map(|s| libc::sigismember(set, s))
                    .collect::<Vec<_>>()
            };
            assert_eq!(bits(&before), bits(&after));
        }
    }
}
