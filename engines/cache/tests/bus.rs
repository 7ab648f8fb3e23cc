//! The bus: order, sums, bounds, ends.
//!
//! ```text
//!   listeners with real ballast ─► press ─► events: order, dropped, came back
//! ```
//!
//! P1  What came back is compared with what was really resident: ballast is written to, and is large enough for the
//!     allocator to map it.
//!
//! Not here: the kernel's signals (`squeeze`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use skinflint_cache::bus::{Ask, Bus, Options, Source};
use skinflint_cache::{Cache, Level, Listener, Mailbox, Rebuild};

/// The bound of a wait that ends in a failure, and of everything that is to come sooner.
const PATIENCE: Duration = Duration::from_secs(60);

struct Ballast {
    name: &'static str,
    rebuild: Rebuild,
    held: Mutex<Vec<Vec<u8>>>,
    asked: AtomicUsize,
}

impl Ballast {
    fn new(name: &'static str, rebuild: Rebuild, mebibytes: usize) -> Arc<Ballast> {
        Arc::new(Ballast {
            name,
            rebuild,
            held: Mutex::new((0..mebibytes).map(|_| vec![1; 1 << 20]).collect()),
            asked: AtomicUsize::new(0),
        })
    }
}

impl Listener for Ballast {
    fn name(&self) -> &str {
        self.name
    }

    fn rebuild(&self) -> Rebuild {
        self.rebuild
    }

    fn release(&self, ask: Ask) -> usize {
        self.asked.fetch_add(1, Ordering::Relaxed); // ORDER: a count
        let mut held = self.held.lock().unwrap();
        let part = ask.of(held.len() << 20).div_ceil(1 << 20);
        let keep = held.len() - part;
        held.truncate(keep);
        part << 20
    }
}

fn quiet() -> Options {
    Options {
        stalls: false,
        groups: false,
        // A listener that ends earlier has ended by itself: the bounds that ship are a matter of seconds, and of the
        // machine.
        patience: PATIENCE,
        round: 2 * PATIENCE,
        ..Options::default()
    }
}

/// One test at a time: each measures the memory of the whole process.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    let one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    // What the test before left to the allocator is not to come back in a round of this one.
    skinflint_reporters::heap::trim();
    one
}

#[test]
fn listeners_are_asked_cheapest_first_and_what_came_back_adds_up() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let lose = Ballast::new("undo", Rebuild::Lose, 16);
    let decode = Ballast::new("images", Rebuild::Decode, 64);
    let compute = Ballast::new("layout", Rebuild::Compute, 32);
    bus.join(&lose);
    bus.join(&compute);
    bus.join(&decode);
    let event = bus.press(Level::Near, PATIENCE).unwrap();
    let names: Vec<&str> = event.rows.iter().map(|row| row.listener.as_str()).collect();
    // What the user would see goes only at the critical level.
    assert_eq!((names, event.spared), (vec!["images", "layout"], 1));
    assert_eq!((event.source, event.level), (Source::Button, Level::Near));
    let dropped: Vec<usize> = event
        .rows
        .iter()
        .map(|row| row.dropped_bytes >> 20)
        .collect();
    assert_eq!(dropped, [16, 8]);
    let event = bus.press(Level::Critical, PATIENCE).unwrap();
    let came: i64 = event.rows.iter().map(|row| row.came_back_bytes).sum();
    assert_eq!(came, event.came_back_bytes(), "{event}");
    for row in &event.rows {
        let missing = row.dropped_bytes as i64 - row.came_back_bytes;
        assert!(missing.abs() < 2 << 20, "{event}");
    }
    assert_eq!(event.rows.len(), 3);
    assert!(event.came_back_bytes() > 85 << 20, "{event}");
    assert_eq!(bus.events().0.len(), 2);
    // A listener that was dropped is not asked.
    drop(lose);
    assert_eq!(bus.press(Level::Critical, PATIENCE).unwrap().rows.len(), 2);
}

#[test]
fn a_known_wish_is_enough_and_spares_the_dear_ones() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let cheap = Ballast::new("cheap", Rebuild::Free, 8);
    let dear = Ballast::new("dear", Rebuild::Fetch, 8);
    bus.join(&dear);
    bus.join(&cheap);
    // Half a mebibyte less than what the cheap one drops then: what else happens in the process is not to decide.
    let wanted = (4 << 20) - (512 << 10);
    let event = bus.relieve(wanted, PATIENCE).unwrap();
    assert_eq!(
        (event.source, event.rows.len(), event.wanted_bytes),
        (Source::Program, 1, wanted)
    );
    assert_eq!(
        (event.rows[0].listener.as_str(), event.spared),
        ("cheap", 1)
    );
    let held = |of: &Ballast| of.held.lock().unwrap().len();
    let (left, untouched) = (held(&cheap), held(&dear));
    assert!(
        left > 0 && untouched > 0,
        "about as much as was wanted: {event}"
    );
    // It is not known how much: everything, as at the button.
    let event = bus.relieve(0, PATIENCE).unwrap();
    assert_eq!(event.rows.len(), 2);
    assert_eq!(held(&cheap) + held(&dear), 0);
}

#[derive(Default)]
struct Panics(AtomicUsize);

impl Listener for Panics {
    fn name(&self) -> &str {
        "panics"
    }
    fn rebuild(&self) -> Rebuild {
        Rebuild::Free
    }
    fn release(&self, _: Ask) -> usize {
        panic!("on purpose")
    }
    fn tick(&self, _: Level) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed); // ORDER: a count
        panic!("on purpose, too")
    }
}

#[test]
fn a_listener_that_panics_is_named_and_the_round_goes_on() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let (bad, good) = (
        Arc::new(Panics::default()),
        Ballast::new("good", Rebuild::Decode, 8),
    );
    bus.join(&bad);
    bus.join(&good);
    let event = bus.press(Level::Critical, PATIENCE).unwrap();
    assert!(event.rows[0].panicked && event.rows[0].listener == "panics");
    assert_eq!(event.rows[1].dropped_bytes, 8 << 20);
    assert!(event.to_string().contains("(panicked)"));
    let end = Instant::now() + PATIENCE;
    // ORDER: a count.
    while bad.0.load(Ordering::Relaxed) < 2 {
        assert!(Instant::now() < end, "it is not ticked again");
        std::thread::sleep(Duration::from_millis(10)); // CLOCK: poll step of a bounded wait
    }
    assert!(
        bus.press(Level::Critical, PATIENCE).is_some(),
        "its ticks panic, too"
    );
}

/// A thread that holds a cache's lock and is refused memory waits for the bus, which wants that lock: both waits end.
#[test]
fn a_refusal_under_a_caches_lock_ends() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let cache: Arc<Cache<u64, Vec<u8>>> = Cache::named("held").build();
    cache.insert(1, vec![0; 1 << 20], Duration::from_secs(1));
    bus.join(&cache);
    let (hook, context) = bus.hook();
    // SAFETY: the bus lives.
    cache.with(&1, |_| unsafe { hook(context, 3, 4_096) });
    // Had the cache not given up its wait first, the refused thread would have: in vain.
    assert_eq!(
        bus.calls(),
        (1, 0),
        "it was answered, with what could be had"
    );
    assert!(cache.stats().busy > 0);
    assert_eq!(cache.stats().entries, 1);
    // With the lock free again, the cache gives.
    bus.press(Level::Critical, PATIENCE).unwrap();
    assert_eq!(cache.stats().entries, 0);
}

#[test]
fn an_owner_is_asked_on_his_thread_and_one_who_sleeps_is_not_waited_for() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let (wake, woken) = std::sync::mpsc::channel();
    let served = Arc::new(Mailbox::new(
        "heap",
        Rebuild::Free,
        2 * PATIENCE,
        move || {
            let _ = wake.send(());
        },
    ));
    bus.join(&served);
    let mut ballast = vec![vec![1u8; 1 << 20]; 16];
    std::thread::scope(|scope| {
        let pressed = scope.spawn(|| bus.press(Level::Critical, PATIENCE).unwrap());
        woken.recv_timeout(PATIENCE).unwrap();
        served.serve(|ask| {
            assert_eq!(ask.level, Level::Critical);
            ballast.clear();
            16 << 20
        });
        let event = pressed.join().unwrap();
        assert_eq!(event.rows[0].dropped_bytes, 16 << 20);
        assert!(event.came_back_bytes() > 14 << 20, "{event}");
    });
    // An owner whose own allocation was refused waits for the round: it is not waited for, or both waits would be in
    // vain.
    let (hook, context) = bus.hook();
    // SAFETY: a hook stays valid.
    unsafe { hook(context, 3, 1) };
    assert_eq!((bus.calls(), served.late()), ((1, 0), 1));
    drop(served);
    let patience = Duration::from_millis(50);
    let mailbox = Arc::new(Mailbox::new("asleep", Rebuild::Free, patience, || ()));
    bus.join(&mailbox);
    // The round may take longer than the press waits: it ends by the box's patience.
    let event = bus.press(Level::Critical, PATIENCE).expect("in time");
    assert_eq!((event.rows[0].dropped_bytes, mailbox.late()), (0, 1));
    // A late answer still gives memory back.
    let mut served = false;
    mailbox.serve(|_| {
        served = true;
        0
    });
    assert!(served);
}

/// Returns the threads of this process with that name, with their blocked signals.
fn threads() -> Vec<u64> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let of = |name: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(name))
                .unwrap_or("")
                .trim()
        };
        if of("Name:") == "skinflint-bus" {
            found.push(u64::from_str_radix(of("SigBlk:"), 16).unwrap());
        }
    }
    found
}

#[test]
fn its_thread_takes_no_signal_ends_with_it_and_leaves_nothing_open() {
    let _one = alone();
    let bus = Bus::start(Options::default()).unwrap();
    bus.press(Level::Near, PATIENCE).unwrap();
    let blocked = threads();
    assert_eq!(blocked.len(), 1);
    // All signals that can be blocked: not KILL and STOP, nor the two that glibc keeps for itself.
    let may_not = 1 << 8 | 1 << 18 | 1 << 31 | 1 << 32;
    assert_eq!(blocked[0] | may_not, u64::MAX);
    // The starting thread's own signals are as they were.
    let mine = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(
        mine.lines()
            .any(|l| l.starts_with("SigBlk:") && l.trim_end().ends_with("0000000000000000"))
    );
    drop(bus);
    assert_eq!(threads().len(), 0);
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..100 {
        let bus = Bus::start(Options::default()).unwrap();
        drop(bus);
    }
    assert_eq!(open(), before);
    // A hook that an allocator still has does nothing then.
    let gone = Options {
        patience: 10 * PATIENCE,
        ..quiet()
    };
    let (hook, context) = Bus::start(gone).unwrap().hook();
    let (done, is_done) = std::sync::mpsc::channel();
    let context = context as usize;
    std::thread::spawn(move || {
        // SAFETY: a hook stays valid.
        unsafe { hook(context as *mut _, 3, 1) };
        let _ = done.send(());
    });
    is_done.recv_timeout(PATIENCE).expect("nobody waits for it");
}

#[test]
fn many_ask_at_once_and_all_are_answered() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let (hook, context) = bus.hook();
    let context = context as usize;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                for _ in 0..50 {
                    // SAFETY: as above.
                    unsafe { hook(context as *mut _, 1, 100) };
                }
            });
        }
    });
    assert_eq!(bus.calls(), (400, 0));
    let (events, forgotten) = bus.events();
    assert!(events.len() as u64 + forgotten <= 400);
    assert!(
        events
            .iter()
            .all(|e| e.source == Source::Allocator && e.level == Level::High)
    );
    assert_eq!(
        events.last().unwrap().number,
        events.len() as u64 + forgotten
    );
}

/// Says that it dropped more than there is, and drops nothing.
struct Boaster;

impl Listener for Boaster {
    fn name(&self) -> &str {
        "boaster"
    }

    fn rebuild(&self) -> Rebuild {
        Rebuild::Free
    }

    fn release(&self, _: Ask) -> usize {
        usize::MAX
    }
}

#[test]
fn what_is_said_is_bounded_and_ends_no_round() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let boaster = Arc::new(Boaster);
    let images = Ballast::new("images", Rebuild::Decode, 16);
    bus.join(&boaster);
    bus.join(&images);
    let event = bus.relieve(8 << 20, PATIENCE).unwrap();
    assert_eq!(event.rows.len(), 2, "{event}");
    let said = &event.rows[0];
    assert_eq!(said.listener, "boaster");
    assert!(said.dropped_bytes <= event.before_bytes, "{event}");
    assert!(event.rows[1].dropped_bytes >= 8 << 20, "{event}");
}

/// Panics where it is told to; its name is not short, to be seen when it is missing.
struct PanicsIn(&'static str);

impl Listener for PanicsIn {
    fn name(&self) -> &str {
        assert_ne!(self.0, "name", "on purpose");
        self.0
    }
    fn rebuild(&self) -> Rebuild {
        assert_ne!(self.0, "rebuild", "on purpose");
        Rebuild::Free
    }
    fn release(&self, _: Ask) -> usize {
        0
    }
}

#[test]
fn no_panic_of_the_program_ends_the_thread() {
    let _one = alone();
    let bus = Bus::start(quiet()).unwrap();
    let (name, rebuild) = (PanicsIn("name"), PanicsIn("rebuild"));
    let (name, rebuild) = (Arc::new(name), Arc::new(rebuild));
    let good = Ballast::new("good", Rebuild::Decode, 1);
    bus.join(&name);
    bus.join(&rebuild);
    bus.join(&good);
    let told = Arc::new(AtomicUsize::new(0));
    let tell = Arc::clone(&told);
    bus.on_event(move |_| {
        tell.fetch_add(1, Ordering::Relaxed); // ORDER: a count
        panic!("on purpose")
    });
    for round in 1..=2 {
        let event = bus.press(Level::Critical, PATIENCE).unwrap();
        let rows: Vec<_> = event.rows.iter().collect();
        let said = rows
            .iter()
            .map(|row| (row.listener.as_str(), row.rebuild, row.panicked));
        assert!(said.eq([
            ("", Rebuild::Free, true),
            ("good", Rebuild::Decode, false),
            ("rebuild", Rebuild::Lose, true),
        ]));
        // ORDER: a count.
        assert_eq!(told.load(Ordering::Relaxed), round);
    }
}

#[test]
fn what_runs_with_each_round_may_use_the_bus() {
    let _one = alone();
    let bus = Arc::new(Bus::start(quiet()).unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    let (own, first) = (Arc::downgrade(&bus), Arc::clone(&told));
    bus.on_event(move |event| {
        first.lock().unwrap().push(("first", event.number));
        let Some(bus) = own.upgrade() else { return };
        assert!(bus.press(Level::High, PATIENCE).is_none(), "its own thread");
        let second = Arc::clone(&first);
        bus.on_event(move |event| second.lock().unwrap().push(("second", event.number)));
    });
    for _ in 0..2 {
        bus.press(Level::High, PATIENCE).unwrap();
    }
    assert_eq!(*told.lock().unwrap(), [("first", 1), ("second", 2)]);
}

/// Five caches, the cheapest first, filled in turn, so that each page has values of all of them.
fn filled_in_turn(bytes: usize) -> Vec<Arc<Cache<u64, Vec<u8>>>> {
    let of = |rebuild| {
        Cache::named(format!("{rebuild}"))
            .limit_bytes(64 << 20)
            .rebuild(rebuild)
            .build()
    };
    let caches = [
        Rebuild::Free,
        Rebuild::Decode,
        Rebuild::Compute,
        Rebuild::Fetch,
        Rebuild::Lose,
    ];
    let caches: Vec<Arc<Cache<u64, Vec<u8>>>> = caches.map(of).into();
    let mut key = 0;
    while caches[0].bytes() < 4 << 20 {
        for cache in &caches {
            cache.insert(key, vec![1; bytes], Duration::ZERO);
        }
        key += 1;
    }
    caches
}

#[test]
fn what_is_asked_back_of_small_values_is_about_what_is_dropped() {
    let _one = alone();
    for bytes in [200, 4_000] {
        let bus = Bus::start(quiet()).unwrap();
        let caches = filled_in_turn(bytes);
        caches.iter().for_each(|cache| bus.join(cache));
        let all = |caches: &[Arc<Cache<_, _>>]| -> usize { caches.iter().map(|c| c.bytes()).sum() };
        // Less than the cheapest has, and more.
        for (wanted, asked) in [(2 << 20, 1), (6 << 20, 3)] {
            let before = all(&caches);
            let event = bus.relieve(wanted, PATIENCE).unwrap();
            let dropped = before - all(&caches);
            // Tables go as a whole, and shares of a page are not measured: a quarter more at most.
            let about = wanted - wanted / 16..=wanted + wanted / 4;
            assert!(about.contains(&dropped), "{dropped} for {wanted}\n{event}");
            assert!(event.rows.len() <= asked, "the cheapest first: {event}");
        }
    }
}
