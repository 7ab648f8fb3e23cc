//! The C library's reports about its memory, with our figures.
//!
//! ```text
//!   totals ─► mallinfo (ints), mallinfo2 ─► program
//!          ─► malloc_info (XML) ─► a stream      malloc_stats ─► stderr
//! ```
//!
//! R1  A large block counts as glibc counts a block with a mapping of its own: `hblks`, `hblkhd`, and not
//!     in `arena`.
//! R2  `mallinfo`'s fields stop at INT_MAX; glibc's wrap around to wrong values.
//! R3  `mallopt` accepts and refuses what glibc does. Nothing that it could set exists here: there are no arenas to
//!     limit, no threshold beyond which blocks become mappings, and what is free goes back by itself.
//!
//! Not here: figures beyond these (`skinflint_stats_json`).

use core::ffi::{c_char, c_int, c_long, c_void};

use skinflint_alloc as alloc;
use skinflint_base::sys;

use crate::text::Text;
use crate::totals::{Totals, totals};

/// glibc's `struct mallinfo`, in its order.
#[repr(C)]
pub struct Fields<N> {
    arena: N,
    ordblks: N,
    smblks: N,
    hblks: N,
    hblkhd: N,
    usmblks: N,
    fsmblks: N,
    uordblks: N,
    fordblks: N,
    keepcost: N,
}

impl<N: From<u8>> Fields<N> {
    fn of(totals: &Totals, convert: impl Fn(usize) -> N) -> Fields<N> {
        Fields {
            arena: convert(totals.system_bytes.saturating_sub(totals.large_bytes)),
            ordblks: convert(totals.free_runs),
            smblks: N::from(0),
            hblks: convert(totals.large_blocks),
            hblkhd: convert(totals.large_bytes),
            usmblks: N::from(0),
            fsmblks: N::from(0),
            uordblks: convert(totals.used_bytes.saturating_sub(totals.large_bytes)),
            fordblks: convert(totals.free_bytes()),
            keepcost: convert(totals.trimmable_bytes),
        }
    }
}

/// Returns the figures as `int` (R2).
fn mallinfo_of_now() -> Fields<c_int> {
    Fields::of(&totals(), |n| c_int::try_from(n).unwrap_or(c_int::MAX))
}

/// `mallinfo`: returns the figures as `int`.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo() -> Fields<c_int> {
    mallinfo_of_now()
}

/// `mallinfo` by glibc's other name.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_mallinfo() -> Fields<c_int> {
    mallinfo_of_now()
}

/// `mallinfo2`: returns the figures.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo2() -> Fields<usize> {
    Fields::of(&totals(), |n| n)
}

/// `malloc_trim`: gives back at once everything that can be given back. The bytes to keep (`_pad`) are at the end of a
/// heap that we do not have. Returns 1 if anything was given back.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(_pad: usize) -> c_int {
    c_int::from(alloc::trim())
}

/// `skinflint_trim` (skinflint.h): does the same without an argument that means nothing here.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_trim() -> c_int {
    c_int::from(alloc::trim())
}

/// `skinflint_cool` (skinflint.h): tells the kernel of live pages that are cold. -1 and errno if it cannot.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cool(how: c_int) -> c_long {
    const PAGE_OUT: c_int = 1;
    const LARGE: c_int = 2;
    let advice = match how & PAGE_OUT {
        0 => alloc::Advice::Cold,
        _ => alloc::Advice::PageOut,
    };
    let told = match how & !(PAGE_OUT | LARGE) {
        0 => alloc::cold::cool(advice, how & LARGE != 0),
        _ => return refused(libc::EINVAL),
    };
    match told {
        Ok(bytes) => bytes as c_long,
        Err(alloc::cold::Refusal::Busy) => refused(libc::EBUSY),
        Err(alloc::cold::Refusal::Unknown) => refused(libc::ENOSYS),
        Err(alloc::cold::Refusal::NoMemory) => refused(libc::ENOMEM),
    }
}

fn refused(error: c_int) -> c_long {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// glibc's largest fast bin: `M_MXFAST` above it is refused.
const MAX_FAST: c_int = 80 * 8 / 4;

/// Returns 1 if glibc would accept a parameter (R3). It accepts all values of all others, and parameters that it does
/// not know.
fn accepted(parameter: c_int, value: c_int) -> c_int {
    const M_MXFAST: c_int = 1;
    c_int::from(parameter != M_MXFAST || (0..=MAX_FAST).contains(&value))
}

/// `mallopt`: returns 1 if the parameter is accepted (R3).
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    accepted(parameter, value)
}

/// `mallopt` by glibc's other name.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __libc_mallopt(parameter: c_int, value: c_int) -> c_int {
    accepted(parameter, value)
}

unsafe extern "C" {
    fn fputs(text: *const c_char, stream: *mut c_void) -> c_int;
}

/// `malloc_info`: writes the figures as XML, in glibc's form, to a stream. EINVAL for any option.
///
/// # Safety
/// `stream` is open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut c_void) -> c_int {
    if options != 0 {
        return libc::EINVAL;
    }
    let totals = totals();
    let mut text = Text::new();
    text.put("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n</sizes>\n");
    arena(&mut text, &totals);
    text.put("</heap>\n");
    arena(&mut text, &totals);
    text.put("</malloc>\n");
    // SAFETY: as the caller promises; the text is a C string. A stream that fails reports it itself, and glibc returns
    // 0 then, too.
    unsafe { fputs(text.as_c(), stream) };
    0
}

/// Writes what glibc writes of each arena, and of all.
fn arena(text: &mut Text, totals: &Totals) {
    let own = totals.system_bytes.saturating_sub(totals.large_bytes);
    text.put("<total type=\"fast\" count=\"0\" size=\"0\"/>\n");
    text.put("<total type=\"rest\" count=\"")
        .number(totals.free_runs, 1)
        .put("\" size=\"")
        .number(totals.free_bytes(), 1)
        .put("\"/>\n<total type=\"mmap\" count=\"")
        .number(totals.large_blocks, 1)
        .put("\" size=\"")
        .number(totals.large_bytes, 1)
        .put("\"/>\n");
    for (what, kind) in [
        ("system", "current"),
        ("system", "max"),
        ("aspace", "total"),
        ("aspace", "mprotect"),
    ] {
        text.put("<")
            .put(what)
            .put(" type=\"")
            .put(kind)
            .put("\" size=\"")
            .number(own, 1)
            .put("\"/>\n");
    }
}

/// Width of glibc's figures in `malloc_stats`.
const COLUMN: usize = 10;

/// Writes the figures to stderr, in glibc's words.
pub fn write_stats() {
    let totals = totals();
    let own = Fields::of(&totals, |n| n);
    let mut text = Text::new();
    text.put("Arena 0:\nsystem bytes     = ")
        .number(own.arena, COLUMN)
        .put("\nin use bytes     = ")
        .number(own.uordblks, COLUMN)
        .put("\nTotal (incl. mmap):\nsystem bytes     = ")
        .number(totals.system_bytes, COLUMN)
        .put("\nin use bytes     = ")
        .number(totals.used_bytes, COLUMN)
        .put("\nmax mmap regions = ")
        .number(totals.large_blocks_max, COLUMN)
        .put("\nmax mmap bytes   = ")
        .number(totals.large_bytes_max, COLUMN)
        .put("\n");
    sys::stderr(text.bytes());
}

/// `malloc_stats`: writes the figures to stderr.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_stats() {
    write_stats();
}

/// `malloc_get_state`: no program dumps a heap any more; returns null and sets ENOSYS, as glibc does since 2.25.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_get_state() -> *mut c_void {
    // SAFETY: this thread's errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    core::ptr::null_mut()
}

/// `malloc_set_state`: a heap that glibc has dumped means nothing here; returns -1, as glibc does for a state that it
/// does not know.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_set_state(_state: *mut c_void) -> c_int {
    -1
}
