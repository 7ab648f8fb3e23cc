//! The reporters and actions of a program, and its measurements.
//!
//! ```text
//!   add("images", reporter) ─► Registration ─ dropped ─► gone
//!   on(Action::Minimize, "caches", work) ─► Registration
//!   measure ─► figures of process and allocator ─► each reporter ─► Measurement { lines, faults }
//! ```
//!
//! R1  The figures of the process and of the allocator are taken before anything else is done, and lines are kept
//!     outside of the heap (store.S1): so a measurement does not report what it allocates.
//! R2  No lock of the registry is held while a reporter or an action runs: they may add and remove others.
//! R3  After [`Registration::remove`] has returned `true`, the reporter or action is not running and will not run.
//!
//! ```
//! use skinflint_reporters::{Registry, Sink};
//! let registry = Registry::new();
//! let _kept = registry.add("images", |out: &mut Sink<'_>| {
//!     out.heap("explicit/caches/images", 4096, "Decoded images.");
//! });
//! let measured = registry.measure();
//! assert_eq!(measured.sum("explicit/caches"), 4096);
//! assert!(measured.faults().is_empty());
//! ```
//!
//! Cost of a measurement: one thread, 0.1 to 1 µs per line, and what the reporters take; a look at the allocator
//! (`heap`), which takes milliseconds for each GiB.
//! Not here: trees and files (`tree`, `file`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::act::Doer;
pub use crate::act::Done;
use crate::busy::{self, Busy};
use crate::clock::Clock;
use crate::entry::Entry;
use crate::named::Note;
pub use crate::round::Reporter;
use crate::round::{Fault, Round, Sink, Slot};
use crate::store::Store;
use crate::{heap, process};

/// The longest wait for one reporter.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// An action may take this many times as long as a reporter: giving memory back is work.
const ACTION_DEADLINES: u32 = 5;

/// An action that a user can ask of a program, each separately.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Give back all memory that can be made or read again, such as caches.
    Minimize,
    /// Collect garbage.
    Gc,
    /// Collect cycles of counted objects.
    Cc,
}

impl Action {
    /// All actions.
    pub const ALL: [Action; 3] = [Action::Minimize, Action::Gc, Action::Cc];

    /// Returns its name on the socket, the page and the command line.
    pub fn name(self) -> &'static str {
        match self {
            Action::Minimize => "minimize",
            Action::Gc => "gc",
            Action::Cc => "cc",
        }
    }
}

#[derive(Default)]
struct Inner {
    slots: Vec<(u64, Arc<Slot>)>,
    doers: Vec<(u64, Action, Arc<Doer>)>,
}

/// Reporters and actions. A program has one ([`global`]); tests make their own.
pub struct Registry {
    inner: Arc<Mutex<Inner>>,
    deadline: Duration,
    clock: Clock,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

/// Returns the program's registry.
pub fn global() -> &'static Registry {
    static GLOBAL: std::sync::OnceLock<Registry> = std::sync::OnceLock::new();
    GLOBAL.get_or_init(Registry::new)
}

/// A reporter or action that was added; it is removed when this is dropped.
#[must_use = "what was added is removed when this is dropped; `keep` leaves it for good"]
pub struct Registration {
    inner: Arc<Mutex<Inner>>,
    id: u64,
    what: What,
}

/// The entry that a registration removes.
enum What {
    Reporter(Arc<Slot>),
    Action(Arc<Doer>),
}

impl What {
    fn busy(&self) -> &Busy {
        match self {
            What::Reporter(slot) => &slot.busy,
            What::Action(doer) => &doer.busy,
        }
    }
}

impl Registration {
    /// Leaves the reporter or action in the registry for as long as the program runs.
    pub fn keep(mut self) {
        self.id = 0;
    }

    /// Removes the reporter or action, and waits until it does not run (R3). `false`: it did not return in time, and
    /// still runs; what it uses must stay. One that removes itself gets `false` at once.
    #[must_use]
    pub fn remove(mut self, patience: Duration) -> bool {
        self.take_out();
        self.what.busy().remove(patience)
    }

    fn take_out(&mut self) {
        if self.id != 0 {
            let mut inner = lock(&self.inner);
            inner.slots.retain(|(id, _)| *id != self.id);
            inner.doers.retain(|(id, ..)| *id != self.id);
        }
        self.id = 0;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.take_out();
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) // ORDER: Relaxed: a number
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Registry {
        Registry {
            inner: Arc::default(),
            deadline: DEADLINE,
            clock: Clock::real(),
        }
    }

    /// Creates an empty registry that waits this long for a reporter.
    pub fn with_deadline(deadline: Duration) -> Registry {
        Registry {
            deadline,
            ..Registry::new()
        }
    }

    /// Creates an empty registry that waits this long for a reporter, by a clock that may be moved by hand.
    pub fn with_clock(deadline: Duration, clock: Clock) -> Registry {
        Registry {
            clock,
            ..Registry::with_deadline(deadline)
        }
    }

    /// Adds a reporter. If it is left out, the user reads its name. Any thread.
    pub fn add(&self, name: &str, reporter: impl Reporter + 'static) -> Registration {
        self.add_shared(name, Arc::new(reporter))
    }

    /// Adds a reporter that the program holds, too.
    pub fn add_shared(&self, name: &str, reporter: Arc<dyn Reporter>) -> Registration {
        let slot = Arc::new(Slot {
            name: name.to_owned(),
            reporter,
            busy: Busy::new(),
        });
        let id = next_id();
        lock(&self.inner).slots.push((id, Arc::clone(&slot)));
        Registration {
            inner: Arc::clone(&self.inner),
            id,
            what: What::Reporter(slot),
        }
    }

    /// Adds an action, which is done when the user asks for it, and returns its result in a few words. It runs on a
    /// thread of its own, and is waited for five times as long as a reporter ([`DEADLINE`]); one that takes longer is
    /// named and left running, and not asked again before it has returned.
    pub fn on(
        &self,
        action: Action,
        name: &str,
        work: impl Fn() -> String + Send + Sync + 'static,
    ) -> Registration {
        let (id, doer) = (next_id(), Arc::new(Doer::new(name, Box::new(work))));
        lock(&self.inner)
            .doers
            .push((id, action, Arc::clone(&doer)));
        Registration {
            inner: Arc::clone(&self.inner),
            id,
            what: What::Action(doer),
        }
    }

    /// Returns whether the registry has an action of this kind.
    pub fn can(&self, action: Action) -> bool {
        let inner = lock(&self.inner);
        inner.doers.iter().any(|(_, one, _)| *one == action)
    }

    /// Runs all actions of this kind in the order in which they were added, each for a bounded time ([`Registry::on`]).
    /// `Minimize` ends with the allocator giving back what is free.
    pub fn act(&self, action: Action) -> Vec<Done> {
        let doers: Vec<Arc<Doer>> = lock(&self.inner)
            .doers
            .iter()
            .filter(|(_, one, _)| *one == action)
            .map(|(.., doer)| Arc::clone(doer))
            .collect();
        let deadline = self.deadline.saturating_mul(ACTION_DEADLINES);
        let run = |one: &Arc<Doer>| one.run(deadline, &self.clock);
        let mut done: Vec<Done> = doers.iter().filter_map(run).collect();
        if action == Action::Minimize {
            let begin = Instant::now();
            let gave = heap::trim();
            done.push(Done {
                who: "the allocator".into(),
                said: match gave {
                    true => "gave free pages back".into(),
                    false => "had nothing to give back".into(),
                },
                took: begin.elapsed(),
            });
        }
        done
    }

    /// Waits until no reporter and no action runs, for use before the memory that they read is released. `false`: one
    /// still runs after `patience`, or this thread is inside one.
    pub fn settle(&self, patience: Duration) -> bool {
        let free = || {
            let inner = lock(&self.inner);
            let slots = inner.slots.iter().all(|(_, slot)| slot.busy.is_free());
            slots && inner.doers.iter().all(|(.., doer)| doer.busy.is_free())
        };
        !busy::inside() && busy::wait_until(free, patience)
    }

    /// Measures the process, the allocator, and all reporters.
    pub fn measure(&self) -> Measurement {
        self.measure_from(false, whole)
    }

    /// Measures as [`Registry::measure`] does, and asks which blocks each line of the heap has measured, which
    /// `skinflint dark-matter` joins with a recording. Cost: 16 bytes for each block, in mappings of its own; caches
    /// walk their entries.
    pub fn measure_with_blocks(&self) -> Measurement {
        self.measure_from(true, whole)
    }

    /// Measures the reporters alone, without the process and its allocator.
    pub fn measure_reporters(&self) -> Measurement {
        self.measure_from(false, |_| {})
    }

    fn measure_from(&self, with_blocks: bool, own: impl FnOnce(&mut Store)) -> Measurement {
        let begin = Instant::now();
        let mut store = Store::new();
        // R1: nothing is allocated before these figures are taken.
        own(&mut store);
        let space = process::address_space_bytes();
        let slots: Arc<[Arc<Slot>]> = {
            let inner = lock(&self.inner);
            inner
                .slots
                .iter()
                .map(|(_, slot)| Arc::clone(slot))
                .collect()
        };
        let round = Round::new(store, space).with_blocks(with_blocks);
        let round = Arc::new(round.with_clock(self.clock.clone()));
        round.ask(&slots, self.deadline);
        let (store, faults) = round.finish();
        Measurement {
            store,
            faults,
            when: SystemTime::now(),
            took: begin.elapsed(),
            address_space_bytes: space,
            with_blocks,
        }
    }
}

/// Takes the figures that are taken before reporters are asked (R1).
fn whole(store: &mut Store) {
    let allocator = heap::figures(store);
    // This process exists; without /proc its rows are missing.
    let _ = process::figures(allocator.as_ref(), store);
}

/// The report of a process about its memory at one moment.
pub struct Measurement {
    store: Store,
    faults: Vec<Fault>,
    when: SystemTime,
    took: Duration,
    address_space_bytes: u64,
    with_blocks: bool,
}

impl Measurement {
    /// Adds lines as a reporter would, on this thread: for what only this thread can read, such as a heap bound to it.
    pub fn also(&mut self, name: &str, report: impl FnOnce(&mut Sink<'_>)) {
        let round = Round::new(std::mem::take(&mut self.store), self.address_space_bytes)
            .with_blocks(self.with_blocks);
        round.here(name, report);
        let (store, faults) = round.finish();
        self.store = store;
        self.faults.extend(faults);
    }

    /// Returns all lines, in the order in which they came.
    pub fn lines(&self) -> impl Iterator<Item = Entry<'_>> {
        self.store.iter()
    }

    /// Returns all lines with the blocks that each has measured: none, unless the measurement asked for them
    /// ([`Registry::measure_with_blocks`]).
    pub fn lines_with_blocks(&self) -> impl Iterator<Item = (Entry<'_>, &[Note])> + Clone {
        self.store.iter_with_blocks()
    }

    /// Returns the reporters that were left out, and why.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns when the measurement ended.
    pub fn when(&self) -> SystemTime {
        self.when
    }

    /// Returns how long the measurement took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Returns the sum of the lines of this process at or below a path.
    pub fn sum(&self, path: &str) -> i64 {
        let below = |entry: &Entry<'_>| {
            entry.process.is_empty()
                && entry
                    .path
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.lines()
            .filter(below)
            .fold(0, |sum: i64, entry| sum.saturating_add(entry.amount))
    }
}
