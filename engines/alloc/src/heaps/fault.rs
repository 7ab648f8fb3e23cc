//! Reports of what the program did wrong: one line on stderr, then the chosen reaction.
//!
//! Not here: finding faults (`free`, `harden`).

use skinflint_base::sync::{AtomicU32, Ordering};
use skinflint_base::sys;

/// A fault of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The block is free already.
    Double,
    /// No block begins at this address, though a span lies there.
    Misaligned,
    /// No block is at this address.
    Unknown,
    /// The address is not ours.
    Foreign,
    /// Bytes around the block were overwritten.
    Overrun,
    /// A block was written to after it was freed.
    Written,
    /// The heap was destroyed, or never was one.
    Heap,
    /// The block is not of this heap.
    OtherHeap,
    /// A block is resized that is free already.
    ResizeFree,
    /// An address is resized at which no block begins, though one lies there.
    ResizeInside,
    /// An address of the heap is resized at which there is no block.
    ResizeUnknown,
    /// A block is freed with another size than it was requested with.
    Size,
    /// A block of `new[]` is freed by `delete` or `free`.
    ArrayAsOne,
    /// A block of `new` is freed by `delete[]`.
    OneAsArray,
}

/// The reaction to a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Policy {
    /// Write a line, then `abort`.
    Abort = 0,
    /// Write a line; the call does nothing.
    Warn = 1,
    /// The call does nothing.
    Ignore = 2,
}

static POLICY: AtomicU32 = AtomicU32::new(0);

/// Sets the reaction to faults.
pub fn set_policy(policy: Policy) {
    // ORDER: set at start.
    POLICY.store(policy as u32, Ordering::Relaxed);
}

/// Returns the chosen reaction.
pub fn policy() -> Policy {
    // ORDER: set at start.
    match POLICY.load(Ordering::Relaxed) {
        1 => Policy::Warn,
        2 => Policy::Ignore,
        _ => Policy::Abort,
    }
}

/// Reports a fault, and reacts as chosen. Allocates nothing, leaves errno alone.
#[cold]
#[inline(never)]
pub fn report(fault: Fault, p: *mut u8) {
    report_more(fault, p, |_| ());
}

/// Does what [`report`] does, and adds to the line what `more` writes behind the address.
pub fn report_more(fault: Fault, p: *mut u8, more: impl FnOnce(&mut Line)) {
    if policy() == Policy::Ignore {
        return;
    }
    let mut line = Line::new();
    line.add(b"skinflint: ");
    line.add(words(fault));
    line.add_hex(p as usize);
    more(&mut line);
    line.add(b" (SKINFLINT_BAD_FREE=warn or ignore goes on)\n");
    sys::stderr(line.bytes());
    stop_if_chosen();
}

/// Ends the process, unless another reaction was chosen.
pub fn stop_if_chosen() {
    if policy() == Policy::Abort {
        // SAFETY: abort does not return.
        unsafe { libc::abort() }
    }
}

/// Returns what a line says of a fault; the address follows.
pub fn words(fault: Fault) -> &'static [u8] {
    match fault {
        Fault::Double => b"free of a block that is free already: ",
        Fault::Misaligned => b"free of an address inside a block: ",
        Fault::Unknown => b"free of an address at which there is no block: ",
        Fault::Foreign => b"free of an address that was never allocated: ",
        Fault::Overrun => b"bytes around a block were overwritten: ",
        Fault::Written => b"a block was written to after it was freed: ",
        Fault::Heap => b"use of a heap that was destroyed, or never created: ",
        Fault::OtherHeap => b"a heap was given a block that is not its own: ",
        Fault::ResizeFree => b"realloc of a block that is free already: ",
        Fault::ResizeInside => b"realloc of an address inside a block: ",
        Fault::ResizeUnknown => b"realloc of an address at which there is no block: ",
        Fault::Size => b"a block is freed with another size than it has: ",
        Fault::ArrayAsOne => b"a block of new[] is freed, and not by delete[]: ",
        Fault::OneAsArray => b"delete[] of a block of new: ",
    }
}

/// A line that is put together without a heap, so that it reaches stderr in one write.
pub struct Line<const BYTES: usize = 256> {
    bytes: [u8; BYTES],
    length: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line::new()
    }
}

impl Line {
    /// Creates an empty line, long enough for what is written in one line.
    pub const fn new() -> Line {
        Line::empty()
    }
}

impl<const BYTES: usize> Line<BYTES> {
    /// Creates an empty line.
    pub const fn empty() -> Line<BYTES> {
        Line {
            bytes: [0; BYTES],
            length: 0,
        }
    }

    /// Empties the line.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Adds bytes, as far as there is room.
    pub fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.length < self.bytes.len() {
                self.bytes[self.length] = byte;
                self.length += 1;
            }
        }
    }

    /// Adds a number as an address.
    pub fn add_hex(&mut self, number: usize) {
        self.add(b"0x");
        let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
        for i in (0..digits).rev() {
            self.add(&[b"0123456789abcdef"[number >> (i * 4) & 15]]);
        }
    }

    /// Adds a decimal number.
    pub fn add_number(&mut self, number: u64) {
        if number >= 10 {
            self.add_number(number / 10);
        }
        self.add(&[b'0' + (number % 10) as u8]);
    }

    /// Adds the size of the block that the line is about.
    pub fn add_size(&mut self, bytes: usize) {
        self.add(b", of ");
        self.add_number(bytes as u64);
        self.add(b" bytes");
    }

    /// Returns the bytes of the line.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_numbers_as_they_are_written_and_ends_where_its_room_does() {
        let mut line = Line::new();
        for number in [0, 9, 10, 1_234_567_890, u64::MAX] {
            line.add_number(number);
            line.add(b" ");
        }
        for number in [0, 15, 16, 0x7f12_3456_789a, usize::MAX] {
            line.add_hex(number);
            line.add(b" ");
        }
        let said = "0 9 10 1234567890 18446744073709551615 0x0 0xf 0x10 0x7f123456789a 0xffffffffffffffff ";
        assert_eq!(line.bytes(), said.as_bytes());
        let mut short = Line::<4>::empty();
        short.add_number(1_234_567);
        assert_eq!(short.bytes(), b"1234");
        short.clear();
        assert_eq!(short.bytes(), b"");
    }
}
