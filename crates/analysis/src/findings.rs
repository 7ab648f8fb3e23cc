//! The ledger's own findings: free memory that the allocator keeps, large holders, growth between
//! marks, blocks at exit, memory asked for and never touched.
//!
//! ```text
//!   books ──► Retained, Untouched      sites ──► Holder, Leak (at exit)      marks ──► Leak (growth)
//! ```
//!
//! D1  At most `Limits::findings_per_kind` of a kind; what is left out is counted in the last one.
//! D2  A saving is never more than what is held now; where nothing shows that memory can be given
//!     back (a holder, blocks at exit), the saving is 0.
//! D3  Blocks that live when a program exits are not called a leak.
//!
//! Not here: what needs acts (the passes).

use rustc_hash::FxHashMap;
use skinflint_trace::Exit;

use crate::analyzer::MarkLevel;
use crate::books::Untouched;
use crate::facts::{Facts, INHERITED, Limits};
use crate::ledger::Ledger;
use crate::model::{BookRow, Confidence, Finding, FindingKind, Report, Site};

/// Below this a finding is not worth a line.
const WORTH_BYTES: u64 = 64 << 10;
/// Further stacks that a finding lists.
const MORE_NODES: usize = 16;

/// What the findings are drawn from, beside the report.
pub(crate) struct Evidence<'a> {
    pub facts: &'a Facts,
    pub limits: &'a Limits,
    pub ledger: &'a Ledger,
    pub mark_levels: &'a [MarkLevel],
    /// Of the books at the report's instant.
    pub untouched: &'a [Untouched],
}

/// Adds the ledger's findings and puts all findings in order.
pub(crate) fn add(report: &mut Report, evidence: &Evidence<'_>) {
    let mut all = Vec::new();
    all.extend(retained(report, evidence.facts));
    all.extend(bounded(holders(report), evidence.limits));
    all.extend(bounded(
        growth_between_marks(report, evidence),
        evidence.limits,
    ));
    all.extend(at_exit(report, evidence.facts));
    all.extend(bounded(untouched(report, evidence), evidence.limits));
    report.findings.extend(all);
    report.findings.sort_by_key(|finding| {
        std::cmp::Reverse((
            finding.saved_bytes,
            finding.saved_cumulative_bytes,
            finding.saved_allocations,
            finding.now_bytes,
        ))
    });
}

/// Keeps the first findings; the last one kept says how many more there are (D1).
fn bounded(mut findings: Vec<Finding>, limits: &Limits) -> Vec<Finding> {
    let limit = limits.findings_per_kind.max(1);
    if findings.len() > limit {
        let rest = findings.split_off(limit);
        let bytes: u64 = rest.iter().map(|finding| finding.now_bytes).sum();
        let last = &mut findings[limit - 1];
        last.what.push_str(&format!(
            " And {} more of this kind, with {} together.",
            rest.len(),
            size(bytes)
        ));
        let nodes = rest.iter().filter_map(|finding| finding.node);
        last.more_nodes.extend(nodes.take(MORE_NODES));
    }
    findings
}

fn retained(report: &Report, facts: &Facts) -> Option<Finding> {
    let with_books = |index: usize| {
        let instant = report.instants.get(index)?;
        Some((instant, instant.books.as_ref()?))
    };
    let (instant, books) = with_books(report.at)?;
    let row = |id: &str| books.rows.iter().find(|row| row.id == id);
    let free = row("allocator-free")?;
    // A twentieth of resident memory and a mebibyte: less is the working stock of any allocator.
    if free.bytes < (1 << 20) || free.bytes < books.resident_bytes / 20 {
        return None;
    }
    let heap: u64 = ["live", "slop", "allocator-free", "allocator-metadata"]
        .iter()
        .filter_map(|id| row(id))
        .map(|row| row.bytes)
        .sum();
    let mut what = format!(
        "At {} the allocator ({}) holds {} of resident memory that is in no live block: {:.0} % of \
         the {} resident in heap mappings.{}",
        instant.label,
        name_or(&facts.process.allocator, "unknown"),
        size(free.bytes),
        percent(free.bytes, heap),
        size(heap),
        named_parts(free),
    );
    if books.skew_ns > 10_000_000 {
        what.push_str(&format!(
            " Pages were read up to {:.0} ms away from the counts of live blocks.",
            books.skew_ns as f64 / 1e6
        ));
    }
    Some(Finding {
        kind: FindingKind::Retained,
        title: format!("{} free but kept by the allocator", size(free.bytes)),
        what,
        change: give_back_advice(&facts.process.allocator).into(),
        now_bytes: free.bytes,
        saved_bytes: free.bytes,
        confidence: Confidence::Likely,
        ..Finding::default()
    })
}

fn named_parts(row: &BookRow) -> String {
    let parts: Vec<String> = row
        .parts
        .iter()
        .take(3)
        .map(|part| format!("{} {}", size(part.bytes), part.name))
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" Where: {}.", parts.join(", "))
    }
}

/// What makes this allocator give memory back.
fn give_back_advice(allocator: &str) -> &'static str {
    if allocator.starts_with("glibc") {
        "Call malloc_trim(0) after large releases or when idle: it gives back every wholly free \
         page, inside the heap too. With many threads, limit the arenas: MALLOC_ARENA_MAX=2 or \
         mallopt(M_ARENA_MAX, 2). A fixed M_MMAP_THRESHOLD lets large blocks go back as they are \
         freed. Otherwise run the program on an allocator that purges by itself. The figure is an \
         upper bound: pages that also hold a live block stay."
    } else if allocator.contains("jemalloc") {
        "Lower the decay and let a thread purge: MALLOC_CONF=background_thread:true,\
         dirty_decay_ms:1000,muzzy_decay_ms:0, or fewer arenas (narenas:2). The figure is an upper \
         bound: pages that also hold a live block stay."
    } else if allocator.contains("mimalloc") {
        "Purge sooner: MIMALLOC_PURGE_DELAY=0, or call mi_collect(true) after large releases. The \
         figure is an upper bound: pages that also hold a live block stay."
    } else if allocator.contains("tcmalloc") {
        "Release more: TCMALLOC_RELEASE_RATE=10, or call MallocExtension ReleaseFreeMemory after \
         large releases. The figure is an upper bound: pages that also hold a live block stay."
    } else {
        "Use the allocator's own call or option to give free pages back, or run the program on an \
         allocator that purges by itself. The figure is an upper bound: pages that also hold a \
         live block stay."
    }
}

/// Stacks with a twentieth of the live heap or more.
fn holders(report: &Report) -> Vec<Finding> {
    let Some(instant) = report.instants.get(report.at) else {
        return Vec::new();
    };
    let total = instant.live_usable_bytes;
    let mut large: Vec<&Site> = report
        .sites
        .iter()
        .filter(|site| {
            site.live_usable_bytes >= WORTH_BYTES && site.live_usable_bytes >= total / 20
        })
        .collect();
    large.sort_by_key(|site| std::cmp::Reverse(site.live_usable_bytes));
    large
        .into_iter()
        .map(|site| Finding {
            kind: FindingKind::Holder,
            title: format!(
                "{} in {} live blocks from one stack",
                size(site.live_usable_bytes),
                site.live_blocks
            ),
            what: format!(
                "At {} this stack holds {:.0} % of the {} of live heap, {} a block on average.",
                instant.label,
                percent(site.live_usable_bytes, total),
                size(total),
                size(site.live_usable_bytes / site.live_blocks.max(1)),
            ),
            change: "Not waste by itself: look here first if the program should hold less.".into(),
            now_bytes: site.live_usable_bytes,
            blocks: site.live_blocks,
            confidence: Confidence::Certain,
            node: Some(site.node),
            ..Finding::default()
        })
        .collect()
}

/// Stacks that held more at every mark of a series than at the one before.
fn growth_between_marks(report: &Report, evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(series) = longest_series(evidence) else {
        return Vec::new();
    };
    let ages = ages(evidence.ledger, report.program.duration_ns);
    let sites = evidence.ledger.cells().sites();
    let end: FxHashMap<u32, &Site> = report.sites.iter().map(|site| (site.node, site)).collect();
    // Two marks show a difference, not a trend; of longer series the first step may be start-up.
    let start = if series.len() > 3 { 1 } else { 0 };
    let steps = &series[start..];
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Vec::new();
    };
    let said = |node: u32| {
        let same = |kind| matches!(kind, FindingKind::Leak | FindingKind::Zombie);
        report
            .findings
            .iter()
            .any(|finding| same(finding.kind) && finding.node == Some(node))
    };
    let mut found = Vec::new();
    for (index, site) in sites.iter().enumerate() {
        let at = |level: &MarkLevel| level.usable_bytes.get(index).copied().unwrap_or(0);
        let rises = steps.windows(2).all(|pair| at(pair[1]) > at(pair[0]));
        let grown = at(last).saturating_sub(at(first));
        // What the pass over phases has said of a stack is more exact.
        if !rises || grown < WORTH_BYTES || site.node == INHERITED || said(site.node.0) {
            continue;
        }
        let Some(row) = end.get(&site.node.0) else {
            continue;
        };
        let intervals = steps.len() as u64 - 1;
        let mark = |level: &MarkLevel| &evidence.facts.marks[level.mark];
        let age = ages.get(index).copied().flatten();
        found.push(Finding {
            kind: FindingKind::Leak,
            title: format!(
                "{} more at each mark from one stack",
                size(grown / intervals)
            ),
            what: format!(
                "From mark \"{}\" ({:.3} s) to \"{}\" ({:.3} s) the live bytes of this stack rose \
                 in each of {intervals} steps, from {} to {}.{}",
                mark(first).name,
                mark(first).time_ns as f64 / 1e9,
                mark(last).name,
                mark(last).time_ns as f64 / 1e9,
                size(at(first)),
                size(at(last)),
                age.map(|seconds| format!(
                    " Its blocks at the end are {seconds:.1} s old on average."
                ))
                .unwrap_or_default(),
            ),
            change: "Find what keeps these blocks: release them when their phase ends, or give \
                     the container that holds them a limit."
                .into(),
            now_bytes: row.live_usable_bytes,
            saved_bytes: grown.min(row.live_usable_bytes),
            blocks: row.live_blocks,
            confidence: if intervals >= 2 {
                Confidence::Likely
            } else {
                Confidence::Possible
            },
            node: Some(site.node.0),
            ..Finding::default()
        });
    }
    found.sort_by_key(|finding| std::cmp::Reverse((finding.saved_bytes, finding.now_bytes)));
    found
}

/// The marks to compare: those of the most frequent name, or all if no name comes twice.
fn longest_series<'a>(evidence: &Evidence<'a>) -> Option<Vec<&'a MarkLevel>> {
    let name = |level: &MarkLevel| evidence.facts.marks[level.mark].name.as_str();
    let mut times: FxHashMap<&str, usize> = FxHashMap::default();
    for level in evidence.mark_levels {
        *times.entry(name(level)).or_default() += 1;
    }
    let most = times.values().copied().max()?;
    // The first mark that bears a most frequent name decides between equals.
    let first = evidence
        .mark_levels
        .iter()
        .find(|level| times[name(level)] == most)?;
    let wanted = name(first);
    let series: Vec<_> = evidence
        .mark_levels
        .iter()
        .filter(|level| most == 1 || name(level) == wanted)
        .collect();
    (series.len() >= 2).then_some(series)
}

/// Mean age in seconds of the blocks that live at the end, by site.
fn ages(ledger: &Ledger, end_ns: u64) -> Vec<Option<f64>> {
    let mut sums = vec![(0u64, 0u64); ledger.cells().sites().len()];
    for block in ledger.live_blocks() {
        let site = ledger.cells().site_of(block.cell);
        sums[site].0 += (end_ns / 1000).saturating_sub(u64::from(block.born_us));
        sums[site].1 += 1;
    }
    sums.into_iter()
        .map(|(us, blocks)| (blocks > 0).then(|| us as f64 / blocks as f64 / 1e6))
        .collect()
}

/// What lived when the program exited by itself (D3).
fn at_exit(report: &Report, facts: &Facts) -> Option<Finding> {
    if !matches!(facts.ending.as_ref()?.exit, Exit::Exited(_)) {
        return None;
    }
    let own = || report.sites.iter().filter(|site| site.node != INHERITED.0);
    let blocks: u64 = own().map(|site| site.end_blocks).sum();
    let bytes: u64 = own().map(|site| site.end_usable_bytes).sum();
    if bytes < WORTH_BYTES {
        return None;
    }
    let mut held: Vec<&Site> = own().filter(|site| site.end_blocks > 0).collect();
    held.sort_by_key(|site| std::cmp::Reverse(site.end_usable_bytes));
    let stacks = held.len();
    let top = &held[..stacks.min(3)];
    let top_bytes: u64 = top.iter().map(|site| site.end_usable_bytes).sum();
    // At the report's instant a stack may have held other blocks than at the end: an upper bound.
    let now_bytes = own()
        .map(|site| site.live_usable_bytes.min(site.end_usable_bytes))
        .sum();
    Some(Finding {
        kind: FindingKind::Leak,
        title: format!("{} in {blocks} blocks still live at exit", size(bytes)),
        what: format!(
            "The program exited without releasing them; they come from {stacks} stacks, {:.0} % \
             from the largest {}. That is not a leak by itself: many programs leave the clearing \
             up to the kernel.",
            percent(top_bytes, bytes),
            top.len(),
        ),
        change: "Nothing, unless one of these stacks should have been done earlier. To tell a \
                 leak, mark the program's phases (skinflint_mark) and see what grows from mark to \
                 mark."
            .into(),
        now_bytes,
        blocks,
        confidence: Confidence::Possible,
        node: held.first().map(|site| site.node),
        more_nodes: held
            .iter()
            .skip(1)
            .take(MORE_NODES)
            .map(|site| site.node)
            .collect(),
        ..Finding::default()
    })
}

/// Large blocks of which most was never touched, or is swapped out.
fn untouched(report: &Report, evidence: &Evidence<'_>) -> Vec<Finding> {
    let label = report
        .instants
        .get(report.at)
        .map_or("", |instant| instant.label.as_str());
    // By absent bytes already, which is what makes one of these weighty.
    evidence
        .untouched
        .iter()
        .filter(|one| one.absent_bytes >= 1 << 20 && one.absent_bytes >= one.asked_bytes / 2)
        .map(|one| Finding {
            kind: FindingKind::Untouched,
            title: format!("{} asked for and not resident", size(one.absent_bytes)),
            what: format!(
                "At {label} this stack has {} large blocks of {} together, of which {} are on \
                 resident pages. The rest costs address space, and no memory yet.",
                one.blocks,
                size(one.asked_bytes),
                size(one.asked_bytes - one.absent_bytes),
            ),
            change: "Low priority: ask for what is used, if the size is a guess; beware of memset \
                     or a realloc that copies, which would make it resident."
                .into(),
            now_bytes: one.asked_bytes - one.absent_bytes,
            blocks: one.blocks,
            confidence: Confidence::Certain,
            node: Some(one.node.0),
            ..Finding::default()
        })
        .collect()
}

fn name_or<'a>(name: &'a str, other: &'a str) -> &'a str {
    if name.is_empty() { other } else { name }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Bytes for a sentence: three figures and a binary unit.
fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} bytes"),
        _ if value < 10.0 => format!("{value:.2} {}", units[unit]),
        _ if value < 100.0 => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}
