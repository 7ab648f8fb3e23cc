//! Events: what a program did to its memory, one at a time.
//!
//! ```text
//!   thread 0 ──ticket 0──ticket 1───────────────ticket 5──►
//!   thread 1 ───────────────────ticket 2──ticket 4────────►      order of events = order of tickets
//! ```
//!
//! E1  Tickets are unique within a trace and rise within a thread; only a mark that was made from outside
//!     has the ticket of the event that it follows, and shares it with other such marks. A release (free,
//!     the first half of a realloc, munmap) takes its ticket before the real call, an acquisition after
//!     it, so no address is ever handed out twice without a release between.
//! E2  `ReallocRelease` is followed, in the same thread and before any other heap event of that
//!     thread, by `ReallocAcquire` (success) or `ReallocCancel` (the old block lives on). Between the
//!     two, other threads' events may appear, and may take the released address.
//! E3  `time_ns` is the monotonic clock since the trace began, as of the thread's last time stamp:
//!     it never falls within a thread, and is at most one stamp interval too early. It does not order events.

use serde::{Deserialize, Serialize};

/// The flags of memory that `brk` or `sbrk` took: `MAP_ANONYMOUS` without a type, which `mmap` refuses.
pub const BREAK_FLAGS: u32 = 0x20;

/// Beside the flags of a mapping: it is an arena of an allocator inside of the program, whose blocks are events, too.
pub const ARENA_FLAG: u32 = 1 << 31;
/// With this flag (`MAP_HUGETLB`), the bit above is a part of a size.
const HUGE_FLAG: u32 = 0x40000;

/// Reports whether the flags of a mapping say that it is an arena whose blocks are recorded.
pub fn is_arena(flags: u32) -> bool {
    flags & (ARENA_FLAG | HUGE_FLAG) == ARENA_FLAG
}

/// A stack: a node of the trace's stack tree. 0 is the root, the empty stack.
///
/// A node is one frame (an address) and its caller's node. Ids are dense and a parent's id is
/// always below its child's.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(pub u32);

/// A thread of the recorded process: an index into [`crate::Trace::threads`], not a kernel tid.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ThreadId(pub u32);

/// Which function of the malloc family acquired the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum AllocFn {
    /// `malloc`
    Malloc = 0,
    /// `calloc`; the size is the product.
    Calloc = 1,
    /// `realloc` (also `reallocarray`): `ReallocAcquire`, or an `Alloc` when the old pointer was null.
    Realloc = 2,
    /// `memalign`, `aligned_alloc`, `posix_memalign`
    Memalign = 3,
    /// `valloc`, `pvalloc`
    Valloc = 4,
    /// `operator new` of an allocator that has its own
    New = 5,
    /// `operator new[]` of an allocator that has its own
    NewArray = 6,
}

/// Which function released the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FreeFn {
    /// `free` (also `cfree`)
    Free = 0,
    /// `free_sized`, `free_aligned_sized`
    FreeSized = 1,
    /// `realloc(p, 0)` that released the block
    Realloc = 2,
    /// `operator delete`
    Delete = 3,
    /// `operator delete[]`
    DeleteArray = 4,
}

/// An event, with its number in the order of the whole process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The position in the order of the process (E1).
    pub ticket: u64,
    /// Nanoseconds since the trace began (E3).
    pub time_ns: u64,
    /// The thread that did it.
    pub thread: ThreadId,
    /// What was done.
    pub kind: EventKind,
}

/// The kind of an event, with its data. Sizes and lengths are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A block was acquired.
    Alloc {
        /// The function of the call.
        func: AllocFn,
        /// Its stack; the innermost frame is the caller of the function.
        node: NodeId,
        /// The block.
        addr: u64,
        /// The requested bytes.
        size: u64,
        /// The bytes that may be used, as the allocator reports (`malloc_usable_size`); never below `size`.
        usable: u64,
    },
    /// A block was released. The address may be unknown (acquired before recording, or inherited
    /// over `fork`).
    Free {
        /// The function of the call.
        func: FreeFn,
        /// The block.
        addr: u64,
    },
    /// `realloc` of this block began (E2).
    ReallocRelease {
        /// The old block.
        addr: u64,
    },
    /// `realloc` succeeded (E2).
    ReallocAcquire {
        /// The stack of the call.
        node: NodeId,
        /// The new block, often at the same address.
        addr: u64,
        /// The requested bytes.
        size: u64,
        /// Usable bytes.
        usable: u64,
    },
    /// `realloc` failed; the old block lives on (E2).
    ReallocCancel {
        /// The old block.
        addr: u64,
    },
    /// `mmap` by the program, or by an allocator that calls it through the dynamic linker; or the program's own `brk` or
    /// `sbrk` that took memory.
    Map {
        /// The stack of the call.
        node: NodeId,
        /// Start of the mapping.
        addr: u64,
        /// Length in bytes as asked.
        len: u64,
        /// `prot` as passed.
        prot: u32,
        /// `flags` as passed; [`BREAK_FLAGS`] for memory that `brk` or `sbrk` took; with [`ARENA_FLAG`] for an arena.
        flags: u32,
        /// Whether the call came from inside an allocation function, that is, from the allocator.
        by_allocator: bool,
    },
    /// `munmap`, or the program's own `brk` or `sbrk` that returned memory.
    Unmap {
        /// Start of the range.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// Whether the allocator did it.
        by_allocator: bool,
    },
    /// `mremap` that succeeded; recorded after the call.
    Remap {
        /// The stack of the call.
        node: NodeId,
        /// The old address.
        old_addr: u64,
        /// Its old length in bytes.
        old_len: u64,
        /// The new address.
        new_addr: u64,
        /// Its new length in bytes.
        new_len: u64,
    },
    /// `brk` or `sbrk` through the dynamic linker; the new end of the data segment.
    Brk {
        /// The new break.
        addr: u64,
    },
    /// `madvise`.
    Advise {
        /// Start of the range.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// `MADV_…` as passed.
        advice: u32,
    },
    /// A named moment.
    Mark {
        /// The index into [`crate::Trace::marks`].
        mark: u32,
    },
    /// This process forked; the child has a trace of its own if it touched its heap.
    Fork {
        /// The child's process id.
        child: u32,
    },
}
