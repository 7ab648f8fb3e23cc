//! System V shared memory: `shmat` and `shmdt`, recorded as mappings.
//!
//! ```text
//!   shmat ─► real ─► how long is the segment? (shmctl) ─► MAP, and ATTACHED[addr] = length
//!   shmdt ─► ATTACHED[addr] ─► UNMAP ─► real
//! ```
//!
//! S1  Neither call names a length: the kernel is asked for it at `shmat`, and what it said is kept for `shmdt`. A
//!     segment whose length cannot be had, or for which there is no room here, is not recorded: it has no stack.
//! S2  An entry is written by the thread whose `shmat` returned the address, and taken by the one that gives the address
//!     to `shmdt`: before the kernel may give it to another. A child of fork has its parent's entries, and segments.
//!
//! Not here: calls by number; what other segments were attached before us (`attach`).

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use skinflint_base::ring::{tag, word};
use skinflint_base::sys;

use super::exported;
use super::maps::{By, by_kernel, page};
use crate::real::call;
use crate::stacks::{self, Caller};
use crate::{emit, filters, real};

/// The most segments that are attached at a time and recorded (S1).
const MOST: usize = 256;

struct Attached {
    /// The address; 0: free, 1: being written.
    addr: AtomicU64,
    len: AtomicU64,
}

static ATTACHED: [Attached; MOST] = [const {
    Attached {
        addr: AtomicU64::new(0),
        len: AtomicU64::new(0),
    }
}; MOST];

const WRITTEN: u64 = 1;

/// Keeps the length of a segment. Returns whether there was room.
fn keep(addr: u64, len: u64) -> bool {
    let free = ATTACHED.iter().find(|entry| {
        let addr = &entry.addr;
        // ORDER: Relaxed for both; the claim publishes nothing.
        addr.compare_exchange(0, WRITTEN, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    });
    if let Some(entry) = free {
        entry.len.store(len, Ordering::Relaxed); // ORDER: Relaxed; published by the address.
        // ORDER: Release; pairs with the Acquire of `take`.
        entry.addr.store(addr, Ordering::Release);
    }
    free.is_some()
}

/// Takes the length of the segment at an address out; `None` if it is not known.
fn take(addr: u64) -> Option<u64> {
    // ORDER: Acquire; pairs with the Release of `keep`.
    let is_it = |entry: &&Attached| entry.addr.load(Ordering::Acquire) == addr;
    let entry = ATTACHED.iter().find(is_it).filter(|_| addr > WRITTEN)?;
    let len = entry.len.load(Ordering::Relaxed); // ORDER: Relaxed; as above.
    entry.addr.store(0, Ordering::Relaxed); // ORDER: Relaxed; the entry is this call's (S2).
    Some(len)
}

/// Returns the bytes that a segment takes in memory; `None` if the kernel does not tell, or may not be asked.
fn len_of(segment: c_int) -> Option<u64> {
    if !filters::may_ask_for_segments() {
        return None;
    }
    // SAFETY: all-zero is a valid answer, which the kernel writes over.
    let bytes = unsafe {
        let mut about: libc::shmid_ds = core::mem::zeroed();
        let at = &raw mut about as u64;
        let args = [segment as u64, libc::IPC_STAT as u64, at, 0, 0, 0];
        let result = sys::syscall(libc::SYS_shmctl, args);
        (!sys::is_error(result)).then_some(about.shm_segsz as u64)
    };
    bytes?.checked_next_multiple_of(page())
}

exported!(shmat(segment: c_int, addr: *const c_void, flags: c_int) -> *mut c_void, "rcx", "r8", shmat_recorded);

unsafe extern "C" fn shmat_recorded(
    segment: c_int,
    addr: *const c_void,
    flags: c_int,
    sp: u64,
    bp: u64,
) -> *mut c_void {
    if !real::is_resolved() {
        let args = [segment as u64, addr as u64, flags as u64, 0, 0, 0];
        return by_kernel(libc::SYS_shmat, args) as *mut c_void;
    }
    let by = By::enter();
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let result = call!(shmat as Shmat)(segment, addr, flags);
        if let Some(state) = by.state()
            && result as isize != -1
            && let Some(len) = len_of(segment)
            && keep(result as u64, len)
            && stacks::stack(state, Caller { sp, bp })
        {
            let write = match flags & libc::SHM_RDONLY {
                0 => libc::PROT_WRITE,
                _ => 0,
            };
            let rights = ((libc::PROT_READ | write) as u64) << 32 | libc::MAP_SHARED as u64;
            emit::long(
                state,
                word(tag::MAP, by.flag(), result as u64),
                &[len, rights],
            );
        }
        by.leave();
        result
    }
}

/// `shmdt`, recorded before the call.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(addr: *const c_void) -> c_int {
    if !real::is_resolved() {
        let args = [addr as u64, 0, 0, 0, 0, 0];
        return by_kernel(libc::SYS_shmdt, args) as c_int;
    }
    let by = By::enter();
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let len = take(addr as u64);
        if let Some(state) = by.state()
            && let Some(len) = len
        {
            emit::long(state, word(tag::UNMAP, by.flag(), addr as u64), &[len]);
        }
        let result = call!(shmdt as Shmdt)(addr);
        by.leave();
        result
    }
}
