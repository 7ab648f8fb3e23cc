//! `skinflint-replay`: plays a script on whatever allocator the loader gave it.
//!
//! ```text
//!   script ─► feed: one epoch after the other ─► mailboxes ─► player of each thread ─► malloc, free, …
//!                │ points: all is quiet                          │
//!                ▼                                               ▼
//!             resident memory, floor ─► report (JSON lines)   slots (shared memory of our own)
//! ```
//!
//! M1  The only calls of the malloc family are those of the script. What the program itself needs lies in one memfd
//!     (memory.rs): its blocks are counted by the kernel, so the allocator's memory is known to the page.
//! M2  One exception: `pthread_create` allocates what glibc needs for a thread, as it did in the recorded program.
//! M3  The recorded main thread is played by the main thread, every other by a thread of its own.
//! M4  A script that is damaged, cut or wrong ends the program with a sentence and status 2, never by a fault.
//!
//! Not here: reading traces (crate compare), starting this program, limits, samples from outside (crate compare).
#![no_std]
#![no_main]

mod feed;
mod line;
mod memory;
mod options;
mod player;
mod points;
mod slots;
mod stage;
mod system;
mod tally;
mod threads;

// The crate `libc` leaves linking to `std` when another package of the same build asks for its `std` feature.
#[link(name = "c")]
unsafe extern "C" {}

use core::ffi::{c_char, c_int};

use options::Options;

/// Handles a panic, which is a fault of ours: prints where it was, and stops.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut line = line::Line::new();
    line.raw(b"skinflint-replay: internal error");
    if let Some(place) = info.location() {
        line.raw(b" in ");
        line.raw(place.file().as_bytes());
        line.raw(b":");
        line.decimal(u64::from(place.line()));
    }
    line.raw(b"; please report it\n");
    line.write_to(2);
    system::exit_now(70)
}

/// Entry, called by the C library.
///
/// # Safety
/// `values` are `count` C strings that live as long as the process.
// SAFETY: the name is the C library's; nothing else defines it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(count: c_int, values: *const *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let options = match unsafe { Options::from_raw(count, values) } {
        options::Asked::Play(options) => options,
        options::Asked::Answered(status) => return status,
    };
    threads::perform(options)
}

/// Is never called, since nothing unwinds; the prebuilt `core` names it if it is not optimised away (debug builds).
// SAFETY: the name is the unwinder's; without `std` nothing else defines it.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}
