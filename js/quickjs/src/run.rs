//! A run from the first tab to the last: open, then, close, and memory at each instant.
//!
//! ```text
//!   read files ─► open N tabs, turns until all are idle ─► then … ─► close half ─► all but one ─► report
//! ```
//!
//! R1  The instants, the waiting for memory to stand still and the order of closing are those of the hosts on Boa
//!     (js/host/src/run.rs), so that figures of both can stand side by side.
//! R2  Options that are of Boa's heaps are wrong use.
//!
//! Not here: what happens in a tab (`tab`).

use std::path::PathBuf;
use std::time::{Duration, Instant as Now};

use anyhow::{Context as _, Result, bail, ensure};
use skinflint_js_options::host::cpu_time;
use skinflint_js_options::{ClockOf, Close, Engine, JsArgs};

use crate::engine;
use crate::memory::Malloc;
use crate::report::{Instant, Report, TenantRow};
use crate::tab::{Program, Tab};

/// Resident bytes stand still if they fall by less than this share from one look to the next.
const STILL: f64 = 0.005;
const LOOK: Duration = Duration::from_millis(150);
const LOOKS: usize = 80;
/// Looks in a row that must be still; the second where tabs are closed.
const STILL_LOOKS: [usize; 2] = [8, 32];

struct Run<'a> {
    args: &'a JsArgs,
    malloc: Malloc,
    start: Now,
    tabs: Vec<Tab>,
    memory: Vec<Instant>,
}

/// Refuses what this host cannot do (R2).
fn check(args: &JsArgs, malloc: Malloc) -> Result<()> {
    ensure!(
        args.engine == Engine::Quickjs,
        "--engine: this program has QuickJS-ng; start it by `skinflint js --engine quickjs`"
    );
    let asked = [
        (args.driven, "--driven"),
        (args.gc_log.is_some(), "--gc-log"),
        (args.pauses, "--pauses"),
        (args.record_objects.is_some(), "--record-objects"),
        (args.stress.is_some(), "--stress"),
        (args.verify, "--verify"),
        (args.sweep_in_pause, "--sweep-in-pause"),
        (args.no_separate, "--no-separate"),
        (args.policy.is_some(), "--policy"),
        (args.clock == ClockOf::Cpu, "--clock cpu"),
    ];
    if let Some((_, option)) = asked.iter().find(|(is_asked, _)| *is_asked) {
        bail!("{option}: the engine Boa has it; leave it out with --engine quickjs");
    }
    let named = args.malloc.map(|named| match named {
        skinflint_js_options::Malloc::System => "system",
        skinflint_js_options::Malloc::Skinflint => "skinflint",
    });
    if let Some(named) = named.filter(|named| *named != malloc.name()) {
        bail!(
            "--malloc {named}: this program has the malloc {}",
            malloc.name()
        );
    }
    Ok(())
}

fn read(files: &[PathBuf]) -> Result<Vec<Program>> {
    let program = |path: &PathBuf| {
        let file = path.display().to_string();
        let text = std::fs::read(path)
            .with_context(|| format!("{file}: cannot be read; name a JavaScript file"))?;
        Ok(Program { file, text })
    };
    files.iter().map(program).collect()
}

/// Does what the command line says.
///
/// # Errors
/// Wrong use.
pub(crate) fn run(args: &JsArgs, malloc: Malloc) -> Result<Report> {
    check(args, malloc)?;
    let (files, then) = (read(&args.files)?, read(&args.then)?);
    let tabs = args.tabs.map_or(files.len(), |tabs| tabs as usize);
    ensure!(
        tabs >= files.len(),
        "--tabs {tabs}: {0} programs need a tab each; give --tabs {0} or more",
        files.len()
    );
    let mut run = Run {
        args,
        malloc,
        start: Now::now(),
        tabs: Vec::new(),
        memory: Vec::new(),
    };
    for number in 0..tabs {
        run.open(&files[number % files.len()]);
    }
    run.until_idle();
    run.instant("open");
    let tenants: Vec<TenantRow> = run.tabs.iter().filter_map(Tab::tenant).collect();
    for program in &then {
        run.open(program);
        run.until_idle();
    }
    if !then.is_empty() {
        run.instant("then");
    }
    if let Some(close) = args.close {
        run.close(close);
    }
    run.tabs.iter_mut().for_each(Tab::say_goodbye);
    Ok(Report {
        engine: "quickjs-ng",
        quickjs: engine::version(),
        malloc: malloc.name(),
        programs: run.tabs.iter_mut().map(Tab::row).collect(),
        memory: run.memory,
        tenants,
        cpu_ms: cpu_time().as_secs_f64() * 1e3,
    })
}

impl Run<'_> {
    fn open(&mut self, program: &Program) {
        let number = self.tabs.len() + 1;
        let (keep, limit) = (self.args.json, self.args.limit);
        let tab = Tab::open(number, program, self.malloc, keep, self.start, limit);
        self.tabs.push(tab);
    }

    /// Gives turns until every tab is idle.
    fn until_idle(&mut self) {
        loop {
            let mut any = false;
            for tab in &mut self.tabs {
                any |= tab.turn();
            }
            if any {
                continue;
            }
            let next = self.tabs.iter().filter_map(Tab::next_ms);
            let Some(at) = next.min_by(f64::total_cmp) else {
                return;
            };
            let until = Duration::from_secs_f64(at.clamp(0.0, 1e9) / 1e3);
            std::thread::sleep(until.saturating_sub(self.start.elapsed()));
        }
    }

    fn close(&mut self, close: Close) {
        self.close_tabs(|at| at.is_multiple_of(2));
        self.instant("half closed");
        if close == Close::AllButOne {
            self.close_tabs(|_| true);
            self.instant("all but one closed");
            if self.malloc == Malloc::System {
                // SAFETY: C's contract: any pad, at any time.
                unsafe { libc::malloc_trim(0) };
                self.instant("after malloc_trim");
            }
        }
    }

    /// Closes tabs; the last one always stays.
    fn close_tabs(&mut self, which: impl Fn(usize) -> bool) {
        let last = self.tabs.len() - 1;
        for (at, tab) in self.tabs.iter_mut().enumerate() {
            if at != last && which(at) && tab.is_open() {
                tab.close();
            }
        }
    }

    /// Memory now.
    fn instant(&mut self, at: &'static str) {
        self.tabs.iter().for_each(Tab::collect);
        let enough = STILL_LOOKS[usize::from(self.args.close.is_some())];
        let (mut rss, mut still) = (resident_bytes(), 0);
        for _ in 0..LOOKS {
            std::thread::sleep(LOOK);
            let now = resident_bytes();
            let fell = rss.zip(now).is_some_and(|(before, now)| {
                before.saturating_sub(now) as f64 > before as f64 * STILL
            });
            still = if fell { 0 } else { still + 1 };
            rss = now;
            if still == enough {
                break;
            }
        }
        let rows: Vec<TenantRow> = self.tabs.iter().filter_map(Tab::tenant).collect();
        self.memory.push(Instant {
            at,
            tabs: rows.len(),
            rss_bytes: rss,
            engine_bytes: rows.iter().map(|row| row.engine_bytes).sum(),
            page_bytes: rows.iter().map(|row| row.page_bytes).sum(),
        });
    }
}

/// Bytes that the kernel counts as resident; `None` where it does not say.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}
