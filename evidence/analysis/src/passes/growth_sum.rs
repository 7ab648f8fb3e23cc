//! The sums over all chains of a stack, of one kind: what was copied, what doubling would have copied, and their shape.
//!
//! ```text
//!   Chain ─► add ─► steps, bytes copied, bytes that doubling would copy     votes of their shapes ─► pattern
//! ```
//!
//! Not here: which blocks are a chain (growth.rs), the shape of a chain (growth_shape.rs).

use crate::model::GrowthPattern;
use crate::passes::growth_shape::{Chain, Factored, by_factor};

/// Doubling copies at most one in this many of the bytes copied (growth.G8).
const DOUBT: u64 = 7;

/// All chains of a stack, of one kind.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub chains: u64,
    pub steps: u64,
    pub in_place: u64,
    pub largest: u64,
    pub allocated: u64,
    pub anew: u64,
    pub copied: u64,
    /// Steps of chains that are copied there and back (growth.G9).
    pub beside: u64,
    pub doubling: Factored,
    pub half: u64,
    /// Steps of chains that are just enough, fixed, exponential.
    pub votes: [u64; 3],
    pub irregular: u64,
    pub fixed: (u64, u64),
    pub ln_factor: f64,
}

impl Sum {
    pub fn add(&mut self, chain: &Chain) {
        let steps = u64::from(chain.steps);
        self.chains += 1;
        self.steps += steps;
        self.in_place += u64::from(chain.in_place);
        self.largest = self.largest.max(chain.last);
        self.allocated = self.allocated.saturating_add(chain.allocated);
        self.anew = self.anew.saturating_add(chain.anew);
        if chain.is_copied_beside() {
            self.beside += u64::from(chain.beside);
        }
        self.copied = self.copied.saturating_add(chain.copied_at_all());
        let doubled = chain.doubled();
        self.doubling.asked = self.doubling.asked.saturating_add(doubled.asked);
        self.doubling.steps += doubled.steps;
        // A buffer that doubling would copy more often is left as it is (growth.G5).
        let copied = doubled.copied.min(chain.copied);
        self.doubling.copied = self.doubling.copied.saturating_add(copied);
        let half = by_factor(chain.first, chain.last, (3, 2));
        self.half = self.half.saturating_add(half.asked);
        match chain.pattern() {
            GrowthPattern::JustEnough => self.votes[0] += steps,
            GrowthPattern::FixedStep(step) => {
                self.votes[1] += steps;
                self.fixed = self.fixed.max((steps, step));
            }
            GrowthPattern::Exponential(factor) => {
                self.votes[2] += steps;
                self.ln_factor += factor.ln() * steps as f64;
            }
            GrowthPattern::Irregular => self.irregular += steps,
        }
    }

    /// Reports whether it is known what doubling copies (growth.G8).
    pub fn is_exact(&self) -> bool {
        self.doubling.copied <= self.copied / DOUBT
    }

    pub fn pattern(&self) -> GrowthPattern {
        let [just, fixed, factor] = self.votes;
        let most = just.max(fixed).max(factor);
        if most == 0 || most < self.irregular {
            GrowthPattern::Irregular
        } else if factor == most {
            GrowthPattern::Exponential((self.ln_factor / factor as f64).exp())
        } else if fixed == most {
            GrowthPattern::FixedStep(self.fixed.1)
        } else {
            GrowthPattern::JustEnough
        }
    }
}
