//! Captures in signal handlers, on every kind of stack, and at every instruction.
//!
//! ```text
//!   own stack:      … f ► <interrupted> ► restorer ► handler ► probe
//!   sigaltstack:    [handler ► probe] ── ucontext ──► … f on the own stack
//!   trap flag:      a SIGTRAP after each instruction: prologues, epilogues, PLT entries
//! ```
//!
//! The judge is the same as for walk.rs; for single steps (x86-64 only), the calls and returns that were seen. Not here: two threads of signals at once.

mod harness;

use harness::*;
use skinflint_unwind::*;
#[cfg(target_arch = "x86_64")]
use std::cell::RefCell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Mutex;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::{AtomicBool, Ordering};

/// Handlers belong to the process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

extern "C" fn handler(_: i32) {
    black_box(probe());
    black_box(nested(3));
}

#[inline(never)]
fn nested(depth: u32) -> i32 {
    if depth == 0 {
        probe()
    } else {
        nested(depth - 1) + probe()
    }
}

fn install(signal: i32, f: *const (), flags: i32) {
    // SAFETY: a zeroed action; each caller's handler takes what its flags say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = f as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

#[inline(never)]
fn raise_at(depth: u32, signal: i32) -> i32 {
    if depth == 0 {
        // SAFETY: handled.
        return unsafe { libc::raise(signal) } + probe();
    }
    let r = raise_at(depth - 1, signal);
    r + i32::from(depth.is_multiple_of(3)) * probe()
}

#[test]
fn handlers_on_the_own_stack() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    install(libc::SIGUSR1, handler as *const (), 0);
    let h = recorded(|| {
        for i in 0..300 {
            black_box(raise_at(i % 17, libc::SIGUSR1));
        }
    });
    h.expect_right();
    assert_eq!(h.ends, [End::Complete]);
    assert_eq!(h.foreign, 0);
    assert!(h.kept > 2 * h.state.stats.fresh_frames as usize);
}

/// A cut moves remembered frames, the signal's among them, whose further words are then not listed.
#[test]
fn a_handler_where_the_stack_is_cut() {
    #[inline(never)]
    fn down(depth: usize) -> i32 {
        if depth == 0 {
            // SAFETY: handled.
            unsafe { libc::raise(libc::SIGUSR1) }
        } else {
            black_box(down(depth - 1)) + 1
        }
    }
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    install(libc::SIGUSR1, handler as *const (), 0);
    let body = || {
        let h = recorded(|| {
            with(|h| h.may_truncate = true);
            // The handler's probes lie at five depths, so one depth in three crosses the limit.
            for depth in (MAX_FRAMES - 90..MAX_FRAMES).step_by(3) {
                black_box(down(depth));
            }
        });
        h.expect_right();
        assert_eq!(h.ends, [End::Complete, End::TooDeep]);
    };
    let thread = std::thread::Builder::new().stack_size(16 << 20);
    thread.spawn(body).unwrap().join().unwrap();
}

#[test]
fn handlers_on_an_alternate_stack() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    install(libc::SIGUSR2, handler as *const (), libc::SA_ONSTACK);
    std::thread::spawn(|| {
        let mut room = vec![0u64; 16 << 10];
        // SAFETY: the stack outlives the thread's signals; it is taken away below.
        unsafe {
            let mut alt: libc::stack_t = std::mem::zeroed();
            alt.ss_sp = room.as_mut_ptr().cast();
            alt.ss_size = room.len() * 8;
            assert_eq!(libc::sigaltstack(&alt, std::ptr::null_mut()), 0);
        }
        let h = recorded(|| {
            for i in 0..300 {
                black_box(raise_at(i % 17, libc::SIGUSR2));
            }
        });
        h.expect_right();
        assert_eq!(h.ends, [End::Complete]);
        assert_eq!(h.foreign, 300 * 5, "a handler probes five times");
        // SAFETY: as above.
        unsafe {
            let mut off: libc::stack_t = std::mem::zeroed();
            off.ss_flags = libc::SS_DISABLE;
            assert_eq!(libc::sigaltstack(&off, std::ptr::null_mut()), 0);
        }
    })
    .join()
    .unwrap();
}

/// Off while the test's own assembly moves the stack pointer without unwind information.
#[cfg(target_arch = "x86_64")]
static CHECKING: AtomicBool = AtomicBool::new(false);

/// The calls that single-stepping saw and that have not returned: (slot, return address).
#[cfg(target_arch = "x86_64")]
struct Shadow {
    calls: Vec<(u64, u64)>,
    last: (u64, u64),
    base: Vec<u64>,
}

#[cfg(target_arch = "x86_64")]
thread_local! {
    static SHADOW: RefCell<Option<Shadow>> = const { RefCell::new(None) };
}

#[cfg(target_arch = "x86_64")]
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes the context of the interrupted code.
    let regs = unsafe { &(*context).uc_mcontext.gregs };
    let (pc, sp) = (
        regs[libc::REG_RIP as usize] as u64,
        regs[libc::REG_RSP as usize] as u64,
    );
    black_box(bare_probe());
    SHADOW.with_borrow_mut(|s| {
        let Some(s) = s else { return };
        // SAFETY: the interrupted code's stack pointer points at its live stack.
        let top = unsafe { *(sp as *const u64) };
        let (last_pc, last_sp) = s.last;
        while s.calls.last().is_some_and(|&(slot, _)| slot < sp) {
            s.calls.pop();
        }
        if sp == last_sp - 8 && top > last_pc && top <= last_pc + 15 && pc != top {
            s.calls.push((sp, top));
        }
        s.last = (pc, sp);
        // ORDER: Relaxed: the same thread.
        if CHECKING.load(Ordering::Relaxed) {
            with(|h| judge_step(h, s, pc));
        }
    });
}

/// Checks that the frames outside of the restorer are: the pc (plus one), the calls, and the frames before.
#[cfg(target_arch = "x86_64")]
fn judge_step(h: &mut Harness, s: &mut Shadow, pc: u64) {
    let ours: Vec<u64> = h.mirror.iter().rev().copied().collect();
    let Some(at) = ours.iter().position(|&a| is_restorer(a)) else {
        return h.fault(format!("no signal frame at {pc:x}"));
    };
    let ours = &ours[at + 1..];
    let calls = s.calls.iter().rev().map(|c| c.1);
    let want: Vec<u64> = [pc + 1]
        .into_iter()
        .chain(calls)
        .chain(s.base.iter().copied())
        .collect();
    let truncated = h.end != End::Complete;
    let right = if truncated {
        want.starts_with(ours)
    } else {
        ours == want
    };
    if !right {
        h.fault(format!("at {pc:x}: {ours:x?}, stepped: {want:x?}"));
    }
}

/// Switches single-stepping on or off for the instructions that follow.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn trap_flag(on: bool) {
    // SAFETY: changes only the trap flag, with a handler installed; the red zone is skipped.
    unsafe {
        if on {
            core::arch::asm!(
                "sub rsp, 128",
                "pushfq",
                "or qword ptr [rsp], 0x100",
                "popfq",
                "add rsp, 128"
            );
        } else {
            core::arch::asm!(
                "sub rsp, 128",
                "pushfq",
                "and qword ptr [rsp], -257",
                "popfq",
                "add rsp, 128"
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
extern "C" fn no_probe() -> i32 {
    1
}

#[cfg(target_arch = "x86_64")]
#[test]
fn at_every_instruction() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    install(libc::SIGTRAP, on_trap as *const (), libc::SA_SIGINFO);
    let shapes = Shapes::load("stepped");
    // The probe is in the handler; one within the code would recurse.
    shapes.set_probe(no_probe);
    let stepped = shapes.text(c"stepped");
    let h = recorded(|| {
        for pass in 0..2 {
            probe();
            let mut base = vec![];
            with(|h| base = h.mirror.iter().rev().skip(1).copied().collect());
            SHADOW.set(Some(Shadow {
                calls: vec![],
                last: (0, 1 << 60),
                base,
            }));
            with(|h| (h.captures, h.truncated) = (0, 0));
            trap_flag(true);
            // ORDER: Relaxed: the same thread.
            CHECKING.store(true, Ordering::Relaxed);
            let r = stepped(c"12345".as_ptr());
            // ORDER: Relaxed: the same thread.
            CHECKING.store(false, Ordering::Relaxed);
            trap_flag(false);
            black_box(r);
            with(|h| {
                println!(
                    "pass {pass}: {} instructions, {} cut",
                    h.captures, h.truncated
                )
            });
        }
    });
    h.expect_right();
    // In the first pass the dynamic linker binds symbols, below a frame with its CFA in rbx: it is not
    // followed while no frame further in has saved rbx yet. In the second pass only the CFA in r10 at the
    // start of realigned functions is not followed.
    assert!(h.captures > 300, "{}", h.captures);
    assert!(
        h.truncated * 10 < h.captures,
        "{} of {}",
        h.truncated,
        h.captures
    );
}

#[test]
fn a_fibre_is_foreign_and_its_end_is_found() {
    static mut MAIN: MaybeUninit<libc::ucontext_t> = MaybeUninit::zeroed();
    static mut FIBRE: MaybeUninit<libc::ucontext_t> = MaybeUninit::zeroed();
    extern "C" fn body() {
        black_box(nested(10));
    }
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let mut room = vec![0u64; 8 << 10];
    let h = recorded(|| {
        with(|h| h.may_truncate = true);
        black_box(nested(5));
        // SAFETY: one thread at a time uses the contexts (ONE); the stack outlives the fibre.
        unsafe {
            let main = (&raw mut MAIN).cast::<libc::ucontext_t>();
            let fibre = (&raw mut FIBRE).cast::<libc::ucontext_t>();
            assert_eq!(libc::getcontext(fibre), 0);
            (*fibre).uc_stack.ss_sp = room.as_mut_ptr().cast();
            (*fibre).uc_stack.ss_size = room.len() * 8;
            (*fibre).uc_link = main;
            libc::makecontext(fibre, body, 0);
            assert_eq!(libc::swapcontext(main, fibre), 0);
        }
        black_box(nested(5));
    });
    h.expect_right();
    assert_eq!(h.foreign, 11);
    // The fibre ends at a return address that has no unwind information less one: no guess.
    assert_eq!(h.ends, [End::Complete, End::NoInfo]);
}

/// What is kept depends on every word: if a word that holds a return address changes, nothing further
/// in than its frame may be kept.
#[test]
fn a_changed_word_is_noticed() {
    #[inline(never)]
    fn at_depth(depth: u32) -> i32 {
        if depth == 0 {
            acting_probe()
        } else {
            at_depth(depth - 1) + 1
        }
    }
    assert_eq!(
        at_depth(12),
        12 + 13,
        "recursions, and slots that were tried"
    );
}

#[unsafe(naked)]
extern "C" fn acting_probe() -> i32 {
    with_registers!("rdi", "rsi", change_each_word)
}

extern "C" fn change_each_word(sp: u64, bp: u64) -> i32 {
    let mut state = zeroed_state();
    let bounds = own_stack();
    let mut take = || {
        // SAFETY: this thread's own stack from a live frame; the state is this test's.
        let c = unsafe { capture(&RULES, &FINDER, &mut state, bounds, Registers { sp, bp }) };
        (c.keep, c.fresh.iter().collect::<Vec<u64>>())
    };
    let (_, all) = take();
    let n = all.len();
    // SAFETY: the slot of our own return address, into the recursion.
    let innermost = unsafe { *(sp as *const u64) };
    let recursion = all[n - 2];
    let mut tried = 0;
    // The slots of the recursion's 13 frames, innermost first: words that hold its addresses.
    for at in (sp..bounds.hi - 8).step_by(8).take(400) {
        // SAFETY: within the live frames of this thread; put back below.
        let word = unsafe { (at as *const u64).read_volatile() };
        if word != innermost && word != recursion {
            continue;
        }
        assert_eq!(take(), (n, vec![]), "an unchanged stack is kept whole");
        // SAFETY: as above; nothing returns through the slot while it is changed. One byte further
        // is still the same function, so the walk goes on as before.
        unsafe { (at as *mut u64).write_volatile(word + 1) };
        let (keep, fresh) = take();
        // SAFETY: as above.
        unsafe { (at as *mut u64).write_volatile(word) };
        // Frame `tried` from the inside is all[n - 1 - tried]: kept are those outside of it.
        let mut want = all[n - 1 - tried..].to_vec();
        want[0] = word + 1;
        assert_eq!((keep, fresh), (n - 1 - tried, want), "slot {at:x}");
        take();
        tried += 1;
    }
    tried as i32
}

extern "C" fn change_context(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes the context of the interrupted code, on this stack.
    let context = unsafe { &mut (*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let registers = [libc::REG_RBP, libc::REG_RSP, libc::REG_RIP].map(|register| {
        let at = &raw mut context.gregs[register as usize];
        at.cast::<u64>()
    });
    #[cfg(target_arch = "aarch64")]
    // No frame outside depends on x29, and what is kept was walked again.
    let registers = [&raw mut context.sp, &raw mut context.pc];
    for (register, at) in registers.into_iter().enumerate() {
        bare_probe();
        let mut outside = 0;
        with(|h| {
            let inner = h.mirror.iter().rev().position(|&a| is_restorer(a)).unwrap() + 2;
            outside = h.mirror.len() - inner;
            h.kept = 0;
        });
        // SAFETY: a register of the context, put back before the handler returns.
        unsafe { *at ^= 8 };
        bare_probe();
        // SAFETY: as above.
        unsafe { *at ^= 8 };
        with(|h| {
            if h.kept > outside {
                h.fault(format!(
                    "register {register}: kept {}, outside {outside}",
                    h.kept
                ));
            }
        });
    }
}

/// The words that a signal frame reads beside the link are verified too.
#[test]
fn a_changed_context_is_noticed() {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    install(libc::SIGUSR1, change_context as *const (), libc::SA_SIGINFO);
    let h = recorded(|| {
        black_box(raise_at(7, libc::SIGUSR1));
    });
    h.expect_right();
}
