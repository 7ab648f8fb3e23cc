//! The walk over a thread's chain of frames, from the innermost to the outermost.
//!
//! W1  A walk takes at most [`MAX_STEPS`] steps, whatever the words say: a circle ends there.
//! W2  Records lie on the thread's stack, each further out than the one before.
//!
//! Not here: where offsets come from (layout.rs), what is done with the frames (state.rs).

use crate::MAX_CHAIN;
use crate::layout::{Border, Layout, Place, TEXT_HASH};
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
    /// Of Ruby and PHP: whether a call of the interpreter began with it. Of Java: the number of the compiled code at `record`.
    pub extra: u32,
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
        Border::Count => uncounted(memory, runtime, state, out),
        Border::Pair { frame, previous } => {
            by_pairs(memory, runtime, state, bounds, out, [frame, previous])
        }
        Border::Cframe { frame, previous } => {
            by_cframes(memory, runtime, state, bounds, out, [frame, previous])
        }
        Border::Shim { owner } => by_shims(memory, runtime, state, bounds, out, owner),
    }
}

/// Frames whose records say how many lie further in: what runs them is found elsewhere (count.rs).
fn uncounted<M: Memory>(
    memory: &M,
    runtime: &Runtime,
    state: u64,
    out: &mut [Link; MAX_CHAIN],
) -> Walked {
    let layout = runtime.layout;
    let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
    let mut frame = word(state + layout.current)?;
    let mut count = 0;
    while frame != 0 {
        let Some(to) = out.get_mut(count) else {
            return Ok(None);
        };
        *to = link(memory, runtime, frame)?.ok_or(Refusal::Code)?;
        to.record = count as u64;
        count += 1;
        frame = word(frame + layout.previous)?;
    }
    Ok(Some(count))
}

/// A frame for each record: if one of the lists is longer than the other, it is not known which belong together.
fn by_pairs<M: Memory>(
    memory: &M,
    runtime: &Runtime,
    state: u64,
    bounds: Bounds,
    out: &mut [Link; MAX_CHAIN],
    [to_frame, to_previous]: [u64; 2],
) -> Walked {
    let layout = runtime.layout;
    let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
    let (mut record, mut frame) = (word(state + layout.current)?, word(state + to_frame)?);
    let (mut count, mut last) = (0, 0);
    while frame != 0 {
        let Some(to) = out
            .get_mut(count)
            .filter(|_| bounds.holds(record) && record > last)
        else {
            return Ok(None);
        };
        *to = link(memory, runtime, frame)?.ok_or(Refusal::Code)?;
        to.record = record;
        count += 1;
        last = record;
        frame = word(frame + layout.previous)?;
        record = word(record + to_previous)?;
    }
    Ok((!bounds.holds(record)).then_some(count))
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
    let layout = runtime.layout;
    let code = memory.word(frame + layout.code).ok_or(Refusal::Frame)? & !layout.tag;
    let word = |at: u64| memory.word(at).ok_or(Refusal::Code);
    if word(code.wrapping_add(OBJECT_TYPE))? != runtime.code_type {
        return match layout.may_lack_code {
            true => Ok(None),
            false => Err(Refusal::Code),
        };
    }
    Ok(Some(Link {
        frame,
        code,
        table: word(code + layout.table)?,
        name: word(word(code + layout.name)?.wrapping_add(TEXT_HASH))?,
        unit: unit(memory, layout, frame, code)?,
        first_line: half(word, code + layout.first_line)?,
        ..Link::default()
    }))
}

/// Returns one more than the instruction of a frame, in code units; that is 0 before the first.
#[inline(always)]
fn unit<M: Memory>(memory: &M, layout: &Layout, frame: u64, code: u64) -> Result<u32, Refusal> {
    const OBJECT_SIZE: u64 = 16;
    let at_frame = |at: u64| memory.word(at).ok_or(Refusal::Frame);
    let at_code = |at: u64| memory.word(at).ok_or(Refusal::Code);
    let (unit, units) = match layout.place {
        Place::Address { bytecode } => {
            let at = at_frame(frame + layout.instruction)?;
            // An odd number of bytes becomes a large one.
            let bytes = at.wrapping_sub(code + bytecode).wrapping_add(2);
            (bytes.rotate_right(1), at_code(code + OBJECT_SIZE)?)
        }
        Place::Number { bytes, per_unit } => {
            let number = half(at_frame, frame + layout.instruction)?.cast_signed();
            let bytes = at_code(at_code(code + bytes)?.wrapping_add(OBJECT_SIZE))?;
            // −1 is before the first, whatever is counted.
            let unit = number.div_euclid(per_unit).wrapping_add(1);
            (u64::from(unit.cast_unsigned()), bytes / 2)
        }
    };
    match unit <= units.min(MAX_UNIT - 2) {
        true => Ok(unit as u32),
        false => Err(Refusal::Instruction),
    }
}

/// Returns four bytes, by what loads eight.
#[inline(always)]
fn half(word: impl Fn(u64) -> Result<u64, Refusal>, at: u64) -> Result<u32, Refusal> {
    Ok((word(at & !7)? >> ((at & 7) * 8)) as u32)
}

#[inline(always)]
pub(crate) fn byte<M: Memory>(memory: &M, at: u64) -> Result<u8, Refusal> {
    let word = memory.word(at & !7).ok_or(Refusal::Frame)?;
    Ok((word >> ((at & 7) * 8)) as u8)
}

#[cfg(test)]
#[path = "chain_tests.rs"]
pub(crate) mod tests;
