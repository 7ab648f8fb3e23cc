//! The program as people get it: one file, copied to a machine that has nothing else of ours.
//!
//! ```text
//!   target/release/skinflint ─ stripped ─► an empty folder, another user ─► record, exec, compare
//!                                           libraries: in that user's cache, or in memory
//! ```
//!
//! O1  Nothing of the build is found: the environment is empty but for PATH and HOME, and nothing lies beside the file.
//! O2  What is asserted are records, hashes and modes; a library that was not loaded fails the test.
//!
//! Not here: what is recorded (whole), the allocator's contract (dropin), folders that others touch (launch's tests).

// Shared with the tests of the whole tool, and not all of it is needed here.
#[allow(dead_code)]
#[path = "../whole/report.rs"]
mod report;
#[allow(dead_code)]
#[path = "../whole/tool.rs"]
mod tool;

mod line;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use skinflint_test_support::{artifact, executable, need};
use tool::{Done, run};

/// A user that owns nothing on this machine.
const NOBODY: &str = "65534";

/// Returns the release, stripped, as bytes in a file that any user can read.
fn release() -> &'static Path {
    static RELEASE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, file) = RELEASE.get_or_init(|| {
        let folder = open_folder();
        let file = folder.path().join("skinflint");
        let mut objcopy = Command::new("objcopy");
        objcopy
            .arg("--strip-all")
            .arg(artifact::released("skinflint-cli"))
            .arg(&file);
        let done = objcopy.output().expect("apt-get install binutils");
        assert!(done.status.success(), "{done:?}");
        (folder, file)
    });
    file
}

/// Makes a folder that every user can write; the mask would take that from a mode given to mkdir.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new()
        .prefix("skinflint-one-")
        .tempdir_in("/tmp")
        .expect("a folder in /tmp");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("ours");
    folder
}

/// A machine that has one file of ours.
struct Elsewhere {
    folder: tempfile::TempDir,
}

impl Elsewhere {
    fn new() -> Self {
        let folder = open_folder();
        executable::copied(release(), &folder.path().join("skinflint"), 0o755);
        std::fs::create_dir(folder.path().join("home")).expect("ours");
        std::fs::set_permissions(folder.path().join("home"), PermissionsExt::from_mode(0o755))
            .expect("ours");
        if is_root() {
            std::os::unix::fs::chown(folder.path().join("home"), Some(65534), Some(65534))
                .expect("root");
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self) -> String {
        self.path("home").display().to_string()
    }

    /// Runs the file there, as another user if there is one (O1).
    fn skinflint(&self, home: &str, arguments: &[&str]) -> Done {
        let mut command = Command::new(if is_root() { "setpriv" } else { "env" });
        if is_root() {
            command.args([
                &format!("--reuid={NOBODY}"),
                &format!("--regid={NOBODY}"),
                "--clear-groups",
                "env",
            ]);
        }
        command.args([
            "-i",
            "PATH=/usr/bin:/bin",
            "LC_ALL=C",
            &format!("HOME={home}"),
            "./skinflint",
        ]);
        command.args(arguments).current_dir(self.folder.path());
        run(command)
    }

    /// Returns the laid-out files, with the folder.
    fn laid_out(&self) -> Vec<PathBuf> {
        let ours = self.path("home/.cache/skinflint");
        let versions: Vec<_> = std::fs::read_dir(&ours)
            .map(|all| all.flatten().collect())
            .unwrap_or_default();
        let files = versions
            .iter()
            .flat_map(|version| std::fs::read_dir(version.path()).expect("a folder"));
        files.map(|file| file.expect("an entry").path()).collect()
    }

    /// Returns how many events a trace has.
    #[track_caller]
    fn events(&self, trace: &str) -> u64 {
        let done = self.skinflint(&self.home(), &["report", trace, "--json", "--brief"]);
        let report: serde_json::Value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:#?}"));
        report["completeness"]["events"]
            .as_u64()
            .unwrap_or_else(|| panic!("no events: {report}"))
    }
}

fn is_root() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() == 0 }
}

/// Allocates ten thousand strings.
const WORK: &str = "x = [str(i) for i in range(10000)]";

#[test]
fn a_copied_file_records_runs_and_compares() {
    let there = Elsewhere::new();
    let home = there.home();
    let done = there.skinflint(
        &home,
        &["record", "-q", "-o", "a.sft", "python3", "-c", WORK],
    );
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    assert!(there.events("a.sft") > 1000);

    let maps = "print(open('/proc/self/maps').read())";
    let done = there.skinflint(&home, &["exec", "python3", "-c", maps]);
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    let folder = format!("{home}/.cache/skinflint/");
    let is_ours = |line: &str| line.contains(&folder) && line.ends_with("/libskinflint.so");
    assert!(done.stdout.lines().any(is_ours), "{done:#?}");

    let compared = [
        "compare",
        "--quiet",
        "--runs",
        "1",
        "--with",
        "glibc,own",
        "--json",
        "-",
        "--",
        "python3",
        "-c",
        WORK,
    ];
    let done = there.skinflint(&home, &compared);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");

    let names: Vec<_> = there
        .laid_out()
        .iter()
        .map(|file| file.file_name().expect("a name").to_owned())
        .collect();
    assert_eq!(names.len(), 3, "recorder, allocator, probe: {names:?}");
    for file in there.laid_out() {
        let about = std::fs::metadata(&file).expect("laid out");
        let folder = std::fs::metadata(file.parent().expect("a folder")).expect("its folder");
        assert_eq!(
            (about.mode() & 0o7777, folder.mode() & 0o7777),
            (0o755, 0o700),
            "{file:?}"
        );
    }
}

#[test]
fn damage_in_the_cache_is_mended() {
    let there = Elsewhere::new();
    let home = there.home();
    let record =
        |trace| there.skinflint(&home, &["record", "-q", "-o", trace, "python3", "-c", WORK]);
    record("a.sft");
    let laid_out = there.laid_out();
    let [file] = laid_out.as_slice() else {
        panic!("one file: {laid_out:?}")
    };
    let whole = std::fs::read(file).expect("laid out");
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    std::fs::write(file, changed).expect("root's, or ours");
    let done = record("b.sft");
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    assert_eq!(std::fs::read(file).expect("laid out"), whole);
}

#[test]
fn without_a_folder_it_lies_in_memory() {
    let there = Elsewhere::new();
    let script = "python3 -c 'import subprocess; subprocess.run([\"true\"])'; true; sh -c true";
    let done = there.skinflint(
        "/nonexistent",
        &[
            "record", "-q", "--dir", ".", "-o", "a.sft", "sh", "-c", script,
        ],
    );
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    let done = there.skinflint("/nonexistent", &["report", "a.sft", "--json", "--brief"]);
    let report: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(
        report["completeness"]["complete"], true,
        "each program was recorded: {report}"
    );

    // python3 closes what it does not know when it starts a program.
    let nested = "import subprocess; subprocess.run(['cat', '/proc/self/maps'])";
    let done = there.skinflint("/nonexistent", &["exec", "python3", "-c", nested]);
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    assert!(done.stdout.contains("/memfd:/libskinflint.so"), "{done:#?}");
}

/// The recorder sees the calls only if it stands before the allocator.
#[test]
fn recorded_in_memory_on_our_allocator() {
    let there = Elsewhere::new();
    let command = [
        "record",
        "-q",
        "-o",
        "a.sft",
        "./skinflint",
        "exec",
        "python3",
        "-c",
        WORK,
    ];
    let done = there.skinflint("/nonexistent", &command);
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    assert!(there.events("a.sft") > 1000);
}

#[test]
fn what_another_user_planted_is_not_loaded() {
    if !need::root("a folder of another user") {
        return;
    }
    let there = Elsewhere::new();
    let home = there.home();
    std::fs::create_dir_all(there.path("home/.cache/skinflint")).expect("root");
    std::os::unix::fs::chown(there.path("home/.cache"), Some(65534), Some(65534)).expect("root");
    let maps = "print(open('/proc/self/maps').read())";
    let done = there.skinflint(&home, &["exec", "python3", "-c", maps]);
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    assert!(
        done.stdout.contains("/memfd:/libskinflint.so"),
        "in root's folder: {done:#?}"
    );
    assert_eq!(there.laid_out(), Vec::<PathBuf>::new());
    let done = there.skinflint(&home, &["doctor"]);
    let libraries = done
        .stdout
        .lines()
        .find(|line| line.starts_with("libraries"));
    let libraries = libraries.unwrap_or_else(|| panic!("{done:#?}"));
    assert!(
        libraries.contains("part") && libraries.contains("belongs to user 0"),
        "{libraries}"
    );
}

/// The folder can be made there, and no library finds room in it.
#[test]
fn doctor_says_that_a_full_cache_has_them_in_memory() {
    if !need::root("mount") {
        return;
    }
    let there = Elsewhere::new();
    let script = format!(
        "mount -t tmpfs -o size=64k,uid={NOBODY},mode=700 none home && \
         exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups env -i PATH=/usr/bin:/bin HOME={} ./skinflint doctor",
        there.home()
    );
    let mut own = Command::new("unshare");
    own.args(["--mount", "sh", "-c", &script]);
    own.current_dir(there.folder.path());
    let done = run(own);
    let said = done.stdout.lines().next().unwrap_or_default();
    assert!(
        said.starts_with("libraries part") && said.contains("No space left"),
        "{done:#?}"
    );
}

/// A distribution's libraries come first: they are what its debug information and its updates belong to.
#[test]
fn a_library_beside_it_comes_before_the_carried_one() {
    let there = Elsewhere::new();
    let library = there.path("libskinflint.so");
    executable::copied(&artifact::released("skinflint-malloc-so"), &library, 0o755);
    let done = there.skinflint(
        &there.home(),
        &[
            "exec",
            "python3",
            "-c",
            "print(open('/proc/self/maps').read())",
        ],
    );
    assert_eq!(
        (done.status.code(), &*done.stderr),
        (Some(0), ""),
        "{done:#?}"
    );
    assert!(
        done.stdout.contains(&library.display().to_string()),
        "{done:#?}"
    );
    assert_eq!(there.laid_out(), Vec::<PathBuf>::new());
}

#[test]
fn the_file_is_small() {
    const STRIPPED: u64 = 12_000_000;
    const COMPRESSED: usize = 5_000_000;
    let bytes = std::fs::metadata(release()).expect("the release").len();
    assert!(
        bytes <= STRIPPED,
        "{bytes} bytes stripped, {STRIPPED} at most"
    );
    let xz = Command::new("xz")
        .args(["-6", "-c"])
        .arg(release())
        .output()
        .expect("apt-get install xz-utils");
    assert!(xz.status.success(), "{:?}", xz.status);
    let bytes = xz.stdout.len();
    assert!(
        bytes <= COMPRESSED,
        "{bytes} bytes compressed, {COMPRESSED} at most"
    );
}
