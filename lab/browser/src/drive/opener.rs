//! Any browser, not driven at all: a page of ours opens and closes windows, as the pages' server tells it.
//!
//! ```text
//!   opener.html ── "done; what next?" ─► site ─► (waits) ─► {"do":"open","url":…} ─► window.open
//! ```
//!
//! O1  A page counts as loaded when its host has been asked for something and then for nothing during [`QUIET`]: no
//!     page can look into a window of another origin. So load times are longer by that, and conditions of readiness
//!     are not checked.
//!
//! Source: Gregor Wagner's test of 2011, in which a page opened 150 others on a timer; here it is told when.
//!
//! Not here: the page (opener.html), the server (site.rs).

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use super::{Drive, Loaded, Target, wait};
use crate::plan::Kind;
use crate::site::Site;

/// The silence after which a page is considered loaded.
pub const QUIET: Duration = Duration::from_millis(1500);
const CALL: Duration = Duration::from_secs(60);

/// The page, reached through its server.
pub struct Opener {
    site: Arc<Site>,
    number: u64,
}

impl Opener {
    /// Waits until the page asks for the first time.
    ///
    /// # Errors
    /// If it never asks.
    pub fn connect(site: Arc<Site>) -> Result<Opener> {
        let mut opener = Opener { site, number: 0 };
        opener.tell(json!({"do": "begin"}))?;
        Ok(opener)
    }

    fn tell(&mut self, mut what: serde_json::Value) -> Result<()> {
        self.number += 1;
        what["id"] = self.number.into();
        let answers = self.site.tell(&what, CALL)?;
        let said = wait(&answers, CALL, "the page that opens windows")?;
        if let Some(error) = said["error"].as_str() {
            bail!("the page that opens windows: {error}");
        }
        Ok(())
    }
}

impl Drive for Opener {
    fn open(&mut self, target: &Target, kind: Kind, limit: Duration) -> Result<Loaded> {
        let began = Instant::now();
        self.site.forget(&target.host);
        let tab = (self.number + 1).to_string();
        self.tell(json!({"do": "open", "tab": tab, "url": target.url, "kind": kind.name()}))?;
        let mut failed = Some(format!(
            "{} was not quiet for {} s",
            target.host,
            limit.as_secs()
        ));
        while began.elapsed() < limit {
            if self
                .site
                .quiet(&target.host)
                .is_some_and(|quiet| quiet >= QUIET)
            {
                failed = None;
                break;
            }
            if crate::family::is_interrupted() {
                bail!("interrupted");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Loaded {
            tab,
            load_ms: began.elapsed().as_millis() as u64,
            failed,
        })
    }

    fn close(&mut self, tab: &str) -> Result<()> {
        self.tell(json!({"do": "close", "tab": tab}))
    }
}
