//! `skinflint exec`: a program on our allocator, in our place.
//!
//! ```text
//!   skinflint exec -- CMD ── checks ──► LD_PRELOAD=libskinflint.so:… ── execve ──► CMD, same process
//! ```
//!
//! E1  What the loader would ignore in silence is refused beforehand: a static, foreign or
//!     set-user-id program, a file that is no library.
//! E2  The program replaces us: no process of ours stays behind that could swallow a signal or a status.
//! E3  `LD_PRELOAD` is kept. Our library goes in front, so that it wins over other allocators; only
//!     the recorder stays before it, or it would see no call.
//!
//! Not here: recording (launch.rs).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::args::ExecArgs;
use crate::launch::{RECORDER, find_library, preloadable};
use crate::preflight;

/// Name of the allocator's library.
const ALLOCATOR: &str = "libskinflint.so";

/// Becomes the program. Returns only if that fails.
///
/// # Errors
/// Whatever keeps the program from being started on our allocator.
pub fn exec(args: &ExecArgs) -> Result<u8> {
    let Some(program) = args.command.first() else {
        bail!("no program given; as in: skinflint exec -- ls -l");
    };
    preflight::check(program, &preflight::EXEC)?;
    let library = library(args.lib.as_deref())?;
    let inherited = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let mut command = Command::new(program);
    command.args(&args.command[1..]).env(
        "LD_PRELOAD",
        preload_list(preloadable(&library)?, &inherited),
    );
    if args.stats {
        command.env(skinflint_base::env::STATS.name(), "1");
    }
    if args.memory {
        command.env(skinflint_base::env::MEMORY.name(), "on");
    }
    let error = command.exec();
    Err(error).with_context(|| format!("{}: cannot be started", program.to_string_lossy()))
}

/// Returns the library that `--lib` names, or ours.
fn library(named: Option<&Path>) -> Result<PathBuf> {
    let library = match named {
        Some(path) => std::fs::canonicalize(path)
            .with_context(|| format!("{}: named by --lib, but not there", path.display()))?,
        None => find_library(ALLOCATOR, skinflint_base::env::ALLOCATOR.name())?,
    };
    preflight::check_library(&library)?;
    Ok(library)
}

/// Returns the list of libraries to preload (E3). The loader takes colons and spaces for separators.
fn preload_list(library: &OsStr, inherited: &OsStr) -> OsString {
    let entries: Vec<&[u8]> = inherited
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|entry| !entry.is_empty() && *entry != library.as_bytes())
        .collect();
    let is_recorder = |entry: &&&[u8]| {
        Path::new(OsStr::from_bytes(entry)).file_name() == Some(OsStr::new(RECORDER))
    };
    let (before, after): (Vec<&[u8]>, Vec<&[u8]>) =
        entries.iter().partition(|entry| is_recorder(entry));
    let mut list = before;
    list.push(library.as_bytes());
    list.extend(after);
    OsStr::from_bytes(&list.join(&b':')).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(inherited: &str) -> String {
        let list = preload_list(OsStr::new("/l/libskinflint.so"), OsStr::new(inherited));
        list.to_string_lossy().into_owned()
    }

    #[test]
    fn what_was_preloaded_stays_and_ours_comes_first() {
        assert_eq!(list(""), "/l/libskinflint.so");
        assert_eq!(list("/a.so:/b.so"), "/l/libskinflint.so:/a.so:/b.so");
        assert_eq!(list(" /a.so  /b.so:"), "/l/libskinflint.so:/a.so:/b.so");
    }

    #[test]
    fn ours_is_named_once() {
        assert_eq!(list("/a.so:/l/libskinflint.so"), "/l/libskinflint.so:/a.so");
    }

    #[test]
    fn the_recorder_stays_in_front() {
        assert_eq!(
            list("/a.so:/r/libskinflint_record.so"),
            "/r/libskinflint_record.so:/l/libskinflint.so:/a.so"
        );
    }
}
