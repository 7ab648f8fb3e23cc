//! The law of a simulated fleet: which machines, services, builds and stacks there are, and what happens in a process.
//!
//! ```text
//!   seed ─► services (Zipf) ─► stacks (Pareto shares, sizes log-uniform) ─┐
//!                          └► processes: host, build, life ───────────────┴─► events, minute by minute
//! ```
//!
//! L1  Everything follows from the seed and the numbers of the law: a process's events from (seed, service, process)
//!     alone, so they can be made again in any order.
//! L2  What a process is given is drawn as a sampler would draw it: a sample of a stack stands for its weight w = S/p and
//!     has the variance w(w − S); both are rounded to whole numbers once, and are whole ever after.
//! L3  Two faults are planted in the newer build, and only there: a leak in the first service, and a stack that pins
//!     pages in the second (or the first, if there is one). Each can be switched off. One stack in three services is
//!     half as large again in the newer build, by intent: it must come behind both.
//!
//! Not here: rows and files (generate.rs).

use crate::{clock, id};

/// The numbers of a fleet.
#[derive(Clone, Debug)]
pub struct Law {
    /// The seed (L1).
    pub seed: u64,
    /// Machines.
    pub machines: u32,
    /// Processes on each machine, on average.
    pub processes: u32,
    /// Services.
    pub services: u32,
    /// Stacks of each service.
    pub stacks: u32,
    /// The first second: the beginning of an hour.
    pub start: i64,
    /// Hours.
    pub hours: u32,
    /// Whether the newer build has the leak (L3).
    pub leak: bool,
    /// Whether the newer build has the stack that pins pages (L3).
    pub pins: bool,
}

/// Names of the two builds.
pub const BUILDS: [&str; 2] = ["41", "42"];
/// Bytes between two samples.
pub const RATE: f64 = 524_288.0;
/// Bytes an hour that the leak takes.
const LEAK_PER_HOUR: f64 = 48.0 * 1024.0 * 1024.0;
/// Bytes that the pinning stack keeps resident.
const PINS: f64 = 40.0 * 1024.0 * 1024.0;

/// Random numbers: SplitMix64, seeded by several numbers.
pub struct Random(u64);

impl Random {
    /// Begins a sequence of its own for each list of numbers.
    pub fn new(seeds: &[u64]) -> Self {
        let bytes: Vec<u8> = seeds.iter().flat_map(|seed| seed.to_le_bytes()).collect();
        Random(id::content(&bytes).cast_unsigned())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws from (0, 1).
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Draws a number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn log_normal(&mut self, sigma: f64) -> f64 {
        (self.normal() * sigma).exp()
    }

    /// Draws how many of many rare things happen.
    fn poisson(&mut self, mean: f64) -> i64 {
        if mean > 30.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0) as i64;
        }
        let (limit, mut product, mut count) = ((-mean.max(0.0)).exp(), self.unit(), 0);
        while product > limit {
            product *= self.unit();
            count += 1;
        }
        count
    }
}

/// A stack of a service, with what a sample of it stands for.
#[derive(Clone, Debug)]
pub struct StackLaw {
    /// Its id.
    pub stack: i64,
    /// Functions, innermost first; all are of the service's program.
    pub functions: Vec<String>,
    /// Bytes that a sample stands for (L2).
    pub weight: i64,
    /// Blocks that a sample stands for.
    pub blocks: i64,
    /// Variance of a sample, KiB² (L2).
    pub variance: i64,
    /// Bytes given beyond those asked for, of a sample.
    pub slop: i64,
    /// Bytes in use in a process of middling size.
    live: f64,
    /// Share of the blocks in use that is replaced between two events.
    turnover: f64,
    /// Minutes between two events.
    every: i64,
    /// Free bytes on the pages of a byte in use.
    pinned: f64,
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name, which is also its program's.
    pub name: String,
    /// Its stacks.
    pub stacks: Vec<StackLaw>,
    /// Its processes.
    pub processes: Vec<ProcessLaw>,
    /// The stack that leaks in the newer build, and the one that pins, if they are of this service.
    pub leak: Option<usize>,
    /// The stack that pins.
    pub pins: Option<usize>,
    /// The stack that is larger by intent.
    larger: Option<usize>,
}

/// A process.
#[derive(Clone, Debug)]
pub struct ProcessLaw {
    /// Its machine.
    pub host: String,
    /// Its id.
    pub process: i64,
    /// Its place in [`BUILDS`].
    pub build: usize,
    /// Its first minute, from the start of the law.
    pub begin: i64,
    /// The minute behind its last.
    pub end: i64,
    seeds: [u64; 3],
}

/// What happened to one stack of one process at the beginning of a minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The minute, from the start of the law.
    pub minute: i64,
    /// The stack's place in its service.
    pub stack: usize,
    /// Samples of new blocks that stay.
    pub born: i64,
    /// Samples of new blocks that are released in the same minute.
    pub passing: i64,
    /// Samples of blocks from before that are released.
    pub died: i64,
    /// Free bytes that the stack's blocks pin from now on.
    pub pinned: i64,
    /// Bytes in use that are the leak's, of which a finding tells.
    pub leaked: i64,
}

impl Law {
    /// Minutes of the law.
    pub fn minutes(&self) -> i64 {
        i64::from(self.hours) * 60
    }

    /// Returns a machine's name.
    pub fn host(&self, machine: u64) -> String {
        format!("m{machine:05}")
    }

    /// Returns the services, the largest first.
    pub fn services(&self) -> Vec<Service> {
        let zipf = |of: u32| f64::from(of + 1).powf(-1.1);
        let all: f64 = (0..self.services).map(zipf).sum();
        let processes = f64::from(self.machines) * f64::from(self.processes);
        let count = |of: u32| ((processes * zipf(of) / all).round() as u64).max(12);
        (0..self.services)
            .map(|of| self.service(of, count(of)))
            .collect()
    }

    fn service(&self, of: u32, processes: u64) -> Service {
        let mut random = Random::new(&[self.seed, 1, u64::from(of)]);
        let name = format!(
            "{}{of}",
            pick(&mut random, &["web", "feed", "cart", "mail", "index"])
        );
        // Shares of memory by Pareto's law, of a size by the service.
        let shares: Vec<f64> = (0..self.stacks)
            .map(|_| random.unit().powf(-1.0 / 1.2).min(300.0))
            .collect();
        let all: f64 = shares.iter().sum();
        let bytes = 200.0 * 1024.0 * 1024.0 * random.log_normal(0.5);
        let mut stacks: Vec<StackLaw> = shares
            .iter()
            .enumerate()
            .map(|(at, share)| stack(&mut random, &name, at, bytes * share / all))
            .collect();
        stacks.sort_by(|a, b| b.live.total_cmp(&a.live));
        let middle = stacks.len() / 3;
        let is_second = of == 1.min(self.services - 1);
        Service {
            leak: (self.leak && of == 0).then_some(middle),
            pins: (self.pins && is_second).then_some(middle + 1),
            larger: (of < 3).then_some(middle + 2),
            processes: self.processes_of(of, processes),
            name,
            stacks,
        }
    }

    /// One in eight processes ends in the middle, and another takes its place.
    fn processes_of(&self, of: u32, count: u64) -> Vec<ProcessLaw> {
        let mut all = Vec::new();
        for number in 0..count {
            let mut random = Random::new(&[self.seed, 2, u64::from(of), number]);
            let host = self.host(random.below(u64::from(self.machines)));
            let minutes = self.minutes();
            let cut = match random.below(8) {
                0 => minutes / 4 + random.below(minutes.cast_unsigned() / 2).cast_signed(),
                _ => minutes,
            };
            for (life, (begin, end)) in [(0, cut), (cut, minutes)].into_iter().enumerate() {
                if begin == end {
                    continue;
                }
                let life = life as u64;
                all.push(ProcessLaw {
                    // Two services have a process of the same number.
                    process: id::process(
                        &host,
                        (u64::from(of) << 40) | (number * 2 + life),
                        self.start + begin * 60,
                    ),
                    host: host.clone(),
                    build: (number % 2) as usize,
                    begin,
                    end,
                    seeds: [u64::from(of), number, life],
                });
            }
        }
        all
    }

    /// Makes the events of a process, by stack, and of each stack by minute (L1).
    pub fn events(&self, service: &Service, process: &ProcessLaw) -> Vec<Event> {
        let [of, number, life] = process.seeds;
        let mut random = Random::new(&[self.seed, 3, of, number, life]);
        let size = random.log_normal(0.2);
        let mut events = Vec::new();
        for (at, stack) in service.stacks.iter().enumerate() {
            let newer = process.build == 1;
            let planted = |which: Option<usize>| newer && which == Some(at);
            let larger = if planted(service.larger) { 1.5 } else { 1.0 };
            let plan = Plan {
                live: stack.live * size * larger * random.log_normal(0.15) / stack.weight as f64,
                leak: if planted(service.leak) {
                    LEAK_PER_HOUR / 60.0 / stack.weight as f64
                } else {
                    0.0
                },
                pins: if planted(service.pins) {
                    PINS * random.log_normal(0.2)
                } else {
                    0.0
                },
            };
            life_of(stack, at, process, &plan, &mut random, &mut events);
        }
        events
    }
}

/// What is meant to happen to a stack in a process; in samples, but for the pinned bytes.
struct Plan {
    live: f64,
    leak: f64,
    pins: f64,
}

fn life_of(
    stack: &StackLaw,
    at: usize,
    process: &ProcessLaw,
    plan: &Plan,
    random: &mut Random,
    events: &mut Vec<Event>,
) {
    let (mut live, mut leaked) = (0, 0);
    let mut minute = process.begin;
    while minute < process.end {
        let first = minute == process.begin;
        let lost = random.poisson(if first {
            0.0
        } else {
            plan.leak * stack.every as f64
        });
        let died = random
            .poisson((live - leaked) as f64 * stack.turnover)
            .min(live - leaked);
        let born = random.poisson(plan.live * if first { 1.0 } else { stack.turnover });
        let passing = random.poisson(plan.live * stack.turnover);
        live += born + lost - died;
        leaked += lost;
        let bytes = (live * stack.weight) as f64;
        events.push(Event {
            minute,
            stack: at,
            born: born + lost,
            passing,
            died,
            pinned: (bytes * stack.pinned + plan.pins).round() as i64,
            leaked: leaked * stack.weight,
        });
        // The first event is at the beginning, the others where the clock of the machine has them.
        minute += stack.every - minute.rem_euclid(stack.every);
    }
}

fn stack(random: &mut Random, service: &str, at: usize, live: f64) -> StackLaw {
    let log_uniform =
        |from: f64, to: f64, random: &mut Random| from * (to / from).powf(random.unit());
    let size = match random.below(20) {
        0 => log_uniform(65_536.0, 4_194_304.0, random),
        1..4 => log_uniform(1_024.0, 32_768.0, random),
        _ => log_uniform(16.0, 512.0, random),
    }
    .round();
    let share = 1.0 - (-size / RATE).exp();
    let weight = (size / share).round();
    let churns = random.below(10) < 7;
    let functions = functions(random, at);
    let frames: Vec<i64> = functions
        .iter()
        .map(|name| id::frame(service, name))
        .collect();
    StackLaw {
        stack: id::stack(&frames),
        functions,
        weight: weight as i64,
        blocks: (1.0 / share).round() as i64,
        variance: (weight * (weight - size).max(0.0) / 1_048_576.0).round() as i64,
        slop: (weight * 0.12 * random.unit()).round() as i64,
        live,
        turnover: if churns { 0.5 } else { 0.05 },
        every: [5, 10, 20, 60][random.below(4) as usize],
        pinned: 0.1 * random.unit(),
    }
}

/// Makes up a stack of functions, innermost first: a leaf of its own, and callers that it shares with others.
fn functions(random: &mut Random, at: usize) -> Vec<String> {
    let leaf = format!("{}_{}_{at}", pick(random, VERBS), pick(random, THINGS));
    let depth = 2 + random.below(5);
    let mut functions = vec![leaf];
    for level in (0..depth).rev() {
        functions.push(format!(
            "{}_{level}",
            VERBS[random.below(4 + level) as usize % VERBS.len()]
        ));
    }
    functions.push("main".to_owned());
    functions
}

const VERBS: &[&str] = &[
    "parse", "load", "merge", "render", "decode", "route", "index", "join",
];
const THINGS: &[&str] = &[
    "row", "page", "image", "session", "reply", "batch", "token", "node",
];

fn pick<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(of.len() as u64) as usize]
}

/// Returns the beginning of a day, for a law.
///
/// # Errors
/// If it is no day.
pub fn start(day: &str) -> anyhow::Result<i64> {
    clock::start_of(day)
}
