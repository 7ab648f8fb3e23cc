//! What compiled code runs at an address: its method, and those that the compiler has put into it.
//!
//! ```text
//!   return address ─► descriptor: distance, scope ─► scope: the scope around it, method, bytecode │ … ─► 0
//! ```
//!
//! Numbers are written in one to five bytes: those below 192 in one, others add a byte shifted by 6 bits each. From 20 on no byte
//! is 0, and one less is meant.
//!
//! Not here: which piece of code it is (code_heap.rs), what a method is called (method.rs).

use super::machine::{Java, byte, half};
use super::tables::Debug;
use crate::chain::Bounds;
use crate::memory::Memory;

/// A descriptor: distance and scope, 4 bytes each, and 8 more.
const DESCRIPTOR_BYTES: u64 = 16;
const MOST_DESCRIPTORS: u64 = 1 << 20;
/// The most methods at one address.
pub(crate) const MOST_DEEP: usize = 256;

/// Where compiled code has its descriptors, scopes and methods.
struct Places {
    pcs: (u64, u64),
    scopes: u64,
    methods: (u64, u64),
}

/// A method that runs at an address, and one more than its bytecode; 0 where that is not known.
pub(crate) type Scope = (u64, u32);

impl Java {
    fn places<M: Memory>(&self, memory: &M, code: u64) -> Option<Places> {
        let distance = |at: u64| Some(u64::from(half(memory, at)?));
        Some(match self.layout.debug {
            Debug::Within {
                pcs,
                pcs_end,
                methods,
                scopes,
            } => {
                let scopes = memory.word(code + scopes)?;
                Places {
                    pcs: (
                        code + distance(code + pcs)?,
                        code + distance(code + pcs_end)?,
                    ),
                    scopes,
                    methods: (code + distance(code + methods)?, scopes),
                }
            }
            Debug::Apart {
                fixed,
                pcs,
                scopes,
                other,
                other_bytes,
                before_methods,
            } => {
                let fixed = memory.word(code + fixed)?;
                let scopes = fixed + distance(code + scopes)?;
                let start = memory.word(code + other)?;
                Places {
                    pcs: (fixed + distance(code + pcs)?, scopes),
                    scopes,
                    methods: (
                        start + distance(code + before_methods)?,
                        start + distance(code + other_bytes)?,
                    ),
                }
            }
        })
    }

    /// Gives `take` what runs at a return address into compiled code, innermost first, until it returns false. `own`: the
    /// frame. Where the machine wants it to be taken apart, it has put another address in that place, and this one in the frame.
    pub(crate) fn scopes<M: Memory>(
        &self,
        memory: &M,
        code: u64,
        address: u64,
        own: Bounds,
        take: &mut impl FnMut(Scope) -> bool,
    ) -> Option<()> {
        let places = self.places(memory, code)?;
        let begin = self.begin(memory, code)?;
        let mut found = descriptor(memory, places.pcs, address.wrapping_sub(begin))?;
        let kept = own.sp + u64::from(half(memory, code + self.layout.replaced)?);
        if found.is_none() && own.holds(kept) {
            let before = memory.word(kept)?;
            found = descriptor(memory, places.pcs, before.wrapping_sub(begin))?;
        }
        let Some(mut scope) = found else {
            take((memory.word(code + self.layout.method)?, 0));
            return Some(());
        };
        for _ in 0..MOST_DEEP {
            let mut numbers = Numbers {
                memory,
                at: places.scopes + u64::from(scope),
                less: u32::from(self.layout.major >= 20),
            };
            let (outer, method, bytecode) = (numbers.next()?, numbers.next()?, numbers.next()?);
            let at = places.methods.0 + u64::from(method.checked_sub(1)?) * 8;
            if at >= places.methods.1 {
                return None;
            }
            // Written one larger already; what is before the first is at the first.
            let unit = (bytecode as i32).max(1).cast_unsigned();
            if !take((memory.word(at)?, unit)) || outer == 0 {
                break;
            }
            scope = outer;
        }
        Some(())
    }
}

/// Returns the scope at a distance; `Some(None)` if no descriptor is of it.
fn descriptor<M: Memory>(
    memory: &M,
    (start, end): (u64, u64),
    distance: u64,
) -> Option<Option<u32>> {
    let count = end.checked_sub(start)? / DESCRIPTOR_BYTES;
    let (mut low, mut high) = (0, count.min(MOST_DESCRIPTORS));
    while low < high {
        let middle = (low + high) / 2;
        let at = start + middle * DESCRIPTOR_BYTES;
        let of = i64::from(half(memory, at)?.cast_signed());
        match of.cmp(&(distance as i64)) {
            core::cmp::Ordering::Less => low = middle + 1,
            core::cmp::Ordering::Greater => high = middle,
            core::cmp::Ordering::Equal => return Some(half(memory, at + 4).filter(|at| *at != 0)),
        }
    }
    Some(None)
}

struct Numbers<'a, M> {
    memory: &'a M,
    at: u64,
    /// What is taken off each byte.
    less: u32,
}

impl<M: Memory> Numbers<'_, M> {
    fn next(&mut self) -> Option<u32> {
        const LAST: u32 = 4;
        let mut sum = 0u32;
        for index in 0..=LAST {
            let value = u32::from(byte(self.memory, self.at)?).wrapping_sub(self.less);
            self.at += 1;
            sum = sum.wrapping_add(value << (index * 6));
            if value < 192 - self.less {
                break;
            }
        }
        Some(sum)
    }
}
