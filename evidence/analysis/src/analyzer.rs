//! From events to a report: streams them through the ledger and the passes, stops at the instants
//! of the plan, and puts the report together.
//!
//! ```text
//!   inherit* ─► event* ─► finish ─► Report
//!                 │ due?  ─► levels, books, mark rows, passes' at_instant
//!                 └► Ledger ─► act ─► every pass
//! ```
//!
//! N1  `inherit` comes before the first `event`; events come in ticket order.
//! N2  `at_instant` is called exactly once for each pass, before `finish`.
//! N3  Live columns of sites and sizes are those of [`Report::at`] (at the heap peak exactly, by the cells' saved
//!     counts).
//! N4  Events are applied in batches, each looked at while batches before it are applied (`ahead.rs`); all of them
//!     before `finish` does anything else.
//!
//! Not here: arithmetic on blocks (`ledger.rs`), pages (`books.rs`), advice (`findings.rs`).

mod about;
mod inherit;
mod moments;
use std::collections::BTreeMap;

use skinflint_trace::{Event, NodeId};

use crate::ahead::Ahead;
use crate::block::NO_KEY;
use crate::books::Closed;
use crate::completeness::Tickets;
use crate::covered::Covered;
use crate::facts::{AnalysisError, At, Facts, Options, Symbolizer};
use crate::falls::Falls;
use crate::findings::{self, Around, Evidence, MarkLevel};
use crate::fragments::functions::Pinned;
use crate::frames;
use crate::grouping;
use crate::grows::Births;
use crate::ledger::{Counts, Ledger, Live, NO_HINT};
use crate::makers;
use crate::missing::Missing;
use crate::model::{Instant, InstantKind, Mapper, MarkRow, Report, SCHEMA, Site, SizeRow, Totals};
use crate::pass::{Act, CellBlocks, CellId, Context, Pass};
use crate::passes;
use crate::schedule::{Due, Plan};
use crate::steady::Steady;
use crate::timeline::thin_rss;
use crate::waste::{self, Waste, Wasteful};
use crate::windows::Recorder;

/// One analysis under way.
pub struct Analyzer {
    facts: Facts,
    options: Options,
    ledger: Ledger,
    /// Events taken and not yet applied (N4).
    ahead: Ahead,
    passes: Vec<Box<dyn Pass>>,
    /// Which passes see acts, and of blocks of which size ([`Pass::least_bytes`]).
    acting: Vec<(usize, u64)>,
    plan: Plan,
    next: usize,
    /// The ticket after which something is due; `u64::MAX` if nothing is due before the end.
    due_ticket: u64,
    last_ticket: u64,
    tickets: Tickets,
    /// Live blocks by cell at the report's instant; `None` until it has come.
    at_live: Option<Vec<u32>>,
    births: Option<Births>,
    /// Bytes that the program had mapped itself at that instant, by stack.
    at_mapped: BTreeMap<NodeId, u64>,
    /// Places of runtimes' heaps that were mapped then (heaps.O7).
    at_places: Vec<(&'static str, u32)>,
    mark_rows: Vec<MarkRow>,
    mark_levels: Vec<MarkLevel>,
    at_mark_before: Counts,
    /// What was found with the books of the report's instant.
    closed: Option<Closed>,
    /// What had been mapped past the recorder at the peak.
    past_bytes: u64,
    falls: Falls,
    /// The moment after the largest fall so far.
    after_free: Option<Instant>,
    waste: Waste,
    /// The moment at which most is kept so far.
    wasteful: Option<Wasteful>,
    /// What lived when the allocator was asked what is in use.
    at_exit: Option<Live>,
    /// Bytes requested until then, and the largest live heap.
    requested_at: u64,
    highest_at: u64,
    /// The snapshot that was looked at last, and the instant whose books it closed.
    closed_last: Option<(usize, usize)>,
    /// The instants with books: (instant, snapshot, bytes that lived at the snapshot).
    booked: Vec<(usize, usize, u64)>,
    /// Figures for windows, if they are wanted; they begin with the first event of our own.
    windows: Option<Recorder>,
    /// The time from which later events have something to do before them.
    stop_ns: u64,
}

fn acting(passes: &[Box<dyn Pass>]) -> Vec<(usize, u64)> {
    let all = passes.iter().enumerate();
    all.filter(|(_, pass)| pass.sees_acts())
        .map(|(index, pass)| (index, pass.least_bytes()))
        .collect()
}

impl Analyzer {
    /// Plans an analysis with all passes.
    ///
    /// # Errors
    /// If the options name a mark or a time that the trace does not have.
    pub fn new(facts: Facts, options: Options) -> Result<Analyzer, AnalysisError> {
        let passes = passes::all(&facts, &options);
        Analyzer::with_passes(facts, options, passes)
    }

    /// Plans an analysis with these passes only.
    ///
    /// # Errors
    /// Those of [`Analyzer::new`].
    pub fn with_passes(
        facts: Facts,
        options: Options,
        passes: Vec<Box<dyn Pass>>,
    ) -> Result<Analyzer, AnalysisError> {
        let plan = Plan::new(&facts, &options)?;
        let mark_rows = facts
            .marks
            .iter()
            .map(|mark| MarkRow {
                name: mark.name.clone(),
                time_ns: mark.time_ns,
                ..MarkRow::default()
            })
            .collect();
        let mut ledger = Ledger::new(options.limits.timeline_points);
        let known = facts.known(0);
        if !known.is_from_birth() {
            ledger.watch(Covered::new(known.was_paused()));
        }
        Ok(Analyzer {
            ledger,
            due_ticket: plan.due.first().map_or(u64::MAX, |due| due.0),
            stop_ns: plan.at_time_ns,
            windows: None,
            ahead: Ahead::default(),
            facts,
            options,
            acting: acting(&passes),
            passes,
            plan,
            next: 0,
            last_ticket: 0,
            tickets: Tickets::default(),
            at_live: None,
            births: None,
            at_mapped: BTreeMap::new(),
            at_places: Vec::new(),
            mark_rows,
            mark_levels: Vec::new(),
            at_mark_before: Counts::default(),
            closed: None,
            past_bytes: 0,
            falls: Falls::default(),
            after_free: None,
            waste: Waste::default(),
            wasteful: None,
            at_exit: None,
            requested_at: 0,
            highest_at: 0,
            closed_last: None,
            booked: Vec::new(),
        })
    }

    /// Adds a pass; call it before the first event.
    pub fn add_pass(&mut self, pass: Box<dyn Pass>) {
        self.passes.push(pass);
        self.acting = acting(&self.passes);
    }

    /// Notes something that is missing from the trace, in a sentence: what the reader found damaged while it read the
    /// events.
    pub fn damaged(&mut self, what: String) {
        self.facts.damage.push(what);
    }

    /// Notes something that was not found when the trace was opened.
    pub fn missing(&mut self, what: Missing) {
        self.facts.missing.push(what);
    }

    /// Takes an event, in ticket order (N4).
    #[inline]
    pub fn event(&mut self, event: &Event) {
        if self.ahead.push(event) {
            self.apply_ahead();
        }
    }

    /// Takes events, in ticket order (N4), and may leave other memory in their place.
    pub fn run(&mut self, events: &mut Vec<Event>) {
        if self.ahead.take(events) {
            self.apply_ahead();
        } else {
            events.iter().for_each(|event| self.event(event));
        }
    }

    #[inline(never)]
    fn apply_ahead(&mut self) {
        if self.options.windows.is_some() && self.windows.is_none() {
            self.begin_windows();
        }
        let batch = self.ahead.step(&self.ledger);
        let mut hints = batch.hints.iter();
        for event in &batch.events {
            self.ledger.hint = hints.next().copied().unwrap_or(NO_HINT);
            self.apply(event);
        }
        self.ahead.done(batch);
    }

    #[inline]
    fn apply(&mut self, event: &Event) {
        if event.ticket > self.due_ticket || event.time_ns > self.stop_ns {
            self.stop_slow(event);
        }
        self.last_ticket = event.ticket;
        self.tickets.see(event.ticket);
        let (passes, acting) = (&mut self.passes, &self.acting);
        self.ledger.apply(event, &mut |context, act| {
            let always = matches!(act, Act::Regrow { .. } | Act::Mark { .. });
            for &(pass, least_bytes) in acting {
                if always || context.key.size >= least_bytes {
                    passes[pass].act(context, act);
                }
            }
        });
    }

    #[cold]
    #[inline(never)]
    fn stop_slow(&mut self, event: &Event) {
        self.ledger.end_inheritance();
        while let Some(&(ticket, due)) = self.plan.due.get(self.next)
            && event.ticket > ticket
        {
            self.next += 1;
            self.reach(due);
        }
        self.due_ticket = self.plan.due.get(self.next).map_or(u64::MAX, |due| due.0);
        if event.time_ns > self.plan.at_time_ns {
            self.plan.at_time_ns = u64::MAX;
            self.plan.instants[self.plan.at].ticket = self.last_ticket;
            self.reach(Due::Level(self.plan.at));
            self.reach(Due::At);
        }
        if let Some(windows) = &mut self.windows
            && event.time_ns > windows.next_ns
        {
            windows.step(event.time_ns, &mut self.ledger);
        }
        self.stop_ns = self.next_stop_ns(event.time_ns);
    }

    #[cold]
    fn begin_windows(&mut self) {
        self.ledger.end_inheritance();
        let limits = self.options.windows.unwrap_or_default();
        self.windows = Some(Recorder::begin(limits, &mut self.ledger));
        self.stop_ns = self.next_stop_ns(0);
    }

    fn next_stop_ns(&mut self, now_ns: u64) -> u64 {
        let step = self.windows.as_ref().map_or(u64::MAX, |one| one.next_ns);
        let look = self.ledger.settle_looks(now_ns);
        self.plan.at_time_ns.min(step).min(look)
    }

    /// Reports whether a moment lies in the program's exit.
    fn is_in_exit(&self, instant: &Instant, requested_bytes: u64, steady: &Steady<'_>) -> bool {
        let all = self.ledger.counts().requested_bytes;
        let later = all.saturating_sub(requested_bytes);
        let time_ns = instant.time_ns;
        let live = (instant.live_usable_bytes, self.ledger.live().usable_bytes);
        if waste::is_asked_for(self.options.at.as_ref(), live) {
            return false;
        }
        let peak = self.ledger.heap_peak().live.usable_bytes;
        waste::is_in_exit(&self.facts, (later, peak), time_ns, steady)
    }

    /// Returns what is known of the program around a moment.
    fn around(
        &self,
        instant: &Instant,
        requested: u64,
        highest: u64,
        steady: &Steady<'_>,
    ) -> Around {
        Around {
            highest_bytes: highest,
            asked_later_bytes: self.ledger.counts().requested_bytes - requested,
            then: steady.then(instant.time_ns, instant.live_usable_bytes),
            span_ns: steady.looked_ns(),
            rest_ns: steady.rest_ns(instant.time_ns),
            outlasts_decay: steady.outlasts_decay(instant.time_ns),
            gone_when_steady_bytes: steady
                .falls_until_steady(instant.time_ns, instant.live_usable_bytes),
            in_exit: self.is_in_exit(instant, requested, steady),
        }
    }

    /// Ends the recording: closes what is open and writes the report.
    pub fn finish(mut self, symbolizer: &mut dyn Symbolizer) -> Report {
        let end_ns = self.run_out();
        let unplaced = self.unplaced_wasteful();
        self.plan.instants.extend(self.after_free.take());
        let at_ticket = self.plan.instants[self.plan.at].ticket;
        let wasteful = self.wasteful.take();
        let wasteful = wasteful.filter(|one| one.instant.ticket != at_ticket);
        let place = wasteful.as_ref().map(|_| self.plan.instants.len());
        if let Some(windows) = &mut self.windows {
            windows.place(unplaced, place);
        }
        if let Some(one) = &wasteful {
            self.plan.instants.push(one.instant.clone());
        }
        let mut report = self.fill(end_ns);
        let steady = Steady::of(&self.facts, &report.timeline, end_ns);
        let own = &report.instants[report.at];
        let around = self.around(own, self.requested_at, self.highest_at, &steady);
        let wasteful = wasteful.as_ref().map(|one| {
            let (instant, highest) = (&one.instant, one.highest_bytes);
            (
                one,
                self.around(instant, one.requested_bytes, highest, &steady),
            )
        });
        let blocks = self.cell_blocks();
        let context = Context {
            cells: self.ledger.cells().keys(),
            blocks: &blocks,
            key: NO_KEY,
            site: 0,
            time_ns: self.ledger.now_ns(),
            ticket: self.last_ticket,
        };
        for pass in std::mem::take(&mut self.passes) {
            pass.finish(&context, &mut report);
        }
        let missing = self.verdict().missing;
        findings::add(
            &mut report,
            &Evidence {
                facts: &self.facts,
                ledger: &self.ledger,
                blocks: &blocks,
                mark_levels: &self.mark_levels,
                births: self.births.as_ref(),
                closed: self.closed.as_ref(),
                wasteful: wasteful.filter(|(_, around)| !around.in_exit),
                doubt: missing.iter().find(|one| one.hides_live_blocks()),
                around,
            },
        );
        let stacks = frames::Stacks {
            nodes: &self.facts.nodes,
            ancestors: &self.facts.ancestors,
        };
        let renamed = frames::compact(&mut report, stacks, symbolizer);
        let kept = self.closed.take().and_then(|closed| closed.kept);
        let pinned = kept.as_ref().map(|kept| Pinned {
            kept,
            renamed: &renamed,
            in_exit: around.in_exit,
            around,
        });
        grouping::settle(&mut report, &self.options.limits, pinned);
        report
    }

    /// Does what is due after the last event; returns the end, nanoseconds.
    pub(crate) fn run_out(&mut self) -> u64 {
        self.apply_ahead();
        while !self.ahead.is_empty() {
            self.apply_ahead();
        }
        self.ledger.end_inheritance();
        let end_ns = self.end_ns();
        let index = self
            .plan
            .instants
            .iter()
            .position(|one| one.kind == InstantKind::End);
        if let Some(end) = index {
            self.plan.instants[end].time_ns = end_ns;
            self.plan.instants[end].ticket = self.last_ticket;
        }
        if self.plan.at_time_ns != u64::MAX {
            // Nothing happened after the time that was asked for: the end is as it was then.
            self.reach(Due::Level(self.plan.at));
            self.reach(Due::At);
        }
        while let Some(&(_, due)) = self.plan.due.get(self.next) {
            self.next += 1;
            self.reach(due);
        }
        end_ns
    }

    fn end_ns(&self) -> u64 {
        let said = self
            .facts
            .ending
            .as_ref()
            .map_or(0, |ending| ending.time_ns);
        let sampled = self.facts.rss.last().map_or(0, |sample| sample.time_ns);
        let seen = self
            .facts
            .snapshots
            .last()
            .map_or(0, |snapshot| snapshot.time_ns);
        said.max(self.ledger.now_ns()).max(sampled).max(seen)
    }

    /// Fills in everything except what passes and findings add.
    fn fill(&mut self, end_ns: u64) -> Report {
        let peak = self.ledger.heap_peak();
        for instant in &mut self.plan.instants {
            if instant.kind == InstantKind::HeapPeak {
                instant.time_ns = peak.time_ns;
                instant.ticket = peak.ticket;
                instant.live_blocks = peak.live.blocks;
                instant.live_requested_bytes = peak.live.requested_bytes;
                instant.live_usable_bytes = peak.live.usable_bytes;
            }
        }
        self.measure_distances();
        let sites = self.sites();
        let peak = self
            .plan
            .instants
            .iter()
            .position(|one| one.kind == InstantKind::HeapPeak);
        let windows = match (self.windows.take(), peak) {
            (Some(windows), Some(peak)) => Some(windows.finish(peak, &self.ledger, &sites)),
            _ => None,
        };
        let totals = self.totals(end_ns, &sites);
        let curve = std::mem::replace(&mut self.ledger.curve, crate::timeline::Curve::new(2));
        let mut timeline = curve.finish(end_ns, &self.ledger.live());
        thin_rss(
            &self.facts.rss,
            self.options.limits.timeline_points,
            &mut timeline,
        );
        Report {
            schema: SCHEMA,
            analysed_by: env!("CARGO_PKG_VERSION").into(),
            program: self.program(end_ns),
            completeness: self.completeness(),
            totals,
            at: self.plan.at,
            instants: std::mem::take(&mut self.plan.instants),
            sites,
            mappers: self.mappers(),
            places: std::mem::take(&mut self.at_places),
            sizes: self.sizes(),
            timeline,
            windows,
            threads: self.threads(),
            marks: std::mem::take(&mut self.mark_rows),
            ..Report::default()
        }
    }

    /// Returns what the ledger counted, for passes: the instant is that at which `at_instant` was called.
    fn cell_blocks(&self) -> Vec<CellBlocks> {
        let live = self.at_live.as_deref().unwrap_or_default();
        let closed = self.closed.as_ref();
        let absent = closed.map(|closed| &closed.absent_tails);
        let counts = self.ledger.cells().counts().enumerate();
        counts
            .map(|(cell, count)| CellBlocks {
                at_instant: live.get(cell).map_or(0, |live| u64::from(*live)),
                total: count.ever,
                absent_tail_bytes: absent
                    .and_then(|absent| absent.get(&(cell as u32)))
                    .copied()
                    .unwrap_or(0),
            })
            .collect()
    }

    /// Returns the live blocks of a cell at the report's instant (N3).
    fn live_at(&self, cell: usize) -> u64 {
        if self.options.at == Some(At::HeapPeak) {
            return u64::from(self.ledger.cells().live_at_heap_peak(cell));
        }
        let at = self.at_live.as_ref();
        // A cell that came later had no blocks then.
        u64::from(at.and_then(|live| live.get(cell)).copied().unwrap_or(0))
    }

    fn sites(&self) -> Vec<Site> {
        let cells = self.ledger.cells();
        let types = makers::types(&self.facts.kinds);
        let mut sites: Vec<Site> = cells
            .sites()
            .iter()
            .map(|site| Site {
                node: site.node.0,
                temporaries: site.temporaries,
                brief: site.brief,
                object_type: types.get(&site.node.0).cloned(),
                first_ns: if site.first_ns == u64::MAX {
                    0
                } else {
                    site.first_ns
                },
                last_ns: site.last_ns,
                ..Site::default()
            })
            .collect();
        if let Some(closed) = &self.closed {
            for site in &mut sites {
                site.live_resident_bytes = closed.resident.get(&NodeId(site.node)).copied();
                // None of its pages is resident: that is known, if any pages are.
                site.live_resident_bytes = site.live_resident_bytes.or(Some(0));
            }
        }
        for (index, (key, count)) in cells.keys().iter().zip(cells.counts()).enumerate() {
            let site = &mut sites[count.site as usize];
            let (at, end) = (self.live_at(index), u64::from(count.live));
            let peak = u64::from(cells.live_at_heap_peak(index));
            site.allocations += count.ever;
            add(&mut site.requested_bytes, count.ever, key.size);
            add(&mut site.usable_bytes, count.ever, key.usable);
            if at > 0 {
                let (least, most) = site.live_sizes.unwrap_or((key.usable, key.usable));
                site.live_sizes = Some((least.min(key.usable), most.max(key.usable)));
            }
            site.live_blocks += at;
            add(&mut site.live_requested_bytes, at, key.size);
            add(&mut site.live_usable_bytes, at, key.usable);
            site.heap_peak_blocks += peak;
            add(&mut site.heap_peak_requested_bytes, peak, key.size);
            add(&mut site.heap_peak_usable_bytes, peak, key.usable);
            site.end_blocks += end;
            add(&mut site.end_requested_bytes, end, key.size);
            add(&mut site.end_usable_bytes, end, key.usable);
        }
        sites.sort_by(|a, b| {
            let size = |site: &Site| (site.live_usable_bytes, site.usable_bytes);
            size(b).cmp(&size(a)).then(a.node.cmp(&b.node))
        });
        sites
    }

    /// Returns what stacks had mapped themselves at the instant, those with most resident bytes first.
    fn mappers(&self) -> Vec<Mapper> {
        let mut mapped = self.at_mapped.clone();
        let resident = self.closed.as_ref().map(|closed| &closed.mapped);
        // What was mapped when the pages were read may have gone by the instant.
        for node in resident.into_iter().flat_map(|all| all.keys()) {
            mapped.entry(*node).or_insert(0);
        }
        let mut mappers: Vec<Mapper> = mapped
            .into_iter()
            .map(|(node, mapped_bytes)| {
                let by = resident.map(|all| all.get(&node).copied().unwrap_or_default());
                Mapper {
                    node: node.0,
                    mapped_bytes,
                    resident_bytes: by.map(|by| by.anonymous + by.shared + by.files),
                    shared_bytes: by.map(|by| by.shared),
                    file_bytes: by.map(|by| by.files),
                }
            })
            .collect();
        mappers.sort_by_key(|one| {
            let size = (one.resident_bytes, one.mapped_bytes);
            (std::cmp::Reverse(size), one.node)
        });
        mappers
    }

    fn sizes(&self) -> Vec<SizeRow> {
        let cells = self.ledger.cells();
        let keys = cells.keys();
        // By (size, usable) first: an allocator may answer one size in several ways. Sorted numbers take four bytes a
        // cell, where a table of the answers took sixty: a buffer that grows by a word has a cell for each step.
        let answer = |cell: &u32| (keys[*cell as usize].size, keys[*cell as usize].usable);
        let mut order: Vec<u32> = (0..keys.len() as u32).collect();
        order.sort_unstable_by_key(answer);
        let mut sizes = 0;
        let by_size = order.chunk_by(|a, b| answer(a).0 == answer(b).0);
        by_size.for_each(|_| sizes += 1);
        let mut rows: Vec<SizeRow> = Vec::with_capacity(sizes);
        let mut most = 0;
        for same in order.chunk_by(|a, b| answer(a) == answer(b)) {
            let Some((size, usable)) = same.first().map(answer) else {
                continue;
            };
            let (mut live, mut ever) = (0, 0);
            for &cell in same {
                live += self.live_at(cell as usize);
                ever += cells.live_and_ever(CellId(cell)).1;
            }
            if rows.last().is_none_or(|row| row.size != size) {
                rows.push(SizeRow {
                    size,
                    usable,
                    ..SizeRow::default()
                });
                most = live + ever;
            }
            let Some(row) = rows.last_mut() else { continue };
            if live + ever > most {
                most = live + ever;
                row.usable = usable;
            }
            row.live_blocks += live;
            row.allocations += ever;
            add(&mut row.live_slop_bytes, live, usable - size);
            add(&mut row.slop_bytes, ever, usable - size);
        }
        rows.sort_by(|a, b| {
            let bytes = |row: &SizeRow| u128::from(row.live_blocks) * u128::from(row.size);
            bytes(b).cmp(&bytes(a)).then(a.size.cmp(&b.size))
        });
        rows
    }

    fn totals(&self, end_ns: u64, sites: &[Site]) -> Totals {
        let counts = self.ledger.counts();
        let seconds = end_ns as f64 / 1e9;
        Totals {
            allocations: counts.allocations,
            frees: counts.frees,
            reallocs: counts.reallocs,
            requested_bytes: counts.requested_bytes,
            usable_bytes: counts.usable_bytes,
            temporaries: sites.iter().map(|site| site.temporaries).sum(),
            maps: counts.maps,
            map_bytes: counts.map_bytes,
            events_per_s: if end_ns > 0 {
                counts.events as f64 / seconds
            } else {
                0.0
            },
        }
    }
}

/// Adds blocks × bytes; sizes of a damaged trace may be absurdly large, so the sum saturates.
fn add(sum: &mut u64, blocks: u64, bytes: u64) {
    *sum = sum.saturating_add(blocks.saturating_mul(bytes));
}
