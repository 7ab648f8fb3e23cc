//! The functions that the program calls instead of the real ones.
//!
//! ```text
//!   malloc (naked)  ── adds rsp and rbp at entry as further arguments, jumps ──► malloc_recorded
//! ```
//!
//! N1  The exported functions are naked and leave by a jump (or return with the stack as it was):
//!     the first frame of a recorded stack is the caller, and no frame of ours has to be unwound.
//! N2  Every exported function behaves as the one beneath, errno included.

#[cfg(target_arch = "x86_64")]
mod arrivals;
mod entries;
pub mod extended;
mod filters;
mod linked;
pub mod loading;
pub mod malloc;
mod maps;
#[cfg(target_arch = "x86_64")]
pub mod objects;
mod operators;
pub mod process_ends;
mod segments;
mod starts;
mod threads;

/// The functions that we export under the names of the real ones, for loading.rs, which puts them into tables by hand.
pub mod exports {
    pub use super::entries::{calloc, free, malloc, realloc, reallocarray};
    pub use super::extended::{dallocx, mallocx, rallocx, sdallocx, xallocx};
    pub use super::filters::prctl;
    pub use super::malloc::{
        aligned_alloc, free_aligned_sized, free_sized, memalign, posix_memalign, pvalloc, valloc,
    };
    pub use super::maps::{brk, madvise, mmap, mmap64, mremap, munmap, sbrk, syscall};
    pub use super::process_ends::{_Exit, _exit, abort, quick_exit};
    pub use super::segments::{shmat, shmdt};
    pub use super::threads::{fork, pthread_create, sigaltstack};
}

/// Defines an exported function of up to four arguments that jumps to `$recorded` with the stack pointer
/// and the frame pointer of its entry in the two argument registers after its own (N1).
macro_rules! exported {
    ($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?, $sp:tt, $bp:tt, $recorded:path) => {
        #[doc = concat!("`", stringify!($name), "`, recorded.")]
        ///
        /// # Safety
        /// As for the function beneath.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            skinflint_unwind::with_registers!($sp, $bp, $recorded)
        }
    };
}
use exported;
