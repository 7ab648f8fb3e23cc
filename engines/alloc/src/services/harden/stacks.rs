//! Call stacks of allocations and frees, and their text.
//!
//! ```text
//!   capture ──► unwind, every word through the kernel ──► up to 24 return addresses
//!   tell ──► loader's list of modules ──► "#0 /usr/bin/app+0x11a9" ──► the story
//! ```
//!
//! K1  One capture at a time; a thread that comes second goes without a stack, rather than wait: the capturing thread
//!     may be in the loader.
//! K2  The meaning of a pc is looked up anew each time, since modules come and go without notice.
//! K3  Nothing here allocates. The text is put together in one place of our own, one at a time (`story`).
//!
//! Not here: symbols. Offsets are what `addr2line -e MODULE` takes.

use core::ffi::{CStr, c_int, c_void};

use skinflint_base::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use skinflint_base::sys;
use skinflint_unwind::{Finder, Registers, RuleCache, StackBounds, StackState, capture};

use super::guard;
use super::story::Story;
use crate::mechanism::guarded::Guarded;
use crate::mechanism::publish::Gate;

/// The most return addresses that are kept of a stack.
const DEPTH: usize = 24;
/// The most frames of ours that may come first.
const OWN_FRAMES: usize = 12;
/// Our library, whose frames are left out.
const OWN_NAME: &[u8] = b"libskinflint.so";

/// A stack, as far as it is kept.
pub struct Stack {
    thread: AtomicU32,
    count: AtomicU32,
    frames: [AtomicUsize; DEPTH],
}

/// Written at start by the only thread there is, read under BUSY.
// SAFETY: no function at all, until `begin`.
static FINDER: Guarded<Finder> = Guarded::new(unsafe { Finder::new(None) });

/// The unwinder's state and rules, both in memory that is zero: their empty state.
static STATE: AtomicPtr<StackState> = AtomicPtr::new(core::ptr::null_mut());
static RULES: AtomicPtr<RuleCache> = AtomicPtr::new(core::ptr::null_mut());
/// Set during a capture (K1).
static BUSY: Gate = Gate::new();
/// The range of our library, if the engine is in one: start and bytes.
static OWN: (AtomicUsize, AtomicUsize) = (AtomicUsize::new(0), AtomicUsize::new(0));

/// Makes the memory for captures. `false`: the OS refuses.
pub fn begin() -> bool {
    // Address space, touched as deep as stacks go.
    let state = sys::map_private(size_of::<StackState>());
    let rules = sys::map_private(size_of::<RuleCache>());
    if state.is_null() || rules.is_null() {
        return false;
    }
    STATE.store(state.cast(), Ordering::Relaxed); // ORDER: one thread (harden.Y2)
    RULES.store(rules.cast(), Ordering::Relaxed); // ORDER: as above
    // SAFETY: as above.
    unsafe { *FINDER.get() = Finder::resolve() };
    let (start, bytes) = own_code();
    OWN.0.store(start, Ordering::Relaxed); // ORDER: as above
    OWN.1.store(bytes, Ordering::Relaxed); // ORDER: as above
    true
}

/// Returns the range of our library's code, start and bytes; none if the engine is part of the program itself.
pub fn own_code() -> (usize, usize) {
    let mut own = Module::of(begin as *const () as usize);
    own.search();
    if own.name().ends_with(OWN_NAME) {
        (own.start, own.end - own.start)
    } else {
        (0, 0)
    }
}

/// Opens the gate in the child of a fork: the thread that was inside is gone.
pub fn forget() {
    BUSY.reset();
}

fn is_own(pc: usize) -> bool {
    // ORDER: set at start.
    let start = OWN.0.load(Ordering::Relaxed);
    pc.wrapping_sub(start) < OWN.1.load(Ordering::Relaxed) // ORDER: as above
}

impl Stack {
    /// Creates an empty stack.
    pub const fn new() -> Stack {
        Stack {
            thread: AtomicU32::new(0),
            count: AtomicU32::new(0),
            frames: [const { AtomicUsize::new(0) }; DEPTH],
        }
    }

    /// Forgets the stack.
    pub fn clear(&self) {
        self.thread.store(0, Ordering::Relaxed); // ORDER: the slot's holder calls (sampled.S2)
        self.count.store(0, Ordering::Relaxed); // ORDER: as above
    }

    /// Keeps the running thread's stack. Cost: about 20 µs.
    pub fn capture(&self) {
        self.clear();
        self.thread.store(sys::gettid(), Ordering::Relaxed); // ORDER: as in `clear`
        if BUSY.enter() {
            // SAFETY: BUSY is ours; the function only reads this thread's stack.
            unsafe { capture_here(self) };
            BUSY.leave();
        }
    }

    /// Adds the thread and its stack to the story, after the words `who`; nothing if there is no stack.
    pub fn tell(&self, story: &mut Story, who: &[u8]) {
        // ORDER: see sampled.S2.
        let thread = self.thread.load(Ordering::Relaxed);
        if thread == 0 {
            return;
        }
        story.add(who);
        story.add_number(u64::from(thread));
        story.add(b"\n");
        // ORDER: as above.
        let count = self.count.load(Ordering::Relaxed).min(DEPTH as u32);
        for (i, frame) in self.frames.iter().take(count as usize).enumerate() {
            story.add(b"    #");
            story.add_number(i as u64);
            story.add(b" ");
            tell_pc(story, frame.load(Ordering::Relaxed)); // ORDER: as above
            story.add(b"\n");
        }
        if count == 0 {
            story.add(b"    (another stack was being taken)\n");
        }
    }
}

/// Calls [`keep`] with the registers of this call, whose frame stays until it returns.
///
/// # Safety
/// BUSY is the caller's.
#[unsafe(naked)]
unsafe extern "C" fn capture_here(into: &Stack) {
    skinflint_unwind::with_registers!("rsi", "rdx", keep)
}

/// Keeps the stack whose innermost return address is at `sp`.
///
/// # Safety
/// BUSY is the caller's; `sp` and `bp` are this thread's.
unsafe extern "C" fn keep(into: &Stack, sp: u64, bp: u64) {
    // ORDER: set at start, then under BUSY.
    let (state, rules) = (
        STATE.load(Ordering::Relaxed),
        RULES.load(Ordering::Relaxed), // ORDER: as above
    );
    // K2: dropped pages are the empty state again, which is cheaper than filling all of them.
    let (from, bytes) = skinflint_base::page::around(rules as usize, size_of::<RuleCache>());
    guard::drop_pages(from, bytes);
    // No bounds: every word is read through the kernel, which returns an error where a fault would end the process.
    let bounds = StackBounds { lo: 0, hi: 0 };
    // SAFETY: BUSY is held; the memory is zero or was filled by `capture`.
    let taken = unsafe {
        capture(
            &*rules,
            &*FINDER.get(),
            &mut *state,
            bounds,
            Registers { sp, bp },
        )
    };
    // Innermost first, without frames of ours.
    let mut own = OWN_FRAMES;
    let frames = taken.fresh.iter().rev().skip_while(|&pc| {
        own = own.saturating_sub(1);
        own > 0 && is_own(pc as usize)
    });
    let mut count = 0;
    for (to, pc) in into.frames.iter().zip(frames) {
        to.store(pc as usize, Ordering::Relaxed); // ORDER: see sampled.S2
        count += 1;
    }
    into.count.store(count, Ordering::Relaxed); // ORDER: as above
}

/// A module of the process, and its addresses.
struct Module {
    pc: usize,
    bias: usize,
    start: usize,
    end: usize,
    name: *const libc::c_char,
}

impl Module {
    fn of(pc: usize) -> Module {
        Module {
            pc,
            bias: 0,
            start: 0,
            end: 0,
            name: core::ptr::null(),
        }
    }

    /// Asks the loader for the module of the pc.
    fn search(&mut self) {
        // SAFETY: the callback gets the module, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut *self).cast()) };
    }

    fn name(&self) -> &[u8] {
        if self.name.is_null() {
            return b"";
        }
        // SAFETY: the loader's string, of a module that is being executed.
        unsafe { CStr::from_ptr(self.name) }.to_bytes()
    }
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _: libc::size_t,
    to: *mut c_void,
) -> c_int {
    // SAFETY: as `dl_iterate_phdr` promises, and `Module::search`.
    let (info, module) = unsafe { (&*info, &mut *to.cast::<Module>()) };
    for i in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the loader's array has this many entries.
        let part = unsafe { &*info.dlpi_phdr.add(i) };
        let start = info.dlpi_addr as usize + part.p_vaddr as usize;
        if part.p_type == libc::PT_LOAD && module.pc.wrapping_sub(start) < part.p_memsz as usize {
            module.bias = info.dlpi_addr as usize;
            module.start = start;
            module.end = start + part.p_memsz as usize;
            module.name = info.dlpi_name;
            return 1;
        }
    }
    0
}

/// Adds the module of a return address, and the offset of the call in it.
fn tell_pc(story: &mut Story, pc: usize) {
    let call = pc - 1;
    let mut module = Module::of(call);
    module.search();
    if module.end == 0 {
        return story.add_hex(call);
    }
    if module.name().is_empty() {
        add_program(story);
    } else {
        story.add(module.name());
    }
    story.add(b"+");
    story.add_hex(call - module.bias);
}

/// Adds the program's path: the loader has no name for it.
fn add_program(story: &mut Story) {
    let mut path = [0u8; 512];
    let length = sys::read_link(c"/proc/self/exe", &mut path);
    match path.get(..length.max(0) as usize) {
        Some(name) if !name.is_empty() => story.add(name),
        _ => story.add(b"(program)"),
    }
}
