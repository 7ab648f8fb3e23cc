//! The five questions, answered again by walking over the generator's own events minute by minute.
//!
//! ```text
//!   law ─► events ─► maps of sums, a minute at a time ─┐
//!      └─► tables ─► SQL ─► answers of the program ────┴─► the same, in whole bytes
//! ```
//!
//! Each test is a function of the engine's name, so that every engine has the same judge: `embedded.rs` beside it, and
//! `fleet/cluster/tests/ballista.rs`.
//!
//! Not here: the same SQL on DuckDB (tests/duckdb.py).

// Each test program that has this module calls some of it.
#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};

use skinflint_fleet::certainty::student;
use skinflint_fleet::engine::Engine;
use skinflint_fleet::engines::open;
use skinflint_fleet::questions::{
    Period, Scope, books, filtered, pinned, regressions, top, whatif,
};
use skinflint_fleet_tables::clock::DAY;
use skinflint_fleet_tables::files::Root;
use skinflint_fleet_tables::generate::generate;
use skinflint_fleet_tables::law::{BUILDS, Law, RATE};
use skinflint_fleet_tables::merge::{Keep, retain};

const START: i64 = 20_000 * DAY;
const ALL: usize = 1_000_000;

fn law(seed: u64) -> Law {
    Law {
        seed,
        machines: 8,
        processes: 3,
        services: 2,
        stacks: 16,
        start: START,
        hours: 4,
        leak: true,
        pins: true,
    }
}

/// What one stack of one process was in one minute.
struct Minute {
    service: String,
    host: String,
    process: i64,
    build: &'static str,
    id: i64,
    functions: Vec<String>,
    live: i64,
    variance: i64,
    slop: i64,
    pinned: i64,
    leaked: i64,
    alloc: i64,
    samples: i64,
}

/// Calls `with` for each minute of each stack of each process.
fn each_minute(law: &Law, with: &mut dyn FnMut(&Minute)) {
    for service in law.services() {
        for process in &service.processes {
            let events = law.events(&service, process);
            for (at, stack) in service.stacks.iter().enumerate() {
                let mut row = Minute {
                    service: service.name.clone(),
                    host: process.host.clone(),
                    process: process.process,
                    build: BUILDS[process.build],
                    id: stack.stack,
                    functions: stack.functions.clone(),
                    live: 0,
                    variance: 0,
                    slop: 0,
                    pinned: 0,
                    leaked: 0,
                    alloc: 0,
                    samples: 0,
                };
                let mut count = 0;
                for minute in process.begin..process.end {
                    (row.alloc, row.samples) = (0, 0);
                    for event in events
                        .iter()
                        .filter(|event| event.stack == at && event.minute == minute)
                    {
                        count += event.born - event.died;
                        row.alloc += (event.born + event.passing) * stack.weight;
                        row.samples += event.born + event.passing;
                        (row.pinned, row.leaked) = (event.pinned, event.leaked);
                    }
                    row.live = count * stack.weight;
                    row.variance = count * stack.variance;
                    row.slop = count * stack.slop;
                    with(&row);
                }
            }
        }
    }
}

/// Live, variance, pinned, slop, allocated, samples; and processes.
type Sums = ([i64; 6], BTreeSet<i64>);

fn summed(
    law: &Law,
    which: &dyn Fn(&Minute) -> bool,
    keys: &dyn Fn(&Minute) -> Vec<String>,
) -> BTreeMap<String, Sums> {
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    each_minute(law, &mut |row| {
        if !which(row) {
            return;
        }
        for key in keys(row) {
            let (sums, processes) = sums.entry(key).or_default();
            let values = [
                row.live,
                row.variance,
                row.pinned,
                row.slop,
                row.alloc,
                row.samples,
            ];
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += value);
            processes.insert(row.process);
        }
    });
    sums
}

pub struct Fleet {
    _folder: tempfile::TempDir,
    pub law: Law,
    pub root: Root,
    named: Option<String>,
}

/// Makes the tables of a seed, for an engine.
pub fn made(seed: u64, engine: Option<&str>) -> Fleet {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::create(folder.path()).unwrap();
    let law = law(seed);
    generate(&law, &root.clone().lock().unwrap(), &mut |_, _, _| Ok(())).unwrap();
    Fleet {
        _folder: folder,
        law,
        root,
        named: engine.map(str::to_owned),
    }
}

impl Fleet {
    pub fn engine(&self) -> Box<dyn Engine> {
        open(&self.root, self.named.as_deref(), 1 << 30).unwrap()
    }

    /// Calls `with` on the tables as they were written, on hours, and on days.
    fn at_all_ages(&self, with: &dyn Fn(&dyn Engine)) {
        with(&*self.engine());
        let keep = Keep {
            minutes: 0,
            hours: 10 * DAY,
            days: 100 * DAY,
        };
        for now in [START + 2 * DAY, START + 20 * DAY] {
            let done = retain(&self.root.clone().lock().unwrap(), keep, now).unwrap();
            assert!(done.became > 0 && done.became < done.rows, "{done:?}");
            with(&*self.engine());
        }
    }
}

fn scope(engine: &dyn Engine) -> Scope {
    Scope::new(engine, None, None).unwrap()
}

fn of_top(rows: &[top::Top], key: &dyn Fn(&top::Top) -> String) -> Vec<(String, [i64; 6], i64)> {
    let sums = |row: &top::Top| {
        let pinned = row.pinned_byte_min;
        [
            row.live_byte_min,
            row.live_var_min,
            pinned,
            row.slop_byte_min,
            row.alloc_bytes,
            row.samples,
        ]
    };
    rows.iter()
        .map(|row| (key(row), sums(row), row.processes))
        .collect()
}

/// Returns brute-force sums in the order of an answer.
fn ordered(sums: BTreeMap<String, Sums>) -> Vec<(String, [i64; 6], i64)> {
    let mut rows: Vec<_> = sums
        .into_iter()
        .map(|(key, (sums, processes))| (key, sums, processes.len() as i64))
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1[0]));
    rows
}

/// Puts rows with equal figures in the order of their keys: the program has them in that of ids.
fn settled(mut rows: Vec<(String, [i64; 6], i64)>) -> Vec<(String, [i64; 6], i64)> {
    assert!(
        rows.is_sorted_by_key(|row| std::cmp::Reverse(row.1[0])),
        "largest first"
    );
    rows.sort_by(|a, b| b.1[0].cmp(&a.1[0]).then_with(|| a.0.cmp(&b.0)));
    rows
}

pub fn top_is_what_the_events_add_up_to_by_every_key(engine: Option<&str>) {
    let fleet = made(3, engine);
    let functions = |row: &Minute| {
        let names: BTreeSet<String> = row.functions.iter().cloned().collect();
        let frame =
            |name: &String| skinflint_fleet_tables::id::frame(&row.service, name).to_string();
        names.iter().map(frame).collect()
    };
    type Keys<'a> = &'a dyn Fn(&Minute) -> Vec<String>;
    type Key = fn(&top::Top) -> String;
    let of_events: [(top::By, Keys<'_>, Key); 5] = [
        (
            top::By::Stack,
            &|row| vec![format!("{} {}", row.service, row.id)],
            |row| format!("{} {}", row.service, row.id),
        ),
        (top::By::Function, &functions, |row| row.id.to_string()),
        (top::By::Service, &|row| vec![row.service.clone()], |row| {
            row.name.clone()
        }),
        (
            top::By::Build,
            &|row| vec![format!("{} {}", row.service, row.build)],
            |row| format!("{} {}", row.service, row.name),
        ),
        (top::By::Host, &|row| vec![row.host.clone()], |row| {
            row.name.clone()
        }),
    ];
    let expected =
        of_events.map(|(by, keys, key)| (by, ordered(summed(&fleet.law, &|_| true, keys)), key));
    fleet.at_all_ages(&|engine| {
        for (by, expected, key) in &expected {
            let found = top::ask(engine, &top::sql(&scope(engine), *by, ALL, None), *by).unwrap();
            assert!(found.iter().all(|row| !row.name.is_empty()));
            assert_eq!(settled(of_top(&found, key)), *expected, "{by:?}");
            let some = top::ask(engine, &top::sql(&scope(engine), *by, 3, None), *by).unwrap();
            assert_eq!(some, found[..found.len().min(3)], "{by:?}");
        }
    });
}

pub fn the_period_is_that_of_the_law_and_shares_are_of_all(engine: Option<&str>) {
    let fleet = made(4, engine);
    let all = || {
        fleet
            .law
            .services()
            .into_iter()
            .flat_map(|service| service.processes)
    };
    assert!(
        all().any(|process| process.begin > 0),
        "one of them took another's place"
    );
    let (mut live, mut rest, mut processes, mut hosts) = (0, 0, BTreeSet::new(), BTreeSet::new());
    each_minute(&fleet.law, &mut |row| {
        live += row.live;
        rest += row.slop + row.pinned;
        processes.insert(row.process);
        hosts.insert(row.host.clone());
    });
    let mapped =
        all().map(|one| (6_000_000 + one.process.rem_euclid(4_000_000)) * (one.end - one.begin));
    let resident = live + rest + mapped.sum::<i64>();
    let expected = Period {
        minutes: 240,
        resident_byte_min: resident,
        live_byte_min: live,
        processes: processes.len() as i64,
        hosts: hosts.len() as i64,
    };
    fleet.at_all_ages(&|engine| assert_eq!(Period::of(engine, &scope(engine)).unwrap(), expected));
    let engine = fleet.engine();
    let none = Scope {
        days: Some(("2001-01-01".into(), "2001-01-01".into())),
        service: None,
    };
    let error = Period::of(&*engine, &none).unwrap_err().to_string();
    assert_eq!(error, "no rows on 2001-01-01");
}

pub fn pinned_is_what_the_events_add_up_to(engine: Option<&str>) {
    let fleet = made(5, engine);
    type Held = (i64, i64, BTreeSet<i64>, BTreeSet<String>);
    let mut sums: BTreeMap<(String, i64), Held> = BTreeMap::new();
    each_minute(&fleet.law, &mut |row| {
        let of = sums.entry((row.service.clone(), row.id)).or_default();
        of.0 += row.pinned;
        of.1 += row.live;
        if row.pinned > 0 {
            of.2.insert(row.process);
            of.3.insert(row.host.clone());
        }
    });
    let mut expected: Vec<_> = sums
        .into_iter()
        .filter(|(_, of)| of.0 > 0)
        .map(|((service, stack), of)| {
            (
                of.0,
                service,
                stack,
                of.1,
                of.2.len() as i64,
                of.3.len() as i64,
            )
        })
        .collect();
    expected.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (&a.1, a.2).cmp(&(&b.1, b.2))));
    fleet.at_all_ages(&|engine| {
        let found = pinned::ask(engine, &pinned::sql(&scope(engine), ALL)).unwrap();
        let found: Vec<_> = found
            .into_iter()
            .map(|row| {
                (
                    row.pinned_byte_min,
                    row.service,
                    row.stack,
                    row.live_byte_min,
                    row.processes,
                    row.hosts,
                )
            })
            .collect();
        assert_eq!(found, expected);
    });
}

pub fn where_is_top_of_the_rows_for_which_the_condition_is_true(engine: Option<&str>) {
    let fleet = made(6, engine);
    let service = fleet.law.services()[1].name.clone();
    let host = fleet.law.services()[1].processes[0].host.clone();
    let is_meant = |row: &Minute| row.service == service && row.build == "42" && row.host != host;
    let expected = ordered(summed(&fleet.law, &is_meant, &|row| {
        vec![row.id.to_string()]
    }));
    assert!(!expected.is_empty());
    let condition = format!("service = '{service}' AND build = '42' AND host <> '{host}' OR 1 = 0");
    fleet.at_all_ages(&|engine| {
        let scope = scope(engine);
        let sql = top::sql(&scope, top::By::Stack, ALL, Some(&condition));
        let found = top::ask(engine, &sql, top::By::Stack).unwrap();
        assert_eq!(settled(of_top(&found, &|row| row.id.to_string())), expected);
        // The flame graph: each line a stack, outermost first, its bytes as a mean.
        let period = Period::of(engine, &scope).unwrap();
        let mut lines = Vec::new();
        filtered::flame(engine, &found, &period, &mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        let services = fleet.law.services();
        let whole = services[1].stacks.iter().map(|stack| {
            let names: Vec<&str> = stack.functions.iter().rev().map(String::as_str).collect();
            (stack.stack.to_string(), names.join(";"))
        });
        let whole: BTreeMap<String, String> = whole.collect();
        let mut wanted: Vec<String> = expected
            .iter()
            .map(|(stack, sums, _)| (stack, (sums[0] as f64 / 240.0).round()))
            .filter(|(_, bytes)| *bytes > 0.0)
            .map(|(stack, bytes)| format!("{} {bytes}", whole[stack]))
            .collect();
        let mut lines: Vec<&str> = lines.lines().collect();
        wanted.sort();
        lines.sort_unstable();
        assert_eq!(lines, wanted);
    });
    let engine = fleet.engine();
    let sql = top::sql(&scope(&*engine), top::By::Stack, ALL, Some("no_such = 1"));
    let error = format!(
        "{:#}",
        top::ask(&*engine, &sql, top::By::Stack).unwrap_err()
    );
    assert!(error.contains("no_such"), "{error}");
}

pub fn whatif_is_what_the_findings_of_the_events_promise(engine: Option<&str>) {
    let fleet = made(7, engine);
    type Found = (i64, i64, BTreeSet<i64>, BTreeSet<String>);
    let mut sums: BTreeMap<(String, String, i64), Found> = BTreeMap::new();
    each_minute(&fleet.law, &mut |row| {
        for (kind, bytes) in [("leak", row.leaked), ("pinned", row.pinned)] {
            if bytes >= RATE as i64 * 8 {
                let of = sums
                    .entry((row.service.clone(), kind.to_owned(), row.id))
                    .or_default();
                of.0 += bytes * 3 / 4;
                of.1 += bytes;
                of.2.insert(row.process);
                of.3.insert(row.host.clone());
            }
        }
    });
    let mut expected: Vec<_> = sums
        .into_iter()
        .map(|(key, of)| (of.0, key, of.1, of.2.len() as i64, of.3.len() as i64))
        .collect();
    expected.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    assert!(
        expected.iter().any(|row| row.1.1 == "leak")
            && expected.iter().any(|row| row.1.1 == "pinned")
    );
    let all: i64 = expected.iter().map(|row| row.0).sum();
    fleet.at_all_ages(&|engine| {
        let scope = scope(engine);
        let found = whatif::ask(engine, &whatif::sql(&scope, ALL)).unwrap();
        let found: Vec<_> = found
            .into_iter()
            .map(|row| {
                let key = (row.service, row.kind, row.stack);
                (
                    row.saved_byte_min,
                    key,
                    row.now_byte_min,
                    row.processes,
                    row.hosts,
                )
            })
            .collect();
        assert_eq!(found, expected);
        let sum = engine.answer(&whatif::sum_sql(&scope)).unwrap();
        assert_eq!(sum.one().unwrap().int("saved").unwrap(), all);
    });
}

/// Mean and variance of the mean, by their definitions.
fn of_group(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let spread: f64 = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .sum();
    (mean, spread / (count - 1.0) / count)
}

pub fn regressions_are_those_of_the_processes_means(engine: Option<&str>) {
    let fleet = made(8, engine);
    // By service, stack and build: the mean of each process, live and pinned.
    type Means = BTreeMap<i64, (usize, [f64; 2])>;
    let mut means: BTreeMap<(String, i64), Means> = BTreeMap::new();
    let lives: BTreeMap<i64, f64> = fleet
        .law
        .services()
        .iter()
        .flat_map(|service| service.processes.clone())
        .map(|process| (process.process, (process.end - process.begin) as f64))
        .collect();
    each_minute(&fleet.law, &mut |row| {
        let of = means
            .entry((row.service.clone(), row.id))
            .or_default()
            .entry(row.process)
            .or_default();
        of.0 = usize::from(row.build == "42");
        of.1[0] += row.live as f64 / lives[&row.process];
        of.1[1] += row.pinned as f64 / lives[&row.process];
    });
    let comparisons = means.len() * 2;
    let mut expected = Vec::new();
    for ((service, stack), processes) in means {
        for figure in 0..2 {
            let values = |build: usize| {
                let of_build = processes.values().filter(|(which, _)| *which == build);
                of_build.map(|(_, means)| means[figure]).collect::<Vec<_>>()
            };
            let (from, to) = (values(0), values(1));
            let ((a, va), (b, vb)) = (of_group(&from), of_group(&to));
            let freedom = (va + vb).powi(2)
                / (va * va / (from.len() as f64 - 1.0) + vb * vb / (to.len() as f64 - 1.0));
            let error = (va + vb).sqrt();
            let least = b - a - error * student(0.025 / comparisons as f64, freedom);
            if least >= 1.0 {
                let half = error * student(0.025, freedom);
                expected.push((service.clone(), stack, figure, [a, b, half, least]));
            }
        }
    }
    expected.sort_by(|a, b| b.3[3].total_cmp(&a.3[3]));
    assert!(expected.len() >= 2);
    fleet.at_all_ages(&|engine| {
        let found = regressions::ask(engine, &scope(engine), "41", "42", ALL).unwrap();
        assert_eq!((found.comparisons, found.left_out.len()), (comparisons, 0));
        assert_eq!(found.rows.len(), expected.len());
        for (row, (service, stack, figure, figures)) in found.rows.iter().zip(&expected) {
            let which = [regressions::Figure::Live, regressions::Figure::Pinned][*figure];
            assert_eq!(
                (&row.service, row.stack, row.figure),
                (service, *stack, which)
            );
            let own = [row.difference.from, row.difference.to, row.half, row.least];
            for (own, wanted) in own.iter().zip(figures) {
                assert!(
                    (own - wanted).abs() <= 1e-6 * wanted.abs().max(1.0),
                    "{row:?}: {figures:?}"
                );
            }
        }
    });
}

pub fn books_are_what_the_events_add_up_to(engine: Option<&str>) {
    let fleet = made(10, engine);
    let mut sums = [
        ("live", 0),
        ("slop", 0),
        ("allocator-free", 0),
        ("mapped-files", 0),
    ];
    each_minute(&fleet.law, &mut |row| {
        let values = [row.live, row.slop, row.pinned];
        sums.iter_mut()
            .zip(values)
            .for_each(|(sum, value)| sum.1 += value);
    });
    let services = fleet.law.services();
    let all = services.iter().flat_map(|service| &service.processes);
    let mapped =
        all.map(|one| (6_000_000 + one.process.rem_euclid(4_000_000)) * (one.end - one.begin));
    sums[3].1 = mapped.sum::<i64>();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.1));
    let resident: i64 = sums.iter().map(|sum| sum.1).sum();
    fleet.at_all_ages(&|engine| {
        let scope = scope(engine);
        let found = books::ask(engine, &scope).unwrap();
        let found: Vec<(&str, i64)> = found
            .iter()
            .map(|part| (part.name.as_str(), part.byte_min))
            .collect();
        assert_eq!(found, sums);
        let (minutes, bars) = books::over_time(engine, &scope, 100).unwrap();
        assert_eq!(bars.iter().map(|bar| bar.byte_min).sum::<i64>(), resident);
        // Four hours, unless they were merged to a day.
        let hours = bars.len() == 4 && minutes == 60;
        assert!(
            hours || bars.len() == 1 && minutes == 24 * 60,
            "{minutes} {bars:?}"
        );
        let (minutes, bars) = books::over_time(engine, &scope, 3).unwrap();
        assert_eq!(
            (minutes, bars.len()),
            (24 * 60, 1),
            "no more bars than are wanted"
        );
    });
}

pub fn a_statement_may_only_read(engine: Option<&str>) {
    let fleet = made(9, engine);
    let engine = fleet.engine();
    for sql in [
        "DROP TABLE books",
        "CREATE VIEW v AS SELECT 1",
        "INSERT INTO books SELECT * FROM books",
        "COPY books TO 'x.parquet'",
        "SET datafusion.execution.batch_size = 1",
        "SELECT nothing FROM books",
        "no sql",
    ] {
        assert!(engine.answer(sql).is_err(), "{sql}");
    }
}
