//! A pprof file (`profile.proto`), of whatever program wrote it.
//!
//! ```text
//!   sample_type: inuse_space, inuse_objects, alloc_space, alloc_objects, inuse_slop ─► which value is which figure
//!   sample ─► locations ─► lines (inlined ones first) ─► function, mapping ─► frames, innermost first
//! ```
//!
//! P1  A file without `inuse_space` is no heap profile, and is refused.
//! P2  Figures are taken as they are: writers of pprof files have scaled them.
//! P3  A location without a function is its mapping's file name and address less the mapping's start.
//!
//! Not here: the encoding (protobuf.rs).

use std::collections::HashMap;

use anyhow::{Context, Result, bail};

use super::protobuf::{Field, each};
use super::seen::Seen;

#[derive(Default)]
struct Message<'a> {
    types: Vec<&'a [u8]>,
    samples: Vec<&'a [u8]>,
    mappings: HashMap<u64, Mapping>,
    locations: HashMap<u64, Location>,
    functions: HashMap<u64, [u64; 2]>,
    texts: Vec<&'a str>,
    time_ns: u64,
    duration_ns: u64,
    period: u64,
    first_mapping: u64,
}

#[derive(Default)]
struct Mapping {
    start: u64,
    offset: u64,
    file: u64,
}

#[derive(Default)]
struct Location {
    mapping: u64,
    address: u64,
    /// Function and line, innermost first.
    lines: Vec<(u64, u64)>,
}

/// Reads a profile, unpacked.
///
/// # Errors
/// If it is damaged or no heap profile (P1).
pub(super) fn read(bytes: &[u8]) -> Result<Seen> {
    let message = Message::read(bytes)?;
    let columns = message.columns()?;
    let text = |index: u64| {
        message
            .texts
            .get(index as usize)
            .copied()
            .unwrap_or_default()
    };
    let file = message
        .mappings
        .get(&message.first_mapping)
        .map_or("", |mapping| text(mapping.file));
    let program = file
        .rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or("unknown");
    let mut seen = Seen {
        program: program.to_owned(),
        started: 0,
        t: (message.time_ns / 1_000_000_000).cast_signed(),
        minutes: (message.duration_ns / 60_000_000_000 + 1).cast_signed(),
        sample_bytes: message.period.cast_signed(),
        ..Seen::default()
    };
    for sample in &message.samples {
        let (mut locations, mut values) = (Vec::new(), Vec::new());
        each(sample, |number, field| match number {
            1 => field.numbers(&mut locations),
            2 => field.numbers(&mut values),
            _ => Ok(()),
        })?;
        let mut frames = Vec::new();
        for location in locations {
            message.add_frames(location, &mut seen, &mut frames)?;
        }
        let value = |column: Option<usize>| {
            let value = column.and_then(|at| values.get(at));
            value.map_or(0, |value| value.cast_signed())
        };
        let held = seen.stack(&frames, None);
        held.live_bytes += value(columns.live_bytes);
        held.live_blocks += value(columns.live_blocks);
        held.alloc_bytes += value(columns.alloc_bytes);
        held.alloc_blocks += value(columns.alloc_blocks);
        held.slop += value(columns.slop);
    }
    Ok(seen)
}

/// Which value of a sample is which figure.
struct Columns {
    live_bytes: Option<usize>,
    live_blocks: Option<usize>,
    alloc_bytes: Option<usize>,
    alloc_blocks: Option<usize>,
    slop: Option<usize>,
}

impl<'a> Message<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self> {
        let mut all = Message::default();
        each(bytes, |number, field| {
            match number {
                1 => all.types.push(field.bytes()),
                2 => all.samples.push(field.bytes()),
                3 => all.add_mapping(field.bytes())?,
                4 => all.add_location(field.bytes())?,
                5 => all.add_function(field.bytes())?,
                6 => all.texts.push(std::str::from_utf8(field.bytes())?),
                9 => all.time_ns = field.number(),
                10 => all.duration_ns = field.number(),
                12 => all.period = field.number(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn columns(&self) -> Result<Columns> {
        let mut names = Vec::new();
        for kind in &self.types {
            let mut name = 0;
            each(kind, |number, field| {
                if number == 1 {
                    name = field.number();
                }
                Ok(())
            })?;
            names.push(self.texts.get(name as usize).copied().unwrap_or_default());
        }
        let column = |wanted: &[&str]| names.iter().position(|name| wanted.contains(name));
        let live_bytes = column(&["inuse_space", "space", "inuse"]);
        if live_bytes.is_none() {
            bail!("no values `inuse_space`, only {names:?}: this is no heap profile");
        }
        Ok(Columns {
            live_bytes,
            live_blocks: column(&["inuse_objects", "objects"]),
            alloc_bytes: column(&["alloc_space"]),
            alloc_blocks: column(&["alloc_objects"]),
            slop: column(&["inuse_slop", "slop"]),
        })
    }

    fn add_mapping(&mut self, bytes: &[u8]) -> Result<()> {
        let (mut id, mut mapping) = (0, Mapping::default());
        each(bytes, |number, field| {
            match number {
                1 => id = field.number(),
                2 => mapping.start = field.number(),
                4 => mapping.offset = field.number(),
                5 => mapping.file = field.number(),
                _ => {}
            }
            Ok(())
        })?;
        if self.mappings.is_empty() {
            self.first_mapping = id;
        }
        self.mappings.insert(id, mapping);
        Ok(())
    }

    fn add_location(&mut self, bytes: &[u8]) -> Result<()> {
        let (mut id, mut location) = (0, Location::default());
        each(bytes, |number, field| {
            match number {
                1 => id = field.number(),
                2 => location.mapping = field.number(),
                3 => location.address = field.number(),
                4 => location.lines.push(pair(&field, [1, 2])?),
                _ => {}
            }
            Ok(())
        })?;
        self.locations.insert(id, location);
        Ok(())
    }

    fn add_function(&mut self, bytes: &[u8]) -> Result<()> {
        let (mut id, mut names) = (0, [0; 2]);
        each(bytes, |number, field| {
            match number {
                1 => id = field.number(),
                2 => names[0] = field.number(),
                4 => names[1] = field.number(),
                _ => {}
            }
            Ok(())
        })?;
        self.functions.insert(id, names);
        Ok(())
    }

    /// Adds the frames of a location, inlined ones first.
    fn add_frames(&self, id: u64, seen: &mut Seen, frames: &mut Vec<i64>) -> Result<()> {
        let location = self
            .locations
            .get(&id)
            .context("a sample of a location that is not there")?;
        let text = |index: u64| self.texts.get(index as usize).copied().unwrap_or_default();
        let mapping = self.mappings.get(&location.mapping);
        let path = mapping.map_or("", |mapping| text(mapping.file));
        let module = path.rsplit('/').next().unwrap_or_default();
        if location.lines.is_empty() {
            let base = mapping.map_or(0, |mapping| mapping.start.wrapping_sub(mapping.offset));
            let function = format!("{module}+{:#x}", location.address.wrapping_sub(base));
            frames.push(seen.frame(module, &function, "", 0));
        }
        for (function, line) in &location.lines {
            let [name, file] = self.functions.get(function).copied().unwrap_or_default();
            let line = i64::try_from(*line).unwrap_or(0);
            frames.push(seen.frame(module, text(name), text(file), line));
        }
        Ok(())
    }
}

/// Reads two numbers of a message.
fn pair(field: &Field<'_>, of: [u64; 2]) -> Result<(u64, u64)> {
    let mut found = (0, 0);
    each(field.bytes(), |number, field| {
        if number == of[0] {
            found.0 = field.number();
        } else if number == of[1] {
            found.1 = field.number();
        }
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a field: a number, or bytes.
    fn put(to: &mut Vec<u8>, number: u64, value: Result<u64, &[u8]>) {
        let varint = |mut value: u64, to: &mut Vec<u8>| {
            while value >= 0x80 {
                to.push(value as u8 | 0x80);
                value >>= 7;
            }
            to.push(value as u8);
        };
        match value {
            Ok(value) => {
                varint(number << 3, to);
                varint(value, to);
            }
            Err(bytes) => {
                varint((number << 3) | 2, to);
                varint(bytes.len() as u64, to);
                to.extend_from_slice(bytes);
            }
        }
    }

    fn message(fields: &[(u64, Result<u64, &[u8]>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, value) in fields {
            put(&mut bytes, *number, *value);
        }
        bytes
    }

    fn profile() -> Vec<u8> {
        let texts = [
            "",
            "inuse_objects",
            "inuse_space",
            "count",
            "bytes",
            "/usr/bin/web",
            "serve",
            "inner",
            "a.c",
        ];
        let objects = message(&[(1, Ok(1)), (2, Ok(3))]);
        let space = message(&[(1, Ok(2)), (2, Ok(4))]);
        let mapping = message(&[(1, Ok(1)), (2, Ok(0x1000)), (3, Ok(0x2000)), (5, Ok(5))]);
        let serve = message(&[(1, Ok(1)), (2, Ok(6)), (4, Ok(8))]);
        let inner = message(&[(1, Ok(2)), (2, Ok(7))]);
        let line = |function, line| message(&[(1, Ok(function)), (2, Ok(line))]);
        let (first, second) = (line(2, 5), line(1, 9));
        let named = message(&[(1, Ok(1)), (2, Ok(1)), (4, Err(&first)), (4, Err(&second))]);
        let unnamed = message(&[(1, Ok(2)), (2, Ok(1)), (3, Ok(0x1010))]);
        let packed = message(&[(1, Err(&[1, 2])), (2, Err(&[3, 0xac, 2]))]);
        let unpacked = message(&[(1, Ok(1)), (1, Ok(2)), (2, Ok(1)), (2, Ok(100))]);
        let mut all = message(&[
            (1, Err(&objects)),
            (1, Err(&space)),
            (2, Err(&packed)),
            (2, Err(&unpacked)),
            (3, Err(&mapping)),
            (4, Err(&named)),
            (4, Err(&unnamed)),
            (5, Err(&serve)),
            (5, Err(&inner)),
            (9, Ok(7_200_000_000_000)),
            (12, Ok(524_288)),
        ]);
        for text in texts {
            put(&mut all, 6, Err(text.as_bytes()));
        }
        all
    }

    #[test]
    fn packed_and_unpacked_samples_are_the_same_and_add_up() {
        let seen = read(&profile()).unwrap();
        let frames = [("web", "inner"), ("web", "serve"), ("web", "web+0x10")];
        let frames = frames.map(|(module, function)| crate::id::frame(module, function));
        assert_eq!(seen.stacks.len(), 1);
        let held = &seen.stacks[&crate::id::stack(&frames)];
        assert_eq!((held.live_blocks, held.live_bytes), (4, 400));
        assert_eq!(held.leaf, frames[0]);
        assert_eq!(
            (seen.program.as_str(), seen.t, seen.sample_bytes),
            ("web", 7200, 524_288)
        );
        assert_eq!(seen.frames[&frames[1]].file, "a.c");
    }

    #[test]
    fn no_bytes_make_it_panic_and_what_is_cut_in_a_field_is_refused() {
        let whole = profile();
        for cut in 0..whole.len() {
            let _ = read(&whole[..cut]);
            let mut odd = whole.clone();
            odd[cut] ^= 0xff;
            let _ = read(&odd);
        }
        assert!(read(&whole[..whole.len() - 1]).is_err());
        assert!(
            read(b"")
                .unwrap_err()
                .to_string()
                .contains("no heap profile")
        );
    }
}
