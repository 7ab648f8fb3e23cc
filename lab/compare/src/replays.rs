//! A trace as a subject: compiled once, replayed by `skinflint-replay`, its report turned into figures.
//!
//! ```text
//!   app.sft ─► compile ─► script ─► skinflint-replay --null (3 times: its own cost)
//!                            └────► skinflint-replay under each allocator ─► report: points (rss, live, floor), end
//! ```
//!
//! Y1  Memory is what the replayer reports at its points, already without its own tables; time runs by the
//!     recording's clock, so that all allocators are compared at the same moments of the program.
//! Y2  Time per call is the CPU time of the playing threads minus the replayer's own (median of the null runs), for
//!     each operation on a block; waits for other threads are in neither.
//! Y3  A replay with a violated order, a block used twice or a refused request is no measurement.
//! Y4  A report is data from a process that may have crashed: what is missing or cut is an error with its line.
//! Y5  A trace that its report calls INCOMPLETE is never replayed as a whole one: the same sentences stand before the
//!     figures (`analysis::completeness`).
//!
//! Not here: compiling (compile.rs), replaying (`skinflint-replay`).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use skinflint_recording::Recording;

use crate::compile;
use crate::figures;
use crate::model::{Measure, Point, Run, Settings};
use crate::run::{self, Ended, Job};
use crate::stats;

/// The number of null runs: their median is the replayer's own cost.
const NULL_RUNS: usize = 3;
/// The longest that a null run may take.
const NULL_LIMIT: Duration = Duration::from_secs(3600);

/// A script, ready to be replayed.
pub struct Replayer {
    program: PathBuf,
    script: PathBuf,
    /// The replayer's own CPU time for the whole script, nanoseconds.
    own_ns: f64,
}

/// Compiles a trace and measures what replaying costs by itself. Returns also what has to be known of the trace, as
/// sentences.
///
/// # Errors
/// If the trace cannot be read or has nothing to replay, there is no room for the script, or the replayer does not
/// start.
pub fn prepare(
    trace: &Path,
    program: &Path,
    folder: &Path,
    number: usize,
) -> Result<(Replayer, Vec<String>)> {
    let recording = Recording::open(trace)?;
    let opened = &recording.trace;
    let script = folder.join(format!("script{number}"));
    let file = File::create(&script)
        .with_context(|| format!("{}: cannot be written", script.display()))?;
    let mut out = BufWriter::with_capacity(1 << 18, file);
    let compiled =
        compile::compile(opened, &mut out).with_context(|| trace.display().to_string())?;
    drop(out);
    let mut notes = vec![format!(
        "{} of {} on up to {} at a time",
        skinflint_view::units::plural(compiled.ops, "operation"),
        skinflint_view::units::plural(u64::from(compiled.threads), "thread"),
        skinflint_view::units::plural(compiled.slots, "block"),
    )];
    notes.extend(recording.incomplete(compiled.ops > 0));
    notes.extend(compiled.notes());
    notes.extend(recording.left_out());
    let mut replayer = Replayer {
        program: program.to_owned(),
        script,
        own_ns: 0.0,
    };
    let mut costs = Vec::new();
    for _ in 0..NULL_RUNS {
        if run::is_interrupted() {
            break;
        }
        costs.push(replayer.null_run(folder)?);
    }
    replayer.own_ns = stats::median(&costs).unwrap_or(0.0);
    Ok((replayer, notes))
}

impl Replayer {
    fn report_file(folder: &Path) -> PathBuf {
        folder.join("report")
    }

    fn bare_command(&self, folder: &Path) -> Vec<OsString> {
        vec![
            self.program.clone().into(),
            self.script.clone().into(),
            "--report".into(),
            Self::report_file(folder).into(),
        ]
    }

    /// Returns the command that replays the script.
    pub fn command(&self, folder: &Path, settings: &Settings) -> Vec<OsString> {
        let mut command = self.bare_command(folder);
        if let Some(factor) = settings.paced {
            command.extend(["--paced".into(), format!("{factor:.3}").into()]);
        }
        if let Some(seconds) = settings.idle_s {
            command.extend(["--idle".into(), format!("{seconds:.3}").into()]);
        }
        command
    }

    fn null_run(&self, folder: &Path) -> Result<f64> {
        let mut command = self.bare_command(folder);
        command.push("--null".into());
        let done = run::run(&Job {
            command,
            environment: vec![("LD_PRELOAD".into(), "".into())],
            input: None,
            folder: folder.to_owned(),
            limit: NULL_LIMIT,
            idle: None,
            interval: Duration::from_millis(50),
            library: None,
        })
        .with_context(|| format!("{}: cannot be started", self.program.display()))?;
        match done.ended {
            Ended::Status(0) => Ok(self.report(folder)?.cpu_ns),
            Ended::Interrupted => Ok(0.0),
            other => bail!(
                "{}: the replayer itself fails without any allocator ({other:?}): {}",
                self.program.display(),
                done.said
            ),
        }
    }

    /// Reads the report of the previous run.
    ///
    /// # Errors
    /// If it is not whole.
    pub fn report(&self, folder: &Path) -> Result<Replayed> {
        let path = Self::report_file(folder);
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{}: cannot be read", path.display()))?;
        let mut replayed = Replayed::read(&text)?;
        replayed.own_ns = self.own_ns;
        Ok(replayed)
    }
}

/// A line of the report; each kind has some of the fields.
#[derive(Deserialize)]
struct Line {
    line: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    recorded_ns: u64,
    #[serde(default)]
    live_bytes: u64,
    #[serde(default)]
    rss_bytes: u64,
    floor_bytes: Option<u64>,
    #[serde(default)]
    ops: u64,
    #[serde(default)]
    cpu_ns: u64,
    #[serde(default)]
    order_violations: u64,
    #[serde(default)]
    double_uses: u64,
    #[serde(default)]
    refused: u64,
}

/// A moment of the recording.
struct Moment {
    name: String,
    at_ms: f64,
    rss_bytes: u64,
    live_bytes: u64,
    floor_bytes: Option<u64>,
}

/// The report of a replay.
pub struct Replayed {
    moments: Vec<Moment>,
    ops: u64,
    /// CPU time of the playing threads.
    cpu_ns: f64,
    own_ns: f64,
    order_violations: u64,
    double_uses: u64,
    refused: u64,
}

impl Replayed {
    fn read(text: &str) -> Result<Replayed> {
        let mut replayed = Replayed {
            moments: Vec::new(),
            ops: 0,
            cpu_ns: 0.0,
            own_ns: 0.0,
            order_violations: 0,
            double_uses: 0,
            refused: 0,
        };
        let mut is_whole = false;
        for (number, text) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(text)
                .with_context(|| format!("the replayer's report, line {}", number + 1))?;
            match line.line.as_str() {
                "point" => replayed.moments.push(Moment {
                    name: line.name,
                    at_ms: line.recorded_ns as f64 / 1e6,
                    rss_bytes: line.rss_bytes,
                    live_bytes: line.live_bytes,
                    floor_bytes: line.floor_bytes,
                }),
                "end" => {
                    is_whole = true;
                    replayed.ops = line.ops;
                    replayed.cpu_ns = line.cpu_ns as f64;
                    replayed.order_violations = line.order_violations;
                    replayed.double_uses = line.double_uses;
                    replayed.refused = line.refused;
                }
                _ => {}
            }
        }
        if !is_whole {
            bail!(
                "the replayer's report has {} lines and no end",
                text.lines().count()
            );
        }
        Ok(replayed)
    }

    /// Returns why this is no measurement (Y3).
    pub fn fault(&self) -> Option<String> {
        if self.refused > 0 {
            return Some(format!("the allocator refused {} requests", self.refused));
        }
        let (order, double) = (self.order_violations, self.double_uses);
        (order + double > 0).then(|| {
            format!("{order} operations out of order, {double} slots used twice: please report it")
        })
    }

    fn named(&self, name: &str) -> Option<&Moment> {
        self.moments.iter().rev().find(|moment| moment.name == name)
    }

    /// Puts the figures and curves into a run.
    pub fn add_to(&self, run: &mut Run) {
        let rss: Vec<Point> = self
            .moments
            .iter()
            .map(|m| (m.at_ms, m.rss_bytes))
            .collect();
        let end_ms = self.moments.last().map_or(0.0, |moment| moment.at_ms);
        if let Some(levels) = figures::levels(&rss, end_ms, end_ms) {
            let last = self.moments.last().map_or(0, |moment| moment.rss_bytes);
            let after_free = self.named("after_free").map(|moment| moment.rss_bytes);
            run.figures.extend([
                (Measure::PeakBytes, levels.peak as f64),
                (Measure::MeanBytes, levels.mean),
                (
                    Measure::AfterFreeBytes,
                    after_free.unwrap_or(levels.after_free) as f64,
                ),
                (Measure::FinalBytes, last as f64),
            ]);
        }
        let live = self.moments.iter().map(|moment| moment.live_bytes).max();
        let last_floor = self
            .moments
            .iter()
            .rev()
            .find_map(|moment| moment.floor_bytes);
        let floor = |name| self.named(name).and_then(|moment| moment.floor_bytes);
        let measured = [
            (Measure::LiveBytes, live),
            (Measure::FloorPeakBytes, floor("peak")),
            (Measure::FloorAfterFreeBytes, floor("after_free")),
            (Measure::FloorFinalBytes, last_floor),
        ];
        for (measure, bytes) in measured {
            run.figures
                .extend(bytes.map(|bytes| (measure, bytes as f64)));
        }
        if self.ops > 0 {
            let net = (self.cpu_ns - self.own_ns) / self.ops as f64;
            run.figures.insert(Measure::OpNs, net);
        }
        run.samples = rss.len() as u64;
        run.curve = figures::curve(&rss);
        let live: Vec<Point> = self
            .moments
            .iter()
            .map(|m| (m.at_ms, m.live_bytes))
            .collect();
        run.live = figures::curve(&live);
        let floors = self.moments.iter();
        run.floor = floors
            .filter_map(|m| Some((m.at_ms, m.floor_bytes?)))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"line":"begin","report_version":1}
{"line":"point","name":"progress","recorded_ns":0,"live_bytes":10,"rss_bytes":100}
{"line":"point","name":"peak","recorded_ns":1000000,"live_bytes":500,"rss_bytes":900,"floor_bytes":800}
{"line":"point","name":"after_free","recorded_ns":3000000,"live_bytes":50,"rss_bytes":300,"floor_bytes":90}
{"line":"point","name":"end","recorded_ns":4000000,"live_bytes":60,"rss_bytes":400,"floor_bytes":95}
{"line":"end","ops":10,"cpu_ns":1000,"order_violations":0,"double_uses":0,"refused":0}
"#;

    #[test]
    fn a_report_by_hand() {
        let mut replayed = Replayed::read(REPORT).expect("whole");
        replayed.own_ns = 200.0;
        let mut run = Run::default();
        replayed.add_to(&mut run);
        let figure = |measure| run.figures.get(&measure).copied();
        assert_eq!(figure(Measure::OpNs), Some(80.0));
        assert_eq!(figure(Measure::PeakBytes), Some(900.0));
        // 100 for 1 ms, 900 for 2 ms, 300 for 1 ms.
        assert_eq!(figure(Measure::MeanBytes), Some(550.0));
        assert_eq!(figure(Measure::AfterFreeBytes), Some(300.0));
        assert_eq!(figure(Measure::FinalBytes), Some(400.0));
        assert_eq!(figure(Measure::LiveBytes), Some(500.0));
        assert_eq!(figure(Measure::FloorPeakBytes), Some(800.0));
        assert_eq!(figure(Measure::FloorAfterFreeBytes), Some(90.0));
        assert_eq!(figure(Measure::FloorFinalBytes), Some(95.0));
        assert_eq!(run.floor.len(), 3);
        assert_eq!(replayed.fault(), None);
    }

    #[test]
    fn what_is_no_measurement_says_so() {
        let cut = REPORT.lines().take(4).collect::<Vec<_>>().join("\n");
        let error = Replayed::read(&cut).err().expect("cut");
        assert!(format!("{error:#}").contains("no end"));
        let torn = &REPORT[..REPORT.len() - 20];
        let error = Replayed::read(torn).err().expect("torn");
        assert!(format!("{error:#}").contains("line 6"), "{error:#}");
        let fault = |from: &str, to: &str| {
            let replayed = Replayed::read(&REPORT.replace(from, to)).expect("whole");
            replayed.fault().expect("a fault")
        };
        assert!(fault("\"refused\":0", "\"refused\":3").contains("refused 3"));
        assert!(fault("violations\":0", "violations\":7").contains("7 operations out of order"));
    }
}
