//! Recording a program that is running already: the recorder is loaded into it, and takes the place of the
//! allocator in the tables through which modules call each other.
//!
//! ```text
//!   debugger ─ dlopen ─► us (behind everybody: nothing is interposed)
//!            ─ skinflint_attach ─► link ─► in every module:  GOT[malloc] = ours      (where it was the real one)
//!            ─ skinflint_detach ─► in every module:          GOT[malloc] = real      (where it is ours)
//! ```
//!
//! A1  An entry is changed only if it held the very function that the program's modules have for the name, or had
//!     not been bound yet; a module with an allocator of its own keeps it.
//! A2  Detaching needs no list: every entry that holds a function of ours gets the real one. So modules that came
//!     and went meanwhile are no matter.
//! A3  Modules that are loaded later are found at the next `dlsym`, `dlopen` or `dlclose` of anybody, which leave
//!     their caller's frame as it is: the loader looks at who calls.
//! A4  One thread changes entries at a time; each is one aligned store, so that others call the one or the other.
//! A5  We stay mapped after detaching: a thread may be in a hook still. Another attach is another generation, and
//!     each thread registers anew (thread.rs).
//!
//! Not here: how the debugger does it (the tool's `attach`).

use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use skinflint_base::sys;

use crate::hooks::{self, exports};
use crate::{link, process, real, thread};

/// A function that we stand in for.
struct Hook {
    name: &'static CStr,
    ours: unsafe extern "C" fn(),
    real: AtomicPtr<c_void>,
}

macro_rules! hooks {
    ($($name:literal: $path:path;)*) => {
        const COUNT: usize = [$($name),*].len();
        static HOOKS: [Hook; COUNT] = [$(Hook {
            name: $name,
            // SAFETY: only the address is used; it is called under its own type by whoever calls the name.
            ours: unsafe { core::mem::transmute::<*const (), unsafe extern "C" fn()>($path as *const ()) },
            real: AtomicPtr::new(core::ptr::null_mut()),
        },)*];
    };
}

hooks! {
    c"malloc": exports::malloc;
    c"calloc": exports::calloc;
    c"realloc": exports::realloc;
    c"reallocarray": exports::reallocarray;
    c"free": exports::free;
    c"free_sized": exports::free_sized;
    c"free_aligned_sized": exports::free_aligned_sized;
    c"memalign": exports::memalign;
    c"aligned_alloc": exports::aligned_alloc;
    c"posix_memalign": exports::posix_memalign;
    c"valloc": exports::valloc;
    c"pvalloc": exports::pvalloc;
    c"mmap": exports::mmap;
    c"mmap64": exports::mmap64;
    c"munmap": exports::munmap;
    c"mremap": exports::mremap;
    c"madvise": exports::madvise;
    c"brk": exports::brk;
    c"sbrk": exports::sbrk;
    c"pthread_create": exports::pthread_create;
    c"fork": exports::fork;
    c"dlclose": exports::dlclose;
    c"_exit": exports::_exit;
    c"_Exit": exports::_Exit;
    c"quick_exit": exports::quick_exit;
    c"abort": exports::abort;
    c"dlsym": watched_dlsym;
    c"dlopen": watched_dlopen;
}

/// Recording was begun by [`skinflint_attach`] and not ended since.
static ATTACHED: AtomicBool = AtomicBool::new(false);
/// Modules that the loader had added when tables were last gone through.
static SEEN_ADDED: AtomicU64 = AtomicU64::new(0);
/// Held while tables are changed (A4).
static CHANGING: AtomicBool = AtomicBool::new(false);
/// Where the watched functions go on to.
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// We were preloaded, not loaded later.
const IN_FRONT: c_int = -1;
/// The socket's path is too long, or there was one before.
const BAD_PATH: c_int = -2;
/// The collector does not answer, or there is no memory.
const NO_COLLECTOR: c_int = -3;
/// Attached too often.
const TOO_OFTEN: c_int = -4;
/// Attached now.
const ALREADY: c_int = -5;
/// Not attached.
const NOT_ATTACHED: c_int = -6;

/// Begins to record a running program; called by a debugger, on a thread that is neither in the allocator nor in
/// the loader, while others run. `socket`: the collector's. Returns how many table entries were changed, or
/// one of the negative numbers above.
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
    // Whether there are other threads is not known: tickets are shared from the first on.
    thread::before_second_thread();
    for hook in &HOOKS {
        let found = real::look_up(hook.name);
        hook.real.store(found, Ordering::Relaxed); // ORDER: Relaxed; read after ATTACHED is set.
        match hook.name.to_bytes() {
            b"dlsym" => DLSYM.store(found, Ordering::Relaxed), // ORDER: as above.
            b"dlopen" => DLOPEN.store(found, Ordering::Relaxed), // ORDER: as above.
            _ => {}
        }
    }
    // SAFETY: clears this thread's error: a missing name leaves one that the program must not find.
    unsafe { libc::dlerror() };
    // ORDER: Release; pairs with the Acquire in `look_for_new_modules`: the hooks are complete.
    ATTACHED.store(true, Ordering::Release);
    // Twice: a thread that was binding an entry for the first time may have put the real function over ours.
    let changed = change_all(true);
    (changed + change_all(true)) as c_int
}

/// Ends the recording and puts all entries back. Returns how many, or a negative number.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_detach() -> c_int {
    // ORDER: AcqRel; what was done under it is complete.
    if !ATTACHED.swap(false, Ordering::AcqRel) {
        return NOT_ATTACHED;
    }
    let changed = change_all(false) + change_all(false);
    process::at_exit();
    // ORDER: Relaxed; a flag.
    process::OFF.store(true, Ordering::Relaxed);
    process::new_epoch();
    changed as c_int
}

/// Whether we were preloaded: then we stand before the C library in the loader's list. Who was loaded later stands
/// at its end.
pub fn is_in_front() -> bool {
    let mut order = [
        is_in_front as *const () as u64,
        libc::gnu_get_libc_version as *const () as u64,
        0,
    ];
    // SAFETY: the callback has the type that is wanted; the array outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first_of_two), (&raw mut order).cast()) };
    order[2] == 1
}

unsafe extern "C" fn first_of_two(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as `is_in_front` calls it.
    unsafe {
        let order = &mut *data.cast::<[u64; 3]>();
        let Some(module) = Module::of(&*info) else {
            return 0;
        };
        let found = order[..2].iter().position(|at| module.holds(*at));
        order[2] = found.map_or(0, |index| index as u64 + 1);
        c_int::from(found.is_some())
    }
}

/// A module of the program.
struct Module {
    bias: u64,
    low: u64,
    high: u64,
    dynamic: u64,
    relro: (u64, u64),
}

impl Module {
    fn of(info: &libc::dl_phdr_info) -> Option<Module> {
        let mut module = Module {
            bias: info.dlpi_addr,
            low: u64::MAX,
            high: 0,
            dynamic: 0,
            relro: (0, 0),
        };
        for index in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the loader's table has so many entries.
            let header = unsafe { &*info.dlpi_phdr.add(index) };
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            match header.p_type {
                libc::PT_LOAD => {
                    module.low = module.low.min(start);
                    module.high = module.high.max(start.wrapping_add(header.p_memsz));
                }
                libc::PT_DYNAMIC => module.dynamic = start,
                libc::PT_GNU_RELRO => {
                    module.relro = (start & !4095, (start + header.p_memsz) & !4095)
                }
                _ => {}
            }
        }
        (module.low < module.high).then_some(module)
    }

    fn holds(&self, at: u64) -> bool {
        self.low <= at && at < self.high
    }

    /// An address of the dynamic section: the loader has made most of them absolute.
    fn absolute(&self, value: u64) -> u64 {
        if self.holds(value) {
            value
        } else {
            self.bias.wrapping_add(value)
        }
    }
}

/// What a walk through the tables shall do, and has done.
struct Walk {
    to_ours: bool,
    changed: usize,
    added: u64,
}

/// Goes through the tables of all modules. Returns how many entries were changed.
fn change_all(to_ours: bool) -> usize {
    // ORDER: Acquire/Release; a lock, held for about a millisecond, and never across a call that could need it.
    while CHANGING.swap(true, Ordering::Acquire) {
        core::hint::spin_loop();
    }
    let mut walk = Walk {
        to_ours,
        changed: 0,
        added: 0,
    };
    // SAFETY: the callback has the type that is wanted; `walk` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(change_module), (&raw mut walk).cast()) };
    // ORDER: Relaxed; a number that is compared.
    SEEN_ADDED.store(walk.added, Ordering::Relaxed);
    CHANGING.store(false, Ordering::Release); // ORDER: as said above.
    walk.changed
}

unsafe extern "C" fn change_module(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as `change_all` calls it; the loader keeps the module while it calls us.
    unsafe {
        let walk = &mut *data.cast::<Walk>();
        walk.added = (*info).dlpi_adds;
        if let Some(module) = Module::of(&*info)
            && module.dynamic != 0
            && !module.holds(is_in_front as *const () as u64)
        {
            change_tables(&module, walk);
        }
    }
    0
}

const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const DYNAMIC_ENTRIES: usize = 512;

const R_X86_64_64: u32 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
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

/// # Safety
/// The module is loaded, and stays so.
unsafe fn change_tables(module: &Module, walk: &mut Walk) {
    let (mut symbols, mut names) = (0, 0);
    let mut tables = [(0u64, 0u64); 2];
    // SAFETY: the dynamic section ends with a zero tag; the loader has read it before us.
    unsafe {
        let mut at = module.dynamic as *const [u64; 2];
        for _ in 0..DYNAMIC_ENTRIES {
            let [tag, value] = at.read();
            match tag {
                0 => break,
                DT_STRTAB => names = module.absolute(value),
                DT_SYMTAB => symbols = module.absolute(value),
                DT_RELA => tables[0].0 = module.absolute(value),
                DT_RELASZ => tables[0].1 = value,
                DT_JMPREL => tables[1].0 = module.absolute(value),
                DT_PLTRELSZ => tables[1].1 = value,
                _ => {}
            }
            at = at.add(1);
        }
        if symbols == 0 || names == 0 {
            return;
        }
        for (start, bytes) in tables {
            if start == 0 {
                continue;
            }
            let count = bytes as usize / size_of::<Relocation>();
            for index in 0..count {
                let relocation = &*(start as *const Relocation).add(index);
                let (kind, symbol) = (relocation.info as u32, relocation.info >> 32);
                let is_function =
                    matches!(kind, R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT);
                if !is_function || symbol == 0 || relocation.addend != 0 {
                    continue;
                }
                let symbol = &*(symbols as *const Symbol).add(symbol as usize);
                let name = CStr::from_ptr((names + u64::from(symbol.name)) as *const c_char);
                if let Some(hook) = HOOKS.iter().find(|hook| hook.name == name) {
                    let entry = module.bias.wrapping_add(relocation.offset);
                    let lazy = kind == R_X86_64_JUMP_SLOT && symbol.section == 0;
                    change_entry(module, entry, hook, lazy, walk);
                }
            }
        }
    }
}

/// # Safety
/// `entry` is a word of the module that a relocation of a function's address names.
unsafe fn change_entry(module: &Module, entry: u64, hook: &Hook, lazy: bool, walk: &mut Walk) {
    let ours = hook.ours as usize as u64;
    // ORDER: Relaxed; as in `skinflint_attach`, which stores it.
    let real = hook.real.load(Ordering::Relaxed) as u64;
    if real == 0 || entry & 7 != 0 || !module.holds(entry) {
        return;
    }
    // SAFETY: as the caller promises; the loader itself writes it as a word.
    let slot = unsafe { &*(entry as *const AtomicU64) };
    // ORDER: Relaxed for the entries; code does not change, and each of the two functions may be called (A4).
    let now = slot.load(Ordering::Relaxed);
    let (wanted, value) = if walk.to_ours {
        // An entry that is not bound yet leads back into its own module.
        (now == real || lazy && module.holds(now), ours)
    } else {
        (now == ours, real)
    };
    if !wanted {
        return;
    }
    let page = entry & !4095;
    let sealed = module.relro.0 <= page && page < module.relro.1;
    if sealed && !protect(page, libc::PROT_READ | libc::PROT_WRITE) {
        return;
    }
    slot.store(value, Ordering::Relaxed); // ORDER: as above.
    if sealed {
        protect(page, libc::PROT_READ);
    }
    walk.changed += 1;
}

fn protect(page: u64, rights: c_int) -> bool {
    // SAFETY: a page of a module's data that the loader has sealed, and that is sealed again.
    let result = unsafe { sys::syscall(libc::SYS_mprotect, [page, 4096, rights as u64, 0, 0, 0]) };
    !sys::is_error(result)
}

/// Whether modules were loaded since the last look: then their tables are changed too (A3).
extern "C" fn look_for_new_modules() {
    // ORDER: Acquire; pairs with the Release in `skinflint_attach`.
    if !ATTACHED.load(Ordering::Acquire) {
        return;
    }
    let mut added = 0u64;
    // SAFETY: the callback has the type that is wanted; `added` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read_added), (&raw mut added).cast()) };
    // ORDER: Relaxed; a number that is compared. Who comes second finds the first at work, or done.
    if added != SEEN_ADDED.load(Ordering::Relaxed) {
        change_all(true);
    }
}

unsafe extern "C" fn read_added(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as `look_for_new_modules` calls it.
    unsafe { data.cast::<u64>().write((*info).dlpi_adds) };
    1
}

/// `dlsym`, after a look for new modules; its caller stays its caller (A3).
#[unsafe(naked)]
unsafe extern "C" fn watched_dlsym() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {look}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp qword ptr [rip + {real}]",
        look = sym look_for_new_modules,
        real = sym DLSYM,
    )
}

/// `dlopen`, after a look for modules that came before it.
#[unsafe(naked)]
unsafe extern "C" fn watched_dlopen() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {look}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp qword ptr [rip + {real}]",
        look = sym look_for_new_modules,
        real = sym DLOPEN,
    )
}

/// Attaches so far; thread.rs keeps states of different ones apart.
pub static GENERATION: AtomicUsize = AtomicUsize::new(0);
