//! The segments of a bounded recording: files of which each is complete by itself, read as one.
//!
//! ```text
//!   app.sft.7   [ what lived │ events ][end]   app.sft.8   [ what lived │ events ][end]   app.sft   [ what lived │ events …
//!                     read                                       skipped                              skipped
//! ```
//!
//! S1  `NAME` is the newest segment, `NAME.N` is number N, an older one; what follows is one more than what it follows.
//! S2  Segments are joined only if the older ones are whole: ended, no block damaged but in its events, of one recording, and
//!     without a gap between. Damaged events cost their block, and are told, as in any trace.
//!     Else the trace begins with the first segment after the gap, which says what lived.
//! S3  An older segment that is opened by its own name is read by itself.
//!
//! Not here: when a segment begins, and which are dropped (the collector).

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::block::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, Header};
use crate::info::ProcessInfo;
use crate::read::{OpenError, Scan, Trace};
use crate::source::Source;

/// The most segments that are read as one.
const MOST_SEGMENTS: usize = 1000;

/// Returns the name of an older segment of the recording whose newest one is `newest`.
pub fn segment_path(newest: &Path, number: u64) -> PathBuf {
    let mut name = newest.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Returns the older segments that lie beside the newest one of a recording, the oldest first, as far as the names go.
pub fn older_segments(newest: &Path) -> Vec<PathBuf> {
    let Some(process) = process_of(newest) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let mut number = process.segment.map_or(0, |segment| segment.number);
    while number > 0 && all.len() < MOST_SEGMENTS {
        number -= 1;
        let path = segment_path(newest, number);
        match process_of(&path) {
            Some(older) if older.uid == process.uid => all.push(path),
            _ => break,
        }
    }
    all.reverse();
    all
}

/// Reads who was recorded, and nothing else.
fn process_of(path: &Path) -> Option<ProcessInfo> {
    let (mut scan, start) = Trace::begin(path).ok()?;
    let mut head = [0; BLOCK_HEADER_BYTES];
    let got = scan.read_at(&mut head, start);
    let header = Header::from_bytes(&head[..got])?;
    let end = start + BLOCK_HEADER_BYTES as u64 + u64::from(header.payload_len);
    scan.bytes = scan.bytes.min(end);
    scan.run(start);
    Some(scan.trace.process)
}

/// Returns the trace with its older segments (S2); `None` if it stands alone.
pub(crate) fn joined(path: &Path, newest: &Trace) -> Option<Trace> {
    newest.process.segment.as_ref().filter(|one| one.follows)?;
    let mut files = older_segments(path);
    files.push(path.to_owned());
    while files.len() > 1 {
        match together(&files) {
            Ok(trace) => return Some(trace),
            Err(bad) => drop(files.drain(..=bad)),
        }
    }
    None
}

/// Reads segments as one trace; the error is the last one that cannot be a part of it.
fn together(files: &[PathBuf]) -> Result<Trace, usize> {
    let (mut all, mut ends, mut before) = (Vec::new(), Vec::new(), 0);
    for (index, path) in files.iter().enumerate() {
        let file = File::open(path).map_err(|_| index)?;
        let bytes = file.metadata().map_err(|_| index)?.len();
        all.push((before, file));
        before += bytes;
        ends.push(before);
    }
    let (mut scan, mut start) =
        Trace::read(Source::Files(all), before, &files[0]).map_err(|_| 0usize)?;
    let mut earlier = 0;
    for (index, end) in ends.iter().enumerate() {
        let number = scan.number();
        scan.begin_segment(index > 0, *end);
        scan.run(start);
        if index > 0 && scan.next != number.map(|number| (number + 1, true)) {
            return Err(index - 1);
        }
        start = end + FILE_HEADER_BYTES as u64;
        if index + 1 == ends.len() {
            break;
        }
        let trace = &scan.trace;
        match &trace.ending {
            Some(ending) if trace.damage.is_empty() => earlier += ending.events,
            _ => return Err(index),
        }
        if index > 0 {
            earlier -= scan.repeated;
        }
    }
    let repeated = scan.repeated;
    let mut trace = scan.finish();
    if let Some(ending) = &mut trace.ending {
        ending.events = (ending.events + earlier).saturating_sub(repeated);
    }
    Ok(trace)
}

impl Trace {
    /// Opens a trace: reads all headers and everything that is not an event.
    ///
    /// Of a bounded recording the older segments beside it are read with it, as one (`segments.rs`).
    ///
    /// A file that has no ending, is cut, or is damaged opens all the same; [`Trace::damage`] says what is
    /// missing.
    ///
    /// # Errors
    /// If there is nothing to read: see [`OpenError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Trace, OpenError> {
        let path = path.as_ref();
        let (mut scan, start) = Trace::begin(path)?;
        scan.run(start);
        let trace = scan.finish();
        Ok(joined(path, &trace).unwrap_or(trace))
    }
}

impl Scan {
    /// Makes ready for the next file; with `is_next` it follows another one.
    fn begin_segment(&mut self, is_next: bool, end: u64) {
        self.bytes = end;
        self.is_next = is_next;
        if is_next {
            self.expected_sequence = 0;
            self.trace.ending = None;
            self.repeated = 0;
        }
    }

    /// Returns the number of the newest segment that was read.
    fn number(&self) -> Option<u64> {
        let first = self.trace.process.segment.as_ref();
        let first = first.map_or(0, |segment| segment.number);
        Some(self.next.map_or(first, |(number, _)| number))
    }
}
