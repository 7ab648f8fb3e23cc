//! The begin and end of the library: what it does when it is loaded, and when the program ends.
//!
//! ```text
//!   loader ─► first of all constructors ─► fork handlers, fit profile ─► … main … ─► exit ─► figures, if asked for
//! ```
//!
//! B1  The fork handlers are registered with the first block, or here, before any other library's constructor runs
//!     (`-z initfirst`): so the locks are
//!     taken after all other `prepare` handlers, which may still allocate, and are given back before all other `parent`
//!     and `child` handlers.
//! B2  Nothing here allocates: glibc keeps the first handlers in a table of its own.
//! B3  The environment of a set-user-id program is not read.
//!
//! Not here: the engine's own beginning (its first call, which is long before any constructor), the ends
//! of threads.

use core::ffi::{c_char, c_int};

use skinflint_alloc as alloc;
use skinflint_base::env;

use crate::{accounts, endpoint, plugins, profile, rights};

type Handler = unsafe extern "C" fn();

unsafe extern "C" {
    fn pthread_atfork(
        prepare: Option<Handler>,
        parent: Option<Handler>,
        child: Option<Handler>,
    ) -> c_int;
}

/// Begins the library. The loader calls it once.
///
/// # Safety
/// `envp` is the environment, closed by a null pointer.
#[unsafe(link_section = ".text.skinflint_first")]
unsafe extern "C" fn begin(_argc: c_int, _argv: *const *const c_char, envp: *const *const c_char) {
    plugins::prepare();
    rights::begin();
    // The engine's own come first, so in the child it is whole when ours is called.
    alloc::fork::watch();
    // SAFETY: a handler without arguments.
    unsafe { pthread_atfork(None, None, Some(in_child)) };
    // SAFETY: as the caller promises; the loader calls before there are threads.
    unsafe { alloc::options::begin_with(envp, Some(plugins::behind)) };
    // SAFETY: as above; the value is a C string.
    unsafe { accounts::remember(variable(envp, env::STATS.name().as_bytes())) };
    // SAFETY: as above.
    unsafe { profile::remember(variable(envp, env::PROFILE_FILE.name().as_bytes())) };
    // SAFETY: as above.
    unsafe {
        endpoint::remember(
            variable(envp, env::MEMORY.name().as_bytes()),
            variable(envp, b"XDG_RUNTIME_DIR"),
            variable(envp, env::PROFILE.name().as_bytes()),
        );
    }
    endpoint::open();
}

/// Runs in the child of a fork, after the engine's handler.
///
/// # Safety
/// To be called by `pthread_atfork` only.
unsafe extern "C" fn in_child() {
    rights::begin();
    endpoint::open_again();
}

/// Returns the value of an environment variable, or null (B3). It reads the list itself: before libc's own constructor
/// `getenv` finds nothing.
///
/// # Safety
/// As for [`begin`].
unsafe fn variable(envp: *const *const c_char, name: &[u8]) -> *const c_char {
    // SAFETY: no memory is involved.
    if envp.is_null() || unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return core::ptr::null();
    }
    let mut at = envp;
    // SAFETY: the list is closed by null, each entry by a zero byte, which is no byte of a name.
    unsafe {
        while !(*at).is_null() {
            let entry = (*at).cast::<u8>();
            let same = (0..name.len()).all(|i| *entry.add(i) == name[i]);
            if same && *entry.add(name.len()) == b'=' {
                return entry.add(name.len() + 1).cast();
            }
            at = at.add(1);
        }
    }
    core::ptr::null()
}

#[unsafe(link_section = ".text.skinflint_first")]
unsafe extern "C" fn end() {
    endpoint::close();
    accounts::at_exit();
    profile::at_exit();
    alloc::check::say();
    alloc::last_look();
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: unsafe extern "C" fn() = end;
