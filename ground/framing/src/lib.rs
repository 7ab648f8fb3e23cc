//! The framing of our trace formats: numbers of variable length, headers that end in a checksum, payloads
//! that are compressed where that makes them smaller.
//!
//! ```text
//!   [header … | CRC-32 of it] [payload: raw or zstd, its CRC-32 in the header] [header | payload] …
//!                                └─► varints
//! ```
//!
//! F1  No input makes a reader panic, loop, or allocate what a header merely claims: the caller bounds lengths first.
//! F2  What is written here is read back here; the formats differ in the fields of their headers only.
//!
//! Not here: what headers and payloads mean (`trace`, `objects`), bounds on their lengths.

pub mod header;
pub mod payload;
pub mod varint;
