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

pub use skinflint_base::random::Random;
