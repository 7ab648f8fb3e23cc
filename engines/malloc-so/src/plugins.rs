//! Modules that a program opens past us: `dlopen` with `RTLD_DEEPBIND`.
//!
//! ```text
//!   dlopen(path, DEEPBIND) ─► real ─► in every new module:  GOT[malloc] = the program's   (where it was glibc's)
//!   what its constructors got before ─► our free ─► not ours ─► glibc's       (alloc::neighbour)
//! ```
//!
//! P1  Such a module is bound to the C library's allocator, before us. It would free our blocks there (`strdup`, a
//!     callback's result), and we would free its blocks. All of PHP's extensions are opened so.
//! P2  The flags go on as they came, and the caller of `dlopen` stays its caller where the loader looks at the caller
//!     (a name without a path): then the tables are changed at the next `dlsym` or `dlopen`.
//! P3  Modules that were there at the start are not touched, nor is any module while the program itself defines
//!     `malloc`: then no module came to us in the first place.
//! P4  The tables get what the program's modules call: a recorder in front of us, otherwise us.
//!
//! Not here: the tables themselves (`base::loader`).

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use skinflint_alloc as alloc;
use skinflint_base::loader::{self, Beginnings, Module, Startup};

/// The names whose entries are changed.
const NAMES: [&CStr; 16] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"reallocarray",
    c"free",
    c"free_sized",
    c"free_aligned_sized",
    c"cfree",
    c"memalign",
    c"aligned_alloc",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
    c"malloc_usable_size",
    c"dlopen",
    c"dlsym",
];
static BEGINNINGS: Beginnings = Beginnings::of(&NAMES);

struct Objects(UnsafeCell<Option<Startup>>);
// SAFETY: written once, by the first call of `prepare`, while the program has one thread.
unsafe impl Sync for Objects {}
static OBJECTS: Objects = Objects(UnsafeCell::new(None));

/// The real functions that the two go on to; null until `prepare`.
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The result of `realloc_in_front`, or null.
static FRONT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a module was, or is being, opened past us.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// Number of modules that the loader had added at the last look.
static SEEN_ADDED: AtomicU64 = AtomicU64::new(0);

/// Notes the modules that the program was started with: before its first thread, by our constructor or a constructor
/// that opens modules before it.
#[cold]
#[unsafe(link_section = ".text.skinflint_first")]
pub fn prepare() {
    // ORDER: Relaxed throughout; one thread.
    if !DLSYM.load(Ordering::Relaxed).is_null() {
        return;
    }
    let Some(objects) = Startup::take() else {
        return;
    };
    // SAFETY: see `Objects`.
    unsafe { *OBJECTS.0.get() = Some(objects) };
    let front = objects.first(c"realloc", false);
    if front != objects.first(c"realloc", true) {
        FRONT.store(front, Ordering::Relaxed); // ORDER: as above.
    }
    DLOPEN.store(objects.behind(c"dlopen"), Ordering::Relaxed); // ORDER: as above.
    DLSYM.store(objects.behind(c"dlsym"), Ordering::Relaxed); // ORDER: as above.
}

/// Returns the function or variable of this name behind ours: null if there is none, or before `prepare`.
#[unsafe(link_section = ".text.skinflint_first")]
pub fn behind(name: &CStr) -> *mut c_void {
    // SAFETY: written before there were threads.
    match unsafe { *OBJECTS.0.get() } {
        Some(objects) => objects.behind(name),
        None => core::ptr::null_mut(),
    }
}

/// The C type of `realloc`.
type Realloc = unsafe extern "C" fn(*mut u8, usize) -> *mut u8;

/// Returns `realloc` of a program that exports an allocator of its own, and so stands in front of us: then it owns the
/// blocks.
pub fn realloc_in_front() -> Option<Realloc> {
    let front = FRONT.load(Ordering::Relaxed); // ORDER: Relaxed; code does not change.
    // SAFETY: null, or found under its name, which has this type.
    unsafe { core::mem::transmute::<*mut c_void, Option<Realloc>>(front) }
}

/// Looks for modules that came since the last look, and changes their tables.
#[cold]
fn look() {
    // SAFETY: written before there were threads.
    let Some(objects) = (unsafe { *OBJECTS.0.get() }) else {
        return;
    };
    let added = loader::each_module(&mut |_, _| false);
    // ORDER: Relaxed; a number that is compared: a second thread finds the first at work, or done.
    if added == SEEN_ADDED.load(Ordering::Relaxed) {
        return;
    }
    let malloc = objects.first(c"malloc", true);
    if objects.first(c"malloc", false) == malloc {
        be_neighbours(&objects);
        // The loader's lock is held while a module is visited: no two threads change tables at a time.
        loader::each_module(&mut |module, _| {
            if !objects.has(module.dynamic) {
                bring_back(&objects, module);
            }
            true
        });
    }
    SEEN_ADDED.store(added, Ordering::Relaxed); // ORDER: as above.
}

/// Notes that blocks of the C library's may come to us from now on.
fn be_neighbours(objects: &Startup) {
    let free = objects.behind(c"free");
    let usable = objects.behind(c"malloc_usable_size");
    if !free.is_null() && !usable.is_null() {
        // SAFETY: found under their names, which have these types.
        unsafe {
            alloc::neighbour::is(
                core::mem::transmute::<*mut c_void, alloc::neighbour::Free>(free),
                core::mem::transmute::<*mut c_void, alloc::neighbour::Usable>(usable),
            );
        }
    }
}

fn bring_back(objects: &Startup, module: &Module) {
    // SAFETY: the module stays loaded while it is visited.
    unsafe {
        module.entries(&BEGINNINGS, |entry| {
            let Some(name) = NAMES.iter().find(|name| **name == entry.name) else {
                return;
            };
            let theirs = objects.behind(name) as u64;
            let ours = objects.first(name, true) as u64;
            if ours == 0 {
                return;
            }
            // An entry that is not bound yet leads back into its own module; a module that has a function of the name
            // itself may be bound to that.
            let lazy = entry.lazy && module.function(name).is_null();
            module.change(entry, ours, |now| {
                theirs != 0 && now == theirs || lazy && module.holds(now)
            });
        });
    }
}

unsafe extern "C" fn before_dlsym() -> *mut c_void {
    prepare();
    // ORDER: Relaxed; set by this thread, or long ago.
    if WATCHED.load(Ordering::Relaxed) {
        look();
    }
    DLSYM.load(Ordering::Relaxed) // ORDER: Relaxed; code does not change.
}

/// `dlsym`: its caller stays its caller (P2). Cost: two loads.
///
/// # Safety
/// As its manual page says.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.skinflint_first")]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(_handle: *mut c_void, _name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x9, {real}",
        "ldr x9, [x9, :lo12:{real}]",
        "adrp x10, {watched}",
        "ldrb w10, [x10, :lo12:{watched}]",
        "cbnz w10, 2f",
        "cbz x9, 2f",
        "br x9",
        "2:",
        skinflint_base::jump_to_what_before_returns!(""),
        real = sym DLSYM,
        watched = sym WATCHED,
        before = sym before_dlsym,
    );
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "mov rax, qword ptr [rip + {real}]",
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
        real = sym DLSYM,
        watched = sym WATCHED,
        before = sym before_dlsym,
    )
}

unsafe extern "C" fn before_dlopen(file: *const c_char, mode: c_int) -> *mut c_void {
    prepare();
    // ORDER: Relaxed; set by this thread, or long ago.
    if WATCHED.load(Ordering::Relaxed) {
        look();
    }
    if mode & libc::RTLD_DEEPBIND != 0 && !file.is_null() {
        WATCHED.store(true, Ordering::Relaxed); // ORDER: Relaxed; never taken back.
        // SAFETY: the program's own argument, a C string.
        let file = unsafe { CStr::from_ptr(file) }.to_bytes();
        // A path means the same for every caller.
        if file.contains(&b'/') && !file.contains(&b'$') {
            return open_path as *mut c_void;
        }
    }
    DLOPEN.load(Ordering::Relaxed) // ORDER: Relaxed; code does not change.
}

unsafe extern "C" fn open_path(file: *const c_char, mode: c_int) -> *mut c_void {
    type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    let real = DLOPEN.load(Ordering::Relaxed); // ORDER: Relaxed; code does not change.
    // SAFETY: found under its name, which has this type; the program's own call.
    let handle = unsafe { core::mem::transmute::<*mut c_void, Dlopen>(real)(file, mode) };
    look();
    handle
}

/// `dlopen`: see the head of the file.
///
/// # Safety
/// As its manual page says.
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
