//! From the words of one ring to events of one thread.
//!
//! X1  A stream begins with a `THREAD` record; if several threads use a slot one after the other, its
//!     words are several streams.
//! X2  `stack[i]` is the node of the i-th outermost frame.

use skinflint_base::ring::{ADDRESS, LONG, STACK_TRUNCATED, USER, WIDE, record_words, tag};
use skinflint_trace::encode::EventEncoder;
use skinflint_trace::{AllocFn, Event, EventKind, FreeFn, NodeId, ThreadId};

use crate::codes::Slots;
use crate::live::is_of_memory;
use crate::tree::Tree;

/// The address that stands for frames that are missing at the outer end of a stack.
pub const TRUNCATED_PC: u64 = 1;

/// A record of a ring that is no event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// Another thread writes from here on.
    Thread {
        /// Kernel id.
        tid: u32,
        /// The bounds of its own stack.
        stack: (u64, u64),
        /// When, in monotonic nanoseconds.
        time_ns: u64,
    },
    /// The thread's last name.
    Name(String),
    /// A mark; its event is at `ticket`.
    Mark {
        /// Index.
        index: u32,
        /// Name.
        name: String,
        /// The ticket: its place in the order of events.
        ticket: u64,
        /// Nanoseconds since the start.
        time_ns: u64,
    },
    /// A loaded object was met.
    Module {
        /// First address.
        start: u64,
        /// One past the last.
        end: u64,
        /// Load bias.
        bias: u64,
        /// The build id in hex.
        build_id: String,
        /// The path as the loader knows it.
        path: String,
    },
    /// The object that began here is gone.
    ModuleGone(u64),
    /// Memory of the recorder: address, length.
    Own(u64, u64),
    /// A frame outside of all known modules: the address.
    UnknownCode(u64),
}

/// The decoder of one thread's words.
pub struct Stream {
    /// The thread's index in the trace.
    pub thread: ThreadId,
    /// The encoder of its events.
    pub encoder: EventEncoder,
    /// The newest ticket.
    pub ticket: u64,
    /// The newest time, in nanoseconds since the start.
    pub time_ns: u64,
    /// Acquisitions and mappings whose stack was cut at the outer end.
    pub truncated: u64,
    /// The number of events decoded.
    pub events: u64,
    /// The number of events that the recorder reported lost here.
    pub lost: u64,
    /// Events that change what lives, if the caller takes them.
    pub kept: Option<Vec<Event>>,
    stack: Vec<u32>,
    /// The codes of the interpreter that its frames name.
    codes: Slots,
    /// 1 if `stack[0]` stands for missing frames.
    base: usize,
    next_ticket: Option<u64>,
    start_ns: u64,
}

impl Stream {
    /// Creates a decoder for a thread of a process that began at `start_ns` (monotonic).
    pub fn new(thread: ThreadId, start_ns: u64) -> Stream {
        Stream {
            thread,
            encoder: EventEncoder::new(thread),
            ticket: 0,
            time_ns: 0,
            truncated: 0,
            events: 0,
            lost: 0,
            kept: None,
            stack: Vec::new(),
            codes: Slots::default(),
            base: 0,
            next_ticket: None,
            start_ns,
        }
    }

    /// Decodes the record at the start of `words`. Returns its length in words, 0 if it makes no sense.
    #[inline]
    pub fn record(
        &mut self,
        words: &[u64],
        tree: &mut Tree,
        is_known_code: impl Fn(u64) -> bool,
        notes: &mut Vec<Note>,
    ) -> usize {
        let first = words[0];
        let len = match record_words(first) {
            Some(len) if len <= words.len() => len,
            _ => return 0,
        };
        let byte = (first >> 48) as u8;
        let addr = first & ADDRESS;
        let kind = match (first >> 56) as u8 {
            tag::STACK => {
                self.set_stack(first, &words[1..len], tree, is_known_code, notes);
                return len;
            }
            tag::ALLOC => {
                let (size, usable) = sizes(byte, &words[1..len]);
                let func = alloc_fn(byte & !WIDE);
                let node = self.node();
                tree.kinds.acquired(node.0, addr, usable);
                EventKind::Alloc {
                    func,
                    node,
                    addr,
                    size,
                    usable,
                }
            }
            tag::FREE => {
                tree.kinds.released(addr);
                EventKind::Free {
                    func: free_fn(byte),
                    addr,
                }
            }
            tag::REALLOC_RELEASE => {
                tree.kinds.released(addr);
                EventKind::ReallocRelease { addr }
            }
            tag::REALLOC_ACQUIRE => {
                let (size, usable) = sizes(byte, &words[1..len]);
                let node = self.node();
                tree.kinds.acquired(node.0, addr, usable);
                EventKind::ReallocAcquire {
                    node,
                    addr,
                    size,
                    usable,
                }
            }
            tag::REALLOC_CANCEL => EventKind::ReallocCancel { addr },
            tag::CODE => {
                self.codes.piece(first, &words[1..len], &mut tree.codes);
                return len;
            }
            _ => match self.rare(first, &words[..len], notes) {
                Some(kind) => kind,
                None => return len,
            },
        };
        self.event(kind);
        len
    }

    #[inline]
    fn event(&mut self, kind: EventKind) {
        self.ticket = self.next_ticket.take().unwrap_or(self.ticket + 1);
        self.events += 1;
        let event = Event {
            ticket: self.ticket,
            time_ns: self.time_ns,
            thread: self.thread,
            kind,
        };
        self.encoder.push(&event);
        if let Some(kept) = &mut self.kept
            && is_of_memory(&event.kind)
        {
            kept.push(event);
        }
    }

    /// Adds a mark that was made from outside, as an event of the collector's own stream.
    pub fn outside_mark(&mut self, mark: u32, ticket: u64) {
        self.next_ticket = Some(ticket);
        self.event(EventKind::Mark { mark });
    }

    /// Adds an event that was read from outside, at its ticket.
    pub fn outside_event(&mut self, kind: EventKind, ticket: u64, time_ns: u64) {
        self.time_ns = self.time_ns.max(time_ns);
        self.next_ticket = Some(ticket);
        self.event(kind);
    }

    /// Returns the stack of the present event, and counts the event if its stack is cut: one record of a
    /// cut stack may serve thousands of events, and thousands of deeper stacks that keep its outer frames.
    #[inline]
    fn node(&mut self) -> NodeId {
        self.truncated += self.base as u64;
        NodeId(self.stack.last().copied().unwrap_or(0))
    }

    fn set_stack(
        &mut self,
        first: u64,
        frames: &[u64],
        tree: &mut Tree,
        is_known_code: impl Fn(u64) -> bool,
        notes: &mut Vec<Note>,
    ) {
        let keep = (first & 0xff_ffff) as usize;
        if keep == 0 {
            self.stack.clear();
            self.base = 0;
            if first & STACK_TRUNCATED != 0 {
                self.base = 1;
                self.stack.push(tree.child(0, TRUNCATED_PC).0);
            }
        } else {
            self.stack.truncate(keep + self.base);
        }
        let mut parent = self.stack.last().copied().unwrap_or(0);
        for &word in frames {
            let pc = self.codes.pc(word);
            let (node, new) = tree.child(parent, pc);
            if new && pc < USER && !is_known_code(pc) {
                notes.push(Note::UnknownCode(pc));
            }
            self.stack.push(node);
            parent = node;
        }
    }

    /// Decodes a record that is not a plain heap event; `None` if it is not an event at all.
    #[cold]
    fn rare(&mut self, first: u64, words: &[u64], notes: &mut Vec<Note>) -> Option<EventKind> {
        let byte = (first >> 48) as u8;
        let addr = first & ADDRESS;
        let by_allocator = byte != 0;
        Some(match (first >> 56) as u8 {
            tag::MAP => EventKind::Map {
                node: self.node(),
                addr,
                len: words[1],
                prot: (words[2] >> 32) as u32,
                flags: words[2] as u32,
                by_allocator,
            },
            tag::UNMAP => EventKind::Unmap {
                addr,
                len: words[1],
                by_allocator,
            },
            tag::REMAP => EventKind::Remap {
                node: self.node(),
                old_addr: addr,
                old_len: words[1],
                new_addr: words[2],
                new_len: words[3],
            },
            tag::BRK => EventKind::Brk { addr },
            tag::ADVISE => EventKind::Advise {
                addr,
                len: words[1],
                advice: words[2] as u32,
            },
            tag::FORK => EventKind::Fork { child: addr as u32 },
            tag::MARK => {
                let index = addr as u32;
                let name = text(&words[1..], usize::from(byte));
                let ticket = self.next_ticket.unwrap_or(self.ticket + 1);
                notes.push(Note::Mark {
                    index,
                    name,
                    ticket,
                    time_ns: self.time_ns,
                });
                EventKind::Mark { mark: index }
            }
            other => {
                self.aside(other, first, words, notes);
                return None;
            }
        })
    }

    fn aside(&mut self, kind: u8, first: u64, words: &[u64], notes: &mut Vec<Note>) {
        let byte = (first >> 48) as u8;
        let addr = first & ADDRESS;
        match kind {
            tag::TICKET => self.next_ticket = Some(first & LONG),
            tag::TIME => {
                let now = (first & LONG).saturating_sub(self.start_ns);
                self.time_ns = self.time_ns.max(now);
            }
            tag::LOST => self.lost += first & LONG,
            tag::THREAD => {
                let stack = (words[1], words[2]);
                notes.push(Note::Thread {
                    tid: addr as u32,
                    stack,
                    time_ns: words[3],
                });
            }
            tag::NAME => notes.push(Note::Name(text(&words[1..], usize::from(byte.min(16))))),
            tag::OWN => notes.push(Note::Own(addr, words[1])),
            tag::MODULE_GONE => notes.push(Note::ModuleGone(addr)),
            tag::MODULE => notes.push(Note::Module {
                start: words[1],
                end: words[2],
                bias: words[3],
                build_id: hex(&words[4..8], usize::from(byte)),
                path: text(&words[8..], (first & 0xffff) as usize),
            }),
            _ => {}
        }
    }
}

#[inline]
fn sizes(byte: u8, words: &[u64]) -> (u64, u64) {
    if byte & WIDE != 0 {
        (words[0], words[1])
    } else {
        let size = words[0] & 0xffff_ffff;
        (size, size + (words[0] >> 32))
    }
}

fn alloc_fn(code: u8) -> AllocFn {
    match code {
        1 => AllocFn::Calloc,
        2 => AllocFn::Realloc,
        3 => AllocFn::Memalign,
        4 => AllocFn::Valloc,
        5 => AllocFn::New,
        6 => AllocFn::NewArray,
        _ => AllocFn::Malloc,
    }
}

fn free_fn(code: u8) -> FreeFn {
    match code {
        1 => FreeFn::FreeSized,
        2 => FreeFn::Realloc,
        3 => FreeFn::Delete,
        4 => FreeFn::DeleteArray,
        _ => FreeFn::Free,
    }
}

fn bytes_of(words: &[u64], len: usize) -> Vec<u8> {
    words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .take(len)
        .collect()
}

fn text(words: &[u64], len: usize) -> String {
    String::from_utf8_lossy(&bytes_of(words, len)).into_owned()
}

fn hex(words: &[u64], len: usize) -> String {
    bytes_of(words, len)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use skinflint_base::ring::{long_word, word};

    fn decode(words: &[u64]) -> (Stream, Vec<Note>, Tree) {
        let mut stream = Stream::new(ThreadId(0), 1_000);
        let (mut tree, mut notes) = (Tree::new(), Vec::new());
        let mut rest = words;
        while !rest.is_empty() {
            let len = stream.record(rest, &mut tree, |_| true, &mut notes);
            assert_ne!(len, 0, "record {:x}", rest[0]);
            rest = &rest[len..];
        }
        (stream, notes, tree)
    }

    #[test]
    fn a_stack_is_what_is_kept_and_what_is_new() {
        let (mut stream, _, mut tree) = decode(&[
            word(tag::STACK, 0, 3 << 24),
            0x10,
            0x20,
            0x30,
            word(tag::STACK, 0, 1 << 24 | 1),
            0x40,
        ]);
        let (main, _) = tree.child(0, 0x10);
        let (leaf, new) = tree.child(main, 0x40);
        assert!(!new);
        assert_eq!(stream.node(), NodeId(leaf));
    }

    #[test]
    fn a_cut_stack_hangs_below_the_node_of_missing_frames() {
        let first = word(tag::STACK, 0, 1 << 24) | STACK_TRUNCATED;
        let keep = word(tag::STACK, 0, 1 << 24 | 1) | STACK_TRUNCATED;
        let (mut stream, _, mut tree) = decode(&[first, 0x10, keep, 0x20]);
        let (missing, _) = tree.child(0, TRUNCATED_PC);
        let (outer, _) = tree.child(missing, 0x10);
        let (inner, new) = tree.child(outer, 0x20);
        assert!(!new);
        assert_eq!(stream.truncated, 0, "no event yet");
        assert_eq!(stream.node(), NodeId(inner));
        assert_eq!(stream.node(), NodeId(inner));
        assert_eq!(stream.truncated, 2, "one for each event");
    }

    #[test]
    fn tickets_follow_each_other_unless_told() {
        let free = word(tag::FREE, 0, 0x1000);
        let (stream, ..) = decode(&[free, free, long_word(tag::TICKET, 70), free, free]);
        assert_eq!((stream.ticket, stream.events), (71, 4));
    }

    #[test]
    fn words_that_make_no_sense_end_the_batch() {
        let mut stream = Stream::new(ThreadId(0), 0);
        let mut tree = Tree::new();
        for words in [
            &[u64::MAX][..],
            &[word(tag::STACK, 0, 9 << 24)],
            &[word(tag::MAP, 0, 1), 2],
        ] {
            assert_eq!(
                stream.record(words, &mut tree, |_| true, &mut Vec::new()),
                0
            );
        }
    }
}
