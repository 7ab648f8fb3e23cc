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
//! G3  One thread settles at a time; others that are over meanwhile go on, and are covered by its loop.
//! G4  No lock of a member is held when another one is asked.
//!
//! Not here: who goes within a member (`shard`).

use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

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

    /// A member has so many bytes more, or less. May ask members to give.
    pub(super) fn change(&self, by: isize) {
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
        let _one = match self.settling.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            // G3
            Err(TryLockError::WouldBlock) => return,
        };
        let members: Vec<Arc<dyn Member>> = {
            let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().filter_map(Weak::upgrade).collect()
        };
        // ORDER: a sum.
        if self.came.load(Ordering::Relaxed) > self.limit {
            self.came.store(0, Ordering::Relaxed); // ORDER: as above
            members.iter().for_each(|member| member.fade());
            // Members that ended took their bytes with them.
            let held: usize = members.iter().map(|member| member.bytes()).sum();
            self.used.store(held as isize, Ordering::Relaxed); // ORDER: changes meanwhile are seen at the next fade
        }
        // A little more than is wanted, so that not every insertion settles. Each turn asks another one, or ends.
        let mut asked = vec![false; members.len()];
        loop {
            let over = self
                .used_bytes()
                .saturating_sub(self.limit - self.limit / 64);
            let worst = members
                .iter()
                .enumerate()
                .filter(|(at, member)| !asked[*at] && member.bytes() > member.floor_bytes())
                .min_by(|(_, a), (_, b)| worth(&***a).total_cmp(&worth(&***b)));
            let (Some((at, member)), true) = (worst, over > 0) else {
                return;
            };
            asked[at] = true;
            member.give(over.min(member.bytes() - member.floor_bytes()));
        }
    }
}

/// Time saved lately for each byte.
fn worth(member: &dyn Member) -> f64 {
    member.recent_ns() as f64 / member.bytes().max(1) as f64
}
