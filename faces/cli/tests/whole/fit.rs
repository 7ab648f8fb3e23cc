//! `skinflint fit`: programs whose profile is worked out by hand, recorded, learned, read back.
//!
//! ```text
//!   fitted.c (its head) ─ record ─► main.sft ─ fit ─► app.fit ─► the allocator's own reader
//!                                                └──► --json  ─► the figures of the head
//! ```
//!
//! F1  Every figure is worked out here or in the head of the program, never copied from an output.
//! F2  A failing command leaves no file behind.

use serde_json::Value;
use skinflint_sizes::fit::{FLAG_INCOMPLETE, FLAG_SHORT, parse};
use skinflint_test_support::executable;

use crate::report::{Report, field, list, number, text};
use crate::tool::{Bench, Done, PATIENCE, Running, allocator, expected, program, run, run_within};

/// Records a program, which must print what it should.
#[track_caller]
fn recorded(bench: &Bench, name: &str, trace: &str) {
    let done = bench.tool([
        "record",
        "-q",
        "-o",
        trace,
        "--",
        program(name).to_str().expect("a path"),
    ]);
    assert_eq!(
        (done.stdout, done.status.code()),
        (expected(name), Some(0)),
        "{}",
        done.stderr
    );
}

/// Learns from traces, and returns the JSON.
#[track_caller]
fn learned(bench: &Bench, traces: &[&str]) -> Value {
    let done = bench.tool([&["fit", "-o", "app.fit", "--json"], traces].concat());
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    Report::read(&done.stdout).0
}

fn profile(bench: &Bench) -> Vec<u8> {
    std::fs::read(bench.path("app.fit")).expect("it was written")
}

#[track_caller]
fn slop(trace: &Value, when: &str) -> [u64; 3] {
    let names = ["requested_bytes", "slop_before_bytes", "slop_after_bytes"];
    names.map(|name| number(trace, &format!("{when}.{name}")))
}

/// What `fitted` does: a number of blocks, whether they are acquired (or released), their size, and
/// what each is given by the base classes and by the earned ones.
const FITTED: [(u64, bool, u64, u64, u64); 8] = [
    (2000, true, 600, 640, 608),
    (2000, false, 600, 640, 608),
    (300, true, 4360, 4608, 4368),
    (3000, true, 300, 320, 304),
    (1000, true, 500, 512, 512),
    (500, true, 264, 288, 288),
    (200, true, 30_000, 30_720, 30_720),
    (5, true, 100_000, 102_400, 102_400),
];

#[test]
fn a_program_worked_out_by_hand() {
    let bench = Bench::new();
    recorded(&bench, "fitted", "main.sft");
    let json = learned(&bench, &["main.sft"]);
    // 15 of 4,368 share 65,536 bytes: 4,369.07 each, 238.93 less than 4,608; 202 of 304 share 61,440:
    // 304.158, 15.842 less; 101 of 608 share 61,440: 608.317, 31.683 less.
    let earned: Vec<[u64; 4]> = list(&json, "earned")
        .iter()
        .map(|one| {
            ["size", "base", "most_live_blocks", "saved_bytes"].map(|name| number(one, name))
        })
        .collect();
    let wanted = [
        [304, 320, 3000, 47_524],
        [608, 640, 2000, 63_366],
        [4368, 4608, 300, 71_680],
    ];
    assert_eq!(earned, wanted);
    let trace = &list(&json, "traces")[0];
    assert_eq!(
        (number(trace, "acquisitions"), number(trace, "events")),
        (7005, 9005)
    );
    assert_eq!(slop(trace, "at_peak"), [9_340_000, 314_400, 194_400]);

    let (mut now, mut sums, mut acts) = ([0u64; 3], [0u64; 3], 0);
    for (blocks, comes, size, before, after) in FITTED {
        for _ in 0..blocks {
            for (now, by) in now.iter_mut().zip([size, before - size, after - size]) {
                *now = if comes { *now + by } else { *now - by };
            }
            (0..3).for_each(|i| sums[i] += now[i]);
            acts += 1;
        }
    }
    assert_eq!(acts, 9005);
    assert_eq!(slop(trace, "on_average"), sums.map(|sum| sum / acts));

    // A 32nd of what lives: 40,950 bytes of 4,368 are 10 pages, and 13 is the next with a tail of a
    // 64th; 28,500 of 304 are 7 pages, with a tail of 96; 38,000 of 608 are 10, with 224; 16,000 of
    // 512 are 4; 4,500 of 288 are 2 pages, with 128; 192,000 of 30,720 would be 47, but of those up to
    // 16 only 15 have no tail of a page.
    let file = profile(&bench);
    let view = parse(&file).expect("its reader takes it");
    let spans: Vec<(u16, u8)> = view.spans().collect();
    assert_eq!(
        spans,
        [
            (288, 2),
            (304, 7),
            (512, 4),
            (608, 10),
            (4368, 13),
            (30_720, 15)
        ]
    );
    assert_eq!(view.earned().collect::<Vec<_>>(), [304, 608, 4368]);
    assert_eq!(
        (view.program(), view.traces(), view.events()),
        ("fitted", 1, 9005)
    );
    assert_eq!(view.flags(), FLAG_SHORT, "well under 4 s");
    let report = bench.report();
    assert_eq!(
        view.first_unix_ns(),
        report.number("program.started_unix_ns")
    );
    assert_eq!(
        view.spare_pages(),
        (number(&json, "spare_bytes") / 4096) as u32
    );
}

/// Computes the same sum in another way: the concordance of what lives at the end, which is the peak.
#[test]
fn the_concordance_agrees() {
    let bench = Bench::new();
    recorded(&bench, "fitted", "main.sft");
    let counts = [
        "counts",
        "main.sft",
        "--at",
        "live",
        "--scheme",
        "skinflint",
    ];
    let done = bench.tool(counts);
    let head = "5005 blocks live: 9340000 bytes requested, 9654400 usable as skinflint would give, 314400 slop";
    assert!(done.stdout.starts_with(head), "{done:#?}");
}

#[test]
fn the_buffers_of_sqlite3() {
    let bench = Bench::new();
    let sql = b"create table t(a integer primary key, b blob);\n\
        with recursive n(i) as (select 1 union all select i+1 from n where i<4000)\n\
        insert into t select i, zeroblob(300) from n;\n\
        pragma page_size; pragma page_count;\n";
    let tool = bench.recording(&[], ["sqlite3", ":memory:"]);
    let done = run_within(tool, sql, PATIENCE);
    assert_eq!(
        done.status.code(),
        Some(0),
        "apt-get install sqlite3: {done:#?}"
    );
    let said: Vec<u64> = done
        .stdout
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let (page, pages) = (said[0], said[1]);
    assert!(page == 4096 && pages > 300, "{said:?}");
    let json = learned(&bench, &["main.sft"]);
    // Each page of the database lives in one buffer of 4,096 + 272 bytes; base classes give it 4,608,
    // 240 more. Few buffers are anything else.
    let earned = list(&json, "earned");
    let buffer = earned
        .iter()
        .find(|one| number(one, "size") == 4368)
        .expect("earned");
    let most = number(buffer, "most_live_blocks");
    assert!(
        (pages..pages + 20).contains(&most),
        "{most} buffers, {pages} pages"
    );
    let [_, before, after] = slop(&list(&json, "traces")[0], "at_peak");
    assert!(
        before >= pages * 240 && after < before / 4,
        "{pages} pages: {before}, {after}"
    );
    assert!(before - after >= pages * 240, "{before} - {after}");
    assert_eq!(text(&json, "program"), "sqlite3");
}

#[test]
fn what_comes_again_like_the_tide_is_retained() {
    let bench = Bench::new();
    recorded(&bench, "tide", "main.sft");
    learned(&bench, &["main.sft"]);
    let file = profile(&bench);
    let view = parse(&file).expect("good");
    assert_eq!(view.spare_pages(), 2048);
    // 8 MiB / 32 are 64 pages, and 16 the most.
    assert_eq!(view.spans().collect::<Vec<_>>(), [(32_768, 16)]);
    assert_eq!(view.earned().count(), 0);
}

#[test]
fn several_traces_of_one_program() {
    let bench = Bench::new();
    recorded(&bench, "fitted", "one.sft");
    recorded(&bench, "fitted", "two.sft");
    let one = learned(&bench, &["one.sft"]);
    let both = learned(&bench, &["two.sft", "one.sft"]);
    assert_eq!(field(&one, "earned"), field(&both, "earned"));
    assert_eq!(field(&one, "spans"), field(&both, "spans"));
    assert_eq!(number(&both, "events"), 2 * 9005);
    let file = profile(&bench);
    let view = parse(&file).expect("good");
    assert_eq!(view.traces(), 2);
    assert!(view.first_unix_ns() < view.last_unix_ns());
    // The oldest comes first, whatever order they were given in.
    assert_eq!(text(&list(&both, "traces")[0], "file"), "one.sft");

    recorded(&bench, "longjmp", "other.sft");
    let done = bench.tool(["fit", "-o", "both.fit", "one.sft", "other.sft"]);
    done.says(
        2,
        &[
            "one.sft is of fitted",
            "other.sft of longjmp",
            "one program",
        ],
    );
    assert!(!bench.path("both.fit").exists());
}

#[test]
fn every_damage_to_a_real_profile_is_found() {
    let bench = Bench::new();
    recorded(&bench, "fitted", "main.sft");
    learned(&bench, &["main.sft"]);
    let file = profile(&bench);
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&flipped).is_err(), "bit {bit} of {}", file.len() * 8);
    }
    (0..file.len()).for_each(|len| assert!(parse(&file[..len]).is_err(), "{len} bytes"));
}

#[test]
fn a_profile_is_shown() {
    let bench = Bench::new();
    recorded(&bench, "fitted", "main.sft");
    let json = learned(&bench, &["main.sft"]);
    let done = bench.tool(["fit", "--show", "app.fit"]);
    assert_eq!((done.status.code(), &*done.stderr), (Some(0), ""));
    let build_id = text(&json, "build_id");
    assert!(build_id.len() >= 16, "{build_id}: gcc gives one");
    for wanted in [
        "program: fitted",
        build_id,
        "4,368 instead of  4,608",
        "4,368 in spans of  52.0 KiB",
        "was short",
    ] {
        assert!(done.stdout.contains(wanted), "no {wanted:?} in {done:#?}");
    }
    let done = bench.tool(["fit", "--show", "app.fit", "--json"]);
    let shown = Report::read(&done.stdout).0;
    for same in [
        "program",
        "build_id",
        "flags",
        "events",
        "first_unix_ns",
        "last_unix_ns",
        "spare_bytes",
    ] {
        assert_eq!(field(&shown, same), field(&json, same), "{same}");
    }
    assert!(shown.get("traces").is_none());

    let mut file = profile(&bench);
    file[70] ^= 1;
    std::fs::write(bench.path("app.fit"), &file).expect("its own folder");
    let refused: [(&str, &[&str]); 4] = [
        ("app.fit", &["app.fit: it is damaged", "again"]),
        (
            "main.sft",
            &["main.sft: it is no fit profile", "skinflint fit"],
        ),
        (
            "absent.fit",
            &["absent.fit", "No such file", "check the name"],
        ),
        (".", &["directory"]),
    ];
    for (file, texts) in refused {
        let done = bench.tool(["fit", "--show", file]);
        done.says(1, texts);
        assert_eq!(
            (&*done.stdout, done.stderr.lines().count()),
            ("", 1),
            "{done:#?}"
        );
    }
}

/// Checks F2, with each of these in the one sentence.
#[track_caller]
fn refused(bench: &Bench, status: i32, arguments: &[&str], texts: &[&str]) -> Done {
    let done = bench.tool([&["fit"], arguments].concat());
    done.says(status, texts);
    let left = std::fs::read_dir(bench.path("."))
        .expect("its own folder")
        .flatten();
    for entry in left {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!name.contains("new.fit"), "{name} was left behind");
    }
    done
}

#[test]
fn what_cannot_be_learned_or_written_is_refused() {
    let bench = Bench::new();
    std::fs::write(bench.path("empty.sft"), "").expect("a file");
    refused(
        &bench,
        1,
        &["-o", "new.fit", "empty.sft"],
        &["empty.sft is empty", "record again"],
    );
    refused(
        &bench,
        1,
        &["-o", "new.fit", "absent.sft"],
        &["absent.sft", "check the name"],
    );
    assert_eq!(bench.record(["true"]).status.code(), Some(0));
    let nothing = &[
        "main.sft: nothing was recorded",
        "skinflint report main.sft",
    ];
    refused(&bench, 1, &["-o", "new.fit", "main.sft"], nothing);
    recorded(&bench, "longjmp", "main.sft");
    refused(&bench, 2, &["main.sft"], &["--output"]);
    refused(&bench, 2, &["-o", "new.fit"], &["TRACE"]);
    refused(
        &bench,
        2,
        &["-o", "new.fit", "--show", "main.sft"],
        &["cannot be used with"],
    );
    let nowhere = ["-o", "no/such/new.fit", "main.sft"];
    refused(
        &bench,
        2,
        &nowhere,
        &["no/such/new.fit", "another file with -o"],
    );
    refused(&bench, 2, &["-o", "-", "main.sft"], &["-o -", "app.fit"]);
    assert!(!bench.path("-").exists());
    // A profile is no trace.
    learned(&bench, &["main.sft"]);
    refused(
        &bench,
        1,
        &["-o", "new.fit", "app.fit"],
        &["app.fit is not a Skinflint trace"],
    );
    // Not a regular file: written as it is, never replaced.
    let done = bench.tool(["fit", "-o", "/dev/stdout", "main.sft"]);
    assert_eq!(
        (done.status.code(), &done.stdout.as_bytes()[3..6]),
        (Some(0), &b"SFP"[..])
    );
}

#[test]
fn a_cut_trace_is_learned_from_and_said_to_be_cut() {
    let bench = Bench::new();
    recorded(&bench, "fitted", "main.sft");
    let whole = std::fs::read(bench.path("main.sft")).expect("the trace");
    let before = learned(&bench, &["main.sft"]);
    std::fs::write(bench.path("cut.sft"), &whole[..whole.len() - 40]).expect("a file");
    let done = bench.tool(["fit", "-o", "app.fit", "cut.sft"]);
    done.says(0, &["warning: cut.sft: incomplete: No end mark"]);
    assert_eq!(done.stdout, "");
    let file = profile(&bench);
    let view = parse(&file).expect("good");
    assert_eq!(view.flags(), FLAG_INCOMPLETE | FLAG_SHORT);
    let flags: Vec<_> = list(&before, "flags").iter().collect();
    assert_eq!(flags, ["short"]);
}

#[test]
fn what_is_said_is_what_was_learned() {
    let bench = Bench::new();
    recorded(&bench, "fitted", "main.sft");
    let done = bench.tool(["fit", "-o", "app.fit", "main.sft"]);
    // 314,400 bytes are 307 KiB, 3.4 % of 9,340,000; 194,400 are 190 KiB, 2.1 %.
    done.says(
        0,
        &[
            "app.fit: ",
            "for fitted, learned from 9,005 events in 1 trace",
            "slop at the heap's peak  307 KiB -> 190 KiB   (3.4% -> 2.1% of 8.91 MiB asked for)",
            "earned classes: 3",
            "     4,368          4,608         300         70.0 KiB",
            "span lengths: 0 of 4 KiB, 2 of 8 to 16, 1 of 20 to 32, 3 of 36 to 64 (classes used: 6)",
            "warning: the longest trace lasted",
            "SKINFLINT_FIT=app.fit skinflint exec -- fitted",
        ],
    );
    assert_eq!(done.stdout, "");
    // A closed pipe is success.
    let mut running = Running::start(bench.skinflint(["fit", "--show", "app.fit", "--json"]));
    running.close_stdout();
    assert_eq!(running.finish(PATIENCE).status.code(), Some(0));
    let mut quiet = bench.skinflint(["fit", "-o", "/dev/null", "main.sft"]);
    quiet.env("LC_ALL", "C.UTF-8");
    assert_eq!(run(quiet).status.code(), Some(0));
    assert!(std::path::Path::new("/dev/null").exists());
}

/// Returns what `given` prints on our allocator with this profile, and what is reported.
fn given(bench: &Bench, program: &std::path::Path, profile: Option<&str>) -> (String, String) {
    let mut command = bench.command(program);
    command.env("LD_PRELOAD", allocator());
    command.env_remove("SKINFLINT_FIT");
    if let Some(profile) = profile {
        command.env("SKINFLINT_FIT", profile);
    }
    let done = run(command);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    (done.stdout, done.stderr)
}

#[test]
fn the_allocator_takes_it_and_only_its_own() {
    let bench = Bench::new();
    let own = program("given");
    let record = bench.record([own.as_os_str(), "fill".as_ref()]);
    assert_eq!(record.status.code(), Some(0), "{record:#?}");
    learned(&bench, &["main.sft"]);
    // The base classes; and with the profile 4,368 between 4,096 and 4,608, for all that it holds.
    let base = "4096: 4096\n4340: 4608\n4360: 4608\n4369: 4608\n300: 320\n".to_owned();
    let fitted = "4096: 4096\n4340: 4368\n4360: 4368\n4369: 4608\n300: 320\n".to_owned();
    let nothing = String::new();
    assert_eq!(given(&bench, &own, None), (base.clone(), nothing.clone()));
    assert_eq!(
        given(&bench, &own, Some("")),
        (base.clone(), nothing.clone())
    );
    assert_eq!(
        given(&bench, &own, Some("app.fit")),
        (fitted, nothing.clone())
    );
    // The same program under another name is another program.
    executable::copied(&own, &bench.path("taken"), 0o755);
    let taken = given(&bench, &bench.path("taken"), Some("app.fit"));
    assert_eq!(taken, (base.clone(), nothing));
    let mut file = profile(&bench);
    file[64] ^= 16;
    std::fs::write(bench.path("bad.fit"), &file).expect("its own folder");
    for (profile, reason) in [
        ("bad.fit", "the checksum is wrong"),
        ("absent.fit", "no such file"),
        ("main.sft", "no fit profile"),
    ] {
        let (printed, said) = given(&bench, &own, Some(profile));
        assert_eq!(printed, base);
        let line = format!("skinflint: SKINFLINT_FIT={profile} is ignored: ");
        assert!(said.starts_with(&line) && said.contains(reason), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
