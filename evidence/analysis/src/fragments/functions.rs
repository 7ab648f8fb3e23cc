//! Fragments by function, once stacks have names; and what to change.
//!
//! ```text
//!   sites ──► functions      sole pages: of one stack alone, and those that only stacks of it share
//!   pages that functions share ──► the first k functions together: what would go back if all of them moved
//! ```
//!
//! P1  A function's shares are the sums over its stacks; its sole pages are counted anew, as a page that two of its
//!     stacks share is its own.
//! P2  A finding's saving is exact: pages that only the named functions' blocks pin, minus the pages that these
//!     blocks fill side by side. It is never more than their share of the free bytes.
//! P3  A finding of several functions together is made if no one of them alone would free half as much, or from those
//!     that free next to nothing alone; its members then have no finding of their own.
//! P4  Savings count from half a mebibyte and a fiftieth of resident memory on, and for blocks that fill at most half
//!     of the pages that they keep: a heap that blocks come to and go from at all times has holes, half as many as
//!     blocks (Knuth's fifty-percent rule), which is a third of it if they are as long as the blocks. What has no
//!     more than that is not held by a few survivors, and an arena for each request would gain nothing: the next
//!     request's blocks fill the holes.
//! P6  What one function keeps is certain if it is exact (P2), blocks and pages are of one moment, what the allocator then
//!     does is known (glibc's chunks, our pages, spans that addresses show), and the memory stays free afterwards: live
//!     memory had fallen by it, or as much is not asked for again, nor taken within a span of time
//!     (findings.D5, findings.D6). That blocks are moved, or made elsewhere, is a change that can always be made.
//! P5  Large blocks have no finding: with most allocators each begins on a page of its own, wherever it is put, and
//!     what is free beside it is less than a page.
//!
//! Not here: one stack by itself (`mod.rs`).

use rustc_hash::FxHashMap;

use super::measure::Kept;
use super::tally::{PAGE, Tally};
use crate::findings::{self, Around};
use crate::frames::Renamed;
use crate::model::{Confidence, Finding, FindingKind, Pins, Report};
use crate::passes::wording::{bytes as size, count, duration, percent};
use crate::plumbing::Naming;

/// The number of functions that the report lists.
const ROWS: usize = 100;
/// The number of functions of which it is known which pages they share: bits of a word, one of them for all others.
const DISTINGUISHED: usize = 63;
/// The most functions that one finding combines.
const TOGETHER: usize = 16;
/// The number of findings of single functions.
const SINGLE: usize = 8;
/// The least saving (P4).
const LEAST_BYTES: u64 = 512 << 10;
/// The average size from which blocks are large (P5): four pages, from which jemalloc gives blocks pages of their
/// own.
const LARGE_BYTES: u64 = 16 << 10;
/// All but one part in this many of what is certain stays free (P6).
const LASTING: u64 = 16;
/// The number of stacks that a finding lists.
const MORE_NODES: usize = 50;

/// A function with all of its stacks.
#[derive(Clone, Debug, Default)]
struct Group {
    tally: Tally,
    sites: Vec<u32>,
    /// The stack with the largest share.
    node: u32,
    largest: u64,
    name: String,
    /// Whether it is what a fork gave: no code of this process chose where it lies.
    inherited: bool,
}

/// Pages by the set of functions that pin them, if it is more than one (a bit each).
type Masks = FxHashMap<u64, u64>;

/// The data from which functions that pin free memory are found, and whether the program is about to give all of it
/// back.
#[derive(Clone, Copy)]
pub(crate) struct Pinned<'a> {
    pub kept: &'a Kept,
    pub renamed: &'a Renamed,
    pub in_exit: bool,
    pub around: Around,
}

/// Fills in the functions of the report's instant, and adds what to change.
pub(crate) fn add(report: &mut Report, naming: &Naming, pinned: &Pinned<'_>) -> Vec<Finding> {
    let (renamed, kept) = (pinned.renamed, pinned.kept);
    let (mut groups, group_of) = groups(report, naming, renamed, kept);
    let mut order: Vec<u32> = (0..groups.len() as u32).collect();
    order.sort_unstable_by_key(|&group| {
        let group = &groups[group as usize];
        (std::cmp::Reverse(group.tally.free_bytes), group.node)
    });
    let masks = share(&mut groups, &group_of, &order, kept);
    for &group in order.iter().take(DISTINGUISHED) {
        let group = &mut groups[group as usize];
        group.name = naming.function_name(report, group.node);
    }
    let ordered: Vec<&Group> = order.iter().map(|&group| &groups[group as usize]).collect();
    let allocator = report.program.allocator.as_str();
    let glibc = allocator.starts_with("glibc");
    let has_spans = kept.layout.is_some() && pinned.around.outlasts_decay;
    let is_known = glibc || has_spans || allocator.contains("skinflint");
    let instant = report.instants.get_mut(report.at);
    let Some((label, books, fragments)) = instant.and_then(|one| {
        let (label, books) = (one.label.clone(), one.books.as_ref()?);
        let free = one.fragments.as_ref()?.pinned_bytes;
        let lasting = findings::kept(free, one, pinned.around);
        Some((
            label,
            (books.resident_bytes, books.skew_ns, lasting),
            one.fragments.as_mut()?,
        ))
    }) else {
        return Vec::new();
    };
    let row = |group: &&Group| {
        let stacks = group.sites.len() as u64;
        let mut row = (group.tally).row(Some(group.node), stacks, fragments.resident_bytes);
        row.age = kept.ages.of_sites(&group.sites);
        row
    };
    let rows: Vec<Pins> = ordered.iter().take(ROWS).map(row).collect();
    let telling = Telling {
        label: &label,
        heap_bytes: fragments.resident_bytes,
        least: (books.0 / 50).max(LEAST_BYTES),
        late: books.1 > 10_000_000,
        exact: is_known && pinned.around.is_still(books.1),
        lasting_bytes: books.2,
        glibc,
        renamed,
        kept,
    };
    let mut found = telling.findings(&ordered, &rows, &masks);
    if kept.began_late {
        found.iter_mut().for_each(not_known);
    }
    fragments.functions = rows;
    found
}

/// Removes the promise from a finding if the recording does not have all of the process's life.
fn not_known(finding: &mut Finding) {
    finding.saved_bytes = 0;
    finding.confidence = Confidence::Possible;
    finding.what += " Nothing is promised: the recording does not have all of the process's life, and what looks \
                     free beside these blocks may be blocks that it does not know.";
}

/// Groups sites by the function that names them; also returns the group of each site.
fn groups(
    report: &Report,
    naming: &Naming,
    renamed: &Renamed,
    kept: &Kept,
) -> (Vec<Group>, Vec<u32>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: FxHashMap<Option<u32>, u32> = FxHashMap::default();
    let mut group_of = Vec::with_capacity(kept.sites.len());
    for (site, (node, tally)) in kept.sites.iter().enumerate() {
        if tally.live_bytes == 0 {
            // The site is on no page.
            group_of.push(u32::MAX);
            continue;
        }
        let inherited = renamed.is_inherited(*node);
        let node = renamed.of(*node);
        let function = naming.function_of(report, node);
        let index = *known.entry(function).or_insert_with(|| {
            groups.push(Group::default());
            groups.len() as u32 - 1
        });
        let group = &mut groups[index as usize];
        if group.sites.is_empty() || tally.free_bytes > group.largest {
            (group.node, group.largest) = (node, tally.free_bytes);
        }
        group.inherited |= inherited;
        group.tally.add(tally);
        group.sites.push(site as u32);
        group_of.push(index);
    }
    for group in &mut groups {
        let tally = &mut group.tally;
        // Pages are counted anew (P1); for spans it is not known which ones stacks share.
        tally.joint_pages = 0;
        (tally.sole_spans, tally.joint_spans) = (0, 0);
    }
    (groups, group_of)
}

/// Gives pages of several stacks to their functions (P1), and records those of several functions.
fn share(groups: &mut [Group], group_of: &[u32], order: &[u32], kept: &Kept) -> Masks {
    let mut bits = vec![1u64 << DISTINGUISHED; groups.len()];
    for (bit, &group) in order.iter().take(DISTINGUISHED).enumerate() {
        bits[group as usize] = 1 << bit;
    }
    let mut masks = Masks::default();
    let mut on_page: Vec<u32> = Vec::new();
    let mut words = kept.shared.iter();
    while let (Some(&free), Some(&pages), Some(&many)) = (words.next(), words.next(), words.next())
    {
        let pages = u64::from(pages);
        on_page.clear();
        for &site in words.by_ref().take(many as usize) {
            let group = group_of[site as usize];
            if !on_page.contains(&group) {
                on_page.push(group);
            }
        }
        if let [group] = on_page[..] {
            let tally = &mut groups[group as usize].tally;
            tally.sole_pages += pages;
            tally.sole_free_bytes += u64::from(free);
            continue;
        }
        let mut mask = 0;
        for &group in &on_page {
            groups[group as usize].tally.joint_pages += pages;
            mask |= bits[group as usize];
        }
        *masks.entry(mask).or_default() += pages;
    }
    masks
}

/// Returns the pages that these functions free together (P2); members are places in the order.
fn freed_together(ordered: &[&Group], masks: &Masks, members: &[usize]) -> u64 {
    let mut tally = Tally::default();
    let mut among = 0u64;
    for &member in members {
        tally.add(&ordered[member].tally);
        among |= 1 << member;
    }
    let shared = masks.iter().filter(|(mask, _)| *mask & !among == 0);
    tally.sole_pages += shared.map(|(_, pages)| pages).sum::<u64>();
    tally.freed_pages()
}

/// The data with which findings are worded.
struct Telling<'a> {
    label: &'a str,
    heap_bytes: u64,
    least: u64,
    /// Whether pages were read at another moment than blocks.
    late: bool,
    /// Whether what goes back is known to the page, and how many free bytes stay unused (P6).
    exact: bool,
    lasting_bytes: u64,
    /// Whether free pages go back only when asked for.
    glibc: bool,
    renamed: &'a Renamed,
    kept: &'a Kept,
}

impl Telling<'_> {
    fn findings(&self, ordered: &[&Group], rows: &[Pins], masks: &Masks) -> Vec<Finding> {
        let large =
            |row: &Pins| row.live_bytes >= LARGE_BYTES.saturating_mul(row.live_blocks.max(1));
        let all =
            (0..rows.len()).filter(|&index| !ordered[index].inherited && !large(&rows[index]));
        let all: Vec<usize> = all.collect();
        let (mut alone, others): (Vec<usize>, Vec<usize>) = (all.iter())
            .partition(|&&index| self.pays(rows[index].freed_pages, rows[index].packed_pages));
        let best_alone = alone.iter().map(|&index| rows[index].freed_pages).max();
        let mut found = Vec::new();
        match self.together_of(&all, ordered, masks) {
            Some((members, pages)) if best_alone.unwrap_or(0) < pages.div_ceil(2) => {
                alone.retain(|index| !members.contains(index));
                found.push(self.together(&members, ordered, pages));
            }
            _ => {
                let rest = self.together_of(&others, ordered, masks);
                found.extend(rest.map(|(members, pages)| self.together(&members, ordered, pages)));
            }
        }
        for index in alone.into_iter().take(SINGLE) {
            found.push(self.single(ordered[index], &rows[index]));
        }
        found
    }

    /// Returns the fewest of these functions, from the first on, that free most of what all could free together; none
    /// if that is little, or one does it alone.
    fn together_of(
        &self,
        among: &[usize],
        ordered: &[&Group],
        masks: &Masks,
    ) -> Option<(Vec<usize>, u64)> {
        let among = among.iter().copied().filter(|index| *index < DISTINGUISHED);
        let among: Vec<usize> = among.take(TOGETHER).collect();
        let freed = |many| freed_together(ordered, masks, &among[..many]);
        let freed: Vec<u64> = (0..=among.len()).map(freed).collect();
        let best = freed.iter().copied().max()?;
        let many = freed.iter().position(|pages| *pages >= best - best / 5)?;
        let live = among[..many].iter();
        let live: u64 = live.map(|&index| ordered[index].tally.live_bytes).sum();
        // A single one has already been considered.
        let worth = self.pays(freed[many], live.div_ceil(PAGE));
        worth.then(|| (among[..many].to_vec(), freed[many]))
    }

    /// Reports whether it pays to move blocks that would free this many pages and fill that many (P4).
    fn pays(&self, freed_pages: u64, packed_pages: u64) -> bool {
        freed_pages * PAGE >= self.least && freed_pages >= packed_pages
    }

    fn more_nodes(&self, groups: &[&Group], but: u32) -> Vec<u32> {
        let mut sites: Vec<u32> = groups
            .iter()
            .flat_map(|group| &group.sites)
            .copied()
            .collect();
        sites.sort_unstable_by_key(|&site| {
            let (node, tally) = &self.kept.sites[site as usize];
            (std::cmp::Reverse(tally.free_bytes), *node)
        });
        let nodes = sites.iter().map(|&site| self.kept.sites[site as usize].0);
        let nodes = nodes.map(|node| self.renamed.of(node));
        nodes.filter(|node| *node != but).take(MORE_NODES).collect()
    }

    /// Makes a finding on the blocks of one function.
    fn single(&self, group: &Group, row: &Pins) -> Finding {
        let saved = row.freed_pages * PAGE;
        let mut what = format!(
            "At {}, {} of this function ({} in them) lie on pages that are otherwise free: {} that hold \
             nothing else, and {} with others' blocks. Their share of the free bytes there, which are \
             divided equally among the blocks of a page, is {}. No call gives it back while they live.",
            self.label,
            count(row.blocks, "block"),
            size(row.block_bytes),
            count(row.sole_pages, "page"),
            count(row.joint_pages, "page"),
            size(row.free_bytes),
        );
        if let Some(age) = row.age {
            what += &format!(
                " Half of them are older than {}, in which time the program acquired {}; the oldest is {} old.",
                duration(age.median_ns),
                count(age.median_acquisitions, "block"),
                duration(age.oldest_ns),
            );
        }
        what += &format!(
            " All {} of this function that live would fill {}; elsewhere, they would leave the heap at {} \
             instead of {}.",
            count(row.live_blocks, "block"),
            count(row.packed_pages, "page"),
            size(row.resident_elsewhere_bytes),
            size(self.heap_bytes),
        );
        Finding {
            kind: FindingKind::Pinned,
            title: format!(
                "{} of about {} keep {} of free memory resident",
                count(row.blocks, "block"),
                size(row.live_bytes / row.live_blocks.max(1)),
                size(row.free_bytes),
            ),
            change: self.change(&group.tally),
            what,
            now_bytes: row.free_bytes,
            saved_bytes: saved.min(row.free_bytes),
            blocks: row.blocks,
            confidence: match self.exact && saved - saved / LASTING <= self.lasting_bytes {
                true => Confidence::Certain,
                false => self.confidence(),
            },
            node: Some(group.node),
            more_nodes: self.more_nodes(&[group], group.node),
            stacks: row.stacks,
            ..Finding::default()
        }
    }

    /// Makes a finding on the blocks of several functions that share their pages.
    fn together(&self, members: &[usize], ordered: &[&Group], pages: u64) -> Finding {
        let groups: Vec<&Group> = members.iter().map(|&member| ordered[member]).collect();
        let groups = &groups[..];
        let mut sum = Tally::default();
        groups.iter().for_each(|group| sum.add(&group.tally));
        let node = groups[0].node;
        let what = format!(
            "At {}, {} of {} ({} in them) share pages that are otherwise free; their share of the \
             free bytes there is {}. Moved together they would fill {} and leave {} without a live byte; \
             no one of them alone would free half as much. {} of the {} that these functions acquired live.",
            self.label,
            count(sum.blocks, "block"),
            named(groups),
            size(sum.block_bytes),
            size(sum.free_bytes),
            count(sum.live_bytes.div_ceil(PAGE), "page"),
            count(pages, "page"),
            count(sum.live_blocks, "block"),
            count(sum.acquired, "block"),
        );
        let saved = pages * PAGE;
        Finding {
            kind: FindingKind::Pinned,
            title: format!(
                "{} of {} functions together keep {} of free memory resident",
                count(sum.blocks, "block"),
                groups.len(),
                size(sum.free_bytes),
            ),
            what,
            change: self.change(&sum),
            now_bytes: sum.free_bytes,
            saved_bytes: saved.min(sum.free_bytes),
            blocks: sum.blocks,
            confidence: self.confidence(),
            node: Some(node),
            more_nodes: self.more_nodes(groups, node),
            stacks: groups.iter().map(|group| group.sites.len() as u64).sum(),
            ..Finding::default()
        }
    }

    /// Describes what to do, and what this allocator then needs.
    fn change(&self, tally: &Tally) -> String {
        let then = match self.glibc {
            true => {
                " Then call malloc_trim(0): by itself glibc gives back nothing that lies between blocks."
            }
            false => "",
        };
        format!("{}{then}", change(tally))
    }

    /// Returns the confidence: the bytes are counted; whether the blocks can be put elsewhere is for the reader to
    /// judge.
    fn confidence(&self) -> Confidence {
        match self.late {
            true => Confidence::Possible,
            false => Confidence::Likely,
        }
    }
}

/// Returns the first names of several functions, in a sentence.
fn named(groups: &[&Group]) -> String {
    const NAMED: usize = 4;
    let names = groups.iter().map(|group| group.name.as_str());
    let mut names: Vec<String> = names.take(NAMED).map(str::to_owned).collect();
    match groups.len().checked_sub(NAMED) {
        Some(0) | None => {}
        Some(more) => names.push(count(more as u64, "other function")),
    }
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Describes what brings survivors together: it depends on whether what died came from the same place.
fn change(tally: &Tally) -> &'static str {
    match percent(tally.live_blocks, tally.acquired) {
        0..=50 => {
            "Survivors and short-lived blocks come from the same place: give each request (or phase) an \
             arena and copy out what outlives it. Or copy the survivors together once the others have \
             gone. An allocator that meshes pages gets part of it without a change."
        }
        _ => {
            "These blocks outlive what lay around them: allocate them from an arena or pool of their own, \
             in one array, or before the short-lived ones."
        }
    }
}
