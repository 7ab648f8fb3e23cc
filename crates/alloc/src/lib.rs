//! The allocator's engine: thread-owned spans with bitmaps outside the blocks.
//!
//! Not here: the C symbols (`malloc-so`), page runs (`pages`).
#![cfg_attr(not(test), no_std)]
