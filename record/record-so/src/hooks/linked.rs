//! Hooks of functions that the collector's plan names: allocators that the program is linked with.
//!
//! ```text
//!   near page ─ r11 = site ─► entry: six arguments on the stack ─► step ─► real(six arguments) ─► its result
//! ```
//!
//! K1  All functions of a plan take integers in registers, six at most, and return one: a hook passes six on, whatever the
//!     function takes.
//! K2  A function that another one of the same allocator calls is part of the same call: it passes through, uncounted
//!     (record_so.O3 has the exception).
//! K3  A block is measured by the allocator that it is of (`Site::measure`). Linkers leave that function out of programs
//!     that do not call it: then a block of jemalloc is of the class of its size, any other as large as was asked for, and
//!     the heap's height is not counted (`usable`).
//! K4  Nothing is thrown through `step`: functions that throw are in no plan.
//!
//! Not here: how code comes to lead here (linked.rs, which knows the entry by its symbol).
// No plan is made for other processors.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use core::arch::global_asm;
use core::ffi::c_void;
use core::sync::atomic::Ordering;

use skinflint_base::plan::{ARGUMENTS, jemalloc_class, scheme, what};
use skinflint_base::ring::{tag, word};

use super::malloc::free_func;
use crate::emit;
use crate::sites::Site;
use crate::stacks::{self, Caller};
use crate::state::{INSIDE, RECORDING, ThreadState, set_busy};
use crate::{high_water, process, samples, thread, tls};

// The arguments go onto the stack in the order in which they are counted, and the stack is aligned for the call. With
// unwind information: the allocator maps memory while this frame is on the stack.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.skinflint_linked_entry,\"ax\",@progbits",
    ".globl skinflint_linked_entry",
    ".hidden skinflint_linked_entry",
    ".type skinflint_linked_entry,@function",
    "skinflint_linked_entry:",
    ".cfi_startproc",
    "push r9",
    ".cfi_adjust_cfa_offset 8",
    "push r8",
    ".cfi_adjust_cfa_offset 8",
    "push rcx",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "mov rdi, rsp",
    "mov rsi, r11",
    "lea rdx, [rsp + 48]",
    "mov rcx, rbp",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "call {step}",
    "add rsp, 56",
    ".cfi_adjust_cfa_offset -56",
    "ret",
    ".cfi_endproc",
    ".size skinflint_linked_entry, . - skinflint_linked_entry",
    ".popsection",
    step = sym step,
);

type Arguments = [u64; ARGUMENTS];

/// Calls the function itself (K1).
///
/// # Safety
/// The program's own call.
unsafe fn real(site: &Site, arguments: &Arguments) -> u64 {
    type Real = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: as the caller promises; the site leads to the function's own instructions.
    unsafe { core::mem::transmute::<*mut c_void, Real>(site.real)(a, b, c, d, e, f) }
}

/// Returns the usable bytes of a live block; 0 if its allocator does not tell (K3).
///
/// # Safety
/// `block` is a live block of the site's allocator.
unsafe fn usable_size(site: &Site, block: u64) -> u64 {
    type Measure = unsafe extern "C" fn(u64, u64) -> u64;
    if site.measure.is_null() {
        return 0;
    }
    // SAFETY: as the caller promises. The second argument is jemalloc's: no flags.
    unsafe { core::mem::transmute::<*mut c_void, Measure>(site.measure)(block, 0) }
}

/// An argument by its number; 0 for none.
fn argument(arguments: &Arguments, number: u8) -> u64 {
    arguments.get(usize::from(number)).copied().unwrap_or(0)
}

/// Returns the bytes that are asked for, if the call tells.
fn asked(site: &Site, arguments: &Arguments) -> Option<u64> {
    let size = arguments.get(usize::from(site.call.size)).copied()?;
    let count = arguments.get(usize::from(site.call.count)).copied();
    Some(size.wrapping_mul(count.unwrap_or(1)))
}

/// Returns the usable bytes of a block that was acquired just now (K3).
///
/// # Safety
/// As for [`usable_size`].
unsafe fn given(site: &Site, arguments: &Arguments, block: u64, asked: Option<u64>) -> u64 {
    let align = argument(arguments, site.call.align);
    match (asked, site.call.scheme) {
        // SAFETY: as the caller promises.
        _ if !site.measure.is_null() => unsafe { usable_size(site, block) },
        (Some(asked), scheme::JEMALLOC) => jemalloc_class(asked, align),
        (Some(asked), scheme::JEMALLOC_FLAGS) => {
            let align = match align & 63 {
                0 => 0,
                bits => 1 << bits,
            };
            jemalloc_class(asked, align)
        }
        _ => asked.unwrap_or(0),
    }
}

/// Returns the bytes that were asked for, if the call tells, and those that were given; 0 for no block.
///
/// # Safety
/// As for [`given`], if `block` is one.
unsafe fn sizes(site: &Site, arguments: &Arguments, block: u64) -> (Option<u64>, u64) {
    let asked = asked(site, arguments);
    match block {
        0 => (asked, 0),
        // SAFETY: as the caller promises.
        _ => (asked, unsafe { given(site, arguments, block, asked) }),
    }
}

/// Begins a call, as [`thread::enter`] does; null, too, inside of another call of the allocator (K2).
fn enter() -> *mut ThreadState {
    let state = tls::get();
    // SAFETY: state.H1; `nobody` has the byte too. ORDER: Relaxed; only this thread and its signal handlers look at it.
    if !state.is_null() && unsafe { (*state).busy.load(Ordering::Relaxed) } == INSIDE {
        return core::ptr::null_mut();
    }
    thread::enter()
}

/// Records a call of a hooked function, and makes it.
///
/// # Safety
/// The program's own call; `sp` and `bp` are its registers at the function's entry.
unsafe extern "C" fn step(arguments: &Arguments, site: &Site, sp: u64, bp: u64) -> u64 {
    let state = enter();
    let caller = Caller { sp, bp };
    // SAFETY: the program's own call; state.H1.
    unsafe {
        if state.is_null() {
            return real(site, arguments);
        }
        let result = match site.call.what {
            what::ACQUIRE => {
                let block = real(site, arguments);
                let sizes = sizes(site, arguments, block);
                acquired(state, site, tag::ALLOC, block, sizes, caller);
                block
            }
            what::ACQUIRE_INTO => {
                let result = real(site, arguments);
                if result as u32 == 0 {
                    let block = (argument(arguments, site.call.block) as *const u64).read();
                    let sizes = sizes(site, arguments, block);
                    acquired(state, site, tag::ALLOC, block, sizes, caller);
                }
                result
            }
            what::RELEASE => {
                let block = argument(arguments, site.call.block);
                released(state, site, tag::FREE, site.call.func, block);
                real(site, arguments)
            }
            _ => changed(state, site, arguments, caller),
        };
        thread::leave(state);
        result
    }
}

/// Records a call that changes a block, and makes it. The block may be null: then it is acquired.
///
/// # Safety
/// As for [`step`]; `state` is what `enter` returned, not null.
unsafe fn changed(
    state: *mut ThreadState,
    site: &Site,
    arguments: &Arguments,
    caller: Caller,
) -> u64 {
    let old = argument(arguments, site.call.block);
    let asked = asked(site, arguments);
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if old == 0 {
            let block = real(site, arguments);
            let sizes = sizes(site, arguments, block);
            acquired(state, site, tag::ALLOC, block, sizes, caller);
            return block;
        }
        let is_sampled = samples::are_on(state);
        let is_recorded = process::wants_acquisitions() && !is_sampled;
        let (kind, func) = match is_recorded {
            true => (tag::REALLOC_RELEASE, 0),
            false => (tag::FREE, free_func::REALLOC),
        };
        let before = usable_size(site, old);
        let was = released(state, site, kind, func, old);
        let result = real(site, arguments);
        let kind = match is_recorded {
            true => tag::REALLOC_ACQUIRE,
            false => tag::ALLOC,
        };
        let new = match site.call.what {
            what::CHANGE_IN_PLACE if result == before => 0,
            what::CHANGE_IN_PLACE => old,
            _ => result,
        };
        if new != 0 {
            let sizes = match site.call.what {
                // There may have been no room for all of it.
                what::CHANGE_IN_PLACE => (asked.map(|asked| asked.min(result)), result),
                _ => sizes(site, arguments, new),
            };
            acquired(state, site, kind, new, sizes, caller);
        } else if site.call.what == what::CHANGE_OR_RELEASE || asked == Some(0) {
            ended(state, old, is_recorded);
        } else if !is_sampled {
            kept(state, old, before, is_recorded, caller);
        } else if was {
            samples::lives_on(state, super::malloc::func::REALLOC, old, before, caller);
        }
        result
    }
}

/// Records that a block is gone, of which a change was begun.
///
/// # Safety
/// Between `enter` and `leave`.
unsafe fn ended(state: *mut ThreadState, old: u64, is_recorded: bool) {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if is_recorded {
            set_busy(state, RECORDING);
            emit::short(state, tag::REALLOC_CANCEL, 0, old);
            emit::short(state, tag::FREE, free_func::REALLOC, old);
            set_busy(state, INSIDE);
        }
    }
}

/// Records that a block is as it was before a change was begun.
///
/// # Safety
/// Between `enter` and `leave`; the block lives.
unsafe fn kept(state: *mut ThreadState, old: u64, bytes: u64, is_recorded: bool, caller: Caller) {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if is_recorded {
            high_water::gained(state, bytes);
            set_busy(state, RECORDING);
            emit::short(state, tag::REALLOC_CANCEL, 0, old);
            set_busy(state, INSIDE);
        } else if process::wants_releases() {
            // Its release was recorded: it is recorded anew, though nothing else is now.
            high_water::gained(state, bytes);
            set_busy(state, RECORDING);
            let first = word(tag::ALLOC, super::malloc::func::REALLOC, old);
            stacks::acquired(state, first, bytes, bytes, caller);
            set_busy(state, INSIDE);
        }
    }
}

/// Records that a block was acquired, if one was; the state stays entered.
///
/// # Safety
/// Between `enter` and `leave`; the block was acquired just now.
unsafe fn acquired(
    state: *mut ThreadState,
    site: &Site,
    kind: u8,
    block: u64,
    (asked, given): (Option<u64>, u64),
    caller: Caller,
) {
    if block == 0 {
        return;
    }
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        let asked = asked.unwrap_or(given);
        let usable = given.max(asked);
        if samples::passes(state, asked as usize) {
            return;
        }
        if kind == tag::ALLOC && !process::wants_acquisitions() {
            return emit::unseen(state);
        }
        if !samples::are_on(state) {
            high_water::gained(state, usable);
        } else if !samples::keep(block) {
            return;
        }
        set_busy(state, RECORDING);
        stacks::acquired(
            state,
            word(kind, site.call.func, block),
            asked,
            usable,
            caller,
        );
        set_busy(state, INSIDE);
    }
}

/// Records that a block is about to be released, if it is one; returns whether it did.
///
/// # Safety
/// Between `enter` and `leave`; `block` is null or lives.
unsafe fn released(state: *mut ThreadState, site: &Site, kind: u8, func: u8, block: u64) -> bool {
    // SAFETY: as the caller promises; state.H1.
    unsafe {
        if samples::are_on(state) {
            return block != 0 && samples::released(state, func, block);
        }
        if block == 0 || !process::wants_releases() {
            return false;
        }
        high_water::loses(state, usable_size(site, block), kind == tag::FREE);
        set_busy(state, RECORDING);
        emit::short(state, kind, func, block);
        set_busy(state, INSIDE);
    }
    true
}
