//! The ledger: which block lives at which address, and in which slot.
//!
//! ```text
//!   Event ─► address ─► slot ─► Act: acquire, regrow, release
//! ```
//!
//! B1  Both passes see the same acts with the same serials: an act depends on events alone, not on slots.
//! B2  A block whose realloc is under way keeps its slot and lives, but its address is free for other blocks, as in
//!     the trace.
//! B3  An acquisition at a live address means a lost release: the old block is released first, by the same thread.
//!
//! Not here: the choice of a slot (slots.rs), the order of threads (ordered.rs).

use rustc_hash::FxHashMap;
use skinflint_trace::{AllocFn, Event, EventKind, NodeId, ThreadId};

/// No program on this machine has addresses or sizes from this limit on: the event is damaged.
const ADDRESS_LIMIT: u64 = 1 << 48;

/// The parts of a trace that are not replayed as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeftOut {
    /// Releases of blocks that were never seen acquired.
    pub unknown_frees: u64,
    /// Reallocs of such blocks.
    pub unknown_reallocs: u64,
    /// Acquisitions at an address that was still live.
    pub lost_frees: u64,
    /// Reallocs whose beginning or end is missing.
    pub lost_reallocs: u64,
    /// Events that are impossible.
    pub damaged_events: u64,
}

/// The effect of an event on a block. Sizes are requested bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// A block is put into a free slot.
    Acquire {
        slot: u32,
        func: AllocFn,
        node: NodeId,
        addr: u64,
        size: u64,
        serial: u64,
    },
    /// The slot's block gets another size, and perhaps another address.
    Regrow {
        slot: u32,
        func: AllocFn,
        node: NodeId,
        addr: u64,
        size: u64,
        serial: u64,
        old_size: u64,
    },
    /// The slot's block is released.
    Release { slot: u32, size: u64 },
}

/// Hands out and takes back slots for one thread.
pub trait Slots {
    /// Returns a free slot.
    fn take(&mut self) -> u32;
    /// Takes back a slot that is free now.
    fn give(&mut self, slot: u32);
}

#[derive(Clone, Copy)]
struct Block {
    size: u64,
    serial: u64,
}

#[derive(Clone, Copy, Default)]
enum Parked {
    #[default]
    Nothing,
    Unknown,
    Slot(u32),
}

/// The live blocks.
#[derive(Default)]
pub struct Ledger {
    slots: FxHashMap<u64, u32>,
    blocks: Vec<Block>,
    parked: FxHashMap<ThreadId, Parked>,
    serial: u64,
    /// What could not be taken as it is.
    pub left_out: LeftOut,
}

impl Ledger {
    /// Returns the slot of the block at this address, if it is the block with this serial.
    pub fn slot_of(&self, addr: u64, serial: u64) -> Option<u32> {
        let slot = *self.slots.get(&addr)?;
        (self.blocks[slot as usize].serial == serial).then_some(slot)
    }

    /// Applies an event; hands at most three acts to `sink`, in order.
    pub fn apply(&mut self, event: &Event, mut slots: impl Slots, sink: &mut impl FnMut(Act)) {
        match event.kind {
            EventKind::Alloc {
                func,
                node,
                addr,
                size,
                ..
            } => self.acquire(&mut slots, func, node, addr, size, sink),
            EventKind::Free { addr, .. } => match self.slots.remove(&addr) {
                Some(slot) => self.release(&mut slots, slot, sink),
                None => self.left_out.unknown_frees += u64::from(addr != 0),
            },
            EventKind::ReallocRelease { addr } => {
                let parked = match self.slots.remove(&addr) {
                    Some(slot) => Parked::Slot(slot),
                    None => Parked::Unknown,
                };
                match self.parked.insert(event.thread, parked) {
                    None | Some(Parked::Nothing) => {}
                    Some(before) => {
                        self.left_out.lost_reallocs += 1;
                        if let Parked::Slot(slot) = before {
                            self.release(&mut slots, slot, sink);
                        }
                    }
                }
            }
            EventKind::ReallocAcquire {
                node, addr, size, ..
            } => {
                let parked = self
                    .parked
                    .insert(event.thread, Parked::Nothing)
                    .unwrap_or_default();
                match parked {
                    Parked::Slot(slot) => self.regrow(&mut slots, slot, node, addr, size, sink),
                    _ => {
                        match parked {
                            Parked::Unknown => self.left_out.unknown_reallocs += 1,
                            _ => self.left_out.lost_reallocs += 1,
                        }
                        self.acquire(&mut slots, AllocFn::Malloc, node, addr, size, sink);
                    }
                }
            }
            EventKind::ReallocCancel { addr } => {
                let parked = self
                    .parked
                    .insert(event.thread, Parked::Nothing)
                    .unwrap_or_default();
                match parked {
                    Parked::Slot(slot) => {
                        if let Some(there) = self.slots.insert(addr, slot) {
                            self.left_out.lost_frees += 1;
                            self.release(&mut slots, there, sink);
                        }
                    }
                    Parked::Unknown => {}
                    Parked::Nothing => self.left_out.lost_reallocs += 1,
                }
            }
            _ => {}
        }
    }

    fn is_damaged(&mut self, addr: u64, size: u64) -> bool {
        let damaged = addr == 0 || (addr | size) >= ADDRESS_LIMIT;
        self.left_out.damaged_events += u64::from(damaged);
        damaged
    }

    fn acquire(
        &mut self,
        slots: &mut impl Slots,
        func: AllocFn,
        node: NodeId,
        addr: u64,
        size: u64,
        sink: &mut impl FnMut(Act),
    ) {
        if self.is_damaged(addr, size) {
            return;
        }
        if let Some(&old) = self.slots.get(&addr) {
            self.left_out.lost_frees += 1;
            self.release(slots, old, sink);
        }
        let slot = slots.take();
        self.slots.insert(addr, slot);
        let serial = self.note(slot, size);
        sink(Act::Acquire {
            slot,
            func,
            node,
            addr,
            size,
            serial,
        });
    }

    fn note(&mut self, slot: u32, size: u64) -> u64 {
        let serial = self.serial;
        self.serial += 1;
        let block = Block { size, serial };
        match self.blocks.get_mut(slot as usize) {
            Some(there) => *there = block,
            None => self.blocks.resize(slot as usize + 1, block),
        }
        serial
    }

    fn regrow(
        &mut self,
        slots: &mut impl Slots,
        slot: u32,
        node: NodeId,
        addr: u64,
        size: u64,
        sink: &mut impl FnMut(Act),
    ) {
        if self.is_damaged(addr, size) {
            // The old block is gone, as far as is known.
            return self.release(slots, slot, sink);
        }
        if let Some(there) = self.slots.insert(addr, slot) {
            self.left_out.lost_frees += 1;
            self.release(slots, there, sink);
        }
        let old_size = self.blocks[slot as usize].size;
        let serial = self.note(slot, size);
        sink(Act::Regrow {
            slot,
            func: AllocFn::Realloc,
            node,
            addr,
            size,
            serial,
            old_size,
        });
    }

    fn release(&mut self, slots: &mut impl Slots, slot: u32, sink: &mut impl FnMut(Act)) {
        let size = self.blocks[slot as usize].size;
        slots.give(slot);
        sink(Act::Release { slot, size });
    }
}
