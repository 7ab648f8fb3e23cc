//! Firefox by Marionette: messages with their length in front, over TCP.
//!
//! ```text
//!   ──►  47:[0,1,"WebDriver:Navigate",{"url":"…"}]
//!   ◄──  16:[1,1,null,{…}]          type 1, the number, an error or null, the answer
//! ```
//!
//! M1  A message begins with its length in decimal and a colon; more than [`LONGEST`] is refused.
//! M2  We subscribe to nothing, so that no events of pages are kept in the parent process on our behalf.
//! M3  After a window was closed, the connection is closed and another one made: behind a connection Firefox keeps
//!     every window that it was ever switched to, closed or not, with its whole document (5 MB each in Firefox 153,
//!     1.5 GB after 289 of them); ending only the session does not release them. The next session has other names for
//!     the same windows, in the same order.
//!
//! Source: the protocol's description in Firefox's source documentation, "Marionette: Protocol", level 3.
//!
//! Not here: starting Firefox (start.rs).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Drive, Loaded, Target};
use crate::family;
use crate::plan::Kind;

const LONGEST: usize = 64 << 20;
const CALL: Duration = Duration::from_secs(60);
/// The first answer: a browser that is just starting on a busy machine took longer than a minute for it.
const START: Duration = Duration::from_secs(150);
const SLACK: Duration = Duration::from_secs(20);

fn reach(endpoint: &str) -> Result<TcpStream> {
    let stream =
        TcpStream::connect(endpoint).with_context(|| format!("{endpoint}: no Marionette"))?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection to Firefox.
pub struct Marionette {
    endpoint: String,
    stream: TcpStream,
    number: u64,
    version: Option<String>,
    load_limit: Option<Duration>,
    /// This session's names for windows that another session has named (M3).
    renamed: BTreeMap<String, String>,
}

impl Marionette {
    /// Connects, and begins a session.
    ///
    /// # Errors
    /// If no program answers, or not as Marionette does.
    pub fn connect(endpoint: &str) -> Result<Marionette> {
        let mut marionette = Marionette {
            endpoint: endpoint.to_owned(),
            stream: reach(endpoint)?,
            number: 0,
            version: None,
            load_limit: None,
            renamed: BTreeMap::new(),
        };
        marionette.begin()?;
        Ok(marionette)
    }

    /// Begins a session on a fresh connection.
    fn begin(&mut self) -> Result<()> {
        let hello = self.message(START)?;
        if hello["marionetteProtocol"] != 3 {
            bail!(
                "{}: says {hello}, not Marionette of protocol 3",
                self.endpoint
            );
        }
        let session = self.call(
            "WebDriver:NewSession",
            json!({"capabilities": {"alwaysMatch": {
            "unhandledPromptBehavior": "dismiss", "pageLoadStrategy": "normal"}}}),
            START,
        )?;
        let says = |key: &str| {
            session["capabilities"][key]
                .as_str()
                .unwrap_or("")
                .to_owned()
        };
        let version = format!("{} {}", says("browserName"), says("browserVersion"));
        self.version = Some(version);
        // Timeouts belong to the session.
        self.load_limit = None;
        Ok(())
    }

    /// Closes the connection and makes another one (M3).
    fn renew(&mut self) -> Result<()> {
        let old = self.windows()?;
        self.call("WebDriver:DeleteSession", json!({}), CALL)?;
        self.stream = reach(&self.endpoint)?;
        self.begin()?;
        let new = self.windows()?;
        if old.len() != new.len() {
            bail!(
                "{} windows, and {} in the next session",
                old.len(),
                new.len()
            );
        }
        let mut next: BTreeMap<String, String> = old.into_iter().zip(new).collect();
        let known = std::mem::take(&mut self.renamed).into_iter();
        let renamed = known.filter_map(|(name, current)| Some((name, next.remove(&current)?)));
        self.renamed = renamed.collect();
        // These are windows that the ended session had named itself.
        self.renamed.extend(next);
        Ok(())
    }

    /// Returns the names of all windows that are open.
    fn windows(&mut self) -> Result<Vec<String>> {
        let answer = self.call("WebDriver:GetWindowHandles", json!({}), CALL)?;
        let names = answer
            .as_array()
            .context("WebDriver:GetWindowHandles: no list")?;
        let text = |name: &Value| name.as_str().map(str::to_owned);
        Ok(names.iter().filter_map(text).collect())
    }

    fn call(&mut self, name: &str, parameters: Value, limit: Duration) -> Result<Value> {
        self.number += 1;
        let text = json!([0, self.number, name, parameters]).to_string();
        write!(self.stream, "{}:{text}", text.len())
            .with_context(|| format!("{name}: the browser has gone"))?;
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut answer = self.message(left).with_context(|| name.to_owned())?;
            // This is an answer to a call that was given up.
            if answer[1] != self.number {
                continue;
            }
            if let Some(said) = answer[2]["message"].as_str() {
                bail!("{name}: {said}");
            }
            return Ok(answer[3].take());
        }
    }

    /// Reads one message (M1).
    fn message(&mut self, limit: Duration) -> Result<Value> {
        let until = Instant::now() + limit;
        let mut length = 0usize;
        loop {
            let mut byte = [0];
            self.fill(&mut byte, until)?;
            match byte[0] {
                b':' => break,
                digit @ b'0'..=b'9' if length <= LONGEST => {
                    length = length * 10 + usize::from(digit - b'0')
                }
                other => bail!("byte {other} where a message's length stands"),
            }
        }
        if length > LONGEST {
            bail!("a message of {length} bytes");
        }
        let mut body = vec![0; length];
        self.fill(&mut body, until)?;
        serde_json::from_slice(&body).context("a message that is not JSON")
    }

    fn fill(&mut self, buffer: &mut [u8], until: Instant) -> Result<()> {
        use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        let mut have = 0;
        while have < buffer.len() {
            match self.stream.read(&mut buffer[have..]) {
                Ok(0) => bail!("the browser has closed the connection"),
                Ok(n) => have += n,
                Err(error) if matches!(error.kind(), WouldBlock | TimedOut | Interrupted) => {
                    if family::is_interrupted() {
                        bail!("interrupted");
                    }
                    if Instant::now() > until {
                        bail!("no answer in time");
                    }
                }
                Err(error) => return Err(error).context("the browser has gone"),
            }
        }
        Ok(())
    }

    fn load(&mut self, target: &Target, limit: Duration) -> Result<()> {
        if self.load_limit != Some(limit) {
            let all = limit.as_millis() as u64;
            self.call(
                "WebDriver:SetTimeouts",
                json!({"pageLoad": all, "script": all, "implicit": 0}),
                CALL,
            )?;
            self.load_limit = Some(limit);
        }
        let until = Instant::now() + limit;
        self.call(
            "WebDriver:Navigate",
            json!({"url": target.url}),
            limit + SLACK,
        )?;
        let Some(ready) = &target.ready else {
            return Ok(());
        };
        let script = format!("return Boolean({ready});");
        while Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now()) + SLACK;
            let answer = self.call(
                "WebDriver:ExecuteScript",
                json!({"script": script, "args": [], "sandbox": null}),
                left,
            )?;
            if answer["value"] == true {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("not ready for {} s: {ready}", limit.as_secs())
    }
}

impl Drive for Marionette {
    fn open(&mut self, target: &Target, kind: Kind, limit: Duration) -> Result<Loaded> {
        let began = Instant::now();
        let made = self.call(
            "WebDriver:NewWindow",
            json!({"type": kind.name(), "focus": true}),
            CALL,
        )?;
        let tab = made["handle"]
            .as_str()
            .context("WebDriver:NewWindow: no handle")?
            .to_owned();
        self.call(
            "WebDriver:SwitchToWindow",
            json!({"handle": tab, "focus": true}),
            CALL,
        )?;
        let failed = match self.load(target, limit) {
            Ok(()) => None,
            Err(error) => {
                let said = format!("{error:#}");
                let gone = [
                    "interrupted",
                    "no answer",
                    "closed the connection",
                    "has gone",
                ];
                if gone.iter().any(|word| said.contains(word)) {
                    return Err(error);
                }
                Some(said)
            }
        };
        Ok(Loaded {
            tab,
            load_ms: began.elapsed().as_millis() as u64,
            failed,
        })
    }

    fn close(&mut self, tab: &str) -> Result<()> {
        let handle = self.renamed.remove(tab).unwrap_or_else(|| tab.to_owned());
        self.call(
            "WebDriver:SwitchToWindow",
            json!({"handle": handle, "focus": false}),
            CALL,
        )?;
        let left = self.call("WebDriver:CloseWindow", json!({}), CALL)?;
        // If no window is left, the session has ended by itself.
        if left.as_array().is_some_and(|handles| !handles.is_empty()) {
            self.renew()?;
        }
        Ok(())
    }

    fn version(&self) -> Option<String> {
        self.version.clone()
    }
}
