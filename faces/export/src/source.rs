//! The input of the writers: a report, and what only the events could tell.
//!
//! ```text
//!   Report::sites ─┐
//!   Lives ─────────┴─► Source ─► for each site: values, frames (innermost first)
//! ```
//!
//! R1  `Lives` is of the same analysis as the report: entry `i` belongs to `report.sites[i]`.
//! R2  A path of frames ends for any report: it is cut where a parent does not come before its child.
//!
//! Not here: any format.

use skinflint_analysis::model::{Frame, Instant, Report, Site};

use crate::lives::Lives;

/// A figure of a stack that a format may show. Units: blocks, or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Live blocks at the report's instant.
    InuseObjects,
    /// Requested bytes of the live blocks.
    InuseSpace,
    /// Usable bytes of the live blocks beyond those requested.
    InuseSlop,
    /// Blocks acquired over the run.
    AllocObjects,
    /// Requested bytes over the run.
    AllocSpace,
}

impl Value {
    /// All values, in the order in which formats with several list them.
    pub const ALL: [Value; 5] = [
        Value::AllocObjects,
        Value::AllocSpace,
        Value::InuseObjects,
        Value::InuseSpace,
        Value::InuseSlop,
    ];

    /// Returns the value's name: Go's if Go has one.
    pub fn name(self) -> &'static str {
        match self {
            Value::InuseObjects => "inuse_objects",
            Value::InuseSpace => "inuse_space",
            Value::InuseSlop => "inuse_slop",
            Value::AllocObjects => "alloc_objects",
            Value::AllocSpace => "alloc_space",
        }
    }

    /// Returns the value with this name.
    pub fn by_name(name: &str) -> Option<Value> {
        Value::ALL.into_iter().find(|value| value.name() == name)
    }

    /// Reports whether it counts bytes, and not blocks.
    pub fn is_bytes(self) -> bool {
        !matches!(self, Value::InuseObjects | Value::AllocObjects)
    }

    /// Returns the figure of a stack.
    pub fn of(self, site: &Site) -> u64 {
        match self {
            Value::InuseObjects => site.live_blocks,
            Value::InuseSpace => site.live_requested_bytes,
            Value::InuseSlop => site
                .live_usable_bytes
                .saturating_sub(site.live_requested_bytes),
            Value::AllocObjects => site.allocations,
            Value::AllocSpace => site.requested_bytes,
        }
    }

    /// Returns the sum over all stacks (saturating: sizes in a damaged trace may be absurdly large).
    pub fn total(self, report: &Report) -> u64 {
        let values = report.sites.iter().map(|site| self.of(site));
        values.fold(0, u64::saturating_add)
    }
}

/// The input of all writers (R1).
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The report.
    pub report: &'a Report,
    /// What only the events could tell.
    pub lives: &'a Lives,
}

impl<'a> Source<'a> {
    /// Returns the moment of everything "in use"; `None` for a report without instants.
    pub fn instant(&self) -> Option<&'a Instant> {
        self.report.instants.get(self.report.at)
    }

    /// Returns the frames of a stack, innermost first, as indices into the report's frames (R2).
    pub fn path(&self, node: u32) -> Vec<u32> {
        path(self.report, node)
    }

    /// Returns a frame by its index; an empty one if a damaged report has none.
    pub fn frame(&self, index: u32) -> &'a Frame {
        const NONE: &Frame = &Frame {
            function: String::new(),
            module: String::new(),
            file: None,
            line: None,
            inlined: false,
        };
        self.report.frames.get(index as usize).unwrap_or(NONE)
    }

    /// Returns one line for readers: program, time, completeness. For formats that have a place for it.
    pub fn headline(&self) -> String {
        let program = &self.report.program;
        let at = self.instant().map_or("?", |instant| &instant.label);
        let complete = match self.report.completeness.complete {
            true => "complete",
            false => "INCOMPLETE",
        };
        format!(
            "{} (pid {}), in use as of {at}, {complete}, by {}",
            program.name, program.pid, self.report.analysed_by
        )
    }
}

/// Returns the frames of a stack of any report, innermost first (R2).
pub fn path(report: &Report, node: u32) -> Vec<u32> {
    let mut frames = Vec::new();
    let mut at = node;
    while at != 0 {
        let Some(entry) = report.nodes.get(at as usize) else {
            break;
        };
        frames.push(entry.frame);
        if entry.parent >= at {
            break;
        }
        at = entry.parent;
    }
    frames
}

/// The text that stands for a stack without frames.
pub const NO_STACK: &str = "[no stack]";

/// Returns the name of a frame: its function.
pub fn name(frame: &Frame) -> &str {
    match frame.function.as_str() {
        "" => NO_STACK,
        name => name,
    }
}
