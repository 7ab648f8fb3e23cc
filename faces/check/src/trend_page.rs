//! A history as one HTML file: each figure of each program over the builds, with its steps.
//!
//! ```text
//!   entries ─► Series (trend.rs) ─► a row: name │ bars, one a build, its label and figure as a tooltip │ first … last, steps
//! ```
//!
//! W1  The file makes no request and runs nothing; all text is escaped.
//! W2  A row's bars go from a tenth below its least figure to its most, and both are written beside it.
//! W3  The bar of a step's first build is marked, and the step is told in words.
//!
//! Not here: what a step is (trend.rs), the look (`view`).

use std::fmt::Write as _;

use skinflint_view::html::{begin, escape};

use crate::history::Entry;
use crate::trend::{Series, named, programs, series, summary, told};

const STYLE: &str = "
.row { display: grid; grid-template-columns: 130px 1fr 250px; gap: 4px 14px; align-items: end; padding: 8px 0; border-top: 1px solid var(--line); }
.row svg { width: 100%; height: 46px; display: block; } .row p { overflow-wrap: anywhere; } rect.bar { fill: var(--c0); } rect.step { fill: var(--warn); }
rect.bar:hover, rect.step:hover { opacity: .6; } .row .up { color: var(--warn); font-weight: 600; }
@media (max-width: 760px) { .row { grid-template-columns: 1fr; } }
@media print { section { break-inside: avoid; } svg { print-color-adjust: exact; } }
";
/// The height of the bars in units of the picture.
const HEIGHT: f64 = 100.0;

/// Renders the file.
pub fn render(entries: &[Entry], unread: usize) -> String {
    let mut out = begin("From build to build", &[STYLE]);
    if unread > 0 {
        let lines = skinflint_view::units::plural(unread as u64, "line");
        let _ = writeln!(
            out,
            "<p class=\"warn\">{lines} could not be read and are left out.</p>"
        );
    }
    out.push_str("</header>\n<main>\n");
    for (program, own) in programs(entries) {
        let _ = writeln!(
            out,
            "<section><h2>{}</h2>\n<p class=\"soft\">{}</p>",
            escape(program),
            escape(&summary(&own))
        );
        for series in series(&own) {
            row(&mut out, &series);
        }
        out.push_str("</section>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn row(out: &mut String, series: &Series<'_>) {
    let values = &series.values;
    let least = values.iter().copied().min().unwrap_or(0);
    let most = values.iter().copied().max().unwrap_or(0);
    let steps = series.steps();
    let count = values.len() as f64;
    let _ = write!(
        out,
        "<div class=\"row\"><p><b>{}</b><br><span class=\"small soft\">{} to {}</span></p><svg viewBox=\"0 0 {count} {HEIGHT}\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{0} over {count} builds\">",
        escape(series.name),
        series.kind.shown(least),
        series.kind.shown(most)
    );
    for (at, value) in values.iter().enumerate() {
        let part = (value - least) as f64 / most.abs_diff(least).max(1) as f64;
        let height = HEIGHT * (0.1 + 0.9 * part);
        let class = match steps.iter().any(|step| step.at == at) {
            true => "step",
            false => "bar",
        };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{:.2}\" y=\"{:.1}\" width=\".9\" height=\"{height:.1}\"><title>{}: {}</title></rect>",
            at as f64 + 0.05,
            HEIGHT - height,
            escape(&named(series.label(at))),
            series.kind.shown(*value)
        );
    }
    let (first, last) = (values[0], values[values.len() - 1]);
    let _ = write!(
        out,
        "</svg><p>{} … {}",
        series.kind.shown(first),
        series.kind.shown(last)
    );
    for step in &steps {
        let _ = write!(
            out,
            "<br><span class=\"up\">{}</span>",
            escape(&told(series, step))
        );
    }
    out.push_str("</p></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Range;

    #[test]
    fn a_page_has_each_build_and_marks_its_step() {
        let mut entries: Vec<Entry> = (0..10)
            .map(|build| Entry {
                schema: 1,
                label: format!("<b{build}>"),
                program: "a&b".into(),
                complete: true,
                figures: [(
                    "peak-live".to_owned(),
                    Range::exact(if build < 6 { 100 << 20 } else { 105 << 20 }),
                )]
                .into(),
                ..Entry::default()
            })
            .collect();
        entries[2].complete = false;
        let page = render(&entries, 1);
        assert!(page.contains("1 line could not be read"), "{page}");
        assert!(page.contains("<h2>a&amp;b</h2>"), "{page}");
        assert_eq!(
            page.matches("<rect class=\"bar\"").count(),
            8,
            "nine complete builds, one of them a step: {page}"
        );
        let marked = "<rect class=\"step\" x=\"5.05\" y=\"0.0\" width=\".9\" height=\"100.0\"><title>&lt;b6&gt;: 105 MiB</title>";
        assert!(page.contains(marked), "{page}");
        assert!(
            page.contains("+5.0% at &lt;b6&gt;: 100 MiB to 105 MiB"),
            "{page}"
        );
        assert!(
            page.contains("height=\"10.0\"><title>&lt;b0&gt;: 100 MiB"),
            "{page}"
        );
        assert!(
            !page.contains("<b6>") && !page.contains("<script"),
            "{page}"
        );
    }
}
