//! Rows of unwind information, packed, and the process-wide cache of them by pc.
//!
//! ```text
//!   pc + 1 (47 bits)  =  [ tag: 32 bits | index: 15 bits ]
//!   entry (64 bits)   =  [ tag: 32 bits | rule: 32 bits ]
//!   rule              =  [ b: 14 bits | kind: 4 bits | a: 14 bits ]
//! ```
//!
//! The next return address waits for the rule of the last, so each step between adds latency: pc + 1 is
//! the return address as it is, its low bits are the index as they are, and `a` is one `and` away. A
//! multiplicative hash took 4 cycles more per frame, and gave every call site a cache line of its own;
//! collisions of call sites are no more frequent without it.
//!
//! On aarch64 the return address lies anywhere in a frame, and places of code have 48 bits, of which the lower two say
//! nothing: see `pack_apart` and `split`.
//!
//! R1  A rule is never 0, so an all-zero entry matches no pc.
//! R2  Index and tag together determine the pc: a hit is never another pc's rule.
//! R3  An entry is one word, read and written whole: threads see an old or a new rule, never a mix.
//! Not here: what a rule means for registers (step.rs), making rows (cfi.rs).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cfi::{Cfa, Row, Saved};
use crate::expr::Base;

const INDEX_BITS: u32 = 15;
const TAG_BITS: u32 = 32;
const PC_BITS: u32 = INDEX_BITS + TAG_BITS;
#[cfg(target_arch = "aarch64")]
const USER_BITS: u32 = 48;
const FIELD_BITS: u32 = 14;
const FIELD_MASK: u32 = (1 << FIELD_BITS) - 1;
const B_SHIFT: u32 = 32 - FIELD_BITS;
/// The three numbers of a rule of aarch64, in both fields: 10 bits in units of 16 bytes, and twice 9 in units of 8.
#[cfg(target_arch = "aarch64")]
const UP_BITS: u32 = 10;
#[cfg(target_arch = "aarch64")]
const APART_BITS: u32 = 9;

/// The kind of a frame, in four bits. Zero is not a kind (R1). The walk asks two questions of each rule, and an
/// instruction answers each: the lower three bits are 1 for the two kinds that nearly all frames have, and the fourth
/// says whether the way out depends on `rbp`.
pub(crate) mod kind {
    /// The lower three bits of the two common kinds.
    pub(crate) const COMMON: u32 = 1;
    /// The fourth bit.
    pub(crate) const BY_BP: u32 = 8;

    /// CFA = `rsp + 8a`; `rbp` at `CFA - 8b`, or unchanged if `b` is 0.
    pub(crate) const SP: u32 = COMMON;
    /// CFA = `rbp + 8a`; `rbp` as for `SP`.
    pub(crate) const BP: u32 = BY_BP | COMMON;
    /// CFA = `*(rbp + 8a)`, `rbp` at `rbp + 8b`, both signed: a realigned stack.
    pub(crate) const LOAD: u32 = BY_BP | 2;
    /// A signal handler's return: the registers are in the `ucontext` at `rsp`.
    pub(crate) const SIGNAL: u32 = BY_BP | 3;
    /// The outermost frame.
    pub(crate) const END: u32 = 4;
    /// CFA = `sp + 8a`, and all else is still in its register: code of aarch64 that called nothing, and was interrupted.
    #[cfg(target_arch = "aarch64")]
    pub(crate) const LEAF: u32 = 5;
    /// No unwind information (JIT, hand-written): try the frame pointer.
    pub(crate) const NO_INFO: u32 = BY_BP | 5;
    /// The row is known, but does not fit: it is looked up and run each time.
    pub(crate) const WIDE: u32 = BY_BP | 6;
    /// Unwind information that we do not understand.
    pub(crate) const BAD: u32 = BY_BP | 7;
}

/// A packed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule(u32);

impl Rule {
    /// The value that means that no rule is known (R1).
    pub(crate) const NONE: Rule = Rule(0);
    pub(crate) const NO_INFO: Rule = Rule::of(kind::NO_INFO);
    pub(crate) const SIGNAL: Rule = Rule::of(kind::SIGNAL);
    pub(crate) const WIDE: Rule = Rule::of(kind::WIDE);

    /// Returns a rule without fields.
    const fn of(kind: u32) -> Rule {
        Rule(kind << FIELD_BITS)
    }

    /// Returns the rule as it is stored.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Returns the rule that was stored as `bits`: the inverse of [`Rule::bits`].
    #[inline(always)]
    pub(crate) fn from_bits(bits: u32) -> Rule {
        Rule(bits)
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> u32 {
        self.0 >> FIELD_BITS & 15
    }

    /// Returns whether the frames outside of a frame with this rule depend on `rbp` in it. `further`:
    /// whether the frames outside of its caller depend on `rbp` there.
    pub(crate) fn needs_bp(self, further: bool) -> bool {
        self == Rule::NONE || self.common_needs_bp(u64::from(further) << 63) != 0
    }

    /// As `needs_bp`, for a common rule: the answer is the upper bit, as `further` has it, and nothing else. Computed
    /// with bits, without branches: kinds vary from frame to frame.
    #[inline(always)]
    pub(crate) fn common_needs_bp(self, further: u64) -> u64 {
        let is_kept = self.0 >> FIELD_BITS == kind::SP;
        let kept = if is_kept { further } else { 0 };
        kept | u64::from(self.0 & kind::BY_BP << FIELD_BITS) << (63 - FIELD_BITS - 3)
    }

    /// Returns whether a common rule is of the kind `BP`.
    #[inline(always)]
    pub(crate) fn is_by_bp(self) -> bool {
        self.0 & kind::BY_BP << FIELD_BITS != 0
    }

    /// Returns a rule whose `needs_bp` returns `needs`.
    pub(crate) fn that_needs_bp(needs: bool) -> Rule {
        Rule::of(if needs { kind::BP } else { kind::END })
    }

    /// Returns field `a`, in bytes, unsigned.
    #[inline(always)]
    pub(crate) fn a(self) -> u64 {
        u64::from(self.0 & FIELD_MASK) * 8
    }

    /// Returns field `b`, in bytes, unsigned.
    #[inline(always)]
    pub(crate) fn b(self) -> u64 {
        u64::from(self.0 >> B_SHIFT) * 8
    }

    /// Returns field `a`, in bytes, signed.
    pub(crate) fn signed_a(self) -> i64 {
        i64::from((self.0 << B_SHIFT) as i32 >> B_SHIFT) * 8
    }

    /// Returns field `b`, in bytes, signed.
    pub(crate) fn signed_b(self) -> i64 {
        i64::from(self.0 as i32 >> B_SHIFT) * 8
    }

    /// Packs a row; one that does not fit becomes `WIDE`, one that cannot be followed `BAD`.
    pub(crate) fn pack(row: &Row) -> Rule {
        if row.signal {
            return Rule::SIGNAL;
        }
        if row.ra == Saved::Undefined {
            return Rule::of(kind::END);
        }
        #[cfg(target_arch = "aarch64")]
        if row.ra == Saved::Same {
            return Rule::pack_leaf(row).unwrap_or(Rule::of(kind::BAD));
        }
        let bad = row.cfa == Cfa::Bad || row.bp == Saved::Bad || !matches!(row.ra, Saved::At(..));
        if bad {
            return Rule::of(kind::BAD);
        }
        #[cfg(target_arch = "aarch64")]
        return Rule::pack_apart(row).unwrap_or(Rule::of(kind::WIDE));
        #[cfg(target_arch = "x86_64")]
        {
            if row.ra != Saved::At(Base::Cfa, -8) {
                return Rule::of(kind::WIDE);
            }
            Rule::pack_plain(row).unwrap_or(Rule::of(kind::WIDE))
        }
    }

    /// Packs a row of aarch64 whose return address is in its register.
    #[cfg(target_arch = "aarch64")]
    fn pack_leaf(row: &Row) -> Option<Rule> {
        let (Cfa::Reg(Base::Sp, offset), Saved::Same) = (row.cfa, row.bp) else {
            return None;
        };
        Some(Rule(kind::LEAF << FIELD_BITS | unsigned(offset)?))
    }

    /// Packs a row of aarch64: both fields together hold three numbers ([`Rule::apart`]).
    #[cfg(target_arch = "aarch64")]
    fn pack_apart(row: &Row) -> Option<Rule> {
        let count = |bytes: i64, unit: i64, bits: u32| {
            let count = u32::try_from(bytes / unit).ok()?;
            (bytes % unit == 0 && count >> bits == 0).then_some(count)
        };
        let (Cfa::Reg(base, offset), Saved::At(Base::Cfa, ra)) = (row.cfa, row.ra) else {
            return None;
        };
        let kind = match base {
            Base::Sp => kind::SP,
            Base::Bp => kind::BP,
            Base::Cfa => return None,
        };
        let bp = match row.bp {
            Saved::Same | Saved::Undefined => 0,
            Saved::At(Base::Cfa, at) if at < 0 => count(at.checked_neg()?, 8, APART_BITS)?,
            _ => return None,
        };
        let up = count(offset, 16, UP_BITS)?;
        let down = count(ra.checked_neg()?, 8, APART_BITS)?;
        let all = up | down << UP_BITS | bp << (UP_BITS + APART_BITS);
        let (a, b) = (all & FIELD_MASK, all >> FIELD_BITS);
        Some(Rule(kind << FIELD_BITS | a | b << B_SHIFT))
    }

    /// Returns what `pack_apart` packed, in bytes: how far the CFA is above its base, and how far below the CFA the return
    /// address and the frame pointer lie; the latter is 0 if that is unchanged.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn apart(self) -> (u64, u64, u64) {
        let all = self.0 & FIELD_MASK | self.0 >> B_SHIFT << FIELD_BITS;
        let field = |from: u32, bits: u32| u64::from(all >> from & ((1 << bits) - 1));
        (
            field(0, UP_BITS) * 16,
            field(UP_BITS, APART_BITS) * 8,
            field(UP_BITS + APART_BITS, APART_BITS) * 8,
        )
    }

    #[cfg(target_arch = "x86_64")]
    fn pack_plain(row: &Row) -> Option<Rule> {
        let join = |kind: u32, a: u32, b: u32| Rule(kind << FIELD_BITS | a | b << B_SHIFT);
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

/// Returns a byte offset as an unsigned count of words, if it fits a field.
fn unsigned(offset: i64) -> Option<u32> {
    let words = u32::try_from(offset / 8).ok()?;
    (offset % 8 == 0 && words <= FIELD_MASK).then_some(words)
}

/// Returns a byte offset as a signed count of words in a field's bits, if it fits a field.
fn signed(offset: i64) -> Option<u32> {
    let words = i32::try_from(offset / 8).ok()?;
    let half = 1 << (FIELD_BITS - 1);
    (offset % 8 == 0 && (-half..half).contains(&words)).then_some(words as u32 & FIELD_MASK)
}

/// The cache of rules, shared by all threads of the process: 256 KiB, touched as it is used.
/// All-zero memory is an empty cache (unwind.U4).
#[repr(C)]
pub struct RuleCache {
    entries: [AtomicU64; 1 << INDEX_BITS],
    /// The range of code outside of modules that has rules: the lowest pc, inverted, so that zero means none, and one
    /// past the highest.
    generated: [AtomicU64; 2],
}

impl RuleCache {
    /// Creates an empty cache, for a static.
    pub const fn new() -> RuleCache {
        RuleCache {
            entries: [const { AtomicU64::new(0) }; 1 << INDEX_BITS],
            generated: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// Notes that code outside of modules gets a rule.
    pub(crate) fn note_generated(&self, pc: u64) {
        // ORDER: Relaxed: a thread that unmaps this code does so after the last that ran in it, by the program's own
        // order; that one noted it. Test: `rules_of_generated_code_go_with_it`.
        self.generated[0].fetch_max(!pc, Ordering::Relaxed);
        // ORDER: Relaxed, as above.
        self.generated[1].fetch_max(pc.wrapping_add(1), Ordering::Relaxed);
    }

    /// Forgets every rule if code outside of modules has some in this range. To be called before `munmap`. Cost: two
    /// loads and a comparison if there are none.
    #[inline]
    pub fn unmapping(&self, start: u64, len: u64) {
        // ORDER: Relaxed, the partners of the additions in `note_generated`.
        let low = !self.generated[0].load(Ordering::Relaxed);
        // ORDER: Relaxed, as above.
        let end = self.generated[1].load(Ordering::Relaxed);
        if start < end && low < start.saturating_add(len) {
            self.clear();
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

    /// Returns the index and tag of an instruction of aarch64, of which `next` is a byte or the one after its last; `None`
    /// if it is not a user address. Rows begin and end with instructions of four bytes.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn split(next: u64) -> Option<(usize, u32)> {
        let pc = next.wrapping_sub(1) >> 2;
        let index = pc & ((1 << INDEX_BITS) - 1);
        (pc >> (USER_BITS - 2) == 0).then_some((index as usize, (pc >> INDEX_BITS) as u32))
    }

    /// Returns the index and tag of `pc + 1`; `None` if it is not a user address.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn split(next: u64) -> Option<(usize, u32)> {
        let index = next & ((1 << INDEX_BITS) - 1);
        (next >> PC_BITS == 0).then_some((index as usize, (next >> INDEX_BITS) as u32))
    }

    /// Returns the rule remembered for `pc`, or `NONE`. Cost: one load.
    pub(crate) fn get(&self, pc: u64) -> Rule {
        let Some((index, tag)) = RuleCache::split(pc.wrapping_add(1)) else {
            return Rule::NONE;
        };
        let Some(entry) = self.entries.get(index) else {
            return Rule::NONE;
        };
        // ORDER: Relaxed: the word is the whole message (R3); no other memory hangs on it.
        // Test: `threads_share_it`.
        let word = entry.load(Ordering::Relaxed);
        if (word >> 32) as u32 == tag {
            Rule(word as u32)
        } else {
            Rule::NONE
        }
    }

    /// Returns the rule for the return address `next` (its pc plus one), if it is one of the two kinds
    /// that nearly all frames have.
    #[inline(always)]
    pub(crate) fn common(&self, next: u64) -> Option<Rule> {
        let index = next as usize & ((1 << INDEX_BITS) - 1);
        // ORDER: Relaxed, as in `get`.
        let word = self.entries.get(index)?.load(Ordering::Relaxed);
        let rule = Rule(word as u32);
        let is_common = rule.0 & 7 << FIELD_BITS == kind::COMMON << FIELD_BITS;
        // No tag equals the upper bits of what is no user address: they are more than 32.
        (word >> TAG_BITS == next >> INDEX_BITS && is_common).then_some(rule)
    }

    /// Remembers a rule, in place of the one that had its entry.
    pub(crate) fn put(&self, pc: u64, rule: Rule) {
        if let Some((index, tag)) = RuleCache::split(pc.wrapping_add(1))
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

    #[test]
    fn rules_of_generated_code_go_with_it() {
        let rules = Box::new(RuleCache::new());
        let rule = Rule::pack(&row(Cfa::Reg(Base::Sp, 16), Saved::Same));
        rules.put(0x5000, rule);
        rules.unmapping(0, u64::MAX);
        assert_eq!(rules.get(0x5000), rule, "nothing was generated");
        rules.put(0x9005, rule);
        rules.note_generated(0x9005);
        rules.put(0x7005, rule);
        rules.note_generated(0x7005);
        rules.unmapping(0x6000, 0x1005);
        rules.unmapping(0x9006, 0x1000);
        assert_eq!(rules.get(0x9005), rule, "neither holds it");
        rules.unmapping(0x7005, 1);
        assert_eq!(
            (rules.get(0x7005), rules.get(0x9005)),
            (Rule::NONE, Rule::NONE)
        );
    }

    fn row(cfa: Cfa, bp: Saved) -> Row {
        Row {
            cfa,
            bp,
            ra: Saved::At(Base::Cfa, -8),
            signal: false,
        }
    }

    /// What does not fit goes the slow way, and is not rounded to what does.
    #[cfg(target_arch = "aarch64")]
    #[test]
    fn packing_where_the_return_address_lies_anywhere() {
        let row = |up, ra, bp| Row {
            cfa: Cfa::Reg(Base::Sp, up),
            bp: Saved::At(Base::Cfa, bp),
            ra: Saved::At(Base::Cfa, ra),
            signal: false,
        };
        for (up, ra, bp, fits) in [
            (16, -8, -16, true),
            (96, -88, -96, true),
            (16 * 1023, -8 * 511, -8 * 511, true),
            (16 * 1024, -8, -16, false),
            (32, -8 * 512, -16, false),
            (32, -8, -8 * 512, false),
            (24, -8, -16, false),
            (32, -4, -16, false),
        ] {
            let rule = Rule::pack(&row(up, ra, bp));
            let kind = if fits { kind::SP } else { kind::WIDE };
            assert_eq!(rule.kind(), kind, "{up} {ra} {bp}");
            if fits {
                assert_eq!(rule.apart(), (up as u64, -ra as u64, -bp as u64));
            }
        }
        let leaf = |offset| {
            Rule::pack(&Row {
                cfa: Cfa::Reg(Base::Sp, offset),
                bp: Saved::Same,
                ra: Saved::Same,
                signal: false,
            })
        };
        assert_eq!((leaf(0).kind(), leaf(48).a()), (kind::LEAF, 48));
        assert_eq!(leaf(-16).kind(), kind::BAD);
    }

    /// All bytes of an instruction have one rule, and the next instruction has another.
    #[cfg(target_arch = "aarch64")]
    #[test]
    fn an_instruction_is_what_has_a_rule() {
        let cache = Box::new(RuleCache::new());
        let pc = 0xffff_a000_1234;
        cache.put(pc, Rule::NO_INFO);
        for at in pc..pc + 4 {
            assert_eq!(cache.get(at), Rule::NO_INFO);
        }
        for at in [pc - 1, pc + 4, pc ^ 1 << 20, pc ^ 1 << 47, pc | 1 << 48] {
            assert_eq!(cache.get(at), Rule::NONE, "{at:#x}");
        }
    }

    #[cfg(target_arch = "x86_64")]
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_hit_is_exact_for_pcs_that_share_an_entry() {
        let cache = Box::new(RuleCache::new());
        let (a, b) = (77 + (1 << 15), 77 + (2 << 15));
        assert_eq!(RuleCache::split(a + 1), Some((78, 1)));
        assert_eq!(RuleCache::split(b + 1), Some((78, 2)));
        cache.put(a, Rule::NO_INFO);
        assert_eq!(cache.get(a), Rule::NO_INFO);
        assert_eq!(cache.get(b), Rule::NONE);
        assert_eq!(cache.get(a | 1 << 47), Rule::NONE, "not a user address");
        cache.put(b, Rule::SIGNAL);
        assert_eq!((cache.get(a), cache.get(b)), (Rule::NONE, Rule::SIGNAL));
    }

    #[cfg(target_arch = "x86_64")]
    /// Predicted by hand: an rsp frame passes the question on unless it loads its caller's rbp; an rbp
    /// frame needs it whatever lies beyond; the outermost needs nothing; all others might.
    #[test]
    fn who_needs_rbp() {
        let sp = Cfa::Reg(Base::Sp, 32);
        let saved = Saved::At(Base::Cfa, -16);
        for (rule, if_further, if_not) in [
            (Rule::pack(&row(sp, Saved::Same)), true, false),
            (Rule::pack(&row(sp, saved)), false, false),
            (Rule::pack(&row(Cfa::Reg(Base::Bp, 16), saved)), true, true),
            (
                Rule::pack(&row(Cfa::Reg(Base::Bp, 16), Saved::Same)),
                true,
                true,
            ),
            (Rule::of(kind::END), false, false),
            (Rule::of(kind::WIDE), true, true),
            (Rule::NO_INFO, true, true),
            (Rule::SIGNAL, true, true),
            (Rule::NONE, true, true),
            (Rule::that_needs_bp(true), true, true),
            (Rule::that_needs_bp(false), false, false),
        ] {
            assert_eq!(rule.needs_bp(true), if_further, "{rule:?}");
            assert_eq!(rule.needs_bp(false), if_not, "{rule:?}");
        }
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
        // Each pc has one rule for ever; a reader must see that rule or none.
        let unit = if cfg!(target_arch = "aarch64") { 4 } else { 1 };
        let rule_of = |pc: u64| Rule(kind::SP << FIELD_BITS | ((pc / unit) as u32) & FIELD_MASK);
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
