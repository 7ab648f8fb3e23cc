//! A comparison and a jump in assembly, for the fast paths.
//!
//! ```text
//!   branch!("cmp …", "jne", [operands], [options], else {}) ─► one instruction that compares with memory, one jump
//! ```
//!
//! For a word that may change the compiler makes a load, a comparison or subtraction, and a store; on a fast path each is
//! an instruction more. The way out is a block of the caller's, and may return from its function.
//!
//! Not here: what is compared (`malloc`, `free`).

/// Executes an instruction, and leaves by the block if the jump behind it is taken. The caller says why that is safe.
macro_rules! branch {
    ($instruction:literal, $jump:literal, [$($operands:tt)*], [$($option:ident),*], else $way:block) => {
        core::arch::asm!(
            $instruction,
            concat!($jump, " {way}"),
            $($operands)*,
            way = label $way,
            options($($option,)* nostack),
        )
    };
}

pub(crate) use branch;
