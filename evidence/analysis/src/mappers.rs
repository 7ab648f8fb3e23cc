//! Who mapped memory that is large: findings on anonymous memory, shared memory and files.
//!
//! ```text
//!   mapper   anonymous ──► by known heap, or by function
//!            shared    ──► with it if the heap is known, else by function   "shared memory ring, mapped by …"
//!            files     ──► by function                                      "store.db, mapped by …"
//! ```
//!
//! W1  A finding is of one sort of memory: what gives it back differs. It is reported from a twentieth of what is
//!     resident.
//! W2  Names are those of the books' parts; of several, the largest is named and the others are counted. A title
//!     has the last part of a path.
//!
//! Not here: which bytes are whose (`books/backed.rs`), heaps as such (`heaps.rs`).

use rustc_hash::FxHashMap;

use crate::heaps::Heaps;
use crate::merging::more_nodes;
use crate::model::{Books, Confidence, Finding, FindingKind, Mapper, Report};
use crate::passes::wording::{bytes, percent};
use crate::plumbing::Naming;

/// The bytes below which a holder is not worth a line.
pub(crate) const WORTH_BYTES: u64 = 64 << 10;

/// A sort of memory that a program maps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Sort {
    Anonymous,
    Shared,
    File,
}

/// Memory of one sort with one cause.
#[derive(Default)]
struct Held {
    nodes: Vec<(u64, u32)>,
    resident: u64,
}

/// Returns memory that the program mapped itself, if it is a twentieth of what is resident (W1).
pub(crate) fn findings(report: &Report, naming: &Naming) -> Vec<Finding> {
    let at = report.instants.get(report.at);
    let Some(books) = at.and_then(|instant| instant.books.as_ref()) else {
        return Vec::new();
    };
    let mut heaps = Heaps::of(report);
    let mut by_cause: FxHashMap<(Sort, Option<&str>, u32), Held> = FxHashMap::default();
    for mapper in report.mappers.iter().filter(|mapper| mapper.node != 0) {
        let heap = heaps.at(mapper.node, true).map(|heap| heap.known.name);
        for (sort, bytes) in sorts(mapper) {
            let heap = heap.filter(|_| sort != Sort::File);
            // A virtual machine's heap in a memfd is its heap all the same.
            let sort = if heap.is_some() {
                Sort::Anonymous
            } else {
                sort
            };
            let function = naming.mapper_of(report, mapper.node);
            let function = function.filter(|_| heap.is_none()).unwrap_or(0);
            let held = by_cause.entry((sort, heap, function)).or_default();
            held.nodes.push((bytes, mapper.node));
            held.resident = held.resident.saturating_add(bytes);
        }
    }
    let large =
        |held: &Held| held.resident >= WORTH_BYTES && held.resident >= books.resident_bytes / 20;
    let mut found: Vec<Finding> = by_cause
        .into_iter()
        .filter(|(_, held)| large(held))
        .map(|((sort, heap, _), held)| finding(report, naming, (sort, heap), held, books))
        .collect();
    found.sort_by_key(|finding| (std::cmp::Reverse(finding.now_bytes), finding.node));
    found
}

/// Returns the resident bytes that a stack mapped, by sort, without those that are none.
fn sorts(mapper: &Mapper) -> impl Iterator<Item = (Sort, u64)> {
    let [all, shared, files] = [
        mapper.resident_bytes,
        mapper.shared_bytes,
        mapper.file_bytes,
    ]
    .map(|bytes| bytes.unwrap_or(0));
    let anonymous = all.saturating_sub(shared.saturating_add(files));
    let sorts = [
        (Sort::Anonymous, anonymous),
        (Sort::Shared, shared),
        (Sort::File, files),
    ];
    sorts.into_iter().filter(|(_, bytes)| *bytes > 0)
}

fn finding(
    report: &Report,
    naming: &Naming,
    (sort, heap): (Sort, Option<&str>),
    mut held: Held,
    books: &Books,
) -> Finding {
    held.nodes
        .sort_unstable_by_key(|&(bytes, node)| (std::cmp::Reverse(bytes), node));
    held.nodes.dedup_by_key(|(_, node)| *node);
    let node = held.nodes.first().map(|(_, node)| *node);
    let share = format!(
        "{} % of resident memory",
        percent(held.resident, books.resident_bytes)
    );
    let by = node.map_or("the program".into(), |node| {
        naming.mapper_name(report, node)
    });
    let (short, of) = names(books, sort, &held);
    let title = match (heap, sort) {
        (Some(heap), _) => format!("{share}: {heap}"),
        (None, Sort::Anonymous) => format!("{share}, mapped by {by}"),
        (None, Sort::Shared) => format!("{share}: shared memory{short}, mapped by {by}"),
        (None, Sort::File) => format!("{share}:{short}, mapped by {by}"),
    };
    let what = match (heap, sort) {
        (Some(heap), _) => format!(
            "{heap} holds {}: memory that the program got from mmap. No block of malloc is in it. The stack is the \
             largest.",
            bytes(held.resident)
        ),
        (None, Sort::Anonymous) => "Anonymous memory that this function got from mmap: a heap of its own (a virtual \
             machine's, an arena), a cache, or a buffer. No block of malloc is in it. The stack is the largest."
            .into(),
        (None, Sort::Shared) => format!(
            "Shared memory{of} that this function mapped, as far as this process has touched it; other processes may \
             have the same pages. No block of malloc is in it. The stack is the largest."
        ),
        (None, Sort::File) => format!(
            "Pages of{of}, which this function mapped, as far as this process has touched them. The kernel takes them \
             back when memory is short; what was written it first writes to the file. No block of malloc is in them. \
             The stack is the largest."
        ),
    };
    let change = match (heap, sort) {
        (Some(_), _) | (None, Sort::Anonymous) => {
            "Not waste by itself: see that heap's own limits and reports."
        }
        (None, Sort::Shared) => {
            "Not waste by itself: look for the setting that sizes what is shared (a cache, a ring, a table)."
        }
        (None, Sort::File) => {
            "Not waste by itself: look for the setting that sizes the file, or map only the part of it that is in use."
        }
    };
    Finding {
        kind: FindingKind::Holder,
        title,
        what,
        change: change.into(),
        now_bytes: held.resident,
        confidence: Confidence::Certain,
        node,
        more_nodes: more_nodes(&held.nodes),
        stacks: held.nodes.len() as u64,
        ..Finding::default()
    }
}

/// Returns the name of what these stacks mapped, behind a blank, short and in full (W2); empty for shared memory without
/// a name.
fn names(books: &Books, sort: Sort, held: &Held) -> (String, String) {
    let id = match sort {
        Sort::Anonymous => return Default::default(),
        Sort::Shared => "shared",
        Sort::File => "program-files",
    };
    let rows = books.rows.iter().filter(|row| row.id == id);
    let mut by_name: FxHashMap<&str, u64> = FxHashMap::default();
    for part in rows.flat_map(|row| &row.parts) {
        let theirs = |node| held.nodes.iter().any(|(_, own)| *own == node);
        if part.node.is_some_and(theirs) {
            let name = part.name.split(" [private copy").next().unwrap_or_default();
            *by_name.entry(name).or_default() += part.bytes;
        }
    }
    // The kernel's names for shared memory that has none.
    let unnamed = ["[anon", "/dev/zero", "/SYSV"];
    let is_named = |name: &&str| !unnamed.iter().any(|none| name.starts_with(none));
    let most = by_name
        .iter()
        .max_by_key(|(name, bytes)| (**bytes, std::cmp::Reverse(**name)));
    let others = match by_name.len() as u64 {
        0 | 1 => String::new(),
        several => format!(" and {} more", several - 1),
    };
    match most.map(|(name, _)| *name).filter(is_named) {
        // A path is longer than a line of the screen.
        Some(name) => {
            let last = name.rsplit('/').next().unwrap_or(name);
            (format!(" {last}{others}"), format!(" {name}{others}"))
        }
        None if sort == Sort::File => (" files".into(), " files".into()),
        None => Default::default(),
    }
}
