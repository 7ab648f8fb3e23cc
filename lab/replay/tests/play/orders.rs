//! The check of the order: it is 0 if the order is kept, and shows it if it is not.

use skinflint_replay::script::Op;

use crate::made::{Script, busy};

#[test]
fn a_plain_script_plays() {
    let run = Script::new(1)
        .epoch(&[(
            0,
            &[
                Op::Malloc { slot: 0, size: 100 },
                Op::Calloc {
                    slot: 1,
                    size: 5000,
                },
            ],
        )])
        .epoch(&[(
            0,
            &[
                Op::Realloc {
                    slot: 0,
                    size: 100_000,
                },
                Op::Memalign {
                    slot: 2,
                    size: 64,
                    log2: 12,
                },
                Op::Free { slot: 1 },
                Op::Malloc { slot: 3, size: 0 },
            ],
        )])
        .played(&["--check"]);
    assert!(run.is_clean(), "{}", run.said);
    let counts =
        ["ops", "malloc", "calloc", "memalign", "realloc", "free"].map(|field| run.number(field));
    assert_eq!(counts, [6, 2, 1, 1, 1, 1]);
    assert_eq!(
        (run.number("live_bytes"), run.number("live_blocks")),
        (100_064, 3)
    );
    assert_eq!(run.number("overwritten"), 0);
}

#[test]
fn a_release_before_the_acquisition_is_counted() {
    let run = Script::new(1)
        .epoch(&[(0, &[Op::Free { slot: 5 }, Op::Malloc { slot: 5, size: 10 }])])
        .played(&[]);
    assert_eq!(run.status, Some(1));
    assert_eq!(
        (
            run.number("order_violations"),
            run.number("first_violation_slot")
        ),
        (1, 5)
    );
}

#[test]
fn a_realloc_and_a_touch_of_nothing_are_counted() {
    let run = Script::new(1)
        .epoch(&[(
            0,
            &[
                Op::Realloc { slot: 1, size: 10 },
                Op::Touch { slot: 2, pages: 1 },
                Op::Malloc { slot: 1, size: 1 },
            ],
        )])
        .played(&[]);
    assert_eq!((run.status, run.number("order_violations")), (Some(1), 2));
}

#[test]
fn a_slot_used_twice_is_counted() {
    let run = Script::new(1)
        .epoch(&[(
            0,
            &[
                Op::Malloc { slot: 3, size: 10 },
                Op::Malloc { slot: 3, size: 10 },
            ],
        )])
        .played(&[]);
    assert_eq!((run.status, run.number("double_uses")), (Some(1), 1));
}

/// Builds a script in which thread 0 acquires a second late by the recording; thread 1 releases at once, or waits.
fn handed_over(with_wait: bool) -> Script {
    let first = [
        Op::Start { thread: 1 },
        Op::Time { micros: 1_000_000 },
        Op::Malloc { slot: 0, size: 50 },
    ];
    let other = [Op::Wait { slot: 0, count: 1 }, Op::Free { slot: 0 }];
    Script::new(2).epoch(&[(0, &first), (1, &other[usize::from(!with_wait)..])])
}

#[test]
fn a_wait_keeps_the_order_and_without_it_the_check_fails() {
    let kept = handed_over(true).played(&["--paced", "1"]);
    assert!(kept.is_clean(), "{}", kept.said);
    let counts = ["waits", "slow_waits", "live_blocks"].map(|field| kept.number(field));
    assert_eq!(counts, [1, 1, 0]);
    let broken = handed_over(false).played(&["--paced", "1"]);
    assert_eq!(broken.status, Some(1));
    assert_eq!(broken.number("order_violations"), 1);
    assert_eq!(broken.number("live_blocks"), 1);
}

#[test]
fn the_next_epoch_but_one_waits_by_itself() {
    let mut first = vec![Op::Start { thread: 1 }];
    first.extend(busy(1, 1000));
    first.push(Op::Malloc { slot: 0, size: 50 });
    let other = [Op::Malloc { slot: 2, size: 1 }];
    let run = Script::new(2)
        .epoch(&[(0, &first)])
        .epoch(&[(1, &other)])
        .epoch(&[(1, &[Op::Free { slot: 0 }])])
        .played(&[]);
    assert!(run.is_clean(), "{}", run.said);
    assert_eq!(run.number("waits"), 0);
}

#[test]
fn a_wait_for_what_is_past_is_counted() {
    let run = Script::new(1)
        .epoch(&[(
            0,
            &[
                Op::Malloc { slot: 0, size: 1 },
                Op::Realloc { slot: 0, size: 2 },
                Op::Wait { slot: 0, count: 1 },
                Op::Free { slot: 0 },
            ],
        )])
        .played(&[]);
    assert_eq!((run.status, run.number("order_violations")), (Some(1), 1));
}

#[test]
fn a_wait_for_what_never_comes_ends_with_a_sentence() {
    let run = Script::new(2)
        .epoch(&[
            (0, &[Op::Start { thread: 1 }]),
            (1, &[Op::Wait { slot: 0, count: 1 }, Op::Free { slot: 0 }]),
        ])
        .played(&[]);
    assert_eq!(run.status, Some(3), "{}", run.said);
    assert!(
        run.said.contains("every thread waits for another"),
        "{}",
        run.said
    );
    assert_eq!(run.end()["line"], "error");
}

#[test]
fn a_thread_that_nobody_starts_ends_with_a_sentence() {
    let run = Script::new(2)
        .epoch(&[(1, &[Op::Malloc { slot: 0, size: 1 }])])
        .played(&[]);
    assert_eq!(run.status, Some(3), "{}", run.said);
}

#[test]
fn threads_come_and_go() {
    const THREADS: u32 = 600;
    let mut script = Script::new(THREADS + 1);
    for thread in 1..=THREADS {
        let begin = [
            Op::Malloc {
                slot: 2 * thread,
                size: 3000,
            },
            Op::Malloc {
                slot: 2 * thread + 1,
                size: 10,
            },
        ];
        let end = [Op::Free { slot: 2 * thread }, Op::End];
        script = script.epoch(&[(0, &[Op::Start { thread }]), (thread, &begin)]);
        script = script.epoch(&[(thread, &end)]);
    }
    let run = script.played(&["--check"]);
    assert!(run.is_clean(), "{}", run.said);
    assert_eq!(
        (run.number("threads_started"), run.number("live_blocks")),
        (u64::from(THREADS), u64::from(THREADS))
    );
    // Stacks of ended threads are used again: all together would hold a page each at least.
    assert!(
        run.number("own_bytes") < u64::from(THREADS) * 4096 / 2,
        "{}",
        run.number("own_bytes")
    );
}
