//! The functions that we stand in front of, found by `dlsym(RTLD_NEXT)`.
//!
//! L1  Every pointer of the table is callable at any time: before they are resolved they lead to
//!     functions that resolve them first.
//! L2  While they are being resolved, the whole table is empty: requests (`dlsym` itself allocates
//!     when a name is missing) are served from a small static arena, mapping calls by the kernel. Blocks
//!     from the arena are recognised by address and never reach the real allocator. The real one must
//!     not begin before the table is complete: it may call us in turn.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// A function of the table.
pub struct Real(AtomicPtr<c_void>);

impl Real {
    const fn unresolved() -> Real {
        Real(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The pointer, resolving the table first if need be. Null if the program has no such function.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        // ORDER: Relaxed; the pointer is all there is, it points to code.
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

/// Whether the recorder was loaded into a running program, behind what it stands in front of.
static GUEST: AtomicBool = AtomicBool::new(false);

/// The real function of a name: behind us, or, for a guest, the first in the program.
pub fn look_up(name: &CStr) -> *mut c_void {
    // SAFETY: a plain look-up; `dlsym` may call us back for memory (L2).
    // ORDER: Relaxed; set before anything is looked up.
    unsafe {
        if GUEST.load(Ordering::Relaxed) {
            first_definition(name)
        } else {
            libc::dlsym(libc::RTLD_NEXT, name.as_ptr())
        }
    }
}

#[repr(C)]
struct Symbol {
    name: u32,
    kind: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

unsafe extern "C" {
    fn dladdr1(
        at: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// The first module's function of that name. Of a program that is not position independent and takes the address
/// of, say, `malloc`, the look-up gives a stub in the program instead, which goes on through an entry that will
/// lead to us: then the libraries are asked one by one.
///
/// # Safety
/// Whatever the caller holds, it is not the loader's lock in a half-changed state: an ordinary moment.
unsafe fn first_definition(name: &CStr) -> *mut c_void {
    const RTLD_DL_SYMENT: c_int = 1;
    // SAFETY: look-ups; the loader's structures are only read.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let mut info: libc::Dl_info = core::mem::zeroed();
        let mut symbol: *mut c_void = core::ptr::null_mut();
        let known =
            dladdr1(found, &mut info, &mut symbol, RTLD_DL_SYMENT) != 0 && !symbol.is_null();
        if found.is_null() || !known || (*symbol.cast::<Symbol>()).section != 0 {
            return found;
        }
        let mut search = Search {
            name,
            found: core::ptr::null_mut(),
            seen: 0,
        };
        libc::dl_iterate_phdr(Some(in_library), (&raw mut search).cast());
        if search.found.is_null() {
            found
        } else {
            search.found
        }
    }
}

struct Search<'a> {
    name: &'a CStr,
    found: *mut c_void,
    seen: usize,
}

unsafe extern "C" fn in_library(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as `first_definition` calls it; RTLD_NOLOAD loads nothing, and the loader's lock may be taken twice.
    unsafe {
        let search = &mut *data.cast::<Search<'_>>();
        search.seen += 1;
        let path = (*info).dlpi_name;
        // The first is the program, which has the stub.
        if search.seen == 1 || path.is_null() || *path == 0 {
            return 0;
        }
        let handle = libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if handle.is_null() {
            return 0;
        }
        let found = libc::dlsym(handle, search.name.as_ptr());
        // The handle is kept: dlclose is one of the functions that are being looked for, and what is asked is loaded
        // for good, from the start of the program up to its C library.
        // The handle's search goes on to what the library needs: only its own function is meant.
        if !found.is_null() && object_of(found) == CStr::from_ptr(path) {
            search.found = found;
        }
        c_int::from(!search.found.is_null())
    }
}

/// Resolves the table as a guest. glibc's `RTLD_NEXT` would find the C library's functions alone, though another
/// allocator be in front of it.
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
    free_sized: "free_sized";
    free_aligned_sized: "free_aligned_sized";
    mmap: "mmap";
    munmap: "munmap";
    mremap: "mremap";
    brk: "brk";
    sbrk: "sbrk";
    madvise: "madvise";
    pthread_create: "pthread_create";
    fork: "fork";
    dlclose: "dlclose";
    quick_exit: "quick_exit";
    abort: "abort";
}

const UNRESOLVED: usize = 0;
const RESOLVING: usize = 1;
const RESOLVED: usize = 2;
static STATE: AtomicUsize = AtomicUsize::new(UNRESOLVED);

/// Resolves the table, once. The first call comes while the program has one thread (the loader
/// itself allocates), so nobody can be waiting for it.
#[cold]
pub fn resolve() {
    // ORDER: AcqRel/Acquire; one thread resolves, see above. A second call on the same thread
    // (from `dlsym`) sees RESOLVING and is served by the arena.
    if STATE
        .compare_exchange(UNRESOLVED, RESOLVING, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return;
    }
    find_all();
    // A name that is missing leaves an error behind, which the program must not find.
    // SAFETY: clears this thread's error.
    unsafe { libc::dlerror() };
    // ORDER: Release; pairs with the Acquire of `is_resolving`.
    STATE.store(RESOLVED, Ordering::Release);
}

/// Whether requests must be served by the arena.
#[cold]
pub fn is_resolving() -> bool {
    // ORDER: Acquire; pairs with the Release in `resolve`.
    STATE.load(Ordering::Acquire) == RESOLVING
}

/// Whether the table is complete. Cost: one load.
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

/// A zeroed block of the arena, with its size in front; null when it is full.
pub fn arena_alloc(bytes: usize) -> *mut c_void {
    let Some(total) = bytes.checked_add(31).map(|n| n & !15) else {
        return core::ptr::null_mut();
    };
    // ORDER: Relaxed; a counter that hands out disjoint parts.
    let at = ARENA_USED.fetch_add(total, Ordering::Relaxed);
    if at.saturating_add(total) > ARENA_BYTES {
        return core::ptr::null_mut();
    }
    // SAFETY: `at..at+total` is inside the arena and nobody else's (L2).
    unsafe {
        let start = ARENA.0.get().cast::<u8>().add(at);
        start.cast::<usize>().write(bytes);
        start.add(16).cast()
    }
}

/// Whether a block is of the arena. Cost: one subtraction, one compare.
#[inline(always)]
pub fn is_of_arena(block: *mut c_void) -> bool {
    (block as usize).wrapping_sub(ARENA.0.get() as usize) < ARENA_BYTES
}

/// Size of a block of the arena.
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
/// `fork`
pub type Fork = unsafe extern "C" fn() -> c_int;
/// `dlclose`
pub type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `quick_exit`
pub type Exit = unsafe extern "C" fn(c_int) -> !;
/// `abort`
pub type Abort = unsafe extern "C" fn() -> !;
/// `pthread_create`
pub type PthreadCreate =
    unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void, *mut c_void) -> c_int;

/// The path of the object that a function lives in, or an empty string.
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
