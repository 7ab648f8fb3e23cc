//! Things missing from a recording, one plain line each with its consequence; and their effect on advice.
//!
//! ```text
//!   Known, Counts ──► missing(): Vec<Missing>, the weightiest first ──► a line each (Display)
//!                                          └─► hides_live_blocks() ──► is free memory really free?
//! ```
//!
//! M1  There is one list for every command. It is empty exactly when the trace is whole.
//! M2  If blocks may live that no event reported, memory that looks free may be theirs: nothing that gives it back is
//!     advised as more than possible, and no saving is promised.
//! M3  For a trace without events the list says that nothing was recorded and why that may be. It never says that
//!     there is nothing to report.
//! M4  Children that were not recorded take nothing away from the trace of their parent: they are listed
//!     ([`children`]), and the trace is whole.
//!
//! Not here: what pages and the allocator's own count add to it (`completeness.rs`, `totals.rs`); what is odd although
//! nothing is missing (`notes.rs`).

use std::fmt;

use skinflint_trace::{
    Ending, Exit, LostKind, LostProcess, LostWhy, MOST_QUIET_COPIES, OriginKind, ProcessInfo,
    Segment,
};

use crate::passes::wording::{bytes, count};
use crate::sums::Counts;

/// Notes of the collector about threads without a ring, and about a recording that ended before the process.
pub(crate) const NO_RING: &str = "were not recorded: no room";
pub(crate) const FILTERED: &str = "were not recorded: a filter";
const WOULD_END: &str =
    "a filter of system calls (seccomp) would have ended the program in the recorder";
pub(crate) const SILENCE: &str = "recording stopped early: the collector";
pub(crate) const DEEP: &str = "were not recorded: opened past";
pub(crate) const NEVER_BEGAN: &str = "recording never began";
pub(crate) const FILTER: &str = "recording stopped early: the program installed a filter";
/// The beginning of what is said of a program of which no call was seen.
pub(crate) const NO_CALL_SEEN: &str =
    "Nothing was recorded: the program made no heap call that could be seen.";
/// The beginning, if there are events.
pub(crate) const NO_HEAP_CALL: &str = "No heap call was recorded, only mappings.";
/// The consequence of a child without a trace.
const COPY_FOLLOWS: &str =
    "what they did, and what they kept of the memory that they inherited, is in no row";
const PROGRAM_FOLLOWS: &str = "their memory is in no row";

/// Something that a recording does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// Everything is missing; the text says why that may be.
    Everything(String),
    /// What came before a segment, of a recording that keeps its last part.
    Before {
        /// What the segment begins with.
        segment: Segment,
        /// Whether it is a copy (`fork`), so that what it inherited is gone, too.
        is_copy: bool,
    },
    /// The end of the recording.
    End,
    /// Events that could not be recorded.
    Lost {
        /// The number of these events.
        events: u64,
    },
    /// Threads of which nothing was recorded, as there was no room for their rings.
    Threads(u64),
    /// Threads of which nothing was recorded, as a filter of system calls would have ended them.
    FilteredThreads(u64),
    /// Modules that call the C library's allocator while another one, beneath the recorder, serves the program.
    Plugins(u64),
    /// The time from which on the collector did not answer.
    Later,
    /// The time after a filter of system calls was installed.
    Filtered,
    /// Events that were recorded and cannot be read.
    Unread {
        /// The number of these events.
        events: u64,
        /// The number of all events.
        of: u64,
    },
    /// A part of the file, in the reader's words.
    Damage(String),
    /// Releases of blocks that were handed out again.
    Releases(u64),
    /// One half of a realloc.
    HalfReallocs(u64),
    /// Events with impossible addresses or sizes.
    Impossible(u64),
    /// The ends of reallocs that were under way.
    Parked(u64),
    /// Acquisitions: blocks were released that were never acquired, in a process recorded from its birth.
    Acquisitions {
        /// The number of such releases.
        releases: u64,
    },
    /// Blocks that the allocator counts and no event reported, or the other way round.
    Totals {
        /// The allocator's name.
        allocator: String,
        /// The bytes that it counts as in use.
        said_bytes: u64,
        /// The bytes that are live by the events.
        known_bytes: u64,
    },
    /// Heap pages on which no recorded block ever was, in a process recorded from its birth.
    Heap {
        /// Resident bytes of them, where they were most.
        resident_bytes: u64,
    },
    /// More events than were recorded.
    Surplus {
        /// The number of events read.
        events: u64,
        /// The number of events recorded.
        of: u64,
    },
    /// Events that were sent and are not in the trace.
    Tickets {
        /// The number of these events.
        events: u64,
    },
    /// Mappings that no event reported, in a process recorded from its birth.
    Mapped {
        /// Resident bytes of them at the report's moment.
        resident_bytes: u64,
    },
    /// The trace of a process that this one is a copy of.
    Ancestor {
        /// Its process id.
        pid: u32,
        /// Copies between it and this process: 0 is the parent.
        generations: u32,
    },
    /// What the process did as another program.
    Program(LostProcess),
}

impl Missing {
    /// Reports whether blocks may live that no event reported, so that memory that looks free may be theirs (M2).
    pub fn hides_live_blocks(&self) -> bool {
        match self {
            Missing::Everything(_)
            | Missing::Lost { .. }
            | Missing::Threads(_)
            | Missing::FilteredThreads(_)
            | Missing::Plugins(_)
            | Missing::Later
            | Missing::Filtered
            | Missing::Unread { .. }
            | Missing::Damage(_)
            | Missing::Acquisitions { .. }
            | Missing::Heap { .. }
            | Missing::Tickets { .. }
            | Missing::Ancestor { .. } => true,
            Missing::Before { is_copy, .. } => *is_copy,
            Missing::Totals {
                said_bytes,
                known_bytes,
                ..
            } => said_bytes > known_bytes,
            // What is missing here would make blocks live that do not, or lies behind every instant.
            Missing::End
            | Missing::Program(_)
            | Missing::Surplus { .. }
            | Missing::Mapped { .. }
            | Missing::Releases(_)
            | Missing::HalfReallocs(_)
            | Missing::Impossible(_)
            | Missing::Parked(_) => false,
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Everything(text) | Missing::Damage(text) => f.write_str(text),
            Missing::Before { segment, is_copy } => fmt_before(segment, *is_copy, f),
            Missing::End => f.write_str(
                "No end mark: the recording was cut off (the collector was killed, the disk was full, or the \
                 file was copied while it was written); what happened after the last event is not known.",
            ),
            Missing::Lost { events } => write!(
                f,
                "Lost while recording: {}. Counts are too low by that much, blocks whose release was lost count as \
                 live, and memory whose acquisition was lost as free.",
                count(*events, "event")
            ),
            Missing::Threads(threads) => f.write_str(&threads_sentence(*threads, None)),
            Missing::FilteredThreads(threads) => f.write_str(&threads_sentence(*threads, Some(WOULD_END))),
            Missing::Plugins(modules) => write!(
                f,
                "Not recorded: {}, opened with RTLD_DEEPBIND past the preloaded allocator: what the C library's malloc \
                 gave there is in no row, and its memory looks free, or stands in 'other mappings'. To see it, record \
                 without that allocator (LD_PRELOAD, --preload).",
                count(*modules, "module")
            ),
            Missing::Filtered => f.write_str(
                "The recording stopped early, as the program installed a filter of system calls (seccomp) that would \
                 have ended it at a call of the recorder: what happened afterwards is not known.",
            ),
            Missing::Later => f.write_str(
                "The recording stopped early, as the collector did not answer for 5 s: what happened afterwards is not \
                 known.",
            ),
            Missing::Unread { events, of } => write!(
                f,
                "{events} of {of} recorded events could not be read: blocks that they acquired are in no row, \
                 and their memory looks free."
            ),
            Missing::Acquisitions { releases } => write!(
                f,
                "Never seen acquired: {} that were released. Some part of the program gets memory past the \
                 recorder, so what stands as free, kept by the allocator, may be in use.",
                count(*releases, "block")
            ),
            Missing::Totals {
                allocator,
                said_bytes,
                known_bytes,
            } => {
                let (said, known) = (bytes(*said_bytes), bytes(*known_bytes));
                let apart = bytes(said_bytes.abs_diff(*known_bytes));
                let follows = if said_bytes > known_bytes {
                    format!("{apart} that are in no recorded block are in use")
                } else {
                    format!("{apart} that stand as live are free")
                };
                write!(
                    f,
                    "{allocator} itself counts {said} in use at exit, and the recording {known}: calls went past the \
                     recorder, and {follows}."
                )
            }
            Missing::Heap { resident_bytes } => write!(
                f,
                "{} of the heap's resident pages never held a recorded block, and may be live: the program, or a \
                 library of it, got them past the recorder (by an allocator's own functions, a system call for brk, or \
                 a plug-in that binds past it). They stand as 'touched, no block ever seen', not as free.",
                bytes(*resident_bytes)
            ),
            Missing::Mapped { resident_bytes } => write!(
                f,
                "{} of anonymous memory was mapped past the recorder, by system calls of the program's own: it stands \
                 in 'other mappings', without a stack, and what lives in it is not known.",
                bytes(*resident_bytes)
            ),
            Missing::Ancestor { pid, generations } => {
                let whose = match generations {
                    0 => "parent",
                    1 => "grandparent",
                    _ => "forebear",
                };
                write!(
                    f,
                    "the trace of the {whose} (process {pid}) is not in the same folder: what was inherited from it \
                     is not known: it stands as free, or as touched"
                )
            }
            Missing::Program(lost) => write!(
                f,
                "At {:.3} s the process became {}, which was not recorded ({}): nothing that it did is known, and \
                 what was sampled of its memory from then on is left out.",
                lost.time_ns as f64 / 1e9,
                name(lost),
                why_of(lost)
            ),
            _ => self.fmt_events(f),
        }
    }
}

/// Writes what a recording does not have that keeps its last part, and what stands for it.
fn fmt_before(segment: &Segment, is_copy: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let before = segment.acquired.saturating_sub(segment.blocks);
    write!(
        f,
        "The recording keeps its last part, from {:.3} s on: {} ({}) lived then and count as acquired at that moment, \
         which is where their lifetimes begin; {} from before ({}), released by then, are in no figure.",
        segment.since_ns as f64 / 1e9,
        count(segment.blocks, "block"),
        bytes(segment.bytes),
        count(before, "recorded acquisition"),
        bytes(segment.acquired_bytes.saturating_sub(segment.bytes)),
    )?;
    match is_copy {
        true => f.write_str(
            " What it inherited from its parent is not known: it stands as free, or as touched.",
        ),
        false => Ok(()),
    }
}

/// Returns why a process has no trace, in words. The loader has no loader, and is no static program.
fn why_of(lost: &LostProcess) -> &'static str {
    let file = lost.exe.rsplit('/').next().unwrap_or_default();
    let is_loader = |name: &str| {
        ["ld-linux", "ld.so", "ld-2."]
            .iter()
            .any(|lead| name.starts_with(lead))
    };
    match lost.why {
        LostWhy::Static if is_loader(file) || is_loader(&lost.name) => {
            "it is the dynamic loader itself, which checks or lists a program"
        }
        reason => why(reason),
    }
}

impl Missing {
    /// Writes what is odd about single events.
    fn fmt_events(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Releases(blocks) => write!(
                f,
                "Handed out again without a release between: {}. Those releases were not recorded.",
                count(*blocks, "block")
            ),
            Missing::HalfReallocs(reallocs) => write!(
                f,
                "Of {} only the beginning or the end was recorded.",
                count(*reallocs, "realloc")
            ),
            Missing::Impossible(events) => write!(
                f,
                "Left out, because of impossible addresses or sizes: {}.",
                count(*events, "event")
            ),
            Missing::Parked(reallocs) => write!(
                f,
                "Under way at the end: {}. The old block counts as live.",
                count(*reallocs, "realloc")
            ),
            Missing::Surplus { events, of } => {
                write!(f, "{events} events read, {of} were recorded.")
            }
            Missing::Tickets { events } => write!(
                f,
                "{events} events were sent and are not in the trace: gaps in the order of tickets."
            ),
            _ => Ok(()),
        }
    }
}

/// The facts that a trace states about itself, beside its events.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// The process.
    pub process: &'a ProcessInfo,
    /// How the recording ended; `None` if the trace was cut.
    pub ending: Option<&'a Ending>,
    /// What the reader found damaged, one sentence each.
    pub damage: Vec<String>,
    /// Processes that came out of this one and have no trace.
    pub lost: &'a [LostProcess],
    /// What was not found when the trace was opened.
    pub missing: &'a [Missing],
    /// Events read, whether or not they were looked at.
    pub events: u64,
}

/// Returns what is missing, the weightiest first (M1).
pub fn missing(known: &Known<'_>, counts: &Counts, parked: u64) -> Vec<Missing> {
    let mut all = Vec::new();
    let unread = known.unread();
    let forked = matches!(&known.process.origin, Some(origin) if origin.how == OriginKind::Fork);
    // The recorder is in a child of fork if it was in the parent: one that allocates nothing is whole.
    let is_odd = counts.allocations == 0
        && !forked
        && unread == 0
        && !known.made_nothing(counts)
        && !known.was_quiet();
    if is_odd || known.never_began() {
        all.push(Missing::Everything(known.nothing_recorded()));
    }
    if let Some(segment) = &known.process.segment {
        all.push(Missing::Before {
            segment: segment.clone(),
            is_copy: forked,
        });
    }
    match known.ending {
        None => all.push(Missing::End),
        Some(ending) => {
            let events = ending.lost_events;
            all.extend((events > 0).then_some(Missing::Lost { events }));
            let threads = known.threads(NO_RING);
            all.extend((threads > 0).then_some(Missing::Threads(threads)));
            let threads = known.threads(FILTERED);
            all.extend((threads > 0).then_some(Missing::FilteredThreads(threads)));
            let modules = known.threads(DEEP);
            all.extend((modules > 0).then_some(Missing::Plugins(modules)));
            all.extend(known.says(SILENCE).then_some(Missing::Later));
            all.extend(known.says(FILTER).then_some(Missing::Filtered));
            let of = ending.events;
            all.extend((unread > 0).then_some(Missing::Unread { events: unread, of }));
        }
    }
    all.extend(known.missing.iter().cloned());
    all.extend(known.damage.iter().cloned().map(Missing::Damage));
    let became = known.lost.iter().filter(|lost| lost.what == LostKind::Exec);
    all.extend(became.cloned().map(Missing::Program));
    let knows_all_from_birth = all.is_empty() && known.is_from_birth();
    let releases = counts.unknown_frees;
    // The recorder is there before the program's first call: in 47 real traces there was not one such release.
    let some = releases > 0 && knows_all_from_birth;
    all.extend(some.then_some(Missing::Acquisitions { releases }));
    let some = [
        (counts.lost_frees, Missing::Releases(counts.lost_frees)),
        (
            counts.lost_reallocs,
            Missing::HalfReallocs(counts.lost_reallocs),
        ),
        (
            counts.damaged_events,
            Missing::Impossible(counts.damaged_events),
        ),
        (parked, Missing::Parked(parked)),
    ];
    all.extend(
        some.into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(_, one)| one),
    );
    all
}

/// Returns the number of children that were not recorded and are missing: copies without a heap call that wrote little
/// are only named.
pub fn lost_children(lost: &[LostProcess]) -> u64 {
    let missing = |one: &&LostProcess| one.what != LostKind::Exec && !is_little(one);
    lost.iter().filter(missing).count() as u64
}

/// Returns the children that were not recorded, one sentence for each kind and reason (M4).
pub fn children(lost: &[LostProcess]) -> Vec<String> {
    let children = || lost.iter().filter(|one| one.what != LostKind::Exec);
    let mut kinds: Vec<(LostKind, LostWhy)> = Vec::new();
    for one in children() {
        if !kinds.contains(&(one.what, one.why)) {
            kinds.push((one.what, one.why));
        }
    }
    let sentence = |&(what, reason): &(LostKind, LostWhy)| {
        let these: Vec<_> = children()
            .filter(|one| (one.what, one.why) == (what, reason))
            .collect();
        let (how_many, follows) = match (what, these.len()) {
            (_, _) if reason == LostWhy::Quiet => return quiet(&these),
            (LostKind::Copy, 1) => ("1 copy by fork".into(), COPY_FOLLOWS),
            (LostKind::Copy, n) => (format!("{n} copies by fork"), COPY_FOLLOWS),
            (_, 1) => ("1 child".into(), PROGRAM_FOLLOWS),
            (_, n) => (format!("{n} children"), PROGRAM_FOLLOWS),
        };
        let largest = these.iter().filter_map(|one| one.max_rss_bytes).max();
        let size = largest.map_or(String::new(), |most| {
            format!(", up to {} resident", bytes(most))
        });
        format!(
            "Not recorded ({}): {} ({}{size}); {follows}.",
            why(reason),
            how_many,
            names(&these)
        )
    };
    kinds.iter().map(sentence).collect()
}

/// Returns the first three names of these, and the number of further ones.
fn names(these: &[&LostProcess]) -> String {
    let mut names: Vec<String> = these.iter().map(|one| name(one)).collect();
    names.sort_unstable();
    names.dedup();
    let rest = names.len().saturating_sub(3);
    names.truncate(3);
    let more = match rest {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    names.join(", ") + &more
}

/// Copies without a heap call that wrote less than this are no reason to call a recording incomplete, bytes.
const LITTLE: u64 = 1 << 20;

/// Returns what is said of the lost processes that are missing: all but copies without a heap call that wrote little.
pub(crate) fn much(lost: &[LostProcess]) -> Vec<String> {
    let of_them = lost.iter().filter(|lost| !is_little(lost));
    children(&of_them.cloned().collect::<Vec<_>>())
}

/// Returns what is said of the lost processes that are only named: copies without a heap call that wrote little.
pub(crate) fn little(lost: &[LostProcess]) -> Vec<String> {
    let of_them = lost.iter().filter(|lost| is_little(lost));
    children(&of_them.cloned().collect::<Vec<_>>())
}

/// Reports whether a lost process is only named: a copy without a heap call that wrote little.
fn is_little(lost: &LostProcess) -> bool {
    lost.why == LostWhy::Quiet && lost.max_rss_bytes.unwrap_or(0) < LITTLE
}

/// Returns the sentence on copies that made no heap call.
fn quiet(these: &[&LostProcess]) -> String {
    let (copies, whose) = match these.len() {
        1 => (String::from("1 copy"), "its"),
        n => (format!("{n} copies"), "their"),
    };
    let least = match these.len() {
        MOST_QUIET_COPIES.. => "at least ",
        _ => "",
    };
    let own = these.iter().filter_map(|one| one.max_rss_bytes).max();
    let own = own.map_or(String::new(), |own| {
        format!(" (up to {} of {whose} own)", bytes(own))
    });
    format!(
        "Not recorded: {least}{copies} of this process that made no heap call{own}: {}.",
        names(these)
    )
}

/// Returns the sentence on threads of which nothing was recorded.
fn threads_sentence(threads: u64, why: Option<&str>) -> String {
    let (were, their, they) = match threads {
        1 => ("was", "its", "it"),
        _ => ("were", "their", "they"),
    };
    let no_room = format!("there was no room for {their} events");
    format!(
        "{} {were} not recorded, as {}: what {they} acquired is in no row, and its memory looks free.",
        count(threads, "thread"),
        why.unwrap_or(&no_room)
    )
}

fn name(lost: &LostProcess) -> String {
    match (lost.name.as_str(), lost.exe.as_str()) {
        ("", "") => "another program".into(),
        ("", exe) => exe.into(),
        (name, _) => name.into(),
    }
}

/// Returns why there is no trace, in words.
pub fn why(why: LostWhy) -> &'static str {
    match why {
        LostWhy::Unknown => "why is not known",
        LostWhy::Unreachable => "it could not reach the collector",
        LostWhy::Static => "it is statically linked",
        LostWhy::Privileged => {
            "it runs with privileges, and its loader keeps preloaded libraries out"
        }
        LostWhy::Environment => "it was started without the recorder in its environment",
        LostWhy::Root => "it does not see the recorder's file: another root or mount namespace",
        LostWhy::Unreadable => {
            "it is of another user, who cannot read the recorder's file: lay skinflint's libraries out where all users \
             can (`skinflint doctor` says where they are)"
        }
        LostWhy::Refused => "the collector turned it away",
        LostWhy::Quiet => "it made no heap call",
        LostWhy::Unwritten => "the file of its trace could not be made",
        LostWhy::Filter => {
            "a filter of system calls ended it by SIGSYS, perhaps at the recorder's first call: a filter that lets \
             socket, connect, setsockopt, sendto, recvmsg and madvise fail with an error does not"
        }
    }
}

impl Known<'_> {
    /// Reports whether the recorder was attached for a while in which the program acquired nothing: that is no fault.
    pub(crate) fn was_quiet(&self) -> bool {
        self.is_attached()
            && !self.never_began()
            && self.damage.is_empty()
            && self.lost_events() == 0
    }

    /// Returns the events that were made and could not be written.
    fn lost_events(&self) -> u64 {
        self.ending.map_or(0, |ending| ending.lost_events)
    }

    /// Returns the calls that are known to have passed unrecorded, by the collector's notes.
    pub(crate) fn unrecorded_calls(&self) -> u64 {
        let notes = self.ending.iter().flat_map(|ending| &ending.notes);
        let of = notes.filter(|note| {
            note.contains("from inside the allocator") || note.contains("recording was stopped")
        });
        let calls = of.filter_map(|note| note.split_whitespace().next()?.parse::<u64>().ok());
        calls.fold(0, u64::saturating_add)
    }

    /// Returns the threads of which nothing was recorded, by the collector's notes, and the reason in their words.
    pub(crate) fn threads(&self, why: &str) -> u64 {
        let notes = self.ending.iter().flat_map(|ending| &ending.notes);
        let of = notes.filter(|note| note.contains(why));
        let threads = of.filter_map(|note| note.split_whitespace().next()?.parse::<u64>().ok());
        threads.fold(0, u64::saturating_add)
    }

    /// Returns the events that were recorded and cannot be read.
    pub(crate) fn unread(&self) -> u64 {
        let said = self.ending.map_or(0, |ending| ending.events);
        said.saturating_sub(self.events)
    }

    /// Reports whether it is a small program that acquired nothing, mapped nothing and ended by itself: the recorder
    /// was there, and there was nothing. One that maps memory usually brings an allocator, and its blocks are
    /// missing.
    pub(crate) fn made_nothing(&self, counts: &Counts) -> bool {
        let is_end = |ending: &Ending| matches!(ending.exit, Exit::Exited(_) | Exit::Exec);
        let (events, lost) = self
            .ending
            .map_or((0, 0), |one| (one.events, one.lost_events));
        self.ending.is_some_and(is_end)
            && counts.allocations + counts.maps + lost == 0
            && self.events >= events
            && self.damage.is_empty()
            && !self.never_began()
    }

    fn says(&self, words: &str) -> bool {
        let mut notes = self.ending.iter().flat_map(|ending| &ending.notes);
        notes.any(|note| note.contains(words))
    }

    /// Reports whether the process said hello to the collector and could not begin to record.
    pub(crate) fn never_began(&self) -> bool {
        self.says(NEVER_BEGAN)
    }

    /// Reports whether the recorder came to the process while it ran.
    pub(crate) fn is_attached(&self) -> bool {
        self.says("(attached)")
    }

    /// Reports whether acquisitions were missed while the recorder was there: recording had not begun, or was
    /// stopped.
    pub(crate) fn was_paused(&self) -> bool {
        self.says("recording was stopped")
    }

    /// Reports whether the recorder saw the process from its first call on: it was neither attached to nor paused, and
    /// could begin.
    pub(crate) fn is_from_birth(&self) -> bool {
        !self.is_attached() && !self.was_paused() && !self.never_began()
    }

    /// Returns why nothing may have been recorded (M3).
    pub(crate) fn nothing_recorded(&self) -> String {
        if self.never_began() {
            return "Nothing was recorded: the process met the collector and could not begin: it had too few free \
                    descriptors (four) or memory, a filter of system calls refused them, or it ended there."
                .into();
        }
        match self.ending {
            // What is lost was made: its absence says nothing of the program.
            Some(Ending { lost_events, .. }) if *lost_events > 0 => {
                return format!(
                    "No allocation was recorded, but {} went by that could not be written: what they were is not \
                     known.",
                    count(*lost_events, "event")
                );
            }
            Some(_) if self.was_quiet() => {
                return match self.events {
                    0 => {
                        "Nothing was recorded: no heap call was made while it was recorded.".into()
                    }
                    _ => "No block was acquired while it was recorded.".into(),
                };
            }
            // The recorder was there to the end: what it did not see did not pass through malloc.
            Some(ending) if !matches!(ending.exit, Exit::Unknown | Exit::Detached) => {
                // What was mapped was recorded.
                if self.events > 0 {
                    return format!(
                        "{NO_HEAP_CALL} Calls of an allocator or a runtime of its own do not come to the recorder: see \
                         'mapped by the program'."
                    );
                }
                return format!(
                    "{NO_CALL_SEEN} Small programs make none; others bring an allocator of their own, whose calls do \
                     not come to the recorder: what that has mapped stands in 'mapped by the program', by stack."
                );
            }
            None => {
                return "Nothing was recorded before the trace was cut: record again, and let skinflint \
                        end by itself."
                    .into();
            }
            _ => {}
        }
        let mut text = String::from("Nothing was recorded: ");
        if self.events > 0 {
            text.push_str("there are events, but no allocation among them. The");
        } else {
            text.push_str("the");
        }
        text.push_str(
            " program may be statically linked or setuid (LD_PRELOAD cannot see it), may bring an \
             allocator of its own, whose calls do not come to the recorder, or may have ended before its \
             first allocation.",
        );
        match self.process.exe.as_str() {
            "" => text.push_str(" Check that skinflint started the program that you meant."),
            exe => text.push_str(&format!(" Try: file {exe}")),
        }
        text
    }
}

#[cfg(test)]
#[path = "missing_tests.rs"]
pub(crate) mod tests;
