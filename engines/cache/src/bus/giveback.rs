//! Giving free memory back to the system, and measuring how much is resident.
//!
//! ```text
//!   Trim::find ─► skinflint_trim, mi_collect, mallctl, MallocExtension_ReleaseFreeMemory, malloc_trim: which is there?
//!   resident() ─► Rss of /proc/self/smaps_rollup
//! ```
//!
//! T1  The function of the running allocator is found by its name: libraries that were preloaded or linked have theirs
//!     in the table of symbols. glibc's is tried last, since it is always there. An allocator of ours that is the
//!     program's `#[global_allocator]` has no such name: it announces itself (`base::hook`), and malloc's is trimmed,
//!     too.
//! T2  `Rss` of `smaps_rollup` is counted page by page when it is read. `statm` is cheaper and, on kernels from
//!     6.2 to 6.16, off by some hundred KiB for each processor.
//!
//! Not here: when this is done (`round`).

use core::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Read;

/// A function of an allocator that was found by its name. Only [`Trim::find`] makes one: [`Trim::run`] calls it.
///
/// ```compile_fail,E0308
/// # use skinflint_cache::bus::Trim;
/// unsafe extern "C" fn any() {}
/// Trim::Tcmalloc(any).run();
/// ```
///
/// ```
/// # use skinflint_cache::bus::Trim;
/// fn own() {}
/// Trim::By(own).run();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Found<F>(F);

/// A way to give free memory back to the system.
#[derive(Clone, Copy, Debug)]
pub enum Trim {
    /// A function of the program.
    By(fn()),
    /// `skinflint_alloc`'s, linked into the program, and `malloc_trim(0)` for what is not Rust's.
    Linked(fn() -> bool),
    /// `int skinflint_trim(void)`.
    Skinflint(Found<unsafe extern "C" fn() -> c_int>),
    /// `void mi_collect(bool)`.
    Mimalloc(Found<unsafe extern "C" fn(bool)>),
    /// jemalloc's `mallctl("arena.4096.purge")`: all arenas.
    Jemalloc(Found<Mallctl>),
    /// tcmalloc's.
    Tcmalloc(Found<unsafe extern "C" fn()>),
    /// glibc's `malloc_trim(0)`.
    Glibc,
}

type Mallctl =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name closed by a zero; nothing is called.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Trim {
    /// Returns the function of the allocator behind `malloc` (T1).
    pub fn find() -> Trim {
        if let Some(allocator) = skinflint_reporters::heap::linked() {
            return Trim::Linked(allocator.trim);
        }
        // SAFETY: each name is a function of this type, by the header of its library.
        unsafe {
            if let Some(f) = symbol(c"skinflint_trim") {
                return Trim::Skinflint(Found(core::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn() -> c_int,
                >(f)));
            }
            if let Some(f) = symbol(c"mi_collect") {
                return Trim::Mimalloc(Found(core::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(bool),
                >(f)));
            }
            if let Some(f) = symbol(c"mallctl") {
                return Trim::Jemalloc(Found(core::mem::transmute::<*mut c_void, Mallctl>(f)));
            }
            if let Some(f) = symbol(c"MallocExtension_ReleaseFreeMemory") {
                return Trim::Tcmalloc(Found(core::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(),
                >(f)));
            }
        }
        Trim::Glibc
    }

    /// Gives back what is free. The cost is the allocator's: ours takes half a microsecond a page.
    pub fn run(self) {
        // SAFETY: functions of the allocators, which `find` found by their names, with the arguments that their headers
        // name.
        unsafe {
            match self {
                Trim::By(function) => function(),
                Trim::Linked(function) => {
                    function();
                    libc::malloc_trim(0);
                }
                Trim::Skinflint(Found(function)) => {
                    function();
                }
                Trim::Mimalloc(Found(function)) => function(true),
                Trim::Jemalloc(Found(function)) => {
                    let none = core::ptr::null_mut();
                    function(c"arena.4096.purge".as_ptr(), none, none.cast(), none, 0);
                }
                Trim::Tcmalloc(Found(function)) => function(),
                Trim::Glibc => {
                    libc::malloc_trim(0);
                }
            }
        }
    }

    /// Returns the name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Trim::By(_) => "the program's own",
            Trim::Linked(_) => "skinflint_alloc's, malloc_trim",
            Trim::Skinflint(_) => "skinflint_trim",
            Trim::Mimalloc(_) => "mi_collect",
            Trim::Jemalloc(_) => "mallctl arena.4096.purge",
            Trim::Tcmalloc(_) => "MallocExtension_ReleaseFreeMemory",
            Trim::Glibc => "malloc_trim",
        }
    }
}

/// Returns the resident bytes of this process (T2). `None`: `/proc` is not there. Cost: a walk over the page tables,
/// some milliseconds for each GiB.
pub fn resident() -> Option<usize> {
    let mut text = [0u8; 2_048];
    let mut file = File::open("/proc/self/smaps_rollup").ok()?;
    let mut length = 0;
    while length < text.len() {
        match file.read(&mut text[length..]).ok()? {
            0 => break,
            read => length += read,
        }
    }
    let text = core::str::from_utf8(&text[..length]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}
