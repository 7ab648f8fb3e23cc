//! Names of functions, as the analysis wants them: symbols' frames as the report's.
//!
//! ```text
//!   Symbols::frames ─► Frame of symbols ─► Frame of the report
//! ```
//!
//! Not here: where names are looked for (`symbols`).

use skinflint_analysis::Symbolizer;
use skinflint_analysis::model::Frame;
use skinflint_symbols::Symbols;

/// Names of functions, as the analysis wants them.
pub struct Names(pub Symbols);

impl Symbolizer for Names {
    fn frames(&mut self, node_pc: u64, node: u32) -> Vec<Frame> {
        let frames = self.0.frames_shared(node_pc, node, true);
        let frame = |frame: &skinflint_symbols::Frame| Frame {
            function: frame.function.clone(),
            module: frame.module.clone(),
            file: frame.file.clone(),
            line: frame.line,
            inlined: frame.inlined,
        };
        frames.iter().map(frame).collect()
    }
}
