//! Memory over time as a picture: a frame with its axes, lines through values, names at their ends. SVG as text.
//!
//! ```text
//!   round bytes ┤    ╭───────╮          the frame: a picture less its margins
//!               │ ╭──╯       ╰──── name
//!             0 └┴───────┴───────┴ s
//! ```
//!
//! F1  The axis of bytes begins at 0 and ends at a round number above the greatest value. A value beyond the frame is
//!     drawn at its edge.
//! F2  Names at the right do not cover each other, and stay within the frame as far as they fit.
//! F3  Colours are variables of the page, so that light and dark need one picture. What a page compares has the same
//!     colour everywhere; the first, its reference, has that of the text.
//!
//! A page with such a picture has [`STYLE`] beside the common one.
//! Not here: what is drawn, the page around it (`compare`, `browser`, processes.rs).

use std::fmt::Write as _;

use crate::html::escape;
use crate::units;

/// Style rules that a page with pictures needs beyond the common ones.
pub const STYLE: &str = "
.chart { min-width: 640px; } svg text.name { font-size: 12px; fill: var(--ink); }
.leader { fill: none; stroke: var(--line); stroke-width: 1; }
";

/// The number of colours after the reference's.
const COLORS: usize = 8;
const ORDER: [usize; COLORS] = [0, 1, 3, 7, 4, 6, 5, 8];

/// Returns the colour of the line at a position; 0 is the reference.
pub fn color(at: usize) -> String {
    match at {
        0 => "var(--ink)".into(),
        n => format!("var(--c{})", ORDER[(n - 1) % COLORS]),
    }
}

/// A picture's size and margins in units of the picture.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Width, with the margins.
    pub width: f64,
    /// Height, with the margins.
    pub height: f64,
    /// Margin at the left, for the figures of the axis.
    pub left: f64,
    /// Margin at the right, for the names.
    pub right: f64,
    /// Margin above.
    pub top: f64,
    /// Margin below, for the times.
    pub bottom: f64,
}

/// A name at the end of a line.
#[derive(Clone, Debug)]
pub struct Name {
    /// Where the line ends, from the left.
    pub x: f64,
    /// Where the line ends, from above.
    pub y: f64,
    /// The name, not escaped.
    pub text: String,
    /// Its colour.
    pub color: String,
}

/// The distance of two names, one below the other.
const NAME_STEP: f64 = 14.0;

/// A picture and the values at its upper right corner.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    size: Size,
    last_ms: f64,
    most_bytes: f64,
}

impl Frame {
    /// Creates a frame that shows so many milliseconds and bytes; the bytes are rounded up (F1).
    pub fn new(size: Size, last_ms: f64, most_bytes: u64) -> Frame {
        Frame {
            size,
            last_ms: last_ms.max(1e-3),
            most_bytes: round_bytes(most_bytes as f64),
        }
    }

    /// Returns where a moment lies, from the left.
    pub fn x(&self, ms: f64) -> f64 {
        let wide = self.size.width - self.size.left - self.size.right;
        self.size.left + wide * (ms / self.last_ms).clamp(0.0, 1.0)
    }

    /// Returns where a number of bytes lies, from above.
    pub fn y(&self, bytes: f64) -> f64 {
        let share = (bytes / self.most_bytes).clamp(0.0, 1.0);
        self.floor() - (self.floor() - self.size.top) * share
    }

    /// Returns where the axis of time lies, from above.
    fn floor(&self) -> f64 {
        self.size.height - self.size.bottom
    }

    /// Returns the path through points, each of milliseconds and bytes.
    pub fn path(&self, points: impl IntoIterator<Item = (f64, u64)>) -> String {
        let mut path = String::new();
        for (at, (ms, bytes)) in points.into_iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(
                path,
                "{letter}{:.1} {:.1}",
                self.x(ms),
                self.y(bytes as f64)
            );
        }
        path
    }

    /// Returns the path around what lies between points and the axis of time; empty if there are no points.
    pub fn area(&self, points: &[(f64, u64)]) -> String {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return String::new();
        };
        format!(
            "{0}L{1:.1} {2:.1}L{3:.1} {2:.1}Z",
            self.path(points.iter().copied()),
            self.x(last.0),
            self.floor(),
            self.x(first.0)
        )
    }

    /// Begins the picture: its element, which the caller closes, and its axes.
    pub fn begin(&self, label: &str) -> String {
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
            self.size.width,
            self.size.height,
            escape(label)
        );
        self.bytes_axis(&mut svg);
        self.time_axis(&mut svg);
        svg
    }

    fn bytes_axis(&self, svg: &mut String) {
        for step in 0..=4 {
            let bytes = self.most_bytes * f64::from(step) / 4.0;
            let y = self.y(bytes);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                self.size.left,
                self.size.width - self.size.right,
                self.size.left - 8.0,
                y + 4.0,
                escape(&units::bytes(bytes as u64))
            );
        }
    }

    fn time_axis(&self, svg: &mut String) {
        let step = round_step(self.last_ms / 6.0);
        let mut ms = 0.0;
        while ms <= self.last_ms * 1.0001 {
            let x = self.x(ms);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/><text x=\"{x:.1}\" y=\"{}\" \
                 text-anchor=\"middle\">{}</text>",
                self.floor(),
                self.floor() + 4.0,
                self.size.height - 8.0,
                time(ms, step)
            );
            ms += step;
        }
    }

    /// Draws names at the right, each with a line from where its own line ends (F2).
    pub fn names(&self, svg: &mut String, mut names: Vec<Name>) {
        names.sort_by(|a, b| a.y.total_cmp(&b.y));
        let rows = self.apart(names.iter().map(|name| name.y).collect());
        let x = self.size.width - self.size.right + 14.0;
        for (name, y) in names.iter().zip(rows) {
            let _ = write!(
                svg,
                "<path d=\"M{:.1} {:.1}L{:.1} {y:.1}\" class=\"leader\"/><text x=\"{x}\" y=\"{:.1}\" class=\"name\" \
                 style=\"fill:{}\">{}</text>",
                name.x + 2.0,
                name.y,
                x - 3.0,
                y + 4.0,
                name.color,
                escape(&name.text)
            );
        }
    }

    /// Moves rows apart, which are sorted: down where they would cover each other, then up from the lower edge.
    fn apart(&self, mut rows: Vec<f64>) -> Vec<f64> {
        let mut least = self.size.top + 4.0;
        for row in &mut rows {
            *row = row.max(least);
            least = *row + NAME_STEP;
        }
        let mut limit = self.floor();
        for row in rows.iter_mut().rev() {
            *row = row.min(limit);
            limit = *row - NAME_STEP;
        }
        rows
    }
}

/// Returns the next number of bytes above whose quarters are readable: 4, 5, 6 or 7 times a power of two.
fn round_bytes(bytes: f64) -> f64 {
    let mut unit = 4096.0;
    loop {
        for factor in [1.0, 1.25, 1.5, 1.75] {
            if unit * factor >= bytes * 1.02 {
                return unit * factor;
            }
        }
        unit *= 2.0;
    }
}

/// Returns the next 1, 2 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-6).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least)
        .unwrap_or(10.0 * power)
}

/// Returns a time of the axis as text, in the unit of its steps.
fn time(ms: f64, step: f64) -> String {
    let (value, step, unit) = match step {
        s if s >= 60_000.0 => (ms / 60_000.0, s / 60_000.0, "min"),
        s if s >= 100.0 => (ms / 1e3, s / 1e3, "s"),
        s if s >= 0.1 => (ms, s, "ms"),
        s => (ms * 1e3, s * 1e3, "µs"),
    };
    let decimals = usize::from(step.fract() > 1e-6);
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        let size = Size {
            width: 120.0,
            height: 60.0,
            left: 10.0,
            right: 10.0,
            top: 5.0,
            bottom: 5.0,
        };
        Frame::new(size, 2.0, 4000)
    }

    #[test]
    fn corners_and_beyond() {
        let frame = frame();
        assert_eq!((frame.x(0.0), frame.y(0.0)), (10.0, 55.0));
        assert_eq!((frame.x(2.0), frame.y(4096.0)), (110.0, 5.0));
        assert_eq!((frame.x(9.0), frame.y(1e9)), (110.0, 5.0));
        let points = [(0.0, 0), (1.0, 2048)];
        assert_eq!(frame.path(points), "M10.0 55.0L60.0 30.0");
        assert_eq!(
            frame.area(&points),
            "M10.0 55.0L60.0 30.0L60.0 55.0L10.0 55.0Z"
        );
        assert_eq!(frame.area(&[]), "");
    }

    #[test]
    fn names_are_moved_apart() {
        let frame = frame();
        assert_eq!(frame.apart(vec![20.0, 21.0, 50.0]), [20.0, 34.0, 50.0]);
        // At the bottom they are moved up again.
        assert_eq!(frame.apart(vec![50.0, 54.0]), [41.0, 55.0]);
        let mut svg = String::new();
        let name = |text: &str| Name {
            x: 100.0,
            y: 55.0,
            text: text.into(),
            color: color(0),
        };
        frame.names(&mut svg, vec![name("<lean>"), name("b")]);
        assert!(
            svg.contains(">&lt;lean&gt;</text>") && svg.contains("y=\"45.0\""),
            "{svg}"
        );
    }

    #[test]
    fn axes_are_readable() {
        assert_eq!(round_bytes(4090.0), 5120.0);
        assert_eq!(round_bytes(100.0 * 1_048_576.0), 112.0 * 1_048_576.0);
        assert_eq!((round_step(0.9), round_step(130.0)), (1.0, 200.0));
        assert_eq!(time(1500.0, 500.0), "1.5 s");
        assert_eq!(time(20.0, 10.0), "20 ms");
        let svg = frame().begin("a <b>");
        assert!(svg.contains("aria-label=\"a &lt;b&gt;\""), "{svg}");
        assert!(
            svg.contains(">4.00 KiB</text>") && svg.contains(">2.0 ms</text>"),
            "{svg}"
        );
    }
}
