//! Driven: tabs are opened and closed as lines on stdin say, while another process measures.
//!
//! ```text
//!   {"id":1,"do":"open","file":"a.js","timeout_ms":60000} ─► tab, turns ─► {"id":1,"ok":{"tab":"1","load_ms":12,"failed":null}}
//!   {"id":2,"do":"close","tab":"1"}  {"id":3,"do":"gc"}  {"id":4,"do":"report"}  ─► {"id":…,"ok":{…}} or {"id":…,"error":"…"}
//! ```
//!
//! D1  A tab has loaded when its program has run and no timer of it is due within [`REST_MS`]. One that keeps busy for
//!     `timeout_ms` has failed, and is open all the same.
//! D2  What programs print goes to stderr: stdout has answers only, a line for each request.
//! D3  Nothing is collected that a program would not have collected by itself, but on `gc`. Between turns the heap is told
//!     that there is nothing to do, at least every [`LOOK`].
//! D4  When stdin ends, all tabs are closed, and so is the host, with status 0. A line that is not understood is answered
//!     by an error, and is no end.
//!
//! Not here: who drives (`skinflint tabs`), what happens in a tab (`tab`).

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::TabClock;
use crate::heap::{self, Left};
use crate::natives::Output;
use crate::tab::{Program, Tab};
use skinflint_js_options::{ClockOf, JsArgs};

/// A tab of which no timer is due for so long is idle.
const REST_MS: u64 = 50;
/// Between two looks at most.
const LOOK: Duration = Duration::from_millis(100);
/// If nothing is said: what a tab may take until it is idle.
const TIMEOUT_MS: u64 = 60_000;

#[derive(Deserialize)]
struct Request {
    id: u64,
    #[serde(rename = "do")]
    what: String,
    file: Option<PathBuf>,
    tab: Option<String>,
    timeout_ms: Option<u64>,
}

/// A tab that is not idle yet, and where its answer goes.
struct Opening {
    id: u64,
    tab: usize,
    began: Instant,
    limit: Duration,
}

struct Driven<'a> {
    args: &'a JsArgs,
    clock: Rc<TabClock>,
    programs: HashMap<PathBuf, Rc<Program>>,
    tabs: BTreeMap<usize, Tab>,
    opened: usize,
    opening: Option<Opening>,
    left: Vec<Left>,
}

/// Does what stdin says, to its end (D4).
///
/// # Errors
/// Wrong use.
pub fn drive(args: &JsArgs) -> Result<()> {
    if args.clock == ClockOf::Cpu {
        bail!("--clock cpu: with --driven others wait by the clock on the wall; leave it out");
    }
    let (send, lines) = mpsc::channel();
    // It ends with the process: a read of stdin cannot be given up.
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        })
        .context("no thread for stdin")?;
    let mut driven = Driven {
        args,
        clock: Rc::new(TabClock::new(false)),
        programs: HashMap::new(),
        tabs: BTreeMap::new(),
        opened: 0,
        opening: None,
        left: Vec::new(),
    };
    while let Some(line) = driven.next(&lines) {
        driven.answer(&line);
    }
    for (_, mut tab) in std::mem::take(&mut driven.tabs) {
        tab.close();
    }
    Ok(())
}

impl Driven<'_> {
    /// Turns until there is a request; `None` when there will be none.
    fn next(&mut self, lines: &Receiver<String>) -> Option<String> {
        loop {
            let mut any = false;
            for tab in self.tabs.values_mut() {
                any |= tab.turn();
            }
            heap::drain();
            self.look_at_opening();
            if any {
                match lines.try_recv() {
                    Ok(line) => return Some(line),
                    Err(TryRecvError::Empty) => continue,
                    Err(TryRecvError::Disconnected) => return None,
                }
            }
            heap::idle(self.clock.elapsed());
            match lines.recv_timeout(self.wait()) {
                Ok(line) => return Some(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Until the next timer, bounded (D3).
    fn wait(&self) -> Duration {
        let now_ms = self.now_ms();
        let next_ms = self.tabs.values().filter_map(Tab::next_ms).min();
        next_ms.map_or(LOOK, |at| {
            Duration::from_millis(at.saturating_sub(now_ms)).min(LOOK)
        })
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Tells of a tab that has loaded, or failed to (D1).
    fn look_at_opening(&mut self) {
        let Some(opening) = &self.opening else {
            return;
        };
        let Some(tab) = self.tabs.get(&opening.tab) else {
            return;
        };
        let soon = self.now_ms() + REST_MS;
        let is_idle = tab.next_ms().is_none_or(|at| at > soon);
        let late = opening.began.elapsed() > opening.limit;
        if !is_idle && !late {
            return;
        }
        let busy = || format!("busy for {} s", opening.limit.as_secs());
        let failed = match &tab.failure {
            Some(failure) => Some(failure.text().to_owned()),
            None => (!is_idle).then(busy),
        };
        let load_ms = u64::try_from(opening.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        say(
            opening.id,
            Ok(json!({"tab": opening.tab.to_string(), "load_ms": load_ms, "failed": failed})),
        );
        self.opening = None;
    }

    fn answer(&mut self, line: &str) {
        let request: Request = match serde_json::from_str(line) {
            Ok(request) => request,
            Err(error) => {
                return say_value(&json!({"id": null, "error": format!("not a request: {error}")}));
            }
        };
        let id = request.id;
        match self.act(request) {
            Ok(Some(answer)) => say(id, Ok(answer)),
            Ok(None) => {}
            Err(error) => say(id, Err(format!("{error:#}"))),
        }
    }

    /// Does what a request asks for; `None` if the answer comes later.
    fn act(&mut self, request: Request) -> Result<Option<Value>> {
        match request.what.as_str() {
            "open" => {
                let file = request.file.context("open: no \"file\"")?;
                let program = self.program(&file)?;
                let began = Instant::now();
                self.opened += 1;
                let number = self.opened;
                let (limit, aside) = (self.args.limit, Output::aside());
                let mut tab = Tab::open(number, &program.path, limit, aside, &self.clock);
                tab.run(&program);
                self.tabs.insert(number, tab);
                let limit = request.timeout_ms.unwrap_or(TIMEOUT_MS);
                self.opening = Some(Opening {
                    id: request.id,
                    tab: number,
                    began,
                    limit: Duration::from_millis(limit),
                });
                Ok(None)
            }
            "close" => {
                let named = request.tab.context("close: no \"tab\"")?;
                let number = named.parse().ok().filter(|at| self.tabs.contains_key(at));
                let Some(mut tab) = number.and_then(|at: usize| self.tabs.remove(&at)) else {
                    bail!("close: no tab {named} is open");
                };
                let left = tab.close();
                self.left.extend(left.clone());
                Ok(Some(json!({ "left": left })))
            }
            "gc" => {
                heap::collect_all();
                for tab in self.tabs.values_mut() {
                    tab.after_collection();
                }
                heap::drain();
                Ok(Some(json!({})))
            }
            "report" => {
                let rows: Vec<_> = self.tabs.values().filter_map(Tab::row).collect();
                // The stock heap tells of no tenants and of nothing that is left (heap.H1): absent, not 0.
                let is_known = !rows.is_empty() || heap::NAME == "skinflint";
                Ok(Some(json!({
                    "heap": heap::NAME,
                    "boa": crate::BOA,
                    "tabs": self.tabs.len(),
                    "tenants": is_known.then_some(rows),
                    "left": is_known.then_some(&self.left),
                })))
            }
            other => bail!("{other}: open, close, gc or report"),
        }
    }

    /// A program, read once.
    fn program(&mut self, file: &Path) -> Result<Rc<Program>> {
        if let Some(known) = self.programs.get(file) {
            return Ok(known.clone());
        }
        let text = std::fs::read(file).with_context(|| {
            format!("{}: cannot be read; name a JavaScript file", file.display())
        })?;
        let program = Rc::new(Program {
            path: file.to_owned(),
            text,
        });
        self.programs.insert(file.to_owned(), program.clone());
        Ok(program)
    }
}

fn say(id: u64, answer: Result<Value, String>) {
    say_value(&match answer {
        Ok(ok) => json!({"id": id, "ok": ok}),
        Err(error) => json!({"id": id, "error": error}),
    });
}

fn say_value(value: &Value) {
    let mut out = std::io::stdout().lock();
    let done = writeln!(out, "{value}").and_then(|()| out.flush());
    // The reader has gone: as at the end of stdin.
    if done.is_err() {
        std::process::exit(0);
    }
}
