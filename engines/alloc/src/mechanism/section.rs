//! Restartable sections: a few instructions of which the last is a store, and to every other thread they are one step.
//!
//! ```text
//!   arm: the section's descriptor ─► load, compare, read or write the entry ─► store top      nothing came between: done
//!    ▲                                    │ preempted, a signal, a barrier
//!    └──────── abort, by the kernel ◄─────┘                                                   begun anew
//! ```
//!
//! This is the kernel's `rseq(2)`, for which the C library registers an area of each thread (glibc 2.35 and later).
//! With it [`barrier`] makes sure that every section which has begun on any processor either ended or begins anew.
//!
//! E1  `skinflint_section_at` is the distance from the thread pointer to the word in which a section is armed: that of the
//!     C library's area, or a word of ours that no kernel looks at. It is the latter from [`start`] on, which comes before
//!     the first heap, until [`begin`], which changes it only while no thread but the caller has a heap: nobody is in a
//!     section.
//! E2  Sections are restartable in threads for which [`serves_this_thread`] says so. In others they are plain code: what
//!     only such a thread may use is never revoked. That goes for a child of `vfork` too, which the kernel has no area for:
//!     a program must not allocate there.
//! E3  Threads of ours (`hidden`) have no area, and run no section.
//! E4  Nothing else of the area is written: other libraries read it.
//! E5  The area leads to a descriptor in this library for as long as the thread runs: the library is never unloaded. (Its
//!     threads' destructors forbid that anyhow.)
//!
//! A debugger that steps through a section goes round and round: set a breakpoint behind it.
//!
//! On aarch64 nothing is armed: its two sections are plain code (`section/plain`), so heaps are asked (`idle`).
//!
//! Not here: the two sections (`section/x86_64`), what they move (`magazine`),
//! when the barrier is needed (`idle`).

#[cfg(target_arch = "x86_64")]
use core::arch::{asm, global_asm};

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::{pop, push};
#[cfg(not(target_arch = "x86_64"))]
mod plain;
#[cfg(not(target_arch = "x86_64"))]
pub use plain::{pop, push};

#[cfg(target_arch = "x86_64")]
/// Bytes of a thread's area, at least, and where the processor's number and the armed section are in it.
const AREA_BYTES: u32 = 20;
#[cfg(target_arch = "x86_64")]
const CPU_AT: usize = 4;
#[cfg(target_arch = "x86_64")]
const ARMED_AT: isize = 8;

const REGISTER: u64 = 1 << 8;
const BARRIER: u64 = 1 << 7;

#[cfg(target_arch = "x86_64")]
// By name and hidden, as the range is (`range::RANGE`). In data the linker would not fill in the distance of our own word.
global_asm!(
    ".pushsection .tbss.skinflint,\"awT\",@nobits",
    ".balign 8",
    ".globl skinflint_no_section",
    ".hidden skinflint_no_section",
    ".type skinflint_no_section,@object",
    ".size skinflint_no_section,8",
    "skinflint_no_section:",
    ".zero 8",
    ".popsection",
    ".pushsection .bss.skinflint,\"aw\",@nobits",
    ".balign 8",
    ".globl skinflint_section_at",
    ".hidden skinflint_section_at",
    ".type skinflint_section_at,@object",
    ".size skinflint_section_at,8",
    "skinflint_section_at:",
    ".zero 8",
    ".popsection",
);

/// The C library's area: [`NOWHERE`], or the distance of its armed section from the thread pointer.
static AREA: AtomicU32 = AtomicU32::new(NOWHERE);
const NOWHERE: u32 = u32::MAX;

#[cfg(target_arch = "x86_64")]
/// Has sections armed in a word of ours (E1), unless [`begin`] came first: it does where nothing was allocated before.
///
/// # Safety
/// No thread has a heap, and none gets one meanwhile.
pub unsafe fn start() {
    // ORDER: one thread.
    if AREA.load(Ordering::Relaxed) != NOWHERE {
        return;
    }
    // SAFETY: words of ours.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + skinflint_no_section@GOTTPOFF]",
            "mov qword ptr [rip + skinflint_section_at], {at}",
            at = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "x86_64")]
/// Says where the C library's area is, by what it exports: the distance from the thread pointer, and the bytes that are in
/// use (0: it registers none). `true`: sections of this thread are restartable from now on. The first caller decides.
///
/// # Safety
/// No thread but this one has a heap, and none gets one meanwhile (E1); the numbers are the C library's.
pub unsafe fn begin(offset: isize, bytes: u32) -> bool {
    // ORDER: one thread.
    if bytes < AREA_BYTES || AREA.load(Ordering::Relaxed) != NOWHERE {
        return serves_this_thread();
    }
    let at = offset + ARMED_AT;
    if !is_registered(at) {
        return false;
    }
    AREA.store(at as i32 as u32, Ordering::Relaxed); // ORDER: as above
    // SAFETY: a word of ours (E1).
    unsafe {
        asm!(
            "mov qword ptr [rip + skinflint_section_at], {at}",
            at = in(reg) at,
            options(nostack, preserves_flags),
        );
    }
    true
}

#[cfg(target_arch = "x86_64")]
/// Reports whether the kernel restarts this thread's sections (E2).
#[unsafe(link_section = ".text.skinflint_first")]
pub fn serves_this_thread() -> bool {
    // ORDER: set at start, and a number by itself.
    let at = AREA.load(Ordering::Relaxed);
    let armed: isize;
    // SAFETY: a load of a word of ours.
    unsafe {
        asm!(
            "mov {armed}, qword ptr [rip + skinflint_section_at]",
            armed = out(reg) armed,
            options(nostack, readonly, preserves_flags),
        );
    }
    // Both say the same: what a section does not arm there the kernel does not restart.
    at != NOWHERE && at as i32 as isize == armed && is_registered(armed)
}

#[cfg(target_arch = "x86_64")]
/// Reports whether the kernel knows the area of this thread, whose armed section is at this distance.
fn is_registered(at: isize) -> bool {
    let cpu: u32;
    // SAFETY: the area of this thread, of the C library's making; negative numbers mean that it is not registered.
    unsafe {
        asm!(
            "mov {cpu:e}, dword ptr fs:[{at}]",
            at = in(reg) at - ARMED_AT + CPU_AT as isize,
            cpu = out(reg) cpu,
            options(nostack, readonly, preserves_flags),
        );
    }
    (cpu as i32) >= 0
}

#[cfg(not(target_arch = "x86_64"))]
pub use plain::{begin, serves_this_thread, start};

/// Whether the kernel has the barrier: 0 before it was asked.
static BARRIERS: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const THERE: u32 = 1;
const ABSENT: u32 = 2;

/// Reports whether sections can be revoked: the threads have areas, and the kernel is not known to lack the barrier.
pub fn serve() -> bool {
    // ORDER: set at start; numbers by themselves.
    AREA.load(Ordering::Relaxed) != NOWHERE && BARRIERS.load(Ordering::Relaxed) != ABSENT
}

/// Asks the kernel for the barrier, once in a process; `false`: there is none. With several threads the first call waits
/// for each of them to be scheduled, some ten milliseconds: it is for the purger, and for who wants to wait.
pub fn prepare() -> bool {
    // ORDER: a number by itself; two threads that ask get the same answer.
    if BARRIERS.load(Ordering::Relaxed) == UNKNOWN {
        let found = if membarrier(REGISTER) { THERE } else { ABSENT };
        BARRIERS.store(found, Ordering::Relaxed); // ORDER: as above
    }
    BARRIERS.load(Ordering::Relaxed) == THERE // ORDER: as above
}

/// Waits until every section that has begun has ended or begins anew; `false`: the kernel refuses, and nothing is known.
/// A child of a fork inherits what [`prepare`] asked for. Cost: one system call, and one interrupt for each processor that
/// runs a thread of the process, about a microsecond.
pub fn barrier() -> bool {
    membarrier(BARRIER)
}

fn membarrier(command: u64) -> bool {
    // SAFETY: the call has no pointers.
    let result = unsafe { sys::syscall(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) };
    result == 0
}
