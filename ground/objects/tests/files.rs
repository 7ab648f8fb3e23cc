//! What is written is what is read; what is cut or damaged is read up to there, and never panics.

use skinflint_objects::synthetic::Shape;
use skinflint_objects::{
    Event, Info, KindId, Law, OpenError, Origin, Reader, Shared, Synthetic, Totals, Writer,
};
use std::path::Path;

fn info() -> Info {
    Info {
        program: "test".into(),
        source: "synthetic".into(),
    }
}

/// Returns a small trace and its events.
fn sample() -> (Vec<u8>, Vec<Event>) {
    let law = Law {
        live_bytes: 1 << 20,
        total_bytes: 4 << 20,
        ..Law::new(Shape::Steady, 5)
    };
    let events: Vec<Event> = Synthetic::new(law).collect();
    let mut writer = Writer::new(Vec::new(), &info()).unwrap();
    assert_eq!(writer.kind("object"), KindId(0));
    for event in &events {
        match *event {
            Event::Alloc {
                bytes,
                kind,
                origin,
                ..
            } => drop(writer.alloc(bytes, kind, origin)),
            Event::Death { id } => writer.death(id),
            Event::Collection => writer.collection(),
        }
    }
    let (bytes, totals) = writer.finish().unwrap();
    let allocations = events
        .iter()
        .filter(|e| matches!(e, Event::Alloc { .. }))
        .count() as u64;
    assert_eq!(totals.allocations, allocations);
    assert_eq!(totals.allocations + totals.deaths, events.len() as u64);
    (bytes, events)
}

fn open(bytes: &[u8]) -> Result<Reader<&[u8]>, OpenError> {
    Reader::new(bytes, Path::new("x.sfo"))
}

#[test]
fn what_was_written_is_read() {
    let (bytes, events) = sample();
    let mut reader = open(&bytes).unwrap();
    assert_eq!(reader.info(), &info());
    assert!(reader.by_ref().eq(events.iter().copied()));
    assert_eq!(reader.damage(), []);
    assert_eq!(
        reader.ending().unwrap().allocations + reader.ending().unwrap().deaths,
        events.len() as u64
    );
    assert_eq!(reader.kind(KindId(0)), "object");
    // The claim of `write`: at most three bytes an event, packed.
    assert!(
        bytes.len() < events.len() * 3,
        "{} for {}",
        bytes.len(),
        events.len()
    );
}

#[test]
fn by_hand() {
    let mut writer = Writer::new(Vec::new(), &info()).unwrap();
    let kind = writer.kind("leaf");
    assert_eq!(writer.alloc(24, kind, Origin::Gc), 0);
    assert_eq!(writer.alloc(5000, kind, Origin::GeneratedCode), 1);
    writer.collection();
    writer.death(0);
    writer.death(2);
    let (bytes, totals) = writer.finish().unwrap();
    let expected = Totals {
        allocations: 2,
        deaths: 1,
        collections: 1,
        unknown_deaths: 1,
        ..Totals::default()
    };
    assert_eq!(totals, expected);
    // INFO, KINDS and ENDING are raw; EVENTS too, being as short: 24·8+2, 0, 5000·8, 0, 4, 1·8+3.
    let events = [0xc2, 0x01, 0x00, 0xc0, 0xb8, 0x02, 0x00, 0x04, 0x0b];
    assert!(bytes.windows(events.len()).any(|window| window == events));
    let mut reader = open(&bytes).unwrap();
    let read: Vec<Event> = reader.by_ref().collect();
    let alloc = |id, bytes, origin| Event::Alloc {
        id,
        bytes,
        kind: KindId(0),
        origin,
    };
    let expected = [
        alloc(0, 24, Origin::Gc),
        alloc(1, 5000, Origin::GeneratedCode),
        Event::Collection,
        Event::Death { id: 0 },
    ];
    assert_eq!(read, expected);
    assert_eq!(reader.ending(), Some(totals));
}

#[test]
fn a_cut_file_is_read_up_to_the_cut() {
    let (bytes, events) = sample();
    let mut whole_at_some_cut = 0;
    for cut in (0..bytes.len())
        .step_by(1499)
        .chain(bytes.len() - 50..bytes.len())
    {
        let Ok(mut reader) = open(&bytes[..cut]) else {
            assert!(cut < 200, "the header was there at {cut}");
            continue;
        };
        let read: Vec<Event> = reader.by_ref().collect();
        assert_eq!(read, events[..read.len()], "cut at {cut}");
        assert!(reader.ending().is_none());
        for damage in reader.damage() {
            assert!(damage.offset <= cut as u64);
        }
        whole_at_some_cut = whole_at_some_cut.max(read.len());
    }
    assert_eq!(whole_at_some_cut, events.len());
}

/// The start of each block, and the events in it.
fn blocks(bytes: &[u8]) -> Vec<(usize, u64)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    let mut at = 16;
    while at < bytes.len() {
        let events = if bytes[at + 4] == 3 { word(at + 16) } else { 0 };
        all.push((at, u64::from(events)));
        at += 40 + word(at + 8) as usize;
    }
    all
}

#[test]
fn a_flipped_bit_costs_its_block_and_no_other() {
    let (bytes, events) = sample();
    let blocks = blocks(&bytes);
    assert!(blocks.len() > 5, "INFO, KINDS, ENDING, and some of events");
    let headers = blocks.iter().flat_map(|(at, _)| (*at..*at + 44).step_by(5));
    let places = (0..60)
        .step_by(3)
        .chain(headers)
        .chain((0..bytes.len()).step_by(9973));
    for at in places.filter(|at| *at < bytes.len()) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        let mut reader = open(&bad).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        let read: Vec<Event> = reader.by_ref().collect();
        let own = blocks.iter().rposition(|(start, _)| *start <= at);
        let (start, lost) = own.map_or((0, 0), |own| blocks[own]);
        assert_eq!(read.len() as u64 + lost, events.len() as u64, "byte {at}");
        let mut rest = events.iter();
        let in_order = read.iter().all(|event| match event {
            // Its kind is not named where that block is the damaged one.
            Event::Alloc { id, .. } => {
                rest.any(|known| matches!(known, Event::Alloc { id: known, .. } if known == id))
            }
            event => rest.any(|known| known == event),
        });
        assert!(in_order, "byte {at}");
        let [damage] = reader.damage() else {
            panic!("byte {at}: {:?}", reader.damage());
        };
        assert_eq!(damage.offset, start as u64, "byte {at}: {damage}");
        let allocated = |events: &[Event]| {
            let alloc = |event: &&Event| matches!(event, Event::Alloc { .. });
            events.iter().filter(alloc).count() as u64
        };
        assert_eq!(
            damage.objects,
            allocated(&events) - allocated(&read),
            "byte {at}"
        );
    }
}

#[test]
fn blocks_may_be_gone_twice_there_or_among_other_bytes() {
    let (bytes, events) = sample();
    let blocks = blocks(&bytes);
    let (at, lost) = blocks[3];
    let end = blocks[4].0;
    let read = |parts: &[&[u8]]| {
        let all = parts.concat();
        let mut reader = open(&all).unwrap();
        let count = reader.by_ref().count() as u64;
        (count, reader.damage().to_vec())
    };
    let all = events.len() as u64;
    let (count, damage) = read(&[&bytes[..at], &bytes[end..]]);
    assert_eq!((count, damage.len(), damage[0].bytes), (all - lost, 1, 0));
    let (count, damage) = read(&[&bytes[..end], &bytes[at..]]);
    assert_eq!((count, damage.len()), (all, 1));
    assert_eq!(damage[0].bytes, (end - at) as u64);
    // A header that is cut short by a byte, and zeroes between blocks, as a crash leaves them.
    let (count, damage) = read(&[&bytes[..at], &bytes[at + 1..]]);
    assert_eq!((count, damage.len()), (all - lost, 1));
    let (count, damage) = read(&[&bytes[..at], &[0; 200_000], &bytes[at..]]);
    assert_eq!((count, damage.len(), damage[0].bytes), (all, 1, 200_000));
    // Only a length within the payload is missing: the next block is found all the same.
    let (count, damage) = read(&[&bytes[..at + 60], &bytes[at + 70..]]);
    assert_eq!((count, damage.len()), (all - lost, 1));
}

#[test]
fn names_behind_lost_names_are_not_believed() {
    let mut writer = Writer::new(Vec::new(), &info()).unwrap();
    for name in ["first", "second", "third"] {
        let kind = writer.kind(name);
        // Enough for a block of events of its own, so that each name has one, too.
        for _ in 0..40_000 {
            writer.alloc(24, kind, Origin::Runtime);
        }
    }
    let (mut bytes, _) = writer.finish().unwrap();
    let names: Vec<usize> = blocks(&bytes)
        .into_iter()
        .map(|(at, _)| at)
        .filter(|at| bytes[at + 4] == 2)
        .collect();
    assert_eq!(names.len(), 3);
    let kinds_of = |bytes: &[u8]| -> Vec<String> {
        let mut reader = open(bytes).unwrap();
        let mut seen: Vec<KindId> = Vec::new();
        for event in reader.by_ref() {
            if let Event::Alloc { kind, .. } = event
                && !seen.contains(&kind)
            {
                seen.push(kind);
            }
        }
        let name = |kind: &KindId| reader.kind(*kind).to_owned();
        seen.iter().map(name).collect()
    };
    assert_eq!(kinds_of(&bytes), ["first", "second", "third"]);
    bytes[names[1] + 41] ^= 1; // its payload: how many names it had is known
    assert_eq!(kinds_of(&bytes), ["first", "?", "third"]);
    bytes[names[1] + 5] ^= 1; // its header: it might have had any number
    assert_eq!(kinds_of(&bytes), ["first", "?", "?"]);
}

#[test]
fn what_is_no_trace_says_so() {
    for bytes in [&b""[..], b"hello", b"\x89SFT\r\n\x1a\n0123456789abcdef"] {
        let error = open(bytes).err().expect("refused").to_string();
        assert!(error.contains("x.sfo is not an object trace"), "{error}");
    }
    let error = Reader::open("/nowhere/x.sfo")
        .err()
        .expect("refused")
        .to_string();
    assert!(error.starts_with("cannot read /nowhere/x.sfo"), "{error}");
}

#[test]
fn a_full_disk_loses_events_and_counts_them() {
    /// The bytes that it still takes.
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if bytes.len() > self.0 {
                return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Full(300), &info()).unwrap();
    let kind = writer.kind("leaf");
    for _ in 0..200_000 {
        writer.alloc(24, kind, Origin::Gc);
    }
    let error = writer.finish().err().expect("the error of the sink");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn addresses_become_ids_and_what_was_missed_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sfo");
    let shared = Shared::create(&path, &info()).unwrap();
    let kind = shared.kind("leaf");
    shared.alloc(0x10, 24, kind, Origin::Runtime); // 0
    shared.alloc(0x20, 32, kind, Origin::Runtime); // 1
    shared.moved(0x20, 0x30);
    shared.death(0x20); // nobody's any more
    shared.death(0x30); // 1
    shared.alloc(0x10, 40, kind, Origin::Runtime); // 2; the death of 0 was missed
    let threads: Vec<_> = (0..4usize)
        .map(|thread| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                for n in 0..1000 {
                    let addr = ((thread + 1) << 20) | ((n % 7) << 4);
                    shared.alloc(addr, 16, kind, Origin::Gc);
                    shared.death(addr);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let totals = shared.finish().unwrap();
    assert_eq!((totals.allocations, totals.deaths), (4003, 4002));
    assert_eq!((totals.unknown_deaths, totals.replaced), (1, 1));
    let mut live = std::collections::HashSet::new();
    for event in Reader::open(&path).unwrap() {
        match event {
            Event::Alloc { id, .. } => assert!(live.insert(id)),
            Event::Death { id } => assert!(live.remove(&id), "{id} died twice"),
            Event::Collection => unreachable!(),
        }
    }
    assert_eq!(live.into_iter().collect::<Vec<_>>(), [2]);
    assert_eq!(shared.finish().unwrap(), Totals::default());
}
