//! The pressure bus: the one place where pressure arrives, and from which memory is asked back.
//!
//! ```text
//!   kernel (watch) ──────────┐
//!   allocator (notifier: short) ─┼─► the thread "skinflint-bus": Gauge ─► round ─► Log
//!   press(), relieve() ──────┘        └─ between: ticks (expiry; limits go up again while it is calm)
//! ```
//!
//! B1  One thread, with all signals blocked, sleeps in poll. It ends when the [`Bus`] is dropped, which waits for it.
//! B2  Listeners are held weakly: a listener that was dropped is not asked any more.
//! B3  Rounds never overlap; all requests that came while one ran are answered by the next.
//! B4  Where a source is missing (no PSI, no control group, no right to watch), the bus works with the others and
//!     says so ([`Bus::sources`]).
//! B5  The caller of [`Bus::press`] and [`Bus::relieve`] waits for a bounded time.
//! B6  No panic of the program's own code ends the thread: a listener, its destructor, the function of
//!     [`Bus::on_event`]. None of it runs under a lock of the bus.
//! B7  A child of fork has no such thread: its copy of a bus answers no call, waits for no thread when it is dropped, and
//!     does not wake the parent's. The child may start one of its own.
//!
//! Cost at rest: a look at the group's room each second, where there is a limit; a tick each half second. No memory
//! but the log and the listeners' list.
//!
//! Sources: the order by cost of rebuilding, and one place for all of it, are Mozilla's "memory-pressure" notifications
//! and its AvailableMemoryWatcher; thresholds on stall time are PSI's (Weiner, 2018), as used by systemd and lmkd.
//!
//! Not here: what caches do (`store`, `discard`), the allocator's reserve (`alloc`).

#[cfg(test)]
mod bounds_tests;
mod event;
mod giveback;
mod group;
mod level;
mod listener;
mod mailbox;
mod notifier;
mod round;
mod tickets;
mod watch;

use std::ffi::c_void;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;

pub use event::{Event, KEPT, Row, Source};
pub use giveback::{Trim, resident};
pub use group::{Groups, Room, Version};
pub use level::{Gauge, Level, PAUSE_MS};
pub use listener::{Ask, Listener, Rebuild};
pub use mailbox::Mailbox;
use notifier::Notifier;
pub use watch::{Signal, SourceState, Watch};

/// Time between ticks: text metrics that expire after seconds are late by a tenth.
const TICK: Duration = Duration::from_millis(500);
/// How often the process's groups are looked up again.
const FOLLOW_TICKS: u32 = 10;

/// Settings of a bus: the signals that it watches, and how it gives memory back.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Gives free memory back to the system; found by name unless the program sets it ([`Trim::find`]).
    pub trim: Option<Trim>,
    /// How long a level lasts after its last signal.
    pub calm: Duration,
    /// Whether the kernel's stall information is watched.
    pub stalls: bool,
    /// Whether control groups are watched.
    pub groups: bool,
    /// How long a thread waits for a round when one of its allocations was refused: longer than rounds take, and short
    /// enough for a thread that may hold a lock.
    pub patience: Duration,
    /// How long a round may take; listeners see it as [`Ask::until`].
    pub round: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            trim: None,
            calm: Duration::from_secs(10),
            stalls: true,
            groups: true,
            patience: Duration::from_millis(500),
            round: Duration::from_millis(800),
        }
    }
}

type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

struct Shared {
    notifier: &'static Notifier,
    trim: Trim,
    round: Duration,
    begin: Instant,
    ending: AtomicU32,
    level: AtomicU32,
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
    log: Mutex<event::Log>,
    sources: Mutex<Vec<SourceState>>,
    /// The source of the signals of `press` and `relieve`, for the log.
    said: Mutex<Option<Source>>,
    on_event: Mutex<Option<OnEvent>>,
}

/// The bus. Any thread may use it; dropping it ends its thread.
pub struct Bus {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that started it (B7).
    process: u32,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bus {
    /// Starts a bus.
    ///
    /// # Errors
    /// No file descriptor or no thread can be had. A source that cannot be watched is no error (B4).
    pub fn start(options: Options) -> io::Result<Bus> {
        let notifier = Notifier::get()?;
        let shared = Arc::new(Shared {
            notifier,
            trim: options.trim.unwrap_or_else(Trim::find),
            round: options.round,
            begin: Instant::now(),
            ending: AtomicU32::new(0),
            level: AtomicU32::new(0),
            listeners: Mutex::default(),
            log: Mutex::default(),
            sources: Mutex::default(),
            said: Mutex::default(),
            on_event: Mutex::default(),
        });
        let watch = options.groups.then(|| Watch::new(options.stalls));
        if let Some(watch) = &watch {
            *locked(&shared.sources) = watch.state().to_vec();
        }
        let own = Arc::clone(&shared);
        let gauge = Gauge::new(options.calm.as_millis() as u64);
        let (serves, is_served) = std::sync::mpsc::sync_channel::<()>(1);
        let blocked = Blocked::all();
        let thread = std::thread::Builder::new()
            .name("skinflint-bus".into())
            .stack_size(256 << 10)
            .spawn(move || {
                own.notifier.serve(options.patience.as_nanos() as u64);
                let _ = serves.send(());
                Loop::new(own, watch, gauge).run();
            });
        drop(blocked);
        // From here on every request is answered. An error means that there is no thread, which is reported below.
        let _ = is_served.recv();
        match thread {
            Ok(thread) => Ok(Bus {
                shared,
                thread: Some(thread),
                process: sys::getpid(),
            }),
            Err(error) => {
                notifier.retire();
                Err(error)
            }
        }
    }

    /// Adds a listener; it stays until it is dropped (B2).
    pub fn join<L: Listener + 'static>(&self, listener: &Arc<L>) {
        let weak: Weak<L> = Arc::downgrade(listener);
        locked(&self.shared.listeners).push(weak);
    }

    /// Runs a round at this level, whatever came before: the button. Returns what it brought. `None`: the round did not
    /// end within `patience`; it goes on, and will be in the log. Also `None`, without a round: the level is calm, or
    /// the caller may not wait (the bus's own thread, a child of fork).
    pub fn press(&self, level: Level, patience: Duration) -> Option<Event> {
        self.ask(Source::Button, level, 0, patience)
    }

    /// Runs a round for a program that needs `wanted_bytes`, or was refused them: at [`Level::High`], so that listeners
    /// drop about as much, the cheapest first, and those that are dearer are spared once enough has come back: to the
    /// system, by resident memory, or to the allocator, by its count (glibc's malloc and ours have one; with others small
    /// values, which share their pages, are dropped several times over). What it brought is in the event;
    /// `press(Level::Critical)` drops everything. 0: it is unknown how much is needed, and the round is at
    /// [`Level::Critical`].
    pub fn relieve(&self, wanted_bytes: usize, patience: Duration) -> Option<Event> {
        let level = match wanted_bytes {
            0 => Level::Critical,
            _ => Level::High,
        };
        self.ask(Source::Program, level, wanted_bytes, patience)
    }

    fn ask(
        &self,
        source: Source,
        level: Level,
        wanted: usize,
        patience: Duration,
    ) -> Option<Event> {
        let notifier = self.shared.notifier;
        if level == Level::Calm || !notifier.may_wait() {
            return None;
        }
        *locked(&self.shared.said) = Some(source);
        notifier
            .ask(level, wanted, patience.as_nanos() as u64)
            .then(|| locked(&self.shared.log).events().pop())
            .flatten()
    }

    /// Reports whether this is the process that started it, and not a child of fork (B7).
    pub fn is_own(&self) -> bool {
        self.process == sys::getpid()
    }

    /// Returns how short memory is.
    pub fn level(&self) -> Level {
        // ORDER: a figure.
        Level::from_number(self.shared.level.load(Ordering::Relaxed))
    }

    /// Returns the last rounds, oldest first, and the number of rounds that are forgotten.
    pub fn events(&self) -> (Vec<Event>, u64) {
        let log = locked(&self.shared.log);
        (log.events(), log.forgotten())
    }

    /// Returns what is watched, what is not, and why.
    pub fn sources(&self) -> Vec<SourceState> {
        locked(&self.shared.sources).clone()
    }

    /// Returns the name of the function that gives memory back.
    pub fn trim(&self) -> &'static str {
        self.shared.trim.name()
    }

    /// Returns the number of calls by an allocator, and of the waits that were not answered in time.
    pub fn calls(&self) -> (u64, u64) {
        self.shared.notifier.counts()
    }

    /// Sets a function that runs with each round, on the bus's thread: for a log file or a page. It may use the bus, and
    /// set another in its place; one that panics is called again with the next round.
    pub fn on_event(&self, act: impl Fn(&Event) + Send + Sync + 'static) {
        let act: OnEvent = Arc::new(act);
        // The one before may be dropped here, and have a destructor that comes here again.
        let before = locked(&self.shared.on_event).replace(act);
        drop(before);
    }

    /// Returns a function and its context for an allocator's list of listeners: `skinflint_alloc::on_pressure`, or
    /// `skinflint_on_pressure` of `skinflint.h`. It stays valid when the bus is gone, and then does nothing.
    pub fn hook(&self) -> (unsafe extern "C" fn(*mut c_void, i32, usize), *mut c_void) {
        let notifier: *const Notifier = self.shared.notifier;
        (notifier::short, notifier.cast_mut().cast())
    }

    /// Adds the hook to a preloaded or linked `libskinflint.so`, if there is one. `false`: there is none.
    pub fn hook_preloaded(&self) -> bool {
        type Add =
            unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void, i32, usize), *mut c_void) -> i32;
        // SAFETY: a name closed by a zero; nothing is called.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"skinflint_on_pressure".as_ptr()) };
        if found.is_null() {
            return false;
        }
        let (function, context) = self.hook();
        // SAFETY: the type is that of skinflint.h, and the hook may be called at any time (notifier.H2).
        unsafe { core::mem::transmute::<*mut c_void, Add>(found)(function, context) == 1 }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        if !self.is_own() {
            // B7. To detach it would be to write to the parent's thread's stack, which the child's next thread may have.
            std::mem::forget(self.thread.take());
            return;
        }
        // ORDER: the wake-up, a system call, comes after it; the thread looks after each. [reason: kernel]
        self.shared.ending.store(1, Ordering::Release);
        self.shared.notifier.wake();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// Blocks all signals while it lives: a thread that is made meanwhile has them blocked for ever (B1).
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> Blocked {
        // SAFETY: both sets are ours.
        unsafe {
            let mut all = core::mem::zeroed();
            let mut before = core::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            Blocked(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the mask is the one that was saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, core::ptr::null_mut()) };
    }
}

/// The state of the bus's thread.
struct Loop {
    shared: Arc<Shared>,
    watch: Option<Watch>,
    gauge: Gauge,
    rounds: u64,
    ticks: u32,
    next_tick: Instant,
    next_look: Instant,
}

impl Loop {
    fn new(shared: Arc<Shared>, watch: Option<Watch>, gauge: Gauge) -> Loop {
        let now = Instant::now();
        Loop {
            shared,
            watch,
            gauge,
            rounds: 0,
            ticks: 0,
            next_tick: now + TICK,
            next_look: now,
        }
    }

    fn run(mut self) {
        // ORDER: Acquire with `drop`; a look that comes too early is followed by the wake-up. [reason: kernel]
        while self.shared.ending.load(Ordering::Acquire) == 0 {
            let ready = self.sleep();
            // Taken before the sources are looked at: a request that came while a round ran is in the next one (B3).
            if let Some(rung) = self.shared.notifier.take() {
                let said = locked(&self.shared.said).take();
                let signal = Signal {
                    source: said.unwrap_or(Source::Allocator),
                    level: rung.level,
                    wanted_bytes: rung.wanted_bytes,
                };
                let now_ms = self.now_ms();
                self.gauge.signal(signal.level, now_ms);
                self.round(signal);
                self.shared.notifier.answer(rung.ticket);
            }
            self.look(&ready);
            self.tick();
            // ORDER: a figure.
            self.shared
                .level
                .store(self.gauge.level() as u32, Ordering::Relaxed);
        }
        self.shared.notifier.retire();
    }

    fn now_ms(&self) -> u64 {
        self.shared.begin.elapsed().as_millis() as u64
    }

    /// Sleeps until there is something to do; returns which files are ready.
    fn sleep(&self) -> Vec<bool> {
        let poll_of = |(fd, events)| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let mut polled = vec![poll_of((self.shared.notifier.fd(), libc::POLLIN))];
        if let Some(watch) = &self.watch {
            polled.extend(watch.polled().map(poll_of));
        }
        let until = match self.watch {
            Some(_) => self.next_tick.min(self.next_look),
            None => self.next_tick,
        };
        let left = until.saturating_duration_since(Instant::now());
        let left_ms = left.as_micros().div_ceil(1_000) as i32;
        // SAFETY: the array is ours, and as long as it says.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as u64, left_ms) };
        polled[1..]
            .iter()
            .map(|one| one.revents & (libc::POLLIN | libc::POLLPRI) != 0)
            .collect()
    }

    fn look(&mut self, ready: &[bool]) {
        let Some(watch) = &mut self.watch else { return };
        let now = Instant::now();
        if now < self.next_look && !ready.contains(&true) {
            return;
        }
        let signals = watch.signals(ready);
        self.next_look = now + Duration::from_millis(watch.look_again_ms());
        let Some(worst) = signals
            .into_iter()
            .max_by_key(|s| (s.level, s.wanted_bytes))
        else {
            return;
        };
        let now_ms = self.now_ms();
        if self.gauge.signal(worst.level, now_ms) {
            self.round(worst);
        }
    }

    fn listeners(&self) -> Vec<Arc<dyn Listener>> {
        let mut listeners = locked(&self.shared.listeners);
        listeners.retain(|one| one.strong_count() > 0);
        listeners.iter().filter_map(Weak::upgrade).collect()
    }

    fn round(&mut self, signal: Signal) {
        self.rounds += 1;
        let listeners = self.listeners();
        let waiting = self.shared.notifier.waiting();
        let what = round::What {
            signal,
            trim: self.shared.trim,
            bound: self.shared.round,
            waiting,
            at_ms: self.now_ms(),
            number: self.rounds,
        };
        let event = round::run(&listeners, what);
        let now_ms = self.now_ms();
        self.gauge
            .round(signal.level, round::is_little(&event), now_ms);
        // Called without the lock: it may set another function.
        let act = locked(&self.shared.on_event).clone();
        round::caught(|| {
            if let Some(act) = act {
                act(&event);
            }
        });
        locked(&self.shared.log).add(event);
        // B6: a listener that was let go meanwhile ends here.
        round::caught(|| drop(listeners));
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + TICK;
        self.ticks = self.ticks.wrapping_add(1);
        if let Some(watch) = &mut self.watch
            && self.ticks.is_multiple_of(FOLLOW_TICKS)
            && watch.follow()
        {
            *locked(&self.shared.sources) = watch.state().to_vec();
        }
        let now_ms = self.now_ms();
        self.gauge.pass(now_ms);
        let level = self.gauge.level();
        for listener in self.listeners() {
            // The other listeners have their turn (round.Q2).
            round::caught(|| {
                listener.tick(level);
                drop(listener);
            });
        }
    }
}
