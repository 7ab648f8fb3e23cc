//! Recordings of a sample of acquisitions: what the recorder is told, once, before any process begins.
//!
//! ```text
//!   --sample=512K ─► Sample ─► session page ─► each thread draws (record-so's samples.rs)
//! ```
//!
//! Not here: resident memory, of which readings are taken (`sampler.rs`).

use std::sync::atomic::Ordering;

use skinflint_base::ring::SessionPage;

/// A sample of acquisitions instead of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The mean distance of samples in requested bytes, above 0.
    pub bytes: u64,
    /// Where the draws begin; 0: each process draws by numbers of its own.
    pub seed: u64,
}

impl Sample {
    /// Writes it to the page of a session that no process has yet.
    pub(crate) fn put(self, page: &SessionPage) {
        // ORDER: Relaxed for both; no other thread or process has the page yet.
        page.sample_bytes.store(self.bytes, Ordering::Relaxed);
        page.sample_seed.store(self.seed, Ordering::Relaxed);
    }
}
