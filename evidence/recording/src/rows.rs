//! The rows of processes whose traces were dropped, and which are: small ones, whose traces are litter.
//!
//! ```text
//!   skinflint-make-4711/    skinflint.cc1.4720.sft      kept
//!                           skinflint.make.4711.rows    {"rows":1,"program":"../app.sft","shown":"…"}   the first line
//!                                                       {"member":{…},"counted":{…},"at_unix_ns":…}     a line for each
//! ```
//!
//! W1  A row is what the trace said of itself and what its events added up to: the table of processes is the same
//!     with the row as with the trace, as long as the moment at which all held most is the same.
//! W2  A trace is dropped only if it is whole, no kept one began as a copy of it (recording.R1), and its row is written.
//! W3  A file of rows that is cut or damaged loses rows, which the report says, and nothing else.
//!
//! Not here: how rows and traces become one report (together.rs).

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use skinflint_analysis::processes::{Counted, Member};
use skinflint_trace::OriginKind;
use skinflint_view::units::plural;

use crate::kin::above;

/// The ending of the names of these files.
const ENDING: &str = "rows";
/// The version of the format.
const VERSION: u32 = 1;
/// A process that never held more than this may be small. A shell with the recorder holds 4 to 6 MiB, an interpreter of
/// Python 10 to 12.
const SMALL_BYTES: u64 = 16 << 20;
/// A trace larger than this is of a process that did much, however small it was; reading it would take time, too.
const SMALL_TRACE_BYTES: u64 = 1 << 20;
/// The most bytes of a file of rows that are read: a build has thousands of processes, with few readings each.
const MOST_BYTES: u64 = 1 << 30;

/// The first line of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Head {
    rows: u32,
    program: PathBuf,
    shown: PathBuf,
}

/// A process without its trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub member: Member,
    pub counted: Counted,
    /// The moment that [`Counted::live_at_bytes`] is of, nanoseconds since 1970.
    pub at_unix_ns: Option<u64>,
}

/// The rows of a run, and which traces tell most of it.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The program's own trace.
    pub program: PathBuf,
    /// The trace that the report of the run was about.
    pub shown: PathBuf,
    pub(crate) dropped: Vec<Row>,
    /// What could not be read (W3), a sentence each.
    pub(crate) missing: Vec<String>,
}

impl Rows {
    /// Creates the rows of a run, of which no trace has been dropped yet.
    pub fn of(program: &Path, shown: &Path) -> Rows {
        Rows {
            program: program.to_owned(),
            shown: shown.to_owned(),
            ..Rows::default()
        }
    }

    /// Reads a file of rows.
    pub(crate) fn read(path: &Path) -> Rows {
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut rows = Rows::default();
        let mut say = |what: &str| rows.missing.push(format!("{}: {what}.", path.display()));
        let file = match std::fs::File::open(path) {
            Ok(file) => BufReader::new(std::io::Read::take(file, MOST_BYTES)),
            Err(error) => {
                say(&format!(
                    "the rows of small processes cannot be read: {error}"
                ));
                return rows;
            }
        };
        // As bytes: a line that is no text costs itself, and not those behind it.
        let mut lines = file.split(b'\n');
        let head = lines.next().and_then(Result::ok).unwrap_or_default();
        match serde_json::from_slice::<Head>(&head) {
            Ok(head) if head.rows == VERSION => {
                rows.program = seen_here(folder, head.program);
                rows.shown = seen_here(folder, head.shown);
            }
            Ok(head) => {
                let what = format!(
                    "rows of version {}, and this program reads {VERSION}",
                    head.rows
                );
                say(&what);
                return rows;
            }
            Err(_) => {
                say("no rows of small processes; they are not in this report");
                return rows;
            }
        }
        let mut unread = 0;
        for line in lines {
            let Ok(line) = line else {
                unread += 1;
                break;
            };
            match serde_json::from_slice(&line) {
                Ok(row) => rows.dropped.push(row),
                Err(_) => unread += 1,
            }
        }
        if unread > 0 {
            let unread = plural(unread, "row");
            let what = format!("{unread} of small processes could not be read");
            rows.missing.push(format!("{}: {what}.", path.display()));
        }
        rows
    }

    /// Writes the file: whole, or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let head = Head {
            rows: VERSION,
            program: seen_from(folder, &self.program),
            shown: seen_from(folder, &self.shown),
        };
        let mut text = serde_json::to_vec(&head)?;
        for row in &self.dropped {
            text.push(b'\n');
            serde_json::to_writer(&mut text, row)?;
        }
        text.push(b'\n');
        let hidden = path.with_extension("rows.part");
        let mut file = std::fs::File::create(&hidden)?;
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        written
            .and_then(|()| std::fs::rename(&hidden, path))
            .inspect_err(|_| drop(std::fs::remove_file(&hidden)))
    }
}

/// Returns a path as it is seen from a folder: beside it, above it, or whole.
fn seen_from(folder: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    match path.parent() {
        Some(own) if own == folder => name,
        Some(own) if folder.parent() == Some(own) => Path::new("..").join(name),
        _ => path.to_owned(),
    }
}

/// Returns a path that was written by [`seen_from`].
fn seen_here(folder: &Path, path: PathBuf) -> PathBuf {
    match path.strip_prefix("..") {
        Ok(name) => above(folder).join(name),
        Err(_) => folder.join(path),
    }
}

/// Returns the files of rows in a folder.
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == ENDING))
        .collect();
    files.sort();
    files
}

/// Returns a name in this folder for the rows of a run; the program's name is one that a file can have.
pub fn file_for(folder: &Path, name: &str, pid: u32) -> PathBuf {
    let first = folder.join(format!("skinflint.{name}.{pid}.{ENDING}"));
    let others = (2..10_000).map(|n| folder.join(format!("skinflint.{name}.{pid}.{n}.{ENDING}")));
    let mut all = std::iter::once(first.clone()).chain(others);
    all.find(|path| !path.exists()).unwrap_or(first)
}

/// Returns whether a trace is short enough to be one of a small process.
pub(crate) fn may_be_small(trace_bytes: u64) -> bool {
    trace_bytes <= SMALL_TRACE_BYTES
}

/// Returns which of these processes are small: whole, of few bytes, less than half of the largest (the program that
/// the run is about is none of them, as `keep` says), and without copies that are kept (W2). `sizes`: the most bytes
/// that each held, as far as that is known.
pub(crate) fn small(
    members: &[Member],
    sizes: &[Option<u64>],
    trace_bytes: &[u64],
    keep: &[PathBuf],
) -> Vec<usize> {
    let most = sizes.iter().flatten().copied().max();
    let is_small = |index: usize| {
        let member = &members[index];
        let bytes = sizes[index].unwrap_or(u64::MAX);
        let is_whole = member
            .ending
            .as_ref()
            .is_some_and(|end| end.lost_events == 0)
            && member.damage.is_empty()
            && member.lost.is_empty();
        is_whole
            && bytes < SMALL_BYTES
            && bytes < most.unwrap_or(0) / 2
            && may_be_small(trace_bytes[index])
            && !keep.iter().any(|path| path == Path::new(&member.trace))
    };
    let mut small: HashSet<usize> = (0..members.len())
        .filter(|&index| is_small(index))
        .collect();
    let uids = members.iter().map(|member| member.process.uid.as_str());
    let by_uid: HashMap<&str, usize> = uids.zip(0..).collect();
    let kept = (0..members.len()).filter(|index| !small.contains(index));
    for index in kept.collect::<Vec<_>>() {
        let mut at = index;
        while let Some(origin) = members[at].process.origin.as_ref()
            && origin.how == OriginKind::Fork
            && let Some(&from) = by_uid.get(origin.uid.as_str())
        {
            // A kept one has been followed from itself.
            if !small.remove(&from) {
                break;
            }
            at = from;
        }
    }
    let mut small: Vec<usize> = small.into_iter().collect();
    small.sort_unstable();
    small
}

#[cfg(test)]
mod tests {
    use skinflint_trace::{Ending, Origin, ProcessInfo};

    use super::*;

    fn member(uid: &str, mib: u64, from: Option<(OriginKind, &str)>) -> Member {
        Member {
            trace: format!("{uid}.sft"),
            process: ProcessInfo {
                uid: uid.into(),
                origin: from.map(|(how, uid)| Origin {
                    how,
                    uid: uid.into(),
                    pid: 1,
                    fork_ticket: 0,
                }),
                ..ProcessInfo::default()
            },
            ending: Some(Ending {
                max_rss_bytes: Some(mib << 20),
                ..Ending::default()
            }),
            ..Member::default()
        }
    }

    fn dropped(members: &[Member], keep: &str) -> Vec<String> {
        let bytes = vec![1000; members.len()];
        let sizes: Vec<_> = members.iter().map(Member::max_rss_bytes).collect();
        let small = small(members, &sizes, &bytes, &[PathBuf::from(keep)]);
        let uids = small
            .iter()
            .map(|&index| members[index].process.uid.clone());
        uids.collect()
    }

    #[test]
    fn small_is_below_half_of_the_largest_and_below_the_bound() {
        let all = [
            member("app", 40, None),
            member("sh", 4, None),
            member("worker", 17, None),
        ];
        assert_eq!(dropped(&all, "app.sft"), ["sh"]);
        // The program itself stays, however small it is.
        assert_eq!(dropped(&all, "sh.sft"), [""; 0]);
        // Where all are small, none is litter.
        let all = [
            member("app", 6, None),
            member("sh", 4, None),
            member("sed", 2, None),
        ];
        assert_eq!(dropped(&all, "app.sft"), ["sed"]);
    }

    #[test]
    fn what_a_kept_trace_inherits_from_stays() {
        let all = [
            member("app", 4, None),
            member("shell", 4, Some((OriginKind::Fork, "app"))),
            member("copy", 4, Some((OriginKind::Fork, "shell"))),
            member("large", 40, Some((OriginKind::Fork, "copy"))),
            member("sed", 4, Some((OriginKind::Fork, "shell"))),
            // A new program inherits nothing.
            member("sort", 40, Some((OriginKind::Exec, "sed"))),
        ];
        assert_eq!(dropped(&all, "none.sft"), ["sed"]);
    }

    #[test]
    fn what_is_not_whole_and_what_is_of_unknown_size_stay() {
        let mut all = vec![member("app", 40, None)];
        for uid in ["cut", "lost", "unknown", "damaged"] {
            all.push(member(uid, 4, None));
        }
        all[1].ending = None;
        all[2].ending.as_mut().expect("one").lost_events = 1;
        all[3].ending.as_mut().expect("one").max_rss_bytes = None;
        all[4].damage.push("a block".into());
        assert_eq!(dropped(&all, "app.sft"), [""; 0]);
        let two = [member("app", 40, None), member("sh", 4, None)];
        let sizes = [Some(40 << 20), Some(4 << 20)];
        let long = small(&two, &sizes, &[0, 2 << 20], &[]);
        assert!(long.is_empty(), "a long trace is no litter");
    }

    #[test]
    fn rows_come_back_and_a_damaged_line_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("skinflint-app-7");
        std::fs::create_dir(&inner).expect("a folder");
        let path = file_for(&inner, "app", 7);
        let mut rows = Rows::of(
            &folder.path().join("app.sft"),
            &inner.join("skinflint.w.8.sft"),
        );
        rows.dropped = ["a", "b"]
            .map(|uid| Row {
                member: member(uid, 4, None),
                counted: Counted::default(),
                at_unix_ns: Some(5),
            })
            .into();
        rows.write(&path).expect("written");
        let again = Rows::read(&path);
        assert_eq!(again.program, rows.program);
        assert_eq!(again.shown, rows.shown);
        assert_eq!(again.dropped.len(), 2);
        assert_eq!(
            again.dropped[1].member.process,
            rows.dropped[1].member.process
        );
        assert!(again.missing.is_empty());
        let text = std::fs::read_to_string(&path).expect("text");
        // A byte that is no text, in the first of two rows: the second is still read.
        let mut damaged = text.clone().into_bytes();
        let row = text.find('\n').expect("a head") + 20;
        damaged[row] = 0xff;
        std::fs::write(&path, damaged).expect("written");
        let read = Rows::read(&path);
        assert_eq!(read.dropped.len(), 1, "{:?}", read.missing);
        assert_eq!(read.dropped[0].member.process.uid, "b");
        assert!(
            read.missing[0].contains("1 row of small"),
            "{:?}",
            read.missing
        );
        std::fs::write(&path, &text[..text.len() - 20]).expect("cut");
        let cut = Rows::read(&path);
        assert_eq!(
            (cut.dropped.len(), cut.missing.len()),
            (1, 1),
            "{:?}",
            cut.missing
        );
        std::fs::write(&path, "{\"rows\":9,\"program\":\"\",\"shown\":\"\"}\n").expect("written");
        assert!(Rows::read(&path).missing[0].contains("version 9"));
        assert_ne!(
            file_for(&inner, "app", 7),
            path,
            "a second run of this name"
        );
    }
}
