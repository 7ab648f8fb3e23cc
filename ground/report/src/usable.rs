//! Usable bytes of a block, by the allocator that gave it.
//!
//! ```text
//!   usable(block, asked) ─┬─ measure_by(…)          what the program has promised
//!                         ├─ base::hook             skinflint_alloc as `#[global_allocator]`, by itself
//!                         ├─ malloc_usable_size     if it is seen that the program's blocks are malloc's
//!                         └─ asked                  what was asked for: no block is asked about whose giver is unknown
//! ```
//!
//! V1  A library cannot see which `#[global_allocator]` a program has; asked about a block of another allocator,
//!     `malloc_usable_size` reads whatever lies before it, or crashes. So the default is found by a trial: a block
//!     is taken from the global allocator and given back, and `malloc` is then asked for as much. If it hands out
//!     that very address, for each of [`TRIED`] sizes, blocks are malloc's and begin where malloc's begin. A header
//!     in front of a block, a heap of its own, or one that delays reuse: none of these passes.
//! V2  What cannot be told is never more than was given: the fallback is what was asked for.
//! V3  A block that is measured while a measurement asks for blocks is noted with its address (`named`).
//!
//! What the trial cannot see is an allocator that passes some requests on to malloc and keeps others of the same sizes.
//! Such a program says what it has, by [`measure_by`], or by [`measure_as_asked`].
//! Cost: 5 to 20 ns a block; the trial, once, some microseconds. Any thread.
//! Not here: how blocks are reached (`size`).

use std::alloc::Layout;
use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use skinflint_base::hook;

use crate::named;

/// Bytes that may be used of a live block; 0 for null.
pub type Usable = unsafe fn(*const u8) -> usize;

static PROMISED: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Says how blocks of the program's `#[global_allocator]` are measured. For allocators that are neither malloc nor
/// `skinflint_alloc`, which are found by themselves. To be called before anything is measured.
///
/// # Safety
/// From now on `usable` answers for every live block that the global allocator has given.
pub unsafe fn measure_by(usable: Usable) {
    // ORDER: Relaxed: a function's address and nothing behind it.
    PROMISED.store(usable as *mut (), Ordering::Relaxed);
}

/// Has blocks counted as what was asked for. For a global allocator that gets only some of its blocks from malloc.
pub fn measure_as_asked() {
    GIVER.store(UNKNOWN, Ordering::Relaxed); // ORDER: Relaxed: one word
}

/// Usable bytes of a live block, of which `asked` were asked for; 0 for null.
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

/// The same, noted for nobody.
///
/// # Safety
/// As of [`usable`]; not null.
unsafe fn of(block: *const u8, asked: usize) -> usize {
    // ORDER: Relaxed: as in `measure_by`.
    let promised = PROMISED.load(Ordering::Relaxed);
    if !promised.is_null() {
        // SAFETY: only `measure_by` writes there, and it wrote a function of this type.
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

/// Usable bytes of a live block of malloc's, whoever serves the program's Rust code; 0 for null.
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

/// Largest request that is tried: freeing a large block changes glibc's threshold for mappings, and so the program.
const LARGEST_TRIAL: usize = 64 << 10;

/// By a trial, given back at once: no table of somebody's size classes is kept here. Large ones are whole pages, nearly.
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

/// Usable bytes that a request is given, of a block whose address is hidden.
pub fn request(bytes: usize) -> usize {
    let given = given(bytes);
    named::hidden(given);
    given
}

/// The same of a block in which this address lies; null is a hidden one.
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
        // SAFETY: not of zero bytes. `black_box`: a block of which nothing is used might else not be taken at all.
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

/// Sizes that are tried (V1): each allocator's small blocks, up to where they begin to be runs of pages.
const TRIED: [usize; 4] = [24, 200, 1000, 8000];
/// Trials of each: another thread may take the block in between.
const TRIALS: usize = 4;

/// Not known yet, nobody that could be asked, malloc.
const UNTRIED: u8 = 0;
const UNKNOWN: u8 = 1;
const MALLOC: u8 = 2;
static GIVER: AtomicU8 = AtomicU8::new(UNTRIED);

/// Whether the program's blocks are malloc's (V1). Cost: one load, after the first time.
fn is_malloc() -> bool {
    // ORDER: Relaxed: one word; who finds it untried tries again, with the same result.
    match GIVER.load(Ordering::Relaxed) {
        UNTRIED => is_malloc_slow(),
        giver => giver == MALLOC,
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
    let said = GIVER.compare_exchange(UNTRIED, found, Ordering::Relaxed, Ordering::Relaxed);
    said.map_or_else(|giver| giver == MALLOC, |_| found == MALLOC)
}

/// Whether malloc hands out a block that was given back to the global allocator. Some hand out first what lay on their
/// list before: so many are taken, a page or two full of them.
fn comes_back(bytes: usize) -> bool {
    let Some(taken) = Taken::new(bytes) else {
        return false;
    };
    let wanted = taken.start.addr();
    drop(taken);
    let mut found = false;
    // A list of what was taken, through the blocks themselves: nothing else is asked of either allocator meanwhile.
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
