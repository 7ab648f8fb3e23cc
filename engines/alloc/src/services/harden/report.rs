//! SIGSEGV and SIGBUS: the block that a fault at a guard page concerns.
//!
//! ```text
//!   fault ──► in the pool of samples, or at a guarded or waiting large block? ──► a story ──► the program's
//!                └ neither ───────────────────────────────────────────────────────────────► handler, or the
//!                                                                                           default action
//! ```
//!
//! N1  With `warn` and `ignore` the page is opened and the program goes on.
//!
//! Not here: the signal (`handler`), stacks (`stacks`).

use core::ffi::{c_int, c_void};

use skinflint_base::sys;

use super::handler::pass_on;
use super::story::{self, Story};
use super::{guard, sampled};
use crate::heaps::fault::{Policy, policy};

/// Handles a fault.
///
/// # Safety
/// The kernel calls it, as a handler that is told of the fault.
pub unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as the kernel promises a handler.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // Codes above 0 are the kernel's own: then there is an address.
    if code > 0 && explain(address, is_write(context)) && policy() != Policy::Abort {
        return;
    }
    // SAFETY: as above.
    unsafe { pass_on(signal, code, info, context) };
}

/// Reports whether the access was a write, by the syndrome that the kernel puts behind the registers (`esr_context`).
/// Without it a fault counts as a read.
#[cfg(target_arch = "aarch64")]
fn is_write(context: *mut c_void) -> bool {
    const MAGIC: u32 = 0x4553_5201;
    /// Bytes of `mcontext_t` before the records, and of the records.
    const RECORDS_AT: usize = 288;
    const RECORDS: usize = 4096;
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: the kernel's structure, in which records follow each other up to one of size 0.
    unsafe {
        let records = (&raw const (*context).uc_mcontext)
            .cast::<u8>()
            .add(RECORDS_AT);
        let mut at = 0;
        while at + 16 <= RECORDS {
            let [magic, size] = records.add(at).cast::<[u32; 2]>().read();
            if magic == MAGIC {
                return records.add(at + 8).cast::<u64>().read() & 1 << 6 != 0;
            }
            if size == 0 {
                break;
            }
            at += size as usize;
        }
    }
    false
}

/// Reports whether the access was a write, by the processor's error code.
#[cfg(target_arch = "x86_64")]
fn is_write(context: *mut c_void) -> bool {
    let context: *const libc::ucontext_t = context.cast();
    // SAFETY: the kernel's structure.
    let error = unsafe { (&(*context).uc_mcontext.gregs)[libc::REG_ERR as usize] };
    error & 2 != 0
}

/// Reports a fault that concerns one of our blocks, and opens the page (N1). `false`: it concerns none.
fn explain(address: usize, write: bool) -> bool {
    if sampled::is_ours(address) {
        tell(sampled::name_of(address), address, write, |story| {
            sampled::describe(story, address);
        });
        if policy() != Policy::Abort {
            sampled::allow(address);
        }
        return true;
    }
    let Some(near) = guard::near(address) else {
        return false;
    };
    let what: &[u8] = if near.freed {
        b"use after free"
    } else if address < near.start {
        b"access before the start of a block"
    } else {
        b"access behind the end of a block"
    };
    tell(what, address, write, |story| {
        story::place(story, address, near.start, near.bytes);
    });
    if policy() != Policy::Abort {
        guard::allow_page(address);
    }
    true
}

fn tell(what: &[u8], address: usize, write: bool, more: impl FnOnce(&mut Story)) {
    if policy() == Policy::Ignore {
        return;
    }
    story::tell(|story| {
        story.add(b"skinflint: ");
        story.add(what);
        story.add(if write { b": write to " } else { b": read of " });
        story.add_hex(address);
        story.add(b" by thread ");
        story.add_number(u64::from(sys::gettid()));
        story.add(b"\n");
        more(story);
    });
}
