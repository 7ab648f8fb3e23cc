//! How the allocator's classes are learned, believed, and unlearned.
//!
//! Sizes are of this file alone: the table is the process's, and other tests learn beside these. Where the allocator
//! says beforehand what it gives (fill.F1) nothing is learned; these tests run beneath one that does not say it.

use super::*;

/// Returns 5 or more sizes below a page whose block has a rest; each has its own place in the table.
fn with_rest(from: usize) -> Vec<usize> {
    let mut taken = std::collections::BTreeSet::new();
    let sizes = (from..from + 400).filter(|&bytes| {
        let block = Block::begin(bytes, 1, 16).expect("memory");
        block.usable() > bytes && taken.insert(core::ptr::from_ref(answer_for(bytes)).addr())
    });
    let sizes: Vec<usize> = sizes.take(8).collect();
    assert!(sizes.len() >= 5, "{sizes:?}");
    sizes
}

#[test]
fn what_was_given_once_for_certain_is_expected_from_then_on() {
    for bytes in with_rest(1_201) {
        forget(bytes);
        assert_eq!(expected(bytes), bytes);
        let first = Block::take(bytes, 16).expect("memory");
        assert_eq!(first.bytes(), first.usable());
        assert!(first.bytes() > bytes);
        assert_eq!(expected(bytes), first.bytes(), "{bytes}");
        assert_eq!(
            expected(first.bytes()),
            first.bytes(),
            "a class is its own answer"
        );
    }
}

#[test]
fn what_is_left_over_is_believed_after_some_times_and_not_before() {
    for bytes in with_rest(2_201) {
        forget(bytes);
        let given = Block::begin(bytes, 1, 16).expect("memory").usable();
        let mut times = 1;
        while expected(bytes) == bytes {
            assert!(times < 100, "{bytes}: never believed");
            let block = Block::begin(bytes, 1, 16).expect("memory");
            if block.usable() == given {
                times += 1;
            }
        }
        assert!(times > 2, "{bytes}: believed after {times}");
        assert!(expected(bytes) > bytes && expected(bytes) <= given.max(expected(bytes)));
    }
}

#[test]
fn an_answer_that_was_none_is_unlearned() {
    for bytes in with_rest(3_201) {
        let given = Block::begin(bytes, 1, 16).expect("memory").usable();
        // The answer claims to be the end of a class, and is a byte too small.
        learn(bytes, given - 1, true);
        if expected(bytes) == bytes {
            continue;
        }
        let block = Block::begin(bytes, 1, 16).expect("memory");
        assert!(block.usable() >= given);
        assert_eq!(expected(bytes), bytes, "unlearned");
    }
}

#[test]
fn of_two_answers_the_lesser_is_the_class() {
    let bytes = 4_444;
    learn(bytes, bytes + 40, true);
    learn(bytes, bytes + 12, false);
    assert_eq!(
        expected(bytes),
        bytes,
        "a lesser one begins anew, and is not believed at once"
    );
    learn(bytes, bytes + 12, true);
    assert_eq!(expected(bytes), bytes + 12);
    learn(bytes, bytes + 40, false);
    assert_eq!(expected(bytes), bytes + 12, "a greater one changes nothing");
    forget(bytes);
    assert_eq!(expected(bytes), bytes);
}

#[test]
fn a_block_of_items_has_whole_ones() {
    forget(5_000);
    learn(5_000, 5_030, true);
    assert_eq!(of_items(5_000, 8), 5_024);
    assert_eq!(of_items(5_000, 1_000), 5_000);
    assert_eq!(of_items(5_000, 0), 5_030);
    assert_eq!(of_items(0, 8), 1.max(expected(1) - expected(1) % 8));
    forget(5_000);
}
