//! Small objects of Python as blocks of their own, if they are asked for (`--python-objects`).
//!
//! ```text
//!   before main:  table of arenas ◄── ours     tables of objects (MEM, OBJ) ◄── ours
//!   Python begins, and may write its tables anew (PYTHONMALLOC, -X dev)
//!   first arena:  was ours never called? ─► once more, in front of what is there now
//! ```
//!
//! T1  Tables are written while the program has one thread, before it has made an object; or, once, by the thread that
//!     maps the first arena, which has the interpreter's lock. No other thread reads them then.
//! T2  Ours are put in front of what a table has only if they are not behind it already: at first nothing is, and a second
//!     time only if ours were never called, so that no caller leads to them.
//! T3  The functions that read and write the tables are exported by every version, and may be called before Python begins.
//!     Versions before 3.8 are left alone: their size classes may have other steps.
//!
//! And one word of PHP, whose allocator keeps chunks as Python's keeps arenas: whether it does.
//!
//! Not here: the functions in the tables (hooks/objects.rs), which addresses are of arenas (`skinflint_frames`).

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use skinflint_base::ring::{
    OBJECTS_ARENA, OBJECTS_CLOSED, OBJECTS_MIMALLOC, OBJECTS_RECORDED, OBJECTS_ZEND,
};
use skinflint_frames::{Arenas, Leaf};

use crate::slots::{is_stale, nobody};
use crate::state::ThreadState;
use crate::{filters, process, real, tls};

/// The functions of a domain, as `PyMemAllocatorEx` has them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Table {
    pub ctx: *mut c_void,
    pub malloc: *mut c_void,
    pub calloc: *mut c_void,
    pub realloc: *mut c_void,
    pub free: *mut c_void,
}

/// The functions that map arenas, as `PyObjectArenaAllocator` has them.
#[repr(C)]
#[derive(Clone, Copy)]
struct ArenaTable {
    ctx: *mut c_void,
    alloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

type Exchange<T> = unsafe extern "C" fn(c_int, *mut T);
/// What makes our table, in front of a former one.
pub type InFront = fn(*mut Table) -> Table;

/// How the tables are read and written, and what goes into them.
#[derive(Clone, Copy)]
struct Domains {
    get: Exchange<Table>,
    set: Exchange<Table>,
    in_front: InFront,
}

type ExchangeArena = unsafe extern "C" fn(*mut ArenaTable);

/// The domains of objects and of what they point to; what is of the other domain is malloc's.
const DOMAINS: [c_int; 2] = [1, 2];

/// Which addresses are of arenas.
pub static ARENAS: Arenas = Arenas::new();

/// What is written before the functions in the tables can be called (T1).
struct Former<T>(UnsafeCell<Option<T>>);
// SAFETY: T1.
unsafe impl<T> Sync for Former<T> {}
static TABLES: [Former<Table>; 2] = [const { Former(UnsafeCell::new(None)) }; 2];
static ARENA: Former<ArenaTable> = Former(UnsafeCell::new(None));
static EXCHANGE: Former<Domains> = Former(UnsafeCell::new(None));

/// Whether ours were ever called (T2).
static CALLED: AtomicBool = AtomicBool::new(false);
static STATUS: AtomicU32 = AtomicU32::new(0);

/// Notes that ours are in the tables, or behind what is in them. Cost: one load.
#[inline(always)]
pub fn are_called() {
    // ORDER: Relaxed for both; T1, whoever calls has the interpreter's lock.
    if !CALLED.load(Ordering::Relaxed) {
        CALLED.store(true, Ordering::Relaxed);
    }
}

/// Puts ours into the tables, once, if that is asked for, and says in the header of this process what came of it. The
/// constructor calls it, before Python begins.
pub fn prepare(in_front: InFront) {
    // ORDER: Relaxed throughout; set before the program began, and one thread.
    let wanted = process::session().is_some_and(|page| page.objects.load(Ordering::Relaxed) != 0);
    if STATUS.load(Ordering::Relaxed) == 0
        && let Some(objects) = real::startup()
    {
        let look = |name: &CStr| objects.first(name, false);
        // PHP asks for the value as a number.
        let status = if !look(c"zend_mm_get_heap").is_null() {
            let is_off = is_set_to(b"USE_ZEND_ALLOC", |value| {
                !matches!(value, [b'1'..=b'9', ..])
            });
            if is_off { 0 } else { OBJECTS_ZEND }
        } else if wanted {
            // SAFETY: objects of the start are relocated before code of theirs runs, and stay.
            unsafe { install(look, in_front) }
        } else {
            0
        };
        STATUS.store(status, Ordering::Relaxed); // ORDER: as above.
    }
    publish();
}

/// Returns whether a variable of the environment has a value, and is as `wanted`.
fn is_set_to(name: &[u8], wanted: impl Fn(&[u8]) -> bool) -> bool {
    const MOST_VARIABLES: usize = 1 << 16;
    let mut at = filters::own_variables();
    for _ in 0..MOST_VARIABLES {
        // SAFETY: the program's own variables, closed by null, each a C string.
        let entry = unsafe {
            if at.is_null() || (*at).is_null() {
                return false;
            }
            CStr::from_ptr(*at).to_bytes()
        };
        let value = entry
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(b"="));
        if let Some(value) = value {
            return wanted(value);
        }
        // SAFETY: as above: this was not the last.
        at = unsafe { at.add(1) };
    }
    false
}

/// Returns whether Python will have its objects from mimalloc, which has no arenas: it can from 3.13 on.
fn has_mimalloc(look: impl Fn(&CStr) -> *mut c_void) -> bool {
    // SAFETY: a constant of that type.
    let version = unsafe { (look(c"Py_Version") as *const u32).as_ref() };
    let is_new = version.is_some_and(|version| version >> 16 >= 0x030d);
    // SAFETY: the runtime is one of the start's objects.
    let is_free = unsafe { skinflint_frames::is_free_threaded(&look) };
    is_new && (is_free || is_set_to(b"PYTHONMALLOC", |value| value.starts_with(b"mimalloc")))
}

fn publish() {
    if let Some(header) = process::header() {
        // ORDER: Relaxed for both; read once the process has ended.
        let status = STATUS.load(Ordering::Relaxed);
        header.objects.store(status, Ordering::Relaxed);
    }
}

/// # Safety
/// `look` returns what the objects of the start export under a name, or null, and they are relocated (T3).
unsafe fn install(look: impl Fn(&CStr) -> *mut c_void, in_front: InFront) -> u32 {
    let [get, set, get_arena, set_arena] = [
        c"PyMem_GetAllocator",
        c"PyMem_SetAllocator",
        c"PyObject_GetArenaAllocator",
        c"PyObject_SetArenaAllocator",
    ]
    .map(&look);
    if set.is_null() {
        return 0;
    }
    // 3.8 brought the last of these.
    let is_old = look(c"Py_PreInitialize").is_null();
    if is_old || get.is_null() || get_arena.is_null() || set_arena.is_null() {
        return OBJECTS_CLOSED;
    }
    if has_mimalloc(&look) {
        return OBJECTS_MIMALLOC;
    }
    // SAFETY: the functions have had these types since they were made (3.4); T1.
    unsafe {
        let exchange =
            [get, set].map(|at| core::mem::transmute::<*mut c_void, Exchange<Table>>(at));
        let [get_arena, set_arena] =
            [get_arena, set_arena].map(|at| core::mem::transmute::<*mut c_void, ExchangeArena>(at));
        let mut arena = ArenaTable {
            ctx: core::ptr::null_mut(),
            alloc: arena_alloc,
            free: arena_free,
        };
        let mut ours = arena;
        get_arena(&raw mut arena);
        *ARENA.0.get() = Some(arena);
        set_arena(&raw mut ours);
        let [get, set] = exchange;
        let domains = Domains { get, set, in_front };
        *EXCHANGE.0.get() = Some(domains);
        put_in_front(domains);
    }
    OBJECTS_RECORDED
}

/// Puts ours in front of what the tables have.
///
/// # Safety
/// T1, T2.
unsafe fn put_in_front(domains: Domains) {
    let Domains { get, set, in_front } = domains;
    for (domain, former) in DOMAINS.into_iter().zip(&TABLES) {
        let none = core::ptr::null_mut();
        let mut table = Table {
            ctx: none,
            malloc: none,
            calloc: none,
            realloc: none,
            free: none,
        };
        // SAFETY: as the caller promises; the former table stays where it is from now on.
        unsafe {
            get(domain, &raw mut table);
            let is_ours = table.malloc == in_front(core::ptr::null_mut()).malloc;
            if table.malloc.is_null() || is_ours {
                continue;
            }
            let mut ours = in_front((*former.0.get()).insert(table));
            set(domain, &raw mut ours);
        }
    }
}

/// Returns this thread's state, if it is recorded.
fn recorded() -> Option<*mut ThreadState> {
    let state = tls::get();
    // SAFETY: it is what this thread's pointer holds.
    let is_own = !state.is_null() && state != nobody() && unsafe { !is_stale(state) };
    is_own.then_some(state)
}

unsafe extern "C" fn arena_alloc(_ctx: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: `install` has written it before ours could be called.
    let Some(former) = (unsafe { *ARENA.0.get() }) else {
        return core::ptr::null_mut();
    };
    if !ARENAS.may_be(bytes as u64) {
        // SAFETY: the program's own call.
        return unsafe { (former.alloc)(former.ctx, bytes) };
    }
    let state = recorded();
    // SAFETY: state.H1; the program's own call.
    let arena = unsafe {
        if let Some(state) = state {
            (*state).maps_arena = true;
        }
        let arena = (former.alloc)(former.ctx, bytes);
        if let Some(state) = state {
            (*state).maps_arena = false;
        }
        arena
    };
    if arena.is_null() {
        return arena;
    }
    let leaf = || process::map_own(size_of::<Leaf>()).cast();
    if !ARENAS.add(arena as u64, bytes as u64, leaf) {
        STATUS.store(OBJECTS_ARENA, Ordering::Relaxed); // ORDER: Relaxed; a flag.
        publish();
    }
    // ORDER: Relaxed for both; T1.
    if !CALLED.load(Ordering::Relaxed) {
        CALLED.store(true, Ordering::Relaxed);
        // SAFETY: T1, T2.
        unsafe {
            if let Some(domains) = *EXCHANGE.0.get() {
                put_in_front(domains);
            }
        }
    }
    arena
}

unsafe extern "C" fn arena_free(_ctx: *mut c_void, arena: *mut c_void, bytes: usize) {
    if ARENAS.may_be(bytes as u64) {
        ARENAS.remove(arena as u64, bytes as u64);
    }
    // SAFETY: as in `arena_alloc`.
    unsafe {
        if let Some(former) = *ARENA.0.get() {
            (former.free)(former.ctx, arena, bytes);
        }
    }
}
