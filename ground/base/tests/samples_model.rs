//! Threads meet in a line of sampled addresses, in every order.
//!
//! ```text
//!   one line   here: put a, take a      there: put b, take b          both bits clear each other's, or not
//! ```
//!
//! L1  What a thread put, it finds (samples.M1), whatever others put and take meanwhile; under loom a line has two places.
//!
//! `make model-test` runs the scenarios under loom, in every order; `cargo test` runs them some hundred times on real
//! threads (`skinflint_interleave`), which proves no ordering.
//!
//! Not here: full lines and tables (the tests of samples.rs).

use skinflint_base::samples::{Found, Line, Spread};
use skinflint_interleave::{Arc, check, thread};

const PREEMPTIONS: usize = 3;

/// Two addresses of a line, each put and taken by a thread of its own, so many times.
fn neighbours(here: u64, there: u64, times: usize) {
    check(PREEMPTIONS, move || {
        let line = Arc::new(Line::new());
        let theirs = line.clone();
        let turns = move |line: &Line, addr| {
            for _ in 0..times {
                let one = Spread::of(addr);
                assert!(line.put(one), "two places");
                assert_eq!(line.take(one), Found::Taken, "{addr:x}");
            }
        };
        let other = thread::spawn(move || turns(&theirs, there));
        turns(&line, here);
        other.join().expect("the other thread ends");
        assert_eq!(line.take(Spread::of(here)), Found::Nowhere);
    });
}

#[test]
fn samples_model_neighbours() {
    neighbours(0x1000, 0x2010, 1);
}

/// Two addresses with one bit: who takes the one must not clear the other's.
#[test]
fn samples_model_neighbours_of_one_bit() {
    let header = |addr: u64| addr.wrapping_mul(skinflint_base::random::STEP) >> 32 & 31;
    let other = (1..)
        .map(|n| 0x1000 + n * 16)
        .find(|addr| header(*addr) == header(0x1000));
    neighbours(0x1000, other.expect("one in 32"), 1);
}

/// A block changes hands: the thread that releases it knows of its acquisition.
#[test]
fn samples_model_a_block_is_released_elsewhere() {
    check(PREEMPTIONS, || {
        let line = Arc::new(Line::new());
        assert!(line.put(Spread::of(0x1000)));
        let theirs = line.clone();
        let other = thread::spawn(move || {
            assert_eq!(theirs.take(Spread::of(0x1000)), Found::Taken);
        });
        assert!(line.put(Spread::of(0x2010)));
        assert_eq!(line.take(Spread::of(0x2010)), Found::Taken);
        other.join().expect("the other thread ends");
    });
}
