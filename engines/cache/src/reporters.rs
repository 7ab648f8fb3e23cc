//! Reporters of caches, decoded forms and the bus: lines of a memory report.
//!
//! ```text
//!   Cache    explicit/caches/NAME/{entries, tables}    cache/NAME/{lookups, hits, …}    cache-hits/NAME    placebos/NAME
//!   Discards explicit/NAME/{compressed, decoded}       Bus  pressure/{rounds, dropped, came-back}
//! ```
//!
//! R1  Bytes are those by which the bound is kept ([`crate::measure`]); each block is in one line. Where a value shares
//!     blocks with another reporter, the program reports that cache itself.
//! R2  A cache that is a placebo has a line of its own, `placebos/NAME`, with the bytes that it costs.
//! R3  Where a measurement asks for blocks, entries are walked and measured anew: the sum that is reported is that of
//!     the blocks that are named. Sources of discardable forms are named by the objects that hold them.
//!
//! Not here: the registry, the file, the page (`report`).

use std::hash::Hash;
use std::sync::Arc;

use skinflint_reporters::{Reporter, Sink, component};

use crate::bus::Bus;
use crate::discard::Discards;
use crate::measure::HeapBytes;
use crate::store::{Cache, Stats, Verdict};

/// Writes the lines of a cache's figures.
pub fn cache(stats: &Stats, out: &mut Sink<'_>) {
    let name = component(&stats.name);
    let path = |part: &str| format!("explicit/caches/{name}/{part}");
    out.heap(&path("entries"), stats.bytes, "Keys and values.");
    out.heap(&path("tables"), stats.own_bytes, "The cache's own tables.");
    let lookups = stats.hits + stats.misses;
    let counts = [
        ("lookups", lookups, "Questions since it was made."),
        ("hits", stats.hits, "Questions that were answered."),
        ("inserted", stats.inserted, "Entries that came."),
        (
            "refused",
            stats.refused,
            "Entries that others were preferred to.",
        ),
        ("evicted", stats.evicted, "Entries displaced or replaced."),
        (
            "expired",
            stats.expired,
            "Entries that were not used for the idle time.",
        ),
        (
            "released",
            stats.released,
            "Entries given back: pressure, budget.",
        ),
        (
            "made-us",
            stats.made_ns / 1_000,
            "Microseconds that making took.",
        ),
        (
            "saved-us",
            stats.saved_ns / 1_000,
            "Microseconds that hits saved.",
        ),
    ];
    for (part, count, said) in counts {
        out.cumulative(&format!("cache/{name}/{part}"), count, said);
    }
    out.percent(
        &format!("cache-hits/{name}"),
        stats.hits,
        lookups,
        "Hits of lookups.",
    );
    if stats.verdict() == Verdict::Placebo {
        let bytes = (stats.bytes + stats.own_bytes) as u64;
        out.bytes(
            &format!("placebos/{name}"),
            bytes,
            "A cache that hits next to never, or saved less time than its memory costs.",
        );
    }
}

impl<K, V> Reporter for Cache<K, V>
where
    K: Eq + Hash + HeapBytes + Send + Sync,
    V: HeapBytes + Send,
{
    fn report(&self, out: &mut Sink<'_>) {
        let mut walked = 0;
        if out.wants_blocks() {
            self.each(|key, value| walked += key.heap_bytes() + value.heap_bytes());
        }
        // The tables are measured here, after the entries, and are in the line after theirs.
        let mut stats = self.stats();
        if out.wants_blocks() {
            stats.bytes = walked;
        }
        cache(&stats, out);
    }
}

impl Reporter for Discards {
    fn report(&self, out: &mut Sink<'_>) {
        let stats = self.stats();
        let name = component(self.title());
        let said = "Compressed sources, which stay.";
        out.heap(
            &format!("explicit/{name}/compressed"),
            stats.source_bytes,
            said,
        );
        let said = "Decoded forms, which go when they are not used.";
        let decoded = match out.wants_blocks() {
            true => self.measure_decoded(),
            false => stats.decoded_bytes,
        };
        out.heap(&format!("explicit/{name}/decoded"), decoded, said);
        out.cumulative(
            &format!("decoded/{name}"),
            stats.decodes,
            "Times that one was decoded.",
        );
    }
}

/// Returns a reporter of a bus's rounds. Those that the log has forgotten are counted in the rounds only.
pub fn bus(bus: &Arc<Bus>) -> impl Reporter + use<> {
    let bus = Arc::downgrade(bus);
    move |out: &mut Sink<'_>| {
        let Some(bus) = bus.upgrade() else { return };
        let (events, forgotten) = bus.events();
        let rounds = events.len() as u64 + forgotten;
        out.cumulative(
            "pressure/rounds",
            rounds,
            "Times that memory was asked back.",
        );
        out.count(
            "pressure-level",
            bus.level() as u64,
            "0 calm, 1 near, 2 high, 3 critical.",
        );
        let rows = || events.iter().flat_map(|event| &event.rows);
        let dropped = rows().map(|row| row.dropped_bytes as u64).sum();
        out.bytes(
            "pressure-bytes/dropped",
            dropped,
            "By listeners' own count, in the rounds of the log.",
        );
        let back = rows().map(|row| row.came_back_bytes.max(0) as u64).sum();
        out.bytes(
            "pressure-bytes/came-back",
            back,
            "By which resident memory fell after listeners.",
        );
    }
}
