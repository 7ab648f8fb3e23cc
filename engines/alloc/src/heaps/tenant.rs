//! Heaps for tenants: created, used by any thread, asked what they hold, destroyed whole.
//!
//! ```text
//!   handle  [ serial │ offset in META ] ──► heap ──► spans of its own │ list of large blocks
//!   destroy ──► every span and every run to the pool, the heap object to the next tenant
//! ```
//!
//! T1  A tenant's heap is used under its lock only, by any thread: the lock's holder is the owner in the sense of
//!     `span` (span.S2). No thread has it as its own, so every plain `free` of one of its blocks goes through the bits for
//!     other threads' frees.
//! T2  A tenant's spans hold its own blocks only (it neither steals spans nor are its own stolen), and its large blocks
//!     are on its list. So destroying it takes time for spans and not for blocks.
//! T3  A handle names the tenant, not the memory: the heap object counts its tenants, and a handle of an earlier one is
//!     noticed under the lock. After `destroy` its pages lead to no descriptor, so a free of one of its blocks is
//!     reported as well, until the pages are used again.
//! T4  Destroying a heap while another thread uses it or frees one of its blocks is as wrong as freeing a block while
//!     another thread writes to it.
//!
//! Not here: what all heaps have in common (`heap`, `free`), the C names (`malloc-so`).

use core::num::NonZeroU64;

use skinflint_base::sync::Ordering;

use super::fault::{self, Fault};
use super::free::free;
use super::large::{self, Large};
use super::pool::HEAPS;
use super::spare::{claim, release};
use super::thread::who_named;
use super::{malloc, requests, slow};
use crate::mechanism::class::{self, SMALL_MAX};
use crate::mechanism::heap::{Heap, owner_of, usage};
use crate::mechanism::map::descriptor;
use crate::mechanism::range::{at, base, limit, offset_of};
use crate::mechanism::span::{KIND_LARGE, KIND_SMALL, Span, state};
use crate::mechanism::{publish, remote};

/// A heap that is a tenant's own (T3). Any thread may use it, several at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenant(NonZeroU64);

/// The memory that a tenant holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Holds {
    /// Live blocks.
    pub blocks: usize,
    /// Usable bytes of the live blocks.
    pub bytes: usize,
    /// Bytes of its pages: what `destroy` gives back.
    pub page_bytes: usize,
    /// Bytes requested since it was created.
    pub requested_bytes: u64,
}

/// Why there is no block.
enum No {
    /// The OS refuses.
    Memory,
    /// There is no such heap, or a signal handler interrupted its own thread's call.
    Heap,
}

impl Tenant {
    /// Creates a heap. Its own cost is some 12 KiB of metadata, used again by later tenants. `None`: no memory.
    pub fn create() -> Option<Tenant> {
        let heap = claim(usage::TENANT);
        if heap.is_null() {
            return None;
        }
        // SAFETY: heaps stay (pool.G4), and this one is ours.
        let heap = unsafe { &*heap };
        // ORDER: no thread has the handle yet.
        let serial = heap.serial.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        NonZeroU64::new(u64::from(serial) << 32 | u64::from(offset_of(heap))).map(Tenant)
    }

    /// Returns the handle as a number, never 0: C sees it as a pointer that leads nowhere.
    pub fn to_raw(self) -> u64 {
        self.0.get()
    }

    /// Returns the tenant of a number; every call checks what it stands for.
    pub fn from_raw(raw: u64) -> Option<Tenant> {
        NonZeroU64::new(raw).map(Tenant)
    }

    fn offset(self) -> u32 {
        self.0.get() as u32
    }

    /// Runs `work` with the heap, under its lock. `None`: there is no such heap (reported), or a signal handler called
    /// in the middle of a call of its own thread.
    fn with<R>(self, work: impl FnOnce(&'static Heap) -> R) -> Option<R> {
        let offset = self.offset();
        // Heaps are made one after the other, so what lies beyond the newest is none, and META is mapped up to it.
        let heap = if base() != 0 && offset.is_multiple_of(4096) && offset <= publish::first(&HEAPS)
        {
            // SAFETY: mapped metadata; whether it is a heap is asked next, of numbers that any bytes may be.
            unsafe { &*at::<Heap>(offset) }
        } else {
            self.unknown();
            return None;
        };
        let serial = (self.0.get() >> 32) as u32;
        let same = || {
            // ORDER: looked at again under the lock.
            heap.usage.load(Ordering::Relaxed) == usage::TENANT
                && heap.serial.load(Ordering::Relaxed) == serial // ORDER: as above
        };
        if !same() {
            self.unknown();
            return None;
        }
        if !heap.lock.lock(who_named()) {
            return None;
        }
        let result = same().then(|| work(heap));
        heap.lock.unlock();
        if result.is_none() {
            self.unknown();
        }
        result
    }

    #[cold]
    fn unknown(self) {
        fault::report(Fault::Heap, self.0.get() as *mut u8);
    }

    /// Allocates `n` bytes. Null and ENOMEM if there is no memory. Cost: a lock, and that of any `malloc`.
    pub fn malloc(self, n: usize) -> *mut u8 {
        self.allocate(n.max(1), 1).0
    }

    /// Allocates `count * n` bytes of zeroes.
    pub fn calloc(self, count: usize, n: usize) -> *mut u8 {
        let Some(bytes) = count.checked_mul(n) else {
            return malloc::fail();
        };
        let (block, zero) = self.allocate(bytes.max(1), 1);
        if !zero && !block.is_null() {
            // SAFETY: the block has this many bytes.
            unsafe { core::ptr::write_bytes(block, 0, bytes) };
        }
        block
    }

    /// Allocates `n` bytes at a multiple of `align`, a power of two.
    pub fn memalign(self, align: usize, n: usize) -> *mut u8 {
        debug_assert!(align.is_power_of_two());
        if align > isize::MAX as usize || n > isize::MAX as usize {
            return malloc::fail();
        }
        let rounded = n.max(1).next_multiple_of(align);
        if align <= 4096 && rounded <= SMALL_MAX {
            return self.allocate(rounded, align).0;
        }
        self.allocate(n.max(1), align.max(8192)).0
    }

    /// Allocates a block, and says whether it is known to be zero.
    fn allocate(self, n: usize, align: usize) -> (*mut u8, bool) {
        if n > isize::MAX as usize {
            return (malloc::fail(), false);
        }
        let mut round = 0;
        loop {
            match self.try_allocate(n, align) {
                Ok(made) => return made,
                Err(No::Memory) if slow::out_of_memory(n, &mut round) => {}
                Err(_) => return (malloc::fail(), false),
            }
        }
    }

    fn try_allocate(self, n: usize, align: usize) -> Result<(*mut u8, bool), No> {
        self.with(|heap| {
            let made = if n <= SMALL_MAX && align <= 4096 {
                let class = match align {
                    0..=16 => class::of_slice((n - 1) >> 4),
                    // Base classes are aligned as `malloc::memalign` says; earned ones need not be.
                    _ => class::base_class(n),
                };
                // SAFETY: the lock is held (T1).
                (unsafe { heap.take_locked(class) }, false)
            } else {
                let made = large::malloc(n, align);
                // SAFETY: a large block of ours, or null; the lock is held.
                unsafe { large::adopt_large(heap, made.0) };
                made
            };
            if made.0.is_null() {
                return Err(No::Memory);
            }
            heap.requested.fetch_add(n as u64, Ordering::Relaxed); // ORDER: a statistic
            Ok(made)
        })
        .unwrap_or(Err(No::Heap))
    }

    /// Reports whether a block is of this heap; writes the fault if not.
    fn owns(self, p: *mut u8) -> bool {
        let distance = (p as usize).wrapping_sub(base());
        if distance < limit() {
            // SAFETY: below the limit; MAP leads to descriptors.
            let span = unsafe { &*descriptor(distance) };
            // ORDER: kind and owner of a live block's descriptor do not change (T2).
            let own = match span.kind.load(Ordering::Relaxed) {
                KIND_SMALL => offset_of(owner_of(span)) == self.offset(),
                KIND_LARGE => {
                    // SAFETY: as above.
                    let found = unsafe { large::find(p) };
                    // SAFETY: a live large block.
                    found.is_some_and(|large| unsafe { (*large).tenant } == self.offset())
                }
                _ => false,
            };
            if own {
                return true;
            }
        }
        fault::report(Fault::OtherHeap, p);
        false
    }

    /// Resizes a block of this heap, in place where that can be done. `realloc(p, 0)` frees and returns null;
    /// on failure the block is as it was.
    ///
    /// # Safety
    /// `p` is null or a live block of this heap; it is given up if the call succeeds.
    pub unsafe fn realloc(self, p: *mut u8, n: usize) -> *mut u8 {
        if p.is_null() {
            return self.malloc(n);
        }
        if !self.owns(p) {
            return malloc::fail();
        }
        if let Some(fault) = malloc::resize_fault(p) {
            fault::report(fault, p);
            return malloc::fail();
        }
        // SAFETY: as the caller promises, throughout.
        unsafe {
            if n == 0 {
                free(p);
                return core::ptr::null_mut();
            }
            let have = malloc::usable_size(p);
            if have > SMALL_MAX {
                let large = large::find(p);
                if n > SMALL_MAX && large.is_some_and(|large| large::resize_in_place(large, n)) {
                    return p;
                }
            }
            if n <= have && (n > have / 2 || have <= 32) {
                return p;
            }
            // As `malloc` does it: a block that grows beyond the small sizes grows again.
            let room = if n > have && n > SMALL_MAX { n / 8 } else { 0 };
            let new = self
                .allocate(n.saturating_add(room).min(isize::MAX as usize), 1)
                .0;
            if !new.is_null() {
                core::ptr::copy_nonoverlapping(p, new, have.min(n));
                free(p);
            }
            new
        }
    }

    /// Frees a block of this heap; plain `free` does it too, without checking the heap.
    ///
    /// # Safety
    /// `p` is null or a live block of this heap that nothing uses afterwards.
    pub unsafe fn free(self, p: *mut u8) {
        if !p.is_null() && self.owns(p) {
            // SAFETY: as the caller promises.
            unsafe { free(p) };
        }
    }

    /// Returns what the heap holds; exact while no thread uses it. Cost: a look at each span and large block.
    pub fn holds(self) -> Holds {
        self.with(|heap| {
            let mut holds = Holds {
                // ORDER: a statistic.
                requested_bytes: heap.requested.load(Ordering::Relaxed),
                ..Holds::default()
            };
            // SAFETY: the lock is held.
            unsafe {
                heap.each_span(|span| {
                    let used = span.used() as usize;
                    holds.blocks += used;
                    holds.bytes += used * span.size();
                    holds.page_bytes += span.pages() as usize * 4096;
                });
                // ORDER: the lock is held.
                let mut next = heap.large.load(Ordering::Relaxed);
                while next != 0 {
                    let large = at::<Large>(next);
                    holds.blocks += 1;
                    holds.bytes += (*large).pages as usize * 4096;
                    holds.page_bytes += (*large).pages as usize * 4096;
                    next = (*large).next;
                }
            }
            holds
        })
        .unwrap_or_default()
    }

    /// Gives everything back, including live blocks. Cost: one lock and some stores for each span and each large block,
    /// whatever they hold.
    ///
    /// # Safety
    /// No thread uses the heap, a block of it, or this handle any more (T4).
    pub unsafe fn destroy(self) {
        let gone = self.with(|heap| {
            // SAFETY: the lock is held, and no thread uses the blocks.
            unsafe {
                forget_notified(heap);
                give_spans(heap);
                if let Some(hardening) = slow::hardening() {
                    (hardening.contents_unknown)();
                }
                // ORDER: as above.
                let mut next = heap.large.swap(0, Ordering::Relaxed);
                while next != 0 {
                    let large = at::<Large>(next);
                    next = (*large).next;
                    (*large).tenant = 0;
                    large::free((*large).start as *mut u8);
                }
            }
            // ORDER: statistics.
            requests::elsewhere(heap.requested.swap(0, Ordering::Relaxed));
            heap.search_at.store(0, Ordering::Relaxed); // ORDER: as above
            // ORDER: under the lock: from here on the handle is an old one (T3).
            heap.usage.store(usage::SPARE, Ordering::Relaxed);
            heap
        });
        if let Some(heap) = gone {
            release(heap);
        }
    }
}

/// Gives every span to the pool, live blocks or not.
///
/// # Safety
/// The heap's lock is held, no thread uses its blocks, and none of its spans is on the notified stack.
unsafe fn give_spans(heap: &Heap) {
    for class in 0..class::count() {
        let current = heap.current(class);
        // SAFETY: as the caller promises.
        unsafe {
            if !Heap::is_none(current) {
                heap.clear_current(class);
                // ORDER: the lock is held (span.S3).
                (*current).state.store(state::NONE, Ordering::Relaxed);
                heap.give_span(current);
            }
            for list in [&heap.partial[class], &heap.full[class], &heap.empty[class]] {
                // ORDER: the lock is held. Each turn takes one span off the list.
                while list.load(Ordering::Relaxed) != 0 {
                    heap.give_span(at::<Span>(list.load(Ordering::Relaxed))); // ORDER: as above
                }
            }
        }
    }
}

/// Empties the notified stack without a look at the spans: they are all about to go.
///
/// # Safety
/// The heap's lock is held, and no thread frees into the heap (T4).
unsafe fn forget_notified(heap: &Heap) {
    // SAFETY: a span on the stack is not given away.
    remote::forget(&heap.notified, |offset| unsafe { &*at::<Span>(offset) });
}
