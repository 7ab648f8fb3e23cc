//! Architectures on which nothing is called in another process yet. What stands here has the names of x86_64.rs and is
//! never reached: [`REFUSAL`] comes before anything is stopped.

use std::io;

use skinflint_unwind::Frame;

/// Why nothing can be called on this architecture.
pub(in super::super) const REFUSAL: Option<&str> =
    Some("attach: not on this architecture yet; start the program with `skinflint record`");

#[derive(Clone)]
pub(in super::super) struct Registers;

/// Why registers could not be read.
pub(in super::super) enum Unreadable {
    #[allow(dead_code)]
    Narrow,
    Error(io::Error),
}

fn not_here() -> io::Error {
    io::Error::from(io::ErrorKind::Unsupported)
}

impl Registers {
    pub(in super::super) fn of(_tid: u32) -> Result<Registers, Unreadable> {
        Err(Unreadable::Error(not_here()))
    }

    pub(in super::super) fn set(&self, _tid: u32) -> io::Result<()> {
        Err(not_here())
    }

    pub(in super::super) fn frame(&self) -> Frame {
        Frame {
            pc: 0,
            sp: 0,
            bp: 0,
            is_exact: true,
        }
    }

    pub(in super::super) fn has_thread(&self) -> bool {
        false
    }

    pub(in super::super) fn free_stack(&self) -> u64 {
        0
    }

    pub(in super::super) fn for_call(&self, _: u64, _: &[u64], _: u64) -> (Registers, u64) {
        (Registers, 0)
    }

    pub(in super::super) fn result(&self) -> u64 {
        0
    }

    pub(in super::super) fn pc(&self) -> u64 {
        0
    }

    pub(in super::super) fn is_stopped_by(&self, _breakpoint: u64) -> bool {
        false
    }

    pub(in super::super) fn gives_up_a_call(&self) -> bool {
        false
    }

    pub(in super::super) fn begin_again(&mut self) {}
}

pub(in super::super) struct Vectors;

impl Vectors {
    pub(in super::super) fn of(_tid: u32) -> io::Result<Vectors> {
        Err(not_here())
    }

    pub(in super::super) fn set(&mut self, _tid: u32) -> io::Result<()> {
        Err(not_here())
    }
}

pub(in super::super) fn has_shadow_stack(_tid: u32) -> bool {
    false
}

pub(in super::super) fn breakpoint(_code: &[u8]) -> Option<usize> {
    None
}
