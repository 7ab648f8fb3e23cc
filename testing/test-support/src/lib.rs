//! Support for tests: artifacts of this workspace, and what the machine must have.
//!
//! ```text
//!   test ──► artifact::built("skinflint-malloc-so") ──► cargo build, once a process ──► target/PROFILE/libskinflint.so
//!        └─► need::root("unshare")? ── no ──► one line on stderr and in target/skipped.txt, and the test returns
//! ```
//!
//! E1  `cargo test -p X` needs nothing that another command has built ([`artifact`]).
//! E2  A test that cannot run here says so in one fixed form, and is counted ([`need`]); it is never silent.
//! E3  What a test makes and runs is written by another process ([`executable`]).
//! E4  A test that waits for another process has a bound that only a fault reaches ([`wait`]).
//!
//! Numbers by seed are those of `base` ([`random`]): crates that do not rest on it have them from here.
//!
//! Only tests depend on this crate. Not here: the tests' own programs, rounds and judges.

pub mod artifact;
pub mod executable;
pub mod need;
pub mod wait;

pub use skinflint_base::random;
