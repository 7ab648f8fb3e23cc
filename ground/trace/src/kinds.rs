//! What stacks make: the types of objects that an interpreter has put into blocks, to bytes and back.
//!
//! ```text
//!   block of the file:  names ["dict", "P"]   pairs (node, name): 17 dict │ 18 P │ 23 dict
//! ```
//!
//! N1  A pair is one block that was looked at: a node is named as often as its blocks were, and by several names if they had
//!     several types.
//! N2  An empty name is of a block that has no object: a table of a dictionary, the items of a list.
//!
//! Not here: which blocks are looked at (collect's `kinds.rs`), what is said of them (analysis' `makers.rs`).

use skinflint_framing::varint::{Cursor, Malformed, put};

use crate::meta::{get_text, put_text};

/// The most pairs in one block.
pub(crate) const PAIRS_PER_BLOCK: usize = 1 << 16;

/// The type of the object in a block that was looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    /// The node of the stack that acquired the block.
    pub node: u32,
    /// The name of the type as the interpreter has it; empty if there is no object in the block.
    pub name: std::sync::Arc<str>,
}

pub(crate) fn put_kinds(out: &mut Vec<u8>, kinds: &[Kind]) {
    let mut names: Vec<&str> = kinds.iter().map(|kind| &*kind.name).collect();
    names.sort_unstable();
    names.dedup();
    put(out, names.len() as u64);
    names.iter().for_each(|name| put_text(out, name));
    put(out, kinds.len() as u64);
    for kind in kinds {
        put(out, u64::from(kind.node));
        let at = names.binary_search(&&*kind.name).unwrap_or(0);
        put(out, at as u64);
    }
}

pub(crate) fn get_kinds(from: &mut Cursor<'_>, kinds: &mut Vec<Kind>) -> Result<(), Malformed> {
    let count = from.get_count(1)?;
    let mut names = Vec::with_capacity(count.min(PAIRS_PER_BLOCK));
    for _ in 0..count {
        names.push(std::sync::Arc::<str>::from(get_text(from)?));
    }
    let count = from.get_count(2)?;
    for _ in 0..count {
        let (node, at) = (from.get_u32()?, from.get()?);
        let name = usize::try_from(at).ok().and_then(|at| names.get(at));
        let name = name.ok_or(Malformed("a type without a name"))?.clone();
        kinds.push(Kind { node, name });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(node: u32, name: &str) -> Kind {
        let name = name.into();
        Kind { node, name }
    }

    #[test]
    fn kinds_come_back_in_their_order() {
        let all = [kind(9, "dict"), kind(3, ""), kind(9, "P"), kind(4, "dict")];
        let mut bytes = Vec::new();
        put_kinds(&mut bytes, &all);
        let mut read = Vec::new();
        get_kinds(&mut Cursor::new(&bytes), &mut read).expect("read");
        assert_eq!(read, all);
    }

    #[test]
    fn a_name_that_is_not_there_is_damage() {
        let mut bytes = Vec::new();
        put(&mut bytes, 0);
        put(&mut bytes, 1);
        put(&mut bytes, 5);
        put(&mut bytes, 0);
        assert!(get_kinds(&mut Cursor::new(&bytes), &mut Vec::new()).is_err());
    }
}
