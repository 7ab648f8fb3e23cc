//! Each kind of budget, held and broken (check.V1).

use serde_json::Value;

use crate::recorded;
use crate::report::number;
use crate::tool::{Bench, Done};

#[track_caller]
fn checked(bench: &Bench, arguments: &[&str], status: i32) -> Done {
    let mut all = vec!["check"];
    all.extend(arguments);
    all.push("main.sft");
    let done = bench.tool(all);
    assert_eq!(done.status.code(), Some(status), "{arguments:?}: {done:#?}");
    done
}

/// What the head of `predicted.c` states.
const PREDICTED: [(&str, u64, &str); 8] = [
    ("peak-live", 2_322_960, "large"),
    ("peak-blocks", 444, "small_sizes"),
    ("peak-slop", 2_322_960 - 2_310_348, "large"),
    ("live-at-end", 1_272_920, "large"),
    ("blocks-at-end", 456, "small_sizes"),
    ("slop-at-end", 1_272_920 - 1_264_256, "large"),
    ("allocations", 7662, "temporary"),
    // Blocks A and B: 1 MiB each, mapped.
    ("stack=large", 2_105_312, "large"),
];

#[test]
fn every_exact_figure_is_held_at_itself_and_broken_at_one_less() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    for (kind, figure, stack) in PREDICTED {
        let option = |limit: u64| match kind.split_once('=') {
            Some((kind, of)) => format!("--{kind}={of}={limit}"),
            None => format!("--{kind}={limit}"),
        };
        let held = checked(&bench, &[&option(figure)], 0);
        assert!(held.stdout.starts_with("HELD  predicted"), "{held:#?}");
        let broken = checked(&bench, &[&option(figure - 1)], 3);
        let mut lines = broken.stdout.lines().skip(2);
        let first = lines.next().expect("a stack");
        assert!(
            first.contains(&format!("by {stack} (")),
            "{kind}: {broken:#?}"
        );
    }
}

#[test]
fn growth_between_marks_leaves_the_first_interval_out() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    checked(&bench, &["--growth-per", "round=1040"], 0);
    let broken = checked(&bench, &["--growth-per", "round=1039"], 3);
    assert!(broken.stdout.contains("4.06 KiB  by leak ("), "{broken:#?}");
    // Neither what the first interval kept nor what comes and goes.
    assert_eq!(broken.stdout.matches("  by ").count(), 1, "{broken:#?}");
    checked(&bench, &["--growth-per", "round"], 3);
    checked(
        &bench,
        &["--live-at-end", "14168", "--allocations", "341"],
        0,
    );
}

#[test]
fn a_limit_within_the_readings_error_is_not_decided() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    let figure = checked(&bench, &["--peak-rss", "1GiB", "--json"], 0).stdout;
    let figure: Value = serde_json::from_str(&figure).expect("JSON");
    let range = &figure["budgets"][0]["figure"];
    let (low, high) = (range["low"].as_u64(), range["high"].as_u64());
    let (low, high) = (low.expect("low"), high.expect("high"));
    assert!(low < high && low > 1 << 20, "{range}");
    let limit = |bytes: u64| format!("--peak-rss={bytes}");
    checked(&bench, &[&limit(high)], 0);
    checked(&bench, &[&limit(low - 1)], 3);
    for bytes in [low, high - 1] {
        let open = checked(&bench, &[&limit(bytes)], 4);
        assert!(open.stdout.starts_with("NOT DECIDED"), "{open:#?}");
        assert!(
            open.stdout.contains("lies within the reading's error"),
            "{open:#?}"
        );
    }
}

#[test]
fn pinned_bytes_are_the_reports() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    let report = bench.report();
    let end = report.number("at") as usize;
    let pinned = number(&report.list("instants")[end], "fragments.pinned_bytes");
    assert!(pinned > 0);
    checked(&bench, &[&format!("--pinned-at-end={pinned}")], 0);
    checked(&bench, &[&format!("--pinned-at-end={}", pinned - 1)], 3);
}

#[test]
fn what_calls_read_and_wrote_is_held_to_its_bytes() {
    let bench = Bench::new();
    let script =
        "dd if=/dev/zero bs=1000 count=3000 status=none | dd of=/dev/null bs=1000 status=none";
    let done = bench.record(["sh", "-c", script]);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    if !std::path::Path::new("/proc/self/io").exists() {
        checked(&bench, &["--bytes-read=1TiB"], 4);
        return;
    }
    // The shell waited for both; the recorder in the three writes nothing.
    checked(&bench, &["--bytes-written=6000000"], 0);
    let broken = checked(&bench, &["--bytes-written=5999999"], 3);
    assert!(broken.stdout.contains("bytes-written"), "{broken:#?}");
    checked(&bench, &["--bytes-read=7MB"], 0);
    checked(&bench, &["--bytes-read=5999999"], 3);
}

#[test]
fn limits_of_a_baseline_are_broken_by_what_grew() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    std::fs::rename(bench.path("main.sft"), bench.path("old.sft")).expect("renamed");
    recorded(&bench, "predicted");
    let against = |limit| ["--baseline", "old.sft", "--live-at-end", limit];
    // 14168 before, 1272920 now.
    checked(&bench, &against("+1258752"), 0);
    let broken = checked(&bench, &against("+1258751"), 3);
    assert!(
        broken.stdout.contains("by large (") && broken.stdout.contains("(from 0 B to 1.00 MiB)"),
        "{broken:#?}"
    );
    checked(&bench, &against("+8885%"), 0);
    checked(&bench, &against("+8884%"), 3);
    checked(&bench, &against("-5%"), 3);
}

#[test]
fn an_incomplete_recording_is_never_held() {
    let bench = Bench::new();
    recorded(&bench, "predicted");
    let whole = std::fs::read(bench.path("main.sft")).expect("the trace");
    std::fs::write(bench.path("main.sft"), &whole[..whole.len() * 2 / 3]).expect("cut");
    let open = checked(&bench, &["--peak-live", "1GiB"], 4);
    assert!(open.stdout.contains("INCOMPLETE"), "{open:#?}");
    assert!(open.stdout.contains("  missing: "), "{open:#?}");
}

#[test]
fn a_misspelt_stack_or_mark_is_not_held() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    let open = checked(&bench, &["--stack", "lek=1GiB"], 4);
    assert!(open.stdout.contains("matches \"lek\""), "{open:#?}");
    let open = checked(&bench, &["--growth-per", "rond=1GiB"], 4);
    assert!(open.stdout.contains("0 marks called \"rond\""), "{open:#?}");
    assert!(
        open.stdout.contains("this recording has: round"),
        "{open:#?}"
    );
}

#[test]
fn a_file_has_budgets_and_options_go_before_it() {
    let bench = Bench::new();
    recorded(&bench, "rounds");
    std::fs::write(
        bench.path("m.toml"),
        "baseline = \"main.sft\"\n[budget]\nlive-at-end = \"+0\"\nallocations = 340\n\
         stack = { \"leak\" = \"4160\" }\ngrowth-per = { round = 1040 }\n",
    )
    .expect("a file");
    let broken = checked(&bench, &["--budgets", "m.toml"], 3);
    assert_eq!(broken.stdout.matches("  held   ").count(), 3, "{broken:#?}");
    assert!(
        broken.stdout.contains("broken       allocations"),
        "{broken:#?}"
    );
    checked(&bench, &["--budgets", "m.toml", "--allocations", "341"], 0);
}
