//! A profile as text: after it was learned, and when one is shown.
//!
//! ```text
//!   Learned ─► slop, earned classes, span lengths, spare, warnings       a file ─► all of its classes
//! ```
//!
//! T1  Text from the program (its name) is data: no terminal escapes.
//!
//! Not here: the same as JSON (`json.rs`).

use std::fmt::Write as _;
use std::path::Path;

use skinflint_sizes::fit::FitView;
use skinflint_sizes::spans::{PAGE_BYTES, base_class};
use skinflint_view::units::{bytes, count, duration, percent, plural};

use crate::json::{flag_names, hex};
use crate::learned::{Learned, SHORT_ACQUISITIONS, SHORT_NS};
use crate::source::Source;
use crate::survey::Earned;
use crate::trial::Slop;

/// The number of earned classes that are printed; `--json` has all.
const SHOWN: usize = 12;

/// Adds a line; a `String` refuses none.
macro_rules! line {
    ($text:expr, $($words:tt)*) => {{
        let _ = writeln!($text, $($words)*);
    }};
}

impl Learned {
    /// Returns what the reader should know before relying on the profile, one sentence each.
    fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for source in &self.sources {
            let missing = source.missing().into_iter();
            all.extend(missing.map(|text| format!("{}: {text}", source.path.display())));
        }
        if self.acquisitions() < SHORT_ACQUISITIONS {
            all.push(format!(
                "only {} were recorded: too few to say much; record real work",
                plural(self.acquisitions(), "acquisition")
            ));
        }
        if self.longest_ns() < SHORT_NS {
            all.push(format!(
                "the longest trace lasted {}: the retained spare looks at 2 s before and after each \
                 moment, and means little for a program that usually runs for longer",
                duration(self.longest_ns())
            ));
        }
        all
    }

    /// Returns the lines that say what was written to `output`.
    pub fn text(&self, output: &Path, file_bytes: usize) -> String {
        let mut text = String::new();
        let program = self.sources.first().map_or("", Source::program);
        line!(
            text,
            "{}: {} for {}, learned from {} in {}",
            output.display(),
            bytes(file_bytes as u64),
            shown(program),
            plural(self.events(), "event"),
            plural(self.sources.len() as u64, "trace"),
        );
        for source in &self.sources {
            if self.sources.len() > 1 {
                line!(text, "  {}", source.path.display());
            }
            line!(
                text,
                "  slop at the heap's peak  {}",
                slop(&source.outcome.at_peak)
            );
            line!(
                text,
                "  slop on average          {}",
                slop(&source.outcome.on_average)
            );
        }
        self.say_earned(&mut text);
        let spans: Vec<(u16, u8)> = self
            .spans
            .iter()
            .map(|one| (one.class, one.pages))
            .collect();
        line!(text, "  {}", span_line(&spans));
        line!(text, "  {}", spare_line(self.spare_bytes));
        for warning in self.warnings() {
            line!(text, "  warning: {warning}");
        }
        line!(
            text,
            "Use it: SKINFLINT_FIT={} skinflint exec -- {}",
            output.display(),
            shown(program)
        );
        text
    }

    fn say_earned(&self, text: &mut String) {
        if self.earned.is_empty() {
            line!(
                text,
                "  earned classes: none: no size would save 32 KiB by a class of its own"
            );
            return;
        }
        line!(text, "  earned classes: {}", self.earned.len());
        line!(
            text,
            "      size   class before   most live   saves at least"
        );
        let mut earned: Vec<&Earned> = self.earned.iter().collect();
        earned.sort_by_key(|one| std::cmp::Reverse(one.saved_bytes));
        for one in earned.iter().take(SHOWN) {
            line!(
                text,
                "  {:>8}   {:>12}   {:>9}   {:>14}",
                count(one.size.into()),
                count(one.base.into()),
                count(one.most_live_blocks),
                bytes(one.saved_bytes)
            );
        }
        if earned.len() > SHOWN {
            line!(
                text,
                "  … and {} more (--json has all)",
                earned.len() - SHOWN
            );
        }
    }
}

/// Formats slop before and after, with its share of what was asked for.
fn slop(slop: &Slop) -> String {
    format!(
        "{} -> {}   ({} -> {} of {} asked for)",
        bytes(slop.slop_before_bytes),
        bytes(slop.slop_after_bytes),
        percent(slop.slop_before_bytes, slop.requested_bytes),
        percent(slop.slop_after_bytes, slop.requested_bytes),
        bytes(slop.requested_bytes)
    )
}

fn span_line(spans: &[(u16, u8)]) -> String {
    let within = |low: u8, high: u8| {
        let inside = spans
            .iter()
            .filter(|(_, pages)| (low..=high).contains(pages));
        inside.count()
    };
    format!(
        "span lengths: {} of 4 KiB, {} of 8 to 16, {} of 20 to 32, {} of 36 to 64 (classes used: {})",
        within(1, 1),
        within(2, 4),
        within(5, 8),
        within(9, 16),
        spans.len()
    )
}

fn spare_line(spare_bytes: u64) -> String {
    format!(
        "retained spare: {} (freed and wanted again within 2 s)",
        bytes(spare_bytes)
    )
}

/// Returns a name without characters that a terminal would obey.
fn shown(name: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    match name {
        "" => "an unknown program".to_owned(),
        name => name.chars().map(plain).collect(),
    }
}

/// Returns the lines that say what a profile holds, which was read from `path`.
pub fn profile_text(view: &FitView<'_>, path: &Path, file_bytes: usize) -> String {
    let earned: Vec<u16> = view.earned().collect();
    let spans: Vec<(u16, u8)> = view.spans().collect();
    let spare_bytes = u64::from(view.spare_pages()) * u64::from(PAGE_BYTES);
    let base = |size: u16| base_class(size.into());
    let mut text = String::new();
    line!(text, "{}: {}", path.display(), bytes(file_bytes as u64));
    line!(text, "  program: {}", shown(view.program()));
    if !view.build_id().is_empty() {
        line!(text, "  build id: {}", hex(view.build_id()));
    }
    let traces = plural(view.traces().into(), "trace");
    line!(
        text,
        "  learned from {} in {traces}",
        plural(view.events(), "event")
    );
    for flag in flag_names(view.flags()) {
        line!(text, "  warning: what it was learned from was {flag}");
    }
    line!(text, "  earned classes: {}", earned.len());
    for size in &earned {
        line!(
            text,
            "  {:>8} instead of {:>6}",
            count((*size).into()),
            count(base(*size))
        );
    }
    line!(text, "  {}", span_line(&spans));
    for (class, pages) in &spans {
        let span = u64::from(*pages) * u64::from(PAGE_BYTES);
        line!(
            text,
            "  {:>8} in spans of {:>9}",
            count((*class).into()),
            bytes(span)
        );
    }
    line!(text, "  {}", spare_line(spare_bytes));
    text
}
