//! The short way to a chain that is mostly as it was: its new frames are walked until one is met that is remembered, and the
//! frames outside of that are compared where they lie.
//!
//! ```text
//!   remembered  [0] [1] … [k] │ gone         walked from the innermost until [k]; then [k-1] … [0] are compared
//! ```
//!
//! Q1  The result is what the whole walk (chain.rs) would give, or nothing: then that is taken.
//! Q2  Only proved layouts are read so.
//!
//! Not here: what is kept of the merged stack (state.rs).

use crate::MAX_CHAIN;
use crate::chain::{Bounds, Link, byte, link};
use crate::layout::Border;
use crate::memory::{Memory, Plain};
use crate::runtime::Runtime;

/// The most new frames.
const MOST_FRESH: usize = 32;
/// The remembered frames that are looked at for each new one.
const NEAR: usize = 8;

/// The words beyond the outermost remembered frame, which say that the chain ends there.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tail {
    frame: u64,
    record: u64,
}

/// A chain of which `keep` outermost frames are the remembered ones, and `fresh` further ones were walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Quick {
    pub keep: usize,
    pub fresh: usize,
}

/// What a walk compares with.
#[derive(Clone, Copy)]
struct Chain<'a> {
    runtime: &'a Runtime,
    list: &'a [Link],
    tail: Tail,
    bounds: Bounds,
}

fn word(at: u64) -> Option<u64> {
    Plain.word(at)
}

/// Returns the words beyond the outermost frame of a chain that was walked whole.
pub(crate) fn tail(runtime: &Runtime, outermost: &Link) -> Tail {
    let layout = runtime.layout;
    let read = |at: u64| word(at).unwrap_or(0);
    match layout.border {
        Border::Count | Border::Pair { .. } => Tail::default(),
        Border::Cframe { previous, .. } => Tail {
            frame: read(outermost.frame + layout.previous),
            record: read(outermost.record + previous),
        },
        Border::Shim { .. } => Tail {
            frame: read(outermost.record + layout.previous),
            record: 0,
        },
    }
}

/// Walks the new frames of the thread's chain into `fresh`, innermost first; `list` is the remembered chain.
#[inline(always)]
pub(crate) fn walk(
    runtime: &Runtime,
    thread: u64,
    bounds: Bounds,
    (list, tail): (&[Link], Tail),
    fresh: &mut [Link; MAX_CHAIN],
) -> Option<Quick> {
    let chain = Chain {
        runtime,
        list,
        tail,
        bounds,
    };
    match runtime.layout.border {
        // Walking such a chain whole costs what comparing it does.
        Border::Count | Border::Pair { .. } => None,
        Border::Cframe { frame, previous } => by_cframes(chain, thread, fresh, [frame, previous]),
        Border::Shim { owner } => by_shims(chain, thread, fresh, owner),
    }
}

impl Chain<'_> {
    /// Returns the place of a frame among the remembered ones further out than `near`.
    #[inline(always)]
    fn find(&self, frame: u64, near: usize) -> Option<usize> {
        let from = near.saturating_sub(NEAR);
        let list = self.list.get(from..near)?;
        let at = list.iter().rposition(|link| link.frame == frame)?;
        Some(from + at)
    }

    /// Returns whether a frame is as it is remembered; its record is compared elsewhere.
    #[inline(always)]
    fn is_same(&self, link: &Link, known: &Link) -> bool {
        (link.code, link.table, link.name, link.unit, link.first_line)
            == (
                known.code,
                known.table,
                known.name,
                known.unit,
                known.first_line,
            )
    }

    #[inline(always)]
    fn link(&self, frame: u64) -> Option<Link> {
        link(&Plain, self.runtime, frame).ok()?
    }
}

fn by_cframes(
    chain: Chain<'_>,
    thread: u64,
    fresh: &mut [Link; MAX_CHAIN],
    [to_frame, to_previous]: [u64; 2],
) -> Option<Quick> {
    let layout = chain.runtime.layout;
    let mut record = word(thread + layout.current)?;
    if !chain.bounds.holds(record) {
        return None;
    }
    let mut frame = word(record + to_frame)?;
    let mut near = chain.list.len();
    let mut count = 0;
    loop {
        let mut link = chain.link(frame)?;
        if let Some(at) = chain.find(frame, near) {
            near = at;
            let known = chain.list.get(at)?;
            if known.record == record && chain.is_same(&link, known) {
                cframes_hold(chain, at, [to_frame, to_previous])?;
                return Some(Quick {
                    keep: at + 1,
                    fresh: count,
                });
            }
        }
        if count == MOST_FRESH {
            return None;
        }
        link.record = record;
        *fresh.get_mut(count)? = link;
        count += 1;
        let is_last = byte(&Plain, frame + layout.mark).ok()? != 0;
        frame = word(frame + layout.previous)?;
        if is_last {
            let outer = word(record + to_previous)?;
            let is_next = chain.bounds.holds(outer) && outer > record;
            if !is_next || word(outer + to_frame)? != frame {
                return None;
            }
            record = outer;
        }
    }
}

/// Compares the frames outside of the one at `from`, which was just read.
#[inline(always)]
fn cframes_hold(chain: Chain<'_>, from: usize, [to_frame, to_previous]: [u64; 2]) -> Option<()> {
    let layout = chain.runtime.layout;
    let list = chain.list.get(..=from)?;
    for pair in list.windows(2).rev() {
        let [outer, inner] = pair else { return None };
        let is_last = byte(&Plain, inner.frame + layout.mark).ok()? != 0;
        if word(inner.frame + layout.previous)? != outer.frame {
            return None;
        }
        if is_last == (inner.record == outer.record) {
            return None;
        }
        if is_last
            && (word(inner.record + to_previous)? != outer.record
                || word(outer.record + to_frame)? != outer.frame)
        {
            return None;
        }
        if !chain.is_same(&chain.link(outer.frame)?, outer) {
            return None;
        }
    }
    let first = list.first()?;
    let is_last = byte(&Plain, first.frame + layout.mark).ok()? != 0;
    let tail = Tail {
        frame: word(first.frame + layout.previous)?,
        record: word(first.record + to_previous)?,
    };
    (is_last && tail == chain.tail).then_some(())
}

fn by_shims(
    chain: Chain<'_>,
    thread: u64,
    fresh: &mut [Link; MAX_CHAIN],
    owner: u8,
) -> Option<Quick> {
    let layout = chain.runtime.layout;
    let mut frame = word(thread + layout.current)?;
    if let Some(through) = layout.through {
        frame = word(frame + through)?;
    }
    let mut near = chain.list.len();
    let (mut count, mut placed, mut last) = (0, 0, 0);
    for _ in 0..2 * MOST_FRESH {
        if byte(&Plain, frame + layout.mark).ok()? >= owner {
            if !chain.bounds.holds(frame) || frame <= last {
                return None;
            }
            fresh
                .get_mut(placed..count)?
                .iter_mut()
                .for_each(|link| link.record = frame);
            (placed, last) = (count, frame);
            frame = word(frame + layout.previous)?;
            continue;
        }
        let link = chain.link(frame)?;
        if let Some(at) = chain.find(frame, near) {
            near = at;
            let known = chain.list.get(at)?;
            let record = known.record;
            if record > last && chain.bounds.holds(record) && chain.is_same(&link, known) {
                shims_hold(chain, at, owner)?;
                fresh
                    .get_mut(placed..count)?
                    .iter_mut()
                    .for_each(|link| link.record = record);
                return Some(Quick {
                    keep: at + 1,
                    fresh: count,
                });
            }
        }
        if count == MOST_FRESH {
            return None;
        }
        *fresh.get_mut(count)? = link;
        count += 1;
        frame = word(frame + layout.previous)?;
    }
    None
}

/// Does what `cframes_hold` does.
#[inline(always)]
fn shims_hold(chain: Chain<'_>, from: usize, owner: u8) -> Option<()> {
    let layout = chain.runtime.layout;
    let list = chain.list.get(..=from)?;
    let is_shim = |at: u64| Some(byte(&Plain, at + layout.mark).ok()? >= owner);
    for pair in list.windows(2).rev() {
        let [outer, inner] = pair else { return None };
        let mut next = word(inner.frame + layout.previous)?;
        if inner.record != outer.record {
            if next != inner.record || !is_shim(next)? {
                return None;
            }
            next = word(next + layout.previous)?;
        }
        if next != outer.frame || is_shim(next)? {
            return None;
        }
        if !chain.is_same(&chain.link(outer.frame)?, outer) {
            return None;
        }
    }
    let first = list.first()?;
    let shim = word(first.frame + layout.previous)?;
    let is_end = shim == first.record && is_shim(shim)?;
    let tail = Tail {
        frame: word(shim + layout.previous)?,
        record: 0,
    };
    (is_end && tail == chain.tail).then_some(())
}
