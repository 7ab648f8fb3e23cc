//! Files of about:memory: what is written is read back; damage is reported, with its place.
//!
//! ```text
//!   lines ─► write ─► read ─► the same lines        cut at every byte │ other version │ nonsense ─► error, byte
//!   a stream of 200 MB ─► read ─► memory stays what it was
//! ```
//!
//! T1  No input makes it panic, and no cut file is taken for whole.
//!
//! Not here: Firefox itself (faces/cli/tests/browsers).

use std::io::{Read, Write};

use skinflint_base::random::Random;
use skinflint_reporters::diff::{Diff, Side};
use skinflint_reporters::file::{self, ReadError};
use skinflint_reporters::openmetrics::Series;
use skinflint_reporters::tree::{Builder, Presence, trees};
use skinflint_reporters::{Entry, Kind, Units};

type Owned = (String, String, Kind, Units, i64, String, Presence);

fn read(bytes: &[u8]) -> Result<Vec<Owned>, ReadError> {
    let mut lines = Vec::new();
    file::read(bytes, |entry, presence| {
        lines.push((
            entry.process.to_owned(),
            entry.path.to_owned(),
            entry.kind,
            entry.units,
            entry.amount,
            entry.description.to_owned(),
            presence,
        ));
    })?;
    Ok(lines)
}

fn line<'a>(path: &'a str, amount: i64) -> Entry<'a> {
    Entry {
        process: "viewer (pid 42)",
        path,
        kind: Kind::Heap,
        units: Units::Bytes,
        amount,
        description: "Said \"so\", \\ and ä\u{1F600}\n.",
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).expect("to memory");
    out.finish().expect("to memory")
}

fn sample() -> Vec<u8> {
    let lines = [
        (line("explicit/a\\b/\"c\"", 5), Presence::Both),
        (line("explicit/a\\b/\"c\"", i64::MAX), Presence::First),
        (line("explicit/m", i64::MIN), Presence::Second),
        (
            Entry {
                units: Units::Percent,
                kind: Kind::Other,
                ..line("p", 1234)
            },
            Presence::Balance,
        ),
    ];
    file::write(Vec::new(), "own", lines.into_iter()).expect("to memory")
}

#[test]
fn what_is_written_is_read_back() {
    let written = sample();
    let lines = read(&written).expect("it is sound");
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[0].1, "explicit/a\\b/\"c\"");
    assert_eq!(lines[0].5, "Said \"so\", \\ and ä\u{1F600}\n.");
    assert_eq!((lines[1].4, lines[1].6), (i64::MAX, Presence::First));
    assert_eq!((lines[2].4, lines[2].6), (i64::MIN, Presence::Second));
    assert_eq!(
        (lines[3].3, lines[3].4, lines[3].6),
        (Units::Percent, 1234, Presence::Balance)
    );
    assert_eq!(read(&packed(&written)).as_ref(), Ok(&lines));
    // A crash dump wraps it; members in another order, and unknown members.
    let wrapped = [b"{\"memory_report\":", &written[..], b",\"other\":[1,{}]}"].concat();
    assert_eq!(read(&wrapped).as_ref(), Ok(&lines));
    let text = String::from_utf8(written).expect("UTF-8");
    let turned = text
        .replace("{\"version\":1,", "{")
        .replace("\n]}", "],\"version\":1}");
    assert_eq!(read(turned.as_bytes()).as_ref(), Ok(&lines));
}

#[test]
fn every_cut_is_noticed() {
    let whole = sample();
    let end = whole
        .iter()
        .rposition(|byte| *byte == b'}')
        .expect("an end");
    for cut in 0..=end {
        let error = read(&whole[..cut]).expect_err("it is cut");
        assert!(error.offset <= cut as u64, "{cut}: {error}");
        assert!(error.what.contains("cut off"), "{cut}: {error}");
    }
    let packed = packed(&whole);
    for cut in 0..packed.len() {
        assert!(read(&packed[..cut]).is_err(), "{cut}");
    }
    for at in 0..packed.len() {
        let mut damaged = packed.clone();
        damaged[at] ^= 0x55;
        // The head has bytes that are not read (time, system); a checksum covers all the rest.
        if let Ok(lines) = read(&damaged) {
            assert!(at < 10, "{at}");
            assert_eq!(lines.len(), 4);
        }
    }
}

/// Reads bytes, draws them as trees, and compares them with a sound file both ways. Nothing may panic.
fn swallow(bytes: &[u8], sound: &[u8]) -> bool {
    let mut builder = Builder::new();
    let result = file::read(bytes, |entry, presence| builder.add(entry, presence));
    for process in builder.finish() {
        let _ = process.amount("explicit");
    }
    for sides in [[Side::First, Side::Second], [Side::Second, Side::First]] {
        let mut diff = Diff::new();
        for (side, input) in sides.into_iter().zip([bytes, sound]) {
            // The lines before the fault are compared all the same.
            let _ = file::read(input, |entry, _| diff.add(side, entry));
        }
        diff.each(|entry, _| assert!(!entry.path.is_empty()));
    }
    if let Err(error) = &result {
        assert!(error.to_string().contains("at byte "), "{error}");
    }
    result.is_ok()
}

/// A small fuzzer for the stable toolchain: the fuzzer's steps on files that are damaged by a seed.
#[test]
fn thousands_of_damaged_files_are_read_or_refused() {
    let sound = sample();
    let words: [&[u8]; 12] = [
        b"-9223372036854775808",
        b"1e999",
        b"\"_presence\":3,",
        b"null",
        b"[[[[",
        b"\\ud800",
        b"\xff\xfe",
        b"explicit/",
        b"//",
        b"pid 0x",
        b"{\"reports\":[",
        b"",
    ];
    let mut taken = 0;
    let mut random = Random::new(20_261_122);
    let mut next = |below: usize| random.index(below);
    const FILES: usize = 3_000;
    for _ in 0..FILES {
        let mut bytes = sound.clone();
        for _ in 0..1 + next(3) {
            let (from, to) = (next(bytes.len()), next(bytes.len()));
            let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 40));
            match next(5) {
                0 => bytes.truncate(to),
                1 => drop(bytes.drain(from..to)),
                2 => drop(bytes.splice(from..from, words[next(words.len())].iter().copied())),
                3 => bytes.extend_from_within(from..to),
                _ if from < bytes.len() => bytes[from] ^= 1 << next(8),
                _ => {}
            }
        }
        if next(8) == 0 {
            bytes = packed(&bytes);
        }
        taken += usize::from(swallow(&bytes, &sound));
    }
    // If damage is always harmless, or never, the test damages nothing, or everything.
    assert!(
        (FILES / 50..FILES * 9 / 10).contains(&taken),
        "{taken} of {FILES}"
    );
}

#[test]
fn files_of_another_kind() {
    let one = |fields: &str| format!("{{\"version\":1,\"reports\":[{{{fields}}}]}}");
    let sound = "\"process\":\"p\",\"path\":\"explicit/a\",\"kind\":1,\"units\":0,\"amount\":1,\"description\":\"\"";
    assert_eq!(read(one(sound).as_bytes()).map(|lines| lines.len()), Ok(1));
    for (text, wanted) in [
        (String::new(), "cut off"),
        ("[]".into(), "an object"),
        ("{}".into(), "no \"version\""),
        ("{\"version\":1}".into(), "no \"reports\""),
        (
            "{\"version\":2,\"reports\":[]}".into(),
            "\"version\" is 2, and only 1 is known",
        ),
        ("{\"reports\":[]}".into(), "no \"version\""),
        ("{\"version\":1,\"reports\":[]} x".into(), "trailing"),
        ("{\"version\":1,\"reports\":{}}".into(), "a list"),
        ("GIF89a".into(), "not JSON"),
        (one("\"process\":\"p\""), "[0]: missing field `path`"),
        (
            one(&sound.replace("explicit/a\",\"kind\":1", "explicit/a\",\"kind\":2")),
            "heap or nonheap",
        ),
        (
            one(&sound.replace("\"units\":0", "\"units\":1")),
            "must be bytes",
        ),
        (
            one(&sound.replace("\"units\":0", "\"units\":4")),
            "\"units\" 4 is none (explicit/a)",
        ),
        (
            one(&sound.replace("\"kind\":1", "\"kind\":3")),
            "\"kind\" 3 is none",
        ),
        (
            one(&sound.replace("\"amount\":1", "\"amount\":1.5")),
            "[0]: invalid type",
        ),
        (
            one(&sound.replace("\"amount\":1", "\"amount\":9223372036854775808")),
            "[0]: invalid",
        ),
        (
            one(&sound.replace("\"process\":\"p\"", "\"process\":\"\"")),
            "empty",
        ),
        (
            one(&format!("{sound},\"_presence\":4")),
            "\"_presence\" 4 is none",
        ),
    ] {
        let error = read(text.as_bytes()).expect_err(&text);
        assert!(error.what.contains(wanted), "{text}: {error}");
        assert!(!error.to_string().contains(" line "), "{error}");
    }
    // The byte is the fault's, not the file's end.
    let late = one(&format!(
        "{sound}}},{{{}",
        sound.replace("\"kind\":1", "\"kind\":3")
    )) + &" ".repeat(1000);
    let error = read(late.as_bytes()).expect_err("a bad second line");
    assert!(error.what.contains("\"reports\"[1]"), "{error}");
    assert!(
        (late.len() as u64 - 1010..late.len() as u64 - 995).contains(&error.offset),
        "{error}"
    );
}

/// A report of a given number of lines, made while it is read.
struct Endless {
    left: u64,
    line: Vec<u8>,
    at: usize,
    state: u8,
}

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let begin: &[u8] = b"{\"version\":1,\"reports\":[";
        let end: &[u8] = b"{\"process\":\"p\",\"path\":\"x\",\"kind\":2,\"units\":1,\"amount\":1,\"description\":\"\"}]}";
        let part = match self.state {
            0 => begin,
            1 => &self.line,
            2 => end,
            _ => return Ok(0),
        };
        let bytes = into.len().min(part.len() - self.at);
        into[..bytes].copy_from_slice(&part[self.at..self.at + bytes]);
        self.at += bytes;
        if self.at == part.len() {
            self.at = 0;
            self.left -= u64::from(self.state == 1);
            self.state += u8::from(self.state != 1 || self.left == 0);
        }
        Ok(bytes)
    }
}

/// Returns the peak of this process's resident memory.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("it");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.expect("VmHWM").trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number") << 10
}

#[test]
fn a_file_of_two_hundred_megabytes_takes_no_memory() {
    let line = b"{\"process\":\"web (pid 7)\",\"path\":\"explicit/window-objects/top(https:\\\\example, id=3)/active\
        /dom/orphan-nodes\",\"kind\":1,\"units\":0,\"amount\":4096,\"description\":\"Memory used by a thing.\"},";
    // An unoptimised build takes a minute for all; a shorter stream shows the same.
    let bytes = if cfg!(debug_assertions) {
        40_000_000
    } else {
        200_000_000
    };
    let lines = bytes / line.len() as u64;
    let endless = Endless {
        left: lines,
        line: line.to_vec(),
        at: 0,
        state: 0,
    };
    let before = peak();
    let mut builder = Builder::new();
    let read = file::read(endless, |entry, presence| builder.add(entry, presence));
    assert_eq!(read, Ok(lines + 1));
    assert!(peak() < before + (16 << 20), "{before} {}", peak());
    let processes = builder.finish();
    let web = processes
        .iter()
        .find(|process| process.name == "web (pid 7)")
        .expect("it");
    assert_eq!(web.amount("explicit"), i128::from(lines) * 4096);
}

#[test]
fn a_path_that_is_leaf_and_branch_is_written_as_firefox_can_read_it() {
    let lines = [
        (line("explicit/a", 1), Presence::Both),
        (line("explicit/a/b", 2), Presence::Both),
    ];
    let written = file::write(Vec::new(), "own", lines.into_iter()).expect("to memory");
    let paths: Vec<String> = read(&written)
        .expect("sound")
        .into_iter()
        .map(|line| line.1)
        .collect();
    assert_eq!(paths, ["explicit/a/(own)", "explicit/a/b"]);
}

#[test]
fn a_saved_file_is_whole_or_the_old_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.json.gz");
    let lines = [(line("explicit/a", 1), Presence::Both)];
    file::save(&path, "own", lines.into_iter()).expect("written");
    let bytes = std::fs::read(&path).expect("it");
    assert_eq!(bytes[..2], [0x1f, 0x8b]);
    assert_eq!(read(&bytes).map(|lines| lines.len()), Ok(1));
    let nowhere = folder.path().join("none").join("report.json");
    assert!(file::save(&nowhere, "own", lines.into_iter()).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 1);
}

#[test]
fn the_difference_goes_through_a_file() {
    let mut diff = Diff::new();
    diff.add(Side::First, &line("explicit/gone", 3));
    diff.add(Side::Second, &line("explicit/new", 5));
    let mut lines = Vec::new();
    diff.each(|entry, presence| {
        assert_eq!(entry.process, "viewer (pid NNN)");
        lines.push((entry.path.to_owned(), entry.amount, presence));
    });
    let entries = lines
        .iter()
        .map(|(path, amount, presence)| (line(path, *amount), *presence));
    let written = file::write(Vec::new(), "own", entries).expect("to memory");
    let found = read(&written).expect("sound");
    assert_eq!((found[0].4, found[0].6), (-3, Presence::First));
    assert_eq!((found[1].4, found[1].6), (5, Presence::Second));
}

#[test]
fn openmetrics_by_hand() {
    let lines = [
        line("explicit/a", 5),
        line("explicit/a", 6),
        Entry {
            units: Units::Percent,
            kind: Kind::Other,
            ..line("fraction", 1234)
        },
        Entry {
            units: Units::Cumulative,
            kind: Kind::Other,
            ..line("faults", 7)
        },
        Entry {
            process: "a\"b\\c\nd",
            ..line("explicit/x", 1)
        },
    ];
    let text = Series::new(100).render(&trees(lines.into_iter()));
    for wanted in [
        "# TYPE skinflint_memory_bytes gauge\n# UNIT skinflint_memory_bytes bytes\n",
        "skinflint_memory_bytes{process=\"viewer\",pid=\"42\",path=\"explicit/a\",kind=\"heap\"} 11\n",
        "skinflint_memory_bytes{process=\"a\\\"b\\\\c\\nd\",pid=\"\",path=\"explicit/x\",kind=\"heap\"} 1\n",
        "skinflint_memory_events_total{process=\"viewer\",pid=\"42\",path=\"faults\",kind=\"other\"} 7\n",
        "skinflint_memory_ratio{process=\"viewer\",pid=\"42\",path=\"fraction\",kind=\"other\"} 0.1234\n",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(
        text.ends_with("# EOF\n") && !text.contains("things"),
        "{text}"
    );
}

/// Writes one line to the path; if it is a file then, reads it back.
fn saved(path: &std::path::Path) -> std::io::Result<()> {
    file::save(
        path,
        "own",
        [(line("explicit/a", 5), Presence::Both)].into_iter(),
    )
}

#[test]
fn a_file_keeps_its_mode_and_its_links() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let mode = |name: &str| {
        std::fs::metadata(at(name))
            .expect("it")
            .permissions()
            .mode()
            & 0o7777
    };
    std::fs::write(at("old.json"), "old").expect("written");
    std::fs::set_permissions(at("old.json"), std::fs::Permissions::from_mode(0o600)).expect("mode");
    std::os::unix::fs::symlink("old.json", at("link.json")).expect("a link");
    std::os::unix::fs::symlink("new.json", at("dangling.json")).expect("a link");
    saved(&at("link.json")).expect("written");
    assert!(at("link.json").is_symlink());
    assert_eq!(mode("old.json"), 0o600);
    assert_eq!(
        read(&std::fs::read(at("old.json")).expect("it"))
            .expect("sound")
            .len(),
        1
    );
    saved(&at("dangling.json")).expect("written");
    assert!(at("dangling.json").is_symlink() && at("new.json").is_file());
    let long = format!("{}.json", "x".repeat(250));
    saved(&at(&long)).expect("a name as long as names may be");
    // Nothing is left beside them, even after a failure.
    assert!(saved(&at("none/a.json")).is_err());
    assert!(saved(folder.path()).is_err());
    let left = std::fs::read_dir(folder.path()).expect("it").count();
    assert_eq!(left, 5);
}

#[test]
fn what_is_no_file_is_written_into_and_stays() {
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe)
    });
    // Replacing a pipe would leave its reader waiting: what is at the path is looked at first.
    saved(&pipe).expect("written");
    let kind = std::fs::symlink_metadata(&pipe).expect("it").file_type();
    assert!(kind.is_fifo());
    let held = reader.join().expect("ends").expect("read");
    assert_eq!(read(&held).expect("sound").len(), 1);
}
