//! A recording in segments: read as one, or each by itself; whatever is missing or damaged, what is read says what lived.

use std::path::{Path, PathBuf};

use skinflint_trace::{
    AllocFn, Ending, Event, EventEncoder, EventKind, Exit, FreeFn, Mark, NodeId, ProcessInfo,
    Segment, Thread, ThreadId, Trace, Writer, older_segments, segment_path,
};

fn event(ticket: u64, kind: EventKind) -> Event {
    Event {
        ticket,
        time_ns: ticket * 1000,
        thread: ThreadId(0),
        kind,
    }
}

fn acquired(ticket: u64) -> Event {
    let kind = EventKind::Alloc {
        func: AllocFn::Malloc,
        node: NodeId(ticket as u32 % 3),
        addr: 0x1000 + ticket * 64,
        size: ticket,
        usable: ticket + 8,
    };
    event(ticket, kind)
}

fn released(ticket: u64, what: u64) -> Event {
    let kind = EventKind::Free {
        func: FreeFn::Free,
        addr: 0x1000 + what * 64,
    };
    event(ticket, kind)
}

fn put(writer: &mut Writer, events: &[Event]) {
    let mut encoder = EventEncoder::new(ThreadId(0));
    events.iter().for_each(|event| encoder.push(event));
    writer
        .events(encoder.take().expect("events"))
        .expect("written");
}

/// Writes segment `number` of a recording in which each acquires ten blocks and releases five of the one before.
fn write(path: &Path, number: u64, uid: &str, ends: bool) {
    let first = number * 100 + 10;
    let lived: Vec<Event> = match number {
        0 => Vec::new(),
        // Two of each earlier segment live on, and five of the last one that it is to release.
        _ => (0..number)
            .flat_map(|old| {
                (0..if old + 1 == number { 10 } else { 5 })
                    .map(move |n| acquired(old * 100 + 10 + n))
            })
            .map(|one| Event {
                ticket: 1,
                time_ns: 0,
                ..one
            })
            .collect(),
    };
    let segment = (number > 0).then(|| Segment {
        number,
        follows: true,
        since_ns: first * 1000,
        ticket: first,
        events: lived.len() as u64,
        blocks: lived.len() as u64,
        marks: number as u32,
        ..Segment::default()
    });
    let process = ProcessInfo {
        uid: uid.into(),
        pid: 7,
        segment,
        ..ProcessInfo::default()
    };
    let mut writer = Writer::create(path, &process).expect("a file");
    let nodes = [(0, 0x40), (0, 0x50)];
    let thread = Thread {
        tid: 9,
        name: "main".into(),
        started_ns: 0,
        ended_ns: None,
    };
    writer.repeats(number > 0).expect("nothing to write");
    writer.nodes(1, &nodes).expect("written");
    writer.thread(ThreadId(0), &thread).expect("written");
    if number > 0 {
        put(&mut writer, &lived);
    }
    writer.repeats(false).expect("nothing to write");
    let mark = Mark {
        name: format!("mark {number}"),
        time_ns: first * 1000,
        ticket: first,
        thread: None,
    };
    writer.mark(number as u32, &mark).expect("written");
    let mut own: Vec<Event> = (0..10).map(|n| acquired(first + n)).collect();
    if number > 0 {
        own.extend((0..5).map(|n| released(first + 10 + n, first - 100 + n * 2)));
    }
    put(&mut writer, &own);
    if ends {
        let ending = Ending {
            exit: Exit::Detached,
            events: (lived.len() + own.len()) as u64,
            ..Ending::default()
        };
        writer.ending(&ending).expect("written");
    }
}

fn recording(folder: &Path, ends: bool) -> PathBuf {
    let newest = folder.join("app.sft");
    for number in 0..3 {
        write(&segment_path(&newest, number), number, "one", true);
    }
    write(&newest, 3, "one", ends);
    newest
}

fn tickets(trace: &Trace) -> Vec<u64> {
    let (mut all, mut events) = (Vec::new(), trace.events());
    events.for_each(|event| all.push(event.ticket));
    assert_eq!(events.damage(), []);
    all
}

/// The tickets of segment `number` without its beginning.
fn own(number: u64) -> Vec<u64> {
    let first = number * 100 + 10;
    (first..first + if number > 0 { 15 } else { 10 }).collect()
}

#[test]
fn all_segments_are_the_whole_recording() {
    let folder = tempfile::tempdir().expect("a folder");
    let newest = recording(folder.path(), true);
    assert_eq!(older_segments(&newest).len(), 3);
    let trace = Trace::open(&newest).expect("read");
    assert_eq!(
        (trace.process.segment.clone(), &trace.damage[..]),
        (None, &[][..])
    );
    let expected: Vec<u64> = (0..4).flat_map(own).collect();
    assert_eq!(tickets(&trace), expected);
    assert_eq!(trace.event_count(), expected.len() as u64);
    let ending = trace.ending.as_ref().expect("its end");
    assert_eq!(ending.events, expected.len() as u64);
    let names: Vec<&str> = trace.marks.iter().map(|mark| &*mark.name).collect();
    assert_eq!(names, ["mark 0", "mark 1", "mark 2", "mark 3"]);
    assert_eq!((trace.threads.len(), trace.node_count()), (1, 3));
}

#[test]
fn what_is_left_begins_with_what_lived() {
    let folder = tempfile::tempdir().expect("a folder");
    let newest = recording(folder.path(), false);
    std::fs::remove_file(segment_path(&newest, 0)).expect("removed");
    let trace = Trace::open(&newest).expect("read");
    let segment = trace.process.segment.as_ref().expect("a segment");
    assert_eq!((segment.number, segment.events), (1, 10));
    let mut expected = vec![1; 10];
    expected.extend((1..4).flat_map(own));
    assert_eq!(tickets(&trace), expected);
    assert_eq!((trace.ending, &trace.damage[..]), (None, &[][..]));
    assert_eq!(trace.marks.len(), 4);
    assert_eq!(
        (&*trace.marks[0].name, &*trace.marks[1].name),
        ("(before what is kept)", "mark 1")
    );
    // An older one by its own name is read by itself.
    let alone = Trace::open(segment_path(&newest, 2)).expect("read");
    let mut expected = vec![1; 15];
    expected.extend(own(2));
    assert_eq!(tickets(&alone), expected);
    assert_eq!(alone.ending.map(|ending| ending.events), Some(30));
}

#[test]
fn nothing_is_joined_across_what_is_not_whole() {
    let spoil: [fn(&Path); 5] = [
        |path| std::fs::remove_file(path).expect("removed"),
        // Cut: no end mark.
        |path| {
            let bytes = std::fs::read(path).expect("read");
            std::fs::write(path, &bytes[..bytes.len() - 10]).expect("written");
        },
        |path| {
            let mut bytes = std::fs::read(path).expect("read");
            // The header of its own events, before the end mark.
            let is_head = |at: &usize| bytes[*at..].starts_with(b"\xabSF\xba");
            let heads: Vec<usize> = (0..bytes.len()).filter(is_head).collect();
            let head = heads[heads.len() - 2];
            bytes[head + 20] ^= 0x55;
            std::fs::write(path, bytes).expect("written");
        },
        // Of another recording, and another number.
        |path| write(path, 2, "two", true),
        |path| write(path, 1, "one", true),
    ];
    for (which, spoil) in spoil.iter().enumerate() {
        let folder = tempfile::tempdir().expect("a folder");
        let newest = recording(folder.path(), true);
        spoil(&segment_path(&newest, 2));
        let trace = Trace::open(&newest).expect("read");
        let mut expected = vec![1; 20];
        expected.extend(own(3));
        assert_eq!(tickets(&trace), expected, "{which}");
        assert_eq!(trace.damage, [], "{which}");
        assert_eq!(
            trace.process.segment.map(|one| one.number),
            Some(3),
            "{which}"
        );
    }
}

#[test]
fn a_segment_that_does_not_follow_stands_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let newest = recording(folder.path(), true);
    let segment = Segment {
        number: 3,
        follows: false,
        ..Segment::default()
    };
    let process = ProcessInfo {
        uid: "one".into(),
        segment: Some(segment.clone()),
        ..ProcessInfo::default()
    };
    drop(Writer::create(&newest, &process).expect("a file"));
    let trace = Trace::open(&newest).expect("read");
    assert_eq!(trace.process.segment, Some(segment));
    assert_eq!(trace.event_count(), 0);
}
