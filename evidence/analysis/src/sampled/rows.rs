//! The books of a sampled trace: resident memory, with the heap's rows as estimates.
//!
//! ```text
//!   books over samples ─┬─ rows of mappings: exact, as they are
//!                       └─ heap (live, slop, free …): its sum is exact ─► live ±, slop ±, the rest ±, difference
//! ```
//!
//! The invariant sampled.P2 is that of sampled.rs. Not here: closing the books over the blocks that are known (`books`).

use super::figure::{Law, Sum};
use super::model::Row;
use crate::books::{Closed, HEAP_ROWS};
use crate::pass::CellKey;

/// Returns the rows.
pub(super) fn of(closed: &Closed, keys: &[CellKey], law: Law) -> Vec<Row> {
    // Of these the sum alone is exact.
    let is_heap = |id: &str| HEAP_ROWS.contains(&id);
    let rows = closed.books.rows.iter();
    let heap: u64 = rows
        .clone()
        .filter(|row| is_heap(&row.id))
        .map(|row| row.bytes)
        .sum();
    let (mut live, mut slop) = (Sum::default(), Sum::default());
    for (index, key) in keys.iter().enumerate() {
        let of = |by_cell: &[u64]| by_cell.get(index).copied().unwrap_or(0) as f64;
        let (asked, more) = (of(&closed.laid.live), of(&closed.laid.slop));
        let most = |each: u64, all: f64| each as f64 * all;
        // Of each block no more than all of it is resident, which bounds the squares; a block that has nothing there is
        // no sample of this figure.
        let blocks = |all: f64, each: u64| (all / each.max(1) as f64).ceil() as u64;
        let (size, beyond) = (key.size, key.usable - key.size.min(key.usable));
        live.add_some(law, size, asked, most(size, asked), blocks(asked, size));
        slop.add_some(law, size, more, most(beyond, more), blocks(more, beyond));
    }
    let mut all = vec![
        estimated("live", "live blocks", &live, LIVE),
        estimated("slop", "slop", &slop, SLOP),
    ];
    let known = all.iter().map(|row| row.bytes).sum::<i64>();
    let left = heap as i64 - known;
    let both = (live + slop).figure();
    let error = both.low.zip(both.high).map(|(low, high)| (high - low) / 2);
    all.push(Row {
        id: "heap-rest".into(),
        label: "free, and the allocator's own".into(),
        bytes: left.max(0),
        error_bytes: error,
        meaning: REST.into(),
    });
    all.push(Row {
        id: "sampling-difference".into(),
        label: "sampling's difference".into(),
        bytes: left.min(0),
        error_bytes: error,
        meaning: DIFFERENCE.into(),
    });
    all.extend(rows.filter(|row| !is_heap(&row.id)).map(|row| Row {
        id: row.id.clone(),
        label: row.label.clone(),
        bytes: row.bytes as i64,
        error_bytes: Some(0),
        meaning: row.meaning.clone(),
    }));
    all
}

fn estimated(id: &str, label: &str, sum: &Sum, meaning: &str) -> Row {
    let figure = sum.figure();
    Row {
        id: id.into(),
        label: label.into(),
        bytes: figure.bytes as i64,
        error_bytes: figure
            .low
            .zip(figure.high)
            .map(|(low, high)| (high - low) / 2),
        meaning: meaning.into(),
    }
}

const LIVE: &str =
    "Estimate of the bytes that the program asked for and has not released, on resident pages.";
const SLOP: &str =
    "Estimate of the bytes of live blocks beyond what was asked for, on resident pages.";
const REST: &str = "What the two estimates leave of the heap's resident bytes, which are exact: released blocks, pages not \
                    given back, headers and tables of the allocator.";
const DIFFERENCE: &str = "What the two estimates have beyond the heap's resident bytes: below 0 only if there is less free \
                          memory than the error of the estimates.";
