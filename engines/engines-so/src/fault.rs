//! How a call fails: a code, and words for the calling thread.
//!
//! ```text
//!   Err(Failure) ─┐
//!   a panic ──────┴─► guarded ─► words (thread-local) and the code, or null
//! ```
//!
//! F1  Words stay until the thread's next failure; a call that succeeds leaves them.
//! F2  A thread that is ending has no words any more: then there is the code alone.
//!
//! Not here: which arguments are wrong (`input`), which numbers (`table`).

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The codes of failures, as the header has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Code {
    /// An argument that none may have.
    Argument = -1,
    /// No such object (any more).
    Handle = -2,
    /// An object of another thread.
    Thread = -3,
    /// No memory.
    Memory = -4,
    /// The call would wait for itself.
    Busy = -5,
    /// A mistake of the library's.
    Fault = -6,
    /// The caller's function made nothing.
    NotMade = -7,
}

/// A call that failed.
#[derive(Debug)]
pub struct Failure {
    pub code: Code,
    pub what: Cow<'static, str>,
}

impl Failure {
    pub fn new(code: Code, what: impl Into<Cow<'static, str>>) -> Failure {
        let what = what.into();
        Failure { code, what }
    }

    pub fn argument(what: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(Code::Argument, what)
    }

    pub fn memory() -> Failure {
        Failure::new(Code::Memory, "the allocator has no memory")
    }

    /// The failure of a call on a thread whose tables are gone already.
    pub fn ending() -> Failure {
        Failure::new(Code::Thread, "this thread is ending: its objects are gone")
    }
}

/// What a call returns to C.
pub trait Answer {
    /// The result of a failure.
    fn failed(code: Code) -> Self;
}

impl Answer for c_int {
    fn failed(code: Code) -> c_int {
        code as c_int
    }
}

impl<T> Answer for *mut T {
    fn failed(_: Code) -> *mut T {
        std::ptr::null_mut()
    }
}

thread_local! {
    static WORDS: RefCell<CString> = RefCell::default();
}

/// Runs a call: its result, or the failure's code (engines_so.A2, engines_so.A3).
pub fn guarded<T: Answer>(work: impl FnOnce() -> Result<T, Failure>) -> T {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(answer)) => return answer,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let said = match payload.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => (*payload.downcast_ref().unwrap_or(&"a panic")).to_owned(),
            };
            // Dropping a payload of an unknown type may panic again.
            std::mem::forget(payload);
            Failure::new(Code::Fault, format!("a mistake in the library: {said}"))
        }
    };
    let text = CString::new(failure.what.replace('\0', " ")).unwrap_or_default();
    // F2; the old words are dropped after the borrow.
    drop(WORDS.try_with(|words| words.replace(text)));
    T::failed(failure.code)
}

/// Returns the words of the thread's last failure; empty if there was none.
pub fn text() -> *const c_char {
    WORDS
        .try_with(|words| words.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}
