//! The memory report of Firefox (`memory-report.json`, version 1), for `about:memory`.
//!
//! ```text
//!   explicit/heap/requested/MAIN/…/FUNCTION   bytes asked for, by stack, outermost first   ┐ = heap-allocated
//!   explicit/heap/slop/FUNCTION               bytes given beyond that                      ┘
//!   explicit/heap-overhead/…, explicit/program-maps/…     from the books, resident bytes
//!   resident-by-row/ROW/PART                  the books                                      = resident
//! ```
//!
//! J1  `explicit/heap/**` adds up to `heap-allocated` to the unit, so that the reader's
//!     `heap-unclassified`, which is the difference, is 0.
//! J2  `resident-by-row/**` adds up to `resident` to the unit; without books neither is written.
//! J3  No path occurs twice; `/` within a name is `\`, as the format has it.
//! J4  All figures are as of the report's instant.
//! J5  `resident-unique`, which the reader adds up over processes, is written if the private pages of the books' own
//!     snapshot are known.
//!
//! The format: nsIMemoryReporter.idl and aboutMemory.js of Firefox. Not here: the file itself (`report::file`), reading one (`reported.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use skinflint_analysis::model::{BookRow, Books, Frame};
use skinflint_reporters::entry::ALLOCATED;
use skinflint_reporters::file::Writer;
use skinflint_reporters::tree::Presence;
use skinflint_reporters::{Entry, Kind, Units};
use skinflint_trace::{Mapping, Snapshot};
use skinflint_view::stack::telling;

use crate::source::{NO_STACK, Source, name};

/// Paths of one kind, each of them once (J3).
#[derive(Default)]
struct Paths(BTreeMap<String, (u64, String)>);

impl Paths {
    fn add(&mut self, path: String, amount: u64, description: &str) {
        if amount > 0 {
            let entry = self.0.entry(path).or_insert((0, description.into()));
            entry.0 = entry.0.saturating_add(amount);
        }
    }
}

/// Returns a component of a path; a frame without a name stands for no stack.
fn component(text: &str) -> Cow<'_, str> {
    match text {
        "" => Cow::Borrowed(NO_STACK),
        text => skinflint_reporters::component(text),
    }
}

fn components(frames: &[&Frame]) -> String {
    let names = frames.iter().rev().map(|frame| component(name(frame)));
    let path: Vec<Cow<'_, str>> = names.collect();
    match path.is_empty() {
        true => NO_STACK.into(),
        false => path.join("/"),
    }
}

/// Returns the private bytes of the snapshot over which the report's books were closed: among those with equally many
/// resident bytes the nearest.
pub fn unique_bytes(source: Source<'_>, snapshots: &[Snapshot]) -> Option<u64> {
    let instant = source.instant()?;
    let resident = instant.books.as_ref()?.resident_bytes;
    let sum = |one: &Snapshot, of: fn(&Mapping) -> u64| -> u64 {
        let bytes = one.mappings.iter().map(of);
        bytes.fold(0, u64::saturating_add)
    };
    let same = snapshots
        .iter()
        .filter(|one| sum(one, |mapping| mapping.rss_bytes) == resident);
    let nearest = same.min_by_key(|one| one.time_ns.abs_diff(instant.time_ns))?;
    Some(sum(nearest, |mapping| mapping.private_bytes))
}

/// Writes the file. Memory: that of all its paths.
///
/// # Errors
/// Those of `out`.
pub fn write(source: Source<'_>, unique_bytes: Option<u64>, out: &mut dyn Write) -> io::Result<()> {
    let program = &source.report.program;
    let process = format!("{} (pid {})", component(&program.name), program.pid);
    let mut heap = Paths::default();
    let (mut blocks, mut allocated) = (0u64, 0u64);
    for site in &source.report.sites {
        let frames = telling(source.report, site.node);
        let path = format!("explicit/heap/requested/{}", components(&frames));
        let said = "Bytes that live blocks of this stack were asked for.";
        heap.add(path, site.live_requested_bytes, said);
        let slop = site
            .live_usable_bytes
            .saturating_sub(site.live_requested_bytes);
        let function = frames.first().map_or(NO_STACK, |frame| name(frame));
        let path = format!("explicit/heap/slop/{}", component(function));
        heap.add(
            path,
            slop,
            "Bytes that the allocator gave beyond what was asked for.",
        );
        blocks = blocks.saturating_add(site.live_blocks);
        allocated = allocated.saturating_add(site.live_usable_bytes);
    }
    let mut file = Writer::new(out)?;
    let mut push = |path: &str, kind, units, amount: u64, description: &str| {
        let entry = Entry {
            process: &process,
            path,
            kind,
            units,
            amount: i64::try_from(amount).unwrap_or(i64::MAX),
            description,
        };
        file.line(&entry, Presence::Both)
    };
    for (path, (amount, said)) in heap.0 {
        push(&path, Kind::Heap, Units::Bytes, amount, &said)?;
    }
    let said = "Usable bytes of live blocks, as the allocator said.";
    push(ALLOCATED, Kind::Other, Units::Bytes, allocated, said)?;
    push(
        "heap-blocks",
        Kind::Other,
        Units::Count,
        blocks,
        "Live blocks.",
    )?;
    if let Some(books) = source.instant().and_then(|one| one.books.as_ref()) {
        for (path, (amount, said)) in explicit_rows(books).0 {
            push(&path, Kind::Nonheap, Units::Bytes, amount, &said)?;
        }
        for (path, (amount, said)) in all_rows(books).0 {
            push(&path, Kind::Other, Units::Bytes, amount, &said)?;
        }
        let (bytes, said) = (
            books.resident_bytes,
            "Resident memory: the sum of Rss over all mappings.",
        );
        push("resident", Kind::Other, Units::Bytes, bytes, said)?;
        if let Some(bytes) = unique_bytes {
            let said = "Pages that are of this process alone.";
            push("resident-unique", Kind::Other, Units::Bytes, bytes, said)?;
        }
    }
    file.finish()?;
    Ok(())
}

/// Adds a row by its parts, or as a whole if they do not add up to it.
fn by_parts(paths: &mut Paths, prefix: &str, row: &BookRow) {
    let sum: u64 = row
        .parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.bytes));
    if row.parts.is_empty() || sum != row.bytes {
        return paths.add(prefix.to_owned(), row.bytes, &row.meaning);
    }
    for part in &row.parts {
        let path = format!("{prefix}/{}", component(&part.name));
        paths.add(path, part.bytes, &row.meaning);
    }
}

/// Returns what Firefox counts as explicit: what the process asked for, except for the heap.
fn explicit_rows(books: &Books) -> Paths {
    let mut paths = Paths::default();
    for row in &books.rows {
        let prefix = match row.id.as_str() {
            "allocator-free" | "arena-free" | "allocator-metadata" | "heap-unseen" => {
                format!("explicit/heap-overhead/{}", row.id)
            }
            "program-maps" | "stacks" => format!("explicit/{}", row.id),
            _ => continue,
        };
        by_parts(&mut paths, &prefix, row);
    }
    paths
}

/// Returns all rows of the books (J2).
fn all_rows(books: &Books) -> Paths {
    let mut paths = Paths::default();
    for row in &books.rows {
        by_parts(
            &mut paths,
            &format!("resident-by-row/{}", component(&row.id)),
            row,
        );
    }
    paths
}
