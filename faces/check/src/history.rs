//! A history: one line of JSON for each check, in a file that is only appended to.
//!
//! ```text
//!   Checked, label ─► Entry ─► lock, one write ─► {"schema":1,"label":"1a2b3c","figures":{…}}\n
//! ```
//!
//! Y1  A line is written whole or not at all, whatever else writes to the file: under a lock, by one call to a file opened for appending.
//! Y2  A file whose last line was cut (a full disk, a killed writer) is closed by a line end first; the cut line is left
//!     out when it is read, and counted.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::figures::Range;
use crate::judge::Checked;

/// Version of a line.
const SCHEMA: u32 = 1;

/// A check in a history.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Entry {
    /// Version of these fields.
    pub schema: u32,
    /// What the build is called: a commit, a version.
    pub label: String,
    /// The program's name.
    pub program: String,
    /// The start of the run, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Whether nothing was missing from the recording.
    pub complete: bool,
    /// The answer to all that was asked: `failed` if the program failed and no budget broke, `no budget` if nothing was.
    pub verdict: String,
    /// Whether the program itself failed: what it held until then is no figure of a build.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Every figure that was known.
    pub figures: BTreeMap<String, Range>,
}

impl Entry {
    /// Makes the entry of a check.
    pub fn of(checked: &Checked, label: &str) -> Entry {
        Entry {
            schema: SCHEMA,
            label: label.to_owned(),
            program: checked.program.clone(),
            started_unix_ns: checked.started_unix_ns,
            complete: checked.complete,
            verdict: checked.answer().to_owned(),
            failed: checked.failed.is_some(),
            figures: checked.figures.clone(),
        }
    }
}

/// Appends an entry (Y1).
///
/// # Errors
/// If the file cannot be opened, locked or written.
pub fn append(path: &Path, entry: &Entry) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path)?;
    // SAFETY: the descriptor is open as long as `file` lives; no memory is involved.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let length = file.seek(SeekFrom::End(0))?;
    let mut line = Vec::new();
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            line.push(b'\n');
        }
    }
    serde_json::to_writer(&mut line, entry)?;
    line.push(b'\n');
    let wrote = file.write(&line)?;
    if wrote < line.len() {
        // A part of a line is worse than none.
        file.set_len(length)?;
        return Err(io::Error::new(
            io::ErrorKind::WriteZero,
            "no room for the line",
        ));
    }
    Ok(())
}

/// Reads the entries of a history's text; also returns how many lines could not be read.
pub fn read(text: &str) -> (Vec<Entry>, usize) {
    let mut unread = 0;
    let mut entries = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str::<Entry>(line) {
            Ok(entry) if entry.schema == SCHEMA => entries.push(entry),
            _ => unread += 1,
        }
    }
    (entries, unread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::checked;

    #[test]
    fn what_was_appended_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        let entries: Vec<Entry> = ["a", "b\n\"c\""]
            .iter()
            .map(|label| Entry::of(&checked(), label))
            .collect();
        for entry in &entries {
            append(&path, entry).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(&text), (entries, 0));
    }

    #[test]
    fn a_program_that_failed_is_told_apart_whatever_its_budgets_say() {
        let mut checked = checked();
        let line = |checked: &Checked| serde_json::to_string(&Entry::of(checked, "a")).unwrap();
        assert!(!line(&checked).contains("failed"));
        checked.failed = Some("app failed (status 9)".into());
        let broken = Entry::of(&checked, "a");
        assert_eq!((&*broken.verdict, broken.failed), ("broken", true));
        checked.verdict = Some(crate::Verdict::Held);
        let held = line(&checked);
        assert!(
            held.contains("\"verdict\":\"failed\",\"failed\":true"),
            "{held}"
        );
        assert!(read(&held).0[0].failed);
    }

    #[test]
    fn a_cut_line_costs_itself_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        let entry = Entry::of(&checked(), "a");
        append(&path, &entry).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
        append(&path, &entry).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(read(&text), (vec![entry.clone(), entry], 1));
    }

    #[test]
    fn threads_that_append_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for round in 0..25 {
                        let entry = Entry::of(&checked(), &format!("{thread}.{round}"));
                        append(path, &entry).unwrap();
                    }
                });
            }
        });
        let (entries, unread) = read(&std::fs::read_to_string(&path).unwrap());
        let mut labels: Vec<_> = entries.into_iter().map(|one| one.label).collect();
        labels.sort();
        labels.dedup();
        assert_eq!((labels.len(), unread), (100, 0));
    }

    #[test]
    fn lines_of_another_version_are_left_out() {
        let (entries, unread) = read("{\"schema\":2}\n\nnonsense\n");
        assert_eq!((entries.len(), unread), (0, 2));
    }
}
