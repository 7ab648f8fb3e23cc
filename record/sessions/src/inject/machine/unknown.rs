//! Architectures on which nothing is called in another process yet. What stands here has the names of x86_64.rs and is
//! never reached: [`REFUSAL`] comes before anything is stopped.

use std::io;

use skinflint_unwind::Frame;

/// Why nothing can be called on this architecture.
pub(crate) const REFUSAL: Option<&str> =
    Some("attach: not on this architecture yet; start the program with `skinflint record`");

#[derive(Clone)]
pub(crate) struct Registers;

/// Why registers could not be read.
pub(crate) enum Unreadable {
    #[allow(dead_code)]
    Narrow,
    Error(io::Error),
}

fn not_here() -> io::Error {
    io::Error::from(io::ErrorKind::Unsupported)
}

impl Registers {
    pub(crate) fn of(_tid: u32) -> Result<Registers, Unreadable> {
        Err(Unreadable::Error(not_here()))
    }

    pub(crate) fn set(&self, _tid: u32) -> io::Result<()> {
        Err(not_here())
    }

    pub(crate) fn frame(&self) -> Frame {
        Frame {
            pc: 0,
            sp: 0,
            bp: 0,
            is_exact: true,
        }
    }

    pub(crate) fn has_thread(&self) -> bool {
        false
    }

    pub(crate) fn free_stack(&self) -> u64 {
        0
    }

    pub(crate) fn for_call(&self, _: u64, _: &[u64], _: u64) -> (Registers, u64) {
        (Registers, 0)
    }

    pub(crate) fn result(&self) -> u64 {
        0
    }

    pub(crate) fn pc(&self) -> u64 {
        0
    }

    pub(crate) fn is_stopped_by(&self, _breakpoint: u64) -> bool {
        false
    }

    pub(crate) fn gives_up_a_call(&self) -> bool {
        false
    }

    pub(crate) fn begin_again(&mut self) {}
}

pub(crate) struct Vectors;

impl Vectors {
    pub(crate) fn of(_tid: u32) -> io::Result<Vectors> {
        Err(not_here())
    }

    pub(crate) fn set(&mut self, _tid: u32) -> io::Result<()> {
        Err(not_here())
    }
}

pub(crate) fn has_shadow_stack(_tid: u32) -> bool {
    false
}

pub(crate) fn breakpoint(_code: &[u8]) -> Option<usize> {
    None
}
