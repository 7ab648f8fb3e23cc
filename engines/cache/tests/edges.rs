//! Edges of buffers, arenas, caches, budgets and discardable forms, each worked out by hand.
//!
//! ```text
//!   every block ─► Counting ─► live blocks of this thread: what is dropped is given back
//! ```
//!
//! P1  Clocks are moved by hand, sizes are fixed, and nothing is asked of the kernel.
//!
//! Not here: the allocator beneath (`fill`), threads (`store`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use skinflint_cache::bus::Ask;
use skinflint_cache::discard::Decode;
use skinflint_cache::store::Clock;
use skinflint_cache::{Arena, Budget, Buf, Cache, Discards, HeapBytes, Level, Listener};
use skinflint_reporters::Registry;

/// Counts the blocks that this thread took and gave back, and the calls.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all calls go on to `System` as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.with(|live| live.set(live.get() + 1));
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.with(|live| live.set(live.get() - 1));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

fn live() -> isize {
    LIVE.with(Cell::get)
}

#[test]
fn an_arena_gives_every_chunk_back_when_it_ends_and_all_but_one_when_it_is_reset() {
    let before = live();
    let mut arena = Arena::new();
    assert_eq!((arena.chunks(), arena.used_bytes()), (0, 0));
    for size in [100, 3_000, 50_000, 200, 900_000, 10, 70_000] {
        arena.copy_slice(&vec![1u8; size]);
    }
    let chunks = arena.chunks();
    assert!(chunks > 3, "{chunks}");
    assert_eq!(live() - before, chunks as isize);
    let (most, used) = (arena.usable_bytes(), arena.used_bytes());
    assert!(used >= 1_023_310 && used <= most, "{used} of {most}");
    arena.reset();
    assert_eq!((arena.chunks(), arena.used_bytes()), (1, 0));
    assert_eq!(live() - before, 1);
    assert!(
        arena.usable_bytes() >= 900_000,
        "the largest stays: {}",
        arena.usable_bytes()
    );
    arena.copy_slice(&[7u8; 880_000]);
    assert_eq!(
        (arena.chunks(), arena.used_bytes()),
        (1, 880_000),
        "and is used to its end"
    );
    drop(arena);
    assert_eq!(live(), before);
}

#[test]
fn an_arena_that_is_reset_before_its_first_value_has_none() {
    let mut arena = Arena::new();
    arena.reset();
    assert_eq!((arena.chunks(), arena.used_bytes()), (0, 0));
    arena.copy_slice(&[1u8; 30]);
    assert_eq!((arena.chunks(), arena.used_bytes()), (1, 30));
}

#[test]
fn values_of_an_arena_lie_apart_and_where_their_alignment_wants_them() {
    let arena = Arena::new();
    let mut places = Vec::new();
    for step in 0..2_000usize {
        let layout = Layout::from_size_align(step % 37, 1 << (step % 7)).expect("a layout");
        let place = arena.try_alloc_layout(layout).expect("memory").addr().get();
        assert_eq!(place % layout.align(), 0, "step {step}");
        places.push((place, place + layout.size()));
    }
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    let sum: usize = places.iter().map(|(from, to)| to - from).sum();
    assert!(arena.used_bytes() >= sum && arena.used_bytes() < sum + 2_000 * 64);
}

#[test]
fn a_buffer_takes_room_for_what_it_is_told_of_and_doubles_else() {
    // What is looked up once in a process is looked up before calls are counted.
    drop(Buf::<u64>::with_capacity(10));
    let mut told: Buf<u64> = Buf::new();
    let calls = CALLS.with(Cell::get);
    told.extend(0..1_000);
    let calls = CALLS.with(Cell::get) - calls;
    assert!(calls <= 2, "{calls} calls");
    assert!(
        told.capacity() >= 1_000 && told.capacity() < 1_020,
        "{}",
        told.capacity()
    );
    assert!(told.iter().copied().eq(0..1_000));
    let mut grown: Buf<u64> = Buf::new();
    let calls = CALLS.with(Cell::get);
    let mut at = 0;
    let mut steps = 0;
    for item in 0..10_000 {
        grown.push(item);
        if grown.capacity() != at {
            assert!(
                grown.capacity() + 8 >= 2 * at,
                "from {at} to {}",
                grown.capacity()
            );
            (at, steps) = (grown.capacity(), steps + 1);
        }
    }
    assert!((8..=13).contains(&steps), "{steps} steps");
    assert!(CALLS.with(Cell::get) - calls <= 2 * steps);
    let bytes = Buf::<u8>::try_with_capacity(isize::MAX as usize).expect_err("too much");
    assert_eq!(bytes.bytes, isize::MAX as usize, "it says what was wanted");
    assert!(Buf::<u16>::try_with_capacity(isize::MAX as usize).is_err());
    let first: Buf<[u8; 100]> = {
        let mut one = Buf::new();
        one.push([1; 100]);
        one
    };
    assert!((4..8).contains(&first.capacity()), "{}", first.capacity());
    let copy = first.clone();
    assert_eq!((copy.len(), copy[0]), (1, [1; 100]));
    assert!(copy.capacity() < 3, "no more than it has");
    assert_eq!(format!("{:?}", &copy[0][..2]), "[1, 1]");
}

fn entry(bytes: usize) -> Vec<u8> {
    vec![3; bytes]
}

fn ask(level: Level, wanted_bytes: usize) -> Ask {
    Ask {
        level,
        wanted_bytes,
        until: Instant::now() + Duration::from_secs(30),
        waiting: [0; 8],
    }
}

#[test]
fn what_is_given_back_is_what_was_wanted_and_no_entry_more() {
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("exact").limit_bytes(8 << 20).build();
    for key in 0..64 {
        cache.insert(key, entry(10_000), Duration::from_micros(7));
    }
    let of_one = cache.stats().bytes / 64;
    assert_eq!(cache.release_bytes(0), 0);
    assert_eq!(cache.stats().entries, 64, "nothing was wanted");
    let went = cache.release_bytes(1);
    assert!(went >= of_one, "{went}");
    assert_eq!(cache.stats().entries, 63);
    assert_eq!(cache.stats().released, 1);
    assert!(cache.clear() >= 63 * of_one);
    let stats = cache.stats();
    assert_eq!((stats.entries, stats.bytes, stats.released), (0, 0, 64));
    assert_eq!(stats.made_ns, 64 * 7_000, "what making took is summed");
    cache.check().expect("sums");
}

#[test]
fn a_hit_saves_what_its_entry_took_to_make() {
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("saved").limit_bytes(1 << 20).build();
    cache.insert(1, entry(10), Duration::from_micros(30));
    cache.insert(2, entry(10), Duration::from_micros(500));
    for key in [1, 1, 2, 3] {
        cache.get(&key);
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (3, 1));
    assert_eq!(stats.saved_ns, 560_000);
    assert_eq!(stats.made_ns, 530_000);
}

#[test]
fn a_large_value_comes_in_if_it_was_asked_for_more_than_those_that_must_go() {
    let build = || -> Arc<Cache<u64, Vec<u8>>> {
        Cache::named("contest")
            .limit_bytes(1 << 20)
            .shards(1)
            .build()
    };
    let filled = |times: usize| {
        let cache = build();
        for key in 0..400u64 {
            for _ in 0..times {
                cache.get(&key);
            }
            cache.insert(key, entry(4_000), Duration::ZERO);
        }
        assert!(cache.stats().entries > 150, "{:?}", cache.stats());
        cache
    };
    let asked = |cache: &Cache<u64, Vec<u8>>, times: usize| {
        for _ in 0..times {
            cache.get(&1_000_000);
        }
        cache.insert(1_000_000, entry(100_000), Duration::ZERO)
    };
    // A scan asks once for each key; entries that were asked for before they came are worth more than others.
    let needed = |filled_with: usize| {
        let comes_in = |times: &usize| asked(&filled(filled_with), *times);
        (0..16).find(comes_in).unwrap_or(16)
    };
    let (cold, warm) = (needed(0), needed(3));
    assert!(
        (2..=14).contains(&cold) && cold < warm,
        "cold {cold}, warm {warm}"
    );
    let cache = filled(0);
    let before = cache.stats();
    assert!(asked(&cache, 14));
    let after = cache.stats();
    assert!(after.bytes + after.own_bytes <= after.allowed_bytes);
    let displaced = before.entries + 1 - after.entries;
    assert!((1..40).contains(&displaced), "{displaced} went for one");
    assert!(
        !cache.insert(2_000_000, entry(600_000), Duration::ZERO),
        "over half of all"
    );
    cache.check().expect("sums");
}

#[test]
fn a_budget_knows_of_every_way_to_leave_a_cache() {
    let clock = Clock::by_hand();
    let budget = Budget::new(4 << 20);
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("member")
        .budget(&budget, 0)
        .idle(Duration::from_secs(5))
        .clock(clock.clone())
        .build();
    let same = |what: &str| assert_eq!(budget.used_bytes(), cache.bytes(), "{what}");
    for key in 0..100 {
        cache.insert(key, entry(1_000), Duration::ZERO);
    }
    same("insert");
    for key in 0..10 {
        assert!(cache.remove(&key));
    }
    assert!(!cache.remove(&3), "twice");
    same("remove");
    cache.insert(50, entry(20_000), Duration::ZERO);
    same("replace");
    cache.release_bytes(5_000);
    same("release");
    cache.release(ask(Level::High, 0));
    same("pressure");
    clock.advance(Duration::from_secs(6));
    cache.tick(Level::Calm);
    assert_eq!(cache.stats().entries, 0);
    same("idle");
    cache.insert(1, entry(10), Duration::ZERO);
    cache.clear();
    same("clear");
    drop(cache);
    assert_eq!(budget.used_bytes(), 0, "who ends takes his part along");
}

#[test]
fn a_budget_leaves_each_member_its_floor() {
    let budget = Budget::new(2 << 20);
    let make = |name: &str, floor: usize| -> Arc<Cache<u64, Vec<u8>>> {
        Cache::named(name).budget(&budget, floor).build()
    };
    let (kept, flooding) = (make("kept", 600 << 10), make("flooding", 0));
    for key in 0..500u64 {
        kept.insert(key, entry(1_000), Duration::ZERO);
    }
    let had = kept.bytes();
    assert!(had < 600 << 10);
    for key in 0..4_000u64 {
        flooding.insert(key, entry(2_000), Duration::from_millis(1));
        assert!(budget.used_bytes() <= 2 << 20, "{budget:?}");
    }
    assert_eq!(kept.bytes(), had, "below its floor nothing is asked of it");
    assert!(
        flooding.bytes() > 1 << 20,
        "what is left is the other's: {}",
        flooding.bytes()
    );
}

/// Decodes to as many bytes as the source says, in hundreds.
struct Hundreds<'a>(&'a AtomicUsize);

impl Decode for Hundreds<'static> {
    type Output = Vec<u8>;
    type Error = ();
    fn decode(&self, source: &[u8]) -> Result<Vec<u8>, ()> {
        // ORDER: a count.
        self.0.fetch_add(1, Ordering::Relaxed);
        match source {
            [] => Err(()),
            [hundreds, ..] => Ok(vec![1; usize::from(*hundreds) * 100]),
        }
    }
}

static DECODED: AtomicUsize = AtomicUsize::new(0);

#[test]
fn forms_that_are_there_are_measured_and_reported() {
    let clock = Clock::by_hand();
    let set = Discards::new("images", Duration::from_secs(3), clock.clone());
    let items: Vec<_> = [10u8, 20, 30]
        .iter()
        .map(|n| set.add(&[*n], Hundreds(&DECODED)))
        .collect();
    let broken = set.add(&[], Hundreds(&DECODED));
    assert_eq!(set.measure_decoded(), 0);
    // Each kind of value: what it holds, by the block's own count and with the count of its users.
    let mut bytes = Vec::new();
    for item in &items {
        let before = set.stats().decoded_bytes;
        let own = item.pin().expect("decoded").heap_bytes();
        bytes.push(set.stats().decoded_bytes - before);
        assert!(*bytes.last().expect("one") >= own && own >= 1_000);
    }
    assert!(broken.pin().is_err());
    assert_eq!(set.measure_decoded(), bytes.iter().sum::<usize>());
    assert_eq!(set.stats().decoded_bytes, bytes.iter().sum::<usize>());
    let registry = Registry::new();
    registry
        .add_shared("images", Arc::clone(&set) as Arc<_>)
        .keep();
    let line = |path: &str| registry.measure_reporters().sum(path);
    assert_eq!(
        line("explicit/images/decoded"),
        set.measure_decoded() as i64
    );
    assert_eq!(
        line("explicit/images/compressed"),
        set.stats().source_bytes as i64
    );
    assert!(set.stats().source_bytes > 0);
    assert_eq!(line("decoded/images"), 3);
    // With blocks it is measured anew, and the result is the same.
    let with_blocks = registry.measure_with_blocks();
    assert_eq!(
        with_blocks.sum("explicit/images/decoded"),
        set.measure_decoded() as i64
    );
    // Oldest use first, and no more than was wanted.
    clock.advance(Duration::from_secs(1));
    drop(items[0].pin());
    assert_eq!(set.discard_bytes(1), bytes[1]);
    assert_eq!(set.discard_bytes(0), 0);
    // Not before its time, but when it has come.
    clock.advance(Duration::from_millis(1_999));
    assert_eq!(set.sweep(), 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(set.sweep(), bytes[2]);
    assert_eq!(set.measure_decoded(), bytes[0]);
    assert_eq!(line("explicit/images/decoded"), bytes[0] as i64);
    let before = set.stats().decodes;
    drop(items[0].pin());
    assert_eq!(set.stats().decodes, before, "it was there");
    drop(items[1].pin());
    assert_eq!(set.stats().decodes, before + 1);
    assert_eq!(set.stats().discarded, 2);
}

#[test]
fn an_item_that_ends_takes_its_decoded_form_along() {
    let set = Discards::new("ending", Duration::from_secs(3), Clock::by_hand());
    let (kept, ending) = (
        set.add(&[10], Hundreds(&DECODED)),
        set.add(&[20], Hundreds(&DECODED)),
    );
    drop(kept.pin());
    let of_one = set.stats().decoded_bytes;
    drop(ending.pin());
    assert!(set.stats().decoded_bytes >= of_one + 2_000);
    drop(ending);
    let stats = set.stats();
    assert_eq!((stats.items, stats.decoded_bytes), (1, of_one));
    assert_eq!(stats.discarded, 0, "it went with its item");
    drop(kept);
    assert_eq!(set.stats().decoded_bytes, 0);
}

#[test]
fn times_beyond_all_clocks_are_for_ever() {
    // A C program may mean "for ever" by UINT64_MAX milliseconds; 2^62 seconds are 0 of them in 64 bits.
    for time in [
        Duration::from_millis(u64::MAX),
        Duration::from_secs(1 << 62),
    ] {
        let clock = Clock::by_hand();
        clock.advance(Duration::from_secs(5));
        let set = Discards::new("kept", time, clock.clone());
        let item = set.add(&[10], Hundreds(&DECODED));
        drop(item.pin());
        let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("kept")
            .idle(time)
            .lifetime(time)
            .clock(clock.clone())
            .build();
        cache.insert(1, entry(1_000), Duration::ZERO);
        clock.advance(Duration::from_secs(1_000_000));
        assert_eq!((set.sweep(), cache.expire()), (0, 0), "{time:?}");
        assert!(item.is_decoded() && cache.get(&1).is_some(), "{time:?}");
    }
}

#[test]
fn a_cache_that_is_walked_says_what_its_entries_have() {
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("walked").limit_bytes(1 << 20).build();
    for key in 0..10 {
        cache.insert(key, entry(1_000), Duration::from_millis(2));
    }
    for key in [1, 20, 30, 40] {
        cache.get(&key);
    }
    let registry = Registry::new();
    registry
        .add_shared("walked", Arc::clone(&cache) as Arc<_>)
        .keep();
    let mut walked = 0;
    cache.each(|key, value| walked += key.heap_bytes() + value.heap_bytes());
    assert_eq!(walked, cache.stats().bytes);
    for measured in [registry.measure_reporters(), registry.measure_with_blocks()] {
        assert_eq!(
            measured.sum("explicit/caches/walked/entries"),
            walked as i64
        );
        assert_eq!(measured.sum("cache/walked/made-us"), 20_000);
        assert_eq!(measured.sum("cache/walked/saved-us"), 2_000);
        assert_eq!(measured.sum("cache/walked/inserted"), 10);
        assert_eq!(
            measured.sum("cache-hits/walked"),
            2_500,
            "a quarter, in hundredths of a percent"
        );
    }
}

/// A key that is copied when a flight begins; the first copy puts a value into the cache.
struct Racing(u64, Arc<std::sync::OnceLock<Arc<Cache<Racing, u64>>>>);

impl Clone for Racing {
    fn clone(&self) -> Self {
        if self.0 == 1
            && let Some(cache) = self.1.get()
        {
            cache.insert(Racing(1, Arc::default()), 41, Duration::ZERO);
        }
        Racing(self.0, Arc::default())
    }
}

impl PartialEq for Racing {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Racing {}

impl std::hash::Hash for Racing {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl HeapBytes for Racing {
    fn heap_bytes(&self) -> usize {
        0
    }
}

#[test]
fn who_is_to_make_a_value_looks_once_more_whether_it_came_meanwhile() {
    let cache: Arc<Cache<Racing, u64>> = Cache::named("racing").limit_bytes(1 << 20).build();
    let own = Arc::new(std::sync::OnceLock::new());
    assert!(own.set(Arc::clone(&cache)).is_ok());
    let made = Cell::new(0);
    let make = |_: &Racing| {
        made.set(made.get() + 1);
        99
    };
    assert_eq!(
        cache.get_or_make(Racing(1, own), make),
        41,
        "what came between the look and the flight"
    );
    assert_eq!(made.get(), 0);
    assert_eq!(cache.get_or_make(Racing(2, Arc::default()), make), 99);
    assert_eq!(made.get(), 1);
}
