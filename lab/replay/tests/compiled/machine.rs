//! A script read independently, and a machine that plays it in any order that the format allows.
//!
//! ```text
//!   threads' operations, by epoch ─► who may go on? ─► one of them, by a rule or by chance ─► slots: live? counts
//! ```
//!
//! Z1  A thread may go on if it was started, if all epochs up to the second before its own are done, and if what it
//!     waits for is there. Nothing else holds it: whatever a real run may do, the machine may do.

use std::collections::{HashMap, VecDeque};

use skinflint_base::random::Random;
use skinflint_replay::script::{
    CHUNK_BYTES, Chunk, EPOCH_BYTES, Epoch, HEADER_BYTES, Header, LEAD, Op, check, point,
};

/// The chunks of an epoch.
pub type Chunks = Vec<(Chunk, Vec<Op>)>;

/// A script, taken apart.
pub struct Read {
    pub header: Header,
    pub epochs: Vec<(Epoch, Chunks)>,
}

impl Read {
    /// Reads every byte; panics at the first that is not as SCRIPT.md says.
    pub fn of(bytes: &[u8]) -> Read {
        let header =
            Header::from_bytes(bytes[..HEADER_BYTES].try_into().unwrap()).expect("a header");
        let (mut at, mut epochs) = (HEADER_BYTES, Vec::new());
        loop {
            let head: &[u8; EPOCH_BYTES] = bytes[at..at + EPOCH_BYTES].try_into().unwrap();
            let epoch = Epoch::from_bytes(head, epochs.len() as u32).expect("an epoch");
            at += EPOCH_BYTES;
            let payload = &bytes[at..at + epoch.payload_bytes as usize];
            assert_eq!(check(payload), epoch.payload_check);
            at += payload.len();
            let (mut inside, mut chunks) = (0, Vec::new());
            while inside < payload.len() {
                let chunk = Chunk::from_payload(payload, inside, header.threads).expect("a chunk");
                let words = &payload[inside + CHUNK_BYTES..][..chunk.words as usize * 4];
                let words: Vec<u32> = words
                    .chunks(4)
                    .map(|four| u32::from_le_bytes(four.try_into().unwrap()))
                    .collect();
                let (mut ops, mut rest) = (Vec::new(), &words[..]);
                while !rest.is_empty() {
                    let (op, len) = Op::first(rest).expect("an operation");
                    ops.push(op);
                    rest = &rest[len..];
                }
                chunks.push((chunk, ops));
                inside += chunk.bytes();
            }
            assert_eq!(chunks.len(), epoch.chunks as usize);
            let is_last = epoch.flags & point::END != 0;
            epochs.push((epoch, chunks));
            if is_last {
                assert_eq!(at, bytes.len(), "bytes after the last epoch");
                return Read { header, epochs };
            }
        }
    }

    /// Returns all operations of all threads, in their order.
    pub fn ops(&self) -> impl Iterator<Item = (u32, Op)> {
        let chunks = self.epochs.iter().flat_map(|(_, chunks)| chunks);
        chunks.flat_map(|(chunk, ops)| ops.iter().map(|op| (chunk.thread, *op)))
    }

    /// Returns the script without the waits: what a compiler that forgot them would write.
    pub fn without_waits(mut self) -> Read {
        for (_, ops) in self.epochs.iter_mut().flat_map(|(_, chunks)| chunks) {
            ops.retain(|op| !matches!(op, Op::Wait { .. }));
        }
        self
    }
}

/// Which of the threads that may go on does.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// This thread whenever it may: it runs as far ahead as it can.
    Ahead(u32),
    /// This thread only when no other may.
    Last(u32),
    /// A random one.
    Chance(u64),
}

/// The result of a run of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub violations: u64,
    pub is_stuck: bool,
    pub most_live_bytes: u64,
    pub live_bytes: u64,
    pub live_blocks: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    size: Option<u64>,
    count: u32,
}

/// Returns a random number, and moves on to the next seed.
pub fn next(seed: &mut u64) -> u64 {
    let mut random = Random::new(*seed);
    let drawn = random.bits();
    *seed = random.seed();
    drawn
}

/// Plays a script by this rule.
pub fn run(script: &Read, rule: Rule) -> Outcome {
    let mut queues = vec![VecDeque::new(); script.header.threads as usize];
    let mut left = vec![0_usize; script.epochs.len()];
    for (number, (_, chunks)) in script.epochs.iter().enumerate() {
        for (chunk, ops) in chunks {
            left[number] += ops.len();
            queues[chunk.thread as usize].extend(ops.iter().map(|op| (number, *op)));
        }
    }
    let mut started = vec![false; queues.len()];
    started[script.header.main as usize] = true;
    let (mut slots, mut outcome, mut done) = (HashMap::<u32, Slot>::new(), Outcome::default(), 0);
    let mut seed = if let Rule::Chance(seed) = rule {
        seed
    } else {
        1
    };
    loop {
        while left.get(done) == Some(&0) {
            done += 1;
        }
        let may = |thread: usize, slots: &HashMap<u32, Slot>| match queues[thread].front() {
            Some(&(epoch, op)) if started[thread] && epoch < done + LEAD as usize => match op {
                Op::Wait { slot, count } => {
                    slots.get(&slot).is_some_and(|slot| slot.count >= count)
                }
                _ => true,
            },
            _ => false,
        };
        let able: Vec<usize> = (0..queues.len())
            .filter(|&thread| may(thread, &slots))
            .collect();
        let Some(&first) = able.first() else {
            outcome.is_stuck = done < left.len();
            return outcome;
        };
        let chosen = match rule {
            Rule::Ahead(thread) if able.contains(&(thread as usize)) => thread as usize,
            Rule::Last(thread) => *able
                .iter()
                .find(|&&able| able != thread as usize)
                .unwrap_or(&first),
            _ => able[(next(&mut seed) >> 20) as usize % able.len()],
        };
        let (epoch, op) = queues[chosen].pop_front().expect("it may go on");
        left[epoch] -= 1;
        if let Op::Start { thread } = op {
            outcome.violations += u64::from(std::mem::replace(&mut started[thread as usize], true));
        }
        step(op, &mut slots, &mut outcome);
    }
}

fn step(op: Op, slots: &mut HashMap<u32, Slot>, outcome: &mut Outcome) {
    let (slot, size) = match op {
        Op::Malloc { slot, size } | Op::Calloc { slot, size } | Op::Memalign { slot, size, .. } => {
            (slot, Some(size))
        }
        Op::Realloc { slot, size } => (slot, Some(size)),
        Op::Free { slot } => (slot, None),
        Op::Touch { slot, .. } => (slot, slots.get(&slot).and_then(|slot| slot.size)),
        _ => return,
    };
    let there = slots.entry(slot).or_default();
    let wants_block = matches!(op, Op::Realloc { .. } | Op::Free { .. } | Op::Touch { .. });
    outcome.violations += u64::from(there.size.is_some() != wants_block);
    outcome.live_bytes = outcome.live_bytes + size.unwrap_or(0) - there.size.unwrap_or(0);
    outcome.live_blocks =
        outcome.live_blocks + u64::from(size.is_some()) - u64::from(there.size.is_some());
    outcome.most_live_bytes = outcome.most_live_bytes.max(outcome.live_bytes);
    *there = Slot {
        size,
        count: there.count + 1,
    };
}
