//! Sweeping one arena: objects that were not reached end, and their cells are free.
//!
//! ```text
//!   allocated  1 1 1 0 1 1        dead = allocated & !marks ─► finalize, poison
//!   marks      1 0 1 0 0 1        allocated := marks, marks := 0
//! ```
//!
//! W1  The thread that sweeps an arena has it for itself (layout.C2), and its kind allows that thread (kind.K2).
//! W2  After it `allocated` is what was marked, nothing is marked, and `live` counts it.
//! W3  A finalizer that panics has run: its object is freed, the rest of the arena is swept, and the panic is
//!     reported. (Where the program aborts on panics, it aborts.)
//!
//! Not here: the choice of arenas, the time and the thread (`sweeping`, `sweeper`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::heap::address::Arena;
use crate::heap::bits::each;
use crate::heap::kind::Kind;

/// The byte that fills a freed cell, where poisoning is on.
pub(crate) const POISON: u8 = 0xa5;

/// A finalizer that panicked.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Kind of the object.
    pub kind: &'static str,
    /// The text of the panic.
    pub message: String,
}

/// The most faults that are kept with their text; the others are only counted.
pub(crate) const FAULTS: usize = 16;

/// Sums about swept arenas.
#[derive(Default, Debug)]
pub(crate) struct Tally {
    pub(crate) arenas: u64,
    /// Number of objects that ended.
    pub(crate) cells: u64,
    pub(crate) bytes: u64,
    /// Number of objects whose finalizer ran.
    pub(crate) finalized: u64,
    pub(crate) panics: u64,
    pub(crate) faults: Vec<Fault>,
    /// Bytes of empty arenas that the sweeper gave back to the system.
    pub(crate) purged_bytes: u64,
}

impl Tally {
    fn panicked(&mut self, kind: &Kind, payload: &(dyn std::any::Any + Send)) {
        self.panics += 1;
        if self.faults.len() < FAULTS {
            self.faults.push(Fault {
                kind: (kind.name)(),
                message: text_of(payload),
            });
        }
    }
}

/// Returns the text of a panic.
pub(crate) fn text_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a payload that is no text".to_owned())
}

/// Sweeps an arena (W1–W3). Cost without finalizers: sixteen loads and eight stores.
pub(crate) fn sweep(arena: Arena, poison: bool, tally: &mut Tally) {
    let head = arena.head();
    let kind = head.kind.get();
    let marks = head.marks.words();
    let allocated = head.allocated.words();
    let dead: [u64; 4] = std::array::from_fn(|word| allocated[word] & !marks[word]);
    let size = arena.object_bytes();
    if dead != [0; 4] {
        if kind.finalize.is_some() {
            finalize(arena, kind, dead, tally);
        }
        let ended: u32 = dead.iter().map(|word| word.count_ones()).sum();
        tally.cells += u64::from(ended);
        tally.bytes += u64::from(ended) * size as u64;
        if poison {
            for cell in each(dead) {
                // SAFETY: W1: the cell is free, and whole in the arena or run.
                unsafe { arena.cell(cell).as_ptr().write_bytes(POISON, size) };
            }
        }
    }
    head.allocated.set(marks);
    head.marks.clear();
    head.scan.set(0);
    head.live
        .set(marks.iter().map(|word| word.count_ones() as u16).sum());
    tally.arenas += 1;
}

#[cold]
fn finalize(arena: Arena, kind: &'static Kind, dead: [u64; 4], tally: &mut Tally) {
    let Some(finalize) = kind.finalize else {
        return;
    };
    for cell in each(dead) {
        let object = arena.cell(cell);
        tally.finalized += 1;
        // SAFETY: kind.K2, W1: the object is of this kind, has not ended yet, and nothing leads to it.
        let end = AssertUnwindSafe(|| unsafe { finalize(object) });
        if let Err(payload) = catch_unwind(end) {
            tally.panicked(kind, payload.as_ref());
            // Dropping a payload of the program's own type may panic again; it is forgotten instead.
            if !payload.is::<String>() && !payload.is::<&str>() {
                std::mem::forget(payload);
            }
        }
    }
}
