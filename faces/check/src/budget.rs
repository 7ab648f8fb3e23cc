//! Budgets: a figure and its limit.
//!
//! ```text
//!   --stack load_*=4MiB ─► Kind::Stack("load_*"), Limit::Absolute(4 MiB), said by "--stack load_*=4MiB"
//! ```
//!
//! B1  A kind's name is its option without dashes, its key in a file, and its name in every output.

use std::fmt;

use crate::limit::Limit;

/// A figure that a budget is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Most live bytes given, exact to the event.
    PeakLive,
    /// Blocks that lived then.
    PeakBlocks,
    /// Bytes given beyond those asked for, then.
    PeakSlop,
    /// Most resident memory, as an interval.
    PeakRss,
    /// Live bytes given at the end.
    LiveAtEnd,
    /// Live blocks at the end.
    BlocksAtEnd,
    /// Bytes given beyond those asked for at the end.
    SlopAtEnd,
    /// Free bytes that live blocks keep resident at the end.
    PinnedAtEnd,
    /// Blocks acquired over the run.
    Allocations,
    /// Bytes that calls of `read` took.
    BytesRead,
    /// Bytes given to calls of `write`.
    BytesWritten,
    /// Live bytes, at the peak of all live bytes, of stacks with a function that matches.
    Stack(String),
    /// Live bytes that each interval between two marks of this name adds, the first interval left out.
    GrowthPer(String),
    /// A figure of the phase of this name.
    Phase(String, Within),
}

/// A figure of a phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Within {
    /// Live bytes that it left behind.
    Growth,
    /// The most live bytes in it, beyond those at its begin.
    PeakLive,
    /// Blocks acquired in it.
    Allocations,
}

/// All of them.
const ALL: [Within; 3] = [Within::Growth, Within::PeakLive, Within::Allocations];

impl Within {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Within::Growth => "growth",
            Within::PeakLive => "peak-live",
            Within::Allocations => "allocations",
        }
    }

    /// Returns the figure of a name.
    ///
    /// # Errors
    /// A sentence that has the names.
    pub fn named(name: &str) -> Result<Within, String> {
        let found = ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = ALL.into_iter().map(Within::name).collect();
            format!(
                "no figure of a phase is called {name:?}; there are {}",
                names.join(", ")
            )
        })
    }

    /// Describes it in a sentence without its full stop.
    fn meaning(self) -> &'static str {
        match self {
            Within::Growth => "live bytes that the phase left behind",
            Within::PeakLive => "the most live bytes in the phase, beyond those at its begin",
            Within::Allocations => "blocks acquired in the phase",
        }
    }
}

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All kinds without an argument, in the order of outputs.
pub const PLAIN: [Kind; 11] = [
    Kind::PeakLive,
    Kind::PeakBlocks,
    Kind::PeakSlop,
    Kind::PeakRss,
    Kind::LiveAtEnd,
    Kind::BlocksAtEnd,
    Kind::SlopAtEnd,
    Kind::PinnedAtEnd,
    Kind::Allocations,
    Kind::BytesRead,
    Kind::BytesWritten,
];

impl Kind {
    /// Returns its name (B1).
    pub fn name(&self) -> &'static str {
        match self {
            Kind::PeakLive => "peak-live",
            Kind::PeakBlocks => "peak-blocks",
            Kind::PeakSlop => "peak-slop",
            Kind::PeakRss => "peak-rss",
            Kind::LiveAtEnd => "live-at-end",
            Kind::BlocksAtEnd => "blocks-at-end",
            Kind::SlopAtEnd => "slop-at-end",
            Kind::PinnedAtEnd => "pinned-at-end",
            Kind::Allocations => "allocations",
            Kind::BytesRead => "bytes-read",
            Kind::BytesWritten => "bytes-written",
            Kind::Stack(_) => "stack",
            Kind::GrowthPer(_) => "growth-per",
            Kind::Phase(..) => "phase",
        }
    }

    /// Describes the figure in a sentence without its full stop.
    pub fn meaning(&self) -> &'static str {
        match self {
            Kind::PeakLive => "bytes of live blocks when they were most",
            Kind::PeakBlocks => "live blocks when their bytes were most",
            Kind::PeakSlop => "bytes given beyond those asked for (slop) when live bytes were most",
            Kind::PeakRss => "largest resident memory",
            Kind::LiveAtEnd => "bytes of blocks that live at the end",
            Kind::BlocksAtEnd => "blocks that live at the end",
            Kind::SlopAtEnd => "bytes given beyond those asked for (slop) at the end",
            Kind::PinnedAtEnd => "free bytes that live blocks keep resident (pinned) at the end",
            Kind::Allocations => "blocks acquired over the run",
            Kind::BytesRead => {
                "bytes that calls of read took, those of children that were waited for included"
            }
            Kind::BytesWritten => {
                "bytes given to calls of write, those of children that were waited for included"
            }
            Kind::Stack(_) => {
                "live bytes of stacks with a matching function when live bytes were most"
            }
            Kind::GrowthPer(_) => "live bytes that each interval between two of the marks adds",
            Kind::Phase(_, within) => within.meaning(),
        }
    }

    /// Reports whether the figure is in bytes.
    pub fn is_bytes(&self) -> bool {
        !matches!(
            self,
            Kind::PeakBlocks
                | Kind::BlocksAtEnd
                | Kind::Allocations
                | Kind::Phase(_, Within::Allocations)
        )
    }

    /// Returns a figure of this kind as text.
    pub fn shown(&self, value: u64) -> String {
        match self.is_bytes() {
            true => skinflint_view::units::bytes(value),
            false => skinflint_view::units::count(value),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Stack(of) | Kind::GrowthPer(of) => write!(f, "{} {of}", self.name()),
            Kind::Phase(of, within) => write!(f, "{} {of} {within}", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

/// A limit on a figure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// The figure.
    pub kind: Kind,
    /// The limit.
    pub limit: Limit,
    /// Where it was said: `--peak-live`, or `budgets.toml:3`.
    pub said_by: String,
}

impl Budget {
    /// Reads the value of an option whose figure needs no argument.
    ///
    /// # Errors
    /// The option, and what is wrong.
    pub fn plain(kind: Kind, limit: &str) -> Result<Budget, String> {
        let said_by = format!("--{}", kind.name());
        let limit = Limit::parse(limit).map_err(|why| format!("{said_by}: {why}"))?;
        Ok(Budget {
            kind,
            limit,
            said_by,
        })
    }

    /// Reads `PATTERN=LIMIT` of `--stack`. The last `=` counts, as a function's name may have one (`operator==`).
    ///
    /// # Errors
    /// The option, and what is wrong.
    pub fn stack(text: &str) -> Result<Budget, String> {
        let (pattern, limit) = text
            .rsplit_once('=')
            .filter(|(pattern, _)| !pattern.is_empty())
            .ok_or_else(|| {
                format!("--stack {text}: write PATTERN=BYTES, such as --stack 'load_*=4MiB'")
            })?;
        let limit = Limit::parse(limit).map_err(|why| format!("--stack {pattern}: {why}"))?;
        Ok(Budget {
            kind: Kind::Stack(pattern.to_owned()),
            limit,
            said_by: "--stack".into(),
        })
    }

    /// Reads `NAME:FIGURE=LIMIT` of `--phase`. The last `:` counts, as a name may have some (`cache::load`).
    ///
    /// # Errors
    /// The option, and what is wrong.
    pub fn phase(text: &str) -> Result<Budget, String> {
        let (name, figure) = text
            .rsplit_once(':')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                format!(
                    "--phase {text}: write NAME:FIGURE=LIMIT, such as --phase 'load:growth=4KiB'"
                )
            })?;
        of_phase(name, figure, "--phase").map_err(|why| format!("--phase {name}: {why}"))
    }

    /// Reads `MARK` (no growth at all) or `MARK=LIMIT` of `--growth-per`.
    ///
    /// # Errors
    /// The option, and what is wrong.
    pub fn growth(text: &str) -> Result<Budget, String> {
        let (mark, limit) = text.rsplit_once('=').unwrap_or((text, "0"));
        if mark.is_empty() {
            return Err(format!(
                "--growth-per {text}: write MARK=BYTES, such as --growth-per request=4KiB"
            ));
        }
        let limit = Limit::parse(limit).map_err(|why| format!("--growth-per {mark}: {why}"))?;
        Ok(Budget {
            kind: Kind::GrowthPer(mark.to_owned()),
            limit,
            said_by: "--growth-per".into(),
        })
    }
}

/// Reads `FIGURE=LIMIT` of a phase.
pub(crate) fn of_phase(phase: &str, figure: &str, said_by: &str) -> Result<Budget, String> {
    let (figure, limit) = figure
        .split_once('=')
        .ok_or_else(|| format!("{figure:?}: write FIGURE=LIMIT, such as growth=4KiB"))?;
    let within = Within::named(figure)?;
    Ok(Budget {
        kind: Kind::Phase(phase.to_owned(), within),
        limit: Limit::parse(limit)?,
        said_by: said_by.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unlike_each_other() {
        let mut names: Vec<&str> = PLAIN.iter().map(Kind::name).collect();
        names.extend(["stack", "growth-per"]);
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn patterns_may_contain_an_equals_sign() {
        let budget = Budget::stack("operator===4KiB").unwrap();
        assert_eq!(budget.kind, Kind::Stack("operator==".into()));
        assert_eq!(budget.limit, Limit::Absolute(4096));
        assert!(
            Budget::stack("=4KiB")
                .unwrap_err()
                .contains("PATTERN=BYTES")
        );
        assert!(Budget::stack("load").unwrap_err().contains("PATTERN=BYTES"));
        assert!(
            Budget::stack("load=much")
                .unwrap_err()
                .contains("--stack load: ")
        );
    }

    #[test]
    fn a_phases_name_may_have_colons() {
        let budget = Budget::phase("cache::load:peak-live=4KiB").unwrap();
        assert_eq!(
            budget.kind,
            Kind::Phase("cache::load".into(), Within::PeakLive)
        );
        assert_eq!(budget.limit, Limit::Absolute(4096));
        for wrong in ["load", ":growth=1", "load:growth", "load:grows=1"] {
            let said = Budget::phase(wrong).unwrap_err();
            assert!(said.starts_with("--phase "), "{said}");
        }
    }

    #[test]
    fn growth_without_a_limit_is_none() {
        let budget = Budget::growth("request").unwrap();
        assert_eq!(budget.kind, Kind::GrowthPer("request".into()));
        assert_eq!(budget.limit, Limit::Absolute(0));
        assert!(Budget::growth("=3").is_err());
        assert!(
            Budget::growth("a=x")
                .unwrap_err()
                .contains("--growth-per a: ")
        );
    }
}
