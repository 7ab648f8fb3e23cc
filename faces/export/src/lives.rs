//! Facts about a stack that only the events have: how long its blocks lived, and the most it ever held.
//!
//! ```text
//!   acts ─► LivesPass ─► by stack: lifetimes, largest moment, bytes by (bin of birth, bin of death)
//!                          └─ finish: in the order of Report::sites ─► Lives
//! ```
//!
//! V1  Entry `i` of [`Lives::sites`] belongs to `report.sites[i]`: both are ordered once, before stacks
//!     are renumbered, and nothing reorders them later.
//! V2  A block that is never released lives until the last event.
//! V3  Memory: one entry for each cell and each stack, and, if spans are asked for, at most
//!     `BINS` × (`BINS` + 1) / 2 entries for each stack.
//! V4  Blocks that a fork gave to the process were not acquired by it, so they are in no entry.
//!
//! Not here: live counts at an instant, which the report has.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use skinflint_analysis::model::Report;
use skinflint_analysis::pass::{Act, Block, CellId, Context, Pass};
use skinflint_trace::NodeId;

/// The number of bins of time for [`Lives::spans`]: a reader's window is exact to a hundredth of the run.
pub const BINS: u32 = 100;

/// The figures of one stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SiteLives {
    /// The stack in the trace (not in the report).
    pub trace_node: u32,
    /// The sum over its blocks of the microseconds from acquisition to release (V2).
    pub lifetime_us: u64,
    /// The most requested bytes that it held at once.
    pub max_bytes: u64,
    /// Its blocks at that moment, the first one if there are several.
    pub max_blocks: u64,
    live_bytes: u64,
    live_blocks: u64,
    /// The sum of the births of live blocks.
    live_born_us: u64,
}

impl SiteLives {
    /// Ends the live blocks (V2).
    fn ended(&self, end_us: u64) -> SiteLives {
        let alive = self.live_blocks.saturating_mul(end_us);
        let lifetime_us = alive
            .saturating_sub(self.live_born_us)
            .saturating_add(self.lifetime_us);
        SiteLives {
            lifetime_us,
            ..*self
        }
    }
}

/// Usable bytes that one stack acquired in one bin and released in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Index into [`Report::sites`].
    pub site: u32,
    /// Bin of acquisition, below [`BINS`].
    pub born: u32,
    /// Bin of release; `None` if they are never released.
    pub died: Option<u32>,
    /// The usable bytes.
    pub usable_bytes: u64,
}

/// The results of the pass.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    /// Figures by index of [`Report::sites`] (V1).
    pub sites: Vec<SiteLives>,
    /// Spans by site, birth, death; empty unless asked for.
    pub spans: Vec<Span>,
    /// The length of a bin, nanoseconds.
    pub bin_ns: u64,
}

impl Lives {
    /// Returns the report's stack for each stack of the trace that acquired or inherited anything.
    pub fn report_nodes(&self, report: &Report) -> FxHashMap<NodeId, u32> {
        let pairs = self.sites.iter().zip(&report.sites);
        pairs
            .map(|(lives, site)| (NodeId(lives.trace_node), site.node))
            .collect()
    }
}

/// The place where the pass leaves its results.
pub type Found = Arc<Mutex<Lives>>;

/// The pass that collects lives.
pub struct LivesPass {
    sites: Vec<SiteLives>,
    site_of_node: FxHashMap<NodeId, u32>,
    /// The site by cell; [`UNKNOWN`] if the cell has not been seen.
    site_of_cell: Vec<u32>,
    /// Bytes by (site, birth, death); `BINS` stands for no death yet.
    spans: Option<FxHashMap<(u32, u32, u32), u64>>,
    bin_us: u64,
    found: Found,
}

const UNKNOWN: u32 = u32::MAX;

impl LivesPass {
    /// Creates a pass, and the place of its results after the analysis has finished. `duration_ns` is
    /// how long the recording took, as far as is known before its events are read; what comes later is
    /// in the last bin.
    pub fn new(with_spans: bool, duration_ns: u64) -> (LivesPass, Found) {
        let found = Found::default();
        let pass = LivesPass {
            sites: Vec::new(),
            site_of_node: FxHashMap::default(),
            site_of_cell: Vec::new(),
            spans: with_spans.then(FxHashMap::default),
            bin_us: (duration_ns / 1000).div_ceil(u64::from(BINS)).max(1),
            found: Arc::clone(&found),
        };
        (pass, found)
    }

    fn site(&mut self, context: &Context<'_>, cell: CellId) -> usize {
        let at = cell.0 as usize;
        if at >= self.site_of_cell.len() {
            self.site_of_cell.resize(at + 1, UNKNOWN);
        }
        if self.site_of_cell[at] == UNKNOWN {
            let node = context.cell(cell).node;
            let next = self.sites.len() as u32;
            let site = *self.site_of_node.entry(node).or_insert(next);
            if site == next {
                self.sites.push(SiteLives {
                    trace_node: node.0,
                    ..SiteLives::default()
                });
            }
            self.site_of_cell[at] = site;
        }
        self.site_of_cell[at] as usize
    }

    fn bin(&self, us: u64) -> u32 {
        (us / self.bin_us).min(u64::from(BINS - 1)) as u32
    }

    fn born(&mut self, context: &Context<'_>, block: &Block) {
        let (site, key) = (self.site(context, block.cell), context.cell(block.cell));
        let born = self.bin(block.born_us());
        let entry = &mut self.sites[site];
        entry.live_blocks += 1;
        entry.live_born_us = entry.live_born_us.saturating_add(block.born_us());
        entry.live_bytes = entry.live_bytes.saturating_add(key.size);
        if entry.live_bytes > entry.max_bytes {
            (entry.max_bytes, entry.max_blocks) = (entry.live_bytes, entry.live_blocks);
        }
        if let Some(spans) = &mut self.spans {
            let bytes = spans.entry((site as u32, born, BINS)).or_default();
            *bytes = bytes.saturating_add(key.usable);
        }
    }

    fn died(&mut self, context: &Context<'_>, block: &Block) {
        let (site, key) = (self.site(context, block.cell), context.cell(block.cell));
        let now_us = context.time_ns / 1000;
        let (born, died) = (self.bin(block.born_us()), self.bin(now_us));
        let entry = &mut self.sites[site];
        entry.live_blocks = entry.live_blocks.saturating_sub(1);
        entry.live_bytes = entry.live_bytes.saturating_sub(key.size);
        entry.live_born_us = entry.live_born_us.saturating_sub(block.born_us());
        let age = now_us.saturating_sub(block.born_us());
        entry.lifetime_us = entry.lifetime_us.saturating_add(age);
        if let Some(spans) = &mut self.spans {
            let alive = spans.entry((site as u32, born, BINS)).or_default();
            *alive = alive.saturating_sub(key.usable);
            let gone = spans
                .entry((site as u32, born, died.max(born)))
                .or_default();
            *gone = gone.saturating_add(key.usable);
        }
    }
}

impl Pass for LivesPass {
    fn act(&mut self, context: &Context<'_>, act: &Act) {
        match act {
            Act::Acquire { block, .. } => self.born(context, block),
            Act::Release { block, .. } => self.died(context, block),
            Act::Regrow { old, new } => {
                self.died(context, old);
                self.born(context, new);
            }
            Act::Mark { .. } => {}
        }
    }

    fn finish(self: Box<Self>, context: &Context<'_>, report: &mut Report) {
        let mut lives = Lives {
            bin_ns: self.bin_us * 1000,
            ..Lives::default()
        };
        let mut place = vec![UNKNOWN; self.sites.len()];
        for (index, site) in report.sites.iter().enumerate() {
            // A stack of inherited blocks only is not in our tables (V4).
            let ours = self.site_of_node.get(&NodeId(site.node));
            if let Some(&ours) = ours {
                place[ours as usize] = index as u32;
            }
            lives.sites.push(match ours {
                Some(&ours) => self.sites[ours as usize].ended(context.time_ns / 1000),
                None => SiteLives {
                    trace_node: site.node,
                    ..SiteLives::default()
                },
            });
        }
        for (&(site, born, died), &usable_bytes) in self.spans.iter().flatten() {
            if usable_bytes > 0 && place[site as usize] != UNKNOWN {
                lives.spans.push(Span {
                    site: place[site as usize],
                    born,
                    died: (died < BINS).then_some(died),
                    usable_bytes,
                });
            }
        }
        lives
            .spans
            .sort_unstable_by_key(|span| (span.site, span.born, span.died));
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = lives;
    }
}
