//! What was written is what is read: every kind of event, any number of threads, every field of
//! everything else.
//!
//! Not here: damage (damage.rs), full disks (full_disk.rs).

mod program;

use program::*;
use skinflint_trace::*;

fn written(events: &[Event], block_events: u32) -> Trace {
    let mut disk = Disk::new();
    let mut writer = Writer::new(&mut disk, &ProcessInfo::default(), 1).unwrap();
    write_events(&mut writer, events, block_events);
    writer
        .ending(&Ending {
            events: events.len() as u64,
            ..Ending::default()
        })
        .unwrap();
    let bytes = writer.bytes_written();
    assert_eq!(bytes, disk.bytes.len() as u64);
    Trace::from_bytes(disk.bytes, "memory.sft").unwrap()
}

#[test]
fn events_come_back_in_order_of_tickets() {
    for seed in 1..=40 {
        for shape in [Shape::Lifo, Shape::Fifo, Shape::Tree, Shape::Wild] {
            let threads = 1 + seed as u32 % 5;
            let block_events = [1, 7, 100, 5000][seed as usize % 4];
            println!("seed {seed} {shape:?} threads {threads} block {block_events}");
            let events = Program::new(seed, shape, threads).take(1500);
            let trace = written(&events, block_events);
            assert_eq!(trace.event_count(), 1500);
            assert!(trace.damage.is_empty(), "{:?}", trace.damage);
            let mut reader = trace.events();
            for (n, event) in events.iter().enumerate() {
                assert_eq!(reader.next_event().as_ref(), Some(event), "event {n}");
            }
            assert_eq!(reader.next_event(), None);
            assert!(reader.damage().is_empty());
            let mut n = 0;
            trace.events().for_each(|event| {
                assert_eq!(*event, events[n]);
                n += 1;
            });
            assert_eq!(n, events.len());
        }
    }
}

#[test]
fn next_event_and_for_each_may_be_mixed() {
    let events = Program::new(99, Shape::Tree, 4).take(20_000);
    let trace = written(&events, 1000);
    for stop in [0, 1, 2, 500, 999, 1000, 1001, 19_999] {
        let mut reader = trace.events();
        let mut got: Vec<Event> = (0..stop).map_while(|_| reader.next_event()).collect();
        reader.for_each(|event| got.push(*event));
        assert!(got == events, "stopped at {stop}");
    }
}

#[test]
fn a_reader_that_is_dropped_early_ends_its_thread() {
    let trace = written(&Program::new(5, Shape::Tree, 2).take(20_000), 100);
    for n in 0..20 {
        let mut reader = trace.events();
        assert!((0..n).all(|_| reader.next_event().is_some()));
    }
}
