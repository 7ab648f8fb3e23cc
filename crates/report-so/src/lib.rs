//! `libskinflint_report.so`: reporters for programs in C, and in all that can call C.
//!
//! ```text
//!   skinflint_reporter_add(name, function, context) ─► Registry (the process's one)
//!   skinflint_memory_open ─► the socket that `skinflint memory` asks      skinflint_memory_save ─► a file
//! ```
//!
//! C1  Nothing crosses the border but numbers, C strings (copied before the call returns) and pointers that the
//!     caller gave and gets back. A text that is not UTF-8 is shown with replacement characters.
//! C2  A result below 0 is a failure, and `skinflint_report_error` says which, in words, for the calling thread.
//! C3  After `skinflint_reporter_remove` has returned 1 the function is not running and will not run.
//! C4  A function must return: an exception or `longjmp` out of it ends the program.
//!
//! Declared in include/skinflint_report.h; for Python in bindings/python. Not here: what a line means (`report`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_ulong, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use skinflint_report::desk::Desk;
use skinflint_report::named;
use skinflint_report::size::usable_of_malloc;
use skinflint_report::tree::Presence;
use skinflint_report::{Action, Entry, Kind, Registration, Sink, Units, file, global, process};

/// Longest wait for a function that is to be removed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What measures: it gets its context, and where its lines go.
pub type Function = unsafe extern "C" fn(*mut c_void, *mut c_void);
/// What acts: it gets its context, and room for a few words.
pub type Deed = unsafe extern "C" fn(*mut c_void, *mut c_char, usize);

struct Held {
    registrations: HashMap<c_ulong, Registration>,
    next: c_ulong,
    desk: Option<Desk>,
}

fn held() -> MutexGuard<'static, Held> {
    static HELD: OnceLock<Mutex<Held>> = OnceLock::new();
    let mutex = HELD.get_or_init(|| {
        Mutex::new(Held {
            registrations: HashMap::new(),
            next: 1,
            desk: None,
        })
    });
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

fn failed(what: impl std::fmt::Display) -> c_int {
    let text = what.to_string().replace('\0', " ");
    ERROR.set(CString::new(text).unwrap_or_default());
    -1
}

/// The text of a C string; empty for null.
///
/// # Safety
/// A C string or null.
unsafe fn text(of: *const c_char) -> String {
    match of.is_null() {
        true => String::new(),
        // SAFETY: as the caller promises.
        false => unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned(),
    }
}

/// A function with its context, which the caller keeps until it is removed.
struct Foreign<F> {
    function: F,
    context: *mut c_void,
}

// SAFETY: skinflint_report.h demands that function and context may be used on any thread.
unsafe impl<F> Send for Foreign<F> {}
// SAFETY: as above.
unsafe impl<F> Sync for Foreign<F> {}

/// See skinflint_report.h.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_reporter_add(
    name: *const c_char,
    function: Option<Function>,
    context: *mut c_void,
) -> c_ulong {
    let Some(function) = function else {
        failed("no function");
        return 0;
    };
    let foreign = Foreign { function, context };
    let report = move |out: &mut Sink<'_>| {
        let foreign = &foreign;
        // SAFETY: the caller's function, with its context; `out` outlives the call.
        unsafe { (foreign.function)(foreign.context, std::ptr::from_mut(out).cast()) };
    };
    // SAFETY: as the caller promises.
    let registration = global().add(&unsafe { text(name) }, report);
    keep(registration)
}

fn keep(registration: Registration) -> c_ulong {
    let mut held = held();
    let id = held.next;
    held.next += 1;
    held.registrations.insert(id, registration);
    id
}

/// See skinflint_report.h.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_reporter_remove(id: c_ulong) -> c_int {
    let registration = held().registrations.remove(&id);
    match registration.map(|one| one.remove(PATIENCE)) {
        None => failed(format_args!("no reporter or action has the number {id}")),
        Some(true) => 1,
        Some(false) => {
            failed("it is still running after ten seconds: keep its context");
            0
        }
    }
}

/// See skinflint_report.h.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_action_add(
    action: *const c_char,
    name: *const c_char,
    deed: Option<Deed>,
    context: *mut c_void,
) -> c_ulong {
    // SAFETY: as the caller promises.
    let (action, name) = unsafe { (text(action), text(name)) };
    let found = Action::ALL.into_iter().find(|one| one.name() == action);
    let (Some(action), Some(function)) = (found, deed) else {
        failed("an action is minimize, gc or cc, with a function");
        return 0;
    };
    let foreign = Foreign { function, context };
    let work = move || {
        let foreign = &foreign;
        let mut room = [0 as c_char; 256];
        // SAFETY: the caller's function, with its context and so much room, whose last byte stays zero.
        unsafe {
            (foreign.function)(foreign.context, room.as_mut_ptr(), room.len() - 1);
            text(room.as_ptr())
        }
    };
    keep(global().on(action, &name, work))
}

/// See skinflint_report.h.
///
/// # Safety
/// As the header says: `out` is what the function was given, and it has not returned yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_line(
    out: *mut c_void,
    process: *const c_char,
    path: *const c_char,
    kind: c_int,
    units: c_int,
    amount: c_longlong,
    description: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    let sink = unsafe { &mut *out.cast::<Sink<'_>>() };
    // SAFETY: as above.
    let (process, path, description) = unsafe { (text(process), text(path), text(description)) };
    let kind = u64::try_from(kind).ok().and_then(Kind::from_number);
    let units = u64::try_from(units).ok().and_then(Units::from_number);
    let (Some(kind), Some(units)) = (kind, units) else {
        sink.fail("a kind or units that are none");
        return failed("a kind is 0 to 2, units are 0 to 3 (skinflint_report.h)");
    };
    let (process, path, description) = (&*process, &*path, &*description);
    let entry = Entry {
        process,
        path,
        kind,
        units,
        amount,
        description,
    };
    match sink.add(&entry) {
        true => 1,
        false => failed("the reporter has been left out: it took too long, or a line was unsound"),
    }
}

/// See skinflint_report.h.
///
/// # Safety
/// As of [`skinflint_report_line`]; `block` is null or a live block of malloc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_block(_out: *mut c_void, block: *const c_void) -> usize {
    // SAFETY: as the caller promises.
    unsafe { usable_of_malloc(block.cast()) }
}

/// See skinflint_report.h.
///
/// # Safety
/// As of [`skinflint_report_line`]; nothing is read at `inside`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_inside(
    _out: *mut c_void,
    inside: *const c_void,
    bytes: usize,
) {
    if !inside.is_null() {
        named::block(inside.cast(), bytes);
    }
}

/// See skinflint_report.h.
///
/// # Safety
/// As of [`skinflint_report_line`]; nothing is read at `start`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_range(
    _out: *mut c_void,
    start: *const c_void,
    bytes: usize,
) {
    if !start.is_null() {
        named::range(start.cast(), bytes);
    }
}

/// See skinflint_report.h.
///
/// # Safety
/// As of [`skinflint_report_line`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_wants_blocks(out: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    c_int::from(unsafe { (*out.cast::<Sink<'_>>()).wants_blocks() })
}

/// See skinflint_report.h.
///
/// # Safety
/// As of [`skinflint_report_line`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_fail(out: *mut c_void, what: *const c_char) {
    // SAFETY: as the caller promises.
    unsafe { (*out.cast::<Sink<'_>>()).fail(&text(what)) };
}

/// See skinflint_report.h.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_memory_open(folder: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let folder = unsafe { text(folder) };
    let opened = match folder.as_str() {
        "" => Desk::open(global()),
        folder => Desk::open_in(Path::new(folder), global()),
    };
    match opened {
        Ok(desk) => {
            held().desk = Some(desk);
            1
        }
        Err(error) => failed(error),
    }
}

/// See skinflint_report.h.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_memory_close() {
    let desk = held().desk.take();
    drop(desk);
}

/// See skinflint_report.h.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_memory_save(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let path = unsafe { text(path) };
    let measured = global().measure();
    let title = match process::title(0) {
        Ok(title) => title,
        Err(error) => return failed(error),
    };
    let lines: Vec<_> = measured
        .lines()
        .map(|line| (line, Presence::Both))
        .collect();
    if let Err(error) = file::save(Path::new(&path), &title, lines.into_iter()) {
        return failed(format_args!("{path}: {error}"));
    }
    let faults: Vec<String> = measured.faults().iter().map(ToString::to_string).collect();
    match faults.len() {
        0 => 0,
        left_out => {
            failed(faults.join("; "));
            c_int::try_from(left_out).unwrap_or(c_int::MAX)
        }
    }
}

/// See skinflint_report.h.
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_error() -> *const c_char {
    ERROR.with_borrow(|text| text.as_ptr())
}
