//! A run from the first tab to the last: open, then, close, and memory at each instant.
//!
//! ```text
//!   read files ─► open N tabs, turns until all are idle ─► then … ─► close half ─► all but one ─► report
//!                          └── instant "open"      └── "then"   └── "half closed"  └── "all but one closed"
//! ```
//!
//! R1  Every file is read before the first tab is opened: a missing one is wrong use, and nothing has run.
//! R2  Tabs take turns, one timer each, so that tabs which build their data by timers grow side by side.
//! R3  At an instant everything is collected, then the resident bytes are read until they stand still: what an
//!     allocator gives back a little later counts, what it never gives back does not.
//! R4  A tab that fails is closed with the others, not before: its failure is in the report.
//!
//! Not here: what happens in a tab (`tab`), how it is said (`report`).

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::Build;
use crate::clock::{TabClock, resident_bytes};
use crate::driven;
use crate::heap::{self, Freed, Left, Placement, Settings};
use crate::natives::Output;
use crate::report::{Instant, ProgramRow, Report};
use crate::tab::{Program, Tab};
use crate::watch;
use skinflint_js_options::host::cpu_time;
use skinflint_js_options::{ClockOf, Close, Heap, JsArgs, Malloc};

/// Resident bytes stand still if they fall by less than this share from one look to the next (R3).
const STILL: f64 = 0.005;
/// Between two looks.
const LOOK_MS: u64 = 150;
/// Between two looks while every tab waits for a timer: an idle heap is due after 20 s.
const LOOK_AT_REST: Duration = Duration::from_secs(1);
/// Most looks, and so 12 s at most.
const LOOKS: usize = 80;
/// In a row that must be still.
const STILL_LOOKS: usize = 8;
/// The same where tabs are closed, 4.8 s: longer than allocators wait before they give back. Ours keeps free pages for
/// half a second, as many as were lately wanted again for two more, and its own tables until it has had nothing to do
/// for 1.5 s; with 1.2 s here, 8 MiB were still counted that go by themselves.
const STILL_LOOKS_CLOSE: usize = 32;

struct Run<'a> {
    args: &'a JsArgs,
    clock: Rc<TabClock>,
    tabs: Vec<Tab>,
    memory: Vec<Instant>,
    left: Vec<Left>,
    /// Freed while programs ran: not by what measures, nor by closing.
    freed: Option<Freed>,
}

/// Does what the command line says.
///
/// # Errors
/// Wrong use: a file that cannot be read, an option that this program's heap cannot do.
pub fn run(args: &JsArgs, build: &Build) -> Result<Report> {
    check(args, build)?;
    let read = |list: &[PathBuf]| -> Result<Vec<Program>> {
        list.iter().map(|path| program(path)).collect()
    };
    let files = read(&args.files)?;
    let then = read(&args.then)?;
    let tabs = match args.tabs.map(|tabs| tabs as usize) {
        Some(tabs) if tabs < files.len() => bail!(
            "--tabs {tabs}: {} programs need a tab each; give --tabs {} or more",
            files.len(),
            files.len()
        ),
        Some(tabs) => tabs,
        None => files.len(),
    };
    start(args)?;
    let mut run = Run {
        args,
        clock: Rc::new(TabClock::new(args.clock == ClockOf::Cpu)),
        tabs: Vec::new(),
        memory: Vec::new(),
        left: Vec::new(),
        freed: heap::freed(),
    };
    run.open(tabs, &files);
    // Before anything is collected for the measurements.
    let placements: Vec<Placement> = run.tabs.iter().filter_map(Tab::placement).collect();
    if args.policy.is_some() && placements.len() < tabs {
        bail!("--policy: the kernel refused address space for pages; give less with --heap-limit");
    }
    run.instant("open");
    let tenants = run.tabs.iter().filter_map(Tab::row).collect();
    run.then(&then);
    if let Some(close) = args.close {
        run.close(close);
    }
    for tab in &mut run.tabs {
        tab.say_goodbye();
    }
    heap::phase("close");
    let programs = run.tabs.iter().map(row).collect();
    let last: Vec<Left> = run.tabs.iter_mut().filter_map(Tab::close).collect();
    run.left.extend(last);
    heap::drain();
    heap::finish()?;
    let outside_freed = heap::outside_freed();
    let (events, events_cut) = heap::kept();
    let freed = run.freed;
    Ok(Report {
        heap: heap::NAME,
        malloc: build.malloc,
        boa: crate::BOA,
        separate: (heap::NAME == "skinflint").then_some(!args.no_separate),
        programs,
        memory: run.memory,
        placements,
        pauses: build.sees_pauses.then(|| heap::pauses(false)),
        pauses_cpu: build.sees_pauses.then(|| heap::pauses(true)),
        untimed: if build.sees_pauses {
            watch::untimed()
        } else {
            0
        },
        reasons: heap::reasons(),
        share_outside_pauses: freed.and_then(|freed| freed.share_outside()),
        freed,
        outside_freed,
        slices: heap::slices(),
        tenants,
        left: run.left,
        events,
        events_cut,
        cpu_ms: cpu_time().as_secs_f64() * 1e3,
    })
}

/// Tabs as stdin says, with nothing to report.
///
/// # Errors
/// As [`run`].
pub fn driven(args: &JsArgs, build: &Build) -> Result<()> {
    check(args, build)?;
    start(args)?;
    driven::drive(args)?;
    heap::finish()
}

fn start(args: &JsArgs) -> Result<()> {
    heap::log_as(args.gc_log, args.gc_log.is_some() && args.json);
    heap::phase("open");
    heap::start(&Settings {
        stress: args.stress,
        verify: args.verify,
        sweep_in_pause: args.sweep_in_pause,
        limit_bytes: args.limit,
        beside: (!args.free_here && !args.sweep_in_pause).then_some(args.beside),
        no_separate: args.no_separate,
        record: args.record_objects.clone(),
        policy: args.policy.clone().map(|name| (name, args.policy_growth)),
    })
}

/// Refuses options that another build serves: the command starts the right program, a person may not.
fn check(args: &JsArgs, build: &Build) -> Result<()> {
    let heap = match args.heap {
        Heap::Stock => "stock",
        Heap::Skinflint => "skinflint",
    };
    if heap != heap::NAME {
        bail!(
            "--heap {heap}: this program has the heap {}; start it by `skinflint js`",
            heap::NAME
        );
    }
    let malloc = args.malloc.map(|malloc| match malloc {
        Malloc::System => "system",
        Malloc::Skinflint => "skinflint",
    });
    if let Some(malloc) = malloc.filter(|malloc| *malloc != build.malloc) {
        bail!(
            "--malloc {malloc}: this program has the malloc {}; start it by `skinflint js`",
            build.malloc
        );
    }
    if args.gc_log.is_some() && heap::NAME == "stock" {
        bail!("--gc-log: Boa's own heap gives no reasons; use --pauses, or --heap skinflint");
    }
    if args.pauses && !build.sees_pauses {
        bail!("--pauses: this program cannot see them; start it by `skinflint js`");
    }
    Ok(())
}

fn program(path: &Path) -> Result<Program> {
    let text = std::fs::read(path)
        .with_context(|| format!("{}: cannot be read; name a JavaScript file", path.display()))?;
    Ok(Program {
        path: path.to_owned(),
        text,
    })
}

impl Run<'_> {
    fn tab(&mut self, program: &Program) {
        let number = self.tabs.len() + 1;
        let (limit, output) = (self.args.limit, Output::new(self.args.json));
        let mut tab = Tab::open(number, &program.path, limit, output, &self.clock);
        tab.run(program);
        self.tabs.push(tab);
    }

    fn open(&mut self, tabs: usize, files: &[Program]) {
        for number in 0..tabs {
            self.tab(&files[number % files.len()]);
        }
        self.run_until_idle();
        self.freed = heap::freed();
    }

    fn then(&mut self, programs: &[Program]) {
        if programs.is_empty() {
            return;
        }
        heap::phase("then");
        let before = heap::freed();
        for program in programs {
            self.tab(program);
            self.run_until_idle();
        }
        let both = self.freed.zip(before).zip(heap::freed());
        self.freed = both.map(|((open, before), after)| open.plus(after.since(before)));
        self.instant("then");
    }

    /// Runs timers and reactions until every tab is idle (R2).
    fn run_until_idle(&mut self) {
        loop {
            let mut any = false;
            for tab in &mut self.tabs {
                any |= tab.turn();
            }
            if any {
                continue;
            }
            heap::idle(self.clock.elapsed());
            match self.tabs.iter().filter_map(Tab::next_ms).min() {
                Some(at_ms) => {
                    let look = || heap::idle(self.clock.elapsed());
                    self.clock.wait_until(at_ms, LOOK_AT_REST, look);
                }
                None => break,
            }
        }
        heap::drain();
    }

    fn close(&mut self, close: Close) {
        let every_second = |at: usize| at.is_multiple_of(2);
        self.close_tabs(every_second);
        self.instant("half closed");
        if close == Close::AllButOne {
            let last = self.tabs.len() - 1;
            self.close_tabs(|at| at != last);
            self.instant("all but one closed");
            if self.trim() {
                self.instant("after malloc_trim");
            }
        }
    }

    fn close_tabs(&mut self, which: impl Fn(usize) -> bool) {
        heap::phase("close");
        let last = self.tabs.len() - 1;
        for (at, tab) in self.tabs.iter_mut().enumerate() {
            // The last one always stays: all but one are closed, never all.
            if which(at) && at != last && tab.is_open() {
                self.left.extend(tab.close());
            }
        }
    }

    /// Trims the C library's allocator, as an operator could; ours needs no such call.
    fn trim(&self) -> bool {
        if crate::MALLOC_IS_SYSTEM.get() != Some(&true) {
            return false;
        }
        // SAFETY: C's contract: any pad, at any time.
        unsafe { libc::malloc_trim(0) };
        true
    }

    /// Memory now (R3).
    fn instant(&mut self, at: &'static str) {
        heap::drain();
        heap::phase("measure");
        heap::collect_all();
        for tab in &mut self.tabs {
            tab.after_collection();
        }
        let enough = match (self.args.close, &self.args.policy) {
            (Some(_), _) => STILL_LOOKS_CLOSE,
            // What is asked for is what the policy says, and that was asked before.
            (None, Some(_)) => 1,
            (None, None) => STILL_LOOKS,
        };
        let (mut rss, mut still) = (resident_bytes(), 0);
        for _ in 0..LOOKS {
            std::thread::sleep(Duration::from_millis(LOOK_MS));
            heap::idle(self.clock.elapsed());
            let now = resident_bytes();
            let fell = match (rss, now) {
                (Some(before), Some(now)) => {
                    before.saturating_sub(now) as f64 > before as f64 * STILL
                }
                _ => false,
            };
            still = if fell { 0 } else { still + 1 };
            rss = now;
            if still == enough {
                break;
            }
        }
        let outside = crate::counted::bytes();
        // Read last, for its own text must be in no figure.
        let ask = crate::ALLOCATOR.get().filter(|_| self.args.json);
        let allocator = ask.map(|ask| ask().into_boxed_str());
        heap::drain();
        let rows: Vec<_> = self.tabs.iter().filter_map(Tab::row).collect();
        let has_rows = !rows.is_empty();
        let chunks = heap::chunks().map(String::into_boxed_str);
        self.memory.push(Instant {
            at,
            tabs: self.tabs.iter().filter(|tab| tab.is_open()).count(),
            rss_bytes: rss,
            system_bytes: has_rows.then(|| rows.iter().map(|row| row.system_bytes).sum()),
            user_bytes: has_rows.then(|| rows.iter().map(|row| row.user_bytes).sum()),
            outside_bytes: Some(outside).filter(|&bytes| bytes > 0),
            allocator,
            chunks,
        });
    }
}

fn row(tab: &Tab) -> ProgramRow {
    let (lines, cut) = tab.output.take();
    ProgramRow {
        tab: tab.number,
        file: tab.file.clone(),
        failure: tab.failure.clone(),
        result: tab.result.clone(),
        cpu_ms: tab.cpu.as_secs_f64() * 1e3,
        output: tab.output.keep.then_some(lines),
        output_cut: cut,
    }
}
