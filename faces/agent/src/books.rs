//! A process's resident memory, closed: every byte in one row, and by stack as far as samples tell.
//!
//! ```text
//!   samples ─► inuse, slop, pinned by stack ┐   the allocator's exact figures ─► what the samples are off: (sampling)
//!   figures ─► pinned, retained             ├─► inuse + slop + pinned + retained + mapped = RSS
//!   kernel ──► mapped, RSS                  ┘
//! ```
//!
//! B1  The five add up to RSS, to the byte: `mapped` is RSS less what the allocator has resident. RSS is of the same answer as the
//!     allocator's figures.
//! B2  A stack's row is an estimate; the sum over a type is exact, since the row (sampling) takes the rest, below zero if the
//!     samples say too much. Live bytes that were never touched are a row below zero, too: (live, not resident).
//! B3  A stack's pinned bytes are those that the profile says (`alloc::profile`): each page's free bytes, shared by the blocks on
//!     it. Beside them the row (sampling) has what no block keeps: pages without one that were not given back yet, and what
//!     spans of samples have free.
//! B4  `alloc` is what was requested of all time, and no part of the sum.
//!
//! Not here: asking (`watch`), which blocks are samples (`alloc::profile`).

use serde_json::Value;
use skinflint_procfs::Memory;

use crate::heap::Heap;
use crate::modules::Stacks;
use crate::values::{self, Type, Values};

/// The types; the last is shown unless another is asked for.
pub const TYPES: [Type; 6] = [
    ("alloc_space", "bytes"),
    ("mapped_space", "bytes"),
    ("retained_space", "bytes"),
    ("pinned_space", "bytes"),
    ("slop_space", "bytes"),
    ("inuse_space", "bytes"),
];
const ALLOC: usize = 0;
const MAPPED: usize = 1;
const RETAINED: usize = 2;
const PINNED: usize = 3;
const SLOP: usize = 4;
const INUSE: usize = 5;

/// The row that takes what samples are off.
pub const SAMPLING: &str = "(sampling)";

/// Values of one row, in the order of [`TYPES`].
pub type Row = [i64; TYPES.len()];

/// Closed books.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Books {
    /// Resident memory.
    pub rss_bytes: i64,
    /// Rows of the profile's stacks, in its order.
    pub stacks: Vec<Row>,
    /// Rows beside them, by name.
    pub named: Vec<(&'static str, Row)>,
}

/// The allocator's figures.
struct Figures<'a>(&'a Value);

impl Figures<'_> {
    /// Returns a number of a section, or of the outermost level.
    fn number(&self, section: &str, name: &str) -> Option<i64> {
        let from = match section {
            "" => self.0,
            section => self.0.get(section)?,
        };
        let is_sane = |figure: &i64| (0..1 << 56).contains(figure);
        from.get(name)?.as_i64().filter(is_sane)
    }
}

/// Closes the books of a process. `None`: the figures are not those of an allocator that this program knows.
pub fn close(heap: &Heap, figures: &Value, kernel: &Memory) -> Option<Books> {
    let figures = Figures(figures);
    let resident = |name: &str| figures.number("resident", name);
    let rss = figures
        .number("", "process_resident_bytes")
        .unwrap_or(kernel.rss_bytes() as i64);
    let live_resident = resident("small_bytes")? + resident("large_bytes")?;
    let pinned = resident("free_in_spans_bytes")? + resident("holes_bytes")?;
    let free = resident("free_dirty_bytes")? + resident("free_clean_bytes")?;
    let (reserve, metadata) = (
        resident("reserve_bytes")?,
        figures.number("", "metadata_resident_bytes")?,
    );
    let usable = figures.number("live", "usable_bytes")?;
    let requested = figures
        .number("live", "requested_bytes")
        .unwrap_or(usable)
        .min(usable);
    let slop = (usable - requested).min(live_resident);
    let untouched = usable - live_resident;
    let mapped = rss - live_resident - pinned - free - reserve - metadata;

    let stacks = estimated(heap);
    let sum = |of: usize| stacks.iter().map(|row| row[of]).sum::<i64>();
    let mut named = Vec::new();
    let mut add = |name, parts: &[(usize, i64)]| {
        let mut row = Row::default();
        parts.iter().for_each(|&(at, bytes)| row[at] = bytes);
        named.push((name, row));
    };
    let off = [
        (INUSE, usable - slop - sum(INUSE)),
        (SLOP, slop - sum(SLOP)),
        (PINNED, pinned - sum(PINNED)),
    ];
    add(SAMPLING, &off);
    add("(live, not resident)", &[(INUSE, -untouched)]);
    add("(free pages)", &[(RETAINED, free)]);
    add("(reserve)", &[(RETAINED, reserve)]);
    add("(metadata)", &[(RETAINED, metadata)]);
    let (files, shared) = (kernel.file_bytes as i64, kernel.shmem_bytes as i64);
    add("(files)", &[(MAPPED, files)]);
    add("(shared memory)", &[(MAPPED, shared)]);
    add("(anonymous mappings)", &[(MAPPED, mapped - files - shared)]);
    Some(Books {
        rss_bytes: rss,
        stacks,
        named,
    })
}

/// Returns the rows of stacks by their samples.
fn estimated(heap: &Heap) -> Vec<Row> {
    let mut rows: Vec<Row> = heap
        .rows
        .iter()
        .map(|row| {
            let mut values = Row::default();
            values[INUSE] = row.figures[1] as i64;
            values[ALLOC] = row.figures[3] as i64;
            values[PINNED] = row.pinned.min(1 << 56) as i64;
            values
        })
        .collect();
    for block in &heap.blocks {
        let Some(row) = rows.get_mut(block.row).filter(|_| block.requested > 0) else {
            continue;
        };
        let blocks = block.weight as f64 / block.requested as f64;
        let slop = blocks * block.usable.saturating_sub(block.requested) as f64;
        row[SLOP] = row[SLOP].saturating_add(slop as i64).min(1 << 56);
    }
    rows
}

impl Books {
    /// Returns the bytes of each type: the sums over all rows.
    pub fn totals(&self) -> Row {
        let named = self.named.iter().map(|(_, row)| row);
        let mut totals = Row::default();
        for row in self.stacks.iter().chain(named) {
            for (total, value) in totals.iter_mut().zip(row) {
                *total += value;
            }
        }
        totals
    }

    /// Returns what the samples are off in the bytes in use.
    pub fn sampling(&self) -> i64 {
        let row = self.named.iter().find(|(name, _)| *name == SAMPLING);
        row.map_or(0, |(_, row)| row[INUSE])
    }

    /// Returns the values, and adds the rows that are no stacks.
    pub fn values(&self, heap: &Heap, stacks: &mut Stacks) -> Values {
        let mut rows: Vec<Vec<i64>> = self.stacks.iter().map(|row| row.to_vec()).collect();
        for (name, row) in &self.named {
            stacks.add_named(name);
            rows.push(row.to_vec());
        }
        let mut comments = values::comments(heap);
        comments.push(format!(
            "inuse + slop + pinned + retained + mapped = resident memory, {} bytes",
            self.rss_bytes
        ));
        Values {
            types: &TYPES,
            shown: "inuse_space",
            rows,
            rate: heap.rate,
            time_ns: values::now_ns(),
            duration_ns: 0,
            comments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::tests::TEXT;

    const KERNEL: Memory = Memory {
        anon_bytes: 9_000,
        file_bytes: 500,
        shmem_bytes: 100,
        swap_bytes: 0,
        high_water_bytes: None,
    };

    fn figures() -> Value {
        serde_json::json!({
            "resident": {"small_bytes": 700, "large_bytes": 100, "free_in_spans_bytes": 390, "holes_bytes": 10,
                "reserve_bytes": 30, "free_dirty_bytes": 20, "free_clean_bytes": 1},
            "metadata_resident_bytes": 40, "process_resident_bytes": 2_000,
            "live": {"usable_bytes": 900, "requested_bytes": 750},
        })
    }

    /// Every figure on paper: 400 bytes are pinned, of which the profile's rows say 300 and 60.
    #[test]
    fn rows_add_up_to_rss_and_samples_to_what_the_allocator_counts() {
        let heap = Heap::read(TEXT).expect("a profile");
        let books = close(&heap, &figures(), &KERNEL).expect("closed");
        // 400 / 200 = 2 blocks of 224, 200 / 100 = 2 of 112; 2 of 64.
        assert_eq!(books.stacks[0], [1200, 0, 0, 300, 48 + 24, 600]);
        assert_eq!(books.stacks[1], [100, 0, 0, 60, 28, 100]);
        let sampling = [0, 0, 0, 400 - 300 - 60, 150 - 100, 750 - 700];
        assert_eq!(books.named[0], (SAMPLING, sampling));
        assert_eq!(books.sampling(), 50);
        let [alloc, mapped, retained, pinned, slop, inuse] = books.totals();
        assert_eq!((alloc, retained, pinned, slop), (1300, 91, 400, 150));
        // 750 requested, of which 100 of usable bytes were never touched.
        assert_eq!(inuse, 650);
        assert_eq!(inuse + slop + pinned + retained + mapped, 2_000);
        let anonymous = books.named.last().expect("a row");
        assert_eq!(anonymous.1[MAPPED], mapped - 600);
    }

    #[test]
    fn samples_that_say_too_much_are_taken_back_and_figures_of_another_kind_are_none() {
        let mut heap = Heap::read(TEXT).expect("a profile");
        heap.rows[0].figures[1] = 60_000;
        let books = close(&heap, &figures(), &KERNEL).expect("closed");
        let totals = books.totals();
        assert!(books.sampling() < -59_000);
        assert_eq!(totals[1..].iter().sum::<i64>(), books.rss_bytes);
        assert_eq!(
            close(&heap, &serde_json::json!({"live": {}}), &KERNEL),
            None
        );
    }
}
