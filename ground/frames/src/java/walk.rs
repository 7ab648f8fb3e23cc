//! The frames of Java among native ones.
//!
//! ```text
//!   native  [0] [1] [2] │ [3] [4]          kept: [0] to [2]
//!   before   ·  a b  c  │  d               c is the interpreter's: read anew; a and b have the number that they had
//!   now      ·  a b  c  │  ·   e f
//! ```
//!
//! Not here: what of the merged stack is kept (state.rs).

use super::machine::{Java, half};
use crate::MAX_CHAIN;
use crate::chain::{Bounds, Link};
use crate::memory::Memory;
use crate::natives::Natives;
use crate::runtime::Refusal;

/// In the interpreter's frame, below `rbp`: its method and its bytecode (java.J3).
const METHOD: u64 = 24;
const BYTECODE: u64 = 64;

type Walked = Result<Option<usize>, Refusal>;

impl Java {
    /// Puts the frames of Java into `out`, outermost first, each with its place among the native ones. `old`: those of the
    /// last capture. Returns their number; `None` if there are too many.
    pub(crate) fn walk<M: Memory>(
        &self,
        memory: &M,
        natives: &impl Natives,
        bounds: Bounds,
        old: &[Link],
        out: &mut [Link; MAX_CHAIN],
    ) -> Walked {
        let (low, high) = self.bounds(memory).ok_or(Refusal::Frame)?;
        let (mut count, mut known) = (0, old);
        for index in 0..natives.total() {
            let address = natives.pc(index);
            if address <= low || address > high {
                continue;
            }
            let after = index as u32 + 1;
            let further = known.partition_point(|link| link.after < after);
            known = known.get(further..).unwrap_or(&[]);
            let same = known.partition_point(|link| link.after == after);
            let before = known
                .get(..same)
                .filter(|_| index < natives.keep())
                .unwrap_or(&[]);
            let to = out.get_mut(count..).unwrap_or(&mut []);
            let Some(read) = self.frames(memory, natives, bounds, index, before, to)? else {
                return Ok(None);
            };
            count += read;
        }
        Ok(Some(count))
    }

    /// Reads what runs in a native frame, outermost first. `before`: what ran there, if the native frame is as it was. Returns
    /// the number; `None` if there is no room.
    fn frames<M: Memory>(
        &self,
        memory: &M,
        natives: &impl Natives,
        bounds: Bounds,
        index: usize,
        before: &[Link],
        out: &mut [Link],
    ) -> Walked {
        let address = natives.pc(index);
        let place = Link {
            frame: natives.slot(index),
            after: index as u32 + 1,
            ..Link::default()
        };
        if let Some(first) = before.first().filter(|link| link.record != 0) {
            let number = half(memory, first.record + self.layout.number);
            if number == Some(first.extra) {
                let to = out.get_mut(..before.len());
                return Ok(to.map(|to| {
                    to.copy_from_slice(before);
                    before.len()
                }));
            }
        }
        if self
            .is_interpreter(memory, address - 1)
            .ok_or(Refusal::Frame)?
        {
            // The frame's own rbp is below the return address out of it.
            let Some(outer) = index.checked_sub(1) else {
                return Ok(Some(0));
            };
            let base = natives.slot(outer).wrapping_sub(8);
            let link = self.interpreted(memory, bounds, base)?;
            return Ok(out.first_mut().map(|to| {
                *to = with(link, place);
                1
            }));
        }
        let Some(piece) = self
            .piece(memory, address - 1)
            .filter(|piece| piece.is_method)
        else {
            return Ok(Some(0));
        };
        let number = half(memory, piece.at + self.layout.number).ok_or(Refusal::Code)?;
        let place = Link {
            record: piece.at,
            extra: number,
            ..place
        };
        let sp = place.frame + 8;
        let hi = (sp + piece.frame_bytes()).min(bounds.hi);
        let own = Bounds { sp, hi };
        self.compiled(memory, (piece.at, address), own, place, out)
    }

    fn interpreted<M: Memory>(
        &self,
        memory: &M,
        bounds: Bounds,
        base: u64,
    ) -> Result<Link, Refusal> {
        if !bounds.holds(base.wrapping_sub(BYTECODE)) || !bounds.holds(base) {
            return Err(Refusal::Record);
        }
        let word = |at: u64| memory.word(at).ok_or(Refusal::Frame);
        let (method, bytecode) = (word(base - METHOD)?, word(base - BYTECODE)?);
        let fixed = memory
            .word(method.wrapping_add(self.layout.fixed))
            .ok_or(Refusal::Code)?;
        // A native method has none.
        let unit = match bytecode {
            0 => 0,
            at => at
                .wrapping_sub(fixed)
                .wrapping_sub(self.layout.fixed_bytes)
                .wrapping_add(1),
        };
        let unit = u32::try_from(unit).map_err(|_| Refusal::Instruction)?;
        self.link(memory, method, unit)
    }

    fn compiled<M: Memory>(
        &self,
        memory: &M,
        (code, address): (u64, u64),
        own: Bounds,
        place: Link,
        out: &mut [Link],
    ) -> Walked {
        let (mut count, mut has_room, mut wrong) = (0, true, None);
        let mut take = |(method, unit): (u64, u32)| {
            let link = self.link(memory, method, unit);
            match (out.get_mut(count), link) {
                (_, Err(why)) => wrong = Some(why),
                (None, _) => has_room = false,
                (Some(to), Ok(link)) => {
                    *to = with(link, place);
                    count += 1;
                }
            }
            has_room && wrong.is_none()
        };
        let read = self.scopes(memory, code, address, own, &mut take);
        if let Some(why) = wrong.or(read.is_none().then_some(Refusal::Tables)) {
            return Err(why);
        }
        out.get_mut(..count).unwrap_or(&mut []).reverse();
        Ok(has_room.then_some(count))
    }
}

fn with(link: Link, place: Link) -> Link {
    Link {
        code: link.code,
        table: link.table,
        name: link.name,
        unit: link.unit,
        ..place
    }
}
