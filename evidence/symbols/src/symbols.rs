//! The names of one trace: which module an address belongs to, and a cache of what it is called.
//!
//! ```text
//!   (pc, node) ─ by_start, reach ─► module ─► Resolver ─► frames ─► cache
//! ```
//!
//! Not here: the names of one module (`module.rs`), files (`locate.rs`).

use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use skinflint_trace::{Code, Module, code_of};

use crate::data;
use crate::frame::{Frame, bare, outside};
use crate::locate::SearchDirs;
use crate::module::{self, ModuleSummary, Resolver};
use crate::perf_map::PerfMap;
use crate::python;

/// Special address: the frames outside of here were not recorded.
pub const TRUNCATED_PC: u64 = 1;

/// Where to look for files in addition to the recorded paths.
#[derive(Clone, Debug, Default)]
pub struct SymbolOptions {
    /// Directories with debug files, in order: `.build-id/xx/yyyy.debug`, the module's path below
    /// the directory (with or without `.debug`), or just its file name.
    pub debug_dirs: Vec<PathBuf>,
    /// A copy of the recorded machine's root; searched before this machine's.
    pub sysroot: Option<PathBuf>,
    /// Perf maps of the process (`/tmp/perf-PID.map`): names of code that it made itself. The caller that names one
    /// here is responsible for its being this process's; the map itself does not tell.
    pub perf_maps: Vec<PathBuf>,
}

/// Names for the addresses of one trace.
///
/// Not `Sync`: one thread asks. Memory: symbol tables of the modules asked about (40 bytes per symbol), decompressed
/// debug sections, and one cache entry per distinct address.
pub struct Symbols {
    modules: Vec<Module>,
    search: SearchDirs,
    /// Indices of `modules` by start address, for [`Symbols::module_of`].
    by_start: Vec<u32>,
    /// `reach[i]`: the largest end among `by_start[..=i]`.
    reach: Vec<u64>,
    resolvers: Vec<Option<Resolver>>,
    cache: FxHashMap<(u32, u64), Arc<[Frame]>>,
    outside: u64,
    generated: PerfMap,
    codes: Vec<Code>,
}

/// Stands for "no module" in the cache.
const NO_MODULE: u32 = u32::MAX;

impl Symbols {
    /// Creates the names from the trace's module list. Opens nothing yet (symbols.S1).
    pub fn new(modules: &[Module], options: SymbolOptions) -> Symbols {
        let modules = modules.to_vec();
        let count = u32::try_from(modules.len()).unwrap_or(u32::MAX);
        let mut by_start: Vec<u32> = (0..count).collect();
        by_start.sort_by_key(|&index| modules[index as usize].start);
        let mut reach = 0;
        let reach = by_start
            .iter()
            .map(|&index| {
                reach = reach.max(modules[index as usize].end);
                reach
            })
            .collect();
        Symbols {
            resolvers: modules.iter().map(|_| None).collect(),
            modules,
            search: SearchDirs {
                debug_dirs: options.debug_dirs.clone(),
                sysroot: options.sysroot.clone(),
            },
            by_start,
            reach,
            cache: FxHashMap::default(),
            outside: 0,
            generated: PerfMap::read(&options.perf_maps),
            codes: Vec::new(),
        }
    }

    /// Adds the codes of an interpreter that the trace has.
    pub fn with_codes(mut self, codes: &[Code]) -> Symbols {
        self.codes = codes.to_vec();
        self
    }

    /// Returns the module that an address of a node belongs to: of those mapped there by then, the latest.
    pub fn module_of(&self, pc: u64, node: u32) -> Option<&Module> {
        self.module_index(pc, node)
            .map(|index| &self.modules[index as usize])
    }

    fn module_index(&self, pc: u64, node: u32) -> Option<u32> {
        let above = self
            .by_start
            .partition_point(|&index| self.modules[index as usize].start <= pc);
        let mut best: Option<u32> = None;
        for at in (0..above).rev() {
            if self.reach[at] <= pc {
                break;
            }
            let index = self.by_start[at];
            let module = &self.modules[index as usize];
            if pc < module.end
                && module.first_node <= node
                && best.is_none_or(|b| {
                    (self.modules[b as usize].first_node, b) < (module.first_node, index)
                })
            {
                best = Some(index);
            }
        }
        best
    }

    /// Returns the frames at `pc`, innermost (inlined) first; never empty (symbols.S2).
    ///
    /// `node` is the stack node that holds the address. A return address belongs to the call before
    /// it, so `pc - 1` is looked up; an interrupted instruction's own address is looked up as it is.
    /// Cost: a search among modules and a hash lookup when the address was asked for before.
    pub fn frames(&mut self, pc: u64, node: u32, is_return_address: bool) -> Vec<Frame> {
        self.frames_shared(pc, node, is_return_address).to_vec()
    }

    /// Does what [`Symbols::frames`] does, without a copy.
    pub fn frames_shared(&mut self, pc: u64, node: u32, is_return_address: bool) -> Arc<[Frame]> {
        if pc == TRUNCATED_PC {
            return Arc::new([bare("[truncated]".to_string(), "")]);
        }
        if let Some((id, unit)) = code_of(pc) {
            let key = (NO_MODULE, pc);
            let code = (id as usize)
                .checked_sub(1)
                .and_then(|at| self.codes.get(at));
            let frame = || Arc::new([python::frame(code, unit)]);
            return Arc::clone(self.cache.entry(key).or_insert_with(|| frame()));
        }
        let recorded = pc;
        let pc = pc.saturating_sub(u64::from(is_return_address));
        let module = self.module_index(pc, node);
        let key = (module.unwrap_or(NO_MODULE), pc);
        if let Some(frames) = self.cache.get(&key) {
            return Arc::clone(frames);
        }
        let frames: Arc<[Frame]> = match module {
            Some(index) => self.resolver(index).frames(pc).into(),
            None => match self.generated.frame(pc) {
                Some(frame) => Arc::new([frame]),
                None => {
                    self.outside += 1;
                    // The address as recorded: there is no call instruction to point at.
                    Arc::new([outside(recorded, !self.modules.is_empty())])
                }
            },
        };
        self.cache.insert(key, Arc::clone(&frames));
        frames
    }

    /// Returns whether an address is in a function of a script: of an interpreter's own frames, or by a perf map.
    pub fn is_script(&self, pc: u64, node: u32) -> bool {
        if code_of(pc).is_some() {
            return true;
        }
        // A perf map names the code that a call returns to.
        let pc = pc.saturating_sub(1);
        !self.generated.is_empty()
            && self.module_index(pc, node).is_none()
            && self.generated.is_script(pc)
    }

    /// Returns the global variable that an address lies in, and the offset in it; `None` if no symbol table has one.
    /// Cost: a walk over all symbols of the module.
    pub fn variable(&self, address: u64) -> Option<(String, u64)> {
        let module = &self.modules[self.module_index(address, u32::MAX)? as usize];
        let file = self.search.module_file(&module.path, &module.build_id);
        data::variable(&*file.image?, address.wrapping_sub(module.bias))
    }

    fn resolver(&mut self, index: u32) -> &mut Resolver {
        let module = &self.modules[index as usize];
        let search = &self.search;
        self.resolvers[index as usize].get_or_insert_with(|| Resolver::open(module, search))
    }

    /// Returns the number of distinct addresses that lay in no module: generated code, or an object that was not
    /// listed.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// Returns the results for the modules asked about so far, most unnamed addresses first. A file that was mapped
    /// several times has one row.
    pub fn summary(&self) -> Vec<ModuleSummary> {
        let mut rows: Vec<ModuleSummary> = Vec::new();
        let mut seen: FxHashMap<(&str, &str), usize> = FxHashMap::default();
        for (module, resolver) in self.modules.iter().zip(&self.resolvers) {
            let Some(resolver) = resolver else { continue };
            let row = resolver.summary();
            match seen.entry((&module.path, &module.build_id)) {
                std::collections::hash_map::Entry::Occupied(at) => {
                    let sum = &mut rows[*at.get()];
                    sum.addresses += row.addresses;
                    sum.unnamed += row.unnamed;
                }
                std::collections::hash_map::Entry::Vacant(at) => {
                    at.insert(rows.len());
                    rows.push(row);
                }
            }
        }
        rows.sort_by(|a, b| (b.unnamed, &a.path).cmp(&(a.unnamed, &b.path)));
        rows
    }

    /// Returns what would give more names, one sentence each, for modules where at least a tenth of the addresses
    /// have none, or whose file has changed.
    pub fn hints(&self) -> Vec<String> {
        let mut hints: Vec<String> = self.summary().iter().filter_map(module::hint).collect();
        hints.dedup();
        hints
    }
}
