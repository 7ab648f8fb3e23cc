//! Lines about something that only its own thread may read.
//!
//! ```text
//!   thread of the heap: published.publish(|out| …)  ─►  [ lines ]  ─►  report, on the thread of a measurement
//! ```
//!
//! D1  What is reported is as of the last time it was published, and a line says how long ago that was: the figures of
//!     an idle thread are old and still right; those of a busy thread may be wrong, and the line shows their age.
//! D2  An unsound line or a panic at the time of publishing is a fault at the time of reporting.
//!
//! Not here: when to publish. Good moments are after each collection, and before the thread sleeps.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::entry::component;
use crate::round::Reporter;
use crate::round::{Fault, Round, Sink};
use crate::store::Store;

/// A reporter that reports what another thread published last.
pub struct Published {
    name: String,
    last: Mutex<Option<(Store, Option<Fault>, Instant)>>,
}

impl Published {
    /// Creates a reporter with nothing published yet. The name is part of a path.
    pub fn new(name: &str) -> Published {
        Published {
            name: component(name).into_owned(),
            last: Mutex::new(None),
        }
    }

    /// Replaces what was published. Cost: that of the lines; the lock is held for an exchange only.
    pub fn publish(&self, report: impl FnOnce(&mut Sink<'_>)) {
        // No bound on amounts here: an amount that is too large is found when it is reported.
        let round = Round::new(Store::new(), u64::MAX);
        round.here(&self.name, report);
        let (store, faults) = round.finish();
        let new = Some((store, faults.into_iter().next(), Instant::now()));
        let old = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *last, new)
        };
        drop(old);
    }
}

impl Reporter for Published {
    fn report(&self, out: &mut Sink<'_>) {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((store, fault, when)) = &*last else {
            return out.fail("it has published nothing yet");
        };
        if let Some(fault) = fault {
            return out.fail(&fault.what);
        }
        for entry in store.iter() {
            if !out.add(&entry) {
                return;
            }
        }
        let age_ms = u64::try_from(when.elapsed().as_millis()).unwrap_or(u64::MAX);
        let path = format!("published-age-ms/{}", self.name);
        out.count(
            &path,
            age_ms,
            "Milliseconds since these lines were published.",
        );
    }
}
