//! A module of a trace: its files, opened once, and the frames at its addresses.
//!
//! ```text
//!   Resolver ── dwarf: debug file, else own file
//!            └─ table: .symtab of own file, else of debug file, else .dynsym
//! ```
//!
//! R1  `frames` never returns an empty list.
//! R2  The outermost frame's name is DWARF's, unless DWARF has none, or an unmangled one where the
//!     symbol is mangled (lambdas and local functions lose their scope in DWARF), or a library's
//!     inner name where the symbol is the one that programs call (`malloc`, `__GI___libc_malloc`).
//! Not here: choosing the module (symbols.rs), finding files (locate.rs).

use std::path::PathBuf;
use std::sync::Arc;

use skinflint_trace::Module;

use crate::demangle::demangle;
use crate::dwarf::{Dwarf, SplitDirs, is_mangled};
use crate::elf::{self, Image, SymbolTable, TableKind};
use crate::frame::{Frame, bare};
use crate::locate::{self, SearchDirs};

/// The results for one module. Only modules that were asked about have a summary.
#[derive(Clone, Debug)]
pub struct ModuleSummary {
    /// The path, as recorded.
    pub path: String,
    /// The kind of source that names came from.
    pub source: Source,
    /// The file that names came from.
    pub file: Option<PathBuf>,
    /// Number of distinct addresses asked for.
    pub addresses: u64,
    /// Number of those addresses that got no name (`module+0x1234`).
    pub unnamed: u64,
    /// Whether the module's file exists but is another build: its names were not used.
    pub changed: bool,
    /// What else the reader should know, one sentence each.
    pub notes: Vec<String>,
}

/// The source of a module's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// DWARF: inlined frames, files and lines.
    Dwarf,
    /// A full symbol table: functions only.
    Symtab,
    /// Exported functions only.
    Dynsym,
    /// No names: `module+0x1234`.
    None,
}

/// A module with its files open.
pub(crate) struct Resolver {
    path: String,
    name: String,
    bias: u64,
    dwarf: Option<Dwarf>,
    /// The table, and the file that contains its names.
    table: Option<(SymbolTable, Arc<Image>)>,
    file: Option<PathBuf>,
    changed: bool,
    notes: Vec<String>,
    addresses: u64,
    unnamed: u64,
}

impl Resolver {
    /// Finds and opens the files of a module; what fails becomes a note.
    pub(crate) fn open(module: &Module, search: &SearchDirs) -> Resolver {
        let name = module.path.rsplit('/').next().unwrap_or("");
        let mut resolver = Resolver {
            path: module.path.clone(),
            name: if name.is_empty() { "[unnamed]" } else { name }.to_string(),
            bias: module.bias,
            dwarf: None,
            table: None,
            file: None,
            changed: false,
            notes: Vec::new(),
            addresses: 0,
            unnamed: 0,
        };
        // `[vdso]` and the like are no files.
        if !module.path.starts_with('[') && !module.path.is_empty() {
            resolver.find_files(module, search);
        }
        resolver
    }

    fn find_files(&mut self, module: &Module, search: &SearchDirs) {
        let own = search.module_file(&module.path, &module.build_id);
        self.changed = own.changed && own.image.is_none();
        if self.changed {
            self.notes
                .push(format!("{} changed since the recording", self.name));
        } else if own.image.is_none() {
            self.notes.extend(own.error);
        }
        let own = own.image;
        // The module's own DWARF needs no search, unless the user says where there is more: a part
        // that was built elsewhere may have brought some into a stripped program.
        let enough = own.as_ref().is_some_and(|image| image.has_dwarf());
        let debug = if enough && search.debug_dirs.is_empty() {
            None
        } else {
            search.debug_file(&module.path, &module.build_id, own.as_deref())
        };
        let with_dwarf = [&debug, &own]
            .into_iter()
            .flatten()
            .filter(|image| image.has_dwarf())
            .max_by_key(|image| image.dwarf_bytes());
        if let Some(image) = with_dwarf {
            let images: Vec<&Image> = [&own, &debug]
                .into_iter()
                .flatten()
                .map(Arc::as_ref)
                .collect();
            self.open_dwarf(Arc::clone(image), &images, search);
        }
        self.table = best_table(own.as_ref(), debug.as_ref());
        if self.file.is_none() {
            self.file = self.table.as_ref().map(|(_, image)| image.path().into());
        }
    }

    fn open_dwarf(&mut self, image: Arc<Image>, images: &[&Image], search: &SearchDirs) {
        let alternate = search.alternate_file(&image).unwrap_or_else(|note| {
            self.notes.push(note);
            None
        });
        let mut dirs: Vec<PathBuf> = images
            .iter()
            .filter_map(|image| image.path().parent().map(PathBuf::from))
            .collect();
        dirs.extend(search.debug_dirs.iter().cloned());
        let split = SplitDirs {
            packages: search.packages(&self.path, images),
            dirs,
            sysroot: search.sysroot.clone(),
        };
        let path = image.path().to_path_buf();
        match Dwarf::open(image, alternate, split) {
            Ok(dwarf) => {
                self.dwarf = Some(dwarf);
                self.file = Some(path);
            }
            Err(note) => self.notes.push(note),
        }
    }

    /// Returns the frames at an address of the process (R1).
    pub(crate) fn frames(&mut self, pc: u64) -> Vec<Frame> {
        self.addresses += 1;
        let address = pc.wrapping_sub(self.bias);
        let symbol = self.table.as_ref().and_then(|(table, image)| {
            let (name, _start) = table.find(image, address)?;
            Some(String::from_utf8_lossy(name))
        });
        let raw = match &mut self.dwarf {
            Some(dwarf) => dwarf.find(address),
            None => Vec::new(),
        };
        let last = raw.len().saturating_sub(1);
        let mut frames: Vec<Frame> = Vec::with_capacity(raw.len().max(1));
        for (index, raw) in raw.into_iter().enumerate() {
            let outermost = index == last;
            let from_table = symbol
                .as_deref()
                .filter(|symbol| outermost && prefers_symbol(raw.name.as_deref(), symbol));
            let function = match (from_table, &raw.name) {
                (Some(symbol), _) => demangle(symbol),
                (None, Some(name)) => demangle(name),
                (None, None) => self.offset_name(address),
            };
            if outermost && from_table.is_none() && raw.name.is_none() {
                self.unnamed += 1;
            }
            frames.push(Frame {
                function,
                module: self.name.clone(),
                file: raw.file,
                line: raw.line,
                inlined: !outermost,
            });
        }
        if frames.is_empty() {
            let function = match &symbol {
                Some(symbol) => demangle(symbol),
                None => {
                    self.unnamed += 1;
                    self.offset_name(address)
                }
            };
            frames.push(bare(function, &self.name));
        }
        frames
    }

    fn offset_name(&self, address: u64) -> String {
        format!("{}+{address:#x}", self.name)
    }

    fn source(&self) -> Source {
        match (&self.dwarf, &self.table) {
            (Some(_), _) => Source::Dwarf,
            (None, Some((table, _))) if table.kind == TableKind::Symtab => Source::Symtab,
            (None, Some(_)) => Source::Dynsym,
            (None, None) => Source::None,
        }
    }

    /// Returns the summary of the module.
    pub(crate) fn summary(&self) -> ModuleSummary {
        let mut notes = self.notes.clone();
        if let Some(dwarf) = &self.dwarf
            && let [first, rest @ ..] = dwarf.missing_dwo()
        {
            notes.push(format!(
                "{}: {} split debug files not found, {first} for one; give their directory with \
                 --debug-dir",
                self.name,
                rest.len() + 1
            ));
        }
        ModuleSummary {
            path: self.path.clone(),
            source: self.source(),
            file: self.file.clone(),
            addresses: self.addresses,
            unnamed: self.unnamed,
            changed: self.changed,
            notes,
        }
    }
}

/// Reports whether the symbol's name is preferred (R2).
fn prefers_symbol(dwarf: Option<&str>, symbol: &str) -> bool {
    match dwarf {
        None => true,
        Some(name) if is_mangled(name) => false,
        Some(name) => {
            is_mangled(symbol)
                || elf::underscores(symbol.as_bytes()) < elf::underscores(name.as_bytes())
        }
    }
}

/// Returns the fuller table; at a tie the module's own.
fn best_table(
    own: Option<&Arc<Image>>,
    debug: Option<&Arc<Image>>,
) -> Option<(SymbolTable, Arc<Image>)> {
    let own = own.and_then(|image| Some((SymbolTable::read(image)?, Arc::clone(image))));
    if own
        .as_ref()
        .is_some_and(|(table, _)| table.kind == TableKind::Symtab)
    {
        return own;
    }
    let debug = debug.and_then(|image| Some((SymbolTable::read(image)?, Arc::clone(image))));
    match (own, debug) {
        (Some(own), Some(debug)) if debug.0.kind > own.0.kind => Some(debug),
        (Some(own), _) => Some(own),
        (None, debug) => debug,
    }
}

/// The number of addresses without a name below which a hint is not worth giving.
const FEW: u64 = 5;

/// Returns what would give a module more names.
pub(crate) fn hint(row: &ModuleSummary) -> Option<String> {
    let name = row.path.rsplit('/').next().unwrap_or(&row.path);
    if row.changed {
        return Some(format!(
            "{name} changed since the recording, so its names were not used: record again, or give \
             the old file's directory with --debug-dir"
        ));
    }
    // A handful, or a small share, is not worth a hint.
    let few = row.unnamed < FEW || row.unnamed * 10 < row.addresses.max(1);
    if row.path.starts_with('[') || few {
        return None;
    }
    let what = format!(
        "{} of {} addresses in {name} have no name",
        row.unnamed, row.addresses
    );
    if row.source == Source::Dwarf {
        // Debug information exists but does not cover them; installing more would not help.
        let file = row
            .file
            .as_deref()
            .unwrap_or(std::path::Path::new("its file"));
        return Some(format!(
            "{what} in the debug information of {}: that part was built without -g",
            file.display()
        ));
    }
    let how = match locate::debian_package(&row.path) {
        Some(package) if package == "libc6" => "install the package libc6-dbg".to_string(),
        Some(package) => format!(
            "install the package {package}-dbgsym from Debian's debug archive, or give a directory \
             of debug files with --debug-dir"
        ),
        None => "build it with -g, or give its debug files' directory with --debug-dir".to_string(),
    };
    Some(format!("{what}: {how}"))
}
