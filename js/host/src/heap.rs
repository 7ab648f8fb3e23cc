//! The garbage-collected heap under the engine, as the host sees it: the same words for both.
//!
//! ```text
//!   tab ──enter──► Tenant ──end──► what was left        events ──► Log: pauses by phase, shares, lines
//!            stock: one heap for all, nothing told       ours: boa_gc::skinflint
//! ```
//!
//! H1  What a heap cannot tell is `None`, never 0.
//! H2  [`note`] is called while a heap is at work: it allocates no object of the heap and takes no lock.
//!
//! Not here: how either heap works.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Instant;

use serde::Serialize;

use crate::pauses::{Pauses, Summary};
use skinflint_js_options::LogFormat;
use skinflint_js_options::host::cpu_time;

#[cfg(feature = "ours")]
mod ours;
#[cfg(feature = "ours")]
pub use ours::*;
#[cfg(not(feature = "ours"))]
mod stock;
#[cfg(not(feature = "ours"))]
pub use stock::*;

/// The heap's settings, from the command line.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Collect at every nth allocation.
    pub stress: Option<u32>,
    /// Check collections by a second tracer.
    pub verify: bool,
    /// Bytes a tenant may hold; each tenant of ours is given it when it is made.
    #[cfg_attr(feature = "ours", allow(dead_code))]
    pub limit_bytes: Option<usize>,
    /// Objects end in pauses.
    pub sweep_in_pause: bool,
    /// From which size on what ended objects held is freed by another thread; `None`: nothing.
    #[cfg_attr(not(feature = "ours"), allow(dead_code))]
    pub beside: Option<usize>,
    /// System objects among user objects.
    pub no_separate: bool,
    /// Where births and deaths of objects go.
    pub record: Option<std::path::PathBuf>,
    /// The free-list policy that places objects, and its growth.
    pub policy: Option<(String, f64)>,
}

/// Memory of a tab's pages, in bytes: over samples, one every 256 KiB allocated and two at each cycle.
#[derive(Serialize, Clone, Copy, Debug, Default)]
pub struct Size {
    /// Mean over the samples.
    pub mean: f64,
    /// The most.
    pub peak: u64,
    /// Mean over those right after cycles.
    pub after: f64,
}

/// How a policy placed a tab's objects, from its first to the moment when all programs were idle.
#[derive(Serialize, Clone, Debug, Default)]
pub struct Placement {
    /// The policy.
    pub policy: String,
    /// Processor time of the tab till then, all of it.
    pub cpu_ms: f64,
    /// Objects placed.
    pub objects: u64,
    /// Their bytes, with a word in front of each.
    pub bytes: u64,
    /// Most of them at once.
    pub peak_live_bytes: u64,
    /// Objects that no policy places: above half a page.
    pub outside_objects: u64,
    /// Their bytes.
    pub outside_bytes: u64,
    /// Times that the room of dead objects was made available.
    pub cycles: u64,
    /// Pages.
    pub pages: Size,
    /// Pages, and the list's descriptors.
    pub with_tables: Size,
    /// Kernel pages that were written to.
    pub resident: Size,
    /// Bytes of objects that no cycle has found dead.
    pub needed: Size,
    /// Holes that are in no list.
    pub wasted: Size,
    /// Times that an area was used up.
    pub refills: u64,
    /// Pages swept.
    pub swept_pages: u64,
    /// Pages added.
    pub added_pages: u64,
    /// Pages given back.
    pub released_pages: u64,
    /// Processor time of sweeping, wherever it happened.
    pub sweeping_ms: f64,
    /// The part of it that V8 does on other threads.
    pub background_ms: f64,
    /// Processor time of cycles, without finding what lives: first, sweeping that was left over …
    pub finishing_ms: f64,
    /// … and then until allocation can go on.
    pub ending_ms: f64,
    /// The longest of these, both together.
    pub longest_end_ms: f64,
}

/// A step of a collection.
#[derive(Serialize, Clone, Debug)]
pub struct Event {
    /// When it ended, in ms since the log began.
    pub at_ms: f64,
    /// Whose objects; `all` if several heaps were collected together.
    pub tenant: String,
    /// Why it was made.
    pub reason: String,
    /// What was done.
    pub step: String,
    /// How long the program stood still, by the clock on the wall.
    pub pause_ns: u64,
    /// The same by the processor time of its thread: what a busy machine does not lengthen.
    pub cpu_ns: u64,
    /// Bytes of objects before and after.
    pub bytes_before: usize,
    /// As above.
    pub bytes_after: usize,
    /// Objects freed while the program stood still.
    pub freed_in_pause: u64,
    /// Objects freed at allocations.
    pub freed_lazily: u64,
    /// Objects freed by other threads.
    pub freed_elsewhere: u64,
}

/// The memory of a tenant.
#[derive(Serialize, Clone, Debug, Default)]
pub struct Row {
    /// The tab's name.
    pub name: String,
    /// Bytes of the engine's own objects.
    pub system_bytes: usize,
    /// Bytes of the program's objects.
    pub user_bytes: usize,
    /// Live objects.
    pub objects: u64,
    /// Megabytes of address space that they lie in.
    pub chunks: usize,
    /// Collections made.
    pub collections: u64,
}

/// The objects that were alive when a tenant ended.
#[derive(Serialize, Clone, Debug)]
pub struct Left {
    /// Whose.
    pub name: String,
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: usize,
    /// What holds them.
    pub path: Option<String>,
}

/// Work at allocations that the heap counts as no pause.
#[derive(Serialize, Clone, Copy, Debug, Default)]
pub struct Slices {
    /// All of them.
    pub total_us: f64,
    /// The longest.
    pub longest_us: f64,
}

/// Numbers of freed objects, by where they were freed.
#[derive(Serialize, Clone, Copy, Debug, Default)]
pub struct Freed {
    /// While the program stood still.
    pub in_pauses: u64,
    /// At allocations, a little each.
    pub lazily: u64,
    /// By other threads.
    pub elsewhere: u64,
}

impl Freed {
    /// Returns the numbers freed between two looks.
    pub fn since(self, before: Freed) -> Freed {
        Freed {
            in_pauses: self.in_pauses - before.in_pauses,
            lazily: self.lazily - before.lazily,
            elsewhere: self.elsewhere - before.elsewhere,
        }
    }

    /// Both together.
    pub fn plus(self, other: Freed) -> Freed {
        Freed {
            in_pauses: self.in_pauses + other.in_pauses,
            lazily: self.lazily + other.lazily,
            elsewhere: self.elsewhere + other.elsewhere,
        }
    }

    /// Share outside pauses, 0 to 1; `None` if nothing was freed.
    pub fn share_outside(&self) -> Option<f64> {
        let outside = self.lazily + self.elsewhere;
        let all = outside + self.in_pauses;
        (all > 0).then(|| outside as f64 / all as f64)
    }
}

/// Steps with which a collection ends: each has one.
const ENDS: [&str; 3] = ["whole", "young", "final"];

/// Lines of the log that are kept for the report; later ones are counted.
const KEPT: usize = 100_000;

/// The log of the heap's steps.
#[derive(Default)]
struct Log {
    /// Since when its times count.
    start: Option<Instant>,
    phase: &'static str,
    /// By wall time, and by processor time.
    pauses: BTreeMap<&'static str, [Pauses; 2]>,
    reasons: BTreeMap<String, u64>,
    format: Option<LogFormat>,
    keep: bool,
    kept: Vec<Event>,
    dropped: u64,
}

impl Log {
    /// Nanoseconds since the first that was asked for.
    fn now_ns(&mut self) -> u64 {
        let start = *self.start.get_or_insert_with(Instant::now);
        start.elapsed().as_nanos() as u64
    }
}

thread_local! {
    static LOG: RefCell<Log> = RefCell::new(Log::default());
}

/// Prepares the log: what is written as it happens, and whether events are kept for the report.
pub fn log_as(format: Option<LogFormat>, keep: bool) {
    LOG.with_borrow_mut(|log| {
        log.now_ns();
        log.format = format;
        log.keep = keep;
    });
}

/// Names what is done from now on, for pauses.
pub fn phase(name: &'static str) {
    LOG.with_borrow_mut(|log| {
        log.phase = name;
        log.pauses.entry(name).or_default();
    });
}

/// Notes a pause of the present phase, by wall time and by processor time (H2).
pub fn note_pause(wall_ns: u64, cpu_ns: u64) {
    LOG.with(|log| {
        let Ok(mut log) = log.try_borrow_mut() else {
            return;
        };
        let phase = log.phase;
        let now_ns = log.now_ns();
        let [wall, cpu] = log.pauses.entry(phase).or_default();
        wall.note(wall_ns, now_ns);
        cpu.note(cpu_ns, cpu_time().as_nanos() as u64);
    });
}

/// Notes an event of the present phase (H2).
#[cfg_attr(not(feature = "ours"), allow(dead_code))]
pub fn note(mut event: Event) {
    note_pause(event.pause_ns, event.cpu_ns);
    LOG.with(|log| {
        let Ok(mut log) = log.try_borrow_mut() else {
            return;
        };
        event.at_ms = log.now_ns() as f64 / 1e6;
        if ENDS.contains(&event.step.as_str()) {
            *log.reasons.entry(event.reason.clone()).or_default() += 1;
        }
        match log.format {
            Some(LogFormat::Text) => say(&event),
            Some(LogFormat::Json) => {
                if let Ok(line) = serde_json::to_string(&event) {
                    let _ = writeln!(std::io::stderr(), "{line}");
                }
            }
            None => {}
        }
        if log.keep && log.kept.len() < KEPT {
            log.kept.push(event);
        } else if log.keep {
            log.dropped += 1;
        }
    });
}

fn say(event: &Event) {
    let _ = writeln!(
        std::io::stderr(),
        "gc: {:.1} ms: {}: {} ({}): {:.3} ms, {} to {} bytes, freed {} in the pause, {} lazily, {} by other threads",
        event.at_ms,
        event.tenant,
        event.step,
        event.reason,
        event.pause_ns as f64 / 1e6,
        event.bytes_before,
        event.bytes_after,
        event.freed_in_pause,
        event.freed_lazily,
        event.freed_elsewhere,
    );
}

/// Pauses of each phase, in the order of the alphabet; by processor time, or by wall time.
pub fn pauses(by_cpu: bool) -> BTreeMap<String, Summary> {
    LOG.with_borrow(|log| {
        let said = log.pauses.iter();
        said.map(|(phase, pauses)| ((*phase).to_owned(), pauses[usize::from(by_cpu)].summary()))
            .collect()
    })
}

/// Returns how often each reason was given.
pub fn reasons() -> BTreeMap<String, u64> {
    LOG.with_borrow(|log| log.reasons.clone())
}

/// Events kept, and how many were not.
pub fn kept() -> (Vec<Event>, u64) {
    LOG.with_borrow_mut(|log| (std::mem::take(&mut log.kept), log.dropped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_a_whole() {
        assert_eq!(Freed::default().share_outside(), None);
        let freed = Freed {
            in_pauses: 5,
            lazily: 90,
            elsewhere: 5,
        };
        assert_eq!(freed.share_outside(), Some(0.95));
        let both = freed.plus(freed);
        assert_eq!(both.in_pauses, 10);
        assert_eq!(both.since(freed).share_outside(), Some(0.95));
    }

    #[test]
    fn pauses_belong_to_the_phase_in_which_they_were() {
        phase("open");
        note_pause(10, 1);
        phase("then");
        note_pause(20, 2);
        note_pause(30, 3);
        let (wall, cpu) = (pauses(false), pauses(true));
        assert_eq!((wall["open"].count, cpu["then"].count), (1, 2));
        assert_eq!(wall["then"].longest_us, 0.03);
        assert_eq!(cpu["then"].total_us, 0.005);
    }
}
