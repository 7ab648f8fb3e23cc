//! The functions of skinflint.h about the sampled heap profile, and its file at the end.
//!
//! ```text
//!   skinflint_profile_start, _stop, _set_rate ─► alloc::profile       _write ─► a descriptor
//!   exit ─► SKINFLINT_PROFILE_FILE: in use now      with .peak: in use at the peak      one line on stderr says where
//! ```
//!
//! O1  Nothing here allocates.
//! O2  A file that cannot be written whole is removed, if it is a plain one, and a line on stderr says why: what is cut off
//!     would read as a smaller heap.
//!
//! Not here: the profile and its form (`alloc::profile`).

use core::ffi::{c_char, c_int};

use skinflint_alloc::profile::{self, What};
use skinflint_base::sys;

use crate::files::{Name, Out, Path, open_for, path_of, reason, say};

/// The value of SKINFLINT_PROFILE_FILE.
static WHERE: Name = Name::new();

/// Notes where the profile goes at the end. `value`: a C string or null.
///
/// # Safety
/// To be called once, before there are threads.
pub unsafe fn remember(value: *const c_char) {
    // SAFETY: as the caller promises.
    unsafe { WHERE.remember(value) };
}

/// Writes the profile to where SKINFLINT_PROFILE_FILE says, if there is one.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn at_exit() {
    let name = WHERE.get();
    if !name.is_empty() {
        write_both(name);
    }
}

#[cold]
#[inline(never)]
fn write_both(name: &[u8]) {
    for (ending, what) in [(&b""[..], What::InUse), (b".peak", What::Peak)] {
        let path = path_of(name, ending);
        match write_file(&path, what) {
            Ok(true) => (),
            Ok(false) => return,
            Err((done, error)) => {
                let why = reason(error);
                return say(&[shown(&path), b": the heap profile cannot be ", done, why]);
            }
        }
    }
    let path = path_of(name, b"");
    say(&[
        b"heap profile: ",
        shown(&path),
        b" (at the peak: the same with .peak)",
    ]);
}

/// Writes a file. `false`: there is no profile. An error says what failed, and the kernel's number.
fn write_file(path: &Path, what: What) -> Result<bool, (&'static [u8], i32)> {
    if !profile::is_kept() {
        return Ok(false);
    }
    let file = open_for(path, libc::O_TRUNC).map_err(|error| (&b"opened"[..], error))?;
    let result = write_to(file, what);
    if let Err(error) = result {
        remove_plain(path, file);
        sys::close(file);
        return Err((b"written", error));
    }
    sys::close(file);
    result.map_err(|error| (&b"written"[..], error))
}

/// Writes the profile to a descriptor. `false`: there is none.
fn write_to(file: i32, what: What) -> Result<bool, i32> {
    let mut out = Out::to(file);
    let there = profile::write(what, &mut |bytes| out.add(bytes));
    out.flush();
    match out.failure {
        0 => Ok(there),
        error => Err(error),
    }
}

/// Removes a plain file (O2).
fn remove_plain(path: &Path, file: i32) {
    // SAFETY: the structure is ours; the path is closed by a zero.
    unsafe {
        let mut about: libc::stat = core::mem::zeroed();
        let to = &raw mut about as u64;
        let done = sys::syscall(libc::SYS_fstat, [file as u64, to, 0, 0, 0, 0]);
        if done == 0 && about.st_mode & libc::S_IFMT == libc::S_IFREG {
            let dir = libc::AT_FDCWD as u64;
            sys::syscall(libc::SYS_unlinkat, [dir, path.as_ptr() as u64, 0, 0, 0, 0]);
        }
    }
}

/// Returns a path up to its closing zero.
fn shown(path: &Path) -> &[u8] {
    let length = path.iter().position(|&byte| byte == 0).unwrap_or(0);
    path.get(..length).unwrap_or(&[])
}

/// `skinflint_profile_start`: begins a profile, or goes on with it; returns 1 if it is kept.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_profile_start() -> c_int {
    c_int::from(profile::start().is_ok())
}

/// `skinflint_profile_stop`: takes no further samples.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_profile_stop() {
    profile::stop();
}

/// `skinflint_profile_set_rate`: sets the bytes between two samples; returns 1 if they may be so many.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_profile_set_rate(bytes: usize) -> c_int {
    c_int::from(profile::set_rate(bytes).is_ok())
}

/// `skinflint_profile_write`: writes the profile to a descriptor; returns 0, or an error's number.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_profile_write(file: c_int, what: c_int) -> c_int {
    let what = match what {
        0 => What::InUse,
        1 => What::Peak,
        _ => return libc::EINVAL,
    };
    match write_to(file, what) {
        Ok(true) => 0,
        Ok(false) => libc::ENODATA,
        Err(error) => error,
    }
}
