//! A machine that is made by hand, and frames that contradict it.
//!
//! ```text
//!   code heap   segment 0: the interpreter's buffer │ 2, 3: nmethod, frame of 6 words │ 4: free │ 5, 6: a stub, 4 words
//! ```

use core::ffi::{CStr, c_char, c_void};

use super::code_heap;
use super::machine::Java;
use super::tables::{Begin, Debug, Layout, Tables};
use crate::MAX_CHAIN;
use crate::chain::{Bounds, Link};
use crate::memory::tests::Words;
use crate::natives::Natives;
use crate::runtime::Refusal;

const CODE: u64 = 0x50_0000;
const SEGMENT: u64 = 128;
const INTERPRETER: u64 = CODE + 16;
const NMETHOD: u64 = CODE + 2 * SEGMENT + 16;
const STUB: u64 = CODE + 5 * SEGMENT + 16;
/// Where the instructions of a piece begin.
const BEGIN: u64 = 0x40;
const CALL_STUB: u64 = STUB + 90;

/// Methods: what calls, and what is put into it.
const CALLER: u64 = 0x3_0000;
const CALLEE: u64 = 0x3_1000;
const NATIVE: u64 = 0x3_2000;
const FIXED: u64 = 0x200;
const FIXED_BYTES: u64 = 48;
/// The interpreted frame's rbp.
const BASE: u64 = 0x9_0f00;

fn java() -> Java {
    Java {
        layout: Layout {
            major: 17,
            heaps: 0x1_0000,
            low: 0x1_0008,
            high: 0x1_0010,
            interpreter: 0x1_0018,
            call_stub: 0x1_0020,
            array_len: 0,
            array_data: 8,
            memory: [0, 8],
            segments: [16, 24],
            segment_log: 32,
            block_bytes: 16,
            block_used: 8,
            buffer: 8,
            buffer_bytes: 20,
            name: 0,
            bytes: 8,
            frame_words: 12,
            begin: Begin::By(16),
            number: 20,
            method: 24,
            replaced: 56,
            debug: Debug::Within {
                pcs: 32,
                pcs_end: 36,
                methods: 40,
                scopes: 48,
            },
            fixed: 8,
            constants: 8,
            flags: 28,
            code_bytes: 32,
            fixed_words: 24,
            name_index: 34,
            fixed_bytes: FIXED_BYTES,
            has_lines: 1,
            holder: 24,
            count: 60,
            file_index: 54,
            constants_bytes: 72,
            class_name: 24,
            symbol_bytes: 4,
            symbol_text: 6,
        },
    }
}

/// Sets bytes, which begin at eight.
fn put(words: &mut Words, at: u64, bytes: &[u8]) {
    for (at, chunk) in (at..).step_by(8).zip(bytes.chunks(8)) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        words.set(at, u64::from_le_bytes(word));
    }
}

fn pair(low: u64, high: u64) -> u64 {
    low | high << 32
}

/// A method of 20 bytes of bytecode; its class and its name are symbols of their own.
fn method(words: &mut Words, at: u64, name: &str) {
    let fixed = at + FIXED;
    let (constants, class) = (at + 0x400, at + 0x600);
    words.set(at + 8, fixed);
    words.set(fixed + 8, constants);
    // Flags; bytes of bytecode and the name's place.
    words.put(fixed + 24, &[pair(12, 1), 20 | 2 << 16]);
    words.set(constants + 24, class);
    words.set(constants + 48, 1 << 48);
    words.set(constants + 56, pair(0, 3));
    words.put(constants + 72, &[0, at + 0x700, at + 0x780]);
    words.set(class + 24, at + 0x800);
    for (at, text) in [
        (at + 0x700, "A.java"),
        (at + 0x780, name),
        (at + 0x800, "org/A"),
    ] {
        let length = [text.len() as u8, 0];
        put(
            words,
            at,
            &[&[7, 0, 1, 1], &length[..], text.as_bytes()].concat(),
        );
        words.set(at + 16, 0);
    }
}

/// The machine, and a stack: `CALLER` is interpreted and calls compiled code, where it stands once more and has `CALLEE` in it.
fn made() -> Words {
    let mut words = Words::default();
    words.put(
        0x1_0000,
        &[0x1_1000, CODE, CODE + 0x800, 0x1_5000, CALL_STUB],
    );
    words.put(0x1_1000, &[pair(1, 0), 0x1_2000]);
    words.set(0x1_2000, 0x1_3000);
    words.put(
        0x1_3000,
        &[CODE, CODE + 0x800, 0x1_4000, 0x1_4008, pair(7, 0)],
    );
    put(&mut words, 0x1_4000, &[0, 1, 0, 1, 0xff, 0, 1, 0xff]);
    words.put(0x1_5000, &[0, INTERPRETER, pair(0, 200)]);
    put(&mut words, 0x1_8000, b"nmethod\0native nmethod\0");
    for (piece, name, frame) in [
        (INTERPRETER, 0x1_9000, 0),
        (NMETHOD, 0x1_8000, 6),
        (STUB, 0x1_9000, 4),
    ] {
        words.put(piece - 16, &[2, 1]);
        words.put(piece, &[name, pair(200, frame), pair(BEGIN, 77), CALLER]);
    }
    put(&mut words, 0x1_9000, b"Stub (1)");
    words.set(NMETHOD + 56, 24);
    // Descriptors: the first and the last are of nothing; at 8 the scope at 1, at 40 that at 4.
    words.put(
        NMETHOD + 32,
        &[pair(0x1000, 0x1040), 0x900, NMETHOD + 0x910],
    );
    let none = [pair(u64::from(u32::MAX), 0), 0];
    words.put(NMETHOD + 0x1000, &none);
    words.put(NMETHOD + 0x1010, &[pair(8, 1), 0, pair(40, 4), 0]);
    words.put(NMETHOD + 0x1030, &[pair(0x7fff_ffff, 0), 0]);
    // Methods from 1 on; scopes: outer, method, one more than the bytecode.
    words.put(NMETHOD + 0x900, &[CALLER, CALLEE]);
    put(&mut words, NMETHOD + 0x910, &[0, 0, 1, 6, 1, 2, 3, 0, 0]);
    for (at, name) in [(CALLER, "load"), (CALLEE, "take"), (NATIVE, "get")] {
        method(&mut words, at, name);
    }
    words.set(NATIVE + FIXED + 32, 2 << 16);
    interpret(&mut words, CALLER, CALLER + FIXED + FIXED_BYTES + 11);
    words
}

fn interpret(words: &mut Words, method: u64, bytecode: u64) {
    words.set(BASE - 24, method);
    words.set(BASE - 64, bytecode);
}

/// Native frames, outermost first: return addresses, and where they lie.
struct Frames {
    all: Vec<(u64, u64)>,
    keep: usize,
}

impl Natives for Frames {
    fn total(&self) -> usize {
        self.all.len()
    }

    fn keep(&self) -> usize {
        self.keep
    }

    fn pc(&self, index: usize) -> u64 {
        self.all[index].0
    }

    fn slot(&self, index: usize) -> u64 {
        self.all[index].1
    }

    fn is_whole(&self) -> bool {
        true
    }
}

fn natives(inner: u64) -> Frames {
    Frames {
        all: vec![
            (0x4000, 0x9_0ff0),
            (CALL_STUB, BASE + 8),
            (INTERPRETER + 100, 0x9_0e00),
            (inner, 0x9_0d00),
            (0x4100, 0x9_0c00),
        ],
        keep: 0,
    }
}

const BOUNDS: Bounds = Bounds {
    sp: 0x9_0000,
    hi: 0x9_1000,
};

type Walked = Result<Vec<Link>, Refusal>;

fn walk(words: &Words, natives: &Frames, old: &[Link]) -> Walked {
    let mut out = vec![Link::default(); MAX_CHAIN];
    let out: &mut [Link; MAX_CHAIN] = out.as_mut_slice().try_into().expect("that many");
    let count = java().walk(words, natives, BOUNDS, old, out)?;
    Ok(out[..count.expect("read")].to_vec())
}

fn seen(links: &[Link]) -> Vec<(u64, u32, u32)> {
    links
        .iter()
        .map(|link| (link.code, link.unit, link.after))
        .collect()
}

#[test]
fn interpreted_and_compiled_frames_are_in_their_places() {
    let words = made();
    let ra = NMETHOD + BEGIN;
    let links = walk(&words, &natives(ra + 40), &[]).expect("read");
    assert_eq!(
        seen(&links),
        [(CALLER, 12, 3), (CALLER, 6, 4), (CALLEE, 3, 4)]
    );
    assert_eq!((links[1].record, links[1].extra), (NMETHOD, 77));
    // Nothing is put in at the other place; and where no descriptor is, the method alone is known.
    let links = walk(&words, &natives(ra + 8), &[]).expect("read");
    assert_eq!(seen(&links), [(CALLER, 12, 3), (CALLER, 6, 4)]);
    let mut other = words.clone();
    other.set(0x9_0d08 + 24, 0);
    let links = walk(&other, &natives(ra + 9), &[]).expect("read");
    assert_eq!(seen(&links), [(CALLER, 12, 3), (CALLER, 0, 4)]);
    // Unless another address was put there instead of that of a descriptor.
    other.set(0x9_0d08 + 24, ra + 40);
    let links = walk(&other, &natives(ra + 9), &[]).expect("read");
    assert_eq!(
        seen(&links),
        [(CALLER, 12, 3), (CALLER, 6, 4), (CALLEE, 3, 4)]
    );
    // Neither a stub nor what is free has a method.
    for inner in [STUB + 50, CODE + 4 * SEGMENT + 50] {
        let links = walk(&words, &natives(inner), &[]).expect("read");
        assert_eq!(seen(&links), [(CALLER, 12, 3)]);
    }
}

#[test]
fn a_native_method_is_at_no_line() {
    let mut words = made();
    interpret(&mut words, NATIVE, 0);
    let links = walk(&words, &natives(STUB + 50), &[]).expect("read");
    assert_eq!(seen(&links), [(NATIVE, 0, 3)]);
}

#[test]
fn what_is_kept_is_looked_at_again() {
    let mut words = made();
    let mut natives = natives(NMETHOD + BEGIN + 40);
    let first = walk(&words, &natives, &[]).expect("read");
    natives.keep = 4;
    // The interpreter went on, and only that is read: of compiled code the number says that it is the same.
    interpret(&mut words, CALLER, CALLER + FIXED + FIXED_BYTES + 15);
    put(&mut words, NMETHOD + 0x910, &[0xff; 8]);
    let next = walk(&words, &natives, &first).expect("read");
    assert_eq!(
        seen(&next),
        [(CALLER, 16, 3), (CALLER, 6, 4), (CALLEE, 3, 4)]
    );
    // Another number: other code.
    words.set(NMETHOD + 16, pair(BEGIN, 78));
    assert_eq!(walk(&words, &natives, &first), Err(Refusal::Tables));
    natives.keep = 3;
    words.set(NMETHOD + 16, pair(BEGIN, 77));
    assert_eq!(
        walk(&words, &natives, &first),
        Err(Refusal::Tables),
        "a new frame"
    );
}

#[test]
fn methods_are_known_by_what_they_are_called() {
    let mut words = made();
    let natives = natives(STUB + 50);
    let name = |words: &Words| walk(words, &natives, &[]).expect("read")[0].name;
    let before = name(&words);
    for (at, text) in [
        (CALLER + 0x780, "loaf"),
        (CALLER + 0x800, "org/B"),
        (CALLER + 0x780, "load_"),
    ] {
        let mut other = words.clone();
        let length = [text.len() as u8, 0];
        put(
            &mut other,
            at,
            &[&[7, 0, 1, 1], &length[..], text.as_bytes()].concat(),
        );
        assert_ne!(name(&other), before, "{text}");
    }
    // How often a symbol is referred to changes all the time.
    put(
        &mut words,
        CALLER + 0x780,
        &[&[9, 0, 1, 1, 4, 0][..], b"load"].concat(),
    );
    assert_eq!(name(&words), before);
}

#[test]
fn what_contradicts_the_machine_is_refused() {
    let natives = natives(NMETHOD + BEGIN + 40);
    let refused = |change: &dyn Fn(&mut Words)| {
        let mut words = made();
        change(&mut words);
        walk(&words, &natives, &[]).expect_err("refused")
    };
    let end = CALLER + FIXED + FIXED_BYTES + 20;
    assert_eq!(
        refused(&|words| interpret(words, CALLER, end)),
        Refusal::Instruction
    );
    assert_eq!(
        refused(&|words| interpret(words, CALLER, CALLER)),
        Refusal::Instruction
    );
    assert_eq!(refused(&|words| interpret(words, 0x77, end)), Refusal::Code);
    assert_eq!(refused(&|words| words.set(CALLER + 8, 0)), Refusal::Code);
    // A method that is not among the code's.
    assert_eq!(
        refused(&|words| put(words, NMETHOD + 0x910, &[0, 0, 1, 6, 1, 9, 3])),
        Refusal::Tables
    );
    // A circle of scopes ends.
    assert_eq!(
        refused(&|words| put(words, NMETHOD + 0x910, &[0, 4, 1, 6, 4, 9, 3])),
        Refusal::Tables
    );
    let circle = &|words: &mut Words| put(words, NMETHOD + 0x910, &[0, 0, 1, 6, 4, 2, 3]);
    let mut words = made();
    circle(&mut words);
    assert_eq!(walk(&words, &natives, &[]).expect("read").len(), 1 + 256);
    // The interpreted frame is not on the stack.
    let mut natives = super::tests::natives(STUB + 50);
    natives.all[1].1 = 0x8_0000;
    assert_eq!(walk(&made(), &natives, &[]), Err(Refusal::Record));
}

#[test]
fn frames_lie_as_their_code_says() {
    let words = made();
    let frame = |pc| java().frame(&words, pc);
    assert_eq!(frame(NMETHOD + BEGIN), Some(code_heap::Frame::Sized(48)));
    assert_eq!(frame(STUB + 50), Some(code_heap::Frame::Sized(32)));
    assert_eq!(frame(CALL_STUB - 1), Some(code_heap::Frame::Pointed));
    assert_eq!(frame(INTERPRETER + 50), Some(code_heap::Frame::Interpreted));
    for pc in [
        CODE - 1,
        CODE + 4 * SEGMENT,
        CODE + 7 * SEGMENT,
        NMETHOD + 200,
        CODE + 0x800,
    ] {
        assert_eq!(frame(pc), None, "{pc:#x}");
    }
}

/// An entry of the machine's own table of fields.
#[repr(C)]
struct Entry(*const c_char, *const c_char, *const c_char, i32, u64, u64);

const NONE: *const c_char = core::ptr::null();

#[test]
fn a_field_of_another_type_or_none_refuses_all() {
    let name = |text: &'static CStr| text.as_ptr();
    let fields = [
        Entry(name(c"CodeBlob"), name(c"_size"), name(c"int"), 0, 12, 0),
        Entry(
            name(c"CodeBlob"),
            name(c"_data"),
            name(c"address"),
            0,
            16,
            0,
        ),
        Entry(
            name(c"Abstract_VM_Version"),
            name(c"_vm_major_version"),
            name(c"int"),
            1,
            0,
            &raw const MAJOR as u64,
        ),
        Entry(NONE, NONE, NONE, 0, 0, 0),
    ];
    static MAJOR: i32 = 21;
    let (at, strides) = (fields.as_ptr(), [48u64, 40, 16]);
    let variable = |at: &u64| (&raw const *at).cast::<c_void>();
    let tables = |strides: &[u64; 3]| Tables {
        structs: (&raw const at).cast(),
        types: core::ptr::null(),
        constants: core::ptr::null(),
        strides: [
            variable(&strides[0]),
            variable(&strides[1]),
            variable(&strides[2]),
        ],
    };
    let all = tables(&strides);
    // SAFETY: entries up to one without a name.
    unsafe {
        assert_eq!(all.find(c"CodeBlob", c"_size", false, 4), Some(12));
        assert_eq!(all.find(c"CodeBlob", c"_size", false, 8), None);
        assert_eq!(all.find(c"CodeBlob", c"_size", true, 4), None);
        assert_eq!(all.find(c"CodeBlob", c"_data", false, 8), Some(16));
        assert_eq!(all.find(c"CodeBlob", c"_name", false, 8), None);
        assert_eq!(all.version(), 21 << 16);
        assert!(Java::find(&all).0.is_err(), "most are missing");
        assert!(all.are_as_known() && !tables(&[48, 40, 24]).are_as_known());
    }
}
