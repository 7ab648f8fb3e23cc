//! From samples to figures: peak, slope, what is left, what was given back.
//!
//! ```text
//!   PSS │      ╭─peak──╮                         given back = (at tabs-open − at the end) / (at tabs-open − at start)
//!       │   ╭──╯ slope ╰╮
//!       │ ╭─╯           ╰────── last             slope: over the loads with all windows open, in 16 blocks of time
//!       └──────────────────────
//! ```
//!
//! F1  All figures of PSS are over exact samples; what has no exact sample has no figure. The peak is a sample's, not
//!     the kernel's.
//! F2  The slope is that of a line through the medians of [`BLOCKS`] blocks of time; its interval of 95 % comes from
//!     their scatter about the line (neighbouring samples are not independent; medians of blocks nearly are). With
//!     fewer than two samples in a block there is no slope.
//! F3  CPU time is the sum over all processes ever seen of what each had used when it was last seen: a lower bound,
//!     short by at most one interval for each process that ended.
//!
//! Not here: several runs (series.rs).

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use skinflint_compare::stats::median;

use crate::sampler::Sample;

/// The number of blocks of the slope.
pub const BLOCKS: usize = 16;
/// Student's t, 14 degrees of freedom, two-sided 95 %.
const T95: f64 = 2.145;

/// The memory held at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its name.
    pub name: String,
    /// Time since the start, ms.
    pub ms: u64,
    /// Proportional size (PSS) of all processes, bytes.
    pub pss: u64,
    /// Unshared size, bytes.
    pub uss: u64,
    /// Resident size, bytes: counts shared pages many times.
    pub rss: u64,
    /// RSS of the main process and USS of the others, bytes.
    pub awsy: u64,
    /// Number of processes.
    pub processes: u32,
    /// Number of threads.
    pub threads: u32,
    /// Number of processes that show pages (renderers, tabs, web processes).
    pub content: u32,
}

impl Checkpoint {
    /// Creates a checkpoint from an exact sample; `None` for another sample.
    pub fn of(name: &str, sample: &Sample) -> Option<Checkpoint> {
        Some(Checkpoint {
            name: name.into(),
            ms: sample.ms,
            pss: sample.pss()?,
            uss: sample.uss()?,
            rss: sample.rss(),
            awsy: sample.awsy()?,
            processes: sample.processes.len() as u32,
            threads: sample.threads(),
            content: sample
                .processes
                .iter()
                .filter(|held| is_content(&held.role))
                .count() as u32,
        })
    }
}

/// Reports whether a role is that of a process for pages.
pub fn is_content(role: &str) -> bool {
    role == "renderer" || role == "tab" || role.starts_with("WebKitWebProces")
}

/// The slope of a line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    /// Bytes per minute.
    pub bytes_per_minute: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end of the 95 % interval.
    pub high: f64,
}

/// Figures of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The greatest PSS of a sample, bytes.
    pub peak_pss: u64,
    /// PSS of the last exact sample, bytes.
    pub last_pss: u64,
    /// (PSS at `tabs-open` − at the last checkpoint after the close, without forced collections) / (at `tabs-open` −
    /// at the first): the part of the pages' cost that came back.
    pub given_back: Option<f64>,
    /// Growth while all windows were open.
    pub slope: Option<Slope>,
    /// User CPU time of all processes, ms (F3).
    pub user_ms: u64,
    /// System CPU time, ms.
    pub system_ms: u64,
    /// Time from start to end, ms.
    pub real_ms: u64,
    /// The most processes in a sample.
    pub most_processes: u32,
    /// The most threads in a sample.
    pub most_threads: u32,
    /// Number of samples.
    pub samples: u32,
    /// Number of samples that were exact.
    pub exact: u32,
    /// Number of samples that were late.
    pub late: u32,
    /// The sampler's CPU time as a share of a core: the median over windows of ten seconds.
    pub sampler_share_median: f64,
    /// The sampler's share over the whole run.
    pub sampler_share: f64,
}

/// Computes the figures. `full` is the time during which all windows of the plan were open, ms.
pub fn figures(
    samples: &[Sample],
    checkpoints: &[Checkpoint],
    full: Option<(u64, u64)>,
) -> Figures {
    let exact: Vec<(u64, u64)> = samples
        .iter()
        .filter_map(|s| Some((s.ms, s.pss()?)))
        .collect();
    let (user_ms, system_ms) = cpu(samples);
    let within = |ms: u64| full.is_some_and(|(from, to)| (from..=to).contains(&ms));
    let loaded: Vec<(f64, f64)> = exact
        .iter()
        .filter(|(ms, _)| within(*ms))
        .map(|(ms, pss)| (*ms as f64 / 60e3, *pss as f64))
        .collect();
    let real_ms = samples.last().map_or(0, |sample| sample.ms);
    let cost: f64 = samples.iter().map(|sample| sample.cost_ms).sum();
    Figures {
        peak_pss: exact.iter().map(|(_, pss)| *pss).max().unwrap_or(0),
        last_pss: exact.last().map_or(0, |(_, pss)| *pss),
        given_back: given_back(checkpoints),
        slope: slope(&loaded),
        user_ms,
        system_ms,
        real_ms,
        most_processes: samples
            .iter()
            .map(|s| s.processes.len() as u32)
            .max()
            .unwrap_or(0),
        most_threads: samples.iter().map(Sample::threads).max().unwrap_or(0),
        samples: samples.len() as u32,
        exact: exact.len() as u32,
        late: samples.iter().filter(|sample| sample.late).count() as u32,
        sampler_share_median: share_median(samples),
        sampler_share: if real_ms > 0 {
            cost / real_ms as f64
        } else {
            0.0
        },
    }
}

/// Computes the part that was given back, at the last checkpoint after the close that no forced collection came
/// before.
fn given_back(checkpoints: &[Checkpoint]) -> Option<f64> {
    let start = checkpoints.first()?;
    let open = checkpoints.iter().rfind(|c| c.name == "tabs-open")?;
    let after = |c: &&Checkpoint| {
        c.ms > open.ms && c.name != "tabs-closed-gc" && c.name.contains("closed")
            || c.name == "rested"
    };
    let last = checkpoints.iter().rfind(after)?;
    (open.pss > start.pss)
        .then(|| (open.pss as f64 - last.pss as f64) / (open.pss - start.pss) as f64)
}

/// Computes the CPU time (F3).
fn cpu(samples: &[Sample]) -> (u64, u64) {
    // A number may be used twice; then the later process has used less than the earlier one when it is first seen.
    let mut last: HashMap<u32, (u64, u64)> = HashMap::new();
    let mut ended = (0, 0);
    for held in samples.iter().flat_map(|sample| &sample.processes) {
        let now = (held.user_ms, held.system_ms);
        let before = last.insert(held.pid, now);
        if let Some(before) = before.filter(|before| now.0 < before.0 || now.1 < before.1) {
            ended = (ended.0 + before.0, ended.1 + before.1);
        }
    }
    last.values()
        .fold(ended, |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

fn share_median(samples: &[Sample]) -> f64 {
    const WINDOW_MS: u64 = 10_000;
    let last = samples.last().map_or(0, |sample| sample.ms);
    let windows = (last / WINDOW_MS).max(1) as usize;
    let mut cost = vec![0.0; windows];
    for sample in samples {
        // What remains after the last whole window belongs to none.
        if let Some(sum) = cost.get_mut((sample.ms / WINDOW_MS) as usize) {
            *sum += sample.cost_ms;
        }
    }
    let length = WINDOW_MS.min(last.max(1)) as f64;
    median(&cost).unwrap_or(0.0) / length
}

/// Computes the slope (F2). Points are (minute, bytes), in order.
pub fn slope(points: &[(f64, f64)]) -> Option<Slope> {
    let size = points.len() / BLOCKS;
    if size < 2 {
        return None;
    }
    let blocks = (0..BLOCKS).map(|at| &points[at * size..(at + 1) * size]);
    let middles: Vec<(f64, f64)> = blocks
        .map(|block| {
            let x = block.iter().map(|point| point.0).sum::<f64>() / size as f64;
            let ys: Vec<f64> = block.iter().map(|point| point.1).collect();
            (x, median(&ys).unwrap_or(0.0))
        })
        .collect();
    let n = BLOCKS as f64;
    let (mx, my) = middles
        .iter()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
    let sxx: f64 = middles.iter().map(|(x, _)| (x - mx).powi(2)).sum();
    if sxx <= 0.0 {
        return None;
    }
    let b = middles
        .iter()
        .map(|(x, y)| (x - mx) * (y - my))
        .sum::<f64>()
        / sxx;
    let rest: f64 = middles
        .iter()
        .map(|(x, y)| (y - my - b * (x - mx)).powi(2))
        .sum();
    let half = T95 * (rest / (n - 2.0) / sxx).sqrt();
    Some(Slope {
        bytes_per_minute: b,
        low: b - half,
        high: b + half,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Held;

    fn sample(ms: u64, pss: u64, cost_ms: f64) -> Sample {
        let held = Held {
            pid: 7,
            rss: pss * 2,
            pss: Some(pss),
            uss: Some(pss / 2),
            threads: 3,
            user_ms: ms / 10,
            ..Held::default()
        };
        Sample {
            ms,
            cost_ms,
            processes: vec![held],
            ..Sample::default()
        }
    }

    fn at(name: &str, ms: u64, pss: u64) -> Checkpoint {
        Checkpoint {
            name: name.into(),
            ms,
            pss,
            ..Checkpoint::default()
        }
    }

    #[test]
    fn a_run_by_hand() {
        let mut samples: Vec<Sample> = (0..100)
            .map(|at| sample(at * 1000, 100 + at, 5.0))
            .collect();
        samples.push(sample(100_000, 60, 5.0));
        samples[50].late = true;
        let checkpoints = [
            at("start", 0, 100),
            at("tabs-open", 99_000, 300),
            at("tabs-closed", 100_000, 150),
            at("rested", 101_000, 140),
            at("tabs-closed-gc", 102_000, 100),
        ];
        let got = figures(&samples, &checkpoints, Some((0, 99_000)));
        assert_eq!(
            (got.peak_pss, got.last_pss, got.late, got.exact),
            (199, 60, 1, 101)
        );
        // 160 of the 200 that the pages cost.
        assert_eq!(got.given_back, Some(0.8));
        assert_eq!((got.user_ms, got.real_ms), (10_000, 100_000));
        // These are ten looks of 5 ms in ten seconds.
        assert!((got.sampler_share_median - 0.005).abs() < 1e-9, "{got:?}");
        let slope = got.slope.expect("enough");
        assert!(
            (slope.bytes_per_minute - 60.0).abs() < 1e-6 && slope.high - slope.low < 1e-6,
            "{slope:?}"
        );
    }

    #[test]
    fn a_slope_has_an_interval_and_needs_enough() {
        let few: Vec<(f64, f64)> = (0..31).map(|at| (f64::from(at), 1.0)).collect();
        assert_eq!(slope(&few), None);
        assert_eq!(slope(&vec![(1.0, 1.0); 64]), None);
        let wavy: Vec<(f64, f64)> = (0..640)
            .map(|at| (f64::from(at), if at / 40 % 2 == 0 { 100.0 } else { 110.0 }))
            .collect();
        let found = slope(&wavy).expect("enough");
        assert!(found.low < 0.0 && found.high > 0.0, "{found:?}");
    }

    #[test]
    fn cpu_time_of_the_dead_counts_and_a_number_used_twice_is_two() {
        let one = |pid: u32, user_ms: u64| Held {
            pid,
            user_ms,
            ..Held::default()
        };
        let of = |processes: Vec<Held>| Sample {
            processes,
            ..Sample::default()
        };
        let samples = [
            of(vec![one(1, 10), one(2, 50)]),
            of(vec![one(1, 30)]),
            of(vec![one(1, 40), one(2, 5)]),
        ];
        assert_eq!(cpu(&samples).0, 40 + 50 + 5);
    }
}
