//! The state of a decoded form: whether it is there, how many uses pin it, and when it may be dropped.
//!
//! ```text
//!   pin ─► there: + 1 pin ──────────────┐            unpin: − 1 pin, the time
//!       ─► not: Decoding ─► decode ─► + 1 pin┤            discard: no pins? ─► taken out, to be dropped by the caller
//!       ─► another decodes: waits ───────┘            listed: in its set's list, once
//! ```
//!
//! N1  What is pinned is not taken out.
//! N2  One thread decodes; others wait, and are woken however the decoding ends.
//! N3  A form that is there is in its set's list once: the thread that makes it learns whether to put it there, and the
//!     thread that finds it gone strikes it, both under the lock.
//!
//! The models run this very file (`tests/models.rs`).
//!
//! Not here: sources, sets, time (`discard`).

use crate::sync::{Condvar, Mutex, locked, waited};

/// A set's list: the items whose forms are there, or were until just now (N3). `T` is a reference that may be dead.
pub struct List<T>(Mutex<Vec<T>>);

impl<T> List<T> {
    /// Creates an empty list.
    pub fn new() -> List<T> {
        List(Mutex::new(Vec::new()))
    }

    /// Puts an item in.
    pub fn add(&self, item: T) {
        locked(&self.0).push(item);
    }

    /// Returns the items that live.
    pub fn all<U>(&self, live: impl Fn(&T) -> Option<U>) -> Vec<U> {
        locked(&self.0).iter().filter_map(live).collect()
    }

    /// Strikes the items that do not stay; returns those that lived, the struck ones among them.
    pub fn strike<U>(&self, live: impl Fn(&T) -> Option<U>, stays: impl Fn(&U) -> bool) -> Vec<U> {
        let mut list = locked(&self.0);
        let all = list.iter().filter_map(&live).collect();
        list.retain(|item| live(item).is_some_and(|item| stays(&item)));
        all
    }
}

struct State<V> {
    decoded: Option<V>,
    bytes: usize,
    decoding: bool,
    listed: bool,
    pins: usize,
    used_ms: u64,
}

/// The state of one item; `V` is a reference to its form.
pub struct Pins<V> {
    state: Mutex<State<V>>,
    changed: Condvar,
}

/// The result of pinning.
enum Pin<'a, V> {
    /// The form, pinned.
    There(V),
    /// The caller decodes.
    Decode(Decoding<'a, V>),
}

impl<V: Clone> Pins<V> {
    /// Creates the state of a form that is not there.
    pub fn new() -> Pins<V> {
        Pins {
            state: Mutex::new(State {
                decoded: None,
                bytes: 0,
                decoding: false,
                listed: false,
                pins: 0,
                used_ms: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Returns the form, pinned: the one that is there, or what `decode` makes, with its bytes. `list` runs if the item
    /// must be put into the set's list (N3).
    ///
    /// # Errors
    /// The error of `decode`; the next caller tries again.
    pub fn pinned<E>(
        &self,
        decode: impl FnOnce() -> Result<(V, usize), E>,
        list: impl FnOnce(),
    ) -> Result<V, E> {
        let decoding = match self.pin() {
            Pin::There(value) => return Ok(value),
            Pin::Decode(decoding) => decoding,
        };
        let (value, bytes) = decode()?;
        if decoding.decoded(value.clone(), bytes) {
            list();
        }
        Ok(value)
    }

    /// Pins the form, or gives the right to decode it. Waits while another thread decodes.
    fn pin(&self) -> Pin<'_, V> {
        let mut state = locked(&self.state);
        loop {
            if let Some(value) = state.decoded.clone() {
                state.pins += 1;
                return Pin::There(value);
            }
            if !state.decoding {
                break;
            }
            state = waited(&self.changed, state);
        }
        state.decoding = true;
        Pin::Decode(Decoding(self))
    }

    /// Gives a pin back.
    pub fn unpin(&self, now_ms: u64) {
        let mut state = locked(&self.state);
        state.pins -= 1;
        state.used_ms = now_ms;
    }

    /// Takes the form out, with its bytes, unless it is pinned or not there. The caller drops it.
    pub fn discard(&self) -> Option<(V, usize)> {
        let mut state = locked(&self.state);
        if state.pins > 0 {
            return None;
        }
        let value = state.decoded.take()?;
        Some((value, core::mem::take(&mut state.bytes)))
    }

    /// Returns when the form was last used; `None`: it is pinned, or not there, or another thread holds the lock. Does
    /// not wait.
    pub fn idle_since_ms(&self) -> Option<u64> {
        let state = self.state.try_lock().ok()?;
        (state.pins == 0 && state.decoded.is_some()).then_some(state.used_ms)
    }

    /// Reports whether the item stays in its set's list; if not, it is struck (N3). Does not wait: an item whose lock
    /// is held by another thread stays.
    pub fn stays(&self) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return true;
        };
        state.listed = state.decoded.is_some();
        state.listed
    }

    /// Reports whether the form is there.
    pub fn is_decoded(&self) -> bool {
        locked(&self.state).decoded.is_some()
    }

    /// Returns the form, to be looked at: that counts as no use and no pin.
    pub fn look(&self) -> Option<V> {
        locked(&self.state).decoded.clone()
    }

    /// Returns the bytes of the form.
    pub fn bytes(&self) -> usize {
        locked(&self.state).bytes
    }
}

/// The right to decode, which ends however decoding ends (N2).
struct Decoding<'a, V>(&'a Pins<V>);

impl<V> Decoding<'_, V> {
    /// Stores the decoded form, with a first pin. Returns whether it must be put into the set's list (N3).
    fn decoded(&self, value: V, bytes: usize) -> bool {
        let mut state = locked(&self.0.state);
        state.decoded = Some(value);
        state.bytes = bytes;
        state.pins += 1;
        !core::mem::replace(&mut state.listed, true)
    }
}

impl<V> Drop for Decoding<'_, V> {
    fn drop(&mut self) {
        locked(&self.0.state).decoding = false;
        self.0.changed.notify_all();
    }
}
