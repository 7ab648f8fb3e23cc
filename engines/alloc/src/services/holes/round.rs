//! The purger's rounds: each looks at the spans that have changed since the last one, and at those that it left then.
//!
//! ```text
//!   begin   each heap: its kept runs age, told spans are noted, empty ones go
//!   on      group by group: noted ──► free pages? ──► waits for the next round ──► still as it was? ──► purged
//!   net     what no event told of: some pages' spans are noted, round by round, once all is quiet
//! ```
//!
//! O4  A span that is looked at has its countdown set to 1, so that its next free notes it again (changes.J2). A round
//!     costs what has changed: spans with free pages that were purged, or without any, are not looked at again.
//! O5  A page waits for one round at least: what was freed just now is likely to be wanted again. Of a heap whose slow
//!     paths took spans since the last round, its current spans and as many of each list as it took wait on. What lies free
//!     in the heap of an idle thread has waited already, for two ticks (idle.J1): it goes at the first look, and spans
//!     without a live block go with it, clean.
//! O6  An owner may lose the countdown that the purger set (span.S2), and a free by another thread may come between a
//!     drain and its own bit (free.F2): both need a thread that is stopped between two instructions for as long as two
//!     rounds lie apart. The net finds what they leave, before the purger ends.
//! O7  A part of a round ends with a group: it costs a look at 4,096 spans at most. The purge lock is held meanwhile, and
//!     no bit is in hand when it is given back.
//!
//! Not here: the pause between rounds and their parts (`pace`), the bits (`changes`).

use core::ops::Range;

use skinflint_base::sync::Ordering;
use skinflint_base::sys;
use skinflint_pages::{OWNER_NONE, PAGE, purge::Batch};

use super::super::idle;
use super::{CHUNK, Walked, dirty_pages, hollow_out, new_visit, purge_span, walk_empty};
use crate::heaps::changes::{self, GROUP_PAGES};
use crate::heaps::pool::{heaps, with_pool};
use crate::heaps::{cache, events, hollow, retire};
use crate::mechanism::heap::{Heap, event_of, usage};
use crate::mechanism::lock::{PURGER, Who};
use crate::mechanism::map::map_entry;
use crate::mechanism::range::{at, limit, meta, offset_of};
use crate::mechanism::span::{Span, is_small, state};
use crate::mechanism::{publish, remote};

/// The most spans of a heap that are let alone because others were taken lately.
const SPARED_MAX: u32 = 1_024;

/// Pages that the net notes in a round: 128 MiB.
const NET_PAGES: u32 = 32_768;

/// Where a round stands. The purge lock is held for every call.
pub struct Round {
    /// The identity as which locks are taken: the purger's, or that of a thread that does its work.
    who: Who,
    group: u32,
    /// What it did so far.
    pub done: Walked,
    /// The first page that the net has not reached.
    net: u32,
}

fn groups() -> u32 {
    ((limit() / PAGE) as u32).div_ceil(GROUP_PAGES)
}

impl Round {
    /// Creates a round that has not begun, to be made under this identity.
    pub fn new(who: Who) -> Round {
        Round {
            who,
            group: 0,
            done: Walked::default(),
            net: 0,
        }
    }

    /// Has the rest made under another identity.
    pub fn go_on_as(&mut self, who: Who) {
        self.who = who;
    }

    /// Begins a round.
    pub fn begin(&mut self, batch: &mut Batch) {
        (self.group, self.done) = (0, Walked::default());
        for heap in heaps() {
            head(heap, self.who, batch, &mut self.done);
        }
    }

    /// Goes on until about `work` spans were looked at and pages purged. `true`: the round is done.
    pub fn go_on(&mut self, work: u32, batch: &mut Batch) -> bool {
        let before = self.done;
        loop {
            let spent = self.done.looked - before.looked + self.done.purged - before.purged;
            if spent >= work {
                return false;
            }
            let work = Looking {
                who: self.who,
                only: None,
                batch,
                done: &mut self.done,
            };
            let next = look_at_group(self.group, work);
            let Some(next) = next else {
                return true;
            };
            self.group = next;
        }
    }

    /// Notes the spans of the next pages that the net has not reached. `true`: it has reached all.
    pub fn cast(&mut self) -> bool {
        let end = (limit() / PAGE) as u32;
        let from = self.net.min(end);
        self.net = end.min(from + NET_PAGES);
        note_all(from..self.net);
        self.net == end
    }

    /// The net is to go over all pages once more.
    pub fn draw_in(&mut self) {
        self.net = 0;
    }
}

/// Notes what begins on these pages, if anything does.
fn note_all(pages: Range<u32>) {
    let mut before = 0;
    for page in pages {
        // SAFETY: below the limit.
        let entry = publish::found(unsafe { map_entry(page as usize * PAGE) });
        if entry != 0 && entry != before {
            changes::note_page(page);
        }
        before = entry;
    }
}

/// What is to be done for a heap, whatever its spans are.
fn head(heap: &Heap, who: Who, batch: &mut Batch, done: &mut Walked) {
    if hollow::is_hollow(heap) {
        return;
    }
    done.pending += cache::age(heap, who, false);
    let visit = new_visit(heap);
    // ORDER: statistics.
    let refills = heap.refills.load(Ordering::Relaxed);
    let wanted = refills.wrapping_sub(heap.refills_seen.swap(refills, Ordering::Relaxed));
    heap.wanted.store(wanted, Ordering::Relaxed); // ORDER: own
    if wanted > 0 {
        let now_ns = sys::monotonic_ns();
        heap.wanted_ns.store(now_ns, Ordering::Relaxed); // ORDER: own
        heap.mesh_done.store(0, Ordering::Relaxed); // ORDER: own
    }
    // ORDER: a look; the lock orders.
    if heap.usage.load(Ordering::Relaxed) == usage::THREAD {
        hear(heap, who);
    } else if heap.lock.lock(who) {
        // ORDER: the lock is held.
        if heap.usage.load(Ordering::Relaxed) != usage::THREAD {
            // SAFETY: without a thread the heap is ours for the time (heap.H1).
            unsafe {
                retire::settle(heap);
                events::drain(heap);
                done.pending += retire::cool(heap, false);
            }
        }
        heap.lock.unlock();
    }
    if wanted > 0 {
        spare(heap, who, wanted, visit);
        return;
    }
    for (i, word) in heap.has_empty.iter().enumerate() {
        let mut bits = word.load(Ordering::Relaxed); // ORDER: a look; the lock orders
        while bits != 0 {
            let class = i * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            // SAFETY: it takes the lock itself.
            unsafe { walk_empty(heap, class, who, batch, done) };
        }
    }
    done.pending += u32::from(hollow_out(heap, who, false, batch));
}

/// Notes every span that other threads freed into, and takes it off the notified stack, so that the next such free tells
/// again. The owner, which may be idle, needs no more than that each span is on its list ([`settle`]).
fn hear(heap: &Heap, who: Who) {
    let mut rest = 0;
    // ORDER: a look.
    while (rest != 0 || heap.notified.load(Ordering::Relaxed) != 0) && heap.lock.lock(who) {
        // SAFETY: a span on the stack, or in hand, is not given away (`Heap::give_or_wait`); only tenants' heaps are
        // destroyed with what is on it.
        let span_at = |offset| unsafe { &*at::<Span>(offset) };
        rest = remote::drain_some(&heap.notified, rest, CHUNK, span_at, changes::note);
        heap.lock.unlock();
        if rest == 0 {
            return;
        }
    }
}

/// Marks as many spans of each list as were taken lately: they are the next to be taken (O5).
fn spare(heap: &Heap, who: Who, wanted: u32, visit: u8) {
    if !heap.lock.lock(who) {
        return;
    }
    let mut left = SPARED_MAX;
    for list in &heap.partial {
        // ORDER: the lock is held, throughout.
        let head = list.load(Ordering::Relaxed);
        let mut next = head;
        for _ in 0..wanted.min(left) {
            if next == 0 {
                break;
            }
            left -= 1;
            // SAFETY: a listed span is live (heap.H3).
            let span = unsafe { &*at::<Span>(next) };
            span.visit.store(visit, Ordering::Relaxed); // ORDER: as above
            next = span.next.load(Ordering::Relaxed); // ORDER: as above
            if next == head {
                break;
            }
        }
    }
    heap.lock.unlock();
}

/// Spans to look at together: the pages on which they begin, whether they waited, and what the pages lead to.
struct Found {
    count: usize,
    pages: [u32; CHUNK as usize],
    waited: [bool; CHUNK as usize],
    owners: [u32; CHUNK as usize],
    spans: [u32; CHUNK as usize],
}

impl Found {
    const fn none() -> Found {
        const N: usize = CHUNK as usize;
        Found {
            count: 0,
            pages: [0; N],
            waited: [false; N],
            owners: [OWNER_NONE; N],
            spans: [0; N],
        }
    }

    /// Adds a span, and looks at all if there is no room for more.
    fn add(&mut self, (page, waited): (u32, bool), work: &mut Looking) {
        self.pages[self.count] = page;
        self.waited[self.count] = waited;
        self.count += 1;
        if self.count == self.pages.len() {
            self.look(work);
        }
    }

    /// Looks up what the pages lead to; those of another owner than `of`, if there is one, have none afterwards. While the
    /// pool's lock is held no descriptor is given away, so what an entry leads to is one; while the lock of the owner is
    /// held, too, it stays the owner's.
    fn look_up(&mut self, who: Who, of: Option<u32>) {
        let end = (limit() / PAGE) as u32;
        with_pool(who, |_| {
            for i in 0..self.count {
                let before = core::mem::replace(&mut self.owners[i], OWNER_NONE);
                if self.pages[i] >= end || of.is_some_and(|of| of != before) {
                    self.owners[i] = if of.is_some() { before } else { OWNER_NONE };
                    continue;
                }
                // SAFETY: below the limit.
                let offset = publish::found(unsafe { map_entry(self.pages[i] as usize * PAGE) });
                // SAFETY: entries lead to descriptors, and the pool's lock is held.
                let span = unsafe { &*at::<Span>(offset) };
                // ORDER: written under the pool's lock, or turned to another class, and noted again after that.
                if is_small(span.kind.load(Ordering::Relaxed)) {
                    self.owners[i] = remote::owner(&span.owner);
                    self.spans[i] = offset;
                }
            }
        });
    }

    /// Looks at all of them, heap by heap.
    fn look(&mut self, work: &mut Looking) {
        self.look_up(work.who, None);
        while let Some(owner) = self.owners[..self.count]
            .iter()
            .find(|&&owner| owner != OWNER_NONE)
        {
            let owner = *owner;
            // SAFETY: owners are heaps, which stay (pool.G4).
            let heap = unsafe { &*at::<Heap>(owner.wrapping_sub(meta() as u32)) };
            let wanted = work.only.is_none_or(|only| core::ptr::eq(only, heap));
            if !wanted || !heap.lock.lock(work.who) {
                self.each(owner, |page, _, _| changes::wait_on(page));
                continue;
            }
            self.look_up(work.who, Some(owner));
            let rests = work.who == PURGER && idle::rests(heap);
            let mut gone = Gone::none();
            self.each(owner, |page, waited, span| {
                // It may be another heap's now, which noted it then, or gone.
                if span.page() != page {
                    return;
                }
                work.done.looked += 1;
                // SAFETY: a span of this heap, whose lock is held; the batch is flushed before it is given back.
                unsafe {
                    if rests && is_vacant(span) {
                        work.done.purged += purge_span(span, work.batch);
                        gone.add(span);
                    } else if look(heap, span, waited, rests, work.batch, work.done) {
                        changes::wait_on(page);
                    }
                }
            });
            work.batch.flush();
            // SAFETY: as above; their pages have been given back.
            unsafe { gone.give(heap) };
            heap.lock.unlock();
        }
        self.count = 0;
    }

    /// Calls `work` for what is of an owner, and takes it out.
    fn each(&mut self, owner: u32, mut work: impl FnMut(u32, bool, &Span)) {
        for i in 0..self.count {
            if self.owners[i] == owner {
                self.owners[i] = OWNER_NONE;
                // SAFETY: a descriptor, looked up just now.
                work(self.pages[i], self.waited[i], unsafe {
                    &*at(self.spans[i])
                });
            }
        }
    }
}

/// Spans of a heap without a live block, whose pages are in the batch.
struct Gone {
    count: usize,
    spans: [u32; CHUNK as usize],
}

impl Gone {
    const fn none() -> Gone {
        Gone {
            count: 0,
            spans: [0; CHUNK as usize],
        }
    }

    fn add(&mut self, span: &Span) {
        self.spans[self.count] = offset_of(span);
        self.count += 1;
    }

    /// Gives them to the pool.
    ///
    /// # Safety
    /// The heap's lock has been held since they were added, and the batch was flushed.
    unsafe fn give(&self, heap: &Heap) {
        for &span in &self.spans[..self.count] {
            // SAFETY: as the caller promises; vacant spans have no live block and are not Current.
            unsafe { heap.give_or_wait(at(span)) };
        }
    }
}

/// Reports whether a span that is on a list has no live block. Its heap's lock is held.
fn is_vacant(span: &Span) -> bool {
    // ORDER: the lock is held (span.S3).
    let state = span.state.load(Ordering::Relaxed);
    matches!(state, state::FULL | state::PARTIAL | state::EMPTY) && span.used() == 0
}

/// What a look works with. `who` takes the locks. `only`: other heaps' spans wait on, unseen.
struct Looking<'a> {
    who: Who,
    only: Option<&'a Heap>,
    batch: &'a mut Batch,
    done: &'a mut Walked,
}

/// Looks at the spans of the first group from `group` on; returns the group behind it, `None` if there is none.
fn look_at_group(group: u32, mut work: Looking) -> Option<u32> {
    let mut found = Found::none();
    let next = changes::take_group(group, groups(), |page, waited| {
        found.add((page, waited), &mut work);
    });
    found.look(&mut work);
    next
}

/// Looks at a span: purges its free pages if it `waited` and has not changed since, or its heap's thread `rests` (O5). `true`:
/// it is to be looked at again.
///
/// # Safety
/// As for [`purge_span`]; the span is the heap's.
unsafe fn look(
    heap: &Heap,
    span: &Span,
    waited: bool,
    rests: bool,
    batch: &mut Batch,
    done: &mut Walked,
) -> bool {
    // SAFETY: as the caller promises.
    if !unsafe { settle(heap, span) } {
        // If its heap keeps it, it goes with the next round.
        done.pending += 1;
        return false;
    }
    let pages = dirty_pages(span);
    let armed = span.left.load(Ordering::Relaxed) == 1; // ORDER: see span.S2
    if !armed {
        span.left.store(1, Ordering::Relaxed); // ORDER: as above
        heap.mesh_done.store(0, Ordering::Relaxed); // ORDER: own
    }
    if pages == 0 {
        // Until the countdown is seen to have stayed (O6).
        return !armed;
    }
    let free = span.free_slots() as u8;
    let same = span.seen.swap(free, Ordering::Relaxed) == free; // ORDER: the lock is held (span.S3)
    if is_spared(heap, span) {
        return true;
    }
    if !(rests || waited && armed && same) {
        done.pending += 1;
        return true;
    }
    // SAFETY: as the caller promises.
    done.purged += unsafe { purge_span(span, batch) };
    // Until the countdown is seen to have stayed (O6).
    !armed
}

/// Puts a span on the list where it belongs, as its owner does at an event: other threads' frees may have come without
/// one. `false`: it has gone, or is about to.
///
/// # Safety
/// As for [`look`].
unsafe fn settle(heap: &Heap, span: &Span) -> bool {
    let used = span.used();
    // ORDER: the lock is held (span.S3).
    match span.state.load(Ordering::Relaxed) {
        state::CURRENT => true,
        state::FULL | state::PARTIAL if used == 0 => {
            // SAFETY: no live block, not Current; what is left in R goes with it.
            unsafe { events::emptied(heap, span) };
            false
        }
        state::FULL => {
            if u32::from(span.slots) - used >= event_of(span.slots as usize) {
                // SAFETY: as the caller promises. Its next user collects what is in R.
                unsafe { heap.move_to(span, state::PARTIAL, true) };
            }
            true
        }
        state::PARTIAL => true,
        _ => false,
    }
}

fn is_spared(heap: &Heap, span: &Span) -> bool {
    // ORDER: own, and under the lock (span.S3).
    heap.wanted.load(Ordering::Relaxed) > 0
        && (span.state.load(Ordering::Relaxed) == state::CURRENT // ORDER: as above
            || span.visit.load(Ordering::Relaxed) == last_visit(heap)) // ORDER: as above
}

/// Returns the number of the round under way.
fn last_visit(heap: &Heap) -> u8 {
    // ORDER: own: walks of other threads count under the purge lock, too.
    (heap.walks.load(Ordering::Relaxed).wrapping_sub(1) % 255 + 1) as u8
}

/// Makes a whole round for one heap, for tests; what other heaps' spans wait for is left.
#[cfg(test)]
pub fn one(heap: &Heap, batch: &mut Batch) -> Walked {
    let mut done = Walked::default();
    head(heap, PURGER, batch, &mut done);
    let mut next = Some(0);
    while let Some(group) = next {
        let work = Looking {
            who: PURGER,
            only: Some(heap),
            batch,
            done: &mut done,
        };
        next = look_at_group(group, work);
    }
    done
}
