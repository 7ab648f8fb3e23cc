//! Values that are being made: a thread that misses the same key meanwhile waits for the thread that makes it.
//!
//! ```text
//!   enter(key) ─► not being made ─► Lead ─► look again, make, put in ─► land(value) ──┐
//!              └► being made ─► waits ◄───── the value │ Failed │ Panicked ◄─ dropped ┘
//!   a thread sleeps until then; a future leaves its waker
//! ```
//!
//! G1  At most one flight of a key that a thread leads, and one that a future leads. It ends in one way: with a value, or
//!     without, when its lead is dropped.
//! G2  A value is put into the cache before its flight ends, and the thread that leads looks again before it makes: a
//!     thread that missed just before does not make the value once more.
//! G3  A thread that waits holds nothing and leads nothing: a thread that is making a value does not wait for another
//!     one ([`may_wait`]), so two threads that need each other's values make both.
//! G4  Every waiting thread and future is woken when the flight ends, however it ends. So no wake-up is lost with a
//!     future that is dropped while it waits, and a future that is dropped while it leads hands on the lead.
//! G5  Threads that wait in vain see why: the leading thread's `make` failed, or panicked.
//! G6  A future waits for the thread or the future that makes the value. A thread never waits for a future, which that very
//!     thread may have to poll. What a future polls while it makes a value does not wait, either (G3).
//! G7  Wakers are cloned, woken and dropped while no lock is held. A flight has a place for as many as wait at a time.
//!
//! Cost: a lock and a walk over what is being made, for each miss; a hit does not come here. The models run this very
//! file, [`Flights::fetch`] whole (`tests/models.rs`).
//!
//! Not here: where values go (`mod`).

use core::cell::Cell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::sync::{Arc, Condvar, Mutex, locked, waited};

/// Why the thread that was making a value has none for those that waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// Its `make` returned an error.
    Failed,
    /// Its `make` panicked.
    Panicked,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lost::Failed => "another thread was making this value and failed; ask again",
            Lost::Panicked => "another thread was making this value and panicked; ask again",
        })
    }
}

impl std::error::Error for Lost {}

enum State<V> {
    /// Futures that wait have places here; a place is free again when its future was dropped.
    Up(Vec<Option<Waker>>),
    Landed(V),
    Lost(Lost),
}

struct Flight<K, V> {
    hash: u64,
    key: K,
    by: By,
    state: Mutex<State<V>>,
    ended: Condvar,
}

/// What leads a flight (G6): a thread or a future.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Thread,
    Future,
}

/// The values that are being made for one cache.
pub struct Flights<K, V>(Mutex<Vec<Arc<Flight<K, V>>>>);

/// The result of entering.
enum Entered<'a, K, V> {
    /// No thread makes it: the caller makes it.
    Lead(Lead<'a, K, V>),
    /// Another thread made it meanwhile.
    Landed(V),
    /// Another thread was making it, in vain.
    Lost(Lost),
}

/// Why there is no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined<E> {
    /// The caller's own `make` returned this error.
    Own(E),
    /// Another thread was making it, in vain.
    Lost(Lost),
}

impl<E: fmt::Display> fmt::Display for Joined<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Joined::Own(error) => error.fmt(f),
            Joined::Lost(why) => why.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for Joined<E> {}

#[cfg(not(loom))]
thread_local! {
    /// Number of values that this thread is making, in any cache (G3).
    static MAKING: Cell<u32> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static MAKING: Cell<u32> = Cell::new(0);
}

/// Reports whether the calling thread may wait for a flight (G3).
fn may_wait() -> bool {
    MAKING.with(Cell::get) == 0
}

/// Marks that this thread makes a value.
struct Making;

impl Making {
    fn enter() -> Making {
        MAKING.with(|making| making.set(making.get() + 1));
        Making
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        MAKING.with(|making| making.set(making.get() - 1));
    }
}

impl<K: Eq + Clone, V: Clone> Flights<K, V> {
    /// Creates the list without a flight.
    pub fn new() -> Flights<K, V> {
        Flights(Mutex::new(Vec::new()))
    }

    /// Returns the value of a key that was missed: that of another thread that is making it, or the caller's. `peek`
    /// looks into the cache once more, `make` makes the value and puts it in, `joined` runs if another thread made it.
    ///
    /// # Errors
    /// The error of `make`, or why another thread's `make` was in vain.
    pub fn fetch<E>(
        &self,
        hash: u64,
        key: &K,
        peek: impl FnOnce() -> Option<V>,
        make: impl FnOnce() -> Result<V, E>,
        joined: impl FnOnce(),
    ) -> Result<V, Joined<E>> {
        if !may_wait() {
            return make().map_err(Joined::Own);
        }
        match self.enter(hash, key) {
            Entered::Landed(value) => {
                joined();
                Ok(value)
            }
            Entered::Lost(why) => Err(Joined::Lost(why)),
            Entered::Lead(lead) => {
                let _making = Making::enter();
                // G2: it may have been put in since.
                let value = match peek() {
                    Some(value) => value,
                    None => make().map_err(Joined::Own)?,
                };
                lead.land(value.clone());
                Ok(value)
            }
        }
    }

    /// Does what [`Flights::fetch`] does for a future, which waits without a thread. `make` is polled if this future
    /// leads; of futures that waited in vain one leads next.
    ///
    /// # Errors
    /// The error of `make`.
    pub async fn fetch_async<E>(
        &self,
        hash: u64,
        key: &K,
        peek: impl Fn() -> Option<V>,
        make: impl Future<Output = Result<V, E>>,
        joined: impl FnOnce(),
    ) -> Result<V, E> {
        let mut make = pin!(make);
        let make = poll_fn(|context| {
            let _making = Making::enter();
            make.as_mut().poll(context)
        });
        if !may_wait() {
            return make.await;
        }
        loop {
            match self.find_or_lead(hash, key, By::Future) {
                Ok(lead) => {
                    // G2.
                    let value = match peek() {
                        Some(value) => value,
                        None => make.await?,
                    };
                    lead.land(value.clone());
                    return Ok(value);
                }
                Err(flight) => {
                    if let Ok(value) = (Wait { flight, at: None }).await {
                        joined();
                        return Ok(value);
                    }
                }
            }
        }
    }

    /// Leads a flight of a key, if there is none that the caller may wait for (G6).
    fn find_or_lead(
        &self,
        hash: u64,
        key: &K,
        by: By,
    ) -> Result<Lead<'_, K, V>, Arc<Flight<K, V>>> {
        let mut all = locked(&self.0);
        let is_it = |one: &&Arc<Flight<K, V>>| {
            one.hash == hash && (by == By::Future || one.by == by) && one.key == *key
        };
        if let Some(flight) = all.iter().find(is_it) {
            return Err(Arc::clone(flight));
        }
        let flight = Arc::new(Flight {
            hash,
            key: key.clone(),
            by,
            state: Mutex::new(State::Up(Vec::new())),
            ended: Condvar::new(),
        });
        all.push(Arc::clone(&flight));
        Ok(Lead { of: self, flight })
    }

    /// Leads the flight of a key, or waits until it ends. Only for a thread that [`may_wait`].
    fn enter(&self, hash: u64, key: &K) -> Entered<'_, K, V> {
        let flight = match self.find_or_lead(hash, key, By::Thread) {
            Ok(lead) => return Entered::Lead(lead),
            Err(flight) => flight,
        };
        let mut state = locked(&flight.state);
        loop {
            match &*state {
                State::Landed(value) => return Entered::Landed(value.clone()),
                State::Lost(why) => return Entered::Lost(*why),
                State::Up(_) => state = waited(&flight.ended, state),
            }
        }
    }
}

impl<K, V> Flights<K, V> {
    /// Returns the number of threads and futures that wait for a flight: each of them gets its result. Not in models.
    #[cfg(not(loom))]
    pub fn waiting(&self) -> usize {
        let all = locked(&self.0);
        // One reference is this list's, one the lead's.
        all.iter().map(|one| Arc::strong_count(one) - 2).sum()
    }

    /// Ends a flight (G1, G4).
    fn end(&self, flight: &Arc<Flight<K, V>>, state: State<V>) {
        let mut all = locked(&self.0);
        let at = all.iter().position(|one| Arc::ptr_eq(one, flight));
        let gone = at.map(|at| all.swap_remove(at));
        if all.is_empty() {
            // What a burst of misses needed is not kept.
            *all = Vec::new();
        }
        drop(all);
        drop(gone);
        let before = core::mem::replace(&mut *locked(&flight.state), state);
        flight.ended.notify_all();
        if let State::Up(wakers) = before {
            wake_all(wakers.into_iter().flatten());
        }
    }
}

/// Wakes all, also where one of them panics (G4); the first panic then goes on, unless the thread panics already.
fn wake_all(wakers: impl Iterator<Item = Waker>) {
    let mut first = None;
    for waker in wakers {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            match first {
                None => first = Some(payload),
                // Dropping it may panic.
                Some(_) => core::mem::forget(payload),
            }
        }
    }
    match first {
        Some(payload) if std::thread::panicking() => core::mem::forget(payload),
        Some(payload) => resume_unwind(payload),
        None => {}
    }
}

/// The right and the duty to make a value. Dropped without [`Lead::land`], the flight is lost.
struct Lead<'a, K, V> {
    of: &'a Flights<K, V>,
    flight: Arc<Flight<K, V>>,
}

impl<K, V> Lead<'_, K, V> {
    /// Ends the flight with the value, which is in the cache if that took it (G2).
    fn land(self, value: V) {
        self.of.end(&self.flight, State::Landed(value));
    }
}

impl<K, V> Drop for Lead<'_, K, V> {
    fn drop(&mut self) {
        let is_up = matches!(*locked(&self.flight.state), State::Up(_));
        if is_up {
            let why = match std::thread::panicking() {
                true => Lost::Panicked,
                false => Lost::Failed,
            };
            self.of.end(&self.flight, State::Lost(why));
        }
    }
}

/// A future's wait for a flight. Dropped, it gives its place back (G7).
struct Wait<K, V> {
    flight: Arc<Flight<K, V>>,
    at: Option<usize>,
}

impl<K, V: Clone> Future for Wait<K, V> {
    type Output = Result<V, Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waker = Some(context.waker().clone());
        let Wait { flight, at: place } = &mut *self;
        let result = match &mut *locked(&flight.state) {
            State::Landed(value) => Poll::Ready(Ok(value.clone())),
            State::Lost(why) => Poll::Ready(Err(*why)),
            State::Up(wakers) => {
                let free = || wakers.iter().position(Option::is_none);
                let at = place.or_else(free).unwrap_or(wakers.len());
                match wakers.get_mut(at) {
                    Some(place) => core::mem::swap(place, &mut waker),
                    None => wakers.push(waker.take()),
                }
                *place = Some(at);
                Poll::Pending
            }
        };
        drop(waker);
        result
    }
}

impl<K, V> Drop for Wait<K, V> {
    fn drop(&mut self) {
        let waker = match (&mut *locked(&self.flight.state), self.at) {
            (State::Up(wakers), Some(at)) => wakers[at].take(),
            _ => None,
        };
        drop(waker);
    }
}
