//! Our heap: a tenant for each tab, and everything that it tells.
//!
//! ```text
//!   boa_gc::skinflint: Tenant, Event, Row, Ended ──► the host's words (`heap`)
//! ```
//!
//! O1  A slice that ends a few objects at an allocation is an event from 0.1 ms on; of the shorter ones the sum is told
//!     ([`slices`]).
//!
//! Not here: how it works (`shims/boa_gc`, `engines/gc`).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use boa_gc::skinflint::{self as ours, Growth, OutOfMemory, Strategy};
use skinflint_objects::{Info, Shared, hooks};

use super::{Event, Freed, Left, Placement, Row, Settings, Size, Slices};

/// The name of the heap under the engine.
pub const NAME: &str = "skinflint";

thread_local! {
    /// Objects freed in pauses and by other threads, as events told it.
    static FREED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    static RECORDING: RefCell<Option<std::path::PathBuf>> = const { RefCell::new(None) };
}

/// A tab's heap.
pub struct Tenant {
    name: String,
    inner: ours::Tenant,
}

impl Tenant {
    /// A heap of its own for a tab.
    pub fn new(name: &str, limit: Option<usize>) -> Self {
        Tenant {
            name: name.to_owned(),
            inner: ours::Tenant::new(name, limit.unwrap_or(usize::MAX)),
        }
    }

    /// Objects go here until the guard is dropped.
    pub fn enter(&self) -> ours::Guard {
        self.inner.enter()
    }

    /// Checks that it is within its limit, with the bytes that it holds outside; it is entered. If not: why, in words.
    pub fn within_limit(&self) -> Result<(), String> {
        self.inner.within_limit().map_err(|error| error.to_string())
    }

    /// Returns the memory that it holds.
    pub fn row(&self) -> Option<Row> {
        let row = self.inner.row();
        Some(Row {
            name: row.name,
            system_bytes: row.system_bytes,
            user_bytes: row.user_bytes,
            objects: row.objects,
            chunks: row.chunks,
            collections: row.collections,
        })
    }

    /// Returns what its policy did, if it has one.
    pub fn placement(&self) -> Option<Placement> {
        self.inner.placement().map(placement)
    }

    /// Ends it. What other tenants, or we, still hold of it.
    pub fn end(self) -> Option<Left> {
        let ended = self.inner.end();
        (ended.objects_left > 0).then_some(Left {
            name: self.name,
            objects: ended.objects_left,
            bytes: ended.bytes_left,
            path: ended.path,
        })
    }
}

/// Does work whose allocations are the engine's own.
pub fn system<T>(work: impl FnOnce() -> T) -> T {
    ours::system(work)
}

/// Sets the heap up.
pub fn start(settings: &Settings) -> Result<()> {
    ours::set_client_bytes(Some(crate::counted::bytes));
    ours::separate_system(!settings.no_separate);
    ours::on_event(Some(heard));
    if let Some(path) = &settings.record {
        let info = Info {
            program: "skinflint-js".to_owned(),
            source: "recorded".to_owned(),
        };
        let file = Shared::create(path, &info)
            .with_context(|| format!("{}: cannot be written; name another file", path.display()))?;
        hooks::install(file);
        ours::set_observer(Some(ours::Observer {
            alloc: hooks::alloc,
            free: hooks::death,
        }));
        RECORDING.set(Some(path.clone()));
    }
    crate::beside::begin(settings.beside);
    ours::on_ended(settings.beside.map(|_| ring as fn()));
    if let Some(every) = settings.stress {
        ours::stress(every);
    }
    ours::verify(settings.verify);
    ours::sweep_in_pause(settings.sweep_in_pause);
    if let Some((name, growth)) = &settings.policy {
        let Some(strategy) = Strategy::by_name(name) else {
            let known: Vec<&str> = Strategy::all().iter().map(|s| s.name).collect();
            bail!(
                "--policy: there is no `{name}`; there are {}",
                known.join(", ")
            );
        };
        ours::place_by(Some((strategy, *growth)));
        // No clock decides when cycles of objects are looked for: every policy is to see the same deaths.
        ours::set_growth(Growth {
            often_ns: u64::MAX,
            idle_ns: u64::MAX,
            interval_ns: u64::MAX,
            ..Growth::ROOMY
        });
    }
    Ok(())
}

fn ring() {
    crate::beside::ring(false);
}

/// What ended objects held, by who freed it.
pub fn outside_freed() -> Option<crate::beside::Counts> {
    Some(crate::beside::counts())
}

/// Chunks of all tenants by the arenas in use, and what keeps those that one arena keeps.
pub fn chunks() -> Option<String> {
    ours::chunks().ok().map(|chunks| chunks.json())
}

fn placement(placed: ours::Placement) -> Placement {
    let (run, figures) = (&placed.outcome.run, &placed.outcome.run.figures);
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let size = |size: ours::Size| Size {
        mean: size.mean,
        peak: size.peak,
        after: size.after,
    };
    Placement {
        policy: placed.policy.to_owned(),
        cpu_ms: 0.0,
        objects: placed.outcome.objects,
        bytes: placed.outcome.bytes,
        peak_live_bytes: placed.outcome.peak_live_bytes,
        outside_objects: placed.outside_objects,
        outside_bytes: placed.outside_bytes,
        cycles: run.collections,
        pages: size(run.committed),
        with_tables: size(run.with_tables),
        resident: size(run.resident),
        needed: size(run.needed),
        wasted: size(run.wasted),
        refills: figures.refills_total,
        swept_pages: figures.swept_pages_total,
        added_pages: figures.added_pages_total,
        released_pages: figures.released_pages_total,
        sweeping_ms: ms(run.sweeping),
        background_ms: ms(run.background),
        finishing_ms: ms(run.finishing),
        ending_ms: ms(run.ending),
        longest_end_ms: ms(run.latency_max),
    }
}

fn heard(event: &ours::Event) {
    FREED.set({
        let (in_pauses, elsewhere) = FREED.get();
        (
            in_pauses + event.freed_in_pause,
            elsewhere + event.freed_elsewhere,
        )
    });
    super::note(Event {
        at_ms: 0.0,
        tenant: event.tenant.to_string(),
        reason: words(&format!("{:?}", event.reason)),
        step: words(&format!("{:?}", event.step)),
        pause_ns: event.pause_ns,
        cpu_ns: event.cpu_ns,
        bytes_before: event.bytes_before,
        bytes_after: event.bytes_after,
        freed_in_pause: event.freed_in_pause,
        freed_lazily: event.freed_lazily,
        freed_elsewhere: event.freed_elsewhere,
    });
}

/// `MajorSlice` as it is said: `major slice`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// Collects everything, tenants together.
pub fn collect_all() {
    boa_gc::force_collect();
}

/// The event loop has nothing to do; `now` is the programs' time.
pub fn idle(now: Duration) {
    ours::tick(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    crate::beside::ring(true);
}

/// Returns the words of a panic that was a tenant's limit; `None` for any other.
pub fn out_of_memory(payload: &(dyn Any + Send)) -> Option<String> {
    payload
        .downcast_ref::<OutOfMemory>()
        .map(OutOfMemory::to_string)
}

/// Returns the numbers of freed objects, from the first on.
pub fn freed() -> Option<Freed> {
    let stats = ours::stats();
    let (in_pauses, elsewhere) = FREED.get();
    let all = stats.by_count + stats.by_examination;
    Some(Freed {
        in_pauses,
        lazily: all.saturating_sub(in_pauses + elsewhere),
        elsewhere,
    })
}

/// Slices at allocations (O1).
pub fn slices() -> Option<Slices> {
    let stats = ours::stats();
    Some(Slices {
        total_us: stats.slice_ns as f64 / 1e3,
        longest_us: stats.longest_slice_ns as f64 / 1e3,
    })
}

/// Events arrive as they happen.
pub fn drain() {}

/// Ends the recording of objects.
pub fn finish() -> Result<()> {
    let Some(path) = RECORDING.take() else {
        return Ok(());
    };
    ours::set_observer(None);
    let Some(file) = hooks::uninstall() else {
        return Ok(());
    };
    let totals = file
        .finish()
        .with_context(|| format!("{}: not written to its end", path.display()))?;
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr(),
        format_args!(
            "skinflint js: {}: {} objects, {} of them died\n",
            path.display(),
            totals.allocations,
            totals.deaths
        ),
    );
    Ok(())
}
