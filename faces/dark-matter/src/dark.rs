//! Dark matter: what lives on the heap and no reporter of the program has measured, by stack; and what two reporters
//! have both measured.
//!
//! ```text
//!   claims with addresses  × live blocks ─► each byte: of no claim, of one, of two or more      exact
//!   claims with totals only: heap − Σ claims is dark; which stacks it is can only be guessed     totals
//!
//!   measured while the program ran:   mark ──── measurement ──── mark      judged are blocks that live at both
//! ```
//!
//! D1  Exact: for each stack, unreported + once + twice + went = live bytes given; and stacks add up to the heap
//!     ([`Dark::adds_up`]). Blocks that went during the measurement are not judged, and those that came do not belong
//!     to the heap: the measurement's own blocks are among them.
//! D2  Totals: about a stack we say only what follows. At least `live − Σ claims` of a stack is dark; a claim of
//!     exactly a stack's (or function's) bytes is taken as its explanation, each claim once; the rest is "possible".
//! D3  The mode is exact if any claim has addresses. Claims without addresses are then not used, but counted.
//! D4  Exact, and the memory report has `heap-allocated`: unreported is its heap-unclassified and five differences
//!     ([`Account`]), to the byte.
//!
//! DMD of Firefox is where the question comes from (memory/replace/dmd). Not here: text (text.rs).

use rustc_hash::FxHashMap;
use serde::Serialize;
use skinflint_analysis::model::{Report, Site};
use skinflint_export::source::{NO_STACK, name};
use skinflint_view::stack::telling;

use crate::reported::{Claim, Heap};

/// A live block at the report's instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveBlock {
    /// Its address.
    pub addr: u64,
    /// Usable bytes.
    pub usable_bytes: u64,
    /// Index into the report's sites.
    pub site: u32,
    /// Whether it was released while the program was measured.
    pub went: bool,
}

/// The blocks that lived when the program was measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Living {
    /// Blocks that lived at the report's instant, in any order.
    pub blocks: Vec<LiveBlock>,
    /// Address and usable bytes of blocks that came between the instant and the end of the measurement.
    pub came: Vec<(u64, u64)>,
}

/// How dark matter was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// By the addresses that reporters gave.
    Exact,
    /// By their totals.
    Totals,
}

/// A stack. Bytes are usable bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The stack's node in the report.
    pub node: u32,
    /// Live blocks.
    pub live_blocks: u64,
    /// Live bytes.
    pub live_bytes: u64,
    /// Exact: bytes that are in no claim.
    pub unreported_bytes: u64,
    /// Exact: blocks with no byte in a claim.
    pub unreported_blocks: u64,
    /// Exact: bytes that are in one claim.
    pub once_bytes: u64,
    /// Exact: bytes that are in two claims or more.
    pub twice_bytes: u64,
    /// Exact: blocks with bytes in two claims or more.
    pub twice_blocks: u64,
    /// Exact: bytes of blocks that went during the measurement.
    pub went_bytes: u64,
    /// Totals: at least this many bytes are dark.
    pub surely_dark_bytes: u64,
    /// Totals: the claim whose amount equals that of this stack, or of all stacks of its function.
    pub explained_by: Option<String>,
}

/// The result for one claim.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClaimRow {
    /// Its path.
    pub path: String,
    /// The bytes that it claims.
    pub amount_bytes: u64,
    /// Whether it gave addresses.
    pub has_addresses: bool,
    /// Live bytes that its addresses cover.
    pub covered_bytes: u64,
    /// Of these, bytes that another claim (or itself, once more) covers too.
    pub twice_bytes: u64,
    /// Bytes of blocks that it names and that came or went during the measurement.
    pub changed_bytes: u64,
    /// Blocks that it names and that are not live.
    pub stray_blocks: u64,
    /// Bytes of its ranges that lie in no live block.
    pub stray_bytes: u64,
}

/// Two claims on the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Twice {
    /// The first claim.
    pub first: String,
    /// The second claim; the same as the first if it claims the same bytes twice.
    pub second: String,
    /// The bytes that both claim.
    pub bytes: u64,
    /// The blocks that both claim.
    pub blocks: u64,
}

/// The account from heap-unclassified of the memory report to what is unreported, in bytes; all parts are added (D4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Account {
    /// `heap-allocated` minus all claims.
    pub heap_unclassified_bytes: i64,
    /// What the recording has beyond `heap-allocated`: it counts at another moment, or with headers, or another heap.
    pub recorded_more_bytes: i64,
    /// What two claims or more have in common: it is claimed, and exists only once.
    pub claimed_twice_bytes: i64,
    /// Bytes of claims without addresses.
    pub without_addresses_bytes: i64,
    /// What claims with addresses state beyond what their addresses cover.
    pub claimed_beyond_bytes: i64,
    /// Bytes that went during the measurement, as a negative number.
    pub went_bytes: i64,
}

impl Account {
    /// Returns the sum of all parts.
    pub fn sum(&self) -> i64 {
        self.heap_unclassified_bytes
            + self.recorded_more_bytes
            + self.claimed_twice_bytes
            + self.without_addresses_bytes
            + self.claimed_beyond_bytes
            + self.went_bytes
    }
}

/// The dark matter of a process.
#[derive(Clone, Debug, Serialize)]
pub struct Dark {
    /// Version of these fields.
    pub schema: u32,
    /// How it was found.
    pub mode: Mode,
    /// The name of the process in the memory report.
    pub process: String,
    /// The moment of the trace.
    pub at: String,
    /// Live usable bytes, as the analysis counted them.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// `heap-allocated` of the memory report.
    pub said_allocated_bytes: Option<u64>,
    /// Sum of all claims.
    pub claimed_bytes: u64,
    /// Bytes of claims without addresses, which the exact mode does not use.
    pub unused_claim_bytes: u64,
    /// Exact: bytes in no claim. Totals: live minus claimed; 0 if more is claimed than lives.
    pub dark_bytes: u64,
    /// Totals: the bytes claimed beyond those that live: claimed twice, or not of this heap.
    pub overclaimed_bytes: u64,
    /// Exact: bytes of blocks that went during the measurement.
    pub went_bytes: u64,
    /// Exact: the account from heap-unclassified to `dark_bytes`, if the memory report has `heap-allocated`.
    pub account: Option<Account>,
    /// Why the figures may mean little, one sentence each.
    pub doubts: Vec<String>,
    /// Stacks, darkest first.
    pub rows: Vec<Row>,
    /// Claims, largest first.
    pub claims: Vec<ClaimRow>,
    /// Exact: pairs of claims, largest first.
    pub twice: Vec<Twice>,
}

impl Dark {
    /// Finds the dark matter of what lived at the report's instant.
    pub fn new(report: &Report, heap: &Heap, living: &Living) -> Dark {
        let exact = heap.claims.iter().any(Claim::has_addresses);
        let claimed = heap.claims.iter().map(|claim| claim.amount_bytes);
        let at = report.instants.get(report.at);
        let mut dark = Dark {
            schema: 2,
            mode: if exact { Mode::Exact } else { Mode::Totals },
            process: heap.process.clone(),
            at: at.map_or_else(String::new, |at| at.label.clone()),
            live_bytes: at.map_or(0, |at| at.live_usable_bytes),
            live_blocks: at.map_or(0, |at| at.live_blocks),
            said_allocated_bytes: heap.allocated_bytes,
            claimed_bytes: claimed.fold(0, u64::saturating_add),
            unused_claim_bytes: 0,
            dark_bytes: 0,
            overclaimed_bytes: 0,
            went_bytes: 0,
            account: None,
            doubts: Vec::new(),
            rows: report.sites.iter().map(row).collect(),
            claims: heap.claims.iter().map(claim_row).collect(),
            twice: Vec::new(),
        };
        match dark.mode {
            Mode::Exact => {
                Cover::new(heap, living).lay(&mut dark);
                dark.account = account(&dark);
            }
            Mode::Totals => totals(report, &mut dark),
        }
        doubts(&mut dark);
        dark.rows.retain(|row| row.live_blocks > 0);
        dark.rows.sort_by_key(|row| {
            let dark = (row.unreported_bytes, row.surely_dark_bytes);
            let explained = row.explained_by.is_some();
            (
                std::cmp::Reverse(dark),
                explained,
                std::cmp::Reverse(row.live_bytes),
                row.node,
            )
        });
        dark.claims.sort_by(|a, b| {
            b.amount_bytes
                .cmp(&a.amount_bytes)
                .then_with(|| a.path.cmp(&b.path))
        });
        dark
    }

    /// Checks that the figures add up (D1).
    ///
    /// # Errors
    /// Which figure does not add up.
    pub fn adds_up(&self) -> Result<(), String> {
        let sum = |of: fn(&Row) -> u64| self.rows.iter().map(of).fold(0, u64::saturating_add);
        let fault = |what: &str| Err(format!("{what}; this is a fault of skinflint"));
        if sum(|row| row.live_bytes) != self.live_bytes
            || sum(|row| row.live_blocks) != self.live_blocks
        {
            return fault("the stacks do not add up to the live heap");
        }
        let parts =
            |row: &Row| row.unreported_bytes + row.once_bytes + row.twice_bytes + row.went_bytes;
        if self.mode == Mode::Exact && self.rows.iter().any(|row| parts(row) != row.live_bytes) {
            return fault("what is reported and what is not do not add up to a stack's bytes");
        }
        if self.mode == Mode::Exact && sum(|row| row.unreported_bytes) != self.dark_bytes {
            return fault("the stacks do not add up to what is dark");
        }
        let dark = i64::try_from(self.dark_bytes).unwrap_or(i64::MAX);
        if self.account.is_some_and(|account| account.sum() != dark) {
            return fault("what is dark is not heap-unclassified and what differs from it");
        }
        Ok(())
    }
}

fn row(site: &Site) -> Row {
    Row {
        node: site.node,
        live_blocks: site.live_blocks,
        live_bytes: site.live_usable_bytes,
        ..Row::default()
    }
}

fn claim_row(claim: &Claim) -> ClaimRow {
    ClaimRow {
        path: claim.path.clone(),
        amount_bytes: claim.amount_bytes,
        has_addresses: claim.has_addresses(),
        ..ClaimRow::default()
    }
}

/// Computes the account (D4).
fn account(dark: &Dark) -> Option<Account> {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let said = signed(dark.said_allocated_bytes?);
    let sum = |of: fn(&ClaimRow) -> u64| -> i64 {
        let named = dark.claims.iter().filter(|claim| claim.has_addresses);
        signed(named.map(of).fold(0, u64::saturating_add))
    };
    let covered = sum(|claim| claim.covered_bytes);
    let once = dark.rows.iter().map(|row| row.once_bytes + row.twice_bytes);
    Some(Account {
        heap_unclassified_bytes: said - signed(dark.claimed_bytes),
        recorded_more_bytes: signed(dark.live_bytes) - said,
        claimed_twice_bytes: covered - signed(once.sum()),
        without_addresses_bytes: signed(dark.unused_claim_bytes),
        claimed_beyond_bytes: sum(|claim| claim.amount_bytes) - covered,
        went_bytes: -signed(dark.went_bytes),
    })
}

/// Which part of which block belongs to which claim.
struct Cover<'a> {
    /// The live blocks, by address.
    blocks: Vec<LiveBlock>,
    /// The blocks that came, by address.
    came: Vec<(u64, u64)>,
    heap: &'a Heap,
    /// Parts by index of the block: from, to (offsets), claim.
    parts: FxHashMap<usize, Vec<(u64, u64, usize)>>,
}

impl<'a> Cover<'a> {
    fn new(heap: &'a Heap, living: &Living) -> Cover<'a> {
        let (mut blocks, mut came) = (living.blocks.clone(), living.came.clone());
        came.sort_unstable();
        blocks.sort_unstable_by_key(|block| (block.addr, block.usable_bytes, block.site));
        Cover {
            blocks,
            came,
            heap,
            parts: FxHashMap::default(),
        }
    }

    /// Returns the index of the block that an address lies in.
    fn block_at(&self, addr: u64) -> Option<usize> {
        let index = self
            .blocks
            .partition_point(|block| block.addr <= addr)
            .checked_sub(1)?;
        let block = &self.blocks[index];
        // A block of 0 bytes is still a block at its address.
        (addr - block.addr < block.usable_bytes.max(1)).then_some(index)
    }

    /// Returns the bytes of the block that an address lies in and that came during the measurement.
    fn came_at(&self, addr: u64) -> Option<u64> {
        let index = self
            .came
            .partition_point(|(start, _)| *start <= addr)
            .checked_sub(1)?;
        let (start, bytes) = self.came[index];
        (addr - start < bytes.max(1)).then_some(bytes)
    }

    /// Resolves an address of a claim: returns the block that is judged, if there is one, and counts the others in
    /// `row`.
    fn lead(&self, addr: u64, row: &mut ClaimRow) -> Option<usize> {
        let found = self.block_at(addr);
        match (found.map(|at| self.blocks[at]), self.came_at(addr)) {
            // If a block went and another came in its place, the newer one was measured.
            (Some(block), None) if !block.went => return found,
            (_, Some(bytes)) => row.changed_bytes = row.changed_bytes.saturating_add(bytes),
            (Some(block), None) => {
                row.changed_bytes = row.changed_bytes.saturating_add(block.usable_bytes);
            }
            (None, None) => row.stray_blocks += 1,
        }
        None
    }

    fn lay(mut self, dark: &mut Dark) {
        for (index, claim) in self.heap.claims.iter().enumerate() {
            if !claim.has_addresses() {
                dark.unused_claim_bytes =
                    dark.unused_claim_bytes.saturating_add(claim.amount_bytes);
            }
            for &addr in &claim.blocks {
                if let Some(at) = self.lead(addr, &mut dark.claims[index]) {
                    let whole = (0, self.blocks[at].usable_bytes, index);
                    self.parts.entry(at).or_default().push(whole);
                }
            }
            for &(addr, bytes) in &claim.ranges {
                let (stray, changed) = self.range(index, addr, bytes);
                let row = &mut dark.claims[index];
                row.stray_bytes = row.stray_bytes.saturating_add(stray);
                row.changed_bytes = row.changed_bytes.saturating_add(changed);
            }
        }
        self.count(dark);
    }

    /// Lays a range over the blocks. Returns its bytes that lie in no block, and those in blocks that came or went.
    fn range(&mut self, claim: usize, addr: u64, bytes: u64) -> (u64, u64) {
        let end = addr.saturating_add(bytes);
        let (mut stray, mut changed) = (end - addr, 0);
        let of_came = self
            .came
            .partition_point(|(start, bytes)| start + bytes <= addr);
        for (start, bytes) in self.came[of_came..].iter().take_while(|came| came.0 < end) {
            changed += end.min(start + bytes).saturating_sub(addr.max(*start));
        }
        let first = self
            .blocks
            .partition_point(|block| block.addr + block.usable_bytes <= addr);
        for at in first..self.blocks.len() {
            let block = self.blocks[at];
            if block.addr >= end {
                break;
            }
            let from = addr.max(block.addr) - block.addr;
            let to = end
                .min(block.addr + block.usable_bytes)
                .saturating_sub(block.addr);
            if to > from && block.went {
                changed += to - from;
            } else if to > from {
                stray = stray.saturating_sub(to - from);
                self.parts.entry(at).or_default().push((from, to, claim));
            }
        }
        (stray.saturating_sub(changed), changed)
    }

    fn count(&mut self, dark: &mut Dark) {
        let mut pairs: FxHashMap<(usize, usize), (u64, u64)> = FxHashMap::default();
        for (at, block) in self.blocks.iter().enumerate() {
            let Some(row) = dark.rows.get_mut(block.site as usize) else {
                continue;
            };
            if block.went {
                row.went_bytes += block.usable_bytes;
                dark.went_bytes += block.usable_bytes;
                continue;
            }
            let Some(parts) = self.parts.get_mut(&at) else {
                row.unreported_bytes += block.usable_bytes;
                row.unreported_blocks += 1;
                dark.dark_bytes += block.usable_bytes;
                continue;
            };
            let found = sweep(parts, block.usable_bytes);
            row.unreported_bytes += found.none;
            dark.dark_bytes += found.none;
            row.once_bytes += found.once;
            row.twice_bytes += found.twice;
            row.twice_blocks += u64::from(found.twice > 0);
            for (claim, bytes) in found.covered {
                dark.claims[claim].covered_bytes += bytes;
            }
            for (claim, bytes) in found.shared {
                dark.claims[claim].twice_bytes += bytes;
            }
            for (pair, bytes) in found.pairs {
                let sum = pairs.entry(pair).or_default();
                *sum = (sum.0 + bytes, sum.1 + 1);
            }
        }
        let path = |claim: usize| self.heap.claims[claim].path.clone();
        let twice = pairs
            .into_iter()
            .map(|((first, second), (bytes, blocks))| Twice {
                first: path(first),
                second: path(second),
                bytes,
                blocks,
            });
        dark.twice = twice.collect();
        dark.twice.sort_by(|a, b| {
            let names = |one: &Twice| (one.first.clone(), one.second.clone());
            b.bytes.cmp(&a.bytes).then_with(|| names(a).cmp(&names(b)))
        });
    }
}

/// The claims on one block.
#[derive(Default)]
struct Swept {
    none: u64,
    once: u64,
    twice: u64,
    /// Claim and bytes; each claim once.
    covered: Vec<(usize, u64)>,
    /// Claim and the bytes that another part covers as well.
    shared: Vec<(usize, u64)>,
    /// The first two claims on a byte, and the bytes.
    pairs: Vec<((usize, usize), u64)>,
}

fn add<K: PartialEq>(list: &mut Vec<(K, u64)>, key: K, bytes: u64) {
    match list.iter_mut().find(|(known, _)| *known == key) {
        Some((_, sum)) => *sum += bytes,
        None => list.push((key, bytes)),
    }
}

/// Goes over a block from one edge of a part to the next.
fn sweep(parts: &mut [(u64, u64, usize)], bytes: u64) -> Swept {
    parts.sort_unstable();
    let mut edges: Vec<u64> = parts.iter().flat_map(|part| [part.0, part.1]).collect();
    edges.extend([0, bytes]);
    edges.sort_unstable();
    edges.dedup();
    let mut swept = Swept::default();
    for edge in edges.windows(2) {
        let (from, to) = (edge[0], edge[1]);
        let over = parts.iter().filter(|part| part.0 <= from && part.1 >= to);
        let claims: Vec<usize> = over.map(|part| part.2).collect();
        let len = to - from;
        match claims.as_slice() {
            [] => swept.none += len,
            [claim] => {
                swept.once += len;
                add(&mut swept.covered, *claim, len);
            }
            [first, second, ..] => {
                swept.twice += len;
                add(
                    &mut swept.pairs,
                    (*first.min(second), *first.max(second)),
                    len,
                );
                let mut each = claims.clone();
                each.sort_unstable();
                each.dedup();
                for claim in each {
                    add(&mut swept.covered, claim, len);
                    add(&mut swept.shared, claim, len);
                }
            }
        }
    }
    swept
}

/// Computes the figures of the mode of totals (D2).
fn totals(report: &Report, dark: &mut Dark) {
    dark.dark_bytes = dark.live_bytes.saturating_sub(dark.claimed_bytes);
    dark.overclaimed_bytes = dark.claimed_bytes.saturating_sub(dark.live_bytes);
    for row in &mut dark.rows {
        row.surely_dark_bytes = row.live_bytes.saturating_sub(dark.claimed_bytes);
    }
    // Claims by amount; each is an explanation once.
    let mut free: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
    for (index, claim) in dark.claims.iter().enumerate().rev() {
        if claim.amount_bytes > 0 {
            free.entry(claim.amount_bytes).or_default().push(index);
        }
    }
    let mut explain = |amounts: [u64; 2]| {
        let mut found = amounts
            .into_iter()
            .filter_map(|bytes| free.get_mut(&bytes)?.pop());
        found.next()
    };
    let mut order: Vec<usize> = (0..dark.rows.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(dark.rows[index].live_bytes), index));
    let requested = |index: usize| report.sites[index].live_requested_bytes;
    for &index in &order {
        if let Some(claim) = explain([dark.rows[index].live_bytes, requested(index)]) {
            dark.rows[index].explained_by = Some(dark.claims[claim].path.clone());
        }
    }
    // The remaining stacks, grouped by function.
    let mut functions: Vec<(&str, [u64; 2], Vec<usize>)> = Vec::new();
    let mut known: FxHashMap<&str, usize> = FxHashMap::default();
    for &index in &order {
        let row = &dark.rows[index];
        if row.explained_by.is_some() || row.live_blocks == 0 {
            continue;
        }
        let frames = telling(report, row.node);
        let function = frames.first().map_or(NO_STACK, |frame| name(frame));
        let at = *known.entry(function).or_insert(functions.len());
        if at == functions.len() {
            functions.push((function, [0, 0], Vec::new()));
        }
        functions[at].1[0] += row.live_bytes;
        functions[at].1[1] += requested(index);
        functions[at].2.push(index);
    }
    for (_, amounts, rows) in functions.into_iter().filter(|one| one.2.len() > 1) {
        if let Some(claim) = explain(amounts) {
            for index in rows {
                dark.rows[index].explained_by = Some(dark.claims[claim].path.clone());
            }
        }
    }
}

fn doubts(dark: &mut Dark) {
    if let Some(said) = dark.said_allocated_bytes
        && said.abs_diff(dark.live_bytes) > dark.live_bytes / 10
    {
        dark.doubts.push(format!(
            "the memory report says heap-allocated {said} bytes, and the trace {} bytes at {}: is it the same \
             process, and the same moment (--at)?",
            dark.live_bytes, dark.at
        ));
    }
    if dark.claims.is_empty() {
        dark.doubts.push(
            "the memory report claims nothing of the heap: no entry below explicit/ of kind 1"
                .into(),
        );
    }
    if dark.unused_claim_bytes > 0 {
        dark.doubts.push(format!(
            "{} bytes are of claims without addresses, which count as unreported here",
            dark.unused_claim_bytes
        ));
    }
}

#[cfg(test)]
#[path = "dark_tests.rs"]
mod tests;
