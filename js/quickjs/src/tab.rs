//! A tab: a program, its engine, its memory.
//!
//! ```text
//!   open ─► run ─► turn, turn … ─► close: onclose(f), then the heap ends whole
//! ```
//!
//! B1  A program that failed has no more turns; its tab is closed with the others.
//!
//! Not here: when tabs have turns (`run`).

use std::time::{Duration, Instant};

use skinflint_js_options::host::cpu_time;

use crate::engine::Engine;
use crate::memory::{Malloc, Memory};
use crate::report::{Failure, ProgramRow, TenantRow};

/// A program as it was read.
pub(crate) struct Program {
    pub(crate) file: String,
    pub(crate) text: Vec<u8>,
}

pub(crate) struct Tab {
    number: usize,
    file: String,
    live: Option<(Engine, Memory)>,
    failure: Option<String>,
    result: Option<String>,
    cpu: Duration,
    output: Option<Vec<String>>,
    cut: usize,
}

impl Tab {
    /// Opens a tab and runs its program's first turn.
    pub(crate) fn open(
        number: usize,
        program: &Program,
        malloc: Malloc,
        keep: bool,
        start: Instant,
        limit_bytes: Option<usize>,
    ) -> Tab {
        let began = cpu_time();
        let live = Memory::new(malloc).and_then(|memory| {
            let engine = Engine::new(&memory, number, keep, start, limit_bytes)?;
            Some((engine, memory))
        });
        let mut tab = Tab {
            number,
            file: program.file.clone(),
            failure: live.is_none().then(|| "no memory for a tab".into()),
            live,
            result: None,
            cpu: Duration::ZERO,
            output: keep.then(Vec::new),
            cut: 0,
        };
        if let Some((engine, _)) = &mut tab.live {
            match engine.run(&program.text, &program.file) {
                Ok(result) => tab.result = result,
                Err(thrown) => tab.failure = Some(thrown),
            }
        }
        tab.cpu += cpu_time() - began;
        tab
    }

    /// Runs a timer that is due; `false`: none is.
    pub(crate) fn turn(&mut self) -> bool {
        let Some((engine, _)) = self.live.as_mut().filter(|_| self.failure.is_none()) else {
            return false;
        };
        let began = cpu_time();
        let ran = engine.turn();
        self.cpu += cpu_time() - began;
        ran.unwrap_or_else(|thrown| {
            self.failure = Some(thrown);
            false
        })
    }

    /// Returns when it wants the next turn, in milliseconds since the start.
    pub(crate) fn next_ms(&self) -> Option<f64> {
        let live = self.live.as_ref().filter(|_| self.failure.is_none());
        live.and_then(|(engine, _)| engine.next_ms())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.live.is_some()
    }

    /// Collects cycles.
    pub(crate) fn collect(&self) {
        if let Some((engine, _)) = &self.live {
            engine.collect();
        }
    }

    /// Calls what the program wants to do at its end.
    pub(crate) fn say_goodbye(&mut self) {
        if let Some((engine, _)) = &mut self.live
            && let Err(thrown) = engine.say_goodbye()
        {
            self.failure.get_or_insert(thrown);
        }
    }

    /// Closes it: its memory goes.
    pub(crate) fn close(&mut self) {
        self.say_goodbye();
        if let Some((mut engine, memory)) = self.live.take() {
            self.output = engine.state.kept.take();
            self.cut = engine.state.cut;
            engine.end(memory);
        }
    }

    /// Returns what it holds.
    pub(crate) fn tenant(&self) -> Option<TenantRow> {
        let (engine, memory) = self.live.as_ref()?;
        let holds = memory.holds();
        Some(TenantRow {
            name: format!("tab {}", self.number),
            engine_bytes: engine.bytes(),
            blocks: holds.map(|holds| holds.blocks as u64),
            bytes: holds.map(|holds| holds.bytes as u64),
            page_bytes: holds.map(|holds| holds.page_bytes as u64),
        })
    }

    /// Returns what became of it.
    pub(crate) fn row(&mut self) -> ProgramRow {
        if let Some((engine, _)) = &mut self.live {
            self.output = engine.state.kept.take();
            self.cut = engine.state.cut;
        }
        ProgramRow {
            tab: self.number,
            file: self.file.clone(),
            failure: self.failure.clone().map(|text| Failure { text }),
            result: self.result.clone(),
            cpu_ms: self.cpu.as_secs_f64() * 1e3,
            output: self.output.clone(),
            output_cut: self.cut,
        }
    }
}
