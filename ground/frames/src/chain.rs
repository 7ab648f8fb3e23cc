//! The walk over a thread's chain of frames, from the innermost to the outermost.
//!
//! W1  A walk takes at most [`MAX_STEPS`] steps, whatever the words say: a circle ends there.
//! W2  Records lie on the thread's stack, each further out than the one before.
//!
//! Not here: where offsets come from (layout.rs), what is done with the frames (state.rs).

use crate::MAX_CHAIN;
use crate::layout::{Border, CODE_NAME, CODE_TABLE, TEXT_HASH};
use crate::memory::Memory;
use crate::runtime::{Refusal, Runtime};

/// The most steps of a walk: each frame may be followed by a shim.
const MAX_STEPS: usize = 2 * MAX_CHAIN;

/// The most code units of a code that are told apart.
const MAX_UNIT: u64 = 1 << 24;

/// The program's stack: from the caller's stack pointer to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub sp: u64,
    pub hi: u64,
}

impl Bounds {
    #[inline(always)]
    pub fn holds(&self, record: u64) -> bool {
        self.sp <= record && record < self.hi
    }
}

/// A frame of the chain, with all that tells it from another (frames.P5).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Link {
    pub frame: u64,
    pub code: u64,
    /// The line table of the code.
    pub table: u64,
    /// The hash of the qualified name of the code: an address says nothing of what lies there now.
    pub name: u64,
    /// The record of the eval loop that runs it.
    pub record: u64,
    /// One more than the instruction, in code units: 0 is before the first.
    pub unit: u32,
    pub first_line: u32,
    /// The number of native frames further out, its eval loop's included.
    pub after: u32,
    pub reserved: u32,
}

type Walked = Result<Option<usize>, Refusal>;

/// Walks the chain of the thread's `state`, and puts its frames into `out`, innermost first. Returns their number; `None`
/// if the chain is not one that is read: too long, or begun on another stack.
pub(crate) fn walk<M: Memory>(
    memory: &M,
    runtime: &Runtime,
    state: u64,
    bounds: Bounds,
    out: &mut [Link; MAX_CHAIN],
) -> Walked {
    match runtime.layout.border {
        Border::Cframe { frame, previous } => {
            by_cframes(memory, runtime, state, bounds, out, [frame, previous])
        }
        Border::Shim { owner } => by_shims(memory, runtime, state, bounds, out, owner),
    }
}

fn by_cframes<M: Memory>(
    memory: &M,
    runtime: &Runtime,
    state: u64,
    bounds: Bounds,
    out: &mut [Link; MAX_CHAIN],
    [to_frame, to_previous]: [u64; 2],
) -> Walked {
    let layout = runtime.layout;
    let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
    let mut record = word(state + layout.current)?;
    // A thread that starts has none yet.
    if record == 0 {
        return Ok(Some(0));
    }
    let mut frame = word(record + to_frame)?;
    let mut count = 0;
    while frame != 0 {
        if !bounds.holds(record) {
            return Ok(None);
        }
        loop {
            let Some(to) = out.get_mut(count) else {
                return Ok(None);
            };
            *to = link(memory, runtime, frame)?.ok_or(Refusal::Code)?;
            to.record = record;
            count += 1;
            let is_last = byte(memory, frame + layout.mark)? != 0;
            frame = word(frame + layout.previous)?;
            if is_last {
                break;
            }
        }
        if frame == 0 {
            break;
        }
        let outer = word(record + to_previous)?;
        // A greenlet's chain ends at the state's own record: its parents' frames are not on the stack.
        if !bounds.holds(outer) || outer <= record || word(outer + to_frame)? != frame {
            break;
        }
        record = outer;
    }
    Ok(Some(count))
}

fn by_shims<M: Memory>(
    memory: &M,
    runtime: &Runtime,
    state: u64,
    bounds: Bounds,
    out: &mut [Link; MAX_CHAIN],
    owner: u8,
) -> Walked {
    let layout = runtime.layout;
    let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
    let mut frame = word(state + layout.current)?;
    if let Some(through) = layout.through
        && frame != 0
    {
        frame = word(frame + through)?;
    }
    let (mut count, mut placed, mut last) = (0, 0, 0);
    for _ in 0..MAX_STEPS {
        if frame == 0 {
            // What no shim follows is run by no eval loop that is known.
            return Ok(Some(placed));
        }
        if byte(memory, frame + layout.mark)? >= owner {
            if !bounds.holds(frame) {
                return Ok(None);
            }
            if frame <= last {
                return Ok(Some(placed));
            }
            for link in out.get_mut(placed..count).unwrap_or(&mut []) {
                link.record = frame;
            }
            (placed, last) = (count, frame);
        } else if let Some(link) = link(memory, runtime, frame)? {
            *out.get_mut(count).ok_or(Refusal::Frame)? = link;
            count += 1;
            if count == MAX_CHAIN {
                return Ok(None);
            }
        }
        frame = word(frame + layout.previous)?;
    }
    Ok(None)
}

/// Reads a frame; `None` if what it runs is no code.
#[inline(always)]
pub(crate) fn link<M: Memory>(
    memory: &M,
    runtime: &Runtime,
    frame: u64,
) -> Result<Option<Link>, Refusal> {
    const OBJECT_TYPE: u64 = 8;
    const OBJECT_SIZE: u64 = 16;
    let layout = runtime.layout;
    let code = memory.word(frame + layout.code).ok_or(Refusal::Frame)?;
    let word = |at: u64| memory.word(at).ok_or(Refusal::Code);
    if word(code.wrapping_add(OBJECT_TYPE))? != runtime.code_type {
        return match layout.may_lack_code {
            true => Ok(None),
            false => Err(Refusal::Code),
        };
    }
    let units = word(code + OBJECT_SIZE)?.min(MAX_UNIT - 2);
    let at = memory
        .word(frame + layout.instruction)
        .ok_or(Refusal::Frame)?;
    // A frame that has not begun has the unit before its first.
    let bytes = at.wrapping_sub(code + layout.bytecode).wrapping_add(2);
    if bytes & 1 != 0 || bytes >> 1 > units {
        return Err(Refusal::Instruction);
    }
    let first_line = word((code + layout.first_line) & !7)? >> ((layout.first_line & 7) * 8);
    Ok(Some(Link {
        frame,
        code,
        table: word(code + CODE_TABLE)?,
        name: word(word(code + CODE_NAME)?.wrapping_add(TEXT_HASH))?,
        unit: (bytes >> 1) as u32,
        first_line: first_line as u32,
        ..Link::default()
    }))
}

#[inline(always)]
pub(crate) fn byte<M: Memory>(memory: &M, at: u64) -> Result<u8, Refusal> {
    let word = memory.word(at & !7).ok_or(Refusal::Frame)?;
    Ok((word >> ((at & 7) * 8)) as u8)
}

#[cfg(test)]
#[path = "chain_tests.rs"]
pub(crate) mod tests;
