//! Page-run requests of a program, and the format of the file that holds them.
//!
//! ```text
//!   "runs 1\n" · the command \n · count \n · requests · zstd over all of it
//!   request:  take    pages·4            give  (runs taken so far - run)·4 + 1
//!             resize  (… - run)·4 + 2, pages                     numbers of 7 bits a byte
//! ```
//!
//! Z1  Runs are numbered in the order in which they are taken, from 0.
//! Z2  A file in another format is an error that says where it stops being one of these.
//!
//! Not here: the pools that answer them.
#![allow(dead_code)] // The example writes, the bench and the tests read.

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Takes the next run.
    Take {
        /// Its length in pages.
        pages: u32,
    },
    /// Gives a run back, which is not named again.
    Give {
        /// The number of the run (Z1).
        run: u32,
    },
    /// Gives a run another length, in place or elsewhere.
    Resize {
        /// The number of the run (Z1).
        run: u32,
        /// Its new length in pages.
        pages: u32,
    },
}

const HEAD: &str = "runs 1";

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Returns the file's content before compression.
pub fn encode(command: &str, requests: &[Request]) -> Vec<u8> {
    let command = command.replace('\n', " ");
    let mut bytes = format!("{HEAD}\n{command}\n{}\n", requests.len()).into_bytes();
    let mut taken = 0u64;
    for request in requests {
        match *request {
            Request::Take { pages } => {
                put(&mut bytes, u64::from(pages) << 2);
                taken += 1;
            }
            Request::Give { run } => put(&mut bytes, (taken - u64::from(run)) << 2 | 1),
            Request::Resize { run, pages } => {
                put(&mut bytes, (taken - u64::from(run)) << 2 | 2);
                put(&mut bytes, u64::from(pages));
            }
        }
    }
    bytes
}

/// Reads a number; returns it and the bytes after it.
fn get(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (index, byte) in bytes.iter().enumerate().take(9) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// Reads the command and the requests.
///
/// # Errors
/// A text that says what is wrong (Z2).
pub fn decode(bytes: &[u8]) -> Result<(String, Vec<Request>), String> {
    let mut lines = bytes.splitn(4, |byte| *byte == b'\n');
    let mut line = || {
        lines
            .next()
            .map(|line| String::from_utf8_lossy(line).into_owned())
    };
    if line().as_deref() != Some(HEAD) {
        return Err(format!("does not begin with \"{HEAD}\""));
    }
    let command = line().ok_or("ends before the command")?;
    let count: usize = line()
        .and_then(|line| line.parse().ok())
        .ok_or("no count of requests")?;
    let mut rest = lines.next().ok_or("ends before the requests")?;
    let (mut requests, mut taken) = (Vec::new(), 0u64);
    for index in 0..count {
        let cut = || format!("ends at request {index} of {count}");
        let (number, after) = get(rest).ok_or_else(cut)?;
        rest = after;
        let run = || u32::try_from(taken.checked_sub(number >> 2)?).ok();
        let wrong = || format!("request {index} names a run that was not taken");
        requests.push(match number & 3 {
            0 => {
                taken += 1;
                Request::Take {
                    pages: (number >> 2) as u32,
                }
            }
            1 => Request::Give {
                run: run().ok_or_else(wrong)?,
            },
            2 => {
                let (pages, after) = get(rest).ok_or_else(cut)?;
                rest = after;
                Request::Resize {
                    run: run().ok_or_else(wrong)?,
                    pages: pages as u32,
                }
            }
            _ => return Err(format!("request {index} is of no known kind")),
        });
    }
    Ok((command, requests))
}

/// A program's requests.
pub struct Requests {
    /// The file's name without its ending.
    pub name: String,
    /// The command that was recorded.
    pub command: String,
    /// The requests, in their order.
    pub requests: Vec<Request>,
    /// The number of runs that they take.
    pub runs: usize,
}

/// Reads all files of the crate's `traces`.
///
/// # Errors
/// The file, and what is wrong with it.
pub fn all() -> Result<Vec<Requests>, String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/traces");
    let files = std::fs::read_dir(folder).map_err(|error| format!("{folder}: {error}"))?;
    let mut found = Vec::new();
    for file in files {
        let path = file.map_err(|error| format!("{folder}: {error}"))?.path();
        if path.extension().is_none_or(|ending| ending != "runs") {
            continue;
        }
        let wrong = |what: String| format!("{}: {what}", path.display());
        let packed = std::fs::read(&path).map_err(|error| wrong(error.to_string()))?;
        let bytes =
            zstd::decode_all(packed.as_slice()).map_err(|error| wrong(error.to_string()))?;
        let (command, requests) = decode(&bytes).map_err(wrong)?;
        let runs = requests
            .iter()
            .filter(|r| matches!(r, Request::Take { .. }))
            .count();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        found.push(Requests {
            name,
            command,
            requests,
            runs,
        });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    if found.is_empty() {
        return Err(format!("{folder}: no file ends with .runs"));
    }
    Ok(found)
}
