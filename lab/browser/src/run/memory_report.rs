//! The memory reports of Firefox: asked for by a signal, awaited, and read for what is left of closed pages.
//!
//! ```text
//!   SIGRTMIN(+1) ─► tmp/incomplete-unified-memory-report-… ─► tmp/unified-memory-report-… ─► memory-report-NAME.json.gz
//! ```
//!
//! R1  A report is taken for the checkpoint that asked for it: while one is owed, no other is asked for.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{CLOSED, Runner};
use crate::zombies;

/// The time in which Firefox must have begun a memory report; it may minimize its memory first.
const BEGUN: Duration = Duration::from_secs(180);
/// The time that Firefox may take for a memory report: all of its processes take part in it, and the slowest decides.
/// Firefox itself waits three minutes for one that does not answer, and then writes the report without it.
const REPORT: Duration = Duration::from_secs(600);

impl Runner<'_, '_> {
    /// Reads what is left of closed pages from Firefox's report: the one after the last collection, or if that is
    /// missing or says nothing of it, a new one.
    pub(super) fn left_in_firefox(&mut self) -> Result<()> {
        for name in [CLOSED, "end", "end-again"] {
            if name != CLOSED && !self.firefox_report(name, false)? {
                continue;
            }
            let report = memory_report(name);
            if !self.run.reports.contains(&report) {
                continue;
            }
            let mut zombies = self.run.zombies.clone();
            match zombies::firefox(&self.job.folder.join(&report), &mut zombies) {
                Ok(()) if zombies.ghost_windows.is_some() => {
                    self.run.zombies = zombies;
                    return Ok(());
                }
                Ok(()) => self
                    .run
                    .notes
                    .push(format!("{report}: no line \"ghost-windows\"")),
                Err(error) => self.run.notes.push(format!("{error:#}")),
            }
        }
        Ok(())
    }

    /// Makes Firefox write a memory report, by a signal; with `minimize` it collects three times before.
    pub(super) fn firefox_report(&mut self, name: &str, minimize: bool) -> Result<bool> {
        // Firefox ignores the signal while it writes a report. One that came too late for its own checkpoint would be
        // taken as this one's.
        if let Some(late) = self.owed.take()
            && !self.take_report(&late)?
        {
            self.run.notes.push(format!(
                "{name}: not asked for, since Firefox still owes the report of {late}"
            ));
            self.owed = Some(late);
            return Ok(false);
        }
        let signal = libc::SIGRTMIN() + i32::from(minimize);
        // SAFETY: no memory is involved; `main` was alive a moment ago and is ours.
        unsafe { libc::kill(self.main as i32, signal) };
        if self.take_report(name)? {
            return Ok(true);
        }
        self.owed = Some(name.into());
        let what = match self.begun_report() {
            true => format!("did not end its memory report in {} s", REPORT.as_secs()),
            false => format!("began no memory report in {} s", BEGUN.as_secs()),
        };
        self.run.notes.push(format!("{name}: Firefox {what}"));
        Ok(false)
    }

    /// Returns the first of Firefox's files that begins so.
    fn written(&self, prefix: &str) -> Option<fs::DirEntry> {
        let all = fs::read_dir(self.folder.join("tmp")).into_iter().flatten();
        let begins = |entry: &fs::DirEntry| {
            let name = entry.file_name();
            name.to_string_lossy().starts_with(prefix)
        };
        all.flatten().find(begins)
    }

    /// Reports whether Firefox is writing a memory report: it has that name until it is whole.
    fn begun_report(&self) -> bool {
        self.written("incomplete-unified-memory-report-").is_some()
    }

    /// Waits for a report, and moves it into the run's folder; `false` if none was begun in [`BEGUN`], or none was
    /// whole in [`REPORT`].
    fn take_report(&mut self, name: &str) -> Result<bool> {
        let begun = Instant::now();
        loop {
            // Before the look: a report that is whole by then is found.
            let waited = begun.elapsed();
            let is_due = waited > REPORT || (waited > BEGUN && !self.begun_report());
            if let Some(entry) = self.written("unified-memory-report-") {
                let report = memory_report(name);
                let to = self.job.folder.join(&report);
                fs::copy(entry.path(), &to)
                    .with_context(|| format!("{}: cannot be written", to.display()))?;
                fs::remove_file(entry.path())?;
                self.run.reports.push(report);
                return Ok(true);
            }
            if is_due {
                return Ok(false);
            }
            self.rest(Duration::from_millis(200))?;
        }
    }
}

fn memory_report(name: &str) -> String {
    format!("memory-report-{name}.json.gz")
}
