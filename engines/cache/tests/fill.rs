//! Buffers and arenas beneath every allocator: slop by the allocator's own count, contents, exponential growth.
//!
//! ```text
//!   this test ─► itself again, with LD_PRELOAD of each allocator ─► the checks below, against malloc_usable_size
//! ```
//!
//! P1  Each allocator must be there; without one the test is skipped, and counted as such (test-support).
//! P2  The test checks which allocator really runs: a library that was not loaded would pass as glibc.
//!
//! Not here: speed (`bench/cache`).

use std::collections::BTreeMap;
use std::process::Command;

use skinflint_base::random::Random;
use skinflint_cache::{Arena, Buf, HeapBytes, measure};
use skinflint_test_support::{artifact, need};

const INSIDE: &str = "SKINFLINT_TEST_INSIDE";

/// Allocators, and a symbol that only their library has.
const ALLOCATORS: [(&str, &str, &std::ffi::CStr); 4] = [
    ("glibc", "", c"malloc_trim"),
    (
        "jemalloc",
        "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
        c"mallctl",
    ),
    (
        "mimalloc",
        "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0",
        c"mi_collect",
    ),
    ("skinflint", "", c"skinflint_trim"),
];

#[test]
fn slop_is_none_beneath_every_allocator() {
    if !(need::library("libjemalloc.so.2") && need::library("libmimalloc.so.2.0")) {
        return;
    }
    let exe = std::env::current_exe().expect("this test has a path");
    for (name, library, _) in ALLOCATORS {
        let library = match name {
            "skinflint" => artifact::built("skinflint-malloc-so"),
            _ => library.into(),
        };
        let output = Command::new(&exe)
            .args(["--exact", "inside", "--nocapture"])
            .env("LD_PRELOAD", &library)
            .env(INSIDE, name)
            .output()
            .expect("this test starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {text}");
        assert!(
            text.contains(&format!("checked beneath {name}")),
            "{name}: {text}"
        );
    }
}

#[test]
fn inside() {
    let Ok(name) = std::env::var(INSIDE) else {
        return;
    };
    let (_, _, symbol) = ALLOCATORS
        .iter()
        .find(|a| a.0 == name)
        .expect("a name of ours");
    // SAFETY: a name closed by a zero.
    assert!(!unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) }.is_null());
    is_asked();
    arenas();
    buffers(&name);
    answers_do_not_grow();
    println!("checked beneath {name}");
}

/// The allocator is found by itself, and asked: requested bytes would show no slop, whatever allocator runs.
fn is_asked() {
    for bytes in [1, 25, 1001, 9001, 100_001] {
        let block = vec![1u8; bytes];
        // SAFETY: a live block of malloc's, which this program's are.
        let given = unsafe { libc::malloc_usable_size(block.as_ptr().cast_mut().cast()) };
        assert_eq!(block.heap_bytes(), given, "{bytes}");
        assert!(given > bytes, "{bytes}: {given}");
    }
}

/// Arenas of small values, of large ones, and reset: every chunk is used to the end of its block.
fn arenas() {
    let mut arena = Arena::new();
    let mut seed = 0x5EED_0001u64;
    for round in 0..3 {
        let mut sum = 0u64;
        let mut values: Vec<(&mut [u8], u8)> = Vec::new();
        for i in 0..20_000u64 {
            let size = match i % 500 {
                0 => 20_000 + (next(&mut seed) % 60_000) as usize,
                _ => (next(&mut seed) % 200) as usize,
            };
            let bytes = arena.copy_slice(&vec![i as u8; size]);
            sum += size as u64;
            values.push((bytes, i as u8));
        }
        assert!(
            values
                .iter()
                .all(|(bytes, mark)| bytes.iter().all(|b| b == mark))
        );
        drop(values);
        assert_eq!(arena.used_bytes() as u64, sum, "round {round}");
        assert_eq!(arena.slop_bytes(), 0, "round {round}");
        assert!(arena.usable_bytes() as u64 >= sum);
        // Tails of chunks and heads are the only waste: below a sixteenth.
        assert!(
            arena.usable_bytes() as u64 <= sum + sum / 16,
            "{} for {sum}",
            arena.usable_bytes()
        );
        let aligned = arena.alloc(Page([7; 64]));
        assert_eq!(std::ptr::from_ref(aligned).addr() % 64, 0);
        arena.reset();
        assert_eq!((arena.chunks(), arena.used_bytes()), (1, 0));
    }
}

#[repr(align(64))]
struct Page(#[expect(dead_code, reason = "its size and place count")] [u8; 64]);

fn next(seed: &mut u64) -> u64 {
    let mut random = Random::new(*seed);
    let drawn = random.bits() >> 33;
    *seed = random.seed();
    drawn
}

/// Buffers of every length to 70,000 and some beyond: nothing is given that cannot be used, beyond an item. A buffer
/// that grows is given what a `Vec` is given, in no more steps, and uses as much of it as is known.
fn buffers(allocator: &str) {
    let mut capacities: BTreeMap<usize, usize> = BTreeMap::new();
    for len in (1..70_000usize)
        .step_by(7)
        .chain([100_000, 131_072, 300_001, 5_000_001])
    {
        let buf: Buf<u8> = Buf::with_capacity(len);
        assert!(buf.capacity() >= len);
        // Of large blocks up to a page and 16 bytes are left over.
        let most = if len >= 100_000 { 4_112 } else { 0 };
        assert!(buf.slop_bytes() <= most, "{len}: slop {}", buf.slop_bytes());
        assert_eq!(buf.heap_bytes(), buf.usable_bytes());
        capacities.insert(buf.capacity(), len);
    }
    assert!(capacities.len() > 30, "classes: {}", capacities.len());
    let mut buf: Buf<[u32; 3]> = Buf::new();
    let mut vec: Vec<[u32; 3]> = Vec::new();
    let (mut grown, mut vec_grown) = (0, 0);
    for i in 0..100_000u32 {
        let (before, vec_before) = (buf.capacity(), vec.capacity());
        buf.push([i, i + 1, i + 2]);
        vec.push([i, i + 1, i + 2]);
        grown += u32::from(buf.capacity() != before);
        vec_grown += u32::from(vec.capacity() != vec_before);
        assert!(
            buf.capacity() >= vec.capacity() && grown <= vec_grown,
            "{i}"
        );
        let usable = buf.usable_bytes();
        let most = match allocator {
            // An allocator that says beforehand what it gives; of pages it does not.
            "jemalloc" | "mimalloc" if usable < 128 << 10 => 0,
            // A rest that was too small to be a block of its own, or the rest of a page.
            "glibc" if usable < 128 << 10 => 24,
            "glibc" => 4_112,
            // Runs of pages that are up to a third more.
            "mimalloc" => usable / 4,
            // A hole as it was.
            _ => usable / 8,
        };
        assert!(
            buf.slop_bytes() < 12 + most,
            "{i}: {} of {usable}",
            buf.slop_bytes()
        );
    }
    assert!((10..=16).contains(&grown), "100,000 pushes: {grown} blocks");
    assert!(
        buf.iter()
            .zip(0..)
            .all(|(item, i)| *item == [i, i + 1, i + 2])
    );
    buf.truncate(10);
    buf.shrink_to_fit();
    assert!(buf.usable_bytes() <= 160, "{}", buf.usable_bytes());
    assert_eq!(buf[9], [9, 10, 11]);
    // Asked for one more item each time, it does not move each time: no more often than a `Vec` does.
    let (mut exact, mut like): (Buf<u8>, Vec<u8>) = (Buf::new(), Vec::new());
    let (mut moved, mut vec_moved) = (0, 0);
    for _ in 0..10_000 {
        let (before, vec_before) = (exact.capacity(), like.capacity());
        exact.reserve(1);
        exact.push(1);
        like.push(1);
        moved += u32::from(exact.capacity() != before);
        vec_moved += u32::from(like.capacity() != vec_before);
    }
    assert!(moved <= vec_moved, "{moved}, Vec {vec_moved}");
}

/// The same growth again and again: sizes that were learned stay as they were.
fn answers_do_not_grow() {
    // Blocks are kept, as a program keeps them: freed blocks would be found again, with room beside them.
    let mut kept = Vec::new();
    let mut grown = || {
        let mut buf: Buf<[u64; 3]> = Buf::new();
        let capacities: Vec<usize> = (0..7_500)
            .filter_map(|_| {
                let before = buf.capacity();
                buf.push([1; 3]);
                (buf.capacity() != before).then(|| buf.capacity())
            })
            .collect();
        let end = (capacities.len(), buf.capacity() * 24);
        kept.push(buf);
        end
    };
    let (first, _) = grown();
    for round in 0..200 {
        let (steps, capacity) = grown();
        assert!(
            steps.abs_diff(first) <= 2,
            "round {round}: {steps} steps, at first {first}"
        );
        assert!(capacity < 500_000, "round {round}: {capacity}");
    }
}

#[test]
fn items_that_must_be_dropped_are_dropped_once() {
    let item = std::sync::Arc::new(());
    let mut buf: Buf<std::sync::Arc<()>> = (0..100).map(|_| item.clone()).collect();
    assert_eq!(std::sync::Arc::strong_count(&item), 101);
    buf.truncate(40);
    drop(buf.pop());
    let copy = buf.clone();
    assert_eq!(std::sync::Arc::strong_count(&item), 1 + 39 + 39);
    drop((buf, copy));
    assert_eq!(std::sync::Arc::strong_count(&item), 1);
    let mut nothing: Buf<()> = Buf::new();
    nothing.push(());
    assert_eq!((nothing.len(), nothing.usable_bytes()), (1, 0));
    assert_eq!(nothing.pop(), Some(()));
}

#[test]
fn what_cannot_be_had_is_an_error_and_leaves_the_buffer_as_it_was() {
    let mut buf: Buf<u64> = Buf::new();
    buf.extend_from_slice(&[1, 2, 3]);
    assert_eq!(buf.try_reserve(usize::MAX).unwrap_err().bytes, usize::MAX);
    assert!(buf.try_reserve(1 << 58).is_err());
    assert_eq!(buf.as_slice(), [1, 2, 3]);
    assert!(Buf::<u8>::try_with_capacity(isize::MAX as usize + 1).is_err());
    let arena = Arena::new();
    let huge = std::alloc::Layout::from_size_align(1 << 60, 8).unwrap();
    assert!(arena.try_alloc_layout(huge).is_err());
    assert_eq!(arena.copy_str("still works"), "still works");
}

#[test]
fn an_arc_is_counted_with_its_counts() {
    #[repr(align(32))]
    struct Wide(#[expect(dead_code, reason = "its size counts")] [u8; 96]);
    impl HeapBytes for Wide {
        fn heap_bytes(&self) -> usize {
            0
        }
    }
    // 2 counts and 100 bytes, of glibc: 120. A wrong start would be a wild figure. Each block may be 16 bytes longer: the
    // rest of a free chunk that is too small to be one of its own.
    let gave = |bytes: usize, blocks: usize, least: usize| {
        assert!((least..=least + 16 * blocks).contains(&bytes), "{bytes}");
    };
    gave(std::sync::Arc::new([0u8; 100]).heap_bytes(), 1, 120);
    let slice = std::sync::Arc::<[u8]>::from(vec![0u8; 100]);
    gave(slice.heap_bytes(), 1, 120);
    let wide = std::sync::Arc::new(Wide([1; 96])).heap_bytes();
    // 128 or 136, as its alignment falls.
    gave(wide, 1, 128);
    let texts = vec![String::from("0123456789"), String::new()];
    gave(texts.heap_bytes(), 2, 56 + 24);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { measure::usable(std::ptr::null(), 8) }, 0);
}
