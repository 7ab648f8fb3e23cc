//! Numbers in sentences.
//!
//! ```text
//!   1234 ──► "1,234 bytes"      12345678 ──► "11.8 MiB"      7 of 9 ──► "78 %"
//! ```
//!
//! W1  Below 10,000 bytes a figure is exact; above, it has three digits and a binary unit, as in the views. The exact
//!     figure is in the finding's fields.
//!
//! Not here: tables, colour, widths (the views).

/// Formats a number: `12,345`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a span of time for a sentence: `350 µs`, `12 ms`, `4.2 s`, `12 min`.
pub(crate) fn duration(ns: u64) -> String {
    let (us, ms) = (ns / 1_000, ns / 1_000_000);
    match ms {
        0 => format!("{us} µs"),
        1..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{:.1} s", ns as f64 / 1e9),
        _ => format!("{} min", ms / 60_000),
    }
}

/// Formats bytes for a sentence (W1).
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n == 1 {
        return "1 byte".to_owned();
    }
    if n < 10_000 {
        return format!("{} bytes", thousands(n));
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value >= 999.5 {
        return format!("{} {}", thousands(value.round() as u64), UNITS[unit]);
    }
    let (decimals, scale) = match value {
        v if v >= 99.95 => (0, 1.0),
        v if v >= 9.995 => (1, 10.0),
        v if v >= 0.9995 => (2, 100.0),
        _ => (3, 1000.0),
    };
    // Halves are rounded up, as in the views.
    let value = (value * scale).round() / scale;
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Formats a figure that was measured, not counted, to three digits: `2,030,000`.
pub(crate) fn about(n: f64) -> String {
    let digits = n.max(1.0).log10().floor() as i32;
    let unit = 10f64.powi((digits - 2).max(0));
    thousands(((n / unit).round() * unit) as u64)
}

/// Formats a count: `1 block`, `2 blocks`.
pub(crate) fn count(n: u64, one: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{} {one}s", thousands(n))
    }
}

/// Returns whole per cent of a whole; 0 of 0 is 0.
pub(crate) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        0
    } else {
        (part as f64 * 100.0 / whole as f64).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_sentences() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(9_999), "9,999 bytes");
        assert_eq!(bytes(10_240), "10.0 KiB");
        assert_eq!(bytes(12_345_678), "11.8 MiB");
        assert_eq!(bytes(8 << 20), "8.00 MiB");
        assert_eq!(bytes(1000 << 20), "1,000 MiB");
        assert_eq!(bytes(134_742_016), "129 MiB");
        assert_eq!(about(2_026_751.3), "2,030,000");
        assert_eq!(about(87.4), "87");
        assert_eq!(count(1, "block"), "1 block");
        assert_eq!(count(1_000, "block"), "1,000 blocks");
        assert_eq!(percent(7, 9), 78);
        assert_eq!(percent(0, 0), 0);
        let times = [
            0,
            350_999,
            12_000_000,
            999_999_999,
            4_200_000_000,
            120_000_000_000,
        ]
        .map(duration);
        assert_eq!(
            times,
            ["0 µs", "350 µs", "12 ms", "999 ms", "4.2 s", "2 min"]
        );
    }
}
