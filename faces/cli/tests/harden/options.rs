//! The allocator's variables: policies, bad values, and what the help says.

use crate::tool::Bench;
use crate::{ABORTED, fault};

#[test]
fn the_policy_decides_what_follows() {
    let aborted = fault("double_small", &["BAD_FREE=abort"]);
    assert_eq!(aborted.shell_status(), ABORTED, "{aborted:#?}");
    assert_eq!(aborted.stderr.lines().count(), 1);
    let warned = fault("double_small", &["BAD_FREE=warn"]);
    assert_eq!(
        (warned.stderr.lines().count(), warned.shell_status()),
        (1, 0)
    );
    assert_eq!(warned.stdout, "survived\n");
    let ignored = fault("double_small", &["BAD_FREE=ignore"]);
    assert_eq!((ignored.stderr.as_str(), ignored.shell_status()), ("", 0));
}

#[test]
fn a_policy_holds_for_every_check() {
    for (name, check) in [
        ("large_slack", "guard"),
        ("large_behind", "guard"),
        ("large_late", "quarantine"),
        ("small_behind", "canary"),
        ("late_write", "quarantine"),
        ("late_write_reused", "poison"),
    ] {
        let check = format!("HARDEN={check}");
        let warned = fault(name, &[&check, "BAD_FREE=warn"]);
        assert!(
            warned.stderr.starts_with("skinflint: "),
            "{name}: {warned:#?}"
        );
        assert_eq!(warned.stdout, "survived\n", "{name}: {warned:#?}");
        let ignored = fault(name, &[&check, "BAD_FREE=ignore"]);
        assert_eq!(ignored.stderr, "", "{name}");
        assert_eq!(ignored.stdout, "survived\n", "{name}: {ignored:#?}");
    }
}

#[test]
fn a_bad_value_is_answered_with_the_good_ones_and_the_default() {
    for (option, texts) in [
        (
            "BAD_FREE=die",
            [
                "SKINFLINT_BAD_FREE=die: not abort, warn or ignore",
                "taken as abort",
            ],
        ),
        (
            "HARDEN=7",
            ["SKINFLINT_HARDEN=7: not 0 to 4, or a list", "taken as 0"],
        ),
        (
            "SAMPLE_EVERY=0",
            ["SKINFLINT_SAMPLE_EVERY=0: not a number", "taken as 5000"],
        ),
        (
            "QUARANTINE_BYTES=x",
            ["SKINFLINT_QUARANTINE_BYTES=x: not a number", "taken as 16M"],
        ),
        (
            "PURGE=no",
            ["SKINFLINT_PURGE=no: not on or off", "taken as on"],
        ),
        (
            "DECAY_MS=-1",
            ["SKINFLINT_DECAY_MS=-1: not a number", "taken as 500"],
        ),
        (
            "THP=maybe",
            ["SKINFLINT_THP=maybe: not on or off", "taken as off"],
        ),
        (
            "RESERVE=1x",
            ["SKINFLINT_RESERVE=1x: not a number", "taken as 0"],
        ),
    ] {
        let done = fault("late_store", &[option]);
        assert_eq!(done.stdout, "survived\n", "{option}: {done:#?}");
        assert_eq!(done.stderr.lines().count(), 1, "{option}: {done:#?}");
        for text in texts {
            assert!(done.stderr.contains(text), "{option}: {done:#?}");
        }
    }
}

#[test]
fn good_values_and_empty_ones_are_taken_in_silence() {
    for option in [
        "PURGE=off",
        "DECAY_MS=0",
        "THP=on",
        "RESERVE=1M",
        "HARDEN=",
        "BAD_FREE=warn",
    ] {
        let done = fault("late_store", &[option]);
        assert_eq!(
            (done.stdout.as_str(), done.stderr.as_str()),
            ("survived\n", ""),
            "{option}"
        );
    }
}

#[test]
fn the_help_of_exec_lists_every_variable_of_the_allocator() {
    let help = Bench::new().tool(["exec", "--help"]);
    for variable in skinflint_base::env::ALL {
        let is_listed = help.stdout.contains(variable.name());
        let expected = variable.reader == skinflint_base::env::Reader::Allocator;
        assert_eq!(is_listed, expected, "{}: {}", variable.name(), help.stdout);
    }
    assert!(
        help.stdout.contains("abort, warn or ignore"),
        "{}",
        help.stdout
    );
}
