//! Days and hours of seconds since 1970, in UTC.
//!
//! ```text
//!   t (seconds) ─► minute ─► hour of the day ─► day "2026-11-27" ─► its first second
//! ```
//!
//! K1  No row crosses the end of an hour: [`pieces`] cuts what would. So hours and days merge without cutting.
//!
//! Not here: time zones, leap seconds.

use anyhow::{Context, Result, bail};

/// Seconds of an hour.
pub const HOUR: i64 = 3600;
/// Seconds of a day.
pub const DAY: i64 = 86_400;

/// Returns the day of a time.
pub fn day(t: i64) -> String {
    let (year, month, day) = civil(t.div_euclid(DAY));
    format!("{year:04}-{month:02}-{day:02}")
}

/// Returns the hour of the day of a time.
pub fn hour(t: i64) -> i64 {
    t.rem_euclid(DAY) / HOUR
}

/// Returns the first second of a day that is written as `2026-11-27`.
///
/// # Errors
/// If it is not written so.
pub fn start_of(day: &str) -> Result<i64> {
    let wrong = || format!("`{day}` is no day: write it as 2026-11-27");
    let mut parts = day.split('-').map(str::parse::<i64>);
    let mut next = || parts.next().and_then(Result::ok).with_context(wrong);
    let (year, month, date) = (next()?, next()?, next()?);
    let t = days(year, month, date) * DAY;
    if self::day(t) != day {
        bail!(wrong());
    }
    Ok(t)
}

/// Returns year, month and day of a number of days since 1970 (Howard Hinnant's algorithm of eras of 400 years).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Cuts a time of whole minutes at the ends of hours (K1): begin and minutes of each piece.
pub fn pieces(t: i64, minutes: i64) -> Vec<(i64, i64)> {
    let mut pieces = Vec::new();
    let (mut t, end) = (t - t.rem_euclid(60), t - t.rem_euclid(60) + minutes * 60);
    while t < end {
        let to = end.min(t - t.rem_euclid(HOUR) + HOUR);
        pieces.push((t, (to - t) / 60));
        t = to;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_named_and_found_again() {
        for (t, name) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_795_737_600, "2026-11-27"),
        ] {
            assert_eq!(day(t), name);
            assert_eq!(day(t + DAY - 1), name);
            assert_eq!(start_of(name).unwrap(), t);
        }
        for wrong in ["2026-02-30", "today", "2026-1-1", "2026-11-27-1", ""] {
            assert!(start_of(wrong).is_err(), "{wrong}");
        }
        for number in (-800_000..800_000).step_by(97) {
            let (year, month, date) = civil(number);
            assert_eq!(days(year, month, date), number);
        }
    }

    #[test]
    fn no_piece_crosses_an_hour_and_none_is_lost() {
        assert_eq!(pieces(3590, 3), [(3540, 1), (3600, 2)]);
        assert_eq!(pieces(60, 0), []);
        let all = pieces(DAY - 120, 125);
        assert_eq!(all.iter().map(|(_, minutes)| minutes).sum::<i64>(), 125);
        assert!(
            all.iter()
                .all(|(t, minutes)| t.div_euclid(HOUR) == (t + minutes * 60 - 1).div_euclid(HOUR))
        );
    }
}
