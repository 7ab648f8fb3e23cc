//! `skinflint tabs`: memory tests in real browsers.
//!
//! ```text
//!   plan, browsers, pages ─► browser::series ─► DIR: run.json, samples.jsonl of each run, result.json, index.html, .png
//!                                          └──► stdout: the table, or --json
//! ```
//!
//! T1  If it is run again with the same folder, it continues where it was: complete runs are not repeated.
//! T2  Status 0: all runs are complete; 1: some are not; 2: wrong use, or nothing could be begun; 130: interrupted. With
//!     --fail-if, 3: a condition is met; 4: none is met, and one is not decided.
//!
//! Not here: the runs themselves (`browser`).

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args as ClapArgs;
use skinflint_browser::fail_if::{self, Condition, Judged};
use skinflint_browser::plan::{self, Kind, Plan};
use skinflint_browser::result::Series;
use skinflint_browser::run::Run;
use skinflint_browser::series::{self, Request};
use skinflint_browser::{corpus, pages, png, subjects, table};
use skinflint_heap_snapshot::leaks;
use skinflint_launch::installed;

pub const HELP: &str = "\
Examples:
  skinflint tabs                                        # 319 loads, two browsers, 5 times
  skinflint tabs --cycles 2 --runs 1 --rest 30          # the same, small
  skinflint tabs --plan scale --runs 3 -o scale         # 150 tabs, and Octane with 1 and with 150
  skinflint tabs --plan shared --browser webkit --with glibc,jemalloc,mimalloc,skinflint
  skinflint tabs --plan programs --browser js,js/stock  # our JavaScript host, on both heaps
  skinflint tabs --browser mine='./app --open {url}'    # any program: a page opens the windows
  skinflint tabs --cycles 5 --fail-if 'left > 1.2 * one' --fail-if 'growth > 4MiB'
  skinflint tabs --record mine.har https://example.org/
  skinflint tabs --replay mine.har --keep 10 --cycles 20

Plans: cycle, scale, slim, shared, programs, or a TOML file (docs/tabs.md). Browsers: chromium,
firefox, webkit, js; the driver follows after a slash: chromium/cdp, chromium/page,
firefox/marionette, firefox/bidi, firefox/page. Run again with the same -o, it goes on where it
was. `make tabs-deps` installs browsers and their drivers.";

#[derive(ClapArgs, Debug)]
pub struct TabsArgs {
    /// The plan: cycle, scale, slim, shared, programs, or a TOML file
    #[arg(long, value_name = "PLAN", default_value = "cycle")]
    pub plan: String,

    /// Browsers, with commas or repeated
    #[arg(
        long,
        value_name = "B,C",
        value_delimiter = ',',
        default_value = "chromium,firefox"
    )]
    pub browser: Vec<String>,

    /// Run each browser under these allocators (webkit, js, and commands): names, own, or paths
    #[arg(long, alias = "allocators", value_name = "A,B", value_delimiter = ',')]
    pub with: Vec<String>,

    /// Fail (status 3) if this is so of a browser: FIGURE > FIGURE, with numbers, + - * / and ( ); may be given several
    /// times. In Chromium the objects of what was taken out of its page are then told, each kind with what retains it
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,

    /// Runs of each
    #[arg(long, alias = "repeat", value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,

    /// Folder for results [default: tabs-PLAN]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// Pages instead of the plan's: corpus, light, shared, names, .js files, addresses
    #[arg(long, value_name = "P,Q", value_delimiter = ',')]
    pub pages: Vec<String>,

    /// Number of pages; 0 is all
    #[arg(long, value_name = "N")]
    pub page_count: Option<u32>,

    /// Passes through the pages
    #[arg(long, value_name = "N")]
    pub cycles: Option<u32>,

    /// Windows that stay open; 0 keeps all
    #[arg(long, value_name = "N")]
    pub keep: Option<u32>,

    /// Time between the beginnings of two loads
    #[arg(long, value_name = "SECONDS")]
    pub interval: Option<f64>,

    /// Wait after start, last load and close
    #[arg(long, value_name = "SECONDS")]
    pub settle: Option<f64>,

    /// Further wait after the close
    #[arg(long, value_name = "SECONDS")]
    pub rest: Option<f64>,

    /// A load that takes longer has failed
    #[arg(long, value_name = "SECONDS")]
    pub load_timeout: Option<f64>,

    /// Windows or tabs
    #[arg(long, value_name = "KIND", value_parser = ["window", "tab"])]
    pub kind: Option<String>,

    /// Milliseconds between two samples
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    pub sample: u64,

    /// Run all browsers of a repetition at the same time: sooner done, at the cost of slower loads
    #[arg(long)]
    pub parallel: bool,

    /// Show windows on a display of their own (Xvfb) instead of headless
    #[arg(long)]
    pub headful: bool,

    /// Pages out of a HAR recording
    #[arg(long, value_name = "HAR", conflicts_with = "pages")]
    pub replay: Vec<PathBuf>,

    /// Record pages of the web into this HAR file, and do nothing else
    #[arg(long, value_name = "HAR", requires = "urls")]
    pub record: Option<PathBuf>,

    /// Addresses to record
    #[arg(value_name = "URL", requires = "record")]
    pub urls: Vec<String>,

    /// Folder for pages and drivers [default: ~/.cache/skinflint/tabs]
    #[arg(long, value_name = "FOLDER")]
    pub cache: Option<PathBuf>,

    /// Fetch the plan's pages and the driver, and do nothing else
    #[arg(long)]
    pub fetch: bool,

    /// Write everything as JSON to stdout instead of the table
    #[arg(long)]
    pub json: bool,

    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Does what was asked. Returns the exit status.
///
/// # Errors
/// Whatever keeps the runs from being begun.
pub fn tabs(args: &TabsArgs) -> Result<u8> {
    let cache = match &args.cache {
        Some(folder) => std::path::absolute(folder)?,
        None => corpus::default_cache()?,
    };
    if let Some(file) = &args.record {
        return record(args, file, &cache);
    }
    let mut plan = planned(args)?;
    let conditions: Result<Vec<Condition>, String> = args
        .fail_if
        .iter()
        .map(|text| Condition::parse(text))
        .collect();
    let conditions = conditions.map_err(|why| anyhow!(why))?;
    if !conditions.is_empty() {
        plan.snapshots = true;
        plan.one_open |= conditions
            .iter()
            .any(|one| one.names("one") || one.names("one_open"));
    }
    if args.fetch {
        return fetch(args, &plan, &cache);
    }
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("tabs-{}", plan.name)));
    let quiet = args.quiet;
    let progress = move |text: &str| {
        if !quiet {
            say!("skinflint: {text}");
        }
    };
    let request = Request {
        plan,
        subjects: subjects::named(&args.browser, &args.with)?,
        repeat: args.runs,
        out: std::path::absolute(&output)?,
        cache,
        probe: installed::probe().map_or_else(
            |error| {
                if !args.with.is_empty() {
                    say!("skinflint: calls are not counted: {error:#}");
                }
                None
            },
            Some,
        ),
        replay: args.replay.clone(),
        headful: args.headful,
        interval: Duration::from_millis(args.sample),
        command: std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        parallel: args.parallel,
        progress: &progress,
    };
    let series = series::series(&request)?;
    let picture = output.join("index.png");
    if !series.interrupted
        && let Err(error) = png::draw(&output.join("index.html"), &picture)
    {
        say!("skinflint: no PNG: {error:#}");
    }
    let judged = fail_if::judge(&series, &conditions);
    let mut out = io::stdout().lock();
    if args.json {
        let mut told = serde_json::to_value(&series)?;
        if !judged.is_empty() {
            told["conditions"] = serde_json::to_value(&judged)?;
        }
        serde_json::to_writer_pretty(&mut out, &told)?;
        writeln!(out)?;
    } else {
        out.write_all(table::render(&series).as_bytes())?;
        out.write_all(fail_if::render(&judged).as_bytes())?;
        out.write_all(leaked(&series, &judged, &request.out).as_bytes())?;
    }
    progress(&format!(
        "{}, index.png, result.json, runs/",
        output.join("index.html").display()
    ));
    let complete = series.runs.iter().all(|run| run.complete);
    let any = |is_met| judged.iter().any(|one| one.is_met == is_met);
    Ok(match (series.interrupted, complete) {
        (true, _) => 130,
        _ if any(Some(true)) => 3,
        (false, false) => 1,
        (false, true) if any(None) => 4,
        (false, true) => 0,
    })
}

/// Tells what is left in the pages of browsers that failed, and what retains it, out of the last complete run.
fn leaked(series: &Series, judged: &[Judged], folder: &Path) -> String {
    const ROWS: usize = 5;
    let mut text = String::new();
    for row in &series.rows {
        let has_failed = |one: &Judged| one.label == row.label && one.is_met == Some(true);
        if !judged.iter().any(has_failed) {
            continue;
        }
        let own = |run: &&Run| run.complete && run.subject.label == row.label;
        let Some(run) = series.runs.iter().rfind(own) else {
            continue;
        };
        let name = format!("{}-{}", run.subject.label, run.repetition);
        for file in run
            .reports
            .iter()
            .filter(|file| file.ends_with(".heapsnapshot"))
        {
            let path = folder.join("runs").join(&name).join(file);
            text += &format!("{}:\n", path.display());
            match leaks::detached(&path, ROWS) {
                Ok(table) => text += &table.text,
                Err(error) => text += &format!("  {error:#}\n"),
            }
        }
    }
    text
}

fn planned(args: &TabsArgs) -> Result<Plan> {
    let mut plan = plan::load(&args.plan)?;
    if !args.replay.is_empty() {
        plan.pages = args
            .replay
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        plan.page_count = 0;
    } else if !args.pages.is_empty() {
        plan.pages.clone_from(&args.pages);
        plan.page_count = 0;
    }
    let set = |to: &mut u32, from: Option<u32>| *to = from.unwrap_or(*to);
    set(&mut plan.page_count, args.page_count);
    set(&mut plan.cycles, args.cycles);
    set(&mut plan.keep, args.keep);
    let set = |to: &mut f64, from: Option<f64>| *to = from.unwrap_or(*to);
    set(&mut plan.interval_s, args.interval);
    set(&mut plan.settle_s, args.settle);
    set(&mut plan.rest_s, args.rest);
    set(&mut plan.load_timeout_s, args.load_timeout);
    match args.kind.as_deref() {
        Some("tab") => plan.kind = Kind::Tab,
        Some(_) => plan.kind = Kind::Window,
        None => {}
    }
    plan.check()?;
    Ok(plan)
}

fn record(args: &TabsArgs, file: &Path, cache: &Path) -> Result<u8> {
    let unfinished = png::record(&args.urls, file, cache)
        .with_context(|| format!("--record {}", file.display()))?;
    if unfinished > 0 {
        say!(
            "skinflint: {} without an answer when their page was left: not in the recording",
            skinflint_view::units::plural(unfinished, "request")
        );
    }
    Ok(0)
}

fn fetch(args: &TabsArgs, plan: &Plan, cache: &Path) -> Result<u8> {
    for package in pages::packages(plan)? {
        if !args.quiet {
            say!(
                "skinflint: {} {} ({})",
                package.name,
                package.version,
                package.licence
            );
        }
        corpus::fetch(&package, cache)?;
    }
    skinflint_browser::drive::node::install(cache)?;
    Ok(0)
}
