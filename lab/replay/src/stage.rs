//! State that all threads share: mailboxes, waits, and how the program ends early.
//!
//! ```text
//!   feed ── post ──► part.ring[4] ── take ──► its player        part = one recorded thread
//!   a thread that waits for a slot spins, then sleeps on `notifier`; one that does an operation wakes those that wait
//! ```
//!
//! H1  A ring's entry is written by the feed before `posted` is raised (Release) and read after it was seen
//!     (Acquire). At most `LEAD` are on their way (feed.E1), so none is overwritten.
//! H2  `tally`, `handle` and `stack` of a part belong to its thread, or to the thread that starts or joins it; `fed`
//!     to the feed.
//! H3  Every sleep has a limit. If all threads stay asleep while nothing moves, the script cannot go on, and the
//!     program reports that.
//!
//! Not here: operations (player.rs), reading the script (feed.rs).

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use skinflint_replay::script::Header;

use crate::feed::Feed;
use crate::line::Line;
use crate::memory::Memory;
use crate::options::Options;
use crate::slots::Slot;
use crate::system;
use crate::tally::Tally;
use crate::threads::Threads;

/// The number of entries of a mailbox; a power of two, at least `LEAD`.
const RING: usize = 4;
/// The longest that a thread sleeps before it looks again.
const MAILBOX_NS: u64 = 1_000_000_000;
const WAIT_NS: u64 = 1_000_000;
/// The number of looks before a thread sleeps: some microseconds, about the cost of sleeping and waking.
const MAILBOX_SPINS: u32 = 400;
const WAIT_SPINS: u32 = 400;
/// The time for which nothing moves and all sleep before the script is stuck.
const STUCK_NS: u64 = 4_000_000_000;

/// A chunk that waits to be played.
#[derive(Clone, Copy)]
pub struct Posted {
    /// Its words.
    pub words: *const u32,
    /// The number of words.
    pub count: usize,
    /// Its epoch.
    pub epoch: u32,
    /// The position of its words in the script.
    pub offset: u64,
    /// The time of its beginning in the recording, nanoseconds.
    pub time_ns: u64,
}

/// A recorded thread.
#[repr(C, align(128))]
pub struct Part {
    posted: AtomicU32,
    asleep: AtomicU32,
    ring: [UnsafeCell<Posted>; RING],
    /// 1 once started.
    pub started: AtomicU32,
    /// The epoch after the last one of which it got a chunk; it belongs to the feed.
    pub fed: UnsafeCell<u32>,
    /// Its thread (H2).
    pub handle: UnsafeCell<libc::pthread_t>,
    /// Its stack's number (H2).
    pub stack: UnsafeCell<usize>,
    /// Its counts (H2).
    pub tally: UnsafeCell<Tally>,
}

/// The state that all threads share.
pub struct Stage {
    /// Our memory.
    pub memory: Memory,
    /// The options of the command line.
    pub options: Options,
    /// The script's header.
    pub header: Header,
    /// The descriptor of the report.
    pub report_fd: i32,
    /// The cost of two looks at a thread's CPU clock, nanoseconds: chunks may be short.
    pub clock_ns: u64,
    /// The time when the first chunk was posted, monotonic nanoseconds.
    pub begun_ns: AtomicU64,
    /// The beginning of the schedule for `--paced`, moved by how late it was.
    pub schedule_ns: AtomicU64,
    /// The time by which it was moved, nanoseconds.
    pub late_ns: AtomicU64,
    /// The feed, owned by the thread that raised `feed_calls` from 0.
    pub feed: UnsafeCell<Feed>,
    /// Calls of the feed that are not answered.
    pub feed_calls: AtomicU32,
    /// Chunks of an epoch that are not done, by epoch modulo `LEAD`.
    pub remaining: [AtomicU32; skinflint_replay::script::LEAD as usize],
    /// 1 when the last epoch is done.
    pub over: AtomicU32,
    /// Starting and joining.
    pub threads: Threads,
    /// Threads that sleep until a slot changes.
    pub waiting: AtomicU32,
    notifier: AtomicU32,
    /// Number of threads that exist; `blocked` counts those of them that sleep in a wait of ours.
    pub alive: AtomicU32,
    blocked: AtomicU32,
    moves: AtomicU64,
    /// Epoch in the high half, slot in the low half, of the first violation; `u64::MAX` for none.
    pub first_violation: AtomicU64,
}

/// The one stage; set before a second thread exists.
static STAGE: AtomicPtr<Stage> = AtomicPtr::new(core::ptr::null_mut());

/// A watch over whether anything still moves.
pub struct Watch {
    moves: u64,
    since_ns: u64,
}

impl Stage {
    /// Puts a stage into its place in our memory.
    pub fn install(
        memory: Memory,
        options: Options,
        header: Header,
        report_fd: i32,
        feed: Feed,
    ) -> &'static Stage {
        let place: *mut Stage = memory.stage().cast();
        let stage = Stage {
            memory,
            options,
            header,
            report_fd,
            clock_ns: system::clock_cost_ns(),
            begun_ns: AtomicU64::new(0),
            schedule_ns: AtomicU64::new(0),
            late_ns: AtomicU64::new(0),
            feed: UnsafeCell::new(feed),
            feed_calls: AtomicU32::new(0),
            remaining: [const { AtomicU32::new(0) }; skinflint_replay::script::LEAD as usize],
            over: AtomicU32::new(0),
            threads: Threads::new(),
            waiting: AtomicU32::new(0),
            notifier: AtomicU32::new(0),
            alive: AtomicU32::new(1),
            blocked: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            first_violation: AtomicU64::new(u64::MAX),
        };
        // SAFETY: memory.A1: the area is ours, as long as a stage, aligned to a page, and lives for ever.
        unsafe { place.write(stage) };
        // ORDER: Release; pairs with the Acquire in `the`, though pthread_create orders it already.
        STAGE.store(place, Ordering::Release);
        Stage::the()
    }

    /// Returns the stage.
    pub fn the() -> &'static Stage {
        // ORDER: Acquire; pairs with the Release in `install`.
        let stage = STAGE.load(Ordering::Acquire);
        // SAFETY: called only after `install`, by threads that it came before; memory.A1.
        unsafe { &*stage }
    }

    /// Returns a recorded thread; its number must be below `header.threads`.
    pub fn part(&self, number: u32) -> &'static Part {
        debug_assert!(number < self.header.threads);
        let parts: *const Part = self.memory.parts().cast();
        // SAFETY: memory.A1 and memory.A3: zeros are a part that has not started, and there are as many as threads.
        unsafe { &*parts.add(number as usize) }
    }

    /// Returns the number of a recorded thread.
    pub fn number(&self, part: &Part) -> u32 {
        // SAFETY: all parts lie in one array (`part`).
        unsafe { core::ptr::from_ref(part).offset_from(self.part(0)) as u32 }
    }

    /// Returns the first slot; slots.S1 says which indices are valid.
    pub fn slots(&self) -> *const Slot {
        self.memory.slots().cast()
    }

    /// Returns the counts of all threads together. Call it only when all is quiet (tally.T1).
    pub fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        for number in 0..self.header.threads {
            // SAFETY: H2 and tally.T1: no thread writes while all is quiet.
            sum.add(unsafe { &*self.part(number).tally.get() });
        }
        sum
    }

    /// Puts a chunk into a mailbox (H1).
    pub fn post(&self, number: u32, chunk: Posted) {
        let part = self.part(number);
        // ORDER: Relaxed; only the feed raises it, and each feed has seen what the feed before did (AcqRel of
        //       `feed_calls`).
        let posted = part.posted.load(Ordering::Relaxed);
        // SAFETY: H1: this entry has been played.
        unsafe { *part.ring[posted as usize % RING].get() = chunk };
        // ORDER: SeqCst with the three in `take`: either the sleeper sees the new count, or we see it asleep. As a
        // Release it publishes the entry.
        part.posted.store(posted.wrapping_add(1), Ordering::SeqCst);
        // ORDER: SeqCst, see above.
        if part.asleep.swap(0, Ordering::SeqCst) != 0 {
            system::futex_wake(&part.posted);
        }
    }

    /// Returns the next chunk of a part that has taken `taken` chunks; `None` when the script is over.
    pub fn take(&self, part: &Part, taken: u32) -> Option<Posted> {
        // ORDER: Acquire; pairs with the store in `post` (H1).
        let is_there = || part.posted.load(Ordering::Acquire) != taken;
        // ORDER: Acquire; pairs with the Release in `end`.
        let is_over = || self.over.load(Ordering::Acquire) != 0;
        let mut spins = 0;
        while !is_there() && spins < MAILBOX_SPINS {
            core::hint::spin_loop();
            spins += 1;
        }
        if !is_there() {
            let mut watch = self.fall_asleep();
            while !is_there() && !is_over() {
                // ORDER: SeqCst with those in `post`.
                part.asleep.store(1, Ordering::SeqCst);
                // ORDER: SeqCst with those in `post`; again after `asleep` is set.
                if part.posted.load(Ordering::SeqCst) == taken && !is_over() {
                    system::futex_wait(&part.posted, taken, MAILBOX_NS);
                }
                self.look(&mut watch);
            }
            self.wake_up();
            if !is_there() {
                return None;
            }
        }
        // SAFETY: H1.
        Some(unsafe { *part.ring[taken as usize % RING].get() })
    }

    /// Ends the script: wakes all threads that sleep.
    pub fn end(&self) {
        // ORDER: Release; pairs with the Acquire in `take`.
        self.over.store(1, Ordering::Release);
        // The main thread ends the program; the others stay where they are, as they did in the recording.
        system::futex_wake(&self.part(self.header.main).posted);
    }

    /// Waits until `is_so`, which another thread's operation makes true.
    #[cold]
    #[inline(never)]
    pub fn wait_for(&self, is_so: &mut dyn FnMut() -> bool) {
        for _ in 0..WAIT_SPINS {
            core::hint::spin_loop();
            if is_so() {
                return;
            }
        }
        let mut watch = self.fall_asleep();
        // ORDER: Relaxed; a thread that does not see it rings at its next operation, or we look again after
        //       `WAIT_NS`.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        loop {
            // ORDER: Acquire; pairs with the Release in `ring`.
            let notifier = self.notifier.load(Ordering::Acquire);
            if is_so() {
                break;
            }
            system::futex_wait(&self.notifier, notifier, WAIT_NS);
            self.look(&mut watch);
        }
        // ORDER: Relaxed; see above.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.wake_up();
    }

    /// Wakes the threads that may wait for what was done.
    #[cold]
    #[inline(never)]
    pub fn ring(&self) {
        // ORDER: Release; pairs with the Acquire in `wait_for`.
        self.notifier.fetch_add(1, Ordering::Release);
        system::futex_wake(&self.notifier);
    }

    /// Notes that a chunk is done: something moved.
    pub fn moved(&self) {
        // ORDER: Relaxed; a count, for `look` only.
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn fall_asleep(&self) -> Watch {
        // ORDER: Relaxed; a count, for `look` only.
        self.blocked.fetch_add(1, Ordering::Relaxed);
        // ORDER: Relaxed; a count, for `look` only.
        let moves = self.moves.load(Ordering::Relaxed);
        Watch {
            moves,
            since_ns: system::now_ns(),
        }
    }

    fn wake_up(&self) {
        // ORDER: Relaxed; counts, for `look` only.
        self.blocked.fetch_sub(1, Ordering::Relaxed);
        self.moved();
    }

    /// Ends the program if nothing moves any more (H3).
    fn look(&self, watch: &mut Watch) {
        // ORDER: Relaxed, all three; what is not yet seen is seen at the next look.
        let moves = self.moves.load(Ordering::Relaxed);
        let awake = self.blocked.load(Ordering::Relaxed) != self.alive.load(Ordering::Relaxed);
        let now_ns = system::now_ns();
        if moves != watch.moves || awake {
            *watch = Watch {
                moves,
                since_ns: now_ns,
            };
        } else if now_ns - watch.since_ns > STUCK_NS {
            self.fail(3, u64::MAX, b"every thread waits for another: an operation that one of them needs is missing; compile the trace again");
        }
    }

    /// Ends the program: prints what is wrong with the script and where.
    pub fn fail(&self, status: i32, offset: u64, what: &[u8]) -> ! {
        fail(
            self.options.script.to_bytes(),
            self.report_fd,
            status,
            offset,
            what,
        )
    }
}

/// Does what [`Stage::fail`] does while there is no stage yet. `offset` is a byte of the script, or `u64::MAX`.
pub fn fail(script: &[u8], report_fd: i32, status: i32, offset: u64, what: &[u8]) -> ! {
    let mut text = Line::new();
    text.raw(b"skinflint-replay: ");
    text.raw(script);
    if offset != u64::MAX {
        text.raw(b": at byte ");
        text.decimal(offset);
    }
    text.raw(b": ");
    text.raw(what);
    text.raw(b"\n");
    text.write_to(2);
    if report_fd >= 0 {
        let mut line = Line::object(b"error");
        line.number(b"status", status as u64);
        if offset != u64::MAX {
            line.number(b"offset", offset);
        }
        line.text(b"what", what);
        line.close_to(report_fd);
    }
    system::exit_now(status)
}
