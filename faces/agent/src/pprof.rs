//! pprof: gzipped `profile.proto` with addresses, which `go tool pprof` and others put names to.
//!
//! ```text
//!   Stacks + Values ─► Profile { sample_type, sample, mapping, location, function, string_table } ─► gzip
//! ```
//!
//! P1  Ids begin at 1 and are those of the tables' order; text 0 is empty; the program is the first mapping.
//! P2  A stack without any value is left out. Sums over samples are the sums over the rows.
//!
//! Not here: recordings as pprof (`export`), where each frame has its name already.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::modules::{Place, Stacks};
use crate::proto::{Message, Texts};
use crate::values::Values;

/// Writes a profile. Memory: that of the whole, some 40 bytes for each frame.
pub fn write(stacks: &Stacks, values: &Values) -> Vec<u8> {
    let mut texts = Texts::new();
    let mut profile = Message::new();
    let kind = |texts: &mut Texts, name: &str, unit: &str| {
        let mut kind = Message::new();
        kind.uint(1, texts.at(name)).uint(2, texts.at(unit));
        kind
    };
    for (name, unit) in values.types {
        profile.message(1, &kind(&mut texts, name, unit));
    }
    for (stack, row) in stacks.stacks.iter().zip(&values.rows) {
        if row.iter().any(|value| *value != 0) {
            let ids: Vec<u64> = stack.iter().map(|place| u64::from(*place) + 1).collect();
            let row: Vec<u64> = row.iter().map(|value| *value as u64).collect();
            let mut sample = Message::new();
            sample.packed(1, &ids).packed(2, &row);
            profile.message(2, &sample);
        }
    }
    for (at, map) in stacks.mappings.iter().enumerate() {
        let mut mapping = Message::new();
        mapping
            .uint(1, at as u64 + 1)
            .uint(2, map.start)
            .uint(3, map.end)
            .uint(4, map.offset);
        mapping
            .uint(5, texts.at(&map.name))
            .uint(6, texts.at(&map.build_id));
        profile.message(3, &mapping);
    }
    let mut functions = Vec::new();
    for (at, place) in stacks.places.iter().enumerate() {
        let mut location = Message::new();
        location.uint(1, at as u64 + 1);
        match place {
            Place::Code(Some(map), address) => {
                location.uint(2, *map as u64 + 1).uint(3, *address);
            }
            Place::Code(None, _) => line(&mut location, &mut functions, "(code of no module)"),
            Place::Named(name) => line(&mut location, &mut functions, name),
        }
        profile.message(4, &location);
    }
    for (at, name) in functions.into_iter().enumerate() {
        let mut function = Message::new();
        function
            .uint(1, at as u64 + 1)
            .uint(2, texts.at(name))
            .uint(3, texts.at(name));
        profile.message(5, &function);
    }
    profile.uint(9, values.time_ns).uint(10, values.duration_ns);
    // Go's period is of requested bytes.
    profile
        .message(11, &kind(&mut texts, "space", "bytes"))
        .uint(12, values.rate);
    let comments: Vec<u64> = values.comments.iter().map(|text| texts.at(text)).collect();
    profile.packed(13, &comments);
    profile.uint(14, texts.at(values.shown));
    // Last: only now all texts are known.
    texts.write(6, &mut profile);
    zipped(profile.bytes())
}

/// Gives a location the name of what it stands for, as its only function.
fn line(location: &mut Message, functions: &mut Vec<&'static str>, name: &'static str) {
    functions.push(name);
    let mut line = Message::new();
    line.uint(1, functions.len() as u64);
    location.message(4, &line);
}

/// Returns gzipped bytes.
pub fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = packed.write_all(bytes);
    packed.finish().unwrap_or_default()
}
