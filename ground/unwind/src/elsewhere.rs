//! Stacks of a thread of another process, which stands still: its tables are copied, its stack is read word by word.
//!
//! ```text
//!   pc there ──► the copy of its module's tables, here ──► row ──► words of its stack, by the caller's `load` ──► pc
//! ```
//!
//! E1  Only the copy and what `load` returns are read; nothing of the other process is mapped here.
//! E2  Pointers in tables are relative to where they lie, so a table that was copied whole gives addresses that are
//!     off by the distance of the copy, and so is the pc that is looked up. Absolute pointers find nothing.
//! E3  Outside of signal frames the stack pointer only grows (step.S2), so a walk ends.
//!
//! Not here: which process, how it is stopped, which modules it has (the caller).

use crate::cfi::{FP, row_at};
use crate::find::Module;
use crate::step::{self, End, Memory, Stepped, shape};

/// A frame of the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it is in its code, or will go on.
    pub pc: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// Its `rbp`.
    pub bp: u64,
    /// Whether `pc` is the very next instruction: of the innermost frame, and of one that a signal interrupted. Others
    /// are at a return address, and their call lies before it.
    pub is_exact: bool,
}

/// A copy of the part of a module that has its `.eh_frame_hdr` and `.eh_frame`.
#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The address of the first of them in the other process.
    pub at: u64,
    /// The address of `.eh_frame_hdr` there.
    pub header: u64,
}

struct Elsewhere<'a>(&'a mut dyn FnMut(u64) -> Option<u64>);

impl Memory for Elsewhere<'_> {
    fn load(&mut self, addr: u64) -> Option<u64> {
        (self.0)(addr)
    }
}

impl Frame {
    /// Returns an address in the instruction that the frame is in.
    pub fn code(&self) -> u64 {
        self.pc.wrapping_sub(u64::from(!self.is_exact))
    }

    /// Returns the frame of the caller. `tables`: those of the module that has the code, `None` for code without.
    ///
    /// # Errors
    /// Why there is none: [`End::Complete`] if this is the outermost.
    pub fn caller(
        &self,
        tables: Option<&Tables<'_>>,
        load: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<Frame, End> {
        let memory = &mut Elsewhere(load);
        let row = tables.and_then(|tables| {
            let here = tables.bytes.as_ptr() as u64;
            let moved = |at: u64| at.wrapping_sub(tables.at).wrapping_add(here);
            let bounds = (here, here + tables.bytes.len() as u64);
            let module = Module {
                start: bounds.0,
                end: bounds.1,
                hdr: moved(tables.header),
                tables: bounds,
            };
            // SAFETY: E1: the bounds are those of the copy, which is borrowed.
            unsafe { row_at(&module, moved(self.code()), FP) }
        });
        let stepped: Stepped = match row {
            Some(row) if row.signal => step::step_signal(memory, self.sp)?,
            Some(row) if row.ra == crate::cfi::Saved::Undefined => return Err(End::Complete),
            Some(row) => step::leave_by_row(memory, &row, self.sp, self.bp)?,
            None => step::step_frame_pointer(memory, self.sp, self.bp)?,
        };
        match stepped.link.ra {
            0 => Err(End::Complete),
            pc => Ok(Frame {
                pc,
                sp: stepped.sp,
                bp: stepped.bp,
                is_exact: stepped.shape & shape::SIGNAL != 0,
            }),
        }
    }
}
