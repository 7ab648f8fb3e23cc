//! What is odd about a trace although nothing is missing, and how the process ended, in words.
//!
//! Not here: what is missing (`missing.rs`), notes on the books (`books.rs`).

use crate::passes::wording::bytes;
use skinflint_trace::{Exit, OriginKind};

use crate::facts::Facts;
use crate::missing::{self, Known};
use crate::peak::resident_bytes;

/// What the reader should know although nothing is missing.
pub(crate) fn odd(facts: &Facts, known: &Known<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    if known.made_nothing() {
        notes.push(known.nothing_recorded());
    }
    notes.extend(missing::children(&facts.lost));
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
    let peak = facts.snapshots.iter().map(resident_bytes).max()?;
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
