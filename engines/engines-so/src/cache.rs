//! Caches: values of the caller's by keys that are bytes, bounded in bytes.
//!
//! ```text
//!   insert(key, value, bytes, cost) ─► Cache<Box<[u8]>, Held> ─► goes: gone(key, value, why), then free(value)
//!   get ─► (value, hold) ── release(hold) ─► free(value), if the cache has it no more
//! ```
//!
//! H1  A value that is held is not freed, whatever becomes of its entry or of the cache.
//! H2  `gone` is called for each entry that went while the cache was there, with no lock held; `free` afterwards.
//! H3  A value is the library's from a result that is not a failure on, also if the cache refused it.
//!
//! Not here: which entries stay, budgets, lifetimes (`skinflint_cache::store`); pressure (`pressure`).

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use skinflint_cache::store::{Joined, Stats};
use skinflint_cache::{Budget, Cache, Rebuild, Verdict, Why};

use crate::fault::{Code, Failure, guarded};
use crate::input::{self, Sized_};
use crate::owner::{Done, Free, Held, Owned, Owner};
use crate::pressure;
use crate::table::{Number, Shared, Sort, Spread};

/// A key is copied; nothing that is called a key is larger.
const KEY_MOST: usize = 1 << 20;

type Values = Cache<Box<[u8]>, Held>;

/// A cache, and the owner of its values.
#[derive(Clone)]
struct Known {
    values: Arc<Values>,
    owner: Arc<Owner>,
}

static CACHES: Shared<Known> = Shared::new(Sort::Cache);
static BUDGETS: Shared<Arc<Budget>> = Shared::new(Sort::Budget);
static HOLDS: LazyLock<Spread<Held>> = LazyLock::new(|| Spread::new(Sort::Hold));

/// Hears of entries that went.
type Gone = unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut c_void, c_int);
/// Makes a value: 0, or there is none.
type Make = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    value: *mut *mut c_void,
    bytes: *mut usize,
) -> c_int;

/// Settings, as the header has them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Options {
    size: usize,
    name: *const c_char,
    limit_bytes: usize,
    budget: Number,
    floor_bytes: usize,
    idle_ms: u64,
    lifetime_ms: u64,
    shards: u32,
    rebuild: c_int,
    gone: Option<Gone>,
    free: Option<Free>,
    done: Option<Done>,
    context: *mut c_void,
}

// SAFETY: input.I2: numbers, addresses and functions that may be null, the size first.
unsafe impl Sized_ for Options {}

/// A value that was found, as the header has it.
#[repr(C)]
pub struct Found {
    value: *mut c_void,
    bytes: usize,
    hold: Number,
}

/// Figures of a cache, as the header has them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Figures {
    size: usize,
    entries: u64,
    bytes: u64,
    limit_bytes: u64,
    allowed_bytes: u64,
    hits: u64,
    misses: u64,
    inserted: u64,
    refused: u64,
    evicted: u64,
    expired: u64,
    released: u64,
    removed: u64,
    saved_ns: u64,
    placebo: u64,
}

// SAFETY: input.I2: numbers alone, the size first.
unsafe impl Sized_ for Figures {}

/// Returns the key at an address.
///
/// # Safety
/// There are so many bytes.
unsafe fn key<'a>(at: *const c_void, bytes: usize) -> Result<&'a [u8], Failure> {
    if bytes > KEY_MOST {
        let what = format!("a key of {bytes} bytes: {KEY_MOST} at most");
        return Err(Failure::argument(what));
    }
    // SAFETY: as the caller promises.
    unsafe { input::bytes(at, bytes, "the key") }
}

fn rebuild(number: c_int) -> Result<Rebuild, Failure> {
    match number {
        0 => Ok(Rebuild::Compute),
        1 => Ok(Rebuild::Free),
        2 => Ok(Rebuild::Decode),
        3 => Ok(Rebuild::Fetch),
        4 => Ok(Rebuild::Lose),
        _ => Err(Failure::argument(format!(
            "rebuild is {number}: SKINFLINT_COMPUTE … SKINFLINT_LOSE"
        ))),
    }
}

fn number_of(why: Why) -> c_int {
    match why {
        Why::Refused => 1,
        Why::Displaced => 2,
        Why::Replaced => 3,
        Why::Idle => 4,
        Why::Old => 5,
        Why::Released => 6,
        Why::Removed => 7,
    }
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_budget_new(limit_bytes: usize) -> Number {
    guarded(|| match limit_bytes {
        0 => Err(Failure::argument("a budget of 0 bytes")),
        _ => BUDGETS.add(Budget::new(limit_bytes)),
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the places are there, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_budget_bytes(
    budget: Number,
    used: *mut usize,
    limit: *mut usize,
) -> c_int {
    guarded(|| {
        let budget = BUDGETS.get(budget)?;
        // SAFETY: as the caller promises.
        unsafe {
            input::write(used, budget.used_bytes());
            input::write(limit, budget.limit_bytes());
        }
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_budget_end(budget: Number) -> c_int {
    guarded(|| {
        drop(BUDGETS.take(budget)?);
        Ok(1)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the options are there, with their size; functions may be called with the context on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_new(options: *const Options) -> Number {
    guarded(|| {
        // SAFETY: as the caller promises.
        let options = unsafe { input::options(options, "the options of a cache") }?;
        // SAFETY: as above.
        let name = unsafe { input::name(options.name, "cache") };
        if options.limit_bytes == 0 && options.budget.is_null() {
            return Err(Failure::argument("a limit of 0 bytes, and no budget"));
        }
        if options.shards > 256 {
            return Err(Failure::argument(format!(
                "{} shards: 256 at most",
                options.shards
            )));
        }
        let mut builder = Cache::named(name)
            .rebuild(rebuild(options.rebuild)?)
            .shards(options.shards.max(1) as usize);
        if !options.budget.is_null() {
            builder = builder.budget(&BUDGETS.get(options.budget)?, options.floor_bytes);
        }
        builder = match options.limit_bytes {
            0 => builder.limit_bytes(usize::MAX),
            bytes => builder.limit_bytes(bytes),
        };
        if options.idle_ms > 0 {
            builder = builder.idle(Duration::from_millis(options.idle_ms));
        }
        if options.lifetime_ms > 0 {
            builder = builder.lifetime(Duration::from_millis(options.lifetime_ms));
        }
        let owner = Owner::new(options.free, options.context);
        let values = match options.gone {
            None => builder.build(),
            Some(gone) => {
                let owner = Arc::clone(&owner);
                #[allow(clippy::borrowed_box, reason = "the cache's type of keys")]
                builder.build_told(move |key: &Box<[u8]>, held: &Held, why| {
                    let (at, len) = (key.as_ptr().cast(), key.len());
                    // SAFETY: H2: the caller's function, with its context; the key and the value live meanwhile.
                    unsafe { gone(owner.context(), at, len, held.0.address, number_of(why)) };
                })
            }
        };
        let number = CACHES.add(Known {
            values: Arc::clone(&values),
            owner: Arc::clone(&owner),
        })?;
        owner.made(options.done);
        pressure::join(&values);
        Ok(number)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the key is there, and the value may be freed with `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_insert(
    cache: Number,
    at: *const c_void,
    key_bytes: usize,
    value: *mut c_void,
    value_bytes: usize,
    cost_ns: u64,
) -> c_int {
    guarded(|| {
        let cache = CACHES.get(cache)?;
        // SAFETY: as the caller promises.
        let key = unsafe { key(at, key_bytes) }?;
        // SAFETY: as above.
        let bytes = unsafe { Owned::bytes(value, value_bytes, "the value") }?;
        let key = input::copied(key)?;
        let held = Held(Arc::new(Owned::taken(value, bytes, &cache.owner)));
        let kept = cache
            .values
            .insert(key, held, Duration::from_nanos(cost_ns));
        Ok(c_int::from(kept))
    })
}

/// Gives a value that was found a hold.
///
/// # Safety
/// There is room for the result.
unsafe fn hand_out(held: Held, found: *mut Found) -> Result<c_int, Failure> {
    let (value, bytes) = (held.0.address, held.0.bytes);
    let hold = HOLDS.add(held)?;
    // SAFETY: as the caller promises.
    unsafe { input::write(found, Found { value, bytes, hold }) };
    Ok(1)
}

fn wants_place<T>(found: *mut T) -> Result<(), Failure> {
    match found.is_null() {
        true => Err(Failure::argument("a place for what is found: null")),
        false => Ok(()),
    }
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the key and the place are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_get(
    cache: Number,
    at: *const c_void,
    key_bytes: usize,
    found: *mut Found,
) -> c_int {
    guarded(|| {
        wants_place(found)?;
        let cache = CACHES.get(cache)?;
        // SAFETY: as the caller promises.
        let key = unsafe { key(at, key_bytes) }?;
        match cache.values.get(key) {
            // SAFETY: as above.
            Some(held) => unsafe { hand_out(held, found) },
            None => Ok(0),
        }
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the key and the place are there, and `make` keeps its promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_get_or_make(
    cache: Number,
    at: *const c_void,
    key_bytes: usize,
    make: Option<Make>,
    context: *mut c_void,
    found: *mut Found,
) -> c_int {
    guarded(|| {
        wants_place(found)?;
        let cache = CACHES.get(cache)?;
        // SAFETY: as the caller promises.
        let key = unsafe { key(at, key_bytes) }?;
        let make = make.ok_or_else(|| Failure::argument("a function that makes it: null"))?;
        #[allow(clippy::borrowed_box, reason = "the cache's type of keys")]
        let made = |key: &Box<[u8]>| -> Result<Held, Failure> {
            let (mut value, mut bytes) = (std::ptr::null_mut(), 0);
            let (key, len) = (key.as_ptr().cast(), key.len());
            // SAFETY: the caller's function, with its context.
            let result = unsafe { make(context, key, len, &raw mut value, &raw mut bytes) };
            if result != 0 {
                let what = format!("the function that makes it returned {result}");
                return Err(Failure::new(Code::NotMade, what));
            }
            // SAFETY: as the caller promises.
            let bytes = unsafe { Owned::bytes(value, bytes, "the value that was made") }?;
            Ok(Held(Arc::new(Owned::taken(value, bytes, &cache.owner))))
        };
        match cache.values.get_or_join(input::copied(key)?, made) {
            // SAFETY: as above.
            Ok(held) => unsafe { hand_out(held, found) },
            Err(Joined::Own(failure)) => Err(failure),
            Err(Joined::Lost(lost)) => {
                let what = format!("another thread was making it: {lost}");
                Err(Failure::new(Code::NotMade, what))
            }
        }
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_hold_release(hold: Number) -> c_int {
    guarded(|| {
        let held = HOLDS.take(hold)?;
        drop(held);
        Ok(1)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the key is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_remove(
    cache: Number,
    at: *const c_void,
    key_bytes: usize,
) -> c_int {
    guarded(|| {
        let cache = CACHES.get(cache)?;
        // SAFETY: as the caller promises.
        let key = unsafe { key(at, key_bytes) }?;
        Ok(c_int::from(cache.values.remove(key)))
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_relieve(
    cache: Number,
    bytes: usize,
    dropped: *mut usize,
) -> c_int {
    guarded(|| {
        let cache = CACHES.get(cache)?;
        let went = match bytes {
            0 => return Err(Failure::argument("relief of 0 bytes; SIZE_MAX is all")),
            usize::MAX => cache.values.clear(),
            _ => cache.values.release_bytes(bytes.min(usize::MAX >> 8)),
        };
        // SAFETY: as the caller promises.
        unsafe { input::write(dropped, went) };
        Ok(1)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_expire(cache: Number, dropped: *mut usize) -> c_int {
    guarded(|| {
        let went = CACHES.get(cache)?.values.expire();
        // SAFETY: as the caller promises.
        unsafe { input::write(dropped, went) };
        Ok(1)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the structure is there, with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_cache_figures(cache: Number, to: *mut Figures) -> c_int {
    guarded(|| {
        let stats = CACHES.get(cache)?.values.stats();
        let placebo = u64::from(stats.verdict() == Verdict::Placebo);
        let figures = figures_of(&stats, placebo);
        // SAFETY: as the caller promises.
        unsafe { input::figures(to, figures, "the figures") }?;
        Ok(1)
    })
}

fn figures_of(stats: &Stats, placebo: u64) -> Figures {
    Figures {
        size: 0,
        entries: stats.entries as u64,
        bytes: (stats.bytes + stats.own_bytes) as u64,
        limit_bytes: stats.limit_bytes as u64,
        allowed_bytes: stats.allowed_bytes as u64,
        hits: stats.hits,
        misses: stats.misses,
        inserted: stats.inserted,
        refused: stats.refused,
        evicted: stats.evicted,
        expired: stats.expired,
        released: stats.released,
        removed: stats.removed,
        saved_ns: stats.saved_ns,
        placebo,
    }
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_cache_end(cache: Number) -> c_int {
    guarded(|| {
        let known = CACHES.take(cache)?;
        drop(known);
        Ok(1)
    })
}
