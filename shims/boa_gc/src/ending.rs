//! The end of objects: one by one after their last handle went, cycles in two passes.
//!
//! ```text
//!   queue ─► finalize ─► drop the value ─► free the cell                   (its handles go with it: their objects queue)
//!   doomed cycle:   finalize each ──► is there a new handle? all live on
//!                   └─► drop each ──► free those without handles; the others when their last holder is dropped
//! ```
//!
//! Y1  An object in the queue has no handles, and no weak references: no code can reach it again.
//! Y2  Handles to doomed objects lie only in doomed objects. So nothing changes them except finalizers, and after
//!     these only the drops here.
//! Y3  A doomed object's cell is freed after its value and its handles are dropped: while an object of the cycle is
//!     left that leads to it, its head is there to be counted down.
//! Y4  A finalizer or drop that panics has run. The panic is counted; the object ends with the others.
//!
//! Not here: which cycles are doomed (`examine`).

use core::sync::atomic::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::local::{Local, dropping, unreferenced};
use crate::object::{DOOMED, ENDED, Erased, QUEUED, WEAKLY, head};

/// The number of panics of finalizers and drops, in all threads.
pub(crate) static PANICS: AtomicU64 = AtomicU64::new(0);

/// Garbage that is ended in slices.
pub(crate) struct Doomed {
    /// The objects, with the number of handles of each when it was doomed.
    objects: Vec<(Erased, u32)>,
    next: usize,
    /// Ephemerons that lost their keys and are alive: their values end with the others. Each has a handle of ours.
    pairs: Vec<Erased>,
    /// Whether all were finalized; then they are dropped.
    finalized: bool,
}

impl Doomed {
    /// Takes objects that `examine` found, and ephemerons that are alive and have lost their keys.
    pub(crate) fn new(objects: Vec<Erased>, pairs: Vec<Erased>) -> Doomed {
        for &pair in &pairs {
            // SAFETY: they are alive.
            unsafe { head(pair) }.take_handle();
        }
        // SAFETY: they are garbage, and whole.
        let with_handles = |object: Erased| (object, unsafe { head(object) }.handles());
        Doomed {
            objects: objects.into_iter().map(with_handles).collect(),
            next: 0,
            pairs,
            finalized: false,
        }
    }

    fn is_done(&self) -> bool {
        self.next == self.objects.len()
            && (self.finalized || self.objects.is_empty())
            && self.pairs.is_empty()
    }
}

/// Runs something that may panic (Y4).
fn contained(act: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(act)) {
        // ORDER: Relaxed: a count for reports.
        PANICS.fetch_add(1, Ordering::Relaxed);
        // Dropping the payload may panic in turn.
        core::mem::forget(payload);
    }
}

/// Runs the finalizers of an object and its parts.
///
/// # Safety
/// The object must not have ended.
unsafe fn finalize(object: Erased) {
    // SAFETY: as the caller promises.
    let vtable = unsafe { head(object) }.vtable;
    // SAFETY: object.H3.
    contained(|| unsafe { (vtable.finalize)(object) });
}

/// Drops the value.
///
/// # Safety
/// The object must not have ended, and no code may use the value any more.
unsafe fn drop_value(object: Erased) {
    // SAFETY: as the caller promises.
    let head = unsafe { head(object) };
    let vtable = head.vtable;
    // SAFETY: object.H3.
    contained(|| dropping(|| unsafe { (vtable.drop)(object) }));
    head.set(ENDED);
}

/// Drops the values of ephemerons without keys, and our handles to these ephemerons.
fn end_values(pairs: Vec<Erased>) {
    for pair in pairs {
        // SAFETY: it has a handle of ours.
        let head = unsafe { head(pair) };
        if let Some(fns) = head.vtable.pair {
            // SAFETY: it has lost its key, so no code looks at the value; finalizers have run.
            contained(|| dropping(|| unsafe { (fns.drop_value)(pair) }));
        }
        if head.drop_handle() {
            unreferenced(pair);
        }
    }
}

impl Local {
    /// Ends objects of the queue, at most `most`; returns how many it ended.
    pub(crate) fn end_queued(&self, most: usize) -> usize {
        let (mut done, mut by_count) = (0, 0);
        while done < most {
            // The borrow is not held: ending an object queues others.
            let next = self.queue.borrow_mut().pop();
            let Some(object) = next else {
                let mut queue = self.queue.borrow_mut();
                if queue.capacity() > 1 << 12 {
                    queue.shrink_to(1 << 10);
                }
                break;
            };
            done += 1;
            // SAFETY: Y1; the cells of those in the queue are not free.
            let head = unsafe { head(object) };
            if !head.has(ENDED) {
                // SAFETY: Y1.
                unsafe {
                    finalize(object);
                    if head.handles() > 0 {
                        // Its own finalizer handed out a handle.
                        head.clear(QUEUED);
                        continue;
                    }
                    self.on_account_of(object, || drop_value(object));
                }
                // An object that had already ended was found by an examination, and waited for its last handle.
                by_count += 1;
            }
            head.clear(QUEUED);
            self.free(object);
        }
        self.log.borrow_mut().totals.by_count += by_count;
        done
    }

    /// Continues with doomed cycles, for at most `most` objects; returns how many.
    pub(crate) fn end_doomed(&self, most: usize) -> usize {
        let mut done = 0;
        while done < most {
            let next = self.doomed.borrow_mut().pop_front();
            let Some(mut batch) = next else {
                break;
            };
            done += self.end_some(&mut batch, most - done);
            if !batch.is_done() {
                self.doomed.borrow_mut().push_front(batch);
            }
        }
        done
    }

    fn end_some(&self, batch: &mut Doomed, most: usize) -> usize {
        if !batch.finalized {
            return self.finalize_some(batch, most);
        }
        end_values(std::mem::take(&mut batch.pairs));
        let end = batch.objects.len().min(batch.next.saturating_add(most));
        let done = end - batch.next;
        for &(object, _) in &batch.objects[batch.next..end] {
            // SAFETY: Y2, Y3: doomed cells are not free before their drop.
            self.on_account_of(object, || unsafe { drop_value(object) });
            // SAFETY: the same.
            if unsafe { head(object) }.handles() == 0 {
                self.free(object);
            }
        }
        batch.next = end;
        done
    }

    /// Runs finalizers, a quarter of the batch or `most`, and checks the whole batch before the program goes on: with
    /// a handle that a finalizer handed out, it could change what is doomed (Y2).
    fn finalize_some(&self, batch: &mut Doomed, most: usize) -> usize {
        let len = batch.objects.len();
        if batch.next == 0 {
            for &pair in &batch.pairs {
                // SAFETY: it has a handle of ours.
                unsafe { finalize(pair) };
            }
        }
        let end = len.min(batch.next.saturating_add(most.max(len / 4 + 1)));
        let done = end - batch.next;
        for &(object, _) in &batch.objects[batch.next..end] {
            // SAFETY: Y2.
            unsafe { finalize(object) };
        }
        batch.next = end;
        let is_same = |&(object, handles): &(Erased, u32)| {
            // SAFETY: Y3.
            unsafe { head(object) }.handles() == handles
        };
        if !batch.objects.iter().all(is_same) {
            self.spare(batch);
        } else if end == len {
            batch.finalized = true;
            batch.next = 0;
        }
        done
    }

    /// Handles a finalizer that handed out a doomed object: its whole batch lives on, and is found again later if
    /// need be.
    fn spare(&self, batch: &mut Doomed) {
        for (object, _) in batch.objects.drain(..) {
            // SAFETY: none of the batch was dropped yet.
            let head = unsafe { head(object) };
            head.clear(DOOMED);
            self.tenant_of(object).not_doomed(head.vtable);
            if head.handles() == 0 && !head.has(WEAKLY | QUEUED) {
                head.set(QUEUED);
                self.queue.borrow_mut().push(object);
            }
        }
        batch.next = 0;
        batch.finalized = true;
        end_values(std::mem::take(&mut batch.pairs));
    }
}
