//! The rounds: every allocator once, in turn, again and again; and the result of each.
//!
//! ```text
//!   check     A' B' C'        counted calls, status and output of the reference, a limit from its time; not measured
//!   round 1   A  B  C
//!   round 2   B  C  A         each round begins with the next one
//!   round 3   C  A  B         who fails is out, and its column says why; the others go on
//! ```
//!
//! V1  A column has one verdict: the first thing that went wrong, else `measured`.
//! V2  Status and output must be those of the reference, or it is no comparison. Output that differs between two runs
//!     of the reference is not compared.
//! V3  The reference's time bounds the others': a hanging allocator costs ten times that, or the user's limit.
//! V4  An interruption leaves a comparison of what was measured until then.
//!
//! Not here: one run (run.rs), summing up (sum.rs), the report of a replay (replays.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::figures;
use crate::machine;
use crate::model::{Allocator, Column, Measure, Program, Run, Settings, Verdict};
use crate::probe::Counter;
use crate::replays::{Replayed, Replayer};
use crate::run::{self, Done, Ended, Job};

/// Without a limit from the user, the reference may take this long.
const REFERENCE_LIMIT: Duration = Duration::from_secs(3600);
/// Without one, the others may take this many times as long as the reference, and
const LIMIT_FACTOR: u32 = 10;
/// not less than this.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// A program or trace that is run.
pub struct Subject {
    /// Short name.
    pub name: String,
    /// The command, or the trace, for the outputs.
    pub what: Vec<String>,
    /// What has to be known about it.
    pub notes: Vec<String>,
    /// How it is run.
    pub kind: Kind,
}

/// How a subject is run.
pub enum Kind {
    /// The program itself.
    Command {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Its stdin.
        input: Option<PathBuf>,
        /// Why no preload can reach it, if that is known.
        unreachable: Option<String>,
    },
    /// A script of a trace.
    Replay(Replayer),
}

/// The common settings of all runs.
pub struct Plan<'a> {
    /// The settings.
    pub settings: &'a Settings,
    /// The columns, the reference first.
    pub allocators: &'a [Allocator],
    /// The library that counts calls.
    pub probe: &'a Path,
    /// The folder for files of a run.
    pub folder: &'a Path,
    /// Whether output that differs is a failure.
    pub compare_output: bool,
}

/// Progress, for the caller that waits.
pub struct News<'a> {
    /// The subject.
    pub subject: &'a str,
    /// The allocator.
    pub allocator: &'a str,
    /// The round, 0 for the check.
    pub round: u32,
    /// The number of all rounds.
    pub rounds: u32,
}

/// Runs all rounds of one subject.
///
/// # Errors
/// Only what concerns all allocators alike: no room for files, no such program.
pub fn rounds(
    plan: &Plan<'_>,
    subject: &Subject,
    tell: &mut dyn FnMut(News<'_>),
) -> Result<Program> {
    let columns = plan.allocators.iter().map(|allocator| Column {
        allocator: allocator.name.clone(),
        verdict: Verdict::NotRun,
        check: None,
        runs: Vec::new(),
        cells: Vec::new(),
        typical: None,
    });
    let mut rounds = Rounds {
        plan,
        subject,
        norm: Norm::default(),
        notes: subject.notes.clone(),
        columns: columns.collect(),
    };
    rounds.check(tell)?;
    for round in 1..=plan.settings.runs {
        rounds.round(round, tell)?;
    }
    rounds.conclude();
    Ok(Program {
        name: subject.name.clone(),
        what: subject.what.clone(),
        replayed: matches!(subject.kind, Kind::Replay(_)),
        notes: rounds.notes,
        columns: rounds.columns,
    })
}

/// The results of the reference.
#[derive(Default)]
struct Norm {
    status: Option<i32>,
    outputs: BTreeSet<u64>,
    elapsed: Option<Duration>,
}

struct Rounds<'a> {
    plan: &'a Plan<'a>,
    subject: &'a Subject,
    norm: Norm,
    notes: Vec<String>,
    columns: Vec<Column>,
}

impl Rounds<'_> {
    fn tell(&self, tell: &mut dyn FnMut(News<'_>), at: usize, round: u32) {
        tell(News {
            subject: &self.subject.name,
            allocator: &self.columns[at].allocator,
            round,
            rounds: self.plan.settings.runs,
        });
    }

    /// Runs the check round. A column is `Measured` after it if nothing speaks against it.
    fn check(&mut self, tell: &mut dyn FnMut(News<'_>)) -> Result<()> {
        for at in 0..self.columns.len() {
            if run::is_interrupted() {
                return Ok(());
            }
            self.tell(tell, at, 0);
            let allocator = &self.plan.allocators[at];
            let verdict = match self.unreachable(allocator) {
                Some(why) => Verdict::NoEffect { why },
                None => self.checked(at)?,
            };
            self.columns[at].verdict = verdict;
        }
        Ok(())
    }

    /// Returns why this allocator cannot reach the program, if that is known beforehand.
    fn unreachable(&self, allocator: &Allocator) -> Option<String> {
        match &self.subject.kind {
            Kind::Command { unreachable, .. } if allocator.library.is_some() => unreachable.clone(),
            _ => None,
        }
    }

    fn checked(&mut self, at: usize) -> Result<Verdict> {
        let allocator = &self.plan.allocators[at];
        let counter = Counter::new(self.plan.folder).context("the file of counted calls")?;
        let (done, replayed) = match self.start(allocator, Some(&counter), at)? {
            Ok(both) => both,
            Err(why) => return Ok(Verdict::Failed { why }),
        };
        if let Some(verdict) = self.judged(at, &done, replayed.as_ref(), 0)? {
            return Ok(verdict);
        }
        let found = counter
            .read(done.pid)
            .context("the file of counted calls")?;
        let why = found
            .in_vain(allocator)
            .or_else(|| held_elsewhere(allocator, &done));
        self.columns[at].check = Some(found.check);
        Ok(why.map_or(Verdict::Measured, |why| Verdict::NoEffect { why }))
    }

    /// Runs one measured round; it begins with another column each time.
    fn round(&mut self, round: u32, tell: &mut dyn FnMut(News<'_>)) -> Result<()> {
        let count = self.columns.len();
        for position in 0..count {
            let at = (position + round as usize - 1) % count;
            if run::is_interrupted() {
                return Ok(());
            }
            if self.columns[at].verdict != Verdict::Measured {
                continue;
            }
            self.tell(tell, at, round);
            let (load, calibration_ns) = (machine::load(), machine::calibration_ns());
            let (done, replayed) = match self.start(&self.plan.allocators[at], None, at)? {
                Ok(both) => both,
                Err(why) => {
                    self.columns[at].verdict = Verdict::Failed { why };
                    continue;
                }
            };
            if let Some(verdict) = self.judged(at, &done, replayed.as_ref(), round)? {
                self.columns[at].verdict = verdict;
                if done.ended == Ended::Interrupted {
                    self.columns[at].verdict = Verdict::Measured;
                    return Ok(());
                }
            }
            let mut run = figured(&done, replayed, self.plan.settings);
            (run.round, run.position) = (round, position as u32 + 1);
            (run.load, run.calibration_ns) = (load, calibration_ns);
            self.columns[at].runs.push(run);
        }
        Ok(())
    }

    /// Starts the subject. The inner error concerns this allocator only.
    #[allow(clippy::type_complexity)]
    fn start(
        &self,
        allocator: &Allocator,
        counter: Option<&Counter>,
        at: usize,
    ) -> Result<Result<(Done, Option<Replayed>), String>> {
        let settings = self.plan.settings;
        let (command, input, idle) = match &self.subject.kind {
            Kind::Command { command, input, .. } => {
                let idle = settings.idle_s.map(Duration::from_secs_f64);
                (command.clone(), input.clone(), idle)
            }
            Kind::Replay(replayer) => (replayer.command(self.plan.folder, settings), None, None),
        };
        let job = Job {
            command,
            environment: environment(allocator, counter, self.plan.probe),
            input,
            folder: self.plan.folder.to_owned(),
            limit: self.limit(at),
            idle,
            interval: Duration::from_millis(settings.interval_ms),
            library: counter.map(|_| self.plan.probe.display().to_string()),
        };
        let done = run::run(&job)
            .with_context(|| format!("{}: cannot be started", job.command[0].to_string_lossy()))?;
        match &self.subject.kind {
            Kind::Replay(replayer) if done.ended == Ended::Status(0) => {
                Ok(match replayer.report(self.plan.folder) {
                    Ok(report) => Ok((done, Some(report))),
                    Err(why) => Err(format!("{why:#}")),
                })
            }
            _ => Ok(Ok((done, None))),
        }
    }

    fn limit(&self, at: usize) -> Duration {
        if let Some(seconds) = self.plan.settings.timeout_s {
            return Duration::from_secs_f64(seconds);
        }
        match self.norm.elapsed {
            Some(elapsed) if at > 0 => (elapsed * LIMIT_FACTOR).max(LEAST_LIMIT),
            _ => REFERENCE_LIMIT,
        }
    }

    /// Returns what went wrong; `None` if nothing did. The first good run sets the norm.
    fn judged(
        &mut self,
        at: usize,
        done: &Done,
        replayed: Option<&Replayed>,
        round: u32,
    ) -> Result<Option<Verdict>> {
        let status = match done.ended {
            Ended::Interrupted => return Ok(Some(Verdict::NotRun)),
            Ended::Limit => {
                let limit_ns = self.limit(at).as_nanos() as u64;
                return Ok(Some(Verdict::TimeLimit { limit_ns, round }));
            }
            Ended::Signal(signal) => {
                return Ok(Some(Verdict::Crashed {
                    signal: signal_name(signal),
                    round,
                    said: done.said.clone(),
                }));
            }
            Ended::Idle => 0,
            Ended::Status(status) => status,
        };
        if let Some(fault) = replayed.and_then(Replayed::fault) {
            return Ok(Some(Verdict::Failed { why: fault }));
        }
        if matches!(self.subject.kind, Kind::Replay(_)) && status != 0 {
            let why = format!("the replay ended with status {status}: {}", done.said);
            return Ok(Some(Verdict::Failed { why }));
        }
        let reference = *self.norm.status.get_or_insert(status);
        if status != reference {
            return Ok(Some(Verdict::OtherStatus {
                status,
                reference,
                round,
                said: done.said.clone(),
            }));
        }
        if at == 0 {
            self.norm.elapsed.get_or_insert(done.elapsed);
        }
        if at == 0 || self.norm.outputs.is_empty() {
            self.norm.outputs.insert(done.output);
        }
        if !self.plan.compare_output || self.norm.outputs.contains(&done.output) {
            return Ok(None);
        }
        Ok((!self.output_varies()?).then_some(Verdict::OtherOutput { round }))
    }

    /// Reports whether the reference itself does not write the same twice (V2): it is run once more.
    fn output_varies(&mut self) -> Result<bool> {
        if self.norm.outputs.len() > 1 {
            return Ok(true);
        }
        if let Ok((again, _)) = self.start(&self.plan.allocators[0], None, 0)?
            && matches!(again.ended, Ended::Status(_) | Ended::Idle)
        {
            self.norm.outputs.insert(again.output);
        }
        Ok(self.norm.outputs.len() > 1)
    }

    /// Adds notes that are known only now, and the verdict of columns that were not run.
    fn conclude(&mut self) {
        if let Some(status) = self.norm.status.filter(|status| *status != 0) {
            self.notes.push(format!(
                "exit status {status} under {}",
                self.plan.allocators[0].name
            ));
        }
        if self.norm.outputs.len() > 1 && self.plan.compare_output {
            self.notes.push(
                "its output differs from run to run, so it was not compared between allocators"
                    .into(),
            );
        }
        for column in &mut self.columns {
            if column.verdict == Verdict::Measured && column.runs.is_empty() {
                column.verdict = Verdict::NotRun;
            }
        }
    }
}

/// Returns why the preload was in vain although it was loaded somewhere: most of the memory is held where it was not.
fn held_elsewhere(allocator: &Allocator, done: &Done) -> Option<String> {
    allocator.library.as_ref()?;
    let (bytes, program) = done.without_library.as_ref()?;
    (*bytes > done.with_library_bytes).then(|| {
        format!(
            "most of the memory was held by {program}, {} without the preload: statically linked, set-user-id, or \
             started with an environment of its own",
            skinflint_view::units::bytes(*bytes)
        )
    })
}

/// Returns what is added to the environment for an allocator.
fn environment(
    allocator: &Allocator,
    counter: Option<&Counter>,
    probe: &Path,
) -> Vec<(OsString, OsString)> {
    let mut list: Vec<OsString> = Vec::new();
    let mut added = Vec::new();
    if let Some(counter) = counter {
        list.push(probe.into());
        added.push((
            skinflint_base::env::PROBE.name().into(),
            counter.path().into(),
        ));
    }
    list.extend(allocator.library.as_ref().map(OsString::from));
    list.extend(std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty()));
    if !list.is_empty() {
        added.push(("LD_PRELOAD".into(), list.join(OsStr::new(":"))));
    }
    for (name, value) in &allocator.environment {
        // Tunables of the C library are a list with colons; what the user has set stays.
        let joined = match std::env::var_os(name).filter(|_| name == "GLIBC_TUNABLES") {
            Some(before) => [before, value.into()].join(OsStr::new(":")),
            None => value.into(),
        };
        added.push((name.into(), joined));
    }
    added
}

/// Returns the figures of a run.
fn figured(done: &Done, replayed: Option<Replayed>, settings: &Settings) -> Run {
    let end_ms = done.elapsed.as_secs_f64() * 1e3;
    let mut figures = BTreeMap::from([
        (Measure::CpuNs, (done.user_ns + done.system_ns) as f64),
        (Measure::UserNs, done.user_ns as f64),
        (Measure::SystemNs, done.system_ns as f64),
        (Measure::ElapsedNs, done.elapsed.as_nanos() as f64),
        (Measure::MinorFaults, done.minor_faults as f64),
    ]);
    // A replay makes no calls of the program's.
    if let Some(moved) = done.moved.filter(|_| replayed.is_none()) {
        figures.insert(Measure::ReadBytes, moved.read_bytes as f64);
        figures.insert(Measure::WrittenBytes, moved.written_bytes as f64);
    }
    let samples = &done.samples;
    let mut high_water_bytes = None;
    if let Some(levels) =
        figures::levels(samples, end_ms, done.main_ended_ms).filter(|_| replayed.is_none())
    {
        let mark = done.high_water_bytes;
        high_water_bytes = mark.filter(|mark| done.processes == 1 && *mark > levels.peak);
        let peak = high_water_bytes.unwrap_or(levels.peak);
        figures.insert(Measure::PeakBytes, peak as f64);
        figures.insert(Measure::MeanBytes, levels.mean);
        figures.insert(Measure::AfterFreeBytes, levels.after_free as f64);
        figures.insert(Measure::FinalBytes, levels.last as f64);
    }
    let (worst_gap_ms, late_share) =
        figures::gaps(&done.samples, settings.interval_ms as f64, end_ms);
    let mut run = Run {
        status: match done.ended {
            Ended::Status(status) => Some(status),
            _ => None,
        },
        figures,
        samples: samples.len() as u64,
        worst_gap_ms,
        late_share,
        high_water_bytes,
        left: done.left,
        processes: done.processes,
        swapped_bytes: done.swapped_bytes,
        curve: figures::curve(samples),
        ..Run::default()
    };
    if let Some(replayed) = replayed {
        replayed.add_to(&mut run);
    }
    run
}

/// Returns a signal's name.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGKILL => "SIGKILL",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSYS => "SIGSYS",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGINT => "SIGINT",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
