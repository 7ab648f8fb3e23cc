//! The engine from outside: what every caller may rely on, judged by a second, deliberately simple record of blocks.
//!
//! ```text
//!   seed ─► numbers ─► acts (malloc, calloc, realloc, memalign, free) ─► engine
//!                        └──► map of live blocks: places, sizes, contents ─► must agree
//! ```
//!
//! E1  Everything that is drawn comes from a seed, which a failing test prints; `SKINFLINT_SEED=N` repeats
//!     the draws.
//! E2  The test programs' own memory comes from the C library: the engine is linked as a library, and
//!     its only blocks are those of the tests.
//!
//! Not here: the C symbols (`faces/cli/tests`, with the real library), models of the lock-free parts
//! (`tests/models.rs`).

mod blocks;
mod numbers;
mod seams;
mod sizes;
mod threads;
