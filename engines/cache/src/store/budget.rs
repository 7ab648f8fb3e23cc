//! Bytes that several caches share.
//!
//! ```text
//!   insertion ─► change(+bytes) ─► over the limit? ─► which saves least for a byte? ─► give ─► again, until it holds
//! ```
//!
//! G1  Of the members above their floor the one that saves least gives, in saved time for each byte. Recent savings
//!     count: they fade by half each time that new bytes amount to the budget's limit. What is made anew although it was
//!     there lately, and went for want of room, counts like a hit, since with more room it would have been one: a ring that
//!     does not fit yet has no hit. Less than a hundredth of what making took lately counts as nothing, as for a placebo
//!     (stats.V1): what one member saved long ago is a small number, and any number would be more than none for ever. Of
//!     members that save as much the largest gives, whatever the order in which they joined.
//! G2  The budget asks no member for what is below its floor. Floors that add up to more than the limit are the
//!     program's mistake, and then the limit does not hold, which [`Budget::used_bytes`] shows.
//! G3  One thread settles at a time, and as long as the limit does not hold and a member can give. Other threads that
//!     go over the limit meanwhile wait for it, and settle in turn if the limit still does not hold: no thread inserts
//!     faster than members give.
//! G4  No lock of a member is held when another one is asked.
//! G5  A value that inserts while it is dropped does so on the thread that settles, which does not wait for itself.
//!
//! Not here: which entries go within a member (`shard`).

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use skinflint_base::sync::{AtomicIsize, AtomicUsize, Ordering};

/// A cache, as its budget sees it.
pub trait Member: Send + Sync {
    /// Returns the bytes that it has.
    fn bytes(&self) -> usize;
    /// Returns the bytes that are never taken from it.
    fn floor_bytes(&self) -> usize;
    /// Returns the time that hits saved lately, or would have saved had there been room; 0 if it is next to nothing (G1).
    fn recent_ns(&self) -> u64;
    /// Halves that time.
    fn fade(&self);
    /// Drops `bytes` bytes, cold entries first; returns the bytes dropped.
    fn give(&self, bytes: usize) -> usize;
}

/// A number of bytes that several caches share. Any thread may use it.
pub struct Budget {
    limit: usize,
    used: AtomicIsize,
    came: AtomicUsize,
    members: Mutex<Vec<Weak<dyn Member>>>,
    settling: Mutex<()>,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.used_bytes(), self.limit)
    }
}

impl Budget {
    /// Creates a budget of `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Arc<Budget> {
        Arc::new(Budget {
            limit: limit_bytes,
            used: AtomicIsize::new(0),
            came: AtomicUsize::new(0),
            members: Mutex::default(),
            settling: Mutex::default(),
        })
    }

    /// Returns the limit.
    pub fn limit_bytes(&self) -> usize {
        self.limit
    }

    /// Returns the bytes that the members have.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed).max(0) as usize // ORDER: a statistic
    }

    pub(super) fn add(&self, member: Weak<dyn Member>) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|one| one.strong_count() > 0);
        members.push(member);
    }

    fn change(&self, by: isize) {
        let used = self.used.fetch_add(by, Ordering::Relaxed) + by; // ORDER: a sum
        if by > 0 {
            self.came.fetch_add(by as usize, Ordering::Relaxed); // ORDER: a sum
        }
        if by > 0 && used > self.limit as isize {
            self.settle();
        }
    }

    #[cold]
    fn settle(&self) {
        let Some(_here) = Here::enter() else { return };
        let _one = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        if self.used_bytes() <= self.limit {
            // The thread that held the lock before has settled it.
            return;
        }
        let members: Vec<Arc<dyn Member>> = {
            let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().filter_map(Weak::upgrade).collect()
        };
        // ORDER: a sum.
        if self.came.load(Ordering::Relaxed) > self.limit {
            self.came.store(0, Ordering::Relaxed); // ORDER: as above
            members.iter().for_each(|member| member.fade());
        }
        // A little more than needed, so that not every insertion settles. Each turn asks all members, or as many as are
        // needed.
        let mut asked = vec![false; members.len()];
        let mut given = 0;
        loop {
            let over = self
                .used_bytes()
                .saturating_sub(self.limit - self.limit / 64);
            if over == 0 {
                return;
            }
            let worst = members
                .iter()
                .enumerate()
                .filter(|(at, member)| !asked[*at] && member.bytes() > member.floor_bytes())
                .min_by(|(_, a), (_, b)| by_worth(&***a, &***b));
            if let Some((at, member)) = worst {
                asked[at] = true;
                let spare = member.bytes().saturating_sub(member.floor_bytes());
                given += member.give(over.min(spare));
            } else if core::mem::take(&mut given) > 0 {
                asked.fill(false);
            } else {
                return;
            }
        }
    }
}

std::thread_local! {
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// Marks that this thread settles (G5).
struct Here;

impl Here {
    /// Enters. `None`: this thread settles already.
    fn enter() -> Option<Here> {
        match HERE.replace(true) {
            true => None,
            false => Some(Here),
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        HERE.set(false);
    }
}

/// A member's part. When it ends, what it still has leaves the sum.
pub(super) struct Share {
    budget: Arc<Budget>,
    held: AtomicIsize,
}

impl Share {
    pub(super) fn of(budget: &Arc<Budget>) -> Share {
        Share {
            budget: Arc::clone(budget),
            held: AtomicIsize::new(0),
        }
    }

    /// Adds `by` bytes to the member's part, or takes them away. May ask members to give.
    pub(super) fn change(&self, by: isize) {
        self.held.fetch_add(by, Ordering::Relaxed); // ORDER: a sum
        self.budget.change(by);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.change(-*self.held.get_mut());
    }
}

/// Orders members by what they save for each byte; of two that save as much, nothing to begin with, the larger one comes
/// first (G1).
fn by_worth(a: &dyn Member, b: &dyn Member) -> core::cmp::Ordering {
    let larger = |a: &dyn Member, b: &dyn Member| b.bytes().cmp(&a.bytes());
    worth(a).total_cmp(&worth(b)).then_with(|| larger(a, b))
}

/// Returns the time saved lately for each byte.
fn worth(member: &dyn Member) -> f64 {
    member.recent_ns() as f64 / member.bytes().max(1) as f64
}
