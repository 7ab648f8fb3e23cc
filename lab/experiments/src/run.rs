//! Runs experiments: their commands in order, their outputs kept, their figures taken.
//!
//! ```text
//!   for each: result of this commit there? ─► skip        something missing? ─► not run
//!             steps once ─► (steps) × runs ─► figures ─► NAME.json
//! ```
//!
//! R1  An experiment ends with a file, whatever became of it: so what was finished stays when the next one is interrupted,
//!     and is not run again.
//! R2  A command that takes longer than it may, or whose status is no success, fails its experiment and no other. It is
//!     ended with all that it has started in its process group.
//! R3  Commands run in the root of the checkout, with nothing on stdin; their output goes to files of the scratch folder,
//!     which is removed, unless the experiment failed.
//! R4  Ctrl-C ends the command under way, and nothing else is begun.
//!
//! Not here: what is installed (need.rs), conclusions (agreement.rs).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use skinflint_compare::{machine, report_page, run};
use skinflint_launch::installed;

use crate::checkout::Checkout;
use crate::experiment::{Experiment, Row, Step, Table, words};
use crate::need::{self, Missing};
use crate::outcome::{Figure, Machine, Outcome, State};
use crate::take;

/// How often a command is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The part of a command's last words that a reason quotes, bytes.
const QUOTED: usize = 400;

/// Where experiments run, and where results go.
#[derive(Debug)]
pub struct Lab<'a> {
    /// The table.
    pub table: &'a Table,
    /// The checkout.
    pub checkout: &'a Checkout,
    /// The folder of results.
    pub results: &'a Path,
    /// This program.
    pub skinflint: PathBuf,
    /// Whether what has a result of this commit is run again.
    pub again: bool,
}

/// What became of an experiment in this run.
#[derive(Debug)]
pub enum Done {
    /// There was a result of this commit.
    Kept(Box<Outcome>),
    /// It was run now.
    Now(Box<Outcome>),
}

impl Lab<'_> {
    /// Runs an experiment, or finds its result, and keeps it.
    ///
    /// # Errors
    /// If the result cannot be read or written. What fails in the experiment is in the result.
    pub fn run(&self, experiment: &Experiment) -> Result<Done> {
        let (commit, definition) = (
            self.checkout.commit(),
            format!("{:016x}", experiment.definition()),
        );
        if !self.again
            && let Some(kept) = Outcome::load(self.results, &experiment.name)?
            && kept.is_of(&commit, &definition)
        {
            return Ok(Done::Kept(Box::new(kept)));
        }
        let mut outcome = Outcome::begun(&experiment.name, definition, commit);
        outcome.date = now();
        outcome.machine = this_machine();
        let places = self.places(experiment);
        outcome.missing = self.missing(experiment);
        if outcome.missing.is_empty() {
            outcome.versions = need::versions(self.table, experiment);
            let begun = Instant::now();
            match self.all(experiment, &places, &mut outcome.commands) {
                Ok(figures) => {
                    outcome.state = State::Ran;
                    outcome.figures = figures;
                    let _ = fs::remove_dir_all(&places.work);
                }
                Err(error) => {
                    outcome.state = State::Failed;
                    outcome.reason = self.without_places(&format!("{error:#}"));
                }
            }
            outcome.seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
            outcome.machine.load[1] = machine::load().unwrap_or(0.0);
        }
        ensure!(
            !run::is_interrupted(),
            "interrupted; what was finished is kept"
        );
        outcome.save(self.results)?;
        Ok(Done::Now(Box::new(outcome)))
    }

    /// Returns what an experiment needs and is not there.
    pub fn missing(&self, experiment: &Experiment) -> Vec<Missing> {
        let places = self.places(experiment);
        need::missing(self.table, experiment, &|text| places.fill(text))
    }

    fn places(&self, experiment: &Experiment) -> Places {
        Places {
            skinflint: self.skinflint.clone(),
            root: self.checkout.root.clone(),
            target: self.checkout.target.clone(),
            work: self.checkout.target.join("lab/work").join(&experiment.name),
        }
    }

    /// Returns a text in which folders of this machine have short names.
    fn without_places(&self, text: &str) -> String {
        let target = self.checkout.target.display().to_string();
        let root = self.checkout.root.display().to_string();
        text.replace(&target, "target")
            .replace(&format!("{root}/"), "")
    }

    fn all(
        &self,
        experiment: &Experiment,
        places: &Places,
        said: &mut Vec<String>,
    ) -> Result<Vec<Figure>> {
        if places.work.exists() {
            fs::remove_dir_all(&places.work).context("the scratch folder of the last run")?;
        }
        fs::create_dir_all(&places.work).context("a scratch folder")?;
        let mut outputs = BTreeMap::new();
        let mut figures: Vec<Figure> = Vec::new();
        for round in 0..experiment.runs {
            for (at, step) in experiment.steps.iter().enumerate() {
                if step.once && round > 0 {
                    continue;
                }
                if round == 0 {
                    said.push(shown(&step.run));
                }
                let output = self.step(step, at, places)?;
                if !step.save.is_empty() {
                    outputs.insert(step.save.clone(), output);
                }
            }
            for (at, row) in experiment.rows.iter().enumerate() {
                let value = figure(row, &outputs).with_context(|| row.claim.clone())?;
                match figures.get_mut(at) {
                    Some(figure) => figure.values.push(value),
                    None => figures.push(Figure {
                        claim: row.claim.clone(),
                        values: vec![value],
                    }),
                }
            }
        }
        Ok(figures)
    }

    fn step(&self, step: &Step, at: usize, places: &Places) -> Result<String> {
        let words: Vec<String> = (words(&step.run)?.iter())
            .map(|word| places.fill(word))
            .collect();
        let (program, rest) = words.split_first().context("an empty command")?;
        let shown = shown(&step.run);
        let (out, err) = (
            places.work.join(format!("{at}.out")),
            places.work.join(format!("{at}.err")),
        );
        let mut command = Command::new(program);
        command
            .args(rest)
            .current_dir(&self.checkout.root)
            .stdin(Stdio::null())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .process_group(0);
        if let Ok(library) = installed::allocator() {
            command.env("SKINFLINT_ALLOCATOR", library);
        }
        for (name, value) in &step.env {
            command.env(name, places.fill(value));
        }
        let child = command.spawn().with_context(|| shown.clone())?;
        let status =
            wait(child, Duration::from_secs(step.limit_s)).with_context(|| shown.clone())?;
        let code = status.code();
        let is_good = code == Some(0) || code.is_some_and(|code| step.status.contains(&code));
        ensure!(
            is_good,
            "{shown}: {}: {}",
            how(status),
            last_words(&err, &out)
        );
        let file = if step.file.is_empty() {
            out
        } else {
            PathBuf::from(places.fill(&step.file))
        };
        let bytes = fs::read(&file).with_context(|| format!("{shown}: {}", file.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn figure(row: &Row, outputs: &BTreeMap<String, String>) -> Result<f64> {
    let output = outputs.get(&row.from).context("its output is not there")?;
    let found = if !row.take.is_empty() {
        take::expression(&row.take, &take::json(output)?)?
    } else if !row.line.is_empty() {
        take::of_line(output, &row.line, row.number)?
    } else {
        take::lines_equal(output, &row.lines) as f64
    };
    Ok(found * row.scale.unwrap_or(1.0))
}

/// Waits for a command, and ends it and its process group if it takes too long, or on Ctrl-C.
fn wait(mut child: Child, limit: Duration) -> Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let late = begun.elapsed() > limit;
        if late || run::is_interrupted() {
            // SAFETY: the group is the child's own (R2), and the child is not reaped yet, so its number is nobody else's.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
            child.wait()?;
            match late {
                true => bail!("took more than {} s, and was ended", limit.as_secs()),
                false => bail!("interrupted"),
            }
        }
        std::thread::sleep(LOOK);
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "an unknown end".into(),
    }
}

/// Returns the end of what a command said, on one line.
fn last_words(err: &Path, out: &Path) -> String {
    let said = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let text = match said(err) {
        Ok(text) if !text.is_empty() => text,
        _ => said(out).unwrap_or_default(),
    };
    let mut from = text.len().saturating_sub(QUOTED);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..]
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// What placeholders stand for.
struct Places {
    skinflint: PathBuf,
    root: PathBuf,
    target: PathBuf,
    work: PathBuf,
}

impl Places {
    fn fill(&self, text: &str) -> String {
        let bin = self.skinflint.parent().unwrap_or(Path::new("/"));
        text.replace("{skinflint}", &self.skinflint.display().to_string())
            .replace("{bin}", &bin.display().to_string())
            .replace("{root}", &self.root.display().to_string())
            .replace("{target}", &self.target.display().to_string())
            .replace("{work}", &self.work.display().to_string())
    }
}

/// Returns a command as a reader would type it in the root of a checkout, its files in /tmp.
pub fn shown(command: &str) -> String {
    command
        .replace("{skinflint}", "skinflint")
        .replace("{bin}", "target/release")
        .replace("{root}/", "")
        .replace("{root}", ".")
        .replace("{target}", "target")
        .replace("{work}", "/tmp")
}

fn this_machine() -> Machine {
    let found = machine::machine();
    Machine {
        cpu: found.cpu,
        cpus: found.cpus,
        memory_bytes: found.memory_bytes,
        kernel: found.kernel,
        load: [machine::load().unwrap_or(0.0), 0.0],
    }
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    report_page::date(since.map_or(0, |since| since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Need;

    fn table(rest: &str, row: &str) -> Table {
        let text = format!(
            "name = 'a'\nof = 'b'\nsource = ''\nabout = ''\nminutes = 1\nruns = 2\n{rest}\n[[row]]\nclaim = 'c'\nfrom = 'out'\n{row}"
        );
        Table {
            needs: vec![Need {
                name: "nothing".into(),
                program: "no-such-program".into(),
                get: "get it".into(),
                ..Need::default()
            }],
            experiments: vec![toml::from_str(&text).expect("an experiment")],
        }
    }

    /// Runs the only experiment of a table in a folder of its own; a second time, if `twice`.
    fn ran(table: &Table, twice: bool) -> (Done, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let checkout = Checkout {
            root: folder.path().to_owned(),
            target: folder.path().join("target"),
        };
        let results = folder.path().join("results");
        let lab = Lab {
            table,
            checkout: &checkout,
            results: &results,
            skinflint: "skinflint".into(),
            again: false,
        };
        let mut done = lab.run(&table.experiments[0]).expect("a result");
        if twice {
            done = lab.run(&table.experiments[0]).expect("a result");
        }
        (done, folder)
    }

    fn outcome(table: &Table) -> Outcome {
        match ran(table, false).0 {
            Done::Now(outcome) => *outcome,
            Done::Kept(_) => panic!("there was none before"),
        }
    }

    #[test]
    fn steps_are_repeated_and_their_figures_kept_in_order() {
        let once = "[[step]]\nrun = \"sh -c 'echo begun >> {work}/log'\"\nonce = true\n";
        let each = "[[step]]\nrun = \"sh -c 'echo again >> {work}/log; wc -l {work}/log'\"\nsave = 'out'\n";
        let outcome = outcome(&table(
            &format!("{once}{each}"),
            "line = 'log'\nnumber = 1\n",
        ));
        assert_eq!(outcome.state, State::Ran, "{}", outcome.reason);
        assert_eq!(outcome.figures[0].values, [2.0, 3.0]);
        assert_eq!(outcome.commands.len(), 2);
    }

    #[test]
    fn a_result_of_this_commit_is_not_run_again() {
        let steps = "[[step]]\nrun = 'echo 7'\nsave = 'out'\n";
        let table = table(steps, "line = '7'\nnumber = 1\n");
        let first = outcome(&table);
        assert_eq!(first.state, State::Ran, "{}", first.reason);
        assert_eq!(first.figures[0].values, [7.0, 7.0], "two runs");
        assert_eq!(first.commands, ["echo 7"]);
        assert!(matches!(ran(&table, true).0, Done::Kept(_)));
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_runs() {
        let steps = "needs = ['nothing']\n[[step]]\nrun = 'echo 7'\nsave = 'out'\n";
        let outcome = outcome(&table(steps, "line = '7'\nnumber = 1\n"));
        assert_eq!(outcome.state, State::NotRun);
        assert_eq!(
            (outcome.missing[0].get.as_str(), outcome.commands.len()),
            ("get it", 0)
        );
    }

    #[test]
    fn a_failing_command_and_one_without_an_end_fail_their_experiment() {
        let step = |command: &str, more: &str| {
            format!("[[step]]\nrun = \"{command}\"\nsave = 'out'\n{more}\n")
        };
        let row = "line = '7'\nnumber = 1\n";
        let failed = outcome(&table(&step("sh -c 'echo why >&2; exit 3'", ""), row));
        assert_eq!(failed.state, State::Failed);
        assert!(failed.reason.contains("status 3: why"), "{}", failed.reason);
        let good = outcome(&table(&step("sh -c 'echo 7; exit 3'", "status = [3]"), row));
        assert_eq!(good.state, State::Ran, "{}", good.reason);
        let long = outcome(&table(&step("sleep 1000", "limit_s = 0"), row));
        assert!(long.reason.contains("was ended"), "{}", long.reason);
    }
}
