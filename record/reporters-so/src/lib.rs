//! `libskinflint_report.so`: reporters for programs in C, and in all languages that can call C.
//!
//! ```text
//!   skinflint_reporter_add(name, function, context) ─► Registry (the process's one)
//!   skinflint_memory_open ─► the socket that `skinflint memory` asks      skinflint_memory_save ─► a file
//! ```
//!
//! C1  Only numbers, C strings (copied before the call returns) and pointers that the caller passed and gets back
//!     cross the border. A text that is not UTF-8 is shown with replacement characters.
//! C2  A result below 0 is a failure, and `skinflint_report_error` describes it, in words, for the calling thread.
//! C3  After `skinflint_reporter_remove` has returned 1, the function is not running and will not run.
//! C4  A function must return: an exception or `longjmp` out of it ends the program.
//! C5  What a reporter gets as `out` is a number, not an address, and never the same number again: a call that uses it
//!     after the reporter has returned is recognised, and fails.
//! C6  A foreign runtime (Python) can shut itself down: once `skinflint_memory_close` has returned, none of the
//!     program's functions runs, if those that ran have returned within [`PATIENCE`].
//!
//! Declared in include/skinflint_report.h; for Python in bindings/python. Not here: what a line means (`report`).

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_ulong, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use skinflint_reporters::endpoint::Endpoint;
use skinflint_reporters::named;
use skinflint_reporters::size::usable_of_malloc;
use skinflint_reporters::tree::Presence;
use skinflint_reporters::{Action, Entry, Kind, Registration, Sink, Units, file, global, process};

/// The longest wait for a function to end, when it is removed or all is closed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The type of a function that measures: it gets its context, and `out` for its lines (C5).
pub type Function = unsafe extern "C" fn(*mut c_void, *mut c_void);
/// The type of a function that acts: it gets its context, and room for a few words.
pub type Deed = unsafe extern "C" fn(*mut c_void, *mut c_char, usize);

struct Held {
    registrations: HashMap<c_ulong, Registration>,
    next: c_ulong,
    endpoint: Option<Endpoint>,
}

fn held() -> MutexGuard<'static, Held> {
    static HELD: OnceLock<Mutex<Held>> = OnceLock::new();
    let mutex = HELD.get_or_init(|| {
        Mutex::new(Held {
            registrations: HashMap::new(),
            next: 1,
            endpoint: None,
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

/// Returns the text of a C string; empty for null.
///
/// # Safety
/// `of` is a C string or null.
unsafe fn text(of: *const c_char) -> String {
    match of.is_null() {
        true => String::new(),
        // SAFETY: as the caller promises.
        false => unsafe { CStr::from_ptr(of) }.to_string_lossy().into_owned(),
    }
}

/// A running reporter, and the sink of its lines.
struct Run {
    number: usize,
    sink: *mut Sink<'static>,
}

// SAFETY: the sink is used under the lock of `RUNS` alone, and its parts may be used on any thread.
unsafe impl Send for Run {}

/// The last number given, and the reporters that run (C5).
static RUNS: Mutex<(usize, Vec<Run>)> = Mutex::new((0, Vec::new()));

fn runs() -> MutexGuard<'static, (usize, Vec<Run>)> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives `work` a number for the sink for as long as it runs (C5).
fn numbered(sink: &mut Sink<'_>, work: impl FnOnce(*mut c_void)) {
    let number = {
        let mut runs = runs();
        runs.0 += 1;
        let number = runs.0;
        let sink = std::ptr::from_mut(sink).cast();
        runs.1.push(Run { number, sink });
        number
    };
    work(std::ptr::without_provenance_mut(number));
    runs().1.retain(|run| run.number != number);
}

/// Does something with the sink of a reporter that runs; `None`: it has returned (C5). Cost: a lock, which is free
/// unless reporters use several threads.
fn with_sink<T>(out: *mut c_void, work: impl FnOnce(&mut Sink<'_>) -> T) -> Option<T> {
    let runs = runs();
    let run = runs.1.iter().find(|run| run.number == out.addr());
    let Some(run) = run else {
        failed("its reporter has returned (or never was): `out` is good until then");
        return None;
    };
    // SAFETY: `numbered` has not taken it out yet, which needs the lock, so the sink exists; and only this thread has
    // the lock.
    Some(work(unsafe { &mut *run.sink }))
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
        numbered(out, |out| {
            // SAFETY: the caller's function, with its context.
            unsafe { (foreign.function)(foreign.context, out) };
        });
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
            failed("it still runs: keep its context");
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
        // SAFETY: the caller's function, with its context and this much room, whose last byte stays zero.
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
/// As the header says.
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
    let (process, path, description) = unsafe { (text(process), text(path), text(description)) };
    let kind = u64::try_from(kind).ok().and_then(Kind::from_number);
    let units = u64::try_from(units).ok().and_then(Units::from_number);
    let (Some(kind), Some(units)) = (kind, units) else {
        with_sink(out, |sink| sink.fail("a kind or units that are none"));
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
    match with_sink(out, |sink| sink.add(&entry)) {
        Some(true) => 1,
        None => -1,
        Some(false) => {
            failed("the reporter has been left out: it took too long, or a line was unsound")
        }
    }
}

/// See skinflint_report.h.
///
/// # Safety
/// As for [`skinflint_report_line`]; `block` is null or a live block of malloc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_block(_out: *mut c_void, block: *const c_void) -> usize {
    // SAFETY: as the caller promises.
    unsafe { usable_of_malloc(block.cast()) }
}

/// See skinflint_report.h.
///
/// # Safety
/// As for [`skinflint_report_line`]; nothing is read at `inside`.
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
/// As for [`skinflint_report_line`]; nothing is read at `start`.
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
/// As for [`skinflint_report_line`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_wants_blocks(out: *mut c_void) -> c_int {
    c_int::from(with_sink(out, |sink| sink.wants_blocks()).unwrap_or(false))
}

/// See skinflint_report.h.
///
/// # Safety
/// As for [`skinflint_report_line`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_report_fail(out: *mut c_void, what: *const c_char) {
    // SAFETY: as the caller promises.
    let what = unsafe { text(what) };
    let what = if what.is_empty() {
        "it gave no reason"
    } else {
        &what
    };
    with_sink(out, |sink| sink.fail(what));
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
        "" => Endpoint::open(global()),
        folder => Endpoint::open_in(Path::new(folder), global()),
    };
    match opened {
        Ok(endpoint) => {
            // The old endpoint is the parent's, in the child of a fork, or in another folder. Its drop may wait, so it
            // is not under the lock.
            let old = held().endpoint.replace(endpoint);
            drop(old);
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
    let endpoint = held().endpoint.take();
    drop(endpoint);
    // C6: waits for functions that were given up, and for those that another thread asks for.
    global().settle(PATIENCE);
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
