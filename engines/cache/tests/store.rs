//! Caches: bounds in bytes, expiry, pressure, budgets, sums, threads.
//!
//! ```text
//!   seeded traces ─► Cache ─► check(): sums and bounds      clock moved by hand
//! ```
//!
//! P1  Seeds are fixed; sums are checked after each phase, by a walk.
//!
//! Not here: hit ratios beside other crates (`bench/cache`), the bus with a real kernel (`squeeze`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use skinflint_base::random::Random;
use skinflint_cache::bus::Ask;
use skinflint_cache::store::{Clock, PLACEBO_LOOKUPS, Stats};
use skinflint_cache::{Budget, Cache, HeapBytes, Level, Listener, Verdict};

type Bytes = Arc<[u8]>;

/// The bound of a wait that ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn value(bytes: usize) -> Bytes {
    vec![7u8; bytes].into()
}

fn next(seed: &mut u64) -> u64 {
    let mut random = Random::new(*seed);
    let drawn = random.bits() >> 33;
    *seed = random.seed();
    drawn
}

/// Returns keys of which key n is asked for about 1/n as often as the first.
fn zipf(seed: &mut u64, keys: u64) -> u64 {
    let at = (next(seed) % (1 << 30)) as f64 / (1u64 << 30) as f64;
    ((keys as f64).powf(at) - 1.0) as u64
}

fn sums(cache: &Cache<u64, Bytes>) {
    cache.check().unwrap();
    let s = cache.stats();
    let gone = s.evicted + s.expired + s.released + s.removed + s.refused;
    assert_eq!(s.inserted, s.entries as u64 + gone, "{s:?}");
    assert!(
        s.bytes + s.own_bytes <= s.allowed_bytes || s.entries == 0,
        "{s:?}"
    );
}

fn ask(level: Level) -> Ask {
    Ask {
        level,
        wanted_bytes: 0,
        until: Instant::now() + Duration::from_secs(1),
        waiting: [0; 8],
    }
}

/// Waits for what another thread does: no longer than a minute.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_bound_is_in_bytes_and_holds_after_each_insertion() {
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("bytes").limit_bytes(1 << 20).build();
    let mut seed = 1;
    for step in 0..20_000u64 {
        let size = match next(&mut seed) % 100 {
            0 => 200_000,
            1..10 => 20_000,
            _ => next(&mut seed) as usize % 2_000,
        };
        cache.get_or_make(zipf(&mut seed, 5_000), |_| value(size));
        let s = cache.stats();
        assert!(s.bytes + s.own_bytes <= 1 << 20, "step {step}: {s:?}");
        if step % 1_000 == 0 {
            sums(&cache);
        }
    }
    sums(&cache);
    let s = cache.stats();
    // It is used: more than half is there, and it hits.
    assert!(s.bytes > 512 << 10 && s.hit_ratio() > 0.2, "{s}");
    assert_eq!(s.hits + s.misses, 20_000);
    // A value larger than half is not taken in, and displaces none.
    let entries = s.entries;
    assert!(!cache.insert(1 << 40, value(600 << 10), Duration::ZERO));
    assert_eq!(cache.stats().entries, entries);
    sums(&cache);
}

#[test]
fn a_scan_displaces_little_and_a_loop_keeps_what_fits() {
    // 1,000 entries of about 1,000 bytes fit.
    let of = |cache: &Cache<u64, Bytes>, key| {
        let before = cache.stats().hits;
        cache.get_or_make(key, |_| value(900));
        cache.stats().hits > before
    };
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("scan").limit_bytes(1_100_000).build();
    for _ in 0..5 {
        for key in 0..800 {
            of(&cache, key);
        }
    }
    for key in 1_000_000..1_020_000 {
        of(&cache, key);
    }
    let kept = (0..800).filter(|key| of(&cache, *key)).count();
    assert!(kept > 700, "{kept} of 800 outlived a scan of 20,000");
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("loop").limit_bytes(1_100_000).build();
    let mut hits = 0;
    for round in 0..20 {
        let hit = (0..2_000).filter(|key| of(&cache, *key)).count();
        hits += if round >= 10 { hit } else { 0 };
    }
    // LRU has none.
    assert!(hits > 2_000 * 10 / 4, "{hits} of 20,000");
    sums(&cache);
}

#[test]
fn what_is_not_used_goes_after_its_time_and_not_before() {
    let clock = Clock::by_hand();
    let documents: Arc<Cache<u64, Bytes>> = Cache::named("documents")
        .limit_bytes(64 << 20)
        .idle(Duration::from_secs(30 * 60))
        .clock(clock.clone())
        .build();
    for key in 0..1_000 {
        documents.insert(key, value(10_000), Duration::from_millis(3));
    }
    let full = documents.bytes();
    clock.advance(Duration::from_secs(29 * 60));
    assert_eq!(documents.expire(), 0);
    for key in 0..10 {
        assert!(documents.get(&key).is_some());
    }
    clock.advance(Duration::from_secs(61));
    let dropped = documents.expire();
    assert_eq!(documents.stats().entries, 10);
    assert_eq!(documents.stats().expired, 990);
    // Tables went with them.
    assert_eq!(full - documents.bytes(), dropped);
    assert!(documents.bytes() < 10 * 11_000, "{}", documents.stats());
    assert!(
        (0..10).all(|key| documents.get(&key).is_some()),
        "found after the slots moved"
    );
    sums(&documents);
    clock.advance(Duration::from_secs(31 * 60));
    documents.tick(Level::Calm);
    assert_eq!((documents.stats().entries, documents.bytes()), (0, 0));
    sums(&documents);
}

#[test]
fn pressure_takes_the_cold_ones_and_the_limit_rises_slowly() {
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("pressure").limit_bytes(8 << 20).build();
    for key in 0..700 {
        cache.insert(key, value(10_000), Duration::ZERO);
    }
    for _ in 0..3 {
        for key in 0..50 {
            cache.get(&key);
        }
    }
    let before = cache.bytes();
    let dropped = cache.release(ask(Level::High));
    assert_eq!(before - cache.bytes(), dropped);
    assert!(
        (before / 2..before * 6 / 10).contains(&dropped),
        "{dropped} of {before}"
    );
    let warm = (0..50).filter(|key| cache.get(key).is_some()).count();
    assert!(warm >= 48, "{warm} of 50");
    sums(&cache);
    // The limit is what was left, and new entries displace others.
    let allowed = cache.stats().allowed_bytes;
    assert!(allowed < 5 << 20, "{allowed}");
    for key in 10_000..11_000 {
        cache.insert(key, value(10_000), Duration::ZERO);
    }
    assert!(cache.bytes() <= allowed);
    cache.tick(Level::Near);
    assert_eq!(
        cache.stats().allowed_bytes,
        allowed,
        "no rise while it is not calm"
    );
    let mut ticks = 0;
    while cache.stats().allowed_bytes < 8 << 20 {
        cache.tick(Level::Calm);
        ticks += 1;
    }
    assert!((3..=8).contains(&ticks), "{ticks}");
    cache.release(ask(Level::Critical));
    assert_eq!((cache.stats().entries, cache.bytes()), (0, 0));
    cache.insert(1, value(10_000), Duration::ZERO);
    sums(&cache);
}

#[test]
fn a_cache_that_never_hits_is_named() {
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("thumbnails").build();
    for key in 0..PLACEBO_LOOKUPS - 1 {
        cache.get_or_make(key, |_| value(100));
    }
    assert_eq!(cache.stats().verdict(), Verdict::Unknown);
    cache.get_or_make(9_999, |_| value(100));
    assert_eq!(cache.stats().verdict(), Verdict::Placebo);
    assert!(cache.stats().to_string().contains("placebo"));
    cache.get(&1);
    assert_eq!(cache.stats().verdict(), Verdict::Useful);
}

/// Returns a cache's figures by hand: hits and misses, nanoseconds saved and made.
fn verdict(hits: u64, misses: u64, saved_ns: u64, made_ns: u64) -> Verdict {
    let stats = Stats {
        hits,
        misses,
        saved_ns,
        made_ns,
        ..Stats::default()
    };
    stats.verdict()
}

#[test]
fn one_hit_in_a_hundred_thousand_is_no_use_unless_it_saves() {
    // 1 of 100,126 lookups, and as much of the time.
    assert_eq!(verdict(1, 100_125, 50, 5_006_250), Verdict::Placebo);
    // The one that hit took half of all making.
    assert_eq!(verdict(1, 100_125, 5_000_000, 10_000_000), Verdict::Useful);
    // One in a hundred is one in a hundred; nothing was timed.
    assert_eq!(verdict(1, 99, 0, 0), Verdict::Useful);
    assert_eq!(verdict(1, 100, 0, 0), Verdict::Placebo);
    assert_eq!(verdict(0, 63, 0, 0), Verdict::Unknown);
}

#[test]
fn a_budget_goes_to_the_cache_that_saves_most_and_floors_hold() {
    let budget = Budget::new(8 << 20);
    let make = |name: &str| -> Arc<Cache<u64, Bytes>> {
        Cache::named(name).budget(&budget, 512 << 10).build()
    };
    let (useful, scanned) = (make("useful"), make("scanned"));
    let mut seed = 5;
    for step in 0..60_000u64 {
        let key = zipf(&mut seed, 2_000);
        if useful.get(&key).is_none() {
            useful.insert(key, value(4_000), Duration::from_millis(5));
        }
        scanned.insert(step, value(4_000), Duration::from_micros(5));
        assert!(
            budget.used_bytes() <= (8 << 20) + 8_192,
            "step {step}: {budget:?}"
        );
    }
    let (a, b) = (useful.bytes(), scanned.bytes());
    assert!(a > 6 << 20, "useful {a}, scanned {b}");
    assert!(b >= 448 << 10, "the floor: {b}");
    assert!(a + b <= 8 << 20, "{a} + {b}");
    assert_eq!(budget.used_bytes(), a + b);
    sums(&useful);
    sums(&scanned);
    // The cache that wants it now gets it: the useful one is not asked for more.
    for step in 0..100_000u64 {
        let key = zipf(&mut seed, 2_000);
        if scanned.get(&(key + 1_000_000)).is_none() {
            scanned.insert(key + 1_000_000, value(4_000), Duration::from_millis(5));
        }
        if step % 10 == 0 {
            useful.insert(step + 5_000_000, value(4_000), Duration::from_micros(5));
        }
    }
    let (a, b) = (useful.bytes(), scanned.bytes());
    assert!(b > a, "useful {a}, scanned {b}");
}

/// A ring that fits into the budget, beside a scan: the share of hits in its last third.
fn ring_beside_a_scan(ring_first: bool) -> u64 {
    const ITEMS: u64 = 1_250;
    let budget = Budget::new(6 << 20);
    let make =
        |name: &str| -> Arc<Cache<u64, Bytes>> { Cache::named(name).budget(&budget, 0).build() };
    let (ring, scan) = if ring_first {
        let ring = make("ring");
        (ring, make("scan"))
    } else {
        let scan = make("scan");
        (make("ring"), scan)
    };
    let (steps, mut hits) = (60 * ITEMS, 0);
    for step in 0..steps {
        let key = step % ITEMS;
        if ring.get(&key).is_none() {
            ring.insert(key, value(4_000), Duration::from_millis(5));
        } else if step >= steps / 3 * 2 {
            hits += 1;
        }
        scan.insert(step, value(4_000), Duration::from_micros(5));
    }
    hits * 100 / (steps / 3)
}

#[test]
fn no_order_of_joining_decides_to_whom_a_budget_goes() {
    let shares = [true, false].map(ring_beside_a_scan);
    assert!(shares.iter().all(|share| *share > 80), "{shares:?}");
    assert!(shares[0].abs_diff(shares[1]) < 10, "{shares:?}");
}

/// What two members of one budget hold when both got the same from `step`, which is called with a number for each.
fn two_alike(bytes: usize, steps: u64, step: impl Fn(&Cache<u64, Bytes>, u64)) -> [usize; 2] {
    let budget = Budget::new(bytes);
    let make =
        |name: &str| -> Arc<Cache<u64, Bytes>> { Cache::named(name).budget(&budget, 0).build() };
    let members = [make("one"), make("other")];
    for number in 0..steps {
        members.iter().for_each(|member| step(member, number));
    }
    members.map(|member| member.bytes())
}

/// Asks for a key, twice if it is not there, as a program does that looks before it makes; then puts it in.
fn ask_for(cache: &Cache<u64, Bytes>, key: u64, bytes: usize) {
    if cache.get(&key).is_none() && cache.get(&key).is_none() {
        cache.insert(key, value(bytes), Duration::from_micros(3));
    }
}

#[test]
fn two_equal_loads_share_a_budget_equally() {
    // Hashes differ from cache to cache, so each round is a draw of its own. While the sketch said which keys had been
    // there, one of ten scans ended at 80 to 1, and nearly each one that looks twice.
    type Load = fn(&Cache<u64, Bytes>, u64);
    let loads: [(&str, u64, usize, Load); 5] = [
        ("scan", 20, 10, |cache, n| {
            cache.get(&n);
            cache.insert(n, value(900), Duration::from_micros(3));
        }),
        ("scan that looks twice", 3, 10, |cache, n| {
            ask_for(cache, n, 900)
        }),
        ("ring", 6, 10, |cache, n| ask_for(cache, n % 300, 900)),
        // Longer than all that fits: how many of its keys are remembered is a matter of chance.
        ("long ring", 4, 40, |cache, n| ask_for(cache, n % 700, 900)),
        ("zipf", 6, 10, |cache, n| {
            let mut seed = n + 1;
            next(&mut seed);
            ask_for(cache, zipf(&mut seed, 2_000), 900);
        }),
    ];
    for (name, rounds, percent, load) in loads {
        for round in 0..rounds {
            let [one, other] = two_alike(450_000, 2_500, load);
            let apart = one.abs_diff(other) * 100;
            let most = one.max(other) * percent;
            assert!(apart <= most, "{name} {round}: {one} and {other}");
        }
    }
}

#[test]
fn what_was_saved_long_ago_is_nothing_beside_a_load_of_today() {
    let (budget, scans) = (Budget::new(200_000), 20_000);
    let make =
        |name: &str| -> Arc<Cache<u64, Bytes>> { Cache::named(name).budget(&budget, 0).build() };
    let members = [make("once useful"), make("never")];
    for n in 0..1_000 {
        ask_for(&members[0], n % 100, 50);
    }
    for n in 0..scans {
        let each = members.iter();
        each.for_each(|member| ask_for(member, 1_000_000 + n, 50));
    }
    let [one, other] = members.map(|member| member.bytes());
    assert!(
        one.abs_diff(other) * 10 <= one.max(other),
        "{one} and {other}"
    );
}

#[test]
fn two_loops_over_more_than_fits_keep_what_fits() {
    const ITEMS: u64 = 1_000;
    let budget = Budget::new(1_400_000);
    let make =
        |name: &str| -> Arc<Cache<u64, Bytes>> { Cache::named(name).budget(&budget, 0).build() };
    let members = [make("one"), make("other")];
    for n in 0..20 * ITEMS {
        for member in &members {
            if member.get(&(n % ITEMS)).is_none() {
                member.insert(n % ITEMS, value(900), Duration::from_micros(3));
            }
        }
    }
    // A little over 1,400 of 2,000 fit. Taken from the cold end, none was there when it was asked for.
    for member in &members {
        let stats = member.stats();
        assert!(stats.hits > 20 * ITEMS * 2 / 5, "{stats}");
        sums(member);
    }
}

#[test]
fn a_budget_bounds_what_several_threads_insert_into_several_caches() {
    const LIMIT: usize = 4 << 20;
    let budget = Budget::new(LIMIT);
    let caches: Vec<Arc<Cache<u64, Bytes>>> = (0..4)
        .map(|n| {
            Cache::named(format!("cache {n}"))
                .budget(&budget, 0)
                .build()
        })
        .collect();
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for cache in &caches {
            let (budget, most) = (&budget, &most);
            scope.spawn(move || {
                for key in 0..20_000 {
                    cache.insert(key, value(4_000), Duration::from_millis(1));
                    most.fetch_max(budget.used_bytes(), Ordering::Relaxed); // ORDER: read after the scope has joined
                }
            });
        }
    });
    // Each may be one insertion ahead, of a value and of tables that grow.
    let most = most.into_inner();
    assert!(most <= LIMIT + LIMIT / 8, "{most} of {LIMIT}");
    let held: usize = caches.iter().map(|cache| cache.bytes()).sum();
    assert_eq!(budget.used_bytes(), held);
    drop(caches);
    assert_eq!(budget.used_bytes(), 0, "what ended has nothing");
}

/// Inserts into the cache that it is dropped out of.
struct Echo(Weak<Cache<u64, Arc<Echo>>>, u64);

impl HeapBytes for Echo {
    const OWNS: bool = true;

    fn heap_bytes(&self) -> usize {
        // What it leaves behind is larger than itself, so that the budget is exceeded while a member gives.
        if self.1 < 1_000 { 4_000 } else { 100_000 }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if let Some(cache) = self.0.upgrade().filter(|_| self.1 < 1_000) {
            let again = Arc::new(Echo(self.0.clone(), self.1 + 100_000));
            cache.insert(self.1 + 100_000, again, Duration::from_millis(1));
        }
    }
}

#[test]
fn a_value_that_inserts_while_it_is_dropped_does_not_wait_for_itself() {
    let budget = Budget::new(1 << 20);
    let cache: Arc<Cache<u64, Arc<Echo>>> = Cache::named("echoes").budget(&budget, 0).build();
    for key in 0..200 {
        let value = Arc::new(Echo(Arc::downgrade(&cache), key));
        cache.insert(key, value, Duration::from_micros(1));
    }
    // The budget takes from it what this one needs.
    let other: Arc<Cache<u64, Bytes>> = Cache::named("other").budget(&budget, 0).build();
    for key in 0..400 {
        other.insert(key, value(4_000), Duration::from_secs(1));
        other.get(&key);
    }
    assert!(budget.used_bytes() <= 2 << 20, "{budget:?}");
}

#[test]
fn what_it_reports_is_what_it_has_and_a_placebo_has_a_line() {
    use skinflint_reporters::Registry;
    let registry = Registry::new();
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("thumb/nails").build();
    registry.add_shared("thumbnails", cache.clone()).keep();
    for key in 0..PLACEBO_LOOKUPS {
        cache.get_or_make(key, |_| value(1_000));
    }
    let measured = registry.measure_reporters();
    assert!(measured.faults().is_empty());
    assert_eq!(measured.sum("explicit"), cache.bytes() as i64);
    assert_eq!(measured.sum("placebos/thumb\\nails"), cache.bytes() as i64);
    assert_eq!(
        measured.sum("cache/thumb\\nails/lookups"),
        PLACEBO_LOOKUPS as i64
    );
    cache.get(&1);
    let measured = registry.measure_reporters();
    assert_eq!(measured.sum("placebos"), 0);
    assert_eq!(measured.sum("cache/thumb\\nails/hits"), 1);
}

/// A value whose drop uses the cache that it was in.
struct Nosy(Arc<AtomicUsize>, std::sync::Weak<Cache<u64, Arc<Nosy>>>);

impl HeapBytes for Nosy {
    fn heap_bytes(&self) -> usize {
        50_000
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(cache) = self.1.upgrade() {
            cache.get(&1);
        }
        self.0.fetch_add(1, Ordering::Relaxed); // ORDER: a count
    }
}

#[test]
fn values_are_dropped_without_the_lock() {
    let cache: Arc<Cache<u64, Arc<Nosy>>> = Cache::named("nosy").limit_bytes(1 << 20).build();
    let dropped = Arc::new(AtomicUsize::new(0));
    for key in 0..200 {
        cache.insert(
            key,
            Arc::new(Nosy(dropped.clone(), Arc::downgrade(&cache))),
            Duration::ZERO,
        );
    }
    cache.clear();
    assert_eq!(dropped.load(Ordering::Relaxed), 200); // ORDER: one thread
}

#[test]
fn threads_insert_look_and_squeeze_at_once() {
    let clock = Clock::by_hand();
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("threads")
        .limit_bytes(4 << 20)
        .idle(Duration::from_millis(5))
        .clock(clock.clone())
        .shards(4)
        .build();
    let wrong = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, wrong) = (&cache, &wrong);
            scope.spawn(move || {
                let mut seed = thread;
                for _ in 0..30_000 {
                    let key = zipf(&mut seed, 3_000);
                    let got =
                        cache.get_or_make(key, |key| vec![*key as u8; 500 + *key as usize].into());
                    let right = got.len() == 500 + key as usize && got[0] == key as u8;
                    wrong.fetch_add(usize::from(!right), Ordering::Relaxed); // ORDER: read after the join
                    if key == 7 {
                        cache.remove(&key);
                    }
                }
            });
        }
        scope.spawn(|| {
            for step in 0..200 {
                cache.release(ask(Level::ALL[step % 3 + 1]));
                clock.advance(Duration::from_millis(2));
                cache.tick(Level::Calm);
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(wrong.into_inner(), 0);
    sums(&cache);
    let s = cache.stats();
    assert_eq!(s.hits + s.misses, 120_000);
    cache.clear();
    assert_eq!(cache.bytes(), 0);
}

/// Threads that miss one key together: each asks when all are there.
fn together<T: Send>(threads: usize, ask: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let gate = std::sync::Barrier::new(threads);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..threads)
            .map(|at| {
                let (gate, ask) = (&gate, &ask);
                scope.spawn(move || {
                    gate.wait();
                    ask(at)
                })
            })
            .collect();
        asking
            .into_iter()
            .map(|one| one.join().expect("its panic is its own affair"))
            .collect()
    })
}

#[test]
fn misses_at_the_same_time_are_made_once() {
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("joined").limit_bytes(1 << 20).build();
    for key in 0..50 {
        let made = AtomicUsize::new(0);
        let values = together(4, |_| {
            cache.get_or_make(key, |_| {
                made.fetch_add(1, Ordering::Relaxed); // ORDER: read after the scope has joined
                until("the others wait", || cache.waiting() == 3);
                value(100)
            })
        });
        // ORDER: all are joined.
        assert_eq!(made.load(Ordering::Relaxed), 1, "key {key}");
        assert!(values.iter().all(|one| Arc::ptr_eq(one, &values[0])));
    }
    let s = cache.stats();
    assert_eq!((s.hits, s.misses, s.inserted), (0, 200, 50));
    assert_eq!((s.joined, cache.waiting()), (150, 0));
    // What the cache does not take is still shared.
    let made = AtomicUsize::new(0);
    together(4, |_| {
        let large = cache.get_or_make(99, |_| {
            made.fetch_add(1, Ordering::Relaxed); // ORDER: read after the scope has joined
            until("the others wait", || cache.waiting() == 3);
            value(900 << 10)
        });
        assert_eq!(large.len(), 900 << 10);
    });
    // ORDER: all are joined.
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert!(cache.get(&99).is_none());
    sums(&cache);
}

#[test]
fn who_waited_for_a_panic_or_an_error_is_told_and_the_next_one_makes_it() {
    use skinflint_cache::store::{Joined, Lost};
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("lost").limit_bytes(1 << 20).build();
    let begun = std::sync::Barrier::new(2);
    // Asked when the other thread is making it, which then waits until it is waited for.
    let both = |panics: bool, key: u64| {
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                cache.get_or_join(key, |_| {
                    begun.wait();
                    until("the other waits", || cache.waiting() == 1);
                    assert!(!panics, "on purpose");
                    Err("no such page")
                })
            });
            begun.wait();
            let second = cache.get_or_join(key, |_| Ok::<_, &str>(value(10)));
            (first.join(), second.map(|value| value.len()))
        })
    };
    let (first, second) = both(false, 1);
    assert_eq!(first.unwrap(), Err(Joined::Own("no such page")));
    assert_eq!(second, Err(Joined::Lost(Lost::Failed)));
    let (first, second) = both(true, 2);
    assert!(first.is_err(), "it panicked");
    assert_eq!(second, Err(Joined::Lost(Lost::Panicked)));
    let said = second.unwrap_err().to_string();
    assert!(said.contains("panicked; ask again"), "{said}");
    // Nothing is left over, and with `get_or_make` the next thread makes it.
    assert_eq!(cache.get_or_make(2, |_| value(10)).len(), 10);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            cache.get_or_make(3, |_| {
                begun.wait();
                until("the other waits", || cache.waiting() == 1);
                panic!("on purpose")
            })
        });
        begun.wait();
        assert_eq!(cache.get_or_make(3, |_| value(20)).len(), 20);
        assert!(first.join().is_err());
    });
    sums(&cache);
}

#[test]
fn values_that_need_each_other_do_not_wait_for_each_other() {
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("crossed").limit_bytes(1 << 20).build();
    let begun = Arc::new(std::sync::Barrier::new(2));
    let (done, is_done) = std::sync::mpsc::channel();
    for (mine, other) in [(1u64, 2u64), (2, 1)] {
        // A deadlock is a failure in time and no hang: the threads are left behind.
        let (cache, done, begun) = (cache.clone(), done.clone(), begun.clone());
        std::thread::spawn(move || {
            let made = cache.get_or_make(mine, |_| {
                begun.wait();
                value(10 + cache.get_or_make(other, |_| value(1)).len())
            });
            done.send(made.len()).expect("the test waits");
        });
    }
    for _ in 0..2 {
        is_done.recv_timeout(PATIENCE).expect("no deadlock");
    }
    // The same key within itself.
    assert_eq!(
        cache
            .get_or_make(5, |_| value(1 + cache.get_or_make(5, |_| value(1)).len()))
            .len(),
        2
    );
    sums(&cache);
}

#[test]
fn time_saved_is_judged_against_bytes_held() {
    // 256 pages of 1,400 ns: 358,400 ns.
    let of = |saved_ns: u64, lookups: u64, made_ns: u64| Stats {
        entries: 10,
        bytes: 1 << 20,
        hits: lookups / 2,
        misses: lookups - lookups / 2,
        made_ns,
        saved_ns,
        ..Stats::default()
    };
    assert_eq!(of(358_399, 1000, 5_000).verdict(), Verdict::Placebo);
    assert!(
        of(358_399, 1000, 5_000)
            .to_string()
            .contains("its memory costs")
    );
    assert_eq!(of(358_400, 1000, 5_000).verdict(), Verdict::Useful);
    // Asked less than eight times for each entry: it may only be new.
    assert_eq!(of(0, 79, 5_000).verdict(), Verdict::Useful);
    assert_eq!(of(0, 80, 5_000).verdict(), Verdict::Placebo);
    // What making takes is not known.
    assert_eq!(of(0, 1000, 0).verdict(), Verdict::Useful);
}
