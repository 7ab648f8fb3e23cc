//! A profile as its reader sees it: gzip, `profile.proto`, each rule of the format checked on the way.
//!
//! ```text
//!   bytes ─► fields (number, value │ bytes) ─► Profile: types, samples, mappings, locations, names
//! ```
//!
//! D1  Read by the book, with no code of the writer's: ids from 1 on in order, text 0 empty, equal numbers of values, no id that
//!     is not there.

use std::io::Read;

/// A field's value.
#[derive(Clone, Debug)]
pub enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Field {
    pub fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(_) => panic!("bytes where a number should be"),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(_) => panic!("a number where bytes should be"),
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a number without an end");
}

/// Returns the fields of a message.
pub fn fields(mut bytes: &[u8]) -> Vec<(u64, Field)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_at(8);
                bytes = rest;
                Field::Number(u64::from_le_bytes(value.try_into().expect("eight")))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, field));
    }
    all
}

/// Returns all fields of a number.
pub fn all(of: &[(u64, Field)], number: u64) -> Vec<&Field> {
    let found = of.iter().filter(|(found, _)| *found == number);
    found.map(|(_, field)| field).collect()
}

/// Returns a number; 0 where it is left out.
pub fn one(of: &[(u64, Field)], number: u64) -> u64 {
    all(of, number).first().map_or(0, |field| field.number())
}

/// Returns a packed list.
pub fn packed(of: &[(u64, Field)], number: u64) -> Vec<u64> {
    let mut list = Vec::new();
    for field in all(of, number) {
        let mut bytes = field.bytes();
        while !bytes.is_empty() {
            list.push(varint(&mut bytes));
        }
    }
    list
}

#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    pub start: u64,
    pub limit: u64,
    pub offset: u64,
    pub file: String,
    pub build_id: String,
}

/// Where a frame is.
#[derive(Clone, Debug, PartialEq)]
pub struct Location {
    pub mapping: usize,
    pub address: u64,
    pub name: String,
}

#[derive(Debug)]
pub struct Profile {
    /// Name and unit.
    pub types: Vec<(String, String)>,
    /// Locations (their places), the innermost first, and values.
    pub samples: Vec<(Vec<usize>, Vec<i64>)>,
    pub mappings: Vec<Mapping>,
    pub locations: Vec<Location>,
    pub shown: String,
    pub period: u64,
    pub duration_ns: u64,
    pub comments: Vec<String>,
}

impl Profile {
    /// Reads a gzipped profile.
    #[track_caller]
    pub fn read(zipped: &[u8]) -> Profile {
        let mut bytes = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(zipped);
        gzip.read_to_end(&mut bytes).expect("gzip");
        let top = fields(&bytes);
        let texts: Vec<String> = all(&top, 6)
            .iter()
            .map(|text| String::from_utf8(text.bytes().to_vec()).expect("text"))
            .collect();
        assert_eq!(texts.first().map(String::as_str), Some(""));
        let text = |at: u64| texts[at as usize].clone();
        let messages = |number: u64| -> Vec<Vec<(u64, Field)>> {
            let found = all(&top, number);
            found.iter().map(|field| fields(field.bytes())).collect()
        };
        let in_order = |list: &[Vec<(u64, Field)>]| {
            let ids: Vec<u64> = list.iter().map(|one_of| one(one_of, 1)).collect();
            assert_eq!(ids, (1..=list.len() as u64).collect::<Vec<_>>());
        };
        let (maps, places, functions) = (messages(3), messages(4), messages(5));
        [&maps, &places, &functions]
            .into_iter()
            .for_each(|list| in_order(list));
        let names: Vec<String> = functions.iter().map(|of| text(one(of, 2))).collect();
        let locations = places.iter().map(|of| {
            let lines = all(of, 4);
            let line = lines.first().map(|line| fields(line.bytes()));
            let mapping = one(of, 2) as usize;
            assert!(mapping <= maps.len());
            Location {
                mapping,
                address: one(of, 3),
                name: line.map_or(String::new(), |line| {
                    names[one(&line, 1) as usize - 1].clone()
                }),
            }
        });
        let types: Vec<(String, String)> = messages(1)
            .iter()
            .map(|of| (text(one(of, 1)), text(one(of, 2))))
            .collect();
        let entries = messages(2);
        let samples = entries.iter().map(|of| {
            let ids = packed(of, 1)
                .iter()
                .map(|id| *id as usize - 1)
                .collect::<Vec<_>>();
            assert!(!ids.is_empty() && ids.iter().all(|id| *id < places.len()));
            let values: Vec<i64> = packed(of, 2).iter().map(|value| *value as i64).collect();
            assert_eq!(values.len(), types.len());
            (ids, values)
        });
        Profile {
            samples: samples.collect(),
            mappings: maps
                .iter()
                .map(|of| Mapping {
                    start: one(of, 2),
                    limit: one(of, 3),
                    offset: one(of, 4),
                    file: text(one(of, 5)),
                    build_id: text(one(of, 6)),
                })
                .collect(),
            locations: locations.collect(),
            shown: text(one(&top, 14)),
            period: one(&top, 12),
            duration_ns: one(&top, 10),
            comments: packed(&top, 13).iter().map(|at| text(*at)).collect(),
            types,
        }
    }

    /// Returns the place of a type.
    #[track_caller]
    pub fn at(&self, kind: &str) -> usize {
        let found = self.types.iter().position(|(name, _)| name == kind);
        found.unwrap_or_else(|| panic!("no {kind}: {:?}", self.types))
    }

    /// Returns the sum of a type over the samples that `fits` says.
    #[track_caller]
    pub fn sum(&self, kind: &str, fits: impl Fn(&[usize]) -> bool) -> i64 {
        let at = self.at(kind);
        let samples = self.samples.iter().filter(|(stack, _)| fits(stack));
        samples.map(|(_, values)| values[at]).sum()
    }

    /// Checks that the parts add up to the resident memory that the profile tells, and returns that.
    #[track_caller]
    pub fn closed(&self) -> i64 {
        let parts = ["inuse", "slop", "pinned", "retained", "mapped"];
        let sum = |kind: &str| self.sum(&format!("{kind}_space"), |_| true);
        let said = self
            .comments
            .iter()
            .find_map(|text| text.split("resident memory, ").nth(1));
        let rss = said.and_then(|text| text.split(' ').next()?.parse().ok());
        assert_eq!(Some(parts.map(sum).iter().sum::<i64>()), rss, "{self:?}");
        rss.expect("compared")
    }

    /// Reports whether a stack passes through so many bytes of a file, from an offset on.
    pub fn passes(&self, stack: &[usize], file: &str, offset: u64, bytes: u64) -> bool {
        stack.iter().any(|place| {
            let location = &self.locations[*place];
            let Some(map) = location.mapping.checked_sub(1).map(|at| &self.mappings[at]) else {
                return false;
            };
            assert!((map.start..map.limit).contains(&location.address));
            let at = location.address - map.start + map.offset;
            map.file.ends_with(file) && at.wrapping_sub(offset) < bytes
        })
    }
}
