//! Bounds and edges of what the bus keeps: the log, tickets, the room below a limit.

use super::event::{Event, KEPT, Log, Source};
use super::group::Room;
use super::level::Level;
use super::tickets::Tickets;

fn event(number: u64) -> Event {
    Event {
        number,
        at_ms: 0,
        source: Source::Button,
        level: Level::High,
        wanted_bytes: 0,
        before_bytes: 10,
        after_bytes: 4,
        rows: Vec::new(),
        spared: 0,
        took_ns: 0,
    }
}

#[test]
fn the_log_keeps_the_last_rounds_and_counts_the_others() {
    let mut log = Log::default();
    for number in 1..=KEPT as u64 {
        log.add(event(number));
        assert_eq!((log.events().len() as u64, log.forgotten()), (number, 0));
    }
    for more in 1..=3 {
        log.add(event(KEPT as u64 + more));
        let kept = log.events();
        assert_eq!((kept.len(), log.forgotten()), (KEPT, more));
        assert_eq!(kept[0].number, 1 + more, "the oldest goes");
        assert_eq!(kept[KEPT - 1].number, KEPT as u64 + more);
    }
    assert_eq!(event(1).came_back_bytes(), 6);
}

#[test]
fn a_ticket_without_a_level_is_answered_by_the_next_look() {
    let tickets = Tickets::new();
    assert!(tickets.take().is_none(), "nobody asked");
    let first = tickets.post(2, 70);
    let second = tickets.post(1, 90);
    let posted = tickets.take().expect("asked");
    assert_eq!(
        (posted.level, posted.wanted_bytes, posted.ticket),
        (2, 90, 2)
    );
    assert!(!tickets.is_answered(first));
    // tickets.T2: the level went into that round; the tickets are open until they are answered.
    let open = tickets.take().expect("open");
    assert_eq!((open.level, open.wanted_bytes, open.ticket), (0, 0, 2));
    tickets.answer(open.ticket);
    assert!(tickets.is_answered(first) && tickets.is_answered(second));
    assert!(tickets.take().is_none());
    assert_eq!(tickets.drawn(), 2);
    assert!(!tickets.is_answered(3));
}

#[test]
fn the_margin_is_a_sixteenth_four_mebibytes_or_half() {
    let room = |limit: u64, free: u64| Room {
        group: "/".into(),
        limit,
        free,
    };
    let mib = |n: u64| n << 20;
    let margins = [
        (1024, 64),
        (128, 8),
        (64, 4),
        (32, 4),
        (8, 4),
        (6, 3),
        (2, 1),
    ];
    for (limit, margin) in margins {
        assert_eq!(room(mib(limit), 0).margin(), mib(margin), "{limit} MiB");
    }
    // At each edge, a byte below and above.
    let margin = mib(64);
    let of = |free: u64| room(mib(1024), free).level();
    assert_eq!(
        [of(margin / 4 - 1), of(margin / 4)],
        [Level::Critical, Level::High]
    );
    assert_eq!([of(margin - 1), of(margin)], [Level::High, Level::Near]);
    assert_eq!(
        [of(2 * margin - 1), of(2 * margin)],
        [Level::Near, Level::Calm]
    );
    assert_eq!(room(mib(1024), mib(100)).wanted(), mib(92));
    assert_eq!(room(mib(1024), mib(500)).wanted(), 0);
}
