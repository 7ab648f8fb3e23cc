//! Modules that come and go: `dlopen`, `dlsym`, `dlclose`.
//!
//! ```text
//!   dlopen(file) ─ without RTLD_DEEPBIND ─────────────────────► real, by a jump
//!                ─ with it, a path ─► real, called ─► tables of the new modules lead to us
//!                ─ with it, a name ─► real, by a jump … the next dlsym, dlopen or dlclose does that
//! ```
//!
//! D1  The loader looks at the caller: a name is searched in the caller's run path, `$ORIGIN` is the caller's folder.
//!     So the caller stays the caller (a jump), except for a plain path, which means the same from anywhere.
//! D2  The flags are passed on unchanged.
//!
//! Not here: the tables (attach.rs).

use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;

use super::call;
use crate::thread::{self, INSIDE, RECORDING};
use crate::{attach, modules, real};

/// Does what is due before `dlsym`. Returns the function to jump to.
unsafe extern "C" fn before_dlsym() -> *mut c_void {
    attach::look_for_new_modules();
    real::REAL.dlsym.get()
}

/// `dlsym`, after a look for new modules if one is due; its caller stays its caller (D1). Cost: two loads.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    naked_asm!(
        "mov rax, qword ptr [rip + {table} + {at}]",
        "cmp byte ptr [rip + {watched}], 0",
        "jne 2f",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {before}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        table = sym real::REAL,
        at = const core::mem::offset_of!(real::Table, dlsym),
        watched = sym attach::WATCHED,
        before = sym before_dlsym,
    )
}

/// Returns the function that a call of `dlopen` jumps to: the real one, or [`open_path`].
unsafe extern "C" fn before_dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    // ORDER: Relaxed; a hint that this thread, or another thread long ago, has set.
    if attach::WATCHED.load(Ordering::Relaxed) {
        attach::look_for_new_modules();
    }
    if mode & libc::RTLD_DEEPBIND != 0 && !file.is_null() {
        // SAFETY: the program's own argument, a C string.
        let file = unsafe { core::ffi::CStr::from_ptr(file) }.to_bytes();
        if file.contains(&b'/') && !file.contains(&b'$') {
            return open_path as *mut c_void;
        }
        attach::opened_deep();
    }
    real::REAL.dlopen.get()
}

/// Opens a module that is bound past us, and redirects its calls to us (D1).
unsafe extern "C" fn open_path(file: *const c_char, mode: c_int) -> *mut c_void {
    // SAFETY: the program's own call.
    let handle = unsafe { call!(dlopen as Dlopen)(file, mode) };
    attach::opened_deep();
    attach::look_for_new_modules();
    handle
}

/// `dlopen`: see the head of the file.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _mode: c_int) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {before}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_dlopen,
    )
}

/// `dlclose`: what was unloaded is reported, and forgotten.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    // ORDER: Relaxed; as in `before_dlopen`.
    if attach::WATCHED.load(Ordering::Relaxed) {
        attach::look_for_new_modules();
    }
    // SAFETY: the program's own call; H1.
    unsafe {
        let result = call!(dlclose as Dlclose)(handle);
        let state = thread::enter();
        if !state.is_null() {
            thread::set_busy(state, RECORDING);
            modules::after_dlclose(state);
            thread::set_busy(state, INSIDE);
            thread::leave(state);
        }
        result
    }
}
