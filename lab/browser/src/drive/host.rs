//! The JavaScript host of this repository: a tab for each program, opened and closed by lines of JSON.
//!
//! ```text
//!   this ── {"id":1,"do":"open","file":…} ─► stdin  skinflint-js --driven  ─► its answers on stdout (js/host/src/driven.rs)
//! ```
//!
//! H1  A target's address is the path of a program; no page and no server is involved.
//! H2  The host is what is measured: its pipes are ours, its process is the root of the tree.
//!
//! Not here: what the host does (`js/host`).

use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::lines::Lines;
use super::{Drive, Loaded, Target};
use crate::plan::Kind;

/// The time that a call may take beyond the time given to the program.
const SLACK: Duration = Duration::from_secs(20);
/// The time that a call may take that waits for no program; closing a tab may run its `onclose`.
const CALL: Duration = Duration::from_secs(60);

/// The host's pipes.
pub struct Host {
    lines: Lines,
    version: String,
}

impl Host {
    /// Takes the pipes of a host that has just been started, and asks for its version.
    ///
    /// # Errors
    /// If it does not answer as a host does.
    pub fn connect(child: &mut Child) -> Result<Host> {
        let mut lines = Lines::new(child.stdin.take(), child.stdout.take())?;
        let said = lines
            .ask(json!({"do": "report"}), CALL)
            .context("the JavaScript host; what it said is in browser.log")?;
        let of = |key: &str| said[key].as_str().unwrap_or("?").to_owned();
        let version = format!("Boa {}, heap {}", of("boa"), of("heap"));
        Ok(Host { lines, version })
    }
}

impl Drive for Host {
    fn open(&mut self, target: &Target, _kind: Kind, limit: Duration) -> Result<Loaded> {
        let all = limit.as_millis() as u64;
        let request = json!({"do": "open", "file": target.url, "timeout_ms": all});
        let answer = self.lines.ask(request, limit + SLACK)?;
        Ok(Loaded {
            tab: answer["tab"].as_str().unwrap_or_default().to_owned(),
            load_ms: answer["load_ms"].as_u64().unwrap_or(0),
            failed: answer["failed"].as_str().map(str::to_owned),
        })
    }

    fn close(&mut self, tab: &str) -> Result<()> {
        let asked = self.lines.ask(json!({"do": "close", "tab": tab}), CALL);
        asked.map(drop)
    }

    fn collect(&mut self) -> Result<Option<u64>> {
        self.lines.ask(json!({"do": "gc"}), CALL).map(|_| Some(0))
    }

    fn dump(&mut self) -> Result<Option<Value>> {
        self.lines.ask(json!({"do": "report"}), CALL).map(Some)
    }

    fn version(&self) -> Option<String> {
        Some(self.version.clone())
    }
}
