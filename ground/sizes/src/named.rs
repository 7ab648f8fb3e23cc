//! Looking a scheme up: by its own name, or by a recorded allocator's.
//!
//! ```text
//!   --scheme jemalloc5 ──by_name──► Scheme ◄──for_allocator── libjemalloc.so.2
//! ```
//!
//! N1  The error for an unknown name lists the valid ones.
//!
//! Not here: what a scheme gives (`scheme.rs`).

use core::fmt;

use crate::scheme::Scheme;
use crate::schemes;

/// The error that no scheme has this name. Its text lists the valid names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownScheme<'a> {
    /// The name that was asked for.
    pub asked: &'a str,
}

impl fmt::Display for UnknownScheme<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no size-class scheme is called '{}'; choose one of:",
            self.asked
        )?;
        for (i, scheme) in Scheme::all().iter().enumerate() {
            write!(f, "{}{}", if i == 0 { " " } else { ", " }, scheme.name)?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownScheme<'_> {}

impl Scheme {
    /// Returns every scheme, in the order in which help texts list them.
    pub fn all() -> &'static [Scheme] {
        schemes::ALL
    }

    /// Returns the scheme of this name.
    ///
    /// # Errors
    /// [`UnknownScheme`], whose text lists the valid names.
    pub fn by_name(name: &str) -> Result<&'static Scheme, UnknownScheme<'_>> {
        Self::all()
            .iter()
            .find(|scheme| scheme.name == name)
            .ok_or(UnknownScheme { asked: name })
    }

    /// Returns the scheme of a recorded allocator, by its name or the file that provides it
    /// (`glibc 2.36`, `libjemalloc.so.2`). `None` if no scheme describes it.
    pub fn for_allocator(allocator: &str) -> Option<&'static Scheme> {
        // mozjemalloc before jemalloc: its name contains the other.
        const KEYS: [(&str, &str); 8] = [
            ("mozjemalloc", "mozjemalloc"),
            ("jemalloc", "jemalloc5"),
            ("mimalloc", "mimalloc"),
            ("tcmalloc", "tcmalloc"),
            ("skinflint", "skinflint"),
            ("glibc", "glibc"),
            ("libc.so.6", "glibc"),
            ("libc-2.", "glibc"),
        ];
        let contains = |key: &str| {
            allocator
                .as_bytes()
                .windows(key.len())
                .any(|part| part.eq_ignore_ascii_case(key.as_bytes()))
        };
        let (_, name) = KEYS.iter().find(|(key, _)| contains(key))?;
        Self::by_name(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClassKind;

    #[test]
    fn every_size_to_the_limit_is_covered_monotone_and_idempotent() {
        for scheme in Scheme::all() {
            let mut last = 0;
            // Every size to 64 KiB, then the sizes around each class to 4 MiB, where the edges are.
            let edges = scheme
                .classes(4 << 20)
                .filter(|class| *class > 65_536)
                .flat_map(|class| [class - 1, class, class + 1]);
            for size in (0..=65_536).chain(edges) {
                let usable = scheme.usable(size);
                assert!(usable >= size, "{}: {size} -> {usable}", scheme.name);
                assert!(usable >= last, "{}: falls at {size}", scheme.name);
                let again = scheme.usable(usable);
                let glibc_maps = scheme.name == "glibc" && usable > 131_048;
                let expected = if glibc_maps { usable + 4096 } else { usable };
                assert_eq!(again, expected, "{}: {size} -> {usable}", scheme.name);
                last = usable;
            }
        }
    }

    #[test]
    fn sizes_that_cannot_be_rounded_are_returned_as_they_are() {
        for scheme in Scheme::all() {
            for size in [
                u64::MAX,
                u64::MAX - 1,
                u64::MAX - 4096,
                (1 << 63) + 1,
                1 << 63,
            ] {
                assert!(scheme.usable(size) >= size, "{}: {size}", scheme.name);
            }
        }
    }

    /// A scheme, and what it is published to give: (asked, given).
    type Published = (&'static str, &'static [(u64, u64)]);
    const PUBLISHED: [Published; 8] = [
        (
            "mozjemalloc-2011",
            &[
                (1, 2),
                (3, 4),
                (5, 8),
                (9, 16),
                (24, 32),
                (512, 512),
                (513, 1024),
                (1024, 1024),
                (1025, 2048),
                (2049, 4096),
                (4096, 4096),
                (4097, 8192),
                (8193, 12288),
                (1 << 20, 1 << 20),
                ((1 << 20) + 1, 2 << 20),
            ],
        ),
        (
            "mozjemalloc",
            &[
                (1, 8),
                (9, 16),
                (496, 496),
                (497, 512),
                (513, 768),
                (1024, 1024),
                (1025, 1280),
                (3841, 4096),
                (4097, 8192),
                ((1 << 20) + 1, (1 << 20) + 4096),
            ],
        ),
        (
            "jemalloc5",
            &[
                (1, 8),
                (9, 16),
                (129, 160),
                (1025, 1280),
                (1040, 1280),
                (4097, 5120),
                (4368, 5120),
                (16385, 20480),
                ((1 << 20) + 1, 1_310_720),
            ],
        ),
        (
            "mimalloc",
            &[
                (1, 8),
                (129, 160),
                (1025, 1280),
                (131_072, 131_072),
                (131_073, 196_608),
                (524_288, 524_288),
                (524_289, 1 << 20),
                ((1 << 20) + 1, 1_572_864),
                (8_388_609, 9_437_184),
                (33_554_433, 37_748_736),
            ],
        ),
        (
            "tcmalloc",
            &[
                (1, 8),
                (129, 144),
                (769, 896),
                (1025, 1152),
                (3329, 4096),
                (4097, 4608),
                (16_385, 20_480),
                (32_769, 40_960),
                (262_145, 270_336),
            ],
        ),
        (
            "go",
            &[
                (1, 8),
                (17, 24),
                (33, 48),
                (1025, 1152),
                (2305, 2688),
                (4097, 4864),
                (28_673, 32_768),
                (32_769, 40_960),
            ],
        ),
        (
            "glibc",
            &[
                (0, 24),
                (24, 24),
                (25, 40),
                (1024, 1032),
                (1025, 1032),
                (1033, 1048),
                (131_048, 131_048),
                (131_049, 135_152),
                (200_000, 200_688),
            ],
        ),
        (
            "skinflint",
            &[
                (1, 16),
                (17, 32),
                (256, 256),
                (257, 288),
                (1024, 1024),
                (1025, 1152),
                (4097, 4608),
                (4368, 4608),
                (32_769, 36_864),
                (65_537, 69_632),
            ],
        ),
    ];

    #[test]
    fn published_examples() {
        for (name, pairs) in PUBLISHED {
            let scheme = Scheme::by_name(name).expect(name);
            for (size, usable) in pairs {
                assert_eq!(scheme.usable(*size), *usable, "{name}: {size}");
            }
        }
    }

    #[test]
    fn classes_are_counted_by_hand() {
        let count = |name, limit| Scheme::by_name(name).expect(name).classes(limit).count();
        // 2, 4, 8; 16 to 512 by 16 (32); 1024, 2048; 4 KiB to 1 MiB (256); 2 MiB.
        assert_eq!(count("mozjemalloc-2011", 2 << 20), 3 + 32 + 2 + 256 + 1);
        // 8; 16 to 496 by 16 (31); 512 to 3840 by 256 (14).
        assert_eq!(count("mozjemalloc", 4095), 1 + 31 + 14);
        // 8; 16 to 128 by 16 (8); then 4 for each of the 7 doublings to 16 KiB.
        assert_eq!(count("jemalloc5", 16_384), 1 + 8 + 4 * 7);
        // 67 classes, then 8 KiB pages.
        assert_eq!(count("go", 32_768), 67);
        // 16 to 256 by 16 (16); then 8 for each of the 7 doublings to 32 KiB.
        assert_eq!(count("skinflint", 32_768), 16 + 8 * 7);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = Scheme::by_name("jemaloc")
            .expect_err("misspelt")
            .to_string();
        assert!(error.contains("'jemaloc'"), "{error}");
        for scheme in Scheme::all() {
            assert!(error.contains(scheme.name), "{error}");
        }
    }

    #[test]
    fn the_recorded_allocator_finds_its_scheme() {
        let name = |allocator| Scheme::for_allocator(allocator).map(|scheme| scheme.name);
        assert_eq!(name("glibc 2.36"), Some("glibc"));
        assert_eq!(name("libjemalloc.so.2"), Some("jemalloc5"));
        assert_eq!(name("libtcmalloc_minimal.so.4"), Some("tcmalloc"));
        assert_eq!(name("libmimalloc.so.2.0"), Some("mimalloc"));
        assert_eq!(name("libhoard.so"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn kinds_follow_the_class() {
        let moz = Scheme::by_name("mozjemalloc-2011").expect("known");
        assert_eq!(moz.kind(moz.usable(24)).to_string(), "small");
        assert_eq!(moz.kind(moz.usable(2048)), ClassKind::Small);
        assert_eq!(moz.kind(moz.usable(2049)), ClassKind::Large);
        assert_eq!(moz.kind(moz.usable((1 << 20) - 4096)), ClassKind::Large);
        assert_eq!(moz.kind(moz.usable(1 << 20)), ClassKind::Huge);
    }
}
