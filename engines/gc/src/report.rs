//! The reporter of a world's heaps: lines of a memory report.
//!
//! ```text
//!   tenant "tab 1" ─► explicit/tenants/user/tab 1/gc/{objects, free, heads, kept}      system ─► …/system/gc/…
//!   source         ─► explicit/gc-source/{chunks-ready, metadata}
//! ```
//!
//! E1  Rows of a heap add up to what it holds ([`crate::Holds`]), with free arenas that may be resident listed beside
//!     them.
//! E2  A world belongs to one thread: it reports there, through `Measurement::also` or `Published`, and never from the
//!     thread of a measurement.
//!
//! Not here: the caller of reports.

use skinflint_reporters::{Owner, Sink, component};

use crate::heap::address::CHUNK_BYTES;
use crate::heap::state::Heap;
use crate::heap::world::World;
use crate::snapshot::chunks::Chunks;
use crate::typed::Runtime;

impl World {
    /// Adds the lines of all heaps; those for which `is_system` holds are the program's own, the others are tenants'.
    /// Cost: a look at the head of each arena.
    ///
    /// # Panics
    /// As of [`Heap::holds`].
    pub fn report(&self, out: &mut Sink<'_>, is_system: impl Fn(&Heap) -> bool) {
        for heap in self.heaps() {
            one(&heap, is_system(&heap), out);
        }
        let counts = self.source().counts();
        let said = "Empty chunks that are kept resident.";
        let ready = counts.ready * CHUNK_BYTES;
        out.nonheap("explicit/gc-source/chunks-ready", ready, said);
        let said = "Tables of the page pool that chunks come from.";
        out.nonheap("explicit/gc-source/metadata", counts.metadata_bytes, said);
    }
}

impl Runtime {
    /// Adds lines of a memory report for all tenants, and for the shared heap (`system`).
    pub fn report(&self, out: &mut Sink<'_>) {
        let shared = self.shared().id();
        self.world().report(out, |heap| heap.id() == shared);
    }
}

fn one(heap: &Heap, is_system: bool, out: &mut Sink<'_>) {
    let holds = heap.holds();
    let owner = match is_system {
        true => Owner::System,
        false => Owner::User(heap.name()),
    };
    let rest = |what: &str| match is_system {
        // The program may have several heaps of its own.
        true => owner.path(&format!("gc/{}/{what}", component(heap.name()))),
        false => owner.path(&format!("gc/{what}")),
    };
    for (what, bytes, said) in [
        (
            "objects",
            holds.cell_bytes,
            "Cells that hold an object, or are being filled.",
        ),
        (
            "free",
            holds.free_bytes + holds.tail_bytes,
            "Free cells of arenas in use, and their ends.",
        ),
        (
            "heads",
            holds.head_bytes,
            "Heads of chunks: marks, allocation bits, records of arenas.",
        ),
        (
            "kept",
            holds.dirty_bytes,
            "Free arenas that may be resident.",
        ),
    ] {
        out.nonheap(&rest(what), bytes, said);
    }
    let name = component(heap.name());
    let chunks = Chunks::of_settled(&[heap]);
    let said = "Megabytes of address space that the heap has for objects.";
    out.count(&format!("gc-chunks/{name}"), chunks.total(), said);
    let said = "Of these, those that one arena of 4 KiB, or one object, keeps.";
    out.count(&format!("gc-lone-chunks/{name}"), chunks.lone_total, said);
    let said = "Objects of the garbage-collected heap.";
    out.count(&format!("gc-objects/{name}"), holds.objects as u64, said);
    let said = "Bytes outside of the heap that its client says its objects hold.";
    out.bytes(
        &format!("gc-client-bytes/{name}"),
        holds.client_bytes as u64,
        said,
    );
}

// The process's own figures come from the kernel by assembly, which Miri does not run.
#[cfg(all(test, not(miri)))]
#[allow(dead_code)] // What the macro makes for programs that use all of it.
mod tests {
    use crate::typed::{Gc, Runtime, Slot};
    use skinflint_reporters::Registry;

    crate::object! { struct Node<'gc> { next: Slot<Gc<'gc, Node<'gc>>>, value: u64 } }

    #[test]
    fn rows_are_those_of_the_heap() {
        let runtime = Runtime::default();
        let tab = runtime.tenant("tab/1", 64 << 20);
        tab.enter(|cx| {
            for value in 0..1000 {
                let next = Slot::new(None);
                assert!(cx.alloc(Node { next, value }).is_ok());
            }
        });
        let registry = Registry::new();
        let mut measured = registry.measure_reporters();
        measured.also("gc", |out| runtime.report(out));
        assert!(measured.faults().is_empty(), "{:?}", measured.faults());
        let holds = tab.heap().holds();
        let sum = measured.sum("explicit/tenants/user/tab\\1/gc") as usize;
        assert_eq!(sum, holds.held_bytes + holds.dirty_bytes);
        assert_eq!(measured.sum("gc-objects/tab\\1") as usize, holds.objects);
        assert!(holds.objects >= 1000);
        assert_eq!(measured.sum("gc-chunks/tab\\1"), 1);
        assert_eq!(measured.sum("gc-lone-chunks/tab\\1"), 0, "ten arenas");
    }

    #[test]
    fn empty_chunks_that_are_kept_are_bytes() {
        let runtime = Runtime::default();
        // Beside sixteen megabytes that are taken, one is kept.
        let mut tabs: Vec<_> = (0..17).map(|_| runtime.tenant("tab", usize::MAX)).collect();
        for tab in &tabs {
            tab.enter(|cx| assert!(cx.alloc(1u64).is_ok()));
        }
        let registry = Registry::new();
        let ready = || {
            let mut measured = registry.measure_reporters();
            measured.also("gc", |out| runtime.report(out));
            measured.sum("explicit/gc-source/chunks-ready")
        };
        assert_eq!(ready(), 0);
        tabs.pop();
        assert_eq!(ready(), 1 << 20);
    }
}
