//! A simulation under way: acts of the ledger, numbered blocks, and the moments that all policies share.
//!
//! ```text
//!   event ─► Ledger ─► act ─► World: numbers, sizes, heaps ─► every Model
//!                               └ peak, low, end: figures are taken before the act that ends the moment
//! ```
//!
//! S1  A moment is one of live bytes, so it is the same for all policies.
//! S2  Figures of a moment are taken just before the next act that would end it, so that what idling gives back is
//!     seen.
//!
//! S3  A large block counts as touched at once. What nothing shows to be so is `fresh`: of a block that came since the last
//!     snapshot, beyond what was copied into it; of one of which no snapshot tells, always. It is doubt on what is resident.
//!
//! Not here: one policy's figures (`model.rs`).

use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::pass::{Act, Block, Context};
use skinflint_trace::{Event, Trace};

use crate::heaps::Heaps;
use crate::layout::Layout;
use crate::model::{Model, Size};
use crate::outcome::{Level, SCHEMA, WhatIf};
use crate::policy::Policy;
use crate::touched::{LARGE_BYTES, Touched};

/// The number of parts that a step of time is cut into while pages wait to be given back.
const TIME_STEPS: u64 = 8;
/// The number of acts between two looks at the tables' sizes.
const TABLES_ACTS: u64 = 1 << 16;

/// The options of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policies, in the order of the result.
    pub policies: Vec<Policy>,
    /// The milliseconds for which pages lie unused before they are given back. 0 gives each policy's limit; with
    /// purges of 4 KiB that is the floor itself.
    pub delay_ms: u32,
    /// The time when each thread ended, by its number in the trace; its heap is then taken over by the next thread
    /// that begins. May be empty: heaps are then never taken over.
    pub thread_ends_ns: Vec<Option<u64>>,
    /// The time when the program ended, if that is known.
    pub end_ns: Option<u64>,
    /// How much of large blocks was touched; by default all.
    pub touched: Touched,
    /// The tickets of snapshots, in their order: what was there at one is no longer fresh.
    pub looks: Vec<u64>,
}

impl Default for Options {
    /// Returns all named policies, giving back at once.
    fn default() -> Options {
        Options {
            policies: Policy::all(),
            delay_ms: 0,
            thread_ends_ns: Vec::new(),
            end_ns: None,
            touched: Touched::default(),
            looks: Vec::new(),
        }
    }
}

impl Options {
    /// Returns what a trace tells beside its events: when threads and the program ended.
    pub fn of(trace: &Trace) -> Options {
        Options {
            thread_ends_ns: trace.threads.iter().map(|one| one.ended_ns).collect(),
            end_ns: trace.ending.as_ref().map(|ending| ending.time_ns),
            looks: trace.snapshots.iter().map(|one| one.ticket).collect(),
            ..Options::default()
        }
    }
}

/// A simulation under way.
pub struct Simulation {
    ledger: Ledger,
    world: World,
}

/// The simulation's state except the ledger, which hands acts to it.
struct World {
    options: Options,
    models: Vec<Model>,
    /// The number of a live block, by address and serial (a realloc under way has given its address up).
    numbers: HashMap<(u64, u32), u32, FxBuildHasher>,
    /// Requested bytes, by number; `gone` has the numbers of blocks that are gone.
    sizes: Vec<u64>,
    /// Touched bytes of blocks that are touched in part, by number.
    partly: HashMap<u32, u64, FxBuildHasher>,
    /// Numbers of large blocks that nothing tells of.
    untold: HashSet<u32, FxBuildHasher>,
    /// Fresh bytes of large blocks, by number, their sum, and the next of `Options::looks`.
    fresh: HashMap<u32, u64, FxBuildHasher>,
    fresh_bytes: u64,
    next_look: usize,
    gone: Vec<u32>,
    heaps: Heaps,
    now: Level,
    peak: Level,
    low: Option<Level>,
    /// The largest fall so far.
    fall: u64,
    /// Whether the last act made a peak, or a low, whose figures are still to be taken.
    on_peak: bool,
    on_low: bool,
    live_sum: u128,
    acts: u64,
    table_bytes: usize,
}

impl Simulation {
    /// Creates a simulation in which nothing lives yet.
    pub fn new(options: Options) -> Simulation {
        let model = |policy: &Policy| Model::new(policy.clone(), options.delay_ms);
        Simulation {
            ledger: Ledger::new(16),
            world: World {
                models: options.policies.iter().map(model).collect(),
                options,
                numbers: HashMap::default(),
                sizes: Vec::new(),
                partly: HashMap::default(),
                untold: HashSet::default(),
                fresh: HashMap::default(),
                fresh_bytes: 0,
                next_look: 0,
                gone: Vec::new(),
                heaps: Heaps::default(),
                now: Level::default(),
                peak: Level::default(),
                low: None,
                fall: 0,
                on_peak: false,
                on_low: false,
                live_sum: 0,
                acts: 0,
                table_bytes: 0,
            },
        }
    }

    /// Adds a layout that is not one of the policies; call it before the first event. `named` has its name and
    /// whether threads have heaps of their own; its classes and order are not used.
    pub fn add(&mut self, named: Policy, layout: Box<dyn Layout>) {
        let delay_ms = self.world.options.delay_ms;
        let model = Model::with_layout(named, layout, delay_ms);
        self.world.models.push(model);
    }

    /// Takes an event, in ticket order.
    pub fn event(&mut self, event: &Event) {
        let world = &mut self.world;
        self.ledger
            .apply(event, &mut |context, act| world.act(context, act));
    }

    /// Ends the simulation, and returns the result.
    pub fn finish(self) -> WhatIf {
        let (counts, mut world) = (self.ledger.counts(), self.world);
        let end_ns = world.options.end_ns.unwrap_or(0);
        world.until(end_ns.max(self.ledger.now_ns()));
        world.leave_peak();
        world.leave_low();
        world.see_tables();
        let (now, duration_ns) = (world.now, world.now.time_ns);
        let heaps = world.heaps.count();
        let finished =
            |model: Model| model.finish(now.requested_bytes, now.ticket, duration_ns, heaps);
        WhatIf {
            schema: SCHEMA,
            events: counts.events,
            acquisitions: counts.allocations,
            unknown_releases: counts.unknown_frees,
            faults: counts.lost_frees + counts.lost_reallocs + counts.damaged_events,
            duration_ns,
            heaps,
            delay_ms: world.options.delay_ms,
            at_peak: world.peak,
            after_free: world.low,
            at_end: now,
            average_requested_bytes: (duration_ns > 0)
                .then(|| (world.live_sum / u128::from(duration_ns)) as u64),
            table_bytes: (world.table_bytes + self.ledger.map_table_bytes()) as u64,
            policies: world.models.into_iter().map(finished).collect(),
        }
    }
}

impl World {
    fn act(&mut self, context: &Context<'_>, act: &Act) {
        self.until(context.time_ns);
        self.acts += 1;
        self.look_until(context.ticket);
        if self.acts.is_multiple_of(TABLES_ACTS) {
            self.see_tables();
        }
        match act {
            Act::Acquire { block, .. } => {
                self.leave_low();
                self.came(context, block);
                self.now.ticket = context.ticket;
                self.see_peak();
            }
            Act::Release { block, .. } => {
                self.leave_peak();
                self.went(block);
                self.now.ticket = context.ticket;
                self.see_low();
            }
            Act::Regrow { old, new } => self.regrown(context, old, new),
            Act::Mark { .. } => {}
        }
    }

    fn regrown(&mut self, context: &Context<'_>, old: &Block, new: &Block) {
        let Some(number) = self.numbers.remove(&(old.addr, old.serial)) else {
            // This is not possible while the ledger keeps analysis::ledger.G2; an unknown block is a new one.
            return self.came(context, new);
        };
        let (before, requested) = (self.size(number), self.sizes[number as usize]);
        let after = context.key.size;
        if after > requested {
            self.leave_low();
        } else {
            self.leave_peak();
        }
        self.numbers.insert((new.addr, new.serial), number);
        let to = self.resize(context, number, new);
        let fresh = match after >= LARGE_BYTES {
            true => to.touched.saturating_sub(before.touched),
            false => 0,
        };
        self.freshen(number, fresh);
        let ends = &self.options.thread_ends_ns;
        let heap = self.heaps.of(new.thread(), self.now.time_ns, ends);
        for model in &mut self.models {
            model.regrown(number, before, to, heap);
        }
        self.now.requested_bytes = self.now.requested_bytes - requested + after;
        self.now.touched_bytes = self.now.touched_bytes - before.touched + to.touched;
        self.now.ticket = context.ticket;
        if after > requested {
            self.see_peak();
        } else {
            self.see_low();
        }
    }

    /// Takes what snapshots before this event saw out of what is fresh (S3).
    fn look_until(&mut self, ticket: u64) {
        let before = self.next_look;
        while self
            .options
            .looks
            .get(self.next_look)
            .is_some_and(|at| *at < ticket)
        {
            self.next_look += 1;
        }
        if self.next_look > before && self.fresh_bytes > 0 {
            let untold = &self.untold;
            self.fresh.retain(|number, _| untold.contains(number));
            self.fresh_bytes = self.fresh.values().sum();
        }
    }

    /// Notes how much of a large block is fresh; 0 for one that goes.
    fn freshen(&mut self, number: u32, bytes: u64) {
        if bytes > 0 || self.fresh_bytes > 0 {
            let had = match bytes {
                0 => self.fresh.remove(&number),
                bytes => self.fresh.insert(number, bytes),
            };
            self.fresh_bytes = self.fresh_bytes + bytes - had.unwrap_or(0);
        }
        for model in &mut self.models {
            model.fresh = self.fresh_bytes;
        }
    }

    /// Returns the bytes of a numbered block; those of an empty one count as one.
    fn size(&self, number: u32) -> Size {
        let asked = self.sizes[number as usize].max(1);
        let touched = self.partly.get(&number).copied().unwrap_or(asked);
        Size { asked, touched }
    }

    /// Notes the bytes of a block that came or has another size.
    fn resize(&mut self, context: &Context<'_>, number: u32, block: &Block) -> Size {
        let asked = context.key.size;
        self.tell(number);
        self.sizes[number as usize] = asked;
        let node = context.key.node.0;
        let touched = self.options.touched.bytes(block, node, asked.max(1));
        match touched < asked {
            true => self.partly.insert(number, touched),
            false => self.partly.remove(&number),
        };
        if self.options.touched.is_untold(block, node, asked) {
            self.untold.insert(number);
            self.now.untold_bytes += asked;
        }
        self.size(number)
    }

    /// Takes a block out of those that nothing tells of: it goes, or gets another size.
    fn tell(&mut self, number: u32) {
        if self.untold.remove(&number) {
            self.now.untold_bytes -= self.sizes[number as usize];
        }
    }

    fn came(&mut self, context: &Context<'_>, block: &Block) {
        let number = match self.gone.pop() {
            Some(number) => number,
            None => {
                self.sizes.push(0);
                self.sizes.len() as u32 - 1
            }
        };
        let size = self.resize(context, number, block);
        if size.asked >= LARGE_BYTES {
            self.freshen(number, size.touched);
        }
        self.numbers.insert((block.addr, block.serial), number);
        let ends = &self.options.thread_ends_ns;
        let heap = self.heaps.of(block.thread(), self.now.time_ns, ends);
        for model in &mut self.models {
            model.came(number, size, heap);
        }
        self.now.blocks += 1;
        self.now.requested_bytes += context.key.size;
        self.now.touched_bytes += size.touched;
    }

    fn went(&mut self, block: &Block) {
        let Some(number) = self.numbers.remove(&(block.addr, block.serial)) else {
            return;
        };
        let size = self.size(number);
        if size.asked >= LARGE_BYTES {
            self.freshen(number, 0);
        }
        for model in &mut self.models {
            model.went(number, size);
        }
        self.tell(number);
        self.partly.remove(&number);
        self.gone.push(number);
        self.now.blocks -= 1;
        self.now.requested_bytes -= self.sizes[number as usize];
        self.now.touched_bytes -= size.touched;
    }

    /// Moves the time on to `time_ns`, in steps while pages that wait to be given back may go.
    fn until(&mut self, time_ns: u64) {
        let delay_ns = u64::from(self.options.delay_ms) * 1_000_000;
        for _ in 0..TIME_STEPS {
            let left = time_ns.saturating_sub(self.now.time_ns);
            if left > 0 && left > delay_ns / 4 {
                self.step(if delay_ns == 0 { left } else { delay_ns / 4 });
            }
        }
        self.step(time_ns.saturating_sub(self.now.time_ns));
    }

    fn step(&mut self, ns: u64) {
        if ns == 0 {
            return;
        }
        self.now.time_ns += ns;
        self.live_sum += u128::from(self.now.requested_bytes) * u128::from(ns);
        let now_ms = (self.now.time_ns / 1_000_000).min(u64::from(u32::MAX)) as u32;
        for model in &mut self.models {
            model.lasted(ns, self.now.requested_bytes, now_ms);
        }
    }

    fn see_peak(&mut self) {
        if self.now.requested_bytes > self.peak.requested_bytes {
            self.peak = self.now;
            self.on_peak = true;
        }
    }

    fn leave_peak(&mut self) {
        if std::mem::take(&mut self.on_peak) {
            for model in &mut self.models {
                model.see_peak(self.now.requested_bytes);
            }
        }
    }

    fn see_low(&mut self) {
        let fall = self.peak.requested_bytes - self.now.requested_bytes;
        if fall > 0 && fall >= self.fall {
            self.fall = fall;
            self.low = Some(self.now);
            self.on_low = true;
        }
    }

    fn leave_low(&mut self) {
        if std::mem::take(&mut self.on_low) {
            for model in &mut self.models {
                model.see_low(self.now.requested_bytes, self.fall, self.now.ticket);
            }
        }
    }

    fn see_tables(&mut self) {
        let models: usize = self.models.iter().map(Model::table_bytes).sum();
        let own = self.numbers.allocation_size()
            + self.sizes.capacity() * 8
            + self.gone.capacity() * 4
            + self.partly.allocation_size()
            + self.untold.allocation_size()
            + self.fresh.allocation_size()
            + self.options.touched.table_bytes()
            + self.heaps.table_bytes();
        self.table_bytes = self.table_bytes.max(models + own);
    }
}
