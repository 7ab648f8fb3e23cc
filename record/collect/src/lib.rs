//! The collector: it lives in the `skinflint` process, beside the recorded program, and turns what
//! the recorder writes into shared memory into trace files.
//!
//! ```text
//!            acceptor ─ a process says hello: region, token
//!                │
//!   rings ──► drain ─ decode, stack tree, encode ──► writer ─ compress, write `.sft`
//!                │ snapshot wanted                      ▲
//!                └──► sampler ─ /proc: RSS, smaps ──────┘
//!   control ─ start, stop, mark, snapshot, status: `skinflint ctl`
//! ```
//!
//! C1  Everything that can be done outside of the program is done here: a program that is killed
//!     loses nothing that it had published.
//! C2  What comes from the program's memory is never trusted: it is copied first, and every length
//!     is checked.
//! C3  The program never waits for a disk that fails: events are counted instead. It does wait for a slow
//!     disk, once the queue and its rings are full, and gives up when nothing moves for seconds.
//! C4  Threads meet only through the queues drawn above and through [`process::Process`].
//!
//! Not here: the recorder (record-so), the file format (trace), starting the program (cli).

mod alarm;
mod allocator;
mod arrivals;
mod bounds;
mod codes;
pub mod control;
mod counted;
mod descent;
mod dividing;
mod drain;
pub mod elf;
mod falls;
mod folder;
mod frames;
mod go;
mod held;
mod hotspot;
mod kin;
mod kinds;
mod libraries;
mod linked;
mod live;
mod look;
mod mappings;
mod memory;
mod modules;
mod names;
mod output;
mod outside;
mod process;
mod remote;
mod sample;
mod sampler;
mod segments;
mod served;
mod server;
mod session;
mod stream;
mod system;
mod tops;
mod tree;
mod triggers;
mod turning;
mod v8;

pub use bounds::{Bounds, move_on};
pub use go::GoProgram;
pub use held::{Held, Watched};
pub use output::{Recorded, plain_name};
pub use sample::Sample;
pub use served::ProfileUrl;
pub use server::LateSockets;
pub use session::{ChildEnd, Options, Session, Watcher, WeakWatcher};
pub use triggers::{Trigger, time};
