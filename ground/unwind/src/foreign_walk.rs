//! Walks of a stack that is not the thread's own: a signal stack, a fibre.
//!
//! ```text
//!   sp, through the window ──► … ──► a signal frame that leads to the own stack ──► direct loads
//! ```
//!
//! X1  Nothing is kept, before or after: there may be another stack at the next capture.
//! Not here: reading it (foreign.rs), the own stack (capture.rs).

#[cfg(target_arch = "aarch64")]
use crate::arch::UC_LR;
use crate::arch::code_at;
use crate::find::{Finder, LOWEST_CODE};
#[cfg(target_arch = "aarch64")]
use crate::rule::kind;
use crate::rule::{Rule, RuleCache};
use crate::state::{CUT_FRAMES, Capture, Frame, Registers, StackBounds, StackState};
use crate::step::{End, Link, Memory, Own, rule_slow, shape, step};

/// Whether code outside of modules is looked at: on aarch64 this walk is the one of the own stack, too (whole.rs).
const LOOKS_OUTSIDE: bool = cfg!(target_arch = "aarch64");

/// Captures a stack that is not the thread's own: every word is read through the window, and nothing is
/// kept; once a signal frame leads to the own stack, words are loaded directly from there.
#[cold]
#[inline(never)]
pub(crate) fn capture_foreign<'a>(
    rules: &RuleCache,
    find: &Finder,
    state: &'a mut StackState,
    bounds: StackBounds,
    start: Registers,
) -> Capture<'a> {
    state.forget();
    state.window.start();
    let mut at = Foreign {
        sp: start.sp,
        bp: start.bp,
        own: None,
        frames: 0,
        #[cfg(target_arch = "aarch64")]
        lr: None,
    };
    let end = at.run(rules, find, state, bounds);
    state.end = end;
    let total = at.frames;
    state.stats.fresh_frames += total as u64;
    state.store_noted(0, total, 0);
    state.forget();
    state.report(0, total, true)
}

pub(crate) struct Foreign {
    pub(crate) sp: u64,
    pub(crate) bp: u64,
    pub(crate) own: Option<Own>,
    pub(crate) frames: usize,
    /// Where interrupted code keeps its return address, as long as it has called nothing.
    #[cfg(target_arch = "aarch64")]
    pub(crate) lr: Option<Link>,
}

impl Foreign {
    pub(crate) fn run(
        &mut self,
        rules: &RuleCache,
        find: &Finder,
        state: &mut StackState,
        bounds: StackBounds,
    ) -> End {
        let first = match &mut self.own {
            Some(own) => own.load(self.sp),
            None => state.window.load(self.sp),
        };
        let Some(ra) = first else {
            return End::Unreadable;
        };
        let mut link = Link::bare(self.sp, code_at(ra));
        let mut exact = 0;
        let mut guessed = false;
        self.sp = self.sp.wrapping_add(8);
        loop {
            let Some(to) = state.fresh.get_mut(self.frames) else {
                self.frames = CUT_FRAMES;
                return End::TooDeep;
            };
            *to = Frame::left(
                link,
                self.bp,
                exact as u32 * (shape::SIGNAL | shape::UNLISTED),
                Rule::NONE,
            );
            self.frames += 1;
            let pc = link.ra - (1 - exact);
            let mut rule = rules.get(pc);
            if rule == Rule::NONE {
                state.stats.rules_made += 1;
                rule = rule_slow(rules, find, pc, LOOKS_OUTSIDE && !guessed);
            }
            guessed = rule == Rule::NO_INFO;
            #[cfg(target_arch = "aarch64")]
            if rule.kind() == kind::LEAF {
                // Only what was interrupted may have its return address in its register.
                let Some(left) = self.lr.take().filter(|_| exact == 1) else {
                    return End::BadFrame;
                };
                (link, self.sp, exact) = (left, self.sp.wrapping_add(rule.a()), 0);
                if link.ra < LOWEST_CODE {
                    return End::NoInfo;
                }
                continue;
            }
            #[cfg(target_arch = "aarch64")]
            let handler_sp = self.sp;
            let stepped = match &mut self.own {
                Some(own) => step(own, find, rule, pc, self.sp, self.bp),
                None => {
                    let mut memory = &mut state.window;
                    step(&mut memory, find, rule, pc, self.sp, self.bp).map_err(|e| {
                        if e == End::BadFrame {
                            End::Unreadable
                        } else {
                            e
                        }
                    })
                }
            };
            let stepped = match stepped {
                Ok(stepped) => stepped,
                Err(end) => return end,
            };
            exact = u64::from(stepped.shape == shape::SIGNAL);
            #[cfg(target_arch = "aarch64")]
            if exact == 1 {
                let slot = handler_sp.wrapping_add(UC_LR);
                let word = match &mut self.own {
                    Some(own) => own.load(slot),
                    None => state.window.load(slot),
                };
                self.lr = word.map(|word| Link::bare(slot, code_at(word)));
            }
            if stepped.link.ra < LOWEST_CODE && LOOKS_OUTSIDE {
                return if stepped.link.ra == 0 {
                    End::Complete
                } else {
                    End::NoInfo
                };
            }
            // step.S2: only a signal frame may change the stack.
            if exact == 0 && stepped.sp <= self.sp {
                return End::BadFrame;
            }
            (link, self.sp, self.bp) = (stepped.link, stepped.sp, stepped.bp);
            if exact == 1 && self.own.is_none() && bounds.lo <= self.sp && self.sp < bounds.hi {
                self.own = Some(Own {
                    sp: self.sp,
                    hi: bounds.hi,
                });
            }
        }
    }
}
