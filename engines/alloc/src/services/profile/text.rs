//! The profile as text, in the form that heap profiles of gperftools have: pprof, jeprof and others read it.
//!
//! ```text
//!   heap profile: 812: 40123456 [ 96123: 812345678] @ heapprofile
//!   # …                                                                  comments: rate, errors, what is missing
//!   # 12 of 40 samples, variance 5123456789, pinned 81920 +- 31000, for a minute 6000000, for an hour 0
//!       96:  6291456 [    320: 20971520] @ 0x55d0c0de1234 0x55d0c0de5678 …
//!   # block 0 3000 3072 262144                                           of the asker's form: row, requested, usable, weight
//!   MAPPED_LIBRARIES: … /proc/self/maps
//! ```
//!
//! X1  The figures are estimates already. So the form is the one without a rate in its first line, which no reader scales:
//!     those that scale do it by a row's mean size, which is wrong where a stack asks for several sizes.
//! X2  The first line's figures are the sums of the rows below.
//! X3  The lock is held for a copy of the rows and the samples, not while anything is written.
//! X4  What is asked for from outside (`skinflint agent`) has a comment more for each sampled block in use: from its usable
//!     bytes the asker works out what the stack wastes. A row is known by the number in its own comment.
//!
//! X5  `pinned`, of what is in use now: the free bytes that the stack's blocks keep resident (`beside`), each sample's for 1/p
//!     blocks, and half the interval of 95 % that the samples' variance Σ (x/p)² (1 - p) says.
//! X6  `for a minute` and `for an hour` are the bytes in use that were acquired so long ago, or longer.
//!
//! Not here: the file (`malloc-so`).

use skinflint_base::sync::Ordering;
use skinflint_base::sys;

use super::beside;
use super::books::{HEAD, Row, SAMPLES, Sum, WORDS, whole};
use super::known::{LOST, seconds, with_books_as};
use super::stack::DEPTH;
use crate::heaps::slow::{self, Sample};
use crate::heaps::{malloc, tls};
use crate::mechanism::lock::{ASKER, Who};
use crate::services::stats::standing_still;

/// Which of the blocks a profile tells of, beside all that were ever asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Blocks in use now.
    InUse,
    /// Blocks that were in use at the peak.
    Peak,
}

/// Rows, and the sums over them, as they were at one moment.
struct Copied {
    words: *mut u64,
    used: usize,
    rate: u32,
    shown: Sum,
    refused: u64,
    stackless: u64,
    /// Sampled blocks in use, behind the words.
    blocks: usize,
    /// Whether `peak` of the copied rows says what they pin instead (X5), and in its places for blocks and samples what is in use for
    /// a minute and for an hour (X6).
    has_pinned: bool,
}

/// A sampled block in use.
#[derive(Clone, Copy)]
#[repr(C)]
struct Block {
    row: u64,
    requested: u64,
    usable: u64,
    weight: u64,
    place: u64,
    probability: f64,
    born_s: u64,
}

/// Bytes of a copy: the rows, and the sampled blocks.
const ROOM: usize = WORDS * size_of::<u64>() + SAMPLES * size_of::<Block>();

/// Writes the profile through `put`, in pieces. `false`: there is none, or no memory for a copy of it.
pub fn write(what: What, put: &mut dyn FnMut(&[u8])) -> bool {
    write_as(tls::who(), what, false, put)
}

/// Writes what is in use, in the asker's form (X4), on the one thread that answers questions from outside and has no
/// thread-local storage.
pub fn write_hidden(put: &mut dyn FnMut(&[u8])) -> bool {
    write_as(ASKER, What::InUse, true, put)
}

fn write_as(who: Who, what: What, with_blocks: bool, put: &mut dyn FnMut(&[u8])) -> bool {
    if !slow::profiled() {
        return false;
    }
    let memory = sys::map_private(ROOM);
    if memory.is_null() {
        return false;
    }
    let words = memory.cast();
    let copied = with_books_as(who, |books| {
        // SAFETY: the mapping has room for as many behind the words.
        let blocks =
            unsafe { copy_blocks(books.samples(), memory.add(WORDS * size_of::<u64>()).cast()) };
        let from = books.words();
        // SAFETY: a fresh mapping of as many words.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), words, from.len()) };
        Copied {
            words,
            used: from.len(),
            rate: books.rate,
            shown: match what {
                What::InUse => books.live,
                What::Peak => books.peak,
            },
            refused: books.refused,
            stackless: books.stackless,
            blocks,
            has_pinned: false,
        }
    });
    let copied = copied.map(|mut copied| {
        copied.has_pinned = what == What::InUse && standing_still(who, |_| copied.pin()).is_some();
        copied
    });
    if let Some(copied) = &copied {
        let mut out = Out::through(put);
        copied.write(what, with_blocks, &mut out);
        out.flush();
    }
    // SAFETY: our own mapping, which nothing uses any more.
    unsafe { sys::unmap(memory, ROOM) };
    copied.is_some()
}

/// Copies the sampled blocks in use; returns how many there are. The profile's lock is held.
///
/// # Safety
/// `to` has room for [`SAMPLES`] of them.
unsafe fn copy_blocks(samples: &[Sample], to: *mut Block) -> usize {
    let mut count = 0;
    for sample in samples.iter().filter(|sample| sample.address != 0) {
        let p = core::ptr::without_provenance(sample.address);
        // SAFETY: a sample is taken out before its block can be handed out again (profile.P3), so the block is still one.
        let usable = unsafe { malloc::usable_size(p) };
        let weight = whole(sample.requested as f64 / sample.probability) as u64;
        // SAFETY: as the caller promises; there are no more than SAMPLES.
        unsafe {
            to.add(count).write(Block {
                row: sample.stack.into(),
                requested: sample.requested as u64,
                usable: usable as u64,
                weight,
                place: sample.place as u64,
                probability: sample.probability,
                born_s: sample.born_s.into(),
            });
        }
        count += 1;
    }
    count
}

impl Copied {
    fn blocks(&self) -> &[Block] {
        // SAFETY: so many were copied behind the words.
        unsafe { core::slice::from_raw_parts(self.words.add(WORDS).cast(), self.blocks) }
    }

    /// Writes over each row's peak what it pins (X5). All slow paths stand still.
    fn pin(&mut self) {
        let now_s = seconds();
        let mut at = 0;
        while let Some(row) = self.row(at) {
            (row.peak, at) = (Sum::default(), at + HEAD + (row.frames as usize).min(DEPTH));
        }
        for i in 0..self.blocks {
            let Some(&block) = self.blocks().get(i) else {
                break;
            };
            let p = block.probability;
            let kept = beside::share(block.place as usize, block.usable as usize) as f64 / p;
            if let Some(row) = self.row(block.row as usize) {
                row.peak.bytes += kept;
                row.peak.variance += kept * kept * (1.0 - p);
                let age_s = now_s.wrapping_sub(block.born_s as u32);
                if age_s >= 60 {
                    row.peak.blocks += block.weight as f64;
                }
                if age_s >= 3600 {
                    row.peak.samples += block.weight;
                }
            }
        }
    }

    /// Returns the row at a word.
    fn row(&mut self, at: usize) -> Option<&mut Row> {
        // SAFETY: rows follow each other from the first word on (books), and the copy is this call's.
        (at + HEAD <= self.used).then(|| unsafe { &mut *self.words.add(at).cast::<Row>() })
    }

    fn words(&self) -> &[u64] {
        // SAFETY: so many were copied.
        unsafe { core::slice::from_raw_parts(self.words, self.used) }
    }

    /// Calls `look` with each row and its return addresses, innermost first.
    fn each(&self, mut look: impl FnMut(usize, &Row, &[u64])) {
        let mut at = 0;
        while at + HEAD <= self.used {
            // SAFETY: rows follow each other from the first word on (books).
            let row = unsafe { &*self.words.add(at).cast::<Row>() };
            let (word, frames) = (at, (row.frames as usize).min(DEPTH));
            at += HEAD;
            look(word, row, self.words().get(at..at + frames).unwrap_or(&[]));
            at += frames;
        }
    }

    fn write(&self, what: What, with_blocks: bool, out: &mut Out<'_>) {
        let shown = |row: &Row| match what {
            What::InUse => row.live,
            What::Peak => row.peak,
        };
        let mut sums = [0; 4];
        self.each(|_, row, _| {
            for (sum, of) in sums.iter_mut().zip(figures(&shown(row), &row.all)) {
                *sum += of;
            }
        });
        out.add(b"heap profile: ");
        out.figures(sums);
        out.add(b"heapprofile\n");
        self.comments(what, out);
        self.each(|word, row, frames| {
            if row.all.samples == 0 {
                return;
            }
            let shown = shown(row);
            out.add(b"# ");
            out.number(shown.samples);
            out.add(b" of ");
            out.number(row.all.samples);
            out.add(b" samples, variance ");
            out.number(shown.variance as u64);
            if with_blocks {
                out.add(b", row ");
                out.number(word as u64);
            }
            if self.has_pinned {
                out.add(b", pinned ");
                out.number(whole(row.peak.bytes) as u64);
                out.add(b" +- ");
                out.number(half_width(row.peak.variance));
                out.add(b", for a minute ");
                out.number(row.peak.blocks as u64);
                out.add(b", for an hour ");
                out.number(row.peak.samples);
            }
            out.add(b"\n ");
            out.figures(figures(&shown, &row.all));
            for (i, &frame) in frames.iter().enumerate() {
                out.add(if i == 0 { b"0x" } else { b" 0x" });
                out.hex(frame);
            }
            if frames.is_empty() {
                out.add(b"0x0");
            }
            out.add(b"\n");
        });
        for block in self.blocks().iter().filter(|_| with_blocks) {
            out.add(b"# block");
            for number in [block.row, block.requested, block.usable, block.weight] {
                out.add(b" ");
                out.number(number);
            }
            out.add(b"\n");
        }
        out.add(b"\nMAPPED_LIBRARIES:\n");
        out.file(c"/proc/self/maps");
    }

    fn comments(&self, what: What, out: &mut Out<'_>) {
        out.add(b"# skinflint heap profile 1, process ");
        out.number(sys::getpid().into());
        out.add(match what {
            What::InUse => b", in use now",
            What::Peak => b", in use at the peak",
        });
        out.add(b": ");
        out.number(self.shown.samples);
        out.add(b" samples, ");
        out.number(self.shown.bytes as u64);
        out.add(b" bytes +- ");
        out.number(half_width(self.shown.variance));
        out.add(b" (19 of 20 times)\n# one sample in ");
        out.number(self.rate.into());
        out.add(b" bytes; without a stack ");
        out.number(self.stackless);
        out.add(b", without room ");
        out.number(self.refused);
        out.add(b", lost in signal handlers ");
        out.number(LOST.load(Ordering::Relaxed)); // ORDER: a statistic
        out.add(b"\n");
    }
}

/// Returns blocks and bytes that are shown, and of all time, as whole numbers.
fn figures(shown: &Sum, all: &Sum) -> [u64; 4] {
    let blocks = |sum: &Sum| (sum.blocks + 0.5) as u64;
    [
        blocks(shown),
        shown.bytes as u64,
        blocks(all),
        all.bytes as u64,
    ]
}

/// Returns half the width of the interval in which a sum lies 19 of 20 times: 1.96 standard deviations.
fn half_width(variance: f64) -> u64 {
    (1.96 * crate::services::sample::root(variance)) as u64
}

/// Text on its way out.
struct Out<'a> {
    put: &'a mut dyn FnMut(&[u8]),
    room: [u8; 1024],
    used: usize,
}

impl<'a> Out<'a> {
    fn through(put: &'a mut dyn FnMut(&[u8])) -> Out<'a> {
        Out {
            put,
            room: [0; 1024],
            used: 0,
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.used == self.room.len() {
                self.flush();
            }
            if let Some(to) = self.room.get_mut(self.used) {
                *to = byte;
                self.used += 1;
            }
        }
    }

    fn flush(&mut self) {
        (self.put)(self.room.get(..self.used).unwrap_or(&[]));
        self.used = 0;
    }

    fn in_base(&mut self, mut number: u64, base: u64) {
        let mut digits = [0; 20];
        let mut begin = digits.len();
        for digit in digits.iter_mut().rev() {
            let value = (number % base) as u8;
            *digit = if value < 10 {
                b'0' + value
            } else {
                b'a' + value - 10
            };
            number /= base;
            begin -= 1;
            if number == 0 {
                break;
            }
        }
        self.add(digits.get(begin..).unwrap_or(&[]));
    }

    fn number(&mut self, number: u64) {
        self.in_base(number, 10);
    }

    fn hex(&mut self, number: u64) {
        self.in_base(number, 16);
    }

    fn figures(&mut self, [blocks, bytes, all_blocks, all_bytes]: [u64; 4]) {
        self.number(blocks);
        self.add(b": ");
        self.number(bytes);
        self.add(b" [");
        self.number(all_blocks);
        self.add(b": ");
        self.number(all_bytes);
        self.add(b"] @ ");
    }

    /// Adds what a file holds, as much of it as can be read.
    fn file(&mut self, path: &core::ffi::CStr) {
        let file = sys::open_to_read(path);
        if sys::is_error(file) {
            return;
        }
        let mut room = [0; 1024];
        loop {
            let done = sys::read(file as i32, &mut room);
            if done <= 0 {
                break;
            }
            self.add(room.get(..done as usize).unwrap_or(&[]));
        }
        sys::close(file as i32);
    }
}
