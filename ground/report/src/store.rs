//! The lines of a measurement, in pages of their own.
//!
//! ```text
//!   lines ─► [ Line | Line | … ]      texts ─► [ path, description, process … ]      each one mapping that grows
//!             └─ offsets into texts
//! ```
//!
//! S1  No memory here comes from the allocator that is measured: ten thousand lines do not change `heap-allocated`.
//! S2  An offset and length of a [`Line`] lie within `texts` and hold the bytes of a `str`.
//! S3  If the system refuses memory, the caller is told, and everything stays as it was.
//! S4  The blocks of a line (`named`) follow those of the lines before it; a line without blocks has no record.
//!
//! Not here: what a line means (`entry`).

use crate::entry::{Entry, Kind, Units};
use crate::grown::Pages;
use crate::named::{Note, bytes_of, notes_of};

/// A part of `texts` (S2).
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Text {
    at: u32,
    bytes: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Line {
    amount: i64,
    process: Text,
    path: Text,
    description: Text,
    kind: Kind,
    units: Units,
    /// Padding, so that every byte of a line is written.
    padding: [u8; 6],
}

const LINE: usize = std::mem::size_of::<Line>();

/// The notes that a line has (S4).
#[derive(Clone, Copy)]
#[repr(C)]
struct Share {
    line: u32,
    from: u32,
    count: u32,
}

const SHARE: usize = std::mem::size_of::<Share>();

/// A place to go back to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    lines: usize,
    texts: usize,
    notes: usize,
    shares: usize,
}

impl Mark {
    /// Returns the number of lines before it.
    pub(crate) fn line(self) -> usize {
        self.lines / LINE
    }
}

/// The lines of a measurement, in the order in which they came.
pub struct Store {
    lines: Pages,
    texts: Pages,
    notes: Pages,
    shares: Pages,
    /// The process and description of the last line: most lines repeat them.
    process: Text,
    description: Text,
}

impl Default for Store {
    fn default() -> Store {
        Store::new()
    }
}

impl Store {
    /// Creates an empty store, which takes no memory.
    pub const fn new() -> Store {
        const NONE: Text = Text { at: 0, bytes: 0 };
        Store {
            lines: Pages::new(),
            texts: Pages::new(),
            notes: Pages::new(),
            shares: Pages::new(),
            process: NONE,
            description: NONE,
        }
    }

    /// Adds a line. `false`: there is no memory for it (S3). Cost: about 50 ns.
    #[must_use]
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        let mark = self.mark();
        let done = self.try_push(entry).is_some();
        if !done {
            self.cut(mark);
        }
        done
    }

    fn try_push(&mut self, entry: &Entry<'_>) -> Option<()> {
        let process = self.text_again(self.process, entry.process)?;
        let description = self.text_again(self.description, entry.description)?;
        let line = Line {
            amount: entry.amount,
            process,
            path: self.text(entry.path)?,
            description,
            kind: entry.kind,
            units: entry.units,
            padding: [0; 6],
        };
        // SAFETY: `Line` has no byte that is not written (its fields leave no gap), so it may be read as bytes.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const line).cast::<u8>(), LINE) };
        self.lines.push(bytes)?;
        self.process = process;
        self.description = description;
        Some(())
    }

    /// Sets the blocks that the last line has measured. `false`: there is no memory for them (S3).
    #[must_use]
    pub fn name_blocks(&mut self, notes: &[Note]) -> bool {
        let line = self.len().checked_sub(1);
        let (Some(line), false) = (line, notes.is_empty()) else {
            return true;
        };
        let used = self.notes.used;
        let Some(from) = self.notes.push(bytes_of(notes)) else {
            return false;
        };
        let share = Share {
            line: line as u32,
            from: from / size_of::<Note>() as u32,
            count: notes.len() as u32,
        };
        // SAFETY: three words without a gap.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const share).cast::<u8>(), SHARE) };
        let done = self.shares.push(bytes).is_some();
        if !done {
            self.notes.used = used;
        }
        done
    }

    /// Returns the blocks that a line has measured, if it was asked for them. Cost: a binary search.
    pub fn blocks(&self, line: usize) -> &[Note] {
        let bytes = self.shares.bytes();
        if bytes.is_empty() {
            return &[];
        }
        // SAFETY: a mapping begins at a page, and only whole shares are pushed to it; any three words are one.
        let shares: &[Share] =
            unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / SHARE) };
        let Ok(at) = shares.binary_search_by_key(&line, |share| share.line as usize) else {
            return &[];
        };
        let (from, count) = (shares[at].from as usize, shares[at].count as usize);
        notes_of(&self.notes).get(from..from + count).unwrap_or(&[])
    }

    fn text_again(&mut self, last: Text, text: &str) -> Option<Text> {
        match self.str(last) == text {
            true => Some(last),
            false => self.text(text),
        }
    }

    fn text(&mut self, text: &str) -> Option<Text> {
        let bytes = u32::try_from(text.len()).ok()?;
        let at = self.texts.push(text.as_bytes())?;
        Some(Text { at, bytes })
    }

    fn str(&self, text: Text) -> &str {
        let (at, bytes) = (text.at as usize, text.bytes as usize);
        let bytes = self.texts.bytes().get(at..at + bytes).unwrap_or(&[]);
        // SAFETY: S2.
        unsafe { std::str::from_utf8_unchecked(bytes) }
    }

    /// Returns the number of lines.
    pub fn len(&self) -> usize {
        self.lines.used / LINE
    }

    /// Returns whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes mapped for lines, texts, notes and shares.
    pub fn mapped_bytes(&self) -> usize {
        self.lines.capacity + self.texts.capacity + self.notes.capacity + self.shares.capacity
    }

    /// Returns a line by its number.
    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        let bytes = self
            .lines
            .bytes()
            .get(index.checked_mul(LINE)?..index.checked_add(1)?.checked_mul(LINE)?)?;
        // SAFETY: a whole line, written by `push` (`grown`, G1); alignment is not relied on.
        let line = unsafe { bytes.as_ptr().cast::<Line>().read_unaligned() };
        Some(Entry {
            process: self.str(line.process),
            path: self.str(line.path),
            kind: line.kind,
            units: line.units,
            amount: line.amount,
            description: self.str(line.description),
        })
    }

    /// Returns all lines.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// Returns all lines, with the blocks that each has measured.
    pub fn iter_with_blocks(&self) -> impl Iterator<Item = (Entry<'_>, &[Note])> + Clone {
        (0..self.len()).filter_map(|index| Some((self.get(index)?, self.blocks(index))))
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            lines: self.lines.used,
            texts: self.texts.used,
            notes: self.notes.used,
            shares: self.shares.used,
        }
    }

    /// Forgets what came after a mark.
    pub(crate) fn cut(&mut self, mark: Mark) {
        self.lines.used = self.lines.used.min(mark.lines);
        self.texts.used = self.texts.used.min(mark.texts);
        self.notes.used = self.notes.used.min(mark.notes);
        self.shares.used = self.shares.used.min(mark.shares);
        // They may lie beyond the mark.
        (self.process, self.description) = (Text::default(), Text::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(path: &'a str, process: &'a str, amount: i64) -> Entry<'a> {
        Entry {
            process,
            path,
            kind: Kind::Heap,
            units: Units::Bytes,
            amount,
            description: "Ä sentence.",
        }
    }

    #[test]
    fn what_goes_in_comes_out_also_across_growth() {
        let mut store = Store::new();
        assert_eq!((store.len(), store.mapped_bytes()), (0, 0));
        let path = |n: i64| format!("explicit/{}/{n}", "x".repeat((n % 50) as usize));
        for n in 0..20_000 {
            let process = if n % 3 == 0 { "a (pid 1)" } else { "" };
            assert!(store.push(&line(&path(n), process, n)));
        }
        assert_eq!(store.len(), 20_000);
        for (n, entry) in store.iter().enumerate() {
            let n = n as i64;
            let process = if n % 3 == 0 { "a (pid 1)" } else { "" };
            assert_eq!(entry, line(&path(n), process, n));
        }
        assert_eq!(store.get(20_000), None);
        assert_eq!(store.get(usize::MAX), None);
    }

    #[test]
    fn blocks_are_those_of_their_line() {
        let mut store = Store::new();
        let note = |n: u64| Note::block(n * 16, n);
        assert!(store.name_blocks(&[note(9)]), "no line, no matter");
        for n in 0..1000u64 {
            assert!(store.push(&line("a", "", 1)));
            let notes: Vec<Note> = (0..n % 5).map(|k| note(n * 5 + k)).collect();
            assert!(store.name_blocks(&notes));
        }
        for n in 0..1000u64 {
            let wanted: Vec<Note> = (0..n % 5).map(|k| note(n * 5 + k)).collect();
            assert_eq!(store.blocks(n as usize), wanted);
        }
        assert!(store.blocks(1000).is_empty());
        let mark = store.mark();
        assert!(store.push(&line("b", "", 2)) && store.name_blocks(&[note(1)]));
        store.cut(mark);
        assert!(store.push(&line("c", "", 2)));
        assert!(store.blocks(1000).is_empty());
        assert_eq!(store.blocks(999).len(), 4);
    }

    #[test]
    fn cutting_back_forgets_and_confuses_nothing() {
        let mut store = Store::new();
        assert!(store.push(&line("a", "", 1)));
        let mark = store.mark();
        assert!(store.push(&line("b", "other", 2)));
        store.cut(mark);
        assert!(store.push(&line("c", "third", 3)));
        let all: Vec<Entry<'_>> = store.iter().collect();
        assert_eq!(all, [line("a", "", 1), line("c", "third", 3)]);
    }
}
