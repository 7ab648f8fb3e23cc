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
use crate::kin::{Kin, above, is_of_others, traces_in};
use crate::opened::Recording;
use crate::rows::{self, Row, Rows};

/// What arguments name.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// Traces.
    pub traces: Vec<PathBuf>,
    /// Whether folders were among the arguments: what cannot be read in them is named, and is no error (M2).
    pub has_folder: bool,
    /// Files of rows, of processes whose traces were dropped.
    rows: Vec<PathBuf>,
}

/// Returns what arguments name: files as they are, and all `*.sft` of a folder, of the folders of other processes in
/// it, and of the program whose other processes it has.
///
/// # Errors
/// If a folder cannot be read, or has no trace.
pub fn named(arguments: &[PathBuf]) -> Result<Named, Error> {
    let mut named = Named::default();
    for argument in arguments {
        if !argument.is_dir() {
            named.traces.push(argument.clone());
            continue;
        }
        named.has_folder = true;
        let shown = argument.display();
        let entries = std::fs::read_dir(argument).map_err(|cause| Error::Folder {
            shown: shown.to_string(),
            cause,
        })?;
        let mut found = traces_in(argument);
        let mut folders = vec![argument.clone()];
        let inner = entries.filter_map(|entry| Some(entry.ok()?.path()));
        for inner in inner.filter(|path| is_of_others(path) && path.is_dir()) {
            found.extend(traces_in(&inner));
            folders.push(inner);
        }
        let rows: Vec<PathBuf> = folders
            .iter()
            .flat_map(|folder| rows::files_in(folder))
            .collect();
        for file in &rows {
            let program = Rows::read(file).program;
            let is_beside = program.parent() == Some(&above(argument));
            if is_of_others(argument) && is_beside && program.is_file() {
                found.push(program);
            }
        }
        if found.is_empty() {
            return Err(Error::Asked(format!(
                "{shown}: no traces (*.sft) in this folder; `skinflint record --dir {shown} -- CMD` puts them there"
            )));
        }
        found.sort();
        named.traces.append(&mut found);
        named.rows.extend(rows);
    }
    Ok(named)
}

/// Returns the trace that a path means where one trace is wanted: the file, or of the folder of a run the trace that
/// the report of the run was about.
///
/// # Errors
/// If it is a folder of several runs, or without traces.
pub fn the_trace_of(path: &Path) -> Result<PathBuf, Error> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let named = named(&[path.to_owned()])?;
    if let [file] = &named.rows[..] {
        let rows = Rows::read(file);
        let told = [rows.shown, rows.program];
        if let Some(trace) = told.into_iter().find(|trace| trace.is_file()) {
            return Ok(trace);
        }
    }
    match &named.traces[..] {
        [trace] => Ok(trace.clone()),
        traces => {
            let first: Vec<String> = traces
                .iter()
                .take(3)
                .map(|t| t.display().to_string())
                .collect();
            Err(Error::Asked(format!(
                "{}: {} traces in this folder, and one is wanted; name it ({} …)",
                path.display(),
                traces.len(),
                first.join(", ")
            )))
        }
    }
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
    if trace.process.sample_bytes > 0 {
        return Err(OpenError::Sampled {
            path: path.to_owned(),
            sample_bytes: trace.process.sample_bytes,
        });
    }
    Ok(Member {
        trace: path.display().to_string(),
        // Marks from outside are a stream of their own, which no thread of the kernel's has.
        threads: trace.threads.iter().filter(|one| one.tid != 0).count() as u64,
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

/// Several traces, opened: what each says of itself, and of some what their events add up to.
pub struct Several {
    members: Vec<Member>,
    /// Their files; empty where only a row is left.
    paths: Vec<PathBuf>,
    counted: Vec<Option<Counted>>,
    /// What could not be read, a sentence each.
    unread: Vec<String>,
    /// The number of rows that were counted for another moment.
    of_another_moment: usize,
    lenient: bool,
    together: processes::Together,
}

impl Several {
    /// Opens what arguments name ([`named`]).
    ///
    /// # Errors
    /// If none can be read; without a folder among the arguments, if any cannot.
    pub fn of(named: &Named) -> Result<Several, Error> {
        Several::open(&named.traces, &named.rows, named.has_folder)
    }

    /// Opens the traces of a run; those that cannot be read are named in the report (M2).
    ///
    /// # Errors
    /// If none can be read.
    pub fn of_run(traces: &[PathBuf]) -> Result<Several, Error> {
        Several::open(traces, &[], true)
    }

    fn open(traces: &[PathBuf], rows: &[PathBuf], lenient: bool) -> Result<Several, Error> {
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
        let mut counted = vec![None; members.len()];
        let mut moments = Vec::new();
        for rows in rows.iter().map(|file| Rows::read(file)) {
            unread.extend(rows.missing);
            for row in rows.dropped {
                if copy_of(&members, &row.member).is_none() {
                    members.push(row.member);
                    paths.push(PathBuf::new());
                    counted.push(Some(row.counted));
                    moments.push(row.at_unix_ns);
                }
            }
        }
        let together = processes::together(&members);
        let others = moments
            .iter()
            .filter(|moment| **moment != together.peak_unix_ns);
        Ok(Several {
            of_another_moment: others.count(),
            members,
            paths,
            counted,
            unread,
            lenient,
            together,
        })
    }

    /// Reads the events of those of these members whose events have not been read.
    fn count(&mut self, which: &[usize]) -> Result<(), Error> {
        let members = &self.members;
        let uids = members.iter().map(|member| member.process.uid.as_str());
        let by_uid: HashMap<&str, usize> = uids.zip(0..).collect();
        let new = which
            .iter()
            .copied()
            .filter(|&index| self.counted[index].is_none());
        let new: Vec<usize> = new.collect();
        let work = new.iter().map(|&index| Work {
            path: &self.paths[index],
            at_ns: self.together.peak_ns_in(&members[index]),
            ended_ns: (members[index].ending.as_ref()).map_or(u64::MAX, |end| end.time_ns),
            kin: kin_of(index, members, &by_uid, &self.paths, self.lenient),
        });
        let work: Vec<Work<'_>> = work.collect();
        let results = in_parallel(&work, count);
        for (index, result) in new.into_iter().zip(results) {
            self.counted[index] = Some(result?);
        }
        Ok(())
    }

    /// Analyses them together. Cost: a reading of each trace's events.
    ///
    /// # Errors
    /// If a trace cannot be read.
    pub fn report(&mut self) -> Result<Processes, Error> {
        let all: Vec<usize> = (0..self.members.len()).collect();
        self.count(&all)?;
        let counted: Vec<Counted> = self.counted.iter().flatten().cloned().collect();
        let mut report = processes::report(&self.members, &counted, self.together.clone());
        report.missing.extend(self.unread.iter().cloned());
        if self.of_another_moment > 0 {
            report.notes.push(format!(
                "Live bytes of {} of the small processes are as of the peak of their own run.",
                self.of_another_moment
            ));
        }
        Ok(report)
    }

    /// Drops the traces of small processes: writes their rows to `file`, then removes them. The traces `keep` stay.
    /// Returns the files that were removed.
    ///
    /// # Errors
    /// If a trace cannot be read, or the rows cannot be written; then nothing is removed.
    pub fn drop_small(
        &mut self,
        keep: &[PathBuf],
        mut rows: Rows,
        file: &Path,
    ) -> Result<Vec<PathBuf>, Error> {
        let about = self.paths.iter().map(std::fs::metadata);
        let bytes: Vec<u64> = about
            .map(|about| about.map_or(0, |one| one.len()))
            .collect();
        let mut sizes: Vec<_> = self.members.iter().map(Member::max_rss_bytes).collect();
        // The kernel keeps no mark of what a process was before its `exec`. If it was never read either, what its heap
        // held stands for its size.
        let unread = (0..sizes.len())
            .filter(|&index| sizes[index].is_none() && rows::may_be_small(bytes[index]));
        let unread: Vec<usize> = unread.collect();
        self.count(&unread)?;
        for index in unread {
            let counted = self.counted[index].as_ref();
            sizes[index] = counted.map(|counted| counted.peak_live_bytes);
        }
        let mut small = rows::small(&self.members, &sizes, &bytes, keep);
        self.count(&small)?;
        // What its events say is missing, its own report should say.
        small.retain(|&index| {
            let counted = self.counted[index].as_ref();
            counted.is_some_and(|counted| counted.verdict.missing.is_empty())
        });
        for &index in &small {
            if let Some(counted) = self.counted[index].clone() {
                rows.dropped.push(Row {
                    member: self.members[index].clone(),
                    counted,
                    at_unix_ns: self.together.peak_unix_ns,
                });
            }
        }
        rows.write(file).map_err(|cause| Error::Folder {
            shown: file.display().to_string(),
            cause,
        })?;
        let paths = small.iter().map(|&index| self.paths[index].clone());
        let paths: Vec<PathBuf> = paths.collect();
        for path in &paths {
            for older in skinflint_trace::older_segments(path) {
                let _ = std::fs::remove_file(older);
            }
            let _ = std::fs::remove_file(path);
            let _ = std::fs::remove_file(path.with_extension("perf.map"));
        }
        Ok(paths)
    }
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
