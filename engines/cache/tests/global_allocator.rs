//! Caches and reporters in a program with our allocator as its `#[global_allocator]`: it is found without being named.
//!
//! ```text
//!   Cache ─► HeapBytes ─► base::hook ◄─ skinflint_alloc      malloc is glibc's all the while, and is not asked
//! ```
//!
//! Not here: the same under libskinflint.so (`fill`), other allocators (`reporters/tests/global_allocator`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skinflint_cache::bus::Options;
use skinflint_cache::{Arena, Buf, Bus, Cache, HeapBytes, Level};
use skinflint_reporters::{Registry, Sink};

#[global_allocator]
static HEAP: skinflint_alloc::Skinflint = skinflint_alloc::Skinflint;

/// The tests run one after the other: one of them judges what all of the process holds.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_cache_counts_blocks_of_the_global_allocator() {
    let _alone = alone();
    let text: Arc<Cache<u32, Vec<u8>>> = Cache::named("text").limit_bytes(1 << 20).build();
    for key in 0..20 {
        assert_eq!(text.get_or_make(key, |_| vec![7; 1000]).len(), 1000);
    }
    let block = vec![7u8; 1000];
    // SAFETY: a live block of this allocator.
    let given = unsafe { skinflint_alloc::usable_size(block.as_ptr()) };
    assert!(given > 1000, "{given}");
    assert_eq!(block.heap_bytes(), given);
    let mut entries = 0;
    text.each(|_, value| entries += value.heap_bytes());
    assert_eq!(entries, 20 * given);
    assert!(text.bytes() > entries, "its tables are counted, too");
    let registry = Registry::new();
    let (held, bytes) = (Arc::clone(&text), text.bytes());
    registry
        .add("text", move |out: &mut Sink<'_>| {
            out.heap("explicit/text", held.bytes(), "Text.");
            out.heap("explicit/block", block.heap_bytes(), "A block.");
        })
        .keep();
    let measured = registry.measure_reporters();
    assert_eq!(measured.sum("explicit"), (bytes + given) as i64);
    // The whole: `heap-allocated` is that allocator's, so no more is claimed than there is.
    assert_eq!(skinflint_reporters::heap::name(), "skinflint_alloc");
    let measured = registry.measure();
    assert!(measured.faults().is_empty(), "{:?}", measured.faults());
    let allocated = measured.sum("heap-allocated");
    assert!(allocated > (bytes + given) as i64, "{allocated}");
    assert!(allocated < 2 << 20, "{allocated}");
    assert_eq!(measured.sum("resident-by-kind"), measured.sum("resident"));
}

#[test]
fn buffers_and_arenas_fill_what_it_gives() {
    let _alone = alone();
    let mut buf: Buf<u8> = Buf::with_capacity(1000);
    buf.push(1);
    // SAFETY: a live block of this allocator.
    let given = unsafe { skinflint_alloc::usable_size(buf.as_slice().as_ptr()) };
    assert_eq!((buf.usable_bytes(), buf.slop_bytes()), (given, 0));
    let arena = Arena::new();
    arena.copy_str("kept");
    assert_eq!(arena.slop_bytes(), 0);
}

#[test]
fn the_bus_gives_back_what_it_frees() {
    let _alone = alone();
    let options = Options {
        stalls: false,
        groups: false,
        ..Options::default()
    };
    let bus = Bus::start(options).expect("a bus");
    assert_eq!(bus.trim(), "skinflint_alloc's, malloc_trim");
    let large: Arc<Cache<u32, Vec<u8>>> = Cache::named("large").limit_bytes(64 << 20).build();
    bus.join(&large);
    for key in 0..20_000 {
        large.get_or_make(key, |_| vec![7; 1000]);
    }
    let event = bus
        .press(Level::Critical, Duration::from_secs(60))
        .expect("an answer");
    assert!(event.rows[0].dropped_bytes > 20_000_000, "{event}");
    assert!(event.came_back_bytes() > 18_000_000, "{event}");
}
