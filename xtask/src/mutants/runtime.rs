//! Tells which mutant is switched on: copied into a crate under mutation, never part of the crate that ships.
//!
//! ```text
//!   MUTANT=17            `is(17)` is true in this process and in all that inherit its environment
//!   MUTANT=17,23         both are on
//!   MUTANT_REACH=FILE    `is(n)` writes 1 into byte n of FILE, whether n is on or not
//! ```
//!
//! U1  It neither allocates nor locks, and calls no function that a preloaded library may have replaced: it runs
//!     inside `malloc`, before `main` and after `fork`.
//! U2  The environment is read once, from the kernel: a preloaded library begins before `environ` is set.
//!
//! Not here: the number of mutants; the file of [`REACHED`] is longer than the greatest number, and [`ON`] has a bit
//! for each of its bytes.

use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

const UNKNOWN: u32 = 0;
const NONE: u32 = 1;
/// Several mutants are on, or what is reached is noted, or both.
const SLOW: u32 = 2;
const FIRST: u32 = 3;

static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static REACHED: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// One bit for each mutant that is on, if there are several.
static ON: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// The environment, with a zero behind it; what does not fit is cut off.
struct Environment(UnsafeCell<[u8; ENVIRONMENT_BYTES]>);
const ENVIRONMENT_BYTES: usize = 1 << 17;
// SAFETY: threads that read it at once write the same bytes.
unsafe impl Sync for Environment {}
static ENVIRONMENT: Environment = Environment(UnsafeCell::new([0; ENVIRONMENT_BYTES]));

/// Reports whether mutant `number` is on. Cost: one load, two branches.
#[inline(always)]
pub fn is(number: u32) -> bool {
    // ORDER: Acquire pairs with the Release in `read`: the bits are there.
    let active = ACTIVE.load(Ordering::Acquire);
    if active == UNKNOWN || active == SLOW {
        return is_slow(active, number);
    }
    active == number + FIRST
}

#[cold]
#[inline(never)]
fn is_slow(active: u32, number: u32) -> bool {
    let active = if active == UNKNOWN { read() } else { active };
    if active != SLOW {
        return active == number + FIRST;
    }
    // ORDER: Acquire pairs with the Release in `map`: the mapping is there.
    let reached = REACHED.load(Ordering::Acquire);
    if !reached.is_null() {
        // SAFETY: the mapping is longer than any number (head), and never unmapped.
        unsafe { AtomicU8::from_ptr(reached.add(number as usize)).store(1, Ordering::Relaxed) };
    }
    // ORDER: Relaxed: set before `ACTIVE` was, and never again.
    ON[number as usize / 64].load(Ordering::Relaxed) >> (number % 64) & 1 != 0
}

fn read() -> u32 {
    let (mut wanted, mut file) = (&b""[..], null());
    for entry in environment().split_inclusive(|&byte| byte == 0) {
        if let Some(value) = entry.strip_prefix(b"MUTANT=") {
            wanted = value;
        } else if let Some(value) = entry.strip_prefix(b"MUTANT_REACH=") {
            file = value.as_ptr();
        }
    }
    let noted = !file.is_null() && map(file);
    let active = match switch_on(wanted) {
        (_, 0) if !noted => NONE,
        (last, 1) if !noted => last + FIRST,
        _ => SLOW,
    };
    // ORDER: Release pairs with the Acquire in `is`: a thread that sees SLOW sees the bits.
    ACTIVE.store(active, Ordering::Release);
    active
}

/// Sets the bits of numbers with commas between them; returns the last of them, and how many there are.
fn switch_on(text: &[u8]) -> (u32, u32) {
    let (mut last, mut count, mut number) = (0, 0, None);
    for &byte in text {
        if byte.is_ascii_digit() {
            number = Some((number.unwrap_or(0) * 10 + u32::from(byte - b'0')) % 4096);
        } else if let Some(done) = number.take() {
            (last, count) = (done, count + 1);
            // ORDER: Relaxed: `ACTIVE` is stored after it.
            ON[done as usize / 64].fetch_or(1 << (done % 64), Ordering::Relaxed);
        }
    }
    (last, count)
}

/// Returns the environment that the kernel gave this process; empty if `/proc` cannot be read.
fn environment() -> &'static [u8] {
    const READ: usize = 0;
    let path = c"/proc/self/environ".as_ptr() as usize;
    // SAFETY: open(2) of a C string.
    let file = unsafe { call(OPEN, [path, CLOEXEC, 0, 0, 0, 0]) };
    if file < 0 {
        return &[];
    }
    let (to, mut length) = (ENVIRONMENT.0.get() as usize, 0);
    // The last byte stays zero.
    while length < ENVIRONMENT_BYTES - 1 {
        let room = ENVIRONMENT_BYTES - 1 - length;
        // SAFETY: there is room for that many bytes.
        let got = unsafe { call(READ, [file as usize, to + length, room, 0, 0, 0]) };
        if got <= 0 {
            break;
        }
        length += got as usize;
    }
    // SAFETY: the descriptor is ours.
    unsafe { call(CLOSE, [file as usize, 0, 0, 0, 0, 0]) };
    // SAFETY: that many bytes were written, and one more is zero; nothing else is ever written there.
    unsafe { core::slice::from_raw_parts(ENVIRONMENT.0.get().cast(), length + 1) }
}

const OPEN: usize = 2;
const CLOSE: usize = 3;
const CLOEXEC: usize = 0o2_000_000;

/// Maps the file whose path (a C string) begins at `path`; returns false if that fails.
fn map(path: *const u8) -> bool {
    const MMAP: usize = 9;
    const READ_WRITE: usize = 2;
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
    // ORDER: Release: a thread that sees the pointer sees the mapping.
    REACHED.store(core::ptr::with_exposed_provenance_mut(at as usize), Ordering::Release);
    true
}

/// Makes a system call of x86-64 Linux. It does not use libc's functions, since the very crate may hook them (U1).
///
/// # Safety
/// Those of the call for its arguments.
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
