//! The traces of related processes, found by the identity with which children name their parents.
//!
//! ```text
//!   find(uid, pid) ─► known by now ─► else: open files of the folder, the likeliest name first, and remember each
//! ```
//!
//! K1  A file is opened at most once to learn its identity; at most [`LOOKED_AT`] files are opened.
//! K2  Of several files with one identity, the last one told counts; copies in a folder are the same recording.
//!
//! Not here: what an ancestor's events mean (opened.rs).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use skinflint_trace::Trace;

/// The most files of a folder that are opened.
const LOOKED_AT: usize = 20_000;

/// Reports whether a trace's name ends with a process id: `run.4711.sft`.
fn has_number(name: &str) -> bool {
    let stem = name.strip_suffix(".sft").unwrap_or(name);
    let number = stem.rsplit_once('.').map(|(_, number)| number);
    number.is_some_and(|number| number.bytes().all(|letter| letter.is_ascii_digit()))
}

/// Returns the traces that lie in a folder, in no order.
pub(crate) fn traces_in(folder: &Path) -> Vec<PathBuf> {
    let here = folder.as_os_str().is_empty();
    let entries = std::fs::read_dir(if here { Path::new(".") } else { folder });
    let files = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.filter(|file| file.extension().is_some_and(|extension| extension == "sft"));
    let all: Vec<PathBuf> = files.collect();
    // What was read from outside of a process (`x.heap.sft`) is no other process than its trace (`x.sft`).
    let is_beside = |file: &PathBuf| {
        let name = file.to_string_lossy();
        let own = name
            .strip_suffix(".heap.sft")
            .map(|own| format!("{own}.sft"));
        own.is_some_and(|own| all.contains(&PathBuf::from(own)))
    };
    all.iter()
        .filter(|file| !is_beside(file))
        .cloned()
        .collect()
}

/// Reports whether a folder is, by its name, one of the traces of the processes that a program started:
/// `skinflint-NAME-PID`.
pub(crate) fn is_of_others(folder: &Path) -> bool {
    let whole = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = whole.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("skinflint-")
}

/// Returns the folder in which a folder lies, as one would write it.
pub(crate) fn above(folder: &Path) -> PathBuf {
    match folder.parent() {
        Some(above) => above.to_owned(),
        None => folder.join(".."),
    }
}

/// Traces by identity.
#[derive(Clone, Debug, Default)]
pub struct Kin {
    known: HashMap<String, PathBuf>,
    /// Files that have not been opened.
    rest: Vec<PathBuf>,
    looked_at: usize,
}

impl Kin {
    /// Creates the table of the traces in the folder of this trace.
    pub fn beside(trace: &Path) -> Kin {
        let folder = trace.parent().unwrap_or(Path::new(""));
        let mut rest = traces_in(folder);
        // The program's own trace lies beside the folder of the others.
        if is_of_others(folder) {
            rest.extend(traces_in(&above(folder)));
        }
        rest.sort_unstable();
        Kin {
            rest,
            ..Kin::default()
        }
    }

    /// Adds a trace that was opened already.
    pub fn tell(&mut self, uid: &str, path: &Path) {
        self.known.insert(uid.to_owned(), path.to_owned());
    }

    /// Returns where the trace with this identity lies, if it was found.
    pub fn path(&self, uid: &str) -> Option<&Path> {
        self.known.get(uid).map(PathBuf::as_path)
    }

    /// Returns the trace with this identity; its name most likely holds this process id.
    pub fn find(&mut self, uid: &str, pid: u32) -> Option<Trace> {
        if let Some(path) = self.known.get(uid) {
            return Trace::open(path)
                .ok()
                .filter(|trace| trace.process.uid == uid);
        }
        let likely = format!(".{pid}.");
        let likelihood = |file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // The first process of a recording has no number in its name.
            (name.contains(&likely), !has_number(&name))
        };
        // Files are taken from the end, so that those already opened can be removed.
        self.rest.sort_by_cached_key(|file| likelihood(file));
        while self.looked_at < LOOKED_AT
            && let Some(path) = self.rest.pop()
        {
            self.looked_at += 1;
            let Ok(trace) = Trace::open(&path) else {
                continue;
            };
            self.known.insert(trace.process.uid.clone(), path);
            if trace.process.uid == uid {
                return Some(trace);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use skinflint_trace::{Ending, ProcessInfo, Writer};

    use super::*;

    #[test]
    fn the_first_process_of_a_recording_is_found_among_many_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, uid: &str| {
            let path = folder.path().join(name);
            let process = ProcessInfo {
                uid: uid.into(),
                ..ProcessInfo::default()
            };
            let mut writer = Writer::create(&path, &process).expect("a trace");
            writer.ending(&Ending::default()).expect("its end");
            path
        };
        let first = write("all.sft", "first");
        for pid in 100..150 {
            write(&format!("skinflint.run.{pid}.sft"), &format!("of {pid}"));
        }
        let mut kin = Kin::beside(&first);
        assert!(kin.find("of 120", 120).is_some());
        assert!(kin.find("first", 7).is_some());
        assert_eq!(kin.looked_at, 2, "files opened");
    }
}
