//! A trace on a space: the costs and the memory of a policy, figure by figure.
//!
//! ```text
//!   events ─► Script (slots instead of ids, a word each) ─► run(strategy) ─► alloc, write, die │ collection │ … ─► Run
//! ```
//!
//! Y1  A collection comes after a number of bytes of objects were allocated since the last one: the live bytes after
//!     that one (as the script has them), times growth - 1, and at least `least_bytes`. It depends only on the script,
//!     so all strategies collect at the same events. (V8 counts an area as allocated when it is taken; its collections
//!     move with the policy, by less than an area each.)
//! Y2  Each object is written whole when it is allocated, and its first word holds its slot: every collection reads the
//!     first word of everything that lives, and a wrong one is an overlap ([`Fault`]).
//! Y3  Time is this thread's processor time. `mutator` is the steps with their refills and lazy sweeping, collections
//!     not included; `marking` is the replay's own setting of marks, the same for all, and in no other figure.
//! Y4  Memory is sampled before and after each collection and every `SAMPLE` bytes allocated; means are over samples.
//!     `needed` is what any policy without moving needs at least: bytes of objects not yet found dead.
//! Y5  V8 sweeps on other threads while the mutator runs, and is done after a few milliseconds. The replay has one
//!     thread and must be the same every time: it sweeps a page after every `background_bytes` allocated. That time is
//!     in `background`, not in `mutator`.
//!
//! Not here: files (`objects`), tables (`cli`).

use std::time::Duration;

use super::list::Origin;
pub use super::samples::Size;
use super::samples::{SAMPLE, Samples};
use super::space::{Figures, MAX_BYTES, Settings, VarSpace};
use super::strategy::Strategy;

/// An event in the life of an object of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is allocated; each id is used once.
    Alloc {
        /// Its number.
        id: u64,
        /// Its size.
        bytes: u64,
        /// The part of the runtime that allocates it.
        origin: Origin,
    },
    /// It dies: a later collection does not find it.
    Death {
        /// Its number.
        id: u64,
    },
}

/// A step, packed: tag (2 bits), words (30), slot (32).
#[derive(Clone, Copy)]
struct Packed(u64);

const DEATH: u64 = 3;

impl Packed {
    /// Returns the side that allocates: 0 the mutator, 1 the collector; `None`: neither.
    fn side(self) -> Option<usize> {
        let tag = self.0 & 3;
        (tag != DEATH).then_some(usize::from(tag == Origin::Gc as u64))
    }
}

/// A trace that is ready to be run many times.
#[derive(Default)]
pub struct Script {
    steps: Vec<Packed>,
    slots: u32,
    /// Number of objects above [`MAX_BYTES`], which have mappings of their own, whatever the policy.
    pub large_objects: u64,
    /// Bytes of these objects.
    pub large_bytes: u64,
    /// Number of the other objects.
    pub objects: u64,
    /// Bytes of these, rounded up to words.
    pub bytes: u64,
    /// The most bytes of these that lived at once.
    pub peak_live_bytes: u64,
}

impl Script {
    /// Packs a trace, at most `most` allocations of it. A death of an unknown object is skipped.
    pub fn new(trace: impl Iterator<Item = Step>, most: u64) -> Script {
        let mut script = Script::default();
        let mut slot_of = std::collections::HashMap::new();
        let mut vacant = Vec::new();
        let mut live = 0;
        for step in trace {
            match step {
                Step::Alloc { .. } if script.objects >= most => break,
                Step::Alloc { bytes, .. } if bytes > u64::from(MAX_BYTES) => {
                    script.large_objects += 1;
                    script.large_bytes += bytes;
                }
                Step::Alloc { id, bytes, origin } => {
                    let slot = vacant.pop().unwrap_or_else(|| {
                        script.slots += 1;
                        script.slots - 1
                    });
                    let words = bytes.div_ceil(8).max(2);
                    script
                        .steps
                        .push(Packed(origin as u64 | words << 2 | u64::from(slot) << 32));
                    slot_of.insert(id, (slot, words));
                    script.objects += 1;
                    script.bytes += words * 8;
                    live += words * 8;
                    script.peak_live_bytes = script.peak_live_bytes.max(live);
                }
                Step::Death { id } => {
                    if let Some((slot, words)) = slot_of.remove(&id) {
                        script.steps.push(Packed(DEATH | u64::from(slot) << 32));
                        vacant.push(slot);
                        live -= words * 8;
                    }
                }
            }
        }
        script
    }

    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Reports whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// How a script is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Y1: what is allocated may grow to this many times the live bytes.
    pub growth: f64,
    /// Y1: bytes between collections, at least.
    pub least_bytes: u64,
    /// Y5: bytes allocated for each page that is swept beside the mutator. 0: none is.
    pub background_bytes: u64,
    /// The settings of the space.
    pub settings: Settings,
    /// Whether all invariants are asserted after each collection. Times mean nothing then.
    pub check: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            growth: 2.0,
            least_bytes: 2 << 20,
            background_bytes: 16 << 10,
            settings: Settings::default(),
            check: false,
        }
    }
}

/// The figures of a strategy with a script.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Time of the steps with refills and lazy sweeping (Y3): what the mutator allocates.
    pub mutator: Duration,
    /// The same time for what the collector allocates (promotion), which V8 does on other threads.
    pub promotion: Duration,
    /// Time of sweeping beside the mutator (Y5).
    pub background: Duration,
    /// Time of all sweeping.
    pub sweeping: Duration,
    /// Time of finishing the last cycle's sweeping, when collections begin.
    pub finishing: Duration,
    /// Time from the end of marking until allocation can go on: giving back empty pages, sorting, evacuation, purging.
    pub ending: Duration,
    /// The longest `finishing` + `ending`: end-of-cycle latency.
    pub latency_max: Duration,
    /// Number of collections.
    pub collections: u64,
    /// Bytes of objects marked, over all collections.
    pub marked_bytes: u64,
    /// Pages of the space.
    pub committed: Size,
    /// Pages of the space, and descriptors.
    pub with_tables: Size,
    /// Pages of the kernel that were written to.
    pub resident: Size,
    /// The least that is needed (Y4).
    pub needed: Size,
    /// Wasted words, as bytes.
    pub wasted: Size,
    /// The figures of the space at the end.
    pub figures: Figures,
}

impl Run {
    /// Returns all processor time except that of marking.
    pub fn total(&self) -> Duration {
        self.mutator + self.promotion + self.background + self.finishing + self.ending
    }
}

/// Why a run has no figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The kernel refused address space.
    Refused,
    /// The limit is too small for the script.
    Limit,
    /// Something was written over an object: a strategy handed out a block twice (Y2).
    Overlap,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Refused => "the kernel refused the address space; lower --heap-limit",
            Fault::Limit => "what lives does not fit into the limit; raise --heap-limit",
            Fault::Overlap => {
                "an object was overwritten: this is a fault of Skinflint, please report it"
            }
        })
    }
}

impl std::error::Error for Fault {}

pub(crate) fn cpu_now() -> Duration {
    Duration::from_nanos(cpu_ns())
}

/// Returns the processor time of this thread, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a pointer to a value of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

struct Player {
    space: VarSpace,
    /// The first word of each slot's object; 0: none.
    at: Vec<u32>,
    plan: Plan,
    since: u64,
    due_at: u64,
    since_sample: u64,
    since_sweep: u64,
    /// Nanoseconds of sweeping beside, within the mutator's steps and the collector's.
    background_ns: [u64; 2],
    spent: [Duration; 2],
    side: usize,
    /// Bytes of objects not yet found dead (Y4).
    undead: u64,
    samples: Samples,
    run: Run,
}

impl Player {
    fn sample(&mut self, after: bool) {
        self.since_sample = 0;
        self.samples.add(&self.space.figures(), self.undead, after);
    }

    fn collect(&mut self) -> Result<(), Fault> {
        self.sample(false);
        let start = cpu_now();
        self.space.begin();
        let finished = cpu_now() - start;
        self.mark_all()?;
        let start = cpu_now();
        let (at, space) = (&mut self.at, &mut self.space);
        let base = space.address(0);
        // The live bytes are not known yet; the bytes allocated in the last cycle are the best guess.
        let wanted = self.since as usize;
        let live = space.end(wanted, &mut |_, to| {
            // SAFETY: the object was just copied there, its second number is its slot.
            let slot = unsafe { base.add(to as usize * 8).cast::<u32>().add(1).read() };
            at[slot as usize] = to;
        });
        let ended = cpu_now() - start;
        self.run.finishing += finished;
        self.run.ending += ended;
        self.run.latency_max = self.run.latency_max.max(finished + ended);
        self.run.collections += 1;
        self.run.marked_bytes += live as u64;
        if self.plan.check {
            self.space.check();
            self.space.check_marked();
        }
        self.undead = live as u64;
        self.since = 0;
        let grown = (live as f64 * (self.plan.growth - 1.0)) as u64;
        self.due_at = grown.max(self.plan.least_bytes);
        self.sample(true);
        Ok(())
    }

    /// Marks all live objects. Not inlined, so that a profiler of instructions can leave it out by name.
    #[inline(never)]
    fn mark_all(&mut self) -> Result<(), Fault> {
        for (slot, word) in self.at.iter().enumerate().filter(|(_, word)| **word != 0) {
            // SAFETY: the object was allocated and has two words; Y2.
            let told = unsafe { self.space.address(*word).cast::<u32>().add(1).read() };
            if told != slot as u32 || !self.space.mark(*word) {
                return Err(Fault::Overlap);
            }
        }
        Ok(())
    }

    /// Runs all steps, and a last collection. Not inlined: this is what a profiler of instructions counts.
    #[inline(never)]
    fn play(&mut self, steps: &[Packed]) -> Result<(), Fault> {
        let mut started = cpu_now();
        for step in steps {
            if let Some(side) = step.side()
                && side != self.side
            {
                let now = cpu_now();
                self.spent[self.side] += now - started;
                (self.side, started) = (side, now);
            }
            self.step(*step)?;
            if self.since_sample >= SAMPLE {
                self.spent[self.side] += cpu_now() - started;
                if self.since >= self.due_at {
                    self.collect()?;
                } else {
                    self.sample(false);
                }
                started = cpu_now();
            }
        }
        self.spent[self.side] += cpu_now() - started;
        self.collect()?;
        self.space.finish_sweep();
        Ok(())
    }

    fn step(&mut self, step: Packed) -> Result<(), Fault> {
        let slot = (step.0 >> 32) as usize;
        let tag = step.0 & 3;
        if tag == DEATH {
            self.at[slot] = 0;
            return Ok(());
        }
        let words = (step.0 as u32) >> 2;
        let origin = Origin::ALL[tag as usize % 3];
        let bytes = words * 8;
        let object = match self.space.alloc(bytes, origin) {
            Some(object) => object,
            None => {
                self.collect()?;
                self.space.alloc(bytes, origin).ok_or(Fault::Limit)?
            }
        };
        // SAFETY: the space gave this many words, whose first four bytes are its own.
        unsafe {
            let start = object.as_ptr();
            start.cast::<u32>().add(1).write(slot as u32);
            start.add(8).write_bytes(slot as u8, bytes as usize - 8);
        }
        self.at[slot] = self.space.word_of(object);
        self.undead += u64::from(bytes);
        self.since += u64::from(bytes);
        self.since_sample += u64::from(bytes);
        self.since_sweep += u64::from(bytes);
        if self.since_sweep >= self.plan.background_bytes && self.plan.background_bytes > 0 {
            self.since_sweep = 0;
            let before = self.space.sweeping_ns();
            self.space.sweep_next();
            self.background_ns[self.side] += self.space.sweeping_ns() - before;
        }
        Ok(())
    }
}

/// Runs a script under a strategy.
///
/// # Errors
/// The limit is too small, or something is wrong with the strategy.
pub fn run(script: &Script, strategy: Strategy, plan: Plan) -> Result<Run, Fault> {
    let settings = Settings {
        clock: Some(cpu_ns),
        ..plan.settings
    };
    let space = VarSpace::new(strategy, settings).ok_or(Fault::Refused)?;
    let mut player = Player {
        space,
        at: vec![0; script.slots as usize],
        plan,
        since: 0,
        due_at: plan.least_bytes,
        since_sample: 0,
        since_sweep: 0,
        background_ns: [0; 2],
        spent: [Duration::ZERO; 2],
        side: 0,
        undead: 0,
        samples: Samples::default(),
        run: Run::default(),
    };
    player.play(&script.steps)?;
    if plan.check {
        player.space.check();
    }
    let sweeping = Duration::from_nanos(player.space.figures().sweeping_ns_total);
    player.run.sweeping = sweeping;
    let [mutator, promotion] = player.background_ns.map(Duration::from_nanos);
    player.run.background = mutator + promotion;
    player.run.mutator = player.spent[0].saturating_sub(mutator);
    player.run.promotion = player.spent[1].saturating_sub(promotion);
    let sizes = player.samples.sizes();
    Ok(Run {
        committed: sizes.committed,
        with_tables: sizes.with_tables,
        resident: sizes.resident,
        needed: sizes.needed,
        wasted: sizes.wasted,
        figures: player.space.figures(),
        ..player.run
    })
}
