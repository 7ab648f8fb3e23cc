//! What a search for an interpreter asks of the program.
//!
//! Not here: the loader's structures (`base::loader`), how a thread's variables are found (the recorder).

use core::ffi::{CStr, c_void};

use skinflint_base::loader::Extent;

/// What is exported by the objects that a program was started with.
pub trait Program {
    /// Returns a function or a variable; null if there is none.
    fn look(&self, name: &CStr) -> *mut c_void;
    /// Returns where a function or a variable lies.
    fn extent(&self, name: &CStr) -> Option<Extent>;
    /// Returns a thread-local variable's distance from a thread's pointer.
    fn thread_distance(&self, name: &CStr) -> Option<u64>;
}
