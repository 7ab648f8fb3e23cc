//! Object traces: what a garbage-collected heap was asked for, and what died when.
//!
//! ```text
//!   heap's hooks ─► Shared (addresses) ─► Writer (ids) ─► .sfo ─► Reader ─► Event, Event, …
//!                                                    seed ─► Synthetic ─────┘
//! ```
//!
//! A heap that records calls two functions, which fit hooks without a context:
//!
//! ```
//! use skinflint_objects::{Info, Reader, Shared, hooks};
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("app.sfo");
//! let recorder = Shared::create(&path, &Info { program: "host".into(), ..Info::default() })?;
//! hooks::install(recorder);
//! hooks::alloc(0x1000, 40, "object");       // fn(addr, bytes, kind): after the allocation
//! hooks::death(0x1000);                     // fn(addr): before the room is used again
//! let totals = hooks::uninstall().expect("installed above").finish()?;
//! assert_eq!((totals.allocations, totals.deaths), (1, 1));
//! assert_eq!(Reader::open(&path).unwrap().count(), 2);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! O1  Ids are dense and rise with allocation: the nth allocation of a trace has id n, from 0. A death names an id
//!     below the next one.
//! O2  What was written is what is read, in order. Damage costs the blocks that it lies in: they are named, by offset,
//!     and what they had is counted; all other blocks are read.
//! O3  Memory is bounded: the writer holds one block, and the address layer an entry for each live object; the
//!     reader holds one block.
//! O4  No input makes the reader panic, loop, or allocate more than a block may be long.
//!
//! Format: FORMAT.md beside this crate. Not here: what is done with a trace (`free-lists`, `skinflint gc`).

mod block;
pub mod hooks;
mod input;
pub mod profile;
mod read;
mod record;
pub mod synthetic;
mod write;

pub use block::{MAJOR, MINOR};
pub use profile::Profile;
pub use read::{Damage, OpenError, Reader};
pub use record::{Recorder, Shared};
pub use synthetic::{Law, Synthetic};
pub use write::{Totals, Writer};

/// The part of the program that asks for an object's room. The study of free lists has the same three.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Origin {
    /// Compiled code of the program that runs in the runtime.
    GeneratedCode = 0,
    /// The runtime itself.
    #[default]
    Runtime = 1,
    /// The collector, for what it promotes or moves.
    Gc = 2,
}

impl Origin {
    /// All origins.
    pub const ALL: [Origin; 3] = [Origin::GeneratedCode, Origin::Runtime, Origin::Gc];
}

/// A sort of object: an index into the names that a trace carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct KindId(pub u32);

/// An event of an object trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// An object was allocated.
    Alloc {
        /// Its number (O1).
        id: u64,
        /// Bytes asked for.
        bytes: u64,
        /// What kind of object it is.
        kind: KindId,
        /// The part of the program that asked for it.
        origin: Origin,
    },
    /// An object was found dead, or is known to die here.
    Death {
        /// Its number.
        id: u64,
    },
    /// A collection ended here. The deaths of the objects that it found dead follow this event.
    Collection,
}

/// The origin of a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    /// The program that ran.
    pub program: String,
    /// How the trace was made: `recorded`, `imported from …`, `synthetic …`.
    pub source: String,
}
