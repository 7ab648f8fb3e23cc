//! Plans: which pages, how many windows, how fast, and where the figures are taken.
//!
//! ```text
//!   start ─ settle ─► load … load ─► tabs-open ─ settle ─► tabs-open-settled ─ gc ─► tabs-open-gc
//!                      │ oldest closed once `keep` are open                            │ close all but `leave`
//!                      └ a checkpoint after each cycle                                 ▼
//!                      tabs-closed ─ settle ─► tabs-closed-settled ─ rest ─► rested ─ gc ─► tabs-closed-gc
//! ```
//!
//! P1  A plan is data: the built-in ones could be plan files, and every output repeats the plan that was run.
//! P2  A key that a plan file lacks is as in `cycle`; a key that is not known is an error, not ignored.
//! P3  Every number is bounded, so that a typing mistake cannot run for a year.
//!
//! Not here: running it (run.rs).

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// The way in which a page is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A window of its own.
    Window,
    /// A tab of the first window.
    Tab,
}

impl Kind {
    /// Returns the drivers' name for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Window => "window",
            Kind::Tab => "tab",
        }
    }
}

/// A test, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Its name, for files and headings.
    pub name: String,
    /// Pages: `corpus`, `light`, `shared`, or names of pages, `.js` programs, file names of recordings, addresses.
    pub pages: Vec<String>,
    /// The number of these pages that are used, from the front; 0 is all.
    pub page_count: u32,
    /// How often the pages are gone through.
    pub cycles: u32,
    /// How often the whole plan is run in the same browser; checkpoints are of the last time, `start` of the first.
    pub iterations: u32,
    /// Windows that stay open: before one more is opened, the oldest is closed. 0 keeps all.
    pub keep: u32,
    /// The number of windows left open at the end, of those that the plan opened.
    pub leave: u32,
    /// Whether windows or tabs are opened.
    pub kind: Kind,
    /// Seconds from the beginning of one load to the beginning of the next; a load that takes longer delays the next.
    pub interval_s: f64,
    /// Seconds of waiting after the start, after the last load and after the close.
    pub settle_s: f64,
    /// Additional seconds of waiting after the close.
    pub rest_s: f64,
    /// Seconds after which a load has failed.
    pub load_timeout_s: f64,
    /// Whether the browser is asked to collect and minimize, if it can, and then measured again.
    pub gc: bool,
    /// Whether Octane runs with one tab open, and with all.
    pub benchmark: bool,
    /// Whether a checkpoint, `one-open`, is taken with the first window open.
    pub one_open: bool,
    /// Whether heap snapshots of the pages that are left open are taken after the last checkpoint (Chromium by CDP).
    pub snapshots: bool,
    /// Whether all pages come from one origin, so that browsers that keep one origin in one process do so.
    pub one_origin: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            name: "cycle".into(),
            pages: vec!["corpus".into()],
            page_count: 29,
            cycles: 11,
            iterations: 1,
            keep: 30,
            leave: 1,
            kind: Kind::Window,
            interval_s: 3.0,
            settle_s: 30.0,
            rest_s: 270.0,
            load_timeout_s: 60.0,
            gc: true,
            benchmark: false,
            one_open: false,
            snapshots: false,
            one_origin: false,
        }
    }
}

/// The plans that need no file.
pub const NAMES: [&str; 5] = ["cycle", "scale", "slim", "shared", "programs"];

/// Returns a built-in plan by name.
fn built_in(name: &str) -> Option<Plan> {
    let plan = Plan {
        name: name.into(),
        ..Plan::default()
    };
    Some(match name {
        "cycle" => plan,
        "scale" => Plan {
            pages: vec!["light".into()],
            page_count: 150,
            cycles: 1,
            keep: 0,
            kind: Kind::Tab,
            interval_s: 1.5,
            settle_s: 90.0,
            rest_s: 60.0,
            benchmark: true,
            ..plan
        },
        "slim" => Plan {
            page_count: 0,
            cycles: 1,
            iterations: 3,
            kind: Kind::Tab,
            interval_s: 10.0,
            rest_s: 0.0,
            ..plan
        },
        "shared" => Plan {
            pages: vec!["shared".into()],
            page_count: 10,
            cycles: 2,
            keep: 8,
            leave: 0,
            interval_s: 0.0,
            rest_s: 150.0,
            one_origin: true,
            gc: false,
            ..plan
        },
        "programs" => Plan {
            pages: vec!["objects".into()],
            page_count: 0,
            cycles: 150,
            keep: 0,
            kind: Kind::Tab,
            interval_s: 0.0,
            settle_s: 10.0,
            rest_s: 50.0,
            ..plan
        },
        _ => return None,
    })
}

/// Loads a plan by name or from a file.
///
/// # Errors
/// If it is neither, or asks for something impossible.
pub fn load(named: &str) -> Result<Plan> {
    if let Some(plan) = built_in(named) {
        return Ok(plan);
    }
    if !Path::new(named).exists() {
        bail!(
            "--plan {named}: no plan of that name ({}), and no such file",
            NAMES.join(", ")
        );
    }
    let text = std::fs::read_to_string(named).with_context(|| format!("{named}: not readable"))?;
    let plan: Plan = toml::from_str(&text).with_context(|| format!("{named}: not a plan"))?;
    plan.check()
        .with_context(|| format!("{named}: not a plan"))?;
    Ok(plan)
}

impl Plan {
    /// Refuses values that make no sense (P3).
    ///
    /// # Errors
    /// Names the key and its allowed values.
    pub fn check(&self) -> Result<()> {
        let counts = [
            ("cycles", self.cycles, 1, 10_000),
            ("iterations", self.iterations, 1, 1_000),
            ("keep", self.keep, 0, 1_000),
            ("leave", self.leave, 0, 1_000),
            ("page_count", self.page_count, 0, 10_000),
        ];
        for (key, value, least, most) in counts {
            if !(least..=most).contains(&value) {
                bail!("{key} = {value}: from {least} to {most}");
            }
        }
        let times = [
            ("interval_s", self.interval_s, 0.0),
            ("settle_s", self.settle_s, 0.0),
            ("rest_s", self.rest_s, 0.0),
            ("load_timeout_s", self.load_timeout_s, 1.0),
        ];
        for (key, value, least) in times {
            if !(least..=86_400.0).contains(&value) {
                bail!("{key} = {value}: seconds from {least} to 86400");
            }
        }
        if self.pages.is_empty() {
            bail!("pages = []: name at least one, or \"corpus\", \"light\", \"shared\"");
        }
        if self.name.is_empty()
            || !self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '-')
        {
            bail!(
                "name = {:?}: letters, digits and - only, for it names files",
                self.name
            );
        }
        Ok(())
    }

    /// Returns the order of loads: indices into `pages` pages.
    pub fn order(&self, pages: usize) -> Vec<usize> {
        (0..self.cycles as usize).flat_map(|_| 0..pages).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_posts_figures() {
        let cycle = load("cycle").expect("built in");
        assert_eq!((cycle.keep, cycle.interval_s), (30, 3.0));
        assert_eq!(cycle.order(29).len(), 319);
        assert_eq!(cycle.order(29)[29], 0);
        let scale = load("scale").expect("built in");
        assert_eq!(
            (scale.page_count, scale.interval_s, scale.keep),
            (150, 1.5, 0)
        );
        for name in NAMES {
            load(name).expect("built in").check().expect("sound");
        }
    }

    #[test]
    fn a_file_is_read_and_what_it_may_not_hold_is_named() {
        let folder = tempfile::tempdir().expect("room");
        let said = |text: &str| {
            let path = folder.path().join("p.toml");
            std::fs::write(&path, text).expect("room");
            load(path.to_str().expect("plain"))
        };
        let own = said("name = \"mine\"\ncycles = 2\nkeep = 4\nkind = \"tab\"").expect("sound");
        assert_eq!((own.cycles, own.keep, own.kind), (2, 4, Kind::Tab));
        assert_eq!(own.interval_s, 3.0);
        for (text, word) in [
            ("cycle = 2", "cycle"),
            ("cycles = 0", "cycles = 0"),
            ("interval_s = -1.0", "interval_s"),
            ("settle_s = nan", "settle_s"),
            ("pages = []", "pages"),
            ("name = \"../x\"", "name"),
        ] {
            let error = format!("{:#}", said(text).expect_err(text));
            assert!(
                error.contains(word) && error.contains("p.toml"),
                "{text}: {error}"
            );
        }
        let error = format!("{:#}", load("nothing").expect_err("no such plan"));
        assert!(error.contains("cycle, scale, slim, shared"), "{error}");
    }
}
