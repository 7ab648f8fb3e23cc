//! Names of variables that are not known, and those that were perhaps meant.
//!
//! ```text
//!   SKINFLINT_DECAY=0 ──► in no list ──► the parent has it, too? ──no──► one line, with the nearest name
//! ```
//!
//! Not here: the names (`env`).

use skinflint_base::env;
use skinflint_base::sys;

use super::parent;
use crate::heaps::fault::Line;

/// The longest name that is compared.
const LENGTH: usize = 32;

/// Says that a name, given without its prefix, is none of ours, unless tests read it, or the parent has said it.
pub fn unknown(name: &[u8]) {
    let of_tests = name.starts_with(b"TEST_")
        || env::OF_TESTS
            .iter()
            .any(|known| known.as_bytes().strip_prefix(b"SKINFLINT_") == Some(name));
    if !of_tests && name.len() <= LENGTH && !parent::has_named(b"SKINFLINT_", name) {
        sys::stderr(line(name).bytes());
    }
}

fn line(name: &[u8]) -> Line {
    let mut line = Line::new();
    line.add(b"skinflint: no variable is called SKINFLINT_");
    line.add(name);
    line.add(b"; the nearest is ");
    line.add(nearest(name).as_bytes());
    line.add(b"\n");
    line
}

/// Returns the name that takes the fewest changed, added or removed characters.
fn nearest(name: &[u8]) -> &'static str {
    let names = env::ALL.iter().map(|variable| variable.name());
    let near = names.min_by_key(|known| distance(name, &known.as_bytes()["SKINFLINT_".len()..]));
    near.unwrap_or("")
}

/// Counts the changed, added or removed characters between two names of at most [`LENGTH`] characters.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row = [0usize; LENGTH + 1];
    for (i, cell) in row.iter_mut().enumerate() {
        *cell = i;
    }
    for (i, a) in one.iter().enumerate() {
        let mut corner = core::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate().take(LENGTH) {
            let above = row[j + 1];
            row[j + 1] = (corner + usize::from(a != b))
                .min(above + 1)
                .min(row[j] + 1);
            corner = above;
        }
    }
    row[other.len().min(LENGTH)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_named() {
        for (name, meant) in [
            ("DECAY", "SKINFLINT_DECAY_MS"),
            ("RESERVED", "SKINFLINT_RESERVE"),
            ("HARDENED", "SKINFLINT_HARDEN"),
            ("PURG", "SKINFLINT_PURGE"),
            ("RESERVE_CHILD", "SKINFLINT_RESERVE_CHILDREN"),
            ("BADFREE", "SKINFLINT_BAD_FREE"),
        ] {
            assert_eq!(nearest(name.as_bytes()), meant);
        }
        let text = line(b"DECAY");
        let text = core::str::from_utf8(text.bytes()).unwrap();
        assert!(
            text.contains("SKINFLINT_DECAY;") && text.ends_with("_MS\n"),
            "{text}"
        );
        assert!(
            env::ALL
                .iter()
                .all(|known| known.name().len() <= LENGTH + 10)
        );
    }

    #[test]
    fn distances_are_counted() {
        for (one, other, wanted) in [
            ("", "", 0),
            ("A", "", 1),
            ("", "AB", 2),
            ("KITTEN", "SITTING", 3),
        ] {
            assert_eq!(
                distance(one.as_bytes(), other.as_bytes()),
                wanted,
                "{one} {other}"
            );
        }
    }
}
