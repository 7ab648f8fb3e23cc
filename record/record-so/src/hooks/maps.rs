//! Mappings: `mmap`, `munmap`, `mremap`, `brk`, `sbrk`, `madvise`, where they are called through the
//! dynamic linker. glibc's own allocator calls them inside libc, unseen; others are seen, and marked
//! as the allocator's. Some programs ask for them by number (mozjemalloc of Firefox does): `syscall` is for these.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

use skinflint_base::ring::{ARENA_FLAG, BREAK_FLAGS, tag, word};

use skinflint_base::sys;

use crate::emit;
use crate::real::call;
use crate::stacks::{self, Caller};
use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::thread;
use crate::{modules, process, real};

/// A mapping call under way.
pub(super) enum By {
    /// The program.
    Program(*mut ThreadState),
    /// The allocator, during a call of the program's.
    Allocator(*mut ThreadState),
    /// A thread that is not recorded.
    Unrecorded,
}

/// Makes a mapping call by a raw system call, and reports errors as libc does: used while the table of real functions
/// is not complete (real.L2), and for calls by number, since the function beneath may itself use such calls
/// (tcmalloc's `mmap`).
pub(super) fn by_kernel(number: i64, args: [u64; 6]) -> i64 {
    // SAFETY: the program's own call.
    let result = unsafe { sys::syscall(number, args) };
    if sys::is_error(result) {
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    result
}

impl By {
    pub(super) fn enter() -> By {
        // A program with its own malloc (chromium) maps memory while it holds a lock of that malloc.
        // Resolving names and linking may allocate, so they must not begin here; they begin with our
        // constructor, or with a heap event, whichever comes first. A copy has inherited all of that:
        // it meets the collector by system calls alone (link.K3), whatever it holds.
        if !real::is_resolved() || process::epoch() == 0 && !process::is_new_copy() {
            return By::Unrecorded;
        }
        let from_allocator = thread::enter_from_allocator();
        if !from_allocator.is_null() {
            return By::Allocator(from_allocator);
        }
        thread::register_without_allocating();
        let state = thread::enter();
        if state.is_null() {
            return By::Unrecorded;
        }
        // SAFETY: of `enter`.
        unsafe { set_busy(state, RECORDING) };
        By::Program(state)
    }

    pub(super) fn state(&self) -> Option<*mut ThreadState> {
        match self {
            By::Program(state) | By::Allocator(state) => Some(*state),
            By::Unrecorded => None,
        }
    }

    pub(super) fn flag(&self) -> u8 {
        u8::from(matches!(self, By::Allocator(_)))
    }

    pub(super) fn leave(self) {
        // SAFETY: each as it was entered.
        unsafe {
            match self {
                By::Program(state) => thread::leave(state),
                By::Allocator(state) => set_busy(state, INSIDE),
                By::Unrecorded => {}
            }
        }
    }
}

unsafe extern "C" fn mmap_recorded<const BY_NUMBER: bool>(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    let by = By::enter();
    let args = [
        addr as u64,
        len as u64,
        prot as u64,
        flags as u64,
        fd as u64,
        offset as u64,
    ];
    if !real::is_resolved() {
        return by_kernel(libc::SYS_mmap, args) as *mut c_void;
    }
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let result = match BY_NUMBER {
            true => by_kernel(libc::SYS_mmap, args) as *mut c_void,
            false => call!(mmap as Mmap)(addr, len, prot, flags, fd, offset),
        };
        if let Some(state) = by.state()
            && result != libc::MAP_FAILED
            && stacks::stack(state, Caller { sp, bp })
        {
            let (by_allocator, arena) = match (*state).maps_arena {
                true => (1, ARENA_FLAG),
                false => (by.flag(), 0),
            };
            let first = word(tag::MAP, by_allocator, result as u64);
            let rights = (prot as u32 as u64) << 32 | flags as u32 as u64 | arena;
            emit::long(state, first, &[len as u64, rights]);
        }
        by.leave();
        result
    }
}

/// `mmap`, recorded. Six arguments leave no register free: the registers of the entry go on the stack.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    skinflint_unwind::with_registers!("7th", "8th", mmap_recorded::<false>);
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "sub rsp, 8",
        "push rbp",
        "lea rax, [rsp + 16]",
        "push rax",
        "call {recorded}",
        "add rsp, 24",
        "ret",
        recorded = sym mmap_recorded::<false>,
    )
}

/// `mmap64`: the same function as `mmap` where a word has 64 bits.
///
/// # Safety
/// As for `mmap`.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    naked_asm!("b {mmap}", mmap = sym mmap);
    #[cfg(target_arch = "x86_64")]
    naked_asm!("jmp {mmap}", mmap = sym mmap)
}

/// `munmap`, recorded before the call.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: as for this function.
    unsafe { munmap_recorded::<false>(addr, len) as c_int }
}

unsafe extern "C" fn munmap_recorded<const BY_NUMBER: bool>(addr: *mut c_void, len: usize) -> i64 {
    let by = By::enter();
    let args = [addr as u64, len as u64, 0, 0, 0, 0];
    if !real::is_resolved() {
        return by_kernel(libc::SYS_munmap, args);
    }
    // SAFETY: the program's own call; state.H1.
    unsafe {
        // The kernel refuses any other range, and nothing is unmapped then.
        let is_sound = (addr as u64).is_multiple_of(page()) && len != 0;
        if let Some(state) = by.state().filter(|_| is_sound) {
            emit::long(
                state,
                word(tag::UNMAP, by.flag(), addr as u64),
                &[len as u64],
            );
        }
        modules::unmapping(addr as u64, len as u64);
        let result = match BY_NUMBER {
            true => by_kernel(libc::SYS_munmap, args),
            false => i64::from(call!(munmap as Munmap)(addr, len)),
        };
        by.leave();
        result
    }
}

unsafe extern "C" fn mremap_recorded<const BY_NUMBER: bool>(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    to: *mut c_void,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    let by = By::enter();
    let args = [
        old as u64,
        old_len as u64,
        new_len as u64,
        flags as u64,
        to as u64,
        0,
    ];
    if !real::is_resolved() {
        return by_kernel(libc::SYS_mremap, args) as *mut c_void;
    }
    // SAFETY: the program's own call; state.H1.
    unsafe {
        // With a length of 0, the old pages stay where they are, and are mapped a second time.
        let moves = old_len != 0;
        let recorded = by
            .state()
            .filter(|&state| stacks::stack(state, Caller { sp, bp }));
        let remapped = |from: u64, len: usize, to: u64, new_len: usize| {
            if let Some(state) = recorded {
                let first = word(tag::REMAP, by.flag(), from);
                emit::long(state, first, &[len as u64, to, new_len as u64]);
            }
        };
        let old_addr = old as u64;
        let aside = if moves { old_addr ^ ASIDE } else { old_addr };
        if moves {
            remapped(old_addr, old_len, aside, old_len);
        }
        let result = match BY_NUMBER {
            true => by_kernel(libc::SYS_mremap, args) as *mut c_void,
            false => call!(mremap as Mremap)(old, old_len, new_len, flags, to),
        };
        if result != libc::MAP_FAILED {
            remapped(aside, old_len, result as u64, new_len);
        } else if moves {
            remapped(aside, old_len, old_addr, old_len);
        }
        by.leave();
        result
    }
}

/// The alignment of mappings, in bytes.
pub(super) fn page() -> u64 {
    skinflint_base::page::kernel() as u64
}

/// A bit that is changed in the address of a mapping that is being moved: no program maps anything there. (On x86-64
/// nothing is above it; on aarch64, where addresses have 48 bits, nothing is mapped 128 TiB below a mapping.) As soon as the
/// kernel has moved a mapping, another thread may map at the old address, and its event may come before the one that
/// follows our call; so the move away from the old address is recorded before the call, and the move to the new
/// address, or back to the old one, after it.
const ASIDE: u64 = 1 << 47;

/// `mremap`, recorded before and after the call.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    skinflint_unwind::with_registers!("r9", "7th", mremap_recorded::<false>);
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov r9, rsp",
        "sub rsp, 16",
        "push rbp",
        "call {recorded}",
        "add rsp, 24",
        "ret",
        recorded = sym mremap_recorded::<false>,
    )
}

/// `madvise`, recorded before the call: it may discard pages.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: as for this function.
    unsafe { madvise_recorded::<false>(addr, len, advice) as c_int }
}

unsafe extern "C" fn madvise_recorded<const BY_NUMBER: bool>(
    addr: *mut c_void,
    len: usize,
    advice: c_int,
) -> i64 {
    let by = By::enter();
    let args = [addr as u64, len as u64, advice as u64, 0, 0, 0];
    if !real::is_resolved() {
        return by_kernel(libc::SYS_madvise, args);
    }
    // SAFETY: the program's own call; state.H1.
    unsafe {
        if let Some(state) = by.state() {
            let first = word(tag::ADVISE, by.flag(), addr as u64);
            emit::long(state, first, &[len as u64, advice as u32 as u64]);
        }
        let result = match BY_NUMBER {
            true => by_kernel(libc::SYS_madvise, args),
            false => i64::from(call!(madvise as Madvise)(addr, len, advice)),
        };
        by.leave();
        result
    }
}

/// Records that the program moved the end of the data segment: what it took is memory that it mapped, by stack, and what
/// it returned is unmapped. Whole pages count, those of the end that the segment had included: a program that takes it in
/// pieces fills them one after another. An allocator's moves are its own matter.
///
/// # Safety
/// Between `enter` and `leave`, RECORDING.
unsafe fn moved(state: *mut ThreadState, by: &By, before: u64, after: u64, caller: Caller) {
    let page = page();
    let (from, to) = (before / page * page, after / page * page);
    // SAFETY: as the caller promises.
    unsafe {
        if matches!(by, By::Program(_)) && from < to && stacks::stack(state, caller) {
            let rights = ((libc::PROT_READ | libc::PROT_WRITE) as u64) << 32 | BREAK_FLAGS;
            emit::long(state, word(tag::MAP, 0, from), &[to - from, rights]);
        }
        let (from, to) = (after.next_multiple_of(page), before.next_multiple_of(page));
        if matches!(by, By::Program(_)) && from < to {
            emit::long(state, word(tag::UNMAP, 0, from), &[to - from]);
        }
        emit::short(state, tag::BRK, by.flag(), after);
    }
}

unsafe extern "C" fn brk_recorded(end: *mut c_void, sp: u64, bp: u64) -> c_int {
    let by = By::enter();
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let before = match by {
            By::Program(_) => call!(sbrk as Sbrk)(0) as u64,
            _ => end as u64,
        };
        let result = call!(brk as Brk)(end);
        if let Some(state) = by.state()
            && result == 0
        {
            moved(state, &by, before, end as u64, Caller { sp, bp });
        }
        by.leave();
        result
    }
}

unsafe extern "C" fn sbrk_recorded(increment: isize, sp: u64, bp: u64) -> *mut c_void {
    let by = By::enter();
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let before = call!(sbrk as Sbrk)(increment);
        if let Some(state) = by.state()
            && increment != 0
            && before as isize != -1
        {
            let after = (before as u64).wrapping_add(increment as u64);
            moved(state, &by, before as u64, after, Caller { sp, bp });
        }
        by.leave();
        before
    }
}

/// `brk`, recorded after the call.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
    skinflint_unwind::with_registers!("rsi", "rdx", brk_recorded)
}

/// `sbrk`, recorded after the call.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn sbrk(increment: isize) -> *mut c_void {
    skinflint_unwind::with_registers!("rsi", "rdx", sbrk_recorded)
}

/// `syscall`: mappings, programs and filters that are asked for by number are recorded, or noticed, as those by name.
///
/// All other numbers go on to the function behind ours, without a frame of ours: a child that shares its parent's stack
/// returns through this function.
///
/// # Safety
/// As for the system call of that number.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(number: i64) -> i64 {
    naked_asm!(
        "cmp x0, {SYS_MMAP}",
        "b.eq 3f",
        "cmp x0, {SYS_MUNMAP}",
        "b.eq 2f",
        "cmp x0, {SYS_MREMAP}",
        "b.eq 5f",
        "cmp x0, {SYS_MADVISE}",
        "b.eq 2f",
        "cmp x0, {SYS_EXECVE}",
        "b.eq 2f",
        "cmp x0, {SYS_EXECVEAT}",
        "b.eq 2f",
        "cmp x0, {SYS_SECCOMP}",
        "b.eq 2f",
        "cmp x0, {SYS_PRCTL}",
        "b.ne 4f",
        "cmp w1, {SET_SECCOMP}",
        "b.eq 2f",
        "4: b {passed}",
        "2:",
        "mov x9, x0",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "b {by_number}",
        "3:",
        "stp x29, x30, [sp, #-16]!",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "mov x5, x6",
        "add x6, sp, #8",
        "mov x7, x29",
        "bl {mmap}",
        "ldp x29, x30, [sp], #16",
        "ret",
        "5:",
        "stp x29, x30, [sp, #-16]!",
        "mov x0, x1",
        "mov x1, x2",
        "mov x2, x3",
        "mov x3, x4",
        "mov x4, x5",
        "add x5, sp, #8",
        "mov x6, x29",
        "bl {mremap}",
        "ldp x29, x30, [sp], #16",
        "ret",
        SYS_MMAP = const libc::SYS_mmap,
        SYS_MUNMAP = const libc::SYS_munmap,
        SYS_MREMAP = const libc::SYS_mremap,
        SYS_MADVISE = const libc::SYS_madvise,
        SYS_EXECVE = const libc::SYS_execve,
        SYS_EXECVEAT = const libc::SYS_execveat,
        SYS_SECCOMP = const libc::SYS_seccomp,
        SYS_PRCTL = const libc::SYS_prctl,
        SET_SECCOMP = const libc::PR_SET_SECCOMP,
        passed = sym super::filters::passed,
        by_number = sym by_number,
        mmap = sym mmap_recorded::<true>,
        mremap = sym mremap_recorded::<true>,
    )
}

/// `syscall`: mappings, programs and filters that are asked for by number are recorded, or noticed, as those by name.
///
/// All other numbers go on to the function behind ours, without a frame of ours: a child that shares its parent's stack
/// returns through this function.
///
/// # Safety
/// As for the system call of that number.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn syscall(number: i64) -> i64 {
    naked_asm!(
        "cmp rdi, {SYS_MMAP}",
        "je 3f",
        "cmp rdi, {SYS_MUNMAP}",
        "je 2f",
        "cmp rdi, {SYS_MREMAP}",
        "je 5f",
        "cmp rdi, {SYS_MADVISE}",
        "je 2f",
        "cmp rdi, {SYS_EXECVE}",
        "je 2f",
        "cmp rdi, {SYS_EXECVEAT}",
        "je 2f",
        "cmp rdi, {SYS_SECCOMP}",
        "je 2f",
        "cmp rdi, {SYS_PRCTL}",
        "jne {passed}",
        "cmp esi, {SET_SECCOMP}",
        "jne {passed}",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov rcx, r8",
        "mov r8, r9",
        "jmp {by_number}",
        "3:",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov rcx, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "sub rsp, 8",
        "push rbp",
        "lea rax, [rsp + 16]",
        "push rax",
        "call {mmap}",
        "add rsp, 24",
        "ret",
        "5:",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov rcx, r8",
        "mov r8, r9",
        "mov r9, rsp",
        "sub rsp, 16",
        "push rbp",
        "call {mremap}",
        "add rsp, 24",
        "ret",
        SYS_MMAP = const libc::SYS_mmap,
        SYS_MUNMAP = const libc::SYS_munmap,
        SYS_MREMAP = const libc::SYS_mremap,
        SYS_MADVISE = const libc::SYS_madvise,
        SYS_EXECVE = const libc::SYS_execve,
        SYS_EXECVEAT = const libc::SYS_execveat,
        SYS_SECCOMP = const libc::SYS_seccomp,
        SYS_PRCTL = const libc::SYS_prctl,
        SET_SECCOMP = const libc::PR_SET_SECCOMP,
        passed = sym super::filters::passed,
        by_number = sym by_number,
        mmap = sym mmap_recorded::<true>,
        mremap = sym mremap_recorded::<true>,
    )
}

/// Goes on to our function for the number in `rax` (aarch64: `x9`), with its first five arguments in their registers.
#[unsafe(naked)]
unsafe extern "C" fn by_number() {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "cmp x9, {SYS_MUNMAP}",
        "b.eq 2f",
        "cmp x9, {SYS_MADVISE}",
        "b.eq 3f",
        "cmp x9, {SYS_EXECVE}",
        "b.eq 4f",
        "cmp x9, {SYS_EXECVEAT}",
        "b.eq 5f",
        "cmp x9, {SYS_SECCOMP}",
        "b.eq 6f",
        "b {prctl}",
        "2: b {munmap}",
        "3: b {madvise}",
        "4: b {execve}",
        "5: b {execveat}",
        "6: b {seccomp}",
        SYS_MUNMAP = const libc::SYS_munmap,
        SYS_MADVISE = const libc::SYS_madvise,
        SYS_EXECVE = const libc::SYS_execve,
        SYS_EXECVEAT = const libc::SYS_execveat,
        SYS_SECCOMP = const libc::SYS_seccomp,
        munmap = sym munmap_recorded::<true>,
        madvise = sym madvise_recorded::<true>,
        execve = sym super::starts::execve_by_number,
        execveat = sym super::starts::execveat_by_number,
        seccomp = sym super::filters::seccomp,
        prctl = sym super::filters::set_seccomp::<true>,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp rax, {SYS_MUNMAP}",
        "je {munmap}",
        "cmp rax, {SYS_MADVISE}",
        "je {madvise}",
        "cmp rax, {SYS_EXECVE}",
        "je {execve}",
        "cmp rax, {SYS_EXECVEAT}",
        "je {execveat}",
        "cmp rax, {SYS_SECCOMP}",
        "je {seccomp}",
        "jmp {prctl}",
        SYS_MUNMAP = const libc::SYS_munmap,
        SYS_MADVISE = const libc::SYS_madvise,
        SYS_EXECVE = const libc::SYS_execve,
        SYS_EXECVEAT = const libc::SYS_execveat,
        SYS_SECCOMP = const libc::SYS_seccomp,
        munmap = sym munmap_recorded::<true>,
        madvise = sym madvise_recorded::<true>,
        execve = sym super::starts::execve_by_number,
        execveat = sym super::starts::execveat_by_number,
        seccomp = sym super::filters::seccomp,
        prctl = sym super::filters::set_seccomp::<true>,
    )
}
