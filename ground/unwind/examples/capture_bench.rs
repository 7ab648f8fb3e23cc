//! Measures the cost of a capture: `cargo run --release -p skinflint-unwind --example capture_bench`.
//!
//! ```text
//!   walk(depth) ──► random up and down in a call tree ──► probe: nothing | capture | backtrace()
//! ```
//!
//! Prints CPU nanoseconds for each capture at two depths, with the cost of the walk itself taken
//! off, for the cache as it is, for the same with the last stack forgotten each time (rules only),
//! and for glibc's `backtrace()` in the same run: A, B and C alternate, median of seven rounds.
//! Not here: real programs; a tree of this kind flatters caches.

use skinflint_unwind::*;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

static RULES: RuleCache = RuleCache::new();
static MODE: AtomicU32 = AtomicU32::new(0);
static mut RECORDER: Option<(Box<StackState>, Finder, StackBounds)> = None;
static mut TOTALS: [u64; 3] = [0; 3];
static mut LAST: u64 = 0;

#[unsafe(naked)]
extern "C" fn probe() -> u32 {
    with_registers!("rdi", "rsi", measured)
}

extern "C" fn measured(sp: u64, bp: u64) -> u32 {
    // ORDER: Relaxed: one thread.
    let mode = MODE.load(Ordering::Relaxed);
    // SAFETY: one thread uses the statics; the registers are those of this entry.
    unsafe {
        TOTALS[0] += 1;
        if mode == 3 {
            let mut buffer = [std::ptr::null_mut(); 128];
            TOTALS[1] += libc::backtrace(buffer.as_mut_ptr(), 128) as u64;
        } else if mode != 0
            && let Some((state, finder, bounds)) =
                (&raw mut RECORDER).as_mut().and_then(Option::as_mut)
        {
            if mode == 2 {
                state.invalidate();
            }
            let start = Registers { sp, bp };
            capture_to(&RULES, finder, state, *bounds, start, &mut Counted);
        }
    }
    1
}

/// Counts frames, and takes each as a ring does: with a store.
struct Counted;

impl Sink for Counted {
    fn takes(&mut self, keep: usize, fresh: usize, _: End) -> bool {
        // SAFETY: one thread uses the statics.
        unsafe {
            TOTALS[1] += (keep + fresh) as u64;
            TOTALS[2] += fresh as u64;
        }
        true
    }

    unsafe fn put(&mut self, ra: u64) {
        // SAFETY: as above.
        unsafe { LAST = ra };
    }

    fn take_whole(&mut self, captured: Capture<'_>) {
        self.takes(captured.keep, captured.fresh.len(), captured.end);
    }
}

macro_rules! walkers {
    ($($name:ident $locals:literal),*) => {$(
        #[inline(never)]
        fn $name(depth: u32, seed: u64) -> u64 {
            let mut locals = [seed; $locals];
            black_box(&mut locals);
            if depth == 0 {
                return u64::from(probe()) + locals[0];
            }
            let seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let mut sum = locals[$locals - 1];
            if seed >> 62 == 0 {
                sum += u64::from(probe());
            }
            let children = 1 + u64::from(depth < 7 && seed >> 40 & 1 == 0);
            for child in 0..children {
                let seed = seed ^ (child << 50);
                sum ^= match seed >> 60 & 3 {
                    0 => a(depth - 1, seed),
                    1 => b(depth - 1, seed),
                    2 => c(depth - 1, seed),
                    _ => d(depth - 1, seed),
                };
            }
            sum
        }
    )*};
}
walkers!(a 2, b 5, c 9, d 16);

fn cpu_ns() -> u64 {
    // SAFETY: a local variable.
    let t = unsafe {
        let mut t: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t);
        t
    };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Runs a round. Returns (ns, frames, fresh frames) per probe.
fn round(mode: u32, depth: u32, trees: u64) -> (f64, f64, f64) {
    // ORDER: Relaxed: one thread.
    MODE.store(mode, Ordering::Relaxed);
    // SAFETY: one thread.
    unsafe { TOTALS = [0; 3] };
    let start = cpu_ns();
    for seed in 0..trees {
        black_box(a(depth, seed * 12_345));
    }
    let ns = (cpu_ns() - start) as f64;
    // SAFETY: one thread.
    let [n, frames, fresh] = unsafe { TOTALS };
    (
        ns / n as f64,
        frames as f64 / n as f64,
        fresh as f64 / n as f64,
    )
}

fn own_stack() -> StackBounds {
    // SAFETY: plain pthread calls on local variables.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_getattr_np(libc::pthread_self(), &mut attr);
        let (mut at, mut size) = (std::ptr::null_mut(), 0);
        libc::pthread_attr_getstack(&attr, &mut at, &mut size);
        StackBounds {
            lo: at as u64,
            hi: at as u64 + size as u64,
        }
    }
}

fn main() {
    // SAFETY: all-zero memory is a valid state; one thread.
    unsafe {
        let state = Box::from_raw(
            std::alloc::alloc_zeroed(std::alloc::Layout::new::<StackState>()).cast::<StackState>(),
        );
        RECORDER = Some((state, Finder::resolve(), own_stack()));
        let version = std::ffi::CStr::from_ptr(libc::gnu_get_libc_version());
        println!(
            "skinflint-unwind {}, glibc {version:?}",
            env!("CARGO_PKG_VERSION")
        );
    }
    println!(
        "{:>6} {:26} {:>8} {:>8} {:>8} {:>10}",
        "depth", "", "frames", "fresh", "median", "spread"
    );
    for depth in [16, 26] {
        let mut all = [const { Vec::<(f64, f64, f64)>::new() }; 4];
        for _ in 0..8 {
            for (mode, results) in all.iter_mut().enumerate() {
                results.push(round(
                    mode as u32,
                    depth,
                    if mode == 3 { 200 } else { 6000 },
                ));
            }
        }
        let harness = median(&all[0]).0;
        for (mode, name) in ["", "verified cache", "rules only", "glibc backtrace()"]
            .iter()
            .enumerate()
            .skip(1)
        {
            let (ns, low, high) = median(&all[mode]);
            let (_, frames, fresh) = all[mode][7];
            println!(
                "{depth:6} {name:26} {frames:8.1} {fresh:8.1} {:8.1} {:5.1}-{:.1} ns",
                ns - harness,
                low - harness,
                high - harness
            );
        }
        println!("{depth:6} (walk and probe: {harness:.1} ns, taken off)");
    }
}

/// Returns the median, least and most ns, without the first round, which fills the caches.
fn median(rounds: &[(f64, f64, f64)]) -> (f64, f64, f64) {
    let mut ns: Vec<f64> = rounds.iter().skip(1).map(|r| r.0).collect();
    ns.sort_by(f64::total_cmp);
    (ns[ns.len() / 2], ns[0], ns[ns.len() - 1])
}
