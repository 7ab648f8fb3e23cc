//! Large blocks of which a program touches a part: the peak stays near what it touched (`services::sparse`).
//!
//! One test: the peak is the process's.

use skinflint_alloc::{allow_purger, free, malloc};

const MIB: usize = 1 << 20;

fn peak_kb() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("this process");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let words = line.and_then(|line| line.split_whitespace().next());
    words.and_then(|word| word.parse().ok()).expect("a number")
}

/// Writes to an eighth of a block, each time elsewhere.
fn touched(bytes: usize, turn: usize) -> *mut u8 {
    // SAFETY: written within its size.
    unsafe {
        let block = malloc(bytes);
        assert!(!block.is_null());
        let part = bytes / 8;
        block.add(turn % 8 * part).write_bytes(turn as u8, part);
        block
    }
}

#[test]
fn the_peak_is_near_what_was_touched() {
    allow_purger(true);
    let before_kb = peak_kb();
    for turn in 0..256 {
        let block = touched((8 + turn % 9) * MIB, turn);
        // SAFETY: freed once.
        unsafe { free(block) };
    }
    // Two MiB at most are touched at once; the rest is slack and the kernel's rounding.
    let grown_kb = peak_kb() - before_kb;
    assert!(grown_kb < 4 << 10, "{grown_kb} KiB");

    // A program tries how much it may have while it holds a buffer: the gigabytes that it never touched leave no room for the
    // buffer's pages beside those of the next.
    let before_kb = peak_kb();
    // SAFETY: written within their sizes, freed once.
    unsafe {
        let held = malloc(64 * MIB);
        held.write_bytes(1, 64 * MIB);
        let between = malloc(4 * MIB);
        let tried = malloc(8 << 30);
        assert!(!tried.is_null());
        free(tried);
        free(held);
        let next = malloc(160 * MIB);
        next.write_bytes(2, 60 * MIB);
        free(next);
        free(between);
    }
    let grown_kb = peak_kb() - before_kb;
    assert!((60 << 10..72 << 10).contains(&grown_kb), "{grown_kb} KiB");
}
