//! Memory that is free at a moment, and afterwards: the program stays steady with it, takes it again, or is about to
//! end.
//!
//! ```text
//!              ▼ the moment
//!   live  ▂▄▆█▇▂▂▂▂▂▂▂▂▂▁|   steady: for a span of time it does not fall
//!   live  ▂▄▆█▇▆▅▄▃▂▁|       ends: it falls all the way, and there is no span left
//!   live  ▂▄▆█▂▂█▂▂█▂▂█▂▂▁   takes it again: how far it rises within a span
//! ```
//!
//! E1  A span is a tenth of the run, at least 100 ms and at most a second; in a run so long that the curve has no
//!     such detail, it is four intervals of the curve.
//! E2  A program is steady after a moment if somewhere between it and the end there is a span over which live memory ends
//!     no more than a hundredth of its peak lower than it begins. Destructors at the end of a program only lower it;
//!     a daemon's release is followed by time. How much it acquires tells nothing: a daemon without work acquires
//!     nothing.
//! E3  The end is where the program began to exit, if a snapshot was taken then: what the recorder does
//!     afterwards does not make it steady.
//! E4  What live memory rises by within a span is taken again: the free memory of that moment was working memory.
//!     What goes from resident memory within it, and is not live memory that fell, is already given back.
//! E5  What is free for less than a tenth of the run before its end, at most ten seconds, is not kept for long.
//!
//! E7  What is free at a moment was free before it, too, as long as live memory was what it is: a mark at the end of a
//!     rest has the rest before it.
//!
//! E6  jemalloc gives free pages back by itself, ten seconds after they became free unless it was told otherwise: what is
//!     free for less is not kept, but on its way, and how much of it a run of a second shows depends on how fast the
//!     machine is. So under jemalloc memory is looked after for that time, and nothing is known of what is free for less.
//!
//! Not here: which moments are looked at (`waste.rs`), what is advised (`findings.rs`).

use skinflint_trace::SnapshotCause;

use crate::facts::Facts;
use crate::model::Timeline;

const SHORTEST_NS: u64 = 100_000_000;
const LONGEST_NS: u64 = 1_000_000_000;
/// The most time before the end for which free memory is not kept for long (E5).
const EXIT_NS: u64 = 10_000_000_000;
/// The time after which jemalloc gives a free page back by itself (`opt.dirty_decay_ms`), nanoseconds (E6).
const JEMALLOC_DECAY_NS: u64 = 10_000_000_000;
/// A span is one part in this many of the run (E1).
const PART: u64 = 10;
/// The fewest intervals of the curve that a span has.
const INTERVALS: u64 = 4;
/// In a steady span live memory may fall by one part in this many of the peak (E2).
const FALL: u64 = 100;

/// The data of the run after moments.
#[derive(Clone, Copy)]
pub(crate) struct Steady<'a> {
    timeline: &'a Timeline,
    /// The time at which the program begins to exit (E3).
    end_ns: u64,
    span_ns: u64,
    /// The time after which the allocator gives back what is free; 0 if it never does (E6).
    decay_ns: u64,
}

/// The fate of free memory within a span after a moment (E4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Then {
    /// The bytes that live memory rises above its level at the moment.
    pub taken_bytes: u64,
    /// The bytes given back to the system.
    pub gone_bytes: u64,
}

impl<'a> Steady<'a> {
    /// Creates the data of a run that ended then. Cost: none.
    pub fn of(facts: &Facts, timeline: &'a Timeline, end_ns: u64) -> Steady<'a> {
        let exit = facts.snapshots.iter().rev();
        let exit = exit
            .filter(|one| one.cause == SnapshotCause::Exit)
            .map(|one| one.time_ns)
            .next();
        let interval = timeline.heap_t_ns.first().copied().unwrap_or(0);
        let decay_ns = match facts.process.allocator.contains("jemalloc") {
            true => JEMALLOC_DECAY_NS,
            false => 0,
        };
        let span_ns = (end_ns / PART).clamp(SHORTEST_NS, LONGEST_NS);
        Steady {
            timeline,
            end_ns: exit.unwrap_or(end_ns).min(end_ns),
            span_ns: span_ns.max(interval.saturating_mul(INTERVALS)),
            decay_ns,
        }
    }

    /// Returns the time for which free memory is looked after, nanoseconds: a span, or the allocator's decay (E6).
    pub fn looked_ns(&self) -> u64 {
        self.span_ns.max(self.decay_ns)
    }

    /// Returns the time from a moment to the end, nanoseconds.
    pub fn rest_ns(&self, time_ns: u64) -> u64 {
        self.end_ns.saturating_sub(time_ns)
    }

    /// Reports whether the allocator would have given back by the end what was free at a moment (E6).
    pub fn outlasts_decay(&self, time_ns: u64) -> bool {
        self.decay_ns == 0 || time_ns.saturating_add(self.decay_ns) <= self.end_ns
    }

    /// Returns the interval of the curve that a time lies in, or the last one.
    fn interval(&self, time_ns: u64) -> usize {
        let ends = &self.timeline.heap_t_ns;
        ends.partition_point(|end| *end <= time_ns)
            .min(ends.len().saturating_sub(1))
    }

    fn level(&self, interval: usize) -> u64 {
        let levels = &self.timeline.live_usable_bytes;
        levels.get(interval).copied().unwrap_or(0)
    }

    /// Reports whether the program is steady after a moment (E2).
    pub fn is_steady_after(&self, time_ns: u64) -> bool {
        self.steady_levels(time_ns).next().is_some()
    }

    /// Returns the levels at which it is steady after a moment (E2).
    fn steady_levels(&self, time_ns: u64) -> impl Iterator<Item = u64> {
        let ends = &self.timeline.heap_t_ns;
        let peak = self.timeline.live_usable_bytes.iter().max().copied();
        let may_fall = peak.unwrap_or(0) / FALL;
        let first = self.interval(time_ns);
        (first..ends.len()).filter_map(move |interval| {
            let from_ns = match interval == first {
                true => time_ns,
                false => ends[interval - 1],
            };
            let to_ns = from_ns.saturating_add(self.span_ns);
            let then = self.level(self.interval(to_ns));
            // An interval's level is its highest: that of the first one may be from before the moment.
            let is_steady = to_ns <= self.end_ns && self.level(interval) <= then + may_fall;
            is_steady.then_some(then)
        })
    }

    /// Returns since when live memory has been what it is at a moment, but for a hundredth of its peak (E7): at the
    /// latest the moment itself.
    pub fn level_since(&self, time_ns: u64) -> u64 {
        let peak = self.timeline.live_usable_bytes.iter().max().copied();
        let may_differ = peak.unwrap_or(0) / FALL;
        let at = self.interval(time_ns);
        let level = self.level(at);
        let is_as_high = |one: &usize| self.level(*one).abs_diff(level) <= may_differ;
        let Some(first) = (0..at).rev().take_while(is_as_high).last() else {
            return time_ns;
        };
        let begins_ns = match first {
            0 => 0,
            first => self.timeline.heap_t_ns[first - 1],
        };
        begins_ns.min(time_ns)
    }

    /// Returns how far the live memory of a moment has fallen, at most, where the program is steady afterwards; 0
    /// if it never is again.
    pub fn falls_until_steady(&self, time_ns: u64, live_bytes: u64) -> u64 {
        let levels = self.steady_levels(time_ns);
        let lowest = levels.min().unwrap_or(live_bytes);
        live_bytes.saturating_sub(lowest)
    }

    /// Reports whether the program ends soon after a moment (E5).
    pub fn ends_after(&self, time_ns: u64) -> bool {
        let soon = self.span_ns.max((self.end_ns / PART).min(EXIT_NS));
        time_ns.saturating_add(soon) > self.end_ns
    }

    /// Returns what becomes, within a span, of memory that is free at a moment with `live_bytes` live (E4).
    pub fn then(&self, time_ns: u64, live_bytes: u64) -> Then {
        let to_ns = time_ns.saturating_add(self.looked_ns()).min(self.end_ns);
        let (first, last) = (self.interval(time_ns) + 1, self.interval(to_ns));
        let levels = || (first..=last).map(|interval| self.level(interval));
        let highest = levels().max().unwrap_or(live_bytes);
        let lowest = levels().min().unwrap_or(live_bytes).min(live_bytes);
        let line = self.timeline;
        let samples = line.rss_t_ns.iter().zip(&line.anon_bytes);
        let before = samples.clone().rfind(|(at, _)| **at <= time_ns);
        let within = samples.filter(|(at, _)| (time_ns..=to_ns).contains(at));
        let least = within.map(|(_, bytes)| *bytes).min();
        let gone = match (before, least) {
            (Some((_, before)), Some(least)) => before.saturating_sub(least),
            _ => 0,
        };
        Then {
            taken_bytes: highest.saturating_sub(live_bytes),
            gone_bytes: gone.saturating_sub(live_bytes - lowest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_trace::Snapshot;

    const MS: u64 = 1_000_000;

    /// A curve of 10 ms for each level.
    fn curve(levels: &[u64]) -> Timeline {
        Timeline {
            heap_t_ns: (1..=levels.len() as u64).map(|n| n * 10 * MS).collect(),
            live_usable_bytes: levels.to_vec(),
            ..Timeline::default()
        }
    }

    fn steady<'a>(facts: &Facts, timeline: &'a Timeline) -> Steady<'a> {
        let end = timeline.heap_t_ns.last().copied();
        Steady::of(facts, timeline, end.expect("a curve"))
    }

    /// Up to 10,000 and down again, in so many steps, and then so long at a level.
    fn run(falls: u64, level: u64, stays: usize) -> Timeline {
        let mut levels = vec![10_000; 10];
        levels.extend((1..=falls).map(|n| 10_000 - (10_000 - level) * n / falls));
        levels.extend(vec![level; stays]);
        curve(&levels)
    }

    #[test]
    fn a_level_lasts_from_where_it_was_reached() {
        let line = curve(&[0, 10_000, 10_000, 500, 480, 520, 500, 0]);
        let facts = Facts::default();
        let of = steady(&facts, &line);
        assert_eq!(of.level_since(65 * MS), 30 * MS, "the fourth interval");
        assert_eq!(of.level_since(32 * MS), 32 * MS, "it has just fallen");
        assert_eq!(of.level_since(29 * MS), 10 * MS);
        assert_eq!(of.level_since(5 * MS), 5 * MS);
        assert_eq!(of.level_since(79 * MS), 79 * MS);
        let nothing = Timeline::default();
        let of = Steady::of(&facts, &nothing, 0);
        assert_eq!(of.level_since(7), 7);
    }

    #[test]
    fn a_daemon_rests_and_an_exit_falls() {
        let facts = Facts::default();
        let is_steady =
            |line: &Timeline, at_ms: u64| steady(&facts, line).is_steady_after(at_ms * MS);
        // Released within 20 ms; then 400 ms, or 80.
        assert!(is_steady(&run(2, 50, 40), 130));
        assert!(!is_steady(&run(2, 50, 8), 130));
        // A slow exit: 800 ms of releases, and however long the moment is before the end.
        assert!(!is_steady(&run(80, 0, 0), 110));
        assert!(!is_steady(&run(80, 0, 5), 110));
        // The moment comes before the release, or amidst of it.
        assert!(is_steady(&run(80, 50, 40), 110));
        assert!(is_steady(&run(80, 50, 40), 600));
    }

    #[test]
    fn rest_ends_where_the_exit_begins() {
        let line = run(2, 50, 40);
        let mut facts = Facts::default();
        let exit = |time_ns| Snapshot {
            time_ns,
            ticket: 9,
            cause: SnapshotCause::Exit,
            took_ns: 0,
            counted_bytes: None,
            tops: None,
            mappings: Vec::new(),
        };
        facts.snapshots = vec![exit(240 * MS)];
        assert!(steady(&facts, &line).is_steady_after(130 * MS));
        facts.snapshots = vec![exit(220 * MS)];
        assert!(
            !steady(&facts, &line).is_steady_after(130 * MS),
            "90 ms are no span"
        );
    }

    #[test]
    fn what_has_gone_by_a_later_rest_is_known() {
        let facts = Facts::default();
        let falls = |line: &Timeline, at_ms: u64| {
            steady(&facts, line).falls_until_steady(at_ms * MS, 10_000)
        };
        assert_eq!(falls(&run(2, 50, 40), 95), 9_950);
        assert_eq!(falls(&run(2, 50, 8), 95), 0, "it ends at once");
        assert_eq!(falls(&run(80, 0, 0), 95), 0, "a slow exit");
        let kept = [vec![10_000; 50], run(8, 0, 0).live_usable_bytes].concat();
        assert_eq!(
            falls(&curve(&kept), 95),
            0,
            "it is steady, and clears up then"
        );
    }

    #[test]
    fn the_end_is_near_for_a_tenth_of_the_run() {
        let line = curve(&[1, 1]);
        let ends = |end_s: u64, before_ms: u64| {
            let end_ns = end_s * 1000 * MS;
            let steady = Steady::of(&Facts::default(), &line, end_ns);
            steady.ends_after(end_ns - before_ms * MS)
        };
        assert_eq!([999, 1000].map(|before| ends(10, before)), [true, false]);
        assert_eq!([1999, 2000].map(|before| ends(20, before)), [true, false]);
        assert_eq!(
            [9999, 10_000].map(|before| ends(900, before)),
            [true, false]
        );
    }

    #[test]
    fn a_daemon_that_works_a_little_rests() {
        let mut levels = vec![10_000; 10];
        levels.extend((0..40).map(|n| 500 + n % 3 * 400));
        assert!(steady(&Facts::default(), &curve(&levels)).is_steady_after(110 * MS));
    }

    #[test]
    fn a_span_grows_with_the_run_and_with_the_curve() {
        let facts = Facts::default();
        let of =
            |line: &Timeline, end_ms: u64| Steady::of(&facts, line, end_ms * MS).looked_ns() / MS;
        let fine = curve(&[1, 1]);
        let spans = [500, 3_000, 60_000].map(|end| of(&fine, end));
        assert_eq!(spans, [100, 300, 1_000]);
        let facts = Facts {
            process: skinflint_trace::ProcessInfo {
                allocator: "jemalloc 5.3.0".into(),
                ..Default::default()
            },
            ..Facts::default()
        };
        let of = |end_ms: u64| Steady::of(&facts, &fine, end_ms * MS);
        let looked = [500, 3_000, 60_000].map(|end| of(end).looked_ns() / MS);
        assert_eq!(looked, [10_000; 3], "its decay");
        let outlasts = [9_999, 10_000].map(|end| of(end).outlasts_decay(0));
        assert_eq!(outlasts, [false, true]);
        assert!(!of(2_000).ends_after(1_000 * MS), "it rests all the same");
        let of = |line: &Timeline, end_ms: u64| {
            Steady::of(&Facts::default(), line, end_ms * MS).looked_ns() / MS
        };
        let coarse = Timeline {
            heap_t_ns: vec![4_000 * MS],
            live_usable_bytes: vec![1],
            ..Timeline::default()
        };
        assert_eq!(of(&coarse, 8_000_000), 16_000);
    }

    #[test]
    fn what_is_taken_again_or_given_back_is_seen_within_a_span_only() {
        // Free at 100 ms: 6,000 are taken again after 60 ms; or after 150.
        let taken = |after: usize| {
            let mut levels = vec![10_000; 10];
            levels.extend(vec![2_000; after]);
            levels.extend([8_000; 20]);
            let line = curve(&levels);
            steady(&Facts::default(), &line).then(105 * MS, 2_000)
        };
        assert_eq!([6, 15].map(|after| taken(after).taken_bytes), [6_000, 0]);
        // Resident memory falls by 5,000 while live memory falls by 1,000.
        let mut line = curve(&[vec![4_000; 11], vec![3_000; 30]].concat());
        line.rss_t_ns = vec![100 * MS, 150 * MS, 390 * MS];
        line.anon_bytes = vec![20_000, 15_000, 1_000];
        let then = steady(&Facts::default(), &line).then(105 * MS, 4_000);
        assert_eq!(
            then,
            Then {
                taken_bytes: 0,
                gone_bytes: 4_000
            }
        );
    }
}
