//! A heap of a few blocks at addresses chosen by hand, and what is claimed of it.
//!
//! T1  Every figure is worked out from the addresses in the test, and each test checks that a byte is in one column
//!     only.

use super::*;
use crate::reported::Reported;
use skinflint_analysis::model::{Frame, Instant, Node};

/// Builds two stacks: `big` with blocks of 100 at 0x1000 and 0x2000, `small` with 16 at 0x3000 and 32 at 0x3010.
fn heap() -> (Report, Living) {
    let frame = |name: &str| Frame {
        function: name.into(),
        ..Frame::default()
    };
    let node = |frame| Node { parent: 0, frame };
    let site = |node, blocks, requested, usable| Site {
        node,
        live_blocks: blocks,
        live_requested_bytes: requested,
        live_usable_bytes: usable,
        ..Site::default()
    };
    let end = Instant {
        label: "end".into(),
        live_blocks: 4,
        live_requested_bytes: 230,
        live_usable_bytes: 248,
        ..Instant::default()
    };
    let report = Report {
        nodes: vec![Node::default(), node(1), node(2)],
        frames: vec![frame(""), frame("big"), frame("small")],
        sites: vec![site(1, 2, 190, 200), site(2, 2, 40, 48)],
        instants: vec![end],
        ..Report::default()
    };
    let block = |addr, usable_bytes, site| LiveBlock {
        addr,
        usable_bytes,
        site,
        went: false,
    };
    // The blocks are deliberately unsorted.
    let blocks = [
        block(0x3010, 32, 1),
        block(0x1000, 100, 0),
        block(0x3000, 16, 1),
        block(0x2000, 100, 0),
    ];
    let living = Living {
        blocks: blocks.to_vec(),
        came: Vec::new(),
    };
    (report, living)
}

fn dark(reports: &str) -> Dark {
    dark_of(reports, |_| {})
}

fn dark_of(reports: &str, change: impl FnOnce(&mut Living)) -> Dark {
    let json = format!("{{\"version\":1,\"hasMozMallocUsableSize\":true,\"reports\":[{reports}]}}");
    let reported = Reported::read(json.as_bytes()).unwrap();
    let process = reported.choose(None, 7).unwrap().to_owned();
    let (report, mut living) = heap();
    change(&mut living);
    let dark = Dark::new(&report, &reported.heap(&process), &living);
    dark.adds_up().unwrap();
    dark
}

fn entry(path: &str, kind: u8, amount: u64, more: &str) -> String {
    format!(
        "{{\"process\":\"app (pid 7)\",\"path\":\"{path}\",\"kind\":{kind},\"units\":0,\"amount\":{amount},\
         \"description\":\"A.\"{more}}}"
    )
}

/// Returns (node, unreported, once, twice) of each row.
fn figures(dark: &Dark) -> Vec<(u32, u64, u64, u64)> {
    let mut rows: Vec<_> = dark
        .rows
        .iter()
        .map(|row| {
            (
                row.node,
                row.unreported_bytes,
                row.once_bytes,
                row.twice_bytes,
            )
        })
        .collect();
    rows.sort_unstable();
    rows
}

#[test]
fn a_block_that_is_claimed_and_one_that_is_not() {
    let dark = dark(&entry("explicit/a", 1, 100, ",\"blocks\":[\"0x1000\"]"));
    assert_eq!(dark.mode, Mode::Exact);
    assert_eq!(figures(&dark), [(1, 100, 100, 0), (2, 48, 0, 0)]);
    assert_eq!(dark.dark_bytes, 148);
    // Darkest first, and blocks by themselves.
    assert_eq!((dark.rows[0].node, dark.rows[0].unreported_blocks), (1, 1));
    assert_eq!((dark.rows[1].node, dark.rows[1].unreported_blocks), (2, 2));
}

#[test]
fn what_two_claim_and_what_one_claims_two_times() {
    let dark = dark(
        &[
            entry("explicit/a", 1, 116, ",\"blocks\":[\"0x1000\",\"0x3000\"]"),
            entry("explicit/b", 1, 100, ",\"blocks\":[4096]"),
            entry("explicit/c", 1, 64, ",\"blocks\":[\"0x3010\",\"0x3010\"]"),
        ]
        .join(","),
    );
    assert_eq!(figures(&dark), [(1, 100, 0, 100), (2, 0, 16, 32)]);
    let pair = |first: &str, second: &str, bytes| Twice {
        first: first.into(),
        second: second.into(),
        bytes,
        blocks: 1,
    };
    assert_eq!(
        dark.twice,
        [
            pair("explicit/a", "explicit/b", 100),
            pair("explicit/c", "explicit/c", 32)
        ]
    );
    let covered: Vec<(u64, u64)> = dark
        .claims
        .iter()
        .map(|claim| (claim.covered_bytes, claim.twice_bytes))
        .collect();
    assert_eq!(covered, [(116, 100), (100, 100), (32, 32)]);
}

#[test]
fn ranges_cover_parts_of_blocks_and_what_lies_between() {
    // 0x1032..0x2032: half of each big block, and 0xf9c bytes between them; and 8 + 8 bytes of the small ones.
    let dark = dark(
        &[
            entry("explicit/a", 1, 100, ",\"ranges\":[[\"0x1032\",4096]]"),
            entry("explicit/b", 1, 16, ",\"ranges\":[[\"0x3008\",16]]"),
        ]
        .join(","),
    );
    assert_eq!(figures(&dark), [(1, 100, 100, 0), (2, 32, 16, 0)]);
    let a = dark
        .claims
        .iter()
        .find(|claim| claim.path == "explicit/a")
        .unwrap();
    assert_eq!((a.covered_bytes, a.stray_bytes), (100, 4096 - 100));
    // A block that is claimed in part is not an unreported block.
    assert_eq!(
        dark.rows
            .iter()
            .map(|row| row.unreported_blocks)
            .sum::<u64>(),
        0
    );
}

#[test]
fn claims_of_what_does_not_live_and_of_the_inside_of_a_block() {
    let dark = dark(&entry(
        "explicit/a",
        1,
        5,
        ",\"blocks\":[\"0x2fff\",\"0x1063\",\"0x1064\",\"0xfff\"]",
    ));
    assert_eq!(figures(&dark), [(1, 100, 100, 0), (2, 48, 0, 0)]);
    assert_eq!(dark.claims[0].stray_blocks, 3);
}

#[test]
fn claims_without_addresses_are_counted_and_not_used() {
    let dark = dark(
        &[
            entry("explicit/a", 1, 100, ",\"blocks\":[\"0x1000\"]"),
            entry("explicit/b", 1, 48, ""),
        ]
        .join(","),
    );
    assert_eq!((dark.unused_claim_bytes, dark.dark_bytes), (48, 148));
    assert!(
        dark.doubts[0].contains("48 bytes are of claims without addresses"),
        "{:?}",
        dark.doubts
    );
}

#[test]
fn totals_say_how_much_and_only_guess_what() {
    // 48 is what `small` has; no stack has 60; mapped memory and the reader's own row are no claims.
    let dark = dark(
        &[
            entry("explicit/small-things", 1, 48, ""),
            entry("explicit/other", 1, 60, ""),
            entry("explicit/mapped", 0, 4096, ""),
            entry("explicit/heap-unclassified", 1, 140, ""),
            entry("heap-allocated", 2, 248, ""),
        ]
        .join(","),
    );
    assert_eq!(
        (dark.mode, dark.claimed_bytes, dark.dark_bytes),
        (Mode::Totals, 108, 140)
    );
    assert_eq!(dark.rows[0].node, 1);
    // 108 bytes are claimed in all: at least 92 of the 200 are dark.
    assert_eq!(
        (dark.rows[0].surely_dark_bytes, &dark.rows[0].explained_by),
        (92, &None)
    );
    assert_eq!(
        dark.rows[1].explained_by.as_deref(),
        Some("explicit/small-things")
    );
    assert_eq!(dark.rows[1].surely_dark_bytes, 0);
    assert!(dark.doubts.is_empty(), "{:?}", dark.doubts);
}

#[test]
fn a_claim_explains_once_and_more_than_lives_is_said() {
    let dark = dark(
        &[
            entry("explicit/a", 1, 200, ""),
            entry("explicit/b", 1, 200, ""),
        ]
        .join(","),
    );
    assert_eq!((dark.dark_bytes, dark.overclaimed_bytes), (0, 152));
    let explained: Vec<bool> = dark
        .rows
        .iter()
        .map(|row| row.explained_by.is_some())
        .collect();
    assert_eq!(explained.iter().filter(|one| **one).count(), 1);
}

#[test]
fn another_moment_is_doubted() {
    let dark = dark(
        &[
            entry("explicit/a", 1, 48, ""),
            entry("heap-allocated", 2, 4096, ""),
        ]
        .join(","),
    );
    assert!(dark.doubts[0].contains("--at"), "{:?}", dark.doubts);
}

#[test]
fn what_comes_and_goes_while_it_is_measured_is_judged_by_nobody() {
    // 0x2000 went, and 0x2008 came in its place; 0x5000 came. One block that stayed is claimed, and all of these.
    let claims = [
        entry(
            "explicit/a",
            1,
            100 + 100 + 64,
            ",\"blocks\":[\"0x1000\",\"0x2000\",\"0x5010\"]",
        ),
        entry("explicit/b", 1, 8, ",\"ranges\":[[\"0x5000\",8]]"),
        entry("heap-allocated", 2, 250, ""),
    ];
    let dark = dark_of(&claims.join(","), |living| {
        living.blocks[3].went = true;
        living.came = vec![(0x5000, 64), (0x2008, 16)];
    });
    assert_eq!(figures(&dark), [(1, 0, 100, 0), (2, 48, 0, 0)]);
    let big = dark.rows.iter().find(|row| row.node == 1).unwrap();
    assert_eq!(
        (big.went_bytes, dark.went_bytes, dark.dark_bytes),
        (100, 100, 48)
    );
    let changed: Vec<(u64, u64, u64)> = dark
        .claims
        .iter()
        .map(|claim| (claim.changed_bytes, claim.stray_blocks, claim.stray_bytes))
        .collect();
    assert_eq!(changed, [(164, 0, 0), (8, 0, 0)]);
    // 250 - 272 = -22; 248 recorded; 264 + 8 claimed, 100 covered; 100 went.
    let account = dark.account.unwrap();
    let wanted = Account {
        heap_unclassified_bytes: -22,
        recorded_more_bytes: -2,
        claimed_twice_bytes: 0,
        without_addresses_bytes: 0,
        claimed_beyond_bytes: 172,
        went_bytes: -100,
    };
    assert_eq!((account, account.sum()), (wanted, 48));
}

#[test]
fn unreported_is_heap_unclassified_and_what_differs() {
    let claims = [
        entry("explicit/a", 1, 116, ",\"blocks\":[\"0x1000\",\"0x3000\"]"),
        entry("explicit/b", 1, 100, ",\"blocks\":[\"0x1000\"]"),
        entry("explicit/c", 1, 7, ""),
        entry("heap-allocated", 2, 248, ""),
    ];
    let account = dark(&claims.join(",")).account.unwrap();
    let wanted = Account {
        heap_unclassified_bytes: 25,
        claimed_twice_bytes: 100,
        without_addresses_bytes: 7,
        ..Account::default()
    };
    assert_eq!((account, account.sum()), (wanted, 132));
    let without = dark(&entry("explicit/a", 1, 100, ",\"blocks\":[\"0x1000\"]"));
    assert_eq!(without.account, None);
}

#[track_caller]
fn refused(json: &str, wanted: &str) {
    let said = Reported::read(json.as_bytes()).unwrap_err().to_string();
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn files_that_are_no_memory_reports() {
    refused("", "cut off");
    refused("{\"version\":1,\n\"reports\":[{]}", "at byte 28");
    refused("{\"version\":2,\"reports\":[]}", "\"version\" is 2");
    refused("{\"reports\":[]}", "there is no \"version\"");
    refused("{\"version\":1}", "there are no \"reports\"");
    refused(
        "{\"version\":1,\"reports\":[{\"process\":\"a\"}]}",
        "missing field `path`",
    );
    let file = |entry: &str| format!("{{\"version\":1,\"reports\":[{entry}]}}");
    refused(
        &file(&entry("explicit/a", 2, 1, "")),
        "\"reports\"[0]: below explicit/ lines must be bytes of heap or nonheap (explicit/a)",
    );
    refused(
        &file(&entry("explicit/a", 1, 1, "").replace("\"units\":0", "\"units\":1")),
        "below explicit/ lines must be bytes",
    );
    refused(
        &file(&entry("explicit/a", 1, 1, ",\"blocks\":[\"here\"]")),
        "\"reports\"[0]: \"here\" is no address",
    );
}

#[test]
fn the_process_that_is_meant() {
    let two = "{\"version\":1,\"reports\":[\
        {\"process\":\"Main Process (pid 17)\",\"path\":\"a\",\"kind\":2,\"units\":0,\"amount\":1,\"description\":\"\"},\
        {\"process\":\"web (pid 7)\",\"path\":\"a\",\"kind\":2,\"units\":0,\"amount\":1,\"description\":\"\"}]}";
    let reported = Reported::read(two.as_bytes()).unwrap();
    assert_eq!(reported.choose(None, 7).unwrap(), "web (pid 7)");
    assert_eq!(
        reported.choose(Some("web (pid 7)"), 17).unwrap(),
        "web (pid 7)"
    );
    let said = reported.choose(None, 1).unwrap_err().0;
    assert!(
        said.contains("Main Process (pid 17), web (pid 7)"),
        "{said}"
    );
    assert!(reported.choose(Some("gpu"), 7).is_err());
    let wrapped = format!("{{\"memory_report\":{two}}}");
    assert_eq!(
        Reported::read(wrapped.as_bytes()).unwrap().processes.len(),
        2
    );
}
