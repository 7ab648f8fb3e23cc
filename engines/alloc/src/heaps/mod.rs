//! Heaps: what threads and tenants allocate from and free to, and what becomes of a heap when they end or fork.
//!
//! ```text
//!   global ─► malloc, free ─► refill, events ─► spans ─► pool          thread, private, tenant, fork: whose a heap is
//!                    └─ large ─► runs ──────────────────┘                └─ retire, revoke: what it gives up, what is taken
//!   hollow: what remains of a heap that is not in use
//!   nodes: which memory is near      changes, hints: what the purger is to look at
//!   slow: the table by which all of them reach the services
//! ```
//!
//! Not here: what is done beside the calls of the program (`services`).

pub mod cache;
pub mod changes;
pub mod clean;
pub mod emergency;
pub mod events;
pub mod fault;
pub mod fork;
pub mod free;
mod fresh;
pub mod global;
pub mod hints;
pub mod hollow;
pub mod large;
pub mod malloc;
pub mod neighbour;
pub mod nodes;
pub mod pool;
pub mod private;
mod profiled;
mod refill;
pub mod requests;
pub mod retire;
pub mod revoke;
pub mod runs;
pub mod slow;
pub mod spans;
pub mod spare;
pub mod tenant;
pub mod thread;
pub mod tls;
pub mod whole;
