//! The stack of a sample: the running thread's, from the caller of malloc outwards.
//!
//! ```text
//!   capture ─► a free state of STATES ─► unwind: loads within the thread's own stack, else through the kernel ─► frames
//! ```
//!
//! K1  A state is used by one thread at a time, and no thread waits for one: when all are in use the sample has no stack.
//! K2  The bounds of a thread's stack are those that the kernel tells, asked once by each thread; the first thread's are the
//!     loader's word and the most that it may grow. Where they are not to be had each word is read through the kernel.
//! K3  A rule that was made for a module stays after `dlclose`. What is read by it is read as carefully, and a sample that
//!     is taken in the next module at that address may have a wrong stack.
//!
//! Not here: unwinding (`skinflint_unwind`), names.

use skinflint_base::sync::{AtomicPtr, AtomicUsize, Ordering};
use skinflint_base::{arch, stack, sys};
use skinflint_unwind::{Finder, Registers, RuleCache, StackBounds, StackState, capture};

use crate::heaps::tls;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::heap::Heap;
use crate::mechanism::publish::Gate;
use crate::services::harden::own_code;

/// The most return addresses that are kept of a stack, from the innermost on.
pub const DEPTH: usize = 128;
/// The most frames of ours that may come first.
const OWN_FRAMES: usize = 12;
/// Threads that may walk their stacks at a time. A walk takes some microseconds, a thread's samples lie hundreds apart.
const STATES: usize = 8;

/// Return addresses, innermost first.
pub struct Frames {
    of: [usize; DEPTH],
    count: usize,
}

/// A state of the unwinder, in memory that is zero: its empty state.
struct State {
    gate: Gate,
    memory: AtomicPtr<StackState>,
}

static ALL: [State; STATES] = [const {
    State {
        gate: Gate::new(),
        memory: AtomicPtr::new(core::ptr::null_mut()),
    }
}; STATES];
static RULES: AtomicPtr<RuleCache> = AtomicPtr::new(core::ptr::null_mut());
/// Written under the profile's lock, before the first sample.
// SAFETY: no function at all, until `begin`.
static FINDER: Guarded<Finder> = Guarded::new(unsafe { Finder::new(None) });
/// The range of our library, if the engine is in one: start and bytes.
static OWN: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// Where the loader keeps the end of the first thread's stack; null: it does not.
static STACK_END: AtomicPtr<usize> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the memory for captures. `false`: the OS refuses. The profile's lock is held, and no sample was taken.
pub fn begin() -> bool {
    // Address space, touched as deep as stacks go.
    let rules = sys::map_private(size_of::<RuleCache>());
    if rules.is_null() {
        return false;
    }
    for state in &ALL {
        let memory = sys::map_private(size_of::<StackState>());
        if memory.is_null() {
            return false;
        }
        state.memory.store(memory.cast(), Ordering::Relaxed); // ORDER: before the switch; the gate orders
    }
    RULES.store(rules.cast(), Ordering::Relaxed); // ORDER: as above
    // SAFETY: as the caller promises.
    unsafe { *FINDER.get() = Finder::resolve() };
    // SAFETY: the name is terminated, and RTLD_DEFAULT needs no handle.
    let end = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_stack_end".as_ptr()) };
    STACK_END.store(end.cast(), Ordering::Relaxed); // ORDER: as above
    let (start, bytes) = own_code();
    OWN[0].store(start, Ordering::Relaxed); // ORDER: as above
    OWN[1].store(bytes, Ordering::Relaxed); // ORDER: as above
    true
}

/// Frees the states in the child of a fork: the threads that used them are gone.
pub fn forget() {
    for state in &ALL {
        state.gate.reset();
    }
}

impl Frames {
    /// Creates an empty stack.
    pub fn new() -> Frames {
        Frames {
            of: [0; DEPTH],
            count: 0,
        }
    }

    /// Returns the return addresses, innermost first.
    pub fn all(&self) -> &[usize] {
        self.of.get(..self.count).unwrap_or(&[])
    }

    /// Takes the running thread's stack; none if K1 says so. Cost: some 100 instructions and 80 a frame; the first time in a
    /// thread three system calls.
    pub fn capture(&mut self) {
        let begin = arch::thread_pointer() >> 12;
        for at in 0..STATES {
            let Some(state) = ALL.get((begin + at) % STATES) else {
                break;
            };
            if state.gate.enter() {
                // SAFETY: the state is this call's; the function only reads this thread's stack.
                unsafe { capture_here(self, state) };
                state.gate.leave();
                break;
            }
        }
    }
}

/// Calls [`keep`] with the registers of this call, whose frame stays until it returns.
///
/// # Safety
/// The state's gate is the caller's.
#[unsafe(naked)]
unsafe extern "C" fn capture_here(into: &mut Frames, state: &State) {
    skinflint_unwind::with_registers!("rdx", "rcx", keep)
}

/// Keeps the stack whose innermost return address is at `sp`.
///
/// # Safety
/// The state's gate is the caller's; `sp` and `bp` are this thread's.
unsafe extern "C" fn keep(into: &mut Frames, state: &State, sp: u64, bp: u64) {
    // ORDER: set before the first sample; the switch is looked at after it.
    let rules = RULES.load(Ordering::Relaxed);
    let memory = state.memory.load(Ordering::Relaxed); // ORDER: as above
    if rules.is_null() || memory.is_null() {
        return;
    }
    let (lo, hi) = bounds();
    // SAFETY: the gate is held; the memory is zero or was filled by `capture`; the bounds are this thread's (K2).
    let taken = unsafe {
        capture(
            &*rules,
            &*FINDER.get(),
            &mut *memory,
            StackBounds { lo, hi },
            Registers { sp, bp },
        )
    };
    // ORDER: as above.
    let (start, bytes) = (
        OWN[0].load(Ordering::Relaxed),
        OWN[1].load(Ordering::Relaxed), // ORDER: as above
    );
    let mut own = OWN_FRAMES;
    let frames = taken.all.iter().rev().skip_while(|&pc| {
        own = own.saturating_sub(1);
        own > 0 && (pc as usize).wrapping_sub(start) < bytes
    });
    for (to, pc) in into.of.iter_mut().zip(frames) {
        *to = pc as usize;
        into.count += 1;
    }
}

/// Returns the bounds of this thread's stack, which its heap remembers; (0, 0): they are not known (K2).
fn bounds() -> (u64, u64) {
    let heap = tls::get();
    if heap.is_null() || tls::is_ended(heap) {
        return (0, 0);
    }
    // SAFETY: a thread's heap stays (pool.G4).
    let heap: &Heap = unsafe { &*heap };
    let thread = sys::gettid();
    // ORDER: this thread's own (heap.H1), throughout: the id says whose they are.
    if heap.stack_of.load(Ordering::Relaxed) != thread {
        let (lo, hi) = ask(thread);
        heap.stack_bounds[0].store(lo, Ordering::Relaxed); // ORDER: as above
        heap.stack_bounds[1].store(hi, Ordering::Relaxed); // ORDER: as above
        heap.stack_of.store(thread, Ordering::Relaxed); // ORDER: as above
    }
    (
        heap.stack_bounds[0].load(Ordering::Relaxed), // ORDER: as above
        heap.stack_bounds[1].load(Ordering::Relaxed), // ORDER: as above
    )
}

/// Asks for the bounds of this thread's stack.
fn ask(thread: u32) -> (u64, u64) {
    if thread == sys::getpid() {
        // ORDER: set before the first sample.
        let end = STACK_END.load(Ordering::Relaxed);
        // SAFETY: the loader's own word, written before anything ran.
        let end = if end.is_null() { 0 } else { unsafe { *end } } as u64;
        return (end.saturating_sub(stack::first_thread_limit()), end);
    }
    let own = arch::thread_pointer() as u64;
    match stack::mapping_around(arch::stack_pointer() as u64) {
        // glibc puts the thread's descriptor at the top of its stack.
        Some((low, high)) if low < own && own <= high => (low, own),
        _ => (0, 0),
    }
}
