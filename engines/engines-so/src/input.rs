//! What callers pass: texts, bytes, options with a size.
//!
//! ```text
//!   address, length ─► &[u8] for the call (engines_so.A5)
//!   options: size │ fields that this version knows │ later ones: zero
//! ```
//!
//! I1  A null with a length, or a length that no block has, is told; that an address may be read is the caller's promise.
//! I2  A structure says its size first: fields beyond it are 0, and those that this version does not know have to be 0.
//!
//! Not here: numbers (`table`).

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use crate::fault::Failure;

/// Returns the bytes at an address.
///
/// # Safety
/// They may be read while the result is used.
pub unsafe fn bytes<'a>(at: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if at.is_null() {
        return Err(Failure::argument(format!("{what}: null, and {len} bytes")));
    }
    if len > isize::MAX as usize {
        return Err(Failure::argument(format!(
            "{what}: {len} bytes are more than there are"
        )));
    }
    // SAFETY: I1: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), len) })
}

/// Returns a copy of bytes, in a block of just that size.
pub fn copied(of: &[u8]) -> Result<Box<[u8]>, Failure> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(of.len())
        .map_err(|_| Failure::memory())?;
    copy.extend_from_slice(of);
    Ok(copy.into_boxed_slice())
}

/// Returns a name; `otherwise` if it is null.
///
/// # Safety
/// It is null or a C string.
pub unsafe fn name(at: *const c_char, otherwise: &str) -> String {
    match at.is_null() {
        true => otherwise.to_owned(),
        // SAFETY: I1: as the caller promises.
        false => unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned(),
    }
}

/// A structure of numbers and addresses whose first field is its size (I2): all its bits may be zero.
///
/// # Safety
/// That, and `#[repr(C)]` without padding that matters.
pub unsafe trait Sized_: Copy {}

/// Returns the options at an address.
///
/// # Safety
/// There are as many bytes as the first field says.
pub unsafe fn options<T: Sized_>(at: *const T, what: &str) -> Result<T, Failure> {
    if at.is_null() {
        return Err(Failure::argument(format!("{what}: null")));
    }
    // SAFETY: it has its first field, at least.
    let size = unsafe { at.cast::<usize>().read() };
    if !(size_of::<usize>()..=4096).contains(&size) {
        return Err(Failure::argument(format!(
            "{what}: its size is {size}; set it to sizeof"
        )));
    }
    // SAFETY: as the caller promises.
    let given = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if given[known..].iter().any(|&byte| byte != 0) {
        return Err(Failure::argument(format!(
            "{what}: it has fields that this version does not know"
        )));
    }
    let mut options = MaybeUninit::<T>::zeroed();
    // SAFETY: I2: so many bytes are in both, and every pattern of these fields' bits is one.
    unsafe {
        std::ptr::copy_nonoverlapping(given.as_ptr(), options.as_mut_ptr().cast::<u8>(), known);
        Ok(options.assume_init())
    }
}

/// Writes figures to a structure that says its size first; fields that the caller's does not have are left out, and what it
/// has beyond ours is left alone.
///
/// # Safety
/// There are as many bytes as its first field says.
pub unsafe fn figures<T: Sized_>(to: *mut T, figures: T, what: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::argument(format!("{what}: null")));
    }
    // SAFETY: it has its first field, at least.
    let size = unsafe { to.cast::<usize>().read() };
    let head = size_of::<usize>();
    if !(head..=4096).contains(&size) {
        return Err(Failure::argument(format!(
            "{what}: its size is {size}; set it to sizeof"
        )));
    }
    let more = size.min(size_of::<T>()) - head;
    // SAFETY: I2: so many bytes are in both, after the first field of each.
    unsafe {
        let from = std::ptr::from_ref(&figures).cast::<u8>().add(head);
        std::ptr::copy_nonoverlapping(from, to.cast::<u8>().add(head), more);
    }
    Ok(())
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// `to` is null, or there is room for one.
pub unsafe fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as the caller promises.
        unsafe { to.write(value) };
    }
}
