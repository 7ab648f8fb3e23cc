//! The sampled heap profile that a process answered, read from its text.
//!
//! ```text
//!   heap profile: 4112: 12288000 [ 8103: 24190976] @ heapprofile
//!   # one sample in 16384 bytes; without a stack 0, without room 0, …      ─► rate, what is missing
//!   # 734 of 734 samples, variance 196608000000, row 18, pinned 81920 +- 31000
//!    4112: 12288000 [4112: 12288000] @ 0x55d0c0de1234 0x55d0c0de5678       ─► Row
//!   # block 18 3000 3072 262144                                            ─► Block
//!   MAPPED_LIBRARIES: …                                                    ─► the modules
//! ```
//!
//! H1  A text that is cut, or of another form, is no profile: it has to end in the mappings, and its rows have to add up to
//!     its first line. So a process that ends while it answers is never shown with a part of its heap.
//!
//! Written by `alloc::profile`. Not here: addresses as places in files (`modules`).

use std::collections::HashMap;

use skinflint_procfs::maps::MapLine;

/// More than any figure of a process: sums of such figures are sums.
const MOST: u64 = 1 << 56;

/// Bytes and blocks of a stack.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Blocks and bytes in use, then of all time.
    pub figures: [u64; 4],
    /// Variance of the bytes in use.
    pub variance: u64,
    /// Free bytes that its blocks keep resident.
    pub pinned: u64,
    /// The number that blocks name it by.
    pub number: u64,
    /// Return addresses, the innermost first; none: not known.
    pub frames: Vec<u64>,
}

/// A sampled block in use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Block {
    /// The place of its row.
    pub row: usize,
    /// Bytes that were requested.
    pub requested: u64,
    /// Bytes that it has.
    pub usable: u64,
    /// Requested bytes that it stands for.
    pub weight: u64,
}

/// A profile.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Heap {
    /// Requested bytes between two samples, on average.
    pub rate: u64,
    /// What is missing: samples without a stack, without room, lost in signal handlers.
    pub missing: [u64; 3],
    /// The stacks.
    pub rows: Vec<Row>,
    /// The sampled blocks in use.
    pub blocks: Vec<Block>,
    /// Mappings that can be executed.
    pub code: Vec<MapLine>,
}

/// Returns the numbers in a text, in order.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|word| word.parse().ok())
}

/// Returns the first so many of them.
fn few<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut found = numbers(text);
    let mut few = [0; N];
    for to in &mut few {
        *to = found.next()?;
    }
    Some(few)
}

impl Heap {
    /// Reads a text; `None`: it is no profile, or not a whole one (H1).
    pub fn read(text: &str) -> Option<Heap> {
        let (rows, maps) = text.split_once("\nMAPPED_LIBRARIES:\n")?;
        let mut lines = rows.lines();
        let first = lines.next()?.strip_prefix("heap profile: ")?;
        let total: [u64; 4] = few(first)?;
        let mut heap = Heap::default();
        let mut places = HashMap::new();
        let mut said = [0; 3];
        for line in lines {
            if let Some(rest) = line.strip_prefix("# block ") {
                let [row, requested, usable, weight] = few(rest)?;
                heap.blocks.push(Block {
                    row: *places.get(&row)?,
                    requested,
                    usable,
                    weight,
                });
            } else if let Some(rest) = line.strip_prefix("# one sample in ") {
                let [rate, missing @ ..] = few::<4>(rest)?;
                (heap.rate, heap.missing) = (rate, missing);
            } else if let Some((_, rest)) = line.split_once(" samples, variance ") {
                let mut found = numbers(rest);
                // An older library says less.
                said = [
                    found.next()?,
                    found.next().unwrap_or(0),
                    found.next().unwrap_or(0),
                ];
            } else if let Some((figures, frames)) = line.split_once("] @ ") {
                let frames = frames.split(' ').map(|frame| {
                    let digits = frame.strip_prefix("0x")?;
                    u64::from_str_radix(digits, 16).ok()
                });
                let mut frames = frames.collect::<Option<Vec<u64>>>()?;
                frames.retain(|frame| *frame != 0);
                let [variance, number, pinned] = said;
                places.insert(number, heap.rows.len());
                heap.rows.push(Row {
                    figures: few(figures)?,
                    variance,
                    pinned,
                    number,
                    frames,
                });
            }
        }
        let code = maps.lines().filter_map(MapLine::parse);
        heap.code = code.filter(|map| map.perms.contains('x')).collect();
        // The mappings end in a whole line, and code is always among them.
        let is_sane = total.iter().all(|figure| *figure < MOST);
        (is_sane && heap.total() == total && maps.ends_with('\n') && !heap.code.is_empty())
            .then_some(heap)
    }

    /// Returns blocks and bytes of all stacks, in use and of all time.
    pub fn total(&self) -> [u64; 4] {
        let mut total = [0u64; 4];
        for row in &self.rows {
            for (sum, of) in total.iter_mut().zip(row.figures) {
                *sum = sum.saturating_add(of);
            }
        }
        total
    }

    /// Returns the values of each stack in the order of Go's heap profile; with an earlier profile of the same process, what
    /// came since.
    pub fn values(&self, before: Option<&Heap>) -> Vec<Vec<i64>> {
        let earlier: HashMap<&[u64], [u64; 4]> = before.map_or_else(HashMap::new, |before| {
            let rows = before.rows.iter();
            rows.map(|row| (&*row.frames, row.figures)).collect()
        });
        let values = self.rows.iter().map(|row| {
            let then = earlier.get(&*row.frames).copied().unwrap_or_default();
            let since = |at: usize| row.figures[at] as i64 - then[at] as i64;
            vec![since(2), since(3), since(0), since(1)]
        });
        values.collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TEXT: &str = "\
heap profile: 5: 700 [ 9: 1300] @ heapprofile
# skinflint heap profile 1, process 42, in use now: 3 samples, 700 bytes +- 300 (19 of 20 times)
# one sample in 16384 bytes; without a stack 1, without room 2, lost in signal handlers 3
# 2 of 3 samples, variance 90, row 18, pinned 300 +- 200
 3: 600 [6: 1200] @ 0x1010 0x2020
# 1 of 1 samples, variance 10, row 0, pinned 60 +- 60
 2: 100 [3: 100] @ 0x0
# block 18 200 224 400
# block 18 100 112 200
# block 0 50 64 100

MAPPED_LIBRARIES:
1000-3000 r-xp 00000000 fe:00 77 /srv/app
3000-4000 rw-p 00002000 fe:00 77 /srv/app
";

    #[test]
    fn a_text_is_read() {
        let heap = Heap::read(TEXT).expect("a profile");
        assert_eq!((heap.rate, heap.missing), (16384, [1, 2, 3]));
        assert_eq!(heap.total(), [5, 700, 9, 1300]);
        assert_eq!(heap.rows[0].frames, [0x1010, 0x2020]);
        assert_eq!(
            (heap.rows[0].variance, &*heap.rows[1].frames),
            (90, &[][..])
        );
        assert_eq!((heap.rows[0].pinned, heap.rows[1].pinned), (300, 60));
        let block = Block {
            row: 1,
            requested: 50,
            usable: 64,
            weight: 100,
        };
        assert_eq!((heap.blocks.len(), heap.blocks[2]), (3, block));
        assert_eq!(heap.code.len(), 1);
    }

    #[test]
    fn nothing_is_read_of_what_was_cut() {
        for end in 0..TEXT.len() {
            // The last mapping, which holds no code, may be missing: nothing is said by it.
            let whole =
                end + 1 > TEXT.find("3000-4000").expect("there") && TEXT[..end].ends_with('\n');
            assert_eq!(Heap::read(&TEXT[..end]).is_some(), whole, "cut at {end}");
        }
        let other = TEXT.replace("3: 600", "3: 601");
        assert_eq!(Heap::read(&other), None, "rows do not add up");
    }

    #[test]
    fn what_came_since_is_the_difference_by_stack() {
        let before = Heap::read(TEXT).expect("a profile");
        let mut after = before.clone();
        after.rows[0].figures = [1, 200, 8, 1600];
        after.rows.push(Row {
            frames: vec![0x1014],
            figures: [1, 7, 1, 7],
            ..before.rows[1].clone()
        });
        let since = [[2, 400, -2, -400], [0, 0, 0, 0], [1, 7, 1, 7]];
        assert_eq!(after.values(Some(&before)), since);
        assert_eq!(after.values(None)[0], [8, 1600, 1, 200]);
    }
}
