//! Cut and damaged traces: they are read to the cut and past the damage, and what is lost is reported;
//! never a panic, a loop or an absurd allocation.
//!
//! Not here: faults while writing (full_disk.rs).

mod program;

use program::*;
use skinflint_trace::*;

const EVENTS: usize = 1500;
const BLOCK_EVENTS: u32 = 120;

fn sample() -> (Vec<u8>, Vec<Event>) {
    let events = Program::new(42, Shape::Tree, 3).take(EVENTS);
    let mut disk = Disk::new();
    let process = ProcessInfo {
        name: "made-up".into(),
        ..ProcessInfo::default()
    };
    let mut writer = Writer::new(&mut disk, &process, 1).unwrap();
    let nodes: Vec<(u32, u64)> = (1..200)
        .map(|id| (id / 2, 0x5555_0000 + u64::from(id) * 40))
        .collect();
    writer.nodes(1, &nodes).unwrap();
    for id in 0..3 {
        writer
            .thread(
                ThreadId(id),
                &Thread {
                    tid: 100 + id,
                    ..Thread::default()
                },
            )
            .unwrap();
    }
    write_events(&mut writer, &events, BLOCK_EVENTS);
    writer
        .rss(&[RssSample {
            rss_bytes: 4096,
            ..RssSample::default()
        }])
        .unwrap();
    writer
        .ending(&Ending {
            events: EVENTS as u64,
            ..Ending::default()
        })
        .unwrap();
    (disk.bytes, events)
}

/// Reads everything; checks that the events that come are a subset of the truth in order, and that
/// missing ones are reported. Returns the number of events that came.
fn read(bytes: Vec<u8>, truth: &[Event]) -> Option<usize> {
    let trace = Trace::from_bytes(bytes, "damaged.sft").ok()?;
    let mut reader = trace.events();
    let mut came = 0;
    let mut at = 0;
    while let Some(event) = reader.next_event() {
        while truth[at] != event {
            at += 1;
            assert!(at < truth.len(), "an event that never was: {event:?}");
        }
        at += 1;
        came += 1;
    }
    let lost: u64 = reader.damage().iter().map(|damage| damage.events).sum();
    assert_eq!(came as u64 + lost, trace.event_count());
    if came < truth.len() {
        let said = !trace.damage.is_empty() || !reader.damage().is_empty();
        assert!(
            said || trace.ending.is_none(),
            "{} events lost in silence",
            truth.len() - came
        );
    }
    Some(came)
}

/// Returns the offset of each block, and of the end.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![24];
    while let Some(&at) = starts.last()
        && at < bytes.len()
    {
        let payload = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap());
        starts.push(at + 64 + payload as usize);
    }
    starts
}

#[test]
fn a_whole_block_that_is_gone_is_missed() {
    let (bytes, truth) = sample();
    let starts = starts(&bytes);
    for pair in starts.windows(2).take(starts.len() - 2) {
        let mut bad = bytes.clone();
        bad.drain(pair[0]..pair[1]);
        let trace = Trace::from_bytes(bad.clone(), "gone.sft").unwrap();
        assert!(
            trace
                .damage
                .iter()
                .any(|damage| damage.what.contains("1 blocks")),
            "{pair:?}"
        );
        read(bad, &truth);
    }
}

#[test]
fn cut_at_every_byte() {
    let (bytes, truth) = sample();
    let starts = starts(&bytes);
    let mut last = 0;
    for len in 0..bytes.len() {
        let cut = bytes[..len].to_vec();
        let Some(came) = read(cut.clone(), &truth) else {
            assert!(len < 24, "a cut after {len} bytes is not opened");
            continue;
        };
        assert!(came >= last, "more bytes, fewer events: {len}");
        last = came;
        let trace = Trace::from_bytes(cut, "cut.sft").unwrap();
        assert!(trace.ending.is_none());
        // The process's block is missing below the second block: that is reported apart.
        let cut_bytes: u64 = trace.damage.iter().map(|damage| damage.bytes).sum();
        let last_start = starts.iter().rfind(|&&start| start <= len).unwrap();
        assert_eq!(
            cut_bytes,
            (len - last_start) as u64,
            "cut after {len} bytes"
        );
    }
    assert_eq!(read(bytes, &truth), Some(EVENTS));
}

#[test]
fn one_flipped_bit_costs_at_most_one_block() {
    let (bytes, truth) = sample();
    for seed in 0..3000 {
        let mut rng = Random::new(seed);
        let mut bad = bytes.clone();
        let at = 24 + rng.below(bytes.len() as u64 - 24) as usize;
        bad[at] ^= 1 << rng.below(8);
        let came = read(bad, &truth).unwrap_or_else(|| panic!("seed {seed}: not opened"));
        assert!(
            came >= truth.len() - BLOCK_EVENTS as usize,
            "seed {seed}: byte {at} costs {}",
            truth.len() - came
        );
    }
}

#[test]
fn blocks_removed_doubled_and_overwritten() {
    let (bytes, truth) = sample();
    for seed in 0..2000 {
        let mut rng = Random::new(1_000_000 + seed);
        let mut bad = bytes.clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bad.len() as u64) as usize;
            let len = (rng.below(2000) as usize).min(bad.len() - at);
            match rng.below(3) {
                0 => drop(bad.drain(at..at + len)),
                1 => bad[at..at + len].fill(rng.bits() as u8),
                _ => bad[at..at + len]
                    .iter_mut()
                    .for_each(|byte| *byte = rng.bits() as u8),
            }
            if bad.is_empty() {
                break;
            }
        }
        read(bad, &truth);
    }
}

/// Mutations with right checksums: what a hostile or future writer could write.
#[test]
fn wrong_content_with_right_checksums() {
    let (bytes, _) = sample();
    for seed in 0..4000u64 {
        let mut rng = Random::new(2_000_000 + seed);
        let mut bad = bytes.clone();
        let mut at = 24;
        while at + 64 <= bad.len() {
            let payload = u32::from_le_bytes(bad[at + 12..at + 16].try_into().unwrap()) as usize;
            let end = at + 64 + payload;
            if rng.below(6) == 0 {
                // Stored raw, so that the content itself changes, not its compressed form.
                let packed = bad[at + 64..end].to_vec();
                let raw_len = u32::from_le_bytes(bad[at + 16..at + 20].try_into().unwrap());
                let mut raw = if bad[at + 5] == 1 {
                    zstd::bulk::decompress(&packed, raw_len as usize).unwrap()
                } else {
                    packed
                };
                for _ in 0..1 + rng.below(4) {
                    let byte = rng.below(raw.len() as u64) as usize;
                    raw[byte] = rng.bits() as u8;
                }
                if rng.below(4) == 0 {
                    let field = 8 + rng.below(40) as usize;
                    if !(12..20).contains(&field) {
                        bad[at + field] = rng.bits() as u8;
                    }
                }
                bad[at + 5] = 0;
                bad[at + 12..at + 16].copy_from_slice(&raw_len.to_le_bytes());
                bad[at + 56..at + 60].copy_from_slice(&crc32fast::hash(&raw).to_le_bytes());
                let crc = crc32fast::hash(&bad[at..at + 60]);
                bad[at + 60..at + 64].copy_from_slice(&crc.to_le_bytes());
                bad.splice(at + 64..end, raw);
                at += 64 + raw_len as usize;
            } else {
                at = end;
            }
        }
        let trace = Trace::from_bytes(bad, "hostile.sft").unwrap();
        let mut reader = trace.events();
        let mut came = 0u64;
        reader.for_each(|_| came += 1);
        let lost: u64 = reader.damage().iter().map(|damage| damage.events).sum();
        assert_eq!(came + lost, trace.event_count(), "seed {seed}");
        for id in 1..trace.node_count() {
            let (parent, _) = trace.node(NodeId(id)).unwrap();
            assert!(parent.0 < id, "seed {seed}: a stack without an end");
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_refused_before_allocating() {
    let (bytes, truth) = sample();
    for claim in [u32::MAX, 1 << 30, (64 << 20) + 1] {
        for field in [12, 16, 20] {
            let mut bad = bytes.clone();
            bad[24 + field..24 + field + 4].copy_from_slice(&claim.to_le_bytes());
            let crc = crc32fast::hash(&bad[24..84]);
            bad[84..88].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(read(bad, &truth), Some(EVENTS), "field {field}");
        }
    }
}

#[test]
fn what_is_no_trace_is_named() {
    let message = |bytes: &[u8]| match Trace::from_bytes(bytes.to_vec(), "x.sft") {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    };
    assert!(message(b"").contains("x.sft is empty: nothing was recorded"));
    assert!(message(b"\x89SF").contains("ends after 3 bytes"));
    assert!(message(b"\x89SFT\r\n\x1a\n\x01\x00").contains("ends after 10 bytes"));
    assert!(message(b"\x7fELF\x02\x01\x01").contains("a program or library"));
    assert!(message(b"hello, world\n").contains("looks like text"));
    assert!(message(&[0; 100]).contains("noughts"));
    assert!(message(b"\x89SFT\n\x1a\n\x01\x00\x00").contains("text mode"));
    assert!(message(b"{\"a\": 1}").contains("JSON"));
    let (mut newer, truth) = sample();
    newer[8] = 2;
    let crc = crc32fast::hash(&newer[..20]);
    newer[20..24].copy_from_slice(&crc.to_le_bytes());
    assert!(message(&newer).contains("format version 2"));
    // The version of a damaged header is not believed.
    newer[21] ^= 1;
    assert_eq!(read(newer, &truth), Some(EVENTS));
    let error = Trace::open("/nonexistent/file.sft").err().unwrap();
    assert!(error.to_string().contains("/nonexistent/file.sft"));
    assert!(
        Trace::open("/")
            .err()
            .unwrap()
            .to_string()
            .starts_with("cannot read /")
    );
}

#[test]
fn unknown_blocks_of_a_later_minor_version_are_skipped() {
    let (bytes, truth) = sample();
    let mut newer = bytes.clone();
    newer[10] = 9;
    let crc = crc32fast::hash(&newer[..20]);
    newer[20..24].copy_from_slice(&crc.to_le_bytes());
    // The block of the process becomes one of an unknown kind.
    newer[24 + 4] = 200;
    let crc = crc32fast::hash(&newer[24..84]);
    newer[84..88].copy_from_slice(&crc.to_le_bytes());
    let trace = Trace::from_bytes(newer.clone(), "newer.sft").unwrap();
    assert_eq!(trace.version, (1, 9));
    assert_eq!(trace.damage.len(), 1, "{:?}", trace.damage);
    assert!(trace.damage[0].what.contains("who was recorded"));
    assert_eq!(read(newer, &truth), Some(EVENTS));
}

#[test]
fn a_file_that_shrinks_while_it_is_read() {
    let (bytes, truth) = sample();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinks.sft");
    std::fs::write(&path, &bytes).unwrap();
    let trace = Trace::open(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 / 2).unwrap();
    let mut reader = trace.events();
    let mut came = 0;
    reader.for_each(|_| came += 1);
    assert!(came > 0 && came < truth.len());
    let lost: u64 = reader.damage().iter().map(|damage| damage.events).sum();
    assert_eq!(came as u64 + lost, EVENTS as u64);
}

#[test]
fn marks_from_outside_share_the_ticket_of_what_they_follow() {
    let events_of_two_blocks = |first: u64, second: u64| {
        let mut disk = Disk::new();
        let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).unwrap();
        let mut encoder = EventEncoder::new(ThreadId(0));
        for (mark, ticket) in [(0, first), (1, first), (2, second)] {
            encoder.push(&Event {
                ticket,
                time_ns: u64::from(mark),
                thread: ThreadId(0),
                kind: EventKind::Mark { mark },
            });
            // The block ends between the second and the third, while the program does nothing.
            if mark > 0 {
                writer.events(encoder.take().unwrap()).unwrap();
            }
        }
        let ending = Ending {
            events: 3,
            ..Ending::default()
        };
        writer.ending(&ending).unwrap();
        let trace = Trace::from_bytes(disk.bytes, "idle.sft").unwrap();
        let mut seen = Vec::new();
        let mut events = trace.events();
        events.for_each(|event| seen.push((event.ticket, event.time_ns)));
        let said: Vec<String> = trace.damage.iter().map(|one| one.what.clone()).collect();
        (seen, said)
    };
    let (seen, said) = events_of_two_blocks(70, 70);
    assert_eq!(
        (&seen[..], said.len()),
        (&[(70, 0), (70, 1), (70, 2)][..], 0),
        "{said:?}"
    );
    let (_, said) = events_of_two_blocks(70, 69);
    assert!(
        said.len() == 1 && said[0].contains("do not come after"),
        "{said:?}"
    );
}
