//! A skipped test, in a process of its own, is reported and counted; artifacts are built, or the command is named.
//!
//! Not here: the count over all tests (`cargo xtask skipped`).

use std::process::{Command, Output};

use skinflint_test_support::{artifact, executable, need};

const INSIDE: &str = "SKINFLINT_TEST_NEED";

fn inside(what: &str, environment: &[(&str, &str)]) -> (Output, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("skipped.txt");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "asked"]).env(INSIDE, what);
    command.env_remove("SKINFLINT_NO_SKIPS");
    command.env_remove("SKINFLINT_BUILT");
    command.env("SKINFLINT_SKIPPED", &file);
    command.envs(environment.iter().copied());
    let output = command.output().expect("this test starts");
    let counted = std::fs::read_to_string(&file).unwrap_or_default();
    (output, counted)
}

#[test]
fn asked() {
    let has = match std::env::var(INSIDE).as_deref() {
        Ok("nothing") => need::program("sh") && need::python_module("python3", "json", "-"),
        Ok("program") => need::programs(&["sh", "redis-cli-of-nobody"]),
        Ok("library") => need::library("libof-nobody.so.9"),
        Ok("module") => need::python_module("python3", "of_nobody", "make nothing"),
        Ok("root") => need::that(false, "root (unshare)", "run as root"),
        Ok("artifact") => artifact::built("skinflint-probe-so").exists(),
        _ => return,
    };
    println!("it is {has}");
}

#[test]
fn what_is_there_is_silent() {
    let (output, counted) = inside("nothing", &[("SKINFLINT_NO_SKIPS", "1")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert_eq!((&*said, &*counted), ("", ""));
}

#[test]
fn what_is_missing_is_one_line_that_libtest_does_not_keep() {
    for (what, needs) in [
        (
            "program",
            "redis-cli-of-nobody: apt-get install redis-cli-of-nobody",
        ),
        (
            "library",
            "libof-nobody.so.9: apt-get install libof-nobody.so.9",
        ),
        ("module", "Python's of_nobody: make nothing"),
        ("root", "root (unshare): run as root"),
    ] {
        let (output, counted) = inside(what, &[]);
        assert!(output.status.success(), "{what}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let line = format!("skipped: test-support::need::asked needs {needs}\n");
        assert_eq!((&*said, &*counted), (&*line, &*line), "{what}");
    }
}

#[test]
fn where_nothing_may_be_skipped_it_fails() {
    let (output, counted) = inside("root", &[("SKINFLINT_NO_SKIPS", "1")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains("asked needs root (unshare)"), "{said}");
    assert!(said.contains("SKINFLINT_NO_SKIPS"), "{said}");
    assert_eq!(counted, "");
}

#[test]
fn what_was_said_to_be_built_and_is_not_is_named_with_its_command() {
    // A copy of this test in a folder that was never a target folder.
    let folder = tempfile::tempdir().expect("a folder");
    let deps = folder.path().join("debug/deps");
    let copy = deps.join("need-0");
    executable::copied(&std::env::current_exe().expect("this test"), &copy, 0o755);
    let output = Command::new(copy)
        .args(["--exact", "asked"])
        .env(INSIDE, "artifact")
        .env("SKINFLINT_BUILT", "1")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for word in [
        "libskinflint_probe.so",
        "SKINFLINT_BUILT",
        "skinflint-probe-so",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!folder.path().join("debug/libskinflint_probe.so").exists());
}

#[test]
fn an_artifact_is_there_and_a_second_question_costs_nothing() {
    let first = artifact::built("skinflint-probe-so");
    let time = |path: &std::path::Path| {
        path.metadata()
            .and_then(|file| file.modified())
            .expect("it")
    };
    let before = time(&first);
    assert_eq!(artifact::built("skinflint-probe-so"), first);
    assert_eq!(time(&first), before);
}
