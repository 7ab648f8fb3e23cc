//! The sampled heap profile against the truth: a program with known stacks, under fixed seeds.
//!
//! ```text
//!   program ─► site::<0> … site::<31> ─► blocks ─► truth: bytes by site, and the variance that samples of them must have
//!                                          └─────► profile::write ─► rows ─► the site in each row's stack ─► z
//! ```
//!
//! R1  Each test is a process of its own: the books are the process's.
//! R2  Seeds are fixed and a test has one thread, or frees only on others, so what it draws is the same each time.
//! R3  z is the difference over the true standard deviation, √Σ n² (1 - p) / p over the very blocks: with the stated
//!     variance, a site with few samples would excuse itself.
//!
//! Not here: what samples cost; the file and the options (cli tests).

use std::collections::BTreeMap;
use std::process::Command;

use skinflint_alloc as alloc;
use skinflint_alloc::profile::{self, What};
use skinflint_base::random::Random;

const SITES: usize = 32;
const RATE: usize = 16 << 10;

/// Runs `act` in a process that does nothing else (R1).
fn alone(name: &str, act: impl FnOnce()) {
    const CHILD: &str = "SKINFLINT_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return act();
    }
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&child.stderr);
    let out = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{out}\n{said}");
    assert!(out.contains("1 passed"), "{out}");
}

#[inline(never)]
fn site<const N: usize>(n: usize) -> *mut u8 {
    // SAFETY: freed by the caller.
    let block = unsafe { alloc::malloc(n) };
    // Neither a tail call nor the same code as another site.
    std::hint::black_box(N);
    block
}

type Site = fn(usize) -> *mut u8;

/// Returns the sites; the number of one is what its function is called with.
fn sites() -> [Site; SITES] {
    macro_rules! sites {
        ($($n:literal)*) => { [$(site::<$n>),*] };
    }
    sites!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

unsafe extern "C" {
    fn _Unwind_FindEnclosingFunction(pc: *const u8) -> *const u8;
}

/// Begins a profile with these numbers.
fn begin(seed: u64, rate: usize) {
    // SAFETY: freed at once; the thread has a heap from here on.
    unsafe { alloc::free(alloc::malloc(1)) };
    profile::set_rate(rate).expect("a rate");
    profile::start().expect("a profile");
    alloc::reseed(seed.wrapping_mul(0xd134_2543_de82_ef95), 1);
}

/// A row, or the sum of rows.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Row {
    blocks: u64,
    bytes: u64,
    all_blocks: u64,
    all_bytes: u64,
    samples: u64,
    all_samples: u64,
    variance: f64,
    pinned: u64,
    /// Bytes in use for a minute, and for an hour.
    aged: [u64; 2],
    /// The variance of `pinned`, from its half interval.
    pinned_variance: f64,
}

struct Read {
    text: String,
    first: Row,
    rows: Vec<(Row, Vec<usize>)>,
}

/// Returns the four figures of a line, and what follows.
fn figures(line: &str) -> (Row, &str) {
    let (figures, rest) = line.split_once("] @ ").expect("an @");
    let numbers: Vec<u64> = figures
        .split([':', '[', ' '])
        .filter(|word| !word.is_empty())
        .map(|word| word.parse().expect("a number"))
        .collect();
    let [blocks, bytes, all_blocks, all_bytes] = numbers[..] else {
        panic!("{line}");
    };
    let row = Row {
        blocks,
        bytes,
        all_blocks,
        all_bytes,
        ..Row::default()
    };
    (row, rest)
}

fn read(what: What) -> Read {
    let mut bytes = Vec::new();
    assert!(profile::write(what, &mut |piece| bytes.extend_from_slice(piece)));
    let text = String::from_utf8(bytes).expect("text");
    let (body, maps) = text.split_once("\nMAPPED_LIBRARIES:\n").expect("mappings");
    assert!(maps.contains("r-xp") && maps.ends_with('\n'), "{maps}");
    let mut lines = body.lines();
    let (first, kind) = figures(
        lines
            .next()
            .and_then(|line| line.strip_prefix("heap profile: "))
            .expect("a first line"),
    );
    assert_eq!(kind, "heapprofile");
    let mut rows = Vec::new();
    let mut samples = (0, 0, 0.0);
    let (mut pinned, mut aged) = ((0, 0.0), [0; 2]);
    for line in lines {
        if let Some(said) = line.strip_prefix("# ") {
            let words: Vec<&str> = said.split([' ', ',']).collect();
            if let [n, "of", all, "samples", "", "variance", variance, ..] = words[..] {
                let number = |text: &str| text.parse::<u64>().expect("a number");
                samples = (number(n), number(all), number(variance) as f64);
                pinned = match words[7..] {
                    ["", "pinned", bytes, "+-", half, ..] => {
                        (number(bytes), (number(half) as f64 / 1.96).powi(2))
                    }
                    _ => (0, 0.0),
                };
                aged = match words[7..] {
                    [.., "minute", minute, "", "for", "an", "hour", hour] => {
                        [number(minute), number(hour)]
                    }
                    _ => [0; 2],
                };
            }
            continue;
        }
        let (row, frames) = figures(line.trim_start());
        let frames = frames
            .split(' ')
            .map(|frame| usize::from_str_radix(frame.trim_start_matches("0x"), 16).expect("hex"));
        let row = Row {
            samples: samples.0,
            all_samples: samples.1,
            variance: samples.2,
            pinned: pinned.0,
            aged,
            pinned_variance: pinned.1,
            ..row
        };
        rows.push((row, frames.collect()));
    }
    Read { text, first, rows }
}

impl Read {
    /// Returns the sums of rows by the site that is in their stacks; what has none is under `SITES`.
    fn by_site(&self) -> BTreeMap<usize, Row> {
        let functions = sites().map(|site| site as usize);
        let mut sums: BTreeMap<usize, Row> = BTreeMap::new();
        for (row, frames) in &self.rows {
            let found = frames.iter().find_map(|&frame| {
                // SAFETY: any address may be asked about.
                let begin = unsafe { _Unwind_FindEnclosingFunction((frame - 1) as *const u8) };
                functions.iter().position(|&at| at == begin as usize)
            });
            let sum = sums.entry(found.unwrap_or(SITES)).or_default();
            sum.blocks += row.blocks;
            sum.bytes += row.bytes;
            sum.all_blocks += row.all_blocks;
            sum.all_bytes += row.all_bytes;
            sum.samples += row.samples;
            sum.all_samples += row.all_samples;
            sum.variance += row.variance;
            sum.pinned += row.pinned;
            sum.aged = [0, 1].map(|age| sum.aged[age] + row.aged[age]);
            sum.pinned_variance += row.pinned_variance;
        }
        sums
    }
}

/// The truth of a sum of blocks.
#[derive(Clone, Copy, Default, Debug)]
struct Truth {
    blocks: f64,
    bytes: f64,
    variance: f64,
}

impl Truth {
    fn add(&mut self, n: usize, rate: usize) {
        let bytes = n as f64;
        self.blocks += 1.0;
        self.bytes += bytes;
        // A large block of at least the rate is always a sample.
        if n <= 32 << 10 || n < rate {
            let p = -(-bytes / rate as f64).exp_m1();
            self.variance += bytes * bytes * (1.0 - p) / p;
        }
    }

    fn z(&self, bytes: u64) -> f64 {
        (bytes as f64 - self.bytes) / self.variance.sqrt()
    }
}

/// Returns a size: most are small, some large, a few above any rate.
fn size(random: &mut Random) -> usize {
    match random.below(100) {
        0..70 => 1 + random.below(500) as usize,
        70..90 => 500 + random.below(8_000) as usize,
        90..97 => 8_000 + random.below(24_000) as usize,
        97..99 => 33_000 + random.below(100_000) as usize,
        _ => 600_000 + random.below(1 << 20) as usize,
    }
}

type Block = (*mut u8, usize, usize);

/// Allocates so many blocks from the sites, of which the later ones have more; adds them to the truth of all time.
fn allocate(
    random: &mut Random,
    count: usize,
    rate: usize,
    all: &mut [Truth; SITES],
) -> Vec<Block> {
    let sites = sites();
    let mut blocks = Vec::new();
    for _ in 0..count {
        let site = random.index(SITES).max(random.index(SITES));
        let n = size(random);
        let block = sites[site](n);
        assert!(!block.is_null());
        all[site].add(n, rate);
        blocks.push((block, n, site));
    }
    blocks
}

fn free(blocks: &mut Vec<Block>) {
    for (block, ..) in blocks.drain(..) {
        // SAFETY: a live block of the list, freed once.
        unsafe { alloc::free(block) };
    }
}

/// Checks that these are draws from a normal distribution: none far out, no bias, as wide as it should be.
fn check_z(z: &[f64], what: &str) {
    let count = z.len() as f64;
    let bias = z.iter().sum::<f64>() / count.sqrt();
    let square = z.iter().map(|z| z * z).sum::<f64>();
    let most = z.iter().fold(0.0, |most: f64, z| most.max(z.abs()));
    println!("{what}: bias {bias:.2}, squares {square:.1} of {count}, most {most:.2}");
    assert!(bias.abs() < 3.0, "{what}: bias {bias}: {z:?}");
    assert!(
        (square - count).abs() < 4.0 * (2.0 * count).sqrt(),
        "{what}: {square} of {count}: {z:?}"
    );
    assert!(most < 4.5, "{what}: {z:?}");
}

fn check_sums(read: &Read) {
    let mut sum = Row::default();
    for (row, _) in &read.rows {
        sum.blocks += row.blocks;
        sum.bytes += row.bytes;
        sum.all_blocks += row.all_blocks;
        sum.all_bytes += row.all_bytes;
    }
    assert_eq!(sum, read.first, "the first line is the sum of the rows");
}

#[test]
fn each_stack_s_bytes_are_right_within_the_error() {
    alone("each_stack_s_bytes_are_right_within_the_error", || {
        begin(7, RATE);
        let mut random = Random::new(7);
        let (mut all, mut live) = ([Truth::default(); SITES], [Truth::default(); SITES]);
        let mut blocks = allocate(&mut random, 40_000, RATE, &mut all);
        let mut dead: Vec<Block> = Vec::new();
        for _ in 0..25_000 {
            dead.push(blocks.swap_remove(random.index(blocks.len())));
        }
        free(&mut dead);
        for &(_, n, site) in &blocks {
            live[site].add(n, RATE);
        }
        let read = read(What::InUse);
        check_sums(&read);
        let rows = read.by_site();
        assert_eq!(
            rows.get(&SITES).map_or(0, |row| row.all_bytes),
            0,
            "{}",
            read.text
        );
        assert_eq!(rows.len(), SITES);
        let z = |truth: &[Truth; SITES], of: fn(&Row) -> u64| {
            let z: Vec<f64> = rows
                .iter()
                .map(|(&site, row)| truth[site].z(of(row)))
                .collect();
            z
        };
        check_z(&z(&live, |row| row.bytes), "in use");
        check_z(&z(&all, |row| row.all_bytes), "of all time");
        // The stated variance, over all, is the true one.
        let stated = rows.values().map(|row| row.variance).sum::<f64>();
        let truth = live.iter().map(|truth| truth.variance).sum::<f64>();
        assert!(
            (0.9..1.1).contains(&(stated / truth)),
            "{stated} of {truth}"
        );
        // Blocks: the small ones weigh most, and are the worst known.
        let count = rows.values().map(|row| row.all_blocks).sum::<u64>() as f64;
        assert!((count / 40_000.0 - 1.0).abs() < 0.1, "{count}");
        free(&mut blocks);
    });
}

#[test]
fn what_is_freed_is_no_longer_in_use() {
    alone("what_is_freed_is_no_longer_in_use", || {
        begin(3, RATE);
        let mut all = [Truth::default(); SITES];
        let mut blocks = allocate(&mut Random::new(3), 8_000, RATE, &mut all);
        let before = read(What::InUse).first;
        assert!(
            before.bytes > 0 && before.bytes == before.all_bytes,
            "{before:?}"
        );
        free(&mut blocks);
        let now = read(What::InUse);
        assert_eq!((now.first.blocks, now.first.bytes), (0, 0), "{}", now.text);
        assert!(
            now.rows
                .iter()
                .all(|(row, _)| row.samples == 0 && row.variance == 0.0)
        );
        assert_eq!(now.first.all_bytes, before.all_bytes);
        let peak = read(What::Peak);
        check_sums(&peak);
        let least = before.bytes as f64 * (1.0 - 1.0 / 60.0);
        assert!((least..=before.bytes as f64).contains(&(peak.first.bytes as f64)));
    });
}

/// Blocks that a realloc leaves in place or moves, small and large ones, are known by what they have become.
#[test]
fn what_is_resized_has_its_new_size() {
    alone("what_is_resized_has_its_new_size", || {
        begin(11, RATE);
        let mut all = [Truth::default(); SITES];
        let mut random = Random::new(11);
        let mut blocks = allocate(&mut random, 12_000, RATE, &mut all);
        let (mut truth, mut inside) = (Truth::default(), 0);
        for (block, n, _) in &mut blocks {
            let want = match random.below(4) {
                0 => *n - *n / 8,
                1 => (*n * 2).max(8),
                2 => *n / 5 + 1,
                _ => *n + 1,
            };
            // SAFETY: a live block of the list.
            let moved = unsafe { alloc::realloc(*block, want) };
            assert!(!moved.is_null());
            inside += usize::from(moved == *block);
            (*block, *n) = (moved, want);
            truth.add(want, RATE);
        }
        assert!(inside > 1_000, "{inside} stayed");
        let now = read(What::InUse).first;
        // In place the probability is that of the old size, which makes little difference to the error.
        let z = truth.z(now.bytes);
        assert!(z.abs() < 4.0, "{z}: {} of {}", now.bytes, truth.bytes);
        free(&mut blocks);
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// One block as large as the rate is known to the byte through all that can become of it.
#[test]
fn a_large_block_is_known_exactly() {
    alone("a_large_block_is_known_exactly", || {
        begin(5, 512 << 10);
        let exact = |bytes: u64, why: &str| {
            let now = read(What::InUse).first;
            assert_eq!(
                (now.blocks, now.bytes),
                (u64::from(bytes > 0), bytes),
                "{why}"
            );
        };
        let mut block = site::<0>(1 << 20);
        exact(1 << 20, "malloc");
        for n in [
            (1 << 20) - 100,
            3 << 20,
            40 << 20,
            40 << 20 | 5,
            2 << 20,
            600 << 10,
        ] {
            // SAFETY: a live block.
            block = unsafe { alloc::realloc(block, n) };
            assert!(!block.is_null());
            exact(n as u64, "realloc");
        }
        // SAFETY: as above; what cannot be had leaves the block.
        assert!(unsafe { alloc::realloc(block, isize::MAX as usize - 4096) }.is_null());
        exact(600 << 10, "a realloc that fails");
        // SAFETY: as above.
        unsafe { alloc::free(block) };
        exact(0, "free");
        // SAFETY: freed at once.
        unsafe {
            let block = alloc::memalign(1 << 16, 700 << 10);
            exact(700 << 10, "memalign");
            alloc::free(block);
            let block = alloc::calloc(700, 1 << 10);
            exact(700 << 10, "calloc");
            alloc::free(block);
        }
        exact(0, "free");
    });
}

#[test]
fn aligned_blocks_are_counted_too() {
    alone("aligned_blocks_are_counted_too", || {
        begin(13, RATE);
        let mut random = Random::new(13);
        let mut truth = Truth::default();
        let mut blocks = Vec::new();
        for _ in 0..6_000 {
            let (align, n) = (32 << random.below(8), 1 + random.below(3_000) as usize);
            // SAFETY: freed below.
            let block = unsafe { alloc::memalign(align, n) };
            assert!(!block.is_null() && (block as usize).is_multiple_of(align));
            // SAFETY: the block has so many bytes, all of them its own.
            unsafe { block.write_bytes(align as u8, n) };
            truth.add(n, RATE);
            blocks.push((block, n, align));
        }
        let now = read(What::InUse).first;
        let z = truth.z(now.bytes);
        assert!(z.abs() < 4.0, "{z}");
        for &(block, n, align) in &blocks {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(block, n) };
            assert!(bytes.iter().all(|&byte| byte == align as u8));
        }
        free(&mut blocks);
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// Threads end, and their blocks stay; other threads free them.
#[test]
fn blocks_outlive_their_threads() {
    alone("blocks_outlive_their_threads", || {
        begin(17, RATE);
        let mut truth = [Truth::default(); SITES];
        let mut blocks: Vec<(usize, usize)> = Vec::new();
        for seed in 0..12 {
            let made = std::thread::spawn(move || {
                // SAFETY: freed at once; the thread has a heap from here on.
                unsafe { alloc::free(alloc::malloc(1)) };
                alloc::reseed(1_000 + seed, 1);
                let mut truth = [Truth::default(); SITES];
                let blocks = allocate(&mut Random::new(seed), 2_000, RATE, &mut truth);
                let blocks: Vec<_> = blocks.iter().map(|b| (b.0 as usize, b.1)).collect();
                (blocks, truth)
            });
            let (made, of_thread) = made.join().expect("no panic");
            blocks.extend(made);
            for (sum, of) in truth.iter_mut().zip(of_thread) {
                sum.bytes += of.bytes;
                sum.variance += of.variance;
            }
        }
        let rows = read(What::InUse).by_site();
        assert_eq!(rows.get(&SITES).map_or(0, |row| row.all_bytes), 0);
        let z: Vec<f64> = rows
            .iter()
            .map(|(&site, row)| truth[site].z(row.bytes))
            .collect();
        check_z(&z, "of threads that have ended");
        let freer = std::thread::spawn(move || {
            for (block, _) in blocks {
                // SAFETY: live blocks of threads that have ended, freed once each.
                unsafe { alloc::free(block as *mut u8) };
            }
        });
        freer.join().expect("no panic");
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// Runs `act` in the child of a fork; returns what it returned.
fn in_fork(act: impl FnOnce() -> [u64; 2]) -> [u64; 2] {
    let mut pipe = [0; 2];
    // SAFETY: two descriptors; the child writes to its own copy and ends.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let result = act();
            libc::write(pipe[1], result.as_ptr().cast(), 16);
            libc::_exit(0);
        }
        let mut result = [0u64; 2];
        assert_eq!(libc::read(pipe[0], result.as_mut_ptr().cast(), 16), 16);
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        assert_eq!(status, 0);
        result
    }
}

/// A child has the parent's blocks, and its own frees and samples; two children do not draw the same ones.
#[test]
fn a_fork_has_the_blocks_and_other_draws() {
    alone("a_fork_has_the_blocks_and_other_draws", || {
        begin(19, RATE);
        let mut all = [Truth::default(); SITES];
        let mut blocks = allocate(&mut Random::new(19), 4_000, RATE, &mut all);
        let before = read(What::InUse).first;
        let child = || {
            let here = read(What::InUse).first;
            let mut all = [Truth::default(); SITES];
            let more = allocate(&mut Random::new(20), 4_000, RATE, &mut all);
            let now = read(What::InUse).first;
            for (block, ..) in more.iter().chain(&blocks) {
                // SAFETY: live blocks of this process's copy, freed once each.
                unsafe { alloc::free(*block) };
            }
            let left = read(What::InUse).first.bytes;
            let truth: f64 = all.iter().map(|truth| truth.bytes).sum();
            let added = (now.bytes - here.bytes) as f64 / truth;
            let right = here == before && left == 0 && (0.8..1.2).contains(&added);
            [u64::from(right), now.bytes]
        };
        let (one, other) = (in_fork(child), in_fork(child));
        assert_eq!((one[0], other[0]), (1, 1), "{one:?} {other:?}");
        assert_ne!(one[1], other[1], "both drew the same samples");
        assert_eq!(read(What::InUse).first, before, "the parent's");
        free(&mut blocks);
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// Samples of before a stop stay known; after it there are none, and after another start there are again.
#[test]
fn a_profile_stops_and_goes_on() {
    alone("a_profile_stops_and_goes_on", || {
        let mut all = [Truth::default(); SITES];
        let mut random = Random::new(23);
        let mut early = allocate(&mut random, 2_000, RATE, &mut all);
        assert!(!profile::write(What::InUse, &mut |_| ()), "there is none");
        begin(23, RATE);
        let mut first = allocate(&mut random, 2_000, RATE, &mut all);
        let begun = read(What::InUse).first;
        profile::stop();
        let mut second = allocate(&mut random, 2_000, RATE, &mut all);
        let stopped = read(What::InUse).first;
        assert_eq!(stopped, begun);
        free(&mut early);
        free(&mut second);
        assert_eq!(read(What::InUse).first, begun);
        profile::start().expect("it was there");
        let mut third = allocate(&mut random, 2_000, RATE, &mut all);
        assert!(read(What::InUse).first.bytes > begun.bytes + begun.bytes / 2);
        free(&mut third);
        assert_eq!(read(What::InUse).first.bytes, begun.bytes);
        profile::stop();
        free(&mut first);
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// Whatever the rate becomes meanwhile, each sample counts by the chance that it had.
#[test]
fn a_rate_that_changes_biases_nothing() {
    alone("a_rate_that_changes_biases_nothing", || {
        begin(4, RATE);
        let mut random = Random::new(4);
        let mut z = Vec::new();
        let mut blocks = Vec::new();
        for round in 0..40 {
            let rate = [4 << 10, 64 << 10, 9_999, 3 << 20][round % 4];
            profile::set_rate(rate).expect("a rate");
            let before = read(What::InUse).first.bytes;
            let mut all = [Truth::default(); SITES];
            blocks.extend(allocate(&mut random, 3_000, rate, &mut all));
            let mut truth = Truth::default();
            for site in all {
                truth.bytes += site.bytes;
                truth.variance += site.variance;
            }
            z.push(truth.z(read(What::InUse).first.bytes - before));
        }
        check_z(&z, "with another rate each time");
        // The last of the four is above the interval of the estimate of slop, whose points are then thinned.
        let of_last: Vec<f64> = z.iter().copied().skip(3).step_by(4).collect();
        check_z(&of_last, "above the other interval");
        free(&mut blocks);
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// A thread's next point was drawn at the rate of before: the block that it meets counts by that one.
#[test]
fn a_point_of_another_rate_counts_by_that_rate() {
    alone("a_point_of_another_rate_counts_by_that_rate", || {
        const BEFORE: usize = 256 << 10;
        begin(41, BEFORE);
        let threads: Vec<_> = (0..64)
            .map(|seed| {
                let (go, wait) = std::sync::mpsc::channel::<()>();
                let (ready, begun) = std::sync::mpsc::channel::<()>();
                let thread = std::thread::spawn(move || {
                    alloc::reseed(2_000 + seed, 1);
                    // SAFETY: freed at once: it draws the first point.
                    unsafe { alloc::free(alloc::malloc(1)) };
                    ready.send(()).expect("it waits");
                    wait.recv().expect("it says so");
                    (0..40).map(|_| site::<2>(2_000) as usize).collect()
                });
                begun.recv().expect("it begins");
                (go, thread)
            })
            .collect();
        profile::set_rate(4 << 10).expect("a rate");
        let mut blocks: Vec<usize> = Vec::new();
        for (go, thread) in threads {
            go.send(()).expect("it waits");
            let mut of_thread: Vec<usize> = thread.join().expect("no panic");
            blocks.append(&mut of_thread);
        }
        let truth = (blocks.len() * 2_000) as f64;
        let z = (read(What::InUse).first.bytes as f64 - truth) / (truth * BEFORE as f64).sqrt();
        assert!(z.abs() < 3.0, "{z}");
        for block in blocks {
            // SAFETY: live blocks of threads that have ended, freed once each.
            unsafe { alloc::free(block as *mut u8) };
        }
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// A small block of twenty times the rate is a sample for all but certain, and known to the byte where it stays.
#[test]
fn a_small_block_that_stays_has_its_new_size() {
    alone("a_small_block_that_stays_has_its_new_size", || {
        begin(43, 1 << 10);
        let block = site::<3>(20_000);
        assert_eq!(read(What::InUse).first.bytes, 20_000);
        for n in [19_000, 20_100, 12_000] {
            // SAFETY: a live block.
            assert_eq!(unsafe { alloc::realloc(block, n) }, block);
            let now = read(What::InUse).first;
            assert_eq!((now.bytes, now.all_bytes), (n as u64, 20_000));
        }
        // SAFETY: as above; it moves.
        let moved = unsafe { alloc::realloc(block, 30_000) };
        assert_ne!(moved, block);
        assert_eq!(read(What::InUse).first.bytes, 30_000);
        // SAFETY: a live block.
        unsafe { alloc::free(moved) };
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// More samples than there are places for: the rate doubles, and the figures stay right.
#[test]
fn a_full_table_doubles_the_rate() {
    alone("a_full_table_doubles_the_rate", || {
        begin(31, 1 << 10);
        let mut random = Random::new(31);
        let mut truth = Truth::default();
        let mut blocks = Vec::new();
        for _ in 0..40_000 {
            let n = 500 + random.below(2_500) as usize;
            blocks.push((site::<0>(n), n, 0));
            // As at the rate that it comes to.
            truth.add(n, 4 << 10);
        }
        let now = read(What::InUse);
        let rate: u64 = now
            .text
            .split("one sample in ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .and_then(|number| number.parse().ok())
            .expect("a rate");
        assert!((2 << 10..=8 << 10).contains(&rate), "{rate}");
        let z = truth.z(now.first.bytes);
        assert!(z.abs() < 4.0, "{z} at {rate}");
        free(&mut blocks);
        assert_eq!(read(What::InUse).first.bytes, 0);
    });
}

/// The estimate of slop is the one that there was before (sample.Q6), and the figures balance.
#[test]
fn the_estimate_of_slop_is_not_disturbed() {
    alone("the_estimate_of_slop_is_not_disturbed", || {
        use skinflint_alloc::stats::{Snapshot, snapshot};
        begin(37, 4 << 10);
        alloc::reseed(37, 64);
        let mut random = Random::new(37);
        let mut blocks = Vec::new();
        let mut truth = 0;
        for _ in 0..20_000 {
            let n = 257 + random.below(3_000) as usize;
            blocks.push((site::<1>(n), n, 1));
            truth += n;
        }
        let mut figures = Box::new(Snapshot::new());
        assert!(snapshot(&mut figures, false));
        assert!(figures.balanced, "{figures:?}");
        let (requested, error) = figures.live_requested();
        let interval = figures.slop.interval_bytes;
        let expected = truth as f64 / interval as f64;
        let samples = f64::from(figures.slop.samples);
        assert!(
            (0.8..1.2).contains(&(samples / expected)),
            "{samples} of {expected}"
        );
        let difference = (requested as f64 - truth as f64).abs();
        assert!(difference < 4.0 * error as f64, "{difference} {error}");
        free(&mut blocks);
        assert!(snapshot(&mut figures, false));
        assert_eq!(figures.small_blocks, 0);
    });
}

#[path = "profile/held.rs"]
mod held;
