//! Mappings of files and of shared memory, by the stack that mapped them.
//!
//! ```text
//!   mapping   |------------ Rss of /var/data ------------|
//!   intervals |---- f3's ----|---- f4's ----|- nobody's -|
//!   rows       program-files  program-files   mapped-files      each by its part of the address space
//! ```
//!
//! B1  Each byte of a mapping's `Rss` goes to one part; so the parts add up to it (closing.K1).
//! B2  Which pages of such a mapping are resident is not read. Where several stacks mapped parts of it, each has of the
//!     resident bytes what it has of the address space.
//! B3  What the loader mapped is no call that is recorded: it has no stack, and stays in the row of mapped files.
//!
//! Not here: anonymous memory (`cutting.rs`).

use skinflint_trace::{Mapping, MappingKind, NodeId};

use super::closing::{Closing, Part, part_name};
use super::rows::{self, Row};
use crate::maps::Owner;

impl Closing<'_> {
    /// Books a mapping of a file or of shared memory.
    pub(super) fn book_backed(&mut self, mapping: &Mapping) {
        let is_file = mapping.kind == MappingKind::File;
        let copied = match is_file {
            true => mapping.anon_bytes.min(mapping.rss_bytes),
            false => 0,
        };
        let owned = self.ledger.intervals().split(mapping.start, mapping.end);
        let (mut copies, mut others) = (
            Shares::of(mapping, copied),
            Shares::of(mapping, mapping.rss_bytes - copied),
        );
        // A mapping without addresses exists only in a damaged trace; it has bytes all the same (B1).
        let none = owned.is_empty().then_some((mapping.start, u64::MAX, None));
        for (_, end, owner) in owned.into_iter().chain(none) {
            let owner: Option<Owner> = owner;
            let owner = owner.filter(|one| !one.by_allocator).map(|one| one.node);
            let row = match (is_file, owner) {
                (false, _) => Row::Shared,
                (true, Some(_)) => Row::ProgramFiles,
                (true, None) => Row::Files,
            };
            let (part, copy) = parts(mapping, owner);
            self.add(row, copy, copies.up_to(end));
            self.add(row, part, others.up_to(end));
        }
    }
}

/// Returns the parts of a mapping's pages, and of the private copies among them.
fn parts(mapping: &Mapping, owner: Option<NodeId>) -> (Part, Part) {
    let name = &mapping.name;
    match owner {
        Some(node) => (
            Part::Mapped(rows::mapping_name(mapping).into(), node),
            Part::Mapped(format!("{name} [private copy]"), node),
        ),
        None => (
            part_name(mapping),
            Part::Named(format!("{name} [private copy: data, relocations]")),
        ),
    }
}

/// Bytes of a mapping, shared out over its addresses (B2).
struct Shares {
    start: u64,
    len: u64,
    bytes: u64,
    given: u64,
}

impl Shares {
    fn of(mapping: &Mapping, bytes: u64) -> Shares {
        Shares {
            start: mapping.start,
            len: mapping.end.saturating_sub(mapping.start).max(1),
            bytes,
            given: 0,
        }
    }

    /// Returns the share of the addresses from where the last one ended up to `end`: whole pages, but for what the
    /// last one has beyond them.
    fn up_to(&mut self, end: u64) -> u64 {
        let passed = end.saturating_sub(self.start).min(self.len);
        let share = u128::from(self.bytes) * u128::from(passed) / u128::from(self.len);
        let all = match passed == self.len {
            true => self.bytes,
            false => share as u64 & !4095,
        };
        let new = all.saturating_sub(self.given);
        self.given = self.given.max(all);
        new
    }
}
