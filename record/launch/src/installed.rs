//! Finds our own files: named by the environment, beside this program, in `../lib/skinflint`, or carried in this program.
//!
//! ```text
//!   SKINFLINT_RECORDER, … ─► the folder of this program ─► ../lib/skinflint ─► carried ─► an error with the next step
//! ```
//!
//! I1  A file that the environment names counts, or its absence is an error; nothing else is tried in its place.
//! I2  If a program of the JavaScript host is not built, the error names the command that builds it.
//!
//! Not here: what is done with the files (preload.rs, and crates above).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use skinflint_base::env;

use crate::carried;

/// Name of the recorder's library.
pub const RECORDER: &str = "libskinflint_record.so";
/// Name of the allocator's library.
pub const ALLOCATOR: &str = "libskinflint.so";
/// Name of the library that counts calls.
const PROBE: &str = "libskinflint_probe.so";
/// Name of the program that plays scripts.
const REPLAYER: &str = "skinflint-replay";
/// Name of the reporters' library, which programs load; its variable is read by the bindings.
const REPORTERS: &str = "libskinflint_report.so";
const REPORTERS_VARIABLE: &str = "SKINFLINT_REPORT_LIBRARY";

/// Returns the paths of all files that commands load or start, the recorder's first.
pub fn all() -> impl Iterator<Item = Result<PathBuf>> {
    let reporters = || file(REPORTERS, REPORTERS_VARIABLE);
    [recorder, allocator, probe, replayer, reporters]
        .into_iter()
        .map(|find| find())
}

/// Returns the path of the recorder's library.
///
/// # Errors
/// If it is not there.
pub fn recorder() -> Result<PathBuf> {
    file(RECORDER, env::RECORDER.name())
}

/// Returns the path of the allocator's library.
///
/// # Errors
/// If it is not there.
pub fn allocator() -> Result<PathBuf> {
    file(ALLOCATOR, env::ALLOCATOR.name())
}

/// Returns the path of the library that counts calls of an allocator.
///
/// # Errors
/// If it is not there.
pub fn probe() -> Result<PathBuf> {
    file(PROBE, env::PROBE_LIBRARY.name())
}

/// Returns the path of the program that plays a script on an allocator.
///
/// # Errors
/// If it is not there.
pub fn replayer() -> Result<PathBuf> {
    file(REPLAYER, env::REPLAYER.name())
}

/// Returns where lists of built peers may be, as `cargo xtask peers` writes them; the first that exists counts.
pub fn peers() -> Vec<PathBuf> {
    let lists = match std::env::var_os(env::PEERS.name()) {
        Some(list) => vec![PathBuf::from(list)],
        None => {
            let own = std::env::current_exe().unwrap_or_default();
            let own = own.canonicalize().unwrap_or(own);
            let folder = own.parent().unwrap_or(Path::new("/"));
            vec![
                folder.join("../bench/alloc/peers/peers.json"),
                folder.join("../lib/skinflint/peers/peers.json"),
            ]
        }
    };
    let lists = lists
        .into_iter()
        .map(|list| list.canonicalize().unwrap_or(list));
    lists.collect()
}

/// Finds one of our files: named by the environment, beside this program, in `../lib/skinflint`, or carried.
fn file(library: &str, variable: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        return std::fs::canonicalize(&path)
            .with_context(|| format!("{}: named by {variable}, but not there", path.display()));
    }
    let own = std::env::current_exe().context("the path of this program cannot be found")?;
    let own = own.canonicalize().unwrap_or(own);
    let folder = own.parent().unwrap_or(Path::new("/"));
    if let Some(path) = beside(library, folder) {
        return Ok(path);
    }
    carried::laid_out(library)?.with_context(|| {
        format!(
            "{library} is neither in {} nor in ../lib/skinflint, and this program does not carry it; build all of it \
             with `cargo build --release`, or name it by {variable}",
            folder.display()
        )
    })
}

/// Finds a file of a build tree or of an installation: what its builder laid there comes before what we carry.
fn beside(library: &str, folder: &Path) -> Option<PathBuf> {
    let places = [
        folder.join(library),
        folder.join("../lib/skinflint").join(library),
    ];
    places
        .iter()
        .find_map(|place| std::fs::canonicalize(place).ok())
}

/// Returns the path of a program of the JavaScript host.
///
/// # Errors
/// If it is not built (I2).
pub fn js_host(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program cannot be found")?;
    let own = own.canonicalize().unwrap_or(own);
    let named = std::env::var_os(env::JS.name()).map(PathBuf::from);
    host(name, named.as_deref(), &own)
}

/// Returns where the program of `skinflint fleet` is: beside this program, installed, in the build tree; else its name,
/// which PATH may have.
pub fn fleet() -> PathBuf {
    const NAME: &str = "skinflint-fleet";
    let own = std::env::current_exe().unwrap_or_default();
    let own = own.canonicalize().unwrap_or(own);
    let folder = own.parent().unwrap_or(Path::new("/"));
    let built = || std::fs::canonicalize(folder.join("../fleet/release").join(NAME)).ok();
    beside(NAME, folder)
        .or_else(built)
        .unwrap_or_else(|| NAME.into())
}

/// Finds the host: in the named folder, beside us, installed, or in the build tree (I2).
fn host(name: &str, named: Option<&Path>, own: &Path) -> Result<PathBuf> {
    let variable = env::JS.name();
    if let Some(folder) = named {
        let host = folder.join(name);
        return std::fs::canonicalize(&host).with_context(|| {
            format!(
                "{}: its folder is named by {variable}, but it is not there",
                host.display()
            )
        });
    }
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(name),
        folder.join("../lib/skinflint").join(name),
        folder.join("../js/release").join(name),
    ];
    let found = places
        .iter()
        .find_map(|place| std::fs::canonicalize(place).ok());
    let workspace = ["quickjs", "stock"]
        .into_iter()
        .find(|one| name.contains(one))
        .unwrap_or("skinflint");
    found.with_context(|| {
        format!(
            "{name} is not built. In the source folder, run: cargo build --release --locked --manifest-path \
             js/{workspace}/Cargo.toml --target-dir target/js (`make js` builds all; it needs Rust 1.91); or name \
             the folder of a built one by {variable}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_beside_us_or_in_the_build_tree_or_the_line_that_builds_it_is_said() {
        let tree = tempfile::tempdir().expect("a folder");
        let own = tree.path().join("target/release/skinflint");
        for (name, workspace) in [
            ("skinflint-js", "skinflint"),
            ("skinflint-js-system", "skinflint"),
            ("skinflint-js-stock-malloc", "stock"),
            ("skinflint-js-quickjs", "quickjs"),
            ("skinflint-js-quickjs-system", "quickjs"),
        ] {
            let error = host(name, None, &own).unwrap_err().to_string();
            let manifest = format!("--manifest-path js/{workspace}/Cargo.toml");
            assert!(error.contains(&manifest), "{error}");
        }
        let built = tree.path().join("target/js/release/skinflint-js");
        std::fs::create_dir_all(built.parent().unwrap()).unwrap();
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::write(&built, "").unwrap();
        assert_eq!(
            host("skinflint-js", None, &own).unwrap(),
            built.canonicalize().unwrap()
        );
        let error = host("skinflint-js", Some(tree.path()), &own)
            .unwrap_err()
            .to_string();
        assert!(error.contains("SKINFLINT_JS"), "{error}");
    }
}
