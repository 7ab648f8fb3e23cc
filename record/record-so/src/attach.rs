//! Recording of a program that is running already: the recorder is loaded into it, and takes the place of the
//! allocator in the tables through which modules call each other.
//!
//! ```text
//!   debugger ─ dlopen ─► us (behind all modules: nothing is interposed)
//!            ─ skinflint_attach ─► link ─► in every module:  GOT[malloc] = ours      (where it was the real one)
//!            ─ skinflint_detach ─► in every module:          GOT[malloc] = real      (where it is ours)
//! ```
//!
//! A1  An entry is changed only if it holds the very function that the program's modules have for the name, or has
//!     not been bound yet; a module with an allocator of its own keeps it.
//! A2  Detaching needs no list: every entry that holds a function of ours gets the real one. So modules that come
//!     and go meanwhile do not matter.
//! A3  Modules that are loaded later are found at the next `dlsym`, `dlopen` or `dlclose` of any module; our versions
//!     leave their caller's frame as it is, since the loader looks at the caller.
//! A4  One thread changes entries at a time, under the loader's own lock; each change is one aligned store, so that
//!     other threads call one function or the other.
//! A5  We stay mapped after detaching: a thread may be in a hook still. Another attach is another generation, and
//!     each thread registers anew (thread.rs).
//! A6  A preloaded recorder does the same for modules that the program opens with `RTLD_DEEPBIND`: they are bound past
//!     us, to the functions that we stand in front of. Only modules that were not loaded at the start are changed; the
//!     flag stays as the program passed it, and calls of their constructors before that are not seen.
//!
//! A7  If jemalloc is loaded with the program, the same is done for jemalloc's own functions (`hooks/extended.rs`), in
//!     every module: we do not export them.
//!
//! Not here: the debugger's part (the tool's `attach`).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use skinflint_base::loader::{self, Module, Startup};

use crate::hooks::{self, exports, extended};
use crate::{link, process, real, thread};

/// A function that a hook of ours replaces.
struct Hook {
    name: &'static CStr,
    /// Whether we export the name, so that modules loaded with us find it by themselves.
    is_exported: bool,
    ours: unsafe extern "C" fn(),
    real: AtomicPtr<c_void>,
}

impl Hook {
    /// Returns the real function, looked up at its first use.
    fn real(&self) -> *mut c_void {
        // ORDER: Relaxed; two threads that look it up find the same.
        let mut real = self.real.load(Ordering::Relaxed);
        if real.is_null() {
            real = real::look_up(self.name);
            self.real.store(real, Ordering::Relaxed); // ORDER: as above.
        }
        real
    }
}

macro_rules! hooks {
    ($($name:literal: $path:path, $is_exported:literal;)*) => {
        const COUNT: usize = [$($name),*].len();
        static HOOKS: [Hook; COUNT] = [$(Hook {
            name: $name,
            is_exported: $is_exported,
            // SAFETY: only the address is used; the callers of the name call it with its own type.
            ours: unsafe { core::mem::transmute::<*const (), unsafe extern "C" fn()>($path as *const ()) },
            real: AtomicPtr::new(core::ptr::null_mut()),
        },)*];
    };
}

hooks! {
    c"malloc": exports::malloc, true;
    c"calloc": exports::calloc, true;
    c"realloc": exports::realloc, true;
    c"reallocarray": exports::reallocarray, true;
    c"free": exports::free, true;
    c"free_sized": exports::free_sized, true;
    c"free_aligned_sized": exports::free_aligned_sized, true;
    c"memalign": exports::memalign, true;
    c"aligned_alloc": exports::aligned_alloc, true;
    c"posix_memalign": exports::posix_memalign, true;
    c"valloc": exports::valloc, true;
    c"pvalloc": exports::pvalloc, true;
    c"mmap": exports::mmap, true;
    c"mmap64": exports::mmap64, true;
    c"munmap": exports::munmap, true;
    c"mremap": exports::mremap, true;
    c"madvise": exports::madvise, true;
    c"brk": exports::brk, true;
    c"sbrk": exports::sbrk, true;
    c"syscall": exports::syscall, true;
    c"pthread_create": exports::pthread_create, true;
    c"fork": exports::fork, true;
    c"sigaltstack": exports::sigaltstack, true;
    c"dlclose": exports::dlclose, true;
    c"_exit": exports::_exit, true;
    c"_Exit": exports::_Exit, true;
    c"quick_exit": exports::quick_exit, true;
    c"abort": exports::abort, true;
    c"dlsym": exports::dlsym, true;
    c"dlopen": exports::dlopen, true;
    c"mallocx": exports::mallocx, false;
    c"rallocx": exports::rallocx, false;
    c"xallocx": exports::xallocx, false;
    c"dallocx": exports::dallocx, false;
    c"sdallocx": exports::sdallocx, false;
}

/// Whether recording was begun by [`skinflint_attach`] and not ended since.
static ATTACHED: AtomicBool = AtomicBool::new(false);
/// The number of modules that the loader had added when tables were last gone through.
static SEEN_ADDED: AtomicU64 = AtomicU64::new(0);
/// Whether modules have been opened past us (A6).
static DEEP: AtomicBool = AtomicBool::new(false);
/// Whether `dlsym`, `dlopen` and `dlclose` are to look for new modules first.
pub static WATCHED: AtomicBool = AtomicBool::new(false);

/// Error: we were preloaded, not loaded later.
const IN_FRONT: c_int = -1;
/// Error: the socket's path is too long, or empty.
const BAD_PATH: c_int = -2;
/// Error: the collector does not answer, or there is no memory.
const NO_COLLECTOR: c_int = -3;
/// Error: attached too often.
const TOO_OFTEN: c_int = -4;
/// Error: attached already.
const ALREADY: c_int = -5;
/// Error: not attached.
const NOT_ATTACHED: c_int = -6;

/// Begins to record a running program; a debugger calls it on a thread that is neither in the allocator nor in the
/// loader, while other threads run. `socket`: the path of the collector's socket. Returns the number of table
/// entries that were changed, or one of the negative numbers above.
///
/// # Safety
/// `socket` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_attach(socket: *const c_char) -> c_int {
    if is_in_front() {
        return IN_FRONT;
    }
    // ORDER: Relaxed for the flags here; the debugger makes one call at a time.
    if ATTACHED.load(Ordering::Relaxed) && !process::OFF.load(Ordering::Relaxed) {
        return ALREADY;
    }
    if !thread::new_generation() {
        return TOO_OFTEN;
    }
    real::resolve_as_guest();
    // SAFETY: as the caller promises.
    if !link::set_address(unsafe { CStr::from_ptr(socket) }.to_bytes()) {
        return BAD_PATH;
    }
    if !process::link_again() {
        return NO_COLLECTOR;
    }
    hooks::process_begins();
    // It is not known whether there are other threads: tickets are shared from the first on.
    thread::before_second_thread();
    // ORDER: Release; pairs with the Acquire in `look_for_new_modules`: the hooks are complete.
    ATTACHED.store(true, Ordering::Release);
    WATCHED.store(true, Ordering::Relaxed); // ORDER: Relaxed; a hint.
    // Twice: a thread that was binding an entry for the first time may have replaced our function with the real one.
    let changed = change_all(Whom::All, true);
    (changed + change_all(Whom::All, true)) as c_int
}

/// Ends the recording and restores all entries. Returns their number, or a negative number.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_detach() -> c_int {
    // ORDER: AcqRel; what was done while attached is complete.
    if !ATTACHED.swap(false, Ordering::AcqRel) {
        return NOT_ATTACHED;
    }
    let changed = change_all(Whom::All, false) + change_all(Whom::All, false);
    process::at_exit();
    // ORDER: Relaxed; a flag.
    process::OFF.store(true, Ordering::Relaxed);
    process::new_epoch();
    changed as c_int
}

/// Returns whether we were preloaded: then we stand before the C library in the loader's list. A library that was
/// loaded later stands at its end.
pub fn is_in_front() -> bool {
    let ours = is_in_front as *const () as u64;
    let library = libc::gnu_get_libc_version as *const () as u64;
    let mut first = false;
    loader::each_module(&mut |module, _| {
        first = module.holds(ours);
        !first && !module.holds(library)
    });
    first
}

/// Goes through the tables of modules. Returns the number of entries that were changed.
fn change_all(whom: Whom, to_ours: bool) -> usize {
    let mut changed = 0;
    // The loader's lock is held while a module is shown, so no two threads change entries (A4).
    let added = loader::each_module(&mut |module, _| {
        let ours = module.holds(is_in_front as *const () as u64);
        if !ours {
            changed += change_tables(module, to_ours, whom);
        }
        true
    });
    // ORDER: Relaxed; a number that is compared.
    SEEN_ADDED.store(added, Ordering::Relaxed);
    changed
}

/// The modules whose tables are changed.
#[derive(Clone, Copy)]
enum Whom {
    /// All modules: we were loaded after them.
    All,
    /// Modules that were not loaded at the program's start, and were bound past us (A6); in all others only the
    /// functions that we do not export (A7).
    Late(Startup),
}

impl Whom {
    /// Returns whether an entry of this name in one of these modules is to be changed.
    fn means(&self, hook: &Hook, is_late: bool) -> bool {
        // If one of jemalloc's functions is missing, none of them can be called from ours.
        let can_be_called = hook.is_exported || extended::are_there();
        can_be_called && (matches!(self, Whom::All) || is_late || !hook.is_exported)
    }

    /// Returns whether a module was not loaded at the program's start.
    fn is_late(&self, module: &Module) -> bool {
        matches!(self, Whom::Late(startup) if !startup.has(module.dynamic))
    }
}

fn change_tables(module: &Module, to_ours: bool, whom: Whom) -> usize {
    let mut changed = 0;
    let is_late = whom.is_late(module);
    // SAFETY: the module stays loaded while it is shown.
    unsafe {
        module.entries(|entry| {
            let hook = HOOKS.iter().find(|hook| hook.name == entry.name);
            let Some(hook) = hook.filter(|hook| whom.means(hook, is_late)) else {
                return;
            };
            let ours = hook.ours as usize as u64;
            let real = hook.real() as u64;
            if real == 0 {
                return;
            }
            let value = if to_ours { ours } else { real };
            // An entry that is not bound yet leads back into its own module.
            let lazy = entry.lazy && !whom.has_another(entry.name, module);
            changed += usize::from(module.change(entry, value, |now| {
                if to_ours {
                    now == real || lazy && module.holds(now)
                } else {
                    now == ours
                }
            }));
        });
    }
    changed
}

impl Whom {
    /// Returns whether the module defines a function of this name: an entry that is not bound yet may be bound to it.
    fn has_another(&self, name: &CStr, module: &Module) -> bool {
        // SAFETY: the module stays loaded while it is shown.
        matches!(self, Whom::Late(_)) && !unsafe { module.function(name) }.is_null()
    }
}

/// Notes that a module is, or was, opened past us (`RTLD_DEEPBIND`) in a program that we were preloaded into: from
/// now on new modules are looked for (A6).
pub fn opened_deep() {
    DEEP.store(true, Ordering::Relaxed); // ORDER: Relaxed; a flag that is never taken back.
    WATCHED.store(true, Ordering::Relaxed); // ORDER: as above.
}

/// Records jemalloc's own functions from now on, in modules loaded later, too, if jemalloc was loaded with the
/// program (A7).
pub fn stand_in_for_extended() {
    if extended::are_there()
        && let Some(startup) = real::startup()
    {
        opened_deep();
        change_all(Whom::Late(startup), true);
    }
}

/// Changes the tables of modules that were loaded since the last look, if there are any (A3, A6).
pub extern "C" fn look_for_new_modules() {
    // ORDER: Acquire; pairs with the Release in `skinflint_attach`.
    let whom = if ATTACHED.load(Ordering::Acquire) {
        Whom::All
    // ORDER: Relaxed; set by this thread, or long ago.
    } else if DEEP.load(Ordering::Relaxed)
        && let Some(startup) = real::startup()
    {
        Whom::Late(startup)
    } else {
        return;
    };
    let added = loader::each_module(&mut |_, _| false);
    // ORDER: Relaxed; a number that is compared. A second thread finds the first at work, or done.
    if added != SEEN_ADDED.load(Ordering::Relaxed) {
        change_all(whom, true);
    }
}

/// The number of attaches so far; thread.rs keeps the states of different attaches apart.
pub static GENERATION: AtomicUsize = AtomicUsize::new(0);
