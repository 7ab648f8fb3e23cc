//! Drives one pass by hand in tests: a small ledger whose every block the test names.
//!
//! ```text
//!   alloc / free / regrow / mark ──► Act ──► the pass ──► Report
//! ```
//!
//! D1  Serials count acquisitions, cells are dense, addresses are never reused (except by a regrow
//!     that the test says stays in place): what the ledger promises, and no more.
//!
//! Not here: the ledger's own checks.

use std::collections::HashMap;

use skinflint_trace::{AllocFn, FreeFn, Mark, NodeId, ThreadId};

use crate::block::NO_KEY;
use crate::model::{Report, Site};
use crate::pass::{Act, Block, CellBlocks, CellId, CellKey, Context, Pass};

pub(super) struct Driver {
    pass: Box<dyn Pass>,
    usable: fn(u64) -> u64,
    cells: Vec<CellKey>,
    index: HashMap<CellKey, CellId>,
    sites: HashMap<u32, (Site, Option<u32>)>,
    /// Live now, and what the pass is told at the end.
    blocks: Vec<(u64, CellBlocks)>,
    /// Whether the instant has come.
    frozen: bool,
    /// Numbers of the stacks, in order of first use.
    site_numbers: Vec<u32>,
    serial: u32,
    next_addr: u64,
    ticket: u64,
    pub time_ns: u64,
    pub thread: ThreadId,
}

impl Driver {
    /// `usable` is the allocator that "ran".
    pub fn new(pass: impl Pass + 'static, usable: fn(u64) -> u64) -> Self {
        Self {
            pass: Box::new(pass),
            usable,
            cells: Vec::new(),
            index: HashMap::new(),
            sites: HashMap::new(),
            blocks: Vec::new(),
            frozen: false,
            site_numbers: Vec::new(),
            serial: 0,
            next_addr: 0x1000,
            ticket: 0,
            time_ns: 0,
            thread: ThreadId(0),
        }
    }

    fn block(&mut self, node: u32, size: u64, addr: Option<u64>) -> Block {
        let key = CellKey {
            node: NodeId(node),
            size,
            usable: (self.usable)(size),
        };
        let fresh = CellId(self.cells.len() as u32);
        let cell = *self.index.entry(key).or_insert(fresh);
        if cell == fresh {
            self.cells.push(key);
            self.blocks.push((0, CellBlocks::default()));
        }
        let addr = addr.unwrap_or(self.next_addr);
        self.next_addr += key.usable.max(16);
        let serial = self.serial;
        self.serial = self.serial.wrapping_add(1);
        Block::new(addr, cell, self.thread, self.time_ns / 1000, serial)
    }

    fn act(&mut self, act: Act) {
        self.ticket += 1;
        self.time_ns += 1000;
        self.count(&act);
        let key = match &act {
            Act::Acquire { block, .. }
            | Act::Release { block, .. }
            | Act::Regrow { new: block, .. } => self.cells[block.cell.0 as usize],
            Act::Mark { .. } => NO_KEY,
        };
        let site = self.site_number(key.node.0);
        if !self.pass.sees_acts() {
            return;
        }
        // As the analyzer does.
        let always = matches!(act, Act::Regrow { .. } | Act::Mark { .. });
        if !always && key.size < self.pass.least_bytes() {
            return;
        }
        let context = Context {
            cells: &self.cells,
            blocks: &[],
            key,
            site,
            time_ns: self.time_ns,
            ticket: self.ticket,
        };
        self.pass.act(&context, &act);
    }

    fn site_number(&mut self, node: u32) -> u32 {
        let known = self.site_numbers.iter().position(|known| *known == node);
        let number = known.unwrap_or_else(|| {
            self.site_numbers.push(node);
            self.site_numbers.len() - 1
        });
        number as u32
    }

    /// The part of the ledger's cells that passes read.
    fn count_blocks(&mut self, act: &Act) {
        let mut add = |block: &Block| {
            let (live, counts) = &mut self.blocks[block.cell.0 as usize];
            *live += 1;
            counts.total += 1;
        };
        match act {
            Act::Acquire { block, .. } => add(block),
            Act::Release { block, .. } => self.blocks[block.cell.0 as usize].0 -= 1,
            Act::Regrow { old, new } => {
                add(new);
                self.blocks[old.cell.0 as usize].0 -= 1;
            }
            Act::Mark { .. } => {}
        }
    }

    /// The part of the ledger's sites that passes read.
    fn count(&mut self, act: &Act) {
        self.count_blocks(act);
        match act {
            Act::Acquire { block, .. } | Act::Regrow { new: block, .. } => {
                let key = self.cells[block.cell.0 as usize];
                let (site, last) = self.sites.entry(key.node.0).or_default();
                if site.allocations == 0 {
                    (site.node, site.first_ns) = (key.node.0, self.time_ns);
                }
                site.allocations += 1;
                site.requested_bytes += key.size;
                site.last_ns = self.time_ns;
                *last = Some(block.serial);
            }
            Act::Release { block, .. } => {
                let node = self.cells[block.cell.0 as usize].node.0;
                let next = self.serial;
                let (site, last) = self.sites.entry(node).or_default();
                let temporary = *last == Some(block.serial);
                site.temporaries += u64::from(temporary);
                let brief = next.wrapping_sub(block.serial) <= crate::cells::BRIEF;
                site.brief += u64::from(temporary || brief);
            }
            Act::Mark { .. } => {}
        }
    }

    pub fn alloc(&mut self, node: u32, size: u64) -> Block {
        let block = self.block(node, size, None);
        self.act(Act::Acquire {
            block,
            func: AllocFn::Malloc,
        });
        block
    }

    /// A block that the test never names again.
    pub fn keep(&mut self, node: u32, size: u64) {
        self.alloc(node, size);
    }

    pub fn free(&mut self, block: Block) {
        let by = self.thread;
        self.act(Act::Release {
            block,
            func: FreeFn::Free,
            by,
        });
    }

    /// A realloc; it moves if the usable size changes.
    pub fn regrow(&mut self, old: Block, node: u32, size: u64) -> Block {
        let stays = self.cells[old.cell.0 as usize].usable == (self.usable)(size);
        let new = self.block(node, size, stays.then_some(old.addr));
        self.act(Act::Regrow { old, new });
        new
    }

    /// Says what of the ends of a cell's blocks is not resident.
    pub fn absent(&mut self, node: u32, size: u64, bytes: u64) {
        let key = CellKey {
            node: NodeId(node),
            size,
            usable: (self.usable)(size),
        };
        let cell = self.index[&key];
        self.blocks[cell.0 as usize].1.absent_tail_bytes = bytes;
    }

    pub fn mark(&mut self, mark: u32) {
        self.act(Act::Mark { mark });
    }

    fn freeze(&mut self) {
        for (live, counts) in &mut self.blocks {
            counts.at_instant = *live;
        }
        self.frozen = true;
    }

    pub fn instant(&mut self) {
        self.freeze();
        let context = Context {
            cells: &self.cells,
            blocks: &[],
            key: NO_KEY,
            site: 0,
            time_ns: self.time_ns,
            ticket: self.ticket,
        };
        self.pass.at_instant(&context);
    }

    pub fn finish(mut self) -> Report {
        if !self.frozen {
            self.freeze();
        }
        let blocks: Vec<_> = self.blocks.iter().map(|(_, counts)| *counts).collect();
        let sites = self.sites.into_values().map(|(site, _)| site).collect();
        let mut report = Report {
            sites,
            ..Report::default()
        };
        let context = Context {
            cells: &self.cells,
            blocks: &blocks,
            key: NO_KEY,
            site: 0,
            time_ns: self.time_ns,
            ticket: self.ticket,
        };
        self.pass.finish(&context, &mut report);
        report
    }
}

/// Marks of these names, a microsecond apart.
pub(super) fn marks(names: &[&str]) -> Vec<Mark> {
    let mark = |(i, name): (usize, &&str)| Mark {
        name: (*name).to_owned(),
        time_ns: i as u64 * 1000,
        ticket: i as u64,
        thread: None,
    };
    names.iter().enumerate().map(mark).collect()
}

/// The rounding of a scheme by name, as the driver wants it.
pub(super) fn jemalloc5(size: u64) -> u64 {
    skinflint_sizes::Scheme::by_name("jemalloc5")
        .expect("known")
        .usable(size)
}

/// Returns glibc's usable size, as [`jemalloc5`] does for jemalloc.
pub(super) fn glibc(size: u64) -> u64 {
    skinflint_sizes::Scheme::by_name("glibc")
        .expect("known")
        .usable(size)
}

/// Returns the usable size in Firefox of 2011, as [`jemalloc5`] does for jemalloc.
pub(super) fn mozjemalloc_2011(size: u64) -> u64 {
    skinflint_sizes::Scheme::by_name("mozjemalloc-2011")
        .expect("known")
        .usable(size)
}
