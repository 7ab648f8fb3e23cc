//! Counted values whose edges the library keeps, so that no caller can tell the collector of cycles anything wrong.
//!
//! ```text
//!   skinflint_counted (one count each) ─► Cc<Node> ─► Node { edges: [Cc<Node>], payload, drop }      of one thread
//!                                            cycles of edges that nothing else holds ◄── collect, step
//! ```
//!
//! V1  A number is one count, whose release is told a second time; edges are counts without numbers.
//! V2  Edges are traced by the library; a payload is an address that it passes to `drop`, once.
//! V3  No table and no edge is borrowed while a payload's `drop` runs, so it may use the library.
//! V4  At the end of a thread its numbers are released, and then its cycles end; a `drop` that runs by then and asks for
//!     values of this thread is told that they are gone.
//!
//! Not here: counts and cycles (`skinflint_gc::cc`).

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};

use skinflint_gc::Budget;
use skinflint_gc::cc::{Cc, Cycles, Field, Weak};
use skinflint_gc::counted;
use skinflint_gc::typed::Opaque;

use crate::fault::{Failure, guarded};
use crate::input::{self, Sized_};
use crate::owner::Free;
use crate::table::{Number, Sort, Table, thread_number};

/// What the caller keeps in a value.
struct Payload {
    address: *mut c_void,
    /// Nothing until the value has a number: a call that fails has taken no payload (engines_so.A2).
    drop: Cell<Option<Free>>,
    context: *mut c_void,
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(drop) = self.drop.get() {
            // SAFETY: V2: the caller's function, with its context.
            unsafe { drop(self.context, self.address) };
        }
    }
}

counted! {
    struct Node { edges: Field<Vec<Option<Cc<Node>>>>, payload: Opaque<Payload> }
}

/// A thread's values. The numbers go before the cycles (V4).
struct Own {
    values: RefCell<Table<Cc<Node>>>,
    weak: RefCell<Table<Weak<Node>>>,
    cycles: Cycles,
}

thread_local! {
    static OWN: Own = Own {
        values: RefCell::new(Table::of_thread(Sort::Counted, thread_number())),
        weak: RefCell::new(Table::of_thread(Sort::Weak, thread_number())),
        cycles: Cycles::new(),
    };
}

fn own<R>(work: impl FnOnce(&Own) -> Result<R, Failure>) -> Result<R, Failure> {
    OWN.try_with(work)
        .unwrap_or_else(|_| Err(Failure::ending()))
}

/// Looks at the value of a number. No count changes, which would make the value a candidate of the next collection;
/// `look` drops nothing of the caller's (V3).
fn look<R>(
    number: Number,
    look: impl FnOnce(&Cc<Node>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    own(|own| look(own.values.borrow().get(number)?))
}

/// Returns one count more of the value of a number.
fn counted(number: Number) -> Result<Cc<Node>, Failure> {
    look(number, |value| Ok(value.clone()))
}

/// Gives a value a number. If there is none, the count goes, with nothing borrowed (V3).
fn numbered(value: Cc<Node>) -> Result<Number, Failure> {
    let added = own(|own| Ok(own.values.borrow_mut().add(value)))?;
    added.map_err(|(failure, _)| failure)
}

fn empty_edges(edges: usize) -> Result<Vec<Option<Cc<Node>>>, Failure> {
    let mut list = Vec::new();
    list.try_reserve_exact(edges)
        .map_err(|_| Failure::memory())?;
    list.resize(edges, None);
    Ok(list)
}

fn no_edge(at: usize, edges: usize) -> Failure {
    Failure::argument(format!("edge {at} of {edges}: they count from 0"))
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: `drop` may be called with the payload, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_counted_new(
    payload: *mut c_void,
    edges: usize,
    drop: Option<Free>,
    context: *mut c_void,
) -> Number {
    guarded(|| {
        let edges = Field::new(empty_edges(edges)?);
        let payload = Opaque(Payload {
            address: payload,
            drop: Cell::new(None),
            context,
        });
        let node = Node { edges, payload };
        let number = numbered(own(|own| Ok(own.cycles.cc(node)))?)?;
        look(number, |value| {
            value.payload.0.drop.set(drop);
            Ok(number)
        })
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_counted_share(number: Number) -> Number {
    guarded(|| numbered(counted(number)?))
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_counted_release(number: Number) -> c_int {
    guarded(|| {
        let released = own(|own| own.values.borrow_mut().take(number))?;
        drop(released);
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_counted_payload(number: Number) -> *mut c_void {
    guarded(|| look(number, |value| Ok(value.payload.0.address)))
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_counted_edges(number: Number, edges: *mut usize) -> c_int {
    guarded(|| {
        let len = look(number, |value| Ok(value.edges.borrow().len()))?;
        // SAFETY: as the caller promises.
        unsafe { input::write(edges, len) };
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_counted_resize(number: Number, edges: usize) -> c_int {
    guarded(|| {
        let gone = look(number, |value| {
            let mut field = value.edges.borrow_mut();
            let Some(more) = edges.checked_sub(field.len()) else {
                return Ok(field.split_off(edges));
            };
            field
                .try_reserve_exact(more)
                .map_err(|_| Failure::memory())?;
            field.resize(edges, None);
            Ok(Vec::new())
        })?;
        // V3: with nothing borrowed.
        drop(gone);
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_counted_set(number: Number, at: usize, to: Number) -> c_int {
    guarded(|| {
        let to = (!to.is_null()).then(|| counted(to)).transpose()?;
        let old = look(number, |value| {
            let mut field = value.edges.borrow_mut();
            let edges = field.len();
            let edge = field.get_mut(at).ok_or_else(|| no_edge(at, edges))?;
            Ok(std::mem::replace(edge, to))
        })?;
        // V3: with nothing borrowed.
        drop(old);
        Ok(1)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_counted_edge(
    number: Number,
    at: usize,
    to: *mut Number,
) -> c_int {
    guarded(|| {
        if to.is_null() {
            return Err(Failure::argument("a place for the edge's value: null"));
        }
        let edge = look(number, |value| {
            let field = value.edges.borrow();
            let edge = field.get(at).cloned();
            edge.ok_or_else(|| no_edge(at, field.len()))
        })?;
        let (found, number) = match edge {
            Some(edge) => (1, numbered(edge)?),
            None => (0, std::ptr::null_mut()),
        };
        // SAFETY: as the caller promises.
        unsafe { input::write(to, number) };
        Ok(found)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_counted_same(one: Number, other: Number) -> c_int {
    guarded(|| {
        look(one, |one| {
            look(other, |other| Ok(c_int::from(one.is(other))))
        })
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_weak_new(number: Number) -> Number {
    guarded(|| {
        let weak = look(number, |value| Ok(value.downgrade()))?;
        let added = own(|own| Ok(own.weak.borrow_mut().add(weak)))?;
        added.map_err(|(failure, _)| failure)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_weak_open(weak: Number, to: *mut Number) -> c_int {
    guarded(|| {
        if to.is_null() {
            return Err(Failure::argument("a place for the value: null"));
        }
        let found = own(|own| Ok(own.weak.borrow().get(weak)?.upgrade()))?;
        let (found, number) = match found {
            Some(value) => (1, numbered(value)?),
            None => (0, std::ptr::null_mut()),
        };
        // SAFETY: as the caller promises.
        unsafe { input::write(to, number) };
        Ok(found)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_weak_release(weak: Number) -> c_int {
    guarded(|| {
        drop(own(|own| own.weak.borrow_mut().take(weak))?);
        Ok(1)
    })
}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the place is there, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_counted_collect(destroyed: *mut u64) -> c_int {
    guarded(|| {
        let number = own(|own| Ok(own.cycles.collect()))?;
        // SAFETY: as the caller promises.
        unsafe { input::write(destroyed, number) };
        Ok(1)
    })
}

/// See skinflint_engines.h.
#[unsafe(no_mangle)]
pub extern "C" fn skinflint_counted_step(values: u64) -> c_int {
    guarded(|| {
        if values == 0 {
            return Err(Failure::argument("a step of 0 values does nothing"));
        }
        let budget = Budget {
            edges: values,
            ns: u64::MAX,
        };
        own(|own| Ok(c_int::from(own.cycles.step(budget))))
    })
}

/// Figures of a thread's values, as the header has them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Counts {
    size: usize,
    values: u64,
    candidates: u64,
    collections: u64,
    destroyed: u64,
}

// SAFETY: input.I2: numbers alone, the size first.
unsafe impl Sized_ for Counts {}

/// See skinflint_engines.h.
///
/// # Safety
/// As the header says: the structure is there, with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn skinflint_counted_figures(to: *mut Counts) -> c_int {
    guarded(|| {
        let counts = own(|own| Ok(own.cycles.counts()))?;
        let figures = Counts {
            size: 0,
            values: counts.values,
            candidates: counts.candidates as u64,
            collections: counts.collections,
            destroyed: counts.destroyed,
        };
        // SAFETY: as the caller promises.
        unsafe { input::figures(to, figures, "the figures") }?;
        Ok(1)
    })
}
