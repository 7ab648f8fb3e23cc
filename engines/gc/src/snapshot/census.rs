//! The census: contents of heaps, by heap and kind, and the difference of two such counts.
//!
//! ```text
//!   arenas ─► set bits × bytes of a cell ─► rows (heap, kind, origin) ─► text, JSON
//!   census before, census after ─► rows that differ, in order of bytes
//! ```
//!
//! N1  Objects and bytes of the rows sum to those of the heaps' cells ([`Holds`](crate::Holds)).
//! N2  Everything that is allocated counts, including garbage that no collection has found. Objects are not looked at:
//!     the cost is a few words for each arena.
//!
//! Chunks by the arenas in use are beside it (`chunks`).
//!
//! Not here: edges and sizes beyond the cell (`snapshot`).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::heap::kind::Origin;
use crate::heap::set::Busy;
use crate::heap::state::Heap;
use crate::snapshot::number::{Still, each_arena};
use crate::snapshot::out::quote;

/// A heap and a kind of object in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The heap's name. Heaps of the same name count as one.
    pub heap: String,
    /// The kind's name.
    pub kind: String,
    /// Whether the objects are the runtime's own.
    pub system: bool,
}

/// A number of objects, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Number of objects.
    pub objects: u64,
    /// Bytes of their cells, or of whole pages for large ones.
    pub bytes: u64,
}

/// Rows by heap and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The sums by heap and kind.
    pub rows: BTreeMap<Class, Sum>,
}

impl Census {
    /// Counts one heap or several. Everything is swept first.
    ///
    /// # Errors
    /// A closure of one of them is running, or a finalizer or trace function asked.
    pub fn of(heaps: &[&Heap]) -> Result<Census, Busy> {
        let _still = Still::new(heaps)?;
        let mut census = Census::default();
        for heap in heaps {
            each_arena(heap, |arena| {
                let head = arena.head();
                let kind = head.kind.get();
                let class = Class {
                    heap: heap.name().to_owned(),
                    kind: (kind.name)().to_owned(),
                    system: kind.origin == Origin::System,
                };
                let objects = head.allocated.count() as u64;
                let sum = census.rows.entry(class).or_default();
                sum.objects += objects;
                sum.bytes += objects * arena.object_bytes() as u64;
                Ok(())
            })
            .unwrap_or_else(|never: core::convert::Infallible| match never {});
        }
        Ok(census)
    }

    /// Returns the sum of all rows.
    pub fn total(&self) -> Sum {
        self.rows.values().fold(Sum::default(), |all, sum| Sum {
            objects: all.objects + sum.objects,
            bytes: all.bytes + sum.bytes,
        })
    }

    /// Returns the rows, the largest first.
    pub fn by_bytes(&self) -> Vec<(&Class, Sum)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(class, sum)| (class, *sum)).collect();
        rows.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then(a.0.cmp(b.0)));
        rows
    }

    /// Returns the rows that differ in `after`, those that grew most first.
    pub fn diff(&self, after: &Census) -> CensusDiff {
        let mut rows = Vec::new();
        let all: std::collections::BTreeSet<&Class> =
            self.rows.keys().chain(after.rows.keys()).collect();
        for class in all {
            let at = |census: &Census| census.rows.get(class).copied().unwrap_or_default();
            let (before, after) = (at(self), at(after));
            if before != after {
                rows.push((class.clone(), before, after));
            }
        }
        let grown = |before: &Sum, after: &Sum| i128::from(after.bytes) - i128::from(before.bytes);
        rows.sort_by(|a, b| {
            grown(&b.1, &b.2)
                .cmp(&grown(&a.1, &a.2))
                .then(a.0.cmp(&b.0))
        });
        CensusDiff {
            rows,
            before: self.total(),
            after: after.total(),
        }
    }

    /// Returns the rows as JSON: `{"objects", "bytes", "rows": [{"heap", "kind", "system", "objects", "bytes"}]}`, the
    /// largest first.
    pub fn json(&self) -> String {
        let total = self.total();
        let rows: Vec<String> = self
            .by_bytes()
            .into_iter()
            .map(|(class, sum)| {
                format!(
                    "{{{},\"objects\":{},\"bytes\":{}}}",
                    class.json(),
                    sum.objects,
                    sum.bytes
                )
            })
            .collect();
        format!(
            "{{\"objects\":{},\"bytes\":{},\"rows\":[{}]}}",
            total.objects,
            total.bytes,
            rows.join(",")
        )
    }
}

/// Returns a text as it stands within the quotes of JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut bytes = Vec::new();
    quote(text, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Class {
    pub(crate) fn json(&self) -> String {
        format!(
            "\"heap\":\"{}\",\"kind\":\"{}\",\"system\":{}",
            quoted(&self.heap),
            quoted(&self.kind),
            self.system
        )
    }

    pub(crate) fn whose(&self) -> &'static str {
        if self.system { "system" } else { "user" }
    }
}

/// Returns the part of `bytes` in `whole`, in percent.
fn share(bytes: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    bytes as f64 * 100.0 / whole as f64
}

impl fmt::Display for Census {
    /// Writes a table, the largest row first; shares are of all bytes of cells.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        writeln!(
            f,
            "{:>14} {:>6} {:>12}  {:6}  kind (heap)",
            "bytes", "%", "objects", ""
        )?;
        for (class, sum) in self.by_bytes() {
            writeln!(
                f,
                "{:>14} {:>6.1} {:>12}  {:6}  {} ({})",
                sum.bytes,
                share(sum.bytes, total.bytes),
                sum.objects,
                class.whose(),
                class.kind,
                class.heap
            )?;
        }
        let whole = share(total.bytes, total.bytes);
        writeln!(
            f,
            "{:>14} {whole:>6.1} {:>12}  all",
            total.bytes, total.objects
        )
    }
}

/// The difference of two counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CensusDiff {
    /// Heap and kind, before, after; the rows that grew most first.
    pub rows: Vec<(Class, Sum, Sum)>,
    /// The sum of all rows before, including those that did not change.
    pub before: Sum,
    /// The sum of all rows after.
    pub after: Sum,
}

/// Returns a difference with its sign.
fn change(before: u64, after: u64) -> i128 {
    i128::from(after) - i128::from(before)
}

impl CensusDiff {
    /// Returns the difference as JSON: `{"before": {"objects", "bytes"}, "after": …, "rows": [{"heap", "kind",
    /// "system", "before", "after"}]}`.
    pub fn json(&self) -> String {
        let sum = |sum: &Sum| format!("{{\"objects\":{},\"bytes\":{}}}", sum.objects, sum.bytes);
        let mut text = format!(
            "{{\"before\":{},\"after\":{},\"rows\":[",
            sum(&self.before),
            sum(&self.after)
        );
        for (place, (class, before, after)) in self.rows.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "{comma}{{{},\"before\":{},\"after\":{}}}",
                class.json(),
                sum(before),
                sum(after)
            );
        }
        text + "]}"
    }
}

impl fmt::Display for CensusDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>14} {:>12}  {:6}  kind (heap)",
            "bytes", "objects", ""
        )?;
        for (class, before, after) in &self.rows {
            writeln!(
                f,
                "{:>+14} {:>+12}  {:6}  {} ({})",
                change(before.bytes, after.bytes),
                change(before.objects, after.objects),
                class.whose(),
                class.kind,
                class.heap
            )?;
        }
        let (before, after) = (self.before, self.after);
        writeln!(
            f,
            "{:>+14} {:>+12}  all ({} bytes before, {} after)",
            change(before.bytes, after.bytes),
            change(before.objects, after.objects),
            before.bytes,
            after.bytes
        )
    }
}
