//! The closed books: where each resident byte of a snapshot is.
//!
//! ```text
//!   mapping   |--------- Anon ----------|---- File ----|- Stack -|
//!   pieces    |-- program's --|- alloc -|                            its mapper, blocks seen there
//!   atoms     |##  ####   ####| ### ##uu|                            resident runs × pieces, u: no block was ever there
//!   blocks       hLLLs hLLs     hLLLLLs                              header, Live, slop
//! ```
//!
//! K1  Each mapping's `Rss` goes to rows exactly once; so the rows add up to `resident_bytes`.
//! K2  A block counts by its bytes on resident pages. Blocks that overlap (a damaged trace) count each byte once, for
//!     the lower block.
//! K3  Pages are read at another moment than `Rss`. If the pages of a mapping exceed its `Rss`, the excess is taken
//!     from its remainder, then slop, then headers, then live bytes; what `Rss` has beyond the pages is
//!     `unclassified`.
//! K4  A mapping whose pages were not read counts as if every page were resident, reduced as in K3.
//! K5  A snapshot that lacks a fiftieth or more of its resident memory when its pages are read is not of one moment:
//!     which live blocks are resident is then not known, and not reported.
//! K6  A heap's resident page on which no recorded block ever lay is not free memory: its bytes are a row of their own.
//!     Pages of a huge page that holds blocks are excepted: the kernel made them resident with the others. Without a
//!     recording from birth, or the pages, nothing is told apart.
//! K7  A mapping of a file, or of shared memory, is of the stack that mapped it (`backed.rs`).
//! K8  An arena whose blocks are recorded one by one (`trace::is_arena`) has none of the allocator's headers. Its resident
//!     bytes outside of blocks are a row of their own: neither malloc nor the program can use them otherwise.
//!
//! Cost: sorting the live blocks (`order.rs`), then three sweeps over them. Not here: which snapshot belongs to which instant.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use skinflint_trace::{Mapping, MappingKind, NodeId, ProcessInfo, Snapshot};

use crate::fragments::Layout;
use crate::fragments::{self, Kept, Placed};
use crate::giveback::{self, Extent, GiveBack, Span, Top, Way};
use crate::ledger::Ledger;
use crate::model::{BookPart, BookRow, Books, Fragments};
use crate::passes::classes::Classes;
use crate::unseen::Unseen;

use super::order::{self, Placing};
use super::parts::largest_parts;
use super::rows::{self, FREE_OR_BEFORE, GLIBC_METADATA, OTHER_METADATA, ROWS, Row};
use super::tails;

/// The header of a chunk of glibc's heaps, bytes.
const GLIBC_HEADER: u64 = 8;
/// The header of a chunk that glibc mapped by itself, bytes.
const GLIBC_MAPPED_HEADER: u64 = 16;

/// The owner of the remainder of a piece.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Part {
    Named(String),
    Stack(NodeId),
    /// A file or shared memory, and the stack of the program that mapped it.
    Mapped(String, NodeId),
}

/// A part of a mapping with one owner.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub row: Row,
    pub part: Part,
    pub resident: u64,
    pub live: u64,
    pub slop: u64,
    pub header: u64,
    /// Whether its pages are unknown (K4): then its blocks are not distinguished.
    pub estimated: bool,
    /// The address of its end.
    pub end: u64,
    /// Whether it belongs to `[heap]`.
    pub brk: bool,
}

impl Piece {
    fn rest(&self) -> u64 {
        self.resident - self.live - self.slop - self.header
    }

    /// Removes `excess` bytes (K3); returns what it could not remove.
    fn reduce(&mut self, excess: u64, stage: usize) -> u64 {
        let rest = self.rest();
        let field = match stage {
            0 => {
                let take = excess.min(rest);
                self.resident -= take;
                return excess - take;
            }
            1 => &mut self.slop,
            2 => &mut self.header,
            _ => &mut self.live,
        };
        let take = excess.min(*field);
        *field -= take;
        self.resident -= take;
        excess - take
    }
}

/// Resident addresses of one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Atom {
    pub start: u64,
    pub end: u64,
    pub piece: usize,
}

/// The blocks of one stack, and how much of them is not resident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untouched {
    /// The stack.
    pub node: NodeId,
    /// Live blocks of [`SEEN`] bytes and more.
    pub blocks: u64,
    /// Requested bytes of these blocks.
    pub asked_bytes: u64,
    /// The bytes of these that lie on pages known not to be resident.
    pub absent_bytes: u64,
}

/// The size from which a block has a whole page wherever it lies, and so shows whether that page was ever touched:
/// two pages.
pub const SEEN: u64 = 2 * 4096;

/// Resident bytes that one stack mapped itself, by what they are of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MappedBy {
    /// Anonymous memory.
    pub anonymous: u64,
    /// Shared memory.
    pub shared: u64,
    /// Files.
    pub files: u64,
}

/// The books, and what else findings are drawn from.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// The books; the caller sets the skew.
    pub books: Books,
    /// Stacks with blocks that are not resident, most absent bytes first.
    pub untouched: Vec<Untouched>,
    /// Bytes of each stack's live blocks, including slop, on pages that are known to be resident.
    pub resident: BTreeMap<NodeId, u64>,
    /// By cell, bytes that smaller blocks would not have and that are not resident anyway (`books/tails.rs`); empty
    /// unless stacks are to be reported.
    pub(crate) absent_tails: FxHashMap<u32, u64>,
    /// Resident bytes of what each stack of the program mapped itself.
    pub mapped: BTreeMap<NodeId, MappedBy>,
    /// Free memory of the allocator that could go back.
    pub giveback: GiveBack,
    /// What pins the rest, by stack.
    pub fragments: Option<Fragments>,
    /// What pins the rest, for functions.
    pub(crate) kept: Option<Kept>,
    /// Pages of heaps on which no recorded block ever lay (K6).
    pub(crate) unseen: Unseen,
    /// Resident bytes by cell.
    pub(crate) laid: Laid,
}

/// A snapshot that lacks one part in this many of resident memory, or more, is not of one moment (K5).
const TORN_PART: u64 = 50;

/// Bounds on what is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Parts of a row.
    pub parts: usize,
    /// Stacks that pin pages.
    pub pins: usize,
    /// Whether functions that pin pages will be wanted.
    pub keep: bool,
}

/// Closes the books of a snapshot over the blocks that live now.
pub fn close(
    snapshot: &Snapshot,
    ledger: &Ledger,
    process: &ProcessInfo,
    bounds: Bounds,
) -> Closed {
    let mut blocks = Vec::with_capacity((ledger.live().blocks as usize).min(ledger.slots()));
    let live = ledger.live_at();
    live.for_each(|(slot, block)| blocks.push((block.addr, block.cell.0, slot)));
    let mut closing = Closing {
        ledger,
        read_ns: snapshot.time_ns,
        allocator: &process.allocator,
        glibc: process.allocator.starts_with("glibc"),
        arenas: ledger.intervals().arenas(),
        blocks: order::by_address(blocks),
        pieces: Vec::new(),
        atoms: Vec::new(),
        totals: BTreeMap::new(),
        trimmed: 0,
        trimmed_live: 0,
        trimmed_slop: 0,
        unread: 0,
        torn: 0,
    };
    let mut mappings: Vec<&Mapping> = snapshot.mappings.iter().collect();
    mappings.sort_by_key(|mapping| mapping.start);
    let mut spans = Vec::with_capacity(mappings.len());
    for mapping in &mappings {
        let first = closing.pieces.len();
        let whole = closing.book_whole(mapping);
        if !whole {
            closing.cut(mapping);
        }
        spans.push((!whole).then_some(first..closing.pieces.len()));
    }
    let laid = closing.sweep();
    let heap = closing.heap();
    let (mut fragments, kept) = closing.fragments(&heap, bounds);
    let listed = closing.free_bytes();
    // These are two sweeps over the same blocks and pages, one by byte and one by page (fragments.R1).
    let by_page = fragments.as_ref().map_or(listed.0, |all| all.free_bytes);
    debug_assert_eq!(by_page, listed.0, "free bytes of pages");
    for (mapping, span) in mappings.iter().zip(spans) {
        if let Some(span) = span {
            closing.reconcile(mapping, span);
        }
    }
    let counted = closing.free_bytes();
    let torn = closing.torn;
    if let Some(fragments) = &mut fragments {
        fragments.uncounted_bytes = listed.0 - counted.0;
        fragments.unread_bytes = counted.1;
    }
    let has_spans = fragments.as_ref().is_some_and(|all| all.spans.is_some());
    let layout = Layout::of(closing.allocator).filter(|_| has_spans);
    let mut closed = Closed {
        untouched: closing.untouched(&laid),
        resident: closing.resident(&laid),
        absent_tails: match bounds.keep {
            true => closing.absent_tails(),
            false => FxHashMap::default(),
        },
        mapped: closing.mapped(),
        giveback: closing.giveback(&heap, topmost(snapshot).as_deref(), layout),
        fragments,
        kept,
        unseen: closing.unseen(),
        books: closing.into_books(&mappings, &laid, bounds.parts),
        laid,
    };
    if torn > closed.books.resident_bytes / TORN_PART {
        closed.untouched.clear();
        closed.absent_tails.clear();
        closed.books.live_not_resident_bytes = 0;
        closed.books.notes.push(format!(
            "{} went while the mappings were read: which live blocks are resident is not known.",
            crate::passes::wording::bytes(torn)
        ));
    }
    if by_page != listed.0 {
        closed.books.notes.push(format!(
            "DEFECT: {by_page} free bytes by page are {} by block; please report this with the trace.",
            listed.0
        ));
    }
    closed
}

/// Returns the topmost chunks of a snapshot, if it has them. The one that ends the data segment is given back.
fn topmost(snapshot: &Snapshot) -> Option<Vec<Top>> {
    let segment = snapshot.mappings.iter();
    let segment = segment.filter(|one| one.kind == MappingKind::Heap);
    let segment_end = segment.map(|one| one.end).max();
    let top = |&(start, bytes): &(u64, u64)| {
        let end = start.saturating_add(bytes);
        Top {
            start,
            end,
            goes: segment_end == Some(end),
        }
    };
    Some(snapshot.tops.as_ref()?.iter().map(top).collect())
}

/// Resident bytes by cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Laid {
    pub live: Vec<u64>,
    pub slop: Vec<u64>,
    /// Bytes of live blocks in mappings whose pages were not read.
    unread: Vec<u64>,
}

impl Laid {
    /// Adds a block that lies in one piece: the bytes of its header, those requested, and its slop.
    #[inline]
    fn add(&mut self, cell: u32, (header, live, slop): (u64, u64, u64), piece: &mut Piece) {
        piece.header += header;
        piece.live += live;
        piece.slop += slop;
        if piece.estimated {
            self.unread[cell as usize] += live;
        } else {
            self.live[cell as usize] += live;
            self.slop[cell as usize] += slop;
        }
    }
}

pub(super) struct Closing<'a> {
    pub ledger: &'a Ledger,
    /// When pages were read.
    read_ns: u64,
    allocator: &'a str,
    pub glibc: bool,
    /// Arenas whose blocks are recorded (K8), by address.
    arenas: Vec<(u64, u64)>,
    /// (address, cell, slot in the ledger), by address.
    blocks: Vec<Placing>,
    pub pieces: Vec<Piece>,
    pub atoms: Vec<Atom>,
    totals: BTreeMap<(Row, Part), u64>,
    /// Bytes that K3 removed, in all and from blocks whose stacks are known.
    trimmed: u64,
    trimmed_live: u64,
    trimmed_slop: u64,
    /// `Rss` of the mappings with blocks whose pages were not read.
    pub unread: u64,
    /// What mappings lost while they were read (K5).
    torn: u64,
}

impl Closing<'_> {
    pub fn add(&mut self, row: Row, part: Part, bytes: u64) {
        if bytes > 0 {
            *self.totals.entry((row, part)).or_default() += bytes;
        }
    }

    pub fn any_block(&self, start: u64, end: u64) -> bool {
        let first = self.blocks.partition_point(|block| block.0 < start);
        self.blocks.get(first).is_some_and(|block| block.0 < end)
    }

    /// Books a whole mapping, if it is of a kind that holds no blocks; returns whether it did.
    fn book_whole(&mut self, mapping: &Mapping) -> bool {
        let row = match mapping.kind {
            MappingKind::Recorder => Row::Recorder,
            MappingKind::Stack => Row::Stacks,
            MappingKind::Heap | MappingKind::Anon => return false,
            _ if self.any_block(mapping.start, mapping.end) => return false,
            MappingKind::Other => Row::Other,
            MappingKind::Shared | MappingKind::File => {
                self.book_backed(mapping);
                return true;
            }
        };
        self.add(row, part_name(mapping), mapping.rss_bytes);
        true
    }

    /// Returns the pages on which no block was ever seen, and what the books have of them.
    fn unseen(&self) -> Unseen {
        let is_unseen = |atom: &&Atom| self.pieces[atom.piece].row == Row::Unseen;
        let rows = self.totals.iter();
        let of_row = rows.filter(|((row, _), _)| *row == Row::Unseen);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for atom in self.atoms.iter().filter(is_unseen) {
            match ranges.last_mut() {
                Some(last) if last.1 == atom.start => last.1 = atom.end,
                _ => ranges.push((atom.start, atom.end)),
            }
        }
        Unseen {
            ranges,
            bytes: of_row.map(|(_, bytes)| bytes).sum(),
            resident_bytes: 0,
        }
    }

    /// Lays the blocks over the atoms (K2).
    fn sweep(&mut self) -> Laid {
        let keys = self.ledger.cells().keys();
        let none = || vec![0; keys.len()];
        let mut laid = Laid {
            live: none(),
            slop: none(),
            unread: none(),
        };
        let (mut at, mut first) = (0, 0);
        for &(addr, cell, _) in &self.blocks {
            let key = keys[cell as usize];
            let begin = addr.saturating_sub(self.header(addr, key.usable));
            let (asked, given) = (
                addr.saturating_add(key.size),
                addr.saturating_add(key.usable),
            );
            if begin >= at {
                while first < self.atoms.len() && self.atoms[first].end <= begin {
                    first += 1;
                }
                // Nearly always a block is resident from end to end.
                if let Some(atom) = self.atoms.get(first)
                    && atom.start <= begin
                    && given <= atom.end
                {
                    at = given;
                    let parts = (addr - begin, asked - addr, given - asked);
                    laid.add(cell, parts, &mut self.pieces[atom.piece]);
                    continue;
                }
            }
            for (what, start, end) in [(2, begin, addr), (0, addr, asked), (1, asked, given)] {
                let start = start.max(at);
                if end <= start {
                    continue;
                }
                at = end;
                while first < self.atoms.len() && self.atoms[first].end <= start {
                    first += 1;
                }
                for atom in self.atoms[first..]
                    .iter()
                    .take_while(|atom| atom.start < end)
                {
                    let bytes = end.min(atom.end) - start.max(atom.start);
                    let piece = &mut self.pieces[atom.piece];
                    let by_cell = match what {
                        0 if piece.estimated => &mut laid.unread,
                        0 => &mut laid.live,
                        _ => &mut laid.slop,
                    };
                    match what {
                        0 => piece.live += bytes,
                        1 => piece.slop += bytes,
                        _ => piece.header += bytes,
                    }
                    if what == 0 || (what == 1 && !piece.estimated) {
                        by_cell[cell as usize] += bytes;
                    }
                }
            }
        }
        laid
    }

    /// Returns the resident bytes by stack.
    fn resident(&self, laid: &Laid) -> BTreeMap<NodeId, u64> {
        let of_cell = |cell| laid.live[cell] + laid.slop[cell] + laid.unread[cell];
        self.by_stack(of_cell).collect()
    }

    /// Adds up cells by stack, and returns the stacks that have any bytes. Sums are by site: looking each cell's stack up
    /// in a tree was 3 % of the analysis of churn (callgrind, 200,000 cells, 2026-11-25).
    fn by_stack(&self, of_cell: impl Fn(usize) -> u64) -> impl Iterator<Item = (NodeId, u64)> {
        let cells = self.ledger.cells();
        let mut sums = vec![0; cells.sites().len()];
        for (cell, count) in cells.counts().enumerate() {
            sums[count.site as usize] += of_cell(cell);
        }
        let nodes = cells.sites().iter().map(|site| site.node);
        nodes.zip(sums).filter(|(_, bytes)| *bytes > 0)
    }

    fn absent_tails(&self) -> FxHashMap<u32, u64> {
        let keys = self.ledger.cells().keys();
        let classes = Classes::learn(self.allocator, keys.iter().map(|key| key.usable));
        let blocks = self.blocks.iter().map(|&(addr, cell, _)| (addr, cell));
        let resident: Vec<_> = self
            .atoms
            .iter()
            .map(|atom| (atom.start, atom.end))
            .collect();
        tails::absent(blocks, &resident, keys, &classes)
    }

    /// Returns the whole of what the rows of the program's own mappings have for each stack.
    fn mapped(&self) -> BTreeMap<NodeId, MappedBy> {
        let mut mapped: BTreeMap<NodeId, MappedBy> = BTreeMap::new();
        for (key, &bytes) in &self.totals {
            match key {
                (Row::ProgramMaps, Part::Stack(node) | Part::Mapped(_, node)) => {
                    mapped.entry(*node).or_default().anonymous += bytes;
                }
                (Row::Shared, Part::Mapped(_, node)) => {
                    mapped.entry(*node).or_default().shared += bytes;
                }
                (_, Part::Mapped(_, node)) => mapped.entry(*node).or_default().files += bytes,
                _ => {}
            }
        }
        mapped
    }

    /// Returns the resident addresses of heaps whose pages were read.
    fn heap(&self) -> Vec<Span> {
        let span = |atom: &Atom| {
            let piece = &self.pieces[atom.piece];
            (piece.row == Row::Free && !piece.estimated).then_some(Span {
                start: atom.start,
                end: atom.end,
                piece_end: piece.end,
                top_goes: !self.glibc || piece.brk,
            })
        };
        self.atoms.iter().filter_map(span).collect()
    }

    /// Returns the blocks with their places.
    fn placed(&self) -> impl Iterator<Item = Placed> + Clone {
        let keys = self.ledger.cells().keys();
        self.blocks.iter().map(move |&(addr, cell, slot)| {
            let usable = keys[cell as usize].usable;
            Placed {
                begin: addr.saturating_sub(self.header(addr, usable)),
                end: addr.saturating_add(usable),
                addr,
                cell,
                slot,
            }
        })
    }

    fn giveback(&self, heap: &[Span], tops: Option<&[Top]>, layout: Option<Layout>) -> GiveBack {
        let keys = self.ledger.cells().keys();
        let extents = self.placed().map(|block| {
            let usable = keys[block.cell as usize].usable;
            let span = layout.and_then(|layout| layout.span(block.addr, usable));
            let (begin, end) = span.unwrap_or((block.begin, block.end));
            Extent { begin, end }
        });
        let way = match self.glibc {
            true => Way::Glibc(tops),
            false => Way::Pages,
        };
        giveback::measure(heap, extents, way, self.ledger.covered())
    }

    fn fragments(&self, heap: &[Span], bounds: Bounds) -> (Option<Fragments>, Option<Kept>) {
        if heap.is_empty() {
            return (None, None);
        }
        let what = (bounds.pins, bounds.keep);
        let now = (self.ledger, self.read_ns);
        let (found, kept) = fragments::measure(heap, self.placed(), now, self.allocator, what);
        (Some(found), kept)
    }

    /// Returns the free bytes of heaps: of those whose pages were read, and of the others.
    fn free_bytes(&self) -> (u64, u64) {
        let heap = self.pieces.iter().filter(|piece| piece.row == Row::Free);
        let sum = |estimated| {
            let of = heap.clone().filter(|piece| piece.estimated == estimated);
            of.map(Piece::rest).sum()
        };
        (sum(false), sum(true))
    }

    fn header(&self, addr: u64, usable: u64) -> u64 {
        if self.glibc && !self.is_of_arena(addr) {
            glibc_header(addr, usable)
        } else {
            0
        }
    }

    /// Reports whether a block lies in an arena (K8). Cost: nothing without arenas, else a search among them.
    fn is_of_arena(&self, addr: u64) -> bool {
        let behind = self.arenas.partition_point(|arena| arena.0 <= addr);
        let last = behind.checked_sub(1).map(|at| self.arenas[at]);
        last.is_some_and(|(_, end)| addr < end)
    }

    /// Returns stacks with blocks that are not resident, by whole pages.
    fn untouched(&self, laid: &Laid) -> Vec<Untouched> {
        let cells = self.ledger.cells();
        let mut by_node: BTreeMap<NodeId, Untouched> = BTreeMap::new();
        for (index, (key, count)) in cells.keys().iter().zip(cells.counts()).enumerate() {
            let asked_bytes = u64::from(count.live).saturating_mul(key.size);
            let there = laid.live[index] + laid.unread[index];
            if key.size < SEEN || asked_bytes == 0 {
                continue;
            }
            let empty = Untouched {
                node: key.node,
                blocks: 0,
                asked_bytes: 0,
                absent_bytes: 0,
            };
            let sum = by_node.entry(key.node).or_insert(empty);
            sum.blocks += u64::from(count.live);
            sum.asked_bytes = sum.asked_bytes.saturating_add(asked_bytes);
            sum.absent_bytes = sum
                .absent_bytes
                .saturating_add(asked_bytes.saturating_sub(there));
        }
        let mut all: Vec<_> = by_node
            .into_values()
            .filter(|one| one.absent_bytes > 0)
            .collect();
        all.sort_by_key(|one| (std::cmp::Reverse(one.absent_bytes), one.node));
        all
    }

    /// Makes a mapping's pieces add up to its `Rss` (K1, K3) and books everything except live and slop.
    fn reconcile(&mut self, mapping: &Mapping, span: std::ops::Range<usize>) {
        let pages: u64 = self.pieces[span.clone()]
            .iter()
            .map(|piece| piece.resident)
            .sum();
        let mut excess = pages.saturating_sub(mapping.rss_bytes);
        if mapping.runs_known {
            self.trimmed += excess;
        }
        // Pages of zeros that no block was on were read and never written.
        for piece in &mut self.pieces[span.clone()] {
            if piece.row == Row::Unseen {
                excess = piece.reduce(excess, 0);
            }
        }
        for stage in 0..4 {
            for piece in &mut self.pieces[span.clone()] {
                let (live, slop) = (piece.live, piece.slop);
                excess = piece.reduce(excess, stage);
                if !piece.estimated {
                    self.trimmed_live += live - piece.live;
                    self.trimmed_slop += slop - piece.slop;
                }
            }
        }
        let missing = mapping.rss_bytes.saturating_sub(pages);
        self.torn += if mapping.runs_known { missing } else { 0 };
        self.add(
            Row::Unclassified,
            Part::Named("changed while it was read".into()),
            missing,
        );
        for index in span {
            let piece = self.pieces[index].clone();
            self.add(piece.row, piece.part.clone(), piece.rest());
            self.add(
                Row::Metadata,
                Part::Named("chunk headers".into()),
                piece.header,
            );
            if piece.estimated {
                let unknown = || Part::Named("in mappings whose pages could not be read".into());
                self.add(Row::Live, unknown(), piece.live);
                self.add(Row::Slop, unknown(), piece.slop);
            }
        }
    }

    /// Adds up cells by stack, minus what was trimmed, smallest stacks first.
    fn add_by_stack(&mut self, row: Row, by_cell: &[u64], mut trimmed: u64) {
        let mut nodes: Vec<_> = self.by_stack(|cell| by_cell[cell]).collect();
        nodes.sort_by_key(|&(node, bytes)| (bytes, node));
        for (node, bytes) in nodes {
            let take = trimmed.min(bytes);
            trimmed -= take;
            self.add(row, Part::Stack(node), bytes - take);
        }
    }

    fn into_books(mut self, mappings: &[&Mapping], laid: &Laid, parts: usize) -> Books {
        self.add_by_stack(Row::Live, &laid.live, self.trimmed_live);
        self.add_by_stack(Row::Slop, &laid.slop, self.trimmed_slop);
        let notes = self.notes();
        let mut books = Books {
            resident_bytes: mappings.iter().map(|mapping| mapping.rss_bytes).sum(),
            beside: rows::beside(mappings, parts),
            notes,
            ..Books::default()
        };
        for (row, id, label, meaning) in ROWS {
            let meaning = match row {
                Row::Metadata if self.glibc => GLIBC_METADATA,
                Row::Metadata => OTHER_METADATA,
                Row::Free if self.ledger.covered().is_some() => FREE_OR_BEFORE.1,
                _ => meaning,
            };
            let label = match row {
                Row::Free if self.ledger.covered().is_some() => FREE_OR_BEFORE.0,
                _ => label,
            };
            let all: Vec<BookPart> = self
                .totals
                .iter()
                .filter(|((of, _), _)| *of == row)
                .map(|((_, part), &bytes)| book_part(part, bytes))
                .collect();
            // Most programs have no arena that is looked into.
            if row == Row::Arenas && all.is_empty() {
                continue;
            }
            books.rows.push(BookRow {
                id: id.into(),
                label: label.into(),
                bytes: all.iter().map(|part| part.bytes).sum(),
                meaning: meaning.into(),
                parts: largest_parts(all, parts),
            });
        }
        books.live_not_resident_bytes = self
            .ledger
            .live()
            .requested_bytes
            .saturating_sub(books.rows[0].bytes);
        check(&mut books);
        books
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unread > 0 {
            notes.push(format!(
                "The pages of heap mappings with {} bytes resident could not be read: there, live \
                 blocks count as resident as far as the mapping's resident memory reaches.",
                self.unread
            ));
        }
        if self.trimmed > 0 {
            notes.push(format!(
                "{} bytes were listed as present but not counted as resident (pages of zeros, or \
                 released meanwhile); they were taken from free memory first.",
                self.trimmed
            ));
        }
        notes
    }
}

/// Checks that the books are closed (model.M2): in a release build a failure is reported, not hidden.
fn check(books: &mut Books) {
    let sum: u64 = books.rows.iter().map(|row| row.bytes).sum();
    debug_assert_eq!(sum, books.resident_bytes, "the books do not add up");
    for row in &books.rows {
        let parts: u64 = row.parts.iter().map(|part| part.bytes).sum();
        debug_assert_eq!(parts, row.bytes, "the parts of {} do not add up", row.id);
    }
    if sum != books.resident_bytes {
        books.notes.push(format!(
            "DEFECT: the rows add up to {sum} bytes, resident memory is {}; please report this \
             with the trace.",
            books.resident_bytes
        ));
    }
}

pub(super) fn part_name(mapping: &Mapping) -> Part {
    Part::Named(rows::mapping_name(mapping).into())
}

/// Returns glibc's header: a block with a mapping of its own begins 16 bytes into a page and ends at the end of one.
fn glibc_header(addr: u64, usable: u64) -> u64 {
    let alone = addr % 4096 == GLIBC_MAPPED_HEADER
        && usable
            .wrapping_add(GLIBC_MAPPED_HEADER)
            .is_multiple_of(4096);
    if alone {
        GLIBC_MAPPED_HEADER
    } else {
        GLIBC_HEADER
    }
}

fn book_part(part: &Part, bytes: u64) -> BookPart {
    match part {
        Part::Named(name) => BookPart {
            name: name.clone(),
            bytes,
            node: None,
        },
        Part::Stack(node) => BookPart {
            name: String::new(),
            bytes,
            node: Some(node.0),
        },
        Part::Mapped(name, node) => BookPart {
            name: name.clone(),
            bytes,
            node: Some(node.0),
        },
    }
}
