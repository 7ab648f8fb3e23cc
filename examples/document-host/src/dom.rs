//! A document's tree, in its tenant's garbage-collected heap.
//!
//! ```text
//!   text ─► Node(document) ─► Node(line) ─► Node(word) …        first: its first child; next: its next sibling
//! ```
//!
//! D1  Nodes hold positions in the text, not text: the tree is useless without the document, and is checked with it.
//!
//! Not here: what keeps a tree (`host`).

use skinflint_gc::OutOfMemory;
use skinflint_gc::object;
use skinflint_gc::typed::{Cx, Gc, Slot};

object! {
    /// A piece of a document.
    pub struct Node<'gc> {
        first: Slot<Gc<'gc, Node<'gc>>>,
        next: Slot<Gc<'gc, Node<'gc>>>,
        begin: u32,
        end: u32,
    }
}

fn node<'gc>(cx: Cx<'gc>, begin: usize, end: usize) -> Result<Gc<'gc, Node<'gc>>, OutOfMemory> {
    cx.alloc(Node {
        first: Slot::new(None),
        next: Slot::new(None),
        begin: begin as u32,
        end: end as u32,
    })
}

/// Builds the tree of a text.
pub fn parse<'gc>(cx: Cx<'gc>, text: &str) -> Result<Gc<'gc, Node<'gc>>, OutOfMemory> {
    let root = node(cx, 0, text.len())?;
    let mut line_before: Option<Gc<'gc, Node<'gc>>> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let this = node(cx, at, at + line.len())?;
        match line_before {
            Some(before) => before.next.set(cx, Some(this)),
            None => root.first.set(cx, Some(this)),
        }
        line_before = Some(this);
        let mut word_before: Option<Gc<'gc, Node<'gc>>> = None;
        let mut begin = at;
        for word in line.split_inclusive(' ') {
            let leaf = node(cx, begin, begin + word.len())?;
            match word_before {
                Some(before) => before.next.set(cx, Some(leaf)),
                None => this.first.set(cx, Some(leaf)),
            }
            word_before = Some(leaf);
            begin += word.len();
        }
        at += line.len();
    }
    Ok(root)
}

/// Returns a checksum of all words, as the tree has them.
pub fn checksum(root: Gc<'_, Node<'_>>, text: &str) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    let mut line = root.first.get();
    while let Some(this) = line {
        let mut word = this.first.get();
        while let Some(leaf) = word {
            let bytes = text.as_bytes().get(leaf.begin as usize..leaf.end as usize);
            for byte in bytes.unwrap_or(b"?") {
                sum = (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
            word = leaf.next.get();
        }
        line = this.next.get();
    }
    sum
}
