//! Instructions of x86-64: how long each is, where it may jump to, and which can run from another place.
//!
//! ```text
//!   prefixes 66 f0 f2 f3 2e 36 3e 26 64 65 67 │ rex │ opcode: 1, 0f, 0f 38, 0f 3a, vex, evex │ modrm sib disp │ imm
//! ```
//!
//! X1  An instruction that is not in the tables has no length: what follows it is not looked at.
//! X2  Only instructions that do the same wherever they are, or whose distances can be corrected, are moved: a list of
//!     what compilers begin functions with.
//! X4  A call is moved as a push of the address that it returns to, in the function, and a jump: so no return address lies
//!     outside of the program's code, and stacks are what they were. It is the last that is moved.
//! X3  What is looked at is bytes of a file: any bytes are read in bounded time.
//!
//! Not here: which functions are looked at (`mod.rs`), writing (the recorder).

use skinflint_base::plan::{ABSOLUTE, EXPECTED_BYTES, FIXES, Fix, JUMP_BYTES, MOVED_BYTES};

/// The longest instruction, in bytes.
const LONGEST: usize = 15;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The table that an opcode is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Map {
    One,
    Two,
    Three38,
    Three3a,
    /// Of an encoding with vector prefixes, where it is known by its number alone.
    Vector(u8),
}

/// A distance from the end of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Distance {
    at: usize,
    bytes: usize,
}

/// What an instruction is, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instruction {
    length: usize,
    map: Map,
    opcode: u8,
    modrm: Option<u8>,
    /// The distance of what it reads or writes.
    relative: Option<Distance>,
    /// The distance of where it jumps.
    jump: Option<Distance>,
}

/// Returns the instruction that the code begins with; `None` if it is none that is known (X1).
fn decode(code: &[u8]) -> Option<Instruction> {
    let byte = |at: usize| code.get(at).copied();
    let (mut at, mut is_short, mut is_small) = (0, false, false);
    loop {
        match byte(at)? {
            0x66 => is_short = true,
            0x67 => is_small = true,
            0xf0 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 => {}
            _ => break,
        }
        at += 1;
    }
    let rex = byte(at).filter(|byte| byte & 0xf0 == 0x40);
    at += usize::from(rex.is_some());
    let is_wide = rex.is_some_and(|rex| rex & 8 != 0);
    let (map, opcode) = match (byte(at)?, byte(at + 1)) {
        (0x0f, Some(0x38)) => (Map::Three38, at + 2),
        (0x0f, Some(0x3a)) => (Map::Three3a, at + 2),
        (0x0f, _) => (Map::Two, at + 1),
        (0xc5, _) => (Map::Vector(1), at + 2),
        (0xc4, Some(second)) => (Map::Vector(second & 31), at + 3),
        (0x62, Some(second)) => (Map::Vector(second & 7), at + 4),
        _ => (Map::One, at),
    };
    at = opcode + 1;
    let opcode = byte(opcode)?;
    let mut one = Instruction {
        length: 0,
        map,
        opcode,
        modrm: None,
        relative: None,
        jump: None,
    };
    if has_modrm(map, opcode)? {
        let modrm = byte(at)?;
        at += 1;
        one.modrm = Some(modrm);
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let base = match mode != 3 && rm == 4 {
            true => {
                at += 1;
                byte(at - 1)? & 7
            }
            false => rm,
        };
        let bytes = match mode {
            0 if base == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        if mode == 0 && rm == 5 {
            one.relative = Some(Distance { at, bytes });
        }
        at += bytes;
    }
    let immediate = immediate(&one, is_short, is_wide, is_small)?;
    if is_jump(&one) {
        let bytes = immediate;
        one.jump = Some(Distance { at, bytes });
    }
    one.length = at + immediate;
    (one.length <= LONGEST && one.length <= code.len()).then_some(one)
}

/// Returns whether an opcode is followed by a ModRM byte; `None` if there is no such opcode.
fn has_modrm(map: Map, opcode: u8) -> Option<bool> {
    let has = match map {
        Map::One => match opcode {
            // The first eight rows: four forms with ModRM, two with an immediate, two that 64-bit mode does not have.
            0x00..=0x3f => match opcode & 7 {
                0..=3 => true,
                4 | 5 => false,
                _ => return None,
            },
            0x50..=0x5f | 0x68 | 0x6a | 0x6c..=0x7f | 0x90..=0x99 | 0x9b..=0x9f => false,
            0xa0..=0xbf | 0xc2 | 0xc3 | 0xc8..=0xcd | 0xcf | 0xd7 => false,
            0xe0..=0xe9 | 0xeb..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => false,
            0x63 | 0x69 | 0x6b | 0x80 | 0x81 | 0x83..=0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7 => true,
            0xd0..=0xd3 | 0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff => true,
            _ => return None,
        },
        Map::Two => match opcode {
            0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0x80..=0x8f => false,
            0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => false,
            0x04 | 0x0a | 0x0c | 0x0f | 0x24..=0x27 | 0x36..=0x3f | 0xa6 | 0xa7 => return None,
            _ => true,
        },
        Map::Three38 | Map::Three3a => true,
        Map::Vector(1) => opcode != 0x77,
        Map::Vector(2 | 3 | 5 | 6) => true,
        Map::Vector(_) => return None,
    };
    Some(has)
}

/// Returns the bytes of an instruction's immediate operand; `None` if it is of a form that is not known.
fn immediate(one: &Instruction, is_short: bool, is_wide: bool, is_small: bool) -> Option<usize> {
    let whole = if is_short && !is_wide { 2 } else { 4 };
    let extension = one.modrm.map_or(0, |modrm| modrm >> 3 & 7);
    let bytes = match (one.map, one.opcode) {
        (Map::One, 0x00..=0x3f) => match one.opcode & 7 {
            4 => 1,
            5 => whole,
            _ => 0,
        },
        (Map::One, 0x68 | 0x69 | 0x81 | 0xa9 | 0xc7) => whole,
        (Map::One, 0x6a | 0x6b | 0x70..=0x7f | 0x80 | 0x83 | 0xa8 | 0xb0..=0xb7) => 1,
        (Map::One, 0xc0 | 0xc1 | 0xc6 | 0xcd | 0xe0..=0xe7 | 0xeb) => 1,
        (Map::One, 0xa0..=0xa3) if is_small => return None,
        (Map::One, 0xa0..=0xa3) => 8,
        (Map::One, 0xb8..=0xbf) if is_wide => 8,
        (Map::One, 0xb8..=0xbf) => whole,
        (Map::One, 0xc2 | 0xca) => 2,
        (Map::One, 0xc8) => 3,
        // Jumps have four bytes whatever the prefix.
        (Map::One, 0xe8 | 0xe9) => 4,
        (Map::One, 0xf6) if extension < 2 => 1,
        (Map::One, 0xf7) if extension < 2 => whole,
        (Map::Two, 0x80..=0x8f) => 4,
        (Map::Two | Map::Vector(1), 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) => 1,
        (Map::Two, 0xa4 | 0xac | 0xba) => 1,
        (Map::Three3a | Map::Vector(3), _) => 1,
        _ => 0,
    };
    Some(bytes)
}

fn is_jump(one: &Instruction) -> bool {
    match one.map {
        Map::One => match one.opcode {
            0x70..=0x7f | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb => true,
            // xbegin
            0xc7 => one.modrm == Some(0xf8),
            _ => false,
        },
        Map::Two => matches!(one.opcode, 0x80..=0x8f),
        _ => false,
    }
}

/// Returns whether an instruction that does not jump does the same from any place, its distance corrected (X2).
fn is_movable(one: &Instruction) -> bool {
    let extension = one.modrm.map_or(0, |modrm| modrm >> 3 & 7);
    match (one.map, one.opcode) {
        (Map::One, 0x00..=0x3f | 0x50..=0x5f | 0x63 | 0x68..=0x6b) => true,
        (Map::One, 0x80 | 0x81 | 0x83..=0x8b | 0x8d | 0x90..=0x99 | 0xa8 | 0xa9) => true,
        (Map::One, 0xb0..=0xbf | 0xc0 | 0xc1 | 0xd0..=0xd3 | 0xf6 | 0xf7) => true,
        (Map::One, 0xc6 | 0xc7) => extension == 0,
        (Map::One, 0xfe) => extension < 2,
        // inc, dec, push: not calls and jumps.
        (Map::One, 0xff) => matches!(extension, 0 | 1 | 6),
        (Map::Two, 0x10..=0x17 | 0x1e | 0x1f | 0x28..=0x2f | 0x40..=0x76 | 0x7e | 0x7f) => true,
        (Map::Two, 0x90..=0x9f | 0xa3..=0xa5 | 0xab..=0xad | 0xaf | 0xb3 | 0xb6..=0xb8) => true,
        (Map::Two, 0xba..=0xbf | 0xd4 | 0xd6 | 0xdb | 0xeb | 0xef | 0xfe) => true,
        (Map::Vector(1), 0x10..=0x17 | 0x28..=0x2f | 0x57 | 0x6e | 0x6f | 0x7e | 0x7f | 0xef) => {
            true
        }
        _ => false,
    }
}

/// Returns where an instruction at `address` jumps.
fn target(code: &[u8], one: &Instruction, address: u64, distance: Distance) -> Option<u64> {
    let bytes = code.get(distance.at..distance.at + distance.bytes)?;
    let far = match *bytes {
        [a] => i64::from(a as i8),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => return None,
    };
    let end = address.wrapping_add(one.length as u64);
    Some(end.wrapping_add(far as u64))
}

/// The first instructions of a function, as they can be moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Beginning {
    /// The bytes before them that stay: an `endbr64`, which indirect calls must find.
    pub kept: usize,
    /// Their number of bytes.
    pub length: usize,
    /// What they become.
    pub moved: Vec<u8>,
    /// The places in them that depend on where they are.
    pub fixes: Vec<Fix>,
}

/// Takes the instructions at the beginning of a function that a jump would be written over; the reason if they cannot
/// be moved.
pub(super) fn beginning(code: &[u8], address: u64) -> Result<Beginning, &'static str> {
    let kept = if code.starts_with(&ENDBR64) { 4 } else { 0 };
    let mut taken = Beginning {
        kept,
        length: 0,
        moved: Vec::new(),
        fixes: Vec::new(),
    };
    let mut goes_on = true;
    while taken.length < JUMP_BYTES {
        if !goes_on {
            return Err("it is shorter than a jump");
        }
        let at = kept + taken.length;
        let rest = code.get(at..).unwrap_or_default();
        let one = match decode(rest) {
            Some(one) => one,
            None if rest.len() < LONGEST => return Err("it is shorter than a jump"),
            None => return Err("it begins with an instruction that is not known"),
        };
        goes_on = move_one(&mut taken, rest, &one, address.wrapping_add(at as u64))?;
        taken.length += one.length;
    }
    let fits = taken.length <= EXPECTED_BYTES
        && taken.moved.len() <= MOVED_BYTES
        && taken.fixes.len() <= FIXES;
    fits.then_some(taken)
        .ok_or("its first instructions are too long")
}

/// Adds an instruction as it can be moved. Returns whether the next one follows it.
fn move_one(
    taken: &mut Beginning,
    code: &[u8],
    one: &Instruction,
    address: u64,
) -> Result<bool, &'static str> {
    if let Some(how) = called(one) {
        move_call(taken, code, one, address, how)?;
        return Ok(false);
    }
    let (begin, bytes) = (taken.moved.len(), &code[..one.length]);
    let (distance, goes_on) = match (one.jump, one.relative) {
        (Some(jump), _) => {
            let is_conditional = match (one.map, one.opcode) {
                (Map::One, 0x70..=0x7f) => {
                    taken.moved.extend([0x0f, one.opcode + 0x10]);
                    true
                }
                (Map::Two, _) => {
                    taken.moved.extend([0x0f, one.opcode]);
                    true
                }
                (Map::One, 0xe9 | 0xeb) => {
                    taken.moved.push(0xe9);
                    false
                }
                _ => return Err("it begins with a loop"),
            };
            taken.moved.extend([0; 4]);
            (Some((jump, taken.moved.len() - 4)), is_conditional)
        }
        (None, _) if (one.map, one.opcode) == (Map::One, 0xc3) => {
            taken.moved.extend(bytes);
            (None, false)
        }
        (None, _) if !is_movable(one) => {
            return Err("it begins with an instruction that is not moved");
        }
        (None, relative) => {
            taken.moved.extend(bytes);
            (relative.map(|one| (one, begin + one.at)), true)
        }
    };
    if let Some((distance, at)) = distance {
        let target = target(code, one, address, distance).ok_or("its distances make no sense")?;
        taken.fixes.push(Fix {
            at: at as u8,
            end: taken.moved.len() as u8,
            target,
        });
    }
    Ok(goes_on)
}

/// Returns where a function goes on that is a jump and nothing else: another name of that one.
pub(super) fn is_name_of(code: &[u8], address: u64) -> Option<u64> {
    let kept = if code.starts_with(&ENDBR64) { 4 } else { 0 };
    let rest = code.get(kept..)?;
    let one = decode(rest)?;
    let is_whole =
        one.map == Map::One && matches!(one.opcode, 0xe9 | 0xeb) && one.length == rest.len();
    is_whole.then_some(())?;
    target(rest, &one, address.wrapping_add(kept as u64), one.jump?)
}

/// How a call becomes a jump: the bytes of the jump before its distance.
type Jump = &'static [u8];

/// Returns how a call becomes a jump: a near one, or one through a word at a distance.
fn called(one: &Instruction) -> Option<Jump> {
    match (one.map, one.opcode, one.modrm) {
        (Map::One, 0xe8, _) => Some(&[0xe9]),
        (Map::One, 0xff, Some(0x15)) => Some(&[0xff, 0x25]),
        _ => None,
    }
}

/// Adds a call (X4): `push [rip + the jump's bytes]; jmp …; address`.
fn move_call(
    taken: &mut Beginning,
    code: &[u8],
    one: &Instruction,
    address: u64,
    jump: Jump,
) -> Result<(), &'static str> {
    let distance = one.jump.or(one.relative);
    let target = distance.and_then(|distance| target(code, one, address, distance));
    let target = target.ok_or("its distances make no sense")?;
    let moved = &mut taken.moved;
    moved.extend([0xff, 0x35, jump.len() as u8 + 4, 0, 0, 0]);
    moved.extend(jump);
    moved.extend([0; 4]);
    let end = moved.len() as u8;
    moved.extend([0; 8]);
    taken.fixes.push(Fix {
        at: end - 4,
        end,
        target,
    });
    taken.fixes.push(Fix {
        at: end | ABSOLUTE,
        end: end + 8,
        target: address.wrapping_add(one.length as u64),
    });
    Ok(())
}

/// Returns whether code jumps into a range of addresses by itself, its ends left out; `None` if it cannot be read to
/// its end.
pub(super) fn jumps_into(code: &[u8], address: u64, low: u64, high: u64) -> Option<bool> {
    let mut at = 0;
    while at < code.len() {
        let one = decode(&code[at..])?;
        if let Some(jump) = one.jump {
            let to = target(&code[at..], &one, address.wrapping_add(at as u64), jump)?;
            if low < to && to < high {
                return Some(true);
            }
        }
        at += one.length;
    }
    Some(false)
}

#[cfg(test)]
#[path = "x86_tests.rs"]
mod tests;
