//! Which entries come in, wait in the window and go for others, each case worked out by hand.
//!
//! ```text
//!   sizes that are said, requests that are counted ─► insert ─► which keys are there
//! ```
//!
//! P1  Values say what they weigh, so each bound is met to the byte. Hashes differ from run to run: an effect of a
//!     counter that a key shares with others is not judged.
//!
//! Not here: traces and sums (`store`), budgets and blocks (`edges`).

use std::sync::Arc;
use std::time::Duration;

use skinflint_cache::{Cache, HeapBytes};

/// A value that says that it has this many bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Of(usize);

impl HeapBytes for Of {
    fn heap_bytes(&self) -> usize {
        self.0
    }
}

const LIMIT: usize = 1 << 20;
/// More than the window of the test's cache has: a twentieth is 52,428 bytes. 17 of them fill the cache.
const LARGE: usize = 60_000;

fn cache(limit: usize) -> Arc<Cache<u64, Of>> {
    Cache::named("contests").limit_bytes(limit).build()
}

fn put(cache: &Cache<u64, Of>, key: u64, bytes: usize) -> bool {
    let kept = cache.insert(key, Of(bytes), Duration::ZERO);
    cache.check().expect("sums and the bound");
    kept
}

/// Reports whether a key is there; does not count as a request.
fn has(cache: &Cache<u64, Of>, key: u64) -> bool {
    let mut found = false;
    cache.each(|other, _| found |= *other == key);
    found
}

/// Asks for a key that is not there.
fn miss(cache: &Cache<u64, Of>, key: u64, times: usize) {
    assert!((0..times).all(|_| cache.get(&key).is_none()));
}

#[test]
fn half_of_what_is_allowed_comes_in_and_a_byte_more_does_not() {
    let cache = cache(LIMIT);
    assert!(put(&cache, 1, LIMIT / 2));
    assert!(has(&cache, 1));
    assert!(!put(&cache, 2, LIMIT / 2 + 1));
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.refused, stats.evicted), (1, 1, 0));
    assert!(has(&cache, 1), "what is too large displaces nothing");
}

#[test]
fn a_cache_whose_tables_alone_are_too_much_has_neither_entry_nor_table() {
    let cache = cache(100);
    for key in 0..10 {
        assert!(!put(&cache, key, 0));
        assert_eq!((cache.stats().entries, cache.bytes()), (0, 0));
    }
}

#[test]
fn a_small_limit_holds_whatever_the_number_of_shards() {
    for limit in [1_000, 2_000, 4_096, 8_192, 20_000, 40_000] {
        for shards in [1, 4, 64] {
            let cache: Arc<Cache<u64, Of>> = Cache::named("small")
                .limit_bytes(limit)
                .shards(shards)
                .build();
            for key in 0..2_000 {
                put(&cache, key, 100 + key as usize % 7 * 30);
                let stats = cache.stats();
                assert!(
                    stats.bytes + stats.own_bytes <= limit,
                    "{shards}: {stats:?}"
                );
            }
            assert!(
                limit < 4_096 || cache.stats().entries > 0,
                "{limit}, {shards}"
            );
        }
    }
}

#[test]
fn entries_of_no_bytes_come_to_an_end_with_the_room_for_tables() {
    // Their window never has too much, so main is empty when the tables are full: the oldest of the window goes.
    let cache = cache(16 << 10);
    for key in 0..1_000 {
        put(&cache, key, 0);
    }
    let stats = cache.stats();
    assert_eq!(stats.inserted, 1_000);
    assert_eq!(
        stats.inserted,
        stats.entries as u64 + stats.evicted + stats.refused
    );
    assert!(stats.evicted > 800, "{stats:?}");
}

#[test]
fn new_ones_wait_in_the_window_and_those_in_main_outlive_a_scan() {
    const EACH: usize = 16_000;
    let cache = cache(LIMIT);
    // Asked for often, so that no entry of a scan is worth them.
    for key in 0..40 {
        put(&cache, key, EACH);
        for _ in 0..3 {
            assert!(cache.get(&key).is_some());
        }
    }
    for key in 1_000..1_060 {
        miss(&cache, key, 1);
        put(&cache, key, EACH);
    }
    assert!(
        (0..40).all(|key| has(&cache, key)),
        "a scan displaces nothing that was asked for more often"
    );
    // The window has room for three of them: they are there until three more came.
    for newest in 1_060..1_070 {
        miss(&cache, newest, 1);
        put(&cache, newest, EACH);
        let there: Vec<bool> = (newest - 2..=newest).map(|key| has(&cache, key)).collect();
        assert_eq!(there, [true; 3], "at {newest}");
    }
}

#[test]
fn a_small_one_displaces_a_large_one_that_is_not_asked_for() {
    let cache = cache(LIMIT);
    for key in 0..17 {
        assert!(put(&cache, key, LARGE));
    }
    assert_eq!(cache.stats().entries, 17, "all are in main, and fill it");
    assert!(put(&cache, 100, 30_000));
    assert!(has(&cache, 100), "it has the window to itself");
    assert!(!has(&cache, 0), "the oldest goes");
    assert_eq!((cache.stats().entries, cache.stats().evicted), (17, 1));
}

#[test]
fn two_requests_are_needed_against_those_with_none_and_are_enough() {
    let cache = cache(LIMIT);
    for key in 0..17 {
        assert!(put(&cache, key, LARGE));
    }
    miss(&cache, 100, 1);
    assert!(!put(&cache, 100, LARGE), "once is what a scan asks");
    miss(&cache, 200, 2);
    assert!(put(&cache, 200, LARGE));
    assert!(has(&cache, 200) && !has(&cache, 100));
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.refused, stats.evicted), (17, 1, 1));
}

#[test]
fn what_was_used_since_the_hand_passed_goes_for_nobody() {
    let cache = cache(LIMIT);
    // Requests count from the first entry on.
    put(&cache, 1_000, LARGE);
    assert!(cache.remove(&1_000));
    let cold = |from: u64, to: u64| {
        for key in from..to {
            miss(&cache, key, 1);
            assert!(put(&cache, key, LARGE));
        }
    };
    cold(0, 3);
    // Of all entries it has the fewest requests for its bytes, but they were hits.
    assert!(put(&cache, 500, 200_000));
    assert!(cache.get(&500).is_some() && cache.get(&500).is_some());
    cold(3, 14);
    assert_eq!(cache.stats().entries, 15);
    miss(&cache, 600, 8);
    assert!(put(&cache, 600, LARGE));
    assert!(has(&cache, 500), "it was used");
    assert!(has(&cache, 600), "one of the cold ones went for it");
    assert_eq!(cache.stats().entries, 15);
}
