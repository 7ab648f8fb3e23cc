//! Numbers from a seed.
//!
//! N1  The same seed gives the same numbers, on every machine.
//!
//! Not here: what is done with them (`blocks`).

/// SplitMix64.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// The seed of a test: drawn anew each time, unless one is asked for.
pub fn seed() -> u64 {
    if let Some(wanted) = std::env::var_os("SKINFLINT_SEED") {
        let wanted = wanted.to_str().and_then(|text| text.parse().ok());
        return wanted.expect("SKINFLINT_SEED must be a number");
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_nanos() as u64) % 1_000_000_007
}

/// Says the seed if the test fails.
pub struct Told(pub u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("again with: SKINFLINT_SEED={}", self.0);
        }
    }
}
