//! What goes wrong under one allocator is a row, and the others go on.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use skinflint_test_support::executable;

use crate::tool::{self, Bench, SKINFLINT};
use crate::{MIB, command, compare, compared, made};

#[test]
fn an_allocator_that_crashes_hangs_refuses_or_is_none() {
    let bench = Bench::new();
    let libraries = [
        "libbump.so",
        "libcrash.so",
        "libhang.so",
        "librefuse.so",
        "libnone.so",
    ];
    let mut with = vec!["glibc".to_owned()];
    with.extend(libraries.map(|name| made(name).display().to_string()));
    with.extend(["rpmalloc", "jemaloc", "./no/such.so"].map(String::from));
    let program = made("steps");
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--timeout",
            "20",
            "--with",
            &with.join(","),
            "--",
            program.to_str().expect("UTF-8"),
        ],
    );
    assert_eq!(found.verdict("glibc"), "measured", "{}", found.text);
    // It reuses nothing: 31.25 MiB, and 20 times 1,000 blocks of 1 KiB.
    assert_eq!(found.verdict("libbump.so"), "measured");
    found.between("libbump.so", "peak_bytes", 51.0 * MIB, 56.0 * MIB);
    assert_eq!(found.verdict("libcrash.so"), "crashed");
    assert_eq!(found.verdict("libhang.so"), "time_limit");
    assert_eq!(found.verdict("librefuse.so"), "other_status");
    found.says(&[
        "libcrash.so: killed by SIGSEGV in the check round; it said: bump: out of its depth",
        "libhang.so: not done within 20.0 s",
        "librefuse.so: exit status 7 instead of 0",
        "libnone.so: exports no malloc",
        "rpmalloc: not built, and no librpmallocwrap.so or librpmalloc.so in the system's library folders; to get it: \
         cargo xtask peers",
        "jemaloc: no allocator of that name is known; to get it: one of glibc, own, skinflint, jemalloc",
        "./no/such.so: No such file",
    ]);
    assert_eq!(found.code, 0);
}

#[test]
fn the_same_allocators_under_a_replay() {
    let bench = Bench::new();
    bench.record([&made("steps")]);
    let libraries = ["libbump.so", "libcrash.so", "libhang.so", "librefuse.so"];
    let with = libraries
        .map(|name| made(name).display().to_string())
        .join(",");
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--timeout",
            "20",
            "--with",
            &with,
            "main.sft",
        ],
    );
    assert_eq!(found.verdict("glibc"), "measured", "{}", found.text);
    assert_eq!(found.verdict("libbump.so"), "measured");
    found.between("libbump.so", "peak_bytes", 51.0 * MIB, 56.0 * MIB);
    assert_eq!(found.verdict("libcrash.so"), "crashed");
    assert_eq!(found.verdict("libhang.so"), "time_limit");
    assert_eq!(found.verdict("librefuse.so"), "failed");
    found.says(&["the allocator refused"]);
}

#[test]
fn output_and_status_are_those_of_the_reference() {
    let bench = Bench::new();
    let bump = made("libbump.so").display().to_string();
    let both = |script: &str| {
        compared(
            &bench,
            &["--runs", "1", "--with", &bump, "--", "sh", "-c", script],
        )
    };
    let found = both("case $LD_PRELOAD in *bump*) echo b;; *) echo a;; esac");
    assert_eq!(found.verdict("libbump.so"), "other_output");
    let found = both("case $LD_PRELOAD in *bump*) exit 3;; esac");
    assert_eq!(found.verdict("libbump.so"), "other_status");
    let found = both("exit 5");
    assert_eq!(found.verdict("libbump.so"), "measured", "{}", found.text);
    found.says(&["exit status 5 under glibc"]);
    // What differs from run to run is the program's own output.
    let found = both("cat /proc/sys/kernel/random/uuid");
    assert_eq!(found.verdict("libbump.so"), "measured", "{}", found.text);
    found.says(&["its output differs from run to run"]);
    let script = "case $LD_PRELOAD in *bump*) echo b;; *) echo a;; esac";
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--ignore-output",
            "--with",
            &bump,
            "--",
            "sh",
            "-c",
            script,
        ],
    );
    assert_eq!(found.verdict("libbump.so"), "measured");
}

#[test]
fn a_static_program_has_rows_that_say_so() {
    let bench = Bench::new();
    let program = made("still");
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc,skinflint",
            "--",
            program.to_str().expect("UTF-8"),
        ],
    );
    assert_eq!(found.verdict("glibc"), "no_effect");
    assert_eq!(found.verdict("skinflint"), "no_effect");
    found.says(&["skinflint: preload had no effect", "statically linked"]);
    assert_eq!(found.code, 1);
    // This is also found by counting calls: behind a shell the file is not examined beforehand.
    let script = format!("exec {}", program.display());
    let found = compared(
        &bench,
        &[
            "--runs",
            "1",
            "--with",
            "glibc,own",
            "--",
            "env",
            "-i",
            "sh",
            "-c",
            &script,
        ],
    );
    assert_eq!(found.verdict("glibc"), "no_effect", "{}", found.text);
    found.says(&["of the memory was held by", "still", "without the preload"]);
    assert_eq!(found.verdict("own"), "measured", "{}", found.text);
}

/// As root, the program must belong to another user, and all files must be where that user may read them.
#[test]
fn a_set_user_id_program_has_rows_that_say_so() {
    let bench = Bench::new();
    // SAFETY: no memory is involved.
    let is_root = unsafe { libc::getuid() } == 0;
    let open = tempfile::Builder::new()
        .prefix("skinflint-compare-test-")
        .permissions(PermissionsExt::from_mode(0o777))
        .tempdir_in("/tmp")
        .expect("a folder in /tmp");
    let copy = |from: &Path, name: &str, mode| {
        let to = open.path().join(name);
        executable::copied(from, &to, mode);
        to
    };
    let program = match is_root {
        true => copy(Path::new("/bin/true"), "changes-user", 0o4755),
        false => "/bin/su".into(),
    };
    let arguments = ["--runs", "1", "--with", "glibc,skinflint", "--"];
    let mut usual = command(&bench, &arguments);
    usual.arg(&program);
    if is_root {
        let tool = copy(Path::new(SKINFLINT), "skinflint", 0o755);
        let probe = copy(crate::probe(), "libskinflint_probe.so", 0o755);
        let allocator = copy(tool::allocator(), "libskinflint.so", 0o755);
        usual = bench.command("setpriv");
        usual
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(tool)
            .arg("compare")
            .args(arguments)
            .arg(&program)
            .env("SKINFLINT_PROBE_LIBRARY", probe)
            .env("SKINFLINT_ALLOCATOR", allocator)
            .env("TMPDIR", "/tmp")
            .current_dir(open.path());
    }
    let done = tool::run(usual);
    assert_eq!(done.status.code(), Some(1), "{done:#?}");
    for text in ["skinflint: preload had no effect", "set-user-id", "user 0"] {
        assert!(done.stdout.contains(text), "no {text:?} in {done:#?}");
    }
}

#[test]
fn traces_that_are_damaged_cut_or_none() {
    let bench = Bench::new();
    bench.record([&made("steps")]);
    let whole = std::fs::read(bench.path("main.sft")).expect("recorded");
    let put = |name: &str, bytes: &[u8]| std::fs::write(bench.path(name), bytes).expect("written");
    put(
        "none.sft",
        b"this is no trace at all, but long enough to look at",
    );
    put("empty.sft", b"");
    for name in ["none.sft", "empty.sft", "absent.sft"] {
        let done = compare(&bench, &["--runs", "1", "--with", "glibc", name]);
        assert_eq!(done.status.code(), Some(1), "{done:#?}");
        assert!(done.stderr.contains(name), "{done:#?}");
        assert!(!done.stderr.contains("panicked"), "{done:#?}");
    }
    put("cut.sft", &whole[..whole.len() * 2 / 3]);
    let found = compared(&bench, &["--runs", "1", "--with", "glibc", "cut.sft"]);
    assert_eq!(found.verdict("glibc"), "measured", "{}", found.text);
    found.says(&["incomplete: No end mark: the recording was cut off"]);
}

/// Compares the allocators on a trace, and checks that what is missing from it stands there as `counts` says it. Returns
/// these sentences.
#[track_caller]
fn missing_as_elsewhere(bench: &Bench, trace: &str) -> Vec<String> {
    let counted = bench.tool(["counts", trace]);
    let lead = format!("skinflint: {trace}: ");
    let lines = counted.stderr.lines();
    let lines = lines.filter_map(|line| line.strip_prefix(&lead));
    let wanted: Vec<String> = lines.map(str::to_owned).collect();
    let complete = bench.report_at(trace, "end").0["completeness"]["complete"].as_bool();
    assert_eq!(complete, Some(wanted.is_empty()), "{wanted:#?}");
    let found = compared(bench, &["--runs", "1", "--with", "glibc", trace]);
    assert_eq!(found.verdict("glibc"), "measured", "{}", found.text);
    let notes = found.json["programs"][0]["notes"].as_array();
    let notes = notes
        .expect("notes")
        .iter()
        .filter_map(|note| note.as_str());
    let told: Vec<&str> = notes
        .filter(|note| note.starts_with("incomplete"))
        .collect();
    assert_eq!(told, wanted, "{}", found.text);
    wanted
}

#[test]
fn a_replay_says_of_its_recording_what_the_report_says() {
    let bench = Bench::new();
    bench.record([&made("steps")]);
    assert_eq!(missing_as_elsewhere(&bench, "main.sft"), [""; 0]);
    // 24 MiB by a system call for brk, of which no event tells: only pages without a block do.
    let mut beside = bench.recording(&[], [tool::program("beside")]);
    beside.args(["brk", "killed"]);
    tool::run(beside);
    let missing = missing_as_elsewhere(&bench, "main.sft");
    assert!(
        missing
            .iter()
            .any(|one| one.contains("never held a recorded block")),
        "{missing:#?}"
    );
}
