//! The report: what `skinflint report --json` prints and what every view reads.
//!
//! M1  Every number of bytes or blocks belongs to one instant ([`Report::instants`]) or to the whole
//!     run ("cumulative"); its field says which.
//! M2  The rows of [`Books`] add up to `resident_bytes`, exactly.
//! M3  Frames are given once, in [`Report::frames`]; a stack is a node of [`Report::nodes`], a tree
//!     whose parents come before their children and whose node 0 is the empty stack.
//! M4  [`Report::sites`] covers everything: sums over sites equal the totals; and those over
//!     [`Report::mappers`] what the rows `program-maps`, `program-files` and `shared` of the instant's books have of
//!     stacks.
//! M5  [`Report::windows`] has an edge at each instant that was reached, where its
//!     sums are the instant's figures, and those by site are the site's.

mod claim;
mod finding;
mod reachability;

use serde::{Deserialize, Serialize};

pub use claim::{Claim, Leaving, Print};
pub use finding::HOLDER_CHANGE;
pub use finding::{
    Confidence, Finding, FindingKind, GREW_ONCE, GREW_UNBROKEN, GrowthPolicy, GrowthWhatIf,
    RELEASED_IN_THE_END,
};
pub use reachability::{ReachSum, Reachability, UnreachedRow};

/// Version of this schema; a reader refuses another major version.
pub const SCHEMA: u32 = 1;

/// The report on one recorded process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of Skinflint that made the report.
    pub analysed_by: String,
    /// The process.
    pub program: Program,
    /// How complete the trace is: the first line of every view.
    pub completeness: Completeness,
    /// What every view says before its tables: the parts of resident memory, what would go back, what holds most.
    /// Empty if no snapshot belongs to the report's instant.
    pub verdict: String,
    /// Counts over the whole run.
    pub totals: Totals,
    /// The moments for which there are figures. The end is always among them, and the peak if resident memory
    /// was sampled; then come the largest live heap and the marks; last, if there are such, the moment after
    /// the largest fall and the one at which the allocator keeps most.
    pub instants: Vec<Instant>,
    /// Index of the instant that the report is about (`--at`); sites, sizes and findings are as of it.
    pub at: usize,
    /// Findings: changes to make, largest saving first.
    pub findings: Vec<Finding>,
    /// One row for each stack that acquired anything.
    pub sites: Vec<Site>,
    /// One row for each stack that mapped memory itself, with `mmap`, of which some is still mapped at the
    /// instant.
    pub mappers: Vec<Mapper>,
    /// Functions with all that they call: what the stacks hold that each function is on, most first; at most
    /// 100.
    pub through: Vec<Through>,
    /// Heaps inside the program whose blocks are not seen: allocators and runtimes of its own.
    pub own_heaps: Vec<OwnHeap>,
    /// One row for each requested size, at [`Report::at`]; by live bytes.
    pub sizes: Vec<SizeRow>,
    /// Chains of growing buffers, by stack; by cumulative bytes.
    pub growth: Vec<Growth>,
    /// Blocks that outlived the end mark of their phase.
    pub zombies: Vec<Zombie>,
    /// Blocks of buffers that grow, and that no finding is about: their sizes are those of the moment.
    #[serde(skip)]
    pub in_growth: Vec<Claim>,
    /// Places at which a runtime's heap lies, as `heaps.rs` knows them, and the stacks that mapped them.
    #[serde(skip)]
    pub places: Vec<(&'static str, u32)>,
    /// Reachability of live blocks, at a moment at which the program was stopped and read (`--reachable`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reachability>,
    /// Memory over time.
    pub timeline: Timeline,
    /// Blocks that lived, were acquired and were released, by stack and size, for any window of the run; written
    /// only with `--windows` (the page always has it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// Threads.
    pub threads: Vec<ThreadRow>,
    /// Marks.
    pub marks: Vec<MarkRow>,
    /// Stack tree (M3).
    pub nodes: Vec<Node>,
    /// Frames (M3).
    pub frames: Vec<Frame>,
    /// Indices of frames of functions that only pass an allocation on (the malloc family, containers,
    /// wrappers), ascending: the innermost frame that is not among them names a stack.
    pub plumbing: Vec<u32>,
}

/// The process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Command line.
    pub argv: Vec<String>,
    /// Executable.
    pub exe: String,
    /// Working directory.
    pub cwd: String,
    /// The allocator beneath the recorder.
    pub allocator: String,
    /// Kernel and machine.
    pub system: String,
    /// Version that recorded.
    pub recorded_by: String,
    /// Start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Duration of the recording, nanoseconds.
    pub duration_ns: u64,
    /// How it ended: `exit 0`, `signal 9 (SIGKILL)`, `exec`, `detached` (the recorder left it, and it went
    /// on), `unknown`.
    pub ended: String,
    /// Where it came from, if that was recorded: `forked from process 1234`, `started by process 1234`, `took the
    /// place of another program (exec)`.
    pub origin: Option<String>,
    /// CPU time of the program, nanoseconds.
    pub cpu_ns: Option<u64>,
    /// The kernel's high-water mark of resident memory, bytes.
    pub max_rss_bytes: Option<u64>,
    /// Bytes that its calls of `read` and their kin took, whatever they read from, those of children that it waited for
    /// included; only of a program that was started by Skinflint, which itself reads a little in it.
    pub read_bytes: Option<u64>,
    /// Bytes that it gave to calls of `write` and their kin, as above.
    pub written_bytes: Option<u64>,
    /// Memory that the recorder itself held inside the program, bytes.
    pub recorder_bytes: u64,
    /// Size of the trace, bytes.
    pub trace_bytes: u64,
}

/// How complete a trace is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Completeness {
    /// Whether nothing is missing.
    pub complete: bool,
    /// Events read.
    pub events: u64,
    /// Events known to be lost while recording.
    pub lost_events: u64,
    /// Events that were recorded and cannot be read: the file is damaged or cut.
    pub unread_events: u64,
    /// Stacks whose outermost frames are missing.
    pub truncated_stacks: u64,
    /// Releases of addresses that were never seen acquired (before recording began, inherited).
    pub unknown_frees: u64,
    /// Calls while recording was off, or from inside the allocator: they are in no figure.
    pub unrecorded_calls: u64,
    /// Whether the recording began after the process, or had a pause: blocks from before are unknown.
    pub began_late: bool,
    /// Processes that this one started and that have no trace: they take nothing away from this one's figures.
    pub lost_children: u64,
    /// One sentence for each thing that is missing or odd.
    pub notes: Vec<String>,
}

/// Counts over the whole run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Blocks acquired, reallocs included.
    pub allocations: u64,
    /// Blocks released, reallocs included.
    pub frees: u64,
    /// Reallocs among both.
    pub reallocs: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Bytes given.
    pub usable_bytes: u64,
    /// Blocks released before the same stack acquired again.
    pub temporaries: u64,
    /// Calls of `mmap` by the program, and of `brk` and `sbrk` that took memory.
    pub maps: u64,
    /// Bytes mapped by them.
    pub map_bytes: u64,
    /// Events a second, on average.
    pub events_per_s: f64,
}

/// The kind of a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstantKind {
    /// Largest resident memory: the snapshot with the most live bytes, of those within a fiftieth of the
    /// largest resident memory.
    Peak,
    /// Largest live heap (usable bytes), exact to the event; has books only if the report is about it (`--at heap-peak`):
    /// those of the nearest snapshot.
    HeapPeak,
    /// The end.
    #[default]
    End,
    /// A mark.
    Mark,
    /// A time that was asked for (`--at 1.5s`).
    Time,
    /// The snapshot after the largest fall of live memory from its highest level until then.
    AfterFree,
    /// The snapshot at which the allocator keeps most beyond live blocks, if that is much and not the
    /// report's own instant.
    MostKept,
}

/// A moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Instant {
    /// `peak`, `heap-peak`, `end`, `after-free`, `most-kept`, or the mark's name.
    pub label: String,
    /// Its kind.
    pub kind: InstantKind,
    /// Its time, nanoseconds since the start.
    pub time_ns: u64,
    /// Its place in the order of events.
    pub ticket: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes requested for them.
    pub live_requested_bytes: u64,
    /// Bytes given for them.
    pub live_usable_bytes: u64,
    /// The books of resident memory; `null` if no snapshot belongs to the moment.
    pub books: Option<Books>,
    /// Free memory that live blocks keep resident, by stack; `null` if there are no books, or no page of a heap
    /// was read.
    pub fragments: Option<Fragments>,
}

/// Free memory on the resident pages of the heap, and the stacks whose live blocks pin it. Pages are the
/// kernel's, of 4,096 bytes. A stack pins a page if one of its live blocks has a byte there; the header that
/// glibc keeps before a block counts as the block's. The free bytes of a page are shared equally among the
/// blocks there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fragments {
    /// Resident bytes of the heap's pages: `used_bytes` + `free_bytes`.
    pub resident_bytes: u64,
    /// Of these, bytes of live blocks and their headers.
    pub used_bytes: u64,
    /// The rest: `pinned_bytes` + `nobodys_bytes`.
    pub free_bytes: u64,
    /// Free bytes on pages with a live byte: the sum over `pins` and `others`.
    pub pinned_bytes: u64,
    /// Free bytes on pages without a live byte, which the allocator keeps.
    pub nobodys_bytes: u64,
    /// Free bytes that the kernel listed as present and did not count as resident (or that were released in
    /// between): the books' `allocator-free` is `free_bytes` less these, plus `unread_bytes`.
    pub uncounted_bytes: u64,
    /// Free bytes, by the books, of heaps whose pages could not be read: no other figure here counts them.
    pub unread_bytes: u64,
    /// Resident pages of the heap.
    pub pages: u64,
    /// Of these, pages with a live byte: the page floor of the blocks where they lie.
    pub pinned_pages: u64,
    /// Of these, pages that are partly free.
    pub partial_pages: u64,
    /// Pages that `used_bytes` would fill if they lay side by side: the fewest that an allocator could reach
    /// that had known which blocks survive. The gap is `pinned_pages` less these.
    pub packed_pages: u64,
    /// Pages that `used_bytes` would fill if each usable size had pages of its own.
    pub class_packed_pages: u64,
    /// Stacks by their share of the free bytes, largest first; at most 200 at the report's instant, and
    /// 20 elsewhere.
    pub pins: Vec<Pins>,
    /// The sum of the stacks that are not listed; without `node` and `age`, and with pages counted once for
    /// each stack.
    pub others: Pins,
    /// Functions by their share, largest first, at the report's instant only: a page that several stacks of
    /// one function pin is solely the function's. At most 100; `node` is the largest stack.
    pub functions: Vec<Pins>,
    /// The allocator's spans, where its layout is known.
    pub spans: Option<HeapSpans>,
}

/// The pages that the live blocks of one stack (or function) pin.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pins {
    /// The stack.
    pub node: Option<u32>,
    /// Stacks: 1, or the number of stacks that are summed up here.
    pub stacks: u64,
    /// The stack's share of the free bytes.
    pub free_bytes: u64,
    /// Of these, on pages that hold no other stack's blocks.
    pub sole_free_bytes: u64,
    /// Blocks that lie on partly free pages.
    pub blocks: u64,
    /// Their bytes there, headers included.
    pub block_bytes: u64,
    /// Live blocks in all.
    pub live_blocks: u64,
    /// Their bytes on resident pages of the heap, headers included.
    pub live_bytes: u64,
    /// Blocks that the stack acquired until the instant.
    pub acquired_blocks: u64,
    /// Resident pages that only this stack's blocks pin, full ones included.
    pub sole_pages: u64,
    /// Resident pages that the stack pins together with others.
    pub joint_pages: u64,
    /// Pages that `live_bytes` would fill if they lay side by side.
    pub packed_pages: u64,
    /// Pages that would hold nothing any more if the stack's blocks lay elsewhere, side by side: `sole_pages`
    /// − `packed_pages`, at least 0.
    pub freed_pages: u64,
    /// Bytes of the heap's pages then: `resident_bytes` less the freed pages.
    pub resident_elsewhere_bytes: u64,
    /// Ages of the pinning blocks; `null` for sums.
    pub age: Option<PinAge>,
    /// Spans of the allocator that only this stack's blocks keep; 0 if spans are not known.
    pub sole_spans: u64,
    /// Spans that the stack keeps together with others.
    pub joint_spans: u64,
}

/// Ages of the pinning blocks of a stack at the instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PinAge {
    /// At least half of them are as old as this, nanoseconds (to the microsecond; of a block acquired
    /// later than 71 minutes after the start, the time since then; of what a fork gave, since the start).
    pub median_ns: u64,
    /// The oldest.
    pub oldest_ns: u64,
    /// The median age in events: acquisitions that the process has made since, the block's own included.
    pub median_acquisitions: u64,
    /// The oldest.
    pub oldest_acquisitions: u64,
}

/// Spans of an allocator whose layout follows from addresses and sizes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HeapSpans {
    /// The layout: `jemalloc: slabs of small size classes`.
    pub layout: String,
    /// Spans with a live block.
    pub spans: u64,
    /// Their resident bytes.
    pub resident_bytes: u64,
    /// Of these, bytes of live blocks.
    pub used_bytes: u64,
    /// Live blocks in them.
    pub blocks: u64,
}

/// The books: each byte of resident memory, in exactly one row (M2).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Books {
    /// Resident memory (sum over the mappings' `Rss`).
    pub resident_bytes: u64,
    /// Time between the snapshot and the instant, nanoseconds (0: the program waited for it).
    pub skew_ns: u64,
    /// Live usable bytes at the snapshot less those at the instant: the rows hold that many bytes more, or fewer.
    pub skew_bytes: i64,
    /// Live bytes that are not resident: requested and never touched, or swapped out.
    pub live_not_resident_bytes: u64,
    /// The rows; they add up to `resident_bytes`.
    pub rows: Vec<BookRow>,
    /// Figures that lie across or beyond the rows, and are in no sum: `swapped`, `huge-pages`, `merged`, `heap-spaces`
    /// (pages of V8's heap, by its spaces), `java-spaces` (pages of Java's heap by the kind of region or space, and of its code cache).
    /// A missing row was not measured, or of the last three there is nothing.
    pub beside: Vec<BookRow>,
    /// How the figures were obtained, and what could not be distinguished.
    pub notes: Vec<String>,
}

/// A row of the books.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BookRow {
    /// Stable name: `live`, `slop`, `allocator-free`, `arena-free`, `allocator-metadata`, `heap-unseen` (pages of the heap on which
    /// no recorded block ever was), `mapped-files`, `stacks`, `program-maps` (anonymous memory the program mapped
    /// itself), `program-files` (files that it mapped itself), `shared`, `other-mappings`, `recorder`, `unclassified`.
    pub id: String,
    /// The name for readers.
    pub label: String,
    /// Resident bytes.
    pub bytes: u64,
    /// One sentence of definition.
    pub meaning: String,
    /// The largest parts (files, mappings, stacks), largest first, with `others` last; they add up.
    pub parts: Vec<BookPart>,
}

/// A part of a row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BookPart {
    /// A path, a mapping, or the function that a stack is named by.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// The stack, if the part is one, or is a file or shared memory that the program mapped.
    pub node: Option<u32>,
}

/// One stack's memory. Cumulative unless it says `live` (at the report's instant) or `end`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// The stack.
    pub node: u32,
    /// Blocks acquired.
    pub allocations: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Bytes given.
    pub usable_bytes: u64,
    /// Blocks released before this stack acquired again.
    pub temporaries: u64,
    /// These, and blocks released within some hundred acquisitions of the process (`cells.rs`): for the passes.
    #[serde(skip)]
    pub brief: u64,
    /// Live blocks at the instant.
    pub live_blocks: u64,
    /// Bytes requested for them.
    pub live_requested_bytes: u64,
    /// Bytes given for them.
    pub live_usable_bytes: u64,
    /// Of these, bytes on resident pages at the instant's snapshot; `null` if there is none.
    pub live_resident_bytes: Option<u64>,
    /// The usable bytes of the smallest and the largest of these blocks, for findings; `None` if that is not known.
    #[serde(skip)]
    pub live_sizes: Option<(u64, u64)>,
    /// The type of the objects in these blocks, for findings: empty if there are none in them; `None` if none was looked at.
    #[serde(skip)]
    pub object_type: Option<std::sync::Arc<str>>,
    /// Live blocks at the largest live heap.
    pub heap_peak_blocks: u64,
    /// Bytes given for them.
    pub heap_peak_usable_bytes: u64,
    /// Bytes requested for them.
    pub heap_peak_requested_bytes: u64,
    /// Live blocks at the end.
    pub end_blocks: u64,
    /// Bytes requested for them.
    pub end_requested_bytes: u64,
    /// Bytes given for them.
    pub end_usable_bytes: u64,
    /// First acquisition, nanoseconds since the start.
    pub first_ns: u64,
    /// Last acquisition.
    pub last_ns: u64,
}

/// Memory that one stack has mapped itself, at the report's instant: no block of malloc lies in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mapper {
    /// The stack.
    pub node: u32,
    /// Address space, mapped files included.
    pub mapped_bytes: u64,
    /// Of these, bytes on resident pages at the instant's snapshot; `null` if there is none.
    pub resident_bytes: Option<u64>,
    /// Of the resident bytes, those of shared memory: memfd, `/dev/shm`, shared anonymous.
    pub shared_bytes: Option<u64>,
    /// Of the resident bytes, those of files.
    pub file_bytes: Option<u64>,
}

/// A function with all that it calls, at the report's instant. A stack counts once, however often the
/// function is on it; of two functions one may call the other, so these do not add up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Through {
    /// The largest stack that ends in the function: a node with its outermost frame.
    pub node: u32,
    /// Bytes that these stacks hold: resident bytes of live blocks and of memory that they mapped; bytes given
    /// for live blocks if no snapshot shows what is resident.
    pub bytes: u64,
    /// Of these, bytes of stacks that the function itself names, not a function that it calls.
    pub own_bytes: u64,
    /// Live blocks of these stacks.
    pub blocks: u64,
    /// Stacks that hold something.
    pub stacks: u64,
    /// Whether nine tenths or more come through one function that it calls, which is also in the list and
    /// serves nearly no other caller.
    pub passes_on: bool,
}

/// A heap inside the program that gets its memory in large pieces: the blocks in them are not seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnHeap {
    /// The heap's name: `mimalloc`, `GCC's own heap (ggc)`; empty for an unknown allocator.
    pub name: String,
    /// Whether it serves the program in place of malloc: an allocator that the program brings.
    pub allocator: bool,
    /// Resident bytes of the memory that the heap mapped or took from malloc, at the instant.
    pub bytes: u64,
    /// The largest stack.
    pub node: Option<u32>,
    /// Stacks that got this memory.
    pub stacks: u64,
    /// What the memory is for, largest first (V8's spaces; Java's heap by regions or spaces, metaspace, code cache), with `the rest` last; they add
    /// up to `bytes`. Empty if that is not told apart.
    pub parts: Vec<BookPart>,
    /// One sentence: the memory that is seen, and the blocks that are not.
    pub what: String,
    /// Sentences: how to see the blocks in the heap.
    pub change: String,
}

/// Requests of one size.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SizeRow {
    /// Bytes requested.
    pub size: u64,
    /// Bytes given (the most frequent answer).
    pub usable: u64,
    /// Live blocks at the instant.
    pub live_blocks: u64,
    /// Live bytes given, less those requested.
    pub live_slop_bytes: u64,
    /// Blocks over the run.
    pub allocations: u64,
    /// Slop over the run.
    pub slop_bytes: u64,
}

/// The way in which a buffer grows.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "how", content = "value")]
pub enum GrowthPattern {
    /// By what is needed at the moment: steps differ, and are small beside the size.
    JustEnough,
    /// By a fixed number of bytes.
    FixedStep(u64),
    /// By a factor.
    Exponential(f64),
    /// Too few or too different steps to say.
    #[default]
    Irregular,
}

/// Buffers grown by one stack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Growth {
    /// The stack that grows.
    pub node: u32,
    /// The way in which its buffers grow.
    pub pattern: GrowthPattern,
    /// False: by `realloc`. True: by hand (allocate, copy, free).
    pub by_hand: bool,
    /// Chains seen.
    pub chains: u64,
    /// Steps over all chains.
    pub steps: u64,
    /// Steps that the allocator could serve in place (same address).
    pub in_place_steps: u64,
    /// Size at the end of the largest chain, bytes.
    pub largest_bytes: u64,
    /// Bytes requested over all steps of all chains.
    pub allocated_bytes: u64,
    /// Bytes given in those of the steps that changed the usable size. A step within the same usable size
    /// costs the allocator nothing.
    pub anew_usable_bytes: u64,
    /// Bytes of the blocks that were copied: of the steps that did not stay in place, and whose blocks the
    /// kernel did not move as a mapping. If the buffer seems to be copied into another block and back at each
    /// step, both copies count, wherever the step went.
    pub copied_bytes: u64,
    /// Bytes that doubling from the first size would have allocated.
    pub doubling_bytes: u64,
    /// Bytes that doubling would have copied at most; for each buffer no more than were copied.
    pub doubling_copied_bytes: u64,
    /// Bytes that growth by a factor of 1.5 would have allocated.
    pub one_and_a_half_bytes: u64,
}

/// Blocks that outlived the end mark of their phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Zombie {
    /// The phase: marks `NAME begin` and `NAME end`.
    pub phase: String,
    /// The stack.
    pub node: u32,
    /// Blocks still live when the phase ended.
    pub blocks: u64,
    /// Bytes requested for them.
    pub requested_bytes: u64,
    /// Bytes given for them.
    pub usable_bytes: u64,
    /// Of those, blocks still live at the end of the run.
    pub end_blocks: u64,
    /// Of those, bytes still live at the end of the run.
    pub end_usable_bytes: u64,
}

/// Memory over time: parallel arrays, at most some thousand points each. Bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Timeline {
    /// Nanoseconds since the start, of the heap curves.
    pub heap_t_ns: Vec<u64>,
    /// Live bytes requested: the largest sum within the interval that ends here.
    pub live_requested_bytes: Vec<u64>,
    /// Live bytes given, at that same moment.
    pub live_usable_bytes: Vec<u64>,
    /// Live blocks, at that same moment.
    pub live_blocks: Vec<u64>,
    /// Acquisitions within the interval.
    pub allocations: Vec<u64>,
    /// Nanoseconds since the start, of the resident curves.
    pub rss_t_ns: Vec<u64>,
    /// Resident memory.
    pub rss_bytes: Vec<u64>,
    /// Its anonymous part.
    pub anon_bytes: Vec<u64>,
    /// Proportional set size, where read.
    pub pss_bytes: Vec<Option<u64>>,
}

/// Figures for any window between two edges. Cells count units: at an edge, a cell has `start` units plus the
/// units acquired before, minus those released before, and a unit is `blocks` blocks, `size` bytes
/// requested and `usable` bytes given. All cells add up to the process, and the cells of a site to the site,
/// at each edge and over each bucket, exactly.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Windows {
    /// Moments at which figures are exact, in order: the start, the instants, and others where much happened.
    pub edges: Vec<WindowEdge>,
    /// The cells, by site and size.
    pub cells: Vec<WindowCell>,
    /// For each bucket (from an edge to the next), the number of changes up to its end: its own are
    /// those from the number before, or 0.
    pub bucket_ends: Vec<u64>,
    /// Changes: index into `cells`, ascending within a bucket.
    pub changed_cell: Vec<u32>,
    /// Units that the cell acquired within the bucket.
    pub acquired: Vec<u64>,
    /// Units that the cell released within the bucket; those that it acquired there included.
    pub released: Vec<u64>,
    /// Number of stacks and sizes that have no cell of their own, but are counted together, by stack or all
    /// in one.
    pub folded_cells: u64,
}

/// A moment between two events.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowEdge {
    /// Nanoseconds since the start; never falls from one edge to the next.
    pub time_ns: u64,
    /// Events before it.
    pub events: u64,
    /// The instants ([`Report::instants`]) that lie at this edge.
    pub instants: Vec<u32>,
}

/// One stack, one requested size and one usable size (`blocks` is 1, a unit is a block). Or one of the three
/// cells of sizes that are counted together: a unit of the first is a block of no bytes, of the second a byte
/// requested, of the third a byte given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowCell {
    /// Index into [`Report::sites`]; `null` for stacks that are counted together.
    pub site: Option<u32>,
    /// Blocks of a unit.
    pub blocks: u64,
    /// Bytes requested in a unit.
    pub size: u64,
    /// Bytes given in a unit.
    pub usable: u64,
    /// Units that lived at the start: inherited from the process that forked.
    pub start: u64,
}

/// A thread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadRow {
    /// Kernel thread id.
    pub tid: u32,
    /// Name.
    pub name: String,
    /// First event, nanoseconds since the start.
    pub started_ns: u64,
    /// End, if it ended.
    pub ended_ns: Option<u64>,
    /// Blocks acquired.
    pub allocations: u64,
    /// Bytes requested.
    pub requested_bytes: u64,
    /// Blocks released that another thread had acquired.
    pub remote_frees: u64,
}

/// A mark.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MarkRow {
    /// Name.
    pub name: String,
    /// Its time, nanoseconds since the start.
    pub time_ns: u64,
    /// Live bytes given.
    pub live_usable_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// The most live bytes given since the mark before (or the start).
    pub peak_live_usable_bytes: u64,
    /// Acquisitions since the mark before (or the start).
    pub allocations: u64,
    /// Bytes requested since the mark before.
    pub requested_bytes: u64,
}

/// A node of the stack tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// The caller's node; node 0 is its own parent.
    pub parent: u32,
    /// Index into [`Report::frames`].
    pub frame: u32,
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Demangled name; `module+0x1234` where there is none.
    pub function: String,
    /// File name of the module, without its folder.
    pub module: String,
    /// Source file.
    pub file: Option<String>,
    /// Line.
    pub line: Option<u32>,
    /// Whether it is inlined into the frame that encloses it.
    pub inlined: bool,
}
