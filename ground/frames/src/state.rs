//! The frames of a thread's last capture, and what of a stack with both kinds of frames is kept.
//!
//! ```text
//!   native    [0] [1] [2] [3]           keep = 3
//!   user          └ a b    └ c          a is as it was, b is not: natives up to b's place, and a, are kept
//!   merged    [0] [1] a │ b [2] [3] c
//! ```
//!
//! S1  `lists[which][..len]` are the frames that the ring has, outermost first; places rise inwards.
//! S2  A slot of `known` holds the code that was copied to it last.
//! S3  What is remembered of Ruby's control frames, and of calls that are counted, is of the last capture, or is not used.
//! S4  Of Java, native frames of generated code are not in the ring where the machine's frames were read: `hidden` are the
//!     bounds of their return addresses when the ring's stack was written, or zeros.
//!
//! Not here: the words of the ring (the recorder).

use crate::chain::{Bounds, Link, walk};
use crate::code::Code;
use crate::count::{self, Calls};
use crate::java::Java;
use crate::memory::{Asked, Memory, Plain};
use crate::natives::Natives;
use crate::php::Php;
use crate::quick::{self, Tail};
use crate::reader::Reader;
use crate::ruby::Ruby;
use crate::ruby_quick::Controls;
use crate::runtime::{Refusal, Runtime};
use crate::{CODE_SLOTS, MAX_CHAIN};

/// What of the merged stack is kept, and how many frames it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Native frames that are kept.
    pub natives: usize,
    /// User frames that are kept.
    pub users: usize,
    /// All user frames.
    pub all_users: usize,
}

impl Plan {
    /// Keeps native frames of a stack that had no others, and has none.
    fn native(natives: usize) -> Plan {
        Plan {
            natives,
            users: 0,
            all_users: 0,
        }
    }
}

/// A user frame of the newest capture.
#[derive(Clone, Copy, Debug)]
pub struct User {
    /// The slot of its code.
    pub slot: usize,
    /// One more than the instruction, in code units.
    pub unit: u32,
    /// Whether the slot held another code until now: it has to be copied.
    pub is_new: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Known {
    code: u64,
    table: u64,
    name: u64,
    first_line: u32,
    is_there: u32,
}

/// How surely a chain can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trust {
    /// Whether the layout was proved.
    pub proved: bool,
    /// Whether no thread has captured a stack since this one did, and every acquisition has a capture.
    pub is_next: bool,
}

impl Known {
    /// Returns whether it is the code of a frame.
    #[inline(always)]
    fn is_of(&self, link: &Link) -> bool {
        self.is_there != 0
            && self.code == link.code
            && self.table == link.table
            && self.name == link.name
            && self.first_line == link.first_line
    }
}

/// What is remembered of a thread; about 600 KB of address space, touched as deep as chains go (frames.P6).
#[repr(C)]
pub struct State {
    which: usize,
    len: usize,
    tail: Tail,
    /// Whether a slot of `known` may hold a code.
    has_codes: bool,
    /// Whether `controls` or `calls`, of those languages that have them, are of the last capture (S3).
    is_followed: bool,
    /// The bounds of return addresses that are not in the ring (S4).
    hidden: [u64; 2],
    lists: [[Link; MAX_CHAIN]; 2],
    known: [Known; CODE_SLOTS],
    controls: Controls,
    calls: Calls,
}

impl State {
    /// Returns whether the ring's stack has user frames.
    #[inline(always)]
    pub fn has_users(&self) -> bool {
        self.len != 0 || self.hidden[1] != 0
    }

    /// Returns whether a native frame is not in the ring (S4).
    #[inline(always)]
    pub fn hides(&self, address: u64) -> bool {
        let [low, high] = self.hidden;
        low < address && address <= high
    }

    /// Returns how many of the outermost native frames are not in the ring (S4).
    #[inline(always)]
    pub fn hidden_among(&self, natives: &impl Natives, count: usize) -> usize {
        match self.hidden[1] {
            0 => 0,
            _ => (0..count)
                .filter(|index| self.hides(natives.pc(*index)))
                .count(),
        }
    }

    /// Forgets the stack and the codes: the ring is another one. Touches nothing where there was no chain.
    pub fn forget(&mut self) {
        (self.len, self.is_followed) = (0, false);
        self.hidden = [0; 2];
        if self.has_codes {
            self.known.iter_mut().for_each(|known| known.is_there = 0);
            self.has_codes = false;
        }
    }

    /// Reads the chain, and makes it the remembered one. Returns the plan, and whether there is a chain that was not read.
    ///
    /// # Errors
    /// If the chain contradicts the layout. Then the remembered chain is as before.
    ///
    /// # Safety
    /// `reader` is this process's, [`Reader::find`] found it; `sp` to `hi` is the running thread's stack, and
    /// `natives` are its frames.
    pub unsafe fn read(
        &mut self,
        reader: &Reader,
        trust: Trust,
        (sp, hi): (u64, u64),
        natives: &impl Natives,
    ) -> Result<(Plan, bool), Refusal> {
        let bounds = Bounds { sp, hi };
        let proved = trust.proved;
        match reader {
            Reader::Python(runtime) => match runtime.thread_state() {
                0 => Ok((self.read_nothing(natives), false)),
                thread => self.read_of(runtime, thread, proved, bounds, natives),
            },
            Reader::Ruby(ruby) => match ruby.context() {
                0 => Ok((self.read_nothing(natives), false)),
                context => {
                    let chain = (ruby, context, bounds);
                    match proved {
                        true => self.read_ruby(&Plain, chain, trust.is_next, natives),
                        false => self.read_ruby(&Asked, chain, false, natives),
                    }
                }
            },
            Reader::Php(php) => match proved {
                true => self.read_php(&Plain, php, true, natives),
                false => self.read_php(&Asked, php, false, natives),
            },
            Reader::Java(java) => match proved {
                true => self.read_java(&Plain, java, bounds, natives),
                false => self.read_java(&Asked, java, bounds, natives),
            },
        }
    }

    /// Does what `read` does, for Java.
    fn read_java<M: Memory>(
        &mut self,
        memory: &M,
        java: &Java,
        bounds: Bounds,
        natives: &impl Natives,
    ) -> Result<(Plan, bool), Refusal> {
        let (before, after) = self.lists.split_at_mut(1);
        let (old, new) = match self.which & 1 {
            0 => (&before[0], &mut after[0]),
            _ => (&after[0], &mut before[0]),
        };
        let old = old.get(..self.len).unwrap_or(&[]);
        let (low, high) = java.bounds(memory).ok_or(Refusal::Frame)?;
        let count = java.walk(memory, natives, bounds, old, new)?;
        let plan = self.turn(count.unwrap_or(0), natives);
        let hidden = match count {
            Some(_) => [low, high],
            None => [0; 2],
        };
        Ok((self.hide(hidden, plan), count.is_none()))
    }

    /// Hides other native frames than before, in which case nothing is kept (S4).
    #[inline(always)]
    fn hide(&mut self, hidden: [u64; 2], plan: Plan) -> Plan {
        if self.hidden == hidden {
            return plan;
        }
        self.hidden = hidden;
        Plan {
            natives: 0,
            users: 0,
            ..plan
        }
    }

    /// Does what `read` does, for the executor's chain. `proved`: see [`Trust`].
    #[inline(always)]
    fn read_php(
        &mut self,
        memory: &impl Memory,
        php: &Php,
        proved: bool,
        natives: &impl Natives,
    ) -> Result<(Plan, bool), Refusal> {
        let calls = self.calls.find(natives, php.run, self.is_followed);
        self.is_followed = calls.is_some();
        if self.len == 0 && calls.is_some_and(<[u32]>::is_empty) {
            return Ok((Plan::native(natives.keep()), false));
        }
        let (list, other) = halves(&mut self.lists, self.which);
        if proved
            && let (Some(calls), Some(known)) = (calls, list.get(..self.len))
            && let Some((same, count)) = php.read_quick(memory, known, (natives, calls), other)
            && let Some(later) = other.get_mut(..count)
            && let Some(plan) = settle(list, later, &mut self.len, same, natives)
        {
            return Ok((plan, false));
        }
        let count = php.walk(memory, natives, calls, other)?;
        Ok(self.take(count, natives))
    }

    /// Does what `read` does, by a walk that gives all frames, innermost first.
    #[inline(always)]
    fn read_whole(
        &mut self,
        natives: &impl Natives,
        walk: impl FnOnce(&mut [Link; MAX_CHAIN]) -> Result<Option<usize>, Refusal>,
    ) -> Result<(Plan, bool), Refusal> {
        let to = &mut self.lists[1 - (self.which & 1)];
        let count = walk(to)?;
        Ok(self.take(count, natives))
    }

    /// Makes the frames that a walk gave, innermost first, the remembered ones. Returns what `read` does.
    #[inline(always)]
    fn take(&mut self, count: Option<usize>, natives: &impl Natives) -> (Plan, bool) {
        let to = &mut self.lists[1 - (self.which & 1)];
        let links = to.get_mut(..count.unwrap_or(0)).unwrap_or(&mut []);
        links.reverse();
        place(links, natives);
        (self.turn(count.unwrap_or(0), natives), count.is_none())
    }

    /// Does what `read` does, for the chain of a thread's state.
    #[inline(always)]
    fn read_of(
        &mut self,
        runtime: &Runtime,
        thread: u64,
        proved: bool,
        bounds: Bounds,
        natives: &impl Natives,
    ) -> Result<(Plan, bool), Refusal> {
        if proved && let Some(plan) = self.read_quick(runtime, thread, bounds, natives) {
            return Ok((plan, false));
        }
        let to = &mut self.lists[1 - (self.which & 1)];
        let mut count = match proved {
            true => walk(&Plain, runtime, thread, bounds, to),
            false => walk(&Asked, runtime, thread, bounds, to),
        }?;
        let links = to.get_mut(..count.unwrap_or(0)).unwrap_or(&mut []);
        if let Some(run) = runtime.counted {
            let calls = self.calls.find(natives, run, self.is_followed);
            self.is_followed = calls.is_some();
            let calls = calls.unwrap_or(&[]);
            if !count::pair(links, links.len() as u64, natives, calls) {
                count = None;
            }
        }
        let links = to.get_mut(..count.unwrap_or(0)).unwrap_or(&mut []);
        links.reverse();
        place(links, natives);
        if let Some(outermost) = links.first() {
            self.tail = quick::tail(runtime, outermost);
        }
        let plan = self.turn(count.unwrap_or(0), natives);
        Ok((plan, count.is_none()))
    }

    /// Does what `read` does, if most of the chain is as it was.
    #[inline(always)]
    fn read_quick(
        &mut self,
        runtime: &Runtime,
        thread: u64,
        bounds: Bounds,
        natives: &impl Natives,
    ) -> Option<Plan> {
        let (list, scratch) = halves(&mut self.lists, self.which);
        let remembered = list.get(..self.len)?;
        let walked = quick::walk(runtime, thread, bounds, (remembered, self.tail), scratch)?;
        let total = walked.keep + walked.fresh;
        let keep = natives.keep();
        // A frame whose eval loop is not among the kept native frames has no place yet.
        let verified = remembered.get(..walked.keep)?;
        let same = verified.partition_point(|link| link.after as usize <= keep);
        let gone = after(remembered, same);
        let to = list.get_mut(walked.keep..total)?;
        let from = scratch.get(..walked.fresh)?;
        to.iter_mut()
            .zip(from.iter().rev())
            .for_each(|(to, link)| *to = *link);
        place(list.get_mut(same..total)?, natives);
        self.len = total;
        Some(kept(list.get(..total)?, same, gone, keep))
    }

    /// Does what `read` does, for the control frames of an execution context. `is_next`: see [`Trust`].
    #[inline(always)]
    fn read_ruby<M: Memory>(
        &mut self,
        memory: &M,
        chain: (&Ruby, u64, Bounds),
        is_next: bool,
        natives: &impl Natives,
    ) -> Result<(Plan, bool), Refusal> {
        let is_next = is_next && self.is_followed;
        self.is_followed = false;
        if is_next && let Some(plan) = self.read_ruby_quick(memory, chain, natives) {
            self.is_followed = true;
            return Ok((plan, false));
        }
        let (ruby, context, bounds) = chain;
        let read = self.read_whole(natives, |out| ruby.walk(memory, context, bounds, out))?;
        let newest = self.lists[self.which & 1].get(..self.len);
        let newest = newest.and_then(|list| list.last());
        self.is_followed = self.controls.remember(memory, context, newest);
        Ok(read)
    }

    /// Does what `read` does, if most of the control frames are as they were.
    #[inline(always)]
    fn read_ruby_quick<M: Memory>(
        &mut self,
        memory: &M,
        chain: (&Ruby, u64, Bounds),
        natives: &impl Natives,
    ) -> Option<Plan> {
        let (list, later) = halves(&mut self.lists, self.which);
        let controls = &mut self.controls;
        let remembered = list.get(..self.len)?;
        let found = controls.read(memory, chain, remembered, natives, later)?;
        let count = controls.pair(found, later.get_mut(..found.later)?);
        let later = later.get_mut(..count)?;
        settle(list, later, &mut self.len, found.same, natives)
    }

    /// Makes no chain at all the remembered one.
    pub fn read_nothing(&mut self, natives: &impl Natives) -> Plan {
        self.is_followed = false;
        let plan = self.turn(0, natives);
        self.hide([0; 2], plan)
    }

    /// Makes the other list, of `len` frames, the remembered one.
    fn turn(&mut self, len: usize, natives: &impl Natives) -> Plan {
        let (before, after) = self.lists.split_at(1);
        let (old, new) = match self.which & 1 {
            0 => (&before[0], &after[0]),
            _ => (&after[0], &before[0]),
        };
        let old = old.get(..self.len).unwrap_or(&[]);
        let new = new.get(..len).unwrap_or(&[]);
        let plan = plan(old, new, natives.keep());
        self.which = 1 - (self.which & 1);
        self.len = len;
        plan
    }

    /// Returns whether there is such a user frame, and at most `after` native frames lie further out.
    #[inline(always)]
    pub fn is_after(&self, index: usize, after: usize) -> bool {
        let list = self.lists[self.which & 1].get(..self.len);
        list.and_then(|list| list.get(index))
            .is_some_and(|link| link.after as usize <= after)
    }

    /// Puts the user frames from one on, outermost first, into `to`: the native frames further out, slot, unit. Returns how many
    /// they are; `None` if there is no room for all, or a code has to be copied.
    #[inline(always)]
    pub fn known_users(&self, from: usize, to: &mut [(u32, u32, u32)]) -> Option<usize> {
        let list = self.lists[self.which & 1].get(from..self.len)?;
        for (to, link) in to.get_mut(..list.len())?.iter_mut().zip(list) {
            let slot = slot_of(link.code);
            if !self.known.get(slot)?.is_of(link) {
                return None;
            }
            *to = (link.after, slot as u32, link.unit);
        }
        Some(list.len())
    }

    /// Returns a user frame of the remembered chain, by its place from the outermost. Its code then has the slot.
    pub fn user(&mut self, index: usize) -> Option<User> {
        let link = *self.lists[self.which & 1].get(..self.len)?.get(index)?;
        let slot = slot_of(link.code);
        let known = &mut self.known[slot];
        let is_it = known.is_of(&link);
        if !is_it {
            self.has_codes = true;
            *known = Known {
                code: link.code,
                table: link.table,
                name: link.name,
                first_line: link.first_line,
                is_there: 1,
            };
        }
        Some(User {
            slot,
            unit: link.unit,
            is_new: !is_it,
        })
    }

    /// Returns the code of a user frame of the newest capture.
    pub fn code(&self, reader: &Reader, index: usize) -> Option<Code> {
        let link = self.lists[self.which & 1].get(..self.len)?.get(index)?;
        Some(match reader {
            Reader::Python(runtime) => Code::read(runtime, link.code, link.first_line),
            Reader::Ruby(ruby) => ruby.code(link),
            Reader::Php(php) => php.code(link),
            Reader::Java(java) => java.code(link),
        })
    }

    /// Forgets a code that could not be copied.
    pub fn forget_code(&mut self, slot: usize) {
        if let Some(known) = self.known.get_mut(slot) {
            known.is_there = 0;
        }
    }
}

/// Puts frames behind the `same` outermost ones of the remembered list, which had `len`, and gives them their places.
#[inline(always)]
fn settle(
    list: &mut [Link; MAX_CHAIN],
    later: &mut [Link],
    len: &mut usize,
    same: usize,
    natives: &impl Natives,
) -> Option<Plan> {
    let remembered = list.get(..*len)?;
    place(later, natives);
    // An instruction further on may be of the same line.
    let known = remembered.get(same..)?.iter();
    let again = known.zip(&*later).take_while(|(a, b)| a == b).count();
    let (total, same) = (same + later.len(), same + again);
    let gone = after(remembered, same);
    let to = list.get_mut(same..total)?;
    to.copy_from_slice(later.get(again..)?);
    *len = total;
    Some(kept(list.get(..total)?, same, gone, natives.keep()))
}

/// Returns the remembered list, and the other one.
#[inline(always)]
fn halves(
    lists: &mut [[Link; MAX_CHAIN]; 2],
    which: usize,
) -> (&mut [Link; MAX_CHAIN], &mut [Link; MAX_CHAIN]) {
    let [first, second] = lists;
    match which & 1 {
        0 => (first, second),
        _ => (second, first),
    }
}

/// Returns the place of a frame; beyond all if there is none.
#[inline(always)]
fn after(list: &[Link], index: usize) -> usize {
    list.get(index)
        .map_or(usize::MAX, |link| link.after as usize)
}

/// Returns what is kept of a chain whose `same` outermost frames are as they were, places included; behind those was one at
/// `gone`.
#[inline(always)]
fn kept(list: &[Link], same: usize, gone: usize, keep: usize) -> Plan {
    let next = after(list, same);
    // What was there before and is not verified may lie further out than what is there now; both limit what is kept.
    let natives = keep.min(gone).min(next);
    let kept = list.get(..same).unwrap_or(&[]);
    let all = kept
        .last()
        .is_some_and(|link| link.after as usize <= natives);
    Plan {
        natives,
        users: match all {
            true => same,
            false => kept.partition_point(|link| link.after as usize <= natives),
        },
        all_users: list.len(),
    }
}

/// Returns the slot of a code, by its address.
fn slot_of(code: u64) -> usize {
    ((code >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % CODE_SLOTS
}

/// Finds the places of frames, outermost first, by their records. A record lies in the frame of the eval loop: below the
/// return address that its caller's frame ends with, and above the one by which what it calls returns.
fn place(links: &mut [Link], natives: &impl Natives) {
    let total = natives.total();
    let (mut last, mut after) = (0, 0);
    for link in links {
        if link.record != last {
            last = link.record;
            let (mut low, mut high) = (0, total);
            while low < high {
                let middle = (low + high) / 2;
                match natives.slot(middle) >= last {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            // Further out than frame 0 of a cut stack: its eval loop is missing.
            let is_beyond = low == 0 && !natives.is_whole();
            after = match is_beyond {
                true => 0,
                false => (low + 1).min(total) as u32,
            };
        }
        link.after = after;
    }
}

fn plan(old: &[Link], new: &[Link], keep: usize) -> Plan {
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let natives = keep.min(after(old, same)).min(after(new, same));
    let common = new.get(..same).unwrap_or(&[]);
    Plan {
        natives,
        users: common.partition_point(|link| link.after as usize <= natives),
        all_users: new.len(),
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "state_php_tests.rs"]
mod php_tests;

#[cfg(test)]
#[path = "state_ruby_tests.rs"]
mod ruby_tests;
