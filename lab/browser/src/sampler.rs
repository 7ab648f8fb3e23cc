//! A thread that measures the browser at a steady rate, and writes every sample down at once.
//!
//! ```text
//!   due ─► stat of each process (cheap) ─► is an exact look due? ─► smaps_rollup of each ─► one line of samples.jsonl
//!            every interval                 when the last one's CPU time is paid off
//! ```
//!
//! S1  The sampler's own CPU time is measured (`CLOCK_THREAD_CPUTIME_ID`) and stands in each sample. After an exact look
//!     that cost c, the next comes no sooner than c / [`BUDGET`] later: the cost is bounded by construction, not by luck.
//! S2  A sample that began more than half an interval after it was due, or took longer than one, is marked `late`.
//! S3  At a checkpoint the look is exact, and the caller waits for it.
//! S4  A line is written whole or the run ends: a full disk is reported by `failed`, what was written stays.
//!
//! Not here: what the figures mean (figures.rs).

use std::fs::File;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::tree::{Held, Tree};

/// The share of a core that exact looks may take. Cheap looks cost more on top; together they stay below 2 % (the
/// median is in every result).
pub const BUDGET: f64 = 0.012;

/// The longest time between two exact looks, however expensive they are.
const LONGEST: Duration = Duration::from_secs(30);

/// A sample of the process tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since the browser was started, ms.
    pub ms: u64,
    /// The checkpoint that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Its duration, ms.
    pub took_ms: f64,
    /// CPU time of the sampler for it, ms.
    pub cost_ms: f64,
    /// Whether it came late, or took too long (S2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// The figures of each process.
    pub processes: Vec<Held>,
}

impl Sample {
    /// Returns the sum of proportional sizes; `None` for a cheap look. A process that ended in between counts as 0.
    pub fn pss(&self) -> Option<u64> {
        self.sum(|held| held.pss)
    }

    /// Returns the sum of unshared sizes; `None` for a cheap look.
    pub fn uss(&self) -> Option<u64> {
        self.sum(|held| held.uss)
    }

    fn sum(&self, of: impl Fn(&Held) -> Option<u64>) -> Option<u64> {
        let known: Vec<u64> = self.processes.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum())
    }

    /// Returns the sum of resident sizes: it counts shared pages many times.
    pub fn rss(&self) -> u64 {
        self.processes.iter().map(|held| held.rss).sum()
    }

    /// Returns what Are We Slim Yet calls resident: RSS of the main process and USS of the others.
    pub fn awsy(&self) -> Option<u64> {
        let main = self.processes.first()?;
        self.uss()?;
        let others = self.processes[1..].iter().filter_map(|held| held.uss);
        Some(main.rss + others.sum::<u64>())
    }

    /// Returns the number of threads of all processes.
    pub fn threads(&self) -> u32 {
        self.processes.iter().map(|held| held.threads).sum()
    }
}

enum Ask {
    Checkpoint(String, Sender<Sample>),
    End,
}

/// The handle of the sampler's thread.
pub struct Sampler {
    asks: Sender<Ask>,
    failed: Receiver<String>,
    failure: Option<String>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread. Lines go to `file`; times count from `began`.
    pub fn start(tree: Tree, interval: Duration, began: Instant, file: File) -> Sampler {
        let (asks, asked) = mpsc::channel();
        let (fails, failed) = mpsc::channel();
        let work = Work {
            tree,
            interval,
            began,
            file,
            exact_after: began,
        };
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || work.run(&asked, &fails))
            .ok();
        Sampler {
            asks,
            failed,
            failure: None,
            thread,
        }
    }

    /// Takes an exact sample now; `None` if the sampler has failed.
    pub fn checkpoint(&mut self, name: &str) -> Option<Sample> {
        let (answer, answered) = mpsc::channel();
        self.asks.send(Ask::Checkpoint(name.into(), answer)).ok()?;
        answered.recv_timeout(Duration::from_secs(60)).ok()
    }

    /// Returns why it has ended by itself, if it has.
    pub fn failed(&mut self) -> Option<String> {
        if self.failure.is_none() {
            self.failure = self.failed.try_recv().ok();
        }
        self.failure.clone()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.asks.send(Ask::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    tree: Tree,
    interval: Duration,
    began: Instant,
    file: File,
    exact_after: Instant,
}

impl Work {
    fn run(mut self, asked: &Receiver<Ask>, fails: &Sender<String>) {
        let mut due = Instant::now();
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            let written = match asked.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {
                    let sample = self.take(None, due);
                    let written = self.write(&sample);
                    due += self.interval;
                    // After a long delay the rate continues from now; it does not catch up in a burst.
                    due = due.max(Instant::now());
                    written
                }
                Ok(Ask::Checkpoint(name, answer)) => {
                    let sample = self.take(Some(name), Instant::now());
                    let written = self.write(&sample);
                    let _ = answer.send(sample);
                    written
                }
                Ok(Ask::End) | Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Err(error) = written {
                let _ = fails.send(error.to_string());
                return;
            }
        }
    }

    fn take(&mut self, checkpoint: Option<String>, due: Instant) -> Sample {
        let begun = Instant::now();
        let cpu = thread_cpu_ms();
        let exact = checkpoint.is_some() || begun >= self.exact_after;
        let processes = self.tree.look(exact);
        let cost_ms = thread_cpu_ms() - cpu;
        let took = begun.elapsed();
        if exact {
            let paid = Duration::from_secs_f64((cost_ms / 1e3 / BUDGET).max(0.0));
            self.exact_after = begun + paid.min(LONGEST);
        }
        Sample {
            ms: begun.duration_since(self.began).as_millis() as u64,
            late: begun.duration_since(due) > self.interval / 2 || took > self.interval,
            checkpoint,
            took_ms: round(took.as_secs_f64() * 1e3),
            cost_ms: round(cost_ms),
            processes,
        }
    }

    fn write(&mut self, sample: &Sample) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(sample)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Returns the CPU time of this thread, ms.
fn thread_cpu_ms() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec of ours, which the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// Removes what came after a complete run's last checkpoint: it is the browser's answer to the request for its
/// reports.
pub fn cut_after_last_checkpoint(samples: &mut Vec<Sample>, complete: bool) {
    if let Some(last) = samples
        .iter()
        .rposition(|s| s.checkpoint.is_some())
        .filter(|_| complete)
    {
        samples.truncate(last + 1);
    }
}

/// Reads the samples that a run has left. A last line that was cut off is skipped.
///
/// # Errors
/// If the file cannot be read, or a line before the last is not a sample.
pub fn read(path: &std::path::Path) -> anyhow::Result<Vec<Sample>> {
    use anyhow::Context;
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("{}: not readable", path.display()))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let mut samples = Vec::new();
    for (at, line) in text[..whole].lines().enumerate() {
        let sample = serde_json::from_str(line)
            .with_context(|| format!("{}, line {}: not a sample", path.display(), at + 1))?;
        samples.push(sample);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(rss: u64, pss: u64, uss: u64) -> Held {
        Held {
            rss,
            pss: Some(pss),
            uss: Some(uss),
            threads: 2,
            ..Held::default()
        }
    }

    #[test]
    fn sums_by_hand() {
        let sample = Sample {
            processes: vec![held(100, 70, 50), held(60, 40, 30)],
            ..Sample::default()
        };
        assert_eq!(
            (sample.pss(), sample.uss(), sample.rss()),
            (Some(110), Some(80), 160)
        );
        assert_eq!((sample.awsy(), sample.threads()), (Some(130), 4));
        let cheap = Sample {
            processes: vec![Held {
                rss: 5,
                ..Held::default()
            }],
            ..Sample::default()
        };
        assert_eq!((cheap.pss(), cheap.awsy(), cheap.rss()), (None, None, 5));
    }

    /// The bound of a wait that ends in a failure.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn samples_come_steadily_and_a_checkpoint_is_exact() {
        let folder = tempfile::tempdir().expect("room");
        let path = folder.path().join("samples.jsonl");
        let mut child = std::process::Command::new("sleep")
            .arg("300")
            .spawn()
            .expect("sleep");
        let file = File::create(&path).expect("room");
        let tree = Tree::new(child.id(), "none", &[]);
        let mut sampler = Sampler::start(tree, Duration::from_millis(20), Instant::now(), file);
        let until = Instant::now() + PATIENCE;
        while read(&path).map_or(0, |samples| samples.len()) < 5 {
            assert!(Instant::now() < until, "no samples");
            std::thread::sleep(Duration::from_millis(5)); // CLOCK: poll step of a bounded wait
        }
        let sample = sampler.checkpoint("here").expect("alive");
        assert!(sample.pss().is_some() && sample.checkpoint.as_deref() == Some("here"));
        assert_eq!(sampler.failed(), None);
        drop(sampler);
        child.kill().expect("ours");
        child.wait().expect("ended");
        let samples = read(&path).expect("whole");
        assert!(samples.len() >= 5, "{}", samples.len());
        assert!(samples.iter().any(|s| s.checkpoint.is_some()));
        assert!(samples.windows(2).all(|two| two[0].ms <= two[1].ms));
        // A crash leaves a cut line; a broken one is an error with its number.
        let mut text = std::fs::read_to_string(&path).expect("there");
        text.push_str("{\"ms\":1");
        std::fs::write(&path, &text).expect("room");
        assert_eq!(read(&path).expect("cut").len(), samples.len());
        std::fs::write(&path, "x\n").expect("room");
        assert!(format!("{:#}", read(&path).expect_err("broken")).contains("line 1"));
    }

    #[test]
    fn a_full_disk_is_told() {
        let child = std::process::id();
        let file = File::options()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full");
        let mut sampler = Sampler::start(
            Tree::new(child, "none", &[]),
            Duration::from_millis(5),
            Instant::now(),
            file,
        );
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(why) = sampler.failed() {
                assert!(why.contains("space"), "{why}");
                return;
            }
            std::thread::sleep(Duration::from_millis(10)); // CLOCK: poll step of a bounded wait
        }
        panic!("no failure");
    }
}
