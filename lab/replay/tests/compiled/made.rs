//! Builds traces from lists of events.

use skinflint_compare::compile::{CompileError, Compiled, compile};
use skinflint_trace::*;

/// A trace being built: tickets are counted, time goes on by a microsecond per event.
#[derive(Default)]
pub struct Made {
    pub events: Vec<Event>,
    pub snapshots: Vec<Snapshot>,
    pub marks: u32,
    pub ended_threads: Vec<u32>,
    pub process: ProcessInfo,
}

const NODE: NodeId = NodeId(0);

impl Made {
    pub fn new() -> Made {
        let process = ProcessInfo {
            pid: 1000,
            uid: "00112233aabbccdd".into(),
            ..ProcessInfo::default()
        };
        Made {
            process,
            ..Made::default()
        }
    }

    pub fn push(&mut self, thread: u32, kind: EventKind) -> &mut Made {
        let ticket = self.events.len() as u64;
        self.events.push(Event {
            ticket,
            time_ns: ticket * 1000,
            thread: ThreadId(thread),
            kind,
        });
        self
    }

    pub fn by(&mut self, thread: u32, func: AllocFn, addr: u64, size: u64) -> &mut Made {
        self.push(
            thread,
            EventKind::Alloc {
                func,
                node: NODE,
                addr,
                size,
                usable: size,
            },
        )
    }

    pub fn malloc(&mut self, thread: u32, addr: u64, size: u64) -> &mut Made {
        self.by(thread, AllocFn::Malloc, addr, size)
    }

    pub fn free(&mut self, thread: u32, addr: u64) -> &mut Made {
        self.push(
            thread,
            EventKind::Free {
                func: FreeFn::Free,
                addr,
            },
        )
    }

    pub fn realloc_begins(&mut self, thread: u32, addr: u64) -> &mut Made {
        self.push(thread, EventKind::ReallocRelease { addr })
    }

    pub fn realloc_ends(&mut self, thread: u32, addr: u64, size: u64) -> &mut Made {
        self.push(
            thread,
            EventKind::ReallocAcquire {
                node: NODE,
                addr,
                size,
                usable: size,
            },
        )
    }

    fn threads(&self) -> u32 {
        self.events
            .iter()
            .map(|event| event.thread.0 + 1)
            .max()
            .unwrap_or(1)
    }

    /// Returns the bytes of the trace. Thread 0 is the main thread.
    pub fn bytes(&self) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut writer = Writer::create(file.path(), &self.process).expect("a trace");
        let end_ns = self.events.len() as u64 * 1000;
        for id in 0..self.threads() {
            let ended_ns = self.ended_threads.contains(&id).then_some(end_ns);
            let thread = Thread {
                tid: 1000 + id,
                ended_ns,
                ..Thread::default()
            };
            writer.thread(ThreadId(id), &thread).expect("written");
        }
        for index in 0..self.marks {
            let mark = Mark {
                name: format!("mark {index}"),
                time_ns: 0,
                ticket: 0,
                thread: None,
            };
            writer.mark(index, &mark).expect("written");
        }
        for id in 0..self.threads() {
            let mut encoder = EventEncoder::new(ThreadId(id));
            for event in self.events.iter().filter(|event| event.thread.0 == id) {
                encoder.push(event);
                if encoder.events() == 500 {
                    encoder
                        .take()
                        .map(|block| writer.events(block))
                        .transpose()
                        .expect("written");
                }
            }
            encoder
                .take()
                .map(|block| writer.events(block))
                .transpose()
                .expect("written");
        }
        for snapshot in &self.snapshots {
            writer.snapshot(snapshot).expect("written");
        }
        let ending = Ending {
            events: self.events.len() as u64,
            time_ns: end_ns,
            ..Ending::default()
        };
        writer.ending(&ending).expect("written");
        drop(writer);
        std::fs::read(file.path()).expect("read")
    }

    /// Compiles the trace; returns the script and what the compiler reported.
    pub fn compiled(&self) -> (Vec<u8>, Compiled) {
        self.try_compiled().expect("compiles")
    }

    pub fn try_compiled(&self) -> Result<(Vec<u8>, Compiled), CompileError> {
        let trace = Trace::from_bytes(self.bytes(), "made.sft").expect("opens");
        let mut script = Vec::new();
        compile(&trace, &mut script).map(|compiled| (script, compiled))
    }
}
