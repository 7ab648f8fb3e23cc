//! The parts of a row: the largest by name, and one for the others.
//!
//! ```text
//!   a 5 · b 3 · c 2 · d 1   ──limit 2──►   a 5 · b 3 · others (2) 3
//! ```
//!
//! P1  The parts that are listed add up to those that were given.
//! P2  A part for others may be among those that come: its bytes and its number count on.
//!
//! Not here: which byte belongs to which part (`closing.rs`).

use crate::model::BookPart;

/// The beginning of the name of the part for the rest; a mapping's name never begins so, as it is a path or in
/// brackets.
const OTHERS: &str = "others (";

/// Returns the largest parts, and `others` for the rest.
pub(crate) fn largest_parts(mut all: Vec<BookPart>, limit: usize) -> Vec<BookPart> {
    all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    // There may already be an `others`, if parts were merged since.
    let (known, past): (Vec<BookPart>, Vec<BookPart>) = all
        .into_iter()
        .partition(|part| part.node.is_some() || !part.name.starts_with(OTHERS));
    let mut all = known;
    if all.len() > limit || !past.is_empty() {
        let rest = all.get(limit..).unwrap_or_default();
        let others: u64 = rest.iter().chain(&past).map(|part| part.bytes).sum();
        let before = |part: &BookPart| {
            let count = part.name[OTHERS.len()..].trim_end_matches(')');
            count.parse::<usize>().unwrap_or(1)
        };
        let count = rest.len() + past.iter().map(before).sum::<usize>();
        all.truncate(limit);
        all.push(BookPart {
            name: format!("{OTHERS}{count})"),
            bytes: others,
            node: None,
        });
    }
    all
}
