//! Codes of an interpreter: what the threads of a process copied of them, each once.
//!
//! ```text
//!   pieces of a stream ─► Code ─► equal to one before? its id : the next       slot of the stream ─► id
//!   word of a STACK record: slot, unit ─► pc of the node: id, unit
//! ```
//!
//! X1  Ids are dense from 1; a code's id is sent before the nodes that name it. 0 stands for a code that was not copied.
//! X2  No word of a ring is trusted: slots and lengths are bounded.
//!
//! Not here: lines (symbols).

use std::collections::HashMap;

use skinflint_base::ring::{
    CODE_FIRST, CODE_HEAD_BYTES, CODE_JAVA, CODE_LAST, CODE_PHP, CODE_RUBY, USER,
};
use skinflint_trace::{Code, JAVA_CODE, PHP_CODE, RUBY_CODE, USER_CODE, code_of, user_code};

const _: () = assert!(USER == USER_CODE && CODE_RUBY == RUBY_CODE);
const _: () = assert!(CODE_PHP == PHP_CODE && CODE_JAVA == JAVA_CODE);

/// The most slots of a stream.
const MAX_SLOTS: usize = 1 << 16;
/// The most bytes of a code.
const MAX_BYTES: usize = 1 << 20;

/// The codes of a process.
#[derive(Default)]
pub struct Codes {
    known: HashMap<Code, u32>,
    /// The codes still to be sent, in the order of their ids. The newest id is `known.len()`.
    fresh: Vec<Code>,
    /// By id less one, whether it is of Python.
    python: Vec<bool>,
}

impl Codes {
    /// Returns the id of a code, which is a new one if it is new.
    pub fn id(&mut self, code: Code) -> u32 {
        let next = self.known.len() as u32 + 1;
        if let Some(id) = self.known.get(&code) {
            return *id;
        }
        self.python.push(code.minor < RUBY_CODE);
        self.fresh.push(code.clone());
        self.known.insert(code, next);
        next
    }

    /// Reports whether an address of a node is a frame of Python.
    #[inline]
    pub fn is_python(&self, pc: u64) -> bool {
        let id = code_of(pc).map_or(0, |(id, _)| id as usize);
        id != 0 && self.python.get(id - 1).copied().unwrap_or(false)
    }

    /// Returns all codes, from id 1 on.
    pub fn all(&self) -> Vec<Code> {
        let mut all: Vec<(&Code, &u32)> = self.known.iter().collect();
        all.sort_unstable_by_key(|(_, id)| **id);
        all.into_iter().map(|(code, _)| code.clone()).collect()
    }

    /// Returns the codes that are new since the last call, and the id of the first.
    pub fn take_fresh(&mut self) -> Option<(u32, Vec<Code>)> {
        if self.fresh.is_empty() {
            return None;
        }
        let fresh = std::mem::take(&mut self.fresh);
        Some((self.known.len() as u32 + 1 - fresh.len() as u32, fresh))
    }
}

/// The codes in the slots of one stream.
#[derive(Default)]
pub struct Slots {
    ids: Vec<u32>,
    pieces: Vec<u8>,
}

impl Slots {
    /// Takes a piece: the record's first word, and its others.
    pub fn piece(&mut self, first: u64, words: &[u64], codes: &mut Codes) {
        let flags = (first >> 48) as u8;
        let (slot, bytes) = ((first >> 16) as u32 as usize, first as u16 as usize);
        if flags & CODE_FIRST != 0 {
            self.pieces.clear();
        }
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        self.pieces.extend(words.take(bytes));
        if flags & CODE_LAST == 0 && self.pieces.len() < MAX_BYTES || slot >= MAX_SLOTS {
            return;
        }
        let id = decoded(&self.pieces).map_or(0, |code| codes.id(code));
        if slot >= self.ids.len() {
            self.ids.resize(slot + 1, 0);
        }
        self.ids[slot] = id;
        self.pieces.clear();
    }

    /// Returns the address of a node for a word of a stack.
    #[inline]
    pub fn pc(&self, word: u64) -> u64 {
        if word & USER == 0 {
            return word;
        }
        let slot = ((word & !USER) >> 24) as usize;
        let id = self.ids.get(slot).copied().unwrap_or(0);
        user_code(id, (word & 0xff_ffff) as u32)
    }
}

fn decoded(pieces: &[u8]) -> Option<Code> {
    let (head, texts) = pieces.split_at_checked(CODE_HEAD_BYTES)?;
    let number = |index: usize| {
        let bytes = head.get(index * 4..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let widths = number(5)?;
    let (file, texts) = texts.split_at_checked(number(2)? as usize)?;
    let (name, texts) = texts.split_at_checked(number(3)? as usize)?;
    let (table, texts) = texts.split_at_checked(number(4)? as usize)?;
    let minor = number(0)?;
    if minor & !0xffff == JAVA_CODE {
        let class = texts.get(..(widths >> 16) as usize)?;
        return Some(java(minor, [file, name, table, class]));
    }
    Some(Code {
        minor,
        first_line: number(1)?,
        file: text(file, widths & 0xff),
        name: text(name, widths >> 8 & 0xff),
        lines: table.to_vec(),
    })
}

/// Returns a method of Java: its class has a file of that name beside it, in the folder of its package.
fn java(minor: u32, [file, name, lines, class]: [&[u8]; 4]) -> Code {
    let [file, name, class] = [file, name, class].map(String::from_utf8_lossy);
    let folder = class.rsplit_once('/').map(|(folder, _)| folder);
    // A hidden class has an address behind its name, other in each run.
    let shown = class.split(['+', ';']).next().unwrap_or_default();
    Code {
        minor,
        first_line: 0,
        file: match folder.filter(|_| !file.is_empty()) {
            Some(folder) => format!("{folder}/{file}"),
            None => file.into_owned(),
        },
        name: format!("{}.{name}", shown.replace('/', ".")),
        lines: lines.to_vec(),
    }
}

/// Returns a text of characters of 1, 2 or 4 bytes.
fn text(bytes: &[u8], width: u32) -> String {
    let character = |bytes: &[u8]| {
        let value = bytes
            .iter()
            .rev()
            .fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
    };
    bytes
        .chunks(width.clamp(1, 4) as usize)
        .map(character)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::ring::{tag, user_word, word};

    fn pieces(file: &[u8], width: u32, lines: &[u8]) -> Vec<u8> {
        let numbers = [
            11,
            3,
            file.len() as u32,
            1,
            lines.len() as u32,
            width | 1 << 8,
        ];
        let mut all: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        all.extend_from_slice(file);
        all.push(b'f');
        all.extend_from_slice(lines);
        all
    }

    fn send(slots: &mut Slots, codes: &mut Codes, slot: u64, all: &[u8]) {
        for (index, piece) in all.chunks(16).enumerate() {
            let first = u8::from(index == 0) * CODE_FIRST;
            let last = u8::from((index + 1) * 16 >= all.len()) * CODE_LAST;
            let words: Vec<u64> = piece
                .chunks(8)
                .map(|bytes| {
                    bytes
                        .iter()
                        .rev()
                        .fold(0, |word, byte| word << 8 | u64::from(*byte))
                })
                .collect();
            let head = word(tag::CODE, first | last, slot << 16 | piece.len() as u64);
            slots.piece(head, &words, codes);
        }
    }

    #[test]
    fn equal_codes_of_two_threads_are_one() {
        let (mut one, mut two, mut codes) = (Slots::default(), Slots::default(), Codes::default());
        send(&mut one, &mut codes, 5, &pieces(b"a.py", 1, b"\x80\x00"));
        send(&mut two, &mut codes, 9, &pieces(b"b.py", 1, b""));
        send(&mut two, &mut codes, 5, &pieces(b"a.py", 1, b"\x80\x00"));
        assert_eq!(one.pc(user_word(5, 7)), user_code(1, 7));
        assert_eq!(two.pc(user_word(5, 8)), user_code(1, 8));
        assert_eq!(two.pc(user_word(9, 8)), user_code(2, 8));
        assert_eq!(two.pc(user_word(77, 8)), user_code(0, 8), "not copied");
        assert_eq!(two.pc(0x1234), 0x1234);
        let (first, fresh) = codes.take_fresh().expect("two");
        assert_eq!((first, fresh.len(), &*fresh[0].file), (1, 2, "a.py"));
        assert_eq!(codes.take_fresh(), None);
        // The slot gets another code, in wide characters.
        send(
            &mut one,
            &mut codes,
            5,
            &pieces(&[0xe4, 0, 0x2e, 0], 2, b""),
        );
        assert_eq!(one.pc(user_word(5, 7)), user_code(3, 7));
        assert_eq!(codes.take_fresh().expect("one").1[0].file, "ä.");
    }

    #[test]
    fn pieces_that_make_no_sense_are_no_code() {
        let (mut slots, mut codes) = (Slots::default(), Codes::default());
        send(&mut slots, &mut codes, 1, b"short");
        let mut long = pieces(b"a.py", 1, b"");
        long[8] = 200;
        send(&mut slots, &mut codes, 2, &long);
        send(
            &mut slots,
            &mut codes,
            u64::from(u32::MAX),
            &pieces(b"a", 1, b""),
        );
        assert!(codes.take_fresh().is_none());
        assert_eq!(slots.pc(user_word(2, 1)), user_code(0, 1));
    }
}
