//! The process's pressure bus: opened when the program asks for it, and joined by all caches and sets, earlier and later.
//!
//! ```text
//!   pressure_open ─► Bus ◄── caches, sets          press(level), relieve(bytes) ─► a round ─► Relief
//! ```
//!
//! B1  Each cache and each set joins a bus once: it is noted, and what is noted joins at opening, under one lock.
//! B2  No lock is held during a round, or while a bus ends.
//! B3  A child of fork has its parent's bus no more, which has no thread there: it counts as closed there, and the child may open one.
//!
//! Not here: signals, rounds and their order (`skinflint_cache::bus`).

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use skinflint_cache::bus::{Event, Options};
use skinflint_cache::{Bus, Level, Listener};

use crate::fault::{Code, Failure, guarded};
use crate::input::{self, Sized_};

/// Joins a listener that is still there. The result may be its last reference, which goes with no lock held
/// (engines_so.A4).
type Join = dyn Fn(&Bus) -> Option<Arc<dyn Listener>> + Send;

/// What joins each bus that is opened.
struct Joins {
    listener: Weak<dyn Listener>,
    join: Box<Join>,
}

/// The bus, if it is open, and all that joins one.
struct State {
    bus: Option<Arc<Bus>>,
    joins: Vec<Joins>,
}

static STATE: Mutex<State> = Mutex::new(State {
    bus: None,
    joins: Vec::new(),
});

impl State {
    /// Returns the bus, unless it is a parent's (B3).
    fn own(&self) -> Option<&Arc<Bus>> {
        self.bus.as_ref().filter(|bus| bus.is_own())
    }
}

/// The longest that a caller waits for a round: longer than any takes.
const MOST_MS: u32 = 60_000;

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a listener join the bus, now or when it is opened (B1). Cost: now and then a look at all listeners.
pub fn join<L: Listener + 'static>(listener: &Arc<L>) {
    let mut state = state();
    if let Some(bus) = &state.bus {
        bus.join(listener);
    }
    let weak = Arc::downgrade(listener);
    if state.joins.len() == state.joins.capacity() {
        state.joins.retain(|one| one.listener.strong_count() > 0);
    }
    state.joins.push(Joins {
        listener: weak.clone(),
        join: Box::new(move |bus| {
            let listener = weak.upgrade()?;
            bus.join(&listener);
            Some(listener)
        }),
    });
}

/// What a round brought, as the header has it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Relief {
    size: usize,
    came_back_bytes: i64,
    dropped_bytes: u64,
    asked: u64,
    spared: u64,
    took_ns: u64,
}

// SAFETY: input.I2: numbers alone, the size first.
unsafe impl Sized_ for Relief {}

impl Relief {
    fn of(event: &Event) -> Relief {
        Relief {
            size: 0,
            came_back_bytes: event.came_back_bytes(),
            dropped_bytes: event.rows.iter().map(|row| row.dropped_bytes as u64).sum(),
            asked: event.rows.len() as u64,
            spared: event.spared as u64,
            took_ns: event.took_ns,
        }
    }
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_pressure_open() -> c_int {
    guarded(|| {
        let mut state = state();
        if state.own().is_some() {
            return Ok(0);
        }
        let new = Bus::start(Options::default())
            .map_err(|error| Failure::new(Code::Memory, format!("no bus: {error}")))?;
        new.hook_preloaded();
        let joined: Vec<_> = state.joins.iter().map(|one| (one.join)(&new)).collect();
        let parents = state.bus.replace(Arc::new(new));
        drop(state);
        drop((joined, parents));
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_pressure_close() -> c_int {
    guarded(|| {
        let open = state().bus.take();
        let was = open.as_ref().is_some_and(|bus| bus.is_own());
        // B2: its thread may be in a function of the caller's.
        drop(open);
        Ok(c_int::from(was))
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_pressure_level() -> c_int {
    guarded(|| Ok(state().own().map_or(0, |bus| bus.level() as c_int)))
}

/// Has a round run, and writes what it brought.
///
/// # Safety
/// The structure is there, with its size, or null.
unsafe fn round(
    to: *mut Relief,
    run: impl FnOnce(&Bus) -> Option<Event>,
) -> Result<c_int, Failure> {
    let Some(bus) = state().bus.clone() else {
        let what = "no bus: skinflint_pressure_open first";
        return Err(Failure::new(Code::Argument, what));
    };
    let Some(event) = run(&bus) else {
        return Ok(0);
    };
    if !to.is_null() {
        // SAFETY: as the caller promises.
        unsafe { input::figures(to, Relief::of(&event), "what it brought") }?;
    }
    Ok(1)
}

fn patience(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms.min(MOST_MS)))
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the structure is there, with its size, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_pressure_press(
    level: c_int,
    patience_ms: u32,
    to: *mut Relief,
) -> c_int {
    guarded(|| {
        let level = match level {
            1 => Level::Near,
            2 => Level::High,
            3 => Level::Critical,
            _ => {
                return Err(Failure::argument(format!(
                    "level {level}: SKINFLINT_NEAR, HIGH or CRITICAL"
                )));
            }
        };
        // SAFETY: as the caller promises.
        unsafe { round(to, |bus| bus.press(level, patience(patience_ms))) }
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the structure is there, with its size, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_pressure_relieve(
    bytes: usize,
    patience_ms: u32,
    to: *mut Relief,
) -> c_int {
    guarded(|| {
        if bytes == 0 {
            let what = "relief of 0 bytes; skinflint_pressure_press if it is unknown how many";
            return Err(Failure::argument(what));
        }
        // SAFETY: as the caller promises.
        unsafe { round(to, |bus| bus.relieve(bytes, patience(patience_ms))) }
    })
}
