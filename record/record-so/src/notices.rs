//! Notices to the collector beside the rings: by the notifier, which stays mapped in every child of fork.
//!
//! ```text
//!   child of fork, before its hello ─ meets ───────────────┐
//!   child without a descriptor, behind a filter ─ lost ────┤
//!   execve, posix_spawn … ─ exec, stayed, spawn ───────────┴─► notifier ─► collector: which process never said hello?
//! ```
//!
//! B1  A notice takes no lock, no memory and no descriptor, and at most two system calls, one of them only to get
//!     the process id; so a child of vfork can leave it, and a signal handler.
//! B2  A notifier without room counts what it missed; no process waits for room.
//!
//! Not here: what the collector concludes from notices (its `kin`).

use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;

use skinflint_base::ring::{
    NOTICE_EXEC, NOTICE_FILTERED, NOTICE_FREE, NOTICE_LOST, NOTICE_MEETS, NOTICE_PATH_BYTES,
    NOTICE_SPAWN, NOTICE_STAYED, NOTICE_WHOLE, NOTICE_WITHOUT_US, NOTICE_WRITTEN, NOTICES, Notice,
    NotifierPage,
};
use skinflint_base::sys;

use crate::{filters, process};

/// Leaves the notice that this process, a child of fork, wanted to be recorded and cannot be.
pub fn lost() {
    leave(NOTICE_LOST, sys::getpid(), sys::monotonic_ns(), c"");
}

/// Leaves the notice that this process, a child of fork, is about to say hello, with this time.
pub fn meets(time_ns: u64) {
    leave(NOTICE_MEETS, sys::getpid(), time_ns, c"");
}

/// Leaves the notice that this process is about to become another program, with these variables; null: with its
/// own. Returns the process id for [`stayed`], or 0.
///
/// # Safety
/// The arguments of `execve`.
pub unsafe fn exec(path: *const c_char, variables: *const *const c_char) -> u32 {
    if process::notifier().is_none() || !filters::may_ask() {
        return 0;
    }
    let pid = sys::getpid();
    // SAFETY: as the caller promises.
    let (path, how) = unsafe { (text(path), how_started(variables, pid)) };
    leave(NOTICE_EXEC | how, pid, sys::monotonic_ns(), path);
    pid
}

/// Leaves the notice that the process did not become another program; `pid` is what [`exec`] returned.
pub fn stayed(pid: u32) {
    if pid != 0 {
        leave(NOTICE_STAYED, pid, sys::monotonic_ns(), c"");
    }
}

/// Leaves the notice that a child was started as another program, not before `time_ns`.
///
/// # Safety
/// The arguments of `posix_spawn`.
pub unsafe fn spawn(pid: u32, time_ns: u64, path: *const c_char, variables: *const *const c_char) {
    // SAFETY: as the caller promises.
    let (path, how) = unsafe { (text(path), how_started(variables, 0)) };
    leave(NOTICE_SPAWN | how, pid, time_ns, path);
}

/// Leaves the notice that the C library is about to start a shell, if the shell will be without the recorder. Its
/// number is not known.
pub fn shell() {
    // SAFETY: null stands for the program's own variables.
    let how = unsafe { how_started(core::ptr::null(), 0) };
    if how != 0 {
        leave(NOTICE_SPAWN | how, 0, sys::monotonic_ns(), c"/bin/sh");
    }
}

unsafe fn text<'a>(path: *const c_char) -> &'a CStr {
    if path.is_null() {
        c""
    } else {
        // SAFETY: as the callers promise.
        unsafe { CStr::from_ptr(path) }
    }
}

/// Returns the flags of a notice of a program with these variables. `pid`: the process that becomes it, or 0.
unsafe fn how_started(variables: *const *const c_char, pid: u32) -> u32 {
    let filtered = match filters::kills_programs(pid) {
        true => NOTICE_FILTERED,
        false => 0,
    };
    // SAFETY: as the callers promise.
    filtered | unsafe { is_without_us(variables) }
}

/// The most variables that are looked at.
const MOST_VARIABLES: usize = 1 << 16;

/// The name of our file. A recorder that its program lays out in memory has none: it is `/proc/PID/fd/N`, and first.
const OURS: &[u8] = b"libskinflint_record.so";

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Returns [`NOTICE_WITHOUT_US`] if a list of variables does not preload the recorder, else 0.
unsafe fn is_without_us(variables: *const *const c_char) -> u32 {
    // SAFETY: as the callers promise: closed by null, each a C string.
    unsafe {
        let mut at = if variables.is_null() {
            environ
        } else {
            variables
        };
        for _ in 0..MOST_VARIABLES {
            if at.is_null() || (*at).is_null() {
                break;
            }
            let preloaded = CStr::from_ptr(*at).to_bytes().strip_prefix(b"LD_PRELOAD=");
            if let Some(preloaded) = preloaded {
                let mut places = preloaded.windows(OURS.len());
                let in_memory = preloaded.starts_with(b"/proc/");
                return match in_memory || places.any(|place| place == OURS) {
                    true => 0,
                    false => NOTICE_WITHOUT_US,
                };
            }
            at = at.add(1);
        }
    }
    NOTICE_WITHOUT_US
}

/// Leaves a notice (B1, B2).
fn leave(kind: u32, pid: u32, time_ns: u64, path: &CStr) {
    let Some(notifier) = process::notifier() else {
        return;
    };
    // ORDER: Relaxed; a token does not change between a link and the next.
    let token = process::TOKEN.load(Ordering::Relaxed);
    let Some(notice) = room(notifier) else {
        notifier.missed.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed; a counter.
        return;
    };
    // ORDER: Relaxed for all fields; published by `state`.
    notice.kind.store(kind, Ordering::Relaxed);
    notice.pid.store(pid, Ordering::Relaxed);
    notice.token.store(token, Ordering::Relaxed);
    // ORDER: as above.
    notice.time_ns.store(time_ns, Ordering::Relaxed);
    let path = path.to_bytes();
    let mut rest = &path[..path.len().min(NOTICE_PATH_BYTES)];
    for word in &notice.path {
        let (now, later) = rest.split_at(rest.len().min(8));
        let mut bytes = [0u8; 8];
        bytes[..now.len()].copy_from_slice(now);
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed); // ORDER: as above.
        rest = later;
    }
    // ORDER: Release; pairs with the collector's Acquire: a reader that sees it whole sees its fields.
    notice.state.store(NOTICE_WHOLE, Ordering::Release);
    // The collector looks every few milliseconds; a child that ends at once is still a zombie then, or in the notice.
}

fn room(notifier: &'static NotifierPage) -> Option<&'static Notice> {
    // ORDER: Relaxed; spreads the processes over the notices.
    let first = notifier.next.fetch_add(1, Ordering::Relaxed) as usize;
    (0..NOTICES)
        .filter_map(|step| notifier.notices.get((first + step) % NOTICES))
        .find(|notice| {
            // ORDER: Acquire; pairs with the collector's Release, which has read the fields. A lost race needs no order.
            let claim = notice.state.compare_exchange(
                NOTICE_FREE,
                NOTICE_WRITTEN,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            claim.is_ok()
        })
}
