//! Large blocks between pages without access.
//!
//! ```text
//!   run   [ lead … guard ][ fill │ block, flush at its end │ slack ][ guard ]      slack < alignment, filled
//!         ▲ MAP[first page of the run] and MAP[page of the block] ──► the one descriptor
//! ```
//!
//! G1  `start` is the block's address, `lead` the bytes of the run before it, `pages` the whole run's. A
//!     block without guards has lead 0.
//! G2  `held` is set once, by the thread that frees the block; a block that waits has no pages and no access.
//! G3  Where the kernel refuses, the block goes without guards. At most a part of the mappings that a process may have
//!     (vm.max_map_count) is used here, since the program needs some too.
//!
//! Not here: page runs (`pages`), blocks that wait (`waiting`), small blocks (`trailer`, `sampled`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::{page, sys};
use skinflint_pages::PAGE;

use super::trailer;
use crate::heaps::large::{self, Large};
use crate::heaps::pool::with_pool;
use crate::heaps::tls;
use crate::mechanism::map::map_entry;
use crate::mechanism::publish;
use crate::mechanism::range::{at, base, limit};
use crate::mechanism::span::KIND_LARGE;
use crate::services::modes::{self, has};

/// The most guarded blocks at a time: each is up to four mappings, of 65,530 by default.
const GUARDED_MAX: u32 = 8_192;
/// Bytes of the largest alignment with guards, since the lead is as long.
const ALIGN_MAX: usize = 1 << 30;
const TWO_PAGES: usize = 2 * PAGE;
/// The most pages that are walked to find the block near a fault.
const WALK_PAGES: usize = 1 << 20;

static GUARDED: AtomicU32 = AtomicU32::new(0);

/// Forbids access to whole pages of ours, or allows it. Where a page of the kernel's is several of ours, none is closed that
/// has others in it (`false`), and to open one opens all that share it.
pub fn protect(from: usize, bytes: usize, allowed: bool) -> bool {
    let access = if allowed {
        libc::PROT_READ | libc::PROT_WRITE
    } else {
        libc::PROT_NONE
    };
    let (from, bytes) = if !page::is_larger() || page::is_whole(from, bytes) {
        (from, bytes)
    } else if allowed {
        page::around(from, bytes)
    } else {
        return false;
    };
    // SAFETY: callers pass pages of blocks that they have.
    let result = unsafe {
        sys::syscall(
            libc::SYS_mprotect,
            [from as u64, bytes as u64, access as u64, 0, 0, 0],
        )
    };
    result == 0
}

/// Gives pages back; they read as zero.
pub fn drop_pages(from: usize, bytes: usize) {
    // SAFETY: callers pass pages of blocks that they have, and that no thread reads.
    unsafe { sys::advise(from as *mut u8, bytes, libc::MADV_DONTNEED) };
}

/// Takes a share of the mappings (G3).
pub fn admit() -> bool {
    // ORDER: a count.
    let before = GUARDED.fetch_add(1, Ordering::Relaxed);
    if before >= GUARDED_MAX {
        dismiss();
    }
    before < GUARDED_MAX
}

/// Gives a share of the mappings back.
pub fn dismiss() {
    GUARDED.fetch_sub(1, Ordering::Relaxed); // ORDER: a count
}

/// Returns a block of `n` bytes with guards, and whether it is zero. `None`: it goes without (G3).
pub fn malloc(n: usize, align: usize) -> Option<(*mut u8, bool)> {
    if align > ALIGN_MAX || n > isize::MAX as usize - 2 * ALIGN_MAX || !admit() {
        return None;
    }
    let lead = align.max(PAGE);
    let data = n.next_multiple_of(PAGE);
    let (run, clean) = large::malloc(lead + data + PAGE, lead);
    if run.is_null() {
        dismiss();
        return None;
    }
    let start = run as usize + lead;
    let end = start + data;
    if !(protect(start - PAGE, PAGE, false) && protect(end, PAGE, false)) {
        protect(start - PAGE, PAGE, true);
        // SAFETY: the run is ours.
        unsafe { large::free(run) };
        dismiss();
        return None;
    }
    let p = if align <= PAGE {
        (end - n) & !(align.max(16) - 1)
    } else {
        start
    };
    // SAFETY: within the run, which is ours. Of what lies before the block only its own first page is written.
    unsafe {
        core::ptr::write_bytes(start as *mut u8, trailer::fill(), p - start);
        core::ptr::write_bytes((p + n) as *mut u8, trailer::fill(), end - p - n);
    }
    // SAFETY: a live large block of ours, which no other thread knows.
    unsafe { name(run as usize, p, (end - p - n) as u32) };
    Some((p as *mut u8, clean))
}

/// Makes a run's descriptor found at the block's address, too (G1). Runs under the pool's lock, since other threads
/// walk the page map under it.
///
/// # Safety
/// `run` is a live large block of the caller; `p` lies in it.
unsafe fn name(run: usize, p: usize, slack: u32) {
    locked(|| {
        // SAFETY: as the caller promises.
        unsafe {
            // ORDER: the caller's own block; a thread that gets it later gets it from the caller.
            let offset = map_entry(run - base()).load(Ordering::Relaxed);
            let large = at::<Large>(offset);
            (*large).lead = (p - run) as u32;
            (*large).slack = slack;
            (*large).start = p;
            publish::enter(map_entry(p - base()), offset);
        }
    });
}

/// Undoes [`name`].
///
/// # Safety
/// A live block with guards, of the caller.
unsafe fn unname(large: *mut Large) {
    locked(|| {
        // SAFETY: as the caller promises.
        unsafe {
            let p = (*large).start;
            // ORDER: no thread may use the address any more.
            map_entry(p - base()).store(0, Ordering::Relaxed);
            (*large).start = p - (*large).lead as usize;
            (*large).lead = 0;
            (*large).slack = 0;
        }
    });
}

/// Runs `work` under the pool's lock; a signal handler that interrupted the lock's holder does not run it.
fn locked(work: impl Fn()) {
    if with_pool(tls::who(), |_| work()).is_none() {
        work();
    }
}

/// Returns the run of a block: first address and bytes.
///
/// # Safety
/// A live block.
pub unsafe fn run_of(large: *const Large) -> (usize, usize) {
    // SAFETY: a live block.
    unsafe {
        (
            (*large).start - (*large).lead as usize,
            (*large).pages as usize * PAGE,
        )
    }
}

/// Returns all bytes of a block's pages.
///
/// # Safety
/// A live block.
pub unsafe fn bytes(large: *const Large) -> usize {
    // SAFETY: as the caller promises.
    unsafe { run_of(large).1 }
}

/// Returns the bytes that the program may use; with guards exactly those that it requested.
///
/// # Safety
/// A live block.
pub unsafe fn usable(large: *const Large) -> usize {
    // SAFETY: as the caller promises.
    unsafe {
        if (*large).lead == 0 {
            return bytes(large);
        }
        let (run, bytes) = run_of(large);
        run + bytes - PAGE - (*large).slack as usize - (*large).start
    }
}

/// Returns the bytes between the guard and the block, which are filled. With an alignment above a page there are none.
///
/// # Safety
/// A live block.
pub unsafe fn front(large: *const Large) -> usize {
    // SAFETY: as the caller promises.
    match unsafe { (*large).lead as usize } {
        lead @ PAGE..TWO_PAGES => lead - PAGE,
        _ => 0,
    }
}

/// Really frees a block that was claimed, with guards or without. `waited`: whether it waited.
///
/// # Safety
/// No other thread has it.
pub unsafe fn leave(p: *mut u8, waited: bool) {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(large) = large::find(p) else {
            return;
        };
        let (run, bytes) = run_of(large);
        let guarded = (*large).lead != 0;
        if has(modes::ZERO | modes::POISON) {
            drop_pages(run, bytes);
        }
        if (guarded || waited) && !protect(run, bytes, true) {
            // The block stays as it is, for good: no access, no pages.
            drop_pages(run, bytes);
            return;
        }
        if guarded || waited {
            dismiss();
        }
        if guarded {
            unname(large);
        }
        (*large).held.store(0, Ordering::Relaxed); // ORDER: the caller's own
        large::free(run as *mut u8);
    }
}

/// The block that a fault at an address of HEAP is near.
pub struct Near {
    /// Address of the block.
    pub start: usize,
    /// Its requested bytes.
    pub bytes: usize,
    /// Whether it was freed, and waits.
    pub freed: bool,
}

/// Returns the guarded or waiting block at or beside a faulting address.
pub fn near(address: usize) -> Option<Near> {
    let distance = address.wrapping_sub(base());
    if distance >= limit() {
        return None;
    }
    let page = distance / PAGE;
    // The page after it (the fault is in the guard before a block), then the page itself and those before it.
    let ahead = core::iter::once(page + 1).filter(|&next| next * PAGE < limit());
    let back = (page.saturating_sub(WALK_PAGES)..=page).rev();
    for at_page in ahead.chain(back) {
        // SAFETY: below the limit.
        // ORDER: a look, by the thread that is about to end.
        let offset = unsafe { map_entry(at_page * PAGE) }.load(Ordering::Relaxed);
        let large = at::<Large>(offset);
        if offset == 0 {
            continue;
        }
        // SAFETY: MAP leads to descriptors.
        unsafe {
            let is_large = (*large).kind.load(Ordering::Relaxed) == KIND_LARGE; // ORDER: as above
            let (run, bytes) = if is_large { run_of(large) } else { (0, 0) };
            if address.wrapping_sub(run) < bytes {
                return Some(Near {
                    start: (*large).start,
                    bytes: usable(large),
                    freed: (*large).held.load(Ordering::Relaxed) != 0, // ORDER: as above
                });
            }
        }
        if at_page <= page {
            return None;
        }
    }
    None
}

/// Allows access to the page of a fault, so that the program can go on.
pub fn allow_page(address: usize) {
    protect(address & !(PAGE - 1), PAGE, true);
}
