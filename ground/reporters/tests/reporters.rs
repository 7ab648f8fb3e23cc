//! Reporters, good and bad, on a real process.
//!
//! ```text
//!   panics │ hangs │ negative, too large, not bytes, mixed units ─► named, left out, the rest shown
//!   ten thousand lines ─► under 10 ms of CPU, and heap-allocated stays what it was
//! ```
//!
//! T1  Each fault is one reporter with sound ones before and after it, whose lines are complete to the byte.
//!
//! Not here: trees, files, the socket.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use skinflint_reporters::{
    Action, Clock, Entry, Kind, Measurement, Registration, Registry, Sink, Units,
};

/// The longest wait; after it the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a registry that gives up no reporter on a slow machine: two seconds are short beneath callgrind, or beside
/// other tests.
fn patient() -> Registry {
    Registry::with_deadline(10 * PATIENCE)
}

fn sound(registry: &Registry, name: &str, path: &'static str, bytes: usize) -> Registration {
    registry.add(name, move |out: &mut Sink<'_>| {
        out.heap(path, bytes, "Sound.");
    })
}

#[track_caller]
fn faults(measured: &Measurement, wanted: &[(&str, &str)]) {
    let found = measured.faults();
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for (fault, (name, what)) in found.iter().zip(wanted) {
        assert_eq!(fault.reporter, *name);
        assert!(fault.what.contains(what), "{fault}");
    }
}

#[test]
fn one_that_panics_is_named_and_left_out() {
    let registry = patient();
    let _a = sound(&registry, "first", "explicit/a", 1000);
    let _b = registry.add("bad", |out: &mut Sink<'_>| {
        out.heap("explicit/bad", 5, "Never seen.");
        panic!("no {}", "luck");
    });
    let _c = sound(&registry, "last", "explicit/a", 24);
    for _ in 0..3 {
        let measured = registry.measure();
        faults(&measured, &[("bad", "panicked: no luck")]);
        assert_eq!(measured.sum("explicit/a"), 1024);
        assert_eq!(measured.sum("explicit/bad"), 0);
    }
}

/// Waits for something that another thread does, for a minute at most.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn one_that_hangs_is_given_up_and_asked_again_when_it_is_back() {
    let clock = Clock::by_hand();
    let registry = Registry::with_clock(Duration::from_millis(100), clock.clone());
    // The phases: it hangs, may return, has returned, does not hang any more.
    const HANGS: u64 = 0;
    const MAY: u64 = 1;
    const BACK: u64 = 2;
    const SOUND: u64 = 3;
    let (phase, calls) = (Arc::new(AtomicU64::new(HANGS)), Arc::new(AtomicU64::new(0)));
    let _a = sound(&registry, "first", "explicit/a", 1000);
    let (is_in, called) = (phase.clone(), calls.clone());
    let _b = registry.add("slow", move |out: &mut Sink<'_>| {
        called.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed: a count
        out.heap("explicit/slow", 5, "Before.");
        // ORDER: Acquire and Release, here and below: phases follow one another.
        if is_in.load(Ordering::Acquire) == HANGS {
            clock.advance(Duration::from_millis(100));
            until("it may come back", || is_in.load(Ordering::Acquire) == MAY); // ORDER: as above
            // T1 of round.rs: the line is ignored.
            assert!(!out.heap("explicit/slow", 7, "Too late."));
            is_in.store(BACK, Ordering::Release); // ORDER: as above
        }
    });
    let _c = sound(&registry, "last", "explicit/c", 24);
    let measured = registry.measure();
    faults(&measured, &[("slow", "more than 100 ms")]);
    assert_eq!(
        (measured.sum("explicit/a"), measured.sum("explicit/c")),
        (1000, 24)
    );
    assert_eq!(measured.sum("explicit/slow"), 0);
    // The thread is still inside: the reporter is not asked again, so no second thread is lost.
    faults(&registry.measure(), &[("slow", "has not come back")]);
    assert_eq!(calls.load(Ordering::Relaxed), 1); // ORDER: Relaxed; as above
    phase.store(MAY, Ordering::Release); // ORDER: as above
    until("it comes back", || phase.load(Ordering::Acquire) == BACK); // ORDER: as above
    phase.store(SOUND, Ordering::Release); // ORDER: as above
    until("it is asked again", || {
        let measured = registry.measure();
        measured.faults().is_empty() && measured.sum("explicit/slow") == 5
    });
}

#[test]
fn nonsense_of_every_kind() {
    // A million lines take their time on a busy machine.
    let registry = Registry::with_deadline(Duration::from_secs(60));
    let _a = sound(&registry, "first", "explicit/a", 1000);
    let _things = sound(&registry, "things", "things/bytes", 7);
    let bad = |name: &'static str, path: &'static str, kind, units, amount| {
        registry.add(name, move |out: &mut Sink<'_>| {
            out.heap("explicit/with-the-bad-one", 3, "Goes with it.");
            let (process, description) = ("", "");
            out.add(&Entry {
                process,
                path,
                kind,
                units,
                amount,
                description,
            });
        })
    };
    let _bad = [
        bad("negative", "explicit/x", Kind::Heap, Units::Bytes, -5),
        bad("counts", "explicit/x", Kind::Heap, Units::Count, 5),
        bad("other", "explicit/x", Kind::Other, Units::Bytes, 5),
        bad("huge", "explicit/x", Kind::Heap, Units::Bytes, i64::MAX),
        bad(
            "computed",
            "explicit/heap-unclassified",
            Kind::Heap,
            Units::Bytes,
            5,
        ),
        bad("crooked", "explicit//x", Kind::Heap, Units::Bytes, 5),
        bad("mixed", "things/x", Kind::Other, Units::Count, 5),
    ];
    let _wraps = registry.add("wraps", |out: &mut Sink<'_>| {
        out.heap("explicit/x", 5usize.wrapping_sub(6), "Went below zero.");
    });
    let _floods = registry.add(
        "floods",
        |out: &mut Sink<'_>| {
            while out.count("many", 1, "Without end.") {}
        },
    );
    let _c = sound(&registry, "last", "explicit/c", 24);
    let measured = registry.measure();
    faults(
        &measured,
        &[
            ("negative", "negative"),
            ("counts", "must be bytes"),
            ("other", "heap or nonheap"),
            ("huge", "addresses"),
            ("computed", "computed"),
            ("crooked", "empty component"),
            ("mixed", "other units"),
            ("wraps", "negative"),
            ("floods", "million"),
        ],
    );
    assert_eq!(
        (measured.sum("explicit/a"), measured.sum("explicit/c")),
        (1000, 24)
    );
    assert_eq!(measured.sum("explicit/x"), 0);
    assert_eq!(measured.sum("explicit/with-the-bad-one"), 0);
    assert_eq!(measured.sum("many"), 0);
}

#[test]
fn rows_of_the_process_and_of_its_allocator_are_not_for_reporters() {
    let registry = patient();
    let before = registry.measure();
    let me = format!("by another name (pid {})", std::process::id());
    let claims = |process: String, path: &'static str, kind| {
        registry.add(path, move |out: &mut Sink<'_>| {
            out.add(&Entry {
                process: &process,
                path,
                kind,
                units: Units::Bytes,
                amount: 1 << 20,
                description: "Made up.",
            });
        })
    };
    let reserved = [
        "heap-allocated",
        "heap-mapped",
        "heap-slop",
        "resident",
        "resident/mine",
        "resident-by-kind/mine",
        "resident-unique",
        "resident-merged",
        "pss",
        "swap",
        "vsize",
        "threads",
    ];
    let mut kept: Vec<Registration> = Vec::new();
    for path in reserved {
        kept.push(claims(String::new(), path, Kind::Other));
        kept.push(claims(me.clone(), path, Kind::Other));
    }
    for path in ["explicit/heap-overhead/mine", "explicit/stacks"] {
        kept.push(claims(String::new(), path, Kind::Nonheap));
    }
    let _sound = sound(&registry, "last", "explicit/a", 24);
    // What a program reports about another process belongs to that process.
    let _of_a_child = claims("child (pid 1)".into(), "resident", Kind::Other);
    let measured = registry.measure();
    assert_eq!(
        measured.faults().len(),
        kept.len(),
        "{:#?}",
        measured.faults()
    );
    for fault in measured.faults() {
        let named = format!("{} = 1048576", fault.reporter);
        let said = fault.what.contains("built in") && fault.what.contains(&named);
        assert!(said, "{fault}");
    }
    assert_eq!(measured.sum("explicit/a"), 24);
    // One line each: the kernel's and the allocator's.
    for path in reserved {
        let of = |measured: &Measurement| {
            let own = |line: &Entry<'_>| line.path == path && line.process.is_empty();
            measured.lines().filter(own).count()
        };
        assert_eq!(of(&measured), of(&before), "{path}");
    }
}

#[test]
fn who_is_left_out_takes_no_other_along() {
    let registry = patient();
    let _bad = registry.add("bad", |out: &mut Sink<'_>| {
        out.bytes("things/a", 5, "Bytes, where others count.");
        panic!("no luck");
    });
    let _sound = registry.add("counts", |out: &mut Sink<'_>| {
        out.count("things/a", 3, "How many.");
    });
    let mut measured = registry.measure();
    faults(&measured, &[("bad", "no luck")]);
    assert_eq!(measured.sum("things"), 3);
    // The same holds for lines that are added afterwards.
    measured.also("bad too", |out| {
        out.bytes("others/a", 5, "Bytes.");
        out.fail("not this time");
    });
    measured.also("counts too", |out| {
        out.count("others/a", 4, "How many.");
    });
    faults(
        &measured,
        &[("bad", "no luck"), ("bad too", "not this time")],
    );
    assert_eq!(measured.sum("others"), 4);
}

/// Adds an action that reports that it has begun, and ends when it is told to.
fn held_up(
    registry: &Registry,
    name: &str,
) -> (Registration, mpsc::Receiver<()>, mpsc::Sender<()>) {
    held_up_by(registry, name, || ())
}

/// Adds such an action that does something before it waits.
fn held_up_by(
    registry: &Registry,
    name: &str,
    first: impl Fn() + Send + Sync + 'static,
) -> (Registration, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (began, begins) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let (began, ends) = (Mutex::new(began), Mutex::new(ends));
    let action = registry.on(Action::Gc, name, move || {
        began
            .lock()
            .expect("one at a time")
            .send(())
            .expect("the test");
        first();
        let _ = ends
            .lock()
            .expect("one at a time")
            .recv_timeout(Duration::from_secs(60));
        "done".into()
    });
    (action, begins, end)
}

#[test]
fn an_action_is_removed_when_it_has_ended() {
    let registry = patient();
    let (action, begins, end) = held_up(&registry, "slow");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| registry.act(Action::Gc));
        begins
            .recv_timeout(Duration::from_secs(60))
            .expect("it begins");
        assert!(!action.remove(Duration::from_millis(50)), "it still runs");
        end.send(()).expect("it waits");
        assert_eq!(asked.join().expect("it ends")[0].said, "done");
    });
    assert!(registry.act(Action::Gc).is_empty());
    // An action that ends meanwhile is waited for.
    let (action, begins, end) = held_up(&registry, "slow");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| registry.act(Action::Gc));
        begins
            .recv_timeout(Duration::from_secs(60))
            .expect("it begins");
        let removed = scope.spawn(|| action.remove(Duration::from_secs(60)));
        end.send(()).expect("it waits");
        assert!(removed.join().expect("it ends"));
        asked.join().expect("it ends");
    });
}

#[test]
fn an_action_that_hangs_is_named_and_holds_nobody_up() {
    let clock = Clock::by_hand();
    let registry = Registry::with_clock(Duration::from_millis(20), clock.clone());
    let once = AtomicBool::new(true);
    let (_slow, begins, end) = held_up_by(&registry, "slow", move || {
        // ORDER: Relaxed: a flag of one thread after the other. Five deadlines are an action's.
        if once.swap(false, Ordering::Relaxed) {
            clock.advance(Duration::from_millis(100));
        }
    });
    registry
        .on(Action::Gc, "quick", || "collected".into())
        .keep();
    let said = |registry: &Registry| -> Vec<(String, String)> {
        let done = registry.act(Action::Gc);
        done.into_iter().map(|one| (one.who, one.said)).collect()
    };
    let first = said(&registry);
    begins
        .recv_timeout(Duration::from_secs(60))
        .expect("it began");
    assert_eq!(first[0].0, "slow");
    assert!(first[0].1.contains("not come back"), "{first:?}");
    assert_eq!(first[1], ("quick".into(), "collected".into()));
    // It is not asked again, and that is reported.
    let second = said(&registry);
    assert!(second[0].1.contains("still runs"), "{second:?}");
    assert_eq!(second[1].1, "collected");
    assert!(begins.try_recv().is_err(), "it was asked again");
    assert!(registry.measure().faults().is_empty());
    // Sent twice: it may be asked again at once.
    end.send(()).expect("it waits");
    end.send(()).expect("it waits");
    until("it comes back", || said(&registry)[0].1 == "done");
}

#[test]
fn who_removes_himself_is_told_at_once() {
    let registry: &'static Registry = Box::leak(Box::new(Registry::with_deadline(PATIENCE)));
    let own: Arc<Mutex<Option<Registration>>> = Arc::default();
    let said: Arc<Mutex<Vec<bool>>> = Arc::default();
    let removes = || {
        let (own, said) = (own.clone(), said.clone());
        move || {
            let mine = own.lock().expect("it").take();
            let removed = mine.map(|one| one.remove(Duration::from_secs(600)));
            said.lock().expect("it").extend(removed);
        }
    };
    // If it had waited for itself, it would be past its deadline, and left out.
    let remove = removes();
    *own.lock().expect("it") = Some(registry.add("leaves", move |_: &mut Sink<'_>| remove()));
    assert!(registry.measure().faults().is_empty());
    let remove = removes();
    *own.lock().expect("it") = Some(registry.on(Action::Gc, "leaves", move || {
        remove();
        "left".into()
    }));
    assert_eq!(registry.act(Action::Gc)[0].said, "left");
    assert_eq!(*said.lock().expect("it"), [false, false]);
    assert!(registry.act(Action::Gc).is_empty());
}

#[test]
fn reporters_may_change_the_registry_and_removed_ones_do_not_run() {
    let registry: &'static Registry = Box::leak(Box::new(patient()));
    let calls = Arc::new(AtomicU64::new(0));
    let called = calls.clone();
    let counted = registry.add("counted", move |_: &mut Sink<'_>| {
        called.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed: a count
    });
    registry
        .add("adds", |out: &mut Sink<'_>| {
            out.heap("explicit/adds", 8, "Adds another.");
            sound(registry, "inner", "explicit/inner", 16).keep();
        })
        .keep();
    assert_eq!(registry.measure().sum("explicit/inner"), 0);
    assert_eq!(registry.measure().sum("explicit/inner"), 16);
    let before = calls.load(Ordering::Relaxed); // ORDER: Relaxed; as above
    assert_eq!(before, 2);
    assert!(counted.remove(PATIENCE));
    assert_eq!(registry.measure().sum("explicit/inner"), 32);
    assert_eq!(calls.load(Ordering::Relaxed), before); // ORDER: Relaxed; as above
}

#[test]
fn actions_run_in_order_and_one_that_panics_stops_nobody() {
    let registry = patient();
    assert!(!registry.can(Action::Minimize));
    registry
        .on(Action::Minimize, "a", || "dropped 5 bytes".into())
        .keep();
    registry.on(Action::Minimize, "b", || panic!("no")).keep();
    registry.on(Action::Gc, "c", || "collected".into()).keep();
    assert!(registry.can(Action::Minimize));
    let done = registry.act(Action::Minimize);
    let said: Vec<(&str, &str)> = done
        .iter()
        .map(|one| (one.who.as_str(), one.said.as_str()))
        .collect();
    assert_eq!(said[..2], [("a", "dropped 5 bytes"), ("b", "it panicked")]);
    assert_eq!(said[2].0, "the allocator");
    assert_eq!(registry.act(Action::Gc).len(), 1);
    assert!(registry.act(Action::Cc).is_empty());
}

/// Runs `ten_thousand_lines_alone` with this many measurements beneath a command, in a process of its own, so that no
/// other test allocates meanwhile. Returns the command's output.
fn lines_alone(mut beneath: std::process::Command, measurements: u32) -> String {
    let me = std::env::current_exe().expect("this test");
    beneath.arg(me).args([
        "--exact",
        "ten_thousand_lines_alone",
        "--nocapture",
        "--test-threads=1",
    ]);
    beneath.env("SKINFLINT_ALONE", measurements.to_string());
    let done = beneath
        .output()
        .expect("env, or valgrind, which `make test` needs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

/// Returns the instructions that these measurements took, counted by callgrind.
fn counted(measurements: u32) -> u64 {
    let mut valgrind = std::process::Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.env("SKINFLINT_COUNTED", "1");
    let said = lines_alone(valgrind, measurements);
    let count = said
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.parse().ok());
    count.unwrap_or_else(|| panic!("no count: {said}"))
}

/// Instructions are counted: time would depend on the machine and on what else it does.
#[test]
fn ten_thousand_lines_cost_little_and_are_not_in_their_own_figures() {
    lines_alone(std::process::Command::new("env"), 17);
    let each = (counted(3) - counted(1)) / 2;
    println!("10,000 lines: {each} instructions");
    // Unoptimised builds need more; the bar is for release builds.
    let bar = if cfg!(debug_assertions) { 240 } else { 40 };
    assert!(each < bar * 1_000_000, "{each}");
}

#[test]
fn ten_thousand_lines_alone() {
    let Some(measurements) = std::env::var_os("SKINFLINT_ALONE") else {
        return;
    };
    let measurements: u32 = measurements
        .to_str()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    let is_counted = std::env::var_os("SKINFLINT_COUNTED").is_some();
    let registry = patient();
    let paths: Vec<String> = (0..10_000)
        .map(|n| format!("explicit/documents/document-{}/part-{n}", n / 100))
        .collect();
    let _kept = registry.add("documents", move |out: &mut Sink<'_>| {
        for path in &paths {
            out.heap(path, 64, "A part of a document.");
        }
    });
    let allocated = || {
        let measured = registry.measure();
        assert_eq!(measured.sum("explicit/documents"), 640_000);
        measured.sum("heap-allocated")
    };
    // The first measurement finds the allocator. glibc's cache of a thread holds seven blocks of a size: until it is
    // full, each thread that ends leaves its vector of modules behind, 272 bytes.
    let before = if is_counted { 0 } else { 10 };
    for _ in 0..before {
        allocated();
    }
    let first = allocated();
    for _ in before + 1..measurements {
        // Beneath callgrind, threads end at other moments, and their blocks are released then.
        let now = allocated();
        assert!(
            now == first || is_counted,
            "a measurement has reported itself"
        );
    }
}

#[test]
fn what_only_this_thread_can_say() {
    let registry = patient();
    let mut measured = registry.measure();
    let own = std::rc::Rc::new(100usize);
    measured.also("heap of this thread", |out| {
        out.nonheap("explicit/gc/live", *own, "Live objects.");
    });
    measured.also("bad", |_| panic!("no"));
    assert_eq!(measured.sum("explicit/gc"), 100);
    faults(&measured, &[("bad", "no")]);
}
