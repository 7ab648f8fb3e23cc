//! Pointers to blocks, at a look of a trace: for the report's section, and for `--who-holds`.
//!
//! ```text
//!   trace ─► which look? ─► ledger up to its ticket ─► analysis::reach ─► pass (report), paths (holders.rs)
//! ```
//!
//! R1  A trace without looks costs nothing; one with looks is read once more, up to the look.
//!
//! Not here: marking (analysis), stopping programs (collect).

use skinflint_analysis::ledger::Ledger;
use skinflint_analysis::reach::{self, Live, Maker, Reach, ReachPass, Roots};
use skinflint_trace::{Look, LookCause, Trace};

use crate::opened::Recording;

/// The result of one look of a trace.
pub struct Found<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) look: &'a Look,
    pub(crate) label: String,
    pub(crate) ledger: Ledger,
    pub(crate) result: Result<Reach, String>,
}

/// Returns the label of a look's moment.
fn label(trace: &Trace, look: &Look) -> String {
    match look.cause {
        LookCause::End => "end".into(),
        LookCause::Mark(mark) => {
            let mark = trace.marks.get(mark as usize);
            mark.map_or_else(|| "a mark".into(), |mark| mark.name.clone())
        }
    }
}

/// Chooses the look that a report is about: the last at the mark of that name, else the last of the end, else the
/// last.
fn choose<'a>(trace: &'a Trace, at: &str) -> Option<&'a Look> {
    let looks = || trace.looks.iter().rev();
    let is_mark = |look: &&Look| look.cause != LookCause::End && label(trace, look) == at;
    let is_end = |look: &&Look| look.cause == LookCause::End;
    let marked = looks().find(is_mark);
    marked
        .or_else(|| looks().find(is_end))
        .or(trace.looks.last())
}

/// Returns what was found at the look that `--at` means; `None` for a trace without looks (R1).
pub fn of<'a>(recording: &'a Recording, at: &str) -> Option<Found<'a>> {
    let trace = &recording.trace;
    let look = choose(trace, at)?;
    // Blocks from before a fork live in the copy, too.
    let mut ledger = recording.ledger(16);
    recording.events(
        |event| {
            if event.ticket <= look.ticket {
                ledger.apply(event, &mut |_, _| {});
            }
        },
        |_| {},
    );
    let cells = ledger.cells().keys();
    let live = |block: &skinflint_analysis::pass::Block| {
        let key = cells[block.cell.0 as usize];
        Live {
            addr: block.addr,
            size: key.size,
            usable: key.usable,
            node: key.node,
            born_us: block.born_us(),
        }
    };
    let blocks: Vec<Live> = ledger.live_blocks().map(live).collect();
    let process = &trace.process;
    let maker = Maker {
        name: process.allocator.clone(),
        // A program that brings its own allocator: the allocator's data are the program's.
        path: match process.allocator_path == process.exe {
            true => String::new(),
            false => process.allocator_path.clone(),
        },
    };
    let code: Vec<(u64, u64)> = trace
        .modules
        .iter()
        .filter(|module| !maker.path.is_empty() && module.path == maker.path)
        .map(|module| (module.start, module.end))
        .collect();
    let glibc = process.allocator.starts_with("glibc");
    let by_allocator = |owner: &skinflint_analysis::maps::Owner| {
        let pc = trace.node(owner.node).map_or(0, |(_, pc)| pc);
        owner.by_allocator || !glibc && code.iter().any(|&(start, end)| (start..end).contains(&pc))
    };
    let roots = Roots::new(look, &blocks, &maker, ledger.intervals(), &by_allocator);
    let result = reach::find(look, blocks, &roots, &mut |each| trace.pointers(look, each));
    Some(Found {
        trace,
        look,
        label: label(trace, look),
        ledger,
        result,
    })
}

impl Found<'_> {
    /// Returns the pass that adds the result to the report.
    pub fn pass(&self) -> ReachPass {
        ReachPass::new(self.look, &self.label, &self.result)
    }
}
