//! Chains of Ruby that are made by hand, and chains that contradict its layout.

use super::*;
use crate::memory::tests::Words;
use skinflint_base::random::Random;

const RUN: Extent = Extent {
    start: 0x5000,
    end: 0x6000,
};
pub(crate) const CONTEXT: u64 = 0x1000;
pub(crate) const VALUES: u64 = 0x2_0000;
pub(crate) const VALUE_WORDS: u64 = 256;
pub(crate) const STACK: Bounds = Bounds {
    sp: 0x9_0000,
    hi: 0x9_8000,
};
pub(crate) const LABEL: u64 = 0x7000;
pub(crate) const CODES: u64 = 0x3_0000;

pub(crate) fn ruby() -> Ruby {
    unsafe extern "C" fn never() -> c_int {
        0
    }
    Ruby {
        context: 0,
        run: RUN,
        during_gc: never,
    }
}

pub(crate) fn frame_at(index: u64) -> u64 {
    VALUES + VALUE_WORDS * 8 - (index + 1) * at::FRAME_BYTES
}

/// The text that all codes have as path and label.
pub(crate) fn put_label(words: &mut Words, text: u64) {
    words.put(LABEL, &[STRING | 4 << 14, 0, text, 0, 0]);
}

/// A code of 100 words, at lines 10 to 12 (from words 0, 4 and 60 on).
pub(crate) fn put_code(words: &mut Words, number: u64) -> u64 {
    let iseq = CODES + number * 0x1000;
    let (body, encoded, index, entries) = (iseq + 0x100, iseq + 0x800, iseq + 0x400, iseq + 0x600);
    words.put(iseq, &[INTERNAL | ISEQ_KIND, 0, body]);
    words.put(body, &[100 << 32, encoded]);
    words.put(body + at::PATH, &[LABEL, LABEL, LABEL, 10 << 1 | 1]);
    words.put(body + at::LINES, &[entries, 0, 3, index]);
    // Entries of twelve bytes: line, node, events.
    words.put(entries, &[10, 11 << 32, 0, 12, 0]);
    let count = |place: u64| if place < 4 { 1 } else { 2 };
    for word in 0..6 {
        let counts = (0..9).fold(0, |all, at| all | count(word * 9 + at) << (at * 7));
        words.put(index + word * 8, &[counts]);
    }
    // The block begins at place 54; bit 6 is place 60.
    words.put(index + 48, &[2, 1 | 1 << 9, 1 << 6, 0]);
    iseq
}

/// A method that calls a method; beneath, by C, a block. Outermost first: words are 1, 5 and 61 on.
fn made() -> Words {
    let mut words = Words::default();
    words.put(
        CONTEXT,
        &[VALUES, VALUE_WORDS, frame_at(4), STACK.sp + 0x100],
    );
    put_label(&mut words, u64::from_le_bytes(*b"made\0\0\0\0"));
    let code = put_code(&mut words, 0);
    // The first of all has a code that nothing runs.
    let frames = [
        (2, code, DUMMY | 0x20),
        (2, code, 0x20),
        (5, code, 0),
        (0, 0, 0x80),
        (61, code, 0x20),
    ];
    for (index, (place, iseq, flags)) in frames.into_iter().enumerate() {
        let (frame, ep) = (frame_at(index as u64), 0x8000 + index as u64 * 8);
        let pc = if iseq == 0 {
            0
        } else {
            iseq + 0x800 + place * 8
        };
        words.put(frame, &[pc, 0, iseq, 0, ep, 0, 0, 0]);
        words.put(ep, &[flags]);
    }
    // Two calls, and a tag of another function between them.
    let tags = [
        (0x100, 0x5010, 0x300),
        (0x300, 0x4000, 0x900),
        (0x900, 0x5010, 0),
    ];
    for (at, label, outer) in tags {
        let tag = STACK.sp + at;
        words.put(tag + at::LABEL, &[label]);
        let outer = if outer == 0 { 0 } else { STACK.sp + outer };
        words.put(tag + at::OUTER_TAG, &[outer]);
    }
    words
}

fn walked(words: &Words) -> (Walked, Vec<(u64, u64, u32)>) {
    let mut out = [Link::default(); MAX_CHAIN];
    let walked = ruby().walk(words, CONTEXT, STACK, &mut out);
    let count = walked.ok().flatten().unwrap_or(0);
    let seen = out[..count].iter();
    (
        walked,
        seen.map(|link| (link.frame, link.record - STACK.sp, link.unit))
            .collect(),
    )
}

#[test]
fn control_frames_are_walked_with_the_calls_that_run_them() {
    let (_, seen) = walked(&made());
    let wanted = [
        (frame_at(4), 0x100, 12),
        (frame_at(2), 0x900, 11),
        (frame_at(1), 0x900, 10),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn a_part_whose_call_has_not_begun_has_no_place() {
    let mut words = made();
    words.put(CONTEXT + at::TAG, &[STACK.sp + 0x300]);
    assert_eq!(
        walked(&words).1,
        [(frame_at(2), 0x900, 11), (frame_at(1), 0x900, 10)]
    );
    // More calls than parts; a tag on another stack, or further in than the one before.
    let mut words = made();
    words.put(0x8000 + 8, &[0]);
    words.put(0x8000 + 32, &[0]);
    assert_eq!(walked(&words).0, Ok(None));
    for outer in [STACK.hi, STACK.sp + 0x100, STACK.sp] {
        let mut words = made();
        words.put(STACK.sp + 0x300 + at::OUTER_TAG, &[outer]);
        assert_eq!(walked(&words).0, Ok(None), "{outer:#x}");
    }
}

#[test]
fn what_contradicts_the_layout_is_refused() {
    let broken = |at: u64, word: u64| {
        let mut words = made();
        words.put(at, &[word]);
        walked(&words).0
    };
    assert_eq!(
        broken(frame_at(2), CODES + 0x800 + 101 * 8),
        Err(Refusal::Instruction)
    );
    assert_eq!(
        broken(frame_at(2), CODES + 0x804),
        Err(Refusal::Instruction)
    );
    assert_eq!(broken(frame_at(2) + at::ISEQ, LABEL), Err(Refusal::Code));
    assert_eq!(broken(frame_at(2) + at::ISEQ, 0x10), Err(Refusal::Code));
    assert_eq!(broken(CODES + at::BODY, 0x10), Err(Refusal::Code));
    assert_eq!(broken(LABEL, ARRAY), Err(Refusal::Code));
    assert_eq!(broken(CONTEXT + at::FRAME, 0x10), Err(Refusal::Frame));
    // No call at all, where there are two parts.
    assert_eq!(broken(CONTEXT + at::TAG, 0), Err(Refusal::Record));
    // Another object that C brings is no code, and no contradiction.
    let mut words = made();
    words.put(CODES, &[INTERNAL | 4 << 12]);
    // But then the calls are more than the parts.
    assert_eq!(walked(&words).0, Ok(None));
}

#[test]
fn ranks_are_those_that_counting_gives() {
    let mut random = Random::new(0x4ab1);
    for _ in 0..20 {
        // 1,100 places: the ones that are counted at once, and three blocks.
        let begins: Vec<bool> = (0..1100)
            .map(|place| place == 0 || random.below(9) == 0)
            .collect();
        let up_to = |place: usize| begins[..=place].iter().filter(|one| **one).count() as u64;
        let mut words = Words::default();
        for word in 0..6 {
            let counts = (0..9).fold(0, |all, at| all | up_to(word * 9 + at) << (at * 7));
            words.put(word as u64 * 8, &[counts]);
        }
        for block in 0..3 {
            let first = 54 + block * 512;
            let has = |bit: usize| begins.get(first + bit).copied().unwrap_or(false);
            let at = 48 + block as u64 * 80;
            let mut groups = 0;
            let mut sum = 0u64;
            for group in 0..8 {
                if group > 0 {
                    groups |= sum << ((group - 1) * 9);
                }
                let bits =
                    (0..64).fold(0, |all, bit| all | u64::from(has(group * 64 + bit)) << bit);
                sum += u64::from(bits.count_ones());
                words.put(at + 16 + group as u64 * 8, &[bits]);
            }
            words.put(at, &[up_to(first - 1), groups]);
        }
        let word = |at: u64| words.word(at).ok_or(Refusal::Code);
        for place in 0..begins.len() {
            assert_eq!(
                rank(&word, 0, place as u64),
                Ok(up_to(place) as u32),
                "{place}"
            );
        }
    }
}

#[test]
fn texts_that_differ_are_told_apart() {
    let mut words = Words::default();
    let text = 0x100;
    let mut content_of = |all: &[u64], beyond: &[u64]| {
        words.put(text, all);
        words.put(0x200, beyond);
        content(&words, text)
    };
    // Inside; then elsewhere, where only what is between the ends differs.
    let inside = [STRING | 8 << 14, 0, 1, 0, 0];
    let one = content_of(&inside, &[]);
    assert_ne!(one, content_of(&[STRING | 8 << 14, 0, 2, 0, 0], &[]));
    assert_ne!(one, content_of(&[STRING | 7 << 14, 0, 1, 0, 0], &[]));
    // The collector marks objects, and that is no other text.
    assert_eq!(
        one,
        content_of(&[STRING | 8 << 14 | 3 << 5, 0, 1, 0, 0], &[])
    );
    let elsewhere = [STRING | ELSEWHERE, 0, 30, 0x201, 0];
    let one = content_of(&elsewhere, &[0, 1, 2, 3]);
    assert_ne!(one, content_of(&elsewhere, &[0, 9, 2, 3]));
    assert_ne!(one, content_of(&elsewhere, &[0, 1, 9, 3]));
}

#[test]
fn a_version_is_three_numbers() {
    assert_eq!(number(b"3.1.2"), 0x03_0102);
    assert_eq!(number(b"3.10.0-preview1"), 0x03_0a00);
    assert_eq!(number(b""), 0);
}
