//! Notes on a trace that is odd although nothing is missing, and how the process ended, in words.
//!
//! Not here: what is missing (`missing.rs`), notes on the books (`books.rs`).

use crate::passes::wording::bytes;
use skinflint_trace::{Exit, OriginKind};

use crate::facts::Facts;
use crate::missing::{self, Known};
use crate::peak::resident_bytes;
use crate::sums::Counts;

/// Returns what the reader should know although nothing is missing.
pub(crate) fn odd(facts: &Facts, known: &Known<'_>, counts: &Counts) -> Vec<String> {
    let mut notes = Vec::new();
    let forked = matches!(&known.process.origin, Some(origin) if origin.how == OriginKind::Fork);
    // A copy lives on what its parent had: one that acquires nothing is nothing unusual.
    let made_nothing = known.made_nothing(counts) && (known.events == 0 || !forked);
    if counts.allocations == 0 && (made_nothing || known.was_quiet()) {
        notes.push(known.nothing_recorded());
    }
    notes.extend(missing::children(&facts.lost));
    if let Some(ending) = &facts.ending {
        // These are among what is missing.
        let said = [
            missing::NO_RING,
            missing::FILTERED,
            missing::DEEP,
            missing::NEVER_BEGAN,
        ];
        let is_said = |note: &&String| said.iter().any(|words| note.contains(words));
        let of = ending.notes.iter();
        notes.extend(of.filter(|note| !is_said(note)).cloned());
    }
    if let Some(note) = missed_peak(facts) {
        notes.push(note);
    }
    if facts.snapshots.is_empty() {
        let how = if facts.rss.is_empty() { "" } else { " by page" };
        notes.push(format!(
            "Resident memory was not sampled{how}: there are no books, only the heap."
        ));
    }
    notes
}

/// Kernels count pages in batches, one for each processor and kind: two counts of the same memory differ by up to
/// this.
const COUNT_SLACK_BYTES: u64 = 512 << 10;

/// Returns a note on a peak that the kernel or a sample saw and no snapshot did: samples are taken more often than
/// snapshots, and the kernel's high-water mark misses nothing. More than a fiftieth is worth a note, since the books
/// are not of that moment.
fn missed_peak(facts: &Facts) -> Option<String> {
    let peak = facts.snapshots.iter().map(resident_bytes).max()?;
    let is_missed = |most: u64| most > peak + (peak / 50).max(COUNT_SLACK_BYTES);
    let sample = facts.rss.iter().max_by_key(|sample| sample.rss_bytes);
    let sampled = sample.map_or(0, |sample| sample.rss_bytes);
    let mark = facts.ending.as_ref().and_then(|end| end.max_rss_bytes);
    let sample = sample.filter(|sample| is_missed(sample.rss_bytes));
    let is_beyond = |mark| sample.is_none() || mark > sampled + sampled / 50;
    let mark = mark.filter(|&mark| is_missed(mark) && is_beyond(mark));
    let at = |sample: &skinflint_trace::RssSample| {
        let seconds = sample.time_ns as f64 / 1e9;
        format!("{} at {seconds:.3} s", bytes(sample.rss_bytes))
    };
    let full = format!("the largest moment with full figures had {}", bytes(peak));
    match (mark, sample) {
        (Some(mark), Some(sample)) => Some(format!(
            "The kernel's high-water mark is {}; no look fell on it: resident memory was {}, and {full}.",
            bytes(mark),
            at(sample)
        )),
        (Some(mark), None) => Some(format!(
            "The kernel's high-water mark is {}; no look fell on it: {full}.",
            bytes(mark)
        )),
        (None, Some(sample)) => Some(format!("Resident memory was {}; {full}.", at(sample))),
        (None, None) => None,
    }
}

/// Describes how the process ended.
pub(crate) fn ended(facts: &Facts) -> String {
    match facts.ending.as_ref().map(|ending| ending.exit) {
        None | Some(Exit::Unknown) => "unknown".into(),
        Some(Exit::Exited(status)) => format!("exit {status}"),
        Some(Exit::Signal(signal)) => match signal_name(signal) {
            Some(name) => format!("signal {signal} ({name})"),
            None => format!("signal {signal}"),
        },
        Some(Exit::Exec) => "exec".into(),
        Some(Exit::Detached) => "detached".into(),
    }
}

/// Returns the name of a signal that ends processes, x86-64 Linux.
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

/// Describes where the process came from.
pub(crate) fn origin(facts: &Facts) -> Option<String> {
    let origin = facts.process.origin.as_ref()?;
    Some(match origin.how {
        OriginKind::Fork => format!("forked from process {}", origin.pid),
        OriginKind::Spawn => format!("started by process {}", origin.pid),
        // The process is the same: a shim, or a shell's `exec`.
        OriginKind::Exec => "took the place of another program (exec)".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_trace::{Ending, Mapping, RssSample, Snapshot, SnapshotCause};

    const MIB: u64 = 1 << 20;

    /// What is said of a full look, a sample and a mark of so many bytes.
    fn said(full: u64, sampled: u64, mark: Option<u64>) -> Option<String> {
        let facts = Facts {
            snapshots: vec![Snapshot {
                time_ns: 1,
                ticket: 1,
                cause: SnapshotCause::Peak,
                took_ns: 0,
                counted_bytes: None,
                tops: None,
                mappings: vec![Mapping {
                    rss_bytes: full,
                    ..Mapping::default()
                }],
            }],
            rss: vec![RssSample {
                time_ns: 1_500_000_000,
                rss_bytes: sampled,
                ..RssSample::default()
            }],
            ending: Some(Ending {
                max_rss_bytes: mark,
                ..Ending::default()
            }),
            ..Facts::default()
        };
        missed_peak(&facts)
    }

    #[test]
    fn a_peak_that_no_look_fell_on_is_said() {
        let missed = said(92 * MIB, 92 * MIB, Some(100 * MIB)).expect("8 % are missing");
        assert!(missed.contains("high-water mark is 100 MiB"), "{missed}");
        assert!(missed.contains("no look fell on it"), "{missed}");
        assert!(missed.contains("had 92.0 MiB"), "{missed}");
        // A fiftieth of 100 MiB is 2.
        assert_eq!(said(100 * MIB, 100 * MIB, Some(102 * MIB)), None);
        assert!(said(100 * MIB, 100 * MIB, Some(102 * MIB + 1)).is_some());
        // A batch of the kernel's counts.
        assert_eq!(
            said(4 * MIB, 4 * MIB, Some(4 * MIB + COUNT_SLACK_BYTES)),
            None
        );
        assert_eq!(said(100 * MIB, 100 * MIB, None), None);
        // Between the two, a sample that is near to both.
        let missed = said(100 * MIB, 101 * MIB, Some(103 * MIB)).expect("3 % are missing");
        assert!(missed.contains("high-water mark is 103 MiB"), "{missed}");
    }

    #[test]
    fn a_peak_that_only_a_sample_fell_on_is_the_samples() {
        let sampled = said(92 * MIB, 99 * MIB, Some(100 * MIB)).expect("no full look fell on it");
        assert!(sampled.starts_with("Resident memory was 99.0 MiB at 1.500 s"));
        let both = said(80 * MIB, 90 * MIB, Some(100 * MIB)).expect("no look at all fell on it");
        assert!(both.contains("100 MiB; no look fell on it: resident memory was 90.0 MiB"));
    }
}
