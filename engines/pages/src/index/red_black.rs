//! A red-black tree of links (Guibas and Sedgewick 1978; the cases are those of Cormen, Leiserson, Rivest and Stein).
//!
//! ```text
//!   insert: a red leaf, then recolour upwards, at most two rotations        remove: at most three rotations
//! ```
//!
//! R1  The root is black, no red node has a red child, and every way down has as many black nodes.
//! R2  0 is no node, and black.
//!
//! Not here: keys and links (`trees`).

use super::tree_nodes::Nodes;

#[inline]
fn is_red(nodes: &impl Nodes, at: u32) -> bool {
    at != 0 && nodes.is_red(at)
}

/// Reports whether a node may have this child (R1).
pub(crate) fn may_be_child(nodes: &impl Nodes, at: u32, child: u32) -> bool {
    !(nodes.is_red(at) && nodes.is_red(child))
}

/// Returns a child: the left one, or the right one.
#[inline]
fn child(nodes: &impl Nodes, at: u32, left: bool) -> u32 {
    if left {
        nodes.left(at)
    } else {
        nodes.right(at)
    }
}

#[inline]
fn set_child(nodes: &impl Nodes, at: u32, left: bool, to: u32) {
    if left {
        nodes.set_left(at, to);
    } else {
        nodes.set_right(at, to);
    }
}

/// Puts `to` in the place of a parent's child, which is a node; returns the root.
fn replace_child(nodes: &impl Nodes, root: u32, parent: u32, from: u32, to: u32) -> u32 {
    if parent == 0 {
        return to;
    }
    set_child(nodes, parent, nodes.left(parent) == from, to);
    root
}

/// Turns a node down to one side, so that its child of the other side takes its place; returns the root.
fn rotate(nodes: &impl Nodes, root: u32, at: u32, left: bool) -> u32 {
    let up = child(nodes, at, !left);
    let (middle, parent) = (child(nodes, up, left), nodes.parent(at));
    set_child(nodes, at, !left, middle);
    if middle != 0 {
        nodes.set_parent(middle, at);
    }
    set_child(nodes, up, left, at);
    nodes.set_parent(at, up);
    nodes.set_parent(up, parent);
    replace_child(nodes, root, parent, at, up)
}

/// Puts a node in as a leaf; returns its parent.
fn enter_leaf(nodes: &impl Nodes, root: u32, node: u32) -> u32 {
    let key = nodes.key(node);
    let (mut at, mut parent, mut left) = (root, 0, false);
    while at != 0 {
        parent = at;
        left = key < nodes.key(at);
        at = child(nodes, at, left);
    }
    nodes.set_left(node, 0);
    nodes.set_right(node, 0);
    nodes.set_parent(node, parent);
    if parent != 0 {
        set_child(nodes, parent, left, node);
    }
    parent
}

/// Puts a node in; returns the root.
pub(crate) fn insert(nodes: &impl Nodes, root: u32, node: u32) -> u32 {
    let mut parent = enter_leaf(nodes, root, node);
    let mut root = if parent == 0 { node } else { root };
    let mut at = node;
    nodes.set_red(at, true);
    while is_red(nodes, parent) {
        // A red node is not the root.
        let above = nodes.parent(parent);
        let left = nodes.left(above) == parent;
        let uncle = child(nodes, above, !left);
        if is_red(nodes, uncle) {
            nodes.set_red(parent, false);
            nodes.set_red(uncle, false);
            nodes.set_red(above, true);
            (at, parent) = (above, nodes.parent(above));
            continue;
        }
        if child(nodes, parent, !left) == at {
            root = rotate(nodes, root, parent, left);
            parent = at;
        }
        nodes.set_red(parent, false);
        nodes.set_red(above, true);
        root = rotate(nodes, root, above, !left);
        break;
    }
    nodes.set_red(root, false);
    root
}

/// Takes a node out; returns the root.
pub(crate) fn remove(nodes: &impl Nodes, root: u32, node: u32) -> u32 {
    let (left, right) = (nodes.left(node), nodes.right(node));
    let above = nodes.parent(node);
    if left == 0 || right == 0 {
        let only = if left == 0 { right } else { left };
        if only != 0 {
            nodes.set_parent(only, above);
        }
        let root = replace_child(nodes, root, above, node, only);
        return match nodes.is_red(node) {
            true => root,
            false => blacken(nodes, root, only, above),
        };
    }
    // The next node takes the place; what it leaves behind may lack a black one.
    let mut next = right;
    while nodes.left(next) != 0 {
        next = nodes.left(next);
    }
    let lost_red = nodes.is_red(next);
    let behind = nodes.right(next);
    let parent = if next == right {
        next
    } else {
        let parent = nodes.parent(next);
        nodes.set_left(parent, behind);
        nodes.set_right(next, right);
        nodes.set_parent(right, next);
        parent
    };
    if behind != 0 {
        nodes.set_parent(behind, parent);
    }
    nodes.set_left(next, left);
    nodes.set_parent(left, next);
    nodes.set_parent(next, above);
    nodes.set_red(next, nodes.is_red(node));
    let root = replace_child(nodes, root, above, node, next);
    match lost_red {
        true => root,
        false => blacken(nodes, root, behind, parent),
    }
}

/// Restores R1 where the ways through `at`, a child of `parent` and perhaps 0, lack a black node.
fn blacken(nodes: &impl Nodes, mut root: u32, mut at: u32, mut parent: u32) -> u32 {
    while parent != 0 && !is_red(nodes, at) {
        // If `at` is 0 the other child is not: there is a black node that this side lacks.
        let left = nodes.left(parent) == at;
        let mut sibling = child(nodes, parent, !left);
        if is_red(nodes, sibling) {
            nodes.set_red(sibling, false);
            nodes.set_red(parent, true);
            root = rotate(nodes, root, parent, left);
            sibling = child(nodes, parent, !left);
        }
        let (near, far) = (child(nodes, sibling, left), child(nodes, sibling, !left));
        if !is_red(nodes, far) && !is_red(nodes, near) {
            nodes.set_red(sibling, true);
            (at, parent) = (parent, nodes.parent(parent));
            continue;
        }
        if !is_red(nodes, far) {
            nodes.set_red(near, false);
            nodes.set_red(sibling, true);
            root = rotate(nodes, root, sibling, !left);
            sibling = near;
        }
        nodes.set_red(sibling, nodes.is_red(parent));
        nodes.set_red(parent, false);
        let far = child(nodes, sibling, !left);
        nodes.set_red(far, false);
        return rotate(nodes, root, parent, left);
    }
    if at != 0 {
        nodes.set_red(at, false);
    }
    root
}
