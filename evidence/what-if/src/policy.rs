//! Policies: what is simulated, by name or put together from parts.
//!
//! ```text
//!   jemalloc                         a name: one of `Policy::all`
//!   jemalloc5:64k:fullest            CLASSES:LENGTH:ORDER
//!   skinflint+earned:tiers:lifo:threads    … with a heap for each thread
//! ```
//!
//! N1  Every name and every part that an error text lists is accepted, and the text of a parsed
//!     policy is the one that was written.
//! N2  A named policy that is called after an allocator has its classes, span lengths and order, as far
//!     as they can be expressed here. It does not have its caches, decay or metadata: `about` says what
//!     differs.
//!
//! Not here: their effects (`spans.rs`, `chunks.rs`), purging, all kinds of which are reported for each policy.

use std::fmt;

use skinflint_sizes::Scheme;

/// The sizes that blocks are given.
#[derive(Clone, Copy, Debug)]
pub enum Classes {
    /// Those of an allocator.
    Scheme(&'static Scheme),
    /// Those of an allocator, and multiples of 16 that are often requested earn a class of their own.
    Earned(&'static Scheme),
    /// Every multiple of 16 up to 32 KiB, then pages.
    Exact16,
}

/// The length of spans. A class whose blocks need longer spans has the length that one block needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// This many pages, 1 to 16.
    Fixed(u32),
    /// 4 to 64 KiB by how many pages the class has in spans, as in Skinflint's allocator.
    Tiers,
    /// 4 to 64 KiB, about a thirty-second of the class's live bytes, as in a fit profile.
    Share,
    /// The shortest that has no tail, or the least tail.
    NoTail,
}

/// Which free slot the next block of a class gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The one with the lowest address.
    Lowest,
    /// The slot that was freed last, in the span into which a block was freed last; a span is used up
    /// before the next one is chosen.
    Lifo,
    /// The lowest of the span with the fewest free slots, which is used up before the next one is chosen.
    Fullest,
}

/// A way to lay out blocks.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The name by which it is known in results.
    pub name: String,
    /// A description, in a sentence.
    pub about: String,
    /// The sizes.
    pub classes: Classes,
    /// The length of spans; without meaning if there is no order.
    pub length: Length,
    /// The order of slots; `None` means no spans, but chunks that are split and joined, as in glibc.
    pub order: Option<Order>,
    /// Whether each thread has a heap of its own. Not possible with chunks.
    pub threads: bool,
    /// What the allocator holds beside its pages; `None` if that is not known, as of all that is put together.
    pub own: Option<Own>,
}

/// What an allocator holds beside the pages of blocks and spans: what a promise of resident memory has to add.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    /// Nothing that is not in the layout: headers are in it, and chunks of thread caches and fast bins.
    Nothing,
    /// Skinflint's: its library, descriptors, magazines, and spans that are kept though empty.
    Skinflint,
}

impl Own {
    /// Returns the bytes that are there in any case, and those that may be there, of a heap of at most `most_bytes`, with so many
    /// bytes of descriptors and so many heaps of threads.
    ///
    /// `/bin/true` takes 0.3 to 0.7 MiB more with the library preloaded (six programs, 2026-11-26). What may be there: empty
    /// spans (`EMPTY_PAGES` in engines/alloc/src/heaps/spans.rs: 1 MiB a heap), full magazines, and a
    /// 128th of all that was freed and not given back in time.
    pub(crate) fn bytes(self, most_bytes: u64, descriptor_bytes: u64, heaps: u64) -> (u64, u64) {
        match self {
            Own::Nothing => (0, 0),
            Own::Skinflint => (
                descriptor_bytes + (512 << 10),
                heaps * (2 << 20) + most_bytes / 128,
            ),
        }
    }
}

/// The error for a policy that does not exist. Its text lists the existing ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownPolicy {
    asked: String,
    what: &'static str,
    part: String,
}

const LENGTHS: &str = "4k, 8k, 16k, 32k, 64k, tiers, share, notail";
const ORDERS: &str = "lowest, lifo, fullest";

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "policy '{}': ", self.asked)?;
        match self.what {
            "name" => {
                let names: Vec<&str> = NAMED.iter().map(|one| one.0).collect();
                write!(
                    f,
                    "no policy is called '{}'; choose one of: {}; or put one together as \
                     CLASSES:LENGTH:ORDER[:threads], e.g. jemalloc5:64k:fullest",
                    self.part,
                    names.join(", ")
                )
            }
            "classes" => {
                let names: Vec<&str> = Scheme::all().iter().map(|one| one.name).collect();
                write!(
                    f,
                    "no classes are called '{}'; choose one of: exact16, {}; all but exact16 also with +earned",
                    self.part,
                    names.join(", ")
                )
            }
            "length" => write!(
                f,
                "no span length is called '{}'; choose one of: {LENGTHS}",
                self.part
            ),
            "order" => write!(
                f,
                "no order is called '{}'; choose one of: {ORDERS}",
                self.part
            ),
            _ => write!(
                f,
                "'{}' is one word too many; CLASSES:LENGTH:ORDER may be followed by :threads only",
                self.part
            ),
        }
    }
}

impl std::error::Error for UnknownPolicy {}

/// Name, parts, and description. The first policy is the one that the others are compared with in the text.
const NAMED: &[(&str, &str, &str)] = &[
    (
        "glibc",
        "chunks",
        "glibc's way: chunks of 16 bytes split and joined in one heap, best fit, trimmed at the top; \
         without its thread caches, fast bins and further arenas",
    ),
    (
        "skinflint",
        "skinflint+earned:tiers:fullest:threads",
        "Skinflint's allocator: 8 classes for each doubling and earned ones, spans of 4 to 64 KiB by \
         population, a heap for each thread; without magazines",
    ),
    (
        "skinflint-base",
        "skinflint:tiers:fullest:threads",
        "the same without earned classes",
    ),
    (
        "skinflint-64k",
        "skinflint+earned:64k:fullest:threads",
        "the same with all spans of 64 KiB",
    ),
    (
        "jemalloc",
        "jemalloc5:notail:lowest",
        "jemalloc's way: 4 classes for each doubling, spans without tails, lowest slot first; one arena, \
         without thread caches",
    ),
    (
        "mimalloc",
        "mimalloc:64k:lifo:threads",
        "mimalloc's way: 4 classes for each doubling, spans of 64 KiB (also for blocks above 8 KiB, which \
         get 512 KiB in truth), last freed first, a heap for each thread",
    ),
    (
        "tcmalloc",
        "tcmalloc:8k:lifo",
        "tcmalloc's way: its table, spans of 8 KiB (its spans of middling classes are longer), last freed \
         first; without thread caches",
    ),
    (
        "exact16",
        "exact16:tiers:fullest",
        "a class for each multiple of 16 bytes: the least slop that spans can have, and the most spans",
    ),
];

impl Classes {
    pub(crate) fn scheme(&self) -> &'static Scheme {
        match self {
            Classes::Scheme(scheme) | Classes::Earned(scheme) => scheme,
            // Only its large sizes are used: whole pages.
            Classes::Exact16 => Scheme::all()
                .iter()
                .find(|scheme| scheme.name == "skinflint")
                .unwrap_or(&Scheme::all()[0]),
        }
    }
}

impl Policy {
    /// Returns all policies that have a name, in the order of the report.
    pub fn all() -> Vec<Policy> {
        NAMED
            .iter()
            .filter_map(|one| Policy::parse(one.0).ok())
            .collect()
    }

    /// Parses a named policy, or one put together.
    ///
    /// # Errors
    /// [`UnknownPolicy`], whose text lists what exists.
    pub fn parse(text: &str) -> Result<Policy, UnknownPolicy> {
        let fault = |what, part: &str| UnknownPolicy {
            asked: text.to_string(),
            what,
            part: part.to_string(),
        };
        if let Some((name, parts, about)) = NAMED.iter().find(|one| one.0 == text) {
            let mut policy = match *parts {
                "chunks" => Policy::chunks(),
                parts => Policy::parse(parts)?,
            };
            policy.name = (*name).to_string();
            policy.about = (*about).to_string();
            policy.own = match *name {
                "glibc" => Some(Own::Nothing),
                name if name.starts_with("skinflint") => Some(Own::Skinflint),
                _ => None,
            };
            return Ok(policy);
        }
        let parts: Vec<&str> = text.split(':').collect();
        let [classes, length, order, rest @ ..] = parts.as_slice() else {
            return Err(fault("name", text));
        };
        let threads = match rest {
            [] => false,
            ["threads"] => true,
            [word, ..] => return Err(fault("more", word)),
        };
        Ok(Policy {
            name: text.to_string(),
            about: String::new(),
            classes: Classes::parse(classes).ok_or_else(|| fault("classes", classes))?,
            length: Length::parse(length).ok_or_else(|| fault("length", length))?,
            order: Some(Order::parse(order).ok_or_else(|| fault("order", order))?),
            threads,
            own: None,
        })
    }

    fn chunks() -> Policy {
        Policy {
            name: String::new(),
            about: String::new(),
            classes: Classes::Exact16,
            length: Length::Tiers,
            order: None,
            threads: false,
            own: None,
        }
    }
}

impl Classes {
    fn parse(text: &str) -> Option<Classes> {
        if text == "exact16" {
            return Some(Classes::Exact16);
        }
        match text.strip_suffix("+earned") {
            Some(name) => Scheme::by_name(name).ok().map(Classes::Earned),
            None => Scheme::by_name(text).ok().map(Classes::Scheme),
        }
    }
}

impl Length {
    fn parse(text: &str) -> Option<Length> {
        Some(match text {
            "4k" => Length::Fixed(1),
            "8k" => Length::Fixed(2),
            "16k" => Length::Fixed(4),
            "32k" => Length::Fixed(8),
            "64k" => Length::Fixed(16),
            "tiers" => Length::Tiers,
            "share" => Length::Share,
            "notail" => Length::NoTail,
            _ => return None,
        })
    }
}

impl Order {
    fn parse(text: &str) -> Option<Order> {
        Some(match text {
            "lowest" => Order::Lowest,
            "lifo" => Order::Lifo,
            "fullest" => Order::Fullest,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_every_part_is_accepted() {
        let all = Policy::all();
        assert_eq!(all.len(), NAMED.len());
        assert!(all.iter().all(|one| !one.about.is_empty()));
        let mut classes: Vec<String> = vec!["exact16".into()];
        for scheme in Scheme::all() {
            classes.push(scheme.name.into());
            classes.push(format!("{}+earned", scheme.name));
        }
        for classes in &classes {
            for length in LENGTHS.split(", ") {
                for order in ORDERS.split(", ") {
                    let text = format!("{classes}:{length}:{order}");
                    assert_eq!(Policy::parse(&text).expect("listed").name, text);
                }
            }
        }
        assert!(Policy::parse("go:4k:lifo:threads").expect("listed").threads);
        let lengths = LENGTHS.split(", ").map(Length::parse);
        let wanted = [
            Length::Fixed(1),
            Length::Fixed(2),
            Length::Fixed(4),
            Length::Fixed(8),
            Length::Fixed(16),
            Length::Tiers,
            Length::Share,
            Length::NoTail,
        ];
        assert_eq!(lengths.collect::<Vec<_>>(), wanted.map(Some));
        let orders = ORDERS.split(", ").map(Order::parse);
        let wanted = [Order::Lowest, Order::Lifo, Order::Fullest];
        assert_eq!(orders.collect::<Vec<_>>(), wanted.map(Some));
    }

    #[test]
    fn errors_name_the_part_and_the_choice() {
        let text = |asked| Policy::parse(asked).expect_err(asked).to_string();
        assert!(text("jemaloc").contains("'jemaloc'; choose one of: glibc, skinflint"));
        assert!(text("jemaloc:64k:lifo").contains("no classes are called 'jemaloc'"));
        assert!(text("go:5k:lifo").contains("'5k'; choose one of: 4k"));
        assert!(text("go:4k:best").contains("'best'; choose one of: lowest"));
        assert!(text("go:4k:lifo:thread").contains("'thread' is one word too many"));
        assert!(text("").contains("no policy is called ''"));
    }
}
