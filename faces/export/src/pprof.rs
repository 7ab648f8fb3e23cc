//! pprof: gzipped `profile.proto`, for `go tool pprof`, Grafana, Pyroscope, speedscope and others.
//!
//! ```text
//!   site ─► Sample { locations, innermost first; one value for each of Value::ALL }
//!   frames of one call with what was inlined into it ─► Location { lines, innermost first }
//! ```
//!
//! P1  Sums over samples are the totals of the report, value by value.
//! P2  Index 0 of the string table is the empty string; ids of functions, locations and mappings begin at 1.
//! P3  The first mapping is the executable: readers take it for the program. Every object that was loaded has its path,
//!     address range and build id; what a frame names and the trace does not, has its name alone.
//! P4  Locations have no address: the report has names instead. Two stacks that differ only by address are two
//!     samples with the same locations; readers add them up.
//!
//! The schema is `profile.proto` of github.com/google/pprof; fields that are not written are left out.
//! Not here: what a value is (`source.rs`).

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use rustc_hash::FxHashMap;
use skinflint_trace::Module;

use crate::source::{Source, Value, name};

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    memory_start: u64,
    #[prost(uint64, tag = "3")]
    memory_limit: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(int64, tag = "6")]
    build_id: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
    #[prost(bool, tag = "8")]
    has_filenames: bool,
    #[prost(bool, tag = "9")]
    has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

/// The most mappings: a program may load and unload objects for as long as it runs.
const MOST_MAPPINGS: usize = 10_000;

/// The objects that were loaded.
#[derive(Clone, Copy, Default)]
pub struct Loaded<'a> {
    /// The executable's path.
    pub exe: &'a str,
    /// All of them, in the order in which they were seen.
    pub modules: &'a [Module],
}

/// The tables of a profile being built (P2).
struct Tables<'a> {
    source: Source<'a>,
    profile: Profile,
    strings: FxHashMap<String, i64>,
    /// Function ids by (name, file).
    functions: FxHashMap<(i64, i64), u64>,
    /// Mapping ids by the file name of the module, as frames have it.
    mappings: FxHashMap<String, u64>,
    locations: FxHashMap<Vec<u32>, u64>,
}

impl<'a> Tables<'a> {
    fn new(source: Source<'a>) -> Tables<'a> {
        let mut tables = Tables {
            source,
            profile: Profile::default(),
            strings: FxHashMap::default(),
            functions: FxHashMap::default(),
            mappings: FxHashMap::default(),
            locations: FxHashMap::default(),
        };
        tables.string("");
        tables
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.into());
        self.strings.insert(text.into(), index);
        index
    }

    fn value_type(&mut self, value: Value) -> ValueType {
        let unit = if value.is_bytes() { "bytes" } else { "count" };
        ValueType {
            kind: self.string(value.name()),
            unit: self.string(unit),
        }
    }

    fn function(&mut self, frame: u32) -> u64 {
        let frame = self.source.frame(frame);
        let function = self.string(name(frame));
        let filename = self.string(frame.file.as_deref().unwrap_or_default());
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((function, filename)).or_insert(next);
        if id == next {
            self.profile.function.push(Function {
                id,
                name: function,
                system_name: function,
                filename,
            });
        }
        id
    }

    fn mapping(&mut self, module: &str) -> u64 {
        if module.is_empty() {
            return 0;
        }
        if let Some(&id) = self.mappings.get(module) {
            return id;
        }
        let id = self.map(module, (0, 0), "");
        self.mappings.insert(module.into(), id);
        id
    }

    /// Adds a mapping, and returns its id.
    fn map(&mut self, path: &str, (memory_start, memory_limit): (u64, u64), build_id: &str) -> u64 {
        let id = self.profile.mapping.len() as u64 + 1;
        let (filename, build_id) = (self.string(path), self.string(build_id));
        self.profile.mapping.push(Mapping {
            id,
            memory_start,
            memory_limit,
            filename,
            build_id,
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        });
        id
    }

    /// Adds the objects that were loaded, the executable first (P3).
    fn loaded(&mut self, loaded: Loaded<'_>) {
        let is_exe = |module: &&Module| !loaded.exe.is_empty() && module.path == loaded.exe;
        // Where the loader does not name the executable by its path, it is the object that was there first.
        let exe = loaded
            .modules
            .iter()
            .find(is_exe)
            .or(loaded.modules.first());
        let others = loaded.modules.iter();
        let others = others.filter(|module| !exe.is_some_and(|exe| std::ptr::eq(exe, *module)));
        for module in exe.into_iter().chain(others) {
            let name = module.path.rsplit('/').next().unwrap_or_default();
            if name.is_empty() || self.mappings.len() >= MOST_MAPPINGS {
                continue;
            }
            let id = self.map(&module.path, (module.start, module.end), &module.build_id);
            // Of two with one name, frames are of the first: they have the name alone.
            self.mappings.entry(name.into()).or_insert(id);
        }
    }

    /// Returns the location of one call: its frames, innermost first; all but the last are inlined.
    fn location(&mut self, call: &[u32]) -> u64 {
        if let Some(&id) = self.locations.get(call) {
            return id;
        }
        let line = call.iter().map(|&frame| Line {
            function_id: self.function(frame),
            line: i64::from(self.source.frame(frame).line.unwrap_or(0)),
        });
        let line = line.collect();
        let module = call.last().map(|&frame| self.source.frame(frame));
        let mapping_id = self.mapping(module.map_or("", |frame| &frame.module));
        let id = self.locations.len() as u64 + 1;
        self.profile.location.push(Location {
            id,
            mapping_id,
            line,
        });
        self.locations.insert(call.to_vec(), id);
        id
    }

    fn stack(&mut self, node: u32) -> Vec<u64> {
        let path = self.source.path(node);
        if path.is_empty() {
            return vec![self.location(&[u32::MAX])];
        }
        let source = self.source;
        let calls = path.split_inclusive(|&frame| !source.frame(frame).inlined);
        calls.map(|call| self.location(call)).collect()
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Writes the profile. Memory: that of the whole profile, about 100 bytes per stack and frame.
///
/// # Errors
/// Those of `out`.
pub fn write(source: Source<'_>, loaded: Loaded<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut tables = Tables::new(source);
    tables.loaded(loaded);
    for value in Value::ALL {
        let value_type = tables.value_type(value);
        tables.profile.sample_type.push(value_type);
    }
    for site in &source.report.sites {
        let sample = Sample {
            location_id: tables.stack(site.node),
            value: Value::ALL.map(|value| signed(value.of(site))).to_vec(),
        };
        tables.profile.sample.push(sample);
    }
    let program = &source.report.program;
    let at_ns = source.instant().map_or(0, |instant| instant.time_ns);
    tables.profile.time_nanos = signed(program.started_unix_ns.saturating_add(at_ns));
    tables.profile.duration_nanos = signed(program.duration_ns);
    // Every allocation was seen: the sampling period is one.
    tables.profile.period_type = Some(tables.value_type(Value::InuseSpace));
    tables.profile.period = 1;
    tables.profile.default_sample_type = tables.string(Value::InuseSpace.name());
    let mut said = vec![source.headline()];
    said.extend(source.report.completeness.notes.iter().cloned());
    for text in said {
        let comment = tables.string(&text);
        tables.profile.comment.push(comment);
    }
    let mut packed = GzEncoder::new(out, Compression::default());
    packed.write_all(&tables.profile.encode_to_vec())?;
    packed.finish()?.flush()
}

#[cfg(test)]
#[path = "pprof_tests.rs"]
mod tests;
