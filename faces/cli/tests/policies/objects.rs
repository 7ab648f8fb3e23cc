//! Object traces as the commands tell them: `report x.sfo`, other references, saved results, nurseries, advice.
//!
//! Not here: figures of policies (`main`).

use super::*;

/// Returns what a command prints; it must succeed.
fn printed(folder: &Path, words: &[&str]) -> String {
    let output = tool(folder, words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_report_on_an_object_trace_adds_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    write_sample(&at.join("a.sfo"));
    let text = printed(at, &["report", "a.sfo"]);
    for part in [
        "complete: 101 objects read",
        "50 died",
        "up to 128 B",
        "half died within",
        "the runtime",
        "leaf",
        // The large one lives on.
        "Large (above 128 KiB, which no free list places): 1 object of 195 KiB",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: Value =
        serde_json::from_str(&printed(at, &["report", "a.sfo", "--json"])).expect("JSON");
    assert_eq!(json["complete"], true);
    assert_eq!(json["all"]["allocated"]["objects"], 101);
    assert_eq!(json["all"]["survivors"]["bytes"], 50 * 104 + 200_000);
    // Object 0 lived while 99 of 104 bytes and the large one were allocated; so did all that died, or nearly.
    let spans: Vec<u64> =
        serde_json::from_value(json["spans_longest_bytes"].clone()).expect("numbers");
    let span = spans
        .iter()
        .position(|longest| *longest >= 200_000)
        .expect("a span");
    assert_eq!(json["all"]["lives"][span]["objects"], 50);
    assert_eq!(json["kinds"][0]["name"], "leaf");
    let wrong = tool(at, &["report", "a.sfo", "--html", "x.html"]);
    assert!(said(&wrong).contains("has no stacks"), "{}", said(&wrong));
}

#[test]
fn a_damaged_block_is_named_and_the_others_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    printed(
        at,
        &[
            "gc",
            "--synthetic",
            "phases:2",
            "--output",
            "p.sfo",
            "--max-objects",
            "100000",
        ],
    );
    let whole: Value =
        serde_json::from_str(&printed(at, &["report", "p.sfo", "--json"])).expect("JSON");
    let mut bytes = std::fs::read(at.join("p.sfo")).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(at.join("p.sfo"), &bytes).expect("a file");
    let hurt: Value =
        serde_json::from_str(&printed(at, &["report", "p.sfo", "--json"])).expect("JSON");
    assert_eq!(
        (&whole["complete"], &hurt["complete"]),
        (&true.into(), &false.into())
    );
    let lost = hurt["damage"][0]["objects"].as_u64().expect("a number");
    let objects = |of: &Value| {
        of["all"]["allocated"]["objects"]
            .as_u64()
            .expect("a number")
    };
    assert_eq!(objects(&hurt) + lost, objects(&whole));
    assert!(lost > 0 && lost < 40_000, "a block: {lost}");
    let text = printed(at, &["report", "p.sfo"]);
    assert!(
        text.contains("the checksum of a block is wrong; passed over"),
        "{text}"
    );
    // Policies run what is there.
    let all = figures(
        at,
        &["gc", "p.sfo", "--json", "--runs", "1", "--with", "many"],
    );
    assert_eq!(all["objects"].as_u64(), Some(objects(&hurt)));
    let missing = all["missing"][0].as_str().expect("a sentence");
    assert!(missing.contains("passed over"), "{missing}");
}

#[test]
fn ratios_are_to_the_policy_that_was_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    write_sample(&at.join("a.sfo"));
    let text = printed(at, &["gc", "a.sfo", "--ref", "tight", "--with", "many"]);
    assert!(
        text.contains("× tight") && text.contains("worse than tight"),
        "{text}"
    );
    assert!(!text.contains("legacy"), "{text}");
    let wrong = tool(at, &["gc", "a.sfo", "--ref", "none"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        said(&wrong).contains("there is no such policy"),
        "{}",
        said(&wrong)
    );
}

#[test]
fn saved_results_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    write_sample(&at.join("a.sfo"));
    let words = ["gc", "a.sfo", "--with", "many", "--runs", "1"];
    let with = |more: &[&str]| tool(at, &[&words[..], more].concat());
    assert_eq!(with(&["--save", "old.json"]).status.code(), Some(0));
    let same = String::from_utf8(with(&["--baseline", "old.json"]).stdout).expect("text");
    assert!(same.contains("growth 2, compact sparse"), "{same}");
    assert!(
        !same.contains("pages") && !same.contains("refills"),
        "{same}"
    );
    // Other settings are another experiment.
    let other = with(&["--baseline", "old.json", "--growth", "3"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(said(&other).contains("nothing in it"), "{}", said(&other));
    // A figure that moved is told, however little.
    let text = std::fs::read_to_string(at.join("old.json")).expect("a file");
    let less = text.replace(
        "\"committed_mean\": 262144.0",
        "\"committed_mean\": 262143.0",
    );
    assert_ne!(text, less);
    std::fs::write(at.join("less.json"), less).expect("a file");
    let moved = String::from_utf8(with(&["--baseline", "less.json"]).stdout).expect("text");
    assert!(
        moved.contains("pages, mean") && moved.contains("262143.0 → 262144.0"),
        "{moved}"
    );
}

#[test]
fn behind_a_nursery_the_collector_asks_for_what_survives() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let mut writer = Writer::create(&at.join("a.sfo"), &Info::default()).expect("a file");
    let kind = writer.kind("leaf");
    // 4,096 objects of 64 bytes fill a nursery of 256 KiB; every fourth lives on, the others die at once.
    for id in 0..40_960 {
        writer.alloc(64, kind, Origin::Runtime);
        if id % 4 != 0 {
            writer.death(id);
        }
    }
    writer.finish().expect("written");
    let words = [
        "gc",
        "a.sfo",
        "--json",
        "--runs",
        "1",
        "--with",
        "many-origin",
        "--nursery",
        "256K",
    ];
    let all = figures(at, &words);
    let source = all["source"].as_str().expect("a sentence");
    // The first fills it with 1,024 that live and 3,072 that do not; then room is made for 3,072, of which a quarter lives:
    // each scavenge keeps 768 to 1,024 and promotes as many of the one before.
    assert!(
        source.contains("behind a nursery: 40960 objects"),
        "{source}"
    );
    let promoted = all["objects"].as_u64().expect("a number");
    assert!((7_500..10_240).contains(&promoted), "{promoted}: {source}");
    assert!(source.contains("0 objects too large for it"), "{source}");
    let none = figures(at, &words[..7]);
    assert_eq!(none["objects"], 40_960);
}

#[test]
fn maps_tell_a_sorted_list_from_an_unsorted_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = |more: &'static [&'static str]| {
        let usual = [
            "gc",
            "--synthetic",
            "maps:1",
            "--json",
            "--runs",
            "1",
            "--max-objects",
            "1200000",
        ];
        [&usual[..], &["--with", "single-list,map-space"], more].concat()
    };
    let sorted = figures(folder.path(), &words(&[]));
    for key in ["committed_mean", "refills", "moved_bytes"] {
        // The emptiest page is swept first, so the lists are sorted already.
        assert_eq!(
            row(&sorted, "single-list")[key],
            row(&sorted, "map-space")[key],
            "{key}"
        );
    }
    let unsorted = figures(folder.path(), &words(&["--sweep", "address"]));
    let after = |policy: &str| {
        row(&unsorted, policy)["committed_after"]
            .as_f64()
            .expect("a number")
    };
    assert!(
        after("map-space") < after("single-list"),
        "the fullest page first empties others"
    );
}

#[test]
fn advice_is_what_nothing_beats() {
    let folder = tempfile::tempdir().expect("a folder");
    let words = [
        "gc",
        "--synthetic",
        "phases:3",
        "--advise",
        "--max-objects",
        "60000",
    ];
    let json = printed(folder.path(), &[&words[..], &["--json"]].concat());
    let all: Value = serde_json::from_str(&json).expect("JSON");
    let advice = &all[0];
    let figure = |choice: &Value, key: &str| choice[key].as_f64().expect("a number");
    let front = advice["front"].as_array().expect("choices");
    for pair in front.windows(2) {
        assert!(figure(&pair[0], "memory_bytes") <= figure(&pair[1], "memory_bytes"));
        assert!(figure(&pair[0], "work") > figure(&pair[1], "work"));
    }
    let product = |choice: &Value| figure(choice, "memory_bytes") * figure(choice, "work");
    assert!(
        front
            .iter()
            .all(|choice| product(&advice["balanced"]) <= product(choice))
    );
    assert!(product(&advice["balanced"]) <= product(&advice["reference"]));
    assert_eq!(advice["reference"]["policy"], "legacy");
    let text = printed(folder.path(), &words);
    for part in ["least memory", "balanced", "least work", "growth"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
