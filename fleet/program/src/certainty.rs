//! How sure a difference is: quantiles of the normal distribution and of Student's.
//!
//! ```text
//!   p, degrees of freedom ─► t with P(T ≤ t) = p        two groups ─► difference, its error, degrees of freedom (Welch)
//! ```
//!
//! C1  Quantiles are found by halving the distance on the distribution itself, down to far tails: what is compared many
//!     times is judged there.
//!
//! Not here: what is compared.

/// The quantile of an interval of 95 %, of figures whose error is known.
pub const NORMAL: f64 = 1.959_963_984_540_054;

/// A group of processes: how many, and the sum and the sum of squares of a figure of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// Processes.
    pub count: f64,
    /// Sum.
    pub sum: f64,
    /// Sum of squares.
    pub squares: f64,
}

/// The difference of the means of two groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The mean of the first.
    pub from: f64,
    /// The mean of the second.
    pub to: f64,
    /// Standard error of `to − from`.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Group {
    fn mean(self) -> f64 {
        self.sum / self.count
    }

    /// Variance of the mean.
    fn error2(self) -> f64 {
        let spread = self.squares - self.sum * self.sum / self.count;
        (spread / (self.count - 1.0) / self.count).max(0.0)
    }
}

impl Difference {
    /// Compares two groups of two or more each.
    pub fn of(from: Group, to: Group) -> Difference {
        let (a, b) = (from.error2(), to.error2());
        let below = a * a / (from.count - 1.0) + b * b / (to.count - 1.0);
        Difference {
            from: from.mean(),
            to: to.mean(),
            error: (a + b).sqrt(),
            freedom: if below > 0.0 {
                (a + b) * (a + b) / below
            } else {
                from.count + to.count - 2.0
            },
        }
    }

    /// Returns the difference.
    pub fn change(self) -> f64 {
        self.to - self.from
    }

    /// Returns half of the interval that holds the difference with a chance of 1 − `miss`.
    pub fn half(self, miss: f64) -> f64 {
        self.error * student(miss / 2.0, self.freedom)
    }
}

/// Returns the t that Student's distribution exceeds with the probability `above`.
pub fn student(above: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while tail(high, freedom) > above && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if tail(middle, freedom) > above {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// P(T > t), t ≥ 0.
fn tail(t: f64, freedom: f64) -> f64 {
    beta(freedom / 2.0, 0.5, freedom / (freedom + t * t)) / 2.0
}

/// The regularised incomplete beta function, by its continued fraction (Lentz).
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front =
        (a * x.ln() + b * (1.0 - x).ln() + log_gamma(a + b) - log_gamma(a) - log_gamma(b)).exp();
    match x < (a + 1.0) / (a + b + 2.0) {
        true => front * fraction(a, b, x) / a,
        false => 1.0 - front * fraction(b, a, 1.0 - x) / b,
    }
}

fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let safe = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut d = 1.0 / safe(1.0 - (a + b) * x / (a + 1.0));
    let (mut c, mut value) = (1.0, d);
    for step in 1..500 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / safe(1.0 + even * d);
        c = safe(1.0 + even / c);
        value *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / safe(1.0 + odd * d);
        c = safe(1.0 + odd / c);
        value *= d * c;
        if (d * c - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// ln Γ(x), by Stirling's series behind a shift.
fn log_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 15.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    let series = (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * std::f64::consts::TAU.ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_printed_tables() {
        for (above, freedom, t) in [
            (0.025, 1.0, 12.706_2),
            (0.025, 5.0, 2.570_58),
            (0.025, 30.0, 2.042_27),
            (0.0005, 10.0, 4.586_89),
            (0.025, 1e7, 1.959_96),
            (0.000_01, 1e7, 4.264_89),
        ] {
            let found = student(above, freedom);
            assert!(
                (found - t).abs() < 2e-4 * t,
                "{above} {freedom}: {found}, not {t}"
            );
        }
    }

    #[test]
    fn welch_is_worked_out_by_hand() {
        // 1, 2, 3 and 2, 4, 6, 8: means 2 and 5; variances 1 and 20/3; error² = 1/3 + 5/3 = 2.
        let group = |values: &[f64]| Group {
            count: values.len() as f64,
            sum: values.iter().sum(),
            squares: values.iter().map(|value| value * value).sum(),
        };
        let difference = Difference::of(group(&[1.0, 2.0, 3.0]), group(&[2.0, 4.0, 6.0, 8.0]));
        assert_eq!((difference.from, difference.to), (2.0, 5.0));
        assert!((difference.error - 2.0_f64.sqrt()).abs() < 1e-12);
        assert!((difference.freedom - 4.0 / (1.0 / 18.0 + 25.0 / 27.0)).abs() < 1e-9);
        let same = Difference::of(group(&[3.0, 3.0]), group(&[3.0, 3.0]));
        assert_eq!((same.change(), same.half(0.05)), (0.0, 0.0));
    }
}
