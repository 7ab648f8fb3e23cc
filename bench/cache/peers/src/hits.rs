//! Hit ratios on seeded traces, with the same bound for all.
//!
//! ```text
//!   zipf, scan, loop, shift, mixed ─► get or insert ─► hits; bytes that the cache really had at most
//! ```
//!
//! H1  A value's size is a function of its key, 200 to 20,000 bytes, small ones more often.
//! H2  Peers are told bytes of values, and have more; each plays again, told less by so much. Ours is told all bytes.
//!
//! Not here: time, which depends on the machine more than on the cache; it is printed and not judged.

use std::sync::Arc;
use std::time::Duration;

use skinflint_cache::Cache;

use crate::{SEED, counting, cpu_ns, next};

const BOUND: usize = 16 << 20;
const REQUESTS: usize = 400_000;

type Value = Arc<[u8]>;

fn size_of(key: u64) -> usize {
    let mut state = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ SEED;
    let at = (next(&mut state) % 10_000) as f64 / 10_000.0;
    (200.0 * 100f64.powf(at * at)) as usize
}

fn value(key: u64) -> Value {
    vec![key as u8; size_of(key)].into()
}

/// Key n of so many, n as often as 1/n.
fn zipf(state: &mut u64, keys: u64) -> u64 {
    let at = (next(state) % (1 << 30)) as f64 / (1u64 << 30) as f64;
    ((keys as f64 + 1.0).powf(at) - 1.0) as u64
}

fn trace(name: &str) -> Vec<u64> {
    let mut state = SEED;
    let mut once = 1u64 << 40;
    (0..REQUESTS as u64)
        .map(|at| match name {
            "zipf" => zipf(&mut state, 100_000),
            // Every third stretch of 10,000 requests asks for each key once and never again.
            "scan" if at / 10_000 % 3 == 2 => {
                once += 1;
                once
            }
            "scan" => zipf(&mut state, 50_000),
            // 2.4 times as many bytes as fit: 16,000 values of 2,549 on average.
            "loop" => at % 16_000,
            // What is asked for most changes ten times.
            "shift" => zipf(&mut state, 50_000) + at / 40_000 * 1_000_000,
            _ => match next(&mut state) % 4 {
                0 => (1 << 30) + at % 20_000,
                1 => {
                    once += 1;
                    once
                }
                _ => zipf(&mut state, 50_000),
            },
        })
        .collect()
}

fn right(key: u64, value: &Value) {
    assert!(
        value.len() == size_of(key) && value.first() == Some(&(key as u8)),
        "key {key}: a wrong value"
    );
}

/// Plays a trace; returns the most bytes that the cache had.
fn play(
    (who, name, told): (&str, &str, usize),
    keys: &[u64],
    mut get: impl FnMut(u64) -> Option<Value>,
    put: impl Fn(u64, Value),
) -> usize {
    let before = counting::counts().usable;
    counting::most_since();
    let begin = cpu_ns();
    let mut hits = 0u64;
    for key in keys {
        match get(*key) {
            Some(value) => {
                right(*key, &value);
                hits += 1;
            }
            None => put(*key, value(*key)),
        }
    }
    let ns = (cpu_ns() - begin) / keys.len() as u64;
    let most = (counting::most_since() - before).max(1) as usize;
    println!(
        "{{\"what\": \"hits\", \"who\": \"{who}\", \"trace\": \"{name}\", \"requests\": {}, \"hits\": {hits}, \"told\": {told}, \"most_bytes\": {most}, \"cpu_ns\": {ns}}}",
        keys.len(),
    );
    most
}

fn ours(name: &str, keys: &[u64]) {
    let cache: Arc<Cache<u64, Value>> = Cache::named("ours").limit_bytes(BOUND).build();
    let put = |key, value| {
        cache.insert(key, value, Duration::from_micros(100));
    };
    play(("skinflint", name, BOUND), keys, |key| cache.get(&key), put);
}

fn moka(name: &str, keys: &[u64], told: usize) -> usize {
    let cache: moka::sync::Cache<u64, Value> = moka::sync::Cache::builder()
        .max_capacity(told as u64)
        .weigher(|_, value: &Value| value.len() as u32)
        .build();
    play(
        ("moka", name, told),
        keys,
        |key| cache.get(&key),
        |key, value| cache.insert(key, value),
    )
}

fn quick(name: &str, keys: &[u64], told: usize) -> usize {
    #[derive(Clone)]
    struct Weigh;
    impl quick_cache::Weighter<u64, Value> for Weigh {
        fn weight(&self, _: &u64, value: &Value) -> u64 {
            value.len() as u64
        }
    }
    let cache = quick_cache::sync::Cache::with_weighter(10_000, told as u64, Weigh);
    play(
        ("quick_cache", name, told),
        keys,
        |key| cache.get(&key),
        |key, value| cache.insert(key, value),
    )
}

/// Plays all traces on all caches: told the same, and then told so much less that they have the same.
pub fn run() {
    for name in ["zipf", "scan", "loop", "shift", "mixed"] {
        let keys = trace(name);
        ours(name, &keys);
        for peer in [moka, quick] {
            let most = peer(name, &keys, BOUND);
            peer(
                name,
                &keys,
                (BOUND as u128 * BOUND as u128 / most as u128) as usize,
            );
        }
    }
}
