//! Whose blocks pin which pages: planted to the page on glibc, by a judge under every allocator, and on
//! real programs against the books.
//!
//! ```text
//!   pins.c (its head) ─► pins.json: pages ─► shares by the rule ─┬─► the report's, to the byte
//!   pins scatter ─► its survivors' addresses ─► judge ───────────┘
//!   redis, python, ruby ─► shares + nobody's pages = free bytes of the books
//! ```
//!
//! N1  The judge knows addresses from the program, and nothing of the trace.
//! N2  Shares and nobody's pages add up to the free bytes of pages to the byte, and with what the kernel
//!     listed and did not count to the books'. Where the program waited for its snapshot (a mark, the end)
//!     that is a hundredth at most.

use std::os::unix::net::UnixStream;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use skinflint_test_support::need;

use crate::programs::recorded;
use crate::report::{Report, field, list, number, text};
use crate::tool::{Bench, PATIENCE, Running, allocator, program, root, run, run_within};

const PAGE: u64 = 4096;

/// Returns the report's instant.
fn instant(report: &Report) -> &Value {
    &report.list("instants")[report.number("at") as usize]
}

/// Returns the function of a row.
fn function_of<'a>(report: &'a Report, row: &Value) -> &'a str {
    report.own_functions(number(row, "node"), "pins")[0]
}

/// Checks N2: that the figures of every instant add up; returns how many instants have any.
#[track_caller]
fn adds_up(report: &Report) -> usize {
    let mut seen = 0;
    for instant in report.list("instants") {
        let all = field(instant, "fragments");
        if all.is_null() {
            continue;
        }
        seen += 1;
        let of = |name: &str| number(all, name);
        let shares = |rows: &str| -> u64 {
            let rows = list(all, rows).iter();
            rows.map(|row| number(row, "free_bytes")).sum()
        };
        let pinned = shares("pins") + number(all, "others.free_bytes");
        assert_eq!(pinned, of("pinned_bytes"), "{}", instant["label"]);
        assert_eq!(pinned + of("nobodys_bytes"), of("free_bytes"));
        assert_eq!(of("used_bytes") + of("free_bytes"), of("resident_bytes"));
        assert_eq!(of("pages") * PAGE, of("resident_bytes"));
        let rows = list(field(instant, "books"), "rows").iter();
        let mut free = rows.filter(|row| text(row, "id") == "allocator-free");
        let free = number(free.next().expect("a row"), "bytes");
        let counted = of("free_bytes") - of("uncounted_bytes") + of("unread_bytes");
        assert_eq!(counted, free, "{}", instant["label"]);
    }
    let (own, of) = (instant(report), |name| {
        number(field(instant(report), "fragments"), name)
    });
    if ["mark", "end"].contains(&text(own, "kind")) {
        let apart = of("uncounted_bytes").max(of("unread_bytes"));
        assert!(apart * 100 <= of("free_bytes"), "{own:#}");
    }
    seen
}

/// The shares that the rule gives a function.
#[derive(Default, PartialEq, Eq, Debug)]
struct Share {
    free: u64,
    sole_free: u64,
    sole: u64,
    joint: u64,
}

/// Shares a page's free bytes among its blocks, in order.
fn share(shares: &mut BTreeMap<String, Share>, blocks: &[(String, u64)]) {
    let used: u64 = blocks.iter().map(|(_, bytes)| bytes).sum();
    let (free, many) = (PAGE - used, blocks.len() as u64);
    let names: BTreeSet<&String> = blocks.iter().map(|(name, _)| name).collect();
    for (index, (name, _)) in blocks.iter().enumerate() {
        let more = u64::from((index as u64) < free % many);
        shares.entry(name.clone()).or_default().free += free / many + more;
    }
    for name in &names {
        let of = shares.entry((*name).clone()).or_default();
        match names.len() {
            1 => (of.sole, of.sole_free) = (of.sole + 1, of.sole_free + free),
            _ => of.joint += 1,
        }
    }
}

fn shares_of(report: &Report, rows: &[Value]) -> BTreeMap<String, Share> {
    let mut found: BTreeMap<String, Share> = BTreeMap::new();
    for row in rows {
        let share = Share {
            free: number(row, "free_bytes"),
            sole_free: number(row, "sole_free_bytes"),
            sole: number(row, "sole_pages"),
            joint: number(row, "joint_pages"),
        };
        let name = function_of(report, row).to_owned();
        assert_eq!(found.insert(name, share), None, "a function twice");
    }
    found
}

#[test]
fn planted_pins_to_the_page() {
    let bench = Bench::new();
    recorded(&bench, "pins");
    let file = std::fs::read_to_string(root().join("tests/programs/pins.json")).expect("there");
    let predicted: Value = serde_json::from_str(&file).expect("JSON");
    let mut pages = BTreeMap::new();
    for page in list(&predicted, "pages") {
        let block = |block: &Value| {
            let name = block[0].as_str().expect("a function").to_owned();
            (name, block[1].as_u64().expect("bytes"))
        };
        let blocks: Vec<_> = page.as_array().expect("blocks").iter().map(block).collect();
        share(&mut pages, &blocks);
    }
    for at in ["pinned", "end"] {
        let report = bench.report_at("main.sft", at);
        report.is_complete();
        let all = field(instant(&report), "fragments");
        for (name, wanted) in field(&predicted, "heap").as_object().expect("figures") {
            assert_eq!(field(all, name), wanted, "{name} at {at}");
        }
        // One stack each: functions and stacks are the same.
        for rows in ["pins", "functions"] {
            let rows = list(all, rows);
            assert_eq!(shares_of(&report, rows), pages, "by the pages, at {at}");
            let functions = field(&predicted, "functions").as_object().expect("figures");
            assert_eq!(rows.len(), functions.len());
            for row in rows {
                let wanted = &functions[function_of(&report, row)];
                for (name, wanted) in wanted.as_object().expect("figures") {
                    let found = match name.ends_with("acquisitions") {
                        true => field(row, &format!("age.{name}")),
                        false => field(row, name),
                    };
                    assert_eq!(found, wanted, "{name} of {row:#} at {at}");
                }
                let (median, oldest) = (number(row, "age.median_ns"), number(row, "age.oldest_ns"));
                assert!(median <= oldest, "{row:#}");
            }
        }
        assert!(adds_up(&report) >= 3, "peak, end and the mark");
    }
}

/// Returns the survivors that the program printed: address, usable bytes, function.
fn survivors(stdout: &str) -> Vec<(u64, u64, String)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().expect("a number");
        let name = match words[2] {
            "h" => "parse_header",
            "s" => "session",
            "c" => "config",
            _ => "scratch",
        };
        (number(0), number(1), name.to_owned())
    };
    let mut all: Vec<_> = stdout.lines().map(line).collect();
    all.sort();
    all
}

/// Returns the judge's shares (N1): pages by their blocks.
fn judged(blocks: &[(u64, u64, String)], header: fn(u64, u64) -> u64) -> BTreeMap<String, Share> {
    let mut pages: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    for (addr, usable, name) in blocks {
        let (begin, end) = (addr - header(*addr, *usable), addr + usable);
        for page in begin / PAGE..end.div_ceil(PAGE) {
            let bytes = end.min((page + 1) * PAGE) - begin.max(page * PAGE);
            pages.entry(page).or_default().push((name.clone(), bytes));
        }
    }
    let mut shares = BTreeMap::new();
    pages.values().for_each(|blocks| share(&mut shares, blocks));
    shares
}

/// Returns glibc's header: 16 bytes before a block with a mapping of its own, else 8.
fn glibc_header(addr: u64, usable: u64) -> u64 {
    match addr % PAGE == 16 && (usable + 16).is_multiple_of(PAGE) {
        true => 16,
        false => 8,
    }
}

#[test]
fn scattered_pins_under_every_allocator() {
    let ours = allocator().display().to_string();
    for (library, spans) in [
        ("", false),
        ("libjemalloc.so.2", true),
        ("libmimalloc.so.2.0", true),
        ("libtcmalloc_minimal.so.4", false),
        (ours.as_str(), false),
    ] {
        if library.starts_with("lib") && !need::library(library) {
            continue;
        }
        let bench = Bench::new();
        let options = ["--preload", library];
        let options = if library.is_empty() {
            &[][..]
        } else {
            &options
        };
        let pins = program("pins");
        let done = run(bench.recording(options, [pins.as_os_str(), "scatter".as_ref()]));
        assert_eq!(done.status.code(), Some(0), "{library}: {done:#?}");
        let blocks = survivors(&done.stdout);
        assert!((900..1100).contains(&blocks.len()), "{}", blocks.len());
        let header = match library {
            "" => glibc_header,
            _ => |_, _| 0,
        };
        let report = bench.report_at("main.sft", "scattered");
        let all = field(instant(&report), "fragments");
        let is_ours = |row: &&Value| !report.own_functions(number(row, "node"), "pins").is_empty();
        let (rows, others): (Vec<Value>, Vec<Value>) = list(all, "pins")
            .iter()
            .cloned()
            .partition(|row| is_ours(&row));
        let (found, wanted) = (shares_of(&report, &rows), judged(&blocks, header));
        if !spans && others.iter().all(|row| number(row, "joint_pages") == 0) {
            assert_eq!(found, wanted, "{library}");
        }
        // gperftools brings blocks of the C++ library, which take their part of pages that we share.
        let theirs = |row: &Value| number(row, "free_bytes") + number(row, "live_bytes");
        let theirs: u64 = others.iter().map(theirs).sum();
        let sum = |shares: &BTreeMap<String, Share>| -> (u64, u64, u64) {
            let of = |of: fn(&Share) -> u64| shares.values().map(of).sum();
            (
                of(|one| one.free),
                of(|one| one.sole + one.joint),
                shares.len() as u64,
            )
        };
        let (found, wanted) = (sum(&found), sum(&wanted));
        if spans {
            // Such an allocator gives a span back as a whole: what is pinned is more than the pages of the blocks, by
            // whole pages, and by no more than what is free in all spans.
            let free = number(all, "spans.resident_bytes") - number(all, "spans.used_bytes");
            assert!(
                (1..=free / PAGE).any(|pages| found.0 == wanted.0 + pages * PAGE)
                    && wanted.1 < found.1,
                "{library}: {found:?} {wanted:?} {free}"
            );
            assert_eq!(found.2, wanted.2, "{library}");
        } else {
            assert!(
                found.0 <= wanted.0 && wanted.0 - found.0 <= theirs,
                "{library}: {found:?} {wanted:?}"
            );
            assert_eq!((found.1, found.2), (wanted.1, wanted.2), "{library}");
        }
        let shared = others.iter().any(|row| number(row, "joint_pages") > 0);
        assert!(
            !shared || library.contains("tcmalloc"),
            "{library}: {others:#?}"
        );
        assert!(adds_up(&report) >= 3);
        assert_eq!(field(all, "spans").is_object(), spans, "{library}");
        if spans {
            // Small blocks lie in spans; and none of those is larger than its allocator makes them.
            let (many, bytes) = (
                number(all, "spans.spans"),
                number(all, "spans.resident_bytes"),
            );
            assert!(many > 0 && bytes <= many * (64 << 10), "{library}: {all:#}");
            assert!(number(all, "spans.blocks") > blocks.len() as u64 / 2);
            assert!(number(all, "spans.used_bytes") < bytes);
        }
    }
}

/// Checks that much is pinned and attributed at the report's instant, and that functions add up too.
#[track_caller]
fn attributed(report: &Report) {
    assert!(adds_up(report) > 0, "no instant has pages");
    let all = field(instant(report), "fragments");
    let pinned = number(all, "pinned_bytes");
    assert!(pinned > 256 << 10, "{all:#}");
    let functions = list(all, "functions").iter();
    let by_function: u64 = functions.map(|row| number(row, "free_bytes")).sum();
    assert!(
        by_function <= pinned && by_function * 10 > pinned * 9,
        "{by_function} of {pinned}"
    );
    assert!(number(all, "packed_pages") < number(all, "pinned_pages"));
    assert!(number(all, "packed_pages") <= number(all, "class_packed_pages"));
}

#[test]
fn redis_after_most_is_deleted() {
    if !need::programs(&["redis-server", "redis-cli"]) {
        return;
    }
    let bench = Bench::new();
    let socket = bench.path("redis.sock");
    let server = [
        "redis-server",
        "--port",
        "0",
        "--save",
        "",
        "--appendonly",
        "no",
        "--unixsocket",
    ];
    let mut server: Vec<String> = server.iter().map(|word| (*word).to_owned()).collect();
    server.push(socket.display().to_string());
    let running = Running::start(bench.recording(&[], server));
    let begun = std::time::Instant::now();
    // The socket exists before the server listens at it.
    while UnixStream::connect(&socket).is_err() {
        // CLOCK: a bounded wait, and its bound ends it
        assert!(
            begun.elapsed() < PATIENCE / 2,
            "apt-get install redis-server: no socket"
        );
        std::thread::sleep(std::time::Duration::from_millis(10)); // CLOCK: poll step of a bounded wait
    }
    let ask = |words: &[&str]| {
        let mut client = bench.command("redis-cli");
        client.arg("-s").arg(&socket).args(words);
        let done = run_within(client, b"", PATIENCE);
        assert_eq!(
            done.status.code(),
            Some(0),
            "apt-get install redis-tools: {done:#?}"
        );
    };
    let work = "for i = 1, 30000 do redis.call('SET', 'k' .. i, string.rep('v', i % 300)) end \
                for i = 1, 30000 do if i * 7 % 5 > 0 then redis.call('DEL', 'k' .. i) end end return 1";
    ask(&["EVAL", work, "0"]);
    ask(&["SHUTDOWN", "NOSAVE", "FORCE"]);
    let done = running.finish(PATIENCE);
    assert_eq!(done.status.code(), Some(0), "{done:#?}");
    let trace = bench.traces().into_iter().next().expect("a trace");
    let report = bench.report_at(&trace, "end");
    attributed(&report);
    // Debian's redis runs on jemalloc: its slabs are identified by addresses.
    let all = field(instant(&report), "fragments");
    assert!(
        report
            .text("program.allocator")
            .starts_with("libjemalloc.so.2")
    );
    assert!(number(all, "spans.spans") > 1000, "{all:#}");
}

#[test]
fn python_builds_and_drops() {
    let code = "import ctypes, random\n\
        mark = ctypes.CDLL(None).skinflint_mark\n\
        random.seed(1)\n\
        kept = [(i, str(i) * (i % 9)) for i in range(25000)]\n\
        kept = {i: kept[i] for i in random.sample(range(25000), 3000)}\n\
        mark(b'dropped')\n\
        for _ in range(30): more = [str(i) * 3 for i in range(20000)]\n\
        mark(b'goes on')\n";
    for malloc in ["malloc", "pymalloc"] {
        let bench = Bench::new();
        let mut command = bench.recording(&[], ["python3", "-c", code]);
        command.env("PYTHONMALLOC", malloc);
        let done = run(command);
        assert_eq!(done.status.code(), Some(0), "{done:#?}");
        let report = bench.report_at("main.sft", "dropped");
        if malloc == "pymalloc" {
            assert!(adds_up(&report) > 0);
            continue;
        }
        attributed(&report);
        // Nine of ten blocks went and the rest lies among them: the report names what pins.
        let all = field(instant(&report), "fragments");
        let findings = report.list("findings").iter();
        let pinned: Vec<&Value> = findings
            .filter(|one| text(one, "kind") == "pinned")
            .collect();
        assert!(!pinned.is_empty(), "{all:#}");
        for one in pinned {
            let (now, saved) = (number(one, "now_bytes"), number(one, "saved_bytes"));
            assert!(
                saved <= now && now <= number(all, "pinned_bytes"),
                "{one:#}"
            );
        }
        // The mark's snapshot is the one after the largest fall, or an earlier one with four fifths of that fall (a
        // snapshot by time may come amid it: analysis::falls.F2).
        let low = bench.report_at("main.sft", "after-free");
        let (own, mark) = (instant(&low), instant(&report));
        assert_eq!(text(own, "kind"), "after_free");
        let live = |instant| number(instant, "live_usable_bytes");
        let at_peak = |site| number(site, "heap_peak_usable_bytes");
        let highest: u64 = report.sites().iter().map(at_peak).sum();
        let fall = highest - live(mark);
        assert!(highest - live(own) >= fall / 5 * 4, "{own:#}");
        assert!(adds_up(&low) > 0);
        let listed = report.list("instants").iter();
        let mut listed = listed.filter(|one| text(one, "kind") == "after_free");
        assert_eq!(listed.next().map(live), Some(live(own)), "in both readings");
    }
}

#[test]
fn a_moment_after_no_free_is_refused() {
    let bench = Bench::new();
    recorded(&bench, "pins");
    let done = bench.tool(["report", "--at", "after-free", "main.sft"]);
    done.says(
        2,
        &[
            "--at after-free: no snapshot follows a fall",
            "skinflint_mark",
        ],
    );
}

#[test]
fn ruby_builds_and_drops() {
    if !need::program("ruby") {
        return;
    }
    let code = "require 'fiddle'\n\
        mark = Fiddle::Function.new(Fiddle.dlopen(nil)['skinflint_mark'], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOID)\n\
        kept = (0...60000).map { |i| 'v' * (40 + i * 37 % 400) }\n\
        kept = kept.each_with_index.select { |_, i| i * 7 % 5 == 0 }.map(&:first)\n\
        GC.start\n\
        mark.call('dropped')\n\
        puts kept.size\n";
    let bench = Bench::new();
    let done = bench.record(["ruby", "-e", code]);
    assert_eq!(done.stdout, "12000\n", "{done:#?}");
    attributed(&bench.report_at("main.sft", "dropped"));
}
