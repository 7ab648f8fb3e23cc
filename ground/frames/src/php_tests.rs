//! Chains of PHP that are made by hand, and chains that contradict its layout.

use super::*;
use crate::memory::tests::Words;
use core::ffi::c_void;
use skinflint_base::random::Random;

pub(crate) const RUN: Extent = Extent {
    start: 0x5000,
    end: 0x6000,
};
pub(crate) const GLOBALS: Extent = Extent {
    start: 0x1000,
    end: 0x1708,
};
pub(crate) const PHP: Php = Php {
    globals: GLOBALS,
    run: RUN,
};

/// Native frames, outermost first, by their return addresses; so many are as they were.
pub(crate) struct Frames(pub Vec<u64>, pub usize);

impl Natives for Frames {
    fn total(&self) -> usize {
        self.0.len()
    }

    fn keep(&self) -> usize {
        self.1
    }

    fn pc(&self, index: usize) -> u64 {
        self.0[index]
    }

    fn slot(&self, index: usize) -> u64 {
        0x9000 - index as u64 * 0x100
    }

    fn is_whole(&self) -> bool {
        true
    }
}

fn natives() -> Frames {
    Frames(vec![0x4000, 0x5010, 0x7000, RUN.end, 0x7000], 0)
}

fn frame_at(index: u64) -> u64 {
    0x2_0000 + index * 0x100
}

/// Four instructions, at lines 10 to 13.
pub(crate) fn put_function(words: &mut Words, function: u64, kind: u64, name: u64) {
    words.set(function + at::KIND, kind);
    words.set(function + at::NAME, name);
    words.set(function + at::CLASS, 0);
    words.set(function + at::OPCODES, function + 0x200);
    words.set(function + at::COUNT, 4);
    words.set(function + at::FILE, 0x7700);
    words.set(function + at::FIRST_LINE, 10);
    for op in 0..4 {
        words.set(function + 0x200 + op * at::OP_BYTES + at::LINE, 10 + op);
    }
}

/// A script calls a function, which calls one that is C's, which calls a method; outermost first, at lines 11, 12 and 13.
fn made() -> Words {
    let mut words = Words::default();
    words.set(GLOBALS.start + at::FRAME, frame_at(3));
    let functions = [0x3_0000, 0x3_1000, 0x3_2000, 0x3_3000];
    let frames = [(4, 1, true), (2, 2, false), (1, 0, false), (2, 3, true)];
    for (index, (kind, place, is_first)) in frames.into_iter().enumerate() {
        let (function, frame) = (functions[index], frame_at(index as u64));
        let name = if index == 0 { 0 } else { 0x7700 };
        put_function(&mut words, function, kind, name);
        words.set(frame + at::OPLINE, function + 0x200 + place * at::OP_BYTES);
        words.set(frame + at::FUNCTION, function);
        words.set(
            frame + at::FLAGS,
            if is_first { FIRST_OF_A_CALL } else { 0 },
        );
        words.set(
            frame + at::CALLER,
            if index == 0 { 0 } else { frame - 0x100 },
        );
    }
    words.set(0x7700 + at::LENGTH, 4);
    words.set(0x7700 + at::CHARACTERS, 1);
    words
}

fn calls() -> Box<count::Calls> {
    // SAFETY: all-zero memory is none.
    unsafe { Box::<count::Calls>::new_zeroed().assume_init() }
}

fn walked(words: &Words, natives: &Frames) -> (Walked, Vec<(u64, u64, u32)>) {
    let mut out = [Link::default(); MAX_CHAIN];
    let mut calls = calls();
    let calls = calls.find(natives, RUN, false);
    let walked = PHP.walk(words, natives, calls, &mut out);
    let count = walked.ok().flatten().unwrap_or(0);
    let seen = out[..count].iter();
    (
        walked,
        seen.map(|link| (link.frame, link.record, link.unit))
            .collect(),
    )
}

#[test]
fn frames_are_walked_with_the_calls_of_the_executor() {
    let (_, seen) = walked(&made(), &natives());
    // Above the return addresses into native frames 3 and 1.
    let wanted = [
        (frame_at(3), 0x8d08, 13),
        (frame_at(1), 0x8f08, 12),
        (frame_at(0), 0x8f08, 11),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn calls_and_marks_that_are_not_as_many_are_not_read() {
    for pcs in [vec![0x5010], vec![0x5010; 3]] {
        assert_eq!(walked(&made(), &Frames(pcs, 0)).0, Ok(None));
    }
    // Another thread.
    let mut words = made();
    words.set(GLOBALS.start + at::FRAME, 0x10);
    assert_eq!(
        walked(&words, &Frames(vec![0x4000, 0x7000], 0)).0,
        Ok(Some(0))
    );
    // A circle.
    let mut words = made();
    words.set(frame_at(0) + at::CALLER, frame_at(3));
    assert_eq!(walked(&words, &natives()).0, Ok(None));
}

#[test]
fn calls_are_found_again_where_frames_are_new() {
    let mut random = Random::new(0xca11);
    let (mut known, mut judge) = (calls(), calls());
    let mut frames = Frames(Vec::new(), 0);
    for turn in 0..2000 {
        let left = random.below(4).min(frames.0.len() as u64) as usize;
        frames.0.truncate(frames.0.len() - left);
        // What is as it was may be told to be new.
        frames.1 = frames.0.len() - random.below(frames.0.len().min(2) as u64 + 1) as usize;
        while frames.0.len() < 40 && random.below(3) != 0 {
            let pcs = [0x4000, RUN.start, RUN.start + 1, RUN.end, RUN.end + 1];
            frames.0.push(pcs[random.below(5) as usize]);
        }
        let now = known.find(&frames, RUN, turn != 0).map(<[u32]>::to_vec);
        let wanted = judge.find(&frames, RUN, false);
        let is_call = |index: &u32| (RUN.start + 1..=RUN.end).contains(&frames.0[*index as usize]);
        let by_hand: Vec<u32> = (0..frames.0.len() as u32).filter(is_call).collect();
        assert_eq!(wanted, Some(&by_hand[..]));
        assert_eq!(now, Some(by_hand), "turn {turn}");
    }
    // More than there is room for.
    assert_eq!(known.find(&Frames(vec![0x5010; 1025], 0), RUN, false), None);
}

#[test]
fn what_contradicts_the_layout_is_refused() {
    let broken = |at: u64, word: u64| {
        let mut words = made();
        words.set(at, word);
        walked(&words, &natives()).0
    };
    assert_eq!(broken(frame_at(1) + at::CALLER, 0x10), Err(Refusal::Frame));
    assert_eq!(broken(frame_at(1) + at::FUNCTION, 0x10), Err(Refusal::Code));
}

#[test]
fn an_instruction_that_is_not_the_functions_is_before_its_first() {
    for opline in [
        0,
        GLOBALS.start + 0x100,
        0x3_1000 + 0x200 + 4 * at::OP_BYTES,
    ] {
        let mut words = made();
        words.set(frame_at(1), opline);
        let seen = walked(&words, &natives()).1;
        assert_eq!(seen.get(1), Some(&(frame_at(1), 0x8f08, 10)), "{opline:#x}");
    }
}

/// A program that exports globals of these sizes.
struct Exported {
    sizes: [u64; 3],
    has_threads: bool,
    is_php: bool,
}

impl Program for Exported {
    fn look(&self, name: &CStr) -> *mut c_void {
        let is_there = match name.to_bytes() {
            b"zend_execute_ex" => self.is_php,
            b"executor_globals_offset" => self.has_threads,
            _ => false,
        };
        core::ptr::without_provenance_mut(usize::from(is_there) * 8)
    }

    fn extent(&self, name: &CStr) -> Option<Extent> {
        let bytes = match name.to_bytes() {
            b"execute_ex" => 64,
            b"executor_globals" => self.sizes[0],
            b"compiler_globals" => self.sizes[1],
            b"core_globals" => self.sizes[2],
            _ => 0,
        };
        let start = 0x1000;
        let end = start + bytes;
        (bytes != 0).then_some(Extent { start, end })
    }

    fn thread_distance(&self, _: &CStr) -> Option<u64> {
        None
    }
}

#[test]
fn a_version_is_known_by_its_globals() {
    let found = |sizes, has_threads, is_php| {
        let exported = Exported {
            sizes,
            has_threads,
            is_php,
        };
        // SAFETY: nothing is loaded.
        unsafe { find(&exported) }.map(|(found, version)| (found.err(), version))
    };
    assert_eq!(
        found([1800, 568, 672], false, true),
        Some((None, 0x08_0200))
    );
    let refused = Some((Some(Refusal::Version), 0));
    assert_eq!(found([1792, 568, 672], false, true), refused);
    assert_eq!(found([1800, 568, 680], false, true), refused);
    assert_eq!(found([0; 3], true, true), refused);
    assert_eq!(found([1800, 568, 672], false, false), None);
}
