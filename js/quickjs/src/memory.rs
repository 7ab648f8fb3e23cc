//! A tab's memory: the hooks through which the engine asks for every block.
//!
//! ```text
//!   JS_NewRuntime2 ─► hooks(opaque = the tab's tenant) ─► Tenant::malloc …        end: Tenant::destroy, whole
//! ```
//!
//! M1  The hooks' `opaque` is the tenant's number, no pointer: nothing has to outlive anything.
//! M2  Every block of a runtime comes from its hooks, and nothing outside of the runtime keeps one, so a tenant can be
//!     destroyed with all that the engine made in it, without a word to the engine.
//!
//! Not here: the engine (`engine`).

use core::ffi::c_void;
use core::ptr::null_mut;

use rquickjs_sys::{JS_NewRuntime, JS_NewRuntime2, JSMallocFunctions, JSRuntime, size_t};
use skinflint_alloc::{Holds, Tenant};

/// Where runtimes have their blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malloc {
    /// In the C library's heap, all together.
    System,
    /// In a heap of our allocator's for each tab.
    Tenants,
}

impl Malloc {
    /// Returns the word that the command line has for it.
    pub fn name(self) -> &'static str {
        match self {
            Malloc::System => "system",
            Malloc::Tenants => "skinflint",
        }
    }
}

/// A tab's memory.
pub(crate) struct Memory {
    tenant: Option<Tenant>,
}

fn tenant(opaque: *mut c_void) -> Tenant {
    // M1. A runtime of `Memory::runtime` has no other.
    Tenant::from_raw(opaque.addr() as u64).unwrap_or_else(|| std::process::abort())
}

unsafe extern "C" fn calloc(opaque: *mut c_void, count: size_t, bytes: size_t) -> *mut c_void {
    tenant(opaque).calloc(count as usize, bytes as usize).cast()
}

unsafe extern "C" fn malloc(opaque: *mut c_void, bytes: size_t) -> *mut c_void {
    tenant(opaque).malloc(bytes as usize).cast()
}

unsafe extern "C" fn free(opaque: *mut c_void, block: *mut c_void) {
    if !block.is_null() {
        // SAFETY: M2: a block of this runtime, which gives it back.
        unsafe { tenant(opaque).free(block.cast()) };
    }
}

unsafe extern "C" fn realloc(
    opaque: *mut c_void,
    block: *mut c_void,
    bytes: size_t,
) -> *mut c_void {
    // SAFETY: M2.
    unsafe { tenant(opaque).realloc(block.cast(), bytes as usize).cast() }
}

unsafe extern "C" fn usable(block: *const c_void) -> size_t {
    // SAFETY: M2: a live block, or null.
    unsafe { skinflint_alloc::usable_size(block.cast()) as size_t }
}

static HOOKS: JSMallocFunctions = JSMallocFunctions {
    js_calloc: Some(calloc),
    js_malloc: Some(malloc),
    js_free: Some(free),
    js_realloc: Some(realloc),
    js_malloc_usable_size: Some(usable),
};

impl Memory {
    /// Makes room for a tab. `None`: there is no memory.
    pub(crate) fn new(malloc: Malloc) -> Option<Memory> {
        let tenant = match malloc {
            Malloc::System => None,
            Malloc::Tenants => Some(Tenant::create()?),
        };
        Some(Memory { tenant })
    }

    /// Makes a runtime in it; null if there is no memory.
    pub(crate) fn runtime(&self) -> *mut JSRuntime {
        match self.tenant {
            // SAFETY: C's contract.
            None => unsafe { JS_NewRuntime() },
            Some(tenant) => {
                let opaque = null_mut::<c_void>().with_addr(tenant.to_raw() as usize);
                // SAFETY: C's contract: hooks that live for ever, and what they are called with (M1).
                unsafe { JS_NewRuntime2(&raw const HOOKS, opaque) }
            }
        }
    }

    /// Returns what the tab's heap holds, where it has one.
    pub(crate) fn holds(&self) -> Option<Holds> {
        self.tenant.map(Tenant::holds)
    }

    /// Reports whether it can be ended without taking the runtime apart.
    pub(crate) fn ends_whole(&self) -> bool {
        self.tenant.is_some()
    }

    /// Ends the tab's heap, with everything in it.
    ///
    /// # Safety
    /// Nothing of a runtime of it is used any more.
    pub(crate) unsafe fn end(self) {
        if let Some(tenant) = self.tenant {
            // SAFETY: the caller's promise, and M2.
            unsafe { tenant.destroy() };
        }
    }
}
