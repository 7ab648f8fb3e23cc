//! The files of traces: a folder that can be written, a file that may be replaced.
//!
//! ```text
//!   --output FILE, --dir FOLDER ─► folder (written to once, to see) ─► absolute paths
//! ```
//!
//! F1  What cannot be written is refused before the program is started or stopped.
//! F2  Two recordings do not write to one file: the second is refused. What tells them is a lock on a hidden file
//!     beside the trace, which the kernel lets go of however a recording ends.
//!
//! Not here: the names of traces without one (`collect`).

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Returns the folder for traces: the one named, which is made if it is not there, or that of the file, or the current
/// one.
///
/// # Errors
/// If nothing can be written there.
pub(crate) fn folder_for(output: Option<&Path>, dir: Option<&Path>) -> Result<PathBuf> {
    let beside = output
        .and_then(|file| file.parent())
        .filter(|p| !p.as_os_str().is_empty());
    let folder = match (dir, beside) {
        (Some(folder), _) => folder.to_owned(),
        (None, Some(folder)) => folder.to_owned(),
        (None, None) => std::env::current_dir().context("the current folder cannot be found")?,
    };
    let option = if dir.is_none() && output.is_some() {
        "--output"
    } else {
        "--dir"
    };
    if dir.is_some() {
        // What is wrong with it, the file below will say.
        let _ = std::fs::create_dir_all(&folder);
    }
    let probe = folder.join(format!(".skinflint-{}", std::process::id()));
    std::fs::write(&probe, b"").with_context(|| {
        format!(
            "{}: traces cannot be written here; choose another folder with {option}",
            folder.display()
        )
    })?;
    let _ = std::fs::remove_file(&probe);
    std::path::absolute(&folder).context("the folder's path")
}

/// Checks the file that `--output` names: a new one, or one that may be replaced. It must not be a device or a
/// folder: the trace is renamed to this name.
pub(crate) fn trace_file(path: &Path) -> Result<PathBuf> {
    if let Ok(meta) = std::fs::symlink_metadata(path)
        && !meta.is_file()
    {
        bail!(
            "{}: is there and is no plain file; name a file of its own with --output",
            path.display()
        );
    }
    Ok(std::path::absolute(path)?)
}

/// Returns the error of a collector that cannot start, with what to do next.
pub(crate) fn cannot_start(error: std::io::Error) -> anyhow::Error {
    let next = match error.raw_os_error() {
        Some(libc::EFBIG) => {
            "; raise the limit of file size (ulimit -f): shared memory counts as a file"
        }
        Some(libc::ENOMEM | libc::EAGAIN) => {
            "; raise the limits of address space (ulimit -v) and of threads (ulimit -u)"
        }
        Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "; make room in the folder for temporary files (TMPDIR)"
        }
        _ => "",
    };
    anyhow::anyhow!("the collector cannot start: {error}{next}")
}

/// Attempts to lock a file that others remove meanwhile.
const TRIES: u32 = 8;

/// A trace file that no other recording writes to as long as this lives (F2).
pub(crate) struct Held {
    lock: PathBuf,
    _locked: File,
}

impl Held {
    /// Takes the file, or learns that another recording has it.
    ///
    /// # Errors
    /// If another recording writes to it. A file system without locks is none: the recording then goes on without one.
    pub(crate) fn take(trace: &Path) -> Result<Option<Held>> {
        let mut name = std::ffi::OsString::from(".");
        name.push(trace.file_name().unwrap_or_default());
        name.push(".lock");
        let lock = trace.with_file_name(name);
        for _ in 0..TRIES {
            let opened = OpenOptions::new().create(true).append(true).open(&lock);
            let Ok(locked) = opened else {
                return Ok(None);
            };
            match locked.try_lock() {
                // The recording that had it may have removed it since it was opened.
                Ok(()) if is_at(&locked, &lock) => {
                    return Ok(Some(Held {
                        lock,
                        _locked: locked,
                    }));
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(
                    "{}: another recording writes to this file; name another one with --output",
                    trace.display()
                ),
                Err(TryLockError::Error(_)) => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Reports whether an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let own = file.metadata().map(|meta| (meta.dev(), meta.ino()));
    let there = std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    matches!((own, there), (Ok(own), Ok(there)) if own == there)
}

impl Drop for Held {
    fn drop(&mut self) {
        // While it is locked: another recording that opens it now makes a new one, or finds this one locked.
        let _ = std::fs::remove_file(&self.lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_one_recordings() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().join("app.sft");
        let held = Held::take(&trace).expect("free").expect("locks");
        let refused = Held::take(&trace).err().expect("it is held").to_string();
        assert!(refused.contains("another recording"), "{refused}");
        assert!(refused.contains("--output"), "{refused}");
        drop(held);
        assert!(Held::take(&trace).expect("free again").is_some());
        let left = std::fs::read_dir(folder.path()).expect("it").count();
        assert_eq!(left, 0, "nothing is left beside the trace");
        // What a killed recording left does not stand in the way.
        std::fs::write(folder.path().join(".app.sft.lock"), b"").expect("writes");
        assert!(Held::take(&trace).expect("free").is_some());
        // Where no lock can be made, the recording goes on.
        let nowhere = folder.path().join("missing").join("app.sft");
        assert!(Held::take(&nowhere).expect("goes on").is_none());
    }
}
