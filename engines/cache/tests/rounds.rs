//! What rounds report: rows of listeners with nothing to give, waits in vain, the log's text, when a level falls.
//!
//! ```text
//!   a listener for each case ─► press, hook ─► rows, counts, text
//! ```
//!
//! P1  Nothing waits for a time to pass: a listener that is to take long waits for the test.
//!
//! Not here: what comes back (`bus`), the kernel's signals (`squeeze`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use skinflint_cache::bus::{Ask, Bus, Event, Gauge, Options, Row, Source};
use skinflint_cache::{Level, Listener, Mailbox, Rebuild};

/// The bound of a wait that ends in a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn quiet() -> Options {
    Options {
        stalls: false,
        groups: false,
        patience: PATIENCE,
        round: 2 * PATIENCE,
        ..Options::default()
    }
}

/// One bus at a time: a notifier goes from one to the next.
static ONE: Mutex<()> = Mutex::new(());

fn locked(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listener that does one thing.
struct Does(&'static str, fn() -> usize);

impl Listener for Does {
    fn name(&self) -> &str {
        self.0
    }

    fn rebuild(&self) -> Rebuild {
        Rebuild::Free
    }

    fn release(&self, _: Ask) -> usize {
        (self.1)()
    }
}

#[test]
fn who_panics_or_has_nothing_has_a_row_of_zeros() {
    let _one = locked(&ONE);
    let bus = Bus::start(quiet()).expect("a thread");
    let panics = Arc::new(Does("panics", || panic!("on purpose")));
    let empty = Arc::new(Does("empty", || 0));
    bus.join(&panics);
    bus.join(&empty);
    let event = bus.press(Level::Critical, PATIENCE).expect("answered");
    let [panics, empty] = &event.rows[..] else {
        panic!("{event}");
    };
    assert!(panics.panicked && !empty.panicked);
    assert_eq!(panics.dropped_bytes, 0, "what it dropped is unknown");
    // Nothing was trimmed or measured.
    assert_eq!(
        (empty.dropped_bytes, empty.came_back_bytes, empty.trim_ns),
        (0, 0, 0)
    );
}

/// Bytes that a listener may well need: a path or two, a table, an image's row.
const DEEP: usize = 180 << 10;

#[test]
fn a_listener_has_room_on_its_stack() {
    let _one = locked(&ONE);
    let bus = Bus::start(quiet()).expect("a thread");
    let deep = Arc::new(Does("deep", || {
        let mut room = [1u8; DEEP];
        std::hint::black_box(&mut room);
        room.iter().map(|byte| usize::from(*byte)).sum()
    }));
    bus.join(&deep);
    let event = bus.press(Level::Critical, PATIENCE).expect("answered");
    assert_eq!(event.rows[0].dropped_bytes, DEEP);
}

#[test]
fn calls_are_those_of_this_bus() {
    let _one = locked(&ONE);
    let bus = Bus::start(quiet()).expect("a thread");
    let (hook, context) = bus.hook();
    // SAFETY: a hook stays valid.
    unsafe { hook(context, 3, 1) };
    assert_eq!(bus.calls(), (1, 0));
    drop(bus);
    let next = Bus::start(quiet()).expect("a thread");
    assert_eq!(
        next.hook().1,
        context,
        "it has the notifier of the one before"
    );
    assert_eq!(next.calls(), (0, 0));
}

/// The lock that the listener below waits for.
static GATE: Mutex<()> = Mutex::new(());

#[test]
fn a_wait_that_no_round_answers_is_counted() {
    let _one = locked(&ONE);
    let short = Options {
        patience: Duration::from_millis(1),
        ..quiet()
    };
    let bus = Bus::start(short).expect("a thread");
    let long = Arc::new(Does("long", || {
        drop(locked(&GATE));
        0
    }));
    bus.join(&long);
    let gate = locked(&GATE);
    let (hook, context) = bus.hook();
    // SAFETY: a hook stays valid.
    unsafe { hook(context, 3, 1) };
    assert_eq!(bus.calls(), (1, 1));
    drop(gate);
    // The next round, with the wait that the caller gives, is answered.
    assert!(bus.press(Level::Critical, PATIENCE).is_some());
    assert_eq!(bus.calls(), (1, 1));
}

#[test]
fn a_box_that_was_served_is_empty() {
    let mailbox = Mailbox::new("heap", Rebuild::Free, Duration::ZERO, || ());
    let ask = Ask {
        level: Level::High,
        wanted_bytes: 100,
        until: Instant::now() + PATIENCE,
        waiting: [0; 8],
    };
    assert!(!mailbox.is_asked());
    assert_eq!((mailbox.release(ask), mailbox.late()), (0, 1));
    assert!(mailbox.is_asked(), "the ask stays in the box");
    let mut wanted = Vec::new();
    let mut serve = || {
        mailbox.serve(|ask| {
            wanted.push(ask.wanted_bytes);
            7
        });
    };
    serve();
    assert!(!mailbox.is_asked());
    serve();
    assert_eq!(wanted, [100], "asked once");
}

fn event(spared: usize) -> Event {
    Event {
        number: 3,
        at_ms: 61_007,
        source: Source::Program,
        level: Level::High,
        wanted_bytes: 500,
        before_bytes: 9_000,
        after_bytes: 8_000,
        rows: vec![Row {
            listener: "images".into(),
            rebuild: Rebuild::Decode,
            dropped_bytes: 1_200,
            came_back_bytes: 1_000,
            took_ns: 2_500_000,
            trim_ns: 100_000,
            panicked: false,
        }],
        spared,
        took_ns: 4_000_000,
    }
}

#[test]
fn the_text_of_a_round_says_who_was_not_asked() {
    let lines = |spared| {
        let text = event(spared).to_string();
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let [first, row] = &lines(0)[..] else {
        panic!("{:?}", lines(0));
    };
    assert_eq!(
        first,
        "pressure 3 at 61.007 s: high by program, wanted 500; resident 9000 -> 8000 (-1000 bytes) in 4.0 ms"
    );
    assert!(
        row.contains("images") && row.contains("2.5 ms + trim 0.1 ms"),
        "{row}"
    );
    assert_eq!(lines(1)[2..], ["  1 not asked: enough had come back"]);
    assert_eq!(lines(12)[2..], ["  12 not asked: enough had come back"]);
}

#[test]
fn a_level_falls_a_calm_time_after_its_last_signal() {
    let mut gauge = Gauge::new(10_000);
    assert_eq!(gauge.falls_at_ms(), None, "it is calm");
    gauge.signal(Level::High, 20_000);
    assert_eq!(gauge.falls_at_ms(), Some(30_000));
    gauge.signal(Level::Near, 25_000);
    assert_eq!(
        gauge.falls_at_ms(),
        Some(30_000),
        "a lower one keeps it not"
    );
    gauge.signal(Level::High, 27_000);
    assert_eq!(gauge.falls_at_ms(), Some(37_000));
    assert_eq!(gauge.pass(36_999), None);
    assert_eq!(gauge.pass(37_000), Some(Level::Near));
    assert_eq!(gauge.falls_at_ms(), Some(47_000));
}
