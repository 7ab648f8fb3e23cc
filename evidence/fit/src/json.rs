//! A profile as JSON: FIT.md describes its fields.
//!
//! Not here: the same for readers (`text.rs`).

use std::path::Path;

use serde::Serialize;
use skinflint_sizes::fit::{FLAG_INCOMPLETE, FLAG_SHORT, FitView};
use skinflint_sizes::spans::{PAGE_BYTES, base_class};

use crate::learned::{Learned, spare_pages};
use crate::source::Source;
use crate::survey::Earned;
use crate::trial::{Slop, Span};

/// The JSON of a profile: FIT.md describes its fields.
#[derive(Serialize)]
pub struct Json<'a> {
    output: String,
    program: &'a str,
    build_id: String,
    flags: Vec<&'static str>,
    events: u64,
    first_unix_ns: u64,
    last_unix_ns: u64,
    spare_bytes: u64,
    earned: Vec<JsonEarned>,
    spans: Vec<JsonSpan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traces: Option<Vec<JsonTrace>>,
}

#[derive(Serialize)]
struct JsonEarned {
    size: u16,
    base: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_live_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved_bytes: Option<u64>,
}

#[derive(Serialize)]
struct JsonSpan {
    class: u16,
    pages: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    most_live_bytes: Option<u64>,
}

#[derive(Serialize)]
struct JsonTrace {
    file: String,
    events: u64,
    acquisitions: u64,
    duration_ns: u64,
    incomplete: Vec<String>,
    at_peak: JsonSlop,
    on_average: JsonSlop,
}

#[derive(Serialize)]
struct JsonSlop {
    requested_bytes: u64,
    slop_before_bytes: u64,
    slop_after_bytes: u64,
}

impl From<Slop> for JsonSlop {
    fn from(slop: Slop) -> JsonSlop {
        JsonSlop {
            requested_bytes: slop.requested_bytes,
            slop_before_bytes: slop.slop_before_bytes,
            slop_after_bytes: slop.slop_after_bytes,
        }
    }
}

pub(crate) fn flag_names(flags: u8) -> Vec<&'static str> {
    let names = [(FLAG_INCOMPLETE, "incomplete"), (FLAG_SHORT, "short")];
    let set = names.into_iter().filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, name)| name).collect()
}

pub(crate) fn hex(raw: &[u8]) -> String {
    raw.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Learned {
    /// Returns what was learned, to be written to `output`, as JSON.
    pub fn json(&self, output: &Path) -> Json<'_> {
        let newest = self.sources.last();
        let trace = |source: &Source| JsonTrace {
            file: source.path.display().to_string(),
            events: source.recording.trace.event_count(),
            acquisitions: source.outcome.acquisitions,
            duration_ns: source.duration_ns(),
            incomplete: source.missing(),
            at_peak: source.outcome.at_peak.into(),
            on_average: source.outcome.on_average.into(),
        };
        let earned = |one: &Earned| JsonEarned {
            size: one.size,
            base: one.base,
            most_live_blocks: Some(one.most_live_blocks),
            saved_bytes: Some(one.saved_bytes),
        };
        let span = |one: &Span| JsonSpan {
            class: one.class,
            pages: one.pages,
            most_live_bytes: Some(one.most_live_bytes),
        };
        Json {
            output: output.display().to_string(),
            program: newest.map_or("", Source::program),
            build_id: hex(&newest.map(Source::build_id).unwrap_or_default()),
            flags: flag_names(self.flags),
            events: self.events(),
            first_unix_ns: self.started(<[Source]>::first),
            last_unix_ns: self.started(<[Source]>::last),
            spare_bytes: u64::from(spare_pages(self.spare_bytes)) * u64::from(PAGE_BYTES),
            earned: self.earned.iter().map(earned).collect(),
            spans: self.spans.iter().map(span).collect(),
            traces: Some(self.sources.iter().map(trace).collect()),
        }
    }
}

/// Returns what a profile holds, which was read from `path`, as JSON.
pub fn profile_json<'a>(view: &'a FitView<'_>, path: &Path) -> Json<'a> {
    let base = |size: u16| base_class(size.into()) as u16;
    let earned = view.earned().map(|size| JsonEarned {
        size,
        base: base(size),
        most_live_blocks: None,
        saved_bytes: None,
    });
    let spans = view.spans().map(|(class, pages)| JsonSpan {
        class,
        pages,
        most_live_bytes: None,
    });
    Json {
        output: path.display().to_string(),
        program: view.program(),
        build_id: hex(view.build_id()),
        flags: flag_names(view.flags()),
        events: view.events(),
        first_unix_ns: view.first_unix_ns(),
        last_unix_ns: view.last_unix_ns(),
        spare_bytes: u64::from(view.spare_pages()) * u64::from(PAGE_BYTES),
        earned: earned.collect(),
        spans: spans.collect(),
        traces: None,
    }
}
