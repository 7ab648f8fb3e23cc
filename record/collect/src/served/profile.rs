//! profile.proto, read: of a heap profile the samples with their stacks.
//!
//! ```text
//!   Profile { sample_type, sample, location, function, string_table, period } ─► per sample: places, live and all blocks and bytes
//! ```
//!
//! R1  Nothing of it is believed: a message that ends early, a number that is no place in a table, or a stack without end is an
//!     error or a frame without a name, and never a panic.
//! R2  What makes it a heap profile are its values: bytes in use and their blocks. Of others it is said what they are.
//!
//! By hand, as the agent writes it (`agent/proto.rs`): derived code would be two dozen types for six that are needed.

use rustc_hash::FxHashMap;

use crate::go::GoFrame;

/// The most frames of a stack.
const MOST_FRAMES: usize = 4096;
/// The mean distance of samples, if a profile does not tell: that of Go and of jemalloc's default.
const USUAL_PERIOD: u64 = 512 << 10;

/// Values of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Figures {
    pub(crate) live_blocks: u64,
    pub(crate) live_bytes: u64,
    /// `None`: the profile has what lives alone.
    pub(crate) all: Option<(u64, u64)>,
}

/// A sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    /// Numbers of places, innermost first.
    pub(crate) stack: Vec<u64>,
    pub(crate) figures: Figures,
    /// The bytes of each block, if it says so.
    pub(crate) block_bytes: Option<u64>,
}

/// A heap profile.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Profile {
    pub(crate) samples: Vec<Sample>,
    /// The mean distance of samples, bytes; 1: every block is one.
    pub(crate) period: u64,
    /// Frames by place, innermost first: more than one where functions were inlined.
    places: FxHashMap<u64, Vec<GoFrame>>,
}

/// A field's value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A message, field by field.
struct Fields<'a>(&'a [u8]);

fn varint(from: &mut &[u8]) -> Option<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
        shift += 7;
    }
}

impl<'a> Fields<'a> {
    /// Returns the next field; an error if the message ends within it.
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, ()> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = varint(&mut self.0).ok_or(())?;
        let mut take = |count: usize| -> Result<&'a [u8], ()> {
            let (taken, rest) = self.0.split_at_checked(count).ok_or(())?;
            self.0 = rest;
            Ok(taken)
        };
        let value = match key & 7 {
            1 => Value::Bytes(take(8)?),
            5 => Value::Bytes(take(4)?),
            0 => Value::Number(varint(&mut self.0).ok_or(())?),
            2 => {
                let count = varint(&mut self.0).ok_or(())?;
                let count = usize::try_from(count).map_err(|_| ())?;
                let (taken, rest) = self.0.split_at_checked(count).ok_or(())?;
                self.0 = rest;
                Value::Bytes(taken)
            }
            _ => return Err(()),
        };
        Ok(Some((key >> 3, value)))
    }

    /// Calls `each` with all fields.
    fn all(mut self, mut each: impl FnMut(u64, Value<'a>) -> Result<(), ()>) -> Result<(), ()> {
        while let Some((field, value)) = self.next()? {
            each(field, value)?;
        }
        Ok(())
    }
}

/// Adds a number, or a packed list of them.
fn numbers(value: &Value<'_>, to: &mut Vec<u64>) -> Result<(), ()> {
    match value {
        Value::Number(number) => to.push(*number),
        Value::Bytes(bytes) => {
            let mut rest = *bytes;
            while !rest.is_empty() {
                to.push(varint(&mut rest).ok_or(())?);
            }
        }
    }
    Ok(())
}

/// Returns the first `N` numbers of a message, by field from 1 on.
fn fields<const N: usize>(bytes: &[u8]) -> Result<[u64; N], ()> {
    let mut found = [0; N];
    Fields(bytes).all(|field, value| {
        if let (Value::Number(number), Some(to)) =
            (value, found.get_mut(field.wrapping_sub(1) as usize))
        {
            *to = number;
        }
        Ok(())
    })?;
    Ok(found)
}

/// A message's tables, with numbers instead of what they stand for.
#[derive(Default)]
struct Tables<'a> {
    types: Vec<[u64; 2]>,
    samples: Vec<&'a [u8]>,
    mappings: FxHashMap<u64, [u64; 5]>,
    locations: Vec<&'a [u8]>,
    functions: FxHashMap<u64, [u64; 5]>,
    texts: Vec<&'a [u8]>,
    period: u64,
}

impl<'a> Tables<'a> {
    fn read(bytes: &'a [u8]) -> Result<Tables<'a>, ()> {
        let mut tables = Tables::default();
        Fields(bytes).all(|field, value| {
            match (field, value) {
                (1, Value::Bytes(of)) => tables.types.push(fields(of)?),
                (2, Value::Bytes(of)) => tables.samples.push(of),
                (3, Value::Bytes(of)) => {
                    let of: [u64; 5] = fields(of)?;
                    tables.mappings.insert(of[0], of);
                }
                (4, Value::Bytes(of)) => tables.locations.push(of),
                (5, Value::Bytes(of)) => {
                    let of: [u64; 5] = fields(of)?;
                    tables.functions.insert(of[0], of);
                }
                (6, Value::Bytes(of)) => tables.texts.push(of),
                (12, Value::Number(period)) => tables.period = period,
                _ => {}
            }
            Ok(())
        })?;
        Ok(tables)
    }

    fn text(&self, at: u64) -> String {
        let text = usize::try_from(at).ok().and_then(|at| self.texts.get(at));
        String::from_utf8_lossy(text.copied().unwrap_or_default()).into_owned()
    }

    /// Returns the column of the first of these types.
    fn column(&self, names: &[&str]) -> Option<usize> {
        let named = |name: &&str| {
            self.types
                .iter()
                .position(|one| self.text(one[0]) == **name)
        };
        names.iter().find_map(named)
    }

    /// Returns the frames of a place, innermost first, and its number.
    fn place(&self, of: &[u8]) -> Result<(u64, Vec<GoFrame>), ()> {
        let [id, mapping, address] = fields(of)?;
        let mut frames = Vec::new();
        Fields(of).all(|field, value| {
            if let (4, Value::Bytes(line)) = (field, value) {
                let [function, line] = fields(line)?;
                let [_, name, system, file, first] =
                    self.functions.get(&function).copied().unwrap_or_default();
                let name = if name == 0 { system } else { name };
                frames.push(GoFrame {
                    function: self.text(name),
                    file: self.text(file),
                    line: u32::try_from(line).unwrap_or(0),
                    first_line: u32::try_from(first).unwrap_or(0),
                });
            }
            Ok(())
        })?;
        frames.retain(|frame| !frame.function.is_empty());
        if frames.is_empty() {
            let [_, start, _, offset, file] =
                self.mappings.get(&mapping).copied().unwrap_or_default();
            let file = self.text(file);
            let file = file.rsplit('/').next().unwrap_or_default();
            let at = address.wrapping_sub(start).wrapping_add(offset);
            frames.push(GoFrame {
                function: if file.is_empty() {
                    format!("{address:#x}")
                } else {
                    format!("{file}+{at:#x}")
                },
                file: String::new(),
                line: 0,
                first_line: 0,
            });
        }
        Ok((id, frames))
    }

    fn sample(&self, of: &[u8], columns: &[Option<usize>; 4]) -> Result<Sample, ()> {
        let (mut stack, mut values, mut block_bytes) = (Vec::new(), Vec::new(), None);
        Fields(of).all(|field, value| {
            match (field, &value) {
                (1, value) => numbers(value, &mut stack)?,
                (2, value) => numbers(value, &mut values)?,
                (3, Value::Bytes(label)) => {
                    let [key, _, number] = fields(label)?;
                    if number > 0 && self.text(key) == "bytes" {
                        block_bytes = Some(number);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        stack.truncate(MOST_FRAMES);
        // A negative figure is none.
        let value = |column: Option<usize>| {
            let value = values.get(column?).copied().unwrap_or(0);
            Some(if value >> 63 == 0 { value } else { 0 })
        };
        let [live_blocks, live_bytes, all_blocks, all_bytes] = columns.map(value);
        Ok(Sample {
            stack,
            figures: Figures {
                live_blocks: live_blocks.unwrap_or(0),
                live_bytes: live_bytes.unwrap_or(0),
                all: all_blocks.zip(all_bytes),
            },
            block_bytes,
        })
    }
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// Why it is none of a heap, in words (R2).
    pub(crate) fn read(bytes: &[u8]) -> Result<Profile, String> {
        let begins = || {
            let shown: String = String::from_utf8_lossy(bytes.get(..24).unwrap_or(bytes)).into();
            let shown: String = shown.chars().filter(|c| !c.is_control()).collect();
            format!("what it answers is no profile (profile.proto): it begins with {shown:?}")
        };
        let tables = Tables::read(bytes).map_err(|()| begins())?;
        // Numbers without any text are of something else.
        if tables.types.is_empty() || tables.texts.is_empty() {
            return Err(begins());
        }
        let columns = [
            tables.column(&["inuse_objects", "objects"]),
            tables.column(&["inuse_space", "space", "inuse_bytes"]),
            tables.column(&["alloc_objects"]),
            tables.column(&["alloc_space"]),
        ];
        if columns[0].is_none() || columns[1].is_none() {
            let has: Vec<String> = tables.types.iter().map(|one| tables.text(one[0])).collect();
            return Err(format!(
                "it is no heap profile: it has {}, and no inuse_objects and inuse_space; name /debug/pprof/heap",
                has.join(", ")
            ));
        }
        let cut = |()| "the profile is broken: a message in it ends early".to_owned();
        let mut places = FxHashMap::default();
        for of in &tables.locations {
            let (id, frames) = tables.place(of).map_err(cut)?;
            places.insert(id, frames);
        }
        let samples = tables.samples.iter();
        let samples: Result<Vec<Sample>, ()> =
            samples.map(|of| tables.sample(of, &columns)).collect();
        Ok(Profile {
            samples: samples.map_err(cut)?,
            period: match tables.period {
                0 => USUAL_PERIOD,
                period => period,
            },
            places,
        })
    }

    /// Returns the frames of a stack, outermost first.
    pub(crate) fn frames(&self, stack: &[u64]) -> Vec<GoFrame> {
        let inner = stack.iter().filter_map(|place| self.places.get(place));
        let mut frames: Vec<GoFrame> = inner.flatten().take(MOST_FRAMES).cloned().collect();
        frames.reverse();
        frames
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
pub(crate) mod tests;
