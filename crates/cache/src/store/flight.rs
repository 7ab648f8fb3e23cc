//! Values that are being made: who misses the same key meanwhile waits for the one who makes it.
//!
//! ```text
//!   enter(key) ─► nobody makes it ─► Lead ─► look again, make, put in ─► land(value) ─┐
//!              └► somebody does ─► waits ◄── the value │ Failed │ Panicked ◄─ dropped ┘
//! ```
//!
//! G1  At most one flight of a key. It ends in one way: with a value, or without, when its lead is dropped.
//! G2  A value is put into the cache before its flight ends, and who leads looks again before he makes: a thread that
//!     missed just before does not make it once more.
//! G3  Who waits holds nothing and leads nothing: a thread that is making a value does not wait for another one
//!     ([`may_wait`]), so two that need each other's make both.
//! G4  Everybody who waits is woken when the flight ends, however it ends.
//! G5  Threads that wait in vain see why: his make failed, or panicked.
//!
//! Cost: a lock and a walk over what is being made, for each miss; a hit is not here.
//! Not here: where values go (`mod`).

use core::cell::Cell;
use core::fmt;

use crate::sync::{Arc, Condvar, Mutex, locked, waited};

/// Why the one who was making it has no value for those who waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// His make returned an error.
    Failed,
    /// It panicked.
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

/// What is being made for one cache.
pub struct Flights<K, V>(Mutex<Vec<Arc<Flight<K, V>>>>);

/// What came of entering.
pub enum Turn<'a, K, V> {
    /// Nobody makes it: the caller is to.
    Lead(Lead<'a, K, V>),
    /// Somebody made it meanwhile.
    Landed(V),
    /// Somebody was making it, in vain.
    Lost(Lost),
}

thread_local! {
    /// Values that this thread is making, in whatever cache (G3).
    static MAKING: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread may wait for a flight (G3).
pub fn may_wait() -> bool {
    MAKING.with(Cell::get) == 0
}

impl<K: Eq + Clone, V: Clone> Flights<K, V> {
    /// None.
    pub fn new() -> Flights<K, V> {
        Flights(Mutex::new(Vec::new()))
    }

    /// Leads the flight of a key, or waits until it ends. Only for a thread that [`may_wait`].
    pub fn enter(&self, hash: u64, key: &K) -> Turn<'_, K, V> {
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
                    return Turn::Lead(Lead { of: self, flight });
                }
            }
        };
        let mut state = locked(&flight.state);
        loop {
            match &*state {
                State::Landed(value) => return Turn::Landed(value.clone()),
                State::Lost(why) => return Turn::Lost(*why),
                State::Up => state = waited(&flight.ended, state),
            }
        }
    }
}

impl<K, V> Flights<K, V> {
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
pub struct Lead<'a, K, V> {
    of: &'a Flights<K, V>,
    flight: Arc<Flight<K, V>>,
}

impl<K, V> Lead<'_, K, V> {
    /// The value is there, and in the cache if that took it (G2).
    pub fn land(self, value: V) {
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
