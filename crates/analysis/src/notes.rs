//! What is missing from a trace, and how the process ended, in words.
//!
//! ```text
//!   Facts, Counts ──► missing(): the trace is not whole      odd(): it is whole, and yet
//! ```
//!
//! W1  A trace without events says that nothing was recorded and why that may be. It never says that
//!     there is nothing to report.
//! W2  `missing` is empty exactly when the trace is complete.
//!
//! Not here: notes on the books (`books.rs`).

use crate::passes::wording::{bytes, count};
use skinflint_trace::{Exit, OriginKind};

use crate::facts::Facts;
use crate::ledger::Counts;

/// Why the trace is not whole, a sentence each, the weightiest first (W2).
pub(crate) fn missing(facts: &Facts, counts: &Counts, parked: u64) -> Vec<String> {
    let mut notes = Vec::new();
    // The recorder is in a child of fork if it was in the parent: one that allocates nothing is whole.
    let forked = matches!(&facts.process.origin, Some(origin) if origin.how == OriginKind::Fork);
    if counts.allocations == 0 && !forked {
        notes.push(nothing_recorded(facts, counts));
    }
    match &facts.ending {
        None => notes.push(
            "No end mark: the recording was cut off (the collector was killed, the disk was full, \
             or the file was copied while it was written); what happened after the last event is \
             not known."
                .into(),
        ),
        Some(ending) => {
            if ending.lost_events > 0 {
                notes.push(format!(
                    "Lost while recording: {}. Counts are too low by that much, and blocks whose \
                     release was lost count as live.",
                    count(ending.lost_events, "event")
                ));
            }
            if ending.events > counts.events {
                notes.push(format!(
                    "{} of {} recorded events could not be read.",
                    ending.events - counts.events,
                    ending.events
                ));
            }
        }
    }
    notes.extend(facts.damage.iter().cloned());
    if counts.lost_frees > 0 {
        notes.push(format!(
            "Handed out again without a release between: {}. Those releases were not recorded.",
            count(counts.lost_frees, "block")
        ));
    }
    if counts.lost_reallocs > 0 {
        notes.push(format!(
            "Of {} only the beginning or the end was recorded.",
            count(counts.lost_reallocs, "realloc")
        ));
    }
    if counts.damaged_events > 0 {
        notes.push(format!(
            "Left out, because of impossible addresses or sizes: {}.",
            count(counts.damaged_events, "event")
        ));
    }
    if parked > 0 {
        notes.push(format!(
            "Under way at the end: {}. The old block counts as live.",
            count(parked, "realloc")
        ));
    }
    notes
}

fn nothing_recorded(facts: &Facts, counts: &Counts) -> String {
    let mut text = String::from("Nothing was recorded: ");
    match &facts.ending {
        // The recorder was there to the end: what it did not see, did not pass through malloc.
        Some(ending) if ending.exit != Exit::Unknown => {
            return "Nothing was recorded: the program made no heap call that could be seen. Small \
                    programs make none; others bring an allocator of their own that does not export \
                    malloc."
                .into();
        }
        None => {
            return "Nothing was recorded before the trace was cut: record again, and let skinflint \
                    end by itself."
                .into();
        }
        _ => {}
    }
    if counts.events > 0 {
        text.push_str("there are events, but no allocation among them. ");
    }
    text.push_str(
        "the program may be statically linked or setuid (LD_PRELOAD cannot see it), may bring an \
         allocator of its own that does not export malloc, or may have ended before its first \
         allocation.",
    );
    if facts.process.exe.is_empty() {
        text.push_str(" Check that skinflint started the program that you meant.");
    } else {
        text.push_str(&format!(" Try: file {}", facts.process.exe));
    }
    text
}

/// What the reader should know although nothing is missing.
pub(crate) fn odd(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(ending) = &facts.ending {
        notes.extend(ending.notes.iter().cloned());
    }
    if let Some(note) = missed_peak(facts) {
        notes.push(note);
    }
    if facts.rss.is_empty() && facts.snapshots.is_empty() {
        notes.push("Resident memory was not sampled: there are no books, only the heap.".into());
    }
    notes
}

/// Samples are taken more often than snapshots, so they may have seen more.
fn missed_peak(facts: &Facts) -> Option<String> {
    let sample = facts.rss.iter().max_by_key(|sample| sample.rss_bytes)?;
    let peak = facts
        .snapshots
        .iter()
        .map(|one| {
            one.mappings
                .iter()
                .map(|mapping| mapping.rss_bytes)
                .sum::<u64>()
        })
        .max()?;
    // Within 2 % or 1 MiB the two counts of the kernel differ by batching alone.
    (sample.rss_bytes > peak + (peak / 50).max(1 << 20)).then(|| {
        format!(
            "Resident memory was {} at {:.3} s; the largest moment with full figures had {}.",
            bytes(sample.rss_bytes),
            sample.time_ns as f64 / 1e9,
            bytes(peak)
        )
    })
}

/// How the process ended.
pub(crate) fn ended(facts: &Facts) -> String {
    match facts.ending.as_ref().map(|ending| ending.exit) {
        None | Some(Exit::Unknown) => "unknown".into(),
        Some(Exit::Exited(status)) => format!("exit {status}"),
        Some(Exit::Signal(signal)) => match signal_name(signal) {
            Some(name) => format!("signal {signal} ({name})"),
            None => format!("signal {signal}"),
        },
        Some(Exit::Exec) => "exec".into(),
    }
}

/// Names of the signals that end processes, x86-64 Linux.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return None,
    })
}

/// Where the process came from.
pub(crate) fn origin(facts: &Facts) -> Option<String> {
    let origin = facts.process.origin.as_ref()?;
    let how = match origin.how {
        OriginKind::Fork => "forked from",
        OriginKind::Spawn => "started by",
        OriginKind::Exec => "was, before exec,",
    };
    Some(format!("{how} {} (trace {})", origin.pid, origin.uid))
}
