//! The short way to PHP's frames: new ones are walked until one is met that is remembered, and the frames outside of that are
//! compared where they lie.
//!
//! ```text
//!   remembered  [0] [1] … [k] │ gone         walked from the innermost until [k]; then [k-1] … [0] are compared
//! ```
//!
//! Z1  The result is what the whole walk (php.rs) would give, or nothing: then that is taken.
//! Z2  Only proved layouts are read so. All that tells a code from another is compared of each frame: PHP makes codes without a
//!     call of malloc's.
//! Z3  A call among the kept native frames runs the part that it ran.
//!
//! Not here: what is kept of the merged stack (state.rs).

use crate::MAX_CHAIN;
use crate::chain::Link;
use crate::memory::Memory;
use crate::natives::Natives;
use crate::php::{FIRST_OF_A_CALL, Php, WRITTEN_IN_C, at};

/// The most new frames, and the most frames of functions that are written in C between two others.
const MOST_FRESH: usize = 32;
/// The remembered frames that are looked at for each new one.
const NEAR: usize = 8;

impl Php {
    /// Reads what may be new of the chain into `later`, outermost first; `list` is the remembered one, and `calls` are the places
    /// of the executor's native frames. Returns how many of the remembered are as they were, places included, and how many follow.
    #[inline(always)]
    pub(crate) fn read_quick<M: Memory>(
        &self,
        memory: &M,
        list: &[Link],
        (natives, calls): (&impl Natives, &[u32]),
        later: &mut [Link; MAX_CHAIN],
    ) -> Option<(usize, usize)> {
        let mut near = list.len();
        let mut fresh = 0;
        let mut frame = memory.word(self.globals.start + at::FRAME)?;
        let met = loop {
            if let Some(mut link) = self.link(memory, frame).ok()? {
                let flags = memory.word(frame + at::FLAGS)?;
                link.extra = u32::from(flags & FIRST_OF_A_CALL != 0);
                let from = near.saturating_sub(NEAR);
                let known = list.get(from..near)?;
                if let Some(index) = known.iter().rposition(|known| known.frame == frame) {
                    near = from + index;
                    if is_same(&link, known.get(index)?) {
                        break near;
                    }
                }
                if fresh == MOST_FRESH {
                    return None;
                }
                *later.get_mut(fresh)? = link;
                fresh += 1;
            }
            frame = memory.word(frame + at::CALLER)?;
        };
        self.holds(memory, list.get(..=met)?)?;
        let kept = list.get(..=met)?;
        let keep = natives.keep();
        let is_inside = |link: &&Link| link.after as usize > keep;
        let inside = kept.iter().rev().take_while(is_inside).count();
        let (same, moved) = kept.split_at_checked(kept.len() - inside)?;
        later.get_mut(..fresh)?.reverse();
        later.copy_within(..fresh, inside);
        later.get_mut(..inside)?.copy_from_slice(moved);
        let later = later.get_mut(..inside + fresh)?;
        let begun = |links: &[Link]| links.iter().filter(|link| link.extra != 0).count();
        let mut part = begun(same);
        // Parts and calls that are not as many: the whole way says what that means (count.N1).
        if part + begun(later) != calls.len() {
            return None;
        }
        if same.is_empty() && later.first()?.extra == 0 {
            return None;
        }
        let mut record = same.last().map_or(0, |link| link.record);
        for link in later.iter_mut() {
            if link.extra != 0 {
                record = natives.slot(*calls.get(part)? as usize) + 8;
                part += 1;
            }
            link.record = record;
        }
        Some((same.len(), later.len()))
    }

    /// Compares the frames outside of the last of the list, which was just read, and looks for the end of the chain there.
    #[inline(always)]
    fn holds<M: Memory>(&self, memory: &M, list: &[Link]) -> Option<()> {
        let (newest, outer) = list.split_last()?;
        let mut frame = self.caller(memory, newest.frame)?;
        for known in outer.iter().rev() {
            if frame != known.frame {
                return None;
            }
            let mut link = self.link(memory, frame).ok()??;
            link.extra = u32::from(memory.word(frame + at::FLAGS)? & FIRST_OF_A_CALL != 0);
            if !is_same(&link, known) {
                return None;
            }
            frame = self.caller(memory, frame)?;
        }
        (frame == 0).then_some(())
    }

    /// Returns the next frame further out that runs code of PHP; 0 if there is none.
    #[inline(always)]
    fn caller<M: Memory>(&self, memory: &M, frame: u64) -> Option<u64> {
        let mut frame = memory.word(frame + at::CALLER)?;
        for _ in 0..MOST_FRESH {
            if frame == 0 {
                return Some(0);
            }
            let function = memory.word(frame + at::FUNCTION)?;
            if function != 0 && memory.word(function + at::KIND)? & WRITTEN_IN_C == 0 {
                return Some(frame);
            }
            frame = memory.word(frame + at::CALLER)?;
        }
        None
    }
}

/// Returns whether a frame is as it is remembered; its call is compared elsewhere.
#[inline(always)]
fn is_same(link: &Link, known: &Link) -> bool {
    let of = |link: &Link| {
        (
            link.frame,
            link.code,
            link.table,
            link.name,
            link.unit,
            link.first_line,
            link.extra,
        )
    };
    of(link) == of(known)
}
