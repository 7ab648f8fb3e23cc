//! The recorder: it stands in front of the allocator of a running program, and reports to the collector
//! what happens.
//!
//! ```text
//!   program ──malloc──► hooks ──────────────────────► real malloc (glibc, jemalloc, …)
//!                         │  stack (unwind), ticket, time
//!                         ▼
//!                       ring of this thread (shared memory) ──► collector, in another process
//! ```
//!
//! O1  It never writes to the program's files, streams or stacks, never changes `errno`, never takes
//!     a lock of its own, and waits for the collector only for bounded times.
//! O2  Releases are recorded before the real call, acquisitions after it: an address cannot be
//!     acquired twice in the record without a release between (STYLE 23).
//! O3  What cannot be recorded is counted, in the header that the collector reads. One exception: what a signal handler
//!     asks for while it interrupts an `operator` of the allocator's own, or a linked allocator, since it looks like a
//!     step of the same call (hooks/operators.rs, hooks/linked.rs).
//! O4  A call that comes while this thread is already in the recorder or in the allocator (a signal
//!     handler, an allocator that calls itself) passes straight through.
//! O5  A child of `fork` knows itself by a page that the kernel wipes in it ([`process::LivePage`]), so
//!     every kind of fork is noticed, whichever function made it.
//!
//! What it needs of the caller's stack, in bytes, beyond what the real functions need themselves (painted
//! stacks, 2026-11-21, glibc 2.36): `free` 50, and more only on the thread's own stack ([`high_water`]);
//! `malloc` 400 on the thread's own stack and 720 on any other (signal stack, fibre); the first pass
//! through a call site, whose unwind table is then read, up to 2,200. A signal stack of `MINSIGSTKSZ`
//! (2,048) whose handler allocates must leave that much; one of `SIGSTKSZ` does.
//!
//! A filter of system calls (`seccomp`) that kills at a call of the recorder's, or strict mode, ends recording, or the
//! recording of what comes later, and not the program ([`filters`]). Exceptions: a filter that was installed without a
//! function of the C library, or before the program was started, and a filter that kills at `process_vm_readv` in a
//! program that allocates on a stack that is not a thread's own.
//!
//! Not here: names of functions, compression, files (the collector's work).
#![no_std]

mod attach;
mod begin;
mod bounds;
mod emit;
mod filters;
mod frames;
mod go;
mod high_water;
mod hooks;
mod java;
mod link;
mod linked;
mod marks;
mod modules;
mod notices;
#[cfg(target_arch = "x86_64")]
mod objects;
mod patience;
mod process;
mod real;
mod ring;
mod samples;
mod sites;
mod slots;
mod stacks;
mod start;
mod state;
mod thread;
mod tls;
mod totals;
mod usable;

/// Reports where a panic happened, and aborts: a panic has no way out of a program's `malloc`.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    skinflint_base::sys::stderr(b"skinflint recorder: internal error");
    if let Some(place) = info.location() {
        skinflint_base::sys::stderr(b" in ");
        skinflint_base::sys::stderr(place.file().as_bytes());
    }
    skinflint_base::sys::stderr(b"; please report it\n");
    // SAFETY: abort does not return.
    unsafe { libc::abort() }
}

// Never called, since nothing unwinds; the prebuilt `core` names it if it is not optimised away (debug builds).
// Hidden: a program that unwinds must find its own, not ours, which would come first.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",@progbits",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality: ud2",
    ".popsection",
);
#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",@progbits",
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality: brk #1",
    ".popsection",
);
