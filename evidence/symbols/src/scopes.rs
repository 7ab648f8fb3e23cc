//! Scopes of functions of which DWARF has only the bare name: namespaces, classes, functions.
//!
//! ```text
//!   inlined `_M_create<…>` ─origin, specification─► its declaration ─parents─► class, namespace … ─► std::_Function_base::…
//! ```
//!
//! G++ gives a linkage name only to what other files can link to: not to static functions, lambdas, nor to functions
//! of templates that a type of this file instantiates. Out of line the symbol table has the whole name; inlined, the
//! tree of entries has it.
//!
//! P1  Of a unit, one walk keeps the entries that can be scopes, each with the one around it: 16 bytes each.
//! P2  Chains of references and of scopes are followed [`MOST`] steps at most; damaged entries give no name.
//! P3  Units in C are not walked: their functions lie in no scope.
//!
//! Not here: which function an address belongs to (dwarf.rs).

use std::sync::Arc;

use addr2line::gimli::{self, AttributeValue, LittleEndian, Section, UnitOffset, UnitRef};
use rustc_hash::FxHashMap;

use crate::demangle::demangle;

/// Bytes of a section; dwarf.D1 says how long they stay.
pub(crate) type Slice = gimli::EndianSlice<'static, LittleEndian>;

/// The most references and scopes that are followed for one name (P2).
const MOST: u32 = 64;
/// Stands for "no scope around it".
const NONE: u32 = u32::MAX;

/// The tables of the units that were asked about.
#[derive(Default)]
pub(crate) struct Scopes {
    /// By the unit's place: the sections that it is in, by address, and the offset in these.
    tables: FxHashMap<(usize, usize), Arc<Table>>,
    /// Units that entries of other units refer to.
    units: FxHashMap<(usize, usize), Arc<gimli::Unit<Slice>>>,
    /// Where the units of a file's sections begin, by the sections' address.
    starts: FxHashMap<usize, Arc<[usize]>>,
}

/// The entries of a unit that can be scopes, by offset (P1).
#[derive(Default)]
struct Table {
    offsets: Vec<usize>,
    /// The index of the entry around each.
    around: Vec<u32>,
}

impl Scopes {
    /// Returns a function's name with what it lies in; `None` if it lies in nothing, or that is not known. `entry` is
    /// the function's own entry, or that of a place where it is inlined.
    pub(crate) fn name(&mut self, unit: UnitRef<'_, Slice>, entry: UnitOffset) -> Option<String> {
        if !has_scopes(unit) {
            return None;
        }
        let name = self.whole(unit, entry, MOST)?;
        name.contains("::").then_some(name)
    }

    fn whole(&mut self, unit: UnitRef<'_, Slice>, at: UnitOffset, left: u32) -> Option<String> {
        let left = left.checked_sub(1)?;
        let entry = unit.entry(at).ok()?;
        let text = |name| {
            let value = entry.attr_value(name)?;
            let text = unit.attr_string(value).ok()?;
            Some(text.to_string_lossy().into_owned())
        };
        if let Some(linkage) = text(gimli::DW_AT_linkage_name) {
            return Some(demangle(&linkage));
        }
        for reference in [gimli::DW_AT_specification, gimli::DW_AT_abstract_origin] {
            let found = entry.attr_value(reference);
            if let Some(name) = found.and_then(|to| self.referred(unit, to, left)) {
                return Some(name);
            }
        }
        let own = own_name(entry.tag(), text(gimli::DW_AT_name))?;
        match self.table(unit).around(at) {
            Some(around) => Some(format!("{}::{own}", self.whole(unit, around, left)?)),
            None => Some(own),
        }
    }

    /// Returns the whole name of an entry that another one refers to: in the same unit, in another of the file, or in
    /// dwz's common file.
    fn referred(
        &mut self,
        unit: UnitRef<'_, Slice>,
        to: AttributeValue<Slice>,
        left: u32,
    ) -> Option<String> {
        let (dwarf, at) = match to {
            AttributeValue::UnitRef(at) => return self.whole(unit, at, left),
            AttributeValue::DebugInfoRef(at) => (unit.dwarf, at.0),
            AttributeValue::DebugInfoRefSup(at) => (unit.dwarf.sup()?, at.0),
            _ => return None,
        };
        let other = self.unit_at(dwarf, at)?;
        let start = other.header.debug_info_offset()?.0;
        let within = UnitOffset(at.checked_sub(start)?);
        self.whole(UnitRef::new(dwarf, &other), within, left)
    }

    /// Returns the unit that an offset of the section lies in.
    fn unit_at(
        &mut self,
        dwarf: &gimli::Dwarf<Slice>,
        at: usize,
    ) -> Option<Arc<gimli::Unit<Slice>>> {
        let place = sections(dwarf);
        let starts = self.starts.entry(place).or_insert_with(|| {
            let mut starts = Vec::new();
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                starts.extend(header.debug_info_offset().map(|offset| offset.0));
            }
            starts.into()
        });
        let start = *starts.get(
            starts
                .partition_point(|start| *start <= at)
                .checked_sub(1)?,
        )?;
        if let Some(unit) = self.units.get(&(place, start)) {
            return Some(Arc::clone(unit));
        }
        let header = dwarf.unit_header(gimli::DebugInfoOffset(start)).ok()?;
        let unit = Arc::new(dwarf.unit(header).ok()?);
        self.units.insert((place, start), Arc::clone(&unit));
        Some(unit)
    }

    fn table(&mut self, unit: UnitRef<'_, Slice>) -> Arc<Table> {
        let start = unit.header.debug_info_offset().map_or(0, |offset| offset.0);
        let place = (sections(unit.dwarf), start);
        Arc::clone(
            self.tables
                .entry(place)
                .or_insert_with(|| Arc::new(Table::of(unit))),
        )
    }
}

/// Returns a number for the sections that units lie in: they stay where they are (dwarf.D1).
fn sections(dwarf: &gimli::Dwarf<Slice>) -> usize {
    dwarf.debug_info.reader().slice().as_ptr().addr()
}

/// Reports whether functions of the unit's language lie in scopes (P3).
fn has_scopes(unit: UnitRef<'_, Slice>) -> bool {
    let root = unit.entry(unit.header.root_offset()).ok();
    let language = root.and_then(|root| root.attr_value(gimli::DW_AT_language));
    let Some(AttributeValue::Language(language)) = language else {
        return false;
    };
    !matches!(
        language,
        gimli::DW_LANG_C
            | gimli::DW_LANG_C89
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_C17
            | gimli::DW_LANG_Rust
    )
}

/// Returns what an entry is called by itself; `None` for one that is no scope.
fn own_name(tag: gimli::DwTag, name: Option<String>) -> Option<String> {
    match (tag, name) {
        (gimli::DW_TAG_namespace, None) => Some("(anonymous namespace)".into()),
        (
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type,
            None,
        ) => Some("{unnamed}".into()),
        // The class of a lambda: `<lambda(int)>`.
        (_, Some(name)) if name.starts_with("<lambda") => {
            let inner = name.trim_start_matches('<');
            Some(format!("{{{}}}", inner.strip_suffix('>').unwrap_or(inner)))
        }
        (_, name) => name.filter(|name| !name.is_empty()),
    }
}

impl Table {
    fn of(unit: UnitRef<'_, Slice>) -> Table {
        let mut table = Table::default();
        // A damaged unit ends the walk: what was found stands (P2).
        _ = table.walk(unit);
        table
    }

    fn walk(&mut self, unit: UnitRef<'_, Slice>) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        // (depth, index)
        let mut open: Vec<(isize, u32)> = Vec::new();
        while !entries.is_empty() {
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            let Some(form) = entries.read_abbreviation()? else {
                continue;
            };
            entries.skip_attributes(form.attributes())?;
            while open.last().is_some_and(|(outer, _)| *outer >= depth) {
                open.pop();
            }
            let is_scope = matches!(
                form.tag(),
                gimli::DW_TAG_namespace
                    | gimli::DW_TAG_structure_type
                    | gimli::DW_TAG_class_type
                    | gimli::DW_TAG_union_type
                    | gimli::DW_TAG_module
                    | gimli::DW_TAG_subprogram
            );
            if is_scope {
                let index = self.offsets.len() as u32;
                self.offsets.push(offset.0);
                self.around
                    .push(open.last().map_or(NONE, |(_, index)| *index));
                open.push((depth, index));
            }
        }
        Ok(())
    }

    /// Returns the scope around an entry that is in the table.
    fn around(&self, at: UnitOffset) -> Option<UnitOffset> {
        let index = self.offsets.binary_search(&at.0).ok()?;
        let around = self.offsets.get(self.around[index] as usize)?;
        Some(UnitOffset(*around))
    }
}
