//! A scheduler and three executors as processes: the five questions before the same judge as DataFusion, beside
//! DataFusion's own rows, and with an executor that is killed in mid-query.
//!
//! ```text
//!   scheduler ◄─ executor × 3, on loopback
//!       ▲─ judge: sums of the law's events, minute by minute      ▲─ rows of the embedded engine      ▲─ kill -9, answered
//! ```
//!
//! Not here: whether the embedded engine is right (fleet/program/tests/embedded.rs).

#[path = "../../program/tests/judge/mod.rs"]
mod judge;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use skinflint_fleet::engine::Engine;
use skinflint_fleet::engines::open;
use skinflint_fleet::questions::top::By;
use skinflint_fleet::questions::{Period, Scope, pinned, regressions, top, whatif};
use skinflint_fleet::rows::{Answer, Value};

const PROGRAM: &str = env!("CARGO_BIN_EXE_skinflint-fleet-cluster");
/// How often an executor is started whose free port another process took meanwhile.
const STARTS: usize = 5;
/// No question may take longer: a hang shall not be one of the test.
const LIMIT: Duration = Duration::from_secs(900);

/// A process, what it says, and its folder.
struct Part {
    process: Child,
    _said: BufReader<ChildStdout>,
    address: String,
    work: PathBuf,
}

/// A scheduler and executors; they end with the test, however it ends (`--until-eof`).
struct Cluster {
    folder: tempfile::TempDir,
    scheduler: Part,
    executors: Vec<Part>,
}

impl Part {
    /// Starts one. None if it ended before it was ready.
    fn start(words: &[&str], work: &Path) -> Option<Part> {
        let mut process = Command::new(PROGRAM)
            .arg("--until-eof")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let Some((_, address)) = line.trim_end().rsplit_once(' ') else {
            process.wait().unwrap();
            return None;
        };
        Some(Part {
            process,
            _said: said,
            address: address.to_owned(),
            work: work.to_owned(),
        })
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Cluster {
    fn start(executors: usize) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let words = ["scheduler", "--listen", "127.0.0.1:0", "--lost-after", "15"];
        let scheduler = Part::start(&words, folder.path()).expect("a scheduler");
        let mut cluster = Cluster {
            folder,
            scheduler,
            executors: Vec::new(),
        };
        (0..executors).for_each(|_| cluster.add());
        cluster
    }

    fn add(&mut self) {
        let work = self.folder.path().join(self.executors.len().to_string());
        let folder = work.to_str().unwrap().to_owned();
        let scheduler = self.scheduler.address.clone();
        let words = [
            "executor",
            "--scheduler",
            &scheduler,
            "--cores",
            "2",
            "--work",
            &folder,
        ];
        let started = (0..STARTS).find_map(|_| Part::start(&words, &work));
        self.executors.push(started.expect("an executor"));
    }

    fn url(&self) -> String {
        format!("ballista://{}", self.scheduler.address)
    }

    /// Fails if a part has ended by itself.
    fn check_alive(&mut self) {
        for part in self.executors.iter_mut().chain([&mut self.scheduler]) {
            assert!(
                part.process.try_wait().unwrap().is_none(),
                "{}",
                part.address
            );
        }
    }
}

/// Reports whether there is a file anywhere below.
fn has_file(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        path.is_file() || has_file(&path)
    })
}

#[test]
fn the_five_questions_pass_the_judge_of_the_embedded_engine() {
    let mut cluster = Cluster::start(3);
    let url = cluster.url();
    let engine = Some(url.as_str());
    judge::top_is_what_the_events_add_up_to_by_every_key(engine);
    judge::the_period_is_that_of_the_law_and_shares_are_of_all(engine);
    judge::pinned_is_what_the_events_add_up_to(engine);
    judge::where_is_top_of_the_rows_for_which_the_condition_is_true(engine);
    judge::whatif_is_what_the_findings_of_the_events_promise(engine);
    judge::regressions_are_those_of_the_processes_means(engine);
    judge::a_statement_may_only_read(engine);
    cluster.check_alive();
    for executor in &cluster.executors {
        assert!(
            has_file(&executor.work),
            "{} computed nothing",
            executor.address
        );
    }
}

/// The SQL of each question.
fn questions(scope: &Scope) -> Vec<(&'static str, String)> {
    vec![
        ("period", Period::sql(scope)),
        ("top", top::sql(scope, By::Stack, 1_000, None)),
        ("functions", top::sql(scope, By::Function, 1_000, None)),
        ("regressions", regressions::sql(scope, "41", "42")),
        ("pinned", pinned::sql(scope, 1_000)),
        (
            "where",
            top::sql(scope, By::Stack, 1_000, Some("build = '42'")),
        ),
        ("whatif", whatif::sql(scope, 1_000)),
    ]
}

/// Rows are the same: whole numbers and texts to the last digit, sums of others but for the order in which they were added.
fn assert_same(what: &str, found: &Answer, wanted: &Answer) {
    assert!(!wanted.rows.is_empty(), "{what}");
    assert_eq!(found.columns, wanted.columns, "{what}");
    assert_eq!(found.rows.len(), wanted.rows.len(), "{what}");
    for pair in found
        .rows
        .iter()
        .flatten()
        .zip(wanted.rows.iter().flatten())
    {
        match pair {
            (Value::Real(a), Value::Real(b)) => {
                assert!((a - b).abs() <= 1e-9 * b.abs(), "{what}: {a} {b}");
            }
            (a, b) => assert_eq!(a, b, "{what}"),
        }
    }
}

#[test]
fn rows_are_those_of_the_embedded_engine() {
    let cluster = Cluster::start(3);
    let fleet = judge::made(22, Some(&cluster.url()));
    let embedded = open(&fleet.root, None, 1 << 30).unwrap();
    let remote = fleet.engine();
    let scope = Scope::new(&*remote, None, None).unwrap();
    for (what, sql) in questions(&scope) {
        let wanted = embedded.answer(&sql).unwrap();
        assert_same(what, &remote.answer(&sql).unwrap(), &wanted);
    }
}

/// Pairs of rows of one stack: work for seconds. `some`: of eight processes, how many.
fn pairs(some: usize) -> String {
    format!(
        "SELECT a.stack AS stack, count(*) AS pairs, sum((a.live_byte_min + b.t) % 1000003) AS mixed FROM profiles a \
         JOIN profiles b ON a.stack = b.stack AND a.t <= b.t WHERE abs(a.process % 8) < {some} GROUP BY a.stack \
         ORDER BY stack"
    )
}

#[test]
fn an_executor_that_is_killed_in_mid_query_costs_no_answer() {
    let mut cluster = Cluster::start(3);
    let fleet = judge::made(23, Some(&cluster.url()));
    let embedded = open(&fleet.root, None, 1 << 30).unwrap();
    let mut killed_in_time = false;
    // A machine that is faster than the kill gets more to do.
    for some in [1, 2, 4, 8] {
        let sql = pairs(some);
        let wanted = embedded.answer(&sql).unwrap();
        let (answer, answered) = mpsc::channel();
        let remote: Box<dyn Engine + Send> = Box::new(
            skinflint_fleet::ballista::Ballista::open(&fleet.root, &cluster.scheduler.address)
                .unwrap(),
        );
        let asking = std::thread::spawn(move || {
            let _ = answer.send(remote.answer(&sql).map_err(|error| format!("{error:#}")));
        });
        let first = loop {
            let found = cluster.executors.iter().position(|one| has_file(&one.work));
            if found.is_some() || asking.is_finished() {
                break found;
            }
            // CLOCK: a poll step of a wait that the answer ends.
            std::thread::sleep(Duration::from_millis(1));
        };
        let first = first.expect("an executor that has results");
        cluster.executors[first].kill();
        killed_in_time = !asking.is_finished();
        let found = answered.recv_timeout(LIMIT).expect("an answer in time");
        assert_same("pairs", &found.unwrap(), &wanted);
        let lost = cluster.executors.remove(first);
        std::fs::remove_dir_all(&lost.work).unwrap();
        if killed_in_time {
            break;
        }
        cluster = Cluster::start(3);
    }
    assert!(
        killed_in_time,
        "each answer came before the executor was killed"
    );
    // Two are left, and answer as three did.
    judge::pinned_is_what_the_events_add_up_to(Some(&cluster.url()));
    cluster.check_alive();
}
