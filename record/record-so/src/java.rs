//! The Java virtual machine of a program: met when a frame first lies in it, and read when code that it generated is on a stack.
//!
//! ```text
//!   libjvm.so is met ─► MACHINE ─ code outside of modules on a stack ─► its tables are read, once ─► frames.rs
//!   made: the unwinder asks how a frame of generated code lies
//! ```
//!
//! V1  The tables are read when code that the machine generated runs: then it has been initialized.
//! V2  Threads that met such code before have guessed: rules and remembered stacks are forgotten (modules.rs, a new epoch).
//!
//! Not here: what frames of Java are (`skinflint_frames`), where they are written (frames.rs).

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use skinflint_base::loader::LinkMap;
use skinflint_frames::{Java, JavaFrame, JavaTables, Reader};
use skinflint_unwind::Made;

use crate::frames;

static MACHINE: AtomicPtr<LinkMap> = AtomicPtr::new(core::ptr::null_mut());
/// An address in the machine: where that is no longer mapped, it is gone.
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// Remembers a module, if it is a virtual machine of Java's that describes itself, and there is no other interpreter.
///
/// # Safety
/// The module is loaded.
pub unsafe fn met(module: &LinkMap) {
    if !cfg!(target_arch = "x86_64") || frames::is_decided() {
        return;
    }
    // SAFETY: as the caller promises.
    let structs = unsafe { module.function(c"gHotSpotVMStructs") };
    if !structs.is_null() {
        INSIDE.store(structs as u64, Ordering::Relaxed); // ORDER: Relaxed; the caller reports modules alone.
        // ORDER: Release; pairs with the Acquire of `begin`.
        MACHINE.store((&raw const *module).cast_mut(), Ordering::Release);
    }
}

/// Begins to read a machine that was met, if there is one. Returns whether it has done so just now: then all that was guessed is to be
/// forgotten (V2).
pub fn begins() -> bool {
    // ORDER: Relaxed; null nearly always, and `begin` decides.
    !MACHINE.load(Ordering::Relaxed).is_null() && begin()
}

/// Returns how the frame of generated code lies.
pub fn made(pc: u64) -> Option<Made> {
    let (Reader::Java(java), proved) = frames::reader()? else {
        return None;
    };
    // SAFETY: the machine is loaded: code of it is on a stack.
    let frame = unsafe { java.frame_at(pc, proved) };
    frame.map(|frame| match frame {
        JavaFrame::Sized(bytes) => Made::Sized(bytes),
        JavaFrame::Pointed => Made::Pointed,
        JavaFrame::Interpreted => Made::Interpreted,
    })
}

/// Reads the tables of the machine (V1).
#[cold]
fn begin() -> bool {
    // ORDER: Acquire; pairs with the Release of `met`. One thread gets it.
    let module = MACHINE.swap(core::ptr::null_mut(), Ordering::Acquire);
    if module.is_null() || frames::is_decided() {
        return false;
    }
    // SAFETY: the loader's own, of a module that code runs in; so it is loaded and relocated.
    let (found, version) = unsafe {
        let variable = |name| (*module).function(name).cast_const();
        Java::find(&JavaTables {
            structs: variable(c"gHotSpotVMStructs"),
            types: variable(c"gHotSpotVMTypes"),
            constants: variable(c"gHotSpotVMIntConstants"),
            strides: [
                variable(c"gHotSpotVMStructEntryArrayStride"),
                variable(c"gHotSpotVMTypeEntryArrayStride"),
                variable(c"gHotSpotVMIntConstantEntryArrayStride"),
            ],
        })
    };
    frames::begin(found.map(Reader::Java), version);
    true
}

/// Forgets the machine if it is gone. `is_gone` is asked with an address in it.
pub fn forget_if(is_gone: impl FnOnce(u64) -> bool) {
    // ORDER: Relaxed throughout; modules are reported by one thread at a time.
    let inside = INSIDE.load(Ordering::Relaxed);
    if inside == 0 || !is_gone(inside) {
        return;
    }
    INSIDE.store(0, Ordering::Relaxed);
    // The tables of a machine that was unloaded before it ran are not read.
    MACHINE.store(core::ptr::null_mut(), Ordering::Relaxed); // ORDER: as above.
    if let Some((Reader::Java(_), _)) = frames::reader() {
        frames::end();
    }
}
