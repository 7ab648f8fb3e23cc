//! What buffers and listeners take of the allocator and give back to it, call by call.
//!
//! ```text
//!   every call ─► Counting ─► how many of this thread; marked blocks that live; a refusal when it is told to
//! ```
//!
//! P1  The allocator is the system's, which says nothing beforehand: the test looks for sizes that it gives in full.
//!
//! Not here: the allocator beneath (`fill`), caches' tables (`store`, and the tests beside the code).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

use skinflint_cache::bus::{Ask, Bus, Options};
use skinflint_cache::{Buf, HeapBytes, Level, Listener, Rebuild};

struct Counting;

/// Blocks of this alignment are counted: no other code asks for it.
const MARK: usize = 512;
/// When this thread says so, requests of at least this many bytes are refused.
const MUCH: usize = 1 << 20;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

static MARKED: AtomicIsize = AtomicIsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

/// Counts a call, and returns whether it is to be refused.
fn is_refused(bytes: usize) -> bool {
    CALLS.with(|calls| calls.set(calls.get() + 1));
    bytes >= MUCH && REFUSES.with(Cell::get)
}

fn mark(layout: Layout, by: isize) {
    if layout.align() == MARK {
        MARKED.fetch_add(by, Ordering::Relaxed); // ORDER: read after the bus has answered
    }
}

// SAFETY: what is not refused goes on to `System` as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_refused(layout.size()) {
            return std::ptr::null_mut();
        }
        mark(layout, 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        mark(layout, -1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if is_refused(bytes) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

/// Returns the number of this thread's calls while `act` runs.
fn calls<R>(act: impl FnOnce() -> R) -> (R, usize) {
    let before = CALLS.with(Cell::get);
    let result = act();
    (result, CALLS.with(Cell::get) - before)
}

#[test]
fn a_buffer_of_nothing_takes_no_block() {
    let (none, count) = calls(|| Buf::<u64>::with_capacity(0));
    assert_eq!((none.usable_bytes(), count), (0, 0), "no items");
    let (empty, count) = calls(|| Buf::<()>::with_capacity(5));
    assert_eq!((empty.usable_bytes(), count), (0, 0), "items of no bytes");
    assert_eq!(empty.capacity(), usize::MAX);
}

#[test]
fn a_first_large_item_takes_room_for_itself() {
    let mut buf: Buf<[u8; 3_000]> = Buf::new();
    buf.push([1; 3_000]);
    assert_eq!(buf.capacity(), 1);
    assert!(buf.usable_bytes() < 6_000, "{}", buf.usable_bytes());
    buf.push([2; 3_000]);
    assert_eq!((buf.capacity(), buf[0][0], buf[1][0]), (2, 1, 2));
}

#[test]
fn a_block_that_is_given_in_full_is_not_asked_for_twice() {
    // What is looked up once in a process is looked up before calls are counted.
    drop(Buf::<u8>::with_capacity(10));
    // So small that the freed block is given again as it was.
    let full = (200..300).find(|bytes| vec![1u8; *bytes].heap_bytes() == *bytes);
    let full = full.expect("a size of the allocator's");
    let (buf, count) = calls(|| Buf::<u8>::with_capacity(full));
    assert_eq!((buf.capacity(), count), (full, 1));
    // A size that is not the allocator's own: the buffer takes the rest of the block as well.
    let (buf, count) = calls(|| Buf::<u8>::with_capacity(full + 1));
    assert_eq!((buf.slop_bytes(), count), (0, 2));
    // Of a large block the rest of a page is left over.
    let (buf, count) = calls(|| Buf::<u8>::with_capacity(300_001));
    assert!(
        (1..=4_112).contains(&buf.slop_bytes()),
        "{}",
        buf.slop_bytes()
    );
    assert_eq!((buf.capacity(), count), (300_001, 1));
}

#[test]
fn a_buffer_is_its_block_and_what_its_items_have() {
    let mut buf: Buf<Vec<u8>> = Buf::new();
    buf.extend([vec![1; 1_000], vec![2; 50_000]]);
    let items: usize = buf.iter().map(HeapBytes::heap_bytes).sum();
    assert!(items >= 51_000);
    assert_eq!(buf.heap_bytes(), buf.usable_bytes() + items);
}

#[test]
fn what_is_written_is_there_and_what_cannot_be_had_is_an_error() {
    let mut buf: Buf<u8> = Buf::new();
    write!(buf, "page {} of {}", 7, 9).expect("memory");
    assert_eq!(buf.as_slice(), b"page 7 of 9");
    assert_eq!(buf.write(b"0, ").expect("memory"), 3);
    let much = vec![1u8; MUCH];
    REFUSES.set(true);
    let refused = buf.write(&much);
    REFUSES.set(false);
    let error = refused.expect_err("there was no memory");
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    assert_eq!(buf.as_slice(), b"page 7 of 90, ", "it is as it was");
    assert_eq!(buf.write(&much).expect("memory"), MUCH);
    buf.flush().expect("nothing to do");
    assert_eq!(buf.len(), 14 + MUCH);
}

/// A listener whose block is counted.
#[repr(align(512))]
struct Marked;

impl Listener for Marked {
    fn name(&self) -> &str {
        "marked"
    }

    fn rebuild(&self) -> Rebuild {
        Rebuild::Free
    }

    fn release(&self, _: Ask) -> usize {
        0
    }
}

#[test]
fn the_block_of_a_listener_that_is_gone_goes_with_the_next_round() {
    let quiet = Options {
        stalls: false,
        groups: false,
        ..Options::default()
    };
    let bus = Bus::start(quiet).expect("a thread");
    let (gone, there) = (Arc::new(Marked), Arc::new(Marked));
    bus.join(&gone);
    bus.join(&there);
    // ORDER: the answer to a press comes after the round.
    assert_eq!(MARKED.load(Ordering::Relaxed), 2);
    drop(gone);
    let event = bus.press(Level::Near, Duration::from_secs(60));
    assert_eq!(event.expect("answered").rows.len(), 1);
    assert_eq!(MARKED.load(Ordering::Relaxed), 1); // ORDER: as above
}
