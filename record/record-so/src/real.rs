//! The functions that we stand in front of, found in the loader's list of objects.
//!
//! L1  Every pointer of the table is callable at any time: the first call that needs one resolves all of them.
//! L2  While they are being resolved, the whole table is empty: requests (of a resolver inside an object) are
//!     served from a small static arena, mapping calls by the kernel. Blocks from the arena are recognised by address
//!     and never reach the real allocator, which must not begin before the table is complete: it may call us
//!     in turn.
//! L3  Looking a name up neither allocates nor takes a lock (`loader`, record_so.O1). A program that exports an allocator of
//!     its own, as rustc does, calls our `sbrk` while it holds that allocator's lock, and `dlsym` allocates for the
//!     text of its error when a name is missing: from the same allocator, which waits for the same lock for ever.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use skinflint_base::loader::{self, Startup};

/// A function of the table.
pub struct Real(AtomicPtr<c_void>);

impl Real {
    const fn unresolved() -> Real {
        Real(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Returns the pointer if the table is resolved; null otherwise, and if the program has no such function.
    pub fn if_resolved(&self) -> *mut c_void {
        self.0.load(Ordering::Relaxed) // ORDER: Relaxed; as in `get`.
    }

    /// Returns the pointer, and resolves the table first if need be. Null if the program has no such function.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        // ORDER: Relaxed; the pointer leads to code, and publishes nothing else.
        let function = self.0.load(Ordering::Relaxed);
        if function.is_null() {
            self.get_slow()
        } else {
            function
        }
    }

    #[cold]
    fn get_slow(&self) -> *mut c_void {
        resolve();
        // ORDER: Relaxed; as in `get`.
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether the recorder is a guest: loaded into a running program, behind the functions that it replaces.
static GUEST: AtomicBool = AtomicBool::new(false);

/// The objects that the program was started with.
struct Objects(UnsafeCell<Option<Startup>>);
// SAFETY: written once, by `resolve`, before `STATE` is RESOLVED.
unsafe impl Sync for Objects {}
static OBJECTS: Objects = Objects(UnsafeCell::new(None));

/// Returns the objects that the program was started with; `None` for a guest, and before the table is resolved.
pub fn startup() -> Option<Startup> {
    // SAFETY: see `Objects`; ORDER: `is_resolved` is an Acquire.
    is_resolved().then(|| unsafe { *OBJECTS.0.get() }).flatten()
}

/// Returns the function of this name, where `ours` is our own, of a program that exports its own and so stands in front
/// of us; `None`, too, before the program's objects are known, and for a guest.
pub fn in_front_of_us(name: &CStr, ours: *mut c_void) -> Option<*mut c_void> {
    startup()?.in_front_of(name, ours)
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

/// Returns the real function of a name: the one behind us, or, for a guest, the first in the program.
pub fn look_up(name: &CStr) -> *mut c_void {
    // ORDER: Relaxed; set before anything is looked up.
    if GUEST.load(Ordering::Relaxed) {
        return first_definition(name);
    }
    // SAFETY: see `Objects`; this is `resolve`, or later.
    match unsafe { *OBJECTS.0.get() } {
        Some(objects) => objects.behind(name),
        // The loader's list is not where glibc has it.
        None => first_definition(name),
    }
}

/// Returns the first function of this name in another module than ours. In a program that is not position independent
/// and takes the address of, say, `malloc`, `dlsym` would return a stub in the program, which goes on through an entry
/// that will lead to us.
fn first_definition(name: &CStr) -> *mut c_void {
    let mut found = core::ptr::null_mut();
    loader::each_module(&mut |module, _| {
        if !module.holds(first_definition as *const () as u64) {
            // SAFETY: the module stays loaded while it is shown.
            found = unsafe { module.function(name) };
        }
        found.is_null()
    });
    found
}

/// Resolves the table as a guest. glibc's `RTLD_NEXT` would find only the C library's functions, even if another
/// allocator is in front of it.
pub fn resolve_as_guest() {
    GUEST.store(true, Ordering::Relaxed); // ORDER: Relaxed; as in `scope`.
    resolve();
}

fn find(name: &str) -> *mut c_void {
    let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else {
        return core::ptr::null_mut();
    };
    look_up(name)
}

macro_rules! real_functions {
    ($($field:ident: $name:literal;)*) => {
        /// The table.
        pub struct Table {
            $(
                #[doc = $name]
                pub $field: Real,
            )*
        }

        /// The functions beneath.
        pub static REAL: Table = Table { $($field: Real::unresolved(),)* };

        fn find_all() {
            // All are found before any is used (L2).
            $(let $field = find(concat!($name, "\0"));)*
            // ORDER: Relaxed; as in `get`.
            $(REAL.$field.0.store($field, Ordering::Relaxed);)*
        }
    };
}

real_functions! {
    malloc: "malloc";
    calloc: "calloc";
    realloc: "realloc";
    free: "free";
    memalign: "memalign";
    aligned_alloc: "aligned_alloc";
    posix_memalign: "posix_memalign";
    valloc: "valloc";
    pvalloc: "pvalloc";
    malloc_usable_size: "malloc_usable_size";
    mallinfo2: "mallinfo2";
    mallctl: "mallctl";
    mallocx: "mallocx";
    rallocx: "rallocx";
    xallocx: "xallocx";
    sallocx: "sallocx";
    dallocx: "dallocx";
    sdallocx: "sdallocx";
    free_sized: "free_sized";
    free_aligned_sized: "free_aligned_sized";
    mmap: "mmap";
    munmap: "munmap";
    mremap: "mremap";
    brk: "brk";
    sbrk: "sbrk";
    madvise: "madvise";
    shmat: "shmat";
    shmdt: "shmdt";
    prctl: "prctl";
    syscall: "syscall";
    pthread_create: "pthread_create";
    fork: "fork";
    sigaltstack: "sigaltstack";
    dlclose: "dlclose";
    cxa_atexit: "__cxa_atexit";
    quick_exit: "quick_exit";
    abort: "abort";
    dlopen: "dlopen";
    dlsym: "dlsym";
    execve: "execve";
    execv: "execv";
    execvp: "execvp";
    execvpe: "execvpe";
    fexecve: "fexecve";
    execveat: "execveat";
    posix_spawn: "posix_spawn";
    posix_spawnp: "posix_spawnp";
    system: "system";
    popen: "popen";
}

const UNRESOLVED: usize = 0;
const RESOLVING: usize = 1;
const RESOLVED: usize = 2;
static STATE: AtomicUsize = AtomicUsize::new(UNRESOLVED);

/// Resolves the table, once. The first call comes while the program has one thread (the loader itself allocates, and
/// our constructor comes before `main`), so no other thread can be waiting for it.
#[cold]
pub fn resolve() {
    // ORDER: AcqRel/Acquire; one thread resolves, see above. A second call on the same thread
    // sees RESOLVING and is served by the arena.
    if STATE
        .compare_exchange(UNRESOLVED, RESOLVING, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    // ORDER: Relaxed; as in `look_up`.
    let guest = GUEST.load(Ordering::Relaxed);
    // SAFETY: see `Objects`; a guest comes too late to know them.
    unsafe { *OBJECTS.0.get() = if guest { None } else { Startup::take() } };
    find_all();
    // ORDER: Release; pairs with the Acquire of `is_resolving`.
    STATE.store(RESOLVED, Ordering::Release);
}

/// Returns whether requests must be served by the arena.
#[cold]
pub fn is_resolving() -> bool {
    // ORDER: Acquire; pairs with the Release in `resolve`.
    STATE.load(Ordering::Acquire) == RESOLVING
}

/// Returns whether the table is complete. Cost: one load.
pub fn is_resolved() -> bool {
    // ORDER: Acquire; pairs with the Release in `resolve`.
    STATE.load(Ordering::Acquire) == RESOLVED
}

const ARENA_BYTES: usize = 64 * 1024;

#[repr(C, align(16))]
struct Arena(core::cell::UnsafeCell<[u8; ARENA_BYTES]>);
// SAFETY: parts are handed out once each, by an atomic counter (L2).
unsafe impl Sync for Arena {}
static ARENA: Arena = Arena(core::cell::UnsafeCell::new([0; ARENA_BYTES]));
static ARENA_USED: AtomicUsize = AtomicUsize::new(0);

/// Returns a zeroed block of the arena, with its size in front; null if the arena is full.
pub fn arena_alloc(bytes: usize) -> *mut c_void {
    let Some(total) = bytes.checked_add(31).map(|n| n & !15) else {
        return core::ptr::null_mut();
    };
    // ORDER: Relaxed; a counter that hands out disjoint parts.
    let at = ARENA_USED.fetch_add(total, Ordering::Relaxed);
    if at.saturating_add(total) > ARENA_BYTES {
        return core::ptr::null_mut();
    }
    // SAFETY: `at..at+total` is inside the arena and was handed out to no other call (L2).
    unsafe {
        let start = ARENA.0.get().cast::<u8>().add(at);
        start.cast::<usize>().write(bytes);
        start.add(16).cast()
    }
}

/// Returns whether no block was ever taken from the arena; none is once the table is complete.
pub fn arena_is_unused() -> bool {
    // ORDER: Relaxed; as in `arena_alloc`.
    ARENA_USED.load(Ordering::Relaxed) == 0
}

/// Returns whether a block is of the arena. Cost: one subtraction, one comparison.
#[inline(always)]
pub fn is_of_arena(block: *mut c_void) -> bool {
    (block as usize).wrapping_sub(ARENA.0.get() as usize) < ARENA_BYTES
}

/// Returns the size of a block of the arena.
///
/// # Safety
/// `block` must be of the arena.
pub unsafe fn arena_size(block: *mut c_void) -> usize {
    // SAFETY: `arena_alloc` wrote the size 16 bytes in front.
    unsafe { block.cast::<u8>().sub(16).cast::<usize>().read() }
}

/// `malloc` and its kin, as C sees them.
pub type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
/// `calloc`
pub type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// `realloc`
pub type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
/// `free`
pub type Free = unsafe extern "C" fn(*mut c_void);
/// `memalign`, `aligned_alloc`
pub type Memalign = unsafe extern "C" fn(usize, usize) -> *mut c_void;
/// `posix_memalign`
pub type PosixMemalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;
/// `malloc_usable_size`
pub type UsableSize = unsafe extern "C" fn(*mut c_void) -> usize;
/// `mallinfo2`
pub type Mallinfo2 = unsafe extern "C" fn() -> libc::mallinfo2;
/// `mallctl`
pub type Mallctl =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
/// `mallocx`
pub type Mallocx = unsafe extern "C" fn(usize, c_int) -> *mut c_void;
/// `rallocx`
pub type Rallocx = unsafe extern "C" fn(*mut c_void, usize, c_int) -> *mut c_void;
/// `xallocx`
pub type Xallocx = unsafe extern "C" fn(*mut c_void, usize, usize, c_int) -> usize;
/// `sallocx`
pub type Sallocx = unsafe extern "C" fn(*const c_void, c_int) -> usize;
/// `dallocx`
pub type Dallocx = unsafe extern "C" fn(*mut c_void, c_int);
/// `sdallocx`
pub type Sdallocx = unsafe extern "C" fn(*mut c_void, usize, c_int);
/// `mmap`
pub type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
/// `munmap`
pub type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
/// `mremap`
pub type Mremap =
    unsafe extern "C" fn(*mut c_void, usize, usize, c_int, *mut c_void) -> *mut c_void;
/// `brk`
pub type Brk = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `sbrk`
pub type Sbrk = unsafe extern "C" fn(isize) -> *mut c_void;
/// `madvise`
pub type Madvise = unsafe extern "C" fn(*mut c_void, usize, c_int) -> c_int;
/// `shmat`
pub type Shmat = unsafe extern "C" fn(c_int, *const c_void, c_int) -> *mut c_void;
/// `shmdt`
pub type Shmdt = unsafe extern "C" fn(*const c_void) -> c_int;
/// `prctl`, whose arguments are passed in registers
pub type Prctl = unsafe extern "C" fn(c_int, u64, u64, u64, u64) -> c_int;
/// `syscall`, as above
pub type Syscall = unsafe extern "C" fn(i64, u64, u64, u64, u64, u64, u64) -> i64;
/// `fork`
pub type Fork = unsafe extern "C" fn() -> c_int;
/// `sigaltstack`
pub type Sigaltstack = unsafe extern "C" fn(*const libc::stack_t, *mut libc::stack_t) -> c_int;
/// `dlclose`
pub type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `dlopen`
pub type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
/// `execve`, `execvpe`
pub type Execve =
    unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
/// `execv`, `execvp`
pub type Execv = unsafe extern "C" fn(*const c_char, *const *const c_char) -> c_int;
/// `fexecve`
pub type Fexecve = unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) -> c_int;
/// `execveat`
pub type Execveat = unsafe extern "C" fn(
    c_int,
    *const c_char,
    *const *const c_char,
    *const *const c_char,
    c_int,
) -> c_int;
/// `posix_spawn`, `posix_spawnp`
pub type Spawn = unsafe extern "C" fn(
    *mut c_int,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
/// `__cxa_atexit`
pub type CxaAtexit =
    unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int;
/// `quick_exit`
pub type Exit = unsafe extern "C" fn(c_int) -> !;
/// `abort`
pub type Abort = unsafe extern "C" fn() -> !;
/// `pthread_create`
pub type PthreadCreate =
    unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, *mut c_void) -> c_int;

/// Returns whether the function exists, and is of the same object as the `malloc` beneath us.
pub fn is_of_the_allocator(function: *mut c_void) -> bool {
    !function.is_null() && object_of(function) == object_of(REAL.malloc.get())
}

/// Returns the path of the object that a function lies in, or an empty string.
pub fn object_of(function: *mut c_void) -> &'static CStr {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: `info` is ours; dladdr only reads the loader's tables.
    let found = unsafe { libc::dladdr(function, &mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return c"";
    }
    // SAFETY: the loader's string lives as long as the object; allocators are not unloaded.
    unsafe { CStr::from_ptr::<'static>(info.dli_fname as *const c_char) }
}

/// Returns whether usable sizes can be read from glibc's chunk headers: its `malloc` is the one beneath us.
pub fn glibc_headers() -> bool {
    object_of(REAL.malloc.get())
        .to_bytes()
        .ends_with(b"/libc.so.6")
}

/// Calls a function of the table: `call!(malloc as Malloc)(n)`.
macro_rules! call {
    ($field:ident as $kind:ident) => {
        // SAFETY: the table's pointer was found under the function's own name, which has this type.
        core::mem::transmute::<*mut core::ffi::c_void, $crate::real::$kind>(
            $crate::real::REAL.$field.get(),
        )
    };
}
pub(crate) use call;
