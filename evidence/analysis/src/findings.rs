//! The ledger's own findings: free memory that the allocator keeps, growth between marks, blocks at
//! exit, memory asked for and never touched.
//!
//! ```text
//!   books, giveback ──► Retained, Untouched      sites ──► Leak (at exit)      marks ──► Leak (growth)
//! ```
//!
//! D1  Of free memory only what would really go back counts as saved: whole pages by the allocator's own call. What
//!     blocks pin goes back only if they move: `fragments/functions.rs`.
//! D2  A saving is never more than what is held now; if nothing shows that memory can be given back (a holder, blocks
//!     at exit), the saving is 0.
//! D3  Blocks that live when a program exits are not called a leak.
//! D4  Free memory is free as far as the recording goes: if blocks may live that no event reported (missing.M2),
//!     nothing is promised. For a process that was not recorded from its birth, only pages that are known from end to
//!     end (`covered.rs`) count as saved.
//! D5  Of free pages, as much counts as saved as live memory had fallen, or as is not requested again later if that
//!     is more: the pages of a heap that goes on growing are its own next ones.
//! D6  What is taken again, or has gone, a span of time later does not count (`steady.rs`), nor what an exit frees, nor
//!     less than a tenth of resident memory: that is the working stock of a program between two rounds. If nothing is
//!     left of a saving, the finding stays and gives the reason.
//! D7  What a stack holds more at one mark than at another is promised only if marks of one name come again and
//!     again: marks of different names are stages of a program, which may need more each, and one step is no trend.
//!
//! Not here: what needs acts (the passes), stacks that only grow (`grows.rs`), large holders and ranking
//! (`grouping.rs`).

use rustc_hash::{FxHashMap, FxHashSet};
use skinflint_trace::Exit;

use crate::block::INHERITED;
use crate::books::{Closed, HEAP_ROWS, Untouched};
use crate::facts::Facts;
use crate::giveback::GiveBack;
use crate::grows::{self, Births};
use crate::ledger::Ledger;
use crate::missing::Missing;
use crate::model::{Claim, Confidence, Finding, FindingKind, Instant, InstantKind, Report, Site};
use crate::pass::{CellBlocks, CellId};
use crate::passes::wording::{bytes as size, count, duration};
use crate::remedies::{ARENA_ENDS, FEWER_ARENAS, JEMALLOC_ADVICE, give_back};
use crate::steady::Then;
use crate::waste::Wasteful;

/// The bytes below which a finding is not worth a line.
const WORTH_BYTES: u64 = 64 << 10;
/// The number of further stacks that a finding lists.
const MORE_NODES: usize = 16;
/// The part of resident memory from which free pages are more than a working stock (D6).
const STOCK: u64 = 10;

/// Live usable bytes, by site, at a mark.
pub(crate) struct MarkLevel {
    pub mark: usize,
    pub usable_bytes: Vec<u64>,
}

/// The data that findings are drawn from, beside the report.
pub(crate) struct Evidence<'a> {
    pub facts: &'a Facts,
    pub ledger: &'a Ledger,
    /// Blocks by cell, as the passes got them.
    pub blocks: &'a [CellBlocks],
    pub mark_levels: &'a [MarkLevel],
    /// Births of what lives at the report's instant.
    pub births: Option<&'a Births>,
    /// What was found with the books at the report's instant, if there are any.
    pub closed: Option<&'a Closed>,
    /// The moment at which most is kept, if it is another one and not in the exit.
    pub wasteful: Option<(&'a Wasteful, Around)>,
    /// The missing thing because of which free memory may be in use.
    pub doubt: Option<&'a Missing>,
    /// The run on both sides of the report's instant.
    pub around: Around,
}

/// The run before a moment and after it.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    /// The largest live heap before it, usable bytes.
    pub highest_bytes: u64,
    /// Bytes requested after it.
    pub asked_later_bytes: u64,
    /// What becomes of its free memory within a span.
    pub then: Then,
    /// The span.
    pub span_ns: u64,
    /// The most live memory that has gone where the program is steady afterwards.
    pub gone_when_steady_bytes: u64,
    /// The time from it to the end of the run.
    pub rest_ns: u64,
    /// Whether the run goes on for the time after which the allocator gives free pages back by itself (steady.E6).
    pub outlasts_decay: bool,
    /// Whether the moment lies in the program's exit: what is free then goes anyway.
    pub in_exit: bool,
}

impl Around {
    /// Reports whether pages are those of the moment though they were read as long beside it: the program ran on for that
    /// time, and nothing was taken or given back meanwhile, nor for a span.
    pub(crate) fn is_still(&self, skew_ns: u64) -> bool {
        let then = self.then;
        skew_ns == 0
            || skew_ns <= self.span_ns.min(self.rest_ns)
                && then.taken_bytes == 0
                && then.gone_bytes == 0
    }
}

/// Adds the ledger's findings.
pub(crate) fn add(report: &mut Report, evidence: &Evidence<'_>) {
    let mut all = Vec::new();
    // Without a single known block nothing distinguishes free memory from another allocator's blocks.
    let ledger = evidence.ledger;
    let knows_blocks = ledger.counts().allocations > 0 || ledger.live().blocks > 0;
    if let Some(closed) = evidence.closed {
        if let Some(instant) = report.instants.get(report.at).filter(|_| knows_blocks) {
            let (giveback, around) = (closed.giveback, evidence.around);
            all.extend(retained(instant, evidence.facts, giveback, around));
        }
        all.extend(untouched(report, &closed.untouched));
    }
    // What the allocator keeps after most was freed is more informative than what it keeps when it is fullest.
    let kept = |found: &[Finding]| {
        let of = found.iter().filter(|one| one.kind == FindingKind::Retained);
        of.map(|one| (one.saved_bytes, one.now_bytes))
            .max()
            .unwrap_or_default()
    };
    // A moment that was asked for is spoken of alone.
    let is_asked_for = report.instants.get(report.at).is_some_and(|own| {
        matches!(
            own.kind,
            InstantKind::Mark | InstantKind::Time | InstantKind::AfterFree | InstantKind::MostKept
        )
    });
    if let Some((most, around)) = evidence.wasteful.filter(|_| knows_blocks && !is_asked_for) {
        let around = seen_later(report, evidence, most, around);
        let then = retained(&most.instant, evidence.facts, most.giveback, around);
        if kept(&then) > kept(&all) {
            all.retain(|one| one.kind != FindingKind::Retained);
            all.extend(then);
        }
    }
    if let Some(doubt) = evidence.doubt {
        let retained = all
            .iter_mut()
            .filter(|one| one.kind == FindingKind::Retained);
        retained.for_each(|one| doubtful(one, doubt));
    }
    all.extend(growth_between_marks(report, evidence));
    let marked: FxHashSet<u32> = all
        .iter()
        .chain(&report.findings)
        .filter(|one| matches!(one.kind, FindingKind::Leak | FindingKind::Zombie))
        .filter_map(|one| one.node)
        .collect();
    all.extend(grows::only_grow(
        report,
        evidence.ledger,
        (evidence.births, evidence.around.gone_when_steady_bytes),
        evidence.facts.ending.as_ref().map(|ending| ending.time_ns),
        &marked,
    ));
    all.extend(at_exit(report, evidence.facts));
    report.findings.extend(all);
}

/// Returns what is known of a moment's free memory by a later look (D6): at the report's own moment, if no more lives
/// there, whatever is no longer free has gone.
fn seen_later(
    report: &Report,
    evidence: &Evidence<'_>,
    most: &Wasteful,
    mut around: Around,
) -> Around {
    let look = |instant: &Instant, giveback: GiveBack| Look {
        time_ns: instant.time_ns,
        live_bytes: instant.live_usable_bytes,
        whole_bytes: giveback.whole_bytes,
        tops: (giveback.tops_known, giveback.tops_bytes),
    };
    if let (Some(own), Some(closed)) = (report.instants.get(report.at), evidence.closed) {
        let then = look(&most.instant, most.giveback);
        let gone = then.gone_by(look(own, closed.giveback));
        around.then.gone_bytes = around.then.gone_bytes.max(gone);
    }
    around
}

/// The figures of a look at all pages of a moment.
#[derive(Clone, Copy)]
struct Look {
    time_ns: u64,
    live_bytes: u64,
    /// Bytes on pages without a live byte, less those of topmost chunks.
    whole_bytes: u64,
    /// Whether topmost chunks are known, and their bytes.
    tops: (bool, u64),
}

impl Look {
    /// Returns the free pages that have gone by another look: 0, if that comes before this one, or if more lives
    /// then.
    fn gone_by(self, later: Look) -> u64 {
        if later.time_ns <= self.time_ns || later.live_bytes > self.live_bytes {
            return 0;
        }
        // Only what was divided in one way can be compared.
        let all = |look: Look| match self.tops.0 == later.tops.0 {
            true => look.whole_bytes,
            false => look.whole_bytes + look.tops.1,
        };
        all(self).saturating_sub(all(later))
    }
}

/// Removes the promise from a finding on free memory that may be in use (D4).
fn doubtful(finding: &mut Finding, doubt: &Missing) {
    finding.confidence = Confidence::Possible;
    finding.saved_bytes = 0;
    finding.what +=
        &format!(" Some of it may be in use, as the recording is not complete. {doubt}");
}

/// Returns findings on free memory that the allocator keeps, by what would bring it back.
fn retained(instant: &Instant, facts: &Facts, giveback: GiveBack, around: Around) -> Vec<Finding> {
    let Some(books) = &instant.books else {
        return Vec::new();
    };
    let row = |id: &str| books.rows.iter().find(|row| row.id == id);
    let free = row("allocator-free").map_or(0, |row| row.bytes);
    // The bound is a fiftieth of resident memory and half a mebibyte: less is the working stock of any allocator.
    let least = (books.resident_bytes / 50).max(512 << 10);
    if free < least {
        return Vec::new();
    }
    let giveback = giveback.within(free);
    let pinned = instant.fragments.as_ref().map_or(0, |all| all.pinned_bytes);
    let pinned = pinned.min(free - giveback.whole_bytes - giveback.tops_bytes);
    let allocator = facts.process.allocator.as_str();
    let heap: u64 = HEAP_ROWS
        .iter()
        .filter_map(|id| row(id))
        .map(|row| row.bytes)
        .sum();
    let mut what = format!(
        "At {} ({:.3} s) the allocator ({}) holds {} of resident memory that is in no live block, {:.0} % of \
         the {} resident in heap mappings: {} on pages without a live byte, {} on pages that also \
         hold live blocks",
        instant.label,
        instant.time_ns as f64 / 1e9,
        if allocator.is_empty() {
            "unknown"
        } else {
            allocator
        },
        size(free),
        percent(free, heap),
        size(heap),
        size(giveback.whole_bytes + giveback.tops_bytes),
        size(pinned),
    );
    let unknown = giveback.whole_bytes - giveback.known_bytes;
    what += &qualified(giveback, unknown, books.skew_ns);
    let process = |title: &str, bytes: u64, change: &str| Finding {
        kind: FindingKind::Retained,
        title: title.into(),
        what: what.clone(),
        change: change.into(),
        now_bytes: bytes,
        saved_bytes: bytes,
        confidence: Confidence::Likely,
        ..Finding::default()
    };
    let mut found = Vec::new();
    if giveback.whole_bytes >= least {
        let title = "Free pages that the allocator keeps, without a live byte on them";
        let remedy = give_back(facts, giveback);
        let mut whole = process(title, giveback.whole_bytes, &remedy.change);
        let kept = kept(giveback.whole_bytes, instant, around);
        whole.saved_bytes = kept.min(giveback.known_bytes).min(remedy.bytes);
        let worth = (books.resident_bytes / STOCK).max(least);
        if around.in_exit || !around.outlasts_decay || whole.saved_bytes < worth {
            // Most of it stays free, and is little beside the process.
            let is_small = kept.min(giveback.known_bytes) * 2 > giveback.whole_bytes;
            whole.saved_bytes = 0;
            (whole.title, whole.change) = match unknown > 0 && !around.in_exit {
                true => not_known(),
                false if is_small && !around.in_exit && around.outlasts_decay => too_little(kept),
                false => not_advised(around),
            };
        }
        if unknown > 0 {
            whole.confidence = Confidence::Possible;
        }
        // What malloc_trim gives back is known to the page, if nothing moved while pages were read.
        if remedy.is_exact && around.is_still(books.skew_ns) && unknown == 0 {
            whole.confidence = Confidence::Certain;
        }
        found.push(whole);
    }
    if giveback.tops_bytes >= least {
        let (title, change) = ends_of_arenas(giveback.tops_known);
        // An instant cannot tell how much of it the threads use at once: it is no promise.
        let mut ends = process(title, giveback.tops_bytes, &change);
        ends.saved_bytes = 0;
        ends.confidence = Confidence::Possible;
        found.push(ends);
    }
    found
}

/// Returns title and words for free memory at the ends of threads' arenas. The settings act from the beginning, whenever
/// the moment is.
fn ends_of_arenas(are_known: bool) -> (&'static str, String) {
    let (title, tried) = match are_known {
        true => (
            "Free memory at the ends of threads' arenas, which malloc_trim(0) leaves",
            "malloc_trim(0) gives back nothing of an arena's topmost chunk.",
        ),
        // It is a topmost chunk only if no thread's cache holds a block there: only the allocator knows.
        false => (
            "Free memory behind the last blocks of threads' arenas",
            "malloc_trim(0) gives back what lies below a block that a thread's cache holds, and nothing of an \
             arena's topmost chunk: try it.",
        ),
    };
    (title, format!("{ARENA_ENDS} {tried} {FEWER_ARENAS}"))
}

/// Describes what qualifies the figures of free memory: ends of arenas, pages that are not known to be free, and the
/// distance between the two readings.
fn qualified(giveback: GiveBack, unknown: u64, skew_ns: u64) -> String {
    let mut said = match giveback.tops_bytes {
        0 => ".".to_owned(),
        tops if giveback.tops_known => format!(
            "; {} of the former are the ends of arenas (topmost chunks), which malloc_trim(0) leaves.",
            size(tops)
        ),
        tops => format!(
            "; {} lie behind the last blocks of threads' arenas.",
            size(tops)
        ),
    };
    if unknown > 0 {
        said += &format!(
            " Of the pages without a live byte {} are known to be free; the others may hold blocks that the \
             recording does not know, as it does not have all of the process's life.",
            size(giveback.known_bytes)
        );
    }
    if skew_ns > 10_000_000 {
        said += &format!(
            " Pages were read up to {:.0} ms away from the counts of live blocks.",
            skew_ns as f64 / 1e6
        );
    }
    said
}

/// Returns how many of the free bytes at a moment stay unused (D5, D6).
pub(crate) fn kept(whole_bytes: u64, instant: &Instant, around: Around) -> u64 {
    let fallen = around
        .highest_bytes
        .saturating_sub(instant.live_usable_bytes);
    let left = whole_bytes.saturating_sub(around.asked_later_bytes);
    let then = around.then;
    let used = then.taken_bytes.saturating_add(then.gone_bytes);
    fallen.max(left).min(whole_bytes.saturating_sub(used))
}

/// Returns title and words if giving pages back would gain nothing.
fn not_advised(around: Around) -> (String, String) {
    match around.in_exit {
        false if !around.outlasts_decay => (
            "Free pages that the allocator keeps for a while".into(),
            format!(
                "No change that this run can tell: by itself this allocator gives a page back {} after it became free, \
                 as long as the program goes on allocating, and the run ends before. In a program that then rests, they \
                 stay: {}",
                duration(around.span_ns),
                JEMALLOC_ADVICE,
            ),
        ),
        true => (
            "Free pages that the allocator keeps until the program ends".into(),
            "No change: the program ends right after this moment, and all of its pages go back then. In a program \
             that went on, they would stay."
                .into(),
        ),
        false => (
            "Free pages that the allocator keeps, and the program soon uses again".into(),
            format!(
                "No change: too little stays free for {} and longer. It is the stock that the program works with.",
                duration(around.span_ns)
            ),
        ),
    }
}

/// Returns title and words if pages stay free, and are too few to be worth a change.
fn too_little(kept: u64) -> (String, String) {
    (
        "Free pages that the allocator keeps, too few to be worth a change".into(),
        format!(
            "No change, unless the process has to be as small as it can be: {} stay free, less than a {STOCK}th of \
             resident memory.",
            size(kept)
        ),
    )
}

/// Returns title and words if free pages cannot be distinguished from blocks that the recording does not know.
fn not_known() -> (String, String) {
    (
        "Heap pages without a recorded block: free, or of blocks from before the recording".into(),
        "No change that this recording can tell: it does not have all of the process's life. Record the program from \
         its start to see what is free."
            .into(),
    )
}

/// Returns findings on stacks that held more at every mark of a series than at the one before.
fn growth_between_marks(report: &Report, evidence: &Evidence<'_>) -> Vec<Finding> {
    let Some(series) = longest_series(evidence) else {
        return Vec::new();
    };
    let ages = ages(evidence.ledger, report.program.duration_ns);
    let sites = evidence.ledger.cells().sites();
    let end: FxHashMap<u32, &Site> = report.sites.iter().map(|site| (site.node, site)).collect();
    // Two marks show a difference, not a trend; in longer series the first step may be start-up.
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
    let mut found: Vec<Finding> = Vec::new();
    let mut grew: FxHashMap<usize, (usize, u64, u64)> = FxHashMap::default();
    for (index, site) in sites.iter().enumerate() {
        let at = |level: &MarkLevel| level.usable_bytes.get(index).copied().unwrap_or(0);
        let rises = steps.windows(2).all(|pair| at(pair[1]) > at(pair[0]));
        let grown = at(last).saturating_sub(at(first));
        // What the pass over phases has reported about a stack is more exact.
        if !rises || grown < WORTH_BYTES || site.node == INHERITED || said(site.node.0) {
            continue;
        }
        let Some(row) = end.get(&site.node.0) else {
            continue;
        };
        let intervals = steps.len() as u64 - 1;
        let mark = |level: &MarkLevel| &evidence.facts.marks[level.mark];
        let age = ages.get(index).copied().flatten();
        let promised = intervals >= 2 && mark(first).name == mark(last).name;
        let saved_bytes = match promised {
            true => grown.min(row.live_usable_bytes),
            false => 0,
        };
        grew.insert(index, (found.len(), saved_bytes, row.live_usable_bytes));
        found.push(Finding {
            kind: FindingKind::Leak,
            title: if intervals == 1 {
                format!(
                    "Holds more at '{}' than at '{}'",
                    mark(last).name,
                    mark(first).name
                )
            } else if mark(first).name == mark(last).name {
                format!("Holds more at each mark '{}'", mark(last).name)
            } else {
                "Holds more at each mark than at the one before".into()
            },
            what: format!(
                "From mark '{}' ({:.3} s) to '{}' ({:.3} s) the live bytes of this stack rose in \
                 each of {}, from {} to {}: {} each time.{}",
                mark(first).name,
                mark(first).time_ns as f64 / 1e9,
                mark(last).name,
                mark(last).time_ns as f64 / 1e9,
                count(intervals, "step"),
                size(at(first)),
                size(at(last)),
                size(grown / intervals),
                age.map(|seconds| format!(
                    " Its blocks at the end are {seconds:.1} s old on average."
                ))
                .unwrap_or_default(),
            ),
            change:
                "Find what keeps these blocks: release them when their work is done, or give the \
                     container that holds them a limit in bytes."
                    .into(),
            now_bytes: row.live_usable_bytes,
            saved_bytes,
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
    claim_grown(evidence, &grew, &mut found);
    found.sort_by_key(|finding| std::cmp::Reverse((finding.saved_bytes, finding.now_bytes)));
    found
}

/// Claims the blocks of stacks that grew (by site: the finding, bytes grown, bytes live). Which blocks came last is
/// not known by cell, so it is the same part of each, rounded up.
fn claim_grown(
    evidence: &Evidence<'_>,
    grew: &FxHashMap<usize, (usize, u64, u64)>,
    found: &mut [Finding],
) {
    let cells = evidence.ledger.cells();
    for (cell, (key, blocks)) in (0..).zip(cells.keys().iter().zip(evidence.blocks)) {
        let Some(&(finding, bytes, of)) = grew.get(&cells.site_of(CellId(cell))) else {
            continue;
        };
        let part = (u128::from(blocks.at_instant) * u128::from(bytes)).div_ceil(of.max(1).into());
        let blocks = (part as u64).min(blocks.at_instant);
        if blocks > 0 {
            found[finding].claims.push(Claim {
                key: *key,
                blocks,
                bytes: blocks.saturating_mul(key.usable),
            });
        }
    }
}

/// Returns the marks to compare: those of the most frequent name, or all if no name comes twice.
fn longest_series<'a>(evidence: &Evidence<'a>) -> Option<Vec<&'a MarkLevel>> {
    let name = |level: &MarkLevel| evidence.facts.marks[level.mark].name.as_str();
    let mut times: FxHashMap<&str, usize> = FxHashMap::default();
    for level in evidence.mark_levels {
        *times.entry(name(level)).or_default() += 1;
    }
    let most = times.values().copied().max()?;
    // The first mark that has a most frequent name decides between equals.
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

/// Returns the mean age in seconds of the blocks that live at the end, by site.
fn ages(ledger: &Ledger, end_ns: u64) -> Vec<Option<f64>> {
    // The sums are wide enough for every age that a damaged trace may claim.
    let mut sums = vec![(0u128, 0u64); ledger.cells().sites().len()];
    for block in ledger.live_blocks() {
        let site = ledger.cells().site_of(block.cell);
        sums[site].0 += u128::from(block.age_ns(end_ns) / 1000);
        sums[site].1 += 1;
    }
    sums.into_iter()
        .map(|(us, blocks)| (blocks > 0).then(|| us as f64 / blocks as f64 / 1e6))
        .collect()
}

/// Returns a finding on what lived when the program exited by itself (D3).
fn at_exit(report: &Report, facts: &Facts) -> Option<Finding> {
    if !matches!(facts.ending.as_ref()?.exit, Exit::Exited(_)) {
        return None;
    }
    let own = || {
        let sites = report.sites.iter();
        sites.filter(|site| !facts.is_inherited(site.node))
    };
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
    // At the report's instant a stack may have held other blocks than at the end: this is an upper bound.
    let now_bytes = own()
        .map(|site| site.live_usable_bytes.min(site.end_usable_bytes))
        .sum();
    Some(Finding {
        kind: FindingKind::Leak,
        title: format!("{} still live at exit", count(blocks, "block")),
        what: format!(
            "The program exited without releasing them: {}, from {}, {:.0} % from the largest {}. \
             That is not a leak by itself: many programs leave the clearing \
             up to the kernel.",
            size(bytes),
            count(stacks as u64, "stack"),
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

/// Returns findings on blocks that were mostly never touched, or are swapped out.
fn untouched(report: &Report, untouched: &[Untouched]) -> Vec<Finding> {
    let label = report
        .instants
        .get(report.at)
        .map_or("", |instant| instant.label.as_str());
    // They are already ordered by absent bytes, which give such a finding its weight.
    untouched
        .iter()
        .filter(|one| one.absent_bytes >= 1 << 20 && one.absent_bytes >= one.asked_bytes / 2)
        .map(|one| Finding {
            kind: FindingKind::Untouched,
            title: format!(
                "{} of {} asked for and not resident",
                size(one.absent_bytes),
                size(one.asked_bytes)
            ),
            what: format!(
                "At {label} this stack has {} of {} together, of which {} are on resident pages. \
                 The rest costs address space, and no memory yet.",
                count(one.blocks, "block"),
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

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_that_a_later_look_does_not_find_have_gone() {
        let look = |time_ns, live_bytes, whole_bytes| Look {
            time_ns,
            live_bytes,
            whole_bytes,
            tops: (false, 800),
        };
        let most = look(10, 5000, 7000);
        // A look that knows topmost chunks has what lies below them among the pages.
        let mut later = look(20, 5000, 1500);
        later.tops = (true, 300);
        assert_eq!(most.gone_by(later), 6000);
        assert_eq!(most.gone_by(look(20, 5000, 1000)), 6000);
        assert_eq!(most.gone_by(look(20, 5000, 9000)), 0);
        assert_eq!(
            most.gone_by(look(20, 5001, 1000)),
            0,
            "some were taken again"
        );
        assert_eq!(most.gone_by(look(10, 5000, 1000)), 0, "not later");
    }
}
