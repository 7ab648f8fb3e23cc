//! Frames of Ruby: a thread's control frames, and the calls of its interpreter that run them.
//!
//! ```text
//!   fs ─► ec ─┬─► control frame, …, the one marked as a call's first │ …, first │ …        innermost first
//!             └─► tag ─► tag ─► …      on the C stack; those whose return label lies in rb_vm_exec are its calls
//! ```
//!
//! R1  Only words are loaded, and one function is called, which loads words (frames.P1). The interpreter's lock is not asked
//!     for: a thread's control frames are written by it alone (frames.P3).
//! R2  Parts of the chain and calls are paired from the outermost on: while an exception passes, inner calls have ended
//!     whose control frames are still there, and a part whose call has not begun has no place yet.
//! R3  Nothing is read while objects are collected: they may be on their way to other addresses.
//! R4  A fibre's frames are on its own stack, and are not read there.
//!
//! Offsets are those of Ruby's own headers (vm_core.h, iseq.h, rstring.h, rarray.h) of the version; what
//! contradicts them in the first chains is refused.
//!
//! Not here: places among the native frames (state.rs), methods that are written in C: they are native frames.

use core::ffi::{CStr, c_int, c_void};

use skinflint_base::loader::Extent;
use skinflint_base::ring::CODE_RUBY;

use crate::MAX_CHAIN;
use crate::chain::{Bounds, Link};
use crate::code::{Code, Text};
use crate::memory::{Memory, Plain};
use crate::program::Program;
use crate::runtime::Refusal;

/// The most control frames of a thread.
const MAX_STEPS: usize = 2 * MAX_CHAIN;

/// Where words lie in 3.1 (x86-64).
pub(crate) mod at {
    /// In the execution context: the stack of values, its words; the newest control frame; the newest tag.
    pub const STACK: u64 = 0;
    pub const STACK_WORDS: u64 = 8;
    pub const FRAME: u64 = 16;
    pub const TAG: u64 = 24;
    /// In a tag: the label to which it returns, and the next further out.
    pub const LABEL: u64 = 24;
    pub const OUTER_TAG: u64 = 56;
    /// In a control frame, which is so long: instruction, code, environment.
    pub const FRAME_BYTES: u64 = 64;
    pub const PC: u64 = 0;
    pub const ISEQ: u64 = 16;
    pub const EP: u64 = 32;
    /// In a code's object: its body. In that: the number of words (upper half), the words, path, label, first line, and
    /// the table of lines: entries, their number, and the index.
    pub const BODY: u64 = 16;
    pub const WORDS: u64 = 0;
    pub const ENCODED: u64 = 8;
    pub const PATH: u64 = 64;
    pub const LABEL_TEXT: u64 = 80;
    pub const FIRST_LINE: u64 = 88;
    pub const LINES: u64 = 120;
    pub const LINE_COUNT: u64 = 136;
    pub const LINE_INDEX: u64 = 144;
    /// An entry of that table: its first four bytes are the line.
    pub const LINE_BYTES: u64 = 12;
}

/// In an environment's flags: the control frame was the first of a call of the interpreter.
pub(crate) const FIRST_OF_A_CALL: u64 = 0x20;
/// What its control frame is; the first of all is a dummy, which has a code that nothing runs.
pub(crate) const SORT: u64 = 0x7fff_0000;
const DUMMY: u64 = 0x7999_0000;

/// The kinds of objects, in their flags.
const KIND: u64 = 0x1f;
const STRING: u64 = 5;
const ARRAY: u64 = 7;
const INTERNAL: u64 = 0x1a;
const INTERNAL_KIND: u64 = 15 << 12;
const ISEQ_KIND: u64 = 7 << 12;

/// The Ruby of this program.
#[derive(Clone, Copy)]
pub struct Ruby {
    /// From this thread's pointer to its execution context's.
    context: u64,
    /// The function that runs a part of a chain.
    run: Extent,
    during_gc: unsafe extern "C" fn() -> c_int,
}

/// Returns the Ruby of a program and its version (0x030102: 3.1.2); `None` if it is none.
///
/// # Safety
/// `program` tells the truth, and its objects are relocated and stay.
pub(crate) unsafe fn find(program: &impl Program) -> Option<(Result<Ruby, Refusal>, u32)> {
    let version = program.look(c"ruby_version") as *const u8;
    let during_gc = program.look(c"rb_during_gc");
    if version.is_null() || during_gc.is_null() {
        return None;
    }
    // SAFETY: a text of the runtime's, which ends with 0.
    let version = number(unsafe { CStr::from_ptr(version.cast()) }.to_bytes());
    if version >> 8 != 0x0301 {
        return Some((Err(Refusal::Version), version));
    }
    let (context, run) = (
        program.thread_distance(c"ruby_current_ec"),
        program.extent(c"rb_vm_exec"),
    );
    let found = context
        .zip(run)
        .ok_or(Refusal::Tables)
        .map(|(context, run)| Ruby {
            context,
            run,
            // SAFETY: it has had this type in all versions.
            during_gc: unsafe {
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(during_gc)
            },
        });
    Some((found, version))
}

/// Returns a version's three numbers, a byte each.
fn number(text: &[u8]) -> u32 {
    let part = |part: &[u8]| {
        let digits = part.iter().take_while(|byte| byte.is_ascii_digit());
        digits
            .fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0'))
            .min(255)
    };
    let parts = text.split(|byte| *byte == b'.').take(3);
    parts.fold(0, |all, one| all << 8 | part(one))
}

type Walked = Result<Option<usize>, Refusal>;
type Called = Result<Option<u64>, Refusal>;

impl Ruby {
    /// Returns this thread's execution context; 0 if it is no thread of Ruby's, or objects are being collected (R3).
    pub(crate) fn context(&self) -> u64 {
        let at = thread_pointer().wrapping_add(self.context);
        // SAFETY: a word of this thread's own, as the loader laid it out; the function loads words of what exists while
        // there is a context.
        unsafe {
            let context = (at as *const u64).read();
            match context == 0 || (self.during_gc)() != 0 {
                true => 0,
                false => context,
            }
        }
    }

    /// Walks the chain of an execution context, innermost first. Returns the number of frames; `None` if it is not read.
    pub(crate) fn walk<M: Memory>(
        &self,
        memory: &M,
        context: u64,
        bounds: Bounds,
        out: &mut [Link; MAX_CHAIN],
    ) -> Walked {
        let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
        let end = word(context + at::STACK)?
            .wrapping_add(word(context + at::STACK_WORDS)?.wrapping_mul(8));
        let mut frame = word(context + at::FRAME)?;
        if frame == 0 || frame >= end {
            return Ok(Some(0));
        }
        // Records say, until the calls are known, how many parts lie further in.
        let (mut count, mut parts, mut begun) = (0, 0, 0);
        for _ in 0..MAX_STEPS {
            if frame >= end {
                return self.pair(memory, context, bounds, out, (begun, parts));
            }
            if let Some((mut link, is_first)) = link(memory, frame)? {
                let Some(to) = out.get_mut(count) else {
                    return Ok(None);
                };
                link.record = parts;
                link.extra = u32::from(is_first);
                *to = link;
                count += 1;
                if is_first {
                    parts += 1;
                    begun = count;
                }
            }
            frame += at::FRAME_BYTES;
        }
        Ok(None)
    }

    /// Gives the frames of the chain's parts the records of their calls (R2).
    fn pair<M: Memory>(
        &self,
        memory: &M,
        context: u64,
        bounds: Bounds,
        out: &mut [Link; MAX_CHAIN],
        (count, parts): (usize, u64),
    ) -> Walked {
        let links = out.get_mut(..count).unwrap_or(&mut []);
        let mut found = 0u64;
        let mut tag = self.call(memory, bounds, memory.word(context + at::TAG))?;
        while tag.is_some_and(|tag| tag != 0) {
            found += 1;
            tag = self.next_call(memory, bounds, tag)?;
        }
        if found == 0 && parts > 1 {
            return Err(Refusal::Record);
        }
        let Some(early) = parts.checked_sub(found).filter(|_| tag.is_some()) else {
            return Ok(None);
        };
        let placed = links.partition_point(|link| link.record < early);
        let mut part = early;
        let mut call = self.call(memory, bounds, memory.word(context + at::TAG))?;
        for link in links.iter_mut().skip(placed) {
            if link.record != part {
                part = link.record;
                call = self.next_call(memory, bounds, call)?;
            }
            link.record = call.unwrap_or(0);
        }
        out.copy_within(placed..count, 0);
        Ok(Some(count - placed))
    }

    /// Returns the next call of the interpreter further out than one.
    pub(crate) fn next_call<M: Memory>(
        &self,
        memory: &M,
        bounds: Bounds,
        call: Option<u64>,
    ) -> Called {
        let call = call.unwrap_or(0);
        let from = Bounds {
            sp: call + 8,
            hi: bounds.hi,
        };
        self.call(memory, from, memory.word(call + at::OUTER_TAG))
    }

    /// Returns the first tag from `tag` on that is of a call of the interpreter: 0 if there is none, `None` if one is not
    /// on the thread's stack.
    pub(crate) fn call<M: Memory>(
        &self,
        memory: &M,
        mut bounds: Bounds,
        tag: Option<u64>,
    ) -> Called {
        let mut tag = tag.ok_or(Refusal::Record)?;
        loop {
            if tag == 0 {
                return Ok(Some(0));
            }
            if !bounds.holds(tag) {
                return Ok(None);
            }
            let word = |at: u64| memory.word(at).ok_or(Refusal::Record);
            if self.run.holds(word(tag + at::LABEL)?) {
                return Ok(Some(tag));
            }
            bounds.sp = tag + 8;
            tag = word(tag + at::OUTER_TAG)?;
        }
    }

    /// Reads what is copied of a code.
    pub(crate) fn code(&self, link: &Link) -> Code {
        let word = |at: u64| Plain.word(at).unwrap_or(0);
        let path = word(link.code + at::PATH);
        let file = match word(path) & KIND {
            ARRAY => text(array_first(path), 2048),
            _ => text(path, 2048),
        };
        Code {
            minor: CODE_RUBY,
            first_line: link.first_line,
            file: file.unwrap_or(Text::NONE),
            name: text(word(link.code + at::LABEL_TEXT), 1024).unwrap_or(Text::NONE),
            table: Text::NONE,
            class: Text::NONE,
        }
    }
}

/// Returns this thread's pointer, from which its thread-local variables are found; 0 where that is not known.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn thread_pointer() -> u64 {
    let at: u64;
    // SAFETY: the word that the thread's pointer leads to is that pointer (the psABI's TLS).
    unsafe {
        core::arch::asm!("mov {}, fs:0", out(reg) at, options(nostack, readonly, preserves_flags))
    };
    at
}

/// Returns 0.
#[cfg(not(target_arch = "x86_64"))]
pub fn thread_pointer() -> u64 {
    0
}

/// Reads a control frame, and whether it was the first of a call; `None` if it runs no code of Ruby.
pub(crate) fn link<M: Memory>(memory: &M, frame: u64) -> Result<Option<(Link, bool)>, Refusal> {
    let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
    let (pc, iseq) = (word(frame + at::PC)?, word(frame + at::ISEQ)?);
    if pc == 0 || iseq == 0 {
        return Ok(None);
    }
    let how = word(word(frame + at::EP)?)?;
    if how & SORT == DUMMY {
        return Ok(None);
    }
    let of_code = |at: u64| memory.word(at).ok_or(Refusal::Code);
    let flags = of_code(iseq)?;
    if flags & KIND != INTERNAL {
        return Err(Refusal::Code);
    }
    if flags & INTERNAL_KIND != ISEQ_KIND {
        return Ok(None);
    }
    let body = of_code(iseq + at::BODY)?;
    let (encoded, words) = (
        of_code(body + at::ENCODED)?,
        of_code(body + at::WORDS)? >> 32,
    );
    let bytes = pc.wrapping_sub(encoded);
    if bytes & 7 != 0 || bytes / 8 > words {
        return Err(Refusal::Instruction);
    }
    // The instruction is the one before: what runs has been passed.
    let place = (bytes / 8).saturating_sub(1);
    let label = of_code(body + at::LABEL_TEXT)?;
    let link = Link {
        frame,
        code: body,
        table: encoded,
        name: content(memory, label)?,
        unit: line(memory, body, place)?,
        first_line: (of_code(body + at::FIRST_LINE)? >> 1) as u32,
        ..Link::default()
    };
    Ok(Some((link, how & FIRST_OF_A_CALL != 0)))
}

/// Returns what tells a text from another at its address: its length, and its first and last characters.
fn content<M: Memory>(memory: &M, text: u64) -> Result<u64, Refusal> {
    let word = |at: u64| memory.word(at).ok_or(Refusal::Code);
    let flags = word(text)?;
    if flags & KIND != STRING {
        return Err(Refusal::Code);
    }
    let [first, second] = [word(text + 16)?, word(text + 24)?];
    let mut mixed = text
        ^ (flags & (ELSEWHERE | INSIDE_BYTES)).rotate_left(32)
        ^ first
        ^ second.rotate_left(21);
    if flags & ELSEWHERE == 0 {
        mixed ^= word(text + 32)?.rotate_left(42);
    } else if first >= 16 {
        let last = second.wrapping_add(first - 8) & !7;
        mixed ^= word(last)?.rotate_left(13) ^ word((second + 7) & !7)?.rotate_left(31);
    }
    Ok(mixed)
}

/// In the flags of a text or an array: what it has is elsewhere (texts), or inside (arrays).
const ELSEWHERE: u64 = 1 << 13;
const INSIDE: u64 = 1 << 13;
/// The number of bytes of a text that has them inside.
const INSIDE_BYTES: u64 = 31 << 14;

fn array_first(array: u64) -> u64 {
    let word = |at: u64| Plain.word(at).unwrap_or(0);
    match word(array) & INSIDE {
        0 => word(word(array + 32)),
        _ => word(array + 16),
    }
}

fn text(at: u64, most: u64) -> Option<Text> {
    let flags = Plain.word(at)?;
    if flags & KIND != STRING {
        return None;
    }
    let (start, bytes) = match flags & ELSEWHERE {
        0 => (at + 16, (flags & INSIDE_BYTES) >> 14),
        _ => (Plain.word(at + 24)?, Plain.word(at + 16)?),
    };
    Some(Text::bytes(start, bytes.min(most) as usize))
}

/// Returns the line of a word of a code; 0 if it has none.
fn line<M: Memory>(memory: &M, body: u64, place: u64) -> Result<u32, Refusal> {
    let word = |at: u64| memory.word(at).ok_or(Refusal::Code);
    let count = word(body + at::LINE_COUNT)? as u32;
    let index = match count {
        0 => return Ok(0),
        1 => 0,
        _ => u64::from(rank(&word, word(body + at::LINE_INDEX)?, place)?.saturating_sub(1)),
    };
    if index >= u64::from(count) {
        return Err(Refusal::Instruction);
    }
    let entry = word(body + at::LINES)? + index * at::LINE_BYTES;
    let line = (word(entry & !7)? >> ((entry & 7) * 8)) as u32;
    Ok(line & 0xff_ffff)
}

/// Returns how many entries begin at words up to `place`. The first 54 places have a count of 7 bits each, nine to a word;
/// then come blocks of 512 bits, with their counts before them.
fn rank(
    word: &impl Fn(u64) -> Result<u64, Refusal>,
    index: u64,
    place: u64,
) -> Result<u32, Refusal> {
    const AT_ONCE: u64 = 54;
    const PER_WORD: u64 = 9;
    const BLOCK_BYTES: u64 = 16 + 512 / 8;
    let Some(beyond) = place.checked_sub(AT_ONCE) else {
        let counts = word(index + place / PER_WORD * 8)?;
        return Ok((counts >> (place % PER_WORD * 7) & 127) as u32);
    };
    let block = index + AT_ONCE / PER_WORD * 8 + beyond / 512 * BLOCK_BYTES;
    let (group, bit) = (beyond % 512 / 64, beyond % 64);
    let before = word(block)? as u32;
    let groups = match group {
        0 => 0,
        _ => (word(block + 8)? >> ((group - 1) * 9) & 511) as u32,
    };
    let bits = word(block + 16 + group * 8)? << (63 - bit);
    Ok(before + groups + bits.count_ones())
}

#[cfg(test)]
#[path = "ruby_tests.rs"]
pub(crate) mod tests;
