//! `cargo xtask mutants`: do the tests notice when the code is wrong?
//!
//! ```text
//!   points ──► draw by seed ──► rewrite: all mutants in one source, each behind a question (`runtime`)
//!          ──► build once ──► which test reaches which mutant ──► each mutant with its tests, quickest first
//!          ──► survivors: the same with tests of crates above (`STAGES`) ──► table, TARGET/mutants/CRATE.json
//! ```
//!
//! A build for each mutant would take days here; a mutant that is chosen by the environment takes none, and reaches
//! child processes and preloaded libraries too (Untch, Offutt and Harrold, "Mutation analysis using mutant schemata",
//! 1993).
//!
//! M1  Exit 0: the bar is met. 1: it is missed. 2: nothing could be judged, and stderr says why.
//! M2  The repository is not touched: everything happens in a copy below the target folder.
//! M3  The draw depends on the shipped source and the seed alone: new tests do not change it.
//!
//! Not here: examples in documentation, benches, models under loom: what they would catch counts as survived.

mod build;
mod cfgs;
mod copy;
mod draw;
mod judge;
mod named;
mod points;
mod process;
mod report;
mod rewrite;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::floors::{self, FLOORS};
use build::Mutated;
use copy::Copy;
use judge::{Place, Verdict};
use points::Point;
use report::{Outcome, Row};
use rewrite::Edit;

/// The least share of the drawn mutants that tests catch, in percent.
const BAR_PERCENT: f64 = 80.0;
/// The number of the named mutants that may live.
const NAMED_MAY_LIVE: usize = 5;

/// Options.
#[derive(Args)]
pub struct Options {
    /// The crate to mutate, by the name of its folder
    #[arg(
        long = "crate",
        value_name = "CRATE",
        required_unless_present = "named"
    )]
    krate: Option<String>,
    /// The list of named mutants instead of a draw; with --crate those of that crate.
    #[arg(long)]
    named: bool,
    /// How many mutants.
    #[arg(long, default_value_t = 150)]
    count: usize,
    /// Draws differ by it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tests at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Leave out tests whose run without a mutant takes longer, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    longest: u64,
    /// Processor time that a test may take with a mutant, in seconds, beside ten times what it takes without.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    limit: u64,
    /// Each mutant meets the quickest tests alone, so many seconds of them; longer ones meet all that still live at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    alone: u64,
    /// Only the crate's own tests.
    #[arg(long)]
    own: bool,
    /// Judge only what lived in the last run of the same draw; the others keep their verdicts.
    #[arg(long)]
    again: bool,
    /// Only the tests of crates above: what lived in the last run of the same draw is asked of them.
    #[arg(long, conflicts_with = "own")]
    above: bool,
}

/// Tests of a crate above: package, and cargo's choice of its targets.
type Above = (&'static str, &'static [&'static str]);

/// The features with which `make test` also builds a crate's tests.
const FEATURES: &[(&str, &str)] = &[("cache", "images")];

/// The tests of other crates that are asked about what a crate's own tests let live. All are part of `make test`.
const STAGES: &[(&str, &[Above])] = &[
    (
        "pages",
        &[
            ("alloc", &["--test", "engine", "--test", "refusals"]),
            (
                "gc",
                &["--test", "raw", "--test", "shrinking", "--test", "parts"],
            ),
        ],
    ),
    (
        "cache",
        &[("document-host", &["--test", "host", "--features", "host"])],
    ),
    (
        "trace",
        &[
            ("analysis", &["--lib", "--test", "judge"]),
            ("collect", &["--lib"]),
            ("export", &["--lib"]),
            ("dark-matter", &["--lib"]),
            ("damage", &["--test", "thousand"]),
            ("cli", &["--test", "whole"]),
        ],
    ),
    (
        "analysis",
        &[
            ("view", &["--lib", "--test", "text", "--test", "html"]),
            ("export", &["--lib"]),
            ("dark-matter", &["--lib"]),
            ("cli", &["--test", "whole", "--test", "accounts"]),
        ],
    ),
    (
        "gc",
        &[
            ("heap-snapshot", &["--test", "judges"]),
            ("cli", &["--test", "heap"]),
        ],
    ),
    ("free-lists", &[("cli", &["--test", "policies"])]),
    (
        "alloc",
        &[
            (
                "cache",
                &["--test", "squeeze", "--test", "global_allocator"],
            ),
            (
                "cli",
                &["--test", "harden", "--test", "accounts", "--test", "dropin"],
            ),
        ],
    ),
];

/// The library that tests of several crates put beneath a program; `make test` builds it first.
const DROP_IN: &str = "malloc-so";

/// Libraries and programs that tests of `cli` start, and that nothing links.
const PROGRAMS: &[&str] = &["malloc-so", "record-so", "probe-so", "replay", "cli"];

/// Runs the command. Returns the exit status (M1).
///
/// # Errors
/// If nothing could be judged.
pub fn run(options: &Options, root: &Path) -> Result<ExitCode> {
    let root = root.canonicalize().context("the repository")?;
    let folder = root.join("target/mutants");
    let copy = Copy::make(&root, &folder)?;
    let commit = commit_of(&root);
    let session = Session {
        options,
        root,
        copy,
        folder,
        commit,
    };
    if options.named {
        session.named()
    } else {
        session.drawn()
    }
}

struct Session<'a> {
    options: &'a Options,
    root: PathBuf,
    copy: Copy,
    folder: PathBuf,
    commit: String,
}

/// What is to be judged, built and numbered.
struct Plan {
    crates: Vec<Mutated>,
    points: usize,
    dropped: usize,
    rows: Vec<Row>,
    edits: BTreeMap<PathBuf, Vec<Edit>>,
}

impl Session<'_> {
    fn drawn(&self) -> Result<ExitCode> {
        let outcome = self.judge_draw()?;
        let met = outcome.caught_percent >= BAR_PERCENT;
        println!(
            "bar: {BAR_PERCENT} %: {}",
            if met { "met" } else { "missed" }
        );
        Ok(ExitCode::from(u8::from(!met)))
    }

    fn judge_draw(&self) -> Result<Outcome> {
        let name = self.options.krate.as_deref().unwrap_or_default();
        let Some(dir) = floors::folder(&self.copy.root, name) else {
            bail!(
                "no crate {name} in {}; --crate takes the name of a folder there",
                FLOORS.join(", ")
            );
        };
        let plan = self.plan_draw(&dir)?;
        let above = STAGES
            .iter()
            .find(|(of, _)| *of == name)
            .map_or(&[][..], |(_, tests)| tests);
        let own = vec![(name.to_owned(), own_arguments(name))];
        self.judge(name, plan, &own, above)
    }

    fn named(&self) -> Result<ExitCode> {
        let mut list = named::list(include_str!("named.toml"))?;
        if let Some(name) = &self.options.krate {
            list.retain(|entry| entry.dir().ends_with(name));
        }
        let mut points = Vec::new();
        let mut gone = Vec::new();
        for entry in &list {
            match entry.find(&self.copy.root)? {
                Some(point) => points.push(point),
                None => gone.push(entry),
            }
        }
        let dirs: BTreeSet<PathBuf> = list
            .iter()
            .map(named::Named::dir)
            .filter(|dir| self.copy.root.join(dir).exists())
            .collect();
        let mut crates = Vec::new();
        for dir in &dirs {
            let sources = points::of_crate(&self.copy.root, dir, &[])?.0;
            crates.push(Mutated {
                package: package_of(dir),
                dir: dir.clone(),
                sources,
            });
        }
        let drawn: Vec<(usize, usize)> = (0..points.len()).map(|point| (point, 0)).collect();
        let plan = self.settle(crates, &points, &drawn, points.len())?;
        if plan.dropped > 0 {
            bail!(
                "named.toml: {} entries do not compile in place of the old text",
                plan.dropped
            );
        }
        let own: Vec<(String, Vec<String>)> = dirs
            .iter()
            .map(|dir| {
                dir.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned()
            })
            .map(|name| (name.clone(), own_arguments(&name)))
            .collect();
        let above: &[Above] = &[("cli", &["--test", "whole", "--test", "compare"])];
        let outcome = self.judge("named", plan, &own, above)?;
        for entry in &gone {
            println!(
                "gone: {} ({}): its code no longer stands",
                entry.name,
                entry.file.display()
            );
        }
        let lives = outcome.survived + outcome.not_reached;
        println!(
            "named: {} stand, {lives} live; bar: at most {NAMED_MAY_LIVE}",
            outcome.drawn
        );
        Ok(ExitCode::from(u8::from(lives > NAMED_MAY_LIVE)))
    }

    fn plan_draw(&self, dir: &Path) -> Result<Plan> {
        let name = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let features: Vec<&str> = FEATURES
            .iter()
            .filter(|(of, _)| *of == name)
            .map(|(_, feature)| *feature)
            .collect();
        let (sources, points) = points::of_crate(&self.copy.root, dir, &features)?;
        let variants: Vec<usize> = points.iter().map(|point| point.variants.len()).collect();
        let order = draw::order(self.options.seed, &variants);
        let crates = vec![Mutated {
            package: package_of(dir),
            dir: dir.to_path_buf(),
            sources,
        }];
        self.settle(crates, &points, &order, self.options.count)
    }

    /// Takes the first `count` of `order` that compile, and leaves the copy written with them.
    fn settle(
        &self,
        crates: Vec<Mutated>,
        points: &[Point],
        order: &[(usize, usize)],
        count: usize,
    ) -> Result<Plan> {
        if count > judge::MOST {
            bail!("--count {count}: at most {}", judge::MOST);
        }
        let packages: Vec<String> = crates
            .iter()
            .map(|mutated| mutated.package.clone())
            .collect();
        let features = crates
            .iter()
            .flat_map(|mutated| features_of(&mutated.dir))
            .collect::<Vec<_>>();
        // The positions in the order whose mutants do not compile.
        let mut faulty: BTreeSet<usize> = BTreeSet::new();
        loop {
            let chosen: Vec<usize> = (0..order.len())
                .filter(|place| !faulty.contains(place))
                .take(count)
                .collect();
            let mut edits: BTreeMap<PathBuf, Vec<Edit>> = BTreeMap::new();
            for (number, &place) in (0..).zip(&chosen) {
                let (point, variant) = (&points[order[place].0], order[place].1);
                edits.entry(point.file.clone()).or_default().push(Edit {
                    number,
                    range: point.range.clone(),
                    shape: point.shape,
                    text: point.variants[variant].text.clone(),
                });
            }
            let written = build::write(&self.copy, &crates, &edits)?;
            let blamed = build::faulty(&self.copy, &packages, &features, &written)?;
            if blamed.is_empty() {
                let rows = (0..).zip(&chosen).map(|(number, &place)| {
                    self.row(number, &points[order[place].0], order[place].1)
                });
                let rows = rows.collect::<Result<Vec<_>>>()?;
                let (points, dropped) = (points.len(), faulty.len());
                return Ok(Plan {
                    crates,
                    points,
                    dropped,
                    rows,
                    edits,
                });
            }
            eprintln!(
                "{} draws do not compile; others take their places",
                blamed.len()
            );
            faulty.extend(blamed.iter().map(|&number| chosen[number as usize]));
        }
    }

    fn row(&self, number: u32, point: &Point, variant: usize) -> Result<Row> {
        // This is the line as the repository has it: the copy's is rewritten.
        let text = std::fs::read_to_string(self.root.join(&point.file)).unwrap_or_default();
        Ok(Row {
            number,
            file: point.file.display().to_string(),
            line: point.line,
            what: point.variants[variant].what.clone(),
            code: text
                .lines()
                .nth(point.line - 1)
                .unwrap_or("")
                .trim()
                .to_owned(),
            verdict: String::new(),
            by: String::new(),
        })
    }

    fn judge(
        &self,
        name: &str,
        plan: Plan,
        own: &[(String, Vec<String>)],
        above: &[Above],
    ) -> Result<Outcome> {
        let file = self.folder.join(format!("{name}.json"));
        let mut outcome = Outcome {
            crates: name.into(),
            seed: self.options.seed,
            commit: self.commit.clone(),
            points: plan.points,
            drawn: 0,
            dropped: plan.dropped,
            caught: 0,
            caught_by_limit: 0,
            survived: 0,
            not_reached: 0,
            equivalent: 0,
            caught_percent: 0.0,
            tests_failing_without: Vec::new(),
            tests_left_out: Vec::new(),
            mutants: plan.rows,
        };
        self.excuse(&mut outcome)?;
        if self.options.again || self.options.above {
            keep(&mut outcome, &file, self.options.above)?;
        }
        if floors::folder(&self.copy.root, DROP_IN).is_some() {
            self.build(&[DROP_IN])?;
        }
        if !self.options.above {
            let alone = if self.options.again {
                0
            } else {
                self.options.alone
            };
            self.stage(&mut outcome, own, Duration::from_secs(alone))?;
        }
        outcome.count();
        outcome.write(&file)?;
        eprintln!("own tests: {} of {} caught", outcome.caught, outcome.drawn);
        if !self.options.own && outcome.mutants.iter().any(Row::lives) && !above.is_empty() {
            self.build(PROGRAMS)?;
            let above: Vec<(String, Vec<String>)> = above
                .iter()
                .map(|(name, targets)| {
                    (
                        (*name).to_owned(),
                        targets.iter().map(|word| (*word).to_owned()).collect(),
                    )
                })
                .collect();
            self.stage(&mut outcome, &above, Duration::ZERO)?;
            outcome.count();
            outcome.write(&file)?;
        }
        // The copy is left as it was, so that the next crate's build finds it unchanged.
        build::write(&self.copy, &plan.crates, &BTreeMap::new())?;
        drop(plan.edits);
        print!("{}", outcome.table());
        println!("the same as JSON: {}", file.display());
        Ok(outcome)
    }

    fn build(&self, names: &[&str]) -> Result<()> {
        let programs: Vec<String> = names
            .iter()
            .map(|name| format!("skinflint-{name}"))
            .collect();
        let (_, built, words) = build::cargo(&self.copy, &["build".into()], &programs)?;
        if !built {
            bail!("the programs of the copy do not build:\n{words}");
        }
        Ok(())
    }

    /// Asks the tests of these packages about mutants that live, or have no verdict yet.
    fn stage(
        &self,
        outcome: &mut Outcome,
        packages: &[(String, Vec<String>)],
        alone: Duration,
    ) -> Result<()> {
        let mut binaries = Vec::new();
        for (name, arguments) in packages {
            binaries.extend(build::tests(
                &self.copy,
                &[format!("skinflint-{name}")],
                arguments,
            )?);
        }
        let place = Place {
            folder: &self.folder,
            jobs: self.options.jobs,
            longest: Duration::from_secs(self.options.longest),
            least: Duration::from_secs(self.options.limit),
        };
        let tests = judge::survey(&binaries, &place)?;
        eprintln!("{} tests in {} programs", tests.tests.len(), binaries.len());
        let open: Vec<u32> = outcome
            .mutants
            .iter()
            .filter(|row| row.verdict.is_empty() || row.lives())
            .map(|row| row.number)
            .collect();
        // Verdicts are saved as they come: a run that is ended goes on with --again.
        let file = self.folder.join(format!("{}.json", outcome.crates));
        let kept = Mutex::new(&mut *outcome);
        let told = |number: u32, verdict: &Verdict| {
            eprintln!("mutant {number}: {verdict:?}");
            let mut outcome = kept.lock().expect("no panic while it is held");
            outcome.mutants[number as usize].say(verdict);
            outcome.count();
            if let Err(error) = outcome.write(&file) {
                eprintln!("{error:#}");
            }
        };
        let verdicts = judge::judge(&open, &tests, &place, alone, told)?;
        for (number, verdict) in verdicts {
            let row = &mut outcome.mutants[number as usize];
            // "Not reached" from above tells nothing new about a mutant that was reached below.
            if !(row.lives() && verdict == Verdict::NotReached) {
                row.say(&verdict);
            }
        }
        outcome.tests_failing_without.extend(tests.failing);
        outcome.tests_left_out.extend(tests.long);
        Ok(())
    }

    fn excuse(&self, outcome: &mut Outcome) -> Result<()> {
        let excuses = report::excuses(include_str!("equivalent.toml"))?;
        for row in &mut outcome.mutants {
            let excuse = excuses.iter().find(|excuse| {
                (&excuse.file, &excuse.code, &excuse.what) == (&row.file, &row.code, &row.what)
            });
            if let Some(excuse) = excuse {
                (row.verdict, row.by) = ("equivalent".into(), excuse.reason.clone());
            }
        }
        Ok(())
    }
}

/// Takes over what the last run of the same draw caught; or all of its verdicts.
fn keep(outcome: &mut Outcome, file: &Path, all: bool) -> Result<()> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("{}: no earlier run to go on from", file.display()))?;
    let earlier: Outcome =
        serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    for row in outcome
        .mutants
        .iter_mut()
        .filter(|row| row.verdict.is_empty())
    {
        let taken = |old: &&Row| (all || old.verdict == "caught") && old.same(row);
        if let Some(old) = earlier.mutants.iter().find(taken) {
            (row.verdict, row.by) = (old.verdict.clone(), old.by.clone());
        }
    }
    Ok(())
}

fn own_arguments(name: &str) -> Vec<String> {
    let mut arguments = vec!["--lib".to_owned(), "--tests".into()];
    let folder = floors::folder(Path::new("."), name);
    arguments.extend(folder.iter().flat_map(|folder| features_of(folder)));
    arguments
}

fn features_of(dir: &Path) -> Vec<String> {
    let name = dir.file_name().unwrap_or_default();
    let feature = FEATURES.iter().find(|(of, _)| name == *of);
    feature.map_or(Vec::new(), |(_, feature)| {
        vec!["--features".into(), (*feature).into()]
    })
}

fn package_of(dir: &Path) -> String {
    format!(
        "skinflint-{}",
        dir.file_name().unwrap_or_default().to_string_lossy()
    )
}

fn commit_of(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root)
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "--short", "HEAD"]).unwrap_or_default();
    let changed = git(&["status", "--porcelain"]).is_some_and(|text| !text.is_empty());
    if changed { head + " and changes" } else { head }
}
