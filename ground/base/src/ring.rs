//! The shared memory between a recorded program and the collector.
//!
//! ```text
//!   session page   one per `skinflint run`:  tick; only the collector can write it
//!   notifier       one per `skinflint run`:  wake, notices; every process of the run writes it
//!   region         one per process (more if it has many threads), a memfd of the collector:
//!     [ ProcessHeader | SlotHeader × SLOTS | ring 0 | ring 1 | … | plan ]
//!   ring           words; one thread writes at `tail`, the collector reads at `head`
//!
//!        head ──────► tail                       capacity grows by doubling, only when empty
//!     ···[ words to be read ]···[ free ]···
//! ```
//!
//! R1  Only the thread that owns a slot writes its ring, `tail`, `ticket` and `capacity`; only the
//!     collector writes `head`. `head <= tail <= head + capacity`, all counted in words since the
//!     slot was made.
//! R2  A record never straddles the end of the ring: a `PAD` record fills the rest.
//! R3  `capacity` changes only while `head == tail`, and is published before the next `tail`: the
//!     collector, which reads `tail` first, never reads words with a capacity they were not
//!     written with.
//! R4  Neither side trusts the other with its life: every length is checked by the collector, and
//!     the recorder waits for the collector only for bounded times.
//! R5  All three are memfds whose size is sealed: no process can shrink one, so no access to a mapping faults. The
//!     session page is also sealed against writing, except through the collector's own mapping.
//! R6  Both sides are built from this file; [`LAYOUT`] is checked when they meet.
//!
//! Why these orderings are enough:
//!
//! - A word is written, then `tail` stored (Release); the reader loads `tail` (Acquire), then the
//!   word. So the reader never reads what is not written. The capacity travels the same way (R3).
//! - A word is read, then `head` stored (Release); the writer loads `head` (Acquire), then writes the
//!   word again, or changes the capacity. So the writer never overwrites what is not read, and the reader's
//!   load of the capacity lies before the writer's change of it.
//! - Waiting. The writer loads `drained`, then `head`, stores `waiting`, wakes the collector, and
//!   sleeps while `drained` is what it was. The reader stores `head`, raises `drained`, then looks at
//!   `waiting`. If it raises `drained` before the writer sleeps, the kernel refuses the sleep. If
//!   after, and does not see `waiting` yet — nothing orders its load against the writer's store —
//!   the wake is lost. A fence on both sides would forbid that; the sleep's time-out, which is needed
//!   anyway for a collector that has died, bounds its cost (R4), on a path taken only when the ring
//!   is full.
//!
//! `tests/ring_model.rs` of this crate tries the interleavings of a small ring (`make model-test`), and
//! `tests/ring_threads.rs` runs two threads over millions of records.
//!
//! Not here: what is kept (the trace), and when to drain (the collector decides).

use crate::plan::PLAN_BYTES;
use crate::sync::{AtomicU32, AtomicU64};

mod reader;
mod writer;

pub use reader::{Nonsense, Unread, unread};
pub use writer::{Cursor, Outside, Writer};

/// Version of everything in this file.
pub const LAYOUT: u32 = 14;

/// The first bytes of a hello: `SKFLHELO`.
pub const HELLO_MAGIC: u64 = u64::from_le_bytes(*b"SKFLHELO");

/// The number of threads that one region serves. 16 rings of 256 KiB are 4 MiB of address space, so a
/// program under `ulimit -v` is hardly affected; a program with more threads asks for more regions.
pub const SLOTS: usize = 16;

/// The largest ring, in words: 256 KiB.
pub const RING_WORDS: usize = 32 * 1024;

/// The first capacity of a ring, in words: 16 KiB, so that a thread that does little costs four pages.
pub const FIRST_CAPACITY: u64 = 2 * 1024;

/// The longest record, in words.
pub const RECORD_WORDS: usize = 80;

/// The most frames that one `STACK` record holds.
pub const STACK_CHUNK: usize = 64;

/// The bytes of a mark's name that are kept.
pub const MARK_NAME_BYTES: usize = 128;

/// The bytes of a module's path that are kept.
pub const MODULE_PATH_BYTES: usize = 512;

/// The page that the collector shares with all processes of a run; the processes only read it (R5).
#[repr(C)]
pub struct SessionPage {
    /// Raised by the collector every few milliseconds: a thread that sees a new value writes a time
    /// stamp. It is also the collector's heartbeat.
    pub tick: AtomicU32,
    /// 1 while the collector sleeps, so that the processes do not wake it in vain.
    pub sleeping: AtomicU32,
    /// Process id of the collector, as it sees itself.
    pub collector_pid: AtomicU32,
    /// [`RECORD_ALL`], [`RECORD_RELEASES`] or [`RECORD_NOTHING`]; the collector changes it, the recorder looks at
    /// it at each heap event.
    pub recording: AtomicU32,
    /// Milliseconds for which a thread waits for a snapshot, if that is longer than it would wait otherwise: a look at
    /// the program is under way meanwhile.
    pub patience_ms: AtomicU32,
    /// 1 if the collector looks at the program's pointers: the recorder then reports when the end begins.
    pub looks: AtomicU32,
    /// 1 if small objects of Python are to be recorded as blocks of their own.
    pub objects: AtomicU32,
    /// The mean distance of samples in requested bytes; 0 if every acquisition is recorded. It does not change once a
    /// process has the page.
    pub sample_bytes: AtomicU64,
    /// The seed of what is sampled; 0: each process draws by its own token.
    pub sample_seed: AtomicU64,
}

/// Every event is recorded.
pub const RECORD_ALL: u32 = 0;
/// Recording is stopped for a while: acquisitions are only counted. Releases are recorded, so that it stays known
/// which of the blocks acquired before still live.
pub const RECORD_RELEASES: u32 = 1;
/// Recording has not begun: no block is known that a release could end.
pub const RECORD_NOTHING: u32 = 2;

/// Size of the session page in bytes.
pub const SESSION_BYTES: usize = 4096;

/// The messages of a run's processes to the collector beside their rings, and the futex by which they wake it. It stays
/// mapped in children of fork, whatever they do: leaving a notice needs no descriptor and no system call.
#[repr(C)]
pub struct NotifierPage {
    /// The futex that the collector sleeps on; a thread that wants to wake the collector raises it.
    pub wake: AtomicU32,
    /// Notices that found no room.
    pub missed: AtomicU32,
    /// The index at which the next notice looks for room first.
    pub next: AtomicU32,
    _reserved: u32,
    /// Room for the notices.
    pub notices: [Notice; NOTICES],
}

/// Size of the notifier in bytes.
pub const NOTIFIER_BYTES: usize = 16384;

/// The number of notices that the notifier has room for; the collector empties it every few milliseconds.
pub const NOTICES: usize = 120;

/// The bytes of a path that a notice keeps.
pub const NOTICE_PATH_BYTES: usize = 88;

/// Something that happened to a process outside of its rings.
#[repr(C)]
pub struct Notice {
    /// [`NOTICE_FREE`], [`NOTICE_WRITTEN`] while a process writes it, [`NOTICE_WHOLE`] until the collector has read it.
    pub state: AtomicU32,
    /// One of the `NOTICE_` kinds, and perhaps [`NOTICE_WITHOUT_US`].
    pub kind: AtomicU32,
    /// The id of the process that the notice is about, as that process or its parent sees it.
    pub pid: AtomicU32,
    _reserved: u32,
    /// The token of the process, or of the process that it came from.
    pub token: AtomicU64,
    /// Monotonic nanoseconds, taken before the event happened.
    pub time_ns: AtomicU64,
    /// The program's path, zero-padded: eight bytes a word.
    pub path: [AtomicU64; NOTICE_PATH_BYTES / 8],
}

/// State of a notice: the room is free.
pub const NOTICE_FREE: u32 = 0;
/// State of a notice: it is being written.
pub const NOTICE_WRITTEN: u32 = 1;
/// State of a notice: it can be read.
pub const NOTICE_WHOLE: u32 = 2;

/// A child of fork had something to record and could not reach the collector.
pub const NOTICE_LOST: u32 = 1;
/// The process is about to become another program.
pub const NOTICE_EXEC: u32 = 2;
/// The process did not become another program: `exec` returned.
pub const NOTICE_STAYED: u32 = 3;
/// A child was started as another program (`posix_spawn`).
pub const NOTICE_SPAWN: u32 = 4;
/// A child of fork is about to say hello, with the time of this notice: if it never does, it did not survive that.
pub const NOTICE_MEETS: u32 = 5;
/// Flag beside the kind: a filter of system calls would end the new program at its hello, which it is kept from.
pub const NOTICE_FILTERED: u32 = 1 << 9;
/// Flag beside the kind: the new program's environment is without the recorder.
pub const NOTICE_WITHOUT_US: u32 = 1 << 8;

/// The header at the start of a process's first region.
#[repr(C)]
pub struct ProcessHeader {
    /// [`LAYOUT`] once the process records; 0 if it said hello and could not begin.
    pub layout: AtomicU32,
    _reserved: u32,
    /// Snapshots asked for so far; the recorder raises it.
    pub snapshot_asked: AtomicU32,
    /// Snapshots done so far; the collector raises it to the number asked for, and wakes the threads that wait.
    pub snapshot_done: AtomicU32,
    /// Why the newest snapshot was asked for: [`SNAPSHOT_EXIT`], [`SNAPSHOT_LOOK`] or the index of a mark.
    pub snapshot_cause: AtomicU32,
    /// The index of the next mark; both sides take indices from it.
    pub next_mark: AtomicU32,
    /// Memory that the recorder mapped inside the program, in bytes (rings excluded).
    pub recorder_bytes: AtomicU64,
    /// Events that were lost because no ring could take them.
    pub lost_events: AtomicU64,
    /// Acquisitions made while the same thread was inside the allocator (signal handlers).
    pub nested_events: AtomicU64,
    /// Threads that got no slot.
    pub unserved_threads: AtomicU64,
    /// The address at which the program's frames begin on the stack of the thread that waits for a snapshot, the saved
    /// callee-saved registers included; 0 while no thread waits.
    pub look_stack: AtomicU64,
    /// 0, or why the recorder stopped early: [`GAVE_UP_SILENCE`] or [`GAVE_UP_FILTER`].
    pub gave_up: AtomicU32,
    /// 1 if usable sizes are read from glibc's chunk headers.
    pub glibc_fast: AtomicU32,
    /// Bytes in use by the allocator's own count, asked right before the snapshot at exit; 0 if it was not asked.
    pub in_use_before: AtomicU64,
    /// Bytes in use by the allocator's own count, asked again right after that snapshot.
    pub in_use_after: AtomicU64,
    /// Snapshots asked for because the live heap is about to fall from its greatest; the recorder raises it.
    pub high_water_asked: AtomicU32,
    /// Such snapshots answered so far; the collector raises the count to [`ProcessHeader::high_water_asked`], and wakes the threads
    /// that wait.
    pub high_water_done: AtomicU32,
    /// Threads that were kept from the recorder, as a filter of system calls would have ended the program there.
    pub filtered_threads: AtomicU64,
    /// Live usable bytes as the recorder counts them, plus [`COUNTED_FROM`]; 0 while it does not count.
    pub counted: AtomicU64,
    /// The time of the newest request for a snapshot, monotonic nanoseconds; the recorder writes it before it raises
    /// [`ProcessHeader::snapshot_asked`].
    pub asked_ns: AtomicU64,
    /// Modules that were opened past us and call the C library's allocator, while we stand in front of another one.
    pub deep_modules: AtomicU64,
    /// Of a program with an interpreter in it: [`FRAMES_READ`], or why its frames are not read: a number of
    /// `skinflint_frames::Refusal`, or one of the `FRAMES_` reasons; plus [`FRAMES_OF_RUBY`] or [`FRAMES_OF_PHP`] if it is no
    /// Python. 0 for other programs.
    pub frames: AtomicU32,
    /// The version of Python, as its `Py_Version` has it; before 3.11 the minor version alone, 0 before 3.9; of
    /// others three numbers, a byte each.
    pub frames_version: AtomicU32,
    /// Captures whose frames of Python were not read: in signal handlers, on other stacks, too deep.
    pub frames_unread: AtomicU64,
    /// [`OBJECTS_RECORDED`], or one of the `OBJECTS_` reasons; 0 if objects of Python were not asked for, or there is none.
    /// [`OBJECTS_ZEND`] in a PHP, whatever was asked for.
    pub objects: AtomicU32,
    /// Of a program that an allocator is linked into: [`LINKED_HOOKED`], or why the plan for it was not carried out, one of
    /// the other `LINKED_` reasons. 0 for other programs.
    pub linked: AtomicU32,
    /// Calls of functions of these allocators, and of those in libraries, whose effects are not recorded.
    pub linked_unseen: AtomicU64,
    /// The same as `linked` of the plans for libraries, by the numbers that the collector gave them.
    pub modules: [AtomicU32; MOST_MODULES],
    /// Of a Go program that calls C: where its runtime passes from Go's stacks to C's (`skinflint_frames::Crossing`). The
    /// collector writes it before it answers the first hello; zeros for other programs.
    pub crossing: [AtomicU64; CROSSING_WORDS],
}

/// The words of [`ProcessHeader::crossing`].
pub const CROSSING_WORDS: usize = 6;

/// The most libraries of a process whose allocators are hooked.
pub const MOST_MODULES: usize = 16;

/// The functions of the allocators that the program is linked with are hooked.
pub const LINKED_HOOKED: u32 = 1;
/// The code in memory is not what the plan expects.
pub const LINKED_OTHER_CODE: u32 = 2;
/// There is no free memory near the code.
pub const LINKED_NO_ROOM: u32 = 3;
/// The kernel does not let code be changed.
pub const LINKED_FORBIDDEN: u32 = 4;
/// The recorder came into a running program.
pub const LINKED_ATTACHED: u32 = 5;
/// The plan is none.
pub const LINKED_NONSENSE: u32 = 6;

/// What a code of Ruby says instead of a version of Python: a frame's unit is its line.
pub const CODE_RUBY: u32 = 0x1_0000;
/// The same of PHP; in the place of its line table is the name of its class.
pub const CODE_PHP: u32 = 0x2_0000;
/// The same of Java, with the version of its machine in the lower 16 bits: its table of lines is compressed as that version does.
pub const CODE_JAVA: u32 = 0x3_0000;
/// Added to [`ProcessHeader::frames`] if it speaks of Ruby, or of another.
pub const FRAMES_OF_RUBY: u32 = 1000;
/// See [`FRAMES_OF_RUBY`].
pub const FRAMES_OF_PHP: u32 = 2000;
/// See [`FRAMES_OF_RUBY`].
pub const FRAMES_OF_JAVA: u32 = 3000;

/// Frames of Python are read.
pub const FRAMES_READ: u32 = 100;
/// The recorder came into a running program.
pub const FRAMES_ATTACHED: u32 = 101;
/// Python was opened when the program ran.
pub const FRAMES_LATE: u32 = 102;

/// Small objects of Python are recorded.
pub const OBJECTS_RECORDED: u32 = 100;
/// The functions by which an allocator can be replaced are not there, or this Python is too old.
pub const OBJECTS_CLOSED: u32 = 1;
/// The recorder came into a running program, or Python was opened when the program ran.
pub const OBJECTS_LATE: u32 = 2;
/// An arena could not be told from other memory.
pub const OBJECTS_ARENA: u32 = 3;
/// Python has its objects from mimalloc: it is free-threaded, or was told so.
pub const OBJECTS_MIMALLOC: u32 = 4;
/// Of PHP: what it serves from chunks of its own is in no block.
pub const OBJECTS_ZEND: u32 = 5;

/// The recorder stopped because the collector did not answer.
pub const GAVE_UP_SILENCE: u32 = 1;
/// The recorder stopped because a filter of system calls would have ended the program.
pub const GAVE_UP_FILTER: u32 = 2;

/// The value at which the recorder's count of live bytes begins, so that it cannot fall below zero when blocks that
/// are older than the recording are released.
pub const COUNTED_FROM: u64 = 1 << 62;

/// Cause of a snapshot at exit.
pub const SNAPSHOT_EXIT: u32 = u32::MAX;
/// Cause of a request that is no snapshot: the end begins, and pointers are looked at before destructors run.
pub const SNAPSHOT_LOOK: u32 = u32::MAX - 1;

/// State of a slot: no thread owns it.
pub const SLOT_FREE: u32 = 0;
/// State of a slot: a thread writes to it.
pub const SLOT_ACTIVE: u32 = 1;
/// State of a slot: its thread is about to end, and may still write.
pub const SLOT_ENDING: u32 = 2;

/// Packs a slot's state and its thread's kernel id into one word.
pub const fn owner(state: u32, tid: u32) -> u64 {
    (state as u64) << 32 | tid as u64
}

/// The header of one ring. The two sides write to different cache lines.
#[repr(C, align(64))]
pub struct SlotHeader {
    /// Words written since the slot was made (R1).
    pub tail: AtomicU64,
    /// Ticket of the newest event in the ring.
    pub ticket: AtomicU64,
    /// Words that the ring uses, a power of two (R3).
    pub capacity: AtomicU64,
    /// State in the upper half ([`SLOT_FREE`], [`SLOT_ACTIVE`], [`SLOT_ENDING`]), kernel id of the
    /// thread in the lower: a slot is taken over in one step.
    pub owner: AtomicU64,
    /// 1 while the thread waits for room.
    pub waiting: AtomicU32,
    /// Acquisitions of the slot's threads while recording was stopped; only the owner raises it.
    pub unseen: AtomicU64,
    /// Lowest address of the thread's alternate signal stack, which may be known to the kernel only; 0 for none.
    pub alternate_stack: AtomicU64,
    _line: [u64; 0],
    /// Words read since the slot was made (R1).
    pub head: Reader,
}

/// The collector's half of a slot, on a cache line of its own.
#[repr(C, align(64))]
pub struct Reader {
    /// Words read since the slot was made.
    pub words: AtomicU64,
    /// Raised with every drain; futex for a thread that waits for room.
    pub drained: AtomicU32,
}

impl SlotHeader {
    /// Creates the header of a slot without an owner or a capacity: what zeroed memory means. The
    /// collector's regions are zeroed; this is for tests.
    pub fn new() -> SlotHeader {
        SlotHeader {
            tail: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            owner: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            unseen: AtomicU64::new(0),
            alternate_stack: AtomicU64::new(0),
            _line: [],
            head: Reader {
                words: AtomicU64::new(0),
                drained: AtomicU32::new(0),
            },
        }
    }
}

impl Default for SlotHeader {
    fn default() -> SlotHeader {
        SlotHeader::new()
    }
}

const HEADERS_BYTES: usize = 4096;
// Loom's atomics are larger than words.
#[cfg(not(loom))]
const _: () = assert!(size_of::<ProcessHeader>() <= 1024);
#[cfg(not(loom))]
const _: () = assert!(size_of::<NotifierPage>() <= NOTIFIER_BYTES);
#[cfg(not(loom))]
const _: () = assert!(SLOTS_OFFSET + SLOTS * size_of::<SlotHeader>() <= HEADERS_BYTES);
const _: () = assert!(RING_WORDS.is_power_of_two() && FIRST_CAPACITY.is_power_of_two());
const _: () = assert!(RECORD_WORDS > STACK_CHUNK + 1);
const _: () = assert!(RECORD_WORDS > 8 + MODULE_PATH_BYTES / 8);
const _: () = assert!(RECORD_WORDS > 1 + CODE_PIECE_BYTES / 8);

/// Offset of the slot headers in a region, in bytes.
pub const SLOTS_OFFSET: usize = 1024;

/// Returns the offset of ring `slot` in a region, in bytes.
pub const fn ring_offset(slot: usize) -> usize {
    HEADERS_BYTES + slot * RING_WORDS * 8
}

/// Offset of the plan in a region, in bytes: words, the first of which is the number of hooks. The collector writes it
/// before it answers a process's first hello, and the recorder reads it once.
pub const PLAN_OFFSET: usize = ring_offset(SLOTS);

/// Size of a region, in bytes.
pub const REGION_BYTES: usize = PLAN_OFFSET + PLAN_BYTES;

/// The first message of a process to the collector.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Hello {
    /// [`HELLO_MAGIC`].
    pub magic: u64,
    /// [`LAYOUT`].
    pub layout: u32,
    /// [`HELLO_PROCESS`], [`HELLO_REGION`] or [`HELLO_MODULE`].
    pub kind: u32,
    /// For `HELLO_REGION` and `HELLO_MODULE`: the token that the process was given. For `HELLO_PROCESS` after a fork:
    /// the token of the parent. Else 0.
    pub token: u64,
    /// For `HELLO_MODULE`: an address in the library's code.
    pub module: u64,
    /// After a fork: the parent's tickets below this one were taken.
    pub fork_ticket: u64,
    /// Monotonic nanoseconds.
    pub time_ns: u64,
    /// Where the real `malloc` lives, zero-terminated.
    pub allocator_path: [u8; 256],
    /// What libc says of its version, zero-terminated.
    pub libc_version: [u8; 32],
}

/// The flags of a `MAP` record of memory that `brk` or `sbrk` took: `MAP_ANONYMOUS` without a type, which `mmap` refuses.
pub const BREAK_FLAGS: u64 = 0x20;

/// Beside the flags of a `MAP` record: an arena whose blocks are recorded one by one. `mmap` gives the bit a meaning
/// with `MAP_HUGETLB` only.
pub const ARENA_FLAG: u64 = 1 << 31;

/// A process begins.
pub const HELLO_PROCESS: u32 = 1;
/// A process needs room for more threads.
pub const HELLO_REGION: u32 = 2;
/// A library that may have an allocator is about to begin. The answer's region has the plan for it and nothing else, its
/// token is the library's number; it is refused if nothing is to be hooked.
pub const HELLO_MODULE: u32 = 3;

/// The collector's answer; the session page, the notifier and a region come with it as descriptors, in this order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Welcome {
    /// [`HELLO_MAGIC`].
    pub magic: u64,
    /// The process's token.
    pub token: u64,
    /// 0, or an error number: nothing will be recorded.
    pub refused: u64,
}

/// Tags of records: the top byte of a record's first word.
///
/// `E` marks events: each takes the ticket after its predecessor's in the ring, unless a `TICKET`
/// record stands before it. Addresses have 48 bits.
pub mod tag {
    /// `words`: the number of words to skip, this one included (R2).
    pub const PAD: u8 = 0;
    /// flags 8 | count 24 | keep 24, then `count` return addresses, outermost first: the thread's new
    /// stack is its first `keep` frames and these. An address with the bit [`super::USER`] is a frame of an
    /// interpreter: slot of its code 38 | one more than the instruction, in code units 24.
    pub const STACK: u8 = 1;
    /// E: func 8 | address 48; size 32 | usable − size 32, or, with [`super::WIDE`], size, usable.
    pub const ALLOC: u8 = 2;
    /// E: func 8 | address 48.
    pub const FREE: u8 = 3;
    /// E: address 48.
    pub const REALLOC_RELEASE: u8 = 4;
    /// E: as `ALLOC`.
    pub const REALLOC_ACQUIRE: u8 = 5;
    /// E: address 48.
    pub const REALLOC_CANCEL: u8 = 6;
    /// The ticket of the next event, 56 bits.
    pub const TICKET: u8 = 7;
    /// Monotonic nanoseconds, 56 bits.
    pub const TIME: u8 = 8;
    /// E: by-allocator 8 | address 48; length; prot 32 | flags 32.
    pub const MAP: u8 = 9;
    /// E: by-allocator 8 | address 48; length.
    pub const UNMAP: u8 = 10;
    /// E: old address 48; old length; new address; new length.
    pub const REMAP: u8 = 11;
    /// E: address 48.
    pub const BRK: u8 = 12;
    /// E: address 48; length; advice.
    pub const ADVISE: u8 = 13;
    /// E: bytes 8 | index 32, then the name.
    pub const MARK: u8 = 14;
    /// E: process id 32.
    pub const FORK: u8 = 15;
    /// The number of events of this thread that were lost here.
    pub const LOST: u8 = 16;
    /// A loaded object was met: build-id bytes 8 | path bytes 48; start; end; bias; build id
    /// (4 words); path.
    pub const MODULE: u8 = 17;
    /// The object that began at this address is no longer there.
    pub const MODULE_GONE: u8 = 18;
    /// A thread takes over the slot: tid 32; stack low; stack high; monotonic nanoseconds.
    pub const THREAD: u8 = 19;
    /// The recorder mapped memory for itself: address 48; length.
    pub const OWN: u8 = 20;
    /// The name of the thread, which is about to end: bytes 8, then two words of name.
    pub const NAME: u8 = 21;
    /// A piece of what is copied of a code into one of the thread's slots: [`super::CODE_FIRST`] and
    /// [`super::CODE_LAST`] 8 | slot 32 | bytes 16, then the bytes. The pieces of a code, one after another, are the
    /// 32-bit numbers minor version, first line, bytes of the file, of the name and of the table, and bytes of a
    /// character of the file (8 bits), of the name (8 bits), and bytes of the class (16 bits); then file, name, table and
    /// class.
    pub const CODE: u8 = 22;
}

/// Bit of a `STACK` record: the outermost frames are missing.
pub const STACK_TRUNCATED: u64 = 1 << 48;

/// Bit of a word of a `STACK` record: a frame of an interpreter. No address of a program has it.
pub const USER: u64 = 1 << 62;

/// Returns the word of a frame of an interpreter.
#[inline(always)]
pub const fn user_word(slot: usize, unit: u32) -> u64 {
    USER | (slot as u64) << 24 | (unit & 0xff_ffff) as u64
}

/// Bit of a `CODE` record: the first piece.
pub const CODE_FIRST: u8 = 1;
/// Bit of a `CODE` record: the last piece.
pub const CODE_LAST: u8 = 2;
/// The bytes before the texts of a code.
pub const CODE_HEAD_BYTES: usize = 24;
/// The most bytes of a piece of a code.
pub const CODE_PIECE_BYTES: usize = 512;

/// Bit 7 of the function byte of `ALLOC`: both sizes have a word of their own.
pub const WIDE: u8 = 0x80;

/// Low 48 bits: an address.
pub const ADDRESS: u64 = (1 << 48) - 1;

/// Returns the first word of a record.
#[inline(always)]
pub const fn word(tag: u8, byte: u8, low: u64) -> u64 {
    (tag as u64) << 56 | (byte as u64) << 48 | (low & ADDRESS)
}

/// Low 56 bits: a ticket or a time.
pub const LONG: u64 = (1 << 56) - 1;

/// Returns the first word of a `TICKET`, `TIME` or `LOST` record, whose value has 56 bits (two
/// years of nanoseconds).
#[inline(always)]
pub const fn long_word(tag: u8, value: u64) -> u64 {
    (tag as u64) << 56 | (value & LONG)
}

/// Returns the words of the record that begins with `first`, that word included; `None` for an unknown tag.
#[inline]
pub fn record_words(first: u64) -> Option<usize> {
    let byte = (first >> 48) as u8;
    Some(match (first >> 56) as u8 {
        tag::PAD => (first & ADDRESS).max(1) as usize,
        tag::STACK => 1 + (first >> 24 & 0xff_ffff) as usize,
        tag::ALLOC | tag::REALLOC_ACQUIRE if byte & WIDE != 0 => 3,
        tag::ALLOC | tag::REALLOC_ACQUIRE | tag::UNMAP | tag::OWN => 2,
        tag::FREE | tag::REALLOC_RELEASE | tag::REALLOC_CANCEL | tag::TICKET | tag::TIME => 1,
        tag::BRK | tag::FORK | tag::LOST | tag::MODULE_GONE => 1,
        tag::MAP | tag::ADVISE | tag::NAME => 3,
        tag::REMAP | tag::THREAD => 4,
        tag::MARK => 1 + (byte as usize).div_ceil(8),
        tag::MODULE => 8 + ((first & 0xffff) as usize).div_ceil(8),
        tag::CODE => 1 + ((first & 0xffff) as usize).div_ceil(8),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_sides_of_a_slot_are_on_different_cache_lines() {
        let head = core::mem::offset_of!(SlotHeader, head);
        assert_eq!(head % 64, 0);
        assert!(core::mem::offset_of!(SlotHeader, waiting) + 4 <= head);
    }

    #[test]
    fn lengths_of_records() {
        assert_eq!(record_words(word(tag::PAD, 0, 7)), Some(7));
        assert_eq!(record_words(word(tag::PAD, 0, 0)), Some(1));
        assert_eq!(record_words(word(tag::STACK, 0, 3 << 24 | 9)), Some(4));
        assert_eq!(record_words(word(tag::STACK, 1, 3 << 24 | 9)), Some(4));
        assert_eq!(record_words(word(tag::ALLOC, 1, 0x7fff_0000_1234)), Some(2));
        assert_eq!(record_words(word(tag::ALLOC, 1 | WIDE, 0x1234)), Some(3));
        assert_eq!(record_words(word(tag::MARK, 9, 4)), Some(3));
        assert_eq!(record_words(word(tag::MODULE, 20, 17)), Some(11));
        assert_eq!(record_words(word(tag::CODE, 3, 7 << 16 | 9)), Some(3));
        assert_eq!(record_words(u64::MAX), None);
    }
}
