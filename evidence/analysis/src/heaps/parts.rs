//! What the memory of a heap is for: spaces of V8, parts of Java's memory.
//!
//! ```text
//!   names of pages     [v8 old space] … ─► beside the books ──┐
//!                      [java heap: eden] …                    ├─► parts, and the rest
//!   stacks of mappings CodeHeap::reserve … ─► code cache     ─┘
//! ```
//!
//! R1  Where pages of Java's have names, these stand in place of the parts by stack that they divide; if names tell of more than
//!     the stacks got (a process that was attached to), stacks alone do.
//!
//! The rule is heaps.O6. Not here: which names and functions those are (known.rs).

use rustc_hash::FxHashMap;

use super::known::{Known, NAMED_OF_JAVA, Parts};
use crate::model::{BookPart, Books};
use crate::passes::wording::bytes;

/// What what is left of a heap is called.
const THE_REST: &str = "the rest";
/// The part of Java's heap in which nothing lives, as its pages are named (collect/hotspot.rs).
const FREE_REGIONS: &str = "heap: free regions";
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
            let part = |(name, bytes): (&&str, &u64)| BookPart {
                name: (*name).into(),
                bytes: *bytes,
                node: None,
            };
            let parts: Vec<BookPart> = by_stack.iter().map(part).collect();
            by_names_too(&parts, whole, books).unwrap_or(parts)
        }
        Parts::ByName(begin) => named(books, "heap-spaces", begin),
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

/// Returns the parts of a row beside the books, without the beginning that their names have in common.
fn named(books: &Books, row: &str, begin: &str) -> Vec<BookPart> {
    let row = books.beside.iter().find(|one| one.id == row);
    let mut parts = row.map_or(Vec::new(), |row| row.parts.clone());
    for part in &mut parts {
        let short = part.name.strip_prefix(begin);
        part.name = short.unwrap_or(&part.name).trim_end_matches(']').into();
    }
    parts
}

/// Returns parts by stack with those that pages of Java's have names for, if there are any (R1).
fn by_names_too(by_stack: &[BookPart], whole: u64, books: &Books) -> Option<Vec<BookPart>> {
    let mut parts = named(books, "java-spaces", "[java ");
    let are_there = !parts.is_empty();
    let others = by_stack.iter();
    parts.extend(
        others
            .filter(|part| !NAMED_OF_JAVA.contains(&part.name.as_str()))
            .cloned(),
    );
    let told: u64 = parts.iter().map(|part| part.bytes).sum();
    (are_there && told <= whole).then_some(parts)
}

/// Returns what of Java's heap is free regions, and what gives them back, if that is a quarter of it or more.
pub(super) fn free_regions(parts: &[BookPart], whole: u64) -> String {
    let free = parts.iter().find(|part| part.name == FREE_REGIONS);
    match free.filter(|part| part.bytes >= whole / 4) {
        Some(part) => format!(
            "{} of it are free regions of G1's: -XX:G1PeriodicGCInterval=MILLISECONDS gives them back while the program idles, down to -Xms. ",
            bytes(part.bytes)
        ),
        None => String::new(),
    }
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
