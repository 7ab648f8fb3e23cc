//! Several traces as one report.
//!
//! ```text
//!   traces ─ open each ─► members ─► their peak together ─► read each one's events ─► report
//! ```
//!
//! M1  No more traces are open at a time than there are processors: a build leaves thousands of traces.
//! M2  A file of a folder that is no whole trace is named in the report; one that was named by itself is an error.
//! M3  A recording counts once, however many copies of it lie there.
//!
//! Not here: what the sums are (`analysis::processes`), how they look (`view::processes`).

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use skinflint_analysis::processes::{self, Counted, Counter, Member, Processes};
use skinflint_trace::{OpenError, Trace};

use crate::error::Error;

/// Returns the traces that arguments name: files as they are, and all `*.sft` of a folder.
///
/// # Errors
/// If a folder cannot be read, or has no trace.
pub fn traces_of(arguments: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut traces = Vec::new();
    for argument in arguments {
        if !argument.is_dir() {
            traces.push(argument.clone());
            continue;
        }
        let shown = argument.display();
        let entries = std::fs::read_dir(argument).map_err(|cause| Error::Folder {
            shown: shown.to_string(),
            cause,
        })?;
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "sft"))
            .collect();
        if found.is_empty() {
            return Err(Error::Asked(format!(
                "{shown}: no traces (*.sft) in this folder; `skinflint record --dir {shown} -- CMD` puts them there"
            )));
        }
        found.sort();
        traces.append(&mut found);
    }
    Ok(traces)
}

/// Applies `work` to all items, on all processors, and keeps their order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..workers.min(items.len()) {
            scope.spawn(|| {
                loop {
                    // ORDER: Relaxed; hands out numbers, the lock orders the results.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn member(path: &Path) -> Result<Member, OpenError> {
    let trace = Trace::open(path)?;
    Ok(Member {
        trace: path.display().to_string(),
        threads: trace.threads.len() as u64,
        damage: trace.damage.iter().map(ToString::to_string).collect(),
        lost: trace.lost,
        process: trace.process,
        ending: trace.ending,
        rss: trace.rss,
    })
}

fn count(
    path: &Path,
    at_ns: Option<u64>,
    ended_ns: u64,
) -> Result<(Counted, Vec<String>), OpenError> {
    let trace = Trace::open(path)?;
    let mut counter = Counter::new(at_ns);
    let mut events = trace.events();
    events.for_each(|event| counter.event(event));
    let damage = events.damage().iter().map(ToString::to_string).collect();
    Ok((counter.finish(ended_ns), damage))
}

/// Returns the trace of the member that is the same recording (a copy, perhaps cut): its memory would count twice.
fn copy_of<'m>(members: &'m [Member], member: &Member) -> Option<&'m str> {
    let same = |other: &&Member| other.process.uid == member.process.uid;
    members.iter().find(same).map(|other| other.trace.as_str())
}

/// Analyses these traces together. If `lenient`, those that cannot be read are named in the report (M2).
///
/// # Errors
/// If a trace cannot be read and `lenient` is not set, or none can be read.
pub fn analyse_all(traces: &[PathBuf], lenient: bool) -> Result<Processes, Error> {
    let mut unread = Vec::new();
    let mut first = None;
    let mut members = Vec::new();
    let mut paths = Vec::new();
    for (path, opened) in traces.iter().zip(in_parallel(traces, |path| member(path))) {
        match opened {
            Ok(member) => match copy_of(&members, &member) {
                None => {
                    members.push(member);
                    paths.push(path.clone());
                }
                Some(first) if lenient => unread.push(format!(
                    "{} is of the same recording as {first}, and was left out: move it elsewhere.",
                    member.trace
                )),
                Some(first) => {
                    return Err(Error::Asked(format!(
                        "{}: the same recording as {first}; give each once, or compare them with `skinflint diff`",
                        member.trace
                    )));
                }
            },
            Err(error) if lenient => {
                unread.push(format!("{}.", whole(&error)));
                first.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let (true, Some(error)) = (members.is_empty(), first) {
        return Err(Error::NoneRead(error));
    }
    let together = processes::together(&members);
    let work: Vec<(&PathBuf, Option<u64>, u64)> = paths
        .iter()
        .zip(&members)
        .map(|(path, member)| {
            let ended = member.ending.as_ref().map_or(u64::MAX, |end| end.time_ns);
            (path, together.peak_ns_in(member), ended)
        })
        .collect();
    let results = in_parallel(&work, |(path, at, ended)| count(path, *at, *ended));
    let mut counted = Vec::with_capacity(members.len());
    for (result, member) in results.into_iter().zip(&mut members) {
        let (count, damage) = result?;
        member.damage.extend(damage);
        counted.push(count);
    }
    let mut report = processes::report(&members, &counted, together);
    report.missing.extend(unread);
    Ok(report)
}

/// Returns an error with its causes, in one sentence without its full stop.
fn whole(error: &OpenError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        text += &format!(": {one}");
        cause = one.source();
    }
    text
}
