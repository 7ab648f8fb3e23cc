//! `libskinflint.so`: the allocator as a drop-in for the C library's.
//!
//! Not here: the allocator (`alloc`).
#![no_std]

/// A panic has no way out of someone's `malloc`: say where, and stop.
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
