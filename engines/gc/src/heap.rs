//! The core: a heap of objects by kind, collected with roots that the client knows.
//!
//! ```text
//!   client of the core ─► World ─► Heap ─┬─ alloc ─► space ─► chunks ─► source ─► backing
//!                                        ├─ sweeping ─► sweep          beside it: handover ─► sweeper
//!                                        ├─ client, limit, timer ─► trigger ─► pace
//!                                        └─ incremental ─► collect ─► verify ─► set          (─►: names)
//!                                                                └──────┴────► mark ─► tracer
//! ```
//!
//! What a heap, its world and a marking consist of is in one file (`state`), since these lead to each other; what is
//! done with them is in files above it.
//!
//! Not here: what lies above: snapshots, counted values, the safe side. A heap names none of them: a listener hears
//! edges for snapshots (`listener`), and counted pointers are told to a list (`tracer`).

// What lies where, and what is told of objects.
pub(crate) mod address;
pub(crate) mod bits;
pub(crate) mod kind;
pub mod layout;
pub(crate) mod listener;
pub(crate) mod room;
pub(crate) mod roots;
pub(crate) mod tracer;
pub(crate) mod weak;

// Memory.
#[cfg(not(miri))]
mod backing;
#[cfg(miri)]
mod backing_miri;
mod chunks;
pub(crate) mod shortage;
pub(crate) mod source;
mod space;

// Sweeping an arena, on two threads.
mod handover;
pub(crate) mod sweep;
mod sweeper;
mod sync;

// When.
pub(crate) mod clock;
pub(crate) mod config;
mod interval;
mod machine;
mod pace;
mod stop;
pub mod trigger;

// A heap.
mod alloc;
mod cells;
mod client;
pub(crate) mod counts;
mod limit;
pub(crate) mod state;
mod sweeping;
pub(crate) mod world;

// Collecting.
pub(crate) mod collect;
#[cfg(all(not(miri), target_arch = "x86_64"))]
pub mod conservative;
pub(crate) mod incremental;
pub(crate) mod listen;
mod mark;
pub(crate) mod set;
pub mod timer;
mod verify;

pub use cells::{heap_number, is_marked, mark, unmark};
pub use counts::{Holds, SweepCounts};
pub use pace::Share;
