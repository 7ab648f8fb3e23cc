//! A folder for the files of runs, removed when it is dropped.
//!
//! ```text
//!   TMPDIR/skinflint-compare-PID-N ─► stdin, stdout, scripts, samples of runs ─► gone
//! ```
//!
//! D1  Only this user can look into it.
//!
//! Not here: what lies in it (run.rs, replays.rs).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A folder for the files of runs, removed when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder of our own among the system's temporary files.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new() -> Result<Folder> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let path = base.join(format!(
                "skinflint-compare-{}-{attempt}",
                std::process::id()
            ));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "{}: cannot be made; set TMPDIR to another folder",
                            path.display()
                        )
                    });
                }
            }
        }
        bail!("{}: full of folders of ours; remove them", base.display())
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the system's folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
