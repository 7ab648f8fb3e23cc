//! Tests of triggers, by clocks that the tests move.

use super::*;

#[test]
fn the_table_of_firefox() {
    let table = Growth::SPIDERMONKEY;
    let rare = 2 * SECOND_NS;
    assert_eq!(table.factor_for(10 * MIB, rare), 1.5);
    assert_eq!(table.factor_for(100 * MIB, 0), 3.0);
    assert_eq!(table.factor_for(300 * MIB, 0), 2.25);
    assert_eq!(table.factor_for(500 * MIB, 0), 1.5);
    assert_eq!(table.factor_for(5000 * MIB, 0), 1.5);
    assert_eq!(table.threshold(MIB, rare), 27 * MIB);
    assert_eq!(table.threshold(100 * MIB, rare), 150 * MIB);
}

#[test]
fn no_table_collects_for_ever() {
    let mut table = Growth::TENANT;
    for factor in [0.0, 1.0, -3.0, f64::NAN] {
        table.factor = factor;
        table.often_small = factor;
        assert!(table.threshold(100 * MIB, 0) >= 105 * MIB - 1);
        assert!(table.threshold(100 * MIB, u64::MAX) >= 105 * MIB - 1);
    }
}

#[test]
fn the_first_reason_is_kept_and_idle_needs_rest() {
    let triggers = Triggers::new(Growth::TENANT);
    triggers.took(MIB);
    assert_eq!(triggers.due(), None);
    triggers.client(5 * MIB as isize);
    triggers.took(1);
    assert_eq!(triggers.due(), Some(Reason::ClientBytes));
    let look = |second: u64| triggers.idle_action(second * SECOND_NS, 0);
    assert_eq!(look(100), IdleAction::Nothing, "the first look");
    let rested = IdleAction::Collect(Reason::Idle);
    assert_eq!(look(119), IdleAction::Nothing);
    assert_eq!(look(120), rested);
    triggers.took(1);
    // Something was taken, and it is long since anything was collected.
    assert_eq!(look(121), IdleAction::Collect(Reason::Interval));
    assert_eq!(look(141), rested);
}

/// A collection at this time that leaves `live` bytes.
fn collected(triggers: &Triggers, reason: Reason, live: usize) {
    let record = Collection {
        reason,
        heaps: 1,
        started_ns: 0,
        pause_ns: 0,
        slices: 1,
        longest_ns: 0,
        forced: false,
        finish_ns: 0,
        mark_ns: 0,
        before_bytes: triggers.used_bytes.get(),
        live_bytes: live,
        live_cells: 1,
        client_bytes: 0,
        threshold_bytes: 0,
        factor: 0.0,
        share: None,
        overflows: 0,
    };
    triggers.collected(record, None, 0);
}

/// A program that takes a little each second: the seconds at which it is collected.
fn trickle(triggers: &Triggers, seconds: core::ops::Range<u64>, live: usize) -> Vec<u64> {
    let mut when = Vec::new();
    for now in seconds {
        triggers.took(10);
        match triggers.idle_action(now * SECOND_NS, 0) {
            IdleAction::Collect(Reason::Interval) => {
                when.push(now);
                collected(triggers, Reason::Interval, live);
            }
            IdleAction::Nothing => {}
            other => panic!("{other:?} at {now}"),
        }
    }
    when
}

#[test]
fn a_trickle_is_collected_after_the_interval_and_then_ever_more_rarely() {
    let triggers = Triggers::new(Growth {
        floor_bytes: usize::MAX,
        ..Growth::TENANT
    });
    triggers.took(112 * MIB);
    // The first look is at 100; each next interval begins with the look after a collection. The first frees all but
    // 100 MiB, an eighth; from then on next to nothing.
    let when = trickle(&triggers, 100..1000, 100 * MIB);
    assert_eq!(when, [120, 141, 182, 263, 424, 745]);
    // Growth: times have changed.
    collected(&triggers, Reason::Growth, 100 * MIB);
    assert_eq!(trickle(&triggers, 1000..1030, 100 * MIB), [1020]);
    // Nothing taken since, nothing to do.
    assert_eq!(
        triggers.idle_action(5000 * SECOND_NS, 0),
        IdleAction::Collect(Reason::Idle)
    );
    collected(&triggers, Reason::Idle, 100 * MIB);
    triggers.gave_back(0);
    assert_eq!(
        triggers.idle_action(9000 * SECOND_NS, 0),
        IdleAction::Nothing
    );
    // And a table without an interval leaves a trickle alone.
    triggers.set_growth(
        Growth {
            interval_ns: u64::MAX,
            ..triggers.growth.get()
        },
        0,
        None,
    );
    assert!(trickle(&triggers, 10_000..20_000, 0).is_empty());
}

#[test]
fn what_a_closure_took_beyond_the_threshold_is_expected_again() {
    let triggers = Triggers::new(Growth::TENANT);
    triggers.took(20 * MIB);
    // The floor is a megabyte: no more is expected beyond it than up to it.
    assert_eq!(triggers.expected(0, 0), 2 * MIB);
    collected(&triggers, Reason::Growth, 10 * MIB);
    let until = triggers.threshold_bytes.get() - 10 * MIB;
    assert_eq!(triggers.wanted_bytes(), 2 * until);
    triggers.took(until + MIB);
    assert_eq!(triggers.wanted_bytes(), until - MIB);
    assert_eq!(triggers.expected(10 * MIB, 0), until + MIB);
    collected(&triggers, Reason::Growth, 10 * MIB);
    assert_eq!(triggers.wanted_bytes(), until + MIB);
    triggers.took(until);
    collected(&triggers, Reason::Asked, 10 * MIB);
    assert_eq!(triggers.wanted_bytes(), until, "it waited for nothing");
}

fn in_slices(limit_bytes: usize) -> Triggers {
    let triggers = Triggers::new(Growth::TENANT);
    triggers.set_incremental(Some(Incremental::DEFAULT));
    triggers.set_room(limit_bytes);
    triggers
}

#[test]
fn pages_near_the_limit_begin_at_an_eighth_and_force_at_a_sixteenth() {
    let due = |taken: usize, held: usize| {
        let triggers = in_slices(64 * MIB);
        triggers.used_bytes.set(taken);
        triggers.held(held);
        (triggers.begin_due(), triggers.due())
    };
    let growth = Some(Reason::Growth);
    assert_eq!(due(MIB, 56 * MIB), (None, None), "not beyond the eighth");
    assert_eq!(due(MIB, 56 * MIB + 1), (growth, None));
    assert_eq!(due(MIB - 1, 56 * MIB + 1), (None, None), "too little taken");
    assert_eq!(due(MIB, 60 * MIB), (growth, None));
    assert_eq!(due(MIB, 60 * MIB + 1), (None, growth));
}

#[test]
fn a_new_limit_moves_the_thresholds_at_once() {
    let triggers = Triggers::new(Growth::TENANT);
    let floor = triggers.threshold_bytes.get();
    let limit = floor / 2;
    triggers.set_room(limit);
    assert_eq!(triggers.threshold_bytes.get(), limit - limit / 8);
    assert_eq!(triggers.limit_bytes(), limit - limit / 8);
}

#[test]
fn client_bytes_begin_at_the_rooms_threshold_and_force_half_way_to_the_limit() {
    // The threshold of an empty room of 2 MiB is 7/8 of it, half-way from there to the limit 15/16.
    let due = |client: usize| {
        let triggers = in_slices(2 * MIB);
        triggers.client(client as isize);
        (triggers.begin_due(), triggers.due())
    };
    let reason = Some(Reason::ClientBytes);
    let (threshold, forced) = (2 * MIB / 8 * 7, 2 * MIB / 16 * 15);
    assert_eq!(due(threshold), (None, None));
    assert_eq!(due(threshold + 1), (reason, None));
    assert_eq!(due(forced), (reason, None));
    assert_eq!(due(forced + 1), (None, reason));
    let triggers = in_slices(2 * MIB);
    triggers.used_bytes.set(forced + 1);
    triggers.client(0);
    assert_eq!(triggers.due(), None, "nothing was added");
}
