//! The begin of a program's exit: what it releases from there on was left behind until then.
//!
//! ```text
//!   acts    a f a a f | mark | f a f f f f f f f f f f f f f ■        a: acquires, f: releases
//!   stretches      0          2    2 … (a hundredth of the heap is acquired) … 3 …
//!                         ▲ stretch 3 ends the run: the exit began with stretch 2 at the earliest
//! ```
//!
//! E1  A main that returns runs destructors, drops containers, or finalizes an interpreter: next to nothing is
//!     acquired meanwhile. A stretch lasts until a hundredth of the largest heap was requested; the exit is at most the
//!     last two stretches, so between one and two hundredths.
//! E2  An exit begins after the last mark, and after the last pause: what is released before either is released by
//!     the program. So both begin two stretches.
//! E3  A count keeps its value from the beginning of the last two stretches, and moves it on when it changes: nothing is
//!     copied when a stretch begins.
//!
//! A program that is killed, or leaves by `_exit`, has no such tail: its last two stretches differ from its end by what
//! happens in them. Free memory has a rule of its own (`waste.rs`), which needs the time. Not here: what is counted
//! (phases_family.rs).

/// A stretch requests one part in this many of the largest heap (E1).
const PART: u64 = 100;
/// A stretch requests at least this much: a program's last words need a buffer.
const LEAST_BYTES: u64 = 16 << 10;
/// The time without any act that is a pause (E2).
const PAUSE_NS: u64 = 1_000_000_000;

/// The stretches of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    stretch: u32,
    asked_bytes: u64,
    highest_bytes: u64,
    last_ns: u64,
}

impl Tail {
    /// Returns the stretch that is under way.
    pub fn stretch(self) -> u32 {
        self.stretch
    }

    /// Notes an act, before it is counted.
    #[inline]
    pub fn act(&mut self, time_ns: u64) {
        if time_ns > self.last_ns.saturating_add(PAUSE_NS) {
            self.mark();
        }
        self.last_ns = self.last_ns.max(time_ns);
    }

    /// Notes that `bytes` were requested, and that `live_bytes` are live.
    #[inline]
    pub fn asked(&mut self, bytes: u64, live_bytes: u64) {
        self.highest_bytes = self.highest_bytes.max(live_bytes);
        self.asked_bytes = self.asked_bytes.saturating_add(bytes);
        if self.asked_bytes > (self.highest_bytes / PART).max(LEAST_BYTES) {
            self.next(1);
        }
    }

    /// Notes that a mark was reached, after it is counted.
    pub fn mark(&mut self) {
        self.next(2);
    }

    fn next(&mut self, stretches: u32) {
        self.stretch = self.stretch.saturating_add(stretches);
        self.asked_bytes = 0;
    }
}

/// A count for each half of the rounds, now and when the last two stretches began (E3).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    now: [u64; 2],
    /// The stretch of the last change, and the counts when the stretch before it and that stretch itself began.
    stretch: u32,
    was: [[u64; 2]; 2],
}

impl Kept {
    /// Returns the present count.
    pub fn now(&self) -> [u64; 2] {
        self.now
    }

    /// Returns the count that is to be changed in this stretch.
    pub fn change(&mut self, stretch: u32, half: u8) -> &mut u64 {
        if stretch != self.stretch {
            let before = if stretch == self.stretch.saturating_add(1) {
                self.was[1]
            } else {
                self.now
            };
            self.was = [before, self.now];
            self.stretch = stretch;
        }
        &mut self.now[usize::from(half)]
    }

    /// Returns the count before the exit of a run that ends in this stretch.
    pub fn before_exit(&self, stretch: u32) -> [u64; 2] {
        match stretch.saturating_sub(self.stretch) {
            0 => self.was[0],
            1 => self.was[1],
            _ => self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_has_its_value_of_the_stretch_before_the_last() {
        for step in [1u32, 2] {
            let mut kept = Kept::default();
            // What was counted when each stretch began, by plain copying.
            let mut began = vec![[0, 0]];
            let mut stretch = 0;
            for round in 0..50u64 {
                for _ in 0..round % 3 {
                    *kept.change(stretch, (round % 2) as u8) += round;
                }
                // A step of two leaves the stretch between empty: both began with the same.
                let back = if step == 2 { 1 } else { 2 };
                let wanted = began[began.len().saturating_sub(back)];
                assert_eq!(
                    kept.before_exit(stretch),
                    wanted,
                    "stretch {stretch} by {step}"
                );
                stretch += step;
                began.push(kept.now());
            }
        }
    }

    #[test]
    fn a_stretch_ends_with_a_hundredth_of_the_heap_and_a_mark_is_two() {
        let mut tail = Tail::default();
        tail.asked(10_000_000, 10_000_000);
        assert_eq!(tail.stretch(), 1);
        tail.asked(100_000, 0);
        assert_eq!(tail.stretch(), 1, "a hundredth, and no more");
        tail.asked(1, 0);
        assert_eq!(tail.stretch(), 2);
        tail.mark();
        assert_eq!(tail.stretch(), 4);
        tail.act(PAUSE_NS);
        assert_eq!(tail.stretch(), 4);
        tail.act(2 * PAUSE_NS + 1);
        assert_eq!(tail.stretch(), 6, "a pause");
        let mut small = Tail::default();
        small.asked(LEAST_BYTES, 100);
        assert_eq!(small.stretch(), 0, "a buffer for its last words");
    }
}
