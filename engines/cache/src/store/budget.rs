//! Bytes that several caches share.
//!
//! ```text
//!   insertion ─► change(+bytes) ─► over the limit? ─► who saves least for each byte ─► give ─► again, until it holds
//! ```
//!
//! G1  A member gives when it saves least, in time by bytes, of those that have more than their floor. What counts is
//!     lately: savings fade by half each time that as many bytes as the budget came in.
//! G2  Nobody is asked below his floor by the budget; floors that add up to more than the limit are the program's
//!     mistake, and then the limit does not hold, which [`Budget::used_bytes`] says.
//! G3  One thread settles at a time, and as long as the limit does not hold and somebody can give. Others that are over
//!     meanwhile wait for it, and settle in turn if it still does not hold: nobody inserts faster than is given.
//! G4  No lock of a member is held when another one is asked.
//! G5  A value that inserts while it is dropped does so on the thread that settles, which does not wait for itself.
//!
//! Not here: who goes within a member (`shard`).

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use skinflint_base::sync::{AtomicIsize, AtomicUsize, Ordering};

/// A cache, as its budget sees it.
pub trait Member: Send + Sync {
    /// What it has.
    fn bytes(&self) -> usize;
    /// What is never taken from it.
    fn floor_bytes(&self) -> usize;
    /// Time that hits saved lately.
    fn recent_ns(&self) -> u64;
    /// Half of that is forgotten.
    fn fade(&self);
    /// Drops so many bytes, cold ones first; returns how many.
    fn give(&self, bytes: usize) -> usize;
}

/// A budget. Any thread may use it.
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
    /// One of so many bytes.
    pub fn new(limit_bytes: usize) -> Arc<Budget> {
        Arc::new(Budget {
            limit: limit_bytes,
            used: AtomicIsize::new(0),
            came: AtomicUsize::new(0),
            members: Mutex::default(),
            settling: Mutex::default(),
        })
    }

    /// Its bytes.
    pub fn limit_bytes(&self) -> usize {
        self.limit
    }

    /// What members have.
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
            // Who was here before has done it.
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
        // A little more than is wanted, so that not every insertion settles. Each turn asks everybody, or as many as it takes.
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
                .min_by(|(_, a), (_, b)| worth(&***a).total_cmp(&worth(&***b)));
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

/// This thread settles (G5).
struct Here;

impl Here {
    /// `None`: it does so already.
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

/// A member's part. What it still has goes from the sum when it ends.
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

    /// The member has so many bytes more, or less. May ask members to give.
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

/// Time saved lately for each byte.
fn worth(member: &dyn Member) -> f64 {
    member.recent_ns() as f64 / member.bytes().max(1) as f64
}
