//! Mappings into pieces, each with one owner, and their resident addresses into atoms, each of one piece.
//!
//! ```text
//!   mapping   |-- program's --|-------- allocator --------|
//!   pieces    |  ProgramMaps  |  Free                     |  and one of Unseen behind each
//!   atoms     |###   #####    |####     ####  ||uuuuuu||  |
//! ```
//!
//! The rules are closing.K2, closing.K4 and closing.K6. Not here: which blocks lie there.

use skinflint_trace::{Mapping, MappingKind, NodeId};

use super::closing::{Atom, Closing, Part, Piece, part_name};
use super::rows::{Row, is_space};
use crate::maps::BlockPages;

/// The name of arenas whose blocks are recorded.
const ARENAS: &str = "arenas of Python's objects";
/// The size of a huge page of this architecture, bytes.
const HUGE: u64 = 2 << 20;

/// The huge pages of a mapping, as far as they can be told: aligned and resident from end to end.
struct Huge {
    /// Bytes in huge pages that no range stands for yet.
    left: u64,
    /// The resident run that is looked at.
    run: (u64, u64),
    /// The last one that was excused.
    last: u64,
}

impl Huge {
    fn of(mapping: &Mapping) -> Huge {
        Huge {
            left: mapping.huge_bytes.unwrap_or(u64::MAX),
            run: (0, 0),
            last: u64::MAX,
        }
    }

    fn may_excuse(&self, addr: u64) -> bool {
        self.left > 0 || addr / HUGE * HUGE == self.last
    }

    /// Reports whether the page at an address is resident because blocks are in the same huge page (closing.K6).
    fn excuses(&mut self, addr: u64, pages: &BlockPages) -> bool {
        let start = addr / HUGE * HUGE;
        if start == self.last {
            return true;
        }
        let end = start.saturating_add(HUGE);
        let is_whole = self.run.0 <= start && end <= self.run.1;
        let excuses = is_whole && pages.any(start, end);
        if excuses {
            self.last = start;
            self.left = self.left.saturating_sub(HUGE);
        }
        excuses
    }
}

impl Closing<'_> {
    /// Cuts a mapping into pieces and atoms.
    pub(super) fn cut(&mut self, mapping: &Mapping) {
        let owned = self.ledger.intervals().split(mapping.start, mapping.end);
        if mapping.runs_known {
            let first = self.pieces.len();
            for (start, end, _) in &owned {
                let (row, part) = self.owner_of(mapping, *start, *end);
                self.pieces.push(piece(
                    row,
                    part,
                    (*end, mapping.kind == MappingKind::Heap),
                    false,
                ));
            }
            // Behind them, in the same order, come those of pages that no block was on (closing.K6).
            if self.ledger.covered().is_none() {
                for index in first..first + owned.len() {
                    let mut unseen = self.pieces[index].clone();
                    unseen.row = Row::Unseen;
                    self.pieces.push(unseen);
                }
            }
            self.cut_runs(mapping, &owned, first);
        } else if mapping.rss_bytes > 0 {
            let widest = owned.iter().max_by_key(|(start, end, _)| end - start);
            let Some(&(start, end, _)) = widest else {
                return;
            };
            let has_blocks = self.any_block(mapping.start, mapping.end);
            let (row, part) = match has_blocks {
                true => (Row::Free, Part::Named(free_name(mapping))),
                false => self.owner_of(mapping, start, end),
            };
            self.unread += if has_blocks { mapping.rss_bytes } else { 0 };
            let piece_index = self.pieces.len();
            self.pieces
                .push(piece(row, part, (mapping.end, false), true));
            self.push_atom(mapping.start, mapping.end, piece_index);
        }
    }

    /// Intersects the resident runs of a mapping with its pieces, both by address.
    fn cut_runs(
        &mut self,
        mapping: &Mapping,
        owned: &[(u64, u64, Option<crate::maps::Owner>)],
        first: usize,
    ) {
        let mut runs = mapping.runs.clone();
        runs.sort_unstable();
        let (mut at, mut index) = (mapping.start, 0);
        let mut huge = Huge::of(mapping);
        for (start, len) in runs {
            let end = start.saturating_add(len).min(mapping.end);
            let mut from = start.max(at);
            huge.run = (from, end);
            while from < end {
                while index < owned.len() && owned[index].1 <= from {
                    index += 1;
                }
                let Some(&(_, piece_end, _)) = owned.get(index) else {
                    break;
                };
                let to = end.min(piece_end);
                match self.pieces[first + index].row == Row::Free {
                    true => self.push_heap(from, to, (first + index, owned.len()), &mut huge),
                    false => self.push_atom(from, to, first + index),
                }
                from = to;
            }
            at = at.max(end);
        }
    }

    /// Divides resident addresses of a heap's piece by whether a block was ever on their pages (closing.K6). `behind` it is
    /// the piece of those that none was on.
    fn push_heap(
        &mut self,
        mut start: u64,
        end: u64,
        (piece, behind): (usize, usize),
        huge: &mut Huge,
    ) {
        let ledger = self.ledger;
        if ledger.covered().is_some() {
            return self.push_atom(start, end, piece);
        }
        let pages = ledger.block_pages();
        while start < end {
            let (mut to, been) = pages.run(start, end);
            let mut is_known = been;
            if !been && huge.may_excuse(start) {
                to = to.min((start / HUGE + 1) * HUGE);
                is_known = huge.excuses(start, pages);
            }
            self.push_atom(start, to, if is_known { piece } else { piece + behind });
            start = to;
        }
    }

    fn push_atom(&mut self, start: u64, end: u64, piece: usize) {
        // Mappings that overlap exist only in a damaged trace: each address once (closing.K2).
        let start = start.max(self.atoms.last().map_or(0, |atom| atom.end));
        if start < end {
            self.pieces[piece].resident += end - start;
            self.atoms.push(Atom { start, end, piece });
        }
    }

    /// Returns the owner of the part of a piece that is not live, slop or header.
    fn owner_of(&self, mapping: &Mapping, start: u64, end: u64) -> (Row, Part) {
        let pages = self.ledger.block_pages();
        let free = (Row::Free, Part::Named(free_name(mapping)));
        let live = self.any_block(start, end);
        match self.ledger.intervals().owner(start) {
            Some(owner) if owner.arena => (Row::Arenas, Part::Named(ARENAS.into())),
            // What the program itself took by brk is no heap of the allocator's, though it lies among its chunks.
            Some(owner) if owner.by_break && !owner.by_allocator && !live => {
                match pages.any(start, end) {
                    true => free,
                    false => (Row::ProgramMaps, Part::Stack(owner.node)),
                }
            }
            _ if live || mapping.kind == MappingKind::Heap => free,
            Some(owner) if owner.by_allocator => match self.glibc || pages.any(start, end) {
                true => (Row::Free, Part::Named("mapped by the allocator".into())),
                false => (Row::Metadata, Part::Named("mapped by the allocator".into())),
            },
            Some(owner) => match pages.any(start, end) {
                true => free,
                false => (Row::ProgramMaps, mapped_part(mapping, owner.node)),
            },
            None if pages.any(start, end) => free,
            None => (Row::Other, part_name(mapping)),
        }
    }
}

fn piece(row: Row, part: Part, (end, brk): (u64, bool), estimated: bool) -> Piece {
    Piece {
        end,
        brk,
        row,
        part,
        resident: 0,
        live: 0,
        slop: 0,
        header: 0,
        estimated,
    }
}

fn free_name(mapping: &Mapping) -> String {
    match (mapping.kind, mapping.name.as_str()) {
        (MappingKind::Heap, _) => "[heap]".into(),
        (_, "") => "anonymous mappings: arenas, mapped blocks".into(),
        (_, name) => name.into(),
    }
}

/// Returns the part of memory that the program mapped: pages of a space of V8's or Java's have its name.
fn mapped_part(mapping: &Mapping, node: NodeId) -> Part {
    match is_space(&mapping.name) {
        true => Part::Mapped(mapping.name.clone(), node),
        false => Part::Stack(node),
    }
}
