//! The closed books: where each resident byte of a snapshot is.
//!
//! ```text
//!   cutting ──► mappings into pieces of one owner
//!      │
//!   closing ──► order    blocks by address
//!      │   ├──► backed   files and shared memory, by who mapped them
//!      │   ├──► rows     the rows, their names and definitions
//!      │   └──► tails    what smaller blocks would not give back
//!      └──────► parts    the largest parts of a row
//! ```
//!
//! Not here: which snapshot belongs to which instant (`schedule.rs`).

mod backed;
mod closing;
mod cutting;
mod order;
mod parts;
mod rows;
mod tails;

pub use closing::{Bounds, Closed, MappedBy, SEEN, Untouched, close};
pub(crate) use parts::largest_parts;
pub(crate) use rows::{HEAP_ROWS, has_names, mapped_past};
