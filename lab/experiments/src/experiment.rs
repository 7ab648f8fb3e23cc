//! The table of experiments, as it is read.
//!
//! ```text
//!   table/*.toml of the checkout ─► Table { needs, experiments } ─► Experiment { steps: commands, rows: claims }
//! ```
//!
//! X1  Names are there once; a step saves its output under a name, and each row takes its figure from one of those.
//! X2  A row has one way to its figure: an expression, a number of a line, or a count of lines.
//! X3  A figure of a post is written as the post has it (`post`); `value` is the number that is compared. Without `post`
//!     the value is a bar of ours.
//!
//! X4  The table is the checkout's, read when it is asked for: what is run is what is written there, and the program carries
//!     no text that it cannot use without a checkout.
//!
//! Not here: running (run.rs), comparing (agreement.rs).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::take;

/// The table's folder in a checkout.
pub const FOLDER: &str = "lab/experiments/table";
/// Its files, in the order of the table.
const FILES: [&str; 7] = [
    "needs",
    "nethercote",
    "parmenter",
    "wagner",
    "evans",
    "mercadier",
    "skinflint",
];

/// The whole table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What experiments need.
    #[serde(rename = "need", default)]
    pub needs: Vec<Need>,
    /// The experiments, in the order of the table.
    #[serde(rename = "experiment", default)]
    pub experiments: Vec<Experiment>,
}

/// Something that has to be installed: all that is named has to be there.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Need {
    /// Its name, by which experiments ask for it.
    pub name: String,
    /// A program that is found by PATH.
    pub program: String,
    /// A file; placeholders as in steps.
    pub file: String,
    /// A file that can be written to.
    pub writable: String,
    /// A program of the JavaScript hosts.
    pub host: String,
    /// Whether it is the superuser.
    pub root: bool,
    /// How its version is asked for, of a program; empty: not at all.
    pub version: String,
    /// How to get it.
    pub get: String,
}

/// An experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// Whose claim it is: the author of the post, or `Skinflint`.
    pub of: String,
    /// The post or talk.
    pub source: String,
    /// What is done, in one sentence.
    pub about: String,
    /// Minutes on two processors, without the first build.
    pub minutes: f64,
    /// Whether it is one of `--quick`.
    #[serde(default)]
    pub quick: bool,
    /// How often the steps are repeated that are not `once`.
    #[serde(default = "one")]
    pub runs: u32,
    /// What has to be installed.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Commands, in order.
    #[serde(rename = "step")]
    pub steps: Vec<Step>,
    /// Claims.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

fn one() -> u32 {
    1
}

/// A command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its words: split at spaces, `'…'` is one word. `{skinflint}`, `{root}`, `{target}`, `{work}` are filled in.
    pub run: String,
    /// The name under which its output is kept.
    #[serde(default)]
    pub save: String,
    /// The file that is the output; else it is what the command prints.
    #[serde(default)]
    pub file: String,
    /// Whether it is done once, however often the others are.
    #[serde(default)]
    pub once: bool,
    /// Exit statuses that are no failure beside 0: a bench's 1 is a missed bar.
    #[serde(default)]
    pub status: Vec<i32>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Seconds that it may take.
    #[serde(default = "limit")]
    pub limit_s: u64,
}

fn limit() -> u64 {
    600
}

/// A claim, and where its figure is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The claim, as a phrase whose figure follows.
    pub claim: String,
    /// The post's figure, in its own words; empty: it has none.
    #[serde(default)]
    pub post: String,
    /// The number that ours is compared with: the post's, or else a bar.
    pub value: Option<f64>,
    /// How it is compared.
    #[serde(default)]
    pub rule: Rule,
    /// The part of the value by which ours may differ (`within`).
    #[serde(default)]
    pub part: f64,
    /// What the figure counts.
    #[serde(default)]
    pub unit: Unit,
    /// Whether it depends on what else the machine does.
    #[serde(default)]
    pub kind: Kind,
    /// The name under which a step has kept its output.
    pub from: String,
    /// An expression over its JSON.
    #[serde(default)]
    pub take: String,
    /// A text: the figure is on the first line that has it.
    #[serde(default)]
    pub line: String,
    /// Which number of that line, from 1.
    #[serde(default)]
    pub number: usize,
    /// A line: the figure is how many lines equal it.
    #[serde(default)]
    pub lines: String,
    /// A number that the figure is multiplied with.
    pub scale: Option<f64>,
    /// Rounds that the command itself made, of which the figure is the median.
    #[serde(default)]
    pub rounds: u32,
    /// Why it differs, where that is known.
    #[serde(default)]
    pub why: String,
}

/// How a figure is compared with the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Not at all.
    #[default]
    Shown,
    /// It is the same.
    Equal,
    /// It differs by at most a part of the value.
    Within,
    /// It is not less.
    AtLeast,
    /// It is not more.
    AtMost,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Things.
    #[default]
    Count,
    /// Bytes, to the byte.
    Bytes,
    /// Bytes, in MB (10^6), as the posts have them.
    Mb,
    /// A ratio.
    Ratio,
    /// A part of one.
    Share,
    /// Per cent.
    Percent,
    /// Milliseconds.
    Ms,
    /// Seconds.
    S,
}

/// What a figure depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// On nothing: it is the same in each run.
    #[default]
    Exact,
    /// On pages and moments.
    Memory,
    /// On the clock, and on whatever else runs.
    Time,
}

/// Reads the table of a checkout (X4).
///
/// # Errors
/// If it cannot be read, or is not as it should be: what and where.
pub fn table(root: &Path) -> Result<Table> {
    let mut table = Table::default();
    for name in FILES {
        let path = root.join(FOLDER).join(name).with_extension("toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let part: Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
        table.needs.extend(part.needs);
        table.experiments.extend(part.experiments);
    }
    let needs: BTreeSet<&str> = table.needs.iter().map(|need| need.name.as_str()).collect();
    let mut names = BTreeSet::new();
    for experiment in &table.experiments {
        let name = &experiment.name;
        ensure!(names.insert(name), "{name}: there are two of this name");
        check(experiment, &needs).with_context(|| name.clone())?;
    }
    Ok(table)
}

fn check(experiment: &Experiment, needs: &BTreeSet<&str>) -> Result<()> {
    for need in &experiment.needs {
        ensure!(
            needs.contains(need.as_str()),
            "needs {need}, which no [[need]] has"
        );
    }
    ensure!(experiment.runs >= 1, "runs: at least 1");
    let saved: BTreeSet<&str> = (experiment.steps.iter())
        .map(|step| step.save.as_str())
        .collect();
    for step in &experiment.steps {
        words(&step.run)?;
    }
    let mut claims = BTreeSet::new();
    for row in &experiment.rows {
        let claim = &row.claim;
        ensure!(claims.insert(claim), "{claim}: there are two such rows");
        ensure!(
            !row.from.is_empty() && saved.contains(row.from.as_str()),
            "{claim}: no step saves {}",
            row.from
        );
        let ways = [
            !row.take.is_empty(),
            !row.line.is_empty(),
            !row.lines.is_empty(),
        ];
        let ways = ways.iter().filter(|is| **is).count();
        ensure!(ways == 1, "{claim}: one of take, line, lines");
        take::check(&row.take)?;
        ensure!(
            row.value.is_some() || row.rule == Rule::Shown,
            "{claim}: nothing to compare with"
        );
    }
    Ok(())
}

/// Splits a command into its words.
///
/// # Errors
/// If a quote is open.
pub fn words(command: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for c in command.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' if !quoted => all.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quoted {
        bail!("{command}: a quote is open");
    }
    all.extend(word);
    Ok(all)
}

impl Experiment {
    /// Returns a number that changes with what is run and what is taken from it.
    pub fn definition(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        self.runs.hash(&mut hash);
        for step in &self.steps {
            (&step.run, &step.save, &step.file, step.once, &step.env).hash(&mut hash);
        }
        for row in &self.rows {
            (
                &row.claim, &row.from, &row.take, &row.line, row.number, &row.lines,
            )
                .hash(&mut hash);
            row.scale.map(f64::to_bits).hash(&mut hash);
        }
        hash.finish()
    }

    /// Returns the step that a row's figure comes from.
    pub fn step_of(&self, row: &Row) -> Option<&Step> {
        self.steps.iter().find(|step| step.save == row.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn the_table_is_sound_and_covers_the_posts() {
        let table = table(&root()).unwrap_or_else(|error| panic!("{error:#}"));
        let quick = || table.experiments.iter().filter(|one| one.quick);
        assert!(quick().count() >= 12);
        let minutes: f64 = quick().map(|one| one.minutes).sum();
        assert!(minutes <= 10.0, "{minutes} minutes");
        for author in [
            "Nethercote",
            "Parmenter",
            "Wagner",
            "Evans",
            "Mercadier",
            "Skinflint",
        ] {
            assert!(quick().any(|one| one.of == author), "{author}");
        }
    }

    #[test]
    fn what_is_wrong_in_a_table_is_named() {
        let step = "run = 'true'\nsave = 'out'\n";
        let wrong = |needs: &str, row: &str| {
            let text = format!(
                "name = 'a'\nof = 'b'\nsource = ''\nabout = ''\nminutes = 1\nneeds = [{needs}]\n[[step]]\n{step}[[row]]\n{row}"
            );
            let experiment: Experiment = toml::from_str(&text).expect("a table");
            let needs = BTreeSet::from(["gcc"]);
            format!("{:#}", check(&experiment, &needs).expect_err("wrong"))
        };
        let good = "claim = 'c'\nfrom = 'out'\ntake = 'a.b'\n";
        assert!(wrong("'valgrind'", good).contains("valgrind"));
        assert!(wrong("'gcc'", &good.replace("'out'", "'in'")).contains("no step saves in"));
        assert!(wrong("", &format!("{good}line = 'x'\n")).contains("one of take"));
        assert!(wrong("", &good.replace("a.b", "a.")).contains("name is missing"));
        assert!(wrong("", &format!("{good}rule = 'equal'\n")).contains("nothing to compare"));
    }

    #[test]
    fn words_of_a_command() {
        assert_eq!(words("a  'b c' d''").expect("words"), ["a", "b c", "d"]);
        assert_eq!(words("a ''").expect("words"), ["a", ""]);
        assert!(words("a 'b").is_err());
    }

    #[test]
    fn another_command_is_another_definition() {
        let table = table(&root()).expect("sound");
        let mut seen = BTreeSet::new();
        assert!(
            table
                .experiments
                .iter()
                .all(|one| seen.insert(one.definition()))
        );
    }
}
