//! What goes by itself: documents that were not used for half an hour, and what of their memory comes back.
//!
//! ```text
//!   cargo run --release -p skinflint-cache --example expiry
//!       ─► full, 29 minutes later, 31 minutes after the last use: bytes, entries, resident KiB, as JSON
//! ```
//!
//! P1  Time is moved by hand; nothing is dropped but by `expire`.
//! P2  A hundredth of the entries is used again at 29 minutes, and stays.
//!
//! Not here: how long is right. Half an hour is what Firefox 3 kept documents for (Pavlov, 2008).

use std::sync::Arc;
use std::time::Duration;

use skinflint_cache::Cache;
use skinflint_cache::bus::{Trim, resident};
use skinflint_cache::store::Clock;

const ENTRIES: u64 = 4_000;
const BYTES: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

fn tell(at: &str, cache: &Cache<u64, Arc<[u8]>>, before: usize) -> String {
    Trim::find().run();
    let kib = resident().unwrap_or(0).saturating_sub(before) / 1024;
    let (bytes, entries) = (cache.bytes(), cache.stats().entries);
    format!("\"{at}\": {{\"bytes\": {bytes}, \"entries\": {entries}, \"rss_kib\": {kib}}}")
}

fn main() {
    let clock = Clock::by_hand();
    let documents: Arc<Cache<u64, Arc<[u8]>>> = Cache::named("documents")
        .limit_bytes(64 << 20)
        .idle(30 * MINUTE)
        .clock(clock.clone())
        .build();
    let before = resident().unwrap_or(0);
    for key in 0..ENTRIES {
        documents.insert(key, vec![7; BYTES].into(), Duration::from_millis(3));
    }
    let full = tell("full", &documents, before);
    clock.advance(29 * MINUTE);
    documents.expire();
    for key in (0..ENTRIES).step_by(100) {
        assert!(documents.get(&key).is_some(), "it went before its time");
    }
    let early = tell("after_29", &documents, before);
    clock.advance(2 * MINUTE);
    documents.expire();
    let late = tell("after_31", &documents, before);
    println!("{{{full}, {early}, {late}}}");
}
