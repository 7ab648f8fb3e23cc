//! A sampled heap profile: what stacks hold, held at the peak, and have asked for in all; within known errors, all the time.
//!
//! ```text
//!   malloc ── budget below 0 ──► points: p ──► stack ──► books   [ address │ bytes │ p │ stack ]   [ stack │ live │ all │ peak ]
//!   free ── of the heap of samples, or a marked large block ──► books                                     └──► text ──► file
//! ```
//!
//! P1  Samples are points on the line of requested bytes (sample.Q1, sample.Q6): a block of n bytes is one with
//!     p = 1 - exp(-n / rate), which is kept with it; one as large as the rate always is, with p = 1. It counts for n / p
//!     bytes and 1 / p blocks, which is right on average (Horvitz and Thompson), for each stack and each size by itself; its
//!     part of the variance is w (w - n), with w = n / p.
//! P2  A sample is marked where no other block's free or malloc looks: small ones lie in spans of a kind of their own
//!     (`span::KIND_SAMPLED`), large ones have a bit in a byte that their free tests anyway (`runs::Large::marks`).
//! P3  A sample is taken out before its block can be handed out again, so an address is in the books once.
//! P4  LOCK guards the books. Nothing is locked while it is held, nothing allocated, and no stack walked; nor is it taken
//!     while another lock is held, but before a fork.
//! P5  Everything is bounded: [`books::SAMPLES`] samples, beyond which the rate doubles and each stays with the chance that
//!     makes P1 true for the new one; [`books::WORDS`] words of stacks, beyond which what comes is counted without its stack.
//! P6  After `stop` no block becomes a sample, and those that are stay known until they are freed.
//!
//! Not sampled: blocks of tenants (`heaps::tenant`), of threads whose destructors have run, and everything while the
//! hardening checks each call. A small block that grows in place keeps its p, with the bytes it now has.
//!
//! Not here: which blocks are met (`points`), stacks (`stack`), what samples keep resident beside them (`beside`), files
//! (`malloc-so`).

mod beside;
mod books;
mod known;
pub(super) mod points;
mod probes;
mod stack;
mod text;

use skinflint_base::sync::Ordering;

use super::sample;
use crate::heaps::slow::{self, HARDENED, PROFILED, Profile};
use crate::mechanism::lock::Who;
pub use books::RATES;
#[doc(hidden)]
pub use known::set_seconds;
use known::{LOCK, with_books};
pub use text::{What, write, write_hidden};

/// Bytes between two samples, on average, unless chosen otherwise.
pub const RATE: usize = 512 * 1024;

/// The slow paths.
pub(super) const PATHS: Profile = Profile {
    aligned: points::aligned,
    large: points::note_large,
    freed: known::freed,
    taken: known::taken,
    put_back: known::put_back,
};

/// Why there is no profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Every call is checked (SKINFLINT_HARDEN), and samples of blocks are not taken then.
    Hardened,
    /// The rate is not within [`RATES`].
    Rate,
    /// The OS refuses memory.
    Memory,
}

/// Begins a profile, or goes on with it, at the rate of before or [`RATE`]. Cost: some system calls, and what `dlsym` costs.
///
/// # Errors
/// If there is none now.
pub fn start() -> Result<(), Refused> {
    if slow::hardening().is_some() {
        return Err(Refused::Hardened);
    }
    with_books(|books| {
        if !slow::profiled() {
            if !books.begin() || !stack::begin() {
                return Err(Refused::Memory);
            }
            if books.rate == 0 {
                books.rate = RATE as u32;
            }
            HARDENED.store(PROFILED, Ordering::Relaxed); // ORDER: a switch (slow::profiled)
        }
        sample::set_profile_rate(books.rate);
        Ok(())
    })
    .unwrap_or(Err(Refused::Memory))?;
    sample::watch_frees();
    points::draw_anew(false);
    Ok(())
}

/// Reports whether there are books: a profile was begun in this process, or in one that it was forked from.
pub fn is_kept() -> bool {
    slow::profiled()
}

/// Stops taking samples (P6).
pub fn stop() {
    sample::set_profile_rate(0);
    points::draw_anew(false);
}

/// Sets the bytes between two samples, on average, from each thread's next sample on; those that were taken keep their p.
///
/// # Errors
/// If it is not within [`RATES`].
pub fn set_rate(rate: usize) -> Result<(), Refused> {
    if !(RATES.0..=RATES.1).contains(&rate) {
        return Err(Refused::Rate);
    }
    with_books(|books| {
        books.rate = rate as u32;
        if sample::profile_rate() != 0 {
            sample::set_profile_rate(books.rate);
        }
    })
    .ok_or(Refused::Memory)?;
    if sample::profile_rate() != 0 {
        points::draw_anew(false);
    }
    Ok(())
}

/// Takes the lock before a fork.
pub(super) fn before_fork(who: Who) {
    let _ = LOCK.lock(who);
}

/// Releases it in the parent.
pub(super) fn after_fork(who: Who) {
    if LOCK.is_held_by(who) {
        LOCK.unlock();
    }
}

/// Frees the locks in the child of a fork, which has the parent's blocks and so its samples, and draws its own points.
pub(super) fn in_child() {
    LOCK.reset();
    stack::forget();
    if slow::profiled() {
        points::draw_anew(true);
    }
}

#[cfg(test)]
mod tests;
