//! Usable bytes of a block, by the allocator that gave it.
//!
//! ```text
//!   usable(block, asked) ─┬─ measure_by(…)          what the program has promised
//!                         ├─ base::hook             skinflint_alloc as `#[global_allocator]`, by itself
//!                         ├─ malloc_usable_size     if a trial shows that the program's blocks are malloc's
//!                         └─ asked                  the requested size: no allocator is asked if none is known
//! ```
//!
//! V1  A library cannot see which `#[global_allocator]` a program has; asked about a block of another allocator,
//!     `malloc_usable_size` reads whatever lies before the block, or crashes. So the default is found by a trial: a
//!     block is taken from the global allocator and given back, and `malloc` is then asked for the same size. If it
//!     hands out that very address, for each size of [`TRIED`], blocks are malloc's and begin where malloc's begin.
//!     An allocator with a header in front of its blocks, with a heap of its own, or with delayed reuse does not
//!     pass.
//! V2  Where the usable size cannot be known, the answer is never more than was given: the requested size.
//! V3  A block that is measured while a measurement asks for blocks is noted with its address (`named`).
//!
//! The trial cannot recognise an allocator that passes some requests on to malloc and keeps others of the same sizes.
//! A program with one says so with [`measure_by`] or [`measure_as_asked`].
//! Cost: 5 to 20 ns per block; the trial, once, some microseconds. Any thread.
//! Not here: how blocks are reached (`size`).

use std::alloc::Layout;
use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use skinflint_base::hook;

use crate::named;

/// A function that returns the usable bytes of a live block; 0 for null.
pub type Usable = unsafe fn(*const u8) -> usize;

static PROMISED: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function by which blocks of the program's `#[global_allocator]` are measured. For allocators other than
/// malloc and `skinflint_alloc`, which are recognised without it. To be called before anything is measured.
///
/// # Safety
/// From now on `usable` answers for every live block that the global allocator has given.
pub unsafe fn measure_by(usable: Usable) {
    // ORDER: Relaxed: a function's address and nothing behind it.
    PROMISED.store(usable as *mut (), Ordering::Relaxed);
}

/// Has blocks counted by their requested size. For a global allocator that gets only some of its blocks from malloc.
pub fn measure_as_asked() {
    SOURCE.store(UNKNOWN, Ordering::Relaxed); // ORDER: Relaxed: one word
}

/// Returns the usable bytes of a live block; `asked` bytes were requested. 0 for null.
///
/// # Safety
/// `block` is null or a live block of the global allocator, at its start.
#[inline]
pub unsafe fn usable(block: *const u8, asked: usize) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { of(block, asked) };
    named::block(block, bytes);
    bytes
}

/// Returns the usable bytes of a live block, and does not note it (V3).
///
/// # Safety
/// As for [`usable`]; `block` is not null.
unsafe fn of(block: *const u8, asked: usize) -> usize {
    // ORDER: Relaxed: as in `measure_by`.
    let promised = PROMISED.load(Ordering::Relaxed);
    if !promised.is_null() {
        // SAFETY: only `measure_by` writes there, and it writes a function of this type.
        let function = unsafe { std::mem::transmute::<*mut (), Usable>(promised) };
        // SAFETY: `measure_by`'s caller promised it for every block of the global allocator.
        return unsafe { function(block) };
    }
    match hook::asked(block) {
        0 => {}
        bytes => return bytes,
    }
    match is_malloc() {
        // SAFETY: V1: the global allocator's blocks are malloc's, and start where those do.
        true => unsafe { libc::malloc_usable_size(block.cast_mut().cast()) },
        false => asked,
    }
}

/// Returns the usable bytes of a live block of malloc's, whichever allocator serves Rust code; 0 for null.
///
/// # Safety
/// `block` is null or a live block of malloc's, at its start.
pub unsafe fn usable_of_malloc(block: *const u8) -> usize {
    // SAFETY: as the caller promises.
    let bytes = unsafe { libc::malloc_usable_size(block.cast_mut().cast()) };
    if !block.is_null() {
        named::block(block, bytes);
    }
    bytes
}

/// The largest request that is tried: freeing a large block changes glibc's mmap threshold, and so the program.
const LARGEST_TRIAL: usize = 64 << 10;

/// Returns the usable bytes that a request is given, found by taking a block and giving it back at once: no table of
/// an allocator's size classes is kept here. Large blocks are taken to be whole pages, which is nearly right.
fn given(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    if bytes > LARGEST_TRIAL {
        return bytes.next_multiple_of(4096);
    }
    let Some(block) = Taken::new(bytes) else {
        return bytes;
    };
    // SAFETY: taken just now.
    unsafe { of(block.start, bytes) }
}

/// Returns the usable bytes that a request is given, and notes them for a block whose address is hidden.
pub fn request(bytes: usize) -> usize {
    let given = given(bytes);
    named::hidden(given);
    given
}

/// Returns the usable bytes that a request is given, and notes them for the block in which this address lies; null
/// means that the address is hidden.
pub fn request_at(inside: *const u8, bytes: usize) -> usize {
    if inside.is_null() {
        return request(bytes);
    }
    let given = given(bytes);
    named::block(inside, given);
    given
}

/// A block of the global allocator, for a trial.
struct Taken {
    start: *mut u8,
    layout: Layout,
}

impl Taken {
    fn new(bytes: usize) -> Option<Taken> {
        let layout = Layout::from_size_align(bytes.max(1), 16).ok()?;
        // SAFETY: not of zero bytes. `black_box`: else the compiler might not take a block that is never used.
        let start = black_box(unsafe { std::alloc::alloc(layout) });
        (!start.is_null()).then_some(Taken { start, layout })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: taken with this layout, and given back once.
        unsafe { std::alloc::dealloc(self.start, self.layout) }
    }
}

/// The sizes that are tried (V1): allocators' small blocks, up to where blocks begin to be runs of pages.
const TRIED: [usize; 4] = [24, 200, 1000, 8000];
/// The number of trials of each size: another thread may take the block in between.
const TRIALS: usize = 4;

/// The states of `SOURCE`: not tried yet, no allocator that can be asked, malloc.
const UNTRIED: u8 = 0;
const UNKNOWN: u8 = 1;
const MALLOC: u8 = 2;
static SOURCE: AtomicU8 = AtomicU8::new(UNTRIED);

/// Returns whether the program's blocks are malloc's (V1). Cost: one load, after the first time.
fn is_malloc() -> bool {
    // ORDER: Relaxed: one word; a thread that finds it untried tries again, with the same result.
    match SOURCE.load(Ordering::Relaxed) {
        UNTRIED => is_malloc_slow(),
        source => source == MALLOC,
    }
}

#[cold]
fn is_malloc_slow() -> bool {
    let comes_back = |bytes: usize| (0..TRIALS).any(|_| comes_back(bytes));
    let found = match TRIED.into_iter().all(comes_back) {
        true => MALLOC,
        false => UNKNOWN,
    };
    // ORDER: Relaxed: as above; what the program has said meanwhile stays.
    let said = SOURCE.compare_exchange(UNTRIED, found, Ordering::Relaxed, Ordering::Relaxed);
    said.map_or_else(|source| source == MALLOC, |_| found == MALLOC)
}

/// Returns whether malloc hands out a block that was given back to the global allocator. Some allocators first hand
/// out blocks that were on their list before: so a page or two full of blocks are taken.
fn comes_back(bytes: usize) -> bool {
    let Some(taken) = Taken::new(bytes) else {
        return false;
    };
    let wanted = taken.start.addr();
    drop(taken);
    let mut found = false;
    // The blocks taken form a list through the blocks themselves: nothing else is asked of either allocator meanwhile.
    let mut list: *mut *mut u8 = std::ptr::null_mut();
    for _ in 0..8 + 16_384 / bytes {
        // SAFETY: any size may be asked for.
        let block = black_box(unsafe { libc::malloc(bytes) }).cast::<*mut u8>();
        if block.is_null() {
            break;
        }
        // SAFETY: a fresh block with room for a pointer, aligned for one.
        unsafe { block.write(list.cast()) };
        list = block;
        found = block.addr() == wanted;
        if found {
            break;
        }
    }
    while !list.is_null() {
        // SAFETY: a block of the list, which holds the next one; it is freed once.
        unsafe {
            let next = list.read().cast();
            libc::free(list.cast());
            list = next;
        }
    }
    found
}
