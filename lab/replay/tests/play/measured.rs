//! What is measured: resident memory, the floor, the replayer's own, time.

use std::time::Duration;

use skinflint_replay::script::{Op, point};

use crate::made::Script;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

#[test]
fn pages_are_touched_as_far_as_the_script_says() {
    let run = Script::new(1)
        .point(point::PROGRESS)
        .epoch(&[(
            0,
            &[
                Op::TouchNext { pages: 16 },
                Op::Malloc {
                    slot: 0,
                    size: 64 * MIB,
                },
            ],
        )])
        .point(point::PEAK)
        .epoch(&[(
            0,
            &[Op::Touch {
                slot: 0,
                pages: 2048,
            }],
        )])
        .point(point::MARK)
        .epoch(&[(
            0,
            &[Op::Malloc {
                slot: 1,
                size: 8 * MIB,
            }],
        )])
        .played(&[]);
    assert!(run.is_clean(), "{}", run.said);
    let [begin, some, more, end] =
        ["progress", "peak", "mark", "end"].map(|name| run.at(name, "rss_bytes"));
    let near = |bytes: u64, wanted: u64| bytes.abs_diff(wanted) <= 8 * PAGE;
    assert!(near(some - begin, 16 * PAGE), "{begin} {some}");
    assert!(near(more - some, (2048 - 16) * PAGE), "{some} {more}");
    assert!(near(end - more, 8 * MIB), "{more} {end}");
    // The floor has what is resident, not what was asked for.
    assert!(near(run.at("end", "floor_bytes"), 2048 * PAGE + 8 * MIB));
    assert_eq!(run.at("end", "live_bytes"), 72 * MIB);
}

#[test]
fn a_realloc_touches_what_is_new() {
    let run = Script::new(1)
        .epoch(&[(
            0,
            &[
                Op::TouchNext { pages: 0 },
                Op::Malloc {
                    slot: 0,
                    size: 32 * MIB,
                },
            ],
        )])
        .point(point::PEAK)
        .epoch(&[(
            0,
            &[Op::Realloc {
                slot: 0,
                size: 40 * MIB,
            }],
        )])
        .played(&[]);
    let grown = run.at("end", "rss_bytes") - run.at("peak", "rss_bytes");
    assert!(grown.abs_diff(8 * MIB) <= 8 * PAGE, "{grown}");
}

#[test]
fn the_floor_is_the_pages_with_live_blocks() {
    // They are aligned to pages, so that it is known which ones they share: 3 + 2 + 1 pages, and one for both small
    // ones or two.
    let aligned = |slot, size| Op::Memalign {
        slot,
        size,
        log2: 12,
    };
    let run = Script::new(1)
        .epoch(&[(
            0,
            &[
                aligned(0, 3 * PAGE),
                aligned(1, PAGE + 1),
                aligned(2, 1),
                aligned(3, 5 * PAGE),
                Op::Malloc { slot: 4, size: 0 },
            ],
        )])
        .epoch(&[(0, &[Op::Free { slot: 3 }])])
        .played(&[]);
    assert_eq!(run.at("end", "floor_bytes"), 6 * PAGE);
}

#[test]
fn the_replayer_s_own_memory_is_less_than_24_bytes_a_block() {
    const BLOCKS: u64 = 500_000;
    let mut script = Script::new(1);
    let empty = Script::new(1).played(&[]);
    for first in (0..BLOCKS).step_by(4000) {
        let ops: Vec<Op> = (first..first + 4000)
            .map(|slot| Op::Malloc {
                slot: slot as u32,
                size: 16,
            })
            .collect();
        script = script.epoch(&[(0, &ops)]);
    }
    let run = script.played(&[]);
    assert_eq!(run.number("live_blocks"), BLOCKS);
    let own = run.number("own_bytes") - empty.number("own_bytes");
    assert!(own < 24 * BLOCKS, "{own}");
    // All of it is subtracted: what is left is what glibc needs for 16 bytes, 32.
    let heap = run.at("end", "rss_bytes") - empty.at("end", "rss_bytes");
    assert!(heap.abs_diff(32 * BLOCKS) < 32 * BLOCKS / 50, "{heap}");
    assert_eq!(run.at("end", "shmem_bytes"), run.at("end", "own_bytes"));
}

#[test]
fn what_the_allocator_refuses_is_counted_and_played_on() {
    let run = Script::new(1)
        .epoch(&[(
            0,
            &[
                Op::Malloc {
                    slot: 0,
                    size: 1 << 46,
                },
                Op::Malloc { slot: 1, size: 10 },
                Op::Realloc {
                    slot: 1,
                    size: 1 << 46,
                },
                Op::Free { slot: 0 },
                Op::Free { slot: 1 },
            ],
        )])
        .played(&["--check"]);
    assert_eq!(run.status, Some(0), "{}", run.said);
    assert_eq!((run.number("refused"), run.number("live_blocks")), (2, 0));
}

/// A pause that is kept lasts at least its time; one that is not kept would last longer than a test may.
#[test]
fn recorded_time_is_kept_and_idle_is_waited_for() {
    let paused = |seconds: u32| {
        let pause = Op::Time {
            micros: seconds * 1_000_000,
        };
        let ops = [
            Op::Malloc { slot: 0, size: 10 },
            pause,
            Op::Free { slot: 0 },
        ];
        Script::new(1).epoch(&[(0, &ops)])
    };
    let wall = |script: &Script, options: &[&str]| script.played(options).number("wall_ns");
    let (short, long) = (paused(1), paused(600));
    wall(&long, &[]);
    assert!(wall(&short, &["--paced", "1"]) >= 1_000_000_000);
    assert!(wall(&long, &["--paced", "1000"]) >= 600_000_000);
    let idle = short.played(&["--idle", "0.7"]);
    assert!(idle.lines.iter().any(|line| line["name"] == "idle"));
    let counted = Duration::from_nanos(idle.number("wall_ns"));
    // CLOCK: a sleep lasts so long at least.
    assert!(
        idle.took >= counted + Duration::from_millis(700),
        "idling is not counted: {counted:?} of {:?}",
        idle.took
    );
}

/// By the recording all is over after 302 ms. The second thread waits for a block that the first takes after 200 ms,
/// and is late by as much as that takes longer than its own 2 ms; its pause after that is still 300 ms.
#[test]
fn a_late_replay_keeps_its_pauses() {
    let first = [
        Op::Start { thread: 1 },
        Op::Time { micros: 200_000 },
        Op::Malloc { slot: 0, size: MIB },
    ];
    let second = [
        Op::Time { micros: 1000 },
        Op::Wait { slot: 0, count: 1 },
        Op::Free { slot: 0 },
        Op::Time { micros: 1000 },
        Op::Time { micros: 300_000 },
        Op::Malloc { slot: 0, size: 10 },
    ];
    let script = Script::new(2).epoch(&[(0, &first), (1, &second)]);
    let run = script.played(&["--paced", "1"]);
    let (late, wall) = (run.number("late_ns"), run.number("wall_ns"));
    assert!(late >= 198_000_000, "{late}");
    assert!(wall >= 302_000_000 + late, "{wall} {late}");
}

#[test]
fn nothing_is_called_with_null() {
    let ops: Vec<Op> = (0..2000)
        .map(|slot| Op::Malloc {
            slot,
            size: 100_000,
        })
        .collect();
    let run = Script::new(1).epoch(&[(0, &ops)]).played(&["--null"]);
    assert!(run.is_clean());
    assert!(
        run.at("end", "rss_bytes") < 4 * MIB,
        "{}",
        run.at("end", "rss_bytes")
    );
}
