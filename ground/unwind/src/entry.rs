//! The body of a function that hands the registers of its entry on: what a capture begins with.
//!
//! ```text
//!   x86-64    sp ─► return address of the caller          jump to the target, which returns to the caller
//!   aarch64   sp ─► x29 │ x30 (pushed here) │ caller's frame       call of the target, then return
//!              sp + 8 ──────┘
//! ```
//!
//! T1  On both, the word at `Registers::sp` holds the return address, and the caller's frame begins 8 bytes above it.
//! T2  Arguments of the function that the two registers do not replace reach the target as they were.
//!
//! Not here: functions with more arguments than registers (the recorder's mapping calls).

/// The body of a naked function that goes on to `$target` with the stack pointer and the frame pointer of its entry in two
/// registers (T1, T2), which are named as on x86-64: `"rdi"` is the first argument on every processor.
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! with_registers {
    ($sp:tt, $bp:tt, $target:path) => {
        core::arch::naked_asm!(
            concat!("mov ", $sp, ", rsp"),
            concat!("mov ", $bp, ", rbp"),
            "jmp {target}",
            target = sym $target,
        )
    };
}

/// The body of a naked function that goes on to `$target` with the stack pointer and the frame pointer of its entry in two
/// registers (T1, T2), which are named as on x86-64: `"rdi"` is the first argument on every processor.
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! with_registers {
    ($sp:tt, $bp:tt, $target:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            concat!("add ", $crate::argument!($sp), ", sp, #8"),
            concat!("mov ", $crate::argument!($bp), ", x29"),
            "bl {target}",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa_offset 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            target = sym $target,
        )
    };
}

/// Returns the register that an argument is in, by its name on x86-64.
#[cfg(target_arch = "aarch64")]
#[doc(hidden)]
#[macro_export]
macro_rules! argument {
    ("rdi") => {
        "x0"
    };
    ("rsi") => {
        "x1"
    };
    ("rdx") => {
        "x2"
    };
    ("rcx") => {
        "x3"
    };
    ("r8") => {
        "x4"
    };
    ("r9") => {
        "x5"
    };
    ("7th") => {
        "x6"
    };
    ("8th") => {
        "x7"
    };
}
