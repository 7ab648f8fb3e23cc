//! `skinflint lab`: claims of posts and talks beside what our commands show.
//!
//! ```text
//!   list ─► table::list      run NAME… ─► run::Lab ─► NAME.json      report ─► table::markdown, report_page::render
//! ```
//!
//! Not here: the experiments, what runs them and what is concluded (`experiments`).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args as ClapArgs, Subcommand};
use skinflint_compare::{interrupts, run as running};
use skinflint_experiments::agreement::{self, Verdict};
use skinflint_experiments::checkout::Checkout;
use skinflint_experiments::experiment::{self, Experiment, Table};
use skinflint_experiments::outcome::{Outcome, State};
use skinflint_experiments::run::{Done, Lab};
use skinflint_experiments::{report_page, shown, table};

pub const HELP: &str = "\
Examples:
  skinflint lab list                     # what there is, whose claim, minutes, what is missing here
  skinflint lab run --quick              # at most ten minutes; what has a result of this commit is not run again
  skinflint lab run chunks triggers      # by name; `lab run --all` takes hours, and goes on where it was ended
  skinflint lab report --html lab.html   # the table on stdout, and as a page

It works in a source checkout with a release build (cargo build --release): experiments call bench/,
cargo and this program. Results are JSON, a file for each experiment, in target/lab/results or in
--dir. An experiment whose programs are not installed counts as not run, and says what to install.
Exit status of run: 1 if an experiment failed. docs/lab.md explains.";

#[derive(ClapArgs, Debug)]
pub struct LabArgs {
    /// What to do
    #[command(subcommand)]
    pub action: LabAction,
}

#[derive(Subcommand, Debug)]
pub enum LabAction {
    /// List the experiments: whose claim, minutes, what has to be installed
    List(Place),

    /// Run experiments, and keep their results
    Run(RunArgs),

    /// Print what the results say to each claim, as a table in Markdown
    Report(ReportArgs),
}

/// Where the laboratory is.
#[derive(ClapArgs, Debug)]
pub struct Place {
    /// The source checkout [default: the one around the current folder, or the one that this program was built in]
    #[arg(long, value_name = "FOLDER")]
    pub root: Option<PathBuf>,

    /// The folder of results [default: target/lab/results]
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

#[derive(ClapArgs, Debug)]
pub struct RunArgs {
    /// Experiments
    #[arg(value_name = "NAME", required_unless_present_any = ["all", "quick"])]
    pub names: Vec<String>,

    /// Run all of them
    #[arg(long, conflicts_with_all = ["names", "quick"])]
    pub all: bool,

    /// Run the quick ones: ten minutes at most
    #[arg(long, conflicts_with = "names")]
    pub quick: bool,

    /// Run again what has a result of this commit
    #[arg(long)]
    pub again: bool,

    #[command(flatten)]
    pub place: Place,
}

#[derive(ClapArgs, Debug)]
pub struct ReportArgs {
    /// Write a page, too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the table into this file instead of printing it
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    #[command(flatten)]
    pub place: Place,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// If there is no checkout, no such experiment, or a file cannot be read or written.
pub fn lab(args: &LabArgs) -> Result<u8> {
    let place = match &args.action {
        LabAction::List(place) => place,
        LabAction::Run(args) => &args.place,
        LabAction::Report(args) => &args.place,
    };
    let checkout = Checkout::find(place.root.as_deref())?;
    let table = experiment::table(&checkout.root)?;
    match &args.action {
        LabAction::List(place) => list(&table, &checkout, place),
        LabAction::Run(args) => run(&table, &checkout, args),
        LabAction::Report(args) => report(&table, &checkout, args),
    }
}

fn results(place: &Place, checkout: &Checkout) -> PathBuf {
    let usual = || checkout.target.join("lab/results");
    place.dir.clone().unwrap_or_else(usual)
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("the path of this program cannot be found")
}

fn list(table: &Table, checkout: &Checkout, place: &Place) -> Result<u8> {
    let results = results(place, checkout);
    let lab = Lab {
        table,
        checkout,
        results: &results,
        skinflint: this_program()?,
        again: false,
    };
    let missing = |one: &Experiment| lab.missing(one);
    let text = table::list(table, &missing);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(0)
}

/// Returns the experiments that are to run, in the order of the table.
fn chosen<'a>(table: &'a Table, args: &RunArgs) -> Result<Vec<&'a Experiment>> {
    let known = |name: &String| table.experiments.iter().any(|one| one.name == *name);
    if let Some(wrong) = args.names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = table
            .experiments
            .iter()
            .map(|one| one.name.as_str())
            .collect();
        bail!("{wrong}: no such experiment; there are {}", all.join(", "));
    }
    let is_meant =
        |one: &&Experiment| args.all || args.quick && one.quick || args.names.contains(&one.name);
    Ok(table.experiments.iter().filter(is_meant).collect())
}

fn run(table: &Table, checkout: &Checkout, args: &RunArgs) -> Result<u8> {
    let chosen = chosen(table, args)?;
    let results = results(&args.place, checkout);
    let lab = Lab {
        table,
        checkout,
        results: &results,
        skinflint: this_program()?,
        again: args.again,
    };
    interrupts::install_handlers();
    let begun = Instant::now();
    let mut verdicts = Vec::new();
    let mut failed = 0;
    for (at, one) in chosen.iter().enumerate() {
        ensure!(
            !running::is_interrupted(),
            "interrupted; what was finished is kept"
        );
        say!(
            "[{}/{}] {} ({} min): {}",
            at + 1,
            chosen.len(),
            one.name,
            one.minutes,
            one.about
        );
        let (outcome, how) = match lab.run(one)? {
            Done::Now(outcome) => (outcome, ""),
            Done::Kept(outcome) => (outcome, ", of this commit already (--again runs it again)"),
        };
        failed += u32::from(outcome.state == State::Failed);
        let said = agreement::of(one, Some(&outcome));
        verdicts.extend(said.iter().map(|said| said.verdict));
        tell(&said, &outcome, how);
    }
    say!(
        "\n{} {:.0} s. Results: {}",
        shown::sentence(&verdicts),
        begun.elapsed().as_secs_f64(),
        results.display()
    );
    Ok(u8::from(failed > 0))
}

/// Prints what came of one experiment.
fn tell(said: &[agreement::Said<'_>], outcome: &Outcome, how: &str) {
    match outcome.state {
        State::Ran => say!("      {:.1} s{how}", outcome.seconds),
        State::NotRun | State::Failed => {
            let first = said.first().map(|said| shown::verdict(said, Some(outcome)));
            say!("      {}", first.unwrap_or_default());
            return;
        }
    }
    for said in said {
        let ours = said.ours.as_ref().map(|ours| shown::ours(said.row, ours));
        let mark = match said.verdict {
            Verdict::Differs | Verdict::Missed => "≠",
            Verdict::Shown => " ",
            _ => "=",
        };
        say!(
            "    {mark} {}: {} ({})",
            said.row.claim,
            ours.unwrap_or_default(),
            shown::theirs(said.row)
        );
    }
}

fn report(table: &Table, checkout: &Checkout, args: &ReportArgs) -> Result<u8> {
    let results = results(&args.place, checkout);
    let mut outcomes = Vec::new();
    for one in &table.experiments {
        outcomes.extend(Outcome::load(&results, &one.name)?);
    }
    ensure!(
        !outcomes.is_empty(),
        "{}: there is no result; `skinflint lab run --quick` makes some",
        results.display()
    );
    let parts = table::parts(table, &outcomes);
    if let Some(file) = &args.html {
        write(file, &report_page::render(&parts))?;
    }
    let text = table::markdown(&parts);
    match &args.markdown {
        Some(file) => write(file, &text)?,
        None => io::stdout().lock().write_all(text.as_bytes())?,
    }
    Ok(0)
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("{}: cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_chosen_by_name_and_by_pace() {
        let table = experiment::table(&Checkout::find(None).expect("tests run in one").root)
            .expect("sound");
        let args = |names: &[&str], all, quick| RunArgs {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            all,
            quick,
            again: false,
            place: Place {
                root: None,
                dir: None,
            },
        };
        let all = chosen(&table, &args(&[], true, false)).expect("all");
        let quick = chosen(&table, &args(&[], false, true)).expect("quick");
        assert_eq!(all.len(), table.experiments.len());
        assert!(quick.len() < all.len() && quick.iter().all(|one| one.quick));
        let two = chosen(&table, &args(&["growth", "chunks"], false, false)).expect("two");
        assert_eq!(two.len(), 2);
        let wrong = chosen(&table, &args(&["grwth"], false, false)).expect_err("no such one");
        assert!(wrong.to_string().contains("there are growth, "), "{wrong}");
    }
}
