//! Runs of OS pages: a linear page map, split and coalesce in constant time, purge.
//!
//! Not here: blocks within pages (`alloc`).
#![cfg_attr(not(test), no_std)]
