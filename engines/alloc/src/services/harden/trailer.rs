//! The bytes behind a small block: a fill, and eight bytes that only the allocator can have written.
//!
//! ```text
//!   slot  [ n bytes requested │ fill … │ 48 bits of a hash, 16 of n ]
//!                                         of address, n, "live" or "freed", and a secret; then the form
//! ```
//!
//! T1  The trailer changes from live to freed in one step, so one thread claims the block.
//! T2  The address in the hash makes a trailer that was copied with its block worthless.
//! T3  No byte of fill or hash is 0 or of text, since what programs write by mistake mostly is: a zero before the next block
//!     was missed once in 256, when every value was a possible one. The hash has 42 bits besides.
//!
//! Not here: when the trailer is checked (`harden`).

use skinflint_base::sync::{AtomicU64, Ordering};

/// The least bytes of a slot that the program does not get.
pub const BYTES: usize = 8;

const LIVE: u64 = 0x9e37_79b9_7f4a_7c15;
const FREED: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// The operator of C++ that a block came by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Another call, as malloc.
    Plain,
    /// `new`.
    One,
    /// `new[]`.
    Array,
}

/// What a form changes of the hash: every byte of it but its highest bit (T3), so that no overwritten byte makes one form of another.
const ONE: u64 = 0x1d3b_5147_2664 << 16;
const ARRAY: u64 = 0x5a61_362d_4f13 << 16;

/// The bits that are set in every hash (T3).
const HIGH: u64 = 0x8080_8080_8080 << 16;

/// The state in which a free finds a block.
pub enum Claim {
    /// The trailer is as it was left; the block is the caller's.
    Whole,
    /// The block was freed before.
    Freed,
    /// Bytes behind the block were changed; the block is the caller's. The size, if it can be read, and the first
    /// changed byte.
    Damaged(Option<usize>, usize),
}

/// Returns bytes that the kernel drew for this process.
fn secret() -> u64 {
    static SECRET: AtomicU64 = AtomicU64::new(0);
    // ORDER: every thread that computes it computes the same.
    let known = SECRET.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: getauxval reads what the kernel left on the stack.
    let random = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const u64;
    let drawn = if random.is_null() {
        0x2545_f491_4f6c_dd1d
    } else {
        // SAFETY: AT_RANDOM points to sixteen bytes, for as long as the process lives.
        unsafe { random.read_unaligned() }.rotate_left(29) | 1
    };
    SECRET.store(drawn, Ordering::Relaxed); // ORDER: as above
    drawn
}

/// Returns the fill behind a block: never 0, which programs write most.
pub fn fill() -> u8 {
    secret() as u8 | 0x80
}

fn word(p: usize, n: usize, kind: u64) -> u64 {
    let mut hash = p as u64 ^ secret() ^ kind ^ (n as u64) << 48;
    hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash = (hash ^ hash >> 29).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (hash ^ hash >> 31) << 16 | HIGH | n as u64
}

/// Returns the trailer of a live block.
fn live(p: usize, n: usize, form: Form) -> u64 {
    word(p, n, LIVE)
        ^ match form {
            Form::Plain => 0,
            Form::One => ONE,
            Form::Array => ARRAY,
        }
}

/// Reads the trailer of a live block: the bytes requested and the form. `None`: it is none, or overwritten.
fn read(p: usize, found: u64, size: usize) -> Option<(usize, Form)> {
    let n = found as u16 as usize;
    let form = match found ^ word(p, n, LIVE) {
        0 => Form::Plain,
        ONE => Form::One,
        ARRAY => Form::Array,
        _ => return None,
    };
    (n <= size - BYTES).then_some((n, form))
}

fn at(p: *const u8, size: usize) -> &'static AtomicU64 {
    // SAFETY: slots are multiples of 16 long and aligned, and their last eight bytes are ours while the
    // checks are on.
    unsafe { &*p.add(size - BYTES).cast() }
}

/// Reports whether all of these bytes have this value. Compares eight at a time.
pub fn is_filled(p: usize, bytes: usize, fill: u8) -> bool {
    let p = p as *const u8;
    let eight = u64::from_ne_bytes([fill; 8]);
    let whole = bytes / 8;
    // SAFETY: callers pass blocks that they have, with this many bytes.
    unsafe {
        (0..whole).all(|i| p.cast::<u64>().add(i).read_unaligned() == eight)
            && (whole * 8..bytes).all(|i| *p.add(i) == fill)
    }
}

/// Writes the fill and the trailer behind a block of `n` requested bytes in a slot of `size`.
pub fn put(p: *mut u8, n: usize, size: usize) {
    // SAFETY: the slot is the caller's, and n + BYTES <= size.
    unsafe { core::ptr::write_bytes(p.add(n), fill(), size - BYTES - n) };
    // ORDER: after the fill, for the look at exit (last.L1). [reason: look]
    at(p, size).store(live(p as usize, n, Form::Plain), Ordering::Release);
}

/// Gives a live block a form, unless its trailer was overwritten.
pub fn set_form(p: *const u8, size: usize, form: Form) {
    let here = at(p, size);
    // ORDER: a thread that frees the block meanwhile wins (T1); nothing else is passed on. [reason: winner]
    let _ = here.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |found| {
        read(p as usize, found, size).map(|(n, _)| live(p as usize, n, form))
    });
}

/// Returns the requested bytes of a live block and its form. `None`: its trailer was overwritten.
pub fn form(p: *const u8, size: usize) -> Option<(usize, Form)> {
    // ORDER: the caller's own block.
    read(p as usize, at(p, size).load(Ordering::Relaxed), size)
}

/// Returns the requested bytes of a live block; if the trailer was overwritten, all that cannot be the trailer.
pub fn requested(p: *const u8, size: usize) -> usize {
    // ORDER: the caller's own block.
    let found = at(p, size).load(Ordering::Relaxed);
    read(p as usize, found, size).map_or(size - BYTES, |(n, _)| n)
}

/// Marks a block as freed (T1).
pub fn claim(p: *const u8, size: usize) -> Claim {
    let here = at(p, size);
    loop {
        // ORDER: the exchange orders.
        let found = here.load(Ordering::Relaxed);
        let n = found as u16 as usize;
        let fits = n <= size - BYTES;
        if fits && found == word(p as usize, n, FREED) {
            return Claim::Freed;
        }
        let whole = read(p as usize, found, size).is_some();
        let known = if fits { n } else { 0 };
        let freed = word(p as usize, known, FREED);
        // ORDER: one of two threads that free the block wins; nothing else is passed on. [reason: winner]
        if here
            .compare_exchange(found, freed, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            continue;
        }
        let first = (known..size - BYTES)
            // SAFETY: within the slot.
            .find(|&i| whole && unsafe { *p.add(i) } != fill());
        return match first {
            Some(at) => Claim::Damaged(Some(n), at),
            None if whole => Claim::Whole,
            None => Claim::Damaged(None, size - BYTES),
        };
    }
}

/// Reports whether a block that waits still has the trailer that [`claim`] left.
pub fn is_freed(p: *const u8, size: usize) -> bool {
    // ORDER: the caller's own block.
    let found = at(p, size).load(Ordering::Relaxed);
    found == word(p as usize, found as u16 as usize, FREED)
}

/// Returns the requested bytes of a block whose trailer says that it is live, and the first byte behind them that was
/// changed. `None`: there is no such byte, or no such trailer, before or after the look.
pub fn changed(p: *const u8, size: usize) -> Option<(usize, usize)> {
    let here = at(p, size);
    let is_live = || {
        // ORDER: before the fill, which was written first. Another thread may free the block. [reason: look]
        let found = here.load(Ordering::Acquire);
        read(p as usize, found, size).map(|(n, _)| n)
    };
    let n = is_live()?;
    let first = (n..size - BYTES)
        // SAFETY: within the slot.
        .find(|&i| unsafe { p.add(i).read_volatile() } != fill())?;
    (is_live() == Some(n)).then_some((n, first))
}

/// Removes the trailer.
pub fn forget(p: *const u8, size: usize) {
    // ORDER: the caller's own block.
    at(p, size).store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Slot([u8; 64]);

    #[test]
    fn a_block_is_claimed_once_and_each_changed_byte_is_found() {
        for n in 0..=56 {
            let mut slot = Slot([7; 64]);
            let p = slot.0.as_mut_ptr();
            put(p, n, 64);
            assert_eq!(requested(p, 64), n);
            assert!(matches!(claim(p, 64), Claim::Whole));
            assert!(is_freed(p, 64));
            assert!(matches!(claim(p, 64), Claim::Freed));
            for at in n..64 {
                put(p, n, 64);
                // SAFETY: within the slot.
                unsafe { *p.add(at) ^= 1 };
                match claim(p, 64) {
                    Claim::Damaged(found, first) => {
                        assert_eq!(
                            (found, first),
                            if at < 56 { (Some(n), at) } else { (None, 56) }
                        );
                    }
                    _ => panic!("{n} {at}"),
                }
            }
        }
    }

    /// A byte before a block is the last one of the trailer before it. Each slot has another hash.
    #[test]
    fn a_zero_or_a_letter_in_the_hash_is_always_found() {
        let mut slots = vec![[0u64; 8]; 2_000];
        for slot in &mut slots {
            let p = slot.as_mut_ptr().cast::<u8>();
            for form in [Form::Plain, Form::One, Form::Array] {
                for (at, byte) in [(58, 0), (61, b'w'), (63, 0), (63, 0x7f)] {
                    put(p, 33, 64);
                    set_form(p, 64, form);
                    // SAFETY: within the slot.
                    unsafe { *p.add(at) = byte };
                    assert!(matches!(claim(p, 64), Claim::Damaged(None, 56)));
                }
            }
        }
    }

    #[test]
    fn a_changed_byte_behind_a_live_block_is_seen_and_none_behind_another() {
        let mut slot = Slot([7; 64]);
        let p = slot.0.as_mut_ptr();
        assert_eq!(changed(p, 64), None, "no trailer");
        put(p, 20, 64);
        assert_eq!(changed(p, 64), None, "whole");
        // SAFETY: within the slot.
        unsafe { *p.add(33) ^= 1 };
        assert_eq!(changed(p, 64), Some((20, 33)));
        let _ = claim(p, 64);
        assert_eq!(changed(p, 64), None, "freed");
    }

    #[test]
    fn a_form_changes_nothing_else() {
        let mut slot = Slot([7; 64]);
        let p = slot.0.as_mut_ptr();
        for kind in [Form::Plain, Form::One, Form::Array] {
            put(p, 33, 64);
            set_form(p, 64, kind);
            assert_eq!(form(p, 64), Some((33, kind)));
            assert_eq!((requested(p, 64), changed(p, 64)), (33, None));
            assert!(matches!(claim(p, 64), Claim::Whole));
            assert!(is_freed(p, 64));
            set_form(p, 64, kind);
            assert!(is_freed(p, 64), "a freed block has no form");
            assert_eq!(form(p, 64), None);
        }
    }

    #[test]
    fn a_trailer_is_worth_nothing_elsewhere() {
        let mut slots = [Slot([0; 64]), Slot([0; 64])];
        put(slots[0].0.as_mut_ptr(), 20, 64);
        slots[1].0 = slots[0].0;
        assert!(matches!(claim(slots[1].0.as_ptr(), 64), Claim::Damaged(..)));
    }

    #[test]
    fn fills_are_compared_to_the_last_byte() {
        let bytes = [5u8; 40];
        let p = bytes.as_ptr() as usize;
        for length in 0..40 {
            assert!(is_filled(p, length, 5));
            for at in 0..length {
                let mut changed = bytes;
                changed[at] = 4;
                assert!(!is_filled(changed.as_ptr() as usize, length, 5));
            }
        }
    }
}
