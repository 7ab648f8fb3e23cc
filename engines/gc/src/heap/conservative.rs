//! Roots on the stack and in registers, for clients that cannot name theirs.
//!
//! ```text
//!   registers ─► saved on the stack ─┐
//!   stack, from here to its base ────┴─► each word ─► a chunk of this world? ─► an arena in use? ─► a cell that
//!                                                      (page map)            (bits)            holds an object?
//!                                                                                                    └─► edge
//! ```
//!
//! D1  A word is a root if it is an address of any byte of an object, of a heap of the set: pointers into the middle
//!     keep objects alive, too. A word that only looks like an address keeps an object alive that is not used: that is
//!     the price.
//! D2  Everything that the calling thread holds in callee-saved registers or on its stack is looked at. Pointers
//!     elsewhere (another thread, memory of `malloc`) are not seen.
//! D3  Words are read by a separate instruction, since they are no values of Rust: padding, and old contents.
//!
//! Not here: machines other than x86-64.

use core::ptr::NonNull;

use crate::heap::state::Heap;
use crate::heap::tracer::Tracer;

/// Returns the address of the base of the calling thread's stack, which is behind its last word.
fn stack_base() -> Option<usize> {
    // SAFETY: the attribute is filled by the first call and released by the last; all are for this thread.
    unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return None;
        }
        let (mut lowest, mut bytes) = (core::ptr::null_mut(), 0);
        let known = libc::pthread_attr_getstack(&attributes, &raw mut lowest, &raw mut bytes) == 0;
        libc::pthread_attr_destroy(&raw mut attributes);
        known.then(|| lowest.addr() + bytes)
    }
}

/// The thread's stack, as roots ([`crate::Roots`]) that can be told repeatedly.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    base: usize,
}

/// Registers that a called function leaves as they were.
#[cfg(target_arch = "x86_64")]
const SAVED: usize = 6;
/// Registers that a called function leaves as they were.
#[cfg(target_arch = "aarch64")]
const SAVED: usize = 11;

impl Stack {
    /// Returns the calling thread's stack. `None`: the system does not say where it begins. Cost: on the main thread
    /// the C library reads `/proc/self/maps`, so ask once and keep it.
    pub fn here() -> Option<Stack> {
        stack_base().map(|base| Stack { base })
    }

    /// Tells every object of `heap` (and of its world) that the stack or a register leads to (D1).
    ///
    /// # Safety
    /// Called on the thread for which the value was made.
    #[inline(never)]
    pub unsafe fn trace(&self, heap: &Heap, tracer: &mut Tracer) {
        let mut saved = [0usize; SAVED];
        #[cfg(target_arch = "aarch64")]
        // SAFETY: D2: as below.
        unsafe {
            core::arch::asm!(
                "stp x19, x20, [{to}]",
                "stp x21, x22, [{to}, #16]",
                "stp x23, x24, [{to}, #32]",
                "stp x25, x26, [{to}, #48]",
                "stp x27, x28, [{to}, #64]",
                "str x29, [{to}, #80]",
                to = in(reg) saved.as_mut_ptr(),
                options(nostack, preserves_flags),
            );
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: D2: the callee-saved registers of the ABI, written to our own array.
        unsafe {
            core::arch::asm!(
                "mov [{to}], rbx",
                "mov [{to} + 8], rbp",
                "mov [{to} + 16], r12",
                "mov [{to} + 24], r13",
                "mov [{to} + 32], r14",
                "mov [{to} + 40], r15",
                to = in(reg) saved.as_mut_ptr(),
                options(nostack, preserves_flags),
            );
        }
        let mut at = saved.as_ptr().expose_provenance();
        while at + size_of::<usize>() <= self.base {
            tell(heap, word(at), tracer);
            at += size_of::<usize>();
        }
    }
}

/// Reads a word of the stack (D3).
#[inline(always)]
fn word(at: usize) -> usize {
    let word: usize;
    // SAFETY: the stack is mapped from here to its base.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {word}, [{at}]",
            word = out(reg) word,
            at = in(reg) at,
            options(nostack, readonly, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "ldr {word}, [{at}]",
            word = out(reg) word,
            at = in(reg) at,
            options(nostack, readonly, preserves_flags),
        );
    }
    word
}

/// Tells the object that an address lies in, if it lies in one of a heap of this world; reports whether it did. Cost
/// for another address: a lock and two comparisons.
pub fn tell(heap: &Heap, addr: usize, tracer: &mut Tracer) -> bool {
    let object = find(heap, addr);
    if let Some(object) = object {
        tracer.edge(object);
    }
    object.is_some()
}

/// Returns the object that an address lies in. Spans must be retired, as they are in a collection: only then do the
/// bits show objects.
pub(crate) fn find(heap: &Heap, addr: usize) -> Option<NonNull<u8>> {
    heap.world.object_at(addr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::address::Arena;
    use crate::{Config, Finalize, Kind, Origin, Reason, Roots, World, collect};

    const fn kind(bytes: usize) -> Kind {
        Kind {
            name: || "bytes",
            bytes,
            align: 8,
            trace: None,
            trace_part: None,
            finalize: None,
            finalize_on: Finalize::Nothing,
            origin: Origin::User,
        }
    }

    static KINDS: [Kind; 6] = [
        kind(16),
        kind(104),
        kind(2048),
        kind(5000),
        kind(400_000),
        kind(3 << 20),
    ];

    #[test]
    fn every_byte_of_an_object_leads_to_it_and_no_other_byte() {
        let heap = World::new(Config::default()).heap("conservative", usize::MAX);
        for kind in &KINDS {
            // SAFETY: these objects have no contents.
            let objects: Vec<_> = (0..3)
                .map(|_| unsafe { heap.alloc(kind) }.unwrap())
                .collect();
            heap.retire();
            for object in &objects {
                let start = object.as_ptr().addr();
                let end = start + Arena::of(*object).object_bytes();
                for addr in (start..end).step_by(if kind.bytes > 2048 { 1009 } else { 1 }) {
                    assert_eq!(find(&heap, addr), Some(*object), "{} bytes", kind.bytes);
                }
                let neighbour = find(&heap, end);
                assert!(neighbour != Some(*object));
                assert!(neighbour.is_none_or(|next| objects.contains(&next)));
                let before = find(&heap, start - 1);
                assert!(before.is_none_or(|last| last != *object));
            }
        }
        assert_eq!(find(&heap, 0), None);
        assert_eq!(find(&heap, usize::MAX), None);
        assert_eq!(find(&heap, (&raw const heap).addr()), None);
    }

    struct Here<'a>(Stack, &'a Heap);

    impl Roots for Here<'_> {
        fn trace(&mut self, tracer: &mut Tracer) {
            // SAFETY: the test has one thread.
            unsafe { self.0.trace(self.1, tracer) };
        }
    }

    #[inline(never)]
    fn make(heap: &Heap, count: usize) {
        for _ in 0..count {
            // SAFETY: these objects have no contents.
            let object = unsafe { heap.alloc(&KINDS[1]) }.unwrap();
            std::hint::black_box(object);
        }
    }

    /// Writes over what earlier calls have left on the stack.
    #[inline(never)]
    fn scrub() {
        std::hint::black_box([0usize; 512]);
    }

    #[test]
    fn what_the_stack_leads_to_stays_and_the_rest_goes() {
        let heap = World::new(Config::default()).heap("conservative", usize::MAX);
        let stack = Stack::here().expect("a stack");
        make(&heap, 1000);
        // SAFETY: as above. It is kept as an address into its middle.
        let kept = unsafe { heap.alloc(&KINDS[1]) }.unwrap();
        let inside = std::hint::black_box([kept.as_ptr().addr() + 57]);
        make(&heap, 1000);
        scrub();
        // SAFETY: all that is used later is on the stack.
        unsafe { collect(&[&heap], Reason::Asked, &mut Here(stack, &heap)) }.unwrap();
        heap.check();
        let left = heap.holds().objects;
        let mut found = false;
        heap.each_object(|object, _| found |= object.as_ptr().addr() == inside[0] - 57);
        assert!(found, "the object was kept");
        assert!(
            left < 100,
            "{left} of 2001 objects: the stack does not lead to them"
        );
    }

    /// An object, as the complement of its address.
    #[inline(never)]
    fn hidden(heap: &Heap) -> usize {
        // SAFETY: as above.
        let object = unsafe { heap.alloc(&KINDS[0]) }.unwrap();
        heap.retire();
        std::hint::black_box(!object.as_ptr().addr())
    }

    #[cfg(target_arch = "x86_64")]
    /// Objects that are found with the complement of `complement` in r12, where only this function puts it.
    #[inline(never)]
    fn found_with_r12(heap: &Heap, stack: Stack, complement: usize) -> u64 {
        let mut tracer = Tracer::marking(vec![true], None);
        let trace: unsafe fn(&Stack, &Heap, &mut Tracer) = Stack::trace;
        // SAFETY: three pointers are passed as by the C rules; the stack is aligned as it was.
        unsafe {
            core::arch::asm!(
                "push r12",
                "push r12",
                "mov r12, {complement}",
                "not r12",
                "call {trace}",
                "pop r12",
                "pop r12",
                complement = in(reg) complement,
                trace = in(reg) trace,
                in("rdi") &raw const stack,
                in("rsi") &raw const *heap,
                in("rdx") &raw mut tracer,
                clobber_abi("C"),
            );
        }
        tracer.drain();
        tracer.reach(0).cells
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_are_looked_at() {
        let heap = World::new(Config::default()).heap("conservative", usize::MAX);
        let stack = Stack::here().expect("a stack");
        let complement = hidden(&heap);
        scrub();
        assert_eq!(found_with_r12(&heap, stack, usize::MAX), 0, "hidden");
        assert_eq!(
            found_with_r12(&heap, stack, complement),
            1,
            "r12 was not looked at"
        );
    }
}
