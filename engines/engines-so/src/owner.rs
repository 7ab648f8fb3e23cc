//! The caller's functions and what they were given with, kept until none of them will be called any more.
//!
//! ```text
//!   Owner { free, done, context } ◄── Owned { address, bytes }, any number          the last one goes: done(context)
//! ```
//!
//! O1  `free` is called once for each address that was taken, when nothing of ours leads to it any more.
//! O2  `done` is called once, after the last `free` has returned; the context may go then.
//! O3  Both may be called on any thread, also on the bus's: the header demands it.
//!
//! Not here: which functions there are beside these (`cache`, `discard`).

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use skinflint_cache::HeapBytes;
use skinflint_cache::measure::arc_bytes;
use skinflint_reporters::size::usable_of_malloc;

use crate::fault::Failure;

/// Ends an address that the library was given.
pub type Free = unsafe extern "C" fn(*mut c_void, *mut c_void);
/// Says that a context is not used any more.
pub type Done = unsafe extern "C" fn(*mut c_void);

/// As many bytes as malloc says that the block has.
pub const MALLOC_BYTES: usize = usize::MAX;

pub struct Owner {
    free: Option<Free>,
    done: OnceLock<Done>,
    context: *mut c_void,
}

impl Owner {
    /// Takes the functions of an object that is about to be made.
    pub fn new(free: Option<Free>, context: *mut c_void) -> Arc<Owner> {
        let done = OnceLock::new();
        Arc::new(Owner {
            free,
            done,
            context,
        })
    }

    pub fn context(&self) -> *mut c_void {
        self.context
    }

    /// Takes the context, too: the object has its number. Until then the caller keeps it, and a failure leaves it alone
    /// (engines_so.A2).
    pub fn made(&self, done: Option<Done>) {
        if let Some(done) = done {
            let _ = self.done.set(done);
        }
    }
}

// SAFETY: O3: the functions and their context may be used on any thread.
unsafe impl Send for Owner {}
// SAFETY: O3.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(done) = self.done.get() {
            // SAFETY: O2: the caller's function, with its context.
            unsafe { done(self.context) };
        }
    }
}

/// An address that the library was given, with its bytes.
pub struct Owned {
    pub address: *mut c_void,
    pub bytes: usize,
    owner: Arc<Owner>,
}

// SAFETY: O3: the address is only passed on to the caller's functions.
unsafe impl Send for Owned {}
// SAFETY: O3.
unsafe impl Sync for Owned {}

impl Owned {
    /// Checks an address and its bytes; the bytes, measured if that is wanted.
    ///
    /// # Safety
    /// With [`MALLOC_BYTES`] it is a block of malloc's.
    pub unsafe fn bytes(address: *mut c_void, bytes: usize, what: &str) -> Result<usize, Failure> {
        if address.is_null() {
            return Err(Failure::argument(format!("{what}: null")));
        }
        let bytes = match bytes {
            // SAFETY: as the caller promises.
            MALLOC_BYTES => unsafe { usable_of_malloc(address.cast()) },
            _ => bytes,
        };
        if bytes == 0 || bytes > isize::MAX as usize {
            return Err(Failure::argument(format!(
                "{what}: {bytes} bytes; what takes no memory cannot be bounded by it"
            )));
        }
        Ok(bytes)
    }

    /// Takes an address whose bytes were checked: from here on it ends with `free` (O1).
    pub fn taken(address: *mut c_void, bytes: usize, owner: &Arc<Owner>) -> Owned {
        Owned {
            address,
            bytes,
            owner: Arc::clone(owner),
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(free) = self.owner.free {
            // SAFETY: O1: the caller's function, with its context.
            unsafe { free(self.owner.context, self.address) };
        }
    }
}

/// A value that several may hold.
#[derive(Clone)]
pub struct Held(pub Arc<Owned>);

impl HeapBytes for Held {
    fn heap_bytes(&self) -> usize {
        arc_bytes(&self.0) + self.0.bytes
    }
}

impl HeapBytes for Owned {
    fn heap_bytes(&self) -> usize {
        self.bytes
    }
}
