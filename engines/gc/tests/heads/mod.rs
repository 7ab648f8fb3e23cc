//! Objects of the core with two edges, for the tests of marking in slices, of one heap and of several.
//!
//! ```text
//!   head(heap, 7, [Some(at(a)), None]) ─► Head { here, 7, edges ─► a, pair }
//! ```
//!
//! H1  A head is used only while it is rooted or another object leads to it; a test that keeps a reference ensures it.
//!
//! Not here: roots and collections, which are what is tested.

use std::cell::Cell;
use std::ptr::NonNull;

use skinflint_gc::{Budget, Config, Finalize, Heap, Kind, Origin, Pair, Tracer};

/// An object of the core: two edges and a pair.
#[repr(C)]
pub struct Head {
    /// Its own address, as it was allocated: a reference may not be used for more than the object.
    pub here: NonNull<Head>,
    /// Its name in the test.
    pub number: u64,
    /// What it leads to.
    pub edges: Cell<[Option<NonNull<Head>>; 2]>,
    /// An ephemeron, if it has a key.
    pub pair: Pair,
}

/// Tells the edges of a head.
///
/// # Safety
/// It is one.
pub unsafe fn trace(object: NonNull<u8>, tracer: &mut Tracer) {
    // SAFETY: the kind of this file is heads.
    let head = unsafe { object.cast::<Head>().as_ref() };
    for edge in head.edges.get().into_iter().flatten() {
        tracer.edge(edge.cast());
    }
    if head.pair.key.get().is_some() {
        tracer.pair(&head.pair);
    }
}

/// Their kind.
pub static KIND: Kind = Kind {
    name: || "head",
    bytes: size_of::<Head>(),
    align: align_of::<Head>(),
    trace: Some(trace),
    trace_part: None,
    finalize: None,
    finalize_on: Finalize::Nothing,
    origin: Origin::User,
};

/// Nothing beside the test's own thread, and everything checked.
pub fn config() -> Config {
    Config {
        background: false,
        verify: true,
        poison: true,
        ..Config::default()
    }
}

/// A new one.
pub fn head<'a>(heap: &Heap, number: u64, edges: [Option<NonNull<Head>>; 2]) -> &'a Head {
    head_of(&KIND, heap, number, edges)
}

/// A new one of a kind that traces as [`KIND`] does, and notes something beside it.
pub fn head_of<'a>(
    kind: &'static Kind,
    heap: &Heap,
    number: u64,
    edges: [Option<NonNull<Head>>; 2],
) -> &'a Head {
    // SAFETY: it is written at once; the tests use it while it is rooted or led to.
    unsafe {
        let object = heap.alloc(kind).expect("memory").cast::<Head>();
        object.write(Head {
            here: object,
            number,
            edges: Cell::new(edges),
            pair: Pair::default(),
        });
        object.as_ref()
    }
}

/// Its address.
pub fn at(head: &Head) -> NonNull<Head> {
    head.here
}

/// A budget of so many edges, whatever the time.
pub fn edges(edges: u64) -> Budget {
    Budget {
        edges,
        ns: u64::MAX,
    }
}
