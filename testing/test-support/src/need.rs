//! A test's needs of the machine; where one is missing, the test is skipped, and says so.
//!
//! ```text
//!   if !need::root("unshare") { return; }
//!      there: true       not there: "skipped: report::endpoint::a_process_in_… needs root (unshare): run as root"
//!                                    ├─► stderr, past libtest's capture
//!                                    └─► target/skipped.txt, which `cargo xtask skipped` counts
//! ```
//!
//! N1  Each skipped test is one line of this form, in both places; no test returns early without it.
//! N2  With `SKINFLINT_NO_SKIPS=1` a test that would be skipped fails: for machines where everything is installed.
//! N3  Nothing is installed here, and the user is not asked.
//!
//! What every build needs (cc, make, git, and python3, gcc, g++ and sqlite3: HACKING.md) is not checked.
//! Not here: artifacts of this workspace, which are built (`artifact`).

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::artifact;

/// Programs, libraries and files with the Debian packages that have them, if the names differ.
const PACKAGES: &[(&str, &str)] = &[
    ("/usr/libexec/valgrind/dh_view.js", "valgrind"),
    ("go", "golang-go"),
    ("heaptrack_print", "heaptrack"),
    ("libjemalloc.so.2", "libjemalloc2"),
    ("libmimalloc.so.2", "libmimalloc2.0"),
    ("libmimalloc.so.2.0", "libmimalloc2.0"),
    ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    ("node", "nodejs"),
    ("pnmtojpeg", "netpbm"),
    ("pnmtopng", "netpbm"),
    ("ppmtopgm", "netpbm"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("addr2line", "binutils"),
    ("nm", "binutils"),
    ("objcopy", "binutils"),
    ("readelf", "binutils"),
    ("xz", "xz-utils"),
    ("rustc", "rustc"),
];

/// Returns whether this runs as root; `what` names what needs it.
#[must_use]
#[track_caller]
pub fn root(what: &str) -> bool {
    // SAFETY: N3: asks for a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    that(is_root, &format!("root ({what})"), "run as root")
}

/// Returns whether there is a program of this name in PATH, or at this path.
#[must_use]
#[track_caller]
pub fn program(name: &str) -> bool {
    that(has_program(name), name, &install(name))
}

/// Returns whether all of these programs are there; the first that is missing is named.
#[must_use]
#[track_caller]
pub fn programs(names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !has_program(name));
    missing.is_none_or(|name| program(name))
}

/// Returns whether a shared library of this name is in the loader's usual folders or LD_LIBRARY_PATH.
#[must_use]
#[track_caller]
pub fn library(name: &str) -> bool {
    that(has_library(name), name, &install(name))
}

/// Returns whether a file or folder is there; `how` says what makes it.
#[must_use]
#[track_caller]
pub fn file(path: &Path, how: &str) -> bool {
    that(path.exists(), &path.display().to_string(), how)
}

/// Returns whether this Python has this module; `how` says what installs it.
#[must_use]
#[track_caller]
pub fn python_module(python: &str, module: &str, how: &str) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", &format!("import {module}")]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let has = command.status().is_ok_and(|status| status.success());
    that(has, &format!("Python's {module}"), how)
}

/// Returns `has`. If it is `false`, the running test is counted as skipped (N1): it "needs `what`: `how`".
///
/// # Panics
/// Instead of returning `false`, with `SKINFLINT_NO_SKIPS` (N2).
#[must_use]
#[track_caller]
pub fn that(has: bool, what: &str, how: &str) -> bool {
    if !has {
        let line = format!("skipped: {} needs {what}: {how}", test());
        let forbidden = std::env::var_os("SKINFLINT_NO_SKIPS").is_some();
        assert!(!forbidden, "{line} (SKINFLINT_NO_SKIPS forbids it)");
        say(&line);
    }
    has
}

/// Returns CRATE::BINARY::TEST; if the test's thread has no name of its own (`--test-threads=1`), the asking line
/// stands for TEST.
#[track_caller]
fn test() -> String {
    let binary = std::env::current_exe().ok();
    let stem = binary.as_deref().and_then(Path::file_stem);
    let stem = stem.unwrap_or_default().to_string_lossy().into_owned();
    let binary = stem.rsplit_once('-').map_or(&*stem, |(name, _hash)| name);
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let package = package.strip_prefix("skinflint-").unwrap_or(&package);
    let thread = std::thread::current();
    match thread.name().filter(|name| *name != "main") {
        Some(name) => format!("{package}::{binary}::{name}"),
        None => {
            let place = std::panic::Location::caller();
            format!("{package}::{binary} ({}:{})", place.file(), place.line())
        }
    }
}

fn say(line: &str) {
    // Not eprintln!, whose output libtest hides for tests that pass.
    let _ = writeln!(std::io::stderr(), "{line}");
    let file = artifact::skipped_file();
    let opened = std::fs::File::options()
        .create(true)
        .append(true)
        .open(file);
    let written = opened.and_then(|mut out| out.write_all(format!("{line}\n").as_bytes()));
    // A test that cannot be counted must not pass.
    written.unwrap_or_else(|error| panic!("{}: {error}: {line}", file.display()));
}

fn install(name: &str) -> String {
    let known = PACKAGES.iter().find(|(known, _)| *known == name);
    let package = known.map_or(name, |(_, package)| package);
    format!("apt-get install {package}")
}

fn has_program(name: &str) -> bool {
    let is_program = |path: PathBuf| {
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        // A path may be a script that another program reads: it need not be executable.
        return Path::new(name).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(folder.join(name)))
}

fn has_library(name: &str) -> bool {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib",
    ];
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let more = std::env::split_paths(&path);
    let mut all = folders.iter().map(PathBuf::from).chain(more);
    all.any(|folder| folder.join(name).exists())
}
