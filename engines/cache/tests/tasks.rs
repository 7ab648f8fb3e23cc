//! Values that futures make, lifetimes, and listeners.
//!
//! ```text
//!   futures polled by hand, wake-ups counted ─► Cache ─► made once, no future forgotten
//!   clock moved by hand ─► lifetime             each way of going ─► listener, against the sums
//! ```
//!
//! P1  A future is polled by the test only, in an order that is written down: no executor, no thread, no time.
//!
//! Not here: all orders of real threads (`models`), which entries go (`contests`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use skinflint_base::random::Random;
use skinflint_cache::bus::Ask;
use skinflint_cache::store::{Clock, Stats};
use skinflint_cache::{Budget, Cache, Level, Listener, Why};

type Bytes = Arc<[u8]>;
type Numbers = Cache<u64, u64>;

fn numbers() -> Arc<Numbers> {
    Cache::named("numbers").build()
}

/// Counts wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed); // ORDER: one thread
    }
}

/// A future that is polled by hand.
struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    woken: Arc<Woken>,
}

impl<'a, T> Task<'a, T> {
    fn new(future: impl Future<Output = T> + 'a) -> Task<'a, T> {
        Task {
            future: Box::pin(future),
            woken: Arc::default(),
        }
    }

    fn poll(&mut self) -> Poll<T> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed) // ORDER: one thread
    }
}

/// Is ready once the cell says so.
async fn once<T: Copy>(ready: &Cell<Option<T>>) -> T {
    poll_fn(|_| match ready.get() {
        Some(value) => Poll::Ready(value),
        None => Poll::Pending,
    })
    .await
}

#[test]
fn futures_that_miss_at_once_have_it_made_once() {
    let (cache, ready, made) = (numbers(), Cell::new(None), Cell::new(0));
    let ask = || {
        cache.get_or_make_async(7, |_| {
            made.set(made.get() + 1);
            once(&ready)
        })
    };
    let mut tasks: Vec<_> = (0..5).map(|_| Task::new(ask())).collect();
    for task in &mut tasks {
        assert!(task.poll().is_pending());
        assert!(task.poll().is_pending());
    }
    assert_eq!((made.get(), cache.waiting()), (1, 4));
    ready.set(Some(70));
    assert_eq!(tasks[0].poll(), Poll::Ready(70));
    for task in &mut tasks[1..] {
        assert_eq!(task.woken(), 1);
        assert_eq!(task.poll(), Poll::Ready(70));
    }
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.joined, stats.inserted), (5, 4, 1));
    assert_eq!(Task::new(ask()).poll(), Poll::Ready(70));
    assert_eq!((made.get(), cache.stats().hits), (1, 1));
}

#[test]
fn a_lead_that_is_dropped_goes_to_one_that_waits() {
    let (cache, ready, made) = (numbers(), Cell::new(None), Cell::new(0));
    let ask = || {
        cache.get_or_make_async(7, |_| {
            made.set(made.get() + 1);
            once(&ready)
        })
    };
    let (mut lead, mut gone) = (Task::new(ask()), Task::new(ask()));
    let (mut next, mut last) = (Task::new(ask()), Task::new(ask()));
    for task in [&mut lead, &mut gone, &mut next, &mut last] {
        assert!(task.poll().is_pending());
    }
    // A waiting future is dropped first: the wake-up must not have gone to it.
    drop(gone);
    drop(lead);
    assert_eq!((next.woken(), last.woken()), (1, 1));
    assert!(next.poll().is_pending() && last.poll().is_pending());
    assert_eq!((made.get(), cache.waiting()), (2, 1));
    ready.set(Some(1));
    assert_eq!((next.poll(), last.woken()), (Poll::Ready(1), 2));
    assert_eq!((last.poll(), made.get()), (Poll::Ready(1), 2));
}

#[test]
fn a_future_woken_and_dropped_before_it_leads_loses_nothing() {
    let cache = numbers();
    let never = || cache.get_or_make_async(7, |_| pending());
    let (mut lead, mut woken) = (Task::new(never()), Task::new(never()));
    let mut last = Task::new(cache.get_or_make_async(7, |_| async { 3 }));
    assert!(lead.poll().is_pending() && woken.poll().is_pending() && last.poll().is_pending());
    drop(lead);
    assert_eq!((woken.woken(), last.woken()), (1, 1));
    drop(woken);
    assert_eq!(last.poll(), Poll::Ready(3));
}

#[test]
fn an_error_is_its_makers_and_the_next_tries() {
    let (cache, ready) = (numbers(), Cell::new(None));
    let failing = cache.get_or_try_make_async(7, |_| async { Err(once(&ready).await) });
    let other = cache.get_or_try_make_async(7, |key| {
        let key = *key;
        async move { Ok::<u64, u32>(key * 10) }
    });
    let (mut failing, mut other) = (Task::new(failing), Task::new(other));
    assert!(failing.poll().is_pending() && other.poll().is_pending());
    ready.set(Some(5));
    assert_eq!(failing.poll(), Poll::Ready(Err(5)));
    assert_eq!((other.woken(), other.poll()), (1, Poll::Ready(Ok(70))));
}

#[test]
fn a_make_that_panics_leaves_the_lead_to_the_next() {
    let cache = numbers();
    let begun = Cell::new(false);
    let mut bad = Task::new(cache.get_or_make_async(7, |_| {
        poll_fn(|_| match begun.replace(true) {
            true => panic!("on purpose"),
            false => Poll::Pending,
        })
    }));
    let mut other = Task::new(cache.get_or_make_async(7, |_| async { 2 }));
    assert!(bad.poll().is_pending() && other.poll().is_pending());
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bad.poll()));
    assert!(caught.is_err());
    drop(bad);
    assert_eq!((other.woken(), other.poll()), (1, Poll::Ready(2)));
}

#[test]
fn a_thread_does_not_wait_for_a_future_that_it_may_have_to_poll() {
    let (cache, ready) = (numbers(), Cell::new(None));
    let mut lead = Task::new(cache.get_or_make_async(7, |_| once(&ready)));
    assert!(lead.poll().is_pending());
    assert_eq!(cache.get_or_make(7, |_| 1), 1);
    ready.set(Some(2));
    assert_eq!(lead.poll(), Poll::Ready(2));
    assert_eq!(cache.get(&7), Some(2));
}

#[test]
fn futures_that_need_each_others_values_make_both() {
    let cache = numbers();
    let pair = |one: u64, other: u64| {
        let cache = &cache;
        let begun = Cell::new(false);
        async move {
            let inner = |_: &u64| async move {
                // Both lead before either asks for the other's.
                poll_fn(|_| match begun.replace(true) {
                    true => Poll::Ready(()),
                    false => Poll::Pending,
                })
                .await;
                cache.get_or_make_async(other, |_| async { 100 }).await + 1
            };
            cache.get_or_make_async(one, inner).await
        }
    };
    let (mut a, mut b) = (Task::new(pair(1, 2)), Task::new(pair(2, 1)));
    assert!(a.poll().is_pending() && b.poll().is_pending());
    assert_eq!(a.poll(), Poll::Ready(101));
    assert!(matches!(b.poll(), Poll::Ready(101 | 102)));
}

#[test]
fn a_future_that_moves_between_tasks_wakes_the_last_one() {
    let (cache, ready) = (numbers(), Cell::new(None));
    let mut lead = Task::new(cache.get_or_make_async(7, |_| once(&ready)));
    let mut moved = Task::new(cache.get_or_make_async(7, |_| pending()));
    assert!(lead.poll().is_pending() && moved.poll().is_pending());
    let before = std::mem::take(&mut moved.woken);
    assert!(moved.poll().is_pending());
    ready.set(Some(1));
    assert!(lead.poll().is_ready());
    assert_eq!((before.0.load(Ordering::Relaxed), moved.woken()), (0, 1)); // ORDER: one thread
    // Neither is kept: only this test has them.
    assert_eq!(Arc::strong_count(&before), 1);
}

#[test]
fn places_of_dropped_futures_are_used_again() {
    let cache = numbers();
    let mut lead = Task::new(cache.get_or_make_async(7, |_| pending()));
    assert!(lead.poll().is_pending());
    let woken = Arc::new(Woken::default());
    for _ in 0..1_000 {
        let waits = cache.get_or_make_async(7, |_| pending());
        let mut waits = Task {
            future: Box::pin(waits),
            woken: Arc::clone(&woken),
        };
        assert!(waits.poll().is_pending());
        assert_eq!(cache.waiting(), 1);
    }
    assert_eq!((cache.waiting(), Arc::strong_count(&woken)), (0, 1));
}

#[test]
fn a_future_of_a_cache_that_threads_share_can_be_sent() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("sent").build();
    let future = sent(cache.get_or_make_async(1, |_| async { vec![1u8; 10].into() }));
    let mut future = pin!(future);
    let value = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(value, Poll::Ready(bytes) if bytes.len() == 10));
}

#[test]
fn a_lifetime_ends_though_the_entry_is_used() {
    let clock = Clock::by_hand();
    clock.advance(Duration::from_secs(100));
    let cache: Arc<Numbers> = Cache::named("short")
        .lifetime(Duration::from_millis(1_000))
        .clock(clock.clone())
        .build();
    cache.insert(1, 10, Duration::ZERO);
    for _ in 0..9 {
        clock.advance(Duration::from_millis(111));
        assert_eq!(cache.get(&1), Some(10));
    }
    // A value that is put in again begins anew.
    cache.insert(2, 20, Duration::ZERO);
    clock.advance(Duration::from_millis(1));
    assert_eq!((cache.get(&1), cache.get(&2)), (None, Some(20)));
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.expired, stats.evicted), (1, 1, 0));
    assert_eq!(cache.get_or_make(1, |_| 11), 11);
    clock.advance(Duration::from_millis(999));
    assert_eq!((cache.get(&1), cache.expire() > 0), (Some(11), true));
    assert_eq!((cache.stats().entries, cache.stats().expired), (1, 2));
    cache.check().expect("sums");
}

#[test]
fn a_value_past_its_lifetime_is_made_anew_by_each_kind_of_lookup() {
    let clock = Clock::by_hand();
    let cache: Arc<Numbers> = Cache::named("short")
        .lifetime(Duration::from_micros(1_500))
        .clock(clock.clone())
        .build();
    for (step, after_ms) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 1)] {
        clock.advance(Duration::from_millis(after_ms));
        // Two milliseconds: a part counts as a whole one. The steps at 1, 3 + 2 and 5 + 1 ms.
        let expected = [0, 0, 2, 3, 3][step as usize];
        let value = match step % 2 {
            0 => cache.get_or_make(9, |_| step),
            _ => {
                let mut task = Task::new(cache.get_or_make_async(9, |_| async move { step }));
                match task.poll() {
                    Poll::Ready(value) => value,
                    Poll::Pending => panic!("no other future makes it"),
                }
            }
        };
        assert_eq!(value, expected, "step {step}");
    }
}

#[test]
fn idle_time_and_lifetime_end_each_for_itself() {
    let clock = Clock::by_hand();
    let told: Arc<Mutex<Vec<(u64, Why)>>> = Arc::default();
    let cache: Arc<Numbers> = {
        let told = Arc::clone(&told);
        Cache::named("both")
            .idle(Duration::from_secs(2))
            .lifetime(Duration::from_secs(5))
            .clock(clock.clone())
            .build_told(move |key, _, why| told.lock().expect("no panic").push((*key, why)))
    };
    clock.advance(Duration::from_secs(10));
    cache.insert(1, 1, Duration::ZERO);
    cache.insert(2, 2, Duration::ZERO);
    for _ in 0..5 {
        clock.advance(Duration::from_secs(1));
        cache.get(&1);
        cache.expire();
    }
    assert_eq!(
        *told.lock().expect("no panic"),
        [(2, Why::Idle), (1, Why::Old)]
    );
}

/// What a listener was told, by way.
type Ways = Arc<Mutex<BTreeMap<&'static str, u64>>>;

fn count(ways: &Ways, why: Why) {
    let name = match why {
        Why::Refused => "refused",
        Why::Displaced => "displaced",
        Why::Replaced => "replaced",
        Why::Idle => "idle",
        Why::Old => "old",
        Why::Released => "released",
        Why::Removed => "removed",
    };
    *ways.lock().expect("no panic").entry(name).or_default() += 1;
}

fn compare(ways: &Ways, stats: &Stats) {
    let ways = ways.lock().expect("no panic");
    let of = |names: &[&str]| -> u64 { names.iter().filter_map(|name| ways.get(name)).sum() };
    assert_eq!(of(&["refused"]), stats.refused, "{ways:?}");
    assert_eq!(of(&["displaced", "replaced"]), stats.evicted, "{ways:?}");
    assert_eq!(of(&["idle", "old"]), stats.expired, "{ways:?}");
    assert_eq!(of(&["released"]), stats.released, "{ways:?}");
    assert_eq!(of(&["removed"]), stats.removed, "{ways:?}");
    let all: u64 = ways.values().sum();
    assert_eq!(all + stats.entries as u64, stats.inserted, "{ways:?}");
}

#[test]
fn a_listener_is_told_of_each_entry_once_with_its_way() {
    let (clock, ways) = (Clock::by_hand(), Ways::default());
    let budget = Budget::new(300_000);
    let cache: Arc<Cache<u64, Bytes>> = {
        let ways = Arc::clone(&ways);
        Cache::named("told")
            .shards(2)
            .idle(Duration::from_secs(3))
            .lifetime(Duration::from_secs(5))
            .clock(clock.clone())
            .budget(&budget, 1_000)
            .build_told(move |_, _, why| count(&ways, why))
    };
    let other: Arc<Cache<u64, Bytes>> = Cache::named("other").budget(&budget, 0).build();
    let mut random = Random::new(20);
    for step in 0..20_000u64 {
        let (key, bytes) = (random.bits() % 400, random.bits() as usize % 3_000);
        let value = || Bytes::from(vec![1u8; bytes]);
        match random.bits() % 100 {
            0 => clock.advance(Duration::from_millis(random.bits() % 1_500)),
            1..3 => drop(cache.tick(Level::Calm)),
            3 => drop(cache.release_bytes(bytes * 4)),
            4..10 => drop(cache.remove(&key)),
            10 => drop(cache.insert(key, vec![1u8; 200_000].into(), Duration::ZERO)),
            11..30 => drop(other.insert(key, value(), Duration::from_micros(50))),
            30 => drop(cache.release(Ask {
                level: Level::High,
                wanted_bytes: 0,
                until: Instant::now() + Duration::from_secs(60),
                waiting: [0; 8],
            })),
            31..50 => drop(cache.insert(key, value(), Duration::ZERO)),
            _ => drop(cache.get_or_make(key, |_| value())),
        }
        if step % 1_000 == 0 {
            cache.check().expect("sums");
            compare(&ways, &cache.stats());
        }
    }
    compare(&ways, &cache.stats());
    let ways_met = ways.lock().expect("no panic").clone();
    assert_eq!(ways_met.len(), 7, "each way was met: {ways_met:?}");
}

#[test]
fn a_listener_sees_the_value_and_may_use_the_cache() {
    let own: Arc<Mutex<Option<Arc<Numbers>>>> = Arc::default();
    type Seen = (u64, u64, Option<u64>);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let cache: Arc<Numbers> = {
        let (own, seen) = (Arc::clone(&own), Arc::clone(&seen));
        Cache::named("again").build_told(move |key, value, _| {
            let cache = own.lock().expect("no panic").clone().expect("set");
            let now = cache.get(key);
            seen.lock().expect("no panic").push((*key, *value, now));
            cache.insert(key + 100, *value, Duration::ZERO);
        })
    };
    *own.lock().expect("no panic") = Some(Arc::clone(&cache));
    cache.insert(1, 10, Duration::ZERO);
    cache.insert(1, 11, Duration::ZERO);
    cache.remove(&1);
    let seen = seen.lock().expect("no panic").clone();
    // The second value for 101 replaced the first.
    assert_eq!(
        seen,
        [(1, 10, Some(11)), (1, 11, None), (101, 10, Some(11))]
    );
    assert_eq!((cache.get(&101), cache.get(&201)), (Some(11), Some(10)));
    // The circle ends here, and so do both.
    own.lock().expect("no panic").take();
}

#[test]
fn a_listener_that_panics_leaves_the_sums_right() {
    let budget = Budget::new(1 << 20);
    let cache: Arc<Cache<u64, Bytes>> = Cache::named("panics")
        .budget(&budget, 0)
        .build_told(|_, _, _| panic!("on purpose"));
    cache.insert(1, vec![1u8; 100].into(), Duration::ZERO);
    type Step = fn(&Cache<u64, Bytes>) -> bool;
    let replace: Step = |cache| cache.insert(1, vec![1u8; 5_000].into(), Duration::ZERO);
    let remove: Step = |cache| cache.remove(&1);
    for step in [replace, remove] {
        let step = std::panic::AssertUnwindSafe(|| step(&cache));
        assert!(std::panic::catch_unwind(step).is_err());
        assert_eq!(budget.used_bytes(), cache.bytes());
    }
    let stats = cache.stats();
    assert_eq!(
        (stats.inserted, stats.evicted, stats.removed, stats.entries),
        (2, 1, 1, 0)
    );
    cache.check().expect("sums");
}

#[test]
fn a_waker_that_panics_leaves_no_future_asleep() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("on purpose");
        }
    }
    let cache = numbers();
    let ready = Cell::new(None);
    let mut tasks: Vec<_> = (0..5)
        .map(|_| Task::new(cache.get_or_make_async(7, |_| once(&ready))))
        .collect();
    for (nth, task) in tasks.iter_mut().enumerate() {
        let panics = Waker::from(Arc::new(Panics));
        let pending = match nth {
            1 | 3 => task.future.as_mut().poll(&mut Context::from_waker(&panics)),
            _ => task.poll(),
        };
        assert!(pending.is_pending());
    }
    ready.set(Some(70));
    let lead = std::panic::AssertUnwindSafe(|| tasks[0].poll());
    let panic = std::panic::catch_unwind(lead).expect_err("the first one's panic");
    assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    assert_eq!((tasks[2].woken(), tasks[4].woken()), (1, 1));
    assert!(
        tasks[1..]
            .iter_mut()
            .all(|task| task.poll() == Poll::Ready(70))
    );
    assert_eq!(cache.waiting(), 0);
}

#[test]
fn a_listener_that_panics_leaves_the_sums_of_a_budget_right() {
    type Blobs = Cache<u64, Vec<u8>>;
    let clock = Clock::by_hand();
    let budget = Budget::new(100_000);
    let of = |name| {
        let cache = Cache::named(name).limit_bytes(90_000).budget(&budget, 0);
        cache
            .lifetime(Duration::from_secs(1))
            .clock(clock.clone())
            .shards(2)
    };
    let told: Arc<Blobs> = of("told").build_told(|_, _, _| panic!("on purpose"));
    let other: Arc<Blobs> = of("other").build();
    let quietly = |act: &dyn Fn()| {
        let act = std::panic::AssertUnwindSafe(act);
        usize::from(std::panic::catch_unwind(act).is_err())
    };
    let mut panics = 0;
    // What both save decides how they share the budget, so most entries have a cost that no clock measured.
    let put = |cache: &Blobs, key: u64| match key % 10 {
        0 => drop(cache.get_or_make(key, |_| vec![0; 50])),
        _ => {
            assert!(cache.get(&key).is_none());
            cache.insert(key, vec![0; 50], Duration::from_micros(3));
        }
    };
    for key in 0..3_000 {
        panics += quietly(&|| put(&told, key));
        panics += quietly(&|| put(&other, key));
        panics += match key % 500 {
            100 => quietly(&|| assert!(told.remove(&key))),
            200 => quietly(&|| assert!(told.clear() > 0)),
            300 => {
                clock.advance(Duration::from_secs(1));
                quietly(&|| assert!(told.expire() > 0))
            }
            _ => 0,
        };
        assert_eq!(budget.used_bytes(), told.bytes() + other.bytes(), "{key}");
    }
    assert!(panics > 20, "{panics}");
    told.check().expect("the sums hold");
    assert!(other.stats().entries > 100, "it has its part");
}
