//! The short way to Ruby's frames: control frames lie side by side, so those that are as they were are compared where they lie.
//!
//! ```text
//!   end of the stack of values ─ [0] [1] … [k-1] │ [k] … newest        [0, k): instruction and flags are as they were
//!   tags, from the newest:  t2 ─► t1 ─► t0                             as far as calls are not among the kept native frames
//! ```
//!
//! X1  The result is what the whole walk (ruby.rs) would give, or nothing: then that is taken.
//! X2  Only proved layouts are read so, and only if the chain that is remembered is of the capture before, of any thread. A code
//!     is made of blocks of malloc's, each of which is captured, with a chain in which no frame runs that code yet. So from
//!     one capture to the next an instruction's address means the same code.
//! X3  A call of the interpreter among the kept native frames has the tag that it had: it is a local of that call.
//!
//! Not here: what is kept of the merged stack (state.rs).

use crate::MAX_CHAIN;
use crate::chain::{Bounds, Link};
use crate::memory::{Memory, is_address};
use crate::natives::Natives;
use crate::ruby::{FIRST_OF_A_CALL, Ruby, SORT, at, link};

/// The most control frames that are remembered: of deeper chains all are read.
const MOST: usize = 2048;
/// The most calls of the interpreter that are not among the kept native frames.
const MOST_CALLS: usize = 64;

/// What is compared of a control frame: its instruction (0: of a method that is written in C), and its flags.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    pc: u64,
    how: u64,
}

/// The control frames of the last chain that was read.
#[repr(C)]
pub(crate) struct Controls {
    /// Where the outermost ends.
    end: u64,
    count: usize,
    /// The tags of calls that are not among the kept native frames, innermost first.
    calls: [u64; MOST_CALLS],
    /// The outermost first.
    known: [Known; MOST],
}

/// What was found: the outermost `same` links are as they were, places included, and `later` ones follow. The newest of the
/// same has this record; `calls` are not among the kept native frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quick {
    pub same: usize,
    pub later: usize,
    record: u64,
    calls: usize,
}

impl Controls {
    /// Remembers the control frames of a chain that was just read whole, as far in as its `newest` link: those of links that
    /// were left out (ruby.R2) are read again. Returns whether it does.
    pub(crate) fn remember<M: Memory>(
        &mut self,
        memory: &M,
        context: u64,
        newest: Option<&Link>,
    ) -> bool {
        let (Some((end, _)), Some(newest)) = (extent(memory, context), newest) else {
            return false;
        };
        let count = (end.saturating_sub(newest.frame) / at::FRAME_BYTES) as usize;
        for (index, to) in self.known.iter_mut().enumerate().take(count) {
            match known(memory, end, index) {
                Some(now) => *to = now,
                None => return false,
            }
        }
        (self.end, self.count) = (end, count);
        true
    }

    /// Reads what may be new of a chain into `later`, outermost first; `list` is the remembered one. On `None` the control
    /// frames are not those of any chain.
    #[inline(always)]
    pub(crate) fn read<M: Memory>(
        &mut self,
        memory: &M,
        (ruby, context, bounds): (&Ruby, u64, Bounds),
        list: &[Link],
        natives: &impl Natives,
        later: &mut [Link; MAX_CHAIN],
    ) -> Option<Quick> {
        let (end, count) = extent(memory, context)?;
        if end != self.end {
            return None;
        }
        let held = self.held(memory, end, count)?;
        let last = end - held as u64 * at::FRAME_BYTES;
        let is_gone = |link: &&Link| link.frame < last;
        let kept = list.len() - list.iter().rev().take_while(is_gone).count();
        let kept = list.get(..kept)?;
        let keep = natives.keep();
        let is_inside = |link: &&Link| link.after as usize > keep;
        let mut found = kept.iter().rev().take_while(is_inside).count();
        let (same, moved) = kept.split_at_checked(kept.len() - found)?;
        later.get_mut(..found)?.copy_from_slice(moved);
        for index in held..count {
            *self.known.get_mut(index)? = known(memory, end, index)?;
            let frame = end - (index as u64 + 1) * at::FRAME_BYTES;
            if let Some((mut link, is_first)) = link(memory, frame).ok()? {
                link.extra = u32::from(is_first);
                *later.get_mut(found)? = link;
                found += 1;
            }
        }
        self.count = count;
        let record = same.last().map_or(0, |link| link.record);
        let calls = ruby.calls_to(memory, context, bounds, record, &mut self.calls)?;
        let later = later.get(..found)?;
        if same.is_empty() && later.first()?.extra == 0 {
            return None;
        }
        // More calls than parts: the whole way says what that means.
        let parts = later.iter().filter(|link| link.extra != 0).count();
        (calls <= parts).then_some(Quick {
            same: same.len(),
            later: found,
            record,
            calls,
        })
    }

    /// Gives links their calls (ruby.R2). Returns how many links there are: those whose call has not begun are left out, and
    /// their control frames are not remembered.
    #[inline(always)]
    pub(crate) fn pair(&mut self, found: Quick, later: &mut [Link]) -> usize {
        let (mut record, mut left) = (found.record, found.calls);
        for (index, link) in later.iter_mut().enumerate() {
            if link.extra != 0 {
                let Some(next) = left.checked_sub(1) else {
                    let further = self.end.saturating_sub(link.frame) / at::FRAME_BYTES;
                    self.count = further.saturating_sub(1) as usize;
                    return index;
                };
                left = next;
                record = self.calls.get(left).copied().unwrap_or(0);
            }
            link.record = record;
        }
        later.len()
    }

    /// Returns how many of the outermost control frames are as they were. Cost: about 15 instructions for each.
    #[inline(always)]
    fn held<M: Memory>(&self, memory: &M, end: u64, count: usize) -> Option<usize> {
        let list = self.known.get(..self.count.min(count))?;
        let mut frame = end;
        for (index, before) in list.iter().enumerate() {
            frame -= at::FRAME_BYTES;
            let ep = memory.at(frame + at::EP);
            if memory.at(frame + at::PC) != before.pc || !is_address(ep) {
                return Some(index);
            }
            if memory.at(ep) & (SORT | FIRST_OF_A_CALL) != before.how {
                return Some(index);
            }
        }
        Some(list.len())
    }
}

/// Returns where a chain's control frames end, and how many they are.
#[inline(always)]
fn extent<M: Memory>(memory: &M, context: u64) -> Option<(u64, usize)> {
    let words = memory.word(context + at::STACK_WORDS)?;
    let end = memory
        .word(context + at::STACK)?
        .wrapping_add(words.wrapping_mul(8));
    let frame = memory.word(context + at::FRAME)?;
    let bytes = end.checked_sub(frame)?;
    let count = (bytes / at::FRAME_BYTES) as usize;
    let is_one = is_address(frame) && is_address(end) && bytes % at::FRAME_BYTES == 0;
    (is_one && 0 < count && count <= MOST).then_some((end, count))
}

#[inline(always)]
fn known<M: Memory>(memory: &M, end: u64, index: usize) -> Option<Known> {
    let frame = end - (index as u64 + 1) * at::FRAME_BYTES;
    let ep = memory.word(frame + at::EP)?;
    Some(Known {
        pc: memory.word(frame + at::PC)?,
        how: memory.word(ep)? & (SORT | FIRST_OF_A_CALL),
    })
}

impl Ruby {
    /// Puts the tags of the calls further in than that of `record` (0: of all) into `to`, innermost first. Returns how many
    /// they are.
    #[inline(always)]
    fn calls_to<M: Memory>(
        &self,
        memory: &M,
        context: u64,
        bounds: Bounds,
        record: u64,
        to: &mut [u64; MOST_CALLS],
    ) -> Option<usize> {
        let mut call = self.call(memory, bounds, memory.word(context + at::TAG));
        let mut found = 0;
        loop {
            let tag = call.ok()??;
            if tag == record {
                return Some(found);
            }
            if tag == 0 {
                return None;
            }
            *to.get_mut(found)? = tag;
            found += 1;
            call = self.next_call(memory, bounds, Some(tag));
        }
    }
}
