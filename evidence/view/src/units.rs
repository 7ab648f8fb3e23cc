//! Figures as readers expect them. Every view shows the same figure in the same way.
//!
//! ```text
//!   1536 ──bytes──► "1.50 KiB"     4463142 ──count──► "4,463,142"     1/3 ──percent──► "33.3%"
//! ```
//!
//! U1  Bytes are binary (KiB = 1024), three significant digits; below 1 KiB they are exact.
//! U2  A part that is not 0 never reads as 0: "<0.1%".
//! U3  `page/core.js` has the same `bytes`, `count`, `percent` and `duration`, and the browser check compares them.
//!
//! Not here: alignment and width (screen.rs).

/// Formats bytes with a binary unit and three significant digits, four below the next unit: `512 B`, `1.50 KiB`,
/// `1,000 KiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // Rounded, it would be a whole one of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match value >= 999.5 {
        true => format!("{} {}", count(value.round() as u64), UNITS[unit]),
        false => format!("{} {}", three_digits(value), UNITS[unit]),
    }
}

/// Formats an estimate and half of its interval, in the estimate's unit: `38.0 MiB ± 2.1`.
pub fn with_error(estimate: u64, half: u64) -> String {
    let text = bytes(estimate);
    let unit = text.rsplit(' ').next().unwrap_or("B");
    let power = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
        .iter()
        .position(|one| *one == unit);
    let half = half as f64 / 1024_f64.powi(power.unwrap_or(0) as i32);
    // Two digits of an error are enough, and one behind the point of the estimate's.
    let half = match half {
        half if half >= 9.95 => format!("{half:.0}"),
        half if half >= 0.995 => format!("{half:.1}"),
        half => format!("{half:.2}"),
    };
    format!("{text} ± {half}")
}

/// Formats a positive number with three significant digits and no exponent.
fn three_digits(value: f64) -> String {
    // The limits are where rounding to fewer decimals begins to be exact to three digits.
    let (decimals, scale) = match value {
        v if v >= 99.95 => (0, 1.0),
        v if v >= 9.995 => (1, 10.0),
        v if v >= 0.9995 => (2, 100.0),
        _ => (3, 1000.0),
    };
    // Halves are rounded up, as in the page: `format!` alone would round them to even.
    format!("{:.decimals$}", (value * scale).round() / scale)
}

/// Formats a count with a comma between thousands.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of things: `1 block`, `2,000 blocks`, `1 temporary`, `2 temporaries`.
pub fn plural(n: u64, one: &str) -> String {
    match (n, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{} {stem}ies", count(n)),
        _ => format!("{} {one}s", count(n)),
    }
}

/// Formats a large count in few columns, to three digits: `999`, `60.0 k`, `2.03 M`.
pub fn compact(n: u64) -> String {
    const UNITS: [&str; 5] = ["k", "M", "G", "T", "P"];
    if n < 1000 {
        return n.to_string();
    }
    let mut value = n as f64 / 1e3;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// Formats `part` of `whole` in percent with one decimal; `–` if there is no whole.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if part > 0 && percent < 0.05 {
        return "<0.1%".to_owned();
    }
    format!("{percent:.1}%")
}

/// Formats a duration in nanoseconds: `850 ns`, `12.5 ms`, `3.20 s`, `4 min 05 s`, `2 h 03 min`.
pub fn duration(ns: u64) -> String {
    if ns < 1_000 {
        return format!("{ns} ns");
    }
    if ns < 999_500 {
        return format!("{} µs", three_digits(ns as f64 / 1e3));
    }
    if ns < 999_500_000 {
        return format!("{} ms", three_digits(ns as f64 / 1e6));
    }
    if ns < 59_950_000_000 {
        return format!("{} s", three_digits(ns as f64 / 1e9));
    }
    let s = ns.saturating_add(500_000_000) / 1_000_000_000;
    if s < 3_600 {
        return format!("{} min {:02} s", s / 60, s % 60);
    }
    format!("{} h {:02} min", s / 3_600, s % 3_600 / 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_three_digits_at_every_edge() {
        let cases: [(u64, &str); 15] = [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (10 * 1024, "10.0 KiB"),
            (100 * 1024, "100 KiB"),
            (999 * 1024, "999 KiB"),
            (1000 * 1024, "1,000 KiB"),
            (1023 * 1024, "1,023 KiB"),
            (1024 * 1024 - 1, "1.00 MiB"),
            (1024 * 1024, "1.00 MiB"),
            (134_742_016, "129 MiB"),
            (549_756_338_176, "512 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (input, expected) in cases {
            assert_eq!(bytes(input), expected, "{input}");
        }
    }

    #[test]
    fn bytes_have_three_digits_above_a_kibibyte_and_four_below_the_next_unit() {
        let mut value = 1024_u64;
        while value < u64::MAX / 3 {
            for near in [value - 1, value, value + 1] {
                let text = bytes(near);
                let digits = text.chars().filter(char::is_ascii_digit).count();
                let wanted = if text.contains(',') { 4 } else { 3 };
                assert!(near < 1024 || digits == wanted, "{near}: {text}");
                assert!(near < 1024 || !text.starts_with('0'), "{near}: {text}");
            }
            value += value / 97 + 1;
        }
    }

    #[test]
    fn an_error_is_in_the_unit_of_its_estimate() {
        const MIB: u64 = 1 << 20;
        assert_eq!(with_error(38 * MIB, 2 * MIB + MIB / 10), "38.0 MiB ± 2.1");
        assert_eq!(with_error(380 * MIB, 21 * MIB), "380 MiB ± 21");
        assert_eq!(with_error(3 << 30, 100 * MIB), "3.00 GiB ± 0.10");
        assert_eq!(with_error(900, 12), "900 B ± 12");
    }

    #[test]
    fn counts_percents_and_durations() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(4_463_142), "4,463,142");
        assert_eq!(plural(1, "block"), "1 block");
        assert_eq!(plural(0, "block"), "0 blocks");
        assert_eq!(plural(2_000, "temporary"), "2,000 temporaries");
        assert_eq!(compact(999), "999");
        assert_eq!(compact(60_000), "60.0 k");
        assert_eq!(compact(999_999), "1.00 M");
        assert_eq!(compact(2_026_751), "2.03 M");
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(1, 1_000_000), "<0.1%");
        assert_eq!(percent(0, 10), "0.0%");
        assert_eq!(percent(0, 0), "–");
        assert_eq!(duration(850), "850 ns");
        assert_eq!(duration(999_499), "999 µs");
        assert_eq!(duration(12_500_000), "12.5 ms");
        assert_eq!(duration(3_200_000_000), "3.20 s");
        assert_eq!(duration(59_960_000_000), "1 min 00 s");
        assert_eq!(duration(245_000_000_000), "4 min 05 s");
        assert_eq!(duration(7_380_000_000_000), "2 h 03 min");
    }
}
