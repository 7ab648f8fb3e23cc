//! `skinflint exec`: the program takes its place, on our allocator, or is refused with the reason.
//!
//! X1  A refusal is status 2, one sentence on stderr, nothing on stdout, and nothing was run.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use skinflint_test_support::executable;

use crate::library::{contract, library};
use crate::tool::{Bench, Done, SKINFLINT, run};

/// Returns the command `skinflint exec OPTIONS -- COMMAND`.
fn exec(bench: &Bench, options: &[&str], command: &[&str]) -> Command {
    let mut tool = bench.skinflint(["exec"]);
    tool.args(options).arg("--").args(command);
    tool.env("SKINFLINT_ALLOCATOR", library());
    tool
}

fn executed(options: &[&str], command: &[&str]) -> Done {
    run(exec(&Bench::new(), options, command))
}

/// Checks a refusal (X1).
#[track_caller]
fn refused(done: &Done, texts: &[&str]) {
    refused_as(2, done, texts);
}

#[track_caller]
fn refused_as(status: i32, done: &Done, texts: &[&str]) {
    done.says(status, texts);
    assert!(done.stderr.starts_with("skinflint: "), "{done:#?}");
    assert_eq!(
        (done.stderr.lines().count(), &*done.stdout),
        (1, ""),
        "{done:#?}"
    );
}

fn file(bench: &Bench, name: &str, bytes: &[u8], mode: u32) -> String {
    let path = bench.path(name);
    executable::written(&path, bytes, mode);
    path.display().to_string()
}

#[test]
fn the_program_runs_on_our_allocator() {
    // Only ours has functions of these names.
    let program = contract("hints").display().to_string();
    let done = executed(&[], &[&program, "hints"]);
    assert_eq!((done.shell_status(), &*done.stdout), (0, "hints ok\n"));
    assert_eq!(done.stderr, "");
}

#[test]
fn process_id_status_and_streams_are_the_programs() {
    let bench = Bench::new();
    let mut shell = bench.command("/bin/sh");
    shell
        .args([
            "-c",
            "echo $$; exec \"$0\" exec -- sh -c 'echo $$; cat; echo error >&2; exit 7'",
        ])
        .arg(SKINFLINT)
        .env("SKINFLINT_ALLOCATOR", library());
    let done = crate::tool::run_within(shell, b"input\n", crate::tool::PATIENCE);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{done:#?}");
    assert_eq!((lines[0], lines[2]), (lines[1], "input"));
    assert_eq!((done.shell_status(), &*done.stderr), (7, "error\n"));
    let done = executed(&[], &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(done.shell_status(), 128 + libc::SIGTERM, "{done:#?}");
    assert_eq!(done.status.code(), None, "by the signal itself");
}

#[test]
fn what_was_preloaded_stays() {
    let bench = Bench::new();
    let early = crate::tool::program("libearly.so").display().to_string();
    let mut tool = exec(&bench, &[], &["printenv", "LD_PRELOAD"]);
    tool.env("LD_PRELOAD", &early);
    let done = run(tool);
    let wanted = format!("{}:{early}\n", library().display());
    assert_eq!((done.shell_status(), done.stdout), (0, wanted));
}

/// This does not use `echo`, which closes its stderr before it ends.
#[test]
fn figures_at_the_end() {
    let program = contract("hints").display().to_string();
    let done = executed(&["--stats"], &[&program, "hints"]);
    assert_eq!((done.shell_status(), &*done.stdout), (0, "hints ok\n"));
    assert!(done.stderr.contains("\"usable_bytes\":"), "{done:#?}");
    let silent = executed(&[], &[&program, "hints"]);
    assert_eq!(silent.stderr, "");
}

#[test]
fn programs_that_cannot_be_run_so() {
    let bench = Bench::new();
    let missing = run(exec(&bench, &[], &["no-such-program-anywhere"]));
    refused_as(127, &missing, &["no such program in PATH"]);
    file(&bench, "text", b"hello\n", 0o644);
    refused_as(
        126,
        &run(exec(&bench, &[], &["./text"])),
        &["not executable", "chmod +x ./text"],
    );
    file(&bench, "empty.c", b"int main(void) { return 0; }\n", 0o644);
    let mut compiler = bench.command("gcc");
    compiler.args(["-static", "-o", "static", "empty.c"]);
    let built = run(compiler);
    assert_eq!(built.shell_status(), 0, "apt-get install libc6-dev");
    let done = run(exec(&bench, &[], &["./static"]));
    refused(&done, &["statically linked", "its own allocator"]);
    assert!(!done.stderr.contains("record"), "{done:#?}");
    let mut head = vec![0u8; 120];
    head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    head[18] = 183;
    file(&bench, "foreign", &head, 0o755);
    refused(
        &run(exec(&bench, &[], &["./foreign"])),
        &["another machine", "183"],
    );
}

#[test]
fn libraries_that_are_none() {
    let bench = Bench::new();
    let text = file(&bench, "text.so", b"hello\n", 0o644);
    for (library, why) in [
        ("/nowhere/lib.so", "--lib"),
        (text.as_str(), "no library"),
        ("/etc", "cannot be read"),
    ] {
        let done = run(exec(&bench, &["--lib", library], &["touch", "ran"]));
        refused(&done, &[library, why]);
    }
    let mut tool = exec(&bench, &[], &["touch", "ran"]);
    tool.env("SKINFLINT_ALLOCATOR", "/nowhere/lib.so");
    refused(&run(tool), &["/nowhere/lib.so", "SKINFLINT_ALLOCATOR"]);
    assert!(!bench.path("ran").exists(), "refused, and yet it ran");
    // The loader takes spaces for separators: it would ignore the two halves.
    let spaced = bench.path("with space.so");
    executable::copied(library(), &spaced, 0o644);
    let done = run(exec(
        &bench,
        &["--lib", &spaced.display().to_string()],
        &["true"],
    ));
    refused(&done, &["spaces or colons"]);
}

/// Tests the layout of `make install`, and the library beside the program.
#[test]
fn the_library_is_found() {
    let program = contract("hints").display().to_string();
    for place in ["bin/libskinflint.so", "lib/skinflint/libskinflint.so"] {
        let bench = Bench::new();
        let tool = bench.path("bin/skinflint");
        executable::copied(Path::new(SKINFLINT), &tool, 0o755);
        let run_it = || {
            let mut command = bench.command(&tool);
            command.args(["exec", "--", &program, "hints"]);
            run(command)
        };
        refused(
            &run_it(),
            &["libskinflint.so", "../lib/skinflint", "SKINFLINT_ALLOCATOR"],
        );
        executable::copied(library(), &bench.path(place), 0o644);
        let done = run_it();
        assert_eq!(
            (done.shell_status(), &*done.stdout),
            (0, "hints ok\n"),
            "{place}: {done:#?}"
        );
    }
}

/// Checks that a set-user-id program is refused; one that is linked with the library runs, and its
/// environment is not trusted. As root, the other user is made by setpriv.
#[test]
fn programs_that_change_their_user() {
    // SAFETY: no memory is involved.
    if unsafe { libc::getuid() } != 0 {
        let done = executed(&[], &["/bin/su"]);
        refused(&done, &["set-user-id", "LD_PRELOAD"]);
        return;
    }
    let open = tempfile::Builder::new()
        .prefix("skinflint-dropin-")
        .permissions(PermissionsExt::from_mode(0o777))
        .tempdir_in("/tmp")
        .expect("a folder in /tmp");
    let at = |name: &str| open.path().join(name);
    executable::copied(Path::new(SKINFLINT), &at("skinflint"), 0o755);
    executable::copied(library(), &at("libskinflint.so"), 0o755);
    // The name that the linker notes.
    std::os::unix::fs::symlink("libskinflint.so", at("libskinflint.so.1")).expect("a link");
    let bench = Bench::new();
    file(
        &bench,
        "linked.c",
        b"#include <stdlib.h>\nint main(void) { free(malloc(100)); return 3; }\n",
        0o644,
    );
    let mut compiler = bench.command("gcc");
    compiler
        .args(["-fno-builtin", "-o"])
        .arg(at("linked"))
        .arg("linked.c")
        .arg("-Wl,--no-as-needed")
        .arg(at("libskinflint.so"))
        .arg(format!("-Wl,-rpath,{}", open.path().display()));
    let built = run(compiler);
    assert_eq!(built.shell_status(), 0, "{built:#?}");
    let as_nobody = |command: &[&Path]| {
        let mut nobody = bench.command("setpriv");
        nobody
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .args(command)
            .env("SKINFLINT_STATS", "1")
            .current_dir(open.path());
        run(nobody)
    };
    let done = as_nobody(&[&at("linked")]);
    assert_eq!(done.shell_status(), 3, "{done:#?}");
    assert!(done.stderr.contains("\"usable_bytes\":"), "{done:#?}");
    let mode = PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(at("linked"), mode).expect("its own file");
    let done = as_nobody(&[&at("linked")]);
    assert_eq!((done.shell_status(), &*done.stderr), (3, ""), "{done:#?}");
    let done = as_nobody(&[
        &at("skinflint"),
        Path::new("exec"),
        Path::new("--"),
        &at("linked"),
    ]);
    refused(&done, &["set-user-id", "ignores LD_PRELOAD", "user 0"]);
}
