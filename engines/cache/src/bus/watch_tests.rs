//! A group of the first version, made of files that this test writes: what is registered, and which signals follow from
//! which ready files.
//!
//! ```text
//!   a folder with a group's files ─► Watch ─► cgroup.event_control, a pipe: what the kernel would be told
//! ```
//!
//! Not here: a kernel that answers (`squeeze`).

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use super::*;

const LIMIT: u64 = 1 << 30;
/// The margin of a group with that limit.
const MARGIN: u64 = 64 << 20;

fn write(dir: &Path, name: &str, text: impl ToString) {
    fs::write(dir.join(name), text.to_string()).expect("a file of ours");
}

/// Returns a watch of the group in that folder, and what it told the kernel.
fn watch(dir: &Path) -> (Watch, String) {
    write(dir, "memory.limit_in_bytes", LIMIT);
    write(dir, "memory.usage_in_bytes", 0);
    write(dir, "memory.pressure_level", "");
    let control = dir.join("cgroup.event_control");
    let name = std::ffi::CString::new(control.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: a name closed by a zero.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    // Opened for reading and writing, so that neither end waits for the other.
    let mut told = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(control)
        .expect("a pipe");
    let mut watch = Watch {
        groups: Groups::default(),
        open: Vec::new(),
        state: Vec::new(),
        counts: (0, 0, 0),
        look_ms: LOOKS_MS[0],
        stalls: false,
    };
    watch.reopen(Groups {
        memory: Some((Version::V1, dir.to_owned())),
        root: dir.to_owned(),
        unified: None,
    });
    let mut text = vec![0; 4_096];
    let length = told.read(&mut text).expect("what was told");
    (watch, String::from_utf8_lossy(&text[..length]).into_owned())
}

#[test]
fn thresholds_lie_two_margins_one_and_a_quarter_below_the_limit() {
    let dir = tempfile::tempdir().expect("a folder");
    let (watch, told) = watch(dir.path());
    let kinds: Vec<About> = watch.open.iter().map(|open| open.about).collect();
    let threshold = About::Threshold;
    assert_eq!(kinds, [About::Pressure, threshold, threshold, threshold]);
    // "EVENT FILE ARGUMENT" each, with nothing between them: an argument ends where the next event's number begins.
    let mut rest = told.as_str();
    let at = |below: u64| (LIMIT - below).to_string();
    for argument in ["medium".into(), at(2 * MARGIN), at(MARGIN), at(MARGIN / 4)] {
        let mut parts = rest.splitn(3, ' ');
        let numbers: Vec<u32> = parts.by_ref().take(2).flat_map(str::parse).collect();
        assert_eq!(numbers.len(), 2, "{told}");
        rest = parts
            .next()
            .and_then(|rest| rest.strip_prefix(argument.as_str()))
            .unwrap_or_else(|| panic!("{argument}: {told}"));
    }
    assert_eq!(rest, "", "{told}");
    assert!(watch.state().iter().all(|source| source.watched.is_ok()));
}

#[test]
fn reclaim_is_named_where_it_was_told_and_little_room_is_looked_at_often() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut watch, _) = watch(dir.path());
    let signal = |source, level, room: u64| Signal {
        source,
        level,
        wanted_bytes: (3 * MARGIN - room) as usize,
    };
    // Each case: the room, what is ready, what follows, and when the room is looked at again.
    let (near, high) = (100 << 20, 40 << 20);
    let limit = Source::GroupLimit;
    let reclaim = Source::GroupReclaim;
    let cases = [
        (LIMIT, [false; 4], None, 1_000),
        (LIMIT / 2 + 1, [true; 4], None, 1_000),
        (LIMIT / 2, [true; 4], None, 250),
        (2 * MARGIN, [false; 4], None, 250),
        (near, [false; 4], Some(signal(limit, Level::Near, near)), 50),
        (
            high,
            [false, true, true, true],
            Some(signal(limit, Level::High, high)),
            50,
        ),
        (
            high,
            [true, false, false, false],
            Some(signal(reclaim, Level::High, high)),
            50,
        ),
        (
            high,
            [true, true, false, false],
            Some(signal(reclaim, Level::High, high)),
            50,
        ),
    ];
    for (room, ready, expected, again_ms) in cases {
        write(dir.path(), "memory.usage_in_bytes", LIMIT - room);
        let signals = watch.signals(&ready);
        assert_eq!(signals, Vec::from_iter(expected), "{room} {ready:?}");
        assert_eq!(watch.look_again_ms(), again_ms, "{room} {ready:?}");
    }
}
