//! Prepares a program to be started with one of our libraries in front of its allocator.
//!
//! ```text
//!   CMD ─► preflight: would the loader preload anything into it? ──┐
//!   SKINFLINT_…, beside us, carried ─────────► installed: files ──┼─► preload: LD_PRELOAD ─► the caller starts it
//!                                                                  └─► signals: what was ignored stays ignored
//! ```
//!
//! N1  What the loader would ignore in silence is refused before anything is started: a static, foreign or set-user-id
//!     program, a file that is no library, a path that `LD_PRELOAD` cannot name.
//! N2  A file of ours that is missing is an error that says where it was looked for and how to get it.
//! N3  What the user preloads stays preloaded.
//!
//! Not here: starting programs and waiting for them (`sessions`, `compare`, `cli`).

pub mod carried;
pub mod glibc;
pub mod installed;
pub mod machine;
pub mod preflight;
pub mod preload;
pub mod scripts;
pub mod signals;
