//! Hooks in allocators that the program is linked with, or that a library brings: the collector's plans, checked and carried
//! out.
//!
//! ```text
//!   mi_malloc   │ jmp ──┼─► entry: r11 = site ─► hooks::linked ─► real ─► moved instructions, jmp ─┐
//!               │ rest … │◄────────────────────────────────────────────────────────────────────────┘
//!                 code                             near page
//! ```
//!
//! W1  Of the program it is done once in a process and its copies, by its only thread, before `main` (begin.E1), and never
//!     taken back. That thread may be inside a function that is changed, in its middle: it returns behind the bytes that are
//!     written. Of a library it is done before the first of its constructors (hooks/arrivals.rs): no thread runs its code.
//! W2  All or nothing. Every byte that a plan expects is compared before one is written; the near page is complete, and may
//!     be run, before code leads to it.
//! W3  Code is opened for writing without losing the right to be run, in one step for all of it: a kernel that forbids
//!     that has changed nothing, and one that does not close it again leaves code that runs.
//! W4  Only the first [`JUMP_BYTES`] of a function are written: whatever leads to an instruction behind them finds it.
//! W5  The plan is copied before it is looked at: it lies in memory that another process can write.
//!
//! Not here: what the hooks do (hooks/linked.rs), what is hooked (the collector).

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use skinflint_base::loader::{self, Module};
use skinflint_base::plan::{
    self, ALLOCATORS, HOOK_WORDS, Hook, JUMP_BYTES, MOST_HOOKS, MOVED_BYTES, PLAN_BYTES, what,
};
use skinflint_base::ring::{
    LINKED_ATTACHED, LINKED_FORBIDDEN, LINKED_HOOKED, LINKED_NO_ROOM, LINKED_NONSENSE,
    LINKED_OTHER_CODE, PLAN_OFFSET, ProcessHeader, tag, word,
};
use skinflint_base::{page, sys};

use crate::sites::{self, STATUS, Site, UNSEEN};
use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::{emit, high_water, link, process, real};

/// The bytes of an entry: a move of eight bytes, a jump through eight bytes.
const ENTRY_BYTES: usize = 24;
/// The bytes of the code of one function in the near page; its site is behind them.
const CODE_BYTES: usize = 72;
/// The bytes of the near page for one function.
const ROOM_BYTES: usize = CODE_BYTES + size_of::<Site>();
const _: () = assert!(ENTRY_BYTES + MOVED_BYTES + JUMP_BYTES <= CODE_BYTES);
const _: () = assert!(CODE_BYTES.is_multiple_of(align_of::<Site>()));
const _: () = assert!(ROOM_BYTES.is_multiple_of(align_of::<Site>()));

/// Carries out the plan for this process, once, and says in its header what came of it (W1). `is_copy`: it is a child of
/// fork, whose parent has done that.
pub fn begin(is_copy: bool) {
    let Some(header) = process::header() else {
        return;
    };
    // ORDER: Relaxed for both; one thread, and others begin after it.
    if !is_copy && STATUS.load(Ordering::Relaxed) == 0 {
        STATUS.store(tried(header), Ordering::Relaxed);
    }
    sites::tell(header);
}

/// Carries out the plan for a library that is about to begin, if there is one, and says what came of it (W1).
///
/// # Safety
/// Between `enter` and `leave`, in the thread that opens the library; none runs its code.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub unsafe fn arrives(state: *mut ThreadState, module: &Module) {
    let Some(sent) = link::plan_for(module.code().0) else {
        return;
    };
    let loaded = Loaded::of(module);
    // SAFETY: the plan lies in memory that was sent for it; state.H1.
    unsafe {
        let status = match real::startup() {
            Some(_) => copied(sent.plan(), Some(loaded)),
            None => LINKED_ATTACHED,
        };
        sites::settled(process::header(), sent.number, status);
        if status == LINKED_HOOKED {
            set_busy(state, RECORDING);
            for (near, bytes) in sites::own_memory() {
                emit::note(state, word(tag::OWN, 0, near), &[bytes]);
            }
            set_busy(state, INSIDE);
        }
    }
    high_water::may_not_be_counted();
}

/// Carries out the plan for the program. Returns the header's status.
fn tried(header: &'static ProcessHeader) -> u32 {
    // SAFETY: the header is the beginning of a region, and the plan is inside of that.
    unsafe { copied((&raw const *header).cast::<u8>().add(PLAN_OFFSET), None) }
}

/// Copies a plan (W5), and carries it out for a module, or for the program. Returns the header's status.
///
/// # Safety
/// `plan` is [`PLAN_BYTES`] long.
unsafe fn copied(plan: *const u8, module: Option<Loaded>) -> u32 {
    // SAFETY: as the caller promises; one aligned word, which the collector wrote before its answer.
    let count = unsafe { plan.cast::<u64>().read_volatile() };
    if count == 0 {
        return 0;
    }
    if count > MOST_HOOKS as u64 {
        return LINKED_NONSENSE;
    }
    if real::startup().is_none() {
        return LINKED_ATTACHED;
    }
    let copy = sys::map_private(PLAN_BYTES);
    if copy.is_null() {
        return LINKED_NO_ROOM;
    }
    // SAFETY: as the caller promises; no other code has the copy.
    let status = unsafe {
        core::ptr::copy_nonoverlapping(plan, copy, PLAN_BYTES);
        let words = copy.cast::<u64>().add(1).cast::<[u64; HOOK_WORDS]>();
        let hooks = core::slice::from_raw_parts(words, count as usize);
        carry_out(hooks, module)
    };
    // SAFETY: ours, and nothing of it is kept.
    unsafe { sys::unmap(copy, PLAN_BYTES) };
    status.unwrap_or_else(|why| why)
}

/// The program, or a library, in memory.
#[derive(Clone, Copy)]
struct Loaded {
    bias: u64,
    code: (u64, u64),
}

impl Loaded {
    fn of(module: &Module) -> Loaded {
        Loaded {
            bias: module.bias(),
            code: module.code(),
        }
    }

    fn program() -> Option<Loaded> {
        let mut found = None;
        loader::each_module(&mut |module, _| {
            found = Some(Loaded::of(module));
            // The loader's list begins with the program.
            false
        });
        found
    }

    /// Returns the address of a hook in memory, if `bytes` bytes from there on are code.
    fn place(&self, hook: &Hook, bytes: usize) -> Option<u64> {
        let (low, high) = self.code;
        let at = self.bias.wrapping_add(hook.address);
        let is_inside = low <= at && at.checked_add(bytes.max(1) as u64)? <= high;
        is_inside.then_some(at)
    }
}

/// Hooks all functions or none (W2).
fn carry_out(plan: &[[u64; HOOK_WORDS]], module: Option<Loaded>) -> Result<u32, u32> {
    let found = module.or_else(Loaded::program);
    let program = found.ok_or(LINKED_OTHER_CODE)?;
    let span = check(plan, &program)?;
    let bytes = (plan.len() * ROOM_BYTES).next_multiple_of(page::kernel());
    let near = map_near(program.code, bytes).ok_or(LINKED_NO_ROOM)?;
    let done = fill(plan, &program, near)
        .and_then(|tells| protect(near as u64, bytes, RUN).map(|()| tells))
        .and_then(|tells| open(span).map(|()| tells));
    let tells = done.inspect_err(|_| {
        // SAFETY: ours, and nothing leads to it (W2).
        unsafe { sys::unmap(near, bytes) };
    })?;
    // Before code leads there: another thread may come to it at once.
    sites::hooked(near as u64, bytes, tells);
    write(plan, &program, near);
    close(span);
    Ok(LINKED_HOOKED)
}

/// Compares every byte, and returns the addresses that are written (W2).
fn check(plan: &[[u64; HOOK_WORDS]], program: &Loaded) -> Result<(u64, u64), u32> {
    let (mut low, mut high) = (u64::MAX, 0);
    for words in plan {
        let hook = Hook::decode(words).ok_or(LINKED_NONSENSE)?;
        let length = usize::from(hook.length);
        let at = program.place(&hook, length).ok_or(LINKED_OTHER_CODE)?;
        // SAFETY: inside of a segment that the loader has mapped, and that can be read.
        let found = unsafe { core::slice::from_raw_parts(at as *const u8, length) };
        if Some(found) != hook.expected.get(..length) {
            return Err(LINKED_OTHER_CODE);
        }
        if length > 0 {
            low = low.min(at);
            high = high.max(at + JUMP_BYTES as u64);
        }
    }
    (low < high).then_some((low, high)).ok_or(LINKED_NONSENSE)
}

/// Fills the near page. Returns whether all of its allocators tell how large their blocks are.
fn fill(plan: &[[u64; HOOK_WORDS]], program: &Loaded, near: *mut u8) -> Result<bool, u32> {
    let mut measures = [core::ptr::null_mut::<c_void>(); ALLOCATORS];
    for hook in plan.iter().filter_map(Hook::decode) {
        if let Some(measure) = measures.get_mut(usize::from(hook.allocator))
            && hook.call.what == what::MEASURE
        {
            *measure = program.bias.wrapping_add(hook.address) as *mut c_void;
        }
    }
    let mut tells = true;
    for (index, words) in plan.iter().enumerate() {
        let hook = Hook::decode(words).ok_or(LINKED_NONSENSE)?;
        if hook.length == 0 {
            continue;
        }
        let measure = measures.get(usize::from(hook.allocator)).copied();
        let measure = measure.unwrap_or(core::ptr::null_mut());
        tells &= !measure.is_null() || hook.call.what == what::COUNT;
        // SAFETY: one room for each hook, with its site behind the code: aligned, by the assertions at `ROOM_BYTES`.
        unsafe {
            let room = near.add(index * ROOM_BYTES);
            let site = room.add(CODE_BYTES).cast::<Site>();
            site.write(Site {
                real: room.add(ENTRY_BYTES).cast(),
                call: hook.call,
                measure,
            });
            fill_room(&hook, program, room, site)?;
        }
    }
    Ok(tells)
}

/// Returns where the near page leads to (hooks/linked.rs).
#[cfg(target_arch = "x86_64")]
fn entry() -> *const c_void {
    unsafe extern "C" {
        fn skinflint_linked_entry();
    }
    skinflint_linked_entry as *const c_void
}

/// No plan is made for other processors.
#[cfg(not(target_arch = "x86_64"))]
fn entry() -> *const c_void {
    core::ptr::null()
}

/// Writes the entry of a hook, and its moved instructions with the jump back.
///
/// # Safety
/// `room` is [`ROOM_BYTES`] of the near page.
unsafe fn fill_room(
    hook: &Hook,
    program: &Loaded,
    room: *mut u8,
    site: *mut Site,
) -> Result<(), u32> {
    // mov r11, SITE; jmp [rip]; HOOK
    let mut code = [0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0];
    let (mut word, mut to) = (site as u64, entry() as u64);
    if hook.call.what == what::COUNT {
        // mov r11, COUNTER; lock inc qword [r11]; jmp to the moved instructions: nothing is on the stack if it throws.
        code[10..].copy_from_slice(&[0xf0, 0x49, 0xff, 0x03, 0xeb, 8]);
        (word, to) = (UNSEEN.as_ptr() as u64, 0);
    }
    code[2..10].copy_from_slice(&word.to_le_bytes());
    let real = room as u64 + ENTRY_BYTES as u64;
    let (moved, length) = hook.moved_to(real, program.bias).ok_or(LINKED_NO_ROOM)?;
    let behind = program.bias.wrapping_add(hook.address) + u64::from(hook.length);
    let back = plan::jump(real + length as u64, behind).ok_or(LINKED_NO_ROOM)?;
    // SAFETY: as the caller promises; the three parts fit, by the assertion at `ROOM_BYTES`.
    unsafe {
        room.cast::<[u8; 16]>().write(code);
        room.add(16).cast::<u64>().write_unaligned(to);
        let rest = room.add(ENTRY_BYTES);
        core::ptr::copy_nonoverlapping(moved.as_ptr(), rest, length.min(MOVED_BYTES));
        rest.add(length).cast::<[u8; JUMP_BYTES]>().write(back);
    }
    Ok(())
}

/// Writes the jumps (W4).
fn write(plan: &[[u64; HOOK_WORDS]], program: &Loaded, near: *mut u8) {
    for (index, hook) in plan.iter().map(Hook::decode).enumerate() {
        let Some(hook) = hook.filter(|hook| hook.length > 0) else {
            continue;
        };
        let at = program.bias.wrapping_add(hook.address);
        // What is this near was so for `fill`: both lie on the same side of the code, and closer.
        if let Some(jump) = plan::jump(at, near as u64 + (index * ROOM_BYTES) as u64) {
            // SAFETY: compared, and opened (W2, W3); no other thread runs it (W1).
            unsafe { (at as *mut [u8; JUMP_BYTES]).write_unaligned(jump) };
        }
    }
}

const RUN: i32 = libc::PROT_READ | libc::PROT_EXEC;

fn protect(at: u64, bytes: usize, rights: i32) -> Result<(), u32> {
    // SAFETY: pages of ours, or of the program's code, whose bytes stay as they are.
    let result = unsafe {
        sys::syscall(
            libc::SYS_mprotect,
            [at, bytes as u64, rights as u64, 0, 0, 0],
        )
    };
    (!sys::is_error(result))
        .then_some(())
        .ok_or(LINKED_FORBIDDEN)
}

/// Returns the whole pages of a span.
fn pages((low, high): (u64, u64)) -> (u64, usize) {
    let each = page::kernel() as u64;
    let low = low & !(each - 1);
    (low, (high - low).next_multiple_of(each) as usize)
}

/// Lets code be written, beside being run (W3).
fn open(span: (u64, u64)) -> Result<(), u32> {
    let (at, bytes) = pages(span);
    protect(at, bytes, RUN | libc::PROT_WRITE).inspect_err(|_| close(span))
}

fn close(span: (u64, u64)) {
    let (at, bytes) = pages(span);
    let _ = protect(at, bytes, RUN);
}

/// The distance between places that are tried.
const STEP: u64 = 1 << 20;
/// The number of places that are tried below the code, where no heap grows, and above.
const TRIES: u64 = 900;
/// Above the code, the heap of `brk` grows first: it is left this much room.
const BREAK_ROOM: u64 = 1 << 30;

/// Maps memory that jumps from the code can reach: within two gigabytes.
fn map_near((low, high): (u64, u64), bytes: usize) -> Option<*mut u8> {
    let each = page::kernel() as u64;
    let below = (1..=TRIES).filter_map(|n| (low & !(each - 1)).checked_sub(n * STEP));
    let above = (1..=TRIES).map(|n| high.next_multiple_of(each) + BREAK_ROOM + n * STEP);
    below
        .filter(|&at| at > 0)
        .chain(above)
        .find_map(|at| map_at(at, bytes))
}

/// Maps memory at an address, if it is free.
fn map_at(at: u64, bytes: usize) -> Option<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping that replaces none.
    let found = unsafe {
        sys::syscall(
            libc::SYS_mmap,
            [at, bytes as u64, rights as u64, flags as u64, u64::MAX, 0],
        )
    };
    if sys::is_error(found) {
        return None;
    }
    if found as u64 != at {
        // A kernel before 4.17 takes the address for a wish.
        // SAFETY: ours, and fresh.
        unsafe { sys::unmap(found as *mut u8, bytes) };
        return None;
    }
    Some(found as *mut u8)
}
