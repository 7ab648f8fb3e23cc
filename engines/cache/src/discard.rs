//! Decoded forms that go after a while; their compressed sources stay.
//!
//! ```text
//!   add(source) ─► Discardable ─► pin() ─► decode, or what is decoded ─► Pinned: &Output
//!                                   ▲                │ unpinned, for as long as `keep`, or pressure
//!                                   └── source ◄─────┘ gone
//! ```
//!
//! P1  What is pinned stays decoded. The last unpin notes the time, from which `keep` runs.
//! P2  One thread decodes; other threads that want the same form wait for it. If it fails or panics, the next one
//!     tries.
//! P3  `decoded_bytes` of the set is the sum over its decoded items, by [`HeapBytes`]; sources are counted separately.
//! P4  The set knows its decoded items only: a tick costs what is decoded, not what there is.
//! P5  A decoded form is dropped with no lock held.
//! P6  The set's list has each item once at most, however often it was decoded again (pin.N3).
//!
//! Source: Firefox 3 and later, which drop decoded images after a short time and keep the compressed data; 10 s is
//! Firefox's wait (`image.mem.discardable`, `image.mem.surfacecache.min_expiration_ms` are its settings).
//!
//! Not here: decoders (`pictures`), pins and turns (`pin`).

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use skinflint_base::sync::{AtomicU64, AtomicUsize, Ordering};

use crate::bus::{Ask, Level, Listener, Rebuild};
use crate::measure::HeapBytes;
use crate::pin::{List, Pins};
use crate::store::Clock;

/// A way to turn a source into what is used.
pub trait Decode: Send + Sync + 'static {
    /// The decoded form.
    type Output: HeapBytes + Send + Sync + 'static;
    /// The error of a decoder.
    type Error;

    /// Decodes a source. Runs without a lock, on the thread that pins.
    ///
    /// # Errors
    /// The source cannot be decoded.
    fn decode(&self, source: &[u8]) -> Result<Self::Output, Self::Error>;
}

struct Item<D: Decode> {
    source: Box<[u8]>,
    how: D,
    set: Arc<Inner>,
    pins: Pins<Arc<D::Output>>,
}

#[derive(Default)]
struct Counts {
    items: AtomicUsize,
    source_bytes: AtomicUsize,
    decoded_bytes: AtomicUsize,
    decodes: AtomicU64,
    decode_ns: AtomicU64,
    pins: AtomicU64,
    discarded: AtomicU64,
}

struct Inner {
    name: String,
    keep: Duration,
    clock: Clock,
    counts: Counts,
    decoded: List<Weak<dyn Sweep>>,
}

/// An item, as its set sees it.
trait Sweep: Send + Sync {
    /// Returns when the form was last used; `None`: it is pinned, or not decoded. Does not wait.
    fn idle_since_ms(&self) -> Option<u64>;
    /// Reports whether the item stays in the list.
    fn stays(&self) -> bool;
    /// Drops the decoded form, unless it is pinned; returns its bytes.
    fn discard(&self) -> usize;
    /// Returns the bytes of the decoded form, measured now.
    fn decoded_bytes(&self) -> usize;
}

/// A set of items with one rule, such as the images of a page. Join it to the bus.
pub struct Discards(Arc<Inner>);

/// Figures of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DiscardStats {
    /// Number of items.
    pub items: usize,
    /// Bytes of compressed sources.
    pub source_bytes: usize,
    /// Bytes of decoded forms now.
    pub decoded_bytes: usize,
    /// Number of times that an item was decoded.
    pub decodes: u64,
    /// Wall time of all decoding.
    pub decode_ns: u64,
    /// Number of pins so far: those beyond `decodes` found a decoded form.
    pub pins: u64,
    /// Number of decoded forms dropped while their item lived.
    pub discarded: u64,
}

/// How long a decoded form stays after its last use: long enough to scroll back, short compared with a visit.
pub const KEEP: Duration = Duration::from_secs(10);

impl Discards {
    /// Creates a set whose decoded forms stay for `keep` after their last use.
    pub fn new(name: impl Into<String>, keep: Duration, clock: Clock) -> Arc<Discards> {
        Arc::new(Discards(Arc::new(Inner {
            name: name.into(),
            keep,
            clock,
            counts: Counts::default(),
            decoded: List::new(),
        })))
    }

    /// Adds a source, which is copied into a block of its length.
    pub fn add<D: Decode>(&self, source: &[u8], how: D) -> Discardable<D> {
        let source: Box<[u8]> = source.into();
        let counts = &self.0.counts;
        counts.items.fetch_add(1, Ordering::Relaxed); // ORDER: statistics, here and below
        counts
            .source_bytes
            .fetch_add(source.heap_bytes(), Ordering::Relaxed); // ORDER: as above
        Discardable(Arc::new(Item {
            source,
            how,
            set: Arc::clone(&self.0),
            pins: Pins::new(),
        }))
    }

    /// Drops forms that were not used for the set's time; returns their bytes. The bus calls this.
    pub fn sweep(&self) -> usize {
        let now_ms = self.0.clock.now_ms();
        // A time beyond all clocks is for ever.
        let keep_ms = u64::try_from(self.0.keep.as_millis()).unwrap_or(u64::MAX);
        self.discard_while(|since_ms, _| since_ms.saturating_add(keep_ms) <= now_ms)
    }

    /// Drops forms that are not pinned, oldest use first, until `bytes` bytes went; returns the bytes dropped.
    pub fn discard_bytes(&self, bytes: usize) -> usize {
        self.discard_while(|_, dropped| dropped < bytes)
    }

    fn discard_while(&self, mut go_on: impl FnMut(u64, usize) -> bool) -> usize {
        let all = self.0.decoded.strike(Weak::upgrade, |item| item.stays());
        let mut idle: Vec<(u64, Arc<dyn Sweep>)> = all
            .into_iter()
            .filter_map(|item| Some((item.idle_since_ms()?, item)))
            .collect();
        idle.sort_by_key(|(since_ms, _)| *since_ms);
        let mut dropped = 0;
        for (since_ms, item) in idle {
            if !go_on(since_ms, dropped) {
                break;
            }
            dropped += item.discard();
        }
        dropped
    }

    /// Returns the bytes of all decoded forms, measured now: for reporters that must say which blocks they have
    /// measured.
    pub fn measure_decoded(&self) -> usize {
        let items = self.0.decoded.all(Weak::upgrade);
        // Each item is in the list once (P6); were one in it twice, its blocks would still be named once.
        let mut seen = std::collections::HashSet::new();
        let first = items
            .iter()
            .filter(|item| seen.insert(Arc::as_ptr(item).addr()));
        first.map(|item| item.decoded_bytes()).sum()
    }

    /// Returns the set's name.
    pub fn title(&self) -> &str {
        &self.0.name
    }

    /// Returns the figures of the set.
    pub fn stats(&self) -> DiscardStats {
        let counts = &self.0.counts;
        // ORDER: statistics.
        DiscardStats {
            items: counts.items.load(Ordering::Relaxed),
            source_bytes: counts.source_bytes.load(Ordering::Relaxed),
            decoded_bytes: counts.decoded_bytes.load(Ordering::Relaxed),
            decodes: counts.decodes.load(Ordering::Relaxed),
            decode_ns: counts.decode_ns.load(Ordering::Relaxed), // ORDER: as above
            pins: counts.pins.load(Ordering::Relaxed),           // ORDER: as above
            discarded: counts.discarded.load(Ordering::Relaxed), // ORDER: as above
        }
    }
}

impl Listener for Discards {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn rebuild(&self) -> Rebuild {
        Rebuild::Decode
    }

    fn release(&self, ask: Ask) -> usize {
        self.discard_bytes(ask.of(self.stats().decoded_bytes))
    }

    fn tick(&self, _: Level) -> usize {
        self.sweep()
    }
}

/// A source, and the form it decodes to while that is used. Any thread may pin it; a clone is the same item.
pub struct Discardable<D: Decode>(Arc<Item<D>>);

impl<D: Decode> Clone for Discardable<D> {
    fn clone(&self) -> Self {
        Discardable(Arc::clone(&self.0))
    }
}

impl<D: Decode> Discardable<D> {
    /// Returns the decoded form, which stays as long as the pin. Decodes first if there is none, and then takes as long
    /// as that.
    ///
    /// # Errors
    /// The decoder's error.
    pub fn pin(&self) -> Result<Pinned<D>, D::Error> {
        let item = &self.0;
        item.set.counts.pins.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        let list = || {
            let weak: Weak<Item<D>> = Arc::downgrade(item);
            item.set.decoded.add(weak);
        };
        let value = item.pins.pinned(|| item.decode(), list)?;
        Ok(Pinned {
            item: Arc::clone(item),
            value: Some(value),
        })
    }

    /// Returns the compressed source.
    pub fn source(&self) -> &[u8] {
        &self.0.source
    }

    /// Returns the usable bytes of the source's block.
    pub fn source_bytes(&self) -> usize {
        self.0.source.heap_bytes()
    }

    /// Reports whether the item is decoded now.
    pub fn is_decoded(&self) -> bool {
        self.0.pins.is_decoded()
    }
}

/// Counts nothing: the source and the decoded form belong to the set, which counts them (P3).
impl<D: Decode> HeapBytes for Discardable<D> {
    const OWNS: bool = false;

    fn heap_bytes(&self) -> usize {
        0
    }
}

impl<D: Decode> Item<D> {
    /// Decodes and counts; returns the form and its bytes.
    fn decode(&self) -> Result<(Arc<D::Output>, usize), D::Error> {
        let begin = Instant::now();
        let value = Arc::new(self.how.decode(&self.source)?);
        let (bytes, took) = (value.heap_bytes(), begin.elapsed());
        let counts = &self.set.counts;
        counts.decodes.fetch_add(1, Ordering::Relaxed); // ORDER: statistics, here and below
        counts
            .decode_ns
            .fetch_add(took.as_nanos() as u64, Ordering::Relaxed); // ORDER: as above
        counts.decoded_bytes.fetch_add(bytes, Ordering::Relaxed); // ORDER: as above
        Ok((value, bytes))
    }
}

impl<D: Decode> Sweep for Item<D> {
    fn idle_since_ms(&self) -> Option<u64> {
        self.pins.idle_since_ms()
    }

    fn stays(&self) -> bool {
        self.pins.stays()
    }

    fn decoded_bytes(&self) -> usize {
        self.pins.look().map_or(0, |value| value.heap_bytes())
    }

    fn discard(&self) -> usize {
        let Some((value, bytes)) = self.pins.discard() else {
            return 0;
        };
        drop(value);
        let counts = &self.set.counts;
        counts.decoded_bytes.fetch_sub(bytes, Ordering::Relaxed); // ORDER: a statistic
        counts.discarded.fetch_add(1, Ordering::Relaxed); // ORDER: a statistic
        bytes
    }
}

impl<D: Decode> Drop for Item<D> {
    fn drop(&mut self) {
        let bytes = self.pins.bytes();
        let counts = &self.set.counts;
        counts.items.fetch_sub(1, Ordering::Relaxed); // ORDER: statistics, here and below
        counts
            .source_bytes
            .fetch_sub(self.source.heap_bytes(), Ordering::Relaxed); // ORDER: as above
        counts.decoded_bytes.fetch_sub(bytes, Ordering::Relaxed); // ORDER: as above
    }
}

/// A decoded form in use.
pub struct Pinned<D: Decode> {
    item: Arc<Item<D>>,
    /// The form. It is there until the drop, which gives it back before the item is told.
    value: Option<Arc<D::Output>>,
}

impl<D: Decode> Deref for Pinned<D> {
    type Target = D::Output;
    fn deref(&self) -> &D::Output {
        match &self.value {
            Some(value) => value,
            None => unreachable!("taken by the drop alone"),
        }
    }
}

impl<D: Decode> fmt::Debug for Pinned<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a form of {} bytes", self.item.source.len())
    }
}

impl<D: Decode> Drop for Pinned<D> {
    fn drop(&mut self) {
        // The item's own reference is the last one then, so a discard frees the form.
        self.value = None;
        self.item.pins.unpin(self.item.set.clock.now_ms());
    }
}
