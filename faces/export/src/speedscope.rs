//! speedscope's own JSON: one file with a profile for each value.
//!
//! ```text
//!   shared.frames ◄── profiles[i].samples[j] (outermost first), profiles[i].weights[j]
//! ```
//!
//! S1  `endValue` is the sum of the weights, which is the total of the report.
//! S2  A frame is a function of a file, without the line of the call: speedscope's sandwich view has a row
//!     for each frame, and a function that calls from two lines is one function.
//! S3  What is not text of the program (values, order) follows <https://www.speedscope.app/file-format-schema.json>.
//!
//! Not here: time. The samples are stacks, one after another, largest first as in the report.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::source::{NO_STACK, Source, Value, name};

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'a str,
    exporter: String,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active: usize,
    shared: Shared<'a>,
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<Frame<'a>>,
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
}

#[derive(Serialize)]
struct Profile<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    name: &'a str,
    unit: &'a str,
    #[serde(rename = "startValue")]
    start: u64,
    #[serde(rename = "endValue")]
    end: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes the file. Memory: that of the stacks, once for each value.
///
/// # Errors
/// Those of `out`.
pub fn write(source: Source<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut frames: Vec<Frame<'_>> = Vec::new();
    let mut known: FxHashMap<(&str, Option<&str>), u32> = FxHashMap::default();
    // Places by index of the report's frames (S2).
    let mut places: Vec<u32> = Vec::with_capacity(source.report.frames.len());
    for frame in &source.report.frames {
        // A frame without debug information still has its module as the file.
        let module = (!frame.module.is_empty()).then_some(frame.module.as_str());
        let (name, file) = (name(frame), frame.file.as_deref().or(module));
        let place = *known.entry((name, file)).or_insert(frames.len() as u32);
        if place == frames.len() as u32 {
            frames.push(Frame { name, file });
        }
        places.push(place);
    }
    let none = frames.len() as u32;
    frames.push(Frame {
        name: NO_STACK,
        file: None,
    });
    let mut profiles = Vec::new();
    for value in Value::ALL {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for site in source.report.sites.iter().filter(|site| value.of(site) > 0) {
            let path = source.path(site.node).into_iter().rev();
            let path = path.filter_map(|frame| places.get(frame as usize).copied());
            let path: Vec<u32> = path.collect();
            samples.push(if path.is_empty() { vec![none] } else { path });
            weights.push(value.of(site));
        }
        profiles.push(Profile {
            kind: "sampled",
            name: value.name(),
            unit: if value.is_bytes() { "bytes" } else { "none" },
            start: 0,
            end: value.total(source.report),
            samples,
            weights,
        });
    }
    let first = Value::ALL.iter().position(|one| *one == Value::InuseSpace);
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: source.report.analysed_by.clone(),
        name: source.headline(),
        active: first.unwrap_or(0),
        shared: Shared { frames },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")?;
    out.flush()
}
