//! A treap of links (Aragon and Seidel 1989): ordered by key, a heap by a priority that is the hash of the node's place.
//!
//! ```text
//!   insert: down to the first node of lower priority; its subtree, split by the key, becomes the two of the new node
//!   remove: the two subtrees, joined by priority, take the node's place          no rotations, no stored priority
//! ```
//!
//! H1  A child's priority is not above its parent's.
//!
//! Not here: keys and links (`trees`).

use super::tree_nodes::Nodes;

/// Returns a node's priority: its offset, mixed (the finalizer of MurmurHash3).
#[inline]
fn priority(at: u32) -> u32 {
    let mut mixed = at / 64;
    mixed ^= mixed >> 16;
    mixed = mixed.wrapping_mul(0x85eb_ca6b);
    mixed ^= mixed >> 13;
    mixed = mixed.wrapping_mul(0xc2b2_ae35);
    mixed ^ mixed >> 16
}

/// Reports whether a node may have this child (H1).
pub(crate) fn may_be_child(_: &impl Nodes, at: u32, child: u32) -> bool {
    priority(child) <= priority(at)
}

/// Puts a node in; returns the root.
pub(crate) fn insert(nodes: &impl Nodes, root: u32, node: u32) -> u32 {
    let (key, own) = (nodes.key(node), priority(node));
    let (mut at, mut parent, mut left) = (root, 0, false);
    while at != 0 && priority(at) >= own {
        parent = at;
        left = key < nodes.key(at);
        at = if left {
            nodes.left(at)
        } else {
            nodes.right(at)
        };
    }
    nodes.set_parent(node, parent);
    split(nodes, at, key, node);
    match parent {
        0 => return node,
        parent if left => nodes.set_left(parent, node),
        parent => nodes.set_right(parent, node),
    }
    root
}

/// Splits a subtree by a key: what is below becomes the left subtree of `node`, the rest the right one.
fn split(nodes: &impl Nodes, mut at: u32, key: u64, node: u32) {
    // The nodes that the next smaller and the next larger part are hung from: `node`, and then nodes of each part.
    let (mut low, mut high) = (node, node);
    let hang_low = |low: u32, at: u32| match low == node {
        true => nodes.set_left(low, at),
        false => nodes.set_right(low, at),
    };
    let hang_high = |high: u32, at: u32| match high == node {
        true => nodes.set_right(high, at),
        false => nodes.set_left(high, at),
    };
    while at != 0 {
        if nodes.key(at) < key {
            hang_low(low, at);
            nodes.set_parent(at, low);
            (low, at) = (at, nodes.right(at));
        } else {
            hang_high(high, at);
            nodes.set_parent(at, high);
            (high, at) = (at, nodes.left(at));
        }
    }
    hang_low(low, 0);
    hang_high(high, 0);
}

/// Takes a node out; returns the root.
pub(crate) fn remove(nodes: &impl Nodes, root: u32, node: u32) -> u32 {
    let (mut left, mut right) = (nodes.left(node), nodes.right(node));
    let above = nodes.parent(node);
    // Where the next part is hung: first in the node's place, then behind the last part, on the side that was joined.
    let (mut parent, mut on_left) = (above, nodes.left(above_or(above, node)) == node);
    let mut first = 0;
    loop {
        let is_left = right == 0 || left != 0 && priority(left) >= priority(right);
        let up = if is_left { left } else { right };
        match (parent, on_left) {
            (0, _) => {}
            (parent, true) => nodes.set_left(parent, up),
            (parent, false) => nodes.set_right(parent, up),
        }
        if first == 0 {
            first = up;
        }
        if up == 0 {
            break;
        }
        nodes.set_parent(up, parent);
        if left == 0 || right == 0 {
            break;
        }
        (parent, on_left) = (up, !is_left);
        if is_left {
            left = nodes.right(up);
        } else {
            right = nodes.left(up);
        }
    }
    if above == 0 { first } else { root }
}

/// Returns a node that may be looked at: the one above, or the node itself if it is the root.
fn above_or(above: u32, node: u32) -> u32 {
    if above == 0 { node } else { above }
}
