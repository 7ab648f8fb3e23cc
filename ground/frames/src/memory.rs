//! Loads from the program's memory: as they are, or after the kernel was asked.
//!
//! M1  An address is loaded from only if it is one: aligned to 8, above the lowest 64 KiB and below the kernel's half.
//!
//! Not here: which addresses there are (chain.rs).

use core::ffi::c_void;

use skinflint_base::sys;

/// A way to load words.
pub(crate) trait Memory {
    /// Returns the word at `at`; `None` if it cannot be loaded.
    fn word(&self, at: u64) -> Option<u64>;

    /// Returns the word at `at`, which is an address of what is known to be there.
    #[inline(always)]
    fn at(&self, at: u64) -> u64 {
        self.word(at).unwrap_or(0)
    }
}

/// Returns whether a word may be loaded from an address (M1).
#[inline(always)]
pub(crate) fn is_address(at: u64) -> bool {
    at & 7 == 0 && at.wrapping_sub(1 << 16) < (1 << 47) - (1 << 16)
}

/// Loads what is known to be there.
pub(crate) struct Plain;

impl Memory for Plain {
    #[inline(always)]
    fn word(&self, at: u64) -> Option<u64> {
        // SAFETY: frames.P2, and M1.
        is_address(at).then(|| unsafe { (at as *const u64).read() })
    }

    #[inline(always)]
    fn at(&self, at: u64) -> u64 {
        // SAFETY: frames.P2, and the caller knows that it is an address.
        unsafe { (at as *const u64).read() }
    }
}

/// Asks the kernel first.
pub(crate) struct Asked;

impl Memory for Asked {
    fn word(&self, at: u64) -> Option<u64> {
        // SAFETY: the kernel has just read the word.
        (is_address(at) && is_readable(at)).then(|| unsafe { (at as *const u64).read() })
    }
}

/// Returns whether the kernel can read eight bytes: it copies a set of signals before it looks at what to do with them.
/// `process_vm_readv` would say the same; containers forbid it, and filters kill at it. Cost: a system call.
fn is_readable(at: u64) -> bool {
    const NO_SUCH_WAY: u64 = 99;
    let none = core::ptr::null::<c_void>() as u64;
    // SAFETY: there is no such way to change the set of signals, so nothing changes.
    let result =
        unsafe { sys::syscall(libc::SYS_rt_sigprocmask, [NO_SUCH_WAY, at, none, 8, 0, 0]) };
    result == -i64::from(libc::EINVAL)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Words at addresses; what is not there cannot be loaded.
    #[derive(Clone, Default)]
    pub(crate) struct Words(HashMap<u64, u64>);

    impl Words {
        pub(crate) fn set(&mut self, at: u64, word: u64) {
            self.0.insert(at, word);
        }

        /// Sets words that lie side by side.
        pub(crate) fn put(&mut self, at: u64, words: &[u64]) {
            for (at, word) in (at..).step_by(8).zip(words) {
                self.set(at, *word);
            }
        }
    }

    impl Memory for Words {
        fn word(&self, at: u64) -> Option<u64> {
            self.0.get(&at).copied()
        }
    }

    #[test]
    fn what_is_not_there_is_no_fault() {
        // SAFETY: a fresh mapping of two pages, of which the second is taken away again.
        let map = unsafe {
            let none = core::ptr::null_mut();
            let map = libc::mmap(
                none,
                8192,
                3,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(map, libc::MAP_FAILED);
            assert_eq!(libc::munmap(map.add(4096), 4096), 0);
            map as u64
        };
        assert_eq!(Asked.word(map + 4088), Some(0));
        assert_eq!(Asked.word(map + 4096), None);
        for at in [0, 8, map + 4, 1 << 47, u64::MAX - 7] {
            assert_eq!((Asked.word(at), Plain.word(at)), (None, None), "{at:#x}");
        }
    }
}
