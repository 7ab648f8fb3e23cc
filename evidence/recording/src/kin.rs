//! Where the traces of other processes are: by the identity that children name their parents by.
//!
//! ```text
//!   find(uid, pid) ─► known by now ─► else: open files of the folder, the likeliest name first, and remember each
//! ```
//!
//! K1  A file is opened to learn its identity at most once; at most [`LOOKED_AT`] of them.
//! K2  The last file of one identity that was told is the one; copies in a folder are the same recording.
//!
//! Not here: what an ancestor's events mean (lib.rs).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use skinflint_trace::Trace;

/// Files of a folder that are looked at, at most.
const LOOKED_AT: usize = 2000;

/// Traces by identity.
#[derive(Clone, Debug, Default)]
pub struct Kin {
    known: HashMap<String, PathBuf>,
    /// Files that have not been looked at.
    rest: Vec<PathBuf>,
    looked_at: usize,
}

impl Kin {
    /// Those in the folder of this trace.
    pub fn beside(trace: &Path) -> Kin {
        let folder = trace
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
        let files = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()));
        let mut rest: Vec<PathBuf> = files
            .filter(|file| file.extension().is_some_and(|extension| extension == "sft"))
            .collect();
        rest.sort_unstable();
        Kin {
            rest,
            ..Kin::default()
        }
    }

    /// A trace that was opened already.
    pub fn tell(&mut self, uid: &str, path: &Path) {
        self.known.insert(uid.to_owned(), path.to_owned());
    }

    /// The trace with this identity, whose name most likely holds this process id.
    pub fn find(&mut self, uid: &str, pid: u32) -> Option<Trace> {
        if let Some(path) = self.known.get(uid) {
            return Trace::open(path)
                .ok()
                .filter(|trace| trace.process.uid == uid);
        }
        let likely = format!(".{pid}.");
        let is_likely = |file: &Path| {
            let name = file.file_name();
            name.is_some_and(|name| name.to_string_lossy().contains(&likely))
        };
        // From the end, so that what was looked at can be taken off.
        self.rest.sort_by_key(|file| is_likely(file));
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
