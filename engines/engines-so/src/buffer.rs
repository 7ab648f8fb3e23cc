//! Buffers: bytes that grow, in blocks that are used to their end.
//!
//! ```text
//!   new(room) ─► append, reserve + added ─► view ─► clear, shrink ─► end
//! ```
//!
//! B1  A buffer has a lock, so that two threads that use it at once are a mistake and not undefined; an address of `view`
//!     or `reserve` is good until the next call that changes the buffer, and that is the caller's to know.
//! B2  What is appended does not lie in the buffer itself, which may move while it grows.
//!
//! Not here: sizes (`skinflint_cache::buf`).

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use skinflint_cache::Buf;

use crate::fault::{Failure, guarded};
use crate::input;
use crate::table::{Number, Shared, Sort};

static BUFFERS: Shared<Arc<Mutex<Buf<u8>>>> = Shared::new(Sort::Buffer);

/// What a buffer has, as the header has it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct View {
    data: *mut c_void,
    bytes: usize,
    room_bytes: usize,
    held_bytes: usize,
}

fn with<R>(
    buffer: Number,
    work: impl FnOnce(&mut Buf<u8>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let buffer = BUFFERS.get(buffer)?;
    let mut held = buffer.lock().unwrap_or_else(PoisonError::into_inner);
    work(&mut held)
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_buffer_new(room_bytes: usize) -> Number {
    guarded(|| {
        let buffer = Buf::try_with_capacity(room_bytes).map_err(|_| Failure::memory())?;
        BUFFERS.add(Arc::new(Mutex::new(buffer)))
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: there are so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_buffer_append(
    buffer: Number,
    bytes: *const c_void,
    len: usize,
) -> c_int {
    guarded(|| {
        with(buffer, |buffer| {
            let at = buffer.as_slice().as_ptr().addr();
            let from = bytes.addr();
            let there = buffer.capacity();
            if len > 0 && there > 0 && from < at + there && at < from.saturating_add(len) {
                return Err(Failure::argument("these bytes lie in the buffer itself"));
            }
            // SAFETY: as the caller promises; B2: no part of it is the buffer's.
            let bytes = unsafe { input::bytes(bytes, len, "what is to be appended") }?;
            buffer.try_reserve(len).map_err(|_| Failure::memory())?;
            buffer.extend_from_slice(bytes);
            Ok(1)
        })
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_buffer_reserve(buffer: Number, more_bytes: usize) -> *mut c_void {
    guarded(|| {
        with(buffer, |buffer| {
            if more_bytes == 0 {
                return Err(Failure::argument("room for 0 bytes has no place"));
            }
            buffer
                .try_reserve(more_bytes)
                .map_err(|_| Failure::memory())?;
            Ok(buffer.spare().as_mut_ptr().cast())
        })
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: so many bytes were written to the room that was reserved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_buffer_added(buffer: Number, bytes: usize) -> c_int {
    guarded(|| {
        with(buffer, |buffer| {
            let (len, room) = (buffer.as_slice().len(), buffer.capacity());
            if bytes > room - len {
                let what = format!("{bytes} bytes, but there was room for {}", room - len);
                return Err(Failure::argument(what));
            }
            // SAFETY: within the capacity; written, as the caller promises.
            unsafe { buffer.set_len(len + bytes) };
            Ok(1)
        })
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_buffer_view(buffer: Number, view: *mut View) -> c_int {
    guarded(|| {
        if view.is_null() {
            return Err(Failure::argument("a place for the view: null"));
        }
        let has = with(buffer, |buffer| {
            Ok(View {
                data: buffer.as_mut_slice().as_mut_ptr().cast(),
                bytes: buffer.as_slice().len(),
                room_bytes: buffer.capacity(),
                held_bytes: buffer.usable_bytes(),
            })
        })?;
        // SAFETY: as the caller promises.
        unsafe { input::write(view, has) };
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_buffer_truncate(buffer: Number, bytes: usize) -> c_int {
    guarded(|| {
        with(buffer, |buffer| {
            if bytes > buffer.as_slice().len() {
                return Err(Failure::argument(format!(
                    "it has {} bytes, not {bytes}",
                    buffer.as_slice().len()
                )));
            }
            buffer.truncate(bytes);
            Ok(1)
        })
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_buffer_shrink(buffer: Number) -> c_int {
    guarded(|| {
        with(buffer, |buffer| {
            buffer.shrink_to_fit();
            Ok(1)
        })
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_buffer_end(buffer: Number) -> c_int {
    guarded(|| {
        drop(BUFFERS.take(buffer)?);
        Ok(1)
    })
}
