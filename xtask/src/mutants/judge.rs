//! Which tests reach a mutant, and which of them fails with it.
//!
//! ```text
//!   --list ──► each test once, no mutant: time, mutants reached ──► per mutant: its tests, quickest first ──► verdict
//! ```
//!
//! J1  A test that fails without a mutant judges nothing; such tests are counted and named.
//! J2  A test that fails with a mutant is run again, and a third time if the two differ: two of three decide; and then
//!     once without, when it must pass. So a test which fails now and then, or on a busy machine, catches nothing by
//!     chance. Limits (`process`) are not asked twice.
//! J3  A mutant that no test reaches has survived, and is told apart.
//! J4  A test whose plain run is longer than `longest` is left out, which can only make survivors; they are counted.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::build::Binary;
use super::process::{End, Limits, Run, run};

/// Bytes of the file in which reached mutants are noted: `runtime` maps one page.
const REACH_BYTES: usize = 4096;
/// Most mutants at once.
pub const MOST: usize = REACH_BYTES;

/// One test, and what its run without a mutant showed.
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
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Caught { by: String, how: &'static str },
    Survived { tests: usize },
    NotReached,
}

/// Tests that can judge, and what was left out.
pub struct Tests {
    pub tests: Vec<Test>,
    /// Fail without a mutant (J1).
    pub failing: Vec<String>,
    /// Too long (J4).
    pub long: Vec<String>,
}

/// Where and how to run.
pub struct Place<'a> {
    pub folder: &'a Path,
    pub jobs: usize,
    pub longest: Duration,
    /// Processor time that every test may take with a mutant, beside ten times its own.
    pub least: Duration,
}

/// Lists the tests of all binaries and runs each once, to see what it reaches.
///
/// # Errors
/// A binary that cannot be run.
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
    let file = place.folder.join(format!("reach.{worker}"));
    std::fs::write(&file, vec![0; REACH_BYTES])?;
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
    let reached = std::fs::read(&file)?;
    let reaches = (0..)
        .zip(&reached)
        .filter(|(_, byte)| **byte != 0)
        .map(|(number, _)| number);
    Ok(Test {
        binary: binary.clone(),
        name: name.to_owned(),
        plain,
        reaches: reaches.collect(),
        kills: AtomicU32::new(0),
    })
}

/// Judges each of these mutants; `told` is called as verdicts come.
///
/// # Errors
/// A test that can no longer be started.
pub fn judge(
    numbers: &[u32],
    tests: &Tests,
    place: &Place,
    told: impl Fn(u32, &Verdict) + Sync,
) -> Result<Vec<(u32, Verdict)>> {
    let verdicts = Mutex::new(Vec::new());
    for_all(numbers.len(), place.jobs, |index, _| {
        let number = numbers[index];
        let verdict = judge_one(number, &tests.tests, place.least)?;
        told(number, &verdict);
        verdicts
            .lock()
            .expect("no test panics here")
            .push((number, verdict));
        Ok(())
    })?;
    Ok(verdicts.into_inner().expect("no test panics here"))
}

fn judge_one(number: u32, tests: &[Test], least: Duration) -> Result<Verdict> {
    let mut reaching: Vec<&Test> = tests
        .iter()
        .filter(|test| test.reaches.contains(&number))
        .collect();
    // Quickest first; one that has caught others is tried sooner. ORDER: Relaxed: a hint.
    reaching.sort_by_cached_key(|test| {
        let kills = u128::from(test.kills.load(Ordering::Relaxed));
        test.plain.wall.as_micros() / (1 + kills)
    });
    for test in &reaching {
        if let Some(how) = fails(test, number, least)? {
            // ORDER: Relaxed: a hint.
            test.kills.fetch_add(1, Ordering::Relaxed);
            return Ok(Verdict::Caught {
                by: test.called(),
                how,
            });
        }
    }
    Ok(match reaching.len() {
        0 => Verdict::NotReached,
        tests => Verdict::Survived { tests },
    })
}

fn fails(test: &Test, number: u32, least: Duration) -> Result<Option<&'static str>> {
    let arguments = ["--exact", test.name.as_str(), "--test-threads=1"];
    let on = [("MUTANT", number.to_string())];
    let limits = Limits::beside(&test.plain, least);
    let (mut failed, mut passed) = (0, 0);
    // Two of three (J2).
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
            // ORDER: Relaxed: who takes which index is all that matters.
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
