//! Chains that are made by hand, of each layout, and chains that contradict theirs.

use super::*;
use crate::layout::layout_of;
use crate::memory::{Asked, Plain};
use crate::runtime::tests::runtime;

const CODE_TYPE: usize = 0;

/// A thread's memory: a stack, frames elsewhere, codes.
pub(crate) struct Thread {
    version: u32,
    words: Box<[u64; 4096]>,
    used: usize,
}

impl Thread {
    pub(crate) fn new(version: u32) -> Thread {
        let words = Box::new([0; 4096]);
        // The first words are the type of codes, the state of the thread, then codes and frames; the stack is the end.
        Thread {
            version,
            words,
            used: 64,
        }
    }

    pub(crate) fn at(&self, index: usize) -> u64 {
        &raw const self.words[index] as u64
    }

    pub(crate) fn take(&mut self, words: usize) -> usize {
        self.used += words;
        self.used - words
    }

    pub(crate) fn runtime(&self) -> Runtime {
        runtime(self.version, [self.at(CODE_TYPE); 3])
    }

    pub(crate) fn state(&self) -> u64 {
        self.at(16)
    }

    pub(crate) fn set(&mut self, at: u64, value: u64) {
        let index = (at - self.at(0)) as usize / 8;
        self.words[index] = value;
    }

    /// The stack, from its lowest word in use.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            sp: self.at(3000),
            hi: self.at(4095) + 8,
        }
    }

    pub(crate) fn set_byte(&mut self, at: u64, value: u8) {
        let (index, byte) = ((at - self.at(0)) as usize / 8, (at & 7) * 8);
        self.words[index] |= u64::from(value) << byte;
    }

    pub(crate) fn code(&mut self, units: u64) -> u64 {
        let index = self.take(40);
        let code = self.at(index);
        self.set(code + 8, self.at(CODE_TYPE));
        self.set(code + 16, units);
        let layout = layout_of(self.version).expect("known");
        self.set(code + layout.name, code);
        if let Place::Number { bytes, .. } = layout.place {
            let object = self.take(4);
            self.set(self.at(object) + 16, units * 2);
            self.set(code + bytes, self.at(object));
        }
        code
    }

    pub(crate) fn frame_at(&mut self, frame: u64, code: u64, unit: i64, previous: u64) -> u64 {
        let layout = layout_of(self.version).expect("known");
        self.set(frame + layout.code, code | layout.tag & 1);
        self.set(frame + layout.previous, previous);
        match layout.place {
            Place::Address { bytecode } => {
                let at = (code + bytecode).wrapping_add_signed(unit * 2);
                self.set(frame + layout.instruction, at);
            }
            Place::Number { per_unit, .. } => {
                let number = if unit < 0 { -1 } else { unit as i32 * per_unit };
                self.set(
                    frame + layout.instruction,
                    u64::from(number.cast_unsigned()),
                );
            }
        }
        frame
    }

    pub(crate) fn frame(&mut self, code: u64, unit: i64, previous: u64) -> u64 {
        let index = self.take(14);
        self.frame_at(self.at(index), code, unit, previous)
    }

    /// A word of the stack: index 0 is the outermost.
    pub(crate) fn stack(&self, index: usize) -> u64 {
        self.at(4095 - 16 * (index + 1))
    }

    fn walk(&self) -> (Walked, Vec<Link>) {
        let runtime = self.runtime();
        let bounds = self.bounds();
        let mut out = [[Link::default(); MAX_CHAIN]; 2];
        let plain = walk(&Plain, &runtime, self.state(), bounds, &mut out[0]);
        let asked = walk(&Asked, &runtime, self.state(), bounds, &mut out[1]);
        assert_eq!(plain, asked, "the kernel knows all of it");
        let count = plain.ok().flatten().unwrap_or(0);
        assert_eq!(out[0][..count], out[1][..count]);
        (plain, out[0][..count].to_vec())
    }
}

pub(crate) const V11: u32 = 0x030b_02f0;
pub(crate) const V12: u32 = 0x030c_01f0;
pub(crate) const V13: u32 = 0x030d_00f0;
pub(crate) const V14: u32 = 0x030e_00f0;
const V9: u32 = 0x0309_00f0;
const V10: u32 = 0x030a_00f0;

/// Two calls of the eval loop; the outer runs two functions, the inner one. Returns the thread, its frames outermost
/// first, and the records of both calls.
fn two_calls(version: u32) -> (Thread, [u64; 3], [u64; 2]) {
    let mut thread = Thread::new(version);
    let code = thread.code(100);
    let layout = layout_of(version).expect("known");
    let records = [thread.stack(4), thread.stack(20)];
    let (frames, first) = match layout.border {
        Border::Cframe { frame, previous } => {
            let outer = thread.frame(code, 10, 0);
            thread.set_byte(outer + layout.mark, 1);
            let middle = thread.frame(code, 20, outer);
            let inner = thread.frame(code, -1, middle);
            thread.set_byte(inner + layout.mark, 1);
            let root = thread.state() + 200;
            thread.set(records[0] + frame, middle);
            thread.set(records[0] + previous, root);
            thread.set(records[1] + frame, inner);
            thread.set(records[1] + previous, records[0]);
            ([outer, middle, inner], records[1])
        }
        Border::Count | Border::Pair { .. } => unreachable!("a call for each frame"),
        Border::Shim { owner } => {
            for (record, previous) in [(records[0], 0), (records[1], 0)] {
                thread.frame_at(record, code, 0, previous);
                thread.set_byte(record + layout.mark, owner);
            }
            let outer = thread.frame(code, 10, records[0]);
            let middle = thread.frame(code, 20, outer);
            thread.set(records[1] + layout.previous, middle);
            let inner = thread.frame(code, -1, records[1]);
            ([outer, middle, inner], inner)
        }
    };
    let first = match layout.through {
        Some(through) => {
            let cframe = thread.stack(25);
            thread.set(cframe + through, first);
            cframe
        }
        None => first,
    };
    thread.set(thread.state() + layout.current, first);
    (thread, frames, records)
}

#[test]
fn each_layout_is_walked_with_its_records() {
    for version in [V11, V12, V13, V14] {
        let (thread, [outer, middle, inner], [first, second]) = two_calls(version);
        let (walked, links) = thread.walk();
        assert_eq!(walked, Ok(Some(3)), "{version:#x}");
        let seen: Vec<_> = links.iter().map(|l| (l.frame, l.record, l.unit)).collect();
        assert_eq!(
            seen,
            [(inner, second, 0), (middle, first, 21), (outer, first, 11)]
        );
    }
}

#[test]
fn frames_without_records_are_walked() {
    let mut thread = Thread::new(V9);
    let code = thread.code(100);
    let outer = thread.frame(code, 10, 0);
    let inner = thread.frame(code, -1, outer);
    thread.set(thread.state() + 24, inner);
    let (walked, links) = thread.walk();
    assert_eq!(walked, Ok(Some(2)));
    let seen: Vec<_> = links.iter().map(|l| (l.frame, l.record, l.unit)).collect();
    assert_eq!(seen, [(inner, 0, 0), (outer, 1, 11)]);
    thread.set(outer + 104, 200);
    assert_eq!(thread.walk().1.get(1).map(|link| link.unit), None);
    assert_eq!(thread.walk().0, Err(Refusal::Instruction));
    thread.set(outer + 104, 20);
    thread.set(outer + 24, inner);
    assert_eq!(thread.walk().0, Ok(None), "a circle");
}

/// 3.10: three frames, each with its own record. Returns the thread, its frames and its records, outermost first.
fn three_pairs() -> (Thread, [u64; 3], [u64; 3]) {
    let mut thread = Thread::new(V10);
    let code = thread.code(100);
    let records = [4, 10, 20].map(|index| thread.stack(index));
    let outer = thread.frame(code, 10, 0);
    let middle = thread.frame(code, 20, outer);
    let inner = thread.frame(code, -1, middle);
    let root = thread.state() + 200;
    for (record, previous) in records.into_iter().zip([root, records[0], records[1]]) {
        thread.set(record + 8, previous);
    }
    thread.set(thread.state() + 24, inner);
    thread.set(thread.state() + 48, records[2]);
    (thread, [outer, middle, inner], records)
}

#[test]
fn frames_and_records_of_their_own_are_paired() {
    let (mut thread, frames, records) = three_pairs();
    let (walked, mut links) = thread.walk();
    assert_eq!(walked, Ok(Some(3)));
    links.reverse();
    let seen: Vec<_> = links.iter().map(|l| (l.frame, l.record, l.unit)).collect();
    let wanted: Vec<_> = (0..3)
        .map(|at| (frames[at], records[at], [11, 21, 0][at]))
        .collect();
    assert_eq!(seen, wanted);
    // An instruction beyond the code; a record too many; one too few, or further in than the one before.
    thread.set(frames[1] + 96, 101);
    assert_eq!(thread.walk().0, Err(Refusal::Instruction));
    thread.set(frames[1] + 96, 20);
    thread.set(frames[1] + 24, 0);
    assert_eq!(thread.walk().0, Ok(None));
    thread.set(frames[1] + 24, frames[0]);
    for previous in [thread.state() + 200, records[2], records[1]] {
        thread.set(records[1] + 8, previous);
        assert_eq!(thread.walk().0, Ok(None));
    }
    thread.set(records[1] + 8, records[0]);
    assert_eq!(thread.walk().0, Ok(Some(3)));
}

#[test]
fn what_contradicts_the_layout_is_refused() {
    for version in [V11, V12, V13, V14] {
        let layout = layout_of(version).expect("known");
        let broken = |change: &dyn Fn(&mut Thread, [u64; 3])| {
            let (mut thread, frames, _) = two_calls(version);
            change(&mut thread, frames);
            thread.walk().0
        };
        let at = |offset: u64, value: u64| {
            broken(&|thread: &mut Thread, [_, middle, _]| thread.set(middle + offset, value))
        };
        assert_eq!(at(layout.previous, 12), Err(Refusal::Frame), "{version:#x}");
        assert_eq!(at(layout.previous, 1 << 60), Err(Refusal::Frame));
        assert_eq!(at(layout.code, 16), Err(Refusal::Code));
        assert_eq!(at(layout.instruction, 1 << 40), Err(Refusal::Instruction));
        // Another object than a code: allowed where a shim may have one.
        let other = broken(&|thread, [_, middle, _]| {
            let object = thread.at(32);
            thread.set(middle + layout.code, object);
        });
        match layout.may_lack_code {
            true => assert_eq!(other, Ok(Some(2))),
            false => assert_eq!(other, Err(Refusal::Code)),
        }
    }
}

#[test]
fn circles_and_long_chains_end() {
    for version in [V11, V12, V13, V14] {
        let layout = layout_of(version).expect("known");
        let (mut thread, [outer, middle, _], _) = two_calls(version);
        thread.set(outer + layout.previous, middle);
        let mark = (outer + layout.mark) & !7;
        thread.set(mark, 0);
        assert_eq!(thread.walk().0, Ok(None), "{version:#x}");
    }
}

#[test]
fn a_chain_on_another_stack_is_not_read() {
    // 3.11: a record that is not on the stack ends the chain there, as in a greenlet.
    let (mut thread, _, [first, second]) = two_calls(V11);
    let away = thread.at(48);
    thread.set(second + 16, away);
    assert_eq!(thread.walk().0, Ok(Some(1)));
    thread.set(thread.state() + 56, away);
    thread.set(away + 8, thread.at(64));
    assert_eq!(thread.walk().0, Ok(None));
    // A thread that starts has no record, one that waits has no frame.
    thread.set(thread.state() + 56, 0);
    assert_eq!(thread.walk().0, Ok(Some(0)));
    thread.set(first + 8, 0);
    thread.set(thread.state() + 56, first);
    assert_eq!(thread.walk().0, Ok(Some(0)));
}
