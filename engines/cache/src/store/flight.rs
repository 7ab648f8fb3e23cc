//! Values that are being made: a thread that misses the same key meanwhile waits for the thread that makes it.
//!
//! ```text
//!   enter(key) ─► not being made ─► Lead ─► look again, make, put in ─► land(value) ──┐
//!              └► being made ─► waits ◄───── the value │ Failed │ Panicked ◄─ dropped ┘
//! ```
//!
//! G1  At most one flight of a key. It ends in one way: with a value, or without, when its lead is dropped.
//! G2  A value is put into the cache before its flight ends, and the thread that leads looks again before it makes: a
//!     thread that missed just before does not make the value once more.
//! G3  A thread that waits holds nothing and leads nothing: a thread that is making a value does not wait for another
//!     one ([`may_wait`]), so two threads that need each other's values make both.
//! G4  Every waiting thread is woken when the flight ends, however it ends.
//! G5  Threads that wait in vain see why: the leading thread's `make` failed, or panicked.
//!
//! Cost: a lock and a walk over what is being made, for each miss; a hit does not come here. The models run this very
//! file, [`Flights::fetch`] whole (`tests/models.rs`).
//!
//! Not here: where values go (`mod`).

use core::cell::Cell;
use core::fmt;

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
    Up,
    Landed(V),
    Lost(Lost),
}

struct Flight<K, V> {
    hash: u64,
    key: K,
    state: Mutex<State<V>>,
    ended: Condvar,
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

    /// Leads the flight of a key, or waits until it ends. Only for a thread that [`may_wait`].
    fn enter(&self, hash: u64, key: &K) -> Entered<'_, K, V> {
        let flight = {
            let mut all = locked(&self.0);
            let found = all.iter().find(|one| one.hash == hash && one.key == *key);
            match found.map(Arc::clone) {
                Some(flight) => flight,
                None => {
                    let flight = Arc::new(Flight {
                        hash,
                        key: key.clone(),
                        state: Mutex::new(State::Up),
                        ended: Condvar::new(),
                    });
                    all.push(Arc::clone(&flight));
                    drop(all);
                    MAKING.with(|making| making.set(making.get() + 1));
                    return Entered::Lead(Lead { of: self, flight });
                }
            }
        };
        let mut state = locked(&flight.state);
        loop {
            match &*state {
                State::Landed(value) => return Entered::Landed(value.clone()),
                State::Lost(why) => return Entered::Lost(*why),
                State::Up => state = waited(&flight.ended, state),
            }
        }
    }
}

impl<K, V> Flights<K, V> {
    /// Returns the number of threads that wait for a flight: each of them gets its result. Not in models.
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
        *locked(&flight.state) = state;
        flight.ended.notify_all();
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
        MAKING.with(|making| making.set(making.get() - 1));
        let is_up = matches!(*locked(&self.flight.state), State::Up);
        if is_up {
            let why = match std::thread::panicking() {
                true => Lost::Panicked,
                false => Lost::Failed,
            };
            self.of.end(&self.flight, State::Lost(why));
        }
    }
}
