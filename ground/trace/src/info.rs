//! The contents of a trace beside its events: the process, its threads, modules, marks, and the samples
//! that were read from `/proc` while it ran.

use serde::{Deserialize, Serialize};

use crate::event::ThreadId;

/// The recorded process, its recorder and its machine. Written once, at the start of the trace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessInfo {
    /// Random identity of this trace, 16 hex digits; children name their parent by it.
    pub uid: String,
    /// Kernel process id.
    pub pid: u32,
    /// Process id of the parent.
    pub ppid: u32,
    /// The name of the process (`comm`).
    pub name: String,
    /// The executable's path.
    pub exe: String,
    /// The argument vector; bytes that are not UTF-8 are replaced.
    pub argv: Vec<String>,
    /// Working directory at the start.
    pub cwd: String,
    /// Wall-clock start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The version of Skinflint that recorded it.
    pub recorder_version: String,
    /// The kernel's release and the machine, as `uname` reports them.
    pub system: String,
    /// The allocator beneath the recorder: `glibc 2.36`, `libjemalloc.so.2`, …
    pub allocator: String,
    /// The file that provides `malloc` beneath the recorder.
    pub allocator_path: String,
    /// Size of the kernel's pages in bytes.
    pub os_page_bytes: u64,
    /// How this process came to be, if another recorded process is its origin.
    pub origin: Option<Origin>,
    /// The mean distance of sampled acquisitions, in requested bytes; 0 if every acquisition was recorded, as in traces of
    /// versions before 1.7. An acquisition of n bytes was recorded with the probability 1 − e^(−n/distance), one of the
    /// distance or more always; nothing counts as one byte. All else is recorded whole.
    pub sample_bytes: u64,
    /// What the file begins with, if it is a later segment of a recording whose older segments may be gone.
    pub segment: Option<Segment>,
}

/// What a segment of a bounded recording begins with: what lived, so that it is complete by itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Segment {
    /// Its number; the first of a recording is 0, and has no such record.
    pub number: u64,
    /// Whether the segment before it has all that came between: the two can be read as one.
    pub follows: bool,
    /// When it begins, nanoseconds since the recording began.
    pub since_ns: u64,
    /// The largest ticket of the segments before.
    pub ticket: u64,
    /// The events in this file that say what lived.
    pub events: u64,
    /// The blocks that lived when it began.
    pub blocks: u64,
    /// Their requested bytes.
    pub bytes: u64,
    /// The acquisitions before it that were recorded.
    pub acquired: u64,
    /// Their requested bytes.
    pub acquired_bytes: u64,
    /// The marks made before it; they are not in this file.
    pub marks: u32,
}

/// The recorded process that this one came from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// How this process came from it.
    pub how: OriginKind,
    /// [`ProcessInfo::uid`] of that trace.
    pub uid: String,
    /// Its process id.
    pub pid: u32,
    /// For `Fork`: the parent's events with a ticket below this one had happened; its live blocks
    /// at that point are inherited.
    pub fork_ticket: u64,
}

/// How a process came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// A copy of its parent: it inherits the parent's live blocks.
    Fork,
    /// A new program started by a recorded process: it inherits nothing.
    Spawn,
    /// The same process, a new program (`exec`).
    Exec,
}

/// A loaded object, or one that was loaded earlier.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Module {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The load bias: an address in the file plus this is the address in memory.
    pub bias: u64,
    /// The path as the loader knows it; `[vdso]` for the kernel's object.
    pub path: String,
    /// GNU build id, lower-case hex; empty if the object has none.
    pub build_id: String,
    /// The first stack node that may lie in it: nodes with lower ids belong to what was mapped there before.
    pub first_node: u32,
}

/// A thread, from its first event to its end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Thread {
    /// Kernel thread id.
    pub tid: u32,
    /// Its name, the last one seen.
    pub name: String,
    /// When its first event was recorded, nanoseconds since the trace began.
    pub started_ns: u64,
    /// When it was seen to have ended, nanoseconds since the trace began; `None` if it was not.
    pub ended_ns: Option<u64>,
}

/// A named moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// As given by the program, or `signal N` / `mark N`.
    pub name: String,
    /// When, nanoseconds since the trace began.
    pub time_ns: u64,
    /// Its place in the order of events.
    pub ticket: u64,
    /// The thread that marked; `None` for a mark from outside.
    pub thread: Option<ThreadId>,
}

/// Resident memory at a moment; taken often. Bytes. Values that were not read are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RssSample {
    /// Nanoseconds since the trace began.
    pub time_ns: u64,
    /// No event with a ticket above this one had been published when the sample was begun.
    pub ticket: u64,
    /// `VmRSS`: anonymous + file + shared memory.
    pub rss_bytes: u64,
    /// Anonymous part.
    pub anon_bytes: u64,
    /// File part.
    pub file_bytes: u64,
    /// Shared-memory part; the recorder's own buffers are in here.
    pub shmem_bytes: u64,
    /// The proportional set size, if it was read.
    pub pss_bytes: Option<u64>,
}

/// Why a snapshot was taken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotCause {
    /// Resident memory had not been this high before.
    Peak,
    /// Taken at regular intervals.
    Periodic,
    /// A mark was made; index into [`crate::Trace::marks`].
    Mark(u32),
    /// The program exits, and waited meanwhile: exact.
    Exit,
}

/// Every mapping with its resident memory at a moment: from `smaps` and `pagemap`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Nanoseconds since the trace began.
    pub time_ns: u64,
    /// As in [`RssSample::ticket`].
    pub ticket: u64,
    /// Why it was taken.
    pub cause: SnapshotCause,
    /// How long the reading of the mappings took, nanoseconds: the program may have gone on meanwhile.
    pub took_ns: u64,
    /// Live usable bytes as the recorder itself counted them: to about 16 KiB per thread; may be below 0 if blocks are
    /// older than the recording. `None` if it could not count them, and in traces of versions before 1.3.
    pub counted_bytes: Option<i64>,
    /// Under glibc: the topmost chunks of the arenas (first address, bytes), by address, as `malloc_trim` would find them
    /// once it has emptied the fast bins. `None` if they are not known, and in traces of versions before 1.4.
    pub tops: Option<Vec<(u64, u64)>>,
    /// The mappings, by address.
    pub mappings: Vec<Mapping>,
}

/// A mapping of a snapshot. Figures are bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// As in `smaps`: `rw-p`.
    pub perms: String,
    /// As in `smaps`: a path, `[heap]`, `[stack]`, `[anon:…]`, or empty.
    pub name: String,
    /// What the mapping is; decided when it was sampled.
    pub kind: MappingKind,
    /// `Rss`.
    pub rss_bytes: u64,
    /// `Pss`.
    pub pss_bytes: u64,
    /// `Private_Clean` + `Private_Dirty`.
    pub private_bytes: u64,
    /// `Anonymous`: pages that are not (or no longer) the file's.
    pub anon_bytes: u64,
    /// `Swap`.
    pub swap_bytes: u64,
    /// In huge pages: `AnonHugePages` + `ShmemPmdMapped` + `FilePmdMapped`; `None` if it was not read
    /// (a trace before version 1.2, a kernel without them).
    pub huge_bytes: Option<u64>,
    /// Resident pages as runs (first address, bytes), for writable anonymous mappings; empty if
    /// `pagemap` could not be read, and then [`Mapping::runs_known`] is false.
    pub runs: Vec<(u64, u64)>,
    /// Whether `runs` was read.
    pub runs_known: bool,
}

/// The kind of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingKind {
    /// A file, or a private copy of one.
    File,
    /// `[heap]`: the data segment that `brk` moves.
    Heap,
    /// The stack of the main thread, or of a thread known to the recorder.
    Stack,
    /// Anonymous memory.
    Anon,
    /// Shared memory (`memfd`, `/dev/shm`, `SysV`, shared anonymous).
    Shared,
    /// The recorder's own memory.
    Recorder,
    /// `[vdso]`, `[vvar]`, `[vsyscall]` and anything else.
    #[default]
    Other,
}

/// A process that came out of the recorded one and has no trace of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LostProcess {
    /// Its relation to the recorded process.
    pub what: LostKind,
    /// The kernel's process id, as the collector saw it; 0 if it could not be known.
    pub pid: u32,
    /// Its name; empty if not known.
    pub name: String,
    /// The executable's path; empty if not known.
    pub exe: String,
    /// When it began to be lost, nanoseconds since the trace began.
    pub time_ns: u64,
    /// Why there is no trace.
    pub why: LostWhy,
    /// The largest resident memory that was seen of it, bytes; of a copy that made no heap call ([`LostWhy::Quiet`]) the
    /// largest memory that it had for itself.
    pub max_rss_bytes: Option<u64>,
}

/// So many copies of one process that made no heap call and wrote little are named as lost; further ones are not.
pub const MOST_QUIET_COPIES: usize = 1000;

/// The relation of a lost process to the recorded one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostKind {
    /// A copy (`fork`) that runs the same program: it inherited live blocks, and what it did with them is not known.
    Copy,
    /// A child that runs another program.
    #[default]
    Program,
    /// The recorded process itself, as another program (`exec`): nothing after the `exec` is known, and later samples
    /// of its memory are the other program's.
    Exec,
}

/// Why a process has no trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostWhy {
    /// Not known.
    #[default]
    Unknown,
    /// It could not reach the collector: no descriptor left, a filter of system calls, another root.
    Unreachable,
    /// Its program has no dynamic loader.
    Static,
    /// The loader keeps preloaded libraries out of it: set-user-id, set-group-id, capabilities.
    Privileged,
    /// It was started without the recorder in its environment.
    Environment,
    /// It does not see the recorder's file: chroot, another mount namespace.
    Root,
    /// The collector turned it away.
    Refused,
    /// A copy that made no heap call, which is when the recorder begins.
    Quiet,
    /// The file of its trace could not be made: a full disk, for example.
    Unwritten,
    /// A filter of system calls ended it (SIGSYS), perhaps at the recorder's first call.
    Filter,
    /// It is of another user, who cannot read the recorder's file.
    Unreadable,
}

/// How the recording ended, and what is missing: the last block of a whole trace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ending {
    /// How the process ended.
    pub exit: Exit,
    /// Nanoseconds since the trace began.
    pub time_ns: u64,
    /// The events that were recorded.
    pub events: u64,
    /// Events that could not be recorded, counted by the recorder and the collector.
    pub lost_events: u64,
    /// Stacks whose outermost frames are missing (unwinding stopped early).
    pub truncated_stacks: u64,
    /// What else the reader should know, one sentence each: `disk full after 12 MB: …`.
    pub notes: Vec<String>,
    /// Bytes of memory that the recorder held inside the program at the end: buffers, tables, state.
    pub recorder_bytes: u64,
    /// CPU time of the program (user and system), nanoseconds, as the kernel counted it.
    pub cpu_ns: Option<u64>,
    /// The kernel's high-water mark of resident memory, bytes, if it could be read.
    pub max_rss_bytes: Option<u64>,
    /// Bytes in use by the allocator's own count, right before and right after the snapshot at exit.
    pub in_use_bytes: Option<(u64, u64)>,
    /// Bytes that calls of `read` and its kin took, those of children that it waited for included; only of a process that the
    /// recording started.
    pub read_bytes: Option<u64>,
    /// Bytes given to calls of `write` and its kin, as above.
    pub written_bytes: Option<u64>,
}

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "value")]
pub enum Exit {
    /// Not known: recording stopped first.
    #[default]
    Unknown,
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signal(i32),
    /// It became another program.
    Exec,
    /// It had not ended: the recorder was attached to it, and left it.
    Detached,
}
