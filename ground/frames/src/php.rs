//! Frames of PHP: the chain of execution data, and the calls of the executor that run them.
//!
//! ```text
//!   executor_globals ─► frame ─► frame, marked as a call's first ─► internal function ─► frame, marked ─► …
//!   native:   main … execute_ex … array_map … execute_ex …        as many frames in execute_ex as marks
//! ```
//!
//! H1  Only words are loaded (frames.P1). A build without threads has one chain; it is read only by a thread that has the
//!     executor on its stack, which is the one that writes it (frames.P3).
//! H2  Nothing of PHP's lies on the C stack. So the executor's native frames are counted (count.rs).
//! H3  A fibre's frames are on its own stack, and are not read there.
//!
//! Offsets are those of PHP's own headers (zend_compile.h, zend_globals.h, zend_types.h). A version is known by the sizes of
//! its three tables of globals: with threads, with debugging or in another version they are others, or not there.
//!
//! Not here: places among the native frames (state.rs), functions that are written in C: they are native frames.

use core::ffi::CStr;

use skinflint_base::loader::Extent;
use skinflint_base::ring::CODE_PHP;

use crate::MAX_CHAIN;
use crate::chain::Link;
use crate::code::{Code, Text};
use crate::count;
use crate::memory::{Memory, Plain};
use crate::natives::Natives;
use crate::program::Program;
use crate::runtime::Refusal;

const MAX_STEPS: usize = 4 * MAX_CHAIN;

/// Where words lie in 8.2 (x86-64, without threads).
pub(crate) mod at {
    /// In the executor's globals: the newest frame.
    pub const FRAME: u64 = 488;
    /// In a frame: instruction, function, flags (lower half of a word), caller.
    pub const OPLINE: u64 = 0;
    pub const FUNCTION: u64 = 24;
    pub const FLAGS: u64 = 40;
    pub const CALLER: u64 = 48;
    /// In a function: kind (lowest byte), name, class, instructions and their number, file, first line.
    pub const KIND: u64 = 0;
    pub const NAME: u64 = 8;
    pub const CLASS: u64 = 16;
    pub const COUNT: u64 = 80;
    pub const OPCODES: u64 = 88;
    pub const FILE: u64 = 152;
    pub const FIRST_LINE: u64 = 160;
    /// In an instruction, which is so long: its line.
    pub const OP_BYTES: u64 = 32;
    pub const LINE: u64 = 24;
    /// In a class: its name. In a text: its length, its characters.
    pub const CLASS_NAME: u64 = 8;
    pub const LENGTH: u64 = 16;
    pub const CHARACTERS: u64 = 24;
}

/// The executor was called for this frame.
pub(crate) const FIRST_OF_A_CALL: u64 = 1 << 17;
/// The kinds of functions that are written in C are odd; those of PHP are functions, and what `eval` runs.
pub(crate) const WRITTEN_IN_C: u64 = 1;
const MOST_TEXT: u64 = 2048;
const MAIN: &[u8] = b"{main}";

/// The sizes of globals by which a version is known: the executor's, the compiler's, the core's.
const GLOBALS: [&CStr; 3] = [c"executor_globals", c"compiler_globals", c"core_globals"];
const VERSIONS: [([u64; 3], u32); 1] = [([1800, 568, 672], 0x08_0200)];

/// The PHP of this program.
#[derive(Clone, Copy)]
pub struct Php {
    pub(crate) globals: Extent,
    /// The function that runs a part of a chain.
    pub(crate) run: Extent,
}

/// Returns the PHP of a program and its version (0x080200: 8.2; 0: not known); `None` if it is none.
///
/// # Safety
/// `program` tells the truth, and its objects are relocated and stay.
pub(crate) unsafe fn find(program: &impl Program) -> Option<(Result<Php, Refusal>, u32)> {
    let run = program.extent(c"execute_ex");
    // Builds with threads have an offset instead of the globals.
    let other = program.look(c"executor_globals_offset");
    if other.is_null() && (run.is_none() || program.look(c"zend_execute_ex").is_null()) {
        return None;
    }
    let [globals, others @ ..] = GLOBALS.map(|name| program.extent(name));
    let bytes = |of: Option<Extent>| of.map_or(0, |of| of.end - of.start);
    let sizes = [bytes(globals), bytes(others[0]), bytes(others[1])];
    let known = VERSIONS.iter().find(|(of, _)| *of == sizes);
    match (globals.zip(run), known) {
        (Some((globals, run)), Some((_, version))) => Some((Ok(Php { globals, run }), *version)),
        _ => Some((Err(Refusal::Version), 0)),
    }
}

type Walked = Result<Option<usize>, Refusal>;

impl Php {
    /// Walks the chain, innermost first. Returns the number of frames; `None` if it is not read.
    pub(crate) fn walk<M: Memory>(
        &self,
        memory: &M,
        natives: &impl Natives,
        calls: Option<&[u32]>,
        out: &mut [Link; MAX_CHAIN],
    ) -> Walked {
        let Some(calls) = calls else {
            return Ok(None);
        };
        // H1.
        if calls.is_empty() {
            return Ok(Some(0));
        }
        let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
        let mut frame = word(self.globals.start + at::FRAME)?;
        let (mut count, mut parts) = (0, 0);
        for _ in 0..MAX_STEPS {
            if frame == 0 {
                break;
            }
            if let Some(mut link) = self.link(memory, frame)? {
                let Some(to) = out.get_mut(count) else {
                    return Ok(None);
                };
                let is_first = word(frame + at::FLAGS)? & FIRST_OF_A_CALL != 0;
                (link.record, link.extra) = (parts, u32::from(is_first));
                *to = link;
                count += 1;
                parts += u64::from(is_first);
            }
            frame = word(frame + at::CALLER)?;
        }
        let links = out.get_mut(..count).unwrap_or(&mut []);
        let is_read = frame == 0 && count::pair(links, parts, natives, calls);
        Ok(is_read.then_some(count))
    }

    /// Reads a frame; `None` if it runs no code of PHP.
    #[inline(always)]
    pub(crate) fn link<M: Memory>(&self, memory: &M, frame: u64) -> Result<Option<Link>, Refusal> {
        let word = |at: u64| memory.word(at).ok_or(Refusal::Code);
        let function = memory.word(frame + at::FUNCTION).ok_or(Refusal::Frame)?;
        if function == 0 || word(function + at::KIND)? & WRITTEN_IN_C != 0 {
            return Ok(None);
        }
        let opline = memory.word(frame + at::OPLINE).ok_or(Refusal::Frame)?;
        let opcodes = word(function + at::OPCODES)?;
        let first_line = word(function + at::FIRST_LINE)? as u32;
        let count = word(function + at::COUNT)? & 0xffff_ffff;
        // Until a frame has done what can fail, its instruction is in a register, and the word is what was there before; while
        // an exception passes, it is one of the globals.
        let line = match opline.wrapping_sub(opcodes) < count * at::OP_BYTES {
            true => word(opline + at::LINE)? as u32,
            false => first_line,
        };
        let (name, file) = (word(function + at::NAME)?, word(function + at::FILE)?);
        let length = match name {
            0 => 0,
            _ => word(name + at::LENGTH)? ^ word(name + at::CHARACTERS)?.rotate_left(24),
        };
        Ok(Some(Link {
            frame,
            code: function,
            table: opcodes,
            name: name
                ^ file.rotate_left(16)
                ^ word(function + at::CLASS)?.rotate_left(32)
                ^ length,
            unit: line & 0xff_ffff,
            first_line,
            ..Link::default()
        }))
    }

    /// Reads what is copied of a function.
    pub(crate) fn code(&self, link: &Link) -> Code {
        let word = |at: u64| Plain.word(at).unwrap_or(0);
        let name = match word(link.code + at::NAME) {
            0 => Text::bytes(MAIN.as_ptr() as u64, MAIN.len()),
            name => text(name),
        };
        let class = match word(link.code + at::CLASS) {
            0 => Text::NONE,
            class => text(word(class + at::CLASS_NAME)),
        };
        Code {
            minor: CODE_PHP,
            first_line: link.first_line,
            file: text(word(link.code + at::FILE)),
            name,
            table: class,
            class: Text::NONE,
        }
    }
}

fn text(at: u64) -> Text {
    match Plain.word(at.wrapping_add(at::LENGTH)) {
        Some(length) => Text::bytes(at + at::CHARACTERS, length.min(MOST_TEXT) as usize),
        None => Text::NONE,
    }
}

#[cfg(test)]
#[path = "php_tests.rs"]
pub(crate) mod tests;
