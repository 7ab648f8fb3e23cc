//! The trace: a file that holds everything a program did to its memory.
//!
//! ```text
//!   Event ─► EventEncoder ─► RawBlock ─► Writer ─► .sft ─► Trace ─► Events ─► Event, by ticket
//!                   process, nodes, modules, threads, marks, rss, snapshots, ending ─► Trace's fields
//! ```
//!
//! L1  What was written is what is read, event for event, in the order of tickets over all threads.
//! L2  A cut or damaged file is read up to, and past, the damage; what is missing is reported.
//! L3  No input makes this crate panic, loop, or allocate more than a small multiple of the file.
//!
//! Format: FORMAT.md beside this crate. Not here: recording, analysis, names of functions.
pub mod encode;
pub mod event;
pub mod info;
mod kinds;

mod block;
mod codes;
mod decode;
mod follow;
mod look;
mod merge;
mod meta;
mod model;
mod nodes;
mod read;
mod search;
mod segments;
mod source;
mod write;

pub use block::{MAJOR, MINOR};
pub use codes::{Code, GO_CODE, JAVA_CODE, PHP_CODE, RUBY_CODE, USER_CODE, code_of, user_code};
pub use encode::{EventEncoder, RawBlock};
pub use event::{
    ARENA_FLAG, AllocFn, BREAK_FLAGS, Event, EventKind, FreeFn, NodeId, ThreadId, is_arena,
};
pub use follow::Follower;
pub use info::*;
pub use kinds::Kind;
pub use look::{
    Look, LookCause, LookRegion, LookRegister, PointerEncoder, Pointers, REGISTERS, RegionKind,
};
pub use merge::{Events, RUN};
pub use read::{OpenError, Trace};
pub use segments::{older_segments, segment_path};
pub use source::Damage;
pub use write::{DEFAULT_LEVEL, Sink, Writer};
