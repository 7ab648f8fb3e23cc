//! The player on scripts made by hand: every figure of the report is worked out here, none is copied from it.
//!
//! ```text
//!   Script ─► bytes ─► skinflint-replay ─► lines of JSON ─► what the test says
//! ```
//!
//! I1  Every run has a bound, and is killed when it is over ([`made::Script::played_with`]).
//! I2  What has to be found (violations, damage, a stand-still) is put in by the test, and the test checks that it is
//!     found.
//!
//! Not here: compiling traces (tests/compiled).

mod calls;
mod faults;
mod made;
mod measured;
mod orders;
