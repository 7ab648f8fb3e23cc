//! The functions of skinflint.h beyond `malloc`: figures, pressure, heaps of the program's own.
//!
//! ```text
//!   skinflint_stats_json ─► a snapshot ─► JSON, into the caller's buffer      at exit ─► stderr, a file
//!   skinflint_heap_…     ─► alloc::Tenant      skinflint_on_pressure, _set_reserve ─► alloc
//! ```
//!
//! A1  A heap's handle is a number in the form of a pointer: it leads nowhere, and each call checks it.
//! A2  Nothing here allocates for itself. A snapshot takes some 8 KiB of stack.
//! A3  A text for a file is one line, appended, so that processes that share the file do not cut each other's lines.
//!
//! Not here: what the figures mean (`alloc::stats`).

use core::ffi::{c_char, c_int, c_void};

use skinflint_alloc as alloc;
use skinflint_alloc::Tenant;
use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_base::sys;

use crate::files::{Name, Out, open_for, path_of, reason, say};

/// The value of SKINFLINT_STATS.
static WHERE: Name = Name::new();

/// Notes where the figures go at the end. `value`: a C string or null; empty, or 0, means nowhere.
///
/// # Safety
/// To be called once, before there are threads.
pub unsafe fn remember(value: *const c_char) {
    // SAFETY: as the caller promises.
    unsafe { WHERE.remember(value) };
}

/// Writes the figures to where SKINFLINT_STATS says, if anywhere: 1 is stderr, any other value a file's name.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn at_exit() {
    match WHERE.get() {
        b"" | b"0" => (),
        name => write_to(name),
    }
}

#[cold]
#[inline(never)]
fn write_to(name: &[u8]) {
    let file = match name {
        b"1" => 2,
        name => match open(name) {
            Some(file) => file,
            None => return say(&[b"SKINFLINT_STATS: cannot open ", name, b" for writing"]),
        },
    };
    alloc::tell_untouched();
    let mut figures = Snapshot::new();
    if snapshot(&mut figures, true) {
        let mut out = Out::to(file);
        alloc::write_json(&figures, |bytes| out.add(bytes));
        out.add(b"\n");
        out.flush();
        if out.failure != 0 && file != 2 {
            let why = reason(out.failure);
            say(&[b"SKINFLINT_STATS: ", name, b" cannot be written", why]);
        }
    }
    if file != 2 {
        sys::close(file);
    }
}

/// Opens a file to append to, with the process's id for `%p`.
fn open(name: &[u8]) -> Option<i32> {
    open_for(&path_of(name, b""), libc::O_APPEND).ok()
}

/// `skinflint_stats_json`: writes the figures as JSON, cut to the buffer and closed with a zero; returns the length of
/// the whole text, as `snprintf` does, or 0 if there are no figures.
///
/// # Safety
/// `buffer` has room for `bytes`, or `bytes` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_stats_json(buffer: *mut c_char, bytes: usize) -> usize {
    // SAFETY: as the caller promises.
    unsafe { alloc::to_buffer(buffer.cast(), bytes) }
}

/// `skinflint_set_reserve`: sets the reserve; returns 1 if all of it is there.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_set_reserve(bytes: usize) -> c_int {
    c_int::from(alloc::set_reserve(bytes))
}

/// `skinflint_on_pressure`: adds a listener; returns 1 if it was added.
///
/// # Safety
/// The listener may be called with the context until it is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_on_pressure(
    listener: Option<alloc::Listener>,
    context: *mut c_void,
) -> c_int {
    c_int::from(listener.is_some_and(|listener| alloc::on_pressure(listener, context)))
}

/// `skinflint_off_pressure`: removes a listener; returns 1 if there was such a listener.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_off_pressure(
    listener: Option<alloc::Listener>,
    context: *mut c_void,
) -> c_int {
    c_int::from(listener.is_some_and(|listener| alloc::off_pressure(listener, context)))
}

/// `skinflint_heap_create`: returns a handle (A1), or null.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_create() -> *mut c_void {
    match Tenant::create() {
        Some(heap) => core::ptr::without_provenance_mut(heap.to_raw() as usize),
        None => core::ptr::null_mut(),
    }
}

/// Returns the heap of a handle; null is reported like an old handle, by its first use.
fn heap(handle: *mut c_void) -> Tenant {
    // No heap lies at 64.
    const NONE: u64 = 64;
    Tenant::from_raw(handle.addr() as u64)
        .or(Tenant::from_raw(NONE))
        .unwrap_or_else(|| unreachable!())
}

/// `skinflint_heap_destroy`: destroys a heap with its blocks.
///
/// # Safety
/// Nothing uses the heap or its blocks any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_destroy(handle: *mut c_void) {
    if !handle.is_null() {
        // SAFETY: as the caller promises.
        unsafe { heap(handle).destroy() };
    }
}

/// `skinflint_heap_malloc`: allocates from a heap.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_malloc(handle: *mut c_void, size: usize) -> *mut u8 {
    heap(handle).malloc(size)
}

/// `skinflint_heap_calloc`: allocates zeroes from a heap.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_calloc(
    handle: *mut c_void,
    count: usize,
    each: usize,
) -> *mut u8 {
    heap(handle).calloc(count, each)
}

/// `skinflint_heap_realloc`: resizes a block of a heap.
///
/// # Safety
/// As for `realloc`; the block is of this heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_realloc(
    handle: *mut c_void,
    block: *mut u8,
    size: usize,
) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { heap(handle).realloc(block, size) }
}

/// `skinflint_heap_memalign`: allocates from a heap at an alignment; null and EINVAL if that is no power of two.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_memalign(
    handle: *mut c_void,
    align: usize,
    size: usize,
) -> *mut u8 {
    if !align.is_power_of_two() {
        // SAFETY: this thread's errno.
        unsafe { *libc::__errno_location() = libc::EINVAL };
        return core::ptr::null_mut();
    }
    heap(handle).memalign(align, size)
}

/// `skinflint_heap_free`: frees a block of a heap.
///
/// # Safety
/// As for `free`; the block is of this heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_free(handle: *mut c_void, block: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe { heap(handle).free(block) }
}

/// `skinflint_heap_usable`: returns the bytes of a block that may be used.
///
/// # Safety
/// As for `malloc_usable_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_usable(_handle: *mut c_void, block: *mut u8) -> usize {
    // SAFETY: as the caller promises.
    unsafe { alloc::usable_size(block) }
}

/// `skinflint_heap_bytes`: returns the usable bytes of the heap's live blocks.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_bytes(handle: *mut c_void) -> usize {
    heap(handle).holds().bytes
}

/// `skinflint_heap_blocks`: returns the number of the heap's live blocks.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_heap_blocks(handle: *mut c_void) -> usize {
    heap(handle).holds().blocks
}
