//! Category tables: the division of free blocks into classes.
//!
//! ```text
//!   min[0] = 24   min[1] = 32   …   min[last]          class i holds [min[i], min[i+1]); the last one is open
//! ```
//!
//! T1  `class(bytes)` is the largest class whose minimum is at most `bytes`; 0 for smaller sizes than all minima
//!     (requests, never blocks). Each table's quick form is tested against that for every size.
//! T2  Sizes are bytes, multiples of 8.
//!
//! Source: the tables of the study's strategies, as its author described them; the quick forms are arithmetic on
//! those numbers.
//!
//! Not here: the order in which classes are searched (`strategies`).

/// Bytes of a page, which a policy divides.
pub const PAGE_BYTES: u32 = 256 << 10;
/// Bytes of the smallest block that a list of the study keeps.
pub const MIN_BLOCK: u32 = 24;
/// Bytes of the smallest block that `tight-paged` keeps: a size, a link, and two page links.
pub const MIN_TIGHT: u32 = 16;

/// Lower bounds of classes, and a quick way to a class.
#[derive(Debug)]
pub struct Table {
    /// The name for reports.
    pub name: &'static str,
    /// Lower bounds in bytes.
    pub min: &'static [u32],
    /// Returns the class of a size (T1), quickly.
    pub class: fn(u32) -> usize,
}

impl Table {
    /// Returns the number of classes.
    pub const fn len(&self) -> usize {
        self.min.len()
    }

    /// Reports whether there is no class, which never happens.
    pub const fn is_empty(&self) -> bool {
        self.min.is_empty()
    }

    /// Returns the last class, which is open.
    pub const fn last(&self) -> usize {
        self.min.len() - 1
    }

    /// Returns the class of a size (T1), slowly: tests compare the quick forms with it.
    pub fn class_slowly(&self, bytes: u32) -> usize {
        let above = self.min.iter().take_while(|min| **min <= bytes).count();
        above.saturating_sub(1)
    }
}

/// Returns a series of bounds: `first`, then each `step` more, `count` of them.
const fn steps<const N: usize>(
    mut out: [u32; N],
    at: usize,
    first: u32,
    step: u32,
    count: usize,
) -> [u32; N] {
    let mut i = 0;
    while i < count {
        out[at + i] = first + step * i as u32;
        i += 1;
    }
    out
}

/// Six classes: up to 80, 248, 2040, 16376, 65528 bytes, and the rest.
pub static LEGACY: Table = Table {
    name: "legacy",
    min: &[24, 88, 256, 2048, 16_384, 65_536],
    class: |bytes| match bytes {
        0..=87 => 0,
        88..=255 => 1,
        256..=2047 => 2,
        2048..=16_383 => 3,
        16_384..=65_535 => 4,
        _ => 5,
    },
};

/// Legacy's classes, with one class for each size up to 248 and an upper bound of 2048 for the next.
pub static MORE_SMALLS: Table = Table {
    name: "more-smalls",
    min: &{
        let mut min = steps([0; 33], 0, 24, 8, 29);
        min[29] = 256;
        min[30] = 2056;
        min[31] = 16_384;
        min[32] = 65_536;
        min
    },
    class: |bytes| match bytes {
        0..=255 => (bytes as usize >> 3).saturating_sub(3),
        256..=2055 => 29,
        2056..=16_383 => 30,
        16_384..=65_535 => 31,
        _ => 32,
    },
};

/// Only classes that are worth a refill: blocks below 2040 bytes are waste.
pub static FAST: Table = Table {
    name: "fast",
    min: &[2040, 16_384, 65_536],
    class: |bytes| match bytes {
        0..=16_383 => 0,
        16_384..=65_535 => 1,
        _ => 2,
    },
};

/// 46 classes: each size up to 256, then two for each doubling.
pub static MANY: Table = Table {
    name: "many",
    min: &{
        let mut min = steps([0; 46], 0, 24, 8, 30);
        let mut i = 30;
        while i < 46 {
            // 384, 512, 768, 1024, …
            let doubling = 256 << ((i - 29) / 2);
            min[i] = if (i - 29) % 2 == 1 {
                doubling + doubling / 2
            } else {
                doubling
            };
            i += 1;
        }
        min
    },
    class: |bytes| {
        if bytes <= 256 {
            return (bytes as usize >> 3).saturating_sub(3);
        }
        if bytes >= 65_536 {
            return 45;
        }
        // 256 is class 29, and each doubling has two.
        let log = bytes.ilog2();
        29 + 2 * (log as usize - 8) + (bytes >> (log - 1) & 1) as usize
    },
};

/// 24 classes: every second one of `MANY`.
pub static HALF_MANY: Table = Table {
    name: "half-many",
    min: &{
        let mut min = steps([0; 24], 1, 32, 16, 15);
        min[0] = 24;
        let mut i = 16;
        while i < 24 {
            min[i] = 512 << (i - 16);
            i += 1;
        }
        min
    },
    class: |bytes| {
        if bytes <= 256 {
            return if bytes < 32 {
                0
            } else {
                (bytes as usize >> 4) - 1
            };
        }
        (bytes.ilog2() as usize + 7).min(23)
    },
};

/// 99 classes: each size to 256, steps of 256 to 2048, of 1024 to 65536.
pub static MORE_1K: Table = Table {
    name: "more-1k",
    min: &steps(
        steps(steps([0; 99], 0, 24, 8, 30), 30, 512, 256, 7),
        37,
        3072,
        1024,
        62,
    ),
    class: |bytes| match bytes {
        0..=255 => (bytes as usize >> 3).saturating_sub(3),
        256..=2047 => (bytes as usize >> 8) + 28,
        // The prototype of the study has 35 here, which is one class too high; its test of the size hides it.
        2048..=65_535 => (bytes as usize >> 10) + 34,
        _ => 98,
    },
};

/// 100 classes: each size to 256, steps of 256 to 2048, of 2048 to 131072.
pub static MORE_2K: Table = Table {
    name: "more-2k",
    min: &steps(
        steps(steps([0; 100], 0, 24, 8, 30), 30, 512, 256, 7),
        37,
        4096,
        2048,
        63,
    ),
    class: |bytes| match bytes {
        0..=255 => (bytes as usize >> 3).saturating_sub(3),
        256..=2047 => (bytes as usize >> 8) + 28,
        2048..=131_071 => (bytes as usize >> 11) + 35,
        _ => 99,
    },
};

/// The table with a single class.
pub static SINGLE: Table = Table {
    name: "single",
    min: &[24],
    class: |_| 0,
};

/// `MORE_1K` with one more class at the bottom, 16 bytes: with 4 bytes a descriptor a hundred classes cost what seven
/// cost with the larger ones.
pub static TIGHT: Table = Table {
    name: "tight",
    min: &{
        let mut min = steps(steps([0; 100], 1, 24, 8, 30), 31, 512, 256, 7);
        min = steps(min, 38, 3072, 1024, 62);
        min[0] = MIN_TIGHT;
        min
    },
    class: |bytes| match bytes {
        0..=255 => (bytes as usize >> 3).saturating_sub(2),
        256..=2047 => (bytes as usize >> 8) + 29,
        2048..=65_535 => (bytes as usize >> 10) + 35,
        _ => 99,
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_forms_are_the_slow_one_for_every_size() {
        let tables = [
            &LEGACY,
            &MORE_SMALLS,
            &FAST,
            &MANY,
            &HALF_MANY,
            &MORE_1K,
            &MORE_2K,
            &SINGLE,
            &TIGHT,
        ];
        for table in tables {
            assert!(table.min.is_sorted_by(|a, b| a < b), "{}", table.name);
            assert!(table.min.iter().all(|min| min % 8 == 0), "T2");
            for bytes in (8..=PAGE_BYTES).step_by(8) {
                let (quick, slow) = ((table.class)(bytes), table.class_slowly(bytes));
                assert_eq!(quick, slow, "{}: {bytes}", table.name);
            }
        }
    }

    #[test]
    fn tables_are_those_of_the_study() {
        let counts = [
            &LEGACY,
            &MORE_SMALLS,
            &FAST,
            &MANY,
            &HALF_MANY,
            &MORE_1K,
            &MORE_2K,
        ]
        .map(Table::len);
        assert_eq!(counts, [6, 33, 3, 46, 24, 99, 100]);
        let many = [
            384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576,
            32_768, 49_152, 65_536,
        ];
        assert_eq!(MANY.min[30..], many);
        assert_eq!(
            (MANY.min[29], MANY.min[35], MANY.min[45]),
            (256, 2048, 65_536)
        );
        assert_eq!(
            (HALF_MANY.min[15], HALF_MANY.min[18], HALF_MANY.min[23]),
            (256, 2048, 65_536)
        );
        assert_eq!(HALF_MANY.min[..4], [24, 32, 48, 64]);
        assert_eq!(
            (MORE_1K.min[36], MORE_1K.min[37], MORE_1K.min[98]),
            (2048, 3072, 65_536)
        );
        assert_eq!(
            (MORE_2K.min[36], MORE_2K.min[37], MORE_2K.min[99]),
            (2048, 4096, 131_072)
        );
    }
}
