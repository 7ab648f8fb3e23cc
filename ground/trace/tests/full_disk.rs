//! A disk that is full after N bytes, for every N: whole blocks, an ending that counts the loss.
//!
//! Not here: SIGXFSZ, which the owner of the process must ignore.

mod program;

use program::*;
use skinflint_trace::*;

#[test]
fn full_after_every_number_of_bytes() {
    let events = Program::new(7, Shape::Tree, 2).take(600);
    let mut whole = Disk::new();
    let total = record(&mut whole, &events).expect("no limit");
    assert_eq!(total.0, 600);
    let mut ended = 0;
    for limit in 0..whole.bytes.len() {
        let mut disk = Disk {
            bytes: Vec::new(),
            limit,
        };
        let Some((written, lost)) = record(&mut disk, &events) else {
            continue;
        };
        assert!(disk.bytes.len() <= limit);
        assert_eq!(written + lost, 600, "limit {limit}");
        let trace = Trace::from_bytes(disk.bytes, "full.sft").unwrap();
        assert!(trace.damage.is_empty(), "limit {limit}: {:?}", trace.damage);
        assert_eq!(trace.process.name, "made-up");
        let mut reader = trace.events();
        let mut came = 0;
        reader.for_each(|_| came += 1);
        assert_eq!(came, written, "limit {limit}");
        let ending = trace.ending.unwrap();
        assert_eq!((ending.events, ending.lost_events), (written, lost));
        assert!(
            ending
                .notes
                .iter()
                .any(|note| note.contains("writing stopped after"))
        );
        ended += 1;
    }
    // Header, process and ending take a few hundred bytes; above that there is always an ending.
    assert!(
        ended > whole.bytes.len() - 600,
        "{ended} of {}",
        whole.bytes.len()
    );
}

#[test]
fn without_an_ending_too_there_are_only_whole_blocks() {
    let events = Program::new(7, Shape::Tree, 2).take(600);
    for limit in 0..2000 {
        let mut disk = Disk {
            bytes: Vec::new(),
            limit,
        };
        let Ok(mut writer) = Writer::new(&mut disk, &ProcessInfo::default(), 1) else {
            continue;
        };
        write_events(&mut writer, &events, 100);
        let (bytes, written) = (writer.bytes_written(), writer.events_written());
        assert_eq!(disk.bytes.len() as u64, bytes);
        let trace = Trace::from_bytes(disk.bytes, "full.sft").unwrap();
        assert!(trace.damage.is_empty(), "limit {limit}: {:?}", trace.damage);
        assert_eq!(trace.event_count(), written);
    }
}

/// Returns (events written, events lost), or `None` if the writer could not begin or end.
fn record(disk: &mut Disk, events: &[Event]) -> Option<(u64, u64)> {
    let process = ProcessInfo {
        name: "made-up".into(),
        ..ProcessInfo::default()
    };
    let mut writer = Writer::new(disk, &process, 1).ok()?;
    let _ = writer.nodes(1, &[(0, 1), (1, 2)]);
    write_events(&mut writer, events, 100);
    writer
        .ending(&Ending {
            events: 600,
            ..Ending::default()
        })
        .ok()?;
    Some((writer.events_written(), writer.events_lost()))
}

#[test]
fn a_folder_that_does_not_exist_is_named() {
    let path = std::path::Path::new("/nonexistent/folder/a.sft");
    let error = Writer::create(path, &ProcessInfo::default()).err().unwrap();
    assert!(
        error.to_string().contains("/nonexistent/folder/a.sft"),
        "{error}"
    );
}
