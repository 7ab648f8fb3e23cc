//! Debug files by build id: from folders and from servers that the user names.
//!
//! ```text
//!   --debuginfod FOLDER ─► looked into           --debuginfod URL ─ curl ─► URL/buildid/ID/debuginfo ─► cache
//! ```
//!
//! F1  Nothing is asked of a network that the user did not name on this command line: `env` names DEBUGINFOD_URLS.
//! F2  A file is asked for once; that a server has none is remembered for a day. The cache is the user's
//!     ($XDG_CACHE_HOME/skinflint/debuginfo), laid out as a debuginfod client's.
//! F3  What comes is used only if it holds the build id that was recorded (symbols, L1).
//!
//! Not here: reading what was fetched (symbols).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use skinflint_trace::Module;

use crate::args::NameOptions;

/// Longest that one file may take.
const FETCH_SECONDS: &str = "120";
/// How long it is believed that a server has no file.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The folders to look for debug files in, after fetching what is missing.
///
/// # Errors
/// A folder that is none, an address that is none, `env` without the variable, no curl.
pub fn folders(options: &NameOptions, modules: &[Module]) -> Result<Vec<PathBuf>> {
    must_be_folders("--debug-dir", &options.debug_dir)?;
    must_be_folders("--sysroot", options.sysroot.as_slice())?;
    let mut folders = options.debug_dir.clone();
    let mut servers = Vec::new();
    for named in &options.debuginfod {
        if named == "env" {
            let urls = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
            let before = servers.len();
            servers.extend(urls.split_whitespace().map(str::to_owned));
            if servers.len() == before {
                bail!("--debuginfod env: DEBUGINFOD_URLS is not set; give a folder or a URL");
            }
        } else if named.starts_with("http://") || named.starts_with("https://") {
            servers.push(named.clone());
        } else if Path::new(named).is_dir() {
            folders.push(PathBuf::from(named));
        } else {
            bail!("--debuginfod {named}: neither a folder nor a URL (http://, https://)");
        }
    }
    if !servers.is_empty() {
        let cache = cache()?;
        for module in modules.iter().filter(|module| is_id(&module.build_id)) {
            fetch(&servers, &cache, module)?;
        }
        folders.push(cache);
    }
    Ok(folders)
}

/// That what an option names is a folder: one that is not would only leave names away, without a word.
///
/// # Errors
/// It is not.
pub fn must_be_folders(option: &str, named: &[PathBuf]) -> Result<()> {
    match named.iter().find(|path| !path.is_dir()) {
        Some(path) => bail!(
            "{option} {}: no such folder; check the name and that you may read it",
            path.display()
        ),
        None => Ok(()),
    }
}

fn is_id(build_id: &str) -> bool {
    build_id.len() >= 4 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn cache() -> Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(home);
    let cache = base
        .context("--debuginfod: no folder for what is fetched; set XDG_CACHE_HOME")?
        .join("skinflint/debuginfo");
    std::fs::create_dir_all(&cache)
        .with_context(|| format!("{}: cannot be made; set XDG_CACHE_HOME", cache.display()))?;
    Ok(cache)
}

/// Gets the debug file of a module, if it is not there and somebody has it.
fn fetch(servers: &[String], cache: &Path, module: &Module) -> Result<()> {
    let folder = cache.join(&module.build_id);
    let (file, none) = (folder.join("debuginfo"), folder.join("none"));
    let asked = std::fs::metadata(&none).and_then(|about| about.modified());
    let lately = asked.is_ok_and(|at| {
        SystemTime::now()
            .duration_since(at)
            .is_ok_and(|age| age < MEMORY)
    });
    if file.exists() || lately {
        return Ok(());
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("{}: cannot be made", folder.display()))?;
    let part = folder.join(format!("part.{}", std::process::id()));
    for server in servers {
        let url = format!(
            "{}/buildid/{}/debuginfo",
            server.trim_end_matches('/'),
            module.build_id
        );
        let status = Command::new("curl")
            .args([
                "--silent",
                "--fail",
                "--location",
                "--proto",
                "=http,https",
                "--max-time",
                FETCH_SECONDS,
            ])
            .arg("--output")
            .arg(&part)
            .arg("--")
            .arg(&url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_remove("LD_PRELOAD")
            .status()
            .context(
                "--debuginfod: curl cannot be started, which asks servers (apt-get install curl)",
            )?;
        match status.code() {
            Some(0) => {
                return std::fs::rename(&part, &file)
                    .with_context(|| format!("{}: cannot be written", file.display()));
            }
            // 22: the server answered, and has none.
            Some(22) => {}
            code => say!(
                "skinflint: {url}: not reached (curl {}); names come from what is here",
                code.map_or_else(|| "was ended".into(), |code| code.to_string())
            ),
        }
        let _ = std::fs::remove_file(&part);
    }
    let _ = std::fs::write(&none, b"");
    Ok(())
}
