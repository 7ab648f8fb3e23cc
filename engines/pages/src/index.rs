//! Where a free run of a length is found, and the runs beside a page.
//!
//! ```text
//!   map     tags in MAP, buckets by length                  what ships
//!   trees   two trees by length and one by page, red-black or treap: what the map took the place of; for a bench
//! ```
//!
//! I1  Both answer the same questions by the same names, so that nothing else of the crate knows which it is.
//!
//! Not here: what is done with the answer (`pool`).

#[cfg(not(feature = "bench-trees"))]
mod map;
#[cfg(all(feature = "bench-trees", not(feature = "bench-treap")))]
mod red_black;
#[cfg(feature = "bench-treap")]
mod treap;
#[cfg(feature = "bench-trees")]
mod tree_nodes;
#[cfg(feature = "bench-trees")]
mod trees;

#[cfg(not(feature = "bench-trees"))]
pub(crate) use map::BySize;
#[cfg(feature = "bench-trees")]
pub(crate) use tree_nodes::BySize;
