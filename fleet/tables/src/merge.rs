//! Retention: minutes are packed and become hours, hours become days, days go.
//!
//! ```text
//!   14-m-a 14-m-b 14-m-c ──► 14-m ──► 14-h       00-h … 23-h ──► d       d ──► nothing
//!       the hour has ended     two days after       a month after       a year after        (Keep says when)
//! ```
//!
//! M1  Sums are the same before and after, to the byte: what flowed and byte-minutes are added, the most is the largest,
//!     and what is at the end is that of the latest row.
//! M2  A folder is exchanged for its successor in one step, so no reader sees rows twice or not at all; one writer at a
//!     time has the lock.
//! M3  A merged file lists the names of the files in it, and such a file is not added again (files.F2).
//! M4  An hour is merged in memory, and so is a day of hours: at most a day of one service and one table.
//! M5  Packing changes no row: those of all files of an ended hour are in one, sorted. A question's time goes by files as
//!     well as by rows.
//!
//! Not here: sums of days (sum_files.rs); stacks and frames, which stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::clock::{DAY, HOUR};
use crate::files::{
    DAY_FILE, Locked, Timed, begin_successor, folders, names_in, read_file, sorted, succeed,
    write_merged,
};
use crate::rows::{Book, Finding, Process, Profile};
use crate::{clock, sum_files};

/// For how long rows are kept, in seconds after the hour or day that they are of.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// Rows of minutes.
    pub minutes: i64,
    /// Rows of hours.
    pub hours: i64,
    /// Rows of days.
    pub days: i64,
}

/// How names of files of packed minutes end, behind the hour (M5).
const PACKED: &str = "-m.parquet";

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Files that were merged into others.
    pub merged: u64,
    /// Their rows.
    pub rows: u64,
    /// Rows that these became.
    pub became: u64,
    /// Days of a service and table that were dropped.
    pub dropped: u64,
    /// Files of minutes or of sums that became one with others, each row as it was or added to its like.
    pub packed: u64,
}

/// A row that can take in a later one of the same kind (M1).
trait Merge: Timed {
    /// What rows must have in common to become one, beside the hour or day.
    fn key(&self) -> (&str, i64, i64, &str, &str);

    /// Takes in a row that is later.
    fn take_in(&mut self, later: Self);
}

/// Adds the named fields of a later row, takes the larger of others, and the latest of the rest.
macro_rules! merge {
    ($row:ident by $key:expr; add $($add:ident)*; most $($most:ident)*; last $($last:ident)*) => {
        impl Merge for $row {
            fn key(&self) -> (&str, i64, i64, &str, &str) {
                let key: fn(&Self) -> (&str, i64, i64, &str, &str) = $key;
                key(self)
            }

            fn take_in(&mut self, later: Self) {
                self.minutes += later.minutes;
                $(self.$add += later.$add;)*
                $(self.$most = self.$most.max(later.$most);)*
                $(self.$last = later.$last;)*
            }
        }
    };
}
merge! { Profile by |row| (&row.host, row.process, row.stack, &row.build, "");
add samples alloc_bytes alloc_blocks born_bytes died_bytes change_var live_byte_min live_var_min slop_byte_min
    pinned_byte_min;
most live_max_bytes; last live_bytes live_blocks }
merge! { Process by |row| (&row.host, row.process, 0, &row.build, &row.program);
add resident_byte_min lost; most resident_max_bytes; last resident_bytes sample_bytes }
merge! { Book by |row| (&row.host, row.process, 0, &row.build, &row.part);
add byte_min; most; last bytes }
merge! { Finding by |row| (&row.host, row.process, row.stack, &row.build, &row.kind);
add now_byte_min saved_byte_min; most; last title change confidence }

/// Merges rows of one hour or day.
fn merged<R: Merge>(mut rows: Vec<R>) -> Vec<R> {
    rows.sort_by(|a, b| (a.key(), a.t()).cmp(&(b.key(), b.t())));
    let mut merged: Vec<R> = Vec::new();
    for row in rows {
        match merged.last_mut().filter(|last| last.key() == row.key()) {
            Some(last) => last.take_in(row),
            None => merged.push(row),
        }
    }
    sorted(merged)
}

/// Merges and drops what is due at a time.
///
/// # Errors
/// If a file cannot be read or written; what was done until then stays done.
pub fn retain(root: &Locked, keep: Keep, now: i64) -> Result<Done> {
    let mut done = Done::default();
    of_table::<Profile>(root, keep, now, &mut done)?;
    of_table::<Process>(root, keep, now, &mut done)?;
    of_table::<Book>(root, keep, now, &mut done)?;
    of_table::<Finding>(root, keep, now, &mut done)?;
    let is_over = |start: i64| start + DAY + keep.days <= now;
    // Names are compared as long as rows of minutes come in.
    let is_recent = |start: i64| start + 2 * DAY + keep.minutes > now;
    let (packed, dropped) = sum_files::keep(root, &is_over, &is_recent)?;
    done.packed += packed;
    done.dropped += dropped;
    Ok(done)
}

fn of_table<R: Merge>(root: &Locked, keep: Keep, now: i64, done: &mut Done) -> Result<()> {
    for day_folder in folders(&root.table(R::TABLE.name), "day=")? {
        let name = day_folder.file_name().unwrap_or_default().to_string_lossy();
        let start = clock::start_of(name.trim_start_matches("day="))?;
        let services = folders(&day_folder, "service=")?;
        if start + DAY + keep.days <= now {
            fs::remove_dir_all(&day_folder).with_context(|| day_folder.display().to_string())?;
            done.dropped += services.len() as u64;
            continue;
        }
        for service in services {
            of_service::<R>(root, &service, start, (keep, now), done)?;
        }
    }
    Ok(())
}

/// Merges what is due in one folder, and exchanges it (M2).
fn of_service<R: Merge>(
    root: &Locked,
    folder: &Path,
    start: i64,
    (keep, now): (Keep, i64),
    done: &mut Done,
) -> Result<()> {
    let mut due: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut stay = Vec::new();
    for file in crate::files::files_below(folder)? {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let hour: i64 = name
            .get(..2)
            .and_then(|hour| hour.parse().ok())
            .unwrap_or(0);
        let end = start + (hour + 1) * HOUR;
        let becomes = if start + DAY + keep.hours <= now {
            Some(DAY_FILE.to_owned())
        } else if name != DAY_FILE && end + keep.minutes <= now {
            Some(format!("{hour:02}-h.parquet"))
        } else {
            let is_minutes = name.get(2..4) == Some("-m") && end <= now;
            is_minutes.then(|| format!("{hour:02}{PACKED}"))
        };
        match becomes {
            Some(name) => due.entry(name).or_default().push(file),
            None => stay.push(file),
        }
    }
    // What was merged already, alone, is done; to pack takes two.
    due.retain(|name, files| {
        let is_done = files.len() == 1 && (files[0].ends_with(name) || name.ends_with(PACKED));
        is_done.then(|| stay.append(files));
        !is_done
    });
    if due.is_empty() {
        return Ok(());
    }
    let new = begin_successor(root)?;
    for file in &stay {
        fs::hard_link(file, new.join(file.file_name().unwrap_or_default()))?;
    }
    for (name, files) in &due {
        let (mut rows, mut names) = (Vec::<R>::new(), BTreeSet::new());
        for file in files {
            rows.extend(read_file(file)?);
            names.extend(names_in(file)?);
        }
        if name.ends_with(PACKED) {
            done.packed += files.len() as u64;
            rows = sorted(rows);
        } else {
            done.merged += files.len() as u64;
            done.rows += rows.len() as u64;
            rows = merged(rows);
            done.became += rows.len() as u64;
        }
        write_merged(&new.join(name), &rows, &names)?;
    }
    succeed(&new, folder)
}
