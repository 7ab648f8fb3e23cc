//! Where the tables lie, and how files get there.
//!
//! ```text
//!   ROOT/profiles/day=2026-11-27/service=web/14-m-NAME.parquet     minutes of the hour 14, as they were written
//!                                            14-m.parquet          the same, packed: those of all writers in one file
//!                                            14-h.parquet          the same, merged
//!                                            d.parquet             a day, merged
//!   ROOT/profile_days/day=…/service=web/m-NAME.parquet              their sums (sums.rs); packed: d.parquet
//!   ROOT/stacks/service=web/NAME.parquet     ROOT/machines/NAME.parquet     ROOT/_work/… (not yet, or no longer, a file)
//! ```
//!
//! F1  A file appears whole: it is written in `_work` and renamed.
//! F2  A file of the same name is replaced, and one that a merged file has taken in is not written again: what is read
//!     in twice counts once, if its name comes from its content.
//! F3  Rows of a file are sorted as [`Sorted`] says, so that an engine skips row groups by the least and the largest
//!     stack.
//! F4  One writer at a time: [`Root::lock`].
//!
//! F5  What is added to `profiles` is added to `profile_days`, after it, under the same name: if one is written and the
//!     other is not, the next attempt under that name, or the next `retain`, writes it (sum_files.rs).
//!
//! Not here: merging (merge.rs), how rows are added up (sums.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::rows::{Book, Finding, Process, Profile, ProfileDay};
use crate::schema::{Row, Split};
use crate::{clock, sums};

/// Rows of a row group: what is skipped or read as one.
const GROUP: usize = 128 * 1024;
/// What zstd is asked for; more saves a few percent and costs much.
const LEVEL: i32 = 3;

/// The folder of all tables.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

/// A folder of tables, for its only writer (F4).
#[derive(Debug)]
pub struct Locked {
    root: Root,
    _lock: File,
}

impl Deref for Locked {
    type Target = Root;

    fn deref(&self) -> &Root {
        &self.root
    }
}

/// The file of a day.
pub const DAY_FILE: &str = "d.parquet";

/// The entry of a merged file that lists what is in it.
const NAMES: &str = "skinflint.merged";

/// What rows of tables by day have in common.
pub trait Timed: Row {
    /// Their first second.
    fn t(&self) -> i64;

    /// What they are sorted by in a file (F3).
    fn order(&self) -> (i64, i64, i64, &str);

    /// Their sums by the first second of the day, where there is a table of such (F5).
    fn days(rows: &[Self]) -> BTreeMap<i64, Vec<ProfileDay>>;
}

macro_rules! timed {
    ($($row:ident: $first:ident, $text:ident, $days:expr;)*) => {
        $(impl Timed for $row {
            fn t(&self) -> i64 {
                self.t
            }

            fn order(&self) -> (i64, i64, i64, &str) {
                (self.$first, self.process, self.t, &self.$text)
            }

            fn days(rows: &[Self]) -> BTreeMap<i64, Vec<ProfileDay>> {
                let days: fn(&[Self]) -> BTreeMap<i64, Vec<ProfileDay>> = $days;
                days(rows)
            }
        })*
    };
}
timed! {
    Profile: stack, build, sums::of_days;
    Process: process, build, |_| BTreeMap::new();
    Book: process, part, |_| BTreeMap::new();
    Finding: stack, kind, |_| BTreeMap::new();
}

impl Root {
    /// Opens a folder of tables, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(folder: &Path) -> Result<Self> {
        let root = Root(folder.to_owned());
        for table in crate::rows::tables() {
            fs::create_dir_all(root.table(table.name))
                .with_context(|| folder.display().to_string())?;
        }
        fs::create_dir_all(root.work())?;
        Ok(root)
    }

    /// Opens a folder of tables.
    ///
    /// # Errors
    /// If it has none.
    pub fn open(folder: &Path) -> Result<Self> {
        let root = Root(folder.to_owned());
        if !root.table("profiles").is_dir() {
            let folder = folder.display();
            bail!("{folder}: no tables of a fleet; `fleet generate` and `fleet ingest` make them");
        }
        let has_days =
            |table: &str| Ok::<_, anyhow::Error>(!folders(&root.table(table), "day=")?.is_empty());
        if has_days("profiles")?
            && !(root.table("profile_days").is_dir() && has_days("profile_days")?)
        {
            let folder = folder.display();
            bail!(
                "{folder}: tables of an older version, without sums of days; `skinflint-fleet retain` adds them up"
            );
        }
        Ok(root)
    }

    /// Waits until no other process writes, and keeps others waiting.
    ///
    /// # Errors
    /// If the file of the lock cannot be made.
    pub fn lock(self) -> Result<Locked> {
        let path = self.work().join("lock");
        let said = || path.display().to_string();
        let lock = File::create(&path).with_context(said)?;
        lock.lock().with_context(said)?;
        Ok(Locked {
            root: self,
            _lock: lock,
        })
    }

    /// Returns the folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the folder of a table.
    pub fn table(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the folder of what is not yet a file of a table (F1).
    pub fn work(&self) -> PathBuf {
        self.0.join("_work")
    }

    /// Returns the folder of a service's rows of a day.
    pub fn partition(&self, table: &str, day: &str, service: &str) -> PathBuf {
        self.table(table)
            .join(format!("day={day}"))
            .join(format!("service={service}"))
    }
}

impl Locked {
    /// Adds rows of a service, a file for each hour of each day, and their sums (F5).
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn add<R: Timed>(&self, service: &str, name: &str, rows: Vec<R>) -> Result<()> {
        let days = R::days(&rows);
        let mut hours: BTreeMap<i64, Vec<R>> = BTreeMap::new();
        for row in rows {
            hours
                .entry(row.t().div_euclid(clock::HOUR))
                .or_default()
                .push(row);
        }
        for (hour, rows) in hours {
            let t = hour * clock::HOUR;
            let folder = self.partition(R::TABLE.name, &clock::day(t), service);
            let hour = format!("{:02}", clock::hour(t));
            let file = format!("{hour}-m-{name}.parquet");
            let merged = [
                &format!("{hour}-m.parquet"),
                &format!("{hour}-h.parquet"),
                DAY_FILE,
            ];
            if !is_taken_in(&folder, &file, &merged)? {
                self.write(&folder.join(file), &sorted(rows))?;
            }
        }
        for (t, rows) in days {
            let folder = self.partition(ProfileDay::TABLE.name, &clock::day(t), service);
            let file = format!("m-{name}.parquet");
            if !is_taken_in(&folder, &file, &[DAY_FILE])? {
                self.write(&folder.join(file), &rows)?;
            }
        }
        Ok(())
    }

    /// Adds rows of a table that is not split by day.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add_lasting<R: Row>(&self, service: &str, name: &str, rows: &[R]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let table = self.table(R::TABLE.name);
        let folder = match R::TABLE.split {
            Split::No => table,
            _ => table.join(format!("service={service}")),
        };
        self.write(&folder.join(format!("{name}.parquet")), rows)
    }

    /// Writes one file (F1).
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write<R: Row>(&self, path: &Path, rows: &[R]) -> Result<()> {
        let said = || format!("{}: cannot be written", path.display());
        let folder = path.parent().unwrap_or(self.folder());
        fs::create_dir_all(folder).with_context(said)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unfinished = self.work().join(format!("{}-{name}", std::process::id()));
        write_file(&unfinished, rows).with_context(said)?;
        fs::rename(&unfinished, path).with_context(said)
    }
}

/// Whether a file is in one of those that others were merged to (F2).
fn is_taken_in(folder: &Path, file: &str, merged: &[&str]) -> Result<bool> {
    for name in merged {
        let path = folder.join(name);
        if path.exists() && names_in(&path)?.contains(file) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sorts rows as a file has them (F3).
pub fn sorted<R: Timed>(mut rows: Vec<R>) -> Vec<R> {
    rows.sort_by(|a, b| a.order().cmp(&b.order()));
    rows
}

/// Writes a file where it is told to.
fn write_file<R: Row>(path: &Path, rows: &[R]) -> Result<()> {
    write_merged(path, rows, &BTreeSet::new())
}

/// Writes a file that others were merged to, with their names.
///
/// # Errors
/// If it cannot be written.
pub fn write_merged<R: Row>(path: &Path, rows: &[R], names: &BTreeSet<String>) -> Result<()> {
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let names = (!all.is_empty()).then(|| vec![KeyValue::new(NAMES.to_owned(), all.join("\n"))]);
    let settings = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
        .set_max_row_group_row_count(Some(GROUP))
        .set_key_value_metadata(names)
        .set_created_by(concat!("skinflint ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let file = File::create(path)?;
    let mut writer = ArrowWriter::try_new(file, R::TABLE.schema(), Some(settings))?;
    for some in rows.chunks(GROUP) {
        writer.write(&R::batch(some))?;
    }
    writer.into_inner()?.sync_all()?;
    Ok(())
}

/// Reads all rows of a file.
///
/// # Errors
/// If it is no Parquet file, is damaged, or has not the columns of the table.
pub fn read_file<R: Row>(path: &Path) -> Result<Vec<R>> {
    let read = || -> Result<Vec<R>> {
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.build()?;
        let mut rows = Vec::new();
        for batch in reader {
            rows.extend(R::read(&batch?)?);
        }
        Ok(rows)
    };
    read().with_context(|| format!("{}: cannot be read", path.display()))
}

/// Returns the names of the files that were merged to this one; its own, if it is none of them.
///
/// # Errors
/// If it is no Parquet file.
pub fn names_in(path: &Path) -> Result<BTreeSet<String>> {
    let said = || format!("{}: cannot be read", path.display());
    let reader =
        SerializedFileReader::new(File::open(path).with_context(said)?).with_context(said)?;
    let entries = reader.metadata().file_metadata().key_value_metadata();
    let listed = entries
        .into_iter()
        .flatten()
        .find(|entry| entry.key == NAMES);
    Ok(match listed.and_then(|entry| entry.value.as_ref()) {
        Some(names) => names.lines().map(str::to_owned).collect(),
        None => BTreeSet::from([path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()]),
    })
}

/// Makes an empty folder that is to take another's place.
pub(crate) fn begin_successor(root: &Locked) -> Result<PathBuf> {
    let new = root.work().join(format!("merge-{}", std::process::id()));
    let _ = fs::remove_dir_all(&new);
    fs::create_dir_all(&new).with_context(|| new.display().to_string())?;
    Ok(new)
}

/// Puts a folder in another's place in one step: no reader sees both or neither.
pub(crate) fn succeed(new: &Path, folder: &Path) -> Result<()> {
    let said = || format!("{}: cannot be exchanged", folder.display());
    if !folder.exists() {
        fs::create_dir_all(folder.parent().unwrap_or(folder)).with_context(said)?;
        return fs::rename(new, folder).with_context(said);
    }
    renameat_with(CWD, new, CWD, folder, RenameFlags::EXCHANGE).with_context(said)?;
    fs::remove_dir_all(new).with_context(|| new.display().to_string())
}

/// Returns the files below a folder that are of a table, sorted by path.
///
/// # Errors
/// If a folder cannot be read.
pub fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| folder.display().to_string()),
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "parquet") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the folders in a folder whose names begin so, sorted.
///
/// # Errors
/// If the folder cannot be read.
pub fn folders(of: &Path, beginning: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(of).with_context(|| of.display().to_string())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(beginning) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Makes a name fit to be a folder's, in every engine: letters, digits, `.`, `_` and `-`.
pub fn as_folder(service: &str) -> String {
    let fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = service
        .chars()
        .map(|c| if fit(c) { c } else { '_' })
        .collect();
    match name.trim_matches('.') {
        "" => "_".to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Build;

    #[test]
    fn rows_go_to_the_folder_of_their_day_and_the_file_of_their_hour() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::create(folder.path()).unwrap().lock().unwrap();
        let row = |t, stack| Profile {
            t,
            stack,
            minutes: 1,
            ..Profile::default()
        };
        let rows = vec![row(3540, 9), row(3600, 2), row(3480, 1), row(clock::DAY, 7)];
        root.add("web", "a", rows.clone()).unwrap();
        let files = files_below(&root.table("profiles")).unwrap();
        let named = |name: &str| root.table("profiles").join(name);
        let expected = [
            "day=1970-01-01/service=web/00-m-a.parquet",
            "day=1970-01-01/service=web/01-m-a.parquet",
            "day=1970-01-02/service=web/00-m-a.parquet",
        ];
        assert_eq!(files, expected.map(named));
        assert_eq!(
            read_file::<Profile>(&files[0]).unwrap(),
            [rows[2].clone(), rows[0].clone()]
        );
        // Once more: the same files (F2), and nothing is left in the folder of what is unfinished (F1).
        root.add("web", "a", rows).unwrap();
        assert_eq!(files_below(&root.table("profiles")).unwrap(), files);
        assert_eq!(
            fs::read_dir(root.work()).unwrap().count(),
            1,
            "the lock alone"
        );
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Root::open(folder.path()).is_err());
        let path = folder.path().join("x.parquet");
        fs::write(&path, "PAR1 no").unwrap();
        let error = format!("{:#}", read_file::<Build>(&path).unwrap_err());
        assert!(error.contains("x.parquet: cannot be read"), "{error}");
        write_file(&path, &[Build::default()]).unwrap();
        let error = format!("{:#}", read_file::<Profile>(&path).unwrap_err());
        assert!(error.contains("no column `t`"), "{error}");
    }

    #[test]
    fn names_of_services_are_fit_for_folders() {
        assert_eq!(as_folder("web-1.2_b"), "web-1.2_b");
        assert_eq!(as_folder("a/b=c d"), "a_b_c_d");
        assert_eq!(as_folder(".."), "_");
    }
}
