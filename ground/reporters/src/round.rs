//! Asking the reporters, one after the other, on a thread that can be left behind.
//!
//! ```text
//!   measurer ─ spawns ─► worker: [reporter 1] [reporter 2] … ─► done
//!      │ waits, with a deadline for each       │ hangs: its lines are cut, and another worker goes on
//!      └───────────── State, one lock ─────────┘ behind it. What the first still reports is ignored.
//! ```
//!
//! T1  A line enters the store only under the lock and only from the worker of the present generation: a reporter
//!     that was given up changes nothing afterwards.
//! T2  A reporter's lines are all there or none: the lines of one that panics, reports nonsense or takes too long are
//!     removed, and it has a [`Fault`].
//! T3  A reporter that has not returned is not asked again before it has: so at most one thread is lost to it.
//! T4  Every wait has a bound: the deadline of one reporter times their number.
//!
//! A panic is contained in programs that unwind; a program built with `panic = "abort"` ends, as by any other panic.
//! Not here: which reporters there are (`registry`), what a sound line is (`entry`).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::busy::{Busy, Entered};
use crate::clock::Clock;
use crate::entry::{Entry, Kind, Units};
use crate::named::{self, Noting};
use crate::quiet;
use crate::store::{Mark, Store};

/// The most lines that one reporter may add.
pub const MOST_LINES: usize = 1_000_000;

/// Why a reporter was left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The reporter's name, as it was added.
    pub reporter: String,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reporter {:?} left out: {}", self.reporter, self.what)
    }
}

/// A reporter under its name.
pub(crate) struct Slot {
    pub name: String,
    pub reporter: Arc<dyn Reporter>,
    /// Whether a worker is inside it (T3).
    pub busy: Busy,
}

/// The state that measurer and workers share.
pub(crate) struct Round {
    state: Mutex<State>,
    moved: Condvar,
    clock: Clock,
    address_space_bytes: u64,
    /// Whether the measurement asks which blocks a line has measured.
    with_blocks: bool,
}

struct State {
    store: Store,
    faults: Vec<Fault>,
    generation: u32,
    /// The reporter that is being asked.
    current: Option<Current>,
    /// The index of the next reporter to be asked.
    next: usize,
    /// What was wrong with a line of the present reporter.
    nonsense: Option<String>,
    /// The units of each tree, by a hash of process and root: all rows of a tree are added up, so they have the same.
    units: Vec<(u64, Units)>,
    done: bool,
}

/// The reporter that is being asked, since when, and what was there before it (T2).
#[derive(Clone, Copy)]
struct Current {
    which: usize,
    begin: Duration,
    mark: Mark,
    /// The number of trees with known units.
    trees: usize,
}

/// Reports how much memory a part of the program holds.
///
/// It is called on a thread of the measurement, one reporter at a time, and may take locks of its own; it should
/// need far less than the deadline. What it allocates is not in the figures (registry.R1). Its lines count when it returns: if
/// it panics, or one of its lines is unsound, all are left out and the reporter is named.
pub trait Reporter: Send + Sync {
    /// Adds its lines to `out`.
    fn report(&self, out: &mut Sink<'_>);
}

impl<F: Fn(&mut Sink<'_>) + Send + Sync> Reporter for F {
    fn report(&self, out: &mut Sink<'_>) {
        self(out);
    }
}

/// The receiver of a reporter's lines.
pub struct Sink<'a> {
    round: &'a Round,
    generation: u32,
}

impl Sink<'_> {
    /// Adds a line of any kind. Texts are copied. `false`: the reporter has been given up and may as well return.
    pub fn add(&mut self, entry: &Entry<'_>) -> bool {
        let mut state = self.round.lock();
        if state.generation != self.generation || state.nonsense.is_some() {
            return false;
        }
        if let Err(what) = state.take(entry, self.round) {
            // The path may be hostile: it is shown, so it is escaped and its length has a bound.
            let path: String = entry.path.escape_debug().take(200).collect();
            state.nonsense = Some(format!("{what}: {path} = {}", entry.amount));
            return false;
        }
        true
    }

    /// Returns whether the measurement asks which blocks the lines have measured (`named`): a reporter that counts as
    /// it goes, and does not walk its data otherwise, has to walk it then.
    pub fn wants_blocks(&self) -> bool {
        self.round.with_blocks
    }

    /// Reports that the reporter cannot report: it is left out, with these words as the reason.
    pub fn fail(&mut self, what: &str) {
        let mut state = self.round.lock();
        if state.generation == self.generation && state.nonsense.is_none() {
            state.nonsense = Some(what.escape_debug().take(1000).collect());
        }
    }

    /// Adds a line: bytes in blocks of the allocator, as [`crate::size`] measures them.
    pub fn heap(&mut self, path: &str, bytes: usize, description: &str) -> bool {
        self.line(path, Kind::Heap, Units::Bytes, bytes as u64, description)
    }

    /// Adds a line: bytes in mappings that the allocator did not make; the resident bytes, if they are known.
    pub fn nonheap(&mut self, path: &str, bytes: usize, description: &str) -> bool {
        self.line(path, Kind::Nonheap, Units::Bytes, bytes as u64, description)
    }

    /// Adds a line: bytes that are counted elsewhere already, or are not the program's own. Not below `explicit/`.
    pub fn bytes(&mut self, path: &str, bytes: u64, description: &str) -> bool {
        self.line(path, Kind::Other, Units::Bytes, bytes, description)
    }

    /// Adds a line: the number of things that exist now.
    pub fn count(&mut self, path: &str, count: u64, description: &str) -> bool {
        self.line(path, Kind::Other, Units::Count, count, description)
    }

    /// Adds a line: the number of things since the start.
    pub fn cumulative(&mut self, path: &str, count: u64, description: &str) -> bool {
        self.line(path, Kind::Other, Units::Cumulative, count, description)
    }

    /// Adds a line: a part of a whole in percent; 0 of 0 is 0 percent.
    pub fn percent(&mut self, path: &str, part: u64, whole: u64, description: &str) -> bool {
        let hundredths = (u128::from(part) * 10_000)
            .checked_div(u128::from(whole))
            .unwrap_or(0);
        let hundredths = u64::try_from(hundredths).unwrap_or(u64::MAX);
        self.line(path, Kind::Other, Units::Percent, hundredths, description)
    }

    fn line(
        &mut self,
        path: &str,
        kind: Kind,
        units: Units,
        amount: u64,
        description: &str,
    ) -> bool {
        // A difference that fell below zero is a huge number here: it is made negative, which no size is.
        let amount = i64::try_from(amount).unwrap_or(-1);
        let process = "";
        self.add(&Entry {
            process,
            path,
            kind,
            units,
            amount,
            description,
        })
    }
}

impl State {
    fn take(&mut self, entry: &Entry<'_>, round: &Round) -> Result<(), &'static str> {
        entry.check(round.address_space_bytes)?;
        let begin = self.current.map_or(0, |current| current.mark.line());
        if self.store.len() - begin >= MOST_LINES {
            return Err("more than a million lines");
        }
        let tree = hash_of_tree(entry);
        match self.units.iter().find(|(known, _)| *known == tree) {
            Some((_, units)) if *units != entry.units => {
                return Err("other units than the rest of its tree");
            }
            Some(_) => {}
            None => self.units.push((tree, entry.units)),
        }
        if !self.store.push(entry) {
            return Err("no memory for another line");
        }
        match round.with_blocks {
            true => named::settle(entry, |notes| self.store.name_blocks(notes)),
            false => Ok(()),
        }
    }

    /// Begins the lines of a reporter.
    fn begin(&mut self, which: usize, now: Duration) {
        self.current = Some(Current {
            which,
            begin: now,
            mark: self.store.mark(),
            trees: self.units.len(),
        });
    }

    /// Ends the lines of a reporter: keeps them, or removes them and notes the fault (T2).
    fn settle(&mut self, name: &str, fault: Option<String>) {
        let Some(current) = self.current.take() else {
            return;
        };
        if let Some(what) = fault.or_else(|| self.nonsense.take()) {
            self.store.cut(current.mark);
            // Nor does it decide the units of other reporters' trees.
            self.units.truncate(current.trees);
            let reporter = name.to_owned();
            self.faults.push(Fault { reporter, what });
        }
        self.nonsense = None;
    }
}

/// Returns the FNV-1a hash of the process and the path's first component.
fn hash_of_tree(entry: &Entry<'_>) -> u64 {
    let root = entry
        .path
        .bytes()
        .take_while(|&byte| byte != b'/')
        .chain([0]);
    let bytes = root.chain(entry.process.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

impl Round {
    /// Creates a round that adds to the lines in `store`.
    pub(crate) fn new(store: Store, address_space_bytes: u64) -> Round {
        let mut units: Vec<(u64, Units)> = Vec::new();
        for entry in store.iter() {
            let tree = hash_of_tree(&entry);
            if units.iter().all(|(known, _)| *known != tree) {
                units.push((tree, entry.units));
            }
        }
        let state = State {
            store,
            faults: Vec::new(),
            generation: 0,
            current: None,
            next: 0,
            nonsense: None,
            units,
            done: false,
        };
        Round {
            state: Mutex::new(state),
            moved: Condvar::new(),
            clock: Clock::real(),
            address_space_bytes,
            with_blocks: false,
        }
    }

    /// Sets whether the reporters are asked for blocks, too.
    pub(crate) fn with_blocks(mut self, wanted: bool) -> Round {
        self.with_blocks = wanted;
        self
    }

    /// Sets the clock of the deadlines.
    pub(crate) fn with_clock(mut self, clock: Clock) -> Round {
        self.clock = clock;
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Reporters run outside of the lock, so what it guards is whole even if a reporter panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks one reporter on this thread, without a deadline.
    pub(crate) fn here(&self, name: &str, report: impl FnOnce(&mut Sink<'_>)) {
        let mut state = self.lock();
        let generation = state.generation;
        state.begin(0, self.clock.now());
        drop(state);
        let mut sink = Sink {
            round: self,
            generation,
        };
        let noting = self.with_blocks.then(Noting::begin);
        let fault = guarded(|| report(&mut sink));
        drop(noting);
        self.lock().settle(name, fault);
    }

    /// Asks all reporters, each for at most `deadline` (T4).
    pub(crate) fn ask(self: &Arc<Round>, slots: &Arc<[Arc<Slot>]>, deadline: Duration) {
        if slots.is_empty() {
            return;
        }
        let mut state = self.lock();
        let mut worker = self.spawn(slots, state.generation, &mut state.faults);
        state.done = worker.is_none();
        while !state.done {
            let left = state.current.map_or(deadline, |current| {
                deadline.saturating_sub(self.clock.now() - current.begin)
            });
            if left.is_zero() {
                let which = state.current.map_or(0, |current| current.which);
                if let Some(slot) = slots.get(which) {
                    let what = format!("it took more than {} ms", deadline.as_millis());
                    state.settle(&slot.name, Some(what));
                }
                state.generation += 1;
                let generation = state.generation;
                worker = self.spawn(slots, generation, &mut state.faults);
                state.done = worker.is_none();
                continue;
            }
            let waited = self.moved.wait_timeout(state, self.clock.sleep(left));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        // The last worker is past its reporters; what its thread holds is released before the next measurement.
        let _ = worker.map(JoinHandle::join);
    }

    /// Starts a worker. Without one no reporter is asked, which is a fault of its own.
    fn spawn(
        self: &Arc<Round>,
        slots: &Arc<[Arc<Slot>]>,
        generation: u32,
        faults: &mut Vec<Fault>,
    ) -> Option<JoinHandle<()>> {
        let (round, slots) = (Arc::clone(self), Arc::clone(slots));
        let work = move || round.work(&slots, generation);
        match quiet::spawn("skinflint-ask", work) {
            Ok(worker) => Some(worker),
            Err(error) => {
                faults.push(Fault {
                    reporter: "all".into(),
                    what: format!("no thread to ask them on: {error}"),
                });
                None
            }
        }
    }

    fn work(&self, slots: &[Arc<Slot>], generation: u32) {
        let _noting = self.with_blocks.then(Noting::begin);
        loop {
            let mut state = self.lock();
            if state.generation != generation {
                return;
            }
            let which = state.next;
            let Some(slot) = slots.get(which) else {
                state.done = true;
                self.moved.notify_all();
                return;
            };
            state.next += 1;
            state.begin(which, self.clock.now());
            let what = match slot.busy.enter() {
                Entered::In => None,
                Entered::Busy => Some("it has not come back since it was last asked".to_owned()),
                Entered::Removed => {
                    state.settle(&slot.name, None);
                    continue;
                }
            };
            if what.is_some() {
                state.settle(&slot.name, what);
                continue;
            }
            self.moved.notify_all();
            drop(state);
            let mut sink = Sink {
                round: self,
                generation,
            };
            let fault = guarded(|| slot.reporter.report(&mut sink));
            slot.busy.leave();
            if self.with_blocks {
                named::forget();
            }
            let mut state = self.lock();
            // T1: a worker that was given up settles nothing.
            if state.generation == generation {
                state.settle(&slot.name, fault);
            }
        }
    }

    /// Returns the lines and faults. Workers that still hold the round belong to no generation any more.
    pub(crate) fn finish(&self) -> (Store, Vec<Fault>) {
        let mut state = self.lock();
        state.generation = u32::MAX;
        let (store, faults) = (&mut state.store, Store::new());
        let store = std::mem::replace(store, faults);
        (store, std::mem::take(&mut state.faults))
    }
}

/// Runs `work`; returns the words of its panic if it panicked.
pub(crate) fn guarded(work: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    // The destructor of the panic's value may panic, too.
    std::mem::forget(panic);
    Some(format!(
        "it panicked: {}",
        said.as_deref().unwrap_or("(no message)")
    ))
}
