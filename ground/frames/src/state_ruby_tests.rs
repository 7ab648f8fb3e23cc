//! The short way to Ruby's frames, against the whole walk of the same chains.

use super::tests::{Frames, state};
use super::*;
use crate::memory::tests::Words;
use crate::ruby::at;
use crate::ruby::tests::{
    CODES, CONTEXT, STACK, VALUE_WORDS, VALUES, frame_at, put_code, put_label, ruby,
};
use skinflint_base::random::Random;

const DEPTH: usize = 24;
const CODE_COUNT: u64 = 4;
const EPS: u64 = 0x1_0000;

/// A control frame: of a code (`None`: of C), at a word of it; whether a call begins with it, which has its tag there.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Made {
    code: Option<u64>,
    place: u64,
    tag: Option<u64>,
}

/// Where the native frame of a call ends: that of call 0 is native frame 1.
fn slot(native: usize) -> u64 {
    STACK.hi - 0x100 * (native as u64 + 1)
}

/// Writes a chain, outermost first, of which the `early` innermost calls have not begun. Returns the number of calls.
fn write(words: &mut Words, chain: &[Made], early: usize) -> usize {
    let mut tags = Vec::new();
    for (index, made) in chain.iter().enumerate() {
        let (frame, ep) = (frame_at(index as u64), EPS + index as u64 * 8);
        let iseq = made.code.map_or(0, |code| CODES + code * 0x1000);
        let pc = made.code.map_or(0, |_| iseq + 0x800 + made.place * 8);
        words.put(frame, &[pc, 0, iseq, 0, ep, 0, 0, 0]);
        words.put(ep, &[if made.tag.is_some() { 0x20 } else { 0 }]);
        if let Some(tag) = made.tag {
            tags.push(slot(tags.len() + 1) + tag);
        }
    }
    tags.truncate(tags.len().saturating_sub(early));
    let mut outer = 0;
    for (index, tag) in tags.iter().enumerate() {
        words.put(tag + at::LABEL, &[0x5010]);
        // Another function's tag between two calls.
        let between = tag + 0x20;
        words.put(between + at::LABEL, &[0x4000]);
        words.put(between + at::OUTER_TAG, &[outer]);
        words.put(
            tag + at::OUTER_TAG,
            &[if index % 2 == 0 { outer } else { between }],
        );
        outer = *tag;
    }
    let newest = frame_at(chain.len() as u64 - 1);
    words.put(CONTEXT, &[VALUES, VALUE_WORDS, newest, outer]);
    tags.len()
}

/// Changes a chain as a program does between two captures. Returns how many outermost control frames were not left.
fn step(random: &mut Random, chain: &mut Vec<Made>) -> usize {
    let left = (random.below(4) as usize).min(chain.len().saturating_sub(1));
    chain.truncate(chain.len() - left);
    let stayed = chain.len();
    if let Some(last) = chain.last_mut().filter(|last| last.code.is_some()) {
        last.place = 1 + random.below(99);
    }
    while chain.len() < DEPTH && random.below(3) != 0 {
        let code = (random.below(4) != 0).then(|| random.below(CODE_COUNT));
        let begins = code.is_some() && random.below(3) == 0;
        chain.push(Made {
            code,
            place: 1 + random.below(99),
            tag: begins.then(|| 0x10 + random.below(2) * 0x50),
        });
    }
    stayed
}

#[test]
fn the_short_way_gives_what_the_whole_walk_gives() {
    let mut random = Random::new(0x2b9);
    let mut words = Words::default();
    put_label(&mut words, 0);
    for code in 0..CODE_COUNT {
        put_code(&mut words, code);
    }
    let first = Made {
        code: Some(0),
        place: 1,
        tag: Some(0x10),
    };
    let mut chain = vec![first];
    let (mut quick, mut whole) = (state(), state());
    let (mut short, mut texts, mut begun_before) = (0, 0, 0);
    for turn in 0..2000 {
        let stayed = step(&mut random, &mut chain);
        let mut is_next = true;
        if random.below(16) == 0 {
            // Another thread has made the code anew.
            (texts, is_next) = (texts + 1, false);
            put_label(&mut words, texts);
        }
        let early = (random.below(8) == 0) as usize;
        let calls = write(&mut words, &chain, early);
        let stayed_calls = chain[..stayed]
            .iter()
            .filter(|made| made.tag.is_some())
            .count();
        // Native frame 0 is none of Ruby's.
        let same = 1 + stayed_calls.min(calls).min(begun_before);
        let natives = Frames {
            slots: (0..=calls).map(slot).collect(),
            keep: random.below(same as u64 + 1) as usize,
            is_whole: true,
        };
        begun_before = calls;
        let ruby = ruby();
        let context = (&ruby, CONTEXT, STACK);
        let before = quick.lists[quick.which][..quick.len].to_vec();
        let which = quick.which;
        let read = quick.read_ruby(&words, context, is_next, &natives);
        let judged = whole.read_ruby(&words, context, false, &natives);
        let unread = |read: &Result<(Plan, bool), Refusal>| read.map(|(_, unread)| unread);
        assert_eq!(unread(&read), unread(&judged), "turn {turn}");
        short += usize::from(quick.which == which);
        let now = &quick.lists[quick.which][..quick.len];
        assert_eq!(now, &whole.lists[whole.which][..whole.len], "turn {turn}");
        if let Ok((plan, false)) = read {
            assert_eq!(plan, super::plan(&before, now, natives.keep), "turn {turn}");
        }
    }
    assert!(short > 1200, "{short}");
}

#[test]
fn control_frames_of_an_older_capture_are_not_used() {
    let mut words = Words::default();
    put_label(&mut words, 0);
    put_code(&mut words, 0);
    let made = Made {
        code: Some(0),
        place: 5,
        tag: Some(0x10),
    };
    let calls = write(&mut words, &[made], 0);
    let natives = Frames {
        slots: (0..=calls).map(slot).collect(),
        keep: 0,
        is_whole: true,
    };
    let mut state = state();
    let users = |state: &mut State| {
        let read = state.read_ruby(&words, (&ruby(), CONTEXT, STACK), true, &natives);
        read.expect("a chain").0.all_users
    };
    assert_eq!([users(&mut state), users(&mut state)], [1, 1]);
    state.read_nothing(&natives);
    assert!(!state.has_users() && !state.is_followed);
    assert_eq!(users(&mut state), 1);
    state.forget();
    assert!(!state.is_followed);
    assert_eq!(users(&mut state), 1);
}
