//! The Firefox Profiler's processed profile, with native allocations: stacks in any window of time.
//!
//! ```text
//!   span (site, born, died, bytes) ─► +bytes at its birth, −bytes at its death, under one address
//!   rss samples ─► the counter "resident memory"
//! ```
//!
//! O1  The sum of what is acquired is the usable bytes over the run; what has no release is what lived at the end.
//!     "Retained memory" of a window is exact to one part in [`BINS`] of the run.
//! O2  An address stands for all blocks of one stack that were born in one bin and died in another. The format has no
//!     place for counts of blocks: it has bytes only.
//! O3  Bytes of blocks that a fork gave to the process are not in it: the process did not acquire them.
//!
//! The format: docs-developer/processed-profile-format.md of github.com/firefox-devtools/profiler, written
//! by the crate `fxprof-processed-profile`. Not here: threads; a stack is a stack.
//!
//! [`BINS`]: crate::lives::BINS

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use fxprof_processed_profile::{
    CategoryHandle, Frame, FrameFlags, FrameInfo, ProcessHandle, Profile, ReferenceTimestamp,
    SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};

use crate::source::{NO_STACK, Source, name};

/// The thread of the native allocations, and its stacks.
struct Stacks<'a> {
    source: Source<'a>,
    profile: Profile,
    thread: ThreadHandle,
    /// The known stacks, by index of the report's sites.
    known: Vec<Option<StackHandle>>,
}

impl Stacks<'_> {
    fn of(&mut self, site: usize) -> Option<StackHandle> {
        if self.known[site].is_none() {
            let node = self.source.report.sites[site].node;
            let mut path = self.source.path(node);
            path.reverse();
            let mut frames: Vec<FrameInfo> = Vec::with_capacity(path.len().max(1));
            for frame in path {
                let frame = self.source.frame(frame);
                let place = match (&frame.file, frame.line) {
                    (Some(file), Some(line)) => format!(" ({file}:{line})"),
                    _ if frame.module.is_empty() => String::new(),
                    _ => format!(" (in {})", frame.module),
                };
                frames.push(self.label(&format!("{}{place}", name(frame))));
            }
            if frames.is_empty() {
                frames.push(self.label(NO_STACK));
            }
            let frames = frames.into_iter();
            self.known[site] = self.profile.intern_stack_frames(self.thread, frames);
        }
        self.known[site]
    }

    fn label(&mut self, text: &str) -> FrameInfo {
        FrameInfo {
            frame: Frame::Label(self.profile.intern_string(text)),
            category_pair: CategoryHandle::OTHER.into(),
            flags: FrameFlags::empty(),
        }
    }
}

/// Writes the profile. Memory: that of the whole profile.
///
/// # Errors
/// Those of `out`.
pub fn write(source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let program = &source.report.program;
    let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(program.started_unix_ns);
    let mut profile = Profile::new(
        &program.name,
        ReferenceTimestamp::from_system_time(started),
        SamplingInterval::from_nanos(source.lives.bin_ns.max(1)),
    );
    profile.set_product(&source.headline());
    profile.set_symbolicated(true);
    let begin = Timestamp::from_nanos_since_reference(0);
    let end = Timestamp::from_nanos_since_reference(program.duration_ns);
    let process = profile.add_process(&program.name, program.pid, begin);
    let thread = profile.add_thread(process, program.pid, begin, true);
    profile.set_process_end_time(process, end);
    profile.set_thread_end_time(thread, end);
    profile.set_thread_name(thread, &program.name);
    profile.add_initial_visible_thread(thread);
    profile.add_initial_selected_thread(thread);
    resident(source, &mut profile, process);
    let mut stacks = Stacks {
        source,
        profile,
        thread,
        known: vec![None; source.report.sites.len()],
    };
    allocations(&mut stacks);
    serde_json::to_writer(&mut *out, &stacks.profile)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Adds the allocations (O1), in order of time.
fn allocations(stacks: &mut Stacks<'_>) {
    let lives = stacks.source.lives;
    let mut rows: Vec<(u32, usize, i64)> = Vec::new();
    for (index, span) in lives.spans.iter().enumerate() {
        let bytes = i64::try_from(span.usable_bytes).unwrap_or(i64::MAX);
        rows.push((span.born, index, bytes));
        if let Some(died) = span.died {
            rows.push((died, index, -bytes));
        }
    }
    // Births come before deaths within a bin.
    rows.sort_unstable_by_key(|&(bin, index, bytes)| (bin, bytes < 0, index));
    for (bin, index, bytes) in rows {
        let stack = stacks.of(lives.spans[index].site as usize);
        let ns = u64::from(bin).saturating_mul(lives.bin_ns);
        // A death within the bin of its birth comes at the bin's end.
        let ns = ns.saturating_add(if bytes < 0 {
            lives.bin_ns.saturating_sub(1)
        } else {
            0
        });
        let address = (index as u64 + 1) << 4;
        let at = Timestamp::from_nanos_since_reference(ns);
        let thread = stacks.thread;
        stacks
            .profile
            .add_allocation_sample(thread, at, stack, address, bytes);
    }
}

/// Adds resident memory; the counter's samples are differences.
fn resident(source: Source<'_>, profile: &mut Profile, process: ProcessHandle) {
    let timeline = &source.report.timeline;
    if timeline.rss_bytes.is_empty() {
        return;
    }
    let counter = profile.add_counter(process, "resident memory", "Memory", "VmRSS of the process");
    let mut before = 0i64;
    for (&ns, &bytes) in timeline.rss_t_ns.iter().zip(&timeline.rss_bytes) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let at = Timestamp::from_nanos_since_reference(ns);
        profile.add_counter_sample(counter, at, (bytes - before) as f64, 1);
        before = bytes;
    }
}
