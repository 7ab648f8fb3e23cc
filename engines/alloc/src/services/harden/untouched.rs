//! Sampled blocks that nothing touched again: memory that the program keeps, and neither reads nor writes.
//!
//! ```text
//!   a later sample: AGE after its birth ─► accessed bits of its pages cleared (MADV_COLD) ─► exit, AGE after that: set again?
//!                                          a page of ours, touched just now ────────────────►  still set? else nothing is told
//! ```
//!
//! T1  The processor sets the bit at any access, and the kernel's accesses for a system call set it, too. No access is caught,
//!     none can fail, and none takes longer. (Without access a page would make `read` into it fail, for which the
//!     program is not prepared, and a program may have a handler of its own.)
//! T2  What else clears such bits (the kernel, as it looks for pages to take away) clears that of the witness, a page that was
//!     touched once when the first block was asked about: then nothing is told.
//! T3  Only blocks that live at exit are told of, each alone on its pages: what was freed is no memory that is kept.
//!
//! Not here: sampled blocks themselves (`sampled`), when it is asked for (`SKINFLINT_STATS`, malloc-so).

use skinflint_base::sync::{AtomicUsize, Ordering};
use skinflint_base::sys;
use skinflint_pages::PAGE;

use super::sampled::{self, Live, SLOTS};
use super::{guard, story};

/// How long a block lives before it is asked about, and how long it is then left alone before it is told of.
const AGE_NS: u64 = 10_000_000_000;
const COLD: i32 = 20;
/// The most blocks whose stacks are told.
const TOLD: usize = 8;

/// Address of the witness (T2); 0: no block was asked about yet.
static WITNESS: AtomicUsize = AtomicUsize::new(0);

/// Asks about blocks that are old enough.
pub fn ask(now_ns: u64) {
    sampled::each_live(|block| {
        let Live { slot, pages, bytes } = block;
        // ORDER: hints: a block that is freed meanwhile is asked about late, or not at all.
        let is_old = now_ns.saturating_sub(slot.born_ns.load(Ordering::Relaxed)) >= AGE_NS;
        if !is_old || slot.asked_ns.load(Ordering::Relaxed) != 0 || !has_witness() {
            return;
        }
        // SAFETY: pages of the pool; the advice changes no content.
        if unsafe { sys::advise(pages as *mut u8, bytes, COLD) } {
            slot.asked_ns.store(now_ns, Ordering::Relaxed); // ORDER: as above
        }
    });
}

/// Makes the witness, and touches it, before the first block is asked about.
fn has_witness() -> bool {
    // ORDER: whoever comes second makes one more, and leaves it.
    if WITNESS.load(Ordering::Relaxed) != 0 {
        return true;
    }
    let made = sys::map_private(3 * PAGE) as usize;
    if made == 0
        || !guard::protect(made, PAGE, false)
        || !guard::protect(made + 2 * PAGE, PAGE, false)
    {
        return false;
    }
    // SAFETY: a page of our own.
    unsafe { ((made + PAGE) as *mut u8).write_volatile(1) };
    WITNESS.store(made + PAGE, Ordering::Relaxed); // ORDER: as above
    true
}

/// Tells of blocks that were not touched since they were asked about.
pub fn tell(now_ns: u64) {
    let witness = WITNESS.load(Ordering::Relaxed); // ORDER: as above
    let mut referenced = [None; SLOTS];
    let mut is_valid = false;
    if witness == 0
        || !scan(|from, bytes| {
            is_valid |= from == witness && bytes > 0;
            if let Some(slot) = sampled::slot_of_pages(from) {
                referenced[slot] = Some(bytes);
            }
        })
        || !is_valid
    {
        return;
    }
    let (mut judged, mut kept, mut kept_bytes) = (0u64, 0u64, 0u64);
    let is_judged = |block: &Live| {
        let asked_ns = block.slot.asked_ns.load(Ordering::Relaxed); // ORDER: as above
        asked_ns != 0 && now_ns.saturating_sub(asked_ns) >= AGE_NS
    };
    let is_kept = |block: &Live| {
        let found = sampled::slot_of_pages(block.pages).and_then(|slot| referenced[slot]);
        is_judged(block) && found == Some(0)
    };
    sampled::each_live(|block| {
        judged += u64::from(is_judged(&block));
        if is_kept(&block) {
            kept += 1;
            kept_bytes += block.slot.bytes.load(Ordering::Relaxed) as u64; // ORDER: as above
        }
    });
    if judged == 0 {
        return;
    }
    story::tell(|story| {
        story.add(b"skinflint: ");
        story.add_number(kept);
        story.add(b" of ");
        story.add_number(judged);
        story.add(b" sampled blocks that the program kept were not touched");
        story.add(b" for 10 s and more, until the end (");
        story.add_number(kept_bytes);
        story.add(b" bytes)\n");
        let mut left = TOLD;
        sampled::each_live(|block| {
            if left > 0 && is_kept(&block) {
                left -= 1;
                story.add(b"  a block of ");
                story.add_number(block.slot.bytes.load(Ordering::Relaxed) as u64); // ORDER: as above
                story.add(b" bytes\n");
                block.slot.born.tell(story, b"  allocated by thread ");
            }
        });
    });
}

/// Calls `each` with the first address of each mapping of the process, and how many of its bytes were accessed. `false`: the
/// kernel does not say.
fn scan(mut each: impl FnMut(usize, usize)) -> bool {
    let file = sys::open_to_read(c"/proc/self/smaps");
    if sys::is_error(file) {
        return false;
    }
    let mut room = [0u8; 2_048];
    let (mut line, mut used) = ([0u8; 80], 0);
    let mut from = 0;
    loop {
        let got = sys::read(file as i32, &mut room);
        if got <= 0 {
            sys::close(file as i32);
            return got == 0 && from != 0;
        }
        for &byte in room.get(..got as usize).unwrap_or(&[]) {
            if byte != b'\n' {
                // Of a longer line the beginning is enough.
                if let Some(to) = line.get_mut(used) {
                    *to = byte;
                    used += 1;
                }
                continue;
            }
            let text = line.get(..used).unwrap_or(&[]);
            used = 0;
            if let Some(rest) = text.strip_prefix(b"Referenced:") {
                each(from, number(rest.trim_ascii_start(), 10) * 1_024);
            } else if text
                .first()
                .is_some_and(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
            {
                from = number(text, 16);
            }
        }
    }
}

/// Reads the digits that a text begins with.
fn number(text: &[u8], base: u32) -> usize {
    let digits = text.iter().map_while(|&b| char::from(b).to_digit(base));
    digits.fold(0usize, |sum, digit| {
        sum.wrapping_mul(base as usize).wrapping_add(digit as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that is read, one that the kernel writes for a system call, and one that nothing touches.
    #[test]
    fn what_is_touched_again_is_told_from_what_is_not() {
        use std::io::Read;
        let _alone = crate::test_engine::alone();
        assert!(sampled::begin(1));
        let blocks = [(); 3].map(|()| sampled::malloc(5_000, 16).expect("a slot"));
        for block in blocks {
            // SAFETY: a block of this size.
            unsafe { block.write_bytes(7, 5_000) };
        }
        let now_ns = sys::monotonic_ns() + AGE_NS;
        ask(0);
        assert_eq!(WITNESS.load(Ordering::Relaxed), 0, "too young"); // ORDER: one thread
        ask(now_ns);
        // SAFETY: a live block.
        let first = unsafe { blocks[0].read_volatile() };
        assert_eq!(first, 7);
        // SAFETY: as above, and nothing else refers to it.
        let into = unsafe { core::slice::from_raw_parts_mut(blocks[1], 8) };
        std::fs::File::open("/dev/zero")
            .expect("it is there")
            .read_exact(into)
            .expect("zeros");
        let mut found = Vec::new();
        let ours = WITNESS.load(Ordering::Relaxed); // ORDER: one thread
        let mut witness = 0;
        assert!(scan(|from, bytes| {
            if from == ours {
                witness = bytes;
            }
            if let Some(slot) = sampled::slot_of_pages(from) {
                found.push((slot, bytes > 0));
            }
        }));
        assert_eq!(witness, PAGE);
        assert_eq!(found, [(0, true), (1, true), (2, false)]);
        tell(now_ns + AGE_NS);
        blocks.into_iter().for_each(sampled::free);
    }
}
