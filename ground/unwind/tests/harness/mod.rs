//! What the tests of whole stacks share: a probe that captures and asks a judge.
//!
//! ```text
//!   program under test ──► probe (naked: sp, rbp at entry) ──► judge_probe
//!                                         capture ► keep + fresh onto `mirror` ══ backtrace()
//! ```
//!
//! H1  The judge, glibc's `backtrace()`, knows nothing of us and remembers nothing.
//! H2  `mirror` is built from `keep` and `fresh` only, as a recorder's collector would.

#![allow(dead_code)] // each test program uses a part

use skinflint_unwind::*;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// One thread's recorder.
pub struct Harness {
    pub state: Box<StackState>,
    pub bounds: StackBounds,
    /// The stack as the deltas say, outermost first.
    pub mirror: Vec<u64>,
    pub judge: Vec<*mut c_void>,
    pub captures: usize,
    pub kept: usize,
    /// Every end of a stack so far.
    pub ends: Vec<End>,
    /// The end of the last stack.
    pub end: End,
    pub foreign: usize,
    /// Whether to accept a stack that ends early, as long as it is right as far as it goes.
    pub may_truncate: bool,
    pub truncated: usize,
    pub errors: Vec<String>,
}

pub static RULES: RuleCache = RuleCache::new();
pub static FINDER: LazyLock<Finder> = LazyLock::new(Finder::resolve);

thread_local! {
    pub static HARNESS: RefCell<Option<Harness>> = const { RefCell::new(None) };
}

/// Returns the bounds of this thread's stack.
pub fn own_stack() -> StackBounds {
    // SAFETY: plain pthread calls on local variables.
    unsafe {
        let mut attr: libc::pthread_attr_t = std::mem::zeroed();
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attr), 0);
        let (mut at, mut size) = (std::ptr::null_mut(), 0);
        assert_eq!(libc::pthread_attr_getstack(&attr, &mut at, &mut size), 0);
        libc::pthread_attr_destroy(&mut attr);
        StackBounds {
            lo: at as u64,
            hi: at as u64 + size as u64,
        }
    }
}

pub fn zeroed_state() -> Box<StackState> {
    let layout = std::alloc::Layout::new::<StackState>();
    // SAFETY: all-zero memory is a valid state (unwind.U4).
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
}

/// Runs `body` with a new recorder on this thread and returns the recorder.
pub fn recorded(body: impl FnOnce()) -> Harness {
    LazyLock::force(&FINDER);
    let mut judge = vec![std::ptr::null_mut(); 30_000];
    // SAFETY: the buffer is as long as said. The first call loads libgcc: not within a probe.
    unsafe { libc::backtrace(judge.as_mut_ptr(), 16) };
    let harness = Harness {
        state: zeroed_state(),
        bounds: own_stack(),
        mirror: Vec::with_capacity(MAX_FRAMES),
        judge,
        captures: 0,
        kept: 0,
        ends: vec![],
        end: End::Complete,
        foreign: 0,
        may_truncate: false,
        truncated: 0,
        errors: vec![],
    };
    HARNESS.set(Some(harness));
    body();
    HARNESS.take().unwrap()
}

/// Changes the recorder of this thread.
pub fn with(change: impl FnOnce(&mut Harness)) {
    HARNESS.with_borrow_mut(|h| change(h.as_mut().unwrap()));
}

/// Captures and compares, from its caller's frame. Takes the registers as a recorder's exported function does.
#[unsafe(naked)]
pub extern "C" fn probe() -> i32 {
    with_registers!("rdi", "rsi", judge_probe)
}

#[inline(never)]
extern "C" fn judge_probe(sp: u64, bp: u64) -> i32 {
    HARNESS.with_borrow_mut(|h| {
        let Some(h) = h else { return };
        let max = h.judge.len() as i32;
        // SAFETY: the buffer is as long as said.
        let n = unsafe { libc::backtrace(h.judge.as_mut_ptr(), max) } as usize;
        h.check(Registers { sp, bp }, n);
    });
    1
}

/// Captures, and leaves the comparison to the caller: glibc's unwinder, interrupted at arbitrary
/// instructions, follows wild pointers itself (seen in glibc 2.36 with libgcc of GCC 12).
#[unsafe(naked)]
pub extern "C" fn bare_probe() -> i32 {
    with_registers!("rdi", "rsi", capture_only)
}

extern "C" fn capture_only(sp: u64, bp: u64) -> i32 {
    with(|h| _ = h.capture(Registers { sp, bp }));
    1
}

/// Takes new frames onto a stack.
struct Taken<'a> {
    stack: &'a mut Vec<u64>,
    refuses: bool,
    /// What was announced: the frames kept, all frames, whether the stack is foreign, the end.
    taken: Option<(usize, usize, bool, End)>,
}

impl Sink for Taken<'_> {
    fn takes(&mut self, keep: usize, fresh: usize, end: End) -> bool {
        if self.refuses {
            return false;
        }
        keep_of(self.stack, keep);
        self.taken = Some((keep, keep + fresh, false, end));
        true
    }

    unsafe fn put(&mut self, ra: u64) {
        self.stack.push(ra);
    }

    fn take_whole(&mut self, captured: Capture<'_>) {
        keep_of(self.stack, captured.keep);
        self.stack.extend(captured.fresh.iter());
        let of_all = captured.keep + captured.fresh.len();
        assert_eq!(captured.total, of_all);
        self.taken = Some((captured.keep, of_all, captured.foreign, captured.end));
    }
}

fn keep_of(stack: &mut Vec<u64>, keep: usize) {
    assert!(keep <= stack.len(), "keeps what was never reported");
    stack.truncate(keep);
}

impl Harness {
    /// Captures onto `mirror`.
    fn capture(&mut self, start: Registers) -> End {
        self.captures += 1;
        let mut sink = Taken {
            stack: &mut self.mirror,
            // Every third is refused, so that both ways of a common stack are taken.
            refuses: self.captures.is_multiple_of(3),
            taken: None,
        };
        let (state, bounds) = (&mut self.state, self.bounds);
        // SAFETY: registers of our own entry, this thread's bounds and state.
        unsafe { capture_to(&RULES, &FINDER, state, bounds, start, &mut sink) };
        let (keep, total, foreign, end) = sink.taken.expect("a capture is given to the sink");
        assert_eq!(self.mirror.len(), total, "as many come as were announced");
        self.kept += keep;
        self.foreign += usize::from(foreign);
        self.end = end;
        if !self.ends.contains(&end) {
            self.ends.push(end);
        }
        self.truncated += usize::from(end != End::Complete);
        end
    }

    fn check(&mut self, start: Registers, judged: usize) {
        let end = self.capture(start);
        // The judge starts inside the probe: find our innermost frame in its first few.
        // SAFETY: the slot of our own return address.
        let ra = unsafe { *(start.sp as *const u64) };
        let judge: Vec<u64> = self.judge[..judged].iter().map(|&p| p as u64).collect();
        let Some(first) = judge.iter().take(12).position(|&a| a == ra) else {
            self.errors
                .push(format!("the judge does not know the caller {ra:x}"));
            return;
        };
        self.compare(&judge[first..], end);
    }

    fn compare(&mut self, judge: &[u64], end: End) {
        let ours: Vec<u64> = self.mirror.iter().rev().copied().collect();
        let mut interrupted = false;
        for (i, &a) in ours.iter().enumerate() {
            let b = judge.get(i).copied().unwrap_or(0);
            if a != b + u64::from(interrupted) {
                self.fault(format!(
                    "frame {i} of {}: {a:x}, judge {b:x}, {end:?}",
                    ours.len()
                ));
                return;
            }
            interrupted = is_restorer(b);
        }
        if ours.len() != judge.len() && !(self.may_truncate && end != End::Complete) {
            self.fault(format!(
                "{} frames, judge {}, {end:?}",
                ours.len(),
                judge.len()
            ));
        }
    }

    pub fn fault(&mut self, text: String) {
        if self.errors.len() < 20 {
            self.errors
                .push(format!("capture {}: {text}", self.captures));
        }
    }

    /// Panics with the faults that were noted, if there are any.
    pub fn expect_right(&self) {
        assert!(self.captures > 0, "nothing was captured");
        assert!(self.errors.is_empty(), "{:#?}", self.errors);
    }
}

/// Returns whether the code is at the address that a signal handler returns to: the whole of it.
pub fn is_restorer(pc: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 5];
    #[cfg(target_arch = "aarch64")]
    const CODE: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4];
    // SAFETY: a return address of a live frame: its code is mapped, nine bytes within a page or
    // followed by more code (the restorer is never last in its section).
    pc > 4096 && unsafe { std::ptr::read_unaligned(pc as *const [u8; CODE.len()]) } == CODE
}

/// Returns what a C compiler is told where SKINFLINT_TEST_BRANCH_PROTECTION asks for it: signed return addresses.
fn branch_protection() -> Option<String> {
    let kind = std::env::var("SKINFLINT_TEST_BRANCH_PROTECTION").ok()?;
    Some(format!("-mbranch-protection={kind}"))
}

/// The C functions of shapes.c.
pub struct Shapes {
    handle: *mut c_void,
}

impl Shapes {
    /// Compiles shapes.c under a name of its own and loads it, lazily bound.
    pub fn load(name: &str) -> Shapes {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shapes.c");
        let out = dir.join(format!("{name}.so"));
        let done = Command::new(if cfg!(target_arch = "aarch64") {
            "aarch64-linux-gnu-gcc"
        } else {
            "cc"
        })
        .args(branch_protection())
        .args([
            "-O2",
            "-fomit-frame-pointer",
            "-shared",
            "-fPIC",
            "-Wl,-z,lazy",
            "-o",
        ])
        .arg(&out)
        .arg(source)
        .status()
        .expect("the tests need a C compiler as `cc`");
        assert!(done.success(), "cc failed on shapes.c");
        let path = CString::new(out.to_str().unwrap()).unwrap();
        // SAFETY: loads our own object.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        assert!(!handle.is_null(), "dlopen of {out:?} failed");
        let shapes = Shapes { handle };
        shapes.set_probe(probe);
        shapes
    }

    /// Sets the function that the C functions call to capture.
    pub fn set_probe(&self, f: extern "C" fn() -> i32) {
        // SAFETY: `probe` of shapes.c is a pointer to such a function.
        unsafe { *self.symbol(c"probe").cast::<extern "C" fn() -> i32>() = f };
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a live handle and a terminated name.
        let found = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!found.is_null(), "no {name:?} in shapes.c");
        found
    }

    pub fn two(&self, name: &CStr) -> extern "C" fn(i32, u32) -> i32 {
        // SAFETY: named by the caller as a function of this type in shapes.c.
        unsafe { std::mem::transmute(self.symbol(name)) }
    }

    pub fn one(&self, name: &CStr) -> extern "C" fn(i32) -> i32 {
        // SAFETY: named by the caller as a function of this type in shapes.c.
        unsafe { std::mem::transmute(self.symbol(name)) }
    }

    pub fn text(&self, name: &CStr) -> extern "C" fn(*const i8) -> i32 {
        // SAFETY: named by the caller as a function of this type in shapes.c.
        unsafe { std::mem::transmute(self.symbol(name)) }
    }

    pub fn unload(self) {
        // SAFETY: nothing of the object is used after this.
        assert_eq!(unsafe { libc::dlclose(self.handle) }, 0);
    }
}
