//! What a reader reports about what it could not read, and when a writer writes what.
//!
//! Not here: that reading goes on after damage (damage.rs).

mod program;

use program::*;
use skinflint_trace::*;

const HEADER: usize = 24;

fn written(with: impl FnOnce(&mut Writer<&mut Disk>)) -> Vec<u8> {
    let mut disk = Disk::new();
    let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).expect("a disk");
    with(&mut writer);
    writer.ending(&Ending::default()).expect("a disk");
    disk.bytes
}

fn blocks(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![HEADER];
    while let Some(&at) = starts.last()
        && at < bytes.len()
    {
        let payload = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().expect("four"));
        starts.push(at + 64 + payload as usize);
    }
    starts
}

fn mark(number: u32) -> Mark {
    Mark {
        name: format!("mark {number}"),
        time_ns: u64::from(number) * 10,
        ticket: u64::from(number),
        thread: None,
    }
}

#[test]
fn a_damaged_header_costs_itself_and_nothing_else() {
    let events = Program::new(7, Shape::Tree, 2).take(300);
    let whole = written(|writer| write_events(writer, &events, 100));
    for at in 8..HEADER {
        let mut bad = whole.clone();
        bad[at] ^= 0x40;
        let trace = Trace::from_bytes(bad, "header.sft").expect("read all the same");
        let said: Vec<&Damage> = trace
            .damage
            .iter()
            .filter(|damage| damage.offset == 0)
            .collect();
        let expected = Damage {
            offset: 0,
            bytes: HEADER as u64,
            events: 0,
            what: "the header of the file is damaged".into(),
        };
        assert_eq!(said, [&expected], "byte {at}");
        let mut reader = trace.events();
        for event in &events {
            assert_eq!(reader.next_event().as_ref(), Some(event), "byte {at}");
        }
    }
}

#[test]
fn damage_names_its_place_and_the_events_if_they_are_known() {
    let mut damage = Damage {
        offset: 4_096,
        bytes: 77,
        events: 0,
        what: "a block is damaged".into(),
    };
    assert_eq!(
        damage.to_string(),
        "at byte 4096: a block is damaged; 77 bytes skipped"
    );
    damage.events = 1;
    let with = "at byte 4096: a block is damaged; 77 bytes skipped, 1 events lost";
    assert_eq!(damage.to_string(), with);
}

#[test]
fn what_is_no_trace_is_told_by_its_first_bytes_and_by_no_fewer() {
    let magic = &written(|_| {})[..8];
    let looks_like = |first: &[u8]| {
        let bytes = [first, &[1; 40]].concat();
        match Trace::from_bytes(bytes, "other") {
            Err(OpenError::NotATrace { looks_like, .. }) => looks_like,
            other => panic!("{first:?}: {:?}", other.map(|trace| trace.event_count())),
        }
    };
    let other = "binary data of another kind";
    let kinds: [(&[u8], &str); 5] = [
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        (&[0x1f, 0x8b], "gzip"),
        (b"\x7fELF", "ELF"),
        (&magic[..4], "line ends"),
        (b"\x09SFT", "line ends"),
    ];
    for (first, word) in kinds {
        assert!(looks_like(first).contains(word), "{first:?}");
        // If any one of those bytes changes, it is something else.
        for at in 0..first.len() {
            let mut near = first.to_vec();
            near[at] ^= 0x40;
            assert_eq!(looks_like(&near), other, "{near:?}");
        }
    }
    for (text, kind) in [
        ("{\"a\": 1}", "JSON"),
        ("[1]", "JSON"),
        ("<html>", "HTML or XML"),
        ("a,b\n1,2\n", "text"),
    ] {
        match Trace::from_bytes(text.repeat(9).into_bytes(), "other") {
            Err(OpenError::NotATrace { looks_like, .. }) => assert_eq!(looks_like, kind),
            _ => panic!("{text} was read"),
        }
    }
    for len in 1..HEADER {
        let cut = Trace::from_bytes(written(|_| {})[..len].to_vec(), "cut");
        assert!(
            matches!(cut, Err(OpenError::Cut { bytes, .. }) if bytes == len as u64),
            "{len}"
        );
    }
}

#[test]
fn marks_behind_a_damaged_one_keep_their_numbers() {
    let bytes = written(|writer| {
        for number in 0..6 {
            writer.mark(number, &mark(number)).expect("a disk");
        }
    });
    let starts = blocks(&bytes);
    // The process, six marks, the ending.
    assert_eq!(starts.len(), 1 + 1 + 6 + 1);
    for damaged in 0..5usize {
        let mut bad = bytes.clone();
        bad[starts[1 + damaged] + 64] ^= 0xFF;
        let trace = Trace::from_bytes(bad, "marks.sft").expect("read");
        assert_eq!(trace.damage.len(), 1, "{damaged}: {:?}", trace.damage);
        assert_eq!(trace.marks.len(), 6);
        for (number, found) in trace.marks.iter().enumerate() {
            let expected = if number == damaged {
                Mark {
                    name: String::new(),
                    time_ns: 0,
                    ticket: 0,
                    thread: None,
                }
            } else {
                mark(number as u32)
            };
            assert_eq!(*found, expected, "{damaged}");
        }
    }
    // An index that is far too large is not believed: the gap before it would be allocated.
    let far = written(|writer| writer.mark(u32::MAX - 1, &mark(1)).expect("a disk"));
    let trace = Trace::from_bytes(far, "far.sft").expect("read");
    assert!(trace.marks.is_empty() && !trace.damage.is_empty());
}

#[test]
fn a_stack_is_below_itself_only_at_the_root() {
    for own in [1u32, 2, 5] {
        let mut nodes: Vec<(u32, u64)> =
            (1..8).map(|id| (id - 1, 0x1000 + u64::from(id))).collect();
        let whole = nodes.clone();
        nodes[own as usize - 1].0 = own;
        let read = |nodes: &[(u32, u64)]| {
            let bytes = written(|writer| writer.nodes(1, nodes).expect("a disk"));
            Trace::from_bytes(bytes, "nodes.sft").expect("read")
        };
        let trace = read(&whole);
        assert!(trace.damage.is_empty());
        assert_eq!(
            trace.node(NodeId(own)),
            Some((NodeId(own - 1), 0x1000 + u64::from(own)))
        );
        let trace = read(&nodes);
        assert!(
            trace
                .damage
                .iter()
                .any(|damage| damage.what.contains("not before it")),
            "{own}: {:?}",
            trace.damage
        );
    }
}

#[test]
fn threads_wait_for_events_until_they_are_many() {
    let mut disk = Disk::new();
    let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).expect("a disk");
    let before = writer.bytes_written();
    let thread = Thread {
        tid: 7,
        name: "worker".into(),
        ..Thread::default()
    };
    for id in 0..20 {
        writer.thread(ThreadId(id), &thread).expect("a disk");
    }
    assert_eq!(writer.bytes_written(), before, "with the next events");
    let mut id = 20;
    while writer.bytes_written() == before {
        assert!(id < 1_000_000, "never written");
        writer.thread(ThreadId(id), &thread).expect("a disk");
        id += 1;
    }
    writer.ending(&Ending::default()).expect("a disk");
    let trace = Trace::from_bytes(disk.bytes, "threads.sft").expect("read");
    assert_eq!(trace.threads.len(), id as usize);
    assert!(trace.threads.iter().all(|one| one.name == "worker"));
}
