//! Driving a browser: six ways behind one interface.
//!
//! ```text
//!   run ─► Drive ─┬─ node.rs        puppeteer-core: CDP, BiDi       a small program beside
//!                 ├─ marionette.rs  Firefox, plain TCP
//!                 ├─ webdriver.rs   W3C classic, plain HTTP
//!                 ├─ opener.rs      a page that opens windows, told by the pages' server
//!                 └─ host.rs        our JavaScript host, by its pipes
//! ```
//!
//! D1  Every call has a limit, after which it is an error: a browser that does not answer never stops a run.
//! D2  A load that fails is an answer (`Loaded::failed`) and its tab is still open; an error of the call is one of
//!     the browser or of its driver.
//! D3  Nothing but the plan's steps is asked of the browser while it is measured.
//!
//! Not here: which page is opened when (run.rs).

pub mod host;
pub mod lines;
pub mod marionette;
pub mod node;
pub mod opener;
pub mod webdriver;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::plan::Kind;

/// A page to open.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its address.
    pub url: String,
    /// Its host, without `.localhost`.
    pub host: String,
    /// A script's condition that is true when it has drawn its content.
    pub ready: Option<String>,
}

/// The result of a load.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The name of the tab, for [`Drive::close`].
    pub tab: String,
    /// Time until it was loaded and ready, ms.
    pub load_ms: u64,
    /// Why it did not load.
    pub failed: Option<String>,
}

/// A browser that can be told what to do.
pub trait Drive {
    /// Opens a page in a new tab or window, and waits until it is loaded and ready, or `limit` has passed.
    ///
    /// # Errors
    /// If the browser does not answer.
    fn open(&mut self, target: &Target, kind: Kind, limit: Duration) -> Result<Loaded>;

    /// Closes a tab.
    ///
    /// # Errors
    /// If the browser does not answer.
    fn close(&mut self, tab: &str) -> Result<()>;

    /// Collects garbage by the driver. Returns how many pages did not confirm that they had collected; `None` if the
    /// driver cannot collect.
    ///
    /// # Errors
    /// If the browser does not answer.
    fn collect(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Returns Chromium's memory-infra dump, as trace events; from our host, the figures of its heap.
    ///
    /// # Errors
    /// If the browser does not answer.
    fn dump(&mut self) -> Result<Option<Value>> {
        Ok(None)
    }

    /// Writes heap snapshots of the pages that are open into a folder. Returns their file names; none if the driver cannot.
    ///
    /// # Errors
    /// If the browser does not answer.
    fn snapshots(&mut self, _folder: &Path) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Returns processes that were started for driving and do not belong to the browser.
    fn helpers(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Returns the version that the browser itself reports.
    fn version(&self) -> Option<String> {
        None
    }
}

/// Waits for an answer in slices, so that a signal is not kept waiting.
pub fn wait<T>(answers: &std::sync::mpsc::Receiver<T>, limit: Duration, what: &str) -> Result<T> {
    use std::sync::mpsc::RecvTimeoutError;
    let until = std::time::Instant::now() + limit;
    loop {
        match answers.recv_timeout(Duration::from_millis(50)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => bail!("{what}: the browser's driver has ended"),
            Err(RecvTimeoutError::Timeout) if crate::family::is_interrupted() => {
                bail!("interrupted")
            }
            Err(RecvTimeoutError::Timeout) if std::time::Instant::now() > until => {
                bail!("{what}: no answer for {} s", limit.as_secs())
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
