//! Threads that do nothing any more: what they hold goes back while they wait, and at once at a trim.
//!
//! ```text
//!   threads   blocks, frees ──► wait ─────────────────────────────────► end
//!   main                          └─ the purger's ticks, or a trim ─► Rss of this process ≤ the bound
//! ```
//!
//! I1  The bound is 40 KB for each thread, its stack and its heap's own data in it, beside what the process had before
//!     any of it; with live blocks, 1.15 of their page floor more. Rss is the kernel's figure, of smaps_rollup.
//! I2  Where nothing can be taken from threads (no rseq), each is asked, and gives up what it holds when it next fills a
//!     magazine: there they are woken for one block, which they may keep a
//!     magazine for.
//! I3  Nothing here judges a clock: a condition is waited for, a minute at most.
//!
//! One test: memory and purger are the process's. Not here: that no block is lost (`services::idle::tests`).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use skinflint_alloc::check::{check_invariants, hasten_purger, sweep_no_peak, takes_from_idle};
use skinflint_alloc::{allow_purger, free, malloc, options, trim};

const THREADS: usize = 200;
const BLOCKS: usize = 200;
const ROUNDS: usize = 5;
const EACH_KB: usize = 40;
/// The most bytes of a block: with the first, the blocks that a thread frees all stay in its magazines, so that nothing of
/// it comes to a slow path.
const SMALL: usize = 500;
const ANY: usize = 4_000;
/// Looks of a wait that ends in a failure: a minute at least.
const TRIES: usize = 12_000;
/// The size that a thread asks for when it is woken, which it had not used before, and the pages of what its magazine then
/// gets: two blocks.
const OTHER_SIZE: usize = 5_000;
const OTHER_KB: usize = 16;

fn rss_kb() -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").expect("this process");
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let words = line.and_then(|line| line.split_whitespace().next());
    words.and_then(|word| word.parse().ok()).expect("a number")
}

/// A block that was written to from end to end.
fn block(random: &mut u32, most: usize) -> (usize, usize) {
    *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let bytes = 16 + (*random >> 9) as usize % most;
    // SAFETY: written within its size.
    unsafe {
        let block = malloc(bytes);
        assert!(!block.is_null());
        block.write_bytes(*random as u8, bytes);
        (block as usize, bytes)
    }
}

fn give(block: usize) {
    // SAFETY: a live block, freed once.
    unsafe { free(block as *mut u8) };
}

/// What a thread does before it waits: blocks and frees, of which the first `kept` of the last round stay.
fn work(seed: u32, kept: usize, most: usize) -> Vec<(usize, usize)> {
    let mut random = seed;
    let mut stay = Vec::new();
    for _ in 0..ROUNDS {
        stay.drain(..).for_each(|(block, _)| give(block));
        stay = (0..BLOCKS).map(|_| block(&mut random, most)).collect();
        stay.drain(kept..).for_each(|(block, _)| give(block));
    }
    stay
}

/// The pages that blocks lie on, in KiB.
fn floor_kb(blocks: &[(usize, usize)]) -> usize {
    let pages = |&(block, bytes): &(usize, usize)| block / 4096..=(block + bytes - 1) / 4096;
    blocks.iter().flat_map(pages).collect::<HashSet<_>>().len() * 4
}

/// How memory comes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Purger,
    Trim,
}

/// Threads that wait, and what they say to main.
struct Waiting {
    /// All are here, and main.
    meet: Barrier,
    /// What was kept.
    live: Mutex<Vec<(usize, usize)>>,
    /// Whether they may end when they next meet.
    end: AtomicBool,
}

impl Waiting {
    fn one(&self, seed: usize, kept: usize, most: usize) {
        let stay = work(seed as u32, kept, most);
        self.live.lock().expect("no panic").extend(&stay);
        self.meet.wait();
        loop {
            self.meet.wait();
            // ORDER: the barrier orders it.
            if self.end.load(Ordering::Relaxed) {
                break;
            }
            // I2.
            // SAFETY: freed here.
            give(unsafe { malloc(OTHER_SIZE) } as usize);
            self.meet.wait();
        }
        stay.into_iter().for_each(|(block, _)| give(block));
    }

    /// Wakes each for one block.
    fn wake(&self) {
        self.meet.wait();
        self.meet.wait();
    }
}

/// Lets the threads, which all wait, end when it is dropped.
struct Leave<'a>(&'a Waiting);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.end.store(true, Ordering::Relaxed); // ORDER: the barrier orders it
        self.0.meet.wait();
    }
}

fn threads_that_wait(by: By, kept: usize, most: usize, before_kb: usize) {
    // A tick of an hour is none.
    hasten_purger(if by == By::Purger { 20 } else { 3_600_000 });
    let waiting = Waiting {
        meet: Barrier::new(THREADS + 1),
        live: Mutex::default(),
        end: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            let waiting = &waiting;
            thread
                .spawn_scoped(scope, move || waiting.one(seed, kept, most))
                .expect("a thread");
        }
        waiting.meet.wait();
        // Also if a check fails: the scope waits for its threads.
        let _leave = Leave(&waiting);
        goes_back(&waiting, by, (kept, most), before_kb);
    });
}

/// Sees what they hold go back, while they wait.
fn goes_back(waiting: &Waiting, by: By, (kept, most): (usize, usize), before_kb: usize) {
    let floor_kb = floor_kb(&waiting.live.lock().expect("no panic"));
    let each_kb = EACH_KB + if takes_from_idle() { 0 } else { OTHER_KB };
    let most_kb = before_kb + THREADS * each_kb + floor_kb * 115 / 100;
    let full_kb = rss_kb();
    assert!(
        full_kb > before_kb + THREADS * 100,
        "{full_kb}: they hold nothing to give back"
    );
    let mut now_kb = full_kb;
    for round in 0..if by == By::Trim { 2 } else { TRIES } {
        if by == By::Trim {
            trim();
        } else {
            std::thread::sleep(Duration::from_millis(5)); // CLOCK: poll step of a bounded wait
        }
        now_kb = rss_kb();
        if now_kb <= most_kb {
            break;
        }
        assert!(
            !takes_from_idle() || by == By::Purger,
            "one trim was not enough: {now_kb}"
        );
        // Seldom enough that they are idle in between, for the purger.
        if !takes_from_idle() && round % 40 == 0 {
            waiting.wake();
        }
    }
    check_invariants(3).expect("while they wait");
    let each_kb = now_kb.saturating_sub(before_kb) / THREADS;
    assert!(
        now_kb <= most_kb,
        "{by:?}, {kept} kept of {most} bytes at most: {each_kb} KB a thread, {now_kb} of at most {most_kb}"
    );
}

#[test]
fn what_idle_threads_hold_goes_back() {
    // SAFETY: null is allowed.
    unsafe { options::begin(std::ptr::null()) };
    allow_purger(true);
    // It would leave little to give back.
    sweep_no_peak();
    let before_kb = rss_kb();
    // The purger first: later it sleeps for an hour.
    for by in [By::Purger, By::Trim] {
        // Small blocks first: no purger is there yet.
        for (kept, most) in [(0, SMALL), (0, ANY), (1, ANY)] {
            threads_that_wait(by, kept, most, before_kb);
            check_invariants(3).expect("at the end");
        }
    }
}
