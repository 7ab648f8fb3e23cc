//! Makes the list of libraries that the loader is to preload.
//!
//! ```text
//!   to record:        recorder : --preload … : what was in LD_PRELOAD
//!   on our allocator: (recorder) : allocator : what was in LD_PRELOAD
//! ```
//!
//! L1  `LD_PRELOAD` is kept. Our allocator goes in front, so that it wins over other allocators; only the recorder stays
//!     before it, or it would see no call.
//! L2  What `--preload` names exists, if it is a path: the loader would leave it out with one line among the program's.
//!
//! Not here: where our libraries are (installed.rs).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::carried;
use crate::installed::{self, ALLOCATOR, RECORDER};
use crate::preflight;

/// Returns a path as `LD_PRELOAD` can name it.
fn preloadable(path: &Path) -> Result<&OsStr> {
    let shown = path.to_string_lossy();
    if shown.contains(':') || shown.contains(' ') {
        bail!("{shown}: LD_PRELOAD cannot name a path with spaces or colons; move it elsewhere");
    }
    Ok(path.as_os_str())
}

/// Returns the list with which a program is recorded: the recorder, what `--preload` names, what is preloaded already.
///
/// # Errors
/// If `LD_PRELOAD` cannot name the recorder, or what is named does not exist (L2).
pub fn to_record(recorder: &Path, preload: &[OsString]) -> Result<OsString> {
    let mut list = preloadable(recorder)?.to_owned();
    let inherited = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty());
    for library in preload {
        list.push(":");
        list.push(asked_for(library)?);
    }
    if let Some(inherited) = inherited {
        list.push(":");
        list.push(inherited);
    }
    Ok(list)
}

/// Resolves a library of `--preload`. The loader ignores what it does not find, and the program would run without it:
/// so a path must exist, and our own allocator's name alone is enough for it. The loader looks other names up.
fn asked_for(library: &OsStr) -> Result<OsString> {
    let path = Path::new(library);
    if path.as_os_str() == ALLOCATOR {
        let own = installed::allocator()?;
        return Ok(preloadable(&own)?.to_owned());
    }
    let many = library.to_string_lossy().contains([':', ' ']);
    if !many && library.as_encoded_bytes().contains(&b'/') {
        std::fs::metadata(path)
            .with_context(|| format!("--preload {}: it cannot be loaded", path.display()))?;
    }
    Ok(library.to_owned())
}

/// Returns the list with which a program runs on our allocator: on the library that is named, or on the installed one.
///
/// # Errors
/// If there is no such library, if the loader would ignore it, or if `LD_PRELOAD` cannot name it.
pub fn on_our_allocator(named: Option<&Path>) -> Result<OsString> {
    let library = library(named)?;
    let inherited = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    Ok(before_others(preloadable(&library)?, &inherited))
}

/// Returns the library that `--lib` names, or ours.
fn library(named: Option<&Path>) -> Result<PathBuf> {
    let library = match named {
        Some(path) => std::fs::canonicalize(path)
            .with_context(|| format!("{}: named by --lib, but not there", path.display()))?,
        None => installed::allocator()?,
    };
    preflight::check_library(&library)?;
    Ok(library)
}

/// Returns a list that has our allocator (L1). The loader takes colons and spaces for separators.
fn before_others(library: &OsStr, inherited: &OsStr) -> OsString {
    let entries: Vec<&[u8]> = inherited
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .filter(|entry| !entry.is_empty() && *entry != library.as_bytes())
        .collect();
    let is_recorder = |entry: &&&[u8]| {
        let path = Path::new(OsStr::from_bytes(entry));
        path.file_name() == Some(OsStr::new(RECORDER)) || carried::is_in_memory(path, RECORDER)
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
        let list = before_others(OsStr::new("/l/libskinflint.so"), OsStr::new(inherited));
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

    #[test]
    fn a_preload_path_with_spaces_is_refused() {
        assert!(to_record(Path::new("/a b/x.so"), &[]).is_err());
        let missing = to_record(Path::new("/a/x.so"), &["/none/b.so".into()]);
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .contains("--preload /none/b.so")
        );
        let list = to_record(Path::new("/a/x.so"), &["libjemalloc.so.2".into()]).expect("fine");
        assert!(
            list.to_string_lossy()
                .starts_with("/a/x.so:libjemalloc.so.2")
        );
    }
}
