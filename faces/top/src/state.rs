//! The state of the program so far: live blocks by stack, books, and how fast things change.
//!
//! ```text
//!   Event ─► Ledger ─► acts ─► Stack { live, acquired }      window: figures as of some seconds ago ─► growth, rates
//!   Snapshot ─ when its ticket has passed ─► books
//! ```
//!
//! T1  Live bytes of the stacks add up to those of the ledger; `others` is the sum of what is not shown.
//! T2  Growth and rates are over a window of recorded time that is shown with them: 5 to 10 s.
//! T3  Memory: live blocks, stacks, and two copies of the stacks' figures.
//!
//! Not here: drawing (picture.rs), files (feed.rs).

use rustc_hash::FxHashMap;
use skinflint_analysis::books;
use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::model::Books;
use skinflint_analysis::pass::Act;
use skinflint_trace::{Event, NodeId, ProcessInfo, RssSample, Snapshot};

/// Half of the longest window (T2).
const HALF_NS: u64 = 5_000_000_000;
/// The most recorded time between two points of the curve, if anything happened: a trace that is read at once has more
/// than its end.
const STEP_NS: u64 = 250_000_000;
/// The number of points of the curve that are kept.
const CURVE: usize = 240;

/// The figures of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stack {
    /// Usable bytes of live blocks.
    pub live_bytes: u64,
    /// Live blocks.
    pub live_blocks: u64,
    /// Usable bytes acquired, cumulative.
    pub acquired_bytes: u64,
    /// Blocks acquired, cumulative.
    pub acquired_blocks: u64,
}

/// A stack and its changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moving {
    /// The stack's node.
    pub node: NodeId,
    /// Its figures now.
    pub now: Stack,
    /// Live bytes now minus those at the start of the window.
    pub growth_bytes: i64,
    /// Usable bytes acquired per second of the window.
    pub churn_bytes_s: f64,
}

/// The figure that stacks are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sort {
    /// Live bytes.
    #[default]
    Live,
    /// Growth over the window.
    Growth,
    /// Bytes acquired per second.
    Churn,
}

/// The bounds of what the screen has room for.
const BOUNDS: books::Bounds = books::Bounds {
    parts: 3,
    pins: 0,
    keep: false,
};

impl Sort {
    /// Returns the next figure.
    pub fn next(self) -> Sort {
        match self {
            Sort::Live => Sort::Growth,
            Sort::Growth => Sort::Churn,
            Sort::Churn => Sort::Live,
        }
    }

    /// Returns the name of the figure.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Live => "live",
            Sort::Growth => "growth",
            Sort::Churn => "churn",
        }
    }
}

/// The figures as of a moment.
#[derive(Clone, Debug, Default)]
struct Base {
    time_ns: u64,
    events: u64,
    stacks: FxHashMap<NodeId, Stack>,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Nanoseconds since the trace began.
    pub time_ns: u64,
    /// Usable bytes of live blocks.
    pub live_bytes: u64,
}

/// The state of the program.
pub struct State {
    ledger: Ledger,
    stacks: FxHashMap<NodeId, Stack>,
    bases: [Base; 2],
    due: Vec<Snapshot>,
    /// Resident memory by the newest sample.
    pub rss: Option<RssSample>,
    /// The newest books, and when they were closed, nanoseconds since the trace began.
    pub books: Option<(u64, Books)>,
    /// What the kernel says of the program's control group, as a line of several lengths, the fullest first.
    pub group: Vec<String>,
    /// Live bytes over time, the newest last.
    pub curve: Vec<Point>,
    now_ns: u64,
}

impl Default for State {
    fn default() -> State {
        State {
            ledger: Ledger::new(2),
            stacks: FxHashMap::default(),
            bases: [Base::default(), Base::default()],
            due: Vec::new(),
            rss: None,
            books: None,
            group: Vec::new(),
            curve: Vec::new(),
            now_ns: 0,
        }
    }
}

impl State {
    /// Creates the state of a process that began with what lives in this ledger. Blocks that it began with are of no
    /// stack.
    pub fn begun_with(ledger: Ledger) -> State {
        State {
            ledger,
            ..State::default()
        }
    }

    /// Takes an event, in the order of tickets.
    pub fn event(&mut self, event: &Event) {
        self.advance(event.time_ns);
        let stacks = &mut self.stacks;
        self.ledger.apply(event, &mut |context, act| match *act {
            Act::Acquire { block, .. } => add(stacks, context.cell(block.cell)),
            Act::Release { block, .. } => sub(stacks, context.cell(block.cell)),
            Act::Regrow { old, new, .. } => {
                sub(stacks, context.cell(old.cell));
                add(stacks, context.cell(new.cell));
            }
            _ => {}
        });
    }

    /// Moves the time on, with or without events.
    pub fn advance(&mut self, to_ns: u64) {
        if to_ns > self.now_ns {
            let last_ns = self.curve.last().map_or(0, |point| point.time_ns);
            if self.now_ns.saturating_sub(last_ns) >= STEP_NS {
                self.draw_on();
            }
            self.now_ns = to_ns;
            if self.now_ns >= self.bases[1].time_ns + HALF_NS {
                self.rotate_bases();
            }
        }
    }

    /// Makes the newest base the older one, and the present the newest (T2).
    fn rotate_bases(&mut self) {
        self.bases.swap(0, 1);
        self.bases[1] = Base {
            time_ns: self.now_ns,
            events: self.ledger.counts().events,
            stacks: self.stacks.clone(),
        };
    }

    /// Takes samples and snapshots.
    pub fn samples(&mut self, rss: &[RssSample], snapshots: Vec<Snapshot>) {
        if let Some(newest) = rss.last() {
            self.rss = Some(*newest);
        }
        self.due.extend(snapshots);
        // At most one snapshot is laid over the blocks in a look; older ones would only be replaced.
        if self.due.len() > 16 {
            self.due.drain(..self.due.len() - 16);
        }
    }

    /// Ends a look: closes the books of the newest snapshot whose events are known, and adds to the curve. `ended`
    /// means that nothing more comes.
    pub fn settle(&mut self, process: &ProcessInfo, last_ticket: u64, ended: bool) {
        let known = self
            .due
            .iter()
            .rposition(|one| ended || one.ticket <= last_ticket);
        if let Some(index) = known {
            let snapshot = self.due.drain(..=index).next_back();
            if let Some(snapshot) = snapshot {
                let closed = books::close(&snapshot, &self.ledger, process, BOUNDS);
                self.books = Some((snapshot.time_ns, closed.books));
            }
        }
        self.draw_on();
    }

    /// Adds the present to the curve.
    fn draw_on(&mut self) {
        let point = Point {
            time_ns: self.now_ns,
            live_bytes: self.ledger.live().usable_bytes,
        };
        if self
            .curve
            .last()
            .is_none_or(|last| last.time_ns < point.time_ns)
        {
            self.curve.push(point);
        }
        if self.curve.len() > CURVE {
            // Every other point of the older half is removed: the curve stays whole and coarsens to the left.
            let half = self.curve.len() / 2;
            let mut index = 0;
            self.curve.retain(|_| {
                index += 1;
                index > half || index % 2 == 0
            });
        }
    }

    /// Returns the moment of all figures, nanoseconds since the trace began.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Returns the ledger, for totals.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the length of the window of growth and rates.
    pub fn window_ns(&self) -> u64 {
        self.now_ns.saturating_sub(self.bases[0].time_ns)
    }

    /// Returns the events per second of the window.
    pub fn events_s(&self) -> f64 {
        let events = self.ledger.counts().events - self.bases[0].events;
        per_second(events, self.window_ns())
    }

    /// Returns the usable bytes acquired per second of the window, by all stacks.
    pub fn churn_bytes_s(&self) -> f64 {
        let sum = |stacks: &FxHashMap<NodeId, Stack>| -> u64 {
            stacks.values().map(|stack| stack.acquired_bytes).sum()
        };
        per_second(
            sum(&self.stacks) - sum(&self.bases[0].stacks),
            self.window_ns(),
        )
    }

    /// Returns the number of stacks that have ever acquired anything.
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Returns the first stacks by `sort`.
    pub fn top(&self, sort: Sort, count: usize) -> Vec<Moving> {
        let window = self.window_ns();
        let moving = |(node, now): (&NodeId, &Stack)| {
            let then = self.bases[0].stacks.get(node).copied().unwrap_or_default();
            Moving {
                node: *node,
                now: *now,
                growth_bytes: now.live_bytes as i64 - then.live_bytes as i64,
                churn_bytes_s: per_second(now.acquired_bytes - then.acquired_bytes, window),
            }
        };
        let mut all: Vec<Moving> = self.stacks.iter().map(moving).collect();
        // What did not grow is none of those that did.
        all.retain(|one| match sort {
            Sort::Live => one.now.live_bytes > 0,
            Sort::Growth => one.growth_bytes != 0,
            Sort::Churn => one.churn_bytes_s > 0.0,
        });
        let key = |one: &Moving| match sort {
            Sort::Live => one.now.live_bytes as f64,
            Sort::Growth => one.growth_bytes as f64,
            Sort::Churn => one.churn_bytes_s,
        };
        all.sort_by(|a, b| key(b).total_cmp(&key(a)).then(a.node.0.cmp(&b.node.0)));
        all.truncate(count);
        all
    }
}

fn per_second(what: u64, window_ns: u64) -> f64 {
    match window_ns {
        0 => 0.0,
        ns => what as f64 * 1e9 / ns as f64,
    }
}

fn add(stacks: &mut FxHashMap<NodeId, Stack>, key: skinflint_analysis::pass::CellKey) {
    let stack = stacks.entry(key.node).or_default();
    stack.live_bytes += key.usable;
    stack.live_blocks += 1;
    stack.acquired_bytes += key.usable;
    stack.acquired_blocks += 1;
}

fn sub(stacks: &mut FxHashMap<NodeId, Stack>, key: skinflint_analysis::pass::CellKey) {
    let stack = stacks.entry(key.node).or_default();
    stack.live_bytes = stack.live_bytes.saturating_sub(key.usable);
    stack.live_blocks = stack.live_blocks.saturating_sub(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_among_what_grows() {
        let mut state = State::default();
        let of = |live_bytes, acquired_bytes| Stack {
            live_bytes,
            acquired_bytes,
            ..Stack::default()
        };
        state.now_ns = 1_000_000_000;
        state.stacks.insert(NodeId(1), of(900, 900));
        state.stacks.insert(NodeId(2), of(70, 170));
        state.stacks.insert(NodeId(3), of(0, 5));
        state.bases[0].stacks.insert(NodeId(1), of(900, 900));
        state.bases[0].stacks.insert(NodeId(2), of(20, 100));
        state.bases[0].stacks.insert(NodeId(3), of(0, 5));
        let nodes = |sort| -> Vec<u32> {
            let top = state.top(sort, 9);
            top.iter().map(|moving| moving.node.0).collect()
        };
        assert_eq!(nodes(Sort::Live), [1, 2]);
        assert_eq!(nodes(Sort::Growth), [2]);
        assert_eq!(nodes(Sort::Churn), [2]);
    }

    #[test]
    fn a_trace_that_is_read_at_once_has_a_curve() {
        let mut state = State::default();
        (1..=40).for_each(|step| state.advance(step * STEP_NS / 2));
        assert_eq!(state.curve.len(), 19);
    }
}
