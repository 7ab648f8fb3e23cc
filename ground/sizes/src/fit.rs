//! Fit profiles (`.fit`): what traces of a program taught the allocator, for the program's next start.
//!
//! ```text
//!   traces ─► skinflint fit ─► Profile ─encode─► app.fit ─parse─► FitView ─► the allocator at start
//!   64 bytes of header | earned classes | span lengths | program | build id | CRC-32
//! ```
//!
//! F1  `parse` accepts what `encode` writes and nothing else: each field is checked against its
//!     range, and every byte of the file is under the checksum.
//! F2  No input makes it panic, loop, allocate or read outside of the slice. A file is at most
//!     [`FILE_BYTES_MAX`] long.
//! F3  An accepted profile cannot harm: each earned class is a multiple of 16 from 272 to 32,752 that the
//!     base scheme lacks, each span length belongs to a class that exists and may have it (spans.S1).
//! F4  Each fault has a variant of its own, so that its text can say what to do.
//!
//! FIT.md beside this crate describes every byte. Not here: learning (`analysis`), opening
//! files (`cli`, `alloc`).

use core::fmt;

use crate::spans::{SMALL_MAX, SPAN_PAGES_MAX, is_base_class, is_span};

/// The first eight bytes: like those of a trace, they show damage by a text-mode transfer.
pub const MAGIC: [u8; 8] = *b"\x89SFP\r\n\x1a\n";
/// The version of the format. A reader accepts no other: a profile is cheap to write again.
pub const VERSION: u16 = 1;
/// The number of the base scheme, whose classes earned classes are added to: 16 to 256 by 16, then 8 per
/// doubling to 32 KiB. A profile for another one would earn classes that exist, or miss some that do not.
pub const BASE_SCHEME: u16 = 1;
/// The most earned classes: with the base scheme's 72, a class number still fits a byte.
pub const EARNED_MAX: usize = 120;
/// The most span lengths, one for each class.
pub const SPANS_MAX: usize = 256;
/// The longest program name, in bytes.
pub const PROGRAM_BYTES_MAX: usize = 255;
/// The longest build id, in bytes.
pub const BUILD_ID_BYTES_MAX: usize = 64;
/// The most pages to be retained: 512 GiB, which is the most that the allocator can ever map.
pub const SPARE_PAGES_MAX: u32 = 1 << 27;
/// The smallest class that can be earned, in bytes: below it, every multiple of 16 is a class.
pub const EARNED_BYTES_MIN: u16 = 272;

/// The bytes before the lists.
const HEADER_BYTES: usize = 64;
/// The bytes of the checksum after the texts.
const CRC_BYTES: usize = 4;
/// The longest file, with all lists full, in bytes (F2).
pub const FILE_BYTES_MAX: usize = HEADER_BYTES
    + 2 * EARNED_MAX
    + 4 * SPANS_MAX
    + PROGRAM_BYTES_MAX
    + BUILD_ID_BYTES_MAX
    + CRC_BYTES;

/// Flag: a trace was cut, or had lost events; the program may have done more than was seen.
pub const FLAG_INCOMPLETE: u8 = 1;
/// Flag: the traces were too short for the figures to mean much.
pub const FLAG_SHORT: u8 = 2;

/// The content of a profile that is to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Profile<'a> {
    /// Earned classes in bytes, rising.
    pub earned: &'a [u16],
    /// A class in bytes, and the length of its spans in pages; rising by class.
    pub spans: &'a [(u16, u8)],
    /// The dirty pages worth keeping, since they are soon wanted again.
    pub spare_pages: u32,
    /// The file name of the program.
    pub program: &'a str,
    /// Its build id, raw; empty if it has none.
    pub build_id: &'a [u8],
    /// `FLAG_…`
    pub flags: u8,
    /// The number of traces that the profile was made from.
    pub traces: u32,
    /// The number of events in these traces.
    pub events: u64,
    /// When the first of them was begun, nanoseconds since 1970.
    pub first_unix_ns: u64,
    /// When the last of them was begun, nanoseconds since 1970.
    pub last_unix_ns: u64,
}

/// Why bytes are not accepted as a profile. Each variant says what is wrong (F4); the remedy is nearly
/// always to run `skinflint fit` again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FitError {
    /// There are no bytes at all.
    Empty,
    /// The bytes are something else than a profile.
    NotAProfile,
    /// The profile is of another version.
    Version(u16),
    /// The profile is for another base scheme.
    Scheme(u16),
    /// The profile is shorter than it says, or than any profile is.
    Cut {
        /// The bytes that it has.
        bytes: usize,
        /// The bytes that it should have.
        needed: usize,
    },
    /// The profile is longer than it says.
    TooLong {
        /// The bytes that it has.
        bytes: usize,
        /// The bytes that it should have.
        needed: usize,
    },
    /// The length that it says does not follow from its lists.
    Length {
        /// The length that it says.
        said: usize,
        /// The length that its lists need.
        needed: usize,
    },
    /// The checksum is wrong: a byte has changed.
    Checksum,
    /// More earned classes than [`EARNED_MAX`].
    EarnedCount(usize),
    /// An earned class that is not a multiple of 16.
    EarnedStep(u16),
    /// An earned class below 272 or above 32 KiB.
    EarnedRange(u16),
    /// An earned class that the base scheme has already.
    EarnedIsBase(u16),
    /// An earned class not above the one before it.
    EarnedOrder(u16),
    /// More span lengths than [`SPANS_MAX`].
    SpanCount(usize),
    /// A span length for a size that is not a class.
    SpanClass(u16),
    /// A span length out of range, too short for a block of its class, or for too many.
    SpanPages {
        /// The class.
        class: u16,
        /// The length of its spans, in pages.
        pages: u8,
    },
    /// A span length whose class is not above the one before it.
    SpanOrder(u16),
    /// More retained pages than the allocator can map.
    Spare(u32),
    /// A program name that is too long, or not UTF-8.
    Program,
    /// A build id that is too long.
    BuildId(usize),
    /// A flag that this version does not know, or a reserved byte that is not 0.
    Reserved,
    /// The buffer is smaller than [`FILE_BYTES_MAX`] (only when writing).
    Buffer,
}

impl FitError {
    /// Returns the text without figures, for code that cannot format.
    pub fn reason(&self) -> &'static str {
        match self {
            FitError::Empty => "it is empty",
            FitError::NotAProfile => "it is no fit profile",
            FitError::Version(_) => "it has another format version",
            FitError::Scheme(_) => "it was made for other base classes",
            FitError::Cut { .. } => "it is cut short",
            FitError::TooLong { .. } => "it is longer than it says",
            FitError::Length { .. } => "its length does not follow from its lists",
            FitError::Checksum => "it is damaged: the checksum is wrong",
            FitError::EarnedCount(_) => "it has too many earned classes",
            FitError::EarnedStep(_) => "an earned class is no multiple of 16",
            FitError::EarnedRange(_) => "an earned class is out of range",
            FitError::EarnedIsBase(_) => "an earned class is a base class",
            FitError::EarnedOrder(_) => "its earned classes do not rise",
            FitError::SpanCount(_) => "it has too many span lengths",
            FitError::SpanClass(_) => "a span length is for no class",
            FitError::SpanPages { .. } => "a span length is out of range",
            FitError::SpanOrder(_) => "the classes of its span lengths do not rise",
            FitError::Spare(_) => "it retains more pages than there can be",
            FitError::Program => "its program name is too long or no text",
            FitError::BuildId(_) => "its build id is too long",
            FitError::Reserved => "it uses what this version does not have",
            FitError::Buffer => "the buffer is too small",
        }
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())?;
        match self {
            FitError::Version(found) => write!(f, " ({found}; this is {VERSION})"),
            FitError::Scheme(found) => write!(f, " ({found}; these are {BASE_SCHEME})"),
            FitError::Cut { bytes, needed }
            | FitError::TooLong { bytes, needed }
            | FitError::Length {
                said: bytes,
                needed,
            } => {
                write!(f, " ({bytes} bytes, {needed} expected)")
            }
            FitError::EarnedCount(count) => write!(f, " ({count}, at most {EARNED_MAX})"),
            FitError::SpanCount(count) => write!(f, " ({count}, at most {SPANS_MAX})"),
            FitError::EarnedStep(class)
            | FitError::EarnedRange(class)
            | FitError::EarnedIsBase(class)
            | FitError::EarnedOrder(class)
            | FitError::SpanClass(class)
            | FitError::SpanOrder(class) => write!(f, " ({class})"),
            FitError::SpanPages { class, pages } => write!(f, " ({pages} pages for {class})"),
            FitError::Spare(pages) => write!(f, " ({pages})"),
            FitError::BuildId(bytes) => write!(f, " ({bytes} bytes)"),
            _ => Ok(()),
        }
    }
}

impl core::error::Error for FitError {}

/// Returns the CRC-32 (IEEE), computed a bit at a time: a profile is read once, and a table would take 1 KiB.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// Writes a profile into `out`, which must have room for [`FILE_BYTES_MAX`]. Returns the bytes written.
///
/// # Errors
/// If the buffer is too small, or `parse` would refuse the profile (F1).
pub fn encode(profile: &Profile<'_>, out: &mut [u8]) -> Result<usize, FitError> {
    let Some(out) = out.get_mut(..FILE_BYTES_MAX) else {
        return Err(FitError::Buffer);
    };
    if profile.earned.len() > EARNED_MAX {
        return Err(FitError::EarnedCount(profile.earned.len()));
    }
    if profile.spans.len() > SPANS_MAX {
        return Err(FitError::SpanCount(profile.spans.len()));
    }
    if profile.program.len() > PROGRAM_BYTES_MAX {
        return Err(FitError::Program);
    }
    if profile.build_id.len() > BUILD_ID_BYTES_MAX {
        return Err(FitError::BuildId(profile.build_id.len()));
    }
    let mut pen = Pen { out, at: 0 };
    pen.put(&MAGIC);
    pen.put(&VERSION.to_le_bytes());
    pen.put(&BASE_SCHEME.to_le_bytes());
    pen.put(&[0; 4]); // The length, known at the end.
    pen.put(&(profile.earned.len() as u16).to_le_bytes());
    pen.put(&(profile.spans.len() as u16).to_le_bytes());
    pen.put(&[profile.program.len() as u8, profile.build_id.len() as u8]);
    pen.put(&[profile.flags, 0]);
    pen.put(&profile.spare_pages.to_le_bytes());
    pen.put(&profile.traces.to_le_bytes());
    pen.put(&profile.events.to_le_bytes());
    pen.put(&profile.first_unix_ns.to_le_bytes());
    pen.put(&profile.last_unix_ns.to_le_bytes());
    pen.put(&[0; 8]);
    profile
        .earned
        .iter()
        .for_each(|class| pen.put(&class.to_le_bytes()));
    for (class, pages) in profile.spans {
        pen.put(&class.to_le_bytes());
        pen.put(&[*pages, 0]);
    }
    pen.put(profile.program.as_bytes());
    pen.put(profile.build_id);
    let len = pen.at + CRC_BYTES;
    out[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = crc32(&out[..len - CRC_BYTES]);
    out[len - CRC_BYTES..len].copy_from_slice(&crc.to_le_bytes());
    parse(&out[..len])?;
    Ok(len)
}

/// Writes from left to right into a buffer that is known to be long enough.
struct Pen<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Pen<'_> {
    fn put(&mut self, bytes: &[u8]) {
        if let Some(there) = self.out.get_mut(self.at..self.at + bytes.len()) {
            there.copy_from_slice(bytes);
        }
        self.at += bytes.len();
    }
}

/// A profile that was checked (F3). Borrows the bytes and copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct FitView<'a> {
    header: &'a [u8],
    earned: &'a [u8],
    spans: &'a [u8],
    program: &'a str,
    build_id: &'a [u8],
}

/// Reads a profile; all of it is checked before any of it is believed (F1).
///
/// # Errors
/// The first fault found.
pub fn parse(bytes: &[u8]) -> Result<FitView<'_>, FitError> {
    check_whole(bytes)?;
    let (header, rest) = split(bytes, HEADER_BYTES)?;
    let (earned_count, span_count) = (
        usize::from(u16_at(header, 16)),
        usize::from(u16_at(header, 18)),
    );
    let (program_len, build_id_len) = (usize::from(header[20]), usize::from(header[21]));
    if earned_count > EARNED_MAX {
        return Err(FitError::EarnedCount(earned_count));
    }
    if span_count > SPANS_MAX {
        return Err(FitError::SpanCount(span_count));
    }
    if build_id_len > BUILD_ID_BYTES_MAX {
        return Err(FitError::BuildId(build_id_len));
    }
    let lists = 2 * earned_count + 4 * span_count + program_len + build_id_len;
    let needed = HEADER_BYTES + lists + CRC_BYTES;
    if needed != bytes.len() {
        return Err(FitError::Length {
            said: bytes.len(),
            needed,
        });
    }
    let (earned, rest) = split(rest, 2 * earned_count)?;
    let (spans, rest) = split(rest, 4 * span_count)?;
    let (program, rest) = split(rest, program_len)?;
    let (build_id, _crc) = split(rest, build_id_len)?;
    let program = core::str::from_utf8(program).map_err(|_| FitError::Program)?;
    let view = FitView {
        header,
        earned,
        spans,
        program,
        build_id,
    };
    view.check()?;
    Ok(view)
}

/// Checks what can be checked before any field is believed: the magic bytes, the length, and the checksum.
fn check_whole(bytes: &[u8]) -> Result<(), FitError> {
    let len = bytes.len();
    let cut = |needed| FitError::Cut { bytes: len, needed };
    if len == 0 {
        return Err(FitError::Empty);
    }
    let start = MAGIC.len().min(len);
    if bytes[..start] != MAGIC[..start] {
        return Err(FitError::NotAProfile);
    }
    // Up to here all versions are the same.
    if len < 16 {
        return Err(cut(HEADER_BYTES + CRC_BYTES));
    }
    match (u16_at(bytes, 8), u16_at(bytes, 10)) {
        (VERSION, BASE_SCHEME) => {}
        (VERSION, scheme) => return Err(FitError::Scheme(scheme)),
        (version, _) => return Err(FitError::Version(version)),
    }
    let said = u32_at(bytes, 12) as usize;
    if len < said.max(HEADER_BYTES + CRC_BYTES) {
        return Err(cut(said.max(HEADER_BYTES + CRC_BYTES)));
    }
    if len > said || len > FILE_BYTES_MAX {
        return Err(FitError::TooLong {
            bytes: len,
            needed: said.min(FILE_BYTES_MAX),
        });
    }
    if crc32(&bytes[..len - CRC_BYTES]) != u32_at(bytes, len - CRC_BYTES) {
        return Err(FitError::Checksum);
    }
    Ok(())
}

fn split(bytes: &[u8], at: usize) -> Result<(&[u8], &[u8]), FitError> {
    bytes.split_at_checked(at).ok_or(FitError::Cut {
        bytes: bytes.len(),
        needed: at,
    })
}

/// Returns `N` bytes from `at`; zeros beyond the end, which `parse` rules out.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

impl<'a> FitView<'a> {
    /// Returns the earned classes in bytes, rising.
    pub fn earned(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.earned.chunks_exact(2).map(|two| u16_at(two, 0))
    }

    /// Returns each class in bytes with the length of its spans in pages, rising by class.
    pub fn spans(&self) -> impl Iterator<Item = (u16, u8)> + use<'a> {
        self.spans
            .chunks_exact(4)
            .map(|four| (u16_at(four, 0), four[2]))
    }

    /// Returns the dirty pages worth keeping.
    pub fn spare_pages(&self) -> u32 {
        u32_at(self.header, 24)
    }

    /// Returns the file name of the program; empty if it was not known.
    pub fn program(&self) -> &'a str {
        self.program
    }

    /// Returns the build id of the program; empty if it has none.
    pub fn build_id(&self) -> &'a [u8] {
        self.build_id
    }

    /// Returns the flags (`FLAG_…`).
    pub fn flags(&self) -> u8 {
        self.header[22]
    }

    /// Returns the number of traces that the profile was made from.
    pub fn traces(&self) -> u32 {
        u32_at(self.header, 28)
    }

    /// Returns the number of events in these traces.
    pub fn events(&self) -> u64 {
        u64_at(self.header, 32)
    }

    /// Returns when the first of them was begun, nanoseconds since 1970.
    pub fn first_unix_ns(&self) -> u64 {
        u64_at(self.header, 40)
    }

    /// Returns when the last of them was begun, nanoseconds since 1970.
    pub fn last_unix_ns(&self) -> u64 {
        u64_at(self.header, 48)
    }

    /// Checks the fields and lists (F3).
    fn check(&self) -> Result<(), FitError> {
        if self.flags() & !(FLAG_INCOMPLETE | FLAG_SHORT) != 0
            || self.header[23] != 0
            || u64_at(self.header, 56) != 0
        {
            return Err(FitError::Reserved);
        }
        if self.spare_pages() > SPARE_PAGES_MAX {
            return Err(FitError::Spare(self.spare_pages()));
        }
        let mut last = 0;
        for class in self.earned() {
            if !class.is_multiple_of(16) {
                return Err(FitError::EarnedStep(class));
            }
            if class < EARNED_BYTES_MIN || u32::from(class) > SMALL_MAX {
                return Err(FitError::EarnedRange(class));
            }
            if is_base_class(u32::from(class)) {
                return Err(FitError::EarnedIsBase(class));
            }
            if class <= last {
                return Err(FitError::EarnedOrder(class));
            }
            last = class;
        }
        self.check_spans()
    }

    fn check_spans(&self) -> Result<(), FitError> {
        let mut last = 0;
        // Both lists rise, so they are walked side by side.
        let mut earned = self.earned().peekable();
        for (four, (class, pages)) in self.spans.chunks_exact(4).zip(self.spans()) {
            if class <= last {
                return Err(FitError::SpanOrder(class));
            }
            last = class;
            while earned.next_if(|one| *one < class).is_some() {}
            if earned.peek() != Some(&class) && !is_base_class(u32::from(class)) {
                return Err(FitError::SpanClass(class));
            }
            if u32::from(pages) > SPAN_PAGES_MAX || !is_span(u32::from(class), u32::from(pages)) {
                return Err(FitError::SpanPages { class, pages });
            }
            if four[3] != 0 {
                return Err(FitError::Reserved);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "fit_tests.rs"]
mod tests;
