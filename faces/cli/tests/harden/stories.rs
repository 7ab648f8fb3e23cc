//! Sampled blocks: what is reported of a fault, with both stacks, and the program's own handler.

use std::process::Command;

use crate::{FAULTED, ended, fault, program, tool};

const EVERY: [&str; 2] = ["HARDEN=sample", "SAMPLE_EVERY=1"];

/// Returns the functions of the frames that follow a heading, as `addr2line` has them (harden.H3).
fn functions(story: &str, heading: &str) -> Vec<String> {
    let program = program("faults").display().to_string();
    let frames = story
        .lines()
        .skip_while(|line| !line.contains(heading))
        .skip(1)
        .take_while(|line| line.starts_with("    #"));
    let mut names = Vec::new();
    for (i, frame) in frames.enumerate() {
        let place = frame.trim_start().split_once(' ').expect("#n place").1;
        let (module, offset) = place.rsplit_once('+').expect("module+offset");
        if module != program {
            assert_ne!(i, 0, "a frame of ours: {story}");
            continue;
        }
        let mut command = Command::new("addr2line");
        command.args(["-f", "-e", module, offset]);
        let done = tool::run(command);
        names.extend(done.stdout.lines().next().map(str::to_owned));
    }
    names
}

#[test]
fn a_late_read_is_told_with_both_stacks() {
    for (name, access, dropper) in [
        ("late_read", "read of", "late_read"),
        ("late_read_thread", "read of", "in_thread"),
        ("late_store", "write to", "late_store"),
    ] {
        let done = fault(name, &EVERY);
        let first = format!("skinflint: use after free: {access} 0x");
        assert!(done.stderr.starts_with(&first), "{done:#?}");
        assert!(
            done.stderr
                .contains("\n  3 bytes into a block of 40 bytes at 0x"),
            "{done:#?}"
        );
        assert_eq!(done.shell_status(), FAULTED, "{done:#?}");
        let born = functions(&done.stderr, "allocated by thread");
        assert_eq!(&born[..3], ["make_it", name, "main"], "{done:#?}");
        let died = functions(&done.stderr, "freed by thread");
        assert_eq!(&died[..2], ["drop_it", dropper], "{done:#?}");
    }
}

#[test]
fn the_thread_of_each_stack_is_named() {
    let done = fault("late_read_thread", &EVERY);
    let thread = |heading: &str| {
        let rest = done
            .stderr
            .split_once(heading)
            .expect("the heading is there")
            .1;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.expect("a number").to_owned()
    };
    assert_ne!(thread("allocated by thread "), thread("freed by thread "));
    assert_eq!(thread("allocated by thread "), thread(" by thread "));
}

#[test]
fn both_sides_of_a_block_are_guarded() {
    let behind = fault("sample_behind", &EVERY);
    ended(
        &behind,
        FAULTED,
        &[
            "access behind the end of a block: write to 0x",
            "\n  0 bytes behind the end of a block of 48 bytes at 0x",
            "allocated by thread",
        ],
    );
    assert!(!behind.stderr.contains("freed by"), "{behind:#?}");
    let before = fault("sample_before", &EVERY);
    ended(
        &before,
        FAULTED,
        &[
            "access before the start of a block: write to 0x",
            "\n  1 bytes before a block of 48 bytes",
        ],
    );
}

#[test]
fn a_second_free_is_told_with_both_stacks() {
    let done = fault("double_small", &EVERY);
    ended(
        &done,
        crate::ABORTED,
        &["free of a block that is free already: 0x"],
    );
    assert_eq!(functions(&done.stderr, "allocated by")[0], "make_it");
    assert_eq!(functions(&done.stderr, "freed by")[0], "drop_it");
}

#[test]
fn without_samples_nothing_is_told() {
    for name in ["late_read", "late_store", "sample_behind", "sample_before"] {
        let done = fault(name, &["HARDEN=0", "SAMPLE_EVERY=1"]);
        assert_eq!(
            (done.stderr.as_str(), done.stdout.as_str()),
            ("", "survived\n"),
            "{name}"
        );
    }
}

#[test]
fn the_programs_own_handler_is_called_after_the_story() {
    // The program installs its handler before the block is sampled, so it is behind ours by then.
    let done = fault("own_handler", &EVERY);
    assert!(
        done.stderr.contains("use after free: read of 0x"),
        "{done:#?}"
    );
    assert_eq!(done.stdout, "the program's own handler\n", "{done:#?}");
    assert_eq!(done.shell_status(), 7, "{done:#?}");
}

#[test]
fn with_warn_and_ignore_the_program_goes_on() {
    for name in [
        "late_read",
        "late_store",
        "sample_behind",
        "sample_before",
        "double_small",
    ] {
        let warned = fault(name, &[EVERY[0], EVERY[1], "BAD_FREE=warn"]);
        assert!(
            warned.stderr.starts_with("skinflint: "),
            "{name}: {warned:#?}"
        );
        assert_eq!(warned.stdout, "survived\n", "{name}: {warned:#?}");
        assert_eq!(warned.shell_status(), 0, "{name}: {warned:#?}");
        let ignored = fault(name, &[EVERY[0], EVERY[1], "BAD_FREE=ignore"]);
        assert_eq!(ignored.stderr, "", "{name}");
        assert_eq!(ignored.stdout, "survived\n", "{name}: {ignored:#?}");
    }
}
