//! The purger begins and ends, while other threads hint, begin another, or want none.
//!
//! ```text
//!   hint ─► begin ─► made … live … gone        hold ─► lives? ─► none ─► release
//! ```
//!
//! Not here: the thread itself (`services::purger`).

use skinflint_interleave::{Arc, Watched, check, thread};

use super::PREEMPTIONS;
use super::starter::Starter;

const ENOUGH: u32 = 2;

/// The purger is about to end while two threads hint, each at half of what is enough: it stays, or somebody begins
/// another.
///
/// Fails with Relaxed in: the exchange of `Starter::hint`, that of `end`; with a load for the latter.
#[test]
fn a_hint_is_not_forgotten_by_the_purger_that_ends() {
    check(PREEMPTIONS, || {
        let starter = Arc::new(Starter::new());
        assert!(starter.begin());
        let hinters: Vec<_> = (0..2)
            .map(|_| {
                let starter = starter.clone();
                thread::spawn(move || starter.hint(1, ENOUGH) && starter.begin())
            })
            .collect();
        thread::yield_now();
        let ended = starter.end(ENOUGH);
        let begun = hinters
            .into_iter()
            .map(|hinter| u32::from(hinter.join().expect("ends")))
            .sum::<u32>();
        assert_eq!(begun, u32::from(ended), "nobody, or two");
    });
}

/// One thread begins a purger while another holds the state: the purger is seen, or not begun.
///
/// Fails with Relaxed in: the exchange of `Starter::is_held`, that of `hold`, that of `release`; with a load for the
/// first.
#[test]
fn no_purger_begins_while_it_is_held() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Starter::new(), Watched::new(0)));
        let other = shared.clone();
        let program = thread::spawn(move || {
            let (starter, stack) = &*other;
            if starter.begin() {
                // What is done before the holder is told that there is none.
                stack.with_mut(|lives| *lives += 1);
                starter.give_back();
            }
        });
        let (starter, stack) = &*shared;
        starter.hold();
        if !starter.lives() {
            stack.with_mut(|_| ());
        }
        starter.release();
        program.join().expect("ends");
    });
}

/// Two threads begin purgers that end at once: one at a time uses the stack, until the kernel says that it is free.
///
/// Fails with Relaxed in: the load of `tid` in `Starter::begin`, `Starter::give_back`; with that load before the claim.
#[test]
fn one_purger_at_a_time_on_the_stack() {
    check(PREEMPTIONS, || {
        let shared = Arc::new((Starter::new(), Watched::new(0)));
        let hint = |shared: &(Starter, Watched<u32>)| {
            let (starter, stack) = shared;
            if !starter.hint(ENOUGH, ENOUGH) || !starter.begin() {
                return 0;
            }
            starter.made();
            // The purger's whole life.
            stack.with_mut(|lives| *lives += 1);
            starter.live(ENOUGH, |starter| {
                starter.take();
                true
            });
            stack.with_mut(|_| ());
            starter.gone();
            1
        };
        let other = shared.clone();
        let thread = thread::spawn(move || hint(&other));
        let lives = hint(&shared) + thread.join().expect("ends");
        shared.1.with(|count| assert_eq!(*count, lives));
        assert!(lives >= 1);
    });
}
