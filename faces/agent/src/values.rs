//! The values of a profile: what each stack is given, in one or several types.
//!
//! ```text
//!   Heap ─► Go's four: alloc_objects, alloc_space, inuse_objects, inuse_space      Heap + accounts ─► the books' six
//! ```
//!
//! Not here: how they are written (`pprof`, `otlp`).

use crate::heap::Heap;

/// Name and unit of a type.
pub type Type = (&'static str, &'static str);

/// The types of Go's heap profile, in its order.
pub const GO: [Type; 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Values of stacks.
#[derive(Clone, Debug)]
pub struct Values {
    /// The types.
    pub types: &'static [Type],
    /// The type that is shown unless another is asked for.
    pub shown: &'static str,
    /// For each stack a value of each type.
    pub rows: Vec<Vec<i64>>,
    /// Requested bytes between two samples, on average.
    pub rate: u64,
    /// The moment, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The time that it is about; 0: a moment, and all time before it.
    pub duration_ns: u64,
    /// What is to be known beside them.
    pub comments: Vec<String>,
}

impl Values {
    /// Creates values in Go's types, of what a profile says or of what came since an earlier one.
    pub fn of_go(heap: &Heap, before: Option<&Heap>) -> Values {
        Values {
            types: &GO,
            shown: "inuse_space",
            rows: heap.values(before),
            rate: heap.rate,
            time_ns: now_ns(),
            duration_ns: 0,
            comments: comments(heap),
        }
    }
}

/// Returns what is to be known beside a profile: its error, and what it has missed.
pub fn comments(heap: &Heap) -> Vec<String> {
    let variance: f64 = heap.rows.iter().map(|row| row.variance as f64).sum();
    let [_, bytes, _, _] = heap.total();
    let half = (1.96 * variance.sqrt()) as u64;
    let [stackless, no_room, in_handlers] = heap.missing;
    vec![
        format!(
            "in use: {bytes} bytes +- {half} (19 of 20 times), one sample in {} bytes",
            heap.rate
        ),
        format!(
            "samples without a stack {stackless}, without room {no_room}, lost in signal handlers {in_handlers}"
        ),
    ]
}

/// Returns the nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_nanos() as u64)
}
