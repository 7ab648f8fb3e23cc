//! A run: a plan on one browser, from its start to the last of its processes.
//!
//! ```text
//!   start.rs ─► browser ─► drive ─► loads, closes, rests ─► checkpoints ─► run.json (after each one)
//!                  └─────► sampler ─────────────────────────────────────► samples.jsonl (each sample)
//! ```
//!
//! R1  However it ends (complete, interrupted, crashed, no answer, full disk), what was measured is in the run's
//!     folder, `ended` says how it ended, and nothing of the browser is left running: `left_over` lists what had to
//!     be swept up.
//! R2  A page that does not load is counted and the run goes on; three windows that cannot be closed end the run.
//! R3  Every wait is bounded and checks the signal flag, the browser and the sampler.
//!
//! Not here: several runs (series.rs), what the steps mean (plan.rs).

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skinflint_procfs::maps::maps_text;
use skinflint_procfs::stat;

use crate::drive::{
    Drive, Target, host::Host, marionette::Marionette, node::Node, opener::Opener,
    webdriver::WebDriver,
};
use crate::family;
use crate::figures::{self, Checkpoint, Figures};
use crate::plan::{Kind, Plan};
use crate::sampler::{self, Sampler};
use crate::site::Site;
use crate::start::{self, Browser, Driver, Running, Subject};
use crate::tree::Tree;
use crate::zombies::{self, Zombies};

mod memory_report;

/// The checkpoint after the last tab is closed and the browser has collected.
const CLOSED: &str = "tabs-closed-gc";

/// The inputs of a run.
pub struct Job<'a> {
    /// The browser that is measured.
    pub subject: &'a Subject,
    /// The plan that is run.
    pub plan: &'a Plan,
    /// The pages, in order.
    pub targets: &'a [Target],
    /// The benchmark's page.
    pub octane: Option<&'a Target>,
    /// The server of the pages.
    pub site: &'a Arc<Site>,
    /// The folder of packages.
    pub cache: &'a Path,
    /// The run's folder.
    pub folder: &'a Path,
    /// Whether windows are shown on a display of their own instead of headless.
    pub headful: bool,
    /// The interval between samples.
    pub interval: Duration,
    /// Its number among the runs of its subject, from 1.
    pub repetition: u32,
    /// Browsers that run at the same time, by label.
    pub beside: Vec<String>,
    /// Reports progress.
    pub progress: &'a (dyn Fn(&str) + Sync),
}

/// A load of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Name of the page.
    pub page: String,
    /// The time of its beginning, ms.
    pub ms: u64,
    /// Its duration, ms.
    pub load_ms: u64,
    /// Windows open afterwards, the first one not counted.
    pub open: u32,
    /// Why it failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// A run of the benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Number of the plan's tabs that were open.
    pub open: u32,
    /// Octane's score; more is better.
    pub score: Option<f64>,
    /// Scores by program.
    pub parts: Value,
}

/// Whether the preloaded allocator was present. Whether it served is counted in a run of its own (proof.rs):
/// processes of a browser are ended by signals, and report nothing when they end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preload {
    /// Number of processes at `tabs-open`.
    pub processes: u32,
    /// Number of these processes that had the library mapped.
    pub mapped: u32,
    /// Number of processes for pages at `tabs-open`.
    pub content: u32,
    /// Number of processes for pages that had the library mapped.
    pub content_mapped: u32,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was measured.
    pub subject: Subject,
    /// Its number among the runs of its subject.
    pub repetition: u32,
    /// The plan as it was run.
    pub plan: Plan,
    /// Browsers that ran at the same time, by label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// The version of the program.
    pub version: String,
    /// The version that it reported when it was driven.
    pub driven_version: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// The time of its beginning, seconds since 1970.
    pub began_unix_s: u64,
    /// Whether everything was done.
    pub complete: bool,
    /// How it ended, in words.
    pub ended: String,
    /// All loads.
    pub loads: Vec<Load>,
    /// All checkpoints.
    pub checkpoints: Vec<Checkpoint>,
    /// The time during which all windows were open, ms.
    pub full: Option<(u64, u64)>,
    /// Figures.
    pub figures: Figures,
    /// What is left of closed pages.
    pub zombies: Zombies,
    /// The results of the benchmark.
    pub scores: Vec<Score>,
    /// Whether the preload was present.
    pub preload: Option<Preload>,
    /// Requests to the outside, by host; all were refused at once.
    pub outside: BTreeMap<String, u64>,
    /// Files of pages that were missing.
    pub missing: BTreeMap<String, u64>,
    /// The browser's own reports, files in the run's folder.
    pub reports: Vec<String>,
    /// Anything that did not go as planned.
    pub notes: Vec<String>,
    /// Processes that outlived the orderly end and were killed by their mark.
    pub left_over: Vec<u32>,
}

impl Run {
    /// Returns the checkpoint with a name, the last if there are several.
    pub fn checkpoint(&self, name: &str) -> Option<&Checkpoint> {
        self.checkpoints
            .iter()
            .rfind(|checkpoint| checkpoint.name == name)
    }

    /// Returns the number of loads that failed.
    pub fn failed_loads(&self) -> usize {
        self.loads
            .iter()
            .filter(|load| load.failed.is_some())
            .count()
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// If there is no room.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let beside = path.with_extension("part");
    fs::write(&beside, bytes)
        .with_context(|| format!("{}: cannot be written", beside.display()))?;
    fs::rename(&beside, path).with_context(|| format!("{}: cannot be written", path.display()))
}

/// Runs the plan. Errors are of what comes before the browser; a failure of the browser is in the result (R1).
///
/// # Errors
/// If the folder cannot be made.
pub fn run(job: &Job) -> Result<Run> {
    fs::create_dir_all(job.folder)
        .with_context(|| format!("{}: cannot be made", job.folder.display()))?;
    let token = family::token();
    let mut run = blank(job);
    // What a browser asked for while it was ending does not belong to this run.
    job.site.strays();
    let done = measured(job, &token, &mut run);
    run.left_over = family::sweep(&token);
    run.complete = done.is_ok();
    run.ended = match &done {
        Ok(()) => "complete".into(),
        Err(error) => format!("{error:#}"),
    };
    (run.outside, run.missing) = job.site.strays();
    if let Ok(mut samples) = sampler::read(&job.folder.join("samples.jsonl")) {
        sampler::cut_after_last_checkpoint(&mut samples, run.complete);
        run.figures = figures::figures(&samples, &run.checkpoints, run.full);
    }
    if let Err(error) = store(job, &run) {
        run.complete = false;
        run.notes.push(format!("{error:#}"));
    }
    Ok(run)
}

fn store(job: &Job, run: &Run) -> Result<()> {
    write_whole(
        &job.folder.join("run.json"),
        &serde_json::to_vec_pretty(run)?,
    )
}

fn blank(job: &Job) -> Run {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Run {
        subject: job.subject.clone(),
        repetition: job.repetition,
        plan: job.plan.clone(),
        beside: job.beside.clone(),
        version: job.subject.version(),
        driven_version: None,
        command: Vec::new(),
        began_unix_s: since.map_or(0, |since| since.as_secs()),
        complete: false,
        ended: "under way, or cut off".into(),
        loads: Vec::new(),
        checkpoints: Vec::new(),
        full: None,
        figures: Figures::default(),
        zombies: Zombies::default(),
        scores: Vec::new(),
        preload: None,
        outside: BTreeMap::new(),
        missing: BTreeMap::new(),
        reports: Vec::new(),
        notes: Vec::new(),
        left_over: Vec::new(),
    }
}

/// Starts, runs the plan, ends: whatever happens to the plan, the browser is ended.
fn measured(job: &Job, token: &str, run: &mut Run) -> Result<()> {
    let samples = job.folder.join("samples.jsonl");
    let file =
        File::create(&samples).with_context(|| format!("{}: cannot be made", samples.display()))?;
    let log = job.folder.join("browser.log");
    let opener = opener_of(job);
    let began = Instant::now();
    let mut running = start::start(
        job.subject,
        job.site.port(),
        &opener,
        job.headful,
        token,
        &log,
    )?;
    run.command = running.command.clone();
    // Everything that was started for this run, to be ended; the measured tree is smaller.
    let mut whole = Tree::new(running.child.id(), token, &[]);
    let done = drive(job, token, &mut running, &opener, &log).and_then(|drive| {
        let mut strangers = drive.helpers();
        strangers.extend(running.display.as_ref().map(std::process::Child::id));
        let main = main_process(job.subject, &running, &mut whole)?;
        strangers.retain(|pid| *pid != main);
        run.driven_version = drive.version();
        if run.version.is_empty() {
            run.version = drive.version().unwrap_or_default();
        }
        let sampler = Sampler::start(
            Tree::new(main, token, &strangers),
            job.interval,
            began,
            file,
        );
        let mut runner = Runner {
            job,
            drive,
            sampler,
            tree: Tree::new(main, token, &strangers),
            main,
            folder: running.folder.path().to_owned(),
            began,
            open: VecDeque::new(),
            unclosed: 0,
            looked: began,
            owed: None,
            next_load: Instant::now(),
            run: &mut *run,
        };
        let done = runner.plan();
        // A signal comes first: other failures are then its consequence.
        if family::is_interrupted() {
            Err(anyhow::anyhow!("interrupted"))
        } else {
            done
        }
    });
    family::end(&mut running.child, &mut whole, Duration::from_secs(5));
    start::end_display(running.display.take());
    done
}

/// Returns the page that opens the others, if one does.
fn opener_of(job: &Job) -> String {
    if job.plan.one_origin {
        return job.site.address("one", "opener/skinflint-opener.html");
    }
    job.site.address("opener", "")
}

fn drive(
    job: &Job,
    token: &str,
    running: &mut Running,
    opener: &str,
    log: &Path,
) -> Result<Box<dyn Drive>> {
    let subject = job.subject;
    Ok(match subject.driver {
        Driver::Cdp | Driver::Bidi => Box::new(Node::connect(
            job.cache,
            subject.driver,
            &running.endpoint,
            token,
            log,
        )?),
        Driver::Marionette => Box::new(Marionette::connect(&running.endpoint)?),
        Driver::Webdriver => {
            let opener = job.plan.one_origin.then_some(opener);
            let program = subject.program.first().map_or("", String::as_str);
            let driver = running.child.id();
            Box::new(WebDriver::connect(
                &running.endpoint,
                program,
                driver,
                job.site.port(),
                opener,
            )?)
        }
        Driver::Host => Box::new(Host::connect(&mut running.child)?),
        Driver::Page => Box::new(Opener::connect(job.site.clone())?),
    })
}

/// Returns the browser's first process: the one that we started, or the one that the driver has started.
fn main_process(subject: &Subject, running: &Running, whole: &mut Tree) -> Result<u32> {
    let started = running.child.id();
    if subject.driver != Driver::Webdriver {
        return Ok(started);
    }
    let members = whole.members();
    let below = members.iter().find(|(_, stat)| stat.ppid == started);
    below
        .map(|(pid, _)| *pid)
        .context("the driver has started no browser")
}

struct Runner<'a, 'r> {
    job: &'a Job<'a>,
    drive: Box<dyn Drive>,
    sampler: Sampler,
    tree: Tree,
    main: u32,
    folder: PathBuf,
    began: Instant,
    open: VecDeque<String>,
    unclosed: u32,
    looked: Instant,
    /// The checkpoint whose memory report Firefox has not written in time.
    owed: Option<String>,
    next_load: Instant,
    run: &'r mut Run,
}

impl Runner<'_, '_> {
    fn plan(&mut self) -> Result<()> {
        let plan = self.job.plan;
        let settle = Duration::from_secs_f64(plan.settle_s);
        self.checkpoint("start")?;
        self.rest(settle)?;
        self.checkpoint("start-settled")?;
        for iteration in 0..plan.iterations {
            if iteration > 0 {
                // Checkpoints of the last time count; `start` is that of the first.
                self.run.checkpoints.retain(|c| c.name.starts_with("start"));
            }
            self.loads()?;
            self.checkpoint("tabs-open")?;
            self.look_for_preload();
            self.rest(settle)?;
            self.checkpoint("tabs-open-settled")?;
            self.forced("tabs-open-gc")?;
            if plan.benchmark {
                self.benchmark()?;
            }
            while self.open.len() > plan.leave as usize {
                self.close_oldest()?;
            }
            self.checkpoint("tabs-closed")?;
            self.rest(settle)?;
            self.checkpoint("tabs-closed-settled")?;
            self.rest(Duration::from_secs_f64(plan.rest_s))?;
            if plan.rest_s > 0.0 {
                self.checkpoint("rested")?;
            }
        }
        self.forced(CLOSED)?;
        self.left()?;
        if plan.snapshots {
            self.snapshots()?;
        }
        Ok(())
    }

    /// Takes a heap snapshot of each page that is left open: after all that is measured, as it takes memory.
    fn snapshots(&mut self) -> Result<()> {
        match self.drive.snapshots(self.job.folder) {
            Ok(files) => self.run.reports.extend(files),
            Err(error) => {
                self.alive()?;
                self.run.notes.push(format!("heap snapshot: {error:#}"));
            }
        }
        store(self.job, self.run)
    }

    fn loads(&mut self) -> Result<()> {
        let plan = self.job.plan;
        let order = plan.order(self.job.targets.len());
        let most = if plan.keep == 0 {
            order.len()
        } else {
            (plan.keep as usize).min(order.len())
        };
        for (number, at) in order.iter().enumerate() {
            if plan.keep > 0 && self.open.len() >= plan.keep as usize {
                self.close_oldest()?;
            }
            self.load(&self.job.targets[*at])?;
            if number == 0 && plan.one_open {
                self.checkpoint("one-open")?;
            }
            if number == 0 && plan.benchmark {
                self.benchmark()?;
            }
            // This is the least, in case the run ends early.
            let now = self.ms();
            match &mut self.run.full {
                Some((_, end)) => *end = now,
                None if self.open.len() == most => self.run.full = Some((now, now)),
                None => {}
            }
            // A cycle of one page is a load, and not a step worth a look.
            if self.job.targets.len() > 1 && (number + 1) % self.job.targets.len() == 0 {
                let cycle = (number + 1) / self.job.targets.len();
                (self.job.progress)(&format!(
                    "{}: cycle {cycle} of {}",
                    self.job.subject.label, plan.cycles
                ));
                if plan.cycles > 1 {
                    self.checkpoint(&format!("cycle-{cycle}"))?;
                }
            }
        }
        if let Some((_, end)) = &mut self.run.full {
            *end = self.began.elapsed().as_millis() as u64;
        }
        Ok(())
    }

    fn ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn load(&mut self, target: &Target) -> Result<()> {
        let plan = self.job.plan;
        let wait = self.next_load.saturating_duration_since(Instant::now());
        self.rest(wait)?;
        self.next_load = Instant::now() + Duration::from_secs_f64(plan.interval_s);
        let ms = self.ms();
        let loaded = self.drive.open(
            target,
            plan.kind,
            Duration::from_secs_f64(plan.load_timeout_s),
        );
        let loaded = loaded.map_err(|error| self.blame(error))?;
        self.open.push_back(loaded.tab);
        if let Some(why) = &loaded.failed {
            (self.job.progress)(&format!(
                "{}: {} did not load: {why}",
                self.job.subject.label, target.host
            ));
        }
        self.run.loads.push(Load {
            page: target.host.clone(),
            ms,
            load_ms: loaded.load_ms,
            open: self.open.len() as u32,
            failed: loaded.failed,
        });
        self.alive()
    }

    fn close_oldest(&mut self) -> Result<()> {
        let Some(tab) = self.open.pop_front() else {
            return Ok(());
        };
        if let Err(error) = self.drive.close(&tab) {
            self.alive()?;
            self.unclosed += 1;
            self.run
                .notes
                .push(format!("window {tab} would not close: {error:#}"));
            if self.unclosed >= 3 {
                bail!("three windows would not close, the last: {error:#}");
            }
        }
        self.alive()
    }

    /// Turns an error of the driver into the end of the browser, if it has ended.
    fn blame(&mut self, error: anyhow::Error) -> anyhow::Error {
        // The ends of a process and of its connection are seen in either order.
        for _ in 0..20 {
            if let Err(end) = self.alive() {
                return end;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        error
    }

    /// Checks the signal flag, the browser and the sampler (R3).
    fn alive(&mut self) -> Result<()> {
        if family::is_interrupted() {
            bail!("interrupted");
        }
        if let Some(why) = self.sampler.failed() {
            bail!(
                "samples can no longer be written to {}: {why}",
                self.job.folder.display()
            );
        }
        if stat(self.main).is_none_or(|stat| stat.is_dead()) {
            bail!(
                "the browser has ended by itself; what it said is in {}/browser.log",
                self.job.folder.display()
            );
        }
        if self.looked.elapsed() > Duration::from_secs(1) {
            // This records its processes before it is gone (tree.T1).
            self.tree.members();
            self.looked = Instant::now();
        }
        Ok(())
    }

    fn rest(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.alive()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    fn checkpoint(&mut self, name: &str) -> Result<()> {
        self.alive()?;
        let sample = self.sampler.checkpoint(name);
        self.alive()?;
        let sample = sample.context("the sampler does not answer")?;
        let checkpoint =
            Checkpoint::of(name, &sample).context("the browser has no process that can be read")?;
        self.run.checkpoints.push(checkpoint);
        store(self.job, self.run)
    }

    /// Makes the browser collect and minimize, measures again, and takes its own report.
    fn forced(&mut self, name: &str) -> Result<()> {
        if !self.job.plan.gc {
            return Ok(());
        }
        let asked = match self.job.subject.browser {
            Browser::Firefox => self.firefox_report(name, true),
            _ => self.drive.collect().map(|silent| {
                if let Some(pages @ 1..) = silent {
                    let note = format!("{name}: {pages} pages did not say that they had collected");
                    self.run.notes.push(note);
                }
                silent.is_some()
            }),
        };
        let done = match asked {
            Ok(done) => done,
            Err(error) => {
                self.alive()?;
                self.run.notes.push(format!("{name}: {error:#}"));
                return Ok(());
            }
        };
        if !done {
            return Ok(());
        }
        self.rest(Duration::from_secs_f64(self.job.plan.settle_s.min(10.0)))?;
        self.checkpoint(name)
    }

    fn benchmark(&mut self) -> Result<()> {
        let Some(target) = self.job.octane else {
            return Ok(());
        };
        let open = self.open.len() as u32;
        (self.job.progress)(&format!(
            "{}: Octane with {open} open",
            self.job.subject.label
        ));
        self.job.site.scores();
        let limit = Duration::from_secs_f64(self.job.plan.load_timeout_s);
        let loaded = self
            .drive
            .open(target, Kind::Tab, limit)
            .map_err(|error| self.blame(error))?;
        let until = Instant::now() + Duration::from_secs(600);
        let mut score = Score {
            open,
            score: None,
            parts: Value::Null,
        };
        while Instant::now() < until {
            self.rest(Duration::from_millis(200))?;
            if let Some(mut said) = self.job.site.scores().pop() {
                score.score = said["score"].as_f64();
                if let Some(error) = said["error"].as_str() {
                    self.run
                        .notes
                        .push(format!("Octane with {open} open: {error}"));
                }
                score.parts = said["scores"].take();
                break;
            }
        }
        if score.score.is_none() {
            self.run
                .notes
                .push(format!("Octane with {open} open gave no score in 600 s"));
        }
        self.run.scores.push(score);
        self.open.push_front(loaded.tab);
        self.close_oldest()
    }

    fn look_for_preload(&mut self) {
        let Some((_, library)) = &self.job.subject.allocator else {
            return;
        };
        let file = library
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut preload = Preload::default();
        for held in self.tree.look(false) {
            let maps = maps_text(held.pid).unwrap_or_default();
            let mapped = u32::from(maps.contains(&file));
            preload.processes += 1;
            preload.mapped += mapped;
            if self.is_content(&held.role) {
                preload.content += 1;
                preload.content_mapped += mapped;
            }
        }
        self.run.preload = Some(preload);
    }

    /// Reports whether a process is one for pages; the JavaScript host's only one is.
    fn is_content(&self, role: &str) -> bool {
        figures::is_content(role) || self.job.subject.browser == Browser::Js
    }

    /// Finds what is left of closed pages.
    fn left(&mut self) -> Result<()> {
        let last = self.tree.look(true);
        let content = last.iter().filter(|held| self.is_content(&held.role));
        self.run.zombies = Zombies {
            tabs_open: self.open.len() as u32,
            content_processes: content
                .map(|held| (held.pid, held.pss.unwrap_or(0)))
                .collect(),
            ..Zombies::default()
        };
        if self.job.subject.browser == Browser::Firefox {
            self.left_in_firefox()?;
        }
        match self.drive.dump() {
            Ok(Some(said)) if self.job.subject.browser == Browser::Js => {
                zombies::host(&said, &mut self.run.zombies);
                let file = "host-report-end.json";
                write_whole(&self.job.folder.join(file), &serde_json::to_vec(&said)?)?;
                self.run.reports.push(file.into());
            }
            Ok(Some(events)) => {
                zombies::chromium(&events, &mut self.run.zombies);
                let file = "memory-infra-end.json";
                write_whole(
                    &self.job.folder.join(file),
                    &serde_json::to_vec(&serde_json::json!({"traceEvents": events}))?,
                )?;
                self.run.reports.push(file.into());
            }
            Ok(None) => {}
            Err(error) => {
                self.alive()?;
                self.run.notes.push(format!("memory dump: {error:#}"));
            }
        }
        Ok(())
    }
}
