//! The room of a heap below its limit: where it is collected, whatever its table says.
//!
//! ```text
//!   0 ─── base: what lives ──────────── threshold ── forced ── limit
//! ```
//!
//! trigger.T5 is kept here.
//!
//! Not here: thresholds by growth (`trigger`), refusals at the limit (`limit`, `shortage`).

/// The room of a heap below its limit (trigger.T5).
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) limit_bytes: usize,
    /// Live bytes at the last collection, the client's bytes included; the least of them since.
    pub(super) base_bytes: usize,
}

impl Room {
    /// Returns the cells and client's bytes at which the heap is collected.
    pub(super) fn threshold(self) -> usize {
        let limit = self.limit_bytes;
        let left = limit.saturating_sub(self.base_bytes);
        let least = self.base_bytes.saturating_add((left / 2).max(limit / 64));
        (limit - limit / 8).max(least)
    }

    /// Returns the bytes at which marking in slices is finished at once: half-way from the threshold to the limit.
    pub(super) fn forced(self) -> usize {
        let threshold = self.threshold();
        threshold + self.limit_bytes.saturating_sub(threshold) / 2
    }
}
