//! The files of traces: a folder that can be written, a file that may be replaced.
//!
//! ```text
//!   --output FILE, --dir FOLDER ─► folder (written to once, to see) ─► absolute paths
//! ```
//!
//! F1  What cannot be written is refused before the program is started or stopped.
//!
//! Not here: the names of traces without one (`collect`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Returns the folder for traces: the one named, or that of the file, or the current one.
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
