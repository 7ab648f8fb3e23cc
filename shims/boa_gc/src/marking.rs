//! Marking in slices, without a barrier: it finds most of what is alive, and need not find all.
//!
//! ```text
//!   new objects ─► stack ─► slice: pop, mark, tell edges ─► … ─► empty ─► few unmarked? ─► final: they are examined
//!                    ▲                                                │ many
//!                    └── those that have other handles ◄─ trial deletion: they count each other's edges, in slices
//! ```
//!
//! M1  What is marked is considered alive until the next cycle. What is not marked is only suspected: `examine`
//!     checks its counts at one moment. So whatever the program changes while marking goes on, nothing alive is lost;
//!     what was missed only makes the last step longer.
//! M2  Marking begins with nothing: objects that are allocated meanwhile are alive, and lead to the rest of what the
//!     program uses, its shapes, prototypes and scopes.
//! M3  Pointers on the stack may be out of date: their cells may be free, or hold another object. As long as a tenant
//!     is being marked its cells keep their sizes and heads (no [`Tenant::give_back`]), so each pointer leads to a
//!     cell of ours. Marking an object that no edge reported keeps it until the next cycle. Before another tenant
//!     gives memory back, pointers to it are removed from the stack.
//! M4  A slice pops a bounded number of objects. (One object may report many edges.)
//! M5  A program that moves a subtree from an object that was not marked yet to one that was hides the subtree.
//!     Trial deletion finds it again: counts that change meanwhile make it less exact, but it decides only where
//!     marking goes on.
//! M6  Only what is in a trial deletion or being examined has [`SUSPECT`] set. An examination ends all trials first.
//!
//! Not here: the last step (`collect`), what is garbage (`examine`).

use std::rc::Rc;

use skinflint_gc::Reason;

use crate::examine::can_be_suspected;
use crate::local::Local;
use crate::object::{DOOMED, ENDED, Erased, QUEUED, SUSPECT, head};
use crate::placed::number_of;
use crate::tenant::Tenant;
use crate::trace::Tracer;

/// The least number of objects popped for each one allocated.
const LEAST: usize = 8;
/// The most passes of following and opening pairs in one slice.
const PASSES: usize = 4;
/// The number of unmarked objects that are examined at once: a millisecond or two.
pub(crate) const FEW: usize = 4096;
/// The most trial deletions of a cycle.
const TRIALS: u32 = 8;

/// A marking cycle that is under way.
pub(crate) struct Marking {
    pub(crate) reason: Reason,
    tracer: Tracer,
    /// Ephemerons that are alive, and whose keys are not marked yet.
    pairs: Vec<Erased>,
    /// The number of bytes at which it ends, whatever is left to be followed (M1).
    last_bytes: usize,
    /// The number of objects popped for each tick.
    pub(crate) budget: usize,
    /// Whether any edge was reported so far.
    begun: bool,
    trial: Option<TrialDeletion>,
    /// The number of trial deletions that it may still begin.
    trials: u32,
    /// The number of unmarked objects when the last trial deletion began.
    unmarked: usize,
}

/// Unmarked objects that count their edges to each other.
struct TrialDeletion {
    objects: Vec<Erased>,
    next: usize,
    pass: Pass,
    /// The number of objects that something else has handles to.
    found: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Suspect,
    Count,
    Tell,
}

impl Local {
    /// Begins a cycle of a tenant.
    pub(crate) fn begin_marking(&self, tenant: &Tenant, reason: Reason) {
        let threshold = tenant.threshold.get().max(1);
        // Everything is to be marked while the heap grows by a quarter of what it grew since the last time.
        let grown = tenant.kept_bytes().saturating_sub(tenant.survived.get());
        let room = (grown.max(threshold / 8) / 4).max(1);
        let ratio = (tenant.kept_bytes() / room).clamp(LEAST, 64);
        *tenant.marking.borrow_mut() = Some(Box::new(Marking {
            reason,
            tracer: Tracer::new(),
            pairs: Vec::new(),
            last_bytes: 2 * tenant.live_bytes(),
            budget: ratio * crate::local::TICKS as usize,
            begun: false,
            trial: None,
            trials: TRIALS,
            unmarked: usize::MAX,
        }));
        tenant.is_marking.set(true);
        self.watch();
    }

    /// Gives up a cycle: no marks are left.
    pub(crate) fn abandon_marking(&self, tenant: &Tenant) {
        if tenant.is_marking.replace(false) {
            if let Some(mut marking) = tenant.marking.borrow_mut().take() {
                marking.end_trial();
            }
            tenant.take_unmarked(|_| ());
            self.watch();
        }
    }

    /// Prepares for giving back a tenant's memory: markings of other tenants must not look at it (M3).
    pub(crate) fn forget_foreign(&self, tenant: &Tenant) {
        for other in self.all_tenants() {
            if let Some(marking) = other.marking.borrow_mut().as_mut() {
                let gone = tenant.heap.id();
                // SAFETY: what is on the stack lies in memory that is still there (M3).
                let stays = |&object: &Erased| unsafe { number_of(object) } != gone;
                marking.tracer.stack.retain(stays);
            }
        }
    }

    /// Continues for a slice; returns whether nothing is left to be followed.
    pub(crate) fn mark_some(&self, tenant: &Rc<Tenant>) -> bool {
        let mut marking = tenant.marking.borrow_mut();
        let Some(marking) = marking.as_mut() else {
            return false;
        };
        let mut left = marking.budget;
        for _ in 0..PASSES {
            if marking.trial.is_some() {
                marking.try_some(&mut left);
            } else {
                marking.follow(tenant, &mut left);
                if left > 0 {
                    marking.open_pairs(tenant);
                    left -= (marking.pairs.len() / 4).min(left / 2);
                }
            }
            if left == 0 {
                return false;
            }
            if tenant.live_bytes() > marking.last_bytes {
                return true;
            }
            if marking.tracer.stack.is_empty() && marking.trial.is_none() && marking.begun {
                return !marking.begin_trial(tenant, self.few.get());
            }
        }
        false
    }

    /// Ends all trial deletions (M6).
    pub(crate) fn end_trials(&self) {
        for tenant in self.all_tenants() {
            if let Some(marking) = tenant.marking.borrow_mut().as_mut() {
                marking.end_trial();
            }
        }
    }
}

/// Makes an ephemeron count the edges of its value, if it is alive and its key is suspected.
fn count_open(pair: Erased) {
    // SAFETY: M3.
    let head = unsafe { head(pair) };
    let Some(fns) = head.vtable_if_alive().and_then(|vtable| vtable.pair) else {
        return;
    };
    // SAFETY: it has not ended; weak.W1.
    let suspected = unsafe { (fns.key)(pair).is_some_and(|key| self::head(key).has(SUSPECT)) };
    if suspected && !head.has(SUSPECT) {
        // SAFETY: it has not ended; object.H3.
        unsafe { (head.vtable.count)(pair) };
    }
}

impl Tenant {
    /// Notes an object that was allocated while marking goes on (M2).
    pub(crate) fn tell_new(&self, object: Erased) {
        if let Some(marking) = self.marking.borrow_mut().as_mut() {
            marking.begun = true;
            marking.tracer.tell(object);
        }
    }
}

impl Marking {
    /// Begins the trial deletion of what is not marked; returns false if that is little, or it was done often enough.
    fn begin_trial(&mut self, tenant: &Tenant, few: usize) -> bool {
        if self.trials == 0 {
            return false;
        }
        let mut objects = Vec::new();
        tenant.each_unmarked(|object| objects.push(object));
        // What the last trial did not make much smaller is mostly garbage.
        let before = std::mem::replace(&mut self.unmarked, objects.len());
        if objects.len() <= few || objects.len() > before / 4 * 3 {
            return false;
        }
        self.trials -= 1;
        self.trial = Some(TrialDeletion {
            objects,
            next: 0,
            pass: Pass::Suspect,
            found: 0,
        });
        true
    }

    /// Gives up the trial deletion.
    fn end_trial(&mut self) {
        let Some(trial) = self.trial.take() else {
            return;
        };
        for object in trial.objects {
            // SAFETY: M3.
            unsafe { head(object) }.clear(SUSPECT);
        }
    }

    /// Continues the trial deletion. At the end what was found is on the stack; if nothing was found, doing it again is
    /// useless.
    fn try_some(&mut self, left: &mut usize) {
        let Some(trial) = &mut self.trial else {
            return;
        };
        // Two of the three passes look only at heads.
        let end = trial.objects.len().min(trial.next + 2 * *left);
        *left -= (end - trial.next).div_ceil(2).min(*left);
        for &object in &trial.objects[trial.next..end] {
            // SAFETY: M3.
            let head = unsafe { head(object) };
            match trial.pass {
                Pass::Suspect if can_be_suspected(object) => head.suspect(),
                // SAFETY: it has not ended since: then it would be no suspect; object.H3.
                Pass::Count if head.has(SUSPECT) => unsafe { (head.vtable.count)(object) },
                Pass::Tell if head.has(SUSPECT) => {
                    head.clear(SUSPECT);
                    if !head.is_explained() {
                        trial.found += 1;
                        self.tracer.tell(object);
                    }
                }
                _ => {}
            }
        }
        trial.next = end;
        if end == trial.objects.len() {
            trial.next = 0;
            trial.pass = match trial.pass {
                Pass::Suspect => {
                    // Values of pairs whose keys are not marked explain only what the pairs lead to.
                    self.pairs.iter().for_each(|&pair| count_open(pair));
                    Pass::Count
                }
                Pass::Count => Pass::Tell,
                Pass::Tell => {
                    if trial.found == 0 {
                        self.trials = 0;
                    }
                    self.trial = None;
                    return;
                }
            };
        }
    }

    /// Pops until nothing is left, or the budget is used up.
    fn follow(&mut self, tenant: &Tenant, left: &mut usize) {
        let heap = tenant.heap.id();
        while *left > 0 {
            let Some(object) = self.tracer.stack.pop() else {
                return;
            };
            *left -= 1;
            // SAFETY: M3: a cell of some heap of ours, with a head.
            let head = unsafe { head(object) };
            // SAFETY: M3.
            let number = unsafe { number_of(object) };
            if number != heap || head.has(ENDED | QUEUED | DOOMED) {
                continue;
            }
            // SAFETY: it is this tenant's.
            if !unsafe { tenant.mark(object) } {
                continue;
            }
            if head.vtable.pair.is_some() {
                self.pairs.push(object);
            } else {
                // SAFETY: it has not ended; object.H3.
                unsafe { (head.vtable.trace)(object, &mut self.tracer) };
            }
        }
    }

    /// Follows the values of pairs whose keys are marked, or belong to another heap.
    fn open_pairs(&mut self, tenant: &Tenant) {
        let heap = tenant.heap.id();
        let tracer = &mut self.tracer;
        self.pairs.retain(|&pair| {
            // SAFETY: M3.
            let head = unsafe { head(pair) };
            let Some(fns) = head.vtable_if_alive().and_then(|vtable| vtable.pair) else {
                return false;
            };
            // SAFETY: it has not ended.
            let Some(key) = (unsafe { (fns.key)(pair) }) else {
                return false;
            };
            // SAFETY: weak.W1: the key's cell is not free.
            let open = unsafe { number_of(key) != heap || tenant.is_marked(key) };
            if open {
                // SAFETY: it has not ended.
                unsafe { (fns.trace_value)(pair, tracer) };
            }
            !open
        });
    }
}
