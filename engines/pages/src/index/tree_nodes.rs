//! What a tree of free runs asks of its nodes, and where it begins.
//!
//! D1  A node is named by its descriptor's offset; 0: none.
//!
//! Not here: where the links are (`trees`), how a tree keeps its shape (`red_black`, `treap`).

/// The root of a tree by length.
pub(crate) struct BySize {
    pub(crate) root: u32,
}

impl BySize {
    pub(crate) const fn new() -> BySize {
        BySize { root: 0 }
    }
}

/// The nodes of a tree, by offset.
pub(crate) trait Nodes {
    fn left(&self, at: u32) -> u32;
    fn right(&self, at: u32) -> u32;
    fn parent(&self, at: u32) -> u32;
    fn set_left(&self, at: u32, to: u32);
    fn set_right(&self, at: u32, to: u32);
    fn set_parent(&self, at: u32, to: u32);
    fn key(&self, at: u32) -> u64;
    #[cfg(not(feature = "bench-treap"))]
    fn is_red(&self, at: u32) -> bool;
    #[cfg(not(feature = "bench-treap"))]
    fn set_red(&self, at: u32, red: bool);
}
