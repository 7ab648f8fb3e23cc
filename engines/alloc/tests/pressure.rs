//! The reserve and the listeners: what is released when the kernel refuses memory, and what listeners are told.
//!
//! ```text
//!   request ──► kernel refuses ──► reserve large enough? ──► released ──► listeners, once each ──► served
//!                                          └ no: it stays ──► listeners, once each ──► null, ENOMEM
//! ```
//!
//! P1  A reserve holds the size that it was set to, in whole resident pages, and no other figure counts it as in use.
//! P2  A request that the free pages and the reserve could serve together takes the reserve; one byte more leaves it.
//! P3  Each listener is called once for a refusal, with its context, the level and the bytes wanted; a listener that
//!     runs out of memory itself gets null, and no listener is called for that.
//! P4  Refusals, releases, calls and failures are counted.
//!
//! One test: the reserve is the process's. Not here: memory control groups (the cache's `squeeze`), refilling the
//! reserve.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;
use std::sync::Mutex;

use skinflint_alloc::check::check_invariants;
use skinflint_alloc::stats::{Events, Snapshot, snapshot};
use skinflint_alloc::{
    LISTENERS, Level, allow_purger, free, malloc, off_pressure, on_pressure, set_reserve, trim,
};
use skinflint_pages::os::faults;

const PAGE: usize = 4_096;
const MIB: usize = 1 << 20;

/// Context, level and bytes of each call.
static TOLD: Mutex<Vec<(usize, i32, usize)>> = Mutex::new(Vec::new());

unsafe extern "C" fn note(context: *mut c_void, level: i32, wanted: usize) {
    TOLD.lock()
        .expect("no panic")
        .push((context as usize, level, wanted));
    if level == Level::Critical as i32 {
        // SAFETY: refused, since nothing was freed (P3).
        assert!(unsafe { malloc(wanted) }.is_null());
    }
}

fn told() -> Vec<(usize, i32, usize)> {
    std::mem::take(&mut TOLD.lock().expect("no panic"))
}

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    assert!(snapshot(&mut figures, true));
    assert!(figures.balanced, "{figures:?}");
    figures
}

/// Bytes in free pages, when nothing is left to be gathered.
fn free_bytes() -> usize {
    trim();
    let rows = look().mapped;
    rows.dirty + rows.clean
}

/// A block of this size while the kernel gives nothing, and what that counted.
fn refused(bytes: usize) -> (*mut u8, Events) {
    let before = look().events;
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = 0 };
    faults::arm(0, faults::FOR_EVER);
    // SAFETY: the caller frees it.
    let block = unsafe { malloc(bytes) };
    faults::disarm();
    // SAFETY: this thread's errno.
    assert_eq!(
        block.is_null(),
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() } == libc::ENOMEM
    );
    let after = look().events;
    let counted = Events {
        refusals: after.refusals - before.refusals,
        reserve_releases: after.reserve_releases - before.reserve_releases,
        listener_calls: after.listener_calls - before.listener_calls,
        failures: after.failures - before.failures,
        ..Events::default()
    };
    (block, counted)
}

fn counts(events: &Events) -> [u64; 4] {
    [
        events.refusals,
        events.reserve_releases,
        events.listener_calls,
        events.failures,
    ]
}

fn the_reserve_is_what_it_was_set_to() {
    for bytes in [MIB, 4 * MIB, 4 * MIB + 1, 2 * MIB, 0, 5_000, 64 * MIB] {
        assert!(set_reserve(bytes), "{bytes}");
        let figures = look();
        let whole = bytes.next_multiple_of(PAGE);
        assert_eq!(figures.mapped.reserve, whole, "{bytes}");
        assert_eq!(figures.resident.reserve, whole, "{bytes}");
        assert_eq!(figures.large_blocks, 0, "{bytes}");
    }
    assert!(!set_reserve(usize::MAX), "no number of pages");
    assert_eq!(look().mapped.reserve, 64 * MIB);
}

fn there_are_so_many_listeners() {
    for context in 1..=LISTENERS {
        assert!(on_pressure(note, without_provenance_mut(context)));
    }
    assert!(!on_pressure(note, without_provenance_mut(LISTENERS + 1)));
    for context in 3..=LISTENERS {
        assert!(off_pressure(note, without_provenance_mut(context)));
        assert!(!off_pressure(note, without_provenance_mut(context)));
    }
}

#[test]
fn the_reserve_goes_where_it_helps_and_each_listener_is_told_once() {
    allow_purger(false);
    // SAFETY: freed at once.
    unsafe { free(malloc(1)) };
    the_reserve_is_what_it_was_set_to();
    there_are_so_many_listeners();

    let wanted = free_bytes() + PAGE;
    assert!(wanted <= 64 * MIB, "one part can serve it: {wanted}");
    let (block, counted) = refused(wanted);
    assert!(!block.is_null(), "the reserve was there");
    let reserve = Level::Reserve as i32;
    assert_eq!(told(), [(1, reserve, wanted), (2, reserve, wanted)]);
    assert_eq!(counts(&counted), [1, 1, 2, 0]);
    assert_eq!(look().mapped.reserve, 0);
    // SAFETY: a live block of this many bytes.
    unsafe {
        block.write_bytes(7, wanted);
        free(block);
    }

    // None any more: the listeners are all there is.
    assert!(set_reserve(0));
    let wanted = free_bytes() + PAGE;
    let (block, counted) = refused(wanted);
    assert!(block.is_null());
    let critical = Level::Critical as i32;
    assert_eq!(told(), [(1, critical, wanted), (2, critical, wanted)]);
    // What each listener asked for is a refusal and a failure, too.
    assert_eq!(counts(&counted), [3, 0, 2, 3]);
    for context in 1..3 {
        assert!(off_pressure(note, without_provenance_mut(context)));
    }

    // Where it could not help it stays (P2).
    assert!(set_reserve(MIB));
    let most = free_bytes() + MIB;
    let (block, counted) = refused(most + PAGE);
    assert!(block.is_null());
    assert_eq!(counts(&counted), [1, 0, 0, 1]);
    assert_eq!(look().mapped.reserve, MIB);
    let (block, counted) = refused(most);
    assert_eq!(counted.reserve_releases, 1);
    assert_eq!(look().mapped.reserve, 0);
    // SAFETY: a live block, or null.
    unsafe { free(block) };
    assert_eq!(told(), []);

    // No address space holds that: a mistake and no pressure.
    assert!(set_reserve(MIB));
    let (block, counted) = refused(1 << 46);
    assert!(block.is_null());
    assert_eq!(counts(&counted), [0, 0, 0, 1]);
    assert_eq!(look().mapped.reserve, MIB);
    check_invariants(3).expect("at the end");
}
