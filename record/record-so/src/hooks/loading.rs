//! Modules that come and go (`dlopen`, `dlsym`, `dlclose`), and the tables through which they call each other.
//!
//! ```text
//!   dlopen(file) ─ without RTLD_DEEPBIND ─────────────────────► real, by a jump
//!                ─ with it, a path ─► real, called ─► tables of the new modules lead to us
//!                ─ with it, a name ─► real, by a jump … the next dlsym, dlopen or dlclose does that
//! ```
//!
//! D1  The loader looks at the caller: a name is searched in the caller's run path, `$ORIGIN` is the caller's folder.
//!     So the caller stays the caller (a jump), except for a plain path, which means the same from anywhere.
//! D2  The flags are passed on unchanged.
//!
//! D3  An entry is changed only if it holds the very function that the program's modules have for the name, or has
//!     not been bound yet; a module with an allocator of its own keeps it.
//! D4  Detaching needs no list: every entry that holds a function of ours gets the real one. So modules that come
//!     and go meanwhile do not matter.
//! D5  Modules that are loaded later are found at the next `dlsym`, `dlopen` or `dlclose` of any module; our versions
//!     leave their caller's frame as it is, since the loader looks at the caller.
//! D6  One thread changes entries at a time, under the loader's own lock; each change is one aligned store, so that
//!     other threads call one function or the other.
//! D7  A preloaded recorder does the same for modules that the program opens with `RTLD_DEEPBIND`: they are bound past
//!     us, to the functions that we stand in front of. Only modules that were not loaded at the start are changed; the
//!     flag stays as the program passed it, and calls of their constructors before that are not seen.
//! D8  If jemalloc is loaded with the program, the same is done for jemalloc's own functions (`hooks/extended.rs`), in
//!     every module: we do not export them.
//! D9  If another allocator is preloaded beneath us, a module that is opened past us keeps the C library's: blocks from
//!     there that it has already, or shares with another such module, must go back there, and calls by way of us would
//!     not lead there. Such modules are counted and told: nothing of theirs is recorded.
//!
//! Not here: who attaches, and when (attach.rs).

use core::arch::naked_asm;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use skinflint_base::loader::{self, Beginnings, Module, Startup};

use super::{exports, extended};
use crate::real::call;
use crate::state::{INSIDE, RECORDING, set_busy};
use crate::{modules, process, real, thread};

/// Does what is due before `dlsym`. Returns the function to jump to.
unsafe extern "C" fn before_dlsym() -> *mut c_void {
    look_for_new_modules();
    real::REAL.dlsym.get()
}

/// `dlsym`, after a look for new modules if one is due; its caller stays its caller (D1). Cost: two loads.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, {table}",
        "add x9, x9, :lo12:{table}",
        "ldr x9, [x9, {at}]",
        "adrp x10, {watched}",
        "ldrb w10, [x10, :lo12:{watched}]",
        "cbnz w10, 2f",
        "cbz x9, 2f",
        "br x9",
        "2:",
        skinflint_base::jump_to_what_before_returns!(""),
        table = sym real::REAL,
        at = const core::mem::offset_of!(real::Table, dlsym),
        watched = sym WATCHED,
        before = sym before_dlsym,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov rax, qword ptr [rip + {table} + {at}]",
        "cmp byte ptr [rip + {watched}], 0",
        "jne 2f",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {before}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        table = sym real::REAL,
        at = const core::mem::offset_of!(real::Table, dlsym),
        watched = sym WATCHED,
        before = sym before_dlsym,
    )
}

/// Returns the function that a call of `dlopen` jumps to: the real one, or [`open_path`].
unsafe extern "C" fn before_dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    // ORDER: Relaxed; a hint that this thread, or another thread long ago, has set.
    if WATCHED.load(Ordering::Relaxed) {
        look_for_new_modules();
    }
    if mode & libc::RTLD_DEEPBIND != 0 && !file.is_null() {
        // SAFETY: the program's own argument, a C string.
        let file = unsafe { CStr::from_ptr(file) }.to_bytes();
        if file.contains(&b'/') && !file.contains(&b'$') {
            return open_path as *mut c_void;
        }
        opened_deep();
    }
    real::REAL.dlopen.get()
}

/// Opens a module that is bound past us, and redirects its calls to us (D1).
unsafe extern "C" fn open_path(file: *const c_char, mode: c_int) -> *mut c_void {
    // SAFETY: the program's own call.
    let handle = unsafe { call!(dlopen as Dlopen)(file, mode) };
    opened_deep();
    look_for_new_modules();
    handle
}

/// `dlopen`: see the head of the file.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(_file: *const c_char, _mode: c_int) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        skinflint_base::jump_to_what_before_returns!(""),
        before = sym before_dlopen,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {before}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        before = sym before_dlopen,
    )
}

/// `dlclose`: what was unloaded is reported, and forgotten.
///
/// # Safety
/// As for the function beneath.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    // ORDER: Relaxed; as in `before_dlopen`.
    if WATCHED.load(Ordering::Relaxed) {
        look_for_new_modules();
    }
    // SAFETY: the program's own call; state.H1.
    unsafe {
        let result = call!(dlclose as Dlclose)(handle);
        let state = thread::enter();
        if !state.is_null() {
            set_busy(state, RECORDING);
            modules::after_dlclose(state);
            set_busy(state, INSIDE);
            thread::leave(state);
        }
        result
    }
}

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
        static BEGINNINGS: Beginnings = Beginnings::of(&[$($name),*]);
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
    c"shmat": exports::shmat, true;
    c"shmdt": exports::shmdt, true;
    c"prctl": exports::prctl, true;
    c"syscall": exports::syscall, true;
    c"pthread_create": exports::pthread_create, true;
    c"fork": exports::fork, true;
    c"sigaltstack": exports::sigaltstack, true;
    c"dlclose": dlclose, true;
    c"_exit": exports::_exit, true;
    c"_Exit": exports::_Exit, true;
    c"quick_exit": exports::quick_exit, true;
    c"abort": exports::abort, true;
    c"dlsym": dlsym, true;
    c"dlopen": dlopen, true;
    c"mallocx": exports::mallocx, false;
    c"rallocx": exports::rallocx, false;
    c"xallocx": exports::xallocx, false;
    c"dallocx": exports::dallocx, false;
    c"sdallocx": exports::sdallocx, false;
}

/// Whether recording was begun by `skinflint_attach` and not ended since.
pub static ATTACHED: AtomicBool = AtomicBool::new(false);

/// The number of modules that the loader had added when tables were last gone through.
static SEEN_ADDED: AtomicU64 = AtomicU64::new(0);

/// Whether modules have been opened past us (D7).
static DEEP: AtomicBool = AtomicBool::new(false);

/// Whether `dlsym`, `dlopen` and `dlclose` are to look for new modules first.
pub static WATCHED: AtomicBool = AtomicBool::new(false);

/// Goes through the tables of modules. Returns the number of entries that were changed.
pub fn change_all(whom: Whom, to_ours: bool) -> usize {
    let mut changed = 0;
    let past = Past::of(whom);
    // The loader's lock is held while a module is shown, so no two threads change entries (D6).
    let added = loader::each_module(&mut |module, _| {
        let ours = module.holds(real::is_in_front as *const () as u64);
        if !ours {
            changed += change_tables(module, to_ours, whom, &past);
        }
        true
    });
    past.tell();
    // ORDER: Relaxed; a number that is compared.
    SEEN_ADDED.store(added, Ordering::Relaxed);
    changed
}

/// The modules whose tables are changed.
#[derive(Clone, Copy)]
pub enum Whom {
    /// All modules: we were loaded after them.
    All,
    /// Modules that were not loaded at the program's start, and were bound past us (D7); in all others only the
    /// functions that we do not export (D8).
    Late(Startup),
}

impl Whom {
    /// Returns whether an entry of this name in one of these modules is to be changed.
    fn means(&self, hook: &Hook, is_late: bool) -> bool {
        // If one of jemalloc's functions is missing, none of them can be called from ours.
        let can_be_called = hook.is_exported || extended::are_there();
        can_be_called && (matches!(self, Whom::All) || is_late || !hook.is_exported)
    }

    /// Returns whether an entry of one of these modules may have to be changed: most programs have no jemalloc.
    fn means_any(&self, is_late: bool) -> bool {
        matches!(self, Whom::All) || is_late || extended::are_there()
    }

    /// Returns whether a module was not loaded at the program's start.
    fn is_late(&self, module: &Module) -> bool {
        matches!(self, Whom::Late(startup) if !startup.has(module.dynamic))
    }
}

/// The functions that the C library's allocator has for our hooks, if another allocator is beneath us, and the modules
/// that call them (D9).
struct Past {
    theirs: Option<[u64; ALLOCATING]>,
    modules: Cell<u64>,
}

/// The hooks of [`HOOKS`] that belong to an allocator come first: so many.
const ALLOCATING: usize = 12;

impl Past {
    fn of(whom: Whom) -> Past {
        let mut theirs = None;
        if matches!(whom, Whom::Late(_)) {
            let library = libc::gnu_get_libc_version as *const () as u64;
            loader::each_module(&mut |module, _| {
                if module.holds(library) {
                    // SAFETY: the module stays loaded while it is shown.
                    let own = |hook: &Hook| unsafe { module.function(hook.name) } as u64;
                    theirs = Some(core::array::from_fn(|at| own(&HOOKS[at])));
                }
                theirs.is_none()
            });
        }
        Past {
            theirs: theirs.filter(|theirs| theirs[0] != HOOKS[0].real() as u64),
            modules: Cell::new(0),
        }
    }

    /// Tells the collector how many modules call the C library's allocator past us.
    fn tell(&self) {
        if let (Some(_), Some(header)) = (self.theirs, process::header()) {
            // ORDER: Relaxed; a figure that is read when the process has ended.
            header
                .deep_modules
                .store(self.modules.get(), Ordering::Relaxed);
        }
    }
}

/// Counts once more the modules that call the C library's allocator past us: what was not bound when it was loaded may
/// be by now (D9).
pub fn count_deep() {
    // ORDER: Relaxed; set by this thread, or long ago.
    if DEEP.load(Ordering::Relaxed)
        && let Some(startup) = real::startup()
    {
        change_all(Whom::Late(startup), true);
    }
}

fn change_tables(module: &Module, to_ours: bool, whom: Whom, past: &Past) -> usize {
    let mut changed = 0;
    let mut is_past = false;
    let is_late = whom.is_late(module);
    if !whom.means_any(is_late) {
        return 0;
    }
    // SAFETY: the module stays loaded while it is shown.
    unsafe {
        module.entries(&BEGINNINGS, |entry| {
            let at = HOOKS.iter().position(|hook| hook.name == entry.name);
            let Some(at) = at.filter(|&at| whom.means(&HOOKS[at], is_late)) else {
                return;
            };
            let hook = &HOOKS[at];
            if let Some(theirs) = past.theirs.as_ref().and_then(|theirs| theirs.get(at)) {
                // It is only looked at.
                module.change(entry, 0, |now| {
                    is_past |= now == *theirs;
                    false
                });
                return;
            }
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
    past.modules.set(past.modules.get() + u64::from(is_past));
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
/// now on new modules are looked for (D7).
pub fn opened_deep() {
    DEEP.store(true, Ordering::Relaxed); // ORDER: Relaxed; a flag that is never taken back.
    WATCHED.store(true, Ordering::Relaxed); // ORDER: as above.
}

/// Records jemalloc's own functions from now on, in modules loaded later, too, if jemalloc was loaded with the
/// program (D8).
pub fn stand_in_for_extended() {
    if extended::are_there()
        && let Some(startup) = real::startup()
    {
        opened_deep();
        change_all(Whom::Late(startup), true);
    }
}

/// Changes the tables of modules that were loaded since the last look, if there are any (D5, D7).
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
