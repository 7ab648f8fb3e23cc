//! A wait for what another process or thread does, with a bound that only a fault reaches.
//!
//! ```text
//!   until("the server listens", || TcpStream::connect(address).ok()) ──► the stream
//!          └─ said when a minute is over                    └─ asked again until it is Some
//! ```
//!
//! W1  The bound is far beyond what a busy machine needs: it ends a test that waits for nothing, and judges no time.
//! W2  Between two looks the processor is given to others, so that a wait does not hold up what it waits for.
//!
//! Not here: the end of a program that a test started (each tool's own `run_within`).

use std::time::{Duration, Instant};

/// The longest that a test waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks until there is an answer, and returns it; panics with `what` after two minutes.
#[track_caller]
pub fn until<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = there() {
            return found;
        }
        // CLOCK: the bound that ends the wait (W1).
        assert!(
            since.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        // CLOCK: the pause between two looks (W2).
        std::thread::sleep(PAUSE);
    }
}
