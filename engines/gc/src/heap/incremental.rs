//! Marking while the program runs, in slices with a bound.
//!
//! ```text
//!   used > begin ─► begin ─► slice ─► slice ─► … ─► Ready ─► finish: client's roots, weak cells ─► sweep as always
//!                              ▲ after a number of bytes taken, or when asked
//!                              └── barrier: an edge that is written is told; so is each new root
//!        used > limit ────────────────────────────────────► finish at once, whatever is left (`forced`)
//! ```
//!
//! I1  Insertion barrier (Dijkstra): while marking is on, an edge that is written into an object is told
//!     ([`Heap::barrier`](crate::Heap::barrier)), or the object is traced again
//!     ([`Heap::changed`](crate::Heap::changed)). So when the last slice ends, no marked and traced object has an edge
//!     to one that is neither marked nor waiting.
//! I2  Objects are allocated unmarked: an object that is made and dropped while marking is on goes with this
//!     collection, and the first edges of an object need no barrier. Objects that only the stack leads to are not
//!     marked, so marking is finished where the stack has no pointers, or where the client tells them.
//! I3  Between slices only the address of an object is remembered: what it owns outside may move. Objects that hold
//!     weak cells or pairs, or have a part whose type lets such be written into it, are noted, and looked at again at
//!     the end.
//! I4  A slice follows a bounded number of edges, and reads the clock after each `CLOCK` of them: it takes as long as
//!     its budget, and the time of tracing `CLOCK` objects more, or parts of objects where their kind tells its edges
//!     in parts (I8). How long one of these takes depends on the client.
//! I5  Marking begins when everything is swept, and ends before anything is swept again: no object ends while it is on.
//! I6  There is at most one marking of a heap; a collection of the heap, alone or with others, gives it up first. Heaps
//!     that are collected together are marked together, by one marking (`marking`).
//! I7  An object that is changed after it was marked is traced again, up to `AGAIN` times; from then on it waits for
//!     the end. Otherwise a list of a million edges that grows at each turn would take all of the marking.
//! I8  An object that is traced in parts is remembered with the place to go on from. The next part comes when
//!     nothing else is left to follow, so the mark stack holds one part of it and not the whole.
//!
//! The source of the idea is Dijkstra, Lamport and others, "On-the-fly garbage collection" (1978). Rejected: a snapshot
//! at the beginning (Yuasa), whose barrier is on what is overwritten: all garbage of the meantime stays for a whole
//! cycle, and each new object is marked; also rejected: allocating objects marked, whose first edges then need a
//! barrier.
//!
//! Files: `table` its settings · `steps` what a slice remembers · `advance` how it goes on from there · `marking` the
//! marking that is on, begin and end · `barrier` · `marked` the worlds of a thread that have one on · `due` what is
//! done when.
//!
//! Not here: the common part of all collections (`collect`), following edges (`mark`).

mod advance;
mod barrier;
mod due;
mod marked;
mod marking;
mod steps;
mod table;

pub use marking::begin_marking;
pub use table::{Budget, Incremental, PART_EDGES, Progress};

pub(crate) use marked::{find_marked, unwatch_writes, watch_writes, writes_are_watched};
pub(crate) use steps::{Note, Steps};
pub(crate) use table::CLOCK;
