//! SQLite's memory: by its own account, and by what the allocator really gave.
//!
//! ```text
//!   sqlite3_config(SQLITE_CONFIG_MALLOC, counted) ─► each block: malloc; its usable size is added to the counter
//!   report ─► explicit/sqlite/used   (usable bytes)        sqlite/own-account  (sqlite3_status64)
//! ```
//!
//! Q1  The two differ by what the allocator adds, and where SQLite rounds: by a fifth with 4,368-byte buffers (the
//!     difference that Firefox found in 2011 and removed by asking for sizes that fit).
//! Q2  SQLite is not linked: the host passes the two functions that are needed. Without counted methods only SQLite's
//!     own account is known, and then it is the row of `explicit/`.
//! Q3  `xSize` returns what SQLite asked for, rounded to 8, as SQLite's own methods do: so its statistics stay as they
//!     are without us.
//! Q4  If blocks are named ([`Sqlite::named`]), KEPT has each block's address, and the block its place in KEPT; both
//!     change under KEPT's lock. A block whose address KEPT had no memory for has the place NOWHERE.
//!
//! SQLite demands that its memory is configured before it is first used.
//! Not here: the memory of one connection (`sqlite3_db_status`).

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::grown::Pages;
use crate::round::Reporter;
use crate::round::Sink;
use crate::usable::usable_of_malloc;

const OK: c_int = 0;
const NOMEM: c_int = 7;
const CONFIG_MALLOC: c_int = 4;
const STATUS_MEMORY_USED: c_int = 0;
const STATUS_MALLOC_COUNT: c_int = 9;

/// The type of `sqlite3_status64`.
pub type Status = unsafe extern "C" fn(c_int, *mut i64, *mut i64, c_int) -> c_int;
/// The type of `sqlite3_config`.
pub type Config = unsafe extern "C" fn(c_int, ...) -> c_int;

/// `struct sqlite3_mem_methods`.
#[repr(C)]
struct Methods {
    malloc: unsafe extern "C" fn(c_int) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    realloc: unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void,
    size: unsafe extern "C" fn(*mut c_void) -> c_int,
    roundup: unsafe extern "C" fn(c_int) -> c_int,
    init: unsafe extern "C" fn(*mut c_void) -> c_int,
    shutdown: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

/// The usable bytes of all blocks that SQLite has.
static USABLE: AtomicI64 = AtomicI64::new(0);

/// Room in front of each block for what was asked for, and for its place (Q4); keeps the alignment of malloc.
const FRONT: usize = 16;

/// The addresses of all blocks, if they are kept (Q4).
static KEPT: Mutex<Option<Pages>> = Mutex::new(None);
/// The place of a block that is not in KEPT.
const NOWHERE: usize = usize::MAX;

fn kept() -> MutexGuard<'static, Option<Pages>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns where a block holds its place.
fn place_of(block: *mut c_void) -> *mut usize {
    block.cast::<usize>().wrapping_add(1)
}

/// Counts the bytes of a new block, and keeps its address.
fn came(block: *mut c_void) {
    // SAFETY: a live block of malloc's.
    let bytes = unsafe { libc::malloc_usable_size(block) } as i64;
    USABLE.fetch_add(bytes, Ordering::Relaxed); // ORDER: Relaxed: a statistic
    let mut place = NOWHERE;
    if let Some(pages) = &mut *kept() {
        let at = pages.words().len();
        let address = block.expose_provenance() as u64;
        if pages.push(&address.to_ne_bytes()).is_some() {
            place = at;
        }
        // SAFETY: the block has FRONT bytes of ours; under the lock, as every move of its place.
        unsafe { place_of(block).write(place) };
    } else {
        // SAFETY: as above; no thread moves places.
        unsafe { place_of(block).write(place) };
    }
}

/// Uncounts the bytes of a block that is about to be released, and forgets its address.
fn goes(block: *mut c_void) {
    // SAFETY: a live block of malloc's.
    let bytes = unsafe { libc::malloc_usable_size(block) } as i64;
    USABLE.fetch_sub(bytes, Ordering::Relaxed); // ORDER: Relaxed: a statistic
    let mut kept = kept();
    let Some(pages) = &mut *kept else { return };
    // SAFETY: Q4.
    let place = unsafe { place_of(block).read() };
    let words = pages.words();
    if place == NOWHERE || place >= words.len() {
        return;
    }
    // The last block takes its place.
    let last = words[words.len() - 1];
    words[place] = last;
    let moved: *mut c_void = std::ptr::with_exposed_provenance_mut(last as usize);
    // SAFETY: what is kept lives (Q4).
    unsafe { place_of(moved).write(place) };
    let rest = (words.len() - 1) * 8;
    pages.cut(rest);
}

unsafe extern "C" fn xmalloc(bytes: c_int) -> *mut c_void {
    let Ok(asked) = usize::try_from(bytes) else {
        return std::ptr::null_mut();
    };
    // SAFETY: a fresh block with room in front; null is passed on.
    unsafe {
        let block = libc::malloc(asked + FRONT);
        if block.is_null() {
            return block;
        }
        block.cast::<usize>().write(asked);
        came(block);
        block.byte_add(FRONT)
    }
}

unsafe extern "C" fn xfree(block: *mut c_void) {
    if !block.is_null() {
        // SAFETY: SQLite frees what `xmalloc` or `xrealloc` gave it.
        unsafe {
            let block = block.byte_sub(FRONT);
            goes(block);
            libc::free(block);
        }
    }
}

unsafe extern "C" fn xrealloc(block: *mut c_void, bytes: c_int) -> *mut c_void {
    let Ok(asked) = usize::try_from(bytes) else {
        return std::ptr::null_mut();
    };
    // SAFETY: as in `xfree`; SQLite never reallocates null or to 0. A block that could not grow is as it was.
    unsafe {
        let old = block.byte_sub(FRONT);
        goes(old);
        let new = libc::realloc(old, asked + FRONT);
        if new.is_null() {
            came(old);
            return new;
        }
        new.cast::<usize>().write(asked);
        came(new);
        new.byte_add(FRONT)
    }
}

unsafe extern "C" fn xsize(block: *mut c_void) -> c_int {
    if block.is_null() {
        return 0;
    }
    // SAFETY: as in `xfree` (Q3).
    unsafe { block.byte_sub(FRONT).cast::<usize>().read() as c_int }
}

unsafe extern "C" fn xroundup(bytes: c_int) -> c_int {
    bytes.saturating_add(7) & !7
}

unsafe extern "C" fn xinit(_: *mut c_void) -> c_int {
    OK
}

unsafe extern "C" fn xshutdown(_: *mut c_void) {}

/// Reports SQLite's memory.
pub struct Sqlite {
    status: Status,
    counted: bool,
}

impl Sqlite {
    /// Creates a reporter of SQLite's own account alone.
    ///
    /// # Safety
    /// `status` is `sqlite3_status64` of the library that the program uses.
    pub unsafe fn new(status: Status) -> Sqlite {
        Sqlite {
            status,
            counted: false,
        }
    }

    /// Has SQLite's blocks counted by their usable size. To be called once, before SQLite is first used; counts
    /// one library in a process.
    ///
    /// # Errors
    /// SQLite's result, if it refuses: 21 (misuse) if it is in use already.
    ///
    /// # Safety
    /// The functions are those of the library that the program uses.
    pub unsafe fn counted(status: Status, config: Config) -> Result<Sqlite, c_int> {
        let methods = Methods {
            malloc: xmalloc,
            free: xfree,
            realloc: xrealloc,
            size: xsize,
            roundup: xroundup,
            init: xinit,
            shutdown: xshutdown,
            data: std::ptr::null_mut(),
        };
        // SAFETY: SQLite copies the structure, which is laid out as its own.
        match unsafe { config(CONFIG_MALLOC, &raw const methods) } {
            OK => Ok(Sqlite {
                status,
                counted: true,
            }),
            error => Err(error),
        }
    }

    /// Does what [`Sqlite::counted`] does, and keeps each block's address, so that a measurement can ask for blocks
    /// (`skinflint run --dark-matter`). Cost: 8 bytes for each block, in a mapping of its own, and a lock for each
    /// call.
    ///
    /// # Errors
    /// As for [`Sqlite::counted`].
    ///
    /// # Safety
    /// As for [`Sqlite::counted`].
    pub unsafe fn named(status: Status, config: Config) -> Result<Sqlite, c_int> {
        // SAFETY: as the caller promises.
        let sqlite = unsafe { Sqlite::counted(status, config) }?;
        kept().get_or_insert_with(Pages::new);
        Ok(sqlite)
    }

    /// Returns one of SQLite's own figures.
    fn status(&self, which: c_int) -> Result<i64, c_int> {
        let (mut now, mut highest) = (0, 0);
        // SAFETY: `sqlite3_status64`, with places of ours.
        match unsafe { (self.status)(which, &mut now, &mut highest, 0) } {
            OK => Ok(now),
            error => Err(error),
        }
    }
}

impl Reporter for Sqlite {
    fn report(&self, out: &mut Sink<'_>) {
        let (Ok(used), Ok(blocks)) = (
            self.status(STATUS_MEMORY_USED),
            self.status(STATUS_MALLOC_COUNT),
        ) else {
            panic!("sqlite3_status64 fails (result {NOMEM} is no memory)");
        };
        let bytes = |amount: i64| usize::try_from(amount).unwrap_or(usize::MAX);
        let said = "Usable bytes of SQLite's blocks, by the allocator.";
        let own = "What SQLite says that it uses (SQLITE_STATUS_MEMORY_USED): what it asked for.";
        if self.counted {
            // ORDER: Relaxed: a statistic.
            let mut usable = bytes(USABLE.load(Ordering::Relaxed));
            if out.wants_blocks()
                && let Some(pages) = &mut *kept()
            {
                let each = pages.words().iter().map(|address| {
                    let block = std::ptr::with_exposed_provenance(*address as usize);
                    // SAFETY: what is kept lives (Q4), and cannot go while the lock is held.
                    unsafe { usable_of_malloc(block) }
                });
                usable = each.sum();
            }
            out.heap("explicit/sqlite/used", usable, said);
        } else {
            out.heap("explicit/sqlite/used", bytes(used), own);
        }
        out.bytes("sqlite-own-account", bytes(used) as u64, own);
        let said = "Blocks that SQLite has.";
        out.count("sqlite-blocks", bytes(blocks) as u64, said);
    }
}
