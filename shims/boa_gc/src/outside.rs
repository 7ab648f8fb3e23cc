//! Memory of a tenant's objects outside of their heap, as the client counts it; it is part of the tenant's limit.
//!
//! ```text
//!   enter, leave ─► what was counted since is the entered tenant's ─┐
//!   a value is dropped ─► what was counted meanwhile is its own's ──┴─► objects + outside > limit? ─► collect ─► still?
//! ```
//!
//! W1  The client counts bytes of this thread. They grow and fall by what the entered tenant does; what the drop of a
//!     value gives back belongs to the value's tenant, whichever tenant is entered.
//! W2  If no tenant has a limit, the client is not asked.
//! W3  A tenant's limit is checked between two allocations of objects, and when its client asks. What is acquired
//!     between two checks is not refused: the check comes too late by that much.
//!
//! Not here: the limit of the heap itself, which refuses (`skinflint_gc`).

use skinflint_gc::Reason;

use crate::local::Local;
use crate::object::Erased;
use crate::skinflint::OutOfMemory;
use crate::tenant::Tenant;

/// The number of collections in a row that may leave less than a sixteenth of the limit.
const INEFFECTIVE: u32 = 4;

impl Tenant {
    /// Returns the bytes of its objects and of what they hold outside.
    fn whole_bytes(&self) -> usize {
        self.live_bytes() + self.outside_bytes()
    }

    /// Returns the bytes outside, if they are counted.
    pub(crate) fn outside_bytes(&self) -> usize {
        // It may fall below 0 by what other tenants had acquired for it.
        usize::try_from(self.outside.get()).unwrap_or(0)
    }
}

impl Local {
    /// Begins anew: from here on bytes belong to the entered tenant.
    pub(crate) fn begin_outside(&self) {
        self.outside_seen
            .set(self.client.get().map_or(0, |client| client()));
    }

    /// Returns the bytes that were counted since the last look.
    fn outside_since(&self) -> isize {
        let now = self.client.get().map_or(0, |client| client());
        now.wrapping_sub(self.outside_seen.replace(now)) as isize
    }

    /// Charges what was counted since the last look to the entered tenant (W1).
    pub(crate) fn settle_outside(&self) {
        if self.limits_outside.get() {
            let since = self.outside_since();
            // SAFETY: `tenants` keeps it.
            let tenant = unsafe { &*self.current.get() };
            tenant.outside.set(tenant.outside.get() + since);
        }
    }

    /// Ends a part of an object: what it gives back is credited to the object's own tenant (W1).
    pub(crate) fn on_account_of(&self, object: Erased, act: impl FnOnce()) {
        if !self.limits_outside.get() {
            return act();
        }
        self.settle_outside();
        let tenant = self.tenant_of(object);
        act();
        let since = self.outside_since();
        tenant.outside.set(tenant.outside.get() + since);
    }

    /// Collects the entered tenant if it holds more than it may; an error if that was not enough (W3).
    pub(crate) fn keep_within(&self) -> Result<(), OutOfMemory> {
        if !self.limits_outside.get() || self.busy.get() {
            return Ok(());
        }
        self.settle_outside();
        let tenant = self.current();
        let limit = tenant.limit_bytes;
        if tenant.whole_bytes() <= limit {
            return Ok(());
        }
        self.collect_now(std::slice::from_ref(&tenant), Reason::Shortage);
        self.settle_outside();
        let left = limit.checked_sub(tenant.whole_bytes());
        let ineffective = match left {
            Some(left) if left >= limit / 16 => 0,
            _ => tenant.ineffective.get() + 1,
        };
        tenant.ineffective.set(ineffective);
        if left.is_some() && ineffective < INEFFECTIVE {
            return Ok(());
        }
        Err(OutOfMemory {
            tenant: tenant.name.to_string(),
            bytes: 0,
            held_bytes: tenant.whole_bytes(),
            why: format!(
                "heap \"{}\": {} bytes of objects and {} that they hold outside of it: its limit is {limit}",
                tenant.name,
                tenant.live_bytes(),
                tenant.outside_bytes(),
            ),
        })
    }
}
