//! The blocks that a line has measured, noted while reporters measure, if a measurement asks for it.
//!
//! ```text
//!   Registry::measure_with_blocks ─► reporter: ruler.block(p) ─► [ note | note | … ] pending on this thread
//!                                              out.heap(path, bytes) ─► the line takes the notes that add up to it
//! ```
//!
//! B1  Blocks are noted only on the thread of a measurement that asks for blocks. Elsewhere a measured block costs one
//!     load and one branch more; if no measurement asks, no memory is taken.
//! B2  Notes lie in mappings of their own (store.S1).
//! B3  A line of the heap takes the first notes that add up to its amount, or all that are pending if none do. So
//!     reporters need not know of this, as long as they measure in the order in which they add lines. Other lines of
//!     bytes remove the notes that add up to them, since their memory is counted elsewhere.
//! B4  What a reporter noted without a line is forgotten when it returns; a note that could not be kept is a fault of
//!     the reporter, and not one block less.
//!
//! Not here: where notes are kept (`store`), their form in a file (`file`), their use (`dark_matter`).

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::entry::{Entry, Kind, Units, is_explicit};
use crate::grown::Pages;

/// A note that some bytes were measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Note {
    addr: u64,
    /// The bytes; the top bit means a part of a block, or several blocks.
    bytes: u64,
}

const PART: u64 = 1 << 63;

impl Note {
    /// Creates a note of a block that was measured whole. `addr` is any address in it; 0: its address is hidden.
    pub fn block(addr: u64, bytes: u64) -> Note {
        Note {
            addr,
            bytes: bytes & !PART,
        }
    }

    /// Creates a note of bytes from an address on, whatever blocks they lie in.
    pub fn range(addr: u64, bytes: u64) -> Note {
        Note {
            addr,
            bytes: bytes | PART,
        }
    }

    /// Returns the address; `None` if it is not known.
    pub fn addr(self) -> Option<u64> {
        (self.addr != 0).then_some(self.addr)
    }

    /// Returns the bytes that were counted.
    pub fn bytes(self) -> u64 {
        self.bytes & !PART
    }

    /// Returns whether it is about a whole block.
    pub fn is_block(self) -> bool {
        self.bytes & PART == 0
    }
}

/// The size of a note in a mapping, in bytes.
const NOTE: usize = size_of::<Note>();

/// Returns notes as bytes.
pub(crate) fn bytes_of(notes: &[Note]) -> &[u8] {
    // SAFETY: two words without a gap between them: every byte is written.
    unsafe { std::slice::from_raw_parts(notes.as_ptr().cast(), std::mem::size_of_val(notes)) }
}

/// Returns bytes as notes.
pub(crate) fn notes_of(pages: &Pages) -> &[Note] {
    let bytes = pages.bytes();
    if bytes.is_empty() {
        return &[];
    }
    // SAFETY: a mapping begins at a page, and only whole notes are pushed to these; any two words are a note.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / NOTE) }
}

/// The number of measurements with blocks that are under way.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// The notes that no line has taken yet.
struct Pending {
    notes: Pages,
    /// The number of notes that lines have taken already.
    taken: usize,
    /// The number of notes for which there was no memory.
    lost: usize,
}

thread_local! {
    // Apart from `PENDING`: a look on a thread of the program's own must not set up a destructor there.
    static HERE: Cell<bool> = const { Cell::new(false) };
    static PENDING: RefCell<Pending> = const {
        RefCell::new(Pending { notes: Pages::new(), taken: 0, lost: 0 })
    };
}

/// While a value of this type lives, notes are taken on this thread.
pub(crate) struct Noting(());

impl Noting {
    pub(crate) fn begin() -> Noting {
        ASKED.fetch_add(1, Ordering::Relaxed); // ORDER: Relaxed: a thread that asks sees its own write
        HERE.set(true);
        forget();
        Noting(())
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        HERE.set(false);
        forget();
        ASKED.fetch_sub(1, Ordering::Relaxed); // ORDER: Relaxed: as above
    }
}

/// Forgets what is pending (B4).
pub(crate) fn forget() {
    with(|pending| {
        pending.notes = Pages::new();
        (pending.taken, pending.lost) = (0, 0);
    });
}

fn with<T>(work: impl FnOnce(&mut Pending) -> T) -> Option<T> {
    // If a reporter measures in a destructor of the thread, or of a line, nothing is noted.
    PENDING
        .try_with(|pending| Some(work(&mut *pending.try_borrow_mut().ok()?)))
        .ok()?
}

/// Returns whether the measurement on this thread asks for blocks. For reporters that count as they go and would have
/// to walk their data.
#[inline]
pub fn wanted() -> bool {
    // ORDER: Relaxed: a thread that is asked has written it itself, or it is not asked.
    ASKED.load(Ordering::Relaxed) != 0 && HERE.get()
}

/// Notes that a block was measured whole. `addr`: its start, or any address in it. Cost if no measurement asks: one
/// load, one branch.
#[inline]
pub fn block(addr: *const u8, bytes: usize) {
    if wanted() {
        note_slow(Note::block(addr.addr() as u64, bytes as u64));
    }
}

/// Notes that some bytes were measured: a part of a block, or several blocks that lie side by side.
#[inline]
pub fn range(addr: *const u8, bytes: usize) {
    if wanted() && bytes > 0 {
        note_slow(Note::range(addr.addr() as u64, bytes as u64));
    }
}

/// Notes that bytes were counted of a block whose address is hidden.
#[inline]
pub fn hidden(bytes: usize) {
    if wanted() && bytes > 0 {
        note_slow(Note::block(0, bytes as u64));
    }
}

#[cold]
fn note_slow(note: Note) {
    with(
        |pending| match pending.notes.push(bytes_of(std::slice::from_ref(&note))) {
            Some(_) => {}
            None => pending.lost += 1,
        },
    );
}

/// Returns the number of notes from the beginning that add up to an amount, with the notes of no bytes that follow.
fn that_add_up(notes: &[Note], amount: u64) -> Option<usize> {
    let mut sum = 0u64;
    for (at, note) in notes.iter().enumerate() {
        sum = sum.saturating_add(note.bytes());
        if sum > amount {
            return None;
        }
        if sum == amount && amount > 0 {
            let rest = &notes[at + 1..];
            let empty = rest.iter().take_while(|note| note.bytes() == 0).count();
            return Some(at + 1 + empty);
        }
    }
    None
}

/// Gives a line of this process its notes (B3).
///
/// # Errors
/// If some notes were lost.
pub(crate) fn settle(
    entry: &Entry<'_>,
    keep: impl FnOnce(&[Note]) -> bool,
) -> Result<(), &'static str> {
    if !wanted() || entry.units != Units::Bytes || !entry.process.is_empty() {
        return Ok(());
    }
    let amount = u64::try_from(entry.amount).unwrap_or(0);
    let is_claim = entry.kind == Kind::Heap && is_explicit(entry.path);
    let settled = with(|pending| {
        if pending.lost > 0 {
            return false;
        }
        let all = notes_of(&pending.notes);
        let notes = &all[pending.taken.min(all.len())..];
        let share = match that_add_up(notes, amount) {
            Some(share) => share,
            None if is_claim && amount > 0 => notes.len(),
            None => 0,
        };
        let kept = !is_claim || share == 0 || keep(&notes[..share]);
        pending.taken += share;
        kept
    });
    match settled {
        Some(false) => Err("no memory for the addresses of its blocks"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_shared_out_by_what_they_add_up_to() {
        let notes = [
            Note::block(8, 100),
            Note::range(16, 20),
            Note::block(24, 0),
            Note::block(0, 50),
        ];
        assert_eq!(that_add_up(&notes, 100), Some(1));
        assert_eq!(that_add_up(&notes, 120), Some(3));
        assert_eq!(that_add_up(&notes, 170), Some(4));
        for amount in [0, 1, 110, 171] {
            assert_eq!(that_add_up(&notes, amount), None, "{amount}");
        }
        assert_eq!(that_add_up(&[], 0), None);
        assert_eq!(notes[3].addr(), None);
        assert!(!notes[1].is_block() && notes[1].bytes() == 20);
    }

    #[test]
    fn nobody_asks_and_nothing_is_noted() {
        assert!(!wanted());
        block(std::ptr::dangling(), 100);
        let noting = Noting::begin();
        assert!(wanted());
        assert_eq!(with(|pending| pending.notes.bytes().len()), Some(0));
        block(std::ptr::dangling(), 100);
        hidden(7);
        assert_eq!(with(|pending| notes_of(&pending.notes).len()), Some(2));
        let elsewhere = std::thread::spawn(wanted).join();
        assert!(!elsewhere.unwrap_or(true), "another thread is not asked");
        drop(noting);
        assert!(!wanted());
        assert_eq!(with(|pending| pending.notes.bytes().len()), Some(0));
    }
}
