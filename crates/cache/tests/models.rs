//! What threads share in caches, decoded forms and the bus, under loom: every order in which a few can meet.
//!
//! ```text
//!   flight.rs, pin.rs, tickets.rs ──(the very files)──► here, with loom's locks and atomics
//! ```
//!
//! M1  A decoded form is a cell that who pins reads and who discards writes: an access that is not ordered fails.
//! M2  A sleeper sleeps until it is woken: a lost wake-up is a deadlock, which loom finds.
//! M3  At most `PREEMPTIONS` per run, which bounds the search.
//!
//! Run by `make model-test`. Not here: who stays in a cache, and what a round asks; each is one thread's at a time.
#![cfg(loom)]
// The crate uses the rest.
#![allow(dead_code)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[path = "../src/store/flight.rs"]
mod flight;
#[path = "../src/pin.rs"]
mod pin;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/bus/tickets.rs"]
mod tickets;

use flight::{Flights, Lost, Turn};
use pin::{Pin, Pins};
use tickets::Tickets;

const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

/// A cache of one key.
struct Cache {
    flights: Flights<u8, usize>,
    entry: Mutex<Option<usize>>,
    made: AtomicUsize,
}

impl Cache {
    fn new() -> Cache {
        Cache {
            flights: Flights::new(),
            entry: Mutex::new(None),
            made: AtomicUsize::new(0),
        }
    }

    fn look(&self) -> Option<usize> {
        *self.entry.lock().expect("no panic")
    }

    /// As `Cache::join`; `make` fails for `None`.
    fn join(&self, make: Option<usize>) -> Result<usize, Option<Lost>> {
        if let Some(value) = self.look() {
            return Ok(value);
        }
        match self.flights.enter(7, &7) {
            Turn::Landed(value) => Ok(value),
            Turn::Lost(why) => Err(Some(why)),
            Turn::Lead(lead) => {
                let value = match self.look() {
                    Some(value) => value,
                    None => {
                        // ORDER: a count, read after all threads are joined.
                        self.made.fetch_add(1, Ordering::Relaxed);
                        let value = make.ok_or(None)?;
                        *self.entry.lock().expect("no panic") = Some(value);
                        value
                    }
                };
                lead.land(value);
                Ok(value)
            }
        }
    }
}

/// Three threads miss the same key: it is made once, and all have it.
#[test]
fn model_a_value_is_made_once() {
    check(|| {
        let cache = Arc::new(Cache::new());
        let others: Vec<_> = (1..3)
            .map(|value| {
                let cache = cache.clone();
                thread::spawn(move || cache.join(Some(value)).expect("made"))
            })
            .collect();
        let mine = cache.join(Some(9)).expect("made");
        for other in others {
            assert_eq!(other.join().expect("ends"), mine);
        }
        // ORDER: both are joined.
        assert_eq!(cache.made.load(Ordering::Relaxed), 1);
    });
}

/// The one who makes it fails: who waited is told and does not sleep for ever; who came later makes it.
#[test]
fn model_a_failure_wakes_those_who_wait() {
    check(|| {
        let cache = Arc::new(Cache::new());
        let other = {
            let cache = cache.clone();
            thread::spawn(move || cache.join(None))
        };
        let mine = cache.join(Some(9));
        let theirs = other.join().expect("ends");
        match (mine, theirs) {
            // He led and failed, with me waiting or gone before; or I made it, and he had it or failed later.
            (Err(Some(Lost::Failed)), Err(None)) | (Ok(9), Err(None) | Ok(9)) => {}
            other => panic!("{other:?}"),
        }
        // Nothing is left over: the next one makes it, or finds it.
        assert_eq!(cache.join(Some(9)), Ok(9));
    });
}

/// A form: how often it was dropped. Read by who pins, written by who drops.
struct Form(UnsafeCell<u32>);

// SAFETY: M1: loom checks just that.
unsafe impl Sync for Form {}
// SAFETY: as above.
unsafe impl Send for Form {}

struct Item {
    pins: Pins<Arc<Form>>,
    list: Mutex<u32>,
    decodes: AtomicUsize,
}

impl Item {
    fn new() -> Item {
        Item {
            pins: Pins::new(),
            list: Mutex::new(0),
            decodes: AtomicUsize::new(0),
        }
    }

    /// As `Discardable::pin`, use, and the drop of `Pinned`.
    fn view(&self) {
        let form = match self.pins.pin() {
            Pin::There(form) => form,
            Pin::Decode(turn) => {
                // ORDER: a count, read after all threads are joined.
                self.decodes.fetch_add(1, Ordering::Relaxed);
                let form = Arc::new(Form(UnsafeCell::new(0)));
                if turn.decoded(form.clone(), 8) {
                    *self.list.lock().expect("no panic") += 1;
                }
                form
            }
        };
        // SAFETY: M1.
        form.0
            .with(|dropped| unsafe { assert_eq!(*dropped, 0, "dropped while it was pinned") });
        self.pins.unpin(1);
    }

    /// As `Discards::discard_while`: strikes, then drops. Whether it dropped.
    fn sweep(&self) -> bool {
        {
            let mut list = self.list.lock().expect("no panic");
            if *list > 0 && !self.pins.stays() {
                *list -= 1;
            }
            assert!(*list <= 1, "listed twice");
        }
        let Some((form, bytes)) = self.pins.discard() else {
            return false;
        };
        assert_eq!(bytes, 8);
        // SAFETY: M1.
        form.0.with_mut(|dropped| unsafe { *dropped += 1 });
        true
    }
}

/// Two threads view while a third sweeps twice: nothing is dropped that is pinned, and one at a time decodes.
#[test]
fn model_what_is_pinned_stays() {
    check(|| {
        let item = Arc::new(Item::new());
        let viewer = {
            let item = item.clone();
            thread::spawn(move || item.view())
        };
        let sweeper = {
            let item = item.clone();
            thread::spawn(move || u32::from(item.sweep()) + u32::from(item.sweep()))
        };
        item.view();
        viewer.join().expect("ends");
        let dropped = sweeper.join().expect("ends");
        // ORDER: all are joined.
        let decodes = item.decodes.load(Ordering::Relaxed) as u32;
        assert_eq!(decodes - u32::from(item.pins.is_decoded()), dropped);
        // What is there is listed, so that it can be found again.
        let listed = *item.list.lock().expect("no panic");
        assert!(listed == 1 || !item.pins.is_decoded(), "lost from the list");
        // Decoded, dropped and decoded again without a strike between: listed once.
        item.sweep();
        item.view();
        item.sweep();
        item.view();
        assert_eq!(*item.list.lock().expect("no panic"), 1);
    });
}

/// Threads post while the bus takes and answers: no ticket is left over after the last wake-up, and each level was in a
/// round.
#[test]
fn model_no_ticket_is_left_over() {
    check(|| {
        let tickets = Arc::new(Tickets::new());
        let posters: Vec<_> = (1..3u32)
            .map(|level| {
                let tickets = tickets.clone();
                thread::spawn(move || tickets.post(level, level as usize * 10))
            })
            .collect();
        let mut rounds = (0, 0);
        let serve = |rounds: &mut (u32, usize)| {
            if let Some(posted) = tickets.take() {
                *rounds = (
                    rounds.0.max(posted.level),
                    rounds.1.max(posted.wanted_bytes),
                );
                tickets.answer(posted.ticket);
            }
        };
        thread::yield_now();
        serve(&mut rounds);
        serve(&mut rounds);
        let drawn: Vec<u64> = posters
            .into_iter()
            .map(|poster| poster.join().expect("ends"))
            .collect();
        // The eventfd is written after each post: one more look comes for sure.
        serve(&mut rounds);
        assert!(
            drawn.iter().all(|ticket| tickets.is_answered(*ticket)),
            "a ticket is left over"
        );
        assert_eq!(rounds, (2, 20), "a level or a wish was lost");
    });
}
