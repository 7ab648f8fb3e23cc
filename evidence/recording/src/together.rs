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

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use skinflint_analysis::processes::{self, Counted, Counter, Member, Processes};
use skinflint_trace::{OpenError, Trace};

use crate::error::Error;
use crate::kin::Kin;
use crate::opened::Recording;

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

/// The work to be done with a member's events.
struct Work<'m> {
    path: &'m Path,
    /// The moment in its own time at which all together held most.
    at_ns: Option<u64>,
    ended_ns: u64,
    kin: Kin,
}

fn count(work: &Work<'_>) -> Result<Counted, OpenError> {
    let recording = Recording::open_among(work.path, &mut work.kin.clone())?;
    let mut counter = Counter::new(work.at_ns);
    let verdict = recording.judge(|event| counter.event(event));
    Ok(Counted {
        verdict,
        ..counter.finish(work.ended_ns)
    })
}

/// Returns where the ancestors of a member are: among the members; else, if these are not a whole folder, beside it.
fn kin_of(
    index: usize,
    members: &[Member],
    by_uid: &HashMap<&str, usize>,
    paths: &[PathBuf],
    is_folder: bool,
) -> Kin {
    let mut found = Vec::new();
    let mut at = Some(index);
    let mut is_whole = true;
    while let Some(origin) = at.and_then(|at| members[at].process.origin.as_ref())
        && found.len() < members.len()
    {
        at = by_uid.get(origin.uid.as_str()).copied();
        is_whole = at.is_some();
        found.extend(at);
    }
    let mut kin = match is_whole || is_folder {
        true => Kin::default(),
        false => Kin::beside(&paths[index]),
    };
    for at in found {
        kin.tell(&members[at].process.uid, &paths[at]);
    }
    kin
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
    let uids = members.iter().map(|member| member.process.uid.as_str());
    let by_uid: HashMap<&str, usize> = uids.zip(0..).collect();
    let work: Vec<Work<'_>> = (0..members.len())
        .map(|index| Work {
            path: &paths[index],
            at_ns: together.peak_ns_in(&members[index]),
            ended_ns: (members[index].ending.as_ref()).map_or(u64::MAX, |end| end.time_ns),
            kin: kin_of(index, &members, &by_uid, &paths, lenient),
        })
        .collect();
    let results = in_parallel(&work, count);
    let counted: Vec<Counted> = results.into_iter().collect::<Result<_, _>>()?;
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
