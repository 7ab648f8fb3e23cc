//! The state that the encoder and the decoder of an event block share at each place in it.
//!
//! ```text
//!   cells    (function, stack, size, usable), in order of first use   ◄── "again cell 17", or the one
//!   follow   which cell came after the last two                            that followed last time
//!   held     every address acquired in this block, in order           ◄── "release the 3rd newest"
//!   classes  by usable size: what was released, last first            ◄── "acquired: the top one"
//! ```
//!
//! Allocators hand out the block that was released last in its size class, or the next address of a run;
//! and programs repeat themselves. An event that does what is expected costs its tag alone.
//!
//! P1  Encoder and decoder call the same functions of `Model` in the same order with the same
//!     arguments, so their models are equal after each event. FORMAT.md describes each step.
//! P2  A model is reset at each block: a damaged block costs only itself.
//! P3  Every index that comes from a file is checked before use; links inside the model only
//!     point at entries that exist, and walks along them are at most `LIFO_DEPTH` long.
//! P4  Memory is bounded by the acquisitions of one block.
//!
//! Not here: how events are written (encode.rs), the rules of what is expected (FORMAT.md).

/// The most links that are followed from the newest released block of a class.
pub(crate) const LIFO_DEPTH: u32 = 8;
/// The number of size classes told apart, by hash of the usable size.
const CLASSES: usize = 1024;
/// The number of contexts of two cells told apart, by hash.
const FOLLOW: usize = 4096;
/// The number of sizes whose usable size is remembered, by hash.
const SIZES: usize = 256;

/// The values of the tag byte, which tell events apart. FORMAT.md has the table.
pub(crate) mod tag {
    pub(crate) const JUMP: u8 = 0x80;

    pub(crate) const CELL_EXPECTED: u8 = 0x00;
    pub(crate) const CELL_KNOWN: u8 = 0x10;
    pub(crate) const CELL_SIZE: u8 = 0x20;
    pub(crate) const CELL_NEW: u8 = 0x30;

    pub(crate) const AT_BUMP: u8 = 8;
    pub(crate) const AT_STRIDE_UP: u8 = 9;
    pub(crate) const AT_STRIDE_DOWN: u8 = 10;
    pub(crate) const AT_RELEASED: u8 = 11;
    pub(crate) const AT_DELTA_16: u8 = 12;
    pub(crate) const AT_DELTA_1: u8 = 13;

    pub(crate) const FREE: u8 = 0x40;
    pub(crate) const REALLOC: u8 = 0x50;
    pub(crate) const OTHER: u8 = 0x60;
    pub(crate) const FREE_BY: u8 = 0x70;

    /// Forms 0 to 9: the (form + 1)th newest block of this file block.
    pub(crate) const NEWEST_FORMS: u32 = 10;
    pub(crate) const NTH_NEWEST: u8 = 10;
    pub(crate) const NEXT_OLDER: u8 = 11;
    pub(crate) const NEXT_NEWER: u8 = 12;
    pub(crate) const ORDINAL_DELTA: u8 = 13;
    pub(crate) const DELTA_16: u8 = 14;
    pub(crate) const DELTA_1: u8 = 15;

    pub(crate) const TIME: u8 = OTHER;
    pub(crate) const REALLOC_CANCEL: u8 = OTHER + 1;
    pub(crate) const MAP: u8 = OTHER + 2;
    pub(crate) const UNMAP: u8 = OTHER + 3;
    pub(crate) const REMAP: u8 = OTHER + 4;
    pub(crate) const BRK: u8 = OTHER + 5;
    pub(crate) const ADVISE: u8 = OTHER + 6;
    pub(crate) const MARK: u8 = OTHER + 7;
    pub(crate) const FORK: u8 = OTHER + 8;
}

/// The streams of an event block: similar numbers side by side compress better.
pub(crate) mod stream {
    pub(crate) const TAGS: usize = 0;
    pub(crate) const CELLS: usize = 1;
    pub(crate) const NODES: usize = 2;
    pub(crate) const SIZES: usize = 3;
    pub(crate) const PLACES: usize = 4;
    pub(crate) const RELEASES: usize = 5;
    pub(crate) const TICKETS: usize = 6;
    pub(crate) const REST: usize = 7;
    pub(crate) const COUNT: usize = 8;
}

/// One function, stack, size and usable size. `how` is an `AllocFn`, or `REALLOC_ACQUIRE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) size: u64,
    pub(crate) usable: u64,
    pub(crate) node: u32,
    pub(crate) how: u8,
}

/// `Cell::how` of a `ReallocAcquire`.
pub(crate) const REALLOC_ACQUIRE: u8 = 7;

#[derive(Clone, Copy, Default)]
struct Held {
    addr: u64,
    /// The next older released block of the class, as ordinal + 1; 0: none.
    older: u32,
    class: u16,
}

#[derive(Clone, Copy, Default)]
struct Class {
    /// The last address of this class that was not a reused one.
    fresh: u64,
    /// The newest released block, as ordinal + 1; 0: none.
    top: u32,
}

/// The model: see the head of the file.
pub(crate) struct Model {
    cells: Vec<Cell>,
    follow: Box<[u32; FOLLOW]>,
    context: [u32; 2],
    held: Vec<Held>,
    classes: Box<[Class; CLASSES]>,
    usable_of: Box<[(u64, u64); SIZES]>,
    slop_mod_16: [u64; 16],
    fresh_end: u64,
    fresh: u64,
    pub(crate) last_release: u64,
    last_ordinal: u32,
    pub(crate) last_place: u64,
}

#[inline]
fn hash(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline]
fn class_of(usable: u64) -> usize {
    (hash(usable) >> 54) as usize
}

impl Model {
    pub(crate) fn new() -> Self {
        let mut model = Model {
            cells: Vec::new(),
            follow: Box::new([0; FOLLOW]),
            context: [0; 2],
            held: Vec::new(),
            classes: Box::new([Class::default(); CLASSES]),
            usable_of: Box::new([(0, 0); SIZES]),
            slop_mod_16: [0; 16],
            fresh_end: 0,
            fresh: 0,
            last_release: 0,
            last_ordinal: 0,
            last_place: 0,
        };
        model.reset();
        model
    }

    /// Resets the model to its state at the start of every block (P2). Cell 0 is a cell of zeros, so that
    /// there is always one to expect.
    pub(crate) fn reset(&mut self) {
        self.cells.clear();
        self.cells.push(Cell::default());
        self.follow.fill(0);
        self.context = [0; 2];
        self.held.clear();
        self.classes.fill(Class::default());
        self.usable_of.fill((0, 0));
        self.slop_mod_16 = [0; 16];
        self.fresh_end = 0;
        self.fresh = 0;
        self.last_release = 0;
        self.last_ordinal = 0;
        self.last_place = 0;
    }

    /// Releases the memory that a large block needed, and keeps what a small one needs.
    pub(crate) fn shrink(&mut self, entries: usize) {
        self.held.clear();
        self.cells.clear();
        self.held.shrink_to(entries);
        self.cells.shrink_to(entries);
    }

    #[inline]
    fn follow_slot(&self) -> usize {
        let [before, last] = self.context;
        (hash(u64::from(before) << 32 | u64::from(last)) >> 52) as usize
    }

    /// Returns the cell that came after the last two cells when they came last.
    #[inline]
    pub(crate) fn expected_cell(&self) -> u32 {
        self.follow[self.follow_slot()]
    }

    #[inline]
    pub(crate) fn cell(&self, index: u32) -> Option<&Cell> {
        self.cells.get(index as usize)
    }

    /// Learns that `index` was used; `index` exists.
    #[inline]
    pub(crate) fn used_cell(&mut self, index: u32) {
        let slot = self.follow_slot();
        self.follow[slot] = index;
        self.context = [self.context[1], index];
    }

    /// Adds a cell, even if it is there already; returns its index.
    pub(crate) fn add_cell(&mut self, cell: Cell) -> u32 {
        let slop = cell.usable.wrapping_sub(cell.size);
        self.usable_of[(hash(cell.size) >> 56) as usize] = (cell.size, cell.usable);
        self.slop_mod_16[(cell.size & 15) as usize] = slop;
        self.cells.push(cell);
        self.cells.len() as u32 - 1
    }

    /// Returns the usable size that `size` had last time, or else `size` and the last slop of its low bits.
    #[inline]
    pub(crate) fn expected_usable(&self, size: u64) -> u64 {
        let (known, usable) = self.usable_of[(hash(size) >> 56) as usize];
        if known == size && usable != 0 {
            usable
        } else {
            size.wrapping_add(self.slop_mod_16[(size & 15) as usize])
        }
    }

    /// Returns the number of addresses acquired in this block so far.
    #[inline]
    pub(crate) fn held_count(&self) -> u32 {
        self.held.len() as u32
    }

    /// Returns the address of an ordinal.
    #[inline]
    pub(crate) fn held_addr(&self, ordinal: u32) -> Option<u64> {
        self.held.get(ordinal as usize).map(|held| held.addr)
    }

    #[inline]
    pub(crate) fn last_ordinal(&self) -> u32 {
        self.last_ordinal
    }

    /// Returns the best way to write `addr` for a block of this usable size: a form of the tag, and the
    /// number that goes with the two delta forms.
    #[inline]
    pub(crate) fn place_form(&self, usable: u64, addr: u64) -> (u8, u64) {
        let class = self.classes[class_of(usable)];
        let mut link = class.top;
        if link != 0 {
            let held = self.held[link as usize - 1];
            if held.addr == addr {
                return (0, 0);
            }
            link = held.older;
        }
        // Before the walk down the list, whose entries are cold.
        if addr == self.fresh_end {
            return (tag::AT_BUMP, 0);
        }
        for depth in 1..LIFO_DEPTH {
            if link == 0 {
                break;
            }
            let held = self.held[link as usize - 1];
            if held.addr == addr {
                return (depth as u8, 0);
            }
            link = held.older;
        }
        if addr == class.fresh.wrapping_add(usable) {
            (tag::AT_STRIDE_UP, 0)
        } else if addr == class.fresh.wrapping_sub(usable) {
            (tag::AT_STRIDE_DOWN, 0)
        } else if addr == self.last_release {
            (tag::AT_RELEASED, 0)
        } else {
            let delta = addr.wrapping_sub(self.place_base(class)) as i64;
            if delta & 15 == 0 {
                (
                    tag::AT_DELTA_16,
                    skinflint_framing::varint::zigzag(delta >> 4),
                )
            } else {
                (tag::AT_DELTA_1, skinflint_framing::varint::zigzag(delta))
            }
        }
    }

    #[inline]
    fn place_base(&self, class: Class) -> u64 {
        if class.fresh != 0 {
            class.fresh
        } else {
            self.fresh
        }
    }

    /// Returns the address of a form; `None` for a form that does not exist, or a block that was not
    /// released. `number` is called for the two forms that need a number.
    #[inline]
    pub(crate) fn place_of<E>(
        &self,
        form: u8,
        usable: u64,
        number: impl FnOnce() -> Result<u64, E>,
    ) -> Result<Option<u64>, E> {
        let class = self.classes[class_of(usable)];
        Ok(match form {
            0..8 => {
                let mut link = class.top;
                for _ in 0..form {
                    if link == 0 {
                        break;
                    }
                    link = self.held[link as usize - 1].older;
                }
                if link == 0 {
                    None
                } else {
                    Some(self.held[link as usize - 1].addr)
                }
            }
            tag::AT_BUMP => Some(self.fresh_end),
            tag::AT_STRIDE_UP => Some(class.fresh.wrapping_add(usable)),
            tag::AT_STRIDE_DOWN => Some(class.fresh.wrapping_sub(usable)),
            tag::AT_RELEASED => Some(self.last_release),
            tag::AT_DELTA_16 => {
                let delta = skinflint_framing::varint::unzigzag(number()?).wrapping_shl(4);
                Some(self.place_base(class).wrapping_add(delta as u64))
            }
            tag::AT_DELTA_1 => {
                let delta = skinflint_framing::varint::unzigzag(number()?);
                Some(self.place_base(class).wrapping_add(delta as u64))
            }
            _ => None,
        })
    }

    /// Learns that a block was acquired at `addr`, written by `form`; returns its ordinal.
    #[inline]
    pub(crate) fn acquired(&mut self, form: u8, usable: u64, addr: u64) -> u32 {
        let number = class_of(usable);
        let class = &mut self.classes[number];
        if u32::from(form) < LIFO_DEPTH {
            if form == 0 {
                class.top = self.held[class.top as usize - 1].older;
            } else {
                // Taken out of the middle: the block above it now points past it.
                let mut above = class.top as usize - 1;
                for _ in 1..form {
                    above = self.held[above].older as usize - 1;
                }
                let taken = self.held[above].older as usize - 1;
                self.held[above].older = self.held[taken].older;
            }
        } else if form != tag::AT_RELEASED {
            class.fresh = addr;
            self.fresh = addr;
            // glibc's next chunk starts after the next chunk's header word.
            self.fresh_end = addr.wrapping_add(usable).wrapping_add(8);
        }
        self.held.push(Held {
            addr,
            older: 0,
            class: number as u16,
        });
        self.held.len() as u32 - 1
    }

    /// Learns that the block of this ordinal was released; the ordinal exists.
    #[inline]
    pub(crate) fn released(&mut self, ordinal: u32) {
        let held = &mut self.held[ordinal as usize];
        let class = &mut self.classes[held.class as usize];
        self.last_release = held.addr;
        self.last_ordinal = ordinal;
        held.older = class.top;
        class.top = ordinal + 1;
    }

    /// Learns that a block that is older than this file block was released.
    #[inline]
    pub(crate) fn released_unknown(&mut self, addr: u64) {
        self.last_release = addr;
    }
}
