//! A trace that grows byte by byte: at each length a follower has read the blocks that are complete.
//!
//! ```text
//!   whole file ─ copied a piece at a time ─► advance() … advance() ─► the same events, samples and ending
//! ```

use std::io::Write;

use skinflint_trace::{
    AllocFn, Ending, Event, EventEncoder, EventKind, Follower, NodeId, ProcessInfo, RssSample,
    ThreadId, Trace, Writer,
};

fn event(ticket: u64, thread: u32) -> Event {
    Event {
        ticket,
        time_ns: ticket * 1000,
        thread: ThreadId(thread),
        kind: EventKind::Alloc {
            func: AllocFn::Malloc,
            node: NodeId(1),
            addr: 0x1000 + ticket * 16,
            size: 8,
            usable: 24,
        },
    }
}

/// Writes blocks of two threads for three calls, with samples between them, and the end.
fn write(path: &std::path::Path) {
    let mut writer = Writer::create(
        path,
        &ProcessInfo {
            pid: 7,
            ..ProcessInfo::default()
        },
    )
    .expect("a file");
    writer.nodes(1, &[(0, 0x4000)]).expect("written");
    for round in 0..3u64 {
        for thread in 0..2 {
            let mut encoder = EventEncoder::new(ThreadId(thread));
            for n in 0..50 {
                encoder.push(&event(1 + round * 100 + n * 2 + u64::from(thread), thread));
            }
            writer
                .events(encoder.take().expect("a block"))
                .expect("written");
        }
        let sample = RssSample {
            time_ns: round,
            ..RssSample::default()
        };
        writer.rss(&[sample]).expect("written");
    }
    let ending = Ending {
        events: 300,
        ..Ending::default()
    };
    writer.ending(&ending).expect("written");
}

#[test]
fn each_piece_is_read_once_and_half_a_block_is_no_damage() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, growing) = (
        folder.path().join("whole.sft"),
        folder.path().join("growing.sft"),
    );
    write(&whole);
    let bytes = std::fs::read(&whole).expect("it");
    for step in [1, 7, 64, 1000, bytes.len()] {
        let mut file = std::fs::File::create(&growing).expect("a file");
        assert!(Follower::open(&growing).is_err(), "no header yet");
        let mut follower: Option<Follower> = None;
        let (mut tickets, mut samples) = (Vec::new(), 0);
        for piece in bytes.chunks(step) {
            file.write_all(piece).expect("written");
            if follower.is_none() {
                follower = Follower::open(&growing).ok();
            }
            let Some(follower) = &mut follower else {
                continue;
            };
            let mut events = follower.advance().expect("readable");
            let before = tickets.len();
            events.for_each(|event| tickets.push(event.ticket));
            assert!(tickets[before..].is_sorted(), "in order within a look");
            samples += follower.take_samples().0.len();
            assert!(
                follower.trace().damage.is_empty(),
                "{:?}",
                follower.trace().damage
            );
            assert_eq!(events.damage(), []);
        }
        let follower = follower.expect("opened");
        tickets.sort_unstable();
        assert_eq!(tickets, (1..=300).collect::<Vec<u64>>(), "step {step}");
        assert_eq!(samples, 3);
        assert_eq!(follower.trace().process.pid, 7);
        assert_eq!(
            follower.trace().ending.as_ref().map(|end| end.events),
            Some(300)
        );
        assert_eq!(follower.bytes_read(), bytes.len() as u64);
    }
    assert_eq!(Trace::open(&whole).expect("whole").event_count(), 300);
}
