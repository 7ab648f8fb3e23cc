//! How often threads would wait for each other on a machine with as many processors as threads.
//!
//! ```text
//!   law, seed ─► what each of N threads does next ─► round: each does it, one after the other ─► which locks it took
//!                                                      └─► taken by k threads in one round: k − 1 of them had waited
//! ```
//!
//! ```sh
//! cargo run --release -p skinflint-alloc --features counted --example contention -- [--threads 64] [--rounds 2000] [--seed 1] [LAW …]
//! ```
//!
//! N1  Threads are real, with heaps of their own, and run the allocator's own code; only one runs at a time, so no clock and no
//!     scheduler has a part in what is counted: the same arguments give the same figures, but for a few tenths, since the
//!     heap's address is drawn anew.
//! N2  The model is a bound from above: the operations of a round begin at the same moment and hold a lock as long as any
//!     other. Real threads meet less often.
//! N3  The purger is off: what waits for it is not counted.
//!
//! Not here: instructions with a lock prefix (`bench/alloc/locked.py`).

use std::alloc::System;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};

use skinflint_alloc::check::counted;
use skinflint_alloc::stats::{Snapshot, snapshot};
use skinflint_base::random::Random;

// What the bench itself needs does not come from the allocator that it counts.
#[global_allocator]
static OTHER: System = System;

const LAWS: [(&str, &str); 4] = [
    (
        "own",
        "256 slots each of 16 bytes to 4 KiB by a power law, replaced at random",
    ),
    (
        "handed",
        "the same, and every fourth block is given back by another thread",
    ),
    ("large", "8 slots each of 32 to 400 KiB"),
    (
        "phases",
        "1,000 blocks of 16 to 512 bytes are taken, then all given back",
    ),
];

thread_local! {
    static TAKEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn note(lock: usize) {
    // A thread that ends takes locks when this is gone: they are no operation's.
    _ = TAKEN.try_with(|taken| taken.borrow_mut().push(lock));
}

/// A block as a number, so that it may pass between threads.
struct Thread {
    random: Random,
    slots: Vec<usize>,
    step: usize,
}

fn malloc(bytes: usize) -> usize {
    // SAFETY: none needed; the block has at least one byte.
    unsafe {
        let block = skinflint_alloc::malloc(bytes);
        assert!(!block.is_null());
        block.write(1);
        block.addr()
    }
}

fn free(block: usize) {
    // SAFETY: a block that its only owner gives up; 0 is none.
    unsafe { skinflint_alloc::free(std::ptr::with_exposed_provenance_mut(block)) };
}

impl Thread {
    fn size(&mut self, law: &str) -> usize {
        match law {
            "large" => (32 << 10) + self.random.below(368 << 10) as usize,
            "phases" => 16 + self.random.below(496) as usize,
            // Each doubling half as likely as the one before.
            _ => {
                (16 << self.random.below(1 << 32).trailing_ones().min(8))
                    - self.random.below(16) as usize
            }
        }
    }

    /// Does the next operation; `passed` is what another thread handed on.
    fn act(&mut self, law: &str, passed: &mut Vec<usize>) {
        let number = self.slots.len();
        let slot = match law {
            "phases" => self.step % number,
            _ => self.random.below(number as u64) as usize,
        };
        self.step += 1;
        let old = std::mem::take(&mut self.slots[slot]);
        if law == "phases" && old != 0 {
            return free(old);
        }
        if law == "handed" && self.step.is_multiple_of(4) {
            passed.push(old);
            free(passed.swap_remove(0));
        } else {
            free(old);
        }
        let bytes = self.size(law);
        self.slots[slot] = malloc(bytes);
    }
}

#[derive(Default)]
struct Counts {
    operations: u64,
    with_lock: u64,
    /// By what it guards: taken, and waited for.
    locks: BTreeMap<&'static str, (u64, u64)>,
}

/// What the threads share: whose turn it is, and what was taken in this round.
struct Table {
    turn: usize,
    round: BTreeMap<usize, BTreeSet<usize>>,
    passed: Vec<usize>,
    counts: Counts,
}

impl Table {
    fn after(&mut self, thread: usize, locks: &[usize]) {
        self.counts.operations += 1;
        self.counts.with_lock += u64::from(!locks.is_empty());
        for &lock in locks {
            self.counts.locks.entry(counted::name(lock)).or_default().0 += 1;
            self.round.entry(lock).or_default().insert(thread);
        }
    }

    fn end_round(&mut self) {
        for (lock, threads) in std::mem::take(&mut self.round) {
            let waited = threads.len() as u64 - 1;
            self.counts.locks.entry(counted::name(lock)).or_default().1 += waited;
        }
    }
}

fn run(law: &'static str, threads: usize, rounds: usize, seed: u64) {
    let shared = Arc::new((
        Mutex::new(Table {
            turn: 0,
            round: BTreeMap::new(),
            passed: vec![0; threads],
            counts: Counts::default(),
        }),
        (0..threads).map(|_| Condvar::new()).collect::<Vec<_>>(),
    ));
    let warm = rounds / 2;
    let workers: Vec<_> = (0..threads)
        .map(|own| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let slots = match law {
                    "large" => 8,
                    "phases" => 1_000,
                    _ => 256,
                };
                let mut thread = Thread {
                    random: Random::new(seed ^ ((own as u64 + 1) << 32)),
                    slots: vec![0; slots],
                    step: 0,
                };
                let (table, turned) = &*shared;
                for round in 0..=rounds {
                    let mut table = turned[own]
                        .wait_while(table.lock().expect("no panic"), |table| table.turn != own)
                        .expect("no panic");
                    TAKEN.with_borrow_mut(Vec::clear);
                    if round < rounds {
                        thread.act(law, &mut table.passed);
                    } else {
                        thread.slots.drain(..).for_each(free);
                    }
                    let locks = TAKEN.with_borrow_mut(std::mem::take);
                    // What heaps take to begin with is no contention of a program that runs.
                    if (warm..rounds).contains(&round) {
                        table.after(own, &locks);
                    }
                    table.turn = (own + 1) % threads;
                    if table.turn == 0 {
                        table.end_round();
                    }
                    turned[table.turn].notify_one();
                }
                // The heap stays this thread's until all have ended.
                let last = turned[own]
                    .wait_while(table.lock().expect("no panic"), |table| table.turn != own)
                    .expect("no panic");
                drop(last);
                if own == 0 {
                    report(law, threads, table);
                }
                table.lock().expect("no panic").turn = own + 1;
                if let Some(next) = turned.get(own + 1) {
                    next.notify_one();
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no panic");
    }
    let passed = std::mem::take(&mut shared.0.lock().expect("no panic").passed);
    passed.into_iter().for_each(free);
}

fn report(law: &str, threads: usize, table: &Mutex<Table>) {
    let mut figures = Snapshot::new();
    assert!(snapshot(&mut figures, false));
    let table = table.lock().expect("no panic");
    let counts = &table.counts;
    let each = |count: u64| count as f64 * 1_000.0 / counts.operations as f64;
    print!(
        "{law:8} {threads:3} threads: of 1,000 operations {:6.1} took a lock;",
        each(counts.with_lock)
    );
    for (name, (taken, waited)) in &counts.locks {
        print!(
            " {name}: {:.1} taken, {:.2} waited;",
            each(*taken),
            each(*waited)
        );
    }
    let stuck = figures.magazine_bytes + figures.current_bytes + figures.empty_bytes;
    println!(
        " after all was given back {} KiB a heap stay",
        stuck / threads / 1_024
    );
}

/// Runs one row by itself: what heaps of an earlier one hold is no part of it.
fn child(law: &str, numbers: [usize; 3]) {
    let own = std::env::current_exe().expect("this program");
    let [threads, rounds, seed] = numbers.map(|number| number.to_string());
    let status = std::process::Command::new(own)
        .args([
            "--row",
            law,
            "--threads",
            &threads,
            "--rounds",
            &rounds,
            "--seed",
            &seed,
        ])
        .status();
    assert!(status.expect("this program").success(), "{law}");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut threads, mut rounds, mut seed, mut laws) = (64, 2_000, 1, Vec::new());
    let mut is_row = false;
    while let Some(word) = arguments.next() {
        let mut number = || {
            let number = arguments.next().and_then(|text| text.parse().ok());
            number.expect("a number")
        };
        match word.as_str() {
            "--threads" => threads = number(),
            "--rounds" => rounds = number(),
            "--seed" => seed = number(),
            "--row" => is_row = true,
            _ => laws.push(word),
        }
    }
    skinflint_alloc::allow_purger(false);
    counted::watch(note);
    for (law, what) in LAWS {
        if !laws.is_empty() && !laws.iter().any(|word| word == law) {
            continue;
        }
        if is_row {
            run(law, threads, rounds, seed as u64);
            continue;
        }
        println!("{law}: {what}");
        for count in [2, 8, threads] {
            child(law, [count, rounds, seed]);
        }
    }
}
