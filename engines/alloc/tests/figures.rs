//! The figures of memory whose state is known, and their text.
//!
//! ```text
//!   blocks, touched, freed, trimmed ──► snapshot ──► rows, resident part, totals
//!   a snapshot made by hand ──────────► write_json ──► each figure under its name, what was not measured under none
//! ```
//!
//! G1  All bytes of a live block that was written to are resident, before a trim and after it.
//! G2  `trimmable_bytes` is what a trim gives back; afterwards there is none.
//! G3  Requested bytes are counted to the byte, whichever thread requests them and by whichever function.
//! G4  The text is JSON, and each figure stands in it as it is in the snapshot.
//!
//! N1  Tests run one at a time (a lock): the figures are the process's. The test runner's own memory is not in them.
//!
//! Not here: the estimate of slop (`estimate`, `crowded`), the reserve (`pressure`).

use std::sync::{Mutex, MutexGuard};

use serde_json::Value;
use skinflint_alloc as alloc;
use skinflint_alloc::stats::{ClassRow, Events, Rows, Snapshot, snapshot};

const PAGE: usize = 4_096;

static ONE: Mutex<()> = Mutex::new(());

/// One at a time, and nothing is purged but by the test.
fn alone() -> MutexGuard<'static, ()> {
    alloc::allow_purger(false);
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn look() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    // SAFETY: freed at once; the allocator exists from then on.
    unsafe { alloc::free(alloc::malloc(1)) };
    assert!(snapshot(&mut figures, true));
    assert!(figures.balanced, "{figures:?}");
    figures
}

fn written(bytes: usize) -> *mut u8 {
    // SAFETY: the caller frees it; it has this many bytes.
    unsafe {
        let block = alloc::malloc(bytes);
        block.write_bytes(1, bytes);
        block
    }
}

fn end(blocks: impl IntoIterator<Item = *mut u8>) {
    // SAFETY: live blocks of the test.
    blocks
        .into_iter()
        .for_each(|block| unsafe { alloc::free(block) });
}

#[test]
fn live_bytes_are_resident_and_a_trim_gives_back_what_it_could() {
    let _alone = alone();
    // Sizes that lie across pages, in one, and on whole ones.
    for bytes in [48, 1_000, 3_000, 5_000, 8_192, 12_000, 20_000] {
        alloc::trim();
        let before = look();
        // SAFETY: the caller frees it.
        let blocks: Vec<_> = (0..600).map(|_| written(bytes)).collect();
        // SAFETY: a live block.
        let usable = unsafe { alloc::usable_size(blocks[0]) };
        let full = look();
        let resident = full.resident.small - before.resident.small;
        // The last bytes of a block are nobody's, and may lie on a page that was never touched.
        assert!(
            resident >= 600 * bytes && resident <= 600 * usable,
            "{bytes}: {resident}"
        );
        let (gone, stay): (Vec<_>, Vec<_>) = (0..600).partition(|index| index % 2 == 0);
        end(gone.into_iter().map(|index: usize| blocks[index]));
        let thinned = look();
        assert!(
            thinned.resident.sum() <= thinned.mapped.sum(),
            "{thinned:?}"
        );
        if bytes >= 2 * PAGE {
            // Each freed block holds a whole page at least; some wait in a thread's cache.
            let least = 200 * (bytes / PAGE - 1) * PAGE;
            assert!(thinned.trimmable_bytes >= least, "{bytes}: {thinned:?}");
        }
        alloc::trim();
        let trimmed = look();
        assert_eq!(trimmed.trimmable_bytes, 0, "{bytes}");
        assert_eq!(trimmed.resident.holes, 0, "{bytes}");
        let resident = trimmed.resident.small - before.resident.small;
        assert!(
            resident >= 300 * bytes && resident <= 300 * usable,
            "{bytes}: {resident}"
        );
        let purged = (trimmed.events.purged_pages - thinned.events.purged_pages) as usize * PAGE;
        assert!(purged >= thinned.trimmable_bytes, "{bytes}: {purged}");
        for &index in &stay {
            let block = blocks[index];
            // SAFETY: a live block of this many bytes.
            assert!((0..bytes).all(|i| unsafe { *block.add(i) } == 1), "{bytes}");
        }
        end(stay.into_iter().map(|index| blocks[index]));
    }
}

#[test]
fn large_blocks_are_counted_to_the_byte_and_so_is_the_most_there_was() {
    let _alone = alone();
    let before = look();
    let sizes = [33_000, 100_001, 3 << 20, 40 << 20];
    let blocks = sizes.map(written);
    let during = look();
    let pages: usize = sizes.iter().map(|bytes| bytes.next_multiple_of(PAGE)).sum();
    assert_eq!(during.large_blocks - before.large_blocks, 4);
    assert_eq!(during.mapped.large - before.mapped.large, pages);
    assert_eq!(during.resident.large - before.resident.large, pages);
    assert_eq!(
        during.large_requested - before.large_requested,
        sizes.iter().sum::<usize>()
    );
    assert!(during.large_blocks_max >= during.large_blocks);
    assert!(during.large_bytes_max >= during.mapped.large);
    end(blocks);
    let after = look();
    assert_eq!(after.large_blocks, before.large_blocks);
    assert_eq!(after.large_blocks_max, during.large_blocks_max);
    assert_eq!(after.large_bytes_max, during.large_bytes_max);
}

#[test]
fn what_was_requested_is_counted_to_the_byte_whoever_asks() {
    let _alone = alone();
    let ask = || {
        let mut asked = 0;
        for n in (1..3_000).chain([32_768, 32_769, 500_000]) {
            // SAFETY: freed at once.
            unsafe { alloc::free(alloc::malloc(n)) };
            // SAFETY: as above.
            unsafe { alloc::free(alloc::memalign(64, n)) };
            asked += 2 * n as u64;
        }
        // What grows in place is no request, and room that nobody asked for is none either.
        // SAFETY: one block, resized and freed.
        unsafe {
            let mut block = alloc::malloc(16);
            asked += 16;
            for n in (32..=20_000).step_by(16) {
                let before = block;
                block = alloc::realloc(block, n);
                asked += if block == before { 0 } else { n as u64 };
            }
            alloc::free(block);
        }
        asked
    };
    let before = look().requested_total;
    let mut asked = ask();
    for _ in 0..3 {
        asked += std::thread::spawn(ask).join().expect("no panic");
    }
    // `look` itself asks for a byte.
    assert_eq!(look().requested_total - before, asked + 1);
}

/// What the process has by the kernel's word, and by ours what of it is the allocator's.
#[test]
fn the_process_has_as_much_as_the_kernel_says() {
    let _alone = alone();
    let block = written(20 << 20);
    let figures = look();
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages: usize = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("a number");
    // The kernel counts this one loosely, and the text of the test comes and goes.
    let (ours, theirs) = (figures.process_resident, pages * PAGE);
    assert!(ours.abs_diff(theirs) < 4 << 20, "{ours} and {theirs}");
    assert_eq!(ours % 1_024, 0);
    assert!(figures.resident_bytes() < ours, "{figures:?}");
    assert!(
        (1..=ours).contains(&figures.process_proportional),
        "{figures:?}"
    );
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").expect("procfs");
    assert_eq!(figures.merged_bytes.is_some(), rollup.contains("KSM:"));
    assert!(figures.resident_bytes() > 20 << 20);
    assert!(figures.metadata_resident > 0 && figures.metadata_resident <= figures.metadata_bytes);
    end([block]);
}

/// A different number for each figure, with all lengths of digits among them.
fn by_hand() -> Box<Snapshot> {
    let mut figures = Box::new(Snapshot::new());
    let rows = |first: usize| Rows {
        small: first,
        large: first + 1,
        in_spans: first + 2,
        holes: first + 3,
        reserve: first + 4,
        dirty: first + 5,
        clean: first + 6,
        others: first + 7,
    };
    figures.mapped_bytes = usize::MAX;
    figures.mapped = rows(1_000_000);
    figures.resident = rows(9);
    figures.metadata_bytes = 90;
    figures.metadata_resident = 10;
    figures.small_blocks = 101;
    figures.large_blocks = 102;
    figures.large_requested = 103;
    figures.tenants = 104;
    figures.trimmable_bytes = 105;
    figures.requested_total = 106;
    figures.events = Events {
        purged_pages: 107,
        failures: 108,
        ..Events::default()
    };
    figures.class[0] = ClassRow {
        size: 16,
        spans: 1,
        pages: 1,
        hole_pages: 0,
        blocks: 7,
    };
    figures.class[5] = ClassRow {
        size: 96,
        spans: 2,
        pages: 6,
        hole_pages: 1,
        blocks: 11,
    };
    figures
}

fn text_of(figures: &Snapshot) -> Value {
    let mut text = Vec::new();
    alloc::write_json(figures, |piece| text.extend_from_slice(piece));
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&text));
    })
}

#[test]
fn each_figure_stands_under_its_name() {
    let mut figures = by_hand();
    figures.measured = true;
    figures.process_resident = 12_345;
    figures.process_proportional = 12_344;
    figures.merged_bytes = Some(12_343);
    let text = text_of(&figures);
    for (place, number) in [
        ("/mapped_bytes", usize::MAX),
        ("/mapped/small_bytes", 1_000_000),
        ("/mapped/others_bytes", 1_000_007),
        ("/resident/small_bytes", 9),
        ("/resident/large_bytes", 10),
        ("/resident/others_bytes", 16),
        ("/resident_bytes", figures.resident_bytes()),
        ("/retained_bytes", figures.retained_bytes()),
        ("/metadata_mapped_bytes", 90),
        ("/metadata_resident_bytes", 10),
        ("/process_resident_bytes", 12_345),
        ("/process_proportional_bytes", 12_344),
        ("/merged_bytes", 12_343),
        ("/trimmable_bytes", 105),
        ("/magazines_bytes", 0),
        ("/live/small_blocks", 101),
        ("/live/large_blocks", 102),
        ("/live/large_requested_bytes", 103),
        ("/live/tenants", 104),
        ("/live/usable_bytes", 2_000_001),
        ("/live/requested_bytes", 1_000_103),
        ("/total/requested_bytes", 106),
        ("/total/purged_pages", 107),
        ("/total/failures", 108),
        ("/classes/0/size_bytes", 16),
        ("/classes/0/live_bytes", 112),
        ("/classes/1/blocks", 11),
        ("/classes/1/hole_pages", 1),
    ] {
        let found = text.pointer(place).and_then(Value::as_u64);
        assert_eq!(found, Some(number as u64), "{place}: {text}");
    }
    assert_eq!(text["balanced"], true);
    assert_eq!(text["classes"].as_array().map(Vec::len), Some(2), "{text}");
}

#[test]
fn what_was_not_measured_is_absent() {
    let mut figures = by_hand();
    figures.process_resident = 12_345;
    figures.process_proportional = 12_344;
    figures.merged_bytes = Some(12_343);
    figures.sampled = false;
    figures.balanced = false;
    let text = text_of(&figures);
    assert_eq!(text["balanced"], false);
    for place in [
        "/resident",
        "/resident_bytes",
        "/process_resident_bytes",
        "/process_proportional_bytes",
        "/merged_bytes",
        "/live/requested_bytes",
        "/live/samples",
    ] {
        assert_eq!(text.pointer(place), None, "{place}");
    }
    figures.measured = true;
    figures.process_resident = 0;
    let text = text_of(&figures);
    assert_eq!(text.pointer("/process_resident_bytes"), None);
    assert!(text.pointer("/resident").is_some());
}

#[test]
fn a_buffer_gets_as_much_of_the_text_as_it_has_room_for() {
    let _alone = alone();
    look();
    // SAFETY: no room is promised, so none is needed.
    let whole = unsafe { alloc::to_buffer(core::ptr::null_mut(), 0) };
    assert!(whole > 500, "{whole}");
    for bytes in [1, 2, 12, 500, whole + 4_096] {
        let mut buffer = vec![0xEE_u8; bytes + 8];
        // SAFETY: the buffer has room for that and more.
        let length = unsafe { alloc::to_buffer(buffer.as_mut_ptr(), bytes) };
        let said = length.min(bytes - 1);
        assert_eq!(buffer[said], 0, "{bytes}: closed");
        assert!(buffer[..said].iter().all(|&byte| byte.is_ascii_graphic()));
        assert!(
            buffer[bytes..].iter().all(|&byte| byte == 0xEE),
            "{bytes}: beyond"
        );
        let begins = b"{\"version\":1";
        assert!(buffer.starts_with(&begins[..said.min(begins.len())]));
        if said == length {
            let text: Value = serde_json::from_slice(&buffer[..said]).expect("JSON");
            assert_eq!(text["balanced"], true);
        }
    }
}
