//! Lines with their blocks: noted if asked for, given to the lines that add up to them, written and read again.
//!
//! ```text
//!   reporter ─► Registry::measure_with_blocks ─► lines_with_blocks ─► file ─► read_with_blocks: the same addresses
//! ```
//!
//! Not here: the use of the blocks (faces/cli/tests/dark).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use skinflint_reporters::endpoint::{Answer, Endpoint, MEASURE_BLOCKS, ask};
use skinflint_reporters::file::{read, read_with_blocks, write_with_blocks};
use skinflint_reporters::named::{self, Note};
use skinflint_reporters::size::HeapBytes;
use skinflint_reporters::tree::Presence;
use skinflint_reporters::{Measurement, Registry, Sink};

/// Returns the addresses and bytes of a line's blocks.
#[track_caller]
fn blocks(measured: &Measurement, path: &str) -> Vec<(u64, u64)> {
    let mut lines = measured.lines_with_blocks();
    let (_, notes) = lines.find(|(line, _)| line.path == path).expect("the line");
    let pair = |note: &Note| (note.addr().unwrap_or(0), note.bytes());
    notes.iter().map(pair).collect()
}

fn addr<T>(of: *const T) -> u64 {
    of.addr() as u64
}

#[test]
fn a_line_has_the_blocks_that_were_measured_for_it() {
    let registry = Registry::new();
    let (one, two) = (Arc::new(vec![1u8; 1000]), Arc::new(vec![vec![2u8; 500]; 2]));
    let held = (Arc::clone(&one), Arc::clone(&two));
    registry
        .add("both", move |out: &mut Sink<'_>| {
            // Both are measured before either is reported; in between, one is counted elsewhere, and one is never
            // reported.
            let of_one = (*held.0).heap_bytes();
            let elsewhere = held.1[0].heap_bytes();
            let of_two = (*held.1).heap_bytes();
            out.count("things", 2, "");
            out.heap("explicit/one", of_one, "");
            out.bytes("elsewhere", elsewhere as u64, "");
            out.heap("explicit/two", of_two, "");
            (*held.0).heap_bytes();
        })
        .keep();
    let silent = Arc::clone(&one);
    registry
        .add("other", move |out: &mut Sink<'_>| {
            out.heap("explicit/no-blocks", 77, "");
            let bytes = (*silent).heap_bytes();
            out.heap("explicit/more", bytes + 5, "Says more than it measured.");
            named::range(silent.as_ptr(), 10);
            out.heap("explicit/part", 10, "");
        })
        .keep();
    let measured = registry.measure_with_blocks();
    assert!(measured.faults().is_empty(), "{:?}", measured.faults());
    let first = (addr(one.as_ptr()), 1000);
    assert_eq!(blocks(&measured, "explicit/one"), [first]);
    let inner = [addr(two[0].as_ptr()), addr(two[1].as_ptr())].map(|at| (at, 504));
    let wanted = [(addr(two.as_ptr()), 56), inner[0], inner[1]];
    assert_eq!(blocks(&measured, "explicit/two"), wanted);
    assert_eq!(blocks(&measured, "elsewhere"), []);
    // What one reporter left over does not fall to the next one's line.
    assert_eq!(blocks(&measured, "explicit/no-blocks"), []);
    assert_eq!(blocks(&measured, "explicit/more"), [first]);
    assert_eq!(blocks(&measured, "explicit/part"), [(first.0, 10)]);
    // The measurement does not ask: the same lines, and no block.
    let plain = registry.measure();
    assert!(plain.lines_with_blocks().all(|(_, notes)| notes.is_empty()));
    assert_eq!(plain.sum("explicit/two"), measured.sum("explicit/two"));
}

#[test]
fn tables_are_named_by_an_address_within() {
    let table: HashMap<u64, String> = (0..100).map(|n| (n, "x".repeat(100))).collect();
    let set: HashSet<u64> = (0..50).collect();
    let queue: VecDeque<u64> = (0..10).collect();
    let (nothing, units) = (HashSet::<u64>::with_capacity(10), HashSet::from([()]));
    let held = Arc::new((table, set, queue, nothing, units));
    let registry = Registry::new();
    let measured_of = Arc::clone(&held);
    registry
        .add("tables", move |out: &mut Sink<'_>| {
            out.heap("explicit/table", measured_of.0.heap_bytes(), "");
            out.heap("explicit/set", measured_of.1.heap_bytes(), "");
            out.heap("explicit/queue", measured_of.2.heap_bytes(), "");
            out.heap("explicit/empty", measured_of.3.heap_bytes(), "");
            out.heap("explicit/units", measured_of.4.heap_bytes(), "");
        })
        .keep();
    let measured = registry.measure_with_blocks();
    // 128 buckets of 32 bytes lie below the address of the first entry, or above it.
    let table = blocks(&measured, "explicit/table");
    assert_eq!(table.len(), 101);
    let entry = addr(held.0.keys().next().expect("an entry"));
    assert_eq!(table[0].0, entry);
    let strings: HashSet<u64> = held.0.values().map(|one| addr(one.as_ptr())).collect();
    assert_eq!(
        table[1..].iter().map(|one| one.0).collect::<HashSet<_>>(),
        strings
    );
    assert_eq!(blocks(&measured, "explicit/set").len(), 1);
    assert_eq!(
        blocks(&measured, "explicit/queue")[0].0,
        addr(held.2.front().expect("one"))
    );
    // Without an entry there is no address: the table is counted, and hidden.
    for hidden in ["explicit/empty", "explicit/units"] {
        let found = blocks(&measured, hidden);
        assert!(
            found.len() == 1 && found[0].0 == 0 && found[0].1 > 0,
            "{hidden}: {found:?}"
        );
    }
}

#[test]
fn the_file_has_them_and_a_reader_that_does_not_know_them_passes_over() {
    let registry: &'static Registry = Box::leak(Box::default());
    let held = Arc::new(vec![3u8; 3000]);
    let counted = Arc::clone(&held);
    registry
        .add("held", move |out: &mut Sink<'_>| {
            let bytes = (*counted).heap_bytes();
            named::range(counted.as_ptr(), 7);
            named::hidden(5);
            out.heap("explicit/held", bytes + 12, "");
        })
        .keep();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .expect("mode");
    let endpoint = Endpoint::open_in(folder.path(), registry).expect("a socket");
    let Ok(Answer::Report { faults, json }) = ask(endpoint.path(), 0, MEASURE_BLOCKS) else {
        panic!("no report");
    };
    assert!(faults.is_empty(), "{faults:?}");
    let mut found = Vec::new();
    let lines = read_with_blocks(&json[..], |line, _, notes| {
        if line.path == "explicit/held" {
            found.extend(
                notes
                    .iter()
                    .map(|note| (note.addr(), note.bytes(), note.is_block())),
            );
        }
    });
    let at = Some(addr(held.as_ptr()));
    assert_eq!(found, [(at, 0, true), (at, 7, false)]);
    let mut plain = 0;
    assert_eq!(read(&json[..], |_, _| plain += 1), lines);
    assert_eq!(lines, Ok(plain));
    // Values in `blocks` that are not addresses are ignored by `read`, and an error here.
    let text = String::from_utf8(json)
        .expect("UTF-8")
        .replace("\"blocks\":[\"0x", "\"blocks\":[\"zx");
    assert!(read(text.as_bytes(), |_, _| {}).is_ok());
    let error = read_with_blocks(text.as_bytes(), |_, _, _| {}).expect_err("no address");
    assert!(error.to_string().contains("is no address"), "{error}");
    // Without blocks the file has none of this.
    let measured = registry.measure();
    let lines = measured.lines_with_blocks();
    let lines = lines.map(|(line, notes)| (line, Presence::Both, notes));
    let file = write_with_blocks(Vec::new(), "p (pid 1)", lines).expect("written");
    assert!(
        !String::from_utf8(file)
            .expect("UTF-8")
            .contains("blocks\":[")
    );
}
