//! Names of functions, as the analysis wants them: symbols' frames as the report's.
//!
//! ```text
//!   own node ─────────► Symbols of the trace ───────┐
//!   ancestor's node ─┬► same file there? the same   ├─► Frame of symbols ─► Frame of the report
//!                    └► Symbols of its own trace ───┘
//! ```
//!
//! N1  A stack of an ancestor has the names of the ancestor's files: the copy may have loaded others there since.
//!
//! Not here: where names are looked for (`symbols`).

use skinflint_analysis::model::Frame;
use skinflint_analysis::{Shown, Symbolizer};
use skinflint_symbols::{Frames, NameSources, SymbolOptions, Symbols};
use skinflint_trace::Module;

use crate::opened::Ancestor;

/// Names of functions, as the analysis wants them.
pub struct Names {
    /// The names of the trace itself.
    pub own: Symbols,
    /// The names of its ancestors, by where their stacks begin among the report's, ascending.
    ancestors: Vec<(u32, Symbols)>,
    shown: Shown,
}

impl Names {
    /// Creates the names of a trace by itself.
    pub fn of(own: Symbols, frames: Frames) -> Names {
        Names {
            own,
            ancestors: Vec::new(),
            shown: match frames {
                Frames::User => Shown::User,
                Frames::Native => Shown::Native,
                Frames::Both => Shown::Both,
            },
        }
    }

    /// Adds the names of an ancestor whose stacks begin there; ancestors come by ascending place.
    pub(crate) fn inherit(&mut self, from: u32, ancestor: &Ancestor, sources: &NameSources) {
        let modules = &ancestor.trace.modules;
        let symbols = sources.symbols(&ancestor.path, modules);
        // What could be looked up for the trace itself can be here, unless it has gone meanwhile.
        let bare = |_| Symbols::new(modules, SymbolOptions::default());
        let symbols = symbols.unwrap_or_else(bare);
        let codes = &ancestor.trace.codes;
        self.ancestors.push((from, symbols.with_codes(codes)));
    }

    /// Returns the symbols that name an address, and the node in them (N1).
    fn at(&mut self, pc: u64, node: u32) -> (&mut Symbols, u32) {
        let next = self.ancestors.partition_point(|(from, _)| *from <= node);
        let Some((from, symbols)) = next
            .checked_sub(1)
            .and_then(|last| self.ancestors.get_mut(last))
        else {
            return (&mut self.own, node);
        };
        let there = symbols.module_of(pc - u64::from(pc > 0), node - *from);
        let here = self.own.module_of(pc - u64::from(pc > 0), u32::MAX);
        // Opening a file twice costs as much again.
        match there
            .zip(here)
            .is_some_and(|(there, here)| is_same(there, here))
        {
            true => (&mut self.own, u32::MAX),
            false => (symbols, node - *from),
        }
    }
}

fn is_same(one: &Module, other: &Module) -> bool {
    let place = |module: &Module| (module.start, module.end, module.bias);
    place(one) == place(other) && one.path == other.path && one.build_id == other.build_id
}

impl Symbolizer for Names {
    fn shown(&self) -> Shown {
        self.shown
    }

    fn is_script(&mut self, pc: u64, node: u32) -> bool {
        let (symbols, node) = self.at(pc, node);
        symbols.is_script(pc, node)
    }

    fn frames(&mut self, node_pc: u64, node: u32) -> Vec<Frame> {
        let (symbols, node) = self.at(node_pc, node);
        let frames = symbols.frames_shared(node_pc, node, true);
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
