//! Probes by which a tracer outside hears of samples: `otel_memory:alloc` and `otel_memory:free`.
//!
//! ```text
//!   a sample ─► semaphore ── 0 ──► nothing            note ─► probe_alloc: nop; ret     rdi: block, rsi: bytes, rdx: bytes that
//!                         └─ a tracer is attached ──►         probe_free:  nop; ret     it stands for          rdi: block
//! ```
//!
//! T1  One site and one note for each probe, in a function of its own, with the arguments in the registers of a call: a reader
//!     of the notes need not understand where arguments are.
//! T2  The semaphores, which the tracer counts up, are 16 bits in a section that the file holds (`.probes`), not in one that is
//!     zero by promise.
//! T3  `alloc` comes before malloc returns, `free` before the block can be handed out again. A block that is resized is a
//!     `free` and an `alloc`. Bytes are at least 1: a tracer divides by them.
//!
//! The contract is that of OpenTelemetry's profiler (opentelemetry-ebpf-profiler, design document 3). On aarch64 there are none.
//!
//! Not here: what is a sample (`points`).

#[cfg(target_arch = "x86_64")]
use core::arch::global_asm;

use crate::heaps::slow::Sample;

#[cfg(target_arch = "x86_64")]
macro_rules! probe {
    ($name:literal, $arguments:literal) => {
        global_asm!(
            concat!(
                ".pushsection .text.skinflint_probe_",
                $name,
                ",\"ax\",@progbits"
            ),
            concat!(".globl skinflint_probe_", $name),
            concat!(".hidden skinflint_probe_", $name),
            concat!(".type skinflint_probe_", $name, ",@function"),
            concat!("skinflint_probe_", $name, ":"),
            ".cfi_startproc",
            "990: nop",
            // A nop of five bytes, which newer kernels make a jump.
            ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
            "ret",
            ".cfi_endproc",
            concat!(
                ".size skinflint_probe_",
                $name,
                ", . - skinflint_probe_",
                $name
            ),
            ".popsection",
            ".pushsection .probes,\"aw\",@progbits",
            ".balign 2",
            concat!(".globl skinflint_semaphore_", $name),
            concat!(".hidden skinflint_semaphore_", $name),
            concat!(".type skinflint_semaphore_", $name, ",@object"),
            concat!(".size skinflint_semaphore_", $name, ", 2"),
            concat!("skinflint_semaphore_", $name, ": .2byte 0"),
            ".popsection",
            ".pushsection .note.stapsdt,\"\",@note",
            ".balign 4",
            ".4byte 992f - 991f, 994f - 993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 990b",
            ".8byte _.stapsdt.base",
            concat!(".8byte skinflint_semaphore_", $name),
            ".asciz \"otel_memory\"",
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", $arguments, "\""),
            "994: .balign 4",
            ".popsection",
        );
    };
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    // What a tracer subtracts where the file was moved after linking.
    ".pushsection .stapsdt.base,\"aG\",@progbits,.stapsdt.base,comdat",
    ".weak _.stapsdt.base",
    ".hidden _.stapsdt.base",
    "_.stapsdt.base: .space 1",
    ".size _.stapsdt.base, 1",
    ".popsection",
);
#[cfg(target_arch = "x86_64")]
probe!("alloc", "8@%rdi 8@%rsi 8@%rdx");
#[cfg(target_arch = "x86_64")]
probe!("free", "8@%rdi");

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    static skinflint_semaphore_alloc: skinflint_base::sync::AtomicU16;
    static skinflint_semaphore_free: skinflint_base::sync::AtomicU16;
    fn skinflint_probe_alloc(block: usize, bytes: usize, stands_for: u64);
    fn skinflint_probe_free(block: usize);
}

/// Tells of a new sample. Cost while no tracer is attached: one load.
pub fn alloc(sample: &Sample) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the word above; functions that return at once, and change no register.
    unsafe {
        use skinflint_base::sync::Ordering;
        // ORDER: a switch of the tracer's.
        if skinflint_semaphore_alloc.load(Ordering::Relaxed) != 0 {
            let bytes = sample.requested.max(1);
            let stands_for = (bytes as f64 / sample.probability + 0.5) as u64;
            skinflint_probe_alloc(sample.address, bytes, stands_for);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = sample;
}

/// Tells of the end of a sample. Cost while no tracer is attached: one load.
pub fn free(sample: &Sample) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `alloc`.
    unsafe {
        use skinflint_base::sync::Ordering;
        // ORDER: as in `alloc`.
        if skinflint_semaphore_free.load(Ordering::Relaxed) != 0 {
            skinflint_probe_free(sample.address);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = sample;
}
