//! State that threads share in caches, decoded forms and the bus: each step, met in every order by a few threads.
//!
//! ```text
//!   flight.rs  pin.rs  tickets.rs ──(the very files)──► here ─┬─ make model-test: all orders
//!                                                             └─ cargo test: real threads
//! ```
//!
//! M1  A decoded form is a cell that pinning threads read and discarding threads write: an access that is not ordered
//!     fails.
//! M2  A sleeper sleeps until it is woken: a lost wake-up is a deadlock, which loom finds.
//! M3  At most `PREEMPTIONS` per run, which bounds the search.
//! M4  Nothing here is a step of its own: scenarios call the files above. The comment of a model says with which
//!     changes it was seen to fail.
//!
//! `make model-test` runs them under loom, in every order; `cargo test` runs the same scenarios some hundred times on
//! real threads (`skinflint_interleave`), which proves no ordering.
//!
//! Not here: which entries stay in a cache, and what a round asks; each is one thread's at a time. A budget's sum has
//! no model: it is one number, and a lock for the thread that settles.
// The crate uses the rest.
#![allow(dead_code)]

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::task::Wake;

use skinflint_interleave::{Arc, Mutex, Watched, check, thread};

#[path = "../src/store/flight.rs"]
mod flight;
#[path = "../src/pin.rs"]
mod pin;
#[path = "../src/sync.rs"]
mod sync;
#[path = "../src/bus/tickets.rs"]
mod tickets;

use flight::{Flights, Joined, Lost};
use pin::{List, Pins};
use tickets::Tickets;

const PREEMPTIONS: usize = 3;

/// A cache of one key.
struct Cache {
    flights: Flights<u8, usize>,
    entry: Mutex<Option<usize>>,
    made: Mutex<usize>,
}

impl Cache {
    fn new() -> Cache {
        Cache {
            flights: Flights::new(),
            entry: Mutex::new(None),
            made: Mutex::new(0),
        }
    }

    fn look(&self) -> Option<usize> {
        *self.entry.lock().expect("no panic")
    }

    /// Looks the key up; `make` fails for `None`.
    fn join(&self, make: Option<usize>) -> Result<usize, Joined<()>> {
        if let Some(value) = self.look() {
            return Ok(value);
        }
        let make = || {
            *self.made.lock().expect("no panic") += 1;
            let value = make.ok_or(())?;
            *self.entry.lock().expect("no panic") = Some(value);
            Ok(value)
        };
        self.flights.fetch(7, &7, || self.look(), make, || ())
    }
}

/// Three threads miss the same key: it is made once, and all have it.
///
/// Fails if `Flights::fetch` does not look again before it makes, or if the end of a flight does not wake the waiting
/// threads.
#[test]
fn a_value_is_made_once() {
    check(PREEMPTIONS, || {
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
        assert_eq!(*cache.made.lock().expect("no panic"), 1);
    });
}

/// The thread that makes the value fails: a thread that waited is told and does not sleep for ever; one that came later
/// makes it.
///
/// Fails if the end of a flight does not wake the waiting threads.
#[test]
fn a_failure_wakes_those_who_wait() {
    check(PREEMPTIONS, || {
        let cache = Arc::new(Cache::new());
        let other = {
            let cache = cache.clone();
            thread::spawn(move || cache.join(None))
        };
        let mine = cache.join(Some(9));
        let theirs = other.join().expect("ends");
        match (mine, theirs) {
            // The other led and failed, with this thread waiting or gone before; or this thread made it, and the other
            // had it or failed later.
            (Err(Joined::Lost(Lost::Failed)), Err(Joined::Own(()))) => {}
            (Ok(9), Err(Joined::Own(())) | Ok(9)) => {}
            other => panic!("{other:?}"),
        }
        // Nothing is left over: the next thread makes it, or finds it.
        assert_eq!(cache.join(Some(9)), Ok(9));
    });
}

/// Wakes the thread that polls.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future to its end, and sleeps between.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(std::sync::Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

impl Cache {
    /// Looks the key up by a future; `fails`: its `make` returns an error.
    async fn join_async(&self, make: usize, fails: bool) -> Result<usize, ()> {
        if let Some(value) = self.look() {
            return Ok(value);
        }
        let make = async {
            *self.made.lock().expect("no panic") += 1;
            if fails {
                return Err(());
            }
            *self.entry.lock().expect("no panic") = Some(make);
            Ok(make)
        };
        let look = || self.look();
        self.flights.fetch_async(7, &7, look, make, || ()).await
    }
}

/// Two futures on two threads miss the same key: it is made once, and both have it.
///
/// Fails if the end of a flight does not wake futures, or if `Flights::fetch_async` does not look again before it makes.
#[test]
fn futures_have_a_value_made_once() {
    check(PREEMPTIONS, || {
        let cache = Arc::new(Cache::new());
        let others = [
            {
                let cache = cache.clone();
                thread::spawn(move || block_on(cache.join_async(1, false)).expect("made"))
            },
            {
                let cache = cache.clone();
                thread::spawn(move || block_on(cache.join_async(2, false)).expect("made"))
            },
        ];
        let values = others.map(|other| other.join().expect("ends"));
        assert_eq!(values[0], values[1]);
        assert_eq!(*cache.made.lock().expect("no panic"), 1);
        assert_eq!(cache.join(Some(9)), Ok(values[0]));
    });
}

/// A thread fails while a future waits for it: the future leads next. A thread does not wait for the future (flight.G6).
///
/// Fails if the end of a flight does not wake futures.
#[test]
fn a_lost_lead_goes_to_a_future() {
    check(PREEMPTIONS, || {
        let cache = Arc::new(Cache::new());
        let other = {
            let cache = cache.clone();
            thread::spawn(move || cache.join(None))
        };
        let mine = block_on(cache.join_async(9, false));
        assert_eq!(mine, Ok(9));
        assert!(matches!(
            other.join().expect("ends"),
            Ok(9) | Err(Joined::Own(()))
        ));
    });
}

/// Two futures wait or lead while a third fails: none of them sleeps for ever.
///
/// Fails if the end of a flight wakes no future, or only one.
#[test]
fn a_future_that_fails_wakes_the_others() {
    check(PREEMPTIONS, || {
        let cache = Arc::new(Cache::new());
        let others = [1, 2].map(|value| {
            let cache = cache.clone();
            thread::spawn(move || block_on(cache.join_async(value, value == 1)))
        });
        let mine = block_on(cache.join_async(9, false)).expect("made");
        let [failed, other] = others.map(|other| other.join().expect("ends"));
        assert!(failed.is_err() || failed == Ok(mine));
        assert_eq!(other, Ok(mine));
    });
}

/// A form that counts how often it was dropped. Pinning threads read it, discarding threads write it.
type Form = Arc<Watched<u32>>;

struct Item {
    pins: Pins<Form>,
    list: List<()>,
    decodes: Mutex<u32>,
}

impl Item {
    fn new() -> Item {
        Item {
            pins: Pins::new(),
            list: List::new(),
            decodes: Mutex::new(0),
        }
    }

    /// Uses the form.
    fn view(&self) {
        let decode = || {
            *self.decodes.lock().expect("no panic") += 1;
            Ok::<_, ()>((Arc::new(Watched::new(0)), 8))
        };
        let form = self
            .pins
            .pinned(decode, || self.list.add(()))
            .expect("decoded");
        // M1.
        form.with(|dropped| assert_eq!(*dropped, 0, "dropped while it was pinned"));
        self.pins.unpin(1);
    }

    /// Strikes, then drops. Returns whether it dropped.
    fn sweep(&self) -> bool {
        let listed = self.list.strike(|()| Some(()), |()| self.pins.stays());
        assert!(listed.len() <= 1, "listed twice");
        let Some((form, bytes)) = self.pins.discard() else {
            return false;
        };
        assert_eq!(bytes, 8);
        // M1.
        form.with_mut(|dropped| *dropped += 1);
        true
    }

    fn listed(&self) -> usize {
        self.list.all(|()| Some(())).len()
    }
}

/// Two threads view while a third sweeps twice: nothing that is pinned is dropped, and one thread at a time decodes.
///
/// Fails if `Pins::discard` takes what is pinned, if `stays` keeps what it finds gone, if `decoded` says that it must
/// be listed though it is, or if the end of a turn wakes no thread.
#[test]
fn what_is_pinned_stays() {
    check(PREEMPTIONS, || {
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
        let decodes = *item.decodes.lock().expect("no panic");
        assert_eq!(decodes - u32::from(item.pins.is_decoded()), dropped);
        // A form that is there is listed, so that it can be found again.
        assert!(
            item.listed() == 1 || !item.pins.is_decoded(),
            "lost from the list"
        );
        // Decoded, dropped and decoded again without a strike between: listed once.
        item.sweep();
        item.view();
        item.sweep();
        item.view();
        assert_eq!(item.listed(), 1);
    });
}

/// Threads post while the bus takes and answers: no ticket is left over after the last wake-up, each level was in a
/// round, and the thread that takes a level sees what the posting thread noted before it posted.
///
/// Fails with Relaxed in: the exchange of the level in `Tickets::post`, that in `take`; with a `take` that answers only
/// tickets that had a level.
#[test]
fn no_ticket_is_left_over() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Tickets::new(), [0; 2].map(Watched::new)));
        let posters: Vec<_> = (1..3u32)
            .map(|level| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.1[level as usize - 1].with_mut(|noted| *noted = level);
                    shared.0.post(level, level as usize * 10)
                })
            })
            .collect();
        let (tickets, notes) = &*shared;
        let mut rounds = (0, 0);
        let serve = |rounds: &mut (u32, usize)| {
            if let Some(posted) = tickets.take() {
                if posted.level > 0 {
                    notes[posted.level as usize - 1].with(|noted| assert_eq!(*noted, posted.level));
                }
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
        // The eventfd is written after each post: one more look comes for certain.
        serve(&mut rounds);
        assert!(
            drawn.iter().all(|ticket| tickets.look(*ticket).is_ok()),
            "a ticket is left over"
        );
        assert_eq!(rounds, (2, 20), "a level or a wish was lost");
    });
}

/// A refused thread looks whether it is answered, and goes to sleep if not, while the bus answers: the number at which
/// it would sleep has changed then, so it does not. A thread that is answered sees what the round dropped.
///
/// Fails with Relaxed in: both exchanges of `Tickets::answer`, both loads of `look`; with `look` asking before it reads the
/// number.
#[test]
fn who_sleeps_for_an_answer_is_woken() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Tickets::new(), Watched::new(0)));
        let ticket = shared.0.post(1, 10);
        // The bus is this thread: once it has yielded, loom never lets the thread that made an atomic see the value
        // before.
        let refused = {
            let shared = shared.clone();
            thread::spawn(move || {
                let looked = shared.0.look(ticket);
                if looked.is_ok() {
                    shared.1.with(|dropped| assert_eq!(*dropped, 10));
                }
                looked
            })
        };
        let (tickets, dropped) = &*shared;
        let posted = tickets.take().expect("posted");
        // The round.
        dropped.with_mut(|dropped| *dropped += 10);
        tickets.answer(posted.ticket);
        let looked = refused.join().expect("ends");
        assert_eq!(tickets.look(ticket), Ok(()));
        // No ticket has the number that follows the last.
        assert_ne!(looked, tickets.look(ticket + 1), "sleeps for ever");
    });
}
