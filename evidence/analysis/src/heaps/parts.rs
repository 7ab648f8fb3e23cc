//! What the memory of a heap is for: spaces of V8, parts of Java's memory.
//!
//! ```text
//!   names of pages     [v8 old space] … ─► beside the books ──┐
//!   stacks of mappings CodeHeap::reserve … ─► code cache     ─┴─► parts, and the rest
//! ```
//!
//! The rule is heaps.O6. Not here: which names and functions those are (known.rs).

use rustc_hash::FxHashMap;

use super::known::{Known, Parts};
use crate::model::{BookPart, Books};
use crate::passes::wording::bytes;

/// What what is left of a heap is called.
const THE_REST: &str = "the rest";
/// The parts of a heap that its sentence names.
const NAMED_PARTS: usize = 6;

/// Returns what a heap's memory is for (heaps.O6).
pub(super) fn parts(
    known: &Known,
    by_stack: &FxHashMap<&'static str, u64>,
    whole: u64,
    books: &Books,
) -> Vec<BookPart> {
    let mut parts: Vec<BookPart> = match known.parts {
        Parts::Untold => return Vec::new(),
        Parts::ByStack(_) => {
            let each = by_stack.iter();
            let part = |(name, bytes): (&&str, &u64)| BookPart {
                name: (*name).into(),
                bytes: *bytes,
                node: None,
            };
            each.map(part).collect()
        }
        Parts::ByName(begin) => {
            let row = books.beside.iter().find(|row| row.id == "heap-spaces");
            let mut parts = row.map_or(Vec::new(), |row| row.parts.clone());
            for part in &mut parts {
                let short = part.name.strip_prefix(begin);
                part.name = short.unwrap_or(&part.name).trim_end_matches(']').into();
            }
            parts
        }
    };
    let told: u64 = parts.iter().map(|part| part.bytes).sum();
    // Spaces whose mappings were not seen to be made (a process that was attached to) are more than the heap's stacks.
    let Some(rest) = whole.checked_sub(told).filter(|_| told > 0) else {
        return Vec::new();
    };
    parts.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    parts.extend((rest > 0).then(|| BookPart {
        name: THE_REST.into(),
        bytes: rest,
        node: None,
    }));
    parts
}

/// Returns the end of a heap's sentence: what its memory is for, or how it was got.
pub(super) fn told(known: &Known, parts: &[BookPart]) -> String {
    let how = match known.parts {
        Parts::ByName(_) => {
            ", and its spaces are not told apart (no symbols of their classes in its file; node --trace-gc-verbose prints them)"
        }
        _ => "",
    };
    if parts.is_empty() {
        return format!(", got in large pieces; what is in them is not seen{how}");
    }
    let shown: Vec<String> = parts
        .iter()
        .take(NAMED_PARTS)
        .map(|part| format!("{} {}", part.name, bytes(part.bytes)))
        .collect();
    let more = match parts.len().saturating_sub(NAMED_PARTS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(": {}{more}; what is in them is not seen", shown.join(", "))
}
