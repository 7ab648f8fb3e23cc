//! Chromium by CDP and Firefox by WebDriver BiDi, through puppeteer-core in a small program of ours.
//!
//! ```text
//!   this ── {"id":1,"do":"open",…} ─► stdin  driver.mjs (node) ─► WebSocket ─► browser
//!        ◄─ {"id":1,"ok":{…}} ─────── stdout
//! ```
//!
//! N1  The program and its lock file are part of this one (`include_str!`); `npm ci` puts the packages, checked by the
//!     hashes of the lock file, into the cache folder once.
//! N2  Requests and answers are lines of JSON (lines.rs).
//!
//! Not here: the protocol's meaning (driver.mjs).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::lines::Lines;
use super::{Drive, Loaded, Target};
use crate::family;
use crate::plan::Kind;
use crate::start::Driver;

const SCRIPT: &str = include_str!("../../driver/driver.mjs");
const PACKAGE: &str = include_str!("../../driver/package.json");
const LOCK: &str = include_str!("../../driver/package-lock.json");

/// The time that a call may take beyond the time given to the page.
const SLACK: Duration = Duration::from_secs(20);
/// The time that a call may take that waits for no page.
const CALL: Duration = Duration::from_secs(60);

/// The connected program.
pub struct Node {
    child: Child,
    lines: Lines,
    version: Option<String>,
}

/// Puts the driver and its packages into the cache; returns the folder.
///
/// # Errors
/// If npm is missing, or fails.
pub fn install(cache: &Path) -> Result<PathBuf> {
    use sha2::{Digest, Sha256};
    // Another lock file has another folder: versions of skinflint do not disturb each other.
    let sum = Sha256::digest([SCRIPT, PACKAGE, LOCK].concat());
    let name: String = sum
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let folder = cache.join(format!("driver-{name}"));
    if folder.join("ready").exists() {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    for (file, text) in [
        ("driver.mjs", SCRIPT),
        ("package.json", PACKAGE),
        ("package-lock.json", LOCK),
    ] {
        fs::write(folder.join(file), text)
            .with_context(|| format!("{}/{file}", folder.display()))?;
    }
    let done = Command::new("npm")
        .args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--loglevel=error",
        ])
        .current_dir(&folder)
        .output()
        .context("npm cannot be started; `make tabs-deps` installs it")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("npm ci in {} failed: {}", folder.display(), said.trim());
    }
    fs::write(folder.join("ready"), "")?;
    Ok(folder)
}

impl Node {
    /// Starts the program and connects it to a browser.
    ///
    /// # Errors
    /// If either fails.
    pub fn connect(
        cache: &Path,
        driver: Driver,
        endpoint: &str,
        token: &str,
        log: &Path,
    ) -> Result<Node> {
        let folder = install(cache)?;
        let said = fs::File::options().append(true).create(true).open(log)?;
        let mut command = Command::new("node");
        command.arg(folder.join("driver.mjs")).current_dir(&folder);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said);
        let mut child =
            family::start(&mut command, token).context("`make tabs-deps` installs node")?;
        let lines = Lines::new(child.stdin.take(), child.stdout.take())?;
        let mut node = Node {
            child,
            lines,
            version: None,
        };
        let protocol = if driver == Driver::Bidi {
            "bidi"
        } else {
            "cdp"
        };
        let answer = node.lines.ask(
            json!({"do": "connect", "protocol": protocol, "endpoint": endpoint}),
            CALL,
        )?;
        node.version = answer["version"].as_str().map(str::to_owned);
        Ok(node)
    }

    /// Records pages as HAR. Returns the recording, and how many requests had not ended.
    ///
    /// # Errors
    /// If a page cannot be loaded.
    pub fn record(&mut self, urls: &[String], limit: Duration) -> Result<(Value, u64)> {
        let all = limit * urls.len() as u32 + SLACK;
        let request = json!({"do": "record", "urls": urls, "timeout_ms": limit.as_millis() as u64, "settle_ms": 2000});
        let mut answer = self.lines.ask(request, all)?;
        let unfinished = answer["unfinished"].as_u64().unwrap_or(0);
        Ok((answer["har"].take(), unfinished))
    }
}

impl Drive for Node {
    fn open(&mut self, target: &Target, kind: Kind, limit: Duration) -> Result<Loaded> {
        let request = json!({"do": "open", "kind": kind.name(), "url": target.url, "ready": target.ready,
                             "timeout_ms": limit.as_millis() as u64});
        let answer = self.lines.ask(request, limit + SLACK)?;
        Ok(Loaded {
            tab: answer["tab"].as_str().unwrap_or_default().to_owned(),
            load_ms: answer["load_ms"].as_u64().unwrap_or(0),
            failed: answer["failed"].as_str().map(str::to_owned),
        })
    }

    fn close(&mut self, tab: &str) -> Result<()> {
        self.lines
            .ask(json!({"do": "close", "tab": tab}), CALL)
            .map(drop)
    }

    fn collect(&mut self) -> Result<Option<u64>> {
        // Three steps of at most 10 s each (driver.mjs, COLLECT_MS).
        match self.lines.ask(json!({"do": "gc"}), CALL * 2) {
            Ok(answer) => Ok(Some(answer["silent"].as_u64().unwrap_or(0))),
            Err(error) if error.to_string().contains("no garbage collection") => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn dump(&mut self) -> Result<Option<Value>> {
        match self.lines.ask(json!({"do": "dump"}), CALL * 2) {
            Ok(mut answer) => Ok(Some(answer["events"].take())),
            Err(error) if error.to_string().contains("no memory dump") => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn snapshots(&mut self, folder: &Path) -> Result<Vec<String>> {
        let request = json!({"do": "snapshots", "folder": folder});
        match self.lines.ask(request, CALL * 4) {
            Ok(answer) => Ok(serde_json::from_value(answer["files"].clone())?),
            Err(error) if error.to_string().contains("no heap snapshots") => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn helpers(&self) -> Vec<u32> {
        vec![self.child.id()]
    }

    fn version(&self) -> Option<String> {
        self.version.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It ends when its stdin ends (driver.mjs, drive.D3); we do not wait long for it.
        self.lines.hang_up();
        for _ in 0..50 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
