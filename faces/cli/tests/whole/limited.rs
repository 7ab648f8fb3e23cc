//! A limit of address space (`ulimit -v`): a command works, or says in one line what to raise.
//!
//! V1  Whatever the limit, there is no abort, no panic and no line of the runtime's.

use crate::tool::{Bench, Done, SKINFLINT, program, run};

/// The steps in which limits are tried.
const STEP: u64 = 2 << 20;

fn limited<'a>(bench: &Bench, bytes: u64, arguments: impl IntoIterator<Item = &'a str>) -> Done {
    let mut command = bench.command("prlimit");
    command
        .arg(format!("--as={bytes}"))
        .arg(SKINFLINT)
        .args(arguments);
    run(command)
}

/// Returns the least of the limits under which the loader can start the command at all.
fn least(bench: &Bench) -> u64 {
    let starts = |steps: u64| {
        let done = limited(bench, steps * STEP, ["--version"]);
        done.status.code() == Some(0)
    };
    let (mut low, mut high) = (0, (4 << 30) / STEP);
    assert!(starts(high), "4 GiB are enough");
    while high - low > 1 {
        let middle = low.midpoint(high);
        match starts(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    high * STEP
}

#[test]
fn a_limit_of_address_space_is_an_error_with_its_next_step() {
    let bench = Bench::new();
    let done = bench.record([program("predicted")]);
    assert_eq!(done.shell_status(), 0, "{done:#?}");
    let mut refused = 0;
    let least = least(&bench);
    for steps in 0..12 {
        let done = limited(&bench, least + steps * STEP, ["report", "main.sft"]);
        if done.status.code() == Some(0) {
            continue;
        }
        done.says(1, &["skinflint: out of memory", "ulimit -v"]);
        assert_eq!(done.stderr.lines().count(), 1, "{done:#?}");
        refused += 1;
    }
    assert!(refused > 0, "from {least} bytes on nothing was refused");
}
