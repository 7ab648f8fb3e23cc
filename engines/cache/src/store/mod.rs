//! Caches that are bounded in bytes, forget what is not used, and say what they are good for.
//!
//! ```text
//!   get ─► hit: saved += what it cost          get_or_make ─► miss ─► make (timed, no lock) ─► insert ─► others go
//!   idle time ─┐
//!   pressure ──┼─► entries go, cold ones first; after pressure the limit stays low, and rises while it is calm
//!   budget ────┘
//! ```
//!
//! X1  `bytes + own_bytes <= allowed <= limit` after each call: entries as [`HeapBytes`] counts them, and the tables of
//!     the cache by the allocator's count. Where a shard's part has no room for tables and an entry, it has neither.
//! X2  After pressure `allowed` is what was left; it rises by an eighth of the limit with each tick while the level is
//!     calm. So a cache is not emptied, filled and emptied again.
//! X3  No lock is held while a value is made, cloned for another thread, or dropped; a clone under the lock is the
//!     caller's `V::clone`, which should be an `Arc`'s.
//! X4  `lookups == hits + misses`; `inserted == entries + evicted + expired + released + removed + refused`: each entry
//!     that came in is in, or went by one of these ways.
//! X5  A listener waits for a shard's lock until [`bus::Ask::until`] at most: the thread that holds it may be waiting
//!     for the bus.
//!
//! X6  Threads that miss the same key at once have it made once ([`flight`]): one makes it, the others wait, and get
//!     its value even if the cache does not take it. If it fails or panics, [`Cache::get_or_join`] reports that to all
//!     that waited, while with [`Cache::get_or_make`] and [`Cache::get_or_try_make`] the next of them makes it. A
//!     thread that is making a value does not wait.
//! X7  A listener learns of each entry that came in and went, once, with the way it went ([`Why`]): none of the cache's
//!     locks is held, the sums of X4 hold already, and the entry is dropped afterwards. Entries that go with the cache
//!     itself are not told.
//! X8  A value is found for less than its lifetime after it was put in, however often it is used: a lookup that comes
//!     later misses, and takes it out.
//!
//! Threads: a cache is shared by reference; each shard has a lock, held for some hundred nanoseconds, or while entries
//! go.
//!
//! Compared with maintained crates: moka and quick_cache take a weight from the caller and do not count their tables
//! (tens of bytes an entry), give back only by waiting or clearing, and cannot be asked for a number of bytes;
//! quick_cache has no idle time. Their hit ratios are compared with ours in `bench/cache`.
//!
//! Not here: which entries stay (`shard`), sharing among caches (`budget`).

mod budget;
mod clock;
mod flight;
mod ghosts;
mod index;
mod listen;
mod shard;
mod sketch;
mod stats;
mod tasks;

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use skinflint_base::sync::{AtomicU64, AtomicUsize, Ordering};

use crate::bus::{self, Ask, Level, Listener, Rebuild};
use crate::measure::HeapBytes;
use budget::Share;
pub use budget::{Budget, Member};
pub use clock::Clock;
use flight::Flights;
pub use flight::{Joined, Lost};
use listen::Told;
pub use listen::Why;
use shard::{Before, Inserted, Shard, Trash};
pub use stats::{ASKED_EACH, PAGE_NS, PLACEBO_LOOKUPS, PLACEBO_MISSES, Stats, Verdict};

/// The least bytes of a shard, unless it is the only one: a table for a few entries takes some 1.6 KiB.
const LEAST: usize = 8 << 10;
/// Number of entries that go under one hold of the lock.
const BATCH: usize = 64;
/// The part of the limit that comes back with each tick in calm times: one in `RISE` (X2).
const RISE: usize = 8;

/// The settings of a cache that is to be made.
#[derive(Clone, Debug)]
pub struct Builder {
    name: String,
    limit: usize,
    idle: Option<Duration>,
    lifetime: Option<Duration>,
    rebuild: Rebuild,
    shards: usize,
    clock: Clock,
    budget: Option<Arc<Budget>>,
    floor: usize,
}

impl Builder {
    /// Sets the bytes that the cache may have at most, its tables included. Without it: 64 MiB, or the budget's limit.
    pub fn limit_bytes(mut self, bytes: usize) -> Builder {
        self.limit = bytes;
        self
    }

    /// Sets the time after which unused entries go. Without it, only other entries displace them.
    pub fn idle(mut self, time: Duration) -> Builder {
        self.idle = Some(time);
        self
    }

    /// Sets the time after which an entry goes, counted from when it was put in, though it is used (X8). A part of a
    /// millisecond counts as a whole one. Without it, entries have no lifetime.
    pub fn lifetime(mut self, time: Duration) -> Builder {
        self.lifetime = Some(time);
        self
    }

    fn lifetime_ms(&self) -> Option<u64> {
        let ms = |time: Duration| {
            time.as_nanos()
                .div_ceil(1_000_000)
                .min(u64::MAX as u128 - 1)
        };
        self.lifetime.map(|time| ms(time) as u64)
    }

    /// Sets what it costs to make an entry again, which decides when pressure asks this cache. Without it:
    /// [`Rebuild::Compute`].
    pub fn rebuild(mut self, rebuild: Rebuild) -> Builder {
        self.rebuild = rebuild;
        self
    }

    /// Sets the number of shards, each with its own lock: a power of two. Each has its share of the limit, so an entry
    /// may be at most half of that; a small limit has fewer, so that each has 8 KiB, which tables take some of. Without
    /// it: one.
    pub fn shards(mut self, shards: usize) -> Builder {
        self.shards = shards.next_power_of_two().clamp(1, 256);
        self
    }

    /// Sets where the time comes from.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = clock;
        self
    }

    /// Shares a budget with other caches; `floor_bytes` are never taken for the others.
    pub fn budget(mut self, budget: &Arc<Budget>, floor_bytes: usize) -> Builder {
        self.budget = Some(Arc::clone(budget));
        self.floor = floor_bytes;
        self
    }

    /// Creates the cache.
    pub fn build<K, V>(self) -> Arc<Cache<K, V>>
    where
        K: Eq + Hash + Clone + HeapBytes + Send + Sync + 'static,
        V: Clone + HeapBytes + Send + 'static,
    {
        self.create(None)
    }

    /// Creates a cache that passes each entry that goes to `told`, with the way it went (X7). It runs on the thread that
    /// made the entry go, the bus's too, and may use the cache; of two threads' entries with one key either may be
    /// told first. It must not wait for a thread that inserts: that one may be waiting for the budget, which settles on
    /// this thread. If it panics, so does the call that made the entry go, and the rest of what went with it is not told.
    pub fn build_told<K, V>(
        self,
        told: impl Fn(&K, &V, Why) + Send + Sync + 'static,
    ) -> Arc<Cache<K, V>>
    where
        K: Eq + Hash + Clone + HeapBytes + Send + Sync + 'static,
        V: Clone + HeapBytes + Send + 'static,
    {
        self.create(Some(Box::new(told)))
    }

    fn create<K, V>(self, told: Told<K, V>) -> Arc<Cache<K, V>>
    where
        K: Eq + Hash + Clone + HeapBytes + Send + Sync + 'static,
        V: Clone + HeapBytes + Send + 'static,
    {
        let limit = match &self.budget {
            Some(budget) => self.limit.min(budget.limit_bytes()),
            None => self.limit,
        };
        let shards = self
            .shards
            .min((limit / LEAST + 1).next_power_of_two() / 2)
            .max(1);
        let each = limit / shards;
        let lifetime_ms = self.lifetime_ms().unwrap_or(u64::MAX);
        let cache = Arc::new(Cache {
            shards: (0..shards)
                .map(|_| Mutex::new(Shard::new(each, lifetime_ms, self.budget.is_some())))
                .collect(),
            allowed: AtomicUsize::new(limit),
            limit,
            flights: Flights::new(),
            told,
            counts: Counts::default(),
            hasher: RandomState::new(),
            share: self.budget.as_ref().map(Share::of),
            how: self,
        });
        if let (Some(budget), Some(share)) = (&cache.how.budget, &cache.share) {
            let member: Weak<Cache<K, V>> = Arc::downgrade(&cache);
            budget.add(member);
            share.change(cache.bytes() as isize);
        }
        cache
    }
}

/// Counts since the cache was made.
#[derive(Debug, Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    joined: AtomicU64,
    inserted: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
    expired: AtomicU64,
    released: AtomicU64,
    removed: AtomicU64,
    made_ns: AtomicU64,
    saved_ns: AtomicU64,
    /// What counts for a budget, faded: saved, or to be saved had there been room; and what making took.
    recent_ns: AtomicU64,
    recent_made_ns: AtomicU64,
    busy: AtomicU64,
}

/// Has a shard let entries go: bytes, the most entries at a time, the entries. `true`: there may be more.
type By<K, V> = fn(&mut Shard<K, V>, usize, usize, &mut Trash<K, V>) -> bool;

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed); // ORDER: a statistic
}

/// A cache that is bounded in bytes.
///
/// ```
/// use std::sync::Arc;
/// use skinflint_cache::Cache;
///
/// let pages: Arc<Cache<u32, Arc<str>>> = Cache::named("pages").limit_bytes(1 << 20).build();
/// let page = pages.get_or_make(7, |n| format!("page {n}").into());
/// assert_eq!(&*page, "page 7");
/// assert_eq!(pages.get(&7), Some(page));
/// assert_eq!((pages.stats().hits, pages.stats().misses), (1, 1));
/// ```
pub struct Cache<K, V> {
    shards: Box<[Mutex<Shard<K, V>>]>,
    allowed: AtomicUsize,
    limit: usize,
    flights: Flights<K, V>,
    told: Told<K, V>,
    counts: Counts,
    hasher: RandomState,
    share: Option<Share>,
    how: Builder,
}

impl Cache<(), ()> {
    /// Returns a builder of a cache with the name that logs and reports use.
    pub fn named(name: impl Into<String>) -> Builder {
        Builder {
            name: name.into(),
            limit: 64 << 20,
            idle: None,
            lifetime: None,
            rebuild: Rebuild::Compute,
            shards: 1,
            clock: Clock::real(),
            budget: None,
            floor: 0,
        }
    }
}

impl<K, V> Cache<K, V>
where
    K: Eq + Hash + HeapBytes,
    V: HeapBytes,
{
    fn lock(&self, hash: u64) -> MutexGuard<'_, Shard<K, V>> {
        // The top bits: the others are the sketch's and the index's.
        let at = (hash >> 32 >> 24) as usize & (self.shards.len() - 1);
        self.shards[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of a key. Cost: a hash, a lock, five words of counts.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
        V: Clone,
    {
        self.with(key, V::clone)
    }

    /// Passes the value of a key to `look`, without a clone. `look` runs under the shard's lock, and must not use the
    /// cache.
    pub fn with<Q, R>(&self, key: &Q, look: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let now_ms = self.how.clock.now_ms();
        let mut trash = Trash::new();
        let mut shard = self.lock(hash);
        let found = shard.get(hash, now_ms, |other| other.borrow() == key, &mut trash);
        let result = found.map(|(value, cost_ns)| {
            count(&self.counts.saved_ns, cost_ns);
            count(&self.counts.recent_ns, cost_ns);
            look(value)
        });
        drop(shard);
        match result {
            Some(_) => count(&self.counts.hits, 1),
            None => count(&self.counts.misses, 1),
        }
        if !trash.0.is_empty() {
            count(&self.counts.expired, 1);
            self.went(&trash, 0);
        }
        result
    }

    /// Returns the value of a key, and makes it if it is not there; the time that this takes is what later hits save.
    /// Waits while another thread makes it (X6); if that panics, the next one makes it.
    pub fn get_or_make(&self, key: K, make: impl FnOnce(&K) -> V) -> V
    where
        K: Clone,
        V: Clone,
    {
        match self.get_or_try_make(key, |key| Ok::<V, core::convert::Infallible>(make(key))) {
            Ok(value) => value,
        }
    }

    /// Does what [`Cache::get_or_make`] does for a `make` that may fail. An error is not kept, and goes to the caller
    /// of that `make`; of the others that waited the next one tries.
    ///
    /// # Errors
    /// The error of `make`.
    pub fn get_or_try_make<E>(&self, key: K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E>
    where
        K: Clone,
        V: Clone,
    {
        let mut make = Some(make);
        let mut counted = true;
        loop {
            // The one call that makes takes it, and returns.
            let mut once = |key: &K| match make.take() {
                Some(make) => make(key),
                None => unreachable!("a value is made once"),
            };
            match self.join(&key, counted, &mut once) {
                Ok(value) => return Ok(value),
                Err(Joined::Own(error)) => return Err(error),
                Err(Joined::Lost(_)) => counted = false,
            }
        }
    }

    /// Does what [`Cache::get_or_try_make`] does, without another try: where another thread was making the value in
    /// vain, all threads that waited get that error at once. For values that take long to fail.
    ///
    /// # Errors
    /// The error of `make`, or that another thread's `make` failed or panicked.
    pub fn get_or_join<E>(
        &self,
        key: K,
        make: impl FnOnce(&K) -> Result<V, E>,
    ) -> Result<V, Joined<E>>
    where
        K: Clone,
        V: Clone,
    {
        self.join(&key, true, make)
    }

    /// `counted`: whether the first look counts as a lookup; that of a second try does not.
    fn join<E>(
        &self,
        key: &K,
        counted: bool,
        make: impl FnOnce(&K) -> Result<V, E>,
    ) -> Result<V, Joined<E>>
    where
        K: Clone,
        V: Clone,
    {
        let hash = self.hasher.hash_one(key);
        let peek = || self.peek(hash, key);
        let known = if counted { self.get(key) } else { peek() };
        if let Some(value) = known {
            return Ok(value);
        }
        let make = || self.made(key, make);
        let joined = || count(&self.counts.joined, 1);
        self.flights.fetch(hash, key, peek, make, joined)
    }

    /// Returns the value of a key, and counts nothing: for a second look.
    fn peek(&self, hash: u64, key: &K) -> Option<V>
    where
        V: Clone,
    {
        let now_ms = self.how.clock.now_ms();
        let shard = self.lock(hash);
        shard.peek(hash, now_ms, |other| other == key).cloned()
    }

    fn made<E>(&self, key: &K, make: impl FnOnce(&K) -> Result<V, E>) -> Result<V, E>
    where
        K: Clone,
        V: Clone,
    {
        let begin = Instant::now();
        let value = make(key)?;
        self.insert(key.clone(), value.clone(), begin.elapsed());
        Ok(value)
    }

    /// Puts a value in, in place of one with this key. `cost`: the time that making took. `false`: it was refused,
    /// since other entries were asked for more often, or it is too large.
    pub fn insert(&self, key: K, value: V, cost: Duration) -> bool {
        let cost_ns = cost.as_nanos() as u64;
        let bytes = key.heap_bytes() + value.heap_bytes();
        let hash = self.hasher.hash_one(&key);
        let now_ms = self.how.clock.now_ms();
        let mut trash = Trash::new();
        let (inserted, change) = {
            let mut shard = self.lock(hash);
            if shard.was_missed(hash) {
                count(&self.counts.recent_ns, cost_ns);
            }
            let before = shard.bytes + shard.own_bytes();
            let inserted = shard.insert(hash, (key, value), (bytes, cost_ns, now_ms), &mut trash);
            (
                inserted,
                (shard.bytes + shard.own_bytes()) as isize - before as isize,
            )
        };
        count(&self.counts.inserted, 1);
        count(&self.counts.made_ns, cost_ns);
        count(&self.counts.recent_made_ns, cost_ns);
        let refused = u64::from(inserted != Inserted::Kept);
        count(&self.counts.refused, refused);
        count(&self.counts.evicted, trash.0.len() as u64 - refused);
        // The sums first: a listener or a value that panics leaves them right.
        if let Some(share) = &self.share {
            share.change(change);
        }
        self.tell(&trash);
        drop(trash);
        inserted == Inserted::Kept
    }

    /// Removes an entry. `true`: it was there.
    pub fn remove<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let mut trash = Trash::new();
        self.lock(hash).remove(
            hash,
            Why::Removed,
            |other| other.borrow() == key,
            &mut trash,
        );
        let there = !trash.0.is_empty();
        count(&self.counts.removed, u64::from(there));
        self.went(&trash, 0);
        there
    }

    /// Tells the budget of all that went, then the listener of the entries: one that panics, or a value that does, leaves
    /// the sums right. `shrunk`: bytes of tables. No lock is held.
    fn went(&self, trash: &Trash<K, V>, shrunk: usize) {
        if let Some(share) = &self.share {
            share.change(-((trash.bytes() + shrunk) as isize));
        }
        self.tell(trash);
    }

    fn tell(&self, trash: &Trash<K, V>) {
        if let Some(told) = &self.told {
            let each = trash.0.iter();
            each.for_each(|gone| told(&gone.entry.0, &gone.entry.1, gone.why));
        }
    }

    /// Drops `bytes` bytes of entries, cold ones first, and the excess of the tables; returns the bytes dropped.
    pub fn release_bytes(&self, bytes: usize) -> usize {
        self.release_until(bytes, self.bytes(), None, Shard::release)
    }

    /// Drops each shard's part. `all`: the bytes of the whole cache. `by`: what says which entries go.
    fn release_until(
        &self,
        bytes: usize,
        all: usize,
        until: Option<Instant>,
        by: By<K, V>,
    ) -> usize {
        let all = all.max(1);
        let mut dropped = 0;
        for shard in &self.shards {
            let Some(held) = lock_until(shard, until) else {
                count(&self.counts.busy, 1);
                continue;
            };
            // Each shard gives in proportion to what it has.
            let has = held.bytes + held.own_bytes();
            let part = (bytes as u128 * has as u128).div_ceil(all as u128) as usize;
            drop(held);
            dropped += self.release_shard(shard, part, until, by);
        }
        dropped
    }

    fn release_shard(
        &self,
        shard: &Mutex<Shard<K, V>>,
        part: usize,
        until: Option<Instant>,
        by: By<K, V>,
    ) -> usize {
        let mut dropped = 0;
        loop {
            let mut trash = Trash::new();
            let Some(mut held) = lock_until(shard, until) else {
                count(&self.counts.busy, 1);
                return dropped;
            };
            let own = held.own_bytes();
            let part = part.saturating_sub(dropped);
            let more = by(&mut held, part, BATCH, &mut trash);
            // Tables count: where entries were enough, they stay until they are wanted.
            if !more && trash.bytes() < part {
                held.shrink();
            }
            let shrunk = own.saturating_sub(held.own_bytes());
            drop(held);
            dropped += trash.bytes() + shrunk;
            count(&self.counts.released, trash.0.len() as u64);
            self.went(&trash, shrunk);
            if !more {
                return dropped;
            }
        }
    }

    /// Drops entries that were not used for the idle time, or whose lifetime is over; returns the bytes dropped. The bus
    /// calls this; without a bus, a timer of the program should.
    pub fn expire(&self) -> usize {
        let now_ms = self.how.clock.now_ms();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let idle_ms = self.how.idle.map(ms);
        let lifetime_ms = self.how.lifetime_ms();
        let before = Before {
            used_ms: idle_ms.map_or(0, |idle| now_ms.saturating_sub(idle)),
            born_ms: lifetime_ms.and_then(|lifetime| now_ms.checked_sub(lifetime)),
        };
        if before.used_ms == 0 && before.born_ms.is_none() {
            return 0;
        }
        let mut dropped = 0;
        for shard in &self.shards {
            let mut from = Some(0);
            while let Some(at) = from {
                let mut trash = Trash::new();
                let mut held = shard.lock().unwrap_or_else(PoisonError::into_inner);
                from = held.expire(before, at, BATCH, &mut trash);
                let own = held.own_bytes();
                if from.is_none() {
                    held.shrink();
                }
                let shrunk = own.saturating_sub(held.own_bytes());
                drop(held);
                dropped += trash.bytes() + shrunk;
                count(&self.counts.expired, trash.0.len() as u64);
                self.went(&trash, shrunk);
            }
        }
        dropped
    }

    /// Drops everything; returns the bytes dropped.
    pub fn clear(&self) -> usize {
        self.release_bytes(usize::MAX >> 8)
    }

    /// Returns the bytes of entries and tables.
    pub fn bytes(&self) -> usize {
        self.sum(|shard| shard.bytes + shard.own_bytes())
    }

    /// Passes each entry to `look`, under its shard's lock: `look` must not use the cache. For reporters that must say
    /// which blocks they have measured.
    pub fn each(&self, mut look: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.each(&mut look);
        }
    }

    fn sum(&self, of: impl Fn(&Shard<K, V>) -> usize) -> usize {
        self.shards
            .iter()
            .map(|shard| of(&shard.lock().unwrap_or_else(PoisonError::into_inner)))
            .sum()
    }

    /// Returns the figures of the cache: what it has, and what it was good for.
    pub fn stats(&self) -> Stats {
        // ORDER: statistics.
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            name: self.how.name.clone(),
            entries: self.sum(Shard::count),
            bytes: self.sum(|shard| shard.bytes),
            own_bytes: self.sum(Shard::own_bytes),
            limit_bytes: self.limit,
            allowed_bytes: self.allowed.load(Ordering::Relaxed), // ORDER: a statistic
            hits: of(&self.counts.hits),
            misses: of(&self.counts.misses),
            joined: of(&self.counts.joined),
            inserted: of(&self.counts.inserted),
            refused: of(&self.counts.refused),
            evicted: of(&self.counts.evicted),
            expired: of(&self.counts.expired),
            released: of(&self.counts.released),
            removed: of(&self.counts.removed),
            made_ns: of(&self.counts.made_ns),
            saved_ns: of(&self.counts.saved_ns),
            busy: of(&self.counts.busy),
        }
    }

    /// Checks that the sums hold (X1, and shard.D1).
    ///
    /// # Errors
    /// A text that says what does not hold.
    pub fn check(&self) -> Result<(), String> {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.check()?;
            if shard.count() > 0 && shard.bytes + shard.own_bytes() > shard.allowed {
                let (bytes, own) = (shard.bytes, shard.own_bytes());
                return Err(format!(
                    "{bytes} bytes and {own} of its own, {} allowed",
                    shard.allowed
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of threads that wait at this moment for a value that another one makes (X6). Any thread may
    /// ask. Cost: a lock, and a walk over what is being made.
    #[cfg(not(loom))]
    pub fn waiting(&self) -> usize {
        self.flights.waiting()
    }

    fn set_allowed(&self, allowed: usize, until: Option<Instant>) {
        let allowed = allowed.min(self.limit);
        self.allowed.store(allowed, Ordering::Relaxed); // ORDER: a figure; each shard's is under its lock
        for shard in &self.shards {
            if let Some(mut shard) = lock_until(shard, until) {
                // Never below what is there: the next insertion would evict the difference, all at once.
                shard.allowed = (allowed / self.shards.len()).max(shard.bytes + shard.own_bytes());
            }
        }
    }
}

/// Takes a lock, or returns `None` when the time is over. It sleeps for short times: the bus's thread has nothing
/// better to do.
fn lock_until<T>(mutex: &Mutex<T>, until: Option<Instant>) -> Option<MutexGuard<'_, T>> {
    let Some(until) = until else {
        return Some(mutex.lock().unwrap_or_else(PoisonError::into_inner));
    };
    loop {
        match mutex.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// How long a cache waits for one of its locks when pressure asks (X5): a holder that waits for the bus must not be
/// waited for.
const LOCK_WAIT: Duration = Duration::from_millis(20);

impl<K, V> Listener for Cache<K, V>
where
    K: Eq + Hash + HeapBytes + Send + Sync,
    V: HeapBytes + Send,
{
    fn name(&self) -> &str {
        &self.how.name
    }

    fn rebuild(&self) -> Rebuild {
        self.how.rebuild
    }

    fn release(&self, ask: Ask) -> usize {
        let until = Some(ask.until.min(Instant::now() + LOCK_WAIT));
        let has = self.bytes_until(until);
        let dropped = self.release_until(ask.of(has), has, until, Shard::release);
        self.set_allowed(has.saturating_sub(dropped).max(self.limit / 64), until);
        dropped
    }

    fn tick(&self, level: bus::Level) -> usize {
        if level == Level::Calm {
            // ORDER: a figure.
            let allowed = self.allowed.load(Ordering::Relaxed);
            if allowed < self.limit {
                let until = Some(Instant::now() + LOCK_WAIT);
                self.set_allowed(allowed + self.limit / RISE, until);
            }
        }
        self.expire()
    }
}

impl<K, V> Cache<K, V>
where
    K: Eq + Hash + HeapBytes,
    V: HeapBytes,
{
    fn bytes_until(&self, until: Option<Instant>) -> usize {
        self.shards
            .iter()
            .filter_map(|shard| lock_until(shard, until))
            .map(|shard| shard.bytes + shard.own_bytes())
            .sum()
    }
}

impl<K, V> Member for Cache<K, V>
where
    K: Eq + Hash + HeapBytes + Send + Sync,
    V: HeapBytes + Send,
{
    fn bytes(&self) -> usize {
        Cache::bytes(self)
    }

    fn floor_bytes(&self) -> usize {
        self.how.floor
    }

    fn recent_ns(&self) -> u64 {
        let saved = self.counts.recent_ns.load(Ordering::Relaxed); // ORDER: a statistic
        let made = self.counts.recent_made_ns.load(Ordering::Relaxed); // ORDER: as above
        match saved.saturating_mul(PLACEBO_MISSES) < made {
            true => 0,
            false => saved,
        }
    }

    fn fade(&self) {
        for sum in [&self.counts.recent_ns, &self.counts.recent_made_ns] {
            // ORDER: a statistic; a hit that comes between the two is lost to it.
            let recent = sum.load(Ordering::Relaxed);
            sum.fetch_sub(recent.div_ceil(2), Ordering::Relaxed); // ORDER: as above
        }
    }

    fn give(&self, bytes: usize) -> usize {
        self.release_until(bytes, Cache::bytes(self), None, Shard::give)
    }
}
