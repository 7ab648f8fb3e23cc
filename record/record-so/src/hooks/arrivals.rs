//! Libraries that are about to begin: those with an allocator of their own are hooked here.
//!
//! ```text
//!   dlopen ─► mapped, bound ─► _init (crti.o) ─► __gmon_start__: ours ─► madvise among its names? ─► plan ─► jumps
//!                                                                        constructors, PyInit_…, main ◄────┘
//! ```
//!
//! A1  The C library's `crti.o`, which every linker puts first into a library, calls `__gmon_start__` if there is one, before
//!     the library's constructors. It is meant for profilers (`-pg`), and no other program has it: one that has its own
//!     is found before ours, and its libraries stay as they are.
//! A2  The library is the one that the call comes from. Nothing in it has run but functions that choose others (`ifunc`), and
//!     the loader's lock is held, so no other thread opens or closes one.
//! A3  The collector is asked only about libraries that call `madvise`: every allocator that is known gives memory back so,
//!     and few others do. One that exports malloc is not asked about: calls of that are hooked already.
//!
//! Not here: hooking (linked.rs). Libraries without `_init`, and those of programs that are attached to.

use core::arch::naked_asm;
use core::sync::atomic::Ordering;

use skinflint_base::loader::{self, Beginnings, Module};

use crate::{linked, process, real, thread};

/// What `_init` of a library calls: see the head of the file.
///
/// # Safety
/// Takes nothing, and returns nothing.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __gmon_start__() {
    naked_asm!(
        "mov rdi, qword ptr [rsp]",
        "jmp {arrives}",
        arrives = sym arrives,
    )
}

static NAMES: Beginnings = Beginnings::of(&[c"madvise"]);

/// Hooks the allocator of the library that calls from `from`, if it has one (A2).
unsafe extern "C" fn arrives(from: u64) {
    // ORDER: Relaxed; a flag that is never taken back.
    if process::OFF.load(Ordering::Relaxed) {
        return;
    }
    let mut found = None;
    let mut number = 0;
    loader::each_module(&mut |module, _| {
        // The loader's list begins with the program, whose plan came with the first answer.
        if module.holds(from) && number > 0 && may_have_an_allocator(module) {
            found = Some(*module);
        }
        number += 1;
        !module.holds(from)
    });
    let Some(module) = found else {
        return;
    };
    // A library that the program is linked with may come before the first event.
    if !real::is_in_front() {
        return;
    }
    real::resolve();
    let state = thread::enter();
    if !state.is_null() {
        // SAFETY: of `enter`; A2.
        unsafe {
            linked::arrives(state, &module);
            thread::leave(state);
        }
    }
}

/// Returns whether the collector is asked about a library (A3).
fn may_have_an_allocator(module: &Module) -> bool {
    let ours = module.holds(arrives as *const () as u64);
    let mut gives_back = false;
    // SAFETY: the module stays loaded while it is shown.
    unsafe {
        if ours || !module.function(c"malloc").is_null() {
            return false;
        }
        module.entries(&NAMES, |entry| gives_back |= entry.name == c"madvise");
    }
    gives_back
}
