//! Frames with inlined functions, files and lines, from DWARF.
//!
//! ```text
//!   debug file ──┐
//!   dwz's file ──┼─ sections ─► Context ──find(address)──► inlined …, inlined, function
//!   .dwp / .dwo ─┘  (mapped, or decompressed into Store)
//! ```
//!
//! D1  Every `Slice` in `context`, `package` and `scopes` points into a mapping or a buffer that `store` owns.
//!     Mappings and boxed buffers do not move; `store` only grows; it is the last field, so it is
//!     dropped last; no `Slice` leaves this file but for `scopes` (what `find` returns is owned).
//! D2  A damaged section is an error or yields no frames; it is never a panic.
//! Not here: which files belong to a module (locate.rs); symbol tables (elf.rs).

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::gimli::{self, LittleEndian, SectionId};
use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};

use crate::elf::{self, Elf, Image};
use crate::scopes::{Scopes, Slice};

/// The most `.dwo` files opened for one module; each stays mapped.
const MAX_DWO_FILES: usize = 65_536;

/// One frame as DWARF describes it; the name is still mangled, or bare, or bare with what the function lies in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) name: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

/// The DWARF of one module.
pub(crate) struct Dwarf {
    context: Context<Slice>,
    package: Option<gimli::DwarfPackage<Slice>>,
    split: SplitDirs,
    scopes: Scopes,
    /// Split files that were needed and not found.
    missing_dwo: Vec<String>,
    /// D1: last field.
    store: Store,
}

/// The files and folders that are searched for split DWARF.
#[derive(Debug, Default)]
pub(crate) struct SplitDirs {
    /// Candidates for the package, in order.
    pub(crate) packages: Vec<PathBuf>,
    /// Directories to look for `.dwo` files in, beside the compilation directory.
    pub(crate) dirs: Vec<PathBuf>,
    /// Prefix for absolute paths.
    pub(crate) sysroot: Option<PathBuf>,
}

/// The memory that the slices point into (D1).
#[derive(Default)]
struct Store {
    images: Vec<Arc<Image>>,
    buffers: Vec<Box<[u8]>>,
}

impl Store {
    fn keep(&mut self, image: Arc<Image>) -> Result<Elf<'static>, String> {
        // SAFETY: D1: the mapping of an `Image` does not move and `images` is never shrunk, so the
        // bytes live as long as `store`, which outlives every slice.
        let bytes: &'static [u8] = unsafe { &*std::ptr::from_ref::<[u8]>(image.bytes()) };
        self.images.push(image);
        Elf::parse(bytes).map_err(|e| e.to_string())
    }

    fn section(&mut self, elf: &Elf<'static>, name: &str) -> Result<Slice, String> {
        let bytes = match elf::section(elf, name)? {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(bytes) => {
                let bytes = bytes.into_boxed_slice();
                // SAFETY: D1: a boxed slice does not move when its box does, and `buffers` is never
                // shrunk.
                let kept: &'static [u8] = unsafe { &*std::ptr::from_ref::<[u8]>(&bytes) };
                self.buffers.push(bytes);
                kept
            }
        };
        Ok(Slice::new(bytes, LittleEndian))
    }
}

/// Reports whether a name is a symbol of C++ or Rust, which has everything that its function lies in.
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R")
}

/// Reports whether a section is needed: others name no function and no line; they are large, and decompressing costs.
fn is_needed(id: SectionId) -> bool {
    !matches!(
        id,
        SectionId::DebugLoc
            | SectionId::DebugLocLists
            | SectionId::DebugMacro
            | SectionId::DebugMacinfo
    )
}

impl Dwarf {
    /// Opens the DWARF of `image`, with dwz's file if there is one.
    ///
    /// Errors: a section cannot be read; the sentence names it.
    pub(crate) fn open(
        image: Arc<Image>,
        alternate: Option<Arc<Image>>,
        split: SplitDirs,
    ) -> Result<Dwarf, String> {
        let mut store = Store::default();
        let path = image.path().display().to_string();
        let elf = store.keep(image)?;
        let mut dwarf =
            load(&mut store, &elf, |id| Some(id.name())).map_err(|e| format!("{path}: {e}"))?;
        if let Some(alternate) = alternate {
            let path = alternate.path().display().to_string();
            let elf = store.keep(alternate)?;
            let sup =
                load(&mut store, &elf, |id| Some(id.name())).map_err(|e| format!("{path}: {e}"))?;
            dwarf.set_sup(sup);
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).map_err(|e| format!("{path}: DWARF: {e}"))?;
        let package = split
            .packages
            .iter()
            .find_map(|path| load_package(&mut store, path));
        Ok(Dwarf {
            context,
            package,
            split,
            scopes: Scopes::default(),
            missing_dwo: Vec::new(),
            store,
        })
    }

    /// Returns the frames at an address of the file, innermost first; empty if DWARF does not know it.
    pub(crate) fn find(&mut self, address: u64) -> Vec<RawFrame> {
        let Dwarf {
            context,
            package,
            split,
            scopes,
            missing_dwo,
            store,
        } = self;
        let mut lookup = context.find_frames(address);
        let output = loop {
            match lookup {
                LookupResult::Output(output) => break output,
                LookupResult::Load { load, continuation } => {
                    let name = load.path.as_ref().map(|p| text(p.slice()));
                    let found = load_dwo(store, package.as_ref(), split, load);
                    if found.is_none() {
                        missing_dwo.extend(name);
                    }
                    lookup = continuation.resume(found);
                }
            }
        };
        let Ok(mut iterator) = output else {
            return Vec::new();
        };
        let mut frames = Vec::new();
        // Frames whose names are bare, with their entries.
        let mut bare = Vec::new();
        // A damaged frame ends the list: what was found stands (D2).
        while let Ok(Some(frame)) = iterator.next() {
            let (file, line) = match &frame.location {
                Some(at) => (at.file.map(str::to_string), at.line.filter(|&l| l != 0)),
                None => (None, None),
            };
            let name = frame
                .function
                .and_then(|f| f.raw_name().ok().map(Cow::into_owned))
                .filter(|name| !name.is_empty());
            if let (Some(name), Some(entry)) = (&name, frame.dw_die_offset)
                && !is_mangled(name)
            {
                bare.push((frames.len(), entry));
            }
            frames.push(RawFrame { name, file, line });
        }
        // The unit was read for the frames: it waits for no split file any more.
        if let (false, LookupResult::Output(Some(unit))) =
            (bare.is_empty(), context.find_dwarf_and_unit(address))
        {
            for (frame, entry) in bare {
                if let Some(name) = scopes.name(unit, entry) {
                    frames[frame].name = Some(name);
                }
            }
        }
        frames
    }

    /// Returns the split files that were needed and not found, each named once per unit.
    pub(crate) fn missing_dwo(&self) -> &[String] {
        &self.missing_dwo
    }
}

fn load(
    store: &mut Store,
    elf: &Elf<'static>,
    name: impl Fn(SectionId) -> Option<&'static str>,
) -> Result<gimli::Dwarf<Slice>, String> {
    gimli::Dwarf::load(|id| match name(id).filter(|_| is_needed(id)) {
        Some(name) => store.section(elf, name),
        None => Ok(Slice::new(&[], LittleEndian)),
    })
}

fn load_package(store: &mut Store, path: &Path) -> Option<gimli::DwarfPackage<Slice>> {
    let image = Arc::new(Image::open(path).ok()?);
    let elf = store.keep(image).ok()?;
    gimli::DwarfPackage::load(
        // All sections are loaded: the index of a package gives ranges of each, and a range beyond
        // an empty section would fail the whole unit.
        |id| match id.dwo_name() {
            Some(name) => store.section(&elf, name).map_err(|_| gimli::Error::Io),
            None => Ok(Slice::new(&[], LittleEndian)),
        },
        Slice::new(&[], LittleEndian),
    )
    .ok()
}

fn load_dwo(
    store: &mut Store,
    package: Option<&gimli::DwarfPackage<Slice>>,
    split: &SplitDirs,
    load: SplitDwarfLoad<Slice>,
) -> Option<Arc<gimli::Dwarf<Slice>>> {
    if let Some(Ok(Some(unit))) = package.map(|p| p.find_cu(load.dwo_id, &load.parent)) {
        return Some(Arc::new(unit));
    }
    let name = PathBuf::from(text(load.path.as_ref()?.slice()));
    let base = name.file_name()?;
    let compiled_in = match &load.comp_dir {
        Some(dir) => PathBuf::from(text(dir.slice())).join(&name),
        None => name.clone(),
    };
    let under_sysroot = split
        .sysroot
        .as_ref()
        .map(|root| root.join(compiled_in.strip_prefix("/").unwrap_or(&compiled_in)));
    let beside = split
        .dirs
        .iter()
        .flat_map(|dir| [dir.join(&name), dir.join(base)]);
    under_sysroot
        .into_iter()
        .chain([compiled_in.clone()])
        .chain(beside)
        .find_map(|path| {
            if store.images.len() >= MAX_DWO_FILES {
                return None;
            }
            let image = Arc::new(Image::open(&path).ok()?);
            let elf = store.keep(image).ok()?;
            let mut dwarf = self::load(store, &elf, |id| id.dwo_name()).ok()?;
            let header = dwarf.units().next().ok()??;
            let unit = dwarf.unit(header).ok()?;
            if unit.dwo_id != Some(load.dwo_id) {
                return None;
            }
            dwarf.make_dwo(&load.parent);
            Some(Arc::new(dwarf))
        })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
