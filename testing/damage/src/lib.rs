//! Damaged traces, and what must hold for whatever is read from them. For tests and the fuzzer only.
//!
//! ```text
//!   made::trace(seed) ─┐
//!   a real recording ──┴─► breaking: cut │ flip │ splice … ─► reading::whole ─► Outcome, or a panic
//! ```
//!
//! F1  The same seed gives the same bytes, everywhere.
//! F2  [`reading::whole`] panics exactly if something is wrong that no input may cause: a figure that
//!     does not add up, an event lost in silence, invalid JSON.
//!
//! Not here: which programs are recorded (the tests of the command line), the fuzzer (fuzz/).

pub mod breaking;
pub mod made;
pub mod reading;

/// SplitMix64: small, and the same everywhere.
pub struct Rng(pub u64);

impl Rng {
    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound.max(1) as u64) as usize
    }
}
