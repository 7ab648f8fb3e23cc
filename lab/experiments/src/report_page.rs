//! The results as one HTML file, in the look of our other pages.
//!
//! ```text
//!   sentence, machine ─► each author: each experiment: source, when ─► claim │ figure │ ours │ command │ verdict
//! ```
//!
//! P1  The file makes no request and runs nothing.
//! P2  All text is escaped; what commands said is data.
//! P3  Colour never carries meaning alone: a verdict is words.
//! P4  Below 760 pixels a row is a block whose cells have their names: nothing is cut, and nothing scrolls sideways.
//!
//! Not here: the look (`view`), words (shown.rs).

use std::fmt::Write as _;

use skinflint_view::html::{begin, escape};

use crate::agreement::Verdict;
use crate::shown;
use crate::table::{Part, authors, command, commands, machine, verdicts, when};

/// The style that this page needs beyond the common one.
const OWN_STYLE: &str = "
table.lab { table-layout: fixed; } table.lab th { white-space: normal; } table.lab td { overflow-wrap: anywhere; }
table.lab col.c1 { width: 25%; } table.lab col.c2 { width: 15%; } table.lab col.c3 { width: 19%; } table.lab col.c4 { width: 22%; }
td.good { color: var(--good); font-weight: 600; } td.bad { color: var(--warn); font-weight: 600; }
table.lab td.command { font-family: var(--mono); font-size: 11.5px; color: var(--soft); }
pre.commands { white-space: pre-wrap; overflow-wrap: anywhere; margin: 4px 0 8px; }
h2.author { margin: 26px 0 0; font-size: 18px; } section h3 { margin: 0 0 4px; font-size: 15px; }
@media (max-width: 760px) {
  table.lab, table.lab tbody, table.lab tr, table.lab td { display: block; width: auto; } table.lab thead, table.lab colgroup { display: none; }
  table.lab tr { border-bottom: 1px solid var(--line); padding: 8px 0; } table.lab td { border: 0; padding: 1px 0; }
  table.lab td[data-name]::before { content: attr(data-name) ': '; font-family: system-ui, sans-serif; font-weight: 400; color: var(--soft); font-size: 12px; }
  table.lab td:first-child { font-weight: 600; }
}
@media print { section { break-inside: avoid; } }
";

/// Renders the file.
pub fn render(parts: &[Part<'_>]) -> String {
    let mut out = begin("Claims, and what our commands show", &[OWN_STYLE]);
    let all = verdicts(parts);
    let is_good = !all
        .iter()
        .any(|one| matches!(one, Verdict::Missed | Verdict::Failed));
    let _ = writeln!(
        out,
        "<p class=\"status{}\"><b>{}</b></p>",
        if is_good { "" } else { " warn" },
        escape(&shown::sentence(&all))
    );
    if let Some(machine) = machine(parts) {
        let _ = writeln!(out, "<p class=\"soft\">{}</p>", escape(&machine));
    }
    out.push_str(
        "<p class=\"soft\">An interval in square brackets is where one more run would lie, 19 times in 20. <span class=\"mono\">\
         skinflint lab run NAME</span> repeats an experiment.</p>\n</header>\n<main>\n",
    );
    for author in authors(parts) {
        let _ = writeln!(out, "<h2 class=\"author\">{}</h2>", escape(author));
        for part in parts.iter().filter(|part| part.experiment.of == author) {
            experiment(&mut out, part);
        }
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn experiment(out: &mut String, part: &Part<'_>) {
    let experiment = part.experiment;
    let ran = part
        .outcome
        .map_or_else(|| "There is no result.".to_owned(), when);
    let _ = write!(
        out,
        "<section id=\"{0}\">\n<h3>{0}</h3>\n<p>{1} {2}</p>\n<p class=\"small soft\"><span class=\"mono\">skinflint lab run \
         {0}</span>: {3}</p>\n",
        escape(&experiment.name),
        escape(&experiment.source),
        escape(&experiment.about),
        escape(&ran),
    );
    let _ = writeln!(
        out,
        "<details><summary class=\"small\">all its commands</summary><pre class=\"mono commands\">{}</pre></details>",
        escape(&commands(experiment))
    );
    out.push_str(
        "<table class=\"lab\"><colgroup><col class=\"c1\"><col class=\"c2\"><col class=\"c3\"><col class=\"c4\"><col></colgroup>\
         <thead><tr><th>claim</th><th>the figure</th><th>ours</th><th>command</th><th>verdict</th></tr></thead>\n<tbody>\n",
    );
    for said in &part.rows {
        let class = match said.verdict {
            Verdict::Agrees | Verdict::Holds => "good",
            Verdict::Differs | Verdict::Missed | Verdict::Failed => "bad",
            _ => "soft",
        };
        let ours = said.ours.as_ref().map(|ours| shown::ours(said.row, ours));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td data-name=\"the figure\">{}</td><td data-name=\"ours\">{}</td><td class=\"command\" \
             data-name=\"command\">{}</td><td class=\"{class}\" data-name=\"verdict\">{}</td></tr>",
            escape(&said.row.claim),
            escape(&shown::theirs(said.row)),
            escape(&ours.unwrap_or_else(|| "–".into())),
            escape(&command(part, said)),
            escape(&shown::verdict(said, part.outcome)),
        );
    }
    out.push_str("</tbody></table>\n</section>\n");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment;
    use crate::table::parts;

    #[test]
    fn the_page_has_every_claim_and_makes_no_request() {
        let table =
            experiment::table(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("sound");
        let page = render(&parts(&table, &[]));
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        for one in &table.experiments {
            for row in &one.rows {
                assert!(page.contains(&escape(&row.claim)), "{}", row.claim);
            }
        }
        assert!(!page.contains("src=") && !page.contains("<script"));
        let cells = |name: &str| page.matches(&format!("data-name=\"{name}\"")).count();
        let rows: usize = table.experiments.iter().map(|one| one.rows.len()).sum();
        for name in ["the figure", "ours", "command", "verdict"] {
            assert_eq!(cells(name), rows, "{name}");
        }
    }
}
