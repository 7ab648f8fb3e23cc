//! Builds scripts by hand, and runs the player on them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use skinflint_replay::script::{Chunk, Epoch, Header, Op, point};

/// No run of these tests takes longer than some seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// The operations of threads in an epoch.
type Chunks = Vec<(u32, Vec<Op>)>;

/// A script being built.
pub struct Script {
    header: Header,
    epochs: Vec<(u32, Chunks)>,
}

/// The result of a run.
pub struct Run {
    pub status: Option<i32>,
    pub lines: Vec<Value>,
    pub said: String,
    pub took: Duration,
}

impl Run {
    /// Returns the last line.
    pub fn end(&self) -> &Value {
        self.lines.last().expect("a report has lines")
    }

    pub fn number(&self, field: &str) -> u64 {
        let end = self.end();
        end[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no {field} in {end} ({})", self.said))
    }

    /// Returns a field of the first point of this name.
    pub fn at(&self, name: &str, field: &str) -> u64 {
        let point = self.lines.iter().find(|line| line["name"] == name);
        let point = point.unwrap_or_else(|| panic!("no point {name}: {:?}", self.lines));
        point[field]
            .as_u64()
            .unwrap_or_else(|| panic!("no {field} in {point}"))
    }

    /// Reports whether it was played to its end without a violation.
    pub fn is_clean(&self) -> bool {
        self.status == Some(0) && self.number("order_violations") + self.number("double_uses") == 0
    }
}

fn change(op: &Op, sizes: &mut std::collections::HashMap<u32, u64>) -> bool {
    match *op {
        Op::Malloc { slot, size } | Op::Calloc { slot, size } | Op::Memalign { slot, size, .. } => {
            sizes.insert(slot, size);
        }
        Op::Realloc { slot, size } => _ = sizes.insert(slot, size),
        Op::Free { slot } => _ = sizes.remove(&slot),
        _ => return false,
    }
    true
}

impl Script {
    /// Creates a script for this many threads; the first is the main one.
    pub fn new(threads: u32) -> Script {
        let header = Header {
            threads,
            ..Header::default()
        };
        Script {
            header,
            epochs: Vec::new(),
        }
    }

    /// Adds an epoch of these chunks.
    pub fn epoch(mut self, chunks: &[(u32, &[Op])]) -> Script {
        let chunks = chunks
            .iter()
            .map(|(thread, ops)| (*thread, ops.to_vec()))
            .collect();
        self.epochs.push((0, chunks));
        self
    }

    /// Sets the point before the next epoch.
    pub fn point(mut self, flags: u32) -> Script {
        self.epochs.push((flags, Vec::new()));
        self
    }

    /// Returns the bytes, with the last epoch. Live bytes are those of the operations in their written order.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.to_bytes().to_vec();
        let mut sizes = std::collections::HashMap::new();
        let (mut slots, mut ops) = (0, 0);
        let last = (point::END, Vec::new());
        for (index, (flags, chunks)) in self.epochs.iter().chain([&last]).enumerate() {
            let (live_bytes, live_blocks) = (sizes.values().sum(), sizes.len() as u32);
            let mut payload = Vec::new();
            let first_op = ops;
            for (thread, chunk) in chunks {
                let words: Vec<u32> = chunk
                    .iter()
                    .flat_map(|op| op.words().as_slice().to_vec())
                    .collect();
                for op in chunk {
                    ops += u64::from(change(op, &mut sizes));
                    if let Op::Malloc { slot, .. }
                    | Op::Calloc { slot, .. }
                    | Op::Memalign { slot, .. } = *op
                    {
                        slots = slots.max(slot + 1);
                    }
                }
                let head = Chunk {
                    thread: *thread,
                    words: words.len() as u32,
                    time_ns: 0,
                };
                payload.extend_from_slice(&head.to_bytes());
                payload.extend(
                    words
                        .iter()
                        .chain(&[0][..words.len() % 2])
                        .flat_map(|word| word.to_le_bytes()),
                );
            }
            let head = Epoch {
                index: index as u32,
                flags: *flags,
                chunks: chunks.len() as u32,
                first_op,
                live_bytes,
                live_blocks,
                slots,
                ..Epoch::default()
            };
            bytes.extend_from_slice(&head.to_bytes(&payload));
            bytes.extend_from_slice(&payload);
        }
        bytes
    }

    /// Plays the script.
    pub fn played(&self, options: &[&str]) -> Run {
        play(&self.bytes(), options, &[])
    }

    /// Plays the script with this environment.
    pub fn played_with(&self, options: &[&str], environment: &[(&str, &str)]) -> Run {
        play(&self.bytes(), options, environment)
    }
}

/// Plays these bytes from standard input, within `LIMIT`.
pub fn play(bytes: &[u8], options: &[&str], environment: &[(&str, &str)]) -> Run {
    let report = tempfile::NamedTempFile::new().expect("a temporary file");
    let begun = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_skinflint-replay"))
        .arg("-")
        .arg("--report")
        .arg(report.path())
        .args(options)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the player starts");
    // The player may end before it has read everything: that is no concern of the test.
    let _ = child.stdin.take().expect("a pipe").write_all(bytes);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().expect("it can be killed");
            panic!("the player still ran after {LIMIT:?}");
        }
        // CLOCK: poll step of a bounded wait
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = begun.elapsed();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said)
        .expect("text");
    let text = std::fs::read_to_string(report.path()).expect("the report");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    Run {
        status: status.code(),
        lines,
        said,
        took,
    }
}

/// Returns operations that acquire and release a block of a MiB this many times: they take some time and change
/// nothing.
pub fn busy(slot: u32, times: u32) -> Vec<Op> {
    (0..times)
        .flat_map(|_| {
            [
                Op::Malloc {
                    slot,
                    size: 1 << 20,
                },
                Op::Free { slot },
            ]
        })
        .collect()
}
