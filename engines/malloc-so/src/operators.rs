//! `operator new` and `operator delete` of C++, all of them.
//!
//! ```text
//!   new[]  ─► new ─► alloc::malloc ── null ─► the C++ library's new: handler, malloc again, bad_alloc
//!   delete[](p, n) ─► delete[](p) ─► delete(p) ─► alloc::free
//! ```
//!
//! N1  A program may replace `new` and `delete` and leave the others: the standard defines those by the replaced ones
//!     (`new[]` calls `new`, `delete(p, n)` calls `delete(p)`). So only `new(n)`, `new(n, align)`, `delete(p)` and
//!     `delete(p, align)` are ours; all others jump to what the *program* means by these names, through the global
//!     offset table: one instruction, behind a test where a hardened process checks something. (Binding them here,
//!     `-Bsymbolic-functions`, would free the program's own blocks as ours.)
//! N2  Nothing is thrown here. When memory runs out the call goes on, by a jump, to the next `operator new` behind us,
//!     with the same arguments: libstdc++'s calls `malloc`, calls the new-handler, throws. The jump leaves no frame of
//!     ours, so none has to be unwound; a test of the built library checks that it stays a jump.
//! N3  With no C++ library in the process the program cannot catch: one line, and abort.
//! N4  A library that is preloaded before us and has operators of these names is no replacement: it calls us.
//! N5  Blocks have a form, of `new` or of `new[]`, only while these and both deletes are all ours: what replaces one of them
//!     makes and takes blocks of its own.
//!
//! `__hot_cold_t` are hints that LLVM makes from a profile: two temperatures. Both are treated alike here.
//!
//! Not here: class-specific operators (the compiler calls them by themselves).

use core::arch::naked_asm;
use core::ffi::CStr;

use skinflint_alloc as alloc;
use skinflint_alloc::whole;

use crate::family;

/// The C++ libraries, in the order in which they are asked.
const LIBRARIES: [&CStr; 3] = [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"];

/// The operators that may fail, by their names in the C++ library. The index is the argument of [`behind_us`].
const NAMES: [&CStr; 6] = [
    c"_Znwm",
    c"_ZnwmSt11align_val_t",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
];

/// The first of [`NAMES`] that returns null instead of throwing.
const FIRST_NOTHROW: usize = 2;

/// Returns the operator of the same name behind us: of a library that the program was linked with, or of one that was
/// loaded for a plug-in alone. Where there is none, a throwing operator ends the program (N3).
///
/// Nothing is remembered: the caller has run out of memory.
#[cold]
extern "C" fn behind_us(which: usize) -> *mut u8 {
    let Some(name) = NAMES.get(which) else {
        return core::ptr::null_mut();
    };
    // SAFETY: look-ups by name; RTLD_NOLOAD loads nothing, and the handle is given back.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    for library in LIBRARIES {
        if !found.is_null() {
            break;
        }
        // SAFETY: as above.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if !handle.is_null() {
                found = libc::dlsym(handle, name.as_ptr());
                libc::dlclose(handle);
            }
        }
    }
    if !found.is_null() {
        return found.cast();
    }
    if which < FIRST_NOTHROW {
        skinflint_base::sys::stderr(
            b"skinflint: operator new: out of memory, and no C++ library to throw bad_alloc\n",
        );
        // SAFETY: abort does not return.
        unsafe { libc::abort() }
    }
    returns_null as *mut u8
}

extern "C" fn returns_null() -> *mut u8 {
    core::ptr::null_mut()
}

/// Goes on to the operator behind us, with the arguments as they are: the three that an operator may have are saved
/// over the look-up. At entry the stack is 8 below a multiple of 16; three pushes make it one.
macro_rules! goes_on {
    ($name:ident($($argument:ident: $kind:ty),*), $which:literal) => {
        #[cold]
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> *mut u8 {
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                skinflint_base::jump_to_what_before_returns!("mov w0, {which}"),
                which = const $which,
                before = sym behind_us,
            );
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "mov edi, {which}",
                "call {behind_us}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                which = const $which,
                behind_us = sym behind_us,
            )
        }
    };
}

goes_on!(new_goes_on(size: usize), 0);
goes_on!(new_aligned_goes_on(size: usize, align: usize), 1);
goes_on!(new_nothrow_goes_on(size: usize, token: *const u8), 2);
goes_on!(new_array_nothrow_goes_on(size: usize, token: *const u8), 3);
goes_on!(new_aligned_nothrow_goes_on(size: usize, align: usize, token: *const u8), 4);
goes_on!(new_array_aligned_nothrow_goes_on(size: usize, align: usize, token: *const u8), 5);

/// `operator new(size_t)`. Where forms are noted every call goes the slow way, by `new_sampled`: the budgets of a process
/// that is checked throughout are always used up (`harden`).
///
/// # Safety
/// As for `malloc`.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _Znwm(size: usize) -> *mut u8 {
    alloc::malloc_whole!(new_any, new_sampled, new_slow)
}

/// Ways out of `operator new` (`whole.W2`): each does what malloc's does, and goes on if that fails (N2).
macro_rules! new_way_out {
    ($name:ident($($argument:ident: $kind:ty),*) = $malloc:path) => {
        #[inline(never)]
        unsafe extern "C" fn $name(size: usize, $($argument: $kind),*) -> *mut u8 {
            // SAFETY: as `whole` promises; N2.
            unsafe {
                let block = $malloc(size, $($argument),*);
                if block.is_null() {
                    return new_goes_on(size);
                }
                noted(block, false)
            }
        }
    };
}

new_way_out!(new_any() = alloc::malloc);
new_way_out!(new_sampled(heap: *mut whole::Heap) = whole::malloc_sampled);
new_way_out!(new_slow(heap: *mut whole::Heap) = whole::malloc_slow);

/// `operator new(size_t, align_val_t)`. An alignment that is no power of two fails, as in libstdc++.
///
/// # Safety
/// As for `malloc`.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZnwmSt11align_val_t(size: usize, align: usize) -> *mut u8 {
    // SAFETY: as the caller promises; N2.
    unsafe {
        let block = aligned_or_null(size, align);
        if block.is_null() {
            return new_aligned_goes_on(size, align);
        }
        noted(block, false)
    }
}

/// Returns an aligned block, or null.
///
/// # Safety
/// As for `malloc`.
#[inline]
unsafe fn aligned_or_null(size: usize, align: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        return core::ptr::null_mut();
    }
    // SAFETY: as the caller promises.
    unsafe { family::aligned(align, size) }
}

/// Returns what the program means by an operator's name (N1). Cost: one load.
macro_rules! meant {
    ($name:literal) => {{
        let meant: usize;
        // SAFETY: reads the entry of the global offset table that the loader filled in.
        unsafe {
            #[cfg(target_arch = "aarch64")]
            core::arch::asm!(
                concat!("adrp {meant}, :got:", $name),
                concat!("ldr {meant}, [{meant}, :got_lo12:", $name, "]"),
                meant = out(reg) meant,
                options(nostack, readonly, preserves_flags, pure),
            );
            #[cfg(target_arch = "x86_64")]
            core::arch::asm!(
                concat!("mov {meant}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                meant = out(reg) meant,
                options(nostack, readonly, preserves_flags, pure),
            );
        }
        meant
    }};
}

/// The definer of an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// This library.
    Ours,
    /// The program: it replaces the operator (N1).
    Programs,
    /// A library that was preloaded before us: a recorder, which calls us in the end (N4).
    Another,
}

/// Returns the definer of an operator. Cost for ours: two compares.
#[inline]
fn whose(operator: usize) -> Whose {
    unsafe extern "C" {
        /// First byte of this library, by the linker.
        #[link_name = "__ehdr_start"]
        static LIBRARY_BEGIN: u8;
        /// First byte behind its code, by the linker.
        #[link_name = "etext"]
        static CODE_END: u8;
    }
    let begin = &raw const LIBRARY_BEGIN as usize;
    let end = &raw const CODE_END as usize;
    if operator.wrapping_sub(begin) < end.wrapping_sub(begin) {
        return Whose::Ours;
    }
    if is_in_program(operator) {
        Whose::Programs
    } else {
        Whose::Another
    }
}

/// Reports whether an address lies in the executable, by its program headers, whose address the kernel gives us.
/// (`dladdr` would take the loader's lock.)
#[cold]
fn is_in_program(address: usize) -> bool {
    // SAFETY: plain look-ups; the kernel sets both.
    let (table, count) = unsafe {
        (
            libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr,
            libc::getauxval(libc::AT_PHNUM) as usize,
        )
    };
    if table.is_null() {
        return false;
    }
    // SAFETY: the kernel says that this many headers lie there; they stay mapped with the program.
    let headers = unsafe { core::slice::from_raw_parts(table, count) };
    let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR);
    let Some(own) = own else {
        return false;
    };
    let moved_by = (table as usize).wrapping_sub(own.p_vaddr as usize);
    headers.iter().any(|header| {
        let begin = moved_by.wrapping_add(header.p_vaddr as usize);
        header.p_type == libc::PT_LOAD && address.wrapping_sub(begin) < header.p_memsz as usize
    })
}

/// The operators that return null. libstdc++ defines them by the throwing ones, in a `try`: where the program replaced
/// those, libstdc++ has to do it; and also where memory runs out, since the new-handler is called. Behind a recorder
/// libstdc++'s `try` would call the recorder, which calls us: then null is returned at once.
macro_rules! nothrow {
    ($name:ident($($argument:ident: $kind:ty),*), $array:literal, $($throwing:literal)* => $block:expr, $goes_on:ident) => {
        #[doc = concat!("`", stringify!($name), "`: returns null instead of throwing.")]
        ///
        /// # Safety
        /// As for `malloc`.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> *mut u8 {
            let whose = [$(whose(meant!($throwing))),*];
            // SAFETY: as the caller promises.
            unsafe {
                if !whose.contains(&Whose::Programs) {
                    let block = $block;
                    if !block.is_null() || whose.contains(&Whose::Another) {
                        return noted(block, $array);
                    }
                }
                $goes_on($($argument),*)
            }
        }
    };
}

nothrow!(
    _ZnwmRKSt9nothrow_t(size: usize, token: *const u8), false,
    "_Znwm" => alloc::malloc(size), new_nothrow_goes_on
);
nothrow!(
    _ZnamRKSt9nothrow_t(size: usize, token: *const u8), true,
    "_Znam" "_Znwm" => alloc::malloc(size), new_array_nothrow_goes_on
);
nothrow!(
    _ZnwmSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, token: *const u8), false,
    "_ZnwmSt11align_val_t" => aligned_or_null(size, align), new_aligned_nothrow_goes_on
);
nothrow!(
    _ZnamSt11align_val_tRKSt9nothrow_t(size: usize, align: usize, token: *const u8), true,
    "_ZnamSt11align_val_t" "_ZnwmSt11align_val_t" => aligned_or_null(size, align),
    new_array_aligned_nothrow_goes_on
);

/// `operator delete(void*)`.
///
/// # Safety
/// As for `free`.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPv(block: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { alloc::free(block) }
}

/// `operator delete(void*, align_val_t)`.
///
/// # Safety
/// As for `free`.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvSt11align_val_t(block: *mut u8) {
    // SAFETY: as the caller promises. The alignment is in a register: the engine knows the block.
    unsafe { alloc::free(block) }
}

/// Operators that are another one, as the program means it (N1). Arguments that the other one does not have stay in
/// registers that it does not read; `third_is_second` moves what stands elsewhere.
macro_rules! by_another {
    ($($name:ident = $other:literal;)*) => {$(
        by_another!(@one $name, skinflint_base::jump_as_meant!($other));
    )*};
    (third_is_second: $($name:ident = $other:literal;)*) => {$(
        by_another!(@one $name, "mov rsi, rdx", skinflint_base::jump_as_meant!($other));
    )*};
    (@one $name:ident, $($line:expr),*) => {
        #[doc = concat!("`", stringify!($name), "`, by another operator.")]
        ///
        /// # Safety
        /// As for the other operator.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!($($line),*)
        }
    };
}

by_another! {
    _ZdlPvRKSt9nothrow_t = "_ZdlPv";
    _ZdaPvRKSt9nothrow_t = "_ZdaPv";
    _ZdlPvSt11align_val_tRKSt9nothrow_t = "_ZdlPvSt11align_val_t";
    _ZdaPvSt11align_val_tRKSt9nothrow_t = "_ZdaPvSt11align_val_t";
    _Znwm12__hot_cold_t = "_Znwm";
    _Znam12__hot_cold_t = "_Znam";
    _ZnwmRKSt9nothrow_t12__hot_cold_t = "_ZnwmRKSt9nothrow_t";
    _ZnamRKSt9nothrow_t12__hot_cold_t = "_ZnamRKSt9nothrow_t";
    _ZnwmSt11align_val_t12__hot_cold_t = "_ZnwmSt11align_val_t";
    _ZnamSt11align_val_t12__hot_cold_t = "_ZnamSt11align_val_t";
    _ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t = "_ZnwmSt11align_val_tRKSt9nothrow_t";
    _ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t = "_ZnamSt11align_val_tRKSt9nothrow_t";
}

/// A `delete`, aligned or not: what is not aligned does not read the second argument.
type Delete = unsafe extern "C" fn(*mut u8, usize);

/// Stands for the size of a block of `delete[]` whose size is not named.
const ARRAY: usize = usize::MAX;

/// Deletes that are another one, as the program means it (N1), after what a hardened process checks: the size, or the form
/// of an array. Cost otherwise: a comparison with memory, a branch and a jump.
macro_rules! checked_delete {
    ($($name:ident($($argument:ident),*) or $checked:ident = $other:literal, of $size:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, by another operator.")]
        ///
        /// # Safety
        /// As for the other operator.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(block: *mut u8, $($argument: usize),*) {
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                ".cfi_startproc",
                "adrp x9, skinflint_range",
                "add x9, x9, :lo12:skinflint_range",
                "ldr x9, [x9, {fast_limit}]",
                "cbz x9, 2f",
                skinflint_base::jump_as_meant!($other),
                "2: b {checked}",
                ".cfi_endproc",
                fast_limit = const alloc::forms::FAST_LIMIT,
                checked = sym $checked,
            );
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                ".cfi_startproc",
                "cmp qword ptr [rip + skinflint_range + {fast_limit}], 0",
                "je {checked}",
                skinflint_base::jump_as_meant!($other),
                ".cfi_endproc",
                fast_limit = const alloc::forms::FAST_LIMIT,
                checked = sym $checked,
            )
        }

        #[cold]
        unsafe extern "C" fn $checked(block: *mut u8, $($argument: usize),*) {
            let other = meant!($other);
            // SAFETY: as the caller promises.
            unsafe { delete_checked(block, 0, $size, other) }
        }
    )*};
}

checked_delete! {
    _ZdaPv() or array_delete_checked = "_ZdlPv", of ARRAY;
    _ZdlPvm(size) or sized_delete_checked = "_ZdlPv", of size;
    _ZdaPvm(size) or sized_array_delete_checked = "_ZdaPv", of size;
}

/// Does what [`checked_delete`] does, where an alignment is passed on.
macro_rules! checked_aligned_delete {
    ($($name:ident($($argument:ident),*) = $other:literal($align:expr), of $size:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, by another operator.")]
        ///
        /// # Safety
        /// As for the other operator.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut u8, $($argument: usize),*) {
            let other = meant!($other);
            // SAFETY: the operator of this name has this type; as the caller promises.
            unsafe {
                if alloc::forms::are_checked() {
                    return delete_checked(block, $align, $size, other);
                }
                core::mem::transmute::<usize, Delete>(other)(block, $align)
            }
        }
    )*};
}

checked_aligned_delete! {
    _ZdaPvSt11align_val_t(align) = "_ZdlPvSt11align_val_t"(align), of ARRAY;
    _ZdlPvmSt11align_val_t(size, align) = "_ZdlPvSt11align_val_t"(align), of size;
    _ZdaPvmSt11align_val_t(size, align) = "_ZdaPvSt11align_val_t"(align), of size;
}

/// Checks a block, and goes on to the operator of the given address if it is as it should be.
///
/// # Safety
/// As for that operator.
#[cold]
#[inline(never)]
unsafe fn delete_checked(block: *mut u8, align: usize, size: usize, other: usize) {
    let sound = if size == ARRAY {
        !forms_are_ours() || alloc::forms::leaves_as_array(block)
    } else {
        whose(other) != Whose::Ours || alloc::forms::has_size(block, size)
    };
    if sound {
        // SAFETY: as the caller promises.
        unsafe { core::mem::transmute::<usize, Delete>(other)(block, align) }
    }
}

/// `operator new` as the program means it, by a jump.
#[unsafe(naked)]
unsafe extern "C" fn new_as_meant(size: usize) -> *mut u8 {
    naked_asm!(skinflint_base::jump_as_meant!("_Znwm"))
}

/// `operator new` with an alignment as the program means it, by a jump.
#[unsafe(naked)]
unsafe extern "C" fn new_aligned_as_meant(size: usize, align: usize) -> *mut u8 {
    naked_asm!(skinflint_base::jump_as_meant!("_ZnwmSt11align_val_t"))
}

/// `operator new[](size_t)`: what the program means by the operator for one object, by a jump, unless every call is checked
/// and the form is to be noted. Tools that count calls know a jump out of this library behind one comparison (`probe-so`).
///
/// # Safety
/// As for the other operator.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _Znam() {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, skinflint_range",
        "add x9, x9, :lo12:skinflint_range",
        "ldr x9, [x9, {fast_limit}]",
        "cbz x9, 2f",
        skinflint_base::jump_as_meant!("_Znwm"),
        "2: b {checked}",
        fast_limit = const alloc::forms::FAST_LIMIT,
        checked = sym array_checked,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp qword ptr [rip + skinflint_range + {fast_limit}], 0",
        "je {checked}",
        "jmp qword ptr [rip + _Znwm@GOTPCREL]",
        fast_limit = const alloc::forms::FAST_LIMIT,
        checked = sym array_checked,
    )
}

/// `operator new[](size_t, align_val_t)`: what the program means by the operator for one object, by a jump, unless every call is checked
/// and the form is to be noted. Tools that count calls know a jump out of this library behind one comparison (`probe-so`).
///
/// # Safety
/// As for the other operator.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _ZnamSt11align_val_t() {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, skinflint_range",
        "add x9, x9, :lo12:skinflint_range",
        "ldr x9, [x9, {fast_limit}]",
        "cbz x9, 2f",
        skinflint_base::jump_as_meant!("_ZnwmSt11align_val_t"),
        "2: b {checked}",
        fast_limit = const alloc::forms::FAST_LIMIT,
        checked = sym array_aligned_checked,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp qword ptr [rip + skinflint_range + {fast_limit}], 0",
        "je {checked}",
        "jmp qword ptr [rip + _ZnwmSt11align_val_t@GOTPCREL]",
        fast_limit = const alloc::forms::FAST_LIMIT,
        checked = sym array_aligned_checked,
    )
}

#[cold]
#[inline(never)]
unsafe extern "C" fn array_checked(size: usize) -> *mut u8 {
    // SAFETY: as the caller promises; N2.
    unsafe {
        let block = array_with_form(size, 1);
        if !block.is_null() {
            return block;
        }
        new_as_meant(size)
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn array_aligned_checked(size: usize, align: usize) -> *mut u8 {
    // SAFETY: as the caller promises; N2.
    unsafe {
        let block = array_with_form(size, align);
        if !block.is_null() {
            return block;
        }
        new_aligned_as_meant(size, align)
    }
}

/// Returns a block of `new[]` that has its form. Null: the operator that the program means is asked (N5), or memory ran out.
///
/// # Safety
/// As for `malloc`.
#[cold]
#[inline(never)]
unsafe fn array_with_form(size: usize, align: usize) -> *mut u8 {
    if !forms_are_ours() {
        return core::ptr::null_mut();
    }
    // SAFETY: as the caller promises.
    let block = unsafe {
        if align == 1 {
            alloc::malloc(size)
        } else {
            aligned_or_null(size, align)
        }
    };
    if !block.is_null() {
        alloc::forms::note(block, true);
    }
    block
}

/// Notes the form of a block, in a hardened process (N5).
#[inline(always)]
fn noted(block: *mut u8, array: bool) -> *mut u8 {
    if alloc::forms::are_checked() {
        note(block, array);
    }
    block
}

#[cold]
#[inline(never)]
fn note(block: *mut u8, array: bool) {
    if !block.is_null() && forms_are_ours() {
        alloc::forms::note(block, array);
    }
}

/// Reports whether all operators by which a block gets and loses a form are this library's (N5).
fn forms_are_ours() -> bool {
    [
        meant!("_Znwm"),
        meant!("_Znam"),
        meant!("_ZdlPv"),
        meant!("_ZdaPv"),
    ]
    .into_iter()
    .chain([
        meant!("_ZnwmSt11align_val_t"),
        meant!("_ZnamSt11align_val_t"),
        meant!("_ZdlPvSt11align_val_t"),
        meant!("_ZdaPvSt11align_val_t"),
    ])
    .all(|operator| whose(operator) == Whose::Ours)
}
