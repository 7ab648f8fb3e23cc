//! Libraries and programs of this workspace that tests load or start, and C programs that make builds for them.
//!
//! ```text
//!   built("skinflint-malloc-so")      cargo build [--release] -p …  ──► target/PROFILE/libskinflint.so
//!   released("skinflint-record-so")   cargo build --release -p …    ──► target/release/libskinflint_record.so
//!   made("tests/harden", …)           make -C tests/harden OUT=…    ──► target/harden-programs
//! ```
//!
//! A1  A returned path exists and is up to date; any failure is a panic that names the command.
//! A2  Each artifact is built once per process, by one thread; other threads wait for it.
//! A3  With `SKINFLINT_BUILT=1` nothing is built: the command that sets it (`make test`) has built everything before.
//! A4  No wait is longer than [`PATIENCE`].
//!
//! A build with `-p` has the same features as a build of the workspace wherever possible (Cargo.toml says so at libc),
//! so that one does not rebuild what the other has built.
//!
//! Not here: the binaries of the test's own package (`env!("CARGO_BIN_EXE_…")`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::Duration;

/// The longest that one build may take.
pub const PATIENCE: Duration = Duration::from_secs(900);

/// The packages that nothing links, and the file that each builds.
const ARTIFACTS: &[(&str, &str)] = &[
    ("skinflint-cli", "skinflint"),
    ("skinflint-engines-so", "libskinflint_engines.so"),
    ("skinflint-malloc-so", "libskinflint.so"),
    ("skinflint-probe-so", "libskinflint_probe.so"),
    ("skinflint-record-so", "libskinflint_record.so"),
    ("skinflint-replay", "skinflint-replay"),
    ("skinflint-reporters-so", "libskinflint_report.so"),
];

/// Returns the root of the repository.
///
/// # Panics
/// If it was moved since this was compiled.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.canonicalize().expect("the repository is there")
}

/// Returns `target/PROFILE` of the running test.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let folder = test.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
    folder.to_path_buf()
}

/// Returns cargo's target folder.
///
/// # Panics
/// If the test is not in one.
#[must_use]
pub fn target() -> PathBuf {
    let profile = profile_folder();
    profile.parent().expect("target/PROFILE").to_path_buf()
}

/// Returns what `package` builds, in the profile of this test. Cost: a run of cargo, once per process (A2, A3).
///
/// # Panics
/// If it cannot be built, or `package` is not in the table of artifacts.
#[must_use]
#[track_caller]
pub fn built(package: &str) -> PathBuf {
    let folder = profile_folder();
    let profile = folder.file_name().expect("PROFILE").to_string_lossy();
    artifact(package, &profile)
}

/// Returns what `package` builds in the release profile: for what is measured, or preloaded as users preload it.
///
/// # Panics
/// As [`built`].
#[must_use]
#[track_caller]
pub fn released(package: &str) -> PathBuf {
    artifact(package, "release")
}

#[track_caller]
fn artifact(package: &str, profile: &str) -> PathBuf {
    static BUILT: Mutex<BTreeMap<PathBuf, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let known = ARTIFACTS.iter().find(|(name, _)| *name == package);
    let (_, file) = known.unwrap_or_else(|| panic!("{package}: not in the table of artifacts"));
    let path = target().join(profile).join(file);
    // A test that fails while it holds the lock leaves a consistent map behind.
    let mut built = match BUILT.lock() {
        Ok(built) => built,
        Err(poisoned) => poisoned.into_inner(),
    };
    let outcome = built.entry(path.clone()).or_insert_with(|| {
        let command = cargo(package, profile);
        match std::env::var_os("SKINFLINT_BUILT") {
            Some(_) if path.exists() => Ok(()),
            Some(_) => Err(format!(
                "SKINFLINT_BUILT is set, but {command:?} was not run"
            )),
            None => run(command),
        }
    });
    if let Err(why) = outcome.clone() {
        drop(built);
        panic!("{}: {why}", path.display());
    }
    assert!(
        path.exists(),
        "{}: not what {package} builds",
        path.display()
    );
    path
}

fn cargo(package: &str, profile: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked", "-p", package]);
    match profile {
        "debug" => {}
        "release" => drop(command.arg("--release")),
        other => drop(command.args(["--profile", other])),
    }
    command.arg("--target-dir").arg(target());
    command.current_dir(root());
    command
}

/// Has make build a folder of programs, and returns where they are: `target/FOLDER`. Cost: a run of make, once per
/// process.
///
/// # Panics
/// If they cannot be built.
#[must_use]
#[track_caller]
pub fn made(sources: &str, folder: &str) -> PathBuf {
    static MADE: Mutex<BTreeMap<PathBuf, Result<(), String>>> = Mutex::new(BTreeMap::new());
    let out = target().join(folder);
    let mut made = match MADE.lock() {
        Ok(made) => made,
        Err(poisoned) => poisoned.into_inner(),
    };
    let outcome = made.entry(out.clone()).or_insert_with(|| {
        // Another test's process may be building them too.
        let lock = File::create(target().join(format!("{folder}.lock")));
        let locked = lock.and_then(|file| file.lock().map(|()| file));
        let _locked = locked.map_err(|error| format!("{folder}.lock: {error}"))?;
        let mut out_is = OsString::from("OUT=");
        out_is.push(&out);
        let mut command = Command::new("make");
        command.arg("--silent").arg("-C").arg(root().join(sources));
        command.arg(out_is).arg("all").env_remove("MAKEFLAGS");
        run(command)
    });
    if let Err(why) = outcome.clone() {
        drop(made);
        panic!("{sources}: {why}");
    }
    out
}

/// Runs a command to its end (A4). The error has its output.
fn run(mut command: Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let child = command
        .spawn()
        .map_err(|error| format!("{shown}: {error}"))?;
    let pid = libc::pid_t::try_from(child.id()).expect("a pid");
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match ended.recv_timeout(PATIENCE) {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("{shown}: {}\n{said}", output.status))
        }
        Ok(Err(error)) => Err(format!("{shown}: {error}")),
        Err(_) => {
            // SAFETY: A4: our own child; no thread has waited for it, since its thread has sent nothing.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            Err(format!(
                "{shown}: still at it after {} s",
                PATIENCE.as_secs()
            ))
        }
    }
}

/// Returns the path of `target/skipped.txt`: beside the profiles, whichever crate's tests run.
pub(crate) fn skipped_file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| match std::env::var_os("SKINFLINT_SKIPPED") {
        Some(file) => file.into(),
        None => target().join("skipped.txt"),
    })
}
