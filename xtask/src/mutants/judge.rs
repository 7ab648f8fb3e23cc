//! Finds which tests reach a mutant, and which of them fail with it.
//!
//! ```text
//!   --list ──► each test once, no mutant: time, mutants reached ──► per mutant: its tests, quickest first ──► verdict
//!                                             longer tests ──► per test: what lives, all at once, then by halves ─┘
//! ```
//!
//! J1  A test that fails without a mutant judges nothing; such tests are counted and named.
//! J2  A test that fails with a mutant is run again, and a third time if the two differ: two of three decide; and
//!     then once without the mutant, when it must pass. So a test that fails now and then, or on a busy machine,
//!     catches nothing by chance. Limits (`process`) are not checked twice.
//! J3  A mutant that no test reaches has survived, and is reported separately.
//! J4  A test that passes with several mutants on notices none of those that it reached then. One may hide another,
//!     which can only make survivors; if a test fails with several, each half is checked by itself, and a single one
//!     as in J2.
//! J5  A test whose plain run is longer than `longest` is left out, which can only make survivors; they are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::build::Binary;
use super::process::{End, Limits, Run, run};

/// The size of the file in which reached mutants are noted: `runtime` maps one page.
const REACH_BYTES: usize = 4096;
/// The most mutants at once.
pub const MOST: usize = REACH_BYTES;

/// One test, and the figures of its run without a mutant.
pub struct Test {
    binary: Binary,
    name: String,
    plain: Run,
    reaches: BTreeSet<u32>,
    kills: AtomicU32,
}

impl Test {
    fn called(&self) -> String {
        format!(
            "{}/{}: {}",
            self.binary.package, self.binary.target, self.name
        )
    }

    fn arguments(&self) -> [&str; 3] {
        ["--exact", &self.name, "--test-threads=1"]
    }
}

/// The result for a mutant.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Caught { by: String, how: &'static str },
    Survived { tests: usize },
    NotReached,
}

/// The tests that can judge, and those that were left out.
pub struct Tests {
    pub tests: Vec<Test>,
    /// Tests that fail without a mutant (J1).
    pub failing: Vec<String>,
    /// Tests that are too long (J5).
    pub long: Vec<String>,
}

/// The place and the limits of runs.
pub struct Place<'a> {
    pub folder: &'a Path,
    pub jobs: usize,
    pub longest: Duration,
    /// The processor time that every test may take with a mutant, beside ten times its own.
    pub least: Duration,
}

/// Lists the tests of all binaries and runs each once, to see what it reaches.
///
/// # Errors
/// If a binary cannot be run.
pub fn survey(binaries: &[Binary], place: &Place) -> Result<Tests> {
    let mut names = Vec::new();
    for binary in binaries {
        let listed = Command::new(&binary.path)
            .arg("--list")
            .current_dir(&binary.folder)
            .output()
            .with_context(|| format!("{}: cannot be run", binary.path.display()))?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let tests = text.lines().filter_map(|line| line.strip_suffix(": test"));
        names.extend(tests.map(|name| (binary, name.to_owned())));
    }
    let results = Mutex::new(Tests {
        tests: Vec::new(),
        failing: Vec::new(),
        long: Vec::new(),
    });
    for_all(names.len(), place.jobs, |index, worker| {
        let (binary, name) = &names[index];
        let test = survey_one(binary, name, place, worker)?;
        let mut results = results.lock().expect("no test panics here");
        if test.plain.end != End::Passed {
            results.failing.push(test.called());
        } else if test.plain.wall > place.longest {
            results.long.push(test.called());
        } else {
            results.tests.push(test);
        }
        Ok(())
    })?;
    Ok(results.into_inner().expect("no test panics here"))
}

fn survey_one(binary: &Binary, name: &str, place: &Place, worker: usize) -> Result<Test> {
    let file = reach_file(place, worker)?;
    let arguments = ["--exact", name, "--test-threads=1"];
    let noting = [("MUTANT_REACH", file.display().to_string())];
    let mut plain = run(
        &binary.path,
        &arguments,
        &binary.folder,
        &noting,
        Limits::plain(),
    )?;
    if plain.end != End::Passed {
        plain = run(
            &binary.path,
            &arguments,
            &binary.folder,
            &noting,
            Limits::plain(),
        )?;
    }
    Ok(Test {
        binary: binary.clone(),
        name: name.to_owned(),
        plain,
        reaches: reached_in(&file)?,
        kills: AtomicU32::new(0),
    })
}

/// What is known of a mutant while it is being judged.
struct Asked {
    caught: Option<Verdict>,
    /// The tests that were run with it alone, by index.
    alone: BTreeSet<usize>,
}

/// Judges each of these mutants, alone by the quickest tests, for `alone`; `told` is called as verdicts come.
///
/// # Errors
/// If a test can no longer be started.
pub fn judge(
    numbers: &[u32],
    tests: &Tests,
    place: &Place,
    alone: Duration,
    told: impl Fn(u32, &Verdict) + Sync,
) -> Result<Vec<(u32, Verdict)>> {
    let state = Mutex::new(BTreeMap::new());
    for_all(numbers.len(), place.jobs, |index, _| {
        let number = numbers[index];
        let asked = ask_alone(number, &tests.tests, place.least, alone)?;
        if let Some(verdict) = &asked.caught {
            told(number, verdict);
        }
        let mut state = state.lock().expect("no test panics here");
        state.insert(number, asked);
        Ok(())
    })?;
    let mut quickest: Vec<usize> = (0..tests.tests.len()).collect();
    quickest.sort_by_key(|&index| tests.tests[index].plain.wall);
    for_all(quickest.len(), place.jobs, |index, worker| {
        let index = quickest[index];
        let asking = Asking {
            test: &tests.tests[index],
            place,
            worker,
        };
        let group: Vec<u32> = {
            let state = state.lock().expect("no test panics here");
            let open = |asked: &Asked| asked.caught.is_none() && !asked.alone.contains(&index);
            asking
                .test
                .reaches
                .iter()
                .copied()
                .filter(|number| state.get(number).is_some_and(open))
                .collect()
        };
        asking.ask_together(&group, &mut |number, how| {
            let by = asking.test.called();
            let verdict = Verdict::Caught { by, how };
            let mut state = state.lock().expect("no test panics here");
            if let Some(asked) = state.get_mut(&number)
                && asked.caught.is_none()
            {
                told(number, &verdict);
                asked.caught = Some(verdict);
            }
        })
    })?;
    let state = state.into_inner().expect("no test panics here");
    let lives = |number: u32| match tests
        .tests
        .iter()
        .filter(|test| test.reaches.contains(&number))
        .count()
    {
        0 => Verdict::NotReached,
        tests => Verdict::Survived { tests },
    };
    let verdict =
        |(number, asked): (u32, Asked)| (number, asked.caught.unwrap_or_else(|| lives(number)));
    Ok(state.into_iter().map(verdict).collect())
}

fn ask_alone(number: u32, tests: &[Test], least: Duration, alone: Duration) -> Result<Asked> {
    let mut reaching: Vec<usize> = (0..tests.len())
        .filter(|&index| tests[index].reaches.contains(&number))
        .collect();
    // Quickest first; one that has caught others is tried sooner. ORDER: Relaxed: a hint.
    reaching.sort_by_cached_key(|&index| {
        let kills = u128::from(tests[index].kills.load(Ordering::Relaxed));
        tests[index].plain.wall.as_micros() / (1 + kills)
    });
    let (mut asked, mut taken) = (BTreeSet::new(), Duration::ZERO);
    for index in reaching {
        let test = &tests[index];
        taken += test.plain.wall;
        if taken > alone {
            break;
        }
        if let Some(how) = fails(test, number, least)? {
            // ORDER: Relaxed: a hint.
            test.kills.fetch_add(1, Ordering::Relaxed);
            let by = test.called();
            return Ok(Asked {
                caught: Some(Verdict::Caught { by, how }),
                alone: asked,
            });
        }
        asked.insert(index);
    }
    Ok(Asked {
        caught: None,
        alone: asked,
    })
}

/// One test that is run with several mutants.
struct Asking<'a> {
    test: &'a Test,
    place: &'a Place<'a>,
    worker: usize,
}

impl Asking<'_> {
    /// Returns which of these mutants the test notices (J4).
    fn ask_together(
        &self,
        group: &[u32],
        caught: &mut impl FnMut(u32, &'static str),
    ) -> Result<()> {
        if let [number] = group {
            if let Some(how) = fails(self.test, *number, self.place.least)? {
                caught(*number, how);
            }
            return Ok(());
        }
        let mut group = group.to_vec();
        while !group.is_empty() {
            let (passed, reached) = self.passes(&group)?;
            if !passed {
                let (some, others) = group.split_at(group.len() / 2);
                self.ask_together(some, caught)?;
                return self.ask_together(others, caught);
            }
            // Mutants that another of them hid are checked without it.
            let before = group.len();
            group.retain(|number| !reached.contains(number));
            if group.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Reports whether the test passes with all of these on, and which mutants it reached.
    fn passes(&self, group: &[u32]) -> Result<(bool, BTreeSet<u32>)> {
        let file = reach_file(self.place, self.worker)?;
        let numbers: Vec<String> = group.iter().map(u32::to_string).collect();
        let on = [
            ("MUTANT", numbers.join(",")),
            ("MUTANT_REACH", file.display().to_string()),
        ];
        let limits = Limits::beside(&self.test.plain, self.place.least);
        let (binary, arguments) = (&self.test.binary, self.test.arguments());
        let ended = run(&binary.path, &arguments, &binary.folder, &on, limits)?;
        Ok((ended.end == End::Passed, reached_in(&file)?))
    }
}

/// Creates an empty file for what a test reaches.
fn reach_file(place: &Place, worker: usize) -> Result<PathBuf> {
    let file = place.folder.join(format!("reach.{worker}"));
    std::fs::write(&file, vec![0; REACH_BYTES])?;
    Ok(file)
}

fn reached_in(file: &Path) -> Result<BTreeSet<u32>> {
    let bytes = std::fs::read(file)?;
    let noted = (0..).zip(&bytes).filter(|(_, byte)| **byte != 0);
    Ok(noted.map(|(number, _)| number).collect())
}

fn fails(test: &Test, number: u32, least: Duration) -> Result<Option<&'static str>> {
    let arguments = test.arguments();
    let on = [("MUTANT", number.to_string())];
    let limits = Limits::beside(&test.plain, least);
    let (mut failed, mut passed) = (0, 0);
    // Two of three runs decide (J2).
    while failed < 2 && passed < 2 {
        let ended = run(
            &test.binary.path,
            &arguments,
            &test.binary.folder,
            &on,
            limits,
        )?;
        match ended.end {
            End::Passed if failed == 0 => return Ok(None),
            End::Passed => passed += 1,
            End::Failed => failed += 1,
            End::Limit => return Ok(Some("processor time")),
            End::Still => return Ok(Some("waited")),
            End::Memory => return Ok(Some("memory")),
        }
    }
    // Without the mutant it must still pass, now as before.
    let holds = || -> Result<bool> {
        let binary = &test.binary;
        let ended = run(
            &binary.path,
            &arguments,
            &binary.folder,
            &[],
            Limits::plain(),
        )?;
        Ok(ended.end == End::Passed)
    };
    Ok((failed == 2 && holds()?).then_some("failed"))
}

/// Calls `each(index, worker)` for all indices, by `jobs` threads.
fn for_all(
    count: usize,
    jobs: usize,
    each: impl Fn(usize, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = |worker: usize| -> Result<()> {
        loop {
            // ORDER: Relaxed: it only matters that each worker takes its own index.
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return Ok(());
            }
            each(index, worker)?;
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..jobs.max(1))
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}
