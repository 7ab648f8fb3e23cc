//! `libskinflint.so`: the allocator as a drop-in for the C library's.
//!
//! ```text
//!   unchanged program ──malloc, free, …──────► family ─────┐
//!                     ──new, delete──────────► operators ──┼──► alloc (the engine)
//!                     ──mallinfo, malloc_info► reports ────┤
//!   program with skinflint.h ────────────► accounts ───┘
//!   loader ──constructor──► begin: fork handlers, figures at exit
//!   dlopen(…, DEEPBIND) ───► plugins: modules bound past us are brought back
//!   setuid, unshare, prctl, … ──► rights: our threads are not there meanwhile
//!   skinflint memory ──socket──► endpoint (if SKINFLINT_MEMORY says so)
//! ```
//!
//! M1  Everything that glibc exports to acquire, release or measure a block is here: if one name were missing, a block
//!     of glibc's could come to our `free`, or the reverse.
//! M2  Where allocators differ, the behaviour is glibc 2.36's. Programs were tested with that one.
//! M3  Only what the modules name is exported: no symbol versions, nothing of the engine.
//! M4  No exported function calls another one by its name: what stands in front of us (a recorder, the program's own
//!     `operator new`) sees each call once. The operators that the C++ standard defines by another operator are the
//!     exception, on purpose ([`operators`]).
//!
//! M5  What every program runs, from the loader's call to the first blocks and the end, has the section
//!     `.text.skinflint_first`, which `first.ld` puts at the beginning of the code, at a multiple of the 64 KiB that the kernel
//!     maps around a page fault, together with what the loader runs: a program that does little else has these pages of
//!     code and no other. What only some programs run is kept out of these functions (`#[cold]`, not inlined).
//!
//! Not here: the allocator (`alloc`), the meaning of its figures (`alloc`).
#![no_std]

mod accounts;
mod begin;
mod endpoint;
mod family;
mod files;
mod operators;
mod plugins;
mod profile;
mod reports;
mod rights;
mod text;
mod totals;

/// Writes where a panic happened, and aborts: a panic cannot leave a program's `malloc`.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    skinflint_base::sys::stderr(b"skinflint: internal error");
    if let Some(place) = info.location() {
        skinflint_base::sys::stderr(b" in ");
        skinflint_base::sys::stderr(place.file().as_bytes());
    }
    skinflint_base::sys::stderr(b"; please report it\n");
    // SAFETY: abort does not return.
    unsafe { libc::abort() }
}

// Never called, since nothing unwinds; the prebuilt `core` names it where it is not optimised away (debug builds).
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
