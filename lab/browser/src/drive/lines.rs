//! A program that is asked with lines of JSON: requests on its stdin, answers on its stdout, matched by number.
//!
//! ```text
//!   {"id":1,"do":"open",…} ─► stdin  program  stdout ─► {"id":1,"ok":{…}} or {"id":1,"error":"…"}
//! ```
//!
//! J1  An answer that comes after its limit is not taken as the answer of the next request.
//! J2  A line that is no answer is skipped.
//!
//! Not here: what is asked (node.rs, host.rs), starting and ending the program.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::wait;

/// Both ends of the program's pipes.
pub struct Lines {
    stdin: Option<ChildStdin>,
    answers: Receiver<Value>,
    number: u64,
}

impl Lines {
    /// Takes the pipes of a program that was started with them.
    ///
    /// # Errors
    /// If it was started without them.
    pub fn new(stdin: Option<ChildStdin>, stdout: Option<ChildStdout>) -> Result<Lines> {
        let stdout = stdout.context("no pipe from the driver")?;
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or(Value::Null);
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        Ok(Lines {
            stdin,
            answers,
            number: 0,
        })
    }

    /// Asks, and waits for the answer of the same number (J1).
    ///
    /// # Errors
    /// The error that the program answers, or that it does not answer.
    pub fn ask(&mut self, mut request: Value, limit: Duration) -> Result<Value> {
        self.number += 1;
        request["id"] = self.number.into();
        let what = request["do"].as_str().unwrap_or("").to_owned();
        let stdin = self.stdin.as_mut().context("the driver has been ended")?;
        writeln!(stdin, "{request}").with_context(|| format!("{what}: the driver has ended"))?;
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut answer = wait(&self.answers, left, &what)?;
            if answer["id"] != self.number {
                continue;
            }
            if let Some(error) = answer["error"].as_str() {
                bail!("{what}: {error}");
            }
            return Ok(answer["ok"].take());
        }
    }

    /// Closes the program's stdin, at which it ends.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }
}
