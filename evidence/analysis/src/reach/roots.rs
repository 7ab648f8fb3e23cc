//! The owners of memory: which words outside of blocks are roots.
//!
//! ```text
//!   region:  data of modules, stacks, thread-local storage, shared ─► root
//!            [heap] ─► the allocator's     anonymous ─► by its mapper:
//!                        the allocator ─► its own        the program ─► root
//!                        none that was seen ─► by the allocator's habits (`unseen_is_root`)
//! ```
//!
//! A1  The allocator's memory is no root: its free lists and caches point to blocks that nothing else may point to.
//! A2  Memory whose mapping was not seen, and that no habit gives to the allocator, is a root: the loader's memory is
//!     an example.
//! A3  The data of the allocator's own library is no root; glibc's is the C library's, and is one (graph.G3).
//!
//! Not here: reading the memory.

use skinflint_trace::{Look, LookRegion, RegionKind};

use super::live::Live;
use crate::maps::{Intervals, Owner};

/// Where a word lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordAt {
    /// At this address.
    Memory(u64),
    /// In a register: index into [`Look::registers`].
    Register(u32),
}

/// The standing of a word outside of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Root,
    GlibcData,
    Allocator,
}

/// The allocator that ran, as far as its habits are known.
#[derive(Clone, Debug, Default)]
pub struct Maker {
    /// Its name, as recorded: `glibc 2.36`.
    pub name: String,
    /// Path of its library.
    pub path: String,
}

impl Maker {
    fn is_glibc(&self) -> bool {
        self.name.starts_with("glibc")
    }

    /// Reports whether it maps unseen: ours maps by system calls of its own, far from everything else.
    fn maps_unseen(&self) -> bool {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        path.ends_with("/libskinflint.so")
    }
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    standing: Standing,
}

/// The memory of a look, by owner: whether a word in it is a root.
pub struct Roots {
    pieces: Vec<Piece>,
    tls: Vec<(u64, u64)>,
}

/// The alignment of glibc's heaps of threads.
const ARENA_BYTES: u64 = 64 << 20;
/// The distance within which memory near a module was mapped for it by the loader.
const NEAR: u64 = 16 << 20;

impl Roots {
    /// Creates the list. `intervals` has the mappers of memory; `by_allocator` whether the allocator's own code did.
    pub fn new(
        look: &Look,
        blocks: &[Live],
        maker: &Maker,
        intervals: &Intervals,
        by_allocator: &dyn Fn(&Owner) -> bool,
    ) -> Roots {
        let mut starts: Vec<u64> = blocks.iter().map(|block| block.addr).collect();
        starts.sort_unstable();
        let mut pieces = Vec::new();
        for region in &look.regions {
            let mut push = |start, end, standing| {
                pieces.push(Piece {
                    start,
                    end,
                    standing,
                });
            };
            match region.kind {
                RegionKind::Tls => {}
                RegionKind::Heap => push(region.start, region.end, Standing::Allocator),
                RegionKind::Data if same_library(&region.name, &maker.path) => {
                    let standing = match maker.is_glibc() {
                        true => Standing::GlibcData,
                        false => Standing::Allocator,
                    };
                    push(region.start, region.end, standing);
                }
                RegionKind::Data | RegionKind::Stack | RegionKind::Shared => {
                    push(region.start, region.end, Standing::Root);
                }
                RegionKind::Anon => {
                    for (start, end, owner) in intervals.split(region.start, region.end) {
                        let root = match owner {
                            Some(owner) => !by_allocator(&owner),
                            None => unseen_is_root(look, region, (start, end), maker, &starts),
                        };
                        let standing = if root {
                            Standing::Root
                        } else {
                            Standing::Allocator
                        };
                        push(start, end, standing);
                    }
                }
            }
        }
        pieces.sort_by_key(|piece| piece.start);
        let tls = look
            .regions
            .iter()
            .filter(|one| one.kind == RegionKind::Tls);
        Roots {
            pieces,
            tls: tls.map(|one| (one.start, one.end)).collect(),
        }
    }

    /// Returns a sweep that answers for ascending addresses.
    pub(super) fn sweep(&self) -> Sweep<'_> {
        Sweep { roots: self, at: 0 }
    }
}

/// Reports whether two paths name one library: the loader's is a link, the kernel's is what it leads to.
fn same_library(one: &str, other: &str) -> bool {
    let name = |path: &str| {
        let file = path.rsplit('/').next()?;
        Some(file.split_once(".so")?.0.to_owned())
    };
    name(one).is_some_and(|one| Some(one) == name(other))
}

/// Returns the region of a look that an address lies in; thread-local storage before what it lies in.
pub fn region_of(look: &Look, address: u64) -> Option<&LookRegion> {
    let inside = |one: &&LookRegion| (one.start..one.end).contains(&address);
    let is_tls = |one: &&LookRegion| one.kind == RegionKind::Tls;
    let tls = look.regions.iter().filter(is_tls).find(inside);
    tls.or_else(|| look.regions.iter().find(inside))
}

/// A sweep over ascending addresses; see [`Roots::sweep`].
pub(super) struct Sweep<'a> {
    roots: &'a Roots,
    at: usize,
}

impl Sweep<'_> {
    pub(super) fn at(&mut self, address: u64) -> Standing {
        let pieces = &self.roots.pieces;
        while self.at < pieces.len() && pieces[self.at].end <= address {
            self.at += 1;
        }
        let tls = &self.roots.tls;
        if tls
            .iter()
            .any(|&(start, end)| (start..end).contains(&address))
        {
            return Standing::Root;
        }
        match pieces.get(self.at) {
            Some(piece) if piece.start <= address => piece.standing,
            _ => Standing::Allocator,
        }
    }
}

/// Reports whether anonymous memory whose mapping was not seen is a root (A2).
fn unseen_is_root(
    look: &Look,
    region: &LookRegion,
    (start, end): (u64, u64),
    maker: &Maker,
    blocks: &[u64],
) -> bool {
    let first = blocks.partition_point(|block| *block < start);
    let holds_blocks = blocks.get(first).is_some_and(|block| *block < end);
    if maker.is_glibc() {
        // glibc maps unseen: arenas of threads, and large blocks by themselves, beside which nothing of its own lies.
        return !start.is_multiple_of(ARENA_BYTES) && !region.start.is_multiple_of(ARENA_BYTES);
    }
    if holds_blocks {
        return false;
    }
    if maker.maps_unseen() {
        let near = |one: &LookRegion| {
            one.kind == RegionKind::Data
                && one.start < end.saturating_add(NEAR)
                && start < one.end.saturating_add(NEAR)
        };
        return look.regions.iter().any(near);
    }
    true
}
