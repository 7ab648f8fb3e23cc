//! Parts of reports that tests make by hand.

use crate::model::{Frame, Node, Report};

/// Adds a stack, given outermost first, with a node and a frame of its own for each function; returns its node.
pub(crate) fn push_stack(report: &mut Report, frames: impl Iterator<Item = Frame>) -> u32 {
    let mut parent = 0;
    for frame in frames {
        report.frames.push(frame);
        let frame = report.frames.len() as u32 - 1;
        report.nodes.push(Node { parent, frame });
        parent = report.nodes.len() as u32 - 1;
    }
    parent
}
