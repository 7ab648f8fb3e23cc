//! Rows of unwind information, packed, and the process-wide cache of them by pc.
//!
//! ```text
//!   pc (47 bits) × odd  =  [ index: 15 bits | tag: 32 bits ]        invertible, so tags are exact
//!   entry (64 bits)     =  [ tag: 32 bits   | rule: 32 bits ]
//!   rule                =  [ b: 14 bits | a: 14 bits | kind: 4 bits ]
//! ```
//!
//! R1  A rule is never 0, so an all-zero entry matches no pc.
//! R2  Index and tag together determine the pc: a hit is never another pc's rule.
//! R3  An entry is one word, read and written whole: threads see an old or a new rule, not a mix.
//! Not here: what a rule means for registers (step.rs), making rows (cfi.rs).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cfi::{Cfa, Row, Saved};
use crate::expr::Base;

const INDEX_BITS: u32 = 15;
const TAG_BITS: u32 = 32;
const PC_BITS: u32 = INDEX_BITS + TAG_BITS;
/// Any odd number permutes the 47-bit pcs; this one (golden ratio) spreads neighbours.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const FIELD_BITS: u32 = 14;
const FIELD_MASK: u32 = (1 << FIELD_BITS) - 1;

/// What a frame is, in four bits. Zero is no kind (R1).
pub(crate) mod kind {
    /// CFA = `rsp + 8a`; `rbp` at `CFA - 8b`, or unchanged if `b` is 0.
    pub(crate) const SP: u32 = 1;
    /// CFA = `rbp + 8a`; `rbp` as for `SP`.
    pub(crate) const BP: u32 = 2;
    /// CFA = `*(rbp + 8a)`, `rbp` at `rbp + 8b`, both signed: a realigned stack.
    pub(crate) const LOAD: u32 = 3;
    /// A signal handler's return: the registers are in the `ucontext` at `rsp`.
    pub(crate) const SIGNAL: u32 = 4;
    /// The outermost frame.
    pub(crate) const END: u32 = 5;
    /// No unwind information (JIT, hand-written): try the frame pointer.
    pub(crate) const NO_INFO: u32 = 6;
    /// Known, but does not fit: find and run the row each time.
    pub(crate) const WIDE: u32 = 7;
    /// Unwind information that we do not understand.
    pub(crate) const BAD: u32 = 8;
}

/// A packed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule(u32);

impl Rule {
    /// No rule is known (R1).
    pub(crate) const NONE: Rule = Rule(0);
    pub(crate) const NO_INFO: Rule = Rule(kind::NO_INFO);
    pub(crate) const SIGNAL: Rule = Rule(kind::SIGNAL);

    #[inline(always)]
    pub(crate) fn kind(self) -> u32 {
        self.0 & 15
    }

    /// Whether what lies beyond a frame with this rule depends on `rbp` in it, if what lies beyond
    /// its caller `further` depends on `rbp` there.
    #[inline(always)]
    pub(crate) fn needs_bp(self, further: bool) -> bool {
        match self.kind() {
            kind::SP => further & (self.b() == 0),
            kind::END => false,
            _ => true,
        }
    }

    /// A rule of which `needs_bp` says this.
    pub(crate) fn that_needs_bp(needs: bool) -> Rule {
        Rule(if needs { kind::BP } else { kind::END })
    }

    /// Field `a`, in bytes, unsigned.
    #[inline(always)]
    pub(crate) fn a(self) -> u64 {
        u64::from((self.0 >> 4) & FIELD_MASK) * 8
    }

    /// Field `b`, in bytes, unsigned.
    #[inline(always)]
    pub(crate) fn b(self) -> u64 {
        u64::from(self.0 >> (4 + FIELD_BITS)) * 8
    }

    /// Field `a`, in bytes, signed.
    pub(crate) fn signed_a(self) -> i64 {
        i64::from((self.0 << FIELD_BITS) as i32 >> (32 - FIELD_BITS)) * 8
    }

    /// Field `b`, in bytes, signed.
    pub(crate) fn signed_b(self) -> i64 {
        i64::from(self.0 as i32 >> (32 - FIELD_BITS)) * 8
    }

    /// Packs a row; what does not fit becomes `WIDE`, what cannot be followed `BAD`.
    pub(crate) fn pack(row: &Row) -> Rule {
        if row.signal {
            return Rule::SIGNAL;
        }
        if row.ra == Saved::Undefined {
            return Rule(kind::END);
        }
        let bad = row.cfa == Cfa::Bad || row.bp == Saved::Bad || !matches!(row.ra, Saved::At(..));
        if bad {
            return Rule(kind::BAD);
        }
        if row.ra != Saved::At(Base::Cfa, -8) {
            return Rule(kind::WIDE);
        }
        Rule::pack_plain(row).unwrap_or(Rule(kind::WIDE))
    }

    fn pack_plain(row: &Row) -> Option<Rule> {
        let join = |kind: u32, a: u32, b: u32| Rule(kind | a << 4 | b << (4 + FIELD_BITS));
        match (row.cfa, row.bp) {
            (Cfa::Reg(base, offset), bp) => {
                let kind = match base {
                    Base::Sp => kind::SP,
                    Base::Bp => kind::BP,
                    Base::Cfa => return None,
                };
                let b = match bp {
                    Saved::Same | Saved::Undefined => 0,
                    Saved::At(Base::Cfa, at) if at <= -16 => unsigned(at.checked_neg()?)?,
                    _ => return None,
                };
                Some(join(kind, unsigned(offset)?, b))
            }
            (
                Cfa::Load {
                    base: Base::Bp,
                    offset,
                    add: 0,
                },
                Saved::At(Base::Bp, at),
            ) => Some(join(kind::LOAD, signed(offset)?, signed(at)?)),
            _ => None,
        }
    }
}

/// A byte offset as an unsigned count of words that fits a field.
fn unsigned(offset: i64) -> Option<u32> {
    let words = u32::try_from(offset / 8).ok()?;
    (offset % 8 == 0 && words <= FIELD_MASK).then_some(words)
}

/// A byte offset as a signed count of words that fits a field, in the field's bits.
fn signed(offset: i64) -> Option<u32> {
    let words = i32::try_from(offset / 8).ok()?;
    let half = 1 << (FIELD_BITS - 1);
    (offset % 8 == 0 && (-half..half).contains(&words)).then_some(words as u32 & FIELD_MASK)
}

/// The cache of rules, shared by all threads of the process: 256 KiB, touched as it is used.
/// All-zero memory is an empty cache (U4).
#[repr(C)]
pub struct RuleCache {
    entries: [AtomicU64; 1 << INDEX_BITS],
}

impl RuleCache {
    /// An empty cache, for a static.
    pub const fn new() -> RuleCache {
        RuleCache {
            entries: [const { AtomicU64::new(0) }; 1 << INDEX_BITS],
        }
    }

    /// Forgets every rule. To be called after `dlclose` and after `dlopen`: other code, or code
    /// where there was none, may now lie at a remembered pc. Cost: 32,768 stores.
    pub fn clear(&self) {
        for entry in &self.entries {
            // ORDER: Relaxed: each entry stands for itself (R3), and a reader that still sees the
            // old rule is as if it had looked before the call. Test: `clear_forgets`.
            entry.store(0, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn split(pc: u64) -> (usize, u32) {
        let mixed = pc.wrapping_mul(MIX);
        let index = (mixed << (64 - PC_BITS)) >> (64 - INDEX_BITS);
        (index as usize, mixed as u32)
    }

    /// The rule remembered for `pc`, or `NONE`. Cost: one multiplication, one load.
    pub(crate) fn get(&self, pc: u64) -> Rule {
        let (index, tag) = RuleCache::split(pc);
        let Some(entry) = self.entries.get(index) else {
            return Rule::NONE;
        };
        // ORDER: Relaxed: the word is the whole message (R3); no other memory hangs on it.
        // Test: `threads_share_it`.
        let word = entry.load(Ordering::Relaxed);
        if (word >> 32) as u32 == tag && pc >> PC_BITS == 0 {
            Rule(word as u32)
        } else {
            Rule::NONE
        }
    }

    /// As `get`, if it is one of the two kinds that nearly all frames have. All checks are branches:
    /// selected instead of jumped over, they would lengthen the chain from one frame to the next.
    #[inline(always)]
    pub(crate) fn common(&self, pc: u64) -> Option<Rule> {
        let (index, tag) = RuleCache::split(pc);
        // ORDER: Relaxed, as in `get`.
        let word = self.entries.get(index)?.load(Ordering::Relaxed);
        if (word >> 32) as u32 != tag || pc >> PC_BITS != 0 {
            return None;
        }
        let rule = Rule(word as u32);
        (rule.kind().wrapping_sub(kind::SP) <= kind::BP - kind::SP).then_some(rule)
    }

    /// Remembers a rule, in place of whatever had its entry.
    pub(crate) fn put(&self, pc: u64, rule: Rule) {
        let (index, tag) = RuleCache::split(pc);
        if pc >> PC_BITS == 0
            && let Some(entry) = self.entries.get(index)
        {
            // ORDER: Relaxed, the partner of the load in `get`.
            entry.store(u64::from(tag) << 32 | u64::from(rule.0), Ordering::Relaxed);
        }
    }
}

impl Default for RuleCache {
    fn default() -> RuleCache {
        RuleCache::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cfa: Cfa, bp: Saved) -> Row {
        Row {
            cfa,
            bp,
            ra: Saved::At(Base::Cfa, -8),
            signal: false,
        }
    }

    #[test]
    fn packing_at_the_edges() {
        let top = i64::from(FIELD_MASK) * 8;
        for (offset, fits) in [
            (8, true),
            (top - 8, true),
            (top, true),
            (top + 8, false),
            (12, false),
        ] {
            let rule = Rule::pack(&row(Cfa::Reg(Base::Sp, offset), Saved::Same));
            assert_eq!(rule.kind() == kind::SP, fits, "{offset}");
            assert_eq!(rule.kind() == kind::WIDE, !fits, "{offset}");
            if fits {
                assert_eq!((rule.a(), rule.b()), (offset as u64, 0));
            }
        }
        let rule = Rule::pack(&row(Cfa::Reg(Base::Bp, 16), Saved::At(Base::Cfa, -top)));
        assert_eq!(
            (rule.kind(), rule.a(), rule.b()),
            (kind::BP, 16, top as u64)
        );
        let half = 8i64 << (FIELD_BITS - 1);
        for (at, fits) in [
            (-half, true),
            (-half - 8, false),
            (half - 8, true),
            (half, false),
            (0, true),
        ] {
            let load = Cfa::Load {
                base: Base::Bp,
                offset: at,
                add: 0,
            };
            let rule = Rule::pack(&row(load, Saved::At(Base::Bp, -8)));
            assert_eq!(rule.kind() == kind::LOAD, fits, "{at}");
            if fits {
                assert_eq!((rule.signed_a(), rule.signed_b()), (at, -8));
            }
        }
    }

    #[test]
    fn a_hit_is_exact_for_pcs_that_share_an_entry() {
        let cache = Box::new(RuleCache::new());
        // The inverse of MIX modulo 2^64, by Newton's iteration: five steps from 5 bits.
        let mut inverse = MIX;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(MIX.wrapping_mul(inverse)));
        }
        assert_eq!(MIX.wrapping_mul(inverse), 1);
        let pc_of =
            |index: u64, tag: u64| (index << 32 | tag).wrapping_mul(inverse) & ((1 << 47) - 1);
        let (a, b) = (pc_of(77, 1), pc_of(77, 2));
        assert_eq!(
            (RuleCache::split(a), RuleCache::split(b)),
            ((77, 1), (77, 2))
        );
        cache.put(a, Rule::NO_INFO);
        assert_eq!(cache.get(a), Rule::NO_INFO);
        assert_eq!(cache.get(b), Rule::NONE);
        assert_eq!(cache.get(a | 1 << 47), Rule::NONE, "not a user address");
        cache.put(b, Rule::SIGNAL);
        assert_eq!((cache.get(a), cache.get(b)), (Rule::NONE, Rule::SIGNAL));
    }

    #[test]
    fn clear_forgets() {
        let cache = Box::new(RuleCache::new());
        assert_eq!(cache.get(0), Rule::NONE, "pc 0 of an empty cache (R1)");
        for pc in (0x4000..0x5000).step_by(7) {
            cache.put(pc, Rule::NO_INFO);
        }
        cache.clear();
        assert!((0x4000..0x5000).all(|pc| cache.get(pc) == Rule::NONE));
    }

    #[test]
    fn threads_share_it() {
        let cache = Box::new(RuleCache::new());
        // Each pc has one rule for ever; whoever reads it must see that rule or none.
        let rule_of = |pc: u64| Rule(kind::SP | ((pc as u32) & FIELD_MASK) << 4);
        std::thread::scope(|scope| {
            for offset in 0..3u64 {
                let cache = &cache;
                scope.spawn(move || {
                    for i in 0..200_000u64 {
                        let pc = (i * 64 + offset) % 1_000_003;
                        let seen = cache.get(pc);
                        assert!(seen == Rule::NONE || seen == rule_of(pc));
                        cache.put(pc, rule_of(pc));
                    }
                });
            }
        });
    }
}
