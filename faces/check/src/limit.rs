//! Limits: what a budget allows, by itself or against a baseline.
//!
//! ```text
//!   64MiB, 1_000_000, 20k ─► Absolute      +5%, -10% ─► Percent      +2MiB, -4KiB ─► Step
//! ```
//!
//! L1  A percentage is kept in thousandths, and computed in integers: the same limit everywhere.
//! L2  What does not fit 64 bits is refused, never wrapped.

use std::fmt;

use skinflint_view::units::{bytes, count};

/// What a budget allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// So much.
    Absolute(u64),
    /// The baseline's figure and so many thousandths of a per cent of it more.
    Percent(i64),
    /// The baseline's figure and so much more.
    Step(i64),
}

/// Units of a number; powers of two are for bytes, `k`, `M` and `G` alone are thousands, as for counts.
const UNITS: [(&str, u64); 13] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("B", 1),
];

impl Limit {
    /// Reads a limit.
    ///
    /// # Errors
    /// A sentence without its beginning: what is wrong, and forms that are right.
    pub fn parse(text: &str) -> Result<Limit, String> {
        let trimmed = text.trim();
        let wrong = || {
            format!(
                "{text:?} is no limit; write 64MiB, 20000 or 20k, or against a baseline +5%, -10%, +2MiB"
            )
        };
        let (sign, rest) = match trimmed.as_bytes().first() {
            Some(b'+') => (Some(1), &trimmed[1..]),
            Some(b'-') => (Some(-1), &trimmed[1..]),
            _ => (None, trimmed),
        };
        if let Some(number) = rest.strip_suffix('%') {
            let sign = sign.ok_or_else(|| {
                format!("{text:?}: a percentage is of a baseline; write +{rest} or -{rest}")
            })?;
            let thousandths = scaled(number.trim(), 1000).ok_or_else(wrong)?;
            let thousandths = i64::try_from(thousandths).map_err(|_| wrong())?;
            return Ok(Limit::Percent(sign * thousandths));
        }
        let unit = UNITS.iter().find(|(unit, _)| rest.ends_with(unit));
        let (number, factor) = match unit {
            Some((unit, factor)) => (&rest[..rest.len() - unit.len()], *factor),
            None => (rest, 1),
        };
        let value = scaled(number.trim(), factor).ok_or_else(wrong)?;
        match sign {
            None => Ok(Limit::Absolute(value)),
            Some(sign) => {
                let value = i64::try_from(value).map_err(|_| wrong())?;
                Ok(Limit::Step(sign * value))
            }
        }
    }

    /// Reports whether the limit needs a baseline.
    pub fn is_relative(self) -> bool {
        !matches!(self, Limit::Absolute(_))
    }

    /// Returns the largest figure that is allowed, given the baseline's (0 if there is none).
    pub fn of(self, baseline: u64) -> u64 {
        match self {
            Limit::Absolute(value) => value,
            Limit::Step(step) => baseline.saturating_add_signed(step),
            Limit::Percent(thousandths) => {
                let factor = (100_000 + i128::from(thousandths)).max(0);
                let most = i128::from(baseline).saturating_mul(factor) / 100_000;
                u64::try_from(most).unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns it as it would be written, as bytes or as a count.
    pub fn shown(self, in_bytes: bool) -> String {
        let number = |value: u64| if in_bytes { bytes(value) } else { count(value) };
        match self {
            Limit::Absolute(value) => number(value),
            Limit::Step(step) => {
                let sign = if step < 0 { '-' } else { '+' };
                format!("{sign}{}", number(step.unsigned_abs()))
            }
            Limit::Percent(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Absolute(value) => write!(f, "{value}"),
            Limit::Step(step) => write!(f, "{step:+}"),
            Limit::Percent(thousandths) => {
                let sign = if *thousandths < 0 { '-' } else { '+' };
                let size = thousandths.unsigned_abs();
                let (whole, part) = (size / 1000, size % 1000);
                match part {
                    0 => write!(f, "{sign}{whole}%"),
                    _ => {
                        let part = format!("{part:03}");
                        write!(f, "{sign}{whole}.{}%", part.trim_end_matches('0'))
                    }
                }
            }
        }
    }
}

/// Reads a decimal number, underscores allowed, times a factor; a fraction is cut after the factor.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let starts = whole.bytes().next().is_some_and(|b| b.is_ascii_digit());
    if !starts || !digits(whole) || !digits(fraction) || number.ends_with('.') {
        return None;
    }
    let whole: u128 = whole.replace('_', "").parse().ok()?;
    let mut value = whole.checked_mul(u128::from(factor))?;
    let fraction = fraction.replace('_', "");
    if !fraction.is_empty() {
        // More digits than these are below a byte of any unit.
        let digits = &fraction[..fraction.len().min(15)];
        let parts: u128 = digits.parse().ok()?;
        value += parts * u128::from(factor) / 10u128.pow(digits.len() as u32);
    }
    u64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_units() {
        let absolute = |text: &str| Limit::parse(text).unwrap();
        assert_eq!(absolute("0"), Limit::Absolute(0));
        assert_eq!(absolute("64MiB"), Limit::Absolute(64 << 20));
        assert_eq!(absolute(" 1.5 KiB "), Limit::Absolute(1536));
        assert_eq!(absolute("1_000_000"), Limit::Absolute(1_000_000));
        assert_eq!(absolute("20k"), Limit::Absolute(20_000));
        assert_eq!(absolute("2 MB"), Limit::Absolute(2_000_000));
        assert_eq!(absolute("7 B"), Limit::Absolute(7));
        assert_eq!(absolute("18446744073709551615"), Limit::Absolute(u64::MAX));
        assert_eq!(absolute("+2MiB"), Limit::Step(2 << 20));
        assert_eq!(absolute("-4KiB"), Limit::Step(-4096));
        assert_eq!(absolute("+5%"), Limit::Percent(5000));
        assert_eq!(absolute("-0.25%"), Limit::Percent(-250));
    }

    #[test]
    fn what_is_no_limit_is_said_with_forms_that_are() {
        for wrong in [
            "",
            "x",
            "5..1",
            "1.",
            ".5",
            "_1",
            "5 QiB",
            "--5",
            "18446744073709551616",
            "16777216TiB",
            "+9223372036854775808",
            "1e6",
            "+%",
            "0x10",
            "½",
        ] {
            let said = Limit::parse(wrong).unwrap_err();
            assert!(said.contains("+5%"), "{wrong}: {said}");
        }
        let said = Limit::parse("5%").unwrap_err();
        assert!(said.contains("write +5% or -5%"), "{said}");
    }

    #[test]
    fn limits_of_a_baseline_are_integers() {
        assert_eq!(Limit::Percent(5000).of(1000), 1050);
        assert_eq!(Limit::Percent(-100_000).of(1000), 0);
        assert_eq!(Limit::Percent(-200_000).of(1000), 0);
        assert_eq!(Limit::Percent(1).of(100_000), 100_001);
        assert_eq!(Limit::Percent(i64::MAX).of(u64::MAX), u64::MAX);
        assert_eq!(Limit::Step(-5).of(3), 0);
        assert_eq!(Limit::Step(5).of(u64::MAX), u64::MAX);
        assert_eq!(Limit::Absolute(7).of(9), 7);
    }

    #[test]
    fn a_limit_reads_as_it_was_written() {
        for text in ["+5%", "-10%", "+0.25%", "+0%", "7", "+9", "-9"] {
            assert_eq!(Limit::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Limit::Step(-4096).shown(true), "-4.00 KiB");
        assert_eq!(Limit::Absolute(20_000).shown(false), "20,000");
    }
}
