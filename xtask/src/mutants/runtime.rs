//! Which mutant is switched on: copied into a crate under mutation, never part of the crate that ships.
//!
//! ```text
//!   MUTANT=17            `is(17)` is true in this process and in all that inherit its environment
//!   MUTANT_REACH=FILE    no mutant is on; `is(n)` writes 1 into byte n of FILE
//! ```
//!
//! U1  Neither allocates nor locks, and calls no function that a preloaded library may have replaced: this runs
//!     inside `malloc`, before `main` and after `fork`.
//! U2  The environment is read once, at the first call that finds one.
//!
//! Not here: how many mutants there are; the file of [`REACHED`] is longer than the greatest number.

use core::ffi::{CStr, c_char};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

const UNKNOWN: u32 = 0;
const NONE: u32 = 1;
const RECORDING: u32 = 2;
const FIRST: u32 = 3;

static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static REACHED: AtomicPtr<u8> = AtomicPtr::new(null_mut());

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Whether mutant `number` is on. Cost: one load, two branches.
#[inline(always)]
pub fn is(number: u32) -> bool {
    // ORDER: Relaxed: one number, and the pointer that RECORDING stands for is looked at before use.
    let active = ACTIVE.load(Ordering::Relaxed);
    if active == UNKNOWN || active == RECORDING {
        return is_slow(active, number);
    }
    active == number + FIRST
}

#[cold]
#[inline(never)]
fn is_slow(active: u32, number: u32) -> bool {
    let active = if active == UNKNOWN { read() } else { active };
    if active == RECORDING {
        // ORDER: Acquire pairs with the Release in `read`: the mapping is there.
        let reached = REACHED.load(Ordering::Acquire);
        if !reached.is_null() {
            // SAFETY: the mapping is longer than any number (head), and never unmapped.
            unsafe { AtomicU8::from_ptr(reached.add(number as usize)).store(1, Ordering::Relaxed) };
        }
    }
    active == number + FIRST
}

use core::sync::atomic::AtomicU8;

fn read() -> u32 {
    // SAFETY: the loader's variable; null before it is set up, and then nothing is kept (U2).
    let mut at = unsafe { environ };
    if at.is_null() {
        return NONE;
    }
    let (mut wanted, mut file) = (None, null());
    loop {
        // SAFETY: `environ` ends with a null pointer; each before it is a C string.
        let entry = unsafe { *at };
        if entry.is_null() {
            break;
        }
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(entry) }.to_bytes_with_nul();
        if let Some(value) = entry.strip_prefix(b"MUTANT=") {
            wanted = number(value);
        } else if let Some(value) = entry.strip_prefix(b"MUTANT_REACH=") {
            file = value.as_ptr();
        }
        // SAFETY: not yet at the null at the end.
        at = unsafe { at.add(1) };
    }
    let active = match wanted {
        Some(number) => number + FIRST,
        None if !file.is_null() && map(file) => RECORDING,
        None => NONE,
    };
    // ORDER: Relaxed: see `is`.
    ACTIVE.store(active, Ordering::Relaxed);
    active
}

fn number(text: &[u8]) -> Option<u32> {
    let mut number = 0_u32;
    for &byte in text.iter().take_while(|&&byte| byte != 0) {
        let digit = u32::from(byte).checked_sub(48).filter(|&digit| digit < 10)?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    (text.len() > 1).then_some(number)
}

/// Maps the file whose path (a C string) begins at `path`; false where that cannot be.
fn map(path: *const u8) -> bool {
    const OPEN: usize = 2;
    const CLOSE: usize = 3;
    const MMAP: usize = 9;
    const READ_WRITE: usize = 2;
    const CLOEXEC: usize = 0o2_000_000;
    // SAFETY: open(2) of a C string.
    let file = unsafe { call(OPEN, [path as usize, READ_WRITE | CLOEXEC, 0, 0, 0, 0]) };
    if file < 0 {
        return false;
    }
    // SAFETY: a new mapping, PROT_READ|PROT_WRITE, MAP_SHARED.
    let at = unsafe { call(MMAP, [0, 4096, 3, 1, file as usize, 0]) };
    // SAFETY: the descriptor is ours.
    unsafe { call(CLOSE, [file as usize, 0, 0, 0, 0, 0]) };
    if at <= 0 {
        return false;
    }
    // ORDER: Release: whoever sees the pointer sees the mapping.
    REACHED.store(core::ptr::with_exposed_provenance_mut(at as usize), Ordering::Release);
    true
}

/// A system call of x86-64 Linux. By hand, since libc's functions may be hooked by the very crate (U1).
///
/// # Safety
/// What the call asks of its arguments.
unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    // SAFETY: the caller's promise; rcx and r11 are what the kernel overwrites.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
            in("rdx") c, in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}
