//! The files of sums of days: packed to one a day and service, and made up for where they are missing.
//!
//! ```text
//!   profile_days/…/m-a m-b m-c ──► d          names of profiles/… that are in none of them ──► the day anew, from profiles
//! ```
//!
//! V1  Sums are those of `profiles`, to the byte, at every moment at which no writer is at work (files.F5).
//! V2  A file of sums has the name of what was added. If a day of `profiles` has a name that its sums do not have (a writer
//!     was ended in between, or the tables are older than the sums), the day is added up anew from `profiles`.
//! V3  A day is added up file by file: memory goes by its sums, not by its rows.
//!
//! Not here: how rows are added up (sums.rs), when (merge.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::clock;
use crate::files::{
    DAY_FILE, Locked, begin_successor, files_below, folders, names_in, read_file, succeed,
    write_merged,
};
use crate::rows::{Profile, ProfileDay};
use crate::schema::Row;
use crate::sums::of_days;

/// Sums by stack, process and build: in the order of a file.
type Sums = BTreeMap<(i64, i64, String), ProfileDay>;

/// Packs the sums of each day and service to one file, adds up what has none (V2) on days that are recent, and drops days
/// that are over, both told by a day's first second. Returns how many files were packed, and days dropped.
pub(crate) fn keep(
    root: &Locked,
    is_over: &dyn Fn(i64) -> bool,
    is_recent: &dyn Fn(i64) -> bool,
) -> Result<(u64, u64)> {
    let (mut packed, mut dropped) = (0, 0);
    for day_folder in folders(&root.table(ProfileDay::TABLE.name), "day=")? {
        if is_over(start_of(&day_folder)?) {
            dropped += folders(&day_folder, "service=")?.len() as u64;
            fs::remove_dir_all(&day_folder).with_context(|| day_folder.display().to_string())?;
        }
    }
    for day_folder in folders(&root.table(Profile::TABLE.name), "day=")? {
        let is_recent = is_recent(start_of(&day_folder)?);
        for profiles in folders(&day_folder, "service=")? {
            let below = profiles.strip_prefix(root.table(Profile::TABLE.name))?;
            let sums = root.table(ProfileDay::TABLE.name).join(below);
            packed += of_service(root, &profiles, &sums, is_recent)?;
        }
    }
    Ok((packed, dropped))
}

/// Packs one folder of sums, or makes it up; returns how many files were packed.
fn of_service(root: &Locked, profiles: &Path, sums: &Path, is_recent: bool) -> Result<u64> {
    let files = files_below(sums)?;
    let whole = !files.is_empty() && (!is_recent || names(profiles)?.is_subset(&names(sums)?));
    if whole && files.len() == 1 {
        return Ok(0);
    }
    let (rows, names) = match whole {
        true => (folded(&files, read_file::<ProfileDay>)?, names(sums)?),
        false => {
            let of_file = |file: &Path| -> Result<Vec<ProfileDay>> {
                let days = of_days(&read_file::<Profile>(file)?);
                Ok(days.into_values().flatten().collect())
            };
            (folded(&files_below(profiles)?, of_file)?, names(profiles)?)
        }
    };
    let names: BTreeSet<String> = names
        .iter()
        .map(|name| format!("m-{name}.parquet"))
        .collect();
    let new = begin_successor(root)?;
    let rows: Vec<ProfileDay> = rows.into_values().collect();
    write_merged(&new.join(DAY_FILE), &rows, &names)?;
    succeed(&new, sums)?;
    Ok(files.len() as u64)
}

/// Adds up what files have (V3).
fn folded(files: &[PathBuf], read: impl Fn(&Path) -> Result<Vec<ProfileDay>>) -> Result<Sums> {
    let mut sums = Sums::new();
    for file in files {
        for row in read(file)? {
            let key = (row.stack, row.process, row.build.clone());
            sums.entry(key)
                .and_modify(|sum| sum.add(&row))
                .or_insert(row);
        }
    }
    Ok(sums)
}

/// The names under which rows of a folder were added: `14-m-NAME.parquet` and `m-NAME.parquet` have one.
fn names(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files_below(folder)? {
        for name in names_in(&file)? {
            let name = name.trim_end_matches(".parquet");
            let behind = name.split_once("m-").map_or(name, |(_, behind)| behind);
            names.insert(behind.to_owned());
        }
    }
    Ok(names)
}

fn start_of(day_folder: &Path) -> Result<i64> {
    let name = day_folder.file_name().unwrap_or_default().to_string_lossy();
    clock::start_of(name.trim_start_matches("day="))
}
