//! Goroutines laid out by hand, whole and broken.

use super::*;
use crate::memory::tests::Words;

const CROSSING: Crossing = Crossing {
    start: 0x40_2000,
    end: 0x40_2100,
    text: (0x40_0000, 0x48_0000),
    exit: 0x40_5000,
    goroutine_at: 8,
    depth_at: 0,
    has_frame: true,
};
const G: u64 = 0xc0_0000_0000;
const LOW: u64 = 0xc0_0010_0000;
const HIGH: u64 = LOW + 0x2000;
/// The crossing's frame on the goroutine's stack.
const OWN: u64 = HIGH - 0x200;
const SP: u64 = 0x7fff_0000_1000;

/// `cgocall` 0x401, `f` 0x402, `main` 0x403, then goexit.
fn memory() -> Words {
    let mut words = Words::default();
    words.put(SP, &[0x200, G]);
    words.put(G, &[LOW, HIGH]);
    words.put(OWN, &[OWN + 0x40, 0x40_1010]);
    words.put(OWN + 0x40, &[OWN + 0x80, 0x40_1020]);
    words.put(OWN + 0x80, &[OWN + 0xc0, 0x40_1030]);
    words.put(OWN + 0xc0, &[0, CROSSING.exit + 1]);
    words
}

fn walk(crossing: &Crossing, words: &Words, bp: u64) -> (Vec<u64>, bool) {
    let mut out = [0; MAX_GO];
    let (count, is_whole) = crossing.walk_by(words, SP, bp, &mut out);
    (out[..count].to_vec(), is_whole)
}

const ALL: [u64; 3] = [0x40_1010, 0x40_1020, 0x40_1030];

#[test]
fn frames_are_those_of_the_goroutine_whatever_the_register_holds() {
    for bp in [OWN, 0, 0x7fff_0000_2000, OWN + 0x80] {
        assert_eq!(
            walk(&CROSSING, &memory(), bp),
            (ALL.to_vec(), true),
            "{bp:#x}"
        );
    }
}

#[test]
fn without_a_frame_of_its_own_the_register_must_be_near_the_caller() {
    let crossing = Crossing {
        has_frame: false,
        ..CROSSING
    };
    let mut words = memory();
    words.put(OWN, &[0x40_1010]);
    assert_eq!(walk(&crossing, &words, OWN + 0x40), (ALL.to_vec(), true));
    // Of a stack that has moved: the caller alone is known.
    for bp in [OWN, OWN - 0x40, LOW - 0x100, HIGH, OWN + 0x1800, 0] {
        assert_eq!(
            walk(&crossing, &words, bp),
            (vec![0x40_1010], false),
            "{bp:#x}"
        );
    }
    words.put(OWN, &[0x50_0000]);
    assert_eq!(walk(&crossing, &words, OWN + 0x40), (vec![], false));
}

#[test]
fn a_walk_ends_at_what_is_no_frame_and_says_so() {
    let broken: [(u64, u64, usize); 8] = [
        // No goroutine; no address; deeper than its stack; not a multiple of 8.
        (SP + 8, 0, 0),
        (SP + 8, 3, 0),
        (SP, 0x3000, 0),
        (SP, 0x201, 0),
        // A return address that is none; a caller further in, on another stack (C called Go), or beyond its end.
        (OWN + 0x48, 0x50_0000, 1),
        (OWN + 0x40, OWN, 2),
        (OWN + 0x40, 0x7fff_0000_3000, 2),
        (OWN + 0x80, HIGH - 8, 3),
    ];
    for (at, word, frames) in broken {
        let mut words = memory();
        words.set(at, word);
        assert_eq!(
            walk(&CROSSING, &words, OWN),
            (ALL[..frames].to_vec(), false),
            "{at:#x} {word:#x}"
        );
    }
    // A stack without end.
    let mut words = memory();
    words.put(G, &[HIGH, HIGH]);
    assert_eq!(walk(&CROSSING, &words, OWN).0, []);
}

#[test]
fn more_frames_than_there_is_room_for_are_cut() {
    let mut words = memory();
    words.put(SP, &[0x1f00, G]);
    let own = HIGH - 0x1f00;
    for frame in 0..0x1f0 {
        words.put(
            own + frame * 16,
            &[own + (frame + 1) * 16, 0x40_1010 + frame],
        );
    }
    let (frames, is_whole) = walk(&CROSSING, &words, own);
    assert_eq!(
        (frames.len(), frames[0], is_whole),
        (MAX_GO, 0x40_1010, false)
    );
}

#[test]
fn words_come_back_and_what_contradicts_itself_is_none() {
    assert_eq!(Crossing::decode(CROSSING.encode()), Some(CROSSING));
    assert_eq!(Crossing::decode([0; 6]), None);
    let mut words = CROSSING.encode();
    words[1] = words[0];
    assert_eq!(Crossing::decode(words), None);
    words = CROSSING.encode();
    words[5] |= 4;
    assert_eq!(Crossing::decode(words), None);
}
