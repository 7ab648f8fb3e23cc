//! Arenas: room for values that end together, by the thread that began them.
//!
//! ```text
//!   begin ─► number ─► alloc, copy … ─► reset (one chunk stays) ─► … ─► end
//! ```
//!
//! N1  An arena is its thread's; a call on another thread is told. What the thread leaves behind ends with it.
//! N2  No function of the caller's runs here, so the table is borrowed for the length of a call.
//!
//! Not here: chunks (`skinflint_cache::arena`).

use std::alloc::Layout;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use skinflint_cache::Arena;

use crate::fault::{Failure, guarded};
use crate::input;
use crate::table::{Number, Sort, Table, thread_number};

/// The largest alignment: a page.
const ALIGN_MOST: usize = 4096;

thread_local! {
    static ARENAS: RefCell<Table<Arena>> =
        RefCell::new(Table::of_thread(Sort::Arena, thread_number()));
}

fn with<R>(work: impl FnOnce(&mut Table<Arena>) -> Result<R, Failure>) -> Result<R, Failure> {
    let done = ARENAS.try_with(|arenas| work(&mut arenas.borrow_mut()));
    done.unwrap_or_else(|_| Err(Failure::ending()))
}

fn room(arena: Number, bytes: usize, align: usize) -> Result<*mut c_void, Failure> {
    let align = if align == 0 { 16 } else { align };
    if bytes == 0 {
        return Err(Failure::argument("0 bytes have no place"));
    }
    if !align.is_power_of_two() || align > ALIGN_MOST {
        let what = format!("an alignment of {align}: 1, 2, 4 … {ALIGN_MOST}, or 0 for 16");
        return Err(Failure::argument(what));
    }
    let layout = Layout::from_size_align(bytes, align)
        .map_err(|_| Failure::argument(format!("{bytes} bytes are more than there are")))?;
    with(|arenas| {
        let place = arenas.get(arena)?.try_alloc_layout(layout);
        Ok(place.map_err(|_| Failure::memory())?.as_ptr().cast())
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_arena_begin() -> Number {
    guarded(|| with(|arenas| arenas.add(Arena::new()).map_err(|(failure, _)| failure)))
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_arena_alloc(arena: Number, bytes: usize, align: usize) -> *mut c_void {
    guarded(|| room(arena, bytes, align))
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: there are so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_arena_copy(
    arena: Number,
    bytes: *const c_void,
    len: usize,
) -> *mut c_void {
    guarded(|| {
        // SAFETY: as the caller promises.
        let from = unsafe { input::bytes(bytes, len, "what is to be copied") }?;
        let place = room(arena, len, 0)?;
        // SAFETY: room that was just given, so nothing else is there.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), place.cast(), len) };
        Ok(place)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_arena_reset(arena: Number) -> c_int {
    guarded(|| {
        with(|arenas| {
            arenas.get_mut(arena)?.reset();
            Ok(1)
        })
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the places are there, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_arena_bytes(
    arena: Number,
    used: *mut usize,
    held: *mut usize,
) -> c_int {
    guarded(|| {
        let (has, holds) = with(|arenas| {
            let arena = arenas.get(arena)?;
            Ok((arena.used_bytes(), arena.usable_bytes()))
        })?;
        // SAFETY: as the caller promises.
        unsafe {
            input::write(used, has);
            input::write(held, holds);
        }
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_arena_end(arena: Number) -> c_int {
    guarded(|| {
        drop(with(|arenas| arenas.take(arena))?);
        Ok(1)
    })
}
