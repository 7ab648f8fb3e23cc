//! What cannot be recorded is refused before it starts, with the reason and the next step.
//!
//! U1  Status 2 (127 if there is no such program, 126 if it is none: as a shell's), one sentence on stderr, nothing on stdout, no trace.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use skinflint_base::ring::{HELLO_MAGIC, Hello, LAYOUT};
use skinflint_test_support::executable;

use crate::tool::{Bench, Done, SKINFLINT, recorder, run};

/// Checks that a program is refused, with each of these in the sentence (U1).
#[track_caller]
fn refused(bench: &Bench, program: &str, texts: &[&str]) {
    refused_as(2, bench, program, texts);
}

#[track_caller]
fn refused_as(status: i32, bench: &Bench, program: &str, texts: &[&str]) {
    for subcommand in ["record", "run"] {
        refusal_as(
            status,
            bench,
            &bench.tool([subcommand, "--", program]),
            texts,
        );
    }
}

#[track_caller]
fn refusal(bench: &Bench, done: &Done, texts: &[&str]) {
    refusal_as(2, bench, done, texts);
}

#[track_caller]
fn refusal_as(status: i32, bench: &Bench, done: &Done, texts: &[&str]) {
    done.says(status, texts);
    assert!(done.stderr.starts_with("skinflint: "), "{done:#?}");
    assert_eq!(
        (done.stderr.lines().count(), &*done.stdout),
        (1, ""),
        "{done:#?}"
    );
    assert_eq!(bench.traces(), Vec::<String>::new());
}

/// Returns the first bytes of an ELF program: 64 of header, one program header.
fn elf(class: u8, machine: u8, segment: u8) -> Vec<u8> {
    let mut head = vec![0u8; 64 + 56];
    head[..7].copy_from_slice(b"\x7fELF\0\x01\x01");
    head[4] = class;
    head[16] = 2;
    head[18] = machine;
    head[32] = 64;
    head[54] = 56;
    head[56] = 1;
    head[64] = segment;
    head
}

#[test]
fn no_such_program() {
    let bench = Bench::new();
    refused_as(
        127,
        &bench,
        "no-such-program-anywhere",
        &["no such program in PATH", "check"],
    );
    refused_as(
        127,
        &bench,
        "./nothing-here",
        &["./nothing-here", "no such program", "check the path"],
    );
    refused(&bench, "", &["name is empty"]);
}

#[test]
fn what_cannot_be_executed() {
    let bench = Bench::new();
    executable::written(&bench.path("text"), b"hello\n", 0o644);
    refused_as(
        126,
        &bench,
        "./text",
        &["not executable", "chmod +x ./text"],
    );
    refused_as(126, &bench, "/", &["folder"]);
    // As bash: the script is there, its interpreter is not.
    executable::written(&bench.path("script"), b"#!/nowhere/sh\n", 0o755);
    refused_as(126, &bench, "./script", &["its interpreter", "/nowhere/sh"]);
    // What only the kernel can judge.
    executable::written(&bench.path("noise"), b"\0\x01\x02\x03", 0o755);
    refused_as(126, &bench, "./noise", &["cannot be started"]);
}

/// What a shell, env and `skinflint exec` run without a word is no reason to refuse.
#[test]
fn a_script_without_an_interpreter_is_the_shells() {
    let bench = Bench::new();
    executable::written(&bench.path("bare"), b"echo \"$0 $1\"; exit 5\n", 0o755);
    let done = bench.tool(["record", "-q", "-o", "bare.sft", "./bare", "one"]);
    assert_eq!(
        (done.status.code(), &*done.stdout),
        (Some(5), "./bare one\n"),
        "{done:#?}"
    );
    bench.report_at("bare.sft", "end");
}

#[test]
fn a_program_where_a_recording_is_wanted() {
    let bench = Bench::new();
    executable::written(&bench.path("app"), b"#!/bin/sh\nexit 9\n", 0o755);
    for arguments in [
        &["check", "--peak-live", "1GiB", "./app"][..],
        &["check", "--peak-live", "1GiB", "/bin/ls"],
        &["check", "--peak-live", "1GiB", "ls"],
        &["compare", "./app"],
        &["compare", "ls"],
    ] {
        let program = arguments[arguments.len() - 1];
        let done = bench.tool(arguments);
        done.says(2, &["a program, not a recording", &format!("-- {program}")]);
    }
    std::fs::create_dir(bench.path("ls")).expect("its own folder");
    let done = bench.tool(["check", "--peak-live", "1GiB", "ls"]);
    assert!(!done.stderr.contains("a program"), "{done:#?}");
}

#[test]
fn a_static_program() {
    let bench = Bench::new();
    std::fs::write(bench.path("empty.c"), "int main(void) { return 0; }\n").expect("a file");
    let mut compiler = bench.command("gcc");
    compiler.args(["-static", "-o", "static", "empty.c"]);
    let built = run(compiler);
    assert_eq!(
        built.status.code(),
        Some(0),
        "apt-get install libc6-dev: {}",
        built.stderr
    );
    refused(
        &bench,
        "./static",
        &["statically linked", "LD_PRELOAD cannot see it"],
    );
    // A script is judged by its interpreter.
    let script = format!("#!{}\n", bench.path("static").display());
    executable::written(&bench.path("script"), script.as_bytes(), 0o755);
    refused(&bench, "./script", &["statically linked"]);
}

/// A program whose head names another loader: of another C library, and one that is not there.
#[test]
fn a_program_with_another_loader() {
    let bench = Bench::new();
    let bytes = std::fs::read("/bin/true").expect("a program of glibc");
    const LOADER: &[u8] = if cfg!(target_arch = "aarch64") {
        b"/lib/ld-linux-aarch64.so.1\0"
    } else {
        b"/lib64/ld-linux-x86-64.so.2\0"
    };
    let at = bytes.windows(LOADER.len()).position(|one| one == LOADER);
    let at = at.expect("the loader's path");
    let with = |loader: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + LOADER.len()].fill(0);
        bytes[at..at + loader.len()].copy_from_slice(loader);
        executable::written(&bench.path("other"), &bytes, 0o755);
    };
    with(b"/lib/ld-musl-x86_64.so.1");
    refused(
        &bench,
        "./other",
        &["its C library is musl", "built for glibc", "record a build"],
    );
    // As a shell: there is nothing to start it with.
    with(b"/nowhere/ld-linux.so.2");
    let says = ["its loader /nowhere/ld-linux.so.2 is not there"];
    refused_as(127, &bench, "./other", &says);
}

#[test]
fn a_program_for_another_machine() {
    let bench = Bench::new();
    executable::written(&bench.path("small"), &elf(1, 3, 3), 0o755);
    refused(&bench, "./small", &["32-bit", "64-bit build"]);
    executable::written(&bench.path("foreign"), &elf(2, 183, 3), 0o755);
    refused(&bench, "./foreign", &["another machine", "183"]);
}

/// As root, another user must be made: a copy of the tool lies where every user can reach it.
#[test]
fn a_program_that_changes_its_user() {
    let bench = Bench::new();
    // SAFETY: no memory is involved.
    if unsafe { libc::getuid() } != 0 {
        refused(&bench, "/bin/su", &["set-user-id", "LD_PRELOAD", "user 0"]);
        return;
    }
    let open = tempfile::Builder::new()
        .prefix("skinflint-whole-")
        .permissions(PermissionsExt::from_mode(0o777))
        .tempdir_in("/tmp")
        .expect("a folder in /tmp");
    let copy = |from: &Path, name: &str, mode| {
        let to = open.path().join(name);
        executable::copied(from, &to, mode);
        to
    };
    let tool = copy(Path::new(SKINFLINT), "skinflint", 0o755);
    let library = copy(recorder(), "libskinflint_record.so", 0o755);
    let program = copy(Path::new("/bin/true"), "changes-user", 0o4755);
    let mut command = bench.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&tool)
        .args(["record", "--"])
        .arg(&program)
        .env("SKINFLINT_RECORDER", library)
        .current_dir(open.path());
    refusal(
        &bench,
        &run(command),
        &["set-user-id", "ignores LD_PRELOAD", "user 0"],
    );
    // For its owner nothing changes.
    let done = bench.record([&program]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
}

#[test]
fn a_folder_that_cannot_be_written() {
    let bench = Bench::new();
    executable::written(&bench.path("file"), b"", 0o644);
    for place in [
        &["--dir", "file"][..],
        &["--dir", "file/folder"],
        &["--dir", "/proc"],
        &["--output", "no/such/folder/x.sft"],
        &["--output", "/proc/x.sft"],
    ] {
        let mut tool = bench.skinflint(["record"]);
        tool.args(place).args(["--", "touch", "ran"]);
        refusal(&bench, &run(tool), &["cannot be written here", place[0]]);
    }
    assert!(!bench.path("ran").exists(), "refused, and yet it ran");
}

#[test]
fn options_that_make_no_sense() {
    let bench = Bench::new();
    for signal in ["KILL", "9", "nonsense", "0"] {
        let done = bench.tool(["record", "--mark-signal", signal, "--", "true"]);
        refusal(&bench, &done, &["--mark-signal", signal, "USR1"]);
    }
    for arguments in [
        &["record"][..],
        &["record", "--level", "20", "--", "true"],
        &["report"],
        &["counts", "x.sft", "--weight", "gold"],
        &["nonsense"],
        &[],
    ] {
        let done = bench.tool(arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {done:#?}");
        assert_eq!(done.stdout, "");
    }
}

#[test]
fn a_recorder_that_is_not_there() {
    let bench = Bench::new();
    let mut tool = bench.skinflint(["record", "--", "true"]);
    tool.env("SKINFLINT_RECORDER", "/nowhere/recorder.so");
    refusal(
        &bench,
        &run(tool),
        &["/nowhere/recorder.so", "SKINFLINT_RECORDER"],
    );
}

/// Says hello to the collector as a library of another build would: it is told by its layout.
const OLDER: &str = "import os, socket, struct, sys
magic, layout, size = map(int, sys.argv[1:])
path = os.environ['SKINFLINT_SOCKET']
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect(path)
one.send(struct.pack('<QII', magic, layout, 1).ljust(size, b'\\0'))
one.recv(4096)
";

#[test]
fn a_recorder_of_another_build_is_told_as_such() {
    let bench = Bench::new();
    let numbers = [
        HELLO_MAGIC.to_string(),
        (LAYOUT - 1).to_string(),
        size_of::<Hello>().to_string(),
    ];
    let mut python = bench.recording(&[], ["python3", "-c", OLDER]);
    python.args(numbers);
    let done = run(python);
    let older = format!("layout {}, this program has {LAYOUT}", LAYOUT - 1);
    done.says(
        0,
        &["was not recorded", "another build", &older, "both anew"],
    );
}
