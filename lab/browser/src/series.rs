//! Several runs: every browser as often as asked, in an order that is reversed each time; and their common figures.
//!
//! ```text
//!   OUT/plan.json                         another plan in the same folder is refused
//!   OUT/runs/LABEL-N/run.json, samples.jsonl, browser.log, reports      complete ones are not done again
//!   OUT/result.json, index.html           written anew after each run
//! ```
//!
//! E1  Medians are over complete runs, and every table says how many of the runs those were.
//! E2  Odd repetitions go through the browsers in one order, even ones in the other.
//! E3  One browser runs at a time, or one of each (`parallel`), never two of the same program; each run names what
//!     ran beside it.
//!
//! Not here: one run (run.rs), the picture (report_page.rs).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use skinflint_compare::stats::{self, median};

use crate::pages::{self, Served};
use crate::proof::{self, Proof};
pub use crate::request::Request;
pub use crate::result::{Row, Series, Spread, Versus};
use crate::run::{self, Job, Run, write_whole};
use crate::start::Subject;

/// Does the runs that are missing.
///
/// # Errors
/// If pages cannot be fetched, or results cannot be written.
pub fn series(request: &Request) -> Result<Series> {
    crate::family::prepare();
    request.plan.check()?;
    if request.parallel {
        no_two_alike(&request.subjects)?;
    }
    claim(request)?;
    // This is done once before anything is started: what is missing is fetched or reported now (pages.V2).
    let mut pages: Vec<String> = Vec::new();
    for subject in &request.subjects {
        let served = pages::serve(request, subject.browser)?;
        pages = served.targets.iter().map(|t| t.host.clone()).collect();
    }
    if pages.is_empty() {
        bail!("no browser is named, or the plan has no pages");
    }
    if request.subjects.iter().any(Subject::wants_node) {
        crate::drive::node::install(&request.cache)?;
    }
    let proofs = proofs(request)?;
    let mut runs = Vec::new();
    let mut interrupted = false;
    'all: for repetition in 1..=request.repeat {
        let mut order: Vec<&Subject> = request.subjects.iter().collect();
        if repetition % 2 == 0 {
            order.reverse();
        }
        let mut left = Vec::new();
        for subject in order {
            match finished(&folder_of(request, subject, repetition), request, subject) {
                Some(run) => {
                    (request.progress)(&format!("{} {repetition}: done before", subject.label));
                    runs.push(run);
                }
                None => left.push(subject),
            }
        }
        let most = if request.parallel { left.len() } else { 1 };
        for group in left.chunks(most.max(1)) {
            interrupted |= crate::family::is_interrupted();
            if interrupted {
                break 'all;
            }
            side_by_side(request, group, repetition, &mut |run| {
                (request.progress)(&format!(
                    "{} {repetition}: {}",
                    run.subject.label, run.ended
                ));
                interrupted |= crate::family::is_interrupted();
                runs.push(run);
                let so_far = together(request, &pages, runs.clone(), proofs.clone(), interrupted);
                write(request, &so_far)
            })?;
        }
    }
    let all = together(request, &pages, runs, proofs, interrupted);
    write(request, &all)?;
    Ok(all)
}

/// Refuses two of the same browser: they share the pages of its files, so neither's PSS would be its own (E3).
fn no_two_alike(subjects: &[Subject]) -> Result<()> {
    for (at, subject) in subjects.iter().enumerate() {
        let like = |other: &&Subject| other.program.first() == subject.program.first();
        if let Some(other) = subjects[..at].iter().find(like) {
            bail!(
                "--parallel: {} and {} are the same program, and would share memory; leave out --parallel, or one of them",
                other.label,
                subject.label
            );
        }
    }
    Ok(())
}

fn folder_of(request: &Request, subject: &Subject, repetition: u32) -> PathBuf {
    let name = format!("runs/{}-{repetition}", subject.label);
    request.out.join(name)
}

/// Runs one of each at the same time. `done` gets each run as it ends, on this thread.
fn side_by_side(
    request: &Request,
    group: &[&Subject],
    repetition: u32,
    done: &mut dyn FnMut(Run) -> Result<()>,
) -> Result<()> {
    let (send, ended) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for subject in group {
            let send = send.clone();
            let others = group.iter().filter(|other| other.label != subject.label);
            let beside: Vec<String> = others.map(|other| other.label.clone()).collect();
            // Its browser dies with this thread (family.F2), which lives until the run has ended.
            scope.spawn(move || {
                let run = one(request, subject, repetition, beside);
                let _ = send.send(run);
            });
        }
        drop(send);
        // An error does not keep the others' results from being written.
        let mut all = Ok(());
        for run in ended {
            let wrote = run.and_then(&mut *done);
            all = all.and(wrote);
        }
        all
    })
}

fn one(request: &Request, subject: &Subject, repetition: u32, beside: Vec<String>) -> Result<Run> {
    let served = pages::serve(request, subject.browser)?;
    run::run(&Job {
        folder: &folder_of(request, subject, repetition),
        repetition,
        beside,
        ..job(request, subject, &served)
    })
}

fn job<'a>(request: &'a Request, subject: &'a Subject, served: &'a Served) -> Job<'a> {
    Job {
        subject,
        plan: &request.plan,
        targets: &served.targets,
        octane: served.octane.as_ref(),
        site: &served.site,
        cache: &request.cache,
        folder: &request.out,
        headful: request.headful,
        interval: request.interval,
        repetition: 0,
        beside: Vec::new(),
        progress: request.progress,
    }
}

/// Counts for each preloaded allocator, one after the other.
fn proofs(request: &Request) -> Result<Vec<Proof>> {
    let mut proofs = Vec::new();
    let Some(probe) = &request.probe else {
        return Ok(proofs);
    };
    for subject in &request.subjects {
        let folder = request.out.join(format!("checks/{}", subject.label));
        let served = pages::serve(request, subject.browser)?;
        let job = Job {
            folder: &folder,
            ..job(request, subject, &served)
        };
        proofs.extend(proof::prove(&job, probe)?);
    }
    Ok(proofs)
}

/// Claims a folder for one plan, so that its figures are comparable.
fn claim(request: &Request) -> Result<()> {
    let out = &request.out;
    fs::create_dir_all(out).with_context(|| format!("{}: cannot be made", out.display()))?;
    let file = out.join("plan.json");
    let own = serde_json::to_value(&request.plan)?;
    if let Ok(text) = fs::read(&file) {
        let there: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        if there != own {
            bail!(
                "{}: holds results of another plan ({}); name another folder with -o",
                out.display(),
                file.display()
            );
        }
        return Ok(());
    }
    write_whole(&file, &serde_json::to_vec_pretty(&own)?)
}

/// Returns a run that was complete.
fn finished(folder: &Path, request: &Request, subject: &Subject) -> Option<Run> {
    let text = fs::read(folder.join("run.json")).ok()?;
    let run: Run = serde_json::from_slice(&text).ok()?;
    (run.complete && run.plan == request.plan && run.subject == *subject).then_some(run)
}

fn write(request: &Request, series: &Series) -> Result<()> {
    write_whole(
        &request.out.join("result.json"),
        &serde_json::to_vec_pretty(series)?,
    )?;
    let page = crate::report_page::render(series, &request.out);
    write_whole(&request.out.join("index.html"), page.as_bytes())
}

fn together(
    request: &Request,
    pages: &[String],
    runs: Vec<Run>,
    proofs: Vec<Proof>,
    interrupted: bool,
) -> Series {
    let rows: Vec<Row> = request
        .subjects
        .iter()
        .map(|subject| row(&subject.label, &runs))
        .collect();
    let machine = skinflint_compare::machine::machine();
    let versus = versus(&request.subjects, &runs);
    Series {
        command: request.command.clone(),
        plan: request.plan.clone(),
        machine: format!(
            "{} × {}, {}, Linux {}",
            machine.cpus,
            machine.cpu,
            skinflint_view::units::bytes(machine.memory_bytes),
            machine.kernel
        ),
        pages: pages.to_vec(),
        rows,
        versus,
        proofs,
        runs,
        interrupted,
    }
}

/// Returns the figures of a run, in the order of the table; bytes unless the name says otherwise.
pub fn figures_of(run: &Run) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for checkpoint in &run.checkpoints {
        all.push((format!("PSS {}", checkpoint.name), checkpoint.pss as f64));
    }
    let f = &run.figures;
    let mut add = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            all.push((name.to_owned(), value));
        }
    };
    add("PSS peak", Some(f.peak_pss as f64));
    add("given back, share", f.given_back);
    add(
        "slope, bytes per minute",
        f.slope.map(|slope| slope.bytes_per_minute),
    );
    if let Some(open) = run.checkpoint("tabs-open") {
        add("USS tabs-open", Some(open.uss as f64));
        add("RSS sum tabs-open (over-counts)", Some(open.rss as f64));
        add("AWSY resident tabs-open", Some(open.awsy as f64));
        add("processes tabs-open", Some(f64::from(open.processes)));
        add("threads tabs-open", Some(f64::from(open.threads)));
    }
    if let Some(last) = run.checkpoints.last() {
        add("USS at the end", Some(last.uss as f64));
        add("processes at the end", Some(f64::from(last.processes)));
    }
    let loads: Vec<f64> = run
        .loads
        .iter()
        .filter(|l| l.failed.is_none())
        .map(|l| l.load_ms as f64)
        .collect();
    add("load, median ms", median(&loads));
    add("real, s", Some(f.real_ms as f64 / 1e3));
    add("user, s", Some(f.user_ms as f64 / 1e3));
    add("sys, s", Some(f.system_ms as f64 / 1e3));
    for score in &run.scores {
        add(&format!("Octane with {} open", score.open), score.score);
    }
    add("sampler, share of a core", Some(f.sampler_share_median));
    all
}

fn row(label: &str, runs: &[Run]) -> Row {
    let own: Vec<&Run> = runs
        .iter()
        .filter(|run| run.subject.label == label)
        .collect();
    let complete: Vec<&Run> = own.iter().filter(|run| run.complete).copied().collect();
    let mut figures = Vec::new();
    for (name, _) in complete.first().map_or(Vec::new(), |run| figures_of(run)) {
        let values = values(&complete, &name);
        if let Some(mid) = median(&values) {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            figures.push((
                name,
                Spread {
                    median: mid,
                    low,
                    high,
                    runs: values.len() as u32,
                },
            ));
        }
    }
    Row {
        label: label.into(),
        version: own.first().map_or(String::new(), |run| run.version.clone()),
        complete: complete.len() as u32,
        runs: own.len() as u32,
        loads: own.iter().map(|run| run.loads.len() as u32).sum(),
        failed_loads: own.iter().map(|run| run.failed_loads() as u32).sum(),
        figures,
    }
}

fn values(runs: &[&Run], name: &str) -> Vec<f64> {
    let of = |run: &&Run| {
        figures_of(run)
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value)
    };
    runs.iter().filter_map(of).collect()
}

/// Compares each allocator with the best of the others, in memory after the close (bootstrap as in `compare`).
fn versus(subjects: &[Subject], runs: &[Run]) -> Vec<Versus> {
    const FIGURE: &str = "PSS tabs-closed-settled";
    use skinflint_compare::model::Measure;
    let allocated: Vec<&Subject> = subjects
        .iter()
        .filter(|s| s.allocator.is_some() || s.system_malloc)
        .collect();
    let most = runs.iter().map(|run| run.repetition).max().unwrap_or(0);
    // Figures are ordered by repetition, so that pairs are of the same time.
    let by_round = |label: &str| -> Vec<f64> {
        let at = |round: u32| {
            let found = runs
                .iter()
                .find(|r| r.complete && r.subject.label == label && r.repetition == round)?;
            figures_of(found)
                .into_iter()
                .find(|(name, _)| name == FIGURE)
                .map(|(_, value)| value)
        };
        (1..=most)
            .map(|round| at(round).unwrap_or(f64::NAN))
            .collect()
    };
    let mid = |label: &str| {
        median(
            &by_round(label)
                .into_iter()
                .filter(|v| v.is_finite())
                .collect::<Vec<_>>(),
        )
    };
    let mut all = Vec::new();
    for subject in &allocated {
        let others = allocated
            .iter()
            .filter(|other| other.label != subject.label);
        let best = others
            .filter_map(|other| Some((mid(&other.label)?, other.label.clone())))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, reference)) = best else { continue };
        let cell = stats::cell(
            Measure::PeakBytes,
            &by_round(&subject.label),
            Some(&by_round(&reference)),
            1,
        );
        if let Some((ratio, interval)) = cell.and_then(|cell| Some((cell.ratio?, cell.interval))) {
            all.push(Versus {
                label: subject.label.clone(),
                reference,
                figure: FIGURE.into(),
                ratio,
                interval,
            });
        }
    }
    all
}
