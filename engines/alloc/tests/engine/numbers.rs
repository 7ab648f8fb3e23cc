//! Seeds of tests: drawn anew, or asked for, and said where a test fails.
//!
//! Not here: the numbers of a seed (`base::random`), what is done with them (`blocks`).

pub use skinflint_base::random::Random as Numbers;

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
