//! The sums of a day: what each stack of each process held, so that a question reads a row a day instead of all minutes.
//!
//! ```text
//!   rows of profiles ─► by day, process, stack, build: added ─► rows of profile_days
//! ```
//!
//! U1  All columns are added but the most, which is the largest: so nothing depends on the order in which rows come.
//!
//! Not here: their files (sum_files.rs), which questions read them (fleet/program).

use std::collections::{BTreeMap, HashMap};

use crate::clock::DAY;
use crate::rows::{Profile, ProfileDay};

/// Adds rows up by day (U1).
pub fn of_days(rows: &[Profile]) -> BTreeMap<i64, Vec<ProfileDay>> {
    let mut days: BTreeMap<i64, HashMap<(i64, i64, &str), ProfileDay>> = BTreeMap::new();
    for row in rows {
        let day = row.t - row.t.rem_euclid(DAY);
        let key = (row.stack, row.process, row.build.as_str());
        let of_day = days.entry(day).or_default();
        of_day
            .entry(key)
            .or_insert_with(|| empty(row))
            .add(&sum_of(row));
    }
    let in_order = |(day, sums): (i64, HashMap<_, ProfileDay>)| {
        let mut sums: Vec<ProfileDay> = sums.into_values().collect();
        sums.sort_by(|a, b| (a.stack, a.process, &a.build).cmp(&(b.stack, b.process, &b.build)));
        (day, sums)
    };
    days.into_iter().map(in_order).collect()
}

/// A sum of nothing yet, of the stack and process of a row.
fn empty(row: &Profile) -> ProfileDay {
    ProfileDay {
        host: row.host.clone(),
        process: row.process,
        build: row.build.clone(),
        stack: row.stack,
        ..ProfileDay::default()
    }
}

/// The figures of a row.
fn sum_of(row: &Profile) -> ProfileDay {
    ProfileDay {
        minutes: row.minutes,
        samples: row.samples,
        alloc_bytes: row.alloc_bytes,
        alloc_blocks: row.alloc_blocks,
        born_bytes: row.born_bytes,
        died_bytes: row.died_bytes,
        change_var: row.change_var,
        live_max_bytes: row.live_max_bytes,
        live_byte_min: row.live_byte_min,
        live_var_min: row.live_var_min,
        slop_byte_min: row.slop_byte_min,
        pinned_byte_min: row.pinned_byte_min,
        ..ProfileDay::default()
    }
}

impl ProfileDay {
    /// Adds the figures of another.
    pub(crate) fn add(&mut self, other: &ProfileDay) {
        self.minutes += other.minutes;
        self.samples += other.samples;
        self.alloc_bytes += other.alloc_bytes;
        self.alloc_blocks += other.alloc_blocks;
        self.born_bytes += other.born_bytes;
        self.died_bytes += other.died_bytes;
        self.change_var += other.change_var;
        self.live_max_bytes = self.live_max_bytes.max(other.live_max_bytes);
        self.live_byte_min += other.live_byte_min;
        self.live_var_min += other.live_var_min;
        self.slop_byte_min += other.slop_byte_min;
        self.pinned_byte_min += other.pinned_byte_min;
    }
}
