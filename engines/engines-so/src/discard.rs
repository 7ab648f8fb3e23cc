//! Forms that are decoded when they are used, and go after a while or under pressure; their sources stay.
//!
//! ```text
//!   discards_new(decode, free, keep) ─► discardable_new(source) ─► pin: decode, or what is there
//!                                                                    └─► unpin ─► … ─► free(form)
//! ```
//!
//! D1  What is pinned stays; a pin is a number, whose release is told a second time.
//! D2  One thread decodes, and others wait for it. A `decode` that pins the form that it decodes would wait for itself:
//!     that is told.
//!
//! Not here: when forms go (`skinflint_cache::discard`).

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use skinflint_cache::discard::{Decode, Pinned};
use skinflint_cache::store::Clock;
use skinflint_cache::{Discardable, Discards};

use crate::fault::{Code, Failure, guarded};
use crate::input::{self, Sized_};
use crate::owner::{Done, Free, Owned, Owner};
use crate::pressure;
use crate::table::{Number, Shared, Sort, Spread};

/// Makes a form from its source: 0, or there is none.
type DecodeFn = unsafe extern "C" fn(
    *mut c_void,
    *const c_void,
    usize,
    form: *mut *mut c_void,
    bytes: *mut usize,
) -> c_int;

/// Settings, as the header has them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Options {
    size: usize,
    name: *const c_char,
    keep_ms: u64,
    decode: Option<DecodeFn>,
    free: Option<Free>,
    done: Option<Done>,
    context: *mut c_void,
}

// SAFETY: input.I2: numbers, addresses and functions that may be null, the size first.
unsafe impl Sized_ for Options {}

/// A form in use, as the header has it.
#[repr(C)]
pub struct Form {
    form: *mut c_void,
    bytes: usize,
    pin: Number,
}

/// Figures of a set, as the header has them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Figures {
    size: usize,
    sources: u64,
    source_bytes: u64,
    decoded_bytes: u64,
    decodes: u64,
    pins: u64,
    discarded: u64,
}

// SAFETY: input.I2: numbers alone, the size first.
unsafe impl Sized_ for Figures {}

/// How the forms of a set are made.
#[derive(Clone)]
struct How {
    decode: DecodeFn,
    owner: Arc<Owner>,
}

impl Decode for How {
    type Output = Owned;
    type Error = Failure;

    fn decode(&self, source: &[u8]) -> Result<Owned, Failure> {
        let (mut form, mut bytes) = (std::ptr::null_mut(), 0);
        let (at, len) = (source.as_ptr().cast(), source.len());
        let to = (&raw mut form, &raw mut bytes);
        // SAFETY: the caller's function, with its context.
        let result = unsafe { (self.decode)(self.owner.context(), at, len, to.0, to.1) };
        if result != 0 {
            let what = format!("the function that decodes returned {result}");
            return Err(Failure::new(Code::NotMade, what));
        }
        // SAFETY: the function's promise.
        let bytes = unsafe { Owned::bytes(form, bytes, "the decoded form") }?;
        Ok(Owned::taken(form, bytes, &self.owner))
    }
}

/// A set, and how its forms are made.
#[derive(Clone)]
struct Known {
    set: Arc<Discards>,
    how: How,
}

static SETS: Shared<Known> = Shared::new(Sort::Discards);
static ITEMS: Shared<Discardable<How>> = Shared::new(Sort::Discardable);
static PINS: LazyLock<Spread<Pinned<How>>> = LazyLock::new(|| Spread::new(Sort::Pin));

thread_local! {
    /// What this thread is pinning (D2).
    static PINNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Notes what this thread is pinning while it lives.
struct Pinning;

impl Pinning {
    fn enter(item: Number) -> Result<Pinning, Failure> {
        let entered = PINNING.try_with(|pinning| {
            let mut pinning = pinning.borrow_mut();
            if pinning.contains(&item.addr()) {
                let what = "this form is being decoded, by this very thread";
                return Err(Failure::new(Code::Busy, what));
            }
            pinning.push(item.addr());
            Ok(Pinning)
        });
        entered.unwrap_or_else(|_| Err(Failure::ending()))
    }
}

impl Drop for Pinning {
    fn drop(&mut self) {
        let _ = PINNING.try_with(|pinning| pinning.borrow_mut().pop());
    }
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the options are there, with their size; functions may be called with the context on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_discards_new(options: *const Options) -> Number {
    guarded(|| {
        // SAFETY: as the caller promises.
        let options = unsafe { input::options(options, "the options of a set") }?;
        // SAFETY: as above.
        let name = unsafe { input::name(options.name, "discards") };
        let decode = options.decode;
        let decode = decode.ok_or_else(|| Failure::argument("a function that decodes: null"))?;
        let owner = Owner::new(options.free, options.context);
        let keep = Duration::from_millis(options.keep_ms);
        let set = Discards::new(name, keep, Clock::real());
        let how = How {
            decode,
            owner: Arc::clone(&owner),
        };
        let number = SETS.add(Known {
            set: Arc::clone(&set),
            how,
        })?;
        owner.made(options.done);
        pressure::join(&set);
        Ok(number)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: there are so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_discardable_new(
    set: Number,
    source: *const c_void,
    bytes: usize,
) -> Number {
    guarded(|| {
        let known = SETS.get(set)?;
        // SAFETY: as the caller promises.
        let source = unsafe { input::bytes(source, bytes, "the source") }?;
        if source.is_empty() {
            return Err(Failure::argument("a source of 0 bytes"));
        }
        ITEMS.add(known.set.add(source, known.how))
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_discardable_pin(item: Number, to: *mut Form) -> c_int {
    guarded(|| {
        if to.is_null() {
            return Err(Failure::argument("a place for the form: null"));
        }
        let found = ITEMS.get(item)?;
        let pinning = Pinning::enter(item)?;
        let pinned = found.pin()?;
        drop(pinning);
        let (form, bytes) = (pinned.address, pinned.bytes);
        let pin = PINS.add(pinned)?;
        // SAFETY: as the caller promises.
        unsafe { input::write(to, Form { form, bytes, pin }) };
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_pin_release(pin: Number) -> c_int {
    guarded(|| {
        let pinned = PINS.take(pin)?;
        drop(pinned);
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_discardable_is_decoded(item: Number) -> c_int {
    guarded(|| Ok(c_int::from(ITEMS.get(item)?.is_decoded())))
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_discardable_end(item: Number) -> c_int {
    guarded(|| {
        let item = ITEMS.take(item)?;
        drop(item);
        Ok(1)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_discards_relieve(
    set: Number,
    bytes: usize,
    dropped: *mut usize,
) -> c_int {
    guarded(|| {
        let known = SETS.get(set)?;
        if bytes == 0 {
            return Err(Failure::argument("relief of 0 bytes; SIZE_MAX is all"));
        }
        let went = known.set.discard_bytes(bytes);
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
pub unsafe extern "C" fn skinflint_discards_expire(set: Number, dropped: *mut usize) -> c_int {
    guarded(|| {
        let went = SETS.get(set)?.set.sweep();
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
pub unsafe extern "C" fn skinflint_discards_figures(set: Number, to: *mut Figures) -> c_int {
    guarded(|| {
        let stats = SETS.get(set)?.set.stats();
        let figures = Figures {
            size: 0,
            sources: stats.items as u64,
            source_bytes: stats.source_bytes as u64,
            decoded_bytes: stats.decoded_bytes as u64,
            decodes: stats.decodes,
            pins: stats.pins,
            discarded: stats.discarded,
        };
        // SAFETY: as the caller promises.
        unsafe { input::figures(to, figures, "the figures") }?;
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_discards_end(set: Number) -> c_int {
    guarded(|| {
        let known = SETS.take(set)?;
        drop(known);
        Ok(1)
    })
}
