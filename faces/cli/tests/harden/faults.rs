//! Each fault, reported by its check and by nothing else.

use crate::{ABORTED, FAULTED, ended, fault};

const DOUBLE: &str = "free of a block that is free already: 0x";
const INSIDE: &str = "free of an address inside a block: 0x";
const NO_BLOCK: &str = "free of an address at which there is no block: 0x";
const FOREIGN: &str = "free of an address that was never allocated: 0x";
const OVERRUN: &str = "bytes around a block were overwritten: 0x";
const WRITTEN: &str = "a block was written to after it was freed: 0x";

/// Checks that the fault is reported with `check`, ends as given, and is not reported with the checks `off`.
#[track_caller]
fn told(name: &str, check: &str, off: &str, status: i32, texts: &[&str]) {
    let on = fault(name, &[&format!("HARDEN={check}"), "SAMPLE_EVERY=1"]);
    assert_eq!(on.shell_status(), status, "{name} with {check}: {on:#?}");
    assert!(
        on.stderr.starts_with("skinflint: "),
        "{name} with {check}: {on:#?}"
    );
    assert!(!on.stdout.contains("survived"), "{on:#?}");
    for text in texts {
        assert!(
            on.stderr.contains(text),
            "{name} with {check}, {text}: {on:#?}"
        );
    }
    let without = fault(name, &[&format!("HARDEN={off}"), "SAMPLE_EVERY=1"]);
    assert_eq!(without.stderr, "", "{name} with {off}");
}

#[test]
fn what_the_bitmaps_know_is_told_at_every_level() {
    for (name, text) in [
        ("double_small", DOUBLE),
        ("double_remote", DOUBLE),
        ("inside_small", INSIDE),
        ("inside_large", NO_BLOCK),
        ("foreign", FOREIGN),
        ("foreign_mapping", FOREIGN),
    ] {
        for level in ["0", "1", "2", "3", "guard", "canary", "zero", "poison"] {
            let done = fault(name, &[&format!("HARDEN={level}")]);
            assert_eq!(done.shell_status(), ABORTED, "{name} {level}: {done:#?}");
            assert_eq!(done.stderr.lines().count(), 1, "{name} {level}: {done:#?}");
            assert!(done.stderr.contains(text), "{name} {level}: {done:#?}");
        }
        // The policy switches the check off.
        let quiet = fault(name, &["BAD_FREE=ignore"]);
        assert_eq!(
            (quiet.stderr.as_str(), quiet.stdout.as_str()),
            ("", "survived\n")
        );
    }
}

/// Where nothing is hardened the heap keeps a large block for the next of its length, and knows that it is free.
#[test]
fn a_large_block_that_is_freed_twice_is_told_at_every_level() {
    for level in ["0", "1", "2", "3", "guard", "canary", "zero", "poison"] {
        let done = fault("double_large", &[&format!("HARDEN={level}")]);
        let text = if level == "0" { DOUBLE } else { NO_BLOCK };
        assert_eq!(done.shell_status(), ABORTED, "{level}: {done:#?}");
        assert_eq!(done.stderr.lines().count(), 1, "{level}: {done:#?}");
        assert!(done.stderr.contains(text), "{level}: {done:#?}");
    }
}

#[test]
fn a_block_that_waits_is_known_to_be_freed() {
    for name in [
        "double_small",
        "double_remote",
        "double_mixed",
        "double_large",
    ] {
        for check in ["quarantine", "4"] {
            let done = fault(name, &[&format!("HARDEN={check}")]);
            ended(&done, ABORTED, &[DOUBLE]);
        }
    }
}

#[test]
fn large_blocks_end_at_a_page_that_may_not_be_touched() {
    for level in ["guard", "2", "4"] {
        told(
            "large_behind",
            level,
            "1",
            FAULTED,
            &[
                "access behind the end of a block: write to 0x",
                "\n  0 bytes behind the end of a block of 400000 bytes at 0x",
            ],
        );
        told(
            "large_before",
            level,
            "1",
            FAULTED,
            &[
                "access before the start of a block: write to 0x",
                "\n  4096 bytes before a block of 400000 bytes at 0x",
            ],
        );
        let slack = [OVERRUN, ", of 400001 bytes, at byte 400001 "];
        told("large_slack", level, "1", ABORTED, &slack);
    }
}

#[test]
fn a_large_block_that_waits_may_not_be_touched() {
    let texts = [
        "use after free: read of 0x",
        "\n  5 bytes into a block of 400000 bytes at 0x",
    ];
    told("large_late", "guard,quarantine", "guard", FAULTED, &texts);
    told("large_late", "quarantine", "0", FAULTED, &texts[..1]);
}

#[test]
fn a_byte_behind_a_small_block_is_found_when_it_is_freed_or_moved() {
    for check in ["canary", "quarantine"] {
        told(
            "small_behind",
            check,
            "guard,zero",
            ABORTED,
            &[OVERRUN, ", at byte 40 "],
        );
        // 33 bytes and the trailer leave seven of the slot's 48 between them.
        told(
            "small_fill",
            check,
            "guard,zero",
            ABORTED,
            &[OVERRUN, ", of 33 bytes, at byte 33 "],
        );
        told(
            "small_realloc",
            check,
            "guard,zero",
            ABORTED,
            &[OVERRUN, ", at byte 40 "],
        );
    }
    let sampled = [OVERRUN, "\n  allocated by thread ", "\n  freed by thread "];
    told("small_behind", "sample", "0", ABORTED, &sampled);
}

#[test]
fn a_size_that_is_not_the_blocks_is_told() {
    const SIZE: &str = "a block is freed with another size than it has: 0x";
    for (name, check, off, sizes) in [
        (
            "delete_other_size",
            "canary",
            "guard,zero",
            "41 bytes and not 24",
        ),
        (
            "delete_other_size",
            "sample,canary",
            "sample",
            "41 bytes and not 24",
        ),
        (
            "delete_other_size_large",
            "guard",
            "canary",
            "400000 bytes and not 400016",
        ),
        (
            "delete_other_size_aligned",
            "canary",
            "guard",
            "100 bytes and not 128",
        ),
        (
            "free_other_size",
            "quarantine",
            "zero",
            "41 bytes and not 40",
        ),
    ] {
        told(name, check, off, ABORTED, &[SIZE, ", of ", sizes]);
    }
}

#[test]
fn an_array_is_freed_as_one_and_nothing_else_is() {
    let array = ["a block of new[] is freed, and not by delete[]: 0x"];
    let one = ["delete[] of a block of new: 0x"];
    for check in ["canary", "quarantine"] {
        told("delete_an_array", check, "guard,zero", ABORTED, &array);
        told("free_an_array", check, "guard,zero", ABORTED, &array);
        told("delete_one_as_array", check, "guard,zero", ABORTED, &one);
        told(
            "delete_one_as_array_aligned",
            check,
            "guard,zero",
            ABORTED,
            &one,
        );
    }
}

#[test]
fn a_late_write_is_found_when_the_block_leaves_or_comes_back() {
    let place = [WRITTEN, ", byte 8 of 48 "];
    told("late_write", "quarantine", "canary,zero", ABORTED, &place);
    told(
        "late_write_reused",
        "poison",
        "canary,zero",
        ABORTED,
        &place,
    );
}

#[test]
fn a_byte_before_a_large_block_is_found_though_no_guard_is_touched() {
    for check in ["guard", "2", "4"] {
        let place = [OVERRUN, ", of 400000 bytes, 16 before its start "];
        told("large_front", check, "canary", ABORTED, &place);
    }
}

#[test]
fn what_no_free_found_is_found_at_exit() {
    let behind = [OVERRUN, ", of 33 bytes, at byte 34, found at exit "];
    for check in ["canary", "canary,zero"] {
        told("kept_behind", check, "guard,zero", ABORTED, &behind);
    }
    let place = [WRITTEN, ", byte 8 of 48 "];
    told(
        "late_write_exit",
        "quarantine",
        "canary,zero",
        ABORTED,
        &place,
    );
    // The policy goes on: one line for each, and the program's own end.
    let warned = fault("kept_behind", &["HARDEN=canary", "BAD_FREE=warn"]);
    assert_eq!(warned.shell_status(), 0, "{warned:#?}");
    assert_eq!(warned.stderr.lines().count(), 1, "{warned:#?}");
    assert_eq!(warned.stdout, "survived\n");
}

#[test]
fn what_is_in_a_block_before_and_after() {
    let lines = |check: &str| {
        let done = fault("contents", &[&format!("HARDEN={check}")]);
        done.stdout
            .lines()
            .take(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines("0")[0], "1 1");
    assert_eq!(lines("zero"), ["0 0", "0 0"]);
    assert_eq!(lines("poison"), ["0 0", "170 170"]);
    assert_eq!(lines("quarantine")[0], "-37 -37");
}

#[test]
fn faults_that_are_not_ours_end_as_they_would() {
    for name in ["wild", "own_fault"] {
        for level in ["0", "1", "4"] {
            let done = fault(name, &[&format!("HARDEN={level}")]);
            assert_eq!(done.shell_status(), FAULTED, "{name} {level}: {done:#?}");
            assert_eq!(done.stderr, "", "{name} {level}");
        }
    }
}
