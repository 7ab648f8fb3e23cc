//! What each command does.
//!
//! ```text
//!   Command ─► asks an engine, or writes tables ─► stdout: results     stderr: what was done
//! ```
//!
//! Not here: words (args.rs), SQL and figures (questions/).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command as Process;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value as Json, json};
use skinflint_fleet_tables::files::{Locked, Root};
use skinflint_fleet_tables::ingest::{Said, ingest};
use skinflint_fleet_tables::law::{BUILDS, Event, Law, ProcessLaw, Service};
use skinflint_fleet_tables::merge::{Keep, retain};
use skinflint_fleet_tables::{clock, generate, law};

use crate::args::{
    Args, Asked, Command, GenerateArgs, IngestArgs, RegressionsArgs, RetainArgs, SqlArgs, TopArgs,
    WhereArgs,
};
use crate::engine::Engine;
use crate::engines;
use crate::questions::regressions::{FEWEST, Regression};
use crate::questions::{Period, Scope, filtered, pinned, regressions, top, whatif};
use crate::rows::Answer;
use crate::serve::Serving;
use crate::show::{Side, bytes, share, table};

/// Does what was asked; results go to `out`.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let asker = || -> Result<Box<dyn Engine>> {
        let root = Root::open(&args.root)?;
        engines::open(
            &root,
            args.engine.as_deref(),
            args.memory as usize * 1024 * 1024,
        )
    };
    let writer = || Root::create(&args.root)?.lock();
    match &args.command {
        Command::Top(words) => show_top(&*asker()?, words, out),
        Command::Regressions(words) => show_regressions(&*asker()?, words, out),
        Command::Pinned(words) => show_pinned(&*asker()?, words, out),
        Command::Where(words) => show_where(&*asker()?, words, out),
        Command::Whatif(words) => show_whatif(&*asker()?, words, out),
        Command::Sql(words) => show_sql(&*asker()?, words, out),
        Command::Serve(words) => serve(words.listen, &asker, out),
        Command::Ingest(words) => take_in(&writer()?, words, out),
        Command::Retain(words) => keep(&writer()?, words, out),
        Command::Generate(words) => simulate(&writer()?, words, out),
        Command::Schema => Ok(out.write_all(chapter().as_bytes())?),
        Command::Duckdb => views(&Root::open(&args.root)?, &of_duckdb, out),
        Command::Clickhouse => views(&Root::open(&args.root)?, &of_clickhouse, out),
    }
}

fn scope(engine: &dyn Engine, asked: &Asked) -> Result<Scope> {
    Scope::new(engine, asked.day.as_deref(), asked.service.as_deref())
}

/// Writes SQL statements, each ended.
fn print_sql(out: &mut dyn Write, statements: &[String]) -> Result<()> {
    for statement in statements {
        writeln!(out, "{statement};")?;
    }
    Ok(())
}

fn print_json(out: &mut dyn Write, value: &Json) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

fn period_json(scope: &Scope, period: &Period) -> Json {
    json!({
        "days": scope.words(),
        "minutes": period.minutes,
        "resident_byte_min": period.resident_byte_min,
        "live_byte_min": period.live_byte_min,
        "processes": period.processes,
        "hosts": period.hosts,
    })
}

/// Writes the line above each table: what all of it is of.
fn head(out: &mut dyn Write, scope: &Scope, period: &Period) -> Result<()> {
    let resident = bytes(period.mean(period.resident_byte_min));
    let live = bytes(period.mean(period.live_byte_min));
    writeln!(
        out,
        "{}: {} processes on {} machines, on average {resident} resident, {live} in use",
        scope.words(),
        period.processes,
        period.hosts
    )?;
    Ok(())
}

fn show_top(engine: &dyn Engine, words: &TopArgs, out: &mut dyn Write) -> Result<()> {
    let scope = scope(engine, &words.asked)?;
    let sql = top::sql(&scope, words.by, words.asked.rows, None);
    if words.asked.print_sql {
        return print_sql(out, &[Period::sql(&scope), Period::live_sql(&scope), sql]);
    }
    let period = Period::of(engine, &scope)?;
    let rows = top::ask(engine, &sql, words.by)?;
    write_top(&rows, words.by, (&scope, &period), words.asked.json, out)
}

fn write_top(
    rows: &[top::Top],
    by: top::By,
    (scope, period): (&Scope, &Period),
    as_json: bool,
    out: &mut dyn Write,
) -> Result<()> {
    if as_json {
        let rows: Vec<Json> = rows.iter().map(|row| row.json(period)).collect();
        return print_json(
            out,
            &json!({"period": period_json(scope, period), "rows": rows}),
        );
    }
    head(out, scope, period)?;
    let name = match by {
        top::By::Stack => "stack",
        top::By::Function => "function, with what it calls",
        top::By::Service => "service",
        top::By::Build => "build",
        top::By::Host => "machine",
    };
    let columns = [
        ("in use", Side::Right),
        ("±", Side::Right),
        ("share", Side::Right),
        ("slop", Side::Right),
        ("pinned", Side::Right),
        ("allocated", Side::Right),
        ("processes", Side::Right),
        ("service", Side::Left),
        (name, Side::Left),
    ];
    let cells = |row: &top::Top| {
        vec![
            bytes(period.mean(row.live_byte_min)),
            bytes(period.half(row.live_var_min)),
            share(row.live_byte_min as f64, period.live_byte_min as f64),
            bytes(period.mean(row.slop_byte_min)),
            bytes(period.mean(row.pinned_byte_min)),
            bytes(row.alloc_bytes as f64),
            row.processes.to_string(),
            row.service.clone(),
            row.name.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    Ok(table(out, &columns, &rows)?)
}

fn show_regressions(
    engine: &dyn Engine,
    words: &RegressionsArgs,
    out: &mut dyn Write,
) -> Result<()> {
    let scope = scope(engine, &words.asked)?;
    let (from, to) = (words.from.as_str(), words.to.as_str());
    if words.asked.print_sql {
        let counted = regressions::count_sql(&scope, from, to);
        return print_sql(out, &[counted, regressions::sql(&scope, from, to)]);
    }
    let found = regressions::ask(engine, &scope, from, to, words.asked.rows)?;
    if words.asked.json {
        let rows: Vec<Json> = found.rows.iter().map(Regression::json).collect();
        let all = json!({"days": scope.words(), "comparisons": found.comparisons, "left_out": found.left_out, "rows": rows});
        return print_json(out, &all);
    }
    writeln!(
        out,
        "{}: a process under {to} against one under {from}; what grew for certain, of {} comparisons",
        scope.words(),
        found.comparisons
    )?;
    let columns = regressions::COLUMNS.map(|(name, is_number)| match is_number {
        true => (name, Side::Right),
        false => (name, Side::Left),
    });
    let rows: Vec<Vec<String>> = found.rows.iter().map(Regression::cells).collect();
    match rows.is_empty() {
        true => writeln!(out, "nothing grew for certain")?,
        false => table(out, &columns, &rows)?,
    }
    for service in &found.left_out {
        writeln!(
            out,
            "{service}: fewer than {FEWEST:.0} processes of a build, not compared"
        )?;
    }
    Ok(())
}

fn show_pinned(engine: &dyn Engine, asked: &Asked, out: &mut dyn Write) -> Result<()> {
    let scope = scope(engine, asked)?;
    let sql = pinned::sql(&scope, asked.rows);
    if asked.print_sql {
        return print_sql(out, &[Period::sql(&scope), Period::live_sql(&scope), sql]);
    }
    let period = Period::of(engine, &scope)?;
    let rows = pinned::ask(engine, &sql)?;
    if asked.json {
        let rows: Vec<Json> = rows.iter().map(|row| row.json(&period)).collect();
        return print_json(
            out,
            &json!({"period": period_json(&scope, &period), "rows": rows}),
        );
    }
    head(out, &scope, &period)?;
    let columns = [
        ("pinned", Side::Right),
        ("of resident", Side::Right),
        ("in use", Side::Right),
        ("processes", Side::Right),
        ("machines", Side::Right),
        ("service", Side::Left),
        ("stack", Side::Left),
    ];
    let cells = |row: &pinned::Pinned| {
        vec![
            bytes(period.mean(row.pinned_byte_min)),
            share(row.pinned_byte_min as f64, period.resident_byte_min as f64),
            bytes(period.mean(row.live_byte_min)),
            row.processes.to_string(),
            row.hosts.to_string(),
            row.service.clone(),
            row.name.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    Ok(table(out, &columns, &rows)?)
}

fn show_where(engine: &dyn Engine, words: &WhereArgs, out: &mut dyn Write) -> Result<()> {
    let scope = scope(engine, &words.asked)?;
    let most = if words.flame {
        filtered::STACKS
    } else {
        words.asked.rows
    };
    let sql = top::sql(&scope, top::By::Stack, most, Some(&words.condition));
    if words.asked.print_sql {
        return print_sql(out, &[Period::sql(&scope), Period::live_sql(&scope), sql]);
    }
    let period = Period::of(engine, &scope)?;
    let rows =
        top::ask(engine, &sql, top::By::Stack).with_context(|| format!("`{}`", words.condition))?;
    match words.flame {
        true => filtered::flame(engine, &rows, &period, out),
        false => write_top(
            &rows,
            top::By::Stack,
            (&scope, &period),
            words.asked.json,
            out,
        ),
    }
}

fn show_whatif(engine: &dyn Engine, asked: &Asked, out: &mut dyn Write) -> Result<()> {
    let scope = scope(engine, asked)?;
    let sql = whatif::sql(&scope, asked.rows);
    let (sum, kept) = (whatif::sum_sql(&scope), whatif::kept_sql(&scope));
    if asked.print_sql {
        return print_sql(
            out,
            &[
                Period::sql(&scope),
                Period::live_sql(&scope),
                sum,
                kept,
                sql,
            ],
        );
    }
    let period = Period::of(engine, &scope)?;
    let saved = engine.answer(&sum)?.one()?.int("saved")?;
    let kept = engine.answer(&kept)?.one()?.int("kept")?;
    let rows = whatif::ask(engine, &sql)?;
    if asked.json {
        let rows: Vec<Json> = rows.iter().map(|row| row.json(&period)).collect();
        let period = period_json(&scope, &period);
        return print_json(
            out,
            &json!({"period": period, "saved_byte_min": saved, "kept_byte_min": kept, "rows": rows}),
        );
    }
    head(out, &scope, &period)?;
    let resident = period.resident_byte_min as f64;
    writeln!(
        out,
        "all findings followed: {} less resident ({}); free and kept by allocators: {} ({})",
        bytes(period.mean(saved)),
        share(saved as f64, resident),
        bytes(period.mean(kept)),
        share(kept as f64, resident)
    )?;
    let columns = [
        ("saves", Side::Right),
        ("of resident", Side::Right),
        ("processes", Side::Right),
        ("machines", Side::Right),
        ("kind", Side::Left),
        ("service", Side::Left),
        ("stack", Side::Left),
        ("change", Side::Left),
    ];
    let cells = |row: &whatif::Change| {
        vec![
            bytes(period.mean(row.saved_byte_min)),
            share(row.saved_byte_min as f64, resident),
            row.processes.to_string(),
            row.hosts.to_string(),
            row.kind.clone(),
            row.service.clone(),
            row.name.clone(),
            row.change.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    Ok(table(out, &columns, &rows)?)
}

fn show_sql(engine: &dyn Engine, words: &SqlArgs, out: &mut dyn Write) -> Result<()> {
    let Answer { columns, rows } = engine.answer(&words.sql)?;
    if words.json {
        let object = |row: &Vec<crate::rows::Value>| {
            let cells = columns.iter().cloned().zip(row.iter().map(Json::from));
            Json::Object(cells.collect())
        };
        return print_json(out, &rows.iter().map(object).collect());
    }
    let head: Vec<(&str, Side)> = columns
        .iter()
        .map(|name| (name.as_str(), Side::Left))
        .collect();
    let cells = |row: &Vec<crate::rows::Value>| row.iter().map(ToString::to_string).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    Ok(table(out, &head, &rows)?)
}

fn serve(
    listen: SocketAddr,
    open: &dyn Fn() -> Result<Box<dyn Engine>>,
    out: &mut dyn Write,
) -> Result<()> {
    // What keeps every page from being made is told at once.
    open()?;
    let serving = Serving::open(listen)?;
    writeln!(out, "{}", serving.url())?;
    out.flush()?;
    loop {
        serving.serve_one(open)?;
    }
}

fn take_in(root: &Locked, words: &IngestArgs, out: &mut dyn Write) -> Result<()> {
    let this = || {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .map(|name| name.trim().to_owned())
    };
    let said = Said {
        service: words.service.clone(),
        build: words.build.clone(),
        host: words.host.clone().or_else(this),
        t: words.at,
        minutes: words.minutes,
    };
    for path in &words.files {
        let what = || path.display().to_string();
        let changed = std::fs::metadata(path)
            .and_then(|it| it.modified())
            .with_context(what)?;
        let changed = changed
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs().cast_signed());
        let content = match path.extension().is_some_and(|ending| ending == "sft") {
            true => report_of(path).with_context(what)?,
            false => std::fs::read(path).with_context(what)?,
        };
        let taken = ingest(root, &content, changed, &said).with_context(what)?;
        writeln!(
            out,
            "{}: {} in {} stacks, service {}, {}",
            path.display(),
            bytes(taken.live_bytes as f64),
            taken.stacks,
            taken.service,
            taken.day
        )?;
    }
    Ok(())
}

/// Asks `skinflint` for the report of a recording: the one beside this program, else that of PATH.
fn report_of(path: &Path) -> Result<Vec<u8>> {
    let beside = std::env::current_exe()
        .ok()
        .map(|own| own.with_file_name("skinflint"));
    let program = beside
        .filter(|path| path.exists())
        .unwrap_or_else(|| "skinflint".into());
    let made = Process::new(&program)
        .args(["report", "--json"])
        .arg(path)
        .output();
    let made = made.with_context(|| format!("{} cannot be started", program.display()))?;
    if !made.status.success() {
        bail!(
            "skinflint report: {}",
            String::from_utf8_lossy(&made.stderr).trim()
        );
    }
    Ok(made.stdout)
}

fn keep(root: &Locked, words: &RetainArgs, out: &mut dyn Write) -> Result<()> {
    let now = match &words.today {
        Some(day) => clock::start_of(day)? + clock::DAY,
        None => SystemTime::now()
            .duration_since(UNIX_EPOCH)?
            .as_secs()
            .cast_signed(),
    };
    let keep = Keep {
        minutes: i64::from(words.minutes_for) * clock::HOUR,
        hours: i64::from(words.hours_for) * clock::DAY,
        days: i64::from(words.days_for) * clock::DAY,
    };
    let done = retain(root, keep, now)?;
    writeln!(
        out,
        "{} files merged, {} rows became {}; {} files packed; {} days of a service and table dropped",
        done.merged, done.rows, done.became, done.packed, done.dropped
    )?;
    Ok(())
}

fn simulate(root: &Locked, words: &GenerateArgs, out: &mut dyn Write) -> Result<()> {
    let law = Law {
        seed: words.seed,
        machines: words.machines,
        processes: words.processes,
        services: words.services,
        stacks: words.stacks,
        start: law::start(&words.day)?,
        hours: words.hours,
        leak: !words.no_leak,
        pins: !words.no_pins,
    };
    let mut events = match &words.events {
        Some(path) => Some(BufWriter::new(
            File::create(path).with_context(|| path.display().to_string())?,
        )),
        None => None,
    };
    let made = generate::generate(
        &law,
        root,
        &mut |service, process, happened| match &mut events {
            Some(file) => write_events(&law, service, process, happened, file),
            None => Ok(()),
        },
    )?;
    if let Some(file) = &mut events {
        file.flush()?;
    }
    writeln!(
        out,
        "{} processes, {} events, {} rows of profiles; builds {} and {}",
        made.processes, made.events, made.profiles, BUILDS[0], BUILDS[1]
    )?;
    Ok(())
}

/// Writes a process and its events as lines, with all that is needed to count again.
fn write_events(
    law: &Law,
    service: &Service,
    process: &ProcessLaw,
    events: &[Event],
    out: &mut dyn Write,
) -> Result<()> {
    let build = BUILDS[process.build];
    let (begin, end) = (law.start + process.begin * 60, law.start + process.end * 60);
    writeln!(
        out,
        "process {} {} {} {build} {begin} {end}",
        service.name, process.host, process.process
    )?;
    for event in events {
        let stack = &service.stacks[event.stack];
        writeln!(
            out,
            "event {} {} {} {} {} {} {} {} {} {}",
            stack.stack,
            law.start + event.minute * 60,
            event.born,
            event.passing,
            event.died,
            stack.weight,
            stack.variance,
            stack.slop,
            event.pinned,
            event.leaked
        )?;
    }
    Ok(())
}

/// Writes a statement for each table that makes it known to another engine: `of` has a pattern of files as a source.
fn views(root: &Root, of: &dyn Fn(&str) -> String, out: &mut dyn Write) -> Result<()> {
    for table in skinflint_fleet_tables::rows::tables() {
        let folder = root.table(table.name).canonicalize()?;
        let depth = "*/".repeat(table.folders().len());
        let files = format!("{}/{depth}*.parquet", folder.display());
        let source = of(&crate::questions::quoted(&files));
        writeln!(out, "CREATE VIEW {} AS SELECT * FROM {source};", table.name)?;
    }
    Ok(())
}

fn of_duckdb(files: &str) -> String {
    format!("read_parquet({files}, hive_partitioning = true, hive_types_autocast = false)")
}

fn of_clickhouse(files: &str) -> String {
    format!("file({files}, 'Parquet') SETTINGS use_hive_partitioning = 1")
}

/// Returns what the tables and their columns mean, as Markdown.
pub fn chapter() -> String {
    let mut text = String::new();
    for table in skinflint_fleet_tables::rows::tables() {
        let folders = table.folders();
        let split = match folders.is_empty() {
            true => String::new(),
            false => format!(" Folders: `{}`.", folders.join("`, `")),
        };
        text += &format!("### {}\n\n{}{split}\n\n", table.name, table.meaning.trim());
        text += "| column | type | meaning |\n|---|---|---|\n";
        for column in table.columns {
            text += &format!(
                "| `{}` | {} | {} |\n",
                column.name,
                column.sql,
                column.meaning.trim()
            );
        }
        text += "\n";
    }
    text
}
